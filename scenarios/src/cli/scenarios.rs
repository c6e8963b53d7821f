//! Scenarios by file and by name.

use super::output::Output;
use crate::format::{Content, Diagnostics, File, Plan, Source, closest};
use crate::library;
use crate::report::{SCHEMA, pauses};
use crate::run::RunError;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// A scenario that can be run.
pub(super) struct Loaded {
    /// That of the library, or that of the file without folder and ending.
    pub(super) name: String,
    pub(super) plan: Plan,
    file: File,
}

impl Loaded {
    /// Reads the scenario that `argument` names, a file or one of the library, with `settings`; `many`
    /// lets one setting have several values.
    pub(super) fn read(
        argument: &Path,
        settings: &[String],
        many: bool,
    ) -> Result<Loaded, Diagnostics> {
        let (name, file) = open(argument)?;
        let plan = match many {
            true => file.sweep(settings)?,
            false => file.plan(settings)?,
        };
        Ok(Loaded { name, plan, file })
    }

    /// Where the file says what cannot be run.
    pub(super) fn place(&self, error: &RunError) -> Option<String> {
        Some(self.file.place(&error.place()?))
    }

    /// That each of `links` is one of every point's network.
    pub(super) fn check_captures(&self, links: &[String]) -> Result<(), String> {
        for point in &self.plan.points {
            let network = &point.scenario.network;
            if let Some(wrong) = links.iter().find(|l| network.find(l).is_none()) {
                let names = network.links.iter().map(|l| l.name.as_str());
                let hint = closest(wrong, names.clone())
                    .map(|c| format!("did you mean \"{c}\"?"))
                    .unwrap_or_else(|| {
                        let some: Vec<_> = names.take(8).collect();
                        format!("there are {}", some.join(", "))
                    });
                return Err(format!(
                    "{}: no link is called \"{wrong}\"; {hint}",
                    self.name
                ));
            }
        }
        Ok(())
    }

    /// One line about it, and one for each warning.
    pub(super) fn summary(&self) -> String {
        let points = self.plan.points.len();
        let expectations: usize = self
            .plan
            .points
            .iter()
            .map(|p| p.scenario.expectations.len())
            .sum();
        let s = |n: usize| if n == 1 { "" } else { "s" };
        let mut told = format!(
            "{}: ok, {points} run{}, {expectations} expectation{}\n",
            self.name,
            s(points),
            s(expectations)
        );
        let warnings: Vec<_> = self
            .plan
            .points
            .iter()
            .map(|p| p.warnings.clone())
            .collect();
        let _ = pauses::write_warnings(&mut told, &warnings);
        told
    }
}

fn open(argument: &Path) -> Result<(String, File), Diagnostics> {
    let text = argument.to_str();
    // A bare word is a name of the library first; a file of that name is ./NAME.
    if let Some(entry) = text.and_then(library::find) {
        return Ok((entry.name.to_string(), entry.file()));
    }
    let looks_like_a_file = argument.components().count() > 1
        || argument.extension().is_some()
        || argument.exists()
        || text.is_none();
    if !looks_like_a_file {
        let word = argument.display().to_string();
        let hint = match library::suggest(&word) {
            Some(name) => format!("; did you mean \"{name}\"?"),
            None => ".".to_string(),
        };
        return Err(Diagnostics::plain(
            word,
            format!(
                "neither a file nor a scenario of the library{hint} `softroce list` shows them all"
            ),
        ));
    }
    let source = Source::read(argument, Content::Scenario)?;
    let stem = argument.file_stem().unwrap_or(argument.as_os_str());
    let name = stem.to_string_lossy().into_owned();
    Ok((name, File::parse(source)?))
}

/// A name that two of them have.
pub(super) fn twice(loaded: &[Loaded]) -> Option<&str> {
    let mut seen = BTreeSet::new();
    loaded
        .iter()
        .map(|l| l.name.as_str())
        .find(|name| !seen.insert(*name))
}

/// Prints the library.
pub(super) fn list(json: bool, out: &mut Output) {
    #[derive(Serialize)]
    struct Item {
        name: &'static str,
        title: String,
        runs: usize,
    }
    #[derive(Serialize)]
    struct Document<'a> {
        schema: u32,
        scenarios: &'a [Item],
    }
    let items: Vec<Item> = library::ALL
        .iter()
        .map(|entry| {
            let file = entry.file();
            Item {
                name: entry.name,
                title: file.title().unwrap_or_default().trim().to_string(),
                runs: file.plan(&[]).map_or(0, |p| p.points.len()),
            }
        })
        .collect();
    if json {
        let document = Document {
            schema: SCHEMA,
            scenarios: &items,
        };
        match serde_json::to_string_pretty(&document) {
            Ok(text) => out.write(&format!("{text}\n")),
            Err(error) => super::complain(error),
        }
        return;
    }
    let width = items.iter().map(|i| i.name.len()).max().unwrap_or(0);
    for item in &items {
        out.write(&format!("{:width$}  {}\n", item.name, item.title));
    }
}
