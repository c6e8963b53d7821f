//! The opcodes of the base transport header.
//!
//! The top three bits name the transport service, the low five the operation and its place in a
//! message. All 256 values have an entry, so that an unknown one can be told by name too.

use std::fmt;

/// The opcode byte of the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// The transport service an opcode belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram; no RoCE card offers it.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (A17.9.3).
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// Reserved or left to manufacturers.
    Unknown,
}

/// What a packet asks for or answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledge, positive or negative.
    Acknowledge,
    /// Answer to an atomic operation.
    AtomicAcknowledge,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// RESYNC of reliable datagrams.
    Resync,
    /// FLUSH (annex A19).
    Flush,
    /// ATOMIC WRITE (annex A19).
    AtomicWrite,
    /// Congestion notification packet.
    Cnp,
    /// None that is known.
    Unknown,
}

/// The place of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The only one.
    Only,
}

/// What the last packet of a message carries beyond its operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tail {
    /// Nothing.
    Plain,
    /// Immediate data.
    Immediate,
    /// A key to invalidate.
    Invalidate,
}

/// What is known of one opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// Transport service.
    pub service: Service,
    /// Operation.
    pub operation: Operation,
    /// Place in the message.
    pub position: Position,
    /// Immediate data or a key to invalidate.
    pub tail: Tail,
}

impl Opcode {
    /// CNP (A17.9.3).
    pub const CNP: Opcode = Opcode(0x81);

    /// RC SEND First.
    pub const RC_SEND_FIRST: Opcode = Opcode(0x00);
    /// RC SEND Middle.
    pub const RC_SEND_MIDDLE: Opcode = Opcode(0x01);
    /// RC SEND Last.
    pub const RC_SEND_LAST: Opcode = Opcode(0x02);
    /// RC SEND Last with immediate.
    pub const RC_SEND_LAST_IMM: Opcode = Opcode(0x03);
    /// RC SEND Only.
    pub const RC_SEND_ONLY: Opcode = Opcode(0x04);
    /// RC SEND Only with immediate.
    pub const RC_SEND_ONLY_IMM: Opcode = Opcode(0x05);
    /// RC RDMA WRITE First.
    pub const RC_WRITE_FIRST: Opcode = Opcode(0x06);
    /// RC RDMA WRITE Middle.
    pub const RC_WRITE_MIDDLE: Opcode = Opcode(0x07);
    /// RC RDMA WRITE Last.
    pub const RC_WRITE_LAST: Opcode = Opcode(0x08);
    /// RC RDMA WRITE Last with immediate.
    pub const RC_WRITE_LAST_IMM: Opcode = Opcode(0x09);
    /// RC RDMA WRITE Only.
    pub const RC_WRITE_ONLY: Opcode = Opcode(0x0a);
    /// RC RDMA WRITE Only with immediate.
    pub const RC_WRITE_ONLY_IMM: Opcode = Opcode(0x0b);
    /// RC RDMA READ request.
    pub const RC_READ_REQUEST: Opcode = Opcode(0x0c);
    /// RC RDMA READ response First.
    pub const RC_READ_RESPONSE_FIRST: Opcode = Opcode(0x0d);
    /// RC RDMA READ response Middle.
    pub const RC_READ_RESPONSE_MIDDLE: Opcode = Opcode(0x0e);
    /// RC RDMA READ response Last.
    pub const RC_READ_RESPONSE_LAST: Opcode = Opcode(0x0f);
    /// RC RDMA READ response Only.
    pub const RC_READ_RESPONSE_ONLY: Opcode = Opcode(0x10);
    /// RC Acknowledge.
    pub const RC_ACKNOWLEDGE: Opcode = Opcode(0x11);
    /// RC ATOMIC Acknowledge.
    pub const RC_ATOMIC_ACKNOWLEDGE: Opcode = Opcode(0x12);
    /// RC CmpSwap.
    pub const RC_COMPARE_SWAP: Opcode = Opcode(0x13);
    /// RC FetchAdd.
    pub const RC_FETCH_ADD: Opcode = Opcode(0x14);
    /// RC SEND Last with invalidate.
    pub const RC_SEND_LAST_INVALIDATE: Opcode = Opcode(0x16);
    /// RC SEND Only with invalidate.
    pub const RC_SEND_ONLY_INVALIDATE: Opcode = Opcode(0x17);
    /// RC FLUSH (oA19-5).
    pub const RC_FLUSH: Opcode = Opcode(0x1c);
    /// RC ATOMIC WRITE.
    pub const RC_ATOMIC_WRITE: Opcode = Opcode(0x1d);
    /// UD SEND Only.
    pub const UD_SEND_ONLY: Opcode = Opcode(0x64);
    /// UD SEND Only with immediate.
    pub const UD_SEND_ONLY_IMM: Opcode = Opcode(0x65);

