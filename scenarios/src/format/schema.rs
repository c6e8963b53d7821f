//! The keys of a scenario: their kinds, limits, defaults and meaning, in one place.
//!
//! The reader takes limits and defaults from here and the reference in `scenarios/README.md` is
//! printed from here, so that neither can say something else than the other.

use crate::units::{Rate, Size, Span, print_span};
use std::fmt;

/// A table of the file.
#[derive(Debug)]
pub struct Section {
    /// As it stands in the file: `[link]`, `[[traffic]]`.
    pub title: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
    /// What a table inside it is called after, if the section may be narrowed down to one of them:
    /// `[card.h1]` is `[card]` for the host `h1`.
    pub named: Option<&'static str>,
}

/// A key of a section.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As it is written.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What holds without it.
    pub default: Default,
    /// What it does.
    pub about: &'static str,
    /// With what it means something, if not with everything.
    pub only: Option<Only>,
}

/// The values of another key with which a key means something.
#[derive(Clone, Copy, Debug)]
pub struct Only {
    /// The other key.
    pub key: &'static str,
    /// Its values.
    pub values: &'static [&'static str],
    /// With other values that the file gives it is left unused; it is refused if the other key is not given.
    pub unused: bool,
}

/// What holds if a key is not given.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// It must be given.
    Required,
    /// This value, as it would be written in quotes in the file.
    Value(&'static str),
    /// Something that no single value says.
    Derived(&'static str),
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// A name: letters, digits, `-` and `_`.
    Name,
    /// A name or a list of names.
    Names,
    /// A number of things, or the list of their names.
    CountOrNames(u64, u64),
    /// The name of a link or of one direction of it, or a list of them.
    Links,
    /// `true` or `false`.
    Boolean,
    /// An integer between these two.
    Count(u64, u64),
    /// A rate between these two, in bits per second.
    Rate(u64, u64),
    /// A span between these two, in picoseconds.
    Span(u64, u64),
    /// A size between these two, in bytes.
    Size(u64, u64),
    /// A number from 0 to 1.
    Probability,
    /// A number of at least 0.
    Ratio,
    /// Sizes, each with the probability that something is at most so large.
    Distribution,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of these words, or one of them.
    Choices(&'static [&'static str]),
    /// A priority or a list of priorities.
    Priorities,
    /// A list of eight weights, one for each priority.
    Weights,
    /// A metric.
    Metric,
    /// What a metric is asked of.
    Of,
    /// What a measured value is compared with.
    Operand(&'static Section),
    /// Two of them: the least and the most.
    Operands(&'static Section),
    /// A part of the run: when it begins and when it ends.
    Period,
    /// Points of the sweep: paths and values.
    Points,
    /// A table.
    Table(&'static Section),
    /// A list of tables.
    Tables(&'static Section),
}

impl Key {
    /// A key that must be given.
    pub const fn required(name: &'static str, kind: Kind, about: &'static str) -> Key {
        Key::new(name, kind, Default::Required, about)
    }

    /// A key with a default value.
    pub const fn with(
        name: &'static str,
        kind: Kind,
        value: &'static str,
        about: &'static str,
    ) -> Key {
        Key::new(name, kind, Default::Value(value), about)
    }

    /// A key without which something else holds.
    pub const fn optional(
        name: &'static str,
        kind: Kind,
        otherwise: &'static str,
        about: &'static str,
    ) -> Key {
        Key::new(name, kind, Default::Derived(otherwise), about)
    }

    const fn new(name: &'static str, kind: Kind, default: Default, about: &'static str) -> Key {
        Key {
            name,
            kind,
            default,
            about,
            only: None,
        }
    }

    /// The key means something only where `key` has one of `values`.
    pub const fn only(self, key: &'static str, values: &'static [&'static str]) -> Key {
        Key {
            only: Some(Only {
                key,
                values,
                unused: false,
            }),
            ..self
        }
    }

    /// The key is used only where `key` has one of `values`, and left unused where `key` is given another, so
    /// that `key` can be varied by itself.
    pub const fn used(self, key: &'static str, values: &'static [&'static str]) -> Key {
        Key {
            only: Some(Only {
                key,
                values,
                unused: true,
            }),
            ..self
        }
    }
}

/// The keys of a section that are kept in two lists, one after the other. `N` is the sum of their lengths.
pub const fn joined<const A: usize, const B: usize, const N: usize>(
    first: [Key; A],
    second: [Key; B],
) -> [Key; N] {
    assert!(N == A + B, "as long as both together");
    let mut all = [first[0]; N];
    let mut n = 0;
    while n < N {
        all[n] = if n < A { first[n] } else { second[n - A] };
        n += 1;
    }
    all
}

impl Section {
    /// The key called `name`.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }

    /// The names of all keys.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|k| k.name)
    }

    /// This section and those inside it.
    pub fn all(&'static self) -> Vec<&'static Section> {
        let mut all = vec![self];
        for key in self.keys {
            if let Kind::Table(inner)
            | Kind::Tables(inner)
            | Kind::Operand(inner)
            | Kind::Operands(inner) = key.kind
                && !all.iter().any(|s| s.title == inner.title)
            {
                all.extend(inner.all());
            }
        }
        all
    }
}

/// What may be written, with its limits.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Kind::Text => f.write_str("text"),
            Kind::Name => f.write_str("a name of letters, digits, \"-\" and \"_\""),
            Kind::Names => f.write_str("a name or a list of names"),
            Kind::CountOrNames(min, max) => write!(f, "{min} to {max}, or a list of names"),
            Kind::Links => f.write_str(
                "a link (\"h0-s0\"), one direction of it (\"h0->s0\"), or a list of these",
            ),
            Kind::Boolean => f.write_str("true or false"),
            Kind::Count(min, u64::MAX) => write!(f, "an integer of at least {min}"),
            Kind::Count(min, max) => write!(f, "an integer from {min} to {max}"),
            Kind::Rate(min, max) => write!(f, "a rate from {} to {}", Rate(min), Rate(max)),
            Kind::Span(min, max) => {
                let show = |ps| print_span(Span::from_ps(ps));
                write!(f, "a span of time from {} to {}", show(min), show(max))
            }
            Kind::Size(min, max) => write!(f, "a size from {} to {}", Size(min), Size(max)),
            Kind::Probability => f.write_str("a probability from 0 to 1"),
            Kind::Ratio => f.write_str("a number of at least 0"),
            Kind::Distribution => {
                f.write_str("a list of sizes with probabilities, [[size, probability], ...]")
            }
            Kind::Choice(words) | Kind::Choices(words) => {
                f.write_str(match self {
                    Kind::Choice(_) => "one of ",
                    _ => "a list, perhaps empty, of ",
                })?;
                for (n, word) in words.iter().enumerate() {
                    write!(f, "{}\"{word}\"", if n > 0 { ", " } else { "" })?;
                }
                Ok(())
            }
            Kind::Priorities => f.write_str("a priority from 0 to 7, or a list of them"),
            Kind::Weights => f.write_str("a list of eight integers from 0 to 255"),
            Kind::Metric => f.write_str("a metric"),
            Kind::Of => f.write_str(
                "the name of a load, host, link, direction, priority of one (`h0->s0/3`) or fault",
            ),
            Kind::Operand(_) => f.write_str("a value, or a table that says where to get it"),
            Kind::Operands(_) => f.write_str("a list of two: the least and the most"),
            Kind::Period => f.write_str("a list of two spans, [\"1ms\", \"2ms\"]"),
            Kind::Points => f.write_str("a table of paths and values"),
            Kind::Table(section) => write!(f, "the table {}", section.title),
            Kind::Tables(section) => write!(f, "the tables {}", section.title),
        }
    }
}

/// Every section, in the order of the reference.
pub fn sections() -> Vec<&'static Section> {
    super::scenario::ROOT.all()
}

/// The metrics, as a table in Markdown.
pub fn metrics() -> String {
    use crate::metric::{Metric, Scope};
    let mut out = String::from("| metric | unit | `of` | what it is |\n|---|---|---|---|\n");
    for metric in Metric::ALL {
        let of = match metric.scope() {
            Scope::Traffic => "a load",
            Scope::Card => "a load or a host",
            Scope::Link => "a link or a direction",
            Scope::Queue => "a link or a direction, or a priority of it (`h0->s0/3`)",
            Scope::Host => "a host",
            Scope::Fault => "a fault",
            Scope::Run => "-",
        };
        out.push_str(&format!(
            "| `{metric}` | {} | {of} | {} |\n",
            metric.unit().name(),
            metric.about()
        ));
    }
    out
}

/// The reference: a heading and a table of keys for each section, in Markdown.
pub fn reference() -> String {
    let mut out = String::new();
    for section in sections() {
        let title = match section.title {
            "" => "Top of the file",
            title => title,
        };
        out.push_str(&format!("### {title}\n\n{}\n", section.about));
        if let Some(named) = section.named {
            let inner = section.title.trim_matches(['[', ']']);
            out.push_str(&format!(
                "\n`[{inner}.NAME]` takes the same keys and overrides them for the {named} `NAME`.\n"
            ));
        }
        if section.keys.is_empty() {
            out.push('\n');
            continue;
        }
        out.push_str("\n| key | takes | default | what it does |\n|---|---|---|---|\n");
        for key in section.keys {
            let default = match key.default {
                Default::Required => "required".to_string(),
                Default::Value(v) => format!("`{v}`"),
                Default::Derived(text) => text.to_string(),
            };
            let only = match key.only {
                Some(only) => {
                    let values: Vec<_> = only.values.iter().map(|v| format!("`{v}`")).collect();
                    let unused = if only.unused {
                        "; unused with others"
                    } else {
                        ""
                    };
                    format!(" Only with `{}` {}{unused}.", only.key, values.join(" or "))
                }
                None => String::new(),
            };
            out.push_str(&format!(
                "| `{}` | {} | {default} | {}{only} |\n",
                key.name, key.kind, key.about
            ));
        }
        out.push('\n');
    }
    out
}
