//! Ctrl-C: the first ends what runs, and leaves its report; the second ends the program.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What the exit code is after an interruption: 128 and the number of the signal.
pub(super) const CODE: u8 = 130;

/// From now on the first interruption sets the flag. To be called before there are other threads.
#[cfg(unix)]
pub(super) fn watch() -> Arc<AtomicBool> {
    use nix::sys::signal::{SigSet, Signal};
    use std::sync::atomic::Ordering;
    let flag = Arc::new(AtomicBool::new(false));
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    // Threads begun later inherit that it is blocked, and one of them waits for it.
    if set.thread_block().is_ok() {
        let flag = Arc::clone(&flag);
        std::thread::spawn(move || {
            if set.wait().is_ok() {
                flag.store(true, Ordering::Relaxed);
                super::complain(
                    "interrupted: the run ends where it is; once more to leave at once",
                );
            }
            if set.wait().is_ok() {
                std::process::exit(i32::from(CODE));
            }
        });
    }
    flag
}

/// Nothing sets the flag here: an interruption ends the program.
#[cfg(not(unix))]
pub(super) fn watch() -> Arc<AtomicBool> {
    Arc::default()
}
