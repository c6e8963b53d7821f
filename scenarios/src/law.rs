//! Formulas that predict a goodput, laid beside what was measured.

use crate::format::Scenario;
use crate::format::fault::{Action, Injection, PacketClass, Pick};
use crate::format::pattern::CollectiveKind;
use crate::format::request::Transport;
use crate::format::topology::WayId;
use crate::format::traffic::Traffic;
use crate::path::{Neighbours, one_way, wire_bytes};
use crate::units::Span;

/// What the go-back-N law takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GoBackN {
    /// Share of data packets lost.
    pub forward: f64,
    /// Share of packets lost that are sent again because of a loss. At random it is that of all data
    /// packets; where every n-th is lost, the retransmission is not the n-th.
    pub again: f64,
    /// Share of NAKs lost.
    pub backward: f64,
    /// Packets sent from the one that is lost, which counts, until it is sent again.
    pub window: f64,
    /// For how many of them the requester sends nothing, because it takes its time to go back.
    pub idle: f64,
    /// The ACK timeout in packets; infinite if there is none.
    pub timeout: f64,
    /// Every so many packets one is lost, and no other is.
    pub period: Option<u64>,
}

impl GoBackN {
    /// The share of the loss-free goodput that is left.
    ///
    /// Each loss costs the packets in flight until the NAK takes effect; if the packet is lost a second
    /// time, or the NAK is, nothing tells the requester and it waits for its timer. What is sent for nothing
    /// counts towards the next n-th packet, and that one may be among it: between two losses that cost
    /// something lies the least multiple of n that is more than that.
    pub fn share(&self) -> f64 {
        let (p, q) = (self.forward, self.backward);
        if let Some(n) = self.period.filter(|_| q == 0.0) {
            let sent = self.window - self.idle;
            let between = n as f64 * (sent / n as f64).floor() + n as f64;
            return (between - sent) / (between + self.idle);
        }
        let silent = p * (self.again + q);
        let waiting = if silent == 0.0 {
            0.0
        } else {
            silent * self.timeout
        };
        1.0 / (1.0 + p * self.window + waiting)
    }

    /// Works out the parameters for one load of a scenario, alone on its path. `None` if it has no path,
    /// or is none of SENDs or WRITEs over a reliable connection.
    pub fn of(scenario: &Scenario, traffic: &Traffic) -> Option<GoBackN> {
        let &(from, to) = traffic.pairs.first()?;
        if !traffic.operation.sends_data() || traffic.transport != Transport::Rc {
            return None;
        }
        let card = scenario.cards.get(from)?;
        let neighbours = Neighbours::new(&scenario.network);
        let there = neighbours.tree(from).to(to)?;
        let back = neighbours.tree(to).to(from)?;
        let packet = u64::from(card.mtu).min(traffic.size.0.max(1));
        let wire = wire_bytes(card, 0, packet);
        let time = |way: &WayId, bytes: u64| {
            let link = &scenario.network.links[way.link];
            link.delay.as_ps() as f64 + bytes as f64 * 8e12 / link.rate.0 as f64
        };
        // The packet after the lost one tells of the gap; the NAK has a BTH and an AETH.
        let nak = wire_bytes(card, 0, 4);
        let round: f64 = there.iter().map(|w| time(w, wire)).sum::<f64>()
            + back.iter().map(|w| time(w, nak)).sum::<f64>();
        let responder = scenario.cards.get(to)?;
        let reaction =
            round + responder.nak_delay.as_ps() as f64 + card.retransmit_delay.as_ps() as f64;
        let slowest = there
            .iter()
            .map(|w| scenario.network.links[w.link].rate.0)
            .min()?;
        let each = wire as f64 * 8e12 / slowest as f64;
        let packets = traffic.size.0.div_ceil(u64::from(card.mtu)).max(1);
        let outstanding = packets as f64 * f64::from(traffic.depth);
        let window = (1.0 + reaction / each).ceil().min(outstanding);
        let idle = card.retransmit_delay.as_ps() as f64 / each;
        let data = [PacketClass::Data, PacketClass::Request];
        Some(GoBackN {
            forward: lost(scenario, &there, &data, rate),
            again: lost(scenario, &there, &data, rate_again),
            backward: lost(scenario, &back, &[PacketClass::Ack, PacketClass::Nak], rate),
            // A packet that is under way when the NAK comes is sent to its end.
            window,
            idle: idle.min(window - 1.0),
            timeout: card
                .ack_timeout()
                .map_or(f64::INFINITY, |t| t.as_ps() as f64 / each),
            period: period(scenario, &there, &data),
        })
    }
}

