//! The card and the Linux kernel's Soft-RoCE driver, alive, at the two ends of one cable.
//!
//! * [`guest`]: a machine in QEMU whose kernel has the driver, and the program in it that does what it is
//!   told (`tests/interop/agent.c`).
//! * [`local`]: our card on an Ethernet port.
//! * [`station`]: the same with a communication manager, for programs of rdma_cm in the guest.
//! * `managed`: what a [`World`] has for exchanges between those managers.
//! * [`cable`]: what is between them; it loses, repeats and damages frames by name, and keeps them all.
//!
//! A [`World`] has both ends. A test says what each [`Side`] does and what it must see; the same words are
//! said to either side, so that an exchange is written once and played in both roles.

pub mod cable;
pub mod guest;
pub mod local;
mod managed;
pub mod station;

use cable::{Cable, Fault};
use guest::{Guest, Work};
use local::Local;
use softroce_sim::card::Mtu;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::capture::{LinkType, Writer};
use softroce_sim::wire::frame::FrameView;
use softroce_sim::wire::{Encapsulation, MacAddr};
use station::Station;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// `Err` says what was not as it must be.
pub type Outcome<T = ()> = Result<T, String>;

/// Which end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Our card.
    Card,
    /// The kernel's driver.
    Kernel,
}

impl Side {
    /// The other end.
    pub fn other(self) -> Side {
        match self {
            Side::Card => Side::Kernel,
            Side::Kernel => Side::Card,
        }
    }
}

/// Transport service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
}

/// What a connection is like.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Transport service.
    pub service: Service,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// On the VLAN that the guest has an interface on, 5; only with IPv4.
    pub vlan: bool,
    /// Path MTU.
    pub mtu: Mtu,
    /// First PSN of either direction.
    pub psn: u32,
    /// Local ACK timeout exponent.
    pub timeout: u8,
    /// Retries.
    pub retry: u8,
    /// RNR retries; 7 is for ever.
    pub rnr_retry: u8,
    /// READs and atomics outstanding.
    pub rd_atomic: u8,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup::NEW
    }
}

impl Setup {
    /// A reliable connection over IPv4 with a path MTU of 1024 and an ACK timeout of 134 ms.
    pub const NEW: Setup = Setup {
        service: Service::Rc,
        ipv6: false,
        vlan: false,
        mtu: Mtu::M1024,
        psn: 0x1000,
        timeout: 15,
        retry: 7,
        rnr_retry: 7,
        rd_atomic: 4,
    };

    /// Address of an end.
    pub fn address(&self, side: Side) -> IpAddr {
        let last = match side {
            Side::Card => 9,
            Side::Kernel => 1,
        };
        let net = if self.vlan { VLAN as u8 } else { 0 };
        match self.ipv6 {
            false => Ipv4Addr::new(10, 66, net, last).into(),
            true => Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, last.into()).into(),
        }
    }
}

/// The VLAN that the guest has an interface on.
pub const VLAN: u16 = 5;

/// Our card's Ethernet address.
pub const CARD_MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0x66, 0, 9]);

/// How an end is reached by the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contact {
    /// Queue pair number.
    pub qpn: u32,
    /// Key of its memory.
    pub rkey: u32,
    /// First byte of its memory.
    pub addr: u64,
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates a key of the peer's.
    SendInv(u32),
    /// WRITE.
    Write,
    /// WRITE with immediate data.
    WriteImm(u32),
    /// READ.
    Read,
    /// Compare and swap.
    Cas {
        /// What must be there.
        compare: u64,
        /// What is put there.
        swap: u64,
    },
    /// Fetch and add.
    Faa(u64),
}

/// A send request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Given back in the completion.
    pub id: u64,
    /// What to do.
    pub op: Op,
    /// Where in its own memory.
    pub at: usize,
    /// How many bytes.
    pub len: usize,
    /// Where in the peer's memory, from its start.
    pub there: u64,
    /// The peer's key, if not that of its memory.
    pub rkey: Option<u32>,
}

impl Request {
    /// From the beginning of one memory to the beginning of the other.
    pub fn new(id: u64, op: Op, len: usize) -> Request {
        Request {
            id,
            op,
            at: 0,
            len,
            there: 0,
            rkey: None,
        }
    }
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Of which request.
    pub id: u64,
    /// `ibv_wc_status`.
    pub status: u8,
    /// Of a receive request.
    pub receive: bool,
    /// Bytes received, READ, or of an atomic.
    pub bytes: u32,
    /// Immediate data received.
    pub imm: Option<u32>,
    /// Key of one's own that the peer invalidated.
    pub inv: Option<u32>,
    /// Queue pair that sent a datagram.
    pub src: u32,
}

/// The byte at `i` of the pattern `seed`, as the agent has it too.
pub fn pattern(seed: u64, i: usize) -> u8 {
    let i = i as u64;
    (seed * 131 + i * 7 + (i >> 8) * 13 + 1) as u8
}

