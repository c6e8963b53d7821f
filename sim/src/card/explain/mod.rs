//! Why a completion failed: every failure explains itself, in one line and as data.
//!
//! Each card explains its own side. The requester knows how often it tried and what it was told, the
//! responder knows why it refused; what was lost between them only the network knows
//! ([`fabric::explain`](crate::fabric::explain) puts the three together). Nothing of this is touched
//! while all is well: it is put together from the [rare events](super::Recent) when a request fails.
//!
//! | file | what |
//! |---|---|
//! | this one | a failure and its line |
//! | `cause` | reasons, with their numbers |
//! | `log` | the failures that the program has not seen |
//!
//! What a queue pair knows when a request fails is gathered in `qp/trouble.rs`.

mod cause;
mod log;
#[cfg(test)]
mod tests;

pub use cause::{Cause, Ended, InvalidRequest, WrongResponse};
pub(crate) use log::FailureLog;
pub use log::MAX_FAILURES;

use super::qp::attributes::QpType;
use super::work::{Status, Work};
use crate::time::{Span, Time};
use crate::wire::{Gid, Opcode, Psn, QpNumber};
use std::fmt;

/// A request that failed, or a peer's request that was refused, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// When.
    pub at: Time,
    /// Transport service.
    pub service: QpType,
    /// The queue pair that failed, and its address.
    pub own: (Gid, QpNumber),
    /// Its peer; for datagrams that of the request.
    pub peer: Option<(Gid, QpNumber)>,
    /// What failed.
    pub subject: Subject,
    /// How it completed; `None` if no request of this side did, and an event alone tells of it.
    pub status: Option<Status>,
    /// Why.
    pub cause: Cause,
    /// What was tried since an answer last got through, oldest first.
    pub tries: Vec<Try>,
    /// There were more, too many to be remembered.
    pub earlier_tries: bool,
    /// Counters of the queue pair that moved from the first of the tries on, by name, and by how much. The
    /// packets that had no answer then are among those sent, and the packet that ended it among those
    /// received.
    pub moved: Vec<(&'static str, u64)>,
    /// What completed as flushed because of it.
    pub flushed: Flushed,
}

/// What a failure is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A send request.
    Send(Sent),
    /// A receive request, and the packet that came for it.
    Receive {
        /// Its number on the queue pair, from 1; `None` if it came from a shared queue.
        number: Option<u64>,
        /// Its `wr_id`.
        wr_id: u64,
        /// The packet that could not be taken.
        arrived: Arrived,
    },
    /// A peer's request that took no receive request.
    Arrived(Arrived),
    /// No request: the queue pair as a whole.
    QueuePair,
}

/// A send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Its number on the queue pair, from 1.
    pub number: u64,
    /// Its `wr_id`.
    pub wr_id: u64,
    /// The operation.
    pub work: Work,
    /// Bytes.
    pub len: u64,
    /// Its first and last PSN, those of a READ's answer included; `None` if it was not begun, or has no
    /// packets.
    pub psns: Option<(Psn, Psn)>,
}

/// A request packet that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// What it was.
    pub opcode: Opcode,
    /// Its PSN.
    pub psn: Psn,
}

/// Something that a requester did, or was told, about a request without answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Try {
    /// When.
    pub at: Time,
    /// The PSN that it was about.
    pub psn: Psn,
    /// What.
    pub step: Step,
}

/// What happened in a [`Try`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The transport timer ran out so long after the first transmission, or after the last answer.
    Timeout(Span),
    /// A NAK for a gap arrived.
    SequenceNak,
    /// A later answer showed that this one is missing.
    ImpliedNak,
    /// The receiver was not ready and asked for a wait.
    ReceiverNotReady(Span),
    /// It was refused for good.
    Refused,
    /// The requester went back to send again from this PSN on.
    Resend,
}

/// Requests that completed as flushed, and were not looked at one by one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flushed {
    /// Send requests.
    pub sends: Batch,
    /// Receive requests.
    pub receives: Batch,
}

/// Requests in a row.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Batch {
    /// How many.
    pub count: u64,
    /// The first one's `wr_id`; meaningless if there is none.
    pub first: u64,
    /// The last one's.
    pub last: u64,
}

impl Failure {
    /// When the first of its timers began to run: as its packet went out for the first time, or as the
    /// last answer came. `None` if no timer ran out first.
    pub fn began(&self) -> Option<Time> {
        match self.tries.first() {
            Some(Try {
                at,
                step: Step::Timeout(after),
                ..
            }) if !self.earlier_tries => {
                Some(Time::from_ps(at.as_ps().saturating_sub(after.as_ps())))
            }
            _ => None,
        }
    }

