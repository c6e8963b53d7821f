//! Every packet is delivered once, dropped with a cause, or on its way; and a run repeats.

use super::*;
use crate::random::{Probability, Stream};
use proptest::prelude::*;

/// Random traffic on a small fat tree with short queues and losses, stopped somewhere.
fn run(seed: u64, packets: u32, stop: Time) -> World {
    let switch = SwitchSpec::tail_drop(4_000);
    let topology = Topology::fat_tree(4, link(), switch).unwrap();
    let mut w = World::with(topology, seed, PayloadMode::Carried);
    let loss = Pattern::Random(Probability::new(0.05).unwrap());
    for (from, to) in [("edge0", "agg0"), ("agg1", "edge0"), ("core0", "agg2")] {
        let channel = w.channel(from, to);
        w.net
            .inject(channel, Fault::new(Action::Drop).when(loss))
            .unwrap();
    }
    let mut random = Stream::new(seed, "traffic");
    for psn in 0..packets {
        let from = random.below(16) as usize;
        // Half of it to one host, so that queues fill.
        let to = [15, random.below(16) as usize][random.below(2) as usize];
        let route = w.route(from, to);
        let begin = at(random.below(3_000_000));
        let sent = Packet {
            priority: random.below(8) as u8,
            ..packet(route, psn)
        };
        if from != to {
            w.net.host_mut(HostId::new(from)).plan(begin, sent);
        }
    }
    for h in 0..16 {
        w.net.kick(HostId::new(h));
    }
    w.net.run_until(stop);
    w
}

fn all_drops(w: &World) -> u64 {
    (0..w.topology.links().len())
        .flat_map(|l| [Direction::Forward, Direction::Backward].map(|d| ChannelId::new(l, d)))
        .map(|c| w.net.counters(c).all_drops())
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn packets_are_delivered_dropped_or_in_flight(
        seed: u64,
        packets in 1u32..400,
        stop in 0u64..20_000_000,
    ) {
        let mut w = run(seed, packets, at(stop));
        for stopped in [true, false] {
            let left: usize = w.net.hosts().map(|h| h.todo.len()).sum();
            let delivered: Vec<u32> = w.net.hosts().flat_map(|h| h.psns()).collect();
            let mut distinct = delivered.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), delivered.len());
            let log = w.net.observer();
            prop_assert_eq!(log.count("deliver"), delivered.len());
            prop_assert_eq!(log.count("drop") as u64, all_drops(&w));
            // Each packet leaves its host once.
            let up: u64 = w.topology.hosts().iter()
                .map(|h| w.net.counters(h.uplink().unwrap()).frames)
                .sum();
            let accounted = delivered.len() as u64 + all_drops(&w) + w.net.in_flight() as u64;
            prop_assert_eq!(up, accounted);
            prop_assert_eq!(w.net.pool().in_use(), w.net.in_flight());
            if stopped {
                prop_assert!(w.net.run_until_idle(Time::NEVER));
            } else {
                prop_assert_eq!((left, w.net.in_flight()), (0, 0));
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_events(seed: u64, packets in 1u32..200, cut in 0u64..9_000_000) {
        let whole = run(seed, packets, at(1_000_000_000));
        // Stopping on the way changes nothing.
        let mut parts = run(seed, packets, at(cut));
        while parts.net.step() {}
        prop_assert_eq!(whole.net.observer(), parts.net.observer());
        prop_assert_eq!(whole.net.event_count(), parts.net.event_count());
        prop_assert_eq!(whole.net.fault_log().records(), parts.net.fault_log().records());
    }
}

#[test]
fn payloads_come_to_all_hosts_as_they_were_sent() {
    let mut w = run(5, 300, at(0));
    w.run();
    for host in w.net.hosts() {
        let sent = host.psns().into_iter().map(|psn| vec![psn as u8; 1000]);
        assert_eq!(host.bytes, sent.collect::<Vec<_>>());
    }
}
