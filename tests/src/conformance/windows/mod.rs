//! Memory windows and the ends of keys: bind, invalidate here, invalidate by a peer's SEND.

mod binding;
mod invalidation;

use super::Rule;

pub(super) const RULES: &[&[Rule]] = &[binding::RULES, invalidation::RULES];
