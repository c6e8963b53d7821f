//! Why a network cannot be built.

use super::Topology;
use crate::fabric::switch::SwitchError;
use std::net::IpAddr;
use thiserror::Error;

/// Why a network cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TopologyError {
    /// No node has that name.
    #[error("no node is called `{0}`")]
    UnknownNode(String),
    /// No link has that name.
    #[error("no link is called `{0}`")]
    UnknownLink(String),
    /// Two nodes with one name.
    #[error("two nodes are called `{0}`")]
    DuplicateName(String),
    /// A node without a name.
    #[error("a node has an empty name")]
    EmptyName,
    /// A host has one port.
    #[error("host `{host}` has one port, and link `{first}` is on it: it cannot take `{second}`")]
    SecondLink {
        /// The host.
        host: String,
        /// The link it has.
        first: String,
        /// The one it was to get.
        second: String,
    },
    /// A link from a node to itself.
    #[error("a link joins `{0}` to itself")]
    Loop(String),
    /// A host without a link.
    #[error("host `{0}` has no link")]
    NoLink(String),
    /// Two hosts with one address.
    #[error("hosts `{first}` and `{second}` both have address {address}")]
    DuplicateAddress {
        /// The address.
        address: IpAddr,
        /// The host that had it.
        first: String,
        /// The host that was to get it.
        second: String,
    },
    /// A shape has less of something than it needs.
    #[error("a {shape} of {value} {what}: it needs at least {least}")]
    TooFew {
        /// The shape.
        shape: &'static str,
        /// Of what.
        what: &'static str,
        /// How many.
        value: usize,
        /// The least it needs.
        least: usize,
    },
    /// A receive pipeline whose thresholds are not in order.
    #[error(
        "receiver of host `{host}`: xon {xon}, xoff {xoff}, buffer {buffer}: each must be at most the next"
    )]
    Receiver {
        /// The host.
        host: String,
        /// Lower threshold.
        xon: u64,
        /// Upper threshold.
        xoff: u64,
        /// What it holds.
        buffer: u64,
    },
    /// A switch that cannot be.
    #[error("switch `{switch}`: {error}")]
    Switch {
        /// The switch.
        switch: String,
        /// What is wrong with it.
        error: SwitchError,
    },
    /// A fat tree's k is even and at least 2.
    #[error("a fat tree of k = {0}: k must be even, from 2 to 128")]
    Arity(usize),
    /// More hosts than there are addresses for.
    #[error("{0} hosts: at most {max}", max = Topology::MAX_HOSTS)]
    TooManyHosts(usize),
}
