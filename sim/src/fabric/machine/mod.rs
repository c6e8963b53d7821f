//! A host with a card and the load on it.
//!
//! A [`Flow`] is a queue pair that keeps a number of requests outstanding until it has sent what it was
//! asked to. It is a state machine, not a program: completions in, requests out, so that thousands of
//! them cost little. The card cannot tell the difference: rings, doorbells and completions are those a
//! program uses.
//!
//! | file | what |
//! |---|---|
//! | `spec` | what a flow is asked to do, and what cannot be asked of it |
//! | `flow` | the sending end: posts, and keeps count of what became of it |
//! | `receiver` | the other end: receives, and what came into them |
//! | `connect` | setting a flow up between two hosts |
//! | `member` | a part in a collective, which flows wait for leave from |

mod connect;
mod flow;
mod member;
mod receiver;
mod spec;

pub use connect::{FlowError, FlowId, arrived, connect, connect_ends, data_intact, stats};
pub use flow::{Flow, FlowStats, MAX_SAMPLES, StatusCounts};
pub use member::enlist;
pub use spec::{FlowOperation, FlowSpec, Mistake};

use super::collective::{Event, Orders};
use super::host::Host;
use crate::card::{
    Card, Completion, CompletionKind, CompletionQueue, CreateError, Env, PriorityMask, Status,
};
use crate::memory::Pd;
use crate::time::Time;
use crate::wire::{Gid, Packet, QpNumber, Route};
use member::Seat;
use receiver::Receiver;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, Debug)]
enum Role {
    Flow(usize),
    Receiver(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Start {
    Receiver(usize),
    Flow(usize),
    Member(usize),
}

/// A host with a card and flows.
#[derive(Debug)]
pub struct Machine {
    card: Card,
    pd: Pd,
    cq: CompletionQueue,
    flows: Vec<Flow>,
    receivers: Vec<Receiver>,
    /// Its parts in collectives.
    seats: Vec<Seat>,
    /// What a member asks for; empty between two events.
    orders: Orders,
    /// By queue pair number, from the card's first one on.
    roles: Vec<Role>,
    first_qp: u32,
    starts: BinaryHeap<Reverse<(Time, Start)>>,
    arrived: u64,
}

impl Machine {
    /// A host with `card`, which nobody else uses, and a completion queue for `cqe` completions: at least
    /// the sum over its flows of `depth` and over those it receives of `recv_depth`.
    pub fn new(mut card: Card, cqe: u32) -> Result<Machine, CreateError> {
        let pd = card.alloc_pd();
        let cq = card.create_cq(cqe)?;
        Ok(Machine {
            card,
            pd,
            cq,
            flows: Vec::new(),
            receivers: Vec::new(),
            seats: Vec::new(),
            orders: Orders::default(),
            roles: Vec::new(),
            first_qp: 0,
            starts: BinaryHeap::new(),
            arrived: 0,
        })
    }

    /// Packets that its card has taken in: nothing else changes the memory of a host from outside.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Its card.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Its card, to be changed.
    pub fn card_mut(&mut self) -> &mut Card {
        &mut self.card
    }

    /// What the flow at `index` has done as a sender.
    pub fn flow_stats(&self, index: usize) -> &FlowStats {
        &self.flows[index].stats
    }

    /// The queue pair of the flow at `index`.
    pub fn flow_qp(&self, index: usize) -> QpNumber {
        self.flows[index].qp.number()
    }

    /// The queue pair at the other end of a flow that this host receives, by its place among those.
    pub fn receiver_qp(&self, index: usize) -> QpNumber {
        self.receivers[index].qp.number()
    }

    /// True if every flow has posted all it will and has its completions, or has failed.
    pub fn is_done(&self, now: Time) -> bool {
        self.flows.iter().all(|f| f.is_done(now))
    }

    fn handle(&mut self, now: Time, c: Completion) {
        let index = c.qp.get().wrapping_sub(self.first_qp) as usize;
        match self.roles.get(index) {
            Some(&Role::Flow(i)) => {
                let flow = &mut self.flows[i];
                flow.completed(now, &c);
                if flow.post(now) {
                    self.card.doorbell(now, c.qp);
                }
                if let Some(part) = self.flows[i].part
                    && c.status == Status::Success
                {
                    self.tell(now, part.seat, Event::Sent(part.way));
                }
            }
            Some(&Role::Receiver(i)) => {
                let rings = self.receivers[i].completed(&c);
                if rings {
                    self.card.doorbell(now, c.qp);
                }
                if let Some(part) = self.receivers[i].part
                    && c.status == Status::Success
                    && c.kind != CompletionKind::BindWindow
                {
                    self.tell(now, part.seat, Event::Received(part.way));
                }
            }
            None => {}
        }
    }

    /// Takes all completions; false if there are none.
    #[inline]
    fn poll(&mut self, now: Time) -> bool {
        let any = !self.cq.is_empty();
        if any {
            self.take_completions(now);
        }
        any
    }

    #[inline(never)]
    fn take_completions(&mut self, now: Time) {
        while let Some(c) = self.cq.poll() {
            self.handle(now, c);
        }
    }

    /// Starts flows and receivers whose time has come; false if there are none.
    fn start_what_is_due(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&Reverse((at, start))) = self.starts.peek()
            && at <= now
        {
            self.starts.pop();
            any = true;
            match start {
                Start::Flow(i) => {
                    if self.flows[i].post(now) {
                        self.card.doorbell(now, self.flows[i].qp.number());
                    }
                }
                Start::Receiver(i) => {
                    let rings = self.receivers[i].fill();
                    if rings {
                        self.card.doorbell(now, self.receivers[i].qp.number());
                    }
                }
                Start::Member(i) => self.tell(now, i, Event::Wake),
            }
        }
        any
    }
}

impl Host for Machine {
    #[inline]
    fn receive<E: Env>(&mut self, now: Time, packet: &Packet, route: &Route, env: &mut E) {
        self.arrived += 1;
        self.card.receive(now, packet, route, env);
        self.poll(now);
    }

