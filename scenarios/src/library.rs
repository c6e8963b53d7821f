//! The scenario collection, part of the program.

use crate::format::{File, Source, closest};

/// A scenario of the collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is called.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

macro_rules! library {
    ($($name:literal),+ $(,)?) => {
        /// All of them, by name.
        pub const ALL: &[Entry] = &[
            $( Entry { name: $name, text: include_str!(concat!("../library/", $name, ".toml")) }, )+
        ];
    };
}

library![
    "allreduce-ring",
    "allreduce-slow-node",
    "dcqcn-convergence",
    "dcqcn-many-flows",
    "dcqcn-window",
    "ecn-misconfigured",
    "every-status",
    "incast",
    "innocent-flow",
    "link-flap",
    "livelock",
    "loss-cliff",
    "loss-reaction",
    "pfc-deadlock",
    "pfc-storm",
    "pfc-unfairness",
    "pfc-victim",
    "push-vs-pull",
    "slow-receiver",
    "two-hosts"
];

/// The scenario called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|e| e.name == name)
}

/// The name that `name` may have been meant as.
pub fn suggest(name: &str) -> Option<&'static str> {
    closest(name, ALL.iter().map(|e| e.name))
}

impl Entry {
    /// The file, read.
    pub fn file(&self) -> File {
        let source = Source::new(format!("{}.toml", self.name), self.text);
        let file = source.map_err(Into::into).and_then(File::parse);
        // They are part of the program and a test plans each of them.
        file.unwrap_or_else(|e| panic!("the library scenario {}: {e}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::expect::{Check, Operand};
    use crate::metric::Metric;

    #[test]
    fn every_scenario_can_be_planned_and_says_what_it_shows() {
        for entry in ALL {
            let name = entry.name;
            let plan = entry.file().plan(&[]).unwrap_or_else(|e| panic!("{e}"));
            for point in &plan.points {
                let s = &point.scenario;
                let said = [&s.title, &s.description, &s.source, &s.look_at, &s.free];
                assert!(said.iter().all(|text| text.is_some()), "{name}");
            }
        }
    }

    /// Every expectation says whether it asserts the digits of its source or the mechanism, and the published
    /// figures stand beside. Those without a paper say so.
    #[test]
    fn every_scenario_says_what_it_asserts_of_what_is_published() {
        for entry in ALL {
            let plan = entry.file().plan(&[]).unwrap_or_else(|e| panic!("{e}"));
            let all = plan.points.iter().flat_map(|p| &p.scenario.expectations);
            let mut published = 0;
            for e in all.filter(|e| e.metric != Metric::Events) {
                let place = format!("{}, [[expect]] {}", entry.name, e.index);
                assert!(e.asserts.is_some(), "{place} does not say what it asserts");
                published += usize::from(e.published.is_some());
            }
            let source = plan.points[0].scenario.source.as_ref().unwrap();
            let none = source.starts_with("no paper");
            assert!(
                none || published > 0,
                "{} has no published figure",
                entry.name
            );
        }
    }

    /// At each of its points, so that a run that is longer than it need be is noticed.
    #[test]
    fn every_scenario_has_a_budget_of_events() {
        for entry in ALL {
            let plan = entry.file().plan(&[]).unwrap_or_else(|e| panic!("{e}"));
            for point in &plan.points {
                let budget = point.scenario.expectations.iter().any(|e| {
                    e.metric == Metric::Events
                        && matches!(e.check, Check::AtMost(Operand::Constant(n)) if n <= 100e6)
                });
                assert!(budget, "{} at {:?}", entry.name, point.values);
            }
        }
    }

    #[test]
    fn the_program_has_every_file_of_the_folder_in_order() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/library");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let names: Vec<String> = ALL.iter().map(|e| format!("{}.toml", e.name)).collect();
        assert_eq!(files, names);
    }
}
