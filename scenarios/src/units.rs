//! Quantities with units: how they are read, kept and printed.
//!
//! | kind | units | kept as |
//! |---|---|---|
//! | [`Rate`] | `bps Kbps Mbps Gbps Tbps` | bits per second |
//! | [`Span`] | `ps ns us ms s` | picoseconds |
//! | [`Size`] | `B KB MB GB TB` (powers of 1000), `KiB MiB GiB TiB` (of 1024) | bytes |
//! | [`Probability`] | a number from 0 to 1, `0.01%`, `1/256` | the nearest `f64` |
//! | [`Ratio`] | a number of at least 0, `150%`, `1/3` | the nearest `f64` |
//!
//! The first three are worked out in integers, so that `"0.1Gbps"` is exactly 100,000,000 bits per
//! second; a value that is no whole number of bits per second, picoseconds or bytes is refused.
//! `print` is the inverse of reading: every printed quantity reads back as itself.

use std::fmt;
use std::str::FromStr;

pub use softroce_sim::time::Span;

/// A data rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Rate(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Size(pub u64);

/// A number from 0 to 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Debug)]
pub struct Probability(f64);

/// A number of at least 0, such as a factor or a tolerance.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Debug)]
pub struct Ratio(f64);

/// Why a text is no quantity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnitError {
    /// There is no number where one is due.
    #[error("is not {kind}; write it as {example}")]
    NotANumber {
        /// What was wanted, with its article.
        kind: &'static str,
        /// A correct value.
        example: &'static str,
    },
    /// A number stands alone.
    #[error("needs a unit: {units}")]
    NoUnit {
        /// The units there are.
        units: String,
    },
    /// The unit does not exist, or is spelt with other capitals.
    #[error("has the unknown unit \"{unit}\"{}; the units are {units}", meant(.hint))]
    UnknownUnit {
        /// What stands after the number.
        unit: String,
        /// The unit that is closest to it.
        hint: Option<&'static str>,
        /// The units there are.
        units: String,
    },
    /// The value falls between two that can be kept.
    #[error("is not a whole number of {smallest}")]
    Fraction {
        /// The smallest unit.
        smallest: &'static str,
    },
    /// The value does not fit.
    #[error("is larger than the limit of {limit}")]
    TooLarge {
        /// The largest value there is.
        limit: String,
    },
    /// The value is below zero.
    #[error("must not be negative")]
    Negative,
    /// The value is above one.
    #[error("must be from 0 to 1 (0% to 100%)")]
    AboveOne,
}

fn meant(hint: &Option<&'static str>) -> String {
    hint.map(|h| format!(" (did you mean \"{h}\"?)"))
        .unwrap_or_default()
}

type Table = &'static [(&'static str, u64)];

