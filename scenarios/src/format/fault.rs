//! `[[fault]]` and `[[capture]]`: what goes wrong on links, and what is recorded there.

use super::choices::choices;
use super::diagnostic::{Sink, hint};
use super::document::{Node, Value};
use super::reader::{Field, Reader, is_too_many, too_many};
use super::schema::{Key, Kind, Section};
use super::topology::{Network, WayId};
use super::traffic::{Traffic, list};
use crate::units::{Probability, Span};

choices! {
    /// How a fault picks its packets.
    pub enum FaultKind {
        /// Each packet by itself with the same probability.
        Loss = "loss",
        /// In bursts: the Gilbert-Elliott chain of a good and a bad state.
        Burst = "burst",
        /// Every n-th packet.
        Every = "every",
        /// All that are looked at.
        Exact = "exact",
    }
}

choices! {
    /// What happens to a packet that was picked.
    pub enum ActionKind {
        /// It disappears.
        Drop = "drop",
        /// Bits flip on the link: the FCS at the next receiver catches it.
        Corrupt = "corrupt",
        /// Bits flip inside a device, before the FCS is made: the ICRC at the destination catches it.
        CorruptDevice = "corrupt-device",
        /// Its ECN field says that it met congestion.
        MarkEcn = "mark-ecn",
        /// It arrives twice.
        Duplicate = "duplicate",
        /// It arrives later.
        Delay = "delay",
        /// It lets others pass.
        Reorder = "reorder",
    }
}

choices! {
    /// A class of packets.
    pub enum PacketClass {
        /// Every packet.
        Any = "any",
        /// Packets with payload: SEND, WRITE and READ responses.
        Data = "data",
        /// Requests of any kind.
        Request = "request",
        /// READ requests.
        ReadRequest = "read-request",
        /// READ responses.
        ReadResponse = "read-response",
        /// Acknowledgements, positive and negative.
        Ack = "ack",
        /// NAKs, those for RNR among them.
        Nak = "nak",
        /// Congestion notifications.
        Cnp = "cnp",
    }
}

