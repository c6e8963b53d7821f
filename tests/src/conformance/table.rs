//! The table is held against the list of clauses, and against itself.

use super::clauses::{CLAUSES, Standing};
use super::{Source, all};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn every_clause_has_a_rule_or_a_reason() {
    let proved: BTreeSet<&str> = all()
        .filter_map(|(_, rule)| match rule.source {
            Source::Id(id) => Some(id),
            _ => None,
        })
        .collect();
    let mut wrong = Vec::new();
    for clause in CLAUSES {
        if (clause.standing == Standing::Proved) != proved.contains(clause.id) {
            wrong.push(clause.id);
        }
    }
    assert!(
        wrong.is_empty(),
        "a rule or a reason, and not both: {wrong:?}"
    );
    let listed: BTreeSet<&str> = CLAUSES.iter().map(|c| c.id).collect();
    assert_eq!(listed.len(), CLAUSES.len(), "a clause is listed twice");
    let unknown: Vec<_> = proved.difference(&listed).collect();
    assert!(unknown.is_empty(), "numbers nobody has read: {unknown:?}");
}

#[test]
fn each_clause_is_one_row() {
    let mut rows = BTreeMap::new();
    for (_, rule) in all() {
        if let Source::Id(id) = rule.source {
            *rows.entry(id).or_insert(0) += 1;
        }
    }
    rows.retain(|_, n| *n > 1);
    assert!(rows.is_empty(), "{rows:?}");
}

#[test]
fn names_and_words_are_unique() {
    let mut names = BTreeSet::new();
    let mut words = BTreeSet::new();
    for (group, rule) in all() {
        assert!(
            !rule.tests.is_empty() && !rule.words.ends_with('.'),
            "{rule:?}"
        );
        let (name, words_of) = ((group.name, rule.name), (group.name, rule.words));
        assert!(names.insert(name), "{name:?} twice");
        assert!(words.insert(words_of), "{words_of:?} twice");
    }
    assert!(names.len() >= 150, "{} rules", names.len());
}

#[test]
fn a_filter_finds_by_name_source_and_words() {
    let found = |filter: &str| all().filter(|(g, r)| r.matches(g, filter)).count();
    assert_eq!(found("C9-140"), 1);
    assert_eq!(found("c9-140"), 1);
    assert!(found("timers::") > 5);
    assert!(found("icrc") > 3);
    assert_eq!(found("no such rule"), 0);
    assert_eq!(found(""), all().count());
}
