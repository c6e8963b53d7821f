//! `[[expect]]`: what must come out.

use super::choices::choices;
use super::diagnostic::{Origin, Sink, hint};
use super::document::{Node, Table, Value};
use super::named::of;
use super::pattern::Pattern;
use super::period::{self, Period};
use super::reader::{Field, Reader};
use super::request::Transport;
use super::scenario::Scenario;
use super::schema::{Key, Kind, Section};
use super::topology::WayId;
use crate::metric::{Metric, Unit};
use crate::units::{Rate, Ratio, Size, Span};

choices! {
    /// A formula that predicts what is measured.
    pub enum Law {
        /// The share that go-back-N keeps under loss: 1 / (1 + p W + p (p + q) T).
        GoBackN = "go-back-n",
        /// The time of an all-reduce around a ring: 2 (N - 1) a + 2 (N - 1) / N S / B.
        Ring = "ring",
    }
}

choices! {
    /// How much of what is published an expectation asserts.
    pub enum Asserts {
        /// The number itself, as it was published or as a formula gives it.
        Digits = "digits",
        /// A sign, an order, or that something does or does not happen.
        Mechanism = "mechanism",
    }
}

impl Law {
    /// The metrics that it predicts.
    const fn metrics(self) -> &'static [Metric] {
        match self {
            Law::GoBackN => &[Metric::Goodput, Metric::GoodputShare],
            Law::Ring => &[
                Metric::IterationMin,
                Metric::IterationMean,
                Metric::IterationMax,
                Metric::AlgorithmBandwidth,
                Metric::BusBandwidth,
            ],
        }
    }
}

pub(super) static EXPECT: Section = Section {
    title: "[[expect]]",
    about: "Something that must hold at the end, of each point of a sweep or of some. One of `equals`, \
            `at-least`, `at-most` and `between` says what.",
    named: None,
    keys: &[
        Key::required(
            "metric",
            Kind::Metric,
            "What is measured: one of the list under Metrics.",
        ),
        Key::optional(
            "of",
            Kind::Of,
            "all together",
            "Of which load, host, link, direction or fault.",
        ),
        Key::optional(
            "equals",
            Kind::Operand(&OPERAND),
            "none",
            "The value, exactly or within `tolerance`.",
        ),
        Key::optional(
            "tolerance",
            Kind::Ratio,
            "exact",
            "How far from `equals` it may be, as a share of it (`\"10%\"`).",
        ),
        Key::optional(
            "at-least",
            Kind::Operand(&OPERAND),
            "none",
            "The smallest value allowed.",
        ),
        Key::optional(
            "at-most",
            Kind::Operand(&OPERAND),
            "none",
            "The largest value allowed.",
        ),
        Key::optional(
            "between",
            Kind::Operands(&OPERAND),
            "none",
            "The smallest and the largest value allowed.",
        ),
        Key::optional(
            "during",
            Kind::Period,
            "the whole run",
            "The part of the run, from one time since its beginning to another, that the metric is asked of: \
             counts, bytes, goodput, fairness, utilisation, rates and queues.",
        ),
        Key::optional(
            "when",
            Kind::Points,
            "every point",
            "Only at those points of the sweep where each of these paths has the value, or one of the \
             list; `point` is the name of a `[[sweep.point]]`.",
        ),
        Key::optional(
            "because",
            Kind::Text,
            "none",
            "Why: shown beside the verdict.",
        ),
        Key::optional(
            "asserts",
            Kind::Choice(Asserts::NAMES),
            "not said",
            "What of the source it asserts: `digits`, the number itself, as published or as a formula gives it; or \
             `mechanism`, a sign, an order, or that something does or does not happen, whatever the number. Shown \
             beside the verdict.",
        ),
        Key::optional(
            "published",
            Kind::Text,
            "none",
            "The figure that the source has, in its words: shown in a table beside what was measured and what is \
             expected.",
        ),
    ],
};

