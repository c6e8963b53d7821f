//! The network at work: hosts, channels and switches in virtual time.

use super::counters::{ChannelCounters, DropCause};
use super::events::EventQueue;
use super::faults::injector::Injectors;
use super::faults::{Fault, FaultError, FaultLog};
use super::host::Host;
use super::link::{Channel, ChannelId, Direction, End};
use super::observer::{Observer, Sight};
use super::packets::{NONE, Packets};
use super::pool::{PayloadMode, PayloadPool};
use super::routing::{Flows, shortest_paths};
use super::switch::{Forwarding, OutputQueue};
use super::topology::{HostId, HostNode, Topology, TopologyError};
use crate::card::{Deed, Env};
use crate::random::Stream;
use crate::time::{Span, Time};
use crate::wire::{Damage, Ecn, Packet, Payload, RouteTable};

/// What a network needs to know beyond its topology.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// From which all random streams spring.
    pub seed: u64,
    /// Whether packets carry bytes.
    pub payload: PayloadMode,
    /// Where the cards intern their routes.
    pub routes: RouteTable,
}

/// A network of hosts of type `H` in virtual time, watched by `O`.
///
/// Between two events nothing happens; what happens at one time happens in the order in which it was
/// set going. The same topology, configuration and hosts give the same events, on every platform.
#[derive(Debug)]
pub struct Network<H, O = ()> {
    clock: Time,
    handled: u64,
    events: EventQueue<Event>,
    channels: Vec<Channel>,
    /// By channel; those that hosts send on stay empty.
    queues: Vec<OutputQueue>,
    /// By switch.
    forwarding: Vec<Forwarding>,
    packets: Packets,
    flows: Flows,
    hosts: Vec<Station<H>>,
    pool: PayloadPool,
    /// By channel.
    injectors: Vec<Injectors>,
    fault_log: FaultLog,
    observer: O,
    topology: Topology,
    seed: u64,
}

/// A host and what the network keeps for it.
#[derive(Debug)]
struct Station<H> {
    host: H,
    /// The channel it sends on.
    uplink: u32,
    /// Its timer events, the first one last. A deadline that moves away leaves the event where it is;
    /// one that comes nearer adds an event.
    timers: Vec<Time>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The first packet on a channel's way has arrived.
    Arrival(u32),
    /// A channel is free, and something may be waiting for it.
    Wake(u32),
    /// A host's deadline.
    Timer(u32),
    /// A packet that a fault delayed has arrived on a channel.
    Late(u32, u32),
    /// A packet held back on a channel has waited for as long as it may.
    Overdue(u32),
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
    /// Builds a network; `host` makes the machine at each host's port.
    ///
    /// # Errors
    ///
    /// [`TopologyError::NoLink`] if a host has no link.
    pub fn new(
        topology: &Topology,
        config: Config,
        observer: O,
        mut host: impl FnMut(HostId, &HostNode) -> H,
    ) -> Result<Network<H, O>, TopologyError> {
        let mut channels = Vec::new();
        let mut queues = Vec::new();
        let mut reach = Span::ZERO;
        for (i, link) in topology.links().iter().enumerate() {
            for direction in [Direction::Forward, Direction::Backward] {
                let (from, to) = topology.ends(ChannelId::new(i, direction));
                channels.push(Channel::new(&link.spec, from, to));
                queues.push(OutputQueue::new(match from {
                    End::Host(_) => 0,
                    End::Switch(s) => topology.switches()[s as usize].spec.port_buffer,
                }));
            }
            let longest = link.spec.rate.span(u64::from(link.spec.mtu) + 64);
            reach = reach.max(link.spec.delay + longest);
        }
        let ways = shortest_paths(topology);
        let forwarding = topology.switches().iter().zip(&ways);
        let mut hosts = Vec::new();
        for (i, node) in topology.hosts().iter().enumerate() {
            let uplink = node
                .uplink()
                .ok_or_else(|| TopologyError::NoLink(node.name.clone()))?;
            hosts.push(Station {
                host: host(HostId::new(i), node),
                uplink: uplink.0,
                timers: Vec::new(),
            });
        }
        let mut network = Network {
            clock: Time::ZERO,
            handled: 0,
            events: EventQueue::new(reach.as_ps()),
            injectors: vec![Injectors::default(); channels.len()],
            channels,
            queues,
            forwarding: forwarding
                .map(|(s, ways)| Forwarding::new(ways, config.seed, &s.name))
                .collect(),
            packets: Packets::default(),
            flows: Flows::new(topology, config.routes),
            hosts,
            pool: PayloadPool::new(config.payload),
            fault_log: FaultLog::default(),
            observer,
            topology: topology.clone(),
            seed: config.seed,
        };
        for h in 0..network.hosts.len() {
            network.settle(h as u32);
        }
        Ok(network)
    }

