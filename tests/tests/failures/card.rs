//! One card and a scripted peer.

use softroce_sim::card::explain::{
    Cause, Ended, Failure, InvalidRequest, Step, Subject, WrongResponse,
};
use softroce_sim::card::{RecvRequest, Remote, SendRequest, State, Status, Work};
use softroce_sim::memory::{Access, AccessError, LocalKey, WindowError};
use softroce_sim::time::Span;
use softroce_sim::wire::{NakCode, Opcode, Psn, RemoteKey};
use softroce_tests::bench::windows::{bind, bound, part};
use softroce_tests::bench::{
    Bench, PEER_QP, Setup, elsewhere, nak, own_gid, peer_gid, read_response, rnr_nak, send_only,
    write_only,
};

/// The one failure that the card tells of.
fn only(b: &mut Bench) -> Failure {
    let failure = b.card.next_failure().expect("a failure");
    assert_eq!(b.card.next_failure(), None, "after {failure}");
    assert_eq!(failure.own, (own_gid(), b.qp.number()));
    failure
}

fn psn(n: u32) -> Psn {
    Psn::new(n)
}

fn steps(failure: &Failure) -> Vec<(u32, Step)> {
    let tries = failure.tries.iter();
    tries.map(|t| (t.psn.get(), t.step)).collect()
}

/// The counters that moved, by name.
fn moved(failure: &Failure) -> Vec<(&'static str, u64)> {
    let mut moved = failure.moved.clone();
    moved.sort_unstable();
    moved
}

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
                    let bad = softroce_sim::card::Sge {
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
fn tries_and_counters_are_those_since_an_answer_last_came() {
    let mut b = Bench::new(Setup {
        timeout: 1,
        retry_cnt: 1,
        ..Setup::default()
    });
    let timer = Span::from_ns(8192);
    b.post_write(1, 64);
    b.says();
    // Trouble that is over before the request that fails.
    b.wait(timer);
    b.says();
    b.hear(softroce_tests::bench::ack(0, 1));
    b.post_write(2, 64);
    b.says();
    let began = b.now;
    b.hear(nak(1, NakCode::PsnSequenceError));
    b.says();
    b.wait(timer);
    b.post_write(3, 64);
    assert_eq!(b.says(), [""; 0]);
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::RetryExceeded),
            (3, Status::WorkRequestFlushed)
        ]
    );
    let failure = b.card.next_failure().unwrap();
    assert_eq!(
        steps(&failure),
        [
            (501, Step::SequenceNak),
            (501, Step::Resend),
            (501, Step::Timeout(timer))
        ]
    );
    assert_eq!(failure.tries[0].at, began);
    assert_eq!(failure.tries[2].at, began + timer);
    assert!(!failure.earlier_tries);
    // The packet, the NAK, the packet sent again, the timer; not what happened before.
    assert_eq!(
        moved(&failure),
        [
            ("local_ack_timeout_err", 1),
            ("packet_seq_err", 1),
            ("rcvd_pkts", 1),
            ("request_packets", 2),
            ("retransmitted_packets", 1),
            ("sent_pkts", 2)
        ]
    );
    // What was posted to the queue pair in error says what had put it there.
    let later = b.card.next_failure().unwrap();
    let ended = Ended::Send {
        at: failure.at,
        number: 2,
        wr_id: 2,
        status: Status::RetryExceeded,
    };
    assert_eq!(later.cause, Cause::Flushed(ended));
    let sends = later.flushed.sends;
    assert_eq!((sends.count, sends.first, sends.last), (1, 3, 3));
}

/// Every packet of the request, from the first transmission on, and every packet that came, the one that ended
/// it included.
#[test]
fn counters_hold_the_first_packet_and_the_last() {
    // The first of two requests is done with the NAK; the two packets of the second one have no answer.
    let mut b = Bench::ready();
    b.post_write(1, 64);
    b.post_write(2, 2048);
    b.says();
    b.hear(nak(1, NakCode::RemoteAccessError));
    assert_eq!(
        moved(&only(&mut b)),
        [
            ("rcvd_pkts", 1),
            ("req_remote_access_errors", 1),
            ("request_packets", 2),
            ("sent_pkts", 2)
        ]
    );
    // An answer that does not fit comes to a READ, which is one packet whatever it asks for.
    let mut b = Bench::ready();
    b.post_read(1, 4096);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, b"short!!!"));
    assert_eq!(
        moved(&only(&mut b)),
        [("rcvd_pkts", 1), ("request_packets", 1), ("sent_pkts", 1)]
    );
    // A try more than there are retries, and a NAK for each.
    let mut b = Bench::new(Setup {
        rnr_retry: 1,
        ..ready()
    });
    b.post_send(1, 64);
    for _ in 0..2 {
        b.says();
        b.hear(rnr_nak(0, 1));
        b.wait(Span::from_us(10));
    }
    assert_eq!(
        moved(&only(&mut b)),
        [
            ("rcvd_pkts", 2),
            ("rcvd_rnr_err", 2),
            ("request_packets", 2),
            ("retransmitted_packets", 1),
            ("sent_pkts", 2)
        ]
    );
    // No answer at all.
    let mut b = Bench::new(Setup {
        timeout: 1,
        retry_cnt: 2,
        ..ready()
    });
    b.post_write(1, 64);
    for _ in 0..3 {
        b.says();
        b.wait(Span::from_ns(8192));
    }
    assert_eq!(
        moved(&only(&mut b)),
        [
            ("local_ack_timeout_err", 3),
            ("request_packets", 3),
            ("retransmitted_packets", 2),
            ("sent_pkts", 3)
        ]
    );
}

