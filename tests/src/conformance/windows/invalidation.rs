//! Work that stays on the card, among work that does not; and keys that a peer's SEND ends.

use crate::bench::windows::*;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Section};
use softroce_sim::card::{CompletionKind, RecvRequest, SendRequest, State, Status, Work};
use softroce_sim::memory::{Access, Binding, Buffer, WindowType};
use softroce_sim::wire::{NakCode, Opcode, RemoteKey};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "Local work completes behind what is outstanding",
        [local_work_completes_behind_what_is_outstanding]
    ),
    rule!(
        Section("10.6.5.1"),
        "A fenced invalidation waits for everything before it",
        [a_fenced_invalidation_waits_for_everything_before_it]
    ),
    rule!(
        Section("10.8.3.3"),
        "A fenced bind waits for READs alone",
        [a_fenced_bind_waits_for_reads_alone]
    ),
    rule!(
        Behaviour,
        "Binds that fail end the queue pair",
        [binds_that_fail]
    ),
    rule!(
        Behaviour,
        "Invalidations that fail end the queue pair",
        [invalidations_that_fail]
    ),
    rule!(
        Behaviour,
        "The key of a region outlives attempts to invalidate it",
        [the_key_of_a_region_outlives_attempts_to_invalidate_it]
    ),
    rule!(
        Behaviour,
        "A SEND with invalidate delivers, and closes the window",
        [a_send_with_invalidate_delivers_and_closes_the_window]
    ),
    rule!(
        Section("9.4.1.1.3"),
        "Another connection's window is not the peer's to invalidate",
        [another_connections_window_is_not_the_peers_to_invalidate]
    ),
    rule!(
        Behaviour,
        "The key to invalidate goes with the last packet",
        [the_requester_sends_the_key_with_the_last_packet]
    ),
];

const NONE: [&str; 0] = [];

/// A bind fails: its request completes with an error after those before it, what follows is flushed.
fn bind_fails(mut b: Bench, work: Work, status: Status) {
    b.post_send(1, 8);
    let request = SendRequest {
        signaled: false,
        ..SendRequest::new(2, work, &[])
    };
    b.try_post(&request).unwrap();
    b.post_send(3, 8);
    b.post_recv(4, 0, 8);
    assert_eq!(b.says(), ["Send Only 0 [8] ?"]);
    assert!(b.completed().is_empty(), "{work:?}");
    b.hear(ack(0, 1));
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, status),
            (3, Status::WorkRequestFlushed),
            (4, Status::WorkRequestFlushed)
        ],
        "{work:?}"
    );
    assert_eq!((b.state(), b.says()), (State::Error, vec![]));
    assert!(b.events().is_empty(), "the completion tells");
}

fn local_work_completes_behind_what_is_outstanding() {
    let mut b = Bench::ready();
    let key = next(window(&mut b));
    b.post_send(1, 8);
    b.post_read(2, 8);
    let binding = part(&b);
    b.post(3, bind(key, binding), &[]);
    b.post(4, Work::LocalInvalidate(key), &[]);
    b.post_write(5, 8);
    let again = next(key);
    b.post(6, bind(again, binding), &[]);
    assert_eq!(
        b.says(),
        [
            "Send Only 0 [8] ?",
            "RDMA Read Request 1 of 8 ?",
            "RDMA Write Only 2 of 8 [8] ?"
        ],
        "local work sends nothing and takes no PSN"
    );
    assert!(b.completed().is_empty());
    b.hear(ack(0, 1));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, &[0; 8]));
    assert_eq!(b.completed(), [2, 3, 4].map(|id| (id, Status::Success)));
    b.hear(ack(2, 3));
    assert_eq!(b.completed(), [5, 6].map(|id| (id, Status::Success)));
    // Going back over local work sends what has packets and does nothing twice.
    b.post_send(7, 8);
    b.post(8, Work::LocalInvalidate(again), &[]);
    b.post_send(9, 8);
    assert_eq!(b.says().len(), 2);
    b.hear(nak(3, NakCode::PsnSequenceError));
    assert_eq!(b.says(), ["Send Only 3 [8] ?", "Send Only 4 [8] ?"]);
    b.hear(ack(4, 5));
    assert_eq!(b.completed(), [7, 8, 9].map(|id| (id, Status::Success)));
}

