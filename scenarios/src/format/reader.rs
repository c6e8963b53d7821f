//! Reads one table of the document according to its section of the schema.

use super::diagnostic::{Origin, Sink, hint};
use super::document::{Entry, Node, Table, Value};
use super::schema::{Default, Key, Kind, Only, Section};
use super::switch::Priorities;
use crate::units::{Probability, Rate, Ratio, Size, Span, UnitError, parse_span};
use std::fmt;
use std::str::FromStr;

/// A table being read. Values that are missing or wrong are reported to the sink and stand in as
/// placeholders, so that one pass finds everything that is wrong; a document with a report is never
/// run.
pub(crate) struct Reader<'a> {
    section: &'static Section,
    /// The table, and after it those that it inherits from, each with what messages call it.
    chain: Vec<(&'a Table, String)>,
    origin: Origin,
    label: String,
    pub(crate) sink: &'a Sink,
}

/// A type that a value is read into.
pub(crate) trait Field: Sized {
    /// Stands in for a value that could not be read.
    fn placeholder() -> Self;
    /// The value, or what is wrong with it, to follow "key = value in [section]".
    fn read(node: &Node, kind: &Kind) -> Result<Self, String>;
}

impl<'a> Reader<'a> {
    /// Begins to read `table`, which is called `label` in messages, and reports the keys it should not
    /// have.
    pub(crate) fn new(
        section: &'static Section,
        table: &'a Table,
        origin: Origin,
        label: impl Into<String>,
        sink: &'a Sink,
    ) -> Reader<'a> {
        let label = label.into();
        Reader {
            section,
            chain: vec![(table, label.clone())],
            origin,
            label,
            sink,
        }
        .checked()
    }

    /// Reports the keys that its own table should not have, given what it inherits.
    pub(crate) fn checked(self) -> Reader<'a> {
        if let Some(&(table, _)) = self.chain.first() {
            for entry in table.iter() {
                self.check_key(entry);
            }
        }
        self
    }

    /// A reader with no table of its own yet, only what it will [`inherit`](Reader::inherit).
    pub(crate) fn unchecked(
        section: &'static Section,
        origin: Origin,
        label: impl Into<String>,
        sink: &'a Sink,
    ) -> Reader<'a> {
        Reader {
            section,
            chain: Vec::new(),
            origin,
            label: label.into(),
            sink,
        }
    }

    /// Takes what is not given from `table`, called `label`, which another reader checks.
    pub(crate) fn inherit(mut self, table: &'a Table, label: impl Into<String>) -> Reader<'a> {
        self.chain.push((table, label.into()));
        self
    }

    fn check_key(&self, entry: &Entry) {
        let Some(key) = self.section.key(&entry.key) else {
            // A table in [card] is meant for a host; whoever knows the hosts checks the name.
            if self.section.named.is_none() || entry.node.table().is_none() {
                self.sink.say(
                    entry.key_origin,
                    format!(
                        "unknown key \"{}\"{}{}",
                        shorten(&entry.key),
                        match self.label.as_str() {
                            "" => String::new(),
                            label => format!(" in {label}"),
                        },
                        self.hint(&entry.key)
                    ),
                );
            }
            return;
        };
        let Some(Only {
            key: other,
            values,
            unused,
        }) = key.only
        else {
            return;
        };
        if unused && self.has(other) {
            return;
        }
        let actual = match self.find(other).map(|e| &e.node.value) {
            Some(Value::Text(s)) => s.as_str(),
            Some(_) => return,
            None => match self.section.key(other).map(|k| k.default) {
                Some(Default::Value(v)) => v,
                _ => return,
            },
        };
        // A misspelt kind is reported by itself.
        let known = match self.section.key(other).map(|k| k.kind) {
            Some(Kind::Choice(words)) => words.contains(&actual),
            _ => true,
        };
        if known && !values.contains(&actual) {
            let values: Vec<_> = values.iter().map(|v| format!("\"{v}\"")).collect();
            self.sink.say(
                entry.key_origin,
                format!(
                    "\"{}\" in {} means nothing with {other} = \"{actual}\"; it is for {}",
                    entry.key,
                    self.label,
                    values.join(", ")
                ),
            );
        }
    }

    fn hint(&self, word: &str) -> String {
        match self.sink.hint(word, || self.section.names()) {
            Some(none) if none.is_empty() => {
                let names: Vec<_> = self.section.names().collect();
                format!("; the keys are {}", names.join(", "))
            }
            hint => hint.unwrap_or_default(),
        }
    }

    fn find(&self, name: &str) -> Option<&'a Entry> {
        self.lookup(name).map(|(e, _)| e)
    }

    fn lookup(&self, name: &str) -> Option<(&'a Entry, &str)> {
        self.chain
            .iter()
            .find_map(|(t, label)| Some((t.get(name)?, label.as_str())))
    }

    fn key(&self, name: &str) -> &'static Key {
        match self.section.key(name) {
            Some(key) => key,
            // The schema is static: the first test that reads the section finds this.
            None => panic!("the schema has no key {name} in {}", self.section.title),
        }
    }

    /// Where the value of `name` stands, or the table if it is not given.
    pub(crate) fn origin(&self, name: &str) -> Origin {
        self.find(name).map_or(self.origin, |e| e.node.origin)
    }

    /// True if `name` is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// True if `name` is given in its own table, not inherited.
    pub(crate) fn has_itself(&self, name: &str) -> bool {
        self.chain
            .first()
            .is_some_and(|(t, _)| t.get(name).is_some())
    }

    /// The value as it stands in the document.
    pub(crate) fn node(&self, name: &str) -> Option<&'a Node> {
        let _ = self.key(name);
        self.find(name).map(|e| &e.node)
    }

    /// What the table is called in messages.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Reports something about the value of `name`.
    pub(crate) fn say(&self, name: &str, message: impl fmt::Display) {
        let what = match self.lookup(name) {
            Some((e, "")) => format!("{name} = {} {message}", e.node),
            Some((e, label)) => format!("{name} = {} in {label} {message}", e.node),
            None => format!("{} {message}", self.label),
        };
        self.sink.say(self.origin(name), what);
    }

    /// The value of `name`, or its default; a placeholder if it is wrong or required and missing.
    pub(crate) fn get<T: Field>(&self, name: &'static str) -> T {
        let key = self.key(name);
        if self.has(name) {
            return self.opt(name).unwrap_or_else(T::placeholder);
        }
        match key.default {
            Default::Value(text) => {
                let node = Node::from_setting(text, 0, 0);
                match T::read(&node, &key.kind) {
                    Ok(value) => value,
                    Err(why) => panic!("the default of {name} {why}"),
                }
            }
            Default::Required => {
                self.sink.say(
                    self.origin,
                    format!(
                        "{} has no \"{name}\", which must be {}",
                        self.label, key.kind
                    ),
                );
                T::placeholder()
            }
            Default::Derived(_) => T::placeholder(),
        }
    }

    /// The value of `name` if it is given and right.
    pub(crate) fn opt<T: Field>(&self, name: &'static str) -> Option<T> {
        let key = self.key(name);
        let node = &self.find(name)?.node;
        match T::read(node, &key.kind) {
            Ok(value) => Some(value),
            Err(why) => {
                self.say(name, why);
                None
            }
        }
    }

    /// The table under `name`, or an empty one.
    pub(crate) fn table(&self, name: &'static str) -> (&'a Table, Origin) {
        static EMPTY: Table = Table::EMPTY;
        let _ = self.key(name);
        match self.find(name) {
            None => (&EMPTY, self.origin),
            Some(e) => match &e.node.value {
                Value::Table(t) => (t, e.node.origin),
                _ => {
                    self.sink.say(
                        e.node.origin,
                        format!(
                            "\"{name}\" is {}, but must be the table [{name}]",
                            e.node.kind()
                        ),
                    );
                    (&EMPTY, e.node.origin)
                }
            },
        }
    }

    /// The tables under `name`.
    pub(crate) fn tables(&self, name: &'static str) -> Vec<(&'a Table, Origin)> {
        let _ = self.key(name);
        let Some(e) = self.find(name) else {
            return Vec::new();
        };
        let wrong = |node: &Node| {
            self.sink.say(
                node.origin,
                format!(
                    "\"{name}\" is {}, but must be tables [[{name}]]",
                    node.kind()
                ),
            );
        };
        match &e.node.value {
            Value::Array(list) if is_too_many(list.len()) => {
                let told = format!("[[{name}]] stands {} times", list.len());
                self.sink
                    .say(list[0].origin, format!("{told}; the limit is {MAX_LIST}"));
                Vec::new()
            }
            Value::Array(list) => list
                .iter()
                .filter_map(|node| match &node.value {
                    Value::Table(t) => Some((t, node.origin)),
                    _ => {
                        wrong(node);
                        None
                    }
                })
                .collect(),
            _ => {
                wrong(&e.node);
                Vec::new()
            }
        }
    }

    /// The tables inside this section that are called after something: `[card.h1]`.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'a Entry, &'a Table)> {
        let own = self.chain.first().map(|c| c.0);
        own.into_iter()
            .flat_map(Table::iter)
            .filter(|e| self.section.key(&e.key).is_none())
            .filter_map(|e| Some((e, e.node.table()?)))
    }
}

