//! The scenario file: TOML in, plain data out.
//!
//! ```text
//! bytes -> source -> document -> (settings, sweep) -> reader by schema -> Scenario
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`source`] | the text, and the limits on it |
//! | [`diagnostic`] | what is wrong and where: file, line, column, caret |
//! | `document` | TOML as a tree of values that know where they stand |
//! | `path`, [`sweep`] | how `--set` and `[sweep]` replace values, and the points that result |
//! | `points` | conditions on the points of a sweep |
//! | [`schema`] | every key with kind, limits, default and meaning: the reference is printed from it |
//! | `reader` | reads one table by its section of the schema |
//! | [`scenario`] | the top of the file and the [`Scenario`] |
//! | [`shape`], [`topology`], [`switch`], [`card`], [`receiver`], [`event`], [`traffic`], [`fault`], [`expect`] | one file per section |
//! | `named`, [`period`] | of `[[expect]]`: what a metric is asked of, and of which part of the run |
//! | [`congestion`] | of `[card]`: congestion control and notification |
//! | [`pattern`] | of `[[traffic]]`: who sends what to whom, and when |
//! | [`port`] | faults without a network, for a card in real time |
//! | `flows`, `folder` | flows from a file, and where it is found |

pub mod card;
mod choices;
pub mod congestion;
pub mod diagnostic;
mod document;
pub mod event;
pub mod expect;
pub mod fault;
mod flows;
mod folder;
mod named;
mod path;
pub mod pattern;
pub mod period;
mod points;
pub mod port;
mod reader;
pub mod receiver;
pub mod request;
pub mod scenario;
pub mod schema;
pub mod shape;
pub mod source;
pub mod sweep;
pub mod switch;
pub mod topology;
pub mod traffic;

pub(crate) use choices::words;
pub use diagnostic::{Diagnostic, Diagnostics, closest};
pub use scenario::Scenario;
pub use source::{Content, Source, SourceError};
pub use sweep::{Plan, Point};

use crate::warning::Place;
use diagnostic::Sink;

/// A scenario file that is TOML; whether it is a scenario shows when it is planned.
#[derive(Clone, Debug)]
pub struct File {
    source: Source,
    document: document::Table,
}

impl File {
    /// Reads the TOML of `source`.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the syntax.
    pub fn parse(source: Source) -> Result<File, Diagnostics> {
        let sink = Sink::default();
        let document = document::parse(&source, &sink);
        sink.finish(&source, &[])?;
        Ok(File { source, document })
    }

    /// What is to be run, with `settings` (`path=value`) in place of what the file says.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the file and the settings.
    pub fn plan(&self, settings: &[String]) -> Result<Plan, Diagnostics> {
        sweep::plan(&self.source, &self.document, settings, false)
    }

    /// As [`File::plan`], with several values in a setting (`path=a,b,c`): an axis of the sweep.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the file and the settings.
    pub fn sweep(&self, settings: &[String]) -> Result<Plan, Diagnostics> {
        sweep::plan(&self.source, &self.document, settings, true)
    }

    /// The file, line and column of `at`.
    pub(crate) fn place(&self, at: &Place) -> String {
        document::place(&self.document, at).place(&self.source)
    }

    /// The title that the file gives, if it does.
    pub fn title(&self) -> Option<&str> {
        match self.document.get("title").map(|e| &e.node.value) {
            Some(document::Value::Text(title)) => Some(title),
            _ => None,
        }
    }
}
