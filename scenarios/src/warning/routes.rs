//! Routes of the file that lead packets in a circle, or to where they end.

use super::{Place, Warning, names_of};
use crate::format::Scenario;
use crate::format::event::{Going, Route};
use crate::format::request::Transport;
use crate::format::topology::{End, WayId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Circles that are looked at on the way to one host: where all switches flood there is no end of them.
const CIRCLES: usize = 64;

/// What becomes of what comes to a switch for a host.
enum Fate<'a> {
    /// It leaves by one of these.
    Ways(Vec<WayId>),
    /// It leaves by all of these but where it came from.
    Flood(&'a [WayId]),
    /// It ends there.
    End,
}

/// The ways of all packets.
struct Ways<'a> {
    scenario: &'a Scenario,
    /// By switch: the directions of links that lead away from it.
    exits: Vec<Vec<WayId>>,
    /// By host: the switch it is on, and the way there.
    leaves: Vec<Option<(usize, WayId)>>,
    /// By host and switch: the route of the file, by its index. The last one counts.
    routes: BTreeMap<(usize, usize), usize>,
}

/// How far a walk has got with a direction of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Not,
    /// It is on the way from the beginning to here.
    OnWay,
    Done,
}

/// What a route does with the packets for one host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    /// The route, by its index.
    route: usize,
    /// What goes there, before the name of the host.
    what: &'static str,
    /// Where it goes.
    whither: String,
}

/// What there is to say of the routes that packets of loads come by.
pub(super) fn of(scenario: &Scenario) -> Vec<Warning> {
    if scenario.routes.is_empty() {
        return Vec::new();
    }
    let ways = Ways::of(scenario);
    let sources = sources(scenario);
    let routed: BTreeSet<usize> = ways.routes.keys().map(|&(host, _)| host).collect();
    // By the switch that hosts are on: how far it is from each switch.
    let mut far: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    let mut all: BTreeMap<Found, Vec<&str>> = BTreeMap::new();
    for host in routed {
        let Some(from) = sources.get(&host) else {
            continue;
        };
        let Some((leaf, _)) = ways.leaves[host] else {
            continue;
        };
        let far = far.entry(leaf).or_insert_with(|| ways.distances(leaf));
        for found in ways.walk(host, from, far) {
            let name = scenario.network.hosts[host].as_str();
            all.entry(found).or_default().push(name);
        }
    }
    let told = all.into_iter().map(|(found, hosts)| {
        let route = &scenario.routes[found.route];
        let hosts = names_of("host", &hosts);
        let Found { what, whither, .. } = found;
        Warning {
            text: format!("route {}: {what} for {hosts} to {whither}", route.name),
            at: Place {
                section: "route",
                name: route.name.clone(),
                key: match route.going {
                    Going::Via => "via",
                    Going::Flood | Going::Drop => "action",
                },
            },
        }
    });
    told.collect()
}

/// By host: the hosts that send it anything, data or acknowledgements.
fn sources(scenario: &Scenario) -> BTreeMap<usize, BTreeSet<usize>> {
    let mut all: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for load in &scenario.traffic {
        for &(from, to) in &load.pairs {
            all.entry(to).or_default().insert(from);
            if load.transport == Transport::Rc {
                all.entry(from).or_default().insert(to);
            }
        }
    }
    all
}

