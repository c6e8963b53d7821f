//! Packets that are not the connection's, and bits that mean nothing.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{Refusal, State};
use softroce_sim::wire::{Ext, Opcode, QpNumber};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Section("9.6"),
        "A packet for a queue pair that does not exist is dropped",
        [an_unknown_queue_pair_is_not_heard]
    ),
    rule!(
        Section("9.6"),
        "A transport header of another version is dropped",
        [another_transport_version_is_dropped]
    ),
    rule!(
        Section("9.6"),
        "Opcodes of another service, and reserved ones, are dropped",
        [opcodes_of_another_service_are_dropped]
    ),
    rule!(
        Section("9.6.1.2.3"),
        "Packets from and to other addresses than the connection's are dropped",
        [packets_of_other_addresses_are_dropped]
    ),
    rule!(
        Section("10.9.3"),
        "Another partition is not heard",
        [another_partition_is_not_heard]
    ),
    rule!(
        Section("10.9.3"),
        "A limited member of the partition is heard by a full one",
        [a_limited_member_of_the_partition_is_heard]
    ),
    rule!(
        Section("10.9.1.2"),
        "What a card sends has the default P_Key",
        [what_a_card_sends_has_the_default_pkey]
    ),
    rule!(
        Id("C10-116"),
        "A P_Key whose low 15 bits are zero matches nothing",
        [a_pkey_of_zero_matches_nothing]
    ),
    rule!(
        Id("C9-6"),
        "Reserved bits are sent as zero, and ignored when they arrive",
        [reserved_bits_are_ignored, reserved_bits_are_sent_as_zero]
    ),
    rule!(
        Id("CA17-29"),
        "FECN and BECN of the transport header mean nothing",
        [fecn_and_becn_mean_nothing]
    ),
    rule!(
        Id("CA17-39"),
        "Every packet is checked, whatever came before it",
        [every_packet_is_checked]
    ),
    rule!(
        Behaviour,
        "A CNP is counted and answered by nothing",
        [a_cnp_is_counted_and_answered_by_nothing]
    ),
];

/// A packet is dropped for `why`: no answer, no completion, no event, and the next one is heard.
fn drops(why: Refusal, bad: impl FnOnce(&mut Bench) -> Say) {
    let mut b = Bench::ready();
    b.post_recv(1, 0, 64);
    let bad = bad(&mut b);
    let what = format!("{why:?}: {bad:?}");
    b.hear(bad);
    assert_eq!(b.refused(why), 1, "{what}");
    assert_eq!(b.says(), [""; 0], "{what}");
    assert!(b.completed().is_empty() && b.events().is_empty(), "{what}");
    assert_eq!(b.state(), State::Rts, "{what}");
    b.hear(good());
    assert_eq!(b.says(), ["ACK 0 msn 1"], "{what}");
}

fn good() -> Say {
    send_only(0, b"hello")
}

fn an_unknown_queue_pair_is_not_heard() {
    for step in [1, 0x1000, 0x80_0000] {
        drops(Refusal::UnknownQueuePair, |b| {
            let other = QpNumber::new(b.qp.number().get() ^ step);
            good().with(|h| h.with_dest_qp(other))
        });
    }
}

fn another_transport_version_is_dropped() {
    for version in 1..16 {
        drops(Refusal::Malformed, |_| {
            good().with(|h| h.with_tver(version))
        });
    }
}

fn opcodes_of_another_service_are_dropped() {
    // UC, RD, UD, XRC, and ones that no service has.
    for opcode in [0x24, 0x44, 0x64, 0xa4, 0xc0, 0xff] {
        drops(Refusal::WrongService, |_| {
            good().with(|h| h.with_opcode(Opcode(opcode)))
        });
    }
}

fn packets_of_other_addresses_are_dropped() {
    for from in [true, false] {
        let mut b = Bench::ready();
        b.post_recv(1, 0, 64);
        let mut route = b.route;
        if from {
            route.src = own_gid();
        } else {
            route.dst = peer_gid();
        }
        b.hear_along(good(), &route);
        assert_eq!(b.refused(Refusal::WrongAddress), 1);
        assert_eq!((b.says().len(), b.completed().len()), (0, 0));
        b.hear(good());
        assert_eq!(b.says(), ["ACK 0 msn 1"]);
    }
}

