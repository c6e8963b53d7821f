//! The IPv4 header (A17.3.1.1).

use super::{IP, addressed, talk, word};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id};
use softroce_sim::card::Mtu;
use softroce_sim::wire::Ecn;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("CA17-3"),
        "IPv4: the header is five words long",
        [ipv4_header_is_five_words_long]
    ),
    rule!(
        Id("CA17-4"),
        "IPv4: the DSCP is that of the address vector's traffic class",
        [ipv4_dscp_is_that_of_the_traffic_class]
    ),
    rule!(
        Id("CA17-5"),
        "IPv4: the ECN bits are 00 without congestion management",
        [
            ipv4_ecn_bits_are_zero,
            ipv4_marks_of_the_peer_are_not_sent_back
        ]
    ),
    rule!(
        Id("CA17-6"),
        "IPv4: the total length counts from the IP header to the ICRC",
        [ipv4_total_length_counts_to_the_icrc]
    ),
    rule!(
        Id("CA17-7"),
        "IPv4: the flags are 010, do not fragment",
        [ipv4_flags_forbid_fragments]
    ),
    rule!(
        Id("CA17-8"),
        "IPv4: the fragment offset is 0",
        [ipv4_fragment_offset_is_zero]
    ),
    rule!(
        Id("CA17-9"),
        "IPv4: the TTL is the address vector's hop limit",
        [ipv4_ttl_is_the_hop_limit]
    ),
    rule!(
        Id("CA17-10"),
        "IPv4: the protocol is 0x11, UDP",
        [ipv4_protocol_is_udp]
    ),
    rule!(
        Id("CA17-11"),
        "IPv4: the source is the card's own address",
        [ipv4_source_is_the_cards_address]
    ),
    rule!(
        Id("CA17-12"),
        "IPv4: the destination is that of the address vector",
        [ipv4_destination_is_the_address_vectors]
    ),
    rule!(
        Behaviour,
        "IPv4: the header checksum is right",
        [ipv4_header_checksum_is_right]
    ),
];

fn frames() -> Vec<Vec<u8>> {
    talk(&mut Bench::ready())
}

fn ipv4_header_is_five_words_long() {
    for frame in frames() {
        assert_eq!(frame[IP], 0x45);
    }
}

fn ipv4_dscp_is_that_of_the_traffic_class() {
    for class in [0x00, 0x04, 0x20, 0x68, 0xb8, 0xfc] {
        let mut b = addressed(Setup::default(), |a| a.traffic_class = class);
        for frame in talk(&mut b) {
            assert_eq!(frame[IP + 1] >> 2, class >> 2);
        }
    }
}

fn ipv4_ecn_bits_are_zero() {
    for class in [0x00, 0x03, 0x69, 0xff] {
        let mut b = addressed(Setup::default(), |a| a.traffic_class = class);
        for frame in talk(&mut b) {
            assert_eq!(frame[IP + 1] & 3, 0, "class {class:#x}");
        }
    }
}

fn ipv4_marks_of_the_peer_are_not_sent_back() {
    let mut b = Bench::ready();
    let request = write_only(0, b.remote(0), b"x");
    let mut packet = b.packet_of(request);
    packet.ecn = Ecn::Experienced;
    let route = b.route;
    b.card.receive(b.now, &packet, &route, &mut b.env);
    let answer = b.pull_frame().unwrap();
    assert_eq!(answer[IP + 1] & 3, 0);
}

fn ipv4_total_length_counts_to_the_icrc() {
    let mut b = Bench::new(Setup {
        mtu: Mtu::M4096,
        ..Default::default()
    });
    for len in [0, 1, 2, 3, 4, 255, 1024, 4096] {
        b.post_send(1, len);
        let frame = b.pull_frame().unwrap();
        // IPv4 20, UDP 8, BTH 12, payload with pad, ICRC 4.
        let expected = 20 + 8 + 12 + len.next_multiple_of(4) as usize + 4;
        assert_eq!(word(&frame, IP + 2), expected, "{len}");
        assert_eq!(frame.len(), IP + expected);
    }
}

fn ipv4_flags_forbid_fragments() {
    for frame in frames() {
        assert_eq!(frame[IP + 6] >> 5, 0b010);
    }
}

fn ipv4_fragment_offset_is_zero() {
    for frame in frames() {
        assert_eq!(word(&frame, IP + 6) & 0x1fff, 0);
    }
}

fn ipv4_ttl_is_the_hop_limit() {
    for limit in [1, 2, 64, 255] {
        let mut b = addressed(Setup::default(), |a| a.hop_limit = limit);
        for frame in talk(&mut b) {
            assert_eq!(frame[IP + 8], limit);
        }
    }
}

fn ipv4_protocol_is_udp() {
    for frame in frames() {
        assert_eq!(frame[IP + 9], 0x11);
    }
}

fn ipv4_source_is_the_cards_address() {
    for frame in frames() {
        assert_eq!(frame[IP + 12..IP + 16], [10, 0, 0, 1]);
    }
}

fn ipv4_destination_is_the_address_vectors() {
    for last in [2, 77, 254] {
        let to = std::net::Ipv4Addr::new(172, 16, 5, last);
        let mut b = addressed(Setup::default(), |a| a.dgid = to.into());
        b.post_send(1, 8);
        let frame = b.pull_frame().unwrap();
        assert_eq!(frame[IP + 16..IP + 20], [172, 16, 5, last]);
    }
}

fn ipv4_header_checksum_is_right() {
    for frame in frames() {
        // RFC 791: the ones' complement sum of all words, checksum included, is all ones.
        let sum: usize = (0..10).map(|n| word(&frame, IP + 2 * n)).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
