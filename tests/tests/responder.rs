//! The responder, rule by rule: what it carries out, what it answers, and what it refuses.

use softroce_sim::card::{AsyncEvent, CompletionKind, Mtu, Refusal, Remote, State, Status};
use softroce_sim::memory::{Access, Buffer, Storage};
use softroce_sim::wire::{Ext, Immediate, NakCode, Opcode, RemoteKey, Syndrome};
use softroce_tests::bench::*;

/// The peer's request is refused with `code`: a NAK that names it, the error state, one event, and
/// not a byte of memory changed.
fn refuses(mut b: Bench, before: Vec<Say>, bad: Say, code: NakCode) {
    let what = format!("{bad:?}");
    let n = bad.bth.psn().get();
    b.hear_all(before);
    b.says();
    b.poll();
    b.events();
    let memory = b.buffer.to_vec();
    b.hear(bad);
    let says = b.says();
    assert_eq!(says.len(), 1, "{what}: {says:?}");
    assert!(
        says[0].starts_with(&format!("NAK {n} {code}")),
        "{what}: {says:?}"
    );
    assert_eq!(b.state(), State::Error, "{what}");
    let number = b.qp.number();
    let event = match code {
        NakCode::RemoteAccessError => AsyncEvent::QpAccessError(number),
        _ => AsyncEvent::QpRequestError(number),
    };
    assert_eq!(b.events(), [event], "{what}");
    assert_eq!(b.buffer.to_vec(), memory, "{what}");
    assert_eq!(b.refused(Refusal::Nak), 1, "{what}");
    b.hear(send_only(n + 1, b"more"));
    assert_eq!(b.says(), [""; 0], "{what}");
    assert_eq!(b.refused(Refusal::WrongState), 1, "{what}");
}

fn invalid(before: Vec<Say>, bad: Say) {
    refuses(Bench::ready(), before, bad, NakCode::InvalidRequest);
}

const KIB: &[u8; 1024] = &[7; 1024];

#[test]
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

#[test]
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

