//! Why requests of the peer are refused.

use super::{only, psn};
use softroce_sim::card::explain::{Cause, InvalidRequest};
use softroce_sim::card::{Remote, Sge, Status};
use softroce_sim::memory::{Access, AccessError, LocalKey};
use softroce_sim::wire::RemoteKey;
use softroce_tests::bench::{Bench, PEER_QP, Setup, peer_gid, send_only, write_only};

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
    let bad = Sge {
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
