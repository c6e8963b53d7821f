//! The state machine of a queue pair, and what its program may do in each state.

use softroce_sim::card::{
    AsyncEvent, CreateError, ModifyError, PostError, QpAttributes, QpInit, QpType, QueuePair,
    RecvRequest, Refusal, Sge, State, Status, Work,
};
use softroce_sim::memory::{Access, Buffer};
use softroce_sim::time::Span;
use softroce_sim::wire::{Opcode, QpNumber};
use softroce_tests::bench::*;

const NONE: [&str; 0] = [];

fn in_state(state: State) -> Bench {
    Bench::new(Setup {
        state,
        ..Default::default()
    })
}

#[test]
fn c10_20_a_new_queue_pair_is_in_reset() {
    let b = in_state(State::Reset);
    assert_eq!((b.state(), b.qp.state()), (State::Reset, State::Reset));
}

#[test]
fn c10_22_c10_25_c10_29_posting_where_it_is_not_allowed_fails_at_once() {
    for (state, sends, receives) in [
        (State::Reset, false, false),
        (State::Init, false, true),
        (State::Rtr, false, true),
        (State::Rts, true, true),
        (State::Sqd, true, true),
        (State::Error, true, true),
    ] {
        let mut b = in_state(state);
        assert_eq!((b.state(), b.qp.state()), (state, state));
        let sge = [b.sge(0, 8)];
        let request = softroce_sim::card::SendRequest::new(1, Work::Send, &sge);
        let sent = b.try_post(&request);
        let received = b.try_post_recv(2, &sge);
        let error = |queue| Err(PostError::WrongState { state, queue });
        assert_eq!(sent, if sends { Ok(()) } else { error("send") }, "{state}");
        assert_eq!(
            received,
            if receives { Ok(()) } else { error("receive") },
            "{state}"
        );
        // C10-96: in ERROR it is taken, and completes in error.
        if state == State::Error {
            assert_eq!(
                b.completed(),
                [
                    (1, Status::WorkRequestFlushed),
                    (2, Status::WorkRequestFlushed)
                ]
            );
        } else {
            assert!(b.completed().is_empty());
        }
        // A request that was not taken leaves nothing behind.
        assert_eq!(
            b.qp.send_room() == 63,
            sends && state != State::Error,
            "{state}"
        );
    }
}

#[test]
fn queues_are_as_long_as_was_asked_for() {
    let mut b = Bench::new(Setup {
        max_wr: 5,
        ..Default::default()
    });
    let sge = [b.sge(0, 8)];
    for id in 0..5 {
        b.post_send(id, 8);
        b.post_recv(id, 0, 8);
    }
    assert_eq!(
        b.try_post_recv(5, &sge),
        Err(PostError::QueueFull { capacity: 5 })
    );
    assert_eq!(b.qp.send_room(), 0);
    assert_eq!(b.says().len(), 5);
    // Room comes back with completion, not with sending.
    assert_eq!(b.qp.send_room(), 0);
    b.hear(ack(1, 2));
    assert_eq!(b.qp.send_room(), 2);
    let many = vec![sge[0]; 9];
    assert_eq!(
        b.try_post_recv(6, &many),
        Err(PostError::TooManySges { count: 9, limit: 8 })
    );
}

