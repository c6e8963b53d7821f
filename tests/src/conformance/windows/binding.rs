//! Memory windows: what they open, and when they close.

use crate::bench::windows::*;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{AsyncEvent, CompletionKind, Remote, SendRequest, State, Status, Work};
use softroce_sim::memory::{
    Access, AccessError, Binding, Buffer, Reregistration, WindowError, WindowType,
};
use softroce_sim::wire::Opcode;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A window opens its bytes and no others",
        [a_window_opens_its_bytes_with_its_rights]
    ),
    rule!(
        Behaviour,
        "A window has rights of its own",
        [a_window_has_its_own_rights]
    ),
    rule!(
        Behaviour,
        "A zero-based window counts from zero",
        [a_zero_based_window_counts_from_zero]
    ),
    rule!(
        Behaviour,
        "A window of type 2 serves its queue pair alone",
        [a_window_of_type_2_serves_its_queue_pair_alone]
    ),
    rule!(
        Id("C10-68"),
        "Nothing passes through a former binding",
        [nothing_passes_through_a_former_binding, nor_for_type_1]
    ),
    rule!(
        Behaviour,
        "A WRITE under way ends with the binding",
        [a_write_under_way_ends_with_the_binding]
    ),
    rule!(
        Section("10.6.7.2.6"),
        "A window ends with its region, and with new rights of it",
        [a_window_ends_with_its_region_and_with_new_rights_of_it]
    ),
    rule!(
        Behaviour,
        "A window that is gone opens nothing",
        [a_window_that_is_gone_opens_nothing]
    ),
    rule!(
        Id("o10-2.2.5"),
        "A queue pair with bound windows can be destroyed",
        [a_queue_pair_with_bound_windows_can_be_destroyed]
    ),
    rule!(
        Behaviour,
        "The verb binds windows of type 1 alone",
        [the_verb_binds_type_1_alone]
    ),
    rule!(
        Behaviour,
        "Unreliable connections have windows too",
        [unreliable_connections_have_windows_too]
    ),
];

fn a_window_opens_its_bytes_with_its_rights() {
    let mut b = Bench::ready();
    let key = bound(&mut b);
    b.hear(write_only(0, through(&b, key, 1000), b"first"));
    b.hear(write_only(1, through(&b, key, 1995), b"last."));
    b.hear(read(2, through(&b, key, 1000), 1000));
    b.hear(fetch_add(3, through(&b, key, 1008), 1));
    assert_eq!(
        b.says(),
        [
            "ACK 1 msn 2",
            "RDMA Read Response Only 2 [1000]",
            "Atomic Acknowledge 3 was 0 msn 4"
        ]
    );
    assert_eq!(b.memory(1000, 5), b"first");
    assert_eq!(b.memory(1995, 5), b"last.");
    for offset in [999, 1998, 0, 2000] {
        let mut b = Bench::ready();
        let key = bound(&mut b);
        let at = through(&b, key, offset);
        closed(&mut b, 0, at);
    }
}

fn a_window_has_its_own_rights() {
    let rights = [
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
    ];
    for granted in rights {
        for asked in rights {
            let mut b = Bench::ready();
            let key = next(window(&mut b));
            let binding = Binding {
                access: granted,
                ..part(&b)
            };
            b.post(1, bind(key, binding), &[]);
            b.says();
            let at = through(&b, key, 1008);
            b.hear(match asked {
                Access::REMOTE_WRITE => write_only(0, at, b"x"),
                Access::REMOTE_READ => read(0, at, 1),
                _ => fetch_add(0, at, 1),
            });
            let allowed = granted == asked;
            assert_eq!(b.state() == State::Rts, allowed, "{granted}: {asked}");
            assert_eq!(b.says()[0].starts_with("NAK 0 remote access"), !allowed);
        }
    }
}

