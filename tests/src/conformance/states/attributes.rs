//! Which attributes each change of state needs and takes, for every service.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Section};
use softroce_sim::card::QpType::{Rc, Uc, Ud};
use softroce_sim::card::State::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
use softroce_sim::card::{ModifyError, Mtu, QpAttributes, QpType, SendRequest, State, Work};
use softroce_sim::wire::{MacAddr, Psn, QpNumber};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Section("11.2.5.2"),
        "Every service has attributes of its own for each change",
        [every_service_has_attributes_of_its_own_for_each_change]
    ),
    rule!(
        Behaviour,
        "A current state may be named with any change, and must be right",
        [a_current_state_may_be_named_with_any_change_and_must_be_right]
    ),
];

/// Service, states before and after, what is needed, what is taken beside: as ibv_modify_qp(3) lists the
/// needed ones, and as the state table of Linux' verbs core has the others. What a RoCE port and this card have no
/// alternative for is left out: alternate paths, path migration, another port in SQD.
type Change = (
    QpType,
    State,
    State,
    &'static [&'static str],
    &'static [&'static str],
);

const CHANGES: &[Change] = &[
    (Rc, Reset, Init, &["pkey_index", "port", "access"], &[]),
    (Uc, Reset, Init, &["pkey_index", "port", "access"], &[]),
    (Ud, Reset, Init, &["pkey_index", "port", "qkey"], &[]),
    (Rc, Init, Init, &[], &["pkey_index", "port", "access"]),
    (Uc, Init, Init, &[], &["pkey_index", "port", "access"]),
    (Ud, Init, Init, &[], &["pkey_index", "port", "qkey"]),
    (
        Rc,
        Init,
        Rtr,
        &[
            "address",
            "path_mtu",
            "dest_qp",
            "rq_psn",
            "max_dest_rd_atomic",
            "min_rnr_timer",
        ],
        &["pkey_index", "access"],
    ),
    (
        Uc,
        Init,
        Rtr,
        &["address", "path_mtu", "dest_qp", "rq_psn"],
        &["pkey_index", "access"],
    ),
    (Ud, Init, Rtr, &[], &["pkey_index", "qkey"]),
    (
        Rc,
        Rtr,
        Rts,
        &[
            "sq_psn",
            "timeout",
            "retry_cnt",
            "rnr_retry",
            "max_rd_atomic",
        ],
        &["access", "min_rnr_timer"],
    ),
    (Uc, Rtr, Rts, &["sq_psn"], &["access"]),
    (Ud, Rtr, Rts, &["sq_psn"], &["qkey"]),
    (Rc, Rts, Rts, &[], &["access", "min_rnr_timer"]),
    (Uc, Rts, Rts, &[], &["access"]),
    (Ud, Rts, Rts, &[], &["qkey"]),
    (Rc, Rts, Sqd, &[], &["sqd_event"]),
    (Uc, Rts, Sqd, &[], &["sqd_event"]),
    (Ud, Rts, Sqd, &[], &["sqd_event"]),
    (
        Rc,
        Sqd,
        Sqd,
        &[],
        &[
            "pkey_index",
            "access",
            "address",
            "max_dest_rd_atomic",
            "max_rd_atomic",
            "min_rnr_timer",
            "timeout",
            "retry_cnt",
            "rnr_retry",
            "sqd_event",
        ],
    ),
    (
        Uc,
        Sqd,
        Sqd,
        &[],
        &["pkey_index", "access", "address", "sqd_event"],
    ),
    (Ud, Sqd, Sqd, &[], &["pkey_index", "qkey", "sqd_event"]),
    (Rc, Sqd, Rts, &[], &["access", "min_rnr_timer"]),
    (Uc, Sqd, Rts, &[], &["access"]),
    (Ud, Sqd, Rts, &[], &["qkey"]),
    (Uc, Sqe, Rts, &[], &["access"]),
    (Ud, Sqe, Rts, &[], &["qkey"]),
    (Rc, Rts, Reset, &[], &[]),
    (Uc, Sqe, Reset, &[], &[]),
    (Ud, Init, Reset, &[], &[]),
    (Rc, Rts, Error, &[], &[]),
    (Uc, Rtr, Error, &[], &[]),
    (Ud, Sqe, Error, &[], &[]),
];

