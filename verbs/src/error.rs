//! What can go wrong.

use softroce_sim::card::{CreateError, ModifyError, PostError};
use softroce_sim::cm::CmError;
use softroce_sim::memory::{RegisterError, WindowError};
use std::time::Duration;

/// Why a call of this crate failed. Nothing was changed by it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No device has the name.
    #[error("there is no device {name:?}; there are: {known}")]
    NoDevice {
        /// The name asked for.
        name: String,
        /// Names that there are.
        known: String,
    },
    /// Something could not be made or destroyed.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A window could not be made or bound.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// Attributes of a queue pair were refused.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// A request was not taken.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A request of a list was not taken.
    #[error(transparent)]
    PostList(#[from] BadRequest),
    /// The connection manager refuses.
    #[error(transparent)]
    Cm(#[from] CmError),
    /// There is no such port, or no such entry in one of its tables.
    #[error("device {device} has no {what} {value}; it has {limit}")]
    NoSuch {
        /// The device.
        device: String,
        /// "port", "GID", "P_Key".
        what: &'static str,
        /// Number asked for.
        value: u32,
        /// How many there are, or which.
        limit: String,
    },
    /// Objects of two contexts, or of two protection domains, do not go together.
    #[error("the {0} belongs to another device context")]
    Foreign(&'static str),
    /// The device does not have what was asked for.
    #[error("device {device} has no {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// What it does not have.
        what: String,
    },
    /// A call of the operating system or of libibverbs failed.
    #[error("{call}: {source}")]
    Os {
        /// The call, and on what.
        call: String,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The port of a card in real time is broken.
    #[error("{0}")]
    Port(String),
    /// The exchange with the other program failed.
    #[error("exchange with {peer}: {why}")]
    Exchange {
        /// The other side.
        peer: String,
        /// What happened.
        why: String,
    },
    /// Nothing came in time.
    #[error("{what} did not come within {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
    /// In virtual time: every program waits, and nothing is left that could wake one of them.
    #[error(
        "virtual time stands still at {at:?}: every program waits and the network is idle (this one waits for {what})"
    )]
    StandsStill {
        /// The present.
        at: Duration,
        /// What this program waits for.
        what: &'static str,
    },
    /// A program in virtual time was called from a thread that is none of the network's.
    #[error("this thread is no program of the network; Context::spawn starts one")]
    NotAProgram,
    /// A message that does not fit what the programs agreed on.
    #[error("{0}")]
    Protocol(String),
}

/// Why a list of requests was not taken to its end ([`QueuePair::post_send_list`](crate::QueuePair::post_send_list)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request {index} of the list: {source}")]
#[doc(alias = "bad_wr")]
pub struct BadRequest {
    /// Place in the list, from 0, of the request that was not taken: so many before it were.
    pub index: usize,
    /// What is wrong with it.
    pub source: PostError,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
