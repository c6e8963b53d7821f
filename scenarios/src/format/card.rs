//! `[card]`: the network cards of the hosts and how their queue pairs are set up.

use super::choices::choices;
use super::congestion::{self, Congestion};
use super::diagnostic::Sink;
use super::reader::Reader;
use super::schema::{Key, Kind, Section, joined};
use super::topology::Network;
use crate::units::{Size, Span};
use softroce_sim::card::Profile;
use softroce_sim::card::congestion::{CongestionControl, Notification};
use softroce_sim::card::profile::{RXE, SPEC};

choices! {
    /// How a card is addressed, and with it how packets are wrapped.
    pub enum GidKind {
        /// RoCEv2 over IPv4.
        Ipv4 = "ipv4",
        /// RoCEv2 over IPv6.
        Ipv6 = "ipv6",
        /// RoCEv1: a GRH after the Ethernet header, no IP.
        RoceV1 = "rocev1",
    }
}

choices! {
    /// What a requester sends again after a gap.
    pub enum Recovery {
        /// Everything from the lost packet on.
        GoBackN = "go-back-n",
        /// The message from its first packet on.
        GoBack0 = "go-back-0",
    }
}

choices! {
    /// Whose habits a card has.
    pub enum Habits {
        /// Those of the specification.
        Spec = "spec",
        /// Those of Linux' software card.
        Rxe = "rxe",
    }
}

impl Habits {
    /// As the simulator has them.
    pub fn profile(self) -> &'static Profile {
        match self {
            Habits::Spec => &SPEC,
            Habits::Rxe => &RXE,
        }
    }
}

const DELAY: Kind = Kind::Span(0, 10_000_000_000_000);

pub(super) static CARD: Section = Section {
    title: "[card]",
    about: "The card of every host, and the attributes its queue pairs are given.",
    named: Some("host"),
    keys: &KEYS,
};

const OWN: [Key; 18] = [
    Key::with(
        "mtu",
        Kind::Size(256, 4096),
        "1024",
        "Path MTU, payload bytes a packet carries at most: 256, 512, 1024, 2048 or 4096. The two \
     ends of a queue pair must agree.",
    ),
    Key::with(
        "gid",
        Kind::Choice(GidKind::NAMES),
        "ipv4",
        "Addresses: RoCEv2 over IPv4 or IPv6, or RoCEv1. The two ends of a queue pair must agree.",
    ),
    Key::with(
        "profile",
        Kind::Choice(Habits::NAMES),
        "spec",
        "Habits where cards differ: those of the specification, or of Linux' software card (rdma_rxe).",
    ),
    Key::with(
        "timeout",
        Kind::Count(0, 31),
        "14",
        "Local ACK timeout as an exponent: 4.096 us x 2^timeout (14: 67 ms); 0 waits for ever.",
    ),
    Key::with(
        "retry-count",
        Kind::Count(0, 7),
        "7",
        "Timeouts and sequence NAKs in a row, without progress, before the queue pair fails with \
     `retry-exceeded`.",
    ),
    Key::with(
        "rnr-retry",
        Kind::Count(0, 7),
        "7",
        "RNR NAKs in a row before the queue pair fails with `rnr-retry-exceeded`; 7 is for ever.",
    ),
    Key::with(
        "min-rnr-timer",
        Kind::Count(0, 31),
        "12",
        "Code of the delay this card asks for in its RNR NAKs (1: 10 us, 12: 640 us, 0: 655 ms).",
    ),
    Key::with(
        "max-rd-atomic",
        Kind::Count(1, 128),
        "16",
        "READs and atomics a queue pair has outstanding at most, and answers at most.",
    ),
    Key::optional(
        "ack-every",
        Kind::Count(1, 65_536),
        "32; 66 with profile `rxe`",
        "A requester asks for an ACK with the last packet of each message, within one with every n-th packet, \
         and with one that closes its window (every one, if the window follows the rate).",
    ),
    Key::with(
        "recovery",
        Kind::Choice(Recovery::NAMES),
        "go-back-n",
        "What is sent again after a gap: everything from the lost packet on, or the whole message.",
    ),
    Key::with(
        "ack-delay",
        DELAY,
        "0ps",
        "From the arrival of a request until its ACK, or the first packet of its READ response, is ready.",
    ),
    Key::with(
        "nak-delay",
        DELAY,
        "0ps",
        "From the arrival of a packet after a gap until the NAK is ready to be sent.",
    ),
    Key::with(
        "retransmit-delay",
        DELAY,
        "0ps",
        "From the arrival of a NAK, or a timeout, until the first packet is sent again.",
    ),
    Key::with(
        "doorbell-delay",
        DELAY,
        "0ps",
        "From the posting of a request on an idle send queue until its first packet is ready.",
    ),
    Key::optional(
        "credits",
        Kind::Boolean,
        "true; false with profile `rxe`",
        "End-to-end credits: ACKs tell how many receives are posted, and a requester without \
     credit sends one request at a time.",
    ),
    Key::with(
        "priority",
        Kind::Count(0, 7),
        "3",
        "Ethernet priority of requests.",
    ),
    Key::optional(
        "ack-priority",
        Kind::Count(0, 7),
        "`priority`",
        "Ethernet priority of ACKs, NAKs and READ responses.",
    ),
    Key::with(
        "dscp",
        Kind::Count(0, 63),
        "26",
        "DSCP of every packet it sends.",
    ),
];

