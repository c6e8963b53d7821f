//! How runs end, and how that is told: deadlocks, their victims, interruptions, what reports show of files.

mod common;

use common::{file, first_run, results, run, softroce, text, with};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Four switches in a ring, with a host each that sends to the one opposite, clockwise: each link carries two flows.
/// `loads` flows are in a load of their own; with `more`, h3 sends to a host at that switch as well.
fn ring(loads: usize, more: Option<&str>) -> String {
    let mut text = String::from(
        "stop = \"2ms\"\n[topology]\nkind = \"explicit\"\nhosts = [\"h0\", \"h1\", \"h2\", \"h3\", \"h4\"]\n\
         switches = [\"s0\", \"s1\", \"s2\", \"s3\"]\n",
    );
    for (a, b) in [
        ("h0", "s0"),
        ("h1", "s1"),
        ("h2", "s2"),
        ("h3", "s3"),
        ("h4", more.unwrap_or("s1")),
        ("s0", "s1"),
        ("s1", "s2"),
        ("s2", "s3"),
        ("s3", "s0"),
    ] {
        text += &format!("[[topology.link]]\na = \"{a}\"\nb = \"{b}\"\n");
    }
    text += "[switch]\nlossless = 3\npfc-threshold = \"20KB\"\n";
    for n in 0..4 {
        let (next, opposite) = ((n + 1) % 4, (n + 2) % 4);
        text += &format!("[[route]]\nswitch = \"s{n}\"\nto = \"h{opposite}\"\nvia = \"");
        text += &match n {
            3 => "s3-s0\"\n".to_string(),
            _ => format!("s{n}-s{next}\"\n"),
        };
    }
    let load = "operation = \"write\"\nsize = \"1MiB\"\ndepth = 4\nduration = \"1s\"\n";
    for n in 0..loads {
        let to = (n + 2) % 4;
        text +=
            &format!("[[traffic]]\nname = \"flow{n}\"\nfrom = \"h{n}\"\nto = \"h{to}\"\n{load}");
    }
    if more.is_some() {
        text += &format!("[[traffic]]\nname = \"aside\"\nfrom = \"h3\"\nto = \"h4\"\n{load}");
    }
    text
}

fn named(victims: &Value) -> BTreeSet<&str> {
    let all = victims.as_array().unwrap().iter();
    all.map(|v| v["load"].as_str().unwrap()).collect()
}

