//! What is measured of flows and collectives, and the files that tell of each flow.

use super::RunError;
use super::build::Built;
use super::congestion;
use crate::format::Scenario;
use crate::format::pattern::{Collective, CollectiveKind};
use crate::format::request::Transport;
use crate::format::scenario::MOST_SAMPLES;
use crate::format::traffic::{Amount, Traffic};
use crate::path::{Neighbours, ideal};
use crate::report::flows::{CollectiveReport, FlowsReport, Slowdown, fairness, summary};
use crate::run::measure::{delivered, goodput};
use softroce_sim::card::Status;
use softroce_sim::time::{Span, Time};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// What became of a flow.
struct Flow {
    pair: usize,
    start: Time,
    /// Its last completion, if there was any.
    last: Option<Time>,
    /// When the last of its bytes had come.
    came: Option<Time>,
    finished: bool,
    bytes: u64,
    /// What it would take alone; nothing if it has no end or no path.
    ideal: Option<Span>,
}

impl Flow {
    /// From its start to its last completion, if all has completed.
    fn completion(&self) -> Option<Span> {
        let last = self.last.filter(|_| self.finished)?;
        Some(last.since(self.start))
    }

    fn slowdown(&self) -> Option<f64> {
        let (took, ideal) = (self.completion()?, self.ideal?);
        (ideal > Span::ZERO).then(|| took.as_ps() as f64 / ideal.as_ps() as f64)
    }
}

/// The flows of the `n`-th load, in their order.
fn of(scenario: &Scenario, built: &Built, n: usize) -> Vec<Flow> {
    let load = &scenario.traffic[n];
    let ids = built.flows.get(n).map_or(&[][..], Vec::as_slice);
    let qps = load.qps.max(1) as usize;
    let mut flows: Vec<Flow> = ids
        .iter()
        .enumerate()
        .map(|(i, &id)| {
            let pair = i / qps;
            let stats = network_stats(built, id);
            let delivered = delivered(load, &built.network, id);
            let done = stats.completed.get(Status::Success);
            Flow {
                pair,
                start: Time::ZERO + load.start + load.flow(pair).start,
                last: stats.last_completion,
                finished: matches!(load.amount, Amount::Messages(n) if n == done),
                came: delivered.last,
                bytes: delivered.bytes,
                ideal: None,
            }
        })
        .collect();
    if let Amount::Messages(count) = load.amount
        && load.transport == Transport::Rc
    {
        let neighbours = Neighbours::new(&scenario.network);
        // The ways from one host at a time, which is all that is kept of them.
        let mut order: Vec<usize> = (0..flows.len()).collect();
        let source = |flow: &Flow| data(load, flow.pair).0;
        order.sort_by_key(|&i| source(&flows[i]));
        let mut tree = None;
        for i in order {
            let (from, to) = data(load, flows[i].pair);
            let tree = match &tree {
                Some((host, _)) if *host == from => &mut tree,
                _ => {
                    tree = Some((from, neighbours.tree(from)));
                    &mut tree
                }
            };
            let own = load.flow(flows[i].pair);
            flows[i].ideal = tree.as_ref().and_then(|(_, tree)| {
                let way = tree.to(to)?;
                let card = &scenario.cards[from];
                ideal(
                    &scenario.network,
                    card,
                    &way,
                    own.operation,
                    own.size.0,
                    count,
                )
            });
        }
    }
    flows
}

fn network_stats(
    built: &Built,
    id: softroce_sim::fabric::machine::FlowId,
) -> &softroce_sim::fabric::machine::FlowStats {
    built.network.host(id.host).flow_stats(id.flow)
}

/// From where to where the data of a pair goes.
fn data(load: &Traffic, pair: usize) -> (usize, usize) {
    let (a, b) = load.pairs[pair];
    match load.flow(pair).operation.sends_data() {
        true => (a, b),
        false => (b, a),
    }
}

