//! Runs a plan: scenario in, report out.
//!
//! | file | what |
//! |---|---|
//! | this one | one run after the other, several at a time |
//! | `build` | from a scenario to a network of cards with its faults and loads |
//! | `collective` | from a load to the members of a collective on their hosts |
//! | `injection` | from a fault of the format to one of the simulator |
//! | `flows` | flows and rounds one by one, and the files that tell of them |
//! | `watch` | what watches the network while it runs: captures, and the packets that faults hit |
//! | `network` | receivers, routes and links that go down |
//! | `measure` | from a network that has run to the report of the run |
//! | `congestion` | rates of queue pairs, at the end and over time |
//! | `parts` | parts of a run that expectations ask of |
//! | `error` | why a plan is not run |
//! | `failures` | why requests failed, with the names of the scenario |
//! | `pauses` | pauses, their victims, deadlocks |
//! | `queues` | what waits and what is paused, over time |
//! | `recordings` | which captures are made, and what their files are called |
//! | `twins` | the runs without loss that goodput is compared with |

mod build;
mod collective;
mod congestion;
mod error;
mod failures;
mod flows;
pub(crate) mod injection;
#[cfg(test)]
mod limits;
mod measure;
mod network;
mod parts;
mod pauses;
mod queues;
mod recordings;
mod twins;
mod watch;

use crate::device::NetworkReport;
use crate::format::period::Period;
use crate::format::scenario::Payload;
use crate::format::{Plan, Point, Scenario};
use crate::report::{CaptureReport, Ended, Report, Run, verdict};
pub use error::RunError;
use parts::Parts;
use softroce_sim::fabric::machine::Machine;
use softroce_sim::fabric::{ChannelId, Direction, Network};
use softroce_sim::time::{Span, Time};
use softroce_verbs::provider::sim::Fabric;
use std::cmp::Reverse;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use watch::{Recording, Watch};

/// How a plan is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where captures go; without it nothing is recorded.
    pub out: Option<PathBuf>,
    /// Links to record beside those that the file names.
    pub captures: Vec<String>,
    /// The most packets that each of these records; `None` for no limit.
    pub capture_packets: Option<u64>,
    /// Runs at the same time; 0 for as many as the machine has processors.
    pub threads: usize,
    /// Once it is true, runs end where they are, and no more are begun.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// Builds the network of every point of `plan`, to see that it can be; several at a time.
