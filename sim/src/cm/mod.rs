//! The communication manager: how queue pairs of two hosts find each other (chapter 12; annex A11 for IP ports).
//!
//! | file | what |
//! |---|---|
//! | this one | what a program asks for, time, what comes out |
//! | `receive` | what a message of the peer does |
//! | `steps` | what both lead to: deadlines, refusals, ends |
//! | `connection` | one connection as one end knows it |
//! | [`config`](CmConfig) | what a manager is like, what programs tell it |
//! | [`event`](Event) | what it tells programs |
//! | [`agent`](Agent) | a manager at work over queue pair 1 of a [card](crate::card::Card) |
//!
//! [`Cm`] is a state machine without I/O, as the card is. After any call its driver takes what has come out, with
//! [`Cm::next_message`] and [`Cm::next_event`], and asks [`Cm::next_timeout`] again.
//!
//! ```text
//!   asking end                                    asked end
//!   connect                 -- REQ -->            ConnectRequest
//!                                                 accept; attributes: to RTR and RTS
//!   ConnectResponse         <-- REP --
//!   attributes: to RTR and RTS
//!   establish; Established  -- RTU -->            Established
//!   ...
//!   disconnect              -- DREQ ->            Disconnected
//!   Disconnected            <- DREP --
//!   TimewaitExit                                  TimewaitExit
//! ```
//!
//! For a datagram service: [`Cm::resolve`], `ConnectRequest` at the other end, [`Cm::accept_datagrams`], `Resolved`.
//! [`Cm::reject`] is the other answer, to `ConnectRequest` and `ConnectResponse` alike.
//!
//! A REQ, REP, DREQ or SIDR_REQ that is not answered is sent again; after [`CmConfig::max_retries`] times the peer is
//! unreachable, and told so. A request that comes again while the program thinks is answered with a MRA. A message to a
//! connection that this end does not know (any more) is answered too: DREQ with DREP, REP and RTU with REJ, so that an end that
//! believes in a connection finds out that it is alone.

mod agent;
mod config;
mod connection;
mod event;
mod receive;
mod steps;
#[cfg(test)]
mod tests;

pub use agent::{Agent, AgentError, MAD_BUFFER};
pub use config::{Accept, AcceptDatagrams, CmConfig, Connect, Endpoint, Resolve};
pub use event::{CmError, Event, Phase, Reason, Request, RequestedConnection};

use crate::card::{QpAttributes, QpType};
use crate::memory::Access;
use crate::random::Stream;
use crate::time::Time;
use crate::wire::cm::{
    Bytes, CommId, IpHeader, Mad, Message, RejectReason, Rep, Req, Rtu, ServiceId, SidrRep,
    SidrReq, SidrStatus, Transport,
};
use crate::wire::{Bth, Gid, QpNumber};
use config::{ack_timeout, with_ip_header};
use connection::{Connection, Link};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where a message goes: to queue pair 1 at this address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Address.
    pub to: Gid,
    /// Message.
    pub mad: Mad,
}

/// What brings the queue pair of a connection from INIT to RTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// From INIT to RTR.
    pub rtr: QpAttributes,
    /// From RTR to RTS.
    pub rts: QpAttributes,
}

impl Attributes {
    /// From RESET to RTS, for a connection through which the peer may do what `access` says.
    pub fn steps(&self, access: Access) -> [QpAttributes; 3] {
        [QpAttributes::to_init(access), self.rtr, self.rts]
    }
}

/// The communication manager of one port.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    /// Services that programs listen at, and how many requests wait there.
    listeners: BTreeMap<ServiceId, u32>,
    connections: BTreeMap<CommId, Connection>,
    /// Connections that a peer asked for, by its address and its name for them.
    by_remote: BTreeMap<(Gid, CommId), CommId>,
    /// Connections by the peer's queue pair.
    by_qp: BTreeMap<(Gid, QpNumber), CommId>,
    deadlines: BTreeSet<(Time, CommId)>,
    messages: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    /// Names are a count under a mask, so that none comes twice before 2^32 others.
    count: u32,
    mask: u32,
}

impl Cm {
    /// A manager. The names it gives are drawn from the stream that `seed` and the port's address give.
    pub fn new(config: CmConfig, seed: u64) -> Cm {
        let mut random = Stream::new(seed, &format!("cm {}", config.gid));
        Cm {
            config,
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
            count: random.bits() as u32,
            mask: random.bits() as u32,
        }
    }

    /// Its parameters.
    pub fn config(&self) -> &CmConfig {
        &self.config
    }

