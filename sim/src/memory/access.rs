//! Rights on a memory region, and why an access is refused.

use std::fmt;
use std::ops::BitOr;

/// A set of access rights, with the values of `ibv_access_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u16);

impl Access {
    /// Local reading alone, which every region allows.
    pub const LOCAL_READ: Access = Access(0);
    /// The card may write on behalf of its own program: receives and READ responses.
    pub const LOCAL_WRITE: Access = Access(1);
    /// A peer may WRITE.
    pub const REMOTE_WRITE: Access = Access(2);
    /// A peer may READ.
    pub const REMOTE_READ: Access = Access(4);
    /// A peer may use atomics.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// Windows may be bound to it.
    pub const MW_BIND: Access = Access(16);
    /// Its first byte has the address zero.
    pub const ZERO_BASED: Access = Access(32);

    /// True if every right in `asked` is in this set: all of them, not one of them.
    #[inline]
    pub const fn allows(self, asked: Access) -> bool {
        self.0 & asked.0 == asked.0
    }

    /// The bits, as `ibv_access_flags` has them.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The rights among these that there are here, from bits as `ibv_access_flags` has them.
    pub const fn from_bits(bits: u16) -> Access {
        Access(bits & 63)
    }

    /// True if it has rights that a region gives only along with local write.
    #[inline]
    pub const fn writes_remotely(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("local read")?;
        for (right, name) in [
            (Access::LOCAL_WRITE, ", local write"),
            (Access::REMOTE_WRITE, ", remote write"),
            (Access::REMOTE_READ, ", remote read"),
            (Access::REMOTE_ATOMIC, ", remote atomic"),
            (Access::MW_BIND, ", windows"),
            (Access::ZERO_BASED, ", zero-based"),
        ] {
            if self.allows(right) {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({self})")
    }
}

/// Why a key does not give access to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// No live region has the key.
    #[error("no memory region or window has key {key:#010x}")]
    UnknownKey {
        /// The key.
        key: u32,
    },
    /// The region belongs to another protection domain (C10-56).
    #[error("the region of key {key:#010x} is in another protection domain")]
    WrongDomain {
        /// The key.
        key: u32,
    },
    /// The window belongs to another queue pair (o10-37.2.43).
    #[error("the window of key {key:#010x} is bound to another queue pair")]
    WrongQueuePair {
        /// The key.
        key: u32,
    },
    /// The range is not inside the region, or wraps 64 bits.
    #[error(
        "{len} bytes at {addr:#x} are outside the region of key {key:#010x} ({base:#x}, {size} bytes)"
    )]
    OutOfRange {
        /// The key.
        key: u32,
        /// First byte asked for.
        addr: u64,
        /// Number of bytes asked for.
        len: u64,
        /// First byte of the region.
        base: u64,
        /// Length of the region.
        size: u64,
    },
    /// The region does not grant every right asked for (C10-57).
    #[error("the region of key {key:#010x} grants {granted}; {asked} was asked for")]
    Rights {
        /// The key.
        key: u32,
        /// What was asked for.
        asked: Access,
        /// What the region grants.
        granted: Access,
    },
}
