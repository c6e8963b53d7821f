//! How a program gets at its card.

use super::super::card::{Neighbours, Seat};
use super::super::{Exchange, Handle, Join};
use super::turns::{Number, Shared, since_start};
use crate::exchange::Role;
use crate::{Error, PostError, QpNumber, RecvRequest, Result, State};
use softroce_sim::card::{self, AsyncEvent, Card, CqId};
use softroce_sim::fabric::HostId;
use softroce_sim::time::{Span, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A host of a network in virtual time.
pub(super) struct SimSeat {
    shared: Arc<Shared>,
    host: HostId,
    desk: Mutex<Desk>,
    /// Ethernet addresses of all hosts.
    neighbours: Neighbours,
}

/// News of the card that nobody has taken yet.
#[derive(Default)]
struct Desk {
    channels: usize,
    /// Completion queues with a channel.
    told_in: BTreeMap<CqId, Handle>,
    /// Notifications, by channel.
    told: BTreeMap<Handle, VecDeque<CqId>>,
    events: VecDeque<AsyncEvent>,
}

impl SimSeat {
    pub(super) fn new(shared: Arc<Shared>, host: HostId) -> SimSeat {
        SimSeat {
            neighbours: Arc::new(
                shared
                    .with_fabric(|fabric| fabric.neighbours())
                    .into_iter()
                    .collect(),
            ),
            shared,
            host,
            desk: Mutex::default(),
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nothing in it can be half done.
        self.desk.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the card's news to where they are asked for.
    fn collect(&self, card: &mut Card) -> MutexGuard<'_, Desk> {
        let mut desk = self.desk();
        while let Some(cq) = card.next_notification() {
            if let Some(&channel) = desk.told_in.get(&cq) {
                desk.told.entry(channel).or_default().push_back(cq);
            }
        }
        while let Some(event) = card.next_event() {
            desk.events.push_back(event);
        }
        desk
    }

    fn wait<T>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        mut take: impl FnMut(&mut Desk) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut taken = None;
        self.shared
            .wait_for_news(self.host, what, timeout.map(span), &mut |card| {
                taken = take(&mut self.collect(card));
                taken.is_some()
            })?;
        Ok(taken)
    }
}

/// Picoseconds; the longest there are for what is longer.
fn span(time: Duration) -> Span {
    let ps = time.as_nanos().saturating_mul(1000);
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}

impl Seat for SimSeat {
    fn with(&self, act: &mut dyn FnMut(&mut Card, Time)) -> Result<()> {
        self.shared.with(self.host, act);
        Ok(())
    }

    fn doorbell(&self, qp: QpNumber) {
        self.shared
            .with(self.host, &mut |card, now| card.doorbell(now, qp));
    }

    fn turn(&self) -> Result<()> {
        self.shared.pass(self.shared.config.poll)
    }

    fn rest(&self, memory: bool, limit: Duration) -> Result<bool> {
        let poll = self.shared.config.poll;
        self.shared.look(memory, poll, span(limit))?;
        Ok(true)
    }

    fn post_recv(
        &self,
        qp: &mut card::QueuePair,
        request: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        qp.post_recv(request)?;
        if qp.state() == State::Error {
            self.doorbell(qp.number());
        }
        Ok(())
    }

    fn create_channel(&self) -> Result<Handle> {
        let mut desk = self.desk();
        desk.channels += 1;
        Ok(desk.channels)
    }

    fn destroy_channel(&self, channel: Handle) {
        self.desk().told.remove(&channel);
    }

    fn set_channel(&self, cq: CqId, channel: Option<Handle>) {
        let mut desk = self.desk();
        match channel {
            Some(channel) => {
                desk.told_in.insert(cq, channel);
            }
            None => {
                desk.told_in.remove(&cq);
                for told in desk.told.values_mut() {
                    told.retain(|&c| c != cq);
                }
            }
        }
    }

    fn next_notification(
        &self,
        channel: Handle,
        timeout: Option<Duration>,
    ) -> Result<Option<CqId>> {
        self.wait("a completion event", timeout, |desk| {
            desk.told.get_mut(&channel)?.pop_front()
        })
    }

    fn next_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        self.wait("an asynchronous event", timeout, |desk| {
            desk.events.pop_front()
        })
    }

    fn neighbours(&self) -> Neighbours {
        self.neighbours.clone()
    }

    fn now(&self) -> Duration {
        since_start(self.shared.now())
    }

    fn sleep(&self, time: Duration) -> Result<()> {
        self.shared.pass(span(time))
    }

    fn spawn(&self, program: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
        let (number, thread) = self.shared.spawn(self.host, program)?;
        Ok(Box::new(SimJoin {
            shared: self.shared.clone(),
            number,
            thread,
        }))
    }

    fn exchange(&self, role: &Role, _: &dyn Fn(&Role)) -> Result<Box<dyn Exchange>> {
        let (pipe, side) = self.shared.meet(role.is_server())?;
        Ok(Box::new(SimExchange {
            shared: self.shared.clone(),
            pipe,
            side,
        }))
    }
}

struct SimJoin {
    shared: Arc<Shared>,
    number: Number,
    thread: std::thread::JoinHandle<()>,
}

impl Join for SimJoin {
    fn join(self: Box<Self>) -> Result<()> {
        self.shared.await_end(self.number)?;
        // It has ended, or is about to: that it panicked shows in what it did not leave behind.
        let _ = self.thread.join();
        Ok(())
    }
}

/// One side of a pipe between two programs.
struct SimExchange {
    shared: Arc<Shared>,
    pipe: usize,
    side: usize,
}

impl SimExchange {
    fn gone() -> Error {
        Error::Exchange {
            peer: "the partner".into(),
            why: "it has ended".into(),
        }
    }
}

impl Exchange for SimExchange {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        if self.shared.send(self.pipe, self.side, message) {
            Ok(())
        } else {
            Err(SimExchange::gone())
        }
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let message = self.shared.receive(self.pipe, self.side)?;
        message.ok_or_else(SimExchange::gone)
    }

    fn try_receive(&mut self) -> Result<Option<Vec<u8>>> {
        match self.shared.try_receive(self.pipe, self.side) {
            (None, true) => Err(SimExchange::gone()),
            (message, _) => Ok(message),
        }
    }
}

impl Drop for SimExchange {
    fn drop(&mut self) {
        self.shared.close(self.pipe);
    }
}
