//! Our card in the place of one end's driver.

use super::Sent;
use super::case::{Case, Identity, Side};
use super::program::SLOT;
use crate::bench::Staging;
use softroce_sim::card::{
    AddressHandle, AddressVector, Card, CardConfig, Completion, CompletionQueue, Env, Mtu, Peer,
    PriorityMask, Profile, QpAttributes, QpInit, QpType, QueuePair, RecvRequest, Reliability,
    SendRequest, Sge, State, Work,
};
use softroce_sim::memory::{Access, Binding, Buffer, MemoryRegion, Pd, WindowType};
use softroce_sim::time::Time;
use softroce_sim::wire::{Damage, Ext, Frame, MacAddr, QpNumber, RemoteKey, Reth, RouteTable};

/// When the port fetches what the card has to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// At once.
    Prompt,
    /// When the kernel sent.
    Recorded,
}

/// Q_Key of both ends' queue pairs.
const QKEY: u32 = 0x1111_1111;

/// Everything a peer may do through the queue pair.
fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// The card at one end.
#[derive(Debug)]
pub struct Stand<'a> {
    case: &'a Case,
    side: Side,
    own: Identity,
    card: Card,
    qp: QueuePair,
    cq: CompletionQueue,
    env: Staging,
    pd: Pd,
    buffer: Buffer,
    mr: MemoryRegion,
    window: Option<RemoteKey>,
    routes: RouteTable,
    /// The time.
    pub now: Time,
    /// Where datagrams go.
    pub address: Option<AddressHandle>,
    /// What the card has sent.
    pub sent: Vec<Sent>,
}

