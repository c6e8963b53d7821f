//! What an error ends, and what it leaves alone.

use super::NONE;
use super::in_state;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id};
use softroce_sim::card::{AsyncEvent, RecvRequest, Remote, Sge, State, Status, Work};
use softroce_sim::memory::{Access, Buffer};
use softroce_sim::time::Span;
use softroce_sim::wire::{Ext, Immediate, NakCode, Opcode, RemoteKey};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "An error flushes everything once, in order",
        [error_flushes_everything_once_in_order]
    ),
    rule!(
        Behaviour,
        "A change to ERROR flushes both queues and stops the timer",
        [
            a_change_to_error_flushes_both_queues_and_stops_the_timer,
            a_change_to_error_ends_the_answers_with_data
        ]
    ),
    rule!(
        Id("C10-42"),
        "In ERROR what is posted later is flushed too",
        [in_error_what_is_posted_later_is_flushed_too]
    ),
    rule!(
        Id("C9-218"),
        "A full completion queue takes the queue pair into ERROR",
        [a_completion_queue_that_runs_over_takes_its_queue_pairs_along]
    ),
    rule!(
        Id("C9-220"),
        "A receive that fails flushes what remains and what comes later",
        [a_receive_that_fails_flushes_both_queues]
    ),
    rule!(
        Id("C9-222.1.1"),
        "A bad remote key: a NAK, and an event where no request takes part",
        [
            a_bad_remote_key_is_answered_and_told,
            a_write_that_has_taken_a_receive_fails_it
        ]
    ),
    rule!(
        Id("C11-37"),
        "Others learn of an overrun when they next complete",
        [
            others_learn_of_the_overrun_when_they_next_complete,
            a_receive_that_finds_the_completion_queue_full_ends_its_queue_pair
        ]
    ),
    rule!(
        Behaviour,
        "A queue pair is not hurt by another one",
        [a_queue_pair_is_not_hurt_by_another_one]
    ),
    rule!(
        Behaviour,
        "Memory without local write takes no READ data",
        [memory_without_local_write_takes_no_read_data]
    ),
];

fn error_flushes_everything_once_in_order() {
    let mut b = in_state(State::Rts);
    for id in 0..3 {
        b.post_send(id, 3000);
        b.post_recv(10 + id, 0, 3000);
    }
    b.says();
    b.hear(ack(2, 1));
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &[1; 1024]));
    b.hear(read(1, b.remote(0), 1));
    // Inside a SEND a READ is invalid: the receive that was taken fails, the rest is flushed.
    let completed = b.completed();
    assert_eq!(completed[0], (0, Status::Success));
    assert_eq!(completed[1], (10, Status::LocalQpOperationError));
    assert_eq!(
        completed[2..],
        [1, 2, 11, 12].map(|id| (id, Status::WorkRequestFlushed))
    );
    b.go_to(State::Error).unwrap();
    assert!(b.completed().is_empty());
}

fn a_change_to_error_flushes_both_queues_and_stops_the_timer() {
    let mut b = in_state(State::Rts);
    b.post_send(1, 8);
    b.post_recv(2, 0, 8);
    b.says();
    b.go_to(State::Error).unwrap();
    assert_eq!(
        b.completed(),
        [
            (1, Status::WorkRequestFlushed),
            (2, Status::WorkRequestFlushed)
        ]
    );
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
    assert_eq!(b.card.counters().timeouts, 0);
}

fn a_change_to_error_ends_the_answers_with_data() {
    // Memory of a queue pair in error may be the program's again.
    let mut b = in_state(State::Rts);
    b.hear(read(0, b.remote(0), 3000));
    let first = b.pull().unwrap();
    assert_eq!(b.describe(&first), "RDMA Read Response First 0 [1024]");
    b.hear(fetch_add(3, b.remote(0), 1));
    b.go_to(State::Error).unwrap();
    assert_eq!(b.says(), NONE);
}

