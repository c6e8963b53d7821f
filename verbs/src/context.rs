//! An opened device, and what is its own: protection domains, completion queues, events, time.

use crate::attributes::{DeviceAttributes, GidEntry, PortAttributes};
use crate::completion::{ChannelInner, CompletionChannel, CompletionQueue};
use crate::domain::ProtectionDomain;
use crate::error::Result;
use crate::event::AsyncEvent;
use crate::exchange::{Partner, Role};
use crate::provider::{Join, Provider};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// See [`Context::telling`].
type Tell = dyn Fn(&Role) + Send + Sync;

/// An opened device (`ibv_context`). Clones are of the same one; it is closed when the last object made
/// from it is gone.
#[derive(Clone)]
#[doc(alias = "ibv_context")]
pub struct Context {
    pub(crate) provider: Arc<dyn Provider>,
    tell: Option<Arc<Tell>>,
}

impl Context {
    pub(crate) fn new(provider: Arc<dyn Provider>) -> Context {
        Context {
            provider,
            tell: None,
        }
    }

    /// Name of the device.
    #[doc(alias = "ibv_get_device_name")]
    pub fn device_name(&self) -> &str {
        self.provider.name()
    }

    /// What the device can do.
    ///
    /// # Errors
    ///
    /// If the device does not answer.
    #[doc(alias = "ibv_query_device")]
    pub fn query_device(&self) -> Result<DeviceAttributes> {
        self.provider.query_device()
    }

    /// What a port is like; ports are numbered from 1.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`](crate::Error::NoSuch) if there is no such port.
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<PortAttributes> {
        self.provider.query_port(port)
    }

    /// An address of a port, by its place in the port's table.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`](crate::Error::NoSuch) if there is no such port or place.
    #[doc(alias = "ibv_query_gid", alias = "ibv_query_gid_ex")]
    pub fn query_gid(&self, port: u8, index: u32) -> Result<GidEntry> {
        self.provider.query_gid(port, index)
    }

    /// The place in the GID table of port 1 that packets of this device come from.
    pub fn gid_index(&self) -> u32 {
        self.provider.gid_index()
    }

    /// A new protection domain.
    ///
    /// # Errors
    ///
    /// If the device has none left.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain> {
        ProtectionDomain::alloc(self)
    }

    /// A channel in which completion queues tell of completions.
    ///
    /// # Errors
    ///
    /// If the device has none left.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(&self) -> Result<CompletionChannel> {
        let handle = self.provider.create_comp_channel()?;
        Ok(CompletionChannel(Arc::new(ChannelInner {
            context: self.clone(),
            handle,
        })))
    }

    /// A completion queue for `cqe` completions; it tells of them in `channel` if it is asked to
    /// ([`CompletionQueue::req_notify`]).
    ///
    /// # Errors
    ///
    /// [`CreateError`](crate::CreateError) if `cqe` is out of range.
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(
        &self,
        cqe: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue> {
        CompletionQueue::create(self, cqe, channel)
    }

    /// The next asynchronous event, waited for at most `timeout`, or for ever. It is acknowledged by being
    /// taken.
    ///
    /// # Errors
    ///
    /// If the device is broken.
    #[doc(alias = "ibv_get_async_event", alias = "ibv_ack_async_event")]
    pub fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        self.provider.next_async_event(timeout)
    }

    /// Time since some moment in the past, which never goes back: on real devices since they were opened, by a monotonic
    /// clock; virtual on virtual ones.
    pub fn now(&self) -> Duration {
        self.provider.now()
    }

    /// Lets time pass.
    ///
    /// # Errors
    ///
    /// [`Error::NotAProgram`](crate::Error::NotAProgram) in virtual time, on a thread that the network does not know.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        self.provider.sleep(time)
    }

    /// For a program that waits for its memory to change, has looked there in vain, and its completion queues with it, and
    /// will only look again, for as long as `limit`. In virtual time the looks that would find nothing are spared: this
    /// ends at the next one that may find something, a completion too, or after `limit`, and what the program sees is the
    /// same as if it had polled an empty completion queue in between; true is returned. In real time this tells the
    /// processor that somebody spins, and returns false. A program that waits for completions alone has
    /// [`CompletionQueue::rest`], which wakes it less often.
    ///
    /// # Errors
    ///
    /// As [`Context::sleep`].
    #[inline]
    pub fn rest(&self, limit: Duration) -> Result<bool> {
        let rested = self.provider.rest(limit)?;
        if !rested {
            std::hint::spin_loop();
        }
        Ok(rested)
    }

    /// Runs `program` beside the caller, in the device's own time: a thread, which in virtual time takes
    /// turns with all others.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn spawn<T: Send + 'static>(
        &self,
        program: impl FnOnce(Context) -> T + Send + 'static,
    ) -> Result<Spawned<T>> {
        let outcome = Arc::new(std::sync::Mutex::new(None));
        let (slot, context) = (outcome.clone(), self.clone());
        let join = self.provider.spawn(Box::new(move || {
            let value = program(context);
            *slot.lock().unwrap_or_else(|e| e.into_inner()) = Some(value);
        }))?;
        Ok(Spawned { join, outcome })
    }

    /// Meets the program in the other role, to tell each other addresses and keys. A server waits for a client for
    /// ever, a client for a server as long as its role says; in virtual time there is no limit.
    ///
    /// # Errors
    ///
    /// If there is nobody.
    pub fn exchange(&self, role: &Role) -> Result<Partner> {
        let quiet = |_: &Role| {};
        let tell: &dyn Fn(&Role) = match &self.tell {
            Some(tell) => &**tell,
            None => &quiet,
        };
        Ok(Partner::new(self.provider.exchange(role, tell)?))
    }

    /// This context, with somebody to tell when an [exchange](Context::exchange) in real time has to wait: of a server's
    /// role with the address that it listens at, even if the system has chosen the port; of a client's once nobody was
    /// there.
    pub fn telling(&self, tell: impl Fn(&Role) + Send + Sync + 'static) -> Context {
        Context {
            provider: self.provider.clone(),
            tell: Some(Arc::new(tell)),
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.device_name())
    }
}

/// A program that runs beside its maker ([`Context::spawn`]).
pub struct Spawned<T> {
    join: Box<dyn Join>,
    outcome: Arc<std::sync::Mutex<Option<T>>>,
}

impl<T> Spawned<T> {
    /// Waits until it has ended; `None` if it panicked.
    ///
    /// # Errors
    ///
    /// As [`Context::sleep`]; in virtual time also if nothing is left that could let it end.
    pub fn join(self) -> Result<Option<T>> {
        self.join.join()?;
        Ok(self
            .outcome
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .take())
    }
}

impl<T> fmt::Debug for Spawned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawned")
    }
}
