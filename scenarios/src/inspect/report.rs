//! What an inspection comes to.

use super::finding::{Finding, Rule, Severity};
use super::giveup::GivenUp;
use super::packet::Packet;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Version of the JSON that inspections are written as. It grows when a field changes its meaning or
/// goes away.
pub const SCHEMA: u32 = 1;

/// What the packets of a capture say.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Inspection {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// Packets in the file.
    pub packets: u64,
    /// Those that are RoCE.
    pub roce_packets: u64,
    /// Those that are not.
    pub other_packets: u64,
    /// RoCE packets by the state of their ICRC.
    pub icrc: IcrcCounts,
    /// Time of the first packet, in seconds since 1970, or since the start of a virtual clock.
    pub start: Option<String>,
    /// Seconds from the first to the last packet.
    pub duration: Option<f64>,
    /// Where packets were captured.
    pub interfaces: Vec<Interface>,
    /// The connections, in the order in which they appear.
    pub connections: Vec<Connection>,
    /// How many findings there are of each rule, stored or not.
    pub rules: BTreeMap<Rule, u64>,
    /// Findings in the order of discovery: the first of each flow and rule, as the options say.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_left_out: u64,
    /// Packets of flows beyond the limit on flows; fields and ICRC were checked, sequence was not.
    pub packets_not_followed: u64,
    /// Why nothing was checked, if there was no RoCE packet, not even a broken one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing_checked: Option<String>,
    /// The packets, as many as the options say; empty if each was handed over when it was read.
    #[serde(skip)]
    pub kept: Vec<Packet>,
}

/// RoCE packets by the state of their ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct IcrcCounts {
    /// Right.
    pub good: u64,
    /// Wrong.
    pub bad: u64,
    /// Not checked, because the capture cut the packet.
    pub unchecked: u64,
}

/// An interface of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Interface {
    /// Its index over all sections of the file.
    pub index: u32,
    /// Its name, if the file has one.
    pub name: Option<String>,
    /// What its packets begin with.
    pub link: String,
}

/// One or two flows that belong together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Connection {
    /// From 1, in the order of appearance.
    pub id: u32,
    /// How the flows were joined: `cm` or `psn`; `None` if there is one.
    pub joined_by: Option<&'static str>,
    /// The flow that appeared first, and the one of the other direction.
    pub flows: Vec<Flow>,
}

/// What one address sends to one queue pair of another.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Flow {
    /// From 1, in the order of appearance.
    pub id: u32,
    /// Index of the interface it was seen at.
    pub interface: u32,
    /// Source address.
    pub src: String,
    /// Destination address.
    pub dst: String,
    /// Destination queue pair.
    pub destqp: u32,
    /// Transport service: `RC`, `UC`, `UD`, ...
    pub service: String,
    /// Packets in all.
    pub packets: u64,
    /// Requests.
    pub requests: u64,
    /// Responses to the other flow's requests.
    pub responses: u64,
    /// Bytes of payload, retransmissions included.
    pub payload_bytes: u64,
    /// Seconds from its first to its last packet.
    pub duration: Option<f64>,
    /// Lowest PSN sent, within the last 2^22.
    pub first_psn: Option<u32>,
    /// Highest PSN sent, those of the responses to a READ included.
    pub last_psn: Option<u32>,
    /// Highest PSN acknowledged.
    pub acknowledged_psn: Option<u32>,
    /// Path MTU, if it could be told.
    pub path_mtu: Option<u32>,
    /// Transmission rounds of the requests.
    pub rounds: u32,
    /// Packets with the mark "congestion experienced".
    pub ce_packets: u64,
    /// CNPs that came back for them.
    pub cnps: u64,
    /// The last request that was given up or refused, as far as the capture shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_up: Option<GivenUp>,
    /// How many findings there are of each rule.
    pub rules: BTreeMap<Rule, u64>,
}

impl Inspection {
    /// Findings of a severity.
    pub fn count(&self, severity: Severity) -> u64 {
        let of = self.rules.iter().filter(|(r, _)| r.severity() == severity);
        of.map(|(_, n)| n).sum()
    }

    /// What the program exits with: 1 if a rule is broken, 2 if nothing was checked, else 0.
    pub fn exit_code(&self) -> u8 {
        match &self.nothing_checked {
            _ if self.count(Severity::Violation) > 0 => 1,
            Some(_) => 2,
            None => 0,
        }
    }

    /// What there was instead of RoCE packets.
    pub(super) fn why_nothing(&self) -> Option<String> {
        if self.roce_packets > 0 || self.count(Severity::Violation) > 0 {
            return None;
        }
        let of = |rule| self.rules.get(&rule).copied().unwrap_or(0);
        let (unread, cut) = (of(Rule::NotFollowed), of(Rule::CutShort));
        let links: BTreeSet<&str> = self.interfaces.iter().map(|i| i.link.as_str()).collect();
        let links: Vec<&str> = links.into_iter().take(4).collect();
        let foreign = self.packets - unread - cut;
        let each = [
            (
                unread,
                format!("of a link type that is not read ({})", links.join(", ")),
            ),
            (cut, "cut before the end of the BTH".into()),
            (foreign, "of other protocols".into()),
        ];
        let there: Vec<String> = each
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{n} {what}"))
            .collect();
        Some(match there.is_empty() {
            true => "there is no packet".into(),
            false => format!("of {} packets there are {}", self.packets, there.join(", ")),
        })
    }

    /// The findings of one rule.
    pub fn of(&self, rule: Rule) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |f| f.rule == rule)
    }
}
