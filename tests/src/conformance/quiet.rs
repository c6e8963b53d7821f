//! Runs a function that may panic, and keeps what it says from standard error.

use std::cell::{Cell, RefCell};
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<(String, String)> = RefCell::default();
}

/// Runs `test` on this thread; if it panics, its message and the file and line it panicked at.
pub(super) fn run(test: fn()) -> Result<(), (String, String)> {
    install();
    QUIET.set(true);
    let outcome = panic::catch_unwind(test);
    QUIET.set(false);
    outcome.map_err(|_| SAID.take())
}

/// The hook is the process's, so it is set once and for all; on threads that run no rule, the one that was
/// there before does its work.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                SAID.set(said(info));
            } else {
                before(info);
            }
        }));
    });
}

/// What `panic!` was given, in the two forms it gives it.
fn payload<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panicked")
}

fn said(info: &PanicHookInfo<'_>) -> (String, String) {
    let message = payload(info).to_string();
    // A path of the machine that built this says nothing here.
    let place = info.location().map_or_else(String::new, |at| {
        let file = at.file().rsplit(['/', '\\']).next().unwrap_or_default();
        format!("{file}:{}", at.line())
    });
    (message, place)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_is_told_and_the_next_run_begins_afresh() {
        let (message, place) = super::run(|| panic!("not as {} says", "9.6")).unwrap_err();
        assert_eq!(message, "not as 9.6 says");
        assert!(place.starts_with("quiet.rs:"), "{place}");
        assert_eq!(super::run(|| ()), Ok(()));
        let (message, _) = super::run(|| assert_eq!(1, 2)).unwrap_err();
        assert!(message.contains("left: 1"), "{message}");
    }
}
