//! Reasons of failures, with their numbers.

use crate::card::work::{AddressHandle, CqId, Status};
use crate::memory::{Access, AccessError, Binding, LocalKey, WindowError};
use crate::time::{Span, Time};
use crate::wire::{NakCode, Opcode, Psn, RemoteKey};
use std::fmt;

/// Why a request failed or was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// No answer after every retry (C9-142).
    RetriesExceeded {
        /// Retries there were.
        retry_cnt: u8,
        /// The oldest PSN without answer.
        psn: Psn,
        /// Timers that ran out, and how long each ran.
        timeouts: u32,
        /// The timer; `None` if it is switched off.
        timeout: Option<Span>,
        /// NAKs for gaps that it went back for.
        sequence_naks: u32,
        /// Missing answers that it went back for.
        implied_naks: u32,
    },
    /// The peer had no receive request after every RNR retry.
    RnrRetriesExceeded {
        /// RNR retries there were.
        rnr_retry: u8,
        /// The PSN that the last RNR NAK names.
        psn: Psn,
        /// The wait that it asks for.
        wait: Span,
    },
    /// The peer refused it for good.
    Refused {
        /// What the NAK says.
        code: NakCode,
        /// The PSN that it names.
        psn: Psn,
    },
    /// It is longer than any message may be.
    MessageTooLong {
        /// Bytes.
        len: u64,
        /// The most there may be.
        limit: u64,
    },
    /// An atomic operation has eight bytes.
    AtomicLength {
        /// Bytes it has.
        len: u64,
    },
    /// An element of the request does not lie in memory that it may use.
    LocalProtection {
        /// Which element, from 0.
        sge: u32,
        /// Its key.
        lkey: LocalKey,
        /// First byte that was to be used.
        addr: u64,
        /// Number of bytes.
        len: u64,
        /// Why not.
        why: AccessError,
    },
    /// A READ or atomic on a queue pair that allows none outstanding (`max_rd_atomic` 0).
    NoReads,
    /// The address handle was destroyed, or is of another protection domain (C10-10).
    AddressHandle {
        /// Which one.
        handle: AddressHandle,
        /// It was destroyed, or never was.
        gone: bool,
    },
    /// The key cannot be invalidated.
    Invalidate {
        /// The key.
        key: RemoteKey,
        /// Why not.
        why: WindowError,
    },
    /// The window cannot be bound.
    Bind {
        /// The key it was to have.
        key: RemoteKey,
        /// The region, and the bytes of it, that it was to open.
        binding: Binding,
        /// Why not.
        why: WindowError,
    },
    /// The answer does not fit the request.
    BadResponse {
        /// What came.
        opcode: Opcode,
        /// Its PSN.
        psn: Psn,
        /// What is wrong with it.
        why: WrongResponse,
    },

    /// As responder: the request cannot be.
    InvalidRequest(InvalidRequest),
    /// As responder: the key does not allow what the request asks for.
    RemoteAccess {
        /// The key.
        rkey: RemoteKey,
        /// First byte asked for.
        addr: u64,
        /// Number of bytes.
        len: u64,
        /// Why not.
        why: AccessError,
    },
    /// As responder: the message is longer than the receive request.
    ReceiveTooShort {
        /// Bytes that had come with this packet.
        received: u64,
        /// Bytes that the receive request has room for.
        room: u64,
        /// What the peer is told.
        nak: NakCode,
        /// How the receive request completes; cards differ
        /// ([`short_receive`](crate::card::Profile::short_receive)).
        status: Status,
    },
    /// As responder: an element of the receive request does not lie in memory that it may use.
    ReceiveProtection {
        /// Which element, from 0.
        sge: u32,
        /// Its key.
        lkey: LocalKey,
        /// First byte that was to be written.
        addr: u64,
        /// Number of bytes.
        len: u64,
        /// Why not.
        why: AccessError,
    },
    /// As responder: the peer's SEND names a key that it cannot invalidate. The peer is not told.
    RemoteInvalidate {
        /// The key.
        key: RemoteKey,
        /// Why not.
        why: WindowError,
    },
    /// The completion queue was full.
    CqOverrun(CqId),
    /// The queue pair was in error already, or was put there.
    Flushed(Ended),
}

