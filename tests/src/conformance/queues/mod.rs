//! Work and completion queues: inline data, shared receives, notification.

mod completions;
mod inline;
mod shared_receives;

use super::Rule;

pub(super) const RULES: &[&[Rule]] = &[completions::RULES, inline::RULES, shared_receives::RULES];
