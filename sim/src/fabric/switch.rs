//! Store-and-forward switches: where a packet goes, and where it waits.

use super::packets::{List, Packets};
use crate::card::PriorityMask;
use crate::random::Stream;
use std::collections::BTreeMap;

/// What a switch is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchSpec {
    /// Bytes of frames that may wait for one port, all priorities together. The frame being sent does
    /// not count.
    pub port_buffer: u64,
}

impl Default for SwitchSpec {
    /// 1 MiB for each port.
    fn default() -> SwitchSpec {
        SwitchSpec {
            port_buffer: 1 << 20,
        }
    }
}

/// The way out of a switch to each host.
#[derive(Clone, Debug)]
pub(super) struct Forwarding {
    /// By host: where in `ports` the ways to it are.
    sets: Vec<PortSet>,
    /// Outgoing channels.
    ports: Vec<u32>,
    /// Makes each switch choose in its own way.
    salt: u64,
}

#[derive(Clone, Copy, Debug)]
struct PortSet {
    first: u32,
    len: u32,
}

impl Forwarding {
    /// `ways[h]` are the channels on a shortest path to host `h`.
    pub(super) fn new(ways: &[Vec<u32>], seed: u64, name: &str) -> Forwarding {
        let mut ports = Vec::new();
        let mut known = BTreeMap::new();
        let sets = ways
            .iter()
            .map(|way| {
                let first = *known.entry(way).or_insert_with(|| {
                    ports.extend_from_slice(way);
                    (ports.len() - way.len()) as u32
                });
                PortSet {
                    first,
                    len: way.len() as u32,
                }
            })
            .collect();
        Forwarding {
            sets,
            ports,
            salt: Stream::new(seed, &format!("ecmp {name}")).bits(),
        }
    }

    /// The channel on which a flow with hash `hash` leaves for host `host`.
    #[inline]
    pub(super) fn way(&self, host: u32, hash: u32) -> Option<u32> {
        let set = self.sets.get(host as usize)?;
        let pick = if set.len == 1 {
            0
        } else {
            // Fibonacci hashing: the top bits of the product depend on all bits of the hash.
            let mixed = (u64::from(hash) ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            ((mixed * u64::from(set.len)) >> 32) as u32
        };
        if set.len == 0 {
            return None;
        }
        self.ports.get((set.first + pick) as usize).copied()
    }
}

/// What waits for one port of a switch: a row for each priority, the highest first.
#[derive(Clone, Debug)]
pub(super) struct OutputQueue {
    rows: [List; 8],
    /// Priorities in which something waits.
    waiting: PriorityMask,
    bytes: u64,
    limit: u64,
}

impl OutputQueue {
    pub(super) fn new(limit: u64) -> OutputQueue {
        OutputQueue {
            rows: [List::default(); 8],
            waiting: PriorityMask::NONE,
            bytes: 0,
            limit,
        }
    }

    /// Priorities in which something waits.
    #[inline]
    pub(super) fn waiting(&self) -> PriorityMask {
        self.waiting
    }

    /// Bytes that wait.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts a packet in its row; false if it does not fit.
    #[inline]
    pub(super) fn put(&mut self, packets: &mut Packets, slot: u32) -> bool {
        let packet = packets.get(slot);
        let bytes = self.bytes + u64::from(packet.frame_len);
        if bytes > self.limit {
            return false;
        }
        self.bytes = bytes;
        let priority = packet.priority & 7;
        self.waiting = self.waiting.with(priority);
        self.rows[usize::from(priority)].push(packets, slot);
        true
    }

    /// Takes the first packet of the highest priority in `ready`.
    #[inline]
    pub(super) fn take(&mut self, packets: &mut Packets, ready: PriorityMask) -> Option<u32> {
        let priority = self.waiting.and(ready).0.checked_ilog2()? as u8;
        let row = &mut self.rows[usize::from(priority & 7)];
        let slot = row.pop(packets);
        if row.is_empty() {
            self.waiting = self.waiting.without(priority);
        }
        self.bytes -= u64::from(packets.get(slot).frame_len);
        Some(slot)
    }
}
