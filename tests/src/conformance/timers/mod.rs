//! Timers: the transport timer, the wait that an RNR NAK asks for, and reaction times.

mod not_ready;
mod reaction;
mod transport;

use super::Rule;

pub(super) const RULES: &[&[Rule]] = &[transport::RULES, not_ready::RULES, reaction::RULES];

const NONE: [&str; 0] = [];

const SENT: [&str; 1] = ["Send Only 0 [8] ?"];
