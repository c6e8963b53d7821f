//! Frames on a network interface, by a raw socket.

use super::device::wait_for;
use super::{DeviceError, FrameDevice};
use pnet::datalink::{self, Channel, DataLinkReceiver, DataLinkSender};
use socket2::{Domain, Type};
use std::fmt;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::time::Duration;

/// A network interface of this machine, a veth or a real one. The process needs `CAP_NET_RAW`.
///
/// The card needs addresses of its own, Ethernet and IP, which the kernel does not have: it would answer
/// too. The kernel takes VLAN tags off what it shows to a raw socket, so a card on a VLAN opens the
/// VLAN's own interface (`eth0.5`). PFC frames cross a veth; a real card's MAC keeps them to itself.
pub struct RawDevice {
    name: String,
    sender: Box<dyn DataLinkSender>,
    receiver: Box<dyn DataLinkReceiver>,
    /// The socket that both have, to wait on.
    socket: socket2::Socket,
}

/// Buffers for a frame: a path MTU of 4096 needs more than pnet's default of 4096 bytes.
const BUFFER: usize = 16 << 10;

impl RawDevice {
    /// Opens the interface called `name`.
    ///
    /// # Errors
    ///
    /// If there is none, it is down, or the process may not.
    pub fn open(name: &str) -> Result<RawDevice, DeviceError> {
        let interfaces = datalink::interfaces();
        let Some(interface) = interfaces.iter().find(|i| i.name == name) else {
            let names: Vec<_> = interfaces.iter().map(|i| i.name.as_str()).collect();
            return Err(DeviceError::NoInterface {
                name: name.to_string(),
                there: names.join(", "),
            });
        };
        if !interface.is_up() {
            return Err(DeviceError::Down {
                name: name.to_string(),
            });
        }
        let io = |what| {
            move |source: io::Error| {
                let device = format!("interface {name}");
                match source.kind() {
                    io::ErrorKind::PermissionDenied => DeviceError::NotPermitted { device },
                    _ => DeviceError::Io {
                        device,
                        what,
                        source,
                    },
                }
            }
        };
        // With protocol 0 it receives nothing until pnet binds it to the interface.
        let socket = socket2::Socket::new(Domain::PACKET, Type::RAW, None)
            .map_err(io("opening a raw socket"))?;
        // The kernel cuts the size to net.core.rmem_max.
        socket
            .set_recv_buffer_size(4 << 20)
            .map_err(io("setting SO_RCVBUF"))?;
        let shared = socket.try_clone().map_err(io("duplicating the socket"))?;
        let config = datalink::Config {
            write_buffer_size: BUFFER,
            read_buffer_size: BUFFER,
            read_timeout: Some(Duration::ZERO),
            write_timeout: Some(Duration::ZERO),
            promiscuous: true,
            socket_fd: Some(shared.into_raw_fd()),
            ..datalink::Config::default()
        };
        match datalink::channel(interface, config).map_err(io("binding"))? {
            Channel::Ethernet(sender, receiver) => Ok(RawDevice {
                name: name.to_string(),
                sender,
                receiver,
                socket,
            }),
            _ => Err(io("binding")(io::ErrorKind::Unsupported.into())),
        }
    }
}

/// pnet's word for a socket that is not ready is a timeout.
fn timed_out(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl FrameDevice for RawDevice {
    fn describe(&self) -> String {
        format!("interface {}", self.name)
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.sender.send_to(frame, None) {
            Some(Err(e)) if timed_out(&e) => Err(io::ErrorKind::WouldBlock.into()),
            Some(result) => result,
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn flush(&mut self) {}

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.receiver.next() {
            Ok(frame) => {
                let len = frame.len().min(buffer.len());
                buffer[..len].copy_from_slice(&frame[..len]);
                Ok(Some(frame.len()))
            }
            Err(e) if timed_out(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        wait_for(&self.socket, to_send, timeout)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }
}

impl fmt::Debug for RawDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawDevice({})", self.name)
    }
}
