//! One card on a bench. The test plays its peer: it builds packets with any content, hands them over
//! at times it chooses, and sees what the card sends, completes and reports.
//!
//! Packets are numbered from the first one of their direction, whatever its PSN, so a test reads the
//! same at every first PSN: `send_only(0, b"abc")` is the peer's first packet, and the answer reads
//! `ACK 0 msn 1`.

mod frames;
mod say;
mod staging;
pub mod windows;

pub use say::*;
pub use staging::Staging;

use softroce_sim::card::{
    AddressHandle, AddressVector, AsyncEvent, Card, CardConfig, Completion, CompletionQueue,
    Counters, Datagram, Env, ModifyError, Mtu, Peer, PostError, PriorityMask, QpAttributes, QpInit,
    QpType, QueuePair, RecvRequest, Refusal, Reliability, Remote, SendRequest, Sge,
    SharedReceiveQueue, State, Status, Work,
};
use softroce_sim::memory::{Access, Buffer, MemoryRegion, Pd};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::aeth::SyndromeKind;
use softroce_sim::wire::{
    Ecn, Ext, Gid, MacAddr, Opcode, Packet, Payload, Psn, QpNumber, RemoteKey, Route, RouteTable,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The peer's queue pair.
pub const PEER_QP: u32 = 0x77;

/// The Q_Key of a queue pair for datagrams on the bench, and of the peer's.
pub const QKEY: u32 = 0x1122_3344;

/// Everything a peer may do.
pub fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// What the card and its queue pair are like. [`Setup::default`] is a connection as programs make it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The card.
    pub config: CardConfig,
    /// Transport service of the queue pair.
    pub service: QpType,
    /// Receives come from a shared queue of so many requests.
    pub srq: Option<u32>,
    /// Bytes of inline data of a request.
    pub max_inline: u32,
    /// Path MTU.
    pub mtu: Mtu,
    /// First PSN of the peer.
    pub rq_psn: u32,
    /// First PSN of the card.
    pub sq_psn: u32,
    /// What the queue pair allows the peer.
    pub access: Access,
    /// Local ACK timeout exponent.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// Encoded time in RNR NAKs of the card.
    pub min_rnr_timer: u8,
    /// READs the card has outstanding at most.
    pub max_rd_atomic: u8,
    /// READs the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// Requests each work queue holds.
    pub max_wr: u32,
    /// Completions the completion queue holds.
    pub cqe: u32,
    /// State the queue pair is brought to.
    pub state: State,
    /// Bytes of the card's memory.
    pub memory: usize,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            config: CardConfig::new("card", own_gid(), MacAddr([2, 0, 0, 0, 0, 1])),
            service: QpType::Rc,
            srq: None,
            max_inline: 256,
            mtu: Mtu::M1024,
            rq_psn: 100,
            sq_psn: 500,
            access: all_rights(),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            max_wr: 64,
            cqe: 256,
            state: State::Rts,
            memory: 64 << 10,
        }
    }
}

impl Setup {
    /// An unreliable connection.
    pub fn uc() -> Setup {
        Setup {
            service: QpType::Uc,
            ..Default::default()
        }
    }

    /// A queue pair for datagrams.
    pub fn ud() -> Setup {
        Setup {
            service: QpType::Ud,
            ..Default::default()
        }
    }

    /// On a card with an IPv6 address.
    #[must_use]
    pub fn over_ipv6(mut self) -> Setup {
        self.config.gid = IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)).into();
        self
    }

    fn peer(&self) -> Gid {
        match self.config.gid.ipv4() {
            Some(_) => peer_gid(),
            None => IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)).into(),
        }
    }
}

/// Address of the card.
pub fn own_gid() -> Gid {
    Ipv4Addr::new(10, 0, 0, 1).into()
}

/// Address of the peer.
pub fn peer_gid() -> Gid {
    Ipv4Addr::new(10, 0, 0, 2).into()
}

/// A card, a queue pair of it, and the packets' way from the peer.
#[derive(Debug)]
pub struct Bench {
    /// The card.
    pub card: Card,
    /// The time.
    pub now: Time,
    /// The program's side of the queue pair.
    pub qp: QueuePair,
    /// Completions of both queues.
    pub cq: CompletionQueue,
    /// Protection domain of the queue pair.
    pub pd: Pd,
    /// The card's memory.
    pub buffer: Buffer,
    /// Its registration.
    pub mr: MemoryRegion,
    /// The shared receive queue, if the setup asks for one.
    pub srq: Option<SharedReceiveQueue>,
    /// The peer, for datagrams.
    pub peer: AddressHandle,
    /// Payloads and deeds.
    pub env: Staging,
    /// The way packets of the peer come.
    pub route: Route,
    routes: RouteTable,
    init: QpInit,
    setup: Setup,
}

