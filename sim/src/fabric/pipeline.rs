//! The receive pipeline of a host's card: packets wait in it for what the card must look up, and when
//! too much waits, the host pauses whoever sends to it.
//!
//! A slow one is the slow receiver, a dead one the pause storm of "RDMA over Commodity Ethernet at
//! Scale" (Guo et al., SIGCOMM 2016).

use super::counters::DropCause;
use super::host::Host;
use super::link::{ChannelId, Rate};
use super::managed::Managed;
use super::medium::Other;
use super::network::Network;
use super::observer::Observer;
use super::packets::Row;
use super::pausing::{Pauser, priorities};
use super::pfc::{PfcSpec, Threshold};
use super::topology::{HostId, TopologyError};
use crate::card::PriorityMask;
use crate::random::{Probability, Stream};
use crate::time::{Span, Time};

/// How the receive pipeline of a host works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveSpec {
    /// Bytes of frames it holds; what comes beyond that is dropped.
    pub buffer: u64,
    /// When more than this waits, the priorities are paused.
    pub xoff: u64,
    /// When no more than this waits, they may go on.
    pub xon: u64,
    /// The priorities that are paused.
    pub priorities: PriorityMask,
    /// How long a packet takes.
    pub service: Service,
    /// From here on no packet comes out any more, and the pauses do not end.
    pub stops: Option<Time>,
    /// How long after that the card notices and stops pausing; `None` for never.
    pub watchdog: Option<Span>,
}

impl ReceiveSpec {
    /// A pipeline of 512 KiB that pauses priority 3 at half of that, and whose card takes 100 ms to
    /// notice that it has stopped.
    pub const fn new(service: Service) -> ReceiveSpec {
        ReceiveSpec {
            buffer: 512 << 10,
            xoff: 256 << 10,
            xon: 248 << 10,
            priorities: PriorityMask(1 << 3),
            service,
            stops: None,
            watchdog: Some(Span::from_ms(100)),
        }
    }
}

/// How long a packet takes to pass the pipeline, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Its frame at so many bits per second.
    Rate(Rate),
    /// A fixed time, and more if its address must be fetched.
    Translation {
        /// What every packet takes.
        hit: Span,
        /// What a miss takes beyond that.
        miss: Span,
        /// How often there is a miss.
        misses: Probability,
    },
}

/// The pipeline of one host.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    spec: ReceiveSpec,
    row: Row,
    bytes: u64,
    most: u64,
    misses: u64,
    busy: bool,
    /// Nothing comes out any more.
    dead: bool,
    /// The card has noticed: no pauses.
    silent: bool,
    random: Stream,
}

impl Pipeline {
    /// True if nothing comes out any more.
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// How long the next packet takes.
    fn service(&mut self, frame_len: u16) -> Span {
        match self.spec.service {
            Service::Rate(rate) => rate.span(frame_len.into()),
            Service::Translation { hit, miss, misses } => {
                if self.random.chance(misses) {
                    self.misses += 1;
                    return hit + miss;
                }
                hit
            }
        }
    }
}

/// What a receive pipeline has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PipelineCounters {
    /// Bytes that wait in it.
    pub bytes: u64,
    /// The most that ever waited.
    pub high_water: u64,
    /// Packets whose address had to be fetched.
    pub misses: u64,
}

impl<H: Host, O: Observer> Network<H, O> {
    /// Gives a host a receive pipeline, before anything has been sent.
    ///
    /// # Errors
    ///
    /// [`TopologyError::Receiver`] if its thresholds are not in order.
    pub fn set_receiver(&mut self, host: HostId, spec: ReceiveSpec) -> Result<(), TopologyError> {
        if spec.xon > spec.xoff || spec.xoff > spec.buffer {
            return Err(TopologyError::Receiver {
                host: self.topology().hosts()[host.index()].name.clone(),
                xon: spec.xon,
                xoff: spec.xoff,
                buffer: spec.buffer,
            });
        }
        let name = self.topology().hosts()[host.index()].name.clone();
        if self.managed.gates.is_empty() {
            self.managed = Managed::for_all(self.topology(), self.seed())?;
        }
        let downlink = ChannelId(self.hosts[host.index()].uplink).reverse();
        let link = self.topology().links()[downlink.link()].spec;
        let pfc = PfcSpec::new(spec.priorities, Threshold::Static(spec.xoff));
        self.managed.pausers[downlink.index()] = Pauser::new(Some(pfc), &link);
        let random = Stream::new(self.seed(), &format!("receiver {name}"));
        self.hosts[host.index()].pipeline = Some(Box::new(Pipeline {
            spec,
            row: Row::EMPTY,
            bytes: 0,
            most: 0,
            misses: 0,
            busy: false,
            dead: false,
            silent: false,
            random,
        }));
        if let Some(stops) = spec.stops {
            let stops = stops.max(self.now());
            self.medium.plan(stops, Other::Stall(host.0));
        }
        Ok(())
    }

