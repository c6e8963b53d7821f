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
