//! The thread of an engine: it drives the card while the program does not.

use super::driver::{Driver, Watch};
use super::events::wait_for_any;
use super::handover::Handover;
use super::{EngineError, NAP};
use crate::port::driver::RETRY;
use crate::time::Time;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::time::{Duration, Instant};

/// How long what is queued has to leave when an engine is closed.
const DRAIN: Duration = Duration::from_millis(200);

/// What the thread has of its engine.
pub(super) struct Watcher {
    pub(super) pair: Arc<Handover<Driver>>,
    /// Turns of the program.
    pub(super) turns: Arc<AtomicU64>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) kick: Arc<OwnedFd>,
    pub(super) socket: OwnedFd,
}

/// What it does next.
enum Plan {
    Again,
    Nap,
    Sleep(Option<Duration>),
    /// Nothing is left to do but to be stopped.
    Rest,
}

impl Watcher {
    pub(super) fn run(self) {
        let mut turns = 0;
        let mut napping = false;
        while !self.stop.load(Acquire) {
            let plan = self.turn(&mut turns, napping);
            napping = matches!(plan, Plan::Nap);
            let slept = match plan {
                Plan::Again => continue,
                Plan::Nap => self.nap(&mut turns),
                Plan::Rest => wait_for_any(&[self.kick.as_fd()], None),
                Plan::Sleep(timeout) => {
                    wait_for_any(&[self.kick.as_fd(), self.socket.as_fd()], timeout)
                }
            };
            if let Err(e) = slept {
                let mut driver = self.pair.hold();
                let e = driver.port.error("waiting", e);
                driver.end(EngineError::Broken(Arc::new(e)));
                return;
            }
            self.was_kicked();
        }
        self.drain();
    }

    /// Sleeps for as long as the program drives, or until it is woken. It leaves the lock alone, for a program
    /// that finds someone waiting for it has no turn.
    fn nap(&self, turns: &mut u64) -> io::Result<()> {
        loop {
            wait_for_any(&[self.kick.as_fd()], Some(NAP))?;
            if self.was_kicked() || !self.has_driven(turns) {
                return Ok(());
            }
        }
    }

    /// True if someone has woken it since the last call.
    fn was_kicked(&self) -> bool {
        rustix::io::read(&self.kick, &mut [0; 8]).is_ok()
    }

    /// True if the program has driven since the last call.
    fn has_driven(&self, turns: &mut u64) -> bool {
        let now = self.turns.load(Relaxed);
        std::mem::replace(turns, now) != now
    }

    /// Its turn with the card, and what comes after.
    fn turn(&self, turns: &mut u64, napping: bool) -> Plan {
        let mut driver = self.pair.hold();
        driver.watch = Watch::Awake;
        let driven = self.has_driven(turns);
        let released = std::mem::take(&mut driver.released) || driver.card.armed() > 0;
        if napping && driven && !released {
            driver.watch = Watch::Napping;
            return Plan::Nap;
        }
        // What woke it is looked at in any case.
        let activity = driver.poll();
        driver.tell();
        if driven && !released {
            driver.watch = Watch::Napping;
            return Plan::Nap;
        }
        if activity.any() {
            return Plan::Again;
        }
        if driver.has_ended() {
            driver.watch = Watch::Until(Time::NEVER);
            return Plan::Rest;
        }
        let deadline = driver.port.deadline(&driver.card);
        let now = driver.port.now();
        if deadline <= now || !driver.port.arm() {
            return Plan::Again;
        }
        driver.watch = Watch::Until(deadline);
        let left = (deadline != Time::NEVER).then(|| deadline.since(now));
        Plan::Sleep(left.map(Duration::from))
    }

    /// Lets what is queued leave, then ends.
    fn drain(&self) {
        let start = Instant::now();
        let mut driver = self.pair.hold();
        while !driver.has_ended()
            && (driver.port.keeps() || !driver.card.pending().is_empty())
            && start.elapsed() < DRAIN
        {
            driver.look();
            if driver.send() == 0 {
                std::thread::sleep(RETRY.into());
            }
        }
        driver.end(EngineError::Closed);
    }
}
