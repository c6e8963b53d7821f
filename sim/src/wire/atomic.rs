//! Headers of atomic operations: AtomicETH, 28 bytes, and AtomicAckETH, 8 bytes.

use super::RemoteKey;

/// The atomic extended transport header. Packed so that it fits a packet value beside its tag.
#[repr(Rust, packed(4))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicEth {
    /// Virtual address, 8-byte aligned (9.4.5).
    pub va: u64,
    /// Key of the region or window.
    pub rkey: RemoteKey,
    /// New value of a compare-and-swap, or what a fetch-and-add adds.
    pub swap_add: u64,
    /// Value a compare-and-swap compares with.
    pub compare: u64,
}

impl AtomicEth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 28;

    /// Reads the 28 bytes.
    pub fn from_bytes(b: &[u8; 28]) -> AtomicEth {
        let u64_at = |i: usize| {
            let mut n = [0; 8];
            n.copy_from_slice(&b[i..i + 8]);
            u64::from_be_bytes(n)
        };
        AtomicEth {
            va: u64_at(0),
            rkey: RemoteKey(u32::from_be_bytes([b[8], b[9], b[10], b[11]])),
            swap_add: u64_at(12),
            compare: u64_at(20),
        }
    }

    /// Writes the 28 bytes.
    pub fn to_bytes(self) -> [u8; 28] {
        let mut b = [0; 28];
        b[..8].copy_from_slice(&self.va.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        b[12..20].copy_from_slice(&self.swap_add.to_be_bytes());
        b[20..].copy_from_slice(&self.compare.to_be_bytes());
        b
    }
}

/// The atomic acknowledge extended transport header: the value before the operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicAckEth(pub u64);

impl AtomicAckEth {
    /// Length on the wire in bytes.
    pub const LEN: usize = 8;
}
