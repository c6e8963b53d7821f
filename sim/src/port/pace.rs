//! How fast a port sends.

use crate::rate::Rate;
use crate::time::{Span, Time};

/// A token bucket, told as the time at which it is full enough again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    rate: Rate,
    /// How long a full bucket takes to fill.
    burst: Span,
    /// When all that was sent is paid for; a packet may go when this is less than a burst away.
    paid: Time,
}

impl Pace {
    pub(super) fn new(rate: Rate, burst: u32) -> Pace {
        Pace {
            rate,
            burst: rate.spacing(burst),
            paid: Time::ZERO,
        }
    }

    /// When the next packet may go.
    pub(super) fn next(&self) -> Time {
        Time::ZERO + self.paid.since(Time::ZERO + self.burst)
    }

    /// A packet of so many bytes goes.
    pub(super) fn sent(&mut self, now: Time, bytes: u32) {
        self.paid = self.paid.max(now) + self.rate.spacing(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        // 1000 bytes take 1 us; three of them may go at once, and one in debt.
        let mut pace = Pace::new(Rate::from_gbps(8), 3000);
        let us = |n| Time::ZERO + Span::from_us(n);
        let mut gone = Vec::new();
        let mut now = us(100);
        for _ in 0..6 {
            now = now.max(pace.next());
            pace.sent(now, 1000);
            gone.push(now);
        }
        assert_eq!(gone, [100, 100, 100, 100, 101, 102].map(us));
        // What was not used for long is not saved up beyond the burst.
        let mut gone = Vec::new();
        now = us(1000);
        for _ in 0..5 {
            now = now.max(pace.next());
            pace.sent(now, 1000);
            gone.push(now);
        }
        assert_eq!(gone, [1000, 1000, 1000, 1000, 1001].map(us));
    }
}
