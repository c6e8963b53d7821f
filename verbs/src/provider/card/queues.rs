//! The rings of a card, as the program's side has them.

use super::{Common, Seat};
use crate::error::{BadRequest, Result};
use crate::provider;
use crate::provider::QpSpec;
use crate::{Completion, Notify, PostError, QpCap, QpNumber, RecvRequest, SendRequest};
use softroce_sim::card;
use std::sync::Arc;
use std::time::Duration;

/// A completion queue, which gives its reader back when it is dropped.
pub(super) struct CompletionQueue<S: Seat> {
    common: Arc<Common<S>>,
    /// Taken when it is dropped.
    queue: Option<card::CompletionQueue>,
}

impl<S: Seat> CompletionQueue<S> {
    pub(super) fn new(common: Arc<Common<S>>, queue: card::CompletionQueue) -> CompletionQueue<S> {
        CompletionQueue {
            common,
            queue: Some(queue),
        }
    }

    fn fill(&mut self, out: &mut [Completion]) -> usize {
        let Some(queue) = &mut self.queue else {
            return 0;
        };
        let mut n = 0;
        for place in out {
            match queue.poll() {
                Some(completion) => *place = completion,
                None => break,
            }
            n += 1;
        }
        n
    }
}

impl<S: Seat> provider::CompletionQueue for CompletionQueue<S> {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize> {
        let n = self.fill(out);
        if n > 0 || out.is_empty() {
            return Ok(n);
        }
        self.common.seat.turn()?;
        Ok(self.fill(out))
    }

    fn rest(&mut self, limit: Duration) -> Result<bool> {
        self.common.seat.rest(false, limit)
    }

    fn req_notify(&mut self, which: Notify) -> Result<()> {
        match &self.queue {
            Some(queue) => {
                let id = queue.id();
                Ok(self
                    .common
                    .with(|card, _| card.request_notify(id, which))??)
            }
            None => Ok(()),
        }
    }

    fn resize(&mut self, cqe: u32) -> Result<()> {
        match &mut self.queue {
            Some(queue) => Ok(self.common.with(|card, _| card.resize_cq(queue, cqe))??),
            None => Ok(()),
        }
    }
}

impl<S: Seat> Drop for CompletionQueue<S> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.common.desk().readers.insert(queue.id(), queue);
        }
    }
}

/// A queue pair, which rings its card.
pub(super) struct QueuePair<S: Seat> {
    common: Arc<Common<S>>,
    queue: card::QueuePair,
    cap: QpCap,
}

impl<S: Seat> QueuePair<S> {
    pub(super) fn new(
        common: Arc<Common<S>>,
        queue: card::QueuePair,
        spec: &QpSpec,
    ) -> QueuePair<S> {
        QueuePair {
            common,
            queue,
            // A card grants what it is asked for.
            cap: QpCap {
                max_send_wr: spec.max_send_wr,
                max_recv_wr: match spec.srq {
                    None => spec.max_recv_wr,
                    Some(_) => 0,
                },
                max_send_sge: spec.max_send_sge,
                max_recv_sge: match spec.srq {
                    None => spec.max_recv_sge,
                    Some(_) => 0,
                },
                max_inline_data: spec.max_inline,
            },
        }
    }
}

impl<S: Seat> provider::QueuePair for QueuePair<S> {
    fn number(&self) -> QpNumber {
        self.queue.number()
    }

    fn cap(&self) -> QpCap {
        self.cap
    }

    fn post_send(&mut self, request: &SendRequest<'_>) -> std::result::Result<(), PostError> {
        self.queue.post_send(request)?;
        self.common.seat.doorbell(self.queue.number());
        Ok(())
    }

    fn post_send_list(
        &mut self,
        requests: &[SendRequest<'_>],
        signal_all: bool,
    ) -> std::result::Result<(), BadRequest> {
        let mut outcome = Ok(());
        for (index, request) in requests.iter().enumerate() {
            let posted = self.queue.post_send(&SendRequest {
                signaled: request.signaled || signal_all,
                ..*request
            });
            if let Err(source) = posted {
                outcome = Err(BadRequest { index, source });
                break;
            }
        }
        self.common.seat.doorbell(self.queue.number());
        outcome
    }

    fn post_recv(&mut self, request: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        self.common.seat.post_recv(&mut self.queue, request)
    }
}

/// A shared receive queue; the card looks into it when it needs a request.
pub(super) struct SharedReceiveQueue(pub(super) card::SharedReceiveQueue);

impl provider::SharedReceiveQueue for SharedReceiveQueue {
    fn post_recv(&mut self, request: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        self.0.post_recv(request)
    }
}
