//! Multicast groups: who hears what is sent to them.

use super::ready;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{
    CreateError, Datagram, RecvRequest, Refusal, SendRequest, Sge, State, Status, Work,
};
use softroce_sim::wire::{Gid, MacAddr, QpNumber, Route};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "Each attached queue pair gets a copy",
        [each_attached_queue_pair_gets_a_copy]
    ),
    rule!(
        Behaviour,
        "A group that nobody is attached to is not heard",
        [a_group_nobody_is_attached_to_is_not_heard]
    ),
    rule!(
        Id("o10-2.2.3"),
        "A queue pair that is attached is not destroyed",
        [a_queue_pair_that_is_attached_is_not_destroyed]
    ),
    rule!(
        Behaviour,
        "Only datagram queue pairs are attached, and only to groups",
        [only_datagram_queue_pairs_are_attached_and_only_to_groups]
    ),
    rule!(
        Section("10.5.2.1"),
        "Sending to a group needs no attachment",
        [sending_to_a_group_needs_no_attachment]
    ),
    rule!(
        Behaviour,
        "A member hears what it sends to its group, once",
        [a_member_hears_itself_once]
    ),
];

fn group() -> Gid {
    Ipv4Addr::new(239, 1, 2, 3).into()
}

/// The peer sends to the group.
fn hear_in_group(b: &mut Bench, text: &[u8]) {
    let route = Route {
        dst: group(),
        ..b.route
    };
    b.hear_along(datagram(0, QKEY, text).to(QpNumber::MULTICAST), &route);
}

fn each_attached_queue_pair_gets_a_copy() {
    let mut b = ready();
    let mut second = b.another();
    let mut third = b.another();
    b.card.attach_mcast(b.qp.number(), group()).unwrap();
    b.card.attach_mcast(second.number(), group()).unwrap();
    // Attaching twice is attaching once.
    b.card.attach_mcast(second.number(), group()).unwrap();
    b.post_recv(1, 0, 64);
    for (id, at) in [(2, 100), (12, 300), (3, 200)] {
        let qp = if id == 3 { &mut third } else { &mut second };
        let sges = [Sge {
            addr: b.mr.addr + at,
            len: 64,
            lkey: b.mr.lkey,
        }];
        let request = RecvRequest {
            wr_id: id,
            sges: &sges,
        };
        qp.post_recv(&request).unwrap();
    }
    hear_in_group(&mut b, b"all");
    let c = b.poll();
    let who: Vec<_> = c.iter().map(|c| (c.wr_id, c.qp, c.byte_len)).collect();
    assert_eq!(who, [(1, b.qp.number(), 43), (2, second.number(), 43)]);
    assert_eq!(b.memory(40, 3), b"all");
    assert_eq!(b.memory(140, 3), b"all");
    assert_eq!(b.memory(200, 64), [0; 64]);
    assert_eq!(b.memory(300, 64), [0; 64]);
    assert_eq!(b.memory(36, 4), [239, 1, 2, 3], "the group's address");
    // One that has no receive loses its copy alone.
    b.post_recv(4, 0, 64);
    hear_in_group(&mut b, b"one");
    let both = [(4, Status::Success), (12, Status::Success)];
    assert_eq!(b.completed(), both);
    b.post_recv(6, 0, 64);
    hear_in_group(&mut b, b"two");
    assert_eq!(b.completed(), [(6, Status::Success)]);
    // And one that left hears nothing.
    b.card.detach_mcast(b.qp.number(), group()).unwrap();
    b.post_recv(5, 0, 64);
    hear_in_group(&mut b, b"none");
    assert!(b.completed().is_empty());
    let error = CreateError::NotAttached {
        qp: b.qp.number(),
        group: group(),
    };
    assert_eq!(b.card.detach_mcast(b.qp.number(), group()), Err(error));
}

fn a_group_nobody_is_attached_to_is_not_heard() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    hear_in_group(&mut b, b"x");
    // Neither by a queue pair that is named: what is for a group names none.
    let route = Route {
        dst: group(),
        ..b.route
    };
    b.hear_along(datagram(0, QKEY, b"x"), &route);
    // Nor is a group meant by its number without its address.
    b.card.attach_mcast(b.qp.number(), group()).unwrap();
    b.hear(datagram(0, QKEY, b"x").to(QpNumber::MULTICAST));
    assert!(b.completed().is_empty());
    assert_eq!(b.refused(Refusal::UnknownQueuePair), 2);
    assert_eq!(b.refused(Refusal::WrongAddress), 1);
}