fn shorten(s: &str) -> String {
    s.chars()
        .take(40)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// The most members a list of names or of tables may have.
const MAX_LIST: usize = 4096;

/// What is wrong with a list of so many names; whoever looks each one up takes no longer list.
pub(crate) fn too_many(len: usize) -> String {
    format!("has {len} names; the limit is {MAX_LIST}")
}

/// True if a list of so many names is too long.
pub(crate) fn is_too_many(len: usize) -> bool {
    len > MAX_LIST
}

fn wrong_kind(node: &Node, kind: &Kind) -> String {
    format!("is {}, but must be {kind}", node.kind())
}

/// Reads one of `words`, or a list of them, each at most once.
pub(crate) fn choices<T: Copy + PartialEq>(
    node: &Node,
    words: &'static [&'static str],
    from: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
    let Value::Array(list) = &node.value else {
        return choice(node, words, &from).map(|one| vec![one]);
    };
    let mut all = Vec::new();
    for node in list {
        let one = choice(node, words, &from).map_err(|why| format!("has {node}, which {why}"))?;
        if all.contains(&one) {
            return Err(format!("has {node} twice"));
        }
        all.push(one);
    }
    Ok(all)
}

/// Reads one of `words`.
pub(crate) fn choice<T>(
    node: &Node,
    words: &'static [&'static str],
    from: impl Fn(&str) -> Option<T>,
) -> Result<T, String> {
    match &node.value {
        Value::Text(s) => from(s).ok_or_else(|| {
            let hint = hint(s, words.iter().copied());
            format!("must be {}{hint}", Kind::Choice(words))
        }),
        _ => Err(wrong_kind(node, &Kind::Choice(words))),
    }
}