fn a_completion_queue_that_runs_over_takes_its_queue_pairs_along() {
    let mut b = Bench::new(Setup {
        cqe: 2,
        ..Default::default()
    });
    for id in 0..4 {
        b.post_send(id, 8);
    }
    b.says();
    b.hear(ack(1, 2));
    assert_eq!(b.state(), State::Rts);
    b.hear(ack(2, 3));
    let number = b.qp.number();
    assert_eq!(
        b.events(),
        [AsyncEvent::CqError(b.cq.id()), AsyncEvent::QpFatal(number)]
    );
    assert_eq!((b.state(), b.qp.state()), (State::Error, State::Error));
    assert_eq!(b.completed(), [(0, Status::Success), (1, Status::Success)]);
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
    assert_eq!(b.card.counters().timeouts, 0, "an error state has no timer");
    assert!(b.completed().is_empty(), "it stays in error");
    assert!(b.events().is_empty());
}

fn a_receive_that_finds_the_completion_queue_full_ends_its_queue_pair() {
    let mut b = Bench::new(Setup {
        cqe: 1,
        ..Default::default()
    });
    b.post_recv(1, 0, 8);
    b.post_recv(2, 0, 8);
    b.hear(send_only(0, b"x"));
    b.hear(send_only(1, b"y"));
    assert_eq!(
        b.events(),
        [
            AsyncEvent::CqError(b.cq.id()),
            AsyncEvent::QpFatal(b.qp.number())
        ]
    );
    assert_eq!(b.completed(), [(1, Status::Success)]);
}

fn a_queue_pair_is_not_hurt_by_another_one() {
    let mut b = in_state(State::Rts);
    let other = b.another();
    b.hear(send(Opcode::RC_SEND_MIDDLE, 0, b"x").with(|h| h.with_dest_qp(other.number())));
    assert_eq!(b.card.qp_state(other.number()), Some(State::Error));
    assert_eq!(b.says(), ["NAK 0 invalid request msn 0"]);
    b.events();
    b.still_works(0, 1);
}

fn memory_without_local_write_takes_no_read_data() {
    let mut b = in_state(State::Rts);
    let mr = b
        .card
        .register(b.pd, Buffer::new(64), Access::LOCAL_READ)
        .unwrap();
    let sge = Sge {
        addr: mr.addr,
        len: 8,
        lkey: mr.lkey,
    };
    b.post(1, Work::Send, &[sge]);
    b.post(2, Work::Read(elsewhere()), &[sge]);
    b.says();
    b.hear(ack(0, 1));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, &[1; 8]));
    assert_eq!(
        b.completed(),
        [(1, Status::Success), (2, Status::LocalProtectionError)]
    );
}

fn in_error_what_is_posted_later_is_flushed_too() {
    for fail in [
        |b: &mut Bench| b.go_to(State::Error).unwrap(),
        |b: &mut Bench| b.hear(nak(0, NakCode::RemoteAccessError)),
        |b: &mut Bench| b.hear(send(Opcode::RC_SEND_MIDDLE, 0, b"x")),
    ] {
        let mut b = in_state(State::Rts);
        b.post_send(1, 8);
        b.says();
        fail(&mut b);
        assert_eq!(b.state(), State::Error);
        b.poll();
        b.says();
        for round in 0..3 {
            b.post_send(2, 8);
            b.post_recv(3, 0, 8);
            let flushed = [2, 3].map(|id| (id, Status::WorkRequestFlushed));
            assert_eq!(b.completed(), flushed, "round {round}");
        }
        assert_eq!(b.says(), NONE);
    }
}

fn a_receive_that_fails_flushes_both_queues() {
    let mut b = in_state(State::Rts);
    let mut bad = b.sge(0, 16);
    bad.lkey.0 ^= 1;
    b.try_post_recv(1, &[bad]).unwrap();
    b.post_recv(2, 0, 16);
    b.post_send(3, 8);
    b.says();
    b.hear(send_only(0, b"12345"));
    let mut completed = b.completed();
    assert_eq!(completed[0], (1, Status::LocalProtectionError));
    completed[1..].sort_unstable();
    assert_eq!(
        completed[1..],
        [2, 3].map(|id| (id, Status::WorkRequestFlushed))
    );
    b.post_send(4, 8);
    b.post_recv(5, 0, 8);
    assert_eq!(
        b.completed(),
        [4, 5].map(|id| (id, Status::WorkRequestFlushed))
    );
}

