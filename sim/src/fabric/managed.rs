//! The path of a packet through a switch that has more than tail drop: a shared buffer, PFC, ECN, shares
//! of its ports.
//!
//! A packet that can be sent at once is: it takes no room and nothing is counted. One that waits is
//! counted by where it came in, and when it begins to be sent, that is undone, and it may be marked.

use super::buffer::{Buffer, Ingress};
use super::counters::DropCause;
use super::ecn::EcnSpec;
use super::host::Host;
use super::link::{Channel, ChannelId, Direction, End};
use super::medium::Medium;
use super::network::Network;
use super::observer::{Observer, Sight};
use super::pausing::{Gate, Pauser};
use super::pfc::Threshold;
use super::schedule::Scheduler;
use super::topology::{Topology, TopologyError};
use crate::card::PriorityMask;
use crate::random::Stream;
use crate::wire::Ecn;

/// What a network keeps beyond its channels because some switch has more than tail drop. Empty if none
/// has.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed {
    /// By switch.
    pub(super) switches: Vec<Switch>,
    /// By channel: what came in by it and waits at its end.
    pub(super) ingresses: Vec<Ingress>,
    /// By channel: what waits at the switch it leaves.
    pub(super) egresses: Vec<Egress>,
    /// By channel: whom its end has paused.
    pub(super) pausers: Vec<Pauser>,
    /// By channel: how it is paused.
    pub(super) gates: Vec<Gate>,
}

/// A switch.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) buffer: Buffer,
    /// Whom it has paused under a threshold that moves, by channel and priority, in the order in which it
    /// did; some of them may have been let go since.
    pub(super) held: Vec<(u32, u8)>,
    /// The most of the pool that was in use since they were last looked at.
    peak: u64,
    /// By DSCP.
    classes: Option<Box<[u8; 64]>>,
}

/// The queues of a port of a switch.
#[derive(Clone, Debug)]
pub(super) struct Egress {
    /// By priority.
    pub(super) bytes: [u64; 8],
    /// Those of the lossy priorities.
    lossy: u64,
    ecn: [Option<EcnSpec>; 8],
    random: Stream,
    /// `None` if all priorities are strict.
    scheduler: Option<Scheduler>,
}

impl Managed {
    /// What `topology` needs.
    pub(super) fn new(topology: &Topology, seed: u64) -> Result<Managed, TopologyError> {
        let switches = topology.switches();
        for node in switches {
            node.spec.check().map_err(|error| TopologyError::Switch {
                switch: node.name.clone(),
                error,
            })?;
        }
        if switches.iter().all(|s| s.spec.is_plain()) {
            return Ok(Managed::default());
        }
        Managed::for_all(topology, seed)
    }

    /// All there is to keep, whether it is needed or not.
    pub(super) fn for_all(topology: &Topology, seed: u64) -> Result<Managed, TopologyError> {
        let switches = topology.switches();
        let mut managed = Managed::default();
        let mut rooms = vec![Vec::new(); switches.len()];
        for (i, link) in topology.links().iter().enumerate() {
            for direction in [Direction::Forward, Direction::Backward] {
                let id = ChannelId::new(i, direction);
                let (from, to) = topology.ends(id);
                let mut room = 0;
                let mut pfc = None;
                if let End::Switch(s) = to {
                    pfc = switches[s as usize].spec.pfc;
                    room = pfc.map_or(0, |pfc| pfc.headroom.bytes(&link.spec));
                    rooms[s as usize].push(room);
                }
                managed.ingresses.push(Ingress::new(room));
                managed.pausers.push(Pauser::new(pfc, &link.spec));
                let (obeys, spec) = match from {
                    End::Host(_) => (PriorityMask::ALL, None),
                    End::Switch(s) => {
                        let spec = switches[s as usize].spec;
                        (spec.lossless(), Some(spec))
                    }
                };
                let spec = spec.unwrap_or_default();
                let watchdog = spec.pfc.and_then(|pfc| pfc.watchdog);
                let address = match from {
                    End::Host(h) => topology.hosts()[h as usize].mac,
                    End::Switch(_) => id.port_address(),
                };
                managed
                    .gates
                    .push(Gate::new(&link.spec, obeys, watchdog, address));
                managed.egresses.push(Egress {
                    bytes: [0; 8],
                    lossy: 0,
                    ecn: spec.ecn,
                    random: Stream::new(seed, &format!("ecn {} {direction}", link.name)),
                    scheduler: (spec.weights != [0; 8])
                        .then(|| Scheduler::new(spec.weights, link.spec.longest_frame())),
                });
            }
        }
        for (node, rooms) in switches.iter().zip(rooms) {
            let held = match node.spec.pfc.map(|pfc| pfc.threshold) {
                Some(Threshold::Dynamic(_)) => {
                    rooms.len() * node.spec.lossless().0.count_ones() as usize
                }
                _ => 0,
            };
            let buffer = Buffer::new(&node.spec, rooms.into_iter()).map_err(|error| {
                TopologyError::Switch {
                    switch: node.name.clone(),
                    error,
                }
            })?;
            managed.switches.push(Switch {
                buffer,
                // Room for all there can be, so that no pause allocates.
                held: Vec::with_capacity(held),
                peak: 0,
                classes: node.spec.classes.map(Box::new),
            });
        }
        Ok(managed)
    }
}

