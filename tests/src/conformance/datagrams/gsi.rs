//! Queue pair 1, the one of the general services.

use super::ready;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id};
use softroce_sim::card::{
    CompletionQueue, CreateError, Datagram, ModifyError, QpAttributes, QpInit, QpType, QueuePair,
    RecvRequest, Refusal, SendRequest, State, Status, Work,
};
use softroce_sim::wire::mad::GSI_QKEY;
use softroce_sim::wire::{Psn, QpNumber};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("C9-49"),
        "Queue pair 1 has the Q_Key that everybody knows",
        [
            queue_pair_1_hears_its_qkey_alone,
            queue_pair_1_is_given_no_other_qkey,
            queue_pair_1_sends_its_qkey
        ]
    ),
    rule!(
        Id("C9-42"),
        "Queue pair 1 hears any partition of the port's table",
        [queue_pair_1_hears_the_partitions_of_the_port]
    ),
    rule!(
        Id("C11-15"),
        "A completion queue serves queue pair 1 or ordinary ones",
        [a_completion_queue_serves_queue_pair_1_or_ordinary_ones]
    ),
    rule!(
        Behaviour,
        "There is one queue pair 1, for datagrams, once it is made",
        [there_is_one_queue_pair_1_once_it_is_made]
    ),
];

fn gsi(b: &mut Bench) -> (QueuePair, CompletionQueue) {
    let cq = b.card.create_cq(8).unwrap();
    let init = QpInit::new(QpType::Ud, b.pd, cq.id(), 8);
    let mut qp = b.card.create_gsi_qp(&init).unwrap();
    for step in [
        QpAttributes::to_init_datagrams(GSI_QKEY),
        QpAttributes::to(State::Rtr),
        QpAttributes::to_rts(Psn::new(0), None),
    ] {
        b.card.modify_qp(b.now, QpNumber::GSI, &step).unwrap();
    }
    for wr_id in 0..4 {
        let sges = [b.sge(0, 64)];
        qp.post_recv(&RecvRequest { wr_id, sges: &sges }).unwrap();
    }
    (qp, cq)
}

/// A datagram to queue pair 1 of this partition.
fn hear(b: &mut Bench, qkey: u32, pkey: u16) {
    let mut packet = b.packet_of(datagram(0, qkey, b"MAD"));
    packet.bth = packet.bth.with_dest_qp(QpNumber::GSI).with_pkey(pkey);
    let route = b.route;
    b.card.receive(b.now, &packet, &route, &mut b.env);
}

fn queue_pair_1_hears_its_qkey_alone() {
    let mut b = ready();
    let (_qp, mut cq) = gsi(&mut b);
    hear(&mut b, GSI_QKEY, 0xffff);
    let c = cq.poll().unwrap();
    assert_eq!((c.status, c.qp), (Status::Success, QpNumber::GSI));
    assert_eq!((c.byte_len, c.src_qp.get()), (43, PEER_QP));
    assert_eq!(b.memory(40, 3), b"MAD");
    hear(&mut b, QKEY, 0xffff);
    assert!(cq.poll().is_none());
    assert_eq!(b.refused(Refusal::BadQkey), 1);
    // The other queue pair is not spoken to with it.
    b.post_recv(1, 0, 64);
    b.hear(datagram(0, GSI_QKEY, b"x"));
    assert_eq!(b.completed(), []);
    assert_eq!(b.refused(Refusal::BadQkey), 2);
}

fn queue_pair_1_is_given_no_other_qkey() {
    let mut b = ready();
    let cq = b.card.create_cq(8).unwrap();
    let init = QpInit::new(QpType::Ud, b.pd, cq.id(), 8);
    b.card.create_gsi_qp(&init).unwrap();
    let wrong = QpAttributes::to_init_datagrams(QKEY);
    let error = b.card.modify_qp(b.now, QpNumber::GSI, &wrong).unwrap_err();
    assert_eq!(error, ModifyError::GsiQkey(QKEY));
    assert_eq!(
        error.to_string(),
        "qkey is 0x11223344; that of queue pair 1 is 0x80010000"
    );
    assert_eq!(b.card.qp_state(QpNumber::GSI), Some(State::Reset));
}