/// Sums up the flows of the `n`-th load, which is no collective.
pub(super) fn report(scenario: &Scenario, built: &Built, n: usize) -> Option<FlowsReport> {
    if scenario.traffic[n].collective.is_some() {
        return None;
    }
    let flows = of(scenario, built, n);
    let completions = flows.iter().filter_map(Flow::completion);
    let rates: Vec<f64> = flows
        .iter()
        .map(|f| {
            let last = f.last.max(f.came);
            let took = last.map_or(0, |last| last.since(f.start).as_ps());
            if took == 0 {
                0.0
            } else {
                f.bytes as f64 / took as f64
            }
        })
        .collect();
    Some(FlowsReport {
        count: flows.len() as u64,
        finished: flows.iter().filter(|f| f.finished).count() as u64,
        completion: summary(completions.map(Span::as_ps).collect()),
        slowdown: Slowdown::of(flows.iter().filter_map(Flow::slowdown).collect()),
        fairness: fairness(&rates),
    })
}

/// Sums up the rounds of the `n`-th load, if it is a collective.
pub(super) fn rounds(scenario: &Scenario, built: &Built, n: usize) -> Option<CollectiveReport> {
    let load = &scenario.traffic[n];
    let Collective { kind, bytes, .. } = *load.collective.as_ref()?;
    let members: Vec<_> = built.members[n]
        .iter()
        .map(|&(host, seat)| built.network.host(host).rounds(seat))
        .collect();
    let ended = members.iter().map(|m| m.len()).min().unwrap_or(0);
    let (mut before, mut spans, mut busy) = (Time::ZERO + load.start, Vec::new(), 0u64);
    for i in 0..ended {
        let launch = members.iter().map(|m| m[i].launch).min();
        let end = members.iter().map(|m| m[i].end).max();
        let (Some(launch), Some(end)) = (launch, end) else {
            break;
        };
        spans.push(end.since(before).as_ps());
        busy = busy.saturating_add(end.since(launch.max(before)).as_ps());
        before = end;
    }
    let algorithm = (ended > 0).then(|| {
        let all = bytes.0.saturating_mul(ended as u64);
        goodput(all, Span::from_ps(busy))
    });
    let hosts = members.len() as u64;
    let bus = match kind {
        CollectiveKind::AllReduce { .. } => algorithm.map(|rate| {
            let bus = u128::from(rate) * 2 * u128::from(hosts - 1) / u128::from(hosts);
            u64::try_from(bus).unwrap_or(u64::MAX)
        }),
        CollectiveKind::ParameterServer { .. } => None,
    };
    Some(CollectiveReport {
        members: hosts,
        bytes: bytes.0,
        iterations: ended as u64,
        iteration: summary(spans),
        algorithm_bps: algorithm,
        bus_bps: bus,
    })
}

/// Writes a line for each flow of each load. A flow that has not finished has no times of completion.
pub(super) fn write_table(scenario: &Scenario, built: &Built, path: &Path) -> Result<(), RunError> {
    write(path, |out| {
        writeln!(
            out,
            "load,flow,from,to,operation,bytes,start_ps,end_ps,fct_ps,ideal_ps,slowdown,status,rate_bps,alpha"
        )?;
        let hosts = &scenario.network.hosts;
        for (n, load) in scenario.traffic.iter().enumerate() {
            let now = built.network.now();
            let states = congestion::states(scenario, built, n, now);
            for ((i, state), flow) in states.zip(of(scenario, built, n)) {
                let (from, to) = load.pairs[flow.pair];
                let ps = |span: Option<u64>| span.map_or(String::new(), |ps| ps.to_string());
                writeln!(
                    out,
                    "{},{i},{},{},{},{},{},{},{},{},{},{},{},{}",
                    load.name,
                    hosts[from],
                    hosts[to],
                    load.flow(flow.pair).operation,
                    flow.bytes,
                    flow.start.as_ps(),
                    ps(flow.last.map(Time::as_ps)),
                    ps(flow.completion().map(Span::as_ps)),
                    ps(flow.ideal.map(Span::as_ps)),
                    flow.slowdown().map_or(String::new(), |s| s.to_string()),
                    if flow.finished {
                        "finished"
                    } else {
                        "unfinished"
                    },
                    ps(state.map(|s| s.rate.bps())),
                    state
                        .and_then(|s| s.alpha)
                        .map_or(String::new(), |a| a.to_string()),
                )?;
            }
        }
        Ok(())
    })
}

