//! Conditions on the points of a sweep: for which an expectation is, and which it compares with. No value is there twice.

use super::diagnostic::{Sink, hint};
use super::document::{Node, Value};
use super::expect::{Condition, Expectation, Operand};
use super::period;
use super::sweep::{Point, Sweep};
use crate::units::{Rate, Ratio, Size, parse_span};
use std::collections::BTreeMap;

/// Where in the sweep a point is.
pub(super) struct Combination<'a> {
    pub(super) point: Option<&'a str>,
    /// Paths that vary or that the command line has fixed, with their value.
    pub(super) axes: Vec<(&'a str, &'a Node)>,
}

impl Combination<'_> {
    /// True if the path has one of the values here; `None` if nothing here gives it one.
    pub(super) fn fits(&self, condition: &Condition) -> Option<bool> {
        if condition.path == "point" {
            let name = self.point?;
            let named = |n: &Node| matches!(&n.value, Value::Text(s) if s == name);
            return Some(condition.values.iter().any(named));
        }
        let (_, node) = self.axes.iter().find(|a| a.0 == condition.path)?;
        Some(condition.values.contains(node))
    }
}

/// Leaves each point the expectations that are meant for it, and finds the points they compare with.
pub(super) fn resolve(
    points: &mut [Point],
    combinations: &[Combination<'_>],
    set: bool,
    sink: &Sink,
) {
    for (n, point) in points.iter_mut().enumerate() {
        let here = &combinations[n];
        let mut skipped = 0;
        let stop = point.scenario.stop;
        point.scenario.expectations.retain_mut(|expectation| {
            if !expectation.when.iter().all(|c| here.fits(c) == Some(true)) {
                return false;
            }
            for operand in expectation.check.operands_mut() {
                let Operand::Metric { point, at, .. } = operand else {
                    continue;
                };
                if at.is_empty() {
                    continue;
                }
                let found = combinations.iter().position(|there| {
                    at.iter().all(|c| there.fits(c) == Some(true)) && same(here, there, at)
                });
                match found {
                    Some(found) => *point = Some(found),
                    None => {
                        if !set {
                            sink.say(at[0].origin, "no point of the sweep is at these values");
                        }
                        skipped += 1;
                        return false;
                    }
                }
            }
            period::check(expectation, stop, sink);
            true
        });
        point.skipped = skipped;
    }
}

/// Has an expectation compare with the points at other positions; false if one of them has none.
pub(super) fn move_to(
    expectation: &mut Expectation,
    position: impl Fn(usize) -> Option<usize>,
) -> bool {
    expectation
        .check
        .operands_mut()
        .all(|operand| match operand {
            Operand::Metric {
                point: Some(point), ..
            } => match position(*point) {
                Some(n) => {
                    *point = n;
                    true
                }
                None => false,
            },
            _ => true,
        })
}

/// True if two points differ in nothing but what `at` names.
fn same(a: &Combination<'_>, b: &Combination<'_>, at: &[Condition]) -> bool {
    let free = |path: &str| at.iter().any(|c| c.path == path);
    (free("point") || a.point == b.point)
        && a.axes
            .iter()
            .zip(&b.axes)
            .all(|(x, y)| free(x.0) || x.1 == y.1)
}

/// The conditions of an expectation.
pub(super) fn conditions_of(expectation: &Expectation) -> impl Iterator<Item = &Condition> {
    let at = expectation.check.operands().flat_map(|o| match o {
        Operand::Metric { at, .. } => at.as_slice(),
        _ => &[],
    });
    expectation.when.iter().chain(at)
}

/// Every path and value of a condition must be one that the file's own sweep has.
pub(super) fn check<'a>(
    conditions: impl IntoIterator<Item = &'a Condition>,
    file: &Sweep,
    sink: &Sink,
) {
    for condition in conditions {
        let path = &condition.path;
        let values: Vec<Node> = if path == "point" {
            file.points
                .iter()
                .map(|p| Node {
                    value: Value::Text(p.name.clone()),
                    origin: condition.origin,
                })
                .collect()
        } else if let Some(axis) = file.axes.iter().find(|a| a.path == *path) {
            axis.values.clone()
        } else {
            Vec::new()
        };
        if values.is_empty() {
            let mut known: Vec<&str> = file.axes.iter().map(|a| a.path.as_str()).collect();
            if !file.points.is_empty() {
                known.insert(0, "point");
            }
            let told = match known.as_slice() {
                [] => "; the file has no [sweep]".to_string(),
                _ => match hint(path, known.iter().copied()) {
                    none if none.is_empty() => format!("; it varies {}", known.join(", ")),
                    hint => hint,
                },
            };
            sink.say(
                condition.origin,
                format!("\"{path}\" is not varied by the sweep{told}"),
            );
            continue;
        }
        for value in &condition.values {
            if !values.contains(value) {
                let list: Vec<_> = values.iter().take(12).map(Node::to_string).collect();
                sink.say(
                    value.origin,
                    format!(
                        "{path} is never {value} in the sweep; it takes {}",
                        list.join(", ")
                    ),
                );
            }
        }
    }
}

