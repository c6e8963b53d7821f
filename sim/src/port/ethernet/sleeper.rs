//! Someone who sleeps until another thread has done something.

#[cfg(target_os = "linux")]
use rustix::event::{EventfdFlags, eventfd};
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Relaxed, SeqCst},
    fence,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// Sleeps on a descriptor, or in a call, until something is put into a queue of this process.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    asleep: AtomicBool,
    /// It waits for room in its own queue as well.
    for_room: AtomicBool,
    /// Who sleeps in a call.
    thread: Mutex<Option<Thread>>,
    /// An eventfd, once someone wants to sleep on it.
    #[cfg(target_os = "linux")]
    bell: std::sync::OnceLock<OwnedFd>,
}

impl Sleeper {
    /// What becomes readable.
    #[cfg(target_os = "linux")]
    pub(super) fn descriptor(&self) -> std::io::Result<OwnedFd> {
        let bell = match self.bell.get() {
            Some(bell) => bell,
            None => {
                let fresh = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                self.bell.get_or_init(|| fresh)
            }
        };
        bell.try_clone()
    }

    /// Before a sleep: false if there is something to do.
    pub(super) fn arm(&self, is_idle: impl FnOnce() -> bool) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(bell) = self.bell.get() {
            // Nothing to read is as good.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        self.asleep.store(true, Relaxed);
        // Either this sees what was done, or who did it sees the sleeper.
        fence(SeqCst);
        let idle = is_idle();
        if !idle {
            self.asleep.store(false, Relaxed);
        }
        idle
    }

    /// Sleeps in here, at most `timeout`; for room as well if `for_room`. A stray wake-up ends it early.
    pub(super) fn wait(&self, for_room: bool, timeout: Duration, is_idle: impl FnOnce() -> bool) {
        *self.thread() = Some(std::thread::current());
        self.for_room.store(for_room, Relaxed);
        if self.arm(is_idle) {
            std::thread::park_timeout(timeout);
        }
        self.asleep.store(false, Relaxed);
        self.for_room.store(false, Relaxed);
        *self.thread() = None;
    }

    /// After something was put into the queue.
    #[inline]
    pub(super) fn wake(&self) {
        fence(SeqCst);
        if self.asleep.load(Relaxed) {
            self.ring();
        }
    }

    /// After there is more room for what the sleeper sends.
    #[inline]
    pub(super) fn wake_for_room(&self) {
        fence(SeqCst);
        if self.for_room.load(Relaxed) && self.asleep.load(Relaxed) {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        if !self.asleep.swap(false, AcqRel) {
            return;
        }
        if let Some(thread) = &*self.thread() {
            thread.unpark();
        }
        #[cfg(target_os = "linux")]
        if let Some(bell) = self.bell.get() {
            // Fails only where it is readable already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        // There is nothing in it that a panic could leave half done.
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
