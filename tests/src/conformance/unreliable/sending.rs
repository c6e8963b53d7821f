//! What an unreliable connection sends, and when that is done.

use super::KIB;
use super::NONE;
use super::ready;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::Behaviour;
use softroce_sim::card::{
    AsyncEvent, PostError, QpAttributes, Refusal, SendRequest, State, Status, Work,
};
use softroce_sim::wire::{Immediate, RemoteKey};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A message is cut at the path MTU and asks for no acknowledgement",
        [a_message_is_cut_at_the_path_mtu_and_asks_for_no_ack]
    ),
    rule!(
        Behaviour,
        "Operations with an answer cannot be posted",
        [operations_with_an_answer_are_refused_at_once]
    ),
    rule!(Behaviour, "Answers are not heard", [answers_are_not_heard]),
    rule!(
        Behaviour,
        "A local error in mid message stops the send queue alone",
        [a_local_error_in_mid_message_stops_the_send_queue_alone]
    ),
    rule!(
        Behaviour,
        "SQD ends the message under way and begins no other",
        [sqd_ends_the_message_under_way_and_begins_no_other]
    ),
];

fn a_message_is_cut_at_the_path_mtu_and_asks_for_no_ack() {
    let mut setup = Setup::uc();
    setup.config.ack_every = 1;
    let mut b = Bench::new(setup);
    let data = pattern(1, 2 * KIB + 1);
    b.buffer.write_at(0, &data);
    b.post_send(1, data.len() as u32);
    b.post_write(2, 1025);
    let sges = [b.sge(0, 5)];
    let immediate = Immediate::from_be(7);
    b.post(3, Work::SendImmediate(immediate), &sges);
    b.post(4, Work::WriteImmediate(elsewhere(), immediate), &sges);
    let mut sent = Vec::new();
    let mut text = Vec::new();
    while let Some(p) = b.pull() {
        assert!(!p.bth.ack_req());
        text.push(b.describe(&p));
        if text.len() <= 3 {
            sent.extend(b.bytes(&p));
        }
        // Done when the last packet is handed over, and not earlier.
        let done: &[u64] = match text.len() {
            3 => &[1],
            5 => &[2],
            6 => &[3],
            7 => &[4],
            _ => &[],
        };
        let done: Vec<_> = done.iter().map(|&id| (id, Status::Success)).collect();
        assert_eq!(b.completed(), done, "{text:?}");
    }
    assert_eq!(
        text,
        [
            "UC Send First 0 [1024]",
            "UC Send Middle 1 [1024]",
            "UC Send Last 2 [1]",
            "UC RDMA Write First 3 of 1025 [1024]",
            "UC RDMA Write Last 4 [1]",
            "UC Send Only Immediate 5 [5]",
            "UC RDMA Write Only Immediate 6 of 5 [5]",
        ]
    );
    assert_eq!(sent, data);
    b.wait(softroce_sim::time::Span::from_ms(100_000));
    assert_eq!(b.says(), NONE, "nothing is sent again");
}

fn operations_with_an_answer_are_refused_at_once() {
    let mut b = ready();
    let at = elsewhere();
    let (compare, swap) = (0, 1);
    for work in [
        Work::Read(at),
        Work::CompareSwap { at, compare, swap },
        Work::FetchAdd { at, add: 1 },
        Work::AtomicWrite(at),
        Work::SendInvalidate(RemoteKey(1)),
    ] {
        let sges = [b.sge(0, 8)];
        let posted = b.try_post(&SendRequest::new(1, work, &sges));
        assert_eq!(posted, Err(PostError::Unsupported(work)));
    }
    assert_eq!((b.says(), b.qp.send_room()), (vec![], 64));
}

fn answers_are_not_heard() {
    let mut b = ready();
    b.post_send(1, 8);
    b.says();
    b.hear(ack(0, 1).uc());
    b.hear(nak(0, softroce_sim::wire::NakCode::PsnSequenceError));
    b.hear(rnr_nak(0, 1));
    assert_eq!(b.refused(Refusal::Malformed), 1);
    assert_eq!(b.refused(Refusal::WrongService), 2);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.says(), NONE);
}

fn a_local_error_in_mid_message_stops_the_send_queue_alone() {
    let mut b = ready();
    let good = b.sge(0, KIB as u32);
    let mut bad = good;
    bad.lkey.0 ^= 1;
    b.post_send(1, 8);
    b.post(2, Work::Send, &[good, bad]);
    b.post_send(3, 8);
    assert_eq!(b.says(), ["UC Send Only 0 [8]", "UC Send First 1 [1024]"]);
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::LocalProtectionError),
            (3, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.state(), State::Sqe);
    b.post_recv(4, 0, 64);
    b.hear(send_only(0, b"heard").uc());
    assert_eq!(b.completed(), [(4, Status::Success)]);
    // C10-96.
    b.post_send(5, 8);
    assert_eq!(b.completed(), [(5, Status::WorkRequestFlushed)]);
    b.go_to(State::Rts).unwrap();
    b.post_send(6, 8);
    // The PSN after the last one sent: the peer sees a message that ended, and another.
    assert_eq!(b.says(), ["UC Send Only 2 [8]"]);
    assert_eq!(b.completed(), [(6, Status::Success)]);
}

fn sqd_ends_the_message_under_way_and_begins_no_other() {
    let mut b = ready();
    b.post_send(1, 2049);
    b.post_send(2, 8);
    b.pull().unwrap();
    b.modify(QpAttributes {
        state: Some(State::Sqd),
        sqd_event: Some(true),
        ..Default::default()
    })
    .unwrap();
    assert!(b.events().is_empty());
    assert_eq!(b.says(), ["UC Send Middle 1 [1024]", "UC Send Last 2 [1]"]);
    assert_eq!(b.events(), [AsyncEvent::SqDrained(b.qp.number())]);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    b.go_to(State::Rts).unwrap();
    assert_eq!(b.says(), ["UC Send Only 3 [8]"]);
}
