//! Who sends data in which priority, and what a switch takes it for.

use super::{ETHERNET, by_switch};
use crate::format::Scenario;
use crate::format::card::Card;
use crate::format::pattern::Pattern;
use crate::format::request::{Operation, Transport};
use crate::format::switch::Switch;
use crate::format::topology::{End, Link};
use crate::format::traffic::Traffic;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a packet says of its class: its Ethernet priority and its DSCP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Sent {
    pub(super) priority: u8,
    dscp: u8,
}

impl Sent {
    /// The priority that a switch treats it as.
    pub(super) fn at(self, switch: &Switch) -> u8 {
        switch.trust.class(self.priority, self.dscp)
    }
}

impl std::fmt::Display for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "priority {} with DSCP {}", self.priority, self.dscp)
    }
}

/// The data of all loads.
pub(super) struct Classes {
    /// Bytes of frames that loads have outstanding at most, receivers that stand still included; `None` if that
    /// is not known.
    outstanding: BTreeMap<Sent, Option<u64>>,
    /// From whom to whom, as what.
    pairs: BTreeSet<(Sent, usize, usize)>,
    /// Who sends.
    pub(super) senders: BTreeMap<usize, BTreeSet<Sent>>,
    /// What comes to whom.
    pub(super) receivers: BTreeMap<usize, BTreeSet<Sent>>,
    /// Those who send and hear of marks.
    pub(super) heeding: BTreeMap<usize, BTreeSet<Sent>>,
    /// Who receives from those, and from which of them.
    pub(super) answering: BTreeMap<usize, BTreeSet<usize>>,
}

impl Classes {
    pub(super) fn of(scenario: &Scenario) -> Classes {
        let mut classes = Classes {
            outstanding: BTreeMap::new(),
            pairs: BTreeSet::new(),
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            heeding: BTreeMap::new(),
            answering: BTreeMap::new(),
        };
        for load in &scenario.traffic {
            for (n, &(from, to)) in load.pairs.iter().enumerate() {
                // The answers of a READ are its data.
                let reads = load.flow(n).operation == Operation::Read;
                let (sender, receiver) = if reads { (to, from) } else { (from, to) };
                let card = &scenario.cards[sender];
                let sent = Sent {
                    priority: if reads {
                        card.ack_priority
                    } else {
                        card.priority
                    },
                    dscp: card.dscp,
                };
                let sum = classes.outstanding.entry(sent).or_insert(Some(0));
                *sum = sum
                    .zip(of_pair(load, card))
                    .map(|(a, b)| a.saturating_add(b));
                classes.pairs.insert((sent, sender, receiver));
                classes.senders.entry(sender).or_default().insert(sent);
                classes.receivers.entry(receiver).or_default().insert(sent);
                if card.congestion.heeds_marks() {
                    classes.heeding.entry(sender).or_default().insert(sent);
                    classes
                        .answering
                        .entry(receiver)
                        .or_default()
                        .insert(sender);
                }
            }
        }
        classes
    }

    /// All that packets say of their classes.
    pub(super) fn sent(&self) -> impl Iterator<Item = Sent> {
        self.outstanding.keys().copied()
    }

    /// By switch: what goes through it on shortest ways; with routes of the file anything may.
    pub(super) fn crossed(&self, scenario: &Scenario) -> Vec<BTreeSet<Sent>> {
        let switches = 0..scenario.network.switches.len();
        if !scenario.routes.is_empty() {
            return switches.map(|_| self.sent().collect()).collect();
        }
        let links = by_switch(scenario);
        let far: Vec<Vec<u32>> = switches.map(|s| distances(scenario, &links, s)).collect();
        let mut leaves = vec![None; scenario.network.hosts.len()];
        for (s, links) in links.iter().enumerate() {
            for end in links.iter().flat_map(|link| [link.a, link.b]) {
                if let End::Host(h) = end {
                    leaves[h] = Some(s);
                }
            }
        }
        let ways = &far;
        let through = far.iter().map(|far| {
            let mut all = BTreeSet::new();
            for &(sent, a, b) in &self.pairs {
                // As far as from the first switch of the way.
                let least = leaves[a].and_then(|leaf: usize| ways[leaf][b].checked_add(1));
                let sum = far[a].checked_add(far[b]);
                if !all.contains(&sent) && sum.is_some() && sum == least {
                    all.insert(sent);
                }
            }
            all
        });
        through.collect()
    }

