//! What an inspection finds: rules, how grave each is, and findings.

use serde::Serialize;
use std::fmt;

/// How grave a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A card broke a rule. Decides the exit code.
    Violation,
    /// Something happened that rules provide for: a loss, a NAK, a retransmission, a mark.
    Event,
    /// A peculiarity without harm, or a limit of what the capture can tell.
    Note,
}

/// Declares [`Rule`] with what is known of each.
macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $severity:ident $title:literal;)+) => {
        /// What a finding is about. In JSON the names are in kebab case: `psn-gap`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            /// All of them, in the order of declaration.
            pub const ALL: &'static [Rule] = &[$(Rule::$name),+];

            /// How grave a finding of this kind is.
            pub const fn severity(self) -> Severity {
                match self { $(Rule::$name => Severity::$severity),+ }
            }

            /// A few words, as summaries have them.
            pub const fn title(self) -> &'static str {
                match self { $(Rule::$name => $title),+ }
            }
        }
    };
}

rules! {
    /// UDP port 4791 or EtherType 0x8915, but not the structure of a RoCE packet.
    Malformed = Violation "malformed packets";
    /// The ICRC is not that of the bytes; a receiver drops the packet (CA17-24).
    BadIcrc = Violation "bad ICRC";
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum = Violation "bad IPv4 header checksum";
    /// There is a UDP checksum and it is wrong; a capture at the sender may see it before the card
    /// fills it in.
    UdpChecksum = Note "bad UDP checksum";
    /// DF is clear (CA17-7).
    Fragmentable = Violation "DF clear";
    /// A transport version that does not exist.
    TransportVersion = Violation "transport version";
    /// The pad count does not fill up the payload to a multiple of four.
    PadCount = Violation "pad count";
    /// Payload where the opcode has none.
    UnexpectedPayload = Violation "payload where there is none";
    /// A field of a CNP that is zero by A17.9.3 is not; several cards set BECN or MigReq.
    CnpFields = Note "CNP fields not zero";
    /// Reserved bits, or FECN and BECN, which RoCEv2 does not use (CA17-29), are set; cards use
    /// some of them in ways of their own, and receivers ignore them.
    ReservedBits = Note "reserved bits set";
    /// An opcode without a meaning.
    UnknownOpcode = Violation "unknown opcodes";
    /// AckReq on a packet that is never acknowledged: UC, UD or a response.
    NeedlessAckReq = Note "AckReq where no ACK follows";
    /// The solicited event bit on a packet that completes no receive request.
    MisplacedSolicited = Note "solicited event bit where nothing completes";
    /// A destination of queue pair 0, dropped by a RoCEv2 receiver (CA17-33).
    QueuePairZero = Violation "destination queue pair 0";

    /// PSNs that were passed over here: lost before this point, or not captured.
    PsnGap = Event "PSN gaps";
    /// A packet that was sent before, or that a NAK asked for.
    Retransmission = Event "retransmitted packets";
    /// The same packet twice: same IPv4 identification, or at once and without a cause.
    Duplicate = Event "duplicates made by the network";
    /// A packet that others overtook.
    Reordered = Event "packets out of order";
    /// The same packet with another hop limit: the capture saw it at two places.
    AnotherHop = Note "packets seen again behind a router";
    /// A packet that was seen here was lost or overtaken between here and its destination, or its
    /// answer was.
    LossBeyond = Event "lost or overtaken beyond this point";
    /// A requester waited in vain for what never came past here.
    LossBefore = Event "losses before this point";
    /// Packets that were acknowledged, but are not in the capture.
    NotCaptured = Note "packets that only the capture missed";
    /// A PSN far from those before: another connection on the same queue pair number.
    NewConnection = Note "queue pair numbers used anew";
    /// The first packet of an unreliable connection in the capture is in the middle of a message: that is
    /// lost, or the capture began too late.
    BeginsInside = Note "messages whose beginning is not in the capture";
    /// FIRST, MIDDLE, LAST and ONLY in an order that no message has.
    OpcodeSequence = Violation "opcodes out of sequence";
    /// What was sent again is not what was sent before with this PSN.
    ResentDiffers = Violation "retransmissions that differ";
    /// The payloads of a WRITE, or the rest asked for by a READ, do not add up to the RETH's length.
    MessageLength = Violation "lengths that differ from the RETH";
    /// A payload that does not fit the path MTU and the packet's place (C5-8, C9-92).
    PayloadLength = Violation "payloads that do not fit the path MTU";
    /// Sent again before the RNR timer ran out (C9-130).
    RnrTimer = Violation "retransmissions before the RNR timer ran out";
    /// Sent again before the time was over that an RNR NAK asks for, but for something earlier: the NAK
    /// had not arrived yet, or only repeated another.
    RnrUnderWay = Note "retransmissions that crossed an RNR NAK";

    /// A response to a PSN that was never sent.
    NeverSent = Violation "responses to PSNs never sent";
    /// A repeated acknowledgement.
    DuplicateAck = Event "duplicate ACKs";
    /// An acknowledgement of less than an earlier one; the answer to a duplicate request, or late.
    AckBackwards = Event "ACKs going backwards";
    /// The MSN counts more messages than were sent, or fewer than are acknowledged (C9-148).
    Msn = Violation "inconsistent MSNs";
    /// NAK, PSN sequence error.
    SequenceNak = Event "sequence NAKs";
    /// A sequence NAK though nothing after its PSN was sent.
    SequenceNakWithoutGap = Violation "sequence NAKs without a gap";
    /// A second sequence NAK for one gap, with no retransmission between.
    SequenceNakAgain = Violation "repeated sequence NAKs for one gap";
    /// A sequence NAK that the network may have duplicated, or let others overtake: for what was
    /// acknowledged, or the same bytes again.
    LateNak = Note "late or repeated sequence NAKs";
    /// Receiver not ready.
    RnrNak = Event "RNR NAKs";
    /// NAK, invalid request, remote access error or remote operational error: the connection ends.
    FatalNak = Event "fatal NAKs";
    /// A syndrome that is reserved, or that its packet cannot have.
    Syndrome = Violation "syndromes without a meaning";
    /// A READ response, or atomic answer, that no request asks for.
    UnaskedResponse = Violation "responses without a request";
    /// FIRST, MIDDLE, LAST or ONLY at the wrong place of a READ response.
    ReadSequence = Violation "READ responses out of sequence";
    /// A READ response payload that does not fit the request and the path MTU.
    ReadLength = Violation "READ responses of wrong length";
    /// READ responses that were passed over: lost before this point, or not captured.
    ReadGap = Event "gaps in READ responses";
    /// READ responses or atomic answers that were seen before.
    ReadAgain = Event "repeated READ or atomic responses";

    /// A request that was tried again, or that a NAK asked for, and of which nothing was seen any more; or
    /// one that was refused for good. What a requester that gives up looks like.
    GivenUp = Event "requests given up";
    /// Requests without an answer at the end of the capture.
    Unacknowledged = Event "requests unacknowledged at the end";
    /// AckReq without an answer at the end of the capture.
    AckReqUnanswered = Event "AckReq never answered";
    /// No response is in the capture, so that answers cannot be checked.
    OneDirection = Note "one direction only";
    /// Responses that fit several request streams.
    Ambiguous = Note "responses that fit several connections";
    /// Packets with the mark "congestion experienced".
    CongestionExperienced = Event "ECN marks (CE)";
    /// A congestion notification packet.
    Cnp = Event "CNPs";
    /// CE marks that no CNP answered, though the other direction is in the capture.
    NoCnp = Note "CE marks without a CNP";
    /// Packets cut by the capture inside their headers.
    CutShort = Note "packets cut inside their headers";
    /// A service whose connections are not followed: XRC and RD.
    NotFollowed = Note "services not followed";
}

