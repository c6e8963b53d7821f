//! What flow control did: pauses by link and priority, loads that suffered from them, deadlocks.

use super::text::{MEMBERS, section, wrap};
use super::{Run, WayReport};
use crate::metric::{Metric, Unit};
use serde::Serialize;
use std::fmt::Write;

/// What happened on a direction of a link in one priority.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PriorityReport {
    /// The priority.
    pub priority: u8,
    /// Pauses asked for on it, repetitions included: they pause the other direction.
    pub pauses_sent: u64,
    /// Ends of pauses asked for on it.
    pub resumes_sent: u64,
    /// Pauses of it that came, repetitions included.
    pub pauses_received: u64,
    /// How long it was paused, in picoseconds.
    pub paused_ps: u64,
    /// Share of the run that it was paused.
    pub paused_share: f64,
    /// The most bytes that waited for it.
    pub queue_max: u64,
    /// How often a watchdog took it for stuck.
    pub storms: u64,
    /// Packets that were marked before they went out.
    pub marks: u64,
    /// Packets that would have been, were they ECN-capable.
    pub not_capable: u64,
}

/// A queue that is part of a deadlock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StuckReport {
    /// The direction of a link that it waits for, which is paused.
    pub link: String,
    /// Its priority.
    pub priority: u8,
}

/// A load that was paused for a queue that it never meets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct VictimReport {
    /// Its name.
    pub load: String,
    /// The direction of a link on its way that was paused.
    pub paused: String,
    /// In which priority.
    pub priority: u8,
    /// When it first was, in picoseconds.
    pub first_ps: u64,
    /// How often, of the first pauses of the run.
    pub pauses: u64,
    /// The queue that it was for in the end: a direction of a link.
    pub bottleneck: String,
    /// That is the way to a host that did not take in its packets fast enough.
    pub receiver: bool,
    /// The pauses from the one on its way to the one that began it, each for the next one.
    pub chain: Vec<String>,
}

/// What a receive pipeline did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ReceiverReport {
    /// The most bytes that waited in it.
    pub most: u64,
    /// Bytes that waited in it at the end.
    pub left: u64,
    /// Packets whose translation had to be fetched.
    pub misses: u64,
}

/// Picks what a metric of a queue is asked of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queues<'a> {
    pub(super) run: &'a Run,
    pub(super) priority: Option<u8>,
}

impl Queues<'_> {
    /// The value of a metric over some directions of links.
    pub(super) fn measure<'a>(
        self,
        metric: Metric,
        ways: impl Iterator<Item = &'a WayReport>,
    ) -> Option<f64> {
        let wanted = |q: &&PriorityReport| self.priority.is_none_or(|p| p == q.priority);
        let ways: Vec<&WayReport> = ways.collect();
        let sum = |f: fn(&PriorityReport) -> u64| {
            let all = ways.iter().flat_map(|w| &w.priorities).filter(wanted);
            Some(all.map(f).sum::<u64>() as f64)
        };
        // Of each direction the priority that was paused longest.
        let paused = || {
            ways.iter().map(|w| {
                let own = w.priorities.iter().filter(wanted).map(|q| q.paused_ps);
                own.max().unwrap_or(0)
            })
        };
        let longest = paused().max()? as f64;
        match metric {
            Metric::Pauses => sum(|q| q.pauses_sent),
            Metric::PausesReceived => sum(|q| q.pauses_received),
            Metric::EcnMarks => sum(|q| q.marks),
            Metric::NotCapable => sum(|q| q.not_capable),
            Metric::Storms => sum(|q| q.storms),
            Metric::Paused => Some(longest),
            Metric::PausedShare => Some(longest / self.run.time_ps.max(1) as f64),
            Metric::PausedTotal => sum(|q| q.paused_ps),
            Metric::PausedDirections => Some(paused().filter(|&ps| ps > 0).count() as f64),
            Metric::PausedSpread => {
                let times = || paused().filter(|&ps| ps > 0).map(|ps| ps as f64);
                let (n, sum) = times().fold((0.0, 0.0), |(n, sum), t| (n + 1.0, sum + t));
                let squares: f64 = times().map(|t| t * t).sum();
                (n > 0.0).then(|| sum * sum / (n * squares))
            }
            Metric::QueueMax => {
                let most = ways.iter().map(|w| match self.priority {
                    None => w.queue_max,
                    Some(_) => {
                        let own = w.priorities.iter().filter(wanted).map(|q| q.queue_max);
                        own.max().unwrap_or(0)
                    }
                });
                most.max().map(|n| n as f64)
            }
            _ => None,
        }
    }
}

/// What a network that is to lose nothing must not do, and what was wrong with it from the beginning.
pub(super) fn write_alarms(out: &mut String, run: &Run) -> std::fmt::Result {
    for warning in &run.warnings {
        wrap(out, &format!("WARNING: {warning}"), 0)?;
    }
    for (lost, why) in [
        (
            run.links.iter().map(|w| w.drops.headroom).sum::<u64>(),
            "their headroom was full",
        ),
        (
            run.links.iter().map(|w| w.drops.watchdog).sum(),
            "a watchdog took their port for stuck",
        ),
    ] {
        if lost > 0 {
            writeln!(out, "LOSSLESS PRIORITIES LOST {lost} packets: {why}")?;
        }
    }
    if let Some(first) = run.deadlock.first() {
        let mut told = "DEADLOCK: each waits for the next one, for ever: ".to_string();
        for stuck in &run.deadlock {
            write!(told, "{} (priority {}), ", stuck.link, stuck.priority)?;
        }
        told.push_str(&first.link);
        wrap(out, &told, 0)?;
    }
    Ok(())
}

fn of_runs(n: usize, runs: usize) -> String {
    match n == runs {
        true => "all runs".to_string(),
        false => format!("{n} of {runs} runs"),
    }
}

