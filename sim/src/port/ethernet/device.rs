//! What carries frames.

use std::io;
use std::time::Duration;

/// Carries Ethernet frames, without FCS, between a port and its neighbours.
pub trait FrameDevice {
    /// What it is and where, for messages.
    fn describe(&self) -> String;

    /// Sends a frame of at least 60 bytes, by the next [`FrameDevice::flush`] at the latest.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room for it now; it is offered again.
    /// After any other error it is lost.
    fn send(&mut self, frame: &[u8]) -> io::Result<()>;

    /// No more is to be sent for the moment: what was given is on its way now.
    fn flush(&mut self);

    /// Takes a frame, if there is one, and gives its length. One longer than `buffer` is cut, and its
    /// length is what it was.
    ///
    /// # Errors
    ///
    /// If the device is broken.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Sleeps until there is something to receive, or room to send if `to_send`; at most `timeout`.
    ///
    /// # Errors
    ///
    /// If the device is broken.
    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()>;

    /// What becomes readable when there is something to receive, for who sleeps without the device.
    ///
    /// # Errors
    ///
    /// If the operating system has no descriptor left.
    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd>;

    /// Before such a sleep: false if there is something to receive that the descriptor does not show.
    #[cfg(target_os = "linux")]
    fn arm(&mut self) -> bool {
        true
    }
}

impl<D: FrameDevice + ?Sized> FrameDevice for Box<D> {
    fn describe(&self) -> String {
        (**self).describe()
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        (**self).send(frame)
    }

    fn flush(&mut self) {
        (**self).flush();
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        (**self).receive(buffer)
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        (**self).wait(to_send, timeout)
    }

    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd> {
        (**self).descriptor()
    }

    #[cfg(target_os = "linux")]
    fn arm(&mut self) -> bool {
        (**self).arm()
    }
}

/// Why a device does not open.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no such interface.
    #[error("interface {name}: there is none; there are {there}")]
    NoInterface {
        /// Name asked for.
        name: String,
        /// Names of those there are.
        there: String,
    },
    /// The interface is down.
    #[error("interface {name} is down")]
    Down {
        /// Its name.
        name: String,
    },
    /// The process may not.
    #[error("{device}: raw sockets are not permitted: CAP_NET_RAW is needed")]
    NotPermitted {
        /// The device.
        device: String,
    },
    /// Anything else.
    #[error("{device}: {what}: {source}")]
    Io {
        /// The device.
        device: String,
        /// What was being done.
        what: &'static str,
        /// The operating system's word.
        source: io::Error,
    },
}

/// Sleeps until `socket` has something to receive, or room to send if `to_send`; at most `timeout`.
#[cfg(target_os = "linux")]
pub(in crate::port) fn wait_for(
    socket: &impl std::os::fd::AsFd,
    to_send: bool,
    timeout: Duration,
) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut interest = PollFlags::IN;
    if to_send {
        interest |= PollFlags::OUT;
    }
    let timeout = Timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(socket, interest)], Some(&timeout)) {
        // A signal ends the sleep early, and the caller looks again in any case.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