///
/// # Errors
///
/// As [`run`].
pub fn build(plan: &Plan) -> Result<(), RunError> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(plan.points.len()) {
            scope.spawn(|| {
                while let Some(point) = plan.points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = build::build(&point.scenario, &[])
                        && let Ok(mut wrong) = wrong.lock()
                    {
                        *wrong = Some(error);
                        next.store(plan.points.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match wrong.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Builds a scenario's network for programs: its hosts, switches, links and faults, without its loads.
/// Packets carry data, whatever the scenario says.
///
/// # Errors
///
/// As [`run`]; [`RunError::FaultOfLoad`] if a fault is for packets of a load, of which there are none.
pub fn stage(scenario: &Scenario) -> Result<impl Fabric + use<>, RunError> {
    if let Some(fault) = scenario.faults.iter().find(|f| f.queue_pair.is_some()) {
        return Err(RunError::FaultOfLoad(fault.name.clone()));
    }
    let mut bare = scenario.clone();
    bare.traffic.clear();
    bare.payload = Payload::Data;
    Ok(build::build(&bare, &[])?.network)
}

/// What became of a network that [`stage`] has built.
pub fn stage_report(fabric: &mut dyn Fabric) -> Option<NetworkReport> {
    let network = fabric.as_any().downcast_ref::<Network<Machine, Watch>>()?;
    let topology = network.topology();
    let channels = (0..topology.links().len()).flat_map(|link| {
        [Direction::Forward, Direction::Backward].map(|way| ChannelId::new(link, way))
    });
    let drops = channels.map(|c| network.counters(c).all_drops()).sum();
    let names = topology.hosts().iter().map(|h| h.name.clone());
    let cards = names
        .zip(network.hosts())
        .map(|(name, machine)| (name, machine.card().counters()));
    Some(NetworkReport {
        time_ps: network.now().as_ps(),
        cards: cards
            .filter(|(_, counters)| counters.sent_packets > 0)
            .collect(),
        drops,
    })
}

/// How far the runs of a plan are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Done {
    /// Runs that have ended, those without loss among them.
    pub runs: usize,
    /// Of how many.
    pub of: usize,
    /// How much of it all is done, from 0 to 1, by virtual time.
    pub share: f64,
}

/// Is told now and then how far the runs are, by any thread.
pub type Progress<'a> = &'a (dyn Fn(Done) + Sync);

/// Runs every point of `plan`, which is reported under `name`.
///
/// The report is the same to the byte for the same plan, whatever the number of threads.
///
/// # Errors
///
/// If it cannot be run at all. An expectation that fails is not an error but a verdict.
pub fn run(
    name: &str,
    plan: &Plan,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report, RunError> {
    let twins = twins::of(plan);
    let periods = parts::periods(plan);
    let mut jobs = Vec::new();
    for (n, point) in plan.points.iter().enumerate() {
        let place = (plan.points.len() > 1).then_some((n, plan.points.len()));
        let recordings = recordings::of(name, &point.scenario, place, options)?;
        let tables = recordings::tables(name, place, options);
        jobs.push(Job::Point {
            point,
            recordings,
            tables,
            periods: &periods,
        });
    }
    jobs.extend(twins.scenarios.iter().map(Job::Twin));
    let (mut runs, mut kept, mut clean) = (Vec::new(), Vec::new(), Vec::new());
    for (n, result) in all(&jobs, options, progress)?.into_iter().enumerate() {
        match result {
            Some(Outcome::Run(run)) => {
                runs.push(*run);
                kept.push(n);
            }
            Some(Outcome::Clean(goodput)) => clean.push(goodput),
            None if n < plan.points.len() => {}
            None => clean.push(None),
        }
    }
    if twins::asked(plan) {
        for (run, &n) in runs.iter_mut().zip(&kept) {
            for (i, load) in run.traffic.iter_mut().enumerate() {
                load.clean_goodput_bps = match twins.by_point[n] {
                    Some(twin) => clean[twin].as_ref().map(|clean| clean[i]),
                    // Without faults and loss a run is its own twin.
                    None => Some(load.goodput_bps),
                };
            }
        }
    }
    let not_run = plan.points.len() - kept.len();
    let report = match not_run {
        0 => verdict::report(name, plan, runs),
        _ => verdict::report(name, &plan.only(&kept), runs),
    };
    // Of those that were not run nobody knows.
    let held = report.held && not_run == 0;
    Ok(Report {
        held,
        not_run,
        ..report
    })
}

/// Something to run.
enum Job<'a> {
    /// A point of the plan, what is recorded of it, what its tables are called, if there are any, and the
    /// parts of it that are looked at.
    Point {
        point: &'a Point,
        recordings: Vec<Recording>,
        tables: Option<PathBuf>,
        periods: &'a [Period],
    },
    /// A scenario without loss, for its goodput.
    Twin(&'a Scenario),
}

impl Job<'_> {
    /// How far it goes at most. A twin with endless loads ends long before.
    fn stop(&self) -> Span {
        match self {
            Job::Point { point, .. } => point.scenario.stop,
            Job::Twin(_) => Span::ZERO,
        }
    }
}

/// What came out of a job.
enum Outcome {
    Run(Box<Run>),
    /// Goodput of each load, in bits per second; nothing if it was interrupted.
    Clean(Option<Vec<u64>>),
}

/// Runs all jobs and gives what came out in their order; nothing of those that were not begun before an
/// interruption.
fn all(
    jobs: &[Job<'_>],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Option<Outcome>>, RunError> {
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        n => n,
    };
    let meter = Meter {
        runs: AtomicUsize::new(0),
        parts: AtomicU64::new(0),
        of: jobs.len(),
        progress,
        interrupt: options.interrupt.as_deref(),
    };
    // The longest first, so that none of them is left alone at the end.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&n| Reverse(jobs[n].stop()));
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Vec<Mutex<Option<Result<Outcome, RunError>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((job, slot)) = {
                    let n = order.get(next.fetch_add(1, Ordering::Relaxed));
                    n.map(|&n| (&jobs[n], &results[n]))
                } && !failed.load(Ordering::Relaxed)
                    && !meter.is_interrupted()
                {
                    let part = meter.part();
                    let result = match job {
                        Job::Point {
                            point,
                            recordings,
                            tables,
                            periods,
                        } => point_run(point, recordings, tables.as_deref(), periods, part),
                        Job::Twin(scenario) => twins::run(scenario, part).map(Outcome::Clean),
                    };
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    if let Ok(mut slot) = slot.lock() {
                        *slot = Some(result);
                    }
                }
            });
        }
    });
    let mut errors = Vec::new();
    let mut outcomes = Vec::new();
    for slot in results {
        match slot.into_inner().ok().flatten().transpose() {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => errors.push(error),
        }
    }
    RunError::of(errors)?;
    Ok(outcomes)
}

