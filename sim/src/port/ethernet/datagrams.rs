//! One Ethernet frame in each UDP datagram, as QEMU's `-netdev dgram` has them.

use super::device::wait_for;
use super::{DeviceError, FrameDevice};
use socket2::{Domain, Protocol, Type};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A cable whose other end is a UDP socket: each datagram carries one frame.
///
/// QEMU has the other end with `-netdev dgram,local.type=inet,local.host=...,remote.type=inet,...`.
#[derive(Debug)]
pub struct DatagramDevice {
    socket: socket2::Socket,
    local: SocketAddr,
    remote: SocketAddr,
}

impl DatagramDevice {
    /// Binds `local` and joins it to `remote`, which need not be there yet. What others send is not
    /// received.
    ///
    /// # Errors
    ///
    /// If the operating system refuses one of the addresses.
    pub fn open(local: SocketAddr, remote: SocketAddr) -> Result<DatagramDevice, DeviceError> {
        let io = |what| {
            move |source: io::Error| DeviceError::Io {
                device: describe(local, remote),
                what,
                source,
            }
        };
        let socket =
            socket2::Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))
                .map_err(io("opening a socket"))?;
        socket
            .set_nonblocking(true)
            .map_err(io("setting O_NONBLOCK"))?;
        // The kernel cuts the size to net.core.rmem_max.
        socket
            .set_recv_buffer_size(4 << 20)
            .map_err(io("setting SO_RCVBUF"))?;
        socket.bind(&local.into()).map_err(io("binding"))?;
        socket.connect(&remote.into()).map_err(io("connecting"))?;
        let local = socket
            .local_addr()
            .map_err(io("asking for the address"))?
            .as_socket()
            .unwrap_or(local);
        Ok(DatagramDevice {
            socket,
            local,
            remote,
        })
    }

    /// Where it is bound.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

fn describe(local: SocketAddr, remote: SocketAddr) -> String {
    format!("frames in UDP from {local} to {remote}")
}

impl FrameDevice for DatagramDevice {
    fn describe(&self) -> String {
        describe(self.local, self.remote)
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.socket.send(frame) {
            // The other end is not there (yet, or any more): the cable has no plug in it.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn flush(&mut self) {}

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.socket.read(buffer) {
                Ok(len) => return Ok(Some(len)),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted => {}
                    _ => return Err(e),
                },
            }
        }
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        wait_for(&self.socket, to_send, timeout)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }
}