impl Switch {
    /// True if so much of the pool has become free that those that are paused are to be looked at: some
    /// packets, or with the last one that a port can send.
    fn is_due(&mut self, last: bool) -> bool {
        const STEP: u64 = 8192;
        let used = self.buffer.used();
        self.peak = self.peak.max(used);
        let due = last || used + STEP <= self.peak;
        if due {
            self.peak = used;
        }
        due
    }
}

impl Egress {
    /// Takes the packet to be sent next.
    #[inline]
    fn take<O>(&mut self, channel: &mut Channel, medium: &Medium<O>) -> Option<(u8, u32, u16)> {
        let ready = channel.queue.waiting().and(channel.ready());
        let priority = match &mut self.scheduler {
            None => ready.0.checked_ilog2()? as u8,
            Some(scheduler) => {
                let queue = &channel.queue;
                let packets = &medium.packets;
                scheduler.pick(ready, |p| packets.get(queue.first(p)).frame_len.into())?
            }
        };
        let (slot, frame_len) = channel.queue.take_from(&medium.packets, priority);
        if let Some(scheduler) = &mut self.scheduler
            && !channel.queue.waiting().contains(priority)
        {
            scheduler.emptied(priority);
        }
        self.bytes[usize::from(priority & 7)] -= u64::from(frame_len);
        Some((priority, slot, frame_len))
    }
}

impl<H: Host, O: Observer> Network<H, O> {
    /// Sends a packet out of a switch on channel `out`, or has it wait for that.
    #[inline(never)]
    pub(super) fn enqueue(&mut self, ingress: u32, switch: u32, out: u32, slot: u32) {
        let managed = &mut self.managed;
        let node = &mut managed.switches[switch as usize];
        let packet = self.medium.packets.get(slot);
        let frame_len = packet.frame_len;
        let priority = match &node.classes {
            None => packet.priority & 7,
            Some(classes) => {
                let route = &self.medium.flows.routes()[packet.route.index()];
                classes[usize::from(route.dscp & 63)]
            }
        };
        let channel = &mut self.channels[out as usize];
        let ready = channel.ready();
        let may_go = ready.contains(priority);
        if may_go
            && channel.queue.waiting().and(ready).is_empty()
            && channel.is_free(self.medium.clock)
            && !channel.urgent
        {
            return self.medium.transmit(channel, out, slot, frame_len);
        }
        if !may_go && managed.gates[out as usize].stormed.contains(priority) {
            return self.medium.discard(channel, out, slot, DropCause::Watchdog);
        }
        let egress = &mut managed.egresses[out as usize];
        let p = usize::from(priority & 7);
        let len = u64::from(frame_len);
        let lossless = node.buffer.lossless().contains(priority);
        let fits = lossless
            || egress.lossy + len <= channel.queue.limit()
                && node.buffer.shares(egress.bytes[p], frame_len);
        if !fits {
            return self
                .medium
                .discard(channel, out, slot, DropCause::QueueFull);
        }
        let from = &mut managed.ingresses[ingress as usize];
        if let Err(cause) = node.buffer.admit(from, priority, frame_len, lossless) {
            return self.discard(ingress, slot, cause);
        }
        let packets = &mut self.medium.packets;
        packets.set_ingress(slot, ingress);
        channel.queue.add(packets, slot, frame_len, priority);
        egress.bytes[p] += len;
        if !lossless {
            egress.lossy += len;
        }
        let counters = &mut channel.counters;
        counters.queue_high_water = counters.queue_high_water.max(channel.queue.bytes());
        let high_water = &mut counters.by_priority[p].queue_high_water;
        *high_water = egress.bytes[p].max(*high_water);
        self.medium
            .observer
            .on_queue(self.medium.clock, ChannelId(out), priority, egress.bytes[p]);
        if may_go && !channel.awaited {
            self.medium.wake(channel, out);
        }
        if lossless
            && !managed.pausers[ingress as usize].off.contains(priority)
            && node.buffer.is_over(from, priority)
        {
            self.stop(ingress, priority, Some(out));
        }
    }

