//! What keys, regions and queue pairs allow a peer.

use super::KIB;
use super::refuses;
use super::region;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{AsyncEvent, Remote};
use softroce_sim::memory::{Access, Buffer};
use softroce_sim::wire::{Immediate, NakCode, Opcode, RemoteKey};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "Operations that the queue pair does not allow are invalid",
        [operations_the_queue_pair_does_not_allow_are_invalid]
    ),
    rule!(
        Behaviour,
        "Operations that the card does not have are invalid",
        [operations_this_card_does_not_have_are_invalid]
    ),
    rule!(
        Section("9.7.4.1.5"),
        "Key, range and rights are checked in WRITEs and READs",
        [keys_ranges_and_rights_are_checked_in_writes_and_reads]
    ),
    rule!(
        Section("9.7.4.1.5"),
        "A WRITE is checked as a whole when it begins",
        [a_write_is_checked_as_a_whole_when_it_begins]
    ),
    rule!(
        Behaviour,
        "A region that goes away ends the WRITE in it",
        [a_region_that_goes_away_ends_the_write_in_it]
    ),
    rule!(
        Id("C9-88"),
        "WRITEs and READs of no bytes need no key",
        [zero_bytes_need_no_key]
    ),
    rule!(
        Section("9.7.4.1"),
        "Receives come before lengths, and lengths before keys",
        [resources_come_before_lengths_and_keys]
    ),
];

fn operations_the_queue_pair_does_not_allow_are_invalid() {
    let with = |access| {
        Bench::new(Setup {
            access,
            ..Default::default()
        })
    };
    let to = Bench::ready().remote(0);
    let no_write = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let no_read = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    refuses(
        with(no_write),
        vec![],
        write_only(0, to, b"x"),
        NakCode::InvalidRequest,
    );
    refuses(
        with(no_write),
        vec![],
        write_only(0, to, b""),
        NakCode::InvalidRequest,
    );
    refuses(
        with(no_read),
        vec![],
        read(0, to, 1),
        NakCode::InvalidRequest,
    );
    refuses(
        with(no_read),
        vec![],
        read(0, to, 0),
        NakCode::InvalidRequest,
    );
    let mut b = with(Access::LOCAL_READ);
    b.still_works(0, 1);
}

fn operations_this_card_does_not_have_are_invalid() {
    for opcode in [
        Opcode::RC_COMPARE_SWAP,
        Opcode::RC_FETCH_ADD,
        Opcode::RC_ATOMIC_WRITE,
        Opcode::RC_FLUSH,
        Opcode::RC_SEND_ONLY_INVALIDATE,
        Opcode(0x15),
        Opcode(0x1f),
    ] {
        let mut b = Bench::ready();
        b.post_recv(1, 0, 64);
        refuses(b, vec![], send(opcode, 0, b""), NakCode::InvalidRequest);
    }
}

