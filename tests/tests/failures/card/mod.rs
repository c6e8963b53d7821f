//! One card and a scripted peer.
//!
//! * `requester`: why requests of the card's program fail.
//! * `responder`: why requests of the peer are refused.
//! * `history`: what led there, and what went down with it.

mod history;
mod requester;
mod responder;

use softroce_sim::card::explain::Failure;
use softroce_sim::wire::Psn;
use softroce_tests::bench::{Bench, own_gid};

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
