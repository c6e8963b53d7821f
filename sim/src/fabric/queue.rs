//! What waits for a switch port.

use super::packets::{Packets, Row};
use crate::card::PriorityMask;
use crate::time::Time;

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

    /// Puts a packet in the row of its priority, whatever the limit.
    #[inline]
    pub(super) fn add(&mut self, packets: &mut Packets, slot: u32, frame_len: u16, priority: u8) {
        self.bytes += u64::from(frame_len);
        self.waiting = self.waiting.with(priority);
        self.rows[usize::from(priority & 7)].push(packets, slot, Time::ZERO);
    }

    /// The most bytes that may wait.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// What waits in a priority.
    pub(super) fn row(&self, priority: u8) -> &Row {
        &self.rows[usize::from(priority & 7)]
    }

    /// The first packet of a priority in which something waits.
    #[inline]
    pub(super) fn first(&self, priority: u8) -> u32 {
        self.rows[usize::from(priority & 7)].first()
    }

    /// Takes the first packet of the highest priority, and says how long it is.
    #[inline(always)]
    pub(super) fn take(&mut self, packets: &Packets) -> Option<(u32, u16)> {
        let priority = self.waiting.0.checked_ilog2()? as u8;
        Some(self.take_from(packets, priority))
    }

    /// Takes the first packet of a priority in which something waits, and says how long it is.
    #[inline(always)]
    pub(super) fn take_from(&mut self, packets: &Packets, priority: u8) -> (u32, u16) {
        let row = &mut self.rows[usize::from(priority & 7)];
        let (slot, _) = row.pop(packets);
        if row.is_empty() {
            self.waiting = self.waiting.without(priority);
        }
        let frame_len = packets.get(slot).frame_len;
        self.bytes -= u64::from(frame_len);
        (slot, frame_len)
    }
}
