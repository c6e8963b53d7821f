//! Congestion management: marks become CNPs, CNPs become a lower rate (A17.9.3).
//!
//! * `notification`: a marked packet makes a CNP.
//! * `reaction`: a CNP makes a queue pair send more slowly.
//! * `stages`: by how much, and how it recovers, step by step.

mod notification;
mod reaction;
mod stages;

use super::Rule;
use crate::bench::*;
use softroce_sim::card::{CardConfig, CongestionControl, Dcqcn, Notification};
use softroce_sim::rate::Rate;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{Ecn, Ext, Opcode, Packet, Route, cnp};

pub(super) const RULES: &[&[Rule]] = &[notification::RULES, reaction::RULES, stages::RULES];

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
