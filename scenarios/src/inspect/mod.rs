//! `softroce inspect`: what a capture of any card says.
//!
//! | file | what |
//! |---|---|
//! | `record` | from a captured record to a frame, also where the capture cut it |
//! | `frame_rules` | rules that one packet alone can break |
//! | `follow` | flows, connections, marks and notifications |
//! | `requests`, `reads`, `copy` | PSN order, rounds, gaps, retransmissions and their causes |
//! | `giveup` | requests that are tried again, and what is seen of their end |
//! | `messages` | opcode order, lengths |
//! | `responses`, `msn` | ACKs, NAKs, READ responses, message sequence numbers |
//! | `links` | which interfaces are the directions of one link |
//! | `cm` | messages of the communication manager, and which queue pairs they join |
//! | `finding`, `packet`, `report` | what comes out |
//! | `text`, `json` | how it is written |
//!
//! # What is looked at
//!
//! Each interface of a file is a capture point of its own: a packet that several of them saw is no
//! retransmission. Two interfaces named `A->B` and `B->A`, as captures of virtual links have them, are
//! the two directions of one point. Linux cooked captures of version 2 are taken apart by interface index too; within
//! one point, a packet that returns with another hop limit is the same packet behind a router.
//! Packets whose ICRC is wrong are reported and otherwise ignored, as a receiver does, unless
//! [`Options::ignore_icrc`] is set. Where a capture cut packets, their headers are followed and
//! their ICRC is not checked.
//!
//! # What a capture cannot tell
//!
//! A gap is a loss before the capture point or in the capture itself; only an acknowledgement
//! without a retransmission shows the latter. A retransmission of a packet that was seen means that
//! it, or its answer, was lost beyond the point. Without the IPv4 identification (zero, or IPv6) an
//! identical packet is a duplicate if it comes at once and nothing asked for it. An RNR NAK and a
//! retransmission that cross each other look like a retransmission before the timer ran out.
//! A requester that gives up says nothing: what is told is when its request was last seen, how often and
//! how far apart, and whether an answer to that is in the capture.
//! Responses are checked only when their flow is joined with the requests: see `follow`.
//!
//! # Exit codes
//!
//! [`Inspection::exit_code`] is 1 if there is a [`Violation`](Severity::Violation). Losses, NAKs and
//! retransmissions are [`Event`](Severity::Event)s. It is 2 if there was no RoCE packet, so that nothing was checked
//! ([`Inspection::nothing_checked`] says why), and so is an [`InspectError`].

mod cm;
mod copy;
mod error;
mod finding;
mod follow;
mod frame_rules;
mod giveup;
mod json;
mod links;
mod messages;
mod msn;
mod packet;
mod reads;
mod record;
mod report;
mod requests;
mod responses;
mod text;
mod waits;

pub use cm::CmFields;
pub use error::InspectError;
pub use finding::{Finding, Rule, Severity};
pub use giveup::{FatalNak, GivenUp, SeenNak, SeenTry};
pub use json::write_json;
pub use packet::{AethFields, AtomicFields, DethFields, IcrcStatus, Packet, RethFields};
pub use report::{Connection, Flow, IcrcCounts, Inspection, Interface, SCHEMA};
pub use text::write_text;

use finding::{Found, put};
use follow::{Flows, Point, Seen};
use links::Links;
use record::{Content, Cut};
use softroce_sim::wire::capture::{CaptureError, Reader, Record, Stamp};
use softroce_sim::wire::{Ext, Service, capture};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// How to inspect.
#[derive(Clone, Debug)]
pub struct Options {
    /// Flows that are followed; packets of further ones are decoded and their ICRC is checked, no
    /// more. A flow takes some 2 KB, with many losses and outstanding packets up to 50.
    pub max_flows: usize,
    /// Findings that are stored of each rule and flow; all are counted.
    pub findings_per_rule: u64,
    /// Packets that [`inspect`] keeps.
    pub max_packets: usize,
    /// Follow packets with a bad ICRC too: for captures that do not have the ICRC, as some cards
    /// hand them out.
    pub ignore_icrc: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_flows: 16_384,
            findings_per_rule: 100,
            max_packets: 100_000,
            ignore_icrc: false,
        }
    }
}

/// Findings that are stored in all.
const MOST_FINDINGS: usize = 100_000;

