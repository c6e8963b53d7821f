//! Timers: the transport timer, the wait that an RNR NAK asks for, and reaction times.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::profile::RXE;
use softroce_sim::card::{Cause, QpAttributes, SendRequest, State, Status, Timing, Work};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{NakCode, Opcode};

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
    rule!(
        Section("9.7.5.2.8"),
        "An RNR NAK is waited for at least as long as it asks",
        [an_rnr_nak_is_waited_for_at_least_as_long_as_it_asks]
    ),
    rule!(
        Behaviour,
        "An RNR NAK that comes late is waited for too",
        [
            an_rnr_nak_that_comes_late_is_waited_for_too,
            an_rnr_nak_that_comes_late_sends_nothing_again_that_is_under_way
        ]
    ),
    rule!(
        Section("9.7.5.2.8"),
        "Answers to what was asked for before do not end the wait of an RNR NAK",
        [
            answers_to_earlier_requests_do_not_end_the_wait,
            what_was_put_off_is_sent_again_whatever_is_missing_before_it,
            rnr_retries_are_counted_while_read_data_is_missing
        ]
    ),
    rule!(
        Section("9.7.5.2.8"),
        "Each RNR NAK is waited for, and a copy of it no longer",
        [each_rnr_nak_is_waited_for_and_a_copy_of_it_no_longer]
    ),
    rule!(
        Section("9.7.5.2.8"),
        "Reaction times shorten the wait for no RNR NAK of a row",
        [
            reaction_times_shorten_the_wait_for_no_rnr_nak_of_a_row,
            other_pauses_do_not_stand_for_the_wait_of_an_rnr_nak,
            an_ack_of_less_does_not_end_the_wait
        ]
    ),
    rule!(
        Behaviour,
        "RNR retries are counted, and 7 is for ever",
        [rnr_retries_are_counted_and_seven_is_for_ever]
    ),
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

const NONE: [&str; 0] = [];

const SENT: [&str; 1] = ["Send Only 0 [8] ?"];

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

fn an_rnr_nak_is_waited_for_at_least_as_long_as_it_asks() {
    // Table 45: code 0 is 655.36 ms, 1 is 0.01 ms, 12 is 0.64 ms, 22 is 20.48 ms, 31 is 491.52 ms.
    for (code, us) in [
        (0, 655_360),
        (1, 10),
        (12, 640),
        (22, 20_480),
        (31, 491_520),
    ] {
        let mut b = Bench::ready();
        b.post_send(1, 8);
        b.post_send(2, 8);
        b.says();
        b.hear(rnr_nak(0, code));
        b.post_send(3, 8);
        b.wait(Span::from_us(us) - Span::from_ps(1));
        assert_eq!(b.says(), NONE, "code {code}");
        b.wait(Span::from_ps(1));
        assert_eq!(
            b.says(),
            [
                "Send Only 0 [8] ?",
                "Send Only 1 [8] ?",
                "Send Only 2 [8] ?"
            ],
            "code {code}"
        );
        // 655 ms are ten timeouts, and none of them counts.
        assert_eq!(b.card.counters().timeouts, 0);
    }
}

fn an_rnr_nak_that_comes_late_is_waited_for_too() {
    // The timeout has sent the requester back already; then the RNR NAK of the first try comes.
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    b.wait(Span::from_ms(68));
    b.hear(rnr_nak(0, 22));
    b.wait(Span::from_ms(20));
    assert_eq!(b.says(), NONE);
    b.wait(Span::from_ms(1));
    assert_eq!(b.says(), SENT);
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

/// Code 22 asks for 20.48 ms.
const RNR_WAIT: Span = Span::from_us(20_480);

fn answers_to_earlier_requests_do_not_end_the_wait() {
    // The data of a READ is late, or an acknowledgement, to a card that does not take an RNR NAK for one.
    let late_read = |b: &mut Bench| {
        b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[7; 8]));
    };
    let late_ack = |b: &mut Bench| b.hear(ack(0, 1));
    let spec = || Bench::new(Setup::default());
    let rxe = || {
        let mut setup = Setup::default();
        setup.config = setup.config.with_profile(&RXE);
        Bench::new(setup)
    };
    let mut of_read = spec();
    of_read.post_read(1, 8);
    let mut of_write = rxe();
    of_write.post_write(1, 8);
    for (mut b, late) in [
        (of_read, &late_read as &dyn Fn(&mut Bench)),
        (of_write, &late_ack),
    ] {
        b.post_send(2, 8);
        assert_eq!(b.says().len(), 2);
        b.hear(rnr_nak(1, 22));
        late(&mut b);
        assert_eq!(b.completed(), [(1, Status::Success)]);
        assert_eq!(b.says(), NONE, "nothing before the wait is over");
        b.wait(RNR_WAIT - Span::from_ps(1));
        assert_eq!(b.says(), NONE, "nothing before the wait is over");
        b.wait(Span::from_ps(1));
        assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
        b.hear(ack(1, 2));
        assert_eq!(b.completed(), [(2, Status::Success)]);
    }
}

