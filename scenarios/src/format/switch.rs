//! `[switch]`: buffers, priority-based flow control, ECN and scheduling.

use super::choices::choices;
use super::diagnostic::Sink;
use super::reader::Reader;
use super::schema::{Key, Kind, Section};
use super::topology::{End, Network};
use crate::units::{Probability, Ratio, Size, Span};
use softroce_sim::card::PriorityMask;
use softroce_sim::fabric::{self, EcnSpec, Headroom, PfcSpec, SwitchError, SwitchSpec};
use std::collections::BTreeSet;

choices! {
    /// Where the priority of a packet comes from.
    pub enum Trust {
        /// The priority that its sender gave it, as a VLAN tag carries it.
        Priority = "priority",
        /// The upper three bits of its DSCP, the class selector.
        Dscp = "dscp",
    }
}

const BYTES: Kind = Kind::Size(0, 1 << 40);

pub(super) static SWITCH: Section = Section {
    title: "[switch]",
    about: "What every switch is like. Without `lossless` there is no flow control, without `ecn-kmin` no mark. \
            Bytes are those of Ethernet frames with FCS.",
    named: Some("switch"),
    keys: &[
        Key::with(
            "queue",
            Kind::Size(2048, 1 << 40),
            "1MiB",
            "Bytes each output port can queue in priorities that are not lossless; a frame that does not \
             fit is dropped at the tail.",
        ),
        Key::optional(
            "buffer",
            Kind::Size(2048, 1 << 40),
            "more than is ever needed",
            "Memory that all ports share: reserves, headroom, and the pool that is what these leave.",
        ),
        Key::with(
            "reserved",
            BYTES,
            "0B",
            "Bytes of the buffer set aside for what came in by each port in each priority.",
        ),
        Key::optional(
            "lossy-share",
            Kind::Ratio,
            "no limit but `queue`",
            "What one queue of a lossy priority may hold, as a multiple of what is free in the pool.",
        ),
        Key::optional(
            "lossless",
            Kind::Priorities,
            "none",
            "Priorities with flow control (IEEE 802.1Qbb): whoever sends too much of them is paused, and \
             none is dropped while the headroom lasts. Their pauses are obeyed.",
        ),
        Key::optional(
            "pfc-threshold",
            BYTES,
            "`pfc-share`",
            "Bytes that may wait, of what came in by one port in one priority, before its sender is paused.",
        ),
        Key::optional(
            "pfc-share",
            Kind::Ratio,
            "1/8",
            "The same as a multiple of what is free in the pool, often called alpha; it needs a `buffer`.",
        ),
        Key::with(
            "pfc-resume",
            BYTES,
            "8KiB",
            "How far below its threshold it must be before the sender is let go again.",
        ),
        Key::optional(
            "headroom",
            BYTES,
            "what the link needs",
            "Room for what still comes after a pause was asked for, for each port and lossless priority. \
             Without: bytes on the cable both ways, the response of the peer, three longest frames of the link (one \
             that crosses the threshold, one in the way of the pause, one that the peer has begun), and the pause frame; what is \
             flooded or goes to a group takes room for each copy that waits, and so needs more.",
        ),
        Key::with(
            "pfc-quanta",
            Kind::Count(1, 65_535),
            "65535",
            "How long a pause lasts if nothing more is said, from when its frame arrives, in the time of 512 bits each.",
        ),
        Key::optional(
            "pfc-refresh",
            Kind::Span(1, 10_000_000_000_000),
            "half the pause",
            "After how long a pause is asked for again.",
        ),
        Key::with(
            "pfc-watchdog",
            Kind::Span(0, 1_000_000_000_000_000),
            "0ps",
            "A port that has been paused for so long, with something waiting all the time, is taken for stuck: \
             what waits there and what comes for it is dropped, and its pauses are ignored. 0 is never.",
        ),
        Key::with(
            "pfc-restore",
            Kind::Span(1, 1_000_000_000_000_000),
            "200ms",
            "A port that was taken for stuck is trusted again when no pause has come for so long.",
        ),
        Key::optional(
            "ecn-kmin",
            BYTES,
            "no marks",
            "Bytes in an output queue up to which no packet is marked \"congestion experienced\".",
        ),
        Key::optional(
            "ecn-kmax",
            BYTES,
            "`ecn-kmin`",
            "Bytes above which every packet is marked.",
        ),
        Key::with(
            "ecn-pmax",
            Kind::Probability,
            "1",
            "Share of packets marked at `ecn-kmax`; between the two it rises linearly from 0.",
        ),
        Key::optional(
            "ecn-priorities",
            Kind::Priorities,
            "all",
            "Priorities whose queues mark.",
        ),
        Key::optional(
            "weights",
            Kind::Weights,
            "all strict",
            "A weight for each priority from 0 to 7: its share of what the strict priorities leave of a \
             port, by deficit round robin in bytes. 0 is strict: it goes first, the highest before all.",
        ),
        Key::with(
            "trust",
            Kind::Choice(Trust::NAMES),
            "priority",
            "Where the priority of a packet comes from: as it was sent, or the upper three bits of its DSCP.",
        ),
    ],
};

