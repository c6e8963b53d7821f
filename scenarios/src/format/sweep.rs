//! `[sweep]` and `--set`: the same scenario with other values.

use super::diagnostic::{Diagnostics, Origin, Sink};
use super::document::{self, Node, Table, Value};
use super::expect::{self, Condition};
use super::folder::Folder;
use super::path;
use super::points::{self, Combination};
use super::reader::Reader;
use super::scenario::{self, Scenario};
use super::schema::{Key, Kind, Section};
use super::source::Source;
use crate::warning::Warning;

/// The most points a sweep may have.
pub const MAX_POINTS: usize = 10_000;

/// The most links that all points together may have: each point holds a network of its own.
pub const MAX_LINKS: usize = 5_000_000;

/// The most flows that the points of a sweep may have together.
pub const MAX_FLOWS: usize = 20_000_000;

/// Errors after which the rest of a sweep is not read: all points are likely to have the same.
const ENOUGH: usize = 200;

pub(super) static SWEEP: Section = Section {
    title: "[sweep]",
    about: "The same scenario at several points. Each key is a path into the file, with a list of \
            values, all of them different: `\"fault.forward.rate\" = [0, 1e-5, 1e-4]`. Several paths give every \
            combination, the last one varying fastest. A path is made of keys and, for tables in double brackets, \
            of a name or a position: `link.rate`, `card.h1.timeout`, `traffic.0.size`.",
    named: None,
    keys: &[
        Key::optional(
            "point",
            Kind::Tables(&POINT),
            "one, without a name",
            "Points that change several values together.",
        ),
        Key::optional(
            "also",
            Kind::Tables(&ALSO),
            "nothing",
            "What else changes at some of the points.",
        ),
    ],
};

static POINT: Section = Section {
    title: "[[sweep.point]]",
    about: "A point of the sweep: paths and one value each. With other axes beside it, every combination \
            of points and axes is run.",
    named: None,
    keys: &[Key::required("name", Kind::Name, "What it is called.")],
};

static ALSO: Section = Section {
    title: "[[sweep.also]]",
    about: "What else changes at some points of the sweep, such as how long they run: paths and one \
            value each. It is no axis of its own; what the command line sets prevails.",
    named: None,
    keys: &[Key::required(
        "when",
        Kind::Points,
        "At those points where each of these paths has the value, or one of the list; `point` is the \
         name of a `[[sweep.point]]`.",
    )],
};

/// Everything that is to be run: the points of the sweep, or the one scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What varies, in order: `point` if there are named points, and the paths of the axes.
    pub axes: Vec<String>,
    /// The runs; never empty.
    pub points: Vec<Point>,
}

impl Plan {
    /// Some of its points, by their positions in rising order. What an expectation compares with a point that is not
    /// among them is left out.
    pub(crate) fn only(&self, kept: &[usize]) -> Plan {
        let points = kept.iter().map(|&n| {
            let mut point = self.points[n].clone();
            let before = point.scenario.expectations.len();
            let all = &mut point.scenario.expectations;
            all.retain_mut(|e| points::move_to(e, |n| kept.iter().position(|&k| k == n)));
            point.skipped += before - point.scenario.expectations.len();
            point
        });
        Plan {
            axes: self.axes.clone(),
            points: points.collect(),
        }
    }
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
    /// What in its set-up cannot do what it says, each after the file and line that it is about.
    pub warnings: Vec<String>,
}

/// A path with the values it takes.
pub(super) struct Axis {
    pub(super) path: String,
    at: Origin,
    pub(super) values: Vec<Node>,
}

/// Paths with the value that each is given.
type Changes = Vec<(String, Origin, Node)>;

pub(super) struct Named {
    pub(super) name: String,
    values: Changes,
}

/// What else changes at some points.
struct Also {
    when: Vec<Condition>,
    values: Changes,
}

