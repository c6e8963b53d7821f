//! Shared receive queues: one queue of receives for many queue pairs.

use softroce_sim::card::{
    AsyncEvent, CreateError, PostError, QpInit, QpType, RecvRequest, Refusal, State, Status,
};
use softroce_sim::wire::{Opcode, QpNumber, Syndrome};
use softroce_tests::bench::*;

const NONE: [&str; 0] = [];

fn shared(service: QpType) -> Bench {
    Bench::new(Setup {
        service,
        srq: Some(16),
        ..Default::default()
    })
}

fn ready() -> Bench {
    shared(QpType::Rc)
}

/// Which queue pair took which receive.
fn taken(b: &mut Bench) -> Vec<(u64, QpNumber, Status)> {
    let all = b.poll();
    all.iter().map(|c| (c.wr_id, c.qp, c.status)).collect()
}

#[test]
fn receives_are_used_in_order_whoever_comes() {
    let mut b = ready();
    let (one, two) = (b.qp.number(), b.another().number());
    for id in 0..4 {
        b.post_recv(id, id * 100, 64);
    }
    b.hear(send_only(0, b"a").to(two));
    b.hear(send_only(0, b"b"));
    b.hear(send_only(1, b"c"));
    b.hear(write_imm(1, b.remote(9000), b"d", 3).to(two));
    let ok = Status::Success;
    assert_eq!(
        taken(&mut b),
        [(0, two, ok), (1, one, ok), (2, one, ok), (3, two, ok)]
    );
    assert_eq!(
        [b.memory(0, 1), b.memory(100, 1), b.memory(200, 1)].concat(),
        b"abc"
    );
    assert_eq!(b.srq.as_mut().unwrap().room(), 16);
}

#[test]
fn messages_under_way_hold_a_receive_each() {
    let mut b = ready();
    let (one, two) = (b.qp.number(), b.another().number());
    b.post_recv(1, 0, 3000);
    b.post_recv(2, 4000, 3000);
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &[1; 1024]).to(two));
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &[2; 1024]));
    b.hear(send(Opcode::RC_SEND_LAST, 1, &[3; 5]).ask());
    b.hear(send(Opcode::RC_SEND_LAST, 1, &[4; 7]).to(two).ask());
    let ok = Status::Success;
    assert_eq!(taken(&mut b), [(2, one, ok), (1, two, ok)]);
    assert_eq!(b.memory(0, 1032), [&[1; 1024][..], &[4; 7], &[0]].concat());
    assert_eq!(
        b.memory(4000, 1030),
        [&[2; 1024][..], &[3; 5], &[0]].concat()
    );
}

#[test]
fn an_empty_queue_puts_the_peer_off() {
    let mut b = ready();
    b.hear(send_only(0, b"x"));
    assert_eq!(b.says(), ["RNR NAK 0 timer 12 msn 0"]);
    b.post_recv(1, 0, 64);
    b.hear(send_only(0, b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    for setup in [Setup::uc(), Setup::ud()] {
        let mut b = shared(setup.service);
        b.hear(match setup.service {
            QpType::Uc => send_only(0, b"x").uc(),
            _ => datagram(0, QKEY, b"x"),
        });
        assert_eq!(b.refused(Refusal::ReceiverNotReady), 1);
        assert_eq!(b.says(), NONE);
    }
}

#[test]
fn acknowledgements_promise_nothing() {
    // 9.7.7.2: who shares its receives cannot say how many there are for it.
    for posted in [0, 5] {
        let mut b = ready();
        for id in 0..posted {
            b.post_recv(id, 0, 64);
        }
        b.hear(write_only(0, b.remote(0), b"x"));
        let p = b.pull().unwrap();
        assert_eq!(p.ext.aeth().unwrap().syndrome, Syndrome::ack(31));
    }
}

#[test]
fn the_limit_is_told_once() {
    let mut b = ready();
    let srq = b.srq.as_ref().unwrap().id();
    for id in 0..5 {
        b.post_recv(id, 0, 64);
    }
    b.card.set_srq_limit(srq, 3).unwrap();
    b.hear_all([send_only(0, b"x"), send_only(1, b"x")]);
    assert!(b.events().is_empty(), "three wait");
    b.hear(send_only(2, b"x"));
    assert_eq!(b.events(), [AsyncEvent::SrqLimitReached(srq)]);
    b.hear(send_only(3, b"x"));
    assert!(b.events().is_empty(), "it is disarmed");
    // Armed again it is told again.
    b.card.set_srq_limit(srq, 1).unwrap();
    b.hear(send_only(4, b"x"));
    assert_eq!(b.events(), [AsyncEvent::SrqLimitReached(srq)]);
    // Zero is off; more than the queue holds is refused.
    b.card.set_srq_limit(srq, 0).unwrap();
    b.post_recv(9, 0, 64);
    b.hear(send_only(5, b"x"));
    assert!(b.events().is_empty());
    assert!(matches!(
        b.card.set_srq_limit(srq, 17),
        Err(CreateError::OutOfRange {
            what: "srq_limit",
            value: 17,
            ..
        })
    ));
}

#[test]
fn a_queue_pair_in_error_flushes_nothing_of_it() {
    let mut b = ready();
    let (one, two) = (b.qp.number(), b.another().number());
    b.post_recv(1, 0, 3000);
    b.post_recv(2, 4000, 64);
    // The one a message had taken is flushed, the other is for the others.
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &[1; 1024]));
    b.go_to(State::Error).unwrap();
    assert_eq!(taken(&mut b), [(1, one, Status::WorkRequestFlushed)]);
    assert_eq!(b.events(), [AsyncEvent::LastWqeReached(one)]);
    // Receives may still be posted.
    b.post_recv(3, 0, 64);
    b.hear_all([send_only(0, b"x").to(two), send_only(1, b"x").to(two)]);
    let ok = Status::Success;
    assert_eq!(taken(&mut b), [(2, two, ok), (3, two, ok)]);
}

