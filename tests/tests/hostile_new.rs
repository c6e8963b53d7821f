//! A peer that says whatever it likes, to a card that works for others.

use softroce_tests::hostile::{Attack, Report, run};
use std::time::Instant;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn attack(forging: bool) -> Attack {
    let packets = variable("SOFTROCE_HOSTILE_PACKETS").unwrap_or(100_000);
    Attack {
        seed: variable("SOFTROCE_HOSTILE_SEED").unwrap_or(1),
        packets,
        forging,
        rxe: false,
        go_back_0: false,
        slow: false,
        check_every: variable("SOFTROCE_HOSTILE_CHECK").unwrap_or(64),
    }
}

fn carry_out(attack: Attack) -> Report {
    let begin = Instant::now();
    let report = run(attack);
    let seconds = begin.elapsed().as_secs_f64();
    println!("{attack:?}: {seconds:.1} s");
    println!("{}", report.tally);
    println!("{} undisturbed, {} completed, {} failures", report.undisturbed, report.completed, report.failures);
    println!("{:#?}", report.counters);
    report
}

#[test]
fn from_its_own_address() {
    carry_out(attack(false));
}

#[test]
fn from_a_peers_address() {
    carry_out(attack(true));
}
