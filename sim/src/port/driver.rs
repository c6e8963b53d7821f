//! The driver of a card in real time.

use super::faults::Faults;
use super::link::{Arrival, IN, Monitor, Received};
use super::pace::Pace;
use super::{Link, PortError, SendError, Tap};
use crate::card::{Card, CardConfig, Env, PriorityMask};
use crate::faults::{Fault, FaultCounts, FaultError};
use crate::rate::Rate;
use crate::time::{Span, Time};
use crate::wire::{Encapsulation, Gid, Packet, Payload, Route, RouteId, RouteTable};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// How a port behaves, whatever is below it.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Arrivals taken in one [`Port::poll`], at least 1.
    pub receive_budget: u32,
    /// Packets sent in one [`Port::poll`], at least 1.
    pub send_budget: u32,
    /// How long [`Port::run_once`] looks again and again before it sleeps: to wake from sleep takes
    /// tens of microseconds.
    pub spin: Duration,
    /// What happens to packets that are sent, on purpose.
    pub faults: Vec<Fault>,
    /// Seed of the random streams that faults draw from.
    pub fault_seed: u64,
    /// The most that is sent, in bits of Ethernet frames without preamble and gap; `None`: what goes.
    pub rate: Option<Rate>,
    /// Bytes that may be sent at once, above the rate, by a port that has been silent.
    pub burst: u32,
}

impl Default for PortConfig {
    fn default() -> PortConfig {
        PortConfig {
            receive_budget: 64,
            send_budget: 64,
            spin: Duration::ZERO,
            faults: Vec::new(),
            fault_seed: 0,
            rate: None,
            burst: 16 << 10,
        }
    }
}

impl PortConfig {
    /// # Errors
    ///
    /// If a number in a fault makes no sense.
    pub(super) fn check(&self) -> Result<(), FaultError> {
        self.faults.iter().try_for_each(Fault::check)
    }
}

/// What one look at a port came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Datagrams or frames received.
    pub received: u32,
    /// Packets taken from the card.
    pub sent: u32,
    /// A deadline of the card or the link had come.
    pub timeout: bool,
}

impl Activity {
    /// True if there was any.
    pub fn any(self) -> bool {
        self.received > 0 || self.sent > 0 || self.timeout
    }
}

/// What a port has counted. What the card makes of its packets is in the card's
/// [`Counters`](crate::card::Counters).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Packets sent.
    pub sent: u64,
    /// Datagrams or frames received.
    pub received: u64,
    /// Of those, what is no packet: too short, too long, or of a structure that cannot be.
    pub malformed: u64,
    /// Packets dropped on purpose instead of sent.
    pub dropped: u64,
    /// Packets that cannot be sent, or that the operating system refused; see [`Port::last_send_error`].
    pub refused: u64,
    /// Times that the link had no room for a packet.
    pub not_ready: u64,
    /// Datagrams that the kernel dropped because the socket's receive buffer was full.
    pub overflow: u64,
    /// Frames received that are for others, or of other protocols.
    pub foreign: u64,
    /// Questions for the Ethernet address of a peer that were asked.
    pub asked: u64,
    /// Questions of peers that were answered.
    pub answered: u64,
    /// Questions that were not, as too many frames waited for the device.
    pub unanswered: u64,
    /// Packets dropped because the Ethernet address of their destination is not known.
    pub unresolved: u64,
    /// PFC frames received.
    pub pfc_frames: u64,
    /// Pauses begun or prolonged, by priority.
    pub pauses: [u64; 8],
}

/// The clock is read for each so many packets: to read it costs as much as a tenth of a packet.
const CLOCK: u32 = 8;
/// How often a link without room is asked again: descriptors do not tell of room in a device's queue.
pub(super) const RETRY: Span = Span::from_us(250);
/// Slot of the payload being sent; that of the one received is [`IN`].
const OUT: u32 = 0;

/// Payloads of the port: one being sent, and what has arrived.
struct Staging<'a> {
    out: &'a mut [u8; 4096],
    arrived: &'a [u8],
}

impl Env for Staging<'_> {
    #[inline]
    fn stage(&mut self, len: u16, fill: impl FnOnce(&mut [u8])) -> Payload {
        let len = len.min(self.out.len() as u16);
        fill(&mut self.out[..usize::from(len)]);
        Payload::stored(OUT, len)
    }

    #[inline]
    fn payload(&self, payload: Payload) -> Option<&[u8]> {
        match payload.slot()? {
            OUT => self.out.get(..payload.len().into()),
            IN => Some(self.arrived),
            _ => None,
        }
    }
}

