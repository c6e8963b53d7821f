//! Links: two channels each, one per direction.

use super::counters::ChannelCounters;
use super::packets::Row;
use super::pfc::response_quanta;
use super::queue::OutputQueue;
use crate::card::PriorityMask;
use crate::rate::PS_TIMES_BITS;
use crate::time::{Span, Time};
use crate::wire::MacAddr;
use std::fmt;

pub use crate::rate::Rate;
pub use crate::wire::{FRAME_OVERHEAD, MIN_FRAME};

/// What a link is like, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSpec {
    /// Bits per second in each direction.
    pub rate: Rate,
    /// Time a bit is on the way.
    pub delay: Span,
    /// The largest IP packet (or RoCEv1 GRH packet) in bytes; a longer one is dropped at the sender's
    /// port. Ethernet header, VLAN tag and FCS do not count.
    pub mtu: u16,
    /// How long a port at either end takes from the end of a PFC frame until it does what that says, in the time
    /// of 512 bits each; `None` for what the standard allows it, see [`response_quanta`].
    pub pfc_response: Option<u32>,
}

impl LinkSpec {
    /// A link with an MTU of 9000.
    pub const fn new(rate: Rate, delay: Span) -> LinkSpec {
        LinkSpec {
            rate,
            delay,
            mtu: 9000,
            pfc_response: None,
        }
    }

    /// How long a port takes to stop, in the time of 512 bits each.
    pub fn response_quanta(&self) -> u32 {
        let rate = self.rate;
        self.pfc_response.unwrap_or_else(|| response_quanta(rate))
    }

    /// Bytes of the longest frame, with a VLAN tag, without preamble and gap.
    pub fn longest_frame(&self) -> u64 {
        u64::from(self.mtu) + 22
    }

    /// With another MTU.
    #[must_use]
    pub const fn with_mtu(mut self, mtu: u16) -> LinkSpec {
        self.mtu = mtu;
        self
    }
}

/// A way along a link, by the order in which its ends were named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the first end to the second.
    Forward,
    /// From the second end to the first.
    Backward,
}

/// `forward` or `backward`.
impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Forward => "forward",
            Direction::Backward => "backward",
        })
    }
}

/// One direction of one link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId(pub(super) u32);

impl ChannelId {
    /// The channel of the `link`-th link of a topology in direction `direction`.
    pub const fn new(link: usize, direction: Direction) -> ChannelId {
        ChannelId(link as u32 * 2 + direction as u32)
    }

    /// Position among the channels of a network: 0, 1, 2, ...
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Position of its link in the topology.
    pub const fn link(self) -> usize {
        self.0 as usize / 2
    }

    /// Which way it goes.
    pub const fn direction(self) -> Direction {
        if self.0.is_multiple_of(2) {
            Direction::Forward
        } else {
            Direction::Backward
        }
    }

    /// The Ethernet address of the switch port that sends on it, locally administered.
    pub(super) const fn port_address(self) -> MacAddr {
        let [a, b, c, d] = self.0.to_be_bytes();
        MacAddr([2, 1, a, b, c, d])
    }

    /// The other direction of the same link.
    #[must_use]
    pub const fn reverse(self) -> ChannelId {
        ChannelId(self.0 ^ 1)
    }
}

/// What a channel begins or ends at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Host(u32),
    Switch(u32),
}

/// One direction of a link while the network runs. What every packet needs stands in front, in one
/// cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Channel {
    /// When the transmitter has sent what it has.
    free_at: Time,
    /// Whole picoseconds per byte, and what is left over in units of 1 / rate picoseconds.
    whole: u64,
    rest: u64,
    delay: Span,
    /// Packets on the way, in the order they arrive.
    pub(super) flying: Row,
    pub(super) from: End,
    pub(super) to: End,
    /// The longest frame without a VLAN tag.
    pub(super) max_frame: u16,
    /// A wake-up for the transmitter is among the events.
    pub(super) awaited: bool,
    /// There are fault injectors.
    pub(super) faulty: bool,
    /// The priorities that are not paused.
    pub(super) unpaused: PriorityMask,
    /// It leaves a switch that has more than tail drop.
    pub(super) managed: bool,
    /// A PFC frame waits for it, and goes first; then it is awaited.
    pub(super) urgent: bool,
    /// It leaves a switch with classes of its own, or whose ports are shared by weights.
    pub(super) sorted: bool,
    /// What waits for it at a switch.
    pub(super) queue: OutputQueue,
    pub(super) counters: ChannelCounters,
    /// How many have taken the link down and not up again.
    pub(super) downs: u32,
    /// How often it has gone down.
    pub(super) flaps: u32,
    /// What has not come in by then was on the link when it last went down.
    pub(super) cut: Time,
    /// What `free_at` lacks to the exact instant, in units of 1 / rate picoseconds.
    carry: u64,
    rate: u64,
}

