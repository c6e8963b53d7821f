//! The network: what `[link]` and `[switch]` make of the nodes and links that `[topology]` names.

use super::diagnostic::Sink;
use super::document::Entry;
use super::reader::Reader;
use super::schema::{Key, Kind, Section};
use super::shape::{self, Plan, Shape};
use super::switch::{self, Switch};
use crate::units::{Probability, Rate, Size, Span};
use softroce_sim::fabric::{self, LinkSpec};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RATE: Kind = Kind::Rate(1_000_000, 10_000_000_000_000);
pub(super) const DELAY: Kind = Kind::Span(0, 10_000_000_000_000);
pub(super) const MTU: Kind = Kind::Size(576, 65_535);

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

impl WayId {
    /// The other direction of the same link.
    pub(crate) const fn reverse(self) -> WayId {
        WayId {
            link: self.link,
            way: 1 - self.way,
        }
    }
}

impl Link {
    /// As the simulator has it.
    pub(crate) fn spec(&self) -> LinkSpec {
        LinkSpec {
            // The format has no rate below 1 Mbps and no MTU above 65535.
            rate: fabric::Rate::from_bps(self.rate.0).unwrap_or(fabric::Rate::from_gbps(100)),
            delay: self.delay,
            mtu: u16::try_from(self.mtu.0).unwrap_or(u16::MAX),
            pfc_response: None,
        }
    }
}

/// Hosts by name.
pub(super) struct Hosts<'a>(BTreeMap<&'a str, usize>);

impl Hosts<'_> {
    /// The host that a table of `section` is called after; tells it if there is none.
    pub(super) fn find(&self, table: &Entry, section: &Section, sink: &Sink) -> Option<usize> {
        let found = self.0.get(table.key.as_str()).copied();
        if found.is_none() {
            let known = || {
                self.0
                    .keys()
                    .copied()
                    .chain(section.keys.iter().map(|k| k.name))
            };
            let hint = sink.hint(&table.key, known).unwrap_or_default();
            let told = format!("there is no host \"{}\"{hint}", table.key);
            sink.say(table.key_origin, told);
        }
        found
    }
}

impl Network {
    /// To look hosts up by name.
    pub(super) fn hosts_by_name(&self) -> Hosts<'_> {
        let hosts = self.hosts.iter().enumerate();
        Hosts(hosts.map(|(n, name)| (name.as_str(), n)).collect())
    }

    /// The name of an end.
    pub fn end(&self, end: End) -> &str {
        match end {
            End::Host(n) => &self.hosts[n],
            End::Switch(n) => &self.switches[n].name,
        }
    }

    /// Where a direction of a link begins.
    pub(crate) fn from(&self, way: WayId) -> End {
        let link = &self.links[way.link];
        if way.way == 0 { link.a } else { link.b }
    }

    /// Where a direction of a link ends.
    pub(crate) fn to(&self, way: WayId) -> End {
        self.from(way.reverse())
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

    /// Rate of the port of each host; `None` if it has no link.
    pub fn line_rates(&self) -> Vec<Option<Rate>> {
        let mut rates = vec![None; self.hosts.len()];
        for link in &self.links {
            for end in [link.a, link.b] {
                if let End::Host(n) = end {
                    rates[n] = rates[n].or(Some(link.rate));
                }
            }
        }
        rates
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

/// Reads the three sections from the top of the file.
pub(super) fn read(root: &Reader<'_>, sink: &Sink) -> Network {
    let nodes = shape::read(root, sink);
    let mut network = Network {
        shape: nodes.shape,
        hosts: nodes.hosts,
        switches: switch::read(root, nodes.switches, sink),
        links: Vec::new(),
    };
    read_links(root, &mut network, nodes.links, sink);
    switch::check_buffers(root, &network, sink);
    network
}

fn read_links(root: &Reader<'_>, network: &mut Network, plans: Vec<Plan<'_>>, sink: &Sink) {
    let (table, origin) = root.table("link");
    let base = Reader::new(&LINK, table, origin, "[link]", sink);
    let mut own = Vec::new();
    for plan in plans {
        let (a, b) = (network.end(plan.a), network.end(plan.b));
        let name = plan.name.unwrap_or_else(|| format!("{a}-{b}"));
        let mut link = attributes(&base, name, plan.a, plan.b);
        let trunk = plan.trunk;
        link.rate = trunk.rate.unwrap_or(link.rate);
        link.delay = trunk.delay.unwrap_or(link.delay);
        network.links.push(link);
        own.push((plan.own, trunk));
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
                let hint = sink.hint(&entry.key, || names.keys().map(String::as_str));
                let hint = hint.unwrap_or_default();
                sink.say(
                    entry.key_origin,
                    format!("there is no link \"{}\"{hint}", entry.key),
                );
            }
        }
    }
    for (n, link) in network.links.iter_mut().enumerate() {
        let named = whole.remove(&n);
        let (own, trunk) = own[n];
        if named.is_none() && own.is_none() {
            continue;
        }
        let mut reader = named.unwrap_or_else(|| Reader::unchecked(&LINK, origin, "[link]", sink));
        if let Some(own) = own {
            reader = reader.inherit(own, format!("[[topology.link]] {n}"));
        }
        let given = ["rate", "delay"].map(|key| reader.has(key));
        let reader = reader.inherit(table, "[link]");
        *link = attributes(&reader, link.name.clone(), link.a, link.b);
        // What the link says itself goes before what [topology] says of all trunks, and that before [link].
        if let (Some(rate), false) = (trunk.rate, given[0]) {
            link.rate = rate;
        }
        if let (Some(delay), false) = (trunk.delay, given[1]) {
            link.delay = delay;
        }
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
