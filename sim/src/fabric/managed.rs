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
    /// By channel: what came in by it and waits at its end, and whom that has paused.
    pub(super) ingresses: Vec<Ingress>,
    /// By channel: what few ports or packets of the switch it leaves need.
    egresses: Vec<Egress>,
    /// By channel: how its end pauses.
    pub(super) pausers: Vec<Pauser>,
    /// By channel: how it is paused.
    pub(super) gates: Vec<Gate>,
}

/// A switch.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) buffer: Buffer,
    /// Whom it has paused under a threshold that moves, or because a frame found no room, by channel and
    /// priority, in the order in which it did; some of them may have been let go since.
    pub(super) held: Vec<(u32, u8)>,
    /// The most of the pool that was in use since they were last looked at.
    peak: u64,
    /// By DSCP.
    classes: Option<Box<[u8; 64]>>,
}

/// Beside its queue, what a port of a switch has.
#[derive(Clone, Debug)]
struct Egress {
    /// Bytes that wait in the lossy priorities.
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
                    lossy: 0,
                    ecn: spec.ecn,
                    random: Stream::new(seed, &format!("ecn {} {direction}", link.name)),
                    scheduler: (spec.weights != [0; 8])
                        .then(|| Scheduler::new(spec.weights, link.spec.longest_frame())),
                });
            }
        }
        for (node, rooms) in switches.iter().zip(rooms) {
            let held = rooms.len() * node.spec.lossless().0.count_ones() as usize;
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
    /// The priority of the packet to be sent next from a port that is shared by weights, or not.
    fn pick<O>(&mut self, channel: &Channel, medium: &Medium<O>) -> Option<u8> {
        let sendable = channel.sendable();
        let Some(scheduler) = &mut self.scheduler else {
            return sendable.highest();
        };
        let packets = &medium.packets;
        let queue = &channel.queue;
        scheduler.pick(sendable, |p| packets.get(queue.first(p)).frame_len.into())
    }

    /// A packet of a priority was taken out of the queue.
    fn taken(&mut self, channel: &Channel, priority: u8) {
        if let Some(scheduler) = &mut self.scheduler
            && !channel.queue.waiting().contains(priority)
        {
            scheduler.emptied(priority);
        }
    }
}

