//! PSNs, MSNs, and the order of answers.

use super::KIB;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{Mtu, Refusal, Remote, Status};
use softroce_sim::memory::Storage;
use softroce_sim::wire::{Opcode, RemoteKey};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("C9-148"),
        "The MSN counts completed requests, and no duplicates",
        [the_msn_counts_completed_requests_and_no_duplicates]
    ),
    rule!(
        Behaviour,
        "The MSN wraps at 24 bits",
        [the_msn_wraps_at_24_bits]
    ),
    rule!(
        Behaviour,
        "A duplicate is acknowledged again and not carried out again",
        [a_duplicate_is_acknowledged_again_and_not_executed_again]
    ),
    rule!(
        Behaviour,
        "Half of the PSNs are duplicates, the other half is ahead",
        [a_duplicate_is_up_to_2_to_the_23_behind]
    ),
    rule!(
        Behaviour,
        "A gap is answered with one NAK until it is closed",
        [a_gap_is_answered_with_one_nak_until_it_is_closed]
    ),
    rule!(
        Section("9.7.5.1.2"),
        "Acknowledgements that wait become one, but not past a READ",
        [an_ack_that_is_not_pulled_grows]
    ),
    rule!(
        Section("9.5"),
        "Answers come in the order of the requests",
        [answers_come_in_the_order_of_the_requests]
    ),
    rule!(
        Behaviour,
        "Answers nobody fetches do not pile up",
        [answers_that_are_not_pulled_do_not_pile_up]
    ),
];