/// Adds up how far the runs are.
struct Meter<'a> {
    runs: AtomicUsize,
    /// In parts of a run.
    parts: AtomicU64,
    of: usize,
    progress: Progress<'a>,
    interrupt: Option<&'a AtomicBool>,
}

/// Parts of a run that are told apart.
const PARTS: u64 = 1000;

impl Meter<'_> {
    fn part(&self) -> Part<'_> {
        Part {
            meter: self,
            told: 0,
            looked: 0,
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    fn tell(&self) {
        let parts = self.parts.load(Ordering::Relaxed);
        (self.progress)(Done {
            runs: self.runs.load(Ordering::Relaxed),
            of: self.of,
            share: parts as f64 / (PARTS * self.of as u64) as f64,
        });
    }
}

/// One run's part of the progress; when it is gone, the run has ended.
struct Part<'a> {
    meter: &'a Meter<'a>,
    told: u64,
    /// Events that samples stand for.
    looked: u64,
}

impl Part<'_> {
    /// The run has come so far of `stop`.
    fn at(&mut self, now: Time, stop: Span) {
        let parts = u128::from(now.as_ps()) * u128::from(PARTS) / u128::from(stop.as_ps().max(1));
        let parts = u64::try_from(parts).map_or(PARTS, |parts| parts.min(PARTS));
        self.meter
            .parts
            .fetch_add(parts - self.told, Ordering::Relaxed);
        self.told = parts;
        self.meter.tell();
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.meter.runs.fetch_add(1, Ordering::Relaxed);
        self.meter
            .parts
            .fetch_add(PARTS - self.told, Ordering::Relaxed);
        self.meter.tell();
    }
}

fn point_run(
    point: &Point,
    recordings: &[Recording],
    tables: Option<&Path>,
    periods: &[Period],
    mut part: Part<'_>,
) -> Result<Outcome, RunError> {
    let scenario = &point.scenario;
    let mut built = build::build(scenario, recordings)?;
    let mut samples = Samples::default();
    let mut parts = Parts::new(scenario, periods);
    let ended = sampled(&mut built, point, &mut samples, &mut parts, &mut part);
    let table = |what: &str| {
        let name = tables.and_then(Path::file_name)?.to_string_lossy();
        Some(tables?.with_file_name(format!("{name}-{what}.csv")))
    };
    // One file that cannot be written is no reason to keep silent of the others.
    let mut failed = Vec::new();
    let mut written = |result: Result<(), RunError>| failed.extend(result.err());
    if let (Some(path), true) = (table("flows"), scenario.flow_table) {
        written(flows::write_table(scenario, &built, &path));
    }
    if let (Some(path), Some(_)) = (table("series"), scenario.sample) {
        written(samples.series.write(scenario, &path));
    }
    if let (Some(path), Some(_)) = (table("queues"), scenario.sample) {
        written(samples.queues.write(scenario, &path));
    }
    if let (Some(path), false) = (table("rates"), samples.rates.is_empty()) {
        written(samples.rates.write(scenario, &path));
    }
    let mut run = measure::run(point, &built, ended);
    run.warnings.extend(samples.warnings());
    run.parts = match ended {
        Ended::EventLimit | Ended::Interrupted => parts.ended(),
        Ended::Dry | Ended::Stop => parts.rest(point, &built),
    };
    (run.failures, run.more_failures) = failures::of(scenario, &mut built);
    let (watch, _) = built.network.into_parts();
    let captures = watch.finish(&mut failed);
    RunError::of(failed)?;
    for (recording, frames, full) in captures {
        let network = &scenario.network;
        let links = recording.ways.iter().map(|&w| network.way_name(w));
        run.captures.push(CaptureReport {
            links: links.collect(),
            file: recording.file,
            frames,
            full,
        });
    }
    Ok(Outcome::Run(Box::new(run)))
}

