//! The software RNIC: a state machine without I/O.
//!
//! | file | what |
//! |---|---|
//! | [`engine`](Card) | the card: packets in, timers |
//! | `sending` | packets out: which queue pair has the next turn |
//! | `control`, `groups` | making and changing queue pairs, completion queues, regions; multicast groups |
//! | [`qp`] | a queue pair: requester, completer, responder |
//! | [`queue`] | the rings between a program and its card |
//! | [`work`], [`program`] | work requests and completions, and the handles a program has |
//! | [`recovery`] | go-back-N and go-back-0 |
//! | [`congestion`] | how fast a queue pair sends: DCQCN; marks and CNPs |
//! | [`companion`](Companion) | who looks after queue pair 1 whatever programs do |
//! | [`config`] | what a card is like |
//! | [`profile`] | how a spec-exact card and Linux' driver differ |
//! | [`mod@env`] | what a card asks of its driver |
//! | [`counters`], [`recent`] | what it counts, and what it remembers of each queue pair |
//! | [`explain`] | why a completion failed |
//! | [`codes`] | encoded times and credits |
//!
//! A work request walks through it like this: the program writes it into a ring
//! ([`QueuePair::post_send`]) and rings the [doorbell](Card::doorbell); the driver pulls
//! [packets](Card::next_packet); the peer's card [receives](Card::receive) them, writes memory and
//! answers; the answer retires the request, and the program [polls](CompletionQueue::poll) its
//! completion.
//!
//! The driver keeps one promise: after any call it asks [`Card::pending`] and [`Card::next_timeout`]
//! again.

pub mod codes;
mod companion;
pub mod config;
pub mod congestion;
mod control;
pub mod counters;
mod engine;
pub mod env;
pub mod explain;
mod groups;
pub mod profile;
pub mod program;
pub mod qp;
pub mod queue;
pub mod recent;
pub mod recovery;
mod sending;
pub mod work;

pub use companion::Companion;
pub use config::{CardConfig, Timing};
pub use congestion::{CongestionControl, CongestionState, Dcqcn, Notification};
pub use control::{CreateError, MAX_CQE, MAX_QP, MAX_SGE, MAX_WR};
pub use counters::{Counters, NakCounts, RefusalCounts};
pub use engine::Card;
pub use env::{Deed, Env, PriorityMask, Refusal};
pub use explain::{Cause, Failure};
pub use groups::MAX_GROUPS;
pub use profile::Profile;
pub use program::{CompletionQueue, QueuePair, SharedReceiveQueue};
pub use qp::attributes::{
    AddressVector, ModifyError, Mtu, Peer, QpAttributes, QpInit, QpType, Reliability,
};
pub use qp::{Arrived, MAX_RD_ATOMIC, State};
pub use recent::{Rare, Recent};
pub use work::{
    AddressHandle, Completion, CompletionKind, CqId, Datagram, MAX_INLINE, MAX_MESSAGE_LEN,
    PostError, RecvRequest, Remote, SendRequest, Sge, SrqId, Status, Work,
};

use crate::wire::QpNumber;

/// Something a program did not ask for (`ibv_async_event`, 11.6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// A completion queue ran over.
    CqError(CqId),
    /// A queue pair went into error without a request to blame.
    QpFatal(QpNumber),
    /// A peer's request had a key, range or rights that do not allow it.
    QpAccessError(QpNumber),
    /// A peer's request was invalid.
    QpRequestError(QpNumber),
    /// The first packet arrived while the queue pair was ready to receive.
    CommunicationEstablished(QpNumber),
    /// Nothing of the send queue is under way any more.
    SqDrained(QpNumber),
    /// A queue pair with a shared receive queue is in error and takes nothing from it any more.
    LastWqeReached(QpNumber),
    /// The device is broken; nothing goes in or out any more (`IBV_EVENT_DEVICE_FATAL`).
    DeviceFatal,
    /// Fewer requests than its limit wait in a shared receive queue; the limit is zero from here on.
    SrqLimitReached(SrqId),
}

/// Which completion a program wants to be told of (`ibv_req_notify_cq`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// The next one.
    Next,
    /// The next one that the peer has asked for by the solicited event bit, or that is an error.
    Solicited,
}

/// The card's side of a completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    ring: queue::Writer<Completion>,
    overrun: bool,
    armed: Option<Notify>,
    /// Queue pairs that complete into it.
    pub(crate) users: u32,
    /// The one that does is queue pair 1.
    pub(crate) special: bool,
}

impl Cq {
    /// Adds a completion; false if there is no room or has not been once.
    fn push(&mut self, c: Completion) -> bool {
        !self.overrun && self.ring.push(c).is_ok()
    }

    /// After a completion was added: true if the program is to be told, which disarms it.
    fn notifies(&mut self, solicited: bool) -> bool {
        let due = match self.armed {
            Some(Notify::Next) => true,
            Some(Notify::Solicited) => solicited,
            None => false,
        };
        if due {
            self.armed = None;
        }
        due
    }

    /// Marks it as overrun; true the first time.
    fn overrun(&mut self) -> bool {
        !std::mem::replace(&mut self.overrun, true)
    }
}
