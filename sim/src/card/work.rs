//! Work requests and completions: what a program gives its card and what it gets back.

use super::qp::State;
use super::queue::{Reader, Writer, ring};
use crate::memory::LocalKey;
use crate::wire::{Immediate, QpNumber, RemoteKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The longest message in bytes: 2^31.
pub const MAX_MESSAGE_LEN: u64 = 1 << 31;

/// A scatter or gather element (`ibv_sge`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Key of the region it lies in.
    pub lkey: LocalKey,
}

/// Where in the peer's memory an RDMA operation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// First byte.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: RemoteKey,
}

/// What a send request asks for (`ibv_wr_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImmediate(Immediate),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE with immediate data.
    WriteImmediate(Remote, Immediate),
    /// RDMA READ.
    Read(Remote),
}

/// A send request (`ibv_send_wr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRequest<'a> {
    /// Given back in the completion.
    pub wr_id: u64,
    /// The operation.
    pub work: Work,
    /// Local memory: what to send, or where READ data goes.
    pub sges: &'a [Sge],
    /// Ask for a completion on success too.
    pub signaled: bool,
    /// Set the solicited event bit.
    pub solicited: bool,
    /// Wait until earlier READs are done (10.8.3.3).
    pub fence: bool,
}

/// A receive request (`ibv_recv_wr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvRequest<'a> {
    /// Given back in the completion.
    pub wr_id: u64,
    /// Where the data goes.
    pub sges: &'a [Sge],
}

/// How a request ended (`ibv_wc_status`, with its values).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Success = 0,
    /// A receive buffer was too short, or a message too long (11.6.2).
    LocalLengthError = 1,
    /// The queue pair was used in a way it does not allow.
    LocalQpOperationError = 2,
    /// A local key does not give the access the request needs.
    LocalProtectionError = 4,
    /// The queue pair went into the error state first.
    WorkRequestFlushed = 5,
    /// The peer answered with something that does not fit the request.
    BadResponse = 7,
    /// The peer's WRITE or the request's own data ran into a local protection error on a receive.
    LocalAccessError = 8,
    /// The peer refused the request as invalid.
    RemoteInvalidRequest = 9,
    /// The peer's key, range or rights did not allow it.
    RemoteAccessError = 10,
    /// The peer could not carry it out.
    RemoteOperationError = 11,
    /// No answer after every retry.
    RetryExceeded = 12,
    /// The peer had no receive request after every RNR retry.
    RnrRetryExceeded = 13,
}

impl Status {
    /// All of them, in the order of their values.
    pub const ALL: [Status; 12] = [
        Status::Success,
        Status::LocalLengthError,
        Status::LocalQpOperationError,
        Status::LocalProtectionError,
        Status::WorkRequestFlushed,
        Status::BadResponse,
        Status::LocalAccessError,
        Status::RemoteInvalidRequest,
        Status::RemoteAccessError,
        Status::RemoteOperationError,
        Status::RetryExceeded,
        Status::RnrRetryExceeded,
    ];

