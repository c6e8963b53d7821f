//! Messages on a stream of requests: the order of opcodes, and lengths against path MTU and RETH.
//!
//! The state before a packet is that behind its predecessor if their PSNs are consecutive; else, in a
//! retransmission, it is worked out from the message that the PSN belongs to. Behind a gap nothing is
//! known until a message begins.

use super::finding::{Found, Rule, put};
use softroce_sim::wire::{Opcode, Operation, Position, Psn, Reth};
use std::collections::VecDeque;

/// Messages that are remembered for the sake of retransmissions.
const REMEMBERED: usize = 128;

/// What comes before a packet.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// Not known.
    Unknown,
    /// A message has ended, or none has begun.
    Between,
    /// A SEND or WRITE is under way.
    Inside(Part),
    /// The packet falls on the responses that this READ has asked for.
    Read(Message),
}

#[derive(Clone, Copy, Debug)]
struct Part {
    operation: Operation,
    first: Psn,
    /// Payload so far.
    bytes: u64,
    /// Length in the RETH; `None` for a SEND.
    total: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    operation: Operation,
    first: Psn,
    /// The last PSN seen of it, in order.
    upto: Psn,
    complete: bool,
    /// Length in the RETH.
    total: Option<u32>,
    va: u64,
}

/// The messages of one stream of requests.
#[derive(Debug)]
pub(super) struct Messages {
    before: Before,
    /// The PSN that `before` is about.
    next: Psn,
    recent: VecDeque<Message>,
    /// Path MTU, once a FIRST or MIDDLE packet, a READ response or a CM message has told it.
    pub(super) mtu: Option<u32>,
}

/// What a request needs to be placed in its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) opcode: Opcode,
    pub(super) psn: Psn,
    pub(super) payload: usize,
    pub(super) reth: Option<Reth>,
}

/// PSNs that a READ of `len` bytes takes up.
pub(super) fn responses(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu.max(1)).max(1)
}

/// True for the five path MTUs there are.
pub(super) fn is_mtu(n: usize) -> bool {
    matches!(n, 256 | 512 | 1024 | 2048 | 4096)
}

impl Messages {
    pub(super) fn new() -> Messages {
        Messages {
            before: Before::Unknown,
            next: Psn::default(),
            recent: VecDeque::new(),
            mtu: None,
        }
    }

    /// The last PSN that the packet takes up: its own, or that of the last response a READ asks
    /// for. `None` if the path MTU or the length is not known.
    pub(super) fn last_psn(&self, piece: &Piece) -> Option<Psn> {
        if piece.opcode.operation() != Operation::ReadRequest {
            return Some(piece.psn);
        }
        let len = piece.reth?.dma_len;
        match self.mtu {
            Some(mtu) => Some(piece.psn.plus(responses(len, mtu) - 1)),
            None if len <= 256 => Some(piece.psn),
            None => None,
        }
    }

    /// Checks a request against what comes before it, and takes it into account.
    pub(super) fn take(&mut self, piece: &Piece, found: &mut Found) {
        let again = self.recall(piece.psn);
        let before = if piece.psn == self.next {
            self.before
        } else {
            match again {
                Some(m) => self.before(&m, piece.psn),
                None => Before::Unknown,
            }
        };
        if let Some(m) = again
            && m.first == piece.psn
            && m.operation != piece.opcode.operation()
        {
            let text = format!(
                "{} with the PSN of an earlier {:?}",
                piece.opcode, m.operation
            );
            put(found, Rule::ResentDiffers, text);
        }
        self.check_order(before, piece, found);
        match piece.opcode.operation() {
            Operation::Send | Operation::Write => self.check_mtu(piece, found),
            Operation::ReadRequest => self.check_rest(before, piece, found),
            _ => {}
        }
        let part = self.part(before, piece);
        self.check_total(&part, piece, found);
        self.remember(&part, piece, matches!(before, Before::Read(_)));
        self.next = self.last_psn(piece).unwrap_or(piece.psn).plus(1);
        self.before = if piece.opcode.ends_message() {
            Before::Between
        } else {
            part.map_or(Before::Unknown, Before::Inside)
        };
    }

