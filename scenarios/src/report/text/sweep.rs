//! Several runs together: a table, what was expected of all of them, and what did not hold.

use super::{Detail, published, wrap, write_network, write_run, write_skipped};
use crate::report::verdict::Judgement;
use crate::report::{Report, Run, pauses, show, table};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How many runs that did not hold are shown in full after a table.
const FAILURES: usize = 3;

/// Several runs: a table, the expectations over all of them, and what did not hold in full.
pub(super) fn write(out: &mut String, report: &Report, detail: Detail) -> std::fmt::Result {
    if let Some(first) = report.runs.first() {
        write_network(out, first)?;
        if report.runs.iter().any(|r| r.network != first.network) {
            writeln!(out, "(at the first point; others differ)")?;
        }
        writeln!(out, "{} runs, seed {}\n", report.runs.len(), first.seed)?;
    }
    pauses::write_sweep_alarms(out, &report.runs)?;
    out.push_str(&table::render(report));
    let mut by_index: BTreeMap<usize, Vec<(&Run, &Judgement)>> = BTreeMap::new();
    for run in &report.runs {
        for j in &run.expectations {
            by_index.entry(j.index).or_default().push((run, j));
        }
    }
    if !by_index.is_empty() {
        writeln!(out, "\nexpectations")?;
    }
    for judged in by_index.values() {
        write_over_runs(out, report, judged)?;
    }
    let skipped: usize = report.runs.iter().map(|r| r.skipped).sum();
    write_skipped(out, skipped)?;
    let shown = |run: &&Run| detail == Detail::Full || !run.held();
    let most = match detail {
        Detail::Table => FAILURES,
        Detail::Full => usize::MAX,
    };
    for run in report.runs.iter().filter(shown).take(most) {
        writeln!(out, "\n-- {}", point(report, run))?;
        write_run(out, run)?;
    }
    let more = report
        .runs
        .iter()
        .filter(shown)
        .count()
        .saturating_sub(most);
    if more > 0 {
        writeln!(out, "\n... and {more} more runs that did not hold")?;
    }
    Ok(())
}

/// The values of a run.
pub(super) fn point(report: &Report, run: &Run) -> String {
    let values = report.axes.iter().zip(&run.values);
    let values: Vec<_> = values.map(|(axis, v)| format!("{axis} = {v}")).collect();
    values.join(", ")
}

/// One expectation over the runs that it is for.
fn write_over_runs(
    out: &mut String,
    report: &Report,
    judged: &[(&Run, &Judgement)],
) -> std::fmt::Result {
    let Some((_, first)) = judged.first() else {
        return Ok(());
    };
    let held = judged.iter().filter(|(_, j)| j.held).count();
    let of = first.of.as_ref();
    let of = of.map_or(String::new(), |of| format!(" of {of}"));
    let during = first.during.as_ref();
    let during = during.map_or(String::new(), |d| format!(" from {d}"));
    let word = if held == judged.len() {
        "held  "
    } else {
        "FAILED"
    };
    writeln!(
        out,
        "  {word}  {}{of}{during}: {held} of {} runs",
        first.metric,
        judged.len()
    )?;
    published::write_why(out, first)?;
    let sentence = |j: &Judgement| format!("{}: {}", show(j.measured, j.metric.unit()), j.wanted);
    if held < judged.len() {
        for (run, j) in judged.iter().filter(|(_, j)| !j.held).take(FAILURES) {
            wrap(
                out,
                &format!("{} at {}", sentence(j), point(report, run)),
                10,
            )?;
        }
        return Ok(());
    }
    // Where there is room for doubt, the run that came nearest to failing.
    if let Some((run, j)) = nearest(judged)
        && judged.len() > 1
    {
        let told = format!("closest: {} at {}", sentence(j), point(report, run));
        wrap(out, &told, 10)?;
    }
    Ok(())
}

/// Of runs in which an expectation held, the one that came nearest to failing; nothing where only one value will do.
pub(super) fn nearest<'a>(judged: &[(&'a Run, &'a Judgement)]) -> Option<(&'a Run, &'a Judgement)> {
    let all = judged
        .iter()
        .filter_map(|&(run, j)| Some((room(j)?, run, j)));
    let (_, run, j) = all.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((run, j))
}

/// How far from failing a measured value is: between two limits as a share of the way from their middle,
/// otherwise as a share of the limit; nothing where only one value will do.
fn room(j: &Judgement) -> Option<f64> {
    let measured = j.measured?;
    match (j.least, j.most) {
        (Some(least), Some(most)) if least < most => {
            let half = (most - least) / 2.0;
            Some((measured - least).min(most - measured) / half)
        }
        (Some(limit), None) | (None, Some(limit)) if limit != 0.0 => {
            Some(((measured - limit) / limit).abs())
        }
        _ => None,
    }
}
