//! What came out of a run, as data, as text and as JSON.
//!
//! A report has no wall clock and no path in it: the same scenario and seed give the same bytes.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the data |
//! | [`failure`] | why requests failed |
//! | [`latency`] | how latencies are gathered |
//! | `measure` | what a metric is of a run |
//! | [`flows`] | flows of a load, rounds of a collective |
//! | [`congestion`] | rates of queue pairs, marks and CNPs |
//! | [`part`] | what a metric is of a part of a run |
//! | [`pauses`] | flow control: pauses, victims, deadlocks |
//! | [`verdict`] | expectations against what was measured |
//! | [`text`] | for people |
//! | [`table`] | a sweep as a table, for people and as CSV |

pub mod congestion;
pub mod failure;
pub mod flows;
pub mod latency;
mod measure;
pub mod part;
pub mod pauses;
pub mod table;
pub mod text;
pub mod verdict;

use crate::format::topology::Network;
use crate::metric::{Metric, Unit};
use congestion::CongestionReport;
use failure::FailureReport;
use flows::{CollectiveReport, FlowsReport};
use latency::Latency;
use part::Part;
use pauses::{PriorityReport, ReceiverReport, StuckReport, VictimReport};
use serde::Serialize;
use std::collections::BTreeMap;
use verdict::Judgement;

/// Version of the JSON form. Adding a field does not change it.
pub const SCHEMA: u32 = 1;

/// What came out of a scenario: of each point of its sweep.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Name of the scenario: that of the file, without folder and ending.
    pub scenario: String,
    /// What it shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where the published figures come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look_at: Option<String>,
    /// Which parameters are free, and how the result moves with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<String>,
    /// Whether all expectations held and every run came to its end.
    pub held: bool,
    /// What varies from run to run.
    pub axes: Vec<String>,
    /// The runs.
    pub runs: Vec<Run>,
    /// Runs that were not begun before an interruption.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_run: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Report {
    /// True if it is not whole, because it was interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.not_run > 0 || self.runs.iter().any(|r| r.ended == Ended::Interrupted)
    }
}

/// What came out of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    /// The value of each axis.
    pub values: Vec<String>,
    /// Seed of its random streams.
    pub seed: u64,
    /// Why it ended.
    pub ended: Ended,
    /// Virtual time at the end, in picoseconds.
    pub time_ps: u64,
    /// Events it took.
    pub events: u64,
    /// What the network was.
    pub network: NetworkSummary,
    /// What became of each load.
    pub traffic: Vec<TrafficReport>,
    /// Why requests failed, the first of them.
    pub failures: Vec<FailureReport>,
    /// Failures beside those.
    pub more_failures: u64,
    /// What each card did.
    pub hosts: Vec<HostReport>,
    /// What each direction of each link carried.
    pub links: Vec<WayReport>,
    /// Queues that waited for each other at the end, each for the next one and the last for the first;
    /// empty if there was no deadlock.
    pub deadlock: Vec<StuckReport>,
    /// Loads that were paused for queues they never meet.
    pub victims: Vec<VictimReport>,
    /// What in its set-up cannot do what it says.
    pub warnings: Vec<String>,
    /// What each fault hit.
    pub faults: Vec<FaultReport>,
    /// What was recorded.
    pub captures: Vec<CaptureReport>,
    /// Each expectation with its verdict.
    pub expectations: Vec<Judgement>,
    /// The parts of it that expectations ask of.
    #[serde(skip)]
    pub parts: Vec<Part>,
    /// Expectations that compare with a point that was not run.
    pub skipped: usize,
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Nothing was left to do.
    Dry,
    /// It reached the `stop` of the scenario.
    Stop,
    /// It reached the `event-limit`, which fails it.
    EventLimit,
    /// It was interrupted, which fails it.
    Interrupted,
}