    /// The address that a connection was asked for from, as its request gave it, while the program has not answered.
    pub fn asker(&self, id: CommId) -> Option<Gid> {
        let c = self.connections.get(&id)?;
        (c.phase == Phase::ReqReceived && !c.abandoned).then_some(c.link.asker)
    }

    /// How far a connection is; `None` if it is gone.
    pub fn phase(&self, id: CommId) -> Option<Phase> {
        Some(self.connections.get(&id)?.phase)
    }

    /// Connections that there are, those being made or ended included.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Tells requests for `service` to the program (`rdma_listen`). For an IP port see [`ServiceId::ip`].
    pub fn listen(&mut self, service: ServiceId) -> Result<(), CmError> {
        match self.listeners.contains_key(&service) {
            true => Err(CmError::InUse(service)),
            false => {
                self.listeners.insert(service, 0);
                Ok(())
            }
        }
    }

    /// Ends listening. Requests that wait for the program stay.
    pub fn unlisten(&mut self, service: ServiceId) -> Result<(), CmError> {
        let was = self.listeners.remove(&service);
        was.map(drop).ok_or(CmError::NotListening(service))
    }

    /// Asks for a connection (`rdma_connect`).
    pub fn connect(&mut self, now: Time, connect: &Connect<'_>) -> Result<CommId, CmError> {
        let c = self.config;
        let transport = match connect.qp_type {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            other => return Err(CmError::NotConnected(other)),
        };
        let end = &connect.end;
        let address = &connect.address;
        within("retry_count", connect.retry_count, 7)?;
        within("rnr_retry_count", end.rnr_retry_count, 7)?;
        within("sl", address.sl, 15)?;
        let header = self.header(address.dgid, connect.src_port)?;
        let private_data = private(
            "REQ",
            &with_ip_header(connect.service, header, connect.private_data),
            connect.service,
        )?;
        let port = connect.service.port();
        let id = self.room()?;
        let tid = self.tid(id);
        let req = Req {
            local_id: id,
            service_id: connect.service,
            ca_guid: c.ca_guid,
            qp: end.qp,
            responder_resources: end.responder_resources,
            initiator_depth: end.initiator_depth,
            remote_response_timeout: c.response_timeout,
            transport,
            flow_control: end.flow_control,
            starting_psn: end.rq_psn,
            local_response_timeout: c.response_timeout,
            retry_count: connect.retry_count,
            pkey: Bth::DEFAULT_PKEY,
            path_mtu: connect.path_mtu as u8 + 1,
            rnr_retry_count: end.rnr_retry_count,
            max_cm_retries: c.max_retries,
            srq: end.srq,
            // Reserved (CA17-34); Linux puts the permissive LID there.
            primary_local_lid: 0xffff,
            primary_remote_lid: 0xffff,
            primary_local_gid: c.gid,
            primary_remote_gid: address.dgid,
            primary_flow_label: match (address.flow_label, port) {
                // As Linux makes it from the ports.
                (0, Some((_, port))) => {
                    (u32::from(connect.src_port) * 31 + u32::from(port)) & 0xf_ffff
                }
                (label, _) => label,
            },
            primary_traffic_class: address.traffic_class,
            primary_hop_limit: address.hop_limit,
            primary_sl: address.sl,
            primary_ack_timeout: ack_timeout(c.ack_delay, c.packet_lifetime),
            private_data,
            ..Req::default()
        };
        let mut link = Link::new(connect.qp_type, connect.path_mtu);
        link.address = Some(*address);
        link.own = Some(*end);
        link.retry_count = connect.retry_count;
        let mut new = Connection::new(Phase::ReqSent, address.dgid, connect.service, tid, link);
        new.timeout = self.patience();
        new.max_retries = self.config.max_retries;
        self.begin(now, id, new, Message::Req(req));
        Ok(id)
    }

    /// Asks for the queue pair of a datagram service (`rdma_connect` on `RDMA_PS_UDP`).
    pub fn resolve(&mut self, now: Time, resolve: &Resolve<'_>) -> Result<CommId, CmError> {
        let header = self.header(resolve.peer, resolve.src_port)?;
        let private_data = private(
            "SIDR_REQ",
            &with_ip_header(resolve.service, header, resolve.private_data),
            resolve.service,
        )?;
        let id = self.room()?;
        let tid = self.tid(id);
        let request = SidrReq {
            request_id: id,
            pkey: Bth::DEFAULT_PKEY,
            service_id: resolve.service,
            private_data,
        };
        let link = Link::new(QpType::Ud, crate::card::Mtu::M256);
        let mut new = Connection::new(Phase::SidrReqSent, resolve.peer, resolve.service, tid, link);
        new.timeout = self.patience();
        new.max_retries = self.config.max_retries;
        self.begin(now, id, new, Message::SidrReq(request));
        Ok(id)
    }

