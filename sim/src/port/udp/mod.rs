//! A card on a UDP socket.
//!
//! * [`UdpPort`]: the driver of the card, here.
//! * `socket`: the socket and its options.
//! * `datagram`: packets to datagrams and back.
//! * `error`: what can go wrong.

mod datagram;
mod error;
mod socket;

pub use error::{OpenError, PortError, SendError};

use super::{Direction, Tap};
use crate::card::{Card, CardConfig, Env, PriorityMask};
use crate::random::{Probability, Stream};
use crate::time::{Span, Time};
use crate::wire::frame::UDP_PORT;
use crate::wire::{Damage, Ecn, Encapsulation, Gid, MacAddr, Payload, Route, RouteId, RouteTable};
use datagram::Headers;
use socket::Socket;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Where a port is to be, and how it behaves.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Address of the card; `None` takes the first of 127.0.0.2 to 127.0.0.254 whose port is free.
    pub address: Option<IpAddr>,
    /// UDP port, the same at both ends. RoCEv2 is on 4791, and other tools look for it there.
    pub port: u16,
    /// Bytes of kernel memory asked for what waits to be received; the kernel gives as much as
    /// `net.core.rmem_max` allows.
    pub receive_buffer: usize,
    /// Datagrams taken in one [`UdpPort::poll`], at least 1.
    pub receive_budget: u32,
    /// Packets sent in one [`UdpPort::poll`], at least 1.
    pub send_budget: u32,
    /// How long [`UdpPort::run_once`] looks again and again before it sleeps: to wake from sleep takes
    /// tens of microseconds.
    pub spin: Duration,
    /// Share of packets that is dropped instead of sent.
    pub loss: Probability,
    /// Seed of the random stream that decides which.
    pub loss_seed: u64,
}

impl Default for UdpConfig {
    fn default() -> UdpConfig {
        UdpConfig {
            address: None,
            port: UDP_PORT,
            receive_buffer: 4 << 20,
            receive_budget: 64,
            send_budget: 64,
            spin: Duration::ZERO,
            loss: Probability::ZERO,
            loss_seed: 0,
        }
    }
}

/// What one look at a port came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Datagrams received.
    pub received: u32,
    /// Packets sent.
    pub sent: u32,
    /// A deadline of the card had come.
    pub timeout: bool,
}

impl Activity {
    /// True if there was any.
    pub fn any(self) -> bool {
        self.received > 0 || self.sent > 0 || self.timeout
    }
}

/// What a port has counted. What the card makes of its packets is in the card's
/// [`Counters`](crate::card::Counters).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams received that are no packets: too short, too long, or of a structure that cannot be.
    pub malformed: u64,
    /// Packets dropped on purpose instead of sent.
    pub dropped: u64,
    /// Packets that the operating system refused; see [`UdpPort::last_send_error`].
    pub refused: u64,
    /// Times that the socket had no room for a packet.
    pub not_ready: u64,
    /// Datagrams that the kernel dropped because the socket's receive buffer was full, as far as
    /// datagrams that came later told.
    pub overflow: u64,
}

/// Drives one card over a UDP socket on RoCEv2's port, in one thread.
///
/// The program makes the card from [`UdpPort::card_config`] and [`UdpPort::routes`], posts work, and
/// calls [`UdpPort::run_once`] until its completions are there. The port's clock begins when it is
/// opened.
///
/// ```no_run
/// use softroce_sim::card::Card;
/// use softroce_sim::port::{UdpConfig, UdpPort, seed};
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut port = UdpPort::open(&UdpConfig::default())?;
/// let mut card = Card::new(port.card_config("softroce0"), seed()?, port.routes());
/// loop {
///     port.run_once(&mut card, Duration::from_millis(100))?;
///     // poll completion queues, post work, ring the doorbell
/// #   break;
/// }
/// # Ok(()) }
/// ```
pub struct UdpPort {
    socket: Socket,
    local: SocketAddr,
    gid: Gid,
    opened: Instant,
    config: UdpConfig,
    routes: RouteTable,
    /// Routes by id, as their packets leave this port: with its UDP source port.
    known: Vec<Route>,
    /// What packets that arrive carry as their route's name; the route itself goes beside them.
    ingress: RouteId,
    staging: Staging,
    /// The packet being sent, BTH to ICRC.
    datagram: Vec<u8>,
    /// Where the packet in `datagram` goes, if the socket had no room for it: like one that a real card
    /// has begun to put on the wire, it is past changing.
    held: Option<Outgoing>,
    loss: Stream,
    counters: PortCounters,
    overflow_seen: u32,
    last_send_error: Option<SendError>,
    tap: Option<Box<dyn Tap>>,
}

