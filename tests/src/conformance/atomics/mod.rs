//! Atomics: carried out exactly once, on eight aligned bytes, and answered with what was there.

mod answers;
mod requests;

use super::Rule;

pub(super) const RULES: &[&[Rule]] = &[answers::RULES, requests::RULES];
