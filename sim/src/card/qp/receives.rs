//! Where a queue pair's receive requests come from: a queue of its own, or one that it shares.

use crate::card::AsyncEvent;
use crate::card::program::WorkReader;
use crate::card::work::{RecvEntry, Sge, SrqId};
use crate::memory::Pd;
use crate::places::Places;
use std::collections::VecDeque;

/// The card's side of a shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) queue: WorkReader<RecvEntry>,
    pub(crate) pd: Pd,
    /// When fewer requests wait than this, the program is told, once. Zero: it is not.
    pub(crate) limit: u32,
    /// Queue pairs that take from it.
    pub(crate) users: u32,
}

#[derive(Debug)]
enum Source {
    Own(WorkReader<RecvEntry>),
    Shared(SrqId),
}

/// A receive request that a message has taken. Its elements are in [`Receives::elements`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) wr_id: u64,
    pub(super) len: u64,
}

/// The receive requests of a queue pair.
#[derive(Debug)]
pub(super) struct Receives {
    source: Source,
    taken: Option<Taken>,
    /// Elements of the one that is taken; as long as the longest, so that it never grows.
    elements: Vec<Sge>,
}

impl Receives {
    pub(super) fn own(queue: WorkReader<RecvEntry>, max_sge: u32) -> Receives {
        Receives {
            source: Source::Own(queue),
            taken: None,
            elements: Vec::with_capacity(max_sge as usize),
        }
    }

    pub(super) fn shared(srq: SrqId, max_sge: u32) -> Receives {
        Receives {
            source: Source::Shared(srq),
            taken: None,
            elements: Vec::with_capacity(max_sge as usize),
        }
    }

    /// The shared queue, if there is one.
    pub(super) fn srq(&self) -> Option<SrqId> {
        match self.source {
            Source::Own(_) => None,
            Source::Shared(srq) => Some(srq),
        }
    }

    /// Receive requests that wait in a queue of its own; `None` if it shares one.
    pub(super) fn waiting(&mut self) -> Option<u32> {
        match &mut self.source {
            Source::Own(queue) => Some((queue.entries.tail() - queue.entries.head()) as u32),
            Source::Shared(_) => None,
        }
    }

    /// The request that the message under way has, or a new one.
    #[inline]
    pub(super) fn take(
        &mut self,
        srqs: &mut Places<Srq>,
        events: &mut VecDeque<AsyncEvent>,
    ) -> Option<Taken> {
        if self.taken.is_some() {
            return self.taken;
        }
        let entry = match &mut self.source {
            Source::Own(queue) => pull(queue, &mut self.elements)?,
            Source::Shared(id) => {
                let srq = srqs.get_mut(id.0)?;
                let entry = pull(&mut srq.queue, &mut self.elements)?;
                let waiting = srq.queue.entries.tail() - srq.queue.entries.head();
                if waiting < u64::from(srq.limit) {
                    srq.limit = 0;
                    events.push_back(AsyncEvent::SrqLimitReached(*id));
                }
                entry
            }
        };
        self.taken = Some(Taken {
            wr_id: entry.wr_id,
            len: entry.len,
        });
        self.taken
    }

    /// True if a message has taken a request that is not done.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// Elements of the request that is taken.
    #[inline]
    pub(super) fn elements(&self) -> &[Sge] {
        &self.elements
    }

    /// Number on a queue of its own, from 1, and `wr_id` of the request that is taken.
    pub(super) fn taken(&self) -> Option<(Option<u64>, u64)> {
        let taken = self.taken?;
        let number = match &self.source {
            Source::Own(queue) => Some(queue.entries.head()),
            Source::Shared(_) => None,
        };
        Some((number, taken.wr_id))
    }

    /// The request that is taken is done.
    #[inline]
    pub(super) fn finish(&mut self) -> Option<Taken> {
        self.taken.take()
    }

    /// The next request to flush: the one that is taken, then those in a queue of its own. What is in a
    /// shared queue is for others.
    pub(super) fn flush(&mut self) -> Option<Taken> {
        if self.taken.is_some() {
            return self.finish();
        }
        match &mut self.source {
            Source::Own(queue) => {
                let entry = pull(queue, &mut self.elements)?;
                Some(Taken {
                    wr_id: entry.wr_id,
                    len: entry.len,
                })
            }
            Source::Shared(_) => None,
        }
    }
}

/// Takes the oldest request out of a queue, and its elements along.
#[inline]
fn pull(queue: &mut WorkReader<RecvEntry>, elements: &mut Vec<Sge>) -> Option<RecvEntry> {
    let run = queue.entries.get(queue.entries.head())?.sges;
    queue.sges.tail();
    elements.clear();
    elements.extend((0..u64::from(run.count)).filter_map(|i| queue.sges.peek(run.first + i)));
    queue.retire(|entry| entry.sges)
}
