//! The notification point: a packet that was marked on its way makes a CNP to its sender (A17.9.3).
//!
//! A packet counts once it is known to be of a peer of the queue pair: addresses, P_Key, service and, of a
//! datagram, the Q_Key are right. It counts whether or not it is carried out: one that comes again or out
//! of order has crossed the same queue, and tells the same of it. What a stranger sends makes no CNP, or
//! anyone could have this card slow down a third party. Nor does a copy of a datagram to a multicast group:
//! one mark would come back from every member. Requests and answers count alike.
//!
//! CNPs wait in a queue of the card's own, before everything else of their priority, one for each sender
//! and queue pair at most.

use super::super::engine::Card;
use super::super::env::{Deed, Env, Refusal};
use crate::time::{Span, Time};
use crate::wire::{Encapsulation, Gid, Packet, QpNumber, Route, cnp, source_port};
use std::collections::{BTreeMap, VecDeque};

/// How a card answers marked packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The least time between two CNPs to the same [`Scope`].
    pub interval: Span,
    /// What is counted as the same.
    pub scope: Scope,
    /// What becomes of a mark within that time.
    pub early: EarlyMark,
    /// Ethernet priority of CNPs, 0 to 7.
    pub priority: u8,
    /// DSCP of CNPs, 0 to 63.
    pub dscp: u8,
    /// From the marked packet to the CNP, where the port is free.
    pub delay: Span,
}

/// Among which CNPs the least time between two is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those to one queue pair, as in DCQCN's paper.
    QueuePair,
    /// Those to one address (ConnectX-4 Lx, as Lumina, SIGCOMM 2023, measured it: from memory).
    Address,
    /// All of the port (ConnectX-5 and 6, from the same).
    Port,
}

/// What becomes of a mark within the least time between two CNPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EarlyMark {
    /// It makes a CNP at the end of that time, one however many there were. Of a scope with several queue pairs
    /// the first that was marked gets it. So has it DCQCN's paper: after a CNP there is one in each interval
    /// in which any packet was marked.
    Kept,
    /// It makes none.
    Forgotten,
}

impl Notification {
    /// DCQCN's paper: 50 us for each flow, at high priority.
    pub const PAPER: Notification = Notification {
        interval: Span::from_us(50),
        scope: Scope::QueuePair,
        early: EarlyMark::Kept,
        priority: 6,
        dscp: 48,
        delay: Span::ZERO,
    };

    /// Defaults of ConnectX cards (`min_time_between_cnps`, `cnp_802p_prio`, `cnp_dscp`). The scope is
    /// approximate, see [`Scope::Port`]; what becomes of early marks is not known.
    pub const CONNECTX: Notification = Notification {
        interval: Span::from_us(4),
        scope: Scope::Port,
        early: EarlyMark::Forgotten,
        ..Notification::PAPER
    };

    /// When a CNP is due for a mark at `now`, where the last one was due at `last`; `None` if the mark makes none.
    fn due(&self, now: Time, last: Option<Time>) -> Option<Time> {
        match last {
            Some(last) if now < last + self.interval => match self.early {
                EarlyMark::Kept if last <= now => Some(last + self.interval),
                // One is to come, and tells of this mark too.
                EarlyMark::Kept | EarlyMark::Forgotten => None,
            },
            _ => Some(now),
        }
    }
}

/// CNPs that may wait for the port; a mark that finds no room makes none.
const MAX_WAITING: usize = 1024;
/// Senders whose last CNP is remembered before those are forgotten to whom one may go again.
const SENDERS: usize = 1024;

/// In place of a queue pair's index: the timer is the notification point's.
pub(crate) const TIMER: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ready: Time,
    /// Of the queue pair that received the mark.
    index: u32,
    packet: Packet,
}

/// The notification point of a card.
#[derive(Debug)]
pub(crate) struct Notifier {
    spec: Option<Notification>,
    priority: u8,
    /// By the time they are ready.
    queue: VecDeque<Waiting>,
    /// When the last CNP to a sender was due, or will be; what a sender is, is the scope's. Of a connection,
    /// where each is its own scope, the queue pair knows.
    last: BTreeMap<(Gid, QpNumber), Time>,
}