/// Where the packet in the datagram buffer goes, on its way to the socket.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    to: SocketAddr,
    tos: u8,
    ttl: u8,
}

/// Longest datagram taken; the longest packet at the largest path MTU is shorter by far.
const INBOX: usize = 9216;
/// Slots of the payload being sent and of the one being received.
const OUT: u32 = 0;
const IN: u32 = 1;

/// Payloads of the port: one being sent, one being received.
struct Staging {
    out: Box<[u8; 4096]>,
    inbox: Box<[u8; INBOX]>,
    /// Where the payload of the packet being received is in `inbox`.
    payload: std::ops::Range<usize>,
}

impl Env for Staging {
    #[inline]
    fn stage(&mut self, len: u16, fill: impl FnOnce(&mut [u8])) -> Payload {
        let len = len.min(self.out.len() as u16);
        fill(&mut self.out[..usize::from(len)]);
        Payload::stored(OUT, len)
    }

    #[inline]
    fn payload(&self, payload: Payload) -> Option<&[u8]> {
        match payload.slot()? {
            OUT => self.out.get(..payload.len().into()),
            _ => self.inbox.get(self.payload.clone()),
        }
    }
}

impl UdpPort {
    /// Opens a port.
    ///
    /// # Errors
    ///
    /// If the address is in use, not this machine's, not allowed, or not one that a card can have.
    pub fn open(config: &UdpConfig) -> Result<UdpPort, OpenError> {
        let socket = match config.address {
            Some(ip) if ip.is_unspecified() || ip.is_multicast() => {
                return Err(OpenError::NotUnicast(ip));
            }
            Some(ip) => Socket::open(SocketAddr::new(ip, config.port), config.receive_buffer)?,
            None => first_free(config)?,
        };
        let asked = SocketAddr::new(
            config.address.unwrap_or(Ipv4Addr::LOCALHOST.into()),
            config.port,
        );
        let local = socket.local().map_err(|source| OpenError::Io {
            address: asked,
            what: "asking for the address",
            source,
        })?;
        let gid = Gid::from(local.ip());
        let routes = RouteTable::new();
        let ingress = routes.intern(datagram::arrival(local, gid, 0));
        Ok(UdpPort {
            socket,
            local,
            gid,
            opened: Instant::now(),
            config: config.clone(),
            routes,
            known: Vec::new(),
            ingress,
            staging: Staging {
                out: Box::new([0; 4096]),
                inbox: Box::new([0; INBOX]),
                payload: 0..0,
            },
            datagram: Vec::with_capacity(INBOX),
            held: None,
            loss: Stream::new(config.loss_seed, "port loss"),
            counters: PortCounters::default(),
            overflow_seen: 0,
            last_send_error: None,
            tap: None,
        })
    }

