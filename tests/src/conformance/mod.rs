//! The conformance suite: what a RoCEv2 card must do, rule by rule, each with where it comes from.
//!
//! A [`Rule`] is one row of the table: a source, a few words, and the functions that prove it. A function
//! plays the program and the peer of one card on a [bench](crate::bench), and panics if the card does
//! not do as the rule says. Its vocabulary is small on purpose: the program does, the peer says, the
//! card says; memory, completions, events and counters show. Nothing in it looks inside the card, so
//! that another one can take its place.
//!
//! * one module per [group](GROUPS): requester, responder, timers, states, ...; each file begins with its
//!   part of the table;
//! * [`clauses`]: the numbered clauses of the specification that the suite is held against, and why those
//!   without a rule have none;
//! * [`run()`]: runs rules and tells how they ended, without a word on standard error.
//!
//! `cargo test -p softroce-tests --test conformance NAME` runs rules as tests of their own names;
//! `softroce conformance` prints the table.

/// A row of the table: source, words, and the functions that prove it. The first one names the rule.
macro_rules! rule {
    ($source:expr, $words:literal, [$first:ident $(, $more:ident)* $(,)?]) => {
        $crate::conformance::Rule {
            name: stringify!($first),
            source: $source,
            words: $words,
            tests: &[
                $crate::conformance::Test { name: stringify!($first), run: $first },
                $($crate::conformance::Test { name: stringify!($more), run: $more },)*
            ],
        }
    };
}

mod atomics;
pub mod clauses;
mod congestion;
mod counters;
mod datagrams;
mod go_back_0;
mod queues;
mod quiet;
mod regressions;
mod requester;
mod responder;
mod states;
mod timers;
mod unreliable;
mod windows;
mod wire;

#[cfg(test)]
mod table;

use std::fmt;

/// Where a rule comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A numbered clause of the InfiniBand Architecture Specification, one of [`clauses`].
    Id(&'static str),
    /// A section of it, where the number of the clause is not known for certain.
    Section(&'static str),
    /// The recording of this name in `captures/` shows that Linux' driver does so.
    Kernel(&'static str),
    /// Behaviour that programs and peers rely on, and for which no number is known.
    Behaviour,
}

/// A function that panics if the card does not do as its rule says.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Name of the function.
    pub name: &'static str,
    /// The function.
    pub run: fn(),
}

/// One thing a card must do.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Name, unique within its group.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// What it says, in a few words of our own.
    pub words: &'static str,
    /// What proves it.
    pub tests: &'static [Test],
}

/// Rules that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its name: `requester`.
    pub name: &'static str,
    /// What its rules are about.
    pub title: &'static str,
    /// The rules, file by file.
    files: &'static [&'static [Rule]],
}

/// All groups, in the order in which a reader meets the subject.
pub static GROUPS: &[Group] = &[
    Group {
        name: "wire",
        title: "headers, sums, and what is dropped at the door",
        files: wire::RULES,
    },
    Group {
        name: "states",
        title: "states and attributes of queue pairs, and what an error ends",
        files: states::RULES,
    },
    Group {
        name: "requester",
        title: "the side of a reliable connection that asks",
        files: requester::RULES,
    },
    Group {
        name: "responder",
        title: "the side of a reliable connection that answers",
        files: responder::RULES,
    },
    Group {
        name: "timers",
        title: "when something is tried again, and how often",
        files: timers::RULES,
    },
    Group {
        name: "atomics",
        title: "compare and swap, fetch and add, ATOMIC WRITE",
        files: atomics::RULES,
    },
    Group {
        name: "windows",
        title: "memory windows, and keys that end",
        files: windows::RULES,
    },
    Group {
        name: "unreliable",
        title: "connections that answer nothing",
        files: unreliable::RULES,
    },
    Group {
        name: "datagrams",
        title: "datagrams and multicast groups",
        files: datagrams::RULES,
    },
    Group {
        name: "queues",
        title: "inline data, shared receives, completion queues",
        files: queues::RULES,
    },
    Group {
        name: "congestion",
        title: "marks, CNPs, and the rate they lower",
        files: congestion::RULES,
    },
    Group {
        name: "counters",
        title: "what a card counts and remembers",
        files: &[counters::RULES],
    },
    Group {
        name: "go-back-0",
        title: "recovery as early cards had it",
        files: &[go_back_0::RULES],
    },
    Group {
        name: "regressions",
        title: "faults that were found once, each as the situation that showed it",
        files: &[regressions::RULES],
    },
];

impl Group {
    /// Its rules.
    pub fn rules(&self) -> impl Iterator<Item = &'static Rule> + use<> {
        self.files.iter().copied().flatten()
    }
}

/// Every rule, with its group.
pub fn all() -> impl Iterator<Item = (&'static Group, &'static Rule)> {
    GROUPS.iter().flat_map(|g| g.rules().map(move |r| (g, r)))
}

impl Rule {
    /// True if `filter` is part of the rule's full name (`timers::an_answer_restarts_the_timer`), or of
    /// its source (`C9-140`), or of its words; upper and lower case are the same.
    pub fn matches(&self, group: &Group, filter: &str) -> bool {
        let filter = filter.to_lowercase();
        let name = format!("{}::{}", group.name, self.name);
        [name, self.source.to_string(), self.words.to_string()]
            .iter()
            .any(|text| text.to_lowercase().contains(&filter))
    }
}

/// `C9-140`, `9.7.5.2.8`, `rc_read`, or `-`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Id(text) | Source::Section(text) | Source::Kernel(text) => text,
            Source::Behaviour => "-",
        })
    }
}

/// How a rule ended.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The rule.
    pub rule: &'static Rule,
    /// Its tests that failed.
    pub failures: Vec<Failure>,
}

/// Why a test failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The test.
    pub test: &'static str,
    /// What it said.
    pub message: String,
    /// File and line where it said so.
    pub place: String,
}

impl Verdict {
    /// True if every test passed.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs every test of a rule. What fails is told in the verdict, not on standard error.
pub fn run(rule: &'static Rule) -> Verdict {
    let failed = |test: &Test| {
        let (message, place) = quiet::run(test.run).err()?;
        Some(Failure {
            test: test.name,
            message,
            place,
        })
    };
    Verdict {
        rule,
        failures: rule.tests.iter().filter_map(failed).collect(),
    }
}
