//! Two cards wired back to back, without network and without time passing: what a packet costs a card.

use softroce_sim::card::{
    AddressVector, Card, CardConfig, CompletionQueue, Env, Mtu, Peer, PriorityMask, QpAttributes,
    QpInit, QpType, QueuePair, RecvRequest, Reliability, Remote, SendRequest, Sge, Work,
};
use softroce_sim::fabric::{PayloadMode, PayloadPool};
use softroce_sim::memory::{Access, Buffer, MemoryRegion};
use softroce_sim::time::Time;
use softroce_sim::wire::{MacAddr, Payload, Psn, Route, RouteTable};
use std::net::Ipv4Addr;

struct Pool(PayloadPool);

impl Env for Pool {
    fn stage(&mut self, len: u16, fill: impl FnOnce(&mut [u8])) -> Payload {
        self.0.stage(len, fill)
    }

    fn payload(&self, payload: Payload) -> Option<&[u8]> {
        self.0.get(payload)
    }
}

struct Side {
    card: Card,
    cq: CompletionQueue,
    qp: QueuePair,
    mr: MemoryRegion,
}

/// Messages of one kind from one card to another.
pub(crate) struct Pair {
    sides: [Side; 2],
    routes: RouteTable,
    seen: Vec<Route>,
    pool: Pool,
}

const DEPTH: u32 = 16;

impl Pair {
    pub(crate) fn new() -> Pair {
        let routes = RouteTable::new();
        let gid = |i: u8| Ipv4Addr::new(10, 0, 0, 1 + i).into();
        let mut sides = [0u8, 1].map(|i| {
            let config = CardConfig {
                ack_every: 1,
                ..CardConfig::new(format!("{i}"), gid(i), MacAddr([2, 0, 0, 0, 0, i]))
            };
            let mut card = Card::new(config, 1, routes.clone());
            let pd = card.alloc_pd();
            let cq = card.create_cq(4 * DEPTH).expect("a valid size");
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let mr = card
                .register(pd, Buffer::new(1 << 16), access)
                .expect("a valid region");
            let qp = card
                .create_qp(&QpInit::new(QpType::Rc, pd, cq.id(), DEPTH))
                .expect("valid sizes");
            Side { card, cq, qp, mr }
        });
        let numbers = sides.each_ref().map(|s| s.qp.number());
        for (i, side) in sides.iter_mut().enumerate() {
            let peer = 1 - i;
            let address = AddressVector {
                dgid: gid(peer as u8),
                dmac: MacAddr([2, 0, 0, 0, 0, peer as u8]),
                sl: 3,
                traffic_class: 0,
                hop_limit: 64,
                flow_label: 0,
                udp_src: None,
                vlan: None,
            };
            let peer = Peer {
                address,
                path_mtu: Mtu::M4096,
                qp: numbers[peer],
                psn: Psn::new(0),
            };
            let reliability = Reliability {
                min_rnr_timer: 1,
                ..Reliability::default()
            };
            let steps = [
                QpAttributes::to_init(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
                QpAttributes::to_rtr(&peer, Some(&reliability)),
                QpAttributes::to_rts(Psn::new(0), Some(&reliability)),
            ];
            for step in steps {
                side.card
                    .modify_qp(Time::ZERO, numbers[i], &step)
                    .expect("a valid step");
            }
        }
        let pool = Pool(PayloadPool::new(PayloadMode::Carried));
        let mut seen = Vec::new();
        routes.refresh(&mut seen);
        Pair {
            sides,
            routes,
            seen,
            pool,
        }
    }

    /// Carries packets until none is left.
    fn settle(&mut self) {
        loop {
            let mut any = false;
            for i in 0..2 {
                let next =
                    self.sides[i]
                        .card
                        .next_packet(Time::ZERO, PriorityMask::ALL, &mut self.pool);
                let Some(packet) = next else { continue };
                any = true;
                if packet.route.index() >= self.seen.len() {
                    self.routes.refresh(&mut self.seen);
                }
                let route = self.seen[packet.route.index()];
                self.sides[1 - i]
                    .card
                    .receive(Time::ZERO, &packet, &route, &mut self.pool);
                self.pool.0.release(packet.payload);
            }
            if !any {
                return;
            }
        }
    }

    /// Sends `count` messages of `len` bytes, a window at a time.
    pub(crate) fn send(&mut self, write: bool, len: u32, count: u32) {
        let sge = |s: &Side| {
            [Sge {
                addr: s.mr.addr,
                len,
                lkey: s.mr.lkey,
            }]
        };
        let mut left = count;
        while left > 0 {
            let window = left.min(DEPTH);
            let remote = Remote {
                addr: self.sides[1].mr.addr,
                rkey: self.sides[1].mr.rkey,
            };
            for n in 0..window {
                let work = if write {
                    Work::Write(remote)
                } else {
                    Work::Send
                };
                if !write {
                    let sges = sge(&self.sides[1]);
                    let request = RecvRequest {
                        wr_id: n.into(),
                        sges: &sges,
                    };
                    self.sides[1].qp.post_recv(&request).expect("there is room");
                }
                let sges = sge(&self.sides[0]);
                let request = SendRequest::new(n.into(), work, &sges);
                self.sides[0].qp.post_send(&request).expect("there is room");
            }
            let number = self.sides[0].qp.number();
            self.sides[0].card.doorbell(Time::ZERO, number);
            self.settle();
            for side in &mut self.sides {
                while side.cq.poll().is_some() {}
            }
            left -= window;
        }
        assert_eq!(self.sides[0].card.counters().retransmitted_packets, 0);
    }
}
