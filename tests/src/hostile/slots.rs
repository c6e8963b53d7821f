//! Memory in slots, with guards before, between and behind them.

use super::SECRET;
use softroce_sim::card::{Card, Remote, Sge};
use softroce_sim::memory::{Access, Buffer, MemoryRegion, Pd};

/// Bytes of a slot.
pub const SLOT: usize = 1024;
/// Bytes of a guard.
pub const GUARD: usize = 64;

/// A registered region of slots.
#[derive(Debug)]
pub struct Slots {
    /// The bytes.
    pub buffer: Buffer,
    /// The registration.
    pub mr: MemoryRegion,
    count: usize,
    guard: u8,
}

impl Slots {
    /// `count` slots full of `fill`, with guards of `guard`.
    pub fn new(
        card: &mut Card,
        pd: Pd,
        access: Access,
        count: usize,
        fill: u8,
        guard: u8,
    ) -> Slots {
        let mut bytes = vec![fill; Slots::offset(count)];
        for i in 0..=count {
            bytes[Slots::offset(i) - GUARD..Slots::offset(i)].fill(guard);
        }
        let buffer = Buffer::from_bytes(&bytes);
        let mr = card.register(pd, buffer.clone(), access).unwrap();
        Slots {
            buffer,
            mr,
            count,
            guard,
        }
    }

    /// Of a program's own, which nobody else may see.
    pub fn private(card: &mut Card, pd: Pd, count: usize) -> Slots {
        Slots::new(card, pd, Access::LOCAL_WRITE, count, 0x40, SECRET)
    }

    /// Where slot `i` begins.
    pub const fn offset(i: usize) -> usize {
        i * (SLOT + GUARD) + GUARD
    }

    /// Slot `i` as a program names it.
    pub fn sge(&self, i: usize, len: usize) -> Sge {
        Sge {
            addr: self.mr.addr + Slots::offset(i) as u64,
            len: len as u32,
            lkey: self.mr.lkey,
        }
    }

    /// Slot `i` as a peer names it.
    pub fn remote(&self, i: usize) -> Remote {
        Remote {
            addr: self.mr.addr + Slots::offset(i) as u64,
            rkey: self.mr.rkey,
        }
    }

    /// The first bytes of slot `i`.
    pub fn read(&self, i: usize, out: &mut [u8]) {
        self.buffer.read_at(Slots::offset(i), out);
    }

    /// Writes to the start of slot `i`.
    pub fn write(&self, i: usize, bytes: &[u8]) {
        self.buffer.write_at(Slots::offset(i), bytes);
    }

    /// # Panics
    /// If a guard is not what it was.
    pub fn check_guards(&self, whose: &str) {
        let mut bytes = [0; GUARD];
        for i in 0..=self.count {
            self.buffer.read_at(Slots::offset(i) - GUARD, &mut bytes);
            assert!(
                bytes == [self.guard; GUARD],
                "{whose}: guard {i} is {bytes:x?}"
            );
        }
    }
}
