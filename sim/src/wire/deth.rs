//! Datagram extended transport header (9.3.2), 8 bytes.

use super::QpNumber;

/// The datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// The reserved byte before the source, kept as received.
    pub reserved: u8,
    /// Queue pair that sent the datagram.
    pub src_qp: QpNumber,
}

impl Deth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 8;

    /// Reads the 8 bytes.
    pub const fn from_bytes(b: &[u8; 8]) -> Deth {
        Deth {
            qkey: u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
            reserved: b[4],
            src_qp: QpNumber::new(u32::from_be_bytes([b[4], b[5], b[6], b[7]])),
        }
    }

    /// Writes the 8 bytes.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut b = [0; 8];
        b[..4].copy_from_slice(&self.qkey.to_be_bytes());
        b[4..].copy_from_slice(&(u32::from(self.reserved) << 24 | self.src_qp.get()).to_be_bytes());
        b
    }
}