fn a_zero_based_window_counts_from_zero() {
    let mut b = Bench::ready();
    let key = next(window(&mut b));
    let binding = Binding {
        zero_based: true,
        ..part(&b)
    };
    b.post(1, bind(key, binding), &[]);
    b.says();
    let at = |addr| Remote { addr, rkey: key };
    b.hear(write_only(0, at(0), b"zero"));
    b.hear(write_only(1, at(996), b"last"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    assert_eq!(
        (b.memory(1000, 4), b.memory(1996, 4)),
        (b"zero".to_vec(), b"last".to_vec())
    );
    closed(&mut b, 2, at(998));
}

fn a_window_of_type_2_serves_its_queue_pair_alone() {
    let mut b = Bench::ready();
    let mut other = b.another();
    let key = bound(&mut b);
    let at = through(&b, key, 1000);
    b.hear(write_only(0, at, b"x").to(other.number()));
    assert!(b.says()[0].starts_with("NAK 0 remote access"));
    assert_eq!(b.memory(1000, 1), [0]);
    assert_eq!(b.card.qp_state(other.number()), Some(State::Error));
    b.hear(write_only(0, at, b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    // Neither can another queue pair end it.
    other = b.another();
    let request = SendRequest::new(5, Work::LocalInvalidate(key), &[]);
    other.post_send(&request).unwrap();
    b.card.doorbell(b.now, other.number());
    b.says();
    assert_eq!(b.completed(), [(5, Status::LocalQpOperationError)]);
    b.hear(write_only(1, at, b"y"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
}

fn nothing_passes_through_a_former_binding() {
    // Type 2: invalidated, then bound again elsewhere with another key.
    let mut b = Bench::ready();
    let old = bound(&mut b);
    b.hear(write_only(0, through(&b, old, 1000), b"a"));
    let new = next(old);
    b.post(1, Work::LocalInvalidate(old), &[]);
    let moved = Binding {
        addr: b.mr.addr + 5000,
        ..part(&b)
    };
    b.post(2, bind(new, moved), &[]);
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    let c = b.poll();
    let kinds: Vec<_> = c.iter().map(|c| (c.wr_id, c.status, c.kind)).collect();
    assert_eq!(
        kinds,
        [
            (1, Status::Success, CompletionKind::LocalInvalidate),
            (2, Status::Success, CompletionKind::BindWindow)
        ]
    );
    b.hear(write_only(1, through(&b, new, 5000), b"b"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    assert_eq!(b.memory(5000, 1), b"b");
    let at = through(&b, old, 1000);
    closed(&mut b, 2, at);
    // Nor the new key at the old place.
    let mut b = Bench::ready();
    let old = bound(&mut b);
    b.post(1, Work::LocalInvalidate(old), &[]);
    b.post(2, bind(next(old), moved), &[]);
    b.says();
    let at = through(&b, next(old), 1000);
    closed(&mut b, 0, at);
}

fn nor_for_type_1() {
    let mut b = Bench::ready();
    let first = b.card.alloc_mw(b.pd, WindowType::Type1).unwrap();
    let number = b.qp.number();
    let binding = part(&b);
    let old = b.card.bind_mw(number, first, binding).unwrap();
    // Any queue pair of the protection domain.
    let other = b.another();
    b.hear(write_only(0, through(&b, old, 1000), b"a").to(other.number()));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    // A READ that is being answered ends with the binding.
    b.hear(read(0, through(&b, old, 1000), 1000));
    let new = b.card.bind_mw(number, old, binding).unwrap();
    assert_ne!(new, old);
    assert!(b.says()[0].starts_with("NAK 0 remote access"));
    b.hear(write_only(1, through(&b, new, 1000), b"b").to(other.number()));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    // A length of zero unbinds.
    let none = Binding { len: 0, ..binding };
    let unbound = b.card.bind_mw(number, new, none).unwrap();
    b.hear(write_only(2, through(&b, unbound, 1000), b"c").to(other.number()));
    assert!(b.says()[0].starts_with("NAK 2 remote access"));
    assert_eq!(b.memory(1000, 1), b"b");
}

fn a_write_under_way_ends_with_the_binding() {
    let mut b = Bench::new(Setup {
        mtu: softroce_sim::card::Mtu::M256,
        ..Default::default()
    });
    let key = bound(&mut b);
    let at = through(&b, key, 1000);
    b.hear(write(Opcode::RC_WRITE_FIRST, 0, at, 512, &[1; 256]));
    b.post(1, Work::LocalInvalidate(key), &[]);
    b.says();
    b.hear(send(Opcode::RC_WRITE_LAST, 1, &[2; 256]).ask());
    assert!(b.says()[0].starts_with("NAK 1 remote access"));
    assert_eq!(b.memory(1256, 256), [0; 256]);
}

fn a_window_ends_with_its_region_and_with_new_rights_of_it() {
    // 10.6.7.2.6: it may be deregistered, and then each access is checked.
    for reregister in [false, true] {
        let mut b = Bench::ready();
        let buffer = Buffer::new(64);
        let rights = all_rights() | Access::MW_BIND;
        let mr = b.card.register(b.pd, buffer.clone(), rights).unwrap();
        let key = next(window(&mut b));
        let binding = Binding {
            lkey: mr.lkey,
            addr: mr.addr,
            len: 64,
            ..part(&b)
        };
        b.post(1, bind(key, binding), &[]);
        b.says();
        let at = Remote {
            addr: mr.addr,
            rkey: key,
        };
        b.hear(write_only(0, at, b"open"));
        assert_eq!(b.says(), ["ACK 0 msn 1"]);
        if reregister {
            let change = Reregistration {
                access: Some(rights),
                ..Default::default()
            };
            b.card.reregister(mr.lkey, change).unwrap();
        } else {
            b.card.deregister(mr.lkey).unwrap();
            b.card.register(b.pd, Buffer::new(64), rights).unwrap();
        }
        closed(&mut b, 1, at);
        assert_eq!(buffer.to_vec()[..5], *b"open\0");
        assert_eq!(b.events(), [AsyncEvent::QpAccessError(b.qp.number())]);
    }
}

fn a_window_that_is_gone_opens_nothing() {
    let mut b = Bench::ready();
    let key = bound(&mut b);
    b.card.dealloc_mw(key).unwrap();
    assert_eq!(b.card.dealloc_mw(key), Err(WindowError::UnknownKey(key.0)));
    let at = through(&b, key, 1000);
    closed(&mut b, 0, at);
}

fn a_queue_pair_with_bound_windows_can_be_destroyed() {
    let mut b = Bench::ready();
    let key = bound(&mut b);
    let other = b.another();
    b.card.destroy_qp(b.qp.number()).unwrap();
    b.hear(write_only(0, through(&b, key, 1000), b"x").to(other.number()));
    assert!(b.says()[0].starts_with("NAK 0 remote access"));
    b.card.dealloc_mw(key).unwrap();
}

fn the_verb_binds_type_1_alone() {
    let mut b = Bench::ready();
    let number = b.qp.number();
    let binding = part(&b);
    let two = window(&mut b);
    assert_eq!(
        b.card.bind_mw(number, two, binding),
        Err(WindowError::WrongType(two.0))
    );
    let one = b.card.alloc_mw(b.pd, WindowType::Type1).unwrap();
    let zero = Binding {
        zero_based: true,
        ..binding
    };
    assert_eq!(
        b.card.bind_mw(number, one, zero),
        Err(WindowError::ZeroBased(one.0))
    );
    let mut stale = binding;
    stale.lkey.0 ^= 1;
    let error = AccessError::UnknownKey { key: stale.lkey.0 };
    assert_eq!(
        b.card.bind_mw(number, one, stale),
        Err(WindowError::Region(error))
    );
    // A bind that failed changes nothing.
    let key = b.card.bind_mw(number, one, binding).unwrap();
    assert!(b.card.bind_mw(number, key, stale).is_err());
    b.hear(write_only(0, through(&b, key, 1000), b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    // A window of another protection domain than its queue pair.
    let other = b.card.alloc_pd();
    let foreign = b.card.alloc_mw(other, WindowType::Type1).unwrap();
    assert_eq!(
        b.card.bind_mw(number, foreign, binding),
        Err(WindowError::WrongDomain(foreign.0))
    );
    // No bytes need no region: the window is unbound.
    let nothing = Binding { len: 0, ..stale };
    let unbound = b.card.bind_mw(number, key, nothing).unwrap();
    let at = through(&b, unbound, 1000);
    closed(&mut b, 1, at);
}

fn unreliable_connections_have_windows_too() {
    let mut b = Bench::new(Setup::uc());
    let key = bound(&mut b);
    b.hear(write_only(0, through(&b, key, 1000), b"in").uc());
    assert_eq!(b.memory(1000, 2), b"in");
    b.post_send(1, 8);
    b.post(2, Work::LocalInvalidate(key), &[]);
    b.post(3, Work::LocalInvalidate(key), &[]);
    b.post_send(4, 8);
    assert_eq!(b.says(), ["UC Send Only 0 [8]"]);
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::Success),
            (3, Status::LocalQpOperationError),
            (4, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.state(), State::Sqe);
    b.hear(write_only(1, through(&b, key, 1000), b"no").uc());
    assert_eq!(b.memory(1000, 2), b"in");
}
