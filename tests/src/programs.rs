//! The verbs programs of package softroce-verbs as they are built here, and what they print.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Its name, and what its server and its client print.
pub type Pair = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// Programs with two roles, and what server and client print when all is well; `#` stands for any number.
pub const PAIRS: [Pair; 5] = [
    (
        "rc_pingpong",
        &[],
        &[
            "8192000 bytes in # seconds = # Mbit/sec",
            "1000 iters in # seconds = # usec/iter",
        ],
    ),
    (
        "atomic_counter",
        &["server: the counter is 0xc1a13ed0"],
        &["client: counted to 1000, every value once; found 1000 in the end and claimed it"],
    ),
    (
        "write_imm_gradient",
        &["worker 1: 4 steps of 65536 parameters in # ms; parameter 1 is 96"],
        &["worker 0: 4 steps of 65536 parameters in # ms; parameter 1 is 96"],
    ),
    (
        "rpc",
        &["server: answered 500 calls, woken # times"],
        &["client: 500 calls, 8 at a time, in # ms; the slowest took # us"],
    ),
    (
        "ud_multicast",
        &[
            "server: member 1 got 50 datagrams",
            "server: member 2 got 50 datagrams",
        ],
        &["client: sent 50 datagrams, and got 50 as a member"],
    ),
];

/// `softroce pingpong`, which prints more than this.
pub const PINGPONG: Pair = ("pingpong", CONVERSATION, CONVERSATION);

const CONVERSATION: &[&str] = &[
    "  SEND                  4096 bytes each way, data intact",
    "  SEND with immediate   4096 bytes each way, data intact",
    "  WRITE                 4096 bytes each way, data intact",
    "  WRITE with immediate  4096 bytes each way, data intact",
    "  READ                  4096 bytes each way, data intact",
    "8192000 bytes in # seconds = # Mbit/sec",
    "1000 iters in # seconds = # usec/iter",
];

/// Whether a line is as the pattern has it.
pub fn fits(line: &str, pattern: &str) -> bool {
    let words: Vec<_> = line.split(' ').collect();
    let expected: Vec<_> = pattern.split(' ').collect();
    let same = |(word, expected): (&&str, &&str)| match *expected {
        "#" => word.parse::<f64>().is_ok(),
        _ => word == expected,
    };
    words.len() == expected.len() && words.iter().zip(&expected).all(same)
}

/// Runs a command to its end, and gives what it printed.
///
/// # Panics
///
/// If it cannot be run, or fails.
pub fn output(command: &mut Command) -> String {
    let done = command.stderr(Stdio::inherit()).output();
    let done = done.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.status.success(), "{command:?}: {}", done.status);
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Builds what is not up to date of the programs and of these tests of package softroce-verbs, where and how
/// the caller, a test too, was built. Files by name.
///
/// # Panics
///
/// If they cannot be built, or the caller is in no folder of cargo's.
pub fn build(tests: &[&str]) -> BTreeMap<String, PathBuf> {
    // TARGET/debug/deps/programs-0123456789abcdef
    let this = std::env::current_exe().unwrap_or_default();
    let mut folders = this.ancestors().skip(2);
    let (Some(profile), Some(target)) = (folders.next(), folders.next()) else {
        panic!("{} is in no target folder", this.display());
    };
    let profile = match profile.file_name().and_then(|n| n.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        // As for all packages, so that what `cargo test --workspace` has built is what is found.
        .args(["build", "--workspace", "--offline", "--locked", "-q"])
        .args(["--examples", "--bins"])
        .args(tests.iter().flat_map(|test| ["--test", test]))
        .args(["--profile", profile, "--message-format", "json"])
        .arg("--target-dir")
        .arg(target);
    let mut built = BTreeMap::new();
    for line in output(&mut cargo).lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let name = message["target"]["name"].as_str();
        if let (Some(name), Some(file)) = (name, message["executable"].as_str()) {
            built.insert(name.to_string(), file.into());
        }
    }
    built
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_pattern_fits_its_numbers_and_nothing_else() {
        assert!(fits("woken 12 times", "woken # times"));
        assert!(fits("in 0.25 ms", "in # ms"));
        assert!(!fits("woken often times", "woken # times"));
        assert!(!fits("woken 12 times, and", "woken # times"));
        assert!(!fits("woken 12", "woken # times"));
    }
}
