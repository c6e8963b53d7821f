//! Datagrams that are sent, and how they fail.

use super::NONE;
use super::ready;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id};
use softroce_sim::card::{
    AsyncEvent, CreateError, Datagram, Mtu, PostError, PriorityMask, QpAttributes, SendRequest,
    State, Status, Work,
};
use softroce_sim::wire::{Ext, Gid, Immediate, MacAddr, RemoteKey};
use std::net::{IpAddr, Ipv6Addr};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A datagram is one packet, and done when it is sent",
        [a_datagram_is_one_packet_without_ack_req_and_done_when_it_is_sent]
    ),
    rule!(
        Id("C10-15"),
        "A Q_Key with its top bit set is replaced by the queue pair's",
        [a_qkey_with_its_top_bit_set_is_replaced_by_the_queue_pairs]
    ),
    rule!(
        Id("C10-93.1.1"),
        "A message longer than the port MTU is not sent, and no error",
        [a_message_longer_than_the_port_mtu_is_not_sent_and_no_error]
    ),
    rule!(
        Behaviour,
        "What a datagram queue pair cannot do is refused at once",
        [what_a_datagram_queue_pair_cannot_do_is_refused_at_once]
    ),
    rule!(
        Behaviour,
        "A local error stops the send queue alone",
        [a_local_error_stops_the_send_queue_alone]
    ),
    rule!(
        Id("C10-10"),
        "An address handle of another protection domain fails the request",
        [an_address_handle_of_another_protection_domain_fails_the_request]
    ),
    rule!(
        Behaviour,
        "A destroyed address handle fails what was posted with it",
        [
            a_destroyed_address_handle_fails_what_was_posted_with_it,
            a_destroyed_address_handle_fails_what_waits_for_its_port
        ]
    ),
    rule!(
        Behaviour,
        "A datagram goes out in the priority of its address",
        [a_datagram_goes_out_in_the_priority_of_its_address]
    ),
    rule!(
        Behaviour,
        "An address of the other family has no handle",
        [an_address_of_the_other_family_has_no_handle]
    ),
    rule!(
        Behaviour,
        "A full completion queue ends a datagram queue pair too",
        [an_overrun_of_the_completion_queue_ends_a_datagram_queue_pair_too]
    ),
    rule!(
        Behaviour,
        "SQD is drained at once where nothing is answered",
        [sqd_drains_at_once_what_needs_no_answer]
    ),
];

/// What the card sends, and its extended headers.
fn sent(b: &mut Bench) -> Vec<(String, Ext)> {
    let packets = b.packets();
    packets.iter().map(|p| (b.describe(p), p.ext)).collect()
}

/// A datagram to somewhere else fails with `status`; the next one is flushed, and after a change to RTS
/// all is well again.
fn fails_and_recovers(mut b: Bench, to: Datagram, lkey_off: u32, status: Status) {
    b.post_datagram(1, 8);
    let mut sge = b.sge(0, 8);
    sge.lkey.0 ^= lkey_off;
    let sges = [sge];
    let request = SendRequest {
        to: Some(to),
        signaled: false,
        ..SendRequest::new(2, Work::Send, &sges)
    };
    b.try_post(&request).unwrap();
    b.post_datagram(3, 8);
    assert_eq!(b.says(), ["UD Send Only 0 [8]"]);
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, status),
            (3, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.state(), State::Sqe);
    // C10-96: in SQE requests are taken, and complete in error. Receiving goes on.
    b.post_datagram(4, 8);
    assert_eq!(b.completed(), [(4, Status::WorkRequestFlushed)]);
    b.post_recv(5, 0, 64);
    b.hear(datagram(0, QKEY, b"x"));
    assert_eq!(b.completed(), [(5, Status::Success)]);
    assert_eq!(b.says(), NONE);
    b.go_to(State::Rts).unwrap();
    b.post_datagram(6, 8);
    assert_eq!(b.says(), ["UD Send Only 1 [8]"]);
    assert_eq!(b.completed(), [(6, Status::Success)]);
    assert!(b.events().is_empty());
}

