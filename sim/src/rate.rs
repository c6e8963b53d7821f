//! Rates in bits per second, exact.

use crate::time::Span;
use std::fmt;

/// Picoseconds in a second, times bits in a byte.
pub(crate) const PS_TIMES_BITS: u64 = 8_000_000_000_000;

/// Bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// `n` bits per second; `None` for zero.
    pub const fn from_bps(n: u64) -> Option<Rate> {
        if n == 0 { None } else { Some(Rate(n)) }
    }

    /// `n` Gb/s.
    ///
    /// # Panics
    ///
    /// If `n` is zero.
    pub const fn from_gbps(n: u32) -> Rate {
        assert!(n != 0, "a rate of zero");
        Rate(n as u64 * 1_000_000_000)
    }

    /// `n` Mb/s.
    ///
    /// # Panics
    ///
    /// If `n` is zero.
    pub const fn from_mbps(n: u32) -> Rate {
        assert!(n != 0, "a rate of zero");
        Rate(n as u64 * 1_000_000)
    }

    /// Bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// How long `bytes` take, rounded down to a picosecond.
    pub fn span(self, bytes: u64) -> Span {
        let ps = u128::from(bytes) * u128::from(PS_TIMES_BITS) / u128::from(self.0);
        Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// How long a frame of `bytes` takes, rounded up to a picosecond: what is sent after that is not sent
    /// faster than the rate.
    #[inline]
    pub const fn spacing(self, bytes: u32) -> Span {
        // 2^21 bytes times the constant stay below 2^64.
        if bytes < 1 << 21 {
            return Span::from_ps((bytes as u64 * PS_TIMES_BITS).div_ceil(self.0));
        }
        let ps = (bytes as u128 * PS_TIMES_BITS as u128).div_ceil(self.0 as u128);
        Span::from_ps(if ps > u64::MAX as u128 {
            u64::MAX
        } else {
            ps as u64
        })
    }
}

/// As scenarios write it, in the largest unit that needs no more than three decimals: `100Gbps`, `2.5Gbps`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            ("Tbps", 1_000_000_000_000),
            ("Gbps", 1_000_000_000),
            ("Mbps", 1_000_000),
            ("Kbps", 1_000),
        ];
        for (name, unit) in units {
            if self.0 < unit || !self.0.is_multiple_of(unit / 1_000) {
                continue;
            }
            let (whole, part) = (self.0 / unit, self.0 % unit / (unit / 1_000));
            if part == 0 {
                return write!(f, "{whole}{name}");
            }
            let decimals = format!("{part:03}");
            return write!(f, "{whole}.{}{name}", decimals.trim_end_matches('0'));
        }
        write!(f, "{}bps", self.0)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_print_as_scenarios_write_them() {
        assert_eq!(Rate::from_gbps(100).to_string(), "100Gbps");
        assert_eq!(Rate::from_mbps(40).to_string(), "40Mbps");
        assert_eq!(Rate::from_mbps(2_500).to_string(), "2.5Gbps");
        assert_eq!(Rate::from_bps(1_001).unwrap().to_string(), "1.001Kbps");
        assert_eq!(Rate::from_bps(999).unwrap().to_string(), "999bps");
        assert_eq!(
            Rate::from_bps(10_000_001).unwrap().to_string(),
            "10000.001Kbps"
        );
    }

    #[test]
    fn spacing_is_never_shorter_than_the_rate_allows() {
        let rate = |bps| Rate::from_bps(bps).unwrap();
        assert_eq!(rate(40_000_000_000).spacing(1106).as_ps(), 221_200);
        // 8848 bits at 3 Gb/s are 2,949,333 1/3 ps.
        assert_eq!(rate(3_000_000_000).span(1106).as_ps(), 2_949_333);
        assert_eq!(rate(3_000_000_000).spacing(1106).as_ps(), 2_949_334);
        assert_eq!(rate(8).spacing(1 << 20), Span::from_ms(1000) * (1 << 20));
        assert_eq!(rate(8).spacing(1 << 21), Span::from_ms(1000) * (1 << 21));
        assert_eq!(rate(1).spacing(u32::MAX).as_ps(), u64::MAX);
    }
}
