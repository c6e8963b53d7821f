//! The transport timer: when a request without an answer is tried again, and how often.

use super::{NONE, SENT};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{Cause, QpAttributes, SendRequest, State, Status, Work};
use softroce_sim::time::{Span, Time};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("C9-139"),
        "Each send queue has a timer of its own",
        [each_send_queue_has_a_timer_of_its_own]
    ),
    rule!(
        Id("C9-140"),
        "The timeout is 4.096 us x 2^n, and 0 is never",
        [
            the_timeout_is_4_096_us_times_2_to_the_n,
            a_timeout_of_zero_is_off
        ]
    ),
    rule!(
        Section("9.7.6.1.3"),
        "Nothing is tried more often than 1 + retry_cnt times",
        [
            nothing_is_tried_more_often_than_one_and_retry_cnt_times,
            retries_that_the_program_gives_back_are_counted_on
        ]
    ),
    rule!(
        Section("9.7.6.1.3"),
        "An answer restarts the timer",
        [an_answer_restarts_the_timer]
    ),
    rule!(
        Behaviour,
        "Posting more does not put the timeout off",
        [posting_more_does_not_put_the_timeout_off]
    ),
];

fn the_timeout_is_4_096_us_times_2_to_the_n() {
    for n in [1u8, 2, 8, 14, 31] {
        let mut b = Bench::new(Setup {
            timeout: n,
            ..Default::default()
        });
        b.post_send(1, 8);
        assert_eq!(b.says(), SENT);
        let timeout = Span::from_ps(4_096_000 << n);
        b.wait(timeout - Span::from_ps(1));
        assert_eq!(b.says(), NONE, "{n}");
        b.wait(Span::from_ps(1));
        assert_eq!(b.says(), SENT, "{n}");
        assert_eq!(b.card.counters().timeouts, 1);
    }
}

fn a_timeout_of_zero_is_off() {
    let mut b = Bench::new(Setup {
        timeout: 0,
        ..Default::default()
    });
    b.post_send(1, 8);
    b.says();
    assert_eq!(b.card.next_timeout(), Time::NEVER);
    b.wait(Span::from_ms(100_000));
    assert_eq!(b.says(), NONE);
    b.hear(ack(0, 1));
    assert_eq!(b.completed(), [(1, Status::Success)]);
}

fn each_send_queue_has_a_timer_of_its_own() {
    let mut b = Bench::ready();
    let mut other = b.another();
    let sges = [b.sge(0, 16)];
    b.post_send(1, 8);
    assert_eq!(b.says(), SENT);
    b.wait(Span::from_ms(40));
    other
        .post_send(&SendRequest::new(2, Work::Send, &sges))
        .unwrap();
    b.card.doorbell(b.now, other.number());
    assert_eq!(b.says(), ["Send Only 0 [16] ?"]);
    // 67.1 ms after each of them.
    b.wait(Span::from_ms(28));
    assert_eq!(b.says(), SENT);
    // An answer to the one is none to the other.
    b.hear(ack(0, 1));
    b.wait(Span::from_ms(38));
    assert_eq!(b.says(), NONE);
    b.wait(Span::from_ms(2));
    assert_eq!(b.says(), ["Send Only 0 [16] ?"]);
    assert_eq!(b.card.qp_counters(b.qp.number()).unwrap().timeouts, 1);
    assert_eq!(b.card.qp_counters(other.number()).unwrap().timeouts, 1);
}

fn nothing_is_tried_more_often_than_one_and_retry_cnt_times() {
    // loss_all: retry_cnt 2, three tries.
    for retry_cnt in 0..=7 {
        let mut b = Bench::new(Setup {
            retry_cnt,
            ..Default::default()
        });
        b.post_send(1, 8);
        b.post_send(2, 8);
        let mut tries = 0;
        loop {
            let says = b.says();
            if says.is_empty() {
                break;
            }
            assert_eq!(says.len(), 2);
            tries += 1;
            b.wait(Span::from_us(67_109));
        }
        assert_eq!(tries, 1 + u32::from(retry_cnt));
        assert_eq!(
            b.completed(),
            [(1, Status::RetryExceeded), (2, Status::WorkRequestFlushed)]
        );
    }
}

fn retries_that_the_program_gives_back_are_counted_on() {
    let mut b = Bench::new(Setup {
        timeout: 1,
        ..Default::default()
    });
    b.post_send(1, 8);
    assert_eq!(b.says().len(), 1);
    b.go_to(State::Sqd).unwrap();
    let give = |b: &mut Bench, retry_cnt| {
        b.wait(Span::from_ns(8192));
        b.modify(QpAttributes {
            retry_cnt: Some(retry_cnt),
            ..Default::default()
        })
        .unwrap();
        assert_eq!(b.says().len(), 1);
    };
    for _ in 0..299 {
        give(&mut b, 7);
    }
    give(&mut b, 0);
    b.wait(Span::from_ns(8192));
    assert_eq!(b.completed(), [(1, Status::RetryExceeded)]);
    let failure = b.card.next_failure().unwrap();
    assert!(
        matches!(failure.cause, Cause::RetriesExceeded { timeouts: 301, .. }),
        "{failure}"
    );
}

fn an_answer_restarts_the_timer() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.post_send(2, 8);
    b.says();
    b.wait(Span::from_ms(60));
    b.hear(ack(0, 1));
    b.wait(Span::from_ms(60));
    assert_eq!(b.says(), NONE);
    b.wait(Span::from_ms(8));
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
    b.hear(ack(1, 2));
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
    assert_eq!(b.card.counters().timeouts, 1);
}

fn posting_more_does_not_put_the_timeout_off() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    for id in 2..10 {
        b.wait(Span::from_ms(8));
        b.post_send(id, 8);
        b.says();
    }
    b.wait(Span::from_us(3_109));
    assert_eq!(b.card.counters().timeouts, 1);
    // The driver is told whether looking after the clock did anything.
    assert!(!b.card.advance(b.now));
    b.says();
    let due = b.card.next_timeout();
    assert!(due > b.now && b.card.advance(due));
}
