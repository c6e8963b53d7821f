//! Two cards and a network between them that loses, repeats, reorders and damages.
//!
//! A [`Plan`] says how bad the network is and what the programs do; everything else is drawn from its
//! seed, so a plan repeats exactly. [`run`] carries it out, and checks as it goes what must hold
//! whatever happens: each request takes effect once and in order, no other byte changes, completions
//! come once and in order, nothing is sent again before an RNR NAK lets it; or the queue pair fails, and a
//! prefix took effect.

mod model;
mod waits;

use crate::bench::{Staging, all_rights};
use model::{End, Op};
use softroce_sim::card::{
    AddressVector, Card, CardConfig, Completion, CompletionQueue, Env, Mtu, Peer, PriorityMask,
    QpAttributes, QpInit, QpType, RecvRequest, Reliability, SendRequest, State, Status, Timing,
    profile, recovery,
};
use softroce_sim::random::Stream;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{Damage, FrameView, Gid, MacAddr, Packet, Psn, Route, RouteTable, frame};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use waits::Wait;

/// What happens in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Everything that is not said below.
    pub seed: u64,
    /// Connections.
    pub qps: usize,
    /// Requests each side of a connection posts, if it posts any.
    pub ops: usize,
    /// Both sides of a connection post.
    pub both_ways: bool,
    /// Path MTU.
    pub mtu: Mtu,
    /// Packets lost, in a thousand.
    pub lost: u64,
    /// Packets that come twice, in a thousand.
    pub twice: u64,
    /// Packets that come late, in a thousand.
    pub late: u64,
    /// Packets that a device damages, in a thousand.
    pub damaged: u64,
    /// Receives are posted late.
    pub late_receives: bool,
    /// Go-back-0 instead of go-back-N.
    pub go_back_0: bool,
    /// Retries on timeouts and sequence NAKs.
    pub retry_cnt: u8,
    /// Retries on RNR NAKs.
    pub rnr_retry: u8,
    /// The cards take time to react, and their ports time to send.
    pub slow: bool,
    /// Packets become bytes and packets again on the way.
    pub bytes: bool,
}

/// What came out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Every packet pulled and every completion, with its time.
    pub log: Vec<String>,
    /// Connections that failed.
    pub failed: usize,
    /// Packets sent again.
    pub resent: u64,
}

const TIMEOUT: u8 = 6;

struct Side {
    card: Card,
    cq: CompletionQueue,
    port_free: Time,
}

#[derive(Clone, Copy)]
enum Due {
    Packet { to: usize, packet: Packet },
    PostSend { side: usize, qp: usize },
    PostRecv { side: usize, qp: usize },
}

struct World {
    plan: Plan,
    sides: [Side; 2],
    /// By connection, then side.
    ends: Vec<[End; 2]>,
    waits: Vec<[Wait; 2]>,
    staging: Staging,
    routes: RouteTable,
    due: BTreeMap<(Time, u64), Due>,
    count: u64,
    now: Time,
    chaos: Stream,
    log: Vec<String>,
}

fn gid(side: usize) -> Gid {
    Ipv4Addr::new(10, 0, 0, side as u8 + 1).into()
}

fn mac(side: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, side as u8 + 1])
}

/// Carries a plan out.
///
/// # Panics
/// If something that must hold does not.
pub fn run(plan: Plan) -> Outcome {
    let mut world = World::new(plan);
    let mut steps = 0;
    while world.step() {
        steps += 1;
        assert!(steps < 2_000_000, "it never ends");
    }
    world.finish()
}

impl World {
    fn new(plan: Plan) -> World {
        let mut setup = Stream::new(plan.seed, "setup");
        let routes = RouteTable::new();
        let sides = [0, 1].map(|side| {
            let mut config = CardConfig::new(format!("card {side}"), gid(side), mac(side));
            config.ack_every = 1 + setup.below(8) as u32;
            config.credits = setup.below(2) == 0;
            if setup.below(4) == 0 {
                config.profile = profile::RXE.clone();
            }
            if plan.go_back_0 {
                config.recovery = recovery::GO_BACK_0;
            }
            if plan.slow {
                config.timing = Timing {
                    doorbell: Span::from_ns(setup.below(500)),
                    ack: Span::from_ns(setup.below(3000)),
                    nak: Span::from_ns(setup.below(3000)),
                    retransmit: Span::from_ns(setup.below(5000)),
                };
            }
            let mut card = Card::new(config, plan.seed, routes.clone());
            let cq = card.create_cq(4096).unwrap();
            Side {
                card,
                cq,
                port_free: Time::ZERO,
            }
        });
        let mut world = World {
            plan,
            sides,
            ends: Vec::new(),
            waits: Vec::new(),
            staging: Staging::default(),
            routes,
            due: BTreeMap::new(),
            count: 0,
            now: Time::ZERO,
            chaos: Stream::new(plan.seed, "chaos"),
            log: Vec::new(),
        };
        for qp in 0..plan.qps {
            world.connect(qp, &mut setup);
        }
        world
    }

