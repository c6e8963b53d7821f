//! What is measured beside what is published, for people.

use super::{WIDTH, sweep, wrap};
use crate::report::table::grid;
use crate::report::verdict::Judgement;
use crate::report::{Report, Run, show};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The narrowest that the last column becomes, which is wrapped.
const NARROWEST: usize = 20;

/// Why an expectation should hold, and what of the source it asserts.
pub(super) fn write_why(out: &mut String, j: &Judgement) -> std::fmt::Result {
    let why = j
        .because
        .as_ref()
        .map(|why| format!("because {}", why.trim()));
    let parts: Vec<_> = j
        .asserts
        .map(|a| a.to_string())
        .into_iter()
        .chain(why)
        .collect();
    match parts.is_empty() {
        true => Ok(()),
        false => wrap(out, &parts.join(": "), 10),
    }
}

/// A row for each expectation that names a published figure; under one of several runs which they are, and how the one
/// did that came nearest to failing.
pub(super) fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    let mut by_index: BTreeMap<usize, Vec<(&Run, &Judgement)>> = BTreeMap::new();
    for run in &report.runs {
        for j in run.expectations.iter().filter(|j| j.published.is_some()) {
            by_index.entry(j.index).or_default().push((run, j));
        }
    }
    if by_index.is_empty() {
        return Ok(());
    }
    let head = ["asserts", "metric", "measured", "expected"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(by_index.values().filter_map(|judged| row(judged)));
    let figures = by_index
        .values()
        .filter_map(|judged| judged[0].1.published.as_deref());
    let over = by_index.values().map(|judged| over(report, judged));
    let cells = grid(&rows, &[0, 1]);
    let width = cells.lines().map(|l| l.chars().count()).max().unwrap_or(0) + 2;
    writeln!(out, "\nbeside what is published")?;
    let figures = ["published"].into_iter().chain(figures);
    let over = [None].into_iter().chain(over);
    for ((line, figure), over) in cells.lines().zip(figures).zip(over) {
        write!(out, "  {line:<width$}")?;
        let mut rest = String::new();
        // As wide as the line is long, if that leaves too little.
        let indent = (width + 2).min(WIDTH - NARROWEST);
        wrap(&mut rest, figure, indent)?;
        if width + 2 > indent {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(&rest);
        } else {
            out.push_str(rest.trim_start());
        }
        if let Some(over) = over {
            wrap(out, &over, 4)?;
        }
    }
    Ok(())
}

/// Which of several runs an expectation was for, and which of them came nearest to failing.
fn over(report: &Report, judged: &[(&Run, &Judgement)]) -> Option<String> {
    if judged.len() < 2 {
        return None;
    }
    let axes = report.axes.iter().enumerate().map(|(n, axis)| {
        let mut values: Vec<&str> = Vec::new();
        for (run, _) in judged {
            let value = run.values[n].as_str();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let values = match values[..] {
            [first, _, _, .., last] => format!("{first} ... {last}"),
            _ => values.join(", "),
        };
        format!("{axis} = {values}")
    });
    let axes: Vec<_> = axes.collect();
    let mut told = format!("over {} runs: {}", judged.len(), axes.join("; "));
    let failed = judged.iter().filter(|(_, j)| !j.held).count();
    if failed > 0 {
        let _ = write!(told, "; it failed in {failed} of them");
    } else if let Some((run, j)) = sweep::nearest(judged) {
        let measured = show(j.measured, j.metric.unit());
        let at = sweep::point(report, run);
        let _ = write!(
            told,
            "; closest: {measured}, expected {}, at {at}",
            bounds(j.least, j.most, j)
        );
    }
    Some(told)
}

/// The values allowed.
fn bounds(least: Option<f64>, most: Option<f64>, j: &Judgement) -> String {
    let shown = |value: f64| show(Some(value), j.metric.unit());
    match (least, most) {
        (Some(low), Some(high)) if shown(low) == shown(high) => shown(low),
        (Some(low), Some(high)) => format!("{} to {}", shown(low), shown(high)),
        (Some(low), None) => format!("at least {}", shown(low)),
        (None, Some(high)) => format!("at most {}", shown(high)),
        (None, None) => "-".to_string(),
    }
}

/// Where the figures come from, what to look at, and what is free.
pub(super) fn write_prose(out: &mut String, report: &Report, hint: &str) -> std::fmt::Result {
    for (heading, hint, text) in [
        ("source", "", &report.source),
        ("look at", hint, &report.look_at),
        ("free parameters", "", &report.free),
    ] {
        if let Some(text) = text {
            writeln!(out, "\n{heading}{hint}")?;
            wrap(out, text, 2)?;
        }
    }
    Ok(())
}

/// What stands before the published figure: of several runs the least and the most.
fn row(judged: &[(&Run, &Judgement)]) -> Option<Vec<String>> {
    let (_, first) = judged.first()?;
    let of_all = |of: fn(&Judgement) -> Option<f64>| {
        let all = || judged.iter().filter_map(|(_, j)| of(j));
        (all().min_by(f64::total_cmp), all().max_by(f64::total_cmp))
    };
    let (low, high) = of_all(|j| j.measured);
    let measured = bounds(low, high, first);
    let expected = bounds(of_all(|j| j.least).0, of_all(|j| j.most).1, first);
    let of = first
        .of
        .as_ref()
        .map_or(String::new(), |of| format!(" of {of}"));
    let asserts = first
        .asserts
        .map_or_else(|| "-".to_string(), |a| a.to_string());
    Some(vec![
        asserts,
        format!("{}{of}", first.metric),
        measured,
        expected,
    ])
}
