//! READs, from the side that asks.

use super::{NONE, successes, three_packets};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Kernel, Section};
use softroce_sim::card::{Status, Work};
use softroce_sim::time::Span;
use softroce_sim::wire::{NakCode, Opcode};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "READ data fills the elements in their order",
        [a_read_takes_its_data_in_order]
    ),
    rule!(
        Behaviour,
        "A NAK in the middle of READ data fails the READ",
        [a_read_that_was_answered_in_part_fails_on_a_nak]
    ),
    rule!(
        Section("9.4.4"),
        "A READ tried again asks only for what is missing",
        [a_read_response_that_is_missing_is_asked_for_at_once]
    ),
    rule!(
        Kernel("loss_read_resp_last"),
        "The last packet of READ data is missed when the timer runs out",
        [a_last_read_response_that_is_missing_is_asked_for_after_the_timeout]
    ),
    rule!(
        Behaviour,
        "An ACK of a later request does not stand for READ data",
        [an_ack_of_a_later_write_does_not_skip_the_read]
    ),
    rule!(
        Behaviour,
        "An old answer is no gap while the READ waits to be sent again",
        [an_old_answer_says_nothing_about_a_read_that_is_not_sent_again_yet]
    ),
    rule!(
        Behaviour,
        "READ data that does not fit the request is a bad response",
        [read_data_that_does_not_fit_the_request_is_a_bad_response]
    ),
];

fn a_read_takes_its_data_in_order() {
    let mut b = Bench::ready();
    let data = pattern(2, 3000);
    let sges = [b.sge(0, 1000), b.sge(5000, 0), b.sge(3000, 2000)];
    b.post(1, Work::Read(elsewhere()), &sges);
    b.says();
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_FIRST,
        0,
        &data[..1024],
    ));
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_MIDDLE,
        1,
        &data[1024..2048],
    ));
    assert!(b.completed().is_empty());
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_LAST,
        2,
        &data[2048..],
    ));
    assert_eq!(b.completed(), successes([1]));
    assert_eq!(b.memory(0, 1000), data[..1000]);
    assert_eq!(b.memory(3000, 2000), data[1000..]);
    assert_eq!(b.memory(1000, 2000), [0; 2000]);
}

fn a_read_that_was_answered_in_part_fails_on_a_nak() {
    let mut b = Bench::ready();
    b.post_read(1, 3000);
    b.post_send(2, 1);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1024]));
    b.hear(nak(1, NakCode::RemoteAccessError));
    assert_eq!(
        b.completed(),
        [
            (1, Status::RemoteAccessError),
            (2, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.memory(0, 1025), [[1; 1024].as_slice(), &[0]].concat());
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
}

fn a_read_response_that_is_missing_is_asked_for_at_once() {
    // First lost, or middle lost: the next one shows it.
    for lost in [0, 1] {
        let mut b = Bench::ready();
        b.post_read(1, 3000);
        b.says();
        let all = three_packets(0);
        b.hear_all(all[..lost].to_vec());
        b.hear_all(all[lost + 1..].to_vec());
        let rest = 3000 - 1024 * lost as u32;
        assert_eq!(b.says(), [format!("RDMA Read Request {lost} of {rest} ?")]);
        assert_eq!(b.card.counters().implied_naks, 1, "one for the gap");
        let request = elsewhere().addr + 1024 * lost as u64;
        let deeds = &b.env.deeds;
        let va = deeds.iter().rev().find_map(|d| match d {
            softroce_sim::card::Deed::Request {
                packet,
                again: true,
            } => packet.ext.reth(),
            _ => None,
        });
        assert_eq!(va.unwrap().va, request);
        // The rest may come back beginning with FIRST, or as it was.
        let data = pattern(2, 3000);
        if lost == 1 {
            b.hear(read_response(
                Opcode::RC_READ_RESPONSE_FIRST,
                1,
                &data[1024..2048],
            ));
            b.hear(read_response(
                Opcode::RC_READ_RESPONSE_LAST,
                2,
                &data[2048..],
            ));
        } else {
            b.hear_all(all);
        }
        assert_eq!(b.completed(), successes([1]));
        assert_eq!(b.memory(0, 3000), data);
    }
}

fn a_last_read_response_that_is_missing_is_asked_for_after_the_timeout() {
    // As in loss_read_resp_last.
    let mut b = Bench::ready();
    b.post_read(1, 3000);
    b.says();
    let all = three_packets(0);
    b.hear_all(all[..2].to_vec());
    assert_eq!(b.says(), NONE);
    b.wait(Span::from_ms(68));
    assert_eq!(b.says(), ["RDMA Read Request 2 of 952 ?"]);
    let data = pattern(2, 3000);
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_ONLY,
        2,
        &data[2048..],
    ));
    assert_eq!(b.completed(), successes([1]));
    assert_eq!(b.memory(0, 3000), data);
}

fn an_ack_of_a_later_write_does_not_skip_the_read() {
    // WRITE 40, READ 41 to 43, WRITE 44; the READ's data is lost.
    let mut b = Bench::new(Setup {
        sq_psn: 40,
        ..Default::default()
    });
    b.post_write(1, 8);
    b.post_read(2, 3000);
    b.post_write(3, 8);
    b.says();
    b.hear(ack(4, 3));
    assert_eq!(b.completed(), successes([1]), "the first WRITE only");
    assert_eq!(
        b.says(),
        [
            "RDMA Read Request 1 of 3000 ?",
            "RDMA Write Only 4 of 8 [8] ?"
        ]
    );
    // The ACK that comes again before the data is no second gap.
    b.hear(ack(4, 3));
    assert_eq!(b.says(), NONE);
    b.hear_all(three_packets(1));
    b.hear(ack(4, 3));
    assert_eq!(b.completed(), successes([2, 3]));
}

fn an_old_answer_says_nothing_about_a_read_that_is_not_sent_again_yet() {
    let mut b = Bench::new(Setup {
        retry_cnt: 1,
        ..Default::default()
    });
    b.post_read(1, 8);
    b.post_write(2, 8);
    b.says();
    // The timeout takes the one retry there is; then an ACK comes that was late.
    b.wait(Span::from_ms(68));
    b.hear(ack(1, 2));
    assert_eq!(
        b.says(),
        ["RDMA Read Request 0 of 8 ?", "RDMA Write Only 1 of 8 [8] ?"]
    );
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 8]));
    b.hear(ack(1, 2));
    assert_eq!(b.completed(), successes([1, 2]));
}

fn read_data_that_does_not_fit_the_request_is_a_bad_response() {
    let bad = [
        read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1023]),
        read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1025]),
        read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 1024]),
        read_response(Opcode::RC_READ_RESPONSE_LAST, 0, &[1; 952]),
        read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, b""),
    ];
    for bad in bad {
        let mut b = Bench::ready();
        b.post_read(1, 3000);
        b.says();
        b.hear(bad);
        assert_eq!(b.completed(), [(1, Status::BadResponse)]);
        assert_eq!(b.memory(0, 3000), [0; 3000]);
    }
    // READ data for a SEND.
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 8]));
    assert_eq!(b.completed(), [(1, Status::BadResponse)]);
}
