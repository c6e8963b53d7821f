//! The invariant CRC (A17.3.3).

use super::{BTH4, BTH6, IP, UDP4, UDP6, family, mend, talk};
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::wire::FrameView;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("CA17-22"),
        "The ICRC covers 64 one bits and the datagram, what changes on the way as ones",
        [
            the_icrc_is_that_of_the_annex,
            the_frames_of_others_have_the_icrc_of_the_annex
        ]
    ),
    rule!(
        Section("7.8.1"),
        "Byte 4 of the BTH counts as ones in the ICRC",
        [byte_4_of_the_bth_counts_as_ones]
    ),
    rule!(
        Behaviour,
        "What changes on the way leaves the ICRC right",
        [what_changes_on_the_way_leaves_the_icrc_right]
    ),
    rule!(
        Behaviour,
        "The pad is covered by the ICRC, and sent as zeros",
        [the_pad_is_covered]
    ),
];

/// CRC-32 of Ethernet, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut register = !0u32;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = register >> 1 ^ 0xedb8_8320 & (register & 1).wrapping_neg();
        }
    }
    !register
}

/// The ICRC of an untagged frame as the annex has it, in the order of the wire.
pub(super) fn icrc(frame: &[u8]) -> [u8; 4] {
    let mut covered = frame[IP..frame.len() - 4].to_vec();
    let v6 = covered[0] >> 4 == 6;
    if v6 {
        covered[0] |= 0x0f; // traffic class
        covered[1..4].fill(0xff); // and flow label
        covered[7] = 0xff; // hop limit
    } else {
        covered[1] = 0xff; // type of service
        covered[8] = 0xff; // TTL
        covered[10..12].fill(0xff); // header checksum
    }
    let udp = if v6 { UDP6 } else { UDP4 } - IP;
    covered[udp + 6..udp + 8].fill(0xff); // UDP checksum
    covered[udp + 8 + 4] = 0xff; // FECN, BECN and what is reserved beside them
    crc32(&[vec![0xff; 8], covered].concat()).to_le_bytes()
}

fn the_icrc_is_that_of_the_annex() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926, "the known check value");
    for v6 in [false, true] {
        let mut b = Bench::new(family(v6));
        let mut frames = talk(&mut b);
        b.buffer.write_at(0, &pattern(5, 1024));
        for len in [1, 2, 3, 4, 1021, 1022, 1023, 1024] {
            b.post_write(1, len);
            frames.push(b.pull_frame().unwrap());
        }
        for frame in frames {
            assert_eq!(frame[frame.len() - 4..], icrc(&frame));
        }
    }
}

/// Frames of another maker's card, over IPv4 and over IPv6.
const OTHERS: [&str; 2] = [
    "248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460\
     ffff000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3",
    "248a07a8fa22248a07a8fa2286dd6e21face002c11ff20220000000000000000000000001023202300000000\
     00000000000000001024c00012b7002ce7c52460ffff000000d300cf17104630818be28935d90e9a95505401\
     be885e5000003e5b743b",
];

fn the_frames_of_others_have_the_icrc_of_the_annex() {
    for hex in OTHERS {
        let nibbles: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        let frame: Vec<u8> = nibbles
            .chunks(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect();
        assert_eq!(frame[frame.len() - 4..], icrc(&frame));
        let view = FrameView::decode(&frame).unwrap();
        assert_eq!(view.check_icrc(), Ok(()));
    }
}

/// The card hears a frame that was changed on the way, with the ICRC it was sent with.
fn hears(v6: bool, change: impl FnOnce(&mut [u8])) {
    let mut b = Bench::new(family(v6));
    b.post_recv(1, 0, 64);
    let mut frame = b.frame_of(send_only(0, b"hello"));
    change(&mut frame);
    assert!(b.hear_frame(&frame));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.memory(0, 5), b"hello");
}

fn byte_4_of_the_bth_counts_as_ones() {
    for bits in 0..=255 {
        hears(false, |frame| frame[BTH4 + 4] = bits);
        hears(true, |frame| frame[BTH6 + 4] = bits);
    }
}

fn what_changes_on_the_way_leaves_the_icrc_right() {
    // A router takes one from the TTL, and a switch marks congestion; both mend the header checksum.
    hears(false, |frame| {
        frame[IP + 8] -= 1;
        mend(frame);
    });
    hears(false, |frame| {
        frame[IP + 1] |= 3;
        mend(frame);
    });
    hears(true, |frame| frame[IP + 7] -= 1);
    hears(true, |frame| frame[IP + 1] |= 0x30);
    hears(true, |frame| frame[IP + 3] ^= 0x55);
}

fn the_pad_is_covered() {
    for (len, pad) in [(5u32, 3usize), (6, 2), (7, 1)] {
        let mut b = Bench::ready();
        b.buffer.write_at(0, &[0xee; 64]);
        b.post_send(1, len);
        let frame = b.pull_frame().unwrap();
        let end = frame.len() - 4;
        assert_eq!(frame[end - pad..end], vec![0; pad]);
        assert_eq!(frame[end..], icrc(&frame));
        b.post_recv(1, 0, 64);
        let mut bad = b.frame_of(send_only(0, &vec![1; len as usize]));
        let last = bad.len() - 5;
        bad[last] ^= 1;
        assert!(!b.hear_frame(&bad));
    }
}
