//! Answers in the order of the requests they answer (C9-27), and how they become packets.
//!
//! An acknowledgement that the port has not pulled yet grows to cover later requests, so a busy port
//! coalesces by itself (9.7.5.1.2). A card may keep some answers apart
//! ([`separate_answers`](crate::card::Profile::separate_answers)): `apart` is how many.

use super::requester::{frame_len, packet};
use super::{Desk, Qp, State, psn_at};
use crate::card::AsyncEvent;
use crate::card::codes;
use crate::card::env::{Deed, Env};
use crate::card::explain::Cause;
use crate::memory::Access;
use crate::time::Time;
use crate::wire::aeth::SyndromeKind;
use crate::wire::{
    Aeth, AtomicAckEth, Bth, Ext, Msn, NakCode, Opcode, Packet, Payload, Reth, Syndrome,
};
use std::collections::VecDeque;

/// The answer to a READ or atomic.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// READ data; `sent` packets of `packets` are out. A resumed one continues an answer that was begun.
    Read {
        packets: u32,
        sent: u32,
        resumed: bool,
        reth: Reth,
    },
    /// The value before an atomic.
    Atomic { original: u64 },
    /// An ATOMIC WRITE is done: a READ response without data.
    Written,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Everything up to and with the position is carried out.
    Ack,
    /// Negative, or "not ready".
    Nak(Syndrome),
    Answer(Answer),
}

#[derive(Clone, Copy, Debug)]
struct Response {
    position: u64,
    msn: Msn,
    ready: Time,
    /// It was asked for before.
    again: bool,
    kind: Kind,
}

impl Response {
    /// First position it answers that is not answered yet, and the one after the last.
    fn span(&self) -> (u64, u64) {
        match self.kind {
            Kind::Answer(Answer::Read { packets, sent, .. }) => (
                self.position + u64::from(sent),
                self.position + u64::from(packets),
            ),
            _ => (self.position, self.position + 1),
        }
    }

    /// True for a NAK that ends the connection.
    fn is_final(&self) -> bool {
        match self.kind {
            Kind::Nak(syndrome) => matches!(
                syndrome.kind(),
                SyndromeKind::Nak(code) if code != NakCode::PsnSequenceError
            ),
            _ => false,
        }
    }
}

/// The answers a queue pair owes.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    queue: VecDeque<Response>,
    /// READs and atomics in the queue that were asked for once.
    resources: usize,
    /// Congestion control lets no READ data go before this.
    pub(super) paced_until: Time,
}

