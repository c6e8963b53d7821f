//! The socket of a port: its options, and one datagram at a time.

use super::error::OpenError;
use crate::port::ethernet::wait_for;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, SockAddr, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// A UDP socket that is bound and not connected, and does not block.
#[derive(Debug)]
pub(super) struct Socket {
    socket: socket2::Socket,
    /// TOS and TTL that what is sent next will have.
    tos: u8,
    ttl: u8,
    control: Vec<u8>,
}

/// What came with a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) len: usize,
    pub(super) from: SocketAddr,
    /// TOS or traffic class.
    pub(super) tos: u8,
    /// The datagram was longer than the buffer.
    pub(super) cut: bool,
    /// Datagrams that the kernel has dropped so far because the socket was full.
    pub(super) overflow: Option<u32>,
}

impl Socket {
    pub(super) fn open(address: SocketAddr, receive_buffer: usize) -> Result<Socket, OpenError> {
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
                Some(nix::libc::EAFNOSUPPORT) => OpenError::NoFamily(address),
                _ => io("opening a socket")(e),
            })?;
        socket
            .set_nonblocking(true)
            .map_err(io("setting O_NONBLOCK"))?;
        // The kernel cuts the size to net.core.rmem_max.
        socket
            .set_recv_buffer_size(receive_buffer)
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
        setsockopt(&socket, sockopt::RxqOvfl, &1)
            .map_err(|e| io("setting SO_RXQ_OVFL")(e.into()))?;
        socket
            .bind(&SockAddr::from(address))
            .map_err(|e| OpenError::bind(address, e))?;
        Ok(Socket {
            socket,
            tos: 0,
            ttl: ttl as u8,
            control: nix::cmsg_space!(nix::libc::c_int, u32),
        })
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

    /// Sends one datagram. TOS and TTL are options of the socket, set when they change.
    pub(super) fn send(
        &mut self,
        datagram: &[u8],
        to: SocketAddr,
        tos: u8,
        ttl: u8,
    ) -> io::Result<()> {
        if tos != self.tos {
            match to {
                SocketAddr::V4(_) => self.socket.set_tos_v4(tos.into())?,
                SocketAddr::V6(_) => self.socket.set_tclass_v6(tos.into())?,
            }
            self.tos = tos;
        }
        if ttl != self.ttl {
            match to {
                SocketAddr::V4(_) => self.socket.set_ttl_v4(ttl.into())?,
                SocketAddr::V6(_) => self.socket.set_unicast_hops_v6(ttl.into())?,
            }
            self.ttl = ttl;
        }
        self.socket.send_to(datagram, &to.into()).map(|_| ())
    }

    /// Receives one datagram; `None` if there is none.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<Arrival>> {
        let mut pieces = [IoSliceMut::new(buffer)];
        let message = match recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut pieces,
            Some(&mut self.control),
            MsgFlags::MSG_DONTWAIT,
        ) {
            Ok(message) => message,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let (mut tos, mut overflow) = (0, None);
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::Ipv4Tos(t) => tos = t,
                ControlMessageOwned::Ipv6TClass(t) => tos = t as u8,
                ControlMessageOwned::RxqOvfl(n) => overflow = Some(n),
                _ => {}
            }
        }
        let from = message.address.and_then(|a| {
            if let Some(v4) = a.as_sockaddr_in() {
                Some(SocketAddr::V4((*v4).into()))
            } else {
                a.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into()))
            }
        });
        Ok(from.map(|from| Arrival {
            len: message.bytes,
            from,
            tos,
            cut: message.flags.contains(MsgFlags::MSG_TRUNC),
            overflow,
        }))
    }

    /// Another name of the socket.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }

    /// Sleeps until there is something to receive, or room to send if `to_send`; at most `timeout`.
    pub(super) fn wait(&self, to_send: bool, timeout: Duration) -> io::Result<()> {
        wait_for(&self.socket, to_send, timeout)
    }
}
