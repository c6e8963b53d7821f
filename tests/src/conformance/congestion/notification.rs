//! The notification point: marked packets and the CNPs that they make.

use super::super::Rule;
use super::super::Source::{Behaviour, Id, Section};
use super::*;
use crate::bench::*;
use softroce_sim::card::congestion::{EarlyMark, Fixed, Scope};
use softroce_sim::card::{CongestionControl, Notification, PriorityMask, QpType, Refusal};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{Ecn, Ext, Frame, Gid, Opcode, QpNumber, Route};
use std::net::Ipv4Addr;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("CA17-44"),
        "A packet that was marked makes a CNP to the queue pair that sent it",
        [
            a_marked_packet_makes_a_cnp,
            a_marked_datagram_makes_a_cnp,
            a_marked_answer_makes_a_cnp,
            what_is_not_marked_makes_none
        ]
    ),
    rule!(
        Section("A17.9.3"),
        "A CNP is opcode 0x81, PSN 0, the P_Key of the marked packet and 16 zero bytes",
        [a_cnp_is_as_the_annex_has_it]
    ),
    rule!(
        Behaviour,
        "Between two CNPs to a queue pair, an address, or of the port there is a least time",
        [cnps_keep_their_distance]
    ),
    rule!(
        Behaviour,
        "A mark within that time makes a CNP at its end, one of all of them",
        [early_marks_are_kept, early_marks_of_others_do_not_wait]
    ),
    rule!(
        Behaviour,
        "A mark counts even if its packet comes again, out of order or too early",
        [marks_count_before_the_psn_is_looked_at]
    ),
    rule!(
        Behaviour,
        "Marked packets of strangers, and marked CNPs, make no CNP",
        [strangers_make_no_cnp, a_marked_cnp_makes_no_cnp]
    ),
    rule!(
        Behaviour,
        "A CNP goes before everything of lower priority, and waits if its own is paused",
        [a_cnp_goes_first]
    ),
    rule!(
        Behaviour,
        "A CNP takes the time that is set for it",
        [a_cnp_takes_its_time]
    ),
    rule!(
        Behaviour,
        "No more than one CNP to a queue pair waits for the port",
        [one_cnp_waits_for_each_sender]
    ),
    rule!(
        Behaviour,
        "Data is ECN-capable where a mark is heeded; acknowledgements and CNPs are not",
        [data_is_ecn_capable]
    ),
];

fn a_marked_packet_makes_a_cnp() {
    for setup in [Setup::default(), Setup::uc(), Setup::default().over_ipv6()] {
        let uc = setup.service == QpType::Uc;
        let mut b = Bench::new(managed(setup));
        let to = b.remote(0);
        let request = write_only(0, to, b"x");
        hear_marked(&mut b, if uc { request.uc() } else { request });
        let all = b.packets();
        assert_eq!(all.len(), if uc { 1 } else { 2 });
        let cnp = all[0];
        assert_eq!(cnp.bth.opcode(), Opcode::CNP);
        assert_eq!(cnp.bth.dest_qp(), QpNumber::new(PEER_QP));
        assert_eq!((cnp.priority, cnp.ecn), (6, Ecn::NotCapable));
        let counted = b.counted();
        assert_eq!((counted.ecn_marked, counted.cnps_sent), (1, 1));
        assert_eq!(counted.sent_packets, all.len() as u64);
    }
}

fn a_marked_datagram_makes_a_cnp() {
    let mut b = Bench::new(managed(Setup::ud()));
    b.post_recv(1, 0, 100);
    hear_marked(&mut b, datagram(0, QKEY, b"x"));
    let found = cnps(&mut b);
    assert_eq!(found.len(), 1);
    // The queue pair that the datagram says it came from, at the address it came from.
    assert_eq!(found[0].bth.dest_qp(), QpNumber::new(PEER_QP));
    let frame = Frame::decode(&b.frame(&found[0])).unwrap();
    assert_eq!(frame.route().dst, b.route.src);
    assert_eq!(frame.route().src, b.route.dst);
    assert_eq!(frame.route().dscp, 48);
}

