//! Inspections for people: a line a packet, and a summary.

use super::finding::{Rule, Severity};
use super::{Connection, Flow, InspectError, Inspection, Options, Packet, inspect_each};
use std::fmt::Write as _;
use std::io::{self, Read, Write};

/// Packets that a line of a summary names.
const NAMED: usize = 8;

/// Inspects a capture and writes it as text while reading: a line a packet, then the summary. Where
/// the file breaks off, the summary of what came before is written, and then the error returned.
///
/// # Errors
///
/// As [`inspect_each`].
pub fn write_text(
    reader: impl Read,
    name: &str,
    options: &Options,
    out: &mut impl Write,
) -> Result<Inspection, InspectError> {
    let mut lines = Lines::default();
    let result = inspect_each(reader, name, options, |packet| lines.write(packet, out));
    let summary = match &result {
        Ok(inspection) => Some(inspection),
        Err(e) => e.partial().filter(|i| i.packets > 0),
    };
    if let Some(summary) = summary {
        summary.write_summary(out).map_err(InspectError::Output)?;
    }
    result
}

/// Packet lines in columns that grow with what they hold.
#[derive(Default)]
struct Lines {
    begun: bool,
    address: usize,
}

impl Lines {
    fn write(&mut self, p: &Packet, out: &mut impl Write) -> io::Result<()> {
        self.address = self.address.max(p.src.len()).max(p.dst.len()).max(11);
        let width = self.address;
        if !std::mem::replace(&mut self.begun, true) {
            writeln!(
                out,
                "{:>6} {:>13}  {:width$}   {:width$}  {:28} {:8} {:>8} A {:>5}  notes",
                "packet", "time", "source", "destination", "opcode", "dest QP", "PSN", "bytes"
            )?;
        }
        let time = p.time.map_or("-".into(), |t| format!("{t:.9}"));
        write!(
            out,
            "{:>6} {time:>13}  {:width$} > {:width$}  {:28} {:#08x} {:>8} {} {:>5}",
            p.number,
            p.src,
            p.dst,
            p.opcode_name,
            p.destqp,
            p.psn,
            if p.ack_req { 'A' } else { '.' },
            p.payload_len,
        )?;
        let details = p.details();
        let notes = p.findings.iter().map(|f| match f.severity {
            Severity::Violation => format!("VIOLATION: {}", f.text),
            _ => f.text.clone(),
        });
        let all: Vec<String> = (!details.is_empty())
            .then_some(details)
            .into_iter()
            .chain(notes)
            .collect();
        match all.is_empty() {
            true => writeln!(out),
            false => writeln!(out, "  {}", all.join("; ")),
        }
    }
}

