//! The cards, the network between them, and the attack.
//!
//! The victim works for two peers. The bystander's links must not notice anything: every byte right, every
//! completion a success, no packet twice, no NAK, only counters of dropped packets move. The others are
//! those the hostile peer takes part in: from an address of its own, to which the victim has connections
//! too; or with the address of the victim's second peer, which talks on meanwhile.

mod check;
mod connect;
mod setup;

use super::SECRET;
use super::forge::{Forger, HOSTILE_BELOW, Place, Target};
use super::link::{CELLS, LIBRARY, Lane, Link, OPEN_SLOT, Queue, Side, WINDOW, Window, pattern};
use super::pool::Pool;
use super::slots::{SLOT, Slots};
use super::tally::{End, Tally};
use crate::bench::{address_of, all_rights};
use softroce_sim::card::{
    Card, CardConfig, CompletionKind, CompletionQueue, Counters, Datagram, Env, Mtu, PriorityMask,
    QpAttributes, QpInit, QpType, QueuePair, RecvRequest, Refusal, SendRequest, State, Status,
    Timing, Work, profile, recovery,
};
use softroce_sim::memory::{Access, Binding, Pd, WindowType};
use softroce_sim::random::Stream;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{
    Encapsulation, Ext, Gid, MacAddr, Packet, Psn, QpNumber, RemoteKey, Route, RouteTable,
};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attack {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Packets of the hostile peer.
    pub packets: u64,
    /// It uses the address of a peer that is there.
    pub forging: bool,
    /// The victim is a card as Linux' driver.
    pub rxe: bool,
    /// The victim's recovery is go-back-0.
    pub go_back_0: bool,
    /// The victim takes time to react.
    pub slow: bool,
    /// All memory is looked at after so many packets.
    pub check_every: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// How the hostile peer's packets ended.
    pub tally: Tally,
    /// Requests of the bystander's links that were judged right, both ways.
    pub undisturbed: u64,
    /// Requests that completed on links that the hostile peer took part in.
    pub completed: u64,
    /// How often such a link failed and was connected again.
    pub failures: u64,
    /// What the victim has counted.
    pub counters: Counters,
}

const VICTIM: usize = 0;
const BYSTANDER: usize = 1;
const MARK: usize = 2;
/// Receive requests of a queue; a shared one serves two queue pairs.
const RECEIVES: usize = 2 * WINDOW;
const READS: u8 = 4;
const MTU: Mtu = Mtu::M256;
const RECEIVE: u64 = 1 << 63;
/// Names the requests of the queue pair that only holds windows.
const HELPER: u64 = u64::MAX >> 1;

fn gid(card: usize, forging: bool) -> Gid {
    // No two of them differ in few bits, so that a flipped bit makes none of another.
    match (card, forging) {
        (VICTIM, _) => Ipv4Addr::new(10, 0, 0, 1),
        (BYSTANDER, _) => Ipv4Addr::new(172, 16, 200, 99),
        (_, true) => Ipv4Addr::new(10, 0, 0, 2),
        (_, false) => Ipv4Addr::new(192, 168, 77, 66),
    }
    .into()
}

fn mac(card: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, card as u8 + 1])
}

/// Memory of the victim's that the hostile peer must not change, or not see.
struct Secret {
    slots: Slots,
    /// It may write there, though not read.
    writable: bool,
    expected: Vec<u8>,
    name: &'static str,
}

struct World {
    attack: Attack,
    cards: Vec<Card>,
    cqs: Vec<CompletionQueue>,
    /// Packets under way to each card.
    wires: [VecDeque<Packet>; 3],
    table: RouteTable,
    routes: Vec<Route>,
    pool: Pool,
    links: Vec<Link>,
    queues: Vec<Queue>,
    secrets: Vec<Secret>,
    _helper: QueuePair,
    forger: Forger,
    now: Time,
    s: Stream,
    tally: Tally,
    struck: u64,
    handed: u64,
    pulled: u64,
    /// Packets of the bystander's that were handed to the victim, by link.
    delivered: Vec<u64>,
    /// The victim's port fetches nothing for so many steps.
    drought: u64,
}

