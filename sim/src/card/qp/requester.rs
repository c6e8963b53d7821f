//! The requester: which work request is next, and from where it goes on after a loss.

use super::attributes::{QpAttributes, QpType};
use super::trouble::Spent;
use super::{Desk, Path, Qp, State, psn_at};
use crate::card::congestion::Loss;
use crate::card::explain::{Cause, Flushed};
use crate::card::program::{CHUNK, Chunk, WorkReader};
use crate::card::recent::Rare;
use crate::card::work::{SendEntry, Sge};
use crate::card::{codes, queue::Reader};
use crate::time::{Span, Time};
use crate::wire::{Bth, Damage, Ecn, Ext, Packet, Payload, Psn};

/// The most packets without acknowledgement: half the PSN space, so that a duplicate can be told from
/// a new packet.
pub(super) const WINDOW: u64 = 1 << 23;

/// Packets of one work request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    pub(super) first: u64,
    /// None for what is done locally.
    pub(super) packets: u32,
    /// READ or atomic: done when its own answer has come, not when a later packet is acknowledged.
    pub(super) answered: bool,
}

impl Flight {
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(super) queue: WorkReader<SendEntry>,
    chunks: Reader<Chunk>,
    /// By index of the work request, modulo the length, a power of two.
    pub(super) flights: Box<[Flight]>,
    /// Work requests up to here have their packets numbered.
    pub(super) started: u64,
    /// The work request that the next packet belongs to.
    pub(super) cursor_request: u64,
    /// Work requests up to here were there when the doorbell last rang.
    rung: u64,
    /// Position of the next packet to send.
    pub(super) cursor: u64,
    /// Position after the last one numbered.
    pub(super) next: u64,
    /// Oldest position without answer.
    pub(super) una: u64,
    /// Position after the last one ever sent.
    pub(super) sent: u64,
    pub(super) first_psn: Psn,
    /// READs and atomics sent since the last going back and not answered yet.
    pub(super) reads_out: u32,
    pub(super) max_rd_atomic: u32,
    pub(super) timeout: Option<Span>,
    pub(super) retry_cnt: u8,
    pub(super) retries_left: u8,
    pub(super) rnr_retry: u8,
    pub(super) rnr_left: u8,
    /// Nothing is sent before this: doorbell, RNR wait, reaction to a NAK.
    pub(super) hold_until: Time,
    /// Congestion control lets nothing go before this; [`Time::NEVER`] if nothing is held back.
    pub(super) paced_until: Time,
    /// When the transport timer runs out.
    pub(super) timer: Time,
    /// Packets since one asked for an acknowledgement.
    pub(super) since_ack_req: u32,
    /// It went back for a NAK, and nothing has been acknowledged in so many words since.
    pub(super) resending: bool,
    /// A missing READ response was acted on and nothing has moved since.
    pub(super) implied_nak: bool,
    /// Number of the last message, from 0, that the peer's credits let begin, if it limits them.
    pub(super) credit_limit: u64,
    /// Messages begun, and messages done: the peer's MSN counts them, but not what is done locally.
    pub(super) messages_begun: u64,
    pub(super) messages_done: u64,
    /// The position that an RNR NAK has named, and when the wait that it asks for is over.
    pub(super) put_off: Option<(u64, Time)>,
    /// The work request at `started` cannot be sent; it completes when its turn comes.
    pub(super) failure: Option<Box<Cause>>,
    /// An SQD was asked for and its event is due when everything is answered.
    pub(crate) drain_event: bool,
}

impl Requester {
    pub(super) fn new(
        queue: WorkReader<SendEntry>,
        chunks: Reader<Chunk>,
        max_wr: u32,
    ) -> Requester {
        let slots = max_wr.max(1).next_power_of_two() as usize;
        Requester {
            queue,
            chunks,
            flights: vec![Flight::default(); slots].into_boxed_slice(),
            started: 0,
            cursor_request: 0,
            rung: 0,
            cursor: 0,
            next: 0,
            una: 0,
            sent: 0,
            first_psn: Psn::default(),
            reads_out: 0,
            max_rd_atomic: 0,
            timeout: None,
            retry_cnt: 0,
            retries_left: 0,
            rnr_retry: 0,
            rnr_left: 0,
            hold_until: Time::ZERO,
            paced_until: Time::NEVER,
            timer: Time::NEVER,
            since_ack_req: 0,
            resending: false,
            implied_nak: false,
            credit_limit: u64::MAX,
            messages_begun: 0,
            messages_done: 0,
            put_off: None,
            failure: None,
            drain_event: false,
        }
    }