#[test]
fn a_queue_pair_hears_nothing_before_rtr_and_in_error() {
    for state in [State::Reset, State::Init, State::Error] {
        let mut b = in_state(state);
        if state == State::Init {
            b.post_recv(1, 0, 8);
        }
        b.hear(send_only(0, b"x"));
        b.hear(ack(0, 1));
        assert_eq!(b.refused(Refusal::WrongState), 2, "{state}");
        assert_eq!(b.says(), NONE);
        assert!(b.completed().is_empty() && b.events().is_empty());
    }
    // In RTR it answers; responses are nothing it could wait for.
    let mut b = in_state(State::Rtr);
    b.post_recv(1, 0, 8);
    b.hear(ack(0, 1));
    assert_eq!(b.refused(Refusal::WrongState), 1);
    b.hear(send_only(0, b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    // Once.
    b.hear(write_only(1, b.remote(0), b"x"));
    assert_eq!(
        b.events(),
        [AsyncEvent::CommunicationEstablished(b.qp.number())]
    );
}

#[test]
fn each_change_needs_its_attributes_and_takes_no_others() {
    // 11.2.5.2, as ibv_modify_qp documents the masks for RC.
    let full = in_state(State::Reset).steps();
    let drop = |step: &QpAttributes, name: &str| {
        let mut s = *step;
        match name {
            "pkey_index" => s.pkey_index = None,
            "port" => s.port = None,
            "access" => s.access = None,
            "address" => s.address = None,
            "path_mtu" => s.path_mtu = None,
            "dest_qp" => s.dest_qp = None,
            "rq_psn" => s.rq_psn = None,
            "max_dest_rd_atomic" => s.max_dest_rd_atomic = None,
            "min_rnr_timer" => s.min_rnr_timer = None,
            "sq_psn" => s.sq_psn = None,
            "timeout" => s.timeout = None,
            "retry_cnt" => s.retry_cnt = None,
            "rnr_retry" => s.rnr_retry = None,
            "max_rd_atomic" => s.max_rd_atomic = None,
            _ => unreachable!(),
        }
        s
    };
    let needed: [&[&str]; 3] = [
        &["pkey_index", "port", "access"],
        &[
            "address",
            "path_mtu",
            "dest_qp",
            "rq_psn",
            "max_dest_rd_atomic",
            "min_rnr_timer",
        ],
        &[
            "sq_psn",
            "timeout",
            "retry_cnt",
            "rnr_retry",
            "max_rd_atomic",
        ],
    ];
    let states = [State::Reset, State::Init, State::Rtr];
    for i in 0..3 {
        for name in needed[i] {
            let mut b = in_state(states[i]);
            let got = b.modify(drop(&full[i], name));
            let is_it =
                matches!(got, Err(ModifyError::Missing { attribute, .. }) if attribute == *name);
            assert!(is_it, "{name}: {got:?}");
            assert_eq!(b.state(), states[i], "nothing is changed");
            b.modify(full[i]).unwrap();
        }
    }
    let mut b = in_state(State::Rts);
    let got = b.modify(QpAttributes {
        timeout: Some(1),
        ..Default::default()
    });
    assert!(matches!(
        got,
        Err(ModifyError::NotAllowed {
            attribute: "timeout",
            ..
        })
    ));
    let got = b.modify(QpAttributes {
        state: Some(State::Init),
        ..Default::default()
    });
    assert_eq!(
        got,
        Err(ModifyError::NoTransition {
            from: State::Rts,
            to: State::Init
        })
    );
    let got = b.modify(QpAttributes {
        cur_state: Some(State::Sqd),
        ..Default::default()
    });
    assert_eq!(
        got,
        Err(ModifyError::WrongCurrentState {
            given: State::Sqd,
            actual: State::Rts
        })
    );
    b.modify(QpAttributes {
        min_rnr_timer: Some(3),
        ..Default::default()
    })
    .unwrap();
    b.hear(send_only(0, b"x"));
    assert_eq!(b.says(), ["RNR NAK 0 timer 3 msn 0"]);
}

#[test]
fn values_out_of_range_are_refused_and_change_nothing() {
    let steps = in_state(State::Reset).steps();
    let mut rtr = steps[1];
    let mut address = rtr.address.unwrap();
    address.sl = 8;
    rtr.address = Some(address);
    let mut b = in_state(State::Init);
    let got = b.modify(rtr);
    assert_eq!(
        got,
        Err(ModifyError::OutOfRange {
            attribute: "sl",
            value: 8,
            limit: 7
        })
    );
    address.sl = 7;
    address.dgid = std::net::Ipv6Addr::LOCALHOST.into();
    rtr.address = Some(address);
    assert_eq!(b.modify(rtr), Err(ModifyError::Unreachable(address.dgid)));
    assert_eq!(b.state(), State::Init);
    b.modify(steps[1]).unwrap();
    for (attribute, limit, change) in [
        (
            "timeout",
            31,
            QpAttributes {
                timeout: Some(32),
                ..steps[2]
            },
        ),
        (
            "retry_cnt",
            7,
            QpAttributes {
                retry_cnt: Some(8),
                ..steps[2]
            },
        ),
        (
            "rnr_retry",
            7,
            QpAttributes {
                rnr_retry: Some(8),
                ..steps[2]
            },
        ),
    ] {
        assert_eq!(
            b.modify(change),
            Err(ModifyError::OutOfRange {
                attribute,
                value: limit + 1,
                limit
            })
        );
    }
    b.modify(steps[2]).unwrap();
    assert_eq!(
        b.card.modify_qp(b.now, QpNumber::new(2), &steps[2]),
        Err(ModifyError::UnknownQueuePair(QpNumber::new(2)))
    );
}

#[test]
fn error_flushes_everything_once_in_order() {
    let mut b = in_state(State::Rts);
    for id in 0..3 {
        b.post_send(id, 3000);
        b.post_recv(10 + id, 0, 3000);
    }
    b.says();
    b.hear(ack(2, 1));
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &[1; 1024]));
    b.hear(read(1, b.remote(0), 1));
    // Inside a SEND a READ is invalid: the receive that was taken fails, the rest is flushed.
    let completed = b.completed();
    assert_eq!(completed[0], (0, Status::Success));
    assert_eq!(completed[1], (10, Status::LocalQpOperationError));
    assert_eq!(
        completed[2..],
        [1, 2, 11, 12].map(|id| (id, Status::WorkRequestFlushed))
    );
    b.go_to(State::Error).unwrap();
    assert!(b.completed().is_empty());

    let mut b = in_state(State::Rts);
    b.post_send(1, 8);
    b.post_recv(2, 0, 8);
    b.says();
    b.go_to(State::Error).unwrap();
    assert_eq!(
        b.completed(),
        [
            (1, Status::WorkRequestFlushed),
            (2, Status::WorkRequestFlushed)
        ]
    );
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
    assert_eq!(b.card.counters().timeouts, 0);
}