/// Says how to play it again if the run fails.
struct Replay(Attack, std::cell::Cell<u64>);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed at packet {} of {:?}", self.1.get(), self.0);
            println!(
                "again: SOFTROCE_HOSTILE_SEED={} SOFTROCE_HOSTILE_PACKETS={} SOFTROCE_HOSTILE_CHECK=1",
                self.0.seed, self.0.packets
            );
        }
    }
}

/// Carries an attack out.
///
/// # Panics
/// If something happens that must not.
pub fn run(attack: Attack) -> Report {
    let replay = Replay(attack, Default::default());
    let mut world = World::new(attack);
    for link in 0..world.links.len() {
        world.connect(link);
    }
    world.check_memory();
    let mut quiet_at = 200_000;
    while world.struck < attack.packets {
        replay.1.set(world.struck);
        world.step();
        if world.struck >= quiet_at {
            world.come_to_rest();
            quiet_at += 200_000;
        }
    }
    world.come_to_rest();
    world.report()
}

impl World {
    /// One thing happens.
    fn step(&mut self) {
        let ns = if self.s.below(64) == 0 && self.attack.forging {
            self.s.below(400_000)
        } else {
            self.s.below(200)
        };
        self.pass(Span::from_ns(ns));
        self.drought = self.drought.saturating_sub(1);
        match self.s.below(20) {
            0 | 1 => {
                self.poll();
                for _ in 0..3 {
                    self.program();
                }
            }
            2..4 if self.drought == 0 => {
                self.pull(VICTIM);
            }
            4 => {
                let from = 1 + self.s.below(self.cards.len() as u64 - 1) as usize;
                while self.pull(from).is_some() {}
            }
            // The longer packets wait, the more arrive: nothing is to wait for a timeout here.
            5 => {
                for _ in 0..1 + self.wires[VICTIM].len() / 4 {
                    self.carry(VICTIM);
                }
            }
            6 => {
                let to = 1 + self.s.below(self.cards.len() as u64 - 1) as usize;
                while self.wires[to].len() > 1 {
                    self.carry(to);
                }
                self.carry(to);
            }
            7 if self.s.below(400) == 0 => self.drought = 200,
            7 if self.drought == 0 => self.drain(),
            _ => self.strike(),
        }
        self.mend();
    }

    fn pass(&mut self, span: Span) {
        self.now += span;
        for card in &mut self.cards {
            if card.next_timeout() <= self.now {
                card.advance(self.now);
                assert!(
                    card.next_timeout() > self.now,
                    "a deadline stays where it is"
                );
            }
        }
    }

    /// A program posts something.
    fn program(&mut self) {
        let link = self.s.below(self.links.len() as u64) as usize;
        let l = &mut self.links[link];
        let side = self.s.below(l.sides.len() as u64) as usize;
        if l.rests > 0 {
            return;
        }
        let Some(op) = l.draw(&mut self.s, side) else {
            return;
        };
        let mut data = [0; SLOT];
        let data = &mut data[..op.len];
        pattern(link, side, op.id, data);
        l.sides[side].own.write(op.slot(), data);
        let work = l.work(side, &op);
        let sges = [l.sides[side].own.sge(op.slot(), op.len)];
        let (peer_qp, qkey) = (
            if side == 0 {
                l.peer_qp
            } else {
                l.sides[0].qp.number()
            },
            l.qkey,
        );
        let s = &mut l.sides[side];
        let inline = op.len <= 64 && work.sends_data() && self.s.below(2) == 0;
        let none = work.is_local() || inline;
        let request = SendRequest {
            solicited: self.s.below(4) == 0,
            fence: self.s.below(8) == 0,
            inline: inline.then_some(&*data),
            to: s.ah.map(|address| Datagram {
                address,
                qp: peer_qp,
                qkey,
            }),
            ..SendRequest::new(op.id, work, if none { &[] } else { &sges })
        };
        s.qp.post_send(&request).unwrap();
        let (card, number) = (s.card, s.qp.number());
        l.posted(side, op);
        self.cards[card].doorbell(self.now, number);
        self.show_window(link);
    }

