//! Datagrams: who hears them, what is in front of them, and what becomes of those that do not fit.

use softroce_sim::card::{
    AsyncEvent, CompletionKind, CreateError, Datagram, Mtu, PostError, PriorityMask, QpAttributes,
    Refusal, Remote, SendRequest, State, Status, Work,
};
use softroce_sim::wire::{
    Ecn, Encapsulation, Ext, Gid, Immediate, MacAddr, Opcode, QpNumber, RemoteKey, frame,
};
use softroce_tests::bench::*;
use std::net::{IpAddr, Ipv6Addr};

const NONE: [&str; 0] = [];

fn ready() -> Bench {
    Bench::new(Setup::ud())
}

/// The checksum of RFC 791 over a header that has one: it comes out as all ones.
fn sum_of(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn a_datagram_lies_behind_40_bytes_and_says_who_sent_it() {
    let mut b = ready();
    b.post_recv(1, 100, 64);
    b.hear(datagram(7, QKEY, b"hello"));
    let c = b.poll();
    assert_eq!(c.len(), 1);
    assert_eq!(
        (c[0].wr_id, c[0].status, c[0].kind),
        (1, Status::Success, CompletionKind::Receive)
    );
    // 40 bytes of header count (11.4.1.2).
    assert_eq!((c[0].byte_len, c[0].grh), (45, true));
    assert_eq!(c[0].src_qp, QpNumber::new(PEER_QP));
    assert_eq!(c[0].immediate, None);
    assert_eq!(b.memory(140, 6), b"hello\0");
    assert_eq!(b.says(), NONE, "nothing is answered");
    // PSNs mean nothing: the same, an earlier and a far one are all heard.
    for (id, n) in [(2, 7), (3, 0), (4, 0x80_0000)] {
        b.post_recv(id, 0, 64);
        b.hear(datagram(n, QKEY, b"x"));
        assert_eq!(b.completed(), [(id, Status::Success)]);
    }
}

#[test]
fn a17_4_5_2_an_ipv4_header_is_in_the_last_20_of_the_40_bytes() {
    let mut setup = Setup::ud();
    setup.memory = 4096;
    let mut b = Bench::new(setup);
    b.route.dscp = 26;
    b.post_recv(1, 0, 64);
    let mut packet = b.packet_of(datagram(0, QKEY, b"abcde"));
    packet.hop_limit = 61;
    packet.ecn = Ecn::Experienced;
    let route = b.route;
    b.card.receive(b.now, &packet, &route, &mut b.env);
    let h = b.memory(20, 20);
    assert_eq!(h[0], 0x45);
    assert_eq!(h[1], 26 << 2 | 3);
    // IP, UDP, BTH, DETH, five bytes and three of pad, ICRC.
    assert_eq!(u16::from_be_bytes([h[2], h[3]]), 20 + 8 + 12 + 8 + 8 + 4);
    assert_eq!((h[6], h[7]), (0x40, 0), "do not fragment (CA17-7, CA17-8)");
    assert_eq!((h[8], h[9]), (61, 17));
    assert_eq!(h[12..16], [10, 0, 0, 2]);
    assert_eq!(h[16..20], [10, 0, 0, 1]);
    assert_eq!(sum_of(&h), 0xffff);
    assert_eq!(b.memory(40, 5), b"abcde");
    // The same packet as a frame has the same header (Ethernet is 14 bytes), identification 0.
    let route = softroce_sim::wire::Route {
        hop_limit: 61,
        ..b.route
    };
    let mut bytes = Vec::new();
    frame::encode_packet(&packet, &route, b"abcde", &mut bytes).unwrap();
    assert_eq!(bytes[14..34], h[..]);
}

#[test]
fn ipv6_headers_and_the_grh_of_rocev1_fill_the_40_bytes() {
    for (encapsulation, udp, next) in [
        (Encapsulation::RoceV2, 8, 17),
        // C8-7: a BTH follows.
        (Encapsulation::RoceV1, 0, 0x1b),
    ] {
        let mut setup = Setup::ud().over_ipv6();
        setup.config.encapsulation = encapsulation;
        let mut b = Bench::new(setup);
        b.route.dscp = 10;
        b.route.flow_label = 0xa_bcde;
        b.post_recv(1, 0, 64);
        b.hear(datagram_imm(0, QKEY, b"abcdef", 5));
        let h = b.memory(0, 40);
        assert_eq!(h[..4], [0x62, 0x8a, 0xbc, 0xde]);
        // (UDP,) BTH, DETH, immediate data, six bytes and two of pad, ICRC.
        let len = udp + 12 + 8 + 4 + 8 + 4;
        assert_eq!(u16::from_be_bytes([h[4], h[5]]), len);
        assert_eq!((h[6], h[7]), (next, 64));
        assert_eq!(h[8..24], b.route.src.0);
        assert_eq!(h[24..40], b.route.dst.0);
        assert_eq!(b.memory(40, 6), b"abcdef");
        let c = b.poll();
        assert_eq!(
            (c[0].byte_len, c[0].immediate),
            (46, Some(Immediate::from_be(5)))
        );
    }
}

#[test]
fn header_and_data_run_across_the_elements() {
    let mut b = ready();
    let sges = [b.sge(0, 15), b.sge(100, 0), b.sge(200, 28), b.sge(300, 10)];
    b.try_post_recv(1, &sges).unwrap();
    b.hear(datagram(0, QKEY, b"abcdefg"));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(0, 16), [0; 16], "the undefined 20 bytes");
    assert_eq!(
        b.memory(205, 1),
        [0x45],
        "the header begins at byte 20 of 40"
    );
    assert_eq!(b.memory(225, 4), b"abc\0");
    assert_eq!(b.memory(300, 5), b"defg\0");
}

