//! A queue pair: its state, and the four parts that do its work.
//!
//! * [`attributes`]: what is set when, as `ibv_modify_qp` checks it.
//! * `requester`: cuts work requests into packets, and goes back when it must.
//! * `completer`: takes responses, retires work requests.
//! * `responder`: takes requests, writes memory, decides what to answer.
//! * `responses`: the queue of answers and how they become packets.
//!
//! Inside, packets have positions: a `u64` that counts packets of one direction from the first of the
//! connection. A PSN is the low 24 bits of the position, offset by the first PSN; a PSN that arrives
//! becomes the position nearest to the one expected. So nothing in here ever wraps.

pub mod attributes;
mod completer;
mod requester;
mod responder;
mod responses;

use super::config::CardConfig;
use super::counters::Counters;
use super::recent::{Rare, Recent};
use super::work::{
    Completion, CompletionKind, CqId, RecvEntry, SendEntry, SharedState, Status, Work, WorkReader,
};
use super::{AsyncEvent, Cq};
use crate::memory::{Access, Memory};
use crate::time::Time;
use crate::wire::{Gid, Psn, QpNumber, RouteId};
use attributes::{Mtu, QpInit};
use requester::Requester;
use responder::Responder;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// READs and atomics a queue pair can have outstanding in either direction.
pub const MAX_RD_ATOMIC: u8 = 128;

/// The state of a queue pair (10.3.1, `ibv_qp_state`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// Made, or taken back: nothing is queued.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained, or draining: no new request is begun.
    Sqd,
    /// Send queue in error; unreliable services only.
    Sqe,
    /// In error: every request completes as flushed.
    Error,
}

impl State {
    /// All of them.
    pub const ALL: [State; 7] = [
        State::Reset,
        State::Init,
        State::Rtr,
        State::Rts,
        State::Sqd,
        State::Sqe,
        State::Error,
    ];

    pub(crate) fn from_u8(n: u8) -> State {
        State::ALL[usize::from(n).min(State::ALL.len() - 1)]
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Reset => "RESET",
            State::Init => "INIT",
            State::Rtr => "RTR",
            State::Rts => "RTS",
            State::Sqd => "SQD",
            State::Sqe => "SQE",
            State::Error => "ERROR",
        })
    }
}

/// What the parts of a queue pair reach of their card.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) config: CardConfig,
    pub(crate) memory: Memory,
    pub(crate) cqs: Vec<Cq>,
    pub(crate) counters: Counters,
    pub(crate) events: VecDeque<AsyncEvent>,
}

/// Where the packets of a connection go, worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) route: RouteId,
    /// Bytes beside BTH, extended headers, payload and pad.
    pub(crate) overhead: u16,
    pub(crate) own: Gid,
    pub(crate) peer: Gid,
    pub(crate) hop_limit: u8,
    pub(crate) priority: u8,
    pub(crate) response_priority: u8,
}

/// A queue pair of the card.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: QpNumber,
    pub(crate) state: State,
    pub(crate) init: QpInit,
    pub(crate) path: Option<Path>,
    pub(crate) dest_qp: QpNumber,
    pub(crate) mtu: Mtu,
    pub(crate) access: Access,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) recent: Recent,
    /// This queue pair's entries in the card's timer heap, the earliest last.
    pub(crate) armed: Vec<Time>,
    /// On the card's list of queue pairs with requests to send.
    pub(crate) listed_request: bool,
    /// On the card's list of queue pairs with responses to send.
    pub(crate) listed_response: bool,
    shared: Arc<SharedState>,
}

impl Qp {
    pub(crate) fn new(
        number: QpNumber,
        init: QpInit,
        shared: Arc<SharedState>,
        send: WorkReader<SendEntry>,
        recv: WorkReader<RecvEntry>,
    ) -> Qp {
        Qp {
            number,
            state: State::Reset,
            path: None,
            dest_qp: QpNumber::default(),
            mtu: Mtu::M256,
            access: Access::default(),
            requester: Requester::new(send, init.max_send_wr),
            responder: Responder::new(recv),
            recent: Recent::new(),
            armed: Vec::new(),
            listed_request: false,
            listed_response: false,
            shared,
            init,
        }
    }

