//! From a network that has run to the report of the run.

use super::build::{Built, Injected};
use super::congestion;
use super::flows;
use super::pauses;
use super::watch::Watch;
use crate::format::request::Transport;
use crate::format::traffic::Traffic;
use crate::format::{Point, Scenario};
use crate::report::latency::Recorder;
use crate::report::{
    Counts, Drops, Ended, FaultReport, Hit, HostReport, Naks, NetworkSummary, Run, Status,
    TrafficReport, WayReport,
};
use softroce_sim::card::{self, Card, Counters, Refusal};
use softroce_sim::fabric::link::FRAME_OVERHEAD;
use softroce_sim::fabric::machine::{self, FlowId, Machine};
use softroce_sim::fabric::{Action, ChannelId, Direction, DropCause, Network};
use softroce_sim::time::{Span, Time};
use std::collections::BTreeMap;

/// What came out of a run; expectations are judged later, and captures closed.
pub(super) fn run(point: &Point, built: &Built, ended: Ended) -> Run {
    let (scenario, network) = (&point.scenario, &built.network);
    let mut run = Run {
        deadlock: pauses::deadlock(scenario, network),
        victims: pauses::victims(scenario, built),
        ..counted(point, built, ended)
    };
    run.warnings = point.warnings.clone();
    run.warnings.extend(crate::warning::after(scenario, &run));
    run
}

/// What has been counted by now.
pub(super) fn counted(point: &Point, built: &Built, ended: Ended) -> Run {
    let scenario = &point.scenario;
    let network = &built.network;
    Run {
        values: point.values.clone(),
        seed: scenario.seed,
        ended,
        time_ps: network.now().as_ps(),
        events: network.event_count(),
        network: NetworkSummary::of(&scenario.network),
        traffic: (0..scenario.traffic.len())
            .map(|n| load(scenario, built, n))
            .collect(),
        failures: Vec::new(),
        more_failures: 0,
        hosts: scenario
            .network
            .hosts
            .iter()
            .zip(network.hosts())
            .enumerate()
            .map(|(n, (name, machine))| HostReport {
                name: name.clone(),
                counts: counts(&machine.card().counters()),
                refused: refused(machine.card()),
                receiver: pauses::receiver(network, n),
            })
            .collect(),
        links: ways(scenario, network),
        deadlock: Vec::new(),
        victims: Vec::new(),
        warnings: Vec::new(),
        faults: built
            .faults
            .iter()
            .enumerate()
            .map(|(n, fault)| self::fault(scenario, network, n, fault))
            .collect(),
        captures: Vec::new(),
        expectations: Vec::new(),
        parts: Vec::new(),
        skipped: point.skipped,
    }
}

pub(super) fn load(scenario: &Scenario, built: &Built, n: usize) -> TrafficReport {
    let load = &scenario.traffic[n];
    let network = &built.network;
    let ids = built.flows.get(n).map_or(&[][..], Vec::as_slice);
    let own = (0..load.pairs.len()).map(|n| load.flow(n));
    let sizes = own.clone().map(|own| own.size.0);
    let (least, most) = (sizes.clone().min(), sizes.max());
    let mut operations: Vec<_> = own.clone().map(|own| own.operation).collect();
    operations.sort_unstable_by_key(|operation| operation.name());
    operations.dedup();
    if operations.len() == 1 {
        operations.clear();
    }
    let mut report = TrafficReport {
        name: load.name.clone(),
        operation: own
            .clone()
            .next()
            .map_or(load.operation, |own| own.operation),
        operations,
        transport: load.transport,
        size: most.unwrap_or(load.size.0),
        sizes: least
            .zip(most)
            .filter(|(a, b)| a != b)
            .map(<[u64; 2]>::from),
        queue_pairs: ids.len() as u64,
        goodput_bps: 0,
        clean_goodput_bps: None,
        law_share: None,
        duration_ps: 0,
        messages: 0,
        unfinished: 0,
        bytes: 0,
        completions: BTreeMap::new(),
        receives: BTreeMap::new(),
        damaged: 0,
        latency: None,
        flows: flows::report(scenario, built, n),
        collective: flows::rounds(scenario, built, n),
        congestion: congestion::report(scenario, built, n),
        counts: Counts::default(),
        flow_bytes: Vec::with_capacity(ids.len()),
    };
    let mut latencies = Recorder::default();
    let mut last = Time::ZERO + load.start;
    for &id in ids {
        let stats = machine::stats(network, id);
        let mut completed = 0;
        for (status, count) in stats.completed.iter() {
            if let Some(name) = name_of(status) {
                *report.completions.entry(name).or_default() += count;
            }
            completed += count;
        }
        report.messages += stats.completed.get(card::Status::Success);
        report.unfinished += stats.posted - completed;
        let delivered = delivered(load, network, id);
        report.bytes += delivered.bytes;
        report.flow_bytes.push(delivered.bytes);
        for (status, count) in stats.received.iter() {
            if let Some(name) = name_of(status) {
                *report.receives.entry(name).or_default() += count;
            }
        }
        let wrong = machine::data_intact(network, id) == Some(false) || stats.is_wrong();
        report.damaged += u64::from(wrong);
        for &latency in &stats.latencies {
            latencies.record(latency);
        }
        let ends = [stats.last_completion, delivered.last];
        last = ends.into_iter().flatten().fold(last, Time::max);
        report.counts += flow_counts(network, id);
    }
    if report.unfinished > 0 {
        last = last.max(network.now());
    }
    let duration = last.since(Time::ZERO + load.start);
    report.duration_ps = duration.as_ps();
    report.goodput_bps = goodput(report.bytes, duration);
    report.latency = latencies.summary();
    report
}

