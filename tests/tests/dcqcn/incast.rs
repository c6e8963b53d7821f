//! How long flows of 10 MB take that begin together and end at one port, 100 Gb/s, against published runs of
//! another simulator's DCQCN, which counts 1048 bytes on the wire for 1000 of data. Compared are slowdowns: the
//! time of a flow over the time it would take alone, each in its own framing.

use super::network;
use softroce_sim::card::congestion::{EarlyMark, Scope};
use softroce_sim::card::{Dcqcn, Notification, PriorityMask};
use softroce_sim::fabric::machine::{FlowOperation, FlowSpec, connect, stats};
use softroce_sim::fabric::{
    ChannelId, Direction, EcnSpec, HostId, LinkSpec, PfcSpec, Ratio, SwitchSpec, Threshold,
    Topology,
};
use softroce_sim::random::Probability;
use softroce_sim::rate::Rate;
use softroce_sim::time::{Span, Time};

const LINE: Rate = Rate::from_gbps(100);
const BYTES: u32 = 10_000_000;

/// 32 MB, a pause at 1/8 of what is free, marks from 400 KB to 1600 KB with up to 0.2.
fn switch() -> SwitchSpec {
    let eighth = Threshold::Dynamic(Ratio::new(1, 8).unwrap());
    SwitchSpec {
        buffer: 32_000_000,
        pfc: Some(PfcSpec::new(PriorityMask::ALL, eighth)),
        ecn: [Some(EcnSpec {
            kmin: 400_000,
            kmax: 1_600_000,
            pmax: Probability::new(0.2).unwrap(),
        }); 8],
        ..SwitchSpec::tail_drop(u64::MAX)
    }
}

fn link() -> LinkSpec {
    LinkSpec::new(LINE, Span::from_us(1))
}

/// As the other simulator has it: g 1/256, alpha timer 1 us, cuts at least 4 us apart, rate timer 300 us, one step
/// of fast recovery, 20 and 200 Mb/s, at least 100 Mb/s.
fn reaction() -> Dcqcn {
    Dcqcn::hpcc(LINE)
}

/// Its receivers answer each marked packet.
const NOTIFICATION: Notification = Notification {
    interval: Span::ZERO,
    scope: Scope::QueuePair,
    early: EarlyMark::Forgotten,
    ..Notification::PAPER
};

/// Microseconds that 10 MB take alone in packets of `payload` bytes and `overhead` more on the wire, the way to
/// the receiver and that of the last acknowledgement included, over `links` links.
fn alone(payload: u32, overhead: u32, links: u32) -> f64 {
    let packets = BYTES.div_ceil(payload);
    let us = |bytes: u32| f64::from(bytes) * 8.0 / 100e3;
    let hops = f64::from(links - 1);
    us(BYTES + packets * overhead)
        + hops * us(payload + overhead)
        + 2.0 * f64::from(links)
        + (hops + 1.0) * us(84)
}

/// The shortest and the longest slowdown of flows from all hosts but the first to the first, and how many pauses
/// there were. `links` is how many links lie between a host and the first.
fn run(topology: &Topology, links: impl Fn(usize) -> u32) -> (f64, f64, u64) {
    let mut net = network(topology, 1, LINE, reaction(), NOTIFICATION);
    let flows: Vec<_> = (1..topology.hosts().len())
        .map(|i| {
            let spec = FlowSpec {
                timeout: 31,
                udp_src: Some(0xc000 + i as u16),
                ..FlowSpec::new(FlowOperation::Write, BYTES, 1)
            };
            connect(&mut net, HostId::new(i), HostId::new(0), &spec).unwrap()
        })
        .collect();
    net.run_until(Time::ZERO + Span::from_ms(100));
    let slowdowns = flows.iter().map(|&id| {
        let s = stats(&net, id);
        assert_eq!(s.bytes, u64::from(BYTES));
        let took = s.last_success.unwrap().since(s.first_post.unwrap());
        took.as_ps() as f64 / 1e6 / alone(1024, 82, links(id.host.index()))
    });
    let (least, most) = slowdowns.fold((f64::MAX, 0.0_f64), |(a, b), s| (a.min(s), b.max(s)));
    let channels = (0..topology.links().len())
        .flat_map(|l| [Direction::Forward, Direction::Backward].map(|d| ChannelId::new(l, d)));
    let pauses = channels.map(|c| net.counters(c).pfc_frames).sum();
    (least, most, pauses)
}

fn compare(name: &str, (least, most, pauses): (f64, f64, u64), published: (f64, f64), links: u32) {
    let ideal = alone(1000, 48, links);
    let (first, last) = (published.0 / ideal, published.1 / ideal);
    eprintln!(
        "{name}: slowdowns {least:.3} to {most:.3}, published {first:.3} to {last:.3} ({:+.1} and {:+.1} %), \
         {pauses} PFC frames",
        (least / first - 1.0) * 100.0,
        (most / last - 1.0) * 100.0,
    );
    assert!((least / first - 1.0).abs() < 0.1, "{name}: {least} {first}");
    assert!((most / last - 1.0).abs() < 0.1, "{name}: {most} {last}");
}

fn star(senders: usize) -> (f64, f64, u64) {
    let topology = Topology::star(senders + 1, link(), switch()).unwrap();
    run(&topology, |_| 2)
}

#[test]
fn two_flows_into_one_port() {
    let found = star(2);
    compare("2:1", found, (2160.0, 2178.0), 2);
    assert_eq!(found.2, 0);
}

#[test]
fn eight_flows_into_one_port() {
    let found = star(8);
    compare("8:1", found, (7220.0, 8303.0), 2);
    assert_eq!(found.2, 0);
}

/// Of a fat tree with four ports at each switch the first two hosts are at one switch, the first four in one pod.
#[test]
fn fifteen_flows_into_one_port_of_a_fat_tree() {
    let topology = Topology::fat_tree(4, link(), switch()).unwrap();
    let found = run(&topology, |host| match host {
        1 => 2,
        2 | 3 => 4,
        _ => 6,
    });
    compare("15:1", found, (10_888.0, 15_206.0), 6);
}
