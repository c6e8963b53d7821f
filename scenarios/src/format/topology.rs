//! `[topology]`, `[link]` and `[switch]`: hosts, switches and the links between them.

use super::choices::choices;
use super::diagnostic::{Sink, hint};
use super::document::{Node, Table, Value};
use super::reader::{Field, Reader};
use super::schema::{Key, Kind, Section};
use crate::units::{Probability, Rate, Size, Span};
use std::collections::{BTreeMap, BTreeSet};

choices! {
    /// The shape of a network.
    pub enum Shape {
        /// Two hosts, `h0` and `h1`, and one link, `h0-h1`.
        BackToBack = "back-to-back",
        /// Hosts around one switch, `s0`.
        Star = "star",
        /// A k-ary fat tree: k pods of k/2 edge and k/2 aggregation switches, and (k/2)^2 core switches.
        FatTree = "fat-tree",
        /// What the file lists.
        Explicit = "explicit",
    }
}

pub(super) static TOPOLOGY: Section = Section {
    title: "[topology]",
    about: "Hosts, switches and which is linked to which. A link is called after its two ends, \
            `h0-s0`, and so is each direction of it, `h0->s0`.",
    named: None,
    keys: &[
        Key::required(
            "kind",
            Kind::Choice(Shape::NAMES),
            "`back-to-back`: two hosts, one link. `star`: hosts around the switch `s0`. `fat-tree`: \
             k^3/4 hosts `h0`..., switches `edge0`..., `agg0`..., `core0`.... \
             `explicit`: what the file lists.",
        ),
        Key::optional(
            "hosts",
            Kind::CountOrNames(2, 1024),
            "2 in `back-to-back` and `star`, otherwise required",
            "How many hosts, called `h0`, `h1`, ..., or what they are called.",
        )
        .only("kind", &["back-to-back", "star", "explicit"]),
        Key::optional(
            "switches",
            Kind::CountOrNames(0, 1024),
            "none",
            "How many switches, called `s0`, `s1`, ..., or what they are called.",
        )
        .only("kind", &["explicit"]),
        Key::with(
            "k",
            Kind::Count(2, 32),
            "4",
            "Ports of each switch of the fat tree, an even number.",
        )
        .only("kind", &["fat-tree"]),
        Key::optional(
            "link",
            Kind::Tables(&TOPOLOGY_LINK),
            "none",
            "The links, one table each.",
        )
        .only("kind", &["explicit"]),
    ],
};

static TOPOLOGY_LINK: Section = Section {
    title: "[[topology.link]]",
    about: "A link of an explicit topology, with what it has different from `[link]`.",
    named: None,
    keys: &[
        Key::required("a", Kind::Name, "Host or switch at one end."),
        Key::required("b", Kind::Name, "Host or switch at the other end."),
        Key::optional(
            "name",
            Kind::Name,
            "`a-b`",
            "What the link is called; two links between the same ends need names.",
        ),
        Key::optional("rate", RATE, "as in `[link]`", "Rate in each direction."),
        Key::optional("delay", DELAY, "as in `[link]`", "Propagation delay."),
        Key::optional("mtu", MTU, "as in `[link]`", "Largest IP packet."),
        Key::optional(
            "loss",
            Kind::Probability,
            "as in `[link]`",
            "Share of packets lost in each direction.",
        ),
    ],
};

const RATE: Kind = Kind::Rate(1_000_000, 10_000_000_000_000);
const DELAY: Kind = Kind::Span(0, 10_000_000_000_000);
const MTU: Kind = Kind::Size(576, 65_535);

pub(super) static LINK: Section = Section {
    title: "[link]",
    about: "What every link is like, the same in both directions. `NAME` may also be one direction, as in \
            `[link.\"h0->s0\"]`, which takes `loss` alone.",
    named: Some("link"),
    keys: &[
        Key::with("rate", RATE, "100Gbps", "Rate in each direction."),
        Key::with(
            "delay",
            DELAY,
            "1us",
            "Propagation delay, one way: the time from the last bit sent to the last bit received.",
        ),
        Key::with(
            "mtu",
            MTU,
            "9000",
            "Largest IP packet in bytes. A card's path MTU and its headers must fit.",
        ),
        Key::with(
            "loss",
            Kind::Probability,
            "0",
            "Share of packets lost in each direction, each packet by itself: short for a `[[fault]]` of \
             kind `loss` on the link.",
        ),
    ],
};

pub(super) static SWITCH: Section = Section {
    title: "[switch]",
    about: "What every switch is like.",
    named: Some("switch"),
    keys: &[Key::with(
        "queue",
        Kind::Size(2048, 1 << 40),
        "1MiB",
        "Bytes each output port can queue, in frames of Ethernet with FCS; a frame that does not fit is \
         dropped at the tail.",
    )],
};

