//! What a message of a peer does.

use super::config::{CmConfig, span};
use super::connection::{Connection, Link};
use super::event::{Event, Phase, Reason, Request, RequestedConnection};
use super::{Cm, Outgoing};
use crate::card::QpType;
use crate::time::Time;
use crate::wire::Gid;
use crate::wire::cm::{
    About, CommId, Drep, Dreq, IpHeader, Mad, Message, Mra, Rej, RejectReason, Rep, Req, Rtu,
    ServiceId, SidrRep, SidrReq, SidrStatus, Transport,
};

/// Messages that may wait to be sent before peers get no answer.
const MAX_UNSENT: usize = 1024;

impl Cm {
    /// Takes a message that `from` sent to queue pair 1 here. What fits no connection is answered or ignored.
    pub fn receive(&mut self, now: Time, mad: &Mad, from: Gid) {
        let tid = mad.header.tid;
        let unsent = self.messages.len();
        match &mad.message {
            Message::Req(m) => self.take_req(now, m, tid, from),
            Message::Rep(m) => self.take_rep(m, tid, from),
            Message::Rtu(m) => self.take_rtu(m, tid, from),
            Message::Rej(m) => self.take_rej(now, m, from),
            Message::Mra(m) => self.take_mra(now, m, from),
            Message::Dreq(m) => self.take_dreq(now, m, tid, from),
            Message::Drep(m) => self.take_drep(now, m, from),
            Message::SidrReq(m) => self.take_sidr_req(m, tid, from),
            Message::SidrRep(m) => self.take_sidr_rep(m, from),
            // There are no alternate paths here.
            Message::Lap(_) | Message::Apr(_) => {}
        }
        if unsent >= MAX_UNSENT {
            // Whoever asks asks again; what is to be said must not grow with what nobody takes.
            self.messages.truncate(unsent);
        }
    }

    fn answer(&mut self, to: Gid, tid: u64, message: Message) {
        let mad = Mad::new(tid, message);
        self.messages.push_back(Outgoing { to, mad });
    }

    /// Sends again what has answered the peer before.
    fn repeat(&mut self, id: CommId) {
        let Some(c) = self.connections.get(&id) else {
            return;
        };
        if let Some(mad) = c.answer.as_deref() {
            let out = Outgoing {
                to: c.peer,
                mad: *mad,
            };
            self.messages.push_back(out);
        }
    }

    fn take_req(&mut self, now: Time, m: &Req, tid: u64, from: Gid) {
        let no = |reason| {
            Message::Rej(Rej {
                remote_id: m.local_id,
                about: About::Req,
                reason,
                ..Rej::default()
            })
        };
        if let Some(&id) = self.by_remote.get(&(from, m.local_id)) {
            return self.take_req_again(id, tid, from, no(RejectReason::STALE_CONNECTION));
        }
        if let Some(&old) = self.by_qp.get(&(from, m.qp)) {
            // The peer has forgotten a connection of this queue pair (or not heard of its end).
            self.answer(from, tid, no(RejectReason::STALE_CONNECTION));
            let phase = self.phase(old);
            if matches!(phase, Some(Phase::Established | Phase::RepSent)) {
                self.send_dreq(now, old);
            }
            return;
        }
        let Some(link) = Link::of_request(m) else {
            let reason = match m.transport {
                Transport::Rc | Transport::Uc => RejectReason::INVALID_MTU,
                Transport::Rd | Transport::Extended => RejectReason::INVALID_TRANSPORT,
            };
            return self.answer(from, tid, no(reason));
        };
        match self.listeners.get(&m.service_id) {
            None => return self.answer(from, tid, no(RejectReason::INVALID_SERVICE_ID)),
            Some(&waiting) if waiting >= self.config.backlog => {
                return self.answer(from, tid, no(RejectReason::NO_RESOURCES));
            }
            Some(_) => {}
        }
        let Ok(id) = self.room() else {
            return self.answer(from, tid, no(RejectReason::NO_RESOURCES));
        };
        let (ip, private_data) = asker(m.service_id, &m.private_data.0);
        let request = Request {
            service: m.service_id,
            peer: m.primary_local_gid,
            ip,
            connection: Some(RequestedConnection {
                qp_type: link.qp_type,
                qp: m.qp,
                path_mtu: link.path_mtu,
                responder_resources: m.initiator_depth,
                initiator_depth: m.responder_resources,
                flow_control: m.flow_control,
                retry_count: m.retry_count,
                rnr_retry_count: m.rnr_retry_count,
                srq: m.srq,
            }),
            private_data,
        };
        let mut new = Connection::new(Phase::ReqReceived, from, m.service_id, tid, link);
        new.passive = true;
        new.remote_id = m.local_id;
        new.timeout = span(m.local_response_timeout) + span(self.config.packet_lifetime) * 2;
        new.max_retries = m.max_cm_retries;
        self.by_qp.insert((from, m.qp), id);
        self.welcome(id, new, request);
    }