/// What a network was, in numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NetworkSummary {
    /// Its shape.
    pub shape: crate::format::shape::Shape,
    /// How many hosts.
    pub hosts: usize,
    /// How many switches.
    pub switches: usize,
    /// How many links.
    pub links: usize,
    /// Rates of the links, each once, in bits per second.
    pub rates_bps: Vec<u64>,
    /// Propagation delays of the links, each once, in picoseconds.
    pub delays_ps: Vec<u64>,
}

/// What became of a load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TrafficReport {
    /// Its name.
    pub name: String,
    /// What each request did; if not all did the same, what those of the first flow did.
    pub operation: crate::format::request::Operation,
    /// What they did, in the order of their names, if not all did the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<crate::format::request::Operation>,
    /// Over which service.
    pub transport: crate::format::request::Transport,
    /// Bytes of each message; if they differ, of the longest.
    pub size: u64,
    /// Bytes of the shortest and of the longest message, if they differ from flow to flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<[u64; 2]>,
    /// Queue pairs, over all pairs of hosts.
    pub queue_pairs: u64,
    /// Payload that completed with success, in bits per second of `duration_ps`.
    pub goodput_bps: u64,
    /// Goodput of the same scenario without faults and loss; `None` if nobody asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_goodput_bps: Option<u64>,
    /// Share of that which the law says is left; `None` if no expectation asks for a law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub law_share: Option<f64>,
    /// From its start to its last completion, or to the end of the run if messages were left.
    pub duration_ps: u64,
    /// Messages that completed with success.
    pub messages: u64,
    /// Messages that had not completed.
    pub unfinished: u64,
    /// Payload of the messages that completed with success.
    pub bytes: u64,
    /// Completions by status.
    pub completions: BTreeMap<Status, u64>,
    /// Completions of receives by status.
    pub receives: BTreeMap<Status, u64>,
    /// Queue pairs whose data arrived damaged, or with the immediate data of another message. The card
    /// that lets that happen is broken, so it fails the run.
    pub damaged: u64,
    /// From posting to completion; `None` if nothing completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Its flows one by one; nothing if it is a collective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowsReport>,
    /// Its rounds, if it is a collective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collective: Option<CollectiveReport>,
    /// Congestion control of the queue pairs that send its data, if they have any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionReport>,
    /// What the queue pairs did, at both ends.
    pub counts: Counts,
    /// Payload that each queue pair has completed.
    #[serde(skip)]
    pub flow_bytes: Vec<u64>,
}

/// What a card did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HostReport {
    /// Name of the host.
    pub name: String,
    /// What its card did.
    pub counts: Counts,
    /// Packets that its card took in and refused, by cause: `bad-qkey`.
    pub refused: BTreeMap<&'static str, u64>,
    /// What its receive pipeline did, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<ReceiverReport>,
}

/// What queue pairs or a card did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Counts {
    /// Packets handed to the port.
    pub packets_sent: u64,
    /// Packets that arrived.
    pub packets_received: u64,
    /// Request packets sent again.
    pub retransmissions: u64,
    /// Expiries of the ACK timeout.
    pub timeouts: u64,
    /// Positive acknowledgements sent.
    pub acks: u64,
    /// NAKs sent.
    pub naks: Naks,
    /// Requests that arrived again.
    pub duplicates: u64,
    /// Requests dropped after a gap.
    pub out_of_sequence: u64,
    /// Packets with a wrong ICRC.
    pub bad_icrc: u64,
    /// Packets of a peer that came with a mark.
    pub marked_received: u64,
    /// CNPs handed to the port.
    pub cnps_sent: u64,
    /// CNPs that came.
    pub cnps_received: u64,
    /// CNPs that nothing came of.
    pub cnps_ignored: u64,
}

/// NAKs by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Naks {
    /// PSN sequence error.
    pub sequence: u64,
    /// Receiver not ready.
    pub rnr: u64,
    /// Invalid request.
    pub invalid_request: u64,
    /// Remote access error.
    pub remote_access: u64,
    /// Remote operational error.
    pub remote_operation: u64,
}

