//! Datagrams that arrive: what is in front of them, and what becomes of those that do not fit.

use super::NONE;
use super::ready;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{CompletionKind, Mtu, QpAttributes, Refusal, Remote, State, Status};
use softroce_sim::wire::{Ecn, Encapsulation, Ext, Immediate, Opcode, QpNumber, Route, frame};
use std::net::Ipv4Addr;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Section("11.4.2.1"),
        "A datagram lies behind 40 bytes and says who sent it",
        [
            a_datagram_lies_behind_40_bytes_and_says_who_sent_it,
            header_and_data_run_across_the_elements,
            a_datagram_of_no_bytes_completes_with_40
        ]
    ),
    rule!(
        Section("A17.4.5.2"),
        "An IPv4 header is in the last 20 of the 40 bytes",
        [
            an_ipv4_header_is_in_the_last_20_of_the_40_bytes,
            the_checksum_in_front_is_right_for_any_sender
        ]
    ),
    rule!(
        Section("A17.4.5.2"),
        "An IPv6 header, or a GRH, fills the 40 bytes",
        [ipv6_headers_and_the_grh_of_rocev1_fill_the_40_bytes]
    ),
    rule!(
        Section("9.6.1.4.1"),
        "A wrong Q_Key is dropped without a word",
        [a_wrong_qkey_is_dropped_without_a_word]
    ),
    rule!(
        Section("10.9.3"),
        "Another partition is not heard",
        [another_partition_is_not_heard]
    ),
    rule!(
        Id("C9-205"),
        "What does not fit is dropped, and the buffer waits",
        [what_does_not_fit_is_dropped_and_the_buffer_waits]
    ),
    rule!(
        Behaviour,
        "Without a receive a datagram is lost",
        [without_a_receive_a_datagram_is_lost]
    ),
    rule!(
        Behaviour,
        "A receive with a bad key fails the queue pair",
        [a_receive_with_a_bad_key_fails_the_queue_pair]
    ),
    rule!(
        Id("o11-5.1.1"),
        "No event tells of the first datagram in RTR",
        [no_communication_established_event_for_datagrams]
    ),
    rule!(
        Behaviour,
        "Packets of other services are dropped",
        [packets_of_other_services_are_dropped]
    ),
    rule!(
        Section("9.9.3"),
        "A datagram with another operation's headers is dropped",
        [datagrams_name_no_memory_of_the_peers]
    ),
];

/// The checksum of RFC 791 over a header that has one: it comes out as all ones.
fn sum_of(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

fn a_datagram_lies_behind_40_bytes_and_says_who_sent_it() {
    let mut b = ready();
    b.post_recv(1, 100, 64);
    b.hear(datagram(7, QKEY, b"hello"));
    let c = b.poll();
    assert_eq!(c.len(), 1);
    assert_eq!(
        (c[0].wr_id, c[0].status, c[0].kind),
        (1, Status::Success, CompletionKind::Receive)
    );
    // 40 bytes of header count (11.4.1.2).
    assert_eq!((c[0].byte_len, c[0].grh), (45, true));
    assert_eq!(c[0].src_qp, QpNumber::new(PEER_QP));
    assert_eq!(c[0].immediate, None);
    assert_eq!(b.memory(140, 6), b"hello\0");
    assert_eq!(b.says(), NONE, "nothing is answered");
    // PSNs mean nothing: the same, an earlier and a far one are all heard.
    for (id, n) in [(2, 7), (3, 0), (4, 0x80_0000)] {
        b.post_recv(id, 0, 64);
        b.hear(datagram(n, QKEY, b"x"));
        assert_eq!(b.completed(), [(id, Status::Success)]);
    }
}

fn header_and_data_run_across_the_elements() {
    let mut b = ready();
    let sges = [b.sge(0, 15), b.sge(100, 0), b.sge(200, 28), b.sge(300, 10)];
    b.try_post_recv(1, &sges).unwrap();
    b.hear(datagram(0, QKEY, b"abcdefg"));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(0, 16), [0; 16], "the undefined 20 bytes");
    assert_eq!(
        b.memory(205, 1),
        [0x45],
        "the header begins at byte 20 of 40"
    );
    assert_eq!(b.memory(225, 4), b"abc\0");
    assert_eq!(b.memory(300, 5), b"defg\0");
}

fn a_datagram_of_no_bytes_completes_with_40() {
    let mut b = ready();
    b.post_recv(1, 0, 40);
    b.hear(datagram(0, QKEY, b""));
    let c = b.poll();
    assert_eq!((c.len(), c[0].byte_len), (1, 40));
}