fn a_datagram_is_one_packet_without_ack_req_and_done_when_it_is_sent() {
    let mut b = ready();
    b.buffer.write_at(0, b"payload");
    b.post_datagram(1, 7);
    assert!(b.completed().is_empty());
    let p = b.pull().unwrap();
    assert_eq!(b.describe(&p), "UD Send Only 0 [7]");
    assert!(!p.bth.ack_req());
    let own = deth(QKEY);
    let expected = softroce_sim::wire::Deth {
        src_qp: b.qp.number(),
        ..own
    };
    assert_eq!(p.ext, Ext::Deth(expected));
    assert_eq!(b.bytes(&p), b"payload");
    assert_eq!(b.completed(), [(1, Status::Success)]);
    // Each takes a PSN, and with immediate data it is another opcode.
    let sges = [b.sge(0, 3)];
    let request = SendRequest {
        to: Some(b.peer_qp()),
        solicited: true,
        ..SendRequest::new(2, Work::SendImmediate(Immediate::from_be(9)), &sges)
    };
    b.try_post(&request).unwrap();
    let p = b.pull().unwrap();
    assert_eq!(b.describe(&p), "UD Send Only Immediate 1 [3]");
    assert!(p.bth.solicited() && !p.bth.ack_req());
    assert_eq!(p.ext.immediate(), Some(Immediate::from_be(9)));
    b.wait(softroce_sim::time::Span::from_ms(10_000));
    assert_eq!(b.says(), NONE, "nothing is sent again");
}

fn a_qkey_with_its_top_bit_set_is_replaced_by_the_queue_pairs() {
    for (asked, is_sent) in [
        (5, 5),
        (0x7fff_ffff, 0x7fff_ffff),
        (0x8000_0000, QKEY),
        (0xffff_ffff, QKEY),
    ] {
        let mut b = ready();
        let to = Datagram {
            qkey: asked,
            ..b.peer_qp()
        };
        let request = SendRequest {
            to: Some(to),
            ..SendRequest::new(1, Work::Send, &[])
        };
        b.try_post(&request).unwrap();
        let out = sent(&mut b);
        assert_eq!(out[0].1.deth().unwrap().qkey, is_sent, "{asked:#x}");
    }
}

fn a_message_longer_than_the_port_mtu_is_not_sent_and_no_error() {
    let mut setup = Setup::ud();
    setup.config.port_mtu = Mtu::M1024;
    let mut b = Bench::new(setup);
    b.post_datagram(1, 1025);
    b.post_datagram(2, 1024);
    b.post_datagram(3, 2000);
    assert_eq!(b.says(), ["UD Send Only 0 [1024]"]);
    assert_eq!(b.completed(), [1, 2, 3].map(|id| (id, Status::Success)));
    assert_eq!(b.state(), State::Rts);
}

fn what_a_datagram_queue_pair_cannot_do_is_refused_at_once() {
    let mut b = ready();
    let at = elsewhere();
    let to = Some(b.peer_qp());
    for work in [
        Work::Write(at),
        Work::WriteImmediate(at, Immediate::default()),
        Work::Read(at),
        Work::FetchAdd { at, add: 1 },
        Work::AtomicWrite(at),
        Work::SendInvalidate(RemoteKey(1)),
        Work::LocalInvalidate(RemoteKey(1)),
    ] {
        let request = SendRequest {
            to,
            ..SendRequest::new(1, work, &[])
        };
        assert_eq!(b.try_post(&request), Err(PostError::Unsupported(work)));
    }
    let nowhere = SendRequest::new(1, Work::Send, &[]);
    assert_eq!(b.try_post(&nowhere), Err(PostError::Destination));
    let mut connected = Bench::ready();
    let request = SendRequest {
        to: Some(connected.peer_qp()),
        ..nowhere
    };
    assert_eq!(connected.try_post(&request), Err(PostError::Destination));
    assert_eq!(b.qp.send_room(), 64);
}

fn a_local_error_stops_the_send_queue_alone() {
    let b = ready();
    let to = b.peer_qp();
    fails_and_recovers(b, to, 1, Status::LocalProtectionError);
}

fn an_address_handle_of_another_protection_domain_fails_the_request() {
    let mut b = ready();
    let other = b.card.alloc_pd();
    let vector = address_of(peer_gid(), MacAddr::default());
    let address = b.card.create_ah(other, &vector).unwrap();
    let to = Datagram {
        address,
        ..b.peer_qp()
    };
    fails_and_recovers(b, to, 0, Status::LocalQpOperationError);
}

fn a_destroyed_address_handle_fails_what_was_posted_with_it() {
    let mut b = ready();
    let vector = address_of(peer_gid(), MacAddr::default());
    let address = b.card.create_ah(b.pd, &vector).unwrap();
    b.card.destroy_ah(address).unwrap();
    assert_eq!(
        b.card.destroy_ah(address),
        Err(CreateError::UnknownAddress(address))
    );
    let to = Datagram {
        address,
        ..b.peer_qp()
    };
    fails_and_recovers(b, to, 0, Status::LocalQpOperationError);
}

