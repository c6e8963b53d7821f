//! A host's part in a collective: its flows wait for leave from the member's state machine.

use super::{FlowId, Machine, Start};
use crate::fabric::collective::{Event, Member, Round};
use crate::fabric::network::Network;
use crate::fabric::observer::Observer;
use crate::fabric::topology::HostId;
use crate::time::Time;
use std::cmp::Reverse;

/// A member and the flows it gives leave to.
#[derive(Debug)]
pub(super) struct Seat {
    member: Member,
    /// Places among the flows of the host.
    sends: Vec<usize>,
}

/// The member whose a queue pair is, and which of its flows it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) seat: usize,
    pub(super) way: usize,
}

impl Machine {
    /// Tells a member and does what it asks for.
    pub(super) fn tell(&mut self, now: Time, seat: usize, event: Event) {
        let mut orders = std::mem::take(&mut self.orders);
        let Seat { member, sends } = &mut self.seats[seat];
        member.on(now, event, &mut orders);
        for (way, more) in orders.grants.drain(..) {
            let flow = &mut self.flows[sends[way]];
            flow.granted = flow.granted.saturating_add(more);
            if flow.post(now) {
                self.card.doorbell(now, flow.qp.number());
            }
        }
        if let Some(at) = orders.wake.take() {
            self.starts.push(Reverse((at, Start::Member(seat))));
        }
        self.orders = orders;
    }

    /// The rounds that the member at `index` has been through.
    pub fn rounds(&self, index: usize) -> &[Round] {
        self.seats[index].member.rounds()
    }
}

/// Makes a host a member of a collective from `start` on, and gives its place among those of the host:
/// it sends on `sends` and receives `receives`, which have been connected. A flow that it sends on posts
/// nothing but what it is given leave for; each message that it sends asks for a completion.
///
/// # Panics
///
/// If one of `sends` is another host's, or one of `receives` does not go to this host.
pub fn enlist<O: Observer>(
    network: &mut Network<Machine, O>,
    host: HostId,
    member: Member,
    start: Time,
    sends: &[FlowId],
    receives: &[FlowId],
) -> usize {
    let machine = network.host_mut(host);
    let seat = machine.seats.len();
    for (way, id) in sends.iter().enumerate() {
        assert_eq!(id.host, host, "a member sends on flows of its own");
        let flow = &mut machine.flows[id.flow];
        flow.granted = 0;
        flow.part = Some(Part { seat, way });
    }
    for (way, id) in receives.iter().enumerate() {
        assert_eq!(id.peer, host, "a member receives what comes to it");
        machine.receivers[id.receiver].part = Some(Part { seat, way });
    }
    machine.seats.push(Seat {
        member,
        sends: sends.iter().map(|id| id.flow).collect(),
    });
    machine.starts.push(Reverse((start, Start::Member(seat))));
    network.kick(host);
    seat
}
