//! The built program: what it prints where, and how it exits.

mod common;

use common::{file, softroce, text};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};

const GOOD: &str = "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
                    operation = \"write\"\nsize = \"1KiB\"\n";

#[test]
fn the_library_is_listed() {
    let out = softroce(&["list"]);
    assert_eq!(out.status.code(), Some(0));
    let names: Vec<_> = text(&out.stdout)
        .lines()
        .map(|l| l.split_whitespace().next().unwrap())
        .collect();
    assert!(names.contains(&"two-hosts") && names.contains(&"loss-cliff"));
    assert!(names.is_sorted());
    let out = softroce(&["list", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["scenarios"].as_array().unwrap().len(), names.len());
}

#[test]
fn an_unknown_name_is_told_the_nearest() {
    for command in ["run", "check", "sweep"] {
        let out = softroce(&[command, "two-host"]);
        assert_eq!(out.status.code(), Some(2));
        assert!(out.stdout.is_empty());
        let err = text(&out.stderr);
        assert!(err.contains("did you mean \"two-hosts\"?"), "{err}");
        assert!(err.contains("softroce list"), "{err}");
    }
}

#[test]
fn every_mistake_is_reported_in_the_order_of_the_file() {
    let (_dir, path) = file(
        b"[topology]\nkind = \"star\"\n[link]\ndealy = \"1us\"\nrate = \"fast\"\n[card]\ntimeout = 32\n\
          [[traffic]]\nfrom = \"h0\"\nto = \"h2\"\noperation = \"write\"\nsize = \"1KB\"\n",
    );
    let out = softroce(&["check", path.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    let err = text(&out.stderr);
    let name = path.to_str().unwrap();
    let places: Vec<_> = err
        .lines()
        .filter_map(|l| l.strip_prefix(name))
        .map(|l| l.split(": ").next().unwrap())
        .collect();
    assert_eq!(places, [":4:1", ":5:8", ":7:11", ":10:6"], "{err}");
    for part in [
        "unknown key \"dealy\" in [link]; did you mean \"delay\"?\n  4 | dealy = \"1us\"\n    | ^^^^^\n",
        "rate = \"fast\" in [link] is not a rate",
        "timeout = 32 in [card] must be an integer from 0 to 31",
        "names no host \"h2\"",
    ] {
        assert!(err.contains(part), "{part} is not in:\n{err}");
    }
}

#[test]
fn what_is_no_scenario_is_refused() {
    let (dir, path) = file(b"a = \"\xff\"");
    let path = path.to_str().unwrap();
    let big = dir.path().join("big.toml");
    std::fs::File::create(&big)
        .unwrap()
        .set_len(17 << 20)
        .unwrap();
    for (argument, told) in [
        (
            path,
            "mine.toml:1:6: byte 0xff is not UTF-8, which a scenario in TOML must be",
        ),
        (
            dir.path().to_str().unwrap(),
            "is a directory; a scenario in TOML is a file",
        ),
        ("/no/such/file.toml", "/no/such/file.toml: no such file"),
        (big.to_str().unwrap(), "larger than the limit of 16 MiB"),
    ] {
        let out = softroce(&["run", argument]);
        assert_eq!(out.status.code(), Some(2), "{argument}");
        let err = text(&out.stderr);
        assert!(err.contains(told), "{err}");
        assert!(!err.contains("panicked"), "{err}");
    }
    let (_dir, path) = file(b"a = \nb = = 1\n");
    let out = softroce(&["check", path.to_str().unwrap()]);
    let err = text(&out.stderr);
    assert!(
        err.contains("mine.toml:1:") && err.contains("mine.toml:2:"),
        "{err}"
    );
}

#[test]
fn settings_are_checked_like_the_file() {
    let (_dir, path) = file(GOOD.as_bytes());
    let path = path.to_str().unwrap();
    let ok = softroce(&[
        "check",
        path,
        "--set",
        "link.rate=40Gbps",
        "--set",
        "card.timeout=4,14",
        "--set",
        "link.loss=0.01%",
    ]);
    assert_eq!(ok.status.code(), Some(0), "{}", text(&ok.stderr));
    assert_eq!(text(&ok.stdout), "mine: ok, 2 runs, 0 expectations\n");
    for (setting, told) in [
        (
            "card.timout=4",
            "unknown key \"timout\" in [card]; did you mean \"timeout\"?",
        ),
        ("link.rate=40gbps", "did you mean \"Gbps\"?"),
        ("fault.x.rate=0", "there is no [[fault]] in the file"),
        (
            "traffic.1.size=1",
            "there is no [[traffic]] \"1\" among the 1",
        ),
        ("card.h7.timeout=4", "there is no host \"h7\""),
        ("seed", "a setting is a path"),
        ("link.loss=1.5", "must be from 0 to 1"),
        // The limits of the key, and not those of its unit.
        ("link.rate=1e400Gbps", "must be a rate from 1Mbps to 10Tbps"),
        ("link.delay=1e40s", "must be a span of time from 0ps to 10s"),
    ] {
        let out = softroce(&["run", path, "--set", setting]);
        assert_eq!(out.status.code(), Some(2), "{setting}");
        let err = text(&out.stderr);
        assert!(err.contains(told) && err.contains("--set: "), "{err}");
        assert!(err.contains(setting), "the setting is shown: {err}");
    }
}

#[test]
fn a_sweep_needs_something_to_vary() {
    let (_dir, path) = file(GOOD.as_bytes());
    let out = softroce(&["sweep", path.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("nothing to sweep"));
}

#[test]
fn numbers_of_options_have_limits() {
    for (option, value, told) in [
        (
            "--seed",
            "99999999999999999999",
            "must be an integer from 0 to 9223372036854775807",
        ),
        (
            "--seed",
            "-1",
            "must be an integer from 0 to 9223372036854775807",
        ),
        (
            "--seed",
            "x",
            "must be an integer from 0 to 9223372036854775807",
        ),
        ("--jobs", "0", "must be an integer from 1 to 65536"),
        ("-j", "-3", "must be an integer from 1 to 65536"),
    ] {
        let out = softroce(&["run", "two-hosts", option, value]);
        assert_eq!(out.status.code(), Some(2), "{option} {value}");
        let err = text(&out.stderr);
        assert!(
            err.contains(told) && err.contains(&format!("'{value}'")),
            "{err}"
        );
    }
}

/// Every option that takes a number, by the programs' own help.
#[test]
fn a_negative_number_is_refused_by_the_name_of_its_option() {
    let mut options = 0;
    for (command, needs) in [
        ("run", &["two-hosts"][..]),
        ("sweep", &["two-hosts"]),
        ("check", &["two-hosts"]),
        ("list", &[]),
        ("inspect", &["no-such.pcap"]),
        ("conformance", &[]),
        ("devices", &[]),
        ("perf", &["write-bw"]),
        #[cfg(target_os = "linux")]
        ("pingpong", &[]),
    ] {
        let help = softroce(&[command, "--help"]);
        for line in text(&help.stdout).lines() {
            let Some((option, value)) = line
                .split_once("--")
                .and_then(|(_, rest)| rest.trim_end().split_once(" <"))
                .and_then(|(name, value)| Some((name, value.strip_suffix('>')?)))
            else {
                continue;
            };
            let given = match value {
                "N" | "BYTES" | "SECONDS" | "PORT" | "INDEX" | "SL" => "-1",
                "SHARE" => "-1%",
                "RATE" => "-1Gbps",
                _ => continue,
            };
            options += 1;
            let option = format!("--{option}");
            let out = softroce(&[&[command], needs, &[&option, given]].concat());
            let err = text(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{command} {option}: {err}");
            let named = format!("invalid value '{given}' for '{option} <{value}>': ");
            let told = err.split_once(&named);
            let told = told.map_or("", |(_, why)| why.lines().next().unwrap_or_default());
            assert!(
                told.contains("is not in ") || told.starts_with("must "),
                "{command} {option}: {err}"
            );
        }
    }
    // Those of perf and pingpong alone are more.
    assert!(options > 30, "{options}");
}

#[test]
fn a_value_that_no_metric_has_is_told_in_a_sentence() {
    let expect = |metric: &str| format!("[[expect]]\nmetric = \"{metric}\"\nequals = 0\n");
    for (metric, setting, told) in [
        (
            "goodput",
            "expect.0.equals=foo",
            "equals = \"foo\" in [[expect]] 0 is for \"goodput\" and is not a rate; write it as \"100Gbps\"",
        ),
        (
            "goodput",
            "expect.0.equals=7",
            "equals = 7 in [[expect]] 0 is for \"goodput\" and needs a unit: ",
        ),
        (
            "timeouts",
            "expect.0.at-least=true",
            "[[expect]] 0 must have one of",
        ),
    ] {
        let (_dir, path) = file(format!("{GOOD}{}", expect(metric)));
        let out = softroce(&["check", path.to_str().unwrap(), "--set", setting]);
        assert_eq!(out.status.code(), Some(2), "{setting}");
        let err = text(&out.stderr);
        assert!(err.contains(told), "{err}");
    }
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    assert_eq!(softroce(&[]).status.code(), Some(2));
    assert_eq!(softroce(&["run"]).status.code(), Some(2));
    assert_eq!(
        softroce(&["run", "two-hosts", "--capture", "h0-h1"])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        softroce(&["sweep", "two-hosts", "--json", "--csv"])
            .status
            .code(),
        Some(2)
    );
    let help = softroce(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for command in ["run", "sweep", "check", "list", "inspect"] {
        assert!(text(&help.stdout).contains(command), "{command}");
    }
}

#[test]
fn a_capture_of_an_unknown_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let out = softroce(&["run", "two-hosts", "--out", out, "--capture", "h0-h2"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("did you mean \"h0-h1\"?"));
}

/// As in `softroce list | true`: the reader is gone before anything is written.
#[test]
fn a_closed_output_is_no_failure() {
    for args in [
        &["list"][..],
        &["list", "--json"],
        &["check", "loss-cliff"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = Command::new(env!("CARGO_BIN_EXE_softroce"))
            .args(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}: {err}");
        assert_eq!(err, "", "{args:?}");
    }
}

/// Whatever is in the way of a file, what was found is on standard output before it is complained of.
#[test]
fn a_report_that_cannot_be_saved_is_printed_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = |name: &str| {
        let path = folder.path().join(format!("{name}.toml"));
        let content = format!("{GOOD}[sweep]\n\"link.rate\" = [\"10Gbps\", \"20Gbps\"]\n");
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (one, two) = (scenario("one"), scenario("two"));
    for blocked in ["one.json", "one.txt", "one.csv", "two.json"] {
        let out = folder.path().join(format!("out-{blocked}"));
        std::fs::create_dir_all(out.join(blocked)).unwrap();
        let out = out.to_str().unwrap();
        let complained = |ran: &std::process::Output| {
            let err = text(&ran.stderr);
            assert_eq!(ran.status.code(), Some(2), "{blocked}: {err}");
            assert!(err.contains(blocked) && err.lines().count() == 1, "{err}");
        };
        let ran = softroce(&["run", &one, &two, "--out", out]);
        complained(&ran);
        let printed = text(&ran.stdout);
        assert!(
            printed.contains("one") && printed.contains("two"),
            "{printed}"
        );
        let ran = softroce(&["run", &one, &two, "--out", out, "--json"]);
        complained(&ran);
        let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(report["reports"].as_array().unwrap().len(), 2, "{blocked}");
        // The others are where they should be.
        for name in ["one.json", "two.json", "two.txt"] {
            let is_there = std::path::Path::new(out).join(name).is_file();
            assert_eq!(is_there, name != blocked, "{blocked}: {name}");
        }
        if blocked.starts_with("one") {
            for form in [&["--json"][..], &["--csv"], &[]] {
                let ran = softroce(&[&["sweep", &one, "--out", out], form].concat());
                complained(&ran);
                assert!(text(&ran.stdout).len() > 40, "{}", text(&ran.stdout));
            }
        }
    }
}

#[test]
fn the_conformance_suite_runs_and_prints_its_coverage() {
    let out = softroce(&["conformance"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(out.stderr.is_empty(), "{}", text(&out.stderr));
    let table = text(&out.stdout);
    assert!(table.contains("CA17-22") && table.contains("Not covered: "));
    let totals: Vec<_> = table.lines().rev().take(3).collect();
    assert!(totals.iter().any(|l| l.ends_with(" passed, 0 failed")));
}

#[test]
fn a_part_of_the_conformance_suite_is_found_by_source_name_or_words() {
    let out = softroce(&["conformance", "c9-140"]);
    assert_eq!(out.status.code(), Some(0));
    let table = text(&out.stdout);
    assert!(
        table.contains("1 rule, 2 tests: 1 passed, 0 failed"),
        "{table}"
    );
    assert!(!table.contains("Not covered"), "{table}");
    let out = softroce(&["conformance", "no such rule"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(out.stdout.is_empty());
    assert!(text(&out.stderr).contains("--list"));
    // A clause that has no rule is told why.
    let out = softroce(&["conformance", "CA17-26"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("no table of them"));
}

#[test]
fn the_conformance_table_as_json_has_every_rule_and_clause() {
    for list in [false, true] {
        let mut args = vec!["conformance", "--json"];
        if list {
            args.push("--list");
        }
        let out = softroce(&args);
        assert_eq!(out.status.code(), Some(0));
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(json["schema"], 1);
        let rules = json["rules"].as_array().unwrap();
        assert_eq!(json["totals"]["rules"], rules.len());
        assert!(rules.len() >= 150);
        assert_eq!(rules.iter().all(|r| r["passed"] == true), !list);
        let clauses = json["clauses"].as_array().unwrap();
        let open = clauses.iter().filter(|c| c["standing"] == "not-covered");
        assert!(open.into_iter().all(|c| c["reason"].is_string()));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn devices_are_listed_and_opened() {
    let out = softroce(&["devices"]);
    assert_eq!(out.status.code(), Some(0));
    let listed = text(&out.stdout);
    assert!(
        listed.lines().any(|l| l.starts_with("softroce0 ")),
        "{listed}"
    );
    assert!(
        listed.lines().any(|l| l.starts_with("sim:NAME ")),
        "{listed}"
    );

    let out = softroce(&["devices", "-v", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    let devices = json["devices"].as_array().unwrap();
    let card = devices.iter().find(|d| d["name"] == "softroce0").unwrap();
    assert_eq!(card["kind"], "software");
    let port = &card["details"]["ports"][0];
    assert_eq!(port["state"], "PORT_ACTIVE");
    // An address of the loopback network, as IPv6 maps it.
    let gid = port["gids"][0]["gid"].as_str().unwrap();
    assert!(
        gid.contains("127.0.0.") || gid.contains("ffff:7f00:"),
        "{gid}"
    );
    assert_eq!(port["gids"][0]["type"], "RoCE v2");

    let out = softroce(&["devices", "-v"]);
    for part in ["fw_ver", "node_guid", "max_qp_wr", "active_mtu", "GID[0]"] {
        assert!(text(&out.stdout).contains(part), "{part}");
    }
}

/// A pipe in the file system that nobody writes into.
#[cfg(target_os = "linux")]
fn pipe(dir: &std::path::Path) -> String {
    let path = dir.join("pipe").to_str().unwrap().to_owned();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    path
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_no_regular_file_is_refused_and_standard_input_is_read() {
    let content = "[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nname = \"listed\"\npattern = \"file\"\n\
                   operation = \"write\"\nflows = \"pipe\"\n";
    let (dir, path) = file(content);
    let pipe = pipe(dir.path());
    for (args, told, what) in [
        (&["check", pipe.as_str()][..], &pipe, "a scenario in TOML"),
        (
            &["check", path.to_str().unwrap()],
            &pipe,
            "a list of flows in CSV",
        ),
        (
            &["perf", "write-bw", "--faults", &pipe],
            &pipe,
            "a list of faults in TOML",
        ),
        (
            &["check", "/dev/zero"],
            &"/dev/zero".into(),
            "a scenario in TOML",
        ),
    ] {
        let out = softroce(args);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {err}");
        // Under the first line is at most the place in the scenario.
        let why = format!("{told}: is no regular file; {what} is one");
        let first = err.lines().next().unwrap_or_default();
        assert!(first.ends_with(&why), "{args:?}: {err}");
    }
    std::fs::write(&path, GOOD).unwrap();
    for command in [
        "cat \"$1\" | \"$0\" check /dev/stdin",
        "\"$0\" check /dev/stdin < \"$1\"",
        "cat \"$1\" | \"$0\" check /dev/fd/0",
    ] {
        let out = std::process::Command::new("sh")
            .args(["-c", command, env!("CARGO_BIN_EXE_softroce")])
            .arg(&path)
            .output()
            .unwrap();
        assert_eq!(
            out.status.code(),
            Some(0),
            "{command}: {}",
            text(&out.stderr)
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn every_file_that_a_full_disk_does_not_take_is_named() {
    let content = "flow-table = true\n[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nname = \"flow\"\n\
                   from = \"h0\"\nto = \"h1\"\noperation = \"write\"\nsize = \"64KiB\"\ncount = 2\n";
    let (dir, path) = file(content);
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let full = ["mine-flows.csv", "mine-h0-s0.pcapng", "mine-h1-s0.pcapng"];
    for name in full {
        std::os::unix::fs::symlink("/dev/full", out.join(name)).unwrap();
    }
    let path = path.to_str().unwrap();
    let args = ["run", path, "--out", out.to_str().unwrap()];
    let captures = ["--capture", "h0-s0", "--capture", "h1-s0"];
    let done = softroce(&[&args[..], &captures].concat());
    let err = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{err}");
    let told: Vec<&str> = err.lines().collect();
    assert_eq!(told.len(), full.len(), "{err}");
    for (line, name) in told.iter().zip(full) {
        let why = format!(
            "{}: No space left on device (os error 28)",
            out.join(name).display()
        );
        assert!(line.ends_with(&why), "{err}");
    }
    // And of the reports.
    for name in ["mine.txt", "mine.json"] {
        std::os::unix::fs::symlink("/dev/full", out.join(name)).unwrap();
    }
    for name in full {
        std::fs::remove_file(out.join(name)).unwrap();
    }
    let done = softroce(&args);
    let err = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{err}");
    for name in ["mine.txt", "mine.json"] {
        assert!(
            err.contains(&format!("{name}: No space left on device")),
            "{err}"
        );
    }
}

#[test]
fn a_value_nested_too_deep_is_told_the_limit() {
    let (_dir, path) = file(format!("a = {}1{}\n", "[".repeat(81), "]".repeat(81)));
    let out = softroce(&["check", path.to_str().unwrap()]);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{err}");
    assert!(
        err.contains("not TOML: values are nested deeper than 80 levels"),
        "{err}"
    );
    // One less is read, though no such key exists.
    let (_dir, path) = file(format!("a = {}1{}\n", "[".repeat(80), "]".repeat(80)));
    let out = softroce(&["check", path.to_str().unwrap()]);
    assert!(
        !text(&out.stderr).contains("nested"),
        "{}",
        text(&out.stderr)
    );
}
