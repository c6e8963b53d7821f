//! Atomics, from the side that carries them out.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Section};
use softroce_sim::card::{AsyncEvent, Refusal, Remote, State, Work};
use softroce_sim::memory::{Access, Buffer};
use softroce_sim::wire::{Ext, NakCode, Opcode, RemoteKey};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A compare-and-swap swaps on equality alone",
        [a_compare_and_swap_swaps_on_equality_alone]
    ),
    rule!(
        Behaviour,
        "A fetch-and-add carries and wraps",
        [a_fetch_and_add_carries_and_wraps]
    ),
    rule!(
        Behaviour,
        "Operands cross the wire in network order, memory is in host order",
        [operands_cross_the_wire_in_network_order_and_memory_is_in_host_order]
    ),
    rule!(
        Section("9.4.5"),
        "An address that is not aligned is an invalid request",
        [an_address_that_is_not_aligned_is_an_invalid_request]
    ),
    rule!(
        Behaviour,
        "The queue pair must allow atomics",
        [the_queue_pair_must_allow_atomics]
    ),
    rule!(
        Section("9.7.4.1.5"),
        "The region must allow atomics and hold all eight bytes",
        [the_region_must_allow_atomics_and_hold_all_eight_bytes]
    ),
    rule!(
        Behaviour,
        "A duplicate returns the original value and is carried out once",
        [a_duplicate_atomic_returns_the_original_value_and_executes_once]
    ),
    rule!(
        Behaviour,
        "A duplicate older than what is remembered is dropped",
        [a_duplicate_older_than_what_is_remembered_is_dropped_and_not_executed]
    ),
    rule!(
        Behaviour,
        "More atomics than the program allowed are invalid",
        [more_atomics_than_the_program_allowed_are_invalid]
    ),
    rule!(
        Behaviour,
        "An atomic does not begin inside a message",
        [an_atomic_does_not_begin_inside_a_message]
    ),
    rule!(
        Section("9.5"),
        "Answers stand in the order of the requests",
        [answers_stand_in_the_order_of_the_requests]
    ),
    rule!(
        Behaviour,
        "An atomic after a gap is not carried out",
        [an_atomic_after_a_gap_is_not_executed]
    ),
    rule!(
        Behaviour,
        "An atomic with payload, or without its header, is invalid",
        [an_atomic_with_payload_or_without_its_header_is_invalid]
    ),
    rule!(
        Section("A19.4.2"),
        "An ATOMIC WRITE carries eight bytes to an aligned address",
        [an_atomic_write_carries_exactly_eight_bytes]
    ),
    rule!(
        Behaviour,
        "An ATOMIC WRITE is answered by a READ response without data",
        [an_atomic_write_is_answered_by_a_read_response_without_data]
    ),
];

const NONE: [&str; 0] = [];

/// The eight bytes at `offset`, in the order of this machine.
fn word(b: &Bench, offset: usize) -> u64 {
    u64::from_ne_bytes(b.memory(offset, 8).try_into().unwrap())
}

fn with_word(value: u64) -> Bench {
    let b = Bench::ready();
    b.buffer.write_at(8, &value.to_ne_bytes());
    b
}

/// The peer's atomic is refused with `code`, and memory stays as it was.
fn refused(mut b: Bench, bad: Say, code: NakCode) {
    let what = format!("{bad:?}");
    let memory = b.buffer.to_vec();
    b.hear(bad);
    assert_eq!(b.says(), [format!("NAK 0 {code} msn 0")], "{what}");
    assert_eq!(b.state(), State::Error, "{what}");
    assert_eq!(b.buffer.to_vec(), memory, "{what}");
    let event = match code {
        NakCode::RemoteAccessError => AsyncEvent::QpAccessError(b.qp.number()),
        _ => AsyncEvent::QpRequestError(b.qp.number()),
    };
    assert_eq!(b.events(), [event], "{what}");
}

/// A region of 16 bytes on the card, as the peer names it.
fn region(b: &mut Bench, access: Access) -> (Buffer, Remote) {
    let buffer = Buffer::new(16);
    let mr = b.card.register(b.pd, buffer.clone(), access).unwrap();
    let at = Remote {
        addr: mr.addr,
        rkey: mr.rkey,
    };
    (buffer, at)
}

