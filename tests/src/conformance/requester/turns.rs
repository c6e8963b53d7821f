//! Who goes next where several have something to send.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::Behaviour;
use softroce_sim::card::{PriorityMask, SendRequest, Work};
use softroce_sim::time::{Span, Time};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "Queue pairs take turns, packet by packet",
        [queue_pairs_take_turns]
    ),
    rule!(
        Behaviour,
        "Requests and READ data take turns, and acknowledgements go first",
        [requests_and_read_data_take_turns_and_acknowledgements_go_first]
    ),
    rule!(
        Behaviour,
        "A card that has nothing to send says so",
        [a_card_that_has_nothing_to_send_says_so]
    ),
];

fn queue_pairs_take_turns() {
    // However often the doorbell of one was rung before that of the other.
    let mut b = Bench::ready();
    let mut other = b.another();
    for id in 0..4 {
        b.post_send(id, 8);
    }
    let sges = [b.sge(0, 2000)];
    let long = SendRequest::new(9, Work::Send, &sges);
    other.post_send(&long).unwrap();
    b.card.doorbell(b.now, other.number());
    assert_eq!(
        b.says(),
        [
            "Send Only 0 [8] ?",
            "Send First 0 [1024]",
            "Send Only 1 [8] ?",
            "Send Last 1 [976] ?",
            "Send Only 2 [8] ?",
            "Send Only 3 [8] ?"
        ]
    );
}

fn requests_and_read_data_take_turns_and_acknowledgements_go_first() {
    let mut b = Bench::ready();
    b.hear(read(0, b.remote(0), 3000));
    b.hear(write_only(3, b.remote(0), b"x"));
    b.hear(read(4, b.remote(0), 8));
    for id in 0..5 {
        b.post_send(id, 8);
    }
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response First 0 [1024]",
            "Send Only 0 [8] ?",
            "RDMA Read Response Middle 1 [1024]",
            "Send Only 1 [8] ?",
            "RDMA Read Response Last 2 [952]",
            "ACK 3 msn 2",
            "RDMA Read Response Only 4 [8]",
            "Send Only 2 [8] ?",
            "Send Only 3 [8] ?",
            "Send Only 4 [8] ?"
        ]
    );
}

fn a_card_that_has_nothing_to_send_says_so() {
    // Its driver asks after every call, and need not pull in vain.
    let mut b = Bench::ready();
    assert_eq!(b.card.pending(), PriorityMask::NONE);
    b.post_send(1, 8);
    // Service level 3.
    assert_eq!(b.card.pending(), PriorityMask::NONE.with(3));
    b.says();
    assert_eq!(b.card.pending(), PriorityMask::NONE);
    b.hear(ack(0, 1));
    b.hear(write_only(0, b.remote(0), b"x").with(|h| h.with_ack_req(false)));
    b.wait(Span::from_ms(100));
    assert_eq!(b.card.pending(), PriorityMask::NONE);
    assert_eq!(b.card.next_timeout(), Time::NEVER);
    b.hear(write_only(1, b.remote(0), b"x"));
    assert_eq!(b.card.pending(), PriorityMask::NONE.with(3));
    b.says();
    assert_eq!(b.card.pending(), PriorityMask::NONE);
}