/// How long either end is waited for, on a machine that is busy with others.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends.
pub struct World {
    guest: Guest,
    local: Option<Local>,
    station: Option<Station>,
    cable: Cable,
    setup: Setup,
    contacts: [Contact; 2],
}

impl World {
    /// A world in which the guest is up.
    pub fn new(guest: Guest) -> World {
        World {
            guest,
            local: None,
            station: None,
            cable: Cable::default(),
            setup: Setup::default(),
            contacts: [Contact::default(); 2],
        }
    }

    /// Makes new queue pairs at both ends and connects them; what was before is gone.
    ///
    /// # Errors
    ///
    /// If one of the ends does not.
    pub fn connect(&mut self, setup: Setup) -> Outcome {
        self.setup = setup;
        self.clear();
        let (own, peer) = (setup.address(Side::Card), setup.address(Side::Kernel));
        let mut local = Local::open(&self.guest, &self.cable, own, setup.service)?;
        let ours = local.contact();
        let service = match setup.service {
            Service::Rc => "rc",
            Service::Uc => "uc",
            Service::Ud => "ud",
        };
        let made = self
            .guest
            .ask(&mut local, &format!("make type={service} own={peer}"))?;
        let theirs = Contact {
            qpn: made.get("qpn")? as u32,
            rkey: made.get("rkey")? as u32,
            addr: made.get("addr")?,
        };
        local.connect(&setup, peer, theirs)?;
        let Setup {
            psn,
            timeout,
            retry,
            rnr_retry,
            rd_atomic,
            ..
        } = setup;
        let mtu = setup.mtu.bytes();
        let line = format!(
            "connect peer={own} qpn={} psn={psn} own_psn={psn} mtu={mtu} timeout={timeout} retry={retry} \
             rnr={rnr_retry} rd={rd_atomic}",
            ours.qpn
        );
        self.guest.ask(&mut local, &line)?;
        self.local = Some(local);
        self.contacts = [ours, theirs];
        Ok(())
    }

    /// How `side` is reached.
    pub fn contact(&self, side: Side) -> Contact {
        self.contacts[side as usize]
    }

    /// From here on the cable does this too.
    pub fn fault(&mut self, fault: Fault) {
        self.cable.add(fault);
    }

    /// How often the faults have struck.
    pub fn struck(&self) -> usize {
        self.cable.struck()
    }

    fn local(&mut self) -> Outcome<&mut Local> {
        self.local.as_mut().ok_or_else(|| "not connected".into())
    }

    fn ask(&mut self, line: &str) -> Outcome<guest::Answer> {
        let end: &mut dyn Work = match (&mut self.local, &mut self.station) {
            (Some(local), _) => local,
            (None, Some(station)) => station,
            (None, None) => return Err("there is nothing at our end".into()),
        };
        self.guest.ask(end, line)
    }

    /// What was at our end is gone.
    fn clear(&mut self) {
        // The socket's place has to be free for its successor.
        self.local = None;
        self.station = None;
        self.cable = Cable::default();
    }

    /// Posts a receive request.
    ///
    /// # Errors
    ///
    /// If it is not taken.
    pub fn recv(&mut self, side: Side, id: u64, at: usize, len: usize) -> Outcome {
        match side {
            Side::Card => self.local()?.recv(id, at, len),
            Side::Kernel => self
                .ask(&format!("recv id={id} at={at} len={len}"))
                .map(|_| ()),
        }
    }

    /// Posts a send request.
    ///
    /// # Errors
    ///
    /// If it is not taken.
    pub fn post(&mut self, side: Side, request: &Request) -> Outcome {
        let peer = self.contact(side.other());
        match side {
            Side::Card => self.local()?.post(request, peer),
            Side::Kernel => self.ask(&guest::post_line(request, peer)).map(|_| ()),
        }
    }

    /// The next completion at `side`, if there is one within `patience`.
    ///
    /// # Errors
    ///
    /// If the end is broken.
    pub fn poll(&mut self, side: Side, patience: Duration) -> Outcome<Option<Done>> {
        match side {
            Side::Card => self.local()?.poll(patience),
            Side::Kernel => self
                .ask(&format!("poll ms={}", patience.as_millis()))?
                .completion(),
        }
    }

