//! Inline data: taken when it is posted, whatever the program does with its bytes afterwards.

use softroce_sim::card::{
    CreateError, MAX_INLINE, Mtu, PostError, QpInit, QpType, SendRequest, Sge, State, Status, Work,
};
use softroce_sim::time::Span;
use softroce_sim::wire::{Immediate, RemoteKey};
use softroce_tests::bench::*;

const NONE: [&str; 0] = [];

/// Posts `data` inline.
fn post(b: &mut Bench, wr_id: u64, work: Work, data: &[u8]) -> Result<(), PostError> {
    let to = (b.qp_type() == QpType::Ud).then(|| b.peer_qp());
    b.try_post(&SendRequest {
        inline: Some(data),
        to,
        ..SendRequest::new(wr_id, work, &[])
    })
}

#[test]
fn what_was_posted_is_sent_at_every_length_and_service() {
    // The card keeps it in pieces of 64 bytes: on both sides of each border.
    for service in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut b = Bench::new(Setup {
            service,
            ..Default::default()
        });
        for (id, len) in [0, 1, 63, 64, 65, 127, 128, 129, 192, 255, 256]
            .into_iter()
            .enumerate()
        {
            let mut data = pattern(id as u8, len);
            let expected = data.clone();
            post(&mut b, id as u64, Work::Send, &data).unwrap();
            data.fill(0xee);
            let p = b.pull().unwrap();
            assert_eq!(b.bytes(&p), expected, "{service:?} {len}");
            if service == QpType::Rc {
                b.hear(ack(id as u32, 0));
            }
            assert_eq!(b.completed(), [(id as u64, Status::Success)]);
        }
    }
}

#[test]
fn many_requests_share_the_room_as_long_as_they_run() {
    // Four requests of any size fit, however the pieces of earlier ones lay.
    let mut b = Bench::new(Setup {
        max_wr: 4,
        ..Default::default()
    });
    let mut n = 0;
    for round in 0..50usize {
        let lens = [round * 7 % 257, 256, round * 31 % 257, 1];
        for (i, &len) in lens.iter().enumerate() {
            let id = (4 * round + i) as u64;
            post(&mut b, id, Work::Send, &pattern(id as u8, len)).unwrap();
        }
        assert_eq!(
            post(&mut b, 0, Work::Send, b"x"),
            Err(PostError::QueueFull { capacity: 4 })
        );
        let packets = b.packets();
        for (i, p) in packets.iter().enumerate() {
            let id = 4 * round + i;
            assert_eq!(b.bytes(p), pattern(id as u8, lens[i]));
        }
        n += 4;
        b.hear(ack(n - 1, 0));
        assert_eq!(b.completed().len(), 4);
    }
}

