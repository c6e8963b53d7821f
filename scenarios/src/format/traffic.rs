//! `[[traffic]]`: who sends what to whom.

use super::diagnostic::{Origin, Sink};
use super::folder::Folder;
use super::pattern::{self, Collective, Pattern};
use super::reader::Reader;
use super::request::{self, Mistake, Operation, Requests, Transport};
use super::schema::{Key, Kind, Section};
use super::topology::Network;
use crate::units::{Size, Span};
use softroce_sim::card::{MAX_CQE, MAX_QP, MAX_SGE, MAX_WR};
use softroce_sim::memory::Access;

/// Requests that a host of a collective has outstanding on a queue pair at most.
const COLLECTIVE_DEPTH: u32 = 16;
const SIZE: Kind = Kind::Size(0, 1 << 31);

pub(super) static TRAFFIC: Section = Section {
    title: "[[traffic]]",
    about: "A load: requests of one kind from one or several hosts to one or several others, over \
            queue pairs of its own.",
    named: None,
    keys: &[
        Key::optional(
            "name",
            Kind::Name,
            "`traffic-0`, `traffic-1`, ...",
            "What it is called in expectations, paths and the report.",
        ),
        pattern::PATTERN,
        Key::optional(
            "from",
            Kind::CountOrNames(1, 8192),
            "required with `pairs`, otherwise all others",
            "The host that posts the requests; of a list, each one does; of a number, so many of the first \
             ones.",
        )
        .only("pattern", pattern::FROM),
        Key::optional(
            "to",
            Kind::Names,
            "required, but with `poisson` all",
            "The host they go to; of a list, each one gets them. A host does not send to itself.",
        )
        .only("pattern", pattern::FROM),
        pattern::HOSTS,
        pattern::BY,
        pattern::FILE,
        request::OPERATION,
        request::TRANSPORT,
        Key::optional(
            "size",
            SIZE,
            "8 for atomics, otherwise required, but with `file` and `poisson`",
            "Bytes of each message; of an all-reduce, those that are reduced; of a parameter server, those \
             that each worker hands over. A number without a unit is in bytes.",
        )
        .only("pattern", pattern::SIZED),
        Key::optional(
            "count",
            Kind::Count(1, 1 << 40),
            "1, unless there is a `duration`",
            "Messages of each queue pair; with `poisson`, flows in all.",
        )
        .only("pattern", pattern::AMOUNT),
        Key::optional(
            "duration",
            Kind::Span(1, 1_000_000_000_000_000),
            "until `count` is reached",
            "New messages are posted, or flows arrive, for this long instead of a count.",
        )
        .only("pattern", pattern::AMOUNT),
        Key::with(
            "depth",
            Kind::Count(1, MAX_WR as u64),
            "1",
            "Requests of a queue pair that are outstanding at the same time.",
        )
        .only("pattern", pattern::FLOWS),
        Key::with(
            "qps",
            Kind::Count(1, 65_536),
            "1",
            "Queue pairs between each two hosts; at most 131072 of all loads together.",
        )
        .only("pattern", pattern::FLOWS),
        Key::with(
            "start",
            Kind::Span(0, 1_000_000_000_000_000),
            "0ps",
            "When the first request is posted.",
        ),
        Key::optional(
            "recv-depth",
            Kind::Count(0, MAX_WR as u64),
            "twice `depth`",
            "Receives kept posted on each queue pair; with 0 there are none, and requests that need one get \
             RNR NAKs.",
        )
        .only("operation", request::RECEIVING),
        Key::with(
            "recv-delay",
            Kind::Span(0, 1_000_000_000_000_000),
            "0ps",
            "From `start` until receives are first posted: a late receiver, who answers with RNR NAKs \
             until then.",
        )
        .only("operation", request::RECEIVING),
        request::RECV_SIZE,
        request::QP_ACCESS,
        request::MR_ACCESS,
        request::MISTAKE,
        request::MISTAKE_FROM,
        Key::with(
            "sge",
            Kind::Count(1, MAX_SGE as u64),
            "1",
            "Pieces of memory that each message is gathered from.",
        ),
        Key::with(
            "signalled-every",
            Kind::Count(1, MAX_WR as u64),
            "1",
            "Every n-th request asks for a completion. At most `depth`.",
        )
        .only("pattern", pattern::FLOWS),
        pattern::JITTER,
        pattern::LOAD,
        pattern::SIZES,
        pattern::ITERATIONS,
        pattern::COMPUTE,
        pattern::SLOW,
        pattern::SLOWDOWN,
        pattern::RINGS,
        pattern::REPLY,
        pattern::PARALLEL,
    ],
};

