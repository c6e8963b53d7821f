//! A card, the peers it works for, and one that says anything.
//!
//! * [`forge`]: what the hostile peer says.
//! * [`link`]: connections of the card, what their programs do, and what must come of it.
//! * [`world`]: the cards, the network, and the attack.
//! * [`slots`], [`pool`], [`tally`]: memory with guards, payloads, how packets ended.

pub mod forge;
pub mod link;
pub mod pool;
pub mod slots;
pub mod tally;
pub mod world;

pub use tally::{End, Tally};
pub use world::{Attack, Report, run};

/// What nobody is to see or change is full of these.
pub const SECRET: u8 = 0xa5;
