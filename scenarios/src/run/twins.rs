//! The runs without loss that goodput is compared with.

use crate::format::{Plan, Point, Scenario};
use crate::report::verdict::needs_clean_run;
use crate::units::Probability;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};

/// The twins of a plan's points.
pub(super) struct Twins {
    /// Each once: points that differ in their losses alone share one.
    pub(super) runs: Vec<Point>,
    /// By point of the plan: its twin, if it has one.
    pub(super) by_point: Vec<Option<usize>>,
}

/// The twins that the expectations of `plan` ask for.
pub(super) fn of(plan: &Plan) -> Twins {
    let mut twins = Twins {
        runs: Vec::new(),
        by_point: Vec::new(),
    };
    // By digest, so that a sweep of thousands is not compared each with each.
    let mut known: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for point in &plan.points {
        let twin = (needs_clean_run(&point.scenario) && can_lose(&point.scenario)).then(|| {
            let scenario = without_loss(&point.scenario);
            let alike = known.entry(digest(&scenario)).or_default();
            let found = alike.iter().find(|&&n| twins.runs[n].scenario == scenario);
            found.copied().unwrap_or_else(|| {
                alike.push(twins.runs.len());
                twins.runs.push(Point {
                    values: Vec::new(),
                    scenario,
                    skipped: 0,
                });
                twins.runs.len() - 1
            })
        });
        twins.by_point.push(twin);
    }
    twins
}

fn can_lose(scenario: &Scenario) -> bool {
    let lossy = |p: &Probability| p.get() > 0.0;
    !scenario.faults.is_empty()
        || scenario
            .network
            .links
            .iter()
            .any(|l| l.loss.iter().any(lossy))
}

/// The scenario without faults and loss, and without what does not bear on the goodput.
fn without_loss(scenario: &Scenario) -> Scenario {
    let mut twin = scenario.clone();
    twin.faults.clear();
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