fn a_fenced_invalidation_waits_for_everything_before_it() {
    // 10.6.5.1: a peer may be using the key for any of that, a SEND or WRITE as well as a READ.
    for fence in [false, true] {
        let mut b = Bench::ready();
        let key = bound(&mut b);
        b.post_send(1, 8);
        let request = SendRequest {
            fence,
            ..SendRequest::new(2, Work::LocalInvalidate(key), &[])
        };
        b.try_post(&request).unwrap();
        b.post_send(3, 8);
        let sent = b.says().len();
        assert_eq!(sent, if fence { 1 } else { 2 });
        let at = through(&b, key, 1000);
        if !fence {
            closed(&mut b, 0, at);
            continue;
        }
        b.hear(write_only(0, at, b"peer"));
        assert_eq!(b.says(), ["ACK 0 msn 1"]);
        b.hear(ack(0, 1));
        assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
        b.hear(ack(1, 2));
        assert_eq!(b.completed(), [1, 2, 3].map(|id| (id, Status::Success)));
        closed(&mut b, 1, at);
    }
}

fn a_fenced_bind_waits_for_reads_alone() {
    let mut b = Bench::ready();
    let key = next(window(&mut b));
    b.post_read(1, 8);
    b.post_write(2, 8);
    let fenced = SendRequest {
        fence: true,
        ..SendRequest::new(3, bind(key, part(&b)), &[])
    };
    b.try_post(&fenced).unwrap();
    b.post_write(4, 8);
    assert_eq!(b.says().len(), 2);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[0; 8]));
    assert_eq!(b.says(), ["RDMA Write Only 2 of 8 [8] ?"]);
}

fn binds_that_fail() {
    type Make = fn(&mut Bench) -> Work;
    let makers: [Make; 10] = [
        // Outside its region.
        |b| {
            bind(
                next(window(b)),
                Binding {
                    len: 64 << 10,
                    ..part(b)
                },
            )
        },
        |b| {
            bind(
                next(window(b)),
                Binding {
                    addr: u64::MAX - 10,
                    ..part(b)
                },
            )
        },
        // To nothing (type 2 cannot be).
        |b| bind(next(window(b)), Binding { len: 0, ..part(b) }),
        // No such region, or one of another domain, or one that allows no windows.
        |b| {
            let mut binding = part(b);
            binding.lkey.0 ^= 1;
            bind(next(window(b)), binding)
        },
        |b| {
            let other = b.card.alloc_pd();
            let rights = all_rights() | Access::MW_BIND;
            let mr = b.card.register(other, Buffer::new(64), rights).unwrap();
            bind(
                next(window(b)),
                Binding {
                    lkey: mr.lkey,
                    addr: mr.addr,
                    len: 8,
                    ..part(b)
                },
            )
        },
        |b| {
            let mr = b
                .card
                .register(b.pd, Buffer::new(64), all_rights())
                .unwrap();
            bind(
                next(window(b)),
                Binding {
                    lkey: mr.lkey,
                    addr: mr.addr,
                    len: 8,
                    ..part(b)
                },
            )
        },
        // Writing through a region that cannot be written.
        |b| {
            let mr = b
                .card
                .register(b.pd, Buffer::new(64), Access::MW_BIND)
                .unwrap();
            bind(
                next(window(b)),
                Binding {
                    lkey: mr.lkey,
                    addr: mr.addr,
                    len: 8,
                    ..part(b)
                },
            )
        },
        // A window of type 1, one of another domain, one with the key it has.
        |b| {
            let w = b.card.alloc_mw(b.pd, WindowType::Type1).unwrap();
            bind(next(w), part(b))
        },
        |b| {
            let other = b.card.alloc_pd();
            let w = b.card.alloc_mw(other, WindowType::Type2).unwrap();
            bind(next(w), part(b))
        },
        |b| bind(window(b), part(b)),
    ];
    for make in makers {
        let mut b = Bench::ready();
        let work = make(&mut b);
        bind_fails(b, work, Status::WindowBindError);
    }
    // A window that is bound must be invalidated first.
    let mut b = Bench::ready();
    let key = bound(&mut b);
    let work = bind(next(key), part(&b));
    bind_fails(b, work, Status::WindowBindError);
    // A key that names no window at all.
    let b = Bench::ready();
    let work = bind(RemoteKey(0xffff_ff00), part(&b));
    bind_fails(b, work, Status::WindowBindError);
}

