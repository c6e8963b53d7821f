//! Congestion management: marks become CNPs, CNPs become a lower rate (A17.9.3).

use super::Rule;
use super::Source::{Behaviour, Id, Section};
use crate::bench::*;
use softroce_sim::card::congestion::{Fixed, Scope};
use softroce_sim::card::{
    CardConfig, CongestionControl, Dcqcn, Notification, PriorityMask, QpType, Refusal,
};
use softroce_sim::rate::Rate;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{Ecn, Ext, Frame, Gid, Opcode, Packet, QpNumber, Route, cnp};
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
        "Data is ECN-capable where a mark is heeded; acknowledgements and CNPs are not",
        [data_is_ecn_capable]
    ),
    rule!(
        Id("CA17-45"),
        "A CNP lowers the rate of the queue pair it names, and of no other",
        [
            a_cnp_lowers_the_rate,
            a_cnp_lowers_the_rate_of_unreliable_services,
            other_queue_pairs_keep_their_rate
        ]
    ),
    rule!(
        Id("CA17-46"),
        "The rate rises again some time, or some bytes, after the last CNP",
        [the_rate_rises_with_time, the_rate_rises_with_bytes]
    ),
    rule!(
        Behaviour,
        "READ responses are paced, acknowledgements are not",
        [read_responses_are_paced, acknowledgements_are_not_paced]
    ),
    rule!(
        Behaviour,
        "What is sent again is paced as well",
        [resending_is_paced]
    ),
    rule!(
        Behaviour,
        "A wait for a receiver is not cut short by pacing",
        [a_receiver_gets_its_time]
    ),
    rule!(
        Behaviour,
        "A rate that rises or falls changes the wait that has begun",
        [a_wait_follows_the_rate]
    ),
    rule!(
        Behaviour,
        "A window holds back what is not acknowledged, but never the only packet",
        [a_window_is_kept]
    ),
    rule!(
        Behaviour,
        "Without congestion control a CNP is counted and ignored",
        [a_cnp_without_congestion_control_is_ignored]
    ),
    rule!(
        Behaviour,
        "RESET forgets the rate",
        [reset_forgets_the_rate]
    ),
];

const LINE: Rate = Rate::from_gbps(40);

/// Rate of the port 40 Gb/s; congestion management as DCQCN's paper has it.
fn managed(mut setup: Setup) -> Setup {
    setup.config = CardConfig {
        congestion: CongestionControl::Dcqcn(Dcqcn::PAPER),
        notification: Some(Notification::PAPER),
        line_rate: LINE,
        ..setup.config
    };
    setup
}

fn bench() -> Bench {
    Bench::new(managed(Setup::default()))
}

/// The peer sends a packet that a switch marks.
fn hear_marked(b: &mut Bench, say: Say) {
    let route = b.route;
    hear_marked_along(b, say, &route);
}

fn hear_marked_along(b: &mut Bench, say: Say, route: &Route) {
    let mut packet = b.packet_of(say);
    packet.ecn = Ecn::Experienced;
    b.card.receive(b.now, &packet, route, &mut b.env);
}

/// The CNPs among the packets that the card has to send.
fn cnps(b: &mut Bench) -> Vec<Packet> {
    let mut packets = b.packets();
    packets.retain(|p| cnp::is_cnp(&p.bth));
    packets
}

fn us(n: u64) -> Time {
    Time::ZERO + Span::from_us(n)
}

/// What the card sends up to `end`, with when: as often as it says that it wants to be asked.
fn sends_until(b: &mut Bench, end: Time) -> Vec<(Time, Packet)> {
    let mut sent = Vec::new();
    loop {
        while let Some(packet) = b.pull() {
            sent.push((b.now, packet));
        }
        let next = b.card.next_timeout();
        if next > end {
            b.now = end;
            return sent;
        }
        b.now = b.now.max(next);
        b.card.advance(b.now);
    }
}

