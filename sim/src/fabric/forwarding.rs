//! Which way a switch sends a packet.

use super::outage::Detour;
use super::routing::Flow;
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
}

#[derive(Clone, Copy, Debug)]
struct PortSet {
    /// Position of the first one in `ports`; if there is only one, the channel itself.
    first: u32,
    len: u32,
}

/// What [`PortSet::first`] is if it has no ports because the switch floods.
const FLOOD: u32 = 1;

impl Forwarding {
    /// `ways[s][h]` are the channels on a shortest path from switch `s`, called `names[s]`, to host `h`.
    pub(super) fn new<'a>(
        hosts: usize,
        ways: &[Vec<Vec<u32>>],
        names: impl Iterator<Item = &'a str>,
        seed: u64,
    ) -> Forwarding {
        let mut forwarding = Forwarding {
            columns: hosts + 1,
            sets: Vec::new(),
            ports: Vec::new(),
            salts: names
                .map(|name| Stream::new(seed, &format!("ecmp {name}")).bits())
                .collect(),
            detours: BTreeMap::new(),
        };
        forwarding.rebuild(ways);
        forwarding
    }

    /// Takes other shortest paths; what is set to go another way still does.
    pub(super) fn rebuild(&mut self, ways: &[Vec<Vec<u32>>]) {
        self.ports.clear();
        let mut known = BTreeMap::new();
        let nobody = Vec::new();
        let Forwarding {
            ports,
            detours,
            columns,
            ..
        } = self;
        self.sets = ways
            .iter()
            .flat_map(|ways| ways.iter().chain([&nobody]))
            .enumerate()
            .map(|(i, way)| {
                let way = match detours.get(&((i / *columns) as u32, (i % *columns) as u32)) {
                    None => way.clone(),
                    Some(Detour::Flood) => {
                        return PortSet {
                            len: 0,
                            first: FLOOD,
                        };
                    }
                    Some(Detour::Ports(ports)) => ports.iter().map(|c| c.0).collect(),
                };
                PortSet {
                    len: way.len() as u32,
                    first: match way[..] {
                        [] => 0,
                        [only] => only,
                        _ => *known.entry(way).or_insert_with_key(|way| {
                            ports.extend_from_slice(way);
                            (ports.len() - way.len()) as u32
                        }),
                    },
                }
            })
            .collect();
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
