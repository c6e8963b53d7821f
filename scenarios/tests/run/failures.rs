//! What is lost, refused or fails is told with its cause.

use super::common::file;
use super::{EXACT, ONE, json, prints};

#[test]
fn one_lost_packet_costs_one_nak_and_what_was_in_flight() {
    let expect = "[[expect]]\nmetric = \"naks.sequence\"\nof = \"flow\"\nequals = 1\n\
                  [[expect]]\nmetric = \"faults.hits\"\nof = \"third\"\nequals = 1\n\
                  [[expect]]\nmetric = \"drops.fault\"\nof = \"h0->h1\"\nequals = 1\n\
                  [[expect]]\nmetric = \"retransmissions\"\nequals = 18\n\
                  [[expect]]\nmetric = \"completions.success\"\nequals = 1\n";
    let (_dir, path) = file(format!("{ONE}{EXACT}{expect}"));
    let path = path.to_str().unwrap();
    let shown = prints(&["run", path], 0);
    // The fault's packet is named: where, what, which copy.
    assert!(
        shown.contains("fault third hit 1 of the 1 packets it looked at"),
        "{shown}"
    );
    let hit = shown.lines().find(|l| l.contains("dropped")).unwrap();
    for part in ["h0->h1", "RC RDMA Write Middle", "psn", "(copy 1, round 1)"] {
        assert!(hit.contains(part), "{hit}");
    }
    let report = json(&["run", path, "--json"], 0);
    let run = &report["reports"][0]["runs"][0];
    assert_eq!(run["faults"][0]["packets"][0]["copy"], 1);
    assert_eq!(run["hosts"][1]["counts"]["out_of_sequence"], 17);
    assert_eq!(run["traffic"][0]["counts"]["packets_sent"], 20 + 18 + 2);
}

#[test]
fn ends_that_differ_are_set_up_each_in_its_own_way() {
    let rest = "[[fault]]\nlink = \"h1->h0\"\nkind = \"exact\"\n[sweep]\n\
                \"card.h0.timeout\" = [1, 4]\n";
    let card = "[card]\ntimeout = 14\nretry-count = 2\n";
    let (_dir, path) = file(format!("{ONE}{rest}{card}"));
    let report = json(&["run", path.to_str().unwrap(), "--json"], 0);
    // Nothing comes back: three sendings, each a timeout of the requester's.
    for (n, exponent) in [(0, 1), (1, 4)] {
        let run = &report["reports"][0]["runs"][n];
        let load = &run["traffic"][0];
        assert_eq!(load["completions"]["retry-exceeded"], 1, "{load}");
        assert_eq!(load["counts"]["timeouts"], 3);
        let least = 3 * (4_096_000u64 << exponent);
        let time = load["duration_ps"].as_u64().unwrap();
        assert!((least..least * 4 + 10_000_000).contains(&time), "{time}");
    }
}

#[test]
fn without_receives_sends_get_rnr_naks() {
    let (_dir, path) = file(
        "[topology]\nkind = \"back-to-back\"\n[card]\nrnr-retry = 2\n[[traffic]]\nfrom = \"h0\"\n\
         to = \"h1\"\noperation = \"send\"\nsize = \"1KiB\"\nrecv-depth = 0\n\
         [[expect]]\nmetric = \"naks.rnr\"\nequals = 3\n\
         [[expect]]\nmetric = \"messages\"\nequals = 0\n",
    );
    prints(&["run", path.to_str().unwrap()], 0);
}

