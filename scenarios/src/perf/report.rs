//! What is printed, as text and as JSON.

use super::options::{Config, Options};
use crate::device::{CardReport, NetworkReport};
use crate::tally::Tally;
use serde::{Deserialize, Serialize};
use softroce_sim::card::Counters;
use softroce_verbs::{Mtu, QpType};
use std::fmt::Write;
use std::time::Duration;

/// A bandwidth, of both directions together where both ends send.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(super) struct Bandwidth {
    /// Of the best stretch of messages; 0 if that was not looked for.
    pub(super) peak_bytes_per_second: f64,
    pub(super) average_bytes_per_second: f64,
    pub(super) messages_per_second: f64,
    /// From the first request posted to the last completion seen.
    pub(super) seconds: f64,
}

impl std::ops::AddAssign for Bandwidth {
    /// The other direction.
    fn add_assign(&mut self, other: Bandwidth) {
        self.peak_bytes_per_second += other.peak_bytes_per_second;
        self.average_bytes_per_second += other.average_bytes_per_second;
        self.messages_per_second += other.messages_per_second;
        self.seconds = self.seconds.max(other.seconds);
    }
}

/// Latencies in nanoseconds.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(super) struct Latency {
    pub(super) min: f64,
    pub(super) max: f64,
    /// The median.
    pub(super) typical: f64,
    pub(super) average: f64,
    pub(super) stdev: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
}

impl Latency {
    /// Of round trips, each of which is `parts` latencies.
    pub(super) fn new(mut trips: Vec<Duration>, parts: f64) -> Option<Latency> {
        trips.sort_unstable();
        let one = |d: &Duration| d.as_nanos() as f64 / parts;
        // The smallest that so many of 1000 are no longer than.
        let rank = |per_mille: usize| {
            let n = (trips.len() * per_mille).div_ceil(1000).max(1);
            trips.get(n - 1).map(one)
        };
        let n = trips.len() as f64;
        let average = trips.iter().map(one).sum::<f64>() / n;
        let squares = trips
            .iter()
            .map(|t| (one(t) - average) * (one(t) - average));
        Some(Latency {
            min: trips.first().map(one)?,
            max: trips.last().map(one)?,
            typical: rank(500)?,
            average,
            stdev: (squares.sum::<f64>() / n).sqrt(),
            p99: rank(990)?,
            p999: rank(999)?,
        })
    }
}

/// What a size came to.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) bytes: u32,
    /// Messages in one direction.
    pub(super) iterations: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bandwidth: Option<Bandwidth>,
    #[serde(rename = "latency_ns", skip_serializing_if = "Option::is_none")]
    pub(super) latency: Option<Latency>,
    /// Messages that did not arrive, where that is no error.
    pub(super) lost: u64,
    /// Messages whose data was compared, and was as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verified: Option<u64>,
}

/// What one end came to.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) mtu: Option<Mtu>,
    pub(super) rows: Vec<Row>,
    /// The other end was there.
    pub(super) met: bool,
    pub(super) error: Option<String>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    command: &'static str,
    test: String,
    device: &'a str,
    role: &'static str,
    transport: String,
    mtu: Option<u16>,
    queue_pairs: u32,
    bidirectional: bool,
    sizes: &'a [Row],
    counters: Vec<CardCounters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    virtual_time_ps: Option<u64>,
    error: Option<String>,
}

/// What a software card counted.
#[derive(Serialize, Clone, Debug)]
pub(super) struct CardCounters {
    card: String,
    #[serde(flatten)]
    tally: Tally,
    /// By the port, on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_on_purpose: Option<u64>,
    /// By the kernel, as the socket was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_by_full_socket: Option<u64>,
}

impl CardCounters {
    fn new(card: String, c: &Counters) -> CardCounters {
        CardCounters {
            card,
            tally: c.into(),
            dropped_on_purpose: None,
            dropped_by_full_socket: None,
        }
    }

    /// Those of a card on a socket, or of the cards of a network.
    pub(super) fn all(
        device: &str,
        card: Option<&CardReport>,
        network: Option<&NetworkReport>,
    ) -> Vec<CardCounters> {
        let own = card.map(|report| CardCounters {
            dropped_on_purpose: Some(report.port.dropped),
            dropped_by_full_socket: Some(report.port.overflow),
            ..CardCounters::new(device.into(), &report.card)
        });
        let cards = network.into_iter().flat_map(|n| &n.cards);
        let cards = cards.map(|(host, counters)| CardCounters::new(host.clone(), counters));
        own.into_iter().chain(cards).collect()
    }

