//! Waiting for events: by poll(2), for a time, on descriptors that do not block. Several threads may wait for the
//! same; one takes the event, and the others go on waiting.

use super::IbvProvider;
use super::abi::{ibv_async_event, ibv_qp};
use crate::event::{AsyncEvent, CqId, SrqId};
use crate::provider::Handle;
use crate::{Error, QpNumber, Result};
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Has reads of a descriptor of libibverbs' fail rather than wait.
///
/// # Safety
///
/// The descriptor is open.
pub(super) unsafe fn do_not_block(fd: i32) -> Result<()> {
    // SAFETY: the caller says so.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::ioctl_fionbio(fd, true).map_err(|e| Error::Os {
        call: "making an event descriptor non-blocking".into(),
        source: e.into(),
    })
}

/// The next event that makes `fd` readable, as `take` takes it, which gives `None` if another thread was there
/// first. `None` if there is none within `timeout`.
pub(super) fn next<T>(
    device: &str,
    fd: i32,
    timeout: Option<Duration>,
    mut take: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    // Later than there are instants is never.
    let limit = timeout.and_then(|t| Instant::now().checked_add(t));
    loop {
        if !readable(device, fd, limit)? {
            return Ok(None);
        }
        if let Some(event) = take()? {
            return Ok(Some(event));
        }
    }
}

/// Waits until there is something to read; false if `limit` comes first.
fn readable(device: &str, fd: i32, limit: Option<Instant>) -> Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    // SAFETY: the descriptor belongs to an object that the caller keeps.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    loop {
        let left = limit.map(|l| l.saturating_duration_since(Instant::now()));
        let left = left.map(|t| Timespec {
            tv_sec: t.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], left.as_ref()) {
            Ok(n) => return Ok(n > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                return Err(Error::Os {
                    call: format!("waiting for an event of {device}"),
                    source: e.into(),
                });
            }
        }
    }
}

/// After a call that takes an event has failed: `None` if that is because there was none any more.
pub(super) fn taken<T>(call: &str) -> Result<Option<T>> {
    let source = std::io::Error::last_os_error();
    match source.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
        _ => Err(Error::Os {
            call: call.into(),
            source,
        }),
    }
}

impl IbvProvider {
    /// The next asynchronous event; `None` if there is none.
    pub(super) fn take_async_event(&self) -> Result<Option<AsyncEvent>> {
        let mut event = ibv_async_event {
            element: std::ptr::null_mut(),
            event_type: 0,
        };
        // SAFETY: the context is open; the element is what the type says it is, and lives at least until the
        // event is acknowledged.
        unsafe {
            let get = self.context.verbs.ibv_get_async_event;
            if get(self.context.context, &raw mut event) != 0 {
                return taken("ibv_get_async_event");
            }
            let of_qp = || QpNumber::new((*event.element.cast::<ibv_qp>()).qp_num);
            // The union's number lies where the pointer begins.
            let of_port = || (&raw const event.element).cast::<i32>().read() as u8;
            let handle = event.element as Handle;
            let translated = match event.event_type {
                0 => AsyncEvent::CqError(CqId(handle)),
                1 => AsyncEvent::QpFatal(of_qp()),
                2 => AsyncEvent::QpRequestError(of_qp()),
                3 => AsyncEvent::QpAccessError(of_qp()),
                4 => AsyncEvent::CommunicationEstablished(of_qp()),
                5 => AsyncEvent::SqDrained(of_qp()),
                8 => AsyncEvent::DeviceFatal,
                9 => AsyncEvent::PortActive(of_port()),
                10 => AsyncEvent::PortError(of_port()),
                14 => AsyncEvent::SrqError(SrqId(handle)),
                15 => AsyncEvent::SrqLimitReached(SrqId(handle)),
                16 => AsyncEvent::LastWqeReached(of_qp()),
                18 => AsyncEvent::GidChange(of_port()),
                n => AsyncEvent::Other(n as u32),
            };
            (self.context.verbs.ibv_ack_async_event)(&raw mut event);
            Ok(Some(translated))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    fn bell() -> File {
        let bell = File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        // SAFETY: it is open.
        unsafe { do_not_block(bell.as_raw_fd()) }.unwrap();
        bell
    }

    /// Takes what is there as libibverbs' functions do: by the C library's read, which leaves the error in errno.
    fn take(mut bell: &File) -> Result<Option<u64>> {
        let mut value = [0; 8];
        match bell.read_exact(&mut value) {
            Ok(()) => Ok(Some(u64::from_ne_bytes(value))),
            Err(_) => taken("read"),
        }
    }

    #[test]
    fn of_several_threads_that_wait_one_has_the_event_and_the_others_wait_their_time() {
        let bell = bell();
        let limit = Duration::from_millis(300);
        let wait = |timeout| next("x", bell.as_raw_fd(), Some(timeout), || take(&bell));
        let start = Instant::now();
        let mut found: Vec<Option<u64>> = std::thread::scope(|s| {
            let threads = [0; 4].map(|_| s.spawn(|| wait(limit).unwrap()));
            std::thread::sleep(Duration::from_millis(30));
            rustix::io::write(&bell, &5u64.to_ne_bytes()).unwrap();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(start.elapsed() >= limit);
        found.sort_unstable();
        assert_eq!(found, [None, None, None, Some(5)]);
    }

    #[test]
    fn an_event_that_another_thread_takes_is_not_waited_for_beyond_the_timeout() {
        let bell = bell();
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
        let mut looks = 0;
        let found = next(
            "x",
            bell.as_raw_fd(),
            Some(Duration::from_millis(20)),
            || {
                looks += 1;
                // Between the wait and the look.
                take(&bell)?;
                take(&bell)
            },
        );
        assert_eq!((found.unwrap(), looks), (None, 1));
    }

    #[test]
    fn the_longest_timeout_is_for_ever() {
        let bell = bell();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                next("x", bell.as_raw_fd(), Some(Duration::MAX), || take(&bell)).unwrap()
            });
            std::thread::sleep(Duration::from_millis(20));
            rustix::io::write(&bell, &2u64.to_ne_bytes()).unwrap();
            assert_eq!(waiter.join().unwrap(), Some(2));
        });
    }
}
