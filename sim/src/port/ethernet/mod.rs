//! A card on Ethernet frames.
//!
//! * [`EthernetPort`]: opening it, and its link, here.
//! * `neighbours`: which Ethernet address a peer has, and packets that wait to know it.
//! * `discovery`: ARP and neighbour discovery.
//! * `pauses`: priority-based flow control.
//! * `device`: [`FrameDevice`], what carries frames; `channel`, `datagrams` and `raw` are such.
//! * `sleeper`: a descriptor to sleep on for a channel, which has none.

mod channel;
#[cfg(target_os = "linux")]
mod datagrams;
mod device;
mod discovery;
mod neighbours;
mod pauses;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod sleeper;

pub use channel::ChannelDevice;
#[cfg(target_os = "linux")]
pub use datagrams::DatagramDevice;
#[cfg(target_os = "linux")]
pub(super) use device::wait_for;
pub use device::{DeviceError, FrameDevice};
#[cfg(target_os = "linux")]
pub use raw::RawDevice;

use super::link::{Arrival, Monitor, Received, is_not_ready};
use super::{Direction, Link, Port, PortConfig, SendError};
use crate::card::PriorityMask;
use crate::faults::FaultError;
use crate::time::Time;
use crate::wire::frame::{FrameView, encode_packet};
use crate::wire::pfc::{self, Pfc};
use crate::wire::{Encapsulation, Gid, MacAddr, Packet, Route, RouteId};
use discovery::{Message, SHORTEST, Station};
use neighbours::Neighbours;
use pauses::Pauses;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Where an Ethernet port is to be, and how it behaves.
#[derive(Clone, Debug)]
pub struct EthernetConfig {
    /// IP address of the card, one that nobody else on the link answers for.
    pub address: IpAddr,
    /// Ethernet address of the card.
    pub mac: MacAddr,
    /// Speed of the link in bits a second: the unit of a pause is the time of 512 bits.
    pub speed: u64,
    /// What all ports have.
    pub common: PortConfig,
}

impl EthernetConfig {
    /// A card at `address` and `mac`, on a link of 10 Gb/s.
    pub fn new(address: IpAddr, mac: MacAddr) -> EthernetConfig {
        EthernetConfig {
            address,
            mac,
            speed: 10_000_000_000,
            common: PortConfig::default(),
        }
    }
}

/// Why an [`EthernetPort`] could not be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EthernetError {
    /// A card has one address, and this is none or one of a group.
    #[error("{0} is no address for a card: it needs one of its own")]
    Address(IpAddr),
    /// The same of Ethernet addresses.
    #[error("{0} is no Ethernet address for a card: it needs one of its own, not 0 or a group's")]
    Mac(MacAddr),
    /// A link carries something.
    #[error("link speed 0, at least 1 bit a second needed")]
    Speed,
    /// A fault of the port's makes no sense.
    #[error("{0}")]
    Fault(#[from] FaultError),
}

/// Drives one card over Ethernet frames, in one thread; see [`Port`].
///
/// What the card sends goes out whole: RoCEv1 or RoCEv2, tagged where the route has a VLAN, TTL and ECN
/// the packet's. The Ethernet address of a peer is the address vector's; where that is zero, the peer is
/// asked for it by ARP or neighbour discovery, in the route's VLAN, while its packets wait. (A link-local
/// address of RoCEv1 tells it by itself, as Linux reads it.) Such questions of others are answered, on
/// every VLAN. Frames to other Ethernet addresses are ignored, but those to the addresses of groups that the
/// card's queue pairs are attached to. Pauses of the neighbour are obeyed by priority. There are no routers: every
/// peer is a neighbour, or its address vector has the router's Ethernet address.
///
/// ```no_run
/// use softroce_sim::card::Card;
/// use softroce_sim::port::{DatagramDevice, EthernetConfig, EthernetPort, seed};
/// use softroce_sim::wire::MacAddr;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = DatagramDevice::open("127.0.0.1:5001".parse()?, "127.0.0.1:5002".parse()?)?;
/// let config = EthernetConfig::new("10.66.0.9".parse()?, MacAddr([0x52, 0x54, 0, 0x66, 0, 9]));
/// let mut port = EthernetPort::open(device, &config)?;
/// let mut card = Card::new(port.card_config("softroce0"), seed()?, port.routes());
/// # Ok(()) }
/// ```
pub type EthernetPort<D> = Port<Ethernet<D>>;