/// A load.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// Indices of the hosts that post and of the hosts they address, for each pair.
    pub pairs: Vec<(usize, usize)>,
    /// What the flow of each pair is like, if they differ; otherwise empty.
    pub own: Vec<Own>,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// What waits for what, if it is a collective.
    pub collective: Option<Collective>,
    /// What each request does.
    pub operation: Operation,
    /// Over which service.
    pub transport: Transport,
    /// Bytes of each message.
    pub size: Size,
    /// When it ends.
    pub amount: Amount,
    /// Outstanding requests of each queue pair.
    pub depth: u32,
    /// Queue pairs of each pair of hosts.
    pub qps: u32,
    /// When it begins.
    pub start: Span,
    /// Receives kept posted on each queue pair; 0 if the operation needs none.
    pub recv_depth: u32,
    /// From the start until receives are first posted.
    pub recv_delay: Span,
    /// Bytes of each receive, if other than those of a message.
    pub recv_size: Option<Size>,
    /// What the queue pair at the other end allows.
    pub qp_access: Access,
    /// What the memory there is registered for.
    pub mr_access: Access,
    /// What goes wrong, and with which request, from 1.
    pub mistake: Option<(Mistake, u64)>,
    /// Pieces of memory of each message.
    pub sge: u32,
    /// Every n-th request is signalled.
    pub signalled_every: u32,
}

/// What the flow of one pair of hosts is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Own {
    /// Bytes of each message.
    pub size: Size,
    /// From the start of the load to its own.
    pub start: Span,
    /// What each request does.
    pub operation: Operation,
}

impl Traffic {
    /// What the flow of the `n`-th pair is like.
    pub fn flow(&self, n: usize) -> Own {
        self.own.get(n).copied().unwrap_or(Own {
            size: self.size,
            start: Span::ZERO,
            operation: self.operation,
        })
    }

    /// Receives kept posted for the flow of the `n`-th pair.
    pub fn receives(&self, n: usize) -> u32 {
        match self.flow(n).operation.needs_receive() {
            true => self.recv_depth,
            false => 0,
        }
    }

    /// Bytes of memory that a queue pair of the `n`-th pair needs, at both ends together.
    fn bytes_each(&self, n: usize) -> u64 {
        let (own, depth) = (self.flow(n), u64::from(self.depth));
        let (size, flow) = (own.size.0, own.operation.flow());
        if flow.is_atomic() {
            return size.saturating_mul(1 + depth);
        }
        if !flow.is_send() {
            return size.saturating_mul(2);
        }
        let header = match self.transport {
            Transport::Ud => 40,
            Transport::Rc | Transport::Uc => 0,
        };
        let receive = self.recv_size.unwrap_or(own.size).0 + header;
        size.saturating_add(receive.saturating_mul(self.receives(n).max(1).into()))
    }
}

/// When a load ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// After so many messages of each queue pair.
    Messages(u64),
    /// Nothing is posted after this span.
    For(Span),
}

/// The most queue pairs that the loads of a scenario may have together.
pub const MAX_QUEUE_PAIRS: u64 = 1 << 17;