impl Field for String {
    fn placeholder() -> String {
        String::new()
    }
    fn read(node: &Node, kind: &Kind) -> Result<String, String> {
        let Value::Text(s) = &node.value else {
            return Err(wrong_kind(node, kind));
        };
        match kind {
            Kind::Name => name(s, kind).map(|()| s.clone()),
            _ => Ok(s.clone()),
        }
    }
}

fn name(s: &str, kind: &Kind) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if s.is_empty() || s.len() > 64 || !s.chars().all(fits) {
        return Err(format!("must be {kind}, at most 64 of them"));
    }
    Ok(())
}

/// A name or a list of names.
impl Field for Vec<String> {
    fn placeholder() -> Vec<String> {
        Vec::new()
    }
    fn read(node: &Node, kind: &Kind) -> Result<Vec<String>, String> {
        let one = |node: &Node| match &node.value {
            Value::Text(s) => match name(s, &Kind::Name) {
                Ok(()) => Ok(s.clone()),
                Err(_) => Err(format!("has {node}, which is not {}", Kind::Name)),
            },
            _ => Err(wrong_kind(node, kind)),
        };
        match &node.value {
            Value::Array(list) if list.is_empty() => Err("is empty".into()),
            Value::Array(list) if is_too_many(list.len()) => Err(too_many(list.len())),
            Value::Array(list) => list.iter().map(one).collect(),
            _ => one(node).map(|n| vec![n]),
        }
    }
}

impl Field for bool {
    fn placeholder() -> bool {
        false
    }
    fn read(node: &Node, kind: &Kind) -> Result<bool, String> {
        match node.value {
            Value::Boolean(b) => Ok(b),
            _ => Err(wrong_kind(node, kind)),
        }
    }
}

fn count(node: &Node, kind: &Kind) -> Result<u64, String> {
    let (Kind::Count(min, max) | Kind::CountOrNames(min, max)) = *kind else {
        return Err(wrong_kind(node, kind));
    };
    match node.value {
        Value::Integer(n) => n
            .and_then(|n| u64::try_from(n).ok())
            .filter(|n| (min..=max).contains(n))
            .ok_or_else(|| format!("must be {kind}")),
        _ => Err(wrong_kind(node, kind)),
    }
}

