//! A report for people, in a hundred columns.
//!
//! | file | what |
//! |---|---|
//! | this one | a report, and everything about one run |
//! | `sweep` | several runs together |
//! | `loads` | what became of the loads of a run |
//! | `failures` | requests that failed |
//! | `published` | what is measured beside what is published |

mod failures;
mod loads;
mod published;
mod sweep;

use super::congestion;
use super::pauses;
use super::table::grid;
use super::verdict::Judgement;
use super::{Ended, FaultReport, Report, Run, WayReport, show};
use crate::metric::Unit;
use std::fmt::Write;

/// Columns that prose is wrapped at.
const WIDTH: usize = 100;
/// How many hits of a fault are shown.
const HITS: usize = 5;
/// How many hosts and directions of links are shown one by one.
pub(super) const MEMBERS: usize = 16;

/// How much is told of the runs of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// A table, and in full only runs that did not hold.
    Table,
    /// Every run in full.
    Full,
}

/// The report as text, ending in a line with the verdict.
pub fn render(report: &Report, detail: Detail) -> String {
    let mut out = String::new();
    let _ = write(&mut out, report, detail);
    out
}

fn write(out: &mut String, report: &Report, detail: Detail) -> std::fmt::Result {
    write!(out, "{}", report.scenario)?;
    if let Some(title) = &report.title {
        write!(out, ": {}", title.trim())?;
    }
    writeln!(out, "\n")?;
    if report.runs.len() == 1 {
        write_run(out, &report.runs[0])?;
    } else {
        sweep::write(out, report, detail)?;
    }
    published::write(out, report)?;
    // A table leaves out what some are told to look at.
    let hint = match detail {
        Detail::Table if report.runs.len() > 1 => " (--details has each run in full)",
        _ => "",
    };
    published::write_prose(out, report, hint)?;
    let judged = report.runs.iter().flat_map(|r| &r.expectations);
    let failed = judged.clone().filter(|j| !j.held).count();
    let total = judged.count();
    let broken = |what: fn(&&Run) -> bool| report.runs.iter().filter(what).count();
    let interrupted = broken(|r| r.ended == Ended::Interrupted);
    let given_up = broken(|r| r.ended == Ended::EventLimit);
    let damaged = broken(|r| r.traffic.iter().any(|t| t.damaged > 0));
    writeln!(out)?;
    if report.is_interrupted() {
        let of = report.runs.len() + report.not_run;
        writeln!(
            out,
            "INTERRUPTED: {interrupted} of {of} runs ended where they were, {} were not begun",
            report.not_run
        )?;
    }
    for (n, what) in [
        (given_up, "given up at the event limit"),
        (damaged, "delivered damaged data"),
    ] {
        if n > 0 {
            writeln!(out, "FAILED: {n} of {} runs {what}", report.runs.len())?;
        }
    }
    pauses::write_verdict(out, &report.runs)?;
    match (total, failed) {
        (0, _) => writeln!(out, "no expectations"),
        (_, 0) => writeln!(out, "held: {total} of {total} expectations"),
        _ => writeln!(out, "FAILED: {failed} of {total} expectations"),
    }
}

fn write_network(out: &mut String, run: &Run) -> std::fmt::Result {
    let n = &run.network;
    let each = |values: &[u64], unit: Unit| {
        let values: Vec<_> = values.iter().map(|&v| unit.show(v as f64)).collect();
        values.join("/")
    };
    let plural = |n: usize, one: &str, many: &str| match n {
        1 => format!("1 {one}"),
        n => format!("{n} {many}"),
    };
    let mut parts = vec![plural(n.hosts, "host", "hosts")];
    if n.switches > 0 {
        parts.push(plural(n.switches, "switch", "switches"));
    }
    let links = plural(n.links, "link", "links");
    parts.push(format!("{links} of {}", each(&n.rates_bps, Unit::Rate)));
    writeln!(
        out,
        "{}: {}, {} one way",
        n.shape,
        parts.join(", "),
        each(&n.delays_ps, Unit::Span)
    )
}

/// Everything about one run.
fn write_run(out: &mut String, run: &Run) -> std::fmt::Result {
    write_network(out, run)?;
    let ended = match run.ended {
        Ended::Dry => "nothing was left to do",
        Ended::Stop => "its stop time",
        Ended::EventLimit => "the EVENT LIMIT",
        Ended::Interrupted => "it was INTERRUPTED",
    };
    writeln!(
        out,
        "ran for {} until {ended}: {} events, seed {}",
        Unit::Span.show(run.time_ps as f64),
        run.events,
        run.seed
    )?;
    pauses::write_alarms(out, run)?;
    loads::write(out, run);
    failures::write(out, run)?;
    write_members(out, run);
    pauses::write(out, run)?;
    congestion::write(out, run)?;
    for fault in &run.faults {
        write_fault(out, fault)?;
    }
    if !run.captures.is_empty() {
        writeln!(out, "\ncaptures")?;
    }
    for c in &run.captures {
        let of = match c.links.as_slice() {
            [first, .., last] if c.links.len() > 4 => format!("{first} ... {last}"),
            links => links.join(", "),
        };
        let full = if c.full {
            ", and no more by its limit"
        } else {
            ""
        };
        writeln!(out, "  {}: {} frames of {of}{full}", c.file, c.frames)?;
    }
    if !run.expectations.is_empty() {
        writeln!(out, "\nexpectations")?;
    }
    for j in &run.expectations {
        write_judgement(out, j)?;
    }
    write_skipped(out, run.skipped)
}

