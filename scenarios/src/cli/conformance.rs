//! The conformance suite as a command: runs its rules and prints the coverage table.

use super::output::Output;
use super::{Outcome, bad, bar};
use clap::Args;
use serde::Serialize;
use softroce_tests::conformance::clauses::{CLAUSES, Clause, Standing};
use softroce_tests::conformance::{self, Group, Rule, Source, Verdict};
use std::fmt::Write;

/// Version of the JSON document.
const SCHEMA: u32 = 1;

/// Columns of the table.
const WIDTH: usize = 100;

#[derive(Args, Debug)]
pub(super) struct ConformanceArgs {
    /// Only rules with this in their name, source or words, such as timers::, C9-140 or ICRC.
    filter: Option<String>,
    /// List the rules without running them.
    #[arg(long)]
    list: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// A rule to be shown; without a verdict where it is only listed.
struct Row {
    group: &'static Group,
    rule: &'static Rule,
    verdict: Option<Verdict>,
}

impl Row {
    fn failed(&self) -> bool {
        self.verdict.as_ref().is_some_and(|v| !v.passed())
    }
}

pub(super) fn conformance(args: &ConformanceArgs, out: &mut Output) -> Outcome {
    let filter = args.filter.as_deref().unwrap_or_default();
    let mut rows: Vec<Row> = conformance::all()
        .filter(|(group, rule)| rule.matches(group, filter))
        .map(|(group, rule)| Row {
            group,
            rule,
            verdict: None,
        })
        .collect();
    if rows.is_empty() {
        return bad(nothing(filter));
    }
    if !args.list {
        run(&mut rows);
    }
    // Clauses without a rule belong to the whole table, not to a part of it.
    let clauses = if filter.is_empty() { CLAUSES } else { &[] };
    out.write(&match args.json {
        true => json(&rows, clauses),
        false => table(&rows, clauses),
    });
    match rows.iter().any(Row::failed) {
        true => Outcome::Failed,
        false => Outcome::Held,
    }
}

fn nothing(filter: &str) -> String {
    let clause = CLAUSES.iter().find(|c| c.id.eq_ignore_ascii_case(filter));
    match clause.and_then(|c| Some((c, kind(c.standing).1?))) {
        Some((clause, reason)) => format!("{}: no rule: {reason}", clause.id),
        None => format!("no rule has \"{filter}\" in it; see softroce conformance --list"),
    }
}

fn run(rows: &mut [Row]) {
    let bar = bar();
    bar.set_length(rows.len() as u64);
    for row in rows {
        bar.set_message(format!("{}::{}", row.group.name, row.rule.name));
        row.verdict = Some(conformance::run(row.rule));
        bar.inc(1);
    }
    bar.finish_and_clear();
}

/// The name of what becomes of a clause, and the reason for it.
fn kind(standing: Standing) -> (&'static str, Option<&'static str>) {
    match standing {
        Standing::Proved => ("proved", None),
        Standing::Umbrella(reason) => ("umbrella", Some(reason)),
        Standing::NotBinding(reason) => ("not-binding", Some(reason)),
        Standing::Absent(reason) => ("nothing-to-try", Some(reason)),
        Standing::Open(reason) => ("not-covered", Some(reason)),
    }
}

/// The name of a kind of source.
fn source_kind(source: Source) -> &'static str {
    match source {
        Source::Id(_) => "clause",
        Source::Section(_) => "section",
        Source::Kernel(_) => "kernel",
        Source::Behaviour => "behaviour",
    }
}

/// Kinds of clauses without a rule, and what the table says over them.
const WITHOUT: [(&str, &str); 4] = [
    ("not-covered", "Not covered"),
    ("nothing-to-try", "Nothing to try"),
    ("umbrella", "By way of other rules"),
    ("not-binding", "Not binding"),
];

