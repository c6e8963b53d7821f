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

    #[test]
    fn every_scenario_can_be_planned_and_says_what_it_shows() {
        for entry in ALL {
            let file = entry.file();
            let plan = file.plan(&[]).unwrap_or_else(|e| panic!("{e}"));
            for point in &plan.points {
                let s = &point.scenario;
                assert!(
                    s.title.is_some() && s.description.is_some(),
                    "{}",
                    entry.name
                );
                assert!(s.look_at.is_some(), "{}", entry.name);
            }
            assert!(
                plan.points
                    .iter()
                    .any(|p| !p.scenario.expectations.is_empty()),
                "{} expects nothing",
                entry.name
            );
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
