//! Congestion control of queue pairs, at the end of a run and over time.

use super::RunError;
use super::build::Built;
use super::flows::{Most, write};
use crate::format::Scenario;
use crate::format::request::Operation;
use crate::format::traffic::Traffic;
use crate::report::congestion::CongestionReport;
use softroce_sim::card::CongestionState;
use softroce_sim::fabric::HostId;
use softroce_sim::time::Time;
use std::io::Write;
use std::path::Path;

/// Congestion control of the queue pairs that send the data of the `n`-th load, in the order of its flows, as
/// it is at `now`.
pub(super) fn states<'a>(
    scenario: &'a Scenario,
    built: &'a Built,
    n: usize,
    now: Time,
) -> impl Iterator<Item = (usize, Option<CongestionState>)> + 'a {
    let load = &scenario.traffic[n];
    let ids = built.flows.get(n).map_or(&[][..], Vec::as_slice);
    ids.iter().enumerate().map(move |(i, &id)| {
        let host = |host: HostId| built.network.host(host);
        let (card, qp) = match reads(load, i) {
            false => (host(id.host).card(), host(id.host).flow_qp(id.flow)),
            true => (host(id.peer).card(), host(id.peer).receiver_qp(id.receiver)),
        };
        (i, card.congestion(now, qp))
    })
}

/// True if the data of the `i`-th flow of a load comes to where its requests come from.
pub(super) fn reads(load: &Traffic, i: usize) -> bool {
    let pair = i / load.qps.max(1) as usize;
    load.flow(pair).operation == Operation::Read
}

/// Sums up the `n`-th load; nothing if it has no congestion control.
pub(super) fn report(scenario: &Scenario, built: &Built, n: usize) -> Option<CongestionReport> {
    let (mut rates, mut alphas) = (Vec::new(), Vec::new());
    let (mut control, mut limited, mut cuts) = ("", 0, 0);
    let line_rates = scenario.network.line_rates();
    let lines = |i: usize| {
        let load = &scenario.traffic[n];
        let (from, to) = load.pairs[i / load.qps.max(1) as usize];
        let sender = if reads(load, i) { to } else { from };
        line_rates[sender].map_or(0, |rate| rate.0)
    };
    for (i, state) in states(scenario, built, n, built.network.now()) {
        let Some(state) = state else {
            continue;
        };
        control = state.name;
        rates.push(state.rate.bps() as f64);
        alphas.extend(state.alpha);
        limited += u64::from(state.rate.bps() < lines(i));
        cuts += state.reductions;
    }
    CongestionReport::of(control, rates, alphas, limited, cuts)
}

/// The rate of each queue pair, noted while a network runs.
#[derive(Default)]
pub(super) struct Rates {
    rows: Vec<(Time, u32, u32, CongestionState)>,
    most: Most,
    /// No queue pair has congestion control; known once it was looked.
    none: Option<bool>,
}

impl Rates {
    pub(super) fn note(&mut self, scenario: &Scenario, built: &Built) {
        if self.none == Some(true) || self.most.is_full() {
            return;
        }
        let rows = self.rows.len();
        let now = built.network.now();
        for n in 0..scenario.traffic.len() {
            for (i, state) in states(scenario, built, n, now) {
                if let Some(state) = state {
                    self.rows.push((now, n as u32, i as u32, state));
                }
            }
        }
        if !self.most.take(now, self.rows.len()) {
            self.rows.truncate(rows);
        }
        self.none = Some(self.rows.is_empty());
    }

    /// Up to when rows were kept, if not to the end.
    pub(super) fn full(&self) -> Option<Time> {
        self.most.full()
    }

    /// Forgets what was noted after `at`.
    pub(super) fn end(&mut self, at: Time) {
        self.rows
            .truncate(self.rows.partition_point(|row| row.0 <= at));
        self.most.end(at);
    }

    /// True if no queue pair has congestion control.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes a line for each sample and queue pair.
    pub(super) fn write(&self, scenario: &Scenario, path: &Path) -> Result<(), RunError> {
        write(path, |out| {
            writeln!(out, "time_ps,load,flow,rate_bps,target_bps,alpha,cuts")?;
            for (time, load, flow, state) in &self.rows {
                let target = state.target.map_or(String::new(), |r| r.bps().to_string());
                let alpha = state.alpha.map_or(String::new(), |a| a.to_string());
                writeln!(
                    out,
                    "{},{},{flow},{},{target},{alpha},{}",
                    time.as_ps(),
                    scenario.traffic[*load as usize].name,
                    state.rate.bps(),
                    state.reductions
                )?;
            }
            Ok(())
        })
    }
}