impl<H: Host, O: Observer> Network<H, O> {
    /// Has a packet wait for channel `out` of a switch, which cannot take it now, unless it is of another
    /// class there and can go.
    #[inline(never)]
    pub(super) fn enqueue(&mut self, ingress: u32, switch: u32, out: u32, slot: u32) {
        let managed = &mut self.managed;
        let node = &mut managed.switches[switch as usize];
        let channel = &mut self.channels[out as usize];
        let packet = self.medium.packets.get(slot);
        let frame_len = packet.frame_len;
        let mut priority = packet.priority & 7;
        if channel.sorted {
            if let Some(classes) = &node.classes {
                let route = &self.medium.flows.routes()[packet.route.index()];
                priority = classes[usize::from(route.dscp & 63)];
            }
            if channel.takes(self.medium.clock, priority) {
                return self.medium.transmit(channel, out, slot, frame_len);
            }
        }
        let may_go = channel.ready().contains(priority);
        if !may_go && managed.gates[out as usize].stormed.contains(priority) {
            return self.medium.discard(channel, out, slot, DropCause::Watchdog);
        }
        let lossless = node.buffer.lossless().contains(priority);
        let fits = lossless || {
            let lossy = managed.egresses[out as usize].lossy + u64::from(frame_len);
            let waiting = channel.queue.bytes_in(priority);
            lossy <= channel.queue.limit() && node.buffer.shares(waiting, frame_len)
        };
        if !fits {
            return self
                .medium
                .discard(channel, out, slot, DropCause::QueueFull);
        }
        let from = &mut managed.ingresses[ingress as usize];
        if let Err(cause) = node.buffer.admit(from, priority, frame_len, lossless) {
            // Not if nothing is there that could leave, for then nobody would ever be let go again.
            let holds = from.waiting(priority) > 0 || node.buffer.used() > 0;
            if lossless && holds && !from.off.contains(priority) {
                from.refused = from.refused.with(priority);
                self.stop(ingress, priority, Some(out));
            }
            return self.discard(ingress, slot, cause);
        }
        if !lossless {
            managed.egresses[out as usize].lossy += u64::from(frame_len);
        }
        let packets = &mut self.medium.packets;
        packets.set_ingress(slot, ingress);
        channel.queue.add(packets, slot, frame_len, priority);
        let waiting = channel.queue.bytes_in(priority);
        let fills = !may_go && waiting == u64::from(frame_len);
        let counters = &mut channel.counters;
        counters.queue_high_water = counters.queue_high_water.max(channel.queue.bytes());
        let high_water = &mut counters.by_priority[usize::from(priority & 7)].queue_high_water;
        *high_water = waiting.max(*high_water);
        self.medium
            .observer
            .on_queue(self.medium.clock, ChannelId(out), priority, waiting);
        if may_go && !channel.awaited {
            self.medium.wake(channel, out);
        }
        if lossless && !from.off.contains(priority) && node.buffer.is_over(from, priority) {
            self.stop(ingress, priority, Some(out));
        }
        if fills {
            self.watch_from_now(out, priority);
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
        let next = if channel.sorted {
            managed.egresses[out as usize].pick(channel, &self.medium)
        } else {
            channel.sendable().highest()
        };
        let Some(priority) = next else {
            return;
        };
        let (slot, frame_len) = channel.queue.take_from(&self.medium.packets, priority);
        if channel.sorted {
            managed.egresses[out as usize].taken(channel, priority);
        }
        let node = &mut managed.switches[switch as usize];
        let ingress = self.medium.packets.ingress(slot);
        let from = &mut managed.ingresses[ingress as usize];
        node.buffer.release(from, priority, frame_len);
        let lossless = node.buffer.lossless().contains(priority);
        if !lossless {
            managed.egresses[out as usize].lossy -= u64::from(frame_len);
        }
        let left = channel.queue.bytes_in(priority);
        self.medium
            .observer
            .on_queue(self.medium.clock, ChannelId(out), priority, left);
        if channel.queue.may_mark(priority) {
            let egress = &mut managed.egresses[out as usize];
            if let Some(ecn) = egress.ecn[usize::from(priority & 7)]
                && ecn.marks(left, &mut egress.random)
            {
                mark(&mut self.medium, channel, out, slot, priority);
            }
        }
        self.medium.transmit(channel, out, slot, frame_len);
        let idle = channel.sendable().is_empty();
        if !idle {
            self.medium.wake(channel, out);
        }
        let relieved =
            lossless && from.off.contains(priority) && node.buffer.relieves(from, priority);
        let due = !node.held.is_empty();
        if relieved {
            self.release(ingress, priority);
        }
        if due && self.managed.switches[switch as usize].is_due(idle) {
            self.review(switch);
        }
    }

    /// Lets go those whose threshold has risen above what they have, or who would find room again, because
    /// others have left the pool.
    #[cold]
    fn review(&mut self, switch: u32) {
        let mut n = 0;
        while let Some(&(channel, priority)) = self.managed.switches[switch as usize].held.get(n) {
            let managed = &mut self.managed;
            let node = &mut managed.switches[switch as usize];
            if !managed.ingresses[channel as usize].off.contains(priority) {
                node.held.remove(n);
                continue;
            }
            let from = &mut managed.ingresses[channel as usize];
            if node.buffer.relieves(from, priority) {
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
        egress.taken(channel, priority);
        let buffer = &mut managed.switches[switch as usize].buffer;
        let lossless = buffer.lossless().contains(priority);
        if !lossless {
            egress.lossy -= u64::from(frame_len);
        }
        let from = &mut managed.ingresses[ingress as usize];
        buffer.release(from, priority, frame_len);
        let left = channel.queue.bytes_in(priority);
        self.medium
            .observer
            .on_queue(self.medium.clock, ChannelId(out), priority, left);
        if lossless && from.off.contains(priority) && buffer.relieves(from, priority) {
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
