//! The failures that the program has not seen.

use super::{Cause, Failure};
use std::collections::VecDeque;

/// The most failures that a card keeps for its program to see; later ones are counted.
pub const MAX_FAILURES: usize = 256;

/// A bounded queue of failures, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    queue: VecDeque<Failure>,
    beyond: u64,
}

impl FailureLog {
    /// Adds a failure. What a queue pair in error flushes, doorbell after doorbell, is one.
    #[cold]
    pub(crate) fn push(&mut self, failure: Failure) {
        if let Cause::Flushed(_) = failure.cause
            && let Some(last) = self.queue.back_mut()
            && (last.own, last.cause) == (failure.own, failure.cause)
        {
            last.flushed.append(failure.flushed);
            return;
        }
        if self.queue.len() < MAX_FAILURES {
            self.queue.push_back(failure);
        } else {
            self.beyond += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Failure> {
        self.queue.pop_front()
    }

    pub(crate) fn beyond(&self) -> u64 {
        self.beyond
    }
}
