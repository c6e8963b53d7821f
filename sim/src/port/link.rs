//! What a port asks of the link below it.

use super::{Direction, PortCounters, SendError, Tap};
use crate::card::PriorityMask;
use crate::time::{Span, Time};
use crate::wire::frame::FrameView;
use crate::wire::{Damage, Gid, Icrc, MacAddr, Packet, Payload, Route, RouteId};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Slot of the payload that was received; see [`super::driver`].
pub(super) const IN: u32 = 1;

/// Carries the packets of one card: [`Udp`](super::Udp), [`Ethernet`](super::Ethernet).
///
/// A [`Port`](super::Port) drives it; nobody else calls these.
pub trait Link {
    /// Address of the card.
    fn gid(&self) -> Gid;

    /// Ethernet address of the card; zero where the operating system has the say.
    fn mac(&self) -> MacAddr;

    /// What it is and where, for messages.
    fn describe(&self) -> String;

    /// Makes of a route of the card's the one that its packets take here.
    fn adopt(&self, route: &mut Route);

    /// Takes from here on what is sent to a multicast group too, as a member of it. The card's own datagrams to
    /// the group are not to come back: it hears them by itself.
    ///
    /// # Errors
    ///
    /// The operating system's word, if it does not let this be.
    fn join(&mut self, group: Gid) -> io::Result<()>;

    /// Undoes [`Link::join`].
    fn leave(&mut self, group: Gid);

    /// Takes one arrival, if there is one. A packet of it carries `name` as its route's.
    ///
    /// # Errors
    ///
    /// If the link is broken.
    fn receive(&mut self, monitor: &mut Monitor, name: RouteId) -> io::Result<Received>;

    /// The bytes that a packet received last has its payload in.
    fn arrived(&self) -> &[u8];

    /// Priorities in which a packet can be sent now.
    fn ready(&self) -> PriorityMask;

    /// Takes a packet of the card's, along a route that was adopted, to send it with the next
    /// [`Link::flush`] at the latest. If there is no room, it is kept, and no other is to be given
    /// meanwhile; false then.
    fn send(
        &mut self,
        monitor: &mut Monitor,
        packet: &Packet,
        route: &Route,
        payload: &[u8],
    ) -> bool;

    /// True if something is kept because there was no room.
    fn keeps(&self) -> bool;

    /// Sends what was taken; false if there is no room for all of it.
    fn flush(&mut self, monitor: &mut Monitor) -> bool;

    /// Arrivals that were lost because there was no room for them.
    fn overflow(&self) -> u64 {
        0
    }

    /// When [`Link::advance`] is to be called.
    fn next_timeout(&self) -> Time;

    /// Looks after deadlines of its own that have come.
    fn advance(&mut self, monitor: &mut Monitor);

    /// Sleeps until there is something to receive, or room to send if `to_send`; at most `timeout`.
    ///
    /// # Errors
    ///
    /// If the link is broken.
    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()>;

    /// What becomes readable when there is something to receive, for who sleeps without the link.
    ///
    /// # Errors
    ///
    /// If the operating system has no descriptor left.
    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd>;

    /// Before such a sleep: false if there is something to receive that the descriptor does not show.
    #[cfg(target_os = "linux")]
    fn arm(&mut self) -> bool {
        true
    }
}

/// What came of a look at a link.
#[derive(Clone, Debug)]
pub enum Received {
    /// There was nothing.
    Nothing,
    /// Something arrived that is not for the card.
    Other,
    /// A packet.
    Packet(Arrival),
}

/// A packet that arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub(super) packet: Packet,
    pub(super) route: Route,
    /// Where its payload is in [`Link::arrived`].
    pub(super) payload: Range<usize>,
}

impl Arrival {
    /// The packet that `view` shows, decoded from bytes that end at `end` of [`Link::arrived`]; `None` if
    /// it cannot be one.
    pub(super) fn new(
        view: &FrameView<'_>,
        route: Route,
        end: usize,
        icrc_matches: bool,
        name: RouteId,
    ) -> Option<Arrival> {
        let data = view.transport.payload.len();
        let payload = match u16::try_from(data).ok()? {
            0 => Payload::EMPTY,
            n => Payload::stored(IN, n),
        };
        let mut packet = view.to_packet(name, payload).ok()?;
        if !icrc_matches {
            // The card drops it, and counts it with all else that it drops.
            packet.damage = Damage::Device;
        }
        let end = end - view.trailer.len() - view.transport.pad.len() - Icrc::LEN;
        Some(Arrival {
            packet,
            route,
            payload: end - data..end,
        })
    }
}

/// What a port tells of itself while it works: its clock, its counters, and frames for who watches.
pub struct Monitor {
    pub(super) opened: Instant,
    /// The time when the clock was last read for a packet.
    pub(super) seen: Time,
    pub(super) counters: PortCounters,
    pub(super) last_send_error: Option<SendError>,
    pub(super) tap: Option<Box<dyn Tap>>,
}

impl Monitor {
    pub(super) fn new() -> Monitor {
        Monitor {
            opened: Instant::now(),
            seen: Time::ZERO,
            counters: PortCounters::default(),
            last_send_error: None,
            tap: None,
        }
    }

    /// The present: the time since the port was opened.
    #[inline]
    pub(super) fn now(&self) -> Time {
        Time::ZERO + Span::from(self.opened.elapsed())
    }

    /// Shows a frame to the tap.
    #[inline]
    pub(super) fn show(&mut self, direction: Direction, frame: &[u8]) {
        if self.tap.is_some() {
            let now = self.now();
            if let Some(tap) = &mut self.tap {
                tap.frame(now, direction, frame);
            }
        }
    }
}

/// True if the error says that there is no room just now.
pub(super) fn is_not_ready(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    ) || is_full(e)
}

#[cfg(target_os = "linux")]
fn is_full(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(nix::libc::ENOBUFS | nix::libc::ENOMEM)
    )
}

#[cfg(not(target_os = "linux"))]
fn is_full(_: &io::Error) -> bool {
    false
}
