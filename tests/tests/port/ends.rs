//! Two ends of a connection, each a card on a port.

use softroce_sim::card::{
    AddressVector, Card, CardConfig, Completion, CompletionQueue, Mtu, Peer, QpAttributes, QpInit,
    QpType, QueuePair, RecvRequest, Reliability, Remote, SendRequest, Sge, Work,
};
use softroce_sim::faults::{Action, Fault, Pattern};
use softroce_sim::memory::{Access, Buffer, MemoryRegion};
use softroce_sim::port::{Direction, Link, Port, Tap, Udp, UdpConfig, UdpPort, seed};
use softroce_sim::random::{Probability, Stream};
use softroce_sim::time::Time;
use softroce_sim::wire::{Encapsulation, Gid, MacAddr, Psn, QpNumber};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const LEN: usize = 64 << 10;
pub(crate) const DEPTH: u32 = 16;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// A queue pair with its memory.
pub(crate) struct Channel {
    pub(crate) qp: QueuePair,
    pub(crate) psn: Psn,
    pub(crate) memory: Buffer,
    pub(crate) region: MemoryRegion,
    /// The way to the peer but for its address.
    pub(crate) way: AddressVector,
}

impl Channel {
    pub(crate) fn new(card: &mut Card, cq: &CompletionQueue) -> Channel {
        let pd = card.alloc_pd();
        let memory = Buffer::new(LEN);
        let access = rights();
        let region = card.register(pd, memory.clone(), access).unwrap();
        let qp = card
            .create_qp(&QpInit::new(QpType::Rc, pd, cq.id(), DEPTH))
            .unwrap();
        let psn = card.draw_psn();
        Channel {
            qp,
            psn,
            memory,
            region,
            way: AddressVector {
                dgid: Gid::default(),
                dmac: MacAddr::default(),
                sl: 0,
                traffic_class: 26 << 2,
                hop_limit: 64,
                flow_label: 0,
                udp_src: None,
                vlan: None,
            },
        }
    }

    pub(crate) fn address(&self, gid: Gid) -> (Gid, QpNumber, Psn) {
        (gid, self.qp.number(), self.psn)
    }

    pub(crate) fn connect(
        &self,
        card: &mut Card,
        (dgid, dest_qp, rq_psn): (Gid, QpNumber, Psn),
        mtu: Mtu,
        timeout: u8,
    ) {
        let mut modify = |attributes| {
            card.modify_qp(Time::ZERO, self.qp.number(), &attributes)
                .unwrap();
        };
        let address = AddressVector { dgid, ..self.way };
        let peer = Peer {
            address,
            path_mtu: mtu,
            qp: dest_qp,
            psn: rq_psn,
        };
        let reliability = Reliability {
            timeout,
            min_rnr_timer: 1,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            ..Reliability::default()
        };
        modify(QpAttributes::to_init(rights()));
        modify(QpAttributes::to_rtr(&peer, Some(&reliability)));
        modify(QpAttributes::to_rts(self.psn, Some(&reliability)));
    }

    pub(crate) fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.region.addr,
            len: len as u32,
            lkey: self.region.lkey,
        }
    }

    pub(crate) fn remote(&self) -> Remote {
        Remote {
            addr: self.region.addr,
            rkey: self.region.rkey,
        }
    }

    pub(crate) fn receive(&mut self) {
        let sge = self.sge(LEN);
        while self.qp.recv_room() > 0 {
            let request = RecvRequest {
                wr_id: 0,
                sges: &[sge],
            };
            self.qp.post_recv(&request).unwrap();
        }
    }

    pub(crate) fn send(&mut self, work: Work, len: usize) {
        let sge = self.sge(len);
        self.qp
            .post_send(&SendRequest::new(1, work, &[sge]))
            .unwrap();
    }
}

/// A card on a port with one channel.
pub(crate) struct End<L> {
    pub(crate) port: Port<L>,
    pub(crate) card: Card,
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: Channel,
}

impl End<Udp> {
    pub(crate) fn new(config: &UdpConfig) -> End<Udp> {
        End::on(UdpPort::open(config).unwrap(), Encapsulation::RoceV2)
    }
}

impl<L: Link> End<L> {
    pub(crate) fn on(port: Port<L>, encapsulation: Encapsulation) -> End<L> {
        End::with(port, |config| config.encapsulation = encapsulation)
    }

