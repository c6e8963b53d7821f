//! Who waits for whom: cycles of pauses that nothing will end, and what each pause was for.

use super::counters::DropCause;
use super::host::Host;
use super::link::{ChannelId, End};
use super::network::Network;
use super::observer::Observer;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// A queue of a switch that is stuck.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stuck {
    /// Position of the switch in the topology.
    pub switch: usize,
    /// The channel that the queue waits for.
    pub channel: ChannelId,
    /// Its priority.
    pub priority: u8,
}

/// Queues each of which is paused by the switch of the next one, which holds in that next queue what it sent
/// there, or what fills the pool so that what it sent found no room; the last one by that of the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The queues, in the order of the packets.
    pub cycle: Vec<Stuck>,
}

/// Why a switch or host has paused the sender on a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseCause {
    /// When it decided so.
    pub time: Time,
    /// The channel whose sender is paused.
    pub channel: ChannelId,
    /// In which priority.
    pub priority: u8,
    /// What the packet that was one too many waits for; `None` at a host, whose own pipeline is full.
    pub behind: Option<ChannelId>,
    /// That channel was paused itself, so that its own pause is what this one is for.
    pub paused: bool,
}

/// The first pauses of a run, and why they were.
#[derive(Clone, Debug, Default)]
pub struct PauseLog {
    records: Vec<PauseCause>,
    count: u64,
}

impl PauseLog {
    /// The most pauses it keeps.
    pub const MOST: usize = 4096;

    /// The first pauses, repetitions not counted, up to [`PauseLog::MOST`].
    pub fn records(&self) -> &[PauseCause] {
        &self.records
    }

    /// How many pauses there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn add(&mut self, cause: PauseCause) {
        if self.count == 0 {
            // All the room at once, so that a run that has begun allocates no more.
            self.records.reserve_exact(PauseLog::MOST);
        }
        self.count += 1;
        if self.records.len() < PauseLog::MOST {
            self.records.push(cause);
        }
    }

    /// From a record to what it was for, and on, up to a pause that no other one explains: the root.
    /// The record itself comes first.
    pub fn chain(&self, record: usize) -> Vec<PauseCause> {
        let mut chain = Vec::new();
        let mut next = self.records.get(record).copied();
        let mut before = record;
        while let Some(cause) = next {
            chain.push(cause);
            // The latest pause of the channel it waits for.
            next = None;
            if let (Some(behind), true) = (cause.behind, cause.paused) {
                let earlier = &self.records[..before];
                let found = earlier
                    .iter()
                    .rposition(|r| (r.channel, r.priority) == (behind, cause.priority));
                if let Some(i) = found {
                    before = i;
                    next = Some(earlier[i]);
                }
            }
        }
        chain
    }
}

/// A queue: channel and priority.
type Queue = (u32, u8);

impl<H: Host, O: Observer> Network<H, O> {
    /// The first pauses, and why they were.
    pub fn pause_log(&self) -> &PauseLog {
        &self.pause_log
    }

    /// A cycle of queues that wait for each other, if there is one.
    ///
    /// A queue goes on if it is not paused, or if the one that paused it will let it go once all queues
    /// that go on are empty. Queues that are left when no more can be found to go on are stuck, by a
    /// cycle or by a host that pauses for ever, which is no deadlock.
    pub fn deadlock(&self) -> Option<Deadlock> {
        // What each queue holds, by the channel it came in by.
        let mut held: BTreeMap<Queue, BTreeMap<u32, u64>> = BTreeMap::new();
        for (id, channel) in self.channels.iter().enumerate() {
            if !channel.managed || channel.is_down() {
                continue;
            }
            for p in super::pausing::priorities(channel.queue.waiting()) {
                let from = held.entry((id as u32, p)).or_default();
                for slot in channel.queue.row(p).iter(&self.medium.packets) {
                    let len = self.medium.packets.get(slot).frame_len;
                    *from.entry(self.medium.packets.ingress(slot)).or_default() += u64::from(len);
                }
            }
        }
        let mut stuck: BTreeSet<Queue> = held
            .keys()
            .filter(|&&(id, p)| !self.channels[id as usize].ready().contains(p))
            .copied()
            .collect();
        loop {
            let goes_on = |&(id, p): &Queue| self.goes_on(&held, &stuck, id, p);
            let live: Vec<Queue> = stuck.iter().copied().filter(goes_on).collect();
            if live.is_empty() {
                break;
            }
            for queue in live {
                stuck.remove(&queue);
            }
        }
        self.cycle(&held, &stuck)
    }

