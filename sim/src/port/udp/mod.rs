//! A card on a UDP socket.
//!
//! * [`UdpPort`]: opening it, and its link, here.
//! * `socket`: the socket, its options and its system calls.
//! * `batch`, `inbox`: many datagrams in one system call, out and in.
//! * `datagram`: packets to datagrams and back.
//! * `groups`: multicast groups, which have a socket each.
//! * `error`: why it does not open.

mod batch;
mod datagram;
mod error;
mod groups;
mod inbox;
mod socket;

pub use error::OpenError;

use super::ethernet::wait_for;
use super::link::{Arrival, Monitor, Received};
use super::{Direction, Link, Port, PortConfig, SendError};
use crate::card::PriorityMask;
use crate::time::Time;
use crate::wire::frame::UDP_PORT;
use crate::wire::{Ecn, Encapsulation, Gid, MacAddr, Operation, Packet, Route, RouteId};
use batch::{Batch, Outcome, Way};
use datagram::Headers;
use groups::Sockets;
use inbox::Inbox;
use socket::Socket;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Where a UDP port is to be, and how it behaves.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Address of the card; `None` takes the first of 127.0.0.2 to 127.0.0.254 whose port is free.
    pub address: Option<IpAddr>,
    /// UDP port, the same at both ends. RoCEv2 is on 4791, and other tools look for it there.
    pub port: u16,
    /// Bytes of kernel memory asked for what waits to be received; the kernel gives as much as
    /// `net.core.rmem_max` allows.
    pub receive_buffer: usize,
    /// Runs of packets for one peer go to the kernel and come from it as one (`UDP_SEGMENT`, `UDP_GRO`),
    /// several times faster for long messages. Only between ends that agree: the kernel numbers the
    /// datagrams of a run, which the ICRC does not know of, so that other cards drop all but the first.
    pub offload: bool,
    /// What all ports have.
    pub common: PortConfig,
}

impl Default for UdpConfig {
    fn default() -> UdpConfig {
        UdpConfig {
            address: None,
            port: UDP_PORT,
            receive_buffer: 4 << 20,
            offload: false,
            common: PortConfig::default(),
        }
    }
}

/// Drives one card over a UDP socket on RoCEv2's port, in one thread; see [`Port`].
///
/// Multicast groups are those of this machine: they are joined on its loopback interface, and datagrams to them
/// do not leave it. (Linux has no route there for groups of IPv6 unless it is told one.)
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
pub type UdpPort = Port<Udp>;

/// The link of a [`UdpPort`]: one socket, whose headers the kernel writes.
#[derive(Debug)]
pub struct Udp {
    sockets: Sockets,
    local: SocketAddr,
    gid: Gid,
    batch: Batch,
    inbox: Inbox,
}

impl UdpPort {
    /// Opens a port.
    ///
    /// # Errors
    ///
    /// If the address is in use, not this machine's, not allowed, or not one that a card can have; or if a
    /// fault makes no sense.
    pub fn open(config: &UdpConfig) -> Result<UdpPort, OpenError> {
        config.common.check()?;
        let socket = match config.address {
            Some(ip) if ip.is_unspecified() || ip.is_multicast() => {
                return Err(OpenError::NotUnicast(ip));
            }
            Some(ip) => Socket::open(SocketAddr::new(ip, config.port), config)?,
            None => first_free(config)?,
        };
        let asked = SocketAddr::new(
            config.address.unwrap_or(Ipv4Addr::LOCALHOST.into()),
            config.port,
        );
        let io = |what| {
            move |source| OpenError::Io {
                address: asked,
                what,
                source,
            }
        };
        let local = socket.local().map_err(io("asking for the address"))?;
        let sockets = Sockets::new(socket, config).map_err(io("making an epoll descriptor"))?;
        let link = Udp {
            sockets,
            local,
            gid: Gid::from(local.ip()),
            batch: Batch::new(config.offload),
            inbox: Inbox::new(config.offload),
        };
        Ok(Port::new(link, &config.common))
    }

    /// Address and port it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.link().local
    }

    /// Bytes of kernel memory that hold what peers send until it is taken. Each datagram costs more of
    /// them than it is long.
    ///
    /// # Errors
    ///
    /// If the socket does not tell.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.link().sockets.own.receive_buffer()
    }
}

impl Link for Udp {
    fn gid(&self) -> Gid {
        self.gid
    }

    fn mac(&self) -> MacAddr {
        MacAddr::default()
    }

    fn describe(&self) -> String {
        format!("UDP {}", self.local)
    }

    fn adopt(&self, route: &mut Route) {
        route.udp_src = self.local.port();
    }

    fn join(&mut self, group: Gid) -> io::Result<()> {
        self.sockets.join(group)
    }

