//! Atomics, the side that asks: one packet, one answer, and where that goes.

use softroce_sim::card::{CompletionKind, Refusal, Remote, SendRequest, Sge, State, Status, Work};
use softroce_sim::memory::{Access, Buffer};
use softroce_sim::time::Span;
use softroce_sim::wire::{Ext, NakCode, Opcode, RemoteKey};
use softroce_tests::bench::*;

const NONE: [&str; 0] = [];

/// The eight bytes at `offset`, in the order of this machine.
fn word(b: &Bench, offset: usize) -> u64 {
    u64::from_ne_bytes(b.memory(offset, 8).try_into().unwrap())
}

fn add(at: Remote) -> Work {
    Work::FetchAdd { at, add: 1 }
}

#[test]
fn the_requester_sends_one_packet_and_stores_what_was_there() {
    let mut b = Bench::ready();
    let at = Remote {
        addr: 0x1008,
        rkey: RemoteKey(0x1234),
    };
    let sges = [b.sge(8, 8)];
    b.post(1, add(at), &sges);
    let (compare, swap) = (3, 4);
    b.post(2, Work::CompareSwap { at, compare, swap }, &sges);
    let packets = b.packets();
    let names: Vec<_> = packets.iter().map(|p| b.describe(p)).collect();
    assert_eq!(names, ["FetchAdd 0 ?", "CmpSwap 1 ?"]);
    let eth = |i: usize| match packets[i].ext {
        Ext::Atomic(eth) => (eth.va, eth.rkey, eth.swap_add, eth.compare),
        _ => unreachable!(),
    };
    assert_eq!(eth(0), (0x1008, RemoteKey(0x1234), 1, 0));
    assert_eq!(eth(1), (0x1008, RemoteKey(0x1234), 4, 3));
    assert!(b.completed().is_empty());
    b.hear(atomic_ack(0, 77));
    let c = b.poll();
    assert_eq!(
        (c.len(), c[0].wr_id, c[0].kind, c[0].byte_len),
        (1, 1, CompletionKind::FetchAdd, 8)
    );
    assert_eq!(word(&b, 8), 77);
    b.hear(atomic_ack(1, 3));
    assert_eq!(b.poll()[0].kind, CompletionKind::CompareSwap);
    assert_eq!(word(&b, 8), 3);
}

#[test]
fn the_requesters_atomic_write_takes_eight_bytes_along() {
    let mut b = Bench::ready();
    b.buffer.write_at(0, b"abcdefgh");
    let sges = [b.sge(0, 3), b.sge(3, 5)];
    b.post(1, Work::AtomicWrite(elsewhere()), &sges);
    let p = b.pull().unwrap();
    assert_eq!(b.describe(&p), "Atomic Write 0 of 8 [8] ?");
    assert_eq!(b.bytes(&p), b"abcdefgh");
    // Its answer has no data, and is a whole one.
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, b""));
    let c = b.poll();
    assert_eq!(
        (c[0].wr_id, c[0].status, c[0].kind),
        (1, Status::Success, CompletionKind::AtomicWrite)
    );
    for bad in [
        read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, b"data"),
        read_response(Opcode::RC_READ_RESPONSE_FIRST, 1, b""),
        read_response(Opcode::RC_READ_RESPONSE_LAST, 1, b""),
        read_response(Opcode::RC_READ_RESPONSE_MIDDLE, 1, b""),
        atomic_ack(1, 0),
    ] {
        let mut b = Bench::ready();
        b.post_send(1, 1);
        let sges = [b.sge(0, 8)];
        b.post(2, Work::AtomicWrite(elsewhere()), &sges);
        b.says();
        b.hear(bad.clone());
        let done = [(1, Status::Success), (2, Status::BadResponse)];
        assert_eq!(b.completed(), done, "{bad:?}");
        assert_eq!(b.state(), State::Error);
    }
}

