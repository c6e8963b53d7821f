//! Runs one load on a fat tree once and says what it cost.
//!
//! ```text
//! fabric_load [--load shift|incast] [--host bare|card] [--k N] [--size BYTES] [--payload BYTES] [--carried] [--lossless]
//! ```
//!
//! Under `valgrind --tool=callgrind` it gives the instructions per data packet, the same on every run.

#[allow(dead_code)] // it is shared, and not everyone uses all of it
mod harness;

use harness::{Outcome, Pattern, Setup};
use softroce_sim::fabric::PayloadMode;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    match arguments(std::env::args().skip(1)) {
        Ok((setup, host)) => {
            let begin = Instant::now();
            let outcome = match host.as_str() {
                "bare" => harness::bare(&setup),
                "card" => harness::card(&setup),
                other => return complain(&format!("host `{other}`: bare or card")),
            };
            report(&outcome, begin.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(message) => complain(&message),
    }
}

fn complain(message: &str) -> ExitCode {
    eprintln!("fabric_load: {message}");
    ExitCode::from(2)
}

fn report(outcome: &Outcome, seconds: f64) {
    let packets = outcome.packets as f64;
    println!("data packets     {}", outcome.packets);
    println!("virtual time     {}", outcome.end);
    println!("drops            {}", outcome.drops);
    println!("queue high water {} B", outcome.high_water);
    println!(
        "events           {} ({:.2} per data packet)",
        outcome.events,
        outcome.events as f64 / packets
    );
    println!("packets/s        {:.0}", packets / seconds);
    println!("ns per packet    {:.1}", seconds * 1e9 / packets);
}

fn arguments(mut args: impl Iterator<Item = String>) -> Result<(Setup, String), String> {
    let mut setup = Setup::default();
    let mut host = "bare".to_owned();
    while let Some(option) = args.next() {
        if option == "--carried" {
            setup.mode = PayloadMode::Carried;
            continue;
        }
        if option == "--lossless" {
            setup.lossless = true;
            continue;
        }
        let value = args.next().ok_or(format!("{option}: a value is missing"))?;
        let number = || value.parse().map_err(|e| format!("{option} {value}: {e}"));
        match option.as_str() {
            "--load" => {
                setup.pattern = match value.as_str() {
                    "shift" => Pattern::Shift,
                    "incast" => Pattern::Incast,
                    _ => return Err(format!("--load {value}: shift or incast")),
                }
            }
            "--host" => host = value,
            "--k" => setup.k = number()? as usize,
            "--size" => setup.bytes = number()?,
            "--payload" => setup.payload = number()?.clamp(1, 4096) as u16,
            _ => return Err(format!("unknown option {option}")),
        }
    }
    Ok((setup, host))
}
