//! Frames as bytes: their headers and sums, and what is dropped before it reaches a queue pair.
//!
//! The expected bytes are those that RFC 791, 8200 and 768 and annex A17 ask for, written out here by
//! offset, so that nothing is proved by the code that it proves.

mod address;
mod icrc;
mod inbound;
mod ipv4;
mod ipv6;
mod udp;

use super::Rule;
use crate::bench::*;
use softroce_sim::card::{AddressVector, QpAttributes, State};

pub(super) const RULES: &[&[Rule]] = &[
    address::RULES,
    ipv4::RULES,
    ipv6::RULES,
    udp::RULES,
    icrc::RULES,
    inbound::RULES,
];

/// Where the IP header of an untagged frame begins.
const IP: usize = 14;
/// Where UDP and the BTH of a frame over IPv4 begin.
const UDP4: usize = IP + 20;
const BTH4: usize = UDP4 + 8;
/// The same over IPv6.
const UDP6: usize = IP + 40;
const BTH6: usize = UDP6 + 8;

/// Two bytes in network order.
fn word(frame: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]))
}

/// A connection over IPv4, or over IPv6.
fn family(v6: bool) -> Setup {
    if v6 {
        Setup::default().over_ipv6()
    } else {
        Setup::default()
    }
}

/// A connection whose address vector is another one.
fn addressed(setup: Setup, change: impl FnOnce(&mut AddressVector)) -> Bench {
    let mut b = Bench::new(Setup {
        state: State::Init,
        ..setup
    });
    let [_, rtr, rts] = b.steps();
    let mut address = rtr.address.unwrap();
    change(&mut address);
    let rtr = QpAttributes {
        address: Some(address),
        ..rtr
    };
    b.modify(rtr).unwrap();
    b.modify(rts).unwrap();
    b
}

/// One frame of each kind that a card says on a connection: a SEND of five bytes, one of none, an ACK,
/// READ data, a NAK.
fn talk(b: &mut Bench) -> Vec<Vec<u8>> {
    let at = b.remote(0);
    b.post_send(1, 5);
    b.post_send(2, 0);
    b.hear(write_only(0, at, b"x"));
    b.hear(read(1, at, 1023));
    b.hear(write_only(9, at, b"x"));
    let frames: Vec<_> = std::iter::from_fn(|| b.pull_frame()).collect();
    assert_eq!(frames.len(), 5);
    frames
}

/// Makes the IPv4 header checksum right.
fn mend(frame: &mut [u8]) {
    frame[IP + 10..IP + 12].fill(0);
    let sum: usize = (0..10).map(|n| word(frame, IP + 2 * n)).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
}