/// What the law of an all-reduce around a ring takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RingAllReduce {
    /// Hosts.
    pub hosts: usize,
    /// Bytes that are reduced.
    pub bytes: u64,
    /// What the slowest host computes before it begins.
    pub compute: Span,
    /// The longest time that a chunk takes from one host to the next: 1/N of the bytes with their frames at
    /// the slowest link of the path, and the latency of the path.
    pub step: Span,
}

impl RingAllReduce {
    /// Works out the parameters for a load of a scenario, alone in its network. `None` if it is no
    /// all-reduce.
    pub fn of(scenario: &Scenario, traffic: &Traffic) -> Option<RingAllReduce> {
        let collective = traffic.collective.as_ref()?;
        let CollectiveKind::AllReduce { rings } = collective.kind else {
            return None;
        };
        let network = &scenario.network;
        let neighbours = Neighbours::new(network);
        let mut step = Span::ZERO;
        for &(from, to) in &traffic.pairs {
            let way = neighbours.tree(from).to(to)?;
            let card = scenario.cards.get(from)?;
            // The chunks of rings side by side go one after the other, as messages of one flow would.
            let rings = u64::from(rings);
            let size = traffic.size.0;
            let time = one_way(network, card, &way, traffic.operation, size, rings)?;
            step = step.max(time);
        }
        Some(RingAllReduce {
            hosts: collective.members.len(),
            bytes: collective.bytes.0,
            compute: collective.members.iter().map(|m| m.1).max()?,
            step,
        })
    }

    /// The time of the communication, 2 (N - 1) steps, in picoseconds. ACKs are left out.
    fn time(&self) -> f64 {
        2.0 * (self.hosts as f64 - 1.0) * self.step.as_ps() as f64
    }

    /// The time of an iteration in picoseconds.
    pub fn iteration(&self) -> f64 {
        self.compute.as_ps() as f64 + self.time()
    }

    /// The bytes over the time of the communication, in bits per second.
    pub fn algorithm_bps(&self) -> f64 {
        self.bytes as f64 * 8e12 / self.time()
    }

    /// That times 2 (N - 1) / N.
    pub fn bus_bps(&self) -> f64 {
        let n = self.hosts as f64;
        self.algorithm_bps() * 2.0 * (n - 1.0) / n
    }
}

/// Whether a fault loses packets of these classes in the long run.
fn loses(fault: &Injection, classes: &[PacketClass]) -> bool {
    let class = fault.filter.packets;
    let meant = class == PacketClass::Any || classes.contains(&class);
    let loses = matches!(
        fault.action,
        Action::Drop | Action::Corrupt | Action::CorruptDevice
    );
    // A fault on named packets has no long run.
    meant && loses && fault.at_most.is_none() && !fault.filter.names_packets()
}

/// Every how many packets one is lost along `ways`, if that is all that is lost there.
fn period(scenario: &Scenario, ways: &[WayId], classes: &[PacketClass]) -> Option<u64> {
    let clean = |way: &WayId| scenario.network.links[way.link].loss[way.way].get() == 0.0;
    let meant = scenario
        .faults
        .iter()
        .filter(|f| loses(&f.injection, classes));
    let mut picks = meant.flat_map(|f| {
        let met = ways.iter().filter(|w| f.ways.contains(w));
        met.map(|_| &f.injection.pick)
    });
    match (picks.next(), picks.next()) {
        (Some(&Pick::Every { every, .. }), None) if every > 1 => {
            ways.iter().all(clean).then_some(every)
        }
        _ => None,
    }
}

