//! Virtual time: clock and event queue, links, switches, faults, loads.

pub mod host;

pub use host::Host;