fn the_msn_counts_completed_requests_and_no_duplicates() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.hear(write_only(0, to, b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    b.hear(write_only(0, to, b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    b.hear(write(Opcode::RC_WRITE_FIRST, 1, to, 1025, KIB).ask());
    assert_eq!(b.says(), ["ACK 1 msn 1"], "the message is not complete");
    b.hear(send(Opcode::RC_WRITE_LAST, 2, b"y").ask());
    assert_eq!(b.says(), ["ACK 2 msn 2"]);
    b.hear(read(3, to, 1));
    b.says();
    b.hear(write_only(4, to, b"z"));
    assert_eq!(b.says(), ["ACK 4 msn 4"]);
}

fn the_msn_wraps_at_24_bits() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    let first = b.packet_of(write_only(0, to, b"").with(|h| h.with_ack_req(false)));
    // Nothing is asked for, so nothing is answered: 2^24 - 1 messages go by.
    let (mut packet, route) = (first, b.route);
    for n in 0..(1 << 24) - 1 {
        packet.bth = first.bth.with_psn(first.bth.psn().plus(n));
        b.card.receive(b.now, &packet, &route, &mut b.env);
    }
    b.hear(write_only(0xff_ffff, to, b""));
    assert_eq!(b.says(), ["ACK -1 msn 0"]);
}

fn a_duplicate_is_acknowledged_again_and_not_executed_again() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.post_recv(1, 100, 10);
    b.post_recv(2, 200, 10);
    b.hear(send_only(0, b"first"));
    b.hear(write_only(1, to, b"second"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    // The ACK was lost; the copies carry other bytes to show that they are not looked at.
    b.hear(send_only(0, b"other"));
    b.hear(write_only(1, to, b"change"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    assert_eq!(
        (b.memory(100, 5), b.memory(0, 6)),
        (b"first".to_vec(), b"second".to_vec())
    );
    assert_eq!(b.memory(200, 10), [0; 10]);
    assert!(b.completed().is_empty());
    assert_eq!(b.refused(Refusal::Duplicate), 2);
    b.hear(send_only(2, b"third"));
    assert_eq!(b.says(), ["ACK 2 msn 3"]);
    assert_eq!(b.completed(), [(2, Status::Success)]);
    // Nor is a message begun again whose first packet comes again while it is under way.
    b.hear(write(Opcode::RC_WRITE_FIRST, 3, to, 1025, KIB));
    b.hear(write(Opcode::RC_WRITE_FIRST, 3, to, 1025, &[0; 1024]));
    b.hear(send(Opcode::RC_WRITE_LAST, 4, b"y").ask());
    assert_eq!(b.says(), ["ACK 4 msn 4"]);
    assert_eq!(b.memory(0, 1024), KIB);
}

fn a_duplicate_is_up_to_2_to_the_23_behind() {
    for rq_psn in [0, 0x12_3456, 0xff_ffff] {
        let mut b = Bench::new(Setup {
            rq_psn,
            mtu: Mtu::M256,
            ..Default::default()
        });
        b.env.counted = true;
        let big = b
            .card
            .register(b.pd, Storage::Counted { len: 1 << 31 }, all_rights())
            .unwrap();
        let from = Remote {
            addr: big.addr,
            rkey: big.rkey,
        };
        b.hear(write_only(0, b.remote(0), b"x"));
        assert_eq!(b.says(), ["ACK 0 msn 1"]);
        // 2^31 bytes at MTU 256 are 2^23 packets.
        b.hear(read(1, from, 1 << 31));
        assert!(b.pull().is_some());
        b.hear(read(1, from, 1 << 31));
        assert_eq!(b.refused(Refusal::Duplicate), 1);
        let again = b.pull().unwrap();
        assert_eq!(b.describe(&again), "RDMA Read Response First 1 [256]");
        // One further behind is as far ahead: a gap.
        b.hear(write_only(0, b.remote(0), b"x"));
        assert_eq!(b.refused(Refusal::OutOfSequence), 1);
    }
}

fn a_gap_is_answered_with_one_nak_until_it_is_closed() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.hear(write_only(0, to, b"a"));
    b.hear_all((2..6).map(|n| write_only(n, to, b"b")));
    assert_eq!(b.says(), ["ACK 0 msn 1", "NAK 1 PSN sequence error msn 1"]);
    b.hear_all((2..6).map(|n| write_only(n, to, b"b")));
    assert_eq!(b.says(), [""; 0]);
    assert_eq!(b.memory(0, 1), b"a");
    b.hear(write_only(1, to, b"c"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    // Another gap, another NAK.
    b.hear(write_only(4, to, b"d"));
    assert_eq!(b.says(), ["NAK 2 PSN sequence error msn 2"]);
    assert_eq!(b.memory(0, 1), b"c");
    assert_eq!(b.card.counters().out_of_sequence, 9);
}

fn an_ack_that_is_not_pulled_grows() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.hear_all((0..10).map(|n| write_only(n, to, b"a")));
    assert_eq!(b.says(), ["ACK 9 msn 10"]);
    // But not past a READ, whose data comes between.
    b.hear(write_only(10, to, b"a"));
    b.hear(read(11, to, 1025));
    b.hear(write_only(13, to, b"a"));
    b.hear(write_only(14, to, b"a"));
    assert_eq!(
        b.says(),
        [
            "ACK 10 msn 11",
            "RDMA Read Response First 11 [1024]",
            "RDMA Read Response Last 12 [1]",
            "ACK 14 msn 14"
        ]
    );
}

fn answers_come_in_the_order_of_the_requests() {
    let mut b = Bench::ready();
    let at = b.remote(0);
    b.hear(read(0, at, 2000));
    b.hear(write_only(2, at, b"x"));
    b.hear(read(3, at, 5));
    b.hear(read(4, at, 6));
    b.hear(write_only(9, at, b"gap"));
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response First 0 [1024]",
            "RDMA Read Response Last 1 [976]",
            "ACK 2 msn 2",
            "RDMA Read Response Only 3 [5]",
            "RDMA Read Response Only 4 [6]",
            "NAK 5 PSN sequence error msn 4"
        ]
    );
    // Also when the last of them is refused for good.
    b.hear(read(5, at, 2000));
    b.hear(write_only(
        7,
        Remote {
            rkey: RemoteKey(0),
            ..at
        },
        b"x",
    ));
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response First 5 [1024]",
            "RDMA Read Response Last 6 [976]",
            "NAK 7 remote access error msn 5"
        ]
    );
}

fn answers_that_are_not_pulled_do_not_pile_up() {
    // Gap, what was missing, gap, ...: each time a NAK and an ACK, and nobody fetches them. Then
    // duplicates of READs and SENDs by turns.
    let mut b = Bench::new(Setup {
        max_dest_rd_atomic: 2,
        ..Default::default()
    });
    let at = b.remote(0);
    for n in 0..1000 {
        b.hear(write_only(n + 5, at, b"x"));
        b.hear(write_only(n, at, b"x"));
    }
    let says = b.says();
    assert!(says.len() <= 4, "{says:?}");
    assert!(says.contains(&"ACK 999 msn 1000".to_string()), "{says:?}");
    b.hear(read(1000, at, 3000));
    b.hear(read(1003, at, 3000));
    b.says();
    for n in 0..1000 {
        b.hear(write_only(n, at, b"x"));
        b.hear(read(1000 + 3 * (n % 2), at, 3000));
        b.hear(write_only(n, at, b"x"));
        b.hear(write_only(2000, at, b"x"));
    }
    // Two READs of three packets, and at most ACK, NAK, ACK before, between and after them.
    let says = b.says();
    assert!(says.len() <= 2 * 3 + 3 * 3, "{says:?}");
}
