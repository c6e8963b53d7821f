//! Unreliable connections: what is whole is delivered, what has a gap is forgotten, nothing is answered.

use softroce_sim::card::{
    AsyncEvent, CompletionKind, PostError, QpAttributes, Refusal, SendRequest, State, Status, Work,
};
use softroce_sim::memory::Access;
use softroce_sim::wire::{Ext, Immediate, Opcode, RemoteKey};
use softroce_tests::bench::*;

const NONE: [&str; 0] = [];
const KIB: usize = 1024;

fn ready() -> Bench {
    Bench::new(Setup::uc())
}

/// A SEND of three packets from the `n`-th on, and its data.
fn three(n: u32, seed: u8) -> ([Say; 3], Vec<u8>) {
    let data = pattern(seed, 2 * KIB + 10);
    let says = [
        send(Opcode::RC_SEND_FIRST, n, &data[..KIB]).uc(),
        send(Opcode::RC_SEND_MIDDLE, n + 1, &data[KIB..2 * KIB]).uc(),
        send(Opcode::RC_SEND_LAST, n + 2, &data[2 * KIB..]).uc(),
    ];
    (says, data)
}

/// A WRITE of three packets from the `n`-th on.
fn three_writes(n: u32, b: &Bench, at: u64, data: &[u8]) -> [Say; 3] {
    let len = data.len() as u32;
    [
        write(Opcode::RC_WRITE_FIRST, n, b.remote(at), len, &data[..KIB]).uc(),
        send(Opcode::RC_WRITE_MIDDLE, n + 1, &data[KIB..2 * KIB]).uc(),
        send(Opcode::RC_WRITE_LAST, n + 2, &data[2 * KIB..]).uc(),
    ]
}

#[test]
fn messages_are_delivered_and_never_acknowledged() {
    for rq_psn in [0, 0xff_fffe, 0x7f_ffff] {
        let mut b = Bench::new(Setup {
            rq_psn,
            ..Setup::uc()
        });
        let (says, data) = three(0, 1);
        b.post_recv(1, 50, 4000);
        // AckReq is not heeded.
        b.hear_all(says.map(Say::ask));
        let c = b.poll();
        assert_eq!(
            (c.len(), c[0].byte_len, c[0].grh),
            (1, data.len() as u32, false)
        );
        assert_eq!(c[0].kind, CompletionKind::Receive);
        assert_eq!(b.memory(50, data.len()), data);
        b.hear_all(three_writes(3, &b, 8192, &data));
        assert_eq!(b.memory(8192, data.len()), data);
        assert_eq!(b.says(), NONE);
        assert_eq!(b.counted().acks_sent + b.counted().naks_sent.total(), 0);
        assert!(b.completed().is_empty(), "a WRITE tells nobody");
    }
}

#[test]
fn a_message_that_lost_any_packet_is_forgotten_and_the_next_is_taken() {
    for lost in 0..3 {
        let mut b = ready();
        b.post_recv(1, 0, 4000);
        let (says, _) = three(0, 1);
        let kept = (0..3).filter(|&i| i != lost);
        b.hear_all(kept.map(|i| says[i].clone()));
        assert!(b.completed().is_empty(), "{lost}");
        // The receive that a part of it may have taken is there for the next.
        let (says, data) = three(3, 2);
        b.hear_all(says);
        let c = b.poll();
        assert_eq!(
            (c.len(), c[0].wr_id, c[0].status, c[0].byte_len),
            (1, 1, Status::Success, data.len() as u32),
            "{lost}"
        );
        assert_eq!(b.memory(0, data.len()), data, "{lost}");
        assert!(b.counted().out_of_sequence > 0);
        assert_eq!((b.says(), b.state()), (vec![], State::Rts));
    }
}

#[test]
fn a_single_packet_that_is_lost_leaves_a_gap_and_nothing_else() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.hear(send_only(1, b"second").uc());
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(0, 6), b"second");
    assert_eq!(b.counted().out_of_sequence, 1);
}

#[test]
fn a_write_with_a_gap_writes_no_more() {
    let mut b = ready();
    let data = pattern(3, 2 * KIB + 10);
    let [first, _, last] = three_writes(0, &b, 0, &data);
    b.hear_all([first, last]);
    assert_eq!(b.memory(0, KIB), data[..KIB]);
    assert_eq!(b.memory(KIB, 2 * KIB), vec![0; 2 * KIB]);
    assert_eq!(b.refused(Refusal::OutOfSequence), 1);
    // Its last packet alone cannot end another message.
    let [first, middle, last] = three_writes(3, &b, 8192, &data);
    b.hear_all([first, middle.clone(), middle, last]);
    assert_eq!(b.memory(8192 + 2 * KIB, 10), [0; 10]);
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
}

