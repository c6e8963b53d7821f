//! What crosses the network.
//!
//! | file | what |
//! |---|---|
//! | [`ids`] | numbers with rules: PSN, MSN, QP number, keys, GID, MAC address |
//! | [`opcode`] | the 256 opcodes: service, operation, position, headers that follow |
//! | [`bth`], [`reth`], [`aeth`], [`atomic`], [`deth`], [`immediate`] | one file per header |
//! | [`packet`] | a packet as a value of 64 bytes: what cards and switches exchange |
//! | [`route`] | how packets of one flow are addressed, and where those addresses are interned |
//! | [`ext`] | which extended headers follow an opcode, and their bytes |
//! | [`icrc`] | the invariant CRC |
//! | [`frame`] | whole frames with owned or borrowed bytes; packets to frames and back |
//! | [`cnp`], [`pfc`] | congestion notifications and priority pauses |
//! | [`mad`], [`cm`] | management datagrams; messages that make and end connections |
//! | [`capture`] | pcap and pcapng files in, pcapng files out |
//!
//! A port sends with [`frame::encode_packet`] (an Ethernet frame) or [`frame::encode_udp_payload`]
//! (what a UDP socket takes). It receives with [`FrameView::decode`](frame::FrameView::decode) or
//! [`FrameView::decode_udp_payload`](frame::FrameView::decode_udp_payload), then
//! [`check_icrc`](frame::FrameView::check_icrc), then
//! [`to_packet`](frame::FrameView::to_packet); none of these allocates. Tests and captures keep
//! [`Frame`]s: [`Frame::decode`], [`Frame::encode`], [`Frame::seal`] after a change, and
//! [`Frame::check`] for everything that is wrong with one.
//!
//! This room knows nothing of cards. Decoding never panics, whatever the bytes.

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod capture;
pub mod cm;
pub mod cnp;
pub mod deth;
pub mod ext;
pub mod frame;
pub mod icrc;
pub mod ids;
pub mod immediate;
pub mod mad;
pub mod opcode;
pub mod packet;
pub mod pfc;
pub mod reth;
pub mod route;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use deth::Deth;
pub use frame::{Frame, FrameView};
pub use icrc::Icrc;
pub use ids::{Gid, MacAddr, Msn, Psn, QpNumber, RemoteKey};
pub use immediate::Immediate;
pub use opcode::{Opcode, Operation, Position, Service, Tail};
pub use packet::{Damage, Ecn, Ext, FRAME_OVERHEAD, MIN_FRAME, Packet, Payload};
pub use pfc::Pfc;
pub use reth::Reth;
pub use route::{Encapsulation, Route, RouteId, RouteTable, Vlan, source_port};