    pub(super) fn reset(&mut self) {
        while self.retire().is_some() {}
        self.stop();
        (self.cursor, self.next, self.una, self.sent) = (0, 0, 0, 0);
        (self.messages_begun, self.messages_done) = (0, 0);
        self.credit_limit = u64::MAX;
    }

    /// Forgets everything under way; what is queued stays.
    pub(super) fn stop(&mut self) {
        // What was under way is not taken up again: the positions end here.
        self.next = self.next.max(self.sent);
        (self.cursor, self.una, self.sent) = (self.next, self.next, self.next);
        self.hold_until = Time::ZERO;
        self.put_off = None;
        self.paced_until = Time::NEVER;
        self.timer = Time::NEVER;
        self.reads_out = 0;
        self.failure = None;
        self.resending = false;
        self.implied_nak = false;
        self.drain_event = false;
        self.since_ack_req = 0;
    }

    /// Takes over the attributes that are the requester's.
    pub(crate) fn set_attributes(&mut self, a: &QpAttributes) {
        if let Some(psn) = a.sq_psn {
            self.first_psn = psn;
        }
        if let Some(n) = a.max_rd_atomic {
            self.max_rd_atomic = n.into();
        }
        if let Some(n) = a.timeout {
            self.timeout = codes::ack_timeout(n);
        }
        if let Some(n) = a.retry_cnt {
            (self.retry_cnt, self.retries_left) = (n, n);
        }
        if let Some(n) = a.rnr_retry {
            (self.rnr_retry, self.rnr_left) = (n, n);
        }
    }

    /// Takes the oldest work request out of the queue.
    pub(super) fn retire(&mut self) -> Option<SendEntry> {
        let inline = self.queue.entries.get(self.head())?.inline;
        if inline.count > 0 {
            self.chunks.tail();
            self.chunks.retire(inline.count.into());
        }
        let entry = self.queue.retire(|entry| entry.sges)?;
        let head = self.head();
        self.started = self.started.max(head);
        self.cursor_request = self.cursor_request.max(head);
        Some(entry)
    }