#[test]
fn the_psn_is_followed_wherever_it_goes() {
    // 9.8.2.2.1 knows no duplicates: a message that begins is taken, ahead, behind, and before the
    // first PSN of the connection.
    for start in [1u32 << 23, (1 << 23) - 1, 0xff_ff00, 0xff_ffff, 5] {
        let mut b = ready();
        let (says, data) = three(0, 1);
        b.post_recv(1, 0, 4000);
        b.hear_all(says);
        for (id, round) in [(2, 0), (3, 3)] {
            let (says, again) = three((start + round) & 0xff_ffff, id as u8);
            b.post_recv(id, 0, 4000);
            b.hear_all(says);
            assert_eq!(b.memory(0, data.len()), again, "{start:#x}");
        }
        let done = [1, 2, 3].map(|id| (id, Status::Success));
        assert_eq!(b.completed(), done, "{start:#x}");
        assert_eq!(b.counted().out_of_sequence, 1, "{start:#x}");
    }
}

#[test]
fn sends_and_writes_alternate() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.post_recv(2, 100, 64);
    b.hear(write_only(0, b.remote(8192), b"one").uc());
    b.hear(send_only(1, b"two").uc());
    b.hear(write_imm(2, b.remote(8200), b"three", 7).uc());
    let c = b.poll();
    let what: Vec<_> = c
        .iter()
        .map(|c| (c.wr_id, c.kind, c.byte_len, c.immediate))
        .collect();
    let seven = Some(Immediate::from_be(7));
    assert_eq!(
        what,
        [
            (1, CompletionKind::Receive, 3, None),
            (2, CompletionKind::ReceiveWithImmediate, 5, seven)
        ]
    );
    assert_eq!(b.memory(8192, 3), b"one");
    assert_eq!(b.memory(8200, 5), b"three");
    assert_eq!(b.memory(100, 5), [0; 5]);
}

#[test]
fn c9_167_an_opcode_that_does_not_fit_is_dropped_with_its_message() {
    let data = pattern(9, 2 * KIB + 10);
    let probe = ready();
    let [send_first, send_middle, send_last] = three(0, 9).0;
    let [write_first, write_middle, write_last] = three_writes(0, &probe, 8192, &data);
    let at = |n, say: &Say| {
        let mut say = say.clone();
        say.bth = say.bth.with_psn(softroce_sim::wire::Psn::new(n));
        say
    };
    for wrong in [
        // No message is under way.
        vec![&send_middle],
        vec![&send_last],
        vec![&write_middle],
        vec![&write_last],
        // One of the other kind is.
        vec![&send_first, &write_middle],
        vec![&send_first, &write_last],
        vec![&write_first, &send_middle],
        vec![&write_first, &send_last],
    ] {
        let mut b = ready();
        b.post_recv(1, 0, 4096);
        let n = wrong.len() as u32;
        b.hear_all((0..n).map(|i| at(i, wrong[i as usize])));
        assert!(b.completed().is_empty() && b.events().is_empty());
        assert_eq!((b.says(), b.state()), (vec![], State::Rts));
        // What follows in the same message is dropped too; the next message is taken.
        b.hear(at(n, &send_last));
        assert!(b.completed().is_empty());
        b.hear(send_only(n + 1, b"fine").uc());
        assert_eq!(b.completed(), [(1, Status::Success)], "{wrong:?}");
        assert_eq!(b.memory(0, 4), b"fine");
    }
}

#[test]
fn a_message_that_begins_ends_the_one_under_way() {
    // The PSNs fit, as after exactly the lost rest of 2^24 packets, or a peer that gave up.
    let mut b = ready();
    let (says, _) = three(0, 1);
    b.post_recv(1, 0, 4000);
    b.hear(says[0].clone());
    b.hear(send_only(1, b"new").uc());
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(0, 3), b"new");
}

#[test]
fn lengths_that_do_not_fit_the_place_are_dropped() {
    let data = pattern(1, 4 * KIB);
    let to = ready().remote(0);
    for bad in [
        send(Opcode::RC_SEND_FIRST, 0, &data[..KIB - 1]),
        send(Opcode::RC_SEND_FIRST, 0, &data[..KIB + 1]),
        send(Opcode::RC_SEND_ONLY, 0, &data[..KIB + 1]),
        write(Opcode::RC_WRITE_ONLY, 0, to, 9, &data[..8]),
        write(Opcode::RC_WRITE_ONLY, 0, to, 7, &data[..8]),
        write(Opcode::RC_WRITE_FIRST, 0, to, KIB as u32, &data[..KIB]),
    ] {
        let mut b = ready();
        b.post_recv(1, 8192, 4096);
        b.hear(bad.clone().uc());
        assert_eq!(b.refused(Refusal::Malformed), 1, "{bad:?}");
        assert_eq!(b.buffer.to_vec(), vec![0; 64 << 10]);
        b.hear(send_only(1, b"fine").uc());
        assert_eq!(b.completed(), [(1, Status::Success)]);
        assert_eq!(b.memory(8192, 4), b"fine");
        assert_eq!((b.says(), b.state()), (vec![], State::Rts));
    }
}

