//! What a device has to be able to do. Everything above this door is the same for all of them.
//!
//! | file | what |
//! |---|---|
//! | `card` | a software card, however one gets at it |
//! | [`sim`] | programs on cards of a network in virtual time |
//! | [`port`] | a card on a port, in real time (Linux) |
//! | `ibverbs` | what libibverbs lists |
//!
//! The trait is flat, as libibverbs is: objects are named by handles, and the types of this crate that
//! own the handles see to it that none outlives what it needs. Posting and polling have objects of
//! their own, since they are what has to be fast.

mod card;
#[cfg(target_os = "linux")]
pub(crate) mod ibverbs;
#[cfg(target_os = "linux")]
pub mod port;
pub mod sim;

use crate::attributes::{DeviceAttributes, GidEntry, PortAttributes};
use crate::cm::{CommId, ConnParam, Event, ServiceId};
use crate::error::{BadRequest, Result};
use crate::event::AsyncEvent;
use crate::exchange::{Exchange, Role};
use crate::{
    Access, AddressId, AddressVector, Binding, Buffer, Completion, Gid, Notify, PostError,
    QpAttributes, QpCap, QpNumber, QpType, RecvRequest, RemoteKey, SendRequest, WindowType,
};
use softroce_sim::memory::MemoryRegion;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Names an object of a provider: a number, or an address. Whoever has it destroys it once.
pub(crate) type Handle = usize;

/// A number for an opened device, which tells what is made on it from what is made on others.
pub(crate) fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A queue pair to be made, by handles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpSpec {
    pub(crate) qp_type: QpType,
    pub(crate) pd: Handle,
    pub(crate) send_cq: Handle,
    pub(crate) recv_cq: Handle,
    pub(crate) srq: Option<Handle>,
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline: u32,
}

/// An opened device.
pub(crate) trait Provider: Send + Sync {
    fn name(&self) -> &str;
    /// Tells it from others: see [`next_number`].
    fn number(&self) -> u32;
    fn query_device(&self) -> Result<DeviceAttributes>;
    fn query_port(&self, port: u8) -> Result<PortAttributes>;
    fn query_gid(&self, port: u8, index: u32) -> Result<GidEntry>;

    /// The place in the GID table of port 1 that its packets come from.
    fn gid_index(&self) -> u32 {
        0
    }

    fn alloc_pd(&self) -> Result<Handle>;
    fn dealloc_pd(&self, pd: Handle);

    /// Registers `memory`, which the caller keeps alive until [`Provider::dereg_mr`].
    fn reg_mr(&self, pd: Handle, memory: &Buffer, access: Access)
    -> Result<(Handle, MemoryRegion)>;
    /// After an error the region is as before, and the device may touch the memory.
    fn dereg_mr(&self, mr: Handle) -> Result<()>;
    fn alloc_mw(&self, pd: Handle, kind: WindowType) -> Result<(Handle, RemoteKey)>;
    fn dealloc_mw(&self, mw: Handle);

    fn create_ah(&self, pd: Handle, address: &AddressVector) -> Result<AddressId>;
    fn destroy_ah(&self, ah: AddressId);

    fn create_comp_channel(&self) -> Result<Handle>;
    fn destroy_comp_channel(&self, channel: Handle);
    /// The completion queue whose event is next in a channel; `None` if none came in time. Acknowledged
    /// by being given out.
    fn next_comp_event(&self, channel: Handle, timeout: Option<Duration>)
    -> Result<Option<Handle>>;

    fn create_cq(
        &self,
        cqe: u32,
        channel: Option<Handle>,
    ) -> Result<(Handle, Box<dyn CompletionQueue>)>;
    /// Called after its [`CompletionQueue`] was dropped, and once no queue pair uses it.
    fn destroy_cq(&self, cq: Handle);

