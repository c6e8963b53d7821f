//! Why requests failed: what cards, network and peers say, with the names of the scenario.

use super::build::Built;
use super::measure::{name_of, way_name};
use crate::format::Scenario;
use crate::report::failure::{
    FAILURES_LISTED, FailedRequest, FailureReport, Flushed, LostPacket, OtherSide, PeerName,
    TryReport, WindowRequest, chosen,
};
use softroce_sim::card::explain::{Batch, Subject};
use softroce_sim::card::{QpType, Work};
use softroce_sim::fabric::explain::{self, Explanation};
use softroce_sim::fabric::losses::Kind;
use softroce_sim::fabric::{ChannelId, HostId};
use softroce_sim::wire::QpNumber;
use std::collections::BTreeMap;

/// The first failures of a run, and how many there were beside them.
pub(super) fn of(scenario: &Scenario, built: &mut Built) -> (Vec<FailureReport>, u64) {
    let (all, beyond) = explain::explain(&mut built.network);
    let names = Names::new(scenario, built);
    let kind = |e: &Explanation| (e.failure.status.map(|s| s.number()), e.failure.cause.name());
    let place = |e: &Explanation| (kind(e), names.load(e));
    let listed = chosen(&all, FAILURES_LISTED, kind, place);
    let more = (all.len() - listed.len()) as u64 + beyond;
    let reports = listed.into_iter().map(|at| names.report(&all[at]));
    (reports.collect(), more)
}

/// What things are called in the scenario.
struct Names<'a> {
    scenario: &'a Scenario,
    loads: BTreeMap<(HostId, QpNumber), &'a str>,
    faults: BTreeMap<(ChannelId, usize), &'a str>,
}

impl<'a> Names<'a> {
    fn new(scenario: &'a Scenario, built: &'a Built) -> Names<'a> {
        let mut loads = BTreeMap::new();
        for (load, flows) in scenario.traffic.iter().zip(&built.flows) {
            for id in flows {
                let (from, to) = (built.network.host(id.host), built.network.host(id.peer));
                loads.insert((id.host, from.flow_qp(id.flow)), load.name.as_str());
                loads.insert((id.peer, to.receiver_qp(id.receiver)), load.name.as_str());
            }
        }
        let mut faults = BTreeMap::new();
        for fault in &built.faults {
            for &place in &fault.places {
                faults.insert(place, fault.name.as_str());
            }
        }
        Names {
            scenario,
            loads,
            faults,
        }
    }

    fn host(&self, host: HostId) -> String {
        self.scenario.network.hosts[host.index()].clone()
    }

    fn fault(&self, channel: ChannelId, position: usize) -> Option<String> {
        let name = self.faults.get(&(channel, position))?;
        Some((*name).to_string())
    }

    fn load(&self, explained: &Explanation) -> Option<&'a str> {
        let of = (explained.host, explained.failure.own.1);
        self.loads.get(&of).copied()
    }

    fn report(&self, explained: &Explanation) -> FailureReport {
        let failure = &explained.failure;
        let (gid, qp) = failure.own;
        let request = match failure.subject {
            Subject::Send(sent) => Some(FailedRequest {
                operation: sent.work.name(),
                number: Some(sent.number),
                wr_id: sent.wr_id,
                bytes: (!sent.work.is_local()).then_some(sent.len),
                first_psn: sent.psns.map(|(first, _)| first.get()),
                last_psn: sent.psns.map(|(_, last)| last.get()),
                window: match sent.work {
                    Work::BindWindow { key, binding } => Some(WindowRequest {
                        rkey: key.0,
                        region: binding.lkey.0,
                        addr: binding.addr,
                        bytes: binding.len,
                    }),
                    _ => None,
                },
            }),
            Subject::Receive { number, wr_id, .. } => Some(FailedRequest {
                operation: "receive",
                number,
                wr_id,
                bytes: None,
                first_psn: None,
                last_psn: None,
                window: None,
            }),
            Subject::Arrived(_) | Subject::QueuePair => None,
        };
        let arrived = match failure.subject {
            Subject::Receive { arrived, .. } | Subject::Arrived(arrived) => {
                Some(arrived.opcode.to_string())
            }
            Subject::Send(_) | Subject::QueuePair => None,
        };
        FailureReport {
            line: explained.line(
                |host| self.host(host),
                |channel| way_name(self.scenario, channel),
                |channel, position| self.fault(channel, position),
            ),
            load: self.load(explained).map(str::to_string),
            time_ps: failure.at.as_ps(),
            host: self.host(explained.host),
            service: match failure.service {
                QpType::Rc => "rc",
                QpType::Uc => "uc",
                QpType::Ud => "ud",
            },
            qp: qp.get(),
            gid: gid.to_string(),
            peer: failure.peer.map(|(gid, qp)| PeerName {
                qp: qp.get(),
                gid: gid.to_string(),
            }),
            status: failure.status.and_then(name_of),
            cause: failure.cause.name(),
            because: failure.cause.to_string(),
            request,
            arrived,
            psn: failure.psn().map(|psn| psn.get()),
            tries: failure
                .tries
                .iter()
                .map(|t| TryReport {
                    time_ps: t.at.as_ps(),
                    what: t.step.name(),
                    psn: t.psn.get(),
                    span_ps: t.step.span().map(|span| span.as_ps()),
                })
                .collect(),
            earlier_tries: failure.earlier_tries,
            counters: failure.moved.iter().copied().collect(),
            flushed_sends: flushed(failure.flushed.sends),
            flushed_receives: flushed(failure.flushed.receives),
            lost: explained
                .lost
                .iter()
                .map(|lost| LostPacket {
                    time_ps: lost.time.as_ps(),
                    round: lost.round,
                    what: match lost.kind {
                        Kind::Request => "request",
                        Kind::ReadResponse => "read-response",
                        Kind::Ack => "ack",
                        Kind::Nak => "nak",
                        Kind::RnrNak => "rnr-nak",
                        Kind::Cnp => "cnp",
                    },
                    psn: lost.psn.get(),
                    link: way_name(self.scenario, lost.channel),
                    why: lost.why.to_string(),
                    fault: lost.fault.and_then(|n| self.fault(lost.channel, n)),
                })
                .collect(),
            other_side: explained.peer.as_ref().map(|(host, theirs)| OtherSide {
                host: self.host(*host),
                time_ps: theirs.at.as_ps(),
                cause: theirs.cause.name(),
                line: theirs.to_string(),
            }),
        }
    }
}

fn flushed(batch: Batch) -> Flushed {
    let any = batch.count > 0;
    Flushed {
        count: batch.count,
        first_wr_id: any.then_some(batch.first),
        last_wr_id: any.then_some(batch.last),
    }
}