fn a_compare_and_swap_swaps_on_equality_alone() {
    for (found, compare, swap, after) in [
        (5, 5, 9, 9),
        (5, 6, 9, 5),
        (0, 0, u64::MAX, u64::MAX),
        // Every byte counts.
        (0x0100_0000_0000_0000, 0, 1, 0x0100_0000_0000_0000),
        (1, 0, 7, 1),
    ] {
        let mut b = with_word(found);
        b.hear(compare_swap(0, b.remote(8), compare, swap));
        assert_eq!(
            b.says(),
            [format!("Atomic Acknowledge 0 was {found} msn 1")]
        );
        assert_eq!(word(&b, 8), after);
        assert_eq!((word(&b, 0), word(&b, 16)), (0, 0));
        assert!(b.completed().is_empty());
    }
}

fn a_fetch_and_add_carries_and_wraps() {
    for (found, add, after) in [
        (1, 2, 3),
        (0xffff_ffff, 1, 0x1_0000_0000),
        (u64::MAX, 1, 0),
        (u64::MAX, u64::MAX, u64::MAX - 1),
        (1 << 63, 1 << 63, 0),
        (7, 0, 7),
    ] {
        let mut b = with_word(found);
        b.hear(fetch_add(0, b.remote(8), add));
        assert_eq!(
            b.says(),
            [format!("Atomic Acknowledge 0 was {found} msn 1")]
        );
        assert_eq!(word(&b, 8), after);
        assert_eq!((word(&b, 0), word(&b, 16)), (0, 0));
    }
}

fn operands_cross_the_wire_in_network_order_and_memory_is_in_host_order() {
    // rdma_rxe, 2025-01-28. What the program sees is a number of its machine, and so is what comes back.
    let mut b = with_word(0x0102_0304_0506_0708);
    let packet = b.packet_of(fetch_add(0, b.remote(8), 0x1000_0000_0000_0001));
    let Ext::Atomic(eth) = packet.ext else {
        unreachable!()
    };
    assert_eq!(eth.to_bytes()[12..20], [0x10, 0, 0, 0, 0, 0, 0, 1]);
    let route = b.route;
    b.card.receive(b.now, &packet, &route, &mut b.env);
    assert_eq!(word(&b, 8), 0x1102_0304_0506_0709);
    // The requester's side: the answer is stored as a number too, whatever it is cut into.
    let mut b = Bench::ready();
    let sges = [b.sge(3, 5), b.sge(40, 0), b.sge(101, 3)];
    b.post(
        1,
        Work::FetchAdd {
            at: elsewhere(),
            add: 1,
        },
        &sges,
    );
    b.says();
    b.hear(atomic_ack(0, 0x0102_0304_0506_0708));
    let bytes = [b.memory(3, 5), b.memory(101, 3)].concat();
    assert_eq!(bytes, 0x0102_0304_0506_0708u64.to_ne_bytes());
    assert_eq!(b.memory(104, 1), [0]);
}

fn an_address_that_is_not_aligned_is_an_invalid_request() {
    // 9.4.5, A19.4.2.
    for off in 1..8 {
        let b = Bench::ready();
        let at = b.remote(off);
        refused(b, fetch_add(0, at, 1), NakCode::InvalidRequest);
        refused(
            Bench::ready(),
            compare_swap(0, at, 0, 1),
            NakCode::InvalidRequest,
        );
        refused(
            Bench::ready(),
            atomic_write(0, at, &[1; 8]),
            NakCode::InvalidRequest,
        );
    }
}

