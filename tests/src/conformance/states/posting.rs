//! What may be posted in which state.

use super::in_state;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id};
use softroce_sim::card::{PostError, QpType, SendRequest, State, Status, Work};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("C10-20"),
        "A new queue pair is in RESET",
        [a_new_queue_pair_is_in_reset]
    ),
    rule!(
        Id("C10-22"),
        "In RESET nothing can be posted",
        [nothing_is_posted_in_reset]
    ),
    rule!(
        Id("C10-25"),
        "In INIT no send request can be posted",
        [no_send_is_posted_in_init]
    ),
    rule!(
        Id("C10-29"),
        "In RTR no send request can be posted",
        [no_send_is_posted_in_rtr]
    ),
    rule!(
        Behaviour,
        "Receive requests are taken from INIT on",
        [receives_are_taken_from_init_on]
    ),
    rule!(
        Behaviour,
        "Send requests are taken in RTS and SQD",
        [sends_are_taken_in_rts_and_sqd]
    ),
    rule!(
        Id("C10-96"),
        "In ERROR and SQE work is taken, and completes in error",
        [
            in_error_work_is_taken_and_completes_in_error,
            in_sqe_sends_are_taken_and_complete_in_error
        ]
    ),
    rule!(
        Behaviour,
        "Queues are as long as was asked for",
        [queues_are_as_long_as_was_asked_for]
    ),
];

fn a_new_queue_pair_is_in_reset() {
    let b = in_state(State::Reset);
    assert_eq!((b.state(), b.qp.state()), (State::Reset, State::Reset));
}

/// What posting said, for a send and a receive request, and what completed.
type Posted = ([Result<(), PostError>; 2], Vec<(u64, Status)>);

/// What becomes of a send request (1) and a receive request (2) in a state, and how they complete.
fn posted(state: State) -> Posted {
    let mut b = in_state(state);
    assert_eq!((b.state(), b.qp.state()), (state, state));
    let sge = [b.sge(0, 8)];
    let sent = b.try_post(&SendRequest::new(1, Work::Send, &sge));
    let received = b.try_post_recv(2, &sge);
    // What is not taken takes no place.
    let taken = sent.is_ok() && state != State::Error;
    assert_eq!(b.qp.send_room(), 64 - u32::from(taken), "{state}");
    let taken = received.is_ok() && state != State::Error;
    assert_eq!(b.qp.recv_room(), 64 - u32::from(taken), "{state}");
    ([sent, received], b.completed())
}

fn refused(state: State, queue: &'static str) -> Result<(), PostError> {
    Err(PostError::WrongState { state, queue })
}

fn nothing_is_posted_in_reset() {
    let errors = ["send", "receive"].map(|queue| refused(State::Reset, queue));
    assert_eq!(posted(State::Reset), (errors, vec![]));
}

fn no_send_is_posted_in_init() {
    let (results, completed) = posted(State::Init);
    assert_eq!(results[0], refused(State::Init, "send"));
    assert!(completed.is_empty());
}

fn no_send_is_posted_in_rtr() {
    let (results, completed) = posted(State::Rtr);
    assert_eq!(results[0], refused(State::Rtr, "send"));
    assert!(completed.is_empty());
}

fn receives_are_taken_from_init_on() {
    for state in [State::Init, State::Rtr, State::Rts, State::Sqd] {
        let (results, completed) = posted(state);
        assert_eq!(results[1], Ok(()), "{state}");
        assert!(completed.is_empty(), "{state}");
    }
}

fn sends_are_taken_in_rts_and_sqd() {
    for state in [State::Rts, State::Sqd] {
        let (results, completed) = posted(state);
        assert_eq!(results[0], Ok(()), "{state}");
        assert!(completed.is_empty(), "{state}");
    }
}

fn in_error_work_is_taken_and_completes_in_error() {
    let flushed = [1, 2].map(|id| (id, Status::WorkRequestFlushed));
    assert_eq!(posted(State::Error), ([Ok(()), Ok(())], flushed.to_vec()));
}

fn queues_are_as_long_as_was_asked_for() {
    let mut b = Bench::new(Setup {
        max_wr: 5,
        ..Default::default()
    });
    let sge = [b.sge(0, 8)];
    for id in 0..5 {
        b.post_send(id, 8);
        b.post_recv(id, 0, 8);
    }
    assert_eq!(
        b.try_post_recv(5, &sge),
        Err(PostError::QueueFull { capacity: 5 })
    );
    assert_eq!(b.qp.send_room(), 0);
    assert_eq!(b.says().len(), 5);
    // Room comes back with completion, not with sending.
    assert_eq!(b.qp.send_room(), 0);
    b.hear(ack(1, 2));
    assert_eq!(b.qp.send_room(), 2);
    let many = vec![sge[0]; 9];
    assert_eq!(
        b.try_post_recv(6, &many),
        Err(PostError::TooManySges { count: 9, limit: 8 })
    );
}

fn in_sqe_sends_are_taken_and_complete_in_error() {
    // A send queue that fails by itself stops in SQE, which only unreliable services have.
    for setup in [Setup::uc(), Setup::ud()] {
        let mut b = Bench::new(setup);
        let mut sge = b.sge(0, 8);
        sge.lkey.0 ^= 1;
        let sges = [sge];
        let to = (b.qp_type() == QpType::Ud).then(|| b.peer_qp());
        let request = |wr_id| SendRequest {
            to,
            ..SendRequest::new(wr_id, Work::Send, &sges)
        };
        b.try_post(&request(1)).unwrap();
        assert_eq!(b.says(), [""; 0]);
        assert_eq!(b.completed(), [(1, Status::LocalProtectionError)]);
        assert_eq!(b.state(), State::Sqe);
        b.try_post(&request(2)).unwrap();
        assert_eq!(b.completed(), [(2, Status::WorkRequestFlushed)]);
        assert_eq!(b.says(), [""; 0]);
    }
}
