//! Completion queues, and channels that tell of them.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::event::CqId;
use crate::provider::{self, Handle};
use crate::{Completion, Notify};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where completion queues tell of completions to a program that sleeps (`ibv_comp_channel`). Clones are
/// of the same one.
#[derive(Clone)]
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel(pub(crate) Arc<ChannelInner>);

pub(crate) struct ChannelInner {
    pub(crate) context: Context,
    pub(crate) handle: Handle,
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        self.context.provider.destroy_comp_channel(self.handle);
    }
}

impl CompletionChannel {
    /// The completion queue that tells of a completion next, waited for at most `timeout`, or for ever. The
    /// event is acknowledged by being taken. The queue must be asked again
    /// ([`CompletionQueue::req_notify`]) before it tells of another.
    ///
    /// # Errors
    ///
    /// If the device is broken; in virtual time, if nothing can come any more.
    #[doc(alias = "ibv_get_cq_event", alias = "ibv_ack_cq_events")]
    pub fn get_cq_event(&self, timeout: Option<Duration>) -> Result<Option<CqId>> {
        let event = self
            .0
            .context
            .provider
            .next_comp_event(self.0.handle, timeout)?;
        Ok(event.map(CqId))
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionChannel({})", self.0.handle)
    }
}

/// Where work requests end (`ibv_cq`).
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue {
    // Goes before the handle.
    queue: Box<dyn provider::CompletionQueue>,
    pub(crate) inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    pub(crate) context: Context,
    channel: Option<CompletionChannel>,
    pub(crate) handle: Handle,
}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.context.provider.destroy_cq(self.handle);
    }
}

impl CompletionQueue {
    pub(crate) fn create(
        context: &Context,
        cqe: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue> {
        if channel.is_some_and(|c| !Arc::ptr_eq(&c.0.context.provider, &context.provider)) {
            return Err(Error::Foreign("completion channel"));
        }
        let (handle, queue) = context
            .provider
            .create_cq(cqe, channel.map(|c| c.0.handle))?;
        Ok(CompletionQueue {
            queue,
            inner: Arc::new(CqInner {
                context: context.clone(),
                channel: channel.cloned(),
                handle,
            }),
        })
    }

    /// Names it in events.
    pub fn id(&self) -> CqId {
        CqId(self.inner.handle)
    }

    /// Its channel.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.inner.channel.as_ref()
    }

    /// Takes the oldest completion. If there is none, the card is given a turn; in virtual time that takes
    /// a while, too.
    ///
    /// # Errors
    ///
    /// If the device is broken.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion>> {
        let mut one = [Completion::BLANK];
        Ok((self.queue.poll(&mut one)? == 1).then_some(one[0]))
    }

    /// Fills `out` with the oldest completions, and gives how many there were.
    ///
    /// # Errors
    ///
    /// If the device is broken.
    #[inline]
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll_into(&mut self, out: &mut [Completion]) -> Result<usize> {
        self.queue.poll(out)
    }

    /// For a program that has polled in vain and will only poll again, for as long as `limit`. In virtual time the polls
    /// that would find nothing are spared: this ends at the next one that may find something, or after `limit`, and what
    /// the program sees is the same; true is returned. In real time it does nothing and returns false. A program that waits
    /// for its memory to change has [`Context::rest`]: that makes no completion.
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`].
    #[inline]
    pub fn rest(&mut self, limit: Duration) -> Result<bool> {
        self.queue.rest(limit)
    }

    /// Polls until there is a completion.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] if there was none in `limit`; as [`CompletionQueue::poll`].
    pub fn wait(&mut self, limit: Duration) -> Result<Completion> {
        let start = self.inner.context.now();
        let mut left = limit;
        loop {
            // The clock is dearer than a look at the queue.
            for _ in 0..64 {
                if let Some(completion) = self.poll()? {
                    return Ok(completion);
                }
                // It may end early, for another queue's sake.
                if self.rest(left)? {
                    break;
                }
            }
            left = limit.saturating_sub(self.inner.context.now().saturating_sub(start));
            if left.is_zero() {
                return Err(Error::TimedOut {
                    what: "a completion",
                    limit,
                });
            }
        }
    }

    /// Asks to be told of a completion, once, in the channel it was made with.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it was made without one.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn req_notify(&mut self, which: Notify) -> Result<()> {
        if self.inner.channel.is_none() {
            return Err(Error::Unsupported {
                device: self.inner.context.device_name().into(),
                what: "completion channel for this completion queue".into(),
            });
        }
        self.queue.req_notify(which)
    }

    /// Makes it hold `cqe` completions; those in it stay.
    ///
    /// # Errors
    ///
    /// If `cqe` is out of range, or less than there are in it.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, cqe: u32) -> Result<()> {
        self.queue.resize(cqe)
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({})", self.inner.handle)
    }
}
