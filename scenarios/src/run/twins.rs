//! The runs without loss that goodput is compared with.

use super::build::{self, Built};
use super::{Ended, Part, RunError, go, measure};
use crate::format::traffic::Amount;
use crate::format::{Plan, Scenario};
use crate::report::verdict::needs_clean_run;
use crate::units::Probability;
use softroce_sim::time::{Span, Time};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};

/// The twins of a plan's points.
pub(super) struct Twins {
    /// Each once: points that differ in their losses alone share one.
    pub(super) scenarios: Vec<Scenario>,
    /// By point of the plan: its twin, if it has one.
    pub(super) by_point: Vec<Option<usize>>,
}

/// The twins of all points of `plan`, if the expectations of any ask for one.
pub(super) fn of(plan: &Plan) -> Twins {
    let mut twins = Twins {
        scenarios: Vec::new(),
        by_point: Vec::new(),
    };
    // By digest, so that a sweep of thousands is not compared each with each.
    let mut known: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let asked = asked(plan);
    for point in &plan.points {
        let twin = (asked && can_lose(&point.scenario)).then(|| {
            let scenario = without_loss(&point.scenario);
            let alike = known.entry(digest(&scenario)).or_default();
            let found = alike.iter().find(|&&n| twins.scenarios[n] == scenario);
            found.copied().unwrap_or_else(|| {
                alike.push(twins.scenarios.len());
                twins.scenarios.push(scenario);
                twins.scenarios.len() - 1
            })
        });
        twins.by_point.push(twin);
    }
    twins
}

/// True if the report of `plan` is to say what goodput would be without loss.
pub(super) fn asked(plan: &Plan) -> bool {
    plan.points.iter().any(|p| needs_clean_run(&p.scenario))
}

fn can_lose(scenario: &Scenario) -> bool {
    let lossy = |p: &Probability| p.get() > 0.0;
    !scenario.faults.is_empty()
        || !scenario.link_events.is_empty()
        || scenario
            .network
            .links
            .iter()
            .any(|l| l.loss.iter().any(lossy))
}

/// The scenario without faults, loss and links that go down, and without what does not bear on the goodput.
fn without_loss(scenario: &Scenario) -> Scenario {
    let mut twin = scenario.clone();
    twin.faults.clear();
    twin.link_events.clear();
    twin.captures.clear();
    twin.expectations.clear();
    for link in &mut twin.network.links {
        link.loss = Default::default();
    }
    twin
}

fn digest(scenario: &Scenario) -> u64 {
    struct Digest(DefaultHasher);
    impl Write for Digest {
        fn write_str(&mut self, s: &str) -> std::fmt::Result {
            self.0.write(s.as_bytes());
            Ok(())
        }
    }
    let mut digest = Digest(DefaultHasher::new());
    let _ = write!(digest, "{scenario:?}");
    digest.0.finish()
}

/// Messages that a load must have had in an interval for its goodput there to count.
const ENOUGH: u64 = 1000;
/// How much the goodput of two intervals may differ to have settled, as one part in so many.
const SETTLED: u128 = 1000;

/// Runs a scenario without loss and gives the goodput of each of its loads in bits per second, unless it is
/// interrupted.
///
/// Loads that go on to the end of the run are left as soon as their goodput has settled: from one
/// interval to the next, of twice the length, it changes no more.
pub(super) fn run(scenario: &Scenario, mut part: Part<'_>) -> Result<Option<Vec<u64>>, RunError> {
    let mut built = build::build(scenario, &[])?;
    let stop = Time::ZERO + scenario.stop;
    let endless = scenario.traffic.iter().all(|load| match load.amount {
        Amount::For(span) => Time::ZERO + load.start + span >= stop,
        Amount::Messages(_) => false,
    });
    if endless {
        // The time and, by load, the bytes at the ends of the last intervals.
        let mut marks: Vec<(Time, Vec<u64>)> = Vec::new();
        for halvings in (1..=10).rev() {
            let until = Time::from_ps(stop.as_ps() >> halvings);
            if go(&mut built.network, scenario, until, &mut part) != Ended::Stop {
                break;
            }
            marks.push((until, bytes(scenario, &built)));
            if let [.., a, b, c] = marks.as_slice()
                && let Some(goodput) = settled(scenario, a, b, c)
            {
                return Ok(Some(goodput));
            }
        }
    }
    match go(&mut built.network, scenario, stop, &mut part) {
        Ended::Interrupted => return Ok(None),
        Ended::Stop => built.network.run_until(stop),
        Ended::Dry | Ended::EventLimit => {}
    }
    let loads = 0..scenario.traffic.len();
    let goodput = loads.map(|n| measure::load(scenario, &built, n).goodput_bps);
    Ok(Some(goodput.collect()))
}

/// Bytes that each load has delivered.
fn bytes(scenario: &Scenario, built: &Built) -> Vec<u64> {
    let flows = scenario.traffic.iter().zip(&built.flows);
    flows
        .map(|(load, ids)| {
            let bytes = ids
                .iter()
                .map(|&id| measure::delivered(load, &built.network, id).bytes);
            bytes.sum()
        })
        .collect()
}

/// The goodput of each load from `b` to `c`, if it was the same from `a` to `b`.
fn settled(
    scenario: &Scenario,
    a: &(Time, Vec<u64>),
    b: &(Time, Vec<u64>),
    c: &(Time, Vec<u64>),
) -> Option<Vec<u64>> {
    let (first, second): (Span, Span) = (b.0.since(a.0), c.0.since(b.0));
    let loads = scenario.traffic.iter().enumerate();
    loads
        .map(|(n, load)| {
            let (before, after) = (b.1[n] - a.1[n], c.1[n] - b.1[n]);
            if after < load.size.0.max(1) * ENOUGH {
                return None;
            }
            let x = u128::from(before) * u128::from(second.as_ps());
            let y = u128::from(after) * u128::from(first.as_ps());
            (x.abs_diff(y) <= y / SETTLED).then(|| measure::goodput(after, second))
        })
        .collect()
}
