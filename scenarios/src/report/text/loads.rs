//! What became of the loads of a run: requests, receives, flows and rounds.

use super::section;
use crate::metric::Unit;
use crate::report::latency::Latency;
use crate::report::{Run, Status, show};
use std::fmt::Write;

pub(super) fn write(out: &mut String, run: &Run) {
    let span = |ps: Option<u64>| show(ps.map(|ps| ps as f64), Unit::Span);
    let mut rows = Vec::new();
    for load in &run.traffic {
        let l = load.latency.as_ref();
        rows.push(vec![
            load.name.clone(),
            load.does(),
            load.sizes(),
            load.queue_pairs.to_string(),
            load.messages.to_string(),
            load.unfinished.to_string(),
            Unit::Rate.show(load.goodput_bps as f64),
            span(l.map(|l| l.p50_ps)),
            span(l.map(|l| l.p99_ps)),
            span(l.map(|l| l.p999_ps)),
            span(l.map(|l| l.max_ps)),
        ]);
    }
    let head = [
        "load", "does", "size", "qps", "messages", "left", "goodput", "p50", "p99", "p99.9", "max",
    ];
    section(out, &head, rows, &[0, 1]);
    let mut rows = Vec::new();
    for load in &run.traffic {
        let c = &load.counts;
        let completions: Vec<_> = load
            .completions
            .iter()
            .filter(|&(_, &n)| n > 0)
            .map(|(status, n)| format!("{n} {status}"))
            .collect();
        let completions = match completions.is_empty() {
            true => "none".to_string(),
            false => completions.join(", "),
        };
        let mut row = vec![
            load.name.clone(),
            c.packets_sent.to_string(),
            c.retransmissions.to_string(),
            c.timeouts.to_string(),
            c.acks.to_string(),
            c.naks.sequence.to_string(),
            c.naks.rnr.to_string(),
            (c.naks.total() - c.naks.sequence - c.naks.rnr).to_string(),
            load.received().to_string(),
            completions,
        ];
        if load.damaged > 0 {
            row.push(format!("DAMAGED DATA on {} qps", load.damaged));
        }
        rows.push(row);
    }
    let head = [
        "load",
        "packets",
        "resent",
        "timeouts",
        "ACKs",
        "seq NAKs",
        "RNR NAKs",
        "other",
        "receives",
        "completions",
    ];
    section(out, &head, rows, &[0, 9]);
    write_receives(out, run);
    write_flows(out, run);
    for load in &run.traffic {
        let Some(share) = load.goodput_share() else {
            continue;
        };
        let _ = write!(
            out,
            "\n{} kept {:.2}% of its goodput without loss",
            load.name,
            share * 100.0
        );
        if let Some(law) = load.law_share {
            let _ = write!(out, "; the law says {:.2}%", law * 100.0);
        }
        out.push('\n');
    }
}

/// Receives that did not end with success.
fn write_receives(out: &mut String, run: &Run) {
    let failed = run.traffic.iter().filter_map(|load| {
        let all = load.receives.iter();
        let failed = all.filter(|&(&status, &n)| n > 0 && status != Status::Success);
        let each: Vec<_> = failed.map(|(status, n)| format!("{n} {status}")).collect();
        (!each.is_empty()).then(|| vec![load.name.clone(), each.join(", ")])
    });
    let rows: Vec<_> = failed.collect();
    if !rows.is_empty() {
        section(out, &["load", "receives that failed"], rows, &[0, 1]);
    }
}

/// Flows of loads that have several, and the rounds of collectives.
fn write_flows(out: &mut String, run: &Run) {
    let ratio = |value: f64| show(Some(value), Unit::Ratio);
    let span = |ps: u64| show(Some(ps as f64), Unit::Span);
    let flows = run.traffic.iter().filter_map(|load| {
        let flows = load.flows.as_ref().filter(|f| f.count > 1)?;
        let (times, slow) = (flows.completion?, flows.slowdown?);
        Some(vec![
            load.name.clone(),
            format!("{}/{}", flows.finished, flows.count),
            span(times.min_ps),
            span(times.p50_ps),
            span(times.p99_ps),
            span(times.max_ps),
            ratio(slow.p50),
            ratio(slow.p99),
            ratio(slow.max),
            flows.fairness.map_or_else(|| "-".to_string(), ratio),
        ])
    });
    let flows: Vec<_> = flows.collect();
    if !flows.is_empty() {
        let head = [
            "load",
            "flows",
            "fct min",
            "p50",
            "p99",
            "max",
            "slowdown p50",
            "p99",
            "max",
            "fairness",
        ];
        section(out, &head, flows, &[0]);
    }
    let rate = |bps: Option<u64>| show(bps.map(|b| b as f64), Unit::Rate);
    let rounds = run.traffic.iter().filter_map(|load| {
        let c = load.collective.as_ref()?;
        let time = c.iteration.as_ref();
        let time = |f: fn(&Latency) -> u64| show(time.map(|l| f(l) as f64), Unit::Span);
        Some(vec![
            load.name.clone(),
            c.members.to_string(),
            Unit::Size.show(c.bytes as f64),
            c.iterations.to_string(),
            time(|l| l.min_ps),
            time(|l| l.mean_ps),
            time(|l| l.max_ps),
            rate(c.algorithm_bps),
            rate(c.bus_bps),
        ])
    });
    let rounds: Vec<_> = rounds.collect();
    if !rounds.is_empty() {
        let head = [
            "collective",
            "hosts",
            "bytes",
            "iterations",
            "min",
            "mean",
            "max",
            "algbw",
            "busbw",
        ];
        section(out, &head, rounds, &[0]);
    }
}
