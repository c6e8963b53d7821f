//! The regions and windows of a card, found by key.

use super::window::Window;
use super::{Access, AccessError, Buffer};
use crate::random::Stream;
use crate::wire::{QpNumber, RemoteKey};
use std::collections::VecDeque;
use std::fmt;

/// The longest region and the longest message: 2^31 bytes for a message, 2^48 for a region.
pub const MAX_REGION_LEN: u64 = 1 << 48;

/// Keys carry a position in the table above this many bits of tag.
const TAG_BITS: u32 = 8;
/// Places that rest before the longest empty one is used again.
const REST: usize = 1024;
const MAX_KEYS: usize = 1 << (32 - TAG_BITS);

/// The key by which a program names its own memory to its card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LocalKey(pub u32);

/// A protection domain: queue pairs reach only regions of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pd(pub u32);

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
pub(super) struct Region {
    pd: Pd,
    /// Where it was registered; `base` is zero beside it if it is zero-based.
    addr: u64,
    base: u64,
    len: u64,
    pub(super) access: Access,
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
    #[error("{MAX_KEYS} regions and windows exist, the most there can be")]
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
    pub(super) slots: Vec<Slot>,
    /// Places of keys that ended, the longest empty first, so that a tag goes round as late as can be.
    free: VecDeque<u32>,
    domains: u32,
    next_addr: u64,
    random: Stream,
}

/// What a key names. A key is the position of a slot and a tag that changes with each use of it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) entry: Entry,
    pub(super) tag: u8,
}

#[derive(Debug)]
pub(super) enum Entry {
    Free,
    Region(Region),
    Window(Window),
}

/// Bytes of a region that a key has opened.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    storage: &'a Storage,
    offset: u64,
}

/// What [`Memory::reregister`] changes; the rest stays.
#[derive(Clone, Debug, Default)]
pub struct Reregistration {
    /// Another protection domain.
    pub pd: Option<Pd>,
    /// Other rights.
    pub access: Option<Access>,
    /// Other memory, at this address.
    pub storage: Option<(u64, Storage)>,
}

