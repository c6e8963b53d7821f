//! The line of each cause, and what goes with it.

use super::*;
use crate::card::work::{AddressHandle, CqId, Remote};
use crate::memory::{Access, AccessError, Binding, LocalKey, WindowError};
use crate::wire::{NakCode, RemoteKey};
use std::net::Ipv4Addr;

fn end(host: u8, qp: u32) -> (Gid, QpNumber) {
    (Ipv4Addr::new(10, 0, 0, host).into(), QpNumber::new(qp))
}

fn write(cause: Cause) -> Failure {
    Failure {
        at: Time::from_ps(1),
        service: QpType::Rc,
        own: end(1, 17),
        peer: Some(end(2, 23)),
        subject: Subject::Send(Sent {
            number: 7,
            wr_id: 6,
            work: Work::Write(Remote {
                addr: 0,
                rkey: RemoteKey(1),
            }),
            len: 64,
            psns: Some((Psn::new(41), Psn::new(41))),
        }),
        status: Some(cause.status()),
        cause,
        tries: Vec::new(),
        earlier_tries: false,
        moved: Vec::new(),
        flushed: Flushed::default(),
    }
}

#[test]
fn each_cause_has_a_line_of_its_own() {
    use Status as S;
    let key = RemoteKey(0x103);
    let lkey = LocalKey(0x203);
    let psn = Psn::new(41);
    let unknown = AccessError::UnknownKey { key: 0x103 };
    let all = [
        (
            Cause::RetriesExceeded {
                retry_cnt: 3,
                psn,
                timeouts: 3,
                timeout: Some(Span::from_us(64)),
                sequence_naks: 1,
                implied_naks: 0,
            },
            S::RetryExceeded,
            None,
            "retry_cnt 3 used up at PSN 41 (3 timeouts of 64us, 1 sequence NAK)",
        ),
        (
            Cause::RetriesExceeded {
                retry_cnt: 0,
                psn,
                timeouts: 0,
                timeout: None,
                sequence_naks: 0,
                implied_naks: 1,
            },
            S::RetryExceeded,
            None,
            "retry_cnt 0 used up at PSN 41 (1 missing answer)",
        ),
        (
            Cause::RnrRetriesExceeded {
                rnr_retry: 2,
                psn,
                wait: Span::from_us(640),
            },
            S::RnrRetryExceeded,
            None,
            "rnr_retry 2 used up at PSN 41: the receiver was not ready, and the last RNR NAK asks for a wait of 640us",
        ),
        (
            Cause::Refused {
                code: NakCode::InvalidRequest,
                psn,
            },
            S::RemoteInvalidRequest,
            None,
            "the peer refused PSN 41: NAK invalid request",
        ),
        (
            Cause::Refused {
                code: NakCode::RemoteAccessError,
                psn,
            },
            S::RemoteAccessError,
            None,
            "the peer refused PSN 41: NAK remote access error",
        ),
        (
            Cause::Refused {
                code: NakCode::RemoteOperationalError,
                psn,
            },
            S::RemoteOperationError,
            None,
            "the peer refused PSN 41: NAK remote operational error",
        ),
        (
            Cause::MessageTooLong { len: 9, limit: 8 },
            S::LocalLengthError,
            None,
            "a message of 9 bytes; the limit is 8",
        ),
        (
            Cause::AtomicLength { len: 4 },
            S::LocalLengthError,
            None,
            "an atomic operation of 4 bytes; it has 8",
        ),
        (
            Cause::LocalProtection {
                sge: 1,
                lkey,
                addr: 0x1000,
                len: 64,
                why: AccessError::UnknownKey { key: 0x203 },
            },
            S::LocalProtectionError,
            None,
            "element 1 (lkey 0x00000203, 64 bytes at 0x1000): no memory region or window has key 0x00000203",
        ),
        (
            Cause::NoReads,
            S::LocalQpOperationError,
            None,
            "max_rd_atomic is 0: the queue pair has no READs and atomics",
        ),
        (
            Cause::AddressHandle {
                handle: AddressHandle::new(3),
                gone: false,
            },
            S::LocalQpOperationError,
            None,
            "address handle 3: it is of another protection domain",
        ),
        (
            Cause::Invalidate {
                key,
                why: WindowError::UnknownKey(0x103),
            },
            S::LocalQpOperationError,
            None,
            "key 0x00000103 cannot be invalidated: no memory window has key 0x00000103",
        ),
        (
            Cause::Bind {
                key,
                binding: Binding {
                    lkey,
                    addr: 0x1000,
                    len: 4096,
                    access: Access::REMOTE_READ,
                    zero_based: false,
                },
                why: WindowError::Bound(0x102),
            },
            S::WindowBindError,
            None,
            "no window bound as 0x00000103 to 4096 bytes at 0x1000 of the region with lkey 0x00000203: window 0x00000102 is bound already",
        ),
        (
            Cause::BadResponse {
                opcode: Opcode::RC_READ_RESPONSE_ONLY,
                psn,
                why: WrongResponse::Length {
                    len: 8,
                    expected: 64,
                    mtu: 1024,
                    pieces: None,
                },
            },
            S::BadResponse,
            None,
            "RC RDMA Read Response Only with PSN 41 does not answer it: 8 bytes where 64 were asked for",
        ),
        (
            Cause::BadResponse {
                opcode: Opcode::RC_READ_RESPONSE_FIRST,
                psn,
                why: WrongResponse::Length {
                    len: 256,
                    expected: 600,
                    mtu: 1024,
                    pieces: Some(256),
                },
            },
            S::BadResponse,
            None,
            "RC RDMA Read Response First with PSN 41 does not answer it: 256 bytes where 600 were asked for; it comes in pieces of 256 bytes, and the path MTU here is 1024",
        ),
        (
            Cause::BadResponse {
                opcode: Opcode::RC_READ_RESPONSE_ONLY,
                psn,
                why: WrongResponse::Length {
                    len: 600,
                    expected: 512,
                    mtu: 512,
                    pieces: None,
                },
            },
            S::BadResponse,
            None,
            "RC RDMA Read Response Only with PSN 41 does not answer it: 600 bytes where 512 were asked for; the path MTU here is 512",
        ),
        (
            Cause::InvalidRequest(InvalidRequest::TooManyReads {
                max_dest_rd_atomic: 1,
            }),
            S::LocalQpOperationError,
            Some(NakCode::InvalidRequest),
            "refused: more READs and atomics than max_dest_rd_atomic 1",
        ),
        (
            Cause::RemoteAccess {
                rkey: key,
                addr: 0x1000,
                len: 64,
                why: unknown,
            },
            S::LocalAccessError,
            Some(NakCode::RemoteAccessError),
            "refused: rkey 0x00000103 for 64 bytes at 0x1000: no memory region or window has key 0x00000103",
        ),
        (
            Cause::ReceiveTooShort {
                received: 64,
                room: 8,
                nak: NakCode::InvalidRequest,
                status: S::LocalLengthError,
            },
            S::LocalLengthError,
            Some(NakCode::InvalidRequest),
            "refused: 64 bytes so far, and the receive request has room for 8",
        ),
        (
            Cause::ReceiveProtection {
                sge: 0,
                lkey,
                addr: 0x1000,
                len: 64,
                why: AccessError::Rights {
                    key: 0x203,
                    asked: Access::LOCAL_WRITE,
                    granted: Access::LOCAL_READ,
                },
            },
            S::LocalProtectionError,
            Some(NakCode::RemoteOperationalError),
            "refused: element 0 of the receive request (lkey 0x00000203, 64 bytes at 0x1000): the region of key 0x00000203 grants local read; local read, local write was asked for",
        ),
        (
            Cause::RemoteInvalidate {
                key,
                why: WindowError::UnknownKey(0x103),
            },
            S::RemoteInvalidRequest,
            None,
            "key 0x00000103 cannot be invalidated, and the peer is not told: no memory window has key 0x00000103",
        ),
        (
            Cause::CqOverrun(CqId(0)),
            S::WorkRequestFlushed,
            None,
            "completion queue 0 ran over",
        ),
        (
            Cause::Flushed(Ended::Program(Time::from_ps(5_000_000))),
            S::WorkRequestFlushed,
            None,
            "the program put it into error at 5us",
        ),
        (
            Cause::Flushed(Ended::Send {
                at: Time::from_ps(5_000_000),
                number: 3,
                wr_id: 2,
                status: S::RetryExceeded,
            }),
            S::WorkRequestFlushed,
            None,
            "in error since request #3 (wr_id 2) ended with retry-exc-err at 5us",
        ),
    ];
    for (cause, status, nak, line) in all {
        assert_eq!((cause.status(), cause.nak()), (status, nak), "{cause:?}");
        assert_eq!(
            write(cause).to_string(),
            format!(
                "WRITE #7 (wr_id 6) of qp 0x000011 (10.0.0.1) to qp 0x000017 (10.0.0.2): {line}"
            )
        );
    }
}

