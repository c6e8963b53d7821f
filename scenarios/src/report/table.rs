//! A sweep as a table: one row for each run, for people and as CSV.

use super::{Report, Run, show};
use crate::format::expect::Of;
use crate::metric::{Metric, Unit};

/// The columns for each load, after those of the axes: what is shown, and its heading for people.
const COLUMNS: &[(Value, &[&str])] = &[
    (Value::Metric(Metric::Goodput), &["goodput"]),
    (Value::Metric(Metric::GoodputShare), &["share"]),
    (Value::Law, &["law"]),
    (Value::Metric(Metric::BusBandwidth), &["busbw"]),
    (Value::Slowdown, &["slow-", "down", "p99"]),
    (Value::Metric(Metric::Retransmissions), &["resent"]),
    (Value::Metric(Metric::NaksSequence), &["NAKs"]),
    (Value::Metric(Metric::Timeouts), &["time-", "outs"]),
    (Value::Metric(Metric::LatencyP99), &["latency", "p99"]),
];

/// The columns for the network, of flow and congestion control, that are left out if all of them is 0.
const FLOW_CONTROL: &[(Metric, &[&str])] = &[
    (Metric::DropsLossless, &["drops", "loss-", "less"]),
    (Metric::Pauses, &["pauses"]),
    (Metric::PausedShare, &["paused"]),
    (Metric::Deadlock, &["dead-", "lock"]),
    (Metric::CnpsSent, &["CNPs"]),
];

/// What a column of a load shows.
#[derive(Clone, Copy)]
enum Value {
    Metric(Metric),
    /// The share of goodput that a law predicts.
    Law,
    /// The 99th percentile of the slowdown of several flows; that of one says little.
    Slowdown,
}

struct Column {
    /// In full, for CSV.
    name: String,
    /// For people, in lines.
    heading: Vec<String>,
    value: Value,
    of: Of,
}

impl Column {
    fn measure(&self, run: &Run) -> Option<f64> {
        match (self.value, &self.of) {
            (Value::Metric(metric), of) => run.measure(metric, of),
            (Value::Law, Of::Traffic(n)) => run.traffic.get(*n)?.law_share,
            (Value::Slowdown, Of::Traffic(n)) => {
                let flows = run.traffic.get(*n)?.flows.as_ref()?;
                (flows.count > 1).then_some(flows.slowdown?.p99)
            }
            (Value::Law | Value::Slowdown, _) => None,
        }
    }

    const fn unit(&self) -> Unit {
        match self.value {
            Value::Metric(metric) => metric.unit(),
            Value::Law | Value::Slowdown => Unit::Ratio,
        }
    }
}

/// The columns that have a value in some run.
fn columns(report: &Report) -> Vec<Column> {
    let mut columns = Vec::new();
    let loads = report.runs.first().map_or(&[][..], |r| &r.traffic);
    for (n, load) in loads.iter().enumerate() {
        for &(value, heading) in COLUMNS {
            let name = match value {
                Value::Metric(metric) => metric.name(),
                Value::Law => "law",
                Value::Slowdown => Metric::SlowdownP99.name(),
            };
            let mut heading: Vec<_> = heading.iter().map(|s| s.to_string()).collect();
            let name = match loads.len() {
                1 => name.to_string(),
                _ => {
                    heading.insert(0, load.name.clone());
                    format!("{}.{name}", load.name)
                }
            };
            columns.push(Column {
                name,
                heading,
                value,
                of: Of::Traffic(n),
            });
        }
    }
    columns.push(Column {
        name: Metric::Drops.to_string(),
        heading: vec!["drops".to_string()],
        value: Value::Metric(Metric::Drops),
        of: Of::All,
    });
    columns.retain(|c| report.runs.iter().any(|r| c.measure(r).is_some()));
    // What flow control did, where it did anything.
    for (metric, heading) in FLOW_CONTROL {
        let column = Column {
            name: metric.to_string(),
            heading: heading.iter().map(|s| s.to_string()).collect(),
            value: Value::Metric(*metric),
            of: Of::All,
        };
        let any = |r: &Run| column.measure(r).is_some_and(|n| n > 0.0);
        if report.runs.iter().any(any) {
            columns.push(column);
        }
    }
    columns
}

fn verdict(held: bool, expectations: usize) -> &'static str {
    match (held, expectations) {
        (true, 0) => "-",
        (true, _) => "held",
        (false, _) => "FAILED",
    }
}

/// The table with columns of even width, numbers to the right.
pub fn render(report: &Report) -> String {
    let columns = columns(report);
    // `fault.forward.rate` stands in three lines above its column.
    let axes = report.axes.iter().map(|axis| {
        let parts = axis.split('.').map(str::to_string);
        parts.collect::<Vec<_>>()
    });
    let headings: Vec<Vec<String>> = axes
        .chain(columns.iter().map(|c| c.heading.clone()))
        .chain([Vec::new()])
        .collect();
    let lines = headings.iter().map(Vec::len).max().unwrap_or(0);
    let mut rows = Vec::new();
    for line in 0..lines {
        let cell = |heading: &Vec<String>| {
            let from_below = lines - line;
            let index = heading.len().checked_sub(from_below);
            index.map_or_else(String::new, |i| heading[i].clone())
        };
        rows.push(headings.iter().map(cell).collect());
    }
    for run in &report.runs {
        let cells = columns.iter().map(|c| show(c.measure(run), c.unit()));
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
    grid(&rows, &[])
}

/// Rows in columns of even width, two blanks apart: those whose positions are in `left` to the left, the
/// others to the right.
pub(super) fn grid(rows: &[Vec<String>], left: &[usize]) -> String {
    let width = |n: usize| {
        let of = |row: &Vec<String>| row.get(n).map_or(0, |c| c.chars().count());
        rows.iter().map(of).max().unwrap_or(0)
    };
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let line: Vec<_> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(n, (cell, &width))| match left.contains(&n) {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            })
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
    let titles = columns.iter().map(|c| match c.unit() {
        Unit::Count | Unit::Ratio => c.name.clone(),
        unit => format!("{} ({})", c.name, unit.name()),
    });
    let head = report.axes.iter().cloned().chain(titles);
    push_line(&mut out, head.chain(["verdict".to_string()]));
    for run in &report.runs {
        let cells = columns
            .iter()
            .map(|c| c.measure(run).map_or_else(String::new, |v| v.to_string()));
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
