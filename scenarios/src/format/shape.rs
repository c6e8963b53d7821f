//! `[topology]`: hosts, switches, and which is linked to which.

use super::choices::choices;
use super::diagnostic::{Sink, hint};
use super::document::{Node, Table, Value};
use super::reader::{Field, Reader};
use super::schema::{Key, Kind, Section};
use super::topology::{DELAY, End, MTU, RATE};
use crate::units::{Rate, Span};
use softroce_sim::fabric::{ChannelId, Direction, LinkSpec, SwitchSpec, Topology, TopologyError};
use std::collections::BTreeSet;

choices! {
    /// The shape of a network.
    pub enum Shape {
        /// Two hosts, `h0` and `h1`, and one link, `h0-h1`.
        BackToBack = "back-to-back",
        /// Hosts around one switch, `s0`.
        Star = "star",
        /// Hosts around two switches, `s0` and `s1`, and one link between these.
        Dumbbell = "dumbbell",
        /// Switches with hosts, each linked to every one of the switches of a second tier.
        LeafSpine = "leaf-spine",
        /// Switches in a ring, each with hosts.
        Ring = "ring",
        /// A k-ary fat tree: k pods of k/2 edge and k/2 aggregation switches, and (k/2)^2 core switches.
        FatTree = "fat-tree",
        /// What the file lists.
        Explicit = "explicit",
    }
}

/// The shapes with links between switches.
const TRUNKS: &[&str] = &["dumbbell", "leaf-spine", "ring", "fat-tree"];
/// The most hosts of a network.
pub(super) const MAX_HOSTS: u64 = 1024;

pub(super) static TOPOLOGY: Section = Section {
    title: "[topology]",
    about: "Hosts, switches and which is linked to which. A link is called after its two ends, \
            `h0-s0`, and so is each direction of it, `h0->s0`.",
    named: None,
    keys: &[
        Key::required(
            "kind",
            Kind::Choice(Shape::NAMES),
            "`back-to-back`: two hosts, one link. `star`: hosts around the switch `s0`. `dumbbell`: hosts \
             `l0`... at `s0`, `r0`... at `s1`, and `s0-s1`. `leaf-spine`: hosts `h0`... at switches \
             `leaf0`..., each linked to all of `spine0`.... `ring`: switches `s0`... in a ring, with hosts \
             `h0`.... `fat-tree`: k^3/4 hosts `h0`..., switches `edge0`..., `agg0`..., `core0`.... \
             `explicit`: what the file lists. Hosts are numbered switch by switch.",
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
            "none, and 4 in a `ring`",
            "How many switches, called `s0`, `s1`, ..., or what they are called.",
        )
        .only("kind", &["explicit", "ring"]),
        Key::with("left", Kind::Count(1, 1023), "2", "Hosts at `s0`.").only("kind", &["dumbbell"]),
        Key::with("right", Kind::Count(1, 1023), "2", "Hosts at `s1`.").only("kind", &["dumbbell"]),
        Key::with("leaves", Kind::Count(1, 512), "2", "Switches with hosts.")
            .only("kind", &["leaf-spine"]),
        Key::with("spines", Kind::Count(1, 64), "2", "Switches above them.")
            .only("kind", &["leaf-spine"]),
        Key::with(
            "hosts-per-switch",
            Kind::Count(1, 1024),
            "1",
            "Hosts at each switch, or each leaf.",
        )
        .only("kind", &["leaf-spine", "ring"]),
        Key::optional(
            "trunk-rate",
            RATE,
            "as in `[link]`",
            "Rate of the links between switches.",
        )
        .only("kind", TRUNKS),
        Key::optional(
            "trunk-delay",
            DELAY,
            "as in `[link]`",
            "Propagation delay of the links between switches.",
        )
        .only("kind", TRUNKS),
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

/// A count, or names.
pub(super) enum Members {
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
            Value::Text(_) if min <= 1 => {
                Vec::<String>::read(node, &Kind::Names).map(Members::Names)
            }
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
    pub(super) fn names(self, prefix: &str) -> Vec<String> {
        match self {
            Members::Count(n) => (0..n).map(|i| format!("{prefix}{i}")).collect(),
            Members::Names(names) => names,
        }
    }
}

/// What the links between switches have different from `[link]`.
#[derive(Clone, Copy, Default)]
pub(super) struct Trunk {
    pub(super) rate: Option<Rate>,
    pub(super) delay: Option<Span>,
}

/// A link before its attributes are known.
pub(super) struct Plan<'a> {
    pub(super) name: Option<String>,
    pub(super) a: End,
    pub(super) b: End,
    pub(super) own: Option<&'a Table>,
    pub(super) trunk: Trunk,
}

/// The nodes and links of a network, before their attributes are known.
pub(super) struct Nodes<'a> {
    pub(super) shape: Shape,
    pub(super) hosts: Vec<String>,
    pub(super) switches: Vec<String>,
    pub(super) links: Vec<Plan<'a>>,
}

