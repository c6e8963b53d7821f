//! The command line.
//!
//! Results go to standard output, progress and diagnostics to standard error. The exit code is 0 if all
//! expectations held, 1 if one failed, 2 if the input was bad, 130 if it was interrupted.

mod conformance;
mod devices;
mod interrupt;
mod output;
mod scenarios;

use crate::arguments::{integer, seed};
use crate::format::{Diagnostics, Plan};
use crate::inspect;
use crate::plain::plain;
use crate::report::text::Detail;
use crate::report::{self, Report, table, text};
use crate::run::{self, Options, RunError};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use output::Output;
use scenarios::Loaded;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs RoCE scenarios: a network, a load, faults, and what must come out.
#[derive(Parser, Debug)]
#[command(name = "softroce", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run scenarios and judge them by their expectations.
    Run(RunArgs),
    /// Run a scenario over ranges of parameters and print a table.
    Sweep(SweepArgs),
    /// Read and check scenarios without running them.
    Check(CheckArgs),
    /// List the scenarios that come with the program.
    List(ListArgs),
    /// Decode a capture and tell where it breaks a rule of the transport.
    ///
    /// The exit status is 0 if no packet breaks a rule, 1 if one does, 2 if a file cannot be read or has no
    /// RoCE packet, so that nothing was checked.
    Inspect(InspectArgs),
    /// Hold the card against the rules of RoCEv2 and print which of them are covered.
    Conformance(conformance::ConformanceArgs),
    /// List the devices that verbs programs can open here.
    Devices(devices::DevicesArgs),
    Perf(crate::perf::Options),
    #[cfg(target_os = "linux")]
    Pingpong(crate::pingpong::Options),
}

/// Reads the scenario that `argument` names, a file or one of the library.
pub(crate) fn read(argument: &Path, settings: &[String]) -> Result<Plan, Diagnostics> {
    Ok(Loaded::read(argument, settings, false)?.plan)
}

const SCENARIO: &str = "A scenario file, or the name of a scenario from `softroce list`";
const SET: &str = "Set a key of the scenario, such as link.rate=40Gbps, card.h1.timeout=4 or \
                   fault.forward.rate=1e-4";

#[derive(Args, Debug)]
struct RunArgs {
    #[arg(required = true, value_name = "SCENARIO", help = SCENARIO)]
    scenarios: Vec<PathBuf>,
    #[arg(long = "set", value_name = "PATH=VALUE", help = SET)]
    set: Vec<String>,
    /// Tell of every run of a sweep in full, not only of those that did not hold.
    #[arg(long, conflicts_with = "json")]
    details: bool,
    #[command(flatten)]
    how: How,
}

#[derive(Args, Debug)]
struct SweepArgs {
    #[arg(value_name = "SCENARIO", help = SCENARIO)]
    scenario: PathBuf,
    /// Vary a key of the scenario, such as link.loss=0,1e-5,1e-4; one value sets it.
    #[arg(long = "set", value_name = "PATH=VALUE,...")]
    set: Vec<String>,
    /// Print the table as CSV, in bits per second, picoseconds and bytes.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    how: How,
}

/// How scenarios are run, and what is left of it.
#[derive(Args, Debug)]
struct How {
    /// Seed of every random stream, instead of the scenario's.
    #[arg(long, value_name = "N", value_parser = seed)]
    seed: Option<u64>,
    /// Directory for captures and reports; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Record this link, or direction (h0->s0), beside those that the scenario names.
    #[arg(long = "capture", value_name = "LINK", requires = "out")]
    captures: Vec<String>,
    /// The most packets of each link that --capture names; later ones are left out.
    #[arg(long, value_name = "N", value_parser = packets, default_value_t = CAPTURE_PACKETS, requires = "captures")]
    capture_packets: u64,
    /// Print one JSON document with the whole report of each run.
    #[arg(long)]
    json: bool,
    /// Runs at the same time [default: as many as there are processors].
    #[arg(long, short = 'j', value_name = "N", value_parser = jobs)]
    jobs: Option<usize>,
}

/// Packets of a capture if nothing else is said: at most some 9 GB with jumbo frames.
const CAPTURE_PACKETS: u64 = 1_000_000;