    /// What the receive pipeline of a host has done; `None` if it has none.
    pub fn pipeline(&self, host: HostId) -> Option<PipelineCounters> {
        let p = self.hosts[host.index()].pipeline.as_ref()?;
        Some(PipelineCounters {
            bytes: p.bytes,
            high_water: p.most,
            misses: p.misses,
        })
    }

    /// A packet comes into the pipeline of its host.
    #[cold]
    pub(super) fn take_in(&mut self, channel: u32, host: u32, slot: u32) {
        let Some(p) = &mut self.hosts[host as usize].pipeline else {
            return;
        };
        let len = u64::from(self.medium.packets.get(slot).frame_len);
        if p.bytes + len > p.spec.buffer {
            // Not if it is empty, for then nobody would ever be let go again.
            if p.bytes > 0 && !p.silent {
                self.hold_senders(host);
            }
            return self.discard(channel, slot, DropCause::ReceiverFull);
        }
        p.bytes += len;
        p.most = p.most.max(p.bytes);
        p.row.push(&mut self.medium.packets, slot, Time::ZERO);
        let over = p.bytes > p.spec.xoff && !p.silent;
        self.next_service(host);
        if over {
            self.hold_senders(host);
        }
    }

    /// Begins with the next packet, unless one is being worked at.
    fn next_service(&mut self, host: u32) {
        let Some(p) = &mut self.hosts[host as usize].pipeline else {
            return;
        };
        if p.busy || p.dead || p.row.is_empty() {
            return;
        }
        p.busy = true;
        let frame_len = self.medium.packets.get(p.row.first()).frame_len;
        let done = self.medium.clock + p.service(frame_len);
        self.medium.plan(done, Other::Served(host));
    }

    /// A packet has passed the pipeline; false if that has stopped.
    pub(super) fn served(&mut self, host: u32) -> bool {
        let station = &mut self.hosts[host as usize];
        let Some(p) = &mut station.pipeline else {
            return false;
        };
        p.busy = false;
        if p.dead {
            return false;
        }
        let downlink = station.uplink ^ 1;
        let (slot, _) = p.row.pop(&self.medium.packets);
        p.bytes -= u64::from(self.medium.packets.get(slot).frame_len);
        if p.bytes <= p.spec.xon {
            let off = self.managed.ingresses[downlink as usize].off;
            for priority in priorities(off) {
                self.release(downlink, priority);
            }
        }
        self.next_service(host);
        // Out of the way, so that the packet comes to the host itself.
        let pipeline = self.hosts[host as usize].pipeline.take();
        self.come_in(downlink, slot);
        self.hosts[host as usize].pipeline = pipeline;
        true
    }

    /// Pauses whoever sends to a host, in the priorities that are not yet.
    fn hold_senders(&mut self, host: u32) {
        let station = &self.hosts[host as usize];
        let Some(p) = &station.pipeline else {
            return;
        };
        let downlink = station.uplink ^ 1;
        let off = self.managed.ingresses[downlink as usize].off;
        for priority in priorities(p.spec.priorities) {
            if !off.contains(priority) {
                self.stop(downlink, priority, None);
            }
        }
    }

    /// The link of a host has come up: one whose pipeline has stopped, or is too full, says so again, because
    /// nobody is paused.
    pub(super) fn hold_again(&mut self, host: u32) {
        let station = &self.hosts[host as usize];
        if let Some(p) = &station.pipeline
            && (p.dead || p.bytes > p.spec.xoff)
            && !p.silent
        {
            // What it asked for while the link was down came to nobody.
            let downlink = station.uplink ^ 1;
            self.managed.ingresses[downlink as usize].off = PriorityMask::NONE;
            self.hold_senders(host);
        }
    }

    /// The pipeline of a host stops.
    pub(super) fn stall(&mut self, host: u32) {
        let now = self.medium.clock;
        let Some(p) = &mut self.hosts[host as usize].pipeline else {
            return;
        };
        if p.dead {
            // The card notices.
            p.silent = true;
            let downlink = self.hosts[host as usize].uplink ^ 1;
            for priority in priorities(self.managed.ingresses[downlink as usize].off) {
                self.release(downlink, priority);
            }
            return;
        }
        p.dead = true;
        if let Some(watchdog) = p.spec.watchdog {
            self.medium.plan(now + watchdog, Other::Stall(host));
        }
        self.hold_senders(host);
    }
}
