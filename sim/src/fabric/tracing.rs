//! The way that the packets of a route take.

use super::host::Host;
use super::link::{ChannelId, End};
use super::network::Network;
use super::observer::Observer;
use super::topology::HostId;
use crate::wire::Route;
use std::collections::BTreeSet;

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

    /// Where packets of a route may go from a host, with the ways of now, and copies of them where switches flood: each
    /// channel with the one that leads there, which the first has not.
    pub fn reach(&self, from: HostId, route: &Route) -> Vec<(Option<ChannelId>, ChannelId)> {
        let flow = self.medium.flows.classify(route);
        let mut found = vec![(None, ChannelId(self.hosts[from.index()].uplink))];
        let mut seen = BTreeSet::new();
        let mut next = 0;
        while let Some(&(_, channel)) = found.get(next) {
            next += 1;
            let id = channel.0;
            let End::Switch(switch) = self.channels[channel.index()].to else {
                continue;
            };
            let out: Vec<u32> = match self.forwarding.way(switch, flow) {
                Some(way) => vec![way],
                None if self.forwarding.floods(switch, flow) => {
                    let all = self.exits[switch as usize].iter().copied();
                    all.filter(|&out| out != id ^ 1).collect()
                }
                None => Vec::new(),
            };
            for out in out {
                if seen.insert((id, out)) {
                    found.push((Some(channel), ChannelId(out)));
                }
            }
        }
        found
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
