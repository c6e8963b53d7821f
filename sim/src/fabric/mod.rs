//! Virtual time: clock and event queue, links, switches, faults, loads.
//!
//! | file | what |
//! |---|---|
//! | [`topology`] | named hosts, switches and links; fat tree, star, dumbbell, ring, ... |
//! | [`network`] | a network in virtual time: building, running, looking |
//! | `motion` | what happens at each event: the path of a packet |
//! | `medium` | what all channels and hosts share: clock, events, packets |
//! | [`host`] | what the network asks of the machine at the end of a link |
//! | [`observer`] | who is told of everything: captures, reports |
//! | [`faults`] | loss, corruption, duplication, delay, reordering, exactly addressed or at random |
//! | [`link`] | rates and delays, exact to the picosecond |
//! | [`switch`] | where a packet goes, and where it waits |
//! | `routing` | shortest paths, the flow that a route belongs to |
//! | [`events`] | what happens next: a timing wheel |
//! | `packets`, [`pool`] | where packets and payloads live |
//! | [`counters`] | what happened on each channel |
//! | [`capture`] | a tap on channels: pcapng |
//! | [`bare`] | a host without a card: the limit that a card is measured against |
//! | [`loads`] | who sends how much to whom, and when |
//! | [`collective`] | what hosts do together: ring all-reduce, parameter server |
//! | [`machine`] | a host with a card and flows on it |

pub mod bare;
pub mod capture;
pub mod collective;
pub mod counters;
pub mod events;
pub mod faults;
pub mod host;
pub mod link;
pub mod loads;
pub mod machine;
mod medium;
mod motion;
pub mod network;
pub mod observer;
mod packets;
pub mod pool;
mod routing;
pub mod switch;
pub mod topology;

pub use capture::Capture;
pub use counters::{ChannelCounters, DropCause};
pub use faults::{Action, Fault, Filter, Opcodes, Pattern, PsnFilter};
pub use host::Host;
pub use link::{ChannelId, Direction, LinkSpec, Rate};
pub use network::{Config, Network};
pub use observer::{Observer, Sight};
pub use pool::{PayloadMode, PayloadPool};
pub use switch::SwitchSpec;
pub use topology::{HostId, HostNode, Topology, TopologyError};

#[cfg(test)]
mod tests;
