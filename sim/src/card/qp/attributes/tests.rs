use super::*;
use State::{Error, Init, Reset, Rtr, Rts, Sqd};

fn to(state: State) -> QpAttributes {
    QpAttributes::to(state)
}

fn init() -> QpAttributes {
    QpAttributes::to_init(Access::LOCAL_WRITE)
}

/// Each service's three steps, and which fields of attributes are then there: those that the service
/// needs, so that one more or one less is refused.
#[test]
fn three_steps_bring_every_service_up() {
    let peer = Peer {
        address: AddressVector {
            dgid: std::net::Ipv4Addr::new(10, 0, 0, 2).into(),
            dmac: MacAddr::default(),
            sl: 3,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            udp_src: None,
            vlan: None,
        },
        path_mtu: Mtu::M1024,
        qp: QpNumber::new(17),
        psn: Psn::new(5),
    };
    let reliability = Reliability::default();
    for (qp_type, [init, rtr, rts]) in [
        (
            QpType::Rc,
            [
                QpAttributes::to_init(Access::LOCAL_WRITE),
                QpAttributes::to_rtr(&peer, Some(&reliability)),
                QpAttributes::to_rts(Psn::new(1), Some(&reliability)),
            ],
        ),
        (
            QpType::Uc,
            [
                QpAttributes::to_init(Access::LOCAL_WRITE),
                QpAttributes::to_rtr(&peer, None),
                QpAttributes::to_rts(Psn::new(1), None),
            ],
        ),
        (
            QpType::Ud,
            [
                QpAttributes::to_init_datagrams(7),
                QpAttributes::to(Rtr),
                QpAttributes::to_rts(Psn::new(1), None),
            ],
        ),
    ] {
        for (step, from, to) in [(init, Reset, Init), (rtr, Init, Rtr), (rts, Rtr, Rts)] {
            assert_eq!(step.check(qp_type, from), Ok(to), "{qp_type:?}");
            let (required, _) = transition(qp_type, from, to).unwrap();
            assert_eq!(step.mask(), required, "{qp_type:?}: {from} to {to}");
        }
    }
}

#[test]
fn the_state_diagram() {
    let allowed = [
        (Reset, Init),
        (Init, Init),
        (Init, Rtr),
        (Rtr, Rts),
        (Rts, Rts),
        (Rts, Sqd),
        (Sqd, Rts),
        (Sqd, Sqd),
    ];
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for from in State::ALL {
            for target in State::ALL {
                let recovers = qp_type != QpType::Rc && (from, target) == (State::Sqe, Rts);
                let expected = matches!(target, Reset | Error)
                    || allowed.contains(&(from, target))
                    || recovers;
                let is = transition(qp_type, from, target).is_some();
                assert_eq!(is, expected, "{qp_type:?}: {from} to {target}");
            }
        }
    }
}

#[test]
fn datagrams_need_a_qkey_and_no_path() {
    let init = QpAttributes {
        access: None,
        qkey: Some(7),
        ..init()
    };
    assert_eq!(init.check(QpType::Ud, Reset), Ok(Init));
    assert_eq!(to(Rtr).check(QpType::Ud, Init), Ok(Rtr));
    assert_eq!(
        init.check(QpType::Uc, Reset),
        Err(ModifyError::Missing {
            attribute: "access",
            from: Reset,
            to: Init
        })
    );
}

#[test]
fn each_required_attribute_is_asked_for_by_name() {
    assert_eq!(init().check(QpType::Rc, Reset), Ok(Init));
    assert_eq!(
        QpAttributes {
            port: None,
            ..init()
        }
        .check(QpType::Rc, Reset),
        Err(ModifyError::Missing {
            attribute: "port",
            from: Reset,
            to: Init
        })
    );
    assert_eq!(
        QpAttributes {
            rq_psn: Some(Psn::new(1)),
            ..init()
        }
        .check(QpType::Rc, Reset),
        Err(ModifyError::NotAllowed {
            attribute: "rq_psn",
            from: Reset,
            to: Init
        })
    );
    assert_eq!(
        to(Rts).check(QpType::Rc, Init),
        Err(ModifyError::NoTransition {
            from: Init,
            to: Rts
        })
    );
    assert_eq!(
        QpAttributes {
            cur_state: Some(Rtr),
            ..init()
        }
        .check(QpType::Rc, Reset),
        Err(ModifyError::WrongCurrentState {
            given: Rtr,
            actual: Reset
        })
    );
}

#[test]
fn values_are_held_against_their_limits() {
    type Set = fn(&mut QpAttributes, u64);
    let reads = u64::from(crate::card::qp::MAX_RD_ATOMIC);
    let values: [(&str, u64, Set); 8] = [
        ("pkey_index", 0, |a, n| a.pkey_index = Some(n as u16)),
        ("port", 1, |a, n| a.port = Some(n as u8)),
        ("min_rnr_timer", 31, |a, n| a.min_rnr_timer = Some(n as u8)),
        ("timeout", 31, |a, n| a.timeout = Some(n as u8)),
        ("retry_cnt", 7, |a, n| a.retry_cnt = Some(n as u8)),
        ("rnr_retry", 7, |a, n| a.rnr_retry = Some(n as u8)),
        ("max_rd_atomic", reads, |a, n| {
            a.max_rd_atomic = Some(n as u8)
        }),
        ("max_dest_rd_atomic", reads, |a, n| {
            a.max_dest_rd_atomic = Some(n as u8)
        }),
    ];
    for (attribute, limit, set) in values {
        let mut a = QpAttributes::default();
        set(&mut a, limit);
        assert_eq!(a.check_ranges(), Ok(()), "{attribute}");
        set(&mut a, limit + 1);
        assert_eq!(
            a.check_ranges(),
            Err(ModifyError::OutOfRange {
                attribute,
                value: limit + 1,
                limit
            })
        );
    }
}