impl<'a> Ways<'a> {
    fn of(scenario: &'a Scenario) -> Ways<'a> {
        let network = &scenario.network;
        let mut exits = vec![Vec::new(); network.switches.len()];
        let mut leaves = vec![None; network.hosts.len()];
        for way in network.ways() {
            if let End::Switch(n) = network.from(way) {
                exits[n].push(way);
                if let End::Host(host) = network.to(way) {
                    leaves[host] = Some((n, way.reverse()));
                }
            }
        }
        let mut routes = BTreeMap::new();
        for (n, route) in scenario.routes.iter().enumerate() {
            for &host in &route.to {
                routes.insert((host, route.switch), n);
            }
        }
        Ways {
            scenario,
            exits,
            leaves,
            routes,
        }
    }

    /// By switch: links from there to another one.
    fn distances(&self, to: usize) -> Vec<u32> {
        let mut far = vec![u32::MAX; self.exits.len()];
        far[to] = 0;
        let mut queue = VecDeque::from([to]);
        while let Some(n) = queue.pop_front() {
            // Links lead both ways.
            for &way in &self.exits[n] {
                if let End::Switch(s) = self.scenario.network.to(way)
                    && far[s] == u32::MAX
                {
                    far[s] = far[n] + 1;
                    queue.push_back(s);
                }
            }
        }
        far
    }

    /// The route of the file that a switch has for a host.
    fn route(&self, switch: usize, host: usize) -> Option<(usize, &'a Route)> {
        let &n = self.routes.get(&(host, switch))?;
        Some((n, &self.scenario.routes[n]))
    }

    fn fate(&self, switch: usize, host: usize, far: &[u32]) -> Fate<'_> {
        match self.route(switch, host) {
            Some((_, route)) => match route.going {
                Going::Via => Fate::Ways(route.via.clone()),
                Going::Flood => Fate::Flood(&self.exits[switch]),
                Going::Drop => Fate::End,
            },
            None => {
                let nearer = |&way: &WayId| match self.scenario.network.to(way) {
                    End::Host(h) => h == host,
                    End::Switch(s) => far[s] < far[switch],
                };
                let ways: Vec<WayId> = self.exits[switch].iter().copied().filter(nearer).collect();
                match ways.is_empty() {
                    true => Fate::End,
                    false => Fate::Ways(ways),
                }
            }
        }
    }

    /// Follows what hosts send to `host`, and tells of the first circle that each route begins, and where each ends.
    fn walk(&self, host: usize, from: &BTreeSet<usize>, far: &[u32]) -> BTreeSet<Found> {
        let network = &self.scenario.network;
        let index = |way: WayId| way.link * 2 + way.way;
        let mut seen = vec![Seen::Not; network.links.len() * 2];
        let mut found: BTreeMap<usize, Found> = BTreeMap::new();
        let mut circles = 0;
        // Each with the directions that are still to be followed.
        let mut path: Vec<(WayId, Vec<WayId>)> = Vec::new();
        let starts = (from.iter()).filter_map(|&h| Some(self.leaves[h]?.1));
        for start in starts {
            if seen[index(start)] == Seen::Not {
                seen[index(start)] = Seen::OnWay;
                path.push((start, self.onward(start, host, far)));
            }
            while let Some((way, next)) = path.last_mut() {
                let way = *way;
                let Some(next) = next.pop() else {
                    seen[index(way)] = Seen::Done;
                    path.pop();
                    continue;
                };
                match seen[index(next)] {
                    Seen::OnWay if circles < CIRCLES => {
                        circles += 1;
                        let begin = path.iter().position(|(w, _)| *w == next).unwrap_or(0);
                        let circle = path[begin..].iter().map(|&(way, _)| way);
                        if let Some(told) = self.circle(circle, host, far) {
                            found.entry(told.route).or_insert(told);
                        }
                    }
                    Seen::Done | Seen::OnWay => {}
                    Seen::Not => {
                        seen[index(next)] = Seen::OnWay;
                        path.push((next, self.onward(next, host, far)));
                    }
                }
            }
        }
        // Where routes lead that packets come by.
        let reached = |switch: usize| {
            let mut into = self.exits[switch].iter().map(|&way| way.reverse());
            into.any(|way| seen[index(way)] == Seen::Done)
        };
        for (&(_, switch), &n) in self.routes.range((host, 0)..=(host, usize::MAX)) {
            if self.scenario.routes[n].going == Going::Via
                && reached(switch)
                && let Some(told) = self.end(n, host, far)
            {
                found.entry(n).or_insert(told);
            }
        }
        found.into_values().collect()
    }

