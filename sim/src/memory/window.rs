//! Memory windows: keys of their own for part of a region.

use super::table::{Entry, Memory, Place, Slot, index, offset};
use super::{Access, AccessError, LocalKey, Pd};
use crate::wire::{QpNumber, RemoteKey};

/// The type of a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowType {
    /// Bound by a verb, again and again; open to every queue pair of its protection domain.
    Type1,
    /// Type 2B: bound once by a work request, to the queue pair it was posted to, until its key is
    /// invalidated.
    Type2,
}

/// Part of a region, and what peers may do there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The region, by its local key. It must have [`Access::MW_BIND`].
    pub lkey: LocalKey,
    /// First byte.
    pub addr: u64,
    /// Number of bytes.
    pub len: u64,
    /// Remote rights. Those to write and to use atomics need local write on the region.
    pub access: Access,
    /// Peers count addresses from zero instead of from `addr`.
    pub zero_based: bool,
}

/// A window, as the card sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) pd: Pd,
    pub(super) kind: WindowType,
    pub(super) key: u32,
    pub(super) bound: Option<(Binding, QpNumber)>,
}

/// Why a window could not be made, bound or invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WindowError {
    /// No window has the key.
    #[error("no memory window has key {0:#010x}")]
    UnknownKey(u32),
    /// The region to bind to does not exist, is in another domain, or is too small.
    #[error("the binding: {0}")]
    Region(super::AccessError),
    /// Window and queue pair are in different protection domains (C10-72).
    #[error("window {0:#010x} is in another protection domain than the queue pair")]
    WrongDomain(u32),
    /// The region does not allow windows (C10-73).
    #[error("the region of key {0} does not allow windows")]
    NotBindable(LocalKey),
    /// Remote write or atomics through a region that cannot be written (C10-74).
    #[error("a window with {0} needs local write on its region")]
    NeedsLocalWrite(Access),
    /// The window is of the other type for this operation.
    #[error("window {0:#010x} is not of the type for this operation")]
    WrongType(u32),
    /// A window of type 2 must be free to be bound.
    #[error("window {0:#010x} is bound already")]
    Bound(u32),
    /// A new key differs from the old one in its low byte, and only there.
    #[error("key {new:#010x} for window {old:#010x}: only the low byte may change, and it must")]
    Key {
        /// The window's key.
        old: u32,
        /// The key given.
        new: u32,
    },
    /// A window of type 2 must have a length.
    #[error("window {0:#010x} cannot be bound to no bytes")]
    Empty(u32),
    /// A window of type 1 cannot be zero-based.
    #[error("window {0:#010x} of type 1 cannot be zero-based")]
    ZeroBased(u32),
    /// The key is that of a region, which is not invalidated by a work request.
    #[error(
        "key {0:#010x} is that of a registered region, which a work request does not invalidate"
    )]
    IsRegion(u32),
    /// No key is free.
    #[error("no key is free for another window")]
    Full,
    /// The protection domain does not exist.
    #[error("protection domain {0} does not exist on this card")]
    UnknownDomain(u32),
}

impl Memory {
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

    fn window(&self, key: u32) -> Result<Window, WindowError> {
        match self.slots.get(index(key)) {
            Some(Slot {
                entry: Entry::Window(w),
                ..
            }) if w.key == key => Ok(*w),
            _ => Err(WindowError::UnknownKey(key)),
        }
    }

    pub(super) fn through_window(
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
