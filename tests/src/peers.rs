//! Programs that tests compare softroce with. A test that needs one finds it, or skips with one printed
//! line; with `SOFTROCE_REQUIRE_PEERS=1` a missing one is a failure.

use std::io::Write;
use std::path::PathBuf;

/// Where the program `name` is; `None`, with a line that says so, if it is not installed.
///
/// # Panics
///
/// If it is not installed and `SOFTROCE_REQUIRE_PEERS` is `1`.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|p| p.is_file());
    if found.is_none() {
        missing(&format!("{name} is not installed"));
    }
    found
}

/// Says that a test is skipped because `what`.
///
/// # Panics
///
/// If `SOFTROCE_REQUIRE_PEERS` is `1`.
pub fn missing(what: &str) {
    let required = std::env::var_os("SOFTROCE_REQUIRE_PEERS").is_some_and(|v| v == "1");
    assert!(
        !required,
        "{what}, and SOFTROCE_REQUIRE_PEERS=1 asks for it"
    );
    // Past what the test harness holds back from who passes.
    let _ = writeln!(std::io::stderr(), "skipped: {what}");
}
