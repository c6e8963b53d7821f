//! One connection as one end knows it.

use super::Attributes;
use super::config::{Endpoint, ack_timeout};
use super::event::Phase;
use crate::card::{AddressVector, Mtu, Peer, QpAttributes, QpType, Reliability};
use crate::time::{Span, Time};
use crate::wire::cm::{CommId, Mad, Message, Rep, Req, ServiceId, Transport};
use crate::wire::{Gid, Psn, QpNumber};

/// A connection, or a question for a datagram service's queue pair.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) phase: Phase,
    /// Where its messages go.
    pub(super) peer: Gid,
    /// The peer's name for it; zero while it is not known.
    pub(super) remote_id: CommId,
    /// What was asked for.
    pub(super) service: ServiceId,
    /// This end was asked.
    pub(super) passive: bool,
    /// Transaction of the exchange that makes it.
    pub(super) tid: u64,
    /// The program has let go of it: nobody is told anything.
    pub(super) abandoned: bool,
    pub(super) deadline: Time,
    /// How long a message waits for an answer.
    pub(super) timeout: Span,
    /// How often a message is sent again.
    pub(super) max_retries: u8,
    pub(super) retries_left: u8,
    /// What is sent again at the deadline.
    pub(super) unanswered: Option<Box<Mad>>,
    /// What answers the peer when it asks again.
    pub(super) answer: Option<Box<Mad>>,
    pub(super) link: Link,
}

/// What the two ends have told each other of their queue pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) qp_type: QpType,
    pub(super) path_mtu: Mtu,
    pub(super) address: Option<AddressVector>,
    pub(super) own: Option<Endpoint>,
    pub(super) peer_qp: QpNumber,
    /// The asker's address, as it gave it.
    pub(super) asker: Gid,
    /// First PSN this end sends.
    pub(super) sq_psn: Psn,
    /// What the peer answers, and what it asks, at a time.
    pub(super) peer_responder_resources: u8,
    pub(super) peer_initiator_depth: u8,
    pub(super) timeout: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
}

impl Link {
    pub(super) fn new(qp_type: QpType, path_mtu: Mtu) -> Link {
        Link {
            qp_type,
            path_mtu,
            address: None,
            own: None,
            peer_qp: QpNumber::default(),
            asker: Gid::default(),
            sq_psn: Psn::default(),
            peer_responder_resources: 0,
            peer_initiator_depth: 0,
            timeout: 0,
            retry_count: 0,
            rnr_retry_count: 0,
        }
    }

    /// What a REQ says to the end that is asked; `None` if no queue pair can be like that.
    pub(super) fn of_request(m: &Req) -> Option<Link> {
        let qp_type = match m.transport {
            Transport::Rc => QpType::Rc,
            Transport::Uc => QpType::Uc,
            Transport::Rd | Transport::Extended => return None,
        };
        let path_mtu = *Mtu::ALL.get(usize::from(m.path_mtu).checked_sub(1)?)?;
        Some(Link {
            peer_qp: m.qp,
            asker: m.primary_local_gid,
            sq_psn: m.starting_psn,
            peer_responder_resources: m.responder_resources,
            peer_initiator_depth: m.initiator_depth,
            timeout: m.primary_ack_timeout,
            retry_count: m.retry_count,
            rnr_retry_count: m.rnr_retry_count,
            ..Link::new(qp_type, path_mtu)
        })
    }

    /// What a REP says to the end that asked.
    pub(super) fn learn(&mut self, m: &Rep, packet_lifetime: u8) {
        self.peer_qp = m.qp;
        self.sq_psn = m.starting_psn;
        self.peer_responder_resources = m.responder_resources;
        self.peer_initiator_depth = m.initiator_depth;
        self.timeout = ack_timeout(m.target_ack_delay, packet_lifetime);
        self.rnr_retry_count = m.rnr_retry_count;
    }

    /// READs and atomics that this end answers, and that it asks: no more than the other end does and takes.
    pub(super) fn reads(&self, own: &Endpoint) -> (u8, u8) {
        (
            own.responder_resources.min(self.peer_initiator_depth),
            own.initiator_depth.min(self.peer_responder_resources),
        )
    }

    pub(super) fn attributes(&self) -> Option<Attributes> {
        let own = self.own?;
        let (answered, asked) = self.reads(&own);
        let reliability = (self.qp_type == QpType::Rc).then_some(Reliability {
            timeout: self.timeout,
            retry_cnt: self.retry_count,
            rnr_retry: self.rnr_retry_count,
            min_rnr_timer: own.min_rnr_timer,
            max_rd_atomic: asked,
            max_dest_rd_atomic: answered,
        });
        let peer = Peer {
            address: self.address?,
            path_mtu: self.path_mtu,
            qp: self.peer_qp,
            psn: own.rq_psn,
        };
        Some(Attributes {
            rtr: QpAttributes::to_rtr(&peer, reliability.as_ref()),
            rts: QpAttributes::to_rts(self.sq_psn, reliability.as_ref()),
        })
    }
}

impl Connection {
    pub(super) fn new(
        phase: Phase,
        peer: Gid,
        service: ServiceId,
        tid: u64,
        link: Link,
    ) -> Connection {
        Connection {
            phase,
            peer,
            remote_id: CommId(0),
            service,
            passive: false,
            tid,
            abandoned: false,
            deadline: Time::NEVER,
            timeout: Span::ZERO,
            max_retries: 0,
            retries_left: 0,
            unanswered: None,
            answer: None,
            link,
        }
    }

    /// The peer's name, if a message with this one can be from it.
    pub(super) fn is_peer(&self, from: Gid, remote_id: CommId) -> bool {
        self.peer == from && self.remote_id == remote_id
    }

    /// Remembers a message that waits for an answer.
    pub(super) fn expects_answer(&mut self, message: Message, tid: u64) -> Mad {
        let mad = Mad::new(tid, message);
        self.unanswered = Some(Box::new(mad));
        self.retries_left = self.max_retries;
        mad
    }
}
