//! Frames on their way from one thread to another: a ring of buffers with one writer and one reader.
//!
//! Each side has its own counter in hand and shows it to the other now and then: a cache line that goes to
//! and fro between two processors for every frame costs more than the frame does. What a buffer was last
//! filled with is overwritten, so that nothing is allocated once each has had its longest frame.
//! `tests/ring.rs` tries every order of steps.

#![allow(unsafe_code)]

use super::sync::{Arc, AtomicBool, AtomicU64, UnsafeCell};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How many frames one side keeps to itself before it shows its counter, if there is room for many more.
const UNSHOWN: u64 = 8;

/// A counter on cache lines of its own: processors fetch them in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

struct Ring {
    slots: Box<[UnsafeCell<Vec<u8>>]>,
    capacity: u64,
    /// Frames taken so far, as far as the reader has shown.
    head: Line,
    /// Frames written so far, as far as the writer has shown.
    tail: Line,
    /// The reader is gone.
    closed: AtomicBool,
}

// SAFETY: the slots from `head` to `tail` are the reader's, all others the writer's, and there is one of
// each: neither end is Clone. A side shows its counter with Release when it is done with the slots before
// it, and reads the other's with Acquire before it touches a slot.
unsafe impl Sync for Ring {}
// SAFETY: it owns its parts.
unsafe impl Send for Ring {}

impl Ring {
    fn slot(&self, index: u64) -> &UnsafeCell<Vec<u8>> {
        // Their number is a power of two.
        &self.slots[index as usize & (self.slots.len() - 1)]
    }

    fn unshown(&self) -> u64 {
        (self.capacity / 4).clamp(1, UNSHOWN)
    }
}

/// The end that frames go into.
pub(crate) struct Writer {
    ring: Arc<Ring>,
    tail: u64,
    shown: u64,
    /// The reader's counter when it was last looked at.
    head: u64,
}

/// The end that frames come out of.
pub(crate) struct Reader {
    ring: Arc<Ring>,
    head: u64,
    shown: u64,
    /// The writer's counter when it was last looked at.
    tail: u64,
}

/// A ring for `capacity` frames, at least one.
pub(crate) fn ring(capacity: usize) -> (Writer, Reader) {
    let capacity = capacity.max(1);
    let empty = || UnsafeCell::new(Vec::new());
    let ring = Arc::new(Ring {
        slots: std::iter::repeat_with(empty)
            .take(capacity.next_power_of_two())
            .collect(),
        capacity: capacity as u64,
        head: Line(AtomicU64::new(0)),
        tail: Line(AtomicU64::new(0)),
        closed: AtomicBool::new(false),
    });
    (
        Writer {
            ring: ring.clone(),
            tail: 0,
            shown: 0,
            head: 0,
        },
        Reader {
            ring,
            head: 0,
            shown: 0,
            tail: 0,
        },
    )
}

impl Writer {
    /// Writes a frame; false if there is no room. The reader sees it after [`Writer::show`] at the latest.
    #[inline]
    pub(crate) fn push(&mut self, frame: &[u8]) -> bool {
        if self.tail - self.head == self.ring.capacity && !self.has_room() {
            // To a reader that is gone a frame is lost.
            return self.ring.closed.load(Relaxed);
        }
        self.ring.slot(self.tail).with_mut(|slot| {
            // SAFETY: there is room, so the slot is the writer's.
            let slot = unsafe { &mut *slot };
            slot.clear();
            slot.extend_from_slice(frame);
        });
        self.tail += 1;
        if self.tail - self.shown >= self.ring.unshown() {
            self.show();
        }
        true
    }

    /// Shows the reader all that was written.
    #[inline]
    pub(crate) fn show(&mut self) {
        if self.shown != self.tail {
            self.shown = self.tail;
            self.ring.tail.0.store(self.tail, Release);
        }
    }

    /// True if the reader has room.
    pub(crate) fn has_room(&mut self) -> bool {
        self.head = self.ring.head.0.load(Acquire);
        self.tail - self.head < self.ring.capacity
    }
}

impl Reader {
    /// Gives the oldest frame to `take`; `None` if there is none. The writer sees the room after
    /// [`Reader::show`] at the latest.
    #[inline]
    pub(crate) fn pop<R>(&mut self, take: impl FnOnce(&[u8]) -> R) -> Option<R> {
        if self.head == self.tail && self.is_empty() {
            return None;
        }
        let taken = self.ring.slot(self.head).with(|slot| {
            // SAFETY: it is before `tail`, so the slot is the reader's.
            take(unsafe { &*slot })
        });
        self.head += 1;
        if self.head - self.shown >= self.ring.unshown() {
            self.show();
        }
        Some(taken)
    }

    /// Shows the writer how much room there is.
    #[inline]
    pub(crate) fn show(&mut self) {
        if self.shown != self.head {
            self.shown = self.head;
            self.ring.head.0.store(self.head, Release);
        }
    }

    /// True if no frame is there.
    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.tail = self.ring.tail.0.load(Acquire);
        self.head == self.tail
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ring.closed.store(true, Relaxed);
    }
}