    /// What is known of this opcode.
    #[inline]
    pub const fn info(self) -> &'static Info {
        &TABLE[self.0 as usize]
    }

    /// The transport service.
    #[inline]
    pub const fn service(self) -> Service {
        self.info().service
    }

    /// The operation.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.info().operation
    }

    /// The place in the message.
    #[inline]
    pub const fn position(self) -> Position {
        self.info().position
    }

    /// True for the first or only packet of a message.
    #[inline]
    pub const fn begins_message(self) -> bool {
        matches!(self.position(), Position::First | Position::Only)
    }

    /// True for the last or only packet of a message.
    #[inline]
    pub const fn ends_message(self) -> bool {
        matches!(self.position(), Position::Last | Position::Only)
    }

    /// True for packets that a responder sends: READ responses and acknowledgements.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// True if immediate data follows.
    #[inline]
    pub const fn has_immediate(self) -> bool {
        matches!(self.info().tail, Tail::Immediate)
    }

    /// True if an IETH with a key to invalidate follows.
    #[inline]
    pub const fn has_invalidate(self) -> bool {
        matches!(self.info().tail, Tail::Invalidate)
    }

    /// True if a RETH follows.
    #[inline]
    pub const fn has_reth(self) -> bool {
        match self.operation() {
            Operation::Write => self.begins_message(),
            Operation::ReadRequest | Operation::Flush | Operation::AtomicWrite => true,
            _ => false,
        }
    }

    /// True if an AETH follows.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        match self.operation() {
            Operation::ReadResponse => !matches!(self.position(), Position::Middle),
            Operation::Acknowledge | Operation::AtomicAcknowledge => true,
            _ => false,
        }
    }

    /// True if the packet may carry payload.
    #[inline]
    pub const fn has_payload(self) -> bool {
        matches!(
            self.operation(),
            Operation::Send
                | Operation::Write
                | Operation::ReadResponse
                | Operation::AtomicWrite
                | Operation::Unknown
        )
    }
}

/// As tshark names it, with the service in front: `RC RDMA Write First`.
impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.info();
        let service = match info.service {
            Service::Rc => "RC",
            Service::Uc => "UC",
            Service::Rd => "RD",
            Service::Ud => "UD",
            Service::Xrc => "XRC",
            Service::Cnp => return f.write_str("CNP"),
            Service::Unknown => return write!(f, "unknown opcode {:#04x}", self.0),
        };
        let operation = match info.operation {
            Operation::Send => "Send",
            Operation::Write => "RDMA Write",
            Operation::ReadRequest => return write!(f, "{service} RDMA Read Request"),
            Operation::ReadResponse => "RDMA Read Response",
            Operation::Acknowledge => return write!(f, "{service} Acknowledge"),
            Operation::AtomicAcknowledge => return write!(f, "{service} Atomic Acknowledge"),
            Operation::CompareSwap => return write!(f, "{service} CmpSwap"),
            Operation::FetchAdd => return write!(f, "{service} FetchAdd"),
            Operation::Resync => return write!(f, "{service} Resync"),
            Operation::Flush => return write!(f, "{service} Flush"),
            Operation::AtomicWrite => return write!(f, "{service} Atomic Write"),
            Operation::Cnp => return f.write_str("CNP"),
            Operation::Unknown => return write!(f, "{service} unknown opcode {:#04x}", self.0),
        };
        let position = match info.position {
            Position::First => "First",
            Position::Middle => "Middle",
            Position::Last => "Last",
            Position::Only => "Only",
        };
        let tail = match info.tail {
            Tail::Plain => "",
            Tail::Immediate => " Immediate",
            Tail::Invalidate => " Invalidate",
        };
        write!(f, "{service} {operation} {position}{tail}")
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#04x} {self})", self.0)
    }
}

