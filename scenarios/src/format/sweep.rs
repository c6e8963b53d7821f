//! `[sweep]` and `--set`: the same scenario with other values.

use super::diagnostic::{Diagnostics, Origin, Sink, hint};
use super::document::{Node, Table, Value};
use super::expect::{Condition, Expectation, Operand};
use super::path;
use super::reader::Reader;
use super::scenario::{self, Scenario};
use super::schema::{Key, Kind, Section};
use super::source::Source;

/// The most points a sweep may have.
pub const MAX_POINTS: usize = 10_000;

/// The most links that all points together may have: each point holds a network of its own.
pub const MAX_LINKS: usize = 5_000_000;

/// Errors after which the rest of a sweep is not read: all points are likely to have the same.
const ENOUGH: usize = 200;

pub(super) static SWEEP: Section = Section {
    title: "[sweep]",
    about: "The same scenario at several points. Each key is a path into the file, with a list of \
            values: `\"fault.forward.rate\" = [0, 1e-5, 1e-4]`. Several paths give every combination, \
            the last one varying fastest. A path is made of keys and, for tables in double brackets, \
            of a name or a position: `link.rate`, `card.h1.timeout`, `traffic.0.size`.",
    named: None,
    keys: &[Key::optional(
        "point",
        Kind::Tables(&POINT),
        "one, without a name",
        "Points that change several values together.",
    )],
};

static POINT: Section = Section {
    title: "[[sweep.point]]",
    about: "A point of the sweep: paths and one value each. With other axes beside it, every combination \
            of points and axes is run.",
    named: None,
    keys: &[Key::required("name", Kind::Name, "What it is called.")],
};

/// Everything that is to be run: the points of the sweep, or the one scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What varies, in order: `point` if there are named points, and the paths of the axes.
    pub axes: Vec<String>,
    /// The runs; never empty.
    pub points: Vec<Point>,
}

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The value of each axis, as it is written.
    pub values: Vec<String>,
    /// What is run. Its expectations are those of this point.
    pub scenario: Scenario,
    /// Expectations that could not be asked because `--set` took away the point they compare with.
    pub skipped: usize,
}

/// A path with the values it takes.
struct Axis {
    path: String,
    at: Origin,
    values: Vec<Node>,
}

struct Named {
    name: String,
    values: Vec<(String, Origin, Node)>,
}

/// What the file says about its sweep.
#[derive(Default)]
struct Sweep {
    points: Vec<Named>,
    axes: Vec<Axis>,
}

/// Paths and values of a table; `link.rate` may be written with quotes, or without, which nests tables.
pub(super) fn flatten(table: &Table) -> Vec<(String, Origin, &Node)> {
    fn walk<'a>(table: &'a Table, prefix: &str, out: &mut Vec<(String, Origin, &'a Node)>) {
        for entry in table.iter() {
            let path = match prefix {
                "" => entry.key.clone(),
                _ => format!("{prefix}.{}", entry.key),
            };
            match &entry.node.value {
                Value::Table(inner) => walk(inner, &path, out),
                _ => out.push((path, entry.key_origin, &entry.node)),
            }
        }
    }
    let mut out = Vec::new();
    walk(table, "", &mut out);
    out
}

/// As a value is shown in a report: without quotes.
fn bare(node: &Node) -> String {
    match &node.value {
        Value::Text(s) if !s.contains(char::is_control) => s.clone(),
        _ => node.to_string(),
    }
}

fn read_sweep(mut table: Table, origin: Origin, sink: &Sink) -> Sweep {
    let mut sweep = Sweep::default();
    let points = table.take("point");
    for (path, at, node) in flatten(&table) {
        let values = match &node.value {
            Value::Array(list) if !list.is_empty() => list.clone(),
            _ => {
                sink.say(
                    node.origin,
                    format!("{path} = {node} in [sweep] must be a list of values to try"),
                );
                continue;
            }
        };
        sweep.axes.push(Axis { path, at, values });
    }
    let Some(points) = points else {
        return sweep;
    };
    let mut holder = Table::default();
    holder.put("point", points.key_origin, points.node);
    let holder = Reader::new(&SWEEP, &holder, origin, "[sweep]", sink);
    for (n, (table, origin)) in holder.tables("point").into_iter().enumerate() {
        let label = scenario::label("sweep.point", n, table);
        let mut name = Table::default();
        if let Some(e) = table.get("name") {
            name.put("name", e.key_origin, e.node.clone());
        }
        let reader = Reader::new(&POINT, &name, origin, label, sink);
        let name: String = reader.get("name");
        if sweep.points.iter().any(|p| p.name == name) {
            reader.say("name", "is the name of another point");
        }
        let values = flatten(table)
            .into_iter()
            .filter(|(path, ..)| path != "name")
            .map(|(path, at, node)| (path, at, node.clone()))
            .collect();
        sweep.points.push(Named { name, values });
    }
    sweep
}

