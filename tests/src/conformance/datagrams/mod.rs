//! Datagrams: who hears them, what is in front of them, and what becomes of those that do not fit.

mod gsi;
mod multicast;
mod receiving;
mod sending;

use super::Rule;
use crate::bench::*;

pub(super) const RULES: &[&[Rule]] = &[
    gsi::RULES,
    multicast::RULES,
    receiving::RULES,
    sending::RULES,
];

const NONE: [&str; 0] = [];

fn ready() -> Bench {
    Bench::new(Setup::ud())
}