static TABLE: [Info; 256] = {
    let mut table = [Info {
        service: Service::Unknown,
        operation: Operation::Unknown,
        position: Position::Only,
        tail: Tail::Plain,
    }; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = classify(i as u8);
        i += 1;
    }
    table
};

const fn classify(byte: u8) -> Info {
    use {Operation as O, Position as P, Service as S, Tail as T};
    let service = match byte >> 5 {
        0 => S::Rc,
        1 => S::Uc,
        2 => S::Rd,
        3 => S::Ud,
        4 => S::Cnp,
        5 => S::Xrc,
        _ => S::Unknown,
    };
    let (operation, position, tail) = match byte & 0x1f {
        0x00 => (O::Send, P::First, T::Plain),
        0x01 => (O::Send, P::Middle, T::Plain),
        0x02 => (O::Send, P::Last, T::Plain),
        0x03 => (O::Send, P::Last, T::Immediate),
        0x04 => (O::Send, P::Only, T::Plain),
        0x05 => (O::Send, P::Only, T::Immediate),
        0x06 => (O::Write, P::First, T::Plain),
        0x07 => (O::Write, P::Middle, T::Plain),
        0x08 => (O::Write, P::Last, T::Plain),
        0x09 => (O::Write, P::Last, T::Immediate),
        0x0a => (O::Write, P::Only, T::Plain),
        0x0b => (O::Write, P::Only, T::Immediate),
        0x0c => (O::ReadRequest, P::Only, T::Plain),
        0x0d => (O::ReadResponse, P::First, T::Plain),
        0x0e => (O::ReadResponse, P::Middle, T::Plain),
        0x0f => (O::ReadResponse, P::Last, T::Plain),
        0x10 => (O::ReadResponse, P::Only, T::Plain),
        0x11 => (O::Acknowledge, P::Only, T::Plain),
        0x12 => (O::AtomicAcknowledge, P::Only, T::Plain),
        0x13 => (O::CompareSwap, P::Only, T::Plain),
        0x14 => (O::FetchAdd, P::Only, T::Plain),
        0x15 => (O::Resync, P::Only, T::Plain),
        0x16 => (O::Send, P::Last, T::Invalidate),
        0x17 => (O::Send, P::Only, T::Invalidate),
        0x1c => (O::Flush, P::Only, T::Plain),
        0x1d => (O::AtomicWrite, P::Only, T::Plain),
        _ => (O::Unknown, P::Only, T::Plain),
    };
    let unknown = Info {
        service,
        operation: O::Unknown,
        position: P::Only,
        tail: T::Plain,
    };
    let known = match service {
        S::Rc => !matches!(operation, O::Resync),
        S::Xrc => !matches!(operation, O::Resync | O::Flush | O::AtomicWrite),
        S::Rd => !matches!(tail, T::Invalidate) && !matches!(operation, O::Flush | O::AtomicWrite),
        S::Uc => matches!(operation, O::Send | O::Write) && !matches!(tail, T::Invalidate),
        S::Ud => {
            matches!(operation, O::Send)
                && matches!(position, P::Only)
                && !matches!(tail, T::Invalidate)
        }
        S::Cnp => {
            return if byte == 0x81 {
                Info {
                    service,
                    operation: O::Cnp,
                    position: P::Only,
                    tail: T::Plain,
                }
            } else {
                Info {
                    service: S::Unknown,
                    operation: O::Unknown,
                    position: P::Only,
                    tail: T::Plain,
                }
            };
        }
        S::Unknown => false,
    };
    if known {
        Info {
            service,
            operation,
            position,
            tail,
        }
    } else {
        unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_carry_the_headers_of_the_specification() {
        for (op, reth, aeth, imm, inv, name) in [
            (
                Opcode::RC_SEND_FIRST,
                false,
                false,
                false,
                false,
                "RC Send First",
            ),
            (
                Opcode::RC_SEND_LAST_IMM,
                false,
                false,
                true,
                false,
                "RC Send Last Immediate",
            ),
            (
                Opcode::RC_WRITE_FIRST,
                true,
                false,
                false,
                false,
                "RC RDMA Write First",
            ),
            (
                Opcode::RC_WRITE_MIDDLE,
                false,
                false,
                false,
                false,
                "RC RDMA Write Middle",
            ),
            (
                Opcode::RC_WRITE_ONLY_IMM,
                true,
                false,
                true,
                false,
                "RC RDMA Write Only Immediate",
            ),
            (
                Opcode::RC_READ_REQUEST,
                true,
                false,
                false,
                false,
                "RC RDMA Read Request",
            ),
            (
                Opcode::RC_READ_RESPONSE_FIRST,
                false,
                true,
                false,
                false,
                "RC RDMA Read Response First",
            ),
            (
                Opcode::RC_READ_RESPONSE_MIDDLE,
                false,
                false,
                false,
                false,
                "RC RDMA Read Response Middle",
            ),
            (
                Opcode::RC_ACKNOWLEDGE,
                false,
                true,
                false,
                false,
                "RC Acknowledge",
            ),
            (
                Opcode::RC_SEND_ONLY_INVALIDATE,
                false,
                false,
                false,
                true,
                "RC Send Only Invalidate",
            ),
            (Opcode::RC_FLUSH, true, false, false, false, "RC Flush"),
            (
                Opcode::UD_SEND_ONLY_IMM,
                false,
                false,
                true,
                false,
                "UD Send Only Immediate",
            ),
            (Opcode::CNP, false, false, false, false, "CNP"),
        ] {
            assert_eq!(op.has_reth(), reth, "{op}");
            assert_eq!(op.has_aeth(), aeth, "{op}");
            assert_eq!(op.has_immediate(), imm, "{op}");
            assert_eq!(op.has_invalidate(), inv, "{op}");
            assert_eq!(op.to_string(), name);
        }
    }

    #[test]
    fn strangers_are_told_by_name() {
        assert_eq!(Opcode(0xa6).to_string(), "XRC RDMA Write First");
        assert_eq!(Opcode(0x2c).to_string(), "UC unknown opcode 0x2c");
        assert_eq!(Opcode(0xff).to_string(), "unknown opcode 0xff");
        assert_eq!(Opcode(0x80).to_string(), "unknown opcode 0x80");
        assert_eq!(Opcode(0x60).to_string(), "UD unknown opcode 0x60");
    }

    #[test]
    fn each_service_has_as_many_opcodes_as_the_specification_lists() {
        let count = |s| {
            (0..=255u8)
                .filter(|&b| {
                    Opcode(b).service() == s && Opcode(b).operation() != Operation::Unknown
                })
                .count()
        };
        // RC: 0x00-0x14, 0x16, 0x17, 0x1c, 0x1d.
        assert_eq!(count(Service::Rc), 25);
        assert_eq!(count(Service::Uc), 12);
        assert_eq!(count(Service::Ud), 2);
        assert_eq!(count(Service::Cnp), 1);
    }
}
