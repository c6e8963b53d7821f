//! One owner at a time, and nobody who waits for another on the data path.
//!
//! Who finds the lock held leaves a bell and goes on with its own work. Whoever holds the lock answers the
//! bells before it lets go, so that none is lost. `tests/handover.rs` tries every order of steps.

#![allow(unsafe_code)]

use super::sync::{AtomicU32, AtomicU64, Condvar, Mutex, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Someone has the lock.
const HELD: u32 = 1;
/// Bells are waiting.
const BELLS: u32 = 2;
/// One who waits for the lock; their number is in the bits from here on.
const WAITER: u32 = 4;

/// What is done about a bell.
pub(crate) trait Answer {
    /// Answers one bell.
    fn answer(&mut self, bell: u32);

    /// All bells that were found are answered.
    fn settle(&mut self);
}

/// Something that one thread at a time works with, and bells for who has it.
pub(crate) struct Handover<T> {
    /// HELD, BELLS and the number of WAITERs.
    word: AtomicU32,
    board: Board,
    /// Where waiters sleep; nobody else takes it while the lock is free.
    sleep: Mutex<()>,
    freed: Condvar,
    inner: UnsafeCell<T>,
}

// SAFETY: `inner` is reached by who has set HELD alone: it is set by a compare-and-exchange with Acquire
// from a word without it, and cleared with Release by who set it.
unsafe impl<T: Send> Sync for Handover<T> {}
// SAFETY: it owns its parts.
unsafe impl<T: Send> Send for Handover<T> {}

impl<T: Answer> Handover<T> {
    /// Room for bells from 0 to `bells` - 1.
    pub(crate) fn new(inner: T, bells: u32) -> Handover<T> {
        Handover {
            word: AtomicU32::new(0),
            board: Board::new(bells),
            sleep: Mutex::new(()),
            freed: Condvar::new(),
            inner: UnsafeCell::new(inner),
        }
    }

    /// Takes the lock if it is free and nobody waits for it.
    #[inline]
    pub(crate) fn try_hold(&self) -> Option<Held<'_, T>> {
        let mut word = self.word.load(Relaxed);
        loop {
            if word & HELD != 0 || word >= WAITER {
                return None;
            }
            match self
                .word
                .compare_exchange_weak(word, word | HELD, Acquire, Relaxed)
            {
                Ok(_) => return Some(Held { of: self }),
                Err(now) => word = now,
            }
        }
    }

    /// Waits for the lock. While someone waits, nobody else takes it.
    pub(crate) fn hold(&self) -> Held<'_, T> {
        if let Some(held) = self.try_hold() {
            return held;
        }
        let mut word = self.word.fetch_add(WAITER, Relaxed) + WAITER;
        loop {
            if word & HELD == 0 {
                let taken = (word | HELD) - WAITER;
                match self
                    .word
                    .compare_exchange_weak(word, taken, Acquire, Relaxed)
                {
                    Ok(_) => return Held { of: self },
                    Err(now) => word = now,
                }
                continue;
            }
            let guard = lock(&self.sleep);
            // Who lets go clears HELD first and takes `sleep` then, so this look is not too early.
            if self.word.load(Relaxed) & HELD != 0 {
                drop(self.freed.wait(guard));
            }
            word = self.word.load(Relaxed);
        }
    }

    /// Sees that `bell` is answered after what the caller did until now: by the caller if nobody else has
    /// the lock, by whoever has it otherwise. Does not wait. A bell that there is no room for is ignored.
    #[inline]
    pub(crate) fn ring(&self, bell: u32) {
        if let Some(mut held) = self.try_hold() {
            held.answer(bell);
            held.settle();
            return;
        }
        self.leave(bell);
    }

    #[cold]
    fn leave(&self, bell: u32) {
        if !self.board.put(bell) {
            return;
        }
        let mut word = self.word.fetch_or(BELLS, AcqRel) | BELLS;
        // Who holds the lock looks for bells before it lets go, and who waits will hold it.
        while word & HELD == 0 && word < WAITER {
            match self
                .word
                .compare_exchange_weak(word, word | HELD, Acquire, Relaxed)
            {
                Ok(_) => return drop(Held { of: self }),
                Err(now) => word = now,
            }
        }
    }

    /// Lets go, unless there are bells.
    #[inline]
    fn let_go(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & BELLS == 0 {
            match self
                .word
                .compare_exchange_weak(word, word & !HELD, Release, Relaxed)
            {
                Ok(_) => {
                    if word >= WAITER {
                        drop(lock(&self.sleep));
                        self.freed.notify_all();
                    }
                    return true;
                }
                Err(now) => word = now,
            }
        }
        false
    }
}

/// The lock, held; it is let go when this is dropped.
pub(crate) struct Held<'a, T: Answer> {
    of: &'a Handover<T>,
}

impl<T: Answer> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        while !self.of.let_go() {
            self.of.word.fetch_and(!BELLS, AcqRel);
            let of = self.of;
            of.board.take(|bell| self.answer(bell));
            self.settle();
        }
    }
}

impl<T: Answer> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is who set HELD, and shared borrows of `self` are all there are now.
        self.of.inner.with(|inner| unsafe { &*inner })
    }
}

impl<T: Answer> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is who set HELD, and `self` is borrowed for as long as what is given out.
        self.of.inner.with_mut(|inner| unsafe { &mut *inner })
    }
}

fn lock(mutex: &Mutex<()>) -> super::sync::MutexGuard<'_, ()> {
    // There is nothing in it that a panic could leave half done.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// A bit for each bell, and a bit for each 64 of those.
struct Board {
    bells: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
}

impl Board {
    fn new(bells: u32) -> Board {
        let words = |bits: usize| (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let bells: Box<[AtomicU64]> = words(bells as usize);
        Board {
            summary: words(bells.len()),
            bells,
        }
    }

    fn put(&self, bell: u32) -> bool {
        let (word, bit) = (bell as usize / 64, bell % 64);
        let Some(bells) = self.bells.get(word) else {
            return false;
        };
        bells.fetch_or(1 << bit, AcqRel);
        self.summary[word / 64].fetch_or(1 << (word % 64), AcqRel);
        true
    }

    /// Takes all bells down. One that is put up meanwhile is found now or is there afterwards.
    fn take(&self, mut each: impl FnMut(u32)) {
        for (i, summary) in self.summary.iter().enumerate() {
            if summary.load(Relaxed) == 0 {
                continue;
            }
            for word in bits(summary.swap(0, AcqRel)) {
                let word = i * 64 + word as usize;
                for bit in bits(self.bells[word].swap(0, AcqRel)) {
                    each(word as u32 * 64 + bit);
                }
            }
        }
    }
}

/// The numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros();
        word &= word - 1;
        Some(bit)
    })
}
