//! The network at work: what happens at each event.
//!
//! The path of a packet reads from top to bottom: a host's packet is pulled and transmitted, arrives, is
//! forwarded by a switch, perhaps waits in a queue until that is drained, and is delivered. Along this
//! path a function is inlined where a call would cost a share of its work, and each table is indexed
//! once.

use super::counters::DropCause;
use super::host::Host;
use super::link::{Channel, End};
use super::medium::{Desk, Medium, Other, Source};
use super::network::Network;
use super::observer::{Observer, Sight};
use super::topology::HostId;
use crate::card::PriorityMask;
use crate::time::Time;
use crate::wire::Damage;

impl<H: Host, O: Observer> Network<H, O> {
    /// Handles at most `most` events up to and with `limit`, and gives how many it handled.
    #[inline(never)]
    pub(super) fn work(&mut self, limit: Time, most: u64) -> u64 {
        let mut done = 0;
        let before = self.handled;
        let mut idle = self.idle;
        while done < most {
            let Some((time, source)) = self.medium.events.pop_until(limit) else {
                break;
            };
            done += 1;
            let id = source / 2;
            let Some(channel) = self.channels.get_mut(id as usize) else {
                let last = self.medium.clock;
                self.medium.clock = time;
                if !self.attend(source) {
                    let number = before + done;
                    let since = if idle.0 + 1 == number { idle.1 } else { last };
                    idle = (number, since);
                }
                continue;
            };
            self.medium.clock = time;
            if source == Source::arrival(id) {
                let to = channel.to;
                let (slot, next) = channel.flying.pop(&self.medium.packets);
                if let Some(arrival) = next {
                    self.medium.events.push(arrival, source);
                }
                self.arrive(id, to, slot);
            } else {
                channel.awaited = false;
                match channel.from {
                    End::Host(host) => {
                        if channel.urgent {
                            self.send_pfc(id);
                        }
                        self.settle(host);
                    }
                    End::Switch(switch) if channel.managed => self.serve(switch, id),
                    End::Switch(_) => drain(&mut self.medium, channel, id),
                }
            }
        }
        self.idle = idle;
        self.handled += done;
        if done != 0 && idle.0 == self.handled && self.medium.events.is_empty() {
            // Timers that found nothing to do are not what a run ends with.
            self.medium.clock = idle.1;
            self.medium.events.restart(idle.1);
        }
        done
    }

    /// Handles an event that is not a channel's; false if there was nothing to do.
    fn attend(&mut self, source: u32) -> bool {
        match self.medium.other(source) {
            Other::Timer(host) => return self.expire(host),
            Other::Late {
                channel,
                slot,
                flaps,
            } => self.arrive_late(channel, slot, flaps),
            Other::Overdue(channel) => return self.release_overdue(channel),
            Other::Pfc { channel, order } => return self.hear(channel, order),
            Other::Pause { channel, order } => return self.obey(channel, order),
            Other::PauseEnd {
                channel,
                priority,
                last,
            } => return self.expire_pause(channel, priority, last),
            Other::Refresh(channel) => return self.refresh(channel),
            Other::Watch { channel, priority } => return self.watch(channel, priority),
            Other::Restore { channel, priority } => return self.restore(channel, priority),
            Other::Served(host) => return self.served(host),
            Other::Stall(host) => self.stall(host),
            Other::Link { link, up, reroute } => return self.change_link(link, up, reroute),
            Other::Reroute { link, flaps, up } => return self.learn(link, flaps, up),
        }
        true
    }

    /// A deadline of a host has come; false if it had been moved away.
    fn expire(&mut self, host: u32) -> bool {
        let station = &mut self.hosts[host as usize];
        station.timers.pop();
        let now = self.medium.clock;
        // Even then the host may find that its deadline has moved on.
        let due = station.host.next_timeout() <= now
            && station.host.advance(now, &mut self.medium.desk(host));
        self.ask_host(host);
        due
    }

    /// As [`Network::settle`], where a call costs nothing that counts.
    #[inline(never)]
    pub(super) fn ask_host(&mut self, host: u32) {
        self.settle(host);
    }

