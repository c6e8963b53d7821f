//! What the program's own keys allow.

use super::NONE;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::Behaviour;
use softroce_sim::card::{State, Status, Work};
use softroce_sim::memory::Buffer;
use softroce_sim::time::Span;
use softroce_sim::wire::Opcode;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A bad local key fails its request once those before it are done",
        [
            a_bad_local_key_fails_the_request_after_those_before_it,
            those_before_it_are_tried_again_until_they_are_done
        ]
    ),
    rule!(
        Behaviour,
        "Every element is held against its domain, range and rights",
        [local_memory_is_checked_in_every_element]
    ),
    rule!(
        Behaviour,
        "An element of no bytes needs no key",
        [an_element_of_no_bytes_needs_no_key]
    ),
    rule!(
        Behaviour,
        "A region that goes away in mid message fails the request",
        [a_region_that_goes_away_in_mid_message_fails_the_request]
    ),
];

fn a_bad_local_key_fails_the_request_after_those_before_it() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    let mut sge = b.sge(0, 8);
    sge.lkey.0 ^= 1;
    b.post(2, Work::Send, &[sge]);
    b.post_send(3, 8);
    assert_eq!(b.says(), ["Send Only 0 [8] ?"]);
    assert!(b.completed().is_empty(), "not before the first is done");
    b.hear(ack(0, 1));
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::LocalProtectionError),
            (3, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.state(), State::Error);
}

fn those_before_it_are_tried_again_until_they_are_done() {
    // What a READ fetches has no place to go to, which shows before it begins.
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    b.hear(ack(0, 1));
    b.post_send(2, 8);
    let mut sge = b.sge(0, 8);
    sge.lkey.0 ^= 1;
    b.post(3, Work::Read(elsewhere()), &[sge]);
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
    for _ in 0..3 {
        b.wait(Span::from_ms(68));
        assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
    }
    b.hear(ack(1, 2));
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::Success),
            (3, Status::LocalProtectionError)
        ]
    );
}

fn local_memory_is_checked_in_every_element() {
    let mut bad = Vec::new();
    let mut b = Bench::ready();
    let other = b.card.alloc_pd();
    let mr = b
        .card
        .register(other, Buffer::new(64), all_rights())
        .unwrap();
    bad.push(softroce_sim::card::Sge {
        addr: mr.addr,
        len: 8,
        lkey: mr.lkey,
    });
    bad.push(b.sge(b.mr.len - 7, 8));
    bad.push(softroce_sim::card::Sge {
        addr: u64::MAX - 3,
        len: 8,
        lkey: b.mr.lkey,
    });
    for sge in bad {
        for work in [Work::Send, Work::Write(elsewhere())] {
            // The same seed gives the same keys.
            let mut b = Bench::ready();
            let other = b.card.alloc_pd();
            b.card
                .register(other, Buffer::new(64), all_rights())
                .unwrap();
            let good = b.sge(0, 8);
            b.post(1, work, &[good, sge]);
            assert_eq!(b.says(), NONE);
            assert_eq!(b.completed(), [(1, Status::LocalProtectionError)]);
        }
        let mut b = Bench::ready();
        let good = b.sge(0, 8);
        b.post(1, Work::Read(elsewhere()), &[good, sge]);
        b.says();
        b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 16]));
        assert_eq!(b.completed(), [(1, Status::LocalProtectionError)]);
    }
}

fn an_element_of_no_bytes_needs_no_key() {
    let mut b = Bench::ready();
    let mut empty = b.sge(0, 0);
    empty.lkey.0 = !0;
    let full = b.sge(0, 4);
    b.post(1, Work::Send, &[empty, full, empty]);
    assert_eq!(b.says(), ["Send Only 0 [4] ?"]);
}

fn a_region_that_goes_away_in_mid_message_fails_the_request() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.post_send(2, 4000);
    b.post_send(3, 8);
    for _ in 0..3 {
        b.pull();
    }
    b.card.deregister(b.mr.lkey).unwrap();
    assert_eq!(b.pull(), None);
    b.hear(ack(1, 1));
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::LocalProtectionError),
            (3, Status::WorkRequestFlushed)
        ]
    );
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
}