    pub(crate) fn with(port: Port<L>, change: impl FnOnce(&mut CardConfig)) -> End<L> {
        let mut config = port.card_config("card");
        change(&mut config);
        let mut card = Card::new(config, seed().unwrap(), port.routes());
        let cq = card.create_cq(256).unwrap();
        let channel = Channel::new(&mut card, &cq);
        End {
            port,
            card,
            cq,
            channel,
        }
    }

    pub(crate) fn address(&self) -> (Gid, QpNumber, Psn) {
        self.channel.address(self.port.gid())
    }

    pub(crate) fn connect(&mut self, peer: (Gid, QpNumber, Psn), mtu: Mtu, timeout: u8) {
        self.channel.connect(&mut self.card, peer, mtu, timeout);
        self.channel.receive();
    }

    /// Posts a request and waits for its completion.
    pub(crate) fn run(&mut self, work: Work, len: usize) -> Completion {
        self.channel.send(work, len);
        self.card
            .doorbell(self.port.now(), self.channel.qp.number());
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(completion) = self.cq.poll() {
                return completion;
            }
            self.port
                .run_once(&mut self.card, Duration::from_millis(100))
                .unwrap();
        }
        panic!("no completion of {work:?} of {len} bytes: {:?}", self.port);
    }

    /// Serves the peer until told to stop; completions go to `to`.
    pub(crate) fn serve(mut self, stop: &AtomicBool, to: &Sender<Completion>) -> End<L> {
        while !stop.load(Ordering::Relaxed) {
            self.port
                .run_once(&mut self.card, Duration::from_millis(1))
                .unwrap();
            while let Some(completion) = self.cq.poll() {
                let _ = to.send(completion);
            }
            self.channel.receive();
        }
        self
    }
}

/// Two connected ends; the second serves in a thread of its own while `body` works with the first,
/// the memory of the second, and its completions. Gives both back.
pub(crate) fn pair(
    configs: [&UdpConfig; 2],
    mtu: Mtu,
    timeout: u8,
    body: impl FnOnce(&mut End<Udp>, &Buffer, Remote, &Receiver<Completion>),
) -> [End<Udp>; 2] {
    pair_of(configs.map(End::new), mtu, timeout, body)
}

/// The same with ends that are there already.
pub(crate) fn pair_of<L: Link + Send>(
    [mut a, mut b]: [End<L>; 2],
    mtu: Mtu,
    timeout: u8,
    body: impl FnOnce(&mut End<L>, &Buffer, Remote, &Receiver<Completion>),
) -> [End<L>; 2] {
    let (to_a, to_b) = (a.address(), b.address());
    a.connect(to_b, mtu, timeout);
    b.connect(to_a, mtu, timeout);
    let (memory, remote) = (b.channel.memory.clone(), b.channel.remote());
    let stop = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| b.serve(&stop, &sender));
        // The server ends even if the body panics.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let guard = Stop(&stop);
        body(&mut a, &memory, remote, &receiver);
        drop(guard);
        let b = server.join().unwrap();
        [a, b]
    })
}

/// A fault that loses this share of packets.
pub(crate) fn lossy(share: f64) -> Fault {
    let share = Probability::new(share).unwrap();
    Fault::new(Action::Drop).when(Pattern::Random(share))
}

type Seen = Vec<(Direction, Vec<u8>)>;

/// Frames that a port has sent and received, in order.
#[derive(Clone, Default)]
pub(crate) struct Frames(Arc<Mutex<Seen>>);

impl Frames {
    /// As a tap of a port.
    pub(crate) fn tap(&self) -> Option<Box<dyn Tap>> {
        Some(Box::new(self.clone()))
    }

    /// Those since this was last asked.
    pub(crate) fn take(&self) -> Seen {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Tap for Frames {
    fn frame(&mut self, _: Time, direction: Direction, frame: &[u8]) {
        self.0.lock().unwrap().push((direction, frame.to_vec()));
    }
}

pub(crate) fn random(stream: &mut Stream, len: usize) -> Vec<u8> {
    (0..len).map(|_| stream.bits() as u8).collect()
}

pub(crate) fn read(memory: &Buffer, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read_at(0, &mut bytes);
    bytes
}
