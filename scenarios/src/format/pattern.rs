//! Patterns of a load: which hosts send how much to which, and when, and what waits for what.

use super::choices::choices;
use super::diagnostic::hint;
use super::document::{Node, Value};
use super::flows;
use super::folder::Folder;
use super::reader::{Field, Reader};
use super::schema::{Key, Kind};
use super::shape::Members;
use super::topology::{End, Network};
use super::traffic::{MAX_QUEUE_PAIRS, Operation, Own, list};
use crate::units::{Ratio, Size, Span};
use softroce_sim::fabric::collective::Ring;
use softroce_sim::fabric::loads::{self, arrivals};
use softroce_sim::random::Stream;
use std::collections::BTreeMap;

choices! {
    /// Who sends to whom.
    pub enum Pattern {
        /// Each of `from` to each of `to`.
        Pairs = "pairs",
        /// Many to one.
        Incast = "incast",
        /// Each host to one other at random, and each gets from one.
        Permutation = "permutation",
        /// Each host to the one so many places on.
        Shift = "shift",
        /// Each host to every other.
        AllToAll = "all-to-all",
        /// Flows that a file lists.
        File = "file",
        /// Flows that arrive at random.
        Poisson = "poisson",
        /// An all-reduce around a ring.
        AllReduce = "all-reduce",
        /// Workers and a parameter server.
        ParameterServer = "parameter-server",
    }
}

/// The patterns whose flows all have the same messages.
pub(super) const PLAIN: &[&str] = &["pairs", "incast", "permutation", "shift", "all-to-all"];
/// Those whose flows each send what they have, one after the other.
pub(super) const FLOWS: &[&str] = &[
    "pairs",
    "incast",
    "permutation",
    "shift",
    "all-to-all",
    "file",
    "poisson",
];
/// Those that take `from`.
pub(super) const FROM: &[&str] = &["pairs", "incast", "poisson", "parameter-server"];
/// Those that take `size`.
pub(super) const SIZED: &[&str] = &[
    "pairs",
    "incast",
    "permutation",
    "shift",
    "all-to-all",
    "all-reduce",
    "parameter-server",
];
/// Those that take `count` or `duration`.
pub(super) const AMOUNT: &[&str] = &[
    "pairs",
    "incast",
    "permutation",
    "shift",
    "all-to-all",
    "poisson",
];
const COLLECTIVE: &[&str] = &["all-reduce", "parameter-server"];

/// The most rounds of a collective times its members.
const MAX_ROUNDS: u64 = 1 << 22;

