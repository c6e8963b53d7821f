//! What a card is like: its address, its habits and its reaction times.

use super::congestion::{CongestionControl, Limiter, Notification};
use super::profile::{self, Profile};
use super::qp::attributes::Mtu;
use super::recovery::Recovery;
use crate::rate::Rate;
use crate::time::Span;
use crate::wire::{Ecn, Encapsulation, Gid, MacAddr};

/// Parameters of a card. [`CardConfig::new`] gives those of a card that follows the specification and
/// takes no time to react.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// Names the card's random stream, from which keys, addresses and numbers are drawn.
    pub name: String,
    /// Address of its port, GID index 0.
    pub gid: Gid,
    /// Ethernet address of its port.
    pub mac: MacAddr,
    /// RoCEv1 or RoCEv2.
    pub encapsulation: Encapsulation,
    /// MTU of its port, the largest path MTU there is: what a datagram may carry.
    pub port_mtu: Mtu,
    /// Habits of the kind of card it is.
    pub profile: Profile,
    /// Recovery from loss.
    pub recovery: &'static dyn Recovery,
    /// Congestion control of every queue pair.
    pub congestion: CongestionControl,
    /// Answer packets that were marked on their way with CNPs. RoCEv1 has neither.
    pub notification: Option<Notification>,
    /// Rate of its port, which congestion control starts from and never exceeds; nothing else needs it.
    pub line_rate: Rate,
    /// Request packets after which an acknowledgement is asked for within a message; the last packet of
    /// a message always asks for one. 1 asks with every packet.
    pub ack_every: u32,
    /// Put the number of receive requests into acknowledgements, and heed the peer's (9.7.7.2).
    pub credits: bool,
    /// Ethernet priority of acknowledgements and READ responses; `None` is that of the queue
    /// pair. 7 is the highest there is.
    pub ack_priority: Option<u8>,
    /// Reaction times.
    pub timing: Timing,
}

/// How long the card takes to react.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// From a doorbell on an idle send queue to the first packet.
    pub doorbell: Span,
    /// From a request packet to its acknowledgement, or the first packet of a READ response.
    pub ack: Span,
    /// From a packet to the NAK it causes.
    pub nak: Span,
    /// From a NAK or a timeout to the first packet sent again.
    pub retransmit: Span,
}

impl CardConfig {
    /// A card called `name` at `gid` and `mac`, with the habits of the specification and go-back-N.
    pub fn new(name: impl Into<String>, gid: Gid, mac: MacAddr) -> CardConfig {
        let profile = profile::SPEC.clone();
        CardConfig {
            name: name.into(),
            gid,
            mac,
            encapsulation: Encapsulation::RoceV2,
            port_mtu: Mtu::M4096,
            recovery: super::recovery::GO_BACK_N,
            congestion: CongestionControl::None,
            notification: None,
            line_rate: Rate::from_gbps(100),
            ack_every: profile.ack_every,
            credits: profile.credits,
            profile,
            ack_priority: None,
            timing: Timing::default(),
        }
    }

    /// ECN field of the data that it sends: requests and READ responses. Whoever does not slow down for a
    /// mark asks for none (CA17-5, CA17-14). Acknowledgements are never ECN-capable: they are not paced, so
    /// to slow down their sender would help nobody (RFC 3168, 6.1.4, has it so for TCP).
    pub(crate) fn data_ecn(&self) -> Ecn {
        match self.encapsulation {
            Encapsulation::RoceV2 if self.congestion.heeds_marks() => Ecn::Capable0,
            _ => Ecn::NotCapable,
        }
    }

    /// What holds back a new queue pair.
    pub(crate) fn limiter(&self) -> Option<Box<Limiter>> {
        let controller = self.congestion.controller(self.line_rate)?;
        Some(Box::new(Limiter::new(controller)))
    }

    /// With other habits, those that have a parameter of their own here included.
    #[must_use]
    pub fn with_profile(mut self, profile: &Profile) -> CardConfig {
        self.ack_every = profile.ack_every;
        self.credits = profile.credits;
        self.profile = profile.clone();
        self
    }
}