fn a_marked_answer_makes_a_cnp() {
    let mut b = bench();
    b.post_read(1, 2000);
    b.says();
    let first = read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[7; 1024]);
    hear_marked(&mut b, first);
    assert_eq!(cnps(&mut b).len(), 1);
}

fn what_is_not_marked_makes_none() {
    for ecn in [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1] {
        let mut b = bench();
        let request = write_only(0, b.remote(0), b"x");
        let mut packet = b.packet_of(request);
        packet.ecn = ecn;
        let route = b.route;
        b.card.receive(b.now, &packet, &route, &mut b.env);
        assert_eq!(b.says(), ["ACK 0 msn 1"]);
        assert_eq!(b.counted().ecn_marked, 0);
    }
}

fn a_cnp_is_as_the_annex_has_it() {
    for pkey in [0xffff, 0x7fff] {
        let mut b = bench();
        let to = b.remote(0);
        let request = write_only(0, to, b"x").with(|h| h.with_pkey(pkey));
        hear_marked(&mut b, request);
        let cnp = cnps(&mut b)[0];
        let bytes = b.frame(&cnp);
        // Ethernet 14, IPv4 20, UDP 8, BTH 12, reserved 16, ICRC 4.
        assert_eq!(bytes.len(), 74);
        assert_eq!(usize::from(cnp.frame_len), bytes.len() + 4);
        let [high, low] = u16::to_be_bytes(pkey);
        let bth = [0x81, 0, high, low, 0, 0, 0, PEER_QP as u8, 0, 0, 0, 0];
        assert_eq!(bytes[42..54], bth);
        assert_eq!(bytes[54..70], [0; 16]);
        assert_eq!(bytes[15], 48 << 2, "DSCP 48, ECN 00");
        assert_eq!(Frame::decode(&bytes).unwrap().check(), []);
    }
}

fn cnps_keep_their_distance() {
    let stranger: Gid = Ipv4Addr::new(10, 0, 0, 3).into();
    // Which of a second queue pair of the peer, and of another address, are told at once as well.
    for (scope, second, elsewhere) in [
        (Scope::QueuePair, true, true),
        (Scope::Address, false, true),
        (Scope::Port, false, false),
    ] {
        let mut setup = managed(Setup::ud());
        let interval = Span::from_us(50);
        setup.config.notification = Some(Notification {
            scope,
            interval,
            early: EarlyMark::Forgotten,
            ..Notification::PAPER
        });
        let mut b = Bench::new(setup);
        let mark = |b: &mut Bench, qp| {
            hear_marked(b, from(qp));
            cnps(b).len()
        };
        b.now = us(7);
        assert_eq!(mark(&mut b, PEER_QP), 1);
        assert_eq!(mark(&mut b, PEER_QP), 0);
        assert_eq!(mark(&mut b, 0x78), usize::from(second), "{scope:?}");
        let other = Route {
            src: stranger,
            ..b.route
        };
        hear_marked_along(&mut b, from(PEER_QP), &other);
        assert_eq!(cnps(&mut b).len(), usize::from(elsewhere), "{scope:?}");
        // Not a picosecond early, and then at once.
        b.now = Time::from_ps(us(57).as_ps() - 1);
        assert_eq!(mark(&mut b, PEER_QP), 0);
        b.now = us(57);
        assert_eq!(mark(&mut b, PEER_QP), 1);
        assert_eq!(mark(&mut b, PEER_QP), 0);
        let counted = b.counted();
        assert_eq!(counted.ecn_marked, 7);
        let sent = 2 + u64::from(second) + u64::from(elsewhere);
        assert_eq!(counted.cnps_sent, sent);
    }
}

/// A datagram of another queue pair of the peer.
fn from(qp: u32) -> Say {
    let mut said = datagram(0, QKEY, b"x");
    if let Ext::Deth(deth) = &mut said.ext {
        deth.src_qp = QpNumber::new(qp);
    }
    said
}

