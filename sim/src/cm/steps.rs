//! What requests of programs, messages of peers and deadlines lead to.

use super::config::span;
use super::connection::Connection;
use super::{Cm, CmError, Event, Outgoing, Phase};
use crate::time::{Span, Time};
use crate::wire::Gid;
use crate::wire::cm::{
    About, Bytes, CommId, Dreq, IpHeader, Mad, Message, Mra, Rej, RejectReason, ServiceId, SidrRep,
};

impl Cm {
    pub(super) fn timed_out(&mut self, now: Time, id: CommId) {
        let Some(c) = self.connections.get_mut(&id) else {
            return;
        };
        if c.retries_left > 0
            && let Some(mad) = c.unanswered.as_deref()
        {
            c.retries_left -= 1;
            let (to, mad, wait) = (c.peer, *mad, c.timeout);
            self.messages.push_back(Outgoing { to, mad });
            self.wait_until(id, now + wait);
            return;
        }
        match c.phase {
            Phase::ReqSent | Phase::RepSent => {
                // So that a peer that is there after all does not stay behind alone.
                self.refuse(id, RejectReason::TIMEOUT, Bytes::default());
                self.tell(id, Event::Unreachable { id });
                self.forget(id);
            }
            Phase::SidrReqSent => {
                self.tell(id, Event::Unreachable { id });
                self.forget(id);
            }
            Phase::DreqSent => self.ended(now, id),
            Phase::Timewait => {
                self.tell(id, Event::TimewaitExit { id });
                self.forget(id);
            }
            Phase::SidrRepSent => self.forget(id),
            Phase::ReqReceived
            | Phase::RepReceived
            | Phase::Established
            | Phase::SidrReqReceived => {}
        }
    }

    /// How long a message waits for its answer: the peer's time and the way there and back.
    pub(super) fn patience(&self) -> Span {
        span(self.config.response_timeout) + span(self.config.packet_lifetime) * 2
    }

    pub(super) fn tid(&self, id: CommId) -> u64 {
        u64::from(self.config.tid_high) << 32 | u64::from(id.0)
    }

    /// Who asks, for an IP service.
    pub(super) fn header(&self, peer: Gid, src_port: u16) -> Result<Option<IpHeader>, CmError> {
        let header = IpHeader::new(self.config.gid.ip(), src_port, peer.ip());
        match header {
            None => Err(CmError::Unreachable(peer)),
            some => Ok(some),
        }
    }