    fn leave(&mut self, group: Gid) {
        self.sockets.leave(group, &mut self.inbox);
    }

    #[inline]
    fn receive(&mut self, monitor: &mut Monitor, name: RouteId) -> io::Result<Received> {
        let Some((arrival, group)) = self.sockets.next(&mut self.inbox)? else {
            return Ok(Received::Nothing);
        };
        let mut to = self.local;
        if let Some(group) = group {
            // The card's own, which it has heard already.
            if arrival.from.ip() == to.ip() && arrival.from.port() == to.port() {
                monitor.counters.foreign += 1;
                return Ok(Received::Other);
            }
            to.set_ip(group.ip());
        }
        let bytes = &self.inbox.bytes()[arrival.bytes.clone()];
        let route = datagram::arrival(arrival.from, group.unwrap_or(self.gid), arrival.tos);
        let ecn = Ecn::from_bits(arrival.tos);
        let decoded = datagram::decode(bytes, &route, ecn, self.local.port());
        let icrc = decoded
            .as_ref()
            .map(|view| view.check_icrc_any_identification());
        if monitor.tap.is_some() {
            let mut headers = Headers::of_arrival(arrival.from, to, arrival.tos);
            if let Ok(Ok(identification)) = icrc {
                headers.identification = identification;
            }
            monitor.show(Direction::Received, &headers.frame(bytes));
        }
        let packet = match &decoded {
            Ok(view) if !arrival.cut => Arrival::new(
                view,
                route,
                arrival.bytes.end,
                matches!(icrc, Ok(Ok(_))),
                name,
            ),
            _ => None,
        };
        Ok(match packet {
            Some(packet) => Received::Packet(packet),
            None => {
                monitor.counters.malformed += 1;
                Received::Other
            }
        })
    }

    #[inline]
    fn arrived(&self) -> &[u8] {
        self.inbox.bytes()
    }

    fn ready(&self) -> PriorityMask {
        PriorityMask::ALL
    }

    fn send(
        &mut self,
        monitor: &mut Monitor,
        packet: &Packet,
        route: &Route,
        payload: &[u8],
    ) -> bool {
        // Headers that the kernel would write differently make a packet that nobody accepts.
        let is_of_kernel = route.encapsulation == Encapsulation::RoceV2 && route.src == self.gid;
        if !is_of_kernel || route.dst.is_multicast() && !self.sockets.own.reaches_groups() {
            monitor.counters.refused += 1;
            return true;
        }
        let port = self.local.port();
        let mut to = SocketAddr::new(route.dst.ip(), port);
        if let (SocketAddr::V6(to), SocketAddr::V6(local)) = (&mut to, self.local) {
            to.set_scope_id(local.scope_id());
        }
        let way = Way {
            to,
            tos: route.dscp << 2 | packet.ecn.bits(),
            ttl: packet.hop_limit.max(1),
        };
        let acknowledges = packet.bth.opcode().operation() == Operation::Acknowledge;
        let pushed = self.batch.push(way, acknowledges, |out| {
            datagram::encode(packet, route, port, payload, out)
        });
        if pushed.is_err() {
            monitor.counters.refused += 1;
            return true;
        }
        !self.batch.is_full() || self.flush(monitor)
    }

    fn keeps(&self) -> bool {
        self.batch.keeps()
    }

    fn flush(&mut self, monitor: &mut Monitor) -> bool {
        let local = self.local;
        let sent_all = self
            .batch
            .transmit(&mut self.sockets.own, |outcome| match outcome {
                Outcome::Sent(way, datagram) => {
                    monitor.counters.sent += 1;
                    if monitor.tap.is_some() {
                        let headers = Headers {
                            from: local,
                            to: way.to,
                            tos: way.tos,
                            hop_limit: way.ttl,
                            identification: 0,
                        };
                        monitor.show(Direction::Sent, &headers.frame(datagram));
                    }
                }
                Outcome::Refused(way, source) => {
                    monitor.counters.refused += 1;
                    monitor.last_send_error = Some(SendError {
                        to: way.to.ip(),
                        source,
                    });
                }
            });
        monitor.counters.not_ready += u64::from(!sent_all);
        sent_all
    }

    fn overflow(&self) -> u64 {
        self.sockets.overflow()
    }

    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    fn advance(&mut self, _: &mut Monitor) {}

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        match to_send || self.sockets.is_alone() {
            true => self.sockets.own.wait(to_send, timeout),
            false => wait_for(&self.sockets, false, timeout),
        }
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.sockets.descriptor()
    }
}

fn first_free(config: &UdpConfig) -> Result<Socket, OpenError> {
    let address = |last| IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
    for last in 2..=254 {
        match Socket::open(SocketAddr::new(address(last), config.port), config) {
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
