//! Where a packet comes from and goes to, and how it is wrapped.

use super::{BTH4, BTH6, IP, addressed, family, talk, word};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{Refusal, Work};
use softroce_sim::wire::{Encapsulation, Vlan};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("CA17-1"),
        "A port speaks IPv4 and IPv6",
        [both_versions_of_ip_are_spoken]
    ),
    rule!(
        Id("CA17-2"),
        "A frame is Ethernet, IP, UDP, BTH, headers, payload, pad, ICRC",
        [a_frame_has_the_layout_of_the_annex]
    ),
    rule!(
        Id("CA17-40"),
        "A connection is RoCE or RoCEv2 as its card's address says",
        [a_connection_is_what_its_address_says]
    ),
    rule!(
        Id("CA17-41"),
        "A packet of the other protocol fails the address check",
        [the_other_protocol_is_not_heard]
    ),
    rule!(
        Id("CA17-42"),
        "A datagram is RoCE or RoCEv2 as its card's address says",
        [a_datagram_is_what_its_address_says]
    ),
    rule!(
        Id("CA17-43"),
        "A datagram queue pair hears both RoCE and RoCEv2",
        [a_datagram_queue_pair_hears_both_protocols]
    ),
    rule!(
        Id("C8-7"),
        "In RoCE, next header 0x1b says that a BTH follows the GRH",
        [next_header_1b_names_the_bth]
    ),
    rule!(
        Section("A17.4.2"),
        "The service level is the Ethernet priority",
        [the_service_level_is_the_ethernet_priority]
    ),
    rule!(
        Section("A17.4.1.1"),
        "An address of IPv4 is a GID ::ffff:a.b.c.d",
        [an_ipv4_address_is_a_mapped_gid]
    ),
    rule!(
        Behaviour,
        "A tagged frame has the VLAN of the address vector",
        [a_tagged_frame_has_its_vlan]
    ),
    rule!(
        Behaviour,
        "A packet takes as long on the wire as its frame and the FCS",
        [a_packet_is_as_long_as_its_frame_and_the_fcs]
    ),
    rule!(
        Behaviour,
        "A card at an IPv4 address has no connection to an IPv6 one",
        [the_two_families_do_not_mix]
    ),
];

fn a_packet_is_as_long_as_its_frame_and_the_fcs() {
    let vlan = Some(Vlan { id: 7 });
    let mut v1 = Setup::default();
    v1.config.encapsulation = Encapsulation::RoceV1;
    for (setup, vlan) in [
        (family(false), None),
        (family(true), None),
        (v1, None),
        (family(false), vlan),
    ] {
        let mut b = addressed(setup, |a| a.vlan = vlan);
        let at = b.remote(0);
        for len in [0, 1, 2, 3, 4, 1023, 1024, 3000] {
            b.post_send(1, len);
            b.post_write(2, len);
        }
        b.post_read(3, 8);
        let swap = Work::CompareSwap {
            at: elsewhere(),
            compare: 1,
            swap: 2,
        };
        let eight = b.sge(0, 8);
        b.post(4, swap, &[eight]);
        b.hear(write_only(0, at, b"x"));
        b.hear(read(1, at, 3001));
        b.hear(fetch_add(4, at, 1));
        b.hear(write_only(9, at, b"gap"));
        let packets = b.packets();
        assert_eq!(packets.len(), 2 * (7 + 3) + 2 + 6);
        for p in &packets {
            // Not in the bytes of a frame here: the FCS, four bytes.
            let expected = b.frame(p).len() + 4;
            assert_eq!(usize::from(p.frame_len), expected, "{}", b.describe(p));
        }
    }
}

fn both_versions_of_ip_are_spoken() {
    for (v6, ethertype, version) in [(false, 0x0800, 4), (true, 0x86dd, 6)] {
        let mut b = Bench::new(family(v6));
        b.post_recv(1, 0, 64);
        let frame = b.frame_of(send_only(0, b"hello"));
        assert_eq!((word(&frame, 12), frame[IP] >> 4), (ethertype, version));
        assert!(b.hear_frame(&frame));
        assert_eq!(b.memory(0, 5), b"hello");
        let answer = b.pull_frame().unwrap();
        assert_eq!((word(&answer, 12), answer[IP] >> 4), (ethertype, version));
    }
}

fn a_frame_has_the_layout_of_the_annex() {
    for (v6, bth) in [(false, BTH4), (true, BTH6)] {
        let mut b = Bench::new(family(v6));
        b.buffer.write_at(0, b"hello");
        b.post_send(1, 5);
        b.post_write(2, 5);
        // RC SEND ONLY is 0x04, RC WRITE ONLY 0x0a with a RETH of 16 bytes.
        for (opcode, headers) in [(0x04, 0), (0x0a, 16)] {
            let frame = b.pull_frame().unwrap();
            let route = b.route;
            assert_eq!(frame[..6], route.src_mac.0, "to the peer");
            assert_eq!(frame[6..12], route.dst_mac.0, "from the card");
            assert_eq!(frame[bth], opcode);
            assert_eq!(frame[bth + 1] >> 4 & 3, 3, "pad count");
            let data = bth + 12 + headers;
            assert_eq!(frame[data..data + 8], *b"hello\0\0\0");
            assert_eq!(frame.len(), data + 8 + 4);
        }
    }
}