/// What put a queue pair, or its send queue, into error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The program did.
    Program(Time),
    /// A send request failed.
    Send {
        /// When.
        at: Time,
        /// Its number on the queue pair, from 1.
        number: u64,
        /// Its `wr_id`.
        wr_id: u64,
        /// How.
        status: Status,
    },
    /// A receive request failed.
    Receive {
        /// When.
        at: Time,
        /// Its `wr_id`.
        wr_id: u64,
        /// How.
        status: Status,
    },
    /// A peer's request was refused.
    Refusal {
        /// When.
        at: Time,
        /// Its PSN.
        psn: Psn,
    },
    /// The completion queue was full.
    CqOverrun(Time),
}

/// What is wrong with an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongResponse {
    /// Its operation does not answer the request.
    Operation,
    /// Its payload is not what was asked for.
    Length {
        /// Bytes that came.
        len: u16,
        /// Bytes that were asked for.
        expected: u64,
        /// Path MTU of the queue pair.
        mtu: u16,
        /// The size of the pieces that the answer comes in, if this one is not the last and that size is
        /// not the path MTU: the peer's is another.
        pieces: Option<u16>,
    },
    /// It ends too early, or goes on too long.
    Place,
}

/// Why a request cannot be (NAK "invalid request").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidRequest {
    /// The service does not have the operation.
    Operation,
    /// It continues a message that has not begun, or is of another kind.
    NotBegun,
    /// It begins while a message is under way.
    UnderWay,
    /// An extended header is missing.
    Header,
    /// The queue pair does not allow peers what it asks for.
    Rights(Access),
    /// So many bytes of payload do not go with its place in the message and the path MTU.
    Payload {
        /// Bytes.
        len: u16,
        /// Path MTU.
        mtu: u16,
    },
    /// A WRITE carries another number of bytes than it has announced.
    Announced {
        /// Bytes with this packet.
        received: u64,
        /// Bytes announced.
        announced: u64,
    },
    /// It asks for more bytes than a message may have.
    TooLong {
        /// Bytes.
        len: u64,
        /// The most there may be.
        limit: u64,
    },
    /// More READs and atomics wait for their answer than the queue pair takes.
    TooManyReads {
        /// How many it takes.
        max_dest_rd_atomic: u8,
    },
    /// An atomic operation that is not eight bytes at an aligned address.
    Alignment {
        /// The address.
        addr: u64,
    },
}

impl Cause {
    /// How the request completes.
    pub const fn status(&self) -> Status {
        match self {
            Cause::RetriesExceeded { .. } => Status::RetryExceeded,
            Cause::RnrRetriesExceeded { .. } => Status::RnrRetryExceeded,
            Cause::Refused { code, .. } => match code {
                NakCode::InvalidRequest | NakCode::InvalidRdRequest => Status::RemoteInvalidRequest,
                NakCode::RemoteAccessError => Status::RemoteAccessError,
                NakCode::RemoteOperationalError => Status::RemoteOperationError,
                // Not a refusal for good.
                NakCode::PsnSequenceError => Status::RetryExceeded,
            },
            Cause::MessageTooLong { .. } | Cause::AtomicLength { .. } => Status::LocalLengthError,
            Cause::LocalProtection { .. } | Cause::ReceiveProtection { .. } => {
                Status::LocalProtectionError
            }
            Cause::NoReads
            | Cause::AddressHandle { .. }
            | Cause::Invalidate { .. }
            | Cause::InvalidRequest(_) => Status::LocalQpOperationError,
            Cause::Bind { .. } => Status::WindowBindError,
            Cause::BadResponse { .. } => Status::BadResponse,
            Cause::RemoteAccess { .. } => Status::LocalAccessError,
            Cause::ReceiveTooShort { status, .. } => *status,
            Cause::RemoteInvalidate { .. } => Status::RemoteInvalidRequest,
            Cause::CqOverrun(_) | Cause::Flushed(_) => Status::WorkRequestFlushed,
        }
    }

    /// What a responder tells its peer; `None` if nothing.
    pub const fn nak(&self) -> Option<NakCode> {
        match self {
            Cause::InvalidRequest(_) => Some(NakCode::InvalidRequest),
            Cause::RemoteAccess { .. } => Some(NakCode::RemoteAccessError),
            Cause::ReceiveTooShort { nak, .. } => Some(*nak),
            Cause::ReceiveProtection { .. } => Some(NakCode::RemoteOperationalError),
            _ => None,
        }
    }

