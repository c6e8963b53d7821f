//! A packet as a value of at most 64 bytes: what a card hands to its driver, and what crosses the
//! links and switches of a virtual network.
//!
//! Addresses are interned in a [`RouteTable`](super::RouteTable), the payload is a handle into the
//! driver's pool or just a length. The whole frame with owned bytes is another type, made at a real
//! port, for a capture, or by a test.

use super::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Immediate, RemoteKey, Reth, RouteId};

/// A packet between cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Extended headers.
    pub ext: Ext,
    /// Base transport header. Its pad count is that of `payload`.
    pub bth: Bth,
    /// Addresses, ports, VLAN and class.
    pub route: RouteId,
    /// The data carried.
    pub payload: Payload,
    /// Bytes of the Ethernet frame from the destination address up to and with the FCS, without
    /// preamble and inter-packet gap.
    pub frame_len: u16,
    /// Ethernet priority, 0 to 7.
    pub priority: u8,
    /// ECN bits of the IP header.
    pub ecn: Ecn,
    /// What a faulty link or device has done to it.
    pub damage: Damage,
    /// Routers it may still cross (TTL or hop limit).
    pub hop_limit: u8,
}

const _: () = assert!(size_of::<Packet>() <= 64);

/// Bytes a frame takes on the wire beyond itself: preamble, start delimiter and inter-packet gap.
pub const FRAME_OVERHEAD: u16 = 20;
/// The shortest Ethernet frame; a shorter one is padded on the wire.
pub const MIN_FRAME: u16 = 64;

impl Packet {
    /// Bytes it takes on the wire, with preamble, gap and what a short frame is padded with.
    #[inline]
    pub const fn wire_len(&self) -> u32 {
        let frame = if self.frame_len < MIN_FRAME {
            MIN_FRAME
        } else {
            self.frame_len
        };
        frame as u32 + FRAME_OVERHEAD as u32
    }
}

/// Extended transport headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ext {
    /// None.
    None,
    /// ACK, or first, last or only READ response.
    Aeth(Aeth),
    /// First or only WRITE, or READ request.
    Reth(Reth),
    /// Only WRITE with immediate data.
    RethImmediate(Reth, Immediate),
    /// Last or only SEND, or last WRITE, with immediate data.
    Immediate(Immediate),
    /// SEND with invalidate.
    Ieth(RemoteKey),
    /// Atomic request.
    Atomic(AtomicEth),
    /// Atomic answer.
    AtomicAck(Aeth, AtomicAckEth),
    /// Datagram.
    Deth(Deth),
    /// Datagram with immediate data.
    DethImmediate(Deth, Immediate),
    /// The 16 reserved bytes of a CNP, all zero (A17.9.3); the packet has no payload.
    Cnp,
}

/// The payload of a packet: a snapshot in the driver's pool, or a length alone in simulations that
/// carry no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload {
    slot: u32,
    len: u16,
}

impl Payload {
    /// No payload.
    pub const EMPTY: Payload = Payload {
        slot: u32::MAX,
        len: 0,
    };

    /// `len` bytes that are counted but not carried.
    #[inline]
    pub const fn counted(len: u16) -> Payload {
        Payload {
            slot: u32::MAX,
            len,
        }
    }

    /// `len` bytes in slot `slot` of the driver's pool; `slot` must not be `u32::MAX`.
    #[inline]
    pub const fn stored(slot: u32, len: u16) -> Payload {
        Payload { slot, len }
    }

    /// Length in bytes, without pad.
    #[inline]
    pub const fn len(self) -> u16 {
        self.len
    }

    /// True if there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The slot in the driver's pool; `None` for a counted payload.
    #[inline]
    pub const fn slot(self) -> Option<u32> {
        if self.slot == u32::MAX {
            None
        } else {
            Some(self.slot)
        }
    }

    /// Bytes that pad it to a multiple of four.
    #[inline]
    pub const fn pad_count(self) -> u8 {
        (self.len.wrapping_neg() & 3) as u8
    }
}

/// The ECN field of the IP header (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ecn {
    /// 00: the sender does not take part.
    #[default]
    NotCapable,
    /// 01.
    Capable1,
    /// 10.
    Capable0,
    /// 11: congestion experienced.
    Experienced,
}

impl Ecn {
    /// The two bits.
    pub const fn bits(self) -> u8 {
        match self {
            Ecn::NotCapable => 0,
            Ecn::Capable1 => 1,
            Ecn::Capable0 => 2,
            Ecn::Experienced => 3,
        }
    }

    /// From the low two bits.
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::Experienced,
        }
    }
}

/// What happened to a packet's bits on the way. The bits themselves stay as sent, so a packet that
/// was damaged is known by this mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Damage {
    /// Whole.
    #[default]
    None,
    /// Bits flipped on a link: the FCS is wrong, and the next receiver drops the frame.
    Link,
    /// Bits flipped inside a device, which gave the frame a fresh FCS: only the ICRC is wrong.
    Device,
}

impl Ext {
    /// Length of the reserved bytes of a CNP.
    pub const CNP_LEN: usize = 16;

    /// Length on the wire in bytes.
    #[inline]
    pub const fn len(&self) -> u16 {
        (match self {
            Ext::None => 0,
            Ext::Aeth(_) => Aeth::LEN,
            Ext::Reth(_) => Reth::LEN,
            Ext::RethImmediate(..) => Reth::LEN + Immediate::LEN,
            Ext::Immediate(_) | Ext::Ieth(_) => Immediate::LEN,
            Ext::Atomic(_) => AtomicEth::LEN,
            Ext::AtomicAck(..) => Aeth::LEN + AtomicAckEth::LEN,
            Ext::Deth(_) => Deth::LEN,
            Ext::DethImmediate(..) => Deth::LEN + Immediate::LEN,
            Ext::Cnp => Ext::CNP_LEN,
        }) as u16
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        matches!(self, Ext::None)
    }

    /// The AETH, if there is one.
    #[inline]
    pub const fn aeth(&self) -> Option<Aeth> {
        match self {
            Ext::Aeth(a) | Ext::AtomicAck(a, _) => Some(*a),
            _ => None,
        }
    }

    /// The RETH, if there is one.
    #[inline]
    pub const fn reth(&self) -> Option<Reth> {
        match self {
            Ext::Reth(r) | Ext::RethImmediate(r, _) => Some(*r),
            _ => None,
        }
    }

    /// The immediate data, if there is any.
    #[inline]
    pub const fn immediate(&self) -> Option<Immediate> {
        match self {
            Ext::Immediate(i) | Ext::RethImmediate(_, i) | Ext::DethImmediate(_, i) => Some(*i),
            _ => None,
        }
    }

    /// The DETH, if there is one.
    #[inline]
    pub const fn deth(&self) -> Option<Deth> {
        match self {
            Ext::Deth(d) | Ext::DethImmediate(d, _) => Some(*d),
            _ => None,
        }
    }
}
