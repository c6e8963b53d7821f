//! A TOML document as a tree of values that know where they come from.
//!
//! Settings from the command line and the values of a sweep replace values here, before anything is
//! given a type, so that every key can be set and swept under the same rules and with the same
//! messages.

use super::diagnostic::{Origin, Sink};
use super::source::Source;
use crate::warning::Place;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// A TOML value. Numbers keep what they were written as, so that no digit is lost before their kind is
/// known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    /// `None` if it does not fit 128 bits.
    Integer(Option<i128>),
    Float(f64),
    Boolean(bool),
    Datetime,
    Array(Vec<Node>),
    Table(Table),
}

/// Keys and values in the order of the source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    /// Places in `entries` in the order of the keys, which are found by halving.
    by_key: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_origin: Origin,
    pub(crate) node: Node,
}

/// Values are equal wherever they stand.
impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.value.same(&other.value)
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.entries == other.entries
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key == other.key && self.node == other.node
    }
}

impl Value {
    /// Equality of what is meant: `0` and `0.0` are the same number.
    fn same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Integer(Some(a)), Value::Float(b))
            | (Value::Float(b), Value::Integer(Some(a))) => *a as f64 == *b,
            (a, b) => a == b,
        }
    }
}

/// Where `at` stands in a document: the value, its own or the one it inherits, or else the table.
pub(crate) fn place(document: &Table, at: &Place) -> Origin {
    let Some(section) = document.get(at.section) else {
        return Origin::FILE;
    };
    if let Value::Array(list) = &section.node.value {
        let called = |table: &Table, n| match table.get("name").map(|e| &e.node.value) {
            Some(Value::Text(name)) => *name == at.name,
            _ => super::scenario::default_name(at.section, n) == at.name,
        };
        let mut own = list.iter().enumerate();
        let own = own.find(|(n, node)| node.table().is_some_and(|table| called(table, *n)));
        let Some((_, own)) = own else {
            return section.key_origin;
        };
        let key = own.table().and_then(|table| table.get(at.key));
        return key.map_or(own.origin, |key| key.node.origin);
    }
    let all = section.node.table();
    let own = all.and_then(|all| all.get(&at.name));
    let value = |table: &Table| Some(table.get(at.key)?.node.origin);
    own.and_then(|own| value(own.node.table()?))
        .or_else(|| value(all?))
        .or_else(|| own.map(|own| own.key_origin))
        .unwrap_or(section.key_origin)
}

impl Table {
    pub(crate) const EMPTY: Table = Table {
        entries: Vec::new(),
        by_key: Vec::new(),
    };

    /// Of entries with a key each of its own.
    fn new(entries: Vec<Entry>) -> Table {
        let mut by_key: Vec<usize> = (0..entries.len()).collect();
        by_key.sort_by(|&a, &b| entries[a].key.cmp(&entries[b].key));
        Table { entries, by_key }
    }

    /// Where `key` is in `by_key`, or where it would be.
    fn find(&self, key: &str) -> Result<usize, usize> {
        self.by_key
            .binary_search_by(|&n| self.entries[n].key.as_str().cmp(key))
    }

    fn index(&self, key: &str) -> Option<usize> {
        Some(self.by_key[self.find(key).ok()?])
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        Some(&self.entries[self.index(key)?])
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let index = self.index(key)?;
        Some(&mut self.entries[index].node)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The value under `key`, put there by `default` if there is none.
    pub(crate) fn entry(
        &mut self,
        key: &str,
        at: Origin,
        default: impl FnOnce() -> Value,
    ) -> &mut Node {
        let index = match self.find(key) {
            Ok(place) => self.by_key[place],
            Err(place) => {
                self.by_key.insert(place, self.entries.len());
                self.entries.push(Entry {
                    key: key.to_string(),
                    key_origin: at,
                    node: Node {
                        value: default(),
                        origin: at,
                    },
                });
                self.entries.len() - 1
            }
        };
        &mut self.entries[index].node
    }

    /// Puts `node` under `key`, in place of what was there.
    pub(crate) fn put(&mut self, key: &str, key_origin: Origin, node: Node) {
        self.take(key);
        self.entry(key, key_origin, || Value::Boolean(false));
        if let Some(entry) = self.entries.last_mut() {
            entry.node = node;
        }
    }

    /// Takes out the value under `key`.
    pub(crate) fn take(&mut self, key: &str) -> Option<Entry> {
        let index = self.by_key.remove(self.find(key).ok()?);
        for place in &mut self.by_key {
            *place -= usize::from(*place > index);
        }
        Some(self.entries.remove(index))
    }
}

impl Node {
    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(t) => Some(t),
            _ => None,
        }
    }

    /// What the value is, for a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "a text",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number with a fraction or exponent",
            Value::Boolean(_) => "a boolean",
            Value::Datetime => "a date or time",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// Reads the text of a setting at bytes `start..` of the setting `index`: a TOML value, or, as no
    /// shell keeps quotes, a bare text such as `100Gbps`.
    pub(crate) fn from_setting(text: &str, index: usize, start: usize) -> Node {
        let origin = Origin::setting(index, start..start + text.len());
        let here = |_| origin;
        match DeValue::parse(text) {
            Ok(value) => convert(value.get_ref(), origin, &here),
            Err(_) => Node {
                value: Value::Text(text.to_string()),
                origin,
            },
        }
    }
}