    /// The ways that what comes by one goes on by, in reverse.
    fn onward(&self, way: WayId, host: usize, far: &[u32]) -> Vec<WayId> {
        let End::Switch(switch) = self.scenario.network.to(way) else {
            return Vec::new();
        };
        let mut ways = match self.fate(switch, host, far) {
            Fate::Ways(ways) => ways,
            Fate::Flood(all) => {
                let back = way.reverse();
                all.iter().copied().filter(|&out| out != back).collect()
            }
            Fate::End => Vec::new(),
        };
        ways.reverse();
        ways
    }

    /// A circle of ways, from the first of its switches on that a route of the file is for.
    fn circle(&self, ways: impl Iterator<Item = WayId>, host: usize, far: &[u32]) -> Option<Found> {
        let network = &self.scenario.network;
        let mut switches: Vec<usize> = ways
            .filter_map(|way| match network.to(way) {
                End::Switch(s) => Some(s),
                End::Host(_) => None,
            })
            .collect();
        // Shortest ways alone make no circle.
        let routed = switches.iter().enumerate();
        let routed = routed.filter_map(|(at, &s)| Some((self.route(s, host)?.0, at)));
        let (route, at) = routed.min()?;
        switches.rotate_left(at);
        let mut names: Vec<&str> = (switches.iter())
            .map(|&s| network.switches[s].name.as_str())
            .collect();
        names.push(names[0]);
        let fates = || switches.iter().map(|&s| self.fate(s, host, far));
        let floods = fates().any(|fate| matches!(fate, Fate::Flood(_)));
        let picks = fates().any(|fate| matches!(fate, Fate::Ways(ways) if ways.len() > 1));
        let (what, verb) = match (floods, picks) {
            (true, false) => ("copies of what comes", "go"),
            (true, true) => ("copies of what comes", "may go"),
            (false, false) => ("what comes", "goes"),
            (false, true) => ("what comes", "may go"),
        };
        let whither = format!(
            "switch {} {verb} in a circle, {}, until the hop limit runs out",
            names[0],
            names.join(" -> ")
        );
        Some(Found {
            route,
            what,
            whither,
        })
    }

    /// Where what goes by a route ends, or is flooded, before it is at its host or at another route by some links.
    fn end(&self, route: usize, host: usize, far: &[u32]) -> Option<Found> {
        let network = &self.scenario.network;
        let begin = &self.scenario.routes[route];
        let mut picks = begin.via.len() > 1;
        let mut queue: VecDeque<WayId> = begin.via.iter().copied().collect();
        let mut met = BTreeSet::from([begin.switch]);
        while let Some(way) = queue.pop_front() {
            let s = match network.to(way) {
                End::Host(h) if h == host => continue,
                End::Host(h) => {
                    let told = format!("host {}, which drops what is not for it", network.hosts[h]);
                    return Some(self.ended(route, picks, &told));
                }
                End::Switch(s) => s,
            };
            if !met.insert(s) {
                continue;
            }
            let name = &network.switches[s].name;
            match (self.route(s, host), self.fate(s, host, far)) {
                (Some((_, other)), Fate::Flood(_)) => {
                    let told = format!("switch {name}, which floods it (route {})", other.name);
                    return Some(self.ended(route, picks, &told));
                }
                (Some((_, other)), Fate::End) => {
                    let told = format!("switch {name}, which drops it (route {})", other.name);
                    return Some(self.ended(route, picks, &told));
                }
                (None, Fate::End) => {
                    let told = format!("switch {name}, which has no way to it");
                    return Some(self.ended(route, picks, &told));
                }
                // That one is looked at by itself.
                (Some(_), Fate::Ways(_)) | (None, Fate::Flood(_)) => {}
                (None, Fate::Ways(ways)) => {
                    picks |= ways.len() > 1;
                    queue.extend(ways);
                }
            }
        }
        None
    }

    fn ended(&self, route: usize, picks: bool, told: &str) -> Found {
        let switch = self.scenario.routes[route].switch;
        let name = &self.scenario.network.switches[switch].name;
        let verb = if picks { "may come" } else { "comes" };
        Found {
            route,
            what: "what comes",
            whither: format!("switch {name} {verb} from there to {told}"),
        }
    }
}