const RATES: Table = &[
    ("bps", 1),
    ("Kbps", 1_000),
    ("Mbps", 1_000_000),
    ("Gbps", 1_000_000_000),
    ("Tbps", 1_000_000_000_000),
];
const SPANS: Table = &[
    ("ps", 1),
    ("ns", 1_000),
    ("us", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
];
const SIZES: Table = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
/// Other spellings of the same units.
const ALIASES: &[(&str, &str)] = &[
    ("kbps", "Kbps"),
    ("bit/s", "bps"),
    ("kbit/s", "Kbps"),
    ("Kbit/s", "Kbps"),
    ("Mbit/s", "Mbps"),
    ("Gbit/s", "Gbps"),
    ("Tbit/s", "Tbps"),
    ("b/s", "bps"),
    ("Kb/s", "Kbps"),
    ("Mb/s", "Mbps"),
    ("Gb/s", "Gbps"),
    ("Tb/s", "Tbps"),
    ("\u{b5}s", "us"),
    ("\u{3bc}s", "us"),
    ("kB", "KB"),
];

/// A kind of quantity that is kept as a whole number.
struct Scale {
    kind: &'static str,
    example: &'static str,
    units: Table,
    smallest: &'static str,
    print: fn(u64) -> String,
}

const RATE: Scale = Scale {
    kind: "a rate",
    example: "\"100Gbps\"",
    units: RATES,
    smallest: "bits per second",
    print: |n| Rate(n).to_string(),
};
const SPAN: Scale = Scale {
    kind: "a span of time",
    example: "\"1us\"",
    units: SPANS,
    smallest: "picoseconds",
    print: |n| print_span(Span::from_ps(n)),
};
const SIZE: Scale = Scale {
    kind: "a size",
    example: "\"4KiB\"",
    units: SIZES,
    smallest: "bytes",
    print: |n| Size(n).to_string(),
};

/// A decimal number as its digits and the power of ten they are scaled by.
struct Decimal {
    digits: u128,
    exponent: i32,
}

/// Cuts `text` into a decimal number and what follows it. `None` if it does not begin with one.
/// Digits past the 38th are refused by overflow, which the caller reports as too large.
fn decimal(text: &str) -> Option<(Result<Decimal, ()>, &str)> {
    let bytes = text.as_bytes();
    let mut digits: Option<u128> = Some(0);
    let (mut exponent, mut seen, mut point) = (0i32, false, false);
    let mut i = 0;
    while let Some(&b) = bytes.get(i) {
        match b {
            b'0'..=b'9' => {
                seen = true;
                digits = digits
                    .and_then(|d| d.checked_mul(10))
                    .and_then(|d| d.checked_add(u128::from(b - b'0')));
                if point {
                    exponent = exponent.saturating_sub(1);
                }
            }
            b'_' if seen => {}
            b'.' if !point => point = true,
            _ => break,
        }
        i += 1;
    }
    if !seen {
        return None;
    }
    // An exponent only if digits follow the e: no unit begins with e and a digit.
    if matches!(bytes.get(i), Some(b'e' | b'E')) {
        let rest = &text[i + 1..];
        let sign = usize::from(rest.starts_with(['+', '-']));
        let len = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if len > 0 {
            let value: i32 = rest[..sign + len]
                .parse()
                .unwrap_or(if rest.starts_with('-') {
                    i32::MIN / 2
                } else {
                    i32::MAX / 2
                });
            exponent = exponent.saturating_add(value);
            i += 1 + sign + len;
        }
    }
    let number = digits.map(|digits| Decimal { digits, exponent }).ok_or(());
    Some((number, &text[i..]))
}

impl Scale {
    fn names(&self) -> String {
        let names: Vec<_> = self.units.iter().map(|u| u.0).collect();
        names.join(", ")
    }

    fn too_large(&self) -> UnitError {
        UnitError::TooLarge {
            limit: (self.print)(u64::MAX),
        }
    }

    fn parse(&self, text: &str, bare: bool) -> Result<u64, UnitError> {
        let text = text.trim();
        if text.starts_with('-') {
            return Err(UnitError::Negative);
        }
        let Some((number, rest)) = decimal(text) else {
            return Err(UnitError::NotANumber {
                kind: self.kind,
                example: self.example,
            });
        };
        let unit = rest.trim_start();
        let multiplier = if unit.is_empty() {
            if !bare && !matches!(number, Ok(Decimal { digits: 0, .. })) {
                return Err(UnitError::NoUnit {
                    units: self.names(),
                });
            }
            1
        } else {
            self.unit(unit)?
        };
        let number = number.map_err(|()| self.too_large())?;
        self.exact(number, multiplier)
    }

    fn unit(&self, unit: &str) -> Result<u64, UnitError> {
        let name = ALIASES.iter().find(|a| a.0 == unit).map_or(unit, |a| a.1);
        if let Some(found) = self.units.iter().find(|u| u.0 == name) {
            return Ok(found.1);
        }
        let hint = self
            .units
            .iter()
            .find(|u| u.0.eq_ignore_ascii_case(name))
            .map(|u| u.0);
        Err(UnitError::UnknownUnit {
            unit: unit.chars().take(20).collect(),
            hint,
            units: self.names(),
        })
    }

    /// `number` times `multiplier`, if that is a whole number that fits.
    fn exact(&self, number: Decimal, multiplier: u64) -> Result<u64, UnitError> {
        let Decimal {
            mut digits,
            mut exponent,
        } = number;
        if digits == 0 {
            return Ok(0);
        }
        while exponent < 0 && digits % 10 == 0 {
            digits /= 10;
            exponent += 1;
        }
        let too_large = || self.too_large();
        let fraction = UnitError::Fraction {
            smallest: self.smallest,
        };
        let mut value = digits
            .checked_mul(u128::from(multiplier))
            .ok_or_else(too_large)?;
        while exponent < 0 {
            // Ends after at most 39 rounds: either a digit is left over or the value is used up.
            if value % 10 != 0 {
                return Err(fraction);
            }
            value /= 10;
            exponent += 1;
        }
        while exponent > 0 {
            value = value.checked_mul(10).ok_or_else(too_large)?;
            exponent -= 1;
        }
        u64::try_from(value).map_err(|_| too_large())
    }
}

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(s: &str) -> Result<Rate, UnitError> {
        RATE.parse(s, false).map(Rate)
    }
}

impl FromStr for Size {
    type Err = UnitError;
    /// A number without a unit is a number of bytes.
    fn from_str(s: &str) -> Result<Size, UnitError> {
        SIZE.parse(s, true).map(Size)
    }
}

/// Reads a span of time such as `"12us"`. `"0"` needs no unit.
pub fn parse_span(s: &str) -> Result<Span, UnitError> {
    SPAN.parse(s, false).map(Span::from_ps)
}

/// Writes `n` in the largest of `units` that needs no more than three decimals.
fn print(n: u64, units: Table) -> String {
    if n == 0 {
        return format!("0{}", units[0].0);
    }
    for &(name, unit) in units.iter().rev() {
        let thousandth = unit / 1_000;
        if n < unit {
            continue;
        }
        if n.is_multiple_of(unit) {
            return format!("{}{name}", n / unit);
        }
        if thousandth > 0 && n.is_multiple_of(thousandth) {
            let decimals = format!("{:03}", n % unit / thousandth);
            return format!("{}.{}{name}", n / unit, decimals.trim_end_matches('0'));
        }
    }
    format!("{n}{}", units[0].0)
}

