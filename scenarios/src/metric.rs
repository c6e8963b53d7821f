//! What a run measures: the names that expectations and reports use.

use crate::units::{Rate, Size, Span, print_span};
use serde::{Serialize, Serializer};
use std::fmt;

/// What a value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Things.
    Count,
    /// Bits per second.
    Rate,
    /// Picoseconds.
    Span,
    /// Bytes.
    Size,
    /// A share of one, or a factor.
    Ratio,
}

/// What a metric can be asked of. Without an `of` it is that of all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// A load.
    Traffic,
    /// A load (its queue pairs, at both ends) or a host (its card).
    Card,
    /// A link or one direction of it.
    Link,
    /// A link, one direction of it, or one priority of either: `s0->h1/3`.
    Queue,
    /// A host.
    Host,
    /// A fault.
    Fault,
    /// The run as a whole.
    Run,
}

macro_rules! metrics {
    ($( $variant:ident = $name:literal, $unit:ident, $scope:ident, $about:literal; )+) => {
        /// Something that a run measures.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Metric {
            $( #[doc = $about] $variant, )+
        }

        impl Metric {
            /// Every metric.
            pub const ALL: &'static [Metric] = &[$( Metric::$variant, )+];

            /// Its name in scenarios and reports.
            pub const fn name(self) -> &'static str {
                match self { $( Metric::$variant => $name, )+ }
            }

            /// What it counts.
            pub const fn unit(self) -> Unit {
                match self { $( Metric::$variant => Unit::$unit, )+ }
            }

            /// What it can be asked of.
            pub const fn scope(self) -> Scope {
                match self { $( Metric::$variant => Scope::$scope, )+ }
            }

            /// What it is, in a sentence.
            pub const fn about(self) -> &'static str {
                match self { $( Metric::$variant => $about, )+ }
            }
        }
    };
}

