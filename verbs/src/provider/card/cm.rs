//! The connection manager of a software card.

use super::{Common, Seat, number};
use crate::cm::{CommId, ConnParam, Event, RejectReason, ServiceId};
use crate::provider::{self, Handle};
use crate::{AddressVector, Error, Gid, Notify, QpAttributes, QpNumber, QpType, Result, State};
use softroce_sim::card::{Card, CqId};
use softroce_sim::cm::{Accept, Agent, CmConfig, Connect, Endpoint, Phase};
use softroce_sim::time::Time;
use softroce_sim::wire::MacAddr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// This end's port, as the peer's program is told, where nobody has chosen one.
const SOURCE_PORT: u16 = 0;

pub(super) struct ConnectionManager<S: Seat> {
    common: Arc<Common<S>>,
    /// There until it is closed.
    agent: Option<Agent>,
    cq: CqId,
    /// There once it is made.
    channel: Option<Handle>,
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
        let mut manager = ConnectionManager {
            common,
            agent: Some(agent),
            cq,
            channel: None,
            ends: BTreeMap::new(),
            askers: BTreeMap::new(),
        };
        let channel = manager.common.seat.create_channel()?;
        manager.channel = Some(channel);
        manager.common.seat.set_channel(cq, Some(channel));
        Ok(manager)
    }

    /// Calls `act`, and sends what came of it.
    fn with<T>(
        &mut self,
        mut act: impl FnMut(&mut Agent, &mut Card, Time) -> Result<T>,
    ) -> Result<T> {
        let (agent, seat) = (&mut self.agent, &self.common.seat);
        let Some(agent) = agent else {
            return Err(Error::Protocol("the connection manager is closed".into()));
        };
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

    /// The peer has accepted: the queue pair is brought up, and the peer told so, or that it cannot be.
    fn accepted(&mut self, id: CommId) -> Result<()> {
        let end = self.ends.get(&id).copied();
        let common = self.common.clone();
        let outcome = self.with(|agent, card, now| {
            if agent.cm().phase(id) != Some(Phase::RepReceived) {
                // It has changed its mind since, of which the next event tells.
                return Ok(());
            }
            let attributes = agent.cm().attributes(id);
            let up = match (end, attributes) {
                (Some((qp, access)), Some(attributes)) => {
                    common.bring_up(card, now, qp, &attributes.steps(access))
                }
                _ => Err(Error::Protocol(format!("{id:?} has no queue pair here"))),
            };
            match up {
                Ok(()) => Ok(agent.cm().establish(id, &[])?),
                Err(e) => {
                    agent.cm().reject(now, id, RejectReason::CONSUMER, &[])?;
                    Err(e)
                }
            }
        });
        if outcome.is_err() {
            self.ends.remove(&id);
        }
        outcome
    }

    /// A connection has ended, or will not be: its queue pair goes into error if it was in use.
    fn ended(&mut self, id: CommId) -> Result<()> {
        self.askers.remove(&id);
        let Some((qp, _)) = self.ends.remove(&id) else {
            return Ok(());
        };
        let common = self.common.clone();
        self.with(|_, card, now| {
            if card.qp_state(qp).is_some_and(|state| state != State::Reset) {
                // It may be in error already.
                let _ = common.modify(card, now, qp, &QpAttributes::to(State::Error));
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
                self.accepted(*id)?;
                return Ok(None);
            }
            Event::Disconnected { id }
            | Event::Rejected { id, .. }
            | Event::Unreachable { id }
            | Event::TimewaitExit { id } => self.ended(*id)?,
            Event::Established { .. } | Event::Resolved { .. } => {}
        }
        Ok(Some(event))
    }

    fn await_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event>> {
        let start = self.common.seat.now();
        let mut to_sleep = false;
        loop {
            let (cq, common) = (self.cq, self.common.clone());
            let (event, wait) = self.with(|agent, card, now| {
                if to_sleep {
                    // Asked first and looked at after, so that nothing comes unseen in between.
                    card.request_notify(cq, Notify::Next)?;
                }
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
            if !std::mem::replace(&mut to_sleep, true) {
                continue;
            }
            let limits = [left, wait.map(Duration::from)];
            let limit = limits.into_iter().flatten().min();
            if let Some(channel) = self.channel {
                self.common.seat.next_notification(channel, limit)?;
            }
        }
    }
}

impl<S: Seat> Common<S> {
    /// Brings a queue pair from RESET to RTS; if that fails, back.
    fn bring_up(
        &self,
        card: &mut Card,
        now: Time,
        qp: QpNumber,
        steps: &[QpAttributes; 3],
    ) -> Result<()> {
        // One that is in use elsewhere is refused by the first step, and stays as it is.
        let [first, others @ ..] = steps;
        self.modify(card, now, qp, first)?;
        for step in others {
            if let Err(e) = self.modify(card, now, qp, step) {
                let _ = self.modify(card, now, qp, &QpAttributes::to(State::Reset));
                return Err(e);
            }
        }
        Ok(())
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
        self.with(|agent, card, now| {
            // The queue pair is ready before the peer hears of it.
            let attributes = agent.cm().attributes_to_accept(id, &accept);
            if let Some(attributes) = &attributes {
                common.bring_up(card, now, qp, &attributes.steps(access))?;
            }
            let accepted = agent.cm().accept(now, id, &accept);
            if accepted.is_err() && attributes.is_some() {
                let _ = common.modify(card, now, qp, &QpAttributes::to(State::Reset));
            }
            Ok(accepted?)
        })?;
        self.askers.remove(&id);
        self.ends.insert(id, (qp, access));
        Ok(())
    }

    fn reject(&mut self, id: CommId, private_data: &[u8]) -> Result<()> {
        self.with(|agent, _, now| {
            Ok(agent
                .cm()
                .reject(now, id, RejectReason::CONSUMER, private_data)?)
        })?;
        self.askers.remove(&id);
        Ok(())
    }

    fn disconnect(&mut self, id: CommId) -> Result<()> {
        self.with(|agent, _, now| Ok(agent.cm().disconnect(now, id)?))
    }

    fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event>> {
        let outcome = self.await_event(timeout);
        let cq = self.cq;
        // A completion queue that is armed tells the card that its program sleeps.
        let _ = self.common.with(|card, _| card.cancel_notify(cq));
        outcome
    }
}

impl<S: Seat> Drop for ConnectionManager<S> {
    fn drop(&mut self) {
        self.common.seat.set_channel(self.cq, None);
        if let Some(channel) = self.channel {
            self.common.seat.destroy_channel(channel);
        }
        let mut agent = self.agent.take();
        let _ = self.common.with(|card, _| {
            if let Some(agent) = agent.take() {
                agent.close(card);
            }
        });
    }
}