/// Something found, at a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Number of the packet in the file, from 1; findings at the end of a flow have that of the
    /// packet they are about.
    pub packet: u64,
    /// The flow, as [`Flow::id`](super::Flow::id) names it.
    pub flow: Option<u32>,
    /// How grave it is.
    pub severity: Severity,
    /// What it is about.
    pub rule: Rule,
    /// What happened, in words.
    pub text: String,
}

/// A finding before it has packet and flow.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) rule: Rule,
    pub(super) text: String,
    /// If it is about another packet than the present one.
    pub(super) packet: Option<u64>,
}

/// Where findings about the present packet are put.
pub(super) type Found = Vec<Raw>;

pub(super) fn put(found: &mut Found, rule: Rule, text: impl Into<String>) {
    found.push(Raw {
        rule,
        text: text.into(),
        packet: None,
    });
}

pub(super) fn put_at(found: &mut Found, packet: u64, rule: Rule, text: impl Into<String>) {
    found.push(Raw {
        rule,
        text: text.into(),
        packet: Some(packet),
    });
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Violation => "violation",
            Severity::Event => "event",
            Severity::Note => "note",
        })
    }
}

/// A length of time in picoseconds as a reader likes it: `6.600 ms`.
pub(super) fn span(ps: i128) -> String {
    let sign = if ps < 0 { "-" } else { "" };
    let ps = ps.unsigned_abs();
    let units = [(1_000, "ns"), (1_000_000, "us"), (1_000_000_000, "ms")];
    // The nearest thousandth, which may be that of the next unit.
    let rounded = |unit: u128| (ps + unit / 2_000) / (unit / 1_000);
    let fits = |&(unit, _): &(u128, &str)| rounded(unit) < 1_000_000;
    let largest = (1_000_000_000_000, "s");
    let (unit, name) = units.into_iter().find(fits).unwrap_or(largest);
    let (whole, thousandths) = (rounded(unit) / 1_000, rounded(unit) % 1_000);
    if thousandths == 0 {
        format!("{sign}{whole} {name}")
    } else {
        let text = format!("{sign}{whole}.{thousandths:03}");
        format!("{} {name}", text.trim_end_matches('0'))
    }
}

/// `PSN 7` or `PSN 7 to 9`.
pub(super) fn psns(first: softroce_sim::wire::Psn, last: softroce_sim::wire::Psn) -> String {
    if first == last {
        format!("PSN {first}")
    } else {
        format!("PSN {first} to {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well() {
        assert_eq!(span(6_600_000_000), "6.6 ms");
        assert_eq!(span(20_480_000_000), "20.48 ms");
        assert_eq!(span(277_000_000), "277 us");
        assert_eq!(span(1_500), "1.5 ns");
        // 4.096 us x 2^8, which reports show as 1.049ms.
        assert_eq!(span(1_048_576_000), "1.049 ms");
        assert_eq!(span(999_999_400), "999.999 us");
        assert_eq!(span(999_999_500), "1 ms");
        assert_eq!(span(0), "0 ns");
        assert_eq!(span(-2_000_000_000_000), "-2 s");
    }
}
