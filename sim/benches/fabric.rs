//! Time per data packet of the network, without cards and with them.
//!
//! Instructions per data packet, the same on every run, come from the example:
//!
//! ```text
//! cargo build --release -p softroce-sim --example fabric_load
//! valgrind --tool=callgrind target/release/examples/fabric_load --load shift --host bare
//! ```

#[path = "../examples/fabric_load/harness.rs"]
#[allow(dead_code)] // it is shared, and not everyone uses all of it
mod harness;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use harness::{Outcome, Pattern, Setup};

fn loads(c: &mut Criterion) {
    let mut group = c.benchmark_group("fabric");
    group.sample_size(10);
    for (name, pattern, k) in [
        ("shift/16", Pattern::Shift, 4),
        ("incast/16", Pattern::Incast, 4),
        ("shift/128", Pattern::Shift, 8),
    ] {
        let setup = Setup {
            k,
            pattern,
            bytes: 1_000_000,
            ..Setup::default()
        };
        type Run = fn(&Setup) -> Outcome;
        let hosts: [(&str, Run); 2] = [("bare", harness::bare), ("card", harness::card)];
        for (host, run) in hosts {
            let once = run(&setup);
            eprintln!(
                "{host}/{name}: {} events, ends at {}, {} drops, fullest queue {} B",
                once.events, once.end, once.drops, once.high_water
            );
            group.throughput(Throughput::Elements(once.packets));
            group.bench_function(format!("{host}/{name}"), |b| {
                b.iter(|| run(&setup).events);
            });
        }
    }
    group.finish();
}

criterion_group!(benches, loads);
criterion_main!(benches);