#[test]
fn a_request_that_fails_says_why() {
    // The third packet never gets through: of a depth of two, the second message is flushed.
    let cut = EXACT.replace("copy = 1\n", "").replace("third", "cut");
    let (_dir, path) = file(format!(
        "{ONE}depth = 2\ncount = 2\n{cut}[card]\ntimeout = 8\nretry-count = 1\n"
    ));
    let path = path.to_str().unwrap();
    let doc = json(&["run", path, "--json"], 0);
    let run = &doc["reports"][0]["runs"][0];
    assert_eq!(run["more_failures"], 0);
    let [failure] = &run["failures"].as_array().unwrap()[..] else {
        panic!("{run}");
    };
    let hit = &run["faults"][0]["packets"][0];
    let psn = &hit["psn"];
    for (key, value) in [
        ("load", "flow"),
        ("host", "h0"),
        ("service", "rc"),
        ("gid", "10.0.0.1"),
        ("status", "retry-exceeded"),
        ("cause", "retries-exceeded"),
    ] {
        assert_eq!(failure[key], value, "{key}");
    }
    assert_eq!(&failure["psn"], psn);
    assert_eq!(failure["peer"]["qp"], hit["qp"]);
    let request = &failure["request"];
    assert_eq!(
        (&request["operation"], &request["number"], &request["wr_id"]),
        (&"WRITE".into(), &1.into(), &0.into())
    );
    assert_eq!(request["bytes"], 20 << 10);
    assert_eq!(failure["flushed_sends"]["count"], 1);
    assert_eq!(failure["flushed_sends"]["first_wr_id"], 1);
    // 4.096 us x 2^8.
    let timers: Vec<_> = failure["tries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|t| t["what"] == "timeout")
        .map(|t| t["span_ps"].as_u64().unwrap())
        .collect();
    assert_eq!(timers, [1_048_576_000]);
    assert_eq!(failure["counters"]["packet_seq_err"], 1);
    let lost: Vec<_> = failure["lost"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| {
            assert_eq!((&l["psn"], &l["what"]), (psn, &"request".into()));
            assert_eq!((&l["link"], &l["fault"]), (&"h0->h1".into(), &"cut".into()));
            l["round"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(lost, [1, 2]);
    let line = failure["line"].as_str().unwrap();
    let told = format!("PSN {psn} lost on h0->h1 in rounds 1, 2 (fault cut)");
    assert!(line.starts_with("WRITE #1 (wr_id 0) of qp "), "{line}");
    assert!(line.contains("retry_cnt 1 used up"), "{line}");
    assert!(line.ends_with(&told), "{line}");
    let shown = prints(&["run", path], 0);
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn every_fault_that_takes_packets_away_is_named() {
    for (action, why) in [
        ("drop", "fault cut"),
        ("corrupt", "bad FCS by fault cut"),
        ("corrupt-device", "bad ICRC by fault cut"),
    ] {
        // Copies of damaged packets are damaged too; those of dropped ones would get through.
        let twice = match action {
            "drop" => "mark-ecn",
            _ => "duplicate",
        };
        let fault = |name: &str, action: &str| {
            format!(
                "[[fault]]\nname = \"{name}\"\nlink = \"h0->h1\"\nkind = \"exact\"\naction = \"{action}\"\n"
            )
        };
        let (_dir, path) = file(format!(
            "{ONE}{}{}[card]\ntimeout = 8\nretry-count = 1\n",
            fault("twice", twice),
            fault("cut", action)
        ));
        let run = &json(&["run", path.to_str().unwrap(), "--json"], 0)["reports"][0]["runs"][0];
        let failure = &run["failures"][0];
        let line = failure["line"].as_str().unwrap();
        assert!(line.ends_with(&format!("({why})")), "{line}");
        for lost in failure["lost"].as_array().unwrap() {
            assert_eq!(lost["fault"], "cut", "{action}");
        }
    }
}

#[test]
fn packets_that_a_card_refuses_are_told_by_cause() {
    let datagrams = "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nname = \"flow\"\nfrom = \"h0\"\n\
                     to = \"h1\"\noperation = \"send\"\nsize = \"1KiB\"\ntransport = \"ud\"\ncount = 5\n";
    let damage = "[[fault]]\nlink = \"h0->h1\"\nkind = \"exact\"\naction = \"corrupt-device\"\n";
    for (content, cause) in [
        (format!("{datagrams}mistake = \"qkey\"\n"), "bad-qkey"),
        (format!("{datagrams}recv-depth = 0\n"), "receiver-not-ready"),
        (format!("{datagrams}{damage}"), "bad-icrc"),
    ] {
        let (_dir, path) = file(content);
        let path = path.to_str().unwrap();
        let run = &json(&["run", path, "--json"], 0)["reports"][0]["runs"][0];
        let [sender, receiver] = &run["hosts"].as_array().unwrap()[..] else {
            panic!("{run}");
        };
        assert_eq!(sender["refused"].as_object().unwrap().len(), 0);
        assert_eq!(receiver["refused"][cause], 5, "{receiver}");
        let shown = prints(&["run", path, "--details"], 0);
        let others = shown.contains(&format!("5 {cause}"));
        assert_eq!(others, cause != "bad-icrc", "{shown}");
    }
}

#[test]
fn many_failures_are_shown_in_part() {
    let cut = "[[fault]]\nname = \"cut\"\nlink = \"h0->h1\"\nkind = \"exact\"\n";
    let (_dir, path) = file(format!(
        "{ONE}qps = 120\n{cut}[card]\ntimeout = 8\nretry-count = 0\n"
    ));
    let path = path.to_str().unwrap();
    let run = &json(&["run", path, "--json"], 0)["reports"][0]["runs"][0];
    assert_eq!(run["failures"].as_array().unwrap().len(), 100);
    assert_eq!(run["more_failures"], 20);
    let shown = prints(&["run", path], 0);
    assert_eq!(shown.matches(" used up at PSN ").count(), 20);
    for rest in [
        "  ... and 80 more in the list of --json: 80 retries-exceeded of ",
        "\n  ... and 20 that are in no list\n",
    ] {
        assert!(shown.contains(rest), "{shown}");
    }
}
