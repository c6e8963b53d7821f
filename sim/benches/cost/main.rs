//! What a data packet costs: instructions and time, with cards and without.
//!
//! ```text
//! cargo bench -p softroce-sim --bench cost
//! ```
//!
//! The load is a shift by half of a k = 4 fat tree (100 Gb/s links of 1 us), 10 MB WRITEs at MTU 1024,
//! counted payload, an ACK for every packet; "bare" sends the same packets through the same queues
//! without cards, and "pfc" is "bare" through switches with a shared buffer, PFC and ECN; "dcqcn" has cards
//! with DCQCN behind such switches, which mark nothing under this load. The second table has two cards wired
//! to each other, no network between them.
//! Instructions are counted by valgrind, which must be installed; they are the same on
//! every run of one binary. Times are the best of several rounds, both hosts in turn.

#[path = "../../examples/fabric_load/harness.rs"]
#[allow(dead_code)] // it is shared, and not everyone uses all of it
mod harness;

mod counting;
mod pair;

use counting::{each, print};
use harness::{Outcome, Setup};
use pair::Pair;
use std::time::Instant;

const HOSTS: [&str; 4] = ["bare", "card", "pfc", "dcqcn"];

fn run(host: &str, setup: &Setup) -> Outcome {
    match host {
        "bare" => harness::bare(setup),
        "pfc" => harness::bare(&Setup {
            lossless: true,
            ..setup.clone()
        }),
        "dcqcn" => harness::card(&Setup {
            lossless: true,
            dcqcn: true,
            ..setup.clone()
        }),
        _ => harness::card(setup),
    }
}

/// Messages of the second table: name, WRITE or SEND, bytes.
const MESSAGES: [(&str, bool, u32); 2] = [("64 B SEND", false, 64), ("4 KiB WRITE", true, 4096)];

/// One run, for valgrind to count.
fn once(what: &str, number: &str) {
    let number: u64 = number.parse().expect("a number");
    match MESSAGES.iter().find(|m| m.0 == what) {
        Some(&(_, write, len)) => Pair::new().send(write, len, number as u32),
        None => drop(run(
            what,
            &Setup {
                bytes: number,
                ..Setup::default()
            },
        )),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, what, number] = &arguments[..]
        && flag == "--once"
    {
        return once(what, number);
    }
    // As with criterion: `-- --test` only sees that it runs.
    let short = arguments.iter().any(|a| a == "--test");
    fabric(short);
    messages(short);
}

fn messages(short: bool) {
    println!();
    println!("two cards back to back, data copied, requests, ACKs, completions, both cards");
    println!(
        "{:12} {:>24} {:>18}",
        "message", "instructions each", "ns each"
    );
    let (count, rounds) = if short { (160, 1) } else { (16_000, 7) };
    for (what, write, len) in MESSAGES {
        let mut best = f64::INFINITY;
        for _ in 0..rounds {
            let mut pair = Pair::new();
            let begin = Instant::now();
            pair.send(write, len, count);
            best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(count));
        }
        let counted = each(&[what], u64::from(count) + 16, 16, count.into());
        println!("{what:12} {:>24} {best:>18.0}", print(counted));
    }
}

fn fabric(short: bool) {
    let timed = Setup {
        bytes: if short { 100_000 } else { 10_000_000 },
        ..Setup::default()
    };
    let counted = Setup {
        bytes: if short { 100_000 } else { 1_000_000 },
        ..Setup::default()
    };
    let empty = Setup {
        bytes: 1,
        ..Setup::default()
    };

    println!("16-host fat tree, shift by 8, MTU 1024, an ACK for every packet");
    println!(
        "{:6} {:>24} {:>18}",
        "host", "instructions per packet", "ns per packet"
    );
    let mut best = [f64::INFINITY; HOSTS.len()];
    for _ in 0..if short { 1 } else { 7 } {
        for (host, best) in HOSTS.iter().zip(&mut best) {
            let begin = Instant::now();
            let outcome = run(host, &timed);
            *best = best.min(begin.elapsed().as_nanos() as f64 / outcome.packets as f64);
        }
    }
    let packets = harness::packets(&counted) - harness::packets(&empty);
    let counts = HOSTS.map(|host| each(&[host], counted.bytes, empty.bytes, packets));
    for ((host, count), best) in HOSTS.iter().zip(counts).zip(best) {
        println!("{host:6} {:>24} {best:>18.0}", print(count));
    }
    // Each kind of card beside bare hosts at the same switches.
    for (card, bare) in [(1, 0), (3, 2)] {
        let (Some(count), Some(limit)) = (counts[card], counts[bare]) else {
            continue;
        };
        println!(
            "{:10} {:>20.2} {:>18.2}",
            format!("{}/{}", HOSTS[card], HOSTS[bare]),
            count / limit,
            best[card] / best[bare]
        );
    }
}
