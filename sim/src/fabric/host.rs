//! What the network asks of the machine at the end of a link.

use crate::card::{Env, PriorityMask};
use crate::time::Time;
use crate::wire::{Gid, Packet, Route};

/// A machine with one port: a card and the load on it, or a bare source of packets.
///
/// The network pulls: a packet that was not pulled does not exist. After any call the network asks
/// [`Host::pending`] and [`Host::next_timeout`] again.
pub trait Host {
    /// A whole packet has arrived, sent along `route`. The network keeps ownership of its payload.
    fn receive<E: Env>(&mut self, now: Time, packet: &Packet, route: &Route, env: &mut E);

    /// Time has reached what [`Host::next_timeout`] asked for (or later, or sooner: the host checks).
    /// False if there was nothing to do.
    fn advance<E: Env>(&mut self, now: Time, env: &mut E) -> bool;

    /// The next packet whose priority is in `ready`, if there is one. The network owns its payload from
    /// here on.
    fn next_packet<E: Env>(
        &mut self,
        now: Time,
        ready: PriorityMask,
        env: &mut E,
    ) -> Option<Packet>;

    /// The priorities in which [`Host::next_packet`] may have something now. May name too many, never
    /// too few.
    fn pending(&self) -> PriorityMask;

    /// True if the machine is to have what is sent to a multicast group. Asked whenever such a packet passes.
    fn hears(&self, group: Gid) -> bool {
        let _ = group;
        false
    }

    /// When [`Host::advance`] is to be called; [`Time::NEVER`] if there is nothing to wait for. May be
    /// too early, never too late.
    fn next_timeout(&self) -> Time;
}
