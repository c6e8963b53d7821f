//! Who looks after queue pair 1 whatever programs do: on a host with hardware the operating system, which answers
//! management datagrams while programs compute.
//!
//! The card calls it where it would otherwise leave a datagram for a program: so it needs no thread, and lives in the
//! card's time, real or virtual. What it has the card send is seen to by whoever drives the card, as ever.

use super::Card;
use crate::time::Time;
use std::any::Any;
use std::fmt::Debug;

/// In place of a queue pair's index: the timer is the companion's.
pub(super) const TIMER: u32 = u32::MAX - 1;

/// Who looks after queue pair 1 of a card, the general services interface, and has its completion queue: in the
/// specification's words the agent behind it.
pub trait Companion: Any + Debug + Send {
    /// A datagram for queue pair 1 has come, or the time that [`Companion::next_timeout`] gave, or none of both.
    fn turn(&mut self, card: &mut Card, now: Time);

    /// When [`Companion::turn`] is to be called without anything having come; after a turn, a time to come, or
    /// [`Time::NEVER`]. Asked after each turn and each call of [`Card::with_companion`].
    fn next_timeout(&self) -> Time;
}

/// A card's companion.
#[derive(Debug, Default)]
pub(super) struct Slot {
    who: Option<Box<dyn Companion>>,
    /// Its entries in the card's timer heap, the earliest last.
    armed: Vec<Time>,
}

impl Card {
    /// Leaves queue pair 1 to `companion`, whatever programs do from here on. Gives back who had it before.
    pub fn set_companion(&mut self, companion: Box<dyn Companion>) -> Option<Box<dyn Companion>> {
        let before = self.companion.who.take();
        self.seat(companion);
        before
    }

    /// Calls `act` with the companion, if there is one and it is a `C`.
    pub fn with_companion<C: Companion, R>(
        &mut self,
        act: impl FnOnce(&mut C, &mut Card) -> R,
    ) -> Option<R> {
        let mut who = self.companion.who.take()?;
        let any: &mut dyn Any = &mut *who;
        let outcome = any.downcast_mut().map(|companion| act(companion, self));
        self.seat(who);
        outcome
    }

    /// From here on nobody looks after queue pair 1 but programs.
    pub fn take_companion(&mut self) -> Option<Box<dyn Companion>> {
        self.companion.who.take()
    }

    fn seat(&mut self, who: Box<dyn Companion>) {
        let at = who.next_timeout();
        self.companion.who = Some(who);
        // A later time is found out when the earlier comes.
        if at < self.companion.armed.last().copied().unwrap_or(Time::NEVER) {
            self.companion.armed.push(at);
            self.set_timer(at, TIMER);
        }
    }

    /// Something may have come to queue pair 1.
    #[cold]
    pub(super) fn call_companion(&mut self, now: Time) {
        if let Some(mut who) = self.companion.who.take() {
            who.turn(self, now);
            self.seat(who);
        }
    }

    /// Its time has come.
    #[cold]
    pub(super) fn companion_is_due(&mut self, now: Time) -> bool {
        // Its entries come up in the order of their times.
        let due = self.companion.armed.pop().is_some() && self.companion.who.is_some();
        self.call_companion(now);
        due
    }
}
