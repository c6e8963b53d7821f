//! Where congestion control comes in. A queue pair without it passes by each of these on one branch.

use super::Qp;
use crate::card::congestion::Loss;
use crate::time::Time;

impl Qp {
    /// True if a request packet may go now. If not, the queue pair asks again when its turn may have come, or
    /// after an answer.
    #[inline]
    pub(super) fn may_request(&mut self, now: Time) -> bool {
        self.limiter.is_none() || self.limiter_lets(now)
    }

    // Not inlined here, nor what the limiter is told elsewhere: it would cost those who have none.
    #[inline(never)]
    fn limiter_lets(&mut self, now: Time) -> bool {
        let Some(limiter) = self.limiter.as_deref_mut() else {
            return true;
        };
        let r = &mut self.requester;
        if let Some(at) = limiter.hold(now) {
            r.paced_until = at;
            return false;
        }
        r.paced_until = Time::NEVER;
        limiter.has_room(r.cursor - r.una, self.mtu.bytes())
    }

    /// A CNP has come: some packet of this queue pair met congestion.
    #[cold]
    pub(crate) fn take_cnp(&mut self, now: Time) {
        self.counters.cnps_received += 1;
        let limiter = self.limiter.as_deref_mut();
        if !limiter.is_some_and(|limiter| limiter.notified(now)) {
            self.counters.cnps_ignored += 1;
        }
    }

    /// A packet of the peer's answers was found missing.
    pub(super) fn take_loss(&mut self, now: Time, loss: Loss) {
        if let Some(limiter) = self.limiter.as_deref_mut() {
            limiter.lost(now, loss);
        }
    }
}
