//! `[receiver]`: hosts that take in packets slowly, or not at all.

use super::diagnostic::Sink;
use super::reader::Reader;
use super::schema::{Key, Kind, Section};
use super::switch::Priorities;
use super::topology::{End, Network};
use crate::units::{Probability, Rate, Size, Span};

const BYTES: Kind = Kind::Size(0, 1 << 40);
const LONGEST: u64 = 1_000_000_000_000_000;

pub(super) static RECEIVER: Section = Section {
    title: "[receiver]",
    about: "How every host takes in packets. Without `rate`, `packet-time`, `miss-time` and `dead-from` it does so at \
            once; otherwise they wait in a pipeline, and the host pauses whoever sends to it before that is full.",
    named: Some("receiver"),
    keys: &[
        Key::optional(
            "rate",
            super::topology::RATE,
            "as fast as they come",
            "Frames are taken out at this rate.",
        ),
        Key::with(
            "packet-time",
            Kind::Span(0, LONGEST),
            "0ps",
            "Each packet takes so long, whatever its length.",
        ),
        Key::with(
            "miss-time",
            Kind::Span(0, LONGEST),
            "0ps",
            "A packet takes so much longer if the card does not have the translation of its address and must \
             fetch it.",
        ),
        Key::optional(
            "misses",
            Kind::Probability,
            "`entries`",
            "Share of packets for which that is so.",
        ),
        Key::with(
            "entries",
            Kind::Count(1, 1 << 32),
            "2048",
            "Translations that the card has at hand, one for a page each. Packets go to any page of `memory` \
             alike, so that 1 - `entries` x `page` / `memory` of them miss.",
        ),
        Key::with(
            "page",
            Kind::Size(1, 1 << 40),
            "4KiB",
            "Size of the pages that memory is registered in.",
        ),
        Key::with(
            "memory",
            Kind::Size(1, 1 << 50),
            "1GiB",
            "Memory that packets go to.",
        ),
        Key::with(
            "buffer",
            BYTES,
            "512KiB",
            "What the pipeline holds; what comes beyond that is dropped.",
        ),
        Key::optional(
            "xoff",
            BYTES,
            "half of `buffer`",
            "When more than this waits, the host pauses whoever sends to it.",
        ),
        Key::optional(
            "xon",
            BYTES,
            "8KiB below `xoff`",
            "When no more than this waits, they may go on.",
        ),
        Key::optional(
            "pauses",
            Kind::Priorities,
            "`lossless` of its switch, or all",
            "Priorities that the host pauses.",
        ),
        Key::optional(
            "dead-from",
            Kind::Span(0, LONGEST),
            "never",
            "From here on nothing comes out of the pipeline, and the host pauses for ever.",
        ),
        Key::with(
            "watchdog",
            Kind::Span(0, LONGEST),
            "0ps",
            "How long after that the card notices and stops to pause; 0 is never.",
        ),
    ],
};

/// How a host takes in packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Receiver {
    /// What each packet takes.
    pub service: Service,
    /// What the pipeline holds.
    pub buffer: Size,
    /// Above this the host pauses.
    pub xoff: Size,
    /// Down to this it does.
    pub xon: Size,
    /// What it pauses, a bit for each priority.
    pub priorities: u8,
    /// From when on nothing comes out.
    pub dead_from: Option<Span>,
    /// How long after that the card notices.
    pub watchdog: Option<Span>,
}

/// What a packet takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Service {
    /// Its frame at a rate.
    Rate(Rate),
    /// A time, and more at a miss.
    Time {
        /// Each packet.
        packet: Span,
        /// A miss beyond that.
        miss: Span,
        /// Share of misses.
        misses: Probability,
    },
}

