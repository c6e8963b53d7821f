//! Every rule of the conformance suite as a test of its own name; `cargo test -p softroce-tests --test
//! conformance NAME` runs those whose names have it. The table is printed by `softroce conformance`.

use libtest_mimic::{Arguments, Failed, Trial};
use softroce_tests::conformance::{self, Source};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = conformance::all().map(|(group, rule)| {
        let kind = match rule.source {
            Source::Behaviour => String::new(),
            source => source.to_string(),
        };
        let name = format!("{}::{}", group.name, rule.name);
        Trial::test(name, move || {
            let failures = conformance::run(rule).failures;
            let told: Vec<_> = failures
                .iter()
                .map(|f| format!("{} at {}:\n{}", f.test, f.place, f.message))
                .collect();
            match told.is_empty() {
                true => Ok(()),
                false => Err(Failed::from(told.join("\n"))),
            }
        })
        .with_kind(kind)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
