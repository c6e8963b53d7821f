//! Who is told of everything that happens in a network: captures and reports.

use super::counters::DropCause;
use super::faults::FaultRecord;
use super::link::ChannelId;
use super::packets::Packets;
use super::pool::PayloadPool;
use super::routing::Flows;
use super::topology::HostId;
use crate::card::Deed;
use crate::time::Time;
use crate::wire::pfc::Pfc;
use crate::wire::{Packet, Route};

/// Is told of everything that happens in a network. What an observer leaves out costs nothing.
pub trait Observer {
    /// A frame begins to go out on `channel`.
    #[inline]
    fn on_transmit(&mut self, now: Time, channel: ChannelId, sight: Sight<'_>) {
        let _ = (now, channel, sight);
    }

    /// A packet is handed to a host.
    #[inline]
    fn on_deliver(&mut self, now: Time, host: HostId, sight: Sight<'_>) {
        let _ = (now, host, sight);
    }

    /// A packet is dropped before, on or at the end of `channel`; see
    /// [`ChannelCounters::drops`](super::ChannelCounters::drops).
    #[inline]
    fn on_drop(&mut self, now: Time, channel: ChannelId, cause: DropCause, sight: Sight<'_>) {
        let _ = (now, channel, cause, sight);
    }

    /// A fault injector has hit a packet, before [`Observer::on_drop`] if it dropped it.
    #[inline]
    fn on_fault(&mut self, record: &FaultRecord) {
        let _ = record;
    }

    /// A switch has marked a packet that it is about to send on `channel`.
    #[inline]
    fn on_mark(&mut self, now: Time, channel: ChannelId, sight: Sight<'_>) {
        let _ = (now, channel, sight);
    }

    /// A PFC frame begins to go out on `channel`, to pause or let go the other direction.
    #[inline]
    fn on_pfc(&mut self, now: Time, channel: ChannelId, frame: &Pfc) {
        let _ = (now, channel, frame);
    }

    /// `channel` has been paused in a priority, or a pause of it has ended.
    #[inline]
    fn on_pause(&mut self, now: Time, channel: ChannelId, priority: u8, paused: bool) {
        let _ = (now, channel, priority, paused);
    }

    /// So many bytes of a priority wait in front of `channel`, after one more or one fewer packet. Told
    /// of switches only that have more than tail drop.
    #[inline]
    fn on_queue(&mut self, now: Time, channel: ChannelId, priority: u8, bytes: u64) {
        let _ = (now, channel, priority, bytes);
    }

    /// A card does something; `deed` tells what.
    #[inline]
    fn on_deed(&mut self, now: Time, host: HostId, deed: impl FnOnce() -> Deed) {
        let _ = (now, host, deed);
    }
}

/// Sees nothing.
impl Observer for () {}

/// A packet in the network, as an observer sees it. Nothing is looked up before it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    pub(super) slot: u32,
    pub(super) packets: &'a Packets,
    pub(super) flows: &'a Flows,
    pub(super) pool: &'a PayloadPool,
}

impl<'a> Sight<'a> {
    /// The packet, as it is at this moment: hop limit, ECN bits and damage may change from link to link.
    #[inline]
    pub fn packet(self) -> &'a Packet {
        self.packets.get(self.slot)
    }

    /// Its addresses, ports, VLAN and class.
    #[inline]
    pub fn route(self) -> &'a Route {
        &self.flows.routes()[self.packet().route.index()]
    }

    /// Its payload; `None` if it is empty or only counted.
    #[inline]
    pub fn payload(self) -> Option<&'a [u8]> {
        self.pool.get(self.packet().payload)
    }
}
