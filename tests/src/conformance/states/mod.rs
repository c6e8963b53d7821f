//! The state machine of a queue pair, and what its program may do in each state.

mod attributes;
mod changes;
mod errors;
mod posting;

use super::Rule;
use crate::bench::*;
use softroce_sim::card::State;

pub(super) const RULES: &[&[Rule]] = &[
    changes::RULES,
    attributes::RULES,
    errors::RULES,
    posting::RULES,
];

const NONE: [&str; 0] = [];

fn in_state(state: State) -> Bench {
    Bench::new(Setup {
        state,
        ..Default::default()
    })
}