    /// Adds a fault injector to a channel and gives its position among those of the channel.
    ///
    /// # Errors
    ///
    /// If the fault makes no sense or there is no such channel.
    pub fn inject(&mut self, channel: ChannelId, fault: Fault) -> Result<usize, FaultError> {
        fault.check()?;
        let channels = self.channels.len();
        let Some(injectors) = self.injectors.get_mut(channel.index()) else {
            return Err(FaultError::UnknownChannel {
                channel: channel.index(),
                channels,
            });
        };
        let (link, direction) = self.topology.channel_name(channel);
        let name = format!("fault {link} {direction} {}", injectors.len());
        self.channels[channel.index()].faulty = true;
        Ok(injectors.add(fault, Stream::new(self.seed, &name)))
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.clock
    }

    /// When something happens next; `None` if nothing will.
    pub fn next_event(&self) -> Option<Time> {
        self.events.next_time()
    }

    /// Handles all events up to and with `until`, which then is the present.
    pub fn run_until(&mut self, until: Time) {
        while let Some((time, event)) = self.events.pop_until(until) {
            self.handle(time, event);
        }
        self.clock = self.clock.max(until);
    }

    /// Handles events until none is left or the next lies after `limit`; true if none is left.
    pub fn run_until_idle(&mut self, limit: Time) -> bool {
        while let Some((time, event)) = self.events.pop_until(limit) {
            self.handle(time, event);
        }
        self.next_event().is_none()
    }

    /// Handles one event; false if there is none.
    pub fn step(&mut self) -> bool {
        let next = self.events.pop_until(Time::NEVER);
        if let Some((time, event)) = next {
            self.handle(time, event);
        }
        next.is_some()
    }

    /// A host.
    pub fn host(&self, host: HostId) -> &H {
        &self.hosts[host.index()].host
    }

    /// A host, to be changed; [`Network::kick`] must follow.
    pub fn host_mut(&mut self, host: HostId) -> &mut H {
        &mut self.hosts[host.index()].host
    }

