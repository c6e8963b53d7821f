//! READs, from the side that answers.

use super::region;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Kernel, Section};
use softroce_sim::card::{AsyncEvent, QpAttributes, Refusal, State};
use softroce_sim::memory::Access;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Kernel("rc_read"),
        "A READ is answered in packets of the path MTU, AETH on first and last",
        [a_read_is_answered_in_packets_of_the_path_mtu]
    ),
    rule!(
        Section("9.4.4"),
        "A READ that is asked again is read again, whole or in part",
        [
            a_read_asked_again_is_read_again,
            what_is_still_to_be_sent_of_it_is_replaced
        ]
    ),
    rule!(
        Behaviour,
        "A copy of a READ that cannot be served is dropped",
        [a_copy_of_a_read_that_cannot_be_served_is_dropped]
    ),
    rule!(
        Id("C9-110"),
        "An earlier duplicate interrupts the answer under way",
        [
            an_earlier_duplicate_interrupts_the_answer_under_way,
            duplicates_are_answered_in_their_place
        ]
    ),
    rule!(
        Behaviour,
        "More READs than the program allowed are invalid",
        [more_reads_than_the_program_allowed_are_invalid]
    ),
    rule!(
        Behaviour,
        "A READ answered again takes no new one's place",
        [a_read_answered_again_does_not_take_the_place_of_a_new_one]
    ),
    rule!(
        Section("9.7.5.1.3"),
        "A region that goes away ends the READ from it with a NAK",
        [a_region_that_goes_away_ends_the_read_from_it_with_a_nak]
    ),
];

fn a_read_is_answered_in_packets_of_the_path_mtu() {
    let mut b = Bench::ready();
    let data = pattern(4, 3000);
    b.buffer.write_at(8, &data);
    b.hear(read(0, b.remote(8), 3000));
    let packets = b.packets();
    let words: Vec<_> = packets.iter().map(|p| b.describe(p)).collect();
    assert_eq!(
        words,
        [
            "RDMA Read Response First 0 [1024]",
            "RDMA Read Response Middle 1 [1024]",
            "RDMA Read Response Last 2 [952]"
        ]
    );
    // As in rc_read: AETH on first and last, none in the middle.
    let aeths: Vec<_> = packets
        .iter()
        .map(|p| p.ext.aeth().map(|a| a.msn.get()))
        .collect();
    assert_eq!(aeths, [Some(1), None, Some(1)]);
    let got: Vec<u8> = packets.iter().flat_map(|p| b.bytes(p)).collect();
    assert_eq!(got, data);
}

fn a_read_asked_again_is_read_again() {
    let mut b = Bench::ready();
    b.hear(read(0, b.remote(0), 4));
    let p = b.pull().unwrap();
    assert_eq!(b.bytes(&p), [0; 4]);
    b.buffer.write_at(0, b"new!");
    b.hear(read(0, b.remote(0), 4));
    let p = b.pull().unwrap();
    assert_eq!(b.bytes(&p), b"new!");
    assert_eq!(b.card.counters().duplicate_requests, 1);
    // The rest of a longer one, from where the peer lost it; as in loss_read_resp_last.
    b.hear(read(1, b.remote(0), 3000));
    b.says();
    b.hear(read(3, b.remote(2048), 952));
    assert_eq!(b.says(), ["RDMA Read Response Only 3 [952]"]);
}

fn what_is_still_to_be_sent_of_it_is_replaced() {
    let whole = [
        "RDMA Read Response First 0 [1024]",
        "RDMA Read Response Middle 1 [1024]",
        "RDMA Read Response Last 2 [952]",
    ];
    let rest = [
        "RDMA Read Response First 1 [1024]",
        "RDMA Read Response Last 2 [952]",
    ];
    let whole_again = |b: &mut Bench| b.hear(read(0, b.remote(0), 3000));
    let rest_again = |b: &mut Bench| b.hear(read(1, b.remote(1024), 1976));
    // Asked again while the answer waits, or is under way: it is given once.
    let mut b = Bench::ready();
    whole_again(&mut b);
    whole_again(&mut b);
    assert_eq!(b.says(), whole);
    whole_again(&mut b);
    b.pull();
    whole_again(&mut b);
    assert_eq!(b.says(), whole);
    // The latest request says what is missing.
    whole_again(&mut b);
    rest_again(&mut b);
    assert_eq!(b.says(), rest);
    rest_again(&mut b);
    whole_again(&mut b);
    assert_eq!(b.says(), whole);
    assert_eq!(b.counted().duplicate_requests, 7);
}