/// As it would be written in the file, cut to a length that fits a message.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ROOM: usize = 40;
        match &self.value {
            Value::Text(s) => {
                let cut: String = s
                    .chars()
                    .take(ROOM)
                    .map(|c| if c.is_control() { ' ' } else { c })
                    .collect();
                let dots = if cut.len() < s.len() { "..." } else { "" };
                write!(f, "\"{cut}{dots}\"")
            }
            Value::Integer(Some(n)) => write!(f, "{n}"),
            Value::Integer(None) => f.write_str("(a huge integer)"),
            Value::Float(n) if *n != 0.0 && n.abs() < 1e-3 => write!(f, "{n:e}"),
            Value::Float(n) => write!(f, "{n}"),
            Value::Boolean(b) => write!(f, "{b}"),
            Value::Datetime => f.write_str("(a date or time)"),
            Value::Array(list) if list.len() <= 4 => {
                f.write_str("[")?;
                for (n, node) in list.iter().enumerate() {
                    write!(f, "{}{node}", if n > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Value::Array(list) => write!(f, "[{} values]", list.len()),
            Value::Table(_) => f.write_str("{...}"),
        }
    }
}

/// How deep the parser goes into arrays and inline tables.
const DEEPEST: usize = 80;

/// Reads `source` as TOML. What is wrong with the syntax goes to `sink`.
pub(crate) fn parse(source: &Source, sink: &Sink) -> Table {
    let (table, errors) = DeTable::parse_recoverable(source.text());
    for error in errors {
        let at = error.span().map_or(Origin::FILE, Origin::file);
        // The parser speaks in several lines when it lists what it expected.
        let message = match error.message().trim() {
            message if message.contains("recursion depth") => {
                format!("values are nested deeper than {DEEPEST} levels")
            }
            message => message.replace('\n', "; "),
        };
        sink.say(at, format!("not TOML: {message}"));
    }
    tables(table.get_ref(), &Origin::file)
}

fn tables(table: &DeTable<'_>, origin: &dyn Fn(std::ops::Range<usize>) -> Origin) -> Table {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            key_origin: origin(key.span()),
            node: convert(value.get_ref(), origin(value.span()), origin),
        })
        .collect();
    entries.sort_by_key(|e| e.key_origin);
    Table::new(entries)
}

fn convert(
    value: &DeValue<'_>,
    at: Origin,
    origin: &dyn Fn(std::ops::Range<usize>) -> Origin,
) -> Node {
    let value = match value {
        DeValue::String(s) => Value::Text(s.to_string()),
        DeValue::Integer(n) => Value::Integer(i128::from_str_radix(n.as_str(), n.radix()).ok()),
        DeValue::Float(n) => Value::Float(n.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(b) => Value::Boolean(*b),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Array(list) => Value::Array(
            list.iter()
                .map(|v| convert(v.get_ref(), origin(v.span()), origin))
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(tables(table, origin)),
    };
    Node { value, origin: at }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table against a list that is looked through from its beginning.
    #[test]
    fn a_table_finds_what_a_list_finds() {
        let node = |n: usize| Node {
            value: Value::Integer(Some(n as i128)),
            origin: Origin::FILE,
        };
        let mut table = Table::default();
        let mut list: Vec<(String, Node)> = Vec::new();
        for n in 0..500usize {
            let key = format!("k{}", n * n % 37);
            let there = list.iter().position(|(k, _)| *k == key);
            match n % 5 {
                0 => {
                    let taken = table.take(&key).map(|e| e.node);
                    assert_eq!(taken, there.map(|at| list.remove(at).1));
                }
                1 => {
                    table.put(&key, Origin::FILE, node(n));
                    list.retain(|(k, _)| *k != key);
                    list.push((key.clone(), node(n)));
                }
                _ => {
                    let own = table.entry(&key, Origin::FILE, || node(n).value);
                    if there.is_none() {
                        list.push((key.clone(), node(n)));
                    }
                    let at = list.iter().position(|(k, _)| *k == key).unwrap();
                    assert_eq!(*own, list[at].1);
                }
            }
            let found: Vec<_> = table
                .iter()
                .map(|e| (e.key.clone(), e.node.clone()))
                .collect();
            assert_eq!(found, list);
            for k in 0..37 {
                let key = format!("k{k}");
                let there = list.iter().find(|(k, _)| *k == key).map(|(_, n)| n);
                assert_eq!(table.get(&key).map(|e| &e.node), there);
                assert_eq!(table.get_mut(&key).map(|n| &*n), there);
            }
        }
    }
}
