//! Networks of 16, 128 and 1,024 hosts: speed, instructions and memory, beside what is published of others.
//!
//! ```text
//! cargo bench -p softroce-sim --bench scale
//! ```
//!
//! Fat trees of 100 Gb/s links of 1 us, whose switches have a shared buffer, PFC and ECN. "card" is one RDMA
//! WRITE for each sender, by cards with DCQCN, path MTU 1024, counted payload, an ACK for every packet, nobody
//! watching; "bare" sends the same packets through the same switches without cards, at the rate of the line.
//!
//! Each run is a process of its own, so that its peak memory is its own; its time is that on the processor,
//! set-up included, the best of several rounds, card and bare in turn. Instructions are without set-up, counted
//! by valgrind, and the same on every run. `-- --test` only sees that all of it runs.

#[path = "../cost/counting.rs"]
mod counting;

#[path = "../../examples/fabric_load/harness.rs"]
#[allow(dead_code)] // it is shared, and not everyone uses all of it
mod harness;

use counting::{each, print};
use harness::{Outcome, Pattern, Setup};
use std::process::Command;
use std::time::Instant;

/// A load, and what others take for it.
struct Load {
    name: &'static str,
    k: usize,
    pattern: Pattern,
    /// Each sender's bytes.
    bytes: u64,
    /// The same when instructions are counted.
    counted: u64,
    published: Option<Published>,
}

/// Figures of others, as they were published for a machine of this kind: thousands of data packets a second on
/// one core, packets of 1000 bytes of payload, an ACK for each, PFC. They are constants, not measured here.
struct Published {
    /// A simulator in C++, without congestion control.
    cpp: f64,
    /// ns-3 with DCQCN.
    ns3: f64,
    /// An event loop in Rust with queues and PFC, without cards.
    bare: f64,
    /// Instructions of the first and the last of these, for each data packet.
    instructions: Option<(f64, f64)>,
}

const LOADS: [Load; 6] = [
    Load {
        name: "16: 15 to 1, 10 MB",
        k: 4,
        pattern: Pattern::Incast,
        bytes: 10_000_000,
        counted: 10_000_000,
        published: Some(Published {
            cpp: 338.0,
            ns3: 85.0,
            bare: 1744.0,
            instructions: Some((24_000.0, 5_400.0)),
        }),
    },
    Load {
        name: "16: shift by 8, 10 MB",
        k: 4,
        pattern: Pattern::Shift,
        bytes: 10_000_000,
        counted: 10_000_000,
        published: Some(Published {
            cpp: 232.0,
            ns3: 74.0,
            bare: 894.0,
            instructions: Some((27_200.0, 7_200.0)),
        }),
    },
    Load {
        name: "128: 127 to 1, 1 MB",
        k: 8,
        pattern: Pattern::Incast,
        bytes: 1_000_000,
        counted: 1_000_000,
        published: Some(Published {
            cpp: 213.0,
            ns3: 45.0,
            bare: 1372.0,
            instructions: None,
        }),
    },
    Load {
        name: "128: shift by 64, 10 MB",
        k: 8,
        pattern: Pattern::Shift,
        bytes: 10_000_000,
        counted: 1_000_000,
        published: Some(Published {
            cpp: 132.0,
            ns3: 41.0,
            bare: 726.0,
            instructions: None,
        }),
    },
    Load {
        name: "1024: 1023 to 1, 100 KB",
        k: 16,
        pattern: Pattern::Incast,
        bytes: 100_000,
        counted: 100_000,
        published: None,
    },
    Load {
        name: "1024: shift by 512, 1 MB",
        k: 16,
        pattern: Pattern::Shift,
        bytes: 1_000_000,
        counted: 100_000,
        published: None,
    },
];

/// What each sends when all is only to be seen to run.
const BRIEFLY: u64 = 20_000;

const HOSTS: [&str; 2] = ["card", "bare"];

impl Load {
    fn setup(&self, bytes: u64) -> Setup {
        Setup {
            k: self.k,
            pattern: self.pattern,
            bytes,
            lossless: true,
            dcqcn: true,
            ..Setup::default()
        }
    }

    /// Its name and hosts, as arguments of `--once`.
    fn arguments(&self, host: &'static str) -> [&'static str; 2] {
        [host, self.name]
    }
}

/// What one run came to.
struct Measured {
    packets: f64,
    /// On the processor.
    nanoseconds: f64,
    /// At most, in KiB.
    memory: f64,
    /// When the last event was, in microseconds of virtual time.
    end: f64,
    marks: f64,
    pauses: f64,
}

impl Measured {
    /// Thousands of data packets a second.
    fn speed(&self) -> f64 {
        self.packets / self.nanoseconds * 1e6
    }
}

