//! `softroce perf`: in virtual time, and as two processes.
#![cfg(target_os = "linux")]

mod common;

use common::{softroce, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn perf(args: &[&str]) -> Output {
    softroce(&[&["perf"], args].concat())
}

/// What it measures in virtual time, with these options.
#[track_caller]
fn sim(args: &[&str]) -> Value {
    let out = perf(&[args, &["-d", "sim:two-hosts", "--json"]].concat());
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{args:?}: {err}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn bandwidth(report: &Value) -> f64 {
    let b = &report["sizes"][0]["bandwidth"]["average_bytes_per_second"];
    b.as_f64().unwrap() * 8.0
}

/// A packet on the wire: preamble, Ethernet, IPv4, UDP, BTH, ICRC, FCS and gap are 8 + 14 + 20 + 8 + 12 + 4 +
/// 4 + 12 bytes.
const AROUND: f64 = 82.0;

#[test]
fn bandwidth_is_that_of_the_link() {
    // 64 packets of 1024 bytes, one of them with a RETH of 16 bytes.
    let write = 65536.0 / (65536.0 + 64.0 * AROUND + 16.0) * 100e9;
    let send = 65536.0 / (65536.0 + 64.0 * AROUND) * 100e9;
    // Of 64 READ responses the first and the last have an AETH of 4 bytes.
    let read = 65536.0 / (65536.0 + 64.0 * AROUND + 8.0) * 100e9;
    for (test, most) in [("write-bw", write), ("send-bw", send), ("read-bw", read)] {
        let report = sim(&[test, "-n", "400", "-m", "1024", "--verify"]);
        let found = bandwidth(&report);
        // From the first request to the last completion is a round trip and a poll, 1.2 us of 2.2 ms, more.
        assert!(
            found < most && found > 0.998 * most,
            "{test}: {found} of {most}"
        );
        let row = &report["sizes"][0];
        assert_eq!(
            (&row["bytes"], &row["iterations"]),
            (&65536.into(), &400.into())
        );
        assert!(row["verified"].as_u64().unwrap() >= 128, "{test}: {row}");
        for card in report["counters"].as_array().unwrap() {
            assert_eq!(card["retransmitted_packets"], 0, "{test}: {card}");
        }
        // Both directions at once carry twice as much, but for the acknowledgements.
        if test != "read-bw" {
            let report = sim(&[test, "-n", "400", "-m", "1024", "-b", "--verify"]);
            let both = bandwidth(&report);
            assert!(
                both > 1.95 * found && both < 2.0 * most,
                "{test}: {both} of {found}"
            );
        }
    }
}

#[test]
fn latency_is_that_of_the_link() {
    // A packet with `data` bytes beyond BTH takes its 82 bytes and those at 100 Gb/s, and 500 ns.
    let way = |data: f64| (AROUND + data) * 0.08 + 500.0;
    for (test, size, least) in [
        ("send-lat", "64", way(64.0)),
        ("write-lat", "64", way(16.0 + 64.0)),
        // There with a RETH or an AtomicETH of 28 bytes, back with an AETH and the data.
        ("read-lat", "64", way(16.0) + way(4.0 + 64.0)),
        ("atomic-lat", "8", way(28.0) + way(4.0 + 8.0)),
    ] {
        let report = sim(&[test, "-n", "200", "-s", size, "--verify"]);
        let latency = &report["sizes"][0]["latency_ns"];
        for which in ["min", "typical", "average", "p99"] {
            let found = latency[which].as_f64().unwrap();
            // It is looked for every 100 ns, and times are in whole nanoseconds.
            assert!(
                found > least - 2.0 && found < least + 102.0,
                "{test} {which}: {found}, not {least}"
            );
        }
        assert!(
            report["sizes"][0]["verified"].as_u64().unwrap() >= 200,
            "{report}"
        );
    }
}

#[test]
fn atomics_add_up_and_every_service_delivers() {
    for kind in ["FETCH_AND_ADD", "CMP_AND_SWAP"] {
        let report = sim(&[
            "atomic-bw",
            "-n",
            "300",
            "--atomic_type",
            kind,
            "-q",
            "3",
            "--verify",
        ]);
        // Each of 900 is looked at where it was asked for, and what is left of each queue pair.
        assert_eq!(report["sizes"][0]["iterations"], 900);
        assert!(report["sizes"][0]["verified"].as_u64().unwrap() >= 900);
    }
    for (test, service) in [
        ("send-bw", "UC"),
        ("send-bw", "UD"),
        ("write-bw", "UC"),
        ("send-lat", "UD"),
        ("send-lat", "UC"),
        ("write-lat", "UC"),
    ] {
        let args = [
            test, "-c", service, "-n", "300", "-s", "1000", "-r", "1000", "-m", "1024",
        ];
        let report = sim(&[&args[..], &["--verify"]].concat());
        let row = &report["sizes"][0];
        assert_eq!(row["lost"], 0, "{test} {service}: {row}");
        assert!(
            row["verified"].as_u64().unwrap() >= 128,
            "{test} {service}: {row}"
        );
    }
}

#[test]
fn lists_of_requests_carry_the_same_data() {
    for args in [
        &["write-bw", "-n", "400", "-l", "10"][..],
        &["write-bw", "-n", "400", "-l", "100", "-Q", "20", "-b"],
        &["send-bw", "-n", "400", "-l", "16", "-q", "3", "-s", "300"],
        &[
            "send-bw", "-n", "400", "-l", "8", "-s", "64", "-I", "64", "-c", "UD", "-r", "400",
        ],
        &["read-bw", "-n", "400", "-l", "40", "-s", "4096"],
        &["atomic-bw", "-n", "300", "-l", "30", "-q", "3"],
    ] {
        let report = sim(&[args, &["--verify"]].concat());
        let row = &report["sizes"][0];
        let each: u64 = args[2].parse().unwrap();
        let qps = if args.contains(&"-q") { 3 } else { 1 };
        assert_eq!(row["iterations"], each * qps, "{args:?}");
        assert_eq!(row["lost"], 0, "{args:?}");
        assert!(row["verified"].as_u64().unwrap() >= 128, "{args:?}: {row}");
    }
    // For a time: it ends behind a list.
    let report = sim(&[
        "send-bw",
        "-D",
        "1",
        "-l",
        "7",
        "-s",
        "4096",
        "--set",
        "link.rate=10Mbps",
        "-u",
        "20",
    ]);
    let sent = report["sizes"][0]["iterations"].as_u64().unwrap();
    assert!(sent > 0 && sent.is_multiple_of(7), "{sent}");
}

/// Of a list as long as the queue the last request completes, and only then is there room for the next.
#[test]
fn a_list_goes_when_there_is_room_for_all_of_it() {
    let report = sim(&[
        "write-bw", "-n", "256", "-s", "4096", "-m", "4096", "-t", "8", "-l", "8",
    ]);
    let packet = (4096.0 + 16.0 + AROUND) * 0.08;
    let answer = (4.0 + AROUND) * 0.08;
    // There and back it is 500 ns each; a completion is found at most one poll, 100 ns, late.
    let least = 8.0 * packet + 500.0 + answer + 500.0;
    let found = 8.0 * 4096.0 * 8.0 / bandwidth(&report) * 1e9;
    assert!(
        found > least - 2.0 && found < least + 102.0,
        "{found} ns for a list, not {least}"
    );
}

#[test]
fn virtual_time_gives_the_same_bytes_twice() {
    for args in [
        &["write-bw", "-n", "100", "--set", "link.loss=0.01"][..],
        &["send-bw", "-n", "50", "-s", "4096", "-q", "3", "-b"],
        &["send-lat", "-n", "100"],
    ] {
        let all = [args, &["-d", "sim:two-hosts", "-u", "4", "--json"]].concat();
        let (one, two) = (perf(&all), perf(&all));
        assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
        assert_eq!(text(&one.stdout), text(&two.stdout));
    }
}

#[test]
fn all_sizes_are_powers_of_two() {
    let report = sim(&["write-lat", "-a", "-n", "2"]);
    let sizes = report["sizes"].as_array().unwrap().iter();
    let sizes: Vec<u64> = sizes.map(|r| r["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, (1..=23).map(|n| 1 << n).collect::<Vec<u64>>());
    let report = sim(&["send-bw", "-a", "-c", "UD", "-n", "20", "-m", "2048"]);
    assert_eq!(
        report["sizes"].as_array().unwrap().last().unwrap()["bytes"],
        2048
    );
}

/// Two processes.
struct Pair {
    server: Child,
    client: Child,
}

impl Pair {
    fn start(args: &[&str]) -> Pair {
        // Free a moment ago, and not given out again so soon.
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port().to_string();
        drop(probe);
        let start = |more: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_softroce"))
                .arg("perf")
                .args(args)
                .args(["-p", &port])
                .args(more)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        Pair {
            server: start(&[]),
            client: start(&["127.0.0.1"]),
        }
    }

    fn finish(self) -> [Output; 2] {
        [finish(self.client), finish(self.server)]
    }
}

/// The end of a process, which has to come by itself.
fn finish(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("still running after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[track_caller]
fn both(args: &[&str]) -> [Value; 2] {
    Pair::start(&[args, &["--json"]].concat())
        .finish()
        .map(|out| {
            let err = text(&out.stderr);
            assert_eq!(out.status.code(), Some(0), "{args:?}: {err}");
            serde_json::from_slice(&out.stdout).unwrap()
        })
}

#[test]
fn two_processes_measure_every_operation() {
    for test in ["send", "write", "read", "atomic"] {
        for kind in ["bw", "lat"] {
            let name = format!("{test}-{kind}");
            let [client, server] = both(&[&name, "-n", "200", "--verify"]);
            assert_eq!(
                (&client["role"], &server["role"]),
                (&"client".into(), &"server".into())
            );
            assert_eq!(client["sizes"][0], server["sizes"][0], "{name}");
            let row = &client["sizes"][0];
            assert_eq!(row["iterations"], 200, "{name}");
            assert!(row["verified"].as_u64().unwrap() >= 1, "{name}: {row}");
            assert_eq!(client["error"], Value::Null);
        }
    }
}

#[test]
fn a_duration_and_inline_data() {
    let [client, _] = both(&[
        "send-bw", "-D", "1", "-s", "200", "-I", "200", "-b", "--verify",
    ]);
    let seconds = client["sizes"][0]["bandwidth"]["seconds"].as_f64().unwrap();
    assert!((1.0..3.0).contains(&seconds), "{seconds}");
}

#[test]
fn losses_are_made_good_and_counted() {
    for test in ["send-bw", "write-bw", "read-bw", "atomic-bw"] {
        let args = [
            test, "-n", "3000", "-s", "4096", "-m", "1024", "--verify", "-u", "10", "--seed", "5",
        ];
        let args = match test {
            "atomic-bw" => [&args[..3], &args[5..]].concat(),
            _ => args.to_vec(),
        };
        let reports = both(&[&args[..], &["--loss", "0.1%"]].concat());
        let sum = |name: &str| -> u64 {
            let counters = reports
                .iter()
                .map(|r| r["counters"][0][name].as_u64().unwrap());
            counters.sum()
        };
        assert!(sum("dropped_on_purpose") > 0, "{test}");
        assert!(sum("retransmitted_packets") > 0, "{test}");
        assert!(reports[0]["sizes"][0]["verified"].as_u64().unwrap() > 0);
    }
}

#[test]
fn faults_of_a_file_happen_on_a_software_card() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("faults.toml");
    let faults = r#"
        [[fault]]
        kind = "every"
        every = 50
        packets = "data"
        action = "mark-ecn"
        [[fault]]
        kind = "every"
        every = 70
        packets = "data"
        action = "corrupt-device"
        [[fault]]
        kind = "burst"
        enter = 0.001
        leave = 0.5
        [[fault]]
        kind = "every"
        every = 90
        packets = "data"
        action = "duplicate"
        by = "50us"
    "#;
    std::fs::write(&file, faults).unwrap();
    let args = [
        "write-bw",
        "-n",
        "1000",
        "-s",
        "4096",
        "-m",
        "1024",
        "--verify",
        "-u",
        "10",
        "--seed",
        "5",
        "--congestion-control",
        "dcqcn",
        "--faults",
    ];
    let [client, server] = both(&[&args[..], &[file.to_str().unwrap()]].concat());
    assert_eq!(client["error"], Value::Null);
    assert!(client["sizes"][0]["verified"].as_u64().unwrap() > 0);
    let count = |report: &Value, name: &str| report["counters"][0][name].as_u64().unwrap();
    assert!(count(&client, "retransmitted_packets") > 0);
    assert!(count(&client, "dropped_on_purpose") > 0);
    assert!(count(&server, "duplicate_requests") > 0);
    // One in fifty of four thousand, but for those that are lost after all.
    let marked = count(&server, "ecn_marked");
    assert!((60..).contains(&marked), "{marked}");
    assert!(count(&client, "cnps_received") > 0);
}

#[test]
fn a_rate_is_the_most_that_is_sent() {
    let [client, _] = both(&[
        "write-bw", "-n", "300", "-s", "65536", "-m", "4096", "--rate", "400Mbps",
    ]);
    let row = &client["sizes"][0]["bandwidth"];
    let seconds = row["seconds"].as_f64().unwrap();
    let bits = 300.0 * 65536.0 * 8.0;
    assert!(bits / seconds < 400e6, "{row}");
}

#[test]
fn who_is_left_alone_says_so() {
    for test in ["write-bw", "send-bw", "send-lat", "write-lat", "read-lat"] {
        for kills_server in [false, true] {
            let pair = Pair::start(&[test, "-D", "300"]);
            std::thread::sleep(Duration::from_millis(1500));
            let (mut killed, left) = match kills_server {
                true => (pair.server, pair.client),
                false => (pair.client, pair.server),
            };
            assert!(killed.try_wait().unwrap().is_none(), "{test}: ended before");
            killed.kill().unwrap();
            killed.wait().unwrap();
            let start = Instant::now();
            let out = finish(left);
            let err = text(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "{test}: {err}");
            assert!(start.elapsed() < Duration::from_secs(10), "{test}: {err}");
            assert!(
                err.contains("it has ended")
                    || err.contains("retry-exc-err")
                    || err.contains("reset"),
                "{test}: {err}"
            );
        }
    }
}

#[test]
fn who_hears_nothing_says_so() {
    for stops_server in [false, true] {
        let pair = Pair::start(&["write-bw", "-D", "300", "--wait", "3"]);
        std::thread::sleep(Duration::from_millis(1500));
        let (mut stopped, left) = match stops_server {
            true => (pair.server, pair.client),
            false => (pair.client, pair.server),
        };
        let id = stopped.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-STOP", &id])
                .status()
                .unwrap()
                .success()
        );
        let out = finish(left);
        stopped.kill().unwrap();
        stopped.wait().unwrap();
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{err}");
        assert!(
            err.contains("nothing has come from the peer for 3 s")
                || err.contains("retry-exc-err (status 12)"),
            "{err}"
        );
    }
}

#[test]
fn ends_that_are_not_alike_do_not_measure() {
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port().to_string();
    drop(probe);
    let server = std::thread::spawn({
        let port = port.clone();
        move || perf(&["write-bw", "-s", "100", "-p", &port])
    });
    let client = perf(&["write-bw", "-s", "200", "-p", &port, "127.0.0.1"]);
    let err = text(&client.stderr);
    assert_eq!(client.status.code(), Some(1));
    assert!(
        err.contains("--size: this end has 200, the peer 100"),
        "{err}"
    );
    let server = server.join().unwrap();
    assert_eq!(server.status.code(), Some(1));
    assert!(text(&server.stderr).contains("--size: this end has 100"));
}

#[test]
fn what_is_not_supported_is_refused() {
    for (args, named) in [
        (&["write-bw", "-c", "UD"][..], "RDMA_Write"),
        (&["read-lat", "-c", "UC"], "RDMA_Read"),
        (&["atomic-bw", "-s", "16"], "8 bytes"),
        (&["atomic-bw", "-a"], "8 bytes"),
        (&["send-lat", "-q", "2"], "--qp 2"),
        (&["send-lat", "-b"], "--bidirectional"),
        (&["read-bw", "-I", "8"], "--inline_size 8"),
        (&["write-bw", "-m", "1500"], "1500"),
        (&["write-bw", "-t", "4", "-Q", "5"], "--cq-mod 5"),
        (&["send-lat", "-l", "2"], "--post-list 2 is for bandwidth"),
        (&["write-bw", "-l", "200"], "--tx-depth 128"),
        (&["write-bw", "-l", "10", "-Q", "4"], "--cq-mod 4"),
        (&["write-bw", "-l", "16", "-n", "100"], "--iters 100"),
        (&["write-bw", "-l", "0"], "--post-list"),
        (
            &["write-bw", "-d", "sim:two-hosts@h1,h1"],
            "client and server are both on h1",
        ),
        (&["write-bw", "-p", "0", "127.0.0.1"], "--port 0"),
        (&["write-bw", "-x", "1"], "--gid-index 1"),
        (&["write-bw", "-R"], "-R"),
        (&["write-bw", "-s", "0"], "0"),
        (&["write-bw", "--loss", "2"], "--loss"),
        (
            &["write-bw", "--loss", "1%", "-d", "sim:two-hosts"],
            "link.loss",
        ),
        (&["send-bw", "-c", "UD", "-s", "4", "--verify"], "8 bytes"),
        (&["write-bw", "--set", "link.loss=1"], "softroce0 is none"),
        (&["write-bw", "--faults", "no-such.toml"], "no-such.toml"),
        (&["write-bw", "--rate", "0"], "0"),
        (
            &["write-bw", "--rate", "1Gbps", "-d", "sim:two-hosts"],
            "link.rate",
        ),
        (
            &["write-bw", "--faults", "f.toml", "-d", "sim:two-hosts"],
            "[[fault]]",
        ),
        (&["write-bw", "-d", "nothing0"], "nothing0"),
        (&["fly-bw"], "fly-bw"),
    ] {
        let out = perf(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(
            text(&out.stderr).contains(named),
            "{args:?}: {}",
            text(&out.stderr)
        );
    }
    // Seven messages of 8 MiB and their margins are what fits into 64 MiB.
    let large = [
        "write-bw", "-s", "8388608", "-l", "8", "-n", "8", "--verify",
    ];
    for (args, told) in [
        (&["send-bw", "-c", "UD", "-s", "5000"][..], "--size 5000"),
        (
            &large,
            "--post-list 8: with --verify a queue pair has at most 7 requests",
        ),
    ] {
        let out = perf(&[args, &["-d", "sim:two-hosts"]].concat());
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}");
        assert!(err.contains(told), "{args:?}: {err}");
    }
}

/// The system chooses a server's port, and the server tells it.
#[test]
fn port_0_is_one_that_is_told() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_softroce"))
        .args(["perf", "send-lat", "-n", "10", "-p", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut told = BufReader::new(server.stderr.take().unwrap());
    told.read_line(&mut line).unwrap();
    let port = line
        .trim_end()
        .strip_prefix("softroce: perf: waiting for a client on TCP 0.0.0.0:");
    let client = perf(&[
        "send-lat",
        "-n",
        "10",
        "-p",
        port.expect(&line),
        "127.0.0.1",
    ]);
    assert_eq!(client.status.code(), Some(0), "{}", text(&client.stderr));
    // Whoever finds the server at once need not wait for it.
    assert!(!text(&client.stderr).contains("waiting for a server"));
    assert_eq!(finish(server).status.code(), Some(0));
}

#[test]
fn a_client_without_a_server_says_what_it_waits_for_and_prints_no_table() {
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port().to_string();
    drop(probe);
    let start = Instant::now();
    let out = perf(&["send-lat", "-p", &port, "--wait", "1", "127.0.0.1"]);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(text(&out.stdout), "");
    let err: Vec<&str> = text(&out.stderr).lines().collect();
    let waits = format!(
        "softroce: perf: waiting for a server at 127.0.0.1:{port} for at most 1 s (--wait)"
    );
    assert_eq!((err.len(), err[0]), (2, waits.as_str()), "{err:?}");
    let fails = format!(
        "softroce: perf: client: connecting to 127.0.0.1:{port}: nobody listened there for 1 s: Connection refused"
    );
    assert!(err[1].starts_with(&fails), "{err:?}");
}
