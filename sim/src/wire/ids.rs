//! Numbers with rules of their own. No bare `u32` crosses a room.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A 24-bit packet sequence number with serial arithmetic: of two numbers less than 2^23 apart, the
/// one that follows the other is the later one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// One more than the largest PSN: 2^24.
    pub const MODULUS: u32 = 1 << 24;

    /// The low 24 bits of `n`.
    #[inline]
    pub const fn new(n: u32) -> Psn {
        Psn(n & 0x00ff_ffff)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `n` packets later.
    #[inline]
    #[must_use]
    pub const fn plus(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_add(n))
    }

    /// The PSN `n` packets earlier.
    #[inline]
    #[must_use]
    pub const fn minus(self, n: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(n))
    }

    /// How far `self` lies after `other`: positive if later, negative if earlier, from -2^23 to 2^23 - 1.
    #[inline]
    pub const fn after(self, other: Psn) -> i32 {
        // The difference in the top 24 bits of an i32 carries the sign of the serial comparison.
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// True if `self` comes before `other`.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.after(other) < 0
    }
}

/// A 24-bit message sequence number, as the AETH carries it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Msn(u32);

impl Msn {
    /// The low 24 bits of `n`.
    #[inline]
    pub const fn new(n: u32) -> Msn {
        Msn(n & 0x00ff_ffff)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The MSN after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Msn {
        Msn::new(self.0.wrapping_add(1))
    }
}

/// A 24-bit queue pair number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QpNumber(u32);

impl QpNumber {
    /// The general services queue pair.
    pub const GSI: QpNumber = QpNumber(1);
    /// The destination of multicast packets.
    pub const MULTICAST: QpNumber = QpNumber(0x00ff_ffff);

    /// The low 24 bits of `n`.
    #[inline]
    pub const fn new(n: u32) -> QpNumber {
        QpNumber(n & 0x00ff_ffff)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The key by which a remote peer names a memory region or window.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RemoteKey(pub u32);

/// A port address: an IPv6 address, or an IPv4 address mapped into one (A17.4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IPv4 address, if this is a mapped one (`::ffff:a.b.c.d`).
    #[inline]
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        // As one number, because every packet asks.
        let address = u128::from_be_bytes(self.0);
        (address >> 32 == 0xffff).then(|| Ipv4Addr::from(address as u32))
    }

    /// The GUID of the node that has this address: made from its Ethernet address, as the kernel's Soft-RoCE makes it
    /// (modified EUI-64), or, where it has none of its own, the address' lower half, which is an interface identifier.
    pub fn guid(self, mac: MacAddr) -> u64 {
        if mac == MacAddr::default() {
            let [.., a, b, c, d, e, f, g, h] = self.0;
            return u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        }
        let [a, b, c, d, e, f] = mac.0;
        u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    /// The address, IPv4 where it is a mapped one.
    pub fn ip(self) -> IpAddr {
        match self.ipv4() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(Ipv6Addr::from(self.0)),
        }
    }

    /// True for a multicast group: IPv6 `ff00::/8` or a mapped IPv4 `224.0.0.0/4`.
    pub fn is_multicast(self) -> bool {
        self.ip().is_multicast()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Gid {
        match ip {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Gid {
        IpAddr::V4(ip).into()
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Gid {
        IpAddr::V6(ip).into()
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The Ethernet address of a multicast group (RFC 1112, 6.4; RFC 2464, 7).
    pub fn of_group(group: IpAddr) -> MacAddr {
        match group {
            IpAddr::V4(v4) => {
                let [_, b, c, d] = v4.octets();
                MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
            }
            IpAddr::V6(v6) => {
                let o = v6.octets();
                MacAddr([0x33, 0x33, o[12], o[13], o[14], o[15]])
            }
        }
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({})", self.0)
    }
}

impl fmt::Display for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Msn({})", self.0)
    }
}

/// As the tools of rdma-core have it: `0x000011`.
impl fmt::Display for QpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

impl fmt::Debug for QpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QpNumber({:#x})", self.0)
    }
}

impl fmt::Display for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteKey({:#x})", self.0)
    }
}

/// As an IP address: `10.0.0.1` or `fe80::1`.
impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({})", self.ip())
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn psn_compares_across_the_wrap() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert!(last.is_before(Psn::new(0)));
        assert_eq!(Psn::new(0).after(last), 1);
        assert_eq!(last.after(Psn::new(0)), -1);
        // Half the space away counts as earlier: a duplicate is up to 2^23 behind.
        assert_eq!(Psn::new(1 << 23).after(Psn::new(0)), -(1 << 23));
        assert_eq!(Psn::new((1 << 23) - 1).after(Psn::new(0)), (1 << 23) - 1);
    }

    proptest! {
        #[test]
        fn psn_plus_then_after_gives_the_step(start in 0u32..1 << 24, step in -(1i32 << 23)..1 << 23) {
            let a = Psn::new(start);
            let b = if step < 0 { a.minus(step.unsigned_abs()) } else { a.plus(step as u32) };
            prop_assert_eq!(b.after(a), step);
            prop_assert_eq!(b.is_before(a), step < 0);
        }
    }

    #[test]
    fn gids_of_ipv4_are_mapped() {
        let g = Gid::from(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(g.0[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(g.to_string(), "10.0.0.1");
        assert!(!g.is_multicast());
        assert!(Gid::from(Ipv4Addr::new(239, 1, 2, 3)).is_multicast());
    }
}
