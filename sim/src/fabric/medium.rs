//! What all channels and hosts share: the clock, what happens next, the packets and their payloads.

use super::counters::DropCause;
use super::events::EventQueue;
use super::faults::FaultLog;
use super::faults::injector::Injectors;
use super::link::{Channel, ChannelId};
use super::observer::{Observer, Sight};
use super::packets::Packets;
use super::pool::PayloadPool;
use super::routing::Flows;
use super::topology::HostId;
use crate::card::{Deed, Env};
use crate::time::Time;
use crate::wire::Payload;

/// What all channels and hosts share.
#[derive(Debug)]
pub(super) struct Medium<O> {
    pub(super) clock: Time,
    pub(super) events: EventQueue<Event>,
    pub(super) packets: Packets,
    pub(super) flows: Flows,
    pub(super) pool: PayloadPool,
    /// By channel.
    pub(super) injectors: Vec<Injectors>,
    pub(super) fault_log: FaultLog,
    pub(super) observer: O,
}

/// Something that happens: a kind in the top three bits, and to whom. Small, because events are copied
/// in and out of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event(pub(super) u32);

impl Event {
    /// The first packet on a channel's way has arrived.
    pub(super) const ARRIVAL: u32 = 0;
    /// A switch port's channel is free, and something waits for it.
    pub(super) const DRAIN: u32 = 1;
    /// A host's channel is free, and the host may have something to send.
    pub(super) const PULL: u32 = 2;
    /// A host's deadline.
    pub(super) const TIMER: u32 = 3;
    /// A packet that a fault delayed has arrived.
    pub(super) const LATE: u32 = 4;
    /// A packet held back on a channel has waited for as long as it may.
    pub(super) const OVERDUE: u32 = 5;

    pub(super) const KIND: u32 = 29;

    #[inline]
    pub(super) const fn new(kind: u32, whom: u32) -> Event {
        debug_assert!(whom >> Event::KIND == 0);
        Event(kind << Event::KIND | whom)
    }
}

/// The network as a host sees it.
pub(super) struct Desk<'a, O> {
    pub(super) now: Time,
    pub(super) host: HostId,
    pub(super) pool: &'a mut PayloadPool,
    pub(super) observer: &'a mut O,
}

impl<O: Observer> Env for Desk<'_, O> {
    #[inline]
    fn stage(&mut self, len: u16, fill: impl FnOnce(&mut [u8])) -> Payload {
        self.pool.stage(len, fill)
    }

    #[inline]
    fn payload(&self, payload: Payload) -> Option<&[u8]> {
        self.pool.get(payload)
    }

    #[inline]
    fn observe(&mut self, event: impl FnOnce() -> Deed) {
        self.observer.on_deed(self.now, self.host, event);
    }
}

impl<O: Observer> Medium<O> {
    /// The network as a host sees it.
    #[inline]
    pub(super) fn desk(&mut self, host: u32) -> Desk<'_, O> {
        Desk {
            now: self.clock,
            host: HostId(host),
            pool: &mut self.pool,
            observer: &mut self.observer,
        }
    }

    /// Puts a packet on the wire of a channel, which is free.
    #[inline(always)]
    pub(super) fn transmit(&mut self, channel: &mut Channel, id: u32, slot: u32, frame_len: u16) {
        self.observer.on_transmit(
            self.clock,
            ChannelId(id),
            Sight {
                slot,
                packets: &self.packets,
                flows: &self.flows,
                pool: &self.pool,
            },
        );
        channel.counters.frames += 1;
        channel.counters.bytes += u64::from(frame_len);
        let arrival = channel.occupy(self.clock, frame_len);
        if channel.faulty {
            self.transmit_faultily(channel, id, slot, arrival);
        } else {
            self.line_up(channel, id, slot, arrival);
        }
    }

    /// Puts a packet behind those on their way along a channel.
    #[inline(always)]
    pub(super) fn line_up(&mut self, channel: &mut Channel, id: u32, slot: u32, arrival: Time) {
        if channel.flying.is_empty() {
            self.events.push(arrival, Event::new(Event::ARRIVAL, id));
        }
        channel.flying.push(&mut self.packets, slot, arrival);
    }

    /// Wakes whoever sends on a channel when it is free: a switch port to drain or a host to pull.
    #[inline(always)]
    pub(super) fn wake(&mut self, channel: &mut Channel, kind: u32, whom: u32) {
        channel.awaited = true;
        self.events.push(channel.free_at(), Event::new(kind, whom));
    }

    /// Drops a packet.
    #[cold]
    pub(super) fn discard(&mut self, channel: &mut Channel, id: u32, slot: u32, cause: DropCause) {
        channel.counters.drops[cause as usize] += 1;
        let sight = Sight {
            slot,
            packets: &self.packets,
            flows: &self.flows,
            pool: &self.pool,
        };
        self.observer
            .on_drop(self.clock, ChannelId(id), cause, sight);
        self.pool.release(self.packets.get(slot).payload);
        self.packets.remove(slot);
    }

    /// True if a packet may not go out on a channel.
    #[inline]
    pub(super) fn is_too_long(&self, channel: &Channel, slot: u32, frame_len: u16) -> bool {
        frame_len > channel.max_frame && !self.is_tagged(channel, slot, frame_len)
    }

    /// True if it is a VLAN tag alone that makes a frame too long.
    #[cold]
    fn is_tagged(&self, channel: &Channel, slot: u32, frame_len: u16) -> bool {
        let route = self.packets.get(slot).route.index();
        self.flows.routes()[route].vlan.is_some()
            && frame_len <= channel.max_frame.saturating_add(4)
    }
}
