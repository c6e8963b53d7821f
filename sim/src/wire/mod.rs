//! What crosses the network.
//!
//! | file | what |
//! |---|---|
//! | [`ids`] | numbers with rules: PSN, MSN, QP number, keys, GID, MAC address |
//! | [`opcode`] | the 256 opcodes: service, operation, position, headers that follow |
//! | [`bth`], [`reth`], [`aeth`], [`atomic`], [`deth`], [`immediate`] | one file per header |
//! | [`packet`] | a packet as a value of 64 bytes: what cards and switches exchange |
//! | [`route`] | how packets of one flow are addressed, and where those addresses are interned |
//!
//! This room knows nothing of cards. Decoding never panics, whatever the bytes.

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod deth;
pub mod ids;
pub mod immediate;
pub mod opcode;
pub mod packet;
pub mod reth;
pub mod route;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use ids::{Gid, MacAddr, Msn, Psn, QpNumber, RemoteKey};
pub use immediate::Immediate;
pub use opcode::{Opcode, Operation, Position, Service, Tail};
pub use packet::{Damage, Ecn, Ext, Packet, Payload};
pub use reth::Reth;
pub use route::{Encapsulation, Route, RouteId, RouteTable, Vlan};
