//! What was lost where: the latest losses of each flow, always on.
//!
//! A queue pair that fails sends nothing more, so the latest losses of its flow are those that explain
//! its failure. Packets lost in a row are one record, and a flow has a limited number of them.

use super::counters::DropCause;
use super::link::ChannelId;
use crate::time::Time;
use crate::wire::aeth::SyndromeKind;
use crate::wire::{Gid, Operation, Packet, Psn, QpNumber, Route};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// The most records that are kept of a flow; the oldest one goes first.
const PER_FLOW: usize = 512;
/// The most records that are kept of all flows; then only a flow that has some gets new ones.
const ALL: usize = 1 << 18;

/// Packets of a flow with PSNs in a row that were lost one after the other at one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// When the first of them was lost.
    pub time: Time,
    /// Where: before, on or at the end of this channel.
    pub channel: ChannelId,
    /// Why.
    pub why: Why,
    /// The fault that did it, by its position among those of the channel; `None` if no fault did.
    pub fault: Option<usize>,
    /// What they were.
    pub kind: Kind,
    /// PSN of the first one.
    pub psn: Psn,
    /// How many there were.
    pub count: u32,
}

/// Why a packet does not reach the card that it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The network dropped it.
    Dropped(DropCause),
    /// A device damaged it, so that its ICRC is wrong.
    Damaged,
}

/// What a packet is to the requester whose work it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A request.
    Request,
    /// READ data, or an answer to an ATOMIC WRITE.
    ReadResponse,
    /// A positive acknowledgement, of an atomic too.
    Ack,
    /// A NAK for a gap, or a refusal.
    Nak,
    /// An RNR NAK.
    RnrNak,
    /// A congestion notification.
    Cnp,
}

impl Kind {
    fn of(packet: &Packet) -> Kind {
        match packet.bth.opcode().operation() {
            Operation::ReadResponse => Kind::ReadResponse,
            Operation::Acknowledge | Operation::AtomicAcknowledge => {
                match packet.ext.aeth().map(|aeth| aeth.syndrome.kind()) {
                    Some(SyndromeKind::Nak(_)) => Kind::Nak,
                    Some(SyndromeKind::RnrNak { .. }) => Kind::RnrNak,
                    _ => Kind::Ack,
                }
            }
            Operation::Cnp => Kind::Cnp,
            _ => Kind::Request,
        }
    }
}

/// In words, as in "lost on h0->h1 (queue full)".
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Dropped(cause) => cause.fmt(f),
            Why::Damaged => f.write_str("bad ICRC"),
        }
    }
}

impl Loss {
    /// The packet with the smallest PSN that is not before `psn`.
    pub fn first_from(&self, psn: Psn) -> Option<Psn> {
        let ahead = psn.after(self.psn);
        if ahead <= 0 {
            return Some(self.psn);
        }
        ((ahead as u32) < self.count).then_some(psn)
    }

    /// True if the packet with `psn` is one of them.
    pub fn covers(&self, psn: Psn) -> bool {
        (0..i64::from(self.count)).contains(&i64::from(psn.after(self.psn)))
    }
}

/// The latest losses of each flow.
#[derive(Clone, Debug, Default)]
pub(super) struct LossLog {
    /// By destination queue pair and route.
    flows: BTreeMap<(QpNumber, usize), VecDeque<Loss>>,
    records: usize,
}

impl LossLog {
    #[cold]
    pub(super) fn add(
        &mut self,
        time: Time,
        channel: ChannelId,
        why: Why,
        fault: Option<usize>,
        packet: &Packet,
    ) {
        let loss = Loss {
            time,
            channel,
            why,
            fault,
            kind: Kind::of(packet),
            psn: packet.bth.psn(),
            count: 1,
        };
        let flow = (packet.bth.dest_qp(), packet.route.index());
        let flow = self.flows.entry(flow).or_default();
        if let Some(last) = flow.back_mut()
            && last.psn.plus(last.count) == loss.psn
            && (last.channel, last.why, last.fault, last.kind) == (channel, why, fault, loss.kind)
        {
            last.count += 1;
            return;
        }
        if flow.len() >= PER_FLOW || (self.records >= ALL && !flow.is_empty()) {
            flow.pop_front();
        } else if self.records >= ALL {
            return;
        } else {
            self.records += 1;
        }
        flow.push_back(loss);
    }

