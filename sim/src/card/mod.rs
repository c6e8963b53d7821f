//! The software RNIC: a state machine without I/O.

pub mod env;

pub use env::{Deed, Env, PriorityMask, Refusal};