/// Reads the receiver of each host, in the order of the hosts.
pub(super) fn read(root: &Reader<'_>, network: &Network, sink: &Sink) -> Vec<Option<Receiver>> {
    let (table, origin) = root.table("receiver");
    let base = Reader::new(&RECEIVER, table, origin, "[receiver]", sink);
    let lossless = lossless(network);
    let mut all: Vec<_> = lossless.iter().map(|&own| receiver(&base, own)).collect();
    let hosts = network.hosts_by_name();
    for (entry, inner) in base.named() {
        let label = format!("[receiver.{}]", entry.key);
        let reader = Reader::new(&RECEIVER, inner, entry.node.origin, label, sink);
        let reader = reader.inherit(table, "[receiver]");
        if let Some(n) = hosts.find(entry, &RECEIVER, sink) {
            all[n] = receiver(&reader, lossless[n]);
        }
    }
    all
}

/// For each host the lossless priorities of the switch that it is on; all if there is none with any.
fn lossless(network: &Network) -> Vec<u8> {
    let mut all = vec![u8::MAX; network.hosts.len()];
    for link in &network.links {
        for (host, other) in [(link.a, link.b), (link.b, link.a)] {
            if let (End::Host(h), End::Switch(s)) = (host, other)
                && let Some(pfc) = network.switches[s].pfc
            {
                all[h] = pfc.priorities;
            }
        }
    }
    all
}

/// Keys one of which makes a pipeline.
const MAKE: [&str; 4] = ["rate", "packet-time", "miss-time", "dead-from"];

fn receiver(reader: &Reader<'_>, lossless: u8) -> Option<Receiver> {
    // Read in any case, so that what is wrong is found.
    let buffer: Size = reader.get("buffer");
    let xoff = reader.opt("xoff").unwrap_or(Size(buffer.0 / 2));
    let xon = reader.opt("xon");
    let xon = xon.unwrap_or(Size(xoff.0.saturating_sub(8 << 10)));
    let Priorities(priorities) = reader.opt("pauses").unwrap_or(Priorities(lossless));
    let dead_from = reader.opt("dead-from");
    let watchdog: Span = reader.get("watchdog");
    let service = service(reader);
    if !MAKE.iter().any(|name| reader.has(name)) {
        let needs = MAKE.map(|name| format!("\"{name}\"")).join(", ");
        for name in RECEIVER.names().filter(|name| reader.has(name)) {
            reader.say(
                name,
                format_args!("means nothing without one of {needs}: the host has no pipeline"),
            );
        }
        return None;
    }
    if xoff > buffer {
        reader.say("xoff", format_args!("is above \"buffer\", {buffer}"));
    }
    if xon > xoff {
        reader.say("xon", format_args!("is above \"xoff\", {xoff}"));
    }
    if reader.has("watchdog") && !reader.has("dead-from") {
        reader.say("watchdog", "means nothing without \"dead-from\"");
    }
    Some(Receiver {
        service,
        buffer,
        xoff,
        xon,
        priorities,
        dead_from,
        watchdog: (watchdog > Span::ZERO).then_some(watchdog),
    })
}

fn service(reader: &Reader<'_>) -> Service {
    let packet = reader.get("packet-time");
    let miss: Span = reader.get("miss-time");
    let misses = reader.opt("misses");
    let entries: u64 = reader.get("entries");
    let page: Size = reader.get("page");
    let memory: Size = reader.get("memory");
    let without = |names: &[&str], other: &str| {
        for name in names.iter().filter(|name| reader.has(name)) {
            reader.say(name, format_args!("means nothing {other}"));
        }
    };
    if !reader.has("miss-time") {
        without(
            &["misses", "entries", "page", "memory"],
            "without \"miss-time\"",
        );
    }
    if misses.is_some() {
        without(&["entries", "page", "memory"], "beside \"misses\"");
    }
    if let Some(rate) = reader.opt("rate") {
        without(&["packet-time", "miss-time"], "beside \"rate\"");
        return Service::Rate(rate);
    }
    let covered = entries.saturating_mul(page.0).min(memory.0);
    let share = (memory.0 - covered) as f64 / memory.0.max(1) as f64;
    Service::Time {
        packet,
        miss,
        // A share is from 0 to 1.
        misses: misses.unwrap_or(Probability::new(share).unwrap_or(Probability::ZERO)),
    }
}
