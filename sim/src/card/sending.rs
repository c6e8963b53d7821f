//! Who sends next: queue pairs that may have packets are listed by priority, and each has its turn.

use super::engine::{Card, arm};
use super::env::{Env, PriorityMask};
use super::qp::{Path, Qp};
use crate::time::Time;
use crate::wire::{Packet, QpNumber};
use std::collections::VecDeque;

/// Queue pairs with something to send in one priority. Acknowledgements go first: they free what the peer
/// holds.
#[derive(Debug, Default)]
pub(super) struct Lists {
    responses: VecDeque<u32>,
    requests: VecDeque<u32>,
    /// The last packet was READ data: if there is more of it, a request has the next turn.
    data_went_last: bool,
}

impl Card {
    /// The next packet whose priority is in `ready`.
    pub fn next_packet<E: Env>(
        &mut self,
        now: Time,
        ready: PriorityMask,
        env: &mut E,
    ) -> Option<Packet> {
        loop {
            let usable = self.pending.and(ready).0;
            if usable == 0 {
                return None;
            }
            // The highest priority goes first.
            let priority = usable.ilog2() as u8;
            if priority == self.notifier.priority()
                && self.owes_cnps()
                && let Some(cnp) = self.next_cnp(now, env)
            {
                self.look_for_more(priority);
                return Some(cnp);
            }
            if let Some(packet) = self.next_of(now, priority, env) {
                self.look_for_more(priority);
                return Some(packet);
            }
            self.pending = self.pending.without(priority);
        }
    }

    /// After a packet of a priority has gone: the driver need not ask for another where there is none.
    #[inline]
    fn look_for_more(&mut self, priority: u8) {
        let lists = &self.lists[usize::from(priority)];
        if lists.requests.is_empty()
            && lists.responses.is_empty()
            && !(priority == self.notifier.priority() && self.owes_cnps())
        {
            self.pending = self.pending.without(priority);
        }
    }

    /// As [`Card::next_packet`], but requests alone: those of the highest priority that something is owed in, and
    /// above.
    pub fn next_request<E: Env>(
        &mut self,
        now: Time,
        ready: PriorityMask,
        env: &mut E,
    ) -> Option<Packet> {
        let mut usable = self.pending.and(ready);
        while let Some(priority) = usable.highest() {
            let request = self.next_request_of(now, priority, env);
            if request.is_some() {
                return request;
            }
            let owes_cnps = priority == self.notifier.priority() && self.owes_cnps();
            if owes_cnps || !self.lists[usize::from(priority)].responses.is_empty() {
                return None;
            }
            usable = usable.without(priority);
        }
        None
    }

    /// True if answers to requests of peers may be waiting.
    pub fn owes_answers(&self) -> bool {
        self.lists.iter().any(|lists| !lists.responses.is_empty())
    }

    /// The next packet of a priority. Acknowledgements go first; READ data takes turns with requests, so
    /// that a peer that reads for ever does not silence this side.
    fn next_of<E: Env>(&mut self, now: Time, priority: u8, env: &mut E) -> Option<Packet> {
        let lists = &self.lists[usize::from(priority)];
        if lists.data_went_last && !lists.requests.is_empty() && self.data_is_next(priority) {
            let request = self.next_request_of(now, priority, env);
            if request.is_some() {
                return request;
            }
        }
        let response = self.next_response_of(now, priority, env);
        if response.is_some() {
            return response;
        }
        self.next_request_of(now, priority, env)
    }

    /// True if the next answer of a priority carries READ data.
    fn data_is_next(&self, priority: u8) -> bool {
        let first = self.lists[usize::from(priority)].responses.front();
        let qp = first.and_then(|&index| self.qps[index as usize].as_deref());
        qp.is_some_and(Qp::answers_with_data)
    }

    /// The next answer of a priority. A queue pair that gives one goes to the end of its list; one that
    /// gives none leaves it until something happens to it.
    fn next_response_of<E: Env>(&mut self, now: Time, priority: u8, env: &mut E) -> Option<Packet> {
        let lists = usize::from(priority);
        while let Some(index) = self.lists[lists].responses.pop_front() {
            let Some(qp) = self.qps[index as usize].as_deref_mut() else {
                continue;
            };
            let packet = qp.next_response(now, &mut self.desk, env);
            qp.counters.sent_packets += u64::from(packet.is_some());
            if packet.is_some() && qp.has_responses() {
                self.lists[lists].responses.push_back(index);
            } else {
                qp.listed_response = false;
            }
            arm(&mut self.timers, index, qp);
            if let Some(packet) = packet {
                self.lists[lists].data_went_last = !packet.payload.is_empty();
                return Some(packet);
            }
        }
        None
    }

    /// The next request of a priority; as with answers.
    fn next_request_of<E: Env>(&mut self, now: Time, priority: u8, env: &mut E) -> Option<Packet> {
        let lists = usize::from(priority);
        while let Some(index) = self.lists[lists].requests.pop_front() {
            let Some(qp) = self.qps[index as usize].as_deref_mut() else {
                continue;
            };
            let packet = qp.next_request(now, priority, &mut self.desk, env);
            qp.counters.sent_packets += u64::from(packet.is_some());
            qp.listed_request = false;
            // The next datagram may be of another priority.
            let elsewhere = |path: Path| path.priority != priority;
            if packet.is_some() || qp.next_path(&self.desk).is_some_and(elsewhere) {
                self.after(index as usize);
            } else {
                arm(&mut self.timers, index, qp);
            }
            if let Some(packet) = packet {
                self.lists[lists].data_went_last = false;
                if packet.bth.dest_qp() == QpNumber::MULTICAST {
                    self.hear_own(now, &packet, env);
                }
                return Some(packet);
            }
        }
        None
    }

    /// Priorities in which [`Card::next_packet`] may have something.
    #[inline]
    pub fn pending(&self) -> PriorityMask {
        self.pending
    }

    /// After anything that happened to a queue pair: lists it if it may have something to send, and
    /// sees to its deadline.
    #[inline]
    pub(super) fn after(&mut self, index: usize) {
        let Some(qp) = self.qps[index].as_deref_mut() else {
            return;
        };
        if let Some(path) = &qp.path
            && !qp.listed_response
            && qp.has_responses()
        {
            qp.listed_response = true;
            let p = path.response_priority;
            self.lists[usize::from(p)].responses.push_back(index as u32);
            self.pending = self.pending.with(p);
        }
        if !qp.listed_request && qp.requester.has_work() && !qp.requester.is_paced() {
            // A datagram that has no address yet shows that when it is asked for.
            let p = qp.next_path(&self.desk).map_or(0, |path| path.priority);
            qp.listed_request = true;
            self.lists[usize::from(p)].requests.push_back(index as u32);
            self.pending = self.pending.with(p);
        }
        arm(&mut self.timers, index as u32, qp);
    }

    /// Takes a queue pair off all lists.
    pub(super) fn unlist(&mut self, index: usize) {
        if let Some(qp) = self.qps[index].as_deref_mut() {
            if !qp.listed_request && !qp.listed_response {
                return;
            }
            (qp.listed_request, qp.listed_response) = (false, false);
        }
        for lists in &mut self.lists {
            lists.requests.retain(|&i| i as usize != index);
            lists.responses.retain(|&i| i as usize != index);
        }
    }

    /// Packets of `priority` may be waiting.
    pub(super) fn list_priority(&mut self, priority: u8) {
        self.pending = self.pending.with(priority);
    }
}
