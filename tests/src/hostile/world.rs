//! The cards, the network between them, and the attack.
//!
//! The victim works for two peers. The bystander's links must not notice anything: every byte right, every
//! completion a success, no packet twice, no NAK, only counters of dropped packets move. The others are
//! those the hostile peer takes part in: from an address of its own, to which the victim has connections
//! too; or with the address of the victim's second peer, which talks on meanwhile.

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

fn timing(slow: bool) -> Timing {
    if !slow {
        return Timing::default();
    }
    Timing {
        doorbell: Span::from_ns(300),
        ack: Span::from_ns(700),
        nak: Span::from_ns(900),
        retransmit: Span::from_us(2),
    }
}

impl World {
    fn new(attack: Attack) -> World {
        let table = RouteTable::new();
        let count = if attack.forging { 3 } else { 2 };
        let mut cards: Vec<Card> = (0..count)
            .map(|i| {
                let mut config =
                    CardConfig::new(format!("card {i}"), gid(i, attack.forging), mac(i));
                if i == VICTIM {
                    if attack.rxe {
                        config = config.with_profile(&profile::RXE);
                    }
                    if attack.go_back_0 {
                        config.recovery = recovery::GO_BACK_0;
                    }
                    config.timing = timing(attack.slow);
                }
                Card::new(config, attack.seed, table.clone())
            })
            .collect();
        let cqs: Vec<CompletionQueue> = cards
            .iter_mut()
            .map(|card| card.create_cq(8192).unwrap())
            .collect();
        let route = Route {
            encapsulation: Encapsulation::RoceV2,
            src_mac: mac(MARK),
            dst_mac: mac(VICTIM),
            src: gid(MARK, attack.forging),
            dst: gid(VICTIM, attack.forging),
            udp_src: 0xc000,
            vlan: None,
            dscp: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        let group: Gid = Ipv4Addr::new(239, 1, 2, 3).into();
        let route_id = table.intern(route);
        let pds: Vec<Vec<Pd>> = cards
            .iter_mut()
            .map(|card| vec![card.alloc_pd(), card.alloc_pd()])
            .collect();
        let (secrets, closed, helper) = secrets(&mut cards[VICTIM], &pds[VICTIM], &cqs, attack);
        let mut world = World {
            attack,
            cards,
            cqs,
            wires: Default::default(),
            table,
            routes: Vec::new(),
            pool: Pool::default(),
            links: Vec::new(),
            queues: Vec::new(),
            secrets,
            _helper: helper,
            forger: Forger::new(attack.seed, route, route_id, group),
            now: Time::ZERO,
            s: Stream::new(attack.seed, "world"),
            tally: Tally::default(),
            struck: 0,
            handed: 0,
            pulled: 0,
            delivered: Vec::new(),
            drought: 0,
        };
        world.forger.closed = closed;
        for peer in [BYSTANDER, MARK] {
            let mut shared = [None; 3];
            for (service, srq) in [
                (QpType::Rc, false),
                (QpType::Rc, true),
                (QpType::Rc, true),
                (QpType::Uc, false),
                (QpType::Ud, false),
            ] {
                world.make(peer, service, srq.then_some(&mut shared), &pds);
            }
        }
        let datagrams: Vec<QpNumber> = world
            .links
            .iter()
            .filter(|l| l.service == QpType::Ud)
            .map(|l| l.sides[0].qp.number())
            .collect();
        for number in datagrams {
            world.cards[VICTIM].attach_mcast(number, group).unwrap();
        }
        world
    }

    /// A link of the victim with `peer`.
    fn make(
        &mut self,
        peer: usize,
        service: QpType,
        mut shared: Option<&mut [Option<usize>; 3]>,
        pds: &[Vec<Pd>],
    ) {
        let number = self.links.len();
        let strict = peer == BYSTANDER;
        let mut sides = Vec::new();
        let ends = [VICTIM, peer];
        let there = self.cards.len();
        for (i, &at) in ends.iter().filter(|&&c| c < there).enumerate() {
            let card = &mut self.cards[at];
            // At the victim the two peers' queue pairs are in domains of their own.
            let pd = pds[at][usize::from(at == VICTIM && strict)];
            let known = shared.as_ref().and_then(|s| s[at]);
            let (queue, srq) = match known {
                Some(queue) => (queue, self.queues[queue].srq.as_ref().map(|q| q.id())),
                None => {
                    let srq = shared
                        .as_ref()
                        .map(|_| card.create_srq(pd, RECEIVES as u32, 2));
                    let srq = srq.map(Result::unwrap);
                    let id = srq.as_ref().map(|q| q.id());
                    self.queues.push(Queue {
                        slots: Slots::private(card, pd, RECEIVES),
                        posted: vec![None; RECEIVES],
                        next: 0,
                        srq,
                        last: None,
                    });
                    (self.queues.len() - 1, id)
                }
            };
            if let Some(shared) = &mut shared {
                shared[at] = Some(queue);
            }
            let qp = card
                .create_qp(&QpInit {
                    max_recv_sge: 2,
                    max_recv_wr: RECEIVES as u32,
                    max_inline: 64,
                    srq,
                    ..QpInit::new(service, pd, self.cqs[at].id(), WINDOW as u32)
                })
                .unwrap();
            let open = Slots::new(card, pd, all_rights(), WINDOW + 2, 0x40, 0x40);
            let mut library = [0; SLOT];
            pattern(number, i, u64::MAX, &mut library);
            open.write(LIBRARY, &library);
            let rights = Access::LOCAL_WRITE | Access::MW_BIND;
            let vault = Slots::new(card, pd, rights, 3, SECRET, SECRET);
            vault.write(OPEN_SLOT, &[0x40; SLOT]);
            let address = address_of(gid(ends[1 - i], self.attack.forging), mac(ends[1 - i]));
            let ah = (service == QpType::Ud).then(|| card.create_ah(pd, &address).unwrap());
            sides.push(Side {
                card: at,
                qp,
                pd,
                own: Slots::private(card, pd, WINDOW),
                open,
                vault,
                window: Window::default(),
                queue,
                ah,
                lane: Lane::default(),
            });
        }
        let peer_qp = match sides.get(1) {
            Some(side) => side.qp.number(),
            None => QpNumber::new(0x77 + number as u32),
        };
        let qkey = if strict { 0x5566_7788 } else { 0x1122_3344 };
        let victim = &sides[0];
        self.forger.targets.push(Target {
            qp: victim.qp.number(),
            service,
            mtu: MTU.bytes(),
            reachable: !strict,
            expected: Psn::default(),
            sent: Psn::default(),
            qkey: if strict { !qkey } else { qkey },
            message: None,
            window: None,
            waits: false,
            asked: None,
        });
        let place = |slots: &Slots| Place {
            at: slots.remote(0),
            len: slots.mr.len - Slots::offset(0) as u64,
        };
        let (open, own, vault) = (
            place(&victim.open),
            place(&victim.own),
            place(&victim.vault),
        );
        self.forger.closed.extend([own, vault]);
        let window = Place {
            at: victim.vault.remote(OPEN_SLOT),
            len: SLOT as u64,
        };
        let forger = &mut self.forger;
        let window = if strict {
            forger.closed.extend([open, window]);
            None
        } else {
            forger.open.push(open);
            (service != QpType::Ud).then(|| {
                forger.windows.push(window);
                forger.windows.len() - 1
            })
        };
        if let Some(target) = self.forger.targets.last_mut() {
            target.window = window;
        }
        self.delivered.push(0);
        self.links.push(Link {
            service,
            strict,
            sides,
            peer_qp,
            qkey,
            rests: 0,
            failures: 0,
        });
    }

    /// The attributes that bring a side of a link up, in order.
    fn steps(&self, link: usize, side: usize, psns: [Psn; 2]) -> [QpAttributes; 3] {
        let l = &self.links[link];
        let (rc, connected) = (l.service == QpType::Rc, l.service != QpType::Ud);
        let other = if side == 0 && l.strict {
            BYSTANDER
        } else if side == 0 {
            MARK
        } else {
            VICTIM
        };
        let peer_qp = if side == 0 {
            l.peer_qp
        } else {
            l.sides[0].qp.number()
        };
        let to = |state| QpAttributes {
            state: Some(state),
            ..Default::default()
        };
        [
            QpAttributes {
                pkey_index: Some(0),
                port: Some(1),
                access: connected.then(all_rights),
                qkey: (!connected).then_some(l.qkey),
                ..to(State::Init)
            },
            QpAttributes {
                address: connected.then(|| address_of(gid(other, self.attack.forging), mac(other))),
                path_mtu: connected.then_some(MTU),
                dest_qp: connected.then_some(peer_qp),
                rq_psn: connected.then_some(psns[1 - side]),
                max_dest_rd_atomic: rc.then_some(READS),
                min_rnr_timer: rc.then_some(1),
                ..to(State::Rtr)
            },
            QpAttributes {
                sq_psn: Some(psns[side]),
                // What nobody disturbs never waits so long; the others are to give up soon.
                timeout: rc.then_some(if l.strict { 14 } else { 6 }),
                retry_cnt: rc.then_some(3),
                rnr_retry: rc.then_some(3),
                max_rd_atomic: rc.then_some(READS),
                ..to(State::Rts)
            },
        ]
    }

    /// Connects a link anew, with other PSNs, near the wrap now and then.
    fn connect(&mut self, link: usize) {
        let psns = [0, 1].map(|_| match self.s.below(3) {
            0 => Psn::new(0u32.wrapping_sub(self.s.below(40) as u32)),
            _ => Psn::new(self.s.bits() as u32),
        });
        self.links[link].restart();
        // A request that a message has taken from a shared queue would vanish: it is flushed first.
        for side in &self.links[link].sides {
            let error = QpAttributes {
                state: Some(State::Error),
                ..Default::default()
            };
            let number = side.qp.number();
            self.cards[side.card]
                .modify_qp(self.now, number, &error)
                .unwrap();
        }
        self.poll();
        for side in 0..self.links[link].sides.len() {
            let steps = self.steps(link, side, psns);
            let l = &mut self.links[link];
            let s = &mut l.sides[side];
            let number = s.qp.number();
            let card = &mut self.cards[s.card];
            let reset = QpAttributes {
                state: Some(State::Reset),
                ..Default::default()
            };
            card.modify_qp(self.now, number, &reset).unwrap();
            card.modify_qp(self.now, number, &steps[0]).unwrap();
            if l.service != QpType::Ud {
                // The binding that did not complete was carried out, or not.
                let keys = [s.window.next, Some(s.window.key)];
                for key in keys.into_iter().flatten() {
                    let _ = card.dealloc_mw(key);
                }
                s.window = Window {
                    key: card.alloc_mw(s.pd, WindowType::Type2).unwrap(),
                    ..Default::default()
                };
            }
            for slot in 0..RECEIVES {
                self.post_receive(link, side, slot);
            }
            let s = &self.links[link].sides[side];
            let card = &mut self.cards[s.card];
            for step in &steps[1..] {
                card.modify_qp(self.now, number, step).unwrap();
            }
        }
        self.forger.targets[link].restart(psns[1], psns[0]);
        self.show_window(link);
    }

    /// Lets the forger know the window's key.
    fn show_window(&mut self, link: usize) {
        let l = &self.links[link];
        let (key, vault) = (l.sides[0].window.key, &l.sides[0].vault);
        if let Some(i) = self.forger.targets[link].window {
            let at = &mut self.forger.windows[i].at;
            at.rkey = key;
            at.addr = match l.zero_based(key) {
                true => 0,
                false => vault.remote(OPEN_SLOT).addr,
            };
        }
    }

    fn post_receive(&mut self, link: usize, side: usize, slot: usize) {
        let s = &mut self.links[link].sides[side];
        let number = (s.queue as u64) << 48;
        let queue = &mut self.queues[s.queue];
        if queue.posted[slot].is_some() {
            return;
        }
        let whole = queue.slots.sge(slot, SLOT);
        let mut sges = [whole, whole];
        sges[0].len = 300;
        sges[1].addr += 300;
        sges[1].len -= 300;
        let wr_id = queue.next << 8 | slot as u64;
        let request = RecvRequest {
            wr_id: RECEIVE | number | wr_id,
            sges: &sges,
        };
        match &mut queue.srq {
            Some(srq) => srq.post_recv(&request).unwrap(),
            None => {
                s.qp.post_recv(&request).unwrap();
                let number = s.qp.number();
                self.cards[s.card].doorbell(self.now, number);
            }
        }
        queue.posted[slot] = Some(wr_id);
        queue.next += 1;
    }

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

    /// Connections that have failed are taken down, lie there for a while in some state, and begin anew.
    fn mend(&mut self) {
        for link in 0..self.links.len() {
            let l = &mut self.links[link];
            if l.rests > 0 {
                l.rests -= 1;
                if l.rests == 0 {
                    self.connect(link);
                }
                continue;
            }
            let broken = |s: &Side| matches!(s.qp.state(), State::Error | State::Sqe);
            if l.sides.iter().any(broken) {
                assert!(!l.strict, "link {link} has failed");
                self.take_down(link);
            }
        }
    }

    fn take_down(&mut self, link: usize) {
        let to = |state| QpAttributes {
            state: Some(state),
            ..Default::default()
        };
        for side in 0..self.links[link].sides.len() {
            let s = &self.links[link].sides[side];
            let number = s.qp.number();
            self.cards[s.card]
                .modify_qp(self.now, number, &to(State::Error))
                .unwrap();
        }
        self.poll();
        for side in &self.links[link].sides {
            assert!(
                side.lane.pending.is_empty(),
                "link {link}: not everything has completed"
            );
            let queue = &self.queues[side.queue];
            let posted = queue.posted.iter().flatten().count();
            assert!(
                queue.srq.is_some() || posted == 0,
                "link {link}: {posted} receives"
            );
        }
        let l = &mut self.links[link];
        l.failures += 1;
        l.rests = 1 + self.s.below(6);
        let psns = [Psn::new(self.s.bits() as u32); 2];
        // In ERROR, RESET, INIT or RTR.
        let depth = self.s.below(4);
        let steps = self.steps(link, 0, psns);
        let number = self.links[link].sides[0].qp.number();
        let card = &mut self.cards[VICTIM];
        if depth > 0 {
            card.modify_qp(self.now, number, &to(State::Reset)).unwrap();
        }
        for step in steps.iter().take((depth as usize).saturating_sub(1)) {
            card.modify_qp(self.now, number, step).unwrap();
        }
        self.forger.targets[link].restart(psns[1], psns[0]);
    }

    fn check_memory(&mut self) {
        for secret in &self.secrets {
            if !secret.writable {
                assert!(
                    secret.slots.buffer.to_vec() == secret.expected,
                    "{} has changed",
                    secret.name
                );
            }
        }
        for (i, link) in self.links.iter().enumerate() {
            let victim = &link.sides[0];
            victim.own.check_guards("a program's own memory");
            victim.vault.check_guards("a vault");
            let mut bytes = [0; SLOT];
            for slot in [OPEN_SLOT - 1, OPEN_SLOT + 1] {
                victim.vault.read(slot, &mut bytes);
                assert!(bytes == [SECRET; SLOT], "link {i}: beside the window");
            }
            if link.strict {
                victim.open.check_guards("memory that a peer may use");
                let mut expected = [0; SLOT];
                victim.open.read(LIBRARY, &mut bytes);
                pattern(i, 0, u64::MAX, &mut expected);
                assert!(bytes == expected, "link {i}: the library");
                victim.open.read(CELLS, &mut bytes);
                assert!(bytes[8..] == [0x40; SLOT - 8], "link {i}: beside the cell");
            } else if !self.attack.forging {
                // Fresh, so that what atomics leave there does not look like the others' bytes.
                let hostile = vec![HOSTILE_BELOW - 1; Slots::offset(WINDOW + 2)];
                victim.open.buffer.write_at(0, &hostile);
                victim.vault.write(OPEN_SLOT, &hostile[..SLOT]);
            }
        }
        for queue in &self.queues {
            queue.slots.check_guards("receives");
        }
    }

    /// The hostile peer is silent, and no program posts: everything ends.
    fn come_to_rest(&mut self) {
        self.drought = 0;
        for link in 0..self.links.len() {
            if self.links[link].rests > 0 {
                self.links[link].rests = 0;
                self.connect(link);
            }
        }
        for steps in 0.. {
            assert!(steps < 1_000_000, "it never ends");
            let mut moved = false;
            for card in 0..self.cards.len() {
                while self.pull(card).is_some() {
                    moved = true;
                }
                while !self.wires[card].is_empty() {
                    self.carry(card);
                    moved = true;
                }
            }
            self.poll();
            if moved {
                continue;
            }
            let next = self
                .cards
                .iter()
                .map(Card::next_timeout)
                .fold(Time::NEVER, Time::min);
            if next == Time::NEVER {
                break;
            }
            self.now = self.now.max(next);
            self.pass(Span::ZERO);
        }
        self.poll();
        for (i, link) in self.links.iter().enumerate() {
            for (j, side) in link.sides.iter().enumerate() {
                let left = &side.lane.pending;
                assert!(
                    left.iter().all(|op| link.is_judged(i, j, op)),
                    "link {i} side {j}: {left:?} sleep for ever"
                );
            }
        }
        assert_eq!(self.pool.held(), 0, "payloads that nobody has");
        self.mend();
        self.check_memory();
        self.check_counters();
    }

    fn check_counters(&self) {
        let sum = self.cards[VICTIM].counters();
        assert_eq!(sum.received_packets, self.handed);
        assert_eq!(sum.sent_packets, self.pulled);
        for why in Refusal::ALL {
            let all = self.cards.iter().map(|c| c.counters().refused.get(why));
            assert_eq!(
                all.sum::<u64>(),
                self.pool.refused[why as usize],
                "{}",
                why.name()
            );
        }
        let all = self.cards.iter().map(|c| c.counters());
        let (mut requests, mut sent) = (0, 0);
        for c in all {
            requests += c.request_packets;
            sent += c.sent_packets;
        }
        assert_eq!(requests, self.pool.requests);
        assert_eq!(sent, self.pool.requests + self.pool.responses);
        for (i, link) in self.links.iter().enumerate().filter(|(_, l)| l.strict) {
            for (j, side) in link.sides.iter().enumerate() {
                let c = self.cards[side.card].qp_counters(side.qp.number()).unwrap();
                let dropped: u64 = c.refused.iter().map(|(_, n)| n).sum();
                if j == 0 {
                    assert_eq!(
                        c.received_packets - dropped,
                        self.delivered[i] + c.cnps_received,
                        "link {i}: {c:?}"
                    );
                } else {
                    assert_eq!(dropped, 0, "link {i}");
                }
                let quiet = [
                    c.naks_sent.total(),
                    c.naks_received.total(),
                    c.rnr_naks_sent,
                    c.rnr_naks_received,
                    c.retransmitted_packets,
                    c.timeouts,
                    c.implied_naks,
                    c.duplicate_requests,
                    c.out_of_sequence,
                ];
                assert_eq!(quiet, [0; 9], "link {i} side {j} has noticed: {c:?}");
                assert_eq!(side.qp.state(), State::Rts);
            }
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

const HELPER: u64 = u64::MAX >> 1;

/// Memory and keys of the victim's that open nothing to the hostile peer.
fn secrets(
    card: &mut Card,
    pds: &[Pd],
    cqs: &[CompletionQueue],
    attack: Attack,
) -> (Vec<Secret>, Vec<Place>, QueuePair) {
    let local = Access::LOCAL_WRITE | Access::MW_BIND;
    let mut secrets = Vec::new();
    let mut closed = Vec::new();
    for (name, pd, access, fill) in [
        ("a region without remote rights", pds[0], local, SECRET),
        (
            "a region to be written",
            pds[0],
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            SECRET,
        ),
        (
            "a region to be read",
            pds[0],
            Access::REMOTE_READ,
            HOSTILE_BELOW - 1,
        ),
        ("a region of another domain", pds[1], all_rights(), SECRET),
        ("a region that has ended", pds[0], all_rights(), SECRET),
        (
            "a region with a window of another queue pair",
            pds[0],
            local,
            SECRET,
        ),
        (
            "a region with a window that is invalidated",
            pds[0],
            local,
            SECRET,
        ),
        (
            "a region with a window that is unbound",
            pds[0],
            local,
            SECRET,
        ),
        (
            "a region with a window to read the second slot",
            pds[0],
            local,
            SECRET,
        ),
    ] {
        let slots = Slots::new(card, pd, access, 3, fill, fill);
        closed.push(Place {
            at: slots.remote(0),
            len: slots.mr.len,
        });
        secrets.push(Secret {
            writable: name == "a region to be written",
            expected: slots.buffer.to_vec(),
            slots,
            name,
        });
    }
    card.deregister(secrets[4].slots.mr.lkey).unwrap();
    // The helper's peer is another than the hostile one, so only it can use the window.
    let mut helper = card
        .create_qp(&QpInit::new(QpType::Rc, pds[0], cqs[VICTIM].id(), 8))
        .unwrap();
    let number = helper.number();
    let to = |state| QpAttributes {
        state: Some(state),
        ..Default::default()
    };
    for step in [
        QpAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(all_rights()),
            ..to(State::Init)
        },
        QpAttributes {
            address: Some(address_of(gid(BYSTANDER, attack.forging), mac(BYSTANDER))),
            path_mtu: Some(MTU),
            dest_qp: Some(QpNumber::new(0x99)),
            rq_psn: Some(Psn::new(5)),
            max_dest_rd_atomic: Some(READS),
            min_rnr_timer: Some(1),
            ..to(State::Rtr)
        },
        QpAttributes {
            sq_psn: Some(Psn::new(5)),
            timeout: Some(14),
            retry_cnt: Some(3),
            rnr_retry: Some(3),
            max_rd_atomic: Some(READS),
            ..to(State::Rts)
        },
    ] {
        card.modify_qp(Time::ZERO, number, &step).unwrap();
    }
    let whole = |slots: &Slots, access| Binding {
        lkey: slots.mr.lkey,
        addr: slots.mr.addr,
        len: slots.mr.len,
        access,
        zero_based: false,
    };
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    for at in [5, 6] {
        let key = RemoteKey(card.alloc_mw(pds[0], WindowType::Type2).unwrap().0 ^ 1);
        let binding = whole(&secrets[at].slots, rights);
        let work = Work::BindWindow { key, binding };
        helper
            .post_send(&SendRequest::new(HELPER, work, &[]))
            .unwrap();
        if at == 6 {
            let work = Work::LocalInvalidate(key);
            let request = SendRequest {
                signaled: false,
                ..SendRequest::new(HELPER, work, &[])
            };
            helper.post_send(&request).unwrap();
        }
        closed[at].at.rkey = key;
    }
    card.doorbell(Time::ZERO, number);
    let nothing = card.next_packet(Time::ZERO, PriorityMask::ALL, &mut Pool::default());
    assert_eq!(nothing, None);
    // Windows of type 1: one that was bound and is not, and one to a part.
    let key = card.alloc_mw(pds[0], WindowType::Type1).unwrap();
    let was = card
        .bind_mw(number, key, whole(&secrets[7].slots, rights))
        .unwrap();
    let nothing = Binding {
        len: 0,
        ..whole(&secrets[7].slots, rights)
    };
    card.bind_mw(number, was, nothing).unwrap();
    closed[7].at.rkey = was;
    let slots = &mut secrets[8];
    slots.slots.write(1, &[HOSTILE_BELOW - 1; SLOT]);
    slots.expected = slots.slots.buffer.to_vec();
    let key = card.alloc_mw(pds[0], WindowType::Type1).unwrap();
    let part = Binding {
        addr: slots.slots.remote(1).addr,
        len: SLOT as u64,
        ..whole(&slots.slots, Access::REMOTE_READ)
    };
    closed[8].at.rkey = card.bind_mw(number, key, part).unwrap();
    (secrets, closed, helper)
}
