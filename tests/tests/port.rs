//! Cards in real time: two of them on UDP ports of the loopback network, each in a thread of its own.
#![cfg(target_os = "linux")]

use softroce_sim::card::{
    AddressVector, Card, Completion, CompletionKind, CompletionQueue, Mtu, QpAttributes, QpInit,
    QpType, QueuePair, RecvRequest, Refusal, Remote, SendRequest, Sge, State, Status, Work,
};
use softroce_sim::memory::{Access, Buffer, MemoryRegion};
use softroce_sim::port::{Direction, OpenError, Tap, UdpConfig, UdpPort, seed};
use softroce_sim::random::{Probability, Stream};
use softroce_sim::time::Time;
use softroce_sim::wire::frame::{FrameView, Network, encode_udp_payload};
use softroce_sim::wire::{
    Bth, Damage, Ecn, Encapsulation, Ext, Gid, Immediate, MacAddr, Opcode, Packet, Payload, Psn,
    QpNumber, Reth, Route, RouteTable,
};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LEN: usize = 64 << 10;
const DEPTH: u32 = 16;
const PATIENCE: Duration = Duration::from_secs(20);

fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// A queue pair with its memory.
struct Channel {
    qp: QueuePair,
    psn: Psn,
    memory: Buffer,
    region: MemoryRegion,
}

impl Channel {
    fn new(card: &mut Card, cq: &CompletionQueue) -> Channel {
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
        }
    }

    fn address(&self, gid: Gid) -> (Gid, QpNumber, Psn) {
        (gid, self.qp.number(), self.psn)
    }

    fn connect(
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
        modify(QpAttributes {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(rights()),
            ..Default::default()
        });
        modify(QpAttributes {
            state: Some(State::Rtr),
            address: Some(AddressVector {
                dgid,
                dmac: MacAddr::default(),
                sl: 0,
                traffic_class: 26 << 2,
                hop_limit: 64,
                flow_label: 0,
                udp_src: None,
                vlan: None,
            }),
            path_mtu: Some(mtu),
            dest_qp: Some(dest_qp),
            rq_psn: Some(rq_psn),
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: Some(1),
            ..Default::default()
        });
        modify(QpAttributes {
            state: Some(State::Rts),
            sq_psn: Some(self.psn),
            timeout: Some(timeout),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(4),
            ..Default::default()
        });
    }

    fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.region.addr,
            len: len as u32,
            lkey: self.region.lkey,
        }
    }

    fn remote(&self) -> Remote {
        Remote {
            addr: self.region.addr,
            rkey: self.region.rkey,
        }
    }

    fn receive(&mut self) {
        let sge = self.sge(LEN);
        while self.qp.recv_room() > 0 {
            let request = RecvRequest {
                wr_id: 0,
                sges: &[sge],
            };
            self.qp.post_recv(&request).unwrap();
        }
    }

    fn send(&mut self, work: Work, len: usize) {
        let sge = self.sge(len);
        self.qp
            .post_send(&SendRequest::new(1, work, &[sge]))
            .unwrap();
    }
}

/// A card on a port with one channel.
struct End {
    port: UdpPort,
    card: Card,
    cq: CompletionQueue,
    channel: Channel,
}

impl End {
    fn new(config: &UdpConfig) -> End {
        let port = UdpPort::open(config).unwrap();
        let mut card = Card::new(port.card_config("card"), seed().unwrap(), port.routes());
        let cq = card.create_cq(256).unwrap();
        let channel = Channel::new(&mut card, &cq);
        End {
            port,
            card,
            cq,
            channel,
        }
    }

    fn address(&self) -> (Gid, QpNumber, Psn) {
        self.channel.address(self.port.gid())
    }

    fn connect(&mut self, peer: (Gid, QpNumber, Psn), mtu: Mtu, timeout: u8) {
        self.channel.connect(&mut self.card, peer, mtu, timeout);
        self.channel.receive();
    }