macro_rules! counts {
    ($($t:ty),*) => {$(
        impl Field for $t {
            fn placeholder() -> $t {
                0
            }
            fn read(node: &Node, kind: &Kind) -> Result<$t, String> {
                count(node, kind)?.try_into().map_err(|_| format!("must be {kind}"))
            }
        }
    )*};
}
counts!(u8, u16, u32, u64);

impl Field for Priorities {
    fn placeholder() -> Priorities {
        Priorities(0)
    }
    fn read(node: &Node, kind: &Kind) -> Result<Priorities, String> {
        let bit = |node: &Node| match count(node, &Kind::Count(0, 7)) {
            Ok(n) => Ok(1u8 << n),
            Err(_) => Err(format!("must be {kind}")),
        };
        match &node.value {
            Value::Array(list) if list.is_empty() => Err("is empty".into()),
            Value::Array(list) => list
                .iter()
                .try_fold(0, |mask, node| Ok(mask | bit(node)?))
                .map(Priorities),
            _ => bit(node).map(Priorities),
        }
    }
}

/// Weights, one for each priority.
impl Field for [u8; 8] {
    fn placeholder() -> [u8; 8] {
        [0; 8]
    }
    fn read(node: &Node, kind: &Kind) -> Result<[u8; 8], String> {
        let wrong = || format!("must be {kind}");
        let Value::Array(list) = &node.value else {
            return Err(wrong_kind(node, kind));
        };
        let weights: Result<Vec<u8>, String> = list
            .iter()
            .map(|node| u8::read(node, &Kind::Count(0, 255)).map_err(|_| wrong()))
            .collect();
        weights?.try_into().map_err(|_| wrong())
    }
}

/// A quantity that is written as text with a unit.
fn quantity<T>(
    node: &Node,
    kind: &Kind,
    parse: impl Fn(&str) -> Result<T, UnitError>,
    raw: impl Fn(&T) -> u64,
) -> Result<T, String> {
    let value = match &node.value {
        Value::Text(s) => parse(s),
        // Whether a number without a unit will do is the quantity's to say.
        Value::Integer(Some(n)) => parse(&n.to_string()),
        _ => return Err(wrong_kind(node, kind)),
    };
    let value = value.map_err(|e| match e {
        // What no quantity can be is no limit of the key's.
        UnitError::TooLarge { .. } => format!("must be {kind}"),
        e => e.to_string(),
    })?;
    match *kind {
        Kind::Rate(min, max) | Kind::Span(min, max) | Kind::Size(min, max)
            if !(min..=max).contains(&raw(&value)) =>
        {
            Err(format!("must be {kind}"))
        }
        _ => Ok(value),
    }
}

impl Field for Rate {
    fn placeholder() -> Rate {
        Rate(1)
    }
    fn read(node: &Node, kind: &Kind) -> Result<Rate, String> {
        quantity(node, kind, Rate::from_str, |r| r.0)
    }
}

impl Field for Size {
    fn placeholder() -> Size {
        Size(0)
    }
    fn read(node: &Node, kind: &Kind) -> Result<Size, String> {
        quantity(node, kind, Size::from_str, |s| s.0)
    }
}

impl Field for Span {
    fn placeholder() -> Span {
        Span::ZERO
    }
    fn read(node: &Node, kind: &Kind) -> Result<Span, String> {
        quantity(node, kind, parse_span, |s| s.as_ps())
    }
}

/// A number that is written as such, in percent or as a fraction.
fn real<T>(
    node: &Node,
    kind: &Kind,
    parse: impl Fn(&str) -> Result<T, UnitError>,
    new: impl Fn(f64) -> Result<T, UnitError>,
) -> Result<T, String> {
    match &node.value {
        Value::Text(s) => parse(s),
        Value::Integer(Some(n)) => new(*n as f64),
        Value::Float(n) => new(*n),
        _ => return Err(wrong_kind(node, kind)),
    }
    .map_err(|e| e.to_string())
}

impl Field for Probability {
    fn placeholder() -> Probability {
        Probability::ZERO
    }
    fn read(node: &Node, kind: &Kind) -> Result<Probability, String> {
        real(node, kind, Probability::from_str, Probability::new)
    }
}

impl Field for Ratio {
    fn placeholder() -> Ratio {
        Ratio::ONE
    }
    fn read(node: &Node, kind: &Kind) -> Result<Ratio, String> {
        real(node, kind, Ratio::from_str, Ratio::new)
    }
}
