//! Why requests of the program fail.

use super::{only, psn};
use softroce_sim::card::explain::{Cause, Ended, Subject, WrongResponse};
use softroce_sim::card::{RecvRequest, SendRequest, Sge, Status, Work};
use softroce_sim::memory::{AccessError, LocalKey, WindowError};
use softroce_sim::time::Span;
use softroce_sim::wire::{NakCode, Opcode, RemoteKey};
use softroce_tests::bench::windows::{bind, bound, part};
use softroce_tests::bench::{Bench, PEER_QP, Setup, ack, elsewhere, nak, read_response, rnr_nak};

/// What is done to a request, and what is said of it; the request is the first on its queue pair.
struct Case {
    setup: Setup,
    /// Posts, and plays the peer.
    act: fn(&mut Bench),
    cause: fn(&Bench) -> Cause,
    status: Status,
    /// After `NAME #1 (wr_id 1) of qp N (10.0.0.1) to qp 119 (10.0.0.2): `, or without the peer.
    line: fn(&Bench) -> String,
}

fn ready() -> Setup {
    Setup::default()
}

/// The peer refuses a WRITE for good; the syndrome is a part of what is done, so each has a function of its own.
macro_rules! refused {
    ($told:literal, $code:ident, $status:ident) => {
        (
            concat!("NAK ", $told),
            Case {
                setup: ready(),
                act: |b| {
                    b.post_write(1, 64);
                    b.says();
                    b.hear(nak(0, NakCode::$code));
                },
                cause: |_| Cause::Refused {
                    code: NakCode::$code,
                    psn: psn(500),
                },
                status: Status::$status,
                line: |_| concat!("the peer refused PSN 500: NAK ", $told).into(),
            },
        )
    };
}

