//! What can go wrong between two ends.

use crate::device::LaunchError;
use softroce_sim::port::{OpenError, SeedError};
use softroce_verbs::PostError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Why an end gave up.
#[derive(Debug, thiserror::Error)]
pub enum PingpongError {
    /// The server's TCP port cannot be listened on.
    #[error("cannot listen on TCP {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's word.
        source: io::Error,
    },
    /// The server's name means nothing.
    #[error("cannot find {server}: {source}")]
    Resolve {
        /// The name given.
        server: String,
        /// The resolver's word.
        source: io::Error,
    },
    /// The server is not on the loopback network.
    #[error(
        "{server} is not on the loopback network: pingpong runs on one machine, with a server such as 127.0.0.1"
    )]
    NotLoopback {
        /// The name given.
        server: String,
    },
    /// The server does not answer.
    #[error(
        "cannot connect to {server}, TCP port {port}: {source} (is `softroce pingpong` running there?)"
    )]
    Connect {
        /// The name given.
        server: String,
        /// TCP port.
        port: u16,
        /// The operating system's word.
        source: io::Error,
    },
    /// The device does not open, or the scenario cannot be built.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// An option does not go with the device.
    #[error("{option} is for {kind}, and {device} is none")]
    Option {
        /// The option.
        option: &'static str,
        /// What it is for.
        kind: &'static str,
        /// The device.
        device: String,
    },
    /// The address cannot be a card's.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no randomness for the card.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The capture cannot be written.
    #[error("capture {path}: {source}", path = path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// The two ends were not started alike.
    #[error("this end has {option} {own}, the peer has {theirs}: start both alike")]
    Options {
        /// The option.
        option: &'static str,
        /// Its value here.
        own: u64,
        /// Its value at the peer.
        theirs: u64,
    },
    /// The exchange of addresses failed.
    #[error("exchange of addresses with {peer}: {source}")]
    Exchange {
        /// Who that is.
        peer: String,
        /// What happened.
        source: io::Error,
    },
    /// What the peer sent over TCP makes no sense.
    #[error("exchange of addresses with {peer}: {what}: {text:?}")]
    Garbled {
        /// Who that is.
        peer: String,
        /// What is wrong.
        what: &'static str,
        /// What it sent.
        text: String,
    },
    /// A call of the device failed.
    #[error(transparent)]
    Verbs(#[from] softroce_verbs::Error),
    /// A request was not taken.
    #[error("queue pair: {0}")]
    Post(#[from] PostError),
    /// A request completed in error.
    #[error("{what} failed: {why}")]
    Failed {
        /// The request.
        what: String,
        /// Status, queue pairs, addresses and circumstances.
        why: String,
    },
    /// The data that arrived is not what was sent.
    #[error("{what}: byte {offset} is {found:#04x}, {expected:#04x} was sent")]
    Data {
        /// The operation.
        what: String,
        /// Where the first difference is.
        offset: usize,
        /// What is there.
        found: u8,
        /// What was sent.
        expected: u8,
    },
    /// A completion is not the one that was due.
    #[error("{what}: {found}, {expected} was due")]
    Unexpected {
        /// The operation.
        what: String,
        /// What came.
        found: String,
        /// What was due.
        expected: String,
    },
    /// The peer is gone.
    #[error("waiting for {what}: the peer closed its connection: it has ended")]
    PeerGone {
        /// What was waited for.
        what: String,
    },
    /// The peer sends nothing any more, or takes nothing.
    #[error(
        "waiting for {what}: no progress for {seconds} s: the peer sends nothing, or has no receive requests"
    )]
    Stuck {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// Standard output is gone.
    #[error("writing to standard output: {0}")]
    Output(#[source] io::Error),
}

impl PingpongError {
    /// What to exit with: 2 if it could not begin as it was told to, 1 if it failed on the way.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            PingpongError::Listen { .. }
            | PingpongError::Resolve { .. }
            | PingpongError::NotLoopback { .. }
            | PingpongError::Connect { .. }
            | PingpongError::Launch(_)
            | PingpongError::Option { .. }
            | PingpongError::Open(_)
            | PingpongError::Seed(_)
            | PingpongError::Capture { .. }
            | PingpongError::Options { .. } => ExitCode::from(2),
            _ => ExitCode::from(1),
        }
    }
}