impl Inspection {
    /// Writes the packets that were kept and the summary.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let mut lines = Lines::default();
        for packet in &self.kept {
            lines.write(packet, out)?;
        }
        let left_out = self.roce_packets - self.kept.len() as u64;
        if left_out > 0 {
            writeln!(out, "... {left_out} more packets")?;
        }
        self.write_summary(out)
    }

    /// Writes the summary: a paragraph for each connection, then totals.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn write_summary(&self, out: &mut impl Write) -> io::Result<()> {
        for connection in &self.connections {
            writeln!(out)?;
            self.write_connection(connection, out)?;
        }
        writeln!(out)?;
        let stray = self.findings.iter().filter(|f| f.flow.is_none());
        for f in stray {
            writeln!(out, "{:9} packet {}: {}", f.severity, f.packet, f.text)?;
        }
        let mut line = format!(
            "{}: {}, {} RoCE; ICRC good {}, bad {}",
            self.file,
            plural(self.packets, "packet"),
            self.roce_packets,
            self.icrc.good,
            self.icrc.bad
        );
        if self.icrc.unchecked > 0 {
            let _ = write!(line, ", not checked {}", self.icrc.unchecked);
        }
        writeln!(out, "{line}")?;
        if let Some(why) = &self.nothing_checked {
            writeln!(out, "nothing was checked: {why}")?;
        }
        if self.packets_not_followed > 0 {
            writeln!(
                out,
                "{} packets belong to flows beyond the limit and were not followed",
                self.packets_not_followed
            )?;
        }
        writeln!(
            out,
            "{}, {}, {}",
            plural(self.count(Severity::Violation), "violation"),
            plural(self.count(Severity::Event), "event"),
            plural(self.count(Severity::Note), "note")
        )
    }

    fn write_connection(&self, c: &Connection, out: &mut impl Write) -> io::Result<()> {
        let joined = match c.joined_by {
            Some("cm") => ", joined by CM messages",
            Some(_) => ", joined by PSN",
            None => "",
        };
        writeln!(out, "connection {}{joined}", c.id)?;
        for flow in &c.flows {
            writeln!(out, "  {}", describe(flow, self.interfaces.len() > 1))?;
        }
        for severity in [Severity::Violation, Severity::Event, Severity::Note] {
            for &rule in Rule::ALL.iter().filter(|r| r.severity() == severity) {
                let n = c.flows.iter().filter_map(|f| f.rules.get(&rule)).sum();
                if n > 0 {
                    self.write_rule(c, rule, n, out)?;
                }
            }
        }
        Ok(())
    }

    /// A line for a rule; violations, and what happened once, in their own words.
    fn write_rule(
        &self,
        c: &Connection,
        rule: Rule,
        n: u64,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let ours = |f: &&super::Finding| {
            f.rule == rule && c.flows.iter().any(|flow| Some(flow.id) == f.flow)
        };
        let findings: Vec<_> = self.findings.iter().filter(ours).take(NAMED + 1).collect();
        let severity = rule.severity();
        if n == 1 || severity == Severity::Violation {
            for f in findings.iter().take(NAMED) {
                writeln!(out, "  {severity:9}  packet {}: {}", f.packet, f.text)?;
            }
            if n > NAMED as u64 {
                writeln!(out, "  {severity:9}  {}: {n} in all", rule.title())?;
            }
            return Ok(());
        }
        let named: Vec<String> = findings
            .iter()
            .take(NAMED)
            .map(|f| f.packet.to_string())
            .collect();
        let more = if n > named.len() as u64 { ", ..." } else { "" };
        writeln!(
            out,
            "  {severity:9}  {}: {n} (packets {}{more})",
            rule.title(),
            named.join(", ")
        )
    }
}

fn plural(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

fn describe(f: &Flow, several: bool) -> String {
    let mut s = format!("{} > {} QP {:#08x}", f.src, f.dst, f.destqp);
    if several {
        let _ = write!(s, " at interface {}", f.interface);
    }
    let _ = write!(s, ": {}", f.service);
    if f.requests > 0 {
        let _ = write!(s, ", {}", plural(f.requests, "request"));
        if let (Some(first), Some(last)) = (f.first_psn, f.last_psn) {
            let _ = match first == last {
                true => write!(s, " with PSN {first}"),
                false => write!(s, " with PSN {first} to {last}"),
            };
        }
        if let Some(psn) = f.acknowledged_psn {
            let _ = write!(s, ", acknowledged to {psn}");
        }
        if f.rounds > 1 {
            let _ = write!(s, ", {} rounds", f.rounds);
        }
    }
    if f.responses > 0 {
        let _ = write!(s, ", {}", plural(f.responses, "response"));
    }
    if f.requests + f.responses == 0 {
        let _ = write!(s, ", {}", plural(f.packets, "packet"));
    }
    let _ = write!(s, ", {} bytes of payload", f.payload_bytes);
    if let Some(mtu) = f.path_mtu {
        let _ = write!(s, ", path MTU {mtu}");
    }
    if f.ce_packets > 0 {
        let _ = write!(s, ", {} with CE, {} CNPs", f.ce_packets, f.cnps);
    }
    s
}