/// What one direction of a link carried.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WayReport {
    /// Its name: `h0->s0`.
    pub name: String,
    /// Frames that went out.
    pub frames: u64,
    /// Their bytes, with FCS.
    pub bytes: u64,
    /// Share of the time that frames, preambles and gaps took.
    pub utilisation: f64,
    /// The most bytes that waited at the output port.
    pub queue_max: u64,
    /// PFC frames that went out.
    pub pfc_frames: u64,
    /// What happened in each priority in which something waited or was paused, at a switch with more than
    /// tail drop.
    pub priorities: Vec<PriorityReport>,
    /// Packets lost.
    pub drops: Drops,
}

/// Packets lost in the network, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Drops {
    /// By a fault.
    pub fault: u64,
    /// At a full queue.
    pub queue: u64,
    /// By a wrong FCS.
    pub corrupt: u64,
    /// At a full shared buffer.
    pub buffer: u64,
    /// At full headroom, though their priority was lossless.
    pub headroom: u64,
    /// With the link, which went down.
    pub down: u64,
    /// At a port that a watchdog took for stuck, though their priority was lossless.
    pub watchdog: u64,
    /// At the full receive pipeline of their host.
    pub receiver: u64,
    /// With no way to the destination, or at a host they are not for.
    pub no_route: u64,
    /// By the hop limit.
    pub hop_limit: u64,
    /// Too long for the link.
    pub other: u64,
}

/// What a fault hit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FaultReport {
    /// Its name.
    pub name: String,
    /// Packets it looked at.
    pub seen: u64,
    /// Packets it picked.
    pub hits: u64,
    /// The first of them.
    pub packets: Vec<Hit>,
}

/// A capture that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CaptureReport {
    /// Name of the file, without its folder.
    pub file: String,
    /// The directions of links in it.
    pub links: Vec<String>,
    /// Frames in it.
    pub frames: u64,
    /// There were more, which its limit kept out.
    pub full: bool,
}

/// How many hits of a fault a report lists.
pub const HITS_LISTED: usize = 100;

/// A packet that a fault picked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Hit {
    /// When, in picoseconds.
    pub time_ps: u64,
    /// On which direction of which link.
    pub link: String,
    /// The opcode in words.
    pub opcode: String,
    /// Destination queue pair.
    pub qp: u32,
    /// PSN.
    pub psn: u32,
    /// Which sighting of this PSN there it was, from 1, if a fault there asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<u32>,
    /// In which transmission round, from 1, if a fault there asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
    /// What happened to it.
    pub action: String,
}

crate::format::words! {
    /// How a request ended, as verbs name it.
    pub enum Status {
        /// It was carried out.
        Success = "success",
        /// The message does not fit the local buffers or limits.
        LocalLength = "local-length",
        /// The queue pair cannot do that.
        LocalOperation = "local-operation",
        /// A local key does not allow it.
        LocalProtection = "local-protection",
        /// The queue pair had failed before.
        Flushed = "flushed",
        /// The response made no sense.
        BadResponse = "bad-response",
        /// The other side does not do that.
        RemoteInvalidRequest = "remote-invalid-request",
        /// A remote key does not allow it.
        RemoteAccess = "remote-access",
        /// The other side failed.
        RemoteOperation = "remote-operation",
        /// The transport retries ran out.
        RetryExceeded = "retry-exceeded",
        /// The RNR retries ran out.
        RnrRetryExceeded = "rnr-retry-exceeded",
        /// A window could not be bound.
        WindowBind = "window-bind",
        /// A WRITE that used up a receive was refused its key.
        LocalAccess = "local-access",
    }
}

