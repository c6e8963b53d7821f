//! What shares the buffer and the ports of a switch: marks, shares, tail drop; and that all of it is
//! counted right.

use super::*;
use crate::fabric::pfc::PfcSpec;
use crate::random::{Probability, Stream};
use proptest::prelude::*;

fn star(hosts: usize, switch: SwitchSpec) -> World {
    World::new(Topology::star(hosts, link(), switch).unwrap())
}

fn step(kmin: u64, kmax: u64, pmax: f64) -> [Option<EcnSpec>; 8] {
    let mut ecn = [None; 8];
    ecn[3] = Some(EcnSpec {
        kmin,
        kmax,
        pmax: Probability::new(pmax).unwrap(),
    });
    ecn
}

#[test]
fn packets_are_marked_as_they_leave_more_than_the_threshold_behind() {
    let k = 10 * u64::from(FRAME);
    let switch = SwitchSpec {
        ecn: step(k, k, 1.0),
        ..SwitchSpec::default()
    };
    let mut w = star(3, switch);
    let (a, b) = (w.route(0, 2), w.route(1, 2));
    w.send(0, (0..40).map(|psn| packet(a, psn)));
    let not_capable = |psn| Packet {
        ecn: Ecn::NotCapable,
        ..packet(b, psn)
    };
    w.send(1, (0..40).map(not_capable));
    w.run();
    // Two come in each of 40 slots, and then one goes, that leaves n behind in slot n; the first goes at
    // once. In the 40 slots after that one goes and leaves 80 - n.
    let got = &w.net.host(HostId::new(2)).got;
    let deep: Vec<bool> = (1..=80).map(|n: i32| n.min(80 - n) > 10).collect();
    for (n, ((_, p), deep)) in got.iter().zip(deep).enumerate() {
        let marked = p.ecn == Ecn::Experienced;
        // h0's and h1's come by turns.
        assert_eq!(marked, deep && n % 2 == 0, "{n}");
    }
    let c = w.net.counters(w.channel("s0", "h2")).by_priority[3];
    assert_eq!((c.marks, c.not_capable), (30, 29));
    assert_eq!(w.net.observer().count("mark"), 30);
    assert_eq!(c.queue_high_water, 41 * u64::from(FRAME));
}

#[test]
fn marks_come_as_often_as_the_curve_says() {
    // A queue that stands at 100 frames, half way between the thresholds: 5 %.
    let frame = u64::from(FRAME);
    let switch = SwitchSpec {
        ecn: step(0, 200 * frame, 0.1),
        ..SwitchSpec::default()
    };
    let mut w = star(3, switch);
    let (a, b) = (w.route(0, 2), w.route(1, 2));
    w.send(0, (0..100).map(|psn| packet(a, psn)));
    let n = 40_000;
    w.send(1, (0..n).map(|psn| packet(b, psn)));
    w.run();
    let c = w.net.counters(w.channel("s0", "h2")).by_priority[3];
    // 100 on the way up, 100 on the way down, which mark half as often.
    let mean = 0.05 * f64::from(n);
    let slack = 6.0 * (mean * 0.95).sqrt();
    assert!(
        (c.marks as f64 - mean).abs() < slack,
        "{} for {mean}",
        c.marks
    );
}

#[test]
fn each_priority_is_marked_by_its_own_queue() {
    let switch = SwitchSpec {
        ecn: step(0, 0, 1.0),
        ..SwitchSpec::default()
    };
    let mut w = star(3, switch);
    let (a, b) = (w.route(0, 2), w.route(1, 2));
    let other = |psn| Packet {
        priority: 2,
        ..packet(a, psn)
    };
    w.send(0, (0..50).map(other));
    w.send(1, (100..101).map(|psn| packet(b, psn)));
    w.run();
    assert_eq!(w.net.observer().count("mark"), 0);
}

