//! `[[link-event]]` and `[[route]]`: links that go down, and switches that send packets astray.

use super::choices::choices;
use super::diagnostic::{Sink, hint};
use super::reader::Reader;
use super::schema::{Key, Kind, Section};
use super::topology::{End, Network, WayId};
use super::traffic::list;
use crate::units::Span;

const LONGEST: u64 = 1_000_000_000_000_000;

/// The most times that one `[[link-event]]` takes a link down.
const MOST: u64 = 10_000;

/// The most times that links go down in a run.
const MOST_ALL: u64 = 100_000;

choices! {
    /// Where a switch sends the packets to a host.
    pub enum Going {
        /// By some of its links.
        Via = "via",
        /// To all its ports but the one they came by.
        Flood = "flood",
        /// Nowhere.
        Drop = "drop",
    }
}

pub(super) static ROUTE: Section = Section {
    title: "[[route]]",
    about: "Where a switch sends the packets to some hosts, in place of the shortest paths: loops, detours and \
            addresses that have not been learned.",
    named: None,
    keys: &[
        Key::optional(
            "name",
            Kind::Name,
            "`route-0`, `route-1`, ...",
            "What it is called in paths.",
        ),
        Key::required("switch", Kind::Name, "Which switch."),
        Key::required("to", Kind::Names, "The hosts that its packets are for."),
        Key::with(
            "action",
            Kind::Choice(Going::NAMES),
            "via",
            "What it does with them: sends them by the links of `via`, to all its ports but the one they came by \
             (as switches do with an address that is not in their table), or drops them. Hosts drop what is \
             not for them.",
        ),
        Key::optional(
            "via",
            Kind::Links,
            "required with `via`",
            "Links of the switch, by name or by the direction away from it; of several each flow takes the one that \
             its hash says.",
        )
        .only("action", &["via"]),
    ],
};

pub(super) static LINK_EVENT: Section = Section {
    title: "[[link-event]]",
    about: "A link that goes down, and perhaps comes up again, once or several times. What is on it, waits for it or is \
            sent on it while it is down is lost, and with it the pauses in both directions.",
    named: None,
    keys: &[
        Key::optional(
            "name",
            Kind::Name,
            "`link-event-0`, `link-event-1`, ...",
            "What it is called in paths.",
        ),
        Key::required(
            "link",
            Kind::Links,
            "Which link, or a list of them: both directions.",
        ),
        Key::required("at", Kind::Span(0, LONGEST), "When it first goes down."),
        Key::optional(
            "down-for",
            Kind::Span(1, LONGEST),
            "for ever",
            "How long it stays down.",
        ),
        Key::with(
            "times",
            Kind::Count(1, MOST),
            "1",
            "How many times it goes down.",
        ),
        Key::optional(
            "every",
            Kind::Span(1, LONGEST),
            "twice `down-for`",
            "From one time to the next.",
        ),
        Key::with(
            "reroute",
            Kind::Span(0, LONGEST),
            "1ms",
            "How long after each change the routes of all switches take note of it.",
        ),
    ],
};

/// Where a switch sends the packets to some hosts.
#[derive(Clone, PartialEq, Debug)]
pub struct Route {
    /// What it is called.
    pub name: String,
    /// The switch, by its index.
    pub switch: usize,
    /// The hosts, by their index.
    pub to: Vec<usize>,
    /// Where it sends them.
    pub going: Going,
    /// By which links, away from the switch.
    pub via: Vec<WayId>,
}

/// Links that go down.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkEvent {
    /// What it is called.
    pub name: String,
    /// The links, by their index.
    pub links: Vec<usize>,
    /// When they first go down.
    pub at: Span,
    /// How long they stay down; `None` for ever.
    pub down_for: Option<Span>,
    /// How many times.
    pub times: u64,
    /// From one time to the next.
    pub every: Span,
    /// Until routes take note.
    pub reroute: Span,
}

