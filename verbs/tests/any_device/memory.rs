//! Regions, windows, atomics: what a peer may do to memory, and what not.
#![allow(unsafe_code)]

use super::{End, LEN, QUIET, all, device, pair};
use softroce_verbs::{
    Access, Binding, Buffer, CompletionKind, Error, RemoteKey, State, Status, WindowType, Work,
};
use std::ptr::NonNull;

#[test]
fn atomics_count_in_the_order_of_this_machine() {
    let (mut a, b) = pair();
    let at = b.mr.remote(64);
    let start = 0x0102_0304_0506_07ff_u64;
    b.mr.memory().write_at(64, &start.to_ne_bytes());
    a.post(1, Work::FetchAdd { at, add: 0x101 }, 8);
    assert_eq!(a.done(1).kind, CompletionKind::FetchAdd);
    assert_eq!(a.word(0), start);
    assert_eq!(b.word(64), start + 0x101);
    for (id, compare, after) in [(2, start, start + 0x101), (3, start + 0x101, 0xabcd)] {
        let swap = 0xabcd;
        a.post(id, Work::CompareSwap { at, compare, swap }, 8);
        assert_eq!(a.done(id).kind, CompletionKind::CompareSwap);
        assert_eq!((a.word(0), b.word(64)), (start + 0x101, after));
    }
}

#[test]
fn reads_and_writes_and_what_they_may_not() {
    let (mut a, mut b) = pair();
    b.mr.memory().write_at(3000, b"far away");
    a.post(1, Work::Read(b.mr.remote(3000)), 8);
    let read = a.done(1);
    assert_eq!(read.kind, CompletionKind::Read);
    assert_eq!(a.bytes(0, 8), b"far away");
    a.post(2, Work::Write(b.mr.remote(8)), 8);
    a.done(2);
    assert_eq!(b.bytes(8, 8), b"far away");
    b.receive(5, 0, 10);
    // Over the end.
    a.post(3, Work::Write(b.mr.remote(LEN as u64 - 4)), 8);
    let refused = a.next();
    assert_eq!(
        (refused.wr_id, refused.status),
        (3, Status::RemoteAccessError)
    );
    a.post(4, Work::Send, 1);
    let flushed = a.next();
    assert_eq!(
        (flushed.wr_id, flushed.status),
        (4, Status::WorkRequestFlushed)
    );
    assert_eq!(a.qp.state().unwrap(), State::Error);
    // The responder is in error as well, and gives its receive back.
    let flushed = b.next();
    assert_eq!(
        (flushed.wr_id, flushed.status),
        (5, Status::WorkRequestFlushed)
    );
    assert_eq!(b.bytes(LEN - 4, 4), [0; 4]);
}

/// Writes through a key, and gives the status.
fn write(a: &mut End, addr: u64, rkey: RemoteKey) -> Status {
    let there = softroce_verbs::Remote { addr, rkey };
    a.post(50, Work::Write(there), 8);
    a.next().status
}

/// An address that a window does not cover: `addr`, or one beyond the region, as Linux' Soft-RoCE holds what
/// comes through a window against its region's bounds alone (`check_rkey` in its `rxe_resp.c`).
fn outside(end: &End, addr: u64) -> u64 {
    match end.context.query_device().unwrap().vendor_id {
        0xff_ffff => end.mr.addr() + LEN as u64 - 7,
        _ => addr,
    }
}

#[test]
fn windows_of_type_2() {
    for local in [true, false] {
        let (mut a, mut b) = pair();
        let mut window = b.pd.alloc_mw(WindowType::Type2).unwrap();
        let binding = b.mr.binding(1024, 512, Access::REMOTE_WRITE);
        let key = window.next_rkey();
        b.post(1, Work::BindWindow { key, binding }, 0);
        assert_eq!(b.done(1).kind, CompletionKind::BindWindow);
        let first = b.mr.addr() + 1024;
        a.mr.memory().write_at(0, b"a window");
        assert_eq!(write(&mut a, first, key), Status::Success);
        assert_eq!(b.bytes(1024, 8), b"a window");
        if local {
            b.post(2, Work::LocalInvalidate(key), 0);
            assert_eq!(b.done(2).kind, CompletionKind::LocalInvalidate);
        } else {
            b.receive(3, 0, 0);
            a.post(4, Work::SendInvalidate(key), 0);
            a.done(4);
            assert_eq!(b.done(3).invalidated, Some(key));
        }
        // Bound again, elsewhere and with another key.
        let again = window.next_rkey();
        let binding = b.mr.binding(0, 64, Access::REMOTE_WRITE);
        let bind = Work::BindWindow {
            key: again,
            binding,
        };
        b.post(5, bind, 0);
        b.done(5);
        let second = b.mr.addr();
        assert_eq!(write(&mut a, second, again), Status::Success);
        assert_eq!(write(&mut a, first, key), Status::RemoteAccessError);
    }
    // Not beyond its end, though the region goes on.
    let (mut a, mut b) = pair();
    let mut window = b.pd.alloc_mw(WindowType::Type2).unwrap();
    let binding = b.mr.binding(1024, 512, Access::REMOTE_WRITE);
    let key = window.next_rkey();
    b.post(1, Work::BindWindow { key, binding }, 0);
    b.done(1);
    let last = b.mr.addr() + 1024 + 512 - 8;
    assert_eq!(write(&mut a, last, key), Status::Success);
    let beyond = outside(&b, last + 1);
    assert_eq!(write(&mut a, beyond, key), Status::RemoteAccessError);
}