fn queue_pair_1_sends_its_qkey() {
    let mut b = ready();
    let (mut qp, _cq) = gsi(&mut b);
    let sges = [b.sge(0, 16)];
    let request = SendRequest {
        to: Some(Datagram {
            qp: QpNumber::GSI,
            qkey: GSI_QKEY,
            ..b.peer_qp()
        }),
        ..SendRequest::new(1, Work::Send, &sges)
    };
    qp.post_send(&request).unwrap();
    b.card.doorbell(b.now, QpNumber::GSI);
    let packets = b.packets();
    let deth = packets[0].ext.deth().unwrap();
    assert_eq!((deth.qkey, deth.src_qp), (GSI_QKEY, QpNumber::GSI));
    assert_eq!(packets[0].bth.dest_qp(), QpNumber::GSI);
    assert_eq!(packets.len(), 1);
}

fn queue_pair_1_hears_the_partitions_of_the_port() {
    let mut b = ready();
    let (_qp, mut cq) = gsi(&mut b);
    // The table has one entry, 0xffff: the limited member of the same partition matches it too.
    for pkey in [0xffff, 0x7fff] {
        hear(&mut b, GSI_QKEY, pkey);
        assert!(cq.poll().is_some(), "{pkey:#x}");
    }
    hear(&mut b, GSI_QKEY, 0x8001);
    assert!(cq.poll().is_none());
    assert_eq!(b.refused(Refusal::BadPkey), 1);
}

fn a_completion_queue_serves_queue_pair_1_or_ordinary_ones() {
    let mut b = ready();
    let ordinary = b.cq.id();
    let init = QpInit::new(QpType::Ud, b.pd, ordinary, 8);
    let error = b.card.create_gsi_qp(&init).unwrap_err();
    assert_eq!(error, CreateError::MixedCq(ordinary));
    let (_qp, cq) = gsi(&mut b);
    let init = QpInit::new(QpType::Ud, b.pd, cq.id(), 8);
    let error = b.card.create_qp(&init).unwrap_err();
    assert_eq!(error, CreateError::MixedCq(cq.id()));
    // Whom it has served before does not matter.
    b.card.destroy_qp(QpNumber::GSI).unwrap();
    b.card.create_qp(&init).unwrap();
}

fn there_is_one_queue_pair_1_once_it_is_made() {
    let mut b = ready();
    hear(&mut b, GSI_QKEY, 0xffff);
    assert_eq!(b.refused(Refusal::UnknownQueuePair), 1);
    let cq = b.card.create_cq(8).unwrap();
    for qp_type in [QpType::Rc, QpType::Uc] {
        let init = QpInit::new(qp_type, b.pd, cq.id(), 8);
        let error = b.card.create_gsi_qp(&init).unwrap_err();
        assert_eq!(error, CreateError::NotDatagram(QpNumber::GSI));
    }
    let (qp, mut cq) = gsi(&mut b);
    assert_eq!(qp.number(), QpNumber::GSI);
    let init = QpInit::new(QpType::Ud, b.pd, cq.id(), 8);
    assert_eq!(
        b.card.create_gsi_qp(&init).unwrap_err(),
        CreateError::GsiExists
    );
    b.card.destroy_qp(QpNumber::GSI).unwrap();
    hear(&mut b, GSI_QKEY, 0xffff);
    assert_eq!(b.refused(Refusal::UnknownQueuePair), 2);
    assert!(cq.poll().is_none());
    // It can be made again, and does not come to be an ordinary number.
    for _ in 0..3 {
        assert_ne!(b.another().number(), QpNumber::GSI);
    }
    gsi(&mut b);
}
