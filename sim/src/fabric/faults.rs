//! Faults on the channels of a network: what was hit, and when.

use super::link::ChannelId;
use crate::time::Time;
use crate::wire::{Bth, RouteId};

pub use crate::faults::filter::{Filter, Opcodes, PsnFilter};
pub use crate::faults::{
    Action, Fault, FaultCounts, FaultError, GilbertElliott, Pattern, Sighting,
};

/// A packet that a fault hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultRecord {
    /// When its transmission began.
    pub time: Time,
    /// Where.
    pub channel: ChannelId,
    /// Position of the fault among those of the channel.
    pub fault: usize,
    /// What was done.
    pub action: Action,
    /// Its addresses.
    pub route: RouteId,
    /// Its base transport header.
    pub bth: Bth,
    /// Which copy it was, and in which round; `None` on a channel where no filter asks for either.
    pub sighting: Option<Sighting>,
}

/// The packets that faults hit, in order.
#[derive(Clone, Debug, Default)]
pub struct FaultLog {
    records: Vec<FaultRecord>,
    beyond: u64,
}

impl FaultLog {
    /// The most records kept; hits beyond it are only counted.
    pub const LIMIT: usize = 65_536;

    pub(super) fn add(&mut self, record: FaultRecord) {
        if self.records.len() < Self::LIMIT {
            self.records.push(record);
        } else {
            self.beyond += 1;
        }
    }

    /// The first [`FaultLog::LIMIT`] hits.
    pub fn records(&self) -> &[FaultRecord] {
        &self.records
    }

    /// How many hits there were after those.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }
}
