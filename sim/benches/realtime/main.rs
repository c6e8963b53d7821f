//! Cards in real time beside bare sockets that carry the same datagrams, interleaved, so that both see the
//! same machine: `cargo bench -p softroce-sim --bench realtime`, or with `messages`, `latency`, `bulk`.

mod bare;
mod ends;

use ends::{End, Kind};
use softroce_sim::card::Work;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pairs of measurements, one of each kind after the other.
const PAIRS: usize = 15;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` and `--test` want to see that it works, not how fast.
    let brief = words.iter().any(|w| w == "--test");
    let named: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|w| !w.starts_with('-'))
        .collect();
    for (name, run) in [
        ("messages", messages as fn(bool)),
        ("latency", latency),
        ("bulk", bulk),
    ] {
        if named.is_empty() || named.contains(&name) {
            run(brief);
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// 64-byte WRITEs between two engines of this process, over a channel.
fn messages(brief: bool) {
    let time = Duration::from_millis(if brief { 10 } else { 500 });
    let mut rates = Vec::new();
    for _ in 0..if brief { 1 } else { PAIRS } {
        let [mut a, b] = ends::pair(Kind::Channel);
        let stop = AtomicBool::new(false);
        let rate = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    b.engine.drive().unwrap();
                }
            });
            let (start, mut done) = (Instant::now(), 0u64);
            while start.elapsed() < time {
                done += a.stream(Work::Write(b.remote()), 64);
            }
            let rate = done as f64 / start.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            rate
        });
        rates.push(rate / 1e6);
    }
    println!(
        "messages: {:.2} million 64-byte WRITEs a second over a channel",
        median(&mut rates)
    );
}

/// 64-byte WRITEs with immediate data to and fro by completion polling, and the same datagrams.
fn latency(brief: bool) {
    let rounds = if brief { 100 } else { 10_000 };
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut sockets = bare::Latency::new();
    let mut pair = ends::pair(Kind::Udp);
    for _ in 0..if brief { 1 } else { PAIRS } {
        let card = ends::volley(&mut pair, rounds);
        let bare = sockets.volley(rounds);
        ours.push(card);
        theirs.push(bare);
        ratios.push(card / bare);
    }
    println!(
        "latency: 64-byte WRITE and back: {:.2} us, bare sockets {:.2} us, ratio {:.2}",
        median(&mut ours),
        median(&mut theirs),
        median(&mut ratios)
    );
}

/// 1 MB WRITEs at path MTU 4096, and the same packets.
fn bulk(brief: bool) {
    let count = if brief { 3 } else { 300 };
    for (kind, name) in [(Kind::Udp, "plain"), (Kind::Offload, "segment offload")] {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let [mut a, b] = ends::pair(kind);
        let mut sockets = bare::Bulk::new(kind == Kind::Offload);
        for _ in 0..if brief { 1 } else { PAIRS } {
            let card = writes(&mut a, &b, count);
            let bare = sockets.writes(count);
            ours.push(card);
            theirs.push(bare);
            ratios.push(card / bare);
        }
        println!(
            "bulk, {name}: 1 MB WRITEs at {:.1} Gb/s, bare sockets {:.1} Gb/s, ratio {:.2}",
            median(&mut ours),
            median(&mut theirs),
            median(&mut ratios)
        );
    }
}

/// `count` WRITEs of 1 MB, two at a time; Gb/s.
fn writes(a: &mut End, b: &End, count: u32) -> f64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                b.engine.drive().unwrap();
            }
        });
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < 2 {
                a.post(Work::Write(b.remote()), ends::LEN);
                posted += 1;
            }
            done += u32::from(a.poll());
        }
        let took = start.elapsed();
        stop.store(true, Ordering::Relaxed);
        f64::from(count) * ends::LEN as f64 * 8.0 / took.as_secs_f64() / 1e9
    })
}