    /// One line.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{}: {}", self.card, self.tally);
        for (n, how) in [
            (self.dropped_on_purpose, "on purpose"),
            (self.dropped_by_full_socket, "by a full socket"),
        ] {
            if let Some(n) = n.filter(|&n| n > 0) {
                let _ = write!(line, "; {n} dropped {how}");
            }
        }
        line
    }
}

fn title(config: &Config) -> String {
    format!(
        "{} {}{} Test",
        config.operation.name(),
        if config.both { "Bidirectional " } else { "" },
        if config.bandwidth { "BW" } else { "Latency" }
    )
}

/// Megabytes, as perftest counts them.
const MB: f64 = 1048576.0;
const RULE: &str =
    "---------------------------------------------------------------------------------------\n";

fn transport(service: QpType) -> String {
    format!("{service:?}").to_uppercase()
}

/// The table, as perftest prints it.
pub(super) fn text(options: &Options, config: &Config, ran: &Ran) -> String {
    let mut out = String::from(RULE);
    let mtu = ran.mtu.map_or("-".into(), |m| m.bytes().to_string());
    let _ = writeln!(out, "                    {}", title(config));
    let _ = writeln!(
        out,
        " Device: {}   Transport: {}   Queue pairs: {}   MTU: {mtu}   TX depth: {}",
        options.device.device,
        transport(config.service),
        config.qps,
        config.tx_depth
    );
    out += RULE;
    let (unit, scale) = match options.report_gbits {
        true => ("Gb/sec", 8.0 / 1e9),
        false => ("MB/sec", 1.0 / MB),
    };
    let _ = match config.bandwidth {
        true => writeln!(
            out,
            " #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
        ),
        false => writeln!(
            out,
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
             t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
        ),
    };
    for row in &ran.rows {
        let _ = write_row(&mut out, row, scale);
    }
    out += RULE;
    if let Some(n) = ran.rows.iter().map(|r| r.verified).sum::<Option<u64>>()
        && !ran.rows.is_empty()
    {
        let _ = writeln!(out, " data intact: {n} messages compared");
    }
    let lost: u64 = ran.rows.iter().map(|r| r.lost).sum();
    if lost > 0 {
        let _ = writeln!(out, " lost on the way: {lost} messages");
    }
    out
}

fn write_row(out: &mut String, row: &Row, scale: f64) -> std::fmt::Result {
    if let Some(b) = row.bandwidth {
        writeln!(
            out,
            " {:<10} {:<14} {:<18.2} {:<20.2} {:.6}",
            row.bytes,
            row.iterations,
            b.peak_bytes_per_second * scale,
            b.average_bytes_per_second * scale,
            b.messages_per_second / 1e6
        )?;
    }
    if let Some(l) = row.latency {
        let us = |ns: f64| ns / 1e3;
        writeln!(
            out,
            " {:<6} {:<14} {:<14.2} {:<12.2} {:<18.2} {:<14.2} {:<15.2} {:<22.2} {:.2}",
            row.bytes,
            row.iterations,
            us(l.min),
            us(l.max),
            us(l.typical),
            us(l.average),
            us(l.stdev),
            us(l.p99),
            us(l.p999)
        )?;
    }
    Ok(())
}

/// One JSON document; `schema` changes when a field changes its meaning or goes.
pub(super) fn json(
    options: &Options,
    config: &Config,
    role: &'static str,
    ran: &Ran,
    counters: Vec<CardCounters>,
    network: Option<&NetworkReport>,
) -> String {
    let document = Document {
        schema: 1,
        command: "perf",
        test: title(config),
        device: &options.device.device,
        role,
        transport: transport(config.service),
        mtu: ran.mtu.map(Mtu::bytes),
        queue_pairs: config.qps,
        bidirectional: config.both,
        sizes: &ran.rows,
        counters,
        virtual_time_ps: network.map(|n| n.time_ps),
        error: ran.error.clone(),
    };
    serde_json::to_string_pretty(&document).expect("plain data") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_the_nearest_ranks_of_half_the_round_trips() {
        let trips = (1..=1000).rev().map(|n| Duration::from_nanos(2 * n));
        let l = Latency::new(trips.collect(), 2.0).unwrap();
        assert_eq!((l.min, l.max, l.typical), (1.0, 1000.0, 500.0));
        assert_eq!((l.p99, l.p999, l.average), (990.0, 999.0, 500.5));
        // (n^2 - 1) / 12 is the variance of 1 to n.
        assert!((l.stdev * l.stdev - 999_999.0 / 12.0).abs() < 1e-6);
        assert_eq!(Latency::new(Vec::new(), 1.0), None);
    }
}
