//! What waits for a switch port.

use super::packets::{Packets, Row};
use crate::card::PriorityMask;
use crate::time::Time;

/// What waits for one port of a switch: a row for each priority, the highest first. What every packet needs stands
/// in front, in the cache line behind that of the channel, which comes with it.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct OutputQueue {
    /// Priorities in which something waits.
    waiting: PriorityMask,
    bytes: u64,
    limit: u64,
    lines: [Line; 8],
}

/// What waits in one priority.
#[derive(Clone, Copy, Debug)]
struct Line {
    row: Row,
    bytes: u64,
    /// A packet that leaves no more than this behind it is not marked.
    unmarked: u64,
}

impl OutputQueue {
    pub(super) fn new(limit: u64) -> OutputQueue {
        OutputQueue {
            lines: [Line {
                row: Row::EMPTY,
                bytes: 0,
                unmarked: u64::MAX,
            }; 8],
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
        let fits = self.bytes + u64::from(frame_len) <= self.limit;
        if fits {
            self.add(packets, slot, frame_len, priority);
        }
        fits
    }

    /// Puts a packet in the row of its priority, whatever the limit.
    #[inline(always)]
    pub(super) fn add(&mut self, packets: &mut Packets, slot: u32, frame_len: u16, priority: u8) {
        self.bytes += u64::from(frame_len);
        self.waiting = self.waiting.with(priority);
        let line = &mut self.lines[usize::from(priority & 7)];
        line.bytes += u64::from(frame_len);
        line.row.push(packets, slot, Time::ZERO);
    }

    /// The most bytes that may wait.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// What waits in a priority.
    pub(super) fn row(&self, priority: u8) -> &Row {
        &self.lines[usize::from(priority & 7)].row
    }

    /// Bytes that wait in a priority.
    #[inline]
    pub(super) fn bytes_in(&self, priority: u8) -> u64 {
        self.lines[usize::from(priority & 7)].bytes
    }

    /// Has packets of a priority marked, perhaps, that leave more than `bytes` behind them.
    pub(super) fn set_unmarked(&mut self, priority: u8, bytes: u64) {
        self.lines[usize::from(priority & 7)].unmarked = bytes;
    }

    /// True if the packet that was taken last from a priority may have to be marked.
    #[inline]
    pub(super) fn may_mark(&self, priority: u8) -> bool {
        let line = &self.lines[usize::from(priority & 7)];
        line.bytes > line.unmarked
    }

    /// The first packet of a priority in which something waits.
    #[inline]
    pub(super) fn first(&self, priority: u8) -> u32 {
        self.row(priority).first()
    }

    /// Takes the first packet of the highest priority, and says how long it is.
    #[inline(always)]
    pub(super) fn take(&mut self, packets: &Packets) -> Option<(u32, u16)> {
        let priority = self.waiting.highest()?;
        Some(self.take_from(packets, priority))
    }

    /// Takes the first packet of a priority in which something waits, and says how long it is.
    #[inline(always)]
    pub(super) fn take_from(&mut self, packets: &Packets, priority: u8) -> (u32, u16) {
        let line = &mut self.lines[usize::from(priority & 7)];
        let (slot, _) = line.row.pop(packets);
        if line.row.is_empty() {
            self.waiting = self.waiting.without(priority);
        }
        let frame_len = packets.get(slot).frame_len;
        line.bytes -= u64::from(frame_len);
        self.bytes -= u64::from(frame_len);
        (slot, frame_len)
    }
}