    /// Index of the oldest work request.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.queue.entries.head()
    }

    /// The work request that the next packet belongs to.
    pub(super) fn next_entry(&mut self) -> Option<SendEntry> {
        self.entry(self.cursor_request)
    }

    /// A work request that is in the queue.
    pub(super) fn entry(&mut self, index: u64) -> Option<SendEntry> {
        self.queue.entries.get(index).copied()
    }

    /// The elements of a queued work request.
    #[inline]
    pub(super) fn elements(&self, entry: &SendEntry) -> impl Iterator<Item = &Sge> {
        let run = entry.sges;
        (0..u64::from(run.count)).filter_map(move |i| self.queue.sges.peek(run.first + i))
    }

    /// Copies bytes from `offset` on of a request's inline data.
    pub(super) fn copy_inline(&self, entry: &SendEntry, offset: usize, out: &mut [u8]) {
        for (at, byte) in (offset..).zip(out) {
            let chunk = self.chunks.peek(entry.inline.first + (at / CHUNK) as u64);
            *byte = chunk.map_or(0, |c| c[at % CHUNK]);
        }
    }

    /// Takes note of the elements and inline data that the program has queued with an entry.
    #[inline]
    pub(super) fn refresh(&mut self, entry: &SendEntry) {
        self.queue.sges.tail();
        if entry.inline.count > 0 {
            self.chunks.tail();
        }
    }

    #[inline]
    pub(super) fn flight(&self, request: u64) -> Flight {
        self.flights[request as usize & (self.flights.len() - 1)]
    }

    /// The work request that `position` belongs to; positions from the oldest one's on are numbered in
    /// order.
    pub(super) fn request_at(&self, position: u64) -> u64 {
        let (mut low, mut high) = (self.head(), self.started);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.flight(mid).end() <= position {
                low = mid + 1
            } else {
                high = mid
            }
        }
        low
    }

    /// Request packets sent, once or more often, that have no answer.
    #[cold]
    pub(super) fn unanswered_packets(&self) -> u64 {
        (self.request_at(self.una)..self.started)
            .map(|request| self.flight(request))
            .take_while(|flight| flight.first < self.sent)
            .map(|flight| match flight.answered {
                true => 1,
                false => flight.end().min(self.sent) - flight.first.max(self.una),
            })
            .sum()
    }

    /// True if a packet sent since the last going back has no answer.
    #[inline]
    pub(super) fn in_flight(&self) -> bool {
        self.cursor > self.una
    }

    /// True if the packet at `position` was sent since the last going back. A NAK for one that was not is
    /// a copy, or late: what it asks for is already under way, and it costs no retry.
    #[inline]
    pub(super) fn has_sent(&self, position: u64) -> bool {
        position < self.cursor
    }

    /// True if there may be something to send.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.cursor < self.next || self.queue.entries.tail_is_after(self.started)
    }

    /// True if congestion control holds back what there is to send. It is looked at again when that is over.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.paced_until != Time::NEVER
    }

    /// When the transport timer runs out.
    #[inline]
    pub(crate) fn timer(&self) -> Time {
        self.timer
    }

    /// Until when nothing is sent, if that is what keeps it from sending.
    #[inline]
    pub(crate) fn held_until(&self) -> Time {
        if self.hold_until == Time::ZERO {
            self.paced_until
        } else {
            // Whatever holds it back as well, there is nothing to do before.
            self.hold_until
        }
    }

    /// Restarts or stops the transport timer after an answer, or after something was sent.
    #[inline]
    pub(crate) fn restart_timer(&mut self, now: Time) {
        self.timer = match self.timeout {
            Some(t) if self.in_flight() => now + t,
            _ => Time::NEVER,
        };
    }

    /// After `una` has moved: nothing before it needs sending.
    #[inline]
    pub(super) fn skip_answered(&mut self) {
        if self.cursor < self.una {
            self.cursor = self.una;
            self.cursor_request = self.request_at(self.una);
        }
    }

    /// Sends from `position` on again. Does nothing if that is already under way.
    pub(super) fn rewind(&mut self, position: u64) {
        self.una = self.una.min(position);
        self.timer = Time::NEVER;
        if position >= self.cursor {
            return;
        }
        self.cursor = position;
        self.cursor_request = self.request_at(position);
        self.reads_out = (self.head()..self.cursor_request)
            .filter(|&r| self.flight(r).answered)
            .count() as u32;
    }
}

impl Qp {
    /// Goes back after the loss of the packet at `lost`, as the card's recovery has it.
    pub(super) fn go_back(&mut self, now: Time, lost: u64, desk: &mut Desk) {
        let r = &mut self.requester;
        let message = r.flight(r.request_at(lost)).first;
        let to = desk.config.recovery.resume(lost, message);
        r.rewind(to);
        let until = now + desk.config.timing.retransmit;
        if until > now {
            r.hold_until = r.hold_until.max(until);
        }
        self.recent.note(
            now,
            Rare::Resend {
                psn: psn_at(self.requester.first_psn, to),
            },
        );
        self.keep_trouble();
    }

    /// The request at the cursor cannot be sent. Those before it are completed first, so it waits for
    /// its turn if any is without answer.
    #[cold]
    pub(super) fn fail_local(&mut self, now: Time, cause: Cause, desk: &mut Desk) {
        let r = &mut self.requester;
        r.failure = Some(Box::new(cause));
        // Packets of it that are already out end with the connection; it is not begun again.
        if r.started > r.cursor_request {
            r.started = r.cursor_request;
            r.next = r.flight(r.cursor_request).first;
            r.cursor = r.cursor.min(r.next);
            r.una = r.una.min(r.next);
        }
        self.settle(now, desk);
    }

    /// Completes a request that failed here, once it is the oldest.
    pub(super) fn settle(&mut self, now: Time, desk: &mut Desk) {
        let r = &mut self.requester;
        if r.failure.is_some()
            && r.head() == r.started
            && let Some(cause) = r.failure.take()
        {
            self.fail_oldest(now, *cause, desk);
        }
    }

