//! Go-back-0, as early RoCE cards had it: a message that loses a packet starts over at both ends.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::Behaviour;
use softroce_sim::card::{Status, recovery};
use softroce_sim::time::Span;
use softroce_sim::wire::{NakCode, Opcode};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "The requester sends the whole message again",
        [the_requester_sends_the_whole_message_again]
    ),
    rule!(
        Behaviour,
        "A READ is asked for as a whole again",
        [a_read_is_asked_for_as_a_whole_again]
    ),
    rule!(
        Behaviour,
        "The responder forgets a message with a gap",
        [
            the_responder_forgets_a_message_with_a_gap,
            an_acknowledgement_never_names_the_read_before_a_forgotten_message
        ]
    ),
    rule!(
        Behaviour,
        "The responder starts over when the first packet comes again",
        [the_responder_starts_over_when_the_first_packet_comes_again]
    ),
];

fn card() -> Bench {
    let mut setup = Setup::default();
    setup.config.recovery = recovery::GO_BACK_0;
    Bench::new(setup)
}

const WHOLE: [&str; 3] = [
    "RDMA Write First 1 of 3000 [1024]",
    "RDMA Write Middle 2 [1024]",
    "RDMA Write Last 3 [952] ?",
];

fn the_requester_sends_the_whole_message_again() {
    let mut b = card();
    b.post_write(0, 8);
    b.post_write(1, 3000);
    b.says();
    b.hear(nak(3, NakCode::PsnSequenceError));
    assert_eq!(b.completed(), [(0, Status::Success)]);
    assert_eq!(b.says(), WHOLE);
    // Also when it has an ACK for the first part, and on a timeout.
    b.hear(ack(2, 1));
    b.wait(Span::from_ms(68));
    assert_eq!(b.says(), WHOLE);
    // A responder of its kind names the first packet.
    b.hear(nak(1, NakCode::PsnSequenceError));
    assert_eq!(b.says(), WHOLE);
    // Even one that it has an ACK for: the responder has forgotten it since.
    b.hear(ack(2, 1));
    b.hear(nak(1, NakCode::PsnSequenceError));
    assert_eq!(b.says(), WHOLE);
    b.hear(ack(3, 2));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    // What is complete is not begun again.
    b.hear(nak(1, NakCode::PsnSequenceError));
    assert_eq!(b.says(), [""; 0]);
    b.post_send(2, 8);
    assert_eq!(b.says(), ["Send Only 4 [8] ?"]);
}

fn a_read_is_asked_for_as_a_whole_again() {
    let mut b = card();
    b.post_read(1, 3000);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1024]));
    b.wait(Span::from_ms(68));
    assert_eq!(b.says(), ["RDMA Read Request 0 of 3000 ?"]);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1024]));
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_MIDDLE,
        1,
        &[2; 1024],
    ));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_LAST, 2, &[3; 952]));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(1024, 1), [2]);
}

fn the_responder_forgets_a_message_with_a_gap() {
    let mut b = card();
    let data = pattern(1, 3000);
    b.post_recv(1, 0, 4096);
    b.hear(write_only(0, b.remote(8000), b"x"));
    b.hear(write_only(1, b.remote(8000), b"x"));
    b.hear(send(Opcode::RC_SEND_FIRST, 2, &data[..1024]));
    b.hear(send(Opcode::RC_SEND_LAST, 4, &data[2048..]).ask());
    assert_eq!(b.says(), ["ACK 1 msn 2", "NAK 2 PSN sequence error msn 2"]);
    // The packet that was missing is no use now.
    b.hear(send(Opcode::RC_SEND_MIDDLE, 3, &data[1024..2048]));
    assert_eq!(b.says(), [""; 0]);
    b.hear(send(Opcode::RC_SEND_FIRST, 2, &data[..1024]));
    b.hear(send(Opcode::RC_SEND_MIDDLE, 3, &data[1024..2048]));
    b.hear(send(Opcode::RC_SEND_LAST, 4, &data[2048..]).ask());
    assert_eq!(b.says(), ["ACK 4 msn 3"]);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(0, 3000), data);
}

fn an_acknowledgement_never_names_the_read_before_a_forgotten_message() {
    // To the peer it would say that the READ's data is lost.
    let mut b = card();
    let at = b.remote(0);
    b.hear(write_only(0, at, b"x"));
    b.hear(read(1, at, 8));
    assert_eq!(b.says(), ["ACK 0 msn 1", "RDMA Read Response Only 1 [8]"]);
    b.hear(write(Opcode::RC_WRITE_FIRST, 2, at, 3000, &[1; 1024]));
    b.hear(send(Opcode::RC_WRITE_LAST, 4, &[1; 952]).ask());
    assert_eq!(b.says(), ["NAK 2 PSN sequence error msn 2"]);
    b.hear(write_only(0, at, b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 2"]);
}

fn the_responder_starts_over_when_the_first_packet_comes_again() {
    let mut b = card();
    let data = pattern(1, 2000);
    b.post_recv(1, 0, 4096);
    // The first time with other bytes, to show which are taken.
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &[0; 1024]));
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &data[..1024]));
    b.hear(send(Opcode::RC_SEND_LAST, 1, &data[1024..]).ask());
    assert_eq!(b.says(), ["ACK 1 msn 1"]);
    let c = b.poll();
    assert_eq!((c.len(), c[0].byte_len), (1, 2000));
    assert_eq!(b.memory(0, 2000), data);
    // A message that is complete is not done again.
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &data[..1024]));
    b.hear(send(Opcode::RC_SEND_LAST, 1, &data[1024..]).ask());
    assert_eq!(b.says(), ["ACK 1 msn 1"]);
    assert!(b.completed().is_empty());
}
