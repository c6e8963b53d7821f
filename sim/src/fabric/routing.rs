//! Shortest paths, and which host a route leads to.

use super::link::{ChannelId, Direction, End};
use super::topology::Topology;
use crate::wire::{Gid, Route, RouteTable};
use std::collections::{BTreeMap, VecDeque};

/// The shortest paths from every switch to every host. Hosts on the same switch share all of them but the last link.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// By host: the switch it is on, and the channel from there; nothing if it is on none, or its link is down.
    last: Vec<Option<(u32, u32)>>,
    /// By switch with a host, and switch from which: the channels on a shortest path to the first one.
    ways: BTreeMap<u32, Vec<Vec<u32>>>,
}

/// Finds the shortest paths over those channels that are `up`, each with its channels in the order of their ids. A
/// path never leads through a host.
pub(super) fn shortest_paths(topology: &Topology, up: impl Fn(ChannelId) -> bool) -> Paths {
    let switches = topology.switches().len();
    let channels = || {
        (0..topology.links().len()).flat_map(|link| {
            [Direction::Forward, Direction::Backward].map(|d| ChannelId::new(link, d))
        })
    };
    // The channels that lead to each switch.
    let mut into = vec![Vec::new(); switches];
    for channel in channels() {
        if let (End::Switch(from), End::Switch(to)) = topology.ends(channel)
            && up(channel)
        {
            into[to as usize].push((from as usize, channel));
        }
    }
    let hosts = topology.hosts().iter();
    let last = hosts.map(|host| {
        let downlink = host.uplink().map(ChannelId::reverse).filter(|&c| up(c))?;
        match topology.ends(downlink).0 {
            End::Switch(switch) => Some((switch, downlink.0)),
            End::Host(_) => None,
        }
    });
    let last: Vec<Option<(u32, u32)>> = last.collect();
    let mut ways = BTreeMap::new();
    for &(last, _) in last.iter().flatten() {
        ways.entry(last)
            .or_insert_with(|| to_switch(&into, last as usize));
    }
    Paths { last, ways }
}

/// By switch: the channels on a shortest path to `last`.
fn to_switch(into: &[Vec<(usize, ChannelId)>], last: usize) -> Vec<Vec<u32>> {
    let mut ways = vec![Vec::new(); into.len()];
    let mut distance = vec![u32::MAX; into.len()];
    distance[last] = 0;
    let mut queue = VecDeque::from([last]);
    while let Some(to) = queue.pop_front() {
        for &(from, channel) in &into[to] {
            if distance[from] == u32::MAX {
                distance[from] = distance[to] + 1;
                queue.push_back(from);
            }
            if distance[from] == distance[to] + 1 {
                ways[from].push(channel.0);
            }
        }
    }
    for way in &mut ways {
        way.sort_unstable();
    }
    ways
}

impl Paths {
    /// By host: the switch it is on, and the channel from there.
    pub(super) fn last(&self) -> &[Option<(u32, u32)>] {
        &self.last
    }

    /// The switches that hosts are on, each with the channels that lead there from every switch.
    pub(super) fn to_switches(&self) -> impl Iterator<Item = (u32, &[Vec<u32>])> {
        self.ways.iter().map(|(&last, ways)| (last, &ways[..]))
    }

    /// The channels on a shortest path from a switch to a host.
    #[cfg(test)]
    fn way(&self, switch: usize, host: usize) -> &[u32] {
        match &self.last[host] {
            None => &[],
            Some((last, down)) if *last as usize == switch => std::slice::from_ref(down),
            Some((last, _)) => &self.ways[last][switch],
        }
    }
}

/// What a switch knows of a packet's flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// The host with the destination address; the number of hosts if there is none.
    pub(super) host: u32,
    /// Over source, destination and UDP source port.
    pub(super) hash: u32,
}

/// A snapshot of the route table, and what switches need of each route.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    table: RouteTable,
    routes: Vec<Route>,
    flows: Vec<Flow>,
    /// Hosts by address, sorted.
    hosts: Vec<(Gid, u32)>,
}

impl Flows {
    pub(super) fn new(topology: &Topology, table: RouteTable) -> Flows {
        let mut hosts: Vec<(Gid, u32)> =
            topology.hosts().iter().map(|h| h.gid()).zip(0..).collect();
        hosts.sort_unstable();
        Flows {
            table,
            routes: Vec::new(),
            flows: Vec::new(),
            hosts,
        }
    }

    /// Makes sure that route number `index` is known.
    ///
    /// # Panics
    ///
    /// If the route table of this network did not give it out.
    #[inline]
    pub(super) fn meet(&mut self, index: usize) {
        if index >= self.flows.len() {
            self.refresh(index);
        }
    }

    #[cold]
    fn refresh(&mut self, index: usize) {
        self.table.refresh(&mut self.routes);
        for n in self.flows.len()..self.routes.len() {
            self.flows.push(self.classify(&self.routes[n]));
        }
        assert!(
            index < self.flows.len(),
            "route {index} is not one of the {} in this network's table",
            self.flows.len()
        );
    }

    /// What switches know of a route.
    pub(super) fn classify(&self, route: &Route) -> Flow {
        let at = self.hosts.binary_search_by_key(&route.dst, |h| h.0);
        Flow {
            host: at.map_or(self.hosts.len() as u32, |i| self.hosts[i].1),
            hash: hash(route),
        }
    }

    /// What switches know of route number `index`, which was met.
    #[inline]
    pub(super) fn flow(&self, index: usize) -> Flow {
        self.flows[index]
    }

    /// The routes met so far.
    #[inline]
    pub(super) fn routes(&self) -> &[Route] {
        &self.routes
    }
}

/// FNV-1a over what ECMP looks at, the bits then spread over the word.
fn hash(route: &Route) -> u32 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    let port = route.udp_src.to_be_bytes();
    for byte in route.src.0.into_iter().chain(route.dst.0).chain(port) {
        h = (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (h ^ h >> 32)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{LinkSpec, Rate, SwitchSpec};
    use crate::time::Span;

    #[test]
    fn a_fat_tree_has_half_squared_paths_between_pods() {
        let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
        let t = Topology::fat_tree(4, link, SwitchSpec::default()).unwrap();
        let ways = shortest_paths(&t, |_| true);
        let switch = |name: &str| t.switches().iter().position(|s| s.name == name).unwrap();
        // To its own host one way; to another pod, up both ways twice and down one way.
        for (at, host, n) in [
            ("edge0", 0, 1),
            ("edge0", 2, 2),
            ("edge0", 15, 2),
            ("agg0", 0, 1),
            ("agg0", 15, 2),
            ("core0", 15, 1),
            ("agg7", 15, 1),
            ("edge7", 15, 1),
        ] {
            assert_eq!(ways.way(switch(at), host).len(), n, "{at} to h{host}");
        }
    }

    #[test]
    fn islands_have_no_way() {
        let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
        let mut t = Topology::star(1, link, SwitchSpec::default()).unwrap();
        t.add_switch("s1", SwitchSpec::default()).unwrap();
        assert_eq!(shortest_paths(&t, |_| true).way(1, 0), []);
    }
}
