//! `softroce pingpong` as two processes.
#![cfg(target_os = "linux")]

use serde_json::Value;
use softroce_sim::wire::capture::Reader;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softroce"));
    command
        .arg("pingpong")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A server that waits for its client.
struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    port: String,
}

impl Server {
    fn start(args: &[&str]) -> Server {
        // A port that was free a moment ago; taken by someone else in between, the next is tried.
        for _ in 0..10 {
            let probe = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = probe.local_addr().unwrap().port().to_string();
            drop(probe);
            let mut child = command(&[&["-p", &port], args].concat()).spawn().unwrap();
            let mut stderr = BufReader::new(child.stderr.take().unwrap());
            let mut line = String::new();
            stderr.read_line(&mut line).unwrap();
            if line.contains("waiting for a client on TCP 127.0.0.1:") {
                return Server {
                    child,
                    stderr,
                    port,
                };
            }
            child.wait().unwrap();
            assert!(line.contains("in use"), "{line}");
        }
        panic!("no port is free");
    }

    fn finish(mut self, limit: Duration) -> (i32, String, String) {
        wait(&mut self.child, limit);
        let output = self.child.wait_with_output().unwrap();
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        (code(&output), text(&output.stdout), stderr)
    }
}

/// Waits for the end of a process, and kills it if it does not come.
fn wait(child: &mut Child, limit: Duration) {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > limit {
            child.kill().unwrap();
            panic!("still running after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("ended by a signal")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A client, run to its end.
fn client(server: &Server, args: &[&str]) -> (i32, String, String) {
    let args = [&["-p", &server.port, "127.0.0.1"], args].concat();
    let mut child = command(&args).spawn().unwrap();
    wait(&mut child, Duration::from_secs(60));
    let output = child.wait_with_output().unwrap();
    (code(&output), text(&output.stdout), text(&output.stderr))
}

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn two_processes_exchange_every_operation() {
    let server = Server::start(&["-n", "100", "-c"]);
    let ran = client(&server, &["-n", "100", "-c"]);
    let served = server.finish(LIMIT);
    for (code, out, err) in [ran, served] {
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        let mut lines = out.lines();
        for start in [
            "  local address:  LID 0x0000, QPN 0x",
            "  remote address: LID 0x0000, QPN 0x",
            "  SEND                  4096 bytes each way, data intact",
            "  SEND with immediate   4096",
            "  WRITE                 4096",
            "  WRITE with immediate  4096",
            "  READ                  4096",
            "819200 bytes in ",
            "100 iters in ",
        ] {
            let line = lines.next().unwrap_or_default();
            assert!(line.starts_with(start), "{line:?}, not {start:?}: {out}");
        }
        let counters = lines.next().unwrap_or_default();
        assert!(counters.contains(" packets sent, "), "{out}");
        // A peer of a process killed by another test may still be sending to the address.
        let rest: Vec<_> = lines.filter(|l| !l.contains("unknown-qp")).collect();
        assert!(rest.is_empty(), "{out}");
    }
}

#[test]
fn the_report_as_json_and_a_capture_of_whole_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.pcapng");
    let options = ["-n", "10", "-s", "3001", "-m", "512", "--json"];
    let server = Server::start(&options);
    let capture = ["--capture", path.to_str().unwrap()];
    let (code, out, err) = client(&server, &[&options[..], &capture].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    let served: Value = serde_json::from_str(&server.finish(LIMIT).1).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!(
        (&report["role"], &served["role"]),
        (&"client".into(), &"server".into())
    );
    assert_eq!(report["local"], served["remote"]);
    assert_eq!(report["remote"], served["local"]);
    assert_eq!(report["operations"].as_array().unwrap().len(), 5);
    assert_eq!(report["pingpong"]["iters"], 10);
    assert_eq!(report["error"], Value::Null);

    let mut frames = 0;
    for record in Reader::new(BufReader::new(File::open(&path).unwrap())).unwrap() {
        let record = record.unwrap();
        let frame = record.frame().unwrap();
        assert_eq!(frame.check(), [], "{frame:?}");
        frames += 1;
    }
    let counters = &report["counters"];
    let packets =
        counters["sent_packets"].as_u64().unwrap() + counters["received_packets"].as_u64().unwrap();
    assert_eq!(frames, packets);
}

#[test]
fn losses_are_made_good() {
    let options = ["-n", "50", "-c", "--loss", "2%", "--timeout", "11"];
    let server = Server::start(&[&options[..], &["--seed", "1"]].concat());
    let (code, out, err) = client(&server, &[&options[..], &["--seed", "2"]].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("dropped on purpose"), "{out}");
    let (code, out, err) = server.finish(LIMIT);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
}

/// A run of both ends, to its end.
fn both(args: &[&str]) -> (i32, String, String) {
    let output = command(args).output().unwrap();
    (code(&output), text(&output.stdout), text(&output.stderr))
}

#[test]
fn both_ends_run_in_a_scenarios_network_and_twice_the_same() {
    let options = ["-d", "sim:two-hosts", "-n", "20", "-c"];
    let (code, out, err) = both(&options);
    assert_eq!(code, 0, "{err}");
    for line in [
        "  SEND                  4096 bytes each way, data intact",
        "  READ                  4096 bytes each way, data intact",
    ] {
        assert!(out.lines().any(|l| l == line), "{out}");
    }
    assert!(out.contains("163840 bytes in ") && err.starts_with("virtual time "));
    assert_eq!(both(&options), (code, out, err));

    // Over a lossy link what is lost is sent again; the report is the client's.
    let lossy = ["--set", "link.loss=0.02", "--json", "--seed", "3"];
    let (code, out, err) = both(&[&options[..], &lossy].concat());
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&report["role"], &report["error"]),
        (&"client".into(), &Value::Null)
    );
    assert_eq!(report["operations"].as_array().unwrap().len(), 5);
    assert!(report["counters"]["retransmitted_packets"].as_u64() > Some(0));
    assert_eq!(report["counters"]["dropped"], 0);

    // A link that loses everything ends both.
    let (code, _, err) = both(&["-d", "sim:two-hosts", "--set", "link.loss=1"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("retry-exc-err (status 12), QPN 0x"), "{err}");
}

/// A server and a client in the middle of an endless ping-pong.
fn under_way(more: &[&str]) -> (Server, Child) {
    let options = [&["-n", "4000000000", "--wait", "2"], more].concat();
    let mut server = Server::start(&options);
    let args = [&["-p", &server.port, "127.0.0.1"], &options[..]].concat();
    let client = command(&args).spawn().unwrap();
    let mut out = BufReader::new(server.child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("READ") {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "the server has ended");
    }
    std::thread::sleep(Duration::from_millis(200));
    (server, client)
}

#[test]
fn a_killed_client_ends_the_server() {
    let (server, mut client) = under_way(&[]);
    client.kill().unwrap();
    client.wait().unwrap();
    let (code, _, err) = server.finish(Duration::from_secs(10));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("closed its connection"), "{err}");
}

#[test]
fn a_killed_server_ends_the_client() {
    let (mut server, mut client) = under_way(&[]);
    server.child.kill().unwrap();
    wait(&mut client, Duration::from_secs(10));
    let output = client.wait_with_output().unwrap();
    assert_eq!(code(&output), 1);
    let err = text(&output.stderr);
    assert!(err.contains("closed its connection"), "{err}");
    server.child.wait().unwrap();
}

#[test]
fn a_killed_peer_ends_a_request_that_no_timeout_ends() {
    for timeout in ["0", "24"] {
        let (server, mut client) = under_way(&["--timeout", timeout]);
        client.kill().unwrap();
        client.wait().unwrap();
        let (code, _, err) = server.finish(Duration::from_secs(10));
        assert_eq!(code, 1, "{err}");
        assert!(err.contains("closed its connection"), "{err}");

        let (mut server, mut client) = under_way(&["--timeout", timeout]);
        server.child.kill().unwrap();
        wait(&mut client, Duration::from_secs(10));
        let output = client.wait_with_output().unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains("closed its connection"), "{err}");
        server.child.wait().unwrap();
    }
}