/// Picoseconds from each packet to the next.
fn gaps(sent: &[(Time, Packet)]) -> Vec<u64> {
    sent.windows(2)
        .map(|w| w[1].0.since(w[0].0).as_ps())
        .collect()
}

/// A packet of 1024 bytes, 1106 on the wire, at 20 Gb/s.
const AT_20G: u64 = 1106 * 8 * 1000 / 20;

fn hear_cnp(b: &mut Bench) {
    b.hear(say(Opcode::CNP, 0, Ext::Cnp, &[]));
}

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
            ..Notification::PAPER
        });
        let mut b = Bench::new(setup);
        let from = |qp: u32| {
            let mut said = datagram(0, QKEY, b"x");
            if let Ext::Deth(deth) = &mut said.ext {
                deth.src_qp = QpNumber::new(qp);
            }
            said
        };
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
    let sent = sends_until(&mut b, us(10));
    let times: Vec<_> = sent
        .iter()
        .map(|(at, p)| (at.as_ps(), p.priority))
        .collect();
    assert_eq!(times, [(3_000_000, 3), (3_700_000, 6)]);
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

fn a_cnp_lowers_the_rate() {
    let mut b = bench();
    b.now = us(1);
    b.post_write(1, 32 << 10);
    // As fast as the port takes it, until a CNP comes.
    assert!((0..4).all(|_| b.pull().is_some()));
    hear_cnp(&mut b);
    let sent = sends_until(&mut b, us(11));
    assert_eq!(sent.len(), 22);
    // The wait counts from the last packet before the CNP.
    assert_eq!(sent[0].0.as_ps(), 1_000_000 + AT_20G);
    assert!(gaps(&sent).iter().all(|&gap| gap == AT_20G), "{sent:?}");
    let state = b.card.congestion(b.now, b.qp.number()).unwrap();
    assert_eq!(
        (state.rate, state.target),
        (Rate::from_gbps(20), Some(LINE))
    );
    assert_eq!(state.alpha, Some(1.0));
    // A second one halves it again.
    hear_cnp(&mut b);
    let sent = sends_until(&mut b, us(16));
    assert!(gaps(&sent).iter().all(|&gap| gap == 2 * AT_20G), "{sent:?}");
    assert_eq!(b.counted().cnps_received, 2);
    assert_eq!(b.counted().cnps_ignored, 0);
}

fn a_cnp_lowers_the_rate_of_unreliable_services() {
    for setup in [Setup::uc(), Setup::ud()] {
        let datagrams = setup.service == QpType::Ud;
        let mut b = Bench::new(managed(setup));
        for n in 0..8 {
            if datagrams {
                b.post_datagram(n, 1024)
            } else {
                b.post_send(n, 1024)
            }
        }
        b.pull().unwrap();
        hear_cnp(&mut b);
        let sent = sends_until(&mut b, us(10));
        // A datagram is eight bytes longer by its extended header.
        let gap = if datagrams { (1106 + 8) * 400 } else { AT_20G };
        assert_eq!(gaps(&sent), [gap; 6]);
    }
}

fn other_queue_pairs_keep_their_rate() {
    let mut b = bench();
    let mut other = b.another();
    b.post_write(1, 8 << 10);
    b.pull().unwrap();
    hear_cnp(&mut b);
    let sges = [b.sge(0, 8 << 10)];
    let work = softroce_sim::card::Work::Write(elsewhere());
    let request = softroce_sim::card::SendRequest::new(2, work, &sges);
    other.post_send(&request).unwrap();
    b.card.doorbell(b.now, other.number());
    assert_eq!(b.packets().len(), 8);
    assert_eq!(sends_until(&mut b, us(50)).len(), 7);
}