fn what_was_put_off_is_sent_again_whatever_is_missing_before_it() {
    // Without a transport timer, so that nothing else sends it again.
    let mut b = Bench::new(Setup {
        timeout: 0,
        ..Default::default()
    });
    b.post_read(1, 8);
    b.post_send(2, 8);
    for _ in 0..3 {
        assert_eq!(
            b.says(),
            ["RDMA Read Request 0 of 8 ?", "Send Only 1 [8] ?"]
        );
        b.hear(rnr_nak(1, 22));
        assert_eq!(b.says(), NONE);
        b.wait(RNR_WAIT);
    }
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[7; 8]));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
    b.hear(ack(1, 2));
    assert_eq!(b.completed(), [(2, Status::Success)]);
}

fn rnr_retries_are_counted_while_read_data_is_missing() {
    let mut b = Bench::new(Setup {
        rnr_retry: 2,
        ..Default::default()
    });
    b.post_read(1, 8);
    b.post_send(2, 8);
    b.post_send(3, 8);
    let mut tries = 0;
    while b.state() == State::Rts {
        assert!(tries < 10, "the receiver is never ready");
        assert_eq!(b.says().len(), 3);
        tries += 1;
        b.hear(rnr_nak(1, 1));
        b.wait(Span::from_us(10));
    }
    // The first one shows that the READ's data is missing, which is a retry of that kind.
    assert_eq!(tries, 1 + 1 + 2);
    // It is the SEND that the receiver was not ready for.
    assert_eq!(
        b.completed(),
        [
            (1, Status::WorkRequestFlushed),
            (2, Status::RnrRetryExceeded),
            (3, Status::WorkRequestFlushed)
        ]
    );
}

fn an_rnr_nak_that_comes_late_sends_nothing_again_that_is_under_way() {
    let mut b = Bench::new(Setup {
        rnr_retry: 1,
        ..Default::default()
    });
    b.post_read(1, 8);
    b.post_send(2, 8);
    assert_eq!(b.says().len(), 2);
    b.hear(rnr_nak(1, 1));
    b.wait(Span::from_us(10));
    // Of the two that are to be sent again the READ is on its way when the NAK comes once more.
    let read = b.pull().unwrap();
    assert_eq!(b.describe(&read), "RDMA Read Request 0 of 8 ?");
    for _ in 0..3 {
        b.hear(rnr_nak(1, 1));
        b.wait(Span::from_us(10));
    }
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
    // The one retry is still there.
    b.hear(rnr_nak(1, 1));
    b.wait(Span::from_us(10));
    assert_eq!(b.says().len(), 2);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[7; 8]));
    b.hear(ack(1, 2));
    assert_eq!(b.completed(), [(1, Status::Success), (2, Status::Success)]);
}

fn each_rnr_nak_is_waited_for_and_a_copy_of_it_no_longer() {
    // Whatever else the card waits for.
    let (short, none) = (Span::from_us(1), Span::ZERO);
    for (doorbell, retransmit) in [(none, none), (short, none), (none, short)] {
        let mut setup = Setup::default();
        (setup.config.timing.doorbell, setup.config.timing.retransmit) = (doorbell, retransmit);
        let mut b = Bench::new(setup);
        b.post_send(1, 8);
        b.wait(short);
        for _ in 0..3 {
            assert_eq!(b.says(), SENT);
            b.card.doorbell(b.now, b.qp.number());
            // Code 12 is 0.64 ms.
            b.hear(rnr_nak(0, 12));
            assert_eq!(b.says(), NONE);
            b.wait(Span::from_us(400));
            b.hear(rnr_nak(0, 12));
            b.wait(Span::from_us(240) - Span::from_ps(1));
            assert_eq!(b.says(), NONE);
            b.wait(Span::from_ps(1));
        }
        assert_eq!(b.says(), SENT);
    }
}

