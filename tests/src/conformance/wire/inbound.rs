//! What is dropped at the door, and without a word (A17.3.4, A17.4.4).

use super::icrc::icrc;
use super::{BTH4, IP, UDP4, UDP6, family, mend};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::State;
use softroce_sim::wire::QpNumber;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("CA17-24"),
        "Frames that break a rule of IP, UDP or the ICRC are dropped silently",
        [
            any_bit_that_the_icrc_covers_counts,
            an_ip_header_that_is_wrong_is_dropped,
            a_udp_header_that_is_wrong_is_dropped
        ]
    ),
    rule!(
        Id("CA17-27"),
        "A wrong IP version is dropped silently",
        [a_wrong_ip_version_is_dropped]
    ),
    rule!(
        Id("CA17-33"),
        "Packets to queue pair 0 are dropped silently",
        [queue_pair_0_is_not_heard]
    ),
    rule!(
        Behaviour,
        "Fragments are dropped: a RoCEv2 packet is whole",
        [fragments_are_dropped]
    ),
    rule!(
        Behaviour,
        "A frame that ends too early is dropped, wherever it ends",
        [a_frame_that_ends_too_early_is_dropped]
    ),
    rule!(
        Behaviour,
        "A pad count that does not fit is dropped",
        [a_pad_count_that_does_not_fit_is_dropped]
    ),
    rule!(
        Section("9.6.1.2.3"),
        "A frame for another address is dropped",
        [a_frame_for_another_address_is_dropped]
    ),
    rule!(
        Behaviour,
        "Bytes behind the datagram are no part of it",
        [bytes_behind_the_datagram_are_no_part_of_it]
    ),
];

/// Frames that a change makes bad are dropped without answer, completion or event, and the good one is
/// heard afterwards.
fn drops(v6: bool, changes: impl IntoIterator<Item = (String, Vec<u8>)>) {
    let mut b = Bench::new(family(v6));
    b.post_recv(1, 0, 64);
    for (what, bad) in changes {
        b.hear_frame(&bad);
        assert_eq!(b.says(), [""; 0], "{what}");
        assert!(b.completed().is_empty() && b.events().is_empty(), "{what}");
        assert_eq!(
            (b.state(), b.memory(0, 5)),
            (State::Rts, vec![0; 5]),
            "{what}"
        );
    }
    let good = good(v6);
    assert!(b.hear_frame(&good));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.memory(0, 5), b"hello");
}

/// The frame of the peer's first SEND; the same seed gives every bench the same numbers.
fn good(v6: bool) -> Vec<u8> {
    Bench::new(family(v6)).frame_of(send_only(0, b"hello"))
}

/// The same over IPv4 with other data.
fn good_with(payload: &[u8]) -> Vec<u8> {
    Bench::ready().frame_of(send_only(0, payload))
}

/// The good frame with a byte set to another value.
fn with(v6: bool, what: &str, at: usize, value: u8) -> (String, Vec<u8>) {
    let mut frame = good(v6);
    assert_ne!(frame[at], value, "{what}");
    frame[at] = value;
    (what.to_string(), frame)
}

/// The same, with an IPv4 header checksum that is right for it.
fn mended(what: &str, at: usize, value: u8) -> (String, Vec<u8>) {
    let (what, mut frame) = with(false, what, at, value);
    mend(&mut frame);
    (what, frame)
}

fn any_bit_that_the_icrc_covers_counts() {
    // Behind the UDP header everything but byte 4 of the BTH, and the ICRC itself.
    let frame = good(false);
    let flips = (BTH4..frame.len())
        .filter(|&at| at != BTH4 + 4)
        .flat_map(|at| (0..8).map(move |bit| (at, bit)))
        .map(|(at, bit)| {
            let mut bad = frame.clone();
            bad[at] ^= 1 << bit;
            (format!("byte {at} bit {bit}"), bad)
        });
    drops(false, flips);
}

fn an_ip_header_that_is_wrong_is_dropped() {
    let len = good(false).len() - IP;
    drops(
        false,
        [
            with(false, "header checksum", IP + 10, !good(false)[IP + 10]),
            mended("options", IP, 0x46),
            mended("shorter than a header is", IP, 0x44),
            mended("longer than the frame", IP + 3, len as u8 + 4),
            mended("shorter than what it carries", IP + 3, len as u8 - 4),
            mended("shorter than itself", IP + 3, 16),
            mended("TCP", IP + 9, 6),
            mended("identification", IP + 4, 1),
            mended("DF clear", IP + 6, 0),
        ],
    );
    let len = good(true).len() - IP - 40;
    drops(
        true,
        [
            with(true, "longer than the frame", IP + 5, len as u8 + 4),
            with(true, "shorter than what it carries", IP + 5, len as u8 - 4),
            with(true, "nothing", IP + 5, 0),
            with(true, "TCP", IP + 6, 6),
            with(true, "an extension header", IP + 6, 0),
        ],
    );
}

