//! Latencies: from the posting of a request to its completion.

use crate::units::Span;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Gathers latencies: the extremes and the mean exactly, percentiles to three digits.
#[derive(Clone, Debug)]
pub struct Recorder {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u128,
}

/// Latencies in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// The shortest.
    pub min_ps: u64,
    /// The mean.
    pub mean_ps: u64,
    /// The median.
    pub p50_ps: u64,
    /// The 90th percentile.
    pub p90_ps: u64,
    /// The 99th percentile.
    pub p99_ps: u64,
    /// The 99.9th percentile.
    pub p999_ps: u64,
    /// The longest.
    pub max_ps: u64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let histogram = Histogram::new(3).expect("three digits are allowed (at most five)");
        Recorder {
            histogram,
            min: u64::MAX,
            max: 0,
            sum: 0,
        }
    }
}

impl Recorder {
    /// Adds one.
    pub fn record(&mut self, latency: Span) {
        let ps = latency.as_ps();
        // Recording fails only if the histogram may not grow; this one may.
        let _ = self.histogram.record(ps);
        self.min = self.min.min(ps);
        self.max = self.max.max(ps);
        self.sum += u128::from(ps);
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: &Recorder) {
        // Adding can fail only if this one cannot grow to the other's range; both grow without limit.
        let _ = self.histogram.add(&other.histogram);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// The summary; `None` if there is nothing to sum up.
    pub fn summary(&self) -> Option<Latency> {
        let count = self.histogram.len();
        if count == 0 {
            return None;
        }
        // A bucket is reported by its upper end, which may lie beyond the longest.
        let at = |q: f64| {
            self.histogram
                .value_at_quantile(q)
                .clamp(self.min, self.max)
        };
        Some(Latency {
            count,
            min_ps: self.min,
            mean_ps: u64::try_from(self.sum / u128::from(count)).unwrap_or(u64::MAX),
            p50_ps: at(0.5),
            p90_ps: at(0.9),
            p99_ps: at(0.99),
            p999_ps: at(0.999),
            max_ps: self.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_three_digits() {
        let mut r = Recorder::default();
        assert_eq!(r.summary(), None);
        for n in 1..=1000 {
            r.record(Span::from_ns(n));
        }
        let s = r.summary().unwrap();
        assert_eq!((s.count, s.min_ps, s.max_ps), (1000, 1_000, 1_000_000));
        assert_eq!(s.mean_ps, 500_500);
        for (measured, ns) in [(s.p50_ps, 500.0), (s.p99_ps, 990.0), (s.p999_ps, 999.0)] {
            assert!((measured as f64 / 1e3 / ns - 1.0).abs() < 2e-3, "{s:?}");
        }
    }

    #[test]
    fn merging_is_recording_both() {
        let (mut a, mut b, mut both) = (
            Recorder::default(),
            Recorder::default(),
            Recorder::default(),
        );
        for n in 0..500 {
            a.record(Span::from_ns(n));
            b.record(Span::from_us(n));
            both.record(Span::from_ns(n));
            both.record(Span::from_us(n));
        }
        a.merge(&b);
        assert_eq!(a.summary(), both.summary());
    }
}
