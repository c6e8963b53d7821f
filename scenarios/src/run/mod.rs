//! Runs a plan: scenario in, report out.
//!
//! | file | what |
//! |---|---|
//! | this one | one run after the other, several at a time |
//! | `build` | from a scenario to a network of cards with its faults and loads |
//! | `watch` | what watches the network while it runs: captures, and the packets that faults hit |
//! | `measure` | from a network that has run to the report of the run |
//! | `recordings` | which captures are made, and what their files are called |
//! | `twins` | the runs without loss that goodput is compared with |

mod build;
mod measure;
mod recordings;
mod twins;
mod watch;

use crate::format::{Plan, Point, Scenario};
use crate::report::{CaptureReport, Ended, Report, Run, verdict};
use softroce_sim::card::CreateError;
use softroce_sim::fabric::TopologyError;
use softroce_sim::fabric::faults::FaultError;
use softroce_sim::fabric::machine::{FlowError, Machine};
use softroce_sim::time::Time;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use watch::{Recording, Watch};

/// How a plan is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where captures go; without it nothing is recorded.
    pub out: Option<PathBuf>,
    /// Links to record beside those that the file names.
    pub captures: Vec<String>,
    /// Runs at the same time; 0 for as many as the machine has processors.
    pub threads: usize,
}

/// Why a plan was not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The network cannot be built.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A card cannot be made.
    #[error("the card of host \"{host}\": {source}")]
    Card {
        /// The host.
        host: String,
        /// Why.
        source: CreateError,
    },
    /// A load cannot be set up.
    #[error("traffic \"{load}\": {source}")]
    Load {
        /// The load.
        load: String,
        /// Why.
        source: FlowError,
    },
    /// A fault makes no sense.
    #[error("fault \"{fault}\": {source}")]
    Fault {
        /// The fault.
        fault: String,
        /// Why.
        source: FaultError,
    },
    /// A link to record is not there.
    #[error("no link is called \"{0}\"")]
    UnknownLink(String),
    /// A capture cannot be written.
    #[error("{}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
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
    let mut jobs = Vec::new();
    for (n, point) in plan.points.iter().enumerate() {
        let place = (plan.points.len() > 1).then_some((n, plan.points.len()));
        jobs.push((
            point,
            recordings::of(name, &point.scenario, place, options)?,
        ));
    }
    jobs.extend(twins.runs.iter().map(|twin| (twin, Vec::new())));
    let mut runs = all(&jobs, options.threads, progress)?;
    let clean = runs.split_off(plan.points.len());
    for (n, run) in runs.iter_mut().enumerate() {
        let scenario = &plan.points[n].scenario;
        if verdict::needs_clean_run(scenario) {
            // Without faults and loss a run is its own twin.
            let bps: Vec<u64> = twins.by_point[n]
                .map_or(&*run, |twin| &clean[twin])
                .traffic
                .iter()
                .map(|load| load.goodput_bps)
                .collect();
            for (load, bps) in run.traffic.iter_mut().zip(bps) {
                load.clean_goodput_bps = Some(bps);
            }
        }
        verdict::predict(scenario, run);
    }
    Ok(verdict::report(name, plan, runs))
}

/// What is run, and what is recorded of it.
type Job<'a> = (&'a Point, Vec<Recording>);

/// Runs all jobs on `threads` threads and gives what came out in their order.
fn all(jobs: &[Job<'_>], threads: usize, progress: Progress<'_>) -> Result<Vec<Run>, RunError> {
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        n => n,
    };
    let meter = Meter {
        runs: AtomicUsize::new(0),
        parts: AtomicU64::new(0),
        of: jobs.len(),
        progress,
    };
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Vec<Mutex<Option<Result<Run, RunError>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some((point, recordings)) = jobs.get(n) else {
                        return;
                    };
                    if failed.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = one(point, recordings, &meter);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    if let Ok(mut slot) = results[n].lock() {
                        *slot = Some(result);
                    }
                }
            });
        }
    });
    // Jobs are begun in order, so that those left out after a failure lie behind one that has failed.
    results
        .into_iter()
        .filter_map(|slot| slot.into_inner().ok().flatten())
        .collect()
}

/// Adds up how far the runs are.
struct Meter<'a> {
    runs: AtomicUsize,
    /// In parts of a run.
    parts: AtomicU64,
    of: usize,
    progress: Progress<'a>,
}

/// Parts of a run that are told apart.
const PARTS: u64 = 1000;

impl Meter<'_> {
    fn tell(&self) {
        let parts = self.parts.load(Ordering::Relaxed);
        (self.progress)(Done {
            runs: self.runs.load(Ordering::Relaxed),
            of: self.of,
            share: parts as f64 / (PARTS * self.of as u64) as f64,
        });
    }
}

/// Events between two looks at how far a run is: a fraction of a second.
const BATCH: u64 = 1 << 20;

fn one(point: &Point, recordings: &[Recording], meter: &Meter<'_>) -> Result<Run, RunError> {
    let scenario = &point.scenario;
    let topology = build::topology(scenario)?;
    let watch = Watch::new(&topology, recordings)?;
    let mut built = build::build(scenario, &topology, watch)?;
    built.network.observer_mut().know(&built.faults);
    let mut told = 0;
    let ended = go(&mut built.network, scenario, |parts| {
        meter.parts.fetch_add(parts - told, Ordering::Relaxed);
        told = parts;
        meter.tell();
    });
    let mut run = measure::run(point, &built, ended);
    meter.runs.fetch_add(1, Ordering::Relaxed);
    meter.parts.fetch_add(PARTS - told, Ordering::Relaxed);
    meter.tell();
    let (watch, _) = built.network.into_parts();
    for (recording, frames) in watch.finish()? {
        let network = &scenario.network;
        run.captures.push(CaptureReport {
            file: recording.file,
            links: recording
                .ways
                .iter()
                .map(|&w| network.way_name(w))
                .collect(),
            frames,
        });
    }
    Ok(run)
}

/// Runs a network to its end; `tell` is told now and then how many of [`PARTS`] are done.
fn go(
    network: &mut softroce_sim::fabric::Network<Machine, Watch>,
    scenario: &Scenario,
    mut tell: impl FnMut(u64),
) -> Ended {
    let stop = Time::ZERO + scenario.stop;
    loop {
        let left = scenario.event_limit.saturating_sub(network.event_count());
        let most = left.min(BATCH);
        let handled = network.run_events(stop, most);
        match network.next_event() {
            None => return Ended::Dry,
            Some(_) if handled == left => return Ended::EventLimit,
            Some(_) if handled < most => {
                network.run_until(stop);
                return Ended::Stop;
            }
            Some(_) => {}
        }
        let done = u128::from(network.now().as_ps()) * u128::from(PARTS);
        let done = done / u128::from(stop.as_ps().max(1));
        tell(u64::try_from(done).map_or(PARTS, |done| done.min(PARTS)));
    }
}
