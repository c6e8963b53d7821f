//! Peers that are killed, and others that have their address at once; sockets that run over.

use crate::ends::{Channel, End, LEN, PATIENCE, random, read};
use softroce_sim::card::{Mtu, Refusal, Remote, State, Status, Work};
use softroce_sim::port::{Udp, UdpConfig};
use softroce_sim::random::Stream;
use softroce_sim::wire::{Gid, Psn, QpNumber, RemoteKey};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tells a process of this binary to be a peer: its address, and where it writes.
const ROLE: &str = "SOFTROCE_TEST_PEER";
/// Exponent of the acknowledgement timeout: 4.2 ms.
const TIMEOUT: u8 = 10;

/// What one end tells the other.
#[derive(Clone, Copy, Debug)]
struct Card {
    gid: Gid,
    qp: QpNumber,
    psn: Psn,
    remote: Remote,
}

impl Card {
    fn of(gid: Gid, channel: &Channel) -> Card {
        Card {
            gid,
            qp: channel.qp.number(),
            psn: channel.psn,
            remote: channel.remote(),
        }
    }

    fn write(&self) -> String {
        let Remote { addr, rkey } = self.remote;
        let (qp, psn) = (self.qp.get(), self.psn.get());
        format!("{} {qp} {psn} {addr} {}", self.gid.ip(), rkey.0)
    }

    fn read(text: &str) -> Card {
        let words: Vec<&str> = text.split_whitespace().collect();
        Card {
            gid: words[0].parse::<IpAddr>().unwrap().into(),
            qp: QpNumber::new(words[1].parse().unwrap()),
            psn: Psn::new(words[2].parse().unwrap()),
            remote: Remote {
                addr: words[3].parse().unwrap(),
                rkey: RemoteKey(words[4].parse().unwrap()),
            },
        }
    }

    fn address(&self) -> (Gid, QpNumber, Psn) {
        (self.gid, self.qp, self.psn)
    }
}

/// A peer in a process of its own, which can be killed.
struct Peer {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    card: Card,
}

