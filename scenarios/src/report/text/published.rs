//! What is measured beside what is published, for people.

use super::{WIDTH, wrap};
use crate::report::table::grid;
use crate::report::verdict::Judgement;
use crate::report::{Report, show};
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

/// A row for each expectation that names a published figure.
pub(super) fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    let mut by_index: BTreeMap<usize, Vec<&Judgement>> = BTreeMap::new();
    for j in report.runs.iter().flat_map(|r| &r.expectations) {
        if j.published.is_some() {
            by_index.entry(j.index).or_default().push(j);
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
        .filter_map(|judged| judged[0].published.as_deref());
    let cells = grid(&rows, &[0, 1]);
    let width = cells.lines().map(|l| l.chars().count()).max().unwrap_or(0) + 2;
    writeln!(out, "\nbeside what is published")?;
    for (line, figure) in cells.lines().zip(["published"].into_iter().chain(figures)) {
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
    }
    Ok(())
}

/// Where the figures come from, what to look at, and what is free.
pub(super) fn write_prose(out: &mut String, report: &Report) -> std::fmt::Result {
    for (heading, text) in [
        ("source", &report.source),
        ("look at", &report.look_at),
        ("free parameters", &report.free),
    ] {
        if let Some(text) = text {
            writeln!(out, "\n{heading}")?;
            wrap(out, text, 2)?;
        }
    }
    Ok(())
}

/// What stands before the published figure: of several runs the least and the most.
fn row(judged: &[&Judgement]) -> Option<Vec<String>> {
    let first = judged.first()?;
    let shown = |value: f64| show(Some(value), first.metric.unit());
    let least = |of: fn(&Judgement) -> Option<f64>| {
        judged.iter().filter_map(|j| of(j)).min_by(f64::total_cmp)
    };
    let most = |of: fn(&Judgement) -> Option<f64>| {
        judged.iter().filter_map(|j| of(j)).max_by(f64::total_cmp)
    };
    let range = |low: f64, high: f64| match shown(low) == shown(high) {
        true => shown(low),
        false => format!("{} to {}", shown(low), shown(high)),
    };
    let measured = least(|j| j.measured).zip(most(|j| j.measured));
    let measured = measured.map_or_else(|| "-".to_string(), |(low, high)| range(low, high));
    let expected = match (least(|j| j.least), most(|j| j.most)) {
        (Some(low), Some(high)) => range(low, high),
        (Some(low), None) => format!("at least {}", shown(low)),
        (None, Some(high)) => format!("at most {}", shown(high)),
        (None, None) => "-".to_string(),
    };
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
