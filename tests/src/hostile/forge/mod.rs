//! What the hostile peer says: packets as a peer of a connection could send them, or nearly.
//!
//! It knows everything but the others' Q_Keys: numbers, the next PSN, every key of the card. A packet is
//! drawn as one that would be taken, and then, mostly, something about it is made wrong: a field as a
//! value, which no decoder looks at, or bits of the frame, whose ICRC is then made right again or not.

mod damage;

use super::pool::Pool;
use super::tally::End;
use softroce_sim::card::{Card, QpType, Refusal, Remote};
use softroce_sim::random::Stream;
use softroce_sim::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Damage, Deth, Ecn, Encapsulation, Ext, FrameView, Gid,
    Immediate, Msn, NakCode, Opcode, Packet, Payload, Psn, QpNumber, RemoteKey, Reth, Route,
    RouteId, Syndrome, frame,
};

/// A queue pair of the victim's, as far as the hostile peer needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its number.
    pub qp: QpNumber,
    /// Its service.
    pub service: QpType,
    /// Bytes of its path MTU.
    pub mtu: u16,
    /// It takes packets from the hostile peer's address.
    pub reachable: bool,
    /// The next PSN it expects.
    pub expected: Psn,
    /// The last PSN it has sent.
    pub sent: Psn,
    /// Its Q_Key, or a wrong one.
    pub qkey: u32,
    /// The message under way: a WRITE or not, and what of it is to come.
    pub message: Option<(bool, u32)>,
    /// Its window, among those that the forger knows.
    pub window: Option<usize>,
    /// It has sent something that is not answered.
    pub waits: bool,
    /// The READ or atomic it has sent last: opcode, next PSN of the answer, and bytes that are to come.
    pub asked: Option<(Opcode, Psn, u32)>,
}

impl Target {
    /// Nothing is under way; the PSNs are those of the connection's beginning.
    pub fn restart(&mut self, expected: Psn, sent: Psn) {
        (self.expected, self.sent) = (expected, sent);
        (self.message, self.asked) = (None, None);
    }

    /// Takes note of a request that the queue pair has sent.
    pub fn sent(&mut self, packet: &Packet) {
        let (opcode, psn) = (packet.bth.opcode(), packet.bth.psn());
        self.sent = psn;
        self.asked = match (opcode, packet.ext.reth()) {
            (Opcode::RC_READ_REQUEST, Some(reth)) => Some((opcode, psn, reth.dma_len)),
            (Opcode::RC_ATOMIC_WRITE | Opcode::RC_FETCH_ADD | Opcode::RC_COMPARE_SWAP, _) => {
                Some((opcode, psn, 0))
            }
            _ => self.asked,
        };
    }

    /// Takes note of a packet that the queue pair has taken.
    pub fn took(&mut self, packet: &Packet) {
        let opcode = packet.bth.opcode();
        let len = u32::from(packet.payload.len());
        if opcode.is_response() {
            if let Some((_, next, left)) = &mut self.asked
                && *next == packet.bth.psn()
            {
                (*next, *left) = (next.plus(1), left.saturating_sub(len));
                if opcode.ends_message() {
                    self.asked = None;
                }
            }
            return;
        }
        if self.service == QpType::Ud {
            return;
        }
        let packets = match packet.ext.reth() {
            Some(reth) if opcode == Opcode::RC_READ_REQUEST => {
                reth.dma_len.div_ceil(u32::from(self.mtu)).max(1)
            }
            _ => 1,
        };
        self.expected = packet.bth.psn().plus(packets);
        let write = matches!(opcode.0 & 0x1f, 0x06..=0x0b);
        let left = match (packet.ext.reth(), self.message) {
            (Some(reth), _) => reth.dma_len,
            (None, Some((_, left))) => left,
            (None, None) => 0,
        };
        self.message = (!opcode.ends_message()).then_some((write, left.saturating_sub(len)));
    }
}

/// A place that a key names, or named once.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// First byte, and the key.
    pub at: Remote,
    /// Length in bytes.
    pub len: u64,
}