/// Reads where switches send packets.
pub(super) fn read_routes(root: &Reader<'_>, network: &Network, sink: &Sink) -> Vec<Route> {
    let mut all: Vec<Route> = Vec::new();
    for (n, (table, origin)) in root.tables("route").into_iter().enumerate() {
        let label = super::scenario::label("route", n, table);
        let reader = Reader::new(&ROUTE, table, origin, label, sink);
        let name = super::scenario::name(&reader, n, "route", all.iter().map(|r| &r.name));
        let going = reader.get("action");
        let hosts = reader.get::<Vec<String>>("to").into_iter();
        let to = hosts.filter_map(|host| {
            let found = network.hosts.iter().position(|h| *h == host);
            if found.is_none() {
                let hint = hint(&host, network.hosts.iter().map(String::as_str));
                reader.say("to", format_args!("has \"{host}\", which is no host{hint}"));
            }
            found
        });
        let to = to.collect();
        let name_of: String = reader.get("switch");
        let mut switches = network.switches.iter();
        let Some(switch) = switches.position(|s| s.name == name_of) else {
            if reader.has("switch") {
                let hint = hint(&name_of, network.switches.iter().map(|s| s.name.as_str()));
                reader.say("switch", format_args!("is no switch{hint}"));
            }
            continue;
        };
        let via = via(&reader, network, switch);
        if going == Going::Via && !reader.has("via") {
            sink.say(
                origin,
                format!("{} has no \"via\", the links to go by", reader.label()),
            );
        }
        all.push(Route {
            name,
            switch,
            to,
            going,
            via,
        });
    }
    all
}

/// The links that a route goes by, each in the direction away from its switch.
fn via(reader: &Reader<'_>, network: &Network, switch: usize) -> Vec<WayId> {
    if !reader.has("via") {
        return Vec::new();
    }
    let from = |&way: &WayId| network.from(way) == End::Switch(switch);
    let ways = super::fault::ways(reader, "via", network);
    let own: Vec<WayId> = ways.iter().copied().filter(from).collect();
    let strange = ways.iter().find(|w| !own.iter().any(|o| o.link == w.link));
    if let Some(&way) = strange {
        let mut links: Vec<String> = Vec::new();
        for way in network.ways().filter(from) {
            links.push(network.links[way.link].name.clone());
        }
        reader.say(
            "via",
            format_args!(
                "has \"{}\", which does not lead away from switch \"{}\"; its links are {}",
                network.way_name(way),
                network.switches[switch].name,
                list(&links)
            ),
        );
    }
    own
}

/// Reads the links that go down.
pub(super) fn read(root: &Reader<'_>, network: &Network, sink: &Sink) -> Vec<LinkEvent> {
    let mut all: Vec<LinkEvent> = Vec::new();
    let mut changes = 0u64;
    for (n, (table, origin)) in root.tables("link-event").into_iter().enumerate() {
        let label = super::scenario::label("link-event", n, table);
        let reader = Reader::new(&LINK_EVENT, table, origin, label, sink);
        let taken = all.iter().map(|e| &e.name);
        let name = super::scenario::name(&reader, n, "link-event", taken);
        let ways = super::fault::ways(&reader, "link", network);
        let mut links: Vec<usize> = ways.iter().map(|w| w.link).collect();
        links.dedup();
        let single = links
            .iter()
            .find(|&&l| ways.iter().filter(|w| w.link == l).count() == 1);
        if let Some(&link) = single {
            reader.say(
                "link",
                format_args!(
                    "has one direction of \"{}\"; a link goes down in both",
                    network.links[link].name
                ),
            );
        }
        let down_for: Option<Span> = reader.opt("down-for");
        let times: u64 = reader.get("times");
        changes = changes.saturating_add(times.saturating_mul(links.len() as u64));
        if changes > MOST_ALL {
            reader.say(
                "times",
                format_args!("makes {changes} failures of links; all together may be {MOST_ALL}"),
            );
        }
        let twice = down_for.map_or(Span::ZERO, |d| d * 2);
        let every: Span = reader.opt("every").unwrap_or(twice);
        match down_for {
            None => {
                for name in ["times", "every"].into_iter().filter(|n| reader.has(n)) {
                    reader.say(name, "means nothing without \"down-for\"");
                }
            }
            Some(down_for) if every <= down_for => {
                reader.say(
                    "every",
                    format_args!(
                        "must be more than \"down-for\", {}",
                        crate::units::print_span(down_for)
                    ),
                );
            }
            Some(_) => {
                if reader.has("every") && !reader.has("times") {
                    reader.say("every", "means nothing without \"times\"");
                }
            }
        }
        all.push(LinkEvent {
            name,
            links,
            at: reader.get("at"),
            down_for,
            times,
            every,
            reroute: reader.get("reroute"),
        });
    }
    all
}
