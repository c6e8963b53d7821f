//! What a request does that is new and in order.
//!
//! The order of the checks is that of 9.7.4.1: opcode sequence, rights of the queue pair, resources,
//! length, key.

use super::responder::read_packets;
use super::responses::Answer;
use super::{Desk, Qp, pieces};
use crate::card::env::Env;
use crate::card::explain::{Cause, InvalidRequest};
use crate::card::work::{Completion, CompletionKind, MAX_MESSAGE_LEN, Status};
use crate::memory::{Access, AccessError};
use crate::time::Time;
use crate::wire::{Ext, Opcode, Operation, Packet, Position, RemoteKey};

/// A SEND or WRITE of several packets that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) write: bool,
    /// Position of its first packet.
    pub(super) first: u64,
    /// Bytes taken so far.
    pub(super) received: u64,
    /// Where a WRITE goes.
    va: u64,
    rkey: RemoteKey,
    /// Bytes a WRITE has announced.
    total: u64,
}

/// Why a request is not carried out.
pub(super) enum Fault {
    /// No receive request.
    NotReady,
    /// Refused, and the responder goes into error. The cause says what the peer is told (class C), or that
    /// it is told nothing (class J), and whether a receive request is to blame.
    Refused(Box<Cause>),
}

#[cold]
pub(super) fn refused(cause: Cause) -> Fault {
    Fault::Refused(Box::new(cause))
}

#[cold]
fn invalid(why: InvalidRequest) -> Fault {
    refused(Cause::InvalidRequest(why))
}

/// A key does not open `len` bytes at `addr`.
#[cold]
fn closed(rkey: RemoteKey, addr: u64, len: u64, why: AccessError) -> Fault {
    refused(Cause::RemoteAccess {
        rkey,
        addr,
        len,
        why,
    })
}

/// True if a SEND or WRITE has the extended headers of its opcode. Those that were decoded have; a packet
/// that is a value may say anything.
#[inline]
fn ext_fits(ext: &Ext, opcode: Opcode) -> bool {
    let has = (
        opcode.has_reth(),
        opcode.has_immediate(),
        opcode.has_invalidate(),
    );
    match ext {
        Ext::None => has == (false, false, false),
        Ext::Reth(_) => has == (true, false, false),
        Ext::RethImmediate(..) => has == (true, true, false),
        Ext::Immediate(_) => has == (false, true, false),
        Ext::Ieth(_) => has == (false, false, true),
        _ => false,
    }
}

impl Qp {
    /// Carries out the request that was expected.
    pub(super) fn execute<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Fault> {
        let opcode = packet.bth.opcode();
        match opcode.operation() {
            Operation::Send | Operation::Write => {
                let position = self.responder.expected;
                self.execute_message(packet, desk, env)?;
                let r = &mut self.responder;
                r.expected += 1;
                r.plain_before = true;
                if opcode.ends_message() {
                    r.msn = r.msn.next();
                }
                if packet.bth.ack_req() {
                    let ready = now + desk.config.timing.ack;
                    let apart = desk.config.profile.separate_answers;
                    r.responses.push_ack(position, r.msn, ready, apart);
                }
                if opcode.ends_message() {
                    self.deliver(now, packet, opcode, desk);
                }
                Ok(())
            }
            Operation::ReadRequest => self.execute_read(now, packet, desk),
            Operation::CompareSwap | Operation::FetchAdd => self.execute_atomic(now, packet, desk),
            Operation::AtomicWrite => self.execute_atomic_write(now, packet, desk, env),
            _ => Err(invalid(InvalidRequest::Operation)),
        }
    }

