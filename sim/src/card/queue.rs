//! Rings of fixed size between a program and its card, one writer and one reader each.
//!
//! Entries stay in place until the reader retires them: the card reads a work request again when it
//! resends it, and what the program does after posting changes nothing.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A counter on a cache line of its own, so that writer and reader do not fight over one.
#[repr(align(64))]
struct Line(AtomicU64);

struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Number of entries that may be in the ring; at most the number of slots.
    capacity: u64,
    /// Entries retired so far: moved by the reader.
    head: Line,
    /// Entries written so far: moved by the writer.
    tail: Line,
}

// SAFETY: the slots from `head` to `tail` are only read, and only by the reader; all others are only
// written, and only by the writer. Each side moves its own counter with Release after it is done with
// a slot, and reads the other's with Acquire before it touches one. `Writer` and `Reader` are not
// Clone, so there is one of each.
unsafe impl<T: Copy + Send + Sync> Sync for Ring<T> {}
// SAFETY: as above; the entries themselves are Send.
unsafe impl<T: Copy + Send + Sync> Send for Ring<T> {}

/// The writing end of a ring.
pub struct Writer<T> {
    ring: Arc<Ring<T>>,
    tail: u64,
    /// The reader's counter when it was last looked at.
    head: u64,
}

/// The reading end of a ring.
pub struct Reader<T> {
    ring: Arc<Ring<T>>,
    head: u64,
    /// The writer's counter when it was last looked at.
    tail: u64,
}

/// A ring for `capacity` entries (at least one).
pub fn ring<T: Copy + Send>(capacity: u32) -> (Writer<T>, Reader<T>) {
    let capacity = u64::from(capacity.max(1));
    let slots = (0..capacity.next_power_of_two())
        .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
        .collect();
    let zero = || Line(AtomicU64::new(0));
    let ring = Arc::new(Ring {
        slots,
        capacity,
        head: zero(),
        tail: zero(),
    });
    (
        Writer {
            ring: ring.clone(),
            tail: 0,
            head: 0,
        },
        Reader {
            ring,
            head: 0,
            tail: 0,
        },
    )
}

impl<T> Ring<T> {
    #[inline]
    fn slot(&self, index: u64) -> &UnsafeCell<MaybeUninit<T>> {
        // The number of slots is a power of two, so this is within bounds and compiles to an AND.
        &self.slots[index as usize & (self.slots.len() - 1)]
    }
}

impl<T: Copy + Send> Writer<T> {
    /// How many more entries fit now.
    #[inline]
    pub fn free(&mut self) -> u32 {
        self.head = self.ring.head.0.load(Acquire);
        (self.ring.capacity - (self.tail - self.head)) as u32
    }

    /// Writes an entry and shows it to the reader; gives it back if the ring is full.
    #[inline]
    pub fn push(&mut self, entry: T) -> Result<(), T> {
        if self.tail - self.head == self.ring.capacity && self.free() == 0 {
            return Err(entry);
        }
        // SAFETY: the slot at `tail` is not between head and tail (there is room), so the reader does
        // not touch it, and `&mut self` makes this the only writer.
        unsafe { (*self.ring.slot(self.tail).get()).write(entry) };
        self.tail += 1;
        self.ring.tail.0.store(self.tail, Release);
        Ok(())
    }

    /// Number of entries written so far: the index of the next one.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// The most entries the ring holds.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity as u32
    }
}

impl<T: Copy + Send> Reader<T> {
    /// The entry with the index `index`, counted from the first ever written; `None` if it is retired
    /// or not written yet.
    #[inline]
    pub fn get(&mut self, index: u64) -> Option<&T> {
        if index >= self.tail {
            self.tail = self.ring.tail.0.load(Acquire);
            if index >= self.tail {
                return None;
            }
        }
        self.peek(index)
    }

    /// As [`Reader::get`], for entries that were there when the writer's counter was last looked at.
    #[inline]
    pub fn peek(&self, index: u64) -> Option<&T> {
        if index < self.head || index >= self.tail {
            return None;
        }
        // SAFETY: head <= index < tail: written, shown with Release and seen with Acquire, and the
        // writer does not touch it before it is retired, which needs `&mut self` and thus the end of
        // the borrow given out here.
        Some(unsafe { (*self.ring.slot(index).get()).assume_init_ref() })
    }

    /// Gives the oldest `n` entries back to the writer; no more than there are.
    #[inline]
    pub fn retire(&mut self, n: u64) {
        self.head = self.tail().min(self.head.saturating_add(n));
        self.ring.head.0.store(self.head, Release);
    }

    /// The most entries the ring holds.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity as u32
    }

    /// Takes the oldest entry out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let entry = *self.get(self.head)?;
        self.retire(1);
        Some(entry)
    }

    /// Index of the oldest entry.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Index after the newest entry.
    #[inline]
    pub fn tail(&mut self) -> u64 {
        self.tail = self.ring.tail.0.load(Acquire);
        self.tail
    }

    /// True if there is an entry with the index `index` or a later one, without taking note of it.
    #[inline]
    pub fn tail_is_after(&self, index: u64) -> bool {
        index < self.tail || index < self.ring.tail.0.load(Relaxed)
    }

    /// True if no entry is there: a look at the writer's counter, without taking note of it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.ring.tail.0.load(Relaxed)
    }
}

impl<T> fmt::Debug for Writer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer(at {} of {})", self.tail, self.ring.capacity)
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader(at {} of {})", self.head, self.ring.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_as_a_bounded_queue(capacity in 1u32..9, steps in prop::collection::vec(0u8..4, 0..200)) {
            let (mut w, mut r) = ring(capacity);
            let mut model = VecDeque::new();
            let mut written = 0;
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let fits = model.len() < capacity as usize;
                        prop_assert_eq!(w.push(i).is_ok(), fits);
                        if fits {
                            model.push_back(i);
                            written += 1;
                        }
                    }
                    2 => prop_assert_eq!(r.pop(), model.pop_front()),
                    _ => {
                        for (k, v) in model.iter().enumerate() {
                            prop_assert_eq!(r.get(r.head() + k as u64), Some(v));
                        }
                        prop_assert_eq!(r.get(r.head() + model.len() as u64), None);
                    }
                }
                prop_assert_eq!(w.free(), capacity - model.len() as u32);
                prop_assert_eq!(r.is_empty(), model.is_empty());
                for index in 0..written + 2 {
                    prop_assert_eq!(r.tail_is_after(index), index < written);
                }
            }
        }
    }

    #[test]
    fn crosses_threads_in_order() {
        let (mut w, mut r) = ring(7);
        std::thread::scope(|s| {
            s.spawn(move || {
                for i in 0..20_000u64 {
                    while w.push(i).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
            for i in 0..20_000u64 {
                let got = loop {
                    match r.pop() {
                        Some(v) => break v,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(got, i);
            }
        });
    }

    #[test]
    fn retiring_more_than_there_is_retires_what_there_is() {
        let (mut w, mut r) = ring(4);
        w.push(1).unwrap();
        assert_eq!(r.pop(), Some(1));
        w.push(2).unwrap();
        r.retire(u64::MAX);
        assert_eq!((r.head(), w.free(), r.get(0)), (2, 4, None));
    }
}