    pub(crate) fn set_state(&mut self, now: Time, state: State) {
        if state != self.state {
            self.state = state;
            self.shared.set(state);
            self.recent.note(now, Rare::State(state));
        }
    }

    /// Makes posting fail at once, as in RESET: the queue pair is being destroyed.
    pub(crate) fn forbid_posting(&self) {
        self.shared.set(State::Reset);
    }

    /// Back to the state of a new queue pair; requests that are queued vanish without completion.
    pub(crate) fn reset(&mut self, now: Time) {
        self.requester.reset();
        self.responder.reset();
        self.path = None;
        self.set_state(now, State::Reset);
    }

    /// Into the error state: every request completes as flushed (C9-220, C10-42). Answers already
    /// decided on still go out.
    pub(crate) fn enter_error(&mut self, now: Time, desk: &mut Desk) {
        self.set_state(now, State::Error);
        self.requester.stop();
        self.responder.stop();
        self.flush(now, desk);
    }

    /// Completes as flushed whatever is queued.
    pub(crate) fn flush(&mut self, now: Time, desk: &mut Desk) {
        while let Some(entry) = self.requester.retire() {
            let c = self.send_completion(&entry, Status::WorkRequestFlushed, 0);
            self.complete(now, self.init.send_cq, c, desk);
        }
        while let Some(entry) = self.responder.retire() {
            let c = self.recv_completion(&entry, Status::WorkRequestFlushed);
            self.complete(now, self.init.recv_cq, c, desk);
        }
    }

    /// When this queue pair next needs the clock. What waits for the port does not need it.
    #[inline]
    pub(crate) fn deadline(&self) -> Time {
        let mut at = self.requester.timer();
        if !self.listed_request {
            at = at.min(self.requester.held_until());
        }
        if !self.listed_response {
            at = at.min(self.responder.ready_at());
        }
        at
    }

    pub(crate) fn send_completion(
        &self,
        entry: &SendEntry,
        status: Status,
        len: u32,
    ) -> Completion {
        Completion {
            wr_id: entry.wr_id,
            status,
            kind: match entry.work {
                Work::Send | Work::SendImmediate(_) => CompletionKind::Send,
                Work::Write(_) | Work::WriteImmediate(..) => CompletionKind::Write,
                Work::Read(_) => CompletionKind::Read,
            },
            qp: self.number,
            byte_len: len,
            immediate: None,
        }
    }

    pub(crate) fn recv_completion(&self, entry: &RecvEntry, status: Status) -> Completion {
        Completion {
            wr_id: entry.wr_id,
            status,
            kind: CompletionKind::Receive,
            qp: self.number,
            byte_len: 0,
            immediate: None,
        }
    }

    /// Puts a completion into its queue. A queue that is full is in error, and so is everyone who
    /// completes into it (C9-218, C11-37).
    pub(crate) fn complete(&mut self, now: Time, cq: CqId, c: Completion, desk: &mut Desk) {
        if c.status != Status::Success && c.status != Status::WorkRequestFlushed {
            self.recent.note(
                now,
                Rare::Failed {
                    wr_id: c.wr_id,
                    status: c.status,
                },
            );
        }
        let queue = &mut desk.cqs[cq.0 as usize];
        if !queue.push(c) {
            if queue.overrun() {
                desk.events.push_back(AsyncEvent::CqError(cq));
            }
            if self.state != State::Error {
                desk.events.push_back(AsyncEvent::QpFatal(self.number));
                self.enter_error(now, desk);
            }
        }
    }
}

/// The PSN at a position, when position 0 has the PSN `first`.
#[inline]
pub(crate) fn psn_at(first: Psn, position: u64) -> Psn {
    first.plus(position as u32)
}

/// The position of `psn` that is nearest to `near`; negative if it lies before the first packet.
#[inline]
pub(crate) fn position_of(first: Psn, psn: Psn, near: u64) -> i64 {
    near as i64 + i64::from(psn.after(psn_at(first, near)))
}
