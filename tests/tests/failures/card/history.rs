//! What led to a failure, and what went down with it.

use super::only;
use softroce_sim::card::explain::{Cause, Ended, Failure, Step};
use softroce_sim::card::{State, Status};
use softroce_sim::time::Span;
use softroce_sim::wire::{NakCode, Opcode};
use softroce_tests::bench::{Bench, Setup, ack, nak, read_response, rnr_nak};

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
    b.hear(ack(0, 1));
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
        ..Setup::default()
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
        ..Setup::default()
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
