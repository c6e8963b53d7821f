//! Memory that a program and a card share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A zeroed piece of memory, shared by cloning, that a program and a card read and write at the same
/// time, as a program and a card on a bus do: bytes of accesses that overlap in time may mix, and that
/// is all that can happen.
///
/// It is an array of words that are only touched atomically. Whole words move by relaxed loads and
/// stores, which are plain moves on every machine; a partial word at either end of a write is merged
/// by compare-and-swap, so that a neighbouring byte written by someone else stays.
#[derive(Clone)]
pub struct Buffer {
    words: Arc<[AtomicU64]>,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Buffer {
        Buffer {
            words: (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(),
            len,
        }
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Buffer {
        let b = Buffer::new(bytes.len());
        b.write_at(0, bytes);
        b
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of its first byte. Whoever reads and writes there does it as a device does, at any time; the
    /// memory lives as long as a clone of the buffer.
    pub fn as_ptr(&self) -> *mut u8 {
        self.words.as_ptr().cast::<u8>().cast_mut()
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes from `offset` on into `out`.
    ///
    /// # Panics
    /// If `offset + out.len()` is past the end.
    pub fn read_at(&self, offset: usize, mut out: &mut [u8]) {
        self.check(offset, out.len());
        let (mut word, within) = (offset / 8, offset % 8);
        if within != 0 && !out.is_empty() {
            let n = out.len().min(8 - within);
            let bytes = self.words[word].load(Relaxed).to_ne_bytes();
            let (head, rest) = out.split_at_mut(n);
            head.copy_from_slice(&bytes[within..within + n]);
            out = rest;
            word += 1;
        }
        let whole = out.len() / 8;
        let (body, tail) = out.split_at_mut(whole * 8);
        for (chunk, w) in body.chunks_exact_mut(8).zip(&self.words[word..]) {
            chunk.copy_from_slice(&w.load(Relaxed).to_ne_bytes());
        }
        if !tail.is_empty() {
            let bytes = self.words[word + whole].load(Relaxed).to_ne_bytes();
            tail.copy_from_slice(&bytes[..tail.len()]);
        }
    }

    /// Copies `bytes` to `offset` and on.
    ///
    /// # Panics
    /// If `offset + bytes.len()` is past the end.
    pub fn write_at(&self, offset: usize, mut bytes: &[u8]) {
        self.check(offset, bytes.len());
        let (mut word, within) = (offset / 8, offset % 8);
        if within != 0 && !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(8 - within));
            self.merge(word, within, head);
            bytes = rest;
            word += 1;
        }
        let whole = bytes.len() / 8;
        let (body, tail) = bytes.split_at(whole * 8);
        for (chunk, w) in body.chunks_exact(8).zip(&self.words[word..]) {
            let mut b = [0; 8];
            b.copy_from_slice(chunk);
            w.store(u64::from_ne_bytes(b), Relaxed);
        }
        if !tail.is_empty() {
            self.merge(word + whole, 0, tail);
        }
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; self.len];
        self.read_at(0, &mut v);
        v
    }

    /// Replaces the eight bytes at `offset` by `change` of them, in host byte order, and gives what was
    /// there. Atomic, also for the program, if `offset` is a multiple of eight.
    ///
    /// # Panics
    /// If `offset + 8` is past the end.
    pub fn update(&self, offset: usize, change: impl Fn(u64) -> u64) -> u64 {
        self.check(offset, 8);
        if offset.is_multiple_of(8) {
            let word = &self.words[offset / 8];
            let mut old = word.load(Relaxed);
            while let Err(now) = word.compare_exchange_weak(old, change(old), Relaxed, Relaxed) {
                old = now;
            }
            return old;
        }
        let mut bytes = [0; 8];
        self.read_at(offset, &mut bytes);
        let old = u64::from_ne_bytes(bytes);
        self.write_at(offset, &change(old).to_ne_bytes());
        old
    }

    fn merge(&self, word: usize, at: usize, bytes: &[u8]) {
        let merged = |old: u64| {
            let mut b = old.to_ne_bytes();
            b[at..at + bytes.len()].copy_from_slice(bytes);
            Some(u64::from_ne_bytes(b))
        };
        // The closure always gives a value, so the update always succeeds.
        let _ = self.words[word].fetch_update(Relaxed, Relaxed, merged);
    }

    fn check(&self, offset: usize, n: usize) {
        assert!(
            offset.checked_add(n).is_some_and(|end| end <= self.len),
            "{n} bytes at offset {offset} are outside a buffer of {} bytes",
            self.len
        );
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_vector(
            len in 0usize..100,
            writes in prop::collection::vec((0usize..100, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
        ) {
            let b = Buffer::new(len);
            let mut model = vec![0u8; len];
            for (offset, bytes) in writes {
                if offset + bytes.len() <= len {
                    b.write_at(offset, &bytes);
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
            }
            prop_assert_eq!(b.to_vec(), model.clone());
            for from in 0..len {
                let mut out = vec![0; len - from];
                b.read_at(from, &mut out);
                prop_assert_eq!(&out[..], &model[from..]);
            }
        }
    }

    #[test]
    fn an_update_gives_what_was_there() {
        let b = Buffer::new(24);
        for offset in [0, 8, 11] {
            b.write_at(offset, &7u64.to_ne_bytes());
            assert_eq!(b.update(offset, |v| v + 5), 7);
            assert_eq!(b.update(offset, |v| v), 12);
        }
    }

    #[test]
    fn updates_of_many_threads_all_count() {
        let b = Buffer::new(8);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..1000).for_each(|_| _ = b.update(0, |v| v + 1)));
            }
        });
        assert_eq!(b.update(0, |v| v), 4000);
    }

    #[test]
    #[should_panic(expected = "outside a buffer of 8 bytes")]
    fn refuses_what_wraps() {
        Buffer::new(8).write_at(usize::MAX, &[1, 2]);
    }

    #[test]
    fn writers_of_neighbouring_bytes_do_not_disturb_each_other() {
        let b = Buffer::new(16);
        std::thread::scope(|s| {
            for lane in 0..16usize {
                let b = &b;
                s.spawn(move || {
                    for i in 0..1000u32 {
                        b.write_at(lane, &[i as u8]);
                        let mut one = [0];
                        b.read_at(lane, &mut one);
                        assert_eq!(one[0], i as u8);
                    }
                });
            }
        });
    }
}