fn an_ipv4_header_is_in_the_last_20_of_the_40_bytes() {
    let mut setup = Setup::ud();
    setup.memory = 4096;
    let mut b = Bench::new(setup);
    b.route.dscp = 26;
    b.post_recv(1, 0, 64);
    let mut packet = b.packet_of(datagram(0, QKEY, b"abcde"));
    packet.hop_limit = 61;
    packet.ecn = Ecn::Experienced;
    let route = b.route;
    b.card.receive(b.now, &packet, &route, &mut b.env);
    let h = b.memory(20, 20);
    assert_eq!(h[0], 0x45);
    assert_eq!(h[1], 26 << 2 | 3);
    // IP, UDP, BTH, DETH, five bytes and three of pad, ICRC.
    assert_eq!(u16::from_be_bytes([h[2], h[3]]), 20 + 8 + 12 + 8 + 8 + 4);
    assert_eq!((h[6], h[7]), (0x40, 0), "do not fragment (CA17-7, CA17-8)");
    assert_eq!((h[8], h[9]), (61, 17));
    assert_eq!(h[12..16], [10, 0, 0, 2]);
    assert_eq!(h[16..20], [10, 0, 0, 1]);
    assert_eq!(sum_of(&h), 0xffff);
    assert_eq!(b.memory(40, 5), b"abcde");
    // The same packet as a frame has the same header (Ethernet is 14 bytes), identification 0.
    let route = softroce_sim::wire::Route {
        hop_limit: 61,
        ..b.route
    };
    let mut bytes = Vec::new();
    frame::encode_packet(&packet, &route, b"abcde", &mut bytes).unwrap();
    assert_eq!(bytes[14..34], h[..]);
}

fn the_checksum_in_front_is_right_for_any_sender() {
    // With 192.168.112.13, the carries of the sum of all words carry once more:
    // 4500 + 0038 + 4000 + 4011 + c0a8 + 700d + 0a00 + 0001 = 1ffff.
    let mut b = ready();
    for last in 0..=255 {
        let route = Route {
            src: Ipv4Addr::new(192, 168, 112, last).into(),
            ..b.route
        };
        b.post_recv(1, 0, 64);
        b.hear_along(datagram(0, QKEY, b"x"), &route);
        assert_eq!(b.completed(), [(1, Status::Success)]);
        assert_eq!(b.memory(32, 4), [192, 168, 112, last]);
        let words = b.memory(20, 20);
        let words = words.chunks_exact(2).map(|w| [w[0], w[1]]);
        let mut sum: u32 = words.map(|w| u32::from(u16::from_be_bytes(w))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff, "{last}");
    }
}

fn ipv6_headers_and_the_grh_of_rocev1_fill_the_40_bytes() {
    for (encapsulation, udp, next) in [
        (Encapsulation::RoceV2, 8, 17),
        // C8-7: a BTH follows.
        (Encapsulation::RoceV1, 0, 0x1b),
    ] {
        let mut setup = Setup::ud().over_ipv6();
        setup.config.encapsulation = encapsulation;
        let mut b = Bench::new(setup);
        b.route.dscp = 10;
        b.route.flow_label = 0xa_bcde;
        b.post_recv(1, 0, 64);
        b.hear(datagram_imm(0, QKEY, b"abcdef", 5));
        let h = b.memory(0, 40);
        assert_eq!(h[..4], [0x62, 0x8a, 0xbc, 0xde]);
        // (UDP,) BTH, DETH, immediate data, six bytes and two of pad, ICRC.
        let len = udp + 12 + 8 + 4 + 8 + 4;
        assert_eq!(u16::from_be_bytes([h[4], h[5]]), len);
        assert_eq!((h[6], h[7]), (next, 64));
        assert_eq!(h[8..24], b.route.src.0);
        assert_eq!(h[24..40], b.route.dst.0);
        assert_eq!(b.memory(40, 6), b"abcdef");
        let c = b.poll();
        assert_eq!(
            (c[0].byte_len, c[0].immediate),
            (46, Some(Immediate::from_be(5)))
        );
    }
}

fn a_wrong_qkey_is_dropped_without_a_word() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    for bad in [0, QKEY ^ 1, QKEY | 0x8000_0000] {
        b.hear(datagram(0, bad, b"x"));
    }
    assert_eq!(b.refused(Refusal::BadQkey), 3);
    assert!(b.completed().is_empty() && b.events().is_empty());
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
    // The key may change while the queue pair runs.
    b.modify(QpAttributes {
        qkey: Some(QKEY ^ 1),
        ..Default::default()
    })
    .unwrap();
    b.hear(datagram(0, QKEY, b"x"));
    b.hear(datagram(0, QKEY ^ 1, b"y"));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(40, 1), b"y");
}