    /// Posts a request and waits for its completion.
    fn run(&mut self, work: Work, len: usize) -> Completion {
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
    fn serve(mut self, stop: &AtomicBool, to: &Sender<Completion>) -> End {
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
fn pair(
    configs: [&UdpConfig; 2],
    mtu: Mtu,
    timeout: u8,
    body: impl FnOnce(&mut End, &Buffer, Remote, &Receiver<Completion>),
) -> [End; 2] {
    let (mut a, mut b) = (End::new(configs[0]), End::new(configs[1]));
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

fn random(stream: &mut Stream, len: usize) -> Vec<u8> {
    (0..len).map(|_| stream.bits() as u8).collect()
}

fn read(memory: &Buffer, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read_at(0, &mut bytes);
    bytes
}

/// Every operation once, data compared.
fn every_operation(
    a: &mut End,
    memory: &Buffer,
    remote: Remote,
    received: &Receiver<Completion>,
    len: usize,
    stream: &mut Stream,
) {
    let immediate = Immediate::from_be(stream.bits() as u32);
    let works = [
        Work::Send,
        Work::SendImmediate(immediate),
        Work::Write(remote),
        Work::WriteImmediate(remote, immediate),
        Work::Read(remote),
    ];
    for work in works {
        let (ours, theirs) = (random(stream, len), random(stream, len));
        a.channel.memory.write_at(0, &ours);
        memory.write_at(0, &theirs);
        let completion = a.run(work, len);
        assert_eq!(completion.status, Status::Success, "{work:?} of {len}");
        let moved = match work {
            Work::Read(_) => theirs,
            _ => ours,
        };
        assert_eq!(read(memory, len), moved, "{work:?} of {len}: there");
        assert_eq!(
            read(&a.channel.memory, len),
            moved,
            "{work:?} of {len}: here"
        );
        let expected = match work {
            Work::Send => Some((CompletionKind::Receive, None)),
            Work::SendImmediate(i) => Some((CompletionKind::Receive, Some(i))),
            Work::WriteImmediate(_, i) => Some((CompletionKind::ReceiveWithImmediate, Some(i))),
            _ => None,
        };
        if let Some((kind, immediate)) = expected {
            let c = received.recv_timeout(PATIENCE).unwrap();
            assert_eq!(
                (c.status, c.kind, c.immediate, c.byte_len as usize),
                (Status::Success, kind, immediate, len),
                "{work:?}"
            );
        }
    }
}

/// Both atomics: the old value comes back, the new one is there.
fn atomics(a: &mut End, memory: &Buffer, remote: Remote) {
    let value = |memory: &Buffer| u64::from_ne_bytes(read(memory, 8).try_into().unwrap());
    memory.write_at(0, &40u64.to_ne_bytes());
    let add = Work::FetchAdd { at: remote, add: 2 };
    let swap = Work::CompareSwap {
        at: remote,
        compare: 42,
        swap: 7,
    };
    for (work, old, new) in [(add, 40, 42), (swap, 42, 7), (swap, 7, 7)] {
        assert_eq!(a.run(work, 8).status, Status::Success, "{work:?}");
        assert_eq!((value(&a.channel.memory), value(memory)), (old, new));
    }
}

#[test]
fn every_operation_at_every_mtu_carries_its_data() {
    let mut stream = Stream::new(1, "data");
    for mtu in Mtu::ALL {
        let config = UdpConfig::default();
        let m = usize::from(mtu.bytes());
        let ends = pair(
            [&config, &config],
            mtu,
            14,
            |a, memory, remote, received| {
                for len in [0, 1, 3, m - 1, m, m + 1, 3 * m + 2] {
                    every_operation(a, memory, remote, received, len, &mut stream);
                }
                atomics(a, memory, remote);
            },
        );
        for end in ends {
            assert_eq!(end.port.counters().malformed, 0);
            assert_eq!(end.card.counters().refused.get(Refusal::BadIcrc), 0);
        }
    }
}

#[test]
fn losses_on_both_sides_cost_time_alone() {
    let config = |loss_seed| UdpConfig {
        loss: Probability::new(0.05).unwrap(),
        loss_seed,
        ..UdpConfig::default()
    };
    let mut stream = Stream::new(2, "data");
    let ends = pair(
        [&config(1), &config(2)],
        Mtu::M1024,
        10,
        |a, memory, remote, received| {
            for _ in 0..20 {
                every_operation(a, memory, remote, received, 9000, &mut stream);
            }
        },
    );
    for end in ends {
        assert!(end.port.counters().dropped > 0);
    }
}

#[test]
fn a_receiver_that_overflows_costs_time_alone() {
    let small = UdpConfig {
        // A dozen packets; a message has 63.
        receive_buffer: 16 << 10,
        ..UdpConfig::default()
    };
    let mut stream = Stream::new(8, "data");
    pair(
        [&small, &small],
        Mtu::M1024,
        8,
        |a, memory, remote, received| {
            for _ in 0..10 {
                every_operation(a, memory, remote, received, 64_000, &mut stream);
            }
        },
    );
}

type Seen = Vec<(Direction, Vec<u8>)>;

/// Collects frames.
struct Frames(Arc<Mutex<Seen>>);

impl Tap for Frames {
    fn frame(&mut self, _: Time, direction: Direction, frame: &[u8]) {
        self.0.lock().unwrap().push((direction, frame.to_vec()));
    }
}

#[test]
fn a_tap_sees_whole_frames() {
    let config = UdpConfig::default();
    let frames = Arc::new(Mutex::new(Vec::new()));
    let mut stream = Stream::new(3, "data");
    pair(
        [&config, &config],
        Mtu::M1024,
        14,
        |a, memory, remote, received| {
            a.port.set_tap(Some(Box::new(Frames(frames.clone()))));
            every_operation(a, memory, remote, received, 3001, &mut stream);
            a.port.set_tap(None);
        },
    );
    let frames = frames.lock().unwrap();
    let mut seen = [0; 2];
    for (direction, frame) in frames.iter() {
        let view = FrameView::decode(frame).unwrap();
        assert_eq!(view.check(), [], "{direction:?} {view:?}");
        assert_eq!((view.network.hop_limit(), view.network.dscp()), (64, 26));
        seen[*direction as usize] += 1;
    }
    // Four packets each way carry data and the READ request; an answer for each message.
    assert!(seen[0] >= 13 && seen[1] >= 7, "{seen:?}");
}

#[test]
fn the_kernel_writes_the_headers_that_the_icrc_is_over() {
    // All protocols, in network byte order.
    let all = socket2::Protocol::from(i32::from(3u16.to_be()));
    let wire = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, Some(all));
    let mut wire = match wire {
        Ok(wire) => wire,
        Err(e) => {
            eprintln!("not looked at, frames of the loopback interface cannot be read: {e}");
            return;
        }
    };
    wire.set_nonblocking(true).unwrap();
    // Room for what other tests send at the same time; what is lost all the same does not matter.
    wire.set_recv_buffer_size(4 << 20).unwrap();
    let config = UdpConfig::default();
    let mut stream = Stream::new(7, "data");
    let mut own = Gid::default();
    pair(
        [&config, &config],
        Mtu::M1024,
        14,
        |a, memory, remote, received| {
            own = a.port.gid();
            every_operation(a, memory, remote, received, 3001, &mut stream);
        },
    );
    let mut seen = 0;
    let mut bytes = [0; 65_536];
    while let Ok(len) = wire.read(&mut bytes) {
        let Ok(view) = FrameView::decode(&bytes[..len]) else {
            continue;
        };
        let Network::Ipv4(ip, udp) = &view.network else {
            continue;
        };
        if view.network.src() == own {
            assert_eq!(view.check_icrc(), Ok(()), "{view:?}");
            assert!(ip.dont_fragment);
            assert_eq!((ip.identification, ip.ttl, ip.dscp), (0, 64, 26));
            assert_eq!((udp.src_port, udp.dst_port), (4791, 4791));
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn a_peer_that_is_not_there_exhausts_the_retries() {
    let mut a = End::new(&UdpConfig::default());
    let nobody = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 7));
    a.connect(
        (nobody.into(), QpNumber::new(0x20), Psn::new(1)),
        Mtu::M1024,
        10,
    );
    let start = Instant::now();
    assert_eq!(a.run(Work::Send, 10).status, Status::RetryExceeded);
    // Eight timeouts of 4.2 ms.
    assert!(start.elapsed() >= Duration::from_millis(33));
    assert_eq!(a.card.counters().timeouts, 8);
    assert_eq!(a.channel.qp.state(), State::Error);
}

#[test]
fn a_card_speaks_ipv6_and_to_itself() {
    let config = UdpConfig {
        address: Some(Ipv6Addr::LOCALHOST.into()),
        // The machine has one IPv6 loopback address; leave its usual port to others.
        port: 14_791,
        ..UdpConfig::default()
    };
    let mut a = match UdpPort::open(&config) {
        Err(OpenError::NoFamily(_) | OpenError::NotLocal(_)) => return,
        Err(e) => panic!("{e}"),
        Ok(port) => {
            drop(port);
            End::new(&config)
        }
    };
    let frames = Arc::new(Mutex::new(Vec::new()));
    a.port.set_tap(Some(Box::new(Frames(frames.clone()))));
    let other = Channel::new(&mut a.card, &a.cq);
    let (to_a, to_other) = (a.address(), other.address(a.port.gid()));
    other.connect(&mut a.card, to_a, Mtu::M1024, 14);
    a.connect(to_other, Mtu::M1024, 14);
    let mut stream = Stream::new(4, "data");
    let data = random(&mut stream, 5000);
    a.channel.memory.write_at(0, &data);
    let completion = a.run(Work::Write(other.remote()), data.len());
    assert_eq!(completion.status, Status::Success);
    assert_eq!(read(&other.memory, data.len()), data);
    let frames = frames.lock().unwrap();
    assert!(frames.len() >= 12, "{}", frames.len());
    for (_, frame) in frames.iter() {
        let view = FrameView::of_ethertype(0x86dd, &frame[14..]);
        // RoCEv2's port is part of its structure; on another one the frame is foreign.
        assert!(view.is_err_and(|e| e.is_foreign()));
    }
}

#[test]
fn errors_name_the_address_and_what_is_wrong() {
    let at = |ip: Ipv4Addr| UdpConfig {
        address: Some(ip.into()),
        ..UdpConfig::default()
    };
    let port = UdpPort::open(&UdpConfig::default()).unwrap();
    let IpAddr::V4(own) = port.address().ip() else {
        panic!("{port:?}");
    };
    assert!(own.is_loopback() && own.octets()[3] >= 2);
    let in_use = UdpPort::open(&at(own)).unwrap_err();
    assert!(matches!(in_use, OpenError::InUse(_)), "{in_use:?}");
    assert!(in_use.to_string().contains(&format!("{own}:4791")));
    let documentation = Ipv4Addr::new(203, 0, 113, 1);
    let not_local = UdpPort::open(&at(documentation)).unwrap_err();
    assert!(matches!(not_local, OpenError::NotLocal(_)), "{not_local:?}");
    for ip in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(224, 0, 0, 1)] {
        let error = UdpPort::open(&at(ip)).unwrap_err();
        assert!(matches!(error, OpenError::NotUnicast(_)), "{error:?}");
    }
}

#[test]
fn a_card_started_again_is_another_card() {
    let config = UdpConfig::default();
    let (a, b) = (End::new(&config), End::new(&config));
    assert_ne!(a.channel.qp.number(), b.channel.qp.number());
    assert_ne!(a.channel.psn, b.channel.psn);
    assert_ne!(a.channel.region.rkey, b.channel.region.rkey);
}

/// A datagram for the queue pair `dest` that came from `from`, its ICRC right.
fn forge(from: IpAddr, udp_src: u16, to: Gid, dest: QpNumber, stream: &mut Stream) -> Vec<u8> {
    let route = Route {
        encapsulation: Encapsulation::RoceV2,
        src_mac: MacAddr::default(),
        dst_mac: MacAddr::default(),
        src: from.into(),
        dst: to,
        udp_src,
        vlan: None,
        dscp: 0,
        hop_limit: 64,
        flow_label: 0,
    };
    let payload = random(stream, stream.clone().below(300) as usize);
    let packet = Packet {
        ext: Ext::Reth(Reth {
            va: stream.bits(),
            rkey: softroce_sim::wire::RemoteKey(stream.bits() as u32),
            dma_len: stream.bits() as u32,
        }),
        bth: Bth::new(Opcode::RC_WRITE_ONLY, dest, Psn::new(stream.bits() as u32)),
        route: RouteTable::new().intern(route),
        payload: Payload::stored(0, payload.len() as u16),
        frame_len: 0,
        priority: 0,
        ecn: Ecn::NotCapable,
        damage: Damage::None,
        hop_limit: 64,
    };
    let mut bytes = Vec::new();
    encode_udp_payload(&packet, &route, &payload, &mut bytes).unwrap();
    bytes
}

#[test]
fn nothing_a_stranger_sends_disturbs_a_peer() {
    let config = UdpConfig::default();
    let mut stream = Stream::new(5, "data");
    let ends = pair(
        [&config, &config],
        Mtu::M1024,
        14,
        |a, memory, remote, received| {
            let own = a.port.address();
            let (to, number, _) = a.address();
            let busy = AtomicBool::new(true);
            std::thread::scope(|scope| {
                scope.spawn(|| attack(own, to, number, &busy));
                for _ in 0..300 {
                    every_operation(a, memory, remote, received, 5000, &mut stream);
                }
                busy.store(false, Ordering::Relaxed);
            });
        },
    );
    let [a, _] = ends;
    let (port, card) = (a.port.counters(), a.card.counters());
    // Each kind of datagram got as far as it was meant to.
    assert!(port.malformed > 100, "{port:?}");
    for why in [
        Refusal::BadIcrc,
        Refusal::UnknownQueuePair,
        Refusal::WrongAddress,
    ] {
        assert!(card.refused.get(why) > 100, "{why:?}: {card:?}");
    }
}

/// Fires at a card until it is not busy any more.
fn attack(target: std::net::SocketAddr, to: Gid, number: QpNumber, busy: &AtomicBool) {
    let stranger = UdpSocket::bind("127.0.9.9:0").unwrap();
    let source = stranger.local_addr().unwrap();
    let mut stream = Stream::new(6, "attack");
    let mut round = 0u64;
    while busy.load(Ordering::Relaxed) {
        let other = QpNumber::new(number.get() + 1);
        let forged = forge(source.ip(), source.port(), to, number, &mut stream);
        let unknown = forge(source.ip(), source.port(), to, other, &mut stream);
        let mut mutated = forged.clone();
        for _ in 0..=stream.below(4) {
            let at = stream.below(mutated.len() as u64) as usize;
            mutated[at] ^= 1 << stream.below(8);
        }
        let cut = forged[..stream.below(forged.len() as u64) as usize].to_vec();
        let len = stream.below(200) as usize;
        let noise = random(&mut stream, len);
        let long = random(&mut stream, 9000 + (round % 500) as usize);
        for bytes in [&forged, &unknown, &mutated, &cut, &noise, &long] {
            // A full device is no reason to stop.
            let _ = stranger.send_to(bytes, target);
        }
        round += 1;
        std::thread::sleep(Duration::from_micros(50));
    }
}