fn table(rows: &[Row], clauses: &[Clause]) -> String {
    let mut out = String::new();
    let sources = rows.iter().map(|r| r.rule.source.to_string().len());
    let width = sources.max().unwrap_or(0).max("source".len());
    let ran = rows.iter().any(|r| r.verdict.is_some());
    let last = if ran { "verdict" } else { "" };
    // Two blanks in front, and between the columns.
    let words = WIDTH - (2 + width + 2) - (2 + 5 + 2 + last.len());
    line(
        &mut out,
        "",
        &["source", "rule", "tests", last],
        [width, words],
    );
    let mut group = "";
    for row in rows {
        if row.group.name != group {
            group = row.group.name;
            let _ = writeln!(out, "\n{group}: {}\n", row.group.title);
        }
        let verdict = match &row.verdict {
            None => "",
            Some(v) if v.passed() => "pass",
            Some(_) => "FAILED",
        };
        let (source, tests) = (
            row.rule.source.to_string(),
            row.rule.tests.len().to_string(),
        );
        let mut parts = wrap(row.rule.words, words).into_iter();
        let first = parts.next().unwrap_or_default();
        let cells = [source.as_str(), &first, &tests, verdict];
        line(&mut out, "  ", &cells, [width, words]);
        for more in parts {
            line(&mut out, "  ", &["", &more, "", ""], [width, words]);
        }
        for failure in row.verdict.iter().flat_map(|v| &v.failures) {
            let _ = writeln!(out, "      {} at {}", failure.test, failure.place);
            for said in failure.message.lines() {
                let _ = writeln!(out, "        {said}");
            }
        }
    }
    without(&mut out, clauses);
    totals(&mut out, rows, clauses);
    out
}

/// One line of the table; the tests are right-aligned under their heading.
fn line(out: &mut String, indent: &str, cells: &[&str; 4], [source, words]: [usize; 2]) {
    // The heading begins at the margin, and its first column is as much wider.
    let source = source + 2 - indent.len();
    let text = format!(
        "{indent}{:source$}  {:words$}  {:>5}  {}",
        cells[0], cells[1], cells[2], cells[3]
    );
    out.push_str(text.trim_end());
    out.push('\n');
}

/// Clauses that no rule carries, by reason.
fn without(out: &mut String, clauses: &[Clause]) {
    let width = clauses.iter().map(|c| c.id.len()).max().unwrap_or(0);
    for (name, title) in WITHOUT {
        let of = |c: &&Clause| kind(c.standing).0 == name;
        let mut reason = None;
        for clause in clauses.iter().filter(of) {
            let why = kind(clause.standing).1;
            if reason != why {
                let _ = writeln!(out, "\n{title}: {}\n", why.unwrap_or_default());
                reason = why;
            }
            let mut id = clause.id;
            for part in wrap(clause.words, WIDTH - width - 4) {
                let _ = writeln!(out, "  {id:width$}  {part}");
                id = "";
            }
        }
    }
}

fn totals(out: &mut String, rows: &[Row], clauses: &[Clause]) {
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let tests: usize = rows.iter().map(|r| r.rule.tests.len()).sum();
    let failed = rows.iter().filter(|r| r.failed()).count();
    let rules = rows.len();
    let _ = write!(out, "\n{rules} rule{}, {tests} test{}", s(rules), s(tests));
    if rows.iter().any(|r| r.verdict.is_some()) {
        let _ = write!(out, ": {} passed, {failed} failed", rules - failed);
    }
    out.push('\n');
    if !clauses.is_empty() {
        let of = |source| {
            rows.iter()
                .filter(|r| source_kind(r.rule.source) == source)
                .count()
        };
        let _ = writeln!(
            out,
            "source: {} a clause, {} a section, {} what Linux' driver sent, {} no number (-)",
            of("clause"),
            of("section"),
            of("kernel"),
            of("behaviour")
        );
        let count = |name| {
            clauses
                .iter()
                .filter(|c| kind(c.standing).0 == name)
                .count()
        };
        let proved = format!("{} clauses: {} proved", clauses.len(), count("proved"));
        let others =
            WITHOUT.map(|(name, title)| format!("{} {}", count(name), title.to_lowercase()));
        let all = format!("{proved}, {}", others.join(", "));
        for part in wrap(&all, WIDTH) {
            let _ = writeln!(out, "{part}");
        }
    }
}

/// Lines of at most `width` characters, broken at blanks.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let there = lines.last().map_or(0, |l| l.chars().count());
        if there > 0 && there + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    rules: Vec<JsonRule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clauses: Vec<JsonClause>,
    totals: Totals,
}

#[derive(Serialize)]
struct JsonRule {
    group: &'static str,
    name: &'static str,
    /// clause, section, kernel or behaviour.
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    words: &'static str,
    tests: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<JsonFailure>,
}