    fn create_srq(
        &self,
        pd: Handle,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<(Handle, Box<dyn SharedReceiveQueue>)>;
    fn set_srq_limit(&self, srq: Handle, limit: u32) -> Result<()>;
    fn destroy_srq(&self, srq: Handle);

    fn create_qp(&self, spec: &QpSpec) -> Result<(Handle, Box<dyn QueuePair>)>;
    fn modify_qp(&self, qp: Handle, attributes: &QpAttributes) -> Result<()>;
    fn query_qp(&self, qp: Handle) -> Result<QpAttributes>;
    /// Binds a window of type 1, and gives its new key.
    fn bind_mw(&self, qp: Handle, mw: Handle, binding: &Binding) -> Result<RemoteKey>;
    fn attach_mcast(&self, qp: Handle, group: Gid) -> Result<()>;
    fn detach_mcast(&self, qp: Handle, group: Gid) -> Result<()>;
    /// Called after its [`QueuePair`] was dropped.
    fn destroy_qp(&self, qp: Handle);

    /// The next asynchronous event; `None` if none came in time.
    fn next_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>>;

    /// Time since some moment in the past; never goes back.
    fn now(&self) -> Duration;
    fn sleep(&self, time: Duration) -> Result<()>;
    /// After a look into memory that found nothing new: see [`Context::rest`](crate::Context::rest).
    fn rest(&self, _limit: Duration) -> Result<bool> {
        Ok(false)
    }
    /// Runs `program` beside the caller, in the provider's time.
    fn spawn(&self, program: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>>;
    /// Meets the program in the other role; in real time `tell` is told of the wait for it.
    fn exchange(&self, role: &Role, tell: &dyn Fn(&Role)) -> Result<Box<dyn Exchange>>;

    /// The connection manager of its port.
    fn connection_manager(&self) -> Result<Box<dyn ConnectionManager>> {
        Err(crate::Error::Unsupported {
            device: self.name().into(),
            what: "connection manager in this program; exchange addresses over TCP".into(),
        })
    }
}

/// Makes and ends connections.
pub(crate) trait ConnectionManager: Send {
    fn listen(&mut self, service: ServiceId) -> Result<()>;
    fn connect(
        &mut self,
        to: &AddressVector,
        service: ServiceId,
        qp: Handle,
        qp_type: QpType,
        param: &ConnParam<'_>,
    ) -> Result<CommId>;
    fn accept(&mut self, id: CommId, qp: Handle, param: &ConnParam<'_>) -> Result<()>;
    fn reject(&mut self, id: CommId, private_data: &[u8]) -> Result<()>;
    fn disconnect(&mut self, id: CommId) -> Result<()>;
    /// The next event; `None` if none came in time.
    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event>>;
}

/// A program that was started by [`Provider::spawn`].
pub(crate) trait Join: Send {
    /// Waits until it has ended.
    fn join(self: Box<Self>) -> Result<()>;
}

/// Takes completions out.
pub(crate) trait CompletionQueue: Send {
    /// Fills `out` from its beginning; how many there were. None at all lets time pass.
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize>;
    /// After a poll that found nothing: see [`CompletionQueue::rest`](crate::CompletionQueue::rest).
    fn rest(&mut self, _limit: Duration) -> Result<bool> {
        Ok(false)
    }
    fn req_notify(&mut self, which: Notify) -> Result<()>;
    fn resize(&mut self, cqe: u32) -> Result<()>;
}

/// Takes requests in.
pub(crate) trait QueuePair: Send {
    fn number(&self) -> QpNumber;
    /// What it was granted.
    fn cap(&self) -> QpCap;
    fn post_send(&mut self, request: &SendRequest<'_>) -> std::result::Result<(), PostError>;
    /// As many, with one doorbell; with `signal_all` each asks for a completion.
    fn post_send_list(
        &mut self,
        requests: &[SendRequest<'_>],
        signal_all: bool,
    ) -> std::result::Result<(), BadRequest>;
    fn post_recv(&mut self, request: &RecvRequest<'_>) -> std::result::Result<(), PostError>;
}

/// Takes receive requests in, for several queue pairs.
pub(crate) trait SharedReceiveQueue: Send {
    fn post_recv(&mut self, request: &RecvRequest<'_>) -> std::result::Result<(), PostError>;
}

/// A program on a thread of its own, in real time.
pub(crate) fn spawn_thread(program: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
    let thread = std::thread::Builder::new().spawn(program);
    let thread = thread.map_err(|source| crate::Error::Os {
        call: "starting a thread for another program".into(),
        source,
    })?;
    Ok(Box::new(thread))
}

impl Join for std::thread::JoinHandle<()> {
    fn join(self: Box<Self>) -> Result<()> {
        // That it panicked shows in what it did not leave behind.
        let _ = std::thread::JoinHandle::join(*self);
        Ok(())
    }
}