    /// The message that `psn` is known to belong to, or to come right behind.
    fn recall(&self, psn: Psn) -> Option<Message> {
        let holds = |m: &&Message| psn.after(m.first) >= 0 && psn.after(m.upto) <= 0;
        let follows = |m: &&Message| psn == m.upto.plus(1);
        let mut newest = self.recent.iter().rev();
        let found = newest.clone().find(holds).or_else(|| newest.find(follows));
        found.copied()
    }

    /// First and last PSN of the message that `psn` is of, as far as it was seen.
    pub(super) fn bounds(&self, psn: Psn) -> Option<(u32, u32)> {
        let m = self.message_of(psn)?;
        Some((m.first.get(), m.upto.get()))
    }

    /// The last PSN seen, in order, of the SEND or WRITE of several packets that begins with `psn`, and
    /// whether that is its end.
    pub(super) fn begun_with(&self, psn: Psn) -> Option<(Psn, bool)> {
        let m = self.message_of(psn).filter(|m| m.first == psn)?;
        let data = matches!(m.operation, Operation::Send | Operation::Write);
        (data && (!m.complete || m.upto != psn)).then_some((m.upto, m.complete))
    }

    fn message_of(&self, psn: Psn) -> Option<&Message> {
        let mut newest = self.recent.iter().rev();
        newest.find(|m| psn.after(m.first) >= 0 && psn.after(m.upto) <= 0)
    }

    fn before(&self, m: &Message, psn: Psn) -> Before {
        if psn == m.first || (m.complete && psn == m.upto.plus(1)) {
            return Before::Between;
        }
        match (m.operation, self.mtu) {
            (Operation::ReadRequest, _) => Before::Read(*m),
            (_, Some(mtu)) => Before::Inside(Part {
                operation: m.operation,
                first: m.first,
                bytes: u64::from(psn.after(m.first).unsigned_abs()) * u64::from(mtu),
                total: m.total,
            }),
            (_, None) => Before::Unknown,
        }
    }

    fn check_order(&self, before: Before, piece: &Piece, found: &mut Found) {
        let opcode = piece.opcode;
        match (before, opcode.position()) {
            (Before::Inside(part), Position::First | Position::Only) => {
                let text = format!(
                    "{opcode} inside the {:?} that began with PSN {}",
                    part.operation, part.first
                );
                put(found, Rule::OpcodeSequence, text);
            }
            (Before::Inside(part), _) if part.operation != opcode.operation() => {
                let text = format!(
                    "{opcode} continues the {:?} that began with PSN {}",
                    part.operation, part.first
                );
                put(found, Rule::OpcodeSequence, text);
            }
            (Before::Between, Position::Middle | Position::Last) => {
                let text = format!("{opcode}, but no message has begun");
                put(found, Rule::OpcodeSequence, text);
            }
            (Before::Read(m), _) if opcode.operation() != Operation::ReadRequest => {
                let text = format!(
                    "{opcode} with a PSN of the responses to the READ request with PSN {}",
                    m.first
                );
                put(found, Rule::OpcodeSequence, text);
            }
            _ => {}
        }
    }

    /// Payload against path MTU and position; the first packet that must be full tells the MTU.
    fn check_mtu(&mut self, piece: &Piece, found: &mut Found) {
        let Piece {
            opcode, payload, ..
        } = *piece;
        let full = matches!(opcode.position(), Position::First | Position::Middle);
        let wrong = match (self.mtu, full) {
            (None, true) if is_mtu(payload) => {
                self.mtu = Some(payload as u32);
                None
            }
            (None, true) => Some("is no path MTU (256, 512, 1024, 2048, 4096)".into()),
            (Some(mtu), true) if payload != mtu as usize => Some(format!(
                "is not the path MTU of {mtu} that the connection has"
            )),
            (_, false) if payload == 0 && opcode.position() == Position::Last => {
                Some("is less than the last packet of a message has, 1".into())
            }
            (mtu, false) if payload > mtu.unwrap_or(4096) as usize => Some(format!(
                "is more than the path MTU of {}",
                mtu.unwrap_or(4096)
            )),
            _ => None,
        };
        if let Some(wrong) = wrong {
            let text = format!("{opcode}: a payload of {payload} bytes {wrong}");
            put(found, Rule::PayloadLength, text);
        }
    }

