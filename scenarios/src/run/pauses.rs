//! Pauses, their victims, deadlocks, with the names of the scenario.

use super::build::Built;
use super::measure::way_name;
use super::watch::Watch;
use crate::format::Scenario;
use crate::format::request::Operation;
use crate::report::pauses::{PriorityReport, ReceiverReport, StuckReport, VictimReport};
use softroce_sim::fabric::machine::{self, FlowId, Machine};
use softroce_sim::fabric::{ChannelId, HostId, Network, PauseCause};
use softroce_sim::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// What happened on a channel, priority by priority.
pub(super) fn priorities(
    network: &Network<Machine, Watch>,
    channel: ChannelId,
) -> Vec<PriorityReport> {
    let time = network.now().as_ps().max(1);
    let counters = network.counters(channel).by_priority.iter();
    let paused = network.paused(channel);
    let all = counters
        .zip(paused)
        .zip(0u8..)
        .map(|((c, paused), priority)| {
            let report = PriorityReport {
                priority,
                pauses_sent: c.pauses_sent,
                resumes_sent: c.resumes_sent,
                pauses_received: c.pauses_received,
                paused_ps: paused.as_ps(),
                paused_share: paused.as_ps() as f64 / time as f64,
                queue_max: c.queue_high_water,
                storms: c.storms,
                marks: c.marks,
                not_capable: c.not_capable,
            };
            let any = c.pauses_sent + c.pauses_received + c.queue_high_water + paused.as_ps();
            let any = any + c.marks + c.not_capable;
            (any > 0).then_some(report)
        });
    all.flatten().collect()
}

/// What the receive pipeline of a host did, if it has one.
pub(super) fn receiver(network: &Network<Machine, Watch>, host: usize) -> Option<ReceiverReport> {
    let p = network.pipeline(HostId::new(host))?;
    Some(ReceiverReport {
        most: p.high_water,
        left: p.bytes,
        misses: p.misses,
    })
}

/// The queues of a deadlock, by the names of the directions that they wait for.
pub(super) fn deadlock(scenario: &Scenario, network: &Network<Machine, Watch>) -> Vec<StuckReport> {
    let cycle = network.deadlock().map_or(Vec::new(), |d| d.cycle);
    let stuck = cycle.iter().map(|stuck| StuckReport {
        link: way_name(scenario, stuck.channel),
        priority: stuck.priority,
    });
    stuck.collect()
}

/// Ways of flows of a load, all that differ, with the time in which one of them was under way.
struct Ways {
    load: usize,
    priority: u8,
    /// Until when; `None` for the end of the run.
    until: BTreeMap<Vec<ChannelId>, Option<Time>>,
}

/// Loads that were paused for queues that they never meet.
///
/// A pause is for the queue at the end of its chain: the one that is long without being paused itself. A
/// load whose data goes by the paused channel and not by that queue is its victim. Ways are those at the end of
/// the run.
pub(super) fn victims(scenario: &Scenario, built: &Built) -> Vec<VictimReport> {
    let network = &built.network;
    let log = network.pause_log();
    if log.records().is_empty() {
        return Vec::new();
    }
    let loads: Vec<Ways> = (0..scenario.traffic.len())
        .map(|n| ways(scenario, built, n))
        .collect();
    let used: BTreeSet<(ChannelId, u8)> = loads
        .iter()
        .flat_map(|l| l.until.keys().flatten().map(|&c| (c, l.priority)))
        .collect();
    let mut found: BTreeMap<(usize, Time, ChannelId, ChannelId), VictimReport> = BTreeMap::new();
    let mut first: BTreeMap<(usize, ChannelId, ChannelId), Time> = BTreeMap::new();
    for (n, record) in log.records().iter().enumerate() {
        if !used.contains(&(record.channel, record.priority)) {
            continue;
        }
        let chain = log.chain(n);
        let (bottleneck, receiver) = root(&chain, record);
        for ways in loads.iter().filter(|l| l.priority == record.priority) {
            let load = &scenario.traffic[ways.load];
            let suffers = record.time >= Time::ZERO + load.start
                && ways.until.iter().any(|(way, until)| {
                    way.contains(&record.channel)
                        && !way.contains(&bottleneck)
                        && until.is_none_or(|until| record.time <= until)
                });
            if !suffers {
                continue;
            }
            let time = first
                .entry((ways.load, record.channel, bottleneck))
                .or_insert(record.time);
            let key = (ways.load, *time, record.channel, bottleneck);
            let victim = found.entry(key).or_insert_with(|| VictimReport {
                load: load.name.clone(),
                paused: way_name(scenario, record.channel),
                priority: record.priority,
                first_ps: record.time.as_ps(),
                pauses: 0,
                bottleneck: way_name(scenario, bottleneck),
                receiver,
                chain: chain
                    .iter()
                    .map(|c| way_name(scenario, c.channel))
                    .collect(),
            });
            victim.pauses += 1;
        }
    }
    found.into_values().collect()
}

/// The queue that a chain of pauses was for, and whether a host did not take in what came by it.
fn root(chain: &[PauseCause], record: &PauseCause) -> (ChannelId, bool) {
    let last = chain.last().unwrap_or(record);
    (last.behind.unwrap_or(last.channel), last.behind.is_none())
}

fn ways(scenario: &Scenario, built: &Built, n: usize) -> Ways {
    let load = &scenario.traffic[n];
    let (from, to) = load.pairs.first().copied().unwrap_or_default();
    let (card, answers) = (&scenario.cards[from], &scenario.cards[to]);
    let reads = load.operation == Operation::Read;
    let mut until = BTreeMap::new();
    for &id in built.flows.get(n).map_or(&[][..], Vec::as_slice) {
        let end = end(&built.network, id);
        let way = way(&built.network, id, reads);
        let known = until.entry(way).or_insert(end);
        // The latest of all; nothing is later than the end of the run.
        *known = known.zip(end).map(|(a, b)| a.max(b));
    }
    Ways {
        load: n,
        priority: match reads {
            true => answers.ack_priority,
            false => card.priority,
        },
        until,
    }
}

/// When the last request of a flow completed; `None` if it goes on.
fn end(network: &Network<Machine, Watch>, id: FlowId) -> Option<Time> {
    let stats = machine::stats(network, id);
    let completed: u64 = stats.completed.iter().map(|(_, n)| n).sum();
    stats.last_completion.filter(|_| completed == stats.posted)
}

/// The channels that the data of a flow goes by.
fn way(network: &Network<Machine, Watch>, id: FlowId, reads: bool) -> Vec<ChannelId> {
    let (from, to) = (network.host(id.host), network.host(id.peer));
    let (host, route) = match reads {
        false => (id.host, from.card().qp_route(from.flow_qp(id.flow))),
        true => (id.peer, to.card().qp_route(to.receiver_qp(id.receiver))),
    };
    route.map_or(Vec::new(), |route| network.trace(host, &route))
}
