//! Who runs, who waits, and for what.

use super::{Fabric, WorldConfig};
use crate::{Error, Result};
use softroce_sim::card::Card;
use softroce_sim::fabric::HostId;
use softroce_sim::time::{Span, Time};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A program's number in its world, in the order of their starts.
pub(super) type Number = usize;

thread_local! {
    /// The world and the number of the program that this thread runs.
    static PROGRAM: Cell<Option<(usize, Number)>> = const { Cell::new(None) };
}

/// What all programs of a world share.
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) config: WorldConfig,
}

struct State {
    fabric: Box<dyn Fabric>,
    programs: Vec<Program>,
    /// Who runs; `None` before the first and after the last.
    turn: Option<Number>,
    /// Counts, by host, how often a program has taken news from the card: whoever else waits for some
    /// looks again.
    taken: Vec<u64>,
    /// Turns that programs have had, by host: each may have written to memory that another one looks at.
    turns: Vec<u64>,
    pipes: Vec<Pipe>,
    /// Servers and clients that have found nobody yet.
    servers: VecDeque<Number>,
    clients: VecDeque<Number>,
}

struct Program {
    host: HostId,
    wait: Wait,
    /// What [`State::schedule`] has found: there is nothing to wait for.
    stands_still: bool,
    /// Turns that it has had.
    turns: u64,
    /// What it could see when it last [looked](Shared::look) into memory.
    looked: Option<Seen>,
    wake: Arc<Condvar>,
}

/// What a program waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// For nothing.
    None,
    /// A time.
    Until(Time),
    /// That a look finds something that was not there; or a time.
    Look { seen: Seen, limit: Time },
    /// News from its card, or that someone has taken some since the count was this; or a time.
    News { taken: u64, limit: Time },
    /// A message in a pipe, or its end.
    Message { pipe: usize, side: usize },
    /// A partner. It is told of it by the pipe.
    Partner(Option<(usize, usize)>),
    /// The end of another program.
    End(Number),
    /// It has ended.
    Ended,
}

/// What can have changed when a program looks again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// Completions of its card.
    completed: u64,
    /// Where it looks at memory: packets that its card has taken in, and turns of other programs on its host.
    memory: Option<(u64, u64)>,
}

impl Wait {
    fn limit(self) -> Time {
        match self {
            Wait::Until(t) | Wait::News { limit: t, .. } | Wait::Look { limit: t, .. } => t,
            _ => Time::NEVER,
        }
    }
}

/// Messages both ways between two programs.
#[derive(Default)]
struct Pipe {
    /// To the server and to the client.
    to: [VecDeque<Vec<u8>>; 2],
    closed: bool,
}

impl State {
    /// What a program could see now, in its completion queues alone or in `memory` as well.
    fn seen(&self, program: &Program, memory: bool) -> Seen {
        let host = program.host;
        let others = || self.turns[host.index()] - program.turns;
        Seen {
            completed: self.fabric.completed(host),
            memory: memory.then(|| (self.fabric.arrived(host), others())),
        }
    }

    fn is_ready(&self, program: &Program) -> bool {
        let now = self.fabric.now();
        match program.wait {
            Wait::None => true,
            Wait::Until(t) => t <= now,
            Wait::Look { seen, limit } => {
                limit <= now || self.seen(program, seen.memory.is_some()) != seen
            }
            Wait::News { taken, limit } => {
                limit <= now
                    || self.taken[program.host.index()] != taken
                    || self.fabric.has_news(program.host)
            }
            Wait::Message { pipe, side } => {
                let pipe = &self.pipes[pipe];
                !pipe.to[side].is_empty() || pipe.closed
            }
            Wait::Partner(found) => found.is_some(),
            Wait::End(other) => self.programs[other].wait == Wait::Ended,
            Wait::Ended => false,
        }
    }

    /// Gives the turn to whoever can go on first, and lets the network run until then.
    fn schedule(&mut self) {
        loop {
            let ready = self.programs.iter().enumerate();
            let ready = ready.filter(|(_, p)| self.is_ready(p));
            if let Some((_, number)) = ready.map(|(n, p)| (p.host.index(), n)).min() {
                return self.give_turn(number);
            }
            let waiting = self.programs.iter().filter(|p| p.wait != Wait::Ended);
            let limit = waiting.map(|p| p.wait.limit()).min();
            let Some(limit) = limit else {
                self.turn = None;
                return;
            };
            match self.fabric.next_event() {
                Some(at) if at <= limit => self.fabric.step(),
                _ if limit != Time::NEVER => self.fabric.run_until(limit),
                _ => {
                    // The first of them is told, and its end may be what another one waits for.
                    let waiting = self.programs.iter().enumerate();
                    let waiting = waiting.filter(|(_, p)| p.wait != Wait::Ended);
                    if let Some((_, number)) = waiting.map(|(n, p)| (p.host.index(), n)).min() {
                        self.programs[number].stands_still = true;
                        self.give_turn(number);
                    }
                    return;
                }
            }
        }
    }