fn the_rate_rises_with_time() {
    let mut b = bench();
    hear_cnp(&mut b);
    b.now = us(54);
    let rate = |b: &Bench| b.card.congestion(b.now, b.qp.number()).unwrap().rate;
    assert_eq!(rate(&b), Rate::from_gbps(20));
    b.now = us(55);
    assert_eq!(rate(&b), Rate::from_gbps(30));
    b.post_write(1, 4 << 10);
    // The first packet has 16 bytes more. 294,933 1/3 ps are rounded up.
    let found = gaps(&sends_until(&mut b, us(60)));
    assert_eq!(found, [1122 * 8 * 1000 / 30, 294_934, 294_934]);
    b.now = us(5000);
    assert_eq!(rate(&b), LINE);
    b.post_write(2, 4 << 10);
    assert_eq!(b.packets().len(), 4);
}

fn the_rate_rises_with_bytes() {
    let mut setup = managed(Setup::uc());
    setup.config.congestion = CongestionControl::Dcqcn(Dcqcn {
        rate_timer: Span::ZERO,
        byte_counter: 3 * 1106,
        ..Dcqcn::PAPER
    });
    let mut b = Bench::new(setup);
    hear_cnp(&mut b);
    b.post_send(1, 7 << 10);
    let sent = sends_until(&mut b, us(60));
    // The third packet brings 30 Gb/s, the sixth 35.
    let spacing = |gbps| Rate::from_gbps(gbps).spacing(1106).as_ps();
    let (slow, faster, fastest) = (spacing(20), spacing(30), spacing(35));
    assert_eq!(gaps(&sent), [slow, slow, faster, faster, faster, fastest]);
}

fn read_responses_are_paced() {
    let mut b = bench();
    b.hear(read(0, b.remote(0), 8 << 10));
    b.pull().unwrap();
    hear_cnp(&mut b);
    let sent = sends_until(&mut b, us(20));
    let opcodes: Vec<_> = sent.iter().map(|(_, p)| p.bth.opcode()).collect();
    assert_eq!(opcodes[..6], [Opcode::RC_READ_RESPONSE_MIDDLE; 6]);
    assert_eq!(opcodes[6..], [Opcode::RC_READ_RESPONSE_LAST]);
    // The first one, with an AETH of four bytes, went before.
    assert_eq!(sent[0].0.as_ps(), AT_20G + 4 * 400);
    assert_eq!(gaps(&sent), [AT_20G; 6]);
    // Requests and READ responses of a queue pair share one rate.
    b.post_write(1, 1024);
    b.hear(read(8, b.remote(0), 1024));
    let sent = sends_until(&mut b, us(40));
    assert_eq!(sent.len(), 2);
    assert!(gaps(&sent)[0] >= AT_20G);
}

fn acknowledgements_are_not_paced() {
    let mut b = bench();
    b.post_write(1, 8 << 10);
    b.pull().unwrap();
    hear_cnp(&mut b);
    for n in 0..5 {
        b.hear(write_only(n, b.remote(0), b"x"));
        assert_eq!(b.says(), [format!("ACK {n} msn {}", n + 1)]);
    }
}

fn resending_is_paced() {
    let mut b = bench();
    b.post_write(1, 6 << 10);
    assert_eq!(b.packets().len(), 6);
    hear_cnp(&mut b);
    b.now = us(2);
    b.hear(nak(1, softroce_sim::wire::NakCode::PsnSequenceError));
    let sent = sends_until(&mut b, us(20));
    assert_eq!(sent.len(), 5);
    assert_eq!(gaps(&sent), [AT_20G; 4]);
    assert_eq!(b.counted().retransmitted_packets, 5);
}

fn a_receiver_gets_its_time() {
    let mut b = bench();
    b.post_send(1, 4 << 10);
    b.pull().unwrap();
    hear_cnp(&mut b);
    // 0.64 ms, in the middle of a wait for the pace; the NAK comes again when the wait is over.
    b.hear(rnr_nak(0, 12));
    let sent = sends_until(&mut b, us(639));
    assert_eq!(sent.len(), 0);
    b.now = us(640);
    b.card.advance(b.now);
    assert!(b.pull().is_some());
    assert!(b.pull().is_none());
    b.now += Span::from_ns(100);
    b.hear(rnr_nak(0, 12));
    let sent = sends_until(&mut b, us(1279));
    assert_eq!(sent.len(), 0);
    let sent = sends_until(&mut b, us(1281));
    assert!(sent.len() > 1);
    assert_eq!(sent[0].0, us(1280) + Span::from_ns(100));
}