#[test]
fn a_datagram_of_no_bytes_completes_with_40() {
    let mut b = ready();
    b.post_recv(1, 0, 40);
    b.hear(datagram(0, QKEY, b""));
    let c = b.poll();
    assert_eq!((c.len(), c[0].byte_len), (1, 40));
}

#[test]
fn a_wrong_qkey_is_dropped_without_a_word() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    for bad in [0, QKEY ^ 1, QKEY | 0x8000_0000] {
        b.hear(datagram(0, bad, b"x"));
    }
    assert_eq!(b.refused(Refusal::BadQkey), 3);
    assert!(b.completed().is_empty() && b.events().is_empty());
    assert_eq!((b.says(), b.state()), (vec![], State::Rts));
    // The key may change while the queue pair runs.
    b.modify(QpAttributes {
        qkey: Some(QKEY ^ 1),
        ..Default::default()
    })
    .unwrap();
    b.hear(datagram(0, QKEY, b"x"));
    b.hear(datagram(0, QKEY ^ 1, b"y"));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(40, 1), b"y");
}

#[test]
fn another_partition_is_not_heard() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.hear(datagram(0, QKEY, b"x").with(|h| h.with_pkey(0x8001)));
    assert_eq!(b.refused(Refusal::BadPkey), 1);
    // A limited member talks to a full one (10.9.3).
    b.hear(datagram(0, QKEY, b"x").with(|h| h.with_pkey(0x7fff)));
    assert_eq!(b.completed(), [(1, Status::Success)]);
}