impl Responses {
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.resources = 0;
        self.paced_until = Time::ZERO;
    }

    /// Drops answers with data that are not out yet; the queue pair is in error. What stands before a
    /// refusal stays: the refusal says that everything before it has been carried out (C9-27).
    pub(super) fn keep_acknowledgements(&mut self) {
        if self.queue.back().is_some_and(Response::is_final) {
            return;
        }
        self.queue.retain(|r| !matches!(r.kind, Kind::Answer(_)));
        self.count_resources();
    }

    /// READs and atomics not answered in full. Those that are answered again do not count: the peer may
    /// have their first answer by now, and has gone on.
    pub(super) fn resources(&self) -> usize {
        self.resources
    }

    fn count_resources(&mut self) {
        let new = |r: &&Response| matches!(r.kind, Kind::Answer(_)) && !r.again;
        self.resources = self.queue.iter().filter(new).count();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// When the next answer may go.
    #[inline]
    pub(super) fn ready_at(&self) -> Time {
        match self.queue.front() {
            Some(r) if matches!(r.kind, Kind::Answer(Answer::Read { .. })) => {
                r.ready.max(self.paced_until)
            }
            Some(r) => r.ready,
            None => Time::NEVER,
        }
    }

    #[inline]
    pub(super) fn push_ack(&mut self, position: u64, msn: Msn, ready: Time, apart: usize) {
        let merge = self.queue.len() >= apart;
        match self.queue.back_mut() {
            Some(Response {
                position: p,
                msn: m,
                kind: Kind::Ack,
                ..
            }) if merge => {
                if position >= *p {
                    (*p, *m) = (position, msn);
                }
            }
            _ => self.push_back(position, msn, ready, Kind::Ack),
        }
    }

    #[inline]
    fn push_back(&mut self, position: u64, msn: Msn, ready: Time, kind: Kind) {
        self.queue.push_back(Response {
            position,
            msn,
            ready,
            again: false,
            kind,
        });
    }

    pub(super) fn push_nak(
        &mut self,
        position: u64,
        syndrome: Syndrome,
        msn: Msn,
        ready: Time,
        apart: usize,
    ) {
        self.push_back(position, msn, ready, Kind::Nak(syndrome));
        if self.queue.len() > apart {
            self.tidy();
        }
    }

    /// Drops what a later answer makes needless, so that between two answers with data there is at most an
    /// ACK, a NAK and an ACK, however long the port does not fetch them.
    fn tidy(&mut self) {
        let mut i = 0;
        while i + 1 < self.queue.len() {
            let (this, next) = (self.queue[i], self.queue[i + 1]);
            let needless = match (this.kind, next.kind) {
                (Kind::Ack, Kind::Ack) => {
                    if next.position < this.position {
                        self.queue.swap(i, i + 1);
                    }
                    let ready = this.ready.min(next.ready);
                    self.queue[i + 1].ready = ready;
                    true
                }
                // At most one sequence or RNR NAK can mean something, and it is the latest.
                (Kind::Nak(_), Kind::Nak(_)) => true,
                (Kind::Nak(_), Kind::Ack) => {
                    matches!(
                        self.queue.get(i + 2),
                        Some(Response {
                            kind: Kind::Nak(_),
                            ..
                        })
                    )
                }
                _ => false,
            };
            if needless {
                self.queue.remove(i);
                i = i.saturating_sub(1);
            } else {
                i += 1;
            }
        }
    }

    pub(super) fn push(&mut self, position: u64, answer: Answer, msn: Msn, ready: Time) {
        self.resources += 1;
        self.push_back(position, msn, ready, Kind::Answer(answer));
    }

    /// Answers a READ or atomic again, before the answers to later requests. What is still to be sent of
    /// the same answer is replaced. At most `limit` such answers wait. Where answers are kept apart, it is
    /// one more.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn repeat(
        &mut self,
        position: u64,
        answer: Answer,
        msn: Msn,
        ready: Time,
        limit: usize,
        apart: usize,
    ) {
        let kind = Kind::Answer(answer);
        let repeated = Response {
            position,
            msn,
            ready,
            again: true,
            kind,
        };
        let waiting = |queue: &VecDeque<Response>| queue.iter().filter(|r| r.again).count();
        if self.queue.len() < apart {
            if waiting(&self.queue) < limit {
                self.queue.push_back(repeated);
            }
            return;
        }
        let end = repeated.span().1;
        self.queue.retain(|r| match r.kind {
            Kind::Answer(_) => r.position >= end || r.span().1 <= position,
            _ => true,
        });
        self.count_resources();
        self.tidy();
        if waiting(&self.queue) >= limit {
            return;
        }
        let at = self.queue.iter().position(|r| r.span().0 >= position);
        self.queue.insert(at.unwrap_or(self.queue.len()), repeated);
    }

    fn pop(&mut self) {
        if let Some(Response {
            kind: Kind::Answer(_),
            again: false,
            ..
        }) = self.queue.pop_front()
        {
            self.resources -= 1;
        }
    }
}

impl Qp {
    /// The next response packet, if one may go now.
    pub(crate) fn next_response<E: Env>(
        &mut self,
        now: Time,
        desk: &mut Desk,
        env: &mut E,
    ) -> Option<Packet> {
        let front = *self.responder.responses.queue.front()?;
        if front.ready > now {
            return None;
        }
        let (position, msn) = (front.position, front.msn);
        let packet = match front.kind {
            Kind::Ack => {
                self.responder.responses.pop();
                self.counters.acks_sent += 1;
                let aeth = self.positive(msn, desk);
                self.response(
                    Opcode::RC_ACKNOWLEDGE,
                    position,
                    Ext::Aeth(aeth),
                    Payload::EMPTY,
                )?
            }
            Kind::Nak(syndrome) => {
                self.responder.responses.pop();
                match syndrome.kind() {
                    SyndromeKind::Nak(code) => self.counters.naks_sent.count(code),
                    _ => self.counters.rnr_naks_sent += 1,
                }
                let ext = Ext::Aeth(Aeth { syndrome, msn });
                self.response(Opcode::RC_ACKNOWLEDGE, position, ext, Payload::EMPTY)?
            }
            Kind::Answer(Answer::Atomic { original }) => {
                self.responder.responses.pop();
                let ext = Ext::AtomicAck(self.positive(msn, desk), AtomicAckEth(original));
                self.response(Opcode::RC_ATOMIC_ACKNOWLEDGE, position, ext, Payload::EMPTY)?
            }
            Kind::Answer(Answer::Written) => {
                self.responder.responses.pop();
                let ext = Ext::Aeth(self.positive(msn, desk));
                self.response(Opcode::RC_READ_RESPONSE_ONLY, position, ext, Payload::EMPTY)?
            }
            Kind::Answer(Answer::Read {
                packets,
                sent,
                resumed,
                reth,
            }) => self.read_response(now, &front, packets, sent, resumed, &reth, desk, env)?,
        };
        env.observe(|| Deed::Response { packet });
        Some(packet)
    }

    /// True if the next answer carries READ data.
    pub(crate) fn answers_with_data(&self) -> bool {
        let front = self.responder.responses.queue.front();
        matches!(
            front,
            Some(Response {
                kind: Kind::Answer(Answer::Read { .. }),
                ..
            })
        )
    }

