//! The regions of a card, found by key.

use super::{Access, AccessError, Buffer};
use crate::random::Stream;
use crate::wire::RemoteKey;
use std::fmt;

/// The longest region and the longest message: 2^31 bytes for a message, 2^48 for a region.
pub const MAX_REGION_LEN: u64 = 1 << 48;

/// Keys carry a position in the table above this many bits of tag.
const TAG_BITS: u32 = 8;
const MAX_REGIONS: usize = 1 << (32 - TAG_BITS);

/// The key by which a program names its own memory to its card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LocalKey(pub u32);

/// A protection domain: queue pairs reach only regions of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pd(u32);

/// What backs a region.
#[derive(Clone, Debug)]
pub enum Storage {
    /// Memory of the library.
    Buffer(Buffer),
    /// Nothing: lengths are counted, reading gives zeros, writing is forgotten.
    Counted {
        /// Length in bytes.
        len: u64,
    },
}

/// A registered region, as its owner sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Key for work requests.
    pub lkey: LocalKey,
    /// Key to give to peers. It opens nothing unless the region has remote rights.
    pub rkey: RemoteKey,
}

/// A region, as the card sees it.
#[derive(Debug)]
pub struct Region {
    pd: Pd,
    base: u64,
    len: u64,
    access: Access,
    key: u32,
    storage: Storage,
}

/// Why a region could not be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// The protection domain is not one of this card.
    #[error("protection domain {0} does not exist on this card")]
    UnknownDomain(u32),
    /// Remote write or atomic rights without local write.
    #[error("{0} needs local write as well")]
    NeedsLocalWrite(Access),
    /// Longer than [`MAX_REGION_LEN`].
    #[error("a region of {len} bytes is longer than the limit of {MAX_REGION_LEN}")]
    TooLong {
        /// Length asked for.
        len: u64,
    },
    /// No key is free.
    #[error("{MAX_REGIONS} regions are registered, the most there can be")]
    Full,
    /// Address and length run past the end of the 64-bit space.
    #[error("{len} bytes at {addr:#x} run past the end of the address space")]
    Wraps {
        /// Address asked for.
        addr: u64,
        /// Length.
        len: u64,
    },
    /// The key names no region.
    #[error("no memory region has key {0:#010x}")]
    UnknownKey(u32),
}

/// The protection domains and regions of one card.
#[derive(Debug)]
pub struct Memory {
    slots: Vec<Slot>,
    free: Vec<u32>,
    domains: u32,
    next_addr: u64,
    random: Stream,
}

#[derive(Debug)]
struct Slot {
    region: Option<Region>,
    tag: u8,
}

impl Memory {
    /// No domains and no regions; addresses and keys are drawn from `random`.
    pub fn new(mut random: Stream) -> Memory {
        // Addresses look like a program's: page-aligned, in the upper half of the user space.
        let next_addr = 0x7f00_0000_0000 + (random.below(1 << 20) << 12);
        Memory {
            slots: Vec::new(),
            free: Vec::new(),
            domains: 0,
            next_addr,
            random,
        }
    }

    /// A new protection domain.
    pub fn alloc_pd(&mut self) -> Pd {
        self.domains += 1;
        Pd(self.domains - 1)
    }

    /// True if `pd` is one of this card's.
    pub fn has_pd(&self, pd: Pd) -> bool {
        pd.0 < self.domains
    }

    /// Registers `storage` at an address of the card's choosing.
    pub fn register(
        &mut self,
        pd: Pd,
        storage: Storage,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let len = storage.len();
        if len > MAX_REGION_LEN {
            return Err(RegisterError::TooLong { len });
        }
        let addr = self.next_addr;
        let region = self.register_at(pd, addr, storage, access)?;
        // A guard page follows each region, so that running over an end never hits a neighbour.
        self.next_addr = addr + len.next_multiple_of(4096) + 4096;
        Ok(region)
    }

