//! How much is under way at once.

use super::NONE;
use super::successes;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Kernel, Section};
use softroce_sim::card::{Mtu, Refusal, SendRequest, Status, Work};
use softroce_sim::memory::Storage;
use softroce_sim::time::Span;
use softroce_sim::wire::Opcode;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Kernel("rc_read_depth1"),
        "No more READs are out than the program allowed",
        [no_more_reads_are_out_than_the_program_allowed]
    ),
    rule!(
        Behaviour,
        "A READ where none is allowed fails instead of waiting",
        [a_read_where_none_is_allowed_fails_instead_of_waiting_for_ever]
    ),
    rule!(
        Section("10.8.3.3"),
        "A fenced request waits for the READs before it",
        [a_fenced_request_waits_for_the_reads_before_it]
    ),
    rule!(
        Section("9.7.7.2"),
        "The peer's message credits are heeded",
        [
            the_peers_credits_are_heeded,
            credits_count_from_the_msn_they_come_with,
            credits_of_an_ack_for_what_was_not_sent_are_not_taken
        ]
    ),
    rule!(
        Behaviour,
        "A card without credits ignores those of its peer",
        [credits_of_a_card_that_does_not_heed_them_are_ignored]
    ),
    rule!(
        Behaviour,
        "A long message asks for an acknowledgement now and then",
        [long_messages_ask_for_an_ack_now_and_then]
    ),
    rule!(
        Behaviour,
        "No more than 2^23 packets are out",
        [no_more_than_2_to_the_23_packets_are_out]
    ),
];

fn no_more_reads_are_out_than_the_program_allowed() {
    // As in rc_read_depth1.
    let mut b = Bench::new(Setup {
        max_rd_atomic: 1,
        ..Default::default()
    });
    for id in 0..3 {
        b.post_read(id, 8);
    }
    b.post_send(3, 8);
    for n in 0..3 {
        let says = b.says();
        assert_eq!(says[0], format!("RDMA Read Request {n} of 8 ?"));
        assert_eq!(says.len(), if n == 2 { 2 } else { 1 });
        b.hear(read_response(
            Opcode::RC_READ_RESPONSE_ONLY,
            n,
            &[n as u8; 8],
        ));
    }
    b.hear(ack(3, 4));
    assert_eq!(b.completed(), successes(0..4));
}

fn a_read_where_none_is_allowed_fails_instead_of_waiting_for_ever() {
    let mut b = Bench::new(Setup {
        max_rd_atomic: 0,
        ..Default::default()
    });
    b.post_send(1, 8);
    b.post_read(2, 8);
    b.post_send(3, 8);
    assert_eq!(b.says(), ["Send Only 0 [8] ?"]);
    b.hear(ack(0, 1));
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::LocalQpOperationError),
            (3, Status::WorkRequestFlushed)
        ]
    );
}

fn a_fenced_request_waits_for_the_reads_before_it() {
    let mut b = Bench::ready();
    b.post_read(1, 8);
    let sge = b.sge(100, 8);
    let sges = [sge];
    let mut fenced = SendRequest {
        fence: true,
        ..SendRequest::new(2, Work::Send, &sges)
    };
    b.try_post(&fenced).unwrap();
    b.post_send(3, 8);
    assert_eq!(b.says(), ["RDMA Read Request 0 of 8 ?"]);
    // Also while the READ is tried again.
    b.wait(Span::from_ms(68));
    assert_eq!(b.says(), ["RDMA Read Request 0 of 8 ?"]);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 8]));
    assert_eq!(b.says(), ["Send Only 1 [8] ?", "Send Only 2 [8] ?"]);
    // SENDs and WRITEs before it are no reason to wait.
    fenced.wr_id = 4;
    b.try_post(&fenced).unwrap();
    assert_eq!(b.says(), ["Send Only 3 [8] ?"]);
}

