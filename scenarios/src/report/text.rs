//! A report for people.

use super::{Ended, Report, Run, TrafficReport, show};
use crate::metric::Unit;
use std::fmt::Write;

/// How many hits of a fault are shown.
const HITS: usize = 5;
/// How many hosts and directions of links are shown one by one.
const MEMBERS: usize = 16;

/// The report as text, ending in a line with the verdict.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    write!(out, "{}", report.scenario)?;
    if let Some(title) = &report.title {
        write!(out, ": {}", title.trim())?;
    }
    writeln!(out)?;
    for run in &report.runs {
        writeln!(out)?;
        if !report.axes.is_empty() {
            let point: Vec<_> = report
                .axes
                .iter()
                .zip(&run.values)
                .map(|(axis, value)| format!("{axis} = {value}"))
                .collect();
            writeln!(out, "-- {}", point.join(", "))?;
        }
        write_run(out, run)?;
    }
    if let Some(look) = &report.look_at {
        writeln!(out, "\nlook at: {}", look.trim())?;
    }
    let judged = report.runs.iter().flat_map(|r| &r.expectations);
    let failed = judged.clone().filter(|j| !j.held).count();
    let total = judged.count();
    let broken = report
        .runs
        .iter()
        .filter(|r| r.ended == Ended::EventLimit)
        .count();
    writeln!(out)?;
    if broken > 0 {
        writeln!(
            out,
            "{broken} of {} runs given up at the event limit",
            report.runs.len()
        )?;
    }
    match (total, failed) {
        (0, _) => writeln!(out, "no expectations"),
        (_, 0) => writeln!(out, "held: {total} of {total} expectations"),
        _ => writeln!(out, "FAILED: {failed} of {total} expectations"),
    }
}

fn write_run(out: &mut String, run: &Run) -> std::fmt::Result {
    let n = &run.network;
    let each = |values: &[u64], unit: Unit| {
        let values: Vec<_> = values.iter().map(|&v| unit.show(v as f64)).collect();
        values.join("/")
    };
    writeln!(
        out,
        "network: {}, {} hosts, {} switches, {} links of {}, {}; seed {}",
        n.shape,
        n.hosts,
        n.switches,
        n.links,
        each(&n.rates_bps, Unit::Rate),
        each(&n.delays_ps, Unit::Span),
        run.seed
    )?;
    let ended = match run.ended {
        Ended::Dry => "nothing left to do",
        Ended::Stop => "stop time",
        Ended::EventLimit => "EVENT LIMIT",
    };
    writeln!(
        out,
        "ended:   at {} after {} events: {ended}",
        Unit::Span.show(run.time_ps as f64),
        run.events
    )?;
    for load in &run.traffic {
        write_load(out, load)?;
    }
    write_members(out, run)?;
    for fault in &run.faults {
        writeln!(
            out,
            "fault {}: hit {} of {} packets",
            fault.name, fault.hits, fault.seen
        )?;
        for hit in fault.packets.iter().take(HITS) {
            writeln!(
                out,
                "    {:>12} {} {} qp {:#08x} psn {}: {}",
                Unit::Span.show(hit.time_ps as f64),
                hit.link,
                hit.opcode,
                hit.qp,
                hit.psn,
                hit.action
            )?;
        }
        let more = fault.hits.saturating_sub(HITS as u64);
        if more > 0 {
            writeln!(out, "    ... and {more} more")?;
        }
    }
    for j in &run.expectations {
        let verdict = if j.held { "held  " } else { "FAILED" };
        let of =
            j.of.as_ref()
                .map_or(String::new(), |of| format!(" of {of}"));
        let measured = show(j.measured, j.metric.unit());
        write!(
            out,
            "{verdict} {}{of} is {measured}: {}",
            j.metric, j.wanted
        )?;
        match &j.because {
            Some(why) => writeln!(out, " ({})", why.trim())?,
            None => writeln!(out)?,
        }
    }
    if run.skipped > 0 {
        writeln!(
            out,
            "{} expectations compare with a point that was not run",
            run.skipped
        )?;
    }
    Ok(())
}

fn write_load(out: &mut String, load: &TrafficReport) -> std::fmt::Result {
    write!(
        out,
        "traffic {}: {} of {} on {} qp: {} messages, goodput {}",
        load.name,
        load.operation,
        Unit::Size.show(load.size as f64),
        load.queue_pairs,
        load.messages,
        Unit::Rate.show(load.goodput_bps as f64)
    )?;
    if let Some(share) = load.goodput_share() {
        write!(out, " ({:.2}% of loss-free)", share * 100.0)?;
    }
    writeln!(out)?;
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
    writeln!(
        out,
        "    completions: {completions}; received {}; unfinished {}",
        load.received, load.unfinished
    )?;
    if let Some(l) = &load.latency {
        let show = |ps| Unit::Span.show(ps as f64);
        writeln!(
            out,
            "    latency: min {}, p50 {}, p99 {}, p99.9 {}, max {}",
            show(l.min_ps),
            show(l.p50_ps),
            show(l.p99_ps),
            show(l.p999_ps),
            show(l.max_ps)
        )?;
    }
    let c = &load.counts;
    writeln!(
        out,
        "    retransmissions {}, timeouts {}, NAKs {} (sequence {}, rnr {}, other {})",
        c.retransmissions,
        c.timeouts,
        c.naks.total(),
        c.naks.sequence,
        c.naks.rnr,
        c.naks.total() - c.naks.sequence - c.naks.rnr
    )
}

fn write_members(out: &mut String, run: &Run) -> std::fmt::Result {
    for host in run.hosts.iter().take(MEMBERS) {
        let c = &host.counts;
        writeln!(
            out,
            "host {}: sent {}, received {}, duplicates {}, out of sequence {}, bad ICRC {}",
            host.name,
            c.packets_sent,
            c.packets_received,
            c.duplicates,
            c.out_of_sequence,
            c.bad_icrc
        )?;
    }
    if run.hosts.len() > MEMBERS {
        writeln!(out, "... and {} more hosts", run.hosts.len() - MEMBERS)?;
    }
    for way in run.links.iter().take(MEMBERS) {
        writeln!(
            out,
            "link {}: {} frames, {:.2}% used, queue up to {}, drops {} (fault {}, queue {}, corrupt {})",
            way.name,
            way.frames,
            way.utilisation * 100.0,
            Unit::Size.show(way.queue_max as f64),
            way.drops.total(),
            way.drops.fault,
            way.drops.queue,
            way.drops.corrupt
        )?;
    }
    if run.links.len() > MEMBERS {
        writeln!(out, "... and {} more directions", run.links.len() - MEMBERS)?;
    }
    Ok(())
}
