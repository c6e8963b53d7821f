//! A small ring of rare events per queue pair, always on: the second of the three tiers. It is what
//! explains a failure.

use super::qp::State;
use super::work::Status;
use crate::time::{Span, Time};
use crate::wire::{Psn, Syndrome};

/// How many are remembered.
const DEPTH: usize = 32;

/// Something that does not happen on a good day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rare {
    /// A NAK or RNR NAK was queued.
    NakSent {
        /// PSN it names.
        psn: Psn,
        /// What it says.
        syndrome: Syndrome,
    },
    /// A NAK or RNR NAK arrived.
    NakReceived {
        /// PSN it names.
        psn: Psn,
        /// What it says.
        syndrome: Syndrome,
    },
    /// A READ response is missing.
    ImpliedNak {
        /// PSN of the missing response.
        psn: Psn,
    },
    /// The transport timer ran out.
    Timeout {
        /// Oldest PSN without answer.
        psn: Psn,
        /// Retries left, this one not counted.
        retries_left: u8,
        /// How long it ran.
        after: Span,
    },
    /// The requester went back.
    Resend {
        /// PSN it sends next.
        psn: Psn,
    },
    /// The queue pair changed its state.
    State(State),
    /// A request failed.
    Failed {
        /// Its `wr_id`.
        wr_id: u64,
        /// How.
        status: Status,
    },
}

/// The latest rare events of a queue pair, oldest first.
#[derive(Clone, Debug)]
pub struct Recent {
    events: [(Time, Rare); DEPTH],
    count: u64,
}

impl Recent {
    pub(crate) fn new() -> Recent {
        Recent {
            events: [(Time::ZERO, Rare::State(State::Reset)); DEPTH],
            count: 0,
        }
    }

    pub(crate) fn note(&mut self, now: Time, event: Rare) {
        self.events[(self.count % DEPTH as u64) as usize] = (now, event);
        self.count += 1;
    }

    /// How many there have been; only the latest are remembered.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many there were before those that are remembered.
    pub fn forgotten(&self) -> u64 {
        self.count.saturating_sub(DEPTH as u64)
    }

    /// Those remembered, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Time, Rare)> + '_ {
        self.since(0)
    }

    /// Of those remembered all but the first `n` there ever were, oldest first.
    pub fn since(&self, n: u64) -> impl Iterator<Item = (Time, Rare)> + '_ {
        (n.max(self.forgotten())..self.count).map(|i| self.events[(i % DEPTH as u64) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_in_order() {
        let mut r = Recent::new();
        for i in 0..40 {
            r.note(
                Time::from_ps(i),
                Rare::ImpliedNak {
                    psn: Psn::new(i as u32),
                },
            );
        }
        let psns: Vec<_> = r.iter().map(|(t, _)| t.as_ps()).collect();
        assert_eq!(psns, (8..40).collect::<Vec<_>>());
        assert_eq!((r.count(), r.forgotten()), (40, 8));
        assert_eq!(
            r.since(39).map(|(t, _)| t.as_ps()).collect::<Vec<_>>(),
            [39]
        );
        assert_eq!(r.since(3).count(), 32);
    }
}