#[test]
fn it_is_sent_again_as_it_was() {
    let mut b = Bench::ready();
    let data = pattern(1, 200);
    post(
        &mut b,
        1,
        Work::WriteImmediate(elsewhere(), Immediate::from_be(1)),
        &data,
    )
    .unwrap();
    post(&mut b, 2, Work::SendInvalidate(RemoteKey(5)), b"other").unwrap();
    for _ in 0..3 {
        let packets = b.packets();
        assert_eq!(b.bytes(&packets[0]), data);
        assert_eq!(b.bytes(&packets[1]), b"other");
        b.wait(Span::from_ms(68));
    }
    b.hear(ack(1, 2));
    assert_eq!(b.completed(), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn it_needs_no_key_and_no_element() {
    let mut b = Bench::ready();
    // Elements beside it are not looked at, not even counted.
    let wrong = [Sge {
        len: 99,
        ..Sge {
            lkey: softroce_sim::memory::LocalKey(1),
            ..b.sge(0, 1)
        }
    }; 9];
    let request = SendRequest {
        inline: Some(b"inline"),
        ..SendRequest::new(1, Work::Write(elsewhere()), &wrong)
    };
    b.try_post(&request).unwrap();
    assert_eq!(b.says(), ["RDMA Write Only 0 of 6 [6] ?"]);
}

#[test]
fn an_atomic_write_may_have_its_eight_bytes_inline() {
    let mut b = Bench::ready();
    post(&mut b, 1, Work::AtomicWrite(elsewhere()), b"12345678").unwrap();
    let p = b.pull().unwrap();
    assert_eq!(b.describe(&p), "Atomic Write 0 of 8 [8] ?");
    assert_eq!(b.bytes(&p), b"12345678");
    post(&mut b, 2, Work::AtomicWrite(elsewhere()), b"123").unwrap();
    assert_eq!(b.says(), NONE);
    b.hear(read_response(
        softroce_sim::wire::Opcode::RC_READ_RESPONSE_ONLY,
        0,
        b"",
    ));
    let done = [(1, Status::Success), (2, Status::LocalLengthError)];
    assert_eq!(b.completed(), done);
}

#[test]
fn at_the_smallest_mtu_it_is_one_packet_still() {
    let mut b = Bench::new(Setup {
        mtu: Mtu::M256,
        ..Default::default()
    });
    post(&mut b, 1, Work::Send, &pattern(3, MAX_INLINE)).unwrap();
    let p = b.pull().unwrap();
    assert_eq!(b.describe(&p), "Send Only 0 [256] ?");
    assert_eq!(b.bytes(&p), pattern(3, MAX_INLINE));
}

#[test]
fn the_limit_is_the_one_asked_for() {
    for limit in [0u32, 1, 63, 64, 100, 256] {
        let mut b = Bench::new(Setup {
            max_inline: limit,
            ..Default::default()
        });
        let data = pattern(1, limit as usize + 1);
        let error = PostError::Inline {
            len: data.len(),
            limit: limit as usize,
        };
        assert_eq!(post(&mut b, 1, Work::Send, &data), Err(error));
        post(&mut b, 2, Work::Send, &data[1..]).unwrap();
        let p = b.pull().unwrap();
        assert_eq!(b.bytes(&p), data[1..]);
    }
    let mut b = Bench::ready();
    let init = QpInit {
        max_inline: MAX_INLINE as u32 + 1,
        ..QpInit::new(QpType::Rc, b.pd, b.cq.id(), 1)
    };
    assert!(matches!(
        b.card.create_qp(&init),
        Err(CreateError::OutOfRange {
            what: "max_inline",
            ..
        })
    ));
}

#[test]
fn requests_that_carry_no_data_have_none_inline() {
    let mut b = Bench::ready();
    let at = elsewhere();
    let sges = [b.sge(0, 8)];
    for work in [
        Work::Read(at),
        Work::FetchAdd { at, add: 1 },
        Work::CompareSwap {
            at,
            compare: 0,
            swap: 1,
        },
        Work::LocalInvalidate(RemoteKey(1)),
    ] {
        // Not even of no bytes: the elements would be ignored.
        for data in [&b"12345678"[..], b""] {
            let request = SendRequest {
                inline: Some(data),
                ..SendRequest::new(1, work, &sges)
            };
            let error = PostError::Inline {
                len: data.len(),
                limit: 0,
            };
            assert_eq!(b.try_post(&request), Err(error), "{work:?}");
        }
    }
    assert_eq!((b.qp.send_room(), b.state()), (64, State::Rts));
    assert_eq!(b.says(), NONE);
}

#[test]
fn a_flush_gives_its_room_back() {
    let mut b = Bench::new(Setup {
        max_wr: 2,
        ..Setup::uc()
    });
    let mut bad = b.sge(0, 8);
    bad.lkey.0 ^= 1;
    for _ in 0..10 {
        b.post(1, Work::Send, &[bad]);
        post(&mut b, 2, Work::Send, &[1; 256]).unwrap();
        assert_eq!(b.says(), NONE);
        assert_eq!(
            b.completed(),
            [
                (1, Status::LocalProtectionError),
                (2, Status::WorkRequestFlushed)
            ]
        );
        b.go_to(State::Rts).unwrap();
    }
    post(&mut b, 3, Work::Send, &pattern(1, 256)).unwrap();
    let p = b.pull().unwrap();
    assert_eq!(b.bytes(&p), pattern(1, 256));
}
