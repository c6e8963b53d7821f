//! ACK extended transport header, 4 bytes: a syndrome and the responder's MSN.

use super::Msn;

/// The ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// The syndrome byte; [`Syndrome::kind`] reads it.
    pub syndrome: Syndrome,
    /// Number of messages the responder has completed, modulo 2^24 (C9-148).
    pub msn: Msn,
}

/// The syndrome byte of an AETH: the top three bits say ACK, RNR NAK or NAK, the low five hold
/// credits, timer or code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Syndrome(pub u8);

/// What a syndrome says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SyndromeKind {
    /// Positive; the low five bits are the encoded credit count, 31 for "not limited".
    Ack {
        /// Encoded end-to-end credits (9.7.7.2).
        credits: u8,
    },
    /// Receiver not ready; the low five bits are the encoded waiting time.
    RnrNak {
        /// Encoded waiting time (9.7.5.2.8).
        timer: u8,
    },
    /// Negative.
    Nak(NakCode),
    /// A reserved value.
    Reserved,
}

/// Why a request was refused (9.7.5.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NakCode {
    /// A request was lost on the way.
    PsnSequenceError,
    /// The responder does not take this request.
    InvalidRequest,
    /// The key, range or rights do not allow it.
    RemoteAccessError,
    /// The responder failed.
    RemoteOperationalError,
    /// Reliable datagram only.
    InvalidRdRequest,
}

impl Syndrome {
    /// Encoded credits that mean "no end-to-end flow control".
    pub const UNLIMITED: u8 = 31;

    /// A positive acknowledgement with the low five bits of `credits`.
    #[inline]
    pub const fn ack(credits: u8) -> Syndrome {
        Syndrome(credits & 0x1f)
    }

    /// "Receiver not ready" with the low five bits of `timer`.
    #[inline]
    pub const fn rnr_nak(timer: u8) -> Syndrome {
        Syndrome(0x20 | timer & 0x1f)
    }

    /// A refusal.
    #[inline]
    pub const fn nak(code: NakCode) -> Syndrome {
        Syndrome(
            0x60 | match code {
                NakCode::PsnSequenceError => 0,
                NakCode::InvalidRequest => 1,
                NakCode::RemoteAccessError => 2,
                NakCode::RemoteOperationalError => 3,
                NakCode::InvalidRdRequest => 4,
            },
        )
    }

    /// What the byte says.
    #[inline]
    pub const fn kind(self) -> SyndromeKind {
        let low = self.0 & 0x1f;
        match self.0 >> 5 {
            0 => SyndromeKind::Ack { credits: low },
            1 => SyndromeKind::RnrNak { timer: low },
            3 => match low {
                0 => SyndromeKind::Nak(NakCode::PsnSequenceError),
                1 => SyndromeKind::Nak(NakCode::InvalidRequest),
                2 => SyndromeKind::Nak(NakCode::RemoteAccessError),
                3 => SyndromeKind::Nak(NakCode::RemoteOperationalError),
                4 => SyndromeKind::Nak(NakCode::InvalidRdRequest),
                _ => SyndromeKind::Reserved,
            },
            _ => SyndromeKind::Reserved,
        }
    }
}

impl Aeth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 4;

    /// Reads the 4 bytes.
    #[inline]
    pub const fn from_bytes(b: &[u8; 4]) -> Aeth {
        Aeth {
            syndrome: Syndrome(b[0]),
            msn: Msn::new(u32::from_be_bytes(*b)),
        }
    }

    /// Writes the 4 bytes.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 4] {
        ((self.syndrome.0 as u32) << 24 | self.msn.get()).to_be_bytes()
    }
}

impl std::fmt::Display for NakCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NakCode::PsnSequenceError => "PSN sequence error",
            NakCode::InvalidRequest => "invalid request",
            NakCode::RemoteAccessError => "remote access error",
            NakCode::RemoteOperationalError => "remote operational error",
            NakCode::InvalidRdRequest => "invalid RD request",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_of_the_kernel_captures() {
        // rc_rnr_late: 0x36 is RNR NAK with timer 22; loss_send_middle: 96 is a sequence NAK;
        // rc_nak_short_recv: 0x63; plain ACKs carry 31.
        assert_eq!(Syndrome(0x36).kind(), SyndromeKind::RnrNak { timer: 22 });
        assert_eq!(
            Syndrome(96).kind(),
            SyndromeKind::Nak(NakCode::PsnSequenceError)
        );
        assert_eq!(
            Syndrome(0x63).kind(),
            SyndromeKind::Nak(NakCode::RemoteOperationalError)
        );
        assert_eq!(
            Syndrome(31).kind(),
            SyndromeKind::Ack {
                credits: Syndrome::UNLIMITED
            }
        );
        assert_eq!(Syndrome(0x40).kind(), SyndromeKind::Reserved);
        assert_eq!(Syndrome(0x65).kind(), SyndromeKind::Reserved);
    }

    #[test]
    fn bytes_survive() {
        for n in [0u32, 0x6200_0001, 0x1fff_ffff, 0xffff_ffff, 0x3600_1234] {
            assert_eq!(
                Aeth::from_bytes(&n.to_be_bytes()).to_bytes(),
                n.to_be_bytes()
            );
        }
    }
}
