//! What a card asks of its driver while it works: a place for payload, and someone to tell.

use crate::wire::{Packet, Payload};

/// The driver's side of a call into the card.
///
/// A virtual network keeps payloads in a pool, or counts them; a real port gives the buffer that the
/// datagram is sent from, so that staging is the one copy a payload sees.
pub trait Env {
    /// Takes room for `len` bytes (at most 4096, never 0) and lets `fill` write the snapshot into it.
    /// An environment that only counts payloads does not call `fill`.
    fn stage(&mut self, len: u16, fill: impl FnOnce(&mut [u8])) -> Payload;

    /// The bytes of a payload that arrived; `None` if it is only counted.
    fn payload(&self, payload: Payload) -> Option<&[u8]>;

    /// Is told of everything the card does. The default compiles out.
    #[inline]
    fn observe(&mut self, event: impl FnOnce() -> Deed) {
        let _ = event;
    }
}

/// The full stream of what a card does, for captures and reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// A request packet is handed to the port.
    Request {
        /// The packet.
        packet: Packet,
        /// How often this PSN was sent before.
        again: bool,
    },
    /// A response packet is handed to the port.
    Response {
        /// The packet.
        packet: Packet,
    },
    /// A congestion notification packet is handed to the port.
    Notification {
        /// The packet.
        packet: Packet,
    },
    /// A packet was dropped by the card, with the reason.
    Refused {
        /// The packet.
        packet: Packet,
        /// Why.
        why: Refusal,
    },
}

/// Why a card drops a packet that reached it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// The ICRC does not match (A17.3.4).
    BadIcrc,
    /// No queue pair has that number.
    UnknownQueuePair,
    /// The queue pair is not in a state that receives.
    WrongState,
    /// The opcode's service is not the queue pair's.
    WrongService,
    /// The addresses are not those of the connection (A17.4.4.2).
    WrongAddress,
    /// The P_Key does not match (C9-43).
    BadPkey,
    /// The Q_Key is not the queue pair's.
    BadQkey,
    /// A datagram does not fit the receive request (C9-205).
    TooLong,
    /// Transport version, opcode or length cannot be.
    Malformed,
    /// A response nobody waits for.
    Ghost,
    /// A request that was already carried out; it is acknowledged again (C9-105).
    Duplicate,
    /// A request after a gap; one NAK is sent for the gap.
    OutOfSequence,
    /// No receive request is posted; an RNR NAK is sent.
    ReceiverNotReady,
    /// The card ran out of places to remember it.
    NoResources,
    /// The request failed for another reason; on a reliable connection a NAK says so.
    Nak,
    /// A key does not allow what a packet of an unreliable connection asks for.
    BadKey,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 16] = [
        Refusal::BadIcrc,
        Refusal::UnknownQueuePair,
        Refusal::WrongState,
        Refusal::WrongService,
        Refusal::WrongAddress,
        Refusal::BadPkey,
        Refusal::BadQkey,
        Refusal::TooLong,
        Refusal::Malformed,
        Refusal::Ghost,
        Refusal::Duplicate,
        Refusal::OutOfSequence,
        Refusal::ReceiverNotReady,
        Refusal::NoResources,
        Refusal::Nak,
        Refusal::BadKey,
    ];

    /// A name for reports: `bad-icrc`.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::BadIcrc => "bad-icrc",
            Refusal::UnknownQueuePair => "unknown-qp",
            Refusal::WrongState => "wrong-state",
            Refusal::WrongService => "wrong-service",
            Refusal::WrongAddress => "wrong-address",
            Refusal::BadPkey => "bad-pkey",
            Refusal::BadQkey => "bad-qkey",
            Refusal::TooLong => "too-long",
            Refusal::Malformed => "malformed",
            Refusal::Ghost => "ghost",
            Refusal::Duplicate => "duplicate",
            Refusal::OutOfSequence => "out-of-sequence",
            Refusal::ReceiverNotReady => "receiver-not-ready",
            Refusal::NoResources => "no-resources",
            Refusal::Nak => "nak",
            Refusal::BadKey => "bad-key",
        }
    }
}

/// A set of Ethernet priorities.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PriorityMask(pub u8);

impl PriorityMask {
    /// No priority.
    pub const NONE: PriorityMask = PriorityMask(0);
    /// All eight.
    pub const ALL: PriorityMask = PriorityMask(0xff);

    /// True if `priority` (0 to 7) is among them.
    #[inline]
    pub const fn contains(self, priority: u8) -> bool {
        self.0 >> (priority & 7) & 1 != 0
    }

    /// These and `priority` (0 to 7).
    #[inline]
    #[must_use]
    pub const fn with(self, priority: u8) -> PriorityMask {
        PriorityMask(self.0 | 1 << (priority & 7))
    }

    /// These without `priority` (0 to 7).
    #[inline]
    #[must_use]
    pub const fn without(self, priority: u8) -> PriorityMask {
        PriorityMask(self.0 & !(1 << (priority & 7)))
    }

    /// Those in both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: PriorityMask) -> PriorityMask {
        PriorityMask(self.0 & other.0)
    }

    /// The highest one.
    #[inline]
    pub const fn highest(self) -> Option<u8> {
        match self.0.checked_ilog2() {
            Some(priority) => Some(priority as u8),
            None => None,
        }
    }

    /// True if there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{PriorityMask, Refusal};
    use std::collections::BTreeSet;

    #[test]
    fn each_refusal_has_a_name_of_its_own() {
        let names = Refusal::ALL.map(Refusal::name);
        assert_eq!(BTreeSet::from(names).len(), Refusal::ALL.len());
        for (why, name) in Refusal::ALL.into_iter().zip(names) {
            let same = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(!name.is_empty() && name.chars().all(same), "{why:?}");
        }
    }

    #[test]
    fn a_mask_has_the_priorities_that_were_put_into_it() {
        for set in 0..=u8::MAX {
            let mask = PriorityMask(set);
            assert_eq!(mask.is_empty(), set == 0);
            let all = (0..8).filter(|&p| mask.contains(p));
            assert_eq!(mask.highest(), all.max());
            for p in 0..8 {
                let bit = 1 << p;
                assert_eq!(mask.contains(p), set / bit % 2 == 1, "{p} in {set:#b}");
                let others = set - if mask.contains(p) { bit } else { 0 };
                assert_eq!(mask.with(p), PriorityMask(others + bit));
                assert_eq!(mask.without(p), PriorityMask(others));
                assert_eq!(mask.and(PriorityMask(bit)).is_empty(), !mask.contains(p));
            }
        }
    }
}
