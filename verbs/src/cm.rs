//! Connections by the connection manager: who listens is found by address and service, and the managers of
//! both ends bring the queue pairs up (rdma_cm).
//!
//! Works on software cards. Peers are answered whatever the program does, and what they do not answer is sent again, as by
//! Linux' manager. The end of a connection is answered too, and puts its queue pair into error: with rdma_cm that waits for
//! the program's `rdma_disconnect`. What the program is to be told waits for [`EventChannel::get_event`]. Two things wait for the program
//! itself: the answer to a request, and the last step of a connection that it has asked for, which
//! [`EventChannel::get_event`] makes; meanwhile the peer is told to wait.
//!
//! | rdma_cm | here |
//! |---|---|
//! | `rdma_create_event_channel` | [`EventChannel::open`] |
//! | `rdma_listen` | [`EventChannel::listen`] |
//! | `rdma_connect`, `rdma_accept`, `rdma_reject`, `rdma_disconnect` | the same names |
//! | `rdma_get_cm_event` | [`EventChannel::get_event`] |

use crate::context::Context;
use crate::error::{Error, Result};
use crate::provider;
use crate::queue_pair::QueuePair;
use crate::{Access, AddressVector, Mtu, QpType};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use softroce_sim::cm::{
    AgentError, CmError, Event, Phase, Reason, Request, RequestedConnection,
};
pub use softroce_sim::wire::cm::{CommId, PortSpace, RejectReason, ServiceId};

/// What a connection is to be like (`rdma_conn_param`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "rdma_conn_param")]
pub struct ConnParam<'a> {
    /// What the peer's program is told.
    pub private_data: &'a [u8],
    /// READs and atomics that the peer may have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that this end will have outstanding.
    pub initiator_depth: u8,
    /// Retries on timeouts, 0 to 7; the asking end decides for both.
    pub retry_count: u8,
    /// RNR retries of the peer, 7 for ever.
    pub rnr_retry_count: u8,
    /// Path MTU; the asking end decides.
    pub path_mtu: Mtu,
    /// What the peer may do through the queue pair.
    pub access: Access,
}

impl Default for ConnParam<'_> {
    /// No private data, 16 READs and atomics each way, 7 retries, RNR retries for ever, path MTU 1024, and
    /// everything allowed that the keys allow.
    fn default() -> Self {
        ConnParam {
            private_data: &[],
            responder_resources: 16,
            initiator_depth: 16,
            retry_count: 7,
            rnr_retry_count: 7,
            path_mtu: Mtu::M1024,
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
        }
    }
}

/// The connection manager of a device's port, for one program (`rdma_event_channel`). When it is dropped, connections that
/// are not made yet are forgotten, and peers that ask hear nothing.
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    manager: Box<dyn provider::ConnectionManager>,
    context: Context,
}

impl EventChannel {
    /// Opens the connection manager. A device has one at a time: it works on queue pair 1.
    ///
    /// # Errors
    ///
    /// If another program has it; [`Error::Unsupported`] on devices of libibverbs.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn open(context: &Context) -> Result<EventChannel> {
        Ok(EventChannel {
            manager: context.provider.connection_manager()?,
            context: context.clone(),
        })
    }

    /// Requests for `service` come as [`Event::ConnectRequest`] from here on.
    ///
    /// # Errors
    ///
    /// [`Error::Cm`] if someone listens there already.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&mut self, service: ServiceId) -> Result<()> {
        self.manager.listen(service)
    }

    /// Asks whoever listens for `service` at an address for a connection with `qp`, which is in RESET. It is
    /// usable when [`Event::Established`] comes.
    ///
    /// # Errors
    ///
    /// [`Error::Cm`] names what cannot be asked for.
    #[doc(alias = "rdma_connect")]
    pub fn connect(
        &mut self,
        to: &AddressVector,
        service: ServiceId,
        qp: &QueuePair,
        param: &ConnParam<'_>,
    ) -> Result<CommId> {
        self.check(qp)?;
        self.manager
            .connect(to, service, qp.handle(), qp.qp_type(), param)
    }

    /// Accepts a request with `qp`, which is in RESET. It can receive from here on; it is usable when
    /// [`Event::Established`] comes.
    ///
    /// # Errors
    ///
    /// [`Error::Cm`] if the request has gone, [`Error::Modify`] if the queue pair is not in RESET. The request, if it is
    /// there, waits on, and the peer has heard nothing.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&mut self, id: CommId, qp: &QueuePair, param: &ConnParam<'_>) -> Result<()> {
        self.check(qp)?;
        self.manager.accept(id, qp.handle(), param)
    }

    /// Says no to a request.
    ///
    /// # Errors
    ///
    /// [`Error::Cm`] if the request has gone.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&mut self, id: CommId, private_data: &[u8]) -> Result<()> {
        self.manager.reject(id, private_data)
    }

    /// Ends a connection. Its queue pair goes into error, at both ends, when that is known there:
    /// [`Event::Disconnected`] tells of it. So it does when a connection that was accepted ends by [`Event::Rejected`] or
    /// [`Event::Unreachable`].
    ///
    /// # Errors
    ///
    /// [`Error::Cm`] if there is no such connection.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&mut self, id: CommId) -> Result<()> {
        self.manager.disconnect(id)
    }

    /// The next event, waited for at most `timeout`, or for ever; `None` if none came in time. A request that
    /// the peer accepts needs nothing more of the program: its queue pair is brought up and
    /// [`Event::Established`] comes.
    ///
    /// # Errors
    ///
    /// If the device is broken, or a queue pair cannot be brought up.
    #[doc(alias = "rdma_get_cm_event", alias = "rdma_ack_cm_event")]
    pub fn get_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event>> {
        self.manager.next_event(timeout)
    }

    fn check(&self, qp: &QueuePair) -> Result<()> {
        if !Arc::ptr_eq(&qp.pd().context().provider, &self.context.provider) {
            return Err(Error::Foreign("queue pair"));
        }
        match qp.qp_type() {
            QpType::Rc | QpType::Uc => Ok(()),
            QpType::Ud => Err(Error::Invalid(
                "a queue pair for datagrams has no connections".into(),
            )),
        }
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventChannel({:?})", self.context)
    }
}