impl Bench {
    /// A card with a queue pair in the state the setup asks for.
    pub fn new(setup: Setup) -> Bench {
        let routes = RouteTable::new();
        let mut card = Card::new(setup.config.clone(), 1, routes.clone());
        let pd = card.alloc_pd();
        let cq = card.create_cq(setup.cqe).unwrap();
        let srq = setup.srq.map(|n| card.create_srq(pd, n, 8).unwrap());
        let init = QpInit {
            max_send_sge: 8,
            max_recv_sge: 8,
            max_inline: setup.max_inline,
            srq: srq.as_ref().map(SharedReceiveQueue::id),
            ..QpInit::new(setup.service, pd, cq.id(), setup.max_wr)
        };
        let qp = card.create_qp(&init).unwrap();
        let buffer = Buffer::new(setup.memory);
        let rights = all_rights() | Access::MW_BIND;
        let mr = card.register(pd, buffer.clone(), rights).unwrap();
        let route = Route {
            encapsulation: setup.config.encapsulation,
            src_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            dst_mac: setup.config.mac,
            src: setup.peer(),
            dst: setup.config.gid,
            udp_src: 0xc000,
            vlan: None,
            dscp: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        let peer = card
            .create_ah(pd, &address_of(setup.peer(), route.src_mac))
            .unwrap();
        let mut bench = Bench {
            card,
            now: Time::ZERO,
            qp,
            cq,
            pd,
            buffer,
            mr,
            srq,
            peer,
            env: Staging::default(),
            route,
            routes,
            init,
            setup,
        };
        bench.bring_up(bench.setup.state).unwrap();
        bench
    }

    /// A connection as programs make it.
    pub fn ready() -> Bench {
        Bench::new(Setup::default())
    }

    /// Attributes of the changes from RESET to RTS, in order.
    pub fn steps(&self) -> [QpAttributes; 3] {
        let s = &self.setup;
        let rc = s.service == QpType::Rc;
        let peer = Peer {
            address: address_of(s.peer(), self.route.src_mac),
            path_mtu: s.mtu,
            qp: QpNumber::new(PEER_QP),
            psn: Psn::new(s.rq_psn),
        };
        let reliability = rc.then_some(Reliability {
            timeout: s.timeout,
            retry_cnt: s.retry_cnt,
            rnr_retry: s.rnr_retry,
            min_rnr_timer: s.min_rnr_timer,
            max_rd_atomic: s.max_rd_atomic,
            max_dest_rd_atomic: s.max_dest_rd_atomic,
        });
        let reliability = reliability.as_ref();
        let rts = QpAttributes::to_rts(Psn::new(s.sq_psn), reliability);
        if s.service == QpType::Ud {
            let init = QpAttributes::to_init_datagrams(QKEY);
            return [init, QpAttributes::to(State::Rtr), rts];
        }
        let init = QpAttributes::to_init(s.access);
        [init, QpAttributes::to_rtr(&peer, reliability), rts]
    }

    /// Another queue pair like the first, ready to send. Its peer is the same.
    pub fn another(&mut self) -> QueuePair {
        let qp = self.card.create_qp(&self.init).unwrap();
        for step in self.steps() {
            self.card.modify_qp(self.now, qp.number(), &step).unwrap();
        }
        qp
    }

    /// Brings the queue pair from RESET to `state`.
    pub fn bring_up(&mut self, state: State) -> Result<(), ModifyError> {
        let steps = match state {
            State::Reset => 0,
            State::Init => 1,
            State::Rtr => 2,
            _ => 3,
        };
        for step in &self.steps()[..steps] {
            self.modify(*step)?;
        }
        if matches!(state, State::Sqd | State::Error) {
            self.go_to(state)?;
        }
        Ok(())
    }

    /// Changes attributes.
    pub fn modify(&mut self, attributes: QpAttributes) -> Result<(), ModifyError> {
        self.card.modify_qp(self.now, self.qp.number(), &attributes)
    }

    /// Changes the state alone.
    pub fn go_to(&mut self, state: State) -> Result<(), ModifyError> {
        self.modify(QpAttributes::to(state))
    }

    /// Its transport service.
    pub fn qp_type(&self) -> QpType {
        self.setup.service
    }

    /// The state the card says the queue pair is in.
    pub fn state(&self) -> State {
        self.card.qp_state(self.qp.number()).unwrap()
    }

    /// Lets time pass, and the card look after its deadlines on the way as they come.
    pub fn wait(&mut self, span: Span) {
        let end = self.now + span;
        while self.card.next_timeout() <= end {
            self.now = self.now.max(self.card.next_timeout());
            self.card.advance(self.now);
            // The driver's promise: what may be sent is pulled by the test; only deadlines that stay
            // where they are would keep us here.
            assert!(
                self.card.next_timeout() > self.now,
                "a deadline that has been looked after is still there"
            );
        }
        self.now = end;
    }

    /// The peer sends a packet.
    pub fn hear(&mut self, say: Say) {
        let route = self.route;
        self.hear_along(say, &route);
    }

    /// The peer sends packets.
    pub fn hear_all(&mut self, all: impl IntoIterator<Item = Say>) {
        for say in all {
            self.hear(say);
        }
    }

    /// The packet as the card gets it.
    pub fn packet_of(&mut self, say: Say) -> Packet {
        let first = if say.bth.opcode().is_response() {
            self.setup.sq_psn
        } else {
            self.setup.rq_psn
        };
        let mut bth = say
            .bth
            .with_psn(Psn::new(first).plus(say.bth.psn().get()))
            .with_pad_count(say.payload.len().wrapping_neg() as u8);
        if bth.dest_qp() == QpNumber::new(0) {
            bth = bth.with_dest_qp(self.qp.number());
        }
        let payload = match say.counted {
            Some(len) => Payload::counted(len),
            None => self.env.hold(say.payload),
        };
        Packet {
            ext: say.ext,
            bth,
            route: RouteTable::new().intern(self.route),
            payload,
            frame_len: 0,
            priority: 3,
            ecn: Ecn::NotCapable,
            damage: say.damage,
            hop_limit: 64,
        }
    }

    /// A packet comes along another route than the connection's.
    pub fn hear_along(&mut self, say: Say, route: &Route) {
        let packet = self.packet_of(say);
        self.card.receive(self.now, &packet, route, &mut self.env);
    }

    /// The next packet the card sends.
    pub fn pull(&mut self) -> Option<Packet> {
        self.card
            .next_packet(self.now, PriorityMask::ALL, &mut self.env)
    }

    /// The packets the card has to send now.
    pub fn packets(&mut self) -> Vec<Packet> {
        std::iter::from_fn(|| self.pull()).collect()
    }

    /// The packets the card has to send now, in words: opcode, number, what matters beside it. A `?`
    /// stands for AckReq, `[n]` for a payload of n bytes.
    pub fn says(&mut self) -> Vec<String> {
        let packets = self.packets();
        packets.iter().map(|p| self.describe(p)).collect()
    }

    /// A packet of the card in words.
    pub fn describe(&self, p: &Packet) -> String {
        assert_eq!(p.bth.dest_qp(), QpNumber::new(PEER_QP));
        assert_eq!(p.bth.pad_count(), p.payload.pad_count());
        let first = if p.bth.opcode().is_response() {
            self.setup.rq_psn
        } else {
            self.setup.sq_psn
        };
        let n = p.bth.psn().after(Psn::new(first));
        if let Ext::AtomicAck(aeth, original) = p.ext {
            return format!("Atomic Acknowledge {n} was {} msn {}", original.0, aeth.msn);
        }
        if p.bth.opcode() == Opcode::RC_ACKNOWLEDGE {
            let aeth = p.ext.aeth().unwrap();
            let what = match aeth.syndrome.kind() {
                SyndromeKind::Ack { .. } => format!("ACK {n}"),
                SyndromeKind::RnrNak { timer } => format!("RNR NAK {n} timer {timer}"),
                SyndromeKind::Nak(code) => format!("NAK {n} {code}"),
                SyndromeKind::Reserved => format!("reserved {n}"),
            };
            return format!("{what} msn {}", aeth.msn);
        }
        let name = p.bth.opcode().to_string();
        let mut text = format!("{} {n}", name.trim_start_matches("RC "));
        if let Some(reth) = p.ext.reth() {
            text += &format!(" of {}", reth.dma_len);
        }
        if let Ext::Ieth(key) = p.ext {
            text += &format!(" of {key}");
        }
        if !p.payload.is_empty() {
            text += &format!(" [{}]", p.payload.len());
        }
        if p.bth.ack_req() {
            text += " ?";
        }
        text
    }

    /// The way that a packet of the card takes.
    pub fn way_of(&self, packet: &Packet) -> Route {
        self.routes.get(packet.route).unwrap()
    }

    /// The bytes of a packet's payload.
    pub fn bytes(&self, packet: &Packet) -> Vec<u8> {
        self.env
            .payload(packet.payload)
            .unwrap_or_default()
            .to_vec()
    }

    /// Completions there are, whole.
    pub fn poll(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.cq.poll()).collect()
    }

