//! What [`buffer`](super::buffer) is made of. Its model check has the same names from another house.

pub(super) use std::sync::atomic::{AtomicU8, AtomicU64};