pub(super) static FAULT: Section = Section {
    title: "[[fault]]",
    about: "Something that goes wrong on links. Each fault has random numbers of its own, so that one \
            more changes nothing of the others; the faults of a link act in the order of the file.",
    named: None,
    keys: &[
        Key::optional(
            "name",
            Kind::Name,
            "`fault-0`, `fault-1`, ...",
            "What it is called in expectations, paths and the report.",
        ),
        Key::required(
            "link",
            Kind::Links,
            "Where: a link (both directions, each counted by itself) or one direction; or a list.",
        ),
        Key::with(
            "kind",
            Kind::Choice(FaultKind::NAMES),
            "loss",
            "How packets are picked of those that are looked at: each with one probability, in bursts \
             (Gilbert-Elliott), every n-th, or all of them (`exact`, with keys that say which packets).",
        ),
        Key::with(
            "action",
            Kind::Choice(ActionKind::NAMES),
            "drop",
            "What happens to them. `corrupt` flips bits on the link (the FCS catches it), \
             `corrupt-device` inside a device (the ICRC does); `mark-ecn` sets congestion experienced.",
        ),
        Key::with(
            "packets",
            Kind::Choice(PacketClass::NAMES),
            "any",
            "Which packets are looked at and counted; others pass. `data` are packets with payload, `ack` \
             ACKs and NAKs.",
        ),
        Key::with(
            "rate",
            Kind::Probability,
            "0",
            "Probability that a packet is picked.",
        )
        .only("kind", &["loss"]),
        Key::with(
            "enter",
            Kind::Probability,
            "0",
            "Probability that a packet in the good state turns it bad (p).",
        )
        .only("kind", &["burst"]),
        Key::with(
            "leave",
            Kind::Probability,
            "1",
            "Probability that a packet in the bad state turns it good (r): bursts are 1/r packets long.",
        )
        .only("kind", &["burst"]),
        Key::with(
            "rate-good",
            Kind::Probability,
            "0",
            "Probability that a packet is picked in the good state.",
        )
        .only("kind", &["burst"]),
        Key::with(
            "rate-bad",
            Kind::Probability,
            "1",
            "Probability that a packet is picked in the bad state.",
        )
        .only("kind", &["burst"]),
        Key::with(
            "every",
            Kind::Count(1, 1 << 40),
            "256",
            "One packet in so many is picked.",
        )
        .only("kind", &["every"]),
        Key::optional(
            "phase",
            Kind::Count(1, 1 << 40),
            "`every`",
            "The first packet that is picked, counted from 1; at most `every`.",
        )
        .only("kind", &["every"]),
        Key::optional(
            "traffic",
            Kind::Name,
            "any",
            "Only packets for this load, in either direction.",
        ),
        Key::with(
            "qp",
            Kind::Count(0, 65_535),
            "0",
            "Which queue pair of the load, from 0: pair of hosts by pair, `qps` each.",
        ),
        Key::optional(
            "psn",
            Kind::Count(0, 0xff_ffff),
            "any",
            "PSN of the packet, as on the wire.",
        ),
        Key::optional(
            "psn-offset",
            Kind::Count(0, 0xff_ffff),
            "any",
            "PSN of the packet, counted from the first one that is seen of the queue pair there, \
             which is 0.",
        ),
        Key::optional(
            "copy",
            Kind::Count(1, u32::MAX as u64),
            "every sighting",
            "The n-th time that a packet of this PSN is seen in this direction, from 1.",
        ),
        Key::optional(
            "round",
            Kind::Count(1, u32::MAX as u64),
            "every round",
            "The transmission round, from 1; each backward jump of the PSN begins a new one.",
        ),
        Key::optional(
            "at-most",
            Kind::Count(1, 1 << 40),
            "no limit",
            "After so many hits the fault does nothing more.",
        ),
        Key::with(
            "by",
            Kind::Span(0, 10_000_000_000_000),
            "10us",
            "How much later a delayed packet arrives, or the copy of a duplicated one.",
        )
        .only("action", &["delay", "duplicate"]),
        Key::with(
            "behind",
            Kind::Count(1, 65_536),
            "1",
            "How many packets a reordered packet lets pass.",
        )
        .only("action", &["reorder"]),
        Key::with(
            "hold",
            Kind::Span(1, 10_000_000_000_000),
            "100us",
            "The longest it is held back, if not so many follow.",
        )
        .only("action", &["reorder"]),
    ],
};

pub(super) static CAPTURE: Section = Section {
    title: "[[capture]]",
    about: "A recording of links as a pcapng file, written if the run is given a directory (`--out`).",
    named: None,
    keys: &[
        Key::required(
            "link",
            Kind::Links,
            "Where: a link, one direction of it, or a list; one interface for each direction.",
        ),
        Key::optional(
            "name",
            Kind::Name,
            "`capture-0`, `capture-1`, ...",
            "What the file is called: SCENARIO-NAME.pcapng, and at the third point of a sweep \
             SCENARIO-3-NAME.pcapng.",
        ),
        Key::optional(
            "packets",
            Kind::Count(1, 1 << 40),
            "no limit",
            "Nothing is recorded after so many packets.",
        ),
    ],
};

/// Something that goes wrong on links.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// Its name.
    pub name: String,
    /// Where.
    pub ways: Vec<WayId>,
    /// Index of the load whose packets alone are looked at, and of the queue pair in it.
    pub queue_pair: Option<(usize, u32)>,
    /// What it does there.
    pub injection: Injection,
}

/// What a fault does, wherever it does it.
#[derive(Clone, PartialEq, Debug)]
pub struct Injection {
    /// Which packets are looked at.
    pub filter: Filter,
    /// Which of those are picked.
    pub pick: Pick,
    /// What happens to them.
    pub action: Action,
    /// After so many hits it does nothing more.
    pub at_most: Option<u64>,
}