fn the_queue_pair_must_allow_atomics() {
    let at = Bench::ready().remote(8);
    let with = |access| {
        Bench::new(Setup {
            access,
            ..Default::default()
        })
    };
    let no_atomics = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    refused(
        with(no_atomics),
        fetch_add(0, at, 1),
        NakCode::InvalidRequest,
    );
    refused(
        with(no_atomics),
        compare_swap(0, at, 0, 1),
        NakCode::InvalidRequest,
    );
    // A19.4.5.3: ATOMIC WRITE needs only the right to write.
    let mut b = with(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    b.hear(atomic_write(0, at, &[7; 8]));
    assert_eq!(b.says(), ["RDMA Read Response Only 0"]);
    let no_write = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC | Access::REMOTE_READ;
    refused(
        with(no_write),
        atomic_write(0, at, &[1; 8]),
        NakCode::InvalidRequest,
    );
}

fn the_region_must_allow_atomics_and_hold_all_eight_bytes() {
    type Make = fn(Remote) -> Say;
    let atomics: [(Make, Access); 3] = [
        (|at| fetch_add(0, at, 1), Access::REMOTE_ATOMIC),
        (|at| compare_swap(0, at, 0, 1), Access::REMOTE_ATOMIC),
        (|at| atomic_write(0, at, &[1; 8]), Access::REMOTE_WRITE),
    ];
    let rights = [
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
    ];
    for (make, needed) in atomics {
        for granted in rights {
            let mut b = Bench::ready();
            let (buffer, at) = region(&mut b, Access::LOCAL_WRITE | granted);
            if granted == needed {
                b.hear(make(at));
                assert_eq!(b.says().len(), 1);
                assert_eq!(b.state(), State::Rts);
                assert_ne!(buffer.to_vec(), vec![0; 16]);
            } else {
                refused(b, make(at), NakCode::RemoteAccessError);
                assert_eq!(buffer.to_vec(), vec![0; 16]);
            }
        }
        for off in [16, 24, u64::MAX - 7] {
            let mut b = Bench::ready();
            let (_, mut at) = region(&mut b, Access::LOCAL_WRITE | needed);
            at.addr = at.addr.wrapping_add(off) & !7;
            refused(b, make(at), NakCode::RemoteAccessError);
        }
        let mut b = Bench::ready();
        let (_, mut at) = region(&mut b, Access::LOCAL_WRITE | needed);
        at.rkey = RemoteKey(at.rkey.0 ^ 1);
        refused(b, make(at), NakCode::RemoteAccessError);
    }
}

fn a_duplicate_atomic_returns_the_original_value_and_executes_once() {
    // rdma_rxe, 2022-06-04.
    let mut b = with_word(10);
    b.hear(fetch_add(0, b.remote(8), 1));
    assert_eq!(b.says(), ["Atomic Acknowledge 0 was 10 msn 1"]);
    b.hear(fetch_add(0, b.remote(8), 1));
    assert_eq!(b.says(), ["Atomic Acknowledge 0 was 10 msn 1"]);
    assert_eq!(word(&b, 8), 11);
    // Also after others, of every kind, and with other requests between them.
    b.hear(compare_swap(1, b.remote(8), 11, 20));
    b.hear(write_only(2, b.remote(8), &100u64.to_ne_bytes()));
    b.hear(fetch_add(3, b.remote(8), 5));
    b.says();
    b.hear(fetch_add(0, b.remote(8), 1));
    b.hear(compare_swap(1, b.remote(8), 11, 20));
    assert_eq!(
        b.says(),
        [
            "Atomic Acknowledge 0 was 10 msn 4",
            "Atomic Acknowledge 1 was 11 msn 4"
        ]
    );
    assert_eq!(word(&b, 8), 105);
    assert_eq!(b.counted().duplicate_requests, 3);
    b.hear(fetch_add(4, b.remote(8), 1));
    assert_eq!(b.says(), ["Atomic Acknowledge 4 was 105 msn 5"]);
    // One that comes while the answer still waits is answered by that one.
    for _ in 0..3 {
        b.hear(fetch_add(5, b.remote(8), 1));
    }
    assert_eq!(b.says(), ["Atomic Acknowledge 5 was 106 msn 6"]);
    assert_eq!(word(&b, 8), 107);
}

fn a_duplicate_older_than_what_is_remembered_is_dropped_and_not_executed() {
    let mut b = Bench::new(Setup {
        max_dest_rd_atomic: 2,
        ..Default::default()
    });
    for n in 0..3 {
        b.hear(fetch_add(n, b.remote(8), 1));
        assert_eq!(
            b.says(),
            [format!("Atomic Acknowledge {n} was {n} msn {}", n + 1)]
        );
    }
    b.hear(fetch_add(0, b.remote(8), 1));
    assert_eq!(b.says(), NONE);
    b.hear(fetch_add(1, b.remote(8), 1));
    b.hear(fetch_add(2, b.remote(8), 1));
    assert_eq!(
        b.says(),
        [
            "Atomic Acknowledge 1 was 1 msn 3",
            "Atomic Acknowledge 2 was 2 msn 3"
        ]
    );
    assert_eq!((word(&b, 8), b.state()), (3, State::Rts));
    assert_eq!(b.refused(Refusal::Duplicate), 3);
}

fn more_atomics_than_the_program_allowed_are_invalid() {
    for limit in [0u8, 1, 3] {
        let mut b = Bench::new(Setup {
            max_dest_rd_atomic: limit,
            ..Default::default()
        });
        // READs count with them.
        for n in 0..u32::from(limit) {
            match n % 3 {
                0 => b.hear(fetch_add(n, b.remote(8), 1)),
                1 => b.hear(read(n, b.remote(8), 8)),
                _ => b.hear(atomic_write(n, b.remote(8), &[0; 8])),
            }
        }
        let n = u32::from(limit);
        b.hear(fetch_add(n, b.remote(8), 1));
        let says = b.says();
        assert_eq!(says.len(), usize::from(limit) + 1);
        assert_eq!(
            says.last().unwrap(),
            &format!("NAK {n} invalid request msn {n}")
        );
        assert_eq!(b.state(), State::Error);
    }
}

fn an_atomic_does_not_begin_inside_a_message() {
    let at = Bench::ready().remote(8);
    for bad in [
        fetch_add(1, at, 1),
        compare_swap(1, at, 0, 1),
        atomic_write(1, at, &[1; 8]),
    ] {
        let mut b = Bench::ready();
        b.hear(write(Opcode::RC_WRITE_FIRST, 0, at, 2048, &[0; 1024]));
        b.hear(bad);
        assert_eq!(b.says(), ["NAK 1 invalid request msn 0"]);
        assert_eq!(word(&b, 8), 0);
    }
}

fn answers_stand_in_the_order_of_the_requests() {
    let mut b = Bench::ready();
    let at = b.remote(8);
    b.hear(write_only(0, at, &1u64.to_ne_bytes()));
    b.hear(fetch_add(1, at, 1));
    b.hear(read(2, at, 8));
    b.hear(atomic_write(3, b.remote(16), &[1; 8]));
    b.hear(compare_swap(4, at, 2, 9));
    b.hear(write_only(5, b.remote(24), b"x"));
    assert_eq!(
        b.says(),
        [
            "ACK 0 msn 1",
            "Atomic Acknowledge 1 was 1 msn 2",
            "RDMA Read Response Only 2 [8]",
            "RDMA Read Response Only 3",
            "Atomic Acknowledge 4 was 2 msn 5",
            "ACK 5 msn 6",
        ]
    );
}

fn an_atomic_after_a_gap_is_not_executed() {
    let mut b = Bench::ready();
    b.hear(fetch_add(1, b.remote(8), 1));
    assert_eq!(b.says(), ["NAK 0 PSN sequence error msn 0"]);
    assert_eq!(word(&b, 8), 0);
}

fn an_atomic_with_payload_or_without_its_header_is_invalid() {
    let at = Bench::ready().remote(8);
    let mut with_payload = fetch_add(0, at, 1);
    with_payload.payload = vec![0; 8];
    refused(Bench::ready(), with_payload, NakCode::InvalidRequest);
    for opcode in [
        Opcode::RC_FETCH_ADD,
        Opcode::RC_COMPARE_SWAP,
        Opcode::RC_ATOMIC_WRITE,
    ] {
        let bare = say(opcode, 0, Ext::None, &[]);
        refused(Bench::ready(), bare, NakCode::InvalidRequest);
    }
}

fn an_atomic_write_carries_exactly_eight_bytes() {
    // A19, rdma_rxe 2026-04-19: other payloads must not be taken, whatever the header says.
    for (len, announced) in [
        (0, 8),
        (7, 8),
        (9, 8),
        (16, 8),
        (8, 7),
        (8, 16),
        (8, 0),
        (16, 16),
    ] {
        let b = Bench::ready();
        let to = b.remote(8);
        let ext = Ext::Reth(reth(to, announced));
        let bad = say(Opcode::RC_ATOMIC_WRITE, 0, ext, &vec![1; len]);
        refused(b, bad, NakCode::InvalidRequest);
    }
}

fn an_atomic_write_is_answered_by_a_read_response_without_data() {
    let mut b = Bench::ready();
    b.hear(atomic_write(0, b.remote(8), b"12345678"));
    let answer = b.pull().unwrap();
    assert_eq!(answer.bth.opcode(), Opcode::RC_READ_RESPONSE_ONLY);
    assert!(answer.payload.is_empty() && answer.ext.aeth().is_some());
    assert_eq!(b.memory(8, 8), b"12345678");
    // Again: answered again, not done again.
    b.hear(write_only(1, b.remote(8), b"newer..."));
    b.says();
    b.hear(atomic_write(0, b.remote(8), b"12345678"));
    assert_eq!(b.says(), ["RDMA Read Response Only 0"]);
    assert_eq!(b.memory(8, 8), b"newer...");
}
