//! What became of the flows of a load, and of the rounds of a collective.

use super::latency::Latency;
use serde::Serialize;

/// The flows of a load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowsReport {
    /// How many there were.
    pub count: u64,
    /// Those all of whose messages completed with success.
    pub finished: u64,
    /// Completion times of those: from the start of a flow to its last completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<Latency>,
    /// Completion times over the ideal ones: what a flow would take alone, with cards that take no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<Slowdown>,
    /// Jain's index of the goodputs of all flows: 1 if all are the same, 1/n if one has all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
}

/// Completion times of flows over the ideal ones.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Slowdown {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The greatest.
    pub max: f64,
}

/// The rounds of a collective.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CollectiveReport {
    /// Hosts that compute: without a server.
    pub members: u64,
    /// Bytes that are reduced, or that each worker hands over, in an iteration.
    pub bytes: u64,
    /// Iterations that ended on every host.
    pub iterations: u64,
    /// From the end of one iteration on its last host, or the start of the load, to that of the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<Latency>,
    /// Bytes of all iterations over the time in which any host communicated: from its first host's launch to
    /// its last host's end, but not before the iteration before had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm_bps: Option<u64>,
    /// That times 2 (n - 1) / n for an all-reduce, as nccl-tests have it: what each link carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus_bps: Option<u64>,
}

/// The place of a quantile in a sorted list that is not empty: the nearest rank, in parts of 1000.
fn rank(len: usize, thousandths: usize) -> usize {
    (len * thousandths).div_ceil(1000).clamp(1, len) - 1
}

/// Sums up spans in picoseconds, exactly.
pub fn summary(mut spans: Vec<u64>) -> Option<Latency> {
    spans.sort_unstable();
    let (&min, &max) = (spans.first()?, spans.last()?);
    let sum: u128 = spans.iter().map(|&s| u128::from(s)).sum();
    let at = |thousandths| spans[rank(spans.len(), thousandths)];
    Some(Latency {
        count: spans.len() as u64,
        min_ps: min,
        mean_ps: u64::try_from(sum / spans.len() as u128).unwrap_or(u64::MAX),
        p50_ps: at(500),
        p90_ps: at(900),
        p99_ps: at(990),
        p999_ps: at(999),
        max_ps: max,
    })
}

impl Slowdown {
    /// Sums up slowdowns, none of which is no number.
    pub fn of(mut all: Vec<f64>) -> Option<Slowdown> {
        all.sort_by(f64::total_cmp);
        let (&min, &max) = (all.first()?, all.last()?);
        let at = |thousandths| all[rank(all.len(), thousandths)];
        Some(Slowdown {
            min,
            mean: all.iter().sum::<f64>() / all.len() as f64,
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p999: at(999),
            max,
        })
    }
}

/// Jain's index of fairness (1984): (sum x)^2 / (n sum x^2); nothing if all are zero.
pub fn fairness(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|r| r * r).sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_nearest() {
        let s = summary((1..=1000).rev().collect()).unwrap();
        assert_eq!((s.min_ps, s.p50_ps, s.p90_ps, s.p99_ps), (1, 500, 900, 990));
        assert_eq!((s.p999_ps, s.max_ps, s.mean_ps), (999, 1000, 500));
        let one = summary(vec![7]).unwrap();
        assert_eq!((one.p50_ps, one.p999_ps), (7, 7));
        assert_eq!(summary(Vec::new()), None);
        let s = Slowdown::of(vec![4.0, 1.0, 2.0]).unwrap();
        assert_eq!((s.min, s.p50, s.p99, s.max), (1.0, 2.0, 4.0, 4.0));
    }

    #[test]
    fn fairness_is_one_for_equals_and_a_share_for_one_alone() {
        assert_eq!(fairness(&[3.0; 8]), Some(1.0));
        assert_eq!(fairness(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        // (1 + 3)^2 / (2 * 10).
        assert_eq!(fairness(&[1.0, 3.0]), Some(0.8));
        assert_eq!(fairness(&[0.0]), None);
        assert_eq!(fairness(&[]), None);
    }
}
