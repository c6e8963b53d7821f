//! Frames between two ports of one process.

use super::FrameDevice;
use crossbeam_channel::{Receiver, Select, Sender, TryRecvError, TrySendError, bounded};
use std::io;
use std::time::Duration;

/// The most frames that go through the channel at once. To hand something to another processor costs more
/// than a frame does.
const BATCH: usize = 8;

/// Frames behind each other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
}

/// One end of a cable inside the process: what one end sends, the other receives.
#[derive(Debug)]
pub struct ChannelDevice {
    to_peer: Sender<Batch>,
    from_peer: Receiver<Batch>,
    /// Batches go back the way they came when their frames are taken: that is the room there is again.
    taken_to_peer: Sender<Batch>,
    taken_from_peer: Receiver<Batch>,
    /// Frames that the other end has room for.
    room: usize,
    /// What is sent next, and batches to be filled after that.
    filling: Batch,
    spare: Vec<Batch>,
    /// What is being taken, and how many of its frames are.
    taking: Batch,
    taken: usize,
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
        // A batch has a frame at least, so there are no more batches than frames.
        let (there, at_there) = bounded(depth);
        let (back, at_back) = bounded(depth);
        let (taken_there, taken_at_there) = bounded(depth);
        let (taken_back, taken_at_back) = bounded(depth);
        #[cfg(target_os = "linux")]
        let sleepers: [std::sync::Arc<super::sleeper::Sleeper>; 2] = Default::default();
        let end =
            |to_peer, from_peer, taken_to_peer, taken_from_peer, _here: usize| ChannelDevice {
                to_peer,
                from_peer,
                taken_to_peer,
                taken_from_peer,
                room: depth,
                filling: Batch::default(),
                spare: Vec::new(),
                taking: Batch::default(),
                taken: 0,
                gone: false,
                #[cfg(target_os = "linux")]
                sleepers: [sleepers[_here].clone(), sleepers[1 - _here].clone()],
            };
        (
            end(there, at_back, taken_back, taken_at_there, 0),
            end(back, at_there, taken_there, taken_at_back, 1),
        )
    }

    /// Takes back what the other end is done with.
    fn reclaim(&mut self) {
        while let Ok(mut batch) = self.taken_from_peer.try_recv() {
            self.room += batch.ends.len();
            batch.bytes.clear();
            batch.ends.clear();
            self.spare.push(batch);
        }
    }

    /// Gives back a batch whose frames are all taken.
    fn give_back(&mut self) {
        if self.taken == self.taking.ends.len() && self.taken > 0 {
            self.taken = 0;
            // There is room for all batches that there are; an end that is gone needs none.
            let _ = self
                .taken_to_peer
                .try_send(std::mem::take(&mut self.taking));
        }
    }

    fn has_frame(&self) -> bool {
        self.taken < self.taking.ends.len() || !self.from_peer.is_empty()
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
        if self.room == 0 {
            self.reclaim();
        }
        if self.room == 0 {
            // If the other end is gone there is room again.
            self.flush();
        }
        if self.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.room -= 1;
        self.filling.bytes.extend_from_slice(frame);
        self.filling.ends.push(self.filling.bytes.len());
        if self.filling.ends.len() == BATCH {
            self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) {
        if self.filling.ends.is_empty() {
            return;
        }
        if self.spare.is_empty() {
            self.reclaim();
        }
        let next = self.spare.pop().unwrap_or_default();
        let batch = std::mem::replace(&mut self.filling, next);
        match self.to_peer.try_send(batch) {
            Ok(()) => {
                #[cfg(target_os = "linux")]
                self.sleepers[1].wake();
            }
            // To an end that is gone a frame is lost. Full it cannot be.
            Err(TrySendError::Disconnected(batch) | TrySendError::Full(batch)) => {
                self.room += batch.ends.len();
            }
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.taken == self.taking.ends.len() {
            self.taking = match self.from_peer.try_recv() {
                Ok(batch) => batch,
                Err(e) => {
                    self.gone = e == TryRecvError::Disconnected;
                    return Ok(None);
                }
            };
        }
        let begin = match self.taken {
            0 => 0,
            n => self.taking.ends[n - 1],
        };
        let frame = &self.taking.bytes[begin..self.taking.ends[self.taken]];
        let len = frame.len().min(buffer.len());
        buffer[..len].copy_from_slice(&frame[..len]);
        let whole = frame.len();
        self.taken += 1;
        self.give_back();
        Ok(Some(whole))
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        if self.gone {
            // Its channels would be ready for ever.
            std::thread::sleep(timeout);
            return Ok(());
        }
        self.reclaim();
        if self.has_frame() || to_send && self.room > 0 {
            return Ok(());
        }
        let mut select = Select::new();
        select.recv(&self.from_peer);
        if to_send {
            select.recv(&self.taken_from_peer);
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
        let empty = !self.has_frame();
        self.sleepers[0].arm(|| empty && self.from_peer.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(n: usize) -> Vec<u8> {
        vec![n as u8; 60 + n % 7]
    }

    fn next(end: &mut ChannelDevice) -> Option<Vec<u8>> {
        let mut buffer = [0; 100];
        let len = end.receive(&mut buffer).unwrap()?;
        Some(buffer[..len].to_vec())
    }

    #[test]
    fn a_channel_holds_as_many_frames_as_it_is_deep_and_keeps_their_order() {
        for depth in [1, 2, 7, 8, 9, 40] {
            let (mut a, mut b) = ChannelDevice::pair(depth);
            let (mut sent, mut got) = (0, 0);
            for round in 0..50 {
                while a.send(&frame(sent)).is_ok() {
                    sent += 1;
                }
                assert_eq!(sent - got, depth, "round {round}");
                // Room comes back by whole batches; after all are taken there is all of it.
                while let Some(bytes) = next(&mut b) {
                    assert_eq!(bytes, frame(got));
                    got += 1;
                }
                assert_eq!(got, sent);
            }
        }
    }

    #[test]
    fn a_frame_is_there_after_a_flush_and_what_was_sent_before_the_end_arrives() {
        for depth in [2, 4, 8, 9, 40] {
            let (mut a, mut b) = ChannelDevice::pair(depth);
            a.send(&frame(1)).unwrap();
            a.flush();
            assert_eq!(next(&mut b), Some(frame(1)));
            a.send(&frame(2)).unwrap();
            drop(a);
            assert_eq!(next(&mut b), Some(frame(2)));
            assert_eq!(next(&mut b), None);
            // To an end that is gone frames are lost; nobody is told to wait.
            for n in 0..100 {
                b.send(&frame(n)).unwrap();
            }
        }
    }

    #[test]
    fn a_frame_that_is_longer_than_the_buffer_is_cut() {
        let (mut a, mut b) = ChannelDevice::pair(4);
        a.send(&[7; 90]).unwrap();
        a.flush();
        let mut buffer = [0; 10];
        assert_eq!(b.receive(&mut buffer).unwrap(), Some(90));
        assert_eq!(buffer, [7; 10]);
        assert_eq!(next(&mut b), None);
    }

    #[test]
    fn a_sleeper_wakes_for_frames_and_for_room() {
        let (mut a, mut b) = ChannelDevice::pair(1);
        let long = Duration::from_secs(60);
        a.send(&frame(0)).unwrap();
        a.flush();
        std::thread::scope(|s| {
            s.spawn(|| {
                b.wait(false, long).unwrap();
                assert_eq!(next(&mut b), Some(frame(0)));
            });
            while a.send(&frame(1)).is_err() {
                a.wait(true, long).unwrap();
            }
        });
        a.flush();
        b.wait(false, long).unwrap();
        assert_eq!(next(&mut b), Some(frame(1)));
    }
}