/// A switch.
#[derive(Clone, PartialEq, Debug)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// Bytes each output port can queue in lossy priorities.
    pub queue: Size,
    /// Bytes that all ports share; `None` for more than is ever needed.
    pub buffer: Option<Size>,
    /// Bytes set aside for each port and priority.
    pub reserved: Size,
    /// What one lossy queue may hold, as a multiple of what is free.
    pub lossy_share: Option<Ratio>,
    /// Priority-based flow control.
    pub pfc: Option<Pfc>,
    /// When it marks.
    pub ecn: Option<Ecn>,
    /// By priority: its weight, 0 for strict.
    pub weights: [u8; 8],
    /// Where priorities come from.
    pub trust: Trust,
}

/// Priority-based flow control of a switch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pfc {
    /// The lossless priorities, as a bit each.
    pub priorities: u8,
    /// When a sender is paused.
    pub threshold: Threshold,
    /// How far below that it is let go.
    pub resume: Size,
    /// Room for what comes after; `None` for what the link needs.
    pub headroom: Option<Size>,
    /// How long a pause lasts, in the time of 512 bits each.
    pub quanta: u16,
    /// After how long it is asked for again.
    pub refresh: Option<Span>,
    /// What is done about ports that are paused for too long.
    pub watchdog: Option<Watchdog>,
}

/// When a port is taken for stuck, and when it is trusted again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Watchdog {
    /// For how long it has been paused.
    pub after: Span,
    /// For how long no pause has come.
    pub restore: Span,
}

/// When a sender is paused.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Threshold {
    /// Above so many bytes.
    Bytes(Size),
    /// Above a multiple of what is free in the pool.
    Share(Ratio),
}

/// When a switch marks a packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ecn {
    /// The priorities that mark, as a bit each.
    pub priorities: u8,
    /// Bytes up to which none is marked.
    pub kmin: Size,
    /// Bytes above which all are.
    pub kmax: Size,
    /// Share at `kmax`.
    pub pmax: Probability,
}

impl Trust {
    /// By DSCP: the priority that a switch treats packets as; `None` if it is the one they were sent with.
    fn classes(self) -> Option<[u8; 64]> {
        match self {
            Trust::Priority => None,
            Trust::Dscp => Some(std::array::from_fn(|dscp| dscp as u8 >> 3)),
        }
    }

    /// The priority that a switch treats a packet as that was sent with these.
    pub(crate) fn class(self, priority: u8, dscp: u8) -> u8 {
        self.classes()
            .map_or(priority, |classes| classes[usize::from(dscp & 63)])
    }
}