/// How a fault picks its packets.
#[derive(Clone, PartialEq, Debug)]
pub enum Pick {
    /// Each by itself with this probability.
    Loss(Probability),
    /// Gilbert-Elliott.
    Burst {
        /// From good to bad, at each packet.
        enter: Probability,
        /// From bad to good, at each packet.
        leave: Probability,
        /// Picked in the good state.
        rate_good: Probability,
        /// Picked in the bad state.
        rate_bad: Probability,
    },
    /// The packets `phase`, `phase + every`, ..., counted from 1.
    Every {
        /// Distance.
        every: u64,
        /// The first, at most `every`.
        phase: u64,
    },
    /// All of them.
    All,
}

/// Which packets a fault looks at; what is `None` fits every packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// What they are.
    pub packets: PacketClass,
    /// PSN.
    pub psn: Option<PsnPick>,
    /// The n-th sighting of the PSN, from 1.
    pub copy: Option<u32>,
    /// The transmission round, from 1.
    pub round: Option<u32>,
}

impl Filter {
    /// True if it means certain packets and not a class of them.
    pub fn names_packets(&self) -> bool {
        self.psn.is_some() || self.copy.is_some() || self.round.is_some()
    }
}

/// A PSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PsnPick {
    /// As on the wire.
    Absolute(u32),
    /// So many after the first one seen of the queue pair.
    Relative(u32),
}

/// What happens to a packet that was picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It disappears.
    Drop,
    /// Bits flip on the link.
    Corrupt,
    /// Bits flip inside a device.
    CorruptDevice,
    /// Its ECN field says that it met congestion.
    MarkEcn,
    /// It arrives again after this span.
    Duplicate(Span),
    /// It arrives later by this span.
    Delay(Span),
    /// It lets others pass.
    Reorder {
        /// How many.
        behind: u32,
        /// The longest it is held back.
        hold: Span,
    },
}

/// A recording of links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capture {
    /// What its file is called, behind the name of the scenario.
    pub name: String,
    /// Where.
    pub ways: Vec<WayId>,
    /// The most packets it records.
    pub packets: Option<u64>,
}

/// A link name, or a list of them, before they are looked up.
struct LinkNames(Vec<String>);

impl Field for LinkNames {
    fn placeholder() -> LinkNames {
        LinkNames(Vec::new())
    }
    fn read(node: &Node, kind: &Kind) -> Result<LinkNames, String> {
        let one = |node: &Node| match &node.value {
            Value::Text(s) => Ok(s.clone()),
            _ => Err(format!("has {}, but must be {kind}", node.kind())),
        };
        match &node.value {
            Value::Array(list) if list.is_empty() => Err("is empty".into()),
            Value::Array(list) if is_too_many(list.len()) => Err(too_many(list.len())),
            Value::Array(list) => list
                .iter()
                .map(one)
                .collect::<Result<_, _>>()
                .map(LinkNames),
            _ => one(node).map(|s| LinkNames(vec![s])),
        }
    }
}

/// The directions of the links that `key` names, in order.
pub(super) fn ways(reader: &Reader<'_>, key: &'static str, network: &Network) -> Vec<WayId> {
    let LinkNames(names) = reader.get(key);
    let mut ways = Vec::new();
    for name in names {
        match network.find(&name) {
            Some(found) => ways.extend(found),
            None => {
                let known = network.names();
                let hint = match hint(&name, known.keys().map(String::as_str)) {
                    none if none.is_empty() => {
                        let names: Vec<_> = network.links.iter().map(|l| l.name.clone()).collect();
                        format!("; the links are {}", list(&names))
                    }
                    hint => hint,
                };
                reader.say(key, format!("names no link \"{name}\"{hint}"));
            }
        }
    }
    ways.sort();
    ways.dedup();
    ways
}

/// Reads the faults.
pub(super) fn read(
    root: &Reader<'_>,
    network: &Network,
    traffic: &[Traffic],
    sink: &Sink,
) -> Vec<Fault> {
    let mut all: Vec<Fault> = Vec::new();
    for (n, (table, origin)) in root.tables("fault").into_iter().enumerate() {
        let label = super::scenario::label("fault", n, table);
        let reader = Reader::new(&FAULT, table, origin, label, sink);
        let name = super::scenario::name(&reader, n, "fault", all.iter().map(|f| &f.name));
        all.push(Fault {
            name,
            ways: ways(&reader, "link", network),
            queue_pair: queue_pair(&reader, traffic),
            injection: injection(&reader),
        });
    }
    all
}

