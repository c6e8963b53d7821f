//! Who is told of everything that happens in a network: captures and reports.

use super::counters::DropCause;
use super::faults::FaultRecord;
use super::link::ChannelId;
use super::pool::PayloadPool;
use super::topology::HostId;
use crate::card::Deed;
use crate::time::Time;
use crate::wire::{Packet, Route};

/// Is told of everything that happens in a network. What an observer leaves out costs nothing.
pub trait Observer {
    /// A frame begins to go out on `channel`.
    #[inline]
    fn on_transmit(&mut self, now: Time, channel: ChannelId, packet: &Packet, sight: Sight<'_>) {
        let _ = (now, channel, packet, sight);
    }

    /// A packet is handed to a host.
    #[inline]
    fn on_deliver(&mut self, now: Time, host: HostId, packet: &Packet, sight: Sight<'_>) {
        let _ = (now, host, packet, sight);
    }

    /// A packet is dropped before, on or at the end of `channel`; see
    /// [`ChannelCounters::drops`](super::ChannelCounters::drops).
    #[inline]
    fn on_drop(
        &mut self,
        now: Time,
        channel: ChannelId,
        cause: DropCause,
        packet: &Packet,
        sight: Sight<'_>,
    ) {
        let _ = (now, channel, cause, packet, sight);
    }

    /// A fault injector has hit a packet, before [`Observer::on_drop`] if it dropped it.
    #[inline]
    fn on_fault(&mut self, record: &FaultRecord) {
        let _ = record;
    }

    /// A card does something; `deed` tells what.
    #[inline]
    fn on_deed(&mut self, now: Time, host: HostId, deed: impl FnOnce() -> Deed) {
        let _ = (now, host, deed);
    }
}

/// Sees nothing.
impl Observer for () {}

/// What can be seen of a packet beyond its headers.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    pub(super) routes: &'a [Route],
    pub(super) pool: &'a PayloadPool,
}

impl<'a> Sight<'a> {
    /// Addresses, ports, VLAN and class of the packet.
    #[inline]
    pub fn route(self, packet: &Packet) -> &'a Route {
        &self.routes[packet.route.index()]
    }

    /// Its payload; `None` if it is empty or only counted.
    #[inline]
    pub fn payload(self, packet: &Packet) -> Option<&'a [u8]> {
        self.pool.get(packet.payload)
    }
}
