//! Parts of a run that expectations ask of: what was counted by their two ends, and means between them.

use super::build::{Built, channel};
use super::{congestion, measure};
use crate::format::period::Period;
use crate::format::{Plan, Point, Scenario};
use crate::report::congestion::CongestionReport;
use crate::report::part::Part;
use crate::report::{Ended, Run};
use softroce_sim::time::{Span, Time};

/// How often a part is looked at for means.
const LOOKS: u64 = 200;

/// The parts that the expectations of any point of a plan ask of.
pub(super) fn periods(plan: &Plan) -> Vec<Period> {
    let points = plan.points.iter();
    let expectations = points.flat_map(|p| &p.scenario.expectations);
    let mut all: Vec<Period> = expectations.flat_map(|e| e.periods()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The parts of one run.
pub(super) struct Parts {
    open: Vec<Open>,
    ended: Vec<Part>,
}

/// A part that has not ended.
struct Open {
    period: Period,
    /// How often it was looked at; the first look is at its beginning.
    looks: u64,
    before: Option<Run>,
    /// By load and queue pair: the sum of its rates and of its alphas, and how many alphas there were.
    rates: Vec<Vec<(f64, f64, u64)>>,
    /// By direction of a link: bytes that waited in each priority and in all.
    queues: Vec<[u64; 9]>,
}

impl Open {
    /// When it is to be looked at.
    fn at(&self) -> Time {
        let length = u128::from((self.period.until - self.period.from).as_ps());
        let done = length * u128::from(self.looks) / u128::from(LOOKS);
        let done = Span::from_ps(u64::try_from(done).unwrap_or(u64::MAX));
        Time::ZERO + self.period.from + done
    }

    fn add(&mut self, now: Time, scenario: &Scenario, built: &Built) {
        for (n, sums) in self.rates.iter_mut().enumerate() {
            for (i, state) in congestion::states(scenario, built, n, now) {
                if sums.len() <= i {
                    sums.push((0.0, 0.0, 0));
                }
                if let Some(state) = state {
                    sums[i].0 += state.rate.bps() as f64;
                    sums[i].1 += state.alpha.unwrap_or(0.0);
                    sums[i].2 += u64::from(state.alpha.is_some());
                }
            }
        }
        for (way, sums) in scenario.network.ways().zip(&mut self.queues) {
            let channel = channel(way);
            for priority in 0..8u8 {
                sums[usize::from(priority)] += built.network.queued_in(channel, priority);
            }
            sums[8] += built.network.queued_bytes(channel);
        }
    }

    fn end(self, after: Run) -> Option<Part> {
        let mean = |(sum, n): (f64, u64)| (n > 0).then(|| sum / n as f64);
        let loads = after.traffic.iter().zip(&self.rates);
        let congestion = loads.map(|(load, sums)| {
            let end = load.congestion.as_ref()?;
            // Of queue pairs without congestion control there is no sum.
            let rates = sums.iter().filter(|s| s.0 > 0.0);
            let rates = rates.filter_map(|s| mean((s.0, LOOKS))).collect();
            let alphas = sums.iter().filter_map(|s| mean((s.1, s.2))).collect();
            CongestionReport::of(end.control, rates, alphas, end.limited, end.cuts)
        });
        let queues = self.queues.iter();
        Some(Part {
            period: self.period,
            congestion: congestion.collect(),
            queues: queues
                .map(|sums| sums.map(|sum| sum as f64 / LOOKS as f64))
                .collect(),
            before: self.before?,
            after,
        })
    }
}

impl Parts {
    /// Those of `periods` that end before the run does.
    pub(super) fn new(scenario: &Scenario, periods: &[Period]) -> Parts {
        let open = periods.iter().filter(|p| p.until <= scenario.stop);
        Parts {
            open: open
                .map(|&period| Open {
                    period,
                    looks: 0,
                    before: None,
                    rates: vec![Vec::new(); scenario.traffic.len()],
                    queues: vec![[0; 9]; scenario.network.ways().count()],
                })
                .collect(),
            ended: Vec::new(),
        }
    }

    /// When the next of them is to be looked at.
    pub(super) fn next(&self) -> Option<Time> {
        self.open.iter().map(Open::at).min()
    }

    /// Looks at those that are to be looked at now.
    pub(super) fn look(&mut self, now: Time, point: &Point, built: &Built) {
        for mut part in std::mem::take(&mut self.open) {
            let mut over = false;
            while !over && part.at() <= now {
                match part.looks {
                    0 => part.before = Some(measure::counted(point, built, Ended::Stop)),
                    _ => part.add(now, &point.scenario, built),
                }
                over = part.looks == LOOKS;
                part.looks += 1;
            }
            match over {
                true => {
                    let after = measure::counted(point, built, Ended::Stop);
                    self.ended.extend(part.end(after));
                }
                false => self.open.push(part),
            }
        }
    }

    /// Nothing happens any more.
    pub(super) fn rest(mut self, point: &Point, built: &Built) -> Vec<Part> {
        while let Some(at) = self.next() {
            self.look(at, point, built);
        }
        self.ended
    }

    /// Those that have ended.
    pub(super) fn ended(self) -> Vec<Part> {
        self.ended
    }
}
