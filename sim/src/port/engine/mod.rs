//! A card on a port that runs by itself.
//!
//! * [`Engine`]: the handle, here.
//! * `driver`: port and card behind the lock, and whom they tell.
//! * `handover`: the lock, and bells for who has it; `sync` is what it is made of.
//! * `thread`: drives the card while the program does not.
//! * `events`: queues that a program sleeps on.

mod driver;
mod events;
mod handover;
mod sync;
mod thread;

pub use events::EventChannel;

use super::{Link, Port, PortCounters, PortError, Tap};
use crate::card::{AsyncEvent, Card, CqId, MAX_QP, PostError, QueuePair, RecvRequest, State};
use crate::time::Time;
use crate::wire::{Gid, QpNumber};
use driver::{Driver, kick};
use handover::Handover;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use thread::Watcher;

/// How long the engine's thread leaves the port alone when the program drives: a program that has not
/// driven for this long is taken to do something else.
const NAP: Duration = Duration::from_millis(1);

/// Why an engine does nothing any more, or does not begin.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// The port is broken.
    #[error(transparent)]
    Broken(Arc<PortError>),
    /// [`Engine::close`] was called.
    #[error("the engine is closed")]
    Closed,
    /// The operating system has no thread or descriptor for it.
    #[error("engine of {port}: {what}: {source}")]
    Start {
        /// The port.
        port: String,
        /// What was being done.
        what: &'static str,
        /// The operating system's word.
        source: Arc<io::Error>,
    },
    /// The operating system does not let the program wait.
    #[error("waiting for an event: {0}")]
    Wait(Arc<io::Error>),
}

impl EngineError {
    fn waiting(source: io::Error) -> EngineError {
        EngineError::Wait(Arc::new(source))
    }
}

/// A card on a port that runs by itself: the handle that the threads of a program share.
///
/// A program that polls its completion queues calls [`Engine::drive`] as it does, and so does all the work
/// of the card itself: nothing is handed from thread to thread. While no program drives, a thread of the
/// engine's own does; it sleeps until something arrives or a deadline comes. So requests of peers are
/// served whatever the program does, and a card without work costs nothing.
///
/// | call | waits for others? |
/// |---|---|
/// | [`doorbell`](Engine::doorbell), [`drive`](Engine::drive), [`post_recv`](Engine::post_recv) | never |
/// | [`control`](Engine::control) and the rest | until whoever drives has done a turn |
///
/// Completions are told on an [`EventChannel`]: [`Engine::create_channel`], [`Engine::set_channel`], then
/// [`Card::request_notify`] by [`Engine::control`]. Asynchronous events come on [`Engine::events`].
///
/// When the port breaks, every queue pair goes into error, what is outstanding completes as flushed, who
/// waits is told, and every later call reports it. The same when it is closed, which the last handle does
/// when it is dropped; what the card has queued, acknowledgements above all, is sent before.
///
/// ```no_run
/// use softroce_sim::card::Card;
/// use softroce_sim::port::{Engine, UdpConfig, UdpPort, seed};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let port = UdpPort::open(&UdpConfig::default())?;
/// let card = Card::new(port.card_config("softroce0"), seed()?, port.routes());
/// let engine = Engine::start(port, card)?;
/// let mut cq = engine.control(|card, _| card.create_cq(16))??;
/// // make queue pairs, post work, ring `engine.doorbell(qp.number())`
/// let completion = loop {
///     match cq.poll() {
///         Some(completion) => break completion,
///         None => engine.drive()?,
///     };
/// };
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    pair: Arc<Handover<Driver>>,
    events: EventChannel<AsyncEvent>,
    ended: Arc<OnceLock<EngineError>>,
    stop: Arc<AtomicBool>,
    /// Moves with every turn of the program.
    turns: Arc<AtomicU64>,
    kick: Arc<OwnedFd>,
    thread: Mutex<Option<JoinHandle<()>>>,
    first_qp: u32,
    gid: Gid,
    name: String,
}

