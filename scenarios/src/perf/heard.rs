//! What the peer says, held against what was agreed before anything is done with it.

use super::error::{PerfError, Result};
use super::options::{Config, Stop};
use super::report::{Bandwidth, Latency};
use super::session::{Addresses, Checked, Hello, Sent};
use softroce_verbs::{Error, Mtu};
use std::fmt::Display;

/// Messages of a queue pair are numbered with 40 bits.
pub(super) const NUMBERS: u64 = 1 << 40;
/// So many messages of the longest kind within a nanosecond: no rate and no time is greater.
const GREATEST: f64 = NUMBERS as f64 * (1u64 << 30) as f64 * 1e9;

fn refused(what: impl Display, value: impl Display, limit: impl Display) -> PerfError {
    Error::Protocol(format!("the peer says {what} {value}; {limit}")).into()
}

fn at_most(what: impl Display, value: u64, limit: u64) -> Result<()> {
    match value <= limit {
        true => Ok(()),
        false => Err(refused(what, value, format!("at most {limit} can be"))),
    }
}

fn as_many(what: impl Display, value: usize, expected: usize) -> Result<()> {
    match value == expected {
        true => Ok(()),
        false => Err(refused(what, value, format!("it must be {expected}"))),
    }
}

impl Hello {
    /// The smaller of both ports' MTUs, if the peer was started like this end.
    pub(super) fn check(&self, own: &Hello, reads: bool) -> Result<Mtu> {
        as_many("number of options", self.options.len(), own.options.len())?;
        for ((option, own), (theirs, peer)) in own.options.iter().zip(&self.options) {
            if option != theirs {
                let limit = format!("{option} has its place there");
                return Err(refused("option", cut(theirs), limit));
            }
            if own != peer {
                return Err(PerfError::Differs {
                    option: option.clone(),
                    own: own.clone(),
                    peer: cut(peer),
                });
            }
        }
        if reads && self.outs == 0 {
            return Err(refused("outs", 0, "at least 1 must be"));
        }
        let mtu = self.mtu.min(own.mtu);
        let known = Mtu::from_bytes(self.mtu.into()).and(Mtu::from_bytes(mtu.into()));
        known.ok_or_else(|| {
            let limit = "it must be 256, 512, 1024, 2048 or 4096";
            refused("mtu", self.mtu, limit)
        })
    }
}

impl Addresses {
    /// `bytes` is what the memory of either end has.
    pub(super) fn check(&self, config: &Config, bytes: u64) -> Result<()> {
        as_many(
            "number of queue pairs",
            self.queue_pairs.len(),
            config.qps as usize,
        )?;
        for &(number, psn) in &self.queue_pairs {
            at_most("queue pair", number.into(), 0xff_ffff)?;
            at_most("PSN", psn.into(), 0xff_ffff)?;
        }
        at_most("addr", self.addr, u64::MAX - bytes)
    }
}

impl Sent {
    pub(super) fn check(&self, config: &Config) -> Result<()> {
        as_many(
            "number of counts of messages",
            self.messages.len(),
            config.qps as usize,
        )?;
        for &messages in &self.messages {
            let what = "messages sent on a queue pair";
            match config.stop {
                Stop::After(n) if messages != n => {
                    return Err(refused(what, messages, format!("it must be {n}")));
                }
                Stop::After(_) => {}
                Stop::At(_) => at_most(what, messages, NUMBERS)?,
            }
        }
        match (config.bandwidth, &self.bandwidth, &self.latency) {
            (true, Some(bandwidth), None) => bandwidth.check(),
            (false, None, Some(latency)) => latency.check(),
            _ => Err(Error::Protocol(
                "the peer has measured bandwidth instead of latency, or the other way round".into(),
            )
            .into()),
        }
    }

    /// Messages of all queue pairs.
    pub(super) fn total(&self) -> u64 {
        self.messages.iter().copied().fold(0, u64::saturating_add)
    }
}

impl Checked {
    pub(super) fn check(&self, most: &Checked) -> Result<()> {
        at_most("messages received", self.received, most.received)?;
        at_most("messages compared", self.compared, most.compared)
    }
}

fn measured<const N: usize>(values: [(&str, f64); N]) -> Result<()> {
    for (what, value) in values {
        if !(0.0..=GREATEST).contains(&value) {
            let limit = format!("from 0 to {GREATEST:e} can be");
            return Err(refused(what, format!("{value:e}"), limit));
        }
    }
    Ok(())
}

impl Bandwidth {
    fn check(&self) -> Result<()> {
        measured([
            ("peak_bytes_per_second", self.peak_bytes_per_second),
            ("average_bytes_per_second", self.average_bytes_per_second),
            ("messages_per_second", self.messages_per_second),
            ("seconds", self.seconds),
        ])
    }
}

impl Latency {
    fn check(&self) -> Result<()> {
        measured([
            ("min", self.min),
            ("max", self.max),
            ("typical", self.typical),
            ("average", self.average),
            ("stdev", self.stdev),
            ("p99", self.p99),
            ("p999", self.p999),
        ])
    }
}

/// As much of what the peer wrote as goes on a line.
pub(super) fn cut(text: &str) -> String {
    const ROOM: usize = 200;
    match text.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}
