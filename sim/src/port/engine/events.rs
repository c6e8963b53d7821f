//! Queues of events that a program sleeps on.

use super::EngineError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A queue of events with a descriptor that is readable while there are some: a completion event channel
/// (`ibv_comp_channel`), or the asynchronous events of an engine. Any number of threads may wait.
///
/// The descriptor is for poll(2), select(2) and epoll(7). Nobody reads from it but
/// [`EventChannel::wait`].
pub struct EventChannel<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// An eventfd that counts the events.
    bell: OwnedFd,
}

struct Queue<T> {
    events: VecDeque<T>,
    /// No more will come.
    ended: Option<EngineError>,
}

impl<T> Clone for EventChannel<T> {
    fn clone(&self) -> EventChannel<T> {
        EventChannel {
            shared: self.shared.clone(),
        }
    }
}

impl<T> EventChannel<T> {
    pub(super) fn new() -> io::Result<EventChannel<T>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        Ok(EventChannel {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue {
                    events: VecDeque::new(),
                    ended: None,
                }),
                bell: eventfd(0, flags)?,
            }),
        })
    }

    /// True if nobody else has it.
    pub(super) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        let queue = self.shared.queue.lock();
        queue.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, event: T) {
        let mut queue = self.queue();
        queue.events.push_back(event);
        self.ring();
    }

    /// No more will come: whoever waits is told why.
    pub(super) fn end(&self, why: &EngineError) {
        let mut queue = self.queue();
        if queue.ended.is_none() {
            queue.ended = Some(why.clone());
            // Is never read, so the descriptor stays readable.
            self.ring();
        }
    }

    fn ring(&self) {
        // Fails only if there are 2^64 - 2 already.
        let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
    }

    /// The oldest event; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Why no more will come, after the last one.
    pub fn try_next(&self) -> Result<Option<T>, EngineError> {
        let mut queue = self.queue();
        if let Some(event) = queue.events.pop_front() {
            // Nothing to read is as good.
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
            return Ok(Some(event));
        }
        match &queue.ended {
            Some(why) => Err(why.clone()),
            None => Ok(None),
        }
    }

    /// Sleeps until there is an event, and takes it; `None` if there is none within `timeout`.
    ///
    /// # Errors
    ///
    /// Why no more will come, after the last one.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<T>, EngineError> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            let left = match timeout.map(|t| t.saturating_sub(start.elapsed())) {
                Some(Duration::ZERO) => return Ok(None),
                left => left,
            };
            wait_for_any(&[self.as_fd()], left).map_err(EngineError::waiting)?;
        }
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.queue().events.len()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the events that are not `wanted`: what they were about is gone.
    pub fn retain(&self, wanted: impl FnMut(&T) -> bool) {
        let mut queue = self.queue();
        let before = queue.events.len();
        queue.events.retain(wanted);
        for _ in queue.events.len()..before {
            let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        }
    }
}

impl<T> AsFd for EventChannel<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

impl<T> fmt::Debug for EventChannel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventChannel({} events)", self.len())
    }
}

/// Sleeps until one of the descriptors is readable; at most `timeout`. A signal ends it early.
pub(super) fn wait_for_any(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: t.as_secs().min(1 << 30) as i64,
        tv_nsec: t.subsec_nanos().into(),
    });
    let mut polled: [PollFd<'_>; 2] =
        std::array::from_fn(|i| PollFd::from_borrowed_fd(fds[i.min(fds.len() - 1)], PollFlags::IN));
    match poll(&mut polled[..fds.len().min(2)], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
