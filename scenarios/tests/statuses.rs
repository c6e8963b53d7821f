//! The scenario with every status: each fault ends as the specification says, and says so itself.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

fn run(args: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_softroce");
    let out = Command::new(program)
        .args(["run", "every-status"])
        .args(args)
        .output()
        .unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(0), "{err}");
    String::from_utf8(out.stdout).unwrap()
}

fn data() -> Value {
    let document: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    document["reports"][0]["runs"][0].clone()
}

/// A status and how often it came.
type Count = (&'static str, u64);

/// Each fault, and the statuses that it gives requests and receives (ibv_poll_cq(3)).
const ENDS: [(&str, &[Count], &[Count]); 11] = [
    ("nothing-wrong", &[("success", 1)], &[]),
    ("send-bad-lkey", &[("local-protection", 1)], &[]),
    ("ud-other-domain", &[("local-operation", 1)], &[]),
    ("bind-no-right", &[("window-bind", 1)], &[]),
    (
        "short-receive",
        &[("remote-invalid-request", 1)],
        &[("local-length", 1)],
    ),
    (
        "recv-bad-lkey",
        &[("remote-operation", 1)],
        &[("local-protection", 1)],
    ),
    (
        "write-bad-rkey",
        &[("flushed", 1), ("remote-access", 1)],
        &[("local-access", 1)],
    ),
    ("read-no-right", &[("remote-invalid-request", 1)], &[]),
    ("read-other-mtu", &[("bad-response", 1)], &[]),
    ("cut", &[("retry-exceeded", 1)], &[]),
    ("no-receive", &[("rnr-retry-exceeded", 1)], &[]),
];

fn statuses(value: &Value) -> Vec<(&str, u64)> {
    let all = value.as_object().unwrap().iter();
    all.filter_map(|(status, n)| {
        let n = n.as_u64().unwrap();
        (n > 0).then_some((status.as_str(), n))
    })
    .collect()
}

#[test]
fn each_fault_ends_with_its_status_and_none_is_missing() {
    let run = data();
    let loads = run["traffic"].as_array().unwrap();
    assert_eq!(loads.len(), ENDS.len());
    let mut seen = BTreeSet::new();
    for (load, (name, requests, receives)) in loads.iter().zip(ENDS) {
        assert_eq!(load["name"], name);
        assert_eq!(load["unfinished"], 0, "{name}");
        assert_eq!(statuses(&load["completions"]), requests, "{name}");
        assert_eq!(statuses(&load["receives"]), receives, "{name}");
        seen.extend(requests.iter().chain(receives).map(|(status, _)| *status));
    }
    let all: BTreeSet<_> = softroce::report::Status::NAMES.iter().copied().collect();
    assert_eq!(seen, all);
    // Every number of `ibv_wc_status` from 0 to 23 is one of the card's or told to be none.
    let text = softroce::library::find("every-status").unwrap().text;
    let absent = [
        (3, "LOC_EEC_OP_ERR"),
        (14, "LOC_RDD_VIOL_ERR"),
        (15, "REM_INV_RD_REQ_ERR"),
        (16, "REM_ABORT_ERR"),
        (17, "INV_EECN_ERR"),
        (18, "INV_EEC_STATE_ERR"),
        (19, "FATAL_ERR"),
        (20, "RESP_TIMEOUT_ERR"),
        (21, "GENERAL_ERR"),
        (22, "TM_ERR"),
        (23, "TM_RNDV_INCOMPLETE"),
    ];
    let has = softroce_sim::card::Status::ALL.map(|status| status as u32);
    let mut numbers: Vec<u32> = has.into_iter().chain(absent.map(|(n, _)| n)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(0..24));
    for (_, name) in absent {
        assert!(text.contains(name), "{name}");
    }
}

#[test]
fn receives_that_fail_are_in_the_report() {
    let shown = run(&[]);
    for (load, _, receives) in ENDS {
        for (status, n) in receives {
            let told = format!("{n} {status}");
            let line = shown
                .lines()
                .find(|l| l.starts_with(load) && l.ends_with(&told));
            assert!(line.is_some(), "{load} {told}\n{shown}");
        }
    }
}
