//! Where payloads live while their packets cross the network.

use crate::wire::Payload;

/// What the packets of a network carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PayloadMode {
    /// Bytes: programs get what was sent.
    #[default]
    Carried,
    /// Lengths alone, for simulations too big to carry data.
    Counted,
}

/// Payloads in slots of fixed size, each with a count of the packets that refer to it.
///
/// It grows to the most payloads that were ever on their way at once, and stays there.
#[derive(Clone, Debug)]
pub struct PayloadPool {
    mode: PayloadMode,
    /// Slots, [`PayloadPool::CHUNK`] to a box, so that growing moves no payload.
    chunks: Vec<Box<[u8]>>,
    references: Vec<u32>,
    free: Vec<u32>,
}

impl PayloadPool {
    /// Bytes of a slot: the largest path MTU.
    pub const SLOT: usize = 4096;
    const CHUNK: usize = 64;

    /// An empty pool.
    pub fn new(mode: PayloadMode) -> PayloadPool {
        PayloadPool {
            mode,
            chunks: Vec::new(),
            references: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Takes room for `len` bytes and lets `fill` write them; the payload has one reference. In counted
    /// mode there is nothing to fill.
    ///
    /// # Panics
    ///
    /// If `len` exceeds [`PayloadPool::SLOT`] and payloads are carried.
    #[inline]
    pub fn stage(&mut self, len: u16, fill: impl FnOnce(&mut [u8])) -> Payload {
        if self.mode == PayloadMode::Counted {
            return Payload::counted(len);
        }
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        self.references[slot as usize] = 1;
        let (chunk, at) = place(slot);
        fill(&mut self.chunks[chunk][at..at + Self::SLOT][..usize::from(len)]);
        Payload::stored(slot, len)
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let first = self.references.len() as u32;
        self.chunks
            .push(vec![0; Self::CHUNK * Self::SLOT].into_boxed_slice());
        self.references
            .resize(self.references.len() + Self::CHUNK, 0);
        // So that a return never grows the list.
        self.free.reserve(self.references.len());
        self.free
            .extend((first + 1..first + Self::CHUNK as u32).rev());
        first
    }

    /// The bytes; `None` if they are only counted.
    #[inline]
    pub fn get(&self, payload: Payload) -> Option<&[u8]> {
        let (chunk, at) = place(payload.slot()?);
        Some(&self.chunks[chunk][at..at + usize::from(payload.len())])
    }

    /// One more packet refers to the payload.
    #[inline]
    pub fn retain(&mut self, payload: Payload) {
        if let Some(slot) = payload.slot() {
            self.references[slot as usize] += 1;
        }
    }

    /// One packet fewer refers to the payload; its slot is free again after the last one.
    #[inline]
    pub fn release(&mut self, payload: Payload) {
        if let Some(slot) = payload.slot() {
            let references = &mut self.references[slot as usize];
            debug_assert!(*references > 0, "payload slot {slot} is free already");
            *references -= 1;
            if *references == 0 {
                self.free.push(slot);
            }
        }
    }

    /// Payloads that some packet refers to.
    pub fn in_use(&self) -> usize {
        self.references.len() - self.free.len()
    }

    /// Slots there are.
    pub fn capacity(&self) -> usize {
        self.references.len()
    }
}

#[inline]
const fn place(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    (
        slot / PayloadPool::CHUNK,
        slot % PayloadPool::CHUNK * PayloadPool::SLOT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_lives_until_its_last_reference_is_gone() {
        let mut pool = PayloadPool::new(PayloadMode::Carried);
        let a = pool.stage(3, |b| b.copy_from_slice(b"abc"));
        pool.retain(a);
        pool.release(a);
        assert_eq!(pool.get(a), Some(&b"abc"[..]));
        assert_eq!(pool.in_use(), 1);
        pool.release(a);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn slots_are_used_again_and_do_not_overlap() {
        let mut pool = PayloadPool::new(PayloadMode::Carried);
        let all: Vec<Payload> = (0..200u8)
            .map(|n| pool.stage(4096, |b| b.fill(n)))
            .collect();
        let capacity = pool.capacity();
        for (n, &p) in all.iter().enumerate() {
            assert!(pool.get(p).unwrap().iter().all(|&b| usize::from(b) == n));
            pool.release(p);
        }
        for _ in 0..200 {
            pool.stage(1, |_| ());
        }
        assert_eq!((pool.in_use(), pool.capacity()), (200, capacity));
    }

    #[test]
    fn counted_payloads_have_a_length_alone() {
        let mut pool = PayloadPool::new(PayloadMode::Counted);
        let p = pool.stage(1024, |_| panic!("nothing to fill"));
        assert_eq!((p.len(), pool.get(p), pool.in_use()), (1024, None, 0));
        pool.release(p);
    }
}