/// Frames that may wait for the device before questions of neighbours stay unanswered: whoever asks more while
/// nothing goes out asks again.
const MAX_WAITING: usize = 64;

/// Longest frame taken; the longest packet at the largest path MTU is shorter by far.
const INBOX: usize = 9216;

/// The link of an [`EthernetPort`].
pub struct Ethernet<D> {
    device: D,
    own: Station,
    gid: Gid,
    neighbours: Neighbours,
    pauses: Pauses,
    /// The frame received last.
    inbox: Box<[u8; INBOX]>,
    /// The frame being sent.
    frame: Vec<u8>,
    /// Frames that the device has not taken yet, and whether they are packets of the card's.
    outbox: VecDeque<(Vec<u8>, bool)>,
    /// Frames from the card to itself.
    loopback: VecDeque<Vec<u8>>,
    groups: Vec<Gid>,
}

impl<D: FrameDevice> EthernetPort<D> {
    /// Opens a port on `device`.
    ///
    /// # Errors
    ///
    /// If the addresses are not such as a card can have, or a fault makes no sense.
    pub fn open(device: D, config: &EthernetConfig) -> Result<EthernetPort<D>, EthernetError> {
        config.common.check()?;
        let ip = config.address;
        if ip.is_unspecified() || ip.is_multicast() {
            return Err(EthernetError::Address(ip));
        }
        if is_group(config.mac) || config.mac == MacAddr::default() {
            return Err(EthernetError::Mac(config.mac));
        }
        if config.speed == 0 {
            return Err(EthernetError::Speed);
        }
        let gid = Gid::from(ip);
        let link = Ethernet {
            device,
            own: Station {
                ip: gid.ip(),
                mac: config.mac,
            },
            gid,
            neighbours: Neighbours::new(),
            pauses: Pauses::new(config.speed),
            inbox: Box::new([0; INBOX]),
            frame: Vec::with_capacity(4096 + 128),
            outbox: VecDeque::new(),
            loopback: VecDeque::new(),
            groups: Vec::new(),
        };
        Ok(Port::new(link, &config.common))
    }
}

impl<D> Ethernet<D> {
    /// Its device.
    pub fn device(&self) -> &D {
        &self.device
    }
}

fn is_group(mac: MacAddr) -> bool {
    mac.0[0] & 1 != 0
}

/// The Ethernet address in a link-local address that was made of it (EUI-64, RFC 4291 appendix A).
fn mac_of_link_local(gid: Gid) -> Option<MacAddr> {
    match gid.0 {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
            Some(MacAddr([a ^ 2, b, c, d, e, f]))
        }
        _ => None,
    }
}

/// The parts of a frame that say whose it is.
struct Envelope<'a> {
    dst: MacAddr,
    src: MacAddr,
    vlan: Option<u16>,
    kind: u16,
    content: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn open(frame: &'a [u8]) -> Option<Envelope<'a>> {
        let (dst, rest) = frame.split_first_chunk::<6>()?;
        let (src, rest) = rest.split_first_chunk::<6>()?;
        let (kind, mut content) = rest.split_first_chunk::<2>()?;
        let mut kind = u16::from_be_bytes(*kind);
        let mut vlan = None;
        if kind == 0x8100 {
            let (tag, rest) = content.split_first_chunk::<2>()?;
            let (inner, rest) = rest.split_first_chunk::<2>()?;
            kind = u16::from_be_bytes(*inner);
            content = rest;
            // Identifier 0 is no VLAN, but a priority.
            vlan = Some(u16::from_be_bytes(*tag) & 0xfff).filter(|&id| id != 0);
        }
        Some(Envelope {
            dst: MacAddr(*dst),
            src: MacAddr(*src),
            vlan,
            kind,
            content,
        })
    }
}

impl<D: FrameDevice> Ethernet<D> {
    /// What a neighbour said: who asks is answered, what waited for it is sent.
    fn hear(&mut self, monitor: &mut Monitor, vlan: Option<u16>, message: Message) {
        let speaker = match message {
            Message::Answer(station) => Some(station),
            Message::Question {
                from,
                from_mac,
                target,
            } => {
                if target == self.own.ip && from_mac != self.own.mac {
                    if self.outbox.len() < MAX_WAITING {
                        monitor.counters.answered += 1;
                        let frame = discovery::answer(self.own, vlan, from, from_mac);
                        self.outbox.push_back((frame, false));
                    } else {
                        monitor.counters.unanswered += 1;
                    }
                }
                from
            }
        };
        if let Some(Station { ip, mac }) = speaker
            && ip != self.own.ip
            && !is_group(mac)
            && mac != MacAddr::default()
        {
            for mut frame in self.neighbours.heard(monitor.now(), (vlan, ip), mac) {
                frame[..6].copy_from_slice(&mac.0);
                self.outbox.push_back((frame, true));
            }
        }
        self.flush(monitor);
    }

