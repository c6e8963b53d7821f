//! The way that the packets of a route take.

use super::host::Host;
use super::link::{ChannelId, End};
use super::network::Network;
use super::observer::Observer;
use super::topology::HostId;
use crate::wire::Route;

/// Switches that a packet passes at most.
const HOPS: usize = 64;

impl<H: Host, O: Observer> Network<H, O> {
    /// The channels that packets sent by `from` along `route` go by now, in order, up to where they arrive or
    /// are dropped, and once around if they go in circles. Where a switch floods it ends.
    pub fn trace(&self, from: HostId, route: &Route) -> Vec<ChannelId> {
        let flow = self.medium.flows.classify(route);
        let mut next = Some(self.hosts[from.index()].uplink);
        let mut way = Vec::new();
        while let Some(id) = next
            && way.len() < HOPS
            && !way.contains(&ChannelId(id))
        {
            way.push(ChannelId(id));
            next = match self.channels[id as usize].to {
                End::Host(_) => None,
                End::Switch(switch) => self.forwarding.way(switch, flow),
            };
        }
        way
    }

    /// Bytes that wait in front of a channel in a priority (0 to 7), if it leaves a switch that has more than
    /// tail drop.
    pub fn queued_in(&self, channel: ChannelId, priority: u8) -> u64 {
        let way = &self.channels[channel.index()];
        if way.managed {
            way.queue.bytes_in(priority)
        } else {
            0
        }
    }
}