/// Reads the loads.
pub(super) fn read(
    root: &Reader<'_>,
    network: &Network,
    folder: &Folder,
    sink: &Sink,
) -> Vec<Traffic> {
    let mut all: Vec<Traffic> = Vec::new();
    let (mut total, mut told) = (0u64, false);
    for (n, (table, origin)) in root.tables("traffic").into_iter().enumerate() {
        let label = super::scenario::label("traffic", n, table);
        let reader = Reader::new(&TRAFFIC, table, origin, label, sink);
        let name = super::scenario::name(&reader, n, "traffic", all.iter().map(|t| &t.name));
        if network.hosts.contains(&name) {
            reader.say("name", "is the name of a host");
        }
        let operation: Operation = reader.get("operation");
        let pattern: Pattern = reader.get("pattern");
        let qps: u32 = reader.get("qps");
        let atomic = operation.flow().is_atomic();
        if !reader.has("size") && !atomic && pattern::SIZED.contains(&pattern.name()) {
            let told = format!("{} has no \"size\", which must be {}", reader.label(), SIZE);
            sink.say(origin, told);
        }
        let flows = pattern::Context {
            reader: &reader,
            network,
            folder,
            name: &name,
            seed: root.get("seed"),
            operation,
            qps,
        }
        .flows();
        let qps = flows.qps.unwrap_or(qps);
        total = total.saturating_add(flows.pairs.len() as u64 * u64::from(qps));
        if total > MAX_QUEUE_PAIRS && !told {
            told = true;
            let message =
                format!("makes {total} queue pairs in all; the limit is {MAX_QUEUE_PAIRS}");
            sink.say(origin, format!("{} {message}", reader.label()));
        }
        let pairs = if told { Vec::new() } else { flows.pairs };
        let duration: Option<Span> = reader.opt("duration");
        if reader.has("count") && reader.has("duration") {
            reader.say("duration", "stands beside a \"count\"; give one of the two");
        }
        let count: Option<u64> = reader.opt("count");
        let (depth, every) = (reader.get("depth"), reader.get("signalled-every"));
        // A depth that could not be read is 0, and was reported.
        if depth > 0 && every > depth {
            reader.say(
                "signalled-every",
                format!("must be at most \"depth\", {depth}, or the queue fills unnoticed"),
            );
        }
        let recv_depth = reader.opt("recv-depth");
        let depth = match flows.collective {
            Some(_) => COLLECTIVE_DEPTH,
            None => depth,
        };
        let requests = Requests::read(&reader);
        let size = flows.size.or_else(|| reader.opt("size"));
        let size = size.unwrap_or(Size(if atomic { 8 } else { 0 }));
        match flows.own.as_slice() {
            [] if !pairs.is_empty() => requests.check(
                &reader,
                &[Own {
                    size,
                    start: Span::ZERO,
                    operation,
                }],
            ),
            own => requests.check(&reader, own),
        }
        let needs_receive =
            operation.needs_receive() || flows.own.iter().any(|own| own.operation.needs_receive());
        all.push(Traffic {
            name,
            pairs,
            own: flows.own,
            pattern,
            collective: flows.collective,
            operation,
            transport: requests.transport,
            size,
            amount: match (flows.messages, duration) {
                (Some(n), _) => Amount::Messages(n),
                (None, Some(span)) => Amount::For(span),
                (None, None) => Amount::Messages(count.unwrap_or(1)),
            },
            depth,
            qps,
            start: reader.get("start"),
            recv_depth: match needs_receive {
                true => recv_depth.unwrap_or_else(|| depth.saturating_mul(2).min(MAX_WR)),
                false => 0,
            },
            recv_delay: reader.get("recv-delay"),
            recv_size: requests.recv_size,
            qp_access: requests.qp_access,
            mr_access: requests.mr_access,
            mistake: requests.mistake,
            sge: reader.get("sge"),
            signalled_every: every,
        });
    }
    all
}

/// The most bytes of memory that loads with data may register together.
pub const MAX_DATA: u64 = 1 << 30;

/// Checks what each host's card must hold: queue pairs, completions and, with `data`, bytes.
pub(super) fn check_totals(root: &Reader<'_>, traffic: &[Traffic], network: &Network, data: bool) {
    let mut totals = vec![(0u64, 0u64); network.hosts.len()];
    let mut bytes = 0u64;
    for (n, load) in traffic.iter().enumerate() {
        let qps = u64::from(load.qps);
        for (n, &(from, to)) in load.pairs.iter().enumerate() {
            let receives = load.receives(n);
            for (host, requests) in [(from, load.depth), (to, receives)] {
                totals[host].0 += qps;
                totals[host].1 += qps * u64::from(requests);
            }
            bytes = bytes.saturating_add(load.bytes_each(n).saturating_mul(qps));
        }
        let at = root.tables("traffic").get(n).map_or(Origin::FILE, |t| t.1);
        for &host in load.pairs.iter().flat_map(|(a, b)| [a, b]) {
            let name = &network.hosts[host];
            let (queue_pairs, completions) = totals[host];
            for (what, is, limit) in [
                ("queue pairs", queue_pairs, u64::from(MAX_QP)),
                ("outstanding requests", completions, u64::from(MAX_CQE)),
            ] {
                if is > limit {
                    let told = format!("the card of host \"{name}\" would have {is} {what}");
                    root.sink.say(at, format!("{told}; the limit is {limit}"));
                    return;
                }
            }
        }
        if data && bytes > MAX_DATA {
            let (is, limit) = (Size(bytes), Size(MAX_DATA));
            let told = format!(
                "the loads register {is} of memory, both ends together; the limit is {limit}"
            );
            root.sink
                .say(at, format!("{told}, or payload = \"counted\""));
            return;
        }
    }
}

/// The first few names.
pub(super) fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}
