//! Real time: the only room with sockets and threads.
//!
//! | file | what |
//! |---|---|
//! | [`udp`](UdpPort) | a card on a UDP socket: RoCEv2 as it is on the wire (Linux) |
//! | `seed` | a card's seed out of the randomness of the operating system |
//! | [`tap`](Tap) | sees every frame of a port, for captures |
//!
//! A port drives one card as the network of a virtual run does: what arrives goes into
//! [`Card::receive`](crate::card::Card::receive), [`next_packet`](crate::card::Card::next_packet) is
//! pulled while the socket takes packets, and after any of it the card is asked again what it waits
//! for. Nothing queues between card and socket.

mod seed;
mod tap;
#[cfg(target_os = "linux")]
mod udp;

pub use seed::{SeedError, seed};
pub use tap::{Direction, Tap};
#[cfg(target_os = "linux")]
pub use udp::{Activity, OpenError, PortCounters, PortError, SendError, UdpConfig, UdpPort};