    fn poll(&mut self) {
        for card in 0..self.cards.len() {
            while let Some(c) = self.cqs[card].poll() {
                self.complete(card, &c);
            }
            while let Some(event) = self.cards[card].next_event() {
                if let softroce_sim::card::AsyncEvent::QpFatal(qp)
                | softroce_sim::card::AsyncEvent::QpAccessError(qp)
                | softroce_sim::card::AsyncEvent::QpRequestError(qp) = event
                {
                    let (link, _) = self.find(card, qp);
                    assert!(!self.links[link].strict, "{event:?}");
                }
            }
        }
    }

    fn find(&self, card: usize, qp: QpNumber) -> (usize, usize) {
        for (i, link) in self.links.iter().enumerate() {
            for (j, side) in link.sides.iter().enumerate() {
                if side.card == card && side.qp.number() == qp {
                    return (i, j);
                }
            }
        }
        panic!("card {card} has no {qp}");
    }

    fn complete(&mut self, card: usize, c: &softroce_sim::card::Completion) {
        if c.kind == CompletionKind::BindWindow && c.wr_id == HELPER {
            assert_eq!(c.status, Status::Success);
            return;
        }
        let (link, side) = self.find(card, c.qp);
        if c.wr_id & RECEIVE == 0 {
            self.links[link].sent(link, side, c);
            self.show_window(link);
            return;
        }
        let number = (c.wr_id >> 48 & 0x7fff) as usize;
        let wr_id = c.wr_id & 0xffff_ffff_ffff;
        assert_eq!(number, self.links[link].sides[side].queue, "{c:?}");
        let queue = &mut self.queues[number];
        let slot = (wr_id & 0xff) as usize;
        assert_eq!(
            queue.posted[slot].take(),
            Some(wr_id),
            "receives complete once"
        );
        // Several queue pairs finish what they have taken from a shared queue as they like.
        let in_order = queue.last.is_none_or(|last| last < wr_id);
        assert!(
            queue.srq.is_some() || in_order,
            "receives complete in order"
        );
        queue.last = Some(wr_id);
        self.links[link].received(link, side, c, &self.queues[number].slots, slot);
        let queue = &self.queues[number];
        if c.status == Status::Success || queue.srq.is_some() {
            self.post_receive(link, side, slot);
        }
    }

    /// A card's port sends a packet, if there is one.
    fn pull(&mut self, card: usize) -> Option<Packet> {
        let packet = self.cards[card].next_packet(self.now, PriorityMask::ALL, &mut self.pool)?;
        if packet.route.index() >= self.routes.len() {
            self.table.refresh(&mut self.routes);
        }
        let dst = self.routes[packet.route.index()].dst;
        if card == VICTIM {
            self.pulled += 1;
            self.sent_by_victim(&packet, dst);
        }
        let to = (0..self.cards.len()).find(|&c| gid(c, self.attack.forging) == dst);
        match to {
            Some(to) => self.wires[to].push_back(packet),
            None => self.pool.release(packet.payload),
        }
        Some(packet)
    }