    /// libibverbs' name without its prefix, in lower case with dashes: `retry-exc-err`.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::LocalLengthError => "loc-len-err",
            Status::LocalQpOperationError => "loc-qp-op-err",
            Status::LocalProtectionError => "loc-prot-err",
            Status::WorkRequestFlushed => "wr-flush-err",
            Status::BadResponse => "bad-resp-err",
            Status::LocalAccessError => "loc-access-err",
            Status::RemoteInvalidRequest => "rem-inv-req-err",
            Status::RemoteAccessError => "rem-access-err",
            Status::RemoteOperationError => "rem-op-err",
            Status::RetryExceeded => "retry-exc-err",
            Status::RnrRetryExceeded => "rnr-retry-exc-err",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What kind of request a completion is of (`ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CompletionKind {
    /// A SEND of this queue pair.
    Send,
    /// An RDMA WRITE of this queue pair.
    Write,
    /// An RDMA READ of this queue pair.
    Read,
    /// A receive request took a SEND.
    Receive,
    /// A receive request was used up by a WRITE with immediate data.
    ReceiveWithImmediate,
}

/// A completion (`ibv_wc`). Only `wr_id`, `status` and `qp` mean something if `status` is not success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// From the request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub kind: CompletionKind,
    /// The queue pair it was posted to.
    pub qp: QpNumber,
    /// Bytes received, or read.
    pub byte_len: u32,
    /// Immediate data that came with it.
    pub immediate: Option<Immediate>,
}

/// Why a request was not taken (posting fails at once, nothing is queued).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// The queue is full.
    #[error("the queue holds {capacity} requests, and all are in use")]
    QueueFull {
        /// Requests it was made for.
        capacity: u32,
    },
    /// Too many elements.
    #[error("{count} scatter-gather elements; this queue takes {limit}")]
    TooManySges {
        /// Elements given.
        count: usize,
        /// Elements the queue was made for.
        limit: u32,
    },
    /// The state does not allow posting here (C10-22, C10-25, C10-29).
    #[error("a queue pair in {state} takes no {queue} requests")]
    WrongState {
        /// State of the queue pair.
        state: State,
        /// "send" or "receive".
        queue: &'static str,
    },
}

/// A send request as it stands in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEntry {
    pub(crate) wr_id: u64,
    pub(crate) work: Work,
    /// Sum of the elements' lengths; checked against [`MAX_MESSAGE_LEN`] when it is its turn.
    pub(crate) len: u64,
    pub(crate) sges: SgeRun,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
}

/// A receive request as it stands in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvEntry {
    pub(crate) wr_id: u64,
    pub(crate) len: u64,
    pub(crate) sges: SgeRun,
}

/// Elements `first` to `first + count` of the element ring beside the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SgeRun {
    pub(crate) first: u64,
    pub(crate) count: u32,
}

/// The state of a queue pair, for the program's side to look at before it posts.
#[derive(Debug)]
pub(crate) struct SharedState(AtomicU8);

impl SharedState {
    pub(crate) fn new(state: State) -> Arc<SharedState> {
        Arc::new(SharedState(AtomicU8::new(state as u8)))
    }

    pub(crate) fn get(&self) -> State {
        State::from_u8(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, state: State) {
        self.0.store(state as u8, Ordering::Release);
    }
}

/// The program's side of a work queue: entries, and their elements in a ring beside them.
#[derive(Debug)]
pub(crate) struct WorkWriter<E> {
    entries: Writer<E>,
    sges: Writer<Sge>,
    max_sge: u32,
}

/// The card's side of a work queue.
#[derive(Debug)]
pub(crate) struct WorkReader<E> {
    pub(crate) entries: Reader<E>,
    pub(crate) sges: Reader<Sge>,
}

impl<E: Copy + Send> WorkReader<E> {
    /// Takes the oldest entry out. Its elements, which `run` names, go first: the program counts on
    /// finding room for elements wherever it finds room for an entry.
    pub(crate) fn retire(&mut self, run: impl FnOnce(&E) -> SgeRun) -> Option<E> {
        let entry = *self.entries.get(self.entries.head())?;
        self.sges.tail();
        self.sges.retire(u64::from(run(&entry).count));
        self.entries.retire(1);
        Some(entry)
    }
}

pub(crate) fn work_queue<E: Copy + Send>(
    max_wr: u32,
    max_sge: u32,
) -> (WorkWriter<E>, WorkReader<E>) {
    let (ew, er) = ring(max_wr);
    // As many as the entries can have, so that whoever gets an entry gets its elements.
    let (sw, sr) = ring(max_wr.max(1).saturating_mul(max_sge.max(1)));
    (
        WorkWriter {
            entries: ew,
            sges: sw,
            max_sge,
        },
        WorkReader {
            entries: er,
            sges: sr,
        },
    )
}

impl<E: Copy + Send> WorkWriter<E> {
    fn post(
        &mut self,
        sges: &[Sge],
        entry: impl FnOnce(SgeRun, u64) -> E,
    ) -> Result<(), PostError> {
        if sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges {
                count: sges.len(),
                limit: self.max_sge,
            });
        }
        if self.entries.free() == 0 {
            return Err(PostError::QueueFull {
                capacity: self.entries.capacity(),
            });
        }
        let run = SgeRun {
            first: self.sges.tail(),
            count: sges.len() as u32,
        };
        let mut len = 0;
        for sge in sges {
            len += u64::from(sge.len);
            // Cannot be full: there is a free entry, and each entry has its share of elements.
            let _ = self.sges.push(*sge);
        }
        let _ = self.entries.push(entry(run, len));
        Ok(())
    }
}

/// The program's side of a queue pair: posting work. The card is told by
/// [`Card::doorbell`](super::Card::doorbell).
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) number: QpNumber,
    pub(crate) state: Arc<SharedState>,
    pub(crate) send: WorkWriter<SendEntry>,
    pub(crate) recv: WorkWriter<RecvEntry>,
}

impl QueuePair {
    /// Its number.
    pub fn number(&self) -> QpNumber {
        self.number
    }

    /// Its state, as the card last set it.
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// Queues a send request.
    pub fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        let state = self.state.get();
        if matches!(state, State::Reset | State::Init | State::Rtr) {
            return Err(PostError::WrongState {
                state,
                queue: "send",
            });
        }
        self.send.post(request.sges, |sges, len| SendEntry {
            wr_id: request.wr_id,
            work: request.work,
            len,
            sges,
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
        })
    }

    /// Queues a receive request.
    pub fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let state = self.state.get();
        if state == State::Reset {
            return Err(PostError::WrongState {
                state,
                queue: "receive",
            });
        }
        self.recv.post(request.sges, |sges, len| RecvEntry {
            wr_id: request.wr_id,
            len,
            sges,
        })
    }

    /// Send requests that can be posted now.
    pub fn send_room(&mut self) -> u32 {
        self.send.entries.free()
    }

    /// Receive requests that can be posted now.
    pub fn recv_room(&mut self) -> u32 {
        self.recv.entries.free()
    }
}

/// Names a completion queue of a card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub(crate) u32);

/// The program's side of a completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(crate) id: CqId,
    pub(crate) ring: Reader<Completion>,
}

impl CompletionQueue {
    /// Its name on the card.
    pub fn id(&self) -> CqId {
        self.id
    }

    /// Takes the oldest completion.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        self.ring.pop()
    }

    /// True if there is nothing to take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}
