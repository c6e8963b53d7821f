use super::*;
use crate::card::{CardConfig, Notify};
use crate::wire::{MacAddr, RouteTable};
use std::net::Ipv4Addr;

fn card() -> Card {
    let gid = Ipv4Addr::new(10, 0, 0, 1).into();
    let config = CardConfig::new("a", gid, MacAddr::default());
    Card::new(config, 1, RouteTable::new())
}

#[test]
fn numbers_come_back_after_all_others() {
    let mut card = card();
    let (pd, cq) = (card.alloc_pd(), card.create_cq(1).unwrap());
    let init = QpInit::new(QpType::Rc, pd, cq.id(), 1);
    let first = card.create_qp(&init).unwrap().number();
    card.destroy_qp(first).unwrap();
    for i in 1..MAX_QP {
        let number = card.create_qp(&init).unwrap().number();
        assert_eq!(number.get(), first.get() + i);
        if i > 4 {
            card.destroy_qp(number).unwrap();
        }
    }
    assert_eq!(card.create_qp(&init).unwrap().number(), first);
    assert_eq!(
        card.create_qp(&init).unwrap().number().get(),
        first.get() + 5
    );
}

/// Each kind of object is made and destroyed more often than there can be objects at a time.
#[test]
fn what_is_destroyed_makes_room_and_its_name_means_nothing_any_more() {
    let mut card = card();
    let pd = card.alloc_pd();
    let address = AddressVector::new(Ipv4Addr::new(10, 0, 0, 2).into());
    let mut old = None;
    for _ in 0..=MAX_PLACES {
        let cq = card.create_cq(1).unwrap();
        let srq = card.create_srq(pd, 1, 1).unwrap().id();
        let ah = card.create_ah(pd, &address).unwrap();
        if let Some((old_cq, old_srq, old_ah)) = old.replace((cq.id(), srq, ah)) {
            let unknown = card.request_notify(old_cq, Notify::Next);
            assert_eq!(unknown, Err(CreateError::UnknownCq(old_cq)));
            let unknown = card.set_srq_limit(old_srq, 1);
            assert_eq!(unknown, Err(CreateError::UnknownSrq(old_srq)));
            let unknown = card.destroy_ah(old_ah);
            assert_eq!(unknown, Err(CreateError::UnknownAddress(old_ah)));
        }
        card.destroy_cq(cq).unwrap();
        card.destroy_srq(srq).unwrap();
        card.destroy_ah(ah).unwrap();
    }
}

#[test]
fn queues_that_are_used_are_not_destroyed() {
    let mut card = card();
    let (pd, cq) = (card.alloc_pd(), card.create_cq(1).unwrap());
    let srq = card.create_srq(pd, 1, 1).unwrap().id();
    let init = QpInit {
        srq: Some(srq),
        ..QpInit::new(QpType::Rc, pd, cq.id(), 1)
    };
    let qps = [(), ()].map(|()| card.create_qp(&init).unwrap().number());
    let in_use = |what, users| CreateError::InUse { what, users };
    let srq_used = |users| Err(in_use("the shared receive queue", users));
    assert_eq!(card.destroy_srq(srq), srq_used(2));
    let (error, cq) = card.destroy_cq(cq).unwrap_err();
    assert_eq!(error, in_use("the completion queue", 4));
    card.destroy_qp(qps[0]).unwrap();
    assert_eq!(card.destroy_srq(srq), srq_used(1));
    card.destroy_qp(qps[1]).unwrap();
    card.destroy_srq(srq).unwrap();
    assert_eq!(card.destroy_srq(srq), Err(CreateError::UnknownSrq(srq)));
    assert_eq!(
        card.create_qp(&init).unwrap_err(),
        CreateError::UnknownSrq(srq)
    );
    card.destroy_cq(cq).unwrap();
}