    /// What the victim says: the forger listens, and nothing may be given away.
    fn sent_by_victim(&mut self, packet: &Packet, dst: Gid) {
        if dst == gid(BYSTANDER, self.attack.forging) {
            return;
        }
        let opcode = packet.bth.opcode();
        if !opcode.is_response() {
            let link = self
                .links
                .iter()
                .position(|l| !l.strict && l.peer_qp == packet.bth.dest_qp());
            if let Some(link) = link {
                self.forger.targets[link].sent(packet);
            }
            return;
        }
        if let Ext::AtomicAck(_, found) = packet.ext {
            assert_ne!(found.0.to_ne_bytes(), [SECRET; 8], "{packet:?}");
        }
        let bytes = self.pool.payload(packet.payload).unwrap_or_default();
        let (mut secret, mut others) = (0, 0);
        for &b in bytes {
            secret = if b == SECRET { secret + 1 } else { 0 };
            others = if (HOSTILE_BELOW..0x80).contains(&b) {
                others + 1
            } else {
                0
            };
            assert!(secret < 8, "secret bytes are given away by {packet:?}");
            // Atomics of the hostile peer's make any byte, but not so many in a row.
            let strange = others >= 32 && !self.attack.forging;
            assert!(!strange, "bytes of others are given away by {packet:?}");
        }
    }

    /// The victim's port fetches all there is: no more than the limits on READs let pile up.
    fn drain(&mut self) {
        let mut answers = vec![0usize; self.links.len()];
        while let Some(packet) = self.pull(VICTIM) {
            let peer = packet.bth.dest_qp();
            let link = self.links.iter().position(|l| l.peer_qp == peer);
            if let (Some(link), true) = (link, packet.bth.opcode().is_response()) {
                answers[link] += 1;
            }
        }
        // READs that are new and READs again, each of all that a key opens; and between them an ACK, a NAK
        // and an ACK.
        let reads = 2 * usize::from(READS);
        let longest = Slots::offset(WINDOW + 2).div_ceil(MTU.bytes().into());
        let limit = reads * longest + 3 * (reads + 1);
        assert!(answers.iter().all(|&n| n <= limit), "{answers:?} answers");
    }

    /// A packet arrives.
    fn carry(&mut self, to: usize) {
        let Some(packet) = self.wires[to].pop_front() else {
            return;
        };
        let route = self.routes[packet.route.index()];
        self.pool.last = None;
        self.cards[to].receive(self.now, &packet, &route, &mut self.pool);
        let refused = self.pool.last.take();
        if to == VICTIM {
            self.handed += 1;
            let datagram = packet.bth.opcode().0 & 0xe0 == 0x60;
            if !datagram || route.src == self.forger.route.src {
                self.forger.see(&packet);
            }
            let link = self
                .links
                .iter()
                .position(|l| l.sides[0].qp.number() == packet.bth.dest_qp());
            if let Some(link) = link {
                self.delivered[link] += 1;
                if self.links[link].strict {
                    assert_eq!(refused, None, "link {link}: {packet:?}");
                }
                if refused.is_none() {
                    self.forger.targets[link].took(&packet);
                }
            }
        }
        self.pool.release(packet.payload);
    }

    /// The hostile peer says something.
    fn strike(&mut self) {
        for (target, link) in self.forger.targets.iter_mut().zip(&self.links) {
            target.waits = !link.sides[0].lane.pending.is_empty();
        }
        let (end, as_value) = self
            .forger
            .strike(self.now, &mut self.cards[VICTIM], &mut self.pool);
        self.handed += u64::from(!matches!(end, End::Undecodable | End::NoPacket));
        self.tally.count(end, as_value);
        self.struck += 1;
        if self.struck.is_multiple_of(self.attack.check_every) {
            self.check_memory();
        }
    }

    fn report(self) -> Report {
        let completed = |strict: bool| {
            let links = self.links.iter().filter(|l| l.strict == strict);
            links.flat_map(|l| &l.sides).map(|s| s.lane.completed).sum()
        };
        Report {
            undisturbed: completed(true),
            completed: completed(false),
            failures: self.links.iter().map(|l| l.failures).sum(),
            counters: self.cards[VICTIM].counters(),
            tally: self.tally,
        }
    }
}
