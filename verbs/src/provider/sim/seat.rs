//! How a program gets at its card.

use super::super::card::Seat;
use super::super::{Exchange, Join};
use super::turns::{Number, Shared, since_start};
use crate::exchange::Role;
use crate::{Error, Gid, QpNumber, Result};
use softroce_sim::card::Card;
use softroce_sim::fabric::HostId;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::MacAddr;
use std::sync::Arc;
use std::time::Duration;

/// A host of a network in virtual time.
pub(super) struct SimSeat {
    shared: Arc<Shared>,
    host: HostId,
}

impl SimSeat {
    pub(super) fn new(shared: Arc<Shared>, host: HostId) -> SimSeat {
        SimSeat { shared, host }
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

    fn wait(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut(&mut Card) -> bool,
    ) -> Result<bool> {
        let timeout = timeout.map(span);
        self.shared.wait_for_news(self.host, what, timeout, ready)
    }

    fn resolve(&self, gid: Gid) -> Option<MacAddr> {
        self.shared.mac_of(gid)
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

    fn exchange(&self, role: &Role) -> Result<Box<dyn Exchange>> {
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
}

impl Drop for SimExchange {
    fn drop(&mut self) {
        self.shared.close(self.pipe);
    }
}