fn a_queue_pair_that_is_attached_is_not_destroyed() {
    let mut b = ready();
    let number = b.qp.number();
    b.card.attach_mcast(number, group()).unwrap();
    let error = CreateError::Attached {
        qp: number,
        group: group(),
    };
    assert_eq!(b.card.destroy_qp(number), Err(error));
    assert_eq!(b.state(), State::Rts);
    b.post_recv(1, 0, 64);
    hear_in_group(&mut b, b"x");
    assert_eq!(b.completed(), [(1, Status::Success)]);
    b.card.detach_mcast(number, group()).unwrap();
    b.card.destroy_qp(number).unwrap();
    hear_in_group(&mut b, b"x");
    assert_eq!(b.refused(Refusal::UnknownQueuePair), 1);
}

fn only_datagram_queue_pairs_are_attached_and_only_to_groups() {
    let mut b = ready();
    let number = b.qp.number();
    assert_eq!(
        b.card.attach_mcast(number, peer_gid()),
        Err(CreateError::NotMulticast(peer_gid()))
    );
    let mut connected = Bench::ready();
    let number = connected.qp.number();
    assert_eq!(
        connected.card.attach_mcast(number, group()),
        Err(CreateError::NotDatagram(number))
    );
    let nobody = QpNumber::new(2);
    assert_eq!(
        b.card.attach_mcast(nobody, group()),
        Err(CreateError::UnknownQueuePair(nobody))
    );
}

fn sending_to_a_group_needs_no_attachment() {
    // 10.5.2.1.
    for (setup, group) in [
        (Setup::ud(), group()),
        (
            Setup::ud().over_ipv6(),
            IpAddr::from(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1)).into(),
        ),
    ] {
        let mut b = Bench::new(setup);
        let vector = address_of(group, MacAddr([1, 0, 0x5e, 1, 2, 3]));
        let address = b.card.create_ah(b.pd, &vector).unwrap();
        let request = SendRequest {
            to: Some(Datagram {
                address,
                qp: QpNumber::MULTICAST,
                qkey: QKEY,
            }),
            ..SendRequest::new(1, Work::Send, &[])
        };
        b.try_post(&request).unwrap();
        let p = b.pull().unwrap();
        assert_eq!(p.bth.dest_qp(), QpNumber::MULTICAST);
        assert_eq!(b.completed(), [(1, Status::Success)]);
    }
}

fn a_member_hears_itself_once() {
    let mut b = ready();
    let mut second = b.another();
    for number in [b.qp.number(), second.number()] {
        b.card.attach_mcast(number, group()).unwrap();
    }
    b.post_recv(1, 100, 64);
    let request = RecvRequest {
        wr_id: 2,
        sges: &[b.sge(200, 64)],
    };
    second.post_recv(&request).unwrap();
    let nowhere = MacAddr::default();
    let vector = address_of(group(), nowhere);
    let address = b.card.create_ah(b.pd, &vector).unwrap();
    let request = SendRequest {
        to: Some(Datagram {
            address,
            qp: QpNumber::MULTICAST,
            qkey: QKEY,
        }),
        inline: Some(b"to all"),
        ..SendRequest::new(3, Work::Send, &[])
    };
    b.try_post(&request).unwrap();
    // Nothing is heard before it is sent.
    assert!(b.completed().is_empty());
    let sent = b.pull().unwrap();
    let mut heard: Vec<_> = b.poll().iter().map(|c| (c.wr_id, c.qp, c.src_qp)).collect();
    heard.sort_by_key(|c| c.0);
    let own = b.qp.number();
    assert_eq!(heard[..2], [(1, own, own), (2, second.number(), own)]);
    assert_eq!((heard.len(), heard[2].0), (3, 3));
    for at in [100, 200] {
        assert_eq!(b.memory(at + 40, 6), b"to all");
        assert_eq!(b.memory(at + 36, 4), [239, 1, 2, 3], "the group's address");
    }
    // On the wire it goes to the group's Ethernet address: 01:00:5e and the lower 23 bits (RFC 1112, 6.4).
    let route = b.way_of(&sent);
    assert_eq!(route.dst_mac, MacAddr([1, 0, 0x5e, 1, 2, 3]));
}