    /// A REQ that has been here before.
    fn take_req_again(&mut self, id: CommId, tid: u64, from: Gid, stale: Message) {
        match self.phase(id) {
            Some(Phase::ReqReceived) => self.send_mra(id, self.config.service_timeout),
            Some(Phase::RepSent) => {
                let rep = self
                    .connections
                    .get(&id)
                    .and_then(|c| c.unanswered.as_deref());
                if let Some(&mad) = rep {
                    self.messages.push_back(Outgoing { to: from, mad });
                }
            }
            // The peer begins anew, or this is late; if it is late, the peer does not mind.
            Some(Phase::Timewait) => self.answer(from, tid, stale),
            _ => {}
        }
    }

    /// A new request, which the program is to answer.
    fn welcome(&mut self, id: CommId, new: Connection, request: Request) {
        self.by_remote.insert((new.peer, new.remote_id), id);
        if let Some(waiting) = self.listeners.get_mut(&new.service) {
            *waiting += 1;
        }
        self.connections.insert(id, new);
        self.tell(id, Event::ConnectRequest { id, request });
    }

    fn take_rep(&mut self, m: &Rep, tid: u64, from: Gid) {
        let id = m.remote_id;
        let no = |reason| {
            Message::Rej(Rej {
                local_id: m.remote_id,
                remote_id: m.local_id,
                about: About::Rep,
                reason,
                ..Rej::default()
            })
        };
        let other = self.by_qp.get(&(from, m.qp)).copied();
        let lifetime = self.config.packet_lifetime;
        let Some(c) = self
            .connections
            .get_mut(&id)
            .filter(|c| !c.passive && c.peer == from)
        else {
            return self.answer(from, tid, no(RejectReason::INVALID_COMM_ID));
        };
        match c.phase {
            Phase::ReqSent => {}
            Phase::RepReceived if c.remote_id == m.local_id => {
                return self.send_mra(id, self.config.service_timeout);
            }
            Phase::Established if c.remote_id == m.local_id => return self.repeat(id),
            _ => return,
        }
        c.remote_id = m.local_id;
        if other.is_some() {
            self.answer(from, tid, no(RejectReason::STALE_CONNECTION));
            self.tell(
                id,
                Event::Rejected {
                    id,
                    reason: Reason::Rejected(RejectReason::STALE_CONNECTION),
                    private_data: Vec::new(),
                },
            );
            return self.forget(id);
        }
        c.link.learn(m, lifetime);
        c.phase = Phase::RepReceived;
        c.unanswered = None;
        self.by_qp.insert((from, m.qp), id);
        self.wait_until(id, Time::NEVER);
        let private_data = m.private_data.to_vec();
        self.tell(id, Event::ConnectResponse { id, private_data });
    }

    fn take_rtu(&mut self, m: &Rtu, tid: u64, from: Gid) {
        let id = m.remote_id;
        match self.connections.get(&id) {
            Some(c) if c.is_peer(from, m.local_id) => {
                if c.phase == Phase::RepSent {
                    self.is_established(id);
                }
            }
            _ => {
                let rej = Rej {
                    local_id: id,
                    remote_id: m.local_id,
                    about: About::Other,
                    reason: RejectReason::INVALID_COMM_ID,
                    ..Rej::default()
                };
                self.answer(from, tid, Message::Rej(rej));
            }
        }
    }

    fn take_rej(&mut self, now: Time, m: &Rej, from: Gid) {
        let id = match m.remote_id {
            CommId(0) => self.by_remote.get(&(from, m.local_id)).copied(),
            id => Some(id),
        };
        let Some(id) = id else {
            return;
        };
        let Some(c) = self.connections.get(&id) else {
            return;
        };
        // Who has no name for the connection, or whose name is not known yet, is taken at its address.
        let known = c.remote_id != CommId(0) && m.local_id != CommId(0);
        if c.peer != from || (known && c.remote_id != m.local_id) {
            return;
        }
        let event = Event::Rejected {
            id,
            reason: Reason::Rejected(m.reason),
            private_data: m.private_data.to_vec(),
        };
        match c.phase {
            // Or who asks and takes it back would fill the memory of a program that looks at neither.
            Phase::ReqReceived if Event::take_back(&mut self.events, id) => self.forget(id),
            Phase::ReqSent | Phase::ReqReceived | Phase::RepSent | Phase::RepReceived => {
                self.tell(id, event);
                self.forget(id);
            }
            Phase::Established => {
                self.linger(now, id);
                self.tell(id, event);
            }
            Phase::DreqSent => self.ended(now, id),
            _ => {}
        }
    }

