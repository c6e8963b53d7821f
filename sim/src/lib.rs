//! A RoCE network card written in software, and the network it lives in.
//!
//! The rooms, and the direction in which they may know of each other:
//!
//! ```text
//! fabric, port, cm  ->  card, faults  ->  memory  ->  wire
//! ```
//!
//! * [`wire`]: what crosses the network: headers, packets, frames, ICRC, captures.
//! * [`memory`]: protection domains, regions and keys: who may touch what.
//! * [`card`]: the software RNIC, a state machine without I/O.
//! * [`cm`]: the communication manager, a state machine without I/O too, and its work over a card's queue pair 1.
//! * [`faults`]: which packets are lost, damaged, delayed, on purpose.
//! * [`fabric`]: virtual time: clock and event queue, links, switches, faults.
//! * [`port`]: real time: sockets.
//!
//! What all of them count with: [`time`], [`rate`], [`random`], [`places`].

pub mod card;
pub mod cm;
pub mod fabric;
pub mod faults;
pub mod memory;
pub mod places;
pub mod port;
pub mod random;
pub mod rate;
pub mod time;
pub mod wire;
