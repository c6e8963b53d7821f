//! The whole file: its top, and a scenario as plain data.

use super::card::{self, Card};
use super::choices::choices;
use super::diagnostic::{Origin, Sink};
use super::document::{Table, Value};
use super::event::{self, LinkEvent, Route};
use super::expect::{self, Expectation};
use super::fault::{self, Capture, Fault};
use super::folder::Folder;
use super::reader::Reader;
use super::receiver::{self, Receiver};
use super::request::Transport;
use super::schema::{Key, Kind, Section};
use super::shape;
use super::sweep;
use super::switch;
use super::topology::{self, Network};
use super::traffic::{self, Traffic};
use crate::units::Span;

choices! {
    /// What packets carry.
    pub enum Payload {
        /// Bytes, which are checked where they arrive.
        Data = "data",
        /// A length alone: the same packets at the same times, for networks too big to carry data.
        Counted = "counted",
    }
}

pub(super) static ROOT: Section = Section {
    title: "",
    about: "These stand before the first table.",
    named: None,
    keys: &[
        Key::with(
            "schema",
            Kind::Count(1, 1),
            "1",
            "Version of this format. A file that gives it is refused by a program that knows another.",
        ),
        Key::optional("title", Kind::Text, "none", "What it shows, in one line."),
        Key::optional("description", Kind::Text, "none", "What happens, in a few."),
        Key::optional(
            "source",
            Kind::Text,
            "none",
            "Paper, incident or document that the numbers come from.",
        ),
        Key::optional(
            "look-at",
            Kind::Text,
            "none",
            "What to look at in the report or the capture.",
        ),
        Key::optional(
            "free",
            Kind::Text,
            "none",
            "Parameters that no source gives, and how the result moves with them.",
        ),
        Key::with(
            "seed",
            Kind::Count(0, i64::MAX as u64),
            "1",
            "Seed of every random stream: keys, first PSNs, faults. The same seed gives the same bytes.",
        ),
        Key::with(
            "stop",
            Kind::Span(1, 1_000_000_000_000_000_000),
            "10s",
            "Virtual time at which the run ends if it has not run dry before.",
        ),
        Key::with(
            "event-limit",
            Kind::Count(1, 1 << 53),
            "10000000000",
            "Events after which the run is given up, which fails it.",
        ),
        Key::optional(
            "sample",
            Kind::Span(1, 1_000_000_000_000_000),
            "never",
            "How often the goodput of each load is noted in NAME-series.csv, what waits and is paused in \
             NAME-queues.csv, and the rates of congestion control in NAME-rates.csv, in a folder for results. \
             The first 100000 are kept, and of queues and of rates the first 1000000 rows; each counts as an event for \
             every direction of a link and every queue pair.",
        ),
        Key::optional(
            "flow-table",
            Kind::Boolean,
            "`true` if a load has a `pattern`",
            "Whether a folder for results gets NAME-flows.csv, a line for each flow.",
        ),
        Key::with(
            "payload",
            Kind::Choice(Payload::NAMES),
            "data",
            "Whether packets carry bytes, which are checked where they arrive, or a length alone. With \
             `data` the loads may register 1 GiB of memory, both ends together.",
        ),
        Key::required("topology", Kind::Table(&shape::TOPOLOGY), "The network."),
        Key::optional(
            "link",
            Kind::Table(&topology::LINK),
            "its defaults",
            "The links.",
        ),
        Key::optional(
            "switch",
            Kind::Table(&switch::SWITCH),
            "its defaults",
            "The switches.",
        ),
        Key::optional(
            "card",
            Kind::Table(&card::CARD),
            "its defaults",
            "The cards.",
        ),
        Key::optional(
            "receiver",
            Kind::Table(&receiver::RECEIVER),
            "at once",
            "How hosts take in packets.",
        ),
        Key::optional(
            "route",
            Kind::Tables(&event::ROUTE),
            "shortest paths",
            "Where switches send packets.",
        ),
        Key::optional(
            "link-event",
            Kind::Tables(&event::LINK_EVENT),
            "always up",
            "Links that go down.",
        ),
        Key::required("traffic", Kind::Tables(&traffic::TRAFFIC), "The load."),
        Key::optional(
            "fault",
            Kind::Tables(&fault::FAULT),
            "none",
            "What goes wrong.",
        ),
        Key::optional(
            "capture",
            Kind::Tables(&fault::CAPTURE),
            "none",
            "What is recorded.",
        ),
        Key::optional(
            "sweep",
            Kind::Table(&sweep::SWEEP),
            "one run",
            "The same with other values.",
        ),
        Key::optional(
            "expect",
            Kind::Tables(&expect::EXPECT),
            "nothing",
            "What must come out.",
        ),
    ],
};

/// The most samples that are kept of a run.
pub const MOST_SAMPLES: u64 = 100_000;

/// A `stop` that the file gives is far beyond what can be kept of samples.
fn check_samples(root: &Reader<'_>, scenario: &Scenario) {
    let every = scenario.sample.map_or(0, |every| every.as_ps());
    if root.has("stop")
        && let Some(samples) = scenario.stop.as_ps().checked_div(every)
        && samples > MOST_SAMPLES
    {
        root.say(
            "sample",
            format_args!(
                "makes {samples} samples until \"stop\", {}; the limit is {MOST_SAMPLES}",
                crate::units::print_span(scenario.stop)
            ),
        );
    }
}

