//! What a program did not ask for, and what it asked to be told of.

use crate::provider::Handle;
use softroce_sim::wire::QpNumber;

/// Names a completion queue in events ([`CompletionQueue::id`](crate::CompletionQueue::id)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub(crate) Handle);

/// Names a shared receive queue in events ([`SharedReceiveQueue::id`](crate::SharedReceiveQueue::id)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub(crate) Handle);

/// An asynchronous event, with what it is of (`ibv_async_event`, 11.6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[doc(alias = "ibv_async_event")]
pub enum AsyncEvent {
    /// `IBV_EVENT_CQ_ERR`: a completion queue ran over.
    CqError(CqId),
    /// `IBV_EVENT_QP_FATAL`: a queue pair went into error without a request to blame.
    QpFatal(QpNumber),
    /// `IBV_EVENT_QP_REQ_ERR`: a peer's request was invalid.
    QpRequestError(QpNumber),
    /// `IBV_EVENT_QP_ACCESS_ERR`: a peer's request had a key, range or rights that do not allow it.
    QpAccessError(QpNumber),
    /// `IBV_EVENT_COMM_EST`: the first packet arrived while the queue pair was ready to receive.
    CommunicationEstablished(QpNumber),
    /// `IBV_EVENT_SQ_DRAINED`: nothing of the send queue is under way any more.
    SqDrained(QpNumber),
    /// `IBV_EVENT_QP_LAST_WQE_REACHED`: a queue pair in error takes nothing from its shared receive queue
    /// any more.
    LastWqeReached(QpNumber),
    /// `IBV_EVENT_SRQ_LIMIT_REACHED`: fewer requests than its limit wait; the limit is zero from here on.
    SrqLimitReached(SrqId),
    /// `IBV_EVENT_SRQ_ERR`: a shared receive queue is in error.
    SrqError(SrqId),
    /// `IBV_EVENT_PORT_ACTIVE`: a port can be used.
    PortActive(u8),
    /// `IBV_EVENT_PORT_ERR`: a port cannot be used any more.
    PortError(u8),
    /// `IBV_EVENT_GID_CHANGE`: the GID table of a port has changed.
    GidChange(u8),
    /// `IBV_EVENT_DEVICE_FATAL`: the device is broken.
    DeviceFatal,
    /// Another one, by the number that `ibv_event_type` gives it.
    Other(u32),
}