impl Peer {
    /// Starts it at `address`, connected to `to`, which it writes to if `busy`.
    fn start(address: IpAddr, to: Card, busy: bool) -> Peer {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture"])
            .arg("vanished::the_other_process")
            .env(ROLE, format!("{address} {busy} {}", to.write()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let card = Card::read(&said(&mut stdout, "CARD "));
        Peer {
            process,
            stdin,
            stdout,
            card,
        }
    }

    fn kill(mut self) -> Card {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.card
    }

    /// How many packets were for no queue pair of its, and whether its memory is as it was.
    fn ask(&mut self) -> (u64, bool) {
        writeln!(self.stdin).unwrap();
        let said = said(&mut self.stdout, "SAW ");
        let (unknown, untouched) = said.split_once(' ').unwrap();
        (unknown.parse().unwrap(), untouched.parse().unwrap())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn said(stdout: &mut impl BufRead, what: &str) -> String {
    let mut line = String::new();
    while stdout.read_line(&mut line).unwrap() > 0 {
        if let Some((_, said)) = line.split_once(what) {
            return said.trim().to_string();
        }
        line.clear();
    }
    panic!("the other process ended without {what}");
}

#[test]
#[ignore = "the other process of tests in this file"]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (address, rest) = role.split_once(' ').unwrap();
    let (busy, to) = rest.split_once(' ').unwrap();
    let to = Card::read(to);
    let mut end = End::new(&UdpConfig {
        address: Some(address.parse().unwrap()),
        ..UdpConfig::default()
    });
    println!("CARD {}", Card::of(end.port.gid(), &end.channel).write());
    end.connect(to.address(), Mtu::M1024, TIMEOUT);
    let asked = Arc::new(AtomicBool::new(false));
    let asks = asked.clone();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines() {
            asks.store(true, Ordering::Relaxed);
        }
        // Who started this has gone.
        std::process::exit(0);
    });
    let before = read(&end.channel.memory, LEN);
    loop {
        if busy == "true" && end.channel.qp.send_room() > 0 {
            end.channel.send(Work::Write(to.remote), 4096);
            let number = end.channel.qp.number();
            end.card.doorbell(end.port.now(), number);
        }
        let wait = Duration::from_millis(1);
        end.port.run_once(&mut end.card, wait).unwrap();
        if asked.swap(false, Ordering::Relaxed) {
            let unknown = end.card.counters().refused.get(Refusal::UnknownQueuePair);
            let untouched = read(&end.channel.memory, LEN) == before;
            println!("SAW {unknown} {untouched}");
        }
    }
}

/// An address where nobody else is: of this process, and of one test.
fn address_of(test: u8) -> IpAddr {
    let id = std::process::id();
    Ipv4Addr::new(127, 100 + (id >> 8 & 63) as u8, id as u8, test).into()
}

fn end_and_channel() -> (End<Udp>, Channel) {
    let mut end = End::new(&UdpConfig::default());
    let second = Channel::new(&mut end.card, &end.cq);
    (end, second)
}

#[test]
fn what_a_killed_peer_has_sent_is_not_taken_for_its_successors() {
    let (mut a, second) = end_and_channel();
    let gid = a.port.gid();
    let address = address_of(1);
    let first = Peer::start(address, Card::of(gid, &a.channel), true);
    a.connect(first.card.address(), Mtu::M1024, TIMEOUT);
    // Its packets fill the socket meanwhile.
    std::thread::sleep(Duration::from_millis(50));
    let old = first.kill();
    let new = Peer::start(address, Card::of(gid, &second), false);
    assert_ne!(old.qp, new.card.qp);
    assert_ne!(old.psn, new.card.psn);
    assert_ne!(old.remote, new.card.remote);
    // The program here starts again too, in the place of the old connection.
    a.card.destroy_qp(a.channel.qp.number()).unwrap();
    second.connect(&mut a.card, new.card.address(), Mtu::M1024, 14);
    let before = read(&second.memory, LEN);
    a.channel = second;
    let completion = a.run(Work::Read(new.card.remote), 0);
    assert_eq!(completion.status, Status::Success);
    let counters = a.card.counters();
    assert!(counters.refused.get(Refusal::UnknownQueuePair) >= 16);
    assert_eq!(read(&a.channel.memory, LEN), before);
    let number = a.channel.qp.number();
    let own = a.card.qp_counters(number).unwrap();
    assert_eq!(own.received_packets, 1, "the answer to the READ alone");
}

#[test]
fn requests_for_a_killed_peer_do_not_reach_its_successor() {
    let (mut a, second) = end_and_channel();
    let gid = a.port.gid();
    let address = address_of(2);
    let first = Peer::start(address, Card::of(gid, &a.channel), false);
    a.connect(first.card.address(), Mtu::M1024, TIMEOUT);
    let data = random(&mut Stream::new(1, "data"), 5000);
    a.channel.memory.write_at(0, &data);
    let completion = a.run(Work::Write(first.card.remote), data.len());
    assert_eq!(completion.status, Status::Success);
    let old = first.kill();
    let mut new = Peer::start(address, Card::of(gid, &second), false);
    let completion = a.run(Work::Write(old.remote), data.len());
    assert_eq!(completion.status, Status::RetryExceeded);
    assert_eq!(a.channel.qp.state(), State::Error);
    // The receives of the old connection.
    while let Some(completion) = a.cq.poll() {
        assert_eq!(completion.status, Status::WorkRequestFlushed);
    }
    let (unknown, untouched) = new.ask();
    // Eight times the oldest packet, at least.
    assert!(unknown >= 8, "{unknown}");
    assert!(untouched);
    // The next connection finds everything in order.
    second.connect(&mut a.card, new.card.address(), Mtu::M1024, 14);
    a.channel = second;
    a.channel.memory.write_at(0, &data);
    let completion = a.run(Work::Write(new.card.remote), data.len());
    assert_eq!(completion.status, Status::Success);
    assert!(!new.ask().1);
}

#[test]
fn a_socket_that_runs_over_is_counted_and_recovered_from() {
    let small = UdpConfig {
        // A dozen packets.
        receive_buffer: 16 << 10,
        ..UdpConfig::default()
    };
    let [mut a, mut b] = [UdpConfig::default(), small].map(|c| End::new(&c));
    let (to_a, to_b) = (a.address(), b.address());
    a.connect(to_b, Mtu::M1024, TIMEOUT);
    b.connect(to_a, Mtu::M1024, TIMEOUT);
    let data = random(&mut Stream::new(2, "data"), LEN);
    a.channel.memory.write_at(0, &data);
    a.channel.send(Work::Write(b.channel.remote()), LEN);
    let number = a.channel.qp.number();
    a.card.doorbell(a.port.now(), number);
    // All 64 packets before the other end looks.
    while a.port.counters().sent < 64 {
        a.port.poll(&mut a.card).unwrap();
    }
    let start = Instant::now();
    let completion = loop {
        assert!(start.elapsed() < PATIENCE);
        a.port.poll(&mut a.card).unwrap();
        b.port.poll(&mut b.card).unwrap();
        if let Some(completion) = a.cq.poll() {
            break completion;
        }
    };
    assert_eq!(completion.status, Status::Success);
    assert_eq!(read(&b.channel.memory, LEN), data);
    // Told by the first datagram that came after a loss.
    assert!(b.port.counters().overflow > 0, "{:?}", b.port.counters());
    assert!(a.port.counters().sent > 64);
    assert_eq!(a.channel.qp.state(), State::Rts);
}
