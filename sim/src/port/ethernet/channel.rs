//! Frames between two ports of one process.

use super::FrameDevice;
use super::sleeper::Sleeper;
use crate::port::ring::{Reader, Writer, ring};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// One end of a cable inside the process: what one end sends, the other receives.
pub struct ChannelDevice {
    to_peer: Writer,
    from_peer: Reader,
    /// Something was sent, or taken, since the other end was last told.
    sent: bool,
    taken: bool,
    /// Who sleeps at this end, and at the other.
    here: Arc<Sleeper>,
    there: Arc<Sleeper>,
}

impl ChannelDevice {
    /// Both ends of a cable that holds `depth` frames each way, at least 1.
    pub fn pair(depth: usize) -> (ChannelDevice, ChannelDevice) {
        let (there, at_there) = ring(depth);
        let (back, at_back) = ring(depth);
        let sleepers = [Arc::new(Sleeper::default()), Arc::default()];
        let end = |to_peer, from_peer, here: usize| ChannelDevice {
            to_peer,
            from_peer,
            sent: false,
            taken: false,
            here: sleepers[here].clone(),
            there: sleepers[1 - here].clone(),
        };
        (end(there, at_back, 0), end(back, at_there, 1))
    }
}

impl ChannelDevice {
    /// Lets the other end know of the room that there is.
    #[inline]
    fn tell_of_room(&mut self) {
        if std::mem::take(&mut self.taken) {
            self.from_peer.show();
            self.there.wake_for_room();
        }
    }
}

impl Drop for ChannelDevice {
    fn drop(&mut self) {
        // What was sent arrives.
        self.flush();
    }
}

impl FrameDevice for ChannelDevice {
    fn describe(&self) -> String {
        "channel".to_string()
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if !self.to_peer.push(frame) {
            self.flush();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.sent = true;
        Ok(())
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.sent) {
            self.to_peer.show();
            self.there.wake();
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let received = self.from_peer.pop(|frame| {
            let len = frame.len().min(buffer.len());
            buffer[..len].copy_from_slice(&frame[..len]);
            frame.len()
        });
        match received {
            Some(_) => self.taken = true,
            None => self.tell_of_room(),
        }
        Ok(received)
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        self.tell_of_room();
        let (to_peer, from_peer) = (&mut self.to_peer, &mut self.from_peer);
        self.here.wait(to_send, timeout, || {
            from_peer.is_empty() && !(to_send && to_peer.has_room())
        });
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd> {
        self.here.descriptor()
    }

    #[cfg(target_os = "linux")]
    fn arm(&mut self) -> bool {
        let from_peer = &mut self.from_peer;
        self.here.arm(|| from_peer.is_empty())
    }
}

impl fmt::Debug for ChannelDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}
