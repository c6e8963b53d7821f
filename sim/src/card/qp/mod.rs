//! A queue pair: its state, and the four parts that do its work.
//!
//! * [`attributes`]: what is set when, as `ibv_modify_qp` checks it.
//! * `requester`: which work request is next, and from where it goes on after a loss.
//! * `emit`: work requests become packets.
//! * `completer`: takes responses, retires work requests.
//! * `responder`: what of a peer's requests is new, what came again, what was lost.
//! * `execute`: what a new request does to memory and receive requests.
//! * `responses`: the queue of answers and how they become packets.
//! * `receives`: where receive requests come from.
//! * `restraint`: where congestion control comes in.
//! * `trouble`: what it knows when a request fails.
//! * `unreliable`: the receiving side of UC and UD.
//!
//! Inside, packets have positions: a `u64` that counts packets of one direction from the first of the
//! connection. A PSN is the low 24 bits of the position, offset by the first PSN; a PSN that arrives
//! becomes the position nearest to the one expected. So nothing in here ever wraps.

pub mod attributes;
mod completer;
mod emit;
mod execute;
mod receives;
mod requester;
mod responder;
mod responses;
mod restraint;
mod trouble;
mod unreliable;

use super::config::CardConfig;
use super::congestion::Limiter;
use super::congestion::notification::Notices;
use super::counters::Counters;
use super::explain::{Ended, FailureLog, Flushed};
use super::program::{Chunk, SharedState, WorkReader};
use super::queue::Reader;
use super::recent::{Rare, Recent};
use super::work::{
    Completion, CompletionKind, CqId, RecvEntry, SendEntry, Sge, SrqId, Status, Work,
};
use super::{AsyncEvent, Cq};
use crate::memory::{Access, Memory, Pd};
use crate::places::Places;
use crate::time::Time;
use crate::wire::{Ecn, Gid, Immediate, Psn, QpNumber, RouteId};
use attributes::{Mtu, QpInit, QpType};
use receives::Receives;
pub(crate) use receives::Srq;
use requester::Requester;
pub use responder::Arrived;
use responder::Responder;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use trouble::Trouble;

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
    /// ECN field of requests and READ responses.
    pub(crate) data_ecn: Ecn,
    pub(crate) memory: Memory,
    pub(crate) cqs: Places<Cq>,
    pub(crate) events: VecDeque<AsyncEvent>,
    pub(crate) failures: FailureLog,
    pub(crate) srqs: Places<Srq>,
    /// By address handle.
    pub(crate) addresses: Places<(Pd, Path)>,
    /// Completion queues that were armed and have a completion now.
    pub(crate) notifications: VecDeque<CqId>,
    /// How many completion queues are armed.
    pub(crate) armed: u32,
    /// Completions so far.
    pub(crate) completed: u64,
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
    pub(crate) mig_req: bool,
    pub(crate) priority: u8,
    pub(crate) response_priority: u8,
}

/// A queue pair of the card. What every packet needs stands in front.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) number: QpNumber,
    pub(crate) dest_qp: QpNumber,
    /// Of datagrams.
    pub(crate) qkey: u32,
    pub(crate) state: State,
    pub(crate) mtu: Mtu,
    /// On the card's list of queue pairs with requests to send.
    pub(crate) listed_request: bool,
    /// On the card's list of queue pairs with responses to send.
    pub(crate) listed_response: bool,
    /// The program knows that no more receive requests are taken, until the next reset.
    last_wqe_told: bool,
    pub(crate) access: Access,
    /// Congestion control, if there is any.
    pub(crate) limiter: Option<Box<Limiter>>,
    /// This queue pair's entries in the card's timer heap, the earliest last.
    pub(crate) armed: Vec<Time>,
    pub(crate) path: Option<Path>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) init: QpInit,
    pub(crate) counters: Counters,
    pub(crate) notices: Notices,
    pub(crate) recent: Recent,
    trouble: Trouble,
    /// What put it, or its send queue, into error last.
    ended: Ended,
    shared: Arc<SharedState>,
}