#[test]
fn what_is_flushed_is_counted_with_its_cause() {
    let mut b = Bench::ready();
    for n in 0..3 {
        b.post_recv(n, 0, 64);
    }
    b.post_write(1, 64);
    b.post_write(2, 64);
    b.post_write(3, 64);
    b.says();
    b.hear(nak(0, NakCode::RemoteAccessError));
    let failure = only(&mut b);
    assert_eq!(
        failure.flushed.to_string(),
        "flushed: 2 sends (wr_id 2 to 3), 3 receives (wr_id 0 to 2)"
    );

    let mut b = Bench::ready();
    b.post_write(1, 64);
    b.says();
    b.go_to(State::Error).unwrap();
    let failure = only(&mut b);
    assert_eq!(failure.cause, Cause::Flushed(Ended::Program(b.now)));
    assert_eq!(failure.status, None);
    assert_eq!(
        failure.to_string(),
        format!(
            "qp {} (10.0.0.1): the program put it into error at {}; flushed: 1 send (wr_id 1)",
            b.qp.number(),
            b.now
        )
    );
    // Nothing was queued: nothing failed.
    let mut b = Bench::ready();
    b.go_to(State::Error).unwrap();
    assert_eq!(b.card.next_failure(), None);
}

#[test]
fn a_responder_says_why_it_refused() {
    // A key that does not exist.
    let mut b = Bench::ready();
    let at = Remote {
        addr: 0x1000,
        rkey: RemoteKey(0xdead_be01),
    };
    b.hear(write_only(0, at, b"12345678"));
    let failure = only(&mut b);
    assert_eq!(
        failure.cause,
        Cause::RemoteAccess {
            rkey: at.rkey,
            addr: 0x1000,
            len: 8,
            why: AccessError::UnknownKey { key: 0xdead_be01 },
        }
    );
    assert_eq!((failure.status, failure.psn()), (None, Some(psn(100))));
    assert_eq!(failure.peer.unwrap().0, peer_gid());
    assert_eq!(
        failure.to_string(),
        format!(
            "RC RDMA Write Only with PSN 100 from qp {PEER_QP:#08x} (10.0.0.2) at qp {} (10.0.0.1): refused: \
             rkey 0xdeadbe01 for 8 bytes at 0x1000: no memory region or window has key 0xdeadbe01",
            b.qp.number()
        )
    );

    // A receive request that is too short.
    let mut b = Bench::ready();
    b.post_recv(4, 0, 8);
    b.post_recv(5, 0, 8);
    b.hear(send_only(0, &[0; 9]));
    let failure = only(&mut b);
    assert_eq!(failure.status, Some(Status::LocalLengthError));
    assert_eq!(
        failure.to_string(),
        format!(
            "receive #1 (wr_id 4) of qp {} (10.0.0.1), for RC Send Only with PSN 100 from qp {PEER_QP:#08x} \
             (10.0.0.2): refused: 9 bytes so far, and the receive request has room for 8; flushed: 1 \
             receive (wr_id 5)",
            b.qp.number()
        )
    );

    // Memory that the receive request may not use.
    let mut b = Bench::ready();
    let bad = softroce_sim::card::Sge {
        lkey: LocalKey(0xdead_be01),
        ..b.sge(0, 64)
    };
    b.try_post_recv(4, &[bad]).unwrap();
    b.hear(send_only(0, b"1234"));
    let failure = only(&mut b);
    assert_eq!(
        (failure.status, failure.cause),
        (
            Some(Status::LocalProtectionError),
            Cause::ReceiveProtection {
                sge: 0,
                lkey: bad.lkey,
                addr: bad.addr,
                len: 4,
                why: AccessError::UnknownKey { key: 0xdead_be01 },
            }
        )
    );

    // Rights that the queue pair does not give.
    let mut b = Bench::new(Setup {
        access: Access::LOCAL_WRITE,
        ..Setup::default()
    });
    let at = b.remote(0);
    b.hear(write_only(0, at, b"1234"));
    let rights = InvalidRequest::Rights(Access::REMOTE_WRITE);
    assert_eq!(only(&mut b).cause, Cause::InvalidRequest(rights));
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
    b.hear(softroce_tests::bench::ack(1, 2));
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