/// Draws packets.
#[derive(Debug)]
pub struct Forger {
    s: Stream,
    /// Whom it can talk to; those that are reachable from its address first in its thoughts.
    pub targets: Vec<Target>,
    /// Where a packet may write and read.
    pub open: Vec<Place>,
    /// The same through windows, while they are bound: one for each queue pair of the peer's that has one.
    pub windows: Vec<Place>,
    /// Keys of others, of the past, of regions with fewer rights.
    pub closed: Vec<Place>,
    /// The way its packets go.
    pub route: Route,
    /// The name of a way; the card does not look at it.
    pub route_id: RouteId,
    /// A multicast group of the victim's.
    pub group: Gid,
    /// Packets seen on the wire, and how long their payload is, to be sent again.
    seen: Vec<(Packet, usize)>,
    /// Its own bytes.
    payload: Vec<u8>,
    bytes: Vec<u8>,
}

/// Every byte the hostile peer writes is below this, and every byte of the others' is not.
pub const HOSTILE_BELOW: u8 = 0x40;

impl Forger {
    /// One that draws from `seed`.
    pub fn new(seed: u64, route: Route, route_id: RouteId, group: Gid) -> Forger {
        Forger {
            s: Stream::new(seed, "forger"),
            targets: Vec::new(),
            open: Vec::new(),
            windows: Vec::new(),
            closed: Vec::new(),
            route,
            route_id,
            group,
            seen: Vec::new(),
            payload: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Takes note of a packet on the wire.
    pub fn see(&mut self, packet: &Packet) {
        let seen = (*packet, packet.payload.len().into());
        if self.seen.len() < 64 {
            self.seen.push(seen);
        } else {
            let at = self.s.below(64) as usize;
            self.seen[at] = seen;
        }
    }

    /// Draws a packet and hands it to the card. Says how it ended, and whether it came as a value.
    pub fn strike(
        &mut self,
        now: softroce_sim::time::Time,
        card: &mut Card,
        pool: &mut Pool,
    ) -> (End, bool) {
        let (mut packet, mut route) = self.draw();
        let as_value = self.s.below(2) == 0;
        if as_value {
            packet.payload = pool.hold(&self.payload);
            let held = packet.payload;
            if self.s.below(100) < 35 {
                for _ in 0..1 + self.s.below(2) {
                    self.bend(&mut packet, &mut route);
                }
            }
            let end = self.deliver(now, card, pool, &packet, &route);
            pool.release(held);
            return (end, as_value);
        }
        packet.payload = Payload::counted(self.payload.len() as u16);
        self.bytes.clear();
        let encoded = frame::encode_packet(&packet, &route, &self.payload, &mut self.bytes);
        encoded.expect("what is drawn can be written");
        self.maul();
        let Ok(view) = FrameView::decode(&self.bytes) else {
            return (End::Undecodable, as_value);
        };
        let right = view.check_icrc().is_ok();
        let route = view.route();
        let held = match view.transport.payload.len() {
            0 => Payload::EMPTY,
            _ => pool.hold(view.transport.payload),
        };
        let end = match view.to_packet(self.route_id, held) {
            Ok(mut packet) => {
                if !right {
                    packet.damage = Damage::Device;
                }
                self.deliver(now, card, pool, &packet, &route)
            }
            Err(_) => End::NoPacket,
        };
        pool.release(held);
        (end, as_value)
    }

    fn deliver(
        &mut self,
        now: softroce_sim::time::Time,
        card: &mut Card,
        pool: &mut Pool,
        packet: &Packet,
        route: &Route,
    ) -> End {
        pool.last = None;
        card.receive(now, packet, route, pool);
        match pool.last.take() {
            Some(why) => {
                // An unreliable connection counts on from where a gap ended.
                if why == Refusal::OutOfSequence
                    && let Some(t) = self.target_of(packet.bth.dest_qp())
                    && t.service == QpType::Uc
                {
                    t.expected = packet.bth.psn().plus(1);
                    t.message = None;
                }
                End::Refused(why)
            }
            None => {
                if let Some(t) = self.target_of(packet.bth.dest_qp()) {
                    t.took(packet);
                }
                End::Taken(super::tally::name(packet.bth.opcode()))
            }
        }
    }

    /// What it knows of a queue pair.
    pub fn target_of(&mut self, qp: QpNumber) -> Option<&mut Target> {
        self.targets.iter_mut().find(|t| t.qp == qp)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.s.below(of.len() as u64) as usize]
    }

    fn number(&mut self) -> u32 {
        match self.s.below(4) {
            0 => self.s.bits() as u32,
            1 => u32::MAX - self.s.below(10) as u32,
            2 => self.pick(&[0, 1, 7, 8, 9, 256, 1024, 1 << 23, 1 << 31]),
            _ => self.s.below(9000) as u32,
        }
    }

    /// Eight bytes, none of them anybody else's.
    fn word(&mut self) -> u64 {
        self.s.bits() & u64::from_ne_bytes([HOSTILE_BELOW - 1; 8])
    }

    fn fill(&mut self, len: usize) {
        let byte = self.s.below(HOSTILE_BELOW.into()) as u8;
        let first = self.word().to_ne_bytes();
        self.payload.clear();
        self.payload.resize(len, byte);
        for (to, from) in self.payload.iter_mut().zip(first) {
            *to = from;
        }
    }

    /// A place for `len` bytes, mostly one that is open.
    fn place(&mut self, len: u64) -> Remote {
        let list = match self.s.below(40) {
            0..3 => &self.closed,
            3..5 if len <= 1024 => &self.windows,
            _ => &self.open,
        };
        let Place { mut at, len: room } = list[self.s.below(list.len() as u64) as usize];
        at.addr = at
            .addr
            .wrapping_add(self.s.below(room.saturating_sub(len) + 1));
        if self.s.below(16) > 0 {
            at.addr &= !7;
        }
        if self.s.below(30) == 0 {
            let n = u64::from(self.number());
            at.addr = match self.s.below(4) {
                0 => at.addr.wrapping_add(n),
                1 => at.addr.wrapping_sub(n),
                2 => (u64::MAX - len).wrapping_add(n & 0xf),
                _ => u64::MAX - n,
            };
        }
        if self.s.below(50) == 0 {
            at.rkey = RemoteKey(at.rkey.0 ^ 1 << self.s.below(32));
        }
        at
    }

    /// A key to invalidate: mostly that of the queue pair's window.
    fn key(&mut self, window: Option<usize>) -> RemoteKey {
        if self.s.below(8) > 0
            && let Some(i) = window
        {
            return self.windows[i].at.rkey;
        }
        let n = self.open.len() + self.closed.len();
        let i = self.s.below(n as u64) as usize;
        let place = self.open.iter().chain(&self.closed).nth(i);
        place.map_or(RemoteKey(0), |p| p.at.rkey)
    }

    fn draw(&mut self) -> (Packet, Route) {
        if !self.seen.is_empty() && self.s.below(20) == 0 {
            // Something that was on the wire, again.
            let i = self.s.below(self.seen.len() as u64) as usize;
            let (packet, len) = self.seen[i];
            self.fill(len);
            return (packet, self.route);
        }
        let reachable = self.s.below(20) > 0;
        let mut i = self.s.below(self.targets.len() as u64) as usize;
        if reachable {
            while !self.targets[i].reachable {
                i = (i + 1) % self.targets.len();
            }
        }
        let t = self.targets[i];
        let (opcode, psn, ext) = match t.service {
            QpType::Rc if self.s.below(20) < if t.waits { 10 } else { 1 } => self.response(&t),
            QpType::Ud => self.datagram(&t),
            _ => self.request(&t),
        };
        let bits = self.s.bits();
        let bth = Bth::new(opcode, t.qp, psn)
            .with_ack_req(bits & 3 != 0)
            .with_solicited(bits & 4 != 0)
            .with_pad_count(self.payload.len().wrapping_neg() as u8);
        let packet = Packet {
            ext,
            bth,
            route: self.route_id,
            payload: Payload::EMPTY,
            frame_len: 0,
            priority: 0,
            ecn: Ecn::from_bits((bits >> 8) as u8),
            damage: Damage::None,
            hop_limit: 64,
        };
        let mut route = self.route;
        if t.service == QpType::Ud && bits & 0xf0 == 0 {
            route.dst = self.group;
            let bth = packet.bth.with_dest_qp(QpNumber::MULTICAST);
            return (Packet { bth, ..packet }, route);
        }
        (packet, route)
    }

    fn datagram(&mut self, t: &Target) -> (Opcode, Psn, Ext) {
        let len = self.s.below(u64::from(t.mtu) + 1) as usize;
        self.fill(len);
        let deth = Deth {
            qkey: t.qkey,
            reserved: 0,
            src_qp: QpNumber::new(self.s.bits() as u32),
        };
        let psn = Psn::new(self.s.bits() as u32);
        if self.s.below(3) == 0 {
            let immediate = Immediate::from_be(self.number());
            return (
                Opcode::UD_SEND_ONLY_IMM,
                psn,
                Ext::DethImmediate(deth, immediate),
            );
        }
        (Opcode::UD_SEND_ONLY, psn, Ext::Deth(deth))
    }

    /// A request: mostly the next one, and one that goes on with the message under way.
    fn request(&mut self, t: &Target) -> (Opcode, Psn, Ext) {
        let psn = match self.s.below(20) {
            0 => t.expected.minus(self.s.below(40) as u32),
            1 => t.expected.plus(self.s.below(4) as u32),
            2 if self.s.below(3) == 0 => Psn::new(self.s.bits() as u32),
            _ => t.expected,
        };
        let mtu = u32::from(t.mtu);
        let (op, len, ext) = match t.message {
            Some((write, left)) if self.s.below(40) > 0 => {
                let ends = if write {
                    left <= mtu
                } else {
                    self.s.below(2) == 0
                };
                let len = match (ends, write) {
                    (false, _) => mtu,
                    (true, true) => left,
                    (true, false) => 1 + self.s.below(mtu.into()) as u32,
                };
                let immediate = Ext::Immediate(Immediate::from_be(len));
                let (op, ext) = match (write, ends, self.s.below(4)) {
                    (false, false, _) => (Opcode::RC_SEND_MIDDLE, Ext::None),
                    (false, true, 0) => (Opcode::RC_SEND_LAST_IMM, immediate),
                    (false, true, 1) if t.service == QpType::Rc && self.s.below(4) == 0 => (
                        Opcode::RC_SEND_LAST_INVALIDATE,
                        Ext::Ieth(self.key(t.window)),
                    ),
                    (false, true, _) => (Opcode::RC_SEND_LAST, Ext::None),
                    (true, false, _) => (Opcode::RC_WRITE_MIDDLE, Ext::None),
                    (true, true, 0) => (Opcode::RC_WRITE_LAST_IMM, immediate),
                    (true, true, _) => (Opcode::RC_WRITE_LAST, Ext::None),
                };
                (op, len, ext)
            }
            _ => self.first_packet(t),
        };
        self.fill(len as usize);
        let service = match t.service {
            QpType::Rc => 0x00,
            QpType::Uc => 0x20,
            QpType::Ud => 0x60,
        };
        (Opcode(op.0 | service), psn, ext)
    }

    /// A packet that begins a message.
    fn first_packet(&mut self, t: &Target) -> (Opcode, u32, Ext) {
        let (service, mtu) = (t.service, u32::from(t.mtu));
        let some = self.s.below(u64::from(mtu) + 1) as u32;
        let immediate = Immediate::from_be(some);
        let kinds = if service == QpType::Rc { 28 } else { 14 };
        match self.s.below(kinds) / 2 {
            0 => (Opcode::RC_SEND_ONLY, some, Ext::None),
            1 => (Opcode::RC_SEND_ONLY_IMM, some, Ext::Immediate(immediate)),
            2 => (Opcode::RC_SEND_FIRST, mtu, Ext::None),
            3 => {
                let total = mtu + 1 + self.s.below(3 * u64::from(mtu)) as u32;
                let reth = self.reth(total);
                (Opcode::RC_WRITE_FIRST, mtu, Ext::Reth(reth))
            }
            4 => {
                let reth = self.reth(some);
                let ext = Ext::RethImmediate(reth, immediate);
                (Opcode::RC_WRITE_ONLY_IMM, some, ext)
            }
            5 | 6 => (Opcode::RC_WRITE_ONLY, some, Ext::Reth(self.reth(some))),
            7 if self.s.below(4) == 0 => {
                let key = self.key(t.window);
                (Opcode::RC_SEND_ONLY_INVALIDATE, some, Ext::Ieth(key))
            }
            7 | 8 => (Opcode::RC_ATOMIC_WRITE, 8, Ext::Reth(self.reth(8))),
            9..12 => {
                let len = self.s.below(8 * u64::from(mtu)) as u32;
                (Opcode::RC_READ_REQUEST, 0, Ext::Reth(self.reth(len)))
            }
            n => {
                let at = self.place(8);
                let opcode = match n {
                    12 => Opcode::RC_COMPARE_SWAP,
                    _ => Opcode::RC_FETCH_ADD,
                };
                let eth = AtomicEth {
                    va: at.addr,
                    rkey: at.rkey,
                    swap_add: self.word(),
                    compare: match self.s.below(2) {
                        0 => self.word(),
                        _ => u64::from_ne_bytes([super::SECRET; 8]),
                    },
                };
                (opcode, 0, Ext::Atomic(eth))
            }
        }
    }

    fn reth(&mut self, len: u32) -> Reth {
        let at = self.place(len.into());
        Reth {
            va: at.addr,
            rkey: at.rkey,
            dma_len: len,
        }
    }

    /// An answer to something that the victim has sent lately.
    fn response(&mut self, t: &Target) -> (Opcode, Psn, Ext) {
        let psn = match self.s.below(12) {
            0 => t.sent.plus(self.s.below(4) as u32),
            1 => Psn::new(self.s.bits() as u32),
            _ => t.sent.minus(self.s.below(4) as u32),
        };
        let syndrome = match self.s.below(40) {
            0 | 1 => Syndrome::nak(NakCode::PsnSequenceError),
            2 | 3 => Syndrome::rnr_nak(self.s.below(6) as u8),
            4 => Syndrome(self.s.bits() as u8),
            5 => {
                let codes = [
                    NakCode::RemoteAccessError,
                    NakCode::InvalidRequest,
                    NakCode::RemoteOperationalError,
                ];
                Syndrome::nak(self.pick(&codes))
            }
            6..12 => Syndrome::ack(self.s.below(32) as u8),
            _ => Syndrome::ack(Syndrome::UNLIMITED),
        };
        let aeth = Aeth {
            syndrome,
            msn: Msn::new(self.number()),
        };
        if let Some((asked, next, left)) = t.asked
            && self.s.below(3) > 0
        {
            // The answer it waits for, if nobody has given it.
            let ack = Aeth {
                syndrome: Syndrome::ack(Syndrome::UNLIMITED),
                ..aeth
            };
            let mtu = u32::from(t.mtu);
            let first = self.s.below(2) == 0;
            let (opcode, ext) = match asked {
                Opcode::RC_COMPARE_SWAP | Opcode::RC_FETCH_ADD => {
                    let found = AtomicAckEth(self.word());
                    (Opcode::RC_ATOMIC_ACKNOWLEDGE, Ext::AtomicAck(ack, found))
                }
                _ if left > mtu && first => (Opcode::RC_READ_RESPONSE_FIRST, Ext::Aeth(ack)),
                _ if left > mtu => (Opcode::RC_READ_RESPONSE_MIDDLE, Ext::None),
                _ => (Opcode::RC_READ_RESPONSE_ONLY, Ext::Aeth(ack)),
            };
            self.fill(left.min(mtu) as usize);
            return (opcode, next, ext);
        }
        let opcode = self.pick(&[
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_READ_RESPONSE_FIRST,
            Opcode::RC_READ_RESPONSE_MIDDLE,
            Opcode::RC_READ_RESPONSE_LAST,
            Opcode::RC_READ_RESPONSE_ONLY,
            Opcode::RC_ATOMIC_ACKNOWLEDGE,
        ]);
        let len = match opcode {
            Opcode::RC_ACKNOWLEDGE | Opcode::RC_ATOMIC_ACKNOWLEDGE => 0,
            _ => match self.s.below(3) {
                0 => self.s.below(u64::from(t.mtu) + 1) as usize,
                1 => 0,
                _ => t.mtu.into(),
            },
        };
        self.fill(len);
        let ext = match opcode {
            Opcode::RC_READ_RESPONSE_MIDDLE => Ext::None,
            Opcode::RC_ATOMIC_ACKNOWLEDGE => Ext::AtomicAck(aeth, AtomicAckEth(self.word())),
            _ => Ext::Aeth(aeth),
        };
        (opcode, psn, ext)
    }
}
