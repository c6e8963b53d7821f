//! Two cards, connected.

use softroce_sim::card::{
    AddressVector, Card, CompletionQueue, Mtu, Peer, QpAttributes, QpInit, QpType, QueuePair,
    RecvRequest, Reliability, Remote, SendRequest, Sge, Status, Work,
};
use softroce_sim::memory::{Access, Buffer, MemoryRegion};
use softroce_sim::port::{
    ChannelDevice, Engine, EthernetConfig, EthernetPort, Link, Port, UdpConfig, UdpPort,
};
use softroce_sim::wire::{Immediate, MacAddr, Psn};
use std::net::Ipv4Addr;
use std::time::Instant;

/// Bytes of a long message.
pub(crate) const LEN: usize = 1 << 20;
/// Requests that a queue holds.
const DEPTH: u32 = 256;
/// Of so many short messages one is told of.
const SIGNALED: u64 = 32;

/// What is between two cards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    Udp,
    Offload,
}

pub(crate) struct End {
    pub(crate) engine: Engine,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
    _memory: Buffer,
    psn: Psn,
    posted: u64,
    told: u64,
}

pub(crate) fn pair(kind: Kind) -> [End; 2] {
    let mut ends = match kind {
        Kind::Channel => {
            let (a, b) = ChannelDevice::pair(1024);
            [(a, 1), (b, 2)].map(|(device, last)| {
                let mac = MacAddr([2, 0, 0, 0, 0, last]);
                let ip = Ipv4Addr::new(10, 0, 0, last).into();
                End::new(EthernetPort::open(device, &EthernetConfig::new(ip, mac)).unwrap())
            })
        }
        Kind::Udp | Kind::Offload => [0; 2].map(|_| {
            End::new(
                UdpPort::open(&UdpConfig {
                    offload: kind == Kind::Offload,
                    ..UdpConfig::default()
                })
                .unwrap(),
            )
        }),
    };
    for i in 0..2 {
        let other = &ends[1 - i];
        let (gid, number, psn) = (other.engine.gid(), other.qp.number(), other.psn);
        let peer = Peer {
            address: AddressVector {
                dgid: gid,
                dmac: MacAddr::default(),
                sl: 0,
                traffic_class: 0,
                hop_limit: 64,
                flow_label: 0,
                udp_src: None,
                vlan: None,
            },
            path_mtu: Mtu::M4096,
            qp: number,
            psn,
        };
        ends[i].connect(&peer);
    }
    ends
}

impl End {
    fn new<L: Link + Send + 'static>(port: Port<L>) -> End {
        let seed = softroce_sim::port::seed().unwrap();
        let mut card = Card::new(port.card_config("card"), seed, port.routes());
        let pd = card.alloc_pd();
        let cq = card.create_cq(4 * DEPTH).unwrap();
        let memory = Buffer::new(LEN);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = card.register(pd, memory.clone(), access).unwrap();
        let qp = card
            .create_qp(&QpInit::new(QpType::Rc, pd, cq.id(), DEPTH))
            .unwrap();
        let psn = card.draw_psn();
        End {
            engine: Engine::start(port, card).unwrap(),
            cq,
            qp,
            region,
            _memory: memory,
            psn,
            posted: 0,
            told: 0,
        }
    }

    fn connect(&mut self, peer: &Peer) {
        let reliability = Reliability::default();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        for attributes in [
            QpAttributes::to_init(access),
            QpAttributes::to_rtr(peer, Some(&reliability)),
            QpAttributes::to_rts(self.psn, Some(&reliability)),
        ] {
            let number = self.qp.number();
            self.engine
                .control(|card, now| card.modify_qp(now, number, &attributes))
                .unwrap()
                .unwrap();
        }
        self.receive();
    }

    pub(crate) fn remote(&self) -> Remote {
        Remote {
            addr: self.region.addr,
            rkey: self.region.rkey,
        }
    }

    fn receive(&mut self) {
        let sges = [self.sge(64)];
        while self.qp.recv_room() > 0 {
            let request = RecvRequest {
                wr_id: u64::MAX,
                sges: &sges,
            };
            self.qp.post_recv(&request).unwrap();
        }
    }

    fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.region.addr,
            len: len as u32,
            lkey: self.region.lkey,
        }
    }

    pub(crate) fn post(&mut self, work: Work, len: usize) {
        let sges = [self.sge(len)];
        let request = SendRequest::new(0, work, &sges);
        self.qp.post_send(&request).unwrap();
        self.engine.doorbell(self.qp.number()).unwrap();
    }

    /// Looks for a completion, or drives; true if a request of its own is done.
    pub(crate) fn poll(&mut self) -> bool {
        match self.cq.poll() {
            Some(c) => {
                assert_eq!(c.status, Status::Success);
                c.wr_id == 0
            }
            None => {
                self.engine.drive().unwrap();
                false
            }
        }
    }

    /// Fills the send queue with short messages and takes what completions there are; how many messages
    /// are done since the last call.
    pub(crate) fn stream(&mut self, work: Work, len: usize) -> u64 {
        let sges = [self.sge(len)];
        let mut fresh = 0;
        while fresh < 64 && self.posted - self.told < u64::from(DEPTH) - SIGNALED {
            self.posted += 1;
            fresh += 1;
            let request = SendRequest {
                signaled: self.posted.is_multiple_of(SIGNALED),
                ..SendRequest::new(0, work, &sges)
            };
            self.qp.post_send(&request).unwrap();
        }
        if fresh > 0 {
            self.engine.doorbell(self.qp.number()).unwrap();
        }
        self.engine.drive().unwrap();
        let before = self.told;
        while let Some(c) = self.cq.poll() {
            assert_eq!(c.status, Status::Success);
            self.told += SIGNALED;
        }
        self.told - before
    }

    /// Waits for a message of the peer's.
    fn hear(&mut self) {
        loop {
            match self.cq.poll() {
                Some(c) => {
                    assert_eq!(c.status, Status::Success);
                    if c.wr_id != 0 {
                        break;
                    }
                }
                None => {
                    self.engine.drive().unwrap();
                }
            }
        }
    }
}

/// `rounds` messages to and fro; microseconds for each.
pub(crate) fn volley(ends: &mut [End; 2], rounds: u32) -> f64 {
    let [a, b] = ends;
    let (to_a, to_b) = (a.remote(), b.remote());
    let say = |end: &mut End, to: Remote| {
        end.post(Work::WriteImmediate(to, Immediate::from_be(1)), 64);
        // Behind the message, which does not wait for it.
        if end.qp.recv_room() > DEPTH / 2 {
            end.receive();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                b.hear();
                say(b, to_a);
            }
            // The last acknowledgement is the engine's own business.
        });
        let start = Instant::now();
        for _ in 0..rounds {
            say(a, to_b);
            a.hear();
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    })
}
