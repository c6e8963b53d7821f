//! Our card against the Linux kernel's Soft-RoCE driver, alive: each case in both roles, on each kernel.
//!
//! Without a guest (see `tests/README.md`) there is nothing to play with, and one line says so. Arguments
//! filter by `KERNEL/ROLE/CASE`, as in `cargo test -p softroce-tests --test interop -- 6.1/card/read`.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod cm;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod refusals;

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("skipped: the card's Ethernet port to a guest needs Linux");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{cases, cm, faults, refusals};
    use libtest_mimic::Arguments;
    use softroce::inspect::{Options, Severity, inspect};
    use softroce_tests::interop::guest::{self, KERNELS};
    use softroce_tests::interop::{Outcome, Side, World};
    use std::process::ExitCode;
    use std::time::Instant;

    /// An exchange between a requester and the other side.
    pub(super) type Play = fn(&mut World, Side) -> Outcome;

    fn role(requester: Side) -> &'static str {
        match requester {
            Side::Card => "card",
            Side::Kernel => "kernel",
        }
    }

    /// No frame is other than it must be, and nobody breaks a rule of the transport.
    fn judge(world: &World) -> Outcome {
        world.inspect()?;
        let capture = world.capture().map_err(|e| e.to_string())?;
        let inspection =
            inspect(&capture[..], "the cable", &Options::default()).map_err(|e| e.to_string())?;
        let broken: Vec<_> = inspection
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Violation)
            .map(|f| format!("packet {}: {}", f.packet, f.text))
            .collect();
        match broken.is_empty() {
            true => Ok(()),
            false => Err(broken.join("; ")),
        }
    }

    pub(super) fn main() -> ExitCode {
        let arguments = Arguments::from_args();
        let all = || {
            let tables = [cases::ALL, faults::ALL, refusals::ALL];
            let tables = tables.into_iter().chain(cm::ALL.iter().copied());
            tables.flatten().copied()
        };
        let wanted = |kernel: &str, requester: Side, case: &str| {
            let name = format!("{kernel}/{}/{case}", role(requester));
            let filters = arguments.filter.iter();
            let skipped = arguments.skip.iter().any(|s| name.contains(s.as_str()));
            !skipped
                && filters.into_iter().all(|f| match arguments.exact {
                    true => name == *f,
                    false => name.contains(f.as_str()),
                })
        };
        let roles = [Side::Card, Side::Kernel];
        let any = |kernel: &str| {
            all().any(|(case, _)| roles.iter().any(|&side| wanted(kernel, side, case)))
        };
        if arguments.list {
            for kernel in KERNELS {
                for (case, _) in all() {
                    for side in roles {
                        println!("{kernel}/{}/{case}: test", role(side));
                    }
                }
            }
            return ExitCode::SUCCESS;
        }
        if arguments.ignored || !KERNELS.into_iter().any(any) {
            return ExitCode::SUCCESS;
        }
        let Some(folder) = guest::find() else {
            return ExitCode::SUCCESS;
        };
        let (mut passed, mut failures) = (0, Vec::new());
        for kernel in KERNELS.into_iter().filter(|kernel| any(kernel)) {
            let start = Instant::now();
            let mut world = match guest::Guest::start(&folder, kernel) {
                Ok(guest) => World::new(guest),
                Err(e) => {
                    failures.push(format!("{kernel}: {e}"));
                    continue;
                }
            };
            println!("\nkernel {kernel} (up after {:.1?})", start.elapsed());
            println!("{:44} {:>16} {:>16}", "requester", "card", "kernel");
            for (case, play) in all() {
                let verdicts = roles.map(|side| {
                    if !wanted(kernel, side, case) {
                        return String::new();
                    }
                    let start = Instant::now();
                    let outcome = play(&mut world, side).and_then(|()| judge(&world));
                    let verdict = match outcome {
                        Ok(()) => {
                            passed += 1;
                            "pass"
                        }
                        Err(e) => {
                            failures.push(format!("{kernel}/{}/{case}: {e}", role(side)));
                            "FAIL"
                        }
                    };
                    format!("{verdict} {:6.0?}", start.elapsed())
                });
                println!("{case:44} {:>16} {:>16}", verdicts[0], verdicts[1]);
            }
            println!("{kernel}: {:.1?}", start.elapsed());
        }
        println!("\n{passed} passed, {} failed", failures.len());
        for failure in &failures {
            println!("  {failure}");
        }
        match failures.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

/// Fails unless the two are equal.
#[cfg(target_os = "linux")]
pub(crate) fn equal<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> softroce_tests::interop::Outcome {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}, {expected:?} expected")),
    }
}
