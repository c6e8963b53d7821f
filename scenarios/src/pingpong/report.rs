//! What is printed, as text and as JSON.

use super::exchange::Address;
use super::{Options, PingpongError};
use crate::tally::Tally;
use serde::Serialize;
use softroce_sim::card::Counters;
use softroce_sim::port::PortCounters;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::time::Duration;

/// The outcome of one end. `schema` changes when a field changes its meaning or goes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    command: &'static str,
    role: &'static str,
    pub(super) local: Option<AddressReport>,
    pub(super) remote: Option<AddressReport>,
    /// Operations that were exchanged in both directions, with the data intact.
    pub(super) operations: Vec<OperationReport>,
    pub(super) pingpong: Option<PingpongReport>,
    pub(super) counters: Option<CountersReport>,
    pub(super) error: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct AddressReport {
    lid: u16,
    qpn: u32,
    psn: u32,
    gid: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct OperationReport {
    pub(super) operation: &'static str,
    pub(super) bytes: u32,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct PingpongReport {
    iters: u32,
    size: u32,
    /// In both directions together.
    bytes: u64,
    seconds: f64,
    mbit_per_second: f64,
    /// There and back.
    usec_per_iter: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct CountersReport {
    #[serde(flatten)]
    tally: Tally,
    /// By the port, on purpose.
    dropped: u64,
    /// Dropped by the kernel because the socket was full.
    overflow: u64,
    /// Datagrams that were no packets.
    malformed: u64,
    /// Packets that the operating system did not send.
    refused_by_system: u64,
    /// Packets that the card dropped, by reason.
    refused: BTreeMap<&'static str, u64>,
}

impl Report {
    pub(super) fn new(role: &'static str) -> Report {
        Report {
            schema: 1,
            command: "pingpong",
            role,
            local: None,
            remote: None,
            operations: Vec::new(),
            pingpong: None,
            counters: None,
            error: None,
        }
    }
}

impl From<Address> for AddressReport {
    fn from(a: Address) -> AddressReport {
        AddressReport {
            lid: a.lid,
            qpn: a.qpn.get(),
            psn: a.psn.get(),
            gid: Ipv6Addr::from(a.gid.0).to_string(),
        }
    }
}

impl PingpongReport {
    pub(super) fn new(options: &Options, elapsed: Duration) -> PingpongReport {
        let bytes = u64::from(options.size) * u64::from(options.iters) * 2;
        let seconds = elapsed.as_secs_f64().max(1e-9);
        PingpongReport {
            iters: options.iters,
            size: options.size,
            bytes,
            seconds,
            mbit_per_second: bytes as f64 * 8.0 / seconds / 1e6,
            usec_per_iter: seconds * 1e6 / f64::from(options.iters),
        }
    }
}

impl CountersReport {
    pub(super) fn new(card: &Counters, port: &PortCounters) -> CountersReport {
        CountersReport {
            tally: card.into(),
            dropped: port.dropped,
            overflow: port.overflow,
            malformed: port.malformed,
            refused_by_system: port.refused,
            refused: card.refused.iter().map(|(r, n)| (r.name(), n)).collect(),
        }
    }
}

/// Standard output: lines as things happen, or one JSON object at the end.
#[derive(Debug)]
pub(super) struct Console {
    json: bool,
    silent: bool,
}

impl Console {
    pub(super) fn new(json: bool) -> Console {
        Console {
            json,
            silent: false,
        }
    }

    /// One that prints nothing.
    pub(super) fn silent() -> Console {
        Console {
            json: false,
            silent: true,
        }
    }

    fn line(&self, text: std::fmt::Arguments<'_>) -> Result<(), PingpongError> {
        if self.json || self.silent {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(PingpongError::Output)
    }

    pub(super) fn note(&self, text: &str) -> Result<(), PingpongError> {
        self.line(format_args!("  {text}"))
    }

    /// As `ibv_rc_pingpong` prints it.
    pub(super) fn address(&self, whose: &str, a: &Address) -> Result<(), PingpongError> {
        self.line(format_args!(
            "  {:<16}LID {:#06x}, QPN {:#08x}, PSN {:#08x}, GID {}",
            format!("{whose} address:"),
            a.lid,
            a.qpn.get(),
            a.psn.get(),
            Ipv6Addr::from(a.gid.0)
        ))
    }

    pub(super) fn operation(&self, o: &OperationReport) -> Result<(), PingpongError> {
        self.line(format_args!(
            "  {:<22}{} bytes each way, data intact",
            o.operation, o.bytes
        ))
    }

    pub(super) fn pingpong(&self, p: &PingpongReport) -> Result<(), PingpongError> {
        self.line(format_args!(
            "{} bytes in {:.2} seconds = {:.2} Mbit/sec",
            p.bytes, p.seconds, p.mbit_per_second
        ))?;
        self.line(format_args!(
            "{} iters in {:.2} seconds = {:.2} usec/iter",
            p.iters, p.seconds, p.usec_per_iter
        ))
    }

    pub(super) fn counters(&self, report: &Report) -> Result<(), PingpongError> {
        let Some(c) = &report.counters else {
            return Ok(());
        };
        self.line(format_args!("{}", c.tally))?;
        for (what, n) in [
            ("dropped on purpose", c.dropped),
            ("dropped by a full socket", c.overflow),
            ("malformed", c.malformed),
            ("refused by the system", c.refused_by_system),
        ] {
            if n > 0 {
                self.line(format_args!("packets {what}: {n}"))?;
            }
        }
        for (reason, n) in &c.refused {
            self.line(format_args!("packets refused, {reason}: {n}"))?;
        }
        Ok(())
    }

    /// Prints the JSON object.
    pub(super) fn finish(&self, report: &Report) -> Result<(), PingpongError> {
        if !self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, report)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
            .and_then(|()| out.flush())
            .map_err(PingpongError::Output)
    }
}
