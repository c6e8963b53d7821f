//! A network in virtual time, seen from outside: building, running, looking.

use super::counters::ChannelCounters;
use super::deadlock::PauseLog;
use super::faults::{Fault, FaultCounts, FaultError, FaultLog};
use super::forwarding::Forwarding;
use super::host::Host;
use super::link::{Channel, ChannelId, Direction, End};
use super::losses::Loss;
use super::managed::Managed;
use super::medium::Medium;
use super::multicast::Tree;
use super::observer::Observer;
use super::pipeline::Pipeline;
use super::pool::{PayloadMode, PayloadPool};
use super::queue::OutputQueue;
use super::routing::{Flows, shortest_paths};
use super::topology::{HostId, HostNode, Topology, TopologyError};
use crate::random::Stream;
use crate::time::{Span, Time};
use crate::wire::{Gid, QpNumber, RouteTable};

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
    pub(super) handled: u64,
    /// The number of the last event if it was a timer that found nothing to do, and when something was
    /// done before it.
    pub(super) idle: (u64, Time),
    pub(super) channels: Vec<Channel>,
    pub(super) forwarding: Forwarding,
    pub(super) managed: Managed,
    pub(super) pause_log: PauseLog,
    pub(super) hosts: Vec<Station<H>>,
    pub(super) medium: Medium<O>,
    /// The channels by which copies of a packet leave a switch.
    pub(super) outs: Vec<u32>,
    /// By switch: the channels that leave it.
    pub(super) exits: Vec<Vec<u32>>,
    topology: Topology,
    seed: u64,
}

/// A host and what the network keeps for it.
#[derive(Debug)]
pub(super) struct Station<H> {
    pub(super) host: H,
    /// The channel it sends on.
    pub(super) uplink: u32,
    /// Its timer events, the first one last. A deadline that moves away leaves the event where it is;
    /// one that comes nearer adds an event.
    pub(super) timers: Vec<Time>,
    /// What its packets pass before it sees them.
    pub(super) pipeline: Option<Box<Pipeline>>,
}

impl<H: Host, O: Observer> Network<H, O> {
    /// Builds a network; `host` makes the machine at each host's port.
    ///
    /// # Errors
    ///
    /// [`TopologyError::NoLink`] if a host has no link, [`TopologyError::Switch`] if a switch cannot be.
    pub fn new(
        topology: &Topology,
        config: Config,
        observer: O,
        mut host: impl FnMut(HostId, &HostNode) -> H,
    ) -> Result<Network<H, O>, TopologyError> {
        let mut channels = Vec::new();
        let mut exits = vec![Vec::new(); topology.switches().len()];
        let mut reach = Span::ZERO;
        for (i, link) in topology.links().iter().enumerate() {
            for direction in [Direction::Forward, Direction::Backward] {
                let (from, to) = topology.ends(ChannelId::new(i, direction));
                let queue = OutputQueue::new(match from {
                    // What a host has to send waits in its card.
                    End::Host(_) => 0,
                    End::Switch(s) => topology.switches()[s as usize].spec.port_buffer,
                });
                let mut channel = Channel::new(&link.spec, queue, from, to);
                if let End::Switch(s) = from {
                    exits[s as usize].push(channels.len() as u32);
                    let spec = &topology.switches()[s as usize].spec;
                    channel.managed = !spec.is_plain();
                    channel.sorted = spec.classes.is_some() || spec.weights != [0; 8];
                    for (ecn, priority) in spec.ecn.iter().zip(0..) {
                        if let Some(ecn) = ecn {
                            channel.queue.set_unmarked(priority, ecn.kmin);
                        }
                    }
                }
                channels.push(channel);
            }
            let longest = link.spec.rate.span(u64::from(link.spec.mtu) + 64);
            reach = reach.max(link.spec.delay + longest);
        }
        // A few long links must not make the slots of all others coarse.
        let reach = reach.min(Span::from_us(8));
        let mut hosts = Vec::new();
        for (i, node) in topology.hosts().iter().enumerate() {
            let uplink = node
                .uplink()
                .ok_or_else(|| TopologyError::NoLink(node.name.clone()))?;
            hosts.push(Station {
                host: host(HostId::new(i), node),
                uplink: uplink.0,
                timers: Vec::new(),
                pipeline: None,
            });
        }
        let flows = Flows::new(topology, config.routes);
        let medium = Medium::new(channels.len(), reach, flows, config.payload, observer);
        let mut network = Network {
            handled: 0,
            idle: (0, Time::ZERO),
            channels,
            forwarding: Forwarding::new(
                &shortest_paths(topology, |_| true),
                Tree::new(topology, |_| true),
                topology.switches().iter().map(|s| s.name.as_str()),
                topology.links().len(),
                config.seed,
            ),
            managed: Managed::new(topology, config.seed)?,
            pause_log: PauseLog::default(),
            hosts,
            medium,
            outs: Vec::new(),
            exits,
            topology: topology.clone(),
            seed: config.seed,
        };
        for h in 0..network.hosts.len() {
            network.ask_host(h as u32);
        }
        Ok(network)
    }

    /// Adds a fault injector to a channel and gives its position among those of the channel.
    ///
    /// # Errors
    ///
    /// If the fault makes no sense or there is no such channel.
    pub fn inject(&mut self, channel: ChannelId, fault: Fault) -> Result<usize, FaultError> {
        let position = self.medium.injectors.get(channel.index());
        let position = position.map_or(0, |injectors| injectors.len());
        self.inject_named(channel, &position.to_string(), fault)
    }