    /// The PSN that it is about, as the cause or the packet names it.
    pub fn psn(&self) -> Option<Psn> {
        match (self.cause, self.subject) {
            (
                Cause::RetriesExceeded { psn, .. }
                | Cause::RnrRetriesExceeded { psn, .. }
                | Cause::Refused { psn, .. }
                | Cause::BadResponse { psn, .. },
                _,
            ) => Some(psn),
            (_, Subject::Arrived(arrived) | Subject::Receive { arrived, .. }) => Some(arrived.psn),
            _ => None,
        }
    }
}

impl Batch {
    pub(super) fn add(&mut self, wr_id: u64) {
        if self.count == 0 {
            self.first = wr_id;
        }
        self.last = wr_id;
        self.count += 1;
    }

    fn append(&mut self, later: Batch) {
        match (self.count, later.count) {
            (_, 0) => {}
            (0, _) => *self = later,
            _ => {
                self.count += later.count;
                self.last = later.last;
            }
        }
    }
}

impl Flushed {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.sends.count == 0 && self.receives.count == 0
    }

    /// Adds those that came later.
    pub(super) fn append(&mut self, later: Flushed) {
        self.sends.append(later.sends);
        self.receives.append(later.receives);
    }
}

/// One line: what failed, and why.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gid, qp) = self.own;
        match self.subject {
            Subject::Send(sent) => {
                let Sent {
                    number,
                    wr_id,
                    work,
                    ..
                } = sent;
                write!(
                    f,
                    "{} #{number} (wr_id {wr_id}) of qp {qp} ({gid})",
                    work.name()
                )?;
                if let Some((gid, qp)) = self.peer {
                    write!(f, " to qp {qp} ({gid})")?;
                }
            }
            Subject::Receive {
                number,
                wr_id,
                arrived,
            } => {
                f.write_str("receive")?;
                if let Some(number) = number {
                    write!(f, " #{number}")?;
                }
                write!(f, " (wr_id {wr_id}) of qp {qp} ({gid}), for {arrived}")?;
                if let Some((gid, qp)) = self.peer {
                    write!(f, " from qp {qp} ({gid})")?;
                }
            }
            Subject::Arrived(arrived) => {
                write!(f, "{arrived}")?;
                if let Some((gid, qp)) = self.peer {
                    write!(f, " from qp {qp} ({gid})")?;
                }
                write!(f, " at qp {qp} ({gid})")?;
            }
            Subject::QueuePair => write!(f, "qp {qp} ({gid})")?,
        }
        write!(f, ": {}", self.cause)?;
        if !self.flushed.is_empty() {
            write!(f, "; {}", self.flushed)?;
        }
        Ok(())
    }
}

impl fmt::Display for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with PSN {}", self.opcode, self.psn)
    }
}

/// `flushed: 3 sends (wr_id 7 to 9), 16 receives (wr_id 0 to 15)`
impl fmt::Display for Flushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flushed: ")?;
        let mut any = false;
        for (batch, one, many) in [
            (self.sends, "send", "sends"),
            (self.receives, "receive", "receives"),
        ] {
            let Batch { count, first, last } = batch;
            let comma = if any { ", " } else { "" };
            any |= count > 0;
            match count {
                0 => {}
                1 => write!(f, "{comma}1 {one} (wr_id {first})")?,
                n => write!(f, "{comma}{n} {many} (wr_id {first} to {last})")?,
            }
        }
        Ok(())
    }
}

/// `timeout after 67.108864ms, PSN 41`
impl fmt::Display for Try {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let psn = self.psn;
        match self.step {
            Step::Timeout(after) => write!(f, "timeout after {after}, PSN {psn}"),
            Step::SequenceNak => write!(f, "sequence NAK of PSN {psn}"),
            Step::ImpliedNak => write!(f, "answer with PSN {psn} missing"),
            Step::ReceiverNotReady(wait) => write!(f, "RNR NAK of PSN {psn}, wait {wait}"),
            Step::Refused => write!(f, "NAK of PSN {psn}"),
            Step::Resend => write!(f, "sent again from PSN {psn} on"),
        }
    }
}

impl Step {
    /// A name for reports: `timeout`.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Timeout(_) => "timeout",
            Step::SequenceNak => "sequence-nak",
            Step::ImpliedNak => "implied-nak",
            Step::ReceiverNotReady(_) => "rnr-nak",
            Step::Refused => "nak",
            Step::Resend => "resend",
        }
    }

    /// The timer that ran out, or the wait that was asked for.
    pub const fn span(self) -> Option<Span> {
        match self {
            Step::Timeout(span) | Step::ReceiverNotReady(span) => Some(span),
            _ => None,
        }
    }
}