#[test]
fn weights_share_a_port_and_strict_priorities_do_not_ask() {
    let switch = SwitchSpec {
        weights: [1, 3, 0, 0, 0, 0, 0, 0],
        port_buffer: 1 << 30,
        ..SwitchSpec::default()
    };
    // A quantum is a frame.
    let link = link().with_mtu(1044);
    let mut w = World::new(Topology::star(4, link, switch).unwrap());
    let routes = [w.route(0, 3), w.route(1, 3), w.route(2, 3)];
    for (host, &way) in routes[..2].iter().enumerate() {
        let of = |n| Packet {
            priority: host as u8,
            ..packet(way, host as u32 * 1000 + n)
        };
        w.send(host, (0..400).map(of));
    }
    let strict = |n: u32| Packet {
        priority: 6,
        ..packet(routes[2], 5000 + n)
    };
    w.send(2, (0..50).map(strict));
    w.run();
    let got = w.psns(3);
    // The first one came to an empty port; then 50 strict ones. Then 1 to 3 until the 400 are gone.
    let until = got.iter().position(|&p| p == 1399).unwrap();
    let heavy = got[..until].iter().filter(|&&p| (1000..2000).contains(&p));
    let light = got[..until].iter().filter(|&&p| p < 1000);
    let (heavy, light) = (heavy.count(), light.count());
    assert!((heavy / 3).abs_diff(light) <= 4, "{heavy} to {light}");
    assert!(got[..52].iter().filter(|&&p| p >= 5000).count() >= 50);
}

#[test]
fn a_dscp_map_says_what_a_packet_is_treated_as() {
    let mut classes = [0; 64];
    classes[26] = 3;
    let switch = SwitchSpec {
        classes: Some(classes),
        ecn: step(0, 0, 1.0),
        ..SwitchSpec::default()
    };
    let mut w = star(3, switch);
    let hosts = w.topology.hosts().to_vec();
    for (host, dscp) in [(0, 26), (1, 0)] {
        let way = Route {
            dscp,
            ..route(&hosts[host], &hosts[2], 0xc000)
        };
        let id = w.table.intern(way);
        // The priorities they are sent with are the other way round.
        let of = |n| Packet {
            priority: [0, 3][host],
            ..packet(id, host as u32 * 100 + n)
        };
        w.send(host, (0..20).map(of));
    }
    w.run();
    for (_, p) in &w.net.host(HostId::new(2)).got {
        let marked = p.ecn == Ecn::Experienced;
        assert!(!marked || p.bth.psn().get() < 100);
        assert_eq!(p.priority, if p.bth.psn().get() < 100 { 0 } else { 3 });
    }
    let c = w.net.counters(w.channel("s0", "h2")).by_priority;
    // Priority 3 is strictly before 0, so all but the last of h0's find one of their own behind them
    // only at times; the others are never marked.
    assert_eq!(c[0].marks, 0);
    assert_eq!(c[0].queue_high_water, 20 * u64::from(FRAME));
}

#[test]
fn a_full_buffer_and_a_full_queue_are_told_apart() {
    let frame = u64::from(FRAME);
    for (port_buffer, buffer, cause) in [
        (10 * frame, u64::MAX, DropCause::QueueFull),
        (1 << 20, 10 * frame, DropCause::BufferFull),
    ] {
        let switch = SwitchSpec {
            port_buffer,
            buffer,
            // So that it is not a plain one.
            ecn: step(1 << 30, 1 << 30, 1.0),
            ..SwitchSpec::default()
        };
        let mut w = star(3, switch);
        w.send_numbered(0, 2, 40);
        w.send_numbered(1, 2, 40);
        w.run();
        // Two come in each of 40 slots, and then one goes and leaves n in slot n; from the tenth on there
        // is room for one.
        let lost = 40 - 9;
        let drops: u64 = [("h0", "s0"), ("h1", "s0"), ("s0", "h2")]
            .iter()
            .map(|(a, b)| w.drops(a, b, cause))
            .sum();
        assert_eq!(drops, lost, "{cause}");
        assert_eq!(w.psns(2).len() as u64, 80 - lost);
    }
}

#[test]
fn a_lossy_queue_gets_its_share_of_what_is_free() {
    // alpha = 1: a single queue may fill half of the pool.
    let frame = u64::from(FRAME);
    let switch = SwitchSpec {
        buffer: 40 * frame,
        lossy_share: Ratio::new(1, 1),
        ..SwitchSpec::default()
    };
    let mut w = star(3, switch);
    w.send_numbered(0, 2, 100);
    w.send_numbered(1, 2, 100);
    w.run();
    let c = w.net.counters(w.channel("s0", "h2"));
    // The one that would make it q asks for q <= 40 - (q - 1).
    assert_eq!(c.queue_high_water, 20 * frame);
}

#[test]
fn a_managed_switch_without_limits_is_as_a_plain_one() {
    let managed = SwitchSpec {
        buffer: 1 << 40,
        ..SwitchSpec::default()
    };
    let run = |switch| {
        let mut w = World::new(Topology::fat_tree(4, link(), switch).unwrap());
        for h in 0..16 {
            w.send_numbered(h, (h + 7) % 16, 50);
            w.send_numbered(h, 3 - h / 6, 20 * u32::from(h != 3 - h / 6));
        }
        w.run();
        w
    };
    let (a, b) = (run(SwitchSpec::default()), run(managed));
    assert_eq!(a.net.observer(), b.net.observer());
    assert_eq!(a.net.event_count(), b.net.event_count());
}

