//! A descriptor for something that has none.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Relaxed, SeqCst},
    fence,
};

/// Who sleeps on a descriptor until something is put into a queue of this process.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    asleep: AtomicBool,
    /// An eventfd, once someone wants to sleep.
    bell: OnceLock<OwnedFd>,
}

impl Sleeper {
    /// What becomes readable.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        let bell = match self.bell.get() {
            Some(bell) => bell,
            None => {
                let fresh = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                self.bell.get_or_init(|| fresh)
            }
        };
        bell.try_clone()
    }

    /// Before a sleep: false if the queue is not empty.
    pub(super) fn arm(&self, is_empty: impl FnOnce() -> bool) -> bool {
        if let Some(bell) = self.bell.get() {
            // Nothing to read is as good.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        self.asleep.store(true, Relaxed);
        // Either this looks into the queue after the entry is there, or who put it there sees the sleeper.
        fence(SeqCst);
        let empty = is_empty();
        if !empty {
            self.asleep.store(false, Relaxed);
        }
        empty
    }

    /// After something was put into the queue.
    pub(super) fn wake(&self) {
        fence(SeqCst);
        if self.asleep.load(Relaxed)
            && self.asleep.swap(false, AcqRel)
            && let Some(bell) = self.bell.get()
        {
            // Fails only where it is readable already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}
