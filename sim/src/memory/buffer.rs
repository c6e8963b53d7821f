//! Memory that a program and a card share.
#![allow(unsafe_code)]

use super::sync::{AtomicU8, AtomicU64};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A zeroed piece of memory, shared by cloning, that a program and a card read and write at the same
/// time, as a program and a card on a bus do: bytes of accesses that overlap in time may mix, and that
/// is all that can happen.
///
/// It is an array of words that are only touched atomically. Whole words move by relaxed loads and
/// stores, which are plain moves on every machine; a partial word at either end of a write is merged
/// by compare-and-swap, so that a neighbouring byte written by someone else stays.
///
/// [`Buffer::from_raw_parts`] makes one of memory that is the program's. There the word at either edge of the
/// memory that is not its own as a whole moves by bytes, so that nothing beside the memory is touched, wherever
/// it begins and ends. Every byte is always reached by accesses of one size, which debug builds check at each
/// access: on most machines nothing else would show a mistake.
#[derive(Clone)]
pub struct Buffer {
    /// Where the word lies that has the first byte.
    words: NonNull<AtomicU64>,
    /// Bytes of that word before the first byte: 0 to 7, and 0 in memory of the library.
    skew: u8,
    len: usize,
    /// `None` if the memory is the program's.
    owned: Option<Arc<[AtomicU64]>>,
}

