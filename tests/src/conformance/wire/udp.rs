//! The UDP header (A17.3.2).

use super::{UDP4, UDP6, addressed, family, talk, word};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("CA17-20"),
        "UDP: the destination port is that of RoCEv2, 4791",
        [the_destination_port_is_4791]
    ),
    rule!(
        Id("CA17-21"),
        "UDP: the length counts from the UDP header to the ICRC",
        [the_length_counts_to_the_icrc]
    ),
    rule!(
        Section("A17.3.2.1"),
        "UDP: the source port of a connection stays the same",
        [the_source_port_stays_the_same]
    ),
    rule!(
        Behaviour,
        "UDP: the program may choose the source port",
        [the_program_may_choose_the_source_port]
    ),
    rule!(
        Section("A17.3.2.4"),
        "UDP: there is no checksum",
        [there_is_no_checksum]
    ),
];

/// What a card says over IPv4 and over IPv6, and where UDP begins there.
fn frames() -> Vec<(Vec<u8>, usize)> {
    let over = |v6, udp| {
        let frames = talk(&mut Bench::new(family(v6)));
        frames.into_iter().map(move |frame| (frame, udp))
    };
    over(false, UDP4).chain(over(true, UDP6)).collect()
}

fn the_destination_port_is_4791() {
    for (frame, udp) in frames() {
        assert_eq!(word(&frame, udp + 2), 4791);
    }
}

fn the_length_counts_to_the_icrc() {
    for (frame, udp) in frames() {
        assert_eq!(word(&frame, udp + 4), frame.len() - udp);
    }
    for v6 in [false, true] {
        let mut b = Bench::new(family(v6));
        for len in [0, 1, 3, 4, 1024] {
            b.post_send(1, len);
            let frame = b.pull_frame().unwrap();
            let udp = if v6 { UDP6 } else { UDP4 };
            let expected = 8 + 12 + len.next_multiple_of(4) as usize + 4;
            assert_eq!(word(&frame, udp + 4), expected, "{len}");
        }
    }
}

fn the_source_port_stays_the_same() {
    for v6 in [false, true] {
        let mut b = Bench::new(family(v6));
        let udp = if v6 { UDP6 } else { UDP4 };
        let ports: Vec<_> = talk(&mut b).iter().map(|f| word(f, udp)).collect();
        assert!(ports.iter().all(|&p| p == ports[0]), "{ports:?}");
        // It spreads connections over paths, so it comes from the dynamic range.
        assert!(ports[0] >= 0xc000, "{ports:?}");
    }
}

fn the_program_may_choose_the_source_port() {
    let mut b = addressed(Setup::default(), |a| a.udp_src = Some(0xd123));
    for frame in talk(&mut b) {
        assert_eq!(word(&frame, UDP4), 0xd123);
    }
}

fn there_is_no_checksum() {
    for (frame, udp) in frames() {
        assert_eq!(word(&frame, udp + 6), 0);
    }
    // A peer's that is right is no reason to drop its packet.
    let mut b = Bench::ready();
    b.post_recv(1, 0, 64);
    let mut frame = b.frame_of(send_only(0, b"hello"));
    let sum = checksum(&frame);
    frame[UDP4 + 6..UDP4 + 8].copy_from_slice(&sum.to_be_bytes());
    assert!(b.hear_frame(&frame));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
}

/// RFC 768: addresses, protocol and length before the datagram, whose own checksum is 0 here.
fn checksum(frame: &[u8]) -> u16 {
    let words = |from: usize, to: usize| (from..to).step_by(2).map(|at| word(frame, at));
    let pseudo = words(UDP4 - 8, UDP4).chain([17, frame.len() - UDP4]);
    let mut sum: usize = pseudo.chain(words(UDP4, frame.len())).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