    /// Accepts a request for a connection (`rdma_accept`). [`Cm::attributes`] are there after it; the queue pair is to be
    /// in RTR before the message is on its way.
    pub fn accept(&mut self, now: Time, id: CommId, accept: &Accept<'_>) -> Result<(), CmError> {
        let (gid, ca_guid, ack_delay) =
            (self.config.gid, self.config.ca_guid, self.config.ack_delay);
        within("rnr_retry_count", accept.end.rnr_retry_count, 7)?;
        let private_data = fit("REP", accept.private_data)?;
        if accept.address.dgid.ipv4().is_some() != gid.ipv4().is_some() {
            return Err(CmError::Unreachable(accept.address.dgid));
        }
        let c = self.at(id, "accepted", &[Phase::ReqReceived])?;
        let (responder_resources, initiator_depth) = c.link.reads(&accept.end);
        let rep = Rep {
            local_id: id,
            remote_id: c.remote_id,
            qp: accept.end.qp,
            starting_psn: accept.end.rq_psn,
            responder_resources,
            initiator_depth,
            target_ack_delay: ack_delay,
            flow_control: accept.end.flow_control,
            rnr_retry_count: accept.end.rnr_retry_count,
            srq: accept.end.srq,
            ca_guid,
            private_data,
            ..Rep::default()
        };
        c.link.own = Some(accept.end);
        c.link.address = Some(accept.address);
        c.phase = Phase::RepSent;
        let mad = c.expects_answer(Message::Rep(rep), c.tid);
        let (to, wait, service) = (c.peer, c.timeout, c.service);
        self.answered(service);
        self.messages.push_back(Outgoing { to, mad });
        self.wait_until(id, now + wait);
        Ok(())
    }

    /// Names the queue pair of a datagram service (`rdma_accept` on `RDMA_PS_UDP`). The request has no meaning after it.
    pub fn accept_datagrams(
        &mut self,
        now: Time,
        id: CommId,
        accept: &AcceptDatagrams<'_>,
    ) -> Result<(), CmError> {
        let private_data = fit("SIDR_REP", accept.private_data)?;
        self.at(id, "accepted for datagrams", &[Phase::SidrReqReceived])?;
        self.answer_datagrams(
            now,
            id,
            SidrRep {
                status: SidrStatus::SUCCESS,
                qp: accept.qp,
                qkey: accept.qkey,
                private_data,
                ..SidrRep::default()
            },
        );
        Ok(())
    }

    /// Says no, to a request or to a response (`rdma_reject`). The connection is gone.
    pub fn reject(
        &mut self,
        now: Time,
        id: CommId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let phases = [
            Phase::ReqReceived,
            Phase::RepReceived,
            Phase::SidrReqReceived,
        ];
        let phase = self.at(id, "rejected", &phases)?.phase;
        if phase == Phase::SidrReqReceived {
            let private_data = fit("SIDR_REP", private_data)?;
            self.answer_datagrams(
                now,
                id,
                SidrRep {
                    status: SidrStatus::REJECTED,
                    private_data,
                    ..SidrRep::default()
                },
            );
            return Ok(());
        }
        let private_data = fit("REJ", private_data)?;
        self.refuse(id, reason, private_data);
        self.forget(id);
        Ok(())
    }

    /// Attributes for the queue pair of a connection: from [`Event::ConnectResponse`] on at the end that asked, from
    /// [`Cm::accept`] on at the other.
    pub fn attributes(&self, id: CommId) -> Option<Attributes> {
        let c = self.connections.get(&id)?;
        match c.phase {
            Phase::RepSent | Phase::RepReceived | Phase::Established => c.link.attributes(),
            _ => None,
        }
    }

    /// The attributes that there will be if a request is accepted so, for a queue pair that is to be ready before the peer
    /// hears of it; `None` if the request does not wait any more.
    pub fn attributes_to_accept(&self, id: CommId, accept: &Accept<'_>) -> Option<Attributes> {
        let c = self.connections.get(&id)?;
        if c.phase != Phase::ReqReceived || c.abandoned {
            return None;
        }
        let link = Link {
            own: Some(accept.end),
            address: Some(accept.address),
            ..c.link
        };
        link.attributes()
    }