/// The warnings of several runs, each once.
pub(crate) fn write_warnings(out: &mut String, runs: &[Vec<String>]) -> std::fmt::Result {
    let mut told: Vec<&String> = Vec::new();
    for warning in runs.iter().flatten() {
        if told.contains(&warning) {
            continue;
        }
        told.push(warning);
        let n = runs.iter().filter(|r| r.contains(warning)).count();
        let of = match runs {
            [_] => String::new(),
            _ => format!(" in {}", of_runs(n, runs.len())),
        };
        wrap(out, &format!("WARNING{of}: {warning}"), 0)?;
    }
    Ok(())
}

/// The same of a sweep, in how many of its runs.
pub(super) fn write_sweep_alarms(out: &mut String, runs: &[Run]) -> std::fmt::Result {
    let of = |n| of_runs(n, runs.len());
    let warnings: Vec<Vec<String>> = runs.iter().map(|r| r.warnings.clone()).collect();
    write_warnings(out, &warnings)?;
    let loses = |r: &&Run| {
        r.links
            .iter()
            .any(|w| w.drops.headroom + w.drops.watchdog > 0)
    };
    let stuck = |r: &&Run| !r.deadlock.is_empty();
    for (n, what) in [
        (
            runs.iter().filter(loses).count(),
            "LOSSLESS PRIORITIES LOST packets",
        ),
        (runs.iter().filter(stuck).count(), "DEADLOCK"),
    ] {
        if n > 0 {
            writeln!(out, "{what} in {}", of(n))?;
        }
    }
    if warnings.iter().any(|w| !w.is_empty()) || runs.iter().any(|r| loses(&r) || stuck(&r)) {
        out.push('\n');
    }
    Ok(())
}

/// Why runs that ended in a deadlock have failed.
pub(super) fn write_verdict(out: &mut String, runs: &[Run]) -> std::fmt::Result {
    let stuck: Vec<&Run> = runs.iter().filter(|r| r.is_stuck()).collect();
    let Some(first) = stuck.first() else {
        return Ok(());
    };
    let queues = first.deadlock.iter();
    let queues: Vec<_> = queues
        .map(|stuck| format!("{}/{}", stuck.link, stuck.priority))
        .collect();
    let told = format!(
        "FAILED: {} of {} runs ended in a deadlock that no expectation asks for (metric \"deadlock\"): {}",
        stuck.len(),
        runs.len(),
        queues.join(", ")
    );
    wrap(out, &told, 0)
}

/// Pauses, those who suffered from them, and receivers that are not fast enough.
pub(super) fn write(out: &mut String, run: &Run) -> std::fmt::Result {
    let span = |ps: u64| Unit::Span.show(ps as f64);
    let mut rows = Vec::new();
    let mut times = Vec::new();
    for way in &run.links {
        let own = way.priorities.iter().filter(|q| q.is_paused());
        times.extend(own.clone().map(|q| q.paused_ps).filter(|&ps| ps > 0));
        rows.extend(own.map(|q| {
            vec![
                way.name.clone(),
                q.priority.to_string(),
                q.pauses_sent.to_string(),
                q.pauses_received.to_string(),
                span(q.paused_ps),
                format!("{:.2}%", q.paused_share * 100.0),
                Unit::Size.show(q.queue_max as f64),
                q.storms.to_string(),
            ]
        }));
    }
    let number = rows.len();
    if number > 0 {
        let head = [
            "link",
            "priority",
            "pauses sent",
            "received",
            "was paused",
            "of the time",
            "longest queue",
            "storms",
        ];
        rows.truncate(MEMBERS);
        section(out, &head, rows, &[0]);
        if number > MEMBERS {
            writeln!(out, "... and {} more", number - MEMBERS)?;
        }
        times.sort_unstable();
        if let (Some(&least), Some(&most)) = (times.first(), times.last()) {
            writeln!(
                out,
                "{} of {} directions paused, for {} to {}, half of them for {} or more",
                run.measure(Metric::PausedDirections, &crate::format::expect::Of::All)
                    .unwrap_or(0.0),
                run.links.len(),
                span(least),
                span(most),
                span(times[times.len() / 2])
            )?;
        }
    }
    let rows: Vec<_> = run
        .hosts
        .iter()
        .filter_map(|host| {
            let r = host.receiver?;
            Some(vec![
                host.name.clone(),
                Unit::Size.show(r.most as f64),
                Unit::Size.show(r.left as f64),
                r.misses.to_string(),
            ])
        })
        .take(MEMBERS)
        .collect();
    if !rows.is_empty() {
        section(
            out,
            &["receiver", "most waiting", "left", "misses"],
            rows,
            &[0],
        );
    }
    if !run.victims.is_empty() {
        writeln!(out, "\nvictims: paused for queues they never meet")?;
    }
    for v in run.victims.iter().take(MEMBERS) {
        let what = if v.receiver {
            "a slow receiver at the end of"
        } else {
            "the queue for"
        };
        let chain = match v.chain.len() {
            1 => String::new(),
            _ => format!(", by way of {}", v.chain[1..].join(", ")),
        };
        let told = format!(
            "{}: {} paused {} times in priority {}, first at {}, for {what} {}{chain}",
            v.load,
            v.paused,
            v.pauses,
            v.priority,
            span(v.first_ps),
            v.bottleneck
        );
        wrap(out, &told, 2)?;
    }
    match run.victims.len().saturating_sub(MEMBERS) {
        0 => Ok(()),
        more => writeln!(out, "  ... and {more} more"),
    }
}

impl PriorityReport {
    fn is_paused(&self) -> bool {
        self.pauses_sent > 0 || self.pauses_received > 0 || self.paused_ps > 0
    }
}
