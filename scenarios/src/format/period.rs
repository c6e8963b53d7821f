//! Parts of a run that metrics are asked of.

use super::diagnostic::Sink;
use super::document::{Node, Value};
use super::expect::Expectation;
use super::reader::{Field, Reader};
use super::schema::Kind;
use crate::metric::Metric;
use crate::units::{Span, print_span};

/// A part of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Period {
    /// When it begins.
    pub from: Span,
    /// When it ends, which is later.
    pub until: Span,
}

/// `1ms to 2ms`.
impl std::fmt::Display for Period {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [from, until] = [self.from, self.until].map(print_span);
        write!(f, "{from} to {until}")
    }
}

impl Field for Period {
    fn placeholder() -> Period {
        Period {
            from: Span::ZERO,
            until: Span::from_ps(1),
        }
    }
    fn read(node: &Node, kind: &Kind) -> Result<Period, String> {
        let wrong = || format!("is {}, but must be {kind}", node.kind());
        let Value::Array(list) = &node.value else {
            return Err(wrong());
        };
        let [from, until] = list.as_slice() else {
            return Err(format!("has {} values, but must have two", list.len()));
        };
        let span = |node| Span::read(node, &Kind::Span(0, 1_000_000_000_000_000_000));
        let period = Period {
            from: span(from)?,
            until: span(until)?,
        };
        match period.from < period.until {
            true => Ok(period),
            false => Err("ends before it begins".to_string()),
        }
    }
}

/// Reads the part of the run that `metric` is asked of; `left` if nothing is said.
pub(super) fn read(reader: &Reader<'_>, metric: Metric, left: Option<Period>) -> Option<Period> {
    if !reader.has("during") {
        if metric.needs_period() && left.is_none() {
            reader.say(
                "metric",
                "is a mean over a part of the run: say which by \"during\"",
            );
        }
        return left;
    }
    let during: Option<Period> = reader.opt("during");
    if during.is_some() && !metric.has_periods() {
        reader.say(
            "during",
            format_args!("cannot be: \"{metric}\" is of the whole run"),
        );
    }
    during
}

/// Reports an expectation of a point that asks of a part that the run does not come to.
pub(super) fn check(expectation: &Expectation, stop: Span, sink: &Sink) {
    if let Some(period) = expectation.periods().find(|p| p.until > stop) {
        let stop = print_span(stop);
        sink.say(
            expectation.origin,
            format!("during {period} is not in the run, which stops at {stop}"),
        );
    }
}