fn a_wait_follows_the_rate() {
    let mut b = bench();
    b.post_write(1, 8 << 10);
    b.pull().unwrap();
    // Ten cuts by half: 39.0625 Mb/s, at which the 1122 bytes of the first packet last 229.8 us. The rate is
    // half way to its target of 78.125 Mb/s at 55 us, and half way from there at 110 us: 68.359375 Mb/s.
    for _ in 0..10 {
        hear_cnp(&mut b);
    }
    let sent = sends_until(&mut b, us(160));
    assert_eq!(sent.len(), 1);
    let rate = Rate::from_bps(68_359_375).unwrap();
    assert_eq!(sent[0].0, Time::ZERO + rate.spacing(1122));
    // A CNP in the middle of a wait makes it longer.
    let mut b = bench();
    b.post_write(1, 8 << 10);
    b.pull().unwrap();
    hear_cnp(&mut b);
    assert!(sends_until(&mut b, Time::from_ps(400_000)).is_empty());
    hear_cnp(&mut b);
    let sent = sends_until(&mut b, us(1));
    assert_eq!(sent[0].0.as_ps(), 1122 * 8 * 1000 / 10);
}

fn a_window_is_kept() {
    let mut setup = managed(Setup::default());
    setup.config.ack_every = 1;
    setup.config.congestion = CongestionControl::Fixed(Fixed {
        rate: None,
        window: Some(3500),
    });
    let mut b = Bench::new(setup.clone());
    b.post_write(1, 8 << 10);
    assert_eq!(b.packets().len(), 3);
    b.hear(ack(0, 0));
    assert_eq!(b.packets().len(), 1);
    b.hear(ack(3, 0));
    assert_eq!(b.packets().len(), 3);
    setup.config.congestion = CongestionControl::Fixed(Fixed {
        rate: Some(Rate::from_gbps(20)),
        window: Some(1),
    });
    let mut b = Bench::new(setup);
    b.post_write(1, 4 << 10);
    let mut sent = Vec::new();
    for n in 0..4 {
        let some = sends_until(&mut b, us(2 * u64::from(n) + 1));
        assert_eq!(some.len(), 1);
        sent.extend(some);
        b.hear(ack(n, 0));
    }
    let state = b.card.congestion(b.now, b.qp.number()).unwrap();
    assert_eq!((state.rate, state.window), (Rate::from_gbps(20), Some(1)));
}

fn a_cnp_without_congestion_control_is_ignored() {
    let mut b = Bench::ready();
    b.post_write(1, 8 << 10);
    hear_cnp(&mut b);
    assert_eq!(b.packets().len(), 8);
    let counted = b.counted();
    assert_eq!((counted.cnps_received, counted.cnps_ignored), (1, 1));
    assert_eq!(b.card.congestion(b.now, b.qp.number()), None);
    // And marks are counted, but nobody is told.
    let request = write_only(0, b.remote(0), b"x");
    hear_marked(&mut b, request);
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.counted().ecn_marked, 1);
}

fn reset_forgets_the_rate() {
    let mut b = bench();
    b.post_write(1, 2 << 10);
    b.pull().unwrap();
    hear_cnp(&mut b);
    b.go_to(softroce_sim::card::State::Reset).unwrap();
    b.bring_up(softroce_sim::card::State::Rts).unwrap();
    let state = b.card.congestion(b.now, b.qp.number()).unwrap();
    assert_eq!((state.rate, state.alpha), (LINE, None));
    b.post_write(1, 8 << 10);
    assert_eq!(b.packets().len(), 8);
}
