//! Instants and spans in picoseconds.
//!
//! One byte at 400 Gb/s lasts 20 ps, so a nanosecond clock would round every packet. A `u64` of
//! picoseconds covers 213 days.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// An instant: picoseconds since the start of the clock that a card is driven by.
///
/// The driver decides what the clock is: the event queue of a virtual network, or the time since a
/// real port was opened. A card never reads a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Time = Time(0);
    /// Later than every event: "never" where a deadline is kept.
    pub const NEVER: Time = Time(u64::MAX);

    /// The instant `ps` picoseconds after the start of the clock.
    #[inline]
    pub const fn from_ps(ps: u64) -> Time {
        Time(ps)
    }

    /// Picoseconds since the start of the clock.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The span from `earlier` to `self`; zero if `earlier` is the later one.
    #[inline]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// `n` picoseconds.
    #[inline]
    pub const fn from_ps(n: u64) -> Span {
        Span(n)
    }

    /// `n` nanoseconds, saturating.
    #[inline]
    pub const fn from_ns(n: u64) -> Span {
        Span(n.saturating_mul(1_000))
    }

    /// `n` microseconds, saturating.
    #[inline]
    pub const fn from_us(n: u64) -> Span {
        Span(n.saturating_mul(1_000_000))
    }

    /// `n` milliseconds, saturating.
    #[inline]
    pub const fn from_ms(n: u64) -> Span {
        Span(n.saturating_mul(1_000_000_000))
    }

    /// Picoseconds.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Seconds, for reports; never used in state.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl From<std::time::Duration> for Span {
    fn from(d: std::time::Duration) -> Span {
        Span(
            u64::try_from(d.as_nanos())
                .unwrap_or(u64::MAX)
                .saturating_mul(1_000),
        )
    }
}

impl From<Span> for std::time::Duration {
    /// Rounds up to whole nanoseconds, so that sleeping it never wakes early.
    fn from(s: Span) -> std::time::Duration {
        std::time::Duration::from_nanos(s.0.div_ceil(1_000))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    #[inline]
    fn add(self, s: Span) -> Time {
        Time(self.0.saturating_add(s.0))
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, s: Span) {
        *self = *self + s;
    }
}

impl Add for Span {
    type Output = Span;
    #[inline]
    fn add(self, s: Span) -> Span {
        Span(self.0.saturating_add(s.0))
    }
}

impl Sub for Span {
    type Output = Span;
    #[inline]
    fn sub(self, s: Span) -> Span {
        Span(self.0.saturating_sub(s.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    #[inline]
    fn mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    #[inline]
    fn div(self, n: u64) -> Span {
        Span(self.0 / n)
    }
}

/// Writes the span in the largest unit that keeps it at one or more, rounded to three decimals.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1_000 {
            return write!(f, "{}ps", self.0);
        }
        let units = [(1_000, "ns"), (1_000_000, "us"), (1_000_000_000, "ms")];
        // Rounding may carry over into the next unit.
        let rounded =
            |unit: u64| (u128::from(self.0) + u128::from(unit / 2_000)) / u128::from(unit / 1_000);
        let largest = (1_000_000_000_000u64, "s");
        let fits = |&(unit, _): &(u64, &str)| rounded(unit) < 1_000_000;
        let (unit, name) = units.into_iter().find(fits).unwrap_or(largest);
        let (whole, thousandths) = (rounded(unit) / 1_000, rounded(unit) % 1_000);
        if thousandths == 0 {
            write!(f, "{whole}{name}")
        } else {
            let s = format!("{thousandths:03}");
            write!(f, "{whole}.{}{name}", s.trim_end_matches('0'))
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER {
            f.write_str("never")
        } else {
            Span(self.0).fmt(f)
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_print_in_their_unit() {
        for (span, text) in [
            (Span::ZERO, "0ps"),
            (Span::from_ps(999), "999ps"),
            (Span::from_ps(1_500), "1.5ns"),
            (Span::from_us(12), "12us"),
            (Span::from_ps(4_096_000), "4.096us"),
            (Span::from_ms(67), "67ms"),
            (Span::from_ms(1_001), "1.001s"),
            // 4.096 us x 2^8, to the nearest thousandth; and what is rounded up into the next unit.
            (Span::from_ps(1_048_576_000), "1.049ms"),
            (Span::from_ps(999_999_400), "999.999us"),
            (Span::from_ps(999_999_500), "1ms"),
            (Span::from_ps(u64::MAX), "18446744.074s"),
        ] {
            assert_eq!(span.to_string(), text);
        }
    }

    #[test]
    fn arithmetic_saturates_at_never() {
        assert_eq!(Time::NEVER + Span::from_ps(1), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::from_ps(5)), Span::ZERO);
        assert_eq!(Span::from_ms(u64::MAX).as_ps(), u64::MAX);
    }

    #[test]
    fn a_std_duration_never_wakes_early() {
        let d: std::time::Duration = Span::from_ps(1_001).into();
        assert_eq!(d.as_nanos(), 2);
    }
}