#[test]
fn from_error_and_reset_a_connection_begins_afresh() {
    let mut b = in_state(State::Rts);
    for round in 0..3 {
        b.post_send(1, 3000);
        b.says();
        b.post_recv(2, 0, 8);
        b.hear(read(0, b.remote(0), 5000));
        if round == 1 {
            b.go_to(State::Error).unwrap();
            b.poll();
        }
        b.go_to(State::Reset).unwrap();
        // What was queued vanishes.
        assert!(b.completed().is_empty());
        assert_eq!((b.qp.send_room(), b.qp.recv_room()), (64, 64));
        assert_eq!(b.says(), NONE);
        assert!(b.card.next_timeout() > b.now);
        b.wait(Span::from_ms(200));
        b.bring_up(State::Rts).unwrap();
        b.still_works(0, 1);
        b.post_send(5, 8);
        assert_eq!(b.says(), ["Send Only 0 [8] ?"]);
        b.hear(ack(0, 1));
        assert_eq!(b.completed(), [(5, Status::Success)]);
        b.go_to(State::Reset).unwrap();
        b.bring_up(State::Rts).unwrap();
    }
}

#[test]
fn credits_count_from_the_connection_they_belong_to() {
    let mut b = in_state(State::Rts);
    for n in 0..5 {
        b.post_send(n, 8);
        b.says();
        b.hear(ack(n as u32, n as u32 + 1));
    }
    b.go_to(State::Reset).unwrap();
    b.bring_up(State::Rts).unwrap();
    b.poll();
    for id in 0..5 {
        b.post_send(id, 8);
    }
    b.pull();
    b.hear(ack_with_credits(0, 1, 1));
    assert_eq!(b.says(), ["Send Only 1 [8] ?", "Send Only 2 [8] ?"]);
}

