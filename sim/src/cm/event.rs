//! What a communication manager tells programs, and what it refuses to do for them.

use crate::card::{Mtu, QpType};
use crate::wire::cm::{CommId, IpHeader, RejectReason, ServiceId, SidrStatus};
use crate::wire::{Gid, QpNumber};
use std::collections::VecDeque;
use std::fmt;

/// What has happened to a connection; named after rdma_cm's events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Someone asks for a connection, or for a datagram service's queue pair. The program accepts or rejects.
    ConnectRequest {
        /// The new connection.
        id: CommId,
        /// What is asked for.
        request: Request,
    },
    /// The peer has accepted. The program brings its queue pair to RTS with [`Cm::attributes`](super::Cm::attributes),
    /// then calls [`Cm::establish`](super::Cm::establish); or rejects.
    ConnectResponse {
        /// The connection.
        id: CommId,
        /// What the peer's program says.
        private_data: Vec<u8>,
    },
    /// Both ends are ready.
    Established {
        /// The connection.
        id: CommId,
    },
    /// A datagram service is found (rdma_cm: ESTABLISHED with `param.ud`).
    Resolved {
        /// The question; it has no meaning any more.
        id: CommId,
        /// Where to send.
        peer: Gid,
        /// The service's queue pair.
        qp: QpNumber,
        /// Its Q_Key.
        qkey: u32,
        /// What the peer's program says.
        private_data: Vec<u8>,
    },
    /// The peer said no. The connection is gone; one that was established is in TIMEWAIT.
    Rejected {
        /// The connection.
        id: CommId,
        /// Why.
        reason: Reason,
        /// What the peer's program says.
        private_data: Vec<u8>,
    },
    /// The peer does not answer. The connection is gone.
    Unreachable {
        /// The connection.
        id: CommId,
    },
    /// The connection has ended, or is given up: the queue pair is to go to the error state. It is in TIMEWAIT.
    Disconnected {
        /// The connection.
        id: CommId,
    },
    /// Packets of the connection cannot be on their way any more. The connection is gone.
    TimewaitExit {
        /// The connection.
        id: CommId,
    },
}

impl Event {
    /// Takes back a request that the program has not seen among `events`, as who asked has; true if it was there.
    pub fn take_back(events: &mut VecDeque<Event>, id: CommId) -> bool {
        let asks = |e: &Event| matches!(e, Event::ConnectRequest { id: asked, .. } if *asked == id);
        let place = events.iter().position(asks);
        place.is_some_and(|place| events.remove(place).is_some())
    }
}

/// Why a peer said no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Reason of a REJ.
    Rejected(RejectReason),
    /// Status of a SIDR_REP.
    Datagrams(SidrStatus),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Rejected(reason) => reason.fmt(f),
            Reason::Datagrams(status) => status.fmt(f),
        }
    }
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What the asker wants to connect to.
    pub service: ServiceId,
    /// Its address.
    pub peer: Gid,
    /// Who asks, if the service is an IP port.
    pub ip: Option<IpHeader>,
    /// The connection; `None` if it is a datagram service's queue pair that is asked for.
    pub connection: Option<RequestedConnection>,
    /// What the asker's program says: zeros to the end of its place follow.
    pub private_data: Vec<u8>,
}

/// What the asker wants of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestedConnection {
    /// `Rc` or `Uc`.
    pub qp_type: QpType,
    /// The asker's queue pair.
    pub qp: QpNumber,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// READs and atomics the asker will have outstanding: what the end here has to answer.
    pub responder_resources: u8,
    /// READs and atomics the asker answers: what the end here may have outstanding.
    pub initiator_depth: u8,
    /// The asker's acknowledgements carry credits.
    pub flow_control: bool,
    /// Retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry_count: u8,
    /// The asker takes receives from a shared queue.
    pub srq: bool,
}

impl Event {
    /// The connection it is about.
    pub fn id(&self) -> CommId {
        match *self {
            Event::ConnectRequest { id, .. }
            | Event::ConnectResponse { id, .. }
            | Event::Established { id }
            | Event::Resolved { id, .. }
            | Event::Rejected { id, .. }
            | Event::Unreachable { id }
            | Event::Disconnected { id }
            | Event::TimewaitExit { id } => id,
        }
    }

    /// Its name in rdma_cm, without the prefix `RDMA_CM_EVENT_`.
    pub fn name(&self) -> &'static str {
        match self {
            Event::ConnectRequest { .. } => "CONNECT_REQUEST",
            Event::ConnectResponse { .. } => "CONNECT_RESPONSE",
            Event::Established { .. } | Event::Resolved { .. } => "ESTABLISHED",
            Event::Rejected { .. } => "REJECTED",
            Event::Unreachable { .. } => "UNREACHABLE",
            Event::Disconnected { .. } => "DISCONNECTED",
            Event::TimewaitExit { .. } => "TIMEWAIT_EXIT",
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Asked for.
    ReqSent,
    /// Asked for by the peer; the program here has not answered.
    ReqReceived,
    /// Accepted here.
    RepSent,
    /// Accepted by the peer; the program here is not ready yet.
    RepReceived,
    /// Both ends are ready.
    Established,
    /// To end.
    DreqSent,
    /// Ended; packets may still be on their way.
    Timewait,
    /// A datagram service is asked for.
    SidrReqSent,
    /// The peer asks for a datagram service; the program here has not answered.
    SidrReqReceived,
    /// Answered; the peer may not have heard it.
    SidrRepSent,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::ReqSent => "REQ sent",
            Phase::ReqReceived => "REQ received",
            Phase::RepSent => "REP sent",
            Phase::RepReceived => "REP received",
            Phase::Established => "established",
            Phase::DreqSent => "DREQ sent",
            Phase::Timewait => "timewait",
            Phase::SidrReqSent => "SIDR_REQ sent",
            Phase::SidrReqReceived => "SIDR_REQ received",
            Phase::SidrRepSent => "SIDR_REP sent",
        })
    }
}

/// Why something was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmError {
    /// No connection has that name, or not any more.
    #[error("there is no connection {0}")]
    UnknownConnection(CommId),
    /// The connection is not so far, or further.
    #[error("connection {id} cannot be {what}: it is at \"{phase}\"")]
    WrongPhase {
        /// The connection.
        id: CommId,
        /// What was to be done to it.
        what: &'static str,
        /// How far it is.
        phase: Phase,
    },
    /// Private data does not fit.
    #[error("{len} bytes of private data do not fit into a {message}, which has room for {limit}")]
    PrivateData {
        /// The message.
        message: &'static str,
        /// Bytes given.
        len: usize,
        /// Bytes there is room for.
        limit: usize,
    },
    /// Someone listens there already.
    #[error("someone listens at {0} already")]
    InUse(ServiceId),
    /// Nobody listens there.
    #[error("nobody listens at {0}")]
    NotListening(ServiceId),
    /// The peer's address is of another kind (IPv4, IPv6) than this end's.
    #[error("address {0} cannot be reached from this card's address")]
    Unreachable(Gid),
    /// There are too many connections.
    #[error("{0} connections exist, the most there may be")]
    Full(u32),
    /// A value does not fit into a message.
    #[error("{what} is {value}; the largest value is {limit}")]
    OutOfRange {
        /// What.
        what: &'static str,
        /// Value given.
        value: u8,
        /// Largest value.
        limit: u8,
    },
    /// Connections have queue pairs of type RC or UC.
    #[error("{0:?} is not the type of a connection")]
    NotConnected(QpType),
}