#[test]
fn answers_of_another_kind_are_bad_responses() {
    for bad in [
        read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, b"12345678"),
        read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, b""),
    ] {
        let mut b = Bench::ready();
        let sges = [b.sge(0, 8)];
        b.post(1, add(elsewhere()), &sges);
        b.says();
        b.hear(bad);
        assert_eq!(b.completed(), [(1, Status::BadResponse)]);
        assert_eq!(b.memory(0, 8), [0; 8]);
    }
    let mut b = Bench::ready();
    b.post_read(1, 8);
    b.says();
    b.hear(atomic_ack(0, 5));
    assert_eq!(b.completed(), [(1, Status::BadResponse)]);
}

#[test]
fn a_length_other_than_eight_fails_before_anything_is_sent() {
    for len in [0, 4, 7, 9, 16] {
        for work in [
            add(elsewhere()),
            Work::CompareSwap {
                at: elsewhere(),
                compare: 0,
                swap: 0,
            },
            Work::AtomicWrite(elsewhere()),
        ] {
            let mut b = Bench::ready();
            let sges = [b.sge(0, len)];
            b.post(1, work, &sges);
            assert_eq!(b.says(), NONE);
            assert_eq!(b.completed(), [(1, Status::LocalLengthError)]);
            assert_eq!(b.state(), State::Error);
        }
    }
}

#[test]
fn a_bad_lkey_on_an_atomic_completes_with_a_local_error() {
    // rdma_rxe, 2021-05-11. Nothing is sent: the peer must not do what cannot be answered.
    let read_only = |b: &mut Bench| {
        let mr = b
            .card
            .register(b.pd, Buffer::new(8), Access::LOCAL_READ)
            .unwrap();
        Sge {
            addr: mr.addr,
            len: 8,
            lkey: mr.lkey,
        }
    };
    let unknown = |b: &mut Bench| {
        let mut sge = b.sge(0, 8);
        sge.lkey.0 ^= 1;
        sge
    };
    let outside = |b: &mut Bench| b.sge((64 << 10) - 4, 8);
    let makers: [&dyn Fn(&mut Bench) -> Sge; 3] = [&read_only, &unknown, &outside];
    for make in makers {
        let mut b = Bench::ready();
        b.post_send(1, 8);
        let sge = make(&mut b);
        b.post(2, add(elsewhere()), &[sge]);
        b.post_send(3, 8);
        assert_eq!(b.says(), ["Send Only 0 [8] ?"]);
        b.hear(ack(0, 1));
        assert_eq!(
            b.completed(),
            [
                (1, Status::Success),
                (2, Status::LocalProtectionError),
                (3, Status::WorkRequestFlushed)
            ]
        );
    }
    // ATOMIC WRITE only reads its eight bytes.
    let mut b = Bench::ready();
    let sge = read_only(&mut b);
    b.post(1, Work::AtomicWrite(elsewhere()), &[sge]);
    assert_eq!(b.says(), ["Atomic Write 0 of 8 [8] ?"]);
    // An element of no bytes needs no key, for an answer as for data.
    let mut b = Bench::ready();
    let nothing = Sge {
        len: 0,
        ..unknown(&mut b)
    };
    let sges = [nothing, b.sge(0, 8)];
    b.post(1, add(elsewhere()), &sges);
    assert_eq!(b.says(), ["FetchAdd 0 ?"]);
}

#[test]
fn a_region_that_goes_away_before_the_answer_fails_the_request() {
    let mut b = Bench::ready();
    let mr = b.card.register(b.pd, Buffer::new(8), all_rights()).unwrap();
    let sge = Sge {
        addr: mr.addr,
        len: 8,
        lkey: mr.lkey,
    };
    b.post(1, add(elsewhere()), &[sge]);
    b.says();
    b.card.deregister(mr.lkey).unwrap();
    b.hear(atomic_ack(0, 5));
    assert_eq!(b.completed(), [(1, Status::LocalProtectionError)]);
}

