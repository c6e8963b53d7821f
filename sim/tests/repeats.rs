//! A network of any size does the same again: every counter of every card, switch and link, every flow's
//! times, to the last bit.

use softroce_sim::card::{
    Card, CardConfig, CongestionControl, Dcqcn, Mtu, Notification, PriorityMask,
};
use softroce_sim::fabric::loads::{incast, shift};
use softroce_sim::fabric::machine::{FlowOperation, FlowSpec, Machine, connect, stats};
use softroce_sim::fabric::{
    ChannelId, Config, Direction, EcnSpec, LinkSpec, Network, PayloadMode, PfcSpec, Rate, Ratio,
    SwitchSpec, Threshold, Topology,
};
use softroce_sim::random::Probability;
use softroce_sim::time::{Span, Time};
use std::fmt::Write;

/// What came of a run.
struct Outcome {
    /// All there is to tell.
    text: String,
    marks: u64,
    pauses: u64,
    notifications: u64,
}

/// All hosts of a fat tree at once send `bytes` to the first and to the host half the network away, by cards
/// with DCQCN through switches with PFC and ECN.
fn run(k: usize, seed: u64, bytes: u32) -> Outcome {
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
    let eighth = Threshold::Dynamic(Ratio::new(1, 8).unwrap());
    let switch = SwitchSpec {
        // Headroom of each port for one priority, and 400 KB to share.
        buffer: k as u64 * 100_000 + 400_000,
        pfc: Some(PfcSpec::new(PriorityMask(1 << 3), eighth)),
        // Most marks are a matter of chance.
        ecn: [Some(EcnSpec {
            kmin: 2_000,
            kmax: 200_000,
            pmax: Probability::new(0.5).unwrap(),
        }); 8],
        ..SwitchSpec::default()
    };
    let topology = Topology::fat_tree(k, link, switch).unwrap();
    let hosts = topology.hosts().len();
    let config = Config {
        seed,
        payload: PayloadMode::Counted,
        ..Config::default()
    };
    let routes = config.routes.clone();
    let mut network = Network::new(&topology, config, (), |_, node| {
        let config = CardConfig {
            ack_every: 1,
            congestion: CongestionControl::Dcqcn(Dcqcn::PAPER),
            notification: Some(Notification::PAPER),
            ..CardConfig::new(&*node.name, node.gid(), node.mac)
        };
        Machine::new(Card::new(config, seed, routes.clone()), 16).unwrap()
    })
    .unwrap();
    let load = [
        incast(hosts, bytes.into()),
        shift(hosts, hosts / 2, bytes.into()),
    ]
    .concat();
    let flows: Vec<_> = load
        .iter()
        .map(|t| {
            let spec = FlowSpec {
                sl: 3,
                mtu: Mtu::M1024,
                ..FlowSpec::new(FlowOperation::Write, bytes, 1)
            };
            connect(&mut network, t.from, t.to, &spec).unwrap()
        })
        .collect();
    assert!(network.run_until_idle(Time::NEVER));

    let mut text = format!("{} {}\n", network.now(), network.event_count());
    let (mut marks, mut pauses, mut notifications) = (0, 0, 0);
    for link in 0..topology.links().len() {
        for direction in [Direction::Forward, Direction::Backward] {
            let counters = network.counters(ChannelId::new(link, direction));
            writeln!(text, "{link} {direction}: {counters:?}").unwrap();
            marks += counters.by_priority.iter().map(|p| p.marks).sum::<u64>();
            let sent = counters.by_priority.iter().map(|p| p.pauses_sent);
            pauses += sent.sum::<u64>();
        }
    }
    for host in network.hosts() {
        let counters = host.card().counters();
        writeln!(text, "{}: {counters:?}", host.card().config().name).unwrap();
        notifications += counters.cnps_received;
    }
    for id in flows {
        let card = network.host(id.host).card();
        let qp = network.host(id.host).flow_qp(id.flow);
        let rate = card.congestion(network.now(), qp);
        writeln!(text, "{id:?}: {:?} {rate:?}", stats(&network, id)).unwrap();
    }
    Outcome {
        text,
        marks,
        pauses,
        notifications,
    }
}

/// Where two texts part, for a message that can be read.
fn first_difference<'a>(a: &'a str, b: &'a str) -> Option<(&'a str, &'a str)> {
    a.lines().zip(b.lines()).find(|(a, b)| a != b)
}

fn repeats(k: usize, bytes: u32) {
    let once = run(k, 1, bytes);
    assert!(once.marks > 0 && once.pauses > 0 && once.notifications > 0);
    let again = run(k, 1, bytes);
    assert_eq!(first_difference(&once.text, &again.text), None);
    assert_eq!(once.text.len(), again.text.len());
    // Another seed is another run: what is compared does tell runs apart.
    let other = run(k, 2, bytes);
    assert!(first_difference(&once.text, &other.text).is_some());
}

#[test]
fn sixteen_hosts_do_the_same_again() {
    repeats(4, 100_000);
}

#[test]
fn a_hundred_and_twenty_eight_hosts_do_the_same_again() {
    repeats(8, 20_000);
}

#[test]
fn a_thousand_hosts_do_the_same_again() {
    repeats(16, 3_000);
}
