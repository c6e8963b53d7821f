//! Why a capture cannot be inspected.

use super::Inspection;
use softroce_sim::wire::capture::CaptureError;
use std::io;

/// Why a capture cannot be inspected, or not to its end. Each message names the file and, where there
/// is one, the offset and the packet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The file cannot be opened.
    #[error("{name}: {source}")]
    Open {
        /// The file.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// A directory, or something else that has no bytes to read in order.
    #[error("{name}: is a directory, a pcap or pcapng file is needed")]
    Directory {
        /// The path.
        name: String,
    },
    /// A file without a byte.
    #[error("{name}: the file is empty, a pcap or pcapng file is needed")]
    Empty {
        /// The file.
        name: String,
    },
    /// The file is no capture, or is broken behind the packets that were read.
    #[error("{name}: after packet {packets}: {source}")]
    Capture {
        /// The file.
        name: String,
        /// Packets read before the fault; the number of the last one.
        packets: u64,
        /// What is wrong, and at which offset.
        source: CaptureError,
        /// What the packets before the fault say.
        partial: Box<Inspection>,
    },
    /// The results cannot be written.
    #[error("cannot write the results: {0}")]
    Output(#[source] io::Error),
}

impl InspectError {
    /// What was found before the fault, if packets were read.
    pub fn partial(&self) -> Option<&Inspection> {
        match self {
            InspectError::Capture { partial, .. } => Some(partial),
            _ => None,
        }
    }
}