pub(super) const PATTERN: Key = Key::with(
    "pattern",
    Kind::Choice(Pattern::NAMES),
    "pairs",
    "`pairs`: each of `from` to each of `to`. `incast`: all of `from` to the one of `to`. `permutation`: each \
     of `hosts` to one other at random and each gets from one. `shift`: each of `hosts` to the one `by` \
     places on. `all-to-all`: each of `hosts` to every other. `file`: what `flows` lists. `poisson`: flows of \
     one message that arrive at random, from any of `from` to any of `to`. `all-reduce`: each of `hosts` in \
     2 (N - 1) steps to the next, each send waiting for the receive before. `parameter-server`: each of \
     `from` to the one of `to`, and back when all have come.",
);
pub(super) const HOSTS: Key = Key::optional(
    "hosts",
    Kind::CountOrNames(2, 8192),
    "all",
    "Which hosts take part, in this order, or how many, the first ones.",
)
.only(
    "pattern",
    &["permutation", "shift", "all-to-all", "all-reduce"],
);
pub(super) const BY: Key = Key::with(
    "by",
    Kind::Count(1, 8191),
    "1",
    "How many places on; less than there are hosts.",
)
.only("pattern", &["shift"]);
pub(super) const FILE: Key = Key::optional(
    "flows",
    Kind::Text,
    "required with `file`",
    "A CSV file beside the scenario: from, to, bytes, start and, where it is not `operation`, the \
     operation; start counts from that of the load. `h0,h1,64KiB,12us`.",
)
.only("pattern", &["file"]);
pub(super) const JITTER: Key = Key::with(
    "jitter",
    Kind::Span(0, 1_000_000_000_000_000),
    "0ps",
    "Each flow starts later by a random span of less than this.",
)
.only("pattern", PLAIN);
pub(super) const LOAD: Key = Key::with(
    "load",
    Kind::Ratio,
    "0.5",
    "Payload that arrives, as a share of the rate of the links of all hosts of `from`.",
)
.only("pattern", &["poisson"]);
pub(super) const SIZES: Key = Key::optional(
    "sizes",
    Kind::Distribution,
    "required with `poisson`",
    "How large flows are: each member a size and the probability that a flow is at most so large, rising \
     to 1; sizes between two members are equally likely, and a first probability above 0 is that of just \
     this size. `[[\"1KB\", 0.5], [\"1MB\", 1]]`.",
)
.only("pattern", &["poisson"]);
pub(super) const ITERATIONS: Key = Key::with(
    "iterations",
    Kind::Count(1, 65_536),
    "1",
    "How many times, one after the other.",
)
.only("pattern", COLLECTIVE);
pub(super) const COMPUTE: Key = Key::with(
    "compute",
    Kind::Span(0, 1_000_000_000_000_000),
    "0ps",
    "What each host computes for before each iteration.",
)
.only("pattern", COLLECTIVE);
pub(super) const SLOW: Key = Key::optional(
    "slow",
    Kind::Names,
    "none",
    "Hosts that compute for `slowdown` times as long.",
)
.only("pattern", COLLECTIVE);
pub(super) const SLOWDOWN: Key = Key::with(
    "slowdown",
    Kind::Ratio,
    "1.5",
    "How many times as long as the others.",
)
.only("pattern", COLLECTIVE);
pub(super) const RINGS: Key = Key::with(
    "rings",
    Kind::Count(1, 64),
    "1",
    "Rings over the same hosts that share the bytes, each with queue pairs of its own.",
)
.only("pattern", &["all-reduce"]);
pub(super) const REPLY: Key = Key::optional(
    "reply",
    Kind::Size(0, 1 << 31),
    "`size`",
    "Bytes that the server sends each worker at the end of an iteration.",
)
.only("pattern", &["parameter-server"]);
pub(super) const PARALLEL: Key = Key::optional(
    "parallel",
    Kind::Count(1, 8192),
    "all",
    "Workers that the server reads from at the same time, with the operation `read`.",
)
.only("pattern", &["parameter-server"]);

/// What hosts do together, round after round.
#[derive(Clone, PartialEq, Debug)]
pub struct Collective {
    /// Which.
    pub kind: CollectiveKind,
    /// The hosts, each with what it computes for; a server comes last, and computes nothing.
    pub members: Vec<(usize, Span)>,
    /// How many times.
    pub iterations: u64,
    /// Bytes that are reduced, or that each worker hands over.
    pub bytes: Size,
}

/// The kinds of collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollectiveKind {
    /// All-reduce around so many rings.
    AllReduce {
        /// How many.
        rings: u32,
    },
    /// Workers and a server.
    ParameterServer {
        /// READs at the same time; nothing if workers push.
        pull: Option<u32>,
    },
}

/// The flows of a load.
#[derive(Default)]
pub(super) struct Flows {
    pub(super) pairs: Vec<(usize, usize)>,
    /// What each is like, if they differ.
    pub(super) own: Vec<Own>,
    pub(super) collective: Option<Collective>,
    /// Queue pairs of each pair, if the pattern says.
    pub(super) qps: Option<u32>,
    /// Messages of each queue pair, if the pattern says.
    pub(super) messages: Option<u64>,
    /// Bytes of each message, if the pattern says.
    pub(super) size: Option<Size>,
}

/// What a load is read from.
pub(super) struct Context<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) network: &'a Network,
    pub(super) folder: &'a Folder,
    pub(super) name: &'a str,
    pub(super) seed: u64,
    pub(super) operation: Operation,
    pub(super) qps: u32,
}

