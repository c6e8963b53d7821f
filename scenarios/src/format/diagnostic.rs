//! What is wrong with a scenario, and where.

use super::source::{Source, SourceError, line_start, locate};
use std::cell::{Cell, RefCell};
use std::fmt;

/// How many diagnostics are kept; a file with more is something else than a scenario.
const KEPT: usize = 50;

/// A longer word is no misspelt key, and comparing it would take long.
const LONGEST_WORD: usize = 64;

/// Where a value comes from: a stretch of the file, or of one `--set` on the command line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Origin {
    /// 0 is the file, n the n-th setting.
    text: u32,
    start: u32,
    end: u32,
}

impl Origin {
    /// The beginning of the file, for what is missing from all of it.
    pub(crate) const FILE: Origin = Origin {
        text: 0,
        start: 0,
        end: 0,
    };

    pub(crate) fn file(span: std::ops::Range<usize>) -> Origin {
        Origin::of(0, span)
    }

    /// A stretch of the setting at `index`, from 0.
    pub(crate) fn setting(index: usize, span: std::ops::Range<usize>) -> Origin {
        Origin::of(index + 1, span)
    }

    /// The file, without its folder, and the line, or `--set`.
    pub(crate) fn line(self, source: &Source) -> String {
        if self.text != 0 {
            return "--set".to_string();
        }
        let (line, _) = locate(source.text(), boundary(source.text(), self.start as usize));
        let name = source.name();
        let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
        format!("{name}:{line}")
    }

    /// The file, line and column; `--set` if it is no place of the file.
    pub(crate) fn place(self, source: &Source) -> String {
        match self.text {
            0 => {
                let start = boundary(source.text(), self.start as usize);
                let (line, column) = locate(source.text(), start);
                format!("{}:{line}:{column}", source.name())
            }
            _ => "--set".to_string(),
        }
    }

    fn of(text: usize, span: std::ops::Range<usize>) -> Origin {
        let fit = |n| u32::try_from(n).unwrap_or(u32::MAX);
        Origin {
            text: fit(text),
            start: fit(span.start),
            end: fit(span.end),
        }
    }
}

/// One thing that is wrong, with the line it stands on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// `file:line:column`, the file alone if it could not be read, or `--set`.
    pub place: String,
    /// What is wrong: the key, its value, and what is allowed.
    pub message: String,
    /// The line it stands on; `None` if there is no line to show.
    pub line: Option<Line>,
}

/// A line of the source and what to point at in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Number of the line, from 1; 0 for the command line.
    pub number: usize,
    /// The line, or as much of it as fits.
    pub text: String,
    /// Characters of `text` before the caret.
    pub indent: usize,
    /// Carets.
    pub width: usize,
}

/// All that is wrong with a scenario, in the order of the file. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    more: usize,
}

impl std::error::Error for Diagnostics {}

impl Diagnostics {
    /// One diagnostic without a line to show.
    pub fn plain(place: impl Into<String>, message: impl Into<String>) -> Diagnostics {
        Diagnostics {
            list: vec![Diagnostic {
                place: place.into(),
                message: message.into(),
                line: None,
            }],
            more: 0,
        }
    }

    /// The first fifty.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }
}

impl From<SourceError> for Diagnostics {
    fn from(error: SourceError) -> Diagnostics {
        let text = error.to_string();
        let (place, message) = text.split_once(": ").unwrap_or((&text, ""));
        Diagnostics::plain(place, message)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        if let Some(line) = &self.line {
            let number = match line.number {
                0 => String::new(),
                n => n.to_string(),
            };
            let margin = number.len();
            write!(f, "\n  {number} | {}", line.text)?;
            write!(f, "\n  {:margin$} | ", "")?;
            write!(
                f,
                "{:indent$}{:^<width$}",
                "",
                "",
                indent = line.indent,
                width = line.width
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, d) in self.list.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            d.fmt(f)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n... and {more} more"),
        }
    }
}

/// Collects what is wrong while a document is read. Shared by all its readers, hence the cells.
#[derive(Default)]
pub(crate) struct Sink {
    said: RefCell<Vec<(Origin, String)>>,
    /// What is wrong with other files, which the document names.
    elsewhere: RefCell<Vec<Diagnostic>>,
    /// Words that were looked up for a hint.
    hints: Cell<usize>,
}

/// Misspelt words that are looked up in one document. A file may have millions of them, and each lookup goes
/// through all that could be meant.
const HINTS: usize = 200;

impl Sink {
    pub(crate) fn say(&self, at: Origin, message: impl Into<String>) {
        self.said.borrow_mut().push((at, message.into()));
    }

    /// Reports what is wrong with another file; of several points of a sweep that name it, once.
    pub(crate) fn say_elsewhere(&self, found: Diagnostics) {
        let mut all = self.elsewhere.borrow_mut();
        for found in found.list {
            if !all.contains(&found) {
                all.push(found);
            }
        }
    }