fn early_marks_are_kept() {
    let mut b = bench();
    let mut psn = 0;
    let mut mark_at = |b: &mut Bench, at: Time| {
        b.now = at;
        let request = write_only(psn, b.remote(0), b"x");
        psn += 1;
        hear_marked(b, request);
        cnps(b).len()
    };
    let ps = |n| Time::from_ps(n);
    assert_eq!(mark_at(&mut b, us(7)), 1);
    // Until 57 us: at the same instant, in the middle, and at the last moment.
    for at in [us(7), us(30), us(31), ps(56_999_999)] {
        assert_eq!(mark_at(&mut b, at), 0, "{at}");
    }
    let sent = sends_until(&mut b, us(106));
    let times: Vec<_> = sent.iter().map(|(at, p)| (*at, p.bth.opcode())).collect();
    assert_eq!(times, [(us(57), Opcode::CNP)]);
    // That one counts too: until 107 us. The next one as well, though there was no mark at its time.
    assert_eq!(mark_at(&mut b, us(106)), 0);
    assert_eq!(sends_until(&mut b, us(107)).len(), 1);
    assert_eq!(mark_at(&mut b, us(156)), 0);
    assert_eq!(sends_until(&mut b, us(206)).len(), 1);
    // Without a mark there is none, and after the time one goes at once.
    assert_eq!(sends_until(&mut b, us(400)).len(), 0);
    assert_eq!(mark_at(&mut b, us(400)), 1);
    assert_eq!((b.counted().ecn_marked, b.counted().cnps_sent), (8, 5));
}

fn early_marks_of_others_do_not_wait() {
    let mut setup = managed(Setup::ud());
    setup.config.notification = Some(Notification {
        delay: Span::from_us(3),
        ..Notification::PAPER
    });
    let mut b = Bench::new(setup);
    // One queue pair is told at 3 us and again at 53 us; in between another, that had not been told.
    for (at, qp) in [(us(0), PEER_QP), (us(10), PEER_QP), (us(20), 0x78)] {
        b.now = at;
        hear_marked(&mut b, from(qp));
        b.packets();
        assert!(sends_until(&mut b, at + Span::from_us(2)).is_empty());
        if qp != PEER_QP || at > us(0) {
            continue;
        }
        let first = sends_until(&mut b, us(9));
        assert_eq!(first[0].0, us(3));
    }
    let sent = sends_until(&mut b, us(200));
    let told: Vec<_> = sent
        .iter()
        .map(|(at, p)| (*at, p.bth.dest_qp().get()))
        .collect();
    assert_eq!(told, [(us(23), 0x78), (us(53), PEER_QP)]);
}

fn marks_count_before_the_psn_is_looked_at() {
    // Again; after a gap; a SEND with nothing to take it.
    type Words = fn(&Bench) -> Say;
    let doors: [(Refusal, Words); 3] = [
        (Refusal::Duplicate, |b| write_only(0, b.remote(0), b"x")),
        (Refusal::OutOfSequence, |b| write_only(5, b.remote(0), b"x")),
        (Refusal::ReceiverNotReady, |_| send_only(1, b"x")),
    ];
    for (why, say) in doors {
        let mut b = bench();
        b.hear(write_only(0, b.remote(0), b"x"));
        b.says();
        let say = say(&b);
        hear_marked(&mut b, say);
        assert_eq!(b.refused(why), 1);
        assert_eq!(cnps(&mut b).len(), 1, "{why:?}");
    }
}

fn strangers_make_no_cnp() {
    let mut b = bench();
    let good = || write_only(0, elsewhere(), b"x");
    hear_marked(&mut b, good().damaged());
    hear_marked(&mut b, good().with(|h| h.with_pkey(0x8001)));
    hear_marked(&mut b, good().with(|h| h.with_tver(1)));
    hear_marked(&mut b, good().uc());
    hear_marked(&mut b, good().to(QpNumber::new(5)));
    let other = Route {
        src: Ipv4Addr::new(10, 0, 0, 9).into(),
        ..b.route
    };
    hear_marked_along(&mut b, good(), &other);
    assert_eq!(b.packets(), []);
    assert_eq!(b.card.counters().ecn_marked, 0);

    let mut b = Bench::new(managed(Setup::ud()));
    b.post_recv(1, 0, 100);
    hear_marked(&mut b, datagram(0, QKEY + 1, b"x"));
    assert_eq!(b.packets(), []);
}

