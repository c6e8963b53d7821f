//! Real time: the only room with sockets and threads.
//!
//! | file | what |
//! |---|---|
//! | [`driver`](Port) | the loop between a card and a link: pulling, receiving, timers |
//! | `faults`, `pace` | what happens on purpose to packets that are sent, and how fast they are |
//! | [`link`](Link) | what the loop asks of a link |
//! | [`engine`](Engine) | a card on a port that runs by itself, for programs of any number of threads (Linux) |
//! | [`udp`](UdpPort) | a card on a UDP socket: RoCEv2 as it is on the wire, the headers the kernel's (Linux) |
//! | [`ethernet`](EthernetPort) | a card on Ethernet frames: RoCEv1 and v2, neighbours, VLANs, pauses |
//! | `seed` | a card's seed out of the randomness of the operating system |
//! | [`tap`](Tap) | sees every frame of a port, for captures |
//! | `error` | what can go wrong with a port that is open |
//!
//! A port drives one card as the network of a virtual run does: what arrives goes into
//! [`Card::receive`](crate::card::Card::receive), [`next_packet`](crate::card::Card::next_packet) is
//! pulled while the link takes packets, and after any of it the card is asked again what it waits
//! for. Nothing queues between card and link, but packets for a neighbour whose Ethernet address has
//! just been asked for.

mod driver;
#[cfg(target_os = "linux")]
mod engine;
mod error;
mod ethernet;
mod faults;
mod link;
mod pace;
mod seed;
mod tap;
#[cfg(target_os = "linux")]
mod udp;

pub use driver::{Activity, Port, PortConfig, PortCounters};
#[cfg(target_os = "linux")]
pub use engine::{Engine, EngineError, EventChannel};
pub use error::{PortError, SendError};
pub use ethernet::{
    ChannelDevice, DeviceError, Ethernet, EthernetConfig, EthernetError, EthernetPort, FrameDevice,
};
#[cfg(target_os = "linux")]
pub use ethernet::{DatagramDevice, RawDevice};
pub use link::Link;
pub use seed::{SeedError, seed};
pub use tap::{Direction, Tap};
#[cfg(target_os = "linux")]
pub use udp::{OpenError, Udp, UdpConfig, UdpPort};
