//! Store-and-forward switches: where a packet goes, and where it waits.

use super::packets::{Packets, Row};
use super::routing::Flow;
use crate::card::PriorityMask;
use crate::random::Stream;
use crate::time::Time;
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

/// The ways out of all switches to all hosts.
#[derive(Clone, Debug)]
pub(super) struct Forwarding {
    /// One for each host, and one for nobody.
    columns: usize,
    /// By switch and host: where in `ports` the ways from the one to the other are.
    sets: Vec<PortSet>,
    /// Outgoing channels.
    ports: Vec<u32>,
    /// By switch: makes each choose in its own way.
    salts: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct PortSet {
    /// Position of the first one in `ports`; if there is only one, the channel itself.
    first: u32,
    len: u32,
}

impl Forwarding {
    /// `ways[s][h]` are the channels on a shortest path from switch `s`, called `names[s]`, to host `h`.
    pub(super) fn new<'a>(
        hosts: usize,
        ways: &[Vec<Vec<u32>>],
        names: impl Iterator<Item = &'a str>,
        seed: u64,
    ) -> Forwarding {
        let mut ports = Vec::new();
        let mut known = BTreeMap::new();
        let nobody = Vec::new();
        let sets = ways
            .iter()
            .flat_map(|ways| ways.iter().chain([&nobody]))
            .map(|way| PortSet {
                len: way.len() as u32,
                first: match way[..] {
                    [] => 0,
                    [only] => only,
                    _ => *known.entry(way).or_insert_with(|| {
                        ports.extend_from_slice(way);
                        (ports.len() - way.len()) as u32
                    }),
                },
            })
            .collect();
        Forwarding {
            columns: hosts + 1,
            sets,
            ports,
            salts: names
                .map(|name| Stream::new(seed, &format!("ecmp {name}")).bits())
                .collect(),
        }
    }

    /// The channel on which switch `switch` sends the packets of a flow; `None` if its host cannot be
    /// reached.
    #[inline(always)]
    pub(super) fn way(&self, switch: u32, flow: Flow) -> Option<u32> {
        let switch = switch as usize;
        let set = self.sets[switch * self.columns + flow.host as usize];
        match set.len {
            1 => Some(set.first),
            0 => None,
            _ => {
                // Fibonacci hashing: the top bits of the product depend on all bits of the hash.
                let salted = u64::from(flow.hash) ^ self.salts[switch];
                let mixed = salted.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let pick = ((mixed * u64::from(set.len)) >> 32) as u32;
                Some(self.ports[(set.first + pick) as usize])
            }
        }
    }
}

/// What waits for one port of a switch: a row for each priority, the highest first.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct OutputQueue {
    /// Priorities in which something waits.
    waiting: PriorityMask,
    bytes: u64,
    limit: u64,
    rows: [Row; 8],
}

impl OutputQueue {
    pub(super) fn new(limit: u64) -> OutputQueue {
        OutputQueue {
            rows: [Row::EMPTY; 8],
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

    /// Puts a packet in the row of its priority; false if it does not fit.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        packets: &mut Packets,
        slot: u32,
        frame_len: u16,
        priority: u8,
    ) -> bool {
        let bytes = self.bytes + u64::from(frame_len);
        if bytes > self.limit {
            return false;
        }
        self.bytes = bytes;
        self.waiting = self.waiting.with(priority);
        self.rows[usize::from(priority & 7)].push(packets, slot, Time::ZERO);
        true
    }

    /// Takes the first packet of the highest priority in `ready`, and says how long it is.
    #[inline(always)]
    pub(super) fn take(&mut self, packets: &Packets, ready: PriorityMask) -> Option<(u32, u16)> {
        let priority = self.waiting.and(ready).0.checked_ilog2()? as u8;
        let row = &mut self.rows[usize::from(priority & 7)];
        let (slot, _) = row.pop(packets);
        if row.is_empty() {
            self.waiting = self.waiting.without(priority);
        }
        let frame_len = packets.get(slot).frame_len;
        self.bytes -= u64::from(frame_len);
        Some((slot, frame_len))
    }
}