    fn connect(&mut self, qp: usize, setup: &mut Stream) {
        let plan = &self.plan;
        let ops = [0, 1].map(|side| {
            let n = if side == 0 || plan.both_ways {
                plan.ops
            } else {
                0
            };
            model::draw_ops(setup, n, plan.mtu)
        });
        let mut ends = [0, 1].map(|side| {
            let card = &mut self.sides[side].card;
            let pd = card.alloc_pd();
            let handle = card
                .create_qp(&QpInit {
                    max_send_sge: 8,
                    max_recv_sge: 8,
                    max_recv_wr: plan.ops as u32 + 1,
                    ..QpInit::new(QpType::Rc, pd, self.sides[side].cq.id(), plan.ops as u32)
                })
                .unwrap();
            let mut end = End::new(handle, ops[side].clone(), &ops[1 - side], setup);
            end.mr = Some(card.register(pd, end.buffer.clone(), all_rights()).unwrap());
            end.rnr_nak_acknowledges = card.config().profile.rnr_nak_acknowledges;
            end
        });
        // Near the wrap, or where serial comparison turns round.
        let psns = [0, 1].map(|_| {
            let base = [0u32, 1 << 23][setup.below(2) as usize];
            Psn::new(base.wrapping_sub(setup.below(20) as u32))
        });
        let depth = [0, 1].map(|_| 1 + setup.below(4) as u8);
        for side in 0..2 {
            let peer = ends[1 - side].qp.number();
            let number = ends[side].qp.number();
            let card = &mut self.sides[side].card;
            let mut modify = |a| card.modify_qp(Time::ZERO, number, &a).unwrap();
            let address = AddressVector {
                dgid: gid(1 - side),
                dmac: mac(1 - side),
                sl: setup.below(2) as u8,
                traffic_class: 0,
                hop_limit: 64,
                flow_label: 0,
                udp_src: None,
                vlan: None,
            };
            let peer = Peer {
                address,
                path_mtu: plan.mtu,
                qp: peer,
                psn: psns[1 - side],
            };
            let reliability = Reliability {
                timeout: TIMEOUT,
                retry_cnt: plan.retry_cnt,
                rnr_retry: plan.rnr_retry,
                min_rnr_timer: 1 + setup.below(6) as u8,
                max_rd_atomic: depth[side],
                max_dest_rd_atomic: depth[1 - side],
            };
            modify(QpAttributes::to_init(all_rights()));
            modify(QpAttributes::to_rtr(&peer, Some(&reliability)));
            modify(QpAttributes::to_rts(psns[side], Some(&reliability)));
            let remote = ends[1 - side].mr.unwrap();
            ends[side].remote = Some(remote);
        }
        self.ends.push(ends);
        self.waits.push(Default::default());
        for side in 0..2 {
            for _ in 0..self.ends[qp][side].ops.len() {
                let at = Time::from_ps(setup.below(20_000_000));
                self.later(at, Due::PostSend { side, qp });
            }
            for _ in 0..self.ends[qp][side].receives.len() {
                let late = if self.plan.late_receives {
                    300_000_000
                } else {
                    1
                };
                let at = Time::from_ps(setup.below(late));
                self.later(at, Due::PostRecv { side, qp });
            }
        }
    }

    fn later(&mut self, at: Time, due: Due) {
        self.count += 1;
        self.due.insert((at, self.count), due);
    }

