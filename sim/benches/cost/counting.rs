//! Instructions of a run of this program, counted by valgrind: the same on every run of one binary.

use std::process::Command;

/// Instructions of one run of this program with `--once` and `arguments`; `None` without valgrind.
fn instructions(arguments: &[&str]) -> Option<u64> {
    let this = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .arg("--once")
        .args(arguments)
        .output()
        .ok()?;
    // ==123== Collected : 86520391
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|l| l.contains("Collected"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// What each of `number` things takes: a run of `--once`, `what` and `some`, less one with `none`, which has
/// all that a run costs before the first of them.
pub(crate) fn each(what: &[&str], some: u64, none: u64, number: u64) -> Option<f64> {
    let run = |size: u64| instructions(&[what, &[&size.to_string()]].concat());
    Some((run(some)? - run(none)?) as f64 / number as f64)
}

/// For a table.
pub(crate) fn print(count: Option<f64>) -> String {
    count.map_or("no valgrind".into(), |c| format!("{c:.0}"))
}
