//! The card as its driver sees it: packets in, packets out, timers.

use super::AsyncEvent;
use super::companion::{self, Slot};
use super::config::CardConfig;
use super::congestion::{CongestionState, Notifier, notification};
use super::counters::Counters;
use super::env::{Deed, Env, PriorityMask, Refusal};
use super::explain::{Failure, FailureLog};
use super::qp::attributes::QpType;
use super::qp::{Arrived, Desk, Qp, State};
use super::recent::Recent;
use super::sending::Lists;
use crate::memory::Memory;
use crate::places::Places;
use crate::random::Stream;
use crate::time::Time;
use crate::wire::{
    Bth, Damage, Ecn, Gid, Operation, Packet, Psn, QpNumber, Route, RouteTable, Service,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A software RNIC with one port.
#[derive(Debug)]
pub struct Card {
    pub(super) desk: Desk,
    pub(super) routes: RouteTable,
    /// Queue pair 1, then the others by number, from `first_qp` on; one that is not there leaves its place empty.
    pub(super) qps: Vec<Option<Box<Qp>>>,
    pub(super) first_qp: u32,
    /// Places of destroyed queue pairs, the longest empty first.
    pub(super) freed: VecDeque<u32>,
    /// Of packets for no queue pair, and of queue pairs that are destroyed.
    pub(super) counters: Counters,
    /// Multicast groups, and the queue pairs attached to each, by place.
    pub(super) groups: Vec<(Gid, Vec<u32>)>,
    /// Moves with every change of those.
    pub(super) memberships: u64,
    pub(super) notifier: Notifier,
    pub(super) companion: Slot,
    random: Stream,
    /// Queue pairs that may have packets, by priority.
    pub(super) lists: [Lists; 8],
    pub(super) pending: PriorityMask,
    /// Deadlines of queue pairs; each knows its own entries, `armed`.
    pub(super) timers: BinaryHeap<Reverse<(Time, u32)>>,
}

impl Card {
    /// A card. Keys, addresses and queue pair numbers are drawn from the stream that `seed` and the
    /// card's name give; `routes` is shared with the driver.
    pub fn new(config: CardConfig, seed: u64, routes: RouteTable) -> Card {
        let mut random = Stream::new(seed, &format!("card {}", config.name));
        let psn_stream = format!("card {} psn", config.name);
        // Any start that leaves room for every number and stays clear of 0, 1 and the multicast number.
        let first_qp = 0x10 + random.below(0x00f0_0000) as u32;
        Card {
            notifier: Notifier::new(config.notification, config.encapsulation),
            desk: Desk {
                data_ecn: config.data_ecn(),
                config,
                memory: Memory::new(random),
                cqs: Places::default(),
                events: VecDeque::new(),
                failures: FailureLog::default(),
                srqs: Places::default(),
                addresses: Places::default(),
                notifications: VecDeque::new(),
                armed: 0,
                completed: 0,
            },
            routes,
            qps: vec![None],
            first_qp,
            freed: VecDeque::new(),
            groups: Vec::new(),
            memberships: 0,
            companion: Slot::default(),
            counters: Counters::default(),
            random: Stream::new(seed, &psn_stream),
            lists: Default::default(),
            pending: PriorityMask::NONE,
            timers: BinaryHeap::new(),
        }
    }

    /// A first PSN, drawn from the card's seed.
    pub fn draw_psn(&mut self) -> Psn {
        Psn::new(self.random.bits() as u32)
    }

    /// Its parameters.
    pub fn config(&self) -> &CardConfig {
        &self.desk.config
    }

    /// What it has counted: the sum over its queue pairs, destroyed ones included, and the packets that
    /// were for none.
    pub fn counters(&self) -> Counters {
        let mut sum = self.counters;
        for qp in self.qps.iter().flatten() {
            sum += &qp.counters;
        }
        sum
    }

    /// What a queue pair has counted.
    pub fn qp_counters(&self, number: QpNumber) -> Option<&Counters> {
        self.qp(number).map(|qp| &qp.counters)
    }

    /// What a queue pair of UC or UD has received.
    pub fn arrived(&self, number: QpNumber) -> Option<Arrived> {
        self.qp(number).map(|qp| qp.responder.arrived)
    }

    /// Rare events of a queue pair, the latest ones.
    pub fn recent(&self, number: QpNumber) -> Option<&Recent> {
        self.qps[self.index_of(number)?]
            .as_deref()
            .map(|qp| &qp.recent)
    }

    /// State of a queue pair.
    pub fn qp_state(&self, number: QpNumber) -> Option<State> {
        self.qps[self.index_of(number)?]
            .as_deref()
            .map(|qp| qp.state)
    }

    /// What congestion control of a queue pair has come to at `now`; `None` if it has none.
    pub fn congestion(&self, now: Time, number: QpNumber) -> Option<CongestionState> {
        let limiter = self.qp(number)?.limiter.as_deref()?;
        Some(limiter.state(now))
    }

    /// The route of what a connected queue pair sends; `None` if it is not connected.
    pub fn qp_route(&self, number: QpNumber) -> Option<Route> {
        self.routes.get(self.qp(number)?.path?.route)
    }

    #[inline]
    pub(super) fn index_of(&self, number: QpNumber) -> Option<usize> {
        let at = number.get().wrapping_sub(self.first_qp) as usize;
        if at < self.qps.len() - 1 {
            return Some(at + 1);
        }
        (number == QpNumber::GSI).then_some(0)
    }

    /// The program has posted work to a queue pair. (Receive requests need no doorbell, except in the
    /// error state, where it makes the card flush them.)
    pub fn doorbell(&mut self, now: Time, number: QpNumber) {
        let Some(index) = self.index_of(number) else {
            return;
        };
        let Some(qp) = self.qps[index].as_deref_mut() else {
            return;
        };
        match qp.state {
            State::Rts => qp.send_doorbell(now, &self.desk),
            State::Error => {
                let flushed = qp.flush(now, &mut self.desk);
                qp.only_flushed(now, flushed, &mut self.desk);
            }
            State::Sqe => {
                let flushed = qp.flush_sends(now, &mut self.desk);
                qp.only_flushed(now, flushed, &mut self.desk);
            }
            _ => {}
        }
        self.after(index);
    }

    /// Takes a packet that arrived, sent along `route`.
    pub fn receive<E: Env>(&mut self, now: Time, packet: &Packet, route: &Route, env: &mut E) {
        // Before it is looked at, so that a failure that it brings about has it among what was counted.
        self.counters_of(packet).received_packets += 1;
        let outcome = self.dispatch(now, packet, route, env);
        if let Err(why) = outcome {
            self.counters_of(packet).refused.count(why);
            env.observe(|| Deed::Refused {
                packet: *packet,
                why,
            });
        }
    }

    /// The counters of the queue pair that a packet is for, or the card's if there is none.
    #[inline]
    fn counters_of(&mut self, packet: &Packet) -> &mut Counters {
        let qp = self
            .index_of(packet.bth.dest_qp())
            .and_then(|i| self.qps[i].as_deref_mut());
        qp.map_or(&mut self.counters, |qp| &mut qp.counters)
    }

    fn dispatch<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        route: &Route,
        env: &mut E,
    ) -> Result<(), Refusal> {
        if packet.damage != Damage::None {
            return Err(Refusal::BadIcrc);
        }
        if packet.bth.tver() != 0 {
            return Err(Refusal::Malformed);
        }
        if packet.bth.dest_qp() == QpNumber::MULTICAST {
            // To a group of this card's, which is looked for by its address.
            return self.dispatch_multicast(now, packet, route, env);
        }
        let index = self
            .index_of(packet.bth.dest_qp())
            .ok_or(Refusal::UnknownQueuePair)?;
        self.dispatch_to(index, now, packet, route, env)
    }

    /// A copy for each queue pair that is attached to the group. Groups are of datagrams; a CNP, which any
    /// service takes, is for one queue pair.
    #[cold]
    fn dispatch_multicast<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        route: &Route,
        env: &mut E,
    ) -> Result<(), Refusal> {
        let group = self
            .groups
            .iter()
            .position(|(group, _)| *group == route.dst);
        let group = group.ok_or(Refusal::UnknownQueuePair)?;
        if packet.bth.opcode().service() != Service::Ud {
            return Err(Refusal::WrongService);
        }
        let mut outcome = Ok(());
        for i in 0..self.groups[group].1.len() {
            let index = self.groups[group].1[i] as usize;
            if let Err(why) = self.dispatch_to(index, now, packet, route, env) {
                outcome = Err(why);
            }
        }
        outcome
    }

    #[inline]
    fn dispatch_to<E: Env>(
        &mut self,
        index: usize,
        now: Time,
        packet: &Packet,
        route: &Route,
        env: &mut E,
    ) -> Result<(), Refusal> {
        let qp = self.qps[index]
            .as_deref_mut()
            .ok_or(Refusal::UnknownQueuePair)?;
        if matches!(qp.state, State::Reset | State::Init | State::Error) {
            return Err(Refusal::WrongState);
        }
        let config = &self.desk.config;
        // A connection has one peer; a datagram may come from anyone.
        let addressed = match &qp.path {
            Some(path) => {
                route.src == path.peer
                    && route.dst == path.own
                    && route.encapsulation == config.encapsulation
            }
            // What is sent to a group names no queue pair of its own, and has been looked for by group.
            None if packet.bth.dest_qp() == QpNumber::MULTICAST => true,
            None => route.dst == config.gid,
        };
        if !addressed {
            return Err(Refusal::WrongAddress);
        }
        let opcode = packet.bth.opcode();
        if opcode.operation() == Operation::Cnp {
            qp.take_cnp(now);
            return Ok(());
        }
        if !pkeys_match(packet.bth.pkey(), Bth::DEFAULT_PKEY) {
            return Err(Refusal::BadPkey);
        }
        let outcome = match (qp.init.qp_type, opcode.service()) {
            (QpType::Rc, Service::Rc) if opcode.is_response() => {
                qp.receive_response(now, packet, &mut self.desk, env)
            }
            (QpType::Rc, Service::Rc) => qp.receive_request(now, packet, &mut self.desk, env),
            (QpType::Uc, Service::Uc) => qp.receive_uc(now, packet, &mut self.desk, env),
            (QpType::Ud, Service::Ud) => qp.receive_ud(now, packet, route, &mut self.desk, env),
            _ => Err(Refusal::WrongService),
        };
        self.after(index);
        if packet.ecn == Ecn::Experienced {
            self.take_mark(index, now, packet, route, outcome);
        }
        if index == 0 {
            self.call_companion(now);
        }
        outcome
    }

    /// Looks after deadlines that have come; false if there are none. Calling it early does no harm.
    pub fn advance(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&Reverse((at, index))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            if index >= companion::TIMER {
                any |= match index {
                    notification::TIMER => self.cnps_are_ready(now),
                    _ => self.companion_is_due(now),
                };
                continue;
            }
            let index = index as usize;
            let Some(qp) = self.qps[index].as_deref_mut() else {
                continue;
            };
            // Its entries come up in the order of their times.
            if qp.armed.pop().is_some() {
                any |= qp.requester_timeout(now, &mut self.desk);
                self.after(index);
            }
        }
        any
    }

    /// When [`Card::advance`] is to be called; [`Time::NEVER`] if there is nothing to wait for. May be
    /// too early, never too late.
    #[inline]
    pub fn next_timeout(&self) -> Time {
        match self.timers.peek() {
            Some(Reverse((at, _))) => *at,
            None => Time::NEVER,
        }
    }

    /// The oldest event the program has not seen.
    pub fn next_event(&mut self) -> Option<AsyncEvent> {
        self.desk.events.pop_front()
    }

    /// The oldest failure that the program has not seen: why a completion had another status than success.
    /// Requests that were flushed because of it are counted in it.
    pub fn next_failure(&mut self) -> Option<Failure> {
        self.desk.failures.pop()
    }

    /// Failures that were not kept, because [`MAX_FAILURES`](super::explain::MAX_FAILURES) others waited to be seen.
    pub fn lost_failures(&self) -> u64 {
        self.desk.failures.beyond()
    }

    /// Enters a deadline of the queue pair at `index`, of the notification point, or of the companion.
    pub(super) fn set_timer(&mut self, at: Time, index: u32) {
        self.timers.push(Reverse((at, index)));
    }
}

