//! What tells one captured packet from another, and a duplicate from a retransmission.

use super::finding::span;
use softroce_sim::wire::capture::Stamp;
use softroce_sim::wire::{Icrc, Opcode, Psn};

/// What tells one captured packet from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) psn: Psn,
    pub(super) opcode: Opcode,
    pub(super) number: u64,
    pub(super) time: Option<Stamp>,
    pub(super) icrc: Icrc,
    /// IPv4 identification; 0 tells nothing.
    pub(super) id: u16,
    pub(super) hop_limit: u8,
    /// A comment in the file says that it was dropped or damaged behind this point.
    pub(super) dropped: bool,
}

/// What a second sighting of a PSN is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Likeness {
    /// The same packet, captured at another place.
    AnotherHop,
    /// The same packet, duplicated by the network.
    Duplicate,
    /// The same bytes; whether the network or the card made them again is not known.
    Alike,
    /// Sent again.
    Resent,
}

impl Copy {
    /// How a later sighting of the same PSN compares with this one.
    pub(super) fn likeness(&self, later: &Copy) -> Likeness {
        if self.icrc != later.icrc {
            Likeness::Resent
        } else if self.hop_limit != later.hop_limit {
            Likeness::AnotherHop
        } else if self.id != later.id {
            Likeness::Resent
        } else if self.id != 0 {
            Likeness::Duplicate
        } else {
            Likeness::Alike
        }
    }
}

/// Picoseconds between two stamps, if both are known.
pub(super) fn since(later: Option<Stamp>, earlier: Option<Stamp>) -> Option<i128> {
    Some(later?.since(earlier?))
}

/// `6.6 ms after`, or `after` where times are not known.
pub(super) fn after(later: Option<Stamp>, earlier: Option<Stamp>) -> String {
    since(later, earlier).map_or("after".into(), |ps| format!("{} after", span(ps)))
}
