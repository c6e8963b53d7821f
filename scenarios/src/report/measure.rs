//! What a metric is of a run.

use super::congestion;
use super::flows::{CollectiveReport, FlowsReport, Slowdown};
use super::latency::Latency;
use super::pauses::{Queues, ReceiverReport, VictimReport};
use super::{Counts, FaultReport, Run, Status, TrafficReport, WayReport};
use crate::format::expect::Of;
use crate::format::topology::WayId;
use crate::metric::Metric;

impl Run {
    /// The measured value of `metric`; `None` if there is none, such as the latency of a load that
    /// completed nothing.
    pub fn measure(&self, metric: Metric, of: &Of) -> Option<f64> {
        use Metric as M;
        let loads: &[TrafficReport] = match *of {
            Of::Traffic(n) => self.traffic.get(n..=n)?,
            _ => &self.traffic,
        };
        let sum = |f: fn(&TrafficReport) -> u64| Some(loads.iter().map(f).sum::<u64>() as f64);
        let status = |s: Status| {
            let of = |t: &TrafficReport| t.completions.get(&s).copied().unwrap_or(0);
            Some(loads.iter().map(of).sum::<u64>() as f64)
        };
        let receive = |s: Status| {
            let of = |t: &TrafficReport| t.receives.get(&s).copied().unwrap_or(0);
            Some(loads.iter().map(of).sum::<u64>() as f64)
        };
        // Of several loads together only the extremes are known.
        let latency = |f: fn(&Latency) -> u64| match loads {
            [one] => one.latency.as_ref().map(|l| f(l) as f64),
            _ => None,
        };
        let latencies = || loads.iter().filter_map(|t| t.latency.as_ref());
        let flows = || loads.iter().filter_map(|t| t.flows.as_ref());
        let count =
            |f: fn(&FlowsReport) -> u64| flows().map(f).reduce(|a, b| a + b).map(|n| n as f64);
        // Of several loads together only the extremes are known.
        let one = match loads {
            [one] => Some(one),
            _ => None,
        };
        let completion = |f: fn(&Latency) -> u64| {
            let times = one?.flows.as_ref()?.completion.as_ref()?;
            Some(f(times) as f64)
        };
        let slowdown = |f: fn(&Slowdown) -> f64| Some(f(one?.flows.as_ref()?.slowdown.as_ref()?));
        let completions = || flows().filter_map(|f| f.completion.as_ref());
        let slowdowns = || flows().filter_map(|f| f.slowdown.as_ref());
        let rounds = |f: fn(&CollectiveReport) -> Option<u64>| {
            f(one?.collective.as_ref()?).map(|n| n as f64)
        };
        match metric {
            M::Flows => count(|f| f.finished),
            M::FlowsUnfinished => count(|f| f.count - f.finished),
            M::FctMin => completions().map(|l| l.min_ps as f64).reduce(f64::min),
            M::FctMax => completions().map(|l| l.max_ps as f64).reduce(f64::max),
            M::FctMean => completion(|l| l.mean_ps),
            M::FctP50 => completion(|l| l.p50_ps),
            M::FctP90 => completion(|l| l.p90_ps),
            M::FctP99 => completion(|l| l.p99_ps),
            M::FctP999 => completion(|l| l.p999_ps),
            M::SlowdownMin => slowdowns().map(|s| s.min).reduce(f64::min),
            M::SlowdownMax => slowdowns().map(|s| s.max).reduce(f64::max),
            M::SlowdownMean => slowdown(|s| s.mean),
            M::SlowdownP50 => slowdown(|s| s.p50),
            M::SlowdownP90 => slowdown(|s| s.p90),
            M::SlowdownP99 => slowdown(|s| s.p99),
            M::SlowdownP999 => slowdown(|s| s.p999),
            M::Fairness => one?.flows.as_ref()?.fairness,
            M::Iterations => rounds(|c| Some(c.iterations)),
            M::IterationMin => rounds(|c| Some(c.iteration.as_ref()?.min_ps)),
            M::IterationMean => rounds(|c| Some(c.iteration.as_ref()?.mean_ps)),
            M::IterationMax => rounds(|c| Some(c.iteration.as_ref()?.max_ps)),
            M::AlgorithmBandwidth => rounds(|c| c.algorithm_bps),
            M::BusBandwidth => rounds(|c| c.bus_bps),
            M::Goodput => sum(|t| t.goodput_bps),
            M::GoodputShare => match loads {
                [one] => one.goodput_share(),
                _ => None,
            },
            M::Duration => loads.iter().map(|t| t.duration_ps as f64).reduce(f64::max),
            M::Messages => sum(|t| t.messages),
            M::Unfinished => sum(|t| t.unfinished),
            M::Bytes => sum(|t| t.bytes),
            M::Completions => sum(|t| t.completions.values().sum()),
            M::Success => status(Status::Success),
            M::LocalLength => status(Status::LocalLength),
            M::LocalProtection => status(Status::LocalProtection),
            M::LocalOperation => status(Status::LocalOperation),
            M::Flushed => status(Status::Flushed),
            M::BadResponse => status(Status::BadResponse),
            M::RemoteInvalid => status(Status::RemoteInvalidRequest),
            M::RemoteAccess => status(Status::RemoteAccess),
            M::RemoteOperation => status(Status::RemoteOperation),
            M::RetryExceeded => status(Status::RetryExceeded),
            M::RnrRetryExceeded => status(Status::RnrRetryExceeded),
            M::WindowBind => status(Status::WindowBind),
            M::Received => receive(Status::Success),
            M::ReceivesLength => receive(Status::LocalLength),
            M::ReceivesOperation => receive(Status::LocalOperation),
            M::ReceivesProtection => receive(Status::LocalProtection),
            M::ReceivesAccess => receive(Status::LocalAccess),
            M::ReceivesInvalid => receive(Status::RemoteInvalidRequest),
            M::ReceivesFlushed => receive(Status::Flushed),
            M::LatencyMin => latencies().map(|l| l.min_ps as f64).reduce(f64::min),
            M::LatencyMax => latencies().map(|l| l.max_ps as f64).reduce(f64::max),
            M::LatencyMean => latency(|l| l.mean_ps),
            M::LatencyP50 => latency(|l| l.p50_ps),
            M::LatencyP90 => latency(|l| l.p90_ps),
            M::LatencyP99 => latency(|l| l.p99_ps),
            M::LatencyP999 => latency(|l| l.p999_ps),
            M::PacketsSent => self.count(of, |c| c.packets_sent),
            M::PacketsReceived => self.count(of, |c| c.packets_received),
            M::Retransmissions => self.count(of, |c| c.retransmissions),
            M::Timeouts => self.count(of, |c| c.timeouts),
            M::Acks => self.count(of, |c| c.acks),
            M::Naks => self.count(of, |c| c.naks.total()),
            M::NaksSequence => self.count(of, |c| c.naks.sequence),
            M::NaksRnr => self.count(of, |c| c.naks.rnr),
            M::NaksInvalid => self.count(of, |c| c.naks.invalid_request),
            M::NaksAccess => self.count(of, |c| c.naks.remote_access),
            M::NaksOperation => self.count(of, |c| c.naks.remote_operation),
            M::Duplicates => self.count(of, |c| c.duplicates),
            M::OutOfSequence => self.count(of, |c| c.out_of_sequence),
            M::BadIcrc => self.count(of, |c| c.bad_icrc),
            M::MarkedReceived => self.count(of, |c| c.marked_received),
            M::CnpsSent => self.count(of, |c| c.cnps_sent),
            M::CnpsReceived => self.count(of, |c| c.cnps_received),
            M::CnpsIgnored => self.count(of, |c| c.cnps_ignored),
            M::RateMin
            | M::RateMean
            | M::RateMax
            | M::RateFairness
            | M::AlphaMean
            | M::RateCuts => {
                congestion::measure(loads.iter().filter_map(|t| t.congestion.as_ref()), metric)
            }
            M::Drops => self.link(of, |w| w.drops.total()),
            M::DropsFault => self.link(of, |w| w.drops.fault),
            M::DropsQueue => self.link(of, |w| w.drops.queue),
            M::DropsCorrupt => self.link(of, |w| w.drops.corrupt),
            M::DropsBuffer => self.link(of, |w| w.drops.buffer),
            M::DropsHeadroom => self.link(of, |w| w.drops.headroom),
            M::DropsDown => self.link(of, |w| w.drops.down),
            M::DropsWatchdog => self.link(of, |w| w.drops.watchdog),
            M::DropsReceiver => self.link(of, |w| w.drops.receiver),
            M::DropsNoRoute => self.link(of, |w| w.drops.no_route),
            M::DropsHops => self.link(of, |w| w.drops.hop_limit),
            M::DropsLossless => self.link(of, |w| w.drops.headroom + w.drops.watchdog),
            M::PfcFrames => self.link(of, |w| w.pfc_frames),
            M::Pauses
            | M::PausesReceived
            | M::Paused
            | M::PausedShare
            | M::PausedTotal
            | M::PausedDirections
            | M::PausedSpread
            | M::Storms
            | M::EcnMarks
            | M::NotCapable
            | M::QueueMax => self.queue(metric, of),
            // Of a part of a run alone.
            M::QueueMean => None,
            M::ReceiverMax => self.receivers(of).map(|r| r.most as f64).reduce(f64::max),
            M::ReceiverMisses => Some(self.receivers(of).map(|r| r.misses).sum::<u64>() as f64),
            M::VictimPauses => {
                let own = |v: &&VictimReport| loads.iter().any(|l| l.name == v.load);
                let pauses = self.victims.iter().filter(own).map(|v| v.pauses);
                Some(pauses.sum::<u64>() as f64)
            }
            M::Warnings => Some(self.warnings.len() as f64),
            M::Frames => self.link(of, |w| w.frames),
            M::Utilisation => self.ways(of).map(|w| w.utilisation).reduce(f64::max),
            M::FaultHits => self.fault(of, |f| f.hits),
            M::FaultSeen => self.fault(of, |f| f.seen),
            M::Time => Some(self.time_ps as f64),
            M::Events => Some(self.events as f64),
            M::Deadlock => Some(f64::from(u8::from(!self.deadlock.is_empty()))),
        }
    }

