//! In which order the queues of a port are served.

use crate::card::PriorityMask;

/// Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) among the priorities that have a weight,
/// after those that have none, of which the highest goes first.
#[derive(Clone, Debug)]
pub(super) struct Scheduler {
    /// Priorities without a weight.
    strict: PriorityMask,
    /// By priority: bytes it may send more in each round. The least is a longest frame, so that each
    /// round serves each queue.
    quanta: [u64; 8],
    /// By priority: bytes it may still send in this round.
    deficits: [u64; 8],
    /// Whose turn it is.
    current: u8,
}

impl Scheduler {
    pub(super) fn new(weights: [u8; 8], longest: u64) -> Scheduler {
        let strict = (0..8)
            .filter(|&p| weights[usize::from(p)] == 0)
            .fold(PriorityMask::NONE, PriorityMask::with);
        let least = weights.into_iter().filter(|&w| w != 0).min().unwrap_or(1);
        Scheduler {
            strict,
            quanta: weights.map(|w| (u64::from(w) * longest).div_ceil(u64::from(least))),
            deficits: [0; 8],
            current: 0,
        }
    }

    /// The priority to serve among those that may be, given how long the first frame of each is.
    #[inline]
    pub(super) fn pick(&mut self, ready: PriorityMask, first: impl Fn(u8) -> u64) -> Option<u8> {
        if let Some(highest) = ready.and(self.strict).highest() {
            return Some(highest);
        }
        self.turn(ready, first)
    }

    fn turn(&mut self, ready: PriorityMask, first: impl Fn(u8) -> u64) -> Option<u8> {
        if ready.is_empty() {
            return None;
        }
        loop {
            let p = self.current;
            let deficit = &mut self.deficits[usize::from(p & 7)];
            if ready.contains(p) {
                let len = first(p);
                if len <= *deficit {
                    *deficit -= len;
                    return Some(p);
                }
            }
            // The next one that may send, in falling order, and around.
            let below = ready.0 & ((1u8 << (p & 7)) - 1);
            let next = if below != 0 { below } else { ready.0 };
            self.current = next.ilog2() as u8;
            self.deficits[usize::from(self.current)] += self.quanta[usize::from(self.current)];
        }
    }

    /// A queue has become empty: what it has not used is lost.
    #[inline]
    pub(super) fn emptied(&mut self, priority: u8) {
        self.deficits[usize::from(priority & 7)] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes sent by priority when all of `ready` always have frames of their length.
    fn shares(weights: [u8; 8], ready: u8, lengths: [u64; 8], frames: u32) -> [u64; 8] {
        let mut scheduler = Scheduler::new(weights, 1500);
        let mut sent = [0; 8];
        for _ in 0..frames {
            let p = scheduler
                .pick(PriorityMask(ready), |p| lengths[usize::from(p)])
                .unwrap();
            sent[usize::from(p)] += lengths[usize::from(p)];
        }
        sent
    }

    #[test]
    fn without_weights_the_highest_goes_first() {
        let sent = shares([0; 8], 0b0101_0010, [100; 8], 10);
        assert_eq!(sent, [0, 0, 0, 0, 0, 0, 1000, 0]);
    }

    #[test]
    fn weights_share_bytes_whatever_the_length_of_frames() {
        let mut lengths = [1500; 8];
        lengths[1] = 64;
        lengths[3] = 700;
        let sent = shares([1, 1, 0, 2, 0, 4, 0, 0], 0b0010_1011, lengths, 200_000);
        let all: u64 = sent.iter().sum();
        for (p, weight) in [(0, 1), (1, 1), (3, 2), (5, 4)] {
            // Within the last round: 8 quanta of 1500 bytes.
            let fair = all * weight / 8;
            assert!(
                sent[p].abs_diff(fair) <= 8 * 1500,
                "{p}: {} of {fair}",
                sent[p]
            );
        }
    }

    #[test]
    fn strict_goes_before_weights_and_the_absent_cost_nothing() {
        assert_eq!(
            shares([1, 1, 0, 0, 0, 0, 0, 0], 0b1000_0011, [100; 8], 5)[7],
            500
        );
        let sent = shares([1, 3, 5, 0, 0, 0, 0, 0], 0b0000_0101, [1500; 8], 600);
        assert_eq!(sent, [150_000, 0, 750_000, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_an_empty_queue_did_not_use_is_lost() {
        let mut scheduler = Scheduler::new([1, 1, 0, 0, 0, 0, 0, 0], 1500);
        assert_eq!(scheduler.pick(PriorityMask(2), |_| 100), Some(1));
        scheduler.emptied(1);
        // 1500 of its own, not 1400 more.
        let mut bytes = 0;
        while scheduler.pick(PriorityMask(3), |_| 100) == Some(0) {
            bytes += 100;
        }
        assert_eq!(bytes, 1500);
        let mut bytes = 100;
        while scheduler.pick(PriorityMask(3), |_| 100) == Some(1) {
            bytes += 100;
        }
        assert_eq!(bytes, 1500);
    }
}
