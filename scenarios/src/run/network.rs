//! What becomes of a network beyond its links: receivers that are slow, routes that go astray, links that
//! go down.

use super::build::channel;
use super::watch::Watch;
use crate::format::Scenario;
use crate::format::event::Going;
use crate::format::receiver::{Receiver, Service};
use softroce_sim::card::PriorityMask;
use softroce_sim::fabric::machine::Machine;
use softroce_sim::fabric::{self, Detour, HostId, Network, Rate, ReceiveSpec, TopologyError};
use softroce_sim::time::Time;

/// Sets up a network that nothing has been sent in yet.
pub(super) fn set_up(
    network: &mut Network<Machine, Watch>,
    scenario: &Scenario,
) -> Result<(), TopologyError> {
    for (host, receiver) in scenario.receivers.iter().enumerate() {
        if let Some(receiver) = receiver {
            network.set_receiver(HostId::new(host), receive_spec(receiver))?;
        }
    }
    for route in &scenario.routes {
        let switch = &scenario.network.switches[route.switch].name;
        for &host in &route.to {
            let detour = match route.going {
                Going::Via => Detour::Ports(route.via.iter().map(|&w| channel(w)).collect()),
                Going::Flood => Detour::Flood,
                Going::Drop => Detour::Ports(Vec::new()),
            };
            network.set_route(switch, HostId::new(host), Some(detour))?;
        }
    }
    for event in &scenario.link_events {
        for &link in &event.links {
            let name = network.topology().links()[link].name.clone();
            for n in 0..event.times {
                let down = Time::ZERO + event.at + event.every * n;
                network.set_link(&name, down, false, event.reroute)?;
                if let Some(time) = event.down_for {
                    network.set_link(&name, down + time, true, event.reroute)?;
                }
            }
        }
    }
    Ok(())
}

fn receive_spec(receiver: &Receiver) -> ReceiveSpec {
    ReceiveSpec {
        buffer: receiver.buffer.0,
        xoff: receiver.xoff.0,
        xon: receiver.xon.0,
        priorities: PriorityMask(receiver.priorities),
        service: match receiver.service {
            // The format has no rate of zero.
            Service::Rate(rate) => {
                fabric::Service::Rate(Rate::from_bps(rate.0).unwrap_or(Rate::from_gbps(100)))
            }
            Service::Time {
                packet,
                miss,
                misses,
            } => fabric::Service::Translation {
                hit: packet,
                miss,
                misses: misses.draw(),
            },
        },
        stops: receiver.dead_from.map(|at| Time::ZERO + at),
        watchdog: receiver.watchdog,
    }
}