fn drain(b: &mut Bench, event: Option<bool>) {
    b.modify(QpAttributes {
        state: Some(State::Sqd),
        sqd_event: event,
        ..Default::default()
    })
    .unwrap();
}

#[test]
fn sqd_finishes_what_is_under_way_and_begins_nothing_new() {
    let mut b = in_state(State::Rts);
    let drained = [AsyncEvent::SqDrained(b.qp.number())];
    b.post_send(1, 3000);
    b.post_send(2, 8);
    let first = b.pull().unwrap();
    assert_eq!(b.describe(&first), "Send First 0 [1024]");
    drain(&mut b, Some(true));
    assert_eq!(b.says(), ["Send Middle 1 [1024]", "Send Last 2 [952] ?"]);
    b.post_send(3, 8);
    assert_eq!(b.says(), NONE);
    // Retries go on, and the peer is served.
    b.wait(Span::from_ms(68));
    assert_eq!(b.says().len(), 3);
    b.still_works(0, 1);
    assert_eq!(b.events(), []);
    // Changing an attribute on the way does not forget that the event is due.
    b.modify(QpAttributes {
        min_rnr_timer: Some(1),
        ..Default::default()
    })
    .unwrap();
    b.hear(ack(2, 1));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.events(), drained);
    assert_eq!(b.state(), State::Sqd);
    b.wait(Span::from_ms(200));
    assert_eq!(b.says(), NONE);
    b.go_to(State::Rts).unwrap();
    assert_eq!(b.says(), ["Send Only 3 [8] ?", "Send Only 4 [8] ?"]);
    b.hear(ack(4, 3));
    assert_eq!(b.completed(), [(2, Status::Success), (3, Status::Success)]);
    assert_eq!(b.events(), []);
}

#[test]
fn sqd_of_an_idle_queue_is_drained_at_once_and_tells_if_asked() {
    for (ask, expected) in [(None, 0), (Some(false), 0), (Some(true), 1)] {
        let mut b = in_state(State::Rts);
        drain(&mut b, ask);
        assert_eq!(b.events().len(), expected);
    }
}

#[test]
fn a_destroyed_queue_pair_is_gone() {
    let mut b = in_state(State::Rts);
    b.post_send(1, 3000);
    b.post_recv(2, 0, 8);
    b.pull();
    b.hear(read(0, b.remote(0), 5000));
    let number = b.qp.number();
    b.card.destroy_qp(number).unwrap();
    assert_eq!(b.says(), NONE);
    b.hear(write_only(5, b.remote(0), b"x"));
    b.hear(ack(0, 1));
    assert_eq!(b.refused(Refusal::UnknownQueuePair), 2);
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
    assert!(b.completed().is_empty());
    assert_eq!(b.card.qp_state(number), None);
    assert_eq!(
        b.card.destroy_qp(number),
        Err(CreateError::UnknownQueuePair(number))
    );
    // Work that nobody would ever complete is not taken.
    let sge = [b.sge(0, 8)];
    assert!(b.try_post_recv(3, &sge).is_err());
}

#[test]
fn sizes_are_held_against_their_limits() {
    let mut b = in_state(State::Reset);
    let good = QpInit::new(QpType::Rc, b.pd, b.cq.id(), 1);
    for bad in [
        QpInit {
            max_send_wr: 0,
            ..good
        },
        QpInit {
            max_recv_wr: 0,
            ..good
        },
        QpInit {
            max_send_wr: softroce_sim::card::MAX_WR + 1,
            ..good
        },
        QpInit {
            max_recv_sge: softroce_sim::card::MAX_SGE + 1,
            ..good
        },
    ] {
        assert!(matches!(
            b.card.create_qp(&bad),
            Err(CreateError::OutOfRange { .. })
        ));
    }
    assert!(b.card.create_cq(0).is_err());
    let a = b.card.create_qp(&good).unwrap();
    let c = b.card.create_qp(&good).unwrap();
    assert_ne!(a.number(), c.number());
}

