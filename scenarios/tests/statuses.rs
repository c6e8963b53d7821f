//! Each failure of the library scenario `every-status` is explained by the cause that its load brings in.

mod common;

use common::{first_run, softroce};
use serde_json::Value;
use std::collections::BTreeSet;

fn every_status() -> Value {
    let out = softroce(&["run", "every-status", "--json"]);
    assert_eq!(out.status.code(), Some(0));
    first_run(&out.stdout)
}

/// A failure: load, host that says it, operation, status, cause, and parts of the line.
type Injected = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// What the file injects, and what must therefore be said. `{psn}` stands for the first PSN of the request,
/// `{last}` for its last one.
#[rustfmt::skip]
const INJECTED: [Injected; 13] = [
    ("send-bad-lkey", "h0", "SEND", "local-protection", "local-protection",
        &["element 0 (lkey ", "1024 bytes at ", "no memory region or window has key"]),
    ("ud-other-domain", "h0", "SEND", "local-operation", "address-handle",
        &["address handle", "another protection domain"]),
    ("bind-no-right", "h0", "BIND WINDOW", "window-bind", "bind",
        &["no window bound as 0x", " to 4096 bytes at 0x", "of the region with lkey 0x", "does not allow windows"]),
    ("short-receive", "h1", "receive", "local-length", "receive-too-short",
        &["4096 bytes so far", "room for 4095"]),
    // The byte that is too much comes with the last packet.
    ("short-receive", "h0", "SEND", "remote-invalid-request", "refused",
        &["PSN {last}: NAK invalid request", "at h1: refused: 4096 bytes so far", "room for 4095"]),
    ("recv-bad-lkey", "h1", "receive", "local-protection", "receive-protection",
        &["element 0 of the receive request (lkey ", "no memory region or window has key"]),
    ("recv-bad-lkey", "h0", "SEND", "remote-operation", "refused",
        &["PSN {psn}: NAK remote operational error", "at h1: refused: element 0 of the receive request"]),
    ("write-bad-rkey", "h1", "receive", "local-access", "remote-access",
        &["rkey ", "for 1000 bytes at ", "no memory region or window has key"]),
    ("write-bad-rkey", "h0", "WRITE with immediate data", "remote-access", "refused",
        &["PSN {psn}: NAK remote access error", "flushed: 1 send (wr_id 1)", "at h1: refused: rkey "]),
    ("read-no-right", "h0", "READ", "remote-invalid-request", "refused",
        &["PSN {psn}: NAK invalid request", "at h1: refused: the queue pair does not grant remote read access"]),
    // The responder's path MTU is the smaller one, 512.
    ("read-other-mtu", "h0", "READ", "bad-response", "bad-response",
        &["Read Response First", "512 bytes where 600 were asked for",
          "it comes in pieces of 512 bytes, and the path MTU here is 1024"]),
    ("cut", "h0", "WRITE", "retry-exceeded", "retries-exceeded",
        // 4.096 us x 2^4; the first transmission and two retries.
        &["retry_cnt 2 used up at PSN {psn} (3 timeouts of 65.536us)",
          "PSN {psn} lost on h0->h1 in rounds 1, 2, 3 (fault cable)"]),
    ("no-receive", "h0", "SEND", "rnr-retry-exceeded", "rnr-retries-exceeded",
        &["rnr_retry 2 used up at PSN {psn}", "wait of 10us"]),
];

#[test]
fn every_failure_is_explained_by_what_caused_it() {
    let run = every_status();
    let failures = run["failures"].as_array().unwrap();
    assert_eq!(failures.len(), INJECTED.len());
    assert_eq!(run["more_failures"], 0);
    for (load, host, operation, status, cause, parts) in INJECTED {
        let mut own = failures
            .iter()
            .filter(|f| f["load"] == load && f["host"] == host);
        let f = own.next().unwrap_or_else(|| panic!("{load} at {host}"));
        assert!(own.next().is_none(), "{load} at {host} fails once");
        let (line, request) = (f["line"].as_str().unwrap(), &f["request"]);
        assert_eq!(request["operation"], operation, "{line}");
        // The first request of its queue pair, and the data say what the line says.
        assert_eq!(
            (&request["number"], &request["wr_id"]),
            (&1.into(), &0.into())
        );
        assert_eq!(f["status"], status, "{line}");
        assert_eq!(f["cause"], cause, "{line}");
        for (key, value) in [
            (
                "",
                format!(
                    "{operation} #1 (wr_id 0) of qp {:#08x} ({})",
                    f["qp"].as_u64().unwrap(),
                    f["gid"].as_str().unwrap()
                ),
            ),
            ("", f["because"].as_str().unwrap().to_string()),
        ] {
            assert!(line.contains(&value), "{key} {value} in {line}");
        }
        // Nobody else has a part in the binding of a window.
        if load == "bind-no-right" {
            assert!(
                f.get("peer").is_none() && !line.contains(" to qp "),
                "{line}"
            );
            assert!(request.get("bytes").is_none(), "{request}");
            assert_eq!(request["window"]["bytes"], 4096);
        } else {
            let peer = format!(
                "qp {:#08x} ({})",
                f["peer"]["qp"].as_u64().unwrap(),
                f["peer"]["gid"].as_str().unwrap()
            );
            assert!(line.contains(&peer), "{peer} in {line}");
        }
        for part in parts {
            let part = part
                .replace("{psn}", &request["first_psn"].to_string())
                .replace("{last}", &request["last_psn"].to_string());
            assert!(line.contains(&part), "{part} is not in {line}");
        }
    }
}

