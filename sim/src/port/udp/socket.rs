//! The socket of a port: its options and its system calls.

#![allow(unsafe_code)]

use super::UdpConfig;
use super::batch::Way;
use super::error::OpenError;
use crate::port::ethernet::wait_for;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, SockAddr, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// A UDP socket that is bound and not connected, and does not block.
#[derive(Debug)]
pub(super) struct Socket {
    socket: socket2::Socket,
    /// TOS and TTL that what is sent next will have.
    tos: u8,
    ttl: u8,
    /// What is sent to groups stays on the loopback interface.
    to_groups: bool,
}

/// The loopback interface has this number in every network namespace of Linux.
const LOOPBACK: u32 = 1;

impl Socket {
    /// A socket at an address of the card's own.
    pub(super) fn open(address: SocketAddr, config: &UdpConfig) -> Result<Socket, OpenError> {
        let mut socket = Socket::make(address, config, |_| Ok(()))?;
        // Where there is no loopback interface, groups are out of reach, and all else goes on.
        socket.to_groups = match address {
            SocketAddr::V4(_) => socket.socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => socket.socket.set_multicast_if_v6(LOOPBACK),
        }
        .is_ok();
        Ok(socket)
    }

    /// A socket at the address of a multicast group, as every member on this machine has one: what is sent to the
    /// group on the loopback interface comes to each.
    pub(super) fn open_group(group: SocketAddr, config: &UdpConfig) -> Result<Socket, OpenError> {
        let join = |socket: &socket2::Socket| socket.set_reuse_address(true);
        let socket = Socket::make(group, config, join)?;
        match group.ip() {
            IpAddr::V4(ip) => socket.socket.join_multicast_v4(&ip, &Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) => socket.socket.join_multicast_v6(&ip, LOOPBACK),
        }
        .map_err(|source| OpenError::Io {
            address: group,
            what: "joining on the loopback interface",
            source,
        })?;
        Ok(socket)
    }

    fn make(
        address: SocketAddr,
        config: &UdpConfig,
        prepare: impl FnOnce(&socket2::Socket) -> io::Result<()>,
    ) -> Result<Socket, OpenError> {
        let io = |what| {
            move |source: io::Error| OpenError::Io {
                address,
                what,
                source,
            }
        };
        let domain = Domain::for_address(address);
        let socket =
            socket2::Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(|e| match e
                .raw_os_error()
            {
                Some(libc::EAFNOSUPPORT) => OpenError::NoFamily(address),
                _ => io("opening a socket")(e),
            })?;
        socket
            .set_nonblocking(true)
            .map_err(io("setting O_NONBLOCK"))?;
        // The kernel cuts the size to net.core.rmem_max.
        socket
            .set_recv_buffer_size(config.receive_buffer)
            .map_err(io("setting SO_RCVBUF"))?;
        let ttl = 64;
        // DF with PROBE, which heeds no path MTU that a stranger's ICMP message sets. With DF and
        // without connection Linux writes identification 0, so that the ICRC can be worked out here.
        match address.ip() {
            IpAddr::V4(_) => {
                rustix::net::sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)
                    .map_err(|e| io("setting IP_MTU_DISCOVER")(e.into()))?;
                socket.set_ttl_v4(ttl).map_err(io("setting IP_TTL"))?;
                socket
                    .set_recv_tos_v4(true)
                    .map_err(io("setting IP_RECVTOS"))?;
            }
            IpAddr::V6(_) => {
                socket
                    .set_only_v6(true)
                    .map_err(io("setting IPV6_V6ONLY"))?;
                rustix::net::sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)
                    .map_err(|e| io("setting IPV6_MTU_DISCOVER")(e.into()))?;
                socket
                    .set_unicast_hops_v6(ttl)
                    .map_err(io("setting IPV6_UNICAST_HOPS"))?;
                socket
                    .set_recv_tclass_v6(true)
                    .map_err(io("setting IPV6_RECVTCLASS"))?;
            }
        }
        if config.offload {
            setsockopt(&socket, sockopt::UdpGroSegment, &true)
                .map_err(|e| io("setting UDP_GRO")(e.into()))?;
        }
        prepare(&socket).map_err(io("setting SO_REUSEADDR"))?;
        socket
            .bind(&SockAddr::from(address))
            .map_err(|e| OpenError::bind(address, e))?;
        Ok(Socket {
            socket,
            tos: 0,
            ttl: ttl as u8,
            to_groups: false,
        })
    }

    /// Datagrams to groups can be sent; they do not leave this machine.
    pub(super) fn reaches_groups(&self) -> bool {
        self.to_groups
    }

    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.socket
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Bytes of kernel memory for what waits to be received.
    pub(super) fn receive_buffer(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    /// Datagrams that the kernel has dropped because the receive buffer was full. It is asked when someone wants
    /// to know: told with each datagram, it costs a tenth of a round trip.
    pub(super) fn overflow(&self) -> u32 {
        const WORDS: usize = libc::SK_MEMINFO_DROPS as usize + 1;
        let mut words = [0u32; WORDS];
        let mut len = size_of_val(&words) as libc::socklen_t;
        // SAFETY: the kernel writes no more than `len` bytes, and that is how long the words are.
        let said = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                words.as_mut_ptr().cast(),
                &mut len,
            )
        };
        if said == 0 { words[WORDS - 1] } else { 0 }
    }

    /// What is sent next has this class and hop limit: options of the socket, set when they change.
    #[inline]
    pub(super) fn set_way(&mut self, way: &Way) -> io::Result<()> {
        if way.tos != self.tos {
            match way.to {
                SocketAddr::V4(_) => self.socket.set_tos_v4(way.tos.into())?,
                SocketAddr::V6(_) => self.socket.set_tclass_v6(way.tos.into())?,
            }
            self.tos = way.tos;
        }
        if way.ttl != self.ttl {
            match way.to {
                SocketAddr::V4(_) => self.socket.set_ttl_v4(way.ttl.into())?,
                SocketAddr::V6(_) => self.socket.set_unicast_hops_v6(way.ttl.into())?,
            }
            self.ttl = way.ttl;
        }
        Ok(())
    }

    /// Sends one datagram.
    #[inline]
    pub(super) fn send(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(datagram, &to.into()).map(|_| ())
    }

    /// Sends messages; how many of them went.
    pub(super) fn send_many(&self, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
        // SAFETY: each header points to a name, bytes and control messages of the caller's, who borrows
        // them for as long as this takes; the kernel only reads them.
        count(unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as _,
                0,
            )
        })
    }

    /// Receives what is there, as far as there is room; how many messages that was.
    #[inline]
    pub(super) fn receive_many(&self, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
        // SAFETY: each header points to memory of the inbox's, which it has for itself alone and which
        // does not move.
        count(unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as _,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        })
    }

    /// Sleeps until there is something to receive, or room to send if `to_send`; at most `timeout`.
    pub(super) fn wait(&self, to_send: bool, timeout: Duration) -> io::Result<()> {
        wait_for(&self.socket, to_send, timeout)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a system call says: a number of messages, or an error.
fn count(said: libc::c_int) -> io::Result<usize> {
    usize::try_from(said).map_err(|_| io::Error::last_os_error())
}