    /// Says that the queue pair here is ready to send (`rdma_establish`): a connection that the peer has accepted is
    /// established.
    pub fn establish(&mut self, id: CommId, private_data: &[u8]) -> Result<(), CmError> {
        let private_data = fit("RTU", private_data)?;
        let c = self.at(id, "established", &[Phase::RepReceived])?;
        let rtu = Rtu {
            local_id: id,
            remote_id: c.remote_id,
            private_data,
        };
        c.phase = Phase::Established;
        let mad = Mad::new(c.tid, Message::Rtu(rtu));
        c.answer = Some(Box::new(mad));
        let to = c.peer;
        self.messages.push_back(Outgoing { to, mad });
        self.tell(id, Event::Established { id });
        Ok(())
    }

    /// Says that a packet has come through the queue pair (`rdma_notify`, and the card's `CommunicationEstablished`): who
    /// waits for an RTU need not wait longer.
    pub fn packet_came(&mut self, id: CommId) -> Result<(), CmError> {
        if self
            .at(id, "in use", &[Phase::RepSent, Phase::Established])?
            .phase
            == Phase::RepSent
        {
            self.is_established(id);
        }
        Ok(())
    }

    /// Ends a connection (`rdma_disconnect`). One that is ending already is left alone.
    pub fn disconnect(&mut self, now: Time, id: CommId) -> Result<(), CmError> {
        let phases = [
            Phase::RepSent,
            Phase::Established,
            Phase::DreqSent,
            Phase::Timewait,
        ];
        if matches!(
            self.at(id, "disconnected", &phases)?.phase,
            Phase::RepSent | Phase::Established
        ) {
            self.send_dreq(now, id);
        }
        Ok(())
    }

    /// Lets go of a connection, whatever becomes of it (`rdma_destroy_id`): it is refused, or ended, and nothing is
    /// told any more.
    pub fn abandon(&mut self, now: Time, id: CommId) -> Result<(), CmError> {
        let c = self.connections.get_mut(&id);
        let c = c.ok_or(CmError::UnknownConnection(id))?;
        c.abandoned = true;
        match c.phase {
            Phase::ReqSent => {
                self.refuse(id, RejectReason::TIMEOUT, Bytes::default());
                self.forget(id);
            }
            Phase::ReqReceived | Phase::RepReceived | Phase::RepSent => {
                self.refuse(id, RejectReason::CONSUMER, Bytes::default());
                self.forget(id);
            }
            Phase::SidrReqReceived => self.answer_datagrams(
                now,
                id,
                SidrRep {
                    status: SidrStatus::REJECTED,
                    ..SidrRep::default()
                },
            ),
            Phase::SidrReqSent => self.forget(id),
            Phase::Established => self.send_dreq(now, id),
            Phase::DreqSent | Phase::Timewait | Phase::SidrRepSent => {}
        }
        self.events.retain(|event| event.id() != id);
        Ok(())
    }

    /// Looks after deadlines that have come; false if there are none. Calling it early does no harm.
    pub fn advance(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > now {
                break;
            }
            any = true;
            self.wait_until(id, Time::NEVER);
            self.timed_out(now, id);
        }
        any
    }

    /// The oldest message that is to be sent.
    pub fn next_message(&mut self) -> Option<Outgoing> {
        self.messages.pop_front()
    }

    /// The oldest event the program has not seen.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Cm::advance`] is to be called; [`Time::NEVER`] if there is nothing to wait for.
    pub fn next_timeout(&self) -> Time {
        self.deadlines.first().map_or(Time::NEVER, |&(at, _)| at)
    }
}

fn within(what: &'static str, value: u8, limit: u8) -> Result<(), CmError> {
    match value <= limit {
        true => Ok(()),
        false => Err(CmError::OutOfRange { what, value, limit }),
    }
}

/// Private data for a message.
fn fit<const N: usize>(message: &'static str, data: &[u8]) -> Result<Bytes<N>, CmError> {
    Bytes::new(data).ok_or(CmError::PrivateData {
        message,
        len: data.len(),
        limit: N,
    })
}

/// Private data for a message with who asks in front of it; the error speaks of the program's part.
fn private<const N: usize>(
    message: &'static str,
    data: &[u8],
    service: ServiceId,
) -> Result<Bytes<N>, CmError> {
    let head = match service.port() {
        Some(_) => IpHeader::LEN,
        None => 0,
    };
    Bytes::new(data).ok_or(CmError::PrivateData {
        message,
        len: data.len() - head,
        limit: N - head,
    })
}