/// Reads what a fault does, wherever it does it.
pub(super) fn injection(reader: &Reader<'_>) -> Injection {
    let pick = match reader.get("kind") {
        FaultKind::Loss => Pick::Loss(reader.get("rate")),
        FaultKind::Burst => Pick::Burst {
            enter: reader.get("enter"),
            leave: reader.get("leave"),
            rate_good: reader.get("rate-good"),
            rate_bad: reader.get("rate-bad"),
        },
        FaultKind::Every => {
            let every = reader.get("every");
            let phase = reader.opt("phase").unwrap_or(every);
            if phase > every {
                reader.say("phase", format!("must be at most \"every\", {every}"));
            }
            Pick::Every { every, phase }
        }
        FaultKind::Exact => Pick::All,
    };
    Injection {
        filter: filter(reader),
        pick,
        action: match reader.get("action") {
            ActionKind::Drop => Action::Drop,
            ActionKind::Corrupt => Action::Corrupt,
            ActionKind::CorruptDevice => Action::CorruptDevice,
            ActionKind::MarkEcn => Action::MarkEcn,
            ActionKind::Duplicate => Action::Duplicate(reader.get("by")),
            ActionKind::Delay => Action::Delay(reader.get("by")),
            ActionKind::Reorder => Action::Reorder {
                behind: reader.get("behind"),
                hold: reader.get("hold"),
            },
        },
        at_most: reader.opt("at-most"),
    }
}

/// Index of the load, and of the queue pair in it.
fn queue_pair(reader: &Reader<'_>, traffic: &[Traffic]) -> Option<(usize, u32)> {
    let qp: u32 = reader.get("qp");
    let mut queue_pair = None;
    if let Some(name) = reader.opt::<String>("traffic") {
        match traffic.iter().position(|t| t.name == name) {
            Some(n) => {
                let pairs = u32::try_from(traffic[n].pairs.len()).unwrap_or(u32::MAX);
                let all = traffic[n].qps.saturating_mul(pairs);
                if qp >= all {
                    reader.say(
                        "qp",
                        format!("is not there: \"{name}\" has {all} queue pairs, from 0"),
                    );
                }
                queue_pair = Some((n, qp));
            }
            None => {
                let hint = hint(&name, traffic.iter().map(|t| t.name.as_str()));
                reader.say("traffic", format!("is no load of this file{hint}"));
            }
        }
    } else if reader.has("qp") {
        reader.say("qp", "means nothing without \"traffic\"");
    }
    if reader.has("psn-offset") && !reader.has("traffic") {
        reader.say(
            "psn-offset",
            "counts from the first PSN of a queue pair, so \"traffic\" must name a load",
        );
    }
    queue_pair
}

fn filter(reader: &Reader<'_>) -> Filter {
    let offset: Option<u32> = reader.opt("psn-offset");
    let psn: Option<u32> = reader.opt("psn");
    if psn.is_some() && offset.is_some() {
        reader.say("psn-offset", "stands beside a \"psn\"; give one of the two");
    }
    let absolute = psn.map(PsnPick::Absolute);
    Filter {
        packets: reader.get("packets"),
        psn: absolute.or(offset.map(PsnPick::Relative)),
        copy: reader.opt("copy"),
        round: reader.opt("round"),
    }
}

/// Reads the captures.
pub(super) fn read_captures(root: &Reader<'_>, network: &Network, sink: &Sink) -> Vec<Capture> {
    let mut all: Vec<Capture> = Vec::new();
    for (n, (table, origin)) in root.tables("capture").into_iter().enumerate() {
        let label = super::scenario::label("capture", n, table);
        let reader = Reader::new(&CAPTURE, table, origin, label, sink);
        let name = super::scenario::name(&reader, n, "capture", all.iter().map(|c| &c.name));
        all.push(Capture {
            name,
            ways: ways(&reader, "link", network),
            packets: reader.opt("packets"),
        });
    }
    all
}