/// A network, a load, the faults, and what must come out: one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// What it shows.
    pub title: Option<String>,
    /// What happens.
    pub description: Option<String>,
    /// Where the numbers come from.
    pub source: Option<String>,
    /// What to look at.
    pub look_at: Option<String>,
    /// Which parameters are free, and how the result moves with them.
    pub free: Option<String>,
    /// Seed of every random stream.
    pub seed: u64,
    /// Virtual time at which it ends.
    pub stop: Span,
    /// Events after which it is given up.
    pub event_limit: u64,
    /// How often goodput is noted.
    pub sample: Option<Span>,
    /// Whether there is to be a table of flows.
    pub flow_table: bool,
    /// What packets carry.
    pub payload: Payload,
    /// Hosts, switches and links.
    pub network: Network,
    /// The card of each host, in the order of the hosts.
    pub cards: Vec<Card>,
    /// How each host takes in packets; `None` for at once.
    pub receivers: Vec<Option<Receiver>>,
    /// Where switches send packets, if not on shortest paths.
    pub routes: Vec<Route>,
    /// Links that go down.
    pub link_events: Vec<LinkEvent>,
    /// The loads.
    pub traffic: Vec<Traffic>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What is recorded.
    pub captures: Vec<Capture>,
    /// What must come out.
    pub expectations: Vec<Expectation>,
}

/// Reads a document without its sweep. What is wrong goes to `sink`; if anything does, the result is
/// not to be used.
pub(super) fn read(document: &Table, folder: &Folder, sink: &Sink) -> Scenario {
    let root = Reader::new(&ROOT, document, Origin::FILE, "", sink);
    let _: u32 = root.get("schema");
    let network = topology::read(&root, sink);
    let cards = card::read(&root, &network, sink);
    let receivers = receiver::read(&root, &network, sink);
    let routes = event::read_routes(&root, &network, sink);
    let link_events = event::read(&root, &network, sink);
    let traffic = traffic::read(&root, &network, folder, sink);
    if traffic.is_empty() && !root.has("traffic") {
        sink.say(
            Origin::FILE,
            "there is no [[traffic]], so nothing would happen",
        );
    }
    agree(&traffic, &cards, &network, &root);
    let payload = root.get("payload");
    traffic::check_totals(&root, &traffic, &network, payload == Payload::Data);
    let faults = fault::read(&root, &network, &traffic, sink);
    let captures = fault::read_captures(&root, &network, sink);
    let mut scenario = Scenario {
        title: root.opt("title"),
        description: root.opt("description"),
        source: root.opt("source"),
        look_at: root.opt("look-at"),
        free: root.opt("free"),
        seed: root.get("seed"),
        stop: root.get("stop"),
        event_limit: root.get("event-limit"),
        sample: root.opt("sample"),
        flow_table: root.opt("flow-table").unwrap_or_else(|| patterned(&root)),
        payload,
        network,
        cards,
        receivers,
        routes,
        link_events,
        traffic,
        faults,
        captures,
        expectations: Vec::new(),
    };
    check_samples(&root, &scenario);
    scenario.expectations = expect::read(&root, &scenario, sink);
    scenario
}

/// True if a load says what its pattern is.
fn patterned(root: &Reader<'_>) -> bool {
    let tables = root.tables("traffic");
    tables.iter().any(|(t, _)| t.get("pattern").is_some())
}

/// The two ends of a queue pair must agree on path MTU and addresses, and there must be a way.
fn agree(traffic: &[Traffic], cards: &[Card], network: &Network, root: &Reader<'_>) {
    let parts = network.parts();
    for (n, load) in traffic.iter().enumerate() {
        for (flow, &(a, b)) in load.pairs.iter().enumerate() {
            let (Some(x), Some(y)) = (cards.get(a), cards.get(b)) else {
                continue;
            };
            let (from, to) = (&network.hosts[a], &network.hosts[b]);
            let (size, mtu) = (load.flow(flow).size, x.mtu);
            let what = if load.transport == Transport::Ud && size.0 > u64::from(mtu) {
                format!("have a path MTU of {mtu}, but a datagram has {size}; it is one packet")
            } else if x.mtu != y.mtu {
                format!("have path MTUs {} and {}", x.mtu, y.mtu)
            } else if x.gid != y.gid {
                format!("have addresses of kind {} and {}", x.gid, y.gid)
            } else if parts[a] != parts[b] {
                "are not connected by any links".to_string()
            } else {
                continue;
            };
            let at = root.tables("traffic").get(n).map_or(Origin::FILE, |t| t.1);
            root.sink.say(
                at,
                format!(
                    "hosts \"{from}\" and \"{to}\" of traffic \"{}\" {what}",
                    load.name
                ),
            );
            break;
        }
    }
}

/// What the `n`-th table of a list is called in messages.
pub(super) fn label(section: &str, n: usize, table: &Table) -> String {
    match table.get("name").map(|e| &e.node.value) {
        Some(Value::Text(name)) if name.len() <= 64 && !name.contains(char::is_control) => {
            format!("[[{section}]] \"{name}\"")
        }
        _ => format!("[[{section}]] {n}"),
    }
}

/// The name of the `n`-th table of a list: what it says, or `section-n`.
pub(super) fn name<'a>(
    reader: &Reader<'_>,
    n: usize,
    section: &str,
    mut taken: impl Iterator<Item = &'a String>,
) -> String {
    let name = reader
        .opt("name")
        .unwrap_or_else(|| default_name(section, n));
    if taken.any(|t| *t == name) {
        reader.say(
            "name",
            format!("({name}) is the name of another [[{section}]]"),
        );
    }
    name
}

/// What the `n`-th table of a list is called if it does not say.
pub(super) fn default_name(section: &str, n: usize) -> String {
    format!("{section}-{n}")
}
