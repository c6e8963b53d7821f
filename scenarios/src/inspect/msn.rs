//! Message sequence numbers against the messages that were sent (C9-148).
//!
//! The MSN of a response is the number of messages the responder has completed, from an unknown
//! start. It covers at least the messages that the response acknowledges, and at most those sent;
//! a READ may be counted before its responses. So each response confines the start to an interval,
//! and all of them must have a value in common.

use softroce_sim::wire::{Msn, Psn};
use std::collections::VecDeque;

/// Ends of messages that are remembered.
const REMEMBERED: usize = 1024;

/// The messages of one stream of requests, as far as MSNs count them.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Last PSNs of messages, in order.
    ends: VecDeque<Psn>,
    /// Messages before those, and the last PSN of the last of them.
    forgotten: u64,
    forgotten_upto: Option<Psn>,
    /// What the MSN before the first message can be: the least value, and how many more there are.
    start: Option<(Msn, u32)>,
}

impl Count {
    /// A message ends at `psn`.
    pub(super) fn end(&mut self, psn: Psn) {
        if self.forgotten_upto.is_some_and(|f| psn.after(f) <= 0) {
            return;
        }
        let at = self.ends.partition_point(|e| e.is_before(psn));
        if self.ends.get(at) == Some(&psn) {
            return;
        }
        if at == 0 && !self.ends.is_empty() {
            // A message from before the first one counted: the count begins elsewhere.
            self.start = None;
        }
        self.ends.insert(at, psn);
        if self.ends.len() > REMEMBERED {
            self.forgotten_upto = self.ends.pop_front();
            self.forgotten += 1;
        }
    }

    /// Messages are missing from the count.
    pub(super) fn lose_track(&mut self) {
        self.start = None;
    }

    /// Takes the MSN of a response that acknowledges everything up to `upto`.
    ///
    /// # Errors
    ///
    /// The values that the MSN could have had, first and last, if it cannot be right.
    pub(super) fn check(&mut self, upto: Psn, msn: Msn) -> Result<(), (Msn, Msn)> {
        if self.forgotten_upto.is_some_and(|f| upto.is_before(f)) {
            return Ok(());
        }
        let before = self.ends.partition_point(|e| upto.after(*e) >= 0);
        let completed = self.forgotten + before as u64;
        let sent = self.forgotten + self.ends.len() as u64;
        let least = Msn::new(msn.get().wrapping_sub(sent as u32));
        let width = (sent - completed) as u32;
        let Some((known, known_width)) = self.start else {
            self.start = Some((least, width));
            return Ok(());
        };
        let (lo, hi) = (0i64, i64::from(known_width));
        let offset = i64::from(Psn::new(least.get()).after(Psn::new(known.get())));
        let (new_lo, new_hi) = (lo.max(offset), hi.min(offset + i64::from(width)));
        if new_lo > new_hi {
            let at = |start: i64, messages: u64| {
                Msn::new(
                    known
                        .get()
                        .wrapping_add(start as u32)
                        .wrapping_add(messages as u32),
                )
            };
            // So that one strange number is one finding, go on from it.
            self.start = Some((least, width));
            return Err((at(lo, completed), at(hi, sent)));
        }
        self.start = Some((
            Msn::new(known.get().wrapping_add(new_lo as u32)),
            (new_hi - new_lo) as u32,
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(ends: &[u32]) -> Count {
        let mut c = Count::default();
        for &e in ends {
            c.end(Psn::new(e));
        }
        c
    }

    #[test]
    fn each_message_counts_once() {
        let mut c = count(&[10, 20]);
        assert_eq!(c.check(Psn::new(10), Msn::new(5)), Ok(()));
        assert_eq!(c.check(Psn::new(20), Msn::new(6)), Ok(()));
        c.end(Psn::new(20));
        assert_eq!(c.check(Psn::new(20), Msn::new(6)), Ok(()));
        assert!(c.check(Psn::new(20), Msn::new(7)).is_err());
    }

    #[test]
    fn an_acknowledged_message_must_be_counted() {
        let mut c = count(&[10]);
        assert_eq!(c.check(Psn::new(10), Msn::new(1)), Ok(()));
        c.end(Psn::new(11));
        assert_eq!(
            c.check(Psn::new(11), Msn::new(1)),
            Err((Msn::new(2), Msn::new(2)))
        );
    }

    #[test]
    fn counts_wrap() {
        let mut c = count(&[0xff_ffff]);
        assert_eq!(c.check(Psn::new(0xff_ffff), Msn::new(0xff_ffff)), Ok(()));
        c.end(Psn::new(0));
        assert_eq!(c.check(Psn::new(0), Msn::new(0)), Ok(()));
    }

    #[test]
    fn a_read_may_count_early() {
        let mut c = count(&[5, 9]);
        assert_eq!(c.check(Psn::new(6), Msn::new(2)), Ok(()));
        assert_eq!(c.check(Psn::new(9), Msn::new(2)), Ok(()));
        assert_eq!(c.check(Psn::new(9), Msn::new(2)), Ok(()));
        c.end(Psn::new(10));
        assert_eq!(c.check(Psn::new(10), Msn::new(3)), Ok(()));
    }
}
