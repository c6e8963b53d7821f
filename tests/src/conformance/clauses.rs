//! The numbered clauses that the suite is held against: those of the InfiniBand Architecture Specification
//! that have been read, in a public source, with their number and what they ask for together. There are
//! many more; this list says nothing about those.
//!
//! The words are ours. Numbers that begin with `C` bind every card, with `o` those that offer the
//! option; `CA17` is annex A17, RoCEv2.

use Standing::{Absent, NotBinding, Open, Proved, Umbrella};

/// What becomes of a clause in the suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// A rule carries its number.
    Proved,
    /// It says that other clauses hold, and those are rules.
    Umbrella(&'static str),
    /// It does not bind a RoCEv2 card, and why.
    NotBinding(&'static str),
    /// It forbids or regulates what the card does not have, so there is nothing to try.
    Absent(&'static str),
    /// It is not covered, and why.
    Open(&'static str),
}

/// A numbered clause.
#[derive(Clone, Copy, Debug)]
pub struct Clause {
    /// Its number: `CA17-24`.
    pub id: &'static str,
    /// What it asks for.
    pub words: &'static str,
    /// What becomes of it.
    pub standing: Standing,
}

const fn clause(id: &'static str, words: &'static str, standing: Standing) -> Clause {
    Clause {
        id,
        words,
        standing,
    }
}

/// All of them, in the order of the specification's volumes and annexes.
pub static CLAUSES: &[Clause] = &[
    clause(
        "C5-8",
        "Every data packet of a message carries a full path-MTU payload, except the last or only one",
        Proved,
    ),
    clause(
        "C8-7",
        "A GRH whose next header is 0x1B is followed by a BTH",
        Proved,
    ),
    clause(
        "C9-6",
        "Reserved bits, FECN and BECN are sent as zero, and reserved bits are ignored",
        Proved,
    ),
    clause(
        "C9-41",
        "P_Key is not checked when destination is QP0",
        NotBinding("queue pair 0 does not exist in RoCEv2: see CA17-33"),
    ),
    clause(
        "C9-42",
        "For QP1, P_Key is accepted if it matches any entry of the port P_Key table",
        Proved,
    ),
    clause(
        "C9-49",
        "Q_Key of the GSI queue pair (QP1) is the well-known 0x80010000",
        Proved,
    ),
    clause(
        "C9-88",
        "RC responder: no R_Key check for RDMA READs and WRITEs of zero length",
        Proved,
    ),
    clause(
        "C9-110",
        "Duplicates are answered in PSN order; an earlier one interrupts the response under way",
        Proved,
    ),
    clause(
        "C9-139",
        "RC requester: each send queue has a transport timer to notice missing responses",
        Proved,
    ),
    clause(
        "C9-140",
        "The timer is 4.096 us times 2^(local ACK timeout), five bits; zero switches it off",
        Proved,
    ),
    clause(
        "C9-148",
        "RC responder MSN: from zero, plus one per completed request, not for duplicates",
        Proved,
    ),
    clause(
        "C9-165",
        "Unreliable services: responder validates header fields per 9.6; bad packet silently dropped",
        Proved,
    ),
    clause(
        "C9-166",
        "UC on an HCA: check PSN to find out-of-order packets",
        Proved,
    ),
    clause(
        "C9-167",
        "UC on an HCA: check that the opcode fits the packet sequence; not for UD",
        Proved,
    ),
    clause(
        "C9-168",
        "Unreliable services: check that the receive queue supports the requested operation",
        Proved,
    ),
    clause(
        "C9-205",
        "UD: a payload above the PMTU or the buffer is dropped; the buffer waits for the next",
        Proved,
    ),
    clause(
        "C9-218",
        "Requester class F (CQ full): QP to error, and an affiliated asynchronous event",
        Proved,
    ),
    clause(
        "C9-220",
        "Responder class A: remaining and later WQEs on both queues complete as flushed",
        Proved,
    ),
    clause(
        "C9-222.1.1",
        "Responder class C on RC: a NAK; an event if no WQE is known, else an error completion",
        Proved,
    ),
    clause(
        "o9-30",
        "TCA RC responder, and RD or XRC responder: every request is acknowledged, all in PSN order",
        NotBinding("binds target adapters, RD and XRC"),
    ),
    clause(
        "o9-85",
        "One timer for all requests, restarted at each response, finds persistent silence",
        NotBinding("an option of target adapters and RD"),
    ),
    clause(
        "o9-115",
        "TCA with UC: check PSN to find out-of-order packets",
        NotBinding("binds target adapters: see C9-166"),
    ),
    clause(
        "o9-116",
        "TCA with UC: check the opcode sequence",
        NotBinding("binds target adapters: see C9-167"),
    ),
    clause(
        "C10-2",
        "Entry 0 of the GID table is fixed and read-only",
        NotBinding("the addresses of a RoCEv2 port follow its IP addresses"),
    ),
    clause(
        "C10-10",
        "UD: address handle and QP have the same PD, or the request fails",
        Proved,
    ),
    clause(
        "C10-15",
        "If the top bit of the Q_Key in a request is set, that of the QP is sent instead",
        Proved,
    ),
    clause("C10-20", "A newly created QP is in the Reset state", Proved),
    clause(
        "C10-22",
        "Posting to either queue in Reset gives an immediate error",
        Proved,
    ),
    clause(
        "C10-25",
        "Posting a send in Init gives an immediate error",
        Proved,
    ),
    clause(
        "C10-29",
        "Posting a send in RTR gives an immediate error",
        Proved,
    ),
    clause(
        "C10-42",
        "In the error state all later work requests, even newly posted ones, are flushed",
        Proved,
    ),
    clause(
        "C10-68",
        "Once an MW bind has completed, no access through the former binding may succeed",
        Proved,
    ),
    clause(
        "C10-87",
        "RDMA WRITE without immediate data, or a failed one, consumes no receive work request",
        Proved,
    ),
    clause(
        "C10-93.1.1",
        "UD: a message longer than the port MTU is not sent, and no error is told",
        Proved,
    ),
    clause(
        "C10-96",
        "Sends: an immediate error in Reset, Init and RTR; in SQE and Error they complete in error",
        Proved,
    ),
    clause(
        "C10-116",
        "A P_Key whose low 15 bits are zero is invalid",
        Proved,
    ),
    clause(
        "o10-2.2.3",
        "Destroying a QP attached to a multicast group fails at once",
        Proved,
    ),
    clause(
        "o10-2.2.5",
        "Destroying a QP with type 2B windows still bound must be allowed",
        Proved,
    ),
    clause(
        "o10-37.2.31",
        "Type 2A or type 2B windows are offered, never both",
        Absent("one kind of type 2 window is offered, so there is nothing to mix"),
    ),
    clause(
        "C11-15",
        "One CQ does not serve both special and ordinary QPs",
        Proved,
    ),
    clause(
        "C11-17",
        "Destroying a CQ still used by a work queue returns an error",
        Proved,
    ),
    clause(
        "C11-37",
        "A CQ overrun raises a CQ error; work queues learn of it by an event when they next complete",
        Proved,
    ),
    clause(
        "o11-5.1.1",
        "No communication-established event for UD (and raw) QPs",
        Proved,
    ),
    clause(
        "o11-5.2.5",
        "With an SRQ: an event when a QP in error has consumed its last receive",
        Proved,
    ),
    clause(
        "o11-40.2-1.1",
        "A change of the GID table raises an event",
        Absent("the card's address does not change"),
    ),
    clause(
        "C17-7",
        "The P_Key table is set by subnet management alone",
        NotBinding("subnet management: not for RoCEv2"),
    ),
    clause(
        "CA10-49",
        "Old entries of the congestion log are cleared",
        NotBinding("congestion control of InfiniBand: not for RoCEv2"),
    ),
    clause(
        "CA16-18",
        "An address vector with a reserved SL (8 to 15) is invalid on a RoCE port",
        Proved,
    ),
    clause(
        "CA17-1",
        "Port handles both IPv4 and IPv6 packet formats",
        Proved,
    ),
    clause(
        "CA17-2",
        "Packets follow the annex frame layout, fields per the IPv4 or IPv6 section",
        Proved,
    ),
    clause("CA17-3", "IPv4: header length field is 5", Proved),
    clause(
        "CA17-4",
        "IPv4: DSCP comes from the traffic class of the address vector",
        Proved,
    ),
    clause(
        "CA17-5",
        "IPv4: ECN bits 00 unless congestion management is supported",
        Proved,
    ),
    clause(
        "CA17-6",
        "IPv4: total length counts IP header up to and with the ICRC",
        Proved,
    ),
    clause("CA17-7", "IPv4: flags 010, do not fragment", Proved),
    clause("CA17-8", "IPv4: fragment offset 0", Proved),
    clause(
        "CA17-9",
        "IPv4: TTL comes from the hop limit of the address vector",
        Proved,
    ),
    clause("CA17-10", "IPv4: protocol is 0x11, UDP", Proved),
    clause(
        "CA17-11",
        "IPv4: source address is that of the GID entry that the SGID index selects",
        Proved,
    ),
    clause(
        "CA17-12",
        "IPv4: destination address is the one in the DGID of the address vector",
        Proved,
    ),
    clause(
        "CA17-13",
        "IPv6: DSCP comes from the traffic class of the address vector",
        Proved,
    ),
    clause(
        "CA17-14",
        "IPv6: ECN bits 00 unless congestion management is supported",
        Proved,
    ),
    clause(
        "CA17-15",
        "IPv6: payload length counts from after the header up to and with the ICRC",
        Proved,
    ),
    clause("CA17-16", "IPv6: next header is 0x11, UDP", Proved),
    clause(
        "CA17-17",
        "IPv6: hop limit comes from the address vector",
        Proved,
    ),
    clause(
        "CA17-18",
        "IPv6: source address is that of the GID entry that the SGID index selects",
        Proved,
    ),
    clause(
        "CA17-19",
        "IPv6: destination address is the DGID of the address vector",
        Proved,
    ),
    clause(
        "CA17-20",
        "The UDP destination port is the one that IANA gave RoCEv2",
        Proved,
    ),
    clause(
        "CA17-21",
        "UDP length counts UDP header up to and with the ICRC",
        Proved,
    ),
    clause(
        "CA17-22",
        "ICRC: 64 one bits, then the datagram, with what changes on the way as ones",
        Proved,
    ),
    clause(
        "CA17-23",
        "Inbound checks are those of the base specification, as changed by A17.4",
        Umbrella("these checks are the rules of wire::inbound and responder::headers"),
    ),
    clause(
        "CA17-24",
        "Received packets breaking the IP, UDP or ICRC rules are silently dropped",
        Proved,
    ),
    clause(
        "CA17-25",
        "Transport of chapter 9 applies, with the exceptions of this annex",
        Umbrella("chapter 9 is what the other groups are about"),
    ),
    clause(
        "CA17-26",
        "Each GID table entry has a type: IPv4, IPv6 or IB GID",
        Open("the card has one address and no table of them"),
    ),
    clause("CA17-27", "Wrong IP version number: silent drop", Proved),
    clause(
        "CA17-28",
        "No IB raw datagrams on a RoCEv2 port",
        Absent("there are no raw queue pairs"),
    ),
    clause(
        "CA17-29",
        "BECN and FECN of the BTH are unused and ignored",
        Proved,
    ),
    clause(
        "CA17-30",
        "The verb changes listed in A17.5 are adopted",
        Umbrella("a list of changes to the verbs; those that a card shows are rules"),
    ),
    clause(
        "CA17-31",
        "No client reregistration",
        Absent("there is no such event"),
    ),
    clause(
        "CA17-32",
        "No optional port-change event",
        Absent("there is no such event"),
    ),
    clause(
        "CA17-33",
        "Packet with destination QP0: silent drop",
        Proved,
    ),
    clause(
        "CA17-34",
        "CM REQ: the four LID fields are reserved and ignored",
        Open("connection management is left to programs"),
    ),
    clause(
        "CA17-35",
        "CM REJ: reasons 13 and 19 (LID rejected) are not sent",
        Open("connection management is left to programs"),
    ),
    clause(
        "CA17-36",
        "CM LAP: alternate LID fields are reserved and ignored",
        Open("connection management is left to programs"),
    ),
    clause(
        "CA17-37",
        "CM APR: status 7 (alternate LID rejected) is not sent",
        Open("connection management is left to programs"),
    ),
    clause(
        "CA17-38",
        "CM SAP: alternate local LID is reserved and ignored",
        Open("connection management is left to programs"),
    ),
    clause(
        "CA17-39",
        "Transport-layer errors are checked in every incoming packet",
        Proved,
    ),
    clause(
        "CA17-40",
        "Connected QP runs RoCE or RoCEv2 as its GID entry type says",
        Proved,
    ),
    clause(
        "CA17-41",
        "DGID check fails if the type of the GID entry differs from the protocol of the packet",
        Proved,
    ),
    clause(
        "CA17-42",
        "UD QP sends RoCE or RoCEv2 as the GID entry type of the address vector says",
        Proved,
    ),
    clause(
        "CA17-43",
        "UD QP on a port with both accepts RoCE and RoCEv2 packets",
        Proved,
    ),
    clause(
        "CA17-44",
        "With congestion management: a packet marked ECN 11 makes the HCA send a CNP to its source",
        Proved,
    ),
    clause(
        "CA17-45",
        "With congestion management: a CNP makes the HCA lower the rate of the QP named",
        Proved,
    ),
    clause(
        "CA17-46",
        "With congestion management: rate rises again after set time or bytes since the last CNP",
        Proved,
    ),
    clause(
        "oA19-1",
        "FLUSH is answered once earlier writes have the placement asked for",
        Open("optional: the card does not offer FLUSH"),
    ),
    clause(
        "oA19-2",
        "FLUSH is a single packet without payload",
        Open("optional: the card does not offer FLUSH"),
    ),
    clause(
        "oA19-5",
        "FLUSH opcode is 0x1C (RC)",
        Open("optional: the card does not offer FLUSH"),
    ),
    clause(
        "oA19-6",
        "FLUSH carries solicited-event bit zero",
        Open("optional: the card does not offer FLUSH"),
    ),
    clause(
        "oA19-9",
        "FLUSH uses one responder resource",
        Open("optional: the card does not offer FLUSH"),
    ),
];