fn a_destroyed_address_handle_fails_what_waits_for_its_port() {
    // The first is too long and sends nothing, so the second has its turn, but not its priority.
    let mut b = ready();
    let urgent = softroce_sim::card::AddressVector {
        sl: 5,
        ..address_of(peer_gid(), MacAddr::default())
    };
    let address = b.card.create_ah(b.pd, &urgent).unwrap();
    b.post_datagram(1, 5000);
    let sges = [b.sge(0, 8)];
    let request = SendRequest {
        to: Some(Datagram {
            address,
            ..b.peer_qp()
        }),
        ..SendRequest::new(2, Work::Send, &sges)
    };
    b.try_post(&request).unwrap();
    b.post_datagram(3, 8);
    let only = PriorityMask::NONE.with(3);
    assert!(b.card.next_packet(b.now, only, &mut b.env).is_none());
    b.card.destroy_ah(address).unwrap();
    assert_eq!(b.says(), NONE);
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::LocalQpOperationError),
            (3, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.state(), State::Sqe);
    b.go_to(State::Rts).unwrap();
    b.post_datagram(4, 8);
    assert_eq!(b.says().len(), 1);
    assert_eq!(b.completed(), [(4, Status::Success)]);
}

fn a_datagram_goes_out_in_the_priority_of_its_address() {
    // The first is too long and sends nothing; what follows must not slip through in its priority.
    for first in [5000, 8] {
        let mut b = ready();
        let urgent = softroce_sim::card::AddressVector {
            sl: 5,
            ..address_of(peer_gid(), MacAddr::default())
        };
        let address = b.card.create_ah(b.pd, &urgent).unwrap();
        b.post_datagram(1, first);
        let sges = [b.sge(0, 8)];
        let request = SendRequest {
            to: Some(Datagram {
                address,
                ..b.peer_qp()
            }),
            ..SendRequest::new(2, Work::Send, &sges)
        };
        b.try_post(&request).unwrap();
        b.post_datagram(3, 8);
        let pull = |b: &mut Bench, p| {
            let only = PriorityMask::NONE.with(p);
            let packet = b.card.next_packet(b.now, only, &mut b.env);
            packet.map(|packet| packet.priority)
        };
        assert_eq!(pull(&mut b, 5), None, "not its turn");
        if first == 8 {
            assert_eq!(pull(&mut b, 3), Some(3));
        }
        assert_eq!(pull(&mut b, 3), None, "the next one is of priority 5");
        assert_eq!(pull(&mut b, 5), Some(5));
        assert_eq!(pull(&mut b, 5), None);
        assert_eq!(pull(&mut b, 3), Some(3));
        assert_eq!(b.completed(), [1, 2, 3].map(|id| (id, Status::Success)));
    }
}

fn an_address_of_the_other_family_has_no_handle() {
    let mut b = ready();
    let v6: Gid = IpAddr::from(Ipv6Addr::LOCALHOST).into();
    assert!(
        b.card
            .create_ah(b.pd, &address_of(v6, MacAddr::default()))
            .is_err()
    );
    let mut bad = address_of(peer_gid(), MacAddr::default());
    bad.sl = 8;
    assert!(b.card.create_ah(b.pd, &bad).is_err());
}

fn an_overrun_of_the_completion_queue_ends_a_datagram_queue_pair_too() {
    let mut b = Bench::new(Setup {
        cqe: 1,
        ..Setup::ud()
    });
    b.post_datagram(1, 8);
    b.post_datagram(2, 8);
    b.packets();
    assert_eq!(b.state(), State::Error);
    assert_eq!(
        b.events(),
        [
            AsyncEvent::CqError(b.cq.id()),
            AsyncEvent::QpFatal(b.qp.number())
        ]
    );
    assert_eq!(b.completed(), [(1, Status::Success)]);
}

fn sqd_drains_at_once_what_needs_no_answer() {
    let mut b = ready();
    b.post_datagram(1, 8);
    b.says();
    b.modify(QpAttributes {
        state: Some(State::Sqd),
        sqd_event: Some(true),
        ..Default::default()
    })
    .unwrap();
    assert_eq!(b.events(), [AsyncEvent::SqDrained(b.qp.number())]);
    b.post_datagram(2, 8);
    assert_eq!(b.says(), NONE);
    b.go_to(State::Rts).unwrap();
    assert_eq!(b.says(), ["UD Send Only 1 [8]"]);
}