    /// Address and port it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.local
    }

    /// The card's address.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Parameters for a card on this port: called `name`, at the port's address.
    pub fn card_config(&self, name: &str) -> CardConfig {
        CardConfig::new(name, self.gid, MacAddr::default())
    }

    /// The table that the card is to intern its routes in.
    pub fn routes(&self) -> RouteTable {
        self.routes.clone()
    }

    /// The present: the time since the port was opened.
    pub fn now(&self) -> Time {
        Time::ZERO + Span::from(self.opened.elapsed())
    }

    /// What it has counted.
    pub fn counters(&self) -> &PortCounters {
        &self.counters
    }

    /// Bytes of kernel memory that hold what peers send until it is taken. Each datagram costs more of
    /// them than it is long.
    ///
    /// # Errors
    ///
    /// If the socket does not tell.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.socket.receive_buffer()
    }

    /// The latest packet that the operating system refused to send.
    pub fn last_send_error(&self) -> Option<&SendError> {
        self.last_send_error.as_ref()
    }

    /// Shows every frame from here on to `tap`.
    pub fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) {
        self.tap = tap;
    }

    /// Receives what is there, looks after deadlines that have come, and sends what the card has to
    /// send and the socket takes; all of it within the budgets. Does not wait.
    ///
    /// # Errors
    ///
    /// If the socket is broken. A packet that cannot be sent is not an error but a lost packet.
    pub fn poll(&mut self, card: &mut Card) -> Result<Activity, PortError> {
        // Receiving comes first: an answer that lies in the socket stops the timer that waits for it.
        let received = self.receive(card)?;
        let now = self.now();
        let timeout = card.next_timeout() <= now;
        if timeout {
            card.advance(now);
        }
        let sent = self.send(card);
        Ok(Activity {
            received,
            sent,
            timeout,
        })
    }

    /// Does what [`UdpPort::poll`] does; if that was nothing, waits for something to do and does that.
    /// Returns after `timeout` at the latest.
    ///
    /// # Errors
    ///
    /// As [`UdpPort::poll`].
    pub fn run_once(&mut self, card: &mut Card, timeout: Duration) -> Result<Activity, PortError> {
        let start = Instant::now();
        loop {
            let activity = self.poll(card)?;
            let waited = start.elapsed();
            if activity.any() || waited >= timeout {
                return Ok(activity);
            }
            if waited < self.config.spin {
                std::thread::yield_now();
                continue;
            }
            let mut sleep = timeout - waited;
            let deadline = card.next_timeout();
            if deadline != Time::NEVER {
                sleep = sleep.min(deadline.since(self.now()).into());
            }
            if self.held.is_some() {
                // A full device queue is not seen by poll(2).
                sleep = sleep.min(Duration::from_millis(1));
            }
            self.socket
                .wait(self.held.is_some(), sleep)
                .map_err(|source| self.error("waiting", source))?;
        }
    }

    fn receive(&mut self, card: &mut Card) -> Result<u32, PortError> {
        let mut received = 0;
        while received < self.config.receive_budget.max(1) {
            let arrival = match self.socket.receive(&mut self.staging.inbox[..]) {
                Ok(Some(arrival)) => arrival,
                Ok(None) => break,
                Err(source) => return Err(self.error("receiving", source)),
            };
            received += 1;
            self.counters.received += 1;
            if let Some(n) = arrival.overflow {
                self.counters.overflow += u64::from(n.wrapping_sub(self.overflow_seen));
                self.overflow_seen = n;
            }
            self.take(card, &arrival);
        }
        Ok(received)
    }

    /// Hands what is in the inbox to the card.
    fn take(&mut self, card: &mut Card, arrival: &socket::Arrival) {
        let now = self.now();
        let bytes = &self.staging.inbox[..arrival.len.min(INBOX)];
        let route = datagram::arrival(arrival.from, self.gid, arrival.tos);
        let decoded = datagram::decode(
            bytes,
            &route,
            Ecn::from_bits(arrival.tos),
            self.local.port(),
        );
        let icrc = decoded
            .as_ref()
            .map(|view| view.check_icrc_any_identification());
        if let Some(tap) = &mut self.tap {
            let mut headers = Headers::of_arrival(arrival.from, self.local, arrival.tos);
            if let Ok(Ok(identification)) = icrc {
                headers.identification = identification;
            }
            tap.frame(now, Direction::Received, &headers.frame(bytes));
        }
        let (Ok(view), false) = (decoded, arrival.cut) else {
            self.counters.malformed += 1;
            return;
        };
        let data = view.transport.payload;
        let payload = match u16::try_from(data.len()) {
            Ok(0) => Payload::EMPTY,
            Ok(len) => Payload::stored(IN, len),
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        let Ok(mut packet) = view.to_packet(self.ingress, payload) else {
            self.counters.malformed += 1;
            return;
        };
        if matches!(icrc, Ok(Err(_))) {
            // The card drops it, and counts it with all else that it drops.
            packet.damage = Damage::Device;
        }
        let end = bytes.len() - view.transport.pad.len() - crate::wire::Icrc::LEN;
        self.staging.payload = end - data.len()..end;
        card.receive(now, &packet, &route, &mut self.staging);
    }

    fn send(&mut self, card: &mut Card) -> u32 {
        let mut sent = 0;
        if let Some(held) = self.held.take() {
            if !self.transmit(held) {
                return 0;
            }
            sent += 1;
        }
        while sent < self.config.send_budget.max(1) {
            let now = self.now();
            let Some(packet) = card.next_packet(now, PriorityMask::ALL, &mut self.staging) else {
                break;
            };
            sent += 1;
            if packet.route.index() >= self.known.len() {
                self.learn_routes();
            }
            let Some(route) = self.known.get(packet.route.index()) else {
                continue;
            };
            // Headers that the kernel would write differently make a packet that nobody accepts.
            if route.encapsulation != Encapsulation::RoceV2 || route.src != self.gid {
                self.counters.refused += 1;
                continue;
            }
            if self.loss.chance(self.config.loss) {
                self.counters.dropped += 1;
                continue;
            }
            let payload = self.staging.payload(packet.payload).unwrap_or_default();
            let port = self.local.port();
            if datagram::encode(&packet, route, port, payload, &mut self.datagram).is_err() {
                self.counters.refused += 1;
                continue;
            }
            let mut to = SocketAddr::new(route.dst.ip(), port);
            if let (SocketAddr::V6(to), SocketAddr::V6(local)) = (&mut to, self.local) {
                to.set_scope_id(local.scope_id());
            }
            let outgoing = Outgoing {
                to,
                tos: route.dscp << 2 | packet.ecn.bits(),
                ttl: packet.hop_limit.max(1),
            };
            if !self.transmit(outgoing) {
                break;
            }
        }
        sent
    }

    /// Gives the packet in the datagram buffer to the socket. False if that has no room; then the packet
    /// is held.
    fn transmit(&mut self, outgoing: Outgoing) -> bool {
        let Outgoing { to, tos, ttl } = outgoing;
        match self.socket.send(&self.datagram, to, tos, ttl) {
            Ok(()) => {
                self.counters.sent += 1;
                if let Some(tap) = &mut self.tap {
                    let headers = Headers {
                        from: self.local,
                        to,
                        tos,
                        hop_limit: ttl,
                        identification: 0,
                    };
                    let now = Time::ZERO + Span::from(self.opened.elapsed());
                    tap.frame(now, Direction::Sent, &headers.frame(&self.datagram));
                }
                true
            }
            Err(e) if is_not_ready(&e) => {
                self.counters.not_ready += 1;
                self.held = Some(outgoing);
                false
            }
            Err(source) => {
                self.counters.refused += 1;
                self.last_send_error = Some(SendError { to, source });
                true
            }
        }
    }

    fn learn_routes(&mut self) {
        let before = self.known.len();
        self.routes.refresh(&mut self.known);
        for route in &mut self.known[before..] {
            route.udp_src = self.local.port();
        }
    }

    fn error(&self, what: &'static str, source: io::Error) -> PortError {
        PortError {
            address: self.local,
            what,
            source,
        }
    }
}

fn is_not_ready(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    ) || matches!(
        e.raw_os_error(),
        Some(nix::libc::ENOBUFS | nix::libc::ENOMEM)
    )
}

fn first_free(config: &UdpConfig) -> Result<Socket, OpenError> {
    let address = |last| IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
    for last in 2..=254 {
        match Socket::open(
            SocketAddr::new(address(last), config.port),
            config.receive_buffer,
        ) {
            Err(OpenError::InUse(_)) => {}
            other => return other,
        }
    }
    Err(OpenError::NoneFree {
        port: config.port,
        first: address(2),
        last: address(254),
    })
}

impl fmt::Debug for UdpPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UdpPort({}, {:?})", self.local, self.counters)
    }
}
