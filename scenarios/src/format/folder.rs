//! The folder of a scenario file, where the files that it names are found.

use super::source::{Content, Source, SourceError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

/// A folder, and what has been read of it: each file once, however many points a sweep has.
pub(super) struct Folder {
    dir: Option<PathBuf>,
    read: RefCell<BTreeMap<String, Result<Rc<Source>, String>>>,
}

impl Folder {
    /// That of `source`; a text that is no file has none.
    pub(super) fn of(source: &Source) -> Folder {
        Folder {
            dir: source.folder(),
            read: RefCell::default(),
        }
    }

    /// The file at `path`, shown as that, or what is wrong with it.
    pub(super) fn read(&self, path: &str) -> Result<Rc<Source>, String> {
        let mut known = self.read.borrow_mut();
        if let Some(found) = known.get(path) {
            return found.clone();
        }
        let found = match &self.dir {
            None => Err("names a file, but the scenario is none itself and has no folder".into()),
            Some(dir) => Source::read(&dir.join(path), Content::Flows)
                .map(Rc::new)
                .map_err(|error: SourceError| format!("cannot be read: {error}")),
        };
        known.insert(path.to_string(), found.clone());
        found
    }
}