    /// True if a paused queue will be let go once all queues that are not stuck are empty.
    fn goes_on(
        &self,
        held: &BTreeMap<Queue, BTreeMap<u32, u64>>,
        stuck: &BTreeSet<Queue>,
        id: u32,
        priority: u8,
    ) -> bool {
        // That nobody asks for it any more is on its way.
        if !self.managed.ingresses[id as usize].off.contains(priority) {
            return true;
        }
        let switch = match self.channels[id as usize].to {
            End::Host(host) => {
                let pipeline = &self.hosts[host as usize].pipeline;
                return pipeline.as_ref().is_none_or(|p| !p.is_dead());
            }
            End::Switch(switch) => switch,
        };
        // By where it came in, and the priority.
        let mut goes: BTreeMap<Queue, u64> = BTreeMap::new();
        for (&(out, p), from) in held {
            if self.channels[out as usize].from != End::Switch(switch) || stuck.contains(&(out, p))
            {
                continue;
            }
            for (&from, bytes) in from {
                *goes.entry((from, p)).or_default() += bytes;
            }
        }
        let buffer = &self.managed.switches[switch as usize].buffer;
        let ingress = |id: u32| &self.managed.ingresses[id as usize];
        // What is in reserves and headroom is nobody else's gain.
        let freed = goes.iter();
        let freed = freed.map(|(&(id, p), &bytes)| buffer.frees(ingress(id), p, bytes));
        let gone = goes.get(&(id, priority)).copied().unwrap_or(0);
        buffer.is_relieved_by(ingress(id), priority, gone, freed.sum())
    }

    /// A cycle among queues that are stuck.
    fn cycle(
        &self,
        held: &BTreeMap<Queue, BTreeMap<u32, u64>>,
        stuck: &BTreeSet<Queue>,
    ) -> Option<Deadlock> {
        // Those that only wait for a dead end are taken away until each left has one to wait for.
        let next = |left: &BTreeSet<Queue>, (id, p): Queue| {
            let ingress = |id: u32| &self.managed.ingresses[id as usize];
            let waits = |q: &&Queue| q.1 == p && held[*q].contains_key(&id);
            // Who found no room may have nothing there: it waits for those that fill the pool.
            let End::Switch(switch) = self.channels[id as usize].to else {
                return None;
            };
            let buffer = &self.managed.switches[switch as usize].buffer;
            let fills = |q: &&Queue| {
                let mut from = held[*q].keys();
                self.channels[q.0 as usize].from == End::Switch(switch)
                    && from.any(|&from| buffer.is_in_pool(ingress(from), q.1))
            };
            let refused = ingress(id).refused.contains(p);
            let own = left.iter().find(waits);
            own.or_else(|| left.iter().find(fills).filter(|_| refused))
                .copied()
        };
        let mut left = stuck.clone();
        loop {
            let dead: Vec<Queue> = left
                .iter()
                .copied()
                .filter(|&q| next(&left, q).is_none())
                .collect();
            if dead.is_empty() {
                break;
            }
            for queue in dead {
                left.remove(&queue);
            }
        }
        let mut path = vec![left.first().copied()?];
        loop {
            let after = next(&left, path[path.len() - 1])?;
            if let Some(start) = path.iter().position(|&q| q == after) {
                let stuck = |&(id, priority): &Queue| Stuck {
                    switch: match self.channels[id as usize].from {
                        End::Switch(s) => s as usize,
                        End::Host(_) => usize::MAX,
                    },
                    channel: ChannelId(id),
                    priority,
                };
                return Some(Deadlock {
                    cycle: path[start..].iter().map(stuck).collect(),
                });
            }
            path.push(after);
        }
    }

    /// True if a lossless priority has lost a packet at a switch.
    pub fn has_lost_lossless(&self) -> bool {
        let lost = |cause| self.channels.iter().any(|c| c.counters.drops(cause) > 0);
        lost(DropCause::HeadroomFull) || lost(DropCause::Watchdog)
    }
}
