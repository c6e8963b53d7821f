//! The injectors of one way at work.

use super::sighting::Tracker;
use super::{Action, Fault, FaultCounts, Pattern, Sighting};
use crate::random::Stream;
use crate::time::{Span, Time};
use crate::wire::{Damage, Packet, Route};

/// The injectors of one way, and the packets that they hold back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Injectors {
    injectors: Vec<Injector>,
    /// There if some filter asks what the way has seen.
    tracker: Option<Tracker>,
    held: Vec<Held>,
    /// Packets under way that were damaged here, each with the position of the first fault that did it.
    damaged: Vec<(u32, usize)>,
}

#[derive(Clone, Debug)]
struct Injector {
    fault: Fault,
    random: Stream,
    /// Packets that passed the filter.
    looked_at: u64,
    hits: u64,
    /// State of the Gilbert-Elliott channel.
    bad: bool,
}

/// A packet held back to be reordered.
#[derive(Clone, Copy, Debug)]
struct Held {
    slot: u32,
    /// How many have yet to go past it.
    packets: u32,
    deadline: Time,
}

/// An injector has hit a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// Its position.
    pub(crate) fault: usize,
    pub(crate) action: Action,
    /// What the packet was to the way, if some filter asks for that.
    pub(crate) sighting: Option<Sighting>,
}

/// What is to become of a packet, all injectors taken together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) drop: bool,
    pub(crate) damage: Damage,
    pub(crate) mark: bool,
    pub(crate) delay: Span,
    /// How many go past it, and for how long at most it waits for them.
    pub(crate) reorder: Option<(u32, Span)>,
    /// How long after it each copy comes.
    pub(crate) copies: Vec<Span>,
}

impl Injectors {
    /// Adds a fault and gives its position.
    pub(crate) fn add(&mut self, fault: Fault, random: Stream) -> usize {
        if fault.filter.looks_back() && self.tracker.is_none() {
            self.tracker = Some(Tracker::default());
        }
        self.injectors.push(Injector {
            fault,
            random,
            looked_at: 0,
            hits: 0,
            bad: false,
        });
        self.injectors.len() - 1
    }

    /// What the injector at `position` has done.
    pub(crate) fn counts(&self, position: usize) -> Option<FaultCounts> {
        self.injectors.get(position).map(|i| FaultCounts {
            seen: i.looked_at,
            hits: i.hits,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.injectors.len()
    }

    /// Asks all injectors about a packet that goes out; `report` is told of each hit.
    pub(crate) fn judge(
        &mut self,
        packet: &Packet,
        route: &Route,
        mut report: impl FnMut(Hit),
    ) -> Verdict {
        let sighting = self.tracker.as_mut().map(|t| t.see(packet, route));
        let mut verdict = Verdict::default();
        for (position, injector) in self.injectors.iter_mut().enumerate() {
            let Some(action) = injector.ask(packet, route, sighting.as_ref()) else {
                continue;
            };
            report(Hit {
                fault: position,
                action,
                sighting,
            });
            match action {
                Action::Drop => verdict.drop = true,
                Action::CorruptOnLink => verdict.damage = Damage::Link,
                Action::CorruptInDevice if verdict.damage == Damage::None => {
                    verdict.damage = Damage::Device;
                }
                Action::CorruptInDevice => {}
                Action::MarkEcn => verdict.mark = true,
                Action::Duplicate { delay } => verdict.copies.push(delay),
                Action::Delay { by } => verdict.delay = verdict.delay + by,
                Action::Reorder { packets, limit } => verdict.reorder = Some((packets, limit)),
            }
        }
        verdict
    }

    /// Holds a packet back.
    pub(crate) fn hold(&mut self, slot: u32, packets: u32, deadline: Time) {
        self.held.push(Held {
            slot,
            packets,
            deadline,
        });
    }

    /// Remembers which fault has damaged a packet, until that is dropped for it.
    pub(crate) fn note_damaged(&mut self, slot: u32, position: usize) {
        self.damaged.push((slot, position));
    }

    /// The fault that has damaged a packet, which is dropped now.
    pub(crate) fn take_damaged(&mut self, slot: u32) -> Option<usize> {
        let i = self.damaged.iter().position(|d| d.0 == slot)?;
        Some(self.damaged.swap_remove(i).1)
    }

    /// A packet goes past those that are held.
    pub(crate) fn pass(&mut self) {
        for held in &mut self.held {
            held.packets -= 1;
        }
    }

    /// A packet that enough have gone past.
    pub(crate) fn passed(&mut self) -> Option<u32> {
        let i = self.held.iter().position(|h| h.packets == 0)?;
        Some(self.held.remove(i).slot)
    }

    /// A packet that is held: the one held for longest.
    pub(crate) fn let_go(&mut self) -> Option<u32> {
        (!self.held.is_empty()).then(|| self.held.remove(0).slot)
    }

    /// A packet that may be held no longer.
    pub(crate) fn overdue(&mut self, now: Time) -> Option<u32> {
        let i = self.held.iter().position(|h| h.deadline <= now)?;
        Some(self.held.remove(i).slot)
    }
}

impl Injector {
    fn ask(
        &mut self,
        packet: &Packet,
        route: &Route,
        sighting: Option<&Sighting>,
    ) -> Option<Action> {
        if !self.fault.filter.passes(packet, route, sighting) {
            return None;
        }
        let number = self.looked_at;
        self.looked_at += 1;
        let hit = match self.fault.pattern {
            Pattern::Always => true,
            Pattern::Random(p) => self.random.chance(p),
            Pattern::Burst(model) => {
                let (hit, turn) = if self.bad {
                    (model.bad, model.r)
                } else {
                    (model.good, model.p)
                };
                let hit = self.random.chance(hit);
                self.bad ^= self.random.chance(turn);
                hit
            }
            Pattern::Every { n, phase } => number % n == phase,
        };
        if !hit || self.fault.at_most.is_some_and(|most| self.hits >= most) {
            return None;
        }
        self.hits += 1;
        Some(self.fault.action)
    }
}