    fn give_turn(&mut self, number: Number) {
        self.turn = Some(number);
        let program = &mut self.programs[number];
        program.turns += 1;
        self.turns[program.host.index()] += 1;
        program.wake.notify_one();
    }
}

/// The turn that a program's thread begins with; the program has ended when it is dropped.
pub(super) struct Turn {
    shared: Arc<Shared>,
    number: Number,
}

impl Drop for Turn {
    fn drop(&mut self) {
        PROGRAM.set(None);
        self.shared.leave(self.number);
    }
}

impl Shared {
    pub(super) fn new(fabric: Box<dyn Fabric>, config: WorldConfig) -> Shared {
        let hosts = fabric.hosts().len();
        Shared {
            state: Mutex::new(State {
                fabric,
                programs: Vec::new(),
                turn: None,
                taken: vec![0; hosts],
                turns: vec![0; hosts],
                pipes: Vec::new(),
                servers: VecDeque::new(),
                clients: VecDeque::new(),
            }),
            config,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A program that panics does so outside of this lock.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn with_fabric<R>(&self, look: impl FnOnce(&mut dyn Fabric) -> R) -> R {
        look(&mut *self.lock().fabric)
    }

    pub(super) fn host_names(&self) -> Vec<String> {
        self.lock().fabric.hosts()
    }

    pub(super) fn host(&self, name: &str) -> Option<HostId> {
        let state = self.lock();
        let place = state.fabric.hosts().iter().position(|h| h == name)?;
        Some(state.fabric.host(place))
    }

    /// A place for a program, which is ready to begin.
    pub(super) fn enter(&self, host: HostId) -> Number {
        let mut state = self.lock();
        state.programs.push(Program {
            host,
            wait: Wait::None,
            stands_still: false,
            turns: 0,
            looked: None,
            wake: Arc::new(Condvar::new()),
        });
        state.programs.len() - 1
    }

    /// The first of the programs gets its turn.
    pub(super) fn open(&self) {
        self.lock().schedule();
    }

    /// Called by a program's thread: waits for its first turn.
    pub(super) fn begin(self: &Arc<Shared>, number: Number) -> Turn {
        PROGRAM.set(Some((self.id(), number)));
        let state = self.lock();
        drop(self.await_turn(state, number));
        Turn {
            shared: self.clone(),
            number,
        }
    }

    /// A program has ended.
    pub(super) fn leave(&self, number: Number) {
        let mut state = self.lock();
        state.programs[number].wait = Wait::Ended;
        let had_turn = state.turn == Some(number);
        if had_turn {
            state.schedule();
        }
    }

    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The program that calls.
    fn caller(&self) -> Result<Number> {
        match PROGRAM.get() {
            Some((world, number)) if world == self.id() => Ok(number),
            _ => Err(Error::NotAProgram),
        }
    }

    fn await_turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        number: Number,
    ) -> MutexGuard<'a, State> {
        let wake = state.programs[number].wake.clone();
        while state.turn != Some(number) {
            state = wake.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state.programs[number].wait = Wait::None;
        state
    }

    /// Lets others run until what the caller waits for is there.
    fn block<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        what: &'static str,
        wait: Wait,
    ) -> Result<MutexGuard<'a, State>> {
        let number = self.caller()?;
        state.programs[number].wait = wait;
        state.schedule();
        let mut state = self.await_turn(state, number);
        if std::mem::take(&mut state.programs[number].stands_still) {
            return Err(Error::StandsStill {
                at: since_start(state.fabric.now()),
                what,
            });
        }
        Ok(state)
    }

    /// Calls `act` with the card of a host; what it made the card want is seen to.
    pub(super) fn with(&self, host: HostId, act: &mut dyn FnMut(&mut Card, Time)) {
        let mut state = self.lock();
        let now = state.fabric.now();
        act(state.fabric.card(host), now);
        state.fabric.kick(host);
    }

    pub(super) fn now(&self) -> Time {
        self.lock().fabric.now()
    }

    /// Lets `time` pass for the caller.
    pub(super) fn pass(&self, time: Span) -> Result<()> {
        let state = self.lock();
        let until = state.fabric.now() + time;
        self.block(state, "a time", Wait::Until(until)).map(drop)
    }

    /// Lets time pass for a caller who looks for completions, or into `memory` too, again and again, once every `period`,
    /// until a look may find something else than the last, or for `limit`. Ends when that look is made.
    pub(super) fn look(&self, memory: bool, period: Span, limit: Span) -> Result<()> {
        let number = self.caller()?;
        let period = Span::from_ps(period.as_ps().max(1));
        let mut state = self.lock();
        let begin = state.fabric.now();
        let seen = state.seen(&state.programs[number], memory);
        // Nobody knows when it looked into memory: what has come since this was called last it may not have seen, if
        // it has polled a completion queue in between, which takes time.
        if memory && state.programs[number].looked.replace(seen) != Some(seen) {
            return Ok(());
        }
        let limit = begin + limit;
        let mut state = self.block(state, "a completion", Wait::Look { seen, limit })?;
        let since = state.fabric.now().since(begin);
        // The look at which it shows.
        let looks = since.as_ps().div_ceil(period.as_ps()).max(1);
        let at = begin + Span::from_ps(period.as_ps().saturating_mul(looks));
        if at > state.fabric.now() {
            state = self.block(state, "a time", Wait::Until(at))?;
        }
        if memory {
            let seen = state.seen(&state.programs[number], memory);
            state.programs[number].looked = Some(seen);
        }
        Ok(())
    }

    /// Waits until `ready`, which is asked whenever the card has news; false if it was not before `limit`.
    pub(super) fn wait_for_news(
        &self,
        host: HostId,
        what: &'static str,
        timeout: Option<Span>,
        ready: &mut dyn FnMut(&mut Card) -> bool,
    ) -> Result<bool> {
        let mut state = self.lock();
        let limit = timeout.map_or(Time::NEVER, |t| state.fabric.now() + t);
        loop {
            let had_news = state.fabric.has_news(host);
            let is_ready = ready(state.fabric.card(host));
            if had_news {
                state.taken[host.index()] += 1;
            }
            if is_ready {
                return Ok(true);
            }
            if state.fabric.now() >= limit {
                return Ok(false);
            }
            let taken = state.taken[host.index()];
            state = self.block(state, what, Wait::News { taken, limit })?;
        }
    }

    /// Starts a program beside the caller, on the same host.
    pub(super) fn spawn(
        self: &Arc<Shared>,
        host: HostId,
        program: Box<dyn FnOnce() + Send>,
    ) -> Result<(Number, std::thread::JoinHandle<()>)> {
        self.caller()?;
        let number = self.enter(host);
        let shared = self.clone();
        let begun = std::thread::Builder::new().spawn(move || {
            let _turn = shared.begin(number);
            program();
        });
        begun.map(|thread| (number, thread)).map_err(|source| {
            self.leave(number);
            Error::Os {
                call: "starting a thread for another program".into(),
                source,
            }
        })
    }

    pub(super) fn await_end(&self, other: Number) -> Result<()> {
        let state = self.lock();
        self.block(state, "the end of another program", Wait::End(other))
            .map(drop)
    }

    /// Meets the program in the other role: a pipe, and the caller's side of it.
    pub(super) fn meet(&self, is_server: bool) -> Result<(usize, usize)> {
        let number = self.caller()?;
        let mut state = self.lock();
        let other = if is_server {
            state.clients.pop_front()
        } else {
            state.servers.pop_front()
        };
        let (own, others) = if is_server { (0, 1) } else { (1, 0) };
        if let Some(other) = other {
            let pipe = state.pipes.len();
            state.pipes.push(Pipe::default());
            state.programs[other].wait = Wait::Partner(Some((pipe, others)));
            return Ok((pipe, own));
        }
        if is_server {
            state.servers.push_back(number);
        } else {
            state.clients.push_back(number);
        }
        state.programs[number].wait = Wait::Partner(None);
        state.schedule();
        // What it waited for says who came; waiting for the turn forgets it.
        let wake = state.programs[number].wake.clone();
        while state.turn != Some(number) {
            state = wake.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        let wait = std::mem::replace(&mut state.programs[number].wait, Wait::None);
        state.programs[number].stands_still = false;
        match wait {
            Wait::Partner(Some(found)) => Ok(found),
            _ => {
                state.servers.retain(|&n| n != number);
                state.clients.retain(|&n| n != number);
                Err(Error::StandsStill {
                    at: since_start(state.fabric.now()),
                    what: if is_server { "a client" } else { "a server" },
                })
            }
        }
    }

    pub(super) fn send(&self, pipe: usize, side: usize, message: &[u8]) -> bool {
        let mut state = self.lock();
        let pipe = &mut state.pipes[pipe];
        if !pipe.closed {
            pipe.to[1 - side].push_back(message.into());
        }
        !pipe.closed
    }

    /// The next message; `None` if the partner has closed the pipe.
    pub(super) fn receive(&self, pipe: usize, side: usize) -> Result<Option<Vec<u8>>> {
        let mut state = self.lock();
        loop {
            if let Some(message) = state.pipes[pipe].to[side].pop_front() {
                return Ok(Some(message));
            }
            if state.pipes[pipe].closed {
                return Ok(None);
            }
            let wait = Wait::Message { pipe, side };
            state = self.block(state, "a message of its partner", wait)?;
        }
    }

    /// The next message if there is one, and whether the pipe is closed.
    pub(super) fn try_receive(&self, pipe: usize, side: usize) -> (Option<Vec<u8>>, bool) {
        let pipe = &mut self.lock().pipes[pipe];
        (pipe.to[side].pop_front(), pipe.closed)
    }

    pub(super) fn close(&self, pipe: usize) {
        self.lock().pipes[pipe].closed = true;
    }
}

/// A time of the network as the time since it began.
pub(super) fn since_start(time: Time) -> Duration {
    Duration::from_nanos(time.as_ps() / 1000)
}