    fn count(&self, of: &Of, f: fn(&Counts) -> u64) -> Option<f64> {
        Some(match *of {
            Of::Traffic(n) => f(&self.traffic.get(n)?.counts),
            Of::Host(n) => f(&self.hosts.get(n)?.counts),
            _ => self.hosts.iter().map(|h| f(&h.counts)).sum(),
        } as f64)
    }

    pub(super) fn ways<'a>(&'a self, of: &'a Of) -> Box<dyn Iterator<Item = &'a WayReport> + 'a> {
        match of {
            // Links are reported in the order of the network, forward before backward.
            Of::Link(ways) | Of::Queue(ways, _) => Box::new(
                ways.iter()
                    .filter_map(|&WayId { link, way }| self.links.get(link * 2 + way)),
            ),
            _ => Box::new(self.links.iter()),
        }
    }

    fn queue(&self, metric: Metric, of: &Of) -> Option<f64> {
        let priority = match *of {
            Of::Queue(_, priority) => Some(priority),
            _ => None,
        };
        let queues = Queues {
            run: self,
            priority,
        };
        queues.measure(metric, self.ways(of))
    }

    fn receivers(&self, of: &Of) -> impl Iterator<Item = ReceiverReport> {
        let hosts = match *of {
            Of::Host(n) => self.hosts.get(n..=n).unwrap_or_default(),
            _ => &self.hosts,
        };
        hosts.iter().filter_map(|h| h.receiver)
    }

    fn link(&self, of: &Of, f: fn(&WayReport) -> u64) -> Option<f64> {
        Some(self.ways(of).map(f).sum::<u64>() as f64)
    }

    fn fault(&self, of: &Of, f: fn(&FaultReport) -> u64) -> Option<f64> {
        Some(match *of {
            Of::Fault(n) => f(self.faults.get(n)?),
            _ => self.faults.iter().map(f).sum(),
        } as f64)
    }
}
