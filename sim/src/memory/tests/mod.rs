//! Keys, rights, ranges, and windows; `buffer`: the memory itself.

mod buffer;

use super::*;
use crate::random::Stream;
use crate::wire::{QpNumber, RemoteKey};

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
fn a_region_that_is_zero_based_no_longer_has_its_address_again() {
    let (mut m, pd) = memory();
    let zero = ALL | Access::ZERO_BASED;
    let r = m
        .register_at(pd, 0x7000, Buffer::new(8).into(), ALL)
        .unwrap();
    let mut lkey = r.lkey;
    for (access, addr) in [(zero, 0), (zero, 0), (ALL, 0x7000), (ALL, 0x7000)] {
        let change = Reregistration {
            access: Some(access),
            ..Default::default()
        };
        let r = m.reregister(lkey, change).unwrap();
        assert_eq!(r.addr, addr, "{access}");
        let open = |addr| m.local(r.lkey, pd, addr, 8, Access::LOCAL_READ).is_ok();
        assert_eq!((open(0), open(0x7000)), (addr == 0, addr != 0));
        lkey = r.lkey;
    }
}

#[test]
fn what_finds_no_address_any_more_is_refused() {
    let (mut m, pd) = memory();
    let whole = || Storage::Counted {
        len: MAX_REGION_LEN,
    };
    let mut last = m.register(pd, whole(), ALL).unwrap();
    while let Ok(next) = m.register(pd, whole(), ALL) {
        last = next;
    }
    // Up to the last byte but one; behind it is nothing.
    let from = last.addr + MAX_REGION_LEN + 4096;
    let rest = Storage::Counted {
        len: u64::MAX - from,
    };
    assert_eq!(m.register(pd, rest, ALL).unwrap().addr, from);
    for _ in 0..2 {
        assert!(matches!(
            m.register(pd, Storage::Counted { len: 1 }, ALL),
            Err(RegisterError::Wraps { .. })
        ));
    }
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

#[test]
fn a_domain_that_was_not_given_out_is_unknown() {
    let (mut m, pd) = memory();
    let (mut richer, _) = memory();
    let unknown = richer.alloc_pd();
    assert_ne!(unknown, pd);
    assert!(!m.has_pd(unknown));
    let refused = RegisterError::UnknownDomain(1);
    let storage = || Storage::from(Buffer::new(8));
    assert_eq!(m.register(unknown, storage(), ALL), Err(refused));
    assert_eq!(m.register_at(unknown, 0x1000, storage(), ALL), Err(refused));
    assert_eq!(
        m.alloc_window(unknown, WindowType::Type2),
        Err(WindowError::UnknownDomain(1))
    );
}

#[test]
fn the_longest_region_is_registered_and_one_byte_more_is_not() {
    let (mut m, pd) = memory();
    let counted = |len| Storage::Counted { len };
    let longest = 1 << 48;
    let len = longest + 1;
    let too_long = Err(RegisterError::TooLong { len });
    assert_eq!(
        m.register(pd, counted(longest), ALL).map(|r| r.len),
        Ok(longest)
    );
    assert_eq!(m.register(pd, counted(len), ALL), too_long);
    assert_eq!(
        m.register_at(pd, 0x1000, counted(longest), ALL)
            .map(|r| r.len),
        Ok(longest)
    );
    assert_eq!(m.register_at(pd, 0x1000, counted(len), ALL), too_long);
    assert_eq!(
        m.register_at(pd, 0x1000, counted(u64::MAX), ALL),
        Err(RegisterError::TooLong { len: u64::MAX })
    );
}

#[test]
fn memory_of_no_bytes_is_empty() {
    for len in [0, 1, 8] {
        assert_eq!(Buffer::new(len).is_empty(), len == 0);
        assert_eq!(Storage::from(Buffer::new(len)).is_empty(), len == 0);
        let len = len as u64;
        assert_eq!(Storage::Counted { len }.is_empty(), len == 0);
    }
}

#[test]
fn a_refusal_names_key_range_and_rights() {
    let (mut m, pd) = memory();
    let r = m
        .register_at(pd, 0x1000, Buffer::new(16).into(), Access::LOCAL_WRITE)
        .unwrap();
    let (key, id) = (r.lkey, (pd, QP));
    let rights = m.remote(r.rkey, id, 0x1000, 1, Access::REMOTE_READ);
    assert_eq!(
        rights.unwrap_err().to_string(),
        format!(
            "the region of key {key} grants local read, local write; local read, remote read was \
             asked for"
        )
    );
    let range = m.local(key, pd, 0x1008, 9, Access::LOCAL_READ);
    assert_eq!(
        range.unwrap_err().to_string(),
        format!("9 bytes at 0x1008 are outside the region of key {key} (0x1000, 16 bytes)")
    );
    assert_eq!(
        WindowError::NotBindable(LocalKey(0x12ab)).to_string(),
        "the region of key 0x000012ab does not allow windows"
    );
    // Eight bits of a key are its tag, 24 its place.
    assert_eq!(
        RegisterError::Full.to_string(),
        "16777216 regions and windows exist, the most there can be"
    );
}

#[test]
fn a_page_that_opens_nothing_lies_between_regions() {
    let (mut m, pd) = memory();
    let sizes = [1, 4096, 4097, 0, 10_000, 8];
    let regions = sizes.map(|n| m.register(pd, Buffer::new(n).into(), ALL).unwrap());
    for (one, next) in regions.iter().zip(&regions[1..]) {
        assert!(one.addr.is_multiple_of(4096));
        assert!(one.addr + one.len + 4096 <= next.addr, "{one:?} {next:?}");
    }
}

#[test]
fn keys_that_come_and_go_leave_the_others_alone() {
    let (mut m, pd) = memory();
    let mut kept: Vec<MemoryRegion> = Vec::new();
    let opens = |m: &Memory, r: &MemoryRegion| {
        let place = m.local(r.lkey, pd, r.addr, 8, Access::LOCAL_WRITE);
        place.is_ok_and(|p| p.update(|v| v) == u64::from(r.lkey.0))
    };
    let mut stale = Vec::new();
    for round in 0..20_000 {
        let buffer = Buffer::new(8);
        let mut r = m.register(pd, buffer.clone().into(), ALL).unwrap();
        if round % 3 == 0 {
            stale.push(r.lkey);
            r = m.reregister(r.lkey, Reregistration::default()).unwrap();
        }
        buffer.update(0, |_| r.lkey.0.into());
        assert!(opens(&m, &r), "{round}");
        if round % 1000 == 0 {
            kept.push(r);
        } else {
            m.deregister(r.lkey).unwrap();
            stale.push(r.lkey);
        }
    }
    assert!(kept.iter().all(|r| opens(&m, r)));
    // A place rests before it is used again, and is used again: the table is no longer than what rests in it.
    let places = |keys: &[LocalKey]| keys.iter().map(|k| k.0 >> 8).max();
    assert!(places(&stale) < Some(2000), "{:?}", places(&stale));
    // Of the latest thousand none opens anything, or changes what has its place now.
    for &key in stale.iter().rev().take(1000) {
        let unknown = Err(RegisterError::UnknownKey(key.0));
        assert_eq!(m.reregister(key, Reregistration::default()), unknown);
        assert_eq!(m.deregister(key), Err(RegisterError::UnknownKey(key.0)));
    }
    for r in &kept {
        let other = LocalKey(r.lkey.0 ^ 1);
        let unknown = Err(RegisterError::UnknownKey(other.0));
        assert_eq!(m.reregister(other, Reregistration::default()), unknown);
        assert!(opens(&m, r));
    }
}

#[test]
fn a_right_that_is_given_twice_is_given() {
    for a in [Access::LOCAL_READ, Access::LOCAL_WRITE, Access::MW_BIND] {
        assert_eq!(a | a, a);
        assert_eq!(a | a | Access::REMOTE_READ, Access::REMOTE_READ | a);
    }
}
