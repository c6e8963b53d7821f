//! Why requests failed, for people.

use super::wrap;
use crate::metric::Unit;
use crate::report::Run;
use crate::report::failure::{FailureReport, TryReport, chosen};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How many failures are shown.
const SHOWN: usize = 20;
/// How many kinds of those that are not shown are counted.
const KINDS: usize = 8;

/// Why requests failed: for each a line, then what was tried and what moved.
pub(super) fn write(out: &mut String, run: &Run) -> std::fmt::Result {
    if run.failures.is_empty() && run.more_failures == 0 {
        return Ok(());
    }
    writeln!(out, "\nfailures")?;
    let kind = |f: &'_ FailureReport| (f.status, f.cause);
    let shown = chosen(&run.failures, SHOWN, kind, |f| (kind(f), f.load.as_deref()));
    for failure in shown.iter().map(|&at| &run.failures[at]) {
        let load = failure.load.as_ref();
        let load = load.map_or(String::new(), |load| format!("{load}, "));
        let at = Unit::Span.show(failure.time_ps as f64);
        writeln!(out, "  {load}{}, {at}: {}", failure.host, failure.line)?;
        write_tries(out, failure)?;
    }
    let rest = run.failures.iter().enumerate();
    let rest: Vec<_> = rest.filter(|(at, _)| !shown.contains(at)).collect();
    if !rest.is_empty() {
        let mut kinds: BTreeMap<_, u64> = BTreeMap::new();
        for (_, f) in &rest {
            *kinds.entry((kind(f), f.load.as_deref())).or_default() += 1;
        }
        let mut told: Vec<_> = kinds
            .iter()
            .take(KINDS)
            .map(|(((_, cause), load), n)| match load {
                Some(load) => format!("{n} {cause} of {load}"),
                None => format!("{n} {cause}"),
            })
            .collect();
        if kinds.len() > KINDS {
            told.push("others".into());
        }
        let text = format!(
            "... and {} more in the list of --json: {}",
            rest.len(),
            told.join(", ")
        );
        wrap(out, &text, 2)?;
    }
    match run.more_failures {
        0 => Ok(()),
        more => writeln!(out, "  ... and {more} that are in no list"),
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