static OPERAND: Section = Section {
    title: "A value to compare with",
    about: "A number, or a text with the unit of the metric (`\"90Gbps\"`, `\"12us\"`, `\"4KiB\"`, `\"50%\"`); or \
            else a table that says where to get it: `{ metric = \"goodput\", of = \"b\", times = 0.5 }`.",
    named: None,
    keys: &[
        Key::optional(
            "metric",
            Kind::Metric,
            "the one on the left",
            "Another metric of the same unit.",
        ),
        Key::optional(
            "of",
            Kind::Of,
            "as on the left, or all together if `metric` is given",
            "Of what.",
        ),
        Key::optional(
            "at",
            Kind::Points,
            "the same point",
            "Measured at another point of the sweep: the one where these paths have these values and all \
             others are the same.",
        ),
        Key::optional(
            "during",
            Kind::Period,
            "as on the left",
            "During which part of the run.",
        ),
        Key::optional(
            "law",
            Kind::Choice(Law::NAMES),
            "none",
            "What a formula predicts for the load: `go-back-n` a `goodput` or `goodput-share`, `ring` an \
             `iteration`, `algbw` or `busbw`.",
        ),
        Key::with("times", Kind::Ratio, "1", "All this, times a factor."),
    ],
};

/// Something that must hold at the end.
#[derive(Clone, PartialEq, Debug)]
pub struct Expectation {
    /// Its position in the file, from 0.
    pub index: usize,
    /// What is measured.
    pub metric: Metric,
    /// Of what.
    pub of: Of,
    /// Of which part of the run, if not of the whole.
    pub during: Option<Period>,
    /// What must hold of it.
    pub check: Check,
    /// Why.
    pub because: Option<String>,
    /// What of the source it asserts.
    pub asserts: Option<Asserts>,
    /// The figure that the source has.
    pub published: Option<String>,
    pub(super) when: Vec<Condition>,
    /// Where it says which part of the run.
    pub(super) origin: Origin,
}

/// What a metric is asked of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Of {
    /// All together.
    All,
    /// A load, by its index.
    Traffic(usize),
    /// A host, by its index.
    Host(usize),
    /// A link or a direction of it.
    Link(Vec<WayId>),
    /// One priority of a link or a direction of it.
    Queue(Vec<WayId>, u8),
    /// A fault, by its index.
    Fault(usize),
}

/// What must hold of a measured value.
#[derive(Clone, PartialEq, Debug)]
pub enum Check {
    /// It is this, give or take a share of it.
    Equals(Operand, Ratio),
    /// It is this or more.
    AtLeast(Operand),
    /// It is this or less.
    AtMost(Operand),
    /// It is from the first to the second.
    Between(Operand, Operand),
}

/// What a measured value is compared with.
#[derive(Clone, PartialEq, Debug)]
pub enum Operand {
    /// A value in the unit of the metric.
    Constant(f64),
    /// Another measured value, times a factor.
    Metric {
        /// Which.
        metric: Metric,
        /// Of what.
        of: Of,
        /// Of which part of the run.
        during: Option<Period>,
        /// At which point of the sweep, by its index; `None` at the same.
        point: Option<usize>,
        /// The factor.
        times: Ratio,
        /// How the file says which point.
        at: Vec<Condition>,
    },
    /// What a formula predicts, times a factor.
    Law {
        /// Which.
        law: Law,
        /// The factor.
        times: Ratio,
    },
}

/// A path of the file and the values it may have.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    pub(super) path: String,
    pub(super) values: Vec<Node>,
    pub(super) origin: Origin,
}

/// `path = value`.
impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values: Vec<_> = self.values.iter().map(Node::to_string).collect();
        write!(f, "{} = {}", self.path, values.join(" or "))
    }
}

impl Expectation {
    /// The parts of the run that it asks of.
    pub fn periods(&self) -> impl Iterator<Item = Period> {
        let operands = self.check.operands().filter_map(|o| match o {
            Operand::Metric { during, .. } => *during,
            _ => None,
        });
        self.during.into_iter().chain(operands)
    }
}

impl Check {
    /// The operands.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        match self {
            Check::Equals(a, _) | Check::AtLeast(a) | Check::AtMost(a) => [Some(a), None],
            Check::Between(a, b) => [Some(a), Some(b)],
        }
        .into_iter()
        .flatten()
    }

    pub(super) fn operands_mut(&mut self) -> impl Iterator<Item = &mut Operand> {
        match self {
            Check::Equals(a, _) | Check::AtLeast(a) | Check::AtMost(a) => [Some(a), None],
            Check::Between(a, b) => [Some(a), Some(b)],
        }
        .into_iter()
        .flatten()
    }
}

