//! The requester and the completer: what is sent, when it is sent again, and when a request is done.

mod completion;
mod flow;
mod memory;
mod messages;
mod reads;
mod recovery;
mod turns;

use super::Rule;
use crate::bench::{Say, pattern, read_response};
use softroce_sim::card::Status;
use softroce_sim::wire::Opcode;

pub(super) const RULES: &[&[Rule]] = &[
    completion::RULES,
    flow::RULES,
    memory::RULES,
    messages::RULES,
    reads::RULES,
    recovery::RULES,
    turns::RULES,
];

const NONE: [&str; 0] = [];

fn successes(ids: impl IntoIterator<Item = u64>) -> Vec<(u64, Status)> {
    ids.into_iter().map(|id| (id, Status::Success)).collect()
}

/// The answer to a READ of 3000 bytes, from PSN `first` on.
fn three_packets(first: u32) -> [Say; 3] {
    let data = pattern(2, 3000);
    [
        read_response(Opcode::RC_READ_RESPONSE_FIRST, first, &data[..1024]),
        read_response(
            Opcode::RC_READ_RESPONSE_MIDDLE,
            first + 1,
            &data[1024..2048],
        ),
        read_response(Opcode::RC_READ_RESPONSE_LAST, first + 2, &data[2048..]),
    ]
}
