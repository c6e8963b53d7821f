//! The responder: requests are checked, carried out in order, and answered.
//!
//! The order of the checks is that of 9.7.4.1: sequence, opcode, rights of the queue pair, resources,
//! length, key.

use super::attributes::QpAttributes;
use super::requester::pieces;
use super::responses::Responses;
use super::{Desk, Qp, State, position_of, psn_at};
use crate::card::AsyncEvent;
use crate::card::env::{Env, Refusal};
use crate::card::recent::Rare;
use crate::card::work::{
    Completion, CompletionKind, MAX_MESSAGE_LEN, RecvEntry, Status, WorkReader,
};
use crate::memory::Access;
use crate::time::Time;
use crate::wire::{
    Immediate, Msn, NakCode, Opcode, Operation, Packet, Position, Psn, RemoteKey, Syndrome,
};

/// A SEND or WRITE of several packets that is under way.
#[derive(Clone, Copy, Debug)]
struct Message {
    write: bool,
    /// Position of its first packet.
    first: u64,
    /// Bytes taken so far.
    received: u64,
    /// Where a WRITE goes.
    va: u64,
    rkey: RemoteKey,
    /// Bytes a WRITE has announced.
    total: u64,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Responder {
    queue: WorkReader<RecvEntry>,
    pub(super) responses: Responses,
    pub(super) first_psn: Psn,
    /// Position of the next new packet.
    pub(super) expected: u64,
    /// Messages completed.
    pub(super) msn: Msn,
    message: Option<Message>,
    /// A NAK was sent for a gap, or an RNR NAK, and what it asks for has not come.
    nak_pending: bool,
    /// The packet before `expected` was part of a SEND or WRITE, which a plain ACK may name.
    plain_before: bool,
    /// The program has been told that the peer is there.
    established: bool,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
}

/// Why a request is not carried out.
enum Fault {
    /// No receive request.
    NotReady,
    /// Refused; the responder goes into error (class C).
    Nak(NakCode),
    /// Refused because a receive request cannot take it; that request completes with the status.
    Receive(NakCode, Status),
}

const INVALID: Fault = Fault::Nak(NakCode::InvalidRequest);
const ACCESS: Fault = Fault::Nak(NakCode::RemoteAccessError);

impl Responder {
    pub(super) fn new(queue: WorkReader<RecvEntry>) -> Responder {
        Responder {
            queue,
            responses: Responses::default(),
            first_psn: Psn::default(),
            expected: 0,
            msn: Msn::default(),
            message: None,
            nak_pending: false,
            plain_before: false,
            established: false,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        while self.retire().is_some() {}
        self.responses.clear();
        (self.expected, self.msn) = (0, Msn::default());
        self.established = false;
        self.stop();
    }

    /// Forgets the message under way. Answers that were decided on stay.
    pub(super) fn stop(&mut self) {
        self.message = None;
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

    /// Takes the oldest receive request out of the queue.
    pub(super) fn retire(&mut self) -> Option<RecvEntry> {
        self.queue.retire(|entry| entry.sges)
    }

    /// Receive requests that a new message could take.
    pub(super) fn receives(&mut self) -> u32 {
        let waiting = (self.queue.entries.tail() - self.queue.entries.head()) as u32;
        let in_use = matches!(self.message, Some(Message { write: false, .. }));
        waiting - u32::from(in_use && waiting > 0)
    }

    fn oldest_receive(&mut self) -> Option<RecvEntry> {
        let head = self.queue.entries.head();
        self.queue.entries.get(head).copied()
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
        if self.state == State::Rtr && !std::mem::replace(&mut self.responder.established, true) {
            desk.events
                .push_back(AsyncEvent::CommunicationEstablished(self.number));
        }
        match self.execute(now, packet, desk, env) {
            Ok(()) => {
                self.responder.nak_pending = false;
                Ok(())
            }
            Err(fault) => self.refuse(now, fault, desk),
        }
    }

    /// A packet came after a gap: one NAK until the gap is closed.
    fn gap(&mut self, now: Time, desk: &mut Desk) -> Result<(), Refusal> {
        desk.counters.out_of_sequence += 1;
        let r = &mut self.responder;
        if !r.nak_pending {
            r.nak_pending = true;
            if let Some(m) = r.message {
                let resume = desk.config.recovery.after_gap(r.expected, m.first);
                if resume == m.first {
                    r.message = None;
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
        r.responses
            .push_nak(r.expected, syndrome, r.msn, now + desk.config.timing.nak);
        self.recent.note(now, Rare::NakSent { psn, syndrome });
    }

    /// A request that was carried out before: SEND and WRITE are acknowledged again (C9-105), READ is
    /// carried out again, in its place among the answers (C9-110).
    fn duplicate(
        &mut self,
        now: Time,
        position: i64,
        packet: &Packet,
        desk: &mut Desk,
    ) -> Result<(), Refusal> {
        desk.counters.duplicate_requests += 1;
        // A position before the first packet of the connection was never carried out.
        let Ok(position) = u64::try_from(position) else {
            return Err(Refusal::Duplicate);
        };
        let r = &mut self.responder;
        let ready = now + desk.config.timing.ack;
        let opcode = packet.bth.opcode();
        match (opcode.operation(), packet.ext.reth()) {
            (Operation::Send | Operation::Write, _) => {
                let named = if r.plain_before {
                    r.expected - 1
                } else {
                    position
                };
                r.responses.push_ack(named, r.msn, ready);
            }
            (Operation::ReadRequest, Some(reth)) => {
                let mtu = self.mtu.bytes();
                let packets = read_packets(reth.dma_len, mtu);
                let known = position + u64::from(packets) <= r.expected;
                let allowed = self.access.allows(Access::REMOTE_READ)
                    && (reth.dma_len == 0
                        || desk
                            .memory
                            .remote(
                                reth.rkey,
                                self.init.pd,
                                reth.va,
                                reth.dma_len.into(),
                                Access::REMOTE_READ,
                            )
                            .is_ok());
                // An old copy that the network kept must not hurt a connection that has moved on, so
                // one that cannot be served is dropped.
                if known && allowed {
                    let limit = usize::from(r.max_dest_rd_atomic);
                    r.responses
                        .repeat_read(position, packets, reth, r.msn, ready, limit);
                }
            }
            _ => {}
        }
        Err(Refusal::Duplicate)
    }

    /// Carries out the request that was expected.
    fn execute<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Fault> {
        let opcode = packet.bth.opcode();
        let write = match opcode.operation() {
            Operation::Send => false,
            Operation::Write => true,
            Operation::ReadRequest => return self.execute_read(now, packet, desk),
            _ => return Err(INVALID),
        };
        if opcode.has_invalidate() {
            return Err(INVALID);
        }
        let message = self.begin_or_continue(packet, opcode, write)?;
        let takes_receive = opcode.has_immediate() || !write;
        let receive = if takes_receive {
            Some(self.responder.oldest_receive().ok_or(Fault::NotReady)?)
        } else {
            None
        };
        let len = packet.payload.len();
        self.check_len(opcode, len, &message)?;
        if write && opcode.begins_message() {
            let (va, total) = (message.va, message.total);
            self.check_key(message.rkey, va, total, Access::REMOTE_WRITE, desk)?;
        }

        match receive {
            Some(receive) if !write => {
                self.scatter(&receive, message.received, packet, desk, env)?
            }
            _ if len > 0 => {
                let at = message.va.wrapping_add(message.received);
                let region = desk
                    .memory
                    .remote(
                        message.rkey,
                        self.init.pd,
                        at,
                        len.into(),
                        Access::REMOTE_WRITE,
                    )
                    .map_err(|_| ACCESS)?;
                if let Some(bytes) = env.payload(packet.payload) {
                    region.write(at, bytes);
                }
            }
            _ => {}
        }

        let r = &mut self.responder;
        let position = r.expected;
        let received = message.received + u64::from(len);
        r.expected += 1;
        r.plain_before = true;
        if opcode.ends_message() {
            r.message = None;
            r.msn = r.msn.next();
        } else {
            r.message = Some(Message {
                received,
                ..message
            });
        }
        if packet.bth.ack_req() {
            let msn = r.msn;
            r.responses
                .push_ack(position, msn, now + desk.config.timing.ack);
        }
        if opcode.ends_message()
            && let Some(receive) = receive
        {
            self.responder.retire();
            self.deliver(now, &receive, write, received, packet.ext.immediate(), desk);
        }
        Ok(())
    }

    /// The message a SEND or WRITE packet belongs to.
    #[inline]
    fn begin_or_continue(
        &mut self,
        packet: &Packet,
        opcode: Opcode,
        write: bool,
    ) -> Result<Message, Fault> {
        let r = &self.responder;
        if !opcode.begins_message() {
            return match r.message {
                Some(m) if m.write == write => Ok(m),
                _ => Err(INVALID),
            };
        }
        if r.message.is_some() {
            return Err(INVALID);
        }
        let mut message = Message {
            write,
            first: r.expected,
            received: 0,
            va: 0,
            rkey: RemoteKey(0),
            total: 0,
        };
        if write {
            let reth = packet.ext.reth().ok_or(INVALID)?;
            if !self.access.allows(Access::REMOTE_WRITE) {
                return Err(INVALID);
            }
            (message.va, message.rkey) = (reth.va, reth.rkey);
            message.total = reth.dma_len.into();
        }
        Ok(message)
    }

    /// The key of an RDMA request, for all it asks for. Zero bytes need none (C9-88).
    fn check_key(
        &self,
        rkey: RemoteKey,
        va: u64,
        len: u64,
        asked: Access,
        desk: &Desk,
    ) -> Result<(), Fault> {
        if len > 0 {
            desk.memory
                .remote(rkey, self.init.pd, va, len, asked)
                .map_err(|_| ACCESS)?;
        }
        Ok(())
    }

    /// Payload length against path MTU and place in the message (C9-92), and against what a WRITE has
    /// announced.
    #[inline]
    fn check_len(&self, opcode: Opcode, len: u16, message: &Message) -> Result<(), Fault> {
        let mtu = self.mtu.bytes();
        let fits = match opcode.position() {
            Position::First | Position::Middle => len == mtu,
            Position::Last => 1 <= len && len <= mtu,
            Position::Only => len <= mtu,
        };
        let received = message.received + u64::from(len);
        let announced = !message.write
            || if opcode.ends_message() {
                received == message.total
            } else {
                received < message.total
            };
        let in_bounds = received.max(message.total) <= MAX_MESSAGE_LEN;
        if fits && announced && in_bounds {
            Ok(())
        } else {
            Err(INVALID)
        }
    }

    /// Writes SEND data into a receive request's elements.
    fn scatter<E: Env>(
        &mut self,
        receive: &RecvEntry,
        offset: u64,
        packet: &Packet,
        desk: &Desk,
        env: &E,
    ) -> Result<(), Fault> {
        let len = packet.payload.len();
        if offset + u64::from(len) > receive.len {
            return Err(Fault::Receive(
                NakCode::InvalidRequest,
                Status::LocalLengthError,
            ));
        }
        if len == 0 {
            return Ok(());
        }
        let bytes = env.payload(packet.payload);
        let mut outcome = Ok(());
        self.responder.queue.sges.tail();
        pieces(
            &self.responder.queue.sges,
            receive.sges,
            offset,
            len,
            |sge, addr, at, n| match desk.memory.local(
                sge.lkey,
                self.init.pd,
                addr,
                n as u64,
                Access::LOCAL_WRITE,
            ) {
                Ok(region) => {
                    if let Some(bytes) = bytes {
                        region.write(addr, &bytes[at..at + n]);
                    }
                }
                Err(_) => {
                    outcome = Err(Fault::Receive(
                        NakCode::RemoteOperationalError,
                        Status::LocalProtectionError,
                    ));
                }
            },
        );
        outcome
    }

    /// Completes a receive request.
    fn deliver(
        &mut self,
        now: Time,
        receive: &RecvEntry,
        write: bool,
        len: u64,
        immediate: Option<Immediate>,
        desk: &mut Desk,
    ) {
        let c = Completion {
            wr_id: receive.wr_id,
            status: Status::Success,
            kind: if write {
                CompletionKind::ReceiveWithImmediate
            } else {
                CompletionKind::Receive
            },
            qp: self.number,
            byte_len: len as u32,
            immediate,
        };
        self.complete(now, self.init.recv_cq, c, desk);
    }

    fn execute_read(&mut self, now: Time, packet: &Packet, desk: &mut Desk) -> Result<(), Fault> {
        let reth = packet.ext.reth().ok_or(INVALID)?;
        let r = &self.responder;
        if r.message.is_some()
            || !self.access.allows(Access::REMOTE_READ)
            || r.responses.reads() >= usize::from(r.max_dest_rd_atomic)
            || u64::from(reth.dma_len) > MAX_MESSAGE_LEN
        {
            return Err(INVALID);
        }
        let len = reth.dma_len.into();
        self.check_key(reth.rkey, reth.va, len, Access::REMOTE_READ, desk)?;
        let packets = read_packets(reth.dma_len, self.mtu.bytes());
        let r = &mut self.responder;
        r.msn = r.msn.next();
        r.responses.push_read(
            r.expected,
            packets,
            reth,
            r.msn,
            now + desk.config.timing.ack,
        );
        r.expected += u64::from(packets);
        r.plain_before = false;
        Ok(())
    }

    /// Answers a request that is not carried out.
    fn refuse(&mut self, now: Time, fault: Fault, desk: &mut Desk) -> Result<(), Refusal> {
        match fault {
            Fault::NotReady => {
                self.responder.nak_pending = true;
                let syndrome = Syndrome::rnr_nak(self.responder.min_rnr_timer);
                self.queue_nak(now, syndrome, desk);
                Err(Refusal::ReceiverNotReady)
            }
            Fault::Nak(code) => {
                self.fail_responder(now, code, None, desk);
                Err(Refusal::Nak)
            }
            Fault::Receive(code, status) => {
                self.fail_responder(now, code, Some(status), desk);
                Err(Refusal::Nak)
            }
        }
    }

    /// NAK, then the error state. A receive request that the message had taken completes in error;
    /// if there is none, an event tells the program (C9-222.1.1).
    pub(super) fn fail_responder(
        &mut self,
        now: Time,
        code: NakCode,
        status: Option<Status>,
        desk: &mut Desk,
    ) {
        self.queue_nak(now, Syndrome::nak(code), desk);
        let taken = matches!(self.responder.message, Some(Message { write: false, .. }));
        let status = status.or(taken.then_some(match code {
            NakCode::RemoteAccessError => Status::LocalAccessError,
            _ => Status::LocalQpOperationError,
        }));
        self.set_state(now, State::Error);
        match status {
            Some(status) => {
                if let Some(entry) = self.responder.retire() {
                    let c = self.recv_completion(&entry, status);
                    self.complete(now, self.init.recv_cq, c, desk);
                }
            }
            None => desk.events.push_back(match code {
                NakCode::RemoteAccessError => AsyncEvent::QpAccessError(self.number),
                _ => AsyncEvent::QpRequestError(self.number),
            }),
        }
        self.enter_error(now, desk);
    }
}

/// Response packets of a READ of `len` bytes; one even for none.
#[inline]
pub(super) fn read_packets(len: u32, mtu: u16) -> u32 {
    len.div_ceil(u32::from(mtu)).max(1)
}
