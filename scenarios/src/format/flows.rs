//! Flows from a file: CSV with the columns from, to, bytes, start and, if need be, operation.

use super::diagnostic::{Diagnostics, Origin, Sink, hint};
use super::document::Node;
use super::reader::Field;
use super::request::Operation;
use super::schema::Kind;
use super::source::Source;
use super::traffic::{MAX_QUEUE_PAIRS, Own};
use crate::units::{Size, Span};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// How many mistakes of a file are told.
const TOLD: usize = 5;

/// What stands in a line; the last one may be missing.
const COLUMNS: [&str; 5] = ["from", "to", "bytes", "start", "operation"];

/// A flow of a file: hosts by index, and what it is like.
pub(super) type Listed = ((usize, usize), Own);

/// A cell: its text without blanks around it, and where that stands in the file.
#[derive(Clone)]
struct Cell<'a> {
    text: &'a str,
    at: Range<usize>,
}

/// What is wrong, and where in the file.
type Wrong = (Range<usize>, String);

/// Reads the flows of `source` between `hosts`; those that do not say what they do do `operation`. A first
/// line that begins with `from` is a heading; empty lines, and those that begin with `#`, are passed over, and so
/// is a byte order mark.
///
/// # Errors
///
/// The first mistakes, each with its line and column.
pub(super) fn parse(
    source: &Source,
    hosts: &[String],
    operation: Operation,
) -> Result<Vec<Listed>, Diagnostics> {
    let index: BTreeMap<&str, usize> = hosts.iter().map(String::as_str).zip(0..).collect();
    let sink = Sink::default();
    let mut flows = Vec::new();
    let mut begin = source.text().len() - unmarked(source.text()).len();
    for (n, whole) in unmarked(source.text()).split_inclusive('\n').enumerate() {
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let at = begin;
        begin += whole.len();
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        if flows.len() as u64 == MAX_QUEUE_PAIRS {
            let told = format!("is a flow more than the limit of {MAX_QUEUE_PAIRS}");
            sink.say(Origin::file(at..at + line.len()), told);
            break;
        }
        let read = cells(line, at).and_then(|cells| match n == 0 && cells[0].text == COLUMNS[0] {
            true => heading(&cells).map(|()| None),
            false => flow(&cells, &index, operation).map(Some),
        });
        match read {
            Ok(flow) => flows.extend(flow),
            Err((at, why)) => sink.say(Origin::file(at), why),
        }
        if sink.len() == TOLD {
            break;
        }
    }
    if flows.is_empty() && sink.is_empty() {
        let told = format!("has no flows; a line of it is {}", wanted());
        return Err(Diagnostics::plain(source.name(), told));
    }
    sink.finish(source, &[])?;
    Ok(flows)
}

/// A text without the mark that some programs write in front of UTF-8.
fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// What a line should be.
fn wanted() -> String {
    let [needed @ .., last] = COLUMNS;
    format!(
        "{} and perhaps {last}, with commas between",
        needed.join(", ")
    )
}

/// The cells of a line that begins at byte `begin` of the file.
fn cells(line: &str, begin: usize) -> Result<Vec<Cell<'_>>, Wrong> {
    let mut cells = Vec::new();
    let mut at = begin;
    for cell in line.split(',') {
        let text = cell.trim();
        let start = at + (cell.len() - cell.trim_start().len());
        cells.push(Cell {
            text,
            at: start..start + text.len(),
        });
        at += cell.len() + 1;
    }
    let whole = begin..begin + line.len();
    if line.contains('\r') {
        let told = "has a carriage return within; lines end with LF or CR LF";
        return Err((whole, told.into()));
    }
    if let Some(quoted) = cells.iter().find(|c| c.text.starts_with('"')) {
        let told = format!(
            "{} is in quotes; cells stand without them",
            shown(quoted.text)
        );
        return Err((quoted.at.clone(), told));
    }
    let least = COLUMNS.len() - 1;
    match cells.len() {
        1 => Err((whole, format!("has one column, but must have {}", wanted()))),
        n if n < least => Err((
            whole,
            format!("has {n} columns, but must have {}", wanted()),
        )),
        n if n > COLUMNS.len() => {
            let first = &cells[COLUMNS.len()];
            let told = format!("has {n} columns, but must have {}", wanted());
            Err((first.at.start..whole.end, told))
        }
        _ => Ok(cells),
    }
}

