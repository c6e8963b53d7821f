//! Memory windows: keys of their own for part of a region.

use super::{Access, LocalKey, Pd};
use crate::wire::QpNumber;

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
