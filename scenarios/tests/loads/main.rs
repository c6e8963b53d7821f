//! Loads by pattern, collectives and their metrics, run by the built program.

mod collectives;
mod patterns;
mod refused;

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn softroce(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softroce"))
        .args(args)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A scenario in a folder of its own.
fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, content).unwrap();
    (dir, path)
}

/// The first run of a scenario with settings.
#[track_caller]
fn run(content: &str, settings: &[&str]) -> Value {
    let (_dir, path) = file(content);
    let mut args = vec!["run", path.to_str().unwrap(), "--json"];
    args.extend(settings.iter().flat_map(|s| ["--set", s]));
    let out = softroce(&args);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    report["reports"][0]["runs"][0].clone()
}

/// What is wrong with a scenario with settings.
#[track_caller]
fn complaint(content: &str, settings: &[&str]) -> String {
    let (_dir, path) = file(content);
    let mut args = vec!["check", path.to_str().unwrap()];
    args.extend(settings.iter().flat_map(|s| ["--set", s]));
    let out = softroce(&args);
    assert_eq!(out.status.code(), Some(2), "{settings:?}");
    text(&out.stderr).to_string()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn the_scenarios_of_the_library_hold() {
    for name in ["allreduce-ring", "incast", "push-vs-pull"] {
        let out = softroce(&["run", name]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
        let shown = text(&out.stdout);
        assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
    }
}