impl Memory {
    /// No domains and no regions; addresses and keys are drawn from `random`.
    pub fn new(mut random: Stream) -> Memory {
        // Addresses look like a program's: page-aligned, in the upper half of the user space.
        let next_addr = 0x7f00_0000_0000 + (random.below(1 << 20) << 12);
        Memory {
            slots: Vec::new(),
            free: VecDeque::new(),
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
        // Behind the last address there is no room for any other.
        self.next_addr = addr.saturating_add(len.next_multiple_of(4096) + 4096);
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
        if access.writes_remotely() && !access.allows(Access::LOCAL_WRITE) {
            return Err(RegisterError::NeedsLocalWrite(access));
        }
        let key = self.take_key().ok_or(RegisterError::Full)?;
        let base = if access.allows(Access::ZERO_BASED) {
            0
        } else {
            addr
        };
        let region = Region {
            pd,
            addr,
            base,
            len,
            access,
            key,
            storage,
        };
        self.slots[index(key)].entry = Entry::Region(region);
        Ok(MemoryRegion {
            addr: base,
            len,
            lkey: LocalKey(key),
            rkey: RemoteKey(key),
        })
    }

    /// A key that names nothing yet.
    pub(super) fn take_key(&mut self) -> Option<u32> {
        let full = self.slots.len() == MAX_KEYS;
        let rested = self.free.len() >= REST || full;
        let index = match rested.then(|| self.free.pop_front()).flatten() {
            Some(i) => i as usize,
            None if full => return None,
            None => {
                let tag = self.random.bits() as u8;
                self.slots.push(Slot {
                    entry: Entry::Free,
                    tag,
                });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[index];
        // A key that was given back opens nothing until the tag has gone round.
        slot.tag = slot.tag.wrapping_add(1);
        Some((index as u32) << TAG_BITS | u32::from(slot.tag))
    }

    pub(super) fn give_back(&mut self, key: u32) {
        let slot = &mut self.slots[index(key)];
        slot.entry = Entry::Free;
        self.free.push_back(key >> TAG_BITS);
    }

    /// Ends a registration. Its keys open nothing from here on, and windows bound to it neither
    /// (10.6.7.2.6).
    pub fn deregister(&mut self, lkey: LocalKey) -> Result<(), RegisterError> {
        self.region(lkey.0)
            .ok_or(RegisterError::UnknownKey(lkey.0))?;
        self.give_back(lkey.0);
        Ok(())
    }

    /// Changes a registration, which gets new keys; the old ones open nothing from here on. If that
    /// fails, the region is gone (C11-20).
    pub fn reregister(
        &mut self,
        lkey: LocalKey,
        change: Reregistration,
    ) -> Result<MemoryRegion, RegisterError> {
        let slot = match self.slots.get_mut(index(lkey.0)) {
            Some(slot) if matches!(&slot.entry, Entry::Region(r) if r.key == lkey.0) => slot,
            _ => return Err(RegisterError::UnknownKey(lkey.0)),
        };
        let Entry::Region(old) = std::mem::replace(&mut slot.entry, Entry::Free) else {
            return Err(RegisterError::UnknownKey(lkey.0));
        };
        self.free.push_back(lkey.0 >> TAG_BITS);
        let (addr, storage) = change.storage.unwrap_or((old.addr, old.storage));
        self.register_at(
            change.pd.unwrap_or(old.pd),
            addr,
            storage,
            change.access.unwrap_or(old.access),
        )
    }

    pub(super) fn region(&self, key: u32) -> Option<&Region> {
        match self.slots.get(index(key)) {
            Some(Slot {
                entry: Entry::Region(r),
                ..
            }) if r.key == key => Some(r),
            _ => None,
        }
    }

    /// What a program's own key opens: `len` bytes at `addr`.
    #[inline]
    pub fn local(
        &self,
        lkey: LocalKey,
        pd: Pd,
        addr: u64,
        len: u64,
        asked: Access,
    ) -> Result<Place<'_>, AccessError> {
        let key = lkey.0;
        let region = self.region(key).ok_or(AccessError::UnknownKey { key })?;
        if region.pd != pd {
            return Err(AccessError::WrongDomain { key });
        }
        region.open(addr, len, asked)
    }

    /// What a peer's key opens to the queue pair `qp` of `pd`: `len` bytes at `addr`. Zero bytes need no key
    /// at all (C9-88); the caller sees to that.
    #[inline]
    pub fn remote(
        &self,
        rkey: RemoteKey,
        (pd, qp): (Pd, QpNumber),
        addr: u64,
        len: u64,
        asked: Access,
    ) -> Result<Place<'_>, AccessError> {
        let key = rkey.0;
        match self.slots.get(index(key)) {
            Some(Slot {
                entry: Entry::Region(r),
                ..
            }) if r.key == key => {
                if r.pd != pd {
                    return Err(AccessError::WrongDomain { key });
                }
                r.open(addr, len, asked)
            }
            Some(Slot {
                entry: Entry::Window(w),
                ..
            }) if w.key == key => self.through_window(w, pd, qp, addr, len, asked),
            _ => Err(AccessError::UnknownKey { key }),
        }
    }
}

#[inline]
pub(super) fn index(key: u32) -> usize {
    (key >> TAG_BITS) as usize
}

/// Where `addr` lies in `size` bytes from `base` on, if `len` bytes from there are inside. Nothing wraps:
/// `base + size` was checked when it was registered.
#[inline]
pub(super) fn offset(base: u64, size: u64, addr: u64, len: u64) -> Option<u64> {
    let offset = addr.checked_sub(base)?;
    (offset <= size && len <= size - offset).then_some(offset)
}

impl Region {
    #[inline]
    fn open(&self, addr: u64, len: u64, asked: Access) -> Result<Place<'_>, AccessError> {
        let (key, base, size) = (self.key, self.base, self.len);
        if !self.access.allows(asked) {
            return Err(AccessError::Rights {
                key,
                asked,
                granted: self.access,
            });
        }
        match offset(base, size, addr, len) {
            Some(offset) => Ok(Place {
                storage: &self.storage,
                offset,
            }),
            None => Err(AccessError::OutOfRange {
                key,
                addr,
                len,
                base,
                size,
            }),
        }
    }
}

impl Place<'_> {
    /// Copies bytes into `out`, which is no longer than what was asked for.
    #[inline]
    pub fn read(self, out: &mut [u8]) {
        match self.storage {
            Storage::Buffer(b) => b.read_at(self.offset as usize, out),
            Storage::Counted { .. } => out.fill(0),
        }
    }

    /// Copies `bytes`, no longer than what was asked for.
    #[inline]
    pub fn write(self, bytes: &[u8]) {
        match self.storage {
            Storage::Buffer(b) => b.write_at(self.offset as usize, bytes),
            Storage::Counted { .. } => {}
        }
    }

    /// Replaces eight bytes by `change` of them, in host byte order, and gives what was there: zero where
    /// bytes are only counted.
    #[inline]
    pub fn update(self, change: impl Fn(u64) -> u64) -> u64 {
        match self.storage {
            Storage::Buffer(b) => b.update(self.offset as usize, change),
            Storage::Counted { .. } => 0,
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