    /// All hosts.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &H> {
        self.hosts.iter().map(|s| &s.host)
    }

    /// Asks a host again what it has to send and what it waits for.
    pub fn kick(&mut self, host: HostId) {
        self.settle(host.0);
    }

    /// What the network was built from.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What has happened on a channel.
    pub fn counters(&self, channel: ChannelId) -> &ChannelCounters {
        &self.channels[channel.index()].counters
    }

    /// Bytes that wait in the queue in front of a channel.
    pub fn queued_bytes(&self, channel: ChannelId) -> u64 {
        self.queues[channel.index()].bytes()
    }

    /// Events handled so far.
    pub fn event_count(&self) -> u64 {
        self.handled
    }

    /// Packets that have left their sender's card and have been neither delivered nor dropped.
    pub fn in_flight(&self) -> usize {
        self.packets.live()
    }

    /// Where payloads live.
    pub fn pool(&self) -> &PayloadPool {
        &self.pool
    }

    /// The packets that faults hit.
    pub fn fault_log(&self) -> &FaultLog {
        &self.fault_log
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, to be changed.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// The observer and the hosts, the network gone.
    pub fn into_parts(self) -> (O, Vec<H>) {
        (
            self.observer,
            self.hosts.into_iter().map(|s| s.host).collect(),
        )
    }

    #[inline]
    fn handle(&mut self, time: Time, event: Event) {
        self.clock = time;
        self.handled += 1;
        match event {
            Event::Arrival(channel) => {
                let flying = &mut self.channels[channel as usize].flying;
                let slot = flying.pop(&mut self.packets);
                let next = flying.head();
                if next != NONE {
                    let arrival = self.packets.arrival(next);
                    self.events.push(arrival, event);
                }
                self.arrive(channel, slot);
            }
            Event::Wake(channel) => {
                self.channels[channel as usize].awaited = false;
                match self.channels[channel as usize].from {
                    End::Host(host) => self.settle(host),
                    End::Switch(_) => self.drain(channel),
                }
            }
            Event::Timer(host) => {
                let station = &mut self.hosts[host as usize];
                station.timers.pop();
                if station.host.next_timeout() <= time {
                    ask!(self, host, advance);
                }
                self.settle(host);
            }
            Event::Late(channel, slot) => self.arrive(channel, slot),
            Event::Overdue(channel) => {
                while let Some(slot) = self.injectors[channel as usize].overdue(time) {
                    self.arrive(channel, slot);
                }
            }
        }
    }

    /// A packet has come to the end of a channel.
    #[inline]
    fn arrive(&mut self, channel: u32, slot: u32) {
        if self.packets.get(slot).damage == Damage::Link {
            return self.discard(channel, slot, DropCause::BadFcs);
        }
        match self.channels[channel as usize].to {
            End::Host(host) => self.deliver(channel, host, slot),
            End::Switch(switch) => self.forward(channel, switch, slot),
        }
    }

    #[inline]
    fn deliver(&mut self, channel: u32, host: u32, slot: u32) {
        let packet = self.packets.get(slot);
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

    /// Sends a packet on its way out of a switch.
    #[inline]
    fn forward(&mut self, ingress: u32, switch: u32, slot: u32) {
        let packet = self.packets.get_mut(slot);
        if packet.hop_limit <= 1 {
            return self.discard(ingress, slot, DropCause::HopLimit);
        }
        packet.hop_limit -= 1;
        let (frame_len, priority) = (packet.frame_len, packet.priority);
        let flow = self.flows.flow(packet.route.index());
        let Some(out) = self.forwarding[switch as usize].way(flow.host, flow.hash) else {
            return self.discard(ingress, slot, DropCause::NoRoute);
        };
        let channel = &mut self.channels[out as usize];
        if frame_len > channel.max_frame && !self.fits(out, slot) {
            return self.discard(out, slot, DropCause::TooLong);
        }
        let channel = &mut self.channels[out as usize];
        let queue = &mut self.queues[out as usize];
        if queue.waiting().is_empty()
            && channel.is_free(self.clock)
            && channel.ready().contains(priority)
        {
            return self.transmit(out, slot);
        }
        if !queue.put(&mut self.packets, slot) {
            return self.discard(out, slot, DropCause::QueueFull);
        }
        let high_water = &mut channel.counters.queue_high_water;
        *high_water = queue.bytes().max(*high_water);
        self.await_channel(out);
    }

    /// Sends the next packet of a switch port's queue; the channel is free.
    #[inline]
    fn drain(&mut self, out: u32) {
        let ready = self.channels[out as usize].ready();
        let queue = &mut self.queues[out as usize];
        let Some(slot) = queue.take(&mut self.packets, ready) else {
            return;
        };
        let more = !queue.waiting().and(ready).is_empty();
        self.transmit(out, slot);
        if more {
            self.await_channel(out);
        }
    }

    /// Asks a host what it has to send and what it waits for, after any call to it.
    #[inline]
    fn settle(&mut self, host: u32) {
        let station = &self.hosts[host as usize];
        let uplink = station.uplink;
        let channel = &self.channels[uplink as usize];
        let ready = station.host.pending().and(channel.ready());
        if !ready.is_empty() && !channel.awaited {
            if !channel.is_free(self.clock) {
                self.await_channel(uplink);
            } else if let Some(packet) = ask!(self, host, next_packet, ready) {
                self.send(uplink, packet);
                let station = &self.hosts[host as usize];
                let ready = self.channels[uplink as usize].ready();
                if !station.host.pending().and(ready).is_empty() {
                    self.await_channel(uplink);
                }
            }
        }
        let station = &mut self.hosts[host as usize];
        let deadline = station.host.next_timeout();
        if deadline < station.timers.last().copied().unwrap_or(Time::NEVER) {
            // A deadline that has passed is kept at once.
            let deadline = deadline.max(self.clock);
            station.timers.push(deadline);
            self.events.push(deadline, Event::Timer(host));
        }
    }

    /// Takes in a packet from a host and sends it.
    #[inline]
    fn send(&mut self, uplink: u32, packet: Packet) {
        self.flows.meet(packet.route.index());
        let slot = self.packets.insert(packet);
        let channel = &mut self.channels[uplink as usize];
        if packet.frame_len > channel.max_frame && !self.fits(uplink, slot) {
            // It takes its time all the same, so that a host with nothing else to send cannot spin.
            self.channels[uplink as usize].occupy(self.clock, packet.frame_len);
            return self.discard(uplink, slot, DropCause::TooLong);
        }
        self.transmit(uplink, slot);
    }

    /// True if a frame that is too long for one without VLAN tag has one.
    #[cold]
    fn fits(&self, channel: u32, slot: u32) -> bool {
        let packet = self.packets.get(slot);
        let tagged = self.flows.routes()[packet.route.index()].vlan.is_some();
        let limit = self.channels[channel as usize].max_frame;
        tagged && packet.frame_len <= limit.saturating_add(4)
    }

    /// Puts a packet on the wire of a channel, which is free.
    #[inline]
    fn transmit(&mut self, channel: u32, slot: u32) {
        let packet = self.packets.get(slot);
        let seen = sight!(self);
        self.observer
            .on_transmit(self.clock, ChannelId(channel), packet, seen);
        let c = &mut self.channels[channel as usize];
        c.counters.frames += 1;
        c.counters.bytes += u64::from(packet.frame_len);
        let arrival = c.occupy(self.clock, packet.frame_len);
        if c.faulty {
            self.transmit_faultily(channel, slot, arrival);
        } else {
            self.fly(channel, slot, arrival);
        }
    }

    /// Puts a packet behind those on their way along a channel.
    #[inline]
    fn fly(&mut self, channel: u32, slot: u32, arrival: Time) {
        let flying = &mut self.channels[channel as usize].flying;
        if flying.is_empty() {
            self.events.push(arrival, Event::Arrival(channel));
        }
        self.packets.set_arrival(slot, arrival);
        flying.push(&mut self.packets, slot);
    }

    /// Asks a channel's fault injectors what becomes of a packet.
    #[cold]
    fn transmit_faultily(&mut self, channel: u32, slot: u32, arrival: Time) {
        let packet = *self.packets.get(slot);
        let verdict = self.injectors[channel as usize].judge(
            self.clock,
            ChannelId(channel),
            &packet,
            &self.flows.routes()[packet.route.index()],
            |record| {
                self.observer.on_fault(&record);
                self.fault_log.add(record);
            },
        );
        let hit = self.packets.get_mut(slot);
        hit.damage = match (hit.damage, verdict.damage) {
            (_, Damage::Link) => Damage::Link,
            (Damage::None, new) => new,
            (old, _) => old,
        };
        if verdict.mark && hit.ecn != Ecn::NotCapable {
            hit.ecn = Ecn::Experienced;
        }
        let hit = *hit;
        if !verdict.drop {
            if verdict.delay > Span::ZERO {
                self.events
                    .push(arrival + verdict.delay, Event::Late(channel, slot));
            } else if let Some((packets, limit)) = verdict.reorder {
                let deadline = arrival + limit;
                self.injectors[channel as usize].hold(slot, packets, deadline);
                self.events.push(deadline, Event::Overdue(channel));
            } else {
                self.fly(channel, slot, arrival);
                let mut passing = true;
                while let Some(held) = self.injectors[channel as usize].pass(passing) {
                    self.fly(channel, held, arrival);
                    passing = false;
                }
            }
        }
        for delay in verdict.copies {
            self.pool.retain(hit.payload);
            let copy = self.packets.insert(hit);
            self.channels[channel as usize].counters.duplicates += 1;
            if delay > Span::ZERO {
                self.events
                    .push(arrival + delay, Event::Late(channel, copy));
            } else {
                self.fly(channel, copy, arrival);
            }
        }
        if verdict.drop {
            self.discard(channel, slot, DropCause::Fault);
        }
    }

    /// Drops a packet.
    #[cold]
    fn discard(&mut self, channel: u32, slot: u32, cause: DropCause) {
        self.channels[channel as usize].counters.drops[cause as usize] += 1;
        let packet = self.packets.get(slot);
        let payload = packet.payload;
        let seen = sight!(self);
        let channel = ChannelId(channel);
        self.observer
            .on_drop(self.clock, channel, cause, packet, seen);
        self.pool.release(payload);
        self.packets.remove(slot);
    }

    /// Wakes a channel when it is free, unless that is among the events already.
    #[inline]
    fn await_channel(&mut self, channel: u32) {
        let c = &mut self.channels[channel as usize];
        if !c.awaited {
            c.awaited = true;
            self.events.push(c.free_at(), Event::Wake(channel));
        }
    }
}
