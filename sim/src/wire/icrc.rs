//! The invariant CRC: what a packet carries end to end (7.8.1, CA17-22).
//!
//! It is the CRC-32 of zlib over 64 one bits, in place of the LRH, and then the datagram from its
//! IP header or GRH up to and with the pad. Fields that change on the way count as all ones: IPv4
//! TOS, TTL and header checksum; traffic class, flow label and hop limit of IPv6 and GRH; the UDP
//! checksum; byte 4 of the BTH. On the wire it stands least significant byte first.

use crc32fast::Hasher;
use std::fmt;

/// An ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Icrc(pub u32);

/// The network header that the covered bytes begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layer {
    /// IPv4 without options, then UDP.
    Ipv4,
    /// IPv6 without extension headers, then UDP.
    Ipv6,
    /// The GRH of RoCEv1.
    Grh,
}

/// The ICRC of a packet is not the one its bytes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("ICRC {found} found, {computed} computed from the bytes")]
pub struct IcrcMismatch {
    /// That of the bytes.
    pub computed: Icrc,
    /// That in the packet.
    pub found: Icrc,
}

impl Layer {
    /// Bytes from the start of the network header to the start of the BTH.
    pub const fn len(self) -> usize {
        match self {
            Layer::Ipv4 => 20 + 8,
            Layer::Ipv6 => 40 + 8,
            Layer::Grh => 40,
        }
    }

    /// Always false: each layer has a header.
    pub const fn is_empty(self) -> bool {
        false
    }
}

/// The ICRC of a datagram in up to three pieces.
///
/// `headers` begins with the network header and holds at least everything up to and with the BTH
/// (a shorter one gives a value that means nothing); it may hold the whole datagram without its
/// ICRC. `payload` and `pad` follow it; they are hashed where they are.
///
/// ```
/// use softroce_sim::wire::icrc::{icrc, Icrc, Layer};
/// # let datagram = [0u8; 40];
/// let whole = icrc(Layer::Ipv4, &datagram, &[], &[]);
/// assert_eq!(icrc(Layer::Ipv4, &datagram[..40], &datagram[40..], &[]), whole);
/// ```
#[inline]
pub fn icrc(layer: Layer, headers: &[u8], payload: &[u8], pad: &[u8]) -> Icrc {
    let mut hasher = Hasher::new_with_initial(SEED);
    let rest = match layer {
        Layer::Ipv4 => masked(&mut hasher, headers, &IPV4_MASK),
        Layer::Ipv6 => masked(&mut hasher, headers, &IPV6_MASK),
        Layer::Grh => masked(&mut hasher, headers, &GRH_MASK),
    };
    for part in [rest, payload, pad] {
        if !part.is_empty() {
            hasher.update(part);
        }
    }
    Icrc(hasher.finalize())
}

/// Hashes the first `N` bytes of `headers` with the bits of `mask` set, and returns the bytes after
/// them.
#[inline]
fn masked<'a, const N: usize>(hasher: &mut Hasher, headers: &'a [u8], mask: &[u8; N]) -> &'a [u8] {
    let Some((head, rest)) = headers.split_first_chunk::<N>() else {
        return headers;
    };
    // A mask the compiler knows would be set byte by byte, and loads of whole vectors from single
    // bytes just stored stall: at 4 KiB that cost a third of the throughput.
    let mask = std::hint::black_box(mask);
    let mut covered = [0; N];
    for (to, (byte, mask)) in covered.iter_mut().zip(head.iter().zip(mask)) {
        *to = byte | mask;
    }
    hasher.update(&covered);
    rest
}

/// CRC-32 of the 64 one bits.
const SEED: u32 = 0x2144_df1c;

// The masks begin with the network header and end with the BTH.

static IPV4_MASK: [u8; 40] = {
    let mut mask = [0; 40];
    mask[1] = 0xff; // TOS
    mask[8] = 0xff; // TTL
    mask[10] = 0xff; // header checksum
    mask[11] = 0xff;
    mask[26] = 0xff; // UDP checksum
    mask[27] = 0xff;
    mask[28 + 4] = 0xff; // FECN, BECN, resv6
    mask
};

static IPV6_MASK: [u8; 60] = {
    let mut mask = forty();
    mask[46] = 0xff; // UDP checksum
    mask[47] = 0xff;
    mask[48 + 4] = 0xff;
    mask
};

static GRH_MASK: [u8; 52] = {
    let mut mask = forty();
    mask[40 + 4] = 0xff;
    mask
};

/// The fields that IPv6 and GRH have in common.
const fn forty<const N: usize>() -> [u8; N] {
    let mut mask = [0; N];
    mask[0] = 0x0f; // traffic class and flow label, behind the version
    mask[1] = 0xff;
    mask[2] = 0xff;
    mask[3] = 0xff;
    mask[7] = 0xff; // hop limit
    mask
}