impl Context<'_> {
    /// The flows of the load's pattern; what is wrong has been told.
    pub(super) fn flows(&self) -> Flows {
        let pattern: Pattern = self.reader.get("pattern");
        match pattern {
            Pattern::Pairs => self.pairs(),
            Pattern::Incast => self.incast(),
            Pattern::Permutation | Pattern::Shift | Pattern::AllToAll => self.among(pattern),
            Pattern::File => self.file(),
            Pattern::Poisson => self.poisson(),
            Pattern::AllReduce => self.all_reduce(),
            Pattern::ParameterServer => self.parameter_server(),
        }
    }

    fn stream(&self, what: &str) -> Stream {
        Stream::new(self.seed, &format!("traffic {} {what}", self.name))
    }

    fn pairs(&self) -> Flows {
        let (from, to) = (self.from(&[]), self.to());
        for (key, is) in [("from", &from), ("to", &to)] {
            if is.is_none() && !self.reader.has(key) {
                self.missing(key);
            }
        }
        let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
        if !self.fits(from.len() as u64 * to.len() as u64) {
            return Flows::default();
        }
        let mut pairs = Vec::new();
        for &a in &from {
            pairs.extend(to.iter().filter(|&&b| b != a).map(|&b| (a, b)));
        }
        if pairs.is_empty() && !from.is_empty() && !to.is_empty() {
            self.reader
                .say("to", "is the host itself; a host does not send to itself");
        }
        self.started(pairs)
    }

    fn incast(&self) -> Flows {
        let Some(one) = self.one() else {
            return Flows::default();
        };
        let from = self.from(&[one]).unwrap_or_else(|| self.all_but(one));
        if !self.fits(from.len() as u64) {
            return Flows::default();
        }
        self.started(from.into_iter().map(|from| (from, one)).collect())
    }

    fn among(&self, pattern: Pattern) -> Flows {
        let Some(hosts) = self.members("hosts", &[]) else {
            return Flows::default();
        };
        let n = hosts.len();
        let flows = match pattern {
            Pattern::AllToAll => n as u64 * (n as u64 - 1),
            _ => n as u64,
        };
        if !self.fits(flows) {
            return Flows::default();
        }
        let transfers = match pattern {
            Pattern::Permutation => loads::permutation(n, 0, &mut self.stream("permutation")),
            Pattern::Shift => {
                let by: u32 = self.reader.get("by");
                if by as usize >= n {
                    let message = format!("must be less than the number of hosts, {n}");
                    self.reader.say("by", message);
                    return Flows::default();
                }
                loads::shift(n, by as usize, 0)
            }
            _ => loads::all_to_all(n, 0),
        };
        let pairs = transfers
            .iter()
            .map(|t| (hosts[t.from.index()], hosts[t.to.index()]));
        self.started(pairs.collect())
    }

    /// Flows that all have the same messages, each with its jitter.
    fn started(&self, pairs: Vec<(usize, usize)>) -> Flows {
        let jitter: Span = self.reader.get("jitter");
        let mut own = Vec::new();
        if jitter > Span::ZERO {
            let mut stream = self.stream("jitter");
            let size = self.size();
            own.extend(pairs.iter().map(|_| Own {
                size,
                start: Span::from_ps(stream.below(jitter.as_ps())),
                operation: self.operation,
            }));
        }
        Flows {
            pairs,
            own,
            ..Flows::default()
        }
    }

    fn file(&self) -> Flows {
        let Some(path) = self.reader.opt::<String>("flows") else {
            if !self.reader.has("flows") {
                self.missing("flows");
            }
            return Flows::default();
        };
        let listed = self
            .folder
            .read(&path)
            .and_then(|source| flows::parse(&source, &self.network.hosts, self.operation));
        match listed {
            Ok(listed) if self.fits(listed.len() as u64) => {
                let (pairs, own) = listed.into_iter().unzip();
                Flows {
                    pairs,
                    own,
                    messages: Some(1),
                    size: Some(Size(0)),
                    ..Flows::default()
                }
            }
            Ok(_) => Flows::default(),
            Err(why) => {
                self.reader.say("flows", why);
                Flows::default()
            }
        }
    }

    fn poisson(&self) -> Flows {
        let everyone = || Some((0..self.network.hosts.len()).collect::<Vec<_>>());
        let from = self.from(&[]).or_else(everyone).unwrap_or_default();
        let to = match self.reader.has("to") {
            true => self.to(),
            false => everyone(),
        };
        let Some(to) = to.filter(|to| to.len() > 1 || from.iter().any(|f| !to.contains(f))) else {
            self.reader.say("to", "leaves no two hosts");
            return Flows::default();
        };
        if !self.reader.has("sizes") {
            self.missing("sizes");
        }
        let Some(sizes) = self.reader.opt::<arrivals::Sizes>("sizes") else {
            return Flows::default();
        };
        // From those alone who have somewhere to send to.
        let from: Vec<usize> = from
            .into_iter()
            .filter(|&f| to.iter().any(|&t| t != f))
            .collect();
        let rate: u128 = from.iter().map(|&h| u128::from(self.rate(h))).sum();
        let load: Ratio = self.reader.get("load");
        // Only + - * / and comparisons: the same on every platform.
        let gap = sizes.mean() as f64 * 8e12 / (rate as f64 * load.get());
        if !(1.0..1e18).contains(&gap) {
            let message = "makes the gap between two flows less than 1ps or more than 1000000s";
            self.reader.say("load", message);
            return Flows::default();
        }
        let gap = Span::from_ps(gap as u64);
        let count: Option<u64> = self.reader.opt("count");
        let duration: Option<Span> = self.reader.opt("duration");
        if count.is_none() && duration.is_none() {
            self.reader.sink.say(
                self.reader.origin("count"),
                format!(
                    "{} has no \"count\" and no \"duration\", one of which says when flows stop arriving",
                    self.reader.label()
                ),
            );
            return Flows::default();
        }
        let mut stream = self.stream("arrivals");
        let (mut pairs, mut own) = (Vec::new(), Vec::new());
        let mut start = Span::ZERO;
        loop {
            start = start + arrivals::exponential(gap, &mut stream);
            let n = pairs.len() as u64;
            if count.is_some_and(|count| n >= count) || duration.is_some_and(|span| start >= span) {
                break;
            }
            if n >= MAX_QUEUE_PAIRS {
                self.fits(n + 1);
                return Flows::default();
            }
            let a = from[stream.below(from.len() as u64) as usize];
            // Of those it can send to each is as likely.
            let own_place = to.iter().position(|&t| t == a);
            let others = to.len() - usize::from(own_place.is_some());
            let mut place = stream.below(others as u64) as usize;
            place += usize::from(own_place.is_some_and(|own| place >= own));
            pairs.push((a, to[place]));
            own.push(Own {
                size: Size(sizes.draw(&mut stream)),
                start,
                operation: self.operation,
            });
        }
        if pairs.is_empty() {
            self.reader
                .say("duration", "is over before the first flow arrives");
        }
        self.fits(pairs.len() as u64);
        Flows {
            pairs,
            own,
            messages: Some(1),
            size: Some(Size(sizes.mean())),
            ..Flows::default()
        }
    }

    fn all_reduce(&self) -> Flows {
        if !matches!(
            self.operation,
            Operation::Send | Operation::SendImm | Operation::WriteImm
        ) {
            self.reader.say(
                "operation",
                "tells the next host nothing; all-reduce takes \"write-imm\", \"send\" or \"send-imm\"",
            );
            return Flows::default();
        }
        let Some(hosts) = self.members("hosts", &[]) else {
            return Flows::default();
        };
        let rings: u32 = self.reader.get("rings");
        let n = hosts.len();
        let collective = self.collective(CollectiveKind::AllReduce { rings }, &hosts);
        if !self.fits(n as u64 * u64::from(rings)) {
            return Flows::default();
        }
        Flows {
            pairs: (0..n).map(|i| (hosts[i], hosts[(i + 1) % n])).collect(),
            qps: Some(rings),
            messages: Some(Ring::steps(n).saturating_mul(collective.iterations)),
            size: Some(Size(Ring::chunk(collective.bytes.0, n, rings as usize))),
            collective: Some(collective),
            ..Flows::default()
        }
    }

    fn parameter_server(&self) -> Flows {
        let Some(server) = self.one() else {
            return Flows::default();
        };
        let workers = self.from(&[server]).unwrap_or_else(|| self.all_but(server));
        let n = workers.len();
        let parallel: Option<u32> = self.reader.opt("parallel");
        let (pull, push) = match self.operation {
            Operation::Read => {
                let all = u32::try_from(n).unwrap_or(u32::MAX);
                (Some(parallel.unwrap_or(all)), Operation::WriteImm)
            }
            Operation::Send | Operation::SendImm | Operation::WriteImm => (None, self.operation),
            _ => {
                self.reader.say(
                    "operation",
                    "tells the server nothing; workers push by \"write-imm\", \"send\" or \"send-imm\", \
                     and a server pulls by \"read\"",
                );
                return Flows::default();
            }
        };
        if pull.is_none() && parallel.is_some() {
            self.reader.say(
                "parallel",
                "is for a server that pulls, with the operation \"read\"",
            );
        }
        let ways = if pull.is_some() { 3 } else { 2 };
        if !self.fits(n as u64 * ways) {
            return Flows::default();
        }
        let mut collective = self.collective(CollectiveKind::ParameterServer { pull }, &workers);
        let (bytes, reply) = (collective.bytes, self.reader.opt("reply"));
        let own = |size, operation| Own {
            size,
            start: Span::ZERO,
            operation,
        };
        let up = workers.iter().map(|&w| {
            let size = if pull.is_some() { Size(0) } else { bytes };
            ((w, server), own(size, push))
        });
        let reply = own(reply.unwrap_or(bytes), Operation::WriteImm);
        let down = workers.iter().map(|&w| ((server, w), reply));
        let reads = workers
            .iter()
            .map(|&w| ((server, w), own(bytes, Operation::Read)));
        let reads = reads.take(if pull.is_some() { n } else { 0 });
        let (pairs, own) = up.chain(down).chain(reads).unzip();
        collective.members.push((server, Span::ZERO));
        Flows {
            pairs,
            own,
            messages: Some(collective.iterations),
            qps: Some(1),
            collective: Some(collective),
            ..Flows::default()
        }
    }

    fn collective(&self, kind: CollectiveKind, hosts: &[usize]) -> Collective {
        let compute: Span = self.reader.get("compute");
        let slow = match self.reader.has("slow") {
            true => self.named("slow").unwrap_or_default(),
            false => Vec::new(),
        };
        if let Some(&other) = slow.iter().find(|h| !hosts.contains(h)) {
            let name = &self.network.hosts[other];
            self.reader
                .say("slow", format!("names \"{name}\", which has no part in it"));
        }
        let factor: Ratio = self.reader.get("slowdown");
        let longer = compute.as_ps() as f64 * factor.get();
        if longer >= 1e18 {
            self.reader
                .say("slowdown", "makes a host compute for more than 1000000s");
        }
        let iterations: u64 = self.reader.get("iterations");
        if iterations.saturating_mul(hosts.len() as u64) > MAX_ROUNDS {
            let told = format!(
                "of {} hosts are too many to keep; the limit is {MAX_ROUNDS} in all",
                hosts.len()
            );
            self.reader.say("iterations", told);
        }
        let time = |host: &usize| match slow.contains(host) {
            true => Span::from_ps(longer as u64),
            false => compute,
        };
        Collective {
            kind,
            members: hosts.iter().map(|h| (*h, time(h))).collect(),
            iterations,
            bytes: self.size(),
        }
    }

    /// Rate of a host's link in bits per second.
    fn rate(&self, host: usize) -> u64 {
        let end = End::Host(host);
        let mut links = self.network.links.iter();
        links
            .find(|l| l.a == end || l.b == end)
            .map_or(0, |l| l.rate.0)
    }

    fn size(&self) -> Size {
        self.reader.opt("size").unwrap_or(Size(0))
    }

    /// True if the load may have so many flows; otherwise that is told.
    fn fits(&self, flows: u64) -> bool {
        let all = flows.saturating_mul(u64::from(self.qps.max(1)));
        if all <= MAX_QUEUE_PAIRS {
            return true;
        }
        let message = format!("makes {all} queue pairs; the limit is {MAX_QUEUE_PAIRS} in all");
        let label = self.reader.label();
        self.reader
            .sink
            .say(self.reader.origin("pattern"), format!("{label} {message}"));
        false
    }

    fn missing(&self, key: &str) {
        let (reader, pattern) = (self.reader, self.reader.get::<Pattern>("pattern"));
        let message = format!("has no \"{key}\", which pattern = \"{pattern}\" needs");
        reader.sink.say(
            reader.origin("pattern"),
            format!("{} {message}", reader.label()),
        );
    }

    /// The one host of `to`.
    fn one(&self) -> Option<usize> {
        if !self.reader.has("to") {
            self.missing("to");
            return None;
        }
        match self.to()?.as_slice() {
            [one] => Some(*one),
            _ => {
                self.reader.say("to", "must be one host");
                None
            }
        }
    }

    fn all_but(&self, one: usize) -> Vec<usize> {
        (0..self.network.hosts.len())
            .filter(|&h| h != one)
            .collect()
    }

    fn to(&self) -> Option<Vec<usize>> {
        self.reader.has("to").then(|| self.named("to"))?
    }

    /// The hosts of `from`; a number is that of the first ones that are none of `but`.
    fn from(&self, but: &[usize]) -> Option<Vec<usize>> {
        if !self.reader.has("from") {
            return None;
        }
        let found = self.members("from", but)?;
        if let Some(&twice) = found.iter().find(|h| but.contains(h)) {
            let name = &self.network.hosts[twice];
            self.reader.say(
                "from",
                format!("has \"{name}\", which is the one of \"to\""),
            );
        }
        Some(found)
    }

    /// The hosts that `key` names or counts; all, if it is not there.
    fn members(&self, key: &'static str, but: &[usize]) -> Option<Vec<usize>> {
        let free = || (0..self.network.hosts.len()).filter(|h| !but.contains(h));
        if !self.reader.has(key) {
            return Some(free().collect());
        }
        match self.reader.opt::<Members>(key)? {
            Members::Names(names) => self.find(key, names),
            Members::Count(n) if n as usize <= free().count() => {
                Some(free().take(n as usize).collect())
            }
            Members::Count(_) => {
                let message = format!("is more than the {} hosts there are", free().count());
                self.reader.say(key, message);
                None
            }
        }
    }

    fn named(&self, key: &'static str) -> Option<Vec<usize>> {
        let names: Vec<String> = self.reader.opt(key)?;
        self.find(key, names)
    }

    fn find(&self, key: &'static str, names: Vec<String>) -> Option<Vec<usize>> {
        let hosts = &self.network.hosts;
        let index: BTreeMap<&str, usize> = hosts.iter().map(String::as_str).zip(0..).collect();
        let mut taken = vec![false; hosts.len()];
        let mut found = Vec::new();
        for name in names {
            match index.get(name.as_str()) {
                Some(&n) if taken[n] => self.reader.say(key, format!("has \"{name}\" twice")),
                Some(&n) => {
                    taken[n] = true;
                    found.push(n);
                }
                None => {
                    let hint = hint(&name, hosts.iter().map(String::as_str));
                    let hint = match hint.is_empty() {
                        true => format!("; the hosts are {}", list(hosts)),
                        false => hint,
                    };
                    self.reader
                        .say(key, format!("names no host \"{name}\"{hint}"));
                }
            }
        }
        Some(found).filter(|f| !f.is_empty())
    }
}

/// A list of sizes and probabilities.
impl Field for arrivals::Sizes {
    fn placeholder() -> arrivals::Sizes {
        panic!("sizes have no default")
    }
    fn read(node: &Node, kind: &Kind) -> Result<arrivals::Sizes, String> {
        let wrong = || format!("must be {kind}");
        let Value::Array(list) = &node.value else {
            return Err(format!("is {}, but {}", node.kind(), wrong()));
        };
        let mut points = Vec::new();
        for (n, point) in list.iter().enumerate() {
            let Value::Array(pair) = &point.value else {
                return Err(wrong());
            };
            let [size, probability] = pair.as_slice() else {
                return Err(wrong());
            };
            let told = |why| format!("has at point {n} {why}");
            let size = Size::read(size, &Kind::Size(0, 1 << 31))
                .map_err(|why| told(format!("the size {size}, which {why}")))?;
            let p = crate::units::Probability::read(probability, &Kind::Probability)
                .map_err(|why| told(format!("the probability {probability}, which {why}")))?;
            points.push((size.0, p.get()));
        }
        arrivals::Sizes::new(&points).map_err(|e| e.to_string())
    }
}