impl Channel {
    pub(super) fn new(spec: &LinkSpec, queue: OutputQueue, from: End, to: End) -> Channel {
        let rate = spec.rate.bps();
        Channel {
            free_at: Time::ZERO,
            carry: 0,
            whole: PS_TIMES_BITS / rate,
            rest: PS_TIMES_BITS % rate,
            rate,
            // So far off that it never ends, but no sum overflows.
            delay: spec.delay.min(Span::from_ps(1 << 62)),
            flying: Row::EMPTY,
            max_frame: spec.mtu.saturating_add(18),
            awaited: false,
            faulty: false,
            unpaused: PriorityMask::ALL,
            managed: false,
            urgent: false,
            sorted: false,
            from,
            to,
            queue,
            counters: ChannelCounters::default(),
            downs: 0,
            flaps: 0,
            cut: Time::ZERO,
        }
    }

    /// True if the link is down.
    #[inline]
    pub(super) fn is_down(&self) -> bool {
        self.downs > 0
    }

    /// True if a frame may start now.
    #[inline]
    pub(super) fn is_free(&self, now: Time) -> bool {
        self.free_at <= now
    }

    /// What waits for it and may be sent.
    #[inline]
    pub(super) fn sendable(&self) -> PriorityMask {
        self.queue.waiting().and(self.ready())
    }

    /// True if a packet of a priority need not wait.
    #[inline(always)]
    pub(super) fn takes(&self, now: Time, priority: u8) -> bool {
        self.is_free(now)
            && self.sendable().is_empty()
            && self.ready().contains(priority)
            && !self.urgent
    }

    /// When the next frame may start.
    #[inline]
    pub(super) fn free_at(&self) -> Time {
        self.free_at
    }

    /// When what was sent last arrives.
    pub(super) fn last_arrival(&self) -> Time {
        Time::from_ps(self.free_at.as_ps() + self.delay.as_ps())
    }

    /// The priorities that may be sent. Whoever pulls, from a host or a queue, asks here.
    #[inline]
    pub(super) fn ready(&self) -> PriorityMask {
        self.unpaused
    }

    /// Puts a frame on the wire, which must be free, and gives its arrival: the instant when the whole
    /// of it, gap included, has reached the other end.
    #[inline(always)]
    pub(super) fn occupy(&mut self, now: Time, frame_len: u16) -> Time {
        let bytes = u64::from(frame_len.max(MIN_FRAME)) + u64::from(FRAME_OVERHEAD);
        let mut span = bytes * self.whole;
        if self.rest != 0 {
            // Frames back to back hand on the fraction of a picosecond, so that no error builds up.
            let carry = if self.free_at == now { self.carry } else { 0 };
            let rest = bytes * self.rest + carry;
            span += rest / self.rate;
            self.carry = rest % self.rate;
        }
        // Plain sums: saturating ones cost more than the rest, and 213 days are never reached.
        self.free_at = Time::from_ps(now.as_ps() + span);
        Time::from_ps(self.free_at.as_ps() + self.delay.as_ps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(bps: u64) -> Channel {
        let spec = LinkSpec::new(Rate::from_bps(bps).unwrap(), Span::from_us(1));
        Channel::new(&spec, OutputQueue::new(0), End::Host(0), End::Host(1))
    }

    #[test]
    fn bytes_last_as_long_as_the_rate_says() {
        for (gbps, ps_per_byte) in [
            (400, 20),
            (200, 40),
            (100, 80),
            (40, 200),
            (25, 320),
            (10, 800),
        ] {
            let mut c = channel(gbps * 1_000_000_000);
            // 1086 bytes of frame and 20 around it.
            let arrival = c.occupy(Time::ZERO, 1086);
            assert_eq!(c.free_at().as_ps(), 1106 * ps_per_byte);
            assert_eq!(arrival.as_ps(), 1106 * ps_per_byte + 1_000_000);
        }
    }

    #[test]
    fn short_frames_are_padded() {
        let mut c = channel(100_000_000_000);
        c.occupy(Time::ZERO, 62);
        assert_eq!(c.free_at().as_ps(), 84 * 80);
    }

    #[test]
    fn a_fraction_of_a_picosecond_per_byte_does_not_drift() {
        // 3 Gb/s: 2666 2/3 ps per byte; 7 Gb/s: 1142 6/7.
        for bps in [3_000_000_000, 7_000_000_000, 9_999_999_967] {
            let mut c = channel(bps);
            for n in 1..=10_000u64 {
                let now = c.free_at();
                c.occupy(now, 1086);
                assert_eq!(
                    c.free_at(),
                    Time::ZERO + Rate::from_bps(bps).unwrap().span(n * 1106)
                );
            }
        }
    }

    #[test]
    fn channels_name_link_and_direction() {
        let c = ChannelId::new(3, Direction::Backward);
        assert_eq!(
            (c.index(), c.link(), c.direction()),
            (7, 3, Direction::Backward)
        );
        assert_eq!(c.reverse(), ChannelId::new(3, Direction::Forward));
    }
}