/// Reads the settings of a command line.
fn read_settings(settings: &[String], many: bool, sink: &Sink) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for (index, text) in settings.iter().enumerate() {
        let Some((path, value)) = text.split_once('=') else {
            let at = Origin::setting(index, 0..text.len());
            sink.say(
                at,
                "a setting is a path, \"=\" and a value, such as link.rate=100Gbps",
            );
            continue;
        };
        let at = Origin::setting(index, 0..path.len());
        let node = |r: std::ops::Range<usize>| {
            let part = &value[r.clone()];
            let start = path.len() + 1 + r.start + (part.len() - part.trim_start().len());
            Node::from_setting(part.trim(), index, start)
        };
        let values = match many {
            true => split_list(value).into_iter().map(node).collect(),
            false => vec![node(0..value.len())],
        };
        let path = path.trim().to_string();
        if axes.iter().any(|a| a.path == path) {
            sink.say(at, format!("\"{path}\" is set twice"));
            continue;
        }
        axes.push(Axis { path, at, values });
    }
    axes
}

/// The parts of `text` between commas, other than those inside quotes or brackets.
fn split_list(text: &str) -> Vec<std::ops::Range<usize>> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0usize, None);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(start..i);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(start..text.len());
    parts
}

/// Works out what is to be run. `many` lets a setting have several values, separated by commas.
pub(super) fn plan(
    source: &Source,
    document: &Table,
    settings: &[String],
    many: bool,
) -> Result<Plan, Diagnostics> {
    let sink = Sink::default();
    let plan = build(document, settings, many, &sink);
    sink.finish(source, settings)?;
    Ok(plan)
}

