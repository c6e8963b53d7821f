//! Someone who sees every frame of a port.

use crate::time::Time;

/// Which way a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// The port sent it.
    Sent,
    /// The port received it.
    Received,
}

/// Is shown every frame that a port sends or receives.
///
/// On Ethernet these are the frames, whatever they carry. A UDP socket neither shows nor takes the
/// headers in front of a datagram, so they are put together again: what is known of them as it was, the
/// rest as the other end of a plain socket writes it, the sums right, the Ethernet addresses those of the
/// loopback interface.
pub trait Tap: Send {
    /// `frame` is an Ethernet frame without FCS; `time` is the port's clock.
    fn frame(&mut self, time: Time, direction: Direction, frame: &[u8]);
}