fn another_partition_is_not_heard() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.hear(datagram(0, QKEY, b"x").with(|h| h.with_pkey(0x8001)));
    assert_eq!(b.refused(Refusal::BadPkey), 1);
    // A limited member talks to a full one (10.9.3).
    b.hear(datagram(0, QKEY, b"x").with(|h| h.with_pkey(0x7fff)));
    assert_eq!(b.completed(), [(1, Status::Success)]);
}

fn what_does_not_fit_is_dropped_and_the_buffer_waits() {
    let mut setup = Setup::ud();
    setup.config.port_mtu = Mtu::M1024;
    let mut b = Bench::new(setup);
    // One byte too short for the data; then for the header.
    b.post_recv(1, 0, 40 + 99);
    b.post_recv(2, 1000, 39);
    let memory = b.buffer.to_vec();
    b.hear(datagram(0, QKEY, &[7; 100]));
    assert_eq!(b.refused(Refusal::TooLong), 1);
    assert_eq!(b.buffer.to_vec(), memory);
    b.hear(datagram(1, QKEY, &[8; 99]));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(40, 100), [&[8; 99][..], &[0]].concat());
    b.hear(datagram(2, QKEY, b""));
    assert_eq!(b.refused(Refusal::TooLong), 2);
    // Longer than the port takes, whatever the buffer.
    let mut b = Bench::new(Setup {
        config: {
            let mut c = Setup::ud().config;
            c.port_mtu = Mtu::M1024;
            c
        },
        ..Setup::ud()
    });
    b.post_recv(3, 0, 4096);
    b.hear(datagram(0, QKEY, &[1; 1025]));
    assert_eq!(b.refused(Refusal::Malformed), 1);
    b.hear(datagram(0, QKEY, &[1; 1024]));
    let c = b.poll();
    assert_eq!((c.len(), c[0].wr_id, c[0].byte_len), (1, 3, 1064));
    assert_eq!(b.state(), State::Rts);
}

fn without_a_receive_a_datagram_is_lost() {
    let mut b = ready();
    b.hear(datagram(0, QKEY, b"lost"));
    assert_eq!(b.refused(Refusal::ReceiverNotReady), 1);
    b.post_recv(1, 0, 64);
    b.hear(datagram(1, QKEY, b"found"));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(40, 5), b"found");
}

fn a_receive_with_a_bad_key_fails_the_queue_pair() {
    let mut b = ready();
    let mut sge = b.sge(0, 64);
    sge.lkey.0 ^= 1;
    b.try_post_recv(1, &[sge]).unwrap();
    b.post_recv(2, 0, 64);
    b.hear(datagram(0, QKEY, b"x"));
    assert_eq!(
        b.completed(),
        [
            (1, Status::LocalProtectionError),
            (2, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!((b.state(), b.says()), (State::Error, vec![]));
}

fn no_communication_established_event_for_datagrams() {
    let mut b = Bench::new(Setup {
        state: State::Rtr,
        ..Setup::ud()
    });
    b.post_recv(1, 0, 64);
    b.hear(datagram(0, QKEY, b"x"));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert!(b.events().is_empty());
}

fn packets_of_other_services_are_dropped() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.hear(send_only(0, b"x"));
    b.hear(send_only(0, b"x").uc());
    b.hear(ack(0, 1));
    assert_eq!(b.refused(Refusal::WrongService), 3);
    for number in [1, 2, 6, 0xc, 0x1f] {
        let opcode = Opcode(0x60 | number);
        b.hear(say(opcode, 0, Ext::Deth(deth(QKEY)), b"x"));
    }
    assert!(b.completed().is_empty());
    assert_eq!(b.state(), State::Rts);
}

fn datagrams_name_no_memory_of_the_peers() {
    // A UD packet cannot carry a RETH; one that claims to is not looked at.
    let mut b = ready();
    b.post_recv(1, 0, 64);
    let at: Remote = b.remote(0);
    b.hear(say(Opcode::UD_SEND_ONLY, 0, Ext::Reth(reth(at, 1)), b"x"));
    assert_eq!(b.refused(Refusal::Malformed), 1);
    assert!(b.completed().is_empty());
}
