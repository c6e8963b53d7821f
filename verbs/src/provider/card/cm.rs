//! The connection manager of a software card.

use super::{Common, Seat, number};
use crate::cm::{CommId, ConnParam, Event, RejectReason, ServiceId};
use crate::provider::{self, Handle};
use crate::{AddressVector, Error, Gid, Notify, QpAttributes, QpNumber, QpType, Result, State};
use softroce_sim::card::{Card, CqId};
use softroce_sim::cm::{Accept, Agent, CmConfig, Connect, Endpoint};
use softroce_sim::time::Time;
use softroce_sim::wire::MacAddr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// This end's port, as the peer's program is told, where nobody has chosen one.
const SOURCE_PORT: u16 = 0;

pub(super) struct ConnectionManager<S: Seat> {
    common: Arc<Common<S>>,
    agent: Agent,
    cq: CqId,
    channel: Handle,
    /// Queue pairs of connections, and what their peers may do.
    ends: BTreeMap<CommId, (QpNumber, crate::Access)>,
    /// Addresses of those who asked.
    askers: BTreeMap<CommId, Gid>,
}

impl<S: Seat> ConnectionManager<S> {
    pub(super) fn open(common: Arc<Common<S>>) -> Result<ConnectionManager<S>> {
        let agent = common.with(|card, now| {
            let config = CmConfig::new(card.config().gid, card.config().mac);
            let seed = u64::from(card.draw_psn().get()) << 24 | u64::from(card.draw_psn().get());
            Agent::new(card, now, config, seed)
        })?;
        let agent = agent.map_err(|e| Error::Protocol(format!("connection manager: {e}")))?;
        let cq = agent.cq();
        let channel = common.seat.create_channel()?;
        common.seat.set_channel(cq, Some(channel));
        Ok(ConnectionManager {
            common,
            agent,
            cq,
            channel,
            ends: BTreeMap::new(),
            askers: BTreeMap::new(),
        })
    }

    /// Calls `act`, and sends what came of it.
    fn with<T>(
        &mut self,
        mut act: impl FnMut(&mut Agent, &mut Card, Time) -> Result<T>,
    ) -> Result<T> {
        let (agent, seat) = (&mut self.agent, &self.common.seat);
        self.common.with(|card, now| {
            let outcome = act(agent, card, now);
            agent.turn(card, now, |gid| Some(way(gid, seat.resolve(gid))));
            outcome
        })?
    }

    fn end(&mut self, qp: QpNumber, param: &ConnParam<'_>) -> Result<Endpoint> {
        let psn = self.common.with(|card, _| card.draw_psn())?;
        Ok(Endpoint {
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            rnr_retry_count: param.rnr_retry_count,
            ..Endpoint::new(qp, psn)
        })
    }

    /// Brings the queue pair of a connection from RESET to RTS.
    fn bring_up(&mut self, id: CommId) -> Result<()> {
        let Some(&(qp, access)) = self.ends.get(&id) else {
            return Err(Error::Protocol(format!("{id:?} has no queue pair here")));
        };
        let common = self.common.clone();
        self.with(|agent, card, now| {
            let Some(attributes) = agent.cm().attributes(id) else {
                return Ok(());
            };
            for step in attributes.steps(access) {
                common.modify(card, now, qp, &step)?;
            }
            Ok(())
        })
    }

    /// What the program is told of an event; `None` if nothing.
    fn see_to(&mut self, event: Event) -> Result<Option<Event>> {
        match &event {
            Event::ConnectRequest { id, request } => {
                self.askers.insert(*id, request.peer);
            }
            Event::ConnectResponse { id, .. } => {
                let id = *id;
                let up = self.bring_up(id);
                let established = self.with(|agent, _, now| match &up {
                    Ok(()) => Ok(agent.cm().establish(id, &[])?),
                    Err(_) => Ok(agent.cm().reject(now, id, RejectReason::CONSUMER, &[])?),
                });
                up.and(established)?;
                return Ok(None);
            }
            Event::Disconnected { id } => {
                if let Some((qp, _)) = self.ends.remove(id) {
                    let common = self.common.clone();
                    self.with(|_, card, now| {
                        // It may be gone, or in error already.
                        let error = QpAttributes::to(State::Error);
                        let _ = common.modify(card, now, qp, &error);
                        Ok(())
                    })?;
                }
            }
            Event::Rejected { id, .. } | Event::Unreachable { id } => {
                self.ends.remove(id);
            }
            _ => {}
        }
        Ok(Some(event))
    }
}