    /// Sends what is next on the channel of a switch port, if it is free.
    pub(super) fn serve(&mut self, switch: u32, out: u32) {
        let channel = &mut self.channels[out as usize];
        if !channel.is_free(self.medium.clock) {
            return self.medium.wake(channel, out);
        }
        if channel.urgent {
            return self.send_pfc(out);
        }
        let managed = &mut self.managed;
        let egress = &mut managed.egresses[out as usize];
        let Some((priority, slot, frame_len)) = egress.take(channel, &self.medium) else {
            return;
        };
        let p = usize::from(priority & 7);
        let node = &mut managed.switches[switch as usize];
        let ingress = self.medium.packets.ingress(slot);
        let from = &mut managed.ingresses[ingress as usize];
        node.buffer.release(from, priority, frame_len);
        let lossless = node.buffer.lossless().contains(priority);
        if !lossless {
            egress.lossy -= u64::from(frame_len);
        }
        let left = egress.bytes[p];
        self.medium
            .observer
            .on_queue(self.medium.clock, ChannelId(out), priority, left);
        if let Some(ecn) = egress.ecn[p]
            && ecn.marks(left, &mut egress.random)
        {
            mark(&mut self.medium, channel, out, slot, priority);
        }
        self.medium.transmit(channel, out, slot, frame_len);
        if !channel.queue.waiting().and(channel.ready()).is_empty() {
            self.medium.wake(channel, out);
        }
        if lossless
            && managed.pausers[ingress as usize].off.contains(priority)
            && node.buffer.relieves(from, priority)
        {
            self.release(ingress, priority);
        }
        let node = &mut self.managed.switches[switch as usize];
        if !node.held.is_empty() && node.is_due(self.channels[out as usize].is_idle()) {
            self.review(switch);
        }
    }

    /// Lets go those whose threshold has risen above what they have, because others have left the pool.
    #[cold]
    fn review(&mut self, switch: u32) {
        let mut n = 0;
        while let Some(&(channel, priority)) = self.managed.switches[switch as usize].held.get(n) {
            let managed = &mut self.managed;
            let node = &mut managed.switches[switch as usize];
            if !managed.pausers[channel as usize].off.contains(priority) {
                node.held.remove(n);
                continue;
            }
            if node
                .buffer
                .relieves(&mut managed.ingresses[channel as usize], priority)
            {
                node.held.remove(n);
                self.release(channel, priority);
                continue;
            }
            n += 1;
        }
    }
}

impl<H: Host, O: Observer> Network<H, O> {
    /// Undoes the count of a packet that has been taken from the queue of a managed port to be dropped.
    pub(super) fn forget(&mut self, out: u32, slot: u32, priority: u8, frame_len: u16) {
        let ingress = self.medium.packets.ingress(slot);
        let channel = &self.channels[out as usize];
        let End::Switch(switch) = channel.from else {
            return;
        };
        let managed = &mut self.managed;
        let egress = &mut managed.egresses[out as usize];
        if let Some(scheduler) = &mut egress.scheduler
            && !channel.queue.waiting().contains(priority)
        {
            scheduler.emptied(priority);
        }
        let p = usize::from(priority & 7);
        egress.bytes[p] -= u64::from(frame_len);
        let buffer = &mut managed.switches[switch as usize].buffer;
        let lossless = buffer.lossless().contains(priority);
        if !lossless {
            egress.lossy -= u64::from(frame_len);
        }
        let from = &mut managed.ingresses[ingress as usize];
        buffer.release(from, priority, frame_len);
        self.medium
            .observer
            .on_queue(self.medium.clock, ChannelId(out), priority, egress.bytes[p]);
        if lossless
            && managed.pausers[ingress as usize].off.contains(priority)
            && buffer.relieves(from, priority)
        {
            self.release(ingress, priority);
        }
        if !self.managed.switches[switch as usize].held.is_empty() {
            self.review(switch);
        }
    }
}

/// Marks a packet, if its sender takes part.
fn mark<O: Observer>(
    medium: &mut Medium<O>,
    channel: &mut Channel,
    id: u32,
    slot: u32,
    priority: u8,
) {
    let counters = &mut channel.counters.by_priority[usize::from(priority & 7)];
    let ecn = &mut medium.packets.get_mut(slot).ecn;
    match ecn {
        Ecn::NotCapable => counters.not_capable += 1,
        Ecn::Experienced => {}
        Ecn::Capable0 | Ecn::Capable1 => {
            *ecn = Ecn::Experienced;
            counters.marks += 1;
            medium.observer.on_mark(
                medium.clock,
                ChannelId(id),
                Sight {
                    slot,
                    packets: &medium.packets,
                    flows: &medium.flows,
                    pool: &medium.pool,
                },
            );
        }
    }
}