fn invalidations_that_fail() {
    type Make = fn(&mut Bench) -> RemoteKey;
    let makers: [Make; 5] = [
        // An ordinary region.
        |b| b.mr.rkey,
        // A window that is not bound, a stale key of one that is, one of type 1, and nothing.
        window,
        |b| next(bound(b)),
        |b| {
            let w = b.card.alloc_mw(b.pd, WindowType::Type1).unwrap();
            b.card.bind_mw(b.qp.number(), w, part(b)).unwrap()
        },
        |_| RemoteKey(0),
    ];
    for make in makers {
        let mut b = Bench::ready();
        let key = make(&mut b);
        bind_fails(b, Work::LocalInvalidate(key), Status::LocalQpOperationError);
        // And by the peer: its SEND arrives, but the receive completes in error. The peer is not
        // told (class J).
        let mut b = Bench::ready();
        let key = make(&mut b);
        b.post_recv(1, 0, 64);
        b.post_recv(2, 0, 64);
        b.hear(write_only(0, b.remote(8192), b"before"));
        b.hear(send_invalidate(1, b"text", key));
        assert_eq!(b.says(), ["ACK 0 msn 1"], "{key:?}");
        assert_eq!(
            b.completed(),
            [
                (1, Status::RemoteInvalidRequest),
                (2, Status::WorkRequestFlushed)
            ]
        );
        assert_eq!(b.state(), State::Error);
        assert_eq!(b.counted().naks_sent.total(), 0);
        assert!(b.events().is_empty());
    }
}

fn the_key_of_a_region_outlives_attempts_to_invalidate_it() {
    let mut b = Bench::ready();
    let other = b.another();
    b.post(1, Work::LocalInvalidate(b.mr.rkey), &[]);
    b.says();
    assert_eq!(b.completed(), [(1, Status::LocalQpOperationError)]);
    b.hear(write_only(0, b.remote(0), b"open").to(other.number()));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.memory(0, 4), b"open");
}

fn a_send_with_invalidate_delivers_and_closes_the_window() {
    let mut b = Bench::ready();
    let key = bound(&mut b);
    let data = pattern(1, 1030);
    b.post_recv(1, 4000, 2000);
    b.hear(send(Opcode::RC_SEND_FIRST, 0, &data[..1024]));
    // Until its last packet the key is good.
    let ieth = softroce_sim::wire::Ext::Ieth(key);
    b.hear(say(Opcode::RC_SEND_LAST_INVALIDATE, 1, ieth, &data[1024..]).ask());
    assert_eq!(b.says(), ["ACK 1 msn 1"]);
    let c = b.poll();
    assert_eq!(
        (
            c[0].wr_id,
            c[0].status,
            c[0].byte_len,
            c[0].invalidated,
            c[0].immediate
        ),
        (1, Status::Success, 1030, Some(key), None)
    );
    assert_eq!(b.memory(4000, 1030), data);
    // A copy of it is a duplicate like any other.
    b.hear(say(Opcode::RC_SEND_LAST_INVALIDATE, 1, ieth, &data[1024..]).ask());
    assert_eq!(b.says(), ["ACK 1 msn 1"]);
    assert_eq!(b.state(), State::Rts);
    let at = through(&b, key, 1000);
    closed(&mut b, 2, at);
    // The window can be bound again.
    let mut b = Bench::ready();
    let key = bound(&mut b);
    b.post_recv(1, 0, 8);
    b.hear(send_invalidate(0, b"x", key));
    let binding = part(&b);
    b.post(2, bind(next(key), binding), &[]);
    b.says();
    assert_eq!(b.completed(), [1, 2].map(|id| (id, Status::Success)));
    b.hear(write_only(1, through(&b, next(key), 1000), b"again"));
    assert_eq!(b.says(), ["ACK 1 msn 2"]);
}

fn another_connections_window_is_not_the_peers_to_invalidate() {
    let mut b = Bench::ready();
    let mut other = b.another();
    let key = bound(&mut b);
    let sges = [b.sge(0, 64)];
    other
        .post_recv(&RecvRequest {
            wr_id: 1,
            sges: &sges,
        })
        .unwrap();
    b.hear(send_invalidate(0, b"x", key).to(other.number()));
    assert_eq!(b.completed(), [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(b.says(), NONE);
    b.hear(write_only(0, through(&b, key, 1000), b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
}

fn the_requester_sends_the_key_with_the_last_packet() {
    let mut b = Bench::ready();
    let sges = [b.sge(0, 1025)];
    let key = RemoteKey(0xabcd);
    b.post(1, Work::SendInvalidate(key), &sges);
    b.post(2, Work::SendInvalidate(key), &[]);
    let text = format!("of {key}");
    assert_eq!(
        b.says(),
        [
            "Send First 0 [1024]".to_string(),
            format!("Send Last Invalidate 1 {text} [1] ?"),
            format!("Send Only Invalidate 2 {text} ?"),
        ]
    );
    b.hear(ack(2, 2));
    let c = b.poll();
    assert_eq!(
        (c.len(), c[0].kind, c[0].invalidated),
        (2, CompletionKind::Send, None)
    );
}
