//! Why requests failed, for people.

use super::wrap;
use crate::metric::Unit;
use crate::report::Run;
use crate::report::failure::{FailureReport, TryReport};
use std::fmt::Write;

/// How many failures are shown.
const FAILED: usize = 10;

/// Why requests failed: for each a line, then what was tried and what moved.
pub(super) fn write(out: &mut String, run: &Run) -> std::fmt::Result {
    if run.failures.is_empty() && run.more_failures == 0 {
        return Ok(());
    }
    writeln!(out, "\nfailures")?;
    for failure in run.failures.iter().take(FAILED) {
        let load = failure.load.as_ref();
        let load = load.map_or(String::new(), |load| format!("{load}, "));
        let at = Unit::Span.show(failure.time_ps as f64);
        writeln!(out, "  {load}{}, {at}: {}", failure.host, failure.line)?;
        write_tries(out, failure)?;
    }
    let listed = run.failures.len();
    match listed.saturating_sub(FAILED) as u64 + run.more_failures {
        0 => Ok(()),
        more => writeln!(out, "  ... and {more} more"),
    }
}

fn write_tries(out: &mut String, failure: &FailureReport) -> std::fmt::Result {
    let span = |ps: u64| Unit::Span.show(ps as f64);
    let told = |t: &TryReport| match t.span_ps {
        Some(ps) => format!("{} of {} at {}", t.what, span(ps), span(t.time_ps)),
        None => format!("{} at {}", t.what, span(t.time_ps)),
    };
    let mut tries: Vec<_> = failure.tries.iter().map(told).collect();
    if failure.earlier_tries {
        tries.insert(0, "...".to_string());
    }
    if !tries.is_empty() {
        wrap(out, &format!("tries: {}", tries.join(", ")), 6)?;
    }
    let counters = failure.counters.iter();
    let counters: Vec<_> = counters.map(|(name, n)| format!("{name} {n}")).collect();
    if !counters.is_empty() {
        wrap(out, &format!("counters: {}", counters.join(", ")), 6)?;
    }
    Ok(())
}