impl<'a> Stand<'a> {
    /// A card with a queue pair that is ready to send, and memory of one byte, 0xcc.
    ///
    /// # Panics
    /// If the card refuses what the case asks for.
    pub fn new(case: &'a Case, side: Side, profile: &Profile) -> Stand<'a> {
        let mac = |side: Side| MacAddr([0x52, 0x54, 0, 0x66, 0, side.host()]);
        let options = &case.options;
        let mut config = CardConfig::new("card", case.gid(side), mac(side)).with_profile(profile);
        config.port_mtu = options.mtu.max(Mtu::M1024);
        let routes = RouteTable::new();
        let mut card = Card::new(config, 1, routes.clone());
        let pd = card.alloc_pd();
        let cq = card.create_cq(1024).expect("a completion queue");
        let init = QpInit::new(options.service, pd, cq.id(), 128);
        let qp = card.create_qp(&init).expect("a queue pair");
        let bytes = vec![0xcc; 2 * case.ops.len() * SLOT as usize];
        let buffer = Buffer::from_bytes(&bytes);
        let access = match side {
            Side::Requester => Access::LOCAL_WRITE,
            Side::Responder => options.access,
        };
        let mr = card.register(pd, buffer.clone(), access).expect("a region");
        let vector = AddressVector {
            dgid: case.gid(side.peer()),
            dmac: mac(side.peer()),
            sl: 0,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            udp_src: None,
            vlan: None,
        };
        let address = (options.service == QpType::Ud)
            .then(|| card.create_ah(pd, &vector).expect("an address handle"));
        for step in steps(case, side, &vector) {
            card.modify_qp(Time::ZERO, qp.number(), &step)
                .unwrap_or_else(|e| panic!("{}: {e}", case.name));
        }
        Stand {
            case,
            side,
            own: case.identity(side),
            card,
            qp,
            cq,
            env: Staging::default(),
            pd,
            buffer,
            mr,
            window: None,
            routes,
            now: Time::ZERO,
            address,
            sent: Vec::new(),
        }
    }

    /// When the card next needs the clock.
    pub fn deadline(&self) -> Time {
        self.card.next_timeout()
    }

    /// True if the card waits for the clock.
    pub fn can_advance(&self) -> bool {
        self.deadline() != Time::NEVER
    }

    /// Lets the clock run to the next deadline.
    pub fn advance(&mut self) {
        self.now = self.now.max(self.deadline());
        self.card.advance(self.now);
        assert!(self.deadline() > self.now, "a deadline stays");
    }

    /// The port fetches one packet; false if there is none.
    pub fn pull(&mut self) -> bool {
        let packet = self
            .card
            .next_packet(self.now, PriorityMask::ALL, &mut self.env);
        let Some(packet) = packet else {
            return false;
        };
        let mut ext = packet.ext;
        if let Ext::Deth(deth) | Ext::DethImmediate(deth, _) = &mut ext {
            deth.src_qp = self.own.qp;
        }
        let payload = self.env.payload(packet.payload).unwrap_or_default();
        assert_eq!(payload.len(), usize::from(packet.payload.len()));
        self.sent.push(Sent {
            bth: packet.bth,
            ext,
            payload: payload.to_vec(),
        });
        assert!(self.sent.len() < 1000, "it sends for ever");
        true
    }

    /// A recorded frame arrives, with our numbers, keys and addresses in the place of the kernel's.
    pub fn hear(&mut self, frame: &Frame) {
        let route = frame.route();
        let id = self.routes.intern(route);
        let payload = self.env.hold(frame.payload.to_vec());
        let mut packet = frame.to_packet(id, payload).expect("a packet");
        if frame.check_icrc().is_err() {
            packet.damage = Damage::Device;
        }
        assert_eq!(packet.bth.dest_qp(), self.own.qp, "{}", self.case.name);
        packet.bth = packet.bth.with_dest_qp(self.qp.number());
        if self.side == Side::Responder {
            self.translate(&mut packet.ext);
        }
        self.card.receive(self.now, &packet, &route, &mut self.env);
    }

    /// What is wrong with a recorded key or address stays wrong in the same way.
    fn translate(&self, ext: &mut Ext) {
        let key = |key: RemoteKey| RemoteKey(key.0 ^ self.own.rkey.0 ^ self.mr.rkey.0);
        let addr = |addr: u64| addr - self.own.addr + self.mr.addr;
        match ext {
            Ext::Reth(Reth { va, rkey, .. }) | Ext::RethImmediate(Reth { va, rkey, .. }, _) => {
                (*va, *rkey) = (addr(*va), key(*rkey));
            }
            Ext::Atomic(atomic) => {
                (atomic.va, atomic.rkey) = (addr(atomic.va), key(atomic.rkey));
            }
            Ext::Ieth(key) => *key = self.window.unwrap_or(*key),
            _ => {}
        }
    }

    /// A queue pair number as the kernel had it, if it is ours.
    pub fn number_of(&self, qp: QpNumber) -> QpNumber {
        if qp == self.qp.number() {
            self.own.qp
        } else {
            qp
        }
    }

    /// The oldest completion.
    pub fn poll(&mut self) -> Option<Completion> {
        self.cq.poll()
    }

    /// State of the queue pair.
    pub fn state(&self) -> State {
        self.qp.state()
    }

    /// Posts a send request.
    pub fn post_send(&mut self, request: &SendRequest<'_>) {
        self.qp.post_send(request).expect("room for a request");
        self.card.doorbell(self.now, self.qp.number());
    }

    /// Posts a receive of `len` bytes at `offset`.
    pub fn post_recv(&mut self, wr_id: u64, offset: u64, len: u32) {
        let sges = [self.sge(offset, len)];
        let request = RecvRequest { wr_id, sges: &sges };
        self.qp.post_recv(&request).expect("room for a receive");
        self.card.doorbell(self.now, self.qp.number());
    }

    /// Binds a window to the first 4096 bytes.
    pub fn bind_window(&mut self, wr_id: u64) {
        let rkey = self
            .card
            .alloc_mw(self.pd, WindowType::Type2)
            .expect("a window");
        let key = RemoteKey(rkey.0 & !0xff | rkey.0.wrapping_add(1) & 0xff);
        let binding = Binding {
            lkey: self.mr.lkey,
            addr: self.mr.addr,
            len: 4096,
            access: Access::REMOTE_WRITE,
            zero_based: false,
        };
        self.window = Some(key);
        self.post_send(&SendRequest::new(
            wr_id,
            Work::BindWindow { key, binding },
            &[],
        ));
    }

    /// An element of the memory.
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge {
            addr: self.mr.addr + offset,
            len,
            lkey: self.mr.lkey,
        }
    }

    /// Fills memory.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.buffer.write_at(offset as usize, bytes);
    }

    /// What is in memory.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.buffer.read_at(offset as usize, &mut out);
        out
    }

    /// Eight bytes of memory as a number.
    pub fn word(&self, offset: u64) -> u64 {
        let mut out = [0; 8];
        self.buffer.read_at(offset as usize, &mut out);
        u64::from_ne_bytes(out)
    }
}

/// From RESET to RTS.
fn steps(case: &Case, side: Side, vector: &AddressVector) -> [QpAttributes; 3] {
    let options = &case.options;
    let (own, peer) = (case.identity(side), case.identity(side.peer()));
    let peer = Peer {
        address: *vector,
        path_mtu: options.mtu,
        qp: peer.qp,
        psn: peer.psn,
    };
    let reliability = (options.service == QpType::Rc).then_some(Reliability {
        timeout: options.timeout,
        retry_cnt: options.retry_cnt,
        rnr_retry: options.rnr_retry,
        min_rnr_timer: options.min_rnr_timer,
        max_rd_atomic: options.rd_atomic,
        max_dest_rd_atomic: options.rd_atomic,
    });
    let reliability = reliability.as_ref();
    let rts = QpAttributes::to_rts(own.psn, reliability);
    if options.service == QpType::Ud {
        let init = QpAttributes::to_init_datagrams(QKEY);
        return [init, QpAttributes::to(State::Rtr), rts];
    }
    let init = QpAttributes::to_init(all_rights());
    [init, QpAttributes::to_rtr(&peer, reliability), rts]
}
