//! Shared receive queues.

use crate::domain::ProtectionDomain;
use crate::error::Result;
use crate::event::SrqId;
use crate::provider::{self, Handle};
use crate::{PostError, RecvRequest};
use std::fmt;
use std::sync::Arc;

/// A queue of receive requests that several queue pairs take from (`ibv_srq`).
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue {
    queue: Box<dyn provider::SharedReceiveQueue>,
    pub(crate) inner: Arc<SrqInner>,
}

pub(crate) struct SrqInner {
    pub(crate) pd: ProtectionDomain,
    pub(crate) handle: Handle,
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        self.pd.0.context.provider.destroy_srq(self.handle);
    }
}

impl SharedReceiveQueue {
    pub(crate) fn create(
        pd: &ProtectionDomain,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SharedReceiveQueue> {
        let (handle, queue) =
            pd.0.context
                .provider
                .create_srq(pd.0.handle, max_wr, max_sge)?;
        Ok(SharedReceiveQueue {
            queue,
            inner: Arc::new(SrqInner {
                pd: pd.clone(),
                handle,
            }),
        })
    }

    /// Names it in events.
    pub fn id(&self) -> SrqId {
        SrqId(self.inner.handle)
    }

    /// Queues a receive request.
    ///
    /// # Errors
    ///
    /// [`PostError`] if the queue is full or the request has too many elements.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv(&mut self, request: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        self.queue.post_recv(request)
    }

    /// Sets the number of waiting requests below which
    /// [`AsyncEvent::SrqLimitReached`](crate::AsyncEvent::SrqLimitReached) comes, once; 0 for never.
    ///
    /// # Errors
    ///
    /// If the queue does not hold as many.
    #[doc(alias = "ibv_modify_srq")]
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        self.inner
            .pd
            .0
            .context
            .provider
            .set_srq_limit(self.inner.handle, limit)
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({})", self.inner.handle)
    }
}