fn reaction_times_shorten_the_wait_for_no_rnr_nak_of_a_row() {
    let tick = Span::from_ps(1);
    // Codes 1 and 12 are 10 and 640 us. Reactions take no time, less than the wait, as long, and longer.
    for (code, wait) in [(1, 10), (12, 640)] {
        for reaction in [0, 1, 5, 10, 639, 640, 1000] {
            let mut setup = Setup::default();
            setup.config.timing.retransmit = Span::from_us(reaction);
            let mut b = Bench::new(setup);
            b.post_send(1, 8);
            for nak in 0..5 {
                assert_eq!(b.says(), SENT);
                b.wait(Span::from_us(3));
                b.hear(rnr_nak(0, code));
                assert_eq!(b.says(), NONE);
                b.wait(Span::from_us(wait.max(reaction)) - tick);
                assert_eq!(b.says(), NONE, "{code} {reaction} {nak}");
                b.wait(tick);
            }
            assert_eq!(b.says(), SENT);
        }
    }
}

fn other_pauses_do_not_stand_for_the_wait_of_an_rnr_nak() {
    let tick = Span::from_ps(1);
    let mut setup = Setup::default();
    setup.config.timing.doorbell = Span::from_us(7);
    setup.config.timing.retransmit = Span::from_us(5);
    let mut b = Bench::new(setup);
    b.post_send(1, 8);
    b.wait(Span::from_us(7));
    assert_eq!(b.says(), SENT);
    b.hear(rnr_nak(0, 1));
    b.wait(Span::from_us(10));
    assert_eq!(b.says(), SENT);
    // The queue is idle, so its doorbell is a pause of its own; an RNR NAK comes in the middle of it.
    b.post_send(2, 8);
    b.wait(Span::from_us(1));
    b.hear(rnr_nak(0, 1));
    b.wait(Span::from_us(10) - tick);
    assert_eq!(b.says(), NONE);
    b.wait(tick);
    let both = ["Send Only 0 [8] ?", "Send Only 1 [8] ?"];
    assert_eq!(b.says(), both);
    // And in the reaction to a sequence NAK.
    b.hear(nak(0, NakCode::PsnSequenceError));
    b.wait(Span::from_us(1));
    b.hear(rnr_nak(0, 1));
    b.wait(Span::from_us(10) - tick);
    assert_eq!(b.says(), NONE);
    b.wait(tick);
    assert_eq!(b.says(), both);
}

fn an_ack_of_less_does_not_end_the_wait() {
    // A card that takes an RNR NAK for no acknowledgement of what was before it, and the ACK of that
    // overtaken by the NAK.
    let mut setup = Setup::default();
    setup.config.profile.rnr_nak_acknowledges = false;
    let mut b = Bench::new(setup);
    b.post_write(1, 8);
    b.post_send(2, 8);
    assert_eq!(b.says().len(), 2);
    b.hear(rnr_nak(1, 1));
    b.wait(Span::from_us(4));
    b.hear(ack(0, 1));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    b.wait(Span::from_us(6) - Span::from_ps(1));
    assert_eq!(b.says(), NONE);
    b.wait(Span::from_ps(1));
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
    // An ACK of the packet itself does.
    b.hear(rnr_nak(1, 1));
    b.post_send(3, 8);
    assert_eq!(b.says(), NONE);
    b.hear(ack(1, 2));
    assert_eq!(b.says(), ["Send Only 2 [8] ?"]);
}

fn rnr_retries_are_counted_and_seven_is_for_ever() {
    for rnr_retry in 0..=7 {
        let mut b = Bench::new(Setup {
            rnr_retry,
            retry_cnt: 0,
            ..Default::default()
        });
        b.post_send(1, 8);
        let mut tries = 0;
        while tries < 100 && b.says() == SENT {
            tries += 1;
            b.hear(rnr_nak(0, 1));
            b.wait(Span::from_us(10));
        }
        if rnr_retry == 7 {
            assert_eq!(tries, 100);
            assert_eq!(b.says(), SENT);
        } else {
            // rc_rnr_exhausted: rnr_retry 0, one try.
            assert_eq!(tries, 1 + i32::from(rnr_retry));
            assert_eq!(b.completed(), [(1, Status::RnrRetryExceeded)]);
        }
    }
}

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
