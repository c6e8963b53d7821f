//! Hosts of a load, by name and by number.

use super::{Context, Pattern};
use crate::format::diagnostic::hint;
use crate::format::shape::Members;
use crate::format::traffic::list;
use std::collections::BTreeMap;

impl Context<'_> {
    pub(super) fn missing(&self, key: &str) {
        let (reader, pattern) = (self.reader, self.reader.get::<Pattern>("pattern"));
        let message = format!("has no \"{key}\", which pattern = \"{pattern}\" needs");
        reader.sink.say(
            reader.origin("pattern"),
            format!("{} {message}", reader.label()),
        );
    }

    /// The one host of `to`.
    pub(super) fn one(&self) -> Option<usize> {
        if !self.reader.has("to") {
            self.missing("to");
            return None;
        }
        match self.to()?.as_slice() {
            [one] => Some(*one),
            _ => {
                self.reader.say("to", "must be one host");
                None
            }
        }
    }

    pub(super) fn all_but(&self, one: usize) -> Vec<usize> {
        (0..self.network.hosts.len())
            .filter(|&h| h != one)
            .collect()
    }

    pub(super) fn to(&self) -> Option<Vec<usize>> {
        self.reader.has("to").then(|| self.named("to"))?
    }

    /// The hosts of `from`; a number is that of the first ones that are none of `but`.
    pub(super) fn from(&self, but: &[usize]) -> Option<Vec<usize>> {
        if !self.reader.has("from") {
            return None;
        }
        let found = self.members("from", but)?;
        if let Some(&twice) = found.iter().find(|h| but.contains(h)) {
            let name = &self.network.hosts[twice];
            self.reader.say(
                "from",
                format!("has \"{name}\", which is the one of \"to\""),
            );
        }
        Some(found)
    }

    /// The hosts that `key` names or counts; all, if it is not there.
    pub(super) fn members(&self, key: &'static str, but: &[usize]) -> Option<Vec<usize>> {
        let free = || (0..self.network.hosts.len()).filter(|h| !but.contains(h));
        if !self.reader.has(key) {
            return Some(free().collect());
        }
        match self.reader.opt::<Members>(key)? {
            Members::Names(names) => self.find(key, names),
            Members::Count(n) if n as usize <= free().count() => {
                Some(free().take(n as usize).collect())
            }
            Members::Count(_) => {
                let message = format!("is more than the {} hosts there are", free().count());
                self.reader.say(key, message);
                None
            }
        }
    }

    pub(super) fn named(&self, key: &'static str) -> Option<Vec<usize>> {
        let names: Vec<String> = self.reader.opt(key)?;
        self.find(key, names)
    }

    fn find(&self, key: &'static str, names: Vec<String>) -> Option<Vec<usize>> {
        let hosts = &self.network.hosts;
        let index: BTreeMap<&str, usize> = hosts.iter().map(String::as_str).zip(0..).collect();
        let mut taken = vec![false; hosts.len()];
        let mut found = Vec::new();
        for name in names {
            match index.get(name.as_str()) {
                Some(&n) if taken[n] => self.reader.say(key, format!("has \"{name}\" twice")),
                Some(&n) => {
                    taken[n] = true;
                    found.push(n);
                }
                None => {
                    let hint = hint(&name, hosts.iter().map(String::as_str));
                    let hint = match hint.is_empty() {
                        true => format!("; the hosts are {}", list(hosts)),
                        false => hint,
                    };
                    self.reader
                        .say(key, format!("names no host \"{name}\"{hint}"));
                }
            }
        }
        Some(found).filter(|f| !f.is_empty())
    }
}