/// Writes a span so that it reads back as itself, in the largest unit that needs no more than three
/// decimals.
pub fn print_span(span: Span) -> String {
    print(span.as_ps(), SPANS)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&print(self.0, RATES))
    }
}

/// In the largest unit that it is a whole number of; of two, the power of 1024.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = SIZES
            .iter()
            .filter(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit))
            .max_by_key(|(_, unit)| unit)
            .unwrap_or(&SIZES[0]);
        f.pad(&format!("{}{name}", self.0 / unit))
    }
}

const PROBABILITY: UnitError = UnitError::NotANumber {
    kind: "a probability",
    example: "0.0001, \"0.01%\" or \"1/10000\"",
};
const RATIO: UnitError = UnitError::NotANumber {
    kind: "a ratio",
    example: "1.5, \"150%\" or \"3/2\"",
};

/// A number of at least 0: plain, in percent, or as a fraction. Each is rounded once.
fn number(text: &str, otherwise: UnitError) -> Result<f64, UnitError> {
    let text = text.trim();
    let whole = |s: &str| match decimal(s.trim()) {
        Some((Ok(Decimal { .. }), "")) => s.trim().replace('_', "").parse::<f64>().ok(),
        _ => None,
    };
    if text.starts_with('-') {
        return Err(UnitError::Negative);
    }
    let value = if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.trim();
        // Moving the point in the text is exact; dividing would round twice.
        decimal(percent).and_then(|(number, rest)| match (number, rest) {
            (Ok(d), "") => format!("{}e{}", d.digits, d.exponent.saturating_sub(2))
                .parse()
                .ok(),
            _ => None,
        })
    } else if let Some((over, under)) = text.split_once('/') {
        match (whole(over), whole(under)) {
            (Some(a), Some(b)) if b > 0.0 => Some(a / b),
            _ => None,
        }
    } else {
        whole(text)
    };
    value.filter(|v: &f64| v.is_finite()).ok_or(otherwise)
}

impl Probability {
    /// Never.
    pub const ZERO: Probability = Probability(0.0);
    /// Always.
    pub const ONE: Probability = Probability(1.0);

    /// The probability `p`, a number from 0 to 1.
    pub fn new(p: f64) -> Result<Probability, UnitError> {
        if p.is_nan() {
            Err(PROBABILITY)
        } else if p < 0.0 {
            Err(UnitError::Negative)
        } else if p > 1.0 {
            Err(UnitError::AboveOne)
        } else {
            Ok(Probability(p + 0.0)) // + 0.0 turns -0 into 0
        }
    }

    /// The value, from 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The same number as the thresholds of the simulator's random streams.
    pub(crate) fn draw(self) -> softroce_sim::random::Probability {
        use softroce_sim::random::Probability;
        // It is from 0 to 1.
        Probability::new(self.0).unwrap_or(Probability::ZERO)
    }
}

impl FromStr for Probability {
    type Err = UnitError;
    fn from_str(s: &str) -> Result<Probability, UnitError> {
        number(s, PROBABILITY).and_then(Probability::new)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_number(self.0, f)
    }
}

impl Ratio {
    /// One: a factor that changes nothing.
    pub const ONE: Ratio = Ratio(1.0);

    /// The ratio `r`, a finite number of at least 0.
    pub fn new(r: f64) -> Result<Ratio, UnitError> {
        if !r.is_finite() {
            Err(RATIO)
        } else if r < 0.0 {
            Err(UnitError::Negative)
        } else {
            Ok(Ratio(r + 0.0))
        }
    }

    /// One eighth.
    pub const EIGHTH: Ratio = Ratio(0.125);

    /// The value.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The value as a fraction of two numbers of 16 bits, the smallest there are; `None` if it is none.
    pub fn fraction(self) -> Option<(u16, u16)> {
        (1..=u16::MAX).find_map(|denominator| {
            let numerator = (self.0 * f64::from(denominator)).round();
            let same = numerator / f64::from(denominator) == self.0;
            // In range, so nothing is cut off.
            (same && numerator <= f64::from(u16::MAX)).then_some((numerator as u16, denominator))
        })
    }
}

impl FromStr for Ratio {
    type Err = UnitError;
    fn from_str(s: &str) -> Result<Ratio, UnitError> {
        number(s, RATIO).and_then(Ratio::new)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print_number(self.0, f)
    }
}

/// The shortest text that reads back as the same number, with an exponent below 1/1000.
fn print_number(n: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if n != 0.0 && !(0.001..1e15).contains(&n) {
        f.pad(&format!("{n:e}"))
    } else {
        f.pad(&format!("{n}"))
    }
}

#[cfg(test)]
mod tests;