fn a_marked_cnp_makes_no_cnp() {
    let mut b = bench();
    // Known by its opcode, whatever else it says.
    for psn in [0, 5] {
        hear_marked(&mut b, say(Opcode::CNP, psn, Ext::Cnp, &[]));
    }
    assert_eq!(b.packets(), []);
    let counted = b.counted();
    assert_eq!((counted.cnps_received, counted.cnps_ignored), (2, 0));
    assert_eq!(counted.ecn_marked, 0);
}

fn a_cnp_goes_first() {
    let mut b = bench();
    b.post_write(1, 2048);
    let request = write_only(0, b.remote(0), b"x");
    hear_marked(&mut b, request);
    // Priority 6 is paused.
    let ready = PriorityMask::ALL.without(6);
    assert!(b.card.pending().contains(6));
    let paused = b.card.next_packet(b.now, ready, &mut b.env).unwrap();
    assert_ne!(paused.bth.opcode(), Opcode::CNP);
    // It goes as soon as it may, before the data.
    assert_eq!(b.pull().unwrap().bth.opcode(), Opcode::CNP);
    assert_eq!(b.packets().len(), 2);
}

fn a_cnp_takes_its_time() {
    let mut setup = managed(Setup::default());
    setup.config.notification = Some(Notification {
        delay: Span::from_ns(700),
        ..Notification::PAPER
    });
    let mut b = Bench::new(setup);
    b.now = us(3);
    let request = write_only(0, b.remote(0), b"x");
    hear_marked(&mut b, request);
    let mut sent = sends_until(&mut b, Time::from_ps(3_699_999));
    assert_eq!(sent.len(), 1);
    b.now = b.card.next_timeout();
    assert!(b.card.advance(b.now), "something has come due");
    sent.extend(sends_until(&mut b, us(10)));
    let times: Vec<_> = sent
        .iter()
        .map(|(at, p)| (at.as_ps(), p.priority))
        .collect();
    assert_eq!(times, [(3_000_000, 3), (3_700_000, 6)]);
}

fn one_cnp_waits_for_each_sender() {
    let mut b = Bench::new(managed(Setup::ud()));
    let other = Route {
        src: Ipv4Addr::new(10, 0, 0, 3).into(),
        ..b.route
    };
    // The port takes nothing. Three queue pairs are marked again and again: two of one address, and one at
    // another that has the number of the first.
    for n in 0..5 {
        b.now = us(60 * n);
        b.card.advance(b.now);
        hear_marked(&mut b, from(PEER_QP));
        hear_marked(&mut b, from(0x78));
        hear_marked_along(&mut b, from(PEER_QP), &other);
    }
    let peer = b.route.src;
    let waited = cnps(&mut b);
    let mut told: Vec<_> = waited
        .iter()
        .map(|cnp| {
            let frame = Frame::decode(&b.frame(cnp)).unwrap();
            (frame.route().dst == peer, cnp.bth.dest_qp().get())
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, [(false, PEER_QP), (true, PEER_QP), (true, 0x78)]);
    assert_eq!(b.counted().cnps_sent, 3);
}

fn data_is_ecn_capable() {
    let mut b = bench();
    b.post_write(1, 2048);
    b.post_read(2, 10);
    let from = b.remote(0);
    b.hear(write_only(0, from, b"x"));
    b.hear(read(1, from, 2000));
    b.hear(fetch_add(3, from, 1));
    for packet in b.packets() {
        let expected = match packet.bth.opcode() {
            Opcode::RC_ACKNOWLEDGE | Opcode::RC_ATOMIC_ACKNOWLEDGE => Ecn::NotCapable,
            _ => Ecn::Capable0,
        };
        assert_eq!(packet.ecn, expected, "{}", packet.bth.opcode());
    }
    // A rate that nothing changes does not ask for marks, nor does RoCEv1 know them.
    let mut fixed = managed(Setup::default());
    fixed.config.congestion = CongestionControl::Fixed(Fixed::rate(LINE));
    let mut v1 = managed(Setup::default());
    v1.config.encapsulation = softroce_sim::wire::Encapsulation::RoceV1;
    for setup in [fixed, v1] {
        let mut b = Bench::new(setup);
        b.post_write(1, 10);
        assert_eq!(b.pull().unwrap().ecn, Ecn::NotCapable);
    }
}
