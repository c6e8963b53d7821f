//! A sweep as a table: one row for each run, for people and as CSV.

use super::{Report, show};
use crate::format::expect::Of;
use crate::metric::Metric;

/// The columns for each load, after those of the axes.
const COLUMNS: &[Metric] = &[
    Metric::Goodput,
    Metric::GoodputShare,
    Metric::Retransmissions,
    Metric::NaksSequence,
    Metric::Timeouts,
    Metric::LatencyP99,
];

/// Columns of the run as a whole, at the end.
const TOTALS: &[Metric] = &[Metric::Drops];

struct Column {
    title: String,
    metric: Metric,
    of: Of,
}

/// The columns that have a value in some run.
fn columns(report: &Report) -> Vec<Column> {
    let mut columns = Vec::new();
    let loads = report.runs.first().map_or(&[][..], |r| &r.traffic);
    for (n, load) in loads.iter().enumerate() {
        for &metric in COLUMNS {
            columns.push(Column {
                title: match loads.len() {
                    1 => metric.to_string(),
                    _ => format!("{}.{metric}", load.name),
                },
                metric,
                of: Of::Traffic(n),
            });
        }
    }
    columns.extend(TOTALS.iter().map(|&metric| Column {
        title: metric.to_string(),
        metric,
        of: Of::All,
    }));
    let measured = |c: &Column| {
        report
            .runs
            .iter()
            .any(|r| r.measure(c.metric, &c.of).is_some())
    };
    columns.retain(measured);
    columns
}

fn verdict(held: bool, expectations: usize) -> &'static str {
    match (held, expectations) {
        (true, 0) => "-",
        (true, _) => "held",
        (false, _) => "FAILED",
    }
}

/// The table with columns of even width.
pub fn render(report: &Report) -> String {
    let columns = columns(report);
    let mut rows = vec![
        report
            .axes
            .iter()
            .cloned()
            .chain(columns.iter().map(|c| c.title.clone()))
            .chain(["verdict".to_string()])
            .collect::<Vec<_>>(),
    ];
    for run in &report.runs {
        let cells = columns
            .iter()
            .map(|c| show(run.measure(c.metric, &c.of), c.metric.unit()));
        let verdict = verdict(run.held(), run.expectations.len()).to_string();
        rows.push(
            run.values
                .iter()
                .cloned()
                .chain(cells)
                .chain([verdict])
                .collect(),
        );
    }
    let width = |n: usize| {
        let of = |row: &Vec<String>| row.get(n).map_or(0, |c| c.chars().count());
        rows.iter().map(of).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let line: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:>width$}"))
            .collect();
        out.push_str(line.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// The table as CSV: values in base units (bits per second, picoseconds, bytes), empty where there is
/// none.
pub fn csv(report: &Report) -> String {
    let columns = columns(report);
    let mut out = String::new();
    let titles = columns.iter().map(|c| match c.metric.unit().name() {
        "count" | "ratio" => c.title.clone(),
        unit => format!("{} ({unit})", c.title),
    });
    let head = report.axes.iter().cloned().chain(titles);
    push_line(&mut out, head.chain(["verdict".to_string()]));
    for run in &report.runs {
        let cells = columns.iter().map(|c| {
            run.measure(c.metric, &c.of)
                .map_or_else(String::new, |v| v.to_string())
        });
        let verdict = verdict(run.held(), run.expectations.len()).to_string();
        push_line(
            &mut out,
            run.values.iter().cloned().chain(cells).chain([verdict]),
        );
    }
    out
}

fn push_line(out: &mut String, cells: impl Iterator<Item = String>) {
    for (n, cell) in cells.enumerate() {
        if n > 0 {
            out.push(',');
        }
        if cell.contains(['"', ',', '\n', '\r']) {
            out.push_str(&format!("\"{}\"", cell.replace('"', "\"\"")));
        } else {
            out.push_str(&cell);
        }
    }
    out.push('\n');
}