impl TrafficReport {
    /// What it does, in a word or two.
    fn does(&self) -> String {
        use crate::format::request::Transport;
        let operation = match self.operations.len() {
            0 | 1 => self.operation.to_string(),
            _ => "mixed".to_string(),
        };
        match self.transport {
            Transport::Rc => operation,
            other => format!("{other} {operation}"),
        }
    }

    /// The size of its messages, or of the shortest and the longest.
    fn sizes(&self) -> String {
        let show = |bytes: u64| Unit::Size.show(bytes as f64);
        match self.sizes {
            Some([least, most]) => format!("{}..{}", show(least), show(most)),
            None => show(self.size),
        }
    }

    /// Receives that took a message.
    pub fn received(&self) -> u64 {
        self.receives.get(&Status::Success).copied().unwrap_or(0)
    }

    /// Goodput over that without loss.
    pub fn goodput_share(&self) -> Option<f64> {
        match self.clean_goodput_bps? {
            0 => None,
            clean => Some(self.goodput_bps as f64 / clean as f64),
        }
    }
}

impl Naks {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.sequence + self.rnr + self.invalid_request + self.remote_access + self.remote_operation
    }
}

impl Drops {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.fault
            + self.queue
            + self.corrupt
            + self.buffer
            + self.headroom
            + self.down
            + self.watchdog
            + self.receiver
            + self.no_route
            + self.hop_limit
            + self.other
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, o: Counts) {
        self.packets_sent += o.packets_sent;
        self.packets_received += o.packets_received;
        self.retransmissions += o.retransmissions;
        self.timeouts += o.timeouts;
        self.acks += o.acks;
        self.naks.sequence += o.naks.sequence;
        self.naks.rnr += o.naks.rnr;
        self.naks.invalid_request += o.naks.invalid_request;
        self.naks.remote_access += o.naks.remote_access;
        self.naks.remote_operation += o.naks.remote_operation;
        self.duplicates += o.duplicates;
        self.out_of_sequence += o.out_of_sequence;
        self.bad_icrc += o.bad_icrc;
        self.marked_received += o.marked_received;
        self.cnps_sent += o.cnps_sent;
        self.cnps_received += o.cnps_received;
        self.cnps_ignored += o.cnps_ignored;
    }
}

impl NetworkSummary {
    /// Sums up `network`.
    pub fn of(network: &Network) -> NetworkSummary {
        let each = |value: fn(&crate::format::topology::Link) -> u64| {
            let mut all: Vec<u64> = network.links.iter().map(value).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        NetworkSummary {
            shape: network.shape,
            hosts: network.hosts.len(),
            switches: network.switches.len(),
            links: network.links.len(),
            rates_bps: each(|l| l.rate.0),
            delays_ps: each(|l| l.delay.as_ps()),
        }
    }
}

impl Run {
    fn expects(&self, metric: Metric) -> bool {
        self.expectations.iter().any(|j| j.metric == metric)
    }

    /// True if it ended in a deadlock that no expectation asks for.
    pub fn is_stuck(&self) -> bool {
        !self.deadlock.is_empty() && !self.expects(Metric::Deadlock)
    }

    /// True if it came to its end without a deadlock that no expectation asks for, no data was damaged,
    /// and all its expectations held.
    pub fn held(&self) -> bool {
        matches!(self.ended, Ended::Dry | Ended::Stop)
            && self.traffic.iter().all(|t| t.damaged == 0)
            && !self.is_stuck()
            && self.expectations.iter().all(|j| j.held)
    }
}

/// A measured value as people read it; a dash if there is none.
pub fn show(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| "-".to_string(), |v| unit.show(v))
}

/// The reports of a command as one JSON document.
pub fn json(reports: &[Report]) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: u32,
        reports: &'a [Report],
    }
    let document = Document {
        schema: SCHEMA,
        reports,
    };
    let mut text = serde_json::to_string_pretty(&document)
        .unwrap_or_else(|e| format!("{{\"schema\":{SCHEMA},\"error\":\"{e}\"}}"));
    text.push('\n');
    text
}
