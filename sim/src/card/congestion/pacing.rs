//! A controller's rate becomes the time of the next packet.

use super::{Acked, CongestionState, Controller, Loss};
use crate::time::Time;

/// Holds the data of one queue pair to what its controller allows.
///
/// After a packet the next waits until the packet would have crossed a wire of the rate there is at the time
/// of asking: if the rate falls or rises meanwhile, the wait is longer or shorter. It is counted from when
/// the packet went to the port, so that time lost to other queue pairs is not made up for by a burst. At the
/// rate of the port there is nothing to wait for but the port.
#[derive(Debug)]
pub(crate) struct Limiter {
    controller: Box<dyn Controller>,
    /// When the last packet went to the port, and what it takes on the wire.
    last: Time,
    last_bytes: u32,
    /// Position up to which the controller knows of answers.
    answered: u64,
    /// The packet whose answer is waited for, and when it was sent.
    measured: Option<(u64, Time)>,
}

impl Limiter {
    pub(crate) fn new(controller: Box<dyn Controller>) -> Limiter {
        Limiter {
            controller,
            last: Time::ZERO,
            last_bytes: 0,
            answered: 0,
            measured: None,
        }
    }

    /// `None` if a packet may go now; otherwise when to ask again.
    pub(crate) fn hold(&mut self, now: Time) -> Option<Time> {
        let rate = self.controller.rate(now)?;
        let due = self.last + rate.spacing(self.last_bytes);
        if due <= now {
            return None;
        }
        let rises = self.controller.rises_at();
        Some(if rises > now { due.min(rises) } else { due })
    }

    /// True if a packet of `mtu` bytes may be in flight beside `packets` others.
    pub(crate) fn has_room(&self, packets: u64, mtu: u16) -> bool {
        match self.controller.window() {
            Some(window) => packets == 0 || (packets + 1) * u64::from(mtu) <= window,
            None => true,
        }
    }

    /// True if the packet that makes it `packets` in flight must ask for an acknowledgement, for the queue pair
    /// might have to wait for one that nobody asked for: it closes the window, or the window may close behind it.
    #[inline(never)]
    pub(crate) fn needs_answer(&self, packets: u64, mtu: u16) -> bool {
        self.controller.window_shrinks() || !self.has_room(packets, mtu)
    }

    /// A packet goes to the port. If it is sent for the first time and asks for an acknowledgement,
    /// `position` is its position among the requests.
    #[inline(never)]
    pub(crate) fn sent(&mut self, now: Time, bytes: u32, position: Option<u64>) {
        (self.last, self.last_bytes) = (now, bytes);
        if self.measured.is_none() {
            self.measured = position.map(|p| (p, now));
        }
        self.controller.sent(now, bytes);
    }

    /// Everything before `una` is answered. True if a packet may go sooner for that.
    #[inline(never)]
    pub(crate) fn acknowledged(&mut self, now: Time, una: u64) -> bool {
        if una <= self.answered {
            return false;
        }
        let packets = una - self.answered;
        self.answered = una;
        let mut rtt = None;
        if let Some((position, at)) = self.measured
            && position < una
        {
            self.measured = None;
            rtt = Some(now.since(at));
        }
        self.controller.acknowledged(now, &Acked { packets, rtt })
    }

    pub(crate) fn lost(&mut self, now: Time, loss: Loss) {
        // Its answer could be that of its second copy.
        self.measured = None;
        self.controller.lost(now, loss);
    }

    pub(crate) fn notified(&mut self, now: Time) -> bool {
        self.controller.notified(now)
    }

    pub(crate) fn state(&self, now: Time) -> CongestionState {
        self.controller.state(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use crate::time::Span;
    use std::sync::{Arc, Mutex};

    /// Notes what it is told.
    #[derive(Clone, Debug, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl Controller for Notes {
        fn rate(&mut self, _: Time) -> Option<Rate> {
            None
        }
        fn window(&self) -> Option<u64> {
            Some(4096)
        }
        fn acknowledged(&mut self, now: Time, acked: &Acked) -> bool {
            let note = format!("{} {} {:?}", now.as_ps(), acked.packets, acked.rtt);
            self.0.lock().unwrap().push(note);
            false
        }
        fn state(&self, _: Time) -> CongestionState {
            unreachable!("nobody asks")
        }
    }

    #[test]
    fn one_packet_at_a_time_is_measured_and_none_that_was_sent_twice() {
        let notes = Notes::default();
        let mut limiter = Limiter::new(Box::new(notes.clone()));
        let at = Time::from_ps;
        limiter.sent(at(10), 1106, None);
        limiter.sent(at(20), 1106, Some(1));
        limiter.sent(at(30), 1106, Some(2));
        limiter.acknowledged(at(40), 1);
        limiter.acknowledged(at(50), 3);
        limiter.acknowledged(at(50), 3);
        limiter.sent(at(60), 1106, Some(3));
        limiter.lost(at(70), Loss::Timeout);
        limiter.sent(at(80), 1106, None);
        limiter.acknowledged(at(90), 4);
        limiter.sent(at(100), 1106, Some(4));
        limiter.acknowledged(at(107), 5);
        let rtt = |ps| format!("{:?}", Some(Span::from_ps(ps)));
        assert_eq!(
            *notes.0.lock().unwrap(),
            [
                "40 1 None".to_string(),
                format!("50 2 {}", rtt(30)),
                "90 1 None".into(),
                format!("107 1 {}", rtt(7)),
            ]
        );
    }

    #[test]
    fn the_packet_that_closes_a_window_needs_an_answer() {
        let limiter = Limiter::new(Box::new(Notes::default()));
        assert!(!limiter.needs_answer(3, 1024));
        assert!(limiter.needs_answer(4, 1024));
        assert!(limiter.needs_answer(1, 4096));
    }

    #[test]
    fn a_window_lets_one_packet_go_whatever_its_size() {
        let limiter = Limiter::new(Box::new(Notes::default()));
        assert!(limiter.has_room(3, 1024));
        assert!(!limiter.has_room(4, 1024));
        assert!(limiter.has_room(0, 4096));
        assert!(!limiter.has_room(1, 4096));
    }
}
