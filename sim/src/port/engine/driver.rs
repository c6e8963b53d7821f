//! What an engine has behind its lock: the port, the card, and whom to tell.

use super::EngineError;
use super::events::EventChannel;
use super::handover::Answer;
use crate::card::{AsyncEvent, Card, CqId};
use crate::port::{Activity, Link, Port, PortCounters, PortError, Tap};
use crate::time::Time;
use crate::wire::QpNumber;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A port, whatever its link.
pub(super) trait AnyPort: Send {
    fn now(&self) -> Time;
    /// Receives and looks after deadlines; tells when it last read the clock.
    fn take(&mut self, card: &mut Card) -> Result<(Activity, Time), PortError>;
    fn send(&mut self, now: Time, card: &mut Card) -> u32;
    fn send_requests_first(&mut self, now: Time, card: &mut Card) -> u32;
    fn deadline(&self, card: &Card) -> Time;
    /// The link has no room for something.
    fn keeps(&self) -> bool;
    /// Before a sleep on its descriptor; false if there is something to receive.
    fn arm(&mut self) -> bool;
    fn counters(&self) -> PortCounters;
    fn last_send_error(&self) -> Option<String>;
    fn take_join_error(&mut self) -> Option<PortError>;
    fn set_tap(&mut self, tap: Option<Box<dyn Tap>>);
    fn error(&self, what: &'static str, source: io::Error) -> PortError;
}

impl<L: Link + Send> AnyPort for Port<L> {
    fn now(&self) -> Time {
        Port::now(self)
    }

    fn take(&mut self, card: &mut Card) -> Result<(Activity, Time), PortError> {
        Port::take(self, card)
    }

    fn send(&mut self, now: Time, card: &mut Card) -> u32 {
        Port::send(self, now, card)
    }

    fn send_requests_first(&mut self, now: Time, card: &mut Card) -> u32 {
        Port::send_requests_first(self, now, card)
    }

    fn deadline(&self, card: &Card) -> Time {
        Port::deadline(self, card)
    }

    fn keeps(&self) -> bool {
        self.link().keeps()
    }

    fn arm(&mut self) -> bool {
        self.link_mut().arm()
    }

    fn counters(&self) -> PortCounters {
        Port::counters(self)
    }

    fn last_send_error(&self) -> Option<String> {
        Port::last_send_error(self).map(ToString::to_string)
    }

    fn take_join_error(&mut self) -> Option<PortError> {
        Port::take_join_error(self)
    }

    fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) {
        Port::set_tap(self, tap);
    }

    fn error(&self, what: &'static str, source: io::Error) -> PortError {
        Port::error(self, what, source)
    }
}

/// What the engine's thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watch {
    /// Awake, or about to be.
    Awake,
    /// Not looking at the port for a moment, because the program does.
    Napping,
    /// Asleep until something arrives or this time comes.
    Until(Time),
}

/// Port and card, and all that goes with holding them.
pub(super) struct Driver {
    pub(super) port: Box<dyn AnyPort>,
    pub(super) card: Card,
    first_qp: u32,
    /// Where completion queues report.
    channels: BTreeMap<CqId, EventChannel<CqId>>,
    /// All channels that there are, to end them.
    all: Vec<EventChannel<CqId>>,
    events: EventChannel<AsyncEvent>,
    /// Moves with every turn of the program.
    pub(super) turns: Arc<AtomicU64>,
    /// The program has said that it does not drive from here on.
    pub(super) released: bool,
    pub(super) watch: Watch,
    /// Sending was put off once.
    owes: bool,
    /// When the clock was last read.
    now: Time,
    /// Wakes the engine's thread.
    kick: Arc<OwnedFd>,
    /// Why nothing goes in or out any more.
    ended: Arc<OnceLock<EngineError>>,
}

impl Driver {
    pub(super) fn new(
        port: Box<dyn AnyPort>,
        card: Card,
        events: EventChannel<AsyncEvent>,
        kick: Arc<OwnedFd>,
        ended: Arc<OnceLock<EngineError>>,
    ) -> Driver {
        Driver {
            port,
            first_qp: card.first_qp().get(),
            card,
            channels: BTreeMap::new(),
            all: Vec::new(),
            events,
            turns: Arc::default(),
            released: false,
            watch: Watch::Awake,
            owes: false,
            now: Time::ZERO,
            kick,
            ended,
        }
    }

    /// Receives, looks after deadlines, sends.
    #[inline]
    pub(super) fn poll(&mut self) -> Activity {
        let activity = self.take();
        let sent = self.send();
        Activity { sent, ..activity }
    }

    /// A program's turn. If it has completions now, answers that are owed to the peer wait for one more turn or
    /// for what the program says to them, and leave right behind that.
    #[inline]
    pub(super) fn turn(&mut self) {
        // What it moves by does not matter.
        self.turns.store(self.turns.load(Relaxed) + 1, Relaxed);
        let before = self.card.completed();
        self.take();
        self.owes = !self.owes && self.card.completed() != before && self.card.owes_answers();
        if !self.owes {
            self.send();
        }
    }

