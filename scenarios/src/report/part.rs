//! Parts of a run: what a metric is between two times.

use super::congestion::{self, CongestionReport};
use super::flows::fairness;
use super::{Run, TrafficReport};
use crate::format::expect::Of;
use crate::format::period::Period;
use crate::metric::Metric;

/// What was counted by the two ends of a part of a run, and what was averaged between them.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// Which part.
    pub period: Period,
    /// All there was when it began.
    pub before: Run,
    /// All there was when it ended.
    pub after: Run,
    /// By load: congestion control of its queue pairs, with the means over the time.
    pub congestion: Vec<Option<CongestionReport>>,
    /// By direction of a link: the mean of the bytes that waited, in each priority and in all.
    pub queues: Vec<[f64; 9]>,
}

impl Part {
    /// The measured value of `metric`; `None` if there is none.
    fn measure(&self, metric: Metric, of: &Of) -> Option<f64> {
        let length = (self.period.until - self.period.from).as_ps() as f64;
        let grown =
            |metric| Some(self.after.measure(metric, of)? - self.before.measure(metric, of)?);
        match metric {
            Metric::Goodput => Some(grown(Metric::Bytes)? * 8e12 / length),
            Metric::Fairness => {
                let (before, after) = (loads(&self.before, of)?, loads(&self.after, of)?);
                let bytes = |all: &[TrafficReport]| -> Vec<u64> {
                    all.iter().flat_map(|t| &t.flow_bytes).copied().collect()
                };
                let rates = bytes(after).into_iter().zip(bytes(before));
                let rates: Vec<f64> = rates.map(|(a, b)| (a - b) as f64).collect();
                fairness(&rates)
            }
            Metric::Utilisation => {
                // A frame that has begun is counted whole.
                let busy = |run: &Run| -> Vec<f64> {
                    let ways = run.ways(of);
                    ways.map(|w| w.utilisation * run.time_ps as f64).collect()
                };
                let all = busy(&self.after).into_iter().zip(busy(&self.before));
                all.map(|(a, b)| ((a - b) / length).min(1.0))
                    .reduce(f64::max)
            }
            Metric::RateMin
            | Metric::RateMean
            | Metric::RateMax
            | Metric::RateFairness
            | Metric::AlphaMean => {
                let own = match *of {
                    Of::Traffic(n) => self.congestion.get(n..=n)?,
                    _ => &self.congestion,
                };
                congestion::measure(own.iter().flatten(), metric)
            }
            Metric::QueueMean => {
                let mean = |n: usize| {
                    let own = self.queues.get(n)?;
                    Some(match *of {
                        Of::Queue(_, priority) => own[usize::from(priority & 7)],
                        _ => own[8],
                    })
                };
                match of {
                    Of::Link(ways) | Of::Queue(ways, _) => ways
                        .iter()
                        .filter_map(|w| mean(w.link * 2 + w.way))
                        .reduce(f64::max),
                    _ => (0..self.queues.len()).filter_map(mean).reduce(f64::max),
                }
            }
            _ => grown(metric),
        }
    }
}

fn loads<'a>(run: &'a Run, of: &Of) -> Option<&'a [TrafficReport]> {
    match *of {
        Of::Traffic(n) => run.traffic.get(n..=n),
        _ => Some(&run.traffic),
    }
}

impl Run {
    /// The measured value of `metric` over the run, or over a part of it that was watched.
    pub fn measure_during(&self, during: Option<Period>, metric: Metric, of: &Of) -> Option<f64> {
        let Some(period) = during else {
            return self.measure(metric, of);
        };
        let part = self.parts.iter().find(|part| part.period == period)?;
        part.measure(metric, of)
    }
}
