//! Capture files: pcap and pcapng in, pcapng out.
//!
//! [`Reader`] tells the format by the file's first bytes and yields [`Record`]s; a record's bytes
//! become a frame by [`Record::view`]. A broken file gives the records before the fault and then
//! one [`CaptureError`], whatever its bytes: no length in it is trusted with memory. [`Writer`]
//! writes the same bytes for the same calls, so that a virtual run's capture repeats.

mod error;
mod link;
mod pcap;
mod pcapng;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use error::{CaptureError, Field, Limit};
pub use link::{FrameError, LinkType};
pub use pcapng::MAX_INTERFACES;
pub use reader::Reader;
pub use writer::{InterfaceId, Writer};

use crate::time::Time;
use std::fmt;

/// An instant in a capture: picoseconds since 1970 in a file from the field, since the start of the
/// clock in one from a virtual network.
///
/// Wider than [`Time`], whose picoseconds since 1970 would overflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(i128);

/// An interface that packets were captured at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// What its packets begin with.
    pub link: LinkType,
    /// Most bytes of a packet that are kept; 0 for no limit.
    pub snap_len: u32,
    /// Its name, if the file has one.
    pub name: Option<String>,
    /// What it is, if the file says so.
    pub description: Option<String>,
    /// Length of its tick; see [`Record::time`].
    resolution: Resolution,
    /// Seconds to be added to its stamps.
    offset: i64,
}

/// A captured packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Index into [`Reader::interfaces`].
    pub interface: usize,
    /// What the packet begins with, as its interface says.
    pub link: LinkType,
    /// When it was captured; `None` in a simple packet block of pcapng, which has no stamp.
    pub time: Option<Stamp>,
    /// Length on the wire in bytes; `data` is shorter if it was cut.
    pub original_len: u32,
    /// The bytes captured.
    pub data: Vec<u8>,
    /// The comments it has in the file.
    pub comments: Vec<String>,
}

/// How long a tick of an interface's clock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Resolution {
    /// 10^-n seconds.
    Decimal(u8),
    /// 2^-n seconds.
    Binary(u8),
}

const PS_PER_SECOND: i128 = 1_000_000_000_000;

impl Resolution {
    /// As option if_tsresol has it: the upper bit names the base.
    const fn from_option(byte: u8) -> Resolution {
        if byte & 0x80 == 0 {
            Resolution::Decimal(byte)
        } else {
            Resolution::Binary(byte & 0x7f)
        }
    }

    /// Rounds down to a picosecond.
    fn stamp(self, ticks: u64, offset: i64) -> Stamp {
        // 2^64 ticks times 10^12 is below 2^104.
        let scaled = u128::from(ticks) * PS_PER_SECOND as u128;
        let ps = match self {
            Resolution::Decimal(n) => 10u128
                .checked_pow(n.into())
                .map_or(0, |divisor| scaled / divisor),
            Resolution::Binary(n) => scaled.checked_shr(n.into()).unwrap_or(0),
        };
        Stamp(ps as i128 + i128::from(offset) * PS_PER_SECOND)
    }
}

impl Stamp {
    /// The instant `ps` picoseconds after the epoch.
    pub const fn from_ps(ps: i128) -> Stamp {
        Stamp(ps)
    }

    /// The instant `ns` nanoseconds after the epoch.
    pub const fn from_ns(ns: u64) -> Stamp {
        Stamp(ns as i128 * 1_000)
    }

    /// Picoseconds since the epoch, negative before it.
    pub const fn as_ps(self) -> i128 {
        self.0
    }

    /// Whole nanoseconds since the epoch, rounded down; 0 before it, saturating in the year 2554.
    pub fn as_ns(self) -> u64 {
        u64::try_from(self.0.max(0) / 1_000).unwrap_or(u64::MAX)
    }

    /// Picoseconds from `earlier` to `self`, negative if `earlier` is the later one.
    pub const fn since(self, earlier: Stamp) -> i128 {
        self.0 - earlier.0
    }
}

impl From<Time> for Stamp {
    fn from(time: Time) -> Stamp {
        Stamp(time.as_ps().into())
    }
}

/// In seconds with nanoseconds: `1.000000002`.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ns = self.0.unsigned_abs() / 1_000;
        let (s, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
        write!(f, "{sign}{s}.{ns:09}")
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}s")
    }
}
