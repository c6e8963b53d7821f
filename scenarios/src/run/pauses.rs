//! Pauses, their victims, deadlocks, with the names of the scenario.

use super::build::Built;
use super::congestion;
use super::measure::way_name;
use super::watch::Watch;
use crate::format::Scenario;
use crate::format::topology::End;
use crate::report::pauses::{PriorityReport, ReceiverReport, StuckReport, VictimReport};
use softroce_sim::fabric::machine::{self, FlowId, Machine};
use softroce_sim::fabric::{ChannelId, Direction, HostId, Network, PauseCause};
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

/// A channel that packets go by, and the one that they come from, if it leaves a switch.
type Step = (Option<ChannelId>, ChannelId);

/// Ways of flows of a load, all that differ, with the time in which one of them was under way.
struct Ways {
    load: usize,
    /// By what their packets say of their class: until when; `None` for the end of the run.
    until: BTreeMap<(Sent, Vec<Step>), Option<Time>>,
}

impl Ways {
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.until.keys().flat_map(|(_, way)| way)
    }
}

/// The loads without which there would be no ring: those that alone take one of its steps. Loads that take the same
/// ones of its steps count as one.
fn makers(ring: &BTreeSet<Step>, loads: &[Ways]) -> BTreeSet<usize> {
    let mut alike: BTreeMap<BTreeSet<Step>, Vec<usize>> = BTreeMap::new();
    for ways in loads {
        let taken = ways.steps().filter(|step| ring.contains(step));
        alike
            .entry(taken.copied().collect())
            .or_default()
            .push(ways.load);
    }
    let alone = ring.iter().filter_map(|step| {
        let mut takers = alike.iter().filter(|(taken, _)| taken.contains(step));
        let (_, first) = takers.next()?;
        takers.next().is_none().then_some(first)
    });
    alone.flatten().copied().collect()
}

fn goes_by(way: &[Step], channel: ChannelId) -> bool {
    way.iter().any(|step| step.1 == channel)
}

/// Rings of pauses: by a queue that waits in the end for itself, with its priority, the steps of packets that came by
/// one channel of the ring and wait for the next one, which is why the first is paused.
fn rings(network: &Network<Machine, Watch>) -> BTreeMap<(ChannelId, u8), BTreeSet<Step>> {
    let mut rings: BTreeMap<(ChannelId, u8), BTreeSet<Step>> = BTreeMap::new();
    let log = network.pause_log();
    for (n, record) in log.records().iter().enumerate() {
        if !record.paused {
            continue;
        }
        let chain = log.chain(n);
        if root(&chain, record).0 != record.channel {
            continue;
        }
        let steps = chain.iter();
        let steps = steps.filter_map(|c| Some((Some(c.channel), c.behind?)));
        let ring = rings.entry((record.channel, record.priority)).or_default();
        ring.extend(steps);
    }
    // One that closed later than the log goes.
    let cycle = network.deadlock().map_or(Vec::new(), |d| d.cycle);
    let steps = cycle.iter().zip(cycle.iter().cycle().skip(1));
    let steps: BTreeSet<Step> = steps
        .map(|(from, to)| (Some(from.channel), to.channel))
        .collect();
    for stuck in &cycle {
        let ring = rings.entry((stuck.channel, stuck.priority)).or_default();
        ring.extend(&steps);
    }
    rings
}

/// Loads that were paused for queues that they never meet.
///
/// A pause is for the queue at the end of its chain: the one that is long without being paused itself. A
/// load whose data goes by the paused channel and not by that queue, not even as copies where switches flood, is its
/// victim, unless that queue waits for itself in a ring that would not be without the load. Ways are those at the end
/// of the run.
pub(super) fn victims(scenario: &Scenario, built: &Built) -> Vec<VictimReport> {
    let network = &built.network;
    let log = network.pause_log();
    if log.records().is_empty() {
        return Vec::new();
    }
    let loads: Vec<Ways> = (0..scenario.traffic.len())
        .map(|n| ways(scenario, built, n))
        .collect();
    let used: BTreeSet<ChannelId> = loads
        .iter()
        .flat_map(|l| l.steps().map(|step| step.1))
        .collect();
    let rings = rings(network).into_iter();
    let makers: BTreeMap<(ChannelId, u8), BTreeSet<usize>> = rings
        .map(|(queue, ring)| (queue, makers(&ring, &loads)))
        .collect();
    let mut found: BTreeMap<(usize, Time, ChannelId, ChannelId), VictimReport> = BTreeMap::new();
    let mut first: BTreeMap<(usize, ChannelId, ChannelId), Time> = BTreeMap::new();
    for (n, record) in log.records().iter().enumerate() {
        if !used.contains(&record.channel) {
            continue;
        }
        let chain = log.chain(n);
        let (bottleneck, receiver) = root(&chain, record);
        let makers = makers.get(&(bottleneck, record.priority));
        for ways in &loads {
            let load = &scenario.traffic[ways.load];
            let suffers = record.time >= Time::ZERO + load.start
                && makers.is_none_or(|makers| !makers.contains(&ways.load))
                && ways.until.iter().any(|((sent, way), until)| {
                    goes_by(way, record.channel)
                        && sent.before(scenario, record.channel) == record.priority
                        && !goes_by(way, bottleneck)
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
    let qps = load.qps.max(1) as usize;
    let mut until = BTreeMap::new();
    for (i, &id) in built.flows.get(n).into_iter().flatten().enumerate() {
        let (from, to) = load.pairs[i / qps];
        let reads = congestion::reads(load, i);
        let card = &scenario.cards[if reads { to } else { from }];
        let sent = Sent {
            priority: if reads {
                card.ack_priority
            } else {
                card.priority
            },
            dscp: card.dscp,
        };
        let end = end(&built.network, id);
        let way = way(&built.network, id, reads);
        let known = until.entry((sent, way)).or_insert(end);
        // The latest of all; nothing is later than the end of the run.
        *known = known.zip(end).map(|(a, b)| a.max(b));
    }
    Ways { load: n, until }
}

/// What packets say of their class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    priority: u8,
    dscp: u8,
}

impl Sent {
    /// The priority in which they wait for a channel: at a switch that which the switch gives them.
    fn before(self, scenario: &Scenario, channel: ChannelId) -> u8 {
        let link = &scenario.network.links[channel.link()];
        let from = match channel.direction() {
            Direction::Forward => link.a,
            Direction::Backward => link.b,
        };
        match from {
            End::Host(_) => self.priority,
            End::Switch(s) => {
                let switch = &scenario.network.switches[s];
                switch.trust.class(self.priority, self.dscp)
            }
        }
    }
}

/// When the last request of a flow completed; `None` if it goes on.
fn end(network: &Network<Machine, Watch>, id: FlowId) -> Option<Time> {
    let stats = machine::stats(network, id);
    let completed: u64 = stats.completed.iter().map(|(_, n)| n).sum();
    stats.last_completion.filter(|_| completed == stats.posted)
}

/// What the data of a flow goes by.
fn way(network: &Network<Machine, Watch>, id: FlowId, reads: bool) -> Vec<Step> {
    let (from, to) = (network.host(id.host), network.host(id.peer));
    let (host, route) = match reads {
        false => (id.host, from.card().qp_route(from.flow_qp(id.flow))),
        true => (id.peer, to.card().qp_route(to.receiver_qp(id.receiver))),
    };
    route.map_or(Vec::new(), |route| network.reach(host, &route))
}