/// Hosts, switches and links.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    /// Its shape.
    pub shape: Shape,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// The switches.
    pub switches: Vec<Switch>,
    /// The links.
    pub links: Vec<Link>,
}

/// A switch.
#[derive(Clone, PartialEq, Debug)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// Bytes each output port can queue.
    pub queue: Size,
}

/// A link.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// Its name: `a-b` unless the file says otherwise.
    pub name: String,
    /// One end.
    pub a: End,
    /// The other end.
    pub b: End,
    /// Rate of each direction.
    pub rate: Rate,
    /// Propagation delay of each direction.
    pub delay: Span,
    /// Largest IP packet.
    pub mtu: Size,
    /// Share of packets lost from `a` to `b`, and from `b` to `a`.
    pub loss: [Probability; 2],
}

/// Where a link ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// At the port of a host, by its index.
    Host(usize),
    /// At a port of a switch, by its index.
    Switch(usize),
}

/// One direction of one link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WayId {
    /// Index of the link.
    pub link: usize,
    /// 0 from `a` to `b`, 1 from `b` to `a`.
    pub way: usize,
}

impl Network {
    /// The name of an end.
    pub fn end(&self, end: End) -> &str {
        match end {
            End::Host(n) => &self.hosts[n],
            End::Switch(n) => &self.switches[n].name,
        }
    }

    /// The name of one direction of a link: `h0->s0`, or `name:h0->s0` if the link has a name of its own.
    pub fn way_name(&self, id: WayId) -> String {
        let link = &self.links[id.link];
        let (a, b) = (self.end(link.a), self.end(link.b));
        let ends = match id.way {
            0 => format!("{a}->{b}"),
            _ => format!("{b}->{a}"),
        };
        if link.name == format!("{a}-{b}") {
            ends
        } else {
            format!("{}:{ends}", link.name)
        }
    }

    /// Every direction of every link.
    pub fn ways(&self) -> impl Iterator<Item = WayId> + '_ {
        (0..self.links.len()).flat_map(|link| [WayId { link, way: 0 }, WayId { link, way: 1 }])
    }

    /// What `name` stands for: the directions of a link, or one of them.
    pub fn find(&self, name: &str) -> Option<Vec<WayId>> {
        self.names().remove(name)
    }

    /// For each host a number that is the same for all hosts with a way between them.
    pub(super) fn parts(&self) -> Vec<usize> {
        let index = |end| match end {
            End::Host(n) => n,
            End::Switch(n) => self.hosts.len() + n,
        };
        // Union-find over hosts and switches.
        let mut parent: Vec<usize> = (0..self.hosts.len() + self.switches.len()).collect();
        fn top(parent: &mut [usize], mut n: usize) -> usize {
            while parent[n] != n {
                parent[n] = parent[parent[n]];
                n = parent[n];
            }
            n
        }
        for link in &self.links {
            let (a, b) = (
                top(&mut parent, index(link.a)),
                top(&mut parent, index(link.b)),
            );
            parent[a] = b;
        }
        (0..self.hosts.len()).map(|h| top(&mut parent, h)).collect()
    }

    /// Every name that a link or one of its directions answers to.
    pub(super) fn names(&self) -> BTreeMap<String, Vec<WayId>> {
        let mut names = BTreeMap::new();
        for (n, link) in self.links.iter().enumerate() {
            let (a, b) = (self.end(link.a), self.end(link.b));
            let [there, back] = [WayId { link: n, way: 0 }, WayId { link: n, way: 1 }];
            names.insert(link.name.clone(), vec![there, back]);
            names.insert(self.way_name(there), vec![there]);
            names.insert(self.way_name(back), vec![back]);
            if link.name == format!("{a}-{b}") {
                names
                    .entry(format!("{b}-{a}"))
                    .or_insert_with(|| vec![there, back]);
            }
        }
        names
    }
}

/// A count, or names.
enum Members {
    Count(u64),
    Names(Vec<String>),
}

impl Field for Members {
    fn placeholder() -> Members {
        Members::Count(0)
    }
    fn read(node: &Node, kind: &Kind) -> Result<Members, String> {
        let Kind::CountOrNames(min, max) = *kind else {
            return Err("has no such kind".into());
        };
        match &node.value {
            Value::Array(list) if list.is_empty() && min == 0 => Ok(Members::Names(Vec::new())),
            Value::Array(list) => {
                if !(min..=max).contains(&(list.len() as u64)) {
                    return Err(format!("must be {kind}"));
                }
                let names = Vec::<String>::read(node, kind)?;
                let mut seen = BTreeSet::new();
                match names.iter().find(|n| !seen.insert(n.as_str())) {
                    Some(twice) => Err(format!("has \"{twice}\" twice")),
                    None => Ok(Members::Names(names)),
                }
            }
            _ => u64::read(node, kind).map(Members::Count),
        }
    }
}

