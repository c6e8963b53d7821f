//! Flows from a file: CSV with the columns from, to, bytes, start and, if need be, operation.

use super::document::Node;
use super::reader::Field;
use super::request::Operation;
use super::schema::Kind;
use super::source::Source;
use super::traffic::{MAX_QUEUE_PAIRS, Own};
use crate::units::{Size, Span};
use std::collections::BTreeMap;

/// How many mistakes of a file are told.
const TOLD: usize = 5;

/// A flow of a file: hosts by index, and what it is like.
pub(super) type Listed = ((usize, usize), Own);

/// Reads the flows of `source` between `hosts`; those that do not say what they do do `operation`. A first
/// line that begins with `from` is a heading; empty lines, and those that begin with `#`, are passed over.
/// The error is a message with the line and column of each of the first mistakes.
pub(super) fn parse(
    source: &Source,
    hosts: &[String],
    operation: Operation,
) -> Result<Vec<Listed>, String> {
    let index: BTreeMap<&str, usize> = hosts.iter().map(String::as_str).zip(0..).collect();
    let (mut flows, mut wrong) = (Vec::new(), Vec::new());
    for (n, line) in source.text().lines().enumerate() {
        let empty = line.trim().is_empty() || line.trim_start().starts_with('#');
        let heading = n == 0 && line.split(',').next().is_some_and(|c| c.trim() == "from");
        if empty || heading {
            continue;
        }
        if flows.len() as u64 == MAX_QUEUE_PAIRS {
            wrong.push(format!(
                "{}:{}:1: there are more flows than the limit of {MAX_QUEUE_PAIRS}",
                source.name(),
                n + 1
            ));
            break;
        }
        match flow(line, &index, operation) {
            Ok(flow) => flows.push(flow),
            Err((column, why)) => {
                wrong.push(format!("{}:{}:{column}: {why}", source.name(), n + 1));
                if wrong.len() == TOLD {
                    break;
                }
            }
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("; "));
    }
    if flows.is_empty() {
        return Err(format!("{}: has no flows", source.name()));
    }
    Ok(flows)
}

/// A flow, or what is wrong at which column, counted in characters from 1.
fn flow(
    line: &str,
    hosts: &BTreeMap<&str, usize>,
    operation: Operation,
) -> Result<Listed, (usize, String)> {
    let mut cells = Vec::new();
    let mut column = 1;
    for cell in line.split(',') {
        let blank = cell.chars().take_while(|c| c.is_whitespace()).count();
        cells.push((column + blank, cell.trim()));
        column += cell.chars().count() + 1;
    }
    if !(4..=5).contains(&cells.len()) {
        let is = cells.len();
        return Err((
            1,
            format!("has {is} columns; it must have from, to, bytes, start and perhaps operation"),
        ));
    }
    let host = |n: usize| {
        let (at, name) = cells[n];
        let found = hosts.get(name).copied();
        found.ok_or_else(|| (at, format!("names no host \"{}\"", shown(name))))
    };
    let (from, to) = (host(0)?, host(1)?);
    if from == to {
        return Err((cells[1].0, "a host does not send to itself".into()));
    }
    let size: Size = quantity(cells[2], &Kind::Size(0, 1 << 31))?;
    let start: Span = quantity(cells[3], &Kind::Span(0, 1_000_000_000_000_000))?;
    let operation = match cells.get(4) {
        None | Some((_, "")) => operation,
        Some(&(at, word)) => Operation::from_name(word).ok_or_else(|| {
            let known = Kind::Choice(Operation::NAMES);
            (at, format!("\"{}\" must be {known}", shown(word)))
        })?,
    };
    Ok((
        (from, to),
        Own {
            size,
            start,
            operation,
        },
    ))
}

fn quantity<T: Field>((at, text): (usize, &str), kind: &Kind) -> Result<T, (usize, String)> {
    T::read(&Node::from_setting(text, 0, 0), kind)
        .map_err(|why| (at, format!("\"{}\" {why}", shown(text))))
}

/// As much of a cell as fits a message.
fn shown(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(40).map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Listed>, String> {
        let hosts = ["h0", "h1", "h2"].map(String::from);
        let source = Source::new("f.csv", text).unwrap();
        parse(&source, &hosts, Operation::Write)
    }

    #[test]
    fn flows_are_read_with_their_units() {
        let flows =
            read("from,to,bytes,start\n# a comment\n\nh0,h1,4KiB,12us\n h2 , h0 ,1000,0,read\n");
        let own = |size, start, operation| Own {
            size: Size(size),
            start: Span::from_us(start),
            operation,
        };
        assert_eq!(
            flows.unwrap(),
            [
                ((0, 1), own(4096, 12, Operation::Write)),
                ((2, 0), own(1000, 0, Operation::Read)),
            ]
        );
    }

    #[test]
    fn mistakes_have_a_line_and_a_column() {
        for (text, message) in [
            ("h0,h9,1,0", "f.csv:1:4: names no host \"h9\""),
            (
                "h0,h1,1,0\nh1, h1,1,0",
                "f.csv:2:5: a host does not send to itself",
            ),
            ("h0,h1,-1,0", "f.csv:1:7: \"-1\" "),
            (
                "h0,h1,3GiB,0",
                "f.csv:1:7: \"3GiB\" must be a size from 0B to 2GiB",
            ),
            ("h0,h1,1,5", "f.csv:1:9: \"5\" "),
            (
                "h0,h1,1,0,push",
                "f.csv:1:11: \"push\" must be one of \"send\"",
            ),
            ("h0,h1,1", "f.csv:1:1: has 3 columns"),
            ("\u{e4}\u{f6},h1,1,0", "f.csv:1:1: names no host"),
            ("from,to,bytes,start\n", "f.csv: has no flows"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
        let many = read(&"x,y,1,0\n".repeat(1000)).unwrap_err();
        assert_eq!(many.matches("names no host").count(), TOLD);
        let huge = read(&"h0,h1,1,0\n".repeat(MAX_QUEUE_PAIRS as usize + 1)).unwrap_err();
        assert!(
            huge.contains("more flows than the limit of 131072"),
            "{huge}"
        );
    }
}