/// What the file says about its sweep.
#[derive(Default)]
pub(super) struct Sweep {
    pub(super) points: Vec<Named>,
    pub(super) axes: Vec<Axis>,
    also: Vec<Also>,
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
    let also = table.take("also");
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
        points::check_values(&path, &values, sink);
        sweep.axes.push(Axis { path, at, values });
    }
    let mut holder = Table::default();
    for entry in [points, also].into_iter().flatten() {
        holder.put(&entry.key, entry.key_origin, entry.node);
    }
    let holder = Reader::new(&SWEEP, &holder, origin, "[sweep]", sink);
    for (n, (table, origin)) in holder.tables("point").into_iter().enumerate() {
        let label = scenario::label("sweep.point", n, table);
        let (own, values) = part(table, "name");
        let reader = Reader::new(&POINT, &own, origin, label, sink);
        let name: String = reader.get("name");
        if sweep.points.iter().any(|p| p.name == name) {
            reader.say("name", "is the name of another point");
        }
        sweep.points.push(Named { name, values });
    }
    for (n, (table, origin)) in holder.tables("also").into_iter().enumerate() {
        let label = format!("[[sweep.also]] {n}");
        let (own, values) = part(table, "when");
        let reader = Reader::new(&ALSO, &own, origin, label, sink);
        if !reader.has("when") {
            let _ = reader.get::<String>("when");
        }
        let when = expect::conditions(&reader, "when");
        sweep.also.push(Also { when, values });
    }
    for also in &sweep.also {
        points::check(&also.when, &sweep, sink);
    }
    sweep
}

/// The key of a table that is its own, and the paths that the others are.
fn part(table: &Table, own: &str) -> (Table, Changes) {
    let mut rest = table.clone();
    let mut kept = Table::default();
    if let Some(entry) = rest.take(own) {
        kept.put(&entry.key, entry.key_origin, entry.node);
    }
    let values = flatten(&rest)
        .into_iter()
        .map(|(path, at, node)| (path, at, node.clone()))
        .collect();
    (kept, values)
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
        points::check_values(&path, &values, sink);
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
    let mut warned = Vec::new();
    let mut plan = build(
        document,
        &Folder::of(source),
        settings,
        many,
        &sink,
        &mut warned,
    );
    sink.finish(source, settings)?;
    for (point, warned) in plan.points.iter_mut().zip(warned) {
        let told = |(at, text): (Origin, String)| format!("{}: {text}", at.line(source));
        point.warnings = warned.into_iter().map(told).collect();
    }
    Ok(plan)
}

/// The warnings of each point go to `warned`.
fn build(
    document: &Table,
    folder: &Folder,
    settings: &[String],
    many: bool,
    sink: &Sink,
    warned: &mut Vec<Vec<(Origin, String)>>,
) -> Plan {
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
    let mut points: Vec<Point> = Vec::new();
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
        let combination = Combination {
            point: named.map(|p| p.name.as_str()),
            axes: axes
                .iter()
                .map(|a| a.path.as_str())
                .zip(picked.iter().copied())
                .chain(fixed.iter().map(|a| (a.path.as_str(), &a.values[0])))
                .collect(),
        };
        for also in &file.also {
            if also.when.iter().all(|c| combination.fits(c) == Some(true)) {
                for (path, at, node) in &also.values {
                    apply(&mut table, path, *at, node);
                }
            }
        }
        for axis in &fixed {
            apply(&mut table, &axis.path, axis.at, &axis.values[0]);
        }
        let names = named.map(|p| p.name.clone());
        let scenario = scenario::read(&table, folder, sink);
        warned.push(match sink.is_empty() {
            true => warnings(&scenario, &table),
            false => Vec::new(),
        });
        points.push(Point {
            values: names
                .into_iter()
                .chain(picked.iter().map(|n| bare(n)))
                .collect(),
            scenario,
            skipped: 0,
            warnings: Vec::new(),
        });
        combinations.push(combination);
        if sink.len() > ENOUGH {
            break;
        }
        let first = points.first().map(|p| &p.scenario);
        let links = first.map_or(0, |s| s.network.links.len());
        let flows = first.map_or(0, |s| s.traffic.iter().map(|t| t.pairs.len()).sum());
        if total.saturating_mul(flows) > MAX_FLOWS && total > 1 {
            let told = format!("a sweep of {total} points over loads of {flows} flows");
            sink.say(
                axes.first().map_or(Origin::FILE, |a| a.at),
                format!("{told} is beyond the limit of {MAX_FLOWS} flows in all"),
            );
            break;
        }
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
        points::check(points::conditions_of(expectation), &file, sink);
    }
    if sink.is_empty() {
        points::resolve(&mut points, &combinations, !settings.is_empty(), sink);
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

/// What in a scenario cannot do what it says, and where in its document that is.
fn warnings(scenario: &Scenario, table: &Table) -> Vec<(Origin, String)> {
    let all = crate::warning::of(scenario).into_iter();
    let all = all.map(|Warning { text, at }| (document::place(table, &at), text));
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::super::expect::Operand;
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
