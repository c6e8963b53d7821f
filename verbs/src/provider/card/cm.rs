//! The connection manager of a software card.
//!
//! Two halves. The [`Manager`] is at the card, as its [`Companion`]: it answers peers, asks again what they do not answer,
//! and puts queue pairs of connections that have ended into error, whatever the program does. What it has to tell waits
//! there until the program's half, the [`ConnectionManager`], is asked for it.

use super::{Common, Neighbours, Seat, number};
use crate::cm::{CommId, ConnParam, Event, RejectReason, ServiceId};
use crate::provider::{self, Handle};
use crate::{AddressVector, Error, Gid, Notify, QpAttributes, QpNumber, QpType, Result, State};
use softroce_sim::card::{Card, Companion, CqId};
use softroce_sim::cm::{Accept, Agent, CmConfig, CmError, Connect, Endpoint, Phase};
use softroce_sim::time::Time;
use softroce_sim::wire::MacAddr;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// This end's port, as the peer's program is told, where nobody has chosen one.
const SOURCE_PORT: u16 = 0;

/// The card's half.
#[derive(Debug)]
struct Manager {
    agent: Agent,
    neighbours: Neighbours,
    /// Queue pairs of connections, and what their peers may do.
    ends: BTreeMap<CommId, (QpNumber, crate::Access)>,
    /// What the program has not seen.
    events: VecDeque<Event>,
}

impl Companion for Manager {
    fn turn(&mut self, card: &mut Card, now: Time) {
        let neighbours = &self.neighbours;
        self.agent.turn(card, now, |gid| {
            Some(way(gid, neighbours.get(&gid).copied()))
        });
        while let Some(event) = self.agent.cm().next_event() {
            if let Event::Rejected { id, .. } = event
                && Event::take_back(&mut self.events, id)
            {
                continue;
            }
            if let Event::Disconnected { id }
            | Event::Rejected { id, .. }
            | Event::Unreachable { id } = event
            {
                self.ended(card, now, id);
            }
            self.events.push_back(event);
        }
    }

    fn next_timeout(&self) -> Time {
        self.agent.next_timeout()
    }
}

impl Manager {
    /// A connection has a queue pair; what becomes of one that had it before is nothing to it.
    fn begin(&mut self, id: CommId, qp: QpNumber, access: crate::Access) {
        self.ends.retain(|_, (other, _)| *other != qp);
        self.ends.insert(id, (qp, access));
    }

    /// A connection has ended, or will not be: its queue pair goes into error if it was in use.
    fn ended(&mut self, card: &mut Card, now: Time, id: CommId) {
        if let Some((qp, _)) = self.ends.remove(&id)
            && card.qp_state(qp).is_some_and(|state| state != State::Reset)
        {
            // It may be in error already.
            let _ = card.modify_qp(now, qp, &QpAttributes::to(State::Error));
        }
    }
}

/// The program's half.
pub(super) struct ConnectionManager<S: Seat> {
    common: Arc<Common<S>>,
    /// That of queue pair 1: it is armed while the program sleeps.
    cq: CqId,
    /// There once it is made.
    channel: Option<Handle>,
}

impl<S: Seat> ConnectionManager<S> {
    pub(super) fn open(common: Arc<Common<S>>) -> Result<ConnectionManager<S>> {
        let neighbours = common.seat.neighbours();
        let cq = common.with(|card, now| {
            let config = CmConfig::new(card.config().gid, card.config().mac);
            let seed = u64::from(card.draw_psn().get()) << 24 | u64::from(card.draw_psn().get());
            let agent = Agent::new(card, now, config, seed)?;
            let cq = agent.cq();
            // Who has queue pair 1 is the companion, and nobody had it.
            card.set_companion(Box::new(Manager {
                agent,
                neighbours: neighbours.clone(),
                ends: BTreeMap::new(),
                events: VecDeque::new(),
            }));
            Ok(cq)
        })?;
        let cq = cq.map_err(Error::Agent)?;
        let mut manager = ConnectionManager {
            common,
            cq,
            channel: None,
        };
        let channel = manager.common.seat.create_channel()?;
        manager.channel = Some(channel);
        manager.common.seat.set_channel(cq, Some(channel));
        Ok(manager)
    }

    /// Calls `act`, and sends what came of it.
    fn with<T>(
        &self,
        mut act: impl FnMut(&mut Manager, &mut Card, Time) -> Result<T>,
    ) -> Result<T> {
        let outcome = self.common.with(|card, now| {
            card.with_companion(|manager: &mut Manager, card| {
                let outcome = act(manager, card, now);
                manager.turn(card, now);
                outcome
            })
        })?;
        outcome.unwrap_or_else(|| Err(Error::Port("the connection manager is closed".into())))
    }