    /// A name for one more connection.
    pub(super) fn room(&mut self) -> Result<CommId, CmError> {
        if self.connections.len() >= self.config.max_connections as usize {
            return Err(CmError::Full(self.config.max_connections));
        }
        loop {
            self.count = self.count.wrapping_add(1);
            let id = CommId(self.count ^ self.mask);
            // Zero is "not known".
            if id.0 != 0 && !self.connections.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    pub(super) fn begin(&mut self, now: Time, id: CommId, mut new: Connection, message: Message) {
        let mad = new.expects_answer(message, new.tid);
        let (to, wait) = (new.peer, new.timeout);
        self.connections.insert(id, new);
        self.messages.push_back(Outgoing { to, mad });
        self.wait_until(id, now + wait);
    }

    /// The connection, if it is in one of the phases.
    pub(super) fn at(
        &mut self,
        id: CommId,
        what: &'static str,
        phases: &[Phase],
    ) -> Result<&mut Connection, CmError> {
        match self.connections.get_mut(&id) {
            Some(c) if c.abandoned => Err(CmError::UnknownConnection(id)),
            Some(c) if phases.contains(&c.phase) => Ok(c),
            Some(c) => Err(CmError::WrongPhase {
                id,
                what,
                phase: c.phase,
            }),
            None => Err(CmError::UnknownConnection(id)),
        }
    }

    pub(super) fn wait_until(&mut self, id: CommId, at: Time) {
        if let Some(c) = self.connections.get_mut(&id) {
            self.deadlines.remove(&(c.deadline, id));
            c.deadline = at;
            if at != Time::NEVER {
                self.deadlines.insert((at, id));
            }
        }
    }

    pub(super) fn tell(&mut self, id: CommId, event: Event) {
        if self.connections.get(&id).is_some_and(|c| !c.abandoned) {
            self.events.push_back(event);
        }
    }

    /// The connection is gone.
    pub(super) fn forget(&mut self, id: CommId) {
        self.wait_until(id, Time::NEVER);
        let Some(c) = self.connections.remove(&id) else {
            return;
        };
        if matches!(c.phase, Phase::ReqReceived | Phase::SidrReqReceived) {
            self.answered(c.service);
        }
        let remote = (c.peer, c.remote_id);
        if self.by_remote.get(&remote) == Some(&id) {
            self.by_remote.remove(&remote);
        }
        let qp = (c.peer, c.link.peer_qp);
        if self.by_qp.get(&qp) == Some(&id) {
            self.by_qp.remove(&qp);
        }
    }

    /// One request less waits for the program.
    pub(super) fn answered(&mut self, service: ServiceId) {
        if let Some(waiting) = self.listeners.get_mut(&service) {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Sends a REJ about what the peer sent last, or would have.
    pub(super) fn refuse(&mut self, id: CommId, reason: RejectReason, private_data: Bytes<148>) {
        let guid = self.config.ca_guid;
        let Some(c) = self.connections.get(&id) else {
            return;
        };
        let mut rej = Rej {
            local_id: id,
            remote_id: c.remote_id,
            about: match c.phase {
                Phase::ReqSent | Phase::ReqReceived => About::Req,
                Phase::RepSent | Phase::RepReceived => About::Rep,
                _ => About::Other,
            },
            reason,
            private_data,
            ..Rej::default()
        };
        if reason == RejectReason::TIMEOUT {
            // Who does not know the peer's name says its own in full.
            rej.info_len = 8;
            rej.info.0[..8].copy_from_slice(&guid.to_be_bytes());
        }
        let mad = Mad::new(c.tid, Message::Rej(rej));
        self.messages.push_back(Outgoing { to: c.peer, mad });
    }

    pub(super) fn send_mra(&mut self, id: CommId, service_timeout: u8) {
        let Some(c) = self.connections.get(&id) else {
            return;
        };
        let mra = Mra {
            local_id: id,
            remote_id: c.remote_id,
            about: match c.phase {
                Phase::ReqReceived => About::Req,
                _ => About::Rep,
            },
            service_timeout,
            ..Mra::default()
        };
        let mad = Mad::new(c.tid, Message::Mra(mra));
        self.messages.push_back(Outgoing { to: c.peer, mad });
    }

    pub(super) fn send_dreq(&mut self, now: Time, id: CommId) {
        let tid = self.tid(id);
        let Some(c) = self.connections.get_mut(&id) else {
            return;
        };
        let dreq = Dreq {
            local_id: id,
            remote_id: c.remote_id,
            remote_qp: c.link.peer_qp,
            ..Dreq::default()
        };
        c.phase = Phase::DreqSent;
        let mad = c.expects_answer(Message::Dreq(dreq), tid);
        let (to, wait) = (c.peer, c.timeout);
        self.messages.push_back(Outgoing { to, mad });
        self.wait_until(id, now + wait);
    }

    pub(super) fn answer_datagrams(&mut self, now: Time, id: CommId, reply: SidrRep) {
        let Some(c) = self.connections.get_mut(&id) else {
            return;
        };
        let reply = SidrRep {
            request_id: c.remote_id,
            service_id: c.service,
            ..reply
        };
        let mad = Mad::new(c.tid, Message::SidrRep(reply));
        c.phase = Phase::SidrRepSent;
        c.answer = Some(Box::new(mad));
        // As long as the asker may ask again.
        let keep = c.timeout * (u64::from(c.max_retries) + 1);
        let (to, service) = (c.peer, c.service);
        c.abandoned = true;
        self.answered(service);
        self.messages.push_back(Outgoing { to, mad });
        self.wait_until(id, now + keep);
    }

    pub(super) fn is_established(&mut self, id: CommId) {
        self.wait_until(id, Time::NEVER);
        if let Some(c) = self.connections.get_mut(&id) {
            c.phase = Phase::Established;
            c.unanswered = None;
            self.tell(id, Event::Established { id });
        }
    }

    /// Into TIMEWAIT: packets of the connection may be on their way for some time.
    pub(super) fn linger(&mut self, now: Time, id: CommId) {
        if let Some(c) = self.connections.get_mut(&id) {
            c.phase = Phase::Timewait;
            c.unanswered = None;
            let rest = span(c.link.timeout.max(self.config.packet_lifetime + 1));
            self.wait_until(id, now + rest);
        }
    }

    pub(super) fn ended(&mut self, now: Time, id: CommId) {
        self.linger(now, id);
        self.tell(id, Event::Disconnected { id });
    }
}