/// The payload of the messages that a flow has delivered, and when the last of them was: for its sender, where that
/// knows, which over UC and UD it does not.
pub(super) fn delivered(
    load: &Traffic,
    network: &Network<Machine, Watch>,
    id: FlowId,
) -> card::Arrived {
    match load.transport {
        Transport::Rc => {
            let stats = network.host(id.host).flow_stats(id.flow);
            card::Arrived {
                bytes: stats.bytes,
                last: stats.last_success,
            }
        }
        Transport::Uc | Transport::Ud => machine::arrived(network, id),
    }
}

/// Bits per second, rounded down; 0 if it took no time.
pub(super) fn goodput(bytes: u64, time: Span) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000_000;
    let rate = bits.checked_div(u128::from(time.as_ps()));
    u64::try_from(rate.unwrap_or(0)).unwrap_or(u64::MAX)
}

pub(super) const fn name_of(status: card::Status) -> Option<Status> {
    Some(match status {
        card::Status::Success => Status::Success,
        card::Status::LocalLengthError => Status::LocalLength,
        card::Status::LocalQpOperationError => Status::LocalOperation,
        card::Status::LocalProtectionError => Status::LocalProtection,
        card::Status::WorkRequestFlushed => Status::Flushed,
        card::Status::BadResponse => Status::BadResponse,
        card::Status::RemoteInvalidRequest => Status::RemoteInvalidRequest,
        card::Status::RemoteAccessError => Status::RemoteAccess,
        card::Status::RemoteOperationError => Status::RemoteOperation,
        card::Status::RetryExceeded => Status::RetryExceeded,
        card::Status::RnrRetryExceeded => Status::RnrRetryExceeded,
        card::Status::WindowBindError => Status::WindowBind,
        card::Status::LocalAccessError => Status::LocalAccess,
        // No software card gives it.
        card::Status::Other(_) => return None,
    })
}

/// What the queue pairs at both ends of a flow did.
fn flow_counts(network: &Network<Machine, Watch>, id: FlowId) -> Counts {
    let (from, to) = (network.host(id.host), network.host(id.peer));
    let mut sum = Counts::default();
    for counters in [
        from.card().qp_counters(from.flow_qp(id.flow)),
        to.card().qp_counters(to.receiver_qp(id.receiver)),
    ]
    .into_iter()
    .flatten()
    {
        sum += counts(counters);
    }
    sum
}

