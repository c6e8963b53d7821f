//! Plain counters, always on.

use crate::time::Span;
use std::fmt;

/// Why the network dropped a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropCause {
    /// The queue of the switch port it was to leave by was full.
    QueueFull,
    /// It was longer than the MTU of the link it was to leave by.
    TooLong,
    /// Its hop limit ran out.
    HopLimit,
    /// No host has its destination address, or none that can be reached.
    NoRoute,
    /// Its FCS was wrong.
    BadFcs,
    /// A fault injector dropped it.
    Fault,
    /// The buffer that the ports of a switch share was full.
    BufferFull,
    /// It was of a lossless priority, and the headroom of the port it came in by was full.
    HeadroomFull,
    /// The link it was on, or was to leave by, went down.
    LinkDown,
    /// The watchdog of a switch took the port it was to leave by for stuck.
    Watchdog,
    /// The receive pipeline of the host it was for was full.
    ReceiverFull,
}

impl DropCause {
    /// All causes, in the order of [`ChannelCounters`].
    pub const ALL: [DropCause; 11] = [
        DropCause::QueueFull,
        DropCause::TooLong,
        DropCause::HopLimit,
        DropCause::NoRoute,
        DropCause::BadFcs,
        DropCause::Fault,
        DropCause::BufferFull,
        DropCause::HeadroomFull,
        DropCause::LinkDown,
        DropCause::Watchdog,
        DropCause::ReceiverFull,
    ];
}

/// `queue full`, `too long`, ...
impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DropCause::QueueFull => "queue full",
            DropCause::TooLong => "too long",
            DropCause::HopLimit => "hop limit",
            DropCause::NoRoute => "no route",
            DropCause::BadFcs => "bad FCS",
            DropCause::Fault => "fault",
            DropCause::BufferFull => "buffer full",
            DropCause::HeadroomFull => "headroom full",
            DropCause::LinkDown => "link down",
            DropCause::Watchdog => "watchdog",
            DropCause::ReceiverFull => "receiver full",
        })
    }
}

/// What has happened on one channel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct ChannelCounters {
    /// Frames transmitted, those included that a fault then dropped, and PFC frames.
    pub frames: u64,
    /// Their bytes, from destination address to FCS.
    pub bytes: u64,
    /// The most bytes that waited in the queue in front of it; 0 at a host, where nothing waits.
    pub queue_high_water: u64,
    /// Copies that faults added, or a switch that floods what comes in by it or copies it to members of a group.
    pub duplicates: u64,
    pub(super) drops: [u64; DropCause::ALL.len()],
    /// PFC frames among [`ChannelCounters::frames`].
    pub pfc_frames: u64,
    /// What only some switches and their links do.
    pub by_priority: [PriorityCounters; 8],
}

/// What has happened on one channel in one priority. A switch with nothing but tail drop keeps no count
/// of queues by priority.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PriorityCounters {
    /// Pauses asked for on this channel, each repetition counted: they pause the other direction.
    pub pauses_sent: u64,
    /// Ends of pauses asked for on this channel.
    pub resumes_sent: u64,
    /// Pauses that took effect on this channel, repetitions included.
    pub pauses_received: u64,
    /// Ends of pauses that took effect on this channel.
    pub resumes_received: u64,
    /// How long this channel was paused, up to the end of the last pause.
    pub paused: Span,
    /// How often a watchdog took this channel for stuck.
    pub storms: u64,
    /// Packets marked before they were sent on this channel.
    pub marks: u64,
    /// Packets that would have been marked were they ECN capable.
    pub not_capable: u64,
    /// The most bytes that waited in front of this channel.
    pub queue_high_water: u64,
}

impl ChannelCounters {
    /// Packets dropped for `cause`: before the channel (queue full, too long, watchdog), on it (fault),
    /// at its end (bad FCS, hop limit, no route, buffer full, headroom full, receiver full), or before or
    /// on it (link down).
    pub fn drops(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize]
    }

    /// Packets dropped for any cause.
    pub fn all_drops(&self) -> u64 {
        self.drops.iter().sum()
    }
}
