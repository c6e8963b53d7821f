//! What an unreliable connection takes, and what it drops.

use super::KIB;
use super::NONE;
use super::ready;
use super::three;
use super::three_writes;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{AsyncEvent, CompletionKind, Refusal, State, Status};
use softroce_sim::memory::Access;
use softroce_sim::wire::{Ext, Immediate, Opcode, QpNumber};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "What is whole is delivered, and nothing is acknowledged",
        [messages_are_delivered_and_never_acknowledged]
    ),
    rule!(
        Id("C9-165"),
        "A packet whose headers are bad is dropped silently",
        [a_packet_whose_headers_are_bad_is_dropped_silently]
    ),
    rule!(
        Id("C9-166"),
        "A message that lost a packet is forgotten, and the next is taken",
        [
            a_message_that_lost_any_packet_is_forgotten_and_the_next_is_taken,
            a_single_packet_that_is_lost_leaves_a_gap_and_nothing_else
        ]
    ),
    rule!(
        Behaviour,
        "A WRITE with a gap writes no more",
        [a_write_with_a_gap_writes_no_more]
    ),
    rule!(
        Section("9.8.2.2.1"),
        "The PSN is followed wherever it goes",
        [the_psn_is_followed_wherever_it_goes]
    ),
    rule!(
        Behaviour,
        "SENDs and WRITEs alternate",
        [sends_and_writes_alternate]
    ),
    rule!(
        Id("C9-167"),
        "An opcode that does not fit is dropped with its message",
        [an_opcode_that_does_not_fit_is_dropped_with_its_message]
    ),
    rule!(
        Behaviour,
        "A message that begins ends the one under way",
        [a_message_that_begins_ends_the_one_under_way]
    ),
    rule!(
        Behaviour,
        "Lengths that do not fit the place in the message are dropped",
        [lengths_that_do_not_fit_the_place_are_dropped]
    ),
    rule!(
        Behaviour,
        "Keys that do not open are dropped without a word",
        [keys_that_do_not_open_are_dropped_without_a_word]
    ),
    rule!(
        Behaviour,
        "A queue pair without the right takes no WRITEs",
        [a_queue_pair_without_the_right_takes_no_writes]
    ),
    rule!(
        Id("C9-168"),
        "Operations that want an answer are not heard",
        [operations_that_want_an_answer_are_not_heard]
    ),
    rule!(
        Section("11.6.2"),
        "A message longer than its receive fails the queue pair, and the peer hears nothing",
        [a_message_longer_than_its_receive_fails_the_queue_pair_without_a_word_to_the_peer]
    ),
    rule!(
        Behaviour,
        "Without a receive a message is lost as a whole",
        [without_a_receive_a_message_is_lost_as_a_whole]
    ),
    rule!(
        Behaviour,
        "A receive with a bad key fails the queue pair",
        [a_receive_with_a_bad_key_fails_the_queue_pair]
    ),
    rule!(
        Behaviour,
        "The first message in RTR is told once",
        [the_first_message_in_rtr_is_told_once]
    ),
    rule!(
        Behaviour,
        "Headers that contradict the opcode are dropped",
        [headers_that_contradict_the_opcode_are_dropped]
    ),
];

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

fn a_single_packet_that_is_lost_leaves_a_gap_and_nothing_else() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.hear(send_only(1, b"second").uc());
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(0, 6), b"second");
    assert_eq!(b.counted().out_of_sequence, 1);
}

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

fn an_opcode_that_does_not_fit_is_dropped_with_its_message() {
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

fn operations_that_want_an_answer_are_not_heard() {
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

fn a_message_longer_than_its_receive_fails_the_queue_pair_without_a_word_to_the_peer() {
    // 11.6.2. Only a datagram is dropped for it (C9-205); the kernel's driver too ends a UC queue pair
    // (`uc_short_recv` of its captures), though with another status.
    let at_once: fn(&mut Bench) = |b| b.hear(send_only(0, &[7; 1024]).uc());
    let in_the_middle: fn(&mut Bench) = |b| b.hear_all(three(0, 1).0);
    for arrive in [at_once, in_the_middle] {
        let mut b = ready();
        b.post_recv(1, 0, KIB as u32 - 1);
        b.post_recv(2, 4096, 4096);
        arrive(&mut b);
        assert_eq!(
            b.completed(),
            [
                (1, Status::LocalLengthError),
                (2, Status::WorkRequestFlushed)
            ]
        );
        assert_eq!((b.says(), b.state()), (vec![], State::Error));
        assert_eq!(b.memory(KIB - 1, 4 * KIB), vec![0; 4 * KIB]);
    }
    // A receive that is long enough for the first packet takes that.
    let mut b = ready();
    b.post_recv(1, 0, KIB as u32 + 5);
    in_the_middle(&mut b);
    assert_eq!(b.completed(), [(1, Status::LocalLengthError)]);
    assert_eq!(b.memory(0, KIB), pattern(1, KIB));
    assert_eq!(b.memory(KIB, 4 * KIB), vec![0; 4 * KIB]);
}

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

fn headers_that_contradict_the_opcode_are_dropped() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.hear(say(Opcode::RC_WRITE_ONLY, 0, Ext::None, b"x").uc());
    assert_eq!(b.refused(Refusal::Malformed), 1);
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
}

fn a_packet_whose_headers_are_bad_is_dropped_silently() {
    type Bend = fn(Say) -> Say;
    let bends: [Bend; 5] = [
        Say::damaged,
        |say| say.with(|h| h.with_tver(1)),
        |say| say.with(|h| h.with_pkey(0x8001)),
        |say| say.with(|h| h.with_opcode(Opcode(0xff))),
        |say| say.with(|h| h.with_dest_qp(QpNumber::new(2))),
    ];
    for bend in bends {
        for (setup, good) in [
            (Setup::uc(), send_only(0, b"good").uc()),
            (Setup::ud(), datagram(0, QKEY, b"good")),
        ] {
            let mut b = Bench::new(setup);
            b.post_recv(1, 0, 64);
            b.hear(bend(good.clone()));
            assert!(b.completed().is_empty() && b.events().is_empty());
            assert_eq!((b.says(), b.state()), (vec![], State::Rts));
            assert_eq!(b.memory(0, 64), [0; 64]);
            b.hear(good);
            assert_eq!(b.completed(), [(1, Status::Success)]);
        }
    }
}