fn another_partition_is_not_heard() {
    for pkey in [0x8001, 0xfffe, 0x7ffe, 0x0001] {
        drops(Refusal::BadPkey, |_| good().with(|h| h.with_pkey(pkey)));
    }
}

fn a_limited_member_of_the_partition_is_heard() {
    let mut b = Bench::ready();
    b.hear(write_only(0, b.remote(0), b"x").with(|h| h.with_pkey(0x7fff)));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
}

fn what_a_card_sends_has_the_default_pkey() {
    for packet in talk() {
        assert_eq!(packet.bth.pkey(), 0xffff, "{packet:?}");
    }
}

fn a_pkey_of_zero_matches_nothing() {
    for pkey in [0x0000, 0x8000] {
        drops(Refusal::BadPkey, |_| good().with(|h| h.with_pkey(pkey)));
    }
}

/// A card's request, ACK, READ data and NAK.
fn talk() -> Vec<softroce_sim::wire::Packet> {
    let mut b = Bench::ready();
    let at = b.remote(0);
    b.post_send(1, 8);
    b.hear(write_only(0, at, b"x"));
    b.hear(read(1, at, 8));
    b.hear(write_only(9, at, b"x"));
    let packets = b.packets();
    assert_eq!(packets.len(), 4);
    packets
}

fn reserved_bits_are_ignored() {
    let mut b = Bench::ready();
    let request = write_only(0, b.remote(0), b"x");
    b.hear(request.with(|h| h.with_byte4(0x3f).with_mig_req(false)));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    b.post_send(1, 8);
    b.says();
    b.hear(ack(0, 1).with(|h| h.with_byte4(0x3f)));
    assert_eq!(b.completed().len(), 1);
}

fn reserved_bits_are_sent_as_zero() {
    for packet in talk() {
        let bytes = packet.bth.to_bytes();
        assert_eq!((bytes[4], bytes[8] & 0x7f), (0, 0), "{packet:?}");
    }
}

fn fecn_and_becn_mean_nothing() {
    for bits in [0x40, 0x80, 0xc0] {
        let mut b = Bench::ready();
        let request = write_only(0, b.remote(0), b"x");
        b.hear(request.with(|h| h.with_byte4(bits)));
        assert_eq!(b.says(), ["ACK 0 msn 1"]);
        b.post_send(1, 2000);
        assert_eq!(b.packets().len(), 2);
        b.hear(ack(0, 0).with(|h| h.with_byte4(bits)));
        b.hear(ack(1, 1).with(|h| h.with_byte4(bits)));
        assert_eq!(b.completed().len(), 1);
        // Nothing slows down, and nobody is told.
        b.post_send(2, 2000);
        assert_eq!(b.packets().len(), 2);
        assert_eq!(b.card.counters().cnps_received, 0);
    }
}

fn every_packet_is_checked() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    for n in 0..50 {
        let good = write_only(n, to, b"good");
        let bad = write_only(n, to, b"bad!");
        b.hear(match n % 4 {
            0 => bad.damaged(),
            1 => bad.with(|h| h.with_tver(1)),
            2 => bad.with(|h| h.with_pkey(0x8001)),
            _ => bad.with(|h| h.with_opcode(Opcode(0x64))),
        });
        assert_eq!(b.says(), [""; 0]);
        b.hear(good);
        assert_eq!(b.says(), [format!("ACK {n} msn {}", n + 1)]);
        assert_eq!(b.memory(0, 4), b"good");
    }
    let refused = [
        Refusal::BadIcrc,
        Refusal::Malformed,
        Refusal::BadPkey,
        Refusal::WrongService,
    ];
    let counts = refused.map(|why| b.refused(why));
    assert_eq!(counts, [13, 13, 12, 12]);
}

fn a_cnp_is_counted_and_answered_by_nothing() {
    let mut b = Bench::ready();
    b.hear(say(Opcode::CNP, 0, Ext::Cnp, &[]));
    assert_eq!(b.card.counters().cnps_received, 1);
    assert_eq!(b.says(), [""; 0]);
    b.still_works(0, 1);
}