static KEYS: [Key; OWN.len() + congestion::KEYS.len()] = joined(OWN, congestion::KEYS);

/// The card of one host.
#[derive(Clone, PartialEq, Debug)]
pub struct Card {
    /// Path MTU: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
    /// Whose habits it has.
    pub profile: Habits,
    /// How it is addressed.
    pub gid: GidKind,
    /// Local ACK timeout exponent; 0 waits for ever.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs.
    pub retry_count: u8,
    /// Retries after RNR NAKs; 7 is for ever.
    pub rnr_retry: u8,
    /// Code of the RNR delay it asks for.
    pub min_rnr_timer: u8,
    /// Outstanding READs and atomics.
    pub max_rd_atomic: u8,
    /// Packets from one AckReq to the next.
    pub ack_every: u32,
    /// What is sent again after a gap.
    pub recovery: Recovery,
    /// Until an ACK is ready.
    pub ack_delay: Span,
    /// Until a NAK is ready.
    pub nak_delay: Span,
    /// Until a retransmission begins.
    pub retransmit_delay: Span,
    /// Until a posted request is begun.
    pub doorbell_delay: Span,
    /// End-to-end credits.
    pub credits: bool,
    /// Priority of requests.
    pub priority: u8,
    /// Priority of ACKs, NAKs and READ responses.
    pub ack_priority: u8,
    /// DSCP of what it sends.
    pub dscp: u8,
    /// Congestion control of its queue pairs.
    pub congestion: CongestionControl,
    /// How it answers marked packets, if it does.
    pub notification: Option<Notification>,
}

impl Card {
    /// The span after which a packet that is not acknowledged is sent again, by the formula of the
    /// specification: 4.096 us x 2^timeout. `None` if it waits for ever.
    pub fn ack_timeout(&self) -> Option<Span> {
        (self.timeout != 0).then(|| Span::from_ps(4_096_000 << self.timeout))
    }

    /// Bytes of IP packet that a packet of a full path MTU needs at most: the network header, UDP, BTH,
    /// the longest extended headers of a packet with payload (RETH and immediate data), and ICRC.
    pub fn largest_packet(&self) -> u64 {
        let network = match self.gid {
            GidKind::Ipv4 => 20 + 8,
            GidKind::Ipv6 => 40 + 8,
            GidKind::RoceV1 => 40,
        };
        network + 12 + 16 + 4 + u64::from(self.mtu) + 4
    }
}

