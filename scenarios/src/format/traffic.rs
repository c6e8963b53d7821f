//! `[[traffic]]`: who sends what to whom.

use super::choices::choices;
use super::diagnostic::{Origin, Sink, hint};
use super::reader::Reader;
use super::schema::{Key, Kind, Section};
use super::topology::Network;
use crate::units::{Size, Span};
use softroce_sim::card::{MAX_CQE, MAX_QP, MAX_SGE, MAX_WR};

choices! {
    /// What a request does.
    pub enum Operation {
        /// SEND into a posted receive.
        Send = "send",
        /// SEND with immediate data.
        SendImm = "send-imm",
        /// RDMA WRITE.
        Write = "write",
        /// RDMA WRITE with immediate data, which uses up a receive.
        WriteImm = "write-imm",
        /// RDMA READ: the data flows from `to` to `from`.
        Read = "read",
    }
}

impl Operation {
    /// True if the data flows from the host that posts the request.
    pub const fn sends_data(self) -> bool {
        !matches!(self, Operation::Read)
    }

    /// True if it uses up a receive at the other end.
    pub const fn needs_receive(self) -> bool {
        matches!(
            self,
            Operation::Send | Operation::SendImm | Operation::WriteImm
        )
    }
}

const RECEIVING: &[&str] = &["send", "send-imm", "write-imm"];

pub(super) static TRAFFIC: Section = Section {
    title: "[[traffic]]",
    about: "A load: requests of one kind from one or several hosts to one or several others, over \
            reliable connections of its own.",
    named: None,
    keys: &[
        Key::optional(
            "name",
            Kind::Name,
            "`traffic-0`, `traffic-1`, ...",
            "What it is called in expectations, paths and the report.",
        ),
        Key::required(
            "from",
            Kind::Names,
            "The host that posts the requests; of a list, each one does.",
        ),
        Key::required(
            "to",
            Kind::Names,
            "The host they go to; of a list, each one gets them. A host does not send to itself.",
        ),
        Key::required(
            "operation",
            Kind::Choice(Operation::NAMES),
            "What each request does. In a `read` the data flows from `to` to `from`.",
        ),
        Key::required(
            "size",
            Kind::Size(0, 1 << 31),
            "Bytes of each message. A number without a unit is in bytes.",
        ),
        Key::optional(
            "count",
            Kind::Count(1, 1 << 40),
            "1, unless there is a `duration`",
            "Messages of each queue pair.",
        ),
        Key::optional(
            "duration",
            Kind::Span(1, 1_000_000_000_000_000),
            "until `count` is reached",
            "New messages are posted for this long instead of a count.",
        ),
        Key::with(
            "depth",
            Kind::Count(1, MAX_WR as u64),
            "1",
            "Requests of a queue pair that are outstanding at the same time.",
        ),
        Key::with(
            "qps",
            Kind::Count(1, 65_536),
            "1",
            "Queue pairs between each two hosts; at most 131072 of all loads together.",
        ),
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
        .only("operation", RECEIVING),
        Key::with(
            "recv-delay",
            Kind::Span(0, 1_000_000_000_000_000),
            "0ps",
            "From `start` until receives are first posted: a late receiver, who answers with RNR NAKs \
             until then.",
        )
        .only("operation", RECEIVING),
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
        ),
    ],
};

/// A load.
#[derive(Clone, PartialEq, Debug)]
pub struct Traffic {
    /// Its name.
    pub name: String,
    /// Indices of the hosts that post and of the hosts they address, for each pair.
    pub pairs: Vec<(usize, usize)>,
    /// What each request does.
    pub operation: Operation,
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
    /// Pieces of memory of each message.
    pub sge: u32,
    /// Every n-th request is signalled.
    pub signalled_every: u32,
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
pub(super) fn read(root: &Reader<'_>, network: &Network, sink: &Sink) -> Vec<Traffic> {
    let mut all: Vec<Traffic> = Vec::new();
    let (mut total, mut told) = (0u64, false);
    for (n, (table, origin)) in root.tables("traffic").into_iter().enumerate() {
        let label = super::scenario::label("traffic", n, table);
        let reader = Reader::new(&TRAFFIC, table, origin, label, sink);
        let name = super::scenario::name(&reader, n, "traffic", all.iter().map(|t| &t.name));
        if network.hosts.contains(&name) {
            reader.say("name", "is the name of a host");
        }
        let from = hosts(&reader, "from", network);
        let to = hosts(&reader, "to", network);
        let qps: u32 = reader.get("qps");
        total = total.saturating_add(from.len() as u64 * to.len() as u64 * u64::from(qps));
        let mut pairs = Vec::new();
        if total <= MAX_QUEUE_PAIRS {
            for &a in &from {
                pairs.extend(to.iter().filter(|&&b| b != a).map(|&b| (a, b)));
            }
        } else if !told {
            told = true;
            let message =
                format!("makes {total} queue pairs in all; the limit is {MAX_QUEUE_PAIRS}");
            sink.say(origin, format!("{} {message}", reader.label()));
        }
        if !told && pairs.is_empty() && !from.is_empty() && !to.is_empty() {
            reader.say("to", "is the host itself; a host does not send to itself");
        }
        let duration: Option<Span> = reader.opt("duration");
        if reader.has("count") && reader.has("duration") {
            reader.say("duration", "stands beside a \"count\"; give one of the two");
        }
        let count: Option<u64> = reader.opt("count");
        let operation: Operation = reader.get("operation");
        let (depth, every) = (reader.get("depth"), reader.get("signalled-every"));
        // A depth that could not be read is 0, and was reported.
        if depth > 0 && every > depth {
            reader.say(
                "signalled-every",
                format!("must be at most \"depth\", {depth}, or the queue fills unnoticed"),
            );
        }
        let recv_depth = reader.opt("recv-depth");
        all.push(Traffic {
            name,
            pairs,
            operation,
            size: reader.get("size"),
            amount: match duration {
                Some(span) => Amount::For(span),
                None => Amount::Messages(count.unwrap_or(1)),
            },
            depth,
            qps,
            start: reader.get("start"),
            recv_depth: match operation.needs_receive() {
                true => recv_depth.unwrap_or_else(|| depth.saturating_mul(2).min(MAX_WR)),
                false => 0,
            },
            recv_delay: reader.get("recv-delay"),
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
        for &(from, to) in &load.pairs {
            for (host, requests) in [(from, load.depth), (to, load.recv_depth)] {
                totals[host].0 += qps;
                totals[host].1 += qps * u64::from(requests);
            }
        }
        let slots = 1 + u64::from(load.recv_depth.max(1));
        let each = load.size.0.saturating_mul(slots).saturating_mul(qps);
        bytes = bytes.saturating_add(each.saturating_mul(load.pairs.len() as u64));
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

fn hosts(reader: &Reader<'_>, key: &'static str, network: &Network) -> Vec<usize> {
    let names: Vec<String> = reader.get(key);
    let mut found: Vec<usize> = Vec::new();
    for name in names {
        match network.hosts.iter().position(|h| *h == name) {
            Some(n) if found.contains(&n) => reader.say(key, format!("has \"{name}\" twice")),
            Some(n) => found.push(n),
            None => {
                let hint = hint(&name, network.hosts.iter().map(String::as_str));
                let hint = match hint.is_empty() {
                    true => format!("; the hosts are {}", list(&network.hosts)),
                    false => hint,
                };
                reader.say(key, format!("names no host \"{name}\"{hint}"));
            }
        }
    }
    found
}

/// The first few names.
pub(super) fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}