    /// Completes the oldest request with what `cause` says, and all others as flushed. A connection that is
    /// not reliable still receives (SQE).
    #[cold]
    pub(super) fn fail_oldest(&mut self, now: Time, cause: Cause, desk: &mut Desk) {
        self.fail_after(now, cause, Flushed::default(), desk);
    }

    /// As [`Qp::fail_oldest`], after some requests before it were flushed.
    pub(super) fn fail_after(
        &mut self,
        now: Time,
        cause: Cause,
        mut flushed: Flushed,
        desk: &mut Desk,
    ) {
        let reliable = self.init.qp_type == QpType::Rc;
        let failure = self.explain_oldest(now, cause, desk);
        if let Some(entry) = self.requester.retire() {
            let c = self.send_completion(&entry, cause.status(), 0, desk);
            self.set_state(now, if reliable { State::Error } else { State::Sqe });
            self.complete(now, self.init.send_cq, c, false, desk);
        }
        if reliable {
            flushed.append(self.enter_error(now, desk));
        } else if self.state == State::Sqe {
            self.requester.stop();
            flushed.append(self.flush_sends(now, desk));
        }
        self.explained(failure, flushed, desk);
    }

    /// The clock has reached the requester's deadline; false if it had been moved away.
    pub(crate) fn requester_timeout(&mut self, now: Time, desk: &mut Desk) -> bool {
        let r = &mut self.requester;
        // A pause is over even if nothing is left to send after it.
        let mut paused = r.hold_until != Time::ZERO && r.hold_until <= now;
        if paused {
            r.hold_until = Time::ZERO;
        }
        if r.paced_until <= now {
            r.paced_until = Time::NEVER;
            paused = true;
        }
        if r.timer > now {
            return paused;
        }
        r.timer = Time::NEVER;
        if !r.in_flight() {
            return paused;
        }
        let psn = psn_at(r.first_psn, r.una);
        let (lost, retries_left) = (r.una, r.retries_left);
        let after = r.timeout.unwrap_or_default();
        self.mark_trouble();
        self.recent.note(
            now,
            Rare::Timeout {
                psn,
                retries_left,
                after,
            },
        );
        self.counters.timeouts += 1;
        self.take_loss(now, Loss::Timeout);
        self.retry(now, lost, Spent::Timeout, desk);
        true
    }

    /// Goes back to `lost` if a retry is left, and fails the request it belongs to otherwise (C9-142).
    pub(super) fn retry(&mut self, now: Time, lost: u64, spent: Spent, desk: &mut Desk) {
        self.count_trouble(spent);
        if self.requester.retries_left == 0 {
            let cause = self.retries_exceeded();
            self.fail_oldest(now, cause, desk);
        } else {
            self.requester.retries_left -= 1;
            self.go_back(now, lost, desk);
        }
    }

    /// The doorbell of the send queue was rung.
    pub(crate) fn send_doorbell(&mut self, now: Time, desk: &Desk) {
        let r = &mut self.requester;
        // What was rung for earlier is on its way, and all of it.
        let idle = r.cursor == r.next && r.started >= r.rung;
        r.rung = r.queue.entries.tail();
        if idle && desk.config.timing.doorbell > Span::ZERO {
            r.hold_until = r.hold_until.max(now + desk.config.timing.doorbell);
        }
    }
}

/// A packet without extended headers and payload, from the owner of `path`.
#[inline]
pub(super) fn packet(path: &Path, priority: u8, bth: Bth) -> Packet {
    Packet {
        ext: Ext::None,
        bth: bth.with_mig_req(path.mig_req),
        route: path.route,
        payload: Payload::EMPTY,
        frame_len: 0,
        priority,
        ecn: Ecn::NotCapable,
        damage: Damage::None,
        hop_limit: path.hop_limit,
    }
}

#[inline]
pub(super) fn frame_len(path: &Path, packet: &Packet) -> u16 {
    path.overhead
        + Bth::LEN as u16
        + packet.ext.len()
        + packet.payload.len()
        + u16::from(packet.payload.pad_count())
}