impl Notifier {
    /// RoCEv1 has no marks and no CNPs.
    pub(crate) fn new(spec: Option<Notification>, encapsulation: Encapsulation) -> Notifier {
        let spec = spec.filter(|_| encapsulation == Encapsulation::RoceV2);
        Notifier {
            priority: spec.map_or(0, |s| s.priority.min(7)),
            spec,
            queue: VecDeque::new(),
            last: BTreeMap::new(),
        }
    }

    /// Ethernet priority of CNPs.
    #[inline]
    pub(crate) fn priority(&self) -> u8 {
        self.priority
    }

    /// When a CNP to a sender is due for a mark at `now`, which is then taken to have gone; `None` if none is.
    fn admit(&mut self, now: Time, spec: &Notification, peer: Gid, qp: QpNumber) -> Option<Time> {
        let nobody = QpNumber::new(0);
        let key = match spec.scope {
            Scope::QueuePair => (peer, qp),
            Scope::Address => (peer, nobody),
            Scope::Port => (Gid([0; 16]), nobody),
        };
        let due = spec.due(now, self.last.get(&key).copied())?;
        if self.last.len() >= SENDERS {
            self.last.retain(|_, &mut at| now < at + spec.interval);
        }
        self.last.insert(key, due);
        Some(due)
    }

    /// True if a CNP is ready at `now`.
    fn is_ready(&self, now: Time) -> bool {
        self.queue.front().is_some_and(|w| w.ready <= now)
    }
}

/// True if a packet that was not carried out is of the queue pair's peer all the same.
fn is_of_peer(outcome: Result<(), Refusal>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(why) => matches!(
            why,
            Refusal::TooLong
                | Refusal::Ghost
                | Refusal::Duplicate
                | Refusal::OutOfSequence
                | Refusal::ReceiverNotReady
                | Refusal::NoResources
                | Refusal::Nak
                | Refusal::BadKey
        ),
    }
}

impl Card {
    /// A packet with a mark has been taken by a queue pair, or refused by it.
    #[inline(never)]
    pub(crate) fn take_mark(
        &mut self,
        index: usize,
        now: Time,
        packet: &Packet,
        route: &Route,
        outcome: Result<(), Refusal>,
    ) {
        let Some(qp) = self.qps[index].as_deref_mut() else {
            return;
        };
        if !is_of_peer(outcome) || packet.bth.dest_qp() == QpNumber::MULTICAST {
            return;
        }
        qp.counters.ecn_marked += 1;
        let Some(spec) = &self.notifier.spec else {
            return;
        };
        if self.notifier.queue.len() >= MAX_WAITING {
            return;
        }
        let due = if qp.path.is_some() && spec.scope == Scope::QueuePair {
            let due = spec.due(now, qp.notices.last);
            qp.notices.last = due.or(qp.notices.last);
            due
        } else {
            let (peer, dest) = match (&qp.path, packet.ext.deth()) {
                (Some(path), _) => (path.peer, qp.dest_qp),
                (None, Some(deth)) => (route.src, deth.src_qp),
                (None, None) => return,
            };
            let spec = *spec;
            self.notifier.admit(now, &spec, peer, dest)
        };
        if let Some(due) = due {
            self.notify(index, now, due, packet, route);
        }
    }

