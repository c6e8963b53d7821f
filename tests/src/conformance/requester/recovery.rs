//! What a NAK makes the requester do.

use super::successes;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Kernel};
use softroce_sim::card::Status;
use softroce_sim::time::Span;
use softroce_sim::wire::NakCode;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Kernel("loss_send_middle"),
        "A sequence NAK makes the requester go back to the packet it names",
        [a_sequence_nak_sends_the_rest_again]
    ),
    rule!(
        Behaviour,
        "Copies of one NAK cost one retry",
        [a_copy_of_a_nak_costs_no_retry]
    ),
    rule!(
        Behaviour,
        "Progress gives the retries back",
        [progress_renews_the_retries]
    ),
];

fn a_sequence_nak_sends_the_rest_again() {
    // As in loss_send_middle.
    let mut b = Bench::ready();
    b.post_send(1, 5000);
    b.says();
    b.hear(nak(1, NakCode::PsnSequenceError));
    assert_eq!(
        b.says(),
        [
            "Send Middle 1 [1024]",
            "Send Middle 2 [1024]",
            "Send Middle 3 [1024]",
            "Send Last 4 [904] ?"
        ]
    );
    b.hear(ack(4, 1));
    assert_eq!(b.completed(), successes([1]));
    assert_eq!(b.card.counters().retransmitted_packets, 4);
}

fn a_copy_of_a_nak_costs_no_retry() {
    let mut b = Bench::new(Setup {
        retry_cnt: 1,
        rnr_retry: 1,
        ..Default::default()
    });
    b.post_send(1, 10);
    b.says();
    b.hear(nak(0, NakCode::PsnSequenceError));
    b.hear(nak(0, NakCode::PsnSequenceError));
    b.hear(nak(0, NakCode::PsnSequenceError));
    assert_eq!(b.says(), ["Send Only 0 [10] ?"]);
    b.hear(rnr_nak(0, 1));
    b.hear(rnr_nak(0, 1));
    b.wait(Span::from_us(10));
    assert_eq!(b.says(), ["Send Only 0 [10] ?"]);
    b.hear(nak(0, NakCode::PsnSequenceError));
    assert_eq!(b.completed(), [(1, Status::RetryExceeded)]);
}

fn progress_renews_the_retries() {
    let mut b = Bench::new(Setup {
        retry_cnt: 1,
        rnr_retry: 1,
        ..Default::default()
    });
    for id in 0..4 {
        b.post_send(id, 10);
    }
    b.says();
    for n in 0..4 {
        b.hear(nak(n, NakCode::PsnSequenceError));
        b.says();
        b.hear(rnr_nak(n, 1));
        b.wait(Span::from_us(10));
        b.says();
        b.hear(ack(n, n + 1));
    }
    assert_eq!(b.completed(), successes(0..4));
}
