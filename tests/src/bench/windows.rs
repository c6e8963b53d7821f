//! Memory windows on the bench.

use super::{Bench, write_only};
use softroce_sim::card::{Remote, State, Status, Work};
use softroce_sim::memory::{Access, Binding, WindowType};
use softroce_sim::wire::{NakCode, RemoteKey};

/// A window of type 2 that is not bound.
pub fn window(b: &mut Bench) -> RemoteKey {
    b.card.alloc_mw(b.pd, WindowType::Type2).unwrap()
}

/// The key with another low byte.
pub fn next(key: RemoteKey) -> RemoteKey {
    RemoteKey(key.0 & !0xff | (key.0 + 1) & 0xff)
}

/// Bytes 1000 to 2000 of the memory, for everything.
pub fn part(b: &Bench) -> Binding {
    Binding {
        lkey: b.mr.lkey,
        addr: b.mr.addr + 1000,
        len: 1000,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        zero_based: false,
    }
}

/// A request that binds a window.
pub fn bind(key: RemoteKey, binding: Binding) -> Work {
    Work::BindWindow { key, binding }
}

/// Bound by a work request, which has completed.
pub fn bound(b: &mut Bench) -> RemoteKey {
    let key = next(window(b));
    let binding = part(b);
    b.post(900, bind(key, binding), &[]);
    assert_eq!(b.says(), [""; 0]);
    assert_eq!(b.completed(), [(900, Status::Success)]);
    key
}

/// A place in the memory, through the key.
pub fn through(b: &Bench, key: RemoteKey, offset: u64) -> Remote {
    Remote {
        addr: b.mr.addr + offset,
        rkey: key,
    }
}

/// The peer's `n`-th packet, a WRITE through the key, is refused.
pub fn closed(b: &mut Bench, n: u32, at: Remote) {
    let memory = b.buffer.to_vec();
    b.hear(write_only(n, at, b"bad"));
    let says = b.says();
    assert!(
        says[0].starts_with(&format!("NAK {n} {}", NakCode::RemoteAccessError)),
        "{says:?}"
    );
    assert_eq!(b.buffer.to_vec(), memory);
    assert_eq!(b.state(), State::Error);
}