    /// True if it is the receive request that cannot take what came.
    pub(in crate::card) const fn is_of_receive(&self) -> bool {
        matches!(
            self,
            Cause::ReceiveTooShort { .. }
                | Cause::ReceiveProtection { .. }
                | Cause::RemoteInvalidate { .. }
        )
    }

    /// A name for reports: `retries-exceeded`.
    pub const fn name(&self) -> &'static str {
        match self {
            Cause::RetriesExceeded { .. } => "retries-exceeded",
            Cause::RnrRetriesExceeded { .. } => "rnr-retries-exceeded",
            Cause::Refused { .. } => "refused",
            Cause::MessageTooLong { .. } => "message-too-long",
            Cause::AtomicLength { .. } => "atomic-length",
            Cause::LocalProtection { .. } => "local-protection",
            Cause::NoReads => "no-reads",
            Cause::AddressHandle { .. } => "address-handle",
            Cause::Invalidate { .. } => "invalidate",
            Cause::Bind { .. } => "bind",
            Cause::BadResponse { .. } => "bad-response",
            Cause::InvalidRequest(_) => "invalid-request",
            Cause::RemoteAccess { .. } => "remote-access",
            Cause::ReceiveTooShort { .. } => "receive-too-short",
            Cause::ReceiveProtection { .. } => "receive-protection",
            Cause::RemoteInvalidate { .. } => "remote-invalidate",
            Cause::CqOverrun(_) => "cq-overrun",
            Cause::Flushed(_) => "flushed",
        }
    }
}

/// What a NAK says, in words.
pub(super) const fn says(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequenceError => "PSN sequence error",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccessError => "remote access error",
        NakCode::RemoteOperationalError => "remote operational error",
        NakCode::InvalidRdRequest => "invalid RD request",
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cause::RetriesExceeded {
                retry_cnt,
                psn,
                timeouts,
                timeout,
                sequence_naks,
                implied_naks,
            } => {
                write!(f, "retry_cnt {retry_cnt} used up at PSN {psn} (")?;
                let mut comma = "";
                for (n, one, many) in [
                    (timeouts, "timeout", "timeouts"),
                    (sequence_naks, "sequence NAK", "sequence NAKs"),
                    (implied_naks, "missing answer", "missing answers"),
                ] {
                    if n > 0 {
                        write!(f, "{comma}{n} {}", if n == 1 { one } else { many })?;
                        comma = ", ";
                    }
                    if n > 0
                        && one == "timeout"
                        && let Some(timeout) = timeout
                    {
                        write!(f, " of {timeout}")?;
                    }
                }
                f.write_str(")")
            }
            Cause::RnrRetriesExceeded {
                rnr_retry,
                psn,
                wait,
            } => write!(
                f,
                "rnr_retry {rnr_retry} used up at PSN {psn}: the receiver was not ready, and the last RNR NAK asks for a wait of {wait}"
            ),
            Cause::Refused { code, psn } => {
                write!(f, "the peer refused PSN {psn}: NAK {}", says(code))
            }
            Cause::MessageTooLong { len, limit } => {
                write!(f, "a message of {len} bytes; the limit is {limit}")
            }
            Cause::AtomicLength { len } => {
                write!(f, "an atomic operation of {len} bytes; it has 8")
            }
            Cause::LocalProtection {
                sge,
                lkey,
                addr,
                len,
                why,
            } => write!(
                f,
                "element {sge} (lkey {lkey}, {len} bytes at {addr:#x}): {why}"
            ),
            Cause::NoReads => {
                f.write_str("max_rd_atomic is 0: the queue pair has no READs and atomics")
            }
            Cause::AddressHandle { handle, gone } => write!(
                f,
                "address handle {}: {}",
                handle.place,
                if gone {
                    "it does not exist"
                } else {
                    "it is of another protection domain"
                }
            ),
            Cause::Invalidate { key, why } => write!(f, "key {key} cannot be invalidated: {why}"),
            Cause::Bind { key, binding, why } => {
                let Binding {
                    lkey, addr, len, ..
                } = binding;
                write!(
                    f,
                    "no window bound as {key} to {len} bytes at {addr:#x} of the region with lkey {lkey}: {why}"
                )
            }
            Cause::BadResponse { opcode, psn, why } => {
                write!(f, "{opcode} with PSN {psn} does not answer it: {why}")
            }
            Cause::InvalidRequest(why) => write!(f, "refused: {why}"),
            Cause::RemoteAccess {
                rkey,
                addr,
                len,
                why,
            } => write!(
                f,
                "refused: rkey {rkey} for {len} bytes at {addr:#x}: {why}"
            ),
            Cause::ReceiveTooShort { received, room, .. } => write!(
                f,
                "refused: {received} bytes so far, and the receive request has room for {room}"
            ),
            Cause::ReceiveProtection {
                sge,
                lkey,
                addr,
                len,
                why,
            } => write!(
                f,
                "refused: element {sge} of the receive request (lkey {lkey}, {len} bytes at {addr:#x}): {why}"
            ),
            Cause::RemoteInvalidate { key, why } => {
                write!(
                    f,
                    "key {key} cannot be invalidated, and the peer is not told: {why}"
                )
            }
            Cause::CqOverrun(cq) => write!(f, "completion queue {} ran over", cq.0),
            Cause::Flushed(ended) => ended.fmt(f),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Ended::Program(at) => write!(f, "the program put it into error at {at}"),
            Ended::Send {
                at,
                number,
                wr_id,
                status,
            } => write!(
                f,
                "in error since request #{number} (wr_id {wr_id}) ended with {status} at {at}"
            ),
            Ended::Receive { at, wr_id, status } => write!(
                f,
                "in error since a receive (wr_id {wr_id}) ended with {status} at {at}"
            ),
            Ended::Refusal { at, psn } => {
                write!(f, "in error since it refused PSN {psn} at {at}")
            }
            Ended::CqOverrun(at) => {
                write!(f, "in error since its completion queue ran over at {at}")
            }
        }
    }
}