    /// As [`Network::inject`], with a name for the injector's random stream in place of its position, so
    /// that one more in front of it changes none of its draws.
    ///
    /// # Errors
    ///
    /// If the fault makes no sense or there is no such channel.
    pub fn inject_named(
        &mut self,
        channel: ChannelId,
        name: &str,
        fault: Fault,
    ) -> Result<usize, FaultError> {
        fault.check()?;
        let channels = self.channels.len();
        let Some(injectors) = self.medium.injectors.get_mut(channel.index()) else {
            return Err(FaultError::UnknownChannel {
                channel: channel.index(),
                channels,
            });
        };
        let (link, direction) = self.topology.channel_name(channel);
        let stream = Stream::new(self.seed, &format!("fault {link} {direction} {name}"));
        self.channels[channel.index()].faulty = true;
        Ok(injectors.add(fault, stream))
    }

    /// What the fault at `position` of a channel has done; `None` if there is none.
    pub fn fault_counts(&self, channel: ChannelId, position: usize) -> Option<FaultCounts> {
        self.medium.injectors.get(channel.index())?.counts(position)
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.medium.clock
    }

    /// When something happens next; `None` if nothing will.
    pub fn next_event(&self) -> Option<Time> {
        self.medium.events.next_time()
    }

    /// Handles all events up to and with `until`, which then is the present.
    pub fn run_until(&mut self, until: Time) {
        self.work(until, u64::MAX);
        self.medium.clock = self.medium.clock.max(until);
    }

    /// Makes `at`, a time before the next event, the present for whoever looks, and gives what was: to be set again
    /// before the network goes on, so that looking changes nothing.
    pub fn set_present(&mut self, at: Time) -> Time {
        std::mem::replace(&mut self.medium.clock, at)
    }

    /// Handles events until none is left or the next lies after `limit`; true if none is left.
    pub fn run_until_idle(&mut self, limit: Time) -> bool {
        self.work(limit, u64::MAX);
        self.next_event().is_none()
    }

    /// Handles at most `most` events up to and with `limit` and gives how many it handled: fewer than
    /// `most` if no more are left until then. The present is that of the last one.
    pub fn run_events(&mut self, limit: Time, most: u64) -> u64 {
        self.work(limit, most)
    }

    /// Handles one event; false if there is none.
    pub fn step(&mut self) -> bool {
        self.work(Time::NEVER, 1) != 0
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
        self.ask_host(host.0);
    }

    /// What the network was built from.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What has happened on a channel.
    pub fn counters(&self, channel: ChannelId) -> &ChannelCounters {
        &self.channels[channel.index()].counters
    }

    /// How long a channel was paused up to now, by priority: what its counters have, and the pauses that
    /// go on.
    pub fn paused(&self, channel: ChannelId) -> [Span; 8] {
        let c = &self.channels[channel.index()];
        std::array::from_fn(|p| {
            let before = c.counters.by_priority[p].paused;
            match self.managed.gates.get(channel.index()) {
                Some(gate) if !c.unpaused.contains(p as u8) => {
                    before + self.medium.clock.since(gate.since(p as u8))
                }
                _ => before,
            }
        })
    }

    /// Bytes that wait in the queue in front of a channel.
    pub fn queued_bytes(&self, channel: ChannelId) -> u64 {
        self.channels[channel.index()].queue.bytes()
    }

    /// True if a channel may not begin a frame in a priority (0 to 7) now.
    pub fn is_paused(&self, channel: ChannelId, priority: u8) -> bool {
        !self.channels[channel.index()].ready().contains(priority)
    }

    /// Bytes of a priority (0 to 7) that came in by a channel and wait at the switch at its end, if that
    /// has more than tail drop.
    pub fn waiting_from(&self, channel: ChannelId, priority: u8) -> u64 {
        let ingress = self.managed.ingresses.get(channel.index());
        ingress.map_or(0, |i| i.waiting(priority))
    }

    /// Bytes of the pool that the ports of a switch, by its position in the topology, share, in use now.
    pub fn pool_used(&self, switch: usize) -> u64 {
        let node = self.managed.switches.get(switch);
        node.map_or(0, |s| s.buffer.used())
    }

    /// From which all random streams spring.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Events handled so far.
    pub fn event_count(&self) -> u64 {
        self.handled
    }

    /// Packets that have left their sender's card and have been neither delivered nor dropped.
    pub fn in_flight(&self) -> usize {
        self.medium.packets.live()
    }

    /// Where payloads live.
    pub fn pool(&self) -> &PayloadPool {
        &self.medium.pool
    }

    /// The packets that faults hit.
    pub fn fault_log(&self) -> &FaultLog {
        &self.medium.fault_log
    }

    /// The latest losses of what `from` sent to a queue pair, in order.
    pub fn losses(&self, from: Gid, to: (Gid, QpNumber)) -> Vec<Loss> {
        let routes = self.medium.flows.routes();
        let mut all: Vec<_> = self.medium.losses.of(routes, from, to).copied().collect();
        all.sort_by_key(|loss| loss.time);
        all
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.medium.observer
    }

    /// The observer, to be changed.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.medium.observer
    }

    /// The observer and the hosts, the network gone.
    pub fn into_parts(self) -> (O, Vec<H>) {
        (
            self.medium.observer,
            self.hosts.into_iter().map(|s| s.host).collect(),
        )
    }
}