#[test]
fn windows_of_type_1() {
    let (mut a, b) = pair();
    let mut window = b.pd.alloc_mw(WindowType::Type1).unwrap();
    let before = window.rkey();
    let binding = b.mr.binding(64, 64, Access::REMOTE_WRITE);
    let key = b.qp.bind_mw(&mut window, &binding).unwrap();
    assert_eq!(key, window.rkey());
    assert_ne!(key, before);
    a.mr.memory().write_at(0, b"a window");
    // Binding is queued; nothing tells of its end, which comes soon.
    std::thread::sleep(QUIET);
    assert_eq!(write(&mut a, b.mr.addr() + 64, key), Status::Success);
    assert_eq!(b.bytes(64, 8), b"a window");
    let before = outside(&b, b.mr.addr() + 63);
    assert_eq!(write(&mut a, before, key), Status::RemoteAccessError);
}

#[test]
fn memory_that_begins_at_zero() {
    let (mut a, b) = pair();
    let zero = match b.pd.reg_new(LEN, all() | Access::ZERO_BASED) {
        Ok(zero) => zero,
        // libibverbs has no such memory.
        Err(Error::Unsupported { .. }) if device() != "softroce0" => return,
        Err(e) => panic!("{e}"),
    };
    a.mr.memory().write_at(0, b"relative");
    a.post(1, Work::Write(zero.remote(16)), 8);
    a.done(1);
    assert_eq!(&zero.memory().to_vec()[16..24], b"relative");
    assert_eq!(zero.addr(), 0);
}

#[test]
fn memory_of_the_programs_own_at_any_address() {
    let (mut a, b) = pair();
    let mut memory: Vec<u8> = vec![0x55; 300];
    let first = NonNull::from(&mut memory[3]);
    // SAFETY: the vector is not touched before region and buffer are gone.
    let buffer = unsafe { Buffer::from_raw_parts(first, 290) };
    let own = b.pd.reg_mr(&buffer, all()).unwrap();
    let message: Vec<u8> = (0..=255).collect();
    a.mr.memory().write_at(0, &message);
    a.post(1, Work::Write(own.remote(34)), 256);
    a.done(1);
    assert_eq!(buffer.to_vec()[34..], message);
    a.post(2, Work::Read(own.remote(33)), 9);
    a.done(2);
    assert_eq!(a.bytes(0, 9), [0x55, 0, 1, 2, 3, 4, 5, 6, 7]);
    a.post(3, Work::Write(own.remote(283)), 8);
    assert_eq!(a.next().status, Status::RemoteAccessError);
    drop((own, buffer));
    assert_eq!(memory[..37], [0x55; 37]);
    assert_eq!(memory[37..293], message);
    assert_eq!(memory[293..], [0x55; 7]);
}

/// What a device says to a binding that cannot be: which error depends on whose it is.
#[test]
fn windows_of_type_1_are_bound_to_regions_there_are_and_are_of_type_1() {
    let (_a, b) = pair();
    let first = &mut b.pd.alloc_mw(WindowType::Type1).unwrap();
    let second = &mut b.pd.alloc_mw(WindowType::Type2).unwrap();
    let good = b.mr.binding(64, 64, Access::REMOTE_WRITE);
    let gone = b.pd.reg_new(LEN, all()).unwrap();
    let unknown = gone.binding(64, 64, Access::REMOTE_WRITE);
    drop(gone);
    let nothing = Binding { len: 0, ..good };
    // A software card ends a binding by one to nothing, in no region.
    for (is_first, binding) in [(true, unknown), (false, good), (false, nothing)] {
        let window = if is_first { &mut *first } else { &mut *second };
        let before = window.rkey();
        let refused = b.qp.bind_mw(window, &binding);
        assert!(
            matches!(refused, Err(Error::Window(_) | Error::Os { .. })),
            "{refused:?}"
        );
        assert_eq!(window.rkey(), before);
    }
    assert!(b.qp.bind_mw(first, &good).is_ok());
}

#[test]
fn memory_is_the_programs_again_when_its_region_is_deregistered() {
    let (mut a, b) = pair();
    let mut memory = vec![0x55; 64];
    let first = NonNull::from(&mut memory[0]);
    // SAFETY: the vector is not touched before deregistration has succeeded and the buffer is gone.
    let buffer = unsafe { Buffer::from_raw_parts(first, 64) };
    let own = b.pd.reg_mr(&buffer, all()).unwrap();
    let mut window = b.pd.alloc_mw(WindowType::Type1).unwrap();
    let binding = own.binding(0, 64, Access::REMOTE_WRITE);
    b.qp.bind_mw(&mut window, &binding).unwrap();
    std::thread::sleep(QUIET);
    let there = own.remote(0);
    if let Err(refused) = own.deregister() {
        let (error, own) = *refused;
        // Drivers of libibverbs leave a region that has windows as it is.
        assert!(
            matches!(error, Error::Os { .. }) && device() != "softroce0",
            "{error}"
        );
        assert_eq!(write(&mut a, own.addr(), own.rkey()), Status::Success);
        assert_eq!(own.memory().to_vec()[..8], [0; 8]);
        own.memory().write_at(0, &[0x55; 8]);
        drop(window);
        assert!(own.deregister().is_ok());
    }
    drop(buffer);
    assert_eq!(
        write(&mut a, there.addr, there.rkey),
        Status::RemoteAccessError
    );
    assert_eq!(memory, [0x55; 64]);
}
