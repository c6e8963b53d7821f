//! Collectives: what several hosts do together, round after round, each as a state machine.
//!
//! A member of a collective runs on one host. It is told what has completed and when a time has come,
//! and answers with what its flows may post next; it knows neither card nor network. The flows have
//! their messages ready and wait for leave to post them.
//!
//! | file | what |
//! |---|---|
//! | `ring` | all-reduce around a ring |
//! | `server` | a parameter server and its workers |

mod ring;
mod server;

pub use ring::Ring;
pub use server::{Server, Worker};

use crate::time::{Span, Time};

/// Something a member is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The time it asked for has come; the first time, it begins.
    Wake,
    /// A message of the `n`-th flow it sends on has completed with success.
    Sent(usize),
    /// A message of the `n`-th flow it receives has arrived.
    Received(usize),
}

/// What a member asks for, in answer to an event.
#[derive(Clone, Default, Debug)]
pub struct Orders {
    /// So many more messages may be posted on the `n`-th flow it sends on.
    pub grants: Vec<(usize, u64)>,
    /// It wants to be woken then.
    pub wake: Option<Time>,
}

/// A round as one member saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    /// When it had computed and was ready to communicate.
    pub launch: Time,
    /// When it had all it needs for the next round.
    pub end: Time,
}

/// A member of a collective.
#[derive(Clone, Debug)]
pub enum Member {
    /// Of a ring.
    Ring(Ring),
    /// A worker with a parameter server.
    Worker(Worker),
    /// The parameter server itself.
    Server(Server),
}

impl Member {
    /// Takes in an event and adds what is to be done to `orders`.
    pub fn on(&mut self, now: Time, event: Event, orders: &mut Orders) {
        match self {
            Member::Ring(m) => m.on(now, event, orders),
            Member::Worker(m) => m.on(now, event, orders),
            Member::Server(m) => m.on(event, orders),
        }
    }

    /// The rounds it has been through, the oldest first; a server has none of its own.
    pub fn rounds(&self) -> &[Round] {
        match self {
            Member::Ring(m) => m.rhythm.rounds(),
            Member::Worker(m) => m.rhythm.rounds(),
            Member::Server(_) => &[],
        }
    }
}

/// Computes, communicates, and again.
#[derive(Clone, Debug)]
struct Rhythm {
    /// Rounds in all.
    wanted: u64,
    compute: Span,
    /// When the present round was launched, while it is.
    launched: Option<Time>,
    waiting: bool,
    rounds: Vec<Round>,
}

impl Rhythm {
    fn new(rounds: u64, compute: Span) -> Rhythm {
        Rhythm {
            wanted: rounds,
            compute,
            launched: None,
            waiting: false,
            rounds: Vec::new(),
        }
    }

    fn rounds(&self) -> &[Round] {
        &self.rounds
    }

    /// Rounds that have ended.
    fn ended(&self) -> u64 {
        self.rounds.len() as u64
    }

    /// Goes on to the next round, if there is one: true if it is launched at once, without anything to
    /// compute before.
    fn next(&mut self, now: Time, orders: &mut Orders) -> bool {
        if self.ended() >= self.wanted {
            return false;
        }
        if self.compute > Span::ZERO {
            self.waiting = true;
            orders.wake = Some(now + self.compute);
            return false;
        }
        self.launched = Some(now);
        true
    }

    /// Is woken: true if that launches the round.
    fn wake(&mut self, now: Time, orders: &mut Orders) -> bool {
        if self.waiting {
            self.waiting = false;
            self.launched = Some(now);
            return true;
        }
        self.launched.is_none() && self.next(now, orders)
    }

    /// The present round has ended.
    fn end(&mut self, now: Time) {
        if let Some(launch) = self.launched.take() {
            self.rounds.push(Round { launch, end: now });
        }
    }
}