fn keys_ranges_and_rights_are_checked_in_writes_and_reads() {
    type Make = fn(&mut Bench) -> (Remote, u32);
    let cases: [Make; 7] = [
        // Bad key.
        |b| {
            (
                Remote {
                    rkey: RemoteKey(b.mr.rkey.0 ^ 1),
                    ..b.remote(0)
                },
                8,
            )
        },
        // No such region.
        |b| {
            (
                Remote {
                    rkey: RemoteKey(!0),
                    ..b.remote(0)
                },
                8,
            )
        },
        // Other domain.
        |b| {
            let pd = b.card.alloc_pd();
            let mr = b.card.register(pd, Buffer::new(64), all_rights()).unwrap();
            (
                Remote {
                    addr: mr.addr,
                    rkey: mr.rkey,
                },
                8,
            )
        },
        // Past the end.
        |b| (b.remote(b.mr.len - 7), 8),
        // Before the start.
        |b| {
            (
                Remote {
                    addr: b.mr.addr - 1,
                    ..b.remote(0)
                },
                8,
            )
        },
        // A sum that wraps 64 bits.
        |b| {
            (
                Remote {
                    addr: 0xffff_ffff_ffff_fc00,
                    ..b.remote(0)
                },
                0x400,
            )
        },
        // No remote right.
        |b| (region(b, Access::LOCAL_WRITE).1, 8),
    ];
    for make in cases {
        let mut b = Bench::ready();
        let (at, len) = make(&mut b);
        let data = pattern(3, len as usize);
        refuses(
            b,
            vec![],
            write_only(0, at, &data),
            NakCode::RemoteAccessError,
        );
        let mut b = Bench::ready();
        let (at, len) = make(&mut b);
        refuses(b, vec![], read(0, at, len), NakCode::RemoteAccessError);
    }
    // The other right does not help.
    let mut b = Bench::ready();
    let (buffer, at) = region(&mut b, Access::LOCAL_WRITE | Access::REMOTE_READ);
    refuses(
        b,
        vec![],
        write_only(0, at, b"12345678"),
        NakCode::RemoteAccessError,
    );
    assert_eq!(buffer.to_vec(), [0; 4096]);
    let mut b = Bench::ready();
    let (_, at) = region(&mut b, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    refuses(b, vec![], read(0, at, 8), NakCode::RemoteAccessError);
}

fn a_write_is_checked_as_a_whole_when_it_begins() {
    let b = Bench::ready();
    let at = b.remote(b.mr.len - 1024);
    let first = write(Opcode::RC_WRITE_FIRST, 0, at, 1025, KIB);
    refuses(b, vec![], first, NakCode::RemoteAccessError);
}

fn a_region_that_goes_away_ends_the_write_in_it() {
    let mut b = Bench::ready();
    let (buffer, at) = region(&mut b, all_rights());
    b.hear(write(Opcode::RC_WRITE_FIRST, 0, at, 2048, KIB).ask());
    assert_eq!(b.says(), ["ACK 0 msn 0"]);
    b.card
        .deregister(softroce_sim::memory::LocalKey(at.rkey.0))
        .unwrap();
    b.hear(send(Opcode::RC_WRITE_LAST, 1, KIB).ask());
    assert_eq!(b.says(), ["NAK 1 remote access error msn 0"]);
    assert_eq!(b.events(), [AsyncEvent::QpAccessError(b.qp.number())]);
    assert_eq!(buffer.to_vec()[1024..], [0; 3072]);
}

fn zero_bytes_need_no_key() {
    let nowhere = Remote {
        addr: u64::MAX,
        rkey: RemoteKey(0xdead_beef),
    };
    let mut b = Bench::ready();
    b.post_recv(1, 0, 16);
    b.hear(write_only(0, nowhere, b""));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    b.hear(write_imm(1, nowhere, b"", 42));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
    let c = b.poll();
    assert_eq!(
        (c[0].byte_len, c[0].immediate),
        (0, Some(Immediate::from_be(42)))
    );
    b.hear(read(2, nowhere, 0));
    assert_eq!(b.says(), ["RDMA Read Response Only 2"]);
    b.hear(read(2, nowhere, 0));
    assert_eq!(b.says(), ["RDMA Read Response Only 2"], "again");
    b.still_works(3, 4);
}

fn resources_come_before_lengths_and_keys() {
    // 9.7.4.1: a request that finds no receive is put off, whatever else is wrong with it.
    let mut b = Bench::ready();
    let at = Remote {
        rkey: RemoteKey(0),
        ..b.remote(0)
    };
    b.hear(write_imm(0, at, b"x", 1));
    assert_eq!(b.says(), ["RNR NAK 0 timer 12 msn 0"]);
    b.hear(send(Opcode::RC_SEND_FIRST, 0, b"short").ask());
    assert_eq!(b.says(), ["RNR NAK 0 timer 12 msn 0"]);
    // And a wrong length is found before a wrong key.
    b.hear(write(Opcode::RC_WRITE_ONLY, 0, at, 2, b"x"));
    assert_eq!(b.says(), ["NAK 0 invalid request msn 0"]);
}