    /// Takes one packet of a SEND or WRITE into memory. Shared by reliable and unreliable connections: who
    /// is told of a fault differs.
    pub(super) fn execute_message<E: Env>(
        &mut self,
        packet: &Packet,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Fault> {
        let opcode = packet.bth.opcode();
        let write = opcode.operation() == Operation::Write;
        if !ext_fits(&packet.ext, opcode) {
            return Err(invalid(InvalidRequest::Header));
        }
        let message = self.begin_or_continue(packet, opcode, write)?;
        let taken = if opcode.has_immediate() || !write {
            let r = &mut self.responder;
            let taken = r.receives.take(&mut desk.srqs, &mut desk.events);
            Some(taken.ok_or(Fault::NotReady)?)
        } else {
            None
        };
        let len = packet.payload.len();
        self.check_len(opcode, len, &message)?;
        if write && opcode.begins_message() {
            let total = message.total;
            self.check_key(message.rkey, message.va, total, Access::REMOTE_WRITE, desk)?;
        }
        if write && len > 0 {
            let at = message.va.wrapping_add(message.received);
            let id = (self.init.pd, self.number);
            let place = desk
                .memory
                .remote(message.rkey, id, at, len.into(), Access::REMOTE_WRITE)
                .map_err(|why| closed(message.rkey, at, len.into(), why))?;
            if let Some(bytes) = env.payload(packet.payload) {
                place.write(bytes);
            }
        } else if !write && let Some(taken) = taken {
            if message.received + u64::from(len) > taken.len {
                let short = desk.config.profile.short_receive;
                return Err(refused(Cause::ReceiveTooShort {
                    received: message.received + u64::from(len),
                    room: taken.len,
                    nak: short.nak,
                    status: short.status,
                }));
            }
            self.scatter(message.received, packet, desk, env)?;
        }
        if let Ext::Ieth(key) = packet.ext {
            // A key that cannot be invalidated is the program's own affair (class J).
            desk.memory
                .invalidate(key, self.init.pd, self.number)
                .map_err(|why| refused(Cause::RemoteInvalidate { key, why }))?;
        }
        let received = message.received + u64::from(len);
        self.responder.message = Some(Message {
            received,
            ..message
        });
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
                _ => Err(invalid(InvalidRequest::NotBegun)),
            };
        }
        if r.message.is_some() {
            return Err(invalid(InvalidRequest::UnderWay));
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
            let reth = packet
                .ext
                .reth()
                .ok_or_else(|| invalid(InvalidRequest::Header))?;
            self.check_rights(Access::REMOTE_WRITE)?;
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
            let id = (self.init.pd, self.number);
            desk.memory
                .remote(rkey, id, va, len, asked)
                .map_err(|why| closed(rkey, va, len, why))?;
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
        let longest = received.max(message.total);
        if fits && announced && longest <= MAX_MESSAGE_LEN {
            return Ok(());
        }
        Err(invalid(if !fits {
            InvalidRequest::Payload { len, mtu }
        } else if !announced {
            InvalidRequest::Announced {
                received,
                announced: message.total,
            }
        } else {
            InvalidRequest::TooLong {
                len: longest,
                limit: MAX_MESSAGE_LEN,
            }
        }))
    }

    /// Writes SEND data into the elements of the receive request that is taken.
    pub(super) fn scatter<E: Env>(
        &mut self,
        offset: u64,
        packet: &Packet,
        desk: &Desk,
        env: &E,
    ) -> Result<(), Fault> {
        let bytes = env.payload(packet.payload);
        let elements = self.responder.receives.elements().iter();
        let mut outcome = Ok(());
        pieces(
            elements,
            offset,
            packet.payload.len(),
            |sge, addr, at, n| match desk.memory.local(
                sge.lkey,
                self.init.pd,
                addr,
                n as u64,
                Access::LOCAL_WRITE,
            ) {
                Ok(place) => {
                    if let Some(bytes) = bytes {
                        place.write(&bytes[at..at + n]);
                    }
                }
                Err(why) => outcome = Err((sge.lkey, addr, n as u64, why)),
            },
        );
        outcome.map_err(|fault| refused(self.receive_protection(fault)))
    }

    /// The message is whole: completes the receive request it has taken, if any.
    pub(super) fn deliver(&mut self, now: Time, packet: &Packet, opcode: Opcode, desk: &mut Desk) {
        let Some(message) = self.responder.message.take() else {
            return;
        };
        if message.write && !opcode.has_immediate() {
            return;
        }
        let Some(taken) = self.responder.receives.finish() else {
            return;
        };
        let c = Completion {
            kind: if message.write {
                CompletionKind::ReceiveWithImmediate
            } else {
                CompletionKind::Receive
            },
            byte_len: message.received as u32,
            immediate: packet.ext.immediate(),
            invalidated: match packet.ext {
                Ext::Ieth(key) => Some(key),
                _ => None,
            },
            grh: desk.config.profile.connections_report_grh,
            ..self.recv_completion(taken.wr_id, Status::Success)
        };
        self.complete(now, self.init.recv_cq, c, packet.bth.solicited(), desk);
    }

    /// What the queue pair as a whole lets peers do.
    #[inline]
    fn check_rights(&self, asked: Access) -> Result<(), Fault> {
        if self.access.allows(asked) {
            Ok(())
        } else {
            Err(invalid(InvalidRequest::Rights(asked)))
        }
    }

