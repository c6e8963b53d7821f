//! Which way a switch sends a packet.

use super::multicast::Tree;
use super::outage::Detour;
use super::routing::{Flow, Paths};
use crate::random::Stream;
use std::collections::BTreeMap;

/// The ways out of all switches to all hosts.
#[derive(Clone, Debug)]
pub(super) struct Forwarding {
    /// One for each host, and one for nobody.
    columns: usize,
    /// By switch and host: where in `ports` the ways from the one to the other are.
    sets: Vec<PortSet>,
    /// Outgoing channels.
    ports: Vec<u32>,
    /// By switch: makes each choose in its own way.
    salts: Vec<u64>,
    /// By switch and host: what is set to go another way.
    pub(super) detours: BTreeMap<(u32, u32), Detour>,
    /// The ways to groups.
    pub(super) tree: Tree,
    /// By link, the latest that routes know of it: how often it had gone down, and whether it was up.
    pub(super) known: Vec<(u32, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct PortSet {
    /// Position of the first one in `ports`; if there is only one, the channel itself.
    first: u32,
    len: u32,
}

/// What [`PortSet::first`] is if it has no ports because the switch floods.
const FLOOD: u32 = 1;

impl PortSet {
    const NONE: PortSet = PortSet { first: 0, len: 0 };

    const fn only(port: u32) -> PortSet {
        PortSet {
            first: port,
            len: 1,
        }
    }

    /// Several, which are added to `ports`.
    fn keep(way: &[u32], ports: &mut Vec<u32>) -> PortSet {
        let first = ports.len() as u32;
        ports.extend_from_slice(way);
        PortSet {
            first,
            len: way.len() as u32,
        }
    }
}

fn detour_set(detour: &Detour, all: &mut Vec<u32>) -> PortSet {
    match detour {
        Detour::Flood => PortSet {
            len: 0,
            first: FLOOD,
        },
        Detour::Ports(ports) => match ports[..] {
            [] => PortSet::NONE,
            [only] => PortSet::only(only.0),
            _ => {
                let ports: Vec<u32> = ports.iter().map(|c| c.0).collect();
                PortSet::keep(&ports, all)
            }
        },
    }
}

impl Forwarding {
    /// The ways of switches with these names, over the shortest paths, while all `links` links are up.
    pub(super) fn new<'a>(
        paths: &Paths,
        tree: Tree,
        names: impl Iterator<Item = &'a str>,
        links: usize,
        seed: u64,
    ) -> Forwarding {
        let mut forwarding = Forwarding {
            columns: paths.last().len() + 1,
            sets: Vec::new(),
            ports: Vec::new(),
            salts: names
                .map(|name| Stream::new(seed, &format!("ecmp {name}")).bits())
                .collect(),
            detours: BTreeMap::new(),
            tree,
            known: vec![(0, true); links],
        };
        forwarding.rebuild(paths);
        forwarding
    }

    /// Takes other shortest paths; what is set to go another way still does.
    pub(super) fn rebuild(&mut self, paths: &Paths) {
        let (columns, switches) = (self.columns, self.salts.len());
        self.ports.clear();
        self.sets.clear();
        self.sets.resize(columns * switches, PortSet::NONE);
        let mut known = BTreeMap::new();
        let mut rows: BTreeMap<u32, Vec<PortSet>> = BTreeMap::new();
        for (last, ways) in paths.to_switches() {
            let row = ways.iter().map(|way| match way[..] {
                [] => PortSet::NONE,
                [only] => PortSet::only(only),
                _ => *known
                    .entry(way)
                    .or_insert_with_key(|way| PortSet::keep(way, &mut self.ports)),
            });
            rows.insert(last, row.collect());
        }
        // Each host has the ways of the switch it is on, which itself has one.
        let last = paths.last().iter();
        let columns_of: Vec<_> = last
            .map(|last| last.and_then(|(switch, down)| Some((rows.get(&switch)?, switch, down))))
            .collect();
        for (switch, row) in self.sets.chunks_exact_mut(columns).enumerate() {
            for (set, column) in row.iter_mut().zip(&columns_of) {
                *set = match *column {
                    None => PortSet::NONE,
                    Some((_, last, down)) if last as usize == switch => PortSet::only(down),
                    Some((ways, ..)) => ways[switch],
                };
            }
        }
        for (&(switch, host), detour) in &self.detours {
            let set = detour_set(detour, &mut self.ports);
            self.sets[switch as usize * columns + host as usize] = set;
        }
    }

    /// Has a switch send packets to a host another way than the shortest.
    pub(super) fn set_detour(&mut self, switch: u32, host: u32, detour: Detour) {
        let set = detour_set(&detour, &mut self.ports);
        self.sets[switch as usize * self.columns + host as usize] = set;
        self.detours.insert((switch, host), detour);
    }

    /// True if a switch, which has no way for a flow, sends it everywhere.
    pub(super) fn floods(&self, switch: u32, flow: Flow) -> bool {
        let set = self.sets[switch as usize * self.columns + flow.host as usize];
        set.len == 0 && set.first == FLOOD
    }

    /// The channel on which switch `switch` sends the packets of a flow; `None` if its host cannot be
    /// reached.
    #[inline(always)]
    pub(super) fn way(&self, switch: u32, flow: Flow) -> Option<u32> {
        let switch = switch as usize;
        let set = self.sets[switch * self.columns + flow.host as usize];
        match set.len {
            1 => Some(set.first),
            0 => None,
            _ => {
                // Fibonacci hashing: the top bits of the product depend on all bits of the hash.
                let salted = u64::from(flow.hash) ^ self.salts[switch];
                let mixed = salted.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let pick = ((mixed * u64::from(set.len)) >> 32) as u32;
                Some(self.ports[(set.first + pick) as usize])
            }
        }
    }
}
