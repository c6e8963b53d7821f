//! Recovery from loss: from where a requester sends again, and what a responder still knows of a
//! message that lost a packet.
//!
//! Positions are packet positions counted from the first packet of the connection.

mod go_back_0;
mod go_back_n;

use std::fmt;

/// How a card recovers from a lost packet.
pub trait Recovery: fmt::Debug + Send + Sync {
    /// Its name in scenario files.
    fn name(&self) -> &'static str;

    /// From where things go on when `lost` is missing and belongs to the message that begins at `message`:
    /// what the requester sends next, and what the responder expects next.
    fn resume(&self, lost: u64, message: u64) -> u64;

    /// True if the responder, in the middle of a message, starts over when that message's first packet
    /// comes again.
    fn restarts(&self) -> bool;
}

/// Go-back-N: the requester resumes with the missing packet.
pub static GO_BACK_N: &dyn Recovery = &go_back_n::GoBackN;
/// Go-back-0: the requester resumes with the first packet of the message.
pub static GO_BACK_0: &dyn Recovery = &go_back_0::GoBack0;

/// All there are.
pub static ALL: [&dyn Recovery; 2] = [&go_back_n::GoBackN, &go_back_0::GoBack0];
