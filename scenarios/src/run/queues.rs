//! What waits in the network and what is paused, over time.

use super::RunError;
use super::build::channel;
use super::flows::{Most, write};
use super::watch::Watch;
use crate::format::Scenario;
use softroce_sim::fabric::Network;
use softroce_sim::fabric::machine::Machine;
use softroce_sim::time::{Span, Time};
use std::io::Write;
use std::path::Path;

/// Queues and pauses, noted while a network runs.
#[derive(Default)]
pub(super) struct Queues {
    rows: Vec<Row>,
    most: Most,
    /// By direction of a link and priority: how long it had been paused at the last sample.
    paused: Vec<[Span; 8]>,
    /// Events by the last sample.
    events: Option<u64>,
    /// The same if there was no event since the one before, and nothing waited or was paused between them.
    quiet: Option<u64>,
}

struct Row {
    time: Time,
    /// Position among the directions of links.
    way: usize,
    /// Nothing at a switch that keeps no count by priority.
    priority: Option<u8>,
    waiting: u64,
    paused: Span,
}

impl Queues {
    /// Notes what waits now, and what has been paused since the last time.
    pub(super) fn note(&mut self, scenario: &Scenario, network: &Network<Machine, Watch>) {
        if self.most.is_full() {
            return;
        }
        // Where nothing happens, nothing comes to wait.
        let events = Some(network.event_count());
        if self.quiet == events {
            return;
        }
        let rows = self.rows.len();
        let time = network.now();
        for (n, way) in scenario.network.ways().enumerate() {
            let channel = channel(way);
            if self.paused.len() <= n {
                self.paused.push([Span::ZERO; 8]);
            }
            let all = network.paused(channel);
            let before = std::mem::replace(&mut self.paused[n], all);
            let mut counted = 0;
            for priority in 0..8u8 {
                let p = usize::from(priority);
                let waiting = network.queued_in(channel, priority);
                counted += waiting;
                let paused = all[p] - before[p];
                if waiting > 0 || paused > Span::ZERO {
                    self.rows.push(Row {
                        time,
                        way: n,
                        priority: Some(priority),
                        waiting,
                        paused,
                    });
                }
            }
            let rest = network.queued_bytes(channel) - counted;
            if rest > 0 {
                self.rows.push(Row {
                    time,
                    way: n,
                    priority: None,
                    waiting: rest,
                    paused: Span::ZERO,
                });
            }
        }
        if !self.most.take(time, self.rows.len()) {
            self.rows.truncate(rows);
        }
        self.quiet = events.filter(|_| self.events == events && self.rows.len() == rows);
        self.events = events;
    }

    /// Up to when rows were kept, if not to the end.
    pub(super) fn full(&self) -> Option<Time> {
        self.most.full()
    }

    /// Forgets what was noted after `at`.
    pub(super) fn end(&mut self, at: Time) {
        self.rows
            .truncate(self.rows.partition_point(|row| row.time <= at));
        self.most.end(at);
    }

    /// Writes a line for each sample, direction of a link and priority where something waits or was paused.
    pub(super) fn write(&self, scenario: &Scenario, path: &Path) -> Result<(), RunError> {
        let network = &scenario.network;
        let names: Vec<String> = network.ways().map(|way| network.way_name(way)).collect();
        write(path, |out| {
            writeln!(out, "time_ps,link,priority,waiting,paused_ps")?;
            for row in &self.rows {
                let priority = row.priority.map_or(String::new(), |p| p.to_string());
                writeln!(
                    out,
                    "{},{},{priority},{},{}",
                    row.time.as_ps(),
                    names[row.way],
                    row.waiting,
                    row.paused.as_ps()
                )?;
            }
            Ok(())
        })
    }
}