fn build(document: &Table, settings: &[String], many: bool, sink: &Sink) -> Plan {
    let mut base = document.clone();
    let file = match base.take("sweep") {
        None => Sweep::default(),
        Some(e) => match e.node.value {
            Value::Table(table) => read_sweep(table, e.node.origin, sink),
            _ => {
                sink.say(e.node.origin, "\"sweep\" must be the table [sweep]");
                Sweep::default()
            }
        },
    };
    let given = read_settings(settings, many, sink);
    // What the command line sets, the sweep of the file does not vary.
    let (fixed, swept): (Vec<Axis>, Vec<Axis>) =
        given.into_iter().partition(|a| a.values.len() == 1);
    let mut axes: Vec<&Axis> = Vec::new();
    for axis in &file.axes {
        if fixed.iter().any(|f| f.path == axis.path) {
            continue;
        }
        axes.push(swept.iter().find(|s| s.path == axis.path).unwrap_or(axis));
    }
    for axis in &swept {
        if !axes.iter().any(|a| a.path == axis.path) {
            axes.push(axis);
        }
    }
    let total = axes
        .iter()
        .try_fold(file.points.len().max(1), |n, a| {
            n.checked_mul(a.values.len())
        })
        .filter(|&n| n <= MAX_POINTS);
    let Some(total) = total else {
        let at = axes.first().map_or(Origin::FILE, |a| a.at);
        sink.say(
            at,
            format!("the sweep has more than the limit of {MAX_POINTS} points"),
        );
        return Plan {
            axes: Vec::new(),
            points: Vec::new(),
        };
    };
    let apply = |table: &mut Table, path: &str, at: Origin, node: &Node| {
        if let Err(why) = path::set(table, path, at, node.clone()) {
            sink.say(at, why);
        }
    };
    let mut combinations: Vec<Combination<'_>> = Vec::new();
    let mut points = Vec::new();
    for n in 0..total {
        let mut rest = n;
        let mut picked: Vec<&Node> = Vec::new();
        for axis in axes.iter().rev() {
            picked.push(&axis.values[rest % axis.values.len()]);
            rest /= axis.values.len();
        }
        picked.reverse();
        let named = file.points.get(rest);
        let mut table = base.clone();
        for (path, at, node) in named.iter().flat_map(|p| &p.values) {
            apply(&mut table, path, *at, node);
        }
        for (axis, node) in axes.iter().zip(&picked) {
            apply(&mut table, &axis.path, axis.at, node);
        }
        for axis in &fixed {
            apply(&mut table, &axis.path, axis.at, &axis.values[0]);
        }
        let names = named.map(|p| p.name.clone());
        points.push(Point {
            values: names
                .into_iter()
                .chain(picked.iter().map(|n| bare(n)))
                .collect(),
            scenario: scenario::read(&table, sink),
            skipped: 0,
        });
        combinations.push(Combination {
            point: named.map(|p| p.name.as_str()),
            axes: axes.iter().map(|a| a.path.as_str()).zip(picked).collect(),
        });
        if sink.len() > ENOUGH {
            break;
        }
        let links = points.first().map_or(0, |p| p.scenario.network.links.len());
        if total.saturating_mul(links) > MAX_LINKS && total > 1 {
            sink.say(
                axes.first().map_or(Origin::FILE, |a| a.at),
                format!(
                    "a sweep of {total} points over a network of {links} links is beyond the limit of \
                     {MAX_LINKS} links in all"
                ),
            );
            break;
        }
    }
    for expectation in points.iter().flat_map(|p| &p.scenario.expectations) {
        check_conditions(expectation, &file, sink);
    }
    if sink.is_empty() {
        resolve(&mut points, &combinations, !settings.is_empty(), sink);
    }
    let names = (!file.points.is_empty()).then(|| "point".to_string());
    Plan {
        axes: names
            .into_iter()
            .chain(axes.iter().map(|a| a.path.clone()))
            .collect(),
        points,
    }
}

/// Where in the sweep a point is.
struct Combination<'a> {
    point: Option<&'a str>,
    axes: Vec<(&'a str, &'a Node)>,
}