/// Enters the queue pair's deadline if it is earlier than those entered. A later one is found out when the
/// earlier comes, so a queue pair never has more entries than it has kinds of deadlines.
#[inline(always)]
pub(super) fn arm(timers: &mut BinaryHeap<Reverse<(Time, u32)>>, index: u32, qp: &mut Qp) {
    let deadline = qp.deadline();
    if deadline < qp.armed.last().copied().unwrap_or(Time::NEVER) {
        enter(timers, index, qp, deadline);
    }
}

#[inline(never)]
fn enter(timers: &mut BinaryHeap<Reverse<(Time, u32)>>, index: u32, qp: &mut Qp, at: Time) {
    qp.armed.push(at);
    timers.push(Reverse((at, index)));
}

/// Equal low 15 bits, and at least one of the two a full member (10.9.3).
#[inline]
fn pkeys_match(a: u16, b: u16) -> bool {
    a & 0x7fff == b & 0x7fff && (a | b) & 0x8000 != 0
}

#[cfg(test)]
mod tests {
    use super::pkeys_match;

    #[test]
    fn two_limited_members_do_not_match() {
        assert!(pkeys_match(0xffff, 0xffff));
        assert!(pkeys_match(0x7fff, 0xffff));
        assert!(!pkeys_match(0x7fff, 0x7fff));
        assert!(!pkeys_match(0x8001, 0xffff));
    }
}
