//! RDMA extended transport header, 16 bytes: where a WRITE goes or what a READ asks for.

use super::RemoteKey;

/// The RDMA extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reth {
    /// Virtual address in the responder's region.
    pub va: u64,
    /// Key of that region or window.
    pub rkey: RemoteKey,
    /// Length of the whole message in bytes; up to 2^31 is valid (C9-94).
    pub dma_len: u32,
}

impl Reth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 16;

    /// Reads the 16 bytes.
    pub fn from_bytes(b: &[u8; 16]) -> Reth {
        let [
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            k0,
            k1,
            k2,
            k3,
            l0,
            l1,
            l2,
            l3,
        ] = *b;
        Reth {
            va: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            rkey: RemoteKey(u32::from_be_bytes([k0, k1, k2, k3])),
            dma_len: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    /// Writes the 16 bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&self.va.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        b[12..].copy_from_slice(&self.dma_len.to_be_bytes());
        b
    }
}
