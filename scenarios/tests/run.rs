//! Scenarios run by the built program: the library holds, results repeat to the byte, captures and
//! reports are where they are said to be.

mod common;

use common::{file, first_run, softroce, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// What it prints, if it exits with `code`.
#[track_caller]
fn prints(args: &[&str], code: i32) -> String {
    let out = softroce(args);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    text(&out.stdout).to_string()
}

/// What it complains of, exiting with 2 and printing nothing.
#[track_caller]
fn complains(args: &[&str]) -> String {
    let out = softroce(args);
    assert_eq!(out.status.code(), Some(2), "{args:?}");
    assert_eq!(text(&out.stdout), "", "{args:?}");
    text(&out.stderr).to_string()
}

fn json(args: &[&str], code: i32) -> Value {
    serde_json::from_str(&prints(args, code)).unwrap()
}

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

/// One message of twenty packets, of which the rest of the file loses some.
const ONE: &str = "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nname = \"flow\"\nfrom = \"h0\"\n\
                   to = \"h1\"\noperation = \"write\"\nsize = \"20KiB\"\n";

const EXACT: &str = "[[fault]]\nname = \"third\"\nlink = \"h0->h1\"\nkind = \"exact\"\n\
                     traffic = \"flow\"\npsn-offset = 2\ncopy = 1\n";

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
fn go_back_0_lives_without_progress() {
    let args = ["run", "livelock", "--json", "--set", "link.delay=1us"];
    let report = json(&args, 0);
    let runs = &report["reports"][0]["runs"];
    assert_eq!(runs[0]["traffic"][0]["goodput_bps"], 0);
    assert!(runs[1]["traffic"][0]["goodput_bps"].as_u64().unwrap() > 30_000_000_000);
    for n in 0..2 {
        let link = &runs[n]["links"][0];
        assert!(link["utilisation"].as_f64().unwrap() > 0.95, "{link}");
    }
}

#[test]
fn the_loss_cliff_follows_the_law() {
    let args = ["run", "loss-cliff", "--set", "card.timeout=4"];
    let shown = prints(&args, 0);
    assert!(shown.ends_with("held: 37 of 37 expectations\n"), "{shown}");
    assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
    // A table with the law beside the measured.
    let head = shown.lines().find(|l| l.contains("share")).unwrap();
    let columns: Vec<_> = head.split_whitespace().collect();
    let of = |name| columns.iter().position(|c| *c == name).unwrap();
    let mut rows = shown
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    let cells = rows.find(|c| c.starts_with(&["h0-h1", "0.01"])).unwrap();
    let number = |name| cells[of(name)].parse::<f64>().unwrap();
    assert!(
        (number("share") / number("law") - 1.0).abs() < 0.1,
        "{cells:?}"
    );
    assert!(number("share") < 0.4, "{cells:?}");
}

#[test]
fn the_reaction_time_is_what_makes_loss_expensive() {
    // Too short for its own expectations, but no doubt is left of what costs more.
    let out = softroce(&["run", "loss-reaction", "--json", "--set", "stop=60ms"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let kept = |n: usize| {
        let load = &report["reports"][0]["runs"][n]["traffic"][0];
        let bps = |key: &str| load[key].as_f64().unwrap();
        bps("goodput_bps") / bps("clean_goodput_bps")
    };
    let shares: Vec<f64> = (0..5).map(kept).collect();
    assert!(shares[0] > 0.95 && shares[1] > 0.8, "{shares:?}");
    assert!(shares[2..].iter().all(|&s| s < 0.65), "{shares:?}");
}

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
fn an_expectation_that_fails_is_told_and_exits_with_1() {
    let expect = "[[expect]]\nmetric = \"goodput\"\nof = \"flow\"\nat-least = \"100Gbps\"\n\
                  because = \"it is fast\"\n";
    let (_dir, path) = file(format!("{ONE}{expect}"));
    let path = path.to_str().unwrap();
    let shown = prints(&["run", path], 1);
    assert!(shown.contains("FAILED  goodput of flow is "), "{shown}");
    assert!(shown.contains("because it is fast"), "{shown}");
    assert!(shown.ends_with("FAILED: 1 of 1 expectations\n"), "{shown}");
    assert_eq!(
        json(&["run", path, "--json"], 1)["reports"][0]["held"],
        false
    );
    // One that fails among others that hold is the exit code of all.
    prints(&["run", path, "two-hosts"], 1);
    prints(&["run", "two-hosts", path], 1);
    prints(&["sweep", path, "--set", "link.rate=1Gbps,10Gbps"], 1);
}

#[test]
fn a_run_is_given_up_at_the_event_limit() {
    let (_dir, path) = file(ONE);
    let path = path.to_str().unwrap();
    let shown = prints(&["run", path, "--set", "event-limit=10"], 1);
    assert!(
        shown.contains("until the EVENT LIMIT: 10 events"),
        "{shown}"
    );
    assert!(shown.contains("FAILED: 1 of 1 runs given up at the event limit"));
    let shown = prints(&["run", path, "--set", "stop=1us"], 0);
    assert!(shown.contains("ran for 1us until its stop time"), "{shown}");
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

#[test]
fn a_sweep_prints_a_table_of_loss() {
    let args = [
        "sweep",
        "two-hosts",
        "--set",
        "link.loss=0,50%",
        "--set",
        "card.timeout=1",
    ];
    let shown = prints(&args, 1);
    let rows: Vec<_> = shown.lines().collect();
    assert_eq!(rows.len(), 3 + 2, "{shown}");
    assert!(rows[3].trim_start().starts_with("0 ") && rows[3].ends_with("held"));
    assert!(rows[4].trim_start().starts_with("50% ") && rows[4].ends_with("FAILED"));
    let csv = prints(&[&args[..], &["--csv"]].concat(), 1);
    assert!(
        csv.starts_with("link.loss,send.goodput (bits-per-second),"),
        "{csv}"
    );
    // The loss of a link is an injector for each direction, by name.
    let report = json(&[&args[..], &["--json"]].concat(), 1);
    let faults = report["reports"][0]["runs"][1]["faults"]
        .as_array()
        .unwrap();
    let names: Vec<_> = faults.iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["loss:h0->h1", "loss:h1->h0"]);
    assert!(faults[0]["hits"].as_u64().unwrap() > 0 && faults[0]["seen"].as_u64().unwrap() > 4);
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
fn every_kind_of_address_carries_a_run() {
    for gid in ["ipv4", "ipv6", "rocev1"] {
        let set = format!("card.gid={gid}");
        prints(&["run", "two-hosts", "--set", &set], 0);
    }
    // A tree, with four ways between its far ends.
    let tree = "[topology]\nkind = \"fat-tree\"\n[[traffic]]\nname = \"flow\"\nfrom = [\"h0\", \"h1\"]\n\
                to = [\"h14\", \"h15\"]\noperation = \"send\"\nsize = \"10KiB\"\nqps = 2\ncount = 3\n\
                [[expect]]\nmetric = \"completions.success\"\nequals = 24\n\
                [[expect]]\nmetric = \"receives.success\"\nequals = 24\n";
    let (_dir, path) = file(tree);
    prints(&["run", path.to_str().unwrap()], 0);
}

/// As in `softroce run two-hosts | true`.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = Command::new(env!("CARGO_BIN_EXE_softroce"))
        .args(["run", "two-hosts"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(text(&out.stderr), "");
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
fn loads_that_take_too_much_memory_are_refused() {
    let load = "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
                operation = \"write\"\nsize = \"512MiB\"\n";
    let (_dir, path) = file(load);
    let path = path.to_str().unwrap();
    prints(&["check", path], 0);
    let told = complains(&["check", path, "--set", "traffic.0.size=2GiB"]);
    assert!(
        told.contains("the loads register 4GiB of memory, both ends together; the limit is 1GiB"),
        "{told}"
    );
    // A counted payload takes no memory, but queue pairs do.
    let (topology, load) = load.split_at(load.find("[[traffic]]").unwrap());
    let loads = format!("{load}qps = 65536\n").repeat(3);
    let (_dir, path) = file(format!("payload = \"counted\"\n{topology}{loads}"));
    let told = complains(&["check", path.to_str().unwrap()]);
    assert!(
        told.contains("makes 196608 queue pairs in all; the limit is 131072"),
        "{told}"
    );
}

#[test]
fn a_depth_that_cannot_be_read_is_told_once() {
    let (_dir, path) = file(
        "[topology]\nkind = \"back-to-back\"\n[[traffic]]\nfrom = \"h0\"\nto = \"h1\"\n\
         operation = \"write\"\nsize = 1\ndepth = \"many\"\n",
    );
    let told = complains(&["check", path.to_str().unwrap()]);
    assert!(
        told.contains("depth") && !told.contains("signalled-every"),
        "{told}"
    );
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
fn a_list_of_flows_that_is_none_is_called_that() {
    let (dir, path) = file(
        "[topology]\nkind = \"star\"\nhosts = 2\n[[traffic]]\nname = \"listed\"\npattern = \"file\"\n\
         operation = \"write\"\nflows = \"folder\"\n",
    );
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    std::fs::write(dir.path().join("binary"), b"h0,h1,\xff").unwrap();
    let path = path.to_str().unwrap();
    let told = complains(&["check", path]);
    assert!(
        told.contains("is a directory; a list of flows in CSV is a file"),
        "{told}"
    );
    let told = complains(&["check", path, "--set", "traffic.listed.flows=binary"]);
    assert!(
        told.contains("byte 0xff is not UTF-8, which a list of flows in CSV must be"),
        "{told}"
    );
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

/// Over services without acknowledgements what was delivered is what came whole, not what was sent.
#[test]
fn goodput_of_unreliable_services_is_what_came() {
    for (keys, lost) in [
        ("transport = \"uc\"\noperation = \"write\"", true),
        ("transport = \"uc\"\noperation = \"write-imm\"", true),
        ("transport = \"uc\"\noperation = \"send\"", true),
        ("transport = \"ud\"\noperation = \"send\"", true),
        ("transport = \"rc\"\noperation = \"send\"", false),
    ] {
        // Two send what one link takes, and a queue holds next to nothing of the rest.
        let content = |queue: &str| {
            format!(
                "sample = \"20us\"\npayload = \"counted\"\n[topology]\nkind = \"star\"\nhosts = 3\n[switch]\n\
                 queue = \"{queue}\"\n[[traffic]]\nname = \"a\"\nfrom = [\"h1\", \"h2\"]\nto = \"h0\"\n\
                 size = \"1KiB\"\ncount = 2000\nrecv-depth = 4000\n{keys}\n"
            )
            .replace("recv-depth = 4000\n", if keys.ends_with("\"write\"") { "" } else { "recv-depth = 4000\n" })
        };
        let (dir, path) = common::file(content("20KB"));
        let out = dir.path().join("out");
        let args = [
            "run",
            path.to_str().unwrap(),
            "--json",
            "--out",
            out.to_str().unwrap(),
        ];
        let run = common::first_run(&softroce(&args).stdout);
        let load = &run["traffic"][0];
        let links = run["links"].as_array().unwrap().iter();
        let drops: u64 = links.map(|l| l["drops"]["queue"].as_u64().unwrap()).sum();
        let bytes = load["bytes"].as_u64().unwrap();
        assert_eq!(drops > 0, lost, "{keys}");
        if lost {
            assert_eq!(bytes, (4000 - drops) * 1024, "{keys}");
        } else {
            assert_eq!(bytes, 4000 * 1024, "{keys}");
        }
        assert_eq!(load["messages"], 4000, "{keys}");
        // One link is what there is, whether what came waited or not.
        for queue in ["20KB", "10MB"] {
            let run = common::run(&content(queue), &[]);
            let goodput = run["traffic"][0]["goodput_bps"].as_u64().unwrap();
            assert!(goodput < 100_000_000_000, "{keys} {queue}: {goodput}");
            assert!(
                !lost || goodput > 80_000_000_000,
                "{keys} {queue}: {goodput}"
            );
        }
        // The files tell the same.
        let read =
            |name: &str| std::fs::read_to_string(out.join(format!("mine-{name}.csv"))).unwrap();
        let column = |table: &str, name: &str| -> Vec<u64> {
            let mut lines = table.lines().map(|l| l.split(',').collect::<Vec<_>>());
            let at = lines
                .next()
                .unwrap()
                .iter()
                .position(|c| *c == name)
                .unwrap();
            lines.map(|cells| cells[at].parse().unwrap()).collect()
        };
        let (times, rates) = (
            column(&read("series"), "time_ps"),
            column(&read("series"), "a"),
        );
        let mut before = 0;
        let sum: u128 = times
            .iter()
            .zip(rates)
            .map(|(&t, rate)| {
                let span = t - before;
                before = t;
                u128::from(rate) * u128::from(span)
            })
            .sum();
        let sum = (sum as f64 / 8e12).round();
        assert!((sum - bytes as f64).abs() < 100.0, "{keys}: {sum} {bytes}");
    }
}
