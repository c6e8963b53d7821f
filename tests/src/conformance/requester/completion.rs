//! When a request is done, and how it ends.

use super::{NONE, successes, three_packets};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Section};
use softroce_sim::card::{CompletionKind, Rare, Refusal, SendRequest, State, Status, Work};
use softroce_sim::time::Span;
use softroce_sim::wire::{Ext, NakCode, Opcode, Syndrome};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Section("9.7"),
        "A request completes when all of its packets are answered",
        [a_request_is_done_when_all_its_packets_are_answered]
    ),
    rule!(
        Section("9.7.5.1.2"),
        "One acknowledgement answers everything before it",
        [one_ack_answers_everything_before_it]
    ),
    rule!(
        Section("9.7.5.1.2"),
        "READ data acknowledges the requests before the READ",
        [read_data_acknowledges_what_is_before_it]
    ),
    rule!(
        Section("9.7.5.1.2"),
        "A NAK acknowledges the requests before the one it names",
        [a_nak_also_acknowledges_what_is_before_it]
    ),
    rule!(
        Behaviour,
        "A completion says which request it is of, its kind and its length",
        [completions_say_what_was_done]
    ),
    rule!(
        Section("10.7.3.1"),
        "A request that is not signaled completes only if it fails",
        [a_request_that_is_not_signaled_completes_only_in_error]
    ),
    rule!(
        Section("9.7.5.2.2"),
        "A NAK fails the request it names with the status of its code",
        [
            refusals_fail_the_request_they_name_and_flush_the_rest,
            reads_before_a_request_that_is_refused_are_flushed
        ]
    ),
    rule!(
        Behaviour,
        "Answers that nobody waits for change nothing",
        [answers_nobody_waits_for_change_nothing]
    ),
];

fn a_request_is_done_when_all_its_packets_are_answered() {
    let mut b = Bench::ready();
    b.post_send(1, 3000);
    b.post_send(2, 3000);
    b.says();
    b.hear(ack(1, 0));
    assert!(b.completed().is_empty());
    b.hear(ack(2, 1));
    assert_eq!(b.completed(), successes([1]));
    b.hear(ack(4, 1));
    assert!(b.completed().is_empty());
    b.hear(ack(5, 2));
    assert_eq!(b.completed(), successes([2]));
}

fn one_ack_answers_everything_before_it() {
    let mut b = Bench::ready();
    for id in 0..10 {
        b.post_send(id, 10);
    }
    b.says();
    b.hear(ack(9, 10));
    assert_eq!(b.completed(), successes(0..10));
    // Older ones say nothing new, nor does one for what was never sent.
    b.hear(ack(3, 4));
    b.hear(ack(10, 11));
    b.hear(nak(4, NakCode::RemoteAccessError));
    assert_eq!(b.refused(Refusal::Ghost), 3);
    assert_eq!(b.state(), State::Rts);
}

fn read_data_acknowledges_what_is_before_it() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.post_read(2, 3000);
    b.says();
    b.hear(three_packets(1)[0].clone());
    assert_eq!(b.completed(), successes([1]));
}

fn a_nak_also_acknowledges_what_is_before_it() {
    for (say, after) in [
        (nak(1, NakCode::PsnSequenceError), "Send Only 1 [10] ?"),
        (rnr_nak(1, 1), ""),
    ] {
        let mut b = Bench::ready();
        b.post_send(1, 10);
        b.post_send(2, 10);
        b.says();
        b.hear(say);
        assert_eq!(b.completed(), successes([1]));
        assert_eq!(b.says().concat(), after);
    }
}

fn completions_say_what_was_done() {
    let mut b = Bench::ready();
    b.post_send(1, 10);
    b.post_write(2, 20);
    b.post_read(3, 4);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 2, b"data"));
    let c = b.poll();
    let kinds: Vec<_> = c.iter().map(|c| (c.wr_id, c.kind, c.status)).collect();
    assert_eq!(
        kinds,
        [
            (1, CompletionKind::Send, Status::Success),
            (2, CompletionKind::Write, Status::Success),
            (3, CompletionKind::Read, Status::Success)
        ]
    );
    assert_eq!(c[2].byte_len, 4);
    assert_eq!(b.memory(0, 4), b"data");
}