/// Random traffic of all priorities on a fat tree, of which two are lossless.
fn storm(seed: u64, packets: u32) -> World {
    let mut random = Stream::new(seed, "switch");
    let threshold = if random.below(2) == 0 {
        Threshold::Static(random.below(20_000))
    } else {
        Threshold::Dynamic(Ratio::new(1, 1 + random.below(16) as u16).unwrap())
    };
    let mut ecn = step(random.below(4_000), 4_000 + random.below(9_000), 0.5);
    ecn[1] = ecn[3];
    let weights = std::array::from_fn(|_| random.below(4) as u8);
    let switch = SwitchSpec {
        port_buffer: 20_000,
        buffer: 4 * 2 * 52_000 + 60_000,
        reserved: random.below(2) * 1_000,
        lossy_share: Ratio::new(1, 2),
        pfc: Some(PfcSpec {
            resume: random.below(4_000),
            quanta: 200 + random.below(2_000) as u16,
            ..PfcSpec::new(PriorityMask(0b1010), threshold)
        }),
        ecn,
        weights: [weights, [0; 8]][random.below(2) as usize],
        classes: None,
    };
    let topology = Topology::fat_tree(4, link().with_mtu(1100), switch).unwrap();
    let mut w = World::with(topology, seed, PayloadMode::Carried);
    for psn in 0..packets {
        let from = random.below(16) as usize;
        let to = [15, random.below(16) as usize][random.below(2) as usize];
        let route = w.route(from, to);
        let sent = Packet {
            priority: random.below(8) as u8,
            ..packet(route, psn)
        };
        let begin = at(random.below(2_000_000));
        if from != to {
            w.net.host_mut(HostId::new(from)).plan(begin, sent);
        }
    }
    for h in 0..16 {
        w.net.kick(HostId::new(h));
    }
    w
}

fn channels(w: &World) -> impl Iterator<Item = ChannelId> + use<> {
    (0..w.topology.links().len())
        .flat_map(|l| [Direction::Forward, Direction::Backward].map(|d| ChannelId::new(l, d)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Lossless priorities lose nothing, all memory is given back, and the counters are those of the
    /// stream.
    #[test]
    fn what_is_counted_is_what_happened(seed: u64, packets in 1u32..1500) {
        let mut w = storm(seed, packets);
        for _ in 0..10 {
            w.net.run_until(w.net.now() + Span::from_us(1));
            prop_assert_eq!(w.net.deadlock(), None);
        }
        w.run();
        let log = w.net.observer();
        let mut marks = 0;
        for c in channels(&w) {
            let counters = w.net.counters(c);
            prop_assert_eq!(counters.drops(DropCause::HeadroomFull), 0);
            prop_assert_eq!(w.net.queued_bytes(c), 0);
            for p in 0..8 {
                prop_assert_eq!(w.net.waiting_from(c, p), 0);
                prop_assert!(!w.net.is_paused(c, p));
                let k = counters.by_priority[usize::from(p)];
                let of = |what: &str| {
                    let hit = |e: &&(Time, &str, usize, u32)| {
                        e.1 == what && e.2 == c.index() && e.3 == p.into()
                    };
                    log.0.iter().filter(hit).map(|e| e.0.as_ps()).collect::<Vec<_>>()
                };
                let (stop, go) = (of("stop").len() as u64, of("go").len() as u64);
                prop_assert_eq!((k.pauses_sent, k.resumes_sent), (stop, go));
                let back = w.net.counters(c.reverse()).by_priority[usize::from(p)];
                prop_assert_eq!((back.pauses_received, back.resumes_received), (stop, go));
                let (paused, resumed) = (of("paused"), of("resumed"));
                prop_assert_eq!(paused.len(), resumed.len());
                let time: u64 = paused.iter().zip(&resumed).map(|(a, b)| b - a).sum();
                prop_assert_eq!(k.paused.as_ps(), time);
                marks += k.marks;
            }
        }
        for s in 0..w.topology.switches().len() {
            prop_assert_eq!(w.net.pool_used(s), 0);
        }
        prop_assert_eq!(marks, log.count("mark") as u64);
        let drops: u64 = channels(&w).map(|c| w.net.counters(c).all_drops()).sum();
        prop_assert_eq!(drops, log.count("drop") as u64);
    }
}
