//! The reaction point: rates, windows, and what is paced by them.

use super::super::Rule;
use super::super::Source::{Behaviour, Id};
use super::*;
use crate::bench::windows::bound;
use crate::bench::*;
use softroce_sim::card::congestion::{Fixed, Window};
use softroce_sim::card::{CongestionControl, Dcqcn, QpType, Status, Work};
use softroce_sim::rate::Rate;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::Opcode;

pub(super) const RULES: &[Rule] = &[
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
        "What sends nothing does not wait for a turn to send",
        [local_requests_are_not_paced]
    ),
    rule!(
        Behaviour,
        "A rate that rises or falls changes the wait that has begun",
        [a_wait_follows_the_rate]
    ),
    rule!(
        Behaviour,
        "A window holds back what is not acknowledged, but never the only packet",
        [
            a_window_is_kept,
            a_window_follows_the_rate,
            the_packet_that_closes_a_window_asks_for_an_ack
        ]
    ),
    rule!(
        Behaviour,
        "A fixed rate is kept, up to that of the port, and CNPs do not change it",
        [a_fixed_rate_is_kept]
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

fn local_requests_are_not_paced() {
    let mut setup = managed(Setup::default());
    setup.config.congestion = CongestionControl::Fixed(Fixed::rate(Rate::from_mbps(1)));
    let mut b = Bench::new(setup);
    let key = bound(&mut b);
    b.post_write(1, 8);
    b.post(2, Work::LocalInvalidate(key), &[]);
    b.post_write(3, 8);
    assert_eq!(b.packets().len(), 1);
    b.hear(ack(0, 0));
    assert_eq!(b.completed(), [(1, Status::Success), (2, Status::Success)]);
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

fn a_window_follows_the_rate() {
    let mut setup = managed(Setup::default());
    setup.config.ack_every = 1;
    setup.config.congestion = CongestionControl::Dcqcn(Dcqcn {
        window: Some(Window {
            bytes: 8 << 10,
            follows_rate: true,
        }),
        ..Dcqcn::PAPER
    });
    let mut b = Bench::new(setup);
    b.post_write(1, 16 << 10);
    // At the rate of the port, eight packets; at half of it four, at a quarter two.
    assert_eq!(b.packets().len(), 8);
    b.hear(ack(7, 0));
    for left in [4, 2] {
        hear_cnp(&mut b);
        let state = b.card.congestion(b.now, b.qp.number()).unwrap();
        assert_eq!(state.window, Some(left << 10));
        let end = b.now + Span::from_us(10);
        assert_eq!(sends_until(&mut b, end).len() as u64, left);
        let answered = if left == 4 { 11 } else { 13 };
        b.hear(ack(answered, 0));
    }
}

fn a_fixed_rate_is_kept() {
    let mut setup = managed(Setup::default());
    setup.config.congestion = CongestionControl::Fixed(Fixed::rate(Rate::from_gbps(20)));
    let mut b = Bench::new(setup.clone());
    b.post_write(1, 8 << 10);
    b.pull().unwrap();
    hear_cnp(&mut b);
    let sent = sends_until(&mut b, us(50));
    assert_eq!(gaps(&sent), [AT_20G; 6]);
    let counted = b.counted();
    assert_eq!((counted.cnps_received, counted.cnps_ignored), (1, 1));
    let state = b.card.congestion(b.now, b.qp.number()).unwrap();
    assert_eq!((state.rate, state.window), (Rate::from_gbps(20), None));
    // At the rate of the port there is nothing to wait for.
    setup.config.congestion = CongestionControl::Fixed(Fixed::rate(LINE));
    let mut b = Bench::new(setup);
    b.post_write(1, 8 << 10);
    assert_eq!(b.packets().len(), 8);
}

fn the_packet_that_closes_a_window_asks_for_an_ack() {
    let mut setup = managed(Setup::default());
    setup.config.ack_every = 1000;
    setup.config.congestion = CongestionControl::Fixed(Fixed {
        rate: None,
        window: Some(3500),
    });
    let mut b = Bench::new(setup);
    b.post_write(1, 8 << 10);
    let asks = |b: &mut Bench| -> Vec<bool> {
        let packets = b.packets();
        packets.iter().map(|p| p.bth.ack_req()).collect()
    };
    assert_eq!(asks(&mut b), [false, false, true]);
    b.hear(ack(2, 0));
    assert_eq!(asks(&mut b), [false, false, true]);
    b.hear(ack(5, 0));
    // The last one of a message always does.
    assert_eq!(asks(&mut b), [false, true]);
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