fn a_request_that_is_not_signaled_completes_only_in_error() {
    let post = |b: &mut Bench, wr_id, signaled| {
        let sge = b.sge(0, 10);
        b.try_post(&SendRequest {
            signaled,
            ..SendRequest::new(wr_id, Work::Send, &[sge])
        })
        .unwrap();
    };
    let mut b = Bench::ready();
    post(&mut b, 1, false);
    post(&mut b, 2, true);
    post(&mut b, 3, false);
    post(&mut b, 4, false);
    b.says();
    b.hear(ack(1, 2));
    assert_eq!(b.completed(), successes([2]));
    b.hear(nak(2, NakCode::RemoteOperationalError));
    assert_eq!(
        b.completed(),
        [
            (3, Status::RemoteOperationError),
            (4, Status::WorkRequestFlushed)
        ]
    );
}

fn refusals_fail_the_request_they_name_and_flush_the_rest() {
    for (code, status) in [
        (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
        (NakCode::RemoteAccessError, Status::RemoteAccessError),
        (
            NakCode::RemoteOperationalError,
            Status::RemoteOperationError,
        ),
    ] {
        // As in rc_nak_then_more.
        let mut b = Bench::ready();
        b.post_recv(10, 0, 10);
        for id in 0..4 {
            b.post_write(id, 2000);
        }
        b.says();
        b.hear(nak(3, code));
        assert_eq!(
            b.completed(),
            [
                (0, Status::Success),
                (1, status),
                (2, Status::WorkRequestFlushed),
                (3, Status::WorkRequestFlushed),
                (10, Status::WorkRequestFlushed)
            ]
        );
        assert_eq!(b.state(), State::Error);
        let failed =
            |(_, rare)| matches!(rare, Rare::Failed { wr_id: 1, status: s } if s == status);
        assert!(b.card.recent(b.qp.number()).unwrap().iter().any(failed));
        // And nothing of it comes to life again.
        b.hear(ack(7, 4));
        b.wait(Span::from_ms(1000));
        assert_eq!(b.says(), NONE);
        assert!(b.completed().is_empty());
        assert_eq!(b.card.counters().timeouts, 0);
    }
}

fn answers_nobody_waits_for_change_nothing() {
    let mut b = Bench::ready();
    b.hear(ack(0, 1));
    b.hear(nak(0, NakCode::RemoteAccessError));
    b.hear(rnr_nak(0, 1));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, b"x"));
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_MIDDLE,
        0xff_ffff,
        b"x",
    ));
    assert_eq!(b.refused(Refusal::Ghost), 5);
    b.post_send(1, 8);
    b.says();
    // Reserved syndromes, and an acknowledgement of an atomic that never was.
    for syndrome in [0x40, 0x65, 0x80, 0xff] {
        b.hear(say(
            Opcode::RC_ACKNOWLEDGE,
            0,
            aeth(Syndrome(syndrome), 1),
            &[],
        ));
    }
    b.hear(say(Opcode::RC_ATOMIC_ACKNOWLEDGE, 0, Ext::None, &[]));
    assert_eq!(b.refused(Refusal::Malformed), 5);
    assert_eq!((b.state(), b.completed()), (State::Rts, vec![]));
}

fn reads_before_a_request_that_is_refused_are_flushed() {
    // The data of the READs is lost, and the peer is in error: nobody sends it again.
    let mut b = Bench::ready();
    b.post_read(1, 3000);
    b.post_read(2, 8);
    b.post_write(3, 8);
    b.post_send(4, 8);
    b.says();
    b.hear(nak(4, NakCode::RemoteAccessError));
    let flushed = |id| (id, Status::WorkRequestFlushed);
    assert_eq!(
        b.completed(),
        [
            flushed(1),
            flushed(2),
            (3, Status::RemoteAccessError),
            flushed(4)
        ]
    );
    assert_eq!(b.state(), State::Error);
}
