//! Peers of `softroce perf` and `softroce pingpong` that say over TCP what they like: the program ends with a
//! word about it, and never with a panic. Here is `perf`; `pingpong` has its own messages.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod pingpong;

use common::text;
use serde_json::{Value, json};
use softroce_verbs::{
    Access, AddressVector, CompletionQueue, Context, Gid, Psn, QpNumber, QpType, SendRequest, Work,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Which end the program under test is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Server,
    Client,
}

const ENDS: [End; 2] = [End::Server, End::Client];

/// The program at one end of a connection whose other end is the test's.
struct Victim {
    child: Child,
    tcp: TcpStream,
}

impl Victim {
    fn start(end: End, args: &[&str]) -> Victim {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let patience = match args.contains(&"--wait") {
            true => &[][..],
            false => &["--wait", "5"],
        };
        let start = |more: &[&str]| {
            Command::new(env!("CARGO_BIN_EXE_softroce"))
                .args(args)
                .args(["-p", &port])
                .args(patience)
                .args(more)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let (child, tcp) = match end {
            End::Client => {
                let child = start(&["127.0.0.1"]);
                (child, listener.accept().unwrap().0)
            }
            End::Server => {
                drop(listener);
                let mut child = start(&[]);
                let tcp = loop {
                    match TcpStream::connect(format!("127.0.0.1:{port}")) {
                        Ok(tcp) => break tcp,
                        Err(e) => assert!(child.try_wait().unwrap().is_none(), "ended: {e}"),
                    }
                    std::thread::sleep(Duration::from_millis(2));
                };
                (child, tcp)
            }
        };
        tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Victim { child, tcp }
    }

    /// The end of the program, which has to come by itself.
    fn finish(mut self) -> Output {
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if start.elapsed() > Duration::from_secs(40) {
                self.child.kill().unwrap();
                panic!("still running");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(self.tcp);
        self.child.wait_with_output().unwrap()
    }

    /// It has ended with a status of its own and one line that says why, which is given.
    #[track_caller]
    fn fails(self, what: &str) -> String {
        let out = self.finish();
        let err = text(&out.stderr).to_string();
        let code = out.status.code();
        assert!(matches!(code, Some(1 | 2)), "{what}: {code:?}: {err}");
        assert!(!err.contains("panicked"), "{what}: {err}");
        let told = [
            "softroce: perf: server: ",
            "softroce: perf: client: ",
            "softroce: pingpong: ",
        ];
        let own = err.lines().rfind(|l| told.iter().any(|t| l.starts_with(t)));
        let own = own.unwrap_or_else(|| panic!("{what}: {err}"));
        assert!(own.len() < 600, "{what}: {err}");
        own.to_string()
    }

    /// A note of `softroce perf`; `None` at the end.
    fn hear(&mut self) -> Option<Value> {
        loop {
            let mut len = [0; 4];
            self.tcp.read_exact(&mut len).ok()?;
            let mut note = vec![0; u32::from_be_bytes(len) as usize];
            self.tcp.read_exact(&mut note).ok()?;
            let note: Value = serde_json::from_slice(&note).unwrap();
            if note != "Beat" {
                return Some(note);
            }
        }
    }

    /// Whoever has hung up does not mind.
    fn say(&mut self, note: &[u8]) {
        let len = (note.len() as u32).to_be_bytes();
        let _ = self.tcp.write_all(&[&len, note].concat());
    }
}

const N: u64 = 5;

/// What an honest peer says at each step, given what the program has said.
fn honest(step: &str, heard: Option<Value>, is_latency: bool) -> Value {
    match step {
        // With its own queue pairs and memory it talks to itself.
        "Hello" | "Lanes" | "Ready" => heard.unwrap(),
        "Sent" if is_latency => json!({"Sent": {
            "messages": [N],
            "bandwidth": null,
            "latency": {"min": 1.5, "max": 1.5, "typical": 1.5, "average": 1.5, "stdev": 0.5,
                        "p99": 1.5, "p999": 1.5},
        }}),
        "Sent" => json!({"Sent": {
            "messages": [N],
            "bandwidth": {"peak_bytes_per_second": 1.5, "average_bytes_per_second": 1.5,
                          "messages_per_second": 1.5, "seconds": 1.5},
            "latency": null,
        }}),
        _ => json!({"Checked": {"received": 0, "compared": 0}}),
    }
}

/// Steps of a peer of a program at this end: whether it hears something first.
fn steps(end: End) -> &'static [(&'static str, u32)] {
    match end {
        End::Server => &[
            ("Hello", 1),
            ("Lanes", 1),
            ("Ready", 1),
            ("Sent", 0),
            ("Checked", 1),
        ],
        // It says that it has sent before it says what it found.
        End::Client => &[("Hello", 1), ("Lanes", 1), ("Ready", 1), ("Checked", 2)],
    }
}