/// The number behind `key` in a file of /proc/self; `None` where there is no such file.
fn own(file: &str, key: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// One run, in this process; prints what [`measure`] reads.
fn once(host: &str, name: &str, bytes: &str) {
    let load = LOADS.iter().find(|l| l.name == name).expect("a load");
    let setup = load.setup(bytes.parse().expect("a number"));
    let begin = Instant::now();
    let outcome: Outcome = match host {
        "bare" => harness::bare(&setup),
        _ => harness::card(&setup),
    };
    let wall = begin.elapsed().as_nanos() as f64;
    // The account is brought up to date when another thread has its turn.
    std::thread::yield_now();
    println!(
        "{} {} {} {} {} {}",
        outcome.packets,
        own("schedstat", "").unwrap_or(wall),
        own("status", "VmHWM:").unwrap_or(f64::NAN),
        outcome.end.as_ps() as f64 / 1e6,
        outcome.marks,
        outcome.pauses,
    );
}

/// One run, in a process of its own.
fn measure(load: &Load, host: &'static str, bytes: u64) -> Measured {
    let this = std::env::current_exe().expect("this program has a path");
    let output = Command::new(this)
        .arg("--once")
        .args(load.arguments(host))
        .arg(bytes.to_string())
        .output()
        .expect("this program can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{host}, {}: {errors}", load.name);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text
        .split_whitespace()
        .map(|n| n.parse().expect("a number"));
    let mut next = || numbers.next().expect("six numbers");
    Measured {
        packets: next(),
        nanoseconds: next(),
        memory: next(),
        end: next(),
        marks: next(),
        pauses: next(),
    }
}

/// The best of some rounds for each kind of host.
fn best(load: &Load, bytes: u64, rounds: usize) -> [Measured; HOSTS.len()] {
    let mut best = HOSTS.map(|host| measure(load, host, bytes));
    for _ in 1..rounds {
        for (host, best) in HOSTS.into_iter().zip(&mut best) {
            let next = measure(load, host, bytes);
            if next.nanoseconds < best.nanoseconds {
                *best = next;
            }
        }
    }
    best
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, host, name, bytes] = &arguments[..]
        && flag == "--once"
    {
        return once(host, name, bytes);
    }
    let short = arguments.iter().any(|a| a == "--test");
    let rounds = if short { 1 } else { 5 };
    let runs = LOADS.each_ref().map(|load| {
        let bytes = if short { BRIEFLY } else { load.bytes };
        best(load, bytes, rounds)
    });
    if short {
        println!("briefly: {BRIEFLY} bytes from each sender, so the figures mean nothing");
    }
    speed(&runs);
    instructions(short);
    memory(&runs);
}

fn speed(all: &[[Measured; HOSTS.len()]]) {
    println!("thousands of data packets a second, one core; the last three columns are published");
    println!(
        "{:26} {:>8} {:>8} {:>9} {:>8} {:>8} {:>10}",
        "hosts: load", "card", "bare", "bare/card", "C++", "card/C++", "ns-3, bare"
    );
    for (load, [card, bare]) in LOADS.iter().zip(all) {
        let ratio = bare.speed() / card.speed();
        print!(
            "{:26} {:>8.0} {:>8.0} {ratio:>9.2}",
            load.name,
            card.speed(),
            bare.speed()
        );
        match &load.published {
            Some(p) => println!(
                " {:>8.0} {:>8.2} {:>10}",
                p.cpp,
                card.speed() / p.cpp,
                format!("{:.0}, {:.0}", p.ns3, p.bare)
            ),
            None => println!(" {:>8} {:>8} {:>10}", "-", "-", "-"),
        }
    }
}

fn instructions(short: bool) {
    println!();
    println!("instructions for each data packet; the last two columns are published");
    println!(
        "{:26} {:>8} {:>8} {:>9} {:>8} {:>8}",
        "hosts: load", "card", "bare", "card/bare", "C++", "bare"
    );
    for load in &LOADS {
        if short && load.k > 4 {
            continue;
        }
        let some = load.setup(if short { BRIEFLY } else { load.counted });
        let none = load.setup(1);
        let packets = harness::packets(&some) - harness::packets(&none);
        let [card, bare] =
            HOSTS.map(|host| each(&load.arguments(host), some.bytes, none.bytes, packets));
        let ratio = card.zip(bare).map_or(f64::NAN, |(card, bare)| card / bare);
        print!(
            "{:26} {:>8} {:>8} {ratio:>9.2}",
            load.name,
            print(card),
            print(bare)
        );
        match load.published.as_ref().and_then(|p| p.instructions) {
            Some((cpp, bare)) => println!(" {cpp:>8.0} {bare:>8.0}"),
            None => println!(" {:>8} {:>8}", "-", "-"),
        }
    }
}

fn memory(all: &[[Measured; HOSTS.len()]]) {
    println!();
    println!("peak memory of the process in MB, and what happened in the network");
    println!("published, 16 and 128 hosts: C++ 7 and 28, ns-3 77 and 397");
    println!(
        "{:26} {:>8} {:>8} {:>12} {:>8} {:>8}",
        "hosts: load", "card", "bare", "card ends at", "marks", "pauses"
    );
    for (load, [card, bare]) in LOADS.iter().zip(all) {
        let mb = |m: &Measured| m.memory * 1024.0 / 1e6;
        println!(
            "{:26} {:>8.1} {:>8.1} {:>9.0} us {:>8} {:>8}",
            load.name,
            mb(card),
            mb(bare),
            card.end,
            card.marks,
            card.pauses
        );
    }
}
