//! What [`handover`](super::handover) is made of. Its model check has the same names from another house.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

/// As the standard one, but reached within a function.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) fn new(inner: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(inner))
    }

    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline]
    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