const ATTRIBUTES: [&str; 16] = [
    "pkey_index",
    "port",
    "access",
    "address",
    "path_mtu",
    "dest_qp",
    "rq_psn",
    "sq_psn",
    "max_dest_rd_atomic",
    "max_rd_atomic",
    "min_rnr_timer",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "sqd_event",
    "qkey",
];

fn set(a: &mut QpAttributes, name: &str) {
    match name {
        "pkey_index" => a.pkey_index = Some(0),
        "port" => a.port = Some(1),
        "access" => a.access = Some(all_rights()),
        "address" => a.address = Some(address_of(peer_gid(), MacAddr([2, 0, 0, 0, 0, 2]))),
        "path_mtu" => a.path_mtu = Some(Mtu::M1024),
        "dest_qp" => a.dest_qp = Some(QpNumber::new(PEER_QP)),
        "rq_psn" => a.rq_psn = Some(Psn::new(1)),
        "sq_psn" => a.sq_psn = Some(Psn::new(1)),
        "max_dest_rd_atomic" => a.max_dest_rd_atomic = Some(1),
        "max_rd_atomic" => a.max_rd_atomic = Some(1),
        "min_rnr_timer" => a.min_rnr_timer = Some(1),
        "timeout" => a.timeout = Some(1),
        "retry_cnt" => a.retry_cnt = Some(1),
        "rnr_retry" => a.rnr_retry = Some(1),
        "sqd_event" => a.sqd_event = Some(true),
        "qkey" => a.qkey = Some(1),
        _ => unreachable!(),
    }
}

fn change_to(to: State, names: &[&str]) -> QpAttributes {
    let mut a = QpAttributes::to(to);
    names.iter().for_each(|name| set(&mut a, name));
    a
}

fn in_state_of(service: QpType, state: State) -> Bench {
    let mut b = Bench::new(Setup {
        service,
        state: if state == Sqe { Rts } else { state },
        memory: 64,
        ..Default::default()
    });
    if state == Sqe {
        // What cannot be read cannot be sent.
        let mut sge = b.sge(0, 8);
        sge.lkey.0 ^= 1;
        let sges = [sge];
        let request = SendRequest {
            to: (service == Ud).then_some(b.peer_qp()),
            ..SendRequest::new(1, Work::Send, &sges)
        };
        b.try_post(&request).unwrap();
        b.says();
    }
    assert_eq!(b.state(), state);
    b
}

fn every_service_has_attributes_of_its_own_for_each_change() {
    for &(service, from, to, needed, taken) in CHANGES {
        for attribute in ATTRIBUTES {
            let mut b = in_state_of(service, from);
            let what = format!("{service:?} {from} to {to}: {attribute}");
            if needed.contains(&attribute) {
                let others: Vec<_> = needed.iter().copied().filter(|&n| n != attribute).collect();
                let missing = ModifyError::Missing {
                    attribute,
                    from,
                    to,
                };
                assert_eq!(b.modify(change_to(to, &others)), Err(missing), "{what}");
                assert_eq!(b.state(), from, "{what}");
            } else {
                let more = [needed, &[attribute]].concat();
                let refused = Err(ModifyError::NotAllowed {
                    attribute,
                    from,
                    to,
                });
                let is_taken = taken.contains(&attribute);
                let expected = if is_taken { Ok(()) } else { refused };
                assert_eq!(b.modify(change_to(to, &more)), expected, "{what}");
                assert_eq!(b.state(), if is_taken { to } else { from }, "{what}");
            }
        }
        let mut b = in_state_of(service, from);
        b.modify(change_to(to, needed)).unwrap();
        assert_eq!(b.state(), to);
    }
}

fn a_current_state_may_be_named_with_any_change_and_must_be_right() {
    for &(service, from, to, needed, _) in CHANGES {
        let mut b = in_state_of(service, from);
        let given = if from == Rtr { Rts } else { Rtr };
        let wrong = QpAttributes {
            cur_state: Some(given),
            ..change_to(to, needed)
        };
        let actual = from;
        let error = ModifyError::WrongCurrentState { given, actual };
        assert_eq!(b.modify(wrong), Err(error), "{service:?} {from} to {to}");
        let right = QpAttributes {
            cur_state: Some(from),
            ..wrong
        };
        assert_eq!(b.modify(right), Ok(()), "{service:?} {from} to {to}");
        assert_eq!(b.state(), to);
    }
}