    fn end(&self, qp: QpNumber, param: &ConnParam<'_>) -> Result<Endpoint> {
        let psn = self.common.with(|card, _| card.draw_psn())?;
        Ok(Endpoint {
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            rnr_retry_count: param.rnr_retry_count,
            ..Endpoint::new(qp, psn)
        })
    }

    /// The peer has accepted: the queue pair is brought up, and the peer told so, or that it cannot be.
    fn accepted(&self, id: CommId) -> Result<()> {
        self.with(|manager, card, now| {
            let cm = manager.agent.cm();
            if cm.phase(id) != Some(Phase::RepReceived) {
                // It has changed its mind since, of which the next event tells.
                return Ok(());
            }
            let up = match (manager.ends.get(&id), cm.attributes(id)) {
                (Some(&(qp, access)), Some(attributes)) => {
                    self.common
                        .bring_up(card, now, qp, &attributes.steps(access))
                }
                _ => Err(CmError::UnknownConnection(id).into()),
            };
            match up {
                Ok(()) => Ok(cm.establish(id, &[])?),
                Err(e) => {
                    cm.reject(now, id, RejectReason::CONSUMER, &[])?;
                    manager.ends.remove(&id);
                    Err(e)
                }
            }
        })
    }

    fn await_event(&self, timeout: Option<Duration>) -> Result<Option<Event>> {
        let start = self.common.seat.now();
        let mut to_sleep = false;
        loop {
            let (event, wait) = self.with(|manager, card, now| {
                if to_sleep {
                    // Asked first and looked at after, so that nothing comes unseen in between.
                    card.request_notify(self.cq, Notify::Next)?;
                }
                manager.turn(card, now);
                let event = manager.events.pop_front();
                // Not all that there is to tell begins with a datagram.
                let deadline = manager.next_timeout();
                let wait = (deadline != Time::NEVER).then(|| deadline.since(now));
                Ok((event, wait))
            })?;
            match event {
                Some(Event::ConnectResponse { id, .. }) => {
                    self.accepted(id)?;
                    continue;
                }
                Some(event) => return Ok(Some(event)),
                None => {}
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
        self.with(|manager, _, _| Ok(manager.agent.cm().listen(service)?))
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
        self.with(|manager, _, now| {
            let id = manager.agent.cm().connect(now, &connect)?;
            manager.begin(id, qp, param.access);
            Ok(id)
        })
    }

    fn accept(&mut self, id: CommId, qp: Handle, param: &ConnParam<'_>) -> Result<()> {
        let qp = QpNumber::new(number(qp));
        let end = self.end(qp, param)?;
        self.with(|manager, card, now| {
            let cm = manager.agent.cm();
            let Some(peer) = cm.asker(id) else {
                let refused = match cm.phase(id) {
                    None => CmError::UnknownConnection(id),
                    Some(phase) => CmError::WrongPhase {
                        id,
                        what: "accepted",
                        phase,
                    },
                };
                return Err(refused.into());
            };
            let accept = Accept {
                address: way(peer, manager.neighbours.get(&peer).copied()),
                end,
                private_data: param.private_data,
            };
            // The queue pair is ready before the peer hears of it.
            let attributes = cm.attributes_to_accept(id, &accept);
            if let Some(attributes) = &attributes {
                self.common
                    .bring_up(card, now, qp, &attributes.steps(param.access))?;
            }
            let accepted = cm.accept(now, id, &accept);
            if accepted.is_err() && attributes.is_some() {
                let reset = QpAttributes::to(State::Reset);
                let _ = self.common.modify(card, now, qp, &reset);
            }
            accepted?;
            manager.begin(id, qp, param.access);
            Ok(())
        })
    }

    fn reject(&mut self, id: CommId, private_data: &[u8]) -> Result<()> {
        self.with(|manager, _, now| {
            let reason = RejectReason::CONSUMER;
            Ok(manager.agent.cm().reject(now, id, reason, private_data)?)
        })
    }

    fn disconnect(&mut self, id: CommId) -> Result<()> {
        self.with(|manager, _, now| Ok(manager.agent.cm().disconnect(now, id)?))
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
        let _ = self.common.with(|card, _| {
            let companion = card.take_companion().map(|c| c as Box<dyn Any>);
            if let Some(Ok(manager)) = companion.map(|c| c.downcast::<Manager>()) {
                manager.agent.close(card);
            }
        });
    }
}