    /// Losses of what `from` sent to the queue pair `qp` at `to`, by route and then by time.
    pub(super) fn of<'a>(
        &'a self,
        routes: &'a [Route],
        from: Gid,
        to: (Gid, QpNumber),
    ) -> impl Iterator<Item = &'a Loss> {
        let (to, qp) = to;
        self.flows
            .range((qp, 0)..=(qp, usize::MAX))
            .filter(move |((_, route), _)| {
                let route = routes.get(*route);
                route.is_some_and(|route| route.src == from && route.dst == to)
            })
            .flat_map(|(_, losses)| losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::link::Direction;
    use crate::fabric::{LinkSpec, Rate, Topology, bare};
    use crate::time::Span;
    use crate::wire::{Bth, Damage, Ecn, Ext, Opcode, Payload, RouteTable};

    fn packet(routes: &RouteTable, psn: u32) -> (Packet, Route) {
        let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
        let topology = Topology::back_to_back(link);
        let route = bare::route(&topology.hosts()[0], &topology.hosts()[1], 0xc000);
        let packet = Packet {
            ext: Ext::None,
            bth: Bth::new(Opcode::RC_SEND_ONLY, QpNumber::new(7), Psn::new(psn)),
            route: routes.intern(route),
            payload: Payload::EMPTY,
            frame_len: 64,
            priority: 0,
            ecn: Ecn::NotCapable,
            damage: Damage::None,
            hop_limit: 64,
        };
        (packet, route)
    }

    fn losses(psns: &[u32]) -> Vec<(u32, u32)> {
        let routes = RouteTable::new();
        let mut log = LossLog::default();
        let mut way = None;
        let channel = ChannelId::new(0, Direction::Forward);
        for (n, &psn) in psns.iter().enumerate() {
            let (packet, route) = packet(&routes, psn);
            let why = Why::Dropped(DropCause::QueueFull);
            log.add(Time::from_ps(n as u64), channel, why, None, &packet);
            way = Some(route);
        }
        let way = way.unwrap();
        let all = [way];
        log.of(&all, way.src, (way.dst, QpNumber::new(7)))
            .map(|loss| (loss.psn.get(), loss.count))
            .collect()
    }

    #[test]
    fn packets_in_a_row_are_one_record() {
        assert_eq!(
            losses(&[0xff_fffe, 0xff_ffff, 0, 1, 0xff_fffe, 0xff_fffe, 3]),
            [(0xff_fffe, 4), (0xff_fffe, 1), (0xff_fffe, 1), (3, 1)]
        );
    }

    #[test]
    fn the_latest_of_a_flow_are_kept() {
        let psns: Vec<u32> = (0..2000).map(|n| 2 * n).collect();
        let kept = losses(&psns);
        assert_eq!(kept.len(), PER_FLOW);
        assert_eq!(kept.last(), Some(&(3998, 1)));
    }

    #[test]
    fn a_record_knows_its_packets() {
        let loss = Loss {
            time: Time::ZERO,
            channel: ChannelId::new(0, Direction::Forward),
            why: Why::Damaged,
            fault: None,
            kind: Kind::Request,
            psn: Psn::new(0xff_ffff),
            count: 3,
        };
        let psn = Psn::new;
        assert_eq!(loss.first_from(psn(0xff_fff0)), Some(psn(0xff_ffff)));
        assert_eq!(loss.first_from(psn(1)), Some(psn(1)));
        assert_eq!(loss.first_from(psn(2)), None);
        assert!(loss.covers(psn(0)) && !loss.covers(psn(0xff_fffe)) && !loss.covers(psn(2)));
    }
}
