//! The requester and the completer: what is sent, when it is sent again, and when a request is done.

mod completion;
mod flow;
mod memory;
mod messages;
mod reads;
mod recovery;
mod turns;

use super::Rule;
use softroce_sim::card::Status;

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
