//! The built program, run by a test.
#![allow(dead_code)] // not every test uses all of it

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// What the program does with `args`.
pub(crate) fn softroce(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softroce"))
        .args(args)
        .output()
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A file in a folder of its own, which lives as long as the first value.
pub(crate) fn file(content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, content).unwrap();
    (dir, path)
}

/// What the program does with a scenario: `verb` on it, further arguments, and settings.
pub(crate) fn with(verb: &str, content: &str, args: &[&str], settings: &[&str]) -> Output {
    let (_dir, path) = file(content);
    let mut all = vec![verb, path.to_str().unwrap()];
    all.extend(args);
    all.extend(settings.iter().flat_map(|s| ["--set", s]));
    softroce(&all)
}

/// The first run of a report in JSON.
pub(crate) fn first_run(report: &[u8]) -> Value {
    let report: Value = serde_json::from_slice(report).unwrap();
    report["reports"][0]["runs"][0].clone()
}

/// The first run of a scenario that holds, with settings.
#[track_caller]
pub(crate) fn run(content: &str, settings: &[&str]) -> Value {
    let out = with("run", content, &["--json"], settings);
    assert_eq!(
        out.status.code(),
        Some(0),
        "{content} {settings:?}: {}",
        text(&out.stderr)
    );
    first_run(&out.stdout)
}

/// A run with a folder for results, which lives as long as this.
pub(crate) struct Results {
    dir: tempfile::TempDir,
    /// The run.
    pub(crate) run: Value,
}

impl Results {
    /// The file of this name in the folder, as text.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The folder.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("out")
    }
}

/// What a scenario that holds leaves in a folder for results, with settings and with other files beside it.
#[track_caller]
pub(crate) fn results(content: &str, settings: &[&str], others: &[(&str, &str)]) -> Results {
    let (dir, path) = file(content);
    for (name, content) in others {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let out = dir.path().join("out");
    let (path, out) = (path.to_str().unwrap(), out.to_str().unwrap());
    let mut args = vec!["run", path, "--json", "--out", out];
    args.extend(settings.iter().flat_map(|s| ["--set", s]));
    let done = softroce(&args);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    Results {
        run: first_run(&done.stdout),
        dir,
    }
}
