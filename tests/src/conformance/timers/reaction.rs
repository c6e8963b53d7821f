//! Reaction times: how long the card itself takes to begin, to answer and to send again.

use super::{NONE, SENT};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::Behaviour;
use softroce_sim::card::{SendRequest, Status, Timing, Work};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{NakCode, Opcode};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "An ACK in the pause before sending again ends it",
        [an_ack_in_the_pause_before_sending_again_ends_it_without_harm]
    ),
    rule!(
        Behaviour,
        "Reaction times are kept",
        [
            reaction_times_are_kept,
            a_doorbell_on_a_busy_queue_holds_nothing_up,
            one_doorbell_for_several_requests_takes_its_time,
            each_answer_has_its_time,
            acknowledgements_drawn_together_wait_no_longer_than_the_first
        ]
    ),
];

fn an_ack_in_the_pause_before_sending_again_ends_it_without_harm() {
    let mut setup = Setup::default();
    setup.config.timing.retransmit = Span::from_us(5);
    let mut b = Bench::new(setup);
    b.post_send(1, 8);
    b.says();
    b.hear(nak(0, NakCode::PsnSequenceError));
    assert_eq!(b.says(), NONE);
    // It was not lost but late.
    b.hear(ack(0, 1));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    b.wait(Span::from_us(5));
    assert_eq!(b.says(), NONE);
    b.wait(Span::from_ms(1000));
    b.post_send(2, 8);
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
}

fn reaction_times_are_kept() {
    let mut setup = Setup::default();
    setup.config.timing = Timing {
        doorbell: Span::from_ns(100),
        ack: Span::from_ns(200),
        nak: Span::from_ns(300),
        retransmit: Span::from_ns(400),
    };
    let mut b = Bench::new(setup);
    let tick = Span::from_ps(1);
    let after = |b: &mut Bench, span: Span| {
        assert_eq!(b.says(), NONE);
        b.wait(span - tick);
        assert_eq!(b.says(), NONE);
        b.wait(tick);
        b.says()
    };
    b.post_send(1, 8);
    assert_eq!(after(&mut b, Span::from_ns(100)), SENT);
    b.hear(nak(0, NakCode::PsnSequenceError));
    assert_eq!(after(&mut b, Span::from_ns(400)), SENT);
    let to = b.remote(0);
    b.hear(write_only(0, to, b"x"));
    assert_eq!(after(&mut b, Span::from_ns(200)), ["ACK 0 msn 1"]);
    b.hear(read(1, to, 8));
    assert_eq!(
        after(&mut b, Span::from_ns(200)),
        ["RDMA Read Response Only 1 [8]"]
    );
    b.hear(send(Opcode::RC_SEND_ONLY, 5, b"x"));
    let nak = after(&mut b, Span::from_ns(300));
    assert_eq!(nak, ["NAK 2 PSN sequence error msn 2"]);
}

fn a_doorbell_on_a_busy_queue_holds_nothing_up() {
    let mut setup = Setup::default();
    setup.config.timing.doorbell = Span::from_ns(100);
    let mut b = Bench::new(setup);
    let both = ["Send Only 0 [8] ?", "Send Only 1 [8] ?"];
    b.post_send(1, 8);
    b.wait(Span::from_ns(60));
    b.post_send(2, 8);
    b.wait(Span::from_ns(40));
    assert_eq!(b.says(), both);
    // Nor in the middle of a message.
    b.post_send(3, 3000);
    b.wait(Span::from_ns(100));
    assert!(b.pull().is_some());
    b.card.doorbell(b.now, b.qp.number());
    assert_eq!(b.says(), ["Send Middle 3 [1024]", "Send Last 4 [952] ?"]);
}

fn one_doorbell_for_several_requests_takes_its_time() {
    let mut setup = Setup::default();
    setup.config.timing.doorbell = Span::from_ns(100);
    let mut b = Bench::new(setup);
    for round in 0..2u32 {
        let sges = [b.sge(0, 8)];
        for wr_id in 0..3 {
            let request = SendRequest::new(wr_id, Work::Send, &sges);
            b.qp.post_send(&request).unwrap();
        }
        b.card.doorbell(b.now, b.qp.number());
        b.wait(Span::from_ns(99));
        assert_eq!(b.says(), NONE);
        b.wait(Span::from_ns(1));
        assert_eq!(b.says().len(), 3);
        let last = 3 * round + 2;
        b.hear(ack(last, last + 1));
        assert_eq!(b.completed().len(), 3);
    }
}

/// A card that takes 200 ns to acknowledge and none to refuse.
fn slow_to_acknowledge() -> Bench {
    let mut setup = Setup::default();
    setup.config.timing.ack = Span::from_ns(200);
    Bench::new(setup)
}

fn each_answer_has_its_time() {
    let mut b = slow_to_acknowledge();
    b.hear(write_only(0, b.remote(0), b"x"));
    b.wait(Span::from_ns(50));
    b.hear(read(1, b.remote(0), 8));
    b.wait(Span::from_ns(150));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.card.next_timeout(), b.now + Span::from_ns(50));
    b.wait(Span::from_ns(50));
    assert_eq!(b.says(), ["RDMA Read Response Only 1 [8]"]);
    assert_eq!(b.card.next_timeout(), Time::NEVER);
}

fn acknowledgements_drawn_together_wait_no_longer_than_the_first() {
    // Two gaps, each closed before anything is fetched: one ACK and one NAK are left.
    let mut b = slow_to_acknowledge();
    let at = b.remote(0);
    b.hear(write_only(0, at, b"x"));
    b.wait(Span::from_ns(100));
    for n in [2, 1, 3] {
        b.hear(write_only(n, at, b"x"));
    }
    b.wait(Span::from_ns(100));
    assert_eq!(b.says(), ["ACK 1 msn 2", "NAK 2 PSN sequence error msn 2"]);
}