    /// Asks a host what it has to send and what it waits for, after any call to it.
    #[inline(always)]
    fn settle(&mut self, host: u32) {
        let station = &mut self.hosts[host as usize];
        let now = self.medium.clock;
        let mut pending = station.host.pending();
        if !pending.is_empty() {
            let uplink = station.uplink;
            let channel = &mut self.channels[uplink as usize];
            let ready = pending.and(channel.ready());
            if !channel.awaited && !ready.is_empty() {
                if channel.is_free(now) {
                    let desk = &mut self.medium.desk(host);
                    pending = PriorityMask::NONE;
                    if let Some(packet) = station.host.next_packet(now, ready, desk) {
                        self.medium.flows.meet(packet.route.index());
                        let frame_len = packet.frame_len;
                        let slot = self.medium.packets.insert(packet);
                        if self.medium.is_too_long(channel, slot, frame_len) {
                            // It takes its time all the same, so that a host with nothing else to
                            // send cannot spin.
                            channel.occupy(now, frame_len);
                            self.medium
                                .discard(channel, uplink, slot, DropCause::TooLong);
                        } else {
                            self.medium.transmit(channel, uplink, slot, frame_len);
                        }
                        pending = station.host.pending().and(channel.ready());
                    }
                }
                if !pending.is_empty() {
                    self.medium.wake(channel, uplink);
                }
            }
        }
        let deadline = station.host.next_timeout();
        if deadline != Time::NEVER && station.timers.last().is_none_or(|&t| deadline < t) {
            // A deadline that has passed is kept at once.
            let deadline = deadline.max(now);
            station.timers.push(deadline);
            self.medium.plan(deadline, Other::Timer(host));
        }
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
        let packet = self.medium.packets.get_mut(slot);
        if packet.damage == Damage::Link {
            return self.discard_damaged(ingress, slot);
        }
        if packet.hop_limit <= 1 {
            return self.discard(ingress, slot, DropCause::HopLimit);
        }
        packet.hop_limit -= 1;
        let (frame_len, priority) = (packet.frame_len, packet.priority);
        let flow = self.medium.flows.flow(packet.route.index());
        let Some(out) = self.forwarding.way(switch, flow) else {
            return self.flood(ingress, switch, slot);
        };
        let channel = &mut self.channels[out as usize];
        if self.medium.is_too_long(channel, slot, frame_len) {
            return self.medium.discard(channel, out, slot, DropCause::TooLong);
        }
        if channel.managed {
            if channel.takes(self.medium.clock, priority) && !channel.sorted {
                return self.medium.transmit(channel, out, slot, frame_len);
            }
            return self.enqueue(ingress, switch, out, slot);
        }
        // A switch with nothing but tail drop is never paused.
        if channel.queue.waiting().is_empty() && channel.is_free(self.medium.clock) {
            return self.medium.transmit(channel, out, slot, frame_len);
        }
        wait(&mut self.medium, channel, out, slot, frame_len, priority);
    }

    /// Hands a packet to the host it is for.
    #[inline(always)]
    fn deliver(&mut self, channel: u32, host: u32, slot: u32) {
        let medium = &mut self.medium;
        let packet = medium.packets.get(slot);
        let index = packet.route.index();
        if packet.damage == Damage::Link {
            return self.discard_damaged(channel, slot);
        }
        if medium.flows.flow(index).host != host {
            let to = medium.flows.routes()[index].dst;
            if !to.is_multicast() || !self.hosts[host as usize].host.hears(to) {
                return self.discard(channel, slot, DropCause::NoRoute);
            }
        }
        if self.hosts[host as usize].pipeline.is_some() {
            return self.take_in(channel, host, slot);
        }
        medium.observer.on_deliver(
            medium.clock,
            HostId(host),
            Sight {
                slot,
                packets: &medium.packets,
                flows: &medium.flows,
                pool: &medium.pool,
            },
        );
        let desk = &mut Desk {
            now: medium.clock,
            host: HostId(host),
            pool: &mut medium.pool,
            observer: &mut medium.observer,
        };
        let route = &medium.flows.routes()[index];
        let station = &mut self.hosts[host as usize];
        station.host.receive(medium.clock, packet, route, desk);
        medium.pool.release(packet.payload);
        medium.packets.remove(slot);
        self.settle(host);
    }