/// The goodput of each load over time, noted while a network runs.
#[derive(Default)]
pub(super) struct Series {
    /// When, and the bytes of each load by then.
    samples: Vec<(Time, Vec<u64>)>,
    /// Events at the last of them.
    events: u64,
}

impl Series {
    /// The most samples that are kept of a run; it goes on without.
    pub(super) const MOST: usize = MOST_SAMPLES as usize;

    /// Up to when it has been kept, if no more are.
    pub(super) fn full(&self) -> Option<Time> {
        self.samples.last().filter(|_| self.is_full()).map(|s| s.0)
    }

    /// True if no more are kept.
    pub(super) fn is_full(&self) -> bool {
        self.samples.len() >= Series::MOST
    }

    /// Notes what has been delivered by now.
    pub(super) fn note(&mut self, scenario: &Scenario, built: &Built) {
        let events = built.network.event_count();
        let same = self.samples.last().filter(|_| self.events == events);
        let bytes = same.map(|s| s.1.clone()).unwrap_or_else(|| {
            let loads = scenario.traffic.iter().zip(&built.flows);
            let bytes = loads.map(|(load, ids)| {
                let each = ids.iter();
                let each = each.map(|&id| delivered(load, &built.network, id).bytes);
                each.sum()
            });
            bytes.collect()
        });
        self.events = events;
        self.samples.push((built.network.now(), bytes));
    }

    /// Forgets what was noted after `at`.
    pub(super) fn end(&mut self, at: Time) {
        let kept = self.samples.partition_point(|(time, _)| *time <= at);
        self.samples.truncate(kept);
    }

    /// Writes a line for each sample: the payload of the messages that completed since the one before, in
    /// bits per second, for each load.
    pub(super) fn write(&self, scenario: &Scenario, path: &Path) -> Result<(), RunError> {
        write(path, |out| {
            write!(out, "time_ps")?;
            for load in &scenario.traffic {
                write!(out, ",{}", load.name)?;
            }
            writeln!(out)?;
            let mut before = (Time::ZERO, vec![0; scenario.traffic.len()]);
            for (now, bytes) in &self.samples {
                write!(out, "{}", now.as_ps())?;
                for (n, &b) in bytes.iter().enumerate() {
                    write!(out, ",{}", goodput(b - before.1[n], now.since(before.0)))?;
                }
                writeln!(out)?;
                before = (*now, bytes.clone());
            }
            Ok(())
        })
    }
}

/// How many rows of samples are kept of a run: whole samples of them, and it goes on without the rest.
#[derive(Default)]
pub(super) struct Most {
    /// The last sample that is kept.
    last: Time,
    /// The first one that is not.
    missing: Option<Time>,
}

impl Most {
    /// Rows.
    pub(super) const ROWS: usize = 1_000_000;

    pub(super) fn is_full(&self) -> bool {
        self.missing.is_some()
    }

    /// True if a sample, with which there are so many rows, is kept.
    pub(super) fn take(&mut self, now: Time, rows: usize) -> bool {
        if rows > Most::ROWS {
            self.missing = Some(now);
            return false;
        }
        self.last = now;
        true
    }

    /// The last sample that is kept, if more are missing.
    pub(super) fn full(&self) -> Option<Time> {
        self.missing.map(|_| self.last)
    }

    /// Samples after `at` are not missed.
    pub(super) fn end(&mut self, at: Time) {
        self.missing = self.missing.filter(|&missing| missing <= at);
    }
}

/// Writes a file.
pub(super) fn write(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), RunError> {
    File::create(path)
        .map(BufWriter::new)
        .and_then(|mut out| {
            content(&mut out)?;
            out.flush()
        })
        .map_err(|source| RunError::Write {
            path: path.to_path_buf(),
            source,
        })
}