    /// True if [`Qp::next_response`] may give something, now or later.
    #[inline]
    pub(crate) fn has_responses(&self) -> bool {
        !self.responder.responses.is_empty()
    }

    /// The AETH of a positive answer. A shared receive queue gives no credits.
    #[inline]
    fn positive(&mut self, msn: Msn, desk: &Desk) -> Aeth {
        let credits = match self.responder.receives.waiting() {
            Some(n) if desk.config.credits => codes::encode_credits(n),
            _ => Syndrome::UNLIMITED,
        };
        Aeth {
            syndrome: Syndrome::ack(credits),
            msn,
        }
    }

    #[inline]
    fn response(
        &self,
        opcode: Opcode,
        position: u64,
        ext: Ext,
        payload: Payload,
    ) -> Option<Packet> {
        let path = self.path?;
        let psn = psn_at(self.responder.first_psn, position);
        let bth = Bth::new(opcode, self.dest_qp, psn).with_pad_count(payload.pad_count());
        let mut p = packet(&path, path.response_priority, bth);
        p.ext = ext;
        p.payload = payload;
        p.frame_len = frame_len(&path, &p);
        Some(p)
    }

    /// One packet of READ data. The key is checked again: it may have ended since the request came.
    #[allow(clippy::too_many_arguments)]
    fn read_response<E: Env>(
        &mut self,
        now: Time,
        response: &Response,
        packets: u32,
        sent: u32,
        resumed: bool,
        reth: &Reth,
        desk: &mut Desk,
        env: &mut E,
    ) -> Option<Packet> {
        let hold = self.limiter.as_deref_mut().and_then(|l| l.hold(now));
        if let Some(at) = hold {
            // Answers behind it wait as well: they are given in order.
            self.responder.responses.paced_until = at;
            return None;
        }
        let position = response.position + u64::from(sent);
        let offset = sent * u32::from(self.mtu.bytes());
        let len = (reth.dma_len - offset).min(self.mtu.bytes().into()) as u16;
        let at = reth.va.wrapping_add(offset.into());
        let id = (self.init.pd, self.number);
        let payload = if len == 0 {
            Payload::EMPTY
        } else {
            match desk
                .memory
                .remote(reth.rkey, id, at, len.into(), Access::REMOTE_READ)
            {
                Ok(place) => env.stage(len, |out| place.read(out)),
                Err(why) => {
                    let cause = Cause::RemoteAccess {
                        rkey: reth.rkey,
                        addr: at,
                        len: len.into(),
                        why,
                    };
                    return self.read_failed(now, position, response.msn, cause, desk);
                }
            }
        };
        let (first, last) = (sent == 0 && !resumed, sent + 1 == packets);
        let opcode = match (first, last) {
            (true, true) => Opcode::RC_READ_RESPONSE_ONLY,
            (true, false) => Opcode::RC_READ_RESPONSE_FIRST,
            (false, true) => Opcode::RC_READ_RESPONSE_LAST,
            (false, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
        };
        let ext = if first || last {
            Ext::Aeth(self.positive(response.msn, desk))
        } else {
            Ext::None
        };
        let responses = &mut self.responder.responses;
        if last {
            responses.pop();
        } else if let Some(Response {
            kind: Kind::Answer(Answer::Read { sent, .. }),
            ..
        }) = responses.queue.front_mut()
        {
            *sent += 1;
        }
        self.counters.read_response_packets += 1;
        let mut packet = self.response(opcode, position, ext, payload)?;
        packet.ecn = desk.data_ecn;
        if let Some(limiter) = &mut self.limiter {
            limiter.sent(now, packet.wire_len(), None);
        }
        Some(packet)
    }

    /// The region went away while its data was being sent: a NAK in place of the rest (9.7.5.1.3).
    #[cold]
    fn read_failed(
        &mut self,
        now: Time,
        position: u64,
        msn: Msn,
        cause: Cause,
        desk: &mut Desk,
    ) -> Option<Packet> {
        let syndrome = Syndrome::nak(NakCode::RemoteAccessError);
        self.responder.responses.clear();
        if self.state != State::Error {
            desk.events
                .push_back(AsyncEvent::QpAccessError(self.number));
            let psn = psn_at(self.responder.first_psn, position);
            let bth = Bth::new(Opcode::RC_READ_REQUEST, self.number, psn);
            let failure = self.explain_refusal(now, bth, cause, desk);
            let flushed = self.enter_error(now, desk);
            self.explained(failure, flushed, desk);
        }
        self.counters.naks_sent.count(NakCode::RemoteAccessError);
        let ext = Ext::Aeth(Aeth { syndrome, msn });
        self.response(Opcode::RC_ACKNOWLEDGE, position, ext, Payload::EMPTY)
    }
}