    fn ask(&mut self, monitor: &mut Monitor, (vlan, ip): neighbours::Name) {
        monitor.counters.asked += 1;
        let frame = discovery::question(self.own, vlan, ip);
        self.outbox.push_back((frame, false));
    }

    /// Sends the frame in the buffer, behind those that wait; keeps it if there is no room.
    fn transmit(&mut self, monitor: &mut Monitor) -> bool {
        if self.empty_outbox(monitor) && self.offer(monitor, None) {
            return true;
        }
        self.outbox.push_back((self.frame.clone(), true));
        false
    }

    /// Gives what waits to the device; false if there is no room for all of it.
    fn empty_outbox(&mut self, monitor: &mut Monitor) -> bool {
        while let Some(first) = self.outbox.pop_front() {
            if !self.offer(monitor, Some(&first)) {
                self.outbox.push_front(first);
                return false;
            }
        }
        true
    }

    /// Offers a frame of the outbox, or the one in the buffer, to the device. False if there is no room.
    fn offer(&mut self, monitor: &mut Monitor, queued: Option<&(Vec<u8>, bool)>) -> bool {
        let (frame, is_packet) = match queued {
            Some((frame, is_packet)) => (frame, *is_packet),
            None => (&self.frame, true),
        };
        match self.device.send(frame) {
            Ok(()) => {
                monitor.counters.sent += u64::from(is_packet);
                monitor.show(Direction::Sent, frame);
                true
            }
            Err(e) if is_not_ready(&e) => {
                monitor.counters.not_ready += 1;
                false
            }
            Err(source) => {
                monitor.counters.refused += u64::from(is_packet);
                let to = FrameView::decode(frame).map_or(self.own.ip, |v| v.network.dst().ip());
                monitor.last_send_error = Some(SendError { to, source });
                true
            }
        }
    }
}

impl<D: FrameDevice> Link for Ethernet<D> {
    fn gid(&self) -> Gid {
        self.gid
    }

    fn mac(&self) -> MacAddr {
        self.own.mac
    }

    fn describe(&self) -> String {
        format!(
            "Ethernet {} at {}, {}",
            self.own.ip,
            self.own.mac,
            self.device.describe()
        )
    }

    fn adopt(&self, route: &mut Route) {
        if route.dst_mac != MacAddr::default() {
            return;
        }
        if route.dst.is_multicast() {
            route.dst_mac = MacAddr::of_group(route.dst.ip());
        } else if route.dst == self.gid {
            route.dst_mac = self.own.mac;
        } else if route.encapsulation == Encapsulation::RoceV1
            && let Some(mac) = mac_of_link_local(route.dst)
        {
            route.dst_mac = mac;
        }
    }

    fn join(&mut self, group: Gid) -> io::Result<()> {
        self.groups.push(group);
        Ok(())
    }

    fn leave(&mut self, group: Gid) {
        self.groups.retain(|&g| g != group);
    }

    fn arrived(&self) -> &[u8] {
        &self.inbox[..]
    }