#[test]
fn c9_205_what_does_not_fit_is_dropped_and_the_buffer_waits() {
    let mut setup = Setup::ud();
    setup.config.port_mtu = Mtu::M1024;
    let mut b = Bench::new(setup);
    // One byte too short for the data; then for the header.
    b.post_recv(1, 0, 40 + 99);
    b.post_recv(2, 1000, 39);
    let memory = b.buffer.to_vec();
    b.hear(datagram(0, QKEY, &[7; 100]));
    assert_eq!(b.refused(Refusal::TooLong), 1);
    assert_eq!(b.buffer.to_vec(), memory);
    b.hear(datagram(1, QKEY, &[8; 99]));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(40, 100), [&[8; 99][..], &[0]].concat());
    b.hear(datagram(2, QKEY, b""));
    assert_eq!(b.refused(Refusal::TooLong), 2);
    // Longer than the port takes, whatever the buffer.
    let mut b = Bench::new(Setup {
        config: {
            let mut c = Setup::ud().config;
            c.port_mtu = Mtu::M1024;
            c
        },
        ..Setup::ud()
    });
    b.post_recv(3, 0, 4096);
    b.hear(datagram(0, QKEY, &[1; 1025]));
    assert_eq!(b.refused(Refusal::Malformed), 1);
    b.hear(datagram(0, QKEY, &[1; 1024]));
    let c = b.poll();
    assert_eq!((c.len(), c[0].wr_id, c[0].byte_len), (1, 3, 1064));
    assert_eq!(b.state(), State::Rts);
}

#[test]
fn without_a_receive_a_datagram_is_lost() {
    let mut b = ready();
    b.hear(datagram(0, QKEY, b"lost"));
    assert_eq!(b.refused(Refusal::ReceiverNotReady), 1);
    b.post_recv(1, 0, 64);
    b.hear(datagram(1, QKEY, b"found"));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.memory(40, 5), b"found");
}

#[test]
fn a_receive_with_a_bad_key_fails_the_queue_pair() {
    let mut b = ready();
    let mut sge = b.sge(0, 64);
    sge.lkey.0 ^= 1;
    b.try_post_recv(1, &[sge]).unwrap();
    b.post_recv(2, 0, 64);
    b.hear(datagram(0, QKEY, b"x"));
    assert_eq!(
        b.completed(),
        [
            (1, Status::LocalProtectionError),
            (2, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!((b.state(), b.says()), (State::Error, vec![]));
}

#[test]
fn o11_5_1_1_no_communication_established_event_for_datagrams() {
    let mut b = Bench::new(Setup {
        state: State::Rtr,
        ..Setup::ud()
    });
    b.post_recv(1, 0, 64);
    b.hear(datagram(0, QKEY, b"x"));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert!(b.events().is_empty());
}

#[test]
fn packets_of_other_services_are_dropped() {
    let mut b = ready();
    b.post_recv(1, 0, 64);
    b.hear(send_only(0, b"x"));
    b.hear(send_only(0, b"x").uc());
    b.hear(ack(0, 1));
    assert_eq!(b.refused(Refusal::WrongService), 3);
    for number in [1, 2, 6, 0xc, 0x1f] {
        let opcode = Opcode(0x60 | number);
        b.hear(say(opcode, 0, Ext::Deth(deth(QKEY)), b"x"));
    }
    assert!(b.completed().is_empty());
    assert_eq!(b.state(), State::Rts);
}

/// What the card sends, and its extended headers.
fn sent(b: &mut Bench) -> Vec<(String, Ext)> {
    let packets = b.packets();
    packets.iter().map(|p| (b.describe(p), p.ext)).collect()
}

#[test]
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

#[test]
fn c10_15_a_qkey_with_its_top_bit_set_is_replaced_by_the_queue_pairs() {
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

#[test]
fn c10_93_1_1_a_message_longer_than_the_port_mtu_is_not_sent_and_no_error() {
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

#[test]
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

#[test]
fn a_local_error_stops_the_send_queue_alone() {
    let b = ready();
    let to = b.peer_qp();
    fails_and_recovers(b, to, 1, Status::LocalProtectionError);
}

#[test]
fn c10_10_an_address_handle_of_another_protection_domain_fails_the_request() {
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

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
fn datagrams_name_no_memory_of_the_peers() {
    // A UD packet cannot carry a RETH; one that claims to is not looked at.
    let mut b = ready();
    b.post_recv(1, 0, 64);
    let at: Remote = b.remote(0);
    b.hear(say(Opcode::UD_SEND_ONLY, 0, Ext::Reth(reth(at, 1)), b"x"));
    assert_eq!(b.refused(Refusal::Malformed), 1);
    assert!(b.completed().is_empty());
}