fn way(gid: Gid, mac: Option<MacAddr>) -> AddressVector {
    AddressVector {
        dmac: mac.unwrap_or_default(),
        ..AddressVector::new(gid)
    }
}

impl<S: Seat> provider::ConnectionManager for ConnectionManager<S> {
    fn listen(&mut self, service: ServiceId) -> Result<()> {
        self.with(|agent, _, _| Ok(agent.cm().listen(service)?))
    }

    fn connect(
        &mut self,
        to: &AddressVector,
        service: ServiceId,
        qp: Handle,
        qp_type: QpType,
        param: &ConnParam<'_>,
    ) -> Result<CommId> {
        let qp = QpNumber::new(number(qp));
        let mut address = *to;
        if address.dmac == MacAddr::default() {
            address.dmac = self.common.seat.resolve(to.dgid).unwrap_or_default();
        }
        let connect = Connect {
            service,
            src_port: SOURCE_PORT,
            address,
            qp_type,
            path_mtu: param.path_mtu,
            retry_count: param.retry_count,
            end: self.end(qp, param)?,
            private_data: param.private_data,
        };
        let id = self.with(|agent, _, now| Ok(agent.cm().connect(now, &connect)?))?;
        self.ends.insert(id, (qp, param.access));
        Ok(id)
    }

    fn accept(&mut self, id: CommId, qp: Handle, param: &ConnParam<'_>) -> Result<()> {
        let qp = QpNumber::new(number(qp));
        let Some(&peer) = self.askers.get(&id) else {
            return Err(Error::Protocol(format!("{id:?} is no request")));
        };
        let accept = Accept {
            address: way(peer, self.common.seat.resolve(peer)),
            end: self.end(qp, param)?,
            private_data: param.private_data,
        };
        let common = self.common.clone();
        let access = param.access;
        // In one go, so that the queue pair is ready before the peer hears of it.
        self.with(|agent, card, now| {
            agent.cm().accept(now, id, &accept)?;
            if let Some(attributes) = agent.cm().attributes(id) {
                for step in attributes.steps(access) {
                    if let Err(e) = common.modify(card, now, qp, &step) {
                        agent.cm().abandon(now, id)?;
                        return Err(e);
                    }
                }
            }
            Ok(())
        })?;
        self.ends.insert(id, (qp, access));
        Ok(())
    }

    fn reject(&mut self, id: CommId, private_data: &[u8]) -> Result<()> {
        self.with(|agent, _, now| {
            Ok(agent
                .cm()
                .reject(now, id, RejectReason::CONSUMER, private_data)?)
        })
    }

    fn disconnect(&mut self, id: CommId) -> Result<()> {
        self.with(|agent, _, now| Ok(agent.cm().disconnect(now, id)?))
    }

    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event>> {
        let start = self.common.seat.now();
        loop {
            let (cq, common) = (self.cq, self.common.clone());
            // Asked first and looked at after, so that nothing comes unseen in between.
            let (event, wait) = self.with(|agent, card, now| {
                card.request_notify(cq, Notify::Next)?;
                agent.turn(card, now, |gid| Some(way(gid, common.seat.resolve(gid))));
                let event = agent.cm().next_event();
                let deadline = agent.next_timeout();
                let wait = (deadline != Time::NEVER).then(|| deadline.since(now));
                Ok((event, wait))
            })?;
            if let Some(event) = event {
                match self.see_to(event)? {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            let passed = self.common.seat.now().saturating_sub(start);
            let left = timeout.map(|t| t.saturating_sub(passed));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            let limits = [left, wait.map(Duration::from)];
            let limit = limits.into_iter().flatten().min();
            self.common.seat.next_notification(self.channel, limit)?;
        }
    }
}

impl<S: Seat> Drop for ConnectionManager<S> {
    fn drop(&mut self) {
        self.common.seat.set_channel(self.cq, None);
        self.common.seat.destroy_channel(self.channel);
        let _ = self.common.with(|card, _| card.destroy_qp(QpNumber::GSI));
    }
}