/// What is noted while a network runs.
#[derive(Default)]
struct Samples {
    series: flows::Series,
    queues: queues::Queues,
    rates: congestion::Rates,
}

impl Samples {
    /// What is missing at the end because more would have had to be kept.
    fn warnings(&self) -> impl Iterator<Item = String> {
        let rows = flows::Most::ROWS;
        let all = [
            (self.series.full(), flows::Series::MOST, "samples"),
            (self.queues.full(), rows, "rows of queues"),
            (self.rates.full(), rows, "rows of rates"),
        ];
        all.into_iter().filter_map(|(until, most, what)| {
            let until = until?;
            Some(format!(
                "only the first {most} {what} were kept, up to {until}: \"sample\" must be longer for the rest"
            ))
        })
    }

    fn note(&mut self, scenario: &Scenario, built: &build::Built) {
        self.series.note(scenario, built);
        self.queues.note(scenario, &built.network);
        self.rates.note(scenario, built);
    }

    /// Forgets what was noted after the end: until then only timers ran that found nothing to do.
    fn end(&mut self, at: Time) {
        self.series.end(at);
        self.queues.end(at);
        self.rates.end(at);
    }
}

/// Runs to the end, with a sample of goodput, queues and rates as often as the scenario asks for one, and looks
/// at the parts of the run that expectations ask of.
fn sampled(
    built: &mut build::Built,
    point: &Point,
    samples: &mut Samples,
    parts: &mut Parts,
    part: &mut Part<'_>,
) -> Ended {
    let scenario = &point.scenario;
    let stop = Time::ZERO + scenario.stop;
    let mut due = scenario.sample.map(|every| Time::ZERO + every);
    // What a sample looks at.
    let queue_pairs: usize = built.flows.iter().map(Vec::len).sum();
    let looks = (queue_pairs + 2 * scenario.network.links.len()) as u64;
    let mut ended = Ended::Stop;
    while ended == Ended::Stop {
        due = due.filter(|&at| at < stop && !samples.series.is_full());
        let Some(at) = due.into_iter().chain(parts.next()).min() else {
            break;
        };
        ended = go(&mut built.network, scenario, at, part);
        if ended != Ended::Stop {
            break;
        }
        // A look is not what a run lasts for.
        let last = built.network.set_present(at);
        if due == Some(at) {
            samples.note(scenario, built);
            part.looked = part.looked.saturating_add(looks);
            due = scenario.sample.map(|every| at + every);
        }
        parts.look(at, point, built);
        built.network.set_present(last);
    }
    if ended == Ended::Stop {
        ended = go(&mut built.network, scenario, stop, part);
        if ended == Ended::Stop {
            built.network.run_until(stop);
        }
    }
    if ended == Ended::Dry {
        samples.end(built.network.now());
    }
    if scenario.sample.is_some() && !samples.series.is_full() {
        samples.note(scenario, built);
    }
    ended
}

/// Events between two looks at how far a run is: a fraction of a second.
const BATCH: u64 = 1 << 18;

/// Runs a network until `until`; the present is that of the last event.
fn go(
    network: &mut Network<Machine, Watch>,
    scenario: &Scenario,
    until: Time,
    part: &mut Part<'_>,
) -> Ended {
    loop {
        if part.meter.is_interrupted() {
            return Ended::Interrupted;
        }
        let spent = network.event_count().saturating_add(part.looked);
        let left = scenario.event_limit.saturating_sub(spent);
        let most = left.min(BATCH);
        let handled = network.run_events(until, most);
        match network.next_event() {
            None => return Ended::Dry,
            Some(at) if at > until && spent <= scenario.event_limit => return Ended::Stop,
            Some(_) if handled == left => return Ended::EventLimit,
            Some(_) => {}
        }
        part.at(network.now(), scenario.stop);
    }
}