fn cases() -> Vec<(&'static str, Case)> {
    vec![
        refused!("invalid request", InvalidRequest, RemoteInvalidRequest),
        refused!("remote access error", RemoteAccessError, RemoteAccessError),
        refused!(
            "remote operational error",
            RemoteOperationalError,
            RemoteOperationError
        ),
        (
            "RNR retries used up",
            Case {
                setup: Setup {
                    rnr_retry: 1,
                    ..ready()
                },
                act: |b| {
                    b.post_send(1, 64);
                    for _ in 0..2 {
                        b.says();
                        // Code 1 is 10 us.
                        b.hear(rnr_nak(0, 1));
                        b.wait(Span::from_us(10));
                    }
                },
                cause: |_| Cause::RnrRetriesExceeded {
                    rnr_retry: 1,
                    psn: psn(500),
                    wait: Span::from_us(10),
                },
                status: Status::RnrRetryExceeded,
                line: |_| {
                    "rnr_retry 1 used up at PSN 500: the receiver was not ready, and the last RNR NAK asks for a wait of 10us".into()
                },
            },
        ),
        (
            "local protection: a key that does not exist",
            Case {
                setup: ready(),
                act: |b| {
                    let good = b.sge(0, 8);
                    let bad = Sge {
                        lkey: LocalKey(0xdead_be01),
                        ..b.sge(8, 16)
                    };
                    b.post(1, Work::Send, &[good, bad]);
                    b.says();
                },
                cause: |b| Cause::LocalProtection {
                    sge: 1,
                    lkey: LocalKey(0xdead_be01),
                    addr: b.mr.addr + 8,
                    len: 16,
                    why: AccessError::UnknownKey { key: 0xdead_be01 },
                },
                status: Status::LocalProtectionError,
                line: |b| {
                    format!(
                        "element 1 (lkey 0xdeadbe01, 16 bytes at {:#x}): no memory region or window has key 0xdeadbe01",
                        b.mr.addr + 8
                    )
                },
            },
        ),
        (
            "local length: an atomic of four bytes",
            Case {
                setup: ready(),
                act: |b| {
                    let sge = b.sge(0, 4);
                    let at = elsewhere();
                    b.post(1, Work::FetchAdd { at, add: 1 }, &[sge]);
                    b.says();
                },
                cause: |_| Cause::AtomicLength { len: 4 },
                status: Status::LocalLengthError,
                line: |_| "an atomic operation of 4 bytes; it has 8".into(),
            },
        ),
        (
            "local operation: no READs",
            Case {
                setup: Setup {
                    max_rd_atomic: 0,
                    ..ready()
                },
                act: |b| {
                    b.post_read(1, 64);
                    b.says();
                },
                cause: |_| Cause::NoReads,
                status: Status::LocalQpOperationError,
                line: |_| "max_rd_atomic is 0: the queue pair has no READs and atomics".into(),
            },
        ),
        (
            "local operation: a key that is no window's",
            Case {
                setup: ready(),
                act: |b| {
                    b.post(1, Work::LocalInvalidate(RemoteKey(0xdead_be01)), &[]);
                    b.says();
                },
                cause: |_| Cause::Invalidate {
                    key: RemoteKey(0xdead_be01),
                    why: WindowError::UnknownKey(0xdead_be01),
                },
                status: Status::LocalQpOperationError,
                line: |_| {
                    "key 0xdeadbe01 cannot be invalidated: no memory window has key 0xdeadbe01"
                        .into()
                },
            },
        ),
        (
            "bad response",
            Case {
                setup: ready(),
                act: |b| {
                    b.post_read(1, 64);
                    b.says();
                    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, b"short!!!"));
                },
                cause: |_| Cause::BadResponse {
                    opcode: Opcode::RC_READ_RESPONSE_ONLY,
                    psn: psn(500),
                    why: WrongResponse::Length {
                        len: 8,
                        expected: 64,
                        // The bench's.
                        mtu: 1024,
                        pieces: None,
                    },
                },
                status: Status::BadResponse,
                line: |_| {
                    "RC RDMA Read Response Only with PSN 500 does not answer it: 8 bytes where 64 were asked for".into()
                },
            },
        ),
        (
            "retries used up without an answer",
            Case {
                setup: Setup {
                    timeout: 1,
                    retry_cnt: 2,
                    ..ready()
                },
                act: |b| {
                    b.post_write(1, 64);
                    for _ in 0..3 {
                        b.says();
                        // Exponent 1 is 8.192 us.
                        b.wait(Span::from_ns(8192));
                    }
                },
                cause: |_| Cause::RetriesExceeded {
                    retry_cnt: 2,
                    psn: psn(500),
                    timeouts: 3,
                    timeout: Some(Span::from_ns(8192)),
                    sequence_naks: 0,
                    implied_naks: 0,
                },
                status: Status::RetryExceeded,
                line: |_| "retry_cnt 2 used up at PSN 500 (3 timeouts of 8.192us)".into(),
            },
        ),
        (
            "retries used up by NAKs and a timeout",
            Case {
                setup: Setup {
                    timeout: 1,
                    retry_cnt: 2,
                    ..ready()
                },
                act: |b| {
                    b.post_write(1, 64);
                    b.says();
                    b.hear(nak(0, NakCode::PsnSequenceError));
                    b.says();
                    b.wait(Span::from_ns(8192));
                    b.says();
                    b.hear(nak(0, NakCode::PsnSequenceError));
                },
                cause: |_| Cause::RetriesExceeded {
                    retry_cnt: 2,
                    psn: psn(500),
                    timeouts: 1,
                    timeout: Some(Span::from_ns(8192)),
                    sequence_naks: 2,
                    implied_naks: 0,
                },
                status: Status::RetryExceeded,
                line: |_| {
                    "retry_cnt 2 used up at PSN 500 (1 timeout of 8.192us, 2 sequence NAKs)".into()
                },
            },
        ),
    ]
}