    fn advance<E: Env>(&mut self, now: Time, _env: &mut E) -> bool {
        let acted = self.card.advance(now);
        let started = self.start_what_is_due(now);
        self.poll(now);
        acted || started
    }

    #[inline]
    fn next_packet<E: Env>(
        &mut self,
        now: Time,
        ready: PriorityMask,
        env: &mut E,
    ) -> Option<Packet> {
        loop {
            let packet = self.card.next_packet(now, ready, env);
            // What is not sent completes here and now, as do requests that nobody acknowledges once they
            // are on their way; that may have been what the next one waited for.
            if packet.is_some() || !self.poll(now) {
                return packet;
            }
        }
    }

    #[inline]
    fn pending(&self) -> PriorityMask {
        // A request that is done once it is on its way completes with the packet: who posts the next one for it
        // has not seen that yet.
        if self.cq.is_empty() {
            self.card.pending()
        } else {
            PriorityMask::ALL
        }
    }

    fn hears(&self, group: Gid) -> bool {
        self.card.hears(group)
    }

    #[inline]
    fn next_timeout(&self) -> Time {
        match self.starts.peek() {
            Some(Reverse((at, _))) => self.card.next_timeout().min(*at),
            None => self.card.next_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::{CardConfig, QpType};
    use crate::fabric::{Config, HostId, LinkSpec, Network, PayloadMode, Rate, Topology};
    use crate::time::Span;
    use crate::wire::RouteTable;

    /// Nobody answers, so nothing else wakes the sender: it goes on by itself as long as it has something to send,
    /// one frame behind the other.
    #[test]
    fn a_flow_that_nobody_answers_sends_all_it_has_at_the_rate_of_the_line() {
        let write = FlowOperation::Write;
        let send = FlowOperation::Send;
        // Ethernet, IPv4, UDP, BTH, RETH or DETH, 1000 bytes, ICRC, FCS; preamble and gap.
        let frame = |ext: u64| 14 + 20 + 8 + 12 + ext + 1000 + 4 + 4 + 20;
        for (transport, operation, bytes) in [
            (QpType::Uc, write, frame(16)),
            (QpType::Uc, send, frame(0)),
            (QpType::Ud, send, frame(8)),
        ] {
            for depth in [1, 2, 5] {
                let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
                let config = Config {
                    seed: 1,
                    payload: PayloadMode::Counted,
                    routes: RouteTable::new(),
                };
                let table = config.routes.clone();
                let mut net: Network<Machine> =
                    Network::new(&Topology::back_to_back(link), config, (), |_, node| {
                        let config = CardConfig::new(&*node.name, node.gid(), node.mac);
                        Machine::new(Card::new(config, 1, table.clone()), 64).unwrap()
                    })
                    .unwrap();
                let spec = FlowSpec {
                    transport,
                    depth,
                    recv_depth: 32,
                    ..FlowSpec::new(operation, 1000, 20)
                };
                let id = connect(&mut net, HostId::new(0), HostId::new(1), &spec).unwrap();
                assert!(net.run_until_idle(Time::NEVER));
                let sender = net.host(id.host);
                assert!(
                    sender.is_done(net.now()),
                    "{transport:?} {operation:?} {depth}"
                );
                assert_eq!(sender.card().counters().sent_packets, 20);
                let last = 20 * bytes * 80 + 1_000_000;
                assert_eq!(
                    net.now(),
                    Time::from_ps(last),
                    "{transport:?} {operation:?}"
                );
            }
        }
    }
}