#[test]
fn c9_148_the_msn_counts_completed_requests_and_no_duplicates() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.hear(write_only(0, to, b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    b.hear(write_only(0, to, b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    b.hear(write(Opcode::RC_WRITE_FIRST, 1, to, 1025, KIB).ask());
    assert_eq!(b.says(), ["ACK 1 msn 1"], "the message is not complete");
    b.hear(send(Opcode::RC_WRITE_LAST, 2, b"y").ask());
    assert_eq!(b.says(), ["ACK 2 msn 2"]);
    b.hear(read(3, to, 1));
    b.says();
    b.hear(write_only(4, to, b"z"));
    assert_eq!(b.says(), ["ACK 4 msn 4"]);
}

#[test]
fn the_msn_wraps_at_24_bits() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    let first = b.packet_of(write_only(0, to, b"").with(|h| h.with_ack_req(false)));
    // Nothing is asked for, so nothing is answered: 2^24 - 1 messages go by.
    let (mut packet, route) = (first, b.route);
    for n in 0..(1 << 24) - 1 {
        packet.bth = first.bth.with_psn(first.bth.psn().plus(n));
        b.card.receive(b.now, &packet, &route, &mut b.env);
    }
    b.hear(write_only(0xff_ffff, to, b""));
    assert_eq!(b.says(), ["ACK -1 msn 0"]);
}

#[test]
fn a_duplicate_is_acknowledged_again_and_not_executed_again() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.post_recv(1, 100, 10);
    b.post_recv(2, 200, 10);
    b.hear(send_only(0, b"first"));
    b.hear(write_only(1, to, b"second"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    // The ACK was lost; the copies carry other bytes to show that they are not looked at.
    b.hear(send_only(0, b"other"));
    b.hear(write_only(1, to, b"change"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    assert_eq!(
        (b.memory(100, 5), b.memory(0, 6)),
        (b"first".to_vec(), b"second".to_vec())
    );
    assert_eq!(b.memory(200, 10), [0; 10]);
    assert!(b.completed().is_empty());
    assert_eq!(b.refused(Refusal::Duplicate), 2);
    b.hear(send_only(2, b"third"));
    assert_eq!(b.says(), ["ACK 2 msn 3"]);
    assert_eq!(b.completed(), [(2, Status::Success)]);
}

#[test]
fn a_duplicate_is_up_to_2_to_the_23_behind() {
    for rq_psn in [0, 0x12_3456, 0xff_ffff] {
        let mut b = Bench::new(Setup {
            rq_psn,
            mtu: Mtu::M256,
            ..Default::default()
        });
        b.env.counted = true;
        let big = b
            .card
            .register(b.pd, Storage::Counted { len: 1 << 31 }, all_rights())
            .unwrap();
        let from = Remote {
            addr: big.addr,
            rkey: big.rkey,
        };
        b.hear(write_only(0, b.remote(0), b"x"));
        assert_eq!(b.says(), ["ACK 0 msn 1"]);
        // 2^31 bytes at MTU 256 are 2^23 packets.
        b.hear(read(1, from, 1 << 31));
        assert!(b.pull().is_some());
        b.hear(read(1, from, 1 << 31));
        assert_eq!(b.refused(Refusal::Duplicate), 1);
        let again = b.pull().unwrap();
        assert_eq!(b.describe(&again), "RDMA Read Response First 1 [256]");
        // One further behind is as far ahead: a gap.
        b.hear(write_only(0, b.remote(0), b"x"));
        assert_eq!(b.refused(Refusal::OutOfSequence), 1);
    }
}

#[test]
fn a_gap_is_answered_with_one_nak_until_it_is_closed() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.hear(write_only(0, to, b"a"));
    b.hear_all((2..6).map(|n| write_only(n, to, b"b")));
    assert_eq!(b.says(), ["ACK 0 msn 1", "NAK 1 PSN sequence error msn 1"]);
    b.hear_all((2..6).map(|n| write_only(n, to, b"b")));
    assert_eq!(b.says(), [""; 0]);
    assert_eq!(b.memory(0, 1), b"a");
    b.hear(write_only(1, to, b"c"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    // Another gap, another NAK.
    b.hear(write_only(4, to, b"d"));
    assert_eq!(b.says(), ["NAK 2 PSN sequence error msn 2"]);
    assert_eq!(b.memory(0, 1), b"c");
    assert_eq!(b.card.counters().out_of_sequence, 9);
}

#[test]
fn an_ack_that_is_not_pulled_grows() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.hear_all((0..10).map(|n| write_only(n, to, b"a")));
    assert_eq!(b.says(), ["ACK 9 msn 10"]);
    // But not past a READ, whose data comes between.
    b.hear(write_only(10, to, b"a"));
    b.hear(read(11, to, 1025));
    b.hear(write_only(13, to, b"a"));
    b.hear(write_only(14, to, b"a"));
    assert_eq!(
        b.says(),
        [
            "ACK 10 msn 11",
            "RDMA Read Response First 11 [1024]",
            "RDMA Read Response Last 12 [1]",
            "ACK 14 msn 14"
        ]
    );
}

fn credits(b: &mut Bench) -> u8 {
    let p = b.pull().unwrap();
    p.ext.aeth().unwrap().syndrome.0
}

#[test]
fn acknowledgements_carry_the_receives_there_are() {
    // Codes of 9.7.7.2: 0, 1, 2, 3, 4 stand for themselves, 5 for 6.
    let mut b = Bench::ready();
    let to = b.remote(0);
    for (posted, code) in [(0, 0), (1, 1), (3, 3), (5, 4), (7, 5)] {
        while b.qp.recv_room() > 64 - posted {
            b.post_recv(0, 0, 2048);
        }
        let n = b.card.counters().acks_sent as u32;
        b.hear(write_only(n, to, b"a"));
        assert_eq!(credits(&mut b), code, "{posted} posted");
    }
    // The one that a SEND under way has taken is not offered again.
    b.hear(send(Opcode::RC_SEND_FIRST, 5, KIB).ask());
    assert_eq!(credits(&mut b), 5, "six are left");
    b.hear(send(Opcode::RC_SEND_LAST, 6, b"x").ask());
    assert_eq!(credits(&mut b), 5);
    b.hear(send_only(7, b"x"));
    assert_eq!(credits(&mut b), 4, "five are left");

    let mut setup = Setup::default();
    setup.config.credits = false;
    let mut b = Bench::new(setup);
    b.hear(write_only(0, b.remote(0), b"a"));
    assert_eq!(credits(&mut b), Syndrome::UNLIMITED);
}

#[test]
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

#[test]
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

#[test]
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

#[test]
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
        refuses(b, vec![], bad, NakCode::InvalidRequest);
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

#[test]
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

#[test]
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

#[test]
fn more_reads_than_the_program_allowed_are_invalid() {
    for limit in [0, 1, 3] {
        let b = Bench::new(Setup {
            max_dest_rd_atomic: limit,
            ..Default::default()
        });
        let from = b.remote(0);
        let mut b = b;
        let n = u32::from(limit);
        b.hear_all((0..n).map(|n| read(n, from, 8)));
        b.hear(read(n, from, 8));
        assert_eq!(b.state(), State::Error, "{limit}");
        assert_eq!(b.events(), [AsyncEvent::QpRequestError(b.qp.number())]);
        // C9-27: what was asked before is answered before.
        let mut expected: Vec<String> = (0..n)
            .map(|n| format!("RDMA Read Response Only {n} [8]"))
            .collect();
        expected.push(format!("NAK {n} invalid request msn {n}"));
        assert_eq!(b.says(), expected);
    }
    // One that is answered makes room for another.
    let mut b = Bench::new(Setup {
        max_dest_rd_atomic: 1,
        ..Default::default()
    });
    let from = b.remote(0);
    for n in 0..5 {
        b.hear(read(n, from, 8));
        assert_eq!(b.says(), [format!("RDMA Read Response Only {n} [8]")]);
    }
}

#[test]
fn a_read_answered_again_does_not_take_the_place_of_a_new_one() {
    // The peer timed out and asked again; then the first answer came after all, and it went on. Its new
    // READ is within its limit, though the second answer to the old one still waits.
    let mut b = Bench::new(Setup {
        max_dest_rd_atomic: 1,
        ..Default::default()
    });
    let from = b.remote(0);
    b.hear(read(0, from, 8));
    assert_eq!(b.says(), ["RDMA Read Response Only 0 [8]"]);
    b.hear(read(0, from, 8));
    b.hear(read(1, from, 8));
    assert_eq!(b.state(), State::Rts);
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response Only 0 [8]",
            "RDMA Read Response Only 1 [8]"
        ]
    );
}

#[test]
fn operations_the_queue_pair_does_not_allow_are_invalid() {
    let with = |access| {
        Bench::new(Setup {
            access,
            ..Default::default()
        })
    };
    let to = Bench::ready().remote(0);
    let no_write = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let no_read = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    refuses(
        with(no_write),
        vec![],
        write_only(0, to, b"x"),
        NakCode::InvalidRequest,
    );
    refuses(
        with(no_write),
        vec![],
        write_only(0, to, b""),
        NakCode::InvalidRequest,
    );
    refuses(
        with(no_read),
        vec![],
        read(0, to, 1),
        NakCode::InvalidRequest,
    );
    refuses(
        with(no_read),
        vec![],
        read(0, to, 0),
        NakCode::InvalidRequest,
    );
    let mut b = with(Access::LOCAL_READ);
    b.still_works(0, 1);
}

#[test]
fn operations_this_card_does_not_have_are_invalid() {
    for opcode in [
        Opcode::RC_COMPARE_SWAP,
        Opcode::RC_FETCH_ADD,
        Opcode::RC_ATOMIC_WRITE,
        Opcode::RC_FLUSH,
        Opcode::RC_SEND_ONLY_INVALIDATE,
        Opcode(0x15),
        Opcode(0x1f),
    ] {
        let mut b = Bench::ready();
        b.post_recv(1, 0, 64);
        refuses(b, vec![], send(opcode, 0, b""), NakCode::InvalidRequest);
    }
}

/// A region apart from the bench's, and the way the peer names it.
fn region(b: &mut Bench, access: Access) -> (Buffer, Remote) {
    let buffer = Buffer::new(4096);
    let mr = b.card.register(b.pd, buffer.clone(), access).unwrap();
    (
        buffer,
        Remote {
            addr: mr.addr,
            rkey: mr.rkey,
        },
    )
}

#[test]
fn keys_ranges_and_rights_are_checked_in_writes_and_reads() {
    type Make = fn(&mut Bench) -> (Remote, u32);
    let cases: [(&str, Make); 7] = [
        ("bad key", |b| {
            (
                Remote {
                    rkey: RemoteKey(b.mr.rkey.0 ^ 1),
                    ..b.remote(0)
                },
                8,
            )
        }),
        ("no such region", |b| {
            (
                Remote {
                    rkey: RemoteKey(!0),
                    ..b.remote(0)
                },
                8,
            )
        }),
        ("other domain", |b| {
            let pd = b.card.alloc_pd();
            let mr = b.card.register(pd, Buffer::new(64), all_rights()).unwrap();
            (
                Remote {
                    addr: mr.addr,
                    rkey: mr.rkey,
                },
                8,
            )
        }),
        ("past the end", |b| (b.remote(b.mr.len - 7), 8)),
        ("before the start", |b| {
            (
                Remote {
                    addr: b.mr.addr - 1,
                    ..b.remote(0)
                },
                8,
            )
        }),
        ("a sum that wraps 64 bits", |b| {
            (
                Remote {
                    addr: 0xffff_ffff_ffff_fc00,
                    ..b.remote(0)
                },
                0x400,
            )
        }),
        ("no remote right", |b| (region(b, Access::LOCAL_WRITE).1, 8)),
    ];
    for (what, make) in cases {
        println!("{what}");
        let mut b = Bench::ready();
        let (at, len) = make(&mut b);
        let data = pattern(3, len as usize);
        refuses(
            b,
            vec![],
            write_only(0, at, &data),
            NakCode::RemoteAccessError,
        );
        let mut b = Bench::ready();
        let (at, len) = make(&mut b);
        refuses(b, vec![], read(0, at, len), NakCode::RemoteAccessError);
    }
    // The other right does not help.
    let mut b = Bench::ready();
    let (buffer, at) = region(&mut b, Access::LOCAL_WRITE | Access::REMOTE_READ);
    refuses(
        b,
        vec![],
        write_only(0, at, b"12345678"),
        NakCode::RemoteAccessError,
    );
    assert_eq!(buffer.to_vec(), [0; 4096]);
    let mut b = Bench::ready();
    let (_, at) = region(&mut b, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    refuses(b, vec![], read(0, at, 8), NakCode::RemoteAccessError);
}

#[test]
fn a_write_is_checked_as_a_whole_when_it_begins() {
    let b = Bench::ready();
    let at = b.remote(b.mr.len - 1024);
    let first = write(Opcode::RC_WRITE_FIRST, 0, at, 1025, KIB);
    refuses(b, vec![], first, NakCode::RemoteAccessError);
}

#[test]
fn a_region_that_goes_away_ends_the_write_in_it() {
    let mut b = Bench::ready();
    let (buffer, at) = region(&mut b, all_rights());
    b.hear(write(Opcode::RC_WRITE_FIRST, 0, at, 2048, KIB).ask());
    assert_eq!(b.says(), ["ACK 0 msn 0"]);
    b.card
        .deregister(softroce_sim::memory::LocalKey(at.rkey.0))
        .unwrap();
    b.hear(send(Opcode::RC_WRITE_LAST, 1, KIB).ask());
    assert_eq!(b.says(), ["NAK 1 remote access error msn 0"]);
    assert_eq!(b.events(), [AsyncEvent::QpAccessError(b.qp.number())]);
    assert_eq!(buffer.to_vec()[1024..], [0; 3072]);
}

#[test]
fn a_region_that_goes_away_ends_the_read_from_it_with_a_nak() {
    let mut b = Bench::ready();
    let (_, at) = region(&mut b, all_rights());
    b.hear(write_only(0, b.remote(0), b"x"));
    b.hear(read(1, at, 3000));
    let first: Vec<_> = (0..2).map(|_| b.pull().unwrap()).collect();
    assert_eq!(b.describe(&first[1]), "RDMA Read Response First 1 [1024]");
    b.card
        .deregister(softroce_sim::memory::LocalKey(at.rkey.0))
        .unwrap();
    assert_eq!(b.says(), ["NAK 2 remote access error msn 2"]);
    assert_eq!(b.state(), State::Error);
    assert_eq!(b.events(), [AsyncEvent::QpAccessError(b.qp.number())]);
}

#[test]
fn c9_88_zero_bytes_need_no_key() {
    let nowhere = Remote {
        addr: u64::MAX,
        rkey: RemoteKey(0xdead_beef),
    };
    let mut b = Bench::ready();
    b.post_recv(1, 0, 16);
    b.hear(write_only(0, nowhere, b""));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    b.hear(write_imm(1, nowhere, b"", 42));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    let c = b.poll();
    assert_eq!(
        (c[0].byte_len, c[0].immediate),
        (0, Some(Immediate::from_be(42)))
    );
    b.hear(read(2, nowhere, 0));
    assert_eq!(b.says(), ["RDMA Read Response Only 2"]);
    b.hear(read(2, nowhere, 0));
    assert_eq!(b.says(), ["RDMA Read Response Only 2"], "again");
    b.still_works(3, 4);
}

#[test]
fn a_send_without_a_receive_is_put_off() {
    let mut b = Bench::new(Setup {
        min_rnr_timer: 22,
        ..Default::default()
    });
    b.hear(send_only(0, b"early"));
    // As a kernel answers in rc_rnr_late.
    assert_eq!(b.says(), ["RNR NAK 0 timer 22 msn 0"]);
    // What was behind it is dropped without another word.
    b.hear(send_only(1, b"later"));
    assert_eq!(b.says(), [""; 0]);
    b.hear(send_only(0, b"early"));
    assert_eq!(b.says(), ["RNR NAK 0 timer 22 msn 0"]);
    b.post_recv(1, 0, 16);
    b.hear(send_only(0, b"early"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.card.counters().rnr_naks_sent, 2);
    assert_eq!(b.state(), State::Rts);
}

#[test]
fn a_write_with_immediate_is_put_off_at_its_last_packet() {
    // As in rc_rnr_writeimm.
    let mut b = Bench::ready();
    let to = b.remote(0);
    let data = pattern(9, 1124);
    let last = say(
        Opcode::RC_WRITE_LAST_IMM,
        1,
        Ext::Immediate(Immediate::from_be(0xabcd_0000)),
        &data[1024..],
    )
    .ask();
    b.hear(write(Opcode::RC_WRITE_FIRST, 0, to, 1124, &data[..1024]));
    b.hear(last.clone());
    assert_eq!(b.says(), ["RNR NAK 1 timer 12 msn 0"]);
    // The peer may go back to the first packet, as the kernel does.
    b.hear(write(Opcode::RC_WRITE_FIRST, 0, to, 1124, &data[..1024]));
    b.post_recv(1, 5000, 0);
    b.hear(last);
    assert_eq!(b.says(), ["ACK 1 msn 1"]);
    let c = b.poll();
    assert_eq!(c.len(), 1);
    assert_eq!(
        (c[0].kind, c[0].byte_len),
        (CompletionKind::ReceiveWithImmediate, 1124)
    );
    assert_eq!(c[0].immediate, Some(Immediate([0xab, 0xcd, 0, 0])));
    assert_eq!(b.memory(0, 1124), data);
}

#[test]
fn c10_87_a_write_takes_no_receive() {
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

#[test]
fn resources_come_before_lengths_and_keys() {
    // 9.7.4.1: a request that finds no receive is put off, whatever else is wrong with it.
    let mut b = Bench::ready();
    let at = Remote {
        rkey: RemoteKey(0),
        ..b.remote(0)
    };
    b.hear(write_imm(0, at, b"x", 1));
    assert_eq!(b.says(), ["RNR NAK 0 timer 12 msn 0"]);
    b.hear(send(Opcode::RC_SEND_FIRST, 0, b"short").ask());
    assert_eq!(b.says(), ["RNR NAK 0 timer 12 msn 0"]);
    // And a wrong length is found before a wrong key.
    b.hear(write(Opcode::RC_WRITE_ONLY, 0, at, 2, b"x"));
    assert_eq!(b.says(), ["NAK 0 invalid request msn 0"]);
}

#[test]
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

#[test]
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

#[test]
fn a_read_is_answered_in_packets_of_the_path_mtu() {
    let mut b = Bench::ready();
    let data = pattern(4, 3000);
    b.buffer.write_at(8, &data);
    b.hear(read(0, b.remote(8), 3000));
    let packets = b.packets();
    let words: Vec<_> = packets.iter().map(|p| b.describe(p)).collect();
    assert_eq!(
        words,
        [
            "RDMA Read Response First 0 [1024]",
            "RDMA Read Response Middle 1 [1024]",
            "RDMA Read Response Last 2 [952]"
        ]
    );
    // As in rc_read: AETH on first and last, none in the middle.
    let aeths: Vec<_> = packets
        .iter()
        .map(|p| p.ext.aeth().map(|a| a.msn.get()))
        .collect();
    assert_eq!(aeths, [Some(1), None, Some(1)]);
    let got: Vec<u8> = packets.iter().flat_map(|p| b.bytes(p)).collect();
    assert_eq!(got, data);
}

#[test]
fn a_read_asked_again_is_read_again() {
    let mut b = Bench::ready();
    b.hear(read(0, b.remote(0), 4));
    let p = b.pull().unwrap();
    assert_eq!(b.bytes(&p), [0; 4]);
    b.buffer.write_at(0, b"new!");
    b.hear(read(0, b.remote(0), 4));
    let p = b.pull().unwrap();
    assert_eq!(b.bytes(&p), b"new!");
    assert_eq!(b.card.counters().duplicate_requests, 1);
    // The rest of a longer one, from where the peer lost it; as in loss_read_resp_last.
    b.hear(read(1, b.remote(0), 3000));
    b.says();
    b.hear(read(3, b.remote(2048), 952));
    assert_eq!(b.says(), ["RDMA Read Response Only 3 [952]"]);
}

#[test]
fn c9_110_an_earlier_duplicate_interrupts_the_answer_under_way() {
    let mut b = Bench::ready();
    let from = b.remote(0);
    b.hear(read(0, from, 8));
    b.says();
    b.hear(read(1, from, 4000));
    let first = b.pull().unwrap();
    assert_eq!(b.describe(&first), "RDMA Read Response First 1 [1024]");
    b.hear(read(0, from, 8));
    let next = b.pull().unwrap();
    assert_eq!(b.describe(&next), "RDMA Read Response Only 0 [8]");
}

#[test]
fn c9_27_answers_come_in_the_order_of_the_requests() {
    let mut b = Bench::ready();
    let at = b.remote(0);
    b.hear(read(0, at, 2000));
    b.hear(write_only(2, at, b"x"));
    b.hear(read(3, at, 5));
    b.hear(read(4, at, 6));
    b.hear(write_only(9, at, b"gap"));
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response First 0 [1024]",
            "RDMA Read Response Last 1 [976]",
            "ACK 2 msn 2",
            "RDMA Read Response Only 3 [5]",
            "RDMA Read Response Only 4 [6]",
            "NAK 5 PSN sequence error msn 4"
        ]
    );
    // Also when the last of them is refused for good.
    b.hear(read(5, at, 2000));
    b.hear(write_only(
        7,
        Remote {
            rkey: RemoteKey(0),
            ..at
        },
        b"x",
    ));
    assert_eq!(
        b.says(),
        [
            "RDMA Read Response First 5 [1024]",
            "RDMA Read Response Last 6 [976]",
            "NAK 7 remote access error msn 5"
        ]
    );
}

#[test]
fn packets_that_are_not_the_connections_are_dropped() {
    let drops = |why, change: &dyn Fn(&mut Bench) -> Say| {
        let mut b = Bench::ready();
        b.post_recv(1, 0, 64);
        let bad = change(&mut b);
        b.hear(bad);
        assert_eq!(b.refused(why), 1, "{why:?}");
        assert_eq!(b.says(), [""; 0], "{why:?}");
        assert!(b.completed().is_empty() && b.events().is_empty(), "{why:?}");
        assert_eq!(b.state(), State::Rts);
    };
    let good = || send_only(0, b"hello");
    drops(Refusal::BadIcrc, &|_| good().damaged());
    drops(Refusal::Malformed, &|_| good().with(|h| h.with_tver(1)));
    drops(Refusal::UnknownQueuePair, &|b| {
        let other = softroce_sim::wire::QpNumber::new(b.qp.number().get() + 1);
        good().with(|h| h.with_dest_qp(other))
    });
    drops(Refusal::BadPkey, &|_| good().with(|h| h.with_pkey(0x8001)));
    // UC, UD, XRC and one that nobody knows.
    for opcode in [0x24, 0x64, 0xa4, 0xff, 0xc0] {
        drops(Refusal::WrongService, &|_| {
            good().with(|h| h.with_opcode(Opcode(opcode)))
        });
    }
    for n in 0..3 {
        let mut b = Bench::ready();
        let mut route = b.route;
        match n {
            0 => route.src = own_gid(),
            1 => route.dst = peer_gid(),
            _ => route.encapsulation = softroce_sim::wire::Encapsulation::RoceV1,
        }
        b.hear_along(good(), &route);
        assert_eq!(b.refused(Refusal::WrongAddress), 1);
    }
}

#[test]
fn a_limited_member_of_the_partition_is_heard() {
    let mut b = Bench::ready();
    b.hear(write_only(0, b.remote(0), b"x").with(|h| h.with_pkey(0x7fff)));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
}

#[test]
fn reserved_bits_are_ignored() {
    // C9-6 and CA17-29.
    let mut b = Bench::ready();
    b.hear(write_only(0, b.remote(0), b"x").with(|h| h.with_byte4(0xff).with_mig_req(false)));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
}

#[test]
fn a_cnp_is_counted_and_answered_by_nothing() {
    let mut b = Bench::ready();
    b.hear(say(Opcode::CNP, 0, Ext::Cnp, &[]));
    assert_eq!(b.card.counters().cnps_received, 1);
    assert_eq!(b.says(), [""; 0]);
    b.still_works(0, 1);
}

#[test]
fn answers_that_are_not_pulled_do_not_pile_up() {
    // Gap, what was missing, gap, ...: each time a NAK and an ACK, and nobody fetches them. Then
    // duplicates of READs and SENDs by turns.
    let mut b = Bench::new(Setup {
        max_dest_rd_atomic: 2,
        ..Default::default()
    });
    let at = b.remote(0);
    for n in 0..1000 {
        b.hear(write_only(n + 5, at, b"x"));
        b.hear(write_only(n, at, b"x"));
    }
    let says = b.says();
    assert!(says.len() <= 4, "{says:?}");
    assert!(says.contains(&"ACK 999 msn 1000".to_string()), "{says:?}");
    b.hear(read(1000, at, 3000));
    b.hear(read(1003, at, 3000));
    b.says();
    for n in 0..1000 {
        b.hear(write_only(n, at, b"x"));
        b.hear(read(1000 + 3 * (n % 2), at, 3000));
        b.hear(write_only(n, at, b"x"));
        b.hear(write_only(2000, at, b"x"));
    }
    // Two READs of three packets, and at most ACK, NAK, ACK before, between and after them.
    let says = b.says();
    assert!(says.len() <= 2 * 3 + 3 * 3, "{says:?}");
}