/// Drives one card over a link, in one thread: [`UdpPort`](super::UdpPort),
/// [`EthernetPort`](super::EthernetPort).
///
/// The program makes the card from [`Port::card_config`] and [`Port::routes`], posts work, and calls
/// [`Port::run_once`] until its completions are there. The port's clock begins when it is opened.
pub struct Port<L> {
    link: L,
    config: PortConfig,
    routes: RouteTable,
    /// Routes by id, as their packets leave this port.
    known: Vec<Route>,
    /// What packets that arrive carry as their route's name; the route itself goes beside them.
    ingress: RouteId,
    /// The payload being sent.
    out: Box<[u8; 4096]>,
    /// There if there are any.
    faults: Option<Box<Faults>>,
    /// There if there is a rate.
    pace: Option<Pace>,
    /// Answers were owed for which requests had left no room.
    #[cfg(target_os = "linux")]
    answers_next: bool,
    /// Groups that the link has joined, and what the card's count of changes was then.
    groups: Vec<Gid>,
    memberships: u64,
    join_error: Option<PortError>,
    monitor: Monitor,
}

impl<L: Link> Port<L> {
    pub(super) fn new(link: L, config: &PortConfig) -> Port<L> {
        let routes = RouteTable::new();
        let ingress = routes.intern(Route {
            encapsulation: Encapsulation::RoceV2,
            src_mac: link.mac(),
            dst_mac: link.mac(),
            src: link.gid(),
            dst: link.gid(),
            udp_src: 0,
            vlan: None,
            dscp: 0,
            hop_limit: 0,
            flow_label: 0,
        });
        Port {
            link,
            config: config.clone(),
            routes,
            known: Vec::new(),
            ingress,
            out: Box::new([0; 4096]),
            faults: Faults::new(config),
            pace: config.rate.map(|rate| Pace::new(rate, config.burst)),
            #[cfg(target_os = "linux")]
            answers_next: false,
            groups: Vec::new(),
            memberships: 0,
            join_error: None,
            monitor: Monitor::new(),
        }
    }

    /// What it drives the card over.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// The card's address.
    pub fn gid(&self) -> Gid {
        self.link.gid()
    }

    /// Parameters for a card on this port: called `name`, at the port's addresses.
    pub fn card_config(&self, name: &str) -> CardConfig {
        CardConfig::new(name, self.link.gid(), self.link.mac())
    }

    /// The table that the card is to intern its routes in.
    pub fn routes(&self) -> RouteTable {
        self.routes.clone()
    }

    /// The present: the time since the port was opened.
    pub fn now(&self) -> Time {
        self.monitor.now()
    }

    /// What it has counted.
    pub fn counters(&self) -> PortCounters {
        PortCounters {
            overflow: self.link.overflow(),
            ..self.monitor.counters
        }
    }

    /// The latest packet that the operating system refused to send.
    pub fn last_send_error(&self) -> Option<&SendError> {
        self.monitor.last_send_error.as_ref()
    }

    /// Why the link could not join a group of the card's, if that has happened since this was last asked.
    /// [`Port::poll`] has it join those that queue pairs are attached to.
    pub fn take_join_error(&mut self) -> Option<PortError> {
        self.join_error.take()
    }

    /// What a fault of [`PortConfig::faults`] has done so far; `None` if there is none in that position.
    pub fn fault_counts(&self, position: usize) -> Option<FaultCounts> {
        self.faults.as_ref()?.counts(position)
    }

    /// Adds a fault behind those that there are, and gives its position.
    ///
    /// # Errors
    ///
    /// If a number in it makes no sense.
    pub fn inject(&mut self, fault: Fault) -> Result<usize, FaultError> {
        fault.check()?;
        let seed = self.config.fault_seed;
        Ok(self.faults.get_or_insert_default().add(fault, seed))
    }