    /// The next completion at `side`.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn done(&mut self, side: Side) -> Outcome<Done> {
        self.poll(side, PATIENCE)?.ok_or_else(|| {
            let port = self.local.as_ref().map(Local::describe);
            format!("{side:?}: no completion; {}", port.unwrap_or_default())
        })
    }

    /// Writes a pattern into memory.
    ///
    /// # Errors
    ///
    /// If the end is broken.
    pub fn fill(&mut self, side: Side, at: usize, len: usize, seed: u64) -> Outcome {
        match side {
            Side::Card => {
                let bytes: Vec<u8> = (0..len).map(|i| pattern(seed, i)).collect();
                self.local()?.memory().write_at(at, &bytes);
                Ok(())
            }
            Side::Kernel => self
                .ask(&format!("fill at={at} len={len} seed={seed}"))
                .map(|_| ()),
        }
    }

    /// Demands a pattern in memory.
    ///
    /// # Errors
    ///
    /// If it is not there.
    pub fn expect(&mut self, side: Side, at: usize, len: usize, seed: u64) -> Outcome {
        let wrong = match side {
            Side::Card => {
                let mut bytes = vec![0; len];
                self.local()?.memory().read_at(at, &mut bytes);
                let wrong = bytes.iter().enumerate();
                wrong.filter(|&(i, &b)| b != pattern(seed, i)).count() as u64
            }
            Side::Kernel => self
                .ask(&format!("check at={at} len={len} seed={seed}"))?
                .get("wrong")?,
        };
        match wrong {
            0 => Ok(()),
            n => Err(format!("{side:?}: {n} of {len} bytes at {at} are wrong")),
        }
    }

    /// Writes eight bytes.
    ///
    /// # Errors
    ///
    /// If the end is broken.
    pub fn put(&mut self, side: Side, at: usize, value: u64) -> Outcome {
        match side {
            Side::Card => {
                self.local()?.memory().write_at(at, &value.to_ne_bytes());
                Ok(())
            }
            Side::Kernel => self.ask(&format!("put at={at} value={value}")).map(|_| ()),
        }
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    ///
    /// If the end is broken.
    pub fn get(&mut self, side: Side, at: usize) -> Outcome<u64> {
        match side {
            Side::Card => {
                let mut bytes = [0; 8];
                self.local()?.memory().read_at(at, &mut bytes);
                Ok(u64::from_ne_bytes(bytes))
            }
            Side::Kernel => self.ask(&format!("get at={at}"))?.get("value"),
        }
    }

    /// Binds a window of type 2 over the first `len` bytes, open to WRITEs, and gives its key.
    ///
    /// # Errors
    ///
    /// If it cannot be bound.
    pub fn bind(&mut self, side: Side, id: u64, len: usize) -> Outcome<u32> {
        let key = match side {
            Side::Card => self.local()?.bind(id, len)?,
            Side::Kernel => {
                let line = format!("bind id={id} at=0 len={len} access=2");
                self.ask(&line)?.get("rkey")? as u32
            }
        };
        let done = self.done(side)?;
        match (done.id, done.status) {
            (i, 0) if i == id => Ok(key),
            _ => Err(format!("{side:?}: binding a window: {done:?}")),
        }
    }

    /// True if the queue pair is in error.
    ///
    /// # Errors
    ///
    /// If the end is broken.
    pub fn in_error(&mut self, side: Side) -> Outcome<bool> {
        match side {
            Side::Card => Ok(self.local()?.in_error()),
            // IBV_QPS_ERR
            Side::Kernel => Ok(self.ask("state")?.get("state")? == 6),
        }
    }

    /// Lets time pass.
    ///
    /// # Errors
    ///
    /// If our end is broken.
    pub fn idle(&mut self, time: Duration) -> Outcome {
        self.local()?.idle(time)
    }

    /// Looks at every frame since the last connection: each is either of another protocol, or a whole
    /// packet of RoCE, its ICRC right when it was sent; ours have nothing at all to complain about. Gives
    /// how many packets went from our card, and from the kernel.
    ///
    /// # Errors
    ///
    /// If one is not.
    pub fn inspect(&self) -> Outcome<[usize; 2]> {
        let mut packets = [0; 2];
        for (_, side, frame) in self.cable.seen() {
            let view = match FrameView::decode(&frame) {
                Ok(view) => view,
                Err(e) if e.is_foreign() => continue,
                Err(e) => return Err(format!("{side:?} sent a frame that cannot be: {e}")),
            };
            if view.route().encapsulation != Encapsulation::RoceV2 {
                return Err(format!("{side:?} sent RoCEv1"));
            }
            view.check_icrc()
                .map_err(|e| format!("{side:?} sent {:?}: {e}", view.transport.bth))?;
            let findings = view.check();
            if side == Side::Card && !findings.is_empty() {
                return Err(format!("the card sent {view:?}: {findings:?}"));
            }
            packets[side as usize] += 1;
        }
        Ok(packets)
    }

    /// Every frame since the last connection, as a capture from the middle of the cable: before it loses,
    /// repeats or damages any.
    ///
    /// # Errors
    ///
    /// If a frame is longer than a capture can have.
    pub fn capture(&self) -> std::io::Result<Vec<u8>> {
        let mut writer = Writer::new(Vec::new())?;
        let interface = writer.interface("cable", "", LinkType::ETHERNET)?;
        for (time, _, frame) in self.cable.seen() {
            let time = Time::ZERO + Span::from(time);
            writer.packet(interface, time, &frame, frame.len() as u32, &[])?;
        }
        writer.into_inner()
    }
}