impl Members {
    fn names(self, prefix: &str) -> Vec<String> {
        match self {
            Members::Count(n) => (0..n).map(|i| format!("{prefix}{i}")).collect(),
            Members::Names(names) => names,
        }
    }
}

/// A link before its attributes are known.
struct Plan<'a> {
    name: Option<String>,
    a: End,
    b: End,
    own: Option<&'a Table>,
}

/// Reads the three sections from the top of the file.
pub(super) fn read(root: &Reader<'_>, sink: &Sink) -> Network {
    let (table, origin) = root.table("topology");
    let topology = Reader::new(&TOPOLOGY, table, origin, "[topology]", sink);
    let shape = if root.has("topology") {
        topology.get("kind")
    } else {
        sink.say(
            origin,
            "there is no [topology], which says what the network is",
        );
        Shape::BackToBack
    };
    let mut hosts = topology
        .opt::<Members>("hosts")
        .unwrap_or(Members::Count(2))
        .names("h");
    let mut switches = Vec::new();
    let mut plans = Vec::new();
    let link = |a, b| Plan {
        name: None,
        a,
        b,
        own: None,
    };
    match shape {
        Shape::BackToBack => {
            if hosts.len() != 2 {
                topology.say("hosts", "must be 2: there is one link and it has two ends");
                hosts = Members::Count(2).names("h");
            }
            plans.push(link(End::Host(0), End::Host(1)));
        }
        Shape::Star => {
            switches.push("s0".to_string());
            plans.extend((0..hosts.len()).map(|h| link(End::Host(h), End::Switch(0))));
        }
        Shape::FatTree => {
            let mut k: usize = topology.get::<u32>("k") as usize;
            if !k.is_multiple_of(2) {
                topology.say("k", "must be even: half of the ports go up");
                k = 2;
            }
            (hosts, switches, plans) = fat_tree(k.max(2));
        }
        Shape::Explicit => {
            if !topology.has("hosts") && topology.has("kind") {
                sink.say(
                    origin,
                    "[topology] has no \"hosts\", which kind = \"explicit\" needs: \
                     a number, or a list of names",
                );
            }
            switches = topology
                .opt::<Members>("switches")
                .unwrap_or(Members::Count(0))
                .names("s");
            if let Some(both) = switches.iter().find(|s| hosts.contains(s)) {
                topology.say("switches", format!("has \"{both}\", which is a host"));
            }
            plans = explicit(&topology, &hosts, &switches);
        }
    }
    let switches = read_switches(root, switches, sink);
    let mut network = Network {
        shape,
        hosts,
        switches,
        links: Vec::new(),
    };
    read_links(root, &mut network, plans, sink);
    network
}

fn fat_tree(k: usize) -> (Vec<String>, Vec<String>, Vec<Plan<'static>>) {
    let half = k / 2;
    let (edges, cores) = (k * half, half * half);
    let hosts = Members::Count((edges * half) as u64).names("h");
    let mut switches = Vec::new();
    for (prefix, n) in [("edge", edges), ("agg", edges), ("core", cores)] {
        switches.extend(Members::Count(n as u64).names(prefix));
    }
    let link = |a, b| Plan {
        name: None,
        a,
        b,
        own: None,
    };
    let mut plans = Vec::new();
    for edge in 0..edges {
        let pod = edge / half;
        for i in 0..half {
            plans.push(link(End::Host(edge * half + i), End::Switch(edge)));
        }
        for i in 0..half {
            plans.push(link(End::Switch(edge), End::Switch(edges + pod * half + i)));
        }
    }
    for aggregation in 0..edges {
        for i in 0..half {
            let core = aggregation % half * half + i;
            plans.push(link(
                End::Switch(edges + aggregation),
                End::Switch(2 * edges + core),
            ));
        }
    }
    (hosts, switches, plans)
}

