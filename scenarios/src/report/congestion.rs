//! What congestion control came to: the rates of queue pairs, marks and CNPs.

use super::flows::fairness;
use super::text::{MEMBERS, section};
use super::{Run, TrafficReport};
use crate::metric::{Metric, Unit};
use serde::Serialize;
use std::fmt::Write;

/// Congestion control of the queue pairs of a load that send its data, at the end of the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CongestionReport {
    /// The algorithm.
    pub control: &'static str,
    /// Queue pairs that have it.
    pub queue_pairs: u64,
    /// Those that may send less than their port takes.
    pub limited: u64,
    /// The least rate, on the wire with preambles and gaps.
    pub rate_min_bps: u64,
    /// The mean of the rates.
    pub rate_mean_bps: u64,
    /// The greatest rate.
    pub rate_max_bps: u64,
    /// Jain's index of the rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_fairness: Option<f64>,
    /// DCQCN's estimate of congestion, the mean of the queue pairs that had a CNP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha_mean: Option<f64>,
    /// Cuts of a rate.
    pub cuts: u64,
    /// The rates one by one.
    #[serde(skip)]
    pub rates: Vec<f64>,
    /// Alpha, of those that had a CNP.
    #[serde(skip)]
    pub alphas: Vec<f64>,
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl CongestionReport {
    /// Sums up queue pairs; nothing if there are none.
    pub fn of(
        control: &'static str,
        rates: Vec<f64>,
        alphas: Vec<f64>,
        limited: u64,
        cuts: u64,
    ) -> Option<CongestionReport> {
        let least = rates.iter().copied().reduce(f64::min)?;
        let most = rates.iter().copied().reduce(f64::max)?;
        Some(CongestionReport {
            control,
            queue_pairs: rates.len() as u64,
            limited,
            rate_min_bps: least as u64,
            rate_mean_bps: mean(&rates)? as u64,
            rate_max_bps: most as u64,
            rate_fairness: fairness(&rates),
            alpha_mean: mean(&alphas),
            cuts,
            rates,
            alphas,
        })
    }
}

/// The value of a metric of rates over some loads.
pub(super) fn measure<'a>(
    loads: impl Iterator<Item = &'a CongestionReport> + Clone,
    metric: Metric,
) -> Option<f64> {
    let rates: Vec<f64> = loads.clone().flat_map(|l| &l.rates).copied().collect();
    let alphas: Vec<f64> = loads.clone().flat_map(|l| &l.alphas).copied().collect();
    match metric {
        Metric::RateMin => rates.into_iter().reduce(f64::min),
        Metric::RateMean => mean(&rates),
        Metric::RateMax => rates.into_iter().reduce(f64::max),
        Metric::RateFairness => fairness(&rates),
        Metric::AlphaMean => mean(&alphas),
        Metric::RateCuts if rates.is_empty() => None,
        Metric::RateCuts => Some(loads.map(|l| l.cuts).sum::<u64>() as f64),
        _ => None,
    }
}

/// Rates of loads that have congestion control, and who was marked.
pub(super) fn write(out: &mut String, run: &Run) -> std::fmt::Result {
    let rate = |bps: u64| Unit::Rate.show(bps as f64);
    let ratio = |v: Option<f64>| super::show(v, Unit::Ratio);
    let told = |load: &TrafficReport| {
        let c = load.congestion.as_ref()?;
        Some(vec![
            load.name.clone(),
            c.control.to_string(),
            format!("{}/{}", c.limited, c.queue_pairs),
            rate(c.rate_min_bps),
            rate(c.rate_mean_bps),
            rate(c.rate_max_bps),
            ratio(c.rate_fairness),
            ratio(c.alpha_mean),
            c.cuts.to_string(),
            load.counts.marked_received.to_string(),
            load.counts.cnps_received.to_string(),
        ])
    };
    let rows: Vec<_> = run.traffic.iter().filter_map(told).collect();
    if !rows.is_empty() {
        let head = [
            "load", "control", "limited", "rate min", "mean", "max", "fairness", "alpha", "cuts",
            "marked", "CNPs",
        ];
        section(out, &head, rows, &[0, 1]);
    }
    let mut rows = Vec::new();
    for way in &run.links {
        let own = way.priorities.iter();
        let own = own.filter(|q| q.marks + q.not_capable > 0);
        rows.extend(own.map(|q| {
            vec![
                way.name.clone(),
                q.priority.to_string(),
                q.marks.to_string(),
                q.not_capable.to_string(),
                Unit::Size.show(q.queue_max as f64),
            ]
        }));
    }
    let number = rows.len();
    if number > 0 {
        let head = [
            "link",
            "priority",
            "marked",
            "not ECN-capable",
            "longest queue",
        ];
        rows.truncate(MEMBERS);
        section(out, &head, rows, &[0]);
        if number > MEMBERS {
            writeln!(out, "... and {} more", number - MEMBERS)?;
        }
    }
    Ok(())
}