impl Engine {
    /// Starts to drive `card`, which was made for `port`.
    ///
    /// # Errors
    ///
    /// If the operating system has no thread or descriptor left.
    pub fn start<L: Link + Send + 'static>(
        port: Port<L>,
        card: Card,
    ) -> Result<Engine, EngineError> {
        let name = port.link().describe();
        let failed = |what| {
            let port = name.clone();
            move |source: io::Error| EngineError::Start {
                port,
                what,
                source: Arc::new(source),
            }
        };
        let events = EventChannel::new().map_err(failed("making an eventfd"))?;
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| failed("making an eventfd")(e.into()))?;
        let kick = Arc::new(kick);
        let socket = port.link().descriptor();
        let socket = socket.map_err(failed("duplicating the socket"))?;
        let (gid, first_qp) = (port.gid(), card.first_qp().get());
        let ended = Arc::new(OnceLock::new());
        let driver = Driver::new(
            Box::new(port),
            card,
            events.clone(),
            kick.clone(),
            ended.clone(),
        );
        let turns = driver.turns.clone();
        let pair = Arc::new(Handover::new(driver, MAX_QP));
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = Watcher {
            pair: pair.clone(),
            turns: turns.clone(),
            stop: stop.clone(),
            kick: kick.clone(),
            socket,
        };
        // Of a thread's name the system shows 15 bytes.
        let thread =
            spawn(format!("nic@{}", gid.ip()), watcher).map_err(failed("starting a thread"))?;
        Ok(Engine {
            shared: Arc::new(Shared {
                pair,
                events,
                ended,
                stop,
                turns,
                kick,
                thread: Mutex::new(Some(thread)),
                first_qp,
                gid,
                name,
            }),
        })
    }

    /// The card's address.
    pub fn gid(&self) -> Gid {
        self.shared.gid
    }

    /// The program has posted work to a queue pair. If another thread has the card just now, that thread
    /// looks at it; otherwise this one does, and sends what the port takes.
    ///
    /// # Errors
    ///
    /// Why the engine has ended. What was posted is flushed then.
    #[inline]
    pub fn doorbell(&self, number: QpNumber) -> Result<(), EngineError> {
        let bell = number.get().wrapping_sub(self.shared.first_qp);
        self.shared.pair.ring(bell);
        self.check()
    }

    /// Queues a receive request. On a queue pair in error it completes as flushed without another call,
    /// which [`QueuePair::post_recv`] alone would leave to the next doorbell.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::post_recv`].
    #[inline]
    pub fn post_recv(
        &self,
        qp: &mut QueuePair,
        request: &RecvRequest<'_>,
    ) -> Result<(), PostError> {
        qp.post_recv(request)?;
        // A flush that does not see the request was begun by a card whose state is seen here.
        fence(Ordering::SeqCst);
        if qp.state() == State::Error {
            // Why the engine has ended, if it has, is told by other calls.
            let _ = self.doorbell(qp.number());
        }
        Ok(())
    }

    /// A polling program's turn with the card: receives what is there, looks after deadlines, and sends,
    /// within the budgets of [`PortConfig`](super::PortConfig). Does not wait; false if another thread has
    /// the card just now, and then there is nothing to do but to look for completions again.
    ///
    /// # Errors
    ///
    /// Why the engine has ended.
    #[inline]
    pub fn drive(&self) -> Result<bool, EngineError> {
        let mine = match self.shared.pair.try_hold() {
            Some(mut driver) => {
                driver.turn();
                driver.finish();
                true
            }
            None => {
                // It drives all the same: were it the engine's thread that waits for the lock, that would
                // take the program for one that has gone to sleep.
                self.shared.turns.fetch_add(1, Ordering::Relaxed);
                false
            }
        };
        self.check()?;
        Ok(mine)
    }

    /// The program has done with driving for now. Without this the engine's thread finds out by itself
    /// within two milliseconds; it knows at once where a completion queue is armed.
    pub fn release(&self) {
        self.shared.pair.hold().release();
    }

    /// Makes, changes or destroys what the card has; the function gets the card and the present.
    ///
    /// # Errors
    ///
    /// Why the engine has ended; the function is not called then.
    pub fn control<R>(&self, f: impl FnOnce(&mut Card, Time) -> R) -> Result<R, EngineError> {
        self.check()?;
        Ok(self.inspect(f))
    }

    /// As [`Engine::control`], also after the engine has ended: to look at counters and failures, or to
    /// destroy things.
    pub fn inspect<R>(&self, f: impl FnOnce(&mut Card, Time) -> R) -> R {
        let mut driver = self.shared.pair.hold();
        let armed = driver.card.armed();
        let now = driver.look();
        let outcome = f(&mut driver.card, now);
        driver.send();
        driver.finish();
        if driver.card.armed() > armed {
            driver.release();
        }
        outcome
    }

    /// A channel for notifications of completion queues (`ibv_create_comp_channel`).
    ///
    /// # Errors
    ///
    /// Why the engine has ended, or that there is no descriptor left.
    pub fn create_channel(&self) -> Result<EventChannel<CqId>, EngineError> {
        let channel = EventChannel::new().map_err(|source| EngineError::Start {
            port: self.shared.name.clone(),
            what: "making an eventfd",
            source: Arc::new(source),
        })?;
        let mut driver = self.shared.pair.hold();
        self.check()?;
        driver.add_channel(channel.clone());
        Ok(channel)
    }

    /// Notifications of a completion queue go to `channel`, a channel of this engine; `None`: nowhere.
    pub fn set_channel(&self, cq: CqId, channel: Option<&EventChannel<CqId>>) {
        self.shared.pair.hold().route(cq, channel.cloned());
    }

    /// Asynchronous events of the card.
    pub fn events(&self) -> &EventChannel<AsyncEvent> {
        &self.shared.events
    }

    /// What the port has counted.
    pub fn port_counters(&self) -> PortCounters {
        self.shared.pair.hold().port.counters()
    }

    /// The latest packet that the operating system refused to send, in words.
    pub fn last_send_error(&self) -> Option<String> {
        self.shared.pair.hold().port.last_send_error()
    }

    /// Why the port could not join a group that a queue pair was attached to by [`Engine::control`], if that has
    /// happened since this was last asked.
    pub fn take_join_error(&self) -> Option<PortError> {
        self.shared.pair.hold().port.take_join_error()
    }

    /// Shows every frame from here on to `tap`.
    pub fn set_tap(&self, tap: Option<Box<dyn Tap>>) {
        self.shared.pair.hold().port.set_tap(tap);
    }

    /// Why the engine has ended, if it has.
    pub fn error(&self) -> Option<EngineError> {
        self.shared.ended.get().cloned()
    }

    /// Sends what is queued, ends the thread, and flushes what is outstanding. Other handles report
    /// [`EngineError::Closed`] from here on.
    pub fn close(&self) {
        self.shared.close();
    }

    #[inline]
    fn check(&self) -> Result<(), EngineError> {
        match self.shared.ended.get() {
            None => Ok(()),
            Some(why) => Err(why.clone()),
        }
    }
}

impl Shared {
    fn close(&self) {
        self.stop.store(true, Ordering::Release);
        kick(&self.kick);
        let thread = self.thread.lock();
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            // It does not panic; if it did, there is nobody to tell.
            let _ = thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.shared.name)
    }
}

/// Starts the thread. Signals are for the threads of the program.
fn spawn(name: String, watcher: Watcher) -> io::Result<JoinHandle<()>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(move || watcher.run());
    before.thread_set_mask()?;
    thread
}
