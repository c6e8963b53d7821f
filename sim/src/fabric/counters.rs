//! Plain counters, always on.

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
}

impl DropCause {
    /// All causes, in the order of [`ChannelCounters`].
    pub const ALL: [DropCause; 6] = [
        DropCause::QueueFull,
        DropCause::TooLong,
        DropCause::HopLimit,
        DropCause::NoRoute,
        DropCause::BadFcs,
        DropCause::Fault,
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
        })
    }
}

/// What has happened on one channel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct ChannelCounters {
    /// Frames transmitted, those included that a fault then dropped.
    pub frames: u64,
    /// Their bytes, from destination address to FCS.
    pub bytes: u64,
    /// The most bytes that waited in the queue in front of it; 0 at a host, where nothing waits.
    pub queue_high_water: u64,
    /// Copies that faults added.
    pub duplicates: u64,
    pub(super) drops: [u64; DropCause::ALL.len()],
}

impl ChannelCounters {
    /// Packets dropped for `cause`: before the channel (queue full, too long), on it (fault) or at its
    /// end (bad FCS, hop limit, no route).
    pub fn drops(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize]
    }

    /// Packets dropped for any cause.
    pub fn all_drops(&self) -> u64 {
        self.drops.iter().sum()
    }
}
