//! The regions and windows of a card, found by key.

use super::window::Window;
use super::{Access, AccessError, Binding, Buffer, WindowError, WindowType};
use crate::random::Stream;
use crate::wire::{QpNumber, RemoteKey};
use std::fmt;

/// The longest region and the longest message: 2^31 bytes for a message, 2^48 for a region.
pub const MAX_REGION_LEN: u64 = 1 << 48;

/// Keys carry a position in the table above this many bits of tag.
const TAG_BITS: u32 = 8;
const MAX_KEYS: usize = 1 << (32 - TAG_BITS);

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
struct Region {
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
    slots: Vec<Slot>,
    free: Vec<u32>,
    domains: u32,
    next_addr: u64,
    random: Stream,
}

/// What a key names. A key is the position of a slot and a tag that changes with each use of it.
#[derive(Debug)]
struct Slot {
    entry: Entry,
    tag: u8,
}

#[derive(Debug)]
enum Entry {
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
    fn take_key(&mut self) -> Option<u32> {
        let index = match self.free.pop() {
            Some(i) => i as usize,
            None if self.slots.len() == MAX_KEYS => return None,
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

    fn give_back(&mut self, key: u32) {
        let slot = &mut self.slots[index(key)];
        slot.entry = Entry::Free;
        self.free.push(key >> TAG_BITS);
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
        self.free.push(lkey.0 >> TAG_BITS);
        let (addr, storage) = change.storage.unwrap_or((old.base, old.storage));
        self.register_at(
            change.pd.unwrap_or(old.pd),
            addr,
            storage,
            change.access.unwrap_or(old.access),
        )
    }

    /// A window that is not bound. A key of type 1 opens nothing before it is bound; that of type 2 is
    /// the one whose low byte the binding changes.
    pub fn alloc_window(&mut self, pd: Pd, kind: WindowType) -> Result<RemoteKey, WindowError> {
        if !self.has_pd(pd) {
            return Err(WindowError::UnknownDomain(pd.0));
        }
        let key = self.take_key().ok_or(WindowError::Full)?;
        self.slots[index(key)].entry = Entry::Window(Window {
            pd,
            kind,
            key,
            bound: None,
        });
        Ok(RemoteKey(key))
    }

    /// Ends a window, bound or not.
    pub fn dealloc_window(&mut self, rkey: RemoteKey) -> Result<(), WindowError> {
        self.window(rkey.0)?;
        self.give_back(rkey.0);
        Ok(())
    }

    /// Binds a window of type 1 by the verb, through a queue pair of `pd`, and gives its new key. A length
    /// of zero unbinds it.
    pub fn bind_type1(
        &mut self,
        rkey: RemoteKey,
        binding: Binding,
        pd: Pd,
        qp: QpNumber,
    ) -> Result<RemoteKey, WindowError> {
        let window = self.window(rkey.0)?;
        if window.kind != WindowType::Type1 {
            return Err(WindowError::WrongType(rkey.0));
        }
        if binding.zero_based {
            return Err(WindowError::ZeroBased(rkey.0));
        }
        if binding.len > 0 {
            self.check_binding(&window, &binding, pd)?;
        }
        let slot = &mut self.slots[index(rkey.0)];
        slot.tag = slot.tag.wrapping_add(1);
        let key = rkey.0 & !0xff | u32::from(slot.tag);
        let bound = (binding.len > 0).then_some((binding, qp));
        slot.entry = Entry::Window(Window {
            key,
            bound,
            ..window
        });
        Ok(RemoteKey(key))
    }

    /// Binds a window of type 2 by a work request of the queue pair `qp`, with the key it has from here
    /// on.
    pub fn bind_type2(
        &mut self,
        key: RemoteKey,
        binding: Binding,
        pd: Pd,
        qp: QpNumber,
    ) -> Result<(), WindowError> {
        let window = match self.slots.get(index(key.0)) {
            Some(Slot {
                entry: Entry::Window(w),
                ..
            }) => *w,
            _ => return Err(WindowError::UnknownKey(key.0)),
        };
        if window.kind != WindowType::Type2 {
            return Err(WindowError::WrongType(window.key));
        }
        if window.bound.is_some() {
            return Err(WindowError::Bound(window.key));
        }
        if key.0 == window.key {
            return Err(WindowError::Key {
                old: window.key,
                new: key.0,
            });
        }
        if binding.len == 0 {
            return Err(WindowError::Empty(window.key));
        }
        self.check_binding(&window, &binding, pd)?;
        let slot = &mut self.slots[index(key.0)];
        slot.tag = key.0 as u8;
        slot.entry = Entry::Window(Window {
            key: key.0,
            bound: Some((binding, qp)),
            ..window
        });
        Ok(())
    }

    fn check_binding(&self, window: &Window, binding: &Binding, pd: Pd) -> Result<(), WindowError> {
        if window.pd != pd {
            return Err(WindowError::WrongDomain(window.key));
        }
        self.local(
            binding.lkey,
            pd,
            binding.addr,
            binding.len,
            Access::LOCAL_READ,
        )
        .map_err(WindowError::Region)?;
        let Some(region) = self.region(binding.lkey.0) else {
            return Err(WindowError::UnknownKey(binding.lkey.0));
        };
        if !region.access.allows(Access::MW_BIND) {
            return Err(WindowError::NotBindable(binding.lkey));
        }
        if binding.access.writes_remotely() && !region.access.allows(Access::LOCAL_WRITE) {
            return Err(WindowError::NeedsLocalWrite(binding.access));
        }
        Ok(())
    }

    /// Ends the validity of a key by a work request of this side or of the peer of the queue pair `qp`: that
    /// of a window of type 2 bound there. The window is free to be bound again.
    pub fn invalidate(&mut self, key: RemoteKey, pd: Pd, qp: QpNumber) -> Result<(), WindowError> {
        if self.region(key.0).is_some() {
            return Err(WindowError::IsRegion(key.0));
        }
        let window = self.window(key.0)?;
        if window.kind != WindowType::Type2 {
            return Err(WindowError::WrongType(key.0));
        }
        match window.bound {
            Some((_, owner)) if owner == qp && window.pd == pd => {
                self.slots[index(key.0)].entry = Entry::Window(Window {
                    bound: None,
                    ..window
                });
                Ok(())
            }
            _ => Err(WindowError::UnknownKey(key.0)),
        }
    }

    fn region(&self, key: u32) -> Option<&Region> {
        match self.slots.get(index(key)) {
            Some(Slot {
                entry: Entry::Region(r),
                ..
            }) if r.key == key => Some(r),
            _ => None,
        }
    }

    fn window(&self, key: u32) -> Result<Window, WindowError> {
        match self.slots.get(index(key)) {
            Some(Slot {
                entry: Entry::Window(w),
                ..
            }) if w.key == key => Ok(*w),
            _ => Err(WindowError::UnknownKey(key)),
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

    fn through_window(
        &self,
        window: &Window,
        pd: Pd,
        qp: QpNumber,
        addr: u64,
        len: u64,
        asked: Access,
    ) -> Result<Place<'_>, AccessError> {
        let key = window.key;
        let Some((binding, owner)) = &window.bound else {
            return Err(AccessError::UnknownKey { key });
        };
        if window.pd != pd {
            return Err(AccessError::WrongDomain { key });
        }
        if window.kind == WindowType::Type2 && *owner != qp {
            return Err(AccessError::WrongQueuePair { key });
        }
        if !binding.access.allows(asked) {
            return Err(AccessError::Rights {
                key,
                asked,
                granted: binding.access,
            });
        }
        let base = if binding.zero_based { 0 } else { binding.addr };
        let Some(offset) = offset(base, binding.len, addr, len) else {
            let size = binding.len;
            return Err(AccessError::OutOfRange {
                key,
                addr,
                len,
                base,
                size,
            });
        };
        // The region may have ended since; its rights were looked at when the window was bound.
        self.local(
            binding.lkey,
            pd,
            binding.addr + offset,
            len,
            Access::LOCAL_READ,
        )
    }
}

#[inline]
fn index(key: u32) -> usize {
    (key >> TAG_BITS) as usize
}

/// Where `addr` lies in `size` bytes from `base` on, if `len` bytes from there are inside. Nothing wraps:
/// `base + size` was checked when it was registered.
#[inline]
fn offset(base: u64, size: u64, addr: u64, len: u64) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (Memory, Pd) {
        let mut m = Memory::new(Stream::new(1, "test"));
        let pd = m.alloc_pd();
        (m, pd)
    }

    const ALL: Access = Access::LOCAL_WRITE;
    const QP: QpNumber = QpNumber::new(17);
    const OTHER_QP: QpNumber = QpNumber::new(18);

    /// A region of 100 bytes that windows may be bound to, and a binding of bytes 10 to 60.
    fn bindable(m: &mut Memory, pd: Pd) -> (MemoryRegion, Binding) {
        let r = m
            .register(pd, Buffer::new(100).into(), ALL | Access::MW_BIND)
            .unwrap();
        let binding = Binding {
            lkey: r.lkey,
            addr: r.addr + 10,
            len: 50,
            access: Access::REMOTE_WRITE,
            zero_based: false,
        };
        (r, binding)
    }

    #[test]
    fn a_window_of_type_1_opens_its_part_and_its_old_key_nothing() {
        let (mut m, pd) = memory();
        let (r, b) = bindable(&mut m, pd);
        let first = m.alloc_window(pd, WindowType::Type1).unwrap();
        let ask = |m: &Memory, key, addr, len| {
            m.remote(key, (pd, OTHER_QP), addr, len, Access::REMOTE_WRITE)
                .is_ok()
        };
        assert!(!ask(&m, first, b.addr, 1), "not bound");
        let key = m.bind_type1(first, b, pd, QP).unwrap();
        assert!(ask(&m, key, b.addr, 50), "any queue pair of the domain");
        assert!(!ask(&m, key, b.addr, 51) && !ask(&m, key, b.addr - 1, 1));
        assert!(
            !ask(&m, r.rkey, b.addr, 1),
            "the region itself has no remote rights"
        );
        assert!(
            m.remote(key, (pd, QP), b.addr, 1, Access::REMOTE_READ)
                .is_err()
        );
        let again = m.bind_type1(key, b, pd, QP).unwrap();
        assert!(!ask(&m, key, b.addr, 1), "the key of the former binding");
        assert!(ask(&m, again, b.addr, 1));
        let unbound = m
            .bind_type1(again, Binding { len: 0, ..b }, pd, QP)
            .unwrap();
        assert!(!ask(&m, unbound, b.addr, 1));
        assert_eq!(
            m.bind_type1(
                unbound,
                Binding {
                    zero_based: true,
                    ..b
                },
                pd,
                QP
            ),
            Err(WindowError::ZeroBased(unbound.0))
        );
    }

    #[test]
    fn a_window_of_type_2_belongs_to_one_queue_pair_until_it_is_invalidated() {
        let (mut m, pd) = memory();
        let (_, b) = bindable(&mut m, pd);
        let old = m.alloc_window(pd, WindowType::Type2).unwrap();
        let key = RemoteKey(old.0 ^ 1);
        assert_eq!(
            m.bind_type2(old, b, pd, QP),
            Err(WindowError::Key {
                old: old.0,
                new: old.0
            })
        );
        m.bind_type2(
            key,
            Binding {
                zero_based: true,
                ..b
            },
            pd,
            QP,
        )
        .unwrap();
        let ask = |m: &Memory, qp, addr, len| {
            m.remote(key, (pd, qp), addr, len, Access::REMOTE_WRITE)
                .map(|_| ())
        };
        assert_eq!(ask(&m, QP, 0, 50), Ok(()));
        assert_eq!(
            ask(&m, OTHER_QP, 0, 50),
            Err(AccessError::WrongQueuePair { key: key.0 })
        );
        assert!(ask(&m, QP, 1, 50).is_err());
        let another = RemoteKey(key.0 ^ 3);
        assert_eq!(
            m.bind_type2(another, b, pd, QP),
            Err(WindowError::Bound(key.0))
        );
        assert_eq!(
            m.invalidate(key, pd, OTHER_QP),
            Err(WindowError::UnknownKey(key.0))
        );
        m.invalidate(key, pd, QP).unwrap();
        assert!(ask(&m, QP, 0, 1).is_err());
        assert_eq!(m.bind_type2(another, b, pd, QP), Ok(()));
    }

    #[test]
    fn what_a_binding_needs() {
        let (mut m, pd) = memory();
        let other = m.alloc_pd();
        let (r, b) = bindable(&mut m, pd);
        let bind = |m: &mut Memory, b: Binding, pd| {
            let w = m.alloc_window(pd, WindowType::Type2).unwrap();
            m.bind_type2(RemoteKey(w.0 ^ 1), b, pd, QP)
        };
        assert_eq!(bind(&mut m, b, pd), Ok(()));
        assert!(matches!(
            bind(&mut m, Binding { len: 91, ..b }, pd),
            Err(WindowError::Region(_))
        ));
        assert!(matches!(
            bind(&mut m, b, other),
            Err(WindowError::Region(_))
        ));
        assert!(matches!(
            bind(&mut m, Binding { len: 0, ..b }, pd),
            Err(WindowError::Empty(_))
        ));
        let plain = m.register(pd, Buffer::new(8).into(), ALL).unwrap();
        let to = |r: &MemoryRegion, access| Binding {
            lkey: r.lkey,
            addr: r.addr,
            len: 8,
            access,
            zero_based: false,
        };
        assert_eq!(
            bind(&mut m, to(&plain, Access::REMOTE_READ), pd),
            Err(WindowError::NotBindable(plain.lkey))
        );
        let read_only = m
            .register(pd, Buffer::new(8).into(), Access::MW_BIND)
            .unwrap();
        assert_eq!(
            bind(&mut m, to(&read_only, Access::REMOTE_READ), pd),
            Ok(())
        );
        assert_eq!(
            bind(&mut m, to(&read_only, Access::REMOTE_WRITE), pd),
            Err(WindowError::NeedsLocalWrite(Access::REMOTE_WRITE))
        );
        assert_eq!(
            m.invalidate(r.rkey, pd, QP),
            Err(WindowError::IsRegion(r.rkey.0))
        );
    }

    #[test]
    fn a_window_ends_with_its_region() {
        let (mut m, pd) = memory();
        let (r, b) = bindable(&mut m, pd);
        let w = m.alloc_window(pd, WindowType::Type2).unwrap();
        let key = RemoteKey(w.0 ^ 1);
        m.bind_type2(key, b, pd, QP).unwrap();
        m.deregister(r.lkey).unwrap();
        // The slot is used again by another region at the same place.
        m.register_at(pd, r.addr, Buffer::new(100).into(), ALL)
            .unwrap();
        assert!(
            m.remote(key, (pd, QP), b.addr, 1, Access::REMOTE_WRITE)
                .is_err()
        );
    }

    #[test]
    fn keys_past_65536_do_not_run_into_each_other() {
        // rxe 2022-12-15: region keys ran into those of windows.
        let (mut m, pd) = memory();
        let mut keys = std::collections::HashSet::new();
        for i in 0..70_000 {
            let key = if i % 2 == 0 {
                m.register(pd, Storage::Counted { len: 1 }, ALL)
                    .unwrap()
                    .rkey
            } else {
                m.alloc_window(pd, WindowType::Type2).unwrap()
            };
            assert!(keys.insert(key));
        }
    }

    #[test]
    fn reregistration_closes_the_old_key_and_a_failed_one_the_region() {
        let (mut m, pd) = memory();
        let r = m.register(pd, Buffer::new(8).into(), ALL).unwrap();
        let change = Reregistration {
            access: Some(ALL | Access::REMOTE_READ),
            ..Default::default()
        };
        let new = m.reregister(r.lkey, change).unwrap();
        assert_ne!(new.rkey, r.rkey);
        assert_eq!((new.addr, new.len), (r.addr, r.len));
        assert!(
            m.remote(r.rkey, (pd, QP), r.addr, 8, Access::LOCAL_READ)
                .is_err()
        );
        assert!(
            m.remote(new.rkey, (pd, QP), r.addr, 8, Access::REMOTE_READ)
                .is_ok()
        );
        let bad = Reregistration {
            access: Some(Access::REMOTE_WRITE),
            ..Default::default()
        };
        assert!(m.reregister(new.lkey, bad).is_err());
        assert!(
            m.local(new.lkey, pd, new.addr, 1, Access::LOCAL_READ)
                .is_err()
        );
    }

    #[test]
    fn zero_based_regions_count_from_zero() {
        let (mut m, pd) = memory();
        let access = ALL | Access::REMOTE_READ | Access::ZERO_BASED;
        let r = m.register(pd, Buffer::new(8).into(), access).unwrap();
        assert_eq!(r.addr, 0);
        assert!(
            m.remote(r.rkey, (pd, QP), 0, 8, Access::REMOTE_READ)
                .is_ok()
        );
        assert!(
            m.remote(r.rkey, (pd, QP), 1, 8, Access::REMOTE_READ)
                .is_err()
        );
    }

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
        let ask = |a| m.remote(r.rkey, (pd, QP), r.addr, 8, a);
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