fn a_udp_header_that_is_wrong_is_dropped() {
    for (v6, udp) in [(false, UDP4), (true, UDP6)] {
        let len = (good(v6).len() - udp) as u8;
        drops(
            v6,
            [
                with(v6, "another port", udp + 3, 0xb8),
                with(v6, "another source port than the ICRC's", udp + 1, 0x55),
                with(v6, "longer than the IP header says", udp + 5, len + 4),
                with(v6, "shorter than the IP header says", udp + 5, len - 4),
                with(v6, "shorter than itself", udp + 5, 7),
                with(v6, "a checksum that is wrong", udp + 7, 0x11),
            ],
        );
    }
}

fn a_wrong_ip_version_is_dropped() {
    drops(
        false,
        [0, 5, 6, 15].map(|v| mended("version", IP, v << 4 | 5)),
    );
    drops(
        true,
        [0, 4, 5, 7].map(|v| with(true, "version", IP, v << 4)),
    );
}

fn queue_pair_0_is_not_heard() {
    let mut b = Bench::ready();
    b.post_recv(1, 0, 64);
    for say in [send_only(0, b"hello"), ack(0, 1), read(0, b.remote(0), 8)] {
        // The bench takes a zero for the queue pair it has, so it is set in the packet.
        let mut packet = b.packet_of(say);
        packet.bth = packet.bth.with_dest_qp(QpNumber::new(0));
        let route = b.route;
        b.card.receive(b.now, &packet, &route, &mut b.env);
    }
    assert_eq!(b.says(), [""; 0]);
    assert!(b.completed().is_empty() && b.events().is_empty());
    b.hear(send_only(0, b"hello"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
}

fn fragments_are_dropped() {
    drops(
        false,
        [
            mended("more fragments", IP + 6, 0x60),
            mended("the second fragment", IP + 7, 1),
            mended("a late fragment", IP + 6, 0x5f),
        ],
    );
}

fn a_frame_that_ends_too_early_is_dropped() {
    for v6 in [false, true] {
        let frame = good(v6);
        let cut = |len: usize| (format!("{len} bytes"), frame[..len].to_vec());
        drops(v6, (0..frame.len()).map(cut));
    }
}

fn a_pad_count_that_does_not_fit_is_dropped() {
    // `there` bytes of pad stand behind the payload, and the header says `count`; all sums are right.
    let padded = |payload: &[u8], there: usize, count: u8| {
        let mut frame = good_with(payload);
        let end = frame.len() - 4;
        let pad = payload.len().next_multiple_of(4) - payload.len();
        frame.drain(end - pad + there..end);
        let less = (pad - there) as u8;
        frame[IP + 3] -= less;
        frame[UDP4 + 5] -= less;
        frame[BTH4 + 1] = frame[BTH4 + 1] & !0x30 | count << 4;
        let end = frame.len() - 4;
        let sum = icrc(&frame);
        frame[end..].copy_from_slice(&sum);
        mend(&mut frame);
        (
            format!("{} bytes, {there} of pad, {count}", payload.len()),
            frame,
        )
    };
    // More pad than there are bytes.
    drops(false, [1, 2, 3].map(|count| padded(b"", 0, count)));
    // Payload and pad that do not make a multiple of four.
    drops(
        false,
        [0, 1, 2].map(|pad| padded(b"hello", pad.into(), pad)),
    );
}

fn a_frame_for_another_address_is_dropped() {
    for (v6, src, dst) in [(false, IP + 12, IP + 16), (true, IP + 8, IP + 24)] {
        let size = if v6 { 16 } else { 4 };
        for at in [src + size - 1, dst + size - 1] {
            let mut frame = softroce_sim::wire::Frame::decode(&good(v6)).unwrap();
            let mut bytes = frame.encode();
            bytes[at] ^= 0x40;
            // Whoever sent it there summed it so.
            frame = softroce_sim::wire::Frame::decode(&bytes).unwrap();
            frame.seal();
            drops(v6, [(format!("byte {at}"), frame.encode())]);
        }
    }
}

fn bytes_behind_the_datagram_are_no_part_of_it() {
    // The padding of a short Ethernet frame, or an FCS that the device left there.
    for v6 in [false, true] {
        for extra in [1, 4, 18] {
            let mut b = Bench::new(family(v6));
            b.post_recv(1, 0, 64);
            let mut frame = b.frame_of(send_only(0, b"hello"));
            frame.extend(vec![0xaa; extra]);
            assert!(b.hear_frame(&frame));
            assert_eq!(b.says(), ["ACK 0 msn 1"]);
            let c = b.poll();
            assert_eq!((c.len(), c[0].byte_len), (1, 5));
        }
    }
}