// SAFETY: the memory is touched by atomic instructions only, and lives as long as any clone: it is owned, or
// whoever called `from_raw_parts` has promised it.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Buffer {
        let words: Arc<[AtomicU64]> = (0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Buffer {
            words: NonNull::from(&*words).cast(),
            skew: 0,
            len,
            owned: Some(words),
        }
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Buffer {
        let b = Buffer::new(bytes.len());
        b.write_at(0, bytes);
        b
    }

    /// Memory of the program's own, `len` bytes from `first` on, at any address.
    ///
    /// # Safety
    ///
    /// It must be readable and writable as long as any clone lives, and as long as a device has it registered. A
    /// card keeps a clone until the region is deregistered, and a clone in a datagram that waits may outlive that;
    /// hardware keeps none, and reaches the memory until deregistration has succeeded, which dropping a region of
    /// a program does not tell: whoever frees the memory calls `MemoryRegion::deregister` before, and does not
    /// free it if that fails. Cards and peers read and write it at any time, so no reference to it may exist while
    /// they do; whoever touches it meanwhile does so as one touches memory that a device writes: by volatile or
    /// atomic accesses, or where the peer is known to be done.
    pub unsafe fn from_raw_parts(first: NonNull<u8>, len: usize) -> Buffer {
        let skew = first.addr().get() % 8;
        // That word may begin before the memory does; it is touched by bytes then. Not null: only the lowest bits
        // go, and an address below 8 is none that can be read.
        let word = first.as_ptr().wrapping_sub(skew).cast();
        Buffer {
            words: NonNull::new(word).unwrap_or(NonNull::dangling()),
            skew: skew as u8,
            len,
            owned: None,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of its first byte. Whoever reads and writes there does it as a device does, at any time; the
    /// memory lives as long as a clone of the buffer.
    pub fn as_ptr(&self) -> *mut u8 {
        self.byte(self.skew.into())
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The byte at `at`, counted from the first word.
    fn byte(&self, at: usize) -> *mut u8 {
        self.words.as_ptr().cast::<u8>().wrapping_add(at)
    }

    /// Word `index`, all of whose bytes are the buffer's.
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(self.has_whole(index), "word {index} of {self:?}");
        // SAFETY: callers have checked that these bytes are within the buffer, or, where the buffer owns its
        // words, that one of them is; it is aligned since `words` is.
        unsafe { &*self.words.as_ptr().wrapping_add(index) }
    }

    /// Copies the bytes from `offset` on into `out`.
    ///
    /// # Panics
    /// If `offset + out.len()` is past the end.
    pub fn read_at(&self, offset: usize, mut out: &mut [u8]) {
        let at = self.check(offset, out.len());
        let (mut word, within) = (at / 8, at % 8);
        if within != 0 && !out.is_empty() {
            let (head, rest) = out.split_at_mut(out.len().min(8 - within));
            self.read_part(word, within, head);
            out = rest;
            word += 1;
        }
        let mut chunks = out.chunks_exact_mut(8);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.word(word).load(Relaxed).to_ne_bytes());
            word += 1;
        }
        let tail = chunks.into_remainder();
        if !tail.is_empty() {
            self.read_part(word, 0, tail);
        }
    }

    /// Copies `bytes` to `offset` and on.
    ///
    /// # Panics
    /// If `offset + bytes.len()` is past the end.
    pub fn write_at(&self, offset: usize, mut bytes: &[u8]) {
        let at = self.check(offset, bytes.len());
        let (mut word, within) = (at / 8, at % 8);
        if within != 0 && !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(8 - within));
            self.write_part(word, within, head);
            bytes = rest;
            word += 1;
        }
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut b = [0; 8];
            b.copy_from_slice(chunk);
            self.word(word).store(u64::from_ne_bytes(b), Relaxed);
            word += 1;
        }
        if !chunks.remainder().is_empty() {
            self.write_part(word, 0, chunks.remainder());
        }
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; self.len];
        self.read_at(0, &mut v);
        v
    }

    /// Replaces the eight bytes at `offset` by `change` of them, in host byte order, and gives what was
    /// there. Atomic, also for the program, if their address is a multiple of eight; in memory of the library
    /// `offset` is, then.
    ///
    /// # Panics
    /// If `offset + 8` is past the end.
    pub fn update(&self, offset: usize, change: impl Fn(u64) -> u64) -> u64 {
        let at = self.check(offset, 8);
        if at.is_multiple_of(8) {
            let word = self.word(at / 8);
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

    /// True if all bytes of a word may be touched.
    #[inline]
    pub(super) fn has_whole(&self, word: usize) -> bool {
        let skew = usize::from(self.skew);
        self.owned.is_some() || ((word > 0 || skew == 0) && 8 * word + 8 <= skew + self.len)
    }

    /// Reads some bytes of a word, from `from` on.
    fn read_part(&self, word: usize, from: usize, out: &mut [u8]) {
        if self.has_whole(word) {
            let bytes = self.word(word).load(Relaxed).to_ne_bytes();
            out.copy_from_slice(&bytes[from..from + out.len()]);
            return;
        }
        for (i, b) in out.iter_mut().enumerate() {
            *b = self.single(word, from + i).load(Relaxed);
        }
    }

    /// Writes some bytes of a word, from `from` on.
    fn write_part(&self, word: usize, from: usize, bytes: &[u8]) {
        if self.has_whole(word) {
            let merged = |old: u64| {
                let mut b = old.to_ne_bytes();
                b[from..from + bytes.len()].copy_from_slice(bytes);
                Some(u64::from_ne_bytes(b))
            };
            // The closure always gives a value, so the update always succeeds.
            let _ = self.word(word).fetch_update(Relaxed, Relaxed, merged);
            return;
        }
        for (i, &b) in bytes.iter().enumerate() {
            self.single(word, from + i).store(b, Relaxed);
        }
    }

    /// A byte of a word, where the word may be someone else's in part.
    fn single(&self, word: usize, byte: usize) -> &AtomicU8 {
        debug_assert!(
            !self.has_whole(word),
            "byte {byte} of word {word} of {self:?}"
        );
        // SAFETY: callers have checked that this byte is within the buffer.
        unsafe { AtomicU8::from_ptr(self.byte(8 * word + byte)) }
    }

    /// Where `offset` lies, in bytes from the first word, if `n` bytes from there on are inside.
    #[inline]
    fn check(&self, offset: usize, n: usize) -> usize {
        assert!(
            offset.checked_add(n).is_some_and(|end| end <= self.len),
            "{n} bytes at offset {offset} are outside a buffer of {} bytes",
            self.len
        );
        offset + usize::from(self.skew)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