/// The IPv4 identification with which a datagram of `len` bytes (IP header to pad) that has the
/// ICRC `computed` when its identification is 0 has the ICRC `found`; `None` if there is none.
///
/// A UDP socket hides the identification of what it receives. A CRC is linear, so the sixteen
/// unknown bits move it within 2^16 of the 2^32 values, and the difference names them. A damaged
/// packet passes with probability 2^-16 instead of 2^-32. Everything else, DF with it, must be
/// known; identification 0 is the plain comparison.
pub fn identification(computed: Icrc, found: Icrc, len: usize) -> Option<u16> {
    let difference = computed.0 ^ found.0;
    if difference == 0 {
        return Some(0);
    }
    // Running a register of the two bytes through the zero bytes that follow gives the difference;
    // so running the difference back through them gives the two bytes.
    let after = len.checked_sub(4)?;
    let bytes = rewind(difference, after)?;
    let id = u16::try_from(bytes).ok()?;
    Some(id.swap_bytes())
}

const POLYNOMIAL: u32 = 0xedb8_8320;
/// x^0 where the most significant bit is the lowest power.
const ONE: u32 = 1 << 31;

/// Product of two polynomials modulo the CRC's.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        product ^= b & ((a << bit) as i32 >> 31) as u32;
        b = b >> 1 ^ POLYNOMIAL & (b & 1).wrapping_neg();
        bit += 1;
    }
    product
}

/// x^-8, what one zero byte is undone with.
const UNDO_BYTE: u32 = {
    let mut v = ONE;
    let mut i = 0;
    while i < 8 {
        v = if v >> 31 != 0 {
            (v ^ POLYNOMIAL) << 1 | 1
        } else {
            v << 1
        };
        i += 1;
    }
    v
};

const fn powers<const N: usize>(of: u32) -> [u32; N] {
    let mut table = [ONE; N];
    let mut i = 1;
    while i < N {
        table[i] = multiply(table[i - 1], of);
        i += 1;
    }
    table
}

static UNDO_BYTES: [u32; 128] = powers(UNDO_BYTE);
static UNDO_128_BYTES: [u32; 512] = powers(multiply(UNDO_BYTES_127, UNDO_BYTE));
const UNDO_BYTES_127: u32 = powers::<128>(UNDO_BYTE)[127];

/// The register that becomes `crc` by way of `len` zero bytes; `None` above 65,535 of them.
fn rewind(crc: u32, len: usize) -> Option<u32> {
    let high = *UNDO_128_BYTES.get(len / 128)?;
    Some(multiply(multiply(crc, UNDO_BYTES[len % 128]), high))
}

impl Icrc {
    /// Length on the wire in bytes.
    pub const LEN: usize = 4;

    /// Reads the 4 bytes.
    #[inline]
    pub const fn from_bytes(b: [u8; 4]) -> Icrc {
        Icrc(u32::from_le_bytes(b))
    }

    /// Writes the 4 bytes.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

/// As its bytes stand on the wire: `78f353f3`.
impl fmt::Display for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0.swap_bytes())
    }
}

impl fmt::Debug for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Icrc({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_seed_is_the_crc_of_64_one_bits() {
        assert_eq!(SEED, crc32fast::hash(&[0xff; 8]));
    }

    #[test]
    fn zero_bytes_are_undone() {
        // From the register 0x1234 through n zero bytes, bit by bit, and back.
        for n in [0usize, 1, 127, 128, 129, 4096, 65_535] {
            let mut v = 0x1234u32;
            for _ in 0..n * 8 {
                v = v >> 1 ^ POLYNOMIAL & (v & 1).wrapping_neg();
            }
            assert_eq!(rewind(v, n), Some(0x1234), "{n}");
        }
        assert_eq!(rewind(1, 65_536), None);
    }

    proptest! {
        #[test]
        fn any_identification_is_found(
            mut datagram in prop::collection::vec(any::<u8>(), 40..4200),
            id: u16,
            flip in any::<prop::sample::Index>(),
        ) {
            datagram[4..6].copy_from_slice(&id.to_be_bytes());
            let found = icrc(Layer::Ipv4, &datagram, &[], &[]);
            datagram[4..6].fill(0);
            let computed = icrc(Layer::Ipv4, &datagram, &[], &[]);
            prop_assert_eq!(identification(computed, found, datagram.len()), Some(id));
            // One flipped bit behind the headers is not an identification.
            if datagram.len() > 40 {
                let bit = flip.index((datagram.len() - 40) * 8);
                datagram[40 + bit / 8] ^= 1 << (bit % 8);
                let computed = icrc(Layer::Ipv4, &datagram, &[], &[]);
                prop_assert_ne!(identification(computed, found, datagram.len()), Some(id));
            }
        }

        #[test]
        fn pieces_do_not_matter(
            bytes in prop::collection::vec(any::<u8>(), 60..300),
            a in any::<prop::sample::Index>(),
            layer in prop::sample::select(vec![Layer::Ipv4, Layer::Ipv6, Layer::Grh]),
        ) {
            let cut = layer.len() + 12 + a.index(bytes.len() - layer.len() - 11);
            let pad = bytes.len() - (bytes.len() - cut).min(3);
            prop_assert_eq!(
                icrc(layer, &bytes, &[], &[]),
                icrc(layer, &bytes[..cut], &bytes[cut..pad], &bytes[pad..])
            );
        }

        #[test]
        fn short_headers_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for layer in [Layer::Ipv4, Layer::Ipv6, Layer::Grh] {
                icrc(layer, &bytes, &[], &[]);
            }
        }
    }
}