    /// A READ request for the rest of an earlier one names the address and length of that rest
    /// (9.4.4).
    fn check_rest(&self, before: Before, piece: &Piece, found: &mut Found) {
        let (Before::Read(m), Some(reth), Some(mtu)) = (before, piece.reth, self.mtu) else {
            return;
        };
        let Some(total) = m.total else {
            return;
        };
        let done = u64::from(piece.psn.after(m.first).unsigned_abs()) * u64::from(mtu);
        let rest = u64::from(total).saturating_sub(done);
        if u64::from(reth.dma_len) != rest || reth.va != m.va.wrapping_add(done) {
            let text = format!(
                "READ request for {} bytes at {:#x}, the rest of the one with PSN {} is {rest} bytes at {:#x}",
                reth.dma_len,
                reth.va,
                m.first,
                m.va.wrapping_add(done)
            );
            put(found, Rule::MessageLength, text);
        }
    }

    /// The SEND or WRITE up to and with this packet; `None` if its beginning is not known.
    fn part(&self, before: Before, piece: &Piece) -> Option<Part> {
        let operation = piece.opcode.operation();
        let bytes = piece.payload as u64;
        match (before, piece.opcode.position()) {
            (_, Position::First | Position::Only) => Some(Part {
                operation,
                first: piece.psn,
                bytes,
                total: piece.reth.map(|r| r.dma_len),
            }),
            (Before::Inside(part), _) if part.operation == operation => Some(Part {
                bytes: part.bytes + bytes,
                ..part
            }),
            _ => None,
        }
    }

    fn check_total(&self, part: &Option<Part>, piece: &Piece, found: &mut Found) {
        let Some(Part {
            operation: Operation::Write,
            bytes,
            total: Some(total),
            ..
        }) = *part
        else {
            return;
        };
        let total = u64::from(total);
        let (ends, fits) = match piece.opcode.ends_message() {
            true => ("end", bytes == total),
            false => ("do not end", bytes < total),
        };
        if !fits {
            let text = format!(
                "{}: its payloads {ends} with {bytes} bytes, the RETH says {total}",
                piece.opcode
            );
            put(found, Rule::MessageLength, text);
        }
    }

    fn remember(&mut self, part: &Option<Part>, piece: &Piece, rest_of_read: bool) {
        let operation = piece.opcode.operation();
        if piece.opcode.begins_message() {
            if rest_of_read || self.recent.iter().any(|m| m.first == piece.psn) {
                return;
            }
            if self.recent.len() == REMEMBERED {
                self.recent.pop_front();
            }
            self.recent.push_back(Message {
                operation,
                first: piece.psn,
                upto: self.last_psn(piece).unwrap_or(piece.psn),
                complete: piece.opcode.ends_message(),
                total: piece.reth.map(|r| r.dma_len),
                va: piece.reth.map_or(0, |r| r.va),
            });
        } else if let Some(part) = part {
            let known = self.recent.iter_mut().rev().find(|m| m.first == part.first);
            if let Some(m) = known.filter(|m| piece.psn == m.upto.plus(1)) {
                m.upto = piece.psn;
                m.complete = piece.opcode.ends_message();
            }
        }
    }

    /// The last READ request ends at `last`, which was not known when it was seen.
    pub(super) fn settle_read(&mut self, last: Psn) {
        if let Some(m) = self.recent.back_mut()
            && m.operation == Operation::ReadRequest
        {
            m.upto = last;
            self.next = last.plus(1);
        }
    }
}