    /// What shortest ways may bring from one switch to its neighbour; with routes of the file anything.
    pub(super) fn between(&self, scenario: &Scenario, from: usize, to: usize) -> BTreeSet<Sent> {
        if !scenario.routes.is_empty() {
            return self.sent().collect();
        }
        let links = by_switch(scenario);
        let from = distances(scenario, &links, from);
        let to = distances(scenario, &links, to);
        let pairs = self.pairs.iter();
        let crosses = |&&(_, a, b): &&(Sent, usize, usize)| from[a] < to[a] && to[b] < from[b];
        pairs.filter(crosses).map(|&(sent, ..)| sent).collect()
    }

    /// The most bytes that the loads in some priorities of a switch have outstanding; `None` if that is not known.
    pub(super) fn outstanding(&self, switch: &Switch, priorities: u8) -> Option<u64> {
        let inside = self.outstanding.iter();
        let mut inside = inside.filter(|(sent, _)| priorities & 1 << sent.at(switch) != 0);
        inside.try_fold(0u64, |sum, (_, bytes)| Some(sum.saturating_add((*bytes)?)))
    }

    /// The priorities of a switch that some of what is sent is in, as a bit each.
    pub(super) fn mask<'a>(switch: &Switch, sent: impl IntoIterator<Item = &'a Sent>) -> u8 {
        let all = sent.into_iter();
        all.fold(0, |mask, sent| mask | 1 << sent.at(switch))
    }
}

/// `priority 3` or `priorities 3, 4`.
pub(super) fn priorities(mask: u8) -> String {
    let all: Vec<String> = (0..8)
        .filter(|p| mask & 1 << p != 0)
        .map(|p| p.to_string())
        .collect();
    let many = if all.len() == 1 {
        "priority"
    } else {
        "priorities"
    };
    format!("{many} {}", all.join(", "))
}

/// By host: links from a switch to it, at the least.
fn distances(scenario: &Scenario, links: &[Vec<&Link>], from: usize) -> Vec<u32> {
    let network = &scenario.network;
    let (mut hosts, mut switches) = (
        vec![u32::MAX; network.hosts.len()],
        vec![u32::MAX; network.switches.len()],
    );
    switches[from] = 0;
    let mut queue = VecDeque::from([from]);
    while let Some(n) = queue.pop_front() {
        for link in &links[n] {
            let other = if link.a == End::Switch(n) {
                link.b
            } else {
                link.a
            };
            let next = switches[n] + 1;
            match other {
                End::Host(h) => hosts[h] = hosts[h].min(next),
                End::Switch(s) if switches[s] == u32::MAX => {
                    switches[s] = next;
                    queue.push_back(s);
                }
                End::Switch(_) => {}
            }
        }
    }
    hosts
}

fn of_pair(load: &Traffic, card: &Card) -> Option<u64> {
    if load.pattern != Pattern::Pairs && load.pattern != Pattern::Incast {
        return None;
    }
    // Without acknowledgements a request is done once it is sent, and the next one follows.
    if load.transport != Transport::Rc {
        return None;
    }
    let packets = load.size.0.div_ceil(u64::from(card.mtu)).max(1);
    let headers = card.largest_packet() - u64::from(card.mtu) + ETHERNET;
    let message = load.size.0.saturating_add(packets.saturating_mul(headers));
    let depth = u64::from(load.depth).saturating_mul(load.qps.into());
    Some(message.saturating_mul(depth))
}
