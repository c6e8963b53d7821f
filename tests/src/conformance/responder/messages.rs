//! Messages: where they land, and which ones are invalid.

use super::KIB;
use super::invalid;
use super::refuses;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{CompletionKind, Mtu, Remote, State, Status};
use softroce_sim::memory::{Access, Buffer, Storage};
use softroce_sim::wire::{NakCode, Opcode, RemoteKey};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A SEND fills the elements of the oldest receive",
        [a_send_fills_the_elements_of_the_oldest_receive]
    ),
    rule!(
        Behaviour,
        "A message of several packets lands in order, across the PSN wrap",
        [a_message_of_several_packets_lands_in_order_across_the_psn_wrap]
    ),
    rule!(
        Behaviour,
        "A middle or last packet without a first is invalid",
        [a_middle_or_last_without_a_first_is_invalid]
    ),
    rule!(
        Behaviour,
        "A message does not begin inside a WRITE",
        [a_message_does_not_begin_inside_a_write]
    ),
    rule!(
        Behaviour,
        "A message that begins inside a SEND fails the receive it had",
        [a_message_that_begins_inside_a_send_fails_the_receive_it_had_taken]
    ),
    rule!(
        Section("9.7.4.1"),
        "The length of a payload fits its place in the message",
        [payload_lengths_must_fit_the_place_in_the_message]
    ),
    rule!(
        Section("9.7.4.1"),
        "A WRITE carries as many bytes as it announced",
        [a_write_carries_as_many_bytes_as_it_announced]
    ),
    rule!(
        Section("9.7.4.1"),
        "A length above 2^31 is invalid",
        [a_length_of_2_to_the_31_is_taken_and_one_byte_more_is_not]
    ),
    rule!(
        Id("C10-87"),
        "A WRITE without immediate data takes no receive",
        [a_write_takes_no_receive]
    ),
    rule!(
        Section("11.6.2"),
        "A SEND longer than its receive fails at both ends",
        [a_send_longer_than_its_receive_fails_at_both_ends]
    ),
    rule!(
        Behaviour,
        "A receive with a bad key fails at both ends",
        [a_receive_with_a_bad_key_fails_at_both_ends]
    ),
];

