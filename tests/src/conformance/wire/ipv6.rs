//! The IPv6 header (A17.3.1.2).

use super::{IP, addressed, family, talk, word};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id};
use std::net::Ipv6Addr;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("CA17-13"),
        "IPv6: the DSCP is that of the address vector's traffic class",
        [ipv6_dscp_is_that_of_the_traffic_class]
    ),
    rule!(
        Id("CA17-14"),
        "IPv6: the ECN bits are 00 without congestion management",
        [ipv6_ecn_bits_are_zero]
    ),
    rule!(
        Id("CA17-15"),
        "IPv6: the payload length counts from behind the header to the ICRC",
        [ipv6_payload_length_counts_to_the_icrc]
    ),
    rule!(
        Id("CA17-16"),
        "IPv6: the next header is 0x11, UDP",
        [ipv6_next_header_is_udp]
    ),
    rule!(
        Id("CA17-17"),
        "IPv6: the hop limit is the address vector's",
        [ipv6_hop_limit_is_the_address_vectors]
    ),
    rule!(
        Id("CA17-18"),
        "IPv6: the source is the card's own address",
        [ipv6_source_is_the_cards_address]
    ),
    rule!(
        Id("CA17-19"),
        "IPv6: the destination is that of the address vector",
        [ipv6_destination_is_the_address_vectors]
    ),
    rule!(
        Behaviour,
        "IPv6: the flow label is the address vector's",
        [ipv6_flow_label_is_the_address_vectors]
    ),
];

fn frames() -> Vec<Vec<u8>> {
    talk(&mut Bench::new(family(true)))
}

/// The traffic class, which lies across the first two bytes.
fn class(frame: &[u8]) -> u8 {
    (word(frame, IP) >> 4) as u8
}

fn ipv6_dscp_is_that_of_the_traffic_class() {
    for asked in [0x00, 0x04, 0x20, 0x68, 0xb8, 0xfc] {
        let mut b = addressed(family(true), |a| a.traffic_class = asked);
        for frame in talk(&mut b) {
            assert_eq!(class(&frame) >> 2, asked >> 2);
            assert_eq!(frame[IP] >> 4, 6);
        }
    }
}

fn ipv6_ecn_bits_are_zero() {
    for asked in [0x00, 0x03, 0x69, 0xff] {
        let mut b = addressed(family(true), |a| a.traffic_class = asked);
        for frame in talk(&mut b) {
            assert_eq!(class(&frame) & 3, 0, "class {asked:#x}");
        }
    }
}

fn ipv6_payload_length_counts_to_the_icrc() {
    let mut b = Bench::new(family(true));
    for len in [0, 1, 2, 3, 4, 255, 1024] {
        b.post_send(1, len);
        let frame = b.pull_frame().unwrap();
        // UDP 8, BTH 12, payload with pad, ICRC 4.
        let expected = 8 + 12 + len.next_multiple_of(4) as usize + 4;
        assert_eq!(word(&frame, IP + 4), expected, "{len}");
        assert_eq!(frame.len(), IP + 40 + expected);
    }
}

fn ipv6_next_header_is_udp() {
    for frame in frames() {
        assert_eq!(frame[IP + 6], 0x11);
    }
}

fn ipv6_hop_limit_is_the_address_vectors() {
    for limit in [1, 2, 64, 255] {
        let mut b = addressed(family(true), |a| a.hop_limit = limit);
        for frame in talk(&mut b) {
            assert_eq!(frame[IP + 7], limit);
        }
    }
}

fn ipv6_source_is_the_cards_address() {
    for frame in frames() {
        let own = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        assert_eq!(frame[IP + 8..IP + 24], own.octets());
    }
}

fn ipv6_destination_is_the_address_vectors() {
    for last in [2, 0x77, 0xffff] {
        let to = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 2, 3, 4, last);
        let mut b = addressed(family(true), |a| a.dgid = to.into());
        b.post_send(1, 8);
        let frame = b.pull_frame().unwrap();
        assert_eq!(frame[IP + 24..IP + 40], to.octets());
    }
}

fn ipv6_flow_label_is_the_address_vectors() {
    for label in [0, 1, 0x1_2345, 0xf_ffff] {
        let mut b = addressed(family(true), |a| a.flow_label = label);
        for frame in talk(&mut b) {
            let low = (u32::from(frame[IP + 1]) & 0xf) << 16 | word(&frame, IP + 2) as u32;
            assert_eq!(low, label);
        }
    }
}