/// Reads the section.
pub(super) fn read<'a>(root: &Reader<'a>, sink: &'a Sink) -> Nodes<'a> {
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
    if shape == Shape::Explicit {
        return explicit(&topology);
    }
    let mut hosts = topology.opt::<Members>("hosts");
    let count = |members: &Option<Members>, otherwise| match members {
        Some(Members::Count(n)) => *n as usize,
        Some(Members::Names(names)) => names.len(),
        None => otherwise,
    };
    if shape == Shape::BackToBack && count(&hosts, 2) != 2 {
        topology.say("hosts", "must be 2: there is one link and it has two ends");
        hosts = None;
    }
    let number = |key: &'static str| topology.get::<u32>(key) as usize;
    let each = number("hosts-per-switch");
    // What links and switches are like is read later.
    let link = LinkSpec::new(softroce_sim::fabric::Rate::from_gbps(1), Span::ZERO);
    let switch = SwitchSpec::default();
    let built = match shape {
        Shape::BackToBack | Shape::Explicit => Ok(Topology::back_to_back(link)),
        Shape::Star => Topology::star(count(&hosts, 2), link, switch),
        Shape::Dumbbell => {
            let (left, right) = (number("left"), number("right"));
            fits(&topology, "right", left + right)
                .and_then(|()| Topology::dumbbell(left, right, link, link, switch))
        }
        Shape::LeafSpine => {
            let (leaves, spines) = (number("leaves"), number("spines"));
            fits(&topology, "hosts-per-switch", leaves * each)
                .and_then(|()| Topology::leaf_spine(leaves, spines, each, link, link, switch))
        }
        Shape::Ring => {
            let switches = topology.opt::<Members>("switches");
            let n = count(&switches, 4);
            if n < 3 {
                topology.say("switches", "must be at least 3 in a ring");
            } else if let Some(Members::Names(_)) = switches {
                topology.say("switches", "must be a number in a ring");
            }
            fits(&topology, "hosts-per-switch", n * each)
                .and_then(|()| Topology::ring(n, each, link, link, switch))
        }
        Shape::FatTree => {
            let k = number("k");
            if !k.is_multiple_of(2) {
                topology.say("k", "must be even: half of the ports go up");
            }
            Topology::fat_tree(k, link, switch)
        }
    };
    // What is wrong with the numbers has been told; anything stands in.
    let built = built.unwrap_or_else(|_| Topology::back_to_back(link));
    let trunk = Trunk {
        rate: topology.opt("trunk-rate"),
        delay: topology.opt("trunk-delay"),
    };
    let names = match hosts {
        Some(Members::Names(names)) => names,
        _ => built.hosts().iter().map(|h| h.name.clone()).collect(),
    };
    Nodes {
        shape,
        hosts: names,
        switches: built.switches().iter().map(|s| s.name.clone()).collect(),
        links: links(&built, trunk),
    }
}

/// Refuses networks that are too large; `key` is what made them so.
fn fits(topology: &Reader<'_>, key: &'static str, hosts: usize) -> Result<(), TopologyError> {
    if hosts as u64 <= MAX_HOSTS {
        return Ok(());
    }
    let message = format!("makes {hosts} hosts in all; the limit is {MAX_HOSTS}");
    match topology.has(key) {
        true => topology.say(key, message),
        false => topology
            .sink
            .say(topology.origin(key), format!("[topology] {message}")),
    }
    Err(TopologyError::TooManyHosts(hosts))
}

/// The links of a network with a name, those between switches being like `trunk`.
fn links(topology: &Topology, trunk: Trunk) -> Vec<Plan<'static>> {
    let switches: std::collections::BTreeMap<&str, usize> = topology
        .switches()
        .iter()
        .enumerate()
        .map(|(n, s)| (s.name.as_str(), n))
        .collect();
    let end = |name: &str| match topology.host(name) {
        Ok(host) => End::Host(host.index()),
        Err(_) => End::Switch(switches[name]),
    };
    (0..topology.links().len())
        .map(|link| {
            let (a, b) = topology.channel_ends(ChannelId::new(link, Direction::Forward));
            let (a, b) = (end(a), end(b));
            let between = matches!((a, b), (End::Switch(_), End::Switch(_)));
            Plan {
                name: None,
                a,
                b,
                own: None,
                trunk: if between { trunk } else { Trunk::default() },
            }
        })
        .collect()
}

/// What the file lists.
fn explicit<'a>(topology: &Reader<'a>) -> Nodes<'a> {
    if !topology.has("hosts") && topology.has("kind") {
        topology.sink.say(
            topology.origin("hosts"),
            "[topology] has no \"hosts\", which kind = \"explicit\" needs: \
             a number, or a list of names",
        );
    }
    let members = |key, prefix, otherwise| {
        let members = topology.opt::<Members>(key);
        members.unwrap_or(Members::Count(otherwise)).names(prefix)
    };
    let (hosts, switches) = (members("hosts", "h", 2), members("switches", "s", 0));
    if let Some(both) = switches.iter().find(|s| hosts.contains(s)) {
        topology.say("switches", format!("has \"{both}\", which is a host"));
    }
    Nodes {
        shape: Shape::Explicit,
        links: listed(topology, &hosts, &switches),
        hosts,
        switches,
    }
}

fn listed<'a>(topology: &Reader<'a>, hosts: &[String], switches: &[String]) -> Vec<Plan<'a>> {
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
                trunk: Trunk::default(),
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
