//! Priority-based flow control (IEEE 802.1Qbb): when a switch pauses who sends to it, and how much
//! room it needs for what still comes.

use super::link::{FRAME_OVERHEAD, LinkSpec, MIN_FRAME, Rate};
use super::switch::Ratio;
use super::watchdog::Watchdog;
use crate::card::PriorityMask;
use crate::time::Span;

/// PFC of a switch. What came in by a port in a priority and waits is counted; past the threshold the
/// sender is paused, and what comes all the same goes into the headroom of that port and priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PfcSpec {
    /// The lossless priorities. Pauses of others are not obeyed either.
    pub priorities: PriorityMask,
    /// How much may wait before the sender is paused.
    pub threshold: Threshold,
    /// How many bytes below the threshold it is let go again; if the threshold is less than that, when
    /// nothing waits. Who lost a frame for want of room is let go only with as many bytes of the pool free, or
    /// with the whole of it.
    pub resume: u64,
    /// Room for what comes after the pause was asked for.
    pub headroom: Headroom,
    /// How long a pause lasts if nothing more is said, from when its frame arrives, in the time of 512 bits
    /// each. One that is over before the port has had its time to stop pauses nobody.
    pub quanta: u16,
    /// After how long a pause is asked for again; `None` for half the time that a pause lasts.
    pub refresh: Option<Span>,
    /// What the switch does about ports that are paused for too long.
    pub watchdog: Option<Watchdog>,
}

impl PfcSpec {
    /// Two longest frames of 4 KiB below the threshold, headroom as needed, the longest pause, no
    /// watchdog.
    pub const fn new(priorities: PriorityMask, threshold: Threshold) -> PfcSpec {
        PfcSpec {
            priorities,
            threshold,
            resume: 8192,
            headroom: Headroom::Auto,
            quanta: u16::MAX,
            refresh: None,
            watchdog: None,
        }
    }

    /// How long a pause lasts on a link of rate `rate` if nothing more is said.
    pub fn pause(&self, rate: Rate) -> Span {
        rate.span(u64::from(self.quanta) * QUANTUM)
    }

    /// After how long a pause is asked for again on a link of rate `rate`; no less than a quantum, for a refresh
    /// in no time would leave no time for anything else.
    pub fn asked_again(&self, rate: Rate) -> Span {
        let half = rate.span(u64::from(self.quanta) * QUANTUM / 2);
        self.refresh.unwrap_or(half).max(rate.span(QUANTUM))
    }
}

/// How much may wait before the sender is paused, of what came in by one port in one priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threshold {
    /// So many bytes.
    Static(u64),
    /// A multiple (often called alpha) of what is free in the shared pool.
    Dynamic(Ratio),
}

/// Room for what comes after a pause was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headroom {
    /// By the arithmetic of [`headroom`] for the longest frames of the link, and one frame more: the
    /// one that crosses the threshold, if the pool has no room for it. It is not enough where packets are
    /// copied, by flooding or to groups: each copy that waits takes room of the port that the packet came by.
    Auto,
    /// So many bytes for each port and lossless priority.
    Bytes(u64),
}

/// Bytes of a PFC frame on the wire, preamble and gap included.
pub const PFC_WIRE: u64 = (MIN_FRAME + FRAME_OVERHEAD) as u64;

/// Bytes that a pause quantum takes at line rate: 512 bits.
pub const QUANTUM: u64 = 64;

/// How many quanta a port of rate `rate` may take from the end of a PFC frame until it has stopped
/// (IEEE 802.3 31B.3.7, as SONiC's headroom calculation has it); that of the next faster rate if the
/// standard has none for this one.
pub fn response_quanta(rate: Rate) -> u32 {
    const TABLE: [(u64, u32); 7] = [
        (10, 67),
        (25, 80),
        (40, 118),
        (50, 147),
        (100, 394),
        (200, 453),
        (400, 905),
    ];
    TABLE
        .iter()
        .find(|&&(gbps, _)| rate.bps() <= gbps * 1_000_000_000)
        .map_or(905, |&(_, quanta)| quanta)
}

/// The most bytes that can come in over `link` after a port has decided to pause its peer: what is on
/// the cable both ways, what the peer sends until it responds, a frame of `peer` bytes that it has just
/// begun by then, one of `own` bytes that was just begun in the way of the PFC frame, and that frame.
/// Where packets are copied to several ports, each copy counts: so many times as much may have to wait.
pub fn headroom(link: &LinkSpec, own: u64, peer: u64) -> u64 {
    let bits = 2 * u128::from(link.delay.as_ps()) * u128::from(link.rate.bps());
    let cable = bits.div_ceil(8_000_000_000_000);
    u64::try_from(cable)
        .unwrap_or(u64::MAX)
        .saturating_add(u64::from(link.response_quanta()) * QUANTUM + peer + own + PFC_WIRE)
}

impl Headroom {
    /// In bytes, for a port at the end of `link`.
    pub(super) fn bytes(self, link: &LinkSpec) -> u64 {
        match self {
            Headroom::Bytes(n) => n,
            Headroom::Auto => {
                let longest = link.longest_frame() + u64::from(FRAME_OVERHEAD);
                headroom(link, longest, longest).saturating_add(longest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headroom_is_cable_response_two_frames_and_the_pause() {
        // Rate in Gb/s, cable in m at 5 ns each, MTU, bytes.
        for (gbps, metres, mtu, expected) in [
            (40, 100, 1500, 15_636),
            (40, 300, 1500, 25_636),
            (100, 5, 4096, 34_117),
            (100, 100, 4096, 45_992),
            (400, 5, 4096, 68_696),
            (400, 100, 4096, 116_196),
        ] {
            let link = LinkSpec::new(Rate::from_gbps(gbps), Span::from_ns(5 * metres));
            assert_eq!(headroom(&link, mtu, mtu), expected, "{gbps} {metres}");
        }
        // DCQCN's 22.4 KB, for 40 Gb/s and frames of 1500 bytes, is enough for 100 m, and for no
        // more than 235 m.
        let link = |metres: u64| LinkSpec::new(Rate::from_gbps(40), Span::from_ns(5 * metres));
        assert!(headroom(&link(235), 1500, 1500) <= 22_400);
        assert!(headroom(&link(236), 1500, 1500) > 22_400);
    }

    #[test]
    fn a_rate_without_a_response_time_has_that_of_the_next_faster() {
        for (gbps, quanta) in [
            (1, 67),
            (10, 67),
            (11, 80),
            (100, 394),
            (800, 905),
            (1600, 905),
        ] {
            assert_eq!(response_quanta(Rate::from_gbps(gbps)), quanta);
        }
    }
}