fn a_copy_of_a_read_that_cannot_be_served_is_dropped() {
    // It is an old one that the network kept; the connection has moved on.
    let none = [""; 0];
    let mut b = Bench::ready();
    let (_, at) = region(&mut b, all_rights());
    b.hear(read(0, at, 8));
    b.says();
    // For more than there was.
    b.hear(read(0, at, 3000));
    assert_eq!(b.says(), none);
    // From a region that has ended since.
    let key = softroce_sim::memory::LocalKey(at.rkey.0);
    b.card.deregister(key).unwrap();
    b.hear(read(0, at, 8));
    assert_eq!(b.says(), none);
    b.still_works(1, 2);
    // Of a program that allows no READs any more.
    b.hear(read(2, b.remote(0), 8));
    b.says();
    b.modify(QpAttributes {
        access: Some(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
        ..Default::default()
    })
    .unwrap();
    b.hear(read(2, b.remote(0), 8));
    assert_eq!(b.says(), none);
    assert_eq!(b.refused(Refusal::Duplicate), 3);
    b.still_works(3, 4);
}

fn an_earlier_duplicate_interrupts_the_answer_under_way() {
    let mut b = Bench::ready();
    let from = b.remote(0);
    b.hear(read(0, from, 8));
    b.says();
    b.hear(read(1, from, 4000));
    let first = b.pull().unwrap();
    assert_eq!(b.describe(&first), "RDMA Read Response First 1 [1024]");
    b.hear(read(0, from, 8));
    let next = b.pull().unwrap();
    assert_eq!(b.describe(&next), "RDMA Read Response Only 0 [8]");
    // However much of it is out; it goes on behind.
    b.pull();
    b.hear(read(0, from, 8));
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response Only 0 [8]",
            "RDMA Read Response Middle 3 [1024]",
            "RDMA Read Response Last 4 [928]"
        ]
    );
}

fn duplicates_are_answered_in_their_place() {
    let mut b = Bench::ready();
    let from = b.remote(0);
    b.hear_all((0..3).map(|n| read(n, from, 8)));
    b.hear(read(3, from, 3000));
    b.says();
    // Between what comes before and what comes after, whether that is new or a duplicate itself.
    b.hear(read(6, from, 8));
    b.hear(write_only(7, from, b"x"));
    b.hear(read(3, from, 3000));
    b.hear(read(1, from, 8));
    b.hear(read(2, from, 8));
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response Only 1 [8]",
            "RDMA Read Response Only 2 [8]",
            "RDMA Read Response First 3 [1024]",
            "RDMA Read Response Middle 4 [1024]",
            "RDMA Read Response Last 5 [952]",
            "RDMA Read Response Only 6 [8]",
            "ACK 7 msn 6"
        ]
    );
    // What a duplicate leaves behind acknowledges no less than before.
    b.hear(write_only(8, from, b"x"));
    b.hear(read(9, from, 8));
    b.hear(write_only(7, from, b"x"));
    b.hear(read(9, from, 8));
    assert_eq!(b.says(), ["ACK 8 msn 7", "RDMA Read Response Only 9 [8]"]);
}

fn more_reads_than_the_program_allowed_are_invalid() {
    for limit in [0, 1, 3] {
        let b = Bench::new(Setup {
            max_dest_rd_atomic: limit,
            ..Default::default()
        });
        let from = b.remote(0);
        let mut b = b;
        let n = u32::from(limit);
        b.hear_all((0..n).map(|n| read(n, from, 8)));
        b.hear(read(n, from, 8));
        assert_eq!(b.state(), State::Error, "{limit}");
        assert_eq!(b.events(), [AsyncEvent::QpRequestError(b.qp.number())]);
        // What was asked before is answered before.
        let mut expected: Vec<String> = (0..n)
            .map(|n| format!("RDMA Read Response Only {n} [8]"))
            .collect();
        expected.push(format!("NAK {n} invalid request msn {n}"));
        assert_eq!(b.says(), expected);
    }
    // One that is answered makes room for another.
    let mut b = Bench::new(Setup {
        max_dest_rd_atomic: 1,
        ..Default::default()
    });
    let from = b.remote(0);
    for n in 0..5 {
        b.hear(read(n, from, 8));
        assert_eq!(b.says(), [format!("RDMA Read Response Only {n} [8]")]);
    }
}

fn a_read_answered_again_does_not_take_the_place_of_a_new_one() {
    // The peer timed out and asked again; then the first answer came after all, and it went on. Its new
    // READ is within its limit, though the second answer to the old one still waits.
    let mut b = Bench::new(Setup {
        max_dest_rd_atomic: 1,
        ..Default::default()
    });
    let from = b.remote(0);
    b.hear(read(0, from, 8));
    assert_eq!(b.says(), ["RDMA Read Response Only 0 [8]"]);
    b.hear(read(0, from, 8));
    b.hear(read(1, from, 8));
    assert_eq!(b.state(), State::Rts);
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response Only 0 [8]",
            "RDMA Read Response Only 1 [8]"
        ]
    );
    // Nor do acknowledgements that wait take one.
    b.hear(write_only(2, from, b"x"));
    b.hear(read(1, from, 8));
    b.hear(read(3, from, 8));
    assert_eq!(b.state(), State::Rts);
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response Only 1 [8]",
            "ACK 2 msn 3",
            "RDMA Read Response Only 3 [8]"
        ]
    );
}

fn a_region_that_goes_away_ends_the_read_from_it_with_a_nak() {
    let mut b = Bench::ready();
    let (_, at) = region(&mut b, all_rights());
    b.hear(write_only(0, b.remote(0), b"x"));
    b.hear(read(1, at, 3000));
    let first: Vec<_> = (0..2).map(|_| b.pull().unwrap()).collect();
    assert_eq!(b.describe(&first[1]), "RDMA Read Response First 1 [1024]");
    b.card
        .deregister(softroce_sim::memory::LocalKey(at.rkey.0))
        .unwrap();
    assert_eq!(b.says(), ["NAK 2 remote access error msn 2"]);
    assert_eq!(b.state(), State::Error);
    assert_eq!(b.events(), [AsyncEvent::QpAccessError(b.qp.number())]);
}
