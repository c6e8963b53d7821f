//! Fault injection on one way: which packets, and what becomes of them. A way is one direction of a link in
//! virtual time, and what a port sends in real time.
//!
//! An injector is asked about every packet when its transmission begins. Each sees all of them, also those
//! that another one on the same way drops, and each draws from a random stream of its own, with a name
//! that is the injector's: adding one changes no hit of another. A dropped packet has taken its time on
//! the wire.
//!
//! | file | what |
//! |---|---|
//! | this one | what a fault is |
//! | [`filter`] | which packets an injector looks at |
//! | [`sighting`] | copies, transmission rounds and ordinals: what a way has seen of a flow |
//! | `injector` | the injectors of one way at work |

pub mod filter;
mod injector;
pub mod sighting;

use crate::random::Probability;
use crate::time::Span;
use thiserror::Error;

pub use filter::{Filter, Opcodes, PsnFilter};
pub(crate) use injector::Injectors;
pub use sighting::Sighting;

/// A fault: of the packets that `filter` lets through, those that `pattern` picks suffer `action`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which packets are looked at.
    pub filter: Filter,
    /// Which of those are hit.
    pub pattern: Pattern,
    /// What is done to them.
    pub action: Action,
    /// Only the first so many hits count; `None` for no limit.
    pub at_most: Option<u64>,
}

impl Fault {
    /// `action` for every packet.
    pub const fn new(action: Action) -> Fault {
        Fault {
            filter: Filter::ALL,
            pattern: Pattern::Always,
            action,
            at_most: None,
        }
    }

    /// Only for packets that `filter` lets through.
    #[must_use]
    pub const fn on(mut self, filter: Filter) -> Fault {
        self.filter = filter;
        self
    }

    /// Only for packets that `pattern` picks.
    #[must_use]
    pub const fn when(mut self, pattern: Pattern) -> Fault {
        self.pattern = pattern;
        self
    }

    /// Only for the first `n` of them.
    #[must_use]
    pub const fn at_most(mut self, n: u64) -> Fault {
        self.at_most = Some(n);
        self
    }

    /// # Errors
    ///
    /// If a number makes no sense.
    pub(crate) fn check(&self) -> Result<(), FaultError> {
        match self.pattern {
            Pattern::Every { n: 0, .. } => return Err(FaultError::EveryZeroth),
            Pattern::Every { n, phase } if phase >= n => {
                return Err(FaultError::Phase { n, phase });
            }
            _ => {}
        }
        if self.filter.copy == Some(0) {
            return Err(FaultError::Zeroth("copy"));
        }
        if self.filter.round == Some(0) {
            return Err(FaultError::Zeroth("round"));
        }
        if matches!(self.filter.psn, PsnFilter::Nth { first: 0, .. }) {
            return Err(FaultError::Zeroth("packet"));
        }
        if matches!(self.action, Action::Reorder { packets: 0, .. }) {
            return Err(FaultError::ReorderByZero);
        }
        Ok(())
    }
}

/// Which of the packets that pass the filter are hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// All.
    Always,
    /// Each with the same probability.
    Random(Probability),
    /// In bursts.
    Burst(GilbertElliott),
    /// Of each `n` one: those numbers `phase`, `phase + n`, `phase + 2 n`, ..., counted from 0.
    Every {
        /// One in how many; not 0.
        n: u64,
        /// The number of the first one hit, below `n`.
        phase: u64,
    },
}

/// The channel of Gilbert and Elliott: two states, a chance of leaving each before the next packet, and a
/// chance of a hit in each. It begins in the good one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GilbertElliott {
    /// p: from the good state to the bad one.
    pub p: Probability,
    /// r: from the bad state to the good one.
    pub r: Probability,
    /// 1 - k: a hit in the good state.
    pub good: Probability,
    /// 1 - h: a hit in the bad state.
    pub bad: Probability,
}

/// What is done to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is lost.
    Drop,
    /// Bits flip on the link: the next receiver sees a wrong FCS and drops it.
    CorruptOnLink,
    /// Bits flip inside a device that gives it a fresh FCS: the card sees a wrong ICRC.
    CorruptInDevice,
    /// Its ECN field, if it says that the sender takes part, becomes "congestion experienced".
    MarkEcn,
    /// A second one arrives `delay` after it; the copy takes no time on the wire.
    Duplicate {
        /// How long after the first.
        delay: Span,
    },
    /// It arrives later, perhaps after packets sent behind it.
    Delay {
        /// By how much.
        by: Span,
    },
    /// It is held back until `packets` later ones have gone past it, at most for `limit`; a
    /// [`Action::Delay`] of the same packet prevails.
    Reorder {
        /// How many go past it; not 0.
        packets: u32,
        /// The longest it is held.
        limit: Span,
    },
}

/// Why a fault is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FaultError {
    /// `Pattern::Every` with n = 0.
    #[error("every 0-th packet: n must be at least 1")]
    EveryZeroth,
    /// A phase that never comes.
    #[error("phase {phase} of every {n} packets: the phase must be below {n}")]
    Phase {
        /// One in how many.
        n: u64,
        /// The phase asked for.
        phase: u64,
    },
    /// Copies, rounds and ordinals are counted from 1.
    #[error("{0} 0: the first is number 1")]
    Zeroth(&'static str),
    /// `Action::Reorder` with nothing to go past.
    #[error("reordering by 0 packets: at least 1 must go past")]
    ReorderByZero,
    /// The network has no such channel.
    #[error("channel {channel}: the network has {channels}")]
    UnknownChannel {
        /// Its position.
        channel: usize,
        /// How many there are.
        channels: usize,
    },
}

/// What a fault has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultCounts {
    /// Packets that its filter let through.
    pub seen: u64,
    /// Packets that it hit.
    pub hits: u64,
}