    /// READs and atomics that may not be answered yet are limited, and stand outside messages.
    fn check_resources(&self) -> Result<(), Fault> {
        let r = &self.responder;
        let max_dest_rd_atomic = r.max_dest_rd_atomic;
        if r.message.is_some() {
            return Err(invalid(InvalidRequest::UnderWay));
        }
        if r.responses.resources() >= usize::from(max_dest_rd_atomic) {
            return Err(invalid(InvalidRequest::TooManyReads { max_dest_rd_atomic }));
        }
        Ok(())
    }

    /// Queues the answer to a READ or atomic of `packets` answer packets.
    fn answer(&mut self, now: Time, answer: Answer, packets: u32, desk: &Desk) {
        let r = &mut self.responder;
        r.msn = r.msn.next();
        r.responses
            .push(r.expected, answer, r.msn, now + desk.config.timing.ack);
        r.expected += u64::from(packets);
        r.plain_before = false;
    }

    fn execute_read(&mut self, now: Time, packet: &Packet, desk: &mut Desk) -> Result<(), Fault> {
        let reth = packet
            .ext
            .reth()
            .ok_or_else(|| invalid(InvalidRequest::Header))?;
        self.check_resources()?;
        let len = u64::from(reth.dma_len);
        self.check_rights(Access::REMOTE_READ)?;
        if len > MAX_MESSAGE_LEN {
            let limit = MAX_MESSAGE_LEN;
            return Err(invalid(InvalidRequest::TooLong { len, limit }));
        }
        self.check_key(reth.rkey, reth.va, len, Access::REMOTE_READ, desk)?;
        let packets = read_packets(reth.dma_len, self.mtu.bytes());
        if desk.config.profile.resumed_read_continues {
            let r = &mut self.responder;
            if r.reads.len() >= usize::from(r.max_dest_rd_atomic.max(1)) {
                r.reads.pop_front();
            }
            r.reads
                .push_back(r.expected..r.expected + u64::from(packets));
        }
        self.answer(
            now,
            Answer::Read {
                packets,
                sent: 0,
                resumed: false,
                reth,
            },
            packets,
            desk,
        );
        Ok(())
    }

    fn execute_atomic(&mut self, now: Time, packet: &Packet, desk: &mut Desk) -> Result<(), Fault> {
        let Ext::Atomic(eth) = packet.ext else {
            return Err(invalid(InvalidRequest::Header));
        };
        self.check_resources()?;
        let (va, rkey, add, compare) = (eth.va, eth.rkey, eth.swap_add, eth.compare);
        let rights = Access::REMOTE_ATOMIC;
        // Eight bytes, aligned (9.4.5).
        let aligned = va.is_multiple_of(8) && packet.payload.is_empty();
        self.check_rights(rights)?;
        if !aligned {
            return Err(invalid(InvalidRequest::Alignment { addr: va }));
        }
        let id = (self.init.pd, self.number);
        let place = desk
            .memory
            .remote(rkey, id, va, 8, rights)
            .map_err(|why| closed(rkey, va, 8, why))?;
        let original = if packet.bth.opcode().operation() == Operation::FetchAdd {
            place.update(|v| v.wrapping_add(add))
        } else {
            place.update(|v| if v == compare { add } else { v })
        };
        self.remember(original);
        self.answer(now, Answer::Atomic { original }, 1, desk);
        Ok(())
    }

    /// ATOMIC WRITE: eight bytes at an aligned address (A19.4.2), with the right to write (A19.4.5.3).
    fn execute_atomic_write<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Fault> {
        let reth = packet
            .ext
            .reth()
            .ok_or_else(|| invalid(InvalidRequest::Header))?;
        self.check_resources()?;
        let whole = packet.payload.len() == 8 && reth.dma_len == 8 && reth.va.is_multiple_of(8);
        self.check_rights(Access::REMOTE_WRITE)?;
        if !whole {
            return Err(invalid(InvalidRequest::Alignment { addr: reth.va }));
        }
        let id = (self.init.pd, self.number);
        let place = desk
            .memory
            .remote(reth.rkey, id, reth.va, 8, Access::REMOTE_WRITE)
            .map_err(|why| closed(reth.rkey, reth.va, 8, why))?;
        if let Some(bytes) = env.payload(packet.payload)
            && let Ok(bytes) = bytes.try_into()
        {
            let new = u64::from_ne_bytes(bytes);
            place.update(|_| new);
        }
        self.remember(0);
        self.answer(now, Answer::Written, 1, desk);
        Ok(())
    }

    /// Keeps the answer of an atomic for repetition, as long as the peer may ask again.
    fn remember(&mut self, original: u64) {
        let r = &mut self.responder;
        if r.atomics.len() >= usize::from(r.max_dest_rd_atomic.max(1)) {
            r.atomics.pop_front();
        }
        r.atomics.push_back((r.expected, original));
    }
}