impl fmt::Display for WrongResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WrongResponse::Operation => f.write_str("another operation"),
            WrongResponse::Length {
                len,
                expected,
                mtu,
                pieces,
            } => {
                write!(f, "{len} bytes where {expected} were asked for")?;
                match pieces {
                    Some(theirs) => write!(
                        f,
                        "; it comes in pieces of {theirs} bytes, and the path MTU here is {mtu}"
                    ),
                    None if len > mtu => write!(f, "; the path MTU here is {mtu}"),
                    None => Ok(()),
                }
            }
            WrongResponse::Place => f.write_str("it ends too early or goes on too long"),
        }
    }
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            InvalidRequest::Operation => f.write_str("the service does not have the operation"),
            InvalidRequest::NotBegun => {
                f.write_str("it continues a message that has not begun, or is of another kind")
            }
            InvalidRequest::UnderWay => f.write_str("it begins while a message is under way"),
            InvalidRequest::Header => f.write_str("an extended header is missing"),
            InvalidRequest::Rights(asked) => {
                // A peer asks for one of these at a time.
                let right = [
                    (Access::REMOTE_WRITE, "write"),
                    (Access::REMOTE_READ, "read"),
                    (Access::REMOTE_ATOMIC, "atomic"),
                ];
                let name = right.into_iter().find(|&(right, _)| asked.allows(right));
                let name = name.map_or("local", |(_, name)| name);
                write!(f, "the queue pair does not grant remote {name} access")
            }
            InvalidRequest::Payload { len, mtu } => write!(
                f,
                "{len} bytes of payload do not go with its place in the message and a path MTU of {mtu}"
            ),
            InvalidRequest::Announced {
                received,
                announced,
            } => write!(
                f,
                "{received} bytes with this packet, and {announced} were announced"
            ),
            InvalidRequest::TooLong { len, limit } => {
                write!(f, "it asks for {len} bytes; the limit is {limit}")
            }
            InvalidRequest::TooManyReads { max_dest_rd_atomic } => write!(
                f,
                "more READs and atomics than max_dest_rd_atomic {max_dest_rd_atomic}"
            ),
            InvalidRequest::Alignment { addr } => {
                write!(f, "an atomic is 8 bytes at a multiple of 8, not {addr:#x}")
            }
        }
    }
}