/// Reads the card of each host, in the order of the hosts.
pub(super) fn read(root: &Reader<'_>, network: &Network, sink: &Sink) -> Vec<Card> {
    let (table, origin) = root.table("card");
    let base = Reader::new(&CARD, table, origin, "[card]", sink);
    let (standard, told) = card(&base);
    let mut cards = vec![standard; network.hosts.len()];
    // Hosts with a table of their own, and what it says of notification.
    let mut own: Vec<Option<(Reader<'_>, Congestion)>> =
        network.hosts.iter().map(|_| None).collect();
    let hosts = network.hosts_by_name();
    for (entry, inner) in base.named() {
        let label = format!("[card.{}]", entry.key);
        let reader = Reader::unchecked(&CARD, entry.node.origin, label.clone(), sink)
            .inherit(inner, label)
            .inherit(table, "[card]")
            .checked();
        if let Some(n) = hosts.find(entry, &CARD, sink) {
            let (card, told) = card(&reader);
            cards[n] = card;
            own[n] = Some((reader, told));
        }
    }
    // Whoever hears of marks needs others to tell of them.
    let any = cards.iter().any(|card| card.congestion.heeds_marks());
    let lines = network.line_rates();
    for (n, host) in network.hosts.iter().enumerate() {
        let (reader, told) = own[n].as_ref().map_or((&base, &told), |(r, t)| (r, t));
        let rocev2 = cards[n].gid != GidKind::RoceV1;
        cards[n].notification = told.notification(any && rocev2);
        if let (true, Some(line)) = (sink.is_empty(), lines[n]) {
            congestion::fit(reader, &mut cards[n].congestion, line);
            congestion::check(reader, &cards[n].congestion, host, line);
        }
    }
    if !cards.is_empty() && cards.iter().all(|card| card.notification.is_none()) {
        for reader in std::iter::once(&base).chain(own.iter().flatten().map(|(r, _)| r)) {
            congestion::check_unanswered(reader);
        }
    }
    let room = network.links.iter().map(|l| l.mtu.0);
    if let Some(room) = room.min() {
        for (card, host) in cards.iter().zip(&network.hosts) {
            if sink.is_empty() && card.largest_packet() > room {
                base.say(
                    "mtu",
                    format!(
                        "makes packets of up to {} bytes at host \"{host}\", but the smallest mtu of \
                         a link is {room}",
                        card.largest_packet()
                    ),
                );
                break;
            }
        }
    }
    cards
}

/// Its notification is still to be settled.
fn card(reader: &Reader<'_>) -> (Card, Congestion) {
    let mtu: Size = reader.get("mtu");
    if mtu.0 != 0 && !matches!(mtu.0, 256 | 512 | 1024 | 2048 | 4096) {
        reader.say("mtu", "must be 256, 512, 1024, 2048 or 4096 bytes");
    }
    let priority = reader.get("priority");
    let habits: Habits = reader.get("profile");
    let profile = habits.profile();
    let gid: GidKind = reader.get("gid");
    let congestion = congestion::read(reader, gid != GidKind::RoceV1);
    let card = Card {
        mtu: u16::try_from(mtu.0).unwrap_or(4096),
        profile: habits,
        gid,
        timeout: reader.get("timeout"),
        retry_count: reader.get("retry-count"),
        rnr_retry: reader.get("rnr-retry"),
        min_rnr_timer: reader.get("min-rnr-timer"),
        max_rd_atomic: reader.get("max-rd-atomic"),
        ack_every: reader.opt("ack-every").unwrap_or(profile.ack_every),
        recovery: reader.get("recovery"),
        ack_delay: reader.get("ack-delay"),
        nak_delay: reader.get("nak-delay"),
        retransmit_delay: reader.get("retransmit-delay"),
        doorbell_delay: reader.get("doorbell-delay"),
        credits: reader.opt("credits").unwrap_or(profile.credits),
        priority,
        ack_priority: reader.opt("ack-priority").unwrap_or(priority),
        dscp: reader.get("dscp"),
        congestion: congestion.control,
        notification: None,
    };
    (card, congestion)
}