fn a_send_fills_the_elements_of_the_oldest_receive() {
    let mut b = Bench::ready();
    let elements = [b.sge(10, 3), b.sge(100, 0), b.sge(200, 5)];
    b.try_post_recv(1, &elements).unwrap();
    b.post_recv(2, 300, 10);
    b.hear(send_only(0, b"abcdefg"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    let c = b.poll();
    assert_eq!((c.len(), c[0].wr_id, c[0].byte_len), (1, 1, 7));
    assert_eq!(
        (c[0].status, c[0].kind),
        (Status::Success, CompletionKind::Receive)
    );
    assert_eq!(b.memory(10, 3), b"abc");
    assert_eq!(b.memory(200, 5), b"defg\0");
    assert_eq!(b.memory(300, 10), [0; 10]);
}

fn a_message_of_several_packets_lands_in_order_across_the_psn_wrap() {
    for rq_psn in [0, 0xff_fffd, 0xff_fffe, 0xff_ffff, 0x7f_ffff] {
        let mut b = Bench::new(Setup {
            rq_psn,
            ..Default::default()
        });
        let data = pattern(1, 2 * 1024 + 100);
        b.post_recv(5, 50, 4000);
        b.hear(send(Opcode::RC_SEND_FIRST, 0, &data[..1024]));
        b.hear(send(Opcode::RC_SEND_MIDDLE, 1, &data[1024..2048]));
        assert_eq!(b.says(), [""; 0], "no AckReq, no ACK");
        assert!(b.completed().is_empty());
        b.hear(send(Opcode::RC_SEND_LAST, 2, &data[2048..]).ask());
        let answer = b.pull().unwrap();
        assert_eq!(answer.bth.psn().get(), (rq_psn + 2) & 0xff_ffff);
        assert_eq!(b.describe(&answer), "ACK 2 msn 1");
        assert_eq!(b.memory(50, data.len()), data);
        let c = b.poll();
        assert_eq!((c.len(), c[0].byte_len), (1, data.len() as u32));
        b.still_works(3, 2);
    }
}

fn a_middle_or_last_without_a_first_is_invalid() {
    for opcode in [
        Opcode::RC_SEND_MIDDLE,
        Opcode::RC_SEND_LAST,
        Opcode::RC_SEND_LAST_IMM,
        Opcode::RC_WRITE_MIDDLE,
        Opcode::RC_WRITE_LAST,
        Opcode::RC_WRITE_LAST_IMM,
    ] {
        let mut b = Bench::ready();
        b.post_recv(1, 0, 4096);
        refuses(b, vec![], send(opcode, 0, KIB), NakCode::InvalidRequest);
    }
}

fn a_message_does_not_begin_inside_a_write() {
    let to = Bench::ready().remote(0);
    let first = write(Opcode::RC_WRITE_FIRST, 0, to, 2048, KIB);
    for bad in [
        write(Opcode::RC_WRITE_FIRST, 1, to, 2048, KIB),
        write_only(1, to, b"x"),
        write_imm(1, to, b"x", 1),
        send(Opcode::RC_SEND_FIRST, 1, KIB),
        send(Opcode::RC_SEND_MIDDLE, 1, KIB),
        send(Opcode::RC_SEND_LAST, 1, KIB),
        send_only(1, b"x"),
        read(1, to, 1),
    ] {
        invalid(vec![first.clone()], bad);
    }
}

fn a_message_that_begins_inside_a_send_fails_the_receive_it_had_taken() {
    let to = Bench::ready().remote(0);
    for bad in [
        send(Opcode::RC_SEND_FIRST, 1, KIB),
        send_only(1, b"x"),
        send(Opcode::RC_WRITE_MIDDLE, 1, KIB),
        write_only(1, to, b"x"),
        read(1, to, 1),
    ] {
        let mut b = Bench::ready();
        b.post_recv(1, 0, 4096);
        b.post_recv(2, 0, 4096);
        b.hear(send(Opcode::RC_SEND_FIRST, 0, KIB));
        b.hear(bad);
        assert_eq!(b.says(), ["NAK 1 invalid request msn 0"]);
        assert_eq!(
            b.completed(),
            [
                (1, Status::LocalQpOperationError),
                (2, Status::WorkRequestFlushed)
            ]
        );
        assert_eq!(b.state(), State::Error);
        assert_eq!(b.events(), [], "the completion tells");
    }
}

fn payload_lengths_must_fit_the_place_in_the_message() {
    let to = Bench::ready().remote(0);
    let short = &KIB[..1023];
    let long = &[7; 1025][..];
    let first = || vec![write(Opcode::RC_WRITE_FIRST, 0, to, 4000, KIB)];
    for (before, bad) in [
        (vec![], write(Opcode::RC_WRITE_FIRST, 0, to, 4000, short)),
        (vec![], write(Opcode::RC_WRITE_FIRST, 0, to, 4000, long)),
        (vec![], write(Opcode::RC_WRITE_FIRST, 0, to, 4000, b"")),
        (vec![], write(Opcode::RC_WRITE_ONLY, 0, to, 1025, long)),
        (first(), send(Opcode::RC_WRITE_MIDDLE, 1, short)),
        (first(), send(Opcode::RC_WRITE_MIDDLE, 1, long)),
        (first(), send(Opcode::RC_WRITE_MIDDLE, 1, b"")),
        (first(), send(Opcode::RC_WRITE_LAST, 1, b"")),
        (first(), send(Opcode::RC_WRITE_LAST, 1, long)),
    ] {
        invalid(before, bad);
    }
    for bad in [
        send(Opcode::RC_SEND_FIRST, 0, short),
        send(Opcode::RC_SEND_FIRST, 0, long),
        send(Opcode::RC_SEND_ONLY, 0, long),
    ] {
        let mut b = Bench::ready();
        b.post_recv(1, 0, 4096);
        b.hear(bad);
        assert_eq!(b.says(), ["NAK 0 invalid request msn 0"]);
        assert_eq!(b.completed(), [(1, Status::LocalQpOperationError)]);
        assert!(b.events().is_empty());
    }
    for (opcode, payload) in [
        (Opcode::RC_SEND_MIDDLE, short),
        (Opcode::RC_SEND_LAST, &[]),
        (Opcode::RC_SEND_LAST, long),
    ] {
        let mut b = Bench::ready();
        b.post_recv(1, 0, 4096);
        b.hear(send(Opcode::RC_SEND_FIRST, 0, KIB));
        b.hear(send(opcode, 1, payload));
        assert_eq!(b.says(), ["NAK 1 invalid request msn 0"]);
        assert_eq!(b.completed(), [(1, Status::LocalQpOperationError)]);
    }
}

fn a_write_carries_as_many_bytes_as_it_announced() {
    let to = Bench::ready().remote(0);
    let first = |len| vec![write(Opcode::RC_WRITE_FIRST, 0, to, len, KIB)];
    for (before, bad) in [
        (vec![], write(Opcode::RC_WRITE_ONLY, 0, to, 9, b"12345678")),
        (vec![], write(Opcode::RC_WRITE_ONLY, 0, to, 7, b"12345678")),
        (vec![], write(Opcode::RC_WRITE_ONLY, 0, to, 0, b"12345678")),
        (vec![], write(Opcode::RC_WRITE_FIRST, 0, to, 1024, KIB)),
        (first(1026), send(Opcode::RC_WRITE_LAST, 1, b"x")),
        (first(1025), send(Opcode::RC_WRITE_LAST, 1, b"xy")),
        (first(2048), send(Opcode::RC_WRITE_MIDDLE, 1, KIB)),
    ] {
        invalid(before, bad);
    }
}

fn a_length_of_2_to_the_31_is_taken_and_one_byte_more_is_not() {
    for (len, code) in [
        (1u32 << 31, None),
        ((1 << 31) + 1, Some(NakCode::InvalidRequest)),
    ] {
        for reads in [false, true] {
            let mut b = Bench::new(Setup {
                mtu: Mtu::M4096,
                ..Default::default()
            });
            b.env.counted = true;
            let storage = Storage::Counted { len: 1 << 32 };
            let big = b.card.register(b.pd, storage, all_rights()).unwrap();
            let at = Remote {
                addr: big.addr,
                rkey: big.rkey,
            };
            let request = if reads {
                read(0, at, len)
            } else {
                let mut w = write(Opcode::RC_WRITE_FIRST, 0, at, len, &[]).ask();
                w.counted = Some(4096);
                w
            };
            match code {
                Some(code) => refuses(b, vec![], request, code),
                None => {
                    b.hear(request);
                    let answer = b.pull().unwrap();
                    let expected = if reads {
                        "RDMA Read Response First 0 [4096]"
                    } else {
                        "ACK 0 msn 0"
                    };
                    assert_eq!(b.describe(&answer), expected);
                }
            }
        }
    }
}

fn a_write_takes_no_receive() {
    let mut b = Bench::ready();
    b.post_recv(1, 0, 16);
    b.hear(write_only(0, b.remote(0), b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert!(b.completed().is_empty());
    let at = Remote {
        rkey: RemoteKey(0),
        ..b.remote(0)
    };
    b.hear(write_only(1, at, b"x"));
    assert_eq!(b.completed(), [(1, Status::WorkRequestFlushed)]);
}

fn a_send_longer_than_its_receive_fails_at_both_ends() {
    let mut b = Bench::ready();
    b.post_recv(1, 0, 4);
    b.post_recv(2, 100, 100);
    b.hear(send_only(0, b"12345"));
    assert_eq!(b.says(), ["NAK 0 invalid request msn 0"]);
    assert_eq!(
        b.completed(),
        [
            (1, Status::LocalLengthError),
            (2, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.memory(0, 5), [0; 5]);
    assert_eq!((b.state(), b.events()), (State::Error, vec![]));

    // In a later packet of the message, as in rc_nak_short_recv_multi.
    let mut b = Bench::ready();
    b.post_recv(1, 0, 1032);
    b.hear(send(Opcode::RC_SEND_FIRST, 0, KIB));
    b.hear(send(Opcode::RC_SEND_MIDDLE, 1, KIB));
    assert_eq!(b.says(), ["NAK 1 invalid request msn 0"]);
    assert_eq!(b.completed(), [(1, Status::LocalLengthError)]);
    assert_eq!(b.memory(1024, 8), [0; 8]);
}

fn a_receive_with_a_bad_key_fails_at_both_ends() {
    let mut b = Bench::ready();
    let mut bad = b.sge(0, 16);
    bad.lkey.0 ^= 1;
    b.try_post_recv(1, &[bad]).unwrap();
    b.hear(send_only(0, b"12345"));
    assert_eq!(b.says(), ["NAK 0 remote operational error msn 0"]);
    assert_eq!(b.completed(), [(1, Status::LocalProtectionError)]);
    assert_eq!((b.state(), b.events()), (State::Error, vec![]));
    // A region without local write is no better.
    let mut b = Bench::ready();
    let mr = b
        .card
        .register(b.pd, Buffer::new(64), Access::LOCAL_READ)
        .unwrap();
    let sge = softroce_sim::card::Sge {
        addr: mr.addr,
        len: 64,
        lkey: mr.lkey,
    };
    b.try_post_recv(1, &[sge]).unwrap();
    b.hear(send_only(0, b"12345"));
    assert_eq!(b.completed(), [(1, Status::LocalProtectionError)]);
}