impl Field for Metric {
    fn placeholder() -> Metric {
        Metric::Goodput
    }
    fn read(node: &Node, kind: &Kind) -> Result<Metric, String> {
        match &node.value {
            Value::Text(s) => Metric::from_name(s).ok_or_else(|| {
                let names = Metric::ALL.iter().map(|m| m.name());
                match hint(s, names.clone()) {
                    none if none.is_empty() => {
                        let names: Vec<_> = names.collect();
                        format!("is no metric; the metrics are {}", names.join(", "))
                    }
                    hint => format!("is no metric{hint}"),
                }
            }),
            _ => Err(format!("is {}, but must be {kind}", node.kind())),
        }
    }
}

/// Reads the expectations against the rest of `scenario`.
pub(super) fn read(root: &Reader<'_>, scenario: &Scenario, sink: &Sink) -> Vec<Expectation> {
    let mut all = Vec::new();
    for (index, (table, origin)) in root.tables("expect").into_iter().enumerate() {
        let label = format!("[[expect]] {index}");
        let reader = Reader::new(&EXPECT, table, origin, label, sink);
        if !reader.has("metric") {
            let _ = reader.get::<Metric>("metric");
            continue;
        }
        let Some(metric) = reader.opt::<Metric>("metric") else {
            continue;
        };
        let of = of(&reader, scenario, metric).unwrap_or(Of::All);
        let given: Vec<_> = ["equals", "at-least", "at-most", "between"]
            .into_iter()
            .filter(|k| reader.has(k))
            .collect();
        if given.len() != 1 {
            let at = given.get(1).map_or(origin, |k| reader.origin(k));
            sink.say(
                at,
                format!(
                    "{} must have one of \"equals\", \"at-least\", \"at-most\" and \"between\"; it has {}",
                    reader.label(),
                    match given.len() {
                        0 => "none".to_string(),
                        _ => given.join(" and "),
                    }
                ),
            );
            continue;
        }
        let tolerance: Option<Ratio> = reader.opt("tolerance");
        if reader.has("tolerance") && given[0] != "equals" {
            reader.say(
                "tolerance",
                format!("is for \"equals\", not for \"{}\"", given[0]),
            );
        }
        let during = period::read(&reader, metric, None);
        let context = Context {
            reader: &reader,
            key: given[0],
            scenario,
            metric,
            of: &of,
            during,
        };
        let Some(check) = context.check(tolerance.unwrap_or_default()) else {
            continue;
        };
        all.push(Expectation {
            index,
            metric,
            check,
            because: reader.opt("because"),
            asserts: reader.opt("asserts"),
            published: reader.opt("published"),
            when: conditions(&reader, "when"),
            origin: reader.origin("during"),
            of,
            during,
        });
    }
    all
}

/// Reads a table of paths and values, or lists of values.
pub(super) fn conditions(reader: &Reader<'_>, key: &'static str) -> Vec<Condition> {
    let Some(node) = reader.node(key) else {
        return Vec::new();
    };
    let Some(table) = node.table() else {
        reader.say(
            key,
            format!("is {}, but must be {}", node.kind(), Kind::Points),
        );
        return Vec::new();
    };
    super::sweep::flatten(table)
        .into_iter()
        .map(|(path, origin, node)| Condition {
            path,
            origin,
            values: match &node.value {
                Value::Array(list) => list.clone(),
                _ => vec![node.clone()],
            },
        })
        .collect()
}

/// What an operand is read against.
struct Context<'a> {
    reader: &'a Reader<'a>,
    key: &'static str,
    scenario: &'a Scenario,
    metric: Metric,
    of: &'a Of,
    during: Option<Period>,
}

