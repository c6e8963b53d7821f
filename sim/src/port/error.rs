//! What can go wrong with a port that is open.

use std::io;
use std::net::IpAddr;

/// Why a port cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{port}: {what}: {source}")]
pub struct PortError {
    /// The port, as in `UDP 127.0.0.2:4791`.
    pub port: String,
    /// What was being done.
    pub what: &'static str,
    /// The operating system's word.
    pub source: io::Error,
}

/// A packet that the operating system refused to send. To the card it is lost; this says why.
#[derive(Debug, thiserror::Error)]
#[error("sending to {to}: {source}")]
pub struct SendError {
    /// Where it was to go.
    pub to: IpAddr,
    /// The operating system's word.
    pub source: io::Error,
}