#[derive(Serialize)]
struct JsonFailure {
    test: &'static str,
    place: String,
    message: String,
}

#[derive(Serialize)]
struct JsonClause {
    id: &'static str,
    words: &'static str,
    standing: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

#[derive(Serialize)]
struct Totals {
    rules: usize,
    tests: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<usize>,
}

fn json(rows: &[Row], clauses: &[Clause]) -> String {
    let ran = rows.iter().any(|r| r.verdict.is_some());
    let document = Document {
        schema: SCHEMA,
        rules: rows.iter().map(json_rule).collect(),
        clauses: clauses
            .iter()
            .map(|c| {
                let (standing, reason) = kind(c.standing);
                JsonClause {
                    id: c.id,
                    words: c.words,
                    standing,
                    reason,
                }
            })
            .collect(),
        totals: Totals {
            rules: rows.len(),
            tests: rows.iter().map(|r| r.rule.tests.len()).sum(),
            failed: ran.then(|| rows.iter().filter(|r| r.failed()).count()),
        },
    };
    match serde_json::to_string_pretty(&document) {
        Ok(text) => text + "\n",
        Err(error) => {
            super::complain(error);
            String::new()
        }
    }
}

fn json_rule(row: &Row) -> JsonRule {
    let rule = row.rule;
    let failures = row.verdict.iter().flat_map(|v| &v.failures);
    JsonRule {
        group: row.group.name,
        name: rule.name,
        source: source_kind(rule.source),
        reference: (rule.source != Source::Behaviour).then(|| rule.source.to_string()),
        words: rule.words,
        tests: rule.tests.iter().map(|t| t.name).collect(),
        passed: row.verdict.as_ref().map(Verdict::passed),
        failures: failures
            .map(|f| JsonFailure {
                test: f.test,
                place: f.place.clone(),
                message: f.message.clone(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rule: &'static Rule) -> Vec<Row> {
        let group = &conformance::GROUPS[0];
        vec![Row {
            group,
            rule,
            verdict: Some(conformance::run(rule)),
        }]
    }

    fn bad() {
        assert_eq!(1 + 1, 3, "not as it should be");
    }

    static BROKEN: Rule = Rule {
        name: "broken",
        source: Source::Section("9.6"),
        words: "A rule that no card can hold, told in so many words that they do not fit on a line",
        tests: &[conformance::Test {
            name: "bad",
            run: bad,
        }],
    };

    #[test]
    fn a_rule_that_fails_is_told_with_its_reason() {
        let rows = rows(&BROKEN);
        let text = table(&rows, &[]);
        assert!(text.contains("FAILED"), "{text}");
        assert!(text.contains("bad at conformance.rs:"), "{text}");
        assert!(text.contains("not as it should be"), "{text}");
        assert!(
            text.ends_with("1 rule, 1 test: 0 passed, 1 failed\n"),
            "{text}"
        );
        let json = json(&rows, &[]);
        assert!(json.contains("\"passed\": false"), "{json}");
        assert!(json.contains("\"failed\": 1"), "{json}");
    }

    /// All rules, as if they had passed.
    fn all_pass() -> Vec<Row> {
        let row = |(group, rule)| Row {
            group,
            rule,
            verdict: Some(Verdict {
                rule,
                failures: Vec::new(),
            }),
        };
        conformance::all().map(row).collect()
    }

    #[test]
    fn the_figures_of_the_readme_are_those_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/README.md");
        let readme = std::fs::read_to_string(path).unwrap();
        let text = table(&all_pass(), CLAUSES);
        let totals = text.lines().skip_while(|l| !l.ends_with(" 0 failed"));
        let mut seen = 0;
        for line in totals {
            assert!(
                readme.lines().any(|l| l == line),
                "tests/README.md lacks {line}"
            );
            seen += 1;
        }
        assert!(seen >= 2, "{text}");
        let clauses = format!(
            "there are {} such\nclauses in `src/conformance/clauses.rs`",
            CLAUSES.len()
        );
        assert!(readme.contains(&clauses), "{clauses}");
    }

    #[test]
    fn the_whole_table_fits_in_a_hundred_columns() {
        let rows = all_pass();
        for text in [table(&rows, CLAUSES), table(&rows, &[])] {
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }
}