impl Qp {
    pub(crate) fn new(
        number: QpNumber,
        init: QpInit,
        shared: Arc<SharedState>,
        send: WorkReader<SendEntry>,
        chunks: Reader<Chunk>,
        recv: Option<WorkReader<RecvEntry>>,
    ) -> Qp {
        let receives = match (recv, init.srq) {
            (Some(queue), _) => Receives::own(queue, init.max_recv_sge),
            (None, srq) => Receives::shared(srq.unwrap_or(SrqId(u32::MAX)), super::MAX_SGE),
        };
        Qp {
            number,
            state: State::Reset,
            path: None,
            dest_qp: QpNumber::default(),
            mtu: Mtu::M256,
            access: Access::default(),
            qkey: 0,
            requester: Requester::new(send, chunks, init.max_send_wr),
            responder: Responder::new(receives),
            recent: Recent::new(),
            counters: Counters::default(),
            limiter: None,
            notices: Notices::default(),
            trouble: Trouble::new(),
            ended: Ended::Program(Time::ZERO),
            armed: Vec::new(),
            listed_request: false,
            listed_response: false,
            last_wqe_told: false,
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
        self.trouble = Trouble::new();
        self.path = None;
        self.notices = Notices::default();
        self.last_wqe_told = false;
        self.set_state(now, State::Reset);
    }

    /// Into the error state: every request completes as flushed (C9-220, C10-42). Answers already
    /// decided on still go out. Gives what was flushed.
    pub(crate) fn enter_error(&mut self, now: Time, desk: &mut Desk) -> Flushed {
        self.set_state(now, State::Error);
        // A receive request that this flush does not see was posted by a program that sees the state.
        fence(Ordering::SeqCst);
        self.requester.stop();
        self.responder.stop();
        let flushed = self.flush(now, desk);
        // With a shared receive queue the program cannot tell by itself that nothing more will come
        // (o11-5.2.5). Who completes a request in error has set the state already.
        let told = std::mem::replace(&mut self.last_wqe_told, true);
        if !told && self.responder.receives.srq().is_some() {
            desk.events
                .push_back(AsyncEvent::LastWqeReached(self.number));
        }
        flushed
    }

    /// Completes as flushed whatever is queued, and gives what that was.
    pub(crate) fn flush(&mut self, now: Time, desk: &mut Desk) -> Flushed {
        let mut flushed = self.flush_sends(now, desk);
        while let Some(taken) = self.responder.receives.flush() {
            flushed.receives.add(taken.wr_id);
            let c = self.recv_completion(taken.wr_id, Status::WorkRequestFlushed);
            self.complete(now, self.init.recv_cq, c, false, desk);
        }
        flushed
    }

    /// Completes as flushed what is in the send queue, and gives what that was.
    pub(crate) fn flush_sends(&mut self, now: Time, desk: &mut Desk) -> Flushed {
        let mut flushed = Flushed::default();
        while let Some(entry) = self.requester.retire() {
            flushed.sends.add(entry.wr_id);
            let c = self.send_completion(&entry, Status::WorkRequestFlushed, 0, desk);
            self.complete(now, self.init.send_cq, c, false, desk);
        }
        flushed
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
        desk: &Desk,
    ) -> Completion {
        let profile = &desk.config.profile;
        let announced = match entry.work {
            Work::SendImmediate(_) | Work::WriteImmediate(..) => {
                profile.requests_report_immediate && status == Status::Success
            }
            _ => false,
        };
        Completion {
            wr_id: entry.wr_id,
            status,
            vendor_err: 0,
            kind: match entry.work {
                Work::Send | Work::SendImmediate(_) | Work::SendInvalidate(_) => {
                    CompletionKind::Send
                }
                Work::Write(_) | Work::WriteImmediate(..) => CompletionKind::Write,
                Work::Read(_) => CompletionKind::Read,
                Work::CompareSwap { .. } => CompletionKind::CompareSwap,
                Work::FetchAdd { .. } => CompletionKind::FetchAdd,
                Work::AtomicWrite(_) => CompletionKind::AtomicWrite,
                Work::BindWindow { .. } => CompletionKind::BindWindow,
                Work::LocalInvalidate(_) => CompletionKind::LocalInvalidate,
            },
            qp: self.number,
            byte_len: if entry.work.sends_data() && profile.requests_report_length {
                entry.len as u32
            } else {
                len
            },
            immediate: announced.then(Immediate::default),
            invalidated: None,
            src_qp: QpNumber::default(),
            grh: false,
        }
    }

    pub(crate) fn recv_completion(&self, wr_id: u64, status: Status) -> Completion {
        Completion {
            wr_id,
            status,
            vendor_err: 0,
            kind: CompletionKind::Receive,
            qp: self.number,
            byte_len: 0,
            immediate: None,
            invalidated: None,
            src_qp: QpNumber::default(),
            grh: false,
        }
    }

    /// Puts a completion into its queue, and tells the program if it waits for that. A queue that is full is
    /// in error, and so is everyone who completes into it (C9-218, C11-37).
    pub(crate) fn complete(
        &mut self,
        now: Time,
        cq: CqId,
        c: Completion,
        solicited: bool,
        desk: &mut Desk,
    ) {
        if c.status != Status::Success && c.status != Status::WorkRequestFlushed {
            self.recent.note(
                now,
                Rare::Failed {
                    wr_id: c.wr_id,
                    status: c.status,
                },
            );
        }
        desk.completed += 1;
        let Some(queue) = desk.cqs.get_mut(cq.0) else {
            return; // Not so: it cannot be destroyed while a queue pair uses it.
        };
        if queue.push(c) {
            if queue.notifies(solicited || c.status != Status::Success) {
                desk.armed -= 1;
                desk.notifications.push_back(cq);
            }
            return;
        }
        if queue.overrun() {
            desk.events.push_back(AsyncEvent::CqError(cq));
        }
        if self.state != State::Error {
            desk.events.push_back(AsyncEvent::QpFatal(self.number));
            let flushed = self.enter_error(now, desk);
            self.overran(now, cq, flushed, desk);
        }
    }

    /// Where the next request packet goes, if there is one: the connection's path, or that of the next
    /// datagram.
    #[inline]
    pub(crate) fn next_path(&mut self, desk: &Desk) -> Option<Path> {
        match self.init.qp_type {
            QpType::Rc | QpType::Uc => self.path,
            QpType::Ud => {
                let entry = self.requester.next_entry()?;
                let known = desk.addresses.get(entry.to?.address.place);
                known.map(|&(_, path)| path)
            }
        }
    }
}

/// Calls `each` with the element, the address, the offset in the packet and the length of every piece
/// of `len` bytes from `offset` on in `elements`.
#[inline]
fn pieces<'a>(
    elements: impl Iterator<Item = &'a Sge>,
    mut offset: u64,
    len: u16,
    mut each: impl FnMut(&Sge, u64, usize, usize),
) {
    let mut done = 0usize;
    for sge in elements {
        if done == usize::from(len) {
            return;
        }
        if offset >= u64::from(sge.len) {
            offset -= u64::from(sge.len);
            continue;
        }
        let n = (u64::from(sge.len) - offset).min((usize::from(len) - done) as u64) as usize;
        // An address that wraps is refused by the look-up, whose range check starts from it.
        each(sge, sge.addr.wrapping_add(offset), done, n);
        done += n;
        offset = 0;
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