fn roce(setup: Setup) -> Setup {
    let mut setup = setup;
    setup.config.encapsulation = Encapsulation::RoceV1;
    setup
}

fn a_connection_is_what_its_address_says() {
    for v6 in [false, true] {
        let mut b = Bench::new(family(v6));
        for frame in talk(&mut b) {
            assert_eq!(word(&frame, 12), if v6 { 0x86dd } else { 0x0800 });
        }
        let mut b = Bench::new(roce(family(v6)));
        for frame in talk(&mut b) {
            assert_eq!(word(&frame, 12), 0x8915);
        }
    }
}

fn the_other_protocol_is_not_heard() {
    for (own, other) in [
        (Encapsulation::RoceV2, Encapsulation::RoceV1),
        (Encapsulation::RoceV1, Encapsulation::RoceV2),
    ] {
        let mut setup = Setup::default();
        setup.config.encapsulation = own;
        let mut b = Bench::new(setup);
        b.post_recv(1, 0, 64);
        b.route.encapsulation = other;
        let frame = b.frame_of(send_only(0, b"hello"));
        b.hear_frame(&frame);
        assert_eq!(b.refused(Refusal::WrongAddress), 1);
        assert_eq!((b.says().len(), b.completed().len()), (0, 0));
        b.route.encapsulation = own;
        let frame = b.frame_of(send_only(0, b"hello"));
        b.hear_frame(&frame);
        assert_eq!(b.says(), ["ACK 0 msn 1"]);
    }
}

fn a_datagram_is_what_its_address_says() {
    for (setup, ethertype) in [(Setup::ud(), 0x0800), (roce(Setup::ud()), 0x8915)] {
        let mut b = Bench::new(setup);
        b.post_datagram(1, 8);
        let frame = b.pull_frame().unwrap();
        assert_eq!(word(&frame, 12), ethertype);
    }
}

fn a_datagram_queue_pair_hears_both_protocols() {
    for setup in [Setup::ud(), roce(Setup::ud())] {
        let mut b = Bench::new(setup);
        for (id, encapsulation) in [(1, Encapsulation::RoceV1), (2, Encapsulation::RoceV2)] {
            b.post_recv(id, 0, 64);
            b.route.encapsulation = encapsulation;
            let frame = b.frame_of(datagram(0, QKEY, b"hello"));
            assert!(b.hear_frame(&frame));
            let c = b.poll();
            assert_eq!((c.len(), c[0].wr_id, c[0].byte_len), (1, id, 45));
        }
    }
}

fn next_header_1b_names_the_bth() {
    let mut b = Bench::new(roce(Setup::default()));
    for frame in talk(&mut b) {
        assert_eq!(frame[IP + 6], 0x1b);
        // The payload length of a GRH counts what follows it, ICRC included.
        assert_eq!(word(&frame, IP + 4), frame.len() - IP - 40);
    }
    b.post_recv(1, 0, 64);
    let good = b.frame_of(send_only(2, b"hello"));
    for next in [0x11, 0x1a, 0x00] {
        let mut bad = good.clone();
        bad[IP + 6] = next;
        assert!(!b.hear_frame(&bad));
    }
    assert!(b.hear_frame(&good));
    assert_eq!(b.says(), ["ACK 2 msn 3"]);
}

fn the_service_level_is_the_ethernet_priority() {
    for sl in 0..8 {
        let mut b = addressed(Setup::default(), |a| {
            a.sl = sl;
            a.vlan = Some(Vlan { id: 100 });
        });
        for frame in talk(&mut b) {
            assert_eq!(frame[14] >> 5, sl, "the tag's priority");
        }
    }
}

fn an_ipv4_address_is_a_mapped_gid() {
    let gid = own_gid();
    assert_eq!(gid.0[..10], [0; 10]);
    assert_eq!(gid.0[10..], [0xff, 0xff, 10, 0, 0, 1]);
    // In RoCE, which has no IPv4, it stands so in the GRH.
    let mut b = Bench::new(roce(Setup::default()));
    b.post_send(1, 8);
    let frame = b.pull_frame().unwrap();
    assert_eq!(frame[IP + 8..IP + 24], gid.0);
}

fn a_tagged_frame_has_its_vlan() {
    let vlan = Some(Vlan { id: 0x123 });
    let mut b = addressed(Setup::default(), |a| a.vlan = vlan);
    for frame in talk(&mut b) {
        assert_eq!(word(&frame, 12), 0x8100);
        assert_eq!(word(&frame, 14) & 0xfff, 0x123);
        assert_eq!(word(&frame, 16), 0x0800);
    }
}

fn the_two_families_do_not_mix() {
    let v6 = Bench::new(family(true)).route.src;
    for (setup, other) in [(family(false), v6), (family(true), peer_gid())] {
        let mut b = Bench::new(Setup {
            state: softroce_sim::card::State::Init,
            ..setup
        });
        let mut rtr = b.steps()[1];
        let mut address = rtr.address.unwrap();
        address.dgid = other;
        rtr.address = Some(address);
        let refused = softroce_sim::card::ModifyError::Unreachable(other);
        assert_eq!(b.modify(rtr), Err(refused));
    }
}
