//! The watchdog of a switch: who has been paused for too long is taken for the victim of a storm.

use super::counters::DropCause;
use super::host::Host;
use super::medium::Other;
use super::network::Network;
use super::observer::Observer;
use crate::card::PriorityMask;
use crate::time::Span;

/// When a switch takes a priority of a port for stuck, and when it trusts it again.
///
/// Until then what waits there and what comes for it is dropped, and pauses are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watchdog {
    /// For how long a port must have been paused without a break, with something waiting all the time; not 0.
    pub after: Span,
    /// For how long no pause must have come.
    pub restore: Span,
}

impl Default for Watchdog {
    /// 100 ms and 200 ms (Guo et al., SIGCOMM 2016).
    fn default() -> Watchdog {
        Watchdog {
            after: Span::from_ms(100),
            restore: Span::from_ms(200),
        }
    }
}

impl<H: Host, O: Observer> Network<H, O> {
    /// A packet has come into the empty queue of a port that is paused.
    #[cold]
    pub(super) fn watch_from_now(&mut self, id: u32, priority: u8) {
        let now = self.medium.clock;
        let gate = &mut self.managed.gates[id as usize];
        let Some(watchdog) = gate.watchdog else {
            return;
        };
        gate.fill(priority, now);
        if !gate.watched.contains(priority) {
            gate.watched = gate.watched.with(priority);
            let other = Other::Watch {
                channel: id,
                priority,
            };
            self.medium.plan(now + watchdog.after, other);
        }
    }

    /// Looks whether a port is stuck in a priority; false if it is not.
    pub(super) fn watch(&mut self, id: u32, priority: u8) -> bool {
        let now = self.medium.clock;
        let gate = &mut self.managed.gates[id as usize];
        gate.watched = gate.watched.without(priority);
        let channel = &mut self.channels[id as usize];
        let Some(watchdog) = gate.watchdog else {
            return false;
        };
        if channel.unpaused.contains(priority) || gate.stormed.contains(priority) {
            return false;
        }
        if !channel.queue.waiting().contains(priority) {
            // It is watched again from when something does.
            return false;
        }
        let next = gate.stuck_since(priority) + watchdog.after;
        if next <= now {
            gate.stormed = gate.stormed.with(priority);
            channel.counters.by_priority[usize::from(priority & 7)].storms += 1;
            self.flush(id, PriorityMask::NONE.with(priority), DropCause::Watchdog);
            let restore = Other::Restore {
                channel: id,
                priority,
            };
            let gate = &self.managed.gates[id as usize];
            let quiet = gate.heard(priority) + watchdog.restore;
            self.medium.plan(quiet.max(now), restore);
            return true;
        }
        let other = Other::Watch {
            channel: id,
            priority,
        };
        gate.watched = gate.watched.with(priority);
        self.medium.plan(next, other);
        false
    }

    /// Trusts a port again, if no pause has come for long enough; false if one has.
    pub(super) fn restore(&mut self, id: u32, priority: u8) -> bool {
        let now = self.medium.clock;
        let gate = &mut self.managed.gates[id as usize];
        let Some(watchdog) = gate.watchdog else {
            return false;
        };
        let quiet = gate.heard(priority) + watchdog.restore;
        if quiet > now {
            let restore = Other::Restore {
                channel: id,
                priority,
            };
            self.medium.plan(quiet, restore);
            return false;
        }
        gate.stormed = gate.stormed.without(priority);
        self.resume(id, PriorityMask::NONE.with(priority));
        true
    }
}