/// Talks to the program until `last`, and there says what `spoil` makes of what would be right.
fn converse(
    victim: &mut Victim,
    end: End,
    test: &str,
    last: &str,
    spoil: impl Fn(&Value) -> Vec<u8>,
) {
    for &(step, hears) in steps(end) {
        let mut heard = None;
        for _ in 0..hears {
            heard = victim.hear();
        }
        if hears > 0 && heard.is_none() {
            return;
        }
        let note = honest(step, heard, test.ends_with("lat"));
        if step == last {
            victim.say(&spoil(&note));
            return;
        }
        victim.say(note.to_string().as_bytes());
    }
}

/// Every way to spoil one place of a value.
fn spoilt(value: &Value) -> Vec<Value> {
    let mut all = match value {
        Value::Number(n) if n.is_u64() => {
            vec![
                json!(-1),
                json!(u64::MAX),
                json!(1e300),
                json!("1"),
                Value::Null,
                json!([]),
            ]
        }
        Value::Number(_) => vec![json!(-1.0), json!(1e300), json!("1"), Value::Null],
        Value::String(_) => vec![json!(""), json!("x".repeat(50_000)), json!(7)],
        Value::Bool(_) | Value::Null => vec![json!(-1), json!({"min": -1}), json!([[]])],
        Value::Array(list) => {
            let mut longer = list.clone();
            longer.extend(list.first().cloned());
            vec![json!([]), longer.into(), json!({}), json!(vec![0; 20_000])]
        }
        Value::Object(_) => vec![json!([]), json!({}), json!(3)],
    };
    match value {
        Value::Array(list) => {
            for n in [0, list.len().saturating_sub(1)] {
                for inner in list.get(n).map_or(Vec::new(), spoilt) {
                    let mut list = list.clone();
                    list[n] = inner;
                    all.push(list.into());
                }
            }
        }
        Value::Object(map) => {
            for (key, inner) in map {
                for inner in spoilt(inner) {
                    let mut map = map.clone();
                    map.insert(key.clone(), inner);
                    all.push(map.into());
                }
            }
        }
        _ => {}
    }
    all
}

#[test]
fn an_honest_peer_is_no_matter() {
    for end in ENDS {
        for test in ["write-bw", "read-lat"] {
            let mut victim = Victim::start(end, &["perf", test, "-n", "5"]);
            converse(&mut victim, end, test, "none", |_| unreachable!());
            let out = victim.finish();
            let err = text(&out.stderr);
            assert_eq!(out.status.code(), Some(0), "{end:?} {test}: {err}");
        }
    }
}

/// A number that is negative, huge or no number, a list too long or too short: each is refused where it stands,
/// whatever measures.
#[test]
fn values_that_perf_did_not_agree_to_are_refused() {
    let work: Vec<(End, &str, &str)> = ENDS
        .into_iter()
        .flat_map(|end| steps(end).iter().map(move |&(step, _)| (end, step)))
        .flat_map(|(end, step)| {
            // What is said before anything is measured is the same for all.
            let tests = match step {
                "Sent" | "Checked" => &["write-bw", "atomic-bw", "read-lat"][..],
                _ => &["write-bw"],
            };
            tests.iter().map(move |&test| (end, step, test))
        })
        .collect();
    let mut n = 0;
    for (end, step, test) in work {
        for at in 0.. {
            // With nothing sent, and data looked at, an honest peer would be refused before its last note.
            let verify = match step {
                "Checked" => &[][..],
                _ => &["--verify"],
            };
            let args = [&["perf", test, "-n", "5"], verify].concat();
            let mut victim = Victim::start(end, &args);
            let spoilt_to = std::cell::Cell::new(None);
            converse(&mut victim, end, test, step, |note| {
                let all = spoilt(note);
                let bad = all.get(at).map(Value::to_string);
                spoilt_to.set(bad.clone());
                bad.unwrap_or_default().into_bytes()
            });
            let Some(bad) = spoilt_to.take() else {
                victim.child.kill().unwrap();
                victim.child.wait().unwrap();
                break;
            };
            let bad: String = bad.chars().take(300).collect();
            let told = victim.fails(&format!("{end:?} {test} {bad}"));
            let refused = [
                "the peer",
                "nothing that softroce perf says",
                "this end has",
            ];
            assert!(refused.iter().any(|r| told.contains(r)), "{bad}: {told}");
            assert!(!told.contains("damaged"), "{bad}: {told}");
            n += 1;
        }
    }
    assert!(n > 200, "{n}");
}

