//! The program's side of a card: handles that post work requests and poll completions. Each is the
//! writing or reading end of a ring whose other end the card has.

use super::qp::State;
use super::qp::attributes::QpType;
use super::queue::{Reader, Writer, ring};
use super::work::{
    Completion, CqId, PostError, RecvEntry, RecvRequest, SendEntry, SendRequest, Sge, SgeRun, SrqId,
};
use crate::wire::QpNumber;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

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
    #[inline]
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
    /// Sees that there is room for an entry with these elements.
    fn check(&mut self, sges: &[Sge]) -> Result<(), PostError> {
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
        Ok(())
    }

    /// Queues an entry, for which there is room.
    fn post(&mut self, sges: &[Sge], entry: impl FnOnce(SgeRun, u64) -> E) {
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
    }
}

/// Bytes of a piece of inline data.
pub(crate) const CHUNK: usize = 64;

/// A piece of inline data.
pub(crate) type Chunk = [u8; CHUNK];

/// The program's side of a queue pair: posting work. The card is told by
/// [`Card::doorbell`](super::Card::doorbell).
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) number: QpNumber,
    pub(crate) qp_type: QpType,
    pub(crate) state: Arc<SharedState>,
    pub(crate) send: WorkWriter<SendEntry>,
    pub(crate) chunks: Writer<Chunk>,
    pub(crate) max_inline: u32,
    /// None if it takes its receive requests from a shared receive queue.
    pub(crate) recv: Option<WorkWriter<RecvEntry>>,
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
        if !request.work.fits(self.qp_type) {
            return Err(PostError::Unsupported(request.work));
        }
        if request.to.is_some() != (self.qp_type == QpType::Ud) {
            return Err(PostError::Destination);
        }
        let data = request.inline.unwrap_or_default();
        let limit = if request.work.sends_data() {
            self.max_inline as usize
        } else {
            0
        };
        if data.len() > limit || (request.inline.is_some() && !request.work.sends_data()) {
            return Err(PostError::Inline {
                len: data.len(),
                limit,
            });
        }
        let sges = if request.inline.is_some() {
            &[]
        } else {
            request.sges
        };
        self.send.check(sges)?;
        let inline = SgeRun {
            first: self.chunks.tail(),
            count: data.len().div_ceil(CHUNK) as u32,
        };
        for piece in data.chunks(CHUNK) {
            let mut chunk = [0; CHUNK];
            chunk[..piece.len()].copy_from_slice(piece);
            // Cannot be full: there is a free entry, and each entry has its share of chunks.
            let _ = self.chunks.push(chunk);
        }
        self.send.post(sges, |sges, len| SendEntry {
            wr_id: request.wr_id,
            work: request.work,
            len: len + data.len() as u64,
            sges,
            inline,
            to: request.to,
            signaled: request.signaled,
            solicited: request.solicited,
            fence: request.fence,
        });
        Ok(())
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
        let recv = self.recv.as_mut().ok_or(PostError::SharedReceiveQueue)?;
        post_recv(recv, request)
    }

    /// Send requests that can be posted now.
    pub fn send_room(&mut self) -> u32 {
        self.send.entries.free()
    }

    /// Receive requests that can be posted now; none on one with a shared receive queue.
    pub fn recv_room(&mut self) -> u32 {
        self.recv.as_mut().map_or(0, |r| r.entries.free())
    }
}

fn post_recv(
    queue: &mut WorkWriter<RecvEntry>,
    request: &RecvRequest<'_>,
) -> Result<(), PostError> {
    queue.check(request.sges)?;
    queue.post(request.sges, |sges, len| RecvEntry {
        wr_id: request.wr_id,
        len,
        sges,
    });
    Ok(())
}

/// The program's side of a shared receive queue.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    pub(crate) id: SrqId,
    pub(crate) queue: WorkWriter<RecvEntry>,
}

impl SharedReceiveQueue {
    /// Its name on the card.
    pub fn id(&self) -> SrqId {
        self.id
    }

    /// Queues a receive request.
    pub fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        post_recv(&mut self.queue, request)
    }

    /// Receive requests that can be posted now.
    pub fn room(&mut self) -> u32 {
        self.queue.entries.free()
    }
}

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
