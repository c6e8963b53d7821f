//! What can go wrong on the way.

use softroce_verbs::{BadRequest, Error, PostError, QpNumber, Status};
use std::time::Duration;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PerfError {
    #[error(transparent)]
    Verbs(#[from] Error),
    /// A request failed.
    #[error("{what} on QPN {:#08x} failed: {status} (status {})", qp.get(), status.number())]
    Completion {
        what: String,
        qp: QpNumber,
        status: Status,
    },
    /// The other end has said why it does not go on.
    #[error("the peer has failed: {0}")]
    Peer(String),
    /// Nothing moves.
    #[error("nothing has come from the peer for {} s", .0.as_secs())]
    Silent(Duration),
    /// The ends were not started alike.
    #[error("{option}: this end has {own}, the peer {peer}")]
    Differs {
        option: String,
        own: String,
        peer: String,
    },
    #[error("--{option} {value}: the device takes at most {limit}")]
    Limit {
        option: &'static str,
        value: u64,
        limit: u64,
    },
    /// What is compared bounds what is outstanding.
    #[error(
        "--post-list {list}: with --verify a queue pair has at most {depth} requests of {size} bytes outstanding"
    )]
    Verified { list: u64, size: u32, depth: u64 },
    /// Data is not what was sent.
    #[error("data is damaged: {0}")]
    Data(String),
}

impl From<BadRequest> for PerfError {
    fn from(e: BadRequest) -> PerfError {
        PerfError::Verbs(e.into())
    }
}

impl From<PostError> for PerfError {
    fn from(e: PostError) -> PerfError {
        PerfError::Verbs(e.into())
    }
}

impl PerfError {
    /// True if the other end need not be told.
    pub(super) fn is_the_peers(&self) -> bool {
        matches!(
            self,
            PerfError::Peer(_) | PerfError::Verbs(Error::Exchange { .. })
        )
    }
}

pub(super) type Result<T> = std::result::Result<T, PerfError>;
