//! Base transport header (9.2), 12 bytes.

use super::{Opcode, Psn, QpNumber};
use std::fmt;

/// The base transport header as it stands on the wire, reserved bits included, so that decoding and
/// encoding a header gives back its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bth {
    // Host byte order of the three big-endian words.
    w0: u32, // opcode 8, SE 1, MigReq 1, pad count 2, TVer 4, P_Key 16
    w1: u32, // FECN 1, BECN 1, resv6 6, destination QP 24
    w2: u32, // AckReq 1, resv7 7, PSN 24
}

const SOLICITED: u32 = 1 << 23;
const MIG_REQ: u32 = 1 << 22;
const ACK_REQ: u32 = 1 << 31;
const LOW24: u32 = 0x00ff_ffff;

impl Bth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 12;
    /// The P_Key every port has (10.9.1.2).
    pub const DEFAULT_PKEY: u16 = 0xffff;

    /// A header with MigReq set (the state "migrated"), the default P_Key and all else zero.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qp: QpNumber, psn: Psn) -> Bth {
        Bth {
            w0: (opcode.0 as u32) << 24 | MIG_REQ | Self::DEFAULT_PKEY as u32,
            w1: dest_qp.get(),
            w2: psn.get(),
        }
    }

    /// Reads the 12 bytes.
    #[inline]
    pub const fn from_bytes(b: &[u8; 12]) -> Bth {
        Bth {
            w0: u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
            w1: u32::from_be_bytes([b[4], b[5], b[6], b[7]]),
            w2: u32::from_be_bytes([b[8], b[9], b[10], b[11]]),
        }
    }

    /// Writes the 12 bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; 12] {
        let mut b = [0; 12];
        b[..4].copy_from_slice(&self.w0.to_be_bytes());
        b[4..8].copy_from_slice(&self.w1.to_be_bytes());
        b[8..].copy_from_slice(&self.w2.to_be_bytes());
        b
    }

    /// The opcode.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        Opcode((self.w0 >> 24) as u8)
    }

    /// Solicited event.
    #[inline]
    pub const fn solicited(&self) -> bool {
        self.w0 & SOLICITED != 0
    }

    /// Migration request; set in the state "migrated".
    #[inline]
    pub const fn mig_req(&self) -> bool {
        self.w0 & MIG_REQ != 0
    }

    /// Pad bytes after the payload, 0 to 3.
    #[inline]
    pub const fn pad_count(&self) -> u8 {
        (self.w0 >> 20) as u8 & 3
    }

    /// Transport header version; zero is the only one there is.
    #[inline]
    pub const fn tver(&self) -> u8 {
        (self.w0 >> 16) as u8 & 0xf
    }

    /// Partition key.
    #[inline]
    pub const fn pkey(&self) -> u16 {
        self.w0 as u16
    }

    /// Forward congestion bit; unused in RoCEv2 (CA17-29).
    #[inline]
    pub const fn fecn(&self) -> bool {
        self.w1 >> 31 != 0
    }

    /// Backward congestion bit; unused in RoCEv2 (CA17-29).
    #[inline]
    pub const fn becn(&self) -> bool {
        self.w1 >> 30 & 1 != 0
    }

    /// The six reserved bits beside FECN and BECN (9.2.11).
    #[inline]
    pub const fn resv6(&self) -> u8 {
        (self.w1 >> 24) as u8 & 0x3f
    }

    /// Destination queue pair.
    #[inline]
    pub const fn dest_qp(&self) -> QpNumber {
        QpNumber::new(self.w1)
    }

    /// The requester asks for an acknowledgement.
    #[inline]
    pub const fn ack_req(&self) -> bool {
        self.w2 & ACK_REQ != 0
    }

    /// The seven reserved bits beside AckReq.
    #[inline]
    pub const fn resv7(&self) -> u8 {
        (self.w2 >> 24) as u8 & 0x7f
    }

    /// Packet sequence number.
    #[inline]
    pub const fn psn(&self) -> Psn {
        Psn::new(self.w2)
    }

    /// With the solicited event bit set or cleared.
    #[inline]
    #[must_use]
    pub const fn with_solicited(mut self, on: bool) -> Bth {
        self.w0 = if on {
            self.w0 | SOLICITED
        } else {
            self.w0 & !SOLICITED
        };
        self
    }

    /// With MigReq set or cleared.
    #[inline]
    #[must_use]
    pub const fn with_mig_req(mut self, on: bool) -> Bth {
        self.w0 = if on {
            self.w0 | MIG_REQ
        } else {
            self.w0 & !MIG_REQ
        };
        self
    }

    /// With the low two bits of `pad` as pad count.
    #[inline]
    #[must_use]
    pub const fn with_pad_count(mut self, pad: u8) -> Bth {
        self.w0 = self.w0 & !(3 << 20) | ((pad & 3) as u32) << 20;
        self
    }

    /// With the low four bits of `tver` as transport version.
    #[inline]
    #[must_use]
    pub const fn with_tver(mut self, tver: u8) -> Bth {
        self.w0 = self.w0 & !(0xf << 16) | ((tver & 0xf) as u32) << 16;
        self
    }

    /// With another partition key.
    #[inline]
    #[must_use]
    pub const fn with_pkey(mut self, pkey: u16) -> Bth {
        self.w0 = self.w0 & 0xffff_0000 | pkey as u32;
        self
    }

    /// With the whole byte of FECN, BECN and the six reserved bits.
    #[inline]
    #[must_use]
    pub const fn with_byte4(mut self, byte: u8) -> Bth {
        self.w1 = self.w1 & LOW24 | (byte as u32) << 24;
        self
    }

    /// With another destination.
    #[inline]
    #[must_use]
    pub const fn with_dest_qp(mut self, qp: QpNumber) -> Bth {
        self.w1 = self.w1 & !LOW24 | qp.get();
        self
    }

    /// With AckReq set or cleared.
    #[inline]
    #[must_use]
    pub const fn with_ack_req(mut self, on: bool) -> Bth {
        self.w2 = if on {
            self.w2 | ACK_REQ
        } else {
            self.w2 & !ACK_REQ
        };
        self
    }

    /// With another PSN.
    #[inline]
    #[must_use]
    pub const fn with_psn(mut self, psn: Psn) -> Bth {
        self.w2 = self.w2 & !LOW24 | psn.get();
        self
    }

    /// With another opcode.
    #[inline]
    #[must_use]
    pub const fn with_opcode(mut self, opcode: Opcode) -> Bth {
        self.w0 = self.w0 & LOW24 | (opcode.0 as u32) << 24;
        self
    }
}