#[test]
fn a_line_says_what_failed_and_what_was_flushed() {
    let arrived = Arrived {
        opcode: Opcode::RC_SEND_ONLY,
        psn: Psn::new(41),
    };
    let cause = Cause::InvalidRequest(InvalidRequest::UnderWay);
    let of = |subject| Failure {
        subject,
        ..write(cause)
    };
    let receive = |number| Subject::Receive {
        number,
        wr_id: 2,
        arrived,
    };
    let why = "refused: it begins while a message is under way";
    for (subject, line) in [
        (
            receive(Some(3)),
            "receive #3 (wr_id 2) of qp 0x000011 (10.0.0.1), for RC Send Only with PSN 41 from qp 0x000017 (10.0.0.2)",
        ),
        (
            receive(None),
            "receive (wr_id 2) of qp 0x000011 (10.0.0.1), for RC Send Only with PSN 41 from qp 0x000017 (10.0.0.2)",
        ),
        (
            Subject::Arrived(arrived),
            "RC Send Only with PSN 41 from qp 0x000017 (10.0.0.2) at qp 0x000011 (10.0.0.1)",
        ),
        (Subject::QueuePair, "qp 0x000011 (10.0.0.1)"),
    ] {
        assert_eq!(of(subject).to_string(), format!("{line}: {why}"));
    }
    let mut flushed = Flushed::default();
    flushed.sends.add(7);
    let mut later = Flushed::default();
    later.sends.add(8);
    later.sends.add(9);
    later.receives.add(0);
    flushed.append(later);
    assert_eq!(
        flushed.to_string(),
        "flushed: 3 sends (wr_id 7 to 9), 1 receive (wr_id 0)"
    );
}

#[test]
fn those_beyond_the_limit_are_counted_and_flushes_are_one() {
    let mut log = FailureLog::default();
    let flush = |wr_id| {
        let mut failure = write(Cause::Flushed(Ended::Program(Time::ZERO)));
        failure.flushed.sends.add(wr_id);
        failure
    };
    log.push(flush(1));
    log.push(flush(2));
    for _ in 0..MAX_FAILURES {
        log.push(write(Cause::NoReads));
    }
    let first = log.pop().unwrap();
    let Batch { count, first, last } = first.flushed.sends;
    assert_eq!((count, first, last), (2, 1, 2));
    assert_eq!(log.beyond(), 1);
    assert_eq!(std::iter::from_fn(|| log.pop()).count(), MAX_FAILURES - 1);
}