    /// Registers `storage` at the address `addr`.
    pub fn register_at(
        &mut self,
        pd: Pd,
        addr: u64,
        storage: Storage,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let len = storage.len();
        if !self.has_pd(pd) {
            return Err(RegisterError::UnknownDomain(pd.0));
        }
        if len > MAX_REGION_LEN {
            return Err(RegisterError::TooLong { len });
        }
        if addr.checked_add(len).is_none() {
            return Err(RegisterError::Wraps { addr, len });
        }
        let writes = access.allows(Access::REMOTE_WRITE) || access.allows(Access::REMOTE_ATOMIC);
        if writes && !access.allows(Access::LOCAL_WRITE) {
            return Err(RegisterError::NeedsLocalWrite(access));
        }
        let index = match self.free.pop() {
            Some(i) => i as usize,
            None if self.slots.len() == MAX_REGIONS => return Err(RegisterError::Full),
            None => {
                let tag = self.random.bits() as u8;
                self.slots.push(Slot { region: None, tag });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[index];
        // A key that was given back opens nothing until the tag has gone round.
        slot.tag = slot.tag.wrapping_add(1);
        let key = (index as u32) << TAG_BITS | u32::from(slot.tag);
        slot.region = Some(Region {
            pd,
            base: addr,
            len,
            access,
            key,
            storage,
        });
        Ok(MemoryRegion {
            addr,
            len,
            lkey: LocalKey(key),
            rkey: RemoteKey(key),
        })
    }

    /// Ends a registration. Its keys open nothing from here on.
    pub fn deregister(&mut self, lkey: LocalKey) -> Result<(), RegisterError> {
        let index = lkey.0 >> TAG_BITS;
        match self.slots.get_mut(index as usize) {
            Some(slot) if slot.region.as_ref().is_some_and(|r| r.key == lkey.0) => {
                slot.region = None;
                self.free.push(index);
                Ok(())
            }
            _ => Err(RegisterError::UnknownKey(lkey.0)),
        }
    }

    /// The region that a program's own key opens for `len` bytes at `addr`.
    #[inline]
    pub fn local(
        &self,
        lkey: LocalKey,
        pd: Pd,
        addr: u64,
        len: u64,
        asked: Access,
    ) -> Result<&Region, AccessError> {
        self.find(lkey.0, pd, addr, len, asked)
    }

    /// The region that a peer's key opens for `len` bytes at `addr`. Zero bytes need no key at all
    /// (C9-88); the caller sees to that.
    #[inline]
    pub fn remote(
        &self,
        rkey: RemoteKey,
        pd: Pd,
        addr: u64,
        len: u64,
        asked: Access,
    ) -> Result<&Region, AccessError> {
        self.find(rkey.0, pd, addr, len, asked)
    }

    #[inline]
    fn find(
        &self,
        key: u32,
        pd: Pd,
        addr: u64,
        len: u64,
        asked: Access,
    ) -> Result<&Region, AccessError> {
        let region = match self.slots.get((key >> TAG_BITS) as usize) {
            Some(Slot {
                region: Some(r), ..
            }) if r.key == key => r,
            _ => return Err(AccessError::UnknownKey { key }),
        };
        if region.pd != pd {
            return Err(AccessError::WrongDomain { key });
        }
        if !region.access.allows(asked) {
            return Err(AccessError::Rights {
                key,
                asked,
                granted: region.access,
            });
        }
        // base + region.len does not wrap (checked at registration), so neither does anything here.
        let inside = addr >= region.base
            && addr - region.base <= region.len
            && len <= region.len - (addr - region.base);
        if !inside {
            return Err(AccessError::OutOfRange {
                key,
                addr,
                len,
                base: region.base,
                size: region.len,
            });
        }
        Ok(region)
    }
}

impl Region {
    /// Copies bytes from `addr` on into `out`; the range was checked when the region was found.
    #[inline]
    pub fn read(&self, addr: u64, out: &mut [u8]) {
        match &self.storage {
            Storage::Buffer(b) => b.read_at((addr - self.base) as usize, out),
            Storage::Counted { .. } => out.fill(0),
        }
    }

    /// Copies `bytes` to `addr` and on; the range was checked when the region was found.
    #[inline]
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        match &self.storage {
            Storage::Buffer(b) => b.write_at((addr - self.base) as usize, bytes),
            Storage::Counted { .. } => {}
        }
    }
}

impl Storage {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Storage::Buffer(b) => b.len() as u64,
            Storage::Counted { len } => *len,
        }
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Buffer> for Storage {
    fn from(b: Buffer) -> Storage {
        Storage::Buffer(b)
    }
}

impl fmt::Display for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Debug for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalKey({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (Memory, Pd) {
        let mut m = Memory::new(Stream::new(1, "test"));
        let pd = m.alloc_pd();
        (m, pd)
    }

    const ALL: Access = Access::LOCAL_WRITE;

    #[test]
    fn bounds_are_exact_and_do_not_wrap() {
        let (mut m, pd) = memory();
        let r = m.register(pd, Buffer::new(100).into(), ALL).unwrap();
        let ask = |addr, len| m.local(r.lkey, pd, addr, len, Access::LOCAL_READ).is_ok();
        assert!(ask(r.addr, 100));
        assert!(ask(r.addr + 100, 0));
        assert!(!ask(r.addr, 101));
        assert!(!ask(r.addr + 1, 100));
        assert!(!ask(r.addr + 101, 0));
        assert!(!ask(r.addr - 1, 1));
        assert!(!ask(r.addr, u64::MAX));
        // The sum wraps to a small number (rxe 2026-05-21).
        assert!(!ask(0xffff_ffff_ffff_fc00, 0x400));
    }

    #[test]
    fn a_region_may_end_at_the_end_of_the_space_but_not_beyond() {
        let (mut m, pd) = memory();
        assert!(
            m.register_at(pd, u64::MAX - 16, Buffer::new(16).into(), ALL)
                .is_ok()
        );
        assert_eq!(
            m.register_at(pd, u64::MAX - 15, Buffer::new(16).into(), ALL),
            Err(RegisterError::Wraps {
                addr: u64::MAX - 15,
                len: 16
            })
        );
    }

    #[test]
    fn every_right_asked_for_must_be_granted() {
        let (mut m, pd) = memory();
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let r = m.register(pd, Buffer::new(8).into(), access).unwrap();
        let ask = |a| m.remote(r.rkey, pd, r.addr, 8, a);
        assert!(ask(Access::REMOTE_READ).is_ok());
        assert!(ask(Access::REMOTE_READ | Access::LOCAL_WRITE).is_ok());
        assert!(matches!(
            ask(Access::REMOTE_READ | Access::REMOTE_WRITE),
            Err(AccessError::Rights { .. })
        ));
        assert_eq!(
            m.register(pd, Buffer::new(8).into(), Access::REMOTE_WRITE),
            Err(RegisterError::NeedsLocalWrite(Access::REMOTE_WRITE))
        );
    }

    #[test]
    fn a_key_ends_with_its_registration_and_another_domain_does_not_reach_it() {
        let (mut m, pd) = memory();
        let other = m.alloc_pd();
        let r = m.register(pd, Buffer::new(8).into(), ALL).unwrap();
        assert!(matches!(
            m.local(r.lkey, other, r.addr, 1, Access::LOCAL_READ),
            Err(AccessError::WrongDomain { .. })
        ));
        m.deregister(r.lkey).unwrap();
        assert_eq!(
            m.deregister(r.lkey),
            Err(RegisterError::UnknownKey(r.lkey.0))
        );
        let again = m.register(pd, Buffer::new(8).into(), ALL).unwrap();
        assert_ne!(again.lkey, r.lkey, "the slot is used again, the key is not");
        assert!(matches!(
            m.local(r.lkey, pd, again.addr, 1, Access::LOCAL_READ),
            Err(AccessError::UnknownKey { .. })
        ));
    }

    #[test]
    fn keys_and_addresses_repeat_with_the_seed() {
        let make = |seed| {
            let mut m = Memory::new(Stream::new(seed, "card a"));
            let pd = m.alloc_pd();
            m.register(pd, Buffer::new(8).into(), ALL).unwrap()
        };
        assert_eq!(make(3), make(3));
        assert_ne!(make(3), make(4));
    }
}
