//! The network at work: what happens at each event.
//!
//! The path of a packet reads from top to bottom: a host's packet is pulled ([`Network::settle`]) and
//! transmitted, arrives, is forwarded by a switch, perhaps waits in a queue until that is drained, and is
//! delivered. Along this path a function is inlined where a call would cost a share of its work, and
//! each table is indexed once.

use super::counters::DropCause;
use super::host::Host;
use super::link::{ChannelId, End};
use super::network::Network;
use super::observer::{Observer, Sight};
use super::pool::PayloadPool;
use super::topology::HostId;
use crate::card::{Deed, Env, PriorityMask};
use crate::time::Time;
use crate::wire::{Damage, Payload};

/// Something that happens: a kind in the top three bits, and to whom. Small, because events are copied
/// in and out of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event(u32);

impl Event {
    /// The first packet on a channel's way has arrived.
    pub(super) const ARRIVAL: u32 = 0;
    /// A switch port's channel is free, and something waits for it.
    const DRAIN: u32 = 1;
    /// A host's channel is free, and the host may have something to send.
    const PULL: u32 = 2;
    /// A host's deadline.
    const TIMER: u32 = 3;
    /// A packet that a fault delayed has arrived.
    pub(super) const LATE: u32 = 4;
    /// A packet held back on a channel has waited for as long as it may.
    pub(super) const OVERDUE: u32 = 5;

    const KIND: u32 = 29;

    #[inline]
    pub(super) const fn new(kind: u32, whom: u32) -> Event {
        debug_assert!(whom >> Event::KIND == 0);
        Event(kind << Event::KIND | whom)
    }
}

/// The network as a host sees it.
struct Desk<'a, O> {
    now: Time,
    host: HostId,
    pool: &'a mut PayloadPool,
    observer: &'a mut O,
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

/// Calls a method of a host with the network as its environment.
macro_rules! ask {
    ($net:ident, $host:expr, $method:ident $(, $arg:expr)*) => {
        $net.hosts[$host as usize].host.$method(
            $net.clock,
            $($arg,)*
            &mut Desk {
                now: $net.clock,
                host: HostId($host),
                pool: &mut $net.pool,
                observer: &mut $net.observer,
            },
        )
    };
}

/// What an observer may see beyond a packet's headers.
macro_rules! sight {
    ($net:ident) => {
        Sight {
            routes: $net.flows.routes(),
            pool: &$net.pool,
        }
    };
}

impl<H: Host, O: Observer> Network<H, O> {
    /// Handles at most `most` events up to and with `limit`, and gives how many it handled.
    #[inline(never)]
    pub(super) fn work(&mut self, limit: Time, most: u64) -> u64 {
        let mut done = 0;
        while done < most {
            let Some((time, event)) = self.events.pop_until(limit) else {
                break;
            };
            done += 1;
            self.clock = time;
            let whom = event.0 & ((1 << Event::KIND) - 1);
            match event.0 >> Event::KIND {
                Event::ARRIVAL => {
                    let channel = &mut self.channels[whom as usize];
                    let to = channel.to;
                    let (slot, next) = channel.flying.pop(&self.packets);
                    if let Some(arrival) = next {
                        self.events.push(arrival, event);
                    }
                    self.arrive(whom, to, slot);
                }
                Event::DRAIN => self.drain(whom),
                Event::PULL => {
                    let uplink = self.hosts[whom as usize].uplink;
                    self.channels[uplink as usize].awaited = false;
                    self.settle(whom);
                }
                Event::TIMER => self.expire(whom),
                Event::LATE => self.arrive_late(self.packets.channel(whom), whom),
                _ => self.release_overdue(whom),
            }
        }
        self.handled += done;
        done
    }

    /// A deadline of a host has come, or had been moved away.
    fn expire(&mut self, host: u32) {
        let station = &mut self.hosts[host as usize];
        station.timers.pop();
        if station.host.next_timeout() <= self.clock {
            ask!(self, host, advance);
        }
        self.settle(host);
    }

    /// Asks a host what it has to send and what it waits for, after any call to it.
    #[inline]
    pub(super) fn settle(&mut self, host: u32) {
        let station = &self.hosts[host as usize];
        let uplink = station.uplink;
        let pending = station.host.pending();
        if !pending.is_empty() {
            let channel = &mut self.channels[uplink as usize];
            let ready = pending.and(channel.ready());
            if !channel.awaited && !ready.is_empty() {
                if channel.is_free(self.clock) {
                    self.pull(host, uplink, ready);
                } else {
                    channel.awaited = true;
                    self.events
                        .push(channel.free_at(), Event::new(Event::PULL, host));
                }
            }
        }
        let deadline = self.hosts[host as usize].host.next_timeout();
        if deadline != Time::NEVER {
            self.set_timer(host, deadline);
        }
    }

    #[inline]
    fn set_timer(&mut self, host: u32, deadline: Time) {
        let timers = &mut self.hosts[host as usize].timers;
        if timers.last().is_none_or(|&first| deadline < first) {
            // A deadline that has passed is kept at once.
            let deadline = deadline.max(self.clock);
            timers.push(deadline);
            self.events.push(deadline, Event::new(Event::TIMER, host));
        }
    }