/// True for `-`.
pub fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a capture file for [`inspect`]; `-` is standard input.
///
/// # Errors
///
/// If it cannot be opened, or is a directory.
pub fn open(path: &Path) -> Result<Box<dyn Read>, InspectError> {
    if is_standard_input(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let name = || path.display().to_string();
    let failed = |source| InspectError::Open {
        name: name(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(InspectError::Directory { name: name() });
    }
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

/// Inspects a capture, pcap or pcapng, and keeps its packets up to [`Options::max_packets`].
///
/// `reader` should be buffered; `name` is what messages call the file.
///
/// # Errors
///
/// If it is no capture, or is broken before its end.
pub fn inspect(
    reader: impl Read,
    name: &str,
    options: &Options,
) -> Result<Inspection, InspectError> {
    let mut kept = Vec::new();
    let result = inspect_each(reader, name, options, |packet| {
        if kept.len() < options.max_packets {
            kept.push(packet.clone());
        }
        Ok(())
    });
    match result {
        Ok(mut inspection) => {
            inspection.kept = kept;
            Ok(inspection)
        }
        Err(InspectError::Capture {
            name,
            packets,
            source,
            mut partial,
        }) => {
            partial.kept = kept;
            Err(InspectError::Capture {
                name,
                packets,
                source,
                partial,
            })
        }
        Err(e) => Err(e),
    }
}

/// Inspects a capture and hands each RoCE packet to `each` as soon as it is read, so that a file of
/// any size takes bounded memory: interfaces, flows and findings have limits. Findings at the end of a flow are in
/// the result only.
///
/// # Errors
///
/// As [`inspect`], and if `each` fails.
pub fn inspect_each(
    reader: impl Read,
    name: &str,
    options: &Options,
    mut each: impl FnMut(&Packet) -> io::Result<()>,
) -> Result<Inspection, InspectError> {
    let mut inspector = Inspector::new(name, options);
    let broken = |inspector: Inspector<'_>, source| {
        let partial = Box::new(inspector.finish());
        InspectError::Capture {
            name: name.to_owned(),
            packets: partial.packets,
            source,
            partial,
        }
    };
    let mut reader = match Reader::new(reader) {
        Ok(reader) => reader,
        Err(CaptureError::Truncated {
            offset: 0,
            there: 0,
            ..
        }) => return Err(InspectError::Empty { name: name.into() }),
        Err(source) => return Err(broken(inspector, source)),
    };
    loop {
        match reader.next() {
            None => break,
            Some(Err(source)) => {
                inspector.interfaces(reader.interfaces());
                return Err(broken(inspector, source));
            }
            Some(Ok(record)) => {
                inspector.links.learn(reader.interfaces());
                if let Some(packet) = inspector.take(record) {
                    each(&packet).map_err(InspectError::Output)?;
                }
            }
        }
    }
    inspector.interfaces(reader.interfaces());
    Ok(inspector.finish())
}

/// An inspection under way.
struct Inspector<'o> {
    options: &'o Options,
    flows: Flows,
    links: Links,
    start: Option<Stamp>,
    end: Option<Stamp>,
    /// How many findings of each rule each flow has.
    tally: Vec<BTreeMap<Rule, u64>>,
    /// Those of packets without a flow.
    stray: BTreeMap<Rule, u64>,
    out: Inspection,
}

impl<'o> Inspector<'o> {
    fn new(name: &str, options: &'o Options) -> Inspector<'o> {
        Inspector {
            options,
            flows: Flows::new(options.max_flows),
            links: Links::default(),
            start: None,
            end: None,
            tally: Vec::new(),
            stray: BTreeMap::new(),
            out: Inspection {
                file: name.to_owned(),
                ..Inspection::default()
            },
        }
    }

    fn interfaces(&mut self, interfaces: &[capture::Interface]) {
        let each = interfaces.iter().enumerate().take(self.options.max_flows);
        self.out.interfaces = each
            .map(|(i, interface)| Interface {
                index: i as u32,
                name: interface.name.clone(),
                link: interface.link.to_string(),
            })
            .collect();
    }

    /// Takes a record; returns its packet if it is RoCE.
    fn take(&mut self, mut record: Record) -> Option<Packet> {
        self.out.packets += 1;
        let number = self.out.packets;
        self.start = self.start.or(record.time);
        self.end = record.time.or(self.end);
        let interface = record.interface as u32;
        let point = Point {
            interface: self.links.of(interface),
            cooked: record::cooked_interface(&record),
        };
        let (time, frame_len) = (record.time, record.original_len);
        let comments = std::mem::take(&mut record.comments);
        let mut found = Found::new();
        let (mut view, cut) = match record::look(&mut record) {
            Content::Roce(view, cut) => (view, cut),
            content => {
                match content {
                    Content::Headless => put(
                        &mut found,
                        Rule::CutShort,
                        "cut by the capture before the end of its BTH",
                    ),
                    Content::Broken(text) => put(&mut found, Rule::Malformed, text),
                    Content::Link(text) => put(&mut found, Rule::NotFollowed, text),
                    Content::Foreign | Content::Roce(..) => {}
                }
                self.out.other_packets += 1;
                self.report(number, None, found);
                return None;
            }
        };
        self.out.roce_packets += 1;
        let sound = frame_rules::check(&view, cut, &mut found);
        if cut == Cut::Headers {
            view.transport.ext = Ext::None;
        }
        let mut packet = Packet::of(&view);
        packet.number = number;
        packet.interface = interface;
        packet.comments = comments;
        packet.frame_len = frame_len;
        packet.time = time
            .zip(self.start)
            .map(|(t, start)| seconds(t.since(start)));
        packet.icrc = match (cut, sound) {
            (Cut::Whole, true) => IcrcStatus::Good,
            (Cut::Whole, false) => IcrcStatus::Bad,
            (Cut::Payload | Cut::Headers, _) => IcrcStatus::Unchecked,
        };
        let counts = &mut self.out.icrc;
        *match packet.icrc {
            IcrcStatus::Good => &mut counts.good,
            IcrcStatus::Bad => &mut counts.bad,
            IcrcStatus::Unchecked => &mut counts.unchecked,
        } += 1;
        let seen = Seen {
            view: &view,
            point,
            interface,
            number,
            time,
            sound: sound || self.options.ignore_icrc,
            dropped: packet.comments.iter().any(|c| takes_away(c)),
        };
        let place = self.flows.see(&seen, &mut found);
        packet.flow = place.flow.map(flow_id);
        packet.round = place.round;
        packet.findings = self.report(number, place.flow, found);
        Some(packet)
    }

    /// Counts and stores what was found; returns what is about packet `number`.
    fn report(&mut self, number: u64, flow: Option<usize>, found: Found) -> Vec<Finding> {
        let mut here = Vec::new();
        for raw in found {
            let tally = match flow {
                Some(flow) => {
                    if self.tally.len() <= flow {
                        self.tally.resize_with(flow + 1, BTreeMap::new);
                    }
                    &mut self.tally[flow]
                }
                None => &mut self.stray,
            };
            let n = tally.entry(raw.rule).or_default();
            *n += 1;
            *self.out.rules.entry(raw.rule).or_default() += 1;
            let finding = Finding {
                packet: raw.packet.unwrap_or(number),
                flow: flow.map(flow_id),
                severity: raw.rule.severity(),
                rule: raw.rule,
                text: raw.text,
            };
            let full = self.out.findings.len() >= MOST_FINDINGS;
            if *n > self.options.findings_per_rule || full {
                self.out.findings_left_out += 1;
            } else {
                self.out.findings.push(finding.clone());
            }
            if finding.packet == number {
                here.push(finding);
            }
        }
        here
    }

    fn finish(mut self) -> Inspection {
        for at in 0..self.flows.all.len() {
            let mut found = Found::new();
            self.flows.end(at, self.end, &mut found);
            self.report(0, Some(at), found);
        }
        self.tally.resize_with(self.flows.all.len(), BTreeMap::new);
        self.out.start = self.start.map(|s| s.to_string());
        self.out.duration = self.end.zip(self.start).map(|(e, s)| seconds(e.since(s)));
        self.out.packets_not_followed = self.flows.not_followed;
        self.out.nothing_checked = self.out.why_nothing();
        for at in 0..self.flows.all.len() {
            let peer = self.flows.all[at].peer;
            if peer.is_some_and(|p| p < at) {
                continue;
            }
            let by_cm = self.flows.all[at].by_cm;
            let connection = Connection {
                id: self.out.connections.len() as u32 + 1,
                joined_by: peer.map(|_| if by_cm { "cm" } else { "psn" }),
                flows: [Some(at), peer]
                    .into_iter()
                    .flatten()
                    .map(|i| self.flow(i))
                    .collect(),
            };
            self.out.connections.push(connection);
        }
        self.out
    }

    fn flow(&mut self, at: usize) -> Flow {
        let rules = std::mem::take(&mut self.tally[at]);
        let f = &self.flows.all[at];
        let r = &f.requests;
        let started = |psn: softroce_sim::wire::Psn| r.started.then(|| psn.get());
        Flow {
            id: flow_id(at),
            interface: f.interface,
            src: f.key.src.to_string(),
            dst: f.key.dst.to_string(),
            destqp: f.key.dest_qp.get(),
            service: match f.service {
                Service::Unknown => "unknown".into(),
                service => format!("{service:?}").to_uppercase(),
            },
            packets: f.packets,
            requests: f.request_packets,
            responses: f.response_packets,
            payload_bytes: f.payload,
            duration: f
                .last_time
                .zip(f.first_time)
                .map(|(l, s)| seconds(l.since(s))),
            first_psn: started(r.first),
            last_psn: started(r.next.minus(1)),
            acknowledged_psn: r.acked.map(|(psn, _)| psn.get()),
            path_mtu: r.messages.mtu,
            rounds: if r.started { r.round } else { 0 },
            ce_packets: f.marks.ce,
            cnps: f.marks.cnps,
            given_up: r.given_up.clone(),
            rules,
        }
    }
}

/// Flows are numbered from 1.
fn flow_id(at: usize) -> u32 {
    at as u32 + 1
}

fn seconds(ps: i128) -> f64 {
    ps as f64 / 1e12
}

/// True for a comment of a scenario's capture that says that a fault has dropped or damaged the packet.
fn takes_away(comment: &str) -> bool {
    let what = comment
        .strip_prefix("fault ")
        .and_then(|rest| rest.rsplit_once(": "));
    what.is_some_and(|(_, what)| what == "dropped" || what.starts_with("corrupted "))
}
