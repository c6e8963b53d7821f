//! A host without a card: what the network costs by itself.

use super::host::Host;
use super::topology::HostNode;
use crate::card::{Env, PriorityMask};
use crate::time::Time;
use crate::wire::{
    Aeth, Bth, Damage, Ecn, Encapsulation, Ext, Msn, Opcode, Packet, Payload, Psn, QpNumber, Route,
    RouteId, RouteTable, aeth::Syndrome,
};
use std::collections::VecDeque;

/// Sends packets of one size to one peer at line rate, and answers each data packet with an ACK, which
/// goes first.
#[derive(Clone, Debug)]
pub struct Bare {
    table: RouteTable,
    load: Option<Load>,
    /// By route of the data: the way back.
    replies: Vec<Option<RouteId>>,
    owed: VecDeque<(RouteId, Psn)>,
    /// Data packets handed to the network.
    pub sent: u64,
    /// Data packets that arrived.
    pub received: u64,
    /// ACKs that arrived.
    pub acknowledged: u64,
    /// When the last packet of any kind arrived.
    pub last: Time,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
struct Load {
    route: RouteId,
    frame_len: u16,
    payload: u16,
    packets: u64,
}

const PRIORITY: u8 = 3;
const QP: QpNumber = QpNumber::new(2);

/// The route from one host to another with UDP source port `udp_src`.
pub fn route(from: &HostNode, to: &HostNode, udp_src: u16) -> Route {
    Route {
        encapsulation: Encapsulation::RoceV2,
        src_mac: from.mac,
        dst_mac: to.mac,
        src: from.gid(),
        dst: to.gid(),
        udp_src,
        vlan: None,
        dscp: 0,
        hop_limit: 64,
        flow_label: 0,
    }
}

impl Bare {
    /// A host with nothing to send.
    pub fn new(table: RouteTable) -> Bare {
        Bare {
            table,
            load: None,
            replies: Vec::new(),
            owed: VecDeque::new(),
            sent: 0,
            received: 0,
            acknowledged: 0,
            last: Time::ZERO,
        }
    }

    /// Has it send `packets` packets of `payload` bytes along `route`.
    #[must_use]
    pub fn sending(mut self, route: &Route, packets: u64, payload: u16) -> Bare {
        self.load = Some(Load {
            route: self.table.intern(*route),
            frame_len: route.overhead()
                + Bth::LEN as u16
                + payload
                + u16::from(Payload::counted(payload).pad_count()),
            payload,
            packets,
        });
        self
    }

    /// The way back from `route`, which is looked up once.
    fn reply(&mut self, id: RouteId, route: &Route) -> RouteId {
        if let Some(Some(known)) = self.replies.get(id.index()) {
            return *known;
        }
        let reply = self.table.intern(Route {
            src_mac: route.dst_mac,
            dst_mac: route.src_mac,
            src: route.dst,
            dst: route.src,
            ..*route
        });
        if self.replies.len() <= id.index() {
            self.replies.resize(id.index() + 1, None);
        }
        self.replies[id.index()] = Some(reply);
        reply
    }
}

/// What all its packets have in common.
#[inline]
fn packet(route: RouteId) -> Packet {
    Packet {
        ext: Ext::None,
        bth: Bth::new(Opcode::RC_ACKNOWLEDGE, QP, Psn::new(0)),
        route,
        payload: Payload::EMPTY,
        frame_len: 0,
        priority: PRIORITY,
        ecn: Ecn::Capable0,
        damage: Damage::None,
        hop_limit: 64,
    }
}

/// An ACK on Ethernet and IPv4: 14 + 20 + 8 + 12 + 4 + 4 + 4 bytes.
const ACK_FRAME: u16 = 66;

impl Host for Bare {
    #[inline]
    fn receive<E: Env>(&mut self, now: Time, packet: &Packet, route: &Route, _env: &mut E) {
        self.last = now;
        if packet.bth.opcode() == Opcode::RC_ACKNOWLEDGE {
            self.acknowledged += 1;
        } else {
            self.received += 1;
            let reply = self.reply(packet.route, route);
            self.owed.push_back((reply, packet.bth.psn()));
        }
    }

    #[inline]
    fn advance<E: Env>(&mut self, _now: Time, _env: &mut E) -> bool {
        false
    }

    #[inline]
    fn next_packet<E: Env>(&mut self, _: Time, ready: PriorityMask, env: &mut E) -> Option<Packet> {
        if !ready.contains(PRIORITY) {
            return None;
        }
        if let Some((route, psn)) = self.owed.pop_front() {
            let ack = Aeth {
                syndrome: Syndrome::ack(Syndrome::UNLIMITED),
                msn: Msn::new(psn.get()),
            };
            return Some(Packet {
                ext: Ext::Aeth(ack),
                bth: Bth::new(Opcode::RC_ACKNOWLEDGE, QP, psn),
                frame_len: ACK_FRAME,
                ..packet(route)
            });
        }
        let load = self.load.as_ref().filter(|l| l.packets > self.sent)?;
        let psn = Psn::new(self.sent as u32);
        self.sent += 1;
        Some(Packet {
            bth: Bth::new(Opcode::RC_WRITE_MIDDLE, QP, psn),
            payload: env.stage(load.payload, |bytes| bytes.fill(psn.get() as u8)),
            frame_len: load.frame_len,
            ..packet(load.route)
        })
    }

    #[inline]
    fn pending(&self) -> PriorityMask {
        if self.owed.is_empty() && self.load.is_none_or(|l| l.packets <= self.sent) {
            PriorityMask::NONE
        } else {
            PriorityMask::NONE.with(PRIORITY)
        }
    }

    #[inline]
    fn next_timeout(&self) -> Time {
        Time::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Config, LinkSpec, Network, PayloadMode, Rate, Topology};
    use crate::time::Span;

    #[test]
    fn two_bare_hosts_fill_their_link_with_data_and_acks() {
        let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
        let topology = Topology::back_to_back(link);
        let config = Config {
            payload: PayloadMode::Counted,
            ..Config::default()
        };
        let table = config.routes.clone();
        let [a, b] = topology.hosts() else {
            unreachable!("two hosts")
        };
        let mut network = Network::new(&topology, config, (), |id, _| {
            let (from, to) = if id.index() == 0 { (a, b) } else { (b, a) };
            Bare::new(table.clone()).sending(&route(from, to, 0xc000), 1000, 1024)
        })
        .unwrap();
        assert!(network.run_until_idle(Time::NEVER));
        for host in network.hosts() {
            assert_eq!(
                (host.sent, host.received, host.acknowledged),
                (1000, 1000, 1000)
            );
            // 1000 data frames of 1086 + 20 bytes; of the ACKs of 66 + 20 bytes all but those that
            // the last round trip holds back go between them, and then that round trip.
            let data_and_acks = 1000 * (1106 + 86) * 80;
            let round_trip = 2 * 1_000_000 + (1106 + 86) * 80;
            let last = host.last.as_ps();
            assert!((data_and_acks..data_and_acks + round_trip).contains(&last));
        }
    }
}
