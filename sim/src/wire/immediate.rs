//! Immediate data (5.2.11), 4 bytes.

/// Immediate data: four bytes in the order of the wire. libibverbs' `imm_data` holds the same bytes
/// in network byte order, as [`Immediate::from_be`] takes them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Immediate(pub [u8; 4]);

impl Immediate {
    /// Length on the wire in bytes.
    pub const LEN: usize = 4;

    /// The four bytes of `n`, most significant first.
    pub const fn from_be(n: u32) -> Immediate {
        Immediate(n.to_be_bytes())
    }

    /// The four bytes as a number, most significant first.
    pub const fn get(self) -> u32 {
        u32::from_be_bytes(self.0)
    }
}