/// A run that ends in a deadlock fails, and the last lines say so; unless an expectation asks for it.
#[test]
fn a_deadlock_is_told_as_what_failed() {
    let content = ring(4, None);
    let out = with("run", &content, &[], &[]);
    assert_eq!(out.status.code(), Some(1));
    let shown: Vec<_> = text(&out.stdout).split_whitespace().collect();
    let shown = shown.join(" ");
    let expected = "FAILED: 1 of 1 runs ended in a deadlock that no expectation asks for (metric \"deadlock\"): ";
    let at = shown.find(expected).unwrap_or_else(|| panic!("{shown}"));
    for queue in ["s0->s1/3", "s1->s2/3", "s2->s3/3", "s3->s0/3"] {
        assert!(shown[at..].contains(queue), "{shown}");
    }
    let asked = content.clone() + "[[expect]]\nmetric = \"deadlock\"\nequals = 1\n";
    let out = with("run", &asked, &[], &[]);
    assert_eq!(out.status.code(), Some(0));
    assert!(!text(&out.stdout).contains("FAILED"));
    // Of a sweep, in how many runs.
    let swept = content + "[sweep]\nswitch.pfc-threshold = [\"20KB\", \"500MB\"]\n";
    let out = with("run", &swept, &[], &[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("FAILED: 1 of 2 runs ended in a deadlock"));
}

/// Who alone makes a ring go round is no victim of it; who only passes by is.
#[test]
fn nobody_is_the_victim_of_a_ring_of_his_own() {
    let of = |content: &str| {
        let out = with("run", content, &["--json"], &[]);
        let run = first_run(&out.stdout);
        assert_eq!(run["deadlock"].as_array().unwrap().len(), 4, "{run}");
        run["victims"].clone()
    };
    let victims = of(&ring(4, None));
    assert!(named(&victims).is_empty(), "{victims}");
    // h3 sends to h4 by s3->s0 and s0->s1, as flow3 does: one of the two is enough to close the ring.
    let victims = of(&ring(4, Some("s1")));
    assert!(named(&victims).is_empty(), "{victims}");
    // By s3->s0 alone.
    let victims = of(&ring(4, Some("s0")));
    assert_eq!(named(&victims), BTreeSet::from(["aside"]), "{victims}");
}

/// What is flooded meets the queues that its copies wait in.
#[test]
fn nobody_is_the_victim_of_copies_of_his_own() {
    let out = softroce(&["run", "pfc-deadlock", "--json"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let victims = &report["reports"][0]["runs"][0]["victims"];
    let all = victims.as_array().unwrap().iter();
    let of_copies = all.filter(|v| v["bottleneck"] == "t1->lb" || v["bottleneck"] == "t0->la");
    let names: BTreeSet<_> = of_copies.map(|v| v["load"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["alive"]), "{victims}");
}

/// A load from a file, and one with sizes that are drawn, show what they have.
#[test]
fn loads_with_several_sizes_show_them() {
    let head = "[topology]\nkind = \"star\"\nhosts = 4\n[[traffic]]\npattern = \"file\"\nflows = \"flows.csv\"\n\
                operation = \"write\"\n";
    for (flows, size, sizes, does, operations) in [
        (
            "h0,h1,64KiB,0\nh2,h1,1MiB,12.5us,read\n",
            1 << 20,
            Some([1 << 16, 1 << 20]),
            "mixed",
            2,
        ),
        ("h0,h1,4KiB,0\nh2,h1,4KiB,0\n", 4096, None, "write", 0),
        (
            "h0,h1,4KiB,0,send\nh2,h1,8KiB,0,send\n",
            8192,
            Some([4096, 8192]),
            "send",
            0,
        ),
    ] {
        let (dir, path) = file(head);
        std::fs::write(dir.path().join("flows.csv"), flows).unwrap();
        let out = softroce(&["run", path.to_str().unwrap(), "--json"]);
        let load = first_run(&out.stdout)["traffic"][0].clone();
        assert_eq!(load["size"], size);
        assert_eq!(load["sizes"], serde_json::json!(sizes));
        let all = load["operations"].as_array().map_or(0, Vec::len);
        assert_eq!(all, operations, "{load}");
        let out = softroce(&["run", path.to_str().unwrap()]);
        let shown = text(&out.stdout);
        let row = shown.lines().find(|l| l.starts_with("traffic-0")).unwrap();
        assert_eq!(row.split_whitespace().nth(1), Some(does), "{row}");
        if sizes.is_some() {
            assert!(row.contains(".."), "{row}");
        }
    }
}

/// Whatever a file has in it, a terminal is told nothing.
#[test]
fn nothing_of_a_file_reaches_a_terminal_as_it_is() {
    let evil = "\\u001b[31mred\\u0007 \\u009b2J \\u202e\\u007f";
    let texts = format!("title = \"{evil}\"\nlook-at = \"{evil}\"\n");
    let rest = "[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nfrom = \"h1\"\nto = \"h0\"\noperation = \"write\"\nsize = 1\n";
    let because = format!("[[expect]]\nmetric = \"drops\"\nat-least = 1\nbecause = \"{evil}\"\n");
    let whole = format!("{texts}{rest}{because}");
    let wrong = [
        format!("{whole}[link]\nrate = \"{evil}\"\n"),
        format!("{whole}[link]\n\"{evil}\" = 1\n"),
        format!("{whole}[[capture]]\nname = \"{evil}\"\nlink = \"{evil}\"\n"),
        format!("{texts}\u{1b}[31m = \u{9b}"),
    ];
    let is_plain = |bytes: &[u8], what: &str| {
        let obeyed = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
        assert!(!text(bytes).contains(obeyed), "{what}: {:?}", text(bytes));
    };
    for content in wrong.iter().chain([&whole]) {
        for verb in ["run", "check", "sweep"] {
            let out = with(verb, content, &[], &["seed=\u{1b}[1m\u{9b}"]);
            is_plain(&out.stderr, verb);
            let out = with(verb, content, &[], &[]);
            is_plain(&out.stdout, verb);
            is_plain(&out.stderr, verb);
        }
    }
    let out = with("run", &whole, &["--json"], &[]);
    is_plain(&out.stdout, "--json");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let title = &report["reports"][0]["title"];
    assert_eq!(title, "\u{1b}[31mred\u{7} \u{9b}2J \u{202e}\u{7f}");
    let (dir, path) = file(&whole);
    let results = dir.path().join("out");
    let out = softroce(&[
        "run",
        path.to_str().unwrap(),
        "--out",
        results.to_str().unwrap(),
    ]);
    assert_eq!(out.status.code(), Some(1));
    is_plain(
        &std::fs::read(results.join("mine.txt")).unwrap(),
        "mine.txt",
    );
    let named = dir.path().join("\u{1b}[31m.toml");
    std::fs::write(&named, &whole).unwrap();
    for verb in ["run", "check"] {
        let out = softroce(&[verb, named.to_str().unwrap()]);
        is_plain(&out.stdout, verb);
        let out = softroce(&[
            verb,
            dir.path().join("\u{1b}not-there.toml").to_str().unwrap(),
        ]);
        is_plain(&out.stderr, verb);
    }
}

const LONE: &str = "[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nfrom = \"h1\"\nto = \"h0\"\noperation = \"write\"\n\
                    size = 1\nstart = \"900s\"\n";

/// Samples of a network in which nothing happens count, and there is an end of them.
#[test]
fn samples_have_limits() {
    let limit = format!("stop = \"1000s\"\nsample = \"1s\"\nevent-limit = 500\n{LONE}");
    // Each counts for two links in both directions and a queue pair: the limit comes with the 101st.
    let out = with("run", &limit, &["--json"], &[]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(first_run(&out.stdout)["ended"], "event-limit");
    let enough = limit.replace("= 500", "= 10000");
    assert_eq!(run(&enough, &[])["ended"], "dry");
    let out = with("check", &limit.replace("\"1s\"", "\"1us\""), &[], &[]);
    assert_eq!(out.status.code(), Some(2));
    let told = "mine.toml:2:10: sample = \"1us\" makes 1000000000 samples until \"stop\", 1000s; the limit is 100000";
    assert!(text(&out.stderr).contains(told), "{}", text(&out.stderr));
    // Without a `stop` of the file the run goes on, and says what is missing.
    let open = format!("sample = \"10us\"\n{}", LONE.replace("900s", "5s"));
    let begun = Instant::now();
    let told = run(&open, &[])["warnings"].to_string();
    assert!(
        told.contains("only the first 100000 samples were kept, up to 1s"),
        "{told}"
    );
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// Files of samples end with a whole one, and it is told that more would have come.
#[test]
fn rows_of_samples_have_limits() {
    // 20 queue pairs: 50000 samples are 1000000 rows of rates; 100000 of them 2000000.
    let load = "[topology]\nkind = \"star\"\nhosts = 2\n[card]\ncongestion = \"dcqcn\"\n[switch]\necn-kmin = \"5KB\"\n\
                [[traffic]]\nfrom = \"h0\"\nto = \"h1\"\noperation = \"write\"\nsize = \"64KiB\"\nduration = \"1ms\"\n\
                qps = 19\n";
    let content = format!("stop = \"600us\"\nsample = \"10ns\"\npayload = \"counted\"\n{load}");
    let results = results(&content, &[], &[]);
    let table = results.read("mine-rates.csv");
    // Of 19 rows each: 52631 samples, and 11 rows are left over.
    assert_eq!(table.lines().count(), 1 + 52_631 * 19);
    let last = table.lines().last().unwrap();
    assert!(
        last.starts_with("526310000,") && last.contains(",18,"),
        "{last}"
    );
    let told = results.run["warnings"].to_string();
    let expected = "only the first 1000000 rows of rates were kept, up to 526.31us";
    assert!(told.contains(expected), "{told}");
    assert!(!told.contains("rows of queues"), "{told}");
}

/// Of runs that were not begun nobody knows whether they would have held.
#[test]
fn an_interrupted_sweep_has_not_held() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let content = "[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
                   operation = \"write\"\nsize = \"4KiB\"\n[sweep]\nseed = [1, 2, 3, 4]\n";
    let source = softroce::format::Source::new("x.toml", content).unwrap();
    let plan = softroce::format::File::parse(source).and_then(|f| f.plan(&[]));
    let plan = plan.unwrap_or_else(|e| panic!("{e}"));
    for most in [0, 1, 3, 4] {
        let flag = Arc::new(AtomicBool::new(most == 0));
        let options = softroce::run::Options {
            threads: 1,
            interrupt: Some(flag.clone()),
            ..softroce::run::Options::default()
        };
        let stop = |done: softroce::run::Done| {
            flag.fetch_or(done.runs >= most, Ordering::Relaxed);
        };
        let report = softroce::run::run("x", &plan, &options, &stop).unwrap();
        assert_eq!((report.runs.len(), report.not_run), (most, 4 - most));
        assert_eq!(report.held, most == 4, "{most}");
        assert!(report.runs.iter().all(softroce::report::Run::held));
    }
}

/// Begins a run, and sends it an interruption once it takes them.
#[cfg(target_os = "linux")]
fn interrupted(content: &str, args: &[&str], times: usize) -> std::process::Output {
    let (_dir, path) = file(content);
    let child = Command::new(env!("CARGO_BIN_EXE_softroce"))
        .args(["run", path.to_str().unwrap()])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    let begun = Instant::now();
    let blocks = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let mask = status.lines().find_map(|l| l.strip_prefix("SigBlk:"));
        mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
            .is_some_and(|m| m & 2 != 0)
    };
    while !blocks() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it takes no interruption"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    // It has a while to begin with its work.
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..times {
        let sent = Command::new("kill")
            .args(["-INT", &id.to_string()])
            .status();
        assert!(sent.unwrap().success());
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// The first interruption ends a run where it is, with its report; of a sweep what has been run is told.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_run_leaves_its_report() {
    let endless = "stop = \"100000s\"\npayload = \"counted\"\n[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\n\
                   from = \"h1\"\nto = \"h0\"\noperation = \"write\"\nsize = \"1MiB\"\nduration = \"1000s\"\n\
                   [[expect]]\nmetric = \"drops\"\nequals = 0\n";
    let out = interrupted(endless, &[], 1);
    let shown = text(&out.stdout);
    assert_eq!(
        out.status.code(),
        Some(130),
        "{shown} {}",
        text(&out.stderr)
    );
    assert!(shown.contains("until it was INTERRUPTED"), "{shown}");
    assert!(
        shown.contains("INTERRUPTED: 1 of 1 runs ended where they were, 0 were not begun"),
        "{shown}"
    );
    let swept = format!("{endless}[sweep]\nseed = [1, 2, 3, 4, 5]\n");
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().to_str().unwrap();
    let out = interrupted(&swept, &["--json", "-j", "2", "--out", results], 1);
    assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let report = &report["reports"][0];
    assert_eq!(report["not_run"], 3);
    assert_eq!(report["held"], false);
    let runs = report["runs"].as_array().unwrap();
    let values: Vec<_> = runs
        .iter()
        .map(|r| r["values"][0].as_str().unwrap())
        .collect();
    assert_eq!(values, ["1", "2"]);
    for run in runs {
        assert_eq!(run["ended"], "interrupted");
        assert!(run["traffic"][0]["bytes"].as_u64().unwrap() > 0);
        assert_eq!(run["expectations"][0]["held"], true);
    }
    assert!(dir.path().join("mine.txt").exists());
    // Two of them in a row, and it is over, whatever it does.
    let out = interrupted(endless, &[], 2);
    assert_eq!(out.status.code(), Some(130));
}