    /// Completions there are: which request, and how it ended.
    pub fn completed(&mut self) -> Vec<(u64, Status)> {
        self.poll().iter().map(|c| (c.wr_id, c.status)).collect()
    }

    /// Events there are.
    pub fn events(&mut self) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| self.card.next_event()).collect()
    }

    /// What the queue pair has counted.
    pub fn counted(&self) -> Counters {
        *self.card.qp_counters(self.qp.number()).unwrap()
    }

    /// How many packets were refused for `why`.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.card.counters().refused.get(why)
    }

    /// An element of the card's memory.
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.mr.addr + offset,
            len,
            lkey: self.mr.lkey,
        }
    }

    /// The card's memory as the peer names it.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote {
            addr: self.mr.addr + offset,
            rkey: self.mr.rkey,
        }
    }

    /// Posts a signaled request, and rings the doorbell.
    pub fn post(&mut self, wr_id: u64, work: Work, sges: &[Sge]) {
        self.try_post(&SendRequest::new(wr_id, work, sges)).unwrap();
    }

    /// Posts a request, and rings the doorbell.
    pub fn try_post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.qp.post_send(request)?;
        self.card.doorbell(self.now, self.qp.number());
        Ok(())
    }

    /// The peer's queue pair, as datagrams are sent to it.
    pub fn peer_qp(&self) -> Datagram {
        Datagram {
            address: self.peer,
            qp: QpNumber::new(PEER_QP),
            qkey: QKEY,
        }
    }

    /// Posts a datagram of `len` bytes from the start of the memory.
    pub fn post_datagram(&mut self, wr_id: u64, len: u32) {
        let sges = [self.sge(0, len)];
        let request = SendRequest {
            to: Some(self.peer_qp()),
            ..SendRequest::new(wr_id, Work::Send, &sges)
        };
        self.try_post(&request).unwrap();
    }

    /// Posts a SEND of `len` bytes from the start of the memory.
    pub fn post_send(&mut self, wr_id: u64, len: u32) {
        let sge = self.sge(0, len);
        self.post(wr_id, Work::Send, &[sge]);
    }

    /// Posts a WRITE of `len` bytes to somewhere at the peer.
    pub fn post_write(&mut self, wr_id: u64, len: u32) {
        let sge = self.sge(0, len);
        self.post(wr_id, Work::Write(elsewhere()), &[sge]);
    }

    /// Posts a READ of `len` bytes from somewhere at the peer to the start of the memory.
    pub fn post_read(&mut self, wr_id: u64, len: u32) {
        let sge = self.sge(0, len);
        self.post(wr_id, Work::Read(elsewhere()), &[sge]);
    }

    /// Posts a receive of `len` bytes at `offset`.
    pub fn post_recv(&mut self, wr_id: u64, offset: u64, len: u32) {
        let sge = self.sge(offset, len);
        self.try_post_recv(wr_id, &[sge]).unwrap();
    }

    /// Posts a receive, and rings the doorbell.
    pub fn try_post_recv(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let request = RecvRequest { wr_id, sges };
        match &mut self.srq {
            Some(srq) => srq.post_recv(&request)?,
            None => self.qp.post_recv(&request)?,
        }
        self.card.doorbell(self.now, self.qp.number());
        Ok(())
    }

    /// Bytes of the card's memory.
    pub fn memory(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.buffer.read_at(offset, &mut out);
        out
    }

    /// True if the queue pair still works: the peer's `n`-th packet, a SEND, arrives and is
    /// acknowledged with `msn`.
    pub fn still_works(&mut self, n: u32, msn: u32) {
        self.post_recv(9999, 0, 64);
        self.hear(send_only(n, b"still here"));
        assert_eq!(self.says(), [format!("ACK {n} msn {msn}")]);
        assert_eq!(self.completed(), [(9999, Status::Success)]);
    }
}

/// The way to `gid`, as most tests take it.
pub fn address_of(dgid: Gid, dmac: MacAddr) -> AddressVector {
    AddressVector {
        dgid,
        dmac,
        sl: 3,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        udp_src: None,
        vlan: None,
    }
}

/// A place in the peer's memory.
pub fn elsewhere() -> Remote {
    Remote {
        addr: 0x1000,
        rkey: RemoteKey(0x1234),
    }
}
