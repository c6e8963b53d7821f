//! What a data packet costs: instructions and time, with cards and without.
//!
//! ```text
//! cargo bench -p softroce-sim --bench cost
//! ```
//!
//! The load is a shift by half of a k = 4 fat tree (100 Gb/s links of 1 us), 10 MB WRITEs at MTU 1024,
//! counted payload, an ACK for every packet; "bare" sends the same packets through the same queues
//! without cards. Instructions are counted by valgrind, which must be installed; they are the same on
//! every run of one binary. Times are the best of several rounds, both hosts in turn.

#[path = "../examples/fabric_load/harness.rs"]
#[allow(dead_code)] // it is shared, and not everyone uses all of it
mod harness;

use harness::{Outcome, Setup};
use std::process::Command;
use std::time::Instant;

const HOSTS: [&str; 2] = ["bare", "card"];

fn run(host: &str, setup: &Setup) -> Outcome {
    match host {
        "bare" => harness::bare(setup),
        _ => harness::card(setup),
    }
}

/// Instructions of one run of this program under valgrind.
fn instructions(host: &str, setup: &Setup) -> Option<u64> {
    let this = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(["--once", host, &setup.bytes.to_string()])
        .output()
        .ok()?;
    // ==123== Collected : 86520391
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|l| l.contains("Collected"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [once, host, bytes] = &arguments[..]
        && once == "--once"
    {
        let bytes = bytes.parse().expect("a number of bytes");
        run(
            host,
            &Setup {
                bytes,
                ..Setup::default()
            },
        );
        return;
    }
    // As with criterion: `-- --test` only sees that it runs.
    let short = arguments.iter().any(|a| a == "--test");
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
    let mut best = [f64::INFINITY; 2];
    for _ in 0..if short { 1 } else { 7 } {
        for (host, best) in HOSTS.iter().zip(&mut best) {
            let begin = Instant::now();
            let outcome = run(host, &timed);
            *best = best.min(begin.elapsed().as_nanos() as f64 / outcome.packets as f64);
        }
    }
    let packets = harness::packets(&counted) - harness::packets(&empty);
    // What a run costs before the first packet is not the packets'.
    let counts = HOSTS.map(|host| {
        Some((instructions(host, &counted)? - instructions(host, &empty)?) as f64 / packets as f64)
    });
    for ((host, count), best) in HOSTS.iter().zip(counts).zip(best) {
        let count = count.map_or("valgrind is missing".into(), |c| format!("{c:.0}"));
        println!("{host:6} {count:>24} {best:>18.0}");
    }
    if let [Some(bare), Some(card)] = counts {
        println!(
            "{:6} {:>24.2} {:>18.2}",
            "ratio",
            card / bare,
            best[1] / best[0]
        );
    }
}
