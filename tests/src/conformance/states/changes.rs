//! Changes of state and of attributes.

use super::NONE;
use super::in_state;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{
    AddressVector, AsyncEvent, CreateError, MAX_CQE, MAX_SGE, MAX_WR, ModifyError, QpAttributes,
    QpInit, QpType, Refusal, State, Status,
};
use softroce_sim::time::Span;
use softroce_sim::wire::QpNumber;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A queue pair hears nothing before RTR and in ERROR",
        [a_queue_pair_hears_nothing_before_rtr_and_in_error]
    ),
    rule!(
        Behaviour,
        "The first packet in RTR is told once",
        [the_first_packet_in_rtr_is_told_once]
    ),
    rule!(
        Id("CA16-18"),
        "Service levels above 7 are refused",
        [a_reserved_service_level_is_refused]
    ),
    rule!(
        Section("11.2.5.2"),
        "Each change needs its attributes and takes no others",
        [each_change_needs_its_attributes_and_takes_no_others]
    ),
    rule!(
        Behaviour,
        "Values out of range are refused and change nothing",
        [values_out_of_range_are_refused_and_change_nothing]
    ),
    rule!(
        Behaviour,
        "Sizes are held against their limits",
        [sizes_are_held_against_their_limits]
    ),
    rule!(
        Behaviour,
        "From ERROR and RESET a connection begins afresh",
        [from_error_and_reset_a_connection_begins_afresh]
    ),
    rule!(
        Behaviour,
        "Credits count from the connection they belong to",
        [credits_count_from_the_connection_they_belong_to]
    ),
    rule!(
        Behaviour,
        "SQD ends what is under way and begins nothing",
        [sqd_finishes_what_is_under_way_and_begins_nothing_new]
    ),
    rule!(
        Behaviour,
        "An idle queue is drained at once, and tells if it was asked to",
        [sqd_of_an_idle_queue_is_drained_at_once_and_tells_if_asked]
    ),
    rule!(
        Behaviour,
        "A queue pair that is destroyed is gone",
        [a_destroyed_queue_pair_is_gone]
    ),
];

fn drain(b: &mut Bench, event: Option<bool>) {
    b.modify(QpAttributes {
        state: Some(State::Sqd),
        sqd_event: event,
        ..Default::default()
    })
    .unwrap();
}

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
}

fn the_first_packet_in_rtr_is_told_once() {
    let mut b = in_state(State::Rtr);
    let at = b.remote(0);
    for n in 0..3 {
        b.hear(write_only(n, at, b"x"));
    }
    assert_eq!(
        b.events(),
        [AsyncEvent::CommunicationEstablished(b.qp.number())]
    );
    // In RTS nobody needs to be told.
    let mut b = in_state(State::Rts);
    b.hear(write_only(0, b.remote(0), b"x"));
    assert!(b.events().is_empty());
}

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
    let got = b.modify(QpAttributes::to(State::Init));
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

fn values_out_of_range_are_refused_and_change_nothing() {
    let steps = in_state(State::Reset).steps();
    let mut rtr = steps[1];
    let mut b = in_state(State::Init);
    let mut address = rtr.address.unwrap();
    address.dgid = std::net::Ipv6Addr::LOCALHOST.into();
    rtr.address = Some(address);
    assert_eq!(b.modify(rtr), Err(ModifyError::Unreachable(address.dgid)));
    // A connection has one peer, not a group of them.
    address.dgid = std::net::Ipv4Addr::new(239, 1, 2, 3).into();
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
            max_send_wr: MAX_WR + 1,
            ..good
        },
        QpInit {
            max_recv_sge: MAX_SGE + 1,
            ..good
        },
    ] {
        assert!(matches!(
            b.card.create_qp(&bad),
            Err(CreateError::OutOfRange { .. })
        ));
    }
    assert!(b.card.create_cq(0).is_err());
    // The limits are those of ConnectX cards, and of rdma_rxe for elements.
    assert_eq!((MAX_CQE, MAX_WR, MAX_SGE), (4_194_303, 32_768, 32));
    assert!(b.card.create_cq(MAX_CQE + 1).is_err());
    let a = b.card.create_qp(&good).unwrap();
    let c = b.card.create_qp(&good).unwrap();
    assert_ne!(a.number(), c.number());
}

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
        // Answers that nobody fetched end with the connection.
        b.hear(write_only(1, b.remote(0), b"x"));
        b.go_to(State::Reset).unwrap();
        b.bring_up(State::Rts).unwrap();
        assert_eq!(b.says(), NONE);
    }
}

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

fn sqd_of_an_idle_queue_is_drained_at_once_and_tells_if_asked() {
    for (ask, expected) in [(None, 0), (Some(false), 0), (Some(true), 1)] {
        let mut b = in_state(State::Rts);
        drain(&mut b, ask);
        assert_eq!(b.events().len(), expected);
        // Nor does what is changed later tell what was told, or was not asked for.
        b.modify(QpAttributes {
            min_rnr_timer: Some(1),
            ..Default::default()
        })
        .unwrap();
        assert_eq!(b.events(), []);
    }
}

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

fn a_reserved_service_level_is_refused() {
    for sl in 8..16 {
        let mut b = in_state(State::Init);
        let mut rtr = b.steps()[1];
        let mut address = rtr.address.unwrap();
        address.sl = sl;
        rtr.address = Some(address);
        let refused = ModifyError::OutOfRange {
            attribute: "sl",
            value: sl.into(),
            limit: 7,
        };
        assert_eq!(b.modify(rtr), Err(refused));
        assert_eq!(b.state(), State::Init);
        let address = AddressVector { sl, ..address };
        assert!(b.card.create_ah(b.pd, &address).is_err(), "{sl}");
    }
}