/// A count that belongs to another number of queue pairs, one that was never asked for, and time.
#[test]
fn counts_of_messages_are_those_that_were_agreed() {
    for (args, messages, named) in [
        (
            &["write-bw", "-n", "5", "--verify"][..],
            json!([0, 0]),
            "2; it must be 1",
        ),
        (
            &["write-bw", "-n", "5", "-q", "2"],
            json!([5]),
            "1; it must be 2",
        ),
        (&["send-bw", "-n", "5"], json!([6]), "6; it must be 5"),
        (
            &["send-bw", "-n", "5", "-c", "UD", "-s", "64"],
            json!([4]),
            "4; it must be 5",
        ),
        (
            &["write-bw", "-D", "1"],
            json!([1u64 << 41]),
            "at most 1099511627776",
        ),
        (
            &["send-lat", "-D", "1"],
            json!([u64::MAX]),
            "at most 1099511627776",
        ),
    ] {
        let mut victim = Victim::start(End::Server, &[&["perf"], args].concat());
        converse(&mut victim, End::Server, args[0], "Sent", |note| {
            let mut note = note.clone();
            note["Sent"]["messages"] = messages.clone();
            note.to_string().into_bytes()
        });
        let told = victim.fails(&format!("{args:?} {messages}"));
        assert!(told.contains(named), "{args:?} {messages}: {told}");
    }
}

/// Bytes that are no message of the exchange, or the beginning of one.
#[test]
fn garbage_ends_perf_with_a_word() {
    let framed: [&[u8]; 8] = [
        b"",
        b"\xff\xfe\x00",
        b"{\"Sent\":",
        b"null",
        b"1e999",
        b"{\"Failed\":\"\x7f\x1b[31m\"}",
        &[b'['; 60_000],
        b"\"Ready\" \"Ready\"",
    ];
    let failed = json!({"Failed": "why ".repeat(15_000)}).to_string();
    let raw: [&[u8]; 4] = [
        b"\xff\xff\xff\xff",
        b"\x00\x01\x00\x01",
        b"\0\0\0\x64{\"S",
        b"\0\0",
    ];
    for end in ENDS {
        for &(step, _) in steps(end) {
            let framed = framed.iter().copied().chain([failed.as_bytes()]);
            for garbage in framed {
                let mut victim = Victim::start(end, &["perf", "write-bw", "-n", "5"]);
                converse(&mut victim, end, "write-bw", step, |_| garbage.to_vec());
                let told = victim.fails(&format!("{end:?} {step} {garbage:.40?}"));
                assert!(told.contains("the peer"), "{told}");
            }
        }
        for garbage in raw {
            let mut victim = Victim::start(end, &["perf", "write-bw", "-n", "5"]);
            let _ = victim.tcp.write_all(garbage);
            let _ = victim.tcp.shutdown(std::net::Shutdown::Write);
            let told = victim.fails(&format!("{end:?} {garbage:?}"));
            assert!(told.contains("exchange with 127.0.0.1"), "{told}");
        }
    }
}