impl Combination<'_> {
    /// True if the path has one of the values here; `None` if nothing here varies it.
    fn fits(&self, condition: &Condition) -> Option<bool> {
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
fn resolve(points: &mut [Point], combinations: &[Combination<'_>], set: bool, sink: &Sink) {
    for (n, point) in points.iter_mut().enumerate() {
        let here = &combinations[n];
        let mut skipped = 0;
        point.scenario.expectations.retain_mut(|expectation| {
            // A path that the command line has fixed leaves the condition open: not for this run.
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
            true
        });
        point.skipped = skipped;
    }
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

/// Every path and value of a condition must be one that the file's own sweep has.
fn check_conditions(expectation: &Expectation, file: &Sweep, sink: &Sink) {
    let at = expectation.check.operands().flat_map(|o| match o {
        Operand::Metric { at, .. } => at.as_slice(),
        _ => &[],
    });
    for condition in expectation.when.iter().chain(at) {
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

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::*;

    const BASE: &str = "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nname = \"t\"\nfrom = \"h0\"\n\
                        to = \"h1\"\noperation = \"write\"\nsize = 1\n[[fault]]\nname = \"f\"\nlink = \"h0-h1\"\n";

    fn file(rest: &str) -> File {
        File::parse(Source::new("x.toml", format!("{BASE}{rest}")).unwrap()).unwrap()
    }

    fn settings(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| s.to_string()).collect()
    }

    fn values(plan: &Plan) -> Vec<String> {
        plan.points.iter().map(|p| p.values.join(" ")).collect()
    }

    const SWEEP: &str = "[sweep]\ncard.timeout = [4, 14]\n\"fault.f.rate\" = [0, 1e-5]\n";

    #[test]
    fn axes_multiply_in_the_order_of_the_file() {
        let plan = file(SWEEP).plan(&[]).unwrap();
        assert_eq!(plan.axes, ["card.timeout", "fault.f.rate"]);
        assert_eq!(values(&plan), ["4 0", "4 1e-5", "14 0", "14 1e-5"]);
        let timeouts: Vec<_> = plan
            .points
            .iter()
            .map(|p| p.scenario.cards[1].timeout)
            .collect();
        assert_eq!(timeouts, [4, 4, 14, 14]);
    }

    #[test]
    fn the_command_line_fixes_replaces_and_adds_axes() {
        let plan = file(SWEEP).plan(&settings(&["card.timeout=7"])).unwrap();
        assert_eq!(values(&plan), ["0", "1e-5"]);
        assert_eq!(plan.points[0].scenario.cards[0].timeout, 7);
        let many = settings(&[
            "fault.f.rate=0.5",
            "card.timeout=1,2",
            "link.rate=1Gbps, 2Gbps",
        ]);
        let plan = file(SWEEP).sweep(&many).unwrap();
        assert_eq!(plan.axes, ["card.timeout", "link.rate"]);
        assert_eq!(values(&plan), ["1 1Gbps", "1 2Gbps", "2 1Gbps", "2 2Gbps"]);
        assert_eq!(
            plan.points[3].scenario.network.links[0].rate.0,
            2_000_000_000
        );
    }

    #[test]
    fn lists_are_cut_at_commas_outside_of_quotes_and_brackets() {
        let text = "a,\"b,c\",[d,e],{f=1,g=2},";
        let parts: Vec<_> = split_list(text).into_iter().map(|r| &text[r]).collect();
        assert_eq!(parts, ["a", "\"b,c\"", "[d,e]", "{f=1,g=2}", ""]);
    }

    #[test]
    fn expectations_find_the_point_they_compare_with() {
        let expect = "[[expect]]\nmetric = \"goodput\"\nof = \"t\"\n\
                      at-most = { at = { \"fault.f.rate\" = 0.0 }, times = 0.5 }\n\
                      when = { \"fault.f.rate\" = [1e-5] }\n";
        let text = format!("{SWEEP}{expect}");
        let plan = file(&text).plan(&[]).unwrap();
        let found: Vec<Vec<Option<usize>>> = plan
            .points
            .iter()
            .map(|p| {
                let operands = p
                    .scenario
                    .expectations
                    .iter()
                    .flat_map(|e| e.check.operands());
                operands
                    .map(|o| match o {
                        Operand::Metric { point, .. } => *point,
                        _ => None,
                    })
                    .collect()
            })
            .collect();
        assert_eq!(found, [vec![], vec![Some(0)], vec![], vec![Some(2)]]);
        // Without the point to compare with there is nothing to ask.
        let plan = file(&text)
            .sweep(&settings(&["fault.f.rate=1e-5,1e-4"]))
            .unwrap();
        let skipped: Vec<_> = plan.points.iter().map(|p| p.skipped).collect();
        assert_eq!(skipped, [1, 0, 1, 0]);
        assert!(
            plan.points
                .iter()
                .all(|p| p.scenario.expectations.is_empty())
        );
    }

    #[test]
    fn conditions_must_be_points_of_the_sweep() {
        let tell = |condition: &str| {
            let expect =
                format!("{SWEEP}[[expect]]\nmetric = \"drops\"\nequals = 0\nwhen = {condition}\n");
            file(&expect).plan(&[]).unwrap_err().to_string()
        };
        assert!(
            tell("{ \"fault.f.rate\" = 1e-4 }")
                .contains("never 1e-4 in the sweep; it takes 0, 1e-5")
        );
        assert!(tell("{ card.timeuot = 4 }").contains("did you mean \"card.timeout\"?"));
        assert!(tell("{ seed = 4 }").contains("it varies card.timeout, fault.f.rate"));
    }

    #[test]
    fn what_is_wrong_at_many_points_is_said_once_where_it_stands() {
        let e = file("[sweep]\nlink.rate = [\"1Gbps\", \"1gbps\"]\nseed = [1, 2, 3]\n")
            .plan(&[])
            .unwrap_err();
        assert_eq!(e.iter().count(), 1);
        assert!(
            e.to_string()
                .starts_with("x.toml:13:23: rate = \"1gbps\" in [link]"),
            "{e}"
        );
    }
}