impl fmt::Debug for Bth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bth")
            .field("opcode", &self.opcode())
            .field("solicited", &self.solicited())
            .field("mig_req", &self.mig_req())
            .field("pad_count", &self.pad_count())
            .field("tver", &self.tver())
            .field("pkey", &format_args!("{:#06x}", self.pkey()))
            .field("byte4", &format_args!("{:#04x}", self.w1 >> 24))
            .field("dest_qp", &self.dest_qp())
            .field("ack_req", &self.ack_req())
            .field("resv7", &self.resv7())
            .field("psn", &self.psn())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_a_kernel_frame() {
        // UC SEND Only, pad 2, from the RoCEv2/IPv4 frame of a ConnectX (see tests of `frame`).
        let b = Bth::from_bytes(&[0x24, 0x60, 0xff, 0xff, 0, 0, 0, 0xd3, 0, 0xcf, 0x17, 0x10]);
        assert_eq!(b.opcode(), Opcode(0x24));
        assert_eq!(b.pad_count(), 2);
        assert!(b.mig_req() && !b.solicited() && !b.ack_req());
        assert_eq!(b.dest_qp().get(), 0xd3);
        assert_eq!(b.psn().get(), 0xcf1710);
    }

    proptest! {
        #[test]
        fn bytes_survive(bytes: [u8; 12]) {
            prop_assert_eq!(Bth::from_bytes(&bytes).to_bytes(), bytes);
        }

        // Setting one field must not touch its neighbours (rxe set resv6 over the destination).
        #[test]
        fn each_setter_touches_its_own_field(bytes: [u8; 12], v: u32, on: bool) {
            let b = Bth::from_bytes(&bytes);
            let cases: [(Bth, [u8; 12]); 10] = [
                (b.with_opcode(Opcode(v as u8)), [0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                (b.with_solicited(on), [0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                (b.with_mig_req(on), [0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                (b.with_pad_count(v as u8), [0, 0x30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                (b.with_tver(v as u8), [0, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                (b.with_pkey(v as u16), [0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]),
                (b.with_byte4(v as u8), [0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0]),
                (b.with_dest_qp(QpNumber::new(v)), [0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
                (b.with_ack_req(on), [0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0]),
                (b.with_psn(Psn::new(v)), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff]),
            ];
            for (set, mask) in cases {
                for (i, &m) in mask.iter().enumerate() {
                    prop_assert_eq!((set.to_bytes()[i] ^ bytes[i]) & !m, 0);
                }
            }
            prop_assert_eq!(b.with_byte4(v as u8).resv6(), v as u8 & 0x3f);
            prop_assert_eq!(b.with_psn(Psn::new(v)).psn(), Psn::new(v));
            prop_assert_eq!(b.with_pad_count(v as u8).pad_count(), v as u8 & 3);
        }
    }
}