    #[inline]
    fn take(&mut self) -> Activity {
        if self.has_ended() {
            return Activity::default();
        }
        match self.port.take(&mut self.card) {
            Ok((activity, now)) => {
                self.now = now;
                activity
            }
            Err(e) => {
                self.end(EngineError::Broken(Arc::new(e)));
                Activity::default()
            }
        }
    }

    /// Reads the clock.
    #[inline]
    pub(super) fn look(&mut self) -> Time {
        self.now = self.port.now();
        self.now
    }

    /// The work of queue pair `number` is looked at.
    #[inline]
    pub(super) fn doorbell(&mut self, number: QpNumber) {
        let now = self.look();
        self.card.doorbell(now, number);
    }

    /// Sends what there is; the clock has just been read.
    #[inline]
    pub(super) fn send(&mut self) -> u32 {
        match self.has_ended() {
            true => 0,
            false => self.port.send(self.now, &mut self.card),
        }
    }

    /// True if nothing goes in or out any more.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Tells programs what there is to tell.
    #[inline]
    pub(super) fn tell(&mut self) {
        while let Some(cq) = self.card.next_notification() {
            if let Some(channel) = self.channels.get(&cq) {
                channel.push(cq);
            }
        }
        while let Some(event) = self.card.next_event() {
            self.events.push(event);
        }
    }

    /// At the end of a program's turn: tells, and wakes the engine's thread if it sleeps too long now.
    #[inline]
    pub(super) fn finish(&mut self) {
        self.tell();
        if let Watch::Until(until) = self.watch
            && !self.has_ended()
            && self.port.deadline(&self.card) < until
        {
            self.wake();
        }
    }

    /// Wakes the engine's thread.
    #[cold]
    pub(super) fn wake(&mut self) {
        self.watch = Watch::Awake;
        kick(&self.kick);
    }

    /// The program does not drive from here on, so the engine's thread does.
    pub(super) fn release(&mut self) {
        self.released = true;
        if self.watch == Watch::Napping {
            self.wake();
        }
    }

    pub(super) fn add_channel(&mut self, channel: EventChannel<CqId>) {
        // Those that nobody else has any more are done with.
        self.all.retain(|c| !c.is_alone());
        self.all.push(channel);
    }

    /// Notifications of `cq` go to `channel`; `None`: nowhere.
    pub(super) fn route(&mut self, cq: CqId, channel: Option<EventChannel<CqId>>) {
        match channel {
            Some(channel) => self.channels.insert(cq, channel),
            None => self.channels.remove(&cq),
        };
    }

    /// Nothing goes in or out from here on: all that is outstanding is flushed, and who waits is told why.
    #[cold]
    pub(super) fn end(&mut self, why: EngineError) {
        if self.ended.set(why.clone()).is_err() {
            return;
        }
        let now = self.port.now();
        self.card.fail(now);
        self.tell();
        for channel in &self.all {
            channel.end(&why);
        }
        self.events.end(&why);
    }
}

impl Answer for Driver {
    #[inline]
    fn answer(&mut self, bell: u32) {
        self.doorbell(QpNumber::new(self.first_qp.wrapping_add(bell)));
    }

    #[inline]
    fn settle(&mut self) {
        if !self.has_ended() {
            self.port.send_requests_first(self.now, &mut self.card);
            self.owes = false;
        }
        self.finish();
    }
}

/// Makes an eventfd readable.
pub(super) fn kick(fd: &OwnedFd) {
    // Fails only where it is readable already.
    let result = rustix::io::write(fd, &1u64.to_ne_bytes());
    debug_assert!(matches!(result, Ok(8) | Err(Errno::AGAIN)));
}

#[cfg(test)]
mod tests {
    use super::super::Engine;
    use crate::card::Card;
    use crate::places::MAX_PLACES;
    use crate::port::{ChannelDevice, EthernetConfig, EthernetPort};
    use crate::wire::MacAddr;
    use std::net::Ipv4Addr;

    #[test]
    fn what_is_kept_of_completion_queues_is_of_those_that_there_are() {
        let (device, _other) = ChannelDevice::pair(16);
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let config = EthernetConfig::new(Ipv4Addr::new(10, 0, 0, 1).into(), mac);
        let port = EthernetPort::open(device, &config).unwrap();
        let card = Card::new(port.card_config("card"), 1, port.routes());
        let engine = Engine::start(port, card).unwrap();
        let channel = engine.create_channel().unwrap();
        let stays = engine
            .control(|card, _| card.create_cq(1))
            .unwrap()
            .unwrap();
        engine.set_channel(stays.id(), Some(&channel));
        let mut number = 0;
        for _ in 0..100 {
            let cq = engine
                .control(|card, _| card.create_cq(1))
                .unwrap()
                .unwrap();
            number = cq.id().0;
            engine.set_channel(cq.id(), Some(&channel));
            assert_eq!(engine.shared.pair.hold().channels.len(), 2);
            engine.set_channel(cq.id(), None);
            engine
                .control(|card, _| card.destroy_cq(cq).map_err(|(e, _)| e))
                .unwrap()
                .unwrap();
        }
        // The place was used again and again, each time under a number of its own.
        assert_eq!(number, 1 + 99 * MAX_PLACES);
        assert_eq!(engine.shared.pair.hold().channels.len(), 1);
    }
}
