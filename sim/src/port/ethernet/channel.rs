//! Frames between two ports of one process.

use super::FrameDevice;
use crossbeam_channel::{Receiver, Select, Sender, TryRecvError, bounded};
use std::io;
use std::time::Duration;

/// One end of a cable inside the process: what one end sends, the other receives.
#[derive(Debug)]
pub struct ChannelDevice {
    to_peer: Sender<Vec<u8>>,
    from_peer: Receiver<Vec<u8>>,
    /// Buffers go back the way they came.
    empty_to_peer: Sender<Vec<u8>>,
    empty_from_peer: Receiver<Vec<u8>>,
    /// The other end is gone, and everything it sent is taken.
    gone: bool,
    /// Who sleeps without this end, and without the other.
    #[cfg(target_os = "linux")]
    sleepers: [std::sync::Arc<super::sleeper::Sleeper>; 2],
}

impl ChannelDevice {
    /// Both ends of a cable that holds `depth` frames each way, at least 1.
    pub fn pair(depth: usize) -> (ChannelDevice, ChannelDevice) {
        let depth = depth.max(1);
        let (there, at_there) = bounded(depth);
        let (back, at_back) = bounded(depth);
        let (empty_there, empty_at_there) = bounded(depth);
        let (empty_back, empty_at_back) = bounded(depth);
        #[cfg(target_os = "linux")]
        let sleepers: [std::sync::Arc<super::sleeper::Sleeper>; 2] = Default::default();
        (
            ChannelDevice {
                to_peer: there,
                from_peer: at_back,
                empty_to_peer: empty_back,
                empty_from_peer: empty_at_there,
                gone: false,
                #[cfg(target_os = "linux")]
                sleepers: sleepers.clone(),
            },
            ChannelDevice {
                to_peer: back,
                from_peer: at_there,
                empty_to_peer: empty_there,
                empty_from_peer: empty_at_back,
                gone: false,
                #[cfg(target_os = "linux")]
                sleepers: {
                    let [here, there] = sleepers;
                    [there, here]
                },
            },
        )
    }
}

impl FrameDevice for ChannelDevice {
    fn describe(&self) -> String {
        "channel".to_string()
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.to_peer.is_full() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut bytes = self.empty_from_peer.try_recv().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        // This end alone fills the channel, so there is room; to an end that is gone a frame is lost.
        let _ = self.to_peer.try_send(bytes);
        #[cfg(target_os = "linux")]
        self.sleepers[1].wake();
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let bytes = match self.from_peer.try_recv() {
            Ok(bytes) => bytes,
            Err(e) => {
                self.gone = e == TryRecvError::Disconnected;
                return Ok(None);
            }
        };
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        let whole = bytes.len();
        let _ = self.empty_to_peer.try_send(bytes);
        Ok(Some(whole))
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        if self.gone {
            // Its channels would be ready for ever.
            std::thread::sleep(timeout);
            return Ok(());
        }
        let mut select = Select::new();
        select.recv(&self.from_peer);
        if to_send {
            select.send(&self.to_peer);
        }
        let _ = select.ready_timeout(timeout);
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd> {
        self.sleepers[0].descriptor()
    }

    #[cfg(target_os = "linux")]
    fn arm(&mut self) -> bool {
        self.sleepers[0].arm(|| self.from_peer.is_empty())
    }
}
