//! Patterns of a load: which hosts send how much to which, and when, and what waits for what.
//!
//! | file | what |
//! |---|---|
//! | this one | flows of the same messages, and those of a file |
//! | `keys` | the keys of a pattern |
//! | `random` | flows that arrive at random |
//! | `collective` | all-reduce, parameter server |
//! | `members` | hosts by name and by number |

mod collective;
mod keys;
mod members;
mod random;

pub(super) use keys::*;

use super::choices::choices;
use super::flows;
use super::folder::Folder;
use super::reader::Reader;
use super::request::Operation;
use super::topology::Network;
use super::traffic::{MAX_QUEUE_PAIRS, Own};
use crate::units::{Size, Span};
use softroce_sim::fabric::loads;
use softroce_sim::random::Stream;

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
        let source = match self.folder.read(&path) {
            Ok(source) => source,
            Err(why) => {
                self.reader.say("flows", why);
                return Flows::default();
            }
        };
        match flows::parse(&source, &self.network.hosts, self.operation) {
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
            Err(found) => {
                self.reader.sink.say_elsewhere(found);
                Flows::default()
            }
        }
    }

    fn size(&self) -> Size {
        let default = match self.operation.flow().is_atomic() {
            true => 8,
            false => 0,
        };
        self.reader.opt("size").unwrap_or(Size(default))
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
}
