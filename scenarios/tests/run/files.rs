//! Results and captures, and that they repeat to the byte.

use super::common::{file, first_run, softroce, text};
use super::{ONE, complains, prints};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The files of a folder with what is in them.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn every_operation_of_two_hosts_completes_and_is_captured() {
    let dir = tempfile::tempdir().unwrap();
    let shown = prints(
        &["run", "two-hosts", "--out", dir.path().to_str().unwrap()],
        0,
    );
    assert!(shown.ends_with("held: 8 of 8 expectations\n"), "{shown}");
    assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
    let files = files(dir.path());
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["two-hosts-h0-h1.pcapng", "two-hosts.json", "two-hosts.txt"]
    );
    assert_eq!(text(&files["two-hosts.txt"]), shown);
    let report: Value = serde_json::from_slice(&files["two-hosts.json"]).unwrap();
    let run = &report["reports"][0]["runs"][0];
    assert_eq!(run["captures"][0]["frames"], 20);
    assert_eq!(run["ended"], "dry");
    // A retransmission timer that nobody waits for is not what it ends with.
    assert!(run["time_ps"].as_u64().unwrap() < 100_000_000, "{run}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let rest = "[[fault]]\nlink = \"h0-h1\"\nrate = 0.1\n[[capture]]\nlink = \"h0->h1\"\n\
                [sweep]\ncard.timeout = [4, 5, 6]\n\
                [[expect]]\nmetric = \"goodput-share\"\nof = \"flow\"\nat-most = 1\n";
    let (dir, path) = file(format!("{ONE}count = 20\n{rest}"));
    let run = |seed: &str, jobs: &str| {
        let out = dir.path().join(format!("{seed}-{jobs}"));
        let (file, out_name) = (path.to_str().unwrap(), out.to_str().unwrap());
        let args = ["run", file, "--seed", seed, "-j", jobs, "--out", out_name];
        let shown = prints(&[&args[..], &["--capture", "h0-h1"]].concat(), 0);
        let mut files = files(&out);
        files.insert("printed".to_string(), shown.into_bytes());
        files
    };
    let first = run("7", "1");
    let captures = first.keys().filter(|k| k.ends_with(".pcapng"));
    assert_eq!(
        captures.collect::<Vec<_>>(),
        [
            "mine-1-capture-0.pcapng",
            "mine-1-h0-h1.pcapng",
            "mine-2-capture-0.pcapng",
            "mine-2-h0-h1.pcapng",
            "mine-3-capture-0.pcapng",
            "mine-3-h0-h1.pcapng"
        ]
    );
    assert_eq!(first, run("7", "3"));
    let other = run("8", "3");
    for (name, content) in &first {
        assert_ne!(content, &other[name], "{name}");
    }
}

#[test]
fn a_capture_of_the_command_line_has_a_limit_and_says_so() {
    // 20 KiB are 20 packets of 1024 bytes, or 5 of 4096, and their ACK.
    let (dir, path) = file(ONE);
    let (path, out) = (path.to_str().unwrap(), dir.path().to_str().unwrap());
    let run = |limit: &[&str]| {
        let args = ["run", path, "--out", out, "--json", "--capture", "h0-h1"];
        let done = softroce(&[&args[..], limit].concat());
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let capture = &first_run(&done.stdout)["captures"][0];
        let frames = capture["frames"].as_u64().unwrap();
        (
            frames,
            capture["full"] == true,
            text(&done.stderr).to_owned(),
        )
    };
    let (all, full, said) = run(&[]);
    assert!(all > 4 && !full && said.is_empty(), "{all} {full} {said}");
    let exact = all.to_string();
    assert_eq!(
        run(&["--capture-packets", &exact]),
        (all, false, String::new())
    );
    let (frames, full, said) = run(&["--capture-packets", "3"]);
    assert_eq!((frames, full), (3, true));
    let told = "mine-h0-h1.pcapng: ended after 3 packets; --capture-packets N sets another limit\n";
    assert!(said.ends_with(told), "{said}");
    let capture = dir.path().join("mine-h0-h1.pcapng");
    let shown = softroce(&["inspect", capture.to_str().unwrap()]);
    assert!(text(&shown.stdout).contains(": 3 packets, 3 RoCE"));
    let help = softroce(&["run", "--help"]);
    assert!(text(&help.stdout).contains("[default: 1000000]"));
}

#[test]
fn a_capture_ends_after_as_many_packets_as_it_may_have() {
    let (dir, path) = file(format!(
        "{ONE}[[capture]]\nname = \"few\"\nlink = \"h0-h1\"\npackets = 5\n"
    ));
    let out = dir.path().to_str().unwrap();
    let shown = prints(&["run", path.to_str().unwrap(), "--out", out], 0);
    assert!(shown.contains("mine-few.pcapng: 5 frames of h0->h1, h1->h0"));
    let capture = dir.path().join("mine-few.pcapng");
    let shown = prints(&["inspect", capture.to_str().unwrap()], 0);
    assert!(shown.contains('5'), "{shown}");
}

#[test]
fn a_folder_for_results_that_is_a_file_is_refused() {
    let (dir, path) = file(ONE);
    let name = path.to_str().unwrap();
    let err = complains(&["run", name, "--out", name]);
    assert!(
        err.contains("this is a file, and not a folder for results"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    let below = path.join("below");
    let err = complains(&["run", name, "--out", below.to_str().unwrap()]);
    assert!(err.contains("--out ") && err.lines().count() == 1, "{err}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), ONE);
    // A folder where a capture is to be.
    std::fs::create_dir(dir.path().join("two-hosts-h0-h1.pcapng")).unwrap();
    let err = complains(&["run", "two-hosts", "--out", dir.path().to_str().unwrap()]);
    assert!(err.contains("two-hosts-h0-h1.pcapng: "), "{err}");
}
