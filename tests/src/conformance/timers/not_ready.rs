//! The wait that an RNR NAK asks for.

use super::{NONE, SENT};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Section};
use softroce_sim::card::profile::RXE;
use softroce_sim::card::{State, Status};
use softroce_sim::time::Span;
use softroce_sim::wire::{NakCode, Opcode};

pub(super) const RULES: &[Rule] = &[
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
];

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
