//! Loads by pattern, collectives and their metrics, run by the built program.

mod collectives;
#[path = "../common/mod.rs"]
mod common;
mod patterns;
mod refused;

use common::{file, results, run, softroce, text, with};
use serde_json::Value;

/// What is wrong with a scenario with settings.
#[track_caller]
fn complaint(content: &str, settings: &[&str]) -> String {
    let out = with("check", content, &[], settings);
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