/// The cable is cut for one load: each try, its timer and its loss are there as data.
#[test]
fn each_try_of_the_load_that_is_cut_off_is_told_of() {
    let run = every_status();
    let failures = run["failures"].as_array().unwrap();
    let cut = failures.iter().find(|f| f["load"] == "cut").unwrap();
    let psn = &cut["request"]["first_psn"];
    let what = |list: &str, key: &str| -> Vec<String> {
        let list = cut[list].as_array().unwrap();
        list.iter().map(|t| t[key].to_string()).collect()
    };
    let timeout = 4_096_000u64 << 4;
    let expected = ["timeout", "resend", "timeout", "resend", "timeout"];
    assert_eq!(what("tries", "what"), expected.map(|w| format!("\"{w}\"")));
    for t in cut["tries"].as_array().unwrap() {
        assert_eq!(&t["psn"], psn);
        if t["what"] == "timeout" {
            assert_eq!(t["span_ps"], timeout);
        }
    }
    assert_eq!(what("lost", "round"), ["1", "2", "3"]);
    // A timer starts with each transmission, so the losses are that far apart.
    let times: Vec<u64> = what("lost", "time_ps")
        .iter()
        .map(|t| t.parse().unwrap())
        .collect();
    assert!(
        times.windows(2).all(|w| w[1] - w[0] == timeout),
        "{times:?}"
    );
    for l in cut["lost"].as_array().unwrap() {
        assert_eq!(
            (&l["psn"], &l["link"], &l["fault"]),
            (psn, &"h0->h1".into(), &"cable".into())
        );
    }
    assert_eq!(cut["counters"]["local_ack_timeout_err"], 3);
    assert_eq!(cut["counters"]["retransmitted_packets"], 2);
    // The first transmission and two more, of one packet.
    assert_eq!(cut["counters"]["sent_pkts"], 3);
    assert!(cut["counters"].get("rcvd_pkts").is_none());
}

/// The reader is sent to the list of failures: each of them is in the text.
#[test]
fn the_text_has_each_of_them() {
    let out = softroce(&["run", "every-status"]);
    let text = String::from_utf8(out.stdout).unwrap();
    let (_, list) = text.split_once("\nfailures\n").unwrap();
    for (load, host, operation, ..) in INJECTED {
        let begins = format!("  {load}, {host}, ");
        let lines = list.lines().filter(|l| l.starts_with(&begins));
        assert!(
            lines.filter(|l| l.contains(operation)).count() == 1,
            "{begins} {operation}"
        );
    }
    assert!(!list.contains("more in the list"), "{list}");
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
    let run = every_status();
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
    let has = softroce_sim::card::Status::ALL.map(|status| status.number());
    let mut numbers: Vec<u32> = has.into_iter().chain(absent.map(|(n, _)| n)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(0..24));
    for (_, name) in absent {
        assert!(text.contains(name), "{name}");
    }
}

/// 150 queue pairs fail in one way before one fails in another: both ways are listed and shown, the text stays
/// short, and what it leaves out is counted.
#[test]
fn many_failures_do_not_hide_another_kind() {
    let scenario = r#"
        [topology]
        kind = "back-to-back"
        [card]
        timeout = 4
        retry-count = 1
        rnr-retry = 1
        min-rnr-timer = 1
        [[traffic]]
        name = "many"
        from = "h0"
        to = "h1"
        operation = "send"
        size = "1000B"
        recv-depth = 0
        qps = 150
        [[traffic]]
        name = "late"
        from = "h0"
        to = "h1"
        operation = "write"
        size = "1000B"
        start = "10ms"
        mistake = "rkey"
    "#;
    let report = common::run(scenario, &[]);
    let failures = report["failures"].as_array().unwrap();
    // 151 in all, of which 100 are listed.
    assert_eq!(
        (failures.len(), &report["more_failures"]),
        (100, &51.into())
    );
    let of = |load: &str| failures.iter().filter(|f| f["load"] == load).count();
    assert_eq!((of("many"), of("late")), (99, 1));
    let out = common::with("run", scenario, &[], &[]);
    let text = common::text(&out.stdout);
    let (_, list) = text.split_once("\nfailures\n").unwrap();
    let lines = |begins: &str| list.lines().filter(|l| l.starts_with(begins)).count();
    assert_eq!(
        (lines("  many, h0, "), lines("  late, h0, ")),
        (19, 1),
        "{list}"
    );
    for said in [
        "... and 80 more in the list of --json: 80 rnr-retries-exceeded of many",
        "... and 51 that are in no list",
    ] {
        assert!(list.contains(said), "{list}");
    }
}