    /// Takes a packet from a host and sends it; its channel is free and nothing wakes it.
    #[inline]
    fn pull(&mut self, host: u32, uplink: u32, ready: PriorityMask) {
        let Some(packet) = ask!(self, host, next_packet, ready) else {
            return;
        };
        self.flows.meet(packet.route.index());
        let frame_len = packet.frame_len;
        let slot = self.packets.insert(packet);
        if frame_len > self.channels[uplink as usize].max_frame && !self.fits(uplink, slot) {
            // It takes its time all the same, so that a host with nothing else to send cannot spin.
            self.channels[uplink as usize].occupy(self.clock, frame_len);
            self.discard(uplink, slot, DropCause::TooLong);
        } else {
            self.transmit(uplink, slot, frame_len);
        }
        let pending = self.hosts[host as usize].host.pending();
        if !pending.is_empty() {
            let channel = &mut self.channels[uplink as usize];
            if !pending.and(channel.ready()).is_empty() {
                channel.awaited = true;
                self.events
                    .push(channel.free_at(), Event::new(Event::PULL, host));
            }
        }
    }

    /// Puts a packet on the wire of a channel, which is free.
    #[inline(always)]
    fn transmit(&mut self, id: u32, slot: u32, frame_len: u16) {
        let packet = self.packets.get(slot);
        let seen = sight!(self);
        self.observer
            .on_transmit(self.clock, ChannelId(id), packet, seen);
        let channel = &mut self.channels[id as usize];
        channel.counters.frames += 1;
        channel.counters.bytes += u64::from(frame_len);
        let arrival = channel.occupy(self.clock, frame_len);
        if channel.faulty {
            return self.transmit_faultily(id, slot, arrival);
        }
        if channel.flying.is_empty() {
            self.events.push(arrival, Event::new(Event::ARRIVAL, id));
        }
        channel.flying.push(&mut self.packets, slot, arrival);
    }

    /// A packet has come to the end of a channel.
    #[inline(always)]
    pub(super) fn arrive(&mut self, channel: u32, to: End, slot: u32) {
        match to {
            End::Host(host) => self.deliver(channel, host, slot),
            End::Switch(switch) => self.forward(channel, switch, slot),
        }
    }

    /// Sends a packet on its way out of a switch.
    #[inline(always)]
    fn forward(&mut self, ingress: u32, switch: u32, slot: u32) {
        let packet = self.packets.get_mut(slot);
        if packet.damage == Damage::Link {
            return self.discard(ingress, slot, DropCause::BadFcs);
        }
        if packet.hop_limit <= 1 {
            return self.discard(ingress, slot, DropCause::HopLimit);
        }
        packet.hop_limit -= 1;
        let (frame_len, priority) = (packet.frame_len, packet.priority);
        let flow = self.flows.flow(packet.route.index());
        let Some(out) = self.forwarding.way(switch, flow) else {
            return self.discard(ingress, slot, DropCause::NoRoute);
        };
        let channel = &mut self.channels[out as usize];
        if frame_len > channel.max_frame && !self.fits(out, slot) {
            return self.discard(out, slot, DropCause::TooLong);
        }
        let channel = &mut self.channels[out as usize];
        if channel.queue.waiting().is_empty()
            && channel.is_free(self.clock)
            && channel.ready().contains(priority)
        {
            return self.transmit(out, slot, frame_len);
        }
        if !channel
            .queue
            .put(&mut self.packets, slot, frame_len, priority)
        {
            return self.discard(out, slot, DropCause::QueueFull);
        }
        let high_water = &mut channel.counters.queue_high_water;
        *high_water = channel.queue.bytes().max(*high_water);
        if !channel.awaited {
            channel.awaited = true;
            self.events
                .push(channel.free_at(), Event::new(Event::DRAIN, out));
        }
    }

    /// Sends the next packet of a switch port's queue; the channel is free.
    #[inline(always)]
    fn drain(&mut self, out: u32) {
        let channel = &mut self.channels[out as usize];
        let ready = channel.ready();
        channel.awaited = false;
        let Some((slot, frame_len)) = channel.queue.take(&self.packets, ready) else {
            return;
        };
        self.transmit(out, slot, frame_len);
        let channel = &mut self.channels[out as usize];
        if !channel.queue.waiting().and(ready).is_empty() {
            channel.awaited = true;
            self.events
                .push(channel.free_at(), Event::new(Event::DRAIN, out));
        }
    }

    /// Hands a packet to the host it is for.
    #[inline(always)]
    fn deliver(&mut self, channel: u32, host: u32, slot: u32) {
        let packet = self.packets.get(slot);
        if packet.damage == Damage::Link {
            return self.discard(channel, slot, DropCause::BadFcs);
        }
        let index = packet.route.index();
        if self.flows.flow(index).host != host {
            return self.discard(channel, slot, DropCause::NoRoute);
        }
        let payload = packet.payload;
        let seen = sight!(self);
        self.observer
            .on_deliver(self.clock, HostId(host), packet, seen);
        ask!(self, host, receive, packet, &self.flows.routes()[index]);
        self.pool.release(payload);
        self.packets.remove(slot);
        self.settle(host);
    }

    /// Drops a packet.
    #[cold]
    pub(super) fn discard(&mut self, channel: u32, slot: u32, cause: DropCause) {
        self.channels[channel as usize].counters.drops[cause as usize] += 1;
        let packet = self.packets.get(slot);
        let payload = packet.payload;
        let seen = sight!(self);
        self.observer
            .on_drop(self.clock, ChannelId(channel), cause, packet, seen);
        self.pool.release(payload);
        self.packets.remove(slot);
    }

    /// True if a frame that is too long for one without VLAN tag has one.
    #[cold]
    fn fits(&self, channel: u32, slot: u32) -> bool {
        let packet = self.packets.get(slot);
        let tagged = self.flows.routes()[packet.route.index()].vlan.is_some();
        let limit = self.channels[channel as usize].max_frame;
        tagged && packet.frame_len <= limit.saturating_add(4)
    }
}
