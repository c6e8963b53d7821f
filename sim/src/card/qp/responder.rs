//! The responder of a reliable connection: requests are carried out in order, and answered.
//!
//! This file has the order: what is new, what came again, what was lost. What a new request does is in
//! [`execute`](super::execute).

use super::attributes::QpAttributes;
use super::execute::{Fault, Message};
use super::receives::Receives;
use super::responses::{Answer, Responses};
use super::{Desk, Qp, State, position_of, psn_at};
use crate::card::AsyncEvent;
use crate::card::env::{Env, Refusal};
use crate::card::explain::Cause;
use crate::card::recent::Rare;
use crate::memory::Access;
use crate::time::Time;
use crate::wire::{Bth, Gid, Msn, NakCode, Operation, Packet, Psn, QpNumber, Syndrome};
use std::collections::VecDeque;
use std::ops::Range;

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(super) receives: Receives,
    pub(super) responses: Responses,
    pub(super) first_psn: Psn,
    /// Position of the next new packet.
    pub(super) expected: u64,
    /// Messages completed.
    pub(super) msn: Msn,
    /// The SEND or WRITE under way.
    pub(super) message: Option<Message>,
    /// A message of an unreliable connection has lost a packet, and none has begun since.
    pub(super) broken: bool,
    /// A NAK was sent for a gap, or an RNR NAK, and what it asks for has not come.
    nak_pending: bool,
    /// The packet before `expected` was part of a SEND or WRITE, which a plain ACK may name.
    pub(super) plain_before: bool,
    /// The program has been told that the peer is there.
    established: bool,
    /// What the latest atomics answered, by position, so that a repeated one is answered the same.
    pub(super) atomics: VecDeque<(u64, u64)>,
    /// Positions of the latest READs' answers, if one that is resumed continues the first.
    pub(super) reads: VecDeque<Range<u64>>,
    pub(super) max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    /// What came whole over a service without acknowledgements.
    pub(crate) arrived: Arrived,
}

/// What a queue pair has received over a service without acknowledgements, of which its peer does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrived {
    /// Payload of the messages that came whole.
    pub bytes: u64,
    /// When the last of them did.
    pub last: Option<Time>,
}

impl Arrived {
    pub(super) fn add(&mut self, now: Time, bytes: u64) {
        *self = Arrived {
            bytes: self.bytes + bytes,
            last: Some(now),
        };
    }
}

impl Responder {
    pub(super) fn new(receives: Receives) -> Responder {
        Responder {
            receives,
            responses: Responses::default(),
            first_psn: Psn::default(),
            expected: 0,
            msn: Msn::default(),
            message: None,
            broken: false,
            nak_pending: false,
            plain_before: false,
            established: false,
            atomics: VecDeque::new(),
            reads: VecDeque::new(),
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            arrived: Arrived::default(),
        }
    }

    pub(super) fn reset(&mut self) {
        while self.receives.flush().is_some() {}
        self.stop();
        self.responses.clear();
        self.atomics.clear();
        self.reads.clear();
        (self.expected, self.msn) = (0, Msn::default());
        self.established = false;
    }

    /// Forgets the message under way. Answers that were decided on stay.
    pub(super) fn stop(&mut self) {
        self.message = None;
        self.broken = false;
        self.nak_pending = false;
        self.plain_before = false;
        self.responses.keep_acknowledgements();
    }

    /// Takes over the attributes that are the responder's.
    pub(crate) fn set_attributes(&mut self, a: &QpAttributes) {
        if let Some(psn) = a.rq_psn {
            self.first_psn = psn;
        }
        if let Some(n) = a.max_dest_rd_atomic {
            self.max_dest_rd_atomic = n;
        }
        if let Some(n) = a.min_rnr_timer {
            self.min_rnr_timer = n;
        }
    }

    /// When the next answer may go.
    #[inline]
    pub(crate) fn ready_at(&self) -> Time {
        self.responses.ready_at()
    }
}

impl Qp {
    /// Takes a request.
    pub(crate) fn receive_request<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Refusal> {
        if !matches!(self.state, State::Rtr | State::Rts | State::Sqd) {
            return Err(Refusal::WrongState);
        }
        let r = &mut self.responder;
        let position = position_of(r.first_psn, packet.bth.psn(), r.expected);
        if position > r.expected as i64 {
            return self.gap(now, desk);
        }
        if position < r.expected as i64 {
            let restarts = desk.config.recovery.restarts();
            match r.message {
                Some(m) if restarts && m.first as i64 == position => {
                    r.expected = m.first;
                    r.message = None;
                }
                _ => return self.duplicate(now, position, packet, desk),
            }
        }
        if self.state == State::Rtr {
            self.tell_established(desk);
        }
        match self.execute(now, packet, desk, env) {
            Ok(()) => {
                self.responder.nak_pending = false;
                Ok(())
            }
            Err(fault) => self.refuse(now, fault, packet, desk),
        }
    }

    /// The peer of a connection is there before this side sends: tells the program, once.
    pub(super) fn tell_established(&mut self, desk: &mut Desk) {
        if !std::mem::replace(&mut self.responder.established, true) {
            desk.events
                .push_back(AsyncEvent::CommunicationEstablished(self.number));
        }
    }

    /// A packet came after a gap: one NAK until the gap is closed.
    fn gap(&mut self, now: Time, desk: &mut Desk) -> Result<(), Refusal> {
        self.counters.out_of_sequence += 1;
        let r = &mut self.responder;
        if !r.nak_pending {
            r.nak_pending = true;
            if let Some(m) = r.message {
                let resume = desk.config.recovery.resume(r.expected, m.first);
                if resume == m.first {
                    r.message = None;
                    // What is before it now may have been a READ.
                    r.plain_before = false;
                }
                r.expected = resume;
            }
            self.queue_nak(now, Syndrome::nak(NakCode::PsnSequenceError), desk);
        }
        Err(Refusal::OutOfSequence)
    }

