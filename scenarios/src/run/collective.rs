//! Seats the members of a collective on their hosts, with the flows of its load.

use super::watch::Watch;
use crate::format::pattern::CollectiveKind;
use crate::format::traffic::Traffic;
use softroce_sim::fabric::collective::{Member, Ring, Server, Worker};
use softroce_sim::fabric::machine::{self, FlowId, Machine};
use softroce_sim::fabric::{HostId, Network};
use softroce_sim::time::Time;

/// Makes the hosts of a load members of its collective, and gives those that go through rounds with
/// their places; none if it is no collective.
pub(super) fn enlist(
    network: &mut Network<Machine, Watch>,
    load: &Traffic,
    flows: &[FlowId],
) -> Vec<(HostId, usize)> {
    let Some(collective) = &load.collective else {
        return Vec::new();
    };
    let start = Time::ZERO + load.start;
    let (members, rounds) = (&collective.members, collective.iterations);
    let mut seats = Vec::new();
    match collective.kind {
        CollectiveKind::AllReduce { rings } => {
            let (n, rings) = (members.len(), rings as usize);
            let of = |i: usize| &flows[i * rings..(i + 1) * rings];
            for (i, &(host, compute)) in members.iter().enumerate() {
                let member = Member::Ring(Ring::new(n, rings, rounds, compute));
                let (host, from) = (HostId::new(host), of((i + n - 1) % n));
                let seat = machine::enlist(network, host, member, start, of(i), from);
                seats.push((host, seat));
            }
        }
        CollectiveKind::ParameterServer { pull } => {
            let Some((&(server, _), workers)) = members.split_last() else {
                return Vec::new();
            };
            let n = workers.len();
            for (w, &(host, compute)) in workers.iter().enumerate() {
                let member = Member::Worker(Worker::new(rounds, compute));
                let (host, down) = (HostId::new(host), &flows[n + w..=n + w]);
                let seat = machine::enlist(network, host, member, start, &flows[w..=w], down);
                seats.push((host, seat));
            }
            let member = Member::Server(match pull {
                None => Server::push(n),
                Some(parallel) => Server::pull(n, parallel as usize),
            });
            let server = HostId::new(server);
            machine::enlist(network, server, member, start, &flows[n..], &flows[..n]);
        }
    }
    seats
}
