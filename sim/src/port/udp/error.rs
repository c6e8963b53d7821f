//! Why a UDP port does not open.

use crate::faults::FaultError;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why a [`UdpPort`](super::UdpPort) could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Someone else has the address.
    #[error(
        "UDP {0} is in use: by another card, or by a socket bound to every address, as rdma_rxe has one"
    )]
    InUse(SocketAddr),
    /// Every address that a card chooses from is in use.
    #[error("UDP port {port} is in use on every address from {first} to {last}")]
    NoneFree {
        /// Port.
        port: u16,
        /// First address tried.
        first: IpAddr,
        /// Last address tried.
        last: IpAddr,
    },
    /// The address is not one of this machine's.
    #[error("UDP {0} cannot be bound: this machine does not have the address")]
    NotLocal(SocketAddr),
    /// The process may not use the address.
    #[error("UDP {0} cannot be bound: not permitted")]
    NotPermitted(SocketAddr),
    /// The machine has no IPv4, or no IPv6.
    #[error("UDP {0} cannot be bound: this machine does not speak its address family")]
    NoFamily(SocketAddr),
    /// A card has one address, and this is none or one of a group.
    #[error("{0} is no address for a card: it needs one of its own")]
    NotUnicast(IpAddr),
    /// A fault of the port's makes no sense.
    #[error("{0}")]
    Fault(#[from] FaultError),
    /// Anything else.
    #[error("UDP {address}: {what}: {source}")]
    Io {
        /// Address of the port.
        address: SocketAddr,
        /// What was being done.
        what: &'static str,
        /// The operating system's word.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn bind(address: SocketAddr, source: io::Error) -> OpenError {
        match source.kind() {
            io::ErrorKind::AddrInUse => OpenError::InUse(address),
            io::ErrorKind::AddrNotAvailable => OpenError::NotLocal(address),
            io::ErrorKind::PermissionDenied => OpenError::NotPermitted(address),
            _ => OpenError::Io {
                address,
                what: "binding",
                source,
            },
        }
    }
}