metrics! {
    Goodput = "goodput", Rate, Traffic,
        "Payload of the messages that completed with success, over the time from the start of the load to its last completion (or to the end of the run, if messages were left). Over `uc` and `ud`, whose senders know nothing of that, of the messages that came whole, until the last of them did.";
    GoodputShare = "goodput-share", Ratio, Traffic,
        "Goodput over that of the same scenario without faults and without loss, which is run for it (until its goodput has settled, if its loads go on to the end of the run).";
    Duration = "duration", Span, Traffic,
        "From the start of the load to its last completion, or over `uc` and `ud` until the last message came.";
    Messages = "messages", Count, Traffic,
        "Messages that completed with success.";
    Unfinished = "messages.unfinished", Count, Traffic,
        "Messages that were posted and had not completed at the end.";
    Bytes = "bytes", Size, Traffic,
        "Payload of the messages that completed with success; over `uc` and `ud` of those that came whole.";
    Completions = "completions", Count, Traffic,
        "Completions of requests, with any status.";
    Success = "completions.success", Count, Traffic,
        "Completions with success.";
    LocalLength = "completions.local-length", Count, Traffic,
        "Completions with a local length error.";
    LocalProtection = "completions.local-protection", Count, Traffic,
        "Completions with a local protection error.";
    LocalOperation = "completions.local-operation", Count, Traffic,
        "Completions with a local QP operation error.";
    Flushed = "completions.flushed", Count, Traffic,
        "Completions flushed because the queue pair had failed.";
    BadResponse = "completions.bad-response", Count, Traffic,
        "Completions with a bad response error.";
    RemoteInvalid = "completions.remote-invalid-request", Count, Traffic,
        "Completions with a remote invalid request error.";
    RemoteAccess = "completions.remote-access", Count, Traffic,
        "Completions with a remote access error.";
    RemoteOperation = "completions.remote-operation", Count, Traffic,
        "Completions with a remote operational error.";
    RetryExceeded = "completions.retry-exceeded", Count, Traffic,
        "Completions that failed because the transport retries ran out.";
    RnrRetryExceeded = "completions.rnr-retry-exceeded", Count, Traffic,
        "Completions that failed because the RNR retries ran out.";
    WindowBind = "completions.window-bind", Count, Traffic,
        "Completions of windows that could not be bound.";
    Received = "receives.success", Count, Traffic,
        "Completions of receives, with success.";
    ReceivesLength = "receives.local-length", Count, Traffic,
        "Completions of receives that were too short.";
    ReceivesOperation = "receives.local-operation", Count, Traffic,
        "Completions of receives whose message was invalid.";
    ReceivesProtection = "receives.local-protection", Count, Traffic,
        "Completions of receives whose own key did not allow it.";
    ReceivesAccess = "receives.local-access", Count, Traffic,
        "Completions of receives whose WRITE with immediate data was refused its remote key.";
    ReceivesInvalid = "receives.remote-invalid-request", Count, Traffic,
        "Completions of receives whose SEND named a key that cannot be invalidated.";
    ReceivesFlushed = "receives.flushed", Count, Traffic,
        "Completions of receives flushed because the queue pair had failed.";
    LatencyMin = "latency.min", Span, Traffic,
        "Shortest time from the posting of a signalled request to its completion.";
    LatencyMean = "latency.mean", Span, Traffic,
        "Mean of that time.";
    LatencyP50 = "latency.p50", Span, Traffic,
        "Median of that time.";
    LatencyP90 = "latency.p90", Span, Traffic,
        "90th percentile of that time.";
    LatencyP99 = "latency.p99", Span, Traffic,
        "99th percentile of that time.";
    LatencyP999 = "latency.p99.9", Span, Traffic,
        "99.9th percentile of that time.";
    LatencyMax = "latency.max", Span, Traffic,
        "Longest such time.";
    Flows = "flows", Count, Traffic,
        "Flows (queue pairs of a load that is no collective) all of whose messages completed with success.";
    FlowsUnfinished = "flows.unfinished", Count, Traffic,
        "Flows that have not come so far; those that go on for a `duration` never do.";
    FctMin = "fct.min", Span, Traffic,
        "Shortest flow completion time: from the start of a flow to its last completion, of those that finished.";
    FctMean = "fct.mean", Span, Traffic,
        "Mean flow completion time.";
    FctP50 = "fct.p50", Span, Traffic,
        "Median flow completion time.";
    FctP90 = "fct.p90", Span, Traffic,
        "90th percentile of flow completion time.";
    FctP99 = "fct.p99", Span, Traffic,
        "99th percentile of flow completion time.";
    FctP999 = "fct.p99.9", Span, Traffic,
        "99.9th percentile of flow completion time.";
    FctMax = "fct.max", Span, Traffic,
        "Longest flow completion time.";
    SlowdownMin = "slowdown.min", Ratio, Traffic,
        "Least slowdown: the completion time of a flow over the ideal one, that of a flow alone with cards that take no time. Ideal is the time of all its frames, with preambles and gaps, at the slowest link of its path, one frame more at each other link, the delay of each, and the way of the last ACK back (of a READ, of the request there).";
    SlowdownMean = "slowdown.mean", Ratio, Traffic,
        "Mean slowdown.";
    SlowdownP50 = "slowdown.p50", Ratio, Traffic,
        "Median slowdown.";
    SlowdownP90 = "slowdown.p90", Ratio, Traffic,
        "90th percentile of slowdown.";
    SlowdownP99 = "slowdown.p99", Ratio, Traffic,
        "99th percentile of slowdown.";
    SlowdownP999 = "slowdown.p99.9", Ratio, Traffic,
        "99.9th percentile of slowdown.";
    SlowdownMax = "slowdown.max", Ratio, Traffic,
        "Greatest slowdown.";
    Fairness = "fairness", Ratio, Traffic,
        "Jain's index of the goodputs of the flows, (sum x)^2 / (n sum x^2): 1 if all have the same, 1/n if one has all.";
    Iterations = "iterations", Count, Traffic,
        "Iterations of a collective that ended on every host.";
    IterationMin = "iteration.min", Span, Traffic,
        "Shortest iteration: from the end of the one before on its last host, or the start of the load, to the end of this one on its last host.";
    IterationMean = "iteration.mean", Span, Traffic,
        "Mean iteration.";
    IterationMax = "iteration.max", Span, Traffic,
        "Longest iteration.";
    AlgorithmBandwidth = "algbw", Rate, Traffic,
        "Bytes of the iterations over the time in which they communicated: each from its first host's launch, but not before the end of the one before, to its last host's end.";
    BusBandwidth = "busbw", Rate, Traffic,
        "Of an all-reduce among n hosts: `algbw` times 2 (n - 1) / n, as NVIDIA's nccl-tests define it; to be compared with the rate of a link.";
    PacketsSent = "packets.sent", Count, Card,
        "Packets that cards handed to their ports, of every kind.";
    PacketsReceived = "packets.received", Count, Card,
        "Packets that reached cards.";
    Retransmissions = "retransmissions", Count, Card,
        "Request packets that were sent again.";
    Timeouts = "timeouts", Count, Card,
        "Expiries of the local ACK timeout.";
    Acks = "acks", Count, Card,
        "Positive acknowledgements sent, without READ responses.";
    Naks = "naks", Count, Card,
        "NAKs sent, of every kind.";
    NaksSequence = "naks.sequence", Count, Card,
        "PSN sequence error NAKs sent.";
    NaksRnr = "naks.rnr", Count, Card,
        "RNR NAKs sent.";
    NaksInvalid = "naks.invalid-request", Count, Card,
        "Invalid request NAKs sent.";
    NaksAccess = "naks.remote-access", Count, Card,
        "Remote access error NAKs sent.";
    NaksOperation = "naks.remote-operation", Count, Card,
        "Remote operational error NAKs sent.";
    Duplicates = "duplicates", Count, Card,
        "Requests that arrived again after they had been carried out.";
    OutOfSequence = "out-of-sequence", Count, Card,
        "Requests that arrived after a gap and were dropped.";
    BadIcrc = "drops.icrc", Count, Card,
        "Packets that cards dropped because the ICRC did not match.";
    Drops = "drops", Count, Link,
        "Packets lost in the network, for any cause.";
    DropsFault = "drops.fault", Count, Link,
        "Packets that a fault dropped.";
    DropsQueue = "drops.queue", Count, Link,
        "Packets that found the output queue of a switch full.";
    DropsCorrupt = "drops.corrupt", Count, Link,
        "Packets that the next receiver dropped because the FCS did not match.";
    DropsBuffer = "drops.buffer", Count, Link,
        "Packets of lossy priorities that found the shared buffer of a switch full.";
    DropsHeadroom = "drops.headroom", Count, Link,
        "Packets of lossless priorities that found their headroom full: a lossless class lost a packet.";
    DropsDown = "drops.link-down", Count, Link,
        "Packets on a link, or waiting for it, when it went down.";
    DropsWatchdog = "drops.watchdog", Count, Link,
        "Packets of lossless priorities that were dropped because a watchdog took the port for stuck.";
    DropsReceiver = "drops.receiver", Count, Link,
        "Packets that found the receive pipeline of their host full.";
    DropsNoRoute = "drops.no-route", Count, Link,
        "Packets for a host that cannot be reached, or that a switch has flooded to a host they are not for.";
    DropsHops = "drops.hop-limit", Count, Link,
        "Packets whose hop limit ran out: they went in circles.";
    DropsLossless = "drops.lossless", Count, Link,
        "Packets that switches dropped though their priority is lossless: `drops.headroom` and `drops.watchdog`.";
    Pauses = "pauses", Count, Queue,
        "Pauses asked for by PFC frames on a direction of a link, repetitions included, summed over the priorities. They pause the other direction.";
    PausesReceived = "pauses.received", Count, Queue,
        "Pauses that came for a direction of a link, repetitions included, summed over the priorities.";
    PfcFrames = "pfc-frames", Count, Link,
        "PFC frames that went out, pauses and ends of pauses alike.";
    Paused = "paused", Span, Queue,
        "How long a direction of a link was paused, of its priorities the one that was longest; of several directions, the one that was longest.";
    PausedShare = "paused.share", Ratio, Queue,
        "The same as a share of the run.";
    PausedTotal = "paused.total", Span, Queue,
        "How long directions of links were paused, all directions and priorities added up.";
    PausedDirections = "paused.directions", Count, Queue,
        "Directions of links that were paused at all.";
    PausedSpread = "paused.spread", Ratio, Queue,
        "Jain's index of the pauses of the directions that were paused at all: 1 if all were for as long, 1/n if one of n was paused for nearly all the time.";
    Storms = "storms", Count, Queue,
        "How often a watchdog took a port for stuck.";
    EcnMarks = "ecn-marks", Count, Queue,
        "Packets that a switch marked \"congestion experienced\" before they went out.";
    NotCapable = "ecn-marks.not-capable", Count, Queue,
        "Packets that a switch would have marked, were they ECN-capable.";
    MarkedReceived = "marked.received", Count, Card,
        "Packets that came with a mark, of a peer of the queue pair.";
    CnpsSent = "cnps.sent", Count, Card,
        "Congestion notification packets handed to the port.";
    CnpsReceived = "cnps.received", Count, Card,
        "Congestion notification packets that came.";
    CnpsIgnored = "cnps.ignored", Count, Card,
        "Those that nothing came of, for their queue pair has no congestion control that heeds them.";
    RateMin = "rate.min", Rate, Traffic,
        "The rate of congestion control, on the wire, of the queue pair that has the least; at the end of the run, or with `during` the mean over that time.";
    RateMean = "rate.mean", Rate, Traffic,
        "The mean of those rates over the queue pairs.";
    RateMax = "rate.max", Rate, Traffic,
        "The greatest of those rates.";
    RateFairness = "rate.fairness", Ratio, Traffic,
        "Jain's index of those rates: 1 if all are the same, 1/n if one has all.";
    AlphaMean = "alpha.mean", Ratio, Traffic,
        "DCQCN's estimate of congestion, the mean over the queue pairs that had a CNP; at the end of the run, or with `during` over that time.";
    RateCuts = "rate.cuts", Count, Traffic,
        "How often congestion control has cut a rate.";
    Frames = "frames", Count, Link,
        "Frames that went out.";
    Utilisation = "utilisation", Ratio, Link,
        "Share of the link's time that frames, preambles and gaps took, up to the end of the run; without `of`, of the busiest direction.";
    QueueMax = "queue.max", Size, Queue,
        "The most bytes that waited at the output port; of one priority only where a switch does more than tail drop.";
    QueueMean = "queue.mean", Size, Queue,
        "The bytes that waited at the output port, the mean over the time that `during` says, by 200 looks at it; of several directions the greatest.";
    ReceiverMax = "receiver.max", Size, Host,
        "The most bytes that waited in the receive pipeline of a host; without `of`, of any.";
    ReceiverMisses = "receiver.misses", Count, Host,
        "Packets whose translation a card had to fetch.";
    FaultHits = "faults.hits", Count, Fault,
        "Packets that a fault picked.";
    FaultSeen = "faults.seen", Count, Fault,
        "Packets that a fault looked at.";
    Time = "time", Span, Run,
        "Virtual time at the end of the run.";
    Events = "events", Count, Run,
        "Events that the run took.";
    VictimPauses = "victim-pauses", Count, Traffic,
        "Pauses on the way of a load that were for a queue it does not meet, of the first 4096 of the run: with any it is a victim.";
    Warnings = "warnings", Count, Run,
        "Warnings about a set-up that cannot do what it says.";
    Deadlock = "deadlock", Count, Run,
        "1 if at the end queues waited for each other in a circle of pauses that nothing can end, 0 if not. A run with a deadlock has failed unless an expectation asks for it.";
}