impl Switch {
    /// As the simulator has it.
    pub(crate) fn spec(&self) -> SwitchSpec {
        let mut spec = SwitchSpec {
            buffer: self.buffer.map_or(u64::MAX, |b| b.0),
            reserved: self.reserved.0,
            lossy_share: self.lossy_share.and_then(ratio),
            pfc: self.pfc.map(|pfc| pfc.spec()),
            weights: self.weights,
            classes: self.trust.classes(),
            ..SwitchSpec::tail_drop(self.queue.0)
        };
        if let Some(ecn) = self.ecn {
            let marks = PriorityMask(ecn.priorities);
            for (priority, slot) in (0..8).zip(&mut spec.ecn) {
                *slot = marks.contains(priority).then_some(EcnSpec {
                    kmin: ecn.kmin.0,
                    kmax: ecn.kmax.0,
                    pmax: ecn.pmax.draw(),
                });
            }
        }
        spec
    }
}

/// The reader has looked at it.
fn ratio(ratio: Ratio) -> Option<fabric::Ratio> {
    let (numerator, denominator) = ratio.fraction()?;
    fabric::Ratio::new(numerator, denominator)
}

impl Pfc {
    /// As the simulator has it.
    pub(crate) fn spec(&self) -> PfcSpec {
        PfcSpec {
            resume: self.resume.0,
            headroom: match self.headroom {
                Some(bytes) => Headroom::Bytes(bytes.0),
                None => Headroom::Auto,
            },
            quanta: self.quanta,
            refresh: self.refresh,
            watchdog: self.watchdog.map(|w| fabric::Watchdog {
                after: w.after,
                restore: w.restore,
            }),
            ..PfcSpec::new(
                PriorityMask(self.priorities),
                match self.threshold {
                    Threshold::Bytes(bytes) => fabric::Threshold::Static(bytes.0),
                    Threshold::Share(share) => ratio(share)
                        .map_or(fabric::Threshold::Static(0), fabric::Threshold::Dynamic),
                },
            )
        }
    }
}

/// Reads the switches called `names`.
pub(super) fn read(root: &Reader<'_>, names: Vec<String>, sink: &Sink) -> Vec<Switch> {
    let (table, origin) = root.table("switch");
    let base = Reader::new(&SWITCH, table, origin, "[switch]", sink);
    // Read even if there is no switch, so that what is wrong is found.
    let standard = switch(&base, String::new());
    let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    for (entry, inner) in base.named() {
        let label = format!("[switch.{}]", entry.key);
        Reader::new(&SWITCH, inner, entry.node.origin, label, sink);
        if !known.contains(entry.key.as_str()) {
            let hint = sink.hint(&entry.key, || known.iter().copied());
            let hint = hint.unwrap_or_default();
            sink.say(
                entry.key_origin,
                format!("there is no switch \"{}\"{hint}", entry.key),
            );
        }
    }
    names
        .into_iter()
        .map(|name| {
            let own = table.get(&name).and_then(|e| Some((e, e.node.table()?)));
            match own {
                Some((entry, inner)) => {
                    let label = format!("[switch.{name}]");
                    let reader = Reader::new(&SWITCH, inner, entry.node.origin, label, sink);
                    switch(&reader.inherit(table, "[switch]"), name)
                }
                None => Switch {
                    name,
                    ..standard.clone()
                },
            }
        })
        .collect()
}

/// Headroom and reserves must fit in the buffer, port by port.
pub(super) fn check_buffers(root: &Reader<'_>, network: &Network, sink: &Sink) {
    if !sink.is_empty() {
        return;
    }
    let (table, origin) = root.table("switch");
    let mut links = vec![Vec::new(); network.switches.len()];
    for link in &network.links {
        for end in [link.a, link.b] {
            if let End::Switch(n) = end {
                links[n].push(link.spec());
            }
        }
    }
    for (switch, links) in network.switches.iter().zip(&links) {
        let Err(error) = switch.spec().pool(links) else {
            continue;
        };
        let told = match error {
            SwitchError::Buffer { needed, .. } => format!(
                "is less than the {} that headroom and reserves of the {} ports of switch \"{}\" take",
                Size(needed),
                links.len(),
                switch.name
            ),
            other => format!("cannot be at switch \"{}\": {other}", switch.name),
        };
        let reader = Reader::unchecked(&SWITCH, origin, "[switch]", sink);
        let reader = match table.get(&switch.name).and_then(|e| e.node.table()) {
            Some(own) => reader.inherit(own, format!("[switch.{}]", switch.name)),
            None => reader,
        };
        // Others are likely to have the same.
        return reader.inherit(table, "[switch]").say("buffer", told);
    }
}