fn counts(c: &Counters) -> Counts {
    Counts {
        packets_sent: c.sent_packets,
        packets_received: c.received_packets,
        retransmissions: c.retransmitted_packets,
        timeouts: c.timeouts,
        acks: c.acks_sent,
        naks: Naks {
            sequence: c.naks_sent.sequence,
            rnr: c.rnr_naks_sent,
            invalid_request: c.naks_sent.invalid_request,
            remote_access: c.naks_sent.remote_access,
            remote_operation: c.naks_sent.remote_operational,
        },
        duplicates: c.duplicate_requests,
        out_of_sequence: c.out_of_sequence,
        bad_icrc: c.refused.get(Refusal::BadIcrc),
        marked_received: c.ecn_marked,
        cnps_sent: c.cnps_sent,
        cnps_received: c.cnps_received,
        cnps_ignored: c.cnps_ignored,
    }
}

fn refused(card: &Card) -> BTreeMap<&'static str, u64> {
    let counters = card.counters();
    let all = counters.refused.iter();
    all.map(|(why, n)| (why.name(), n)).collect()
}

fn ways(scenario: &Scenario, network: &Network<Machine, Watch>) -> Vec<WayReport> {
    let time = network.now().as_ps();
    scenario
        .network
        .ways()
        .map(|way| {
            let channel = super::build::channel(way);
            let c = network.counters(channel);
            let rate = scenario.network.links[way.link].rate.0;
            let bits = (c.bytes + c.frames * u64::from(FRAME_OVERHEAD)) as f64 * 8.0;
            let drops = Drops {
                fault: c.drops(DropCause::Fault),
                queue: c.drops(DropCause::QueueFull),
                corrupt: c.drops(DropCause::BadFcs),
                buffer: c.drops(DropCause::BufferFull),
                headroom: c.drops(DropCause::HeadroomFull),
                down: c.drops(DropCause::LinkDown),
                watchdog: c.drops(DropCause::Watchdog),
                receiver: c.drops(DropCause::ReceiverFull),
                no_route: c.drops(DropCause::NoRoute),
                hop_limit: c.drops(DropCause::HopLimit),
                other: 0,
            };
            WayReport {
                name: scenario.network.way_name(way),
                frames: c.frames,
                bytes: c.bytes,
                utilisation: match time {
                    0 => 0.0,
                    // A frame that has begun is counted whole.
                    _ => (bits * 1e12 / rate as f64 / time as f64).min(1.0),
                },
                queue_max: c.queue_high_water,
                pfc_frames: c.pfc_frames,
                priorities: pauses::priorities(network, channel),
                drops: Drops {
                    other: c.all_drops() - drops.total(),
                    ..drops
                },
            }
        })
        .collect()
}

fn fault(
    scenario: &Scenario,
    network: &Network<Machine, Watch>,
    n: usize,
    fault: &Injected,
) -> FaultReport {
    let mut report = FaultReport {
        name: fault.name.clone(),
        seen: 0,
        hits: 0,
        packets: Vec::new(),
    };
    for &(channel, position) in &fault.places {
        let counts = network.fault_counts(channel, position).unwrap_or_default();
        report.seen += counts.seen;
        report.hits += counts.hits;
    }
    for record in network.observer().hits(n) {
        report.packets.push(Hit {
            time_ps: record.time.as_ps(),
            link: way_name(scenario, record.channel),
            opcode: record.bth.opcode().to_string(),
            qp: record.bth.dest_qp().get(),
            psn: record.bth.psn().get(),
            copy: record.sighting.map(|s| s.copy),
            round: record.sighting.map(|s| s.round),
            action: action(record.action),
        });
    }
    report
}

pub(super) fn way_name(scenario: &Scenario, channel: ChannelId) -> String {
    let way = match channel.direction() {
        Direction::Forward => 0,
        Direction::Backward => 1,
    };
    let link = channel.link();
    scenario
        .network
        .way_name(crate::format::topology::WayId { link, way })
}

fn action(action: Action) -> String {
    match action {
        Action::Drop => "dropped".to_string(),
        Action::CorruptOnLink => "corrupted on the link".to_string(),
        Action::CorruptInDevice => "corrupted in a device".to_string(),
        Action::MarkEcn => "marked as having met congestion".to_string(),
        Action::Duplicate { delay } => {
            format!("sent again after {}", crate::units::print_span(delay))
        }
        Action::Delay { by } => format!("delayed by {}", crate::units::print_span(by)),
        Action::Reorder { packets, .. } => format!("held back behind {packets} others"),
    }
}