    /// Shows every frame from here on to `tap`.
    pub fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) {
        self.monitor.tap = tap;
    }

    /// Receives what is there, looks after deadlines that have come, and sends what the card has to
    /// send and the link takes; all of it within the budgets. Does not wait.
    ///
    /// # Errors
    ///
    /// If the link is broken. A packet that cannot be sent is not an error but a lost packet.
    pub fn poll(&mut self, card: &mut Card) -> Result<Activity, PortError> {
        let (activity, now) = self.take(card)?;
        let sent = self.send(now, card);
        Ok(Activity { sent, ..activity })
    }

    /// The first half of [`Port::poll`]: all but sending. The clock was last read at the time that comes
    /// with it.
    #[inline]
    pub(super) fn take(&mut self, card: &mut Card) -> Result<(Activity, Time), PortError> {
        // Receiving comes first: an answer that has arrived stops the timer that waits for it.
        let (received, seen) = self.receive(card)?;
        let now = seen.unwrap_or_else(|| self.now());
        let mut timeout = card.next_timeout() <= now;
        if timeout {
            card.advance(now);
        }
        if self.link.next_timeout() <= now {
            timeout = true;
            self.link.advance(&mut self.monitor);
        }
        let activity = Activity {
            received,
            sent: 0,
            timeout,
        };
        Ok((activity, now))
    }

    /// Does what [`Port::poll`] does; if that was nothing, waits for something to do and does that.
    /// Returns after `timeout` at the latest.
    ///
    /// # Errors
    ///
    /// As [`Port::poll`].
    pub fn run_once(&mut self, card: &mut Card, timeout: Duration) -> Result<Activity, PortError> {
        let start = Instant::now();
        loop {
            let activity = self.poll(card)?;
            let waited = start.elapsed();
            if activity.any() || waited >= timeout {
                return Ok(activity);
            }
            if waited < self.config.spin {
                std::thread::yield_now();
                continue;
            }
            let mut sleep = timeout - waited;
            let deadline = self.deadline(card);
            if deadline != Time::NEVER {
                sleep = sleep.min(deadline.since(self.now()).into());
            }
            if let Err(source) = self.link.wait(self.link.keeps(), sleep) {
                return Err(self.error("waiting", source));
            }
        }
    }

    /// When the next [`Port::poll`] is due without anything having arrived: at once if the card has
    /// something to send that the link takes; before long if the link has no room.
    pub(super) fn deadline(&self, card: &Card) -> Time {
        let mut at = card.next_timeout().min(self.link.next_timeout());
        if self.link.keeps() {
            return at.min(self.now() + RETRY);
        }
        if let Some(faults) = &self.faults {
            at = at.min(faults.next_timeout());
        }
        if !card.pending().and(self.link.ready()).is_empty() {
            at = at.min(self.pace.as_ref().map_or(Time::ZERO, Pace::next));
        }
        at
    }

    #[cfg(target_os = "linux")]
    pub(super) fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// Gives how much arrived, and when the clock was last read for that.
    fn receive(&mut self, card: &mut Card) -> Result<(u32, Option<Time>), PortError> {
        let mut received = 0;
        let mut seen = None;
        while received < self.config.receive_budget.max(1) {
            let arrival = match self.link.receive(&mut self.monitor, self.ingress) {
                Ok(Received::Nothing) => break,
                Ok(Received::Other) => None,
                Ok(Received::Packet(arrival)) => Some(arrival),
                Err(source) => return Err(self.error("receiving", source)),
            };
            received += 1;
            self.monitor.counters.received += 1;
            if let Some(Arrival {
                packet,
                route,
                payload,
            }) = arrival
            {
                let now = match seen {
                    Some(now) if received % CLOCK != 0 => now,
                    _ => *seen.insert(self.monitor.now()),
                };
                let mut staging = Staging {
                    out: &mut self.out,
                    arrived: self.link.arrived().get(payload).unwrap_or_default(),
                };
                card.receive(now, &packet, &route, &mut staging);
            }
        }
        Ok((received, seen))
    }

    /// Sends what the card has to send and the link takes, within the budget. It is now, or it has just
    /// been.
    pub(super) fn send(&mut self, now: Time, card: &mut Card) -> u32 {
        self.send_some(
            now,
            card,
            self.config.send_budget,
            |card, now, ready, env| card.next_packet(now, ready, env),
        )
    }

    /// As [`Port::send`], after the program has asked for something. If answers are owed as well, requests of no lower
    /// priority go first, in a call of their own: the peer's program may wait for them, and nobody's waits for an
    /// acknowledgement. Half of the budget is the answers' all the same, and where the link has no room for them
    /// behind the requests, they go first the next time.
    #[cfg(target_os = "linux")]
    pub(super) fn send_requests_first(&mut self, now: Time, card: &mut Card) -> u32 {
        let budget = self.config.send_budget;
        let mut sent = 0;
        let requests_first = card.owes_answers() && !self.answers_next;
        if requests_first {
            sent = self.send_some(now, card, budget / 2, |card, now, ready, env| {
                card.next_request(now, ready, env)
            });
        }
        let rest = budget.saturating_sub(sent);
        sent += self.send_some(now, card, rest, |card, now, ready, env| {
            card.next_packet(now, ready, env)
        });
        self.answers_next = requests_first && card.owes_answers();
        sent
    }

    /// Sends what `next` gives and the link takes, up to `budget` packets, at least 1.
    #[inline]
    fn send_some(
        &mut self,
        mut now: Time,
        card: &mut Card,
        budget: u32,
        mut next: impl FnMut(&mut Card, Time, PriorityMask, &mut Staging<'_>) -> Option<Packet>,
    ) -> u32 {
        let mut sent = 0;
        if card.memberships() != self.memberships {
            self.follow_groups(card);
        }
        // Like a packet that a real card has begun to put on the wire, what is kept is past changing.
        if self.link.keeps() && !self.link.flush(&mut self.monitor) {
            return sent;
        }
        self.monitor.seen = now;
        while sent < budget.max(1) {
            if sent % CLOCK == CLOCK - 1 {
                now = self.monitor.now();
                self.monitor.seen = now;
            }
            if self.faults.is_some() && !self.send_late(now) {
                break;
            }
            if self.pace.as_ref().is_some_and(|pace| pace.next() > now) {
                break;
            }
            let mut staging = Staging {
                out: &mut self.out,
                arrived: &[],
            };
            let Some(mut packet) = next(card, now, self.link.ready(), &mut staging) else {
                break;
            };
            sent += 1;
            if packet.route.index() >= self.known.len() {
                self.learn_routes();
            }
            let Some(route) = self.known.get(packet.route.index()) else {
                continue;
            };
            let payload = match packet.payload.slot() {
                Some(OUT) => &self.out[..packet.payload.len().into()],
                _ => &[],
            };
            if let Some(pace) = &mut self.pace {
                pace.sent(now, packet.frame_len.into());
            }
            if let Some(faults) = &mut self.faults
                && !faults.leaves(now, &mut packet, route, payload, &mut self.monitor.counters)
            {
                continue;
            }
            if !self.link.send(&mut self.monitor, &packet, route, payload) {
                return sent;
            }
        }
        self.link.flush(&mut self.monitor);
        sent
    }

    /// Sends packets that faults have held back until now; false if there is no room for all of them.
    #[cold]
    fn send_late(&mut self, now: Time) -> bool {
        while let Some(late) = self.faults.as_mut().and_then(|faults| faults.due(now)) {
            let route = &self.known[late.packet.route.index()];
            if !self
                .link
                .send(&mut self.monitor, &late.packet, route, &late.payload)
            {
                return false;
            }
        }
        true
    }

    /// Has the link join the card's groups, and leave those that are none any more.
    #[cold]
    fn follow_groups(&mut self, card: &Card) {
        self.memberships = card.memberships();
        let link = &mut self.link;
        self.groups.retain(|&group| {
            let stays = card.hears(group);
            if !stays {
                link.leave(group);
            }
            stays
        });
        for group in card.groups() {
            if self.groups.contains(&group) {
                continue;
            }
            match self.link.join(group) {
                Ok(()) => self.groups.push(group),
                Err(source) => self.join_error = Some(self.error("joining a group", source)),
            }
        }
    }

    #[cold]
    fn learn_routes(&mut self) {
        let before = self.known.len();
        self.routes.refresh(&mut self.known);
        for route in &mut self.known[before..] {
            self.link.adopt(route);
        }
    }

    pub(super) fn error(&self, what: &'static str, source: io::Error) -> PortError {
        PortError {
            port: self.link.describe(),
            what,
            source,
        }
    }
}

impl<L: Link> fmt::Debug for Port<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({}, {:?})", self.link.describe(), self.counters())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
