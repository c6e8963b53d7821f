//! Congestion control: how fast a queue pair sends, and who tells it to slow down.
//!
//! | file | what |
//! |---|---|
//! | [`fixed`] | a rate that never changes |
//! | [`dcqcn`] | DCQCN's reaction point: the paper's, and as ConnectX cards have it |
//! | `pacing` | a controller's rate becomes the time of the next packet |
//! | [`notification`] | the notification point: marked packets become CNPs |
//!
//! An algorithm is one file with one [`Controller`] in it, and its parameters are a variant of
//! [`CongestionControl`]. A card has one controller for each queue pair: it governs all data the queue
//! pair sends, its requests and its READ responses, for a CNP names the queue pair and nothing more.
//! Acknowledgements are not paced.

pub mod dcqcn;
pub mod fixed;
pub mod notification;
mod pacing;

#[cfg(test)]
mod tests;

pub use dcqcn::Dcqcn;
pub use fixed::Fixed;
pub(crate) use notification::Notifier;
pub use notification::{EarlyMark, Notification, Scope};
pub(crate) use pacing::Limiter;

use crate::rate::Rate;
use crate::time::{Span, Time};
use std::fmt;

/// Which congestion control the queue pairs of a card have, with its parameters.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum CongestionControl {
    /// None: a queue pair sends whatever the port takes.
    #[default]
    None,
    /// A rate, a window, or both, that never change.
    Fixed(Fixed),
    /// DCQCN.
    Dcqcn(Dcqcn),
}

impl CongestionControl {
    /// Its name in scenario files.
    pub const fn name(&self) -> &'static str {
        match self {
            CongestionControl::None => "none",
            CongestionControl::Fixed(_) => "fixed",
            CongestionControl::Dcqcn(_) => "dcqcn",
        }
    }

    /// True if it hears of congestion by marks, so that data is sent as ECN-capable.
    pub const fn heeds_marks(&self) -> bool {
        matches!(self, CongestionControl::Dcqcn(_))
    }

    /// Finds what is wrong with the parameters for a port of rate `line`. A card that is given them all
    /// the same uses the nearest that make sense.
    pub fn check(&self, line: Rate) -> Result<(), ParameterError> {
        match self {
            CongestionControl::None => Ok(()),
            CongestionControl::Fixed(fixed) => fixed.check(line),
            CongestionControl::Dcqcn(dcqcn) => dcqcn.check(line),
        }
    }

    /// The controller of a new queue pair; none if nothing is controlled.
    pub fn controller(&self, line: Rate) -> Option<Box<dyn Controller>> {
        match *self {
            CongestionControl::None => None,
            CongestionControl::Fixed(fixed) => Some(Box::new(fixed::Constant::new(fixed, line))),
            CongestionControl::Dcqcn(dcqcn) => {
                Some(Box::new(dcqcn::ReactionPoint::new(dcqcn, line)))
            }
        }
    }
}

/// A parameter of congestion control that cannot be.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{parameter} is {value}; it must be {limit}")]
pub struct ParameterError {
    /// The parameter.
    pub parameter: &'static str,
    /// The value given.
    pub value: String,
    /// What it must be.
    pub limit: String,
}

/// Fails unless `parameter` is no more than the port's rate.
fn within_line(parameter: &'static str, value: Rate, line: Rate) -> Result<(), ParameterError> {
    if value <= line {
        return Ok(());
    }
    Err(ParameterError {
        parameter,
        value: value.to_string(),
        limit: format!("no more than the port's {line}"),
    })
}

/// Congestion control of one queue pair.
///
/// Time goes on between calls, never back. What happens at set times is worked out when the controller is
/// next asked, as if it had happened then; what is due at an instant comes before what is told at it.
/// Results must not depend on the platform: integers, or floating point with the four operations alone.
pub trait Controller: fmt::Debug + Send + Sync {
    /// Bits per second on the wire, preamble and gap included, that the queue pair may send at `now`; `None`
    /// if it may send as fast as the port.
    fn rate(&mut self, now: Time) -> Option<Rate>;

    /// When the rate will rise without anything being told; [`Time::NEVER`] if it will not. A queue pair that
    /// waits for its turn looks again then.
    fn rises_at(&self) -> Time {
        Time::NEVER
    }

    /// Bytes of requests that may be without acknowledgement, each packet counted as one path MTU. One packet
    /// always may.
    fn window(&self) -> Option<u64> {
        None
    }

    /// True if the window may become smaller than what is in flight.
    fn window_shrinks(&self) -> bool {
        false
    }

    /// A packet that takes `bytes` on the wire, preamble and gap included, goes to the port.
    fn sent(&mut self, now: Time, bytes: u32) {
        let _ = (now, bytes);
    }

    /// A CNP has come. False if the algorithm does not heed it.
    fn notified(&mut self, now: Time) -> bool {
        let _ = now;
        false
    }

    /// Packets were acknowledged. True if the rate may have risen for that, so that who waits for its turn is to
    /// look again.
    fn acknowledged(&mut self, now: Time, acked: &Acked) -> bool {
        let _ = (now, acked);
        false
    }

    /// A packet was lost.
    fn lost(&mut self, now: Time, loss: Loss) {
        let _ = (now, loss);
    }

    /// What it has come to at `now`.
    fn state(&self, now: Time) -> CongestionState;
}

/// What an acknowledgement, or READ data, brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acked {
    /// Packets that are answered now and were not before. A READ counts its responses.
    pub packets: u64,
    /// From the sending of a packet that asked for an acknowledgement to its answer. One packet at a time
    /// is measured, and never one that was sent twice.
    pub rtt: Option<Span>,
}

/// How a loss was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// By a NAK of the peer, or a READ response that was missing.
    Nak,
    /// By the transport timer.
    Timeout,
}

/// A limit on what is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Bytes, at the rate of the port.
    pub bytes: u64,
    /// It shrinks and grows with the rate.
    pub follows_rate: bool,
}

impl Window {
    /// Bytes at `rate` on a port of rate `line`.
    fn at(&self, rate: Rate, line: Rate) -> u64 {
        if !self.follows_rate {
            return self.bytes;
        }
        let share = u128::from(self.bytes) * u128::from(rate.bps()) / u128::from(line.bps());
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// What congestion control of a queue pair has come to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CongestionState {
    /// The algorithm.
    pub name: &'static str,
    /// Bits per second on the wire; the port's rate if the queue pair is not limited.
    pub rate: Rate,
    /// The rate it makes for, where the algorithm has one.
    pub target: Option<Rate>,
    /// DCQCN's estimate of congestion, 0 to 1, once there was any.
    pub alpha: Option<f64>,
    /// Bytes that may be in flight, if that is limited.
    pub window: Option<u64>,
    /// Steps up by the clock since the last step down.
    pub timer_stages: u32,
    /// Steps up by bytes sent since the last step down.
    pub byte_stages: u32,
    /// Steps down so far.
    pub reductions: u64,
}