#[test]
fn a_request_that_fails_says_why() {
    for (name, case) in cases() {
        let mut b = Bench::new(case.setup.clone());
        (case.act)(&mut b);
        assert_eq!(b.completed(), [(1, case.status)], "{name}");
        let failure = only(&mut b);
        assert_eq!(failure.cause, (case.cause)(&b), "{name}");
        assert_eq!(failure.status, Some(case.status), "{name}");
        assert!(failure.at <= b.now, "{name}");
        let Subject::Send(sent) = failure.subject else {
            panic!("{name}: {failure:?}");
        };
        assert_eq!((sent.number, sent.wr_id), (1, 1), "{name}");
        // What is done locally has no peer.
        let to = match sent.work.is_local() {
            true => String::new(),
            false => format!(" to qp {PEER_QP:#08x} (10.0.0.2)"),
        };
        let of = format!(
            "{} #1 (wr_id 1) of qp {} (10.0.0.1){to}: ",
            sent.work.name(),
            b.qp.number()
        );
        assert_eq!(failure.to_string(), of + &(case.line)(&b), "{name}");
    }
}

#[test]
fn a_window_that_cannot_be_bound_says_why() {
    let mut b = Bench::ready();
    let key = bound(&mut b);
    let again = RemoteKey(key.0 ^ 1);
    let binding = part(&b);
    b.post(1, bind(again, binding), &[]);
    b.says();
    assert_eq!(b.completed(), [(1, Status::WindowBindError)]);
    let failure = only(&mut b);
    let why = WindowError::Bound(key.0);
    assert_eq!(
        failure.cause,
        Cause::Bind {
            key: again,
            binding,
            why
        }
    );
    // The one that was bound before is the first on this queue pair.
    assert!(matches!(failure.subject, Subject::Send(sent) if sent.number == 2));
    // Nobody else has a part in it, and `part` is 1000 bytes from byte 1000 on.
    assert_eq!(
        failure.to_string(),
        format!(
            "BIND WINDOW #2 (wr_id 1) of qp {} (10.0.0.1): no window bound as {again} to 1000 bytes at {:#x} \
             of the region with lkey {}: window {key} is bound already",
            b.qp.number(),
            b.mr.addr + 1000,
            b.mr.lkey,
        )
    );
    // The same of a key that is invalidated.
    let mut b = Bench::ready();
    b.post(1, Work::LocalInvalidate(RemoteKey(0xdead_be01)), &[]);
    b.says();
    assert_eq!(only(&mut b).peer, None);
}

/// READ data whose pieces are those of another path MTU than the queue pair's 1024.
#[test]
fn another_path_mtu_is_named() {
    for (len, first, parts) in [
        (
            2000,
            512,
            "512 bytes where 1024 were asked for; it comes in pieces of 512 bytes, and the path MTU here is 1024",
        ),
        (
            3000,
            2048,
            "2048 bytes where 1024 were asked for; it comes in pieces of 2048 bytes, and the path MTU here is 1024",
        ),
    ] {
        let mut b = Bench::ready();
        b.post_read(1, len);
        b.says();
        b.hear(read_response(
            Opcode::RC_READ_RESPONSE_FIRST,
            0,
            &vec![0; first],
        ));
        assert_eq!(b.completed(), [(1, Status::BadResponse)]);
        let line = only(&mut b).to_string();
        assert!(line.ends_with(parts), "{line}");
    }
    // The peer's is so large that all of it is one packet.
    let mut b = Bench::ready();
    b.post_read(1, 2000);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[0; 2000]));
    let line = only(&mut b).to_string();
    let parts = "2000 bytes where 1024 were asked for; the path MTU here is 1024";
    assert!(line.ends_with(parts), "{line}");
}

#[test]
fn a_full_completion_queue_is_told() {
    let mut b = Bench::new(Setup {
        cqe: 1,
        ..Setup::default()
    });
    b.post_write(1, 8);
    b.post_write(2, 8);
    b.says();
    b.hear(ack(1, 2));
    let failure = only(&mut b);
    assert!(matches!(failure.cause, Cause::CqOverrun(_)), "{failure}");
    let request = RecvRequest {
        wr_id: 9,
        sges: &[],
    };
    assert!(b.qp.post_recv(&request).is_ok());
    let request = SendRequest::new(3, Work::Send, &[]);
    b.try_post(&request).unwrap();
    let failure = only(&mut b);
    assert_eq!(failure.cause, Cause::Flushed(Ended::CqOverrun(b.now)));
}