    fn take_mra(&mut self, now: Time, m: &Mra, from: Gid) {
        let id = m.remote_id;
        let lifetime = self.config.packet_lifetime;
        let Some(c) = self.connections.get_mut(&id) else {
            return;
        };
        let fits = match (c.phase, m.about) {
            (Phase::ReqSent, About::Req) => c.peer == from,
            (Phase::RepSent, About::Rep) => c.is_peer(from, m.local_id),
            _ => false,
        };
        if fits {
            let at = now + span(m.service_timeout) + span(lifetime);
            self.wait_until(id, at);
        }
    }

    fn take_dreq(&mut self, now: Time, m: &Dreq, tid: u64, from: Gid) {
        let id = m.remote_id;
        let drep = Message::Drep(Drep {
            local_id: id,
            remote_id: m.local_id,
            ..Drep::default()
        });
        let Some(c) = self
            .connections
            .get_mut(&id)
            .filter(|c| c.is_peer(from, m.local_id))
        else {
            // The end of what is not there has come.
            return self.answer(from, tid, drep);
        };
        if c.link.own.is_none_or(|own| own.qp != m.remote_qp) {
            return;
        }
        match c.phase {
            Phase::RepSent | Phase::RepReceived | Phase::Established | Phase::DreqSent => {
                self.answer(from, tid, drep);
                self.ended(now, id);
            }
            Phase::Timewait => self.answer(from, tid, drep),
            _ => {}
        }
    }

    fn take_drep(&mut self, now: Time, m: &Drep, from: Gid) {
        let id = m.remote_id;
        let fits = |c: &Connection| c.phase == Phase::DreqSent && c.is_peer(from, m.local_id);
        if self.connections.get(&id).is_some_and(fits) {
            self.ended(now, id);
        }
    }

    fn take_sidr_req(&mut self, m: &SidrReq, tid: u64, from: Gid) {
        let no = |status| {
            Message::SidrRep(SidrRep {
                request_id: m.request_id,
                service_id: m.service_id,
                status,
                ..SidrRep::default()
            })
        };
        if let Some(&id) = self.by_remote.get(&(from, m.request_id)) {
            return self.repeat(id);
        }
        match self.listeners.get(&m.service_id) {
            None => return self.answer(from, tid, no(SidrStatus::UNSUPPORTED)),
            Some(&waiting) if waiting >= self.config.backlog => {
                return self.answer(from, tid, no(SidrStatus::NO_QP));
            }
            Some(_) => {}
        }
        let Ok(id) = self.room() else {
            return self.answer(from, tid, no(SidrStatus::NO_QP));
        };
        let (ip, private_data) = asker(m.service_id, &m.private_data.0);
        let request = Request {
            service: m.service_id,
            peer: from,
            ip,
            connection: None,
            private_data,
        };
        let link = Link::new(QpType::Ud, crate::card::Mtu::M256);
        let mut new = Connection::new(Phase::SidrReqReceived, from, m.service_id, tid, link);
        new.passive = true;
        new.remote_id = m.request_id;
        let CmConfig { max_retries, .. } = self.config;
        new.timeout = self.patience();
        new.max_retries = max_retries;
        self.welcome(id, new, request);
    }

    fn take_sidr_rep(&mut self, m: &SidrRep, from: Gid) {
        let id = m.request_id;
        let fits = |c: &Connection| c.phase == Phase::SidrReqSent && c.peer == from;
        if !self.connections.get(&id).is_some_and(fits) {
            return;
        }
        let private_data = m.private_data.to_vec();
        let event = match m.status {
            SidrStatus::SUCCESS => Event::Resolved {
                id,
                peer: from,
                qp: m.qp,
                qkey: m.qkey,
                private_data,
            },
            status => Event::Rejected {
                id,
                reason: Reason::Datagrams(status),
                private_data,
            },
        };
        self.tell(id, event);
        self.forget(id);
    }
}

/// Who asks, and what the asker's program says.
fn asker(service: ServiceId, private: &[u8]) -> (Option<IpHeader>, Vec<u8>) {
    let header = service.port().and_then(|_| IpHeader::decode(private));
    let rest = match header {
        Some(_) => &private[IpHeader::LEN..],
        None => private,
    };
    (header, rest.to_vec())
}