    fn receive(&mut self, monitor: &mut Monitor, name: RouteId) -> io::Result<Received> {
        let inbox = &mut self.inbox[..];
        let len = match self.loopback.pop_front() {
            Some(frame) => {
                inbox[..frame.len()].copy_from_slice(&frame);
                frame.len()
            }
            None => match self.device.receive(inbox)? {
                Some(len) => len,
                None => return Ok(Received::Nothing),
            },
        };
        let bytes = &inbox[..len.min(inbox.len())];
        monitor.show(Direction::Received, bytes);
        let Some(envelope) = Envelope::open(bytes).filter(|_| len <= inbox.len()) else {
            monitor.counters.malformed += 1;
            return Ok(Received::Other);
        };
        // A station has one tag; whatever has more is for the networks between stations.
        if matches!(envelope.kind, 0x8100 | 0x88a8) {
            monitor.counters.foreign += 1;
            return Ok(Received::Other);
        }
        if envelope.kind == pfc::ETHERTYPE {
            match Pfc::decode(bytes) {
                Ok(pfc) => {
                    monitor.counters.pfc_frames += 1;
                    let now = monitor.now();
                    self.pauses.set(now, &pfc, &mut monitor.counters.pauses);
                }
                Err(_) => monitor.counters.foreign += 1,
            }
            return Ok(Received::Other);
        }
        if envelope.dst != self.own.mac && !is_group(envelope.dst) {
            monitor.counters.foreign += 1;
            return Ok(Received::Other);
        }
        let message = match envelope.kind {
            0x0806 => discovery::arp(envelope.content),
            0x86dd => discovery::ndp(envelope.content, envelope.src),
            _ => None,
        };
        let vlan = envelope.vlan;
        if let Some(message) = message {
            self.hear(monitor, vlan, message);
            return Ok(Received::Other);
        }
        let is_heard = |g: &Gid| MacAddr::of_group(g.ip()) == envelope.dst;
        if is_group(envelope.dst) && !self.groups.iter().any(is_heard) {
            monitor.counters.foreign += 1;
            return Ok(Received::Other);
        }
        let view = match FrameView::decode(bytes) {
            // Nobody takes a header that is broken (RFC 1122, 3.2.1.2).
            Ok(view) if !view.header_checksum_matches() => {
                monitor.counters.malformed += 1;
                return Ok(Received::Other);
            }
            Ok(view) => view,
            Err(e) => {
                match e.is_foreign() {
                    true => monitor.counters.foreign += 1,
                    false => monitor.counters.malformed += 1,
                }
                return Ok(Received::Other);
            }
        };
        let matches = view.check_icrc().is_ok();
        match Arrival::new(&view, view.route(), bytes.len(), matches, name) {
            Some(arrival) => Ok(Received::Packet(arrival)),
            None => {
                monitor.counters.malformed += 1;
                Ok(Received::Other)
            }
        }
    }

    fn ready(&self) -> PriorityMask {
        self.pauses.ready()
    }

    fn send(
        &mut self,
        monitor: &mut Monitor,
        packet: &Packet,
        route: &Route,
        payload: &[u8],
    ) -> bool {
        self.frame.clear();
        if encode_packet(packet, route, payload, &mut self.frame).is_err() {
            monitor.counters.refused += 1;
            return true;
        }
        if self.frame.len() < SHORTEST {
            self.frame.resize(SHORTEST, 0);
        }
        if route.dst_mac == self.own.mac {
            // A port does not receive what it sends.
            monitor.counters.sent += 1;
            monitor.show(Direction::Sent, &self.frame);
            self.loopback.push_back(self.frame.clone());
            return true;
        }
        if route.dst_mac != MacAddr::default() {
            return self.transmit(monitor);
        }
        let vlan = route.vlan.map(|v| v.id).filter(|&id| id != 0);
        let neighbour = (vlan, route.dst.ip());
        let found = self.neighbours.find(monitor.seen, neighbour);
        if found.ask {
            self.ask(monitor, neighbour);
        }
        match found.mac {
            Some(mac) => {
                self.frame[..6].copy_from_slice(&mac.0);
                self.transmit(monitor)
            }
            None => {
                if !self.neighbours.hold(neighbour, &self.frame) {
                    monitor.counters.unresolved += 1;
                }
                self.flush(monitor)
            }
        }
    }

    fn keeps(&self) -> bool {
        !self.outbox.is_empty()
    }

    fn flush(&mut self, monitor: &mut Monitor) -> bool {
        let all = self.empty_outbox(monitor);
        self.device.flush();
        all
    }

    fn next_timeout(&self) -> Time {
        let own = if self.loopback.is_empty() {
            Time::NEVER
        } else {
            Time::ZERO
        };
        let pauses = self.pauses.next_timeout();
        self.neighbours.next_timeout().min(pauses).min(own)
    }

    fn advance(&mut self, monitor: &mut Monitor) {
        let now = monitor.now();
        self.pauses.advance(now);
        let (again, lost) = self.neighbours.advance(now);
        monitor.counters.unresolved += lost;
        for neighbour in again {
            self.ask(monitor, neighbour);
        }
        self.flush(monitor);
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        self.device.wait(to_send, timeout)
    }

    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd> {
        self.device.descriptor()
    }

    #[cfg(target_os = "linux")]
    fn arm(&mut self) -> bool {
        self.device.arm()
    }
}

impl<D: FrameDevice> fmt::Debug for Ethernet<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}