#[test]
fn keys_that_do_not_open_are_dropped_without_a_word() {
    let mut b = ready();
    let mut wrong_key = b.remote(0);
    wrong_key.rkey.0 ^= 1;
    let mut wraps = b.remote(0);
    wraps.addr = u64::MAX - 3;
    let outside = b.remote((64 << 10) - 3);
    let data = pattern(1, 2 * KIB + 10);
    let mut too_far = three_writes(6, &b, (64 << 10) - KIB as u64, &data);
    for (n, at) in [(0, wrong_key), (1, wraps), (2, outside)] {
        b.hear(write_only(n, at, b"data").uc());
    }
    // The whole of what is announced is checked at the start.
    b.hear_all(std::mem::replace(
        &mut too_far,
        three_writes(9, &b, 0, &data),
    ));
    assert_eq!(b.refused(Refusal::BadKey), 4);
    assert_eq!(b.buffer.to_vec(), vec![0; 64 << 10]);
    assert!(b.events().is_empty(), "the program is not told either");
    b.hear_all(too_far);
    assert_eq!(b.memory(0, data.len()), data);
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
    // C9-88 is about RC; here too zero bytes have nowhere to go.
    b.hear(write_only(12, wrong_key, b"").uc());
    assert_eq!(b.refused(Refusal::BadKey), 4);
}

#[test]
fn a_queue_pair_without_the_right_takes_no_writes() {
    let mut b = Bench::new(Setup {
        access: Access::LOCAL_WRITE,
        ..Setup::uc()
    });
    b.hear(write_only(0, b.remote(0), b"x").uc());
    assert_eq!(b.memory(0, 1), [0]);
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
    b.post_recv(1, 0, 8);
    b.hear(send_only(1, b"x").uc());
    assert_eq!(b.completed(), [(1, Status::Success)]);
}

#[test]
fn c9_168_operations_that_want_an_answer_are_not_heard() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    let at = b.remote(0);
    b.hear(read(0, at, 8).uc());
    b.hear(fetch_add(0, at, 1).uc());
    b.hear(compare_swap(0, at, 0, 1).uc());
    b.hear(atomic_write(0, at, &[1; 8]).uc());
    b.hear(send_invalidate(0, b"x", at.rkey).uc());
    b.hear(ack(0, 1).uc());
    b.hear(send_only(0, b"x"));
    assert_eq!(b.refused(Refusal::Malformed), 6);
    assert_eq!(b.refused(Refusal::WrongService), 1);
    assert!(b.completed().is_empty() && b.events().is_empty());
    assert_eq!(b.memory(0, 64), [0; 64]);
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
}

#[test]
fn a_message_longer_than_its_receive_is_dropped_and_the_receive_waits() {
    let mut b = ready();
    b.post_recv(1, 0, 3);
    b.hear(send_only(0, b"four").uc());
    assert_eq!(b.memory(0, 4), [0; 4]);
    // Found out in the middle of a message.
    b.hear(send_only(1, b"one").uc());
    b.post_recv(2, 100, KIB as u32 + 5);
    let (says, _) = three(2, 1);
    b.hear_all(says);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.refused(Refusal::TooLong), 2);
    b.hear(send_only(5, b"fits").uc());
    assert_eq!(b.completed(), [(2, Status::Success)]);
    assert_eq!(b.memory(100, 4), b"fits");
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
}

#[test]
fn without_a_receive_a_message_is_lost_as_a_whole() {
    let mut b = ready();
    let (says, data) = three(0, 1);
    let mut says = says.into_iter();
    b.hear(says.next().unwrap());
    b.post_recv(1, 0, 4000);
    // Its rest does not become a message of its own.
    b.hear_all(says);
    assert!(b.completed().is_empty());
    let (says, _) = three(3, 1);
    b.hear_all(says);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(0, data.len()), data);
    assert_eq!(b.refused(Refusal::ReceiverNotReady), 1);
    // Of a WRITE with immediate data the last packet is lost.
    b.hear(write_imm(6, b.remote(9000), b"lost", 1).uc());
    assert_eq!(b.memory(9000, 4), [0; 4]);
    assert_eq!(b.counted().rnr_naks_sent, 0);
    assert_eq!(b.says(), NONE);
}

#[test]
fn a_receive_with_a_bad_key_fails_the_queue_pair() {
    let mut b = ready();
    let mut sge = b.sge(0, 64);
    sge.lkey.0 ^= 1;
    b.try_post_recv(1, &[sge]).unwrap();
    b.post_recv(2, 0, 64);
    b.hear(send_only(0, b"x").uc());
    assert_eq!(
        b.completed(),
        [
            (1, Status::LocalProtectionError),
            (2, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!((b.state(), b.says()), (State::Error, vec![]));
}

#[test]
fn the_first_message_in_rtr_is_told_once() {
    let mut b = Bench::new(Setup {
        state: State::Rtr,
        ..Setup::uc()
    });
    b.hear(write_only(0, b.remote(0), b"x").uc());
    b.hear(write_only(1, b.remote(0), b"x").uc());
    let number = b.qp.number();
    assert_eq!(b.events(), [AsyncEvent::CommunicationEstablished(number)]);
}

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
fn headers_that_contradict_the_opcode_are_dropped() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.hear(say(Opcode::RC_WRITE_ONLY, 0, Ext::None, b"x").uc());
    assert_eq!(b.refused(Refusal::Malformed), 1);
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
}