fn switch(reader: &Reader<'_>, name: String) -> Switch {
    Switch {
        name,
        queue: reader.get("queue"),
        buffer: reader.opt("buffer"),
        reserved: reader.get("reserved"),
        lossy_share: share(reader, "lossy-share"),
        pfc: pfc(reader),
        ecn: ecn(reader),
        weights: reader.opt("weights").unwrap_or_default(),
        trust: reader.get("trust"),
    }
}

fn pfc(reader: &Reader<'_>) -> Option<Pfc> {
    let without = |names: &[&str], other: &str| {
        for name in names.iter().filter(|name| reader.has(name)) {
            reader.say(name, format_args!("means nothing without \"{other}\""));
        }
    };
    if !reader.has("lossless") {
        let names = [
            "pfc-threshold",
            "pfc-share",
            "pfc-resume",
            "headroom",
            "pfc-quanta",
            "pfc-refresh",
            "pfc-watchdog",
            "pfc-restore",
        ];
        without(&names, "lossless");
        return None;
    }
    let own = share(reader, "pfc-share");
    if reader.has("pfc-threshold") && reader.has("pfc-share") {
        reader.say("pfc-share", "and \"pfc-threshold\" exclude each other");
    }
    let threshold = match reader.opt("pfc-threshold") {
        Some(bytes) => Threshold::Bytes(bytes),
        None => {
            if !reader.has("buffer") && !reader.has("pfc-threshold") {
                reader.say(
                    "lossless",
                    "needs a \"pfc-threshold\", or a \"buffer\" of which \"pfc-share\" is a share",
                );
            }
            Threshold::Share(own.unwrap_or(Ratio::EIGHTH))
        }
    };
    let after: Span = reader.get("pfc-watchdog");
    let restore = reader.get("pfc-restore");
    if reader.has("pfc-restore") && !reader.has("pfc-watchdog") {
        reader.say("pfc-restore", "means nothing without \"pfc-watchdog\"");
    }
    let Priorities(priorities) = reader.opt("lossless")?;
    Some(Pfc {
        priorities,
        threshold,
        resume: reader.get("pfc-resume"),
        headroom: reader.opt("headroom"),
        quanta: reader.get("pfc-quanta"),
        refresh: reader.opt("pfc-refresh"),
        watchdog: (after > Span::ZERO).then_some(Watchdog { after, restore }),
    })
}

fn ecn(reader: &Reader<'_>) -> Option<Ecn> {
    if !reader.has("ecn-kmin") {
        for name in ["ecn-kmax", "ecn-pmax", "ecn-priorities"] {
            if reader.has(name) {
                reader.say(name, "means nothing without \"ecn-kmin\"");
            }
        }
        return None;
    }
    let kmin: Size = reader.opt("ecn-kmin")?;
    let kmax = reader.opt("ecn-kmax").unwrap_or(kmin);
    if kmin > kmax {
        reader.say("ecn-kmin", format_args!("is above \"ecn-kmax\", {kmax}"));
    }
    let Priorities(priorities) = reader.opt("ecn-priorities").unwrap_or(Priorities(u8::MAX));
    Some(Ecn {
        priorities,
        kmin,
        kmax,
        pmax: reader.get("ecn-pmax"),
    })
}

/// A ratio that the switch can keep: one of two numbers of 16 bits.
fn share(reader: &Reader<'_>, name: &'static str) -> Option<Ratio> {
    let ratio: Ratio = reader.opt(name)?;
    if ratio.fraction().is_none() {
        reader.say(
            name,
            "is no fraction of two whole numbers up to 65535, such as 1/8 or 0.125",
        );
        return None;
    }
    Some(ratio)
}

/// Some of the priorities, as a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Priorities(pub(crate) u8);