    /// What [`hint`] says of one of the first misspelt words; `None` for those after them.
    pub(crate) fn hint<'a, I: IntoIterator<Item = &'a str>>(
        &self,
        word: &str,
        candidates: impl FnOnce() -> I,
    ) -> Option<String> {
        let before = self.hints.get();
        self.hints.set(before + 1);
        (before < HINTS).then(|| hint(word, candidates()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.said.borrow().len() + self.elsewhere.borrow().len()
    }

    /// The collected diagnostics against their texts; `Ok` if there are none. The same thing said twice
    /// of the same place (a default that many hosts inherit, a value in many points of a sweep) is
    /// said once.
    pub(crate) fn finish(self, source: &Source, settings: &[String]) -> Result<(), Diagnostics> {
        let mut raw = self.said.into_inner();
        raw.sort();
        raw.dedup();
        let elsewhere = self.elsewhere.into_inner();
        let all = raw.len() + elsewhere.len();
        if all == 0 {
            return Ok(());
        }
        let here = raw.into_iter();
        let here = here.map(|(at, message)| render(at, message, source, settings));
        let list = here.chain(elsewhere).take(KEPT).collect();
        let more = all.saturating_sub(KEPT);
        Err(Diagnostics { list, more })
    }
}

fn render(at: Origin, message: String, source: &Source, settings: &[String]) -> Diagnostic {
    let (text, place, number, column) = match (at.text as usize).checked_sub(1) {
        None => {
            let start = boundary(source.text(), at.start as usize);
            let (line, column) = locate(source.text(), start);
            (source.text(), at.place(source), line, column)
        }
        Some(n) => {
            let text = settings.get(n).map_or("", String::as_str);
            let start = boundary(text, at.start as usize);
            let column = 1 + text[..start].chars().count();
            (text, "--set".to_string(), 0, column)
        }
    };
    let start = boundary(text, at.start as usize);
    let end = boundary(text, at.end as usize).max(start);
    let begin = match number {
        0 => 0,
        _ => line_start(text, start),
    };
    let whole = match number {
        0 => text,
        _ => text[begin..].lines().next().unwrap_or(""),
    };
    let wanted = text[start..end].lines().next().unwrap_or("");
    Diagnostic {
        place,
        message,
        line: Some(cut(
            number,
            whole,
            column - 1,
            wanted.chars().count().max(1),
        )),
    }
}

/// `offset`, or the nearest place before it where a character begins.
fn boundary(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The part of a line around the caret that fits a terminal, without tabs and control characters.
fn cut(number: usize, line: &str, indent: usize, width: usize) -> Line {
    const BEFORE: usize = 60;
    const ROOM: usize = 100;
    let skip = indent.saturating_sub(BEFORE);
    let dots = if skip > 0 { "..." } else { "" };
    let shown: Vec<char> = line.chars().skip(skip).take(ROOM).collect();
    let mut text = String::from(dots);
    text.extend(shown.iter().map(|&c| if c.is_control() { ' ' } else { c }));
    let room = shown.len().saturating_sub(indent - skip).max(1);
    if line.chars().nth(skip + ROOM).is_some() {
        text.push_str("...");
    }
    Line {
        number,
        text,
        indent: indent - skip + dots.len(),
        width: width.min(room),
    }
}

/// The candidate that `word` may have been meant as, if one is close enough.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().nth(LONGEST_WORD).is_some() {
        return None;
    }
    let lower = word.to_lowercase();
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(&lower, &c.to_lowercase()), c))
        .filter(|&(distance, _)| distance <= limit)
        .min()
        .map(|(_, c)| c)
}

/// `; did you mean "x"?` or nothing.
pub(crate) fn hint<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, candidates)
        .map(|c| format!("; did you mean \"{c}\"?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_shows_its_line() {
        let source = Source::new("x.toml", "[link]\n\tdealy = \"1us\"\n").unwrap();
        let sink = Sink::default();
        sink.say(Origin::file(8..13), "unknown key \"dealy\"");
        sink.say(Origin::file(8..13), "unknown key \"dealy\"");
        sink.say(Origin::setting(0, 5..7), "no");
        let e = sink.finish(&source, &["link.x=5".into()]).unwrap_err();
        assert_eq!(
            e.to_string(),
            "x.toml:2:2: unknown key \"dealy\"\n  2 |  dealy = \"1us\"\n    |  ^^^^^\n--set: no\n   | link.x=5\n   |      ^^"
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let line = format!("{}here{}", "x".repeat(500), "y".repeat(500));
        let l = cut(1, &line, 500, 4);
        let pointed: String = l.text.chars().skip(l.indent).take(l.width).collect();
        assert_eq!(pointed, "here");
        assert!(l.text.len() < 120);
    }

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let keys = ["delay", "rate", "mtu", "retry-count"];
        assert_eq!(closest("dealy", keys), Some("delay"));
        assert_eq!(closest("retry_count", keys), Some("retry-count"));
        assert_eq!(closest("colour", keys), None);
    }
}