/// Whoever only says that it lives is not waited for.
#[test]
fn a_peer_that_only_lives_is_given_up() {
    for end in ENDS {
        let mut victim = Victim::start(end, &["perf", "write-bw", "-n", "5", "--wait", "1"]);
        let mut tcp = victim.tcp.try_clone().unwrap();
        let beats = std::thread::spawn(move || {
            while tcp.write_all(b"\0\0\0\x06\"Beat\"").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        victim.hear().unwrap();
        let told = victim.fails("beats");
        assert!(
            told.contains("nothing has come from the peer for 1 s"),
            "{told}"
        );
        beats.join().unwrap();
    }
}

/// A datagram says itself which message it is.
#[test]
fn numbers_in_data_are_checked_too() {
    for number in [u64::MAX, 1 << 40] {
        let args = [
            "perf", "send-bw", "-c", "UD", "-s", "64", "-n", "5", "--verify",
        ];
        let mut victim = Victim::start(End::Server, &args);
        let mut own = Datagrams::open();
        let hello = victim.hear().unwrap();
        victim.say(hello.to_string().as_bytes());
        let theirs = victim.hear().unwrap();
        let mut lanes = theirs.clone();
        lanes["Lanes"]["queue_pairs"] = json!([[own.qp.number().get(), 0]]);
        lanes["Lanes"]["gid"] = json!(own.gid.0);
        victim.say(lanes.to_string().as_bytes());
        victim.hear().unwrap();
        victim.say(b"\"Ready\"");
        let mut message = [0; 64];
        message[..8].copy_from_slice(&number.to_le_bytes());
        own.send(&theirs["Lanes"], &message);
        let told = victim.fails(&format!("{number}"));
        assert!(
            told.contains(&format!("message {number}; there are at most")),
            "{told}"
        );
    }
}

/// A queue pair for datagrams.
struct Datagrams {
    context: Context,
    pd: softroce_verbs::ProtectionDomain,
    cq: CompletionQueue,
    qp: softroce_verbs::QueuePair,
    gid: Gid,
}

const QKEY: u32 = 0x1111_1111;

impl Datagrams {
    fn open() -> Datagrams {
        let context = softroce_verbs::open("softroce0").unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(4, None).unwrap();
        let qp = pd.create_qp(QpType::Ud).cq(&cq).build().unwrap();
        qp.activate(QKEY, Psn::new(0)).unwrap();
        let gid = context.query_gid(1, 0).unwrap().gid;
        Datagrams {
            context,
            pd,
            cq,
            qp,
            gid,
        }
    }

    fn send(&mut self, lanes: &Value, message: &[u8]) {
        let bytes = lanes["gid"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| b.as_u64().unwrap() as u8);
        let gid = Gid(bytes.collect::<Vec<_>>().try_into().unwrap());
        let number = lanes["queue_pairs"][0][0].as_u64().unwrap();
        let to = self.pd.create_ah(&AddressVector::new(gid)).unwrap();
        let memory = self.pd.reg_new(message.len(), Access::LOCAL_WRITE).unwrap();
        memory.memory().write_at(0, message);
        let sges = [memory.sge(0, message.len() as u32)];
        let mut request = SendRequest::new(1, Work::Send, &sges);
        request.to = Some(to.to(QpNumber::new(number as u32), QKEY));
        self.qp.post_send(&request).unwrap();
        let limit = self.context.now() + Duration::from_secs(10);
        while self.cq.poll().unwrap().is_none() {
            assert!(self.context.now() < limit);
        }
    }
}

const ADDRESS: &str = "0000:000011:123456:00000000000000000000ffff7f000707\n";

/// A card that only this machine reaches has a server that only this machine reaches; one that is told its
/// address waits there.
#[test]
fn a_server_waits_where_its_card_is() {
    for (program, device, at) in [
        (&["perf", "write-bw"][..], "softroce0", "0100007F"),
        (&["perf", "write-bw"], "softroce0@127.0.0.77", "4D00007F"),
        (&["pingpong"], "softroce0", "0100007F"),
        (&["pingpong"], "softroce0@127.0.0.78", "4E00007F"),
    ] {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let mut child = Command::new(env!("CARGO_BIN_EXE_softroce"))
            .args(program)
            .args(["-d", device, "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        // Sockets that listen (state 0A) on the port; addresses are in the order of this machine.
        let listens = loop {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let local = |line: &str| {
                let mut fields = line.split_whitespace().skip(1);
                let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
                let (address, at) = local.split_once(':')?;
                let is_it = state == "0A" && at == format!("{port:04X}");
                is_it.then(|| address.to_string())
            };
            let found: Vec<String> = table.lines().filter_map(local).collect();
            if !found.is_empty() {
                break found;
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{device}: nobody listens"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(listens, [at], "{program:?} {device}");
    }
}