/// The share of packets of these classes that is lost along `ways`, where a fault picks them at `rate`.
fn lost(
    scenario: &Scenario,
    ways: &[WayId],
    classes: &[PacketClass],
    rate: fn(&Pick) -> f64,
) -> f64 {
    let mut kept = 1.0;
    for way in ways {
        kept *= 1.0 - scenario.network.links[way.link].loss[way.way].get();
        for fault in scenario.faults.iter().filter(|f| f.ways.contains(way)) {
            let fault = &fault.injection;
            if loses(fault, classes) {
                kept *= 1.0 - rate(&fault.pick);
            }
        }
    }
    1.0 - kept
}

/// The share of packets that a fault picks in the long run.
fn rate(pick: &Pick) -> f64 {
    match pick {
        Pick::Loss(p) => p.get(),
        Pick::Every { every, .. } => 1.0 / *every as f64,
        Pick::Burst {
            enter,
            leave,
            rate_good,
            rate_bad,
        } => {
            let (enter, leave) = (enter.get(), leave.get());
            if enter + leave == 0.0 {
                return rate_good.get();
            }
            (leave * rate_good.get() + enter * rate_bad.get()) / (enter + leave)
        }
        Pick::All => 1.0,
    }
}

/// The share of retransmissions that a fault picks.
fn rate_again(pick: &Pick) -> f64 {
    match pick {
        Pick::Every { every, .. } if *every > 1 => 0.0,
        other => rate(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library;

    fn near(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 0.04
    }

    #[test]
    fn the_share_is_that_of_the_worked_examples() {
        let law = |p, t| GoBackN {
            forward: p,
            again: p,
            backward: 0.0,
            window: 150.0,
            idle: 0.0,
            timeout: t,
            period: None,
        };
        assert!(near(law(1e-3, 820e3).share(), 0.52));
        assert!(near(law(1e-2, 820e3).share(), 0.0119));
        assert!(near(law(1e-3, 800.0).share(), 0.87));
        assert!(near(law(1e-2, 800.0).share(), 0.40));
        assert_eq!(law(0.0, f64::INFINITY).share(), 1.0);
    }

    #[test]
    fn where_every_nth_is_lost_what_is_sent_for_nothing_counts() {
        let law = |window, idle| GoBackN {
            forward: 1.0 / 256.0,
            again: 0.0,
            backward: 0.0,
            window,
            idle,
            timeout: 1e6,
            period: Some(256),
        };
        assert_eq!(law(96.0, 0.0).share(), 160.0 / 256.0);
        // The 256th falls among the packets that are sent for nothing, and only the 512th costs something.
        assert_eq!(law(366.0, 0.0).share(), 146.0 / 512.0);
        assert_eq!(law(96.0, 64.0).share(), 224.0 / 320.0);
    }

    #[test]
    fn parameters_follow_from_the_scenario() {
        let plan = library::find("loss-cliff")
            .unwrap()
            .file()
            .plan(&[])
            .unwrap();
        for point in &plan.points {
            let scenario = &point.scenario;
            let law = GoBackN::of(scenario, &scenario.traffic[0]).unwrap();
            assert!((145.0..155.0).contains(&law.window), "{law:?}");
            let Pick::Loss(p) = scenario.faults[0].injection.pick else {
                panic!("no random loss");
            };
            let on = |way| scenario.faults[0].ways.iter().any(|w| w.way == way);
            for (way, share) in [(0, law.forward), (1, law.backward)] {
                let p = if on(way) { p.get() } else { 0.0 };
                assert!((p - share).abs() < 1e-12, "{law:?}");
            }
            assert_eq!(law.again, law.forward);
        }
        let plan = library::find("livelock").unwrap().file().plan(&[]).unwrap();
        let scenario = &plan.points[1].scenario;
        let law = GoBackN::of(scenario, &scenario.traffic[0]).unwrap();
        assert!((law.forward - 1.0 / 256.0).abs() < 1e-12);
        assert_eq!((law.again, law.backward), (0.0, 0.0));
        assert_eq!(law.period, Some(256));
    }
}