    /// Goes on to the next thing that happens; false if nothing will.
    fn step(&mut self) -> bool {
        for side in 0..2 {
            while self.sides[side].port_free <= self.now && self.pull(side) {}
        }
        let mut next = Time::NEVER;
        if let Some((&(at, _), _)) = self.due.first_key_value() {
            next = at;
        }
        for side in &self.sides {
            next = next.min(side.card.next_timeout());
            if !side.card.pending().is_empty() {
                next = next.min(side.port_free);
            }
        }
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= self.now
        {
            let due = entry.remove();
            self.happen(due);
        }
        for side in 0..2 {
            self.sides[side].card.advance(self.now);
            self.poll(side);
        }
        true
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Packet { to, packet } => self.deliver(to, packet),
            Due::PostSend { side, qp } => {
                let end = &mut self.ends[qp][side];
                let op = end.next_send();
                let sges = end.sges(op.local, op.size, op.cuts);
                let request = SendRequest {
                    signaled: op.signaled,
                    fence: op.fence,
                    ..SendRequest::new(op.id as u64, op.work(end.remote.unwrap()), &sges)
                };
                end.qp.post_send(&request).unwrap();
                let number = end.qp.number();
                self.sides[side].card.doorbell(self.now, number);
            }
            Due::PostRecv { side, qp } => {
                let end = &mut self.ends[qp][side];
                let (wr_id, slot) = end.next_receive();
                let sges = end.sges(slot.at, slot.len, slot.cuts);
                end.qp
                    .post_recv(&RecvRequest { wr_id, sges: &sges })
                    .unwrap();
                let number = end.qp.number();
                self.sides[side].card.doorbell(self.now, number);
            }
        }
        for side in 0..2 {
            self.poll(side);
        }
    }

    /// Lets the card's port send a packet; the network decides what becomes of it.
    fn pull(&mut self, side: usize) -> bool {
        let s = &mut self.sides[side];
        let packet = s
            .card
            .next_packet(self.now, PriorityMask::ALL, &mut self.staging);
        self.poll(side);
        let Some(packet) = packet else {
            return false;
        };
        let bth = packet.bth;
        if !bth.opcode().is_response()
            && let Some(qp) = self.find(|end| end.qp.number() == bth.dest_qp(), 1 - side)
        {
            self.waits[qp][side].sends(self.now, bth.psn());
        }
        self.log
            .push(format!("{} {side} {bth:?} {:?}", self.now, packet.ext));
        if self.plan.slow {
            // Now and then the port is paused for long.
            let ps = match self.chaos.below(20) {
                0 => 100_000_000,
                _ => 1_000_000,
            };
            self.sides[side].port_free = self.now + Span::from_ps(self.chaos.below(ps));
        }
        if self.chance(self.plan.lost) {
            return true;
        }
        let mut packet = packet;
        if self.chance(self.plan.damaged) {
            packet.damage = Damage::Device;
        }
        let copies = if self.chance(self.plan.twice) { 2 } else { 1 };
        for _ in 0..copies {
            let mut delay = 1_000_000;
            if self.chance(self.plan.late) {
                // A few packet times, or longer than a timeout.
                delay += match self.chaos.below(4) {
                    0 => self.chaos.below(600_000_000),
                    _ => self.chaos.below(10_000_000),
                };
            }
            let at = self.now + Span::from_ps(delay);
            self.later(
                at,
                Due::Packet {
                    to: 1 - side,
                    packet,
                },
            );
        }
        true
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.chaos.below(1000) < per_mille
    }

    fn deliver(&mut self, to: usize, packet: Packet) {
        let route = self.routes.get(packet.route).unwrap();
        let (packet, route) = if self.plan.bytes {
            self.through_bytes(&packet, &route)
        } else {
            (packet, route)
        };
        if packet.bth.opcode().is_response()
            && packet.damage == Damage::None
            && let Some(qp) = self.find(|end| end.qp.number() == packet.bth.dest_qp(), to)
        {
            self.waits[qp][to].hears(self.now, &packet);
        }
        let s = &mut self.sides[to];
        s.card.receive(self.now, &packet, &route, &mut self.staging);
        self.poll(to);
    }

    fn find(&self, is: impl Fn(&End) -> bool, side: usize) -> Option<usize> {
        self.ends.iter().position(|ends| is(&ends[side]))
    }

    /// The packet as a port would read it from the wire.
    fn through_bytes(&mut self, packet: &Packet, route: &Route) -> (Packet, Route) {
        let payload = self.staging.payload(packet.payload).unwrap_or_default();
        let mut bytes = Vec::new();
        frame::encode_packet(packet, route, payload, &mut bytes).unwrap();
        let view = FrameView::decode(&bytes).unwrap();
        let route = view.route();
        let data = view.transport.payload.to_vec();
        let handle = self.staging.hold(data);
        let mut there = view.to_packet(self.routes.intern(route), handle).unwrap();
        if view.check_icrc().is_err() {
            there.damage = Damage::Device;
        }
        assert_eq!(there.damage, packet.damage);
        (there, route)
    }

    fn poll(&mut self, side: usize) {
        while let Some(c) = self.sides[side].cq.poll() {
            self.log.push(format!("{} {side} {c:?}", self.now));
            self.completed(side, &c);
        }
    }

    fn completed(&mut self, side: usize, c: &Completion) {
        let find = |ends: &[End; 2]| ends[side].qp.number() == c.qp;
        let qp = self.ends.iter().position(find).unwrap();
        let (left, right) = self.ends[qp].split_at_mut(1);
        let (own, peer) = if side == 0 {
            (&mut left[0], &right[0])
        } else {
            (&mut right[0], &left[0])
        };
        own.completed(c, peer);
    }

    fn finish(mut self) -> Outcome {
        let mut failed = 0;
        for (qp, ends) in self.ends.iter_mut().enumerate() {
            let states = [0, 1].map(|side| ends[side].qp.state());
            let broken = states.contains(&State::Error);
            failed += usize::from(broken);
            for side in 0..2 {
                let (own, peer) = (&ends[side], &ends[1 - side]);
                println!("connection {qp} side {side}: {}", states[side]);
                own.check_end(peer, states[side], broken);
            }
        }
        let counters = self.sides.each_ref().map(|s| s.card.counters());
        for c in counters {
            assert_eq!(
                c.naks_sent.total(),
                c.naks_sent.sequence,
                "nothing was wrong"
            );
            self.log.push(format!("{c:?}"));
        }
        Outcome {
            log: self.log,
            failed,
            resent: counters.iter().map(|c| c.retransmitted_packets).sum(),
        }
    }
}

impl Op {
    /// True for a status that a bad network alone can cause.
    pub(crate) fn may_fail_with(status: Status) -> bool {
        matches!(status, Status::RetryExceeded | Status::RnrRetryExceeded)
    }
}
