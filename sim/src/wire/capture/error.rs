//! What can be wrong with a capture file.

use std::fmt;
use std::io;

/// Why a capture file cannot be read further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Reading failed.
    #[error("offset {offset}: {source}")]
    Io {
        /// Where in the file, in bytes.
        offset: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The file is neither pcap nor pcapng.
    #[error("neither pcap nor pcapng: the file begins with {magic:02x?}")]
    Format {
        /// Its first four bytes.
        magic: [u8; 4],
    },
    /// The file ends inside a block.
    #[error("offset {offset}: the file ends inside {} {block}: {there} of {needed} bytes there", article(.block))]
    Truncated {
        /// Where the block or the part of it that is cut short begins.
        offset: u64,
        /// What is cut short.
        block: &'static str,
        /// Bytes there.
        there: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// A field has a value it cannot have.
    #[error("offset {offset}: {block}: {field}")]
    Field {
        /// Where the block begins.
        offset: u64,
        /// What kind of block.
        block: &'static str,
        /// Which field, its value and its limit.
        field: Field,
    },
}

fn article(noun: &str) -> &'static str {
    match noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        true => "an",
        false => "a",
    }
}

/// A field with a value it cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// What it may be.
    pub limit: Limit,
}

/// What a field may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// At least this.
    Least(u64),
    /// At most this.
    Most(u64),
    /// Exactly this.
    Exactly(u64),
    /// A multiple of this.
    MultipleOf(u64),
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Field { name, value, limit } = self;
        match limit {
            Limit::Least(n) => write!(f, "{name} is {value}, must be at least {n}"),
            Limit::Most(n) => write!(f, "{name} is {value}, must be at most {n}"),
            Limit::Exactly(n) => write!(f, "{name} is {value}, must be {n}"),
            Limit::MultipleOf(n) => write!(f, "{name} is {value}, must be a multiple of {n}"),
        }
    }
}
