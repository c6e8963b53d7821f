//! What all channels and hosts share: the clock, what happens next, the packets and their payloads.

use super::counters::DropCause;
use super::events::EventQueue;
use super::faults::FaultLog;
use super::link::{Channel, ChannelId};
use super::losses::{LossLog, Why};
use super::observer::{Observer, Sight};
use super::packets::Packets;
use super::pausing::Order;
use super::pool::{PayloadMode, PayloadPool};
use super::routing::Flows;
use super::topology::HostId;
use crate::card::{Deed, Env};
use crate::faults::Injectors;
use crate::time::{Span, Time};
use crate::wire::Payload;

/// What all channels and hosts share.
#[derive(Debug)]
pub(super) struct Medium<O> {
    pub(super) clock: Time,
    pub(super) events: EventQueue,
    /// By source, beyond those of the channels.
    others: Vec<Other>,
    /// Sources of others that have had their event.
    spare: Vec<u32>,
    /// The first source of others.
    first_other: u32,
    pub(super) packets: Packets,
    pub(super) flows: Flows,
    pub(super) pool: PayloadPool,
    /// By channel.
    pub(super) injectors: Vec<Injectors>,
    pub(super) fault_log: FaultLog,
    pub(super) losses: LossLog,
    pub(super) observer: O,
}

/// The number of an event's source: two for each channel, then one for each other thing that goes on.
pub(super) struct Source;

impl Source {
    /// The first packet on a channel's way has arrived.
    #[inline]
    pub(super) const fn arrival(channel: u32) -> u32 {
        channel * 2
    }

    /// A channel is free, and something waits for it.
    #[inline]
    pub(super) const fn wake(channel: u32) -> u32 {
        channel * 2 + 1
    }
}

/// Something else that goes on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Other {
    /// A host's deadline.
    Timer(u32),
    /// A packet that a fault delayed arrives on a channel.
    Late {
        /// Where.
        channel: u32,
        /// Which one.
        slot: u32,
        /// How often the link had gone down when it was sent.
        flaps: u32,
    },
    /// A packet held back on a channel has waited for as long as it may.
    Overdue(u32),
    /// A PFC frame has come to the sender on a channel.
    Pfc {
        /// Where.
        channel: u32,
        /// What it says.
        order: Order,
    },
    /// What a PFC frame said takes effect on a channel.
    Pause {
        /// Where.
        channel: u32,
        /// What it said.
        order: Order,
    },
    /// A pause of a channel runs out.
    PauseEnd {
        /// Where.
        channel: u32,
        /// In which priority.
        priority: u8,
        /// It has let pass what else happens at its time.
        last: bool,
    },
    /// Pauses of the sender on a channel must be asked for again.
    Refresh(u32),
    /// A watchdog looks whether a channel is stuck.
    Watch {
        /// Which.
        channel: u32,
        /// In which priority.
        priority: u8,
    },
    /// A watchdog looks whether a channel can be trusted again.
    Restore {
        /// Which.
        channel: u32,
        /// In which priority.
        priority: u8,
    },
    /// A packet has passed the receive pipeline of a host.
    Served(u32),
    /// The receive pipeline of a host stops, or its card notices that.
    Stall(u32),
    /// A link goes down or comes up.
    Link {
        /// Position in the topology.
        link: u32,
        /// Up.
        up: bool,
        /// After how long routes take note of it.
        reroute: Span,
    },
    /// Routes take note of what became of a link.
    Reroute {
        /// Position in the topology.
        link: u32,
        /// How often it had gone down.
        flaps: u32,
        /// It was up.
        up: bool,
    },
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
    /// A medium for `channels` channels; nothing is to lie further ahead than `reach`, but may.
    pub(super) fn new(
        channels: usize,
        reach: Span,
        flows: Flows,
        payload: PayloadMode,
        observer: O,
    ) -> Medium<O> {
        let first_other = channels as u32 * 2;
        Medium {
            clock: Time::ZERO,
            events: EventQueue::new(reach.as_ps(), first_other as usize),
            others: Vec::new(),
            spare: Vec::new(),
            first_other,
            packets: Packets::new(),
            flows,
            pool: PayloadPool::new(payload),
            injectors: vec![Injectors::default(); channels],
            fault_log: FaultLog::default(),
            losses: LossLog::default(),
            observer,
        }
    }

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
            self.events.push(arrival, Source::arrival(id));
        }
        channel.flying.push(&mut self.packets, slot, arrival);
    }

    /// Wakes whoever sends on a channel when it is free: a switch port or a host.
    #[inline(always)]
    pub(super) fn wake(&mut self, channel: &mut Channel, id: u32) {
        debug_assert!(channel.free_at() >= self.clock, "a wake-up in the past");
        channel.awaited = true;
        self.events.push(channel.free_at(), Source::wake(id));
    }

    /// Has something else happen at `time`; what lies more than 2^63 ps (106 days) ahead never happens.
    pub(super) fn plan(&mut self, time: Time, other: Other) {
        if time.as_ps() >> 63 != 0 {
            return;
        }
        let source = self.spare.pop().unwrap_or_else(|| {
            self.others.push(other);
            self.events.add_source()
        });
        self.others[(source - self.first_other) as usize] = other;
        self.events.push(time, source);
    }

    /// What has happened at `source`.
    pub(super) fn other(&mut self, source: u32) -> Other {
        self.spare.push(source);
        self.others[(source - self.first_other) as usize]
    }

    /// Drops a packet.
    #[cold]
    pub(super) fn discard(&mut self, channel: &mut Channel, id: u32, slot: u32, cause: DropCause) {
        self.lose(channel, id, slot, cause, None);
    }

    /// Drops a packet, for a fault among others.
    #[cold]
    pub(super) fn lose(
        &mut self,
        channel: &mut Channel,
        id: u32,
        slot: u32,
        cause: DropCause,
        fault: Option<usize>,
    ) {
        let packet = self.packets.get(slot);
        let damaged = self.injectors[id as usize].take_damaged(slot);
        let fault = match cause {
            DropCause::BadFcs => damaged,
            _ => fault,
        };
        self.losses.add(
            self.clock,
            ChannelId(id),
            Why::Dropped(cause),
            fault,
            packet,
        );
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