fn packets(text: &str) -> Result<u64, String> {
    integer(text, 1, u64::MAX)
}

fn jobs(text: &str) -> Result<usize, String> {
    integer(text, 1, 1 << 16).map(|n| n as usize)
}

impl How {
    fn options(&self, interrupt: &Arc<AtomicBool>) -> Options {
        Options {
            out: self.out.clone(),
            captures: self.captures.clone(),
            capture_packets: Some(self.capture_packets),
            threads: self.jobs.unwrap_or(0),
            interrupt: Some(Arc::clone(interrupt)),
        }
    }
}

#[derive(Args, Debug)]
struct CheckArgs {
    #[arg(required = true, value_name = "SCENARIO", help = SCENARIO)]
    scenarios: Vec<PathBuf>,
    #[arg(long = "set", value_name = "PATH=VALUE,...", help = SET)]
    set: Vec<String>,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct InspectArgs {
    /// pcap or pcapng files; - is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON lines: one for each packet, then a summary of each file.
    #[arg(long)]
    json: bool,
    /// Follow packets with a bad ICRC too: for captures that do not have the ICRC.
    #[arg(long)]
    ignore_icrc: bool,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// All expectations held.
    Held = 0,
    /// Some failed.
    Failed = 1,
    /// The input was bad; it has been told why.
    Bad = 2,
    /// It was interrupted, and has told how far it came.
    Interrupted = interrupt::CODE as isize,
}

/// Runs the program with these arguments, the first of which is its own name.
pub fn main(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let cli = match crate::arguments::parse::<Cli>(args) {
        Ok(cli) => cli,
        Err(error) => {
            // A reader that has gone away is no failure of ours.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let mut out = Output::default();
    let outcome = match cli.command {
        Command::Run(args) => run(&args, &mut out),
        Command::Sweep(args) => sweep(&args, &mut out),
        Command::Check(args) => check(&args, &mut out),
        Command::List(args) => {
            scenarios::list(args.json, &mut out);
            Outcome::Held
        }
        Command::Inspect(args) => inspect(&args, &mut out),
        Command::Conformance(args) => conformance::conformance(&args, &mut out),
        Command::Perf(options) => perf(&options, &mut out),
        Command::Devices(args) => devices::devices_command(&args, &mut out),
        #[cfg(target_os = "linux")]
        Command::Pingpong(options) => return pingpong(&options),
    };
    match out.finish() {
        Ok(()) => ExitCode::from(outcome as u8),
        Err(error) => {
            complain(format!("standard output: {error}"));
            ExitCode::from(Outcome::Bad as u8)
        }
    }
}

fn perf(options: &crate::perf::Options, out: &mut Output) -> Outcome {
    match crate::perf::run(options) {
        Ok(finished) => {
            out.write(&finished.output);
            finished.complaints.iter().for_each(complain);
            match finished.code {
                0 => Outcome::Held,
                _ => Outcome::Failed,
            }
        }
        Err(error) => bad(format!("perf: {error}")),
    }
}

#[cfg(target_os = "linux")]
fn pingpong(options: &crate::pingpong::Options) -> ExitCode {
    match crate::pingpong::run(options) {
        Ok(code) => code,
        Err(error) => {
            complain(format!("pingpong: {error}"));
            error.exit_code()
        }
    }
}

/// Writes a diagnostic to standard error. Whoever closed that does not want to know.
fn complain(message: impl Display) {
    use std::io::Write;
    let message = message.to_string();
    let _ = writeln!(std::io::stderr().lock(), "softroce: {}", plain(&message));
}

fn bad(message: impl Display) -> Outcome {
    complain(message);
    Outcome::Bad
}

/// The settings of a command line with its seed among them.
fn settings(set: &[String], seed: Option<u64>) -> Vec<String> {
    set.iter()
        .cloned()
        .chain(seed.map(|seed| format!("seed={seed}")))
        .collect()
}

/// Steps of the bar.
const BAR: u64 = 1000;

/// A bar for long runs, on a terminal only.
fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(BAR), ProgressDrawTarget::hidden());
    if std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn run(args: &RunArgs, out: &mut Output) -> Outcome {
    let how = &args.how;
    let settings = settings(&args.set, how.seed);
    let mut loaded = Vec::new();
    let mut outcome = Outcome::Held;
    // Every scenario is read before any is run: what is misspelt shows at once.
    for scenario in &args.scenarios {
        match load(scenario, &settings, false, how) {
            Ok(l) => loaded.push(l),
            Err(bad) => outcome = bad,
        }
    }
    if outcome == Outcome::Bad {
        return outcome;
    }
    if how.out.is_some()
        && let Some(name) = scenarios::twice(&loaded)
    {
        return bad(format!(
            "two scenarios are called \"{name}\"; with --out they would overwrite each other"
        ));
    }
    if let Err(message) = make(how.out.as_deref()) {
        return bad(message);
    }
    let interrupt = interrupt::watch();
    let (mut reports, mut unsaved) = (Vec::new(), Vec::new());
    for (n, l) in loaded.iter().enumerate() {
        if outcome == Outcome::Interrupted {
            break;
        }
        let report = match execute(l, how, &interrupt) {
            Ok(report) => report,
            Err(bad) => {
                // What has been run is told all the same.
                outcome = outcome.max(bad);
                break;
            }
        };
        let failed = save(how, &report);
        outcome = outcome.max(judged(&report));
        if how.json {
            reports.push(report);
            unsaved.extend(failed);
            continue;
        }
        if n > 0 {
            out.write("\n");
        }
        let detail = match args.details {
            true => Detail::Full,
            false => Detail::Table,
        };
        out.write(&text::render(&report, detail));
        outcome = outcome.max(told(&failed));
    }
    if how.json && !reports.is_empty() {
        out.write(&report::json(&reports));
        outcome = outcome.max(told(&unsaved));
    }
    outcome
}

fn sweep(args: &SweepArgs, out: &mut Output) -> Outcome {
    let how = &args.how;
    let settings = settings(&args.set, how.seed);
    let loaded = match load(&args.scenario, &settings, true, how) {
        Ok(loaded) => loaded,
        Err(bad) => return bad,
    };
    if loaded.plan.axes.is_empty() {
        return bad(format!(
            "{}: nothing to sweep: no key has several values, in the scenario's [sweep] or by --set; say what \
             to vary, such as --set link.loss=0,1e-5,1e-4",
            loaded.name
        ));
    }
    if let Err(message) = make(how.out.as_deref()) {
        return bad(message);
    }
    match execute(&loaded, how, &interrupt::watch()) {
        Ok(report) => {
            let failed = save(how, &report);
            out.write(&match (how.json, args.csv) {
                (true, _) => report::json(std::slice::from_ref(&report)),
                (_, true) => table::csv(&report),
                _ => table::render(&report),
            });
            judged(&report).max(told(&failed))
        }
        Err(bad) => bad,
    }
}

fn judged(report: &Report) -> Outcome {
    match report.held {
        _ if report.is_interrupted() => Outcome::Interrupted,
        true => Outcome::Held,
        false => Outcome::Failed,
    }
}

/// Reads a scenario and checks that it can be run as asked; tells what is wrong.
fn load(scenario: &Path, settings: &[String], many: bool, how: &How) -> Result<Loaded, Outcome> {
    let loaded = Loaded::read(scenario, settings, many).map_err(bad_input)?;
    loaded.check_captures(&how.captures).map_err(bad)?;
    Ok(loaded)
}

/// Makes the folder for results.
fn make(dir: Option<&Path>) -> Result<(), String> {
    let Some(dir) = dir else {
        return Ok(());
    };
    let name = dir.display();
    if dir.exists() && !dir.is_dir() {
        return Err(format!(
            "--out {name}: this is a file, and not a folder for results"
        ));
    }
    std::fs::create_dir_all(dir).map_err(|error| format!("--out {name}: {error}"))
}

/// Runs a scenario; tells what goes wrong.
fn execute(loaded: &Loaded, how: &How, interrupt: &Arc<AtomicBool>) -> Result<Report, Outcome> {
    let bar = bar();
    let name = plain(&loaded.name);
    bar.set_message(name.to_string());
    let report = run::run(
        &loaded.name,
        &loaded.plan,
        &how.options(interrupt),
        &|done| {
            bar.set_position((done.share * BAR as f64) as u64);
            bar.set_message(format!("{name} {}/{}", done.runs, done.of));
        },
    );
    bar.finish_and_clear();
    let report = report.map_err(|error| refuse(loaded, &error))?;
    let captures = report.runs.iter().flat_map(|run| &run.captures);
    for capture in captures.filter(|c| c.full && c.frames == how.capture_packets) {
        complain(format!(
            "{}: ended after {} packets; --capture-packets N sets another limit",
            capture.file, capture.frames
        ));
    }
    Ok(report)
}

/// Complains of what failed; when what was found has been printed.
fn told(failed: &[String]) -> Outcome {
    failed.iter().for_each(complain);
    match failed.is_empty() {
        true => Outcome::Held,
        false => Outcome::Bad,
    }
}

/// Tells why a scenario cannot be run, and where in its file that is.
fn refuse(loaded: &Loaded, error: &RunError) -> Outcome {
    match loaded.place(error) {
        Some(place) => bad_input(format!("{place}: {error}")),
        None => {
            let told = match error {
                RunError::Files(all) => all.as_slice(),
                one => std::slice::from_ref(one),
            };
            for error in told {
                complain(format!("{}: {error}", loaded.name));
            }
            Outcome::Bad
        }
    }
}

/// Writes a report in every form into the folder for results, if there is one; gives a line for each file that
/// could not be written.
fn save(how: &How, report: &Report) -> Vec<String> {
    let Some(dir) = &how.out else {
        return Vec::new();
    };
    let mut forms = vec![
        ("txt", text::render(report, Detail::Full)),
        ("json", report::json(std::slice::from_ref(report))),
    ];
    if !report.axes.is_empty() {
        forms.push(("csv", table::csv(report)));
    }
    let mut failed = Vec::new();
    for (ending, content) in forms {
        let path = dir.join(format!("{}.{ending}", report.scenario));
        if let Err(e) = std::fs::write(&path, plain(&content).as_bytes()) {
            failed.push(format!("{}: {e}", path.display()));
        }
    }
    failed
}

fn check(args: &CheckArgs, out: &mut Output) -> Outcome {
    let mut outcome = Outcome::Held;
    for scenario in &args.scenarios {
        match Loaded::read(scenario, &args.set, true) {
            Ok(loaded) => match run::build(&loaded.plan) {
                Ok(()) => out.write(&loaded.summary()),
                Err(error) => outcome = refuse(&loaded, &error),
            },
            Err(diagnostics) => outcome = bad_input(diagnostics),
        }
    }
    outcome
}

/// Diagnostics begin with their place, as compilers write it, so that editors find it.
fn bad_input(diagnostics: impl Display) -> Outcome {
    use std::io::Write;
    let diagnostics = diagnostics.to_string();
    let _ = writeln!(std::io::stderr().lock(), "{}", plain(&diagnostics));
    Outcome::Bad
}

fn inspect(args: &InspectArgs, out: &mut Output) -> Outcome {
    let options = inspect::Options {
        ignore_icrc: args.ignore_icrc,
        ..inspect::Options::default()
    };
    let mut outcome = Outcome::Held;
    for path in &args.files {
        let name = match inspect::is_standard_input(path) {
            true => "standard input".into(),
            false => path.display().to_string(),
        };
        let mut out = BufWriter::new(&mut *out);
        let result = inspect::open(path).and_then(|file| match args.json {
            true => inspect::write_json(file, &name, &options, &mut out),
            false => inspect::write_text(file, &name, &options, &mut out),
        });
        outcome = outcome.max(match result {
            Ok(inspection) => match inspection.exit_code() {
                0 => Outcome::Held,
                1 => Outcome::Failed,
                _ => Outcome::Bad,
            },
            // Told by whoever finishes the output.
            Err(inspect::InspectError::Output(_)) => Outcome::Bad,
            Err(error) => bad(error),
        });
    }
    outcome
}