    /// Sends a packet, for which a switch knows no way, to the members of the group that it is for, or on all
    /// ways but the one it came by, if the switch is to do so.
    #[cold]
    fn flood(&mut self, ingress: u32, switch: u32, slot: u32) {
        let route = self.medium.packets.get(slot).route;
        let to = self.medium.flows.routes()[route.index()].dst;
        if to.is_multicast() {
            return self.copy_to_members(ingress, switch, slot, to);
        }
        let flow = self.medium.flows.flow(route.index());
        let back = ingress ^ 1;
        let all = &self.exits[switch as usize];
        let last = all.iter().copied().rev().find(|&out| out != back);
        let Some(last) = last.filter(|_| self.forwarding.floods(switch, flow)) else {
            return self.discard(ingress, slot, DropCause::NoRoute);
        };
        for n in 0..all.len() {
            let out = self.exits[switch as usize][n];
            if out != back && out != last {
                self.copy_out(ingress, switch, out, slot);
            }
        }
        self.leave(ingress, switch, last, slot);
    }

    /// Sends a copy of a packet out of a switch.
    pub(super) fn copy_out(&mut self, ingress: u32, switch: u32, out: u32, slot: u32) {
        let packet = *self.medium.packets.get(slot);
        self.medium.pool.retain(packet.payload);
        let copy = self.medium.packets.insert(packet);
        self.channels[ingress as usize].counters.duplicates += 1;
        self.leave(ingress, switch, out, copy);
    }

    /// Sends a packet out of a switch on one of several ways.
    pub(super) fn leave(&mut self, ingress: u32, switch: u32, out: u32, slot: u32) {
        let (now, medium) = (self.medium.clock, &mut self.medium);
        let packet = medium.packets.get(slot);
        let (frame_len, priority) = (packet.frame_len, packet.priority);
        let channel = &mut self.channels[out as usize];
        if medium.is_too_long(channel, slot, frame_len) {
            return medium.discard(channel, out, slot, DropCause::TooLong);
        }
        if channel.takes(now, priority) && !channel.sorted {
            return medium.transmit(channel, out, slot, frame_len);
        }
        if channel.managed {
            return self.enqueue(ingress, switch, out, slot);
        }
        wait(medium, channel, out, slot, frame_len, priority);
    }

    /// Drops a packet whose bits are wrong, or that was on its way when its link went down.
    #[cold]
    fn discard_damaged(&mut self, channel: u32, slot: u32) {
        let cause = if self.medium.clock <= self.channels[channel as usize].cut {
            DropCause::LinkDown
        } else {
            DropCause::BadFcs
        };
        self.discard(channel, slot, cause);
    }

    /// Drops a packet at the end of a channel.
    #[cold]
    pub(super) fn discard(&mut self, channel: u32, slot: u32, cause: DropCause) {
        let c = &mut self.channels[channel as usize];
        self.medium.discard(c, channel, slot, cause);
    }
}

/// Has a packet wait for a switch port that has nothing but tail drop.
#[inline(always)]
fn wait<O: Observer>(
    medium: &mut Medium<O>,
    channel: &mut Channel,
    id: u32,
    slot: u32,
    frame_len: u16,
    priority: u8,
) {
    if !channel
        .queue
        .put(&mut medium.packets, slot, frame_len, priority)
    {
        return medium.discard(channel, id, slot, DropCause::QueueFull);
    }
    let high_water = &mut channel.counters.queue_high_water;
    *high_water = channel.queue.bytes().max(*high_water);
    if !channel.awaited {
        medium.wake(channel, id);
    }
}

/// Sends the next packet of the queue of a switch port that has nothing but tail drop; the channel is
/// free.
#[inline(always)]
fn drain<O: Observer>(medium: &mut Medium<O>, channel: &mut Channel, id: u32) {
    if let Some((slot, frame_len)) = channel.queue.take(&medium.packets) {
        medium.transmit(channel, id, slot, frame_len);
        if !channel.queue.waiting().is_empty() {
            medium.wake(channel, id);
        }
    }
}