    /// Makes a CNP that is due at `due` for a marked packet.
    #[cold]
    fn notify(&mut self, index: usize, now: Time, due: Time, packet: &Packet, route: &Route) {
        let (Some(qp), Some(spec)) = (self.qps[index].as_deref_mut(), self.notifier.spec) else {
            return;
        };
        let dest = match packet.ext.deth() {
            Some(deth) if qp.path.is_none() => deth.src_qp,
            _ => qp.dest_qp,
        };
        let connected = qp.path.is_some();
        if connected && qp.notices.waits {
            return;
        }
        let make = |way: &Route| {
            let id = self.routes.intern(*way);
            cnp::packet(dest, packet.bth.pkey(), way, id, self.notifier.priority)
        };
        let cnp = match (&qp.path, qp.notices.cnp) {
            (Some(_), Some(known)) => Packet {
                bth: known.bth.with_pkey(packet.bth.pkey()),
                ..known
            },
            (Some(path), None) => {
                let Some(own) = self.routes.get(path.route) else {
                    return;
                };
                let dscp = spec.dscp & 0x3f;
                *qp.notices.cnp.insert(make(&Route { dscp, ..own }))
            }
            // Back to where the datagram came from.
            (None, _) => {
                let cnp = make(&Route {
                    src_mac: self.desk.config.mac,
                    dst_mac: route.src_mac,
                    src: self.desk.config.gid,
                    dst: route.src,
                    udp_src: source_port(qp.number, dest),
                    dscp: spec.dscp & 0x3f,
                    hop_limit: 64,
                    flow_label: 0,
                    ..*route
                });
                let same =
                    |w: &Waiting| w.packet.route == cnp.route && w.packet.bth.dest_qp() == dest;
                if self.notifier.queue.iter().any(same) {
                    return;
                }
                cnp
            }
        };
        qp.notices.waits = connected;
        let ready = due + spec.delay;
        let waiting = Waiting {
            ready,
            index: index as u32,
            packet: cnp,
        };
        let queue = &mut self.notifier.queue;
        match queue.back() {
            // Most are due later than all others.
            Some(last) if last.ready > ready => {
                let place = queue.partition_point(|w| w.ready <= ready);
                queue.insert(place, waiting);
            }
            _ => queue.push_back(waiting),
        }
        if ready <= now {
            self.cnps_are_ready(now);
        } else {
            self.set_timer(ready, TIMER);
        }
    }

    /// The notification point's timer has run out, or needs none.
    pub(crate) fn cnps_are_ready(&mut self, now: Time) -> bool {
        let ready = self.notifier.is_ready(now);
        if ready {
            self.list_priority(self.notifier.priority);
        }
        ready
    }

    /// The next CNP.
    #[cold]
    pub(crate) fn next_cnp<E: Env>(&mut self, now: Time, env: &mut E) -> Option<Packet> {
        if !self.notifier.is_ready(now) {
            return None;
        }
        let Waiting { index, packet, .. } = self.notifier.queue.pop_front()?;
        let counters = match self.qps[index as usize].as_deref_mut() {
            Some(qp) => {
                qp.notices.waits = false;
                &mut qp.counters
            }
            None => &mut self.counters,
        };
        counters.sent_packets += 1;
        counters.cnps_sent += 1;
        env.observe(|| Deed::Notification { packet });
        Some(packet)
    }

    /// True if CNPs are waiting, ready or not.
    #[inline]
    pub(crate) fn owes_cnps(&self) -> bool {
        !self.notifier.queue.is_empty()
    }
}

/// What a connection knows of the CNPs to its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices {
    /// One of them, once there was any.
    cnp: Option<Packet>,
    /// One waits for its time or for the port.
    waits: bool,
    /// When the last one was due, or will be, if they are counted by queue pair.
    last: Option<Time>,
}

impl Notices {
    /// The path has changed.
    pub(crate) fn forget_way(&mut self) {
        self.cnp = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_that_may_be_told_again_are_forgotten() {
        let mut notifier = Notifier::new(Some(Notification::PAPER), Encapsulation::RoceV2);
        let peer = Gid([7; 16]);
        let us = |n: u64| Time::ZERO + Span::from_us(n);
        let mut ask = |at, n| notifier.admit(at, &Notification::PAPER, peer, QpNumber::new(n));
        // All but the last at once; that one later.
        for n in 1..SENDERS as u32 {
            assert_eq!(ask(us(0), n), Some(us(0)));
        }
        assert_eq!(ask(us(30), 5000), Some(us(30)));
        // The next one finds the place full and those of the beginning out of date, but not the late one.
        assert_eq!(ask(us(60), 6000), Some(us(60)));
        assert_eq!(ask(us(60), 5000), Some(us(80)));
        assert_eq!(ask(us(60), 1), Some(us(60)));
        assert_eq!(notifier.last.len(), 3);
    }
}