impl Metric {
    /// The metric called `name`.
    pub fn from_name(name: &str) -> Option<Metric> {
        Metric::ALL.iter().copied().find(|m| m.name() == name)
    }

    /// True if it can be asked of a part of the run: what grows as the run goes on is then what was added.
    pub const fn has_periods(self) -> bool {
        use Metric as M;
        match self {
            M::Goodput | M::Fairness | M::Bytes | M::Utilisation | M::PausedTotal => true,
            M::RateMin | M::RateMean | M::RateMax | M::RateFairness | M::AlphaMean => true,
            M::QueueMean => true,
            M::Flows | M::FlowsUnfinished | M::Unfinished | M::Iterations => false,
            M::PausedDirections | M::VictimPauses | M::Storms => false,
            _ => matches!(
                (self.unit(), self.scope()),
                (
                    Unit::Count,
                    Scope::Traffic | Scope::Card | Scope::Link | Scope::Queue
                )
            ),
        }
    }

    /// True if it has no value but over a part of the run.
    pub const fn needs_period(self) -> bool {
        matches!(self, Metric::QueueMean)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl Unit {
    /// Writes a value of this unit for a reader: three or four digits, with its unit.
    pub fn show(self, value: f64) -> String {
        let whole = || value.max(0.0).round() as u64;
        match self {
            Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Unit::Count => format!("{value:.1}"),
            Unit::Rate => Rate(round(whole())).to_string(),
            Unit::Span => print_span(Span::from_ps(round(whole()))),
            Unit::Size => Size(whole()).to_string(),
            Unit::Ratio if value != 0.0 && value.abs() < 1e-3 => format!("{value:.2e}"),
            Unit::Ratio => format!("{value:.4}"),
        }
    }

    /// Its word in a JSON report.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Rate => "bits-per-second",
            Unit::Span => "picoseconds",
            Unit::Size => "bytes",
            Unit::Ratio => "ratio",
        }
    }
}

/// To four significant digits.
fn round(n: u64) -> u64 {
    let mut step = 1u64;
    while n / step >= 10_000 {
        step *= 10;
    }
    n.saturating_add(step / 2) / step * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_found() {
        let names: BTreeSet<_> = Metric::ALL.iter().map(|m| m.name()).collect();
        assert_eq!(names.len(), Metric::ALL.len());
        for &metric in Metric::ALL {
            assert_eq!(Metric::from_name(metric.name()), Some(metric));
        }
    }

    #[test]
    fn values_are_shown_in_their_unit() {
        assert_eq!(Unit::Rate.show(91_234_567_890.0), "91.23Gbps");
        assert_eq!(Unit::Span.show(12_345_678.0), "12.35us");
        assert_eq!(Unit::Count.show(17.0), "17");
        assert_eq!(Unit::Size.show(4096.0), "4KiB");
        assert_eq!(Unit::Ratio.show(0.5), "0.5000");
    }
}