#[test]
fn a_client_that_stands_still_ends_the_server() {
    let (server, mut client) = under_way(&[]);
    let id = client.id().to_string();
    let stopped = Command::new("kill").args(["-STOP", &id]).status().unwrap();
    assert!(stopped.success());
    let (code, _, err) = server.finish(Duration::from_secs(15));
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(code, 1, "{err}");
    assert!(
        err.contains("retry-exc-err (status 12), QPN 0x") || err.contains("no progress for 2 s"),
        "{err}"
    );
}

fn ended(args: &[&str]) -> Output {
    let mut child = command(args).spawn().unwrap();
    wait(&mut child, LIMIT);
    child.wait_with_output().unwrap()
}

/// One line on standard error, and exit code 2.
fn refused(args: &[&str]) -> String {
    let output = ended(args);
    let err = text(&output.stderr);
    assert_eq!(code(&output), 2, "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    err
}

#[test]
fn what_cannot_begin_says_why() {
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port().to_string();
    let taken = refused(&["-p", &port]);
    assert!(
        taken.contains(&format!("TCP 127.0.0.1:{port}: Address already in use")),
        "{taken}"
    );
    drop(probe);
    let nobody = ended(&["-p", &port, "--wait", "1", "127.0.0.1"]);
    let err = text(&nobody.stderr);
    let err: Vec<&str> = err.lines().collect();
    assert_eq!((code(&nobody), err.len()), (2, 2), "{err:?}");
    assert!(
        err[0].ends_with("for at most 1 s (--wait)")
            && err[1].contains("nobody listened there for 1 s: Connection refused"),
        "{err:?}"
    );
    let unknown = refused(&["-p", &port, "no such host"]);
    assert!(unknown.contains("cannot find no such host"), "{unknown}");
    let foreign = refused(&["-p", &port, "127.0.0.1", "--bind", "203.0.113.1"]);
    assert!(foreign.contains("203.0.113.1:4791"), "{foreign}");
    let remote = refused(&["-p", &port, "192.0.2.1"]);
    assert!(remote.contains("not on the loopback network"), "{remote}");
    for bind in ["0.0.0.0", "255.255.255.255", "::", "224.0.0.1"] {
        let err = refused(&["-p", &port, "--bind", bind]);
        assert!(
            err.contains(&format!("{bind} is no address for a card")),
            "{err}"
        );
    }
    for (args, why) in [
        (
            &["-d", "sim:two-hosts", "--loss", "1%"][..],
            "--loss is for a software card, and sim:two-hosts is none",
        ),
        (
            &["-d", "sim:two-hosts", "--capture", "x"],
            "--capture is for a software card",
        ),
        (
            &["-g", "1"],
            "--gid-idx is for a device of libibverbs, and softroce0 is none",
        ),
        (&["-d", "sim:no-such"], "no-such"),
        (&["-d", "sim:two-hosts", "127.0.0.1"], "both roles"),
        (&["-d", "sim:two-hosts@h0,h0"], "both on h0"),
        (&["-p", "0", "127.0.0.1"], "--port 0"),
        (&["-p", &port, "-d", "no-such-device"], "no-such-device"),
    ] {
        let err = refused(args);
        assert!(err.contains(why), "{err}");
    }
    let no_folder = refused(&["-p", &port, "127.0.0.1", "--capture", "/nonexistent/x"]);
    assert!(no_folder.contains("/nonexistent/x"), "{no_folder}");
}

#[test]
fn ends_that_are_not_alike_do_not_begin() {
    let server = Server::start(&["-s", "100"]);
    let (code, _, err) = client(&server, &["-s", "200"]);
    assert_eq!(code, 2);
    assert!(err.contains("--size 200, the peer has 100"), "{err}");
    let (code, _, err) = server.finish(LIMIT);
    assert_eq!(code, 2);
    assert!(err.contains("--size 100, the peer has 200"), "{err}");
}

#[test]
fn a_client_as_ibv_rc_pingpong_is_one_gets_what_it_expects() {
    let server = Server::start(&["--wait", "1"]);
    let mut tcp = TcpStream::connect(format!("127.0.0.1:{}", server.port)).unwrap();
    tcp.write_all(b"0000:000011:123456:00000000000000000000ffff7f000707\0")
        .unwrap();
    let mut answer = [0; 52];
    tcp.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"0000:"));
    assert_eq!(&answer[19..43], b"00000000000000000000ffff");
    tcp.write_all(b"done\0").unwrap();
    // It closes the connection then, and sends; this one does not.
    drop(tcp);
    let (code, out, err) = server.finish(LIMIT);
    assert_eq!(code, 1);
    assert!(out.contains("the peer is ibv_rc_pingpong"), "{out}");
    assert!(err.contains("no progress for 1 s"), "{err}");
}

#[test]
fn a_client_that_talks_nonsense_ends_the_server() {
    let server = Server::start(&[]);
    let mut tcp = TcpStream::connect(format!("127.0.0.1:{}", server.port)).unwrap();
    tcp.write_all(&[b'x'; 52]).unwrap();
    let (code, _, err) = server.finish(LIMIT);
    assert_eq!(code, 1);
    assert!(err.contains("not LID:QPN:PSN:GID"), "{err}");
}
