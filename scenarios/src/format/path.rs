//! Paths such as `card.h1.timeout` and `fault.forward.rate`, by which settings and sweeps reach a key.

use super::diagnostic::{Origin, hint};
use super::document::{Node, Table, Value};
use super::scenario::{ROOT, default_name};
use super::schema::{Kind, Section};

/// Puts `node` where `path` says. Tables that are missing are made, members of a list are not.
///
/// `at` is where the path stands. The error is a message about it.
pub(super) fn set(root: &mut Table, path: &str, at: Origin, node: Node) -> Result<(), String> {
    let segments: Vec<&str> = path.split('.').collect();
    if segments.iter().any(|s| s.is_empty()) {
        return Err(format!(
            "\"{path}\" is no path; a path is keys joined by dots, such as link.rate"
        ));
    }
    if segments[0] == "sweep" {
        return Err("\"sweep\" cannot be set; set what it varies instead".into());
    }
    descend(root, &ROOT, "the file", &segments, at, node)
}

fn unknown(section: &Section, label: &str, word: &str) -> String {
    match hint(word, section.names()) {
        none if none.is_empty() => {
            let names: Vec<_> = section.names().collect();
            format!(
                "unknown key \"{word}\" in {label}; the keys are {}",
                names.join(", ")
            )
        }
        hint => format!("unknown key \"{word}\" in {label}{hint}"),
    }
}

fn descend(
    table: &mut Table,
    section: &'static Section,
    label: &str,
    segments: &[&str],
    at: Origin,
    node: Node,
) -> Result<(), String> {
    let (&first, rest) = match segments.split_first() {
        Some(split) => split,
        None => return Err(format!("names all of {label}, not a key in it")),
    };
    let Some(key) = section.key(first) else {
        let [last] = rest else {
            return Err(unknown(section, label, first));
        };
        if section.named.is_none() {
            return Err(unknown(section, label, first));
        }
        // [card.h1]: the same keys once more. Whether there is an h1 is found when it is read.
        let label = format!("[{}.{first}]", section.title.trim_matches(['[', ']']));
        let Some(key) = section.key(last) else {
            return Err(unknown(section, &label, last));
        };
        let inner = table.entry(first, at, || Value::Table(Table::default()));
        return match &mut inner.value {
            Value::Table(inner) => {
                inner.put(key.name, at, node);
                Ok(())
            }
            _ => Err(format!("{label} is no table")),
        };
    };
    match key.kind {
        Kind::Table(inner) => {
            let found = table.entry(first, at, || Value::Table(Table::default()));
            match &mut found.value {
                Value::Table(found) => descend(found, inner, inner.title, rest, at, node),
                _ => Err(format!("\"{first}\" is no table")),
            }
        }
        Kind::Tables(inner) => {
            let list = match table.get_mut(first).map(|n| &mut n.value) {
                Some(Value::Array(list)) => list.as_mut_slice(),
                _ => &mut [],
            };
            let Some((&which, rest)) = rest.split_first() else {
                return Err(format!(
                    "names all of {}; say which by name or number, such as {first}.0",
                    inner.title
                ));
            };
            let title = inner.title;
            let names: Vec<String> = list
                .iter()
                .enumerate()
                .map(|(n, node)| member_name(node, first, n))
                .collect();
            let index = names
                .iter()
                .position(|n| n == which)
                .or_else(|| which.parse().ok().filter(|&n: &usize| n < list.len()));
            let Some(index) = index else {
                let hint = hint(which, names.iter().map(String::as_str));
                return Err(match list.len() {
                    0 => format!("there is no {title} in the file"),
                    n => format!("there is no {title} \"{which}\" among the {n} in the file{hint}"),
                });
            };
            let label = format!("{title} {which}");
            match &mut list[index].value {
                Value::Table(found) => descend(found, inner, &label, rest, at, node),
                _ => Err(format!("{label} is no table")),
            }
        }
        _ if rest.is_empty() => {
            table.put(first, at, node);
            Ok(())
        }
        _ => Err(format!("\"{first}\" in {label} is a value and has no keys")),
    }
}

fn member_name(node: &Node, section: &str, n: usize) -> String {
    match node
        .table()
        .and_then(|t| t.get("name"))
        .map(|e| &e.node.value)
    {
        Some(Value::Text(name)) => name.clone(),
        _ => default_name(section, n),
    }
}
