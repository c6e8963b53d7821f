//! Who may touch what: protection domains, memory regions, keys.
//!
//! A region's address (its I/O virtual address) is apart from its storage, so that a card in a
//! virtual network can hand out addresses from its seed. Safe callers own library storage, a
//! [`Buffer`]; a simulation too big to carry data registers regions without storage.

mod access;
mod buffer;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod window;

pub use access::{Access, AccessError};
pub use buffer::Buffer;
pub use table::{
    LocalKey, MAX_REGION_LEN, Memory, MemoryRegion, Pd, Place, RegisterError, Reregistration,
    Storage,
};
pub use window::{Binding, WindowError, WindowType};