#[test]
fn a_lost_answer_is_asked_for_again_when_a_later_one_shows_it() {
    let mut b = Bench::ready();
    let sges = [b.sge(0, 8)];
    b.post(1, add(elsewhere()), &sges);
    b.post_write(2, 8);
    b.says();
    // An ACK of the WRITE must not skip the atomic: what was there is not known.
    b.hear(ack(1, 2));
    assert!(b.completed().is_empty());
    assert_eq!(b.counted().implied_naks, 1);
    assert_eq!(b.says(), ["FetchAdd 0 ?", "RDMA Write Only 1 of 8 [8] ?"]);
    b.hear(atomic_ack(0, 9));
    b.hear(ack(1, 2));
    assert_eq!(b.completed(), [(1, Status::Success), (2, Status::Success)]);
    // Nothing comes after it: the timer finds out.
    b.post(3, add(elsewhere()), &sges);
    assert_eq!(b.says(), ["FetchAdd 2 ?"]);
    b.wait(Span::from_ms(68));
    assert_eq!(b.says(), ["FetchAdd 2 ?"]);
    assert_eq!(b.counted().timeouts, 1);
    b.hear(atomic_ack(2, 10));
    b.hear(atomic_ack(2, 10));
    assert_eq!(b.completed(), [(3, Status::Success)]);
    assert_eq!(b.refused(Refusal::Ghost), 1);
}

#[test]
fn no_more_atomics_are_out_than_the_program_allowed() {
    let mut b = Bench::new(Setup {
        max_rd_atomic: 2,
        ..Default::default()
    });
    let sges = [b.sge(0, 8)];
    b.post(1, add(elsewhere()), &sges);
    b.post_read(2, 8);
    b.post(3, Work::AtomicWrite(elsewhere()), &sges);
    b.post(4, add(elsewhere()), &sges);
    assert_eq!(b.says(), ["FetchAdd 0 ?", "RDMA Read Request 1 of 8 ?"]);
    b.hear(atomic_ack(0, 0));
    assert_eq!(b.says(), ["Atomic Write 2 of 8 [8] ?"]);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, &[0; 8]));
    assert_eq!(b.says(), ["FetchAdd 3 ?"]);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 2, b""));
    b.hear(atomic_ack(3, 0));
    assert_eq!(b.completed(), [1, 2, 3, 4].map(|id| (id, Status::Success)));
    // None allowed: it fails instead of waiting for ever.
    let mut b = Bench::new(Setup {
        max_rd_atomic: 0,
        ..Default::default()
    });
    let sges = [b.sge(0, 8)];
    b.post(1, add(elsewhere()), &sges);
    assert_eq!(b.says(), NONE);
    assert_eq!(b.completed(), [(1, Status::LocalQpOperationError)]);
}

#[test]
fn a_fenced_request_waits_for_atomics() {
    // 10.8.3.3.
    let mut b = Bench::ready();
    let sges = [b.sge(0, 8)];
    b.post(1, add(elsewhere()), &sges);
    b.post_write(2, 8);
    let fenced = SendRequest {
        fence: true,
        ..SendRequest::new(3, Work::Write(elsewhere()), &sges)
    };
    b.try_post(&fenced).unwrap();
    assert_eq!(b.says(), ["FetchAdd 0 ?", "RDMA Write Only 1 of 8 [8] ?"]);
    b.hear(atomic_ack(0, 0));
    // The WRITE before it is not waited for.
    assert_eq!(b.says(), ["RDMA Write Only 2 of 8 [8] ?"]);
}

#[test]
fn refusals_complete_the_atomic_they_name() {
    for (code, status) in [
        (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
        (NakCode::RemoteAccessError, Status::RemoteAccessError),
        (
            NakCode::RemoteOperationalError,
            Status::RemoteOperationError,
        ),
    ] {
        let mut b = Bench::ready();
        let sges = [b.sge(0, 8)];
        b.post(1, add(elsewhere()), &sges);
        b.post(2, add(elsewhere()), &sges);
        b.says();
        b.hear(atomic_ack(0, 1));
        b.hear(nak(1, code));
        assert_eq!(b.completed(), [(1, Status::Success), (2, status)]);
        assert_eq!(b.state(), State::Error);
    }
}