fn the_peers_credits_are_heeded() {
    let mut b = Bench::ready();
    for id in 0..10 {
        b.post_send(id, 8);
    }
    let first = b.pull().unwrap();
    assert_eq!(b.describe(&first), "Send Only 0 [8] ?");
    // MSN 1 and two receives: requests 1 and 2 have one, and one more may be tried.
    b.hear(ack_with_credits(0, 1, 2));
    assert_eq!(
        b.says(),
        [
            "Send Only 1 [8] ?",
            "Send Only 2 [8] ?",
            "Send Only 3 [8] ?"
        ]
    );
    // An old one takes nothing back, a new one gives: code 5 stands for six.
    b.hear(ack_with_credits(1, 1, 0));
    assert_eq!(b.says(), NONE);
    b.hear(ack_with_credits(2, 3, 5));
    assert_eq!(b.says().len(), 6);
    b.hear(ack_with_credits(9, 10, 0));
    // None at all: one may be tried.
    b.post_send(10, 8);
    b.post_send(11, 8);
    assert_eq!(b.says(), ["Send Only 10 [8] ?"]);
    // WRITEs take no receive and are not held back.
    b.hear(ack_with_credits(10, 11, 0));
    assert_eq!(b.says(), ["Send Only 11 [8] ?"]);
    b.post_write(12, 8);
    assert_eq!(b.says(), ["RDMA Write Only 12 of 8 [8] ?"]);
    // "Not limited" lifts the limit.
    for id in 13..20 {
        b.post_send(id, 8);
    }
    assert_eq!(b.says(), NONE);
    b.hear(ack(11, 12));
    assert_eq!(b.says().len(), 7);
}

fn credits_count_from_the_msn_they_come_with() {
    // Two requests are carried out, but the data of the READ is still to come.
    let mut b = Bench::ready();
    b.post_read(0, 8);
    for id in 1..10 {
        b.post_send(id, 8);
    }
    assert!(b.pull().is_some() && b.pull().is_some());
    b.hear(ack_with_credits(1, 2, 1));
    // MSN 2 and one receive: request 2 has it, and one more may be tried. The READ is asked for again.
    let sends = ["Send Only 2 [8] ?", "Send Only 3 [8] ?"];
    let again = ["RDMA Read Request 0 of 8 ?", "Send Only 1 [8] ?"];
    assert_eq!(b.says(), [again, sends].concat());

    // What is done on this side alone is no message, to either side.
    let mut b = Bench::ready();
    windows::bound(&mut b);
    for id in 1..10 {
        b.post_send(id, 8);
    }
    assert!(b.pull().is_some());
    b.hear(ack_with_credits(0, 1, 1));
    assert_eq!(b.says(), ["Send Only 1 [8] ?", "Send Only 2 [8] ?"]);
}

fn credits_of_an_ack_for_what_was_not_sent_are_not_taken() {
    let mut b = Bench::ready();
    b.post_send(0, 8);
    b.says();
    b.hear(ack_with_credits(0, 1, 0));
    b.hear(ack_with_credits(1, 1, 20));
    assert_eq!(b.refused(Refusal::Ghost), 1);
    for id in 1..5 {
        b.post_send(id, 8);
    }
    // Without credits one may be tried.
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
}

fn credits_of_a_card_that_does_not_heed_them_are_ignored() {
    let mut setup = Setup::default();
    setup.config.credits = false;
    let mut b = Bench::new(setup);
    for id in 0..5 {
        b.post_send(id, 8);
    }
    b.pull();
    b.hear(ack_with_credits(0, 1, 0));
    assert_eq!(b.says().len(), 4);
}

fn long_messages_ask_for_an_ack_now_and_then() {
    for every in [1, 4] {
        let mut setup = Setup {
            memory: 1 << 20,
            mtu: Mtu::M256,
            ..Default::default()
        };
        setup.config.ack_every = every;
        let mut b = Bench::new(setup);
        b.post_send(1, 256 * 10);
        let asks: Vec<_> = b.packets().iter().map(|p| p.bth.ack_req()).collect();
        let expected: Vec<_> = (1..=10).map(|n| n % every == 0 || n == 10).collect();
        assert_eq!(asks, expected);
    }
}

fn no_more_than_2_to_the_23_packets_are_out() {
    let mut b = Bench::new(Setup {
        mtu: Mtu::M256,
        ..Default::default()
    });
    b.env.counted = true;
    let storage = Storage::Counted { len: 1 << 32 };
    let mr = b.card.register(b.pd, storage, all_rights()).unwrap();
    let sge = softroce_sim::card::Sge {
        addr: mr.addr,
        len: 1 << 31,
        lkey: mr.lkey,
    };
    b.post(1, Work::Read(elsewhere()), &[sge]);
    b.post_write(2, 8);
    // The READ takes the 2^23 numbers there are.
    assert_eq!(
        b.says(),
        [format!("RDMA Read Request 0 of {} ?", 1u32 << 31)]
    );
    let mut data = read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[]);
    data.counted = Some(256);
    b.hear(data);
    assert_eq!(
        b.says(),
        ["RDMA Write Only 8388608 of 8 [8] ?".replace("8388608", "-8388608")]
    );
}
