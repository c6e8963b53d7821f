//! A software card on a port, in real time.

use super::card::{CardProvider, Neighbours, Seat};
use super::{Exchange, Handle, Join};
use crate::exchange::{Role, TcpExchange};
use crate::{Context, Error, PostError, QpNumber, RecvRequest, Result};
use softroce_sim::card::{self, AsyncEvent, Card, CardConfig, CqId};
use softroce_sim::port::{
    Engine, EngineError, EventChannel, Link, Port, PortCounters, UdpConfig, UdpPort, seed,
};
use softroce_sim::time::Time;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A software card on a UDP socket, before it is opened.
///
/// ```no_run
/// use softroce_verbs::provider::port::SoftwareCard;
/// # fn main() -> softroce_verbs::Result<()> {
/// let opened = SoftwareCard::new("softroce0").open()?;
/// println!("{}", opened.context().query_gid(1, 0)?.gid);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SoftwareCard {
    /// What it is called.
    pub name: String,
    /// Address, socket and faults.
    pub udp: UdpConfig,
    /// From which numbers and keys are drawn; `None` takes one from the operating system, which is what keeps
    /// packets of an earlier process from being taken for those of this one.
    pub seed: Option<u64>,
}

impl SoftwareCard {
    /// A card on the first free address from 127.0.0.2 on.
    pub fn new(name: impl Into<String>) -> SoftwareCard {
        SoftwareCard {
            name: name.into(),
            udp: UdpConfig::default(),
            seed: None,
        }
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// [`Error::Port`] if its address is taken, or not this machine's.
    pub fn open(&self) -> Result<Opened> {
        self.open_with(|_| {})
    }

    /// Opens it after `set_up` has changed what the card is like: its congestion control, for example.
    ///
    /// # Errors
    ///
    /// As [`SoftwareCard::open`].
    pub fn open_with(&self, set_up: impl FnOnce(&mut CardConfig)) -> Result<Opened> {
        let port = UdpPort::open(&self.udp).map_err(|e| Error::Port(e.to_string()))?;
        open_on(&self.name, port, self.seed, set_up)
    }
}

/// Opens a card called `name` on a port of any kind, after `set_up` has changed what it is like.
///
/// # Errors
///
/// [`Error::Port`] if the operating system has no thread or descriptor left for it.
pub fn open_on<L: Link + Send + 'static>(
    name: &str,
    port: Port<L>,
    own_seed: Option<u64>,
    set_up: impl FnOnce(&mut CardConfig),
) -> Result<Opened> {
    let number = match own_seed {
        Some(seed) => seed,
        None => seed().map_err(|e| Error::Port(e.to_string()))?,
    };
    // Two cards made with the same seed are still two cards.
    let mut config = port.card_config(&format!("{name} at {}", port.gid()));
    set_up(&mut config);
    let card = Card::new(config, number, port.routes());
    let engine = Engine::start(port, card)?;
    let seat = PortSeat {
        engine: engine.clone(),
        channels: Mutex::default(),
        opened: Instant::now(),
    };
    let provider = Arc::new(CardProvider::new(name.into(), seat));
    Ok(Opened {
        context: Context::new(provider),
        engine,
    })
}

/// A card in real time that was opened: its context, and what only a software card has.
#[derive(Clone)]
pub struct Opened {
    context: Context,
    engine: Engine,
}

impl Opened {
    /// What a program needs.
    pub fn context(&self) -> Context {
        self.context.clone()
    }

    /// What drives it: taps for captures, counters of the port.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What the card has counted.
    pub fn card_counters(&self) -> card::Counters {
        self.engine.inspect(|card, _| card.counters())
    }

    /// What the port has counted.
    pub fn port_counters(&self) -> PortCounters {
        self.engine.port_counters()
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({:?})", self.context)
    }
}

impl From<EngineError> for Error {
    fn from(e: EngineError) -> Error {
        Error::Port(e.to_string())
    }
}

/// The place of a program at a card that its engine drives.
struct PortSeat {
    engine: Engine,
    channels: Mutex<Channels>,
    opened: Instant,
}

#[derive(Default)]
struct Channels {
    made: usize,
    open: BTreeMap<Handle, EventChannel<CqId>>,
}

impl PortSeat {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        // Nothing in it can be half done.
        self.channels.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Seat for PortSeat {
    fn with(&self, act: &mut dyn FnMut(&mut Card, Time)) -> Result<()> {
        Ok(self.engine.control(act)?)
    }

    #[inline]
    fn doorbell(&self, qp: QpNumber) {
        // What is posted after the end is flushed; polling tells why.
        let _ = self.engine.doorbell(qp);
    }

    #[inline]
    fn turn(&self) -> Result<()> {
        self.engine.drive()?;
        Ok(())
    }

    #[inline]
    fn post_recv(
        &self,
        qp: &mut card::QueuePair,
        request: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError> {
        self.engine.post_recv(qp, request)
    }

    fn create_channel(&self) -> Result<Handle> {
        let channel = self.engine.create_channel()?;
        let mut channels = self.channels();
        channels.made += 1;
        let handle = channels.made;
        channels.open.insert(handle, channel);
        Ok(handle)
    }

    fn destroy_channel(&self, channel: Handle) {
        self.channels().open.remove(&channel);
    }

    fn set_channel(&self, cq: CqId, channel: Option<Handle>) {
        let channels = self.channels();
        let to = channel.and_then(|c| channels.open.get(&c));
        self.engine.set_channel(cq, to);
        if to.is_none() {
            for channel in channels.open.values() {
                channel.retain(|&told| told != cq);
            }
        }
    }

    fn next_notification(
        &self,
        channel: Handle,
        timeout: Option<Duration>,
    ) -> Result<Option<CqId>> {
        let channel = self.channels().open.get(&channel).cloned();
        self.engine.release();
        match channel {
            Some(channel) => Ok(channel.wait(timeout)?),
            None => Ok(None),
        }
    }

    fn next_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        self.engine.release();
        Ok(self.engine.events().wait(timeout)?)
    }

    fn neighbours(&self) -> Neighbours {
        // The port finds out: by ARP, or the kernel does.
        Neighbours::default()
    }

    fn joined(&self) -> Result<()> {
        match self.engine.take_join_error() {
            None => Ok(()),
            Some(e) => Err(Error::Port(e.to_string())),
        }
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    fn sleep(&self, time: Duration) -> Result<()> {
        self.engine.release();
        std::thread::sleep(time);
        Ok(())
    }

    fn spawn(&self, program: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
        super::spawn_thread(program)
    }

    fn exchange(&self, role: &Role, tell: &dyn Fn(&Role)) -> Result<Box<dyn Exchange>> {
        self.engine.release();
        Ok(Box::new(TcpExchange::meet(role, tell)?))
    }
}
