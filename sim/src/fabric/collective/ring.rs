//! All-reduce around a ring: reduce-scatter and all-gather in 2 (N - 1) steps (Patarasuk and Yuan 2009).

use super::{Event, Orders, Rhythm};
use crate::time::{Span, Time};

/// A member of one or several rings that run at the same time over the same hosts.
///
/// Of S bytes each of N members sends one chunk of S / N in each of 2 (N - 1) steps to the next one. What
/// it sends in a step is what it received in the step before, with its own share added to it, so the
/// send waits for that receive. Its `n`-th ring sends on its flow `n` and receives on its flow `n`.
#[derive(Clone, Debug)]
pub struct Ring {
    pub(super) rhythm: Rhythm,
    /// Steps of a round.
    steps: u64,
    rings: Vec<Progress>,
}

/// What one ring has done since the beginning.
#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    granted: u64,
    received: u64,
}

impl Ring {
    /// One of `members` hosts, at least two, in `rings` rings. It takes `compute` before each of its
    /// `rounds`.
    pub fn new(members: usize, rings: usize, rounds: u64, compute: Span) -> Ring {
        Ring {
            rhythm: Rhythm::new(rounds, compute),
            steps: Ring::steps(members),
            rings: vec![Progress::default(); rings],
        }
    }

    /// Messages that each of `members` sends on each ring in a round.
    pub const fn steps(members: usize) -> u64 {
        2 * (members as u64).saturating_sub(1)
    }

    /// Bytes of a message when `members` reduce `bytes` on `rings` rings, rounded up.
    pub const fn chunk(bytes: u64, members: usize, rings: usize) -> u64 {
        match (members as u64).saturating_mul(rings as u64) {
            0 => bytes,
            parts => bytes.div_ceil(parts),
        }
    }

    pub(super) fn on(&mut self, now: Time, event: Event, orders: &mut Orders) {
        let launched = match event {
            Event::Wake => self.rhythm.wake(now, orders),
            Event::Received(ring) => {
                self.rings[ring].received += 1;
                self.grant(ring, orders);
                false
            }
            // What is sent is there already; it is the next one that waits for it.
            Event::Sent(_) => false,
        };
        if launched {
            (0..self.rings.len()).for_each(|ring| self.grant(ring, orders));
        }
        while self.rhythm.launched.is_some() && self.is_round_done() {
            self.rhythm.end(now);
            if self.rhythm.next(now, orders) {
                (0..self.rings.len()).for_each(|ring| self.grant(ring, orders));
            }
        }
    }

    /// Lets a ring send what it can: in each round the first chunk at once, and another for each that
    /// was received, up to the last step. The one before may be ahead by some steps of the next round.
    fn grant(&mut self, ring: usize, orders: &mut Orders) {
        if self.rhythm.launched.is_none() {
            return;
        }
        let before = self.rhythm.ended() * self.steps;
        let progress = &mut self.rings[ring];
        let ready = progress.received.saturating_sub(before) + 1;
        let may = before + ready.min(self.steps);
        if may > progress.granted {
            orders.grants.push((ring, may - progress.granted));
            progress.granted = may;
        }
    }

    fn is_round_done(&self) -> bool {
        let all = (self.rhythm.ended() + 1) * self.steps;
        self.rings.iter().all(|r| r.received >= all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Runs `members` over links that take one picosecond a message, in rounds of events, and gives each
    /// one's messages and the ends of its rounds.
    fn run(members: &mut [Ring], slow: usize) -> Vec<(u64, Vec<u64>)> {
        let n = members.len();
        let mut sent = vec![0; n];
        let mut waiting: VecDeque<(u64, usize, Event)> =
            (0..n).map(|m| (0, m, Event::Wake)).collect();
        while let Some(first) = waiting.iter().map(|w| w.0).min() {
            let at = waiting.iter().position(|w| w.0 == first).unwrap();
            let (now, m, event) = waiting.remove(at).unwrap();
            let mut orders = Orders::default();
            members[m].on(Time::from_ps(now), event, &mut orders);
            for (ring, count) in orders.grants {
                sent[m] += count;
                let latency = if m == slow { 5 } else { 1 };
                for _ in 0..count {
                    waiting.push_back((now + latency, (m + 1) % n, Event::Received(ring)));
                }
            }
            if let Some(at) = orders.wake {
                waiting.push_back((at.as_ps(), m, Event::Wake));
            }
        }
        members
            .iter()
            .zip(sent)
            .map(|(m, sent)| {
                let ends = m.rhythm.rounds.iter().map(|r| r.end.as_ps()).collect();
                (sent, ends)
            })
            .collect()
    }

    #[test]
    fn each_step_waits_for_the_one_before() {
        for n in [2, 3, 8] {
            let mut members = vec![Ring::new(n, 1, 3, Span::ZERO); n];
            let steps = 2 * (n as u64 - 1);
            for (sent, ends) in run(&mut members, usize::MAX) {
                assert_eq!(sent, 3 * steps);
                assert_eq!(ends, [steps, 2 * steps, 3 * steps]);
            }
        }
    }

    #[test]
    fn rings_side_by_side_end_together() {
        let mut members = vec![Ring::new(4, 3, 2, Span::ZERO); 4];
        for (sent, ends) in run(&mut members, usize::MAX) {
            assert_eq!((sent, ends), (3 * 2 * 6, vec![6, 12]));
        }
    }

    #[test]
    fn a_round_begins_after_its_computing() {
        let mut members = vec![Ring::new(4, 1, 2, Span::from_ps(100)); 4];
        for (_, ends) in run(&mut members, usize::MAX) {
            assert_eq!(ends, [106, 212]);
        }
        assert_eq!(members[0].rhythm.rounds[1].launch.as_ps(), 206);
    }

    #[test]
    fn one_slow_to_compute_holds_up_all_and_nothing_is_lost() {
        let mut members = vec![Ring::new(5, 1, 4, Span::from_ps(10)); 5];
        members[2] = Ring::new(5, 1, 4, Span::from_ps(90));
        for (sent, ends) in run(&mut members, usize::MAX) {
            assert_eq!((sent, ends.len()), (4 * 8, 4));
            // Each round takes the slow one's time and at least the way of its chunk around the ring.
            assert!(ends.windows(2).all(|w| w[1] - w[0] >= 90 + 4), "{ends:?}");
        }
    }

    #[test]
    fn rounds_do_not_run_ahead_of_a_slow_link() {
        let mut members = vec![Ring::new(4, 1, 5, Span::ZERO); 4];
        for (sent, ends) in run(&mut members, 1) {
            assert_eq!((sent, ends.len()), (5 * 6, 5));
        }
    }

    #[test]
    fn chunks_are_rounded_up() {
        assert_eq!(Ring::chunk(1000, 8, 1), 125);
        assert_eq!(Ring::chunk(1001, 8, 1), 126);
        assert_eq!(Ring::chunk(1001, 8, 2), 63);
        assert_eq!((Ring::steps(2), Ring::steps(8)), (2, 14));
    }
}