    fn queue_nak(&mut self, now: Time, syndrome: Syndrome, desk: &mut Desk) {
        let r = &mut self.responder;
        let psn = psn_at(r.first_psn, r.expected);
        let ready = now + desk.config.timing.nak;
        let apart = desk.config.profile.separate_answers;
        r.responses
            .push_nak(r.expected, syndrome, r.msn, ready, apart);
        self.recent.note(now, Rare::NakSent { psn, syndrome });
    }

    /// A request that was carried out before: SEND and WRITE are acknowledged again (C9-105), an atomic is
    /// answered as it was, READ is carried out again, each in its place among the answers (C9-110). An old
    /// copy that the network kept must not hurt a connection that has moved on, so one that cannot be
    /// served is dropped.
    fn duplicate(
        &mut self,
        now: Time,
        position: i64,
        packet: &Packet,
        desk: &mut Desk,
    ) -> Result<(), Refusal> {
        self.counters.duplicate_requests += 1;
        // A position before the first packet of the connection was never carried out.
        let Ok(position) = u64::try_from(position) else {
            return Err(Refusal::Duplicate);
        };
        let id = (self.init.pd, self.number);
        let r = &mut self.responder;
        let ready = now + desk.config.timing.ack;
        let limit = usize::from(r.max_dest_rd_atomic);
        let apart = desk.config.profile.separate_answers;
        match (packet.bth.opcode().operation(), packet.ext.reth()) {
            (Operation::Send | Operation::Write, _) => {
                let named = if r.plain_before {
                    r.expected - 1
                } else {
                    position
                };
                r.responses.push_ack(named, r.msn, ready, apart);
            }
            (Operation::ReadRequest, Some(reth)) => {
                let packets = read_packets(reth.dma_len, self.mtu.bytes());
                let known = position + u64::from(packets) <= r.expected;
                let len = reth.dma_len.into();
                let open = reth.dma_len == 0
                    || desk
                        .memory
                        .remote(reth.rkey, id, reth.va, len, Access::REMOTE_READ)
                        .is_ok();
                if known && open && self.access.allows(Access::REMOTE_READ) {
                    let answer = Answer::Read {
                        packets,
                        sent: 0,
                        resumed: r
                            .reads
                            .iter()
                            .any(|read| read.start < position && position < read.end),
                        reth,
                    };
                    r.responses
                        .repeat(position, answer, r.msn, ready, limit, apart);
                }
            }
            (Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite, reth) => {
                let kept = r.atomics.iter().find(|&&(p, _)| p == position);
                if let Some(&(_, original)) = kept {
                    let answer = match reth {
                        Some(_) => Answer::Written,
                        None => Answer::Atomic { original },
                    };
                    r.responses
                        .repeat(position, answer, r.msn, ready, limit, apart);
                }
            }
            _ => {}
        }
        Err(Refusal::Duplicate)
    }

    /// Answers a request that is not carried out.
    fn refuse(
        &mut self,
        now: Time,
        fault: Fault,
        packet: &Packet,
        desk: &mut Desk,
    ) -> Result<(), Refusal> {
        match fault {
            Fault::NotReady => {
                self.responder.nak_pending = true;
                let syndrome = Syndrome::rnr_nak(self.responder.min_rnr_timer);
                self.queue_nak(now, syndrome, desk);
                Err(Refusal::ReceiverNotReady)
            }
            Fault::Refused(cause) => {
                self.fail_responder(now, packet.bth, *cause, desk);
                Err(Refusal::Nak)
            }
        }
    }

    /// NAK, if the peer is to be told, then the error state. A receive request that the message had taken
    /// completes in error; if there is none, an event tells the program (C9-222.1.1).
    #[cold]
    fn fail_responder(&mut self, now: Time, bth: Bth, cause: Cause, desk: &mut Desk) {
        if let Some(code) = cause.nak() {
            self.queue_nak(now, Syndrome::nak(code), desk);
        }
        let taken = self.responder.receives.is_taken();
        if cause.is_of_receive() || taken {
            return self.fail_receive(now, bth, None, cause, desk);
        }
        desk.events.push_back(match cause {
            Cause::RemoteAccess { .. } => AsyncEvent::QpAccessError(self.number),
            _ => AsyncEvent::QpRequestError(self.number),
        });
        let failure = self.explain_refusal(now, bth, cause, desk);
        let flushed = self.enter_error(now, desk);
        self.explained(failure, flushed, desk);
    }

    /// The receive request that is taken completes with what `cause` says, all others as flushed. `peer` sent
    /// the packet, if there is no connection.
    #[cold]
    pub(super) fn fail_receive(
        &mut self,
        now: Time,
        bth: Bth,
        peer: Option<(Gid, QpNumber)>,
        cause: Cause,
        desk: &mut Desk,
    ) {
        let failure = self.explain_receive(now, bth, peer, cause, desk);
        self.set_state(now, State::Error);
        if let Some(taken) = self.responder.receives.finish() {
            let c = self.recv_completion(taken.wr_id, cause.status());
            self.complete(now, self.init.recv_cq, c, false, desk);
        }
        let flushed = self.enter_error(now, desk);
        self.explained(failure, flushed, desk);
    }
}

/// Response packets of a READ of `len` bytes; one even for none.
#[inline]
pub(super) fn read_packets(len: u32, mtu: u16) -> u32 {
    len.div_ceil(u32::from(mtu)).max(1)
}