#[test]
fn o11_5_2_5_the_last_receive_is_told_however_a_queue_pair_fails() {
    type Break = fn(&mut Bench);
    let ways: [(&str, Break); 8] = [
        ("by the program", |b| b.go_to(State::Error).unwrap()),
        ("a peer's bad key", |b| {
            let mut at = b.remote(0);
            at.rkey.0 ^= 1;
            b.hear(write_only(0, at, b"x"));
        }),
        ("a receive that is too short", |b| {
            b.post_recv(1, 0, 1);
            b.hear(send_only(0, b"xx"));
        }),
        ("a receive with a bad key", |b| {
            let mut sge = b.sge(0, 8);
            sge.lkey.0 ^= 1;
            b.try_post_recv(1, &[sge]).unwrap();
            b.hear(send_only(0, b"xx"));
        }),
        ("a key that cannot be invalidated", |b| {
            b.post_recv(1, 0, 8);
            let key = b.mr.rkey;
            b.hear(send_invalidate(0, b"x", key));
        }),
        ("a local error of a request", |b| {
            let mut sge = b.sge(0, 8);
            sge.lkey.0 ^= 1;
            b.post(1, softroce_sim::card::Work::Send, &[sge]);
            b.says();
        }),
        ("a peer's refusal", |b| {
            b.post_send(1, 8);
            b.says();
            b.hear(nak(0, softroce_sim::wire::NakCode::InvalidRequest));
        }),
        ("no answer", |b| {
            b.post_send(1, 8);
            for _ in 0..9 {
                b.says();
                b.wait(softroce_sim::time::Span::from_ms(68));
            }
        }),
    ];
    for (what, fail) in ways {
        let mut b = ready();
        fail(&mut b);
        assert_eq!(b.state(), State::Error, "{what}");
        let last = AsyncEvent::LastWqeReached(b.qp.number());
        let count = |b: &mut Bench| b.events().iter().filter(|&&e| e == last).count();
        assert_eq!(count(&mut b), 1, "{what}");
        b.go_to(State::Error).unwrap();
        assert_eq!(count(&mut b), 0, "{what}: once");
        // It may be used and fail again.
        b.go_to(State::Reset).unwrap();
        b.bring_up(State::Rts).unwrap();
        b.go_to(State::Error).unwrap();
        assert_eq!(count(&mut b), 1, "{what}: again");
    }
    // One with receives of its own sees the end in its completions.
    let mut b = Bench::ready();
    b.go_to(State::Error).unwrap();
    assert!(b.events().is_empty());
}

#[test]
fn requests_go_to_the_shared_queue_alone_and_within_its_sizes() {
    let mut b = ready();
    let sges = [b.sge(0, 8); 9];
    let own = b.qp.post_recv(&RecvRequest {
        wr_id: 1,
        sges: &sges[..1],
    });
    assert_eq!(own, Err(PostError::SharedReceiveQueue));
    assert_eq!(b.qp.recv_room(), 0);
    assert_eq!(
        b.try_post_recv(1, &sges),
        Err(PostError::TooManySges { count: 9, limit: 8 })
    );
    for id in 0..16 {
        b.try_post_recv(id, &sges[..8]).unwrap();
    }
    assert_eq!(
        b.try_post_recv(16, &sges[..1]),
        Err(PostError::QueueFull { capacity: 16 })
    );
    b.hear(send_only(0, &[5; 64]));
    assert_eq!(b.completed(), [(0, Status::Success)]);
    b.try_post_recv(16, &sges[..1]).unwrap();
}

#[test]
fn sizes_and_domains_are_checked_when_it_is_made() {
    let mut b = ready();
    let other = b.card.alloc_pd();
    for (wr, sge) in [(0, 1), (1, 0), (1 << 16, 1), (1, 33)] {
        assert!(matches!(
            b.card.create_srq(other, wr, sge),
            Err(CreateError::OutOfRange { .. })
        ));
    }
    let srq = b.srq.as_ref().unwrap().id();
    let init = QpInit {
        srq: Some(srq),
        ..QpInit::new(QpType::Rc, other, b.cq.id(), 4)
    };
    assert_eq!(
        b.card.create_qp(&init).err(),
        Some(CreateError::UnknownSrq(srq))
    );
    // The sizes of a receive queue of its own are not looked at.
    let init = QpInit {
        pd: b.pd,
        max_recv_wr: 0,
        max_recv_sge: 0,
        ..init
    };
    b.card.create_qp(&init).unwrap();
}

#[test]
fn a_datagram_that_does_not_fit_leaves_its_receive_for_the_next() {
    let mut b = shared(QpType::Ud);
    b.post_recv(1, 0, 41);
    b.post_recv(2, 100, 64);
    b.hear(datagram(0, QKEY, b"xx"));
    assert!(b.completed().is_empty());
    b.hear(datagram(0, QKEY, b"y"));
    b.hear(datagram(0, QKEY, b"zz"));
    assert_eq!(b.completed(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(
        (b.memory(40, 1), b.memory(140, 2)),
        (b"y".to_vec(), b"zz".to_vec())
    );
}