fn write_skipped(out: &mut String, skipped: usize) -> std::fmt::Result {
    match skipped {
        0 => Ok(()),
        n => writeln!(
            out,
            "  {n} left out: they compare with a run that --set took away"
        ),
    }
}

fn write_judgement(out: &mut String, j: &Judgement) -> std::fmt::Result {
    let verdict = if j.held { "held  " } else { "FAILED" };
    let of = j.of.as_ref();
    let of = of.map_or(String::new(), |of| format!(" of {of}"));
    let measured = show(j.measured, j.metric.unit());
    let during = j.during.as_ref();
    let during = during.map_or(String::new(), |d| format!(" from {d}"));
    writeln!(
        out,
        "  {verdict}  {}{of}{during} is {measured}: {}",
        j.metric, j.wanted
    )?;
    published::write_why(out, j)
}

/// A heading, and rows in columns under it; `left` are those to the left.
pub(super) fn section(out: &mut String, head: &[&str], rows: Vec<Vec<String>>, left: &[usize]) {
    let mut all = vec![head.iter().map(|s| s.to_string()).collect()];
    all.extend(rows);
    out.push('\n');
    out.push_str(&grid(&all, left));
}

fn write_members(out: &mut String, run: &Run) {
    let more = |out: &mut String, n: usize, what: &str| {
        if n > MEMBERS {
            let _ = writeln!(out, "... and {} more {what}", n - MEMBERS);
        }
    };
    let hosts = run.hosts.iter().take(MEMBERS).map(|host| {
        let c = &host.counts;
        let numbers = [
            c.packets_sent,
            c.packets_received,
            c.duplicates,
            c.out_of_sequence,
            c.bad_icrc,
        ];
        let cells = numbers.iter().map(u64::to_string);
        [host.name.clone()].into_iter().chain(cells).collect()
    });
    let head = [
        "host",
        "sent",
        "received",
        "duplicates",
        "out of sequence",
        "bad ICRC",
    ];
    section(out, &head, hosts.collect(), &[0]);
    more(out, run.hosts.len(), "hosts");
    // What the table has not told already.
    let told = ["duplicate", "out-of-sequence", "bad-icrc"];
    let refused = run.hosts.iter().filter_map(|host| {
        let others = host.refused.iter().filter(|(why, _)| !told.contains(why));
        let causes: Vec<_> = others.map(|(why, n)| format!("{n} {why}")).collect();
        (!causes.is_empty()).then(|| vec![host.name.clone(), causes.join(", ")])
    });
    let refused: Vec<_> = refused.collect();
    let hosts = refused.len();
    if hosts > 0 {
        let first = refused.into_iter().take(MEMBERS).collect();
        section(out, &["host", "other packets refused"], first, &[0, 1]);
        more(out, hosts, "hosts");
    }
    let links = run.links.iter().take(MEMBERS).map(|way| {
        vec![
            way.name.clone(),
            way.frames.to_string(),
            format!("{:.2}%", way.utilisation * 100.0),
            Unit::Size.show(way.queue_max as f64),
            drops(way),
        ]
    });
    let head = ["link", "frames", "used", "longest queue", "drops"];
    section(out, &head, links.collect(), &[0, 4]);
    more(out, run.links.len(), "directions of links");
}

/// Drops with their causes.
fn drops(way: &WayReport) -> String {
    let d = &way.drops;
    let causes: Vec<_> = [
        ("fault", d.fault),
        ("full queue", d.queue),
        ("bad FCS", d.corrupt),
        ("full buffer", d.buffer),
        ("full headroom (lossless!)", d.headroom),
        ("link down", d.down),
        ("watchdog (lossless!)", d.watchdog),
        ("full receiver", d.receiver),
        ("no route", d.no_route),
        ("hop limit", d.hop_limit),
        ("other", d.other),
    ]
    .into_iter()
    .filter(|&(_, n)| n > 0)
    .map(|(cause, n)| format!("{n} {cause}"))
    .collect();
    match causes.is_empty() {
        true => "0".to_string(),
        false => causes.join(", "),
    }
}

fn write_fault(out: &mut String, fault: &FaultReport) -> std::fmt::Result {
    writeln!(
        out,
        "\nfault {} hit {} of the {} packets it looked at",
        fault.name, fault.hits, fault.seen
    )?;
    let mut rows = Vec::new();
    for hit in fault.packets.iter().take(HITS) {
        let mut told = hit.action.clone();
        if let (Some(copy), Some(round)) = (hit.copy, hit.round) {
            told.push_str(&format!(" (copy {copy}, round {round})"));
        }
        rows.push(vec![
            format!("  {}", Unit::Span.show(hit.time_ps as f64)),
            hit.link.clone(),
            hit.opcode.clone(),
            format!("to qp {:#08x}", hit.qp),
            format!("psn {}", hit.psn),
            told,
        ]);
    }
    out.push_str(&grid(&rows, &[0, 1, 2, 3, 4, 5]));
    match fault.hits.saturating_sub(rows.len() as u64) {
        0 => Ok(()),
        more => writeln!(out, "  ... and {more} more"),
    }
}

/// Writes `text` in lines that end before [`WIDTH`], each behind `indent` blanks.
pub(super) fn wrap(out: &mut String, text: &str, indent: usize) -> std::fmt::Result {
    let mut used = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if used > 0 && used + 1 + width > WIDTH {
            out.push('\n');
            used = 0;
        }
        if used == 0 {
            write!(out, "{:indent$}{word}", "")?;
            used = indent + width;
        } else {
            write!(out, " {word}")?;
            used += 1 + width;
        }
    }
    writeln!(out)
}