fn explicit<'a>(topology: &Reader<'a>, hosts: &[String], switches: &[String]) -> Vec<Plan<'a>> {
    let mut used = BTreeSet::new();
    let mut plans = Vec::new();
    for (n, (table, origin)) in topology.tables("link").into_iter().enumerate() {
        let label = format!("[[topology.link]] {n}");
        let reader = Reader::new(&TOPOLOGY_LINK, table, origin, label, topology.sink);
        let mut end = |key: &'static str| {
            let name: String = reader.get(key);
            if !reader.has(key) || name.is_empty() {
                return None;
            }
            let found = match hosts.iter().position(|h| *h == name) {
                Some(n) => Some(End::Host(n)),
                None => switches.iter().position(|s| *s == name).map(End::Switch),
            };
            match found {
                None => {
                    let known = hosts.iter().chain(switches).map(String::as_str);
                    let hint = hint(&name, known);
                    reader.say(key, format!("is neither a host nor a switch{hint}"));
                }
                Some(End::Host(h)) if !used.insert(h) => {
                    reader.say(key, "has a link already; a host has one port");
                }
                _ => {}
            }
            found
        };
        let (a, b) = (end("a"), end("b"));
        if let (Some(a), Some(b)) = (a, b) {
            if a == b {
                reader.say("b", "is the other end too; a link needs two ends");
                continue;
            }
            plans.push(Plan {
                name: reader.opt("name"),
                a,
                b,
                own: Some(table),
            });
        }
    }
    if let Some(lonely) = (0..hosts.len()).find(|h| !used.contains(h)) {
        topology.sink.say(
            topology.origin("link"),
            format!("host \"{}\" of [topology] has no link", hosts[lonely]),
        );
    }
    plans
}

fn read_switches(root: &Reader<'_>, names: Vec<String>, sink: &Sink) -> Vec<Switch> {
    let (table, origin) = root.table("switch");
    let base = Reader::new(&SWITCH, table, origin, "[switch]", sink);
    let _: Size = base.get("queue");
    for (entry, inner) in base.named() {
        let label = format!("[switch.{}]", entry.key);
        Reader::new(&SWITCH, inner, entry.node.origin, label, sink);
        if !names.contains(&entry.key) {
            let hint = hint(&entry.key, names.iter().map(String::as_str));
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
            let queue = match own {
                Some((entry, inner)) => {
                    let label = format!("[switch.{name}]");
                    Reader::new(&SWITCH, inner, entry.node.origin, label, sink)
                        .inherit(table, "[switch]")
                        .get("queue")
                }
                None => base.get("queue"),
            };
            Switch { name, queue }
        })
        .collect()
}

fn read_links(root: &Reader<'_>, network: &mut Network, plans: Vec<Plan<'_>>, sink: &Sink) {
    let (table, origin) = root.table("link");
    let base = Reader::new(&LINK, table, origin, "[link]", sink);
    let mut own = Vec::new();
    for plan in plans {
        let (a, b) = (network.end(plan.a), network.end(plan.b));
        let name = plan.name.unwrap_or_else(|| format!("{a}-{b}"));
        let link = attributes(&base, name, plan.a, plan.b);
        network.links.push(link);
        own.push(plan.own);
    }
    let mut taken = BTreeSet::new();
    for link in &network.links {
        if !taken.insert(link.name.as_str()) {
            sink.say(
                root.table("topology").1,
                format!(
                    "two links are called \"{}\"; give one a \"name\"",
                    link.name
                ),
            );
        }
    }
    let names = network.names();
    let mut whole: BTreeMap<usize, Reader<'_>> = BTreeMap::new();
    let mut single: Vec<(WayId, Reader<'_>)> = Vec::new();
    for (entry, inner) in base.named() {
        let label = format!("[link.{}]", entry.key);
        let reader = Reader::new(&LINK, inner, entry.node.origin, label, sink);
        match names.get(&entry.key).map(Vec::as_slice) {
            Some([one]) => {
                for key in LINK.names().filter(|&k| k != "loss" && reader.has(k)) {
                    reader.say(key, "is for one direction, but only \"loss\" can be");
                }
                single.push((*one, reader));
            }
            Some(both) => {
                if whole.insert(both[0].link, reader).is_some() {
                    sink.say(entry.key_origin, "the same link has another such table");
                }
            }
            None => {
                let hint = hint(&entry.key, names.keys().map(String::as_str));
                sink.say(
                    entry.key_origin,
                    format!("there is no link \"{}\"{hint}", entry.key),
                );
            }
        }
    }
    for (n, link) in network.links.iter_mut().enumerate() {
        let named = whole.remove(&n);
        if named.is_none() && own[n].is_none() {
            continue;
        }
        let mut reader = named.unwrap_or_else(|| Reader::unchecked(&LINK, origin, "[link]", sink));
        if let Some(own) = own[n] {
            reader = reader.inherit(own, format!("[[topology.link]] {n}"));
        }
        let reader = reader.inherit(table, "[link]");
        *link = attributes(&reader, link.name.clone(), link.a, link.b);
    }
    for (id, reader) in single {
        if let Some(loss) = reader.opt("loss") {
            network.links[id.link].loss[id.way] = loss;
        }
    }
}

fn attributes(reader: &Reader<'_>, name: String, a: End, b: End) -> Link {
    Link {
        name,
        a,
        b,
        rate: reader.get("rate"),
        delay: reader.get("delay"),
        mtu: reader.get("mtu"),
        loss: [reader.get("loss"); 2],
    }
}