impl Context<'_> {
    fn check(&self, tolerance: Ratio) -> Option<Check> {
        let node = self.reader.node(self.key)?;
        if self.key == "between" {
            let Value::Array(list) = &node.value else {
                self.reader.say(
                    self.key,
                    format!("is {}, but must be a list of two", node.kind()),
                );
                return None;
            };
            let [low, high] = list.as_slice() else {
                self.reader.say(
                    self.key,
                    format!("has {} values, but must have two", list.len()),
                );
                return None;
            };
            let (low, high) = (self.operand(low)?, self.operand(high)?);
            if let (Operand::Constant(a), Operand::Constant(b)) = (&low, &high)
                && a > b
            {
                self.reader.say(
                    self.key,
                    "has the larger value first, so nothing is between",
                );
            }
            return Some(Check::Between(low, high));
        }
        let operand = self.operand(node)?;
        Some(match self.key {
            "equals" => Check::Equals(operand, tolerance),
            "at-least" => Check::AtLeast(operand),
            _ => Check::AtMost(operand),
        })
    }

    fn operand(&self, node: &Node) -> Option<Operand> {
        if let Value::Table(table) = &node.value {
            return self.reference(table, node.origin);
        }
        let value = match self.metric.unit() {
            Unit::Count => Ratio::read(node, &Kind::Ratio).map(Ratio::get),
            Unit::Ratio => Ratio::read(node, &Kind::Ratio).map(Ratio::get),
            Unit::Rate => Rate::read(node, &Kind::Rate(0, u64::MAX)).map(|r| r.0 as f64),
            Unit::Span => Span::read(node, &Kind::Span(0, u64::MAX)).map(|s| s.as_ps() as f64),
            Unit::Size => Size::read(node, &Kind::Size(0, u64::MAX)).map(|s| s.0 as f64),
        };
        match value {
            Ok(value) => Some(Operand::Constant(value)),
            Err(why) => {
                let (key, label) = (self.key, self.reader.label());
                let message = format!(
                    "{key} = {node} in {label} is for \"{}\" and {why}",
                    self.metric
                );
                self.reader.sink.say(node.origin, message);
                None
            }
        }
    }

    fn reference(&self, table: &Table, origin: Origin) -> Option<Operand> {
        let label = format!("\"{}\" of {}", self.key, self.reader.label());
        let reader = Reader::new(&OPERAND, table, origin, label, self.reader.sink);
        let times = reader.get("times");
        if let Some(law) = reader.opt::<Law>("law") {
            if !law.metrics().contains(&self.metric) {
                let known: Vec<_> = law.metrics().iter().map(|m| m.name()).collect();
                let known = known.join(", ");
                reader.say("law", format!("predicts {known}, not \"{}\"", self.metric));
            }
            let loads = match *self.of {
                Of::Traffic(n) => &self.scenario.traffic[n..=n],
                _ => &self.scenario.traffic[..],
            };
            match loads {
                [one] if law == Law::Ring => {
                    if one.pattern != Pattern::AllReduce {
                        let message =
                            format!("is for an all-reduce, which \"{}\" is not", one.name);
                        reader.say("law", message);
                    }
                }
                [one] if one.operation.sends_data() && one.transport == Transport::Rc => {}
                [one] => reader.say(
                    "law",
                    format!(
                        "is for SEND and WRITE over \"rc\", but \"{}\" is \"{}\" over \"{}\"",
                        one.name, one.operation, one.transport
                    ),
                ),
                _ => reader.say("law", "is for one load; say which with \"of\""),
            }
            for key in ["metric", "of", "at", "during"]
                .into_iter()
                .filter(|k| reader.has(k))
            {
                reader.say(key, "stands beside a \"law\"; give one of the two");
            }
            return Some(Operand::Law { law, times });
        }
        if !["metric", "of", "at", "during"]
            .iter()
            .any(|k| reader.has(k))
        {
            reader.sink.say(
                origin,
                format!(
                    "{} must say what it compares with: \"metric\", \"of\", \"at\", \"during\" or \"law\"",
                    reader.label()
                ),
            );
            return None;
        }
        let metric = reader.opt("metric").unwrap_or(self.metric);
        if metric.unit() != self.metric.unit() {
            reader.say(
                "metric",
                format!(
                    "is in {}, but \"{}\" is in {}",
                    metric.unit().name(),
                    self.metric,
                    self.metric.unit().name()
                ),
            );
        }
        // A metric of the whole run beside one of a part of it is asked of the whole.
        let left = self.during.filter(|_| metric.has_periods());
        let during = period::read(&reader, metric, left);
        let of = match reader.has("of") {
            true => of(&reader, self.scenario, metric).unwrap_or(Of::All),
            false if reader.has("metric") => Of::All,
            false => self.of.clone(),
        };
        Some(Operand::Metric {
            metric,
            of,
            during,
            point: None,
            times,
            at: conditions(&reader, "at"),
        })
    }
}