/// A heading must name the columns as they are.
fn heading(cells: &[Cell<'_>]) -> Result<(), Wrong> {
    let other = cells
        .iter()
        .zip(COLUMNS)
        .find(|(cell, name)| cell.text != *name);
    other.map_or(Ok(()), |(cell, name)| {
        let told = format!(
            "heads the column \"{}\", but must be \"{name}\"",
            shown(cell.text)
        );
        Err((cell.at.clone(), told))
    })
}

/// The flow of a line.
fn flow(
    cells: &[Cell<'_>],
    hosts: &BTreeMap<&str, usize>,
    operation: Operation,
) -> Result<Listed, Wrong> {
    let host = |n: usize| {
        let name = cells[n].text;
        hosts.get(name).copied().ok_or_else(|| {
            let hint = hint(name, hosts.keys().copied());
            wrong(cells, n, format_args!("names no host{hint}"))
        })
    };
    let (from, to) = (host(0)?, host(1)?);
    if from == to {
        return Err(wrong(
            cells,
            1,
            "is \"from\" too; a host does not send to itself",
        ));
    }
    let size: Size = quantity(cells, 2, &Kind::Size(0, 1 << 31))?;
    let start: Span = quantity(cells, 3, &Kind::Span(0, 1_000_000_000_000_000))?;
    let operation = match cells.get(4).map(|cell| cell.text) {
        None | Some("") => operation,
        Some(word) => Operation::from_name(word).ok_or_else(|| {
            let known = Kind::Choice(Operation::NAMES);
            wrong(cells, 4, format_args!("must be {known}"))
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

fn quantity<T: Field>(cells: &[Cell<'_>], n: usize, kind: &Kind) -> Result<T, Wrong> {
    if cells[n].text.is_empty() {
        return Err(wrong(
            cells,
            n,
            format_args!("is empty, but must be {kind}"),
        ));
    }
    T::read(&Node::from_setting(cells[n].text, 0, 0), kind).map_err(|why| wrong(cells, n, why))
}

/// What is wrong with the cell of a column.
fn wrong(cells: &[Cell<'_>], n: usize, why: impl fmt::Display) -> Wrong {
    let cell = &cells[n];
    let told = format!("{} = \"{}\" {why}", COLUMNS[n], shown(cell.text));
    (cell.at.clone(), told)
}

/// As much of a cell as fits a message.
fn shown(text: &str) -> String {
    const ROOM: usize = 40;
    match text.char_indices().nth(ROOM) {
        None => text.to_string(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Listed>, String> {
        let hosts = ["h0", "h1", "h2"].map(String::from);
        let source = Source::new("f.csv", text).unwrap();
        parse(&source, &hosts, Operation::Write).map_err(|e| e.to_string())
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
    fn what_other_programs_write_is_read() {
        let plain = read("h0,h1,4KiB,12us\nh2,h0,1000,0\n").unwrap();
        for text in [
            "\u{feff}h0,h1,4KiB,12us\nh2,h0,1000,0",
            "\u{feff}from,to,bytes,start\r\nh0,h1,4KiB,12us\r\nh2,h0,1000,0\r\n",
            "from,to,bytes,start,operation\nh0,h1,4KiB,12us,\n\r\n\nh2,h0,1000,0,write",
        ] {
            assert_eq!(read(text).unwrap(), plain, "{text:?}");
        }
    }

    #[test]
    fn mistakes_have_a_line_and_a_column() {
        let long = "h".repeat(70);
        for (text, message) in [
            ("h0,h9,1,0", "1:4: to = \"h9\" names no host; did you mean"),
            (
                "h0,h1,1,0\nh1, h1,1,0",
                "2:5: to = \"h1\" is \"from\" too; a host does not",
            ),
            (
                "\u{feff}h0,h1,1,0\r\nh1, h1,1,0\r\n",
                "2:5: to = \"h1\" is \"from\" too",
            ),
            ("h0,h1,-1,0", "1:7: bytes = \"-1\" "),
            (
                "h0,h1,3GiB,0",
                "1:7: bytes = \"3GiB\" must be a size from 0B to 2GiB",
            ),
            (
                "h0,h1,,0",
                "1:7: bytes = \"\" is empty, but must be a size from 0B to 2GiB",
            ),
            (
                "h0,h1,1.5,0",
                "1:7: bytes = \"1.5\" is a number with a fraction",
            ),
            ("h0,h1,\0,0", "1:7: bytes = \"\0\" is not a size"),
            ("h0,h1,1,5", "1:9: start = \"5\" "),
            (
                "h0,h1,1,2000s",
                "1:9: start = \"2000s\" must be a span of time from 0ps to 1000s",
            ),
            ("h0,h1,1,1e400s", "1:9: start = \"1e400s\" "),
            (
                "h0,h1,1,0,push",
                "1:11: operation = \"push\" must be one of \"send\"",
            ),
            (
                "h0,h1,1",
                "1:1: has 3 columns, but must have from, to, bytes, start and perhaps",
            ),
            ("h0;h1;1;0", "1:1: has one column, but must have from"),
            ("h0,h1,1,0,read,7", "1:16: has 6 columns, but must have"),
            (
                "h0,\"h1\",1,0",
                "1:4: \"h1\" is in quotes; cells stand without them",
            ),
            (
                "h0,h1,1,0\rh0,h1,1,0\r",
                "1:1: has a carriage return within",
            ),
            (
                "from,to,size,start\n",
                "1:9: heads the column \"size\", but must be \"bytes\"",
            ),
            (
                "h0,h1,1,0\nfrom,to,bytes,start",
                "2:1: from = \"from\" names no host",
            ),
            (
                "\u{e4}\u{f6},h1,1,0",
                "1:1: from = \"\u{e4}\u{f6}\" names no host",
            ),
            (
                &format!("{long},h1,1,0"),
                &format!("1:1: from = \"{}...\" names", &long[..40]),
            ),
            (
                "h0,h1,99999999999999999999999999999999999999999,0",
                "1:7: bytes = \"9999999",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(&format!("f.csv:{message}")), "{error}");
            let told = error.lines().next().unwrap_or("");
            assert!(told.len() < 250, "{told}");
        }
        for text in [
            "",
            "\n\r\n",
            "from,to,bytes,start\n",
            "# h0,h1,1,0",
            "\u{feff}",
        ] {
            let error = read(text).unwrap_err();
            assert!(
                error.starts_with("f.csv: has no flows; "),
                "{text:?}: {error}"
            );
        }
        let many = read(&"x,y,1,0\n".repeat(1000)).unwrap_err();
        assert_eq!(many.matches("names no host").count(), TOLD);
        let huge = read(&"h0,h1,1,0\n".repeat(MAX_QUEUE_PAIRS as usize + 1)).unwrap_err();
        assert!(
            huge.starts_with("f.csv:131073:1: is a flow more than the limit of 131072"),
            "{huge}"
        );
    }
}
