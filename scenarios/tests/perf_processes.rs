//! `softroce perf` as two processes.
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
        .strip_prefix("softroce: perf: waiting for a client on TCP 127.0.0.1:");
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
