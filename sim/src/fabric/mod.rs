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
//! | [`faults`], `passage` | loss, corruption, duplication, delay, reordering, exactly addressed or at random |
//! | [`link`] | rates and delays, exact to the picosecond |
//! | [`switch`] | what a switch is like: buffer, PFC, ECN, scheduling |
//! | `forwarding`, `queue` | where a packet goes, and where it waits |
//! | `managed` | the path of a packet through a switch with more than tail drop |
//! | `buffer` | the shared memory of a switch: who may put how much in it |
//! | [`pfc`] | thresholds and headroom of priority-based flow control |
//! | `pausing` | PFC frames on their way, and the pauses they bring |
//! | [`watchdog`] | what a switch does about ports that are paused for too long |
//! | [`pipeline`] | hosts that take in packets slowly, or not at all |
//! | [`outage`] | links that go down, routes that go astray |
//! | [`deadlock`] | cycles of pauses, and what each pause was for |
//! | [`ecn`] | when a packet is marked |
//! | `schedule` | in which order queues are served |
//! | `tracing` | the way that the packets of a route take |
//! | `multicast` | datagrams to groups: a tree, and copies along it |
//! | `routing` | shortest paths, the flow that a route belongs to |
//! | [`events`] | what happens next: a timing wheel |
//! | `packets`, [`pool`] | where packets and payloads live |
//! | [`counters`] | what happened on each channel |
//! | [`losses`] | what was lost where: the latest of each flow |
//! | [`explain`] | what cards say of a failure, what was lost, what the peer refused: together |
//! | [`capture`] | a tap on channels: pcapng |
//! | [`bare`] | a host without a card: the limit that a card is measured against |
//! | [`loads`] | who sends how much to whom, and when |
//! | [`collective`] | what hosts do together: ring all-reduce, parameter server |
//! | [`machine`] | a host with a card and flows on it |

pub mod bare;
mod buffer;
pub mod capture;
pub mod collective;
pub mod counters;
pub mod deadlock;
pub mod ecn;
pub mod events;
pub mod explain;
pub mod faults;
mod forwarding;
pub mod host;
pub mod link;
pub mod loads;
pub mod losses;
pub mod machine;
mod managed;
mod medium;
mod motion;
mod multicast;
pub mod network;
pub mod observer;
pub mod outage;
mod packets;
mod passage;
mod pausing;
pub mod pfc;
pub mod pipeline;
pub mod pool;
mod queue;
mod routing;
mod schedule;
pub mod switch;
pub mod topology;
mod tracing;
pub mod watchdog;

pub use capture::Capture;
pub use counters::{ChannelCounters, DropCause, PriorityCounters};
pub use deadlock::{Deadlock, PauseCause, PauseLog, Stuck};
pub use ecn::EcnSpec;
pub use faults::{Action, Fault, Filter, Opcodes, Pattern, PsnFilter};
pub use host::Host;
pub use link::{ChannelId, Direction, LinkSpec, Rate};
pub use network::{Config, Network};
pub use observer::{Observer, Sight};
pub use outage::Detour;
pub use pfc::{Headroom, PfcSpec, Threshold, headroom};
pub use pipeline::{PipelineCounters, ReceiveSpec, Service};
pub use pool::{PayloadMode, PayloadPool};
pub use switch::{Ratio, SwitchError, SwitchSpec};
pub use topology::{HostId, HostNode, Topology, TopologyError};
pub use watchdog::Watchdog;

#[cfg(test)]
mod tests;