/// The values of a path must differ: what is written twice would be run twice. The first that is not the only one is told.
pub(super) fn check_values(path: &str, values: &[Node], sink: &Sink) {
    let mut met: BTreeMap<String, &Node> = BTreeMap::new();
    for node in values {
        let meanings = meanings(&node.value);
        if let Some(before) = meanings.iter().find_map(|m| met.get(m)) {
            let (before, now) = (before.to_string(), node.to_string());
            let told = match before == now {
                true => format!("{path} has the value {now} twice"),
                false => format!("{path} has the values {before} and {now}, which are the same"),
            };
            let limit = "a sweep runs each value once";
            return sink.say(node.origin, format!("{told}; {limit}"));
        }
        met.extend(meanings.into_iter().map(|m| (m, node)));
    }
}

/// What a value may stand for, as text: `1us` is 1000 ns, `"4KiB"` 4096 and `"50%"` 0.5.
fn meanings(value: &Value) -> Vec<String> {
    let mut all = match value {
        // What was written is not kept, and no key takes it.
        Value::Datetime | Value::Integer(None) => Vec::new(),
        _ => vec![spelled(value)],
    };
    if let Value::Text(s) = value {
        let quantity = |unit: &str, n: u64| match n {
            0 => "0".to_string(),
            n => format!("{n} {unit}"),
        };
        all.extend(s.parse::<Rate>().map(|r| quantity("bps", r.0)));
        all.extend(parse_span(s).map(|t| quantity("ps", t.as_ps())));
        all.extend(s.parse::<Size>().map(|n| n.0.to_string()));
        all.extend((s.parse::<Ratio>()).map(|r| spelled(&Value::Float(r.get()))));
    }
    all
}

/// The same for values that are equal, and for no others.
fn spelled(value: &Value) -> String {
    /// Whole numbers below are the same as integers and with a fraction.
    const EXACT: f64 = (1u64 << 53) as f64;
    let list = |all: Vec<String>| all.join(", ");
    match value {
        Value::Text(s) => format!("{s:?}"),
        Value::Integer(n) => n.map_or_else(|| "huge".to_string(), |n| n.to_string()),
        Value::Float(n) if n.abs() < EXACT && n.fract() == 0.0 => (*n as i64).to_string(),
        Value::Float(n) => n.to_string(),
        Value::Boolean(b) => b.to_string(),
        Value::Datetime => "a date".to_string(),
        Value::Array(all) => {
            format!(
                "[{}]",
                list(all.iter().map(|n| spelled(&n.value)).collect())
            )
        }
        Value::Table(table) => {
            let all = table.iter();
            let all = all.map(|e| format!("{:?} = {}", e.key, spelled(&e.node.value)));
            format!("{{{}}}", list(all.collect()))
        }
    }
}