#[test]
fn a_completion_queue_that_runs_over_takes_its_queue_pairs_along() {
    // C9-218 and C11-37.
    let mut b = Bench::new(Setup {
        cqe: 2,
        ..Default::default()
    });
    for id in 0..4 {
        b.post_send(id, 8);
    }
    b.says();
    b.hear(ack(1, 2));
    assert_eq!(b.state(), State::Rts);
    b.hear(ack(2, 3));
    let number = b.qp.number();
    assert_eq!(
        b.events(),
        [AsyncEvent::CqError(b.cq.id()), AsyncEvent::QpFatal(number)]
    );
    assert_eq!((b.state(), b.qp.state()), (State::Error, State::Error));
    assert_eq!(b.completed(), [(0, Status::Success), (1, Status::Success)]);
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
    assert_eq!(b.card.counters().timeouts, 0, "an error state has no timer");
    assert!(b.completed().is_empty(), "it stays in error");
    assert!(b.events().is_empty());

    // By a receive.
    let mut b = Bench::new(Setup {
        cqe: 1,
        ..Default::default()
    });
    b.post_recv(1, 0, 8);
    b.post_recv(2, 0, 8);
    b.hear(send_only(0, b"x"));
    b.hear(send_only(1, b"y"));
    assert_eq!(
        b.events(),
        [
            AsyncEvent::CqError(b.cq.id()),
            AsyncEvent::QpFatal(b.qp.number())
        ]
    );
    assert_eq!(b.completed(), [(1, Status::Success)]);
}

/// Another queue pair with the same completion queue and the same peer.
fn another(b: &mut Bench) -> QueuePair {
    let init = QpInit::new(QpType::Rc, b.pd, b.cq.id(), 8);
    let other = b.card.create_qp(&init).unwrap();
    for step in b.steps() {
        b.card.modify_qp(b.now, other.number(), &step).unwrap();
    }
    other
}

#[test]
fn c11_37_others_learn_of_the_overrun_when_they_next_complete() {
    let mut b = Bench::new(Setup {
        cqe: 1,
        ..Default::default()
    });
    let mut other = another(&mut b);
    let sges = [b.sge(0, 8)];
    other
        .post_recv(&RecvRequest {
            wr_id: 7,
            sges: &sges,
        })
        .unwrap();
    b.post_recv(1, 0, 8);
    b.post_recv(2, 0, 8);
    b.hear(send_only(0, b"x"));
    b.hear(send_only(1, b"y"));
    b.events();
    assert_eq!(other.state(), State::Rts);
    b.hear(send_only(0, b"z").with(|h| h.with_dest_qp(other.number())));
    assert_eq!(b.events(), [AsyncEvent::QpFatal(other.number())]);
    assert_eq!(other.state(), State::Error);
}

#[test]
fn a_queue_pair_is_not_hurt_by_another_one() {
    let mut b = in_state(State::Rts);
    let other = another(&mut b);
    b.hear(send(Opcode::RC_SEND_MIDDLE, 0, b"x").with(|h| h.with_dest_qp(other.number())));
    assert_eq!(b.card.qp_state(other.number()), Some(State::Error));
    assert_eq!(b.says(), ["NAK 0 invalid request msn 0"]);
    b.events();
    b.still_works(0, 1);
}

#[test]
fn memory_without_local_write_takes_no_read_data() {
    let mut b = in_state(State::Rts);
    let mr = b
        .card
        .register(b.pd, Buffer::new(64), Access::LOCAL_READ)
        .unwrap();
    let sge = Sge {
        addr: mr.addr,
        len: 8,
        lkey: mr.lkey,
    };
    b.post(1, Work::Send, &[sge]);
    b.post(2, Work::Read(elsewhere()), &[sge]);
    b.says();
    b.hear(ack(0, 1));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, &[1; 8]));
    assert_eq!(
        b.completed(),
        [(1, Status::Success), (2, Status::LocalProtectionError)]
    );
}