fn a_bad_remote_key_is_answered_and_told() {
    // No work request takes part in a WRITE or a READ here, so an event tells.
    for reads in [false, true] {
        let mut b = in_state(State::Rts);
        let mut at = b.remote(0);
        at.rkey.0 ^= 1;
        b.hear(if reads {
            read(0, at, 8)
        } else {
            write_only(0, at, b"bad")
        });
        assert_eq!(b.says(), ["NAK 0 remote access error msn 0"]);
        assert_eq!(b.events(), [AsyncEvent::QpAccessError(b.qp.number())]);
        assert_eq!(b.state(), State::Error);
        assert!(b.completed().is_empty());
    }
}

fn a_write_that_has_taken_a_receive_fails_it() {
    let wrong = |b: &Bench| Remote {
        rkey: RemoteKey(b.mr.rkey.0 ^ 1),
        ..b.remote(0)
    };
    // With its only packet, it takes a receive before its key is looked at.
    let mut b = Bench::ready();
    b.post_recv(1, 0, 64);
    b.post_recv(2, 64, 64);
    b.hear(write_imm(0, wrong(&b), b"x", 5));
    assert_eq!(b.says(), ["NAK 0 remote access error msn 0"]);
    assert_eq!(
        b.completed(),
        [
            (1, Status::LocalAccessError),
            (2, Status::WorkRequestFlushed)
        ]
    );
    assert!(b.events().is_empty());
    // Its last packet has another length than was announced.
    let mut b = Bench::ready();
    b.post_recv(1, 0, 64);
    b.hear(write(
        Opcode::RC_WRITE_FIRST,
        0,
        b.remote(0),
        1030,
        &[1; 1024],
    ));
    let mut last = send(Opcode::RC_WRITE_LAST_IMM, 1, b"x");
    last.ext = Ext::Immediate(Immediate::from_be(5));
    b.hear(last);
    assert_eq!(b.says(), ["NAK 1 invalid request msn 0"]);
    assert_eq!(b.completed(), [(1, Status::LocalQpOperationError)]);
    assert!(b.events().is_empty());
    // The key of its first packet is wrong: no receive takes part yet.
    let mut b = Bench::ready();
    b.post_recv(1, 0, 64);
    b.hear(write(
        Opcode::RC_WRITE_FIRST,
        0,
        wrong(&b),
        1030,
        &[1; 1024],
    ));
    assert_eq!(b.says(), ["NAK 0 remote access error msn 0"]);
    assert_eq!(b.completed(), [(1, Status::WorkRequestFlushed)]);
    assert_eq!(b.events(), [AsyncEvent::QpAccessError(b.qp.number())]);
}

fn others_learn_of_the_overrun_when_they_next_complete() {
    let mut b = Bench::new(Setup {
        cqe: 1,
        ..Default::default()
    });
    let mut other = b.another();
    let sges = [b.sge(100, 64)];
    let request = RecvRequest {
        wr_id: 3,
        sges: &sges,
    };
    other.post_recv(&request).unwrap();
    b.post_recv(1, 0, 64);
    b.post_recv(2, 0, 64);
    b.hear(send_only(0, b"x"));
    b.hear(send_only(1, b"x"));
    let (cq, one, two) = (b.cq.id(), b.qp.number(), other.number());
    assert_eq!(
        b.events(),
        [AsyncEvent::CqError(cq), AsyncEvent::QpFatal(one)]
    );
    assert_eq!(b.state(), State::Error);
    assert_eq!(other.state(), State::Rts, "not before its next completion");
    // There is room again, but the queue is in error, which is told once.
    assert_eq!(b.completed(), [(1, Status::Success)]);
    b.hear(send_only(0, b"x").to(two));
    assert_eq!(b.events(), [AsyncEvent::QpFatal(two)]);
    assert_eq!(other.state(), State::Error);
    assert!(b.completed().is_empty());
}
