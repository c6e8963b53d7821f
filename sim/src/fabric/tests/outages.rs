//! Links that fail, routes that go astray, and pauses that never end.

use super::*;
use crate::fabric::{Detour, ReceiveSpec, Service, Stuck, Watchdog};
use crate::random::Probability;

/// When the `n`-th frame sent without a gap from the beginning has come to the first switch.
fn come(n: u64) -> u64 {
    n * LASTS + DELAY
}

fn pfc(threshold: u64) -> SwitchSpec {
    SwitchSpec {
        pfc: Some(PfcSpec::new(
            PriorityMask(1 << 3),
            Threshold::Static(threshold),
        )),
        ..SwitchSpec::default()
    }
}

#[test]
fn what_is_on_a_link_or_sent_on_it_while_it_is_down_is_lost() {
    let mut w = World::new(Topology::star(2, link(), SwitchSpec::default()).unwrap());
    w.net
        .set_link("h1-s0", at(come(40) + 1), false, Span::from_ms(1))
        .unwrap();
    w.net
        .set_link("h1-s0", at(come(50) + 1), true, Span::from_ms(1))
        .unwrap();
    w.send_numbered(0, 1, 100);
    w.run();
    // 27 have arrived 11.55 frames before the 40th begins; the 50th begins before the link is up.
    let left: Vec<u32> = (0..27).chain(50..100).collect();
    assert_eq!(w.psns(1), left);
    assert_eq!(w.drops("s0", "h1", DropCause::LinkDown), 23);
}

#[test]
fn what_waits_for_a_link_is_lost_with_it() {
    for switch in [SwitchSpec::default(), pfc(1 << 19)] {
        let mut w = World::new(Topology::star(3, link(), switch).unwrap());
        w.send_numbered(0, 2, 100);
        w.send_numbered(1, 2, 100);
        w.net.run_until(at(come(60) + 1));
        let down = w.channel("s0", "h2");
        assert_eq!(w.net.queued_bytes(down), 60 * u64::from(FRAME));
        w.net
            .set_link("h2-s0", w.net.now(), false, Span::from_ms(1))
            .unwrap();
        w.net.step();
        assert!(w.net.is_down(down.link()));
        assert_eq!((w.net.queued_bytes(down), w.net.pool_used(0)), (0, 0));
        w.run();
        let lost = w.drops("s0", "h2", DropCause::LinkDown);
        let unreachable =
            w.drops("h0", "s0", DropCause::NoRoute) + w.drops("h1", "s0", DropCause::NoRoute);
        assert_eq!(unreachable, 0);
        assert_eq!(lost + w.psns(2).len() as u64, 200);
    }
}

#[test]
fn routes_go_around_a_dead_link_once_they_know() {
    let mut t = Topology::new();
    for h in ["h0", "h1"] {
        t.add_host(h).unwrap();
    }
    for s in ["l0", "l1", "a", "b"] {
        t.add_switch(s, SwitchSpec::default()).unwrap();
    }
    for (x, y) in [
        ("h0", "l0"),
        ("h1", "l1"),
        ("l0", "a"),
        ("l0", "b"),
        ("a", "l1"),
        ("b", "l1"),
    ] {
        t.connect(x, y, link()).unwrap();
    }
    let mut w = World::new(t);
    w.send_numbered(0, 1, 1);
    w.run();
    let by_a = w.net.counters(w.channel("l0", "a")).frames == 1;
    let used = if by_a { "l0-a" } else { "l0-b" };
    let (now, reroute) = (w.net.now(), Span::from_us(50));
    w.net.set_link(used, now, false, reroute).unwrap();
    w.send_numbered(0, 1, 5);
    w.net.run_until(now + reroute + Span::from_us(1));
    let lost: u64 = ["a", "b"]
        .iter()
        .map(|s| w.drops("l0", s, DropCause::LinkDown))
        .sum();
    assert_eq!((lost, w.psns(1).len()), (5, 1));
    w.send_numbered(0, 1, 5);
    w.run();
    assert_eq!(w.psns(1).len(), 6);
    // Both dead: nobody knows a way.
    for l in ["l0-a", "l0-b"] {
        w.net.set_link(l, w.net.now(), false, Span::ZERO).unwrap();
    }
    w.net.run_until(w.net.now() + Span::from_us(1));
    w.send_numbered(0, 1, 5);
    w.run();
    assert_eq!(w.drops("h0", "l0", DropCause::NoRoute), 5);
}

#[test]
fn a_switch_floods_to_all_but_where_it_came_from() {
    for switch in [SwitchSpec::default(), pfc(100_000)] {
        let mut w = World::with(
            Topology::star(4, link(), switch).unwrap(),
            1,
            PayloadMode::Carried,
        );
        w.net
            .set_route("s0", HostId::new(1), Some(Detour::Flood))
            .unwrap();
        w.send_numbered(0, 1, 5);
        w.run();
        assert_eq!((w.psns(0).len(), w.psns(1).len()), (0, 5));
        for h in ["h2", "h3"] {
            assert_eq!(w.drops("s0", h, DropCause::NoRoute), 5);
        }
        assert_eq!(w.net.counters(w.channel("h0", "s0")).duplicates, 10);
        w.net.set_route("s0", HostId::new(1), None).unwrap();
        w.send_numbered(0, 1, 5);
        w.run();
        assert_eq!(w.drops("s0", "h2", DropCause::NoRoute), 5);
    }
}

#[test]
fn a_loop_ends_with_the_hop_limit() {
    let mut t = Topology::new();
    for n in 0..2 {
        t.add_host(&format!("h{n}")).unwrap();
        t.add_switch(&format!("s{n}"), SwitchSpec::default())
            .unwrap();
        t.connect(&format!("h{n}"), &format!("s{n}"), link())
            .unwrap();
    }
    t.connect("s0", "s1", link()).unwrap();
    let mut w = World::new(t);
    let back = Detour::Ports(vec![w.channel("s1", "s0")]);
    w.net.set_route("s1", HostId::new(1), Some(back)).unwrap();
    w.send_numbered(0, 1, 1);
    w.run();
    // 63 switches let it pass, in turn.
    assert_eq!(w.drops("s0", "s1", DropCause::HopLimit), 1);
    assert_eq!(w.net.counters(w.channel("s0", "s1")).frames, 32);
    assert_eq!(w.net.counters(w.channel("s1", "s0")).frames, 31);
    // The way of a packet is told with every channel once.
    let (from, to) = (
        w.net.topology().hosts()[0].clone(),
        w.net.topology().hosts()[1].clone(),
    );
    let route = crate::fabric::bare::route(&from, &to, 0xc000);
    let around = [("h0", "s0"), ("s0", "s1"), ("s1", "s0")].map(|(a, b)| w.channel(a, b));
    assert_eq!(w.net.trace(HostId::new(0), &route), around);
    let alien = Detour::Ports(vec![w.channel("s0", "s1")]);
    let error = w
        .net
        .set_route("s1", HostId::new(1), Some(alien))
        .unwrap_err();
    assert!(error.to_string().contains("switch s1"), "{error}");
}

/// Three switches in a ring, on which each host sends the long way round.
fn ring(clockwise: bool) -> World {
    let mut t = Topology::new();
    for n in 0..3 {
        t.add_host(&format!("h{n}")).unwrap();
        t.add_switch(&format!("s{n}"), pfc(20_000)).unwrap();
        t.connect(&format!("h{n}"), &format!("s{n}"), link())
            .unwrap();
    }
    for n in 0..3 {
        t.connect(&format!("s{n}"), &format!("s{}", (n + 1) % 3), link())
            .unwrap();
    }
    let mut w = World::new(t);
    for n in 0..3 {
        let to = (n + 2) % 3;
        if clockwise {
            let next = w.channel(&format!("s{n}"), &format!("s{}", (n + 1) % 3));
            let way = Detour::Ports(vec![next]);
            w.net
                .set_route(&format!("s{n}"), HostId::new(to), Some(way))
                .unwrap();
        }
        w.send_numbered(n, to, 2000);
    }
    w
}

#[test]
fn a_ring_of_pauses_is_found_and_named() {
    let mut w = ring(true);
    w.net.run_until(Time::ZERO + Span::from_ms(5));
    let deadlock = w
        .net
        .deadlock()
        .expect("three switches wait for each other");
    let mut cycle = deadlock.cycle;
    cycle.sort_unstable();
    let expected: Vec<Stuck> = (0..3)
        .map(|n| Stuck {
            switch: n,
            channel: w.channel(&format!("s{n}"), &format!("s{}", (n + 1) % 3)),
            priority: 3,
        })
        .collect();
    assert_eq!(cycle, expected);
    // Nothing moves any more, and nothing was lost.
    let before: usize = (0..3).map(|h| w.psns(h).len()).sum();
    w.net.run_until(Time::ZERO + Span::from_ms(20));
    assert_eq!(before, (0..3).map(|h| w.psns(h).len()).sum::<usize>());
    assert!(before < 6000 && !w.net.has_lost_lossless());
    // The short way round there is no cycle.
    let mut w = ring(false);
    for _ in 0..100 {
        w.net.run_until(w.net.now() + Span::from_us(3));
        assert_eq!(w.net.deadlock(), None);
    }
    w.run();
}

#[test]
fn a_slow_receiver_pauses_and_loses_nothing() {
    // 1062 bytes at 50 Gb/s.
    let service = u64::from(FRAME) * 160;
    let miss = Span::from_ps(service);
    for spec in [
        Service::Rate(Rate::from_gbps(50)),
        Service::Translation {
            hit: Span::ZERO,
            miss,
            misses: Probability::ONE,
        },
        Service::Translation {
            hit: miss,
            miss,
            misses: Probability::ZERO,
        },
    ] {
        let mut w = World::new(Topology::back_to_back(link()));
        w.net
            .set_receiver(HostId::new(1), ReceiveSpec::new(spec))
            .unwrap();
        w.send_numbered(0, 1, 3000);
        w.run();
        let first = LASTS + DELAY;
        let expected: Vec<u64> = (1..=3000).map(|n| first + n * service).collect();
        assert_eq!(w.arrivals(1), expected);
        let p = w.net.pipeline(HostId::new(1)).unwrap();
        assert!(p.high_water > 256 << 10 && p.high_water <= 512 << 10);
        assert_eq!(p.bytes, 0);
        let up = w.net.counters(w.channel("h0", "h1")).by_priority[3];
        assert!(up.pauses_received > 1 && up.paused > Span::ZERO);
    }
}

#[test]
fn thresholds_of_a_receiver_must_be_in_order() {
    let mut w = World::new(Topology::back_to_back(link()));
    let spec = ReceiveSpec {
        xon: 300 << 10,
        ..ReceiveSpec::new(Service::Rate(Rate::from_gbps(50)))
    };
    let error = w.net.set_receiver(HostId::new(1), spec).unwrap_err();
    assert_eq!(
        error.to_string(),
        "receiver of host `h1`: xon 307200, xoff 262144, buffer 524288: each must be at most the next"
    );
}

#[test]
fn watchdogs_end_the_storm_of_a_dead_receiver() {
    let watchdog = Watchdog {
        after: Span::from_ms(1),
        restore: Span::from_ms(2),
    };
    let mut switch = pfc(50_000);
    switch.pfc.as_mut().unwrap().watchdog = Some(watchdog);
    let mut w = World::new(Topology::star(3, link(), switch).unwrap());
    let stops = 10_000_000;
    let spec = ReceiveSpec {
        stops: Some(at(stops)),
        watchdog: Some(Span::from_ms(5)),
        ..ReceiveSpec::new(Service::Rate(Rate::from_gbps(200)))
    };
    w.net.set_receiver(HostId::new(2), spec).unwrap();
    w.send_numbered(0, 2, 20_000);
    // A victim in the same priority, through the same switch, and its own way out.
    w.send_numbered(1, 0, 10);
    w.net.run_until(at(9_000_000_000));
    let (down, up) = (w.channel("s0", "h2"), w.channel("h0", "s0"));
    let takes = 84 * 80 + DELAY + 394 * 64 * 80;
    let begin = stops + takes;
    let log = w.net.observer();
    assert_eq!(log.times("paused", down), [begin]);
    assert_eq!(w.net.counters(down).by_priority[3].storms, 1);
    // What waited was dropped when the first of it, the first frame that came after the pause began, had
    // waited for 1 ms; then h0 was let go.
    let stuck = come((begin - DELAY).div_ceil(LASTS));
    let drops = log.times("drop", down);
    assert_eq!(drops[0], stuck + 1_000_000_000);
    let go = log.times("resumed", up);
    assert_eq!(go, [stuck + 1_000_000_000 + takes]);
    assert!(w.net.has_lost_lossless() && w.drops("s0", "h2", DropCause::Watchdog) > 1000);
    assert_eq!(w.drops("h0", "s0", DropCause::HeadroomFull), 0);
    // The card repeats its pause every half of 65535 quanta, and falls silent after 5 ms.
    let half = 65_535 * 32 * 80;
    let last = stops + 5_000_000_000 / half * half;
    assert_eq!(log.times("resumed", down), [last + takes + 2_000_000_000]);
    // Packets go to the host again, which is dead.
    w.send_numbered(0, 2, 1000);
    w.net.run_until(at(10_000_000_000));
    assert!(w.drops("s0", "h2", DropCause::ReceiverFull) > 0);
    assert!(!w.net.is_paused(down, 3));
    assert_eq!(w.psns(0).len(), 10);
    assert_eq!(w.net.deadlock(), None);
}

/// A link that several take down comes up with the last of them, in whatever order they begin and end.
#[test]
fn a_link_is_down_as_long_as_anybody_holds_it_down() {
    for spans in [
        &[(10, Some(20)), (15, Some(30))][..],
        &[(10, Some(40)), (15, Some(30))],
        &[(10, Some(20)), (20, Some(30))],
        &[(20, Some(30)), (10, Some(20))],
        &[(10, None), (15, Some(30))],
        &[(15, Some(30)), (10, None)],
        &[(10, Some(20)), (30, Some(40))],
        &[(10, Some(50)), (10, Some(50)), (20, Some(30))],
    ] {
        let mut w = World::new(Topology::star(2, link(), SwitchSpec::default()).unwrap());
        let us = |n: u64| Time::ZERO + Span::from_us(n);
        for &(from, to) in spans {
            w.net
                .set_link("h1-s0", us(from), false, Span::ZERO)
                .unwrap();
            if let Some(to) = to {
                w.net.set_link("h1-s0", us(to), true, Span::ZERO).unwrap();
            }
        }
        let link = w.channel("h1", "s0").link();
        for n in 0..60 {
            w.net.run_until(us(n) + Span::from_ns(500));
            let down = spans
                .iter()
                .any(|&(from, to)| from <= n && to.is_none_or(|to| n < to));
            assert_eq!(w.net.is_down(link), down, "{spans:?} at {n} us");
        }
    }
}

/// A receiver that has stopped pauses its senders as soon as its link is up again, whether it stopped before or
/// while that was down; not once the card has noticed.
#[test]
fn a_dead_receiver_pauses_again_when_its_link_is_up_again() {
    for (stops, watchdog, pauses) in [(10, None, true), (25, None, true), (10, Some(15), false)] {
        let mut w = World::new(Topology::star(2, link(), pfc(50_000)).unwrap());
        let us = |n: u64| Time::ZERO + Span::from_us(n);
        let spec = ReceiveSpec {
            stops: Some(us(stops)),
            watchdog: watchdog.map(Span::from_us),
            ..ReceiveSpec::new(Service::Rate(Rate::from_gbps(200)))
        };
        w.net.set_receiver(HostId::new(1), spec).unwrap();
        w.net
            .set_link("h1-s0", us(20), false, Span::from_ms(1))
            .unwrap();
        w.net
            .set_link("h1-s0", us(30), true, Span::from_ms(1))
            .unwrap();
        w.net.run_until(us(100));
        let down = w.channel("s0", "h1");
        let takes = 84 * 80 + DELAY + 394 * 64 * 80;
        let up = us(30).as_ps() + takes;
        let paused = w.net.observer().times("paused", down);
        assert_eq!(paused.contains(&up), pauses, "{stops}: {paused:?}");
        assert_eq!(w.net.is_paused(down, 3), pauses);
        // Nobody who is paused sends: nothing is lost in the buffer of the dead.
        w.send_numbered(0, 1, 2000);
        w.net.run_until(us(1500));
        let lost = w.drops("s0", "h1", DropCause::ReceiverFull);
        assert_eq!(lost == 0, pauses, "{stops}: {lost}");
    }
}

/// What a switch floods goes by its own links alone, in their order, however many others there are.
#[test]
fn a_flood_leaves_by_the_links_of_its_switch() {
    let mut t = Topology::new();
    for s in ["a", "b", "c"] {
        t.add_switch(s, SwitchSpec::default()).unwrap();
    }
    for h in ["h0", "h1", "h2", "h3"] {
        t.add_host(h).unwrap();
    }
    // The links of the switches mixed.
    for (x, y) in [
        ("h1", "b"),
        ("h0", "a"),
        ("b", "a"),
        ("h2", "c"),
        ("a", "c"),
        ("h3", "a"),
    ] {
        t.connect(x, y, link()).unwrap();
    }
    let mut w = World::new(t);
    let flood = Some(Detour::Flood);
    w.net.set_route("a", HostId::new(1), flood).unwrap();
    let (from, to) = (
        w.net.topology().hosts()[0].clone(),
        w.net.topology().hosts()[1].clone(),
    );
    let route = crate::fabric::bare::route(&from, &to, 0xc000);
    let ways = [
        ("h0", "a"),
        ("a", "b"),
        ("a", "c"),
        ("a", "h3"),
        ("b", "h1"),
        ("c", "a"),
    ];
    let reach = w.net.reach(HostId::new(0), &route);
    let by: Vec<ChannelId> = reach.iter().map(|step| step.1).collect();
    assert_eq!(by[..5], ways.map(|(x, y)| w.channel(x, y))[..5]);
    w.send_numbered(0, 1, 5);
    w.net.run_until(w.net.now() + Span::from_us(20));
    for (x, y) in &ways[1..5] {
        assert!(w.net.counters(w.channel(x, y)).frames >= 5, "{x} {y}");
    }
}

/// A watchdog acts when something has waited at a paused port for exactly as long as it is set to wait, whether
/// it was there before the pause or came when.
#[test]
fn a_watchdog_acts_to_the_picosecond() {
    let ms = 1_000_000_000;
    // 0 is 100 frames with the pause, at twice the rate of the port.
    for later in [0, 1, ms / 3, ms - 1, ms, ms + 1, 5 * ms / 2] {
        let mut switch = pfc(1 << 19);
        switch.pfc.as_mut().unwrap().watchdog = Some(Watchdog {
            after: Span::from_ms(1),
            restore: Span::from_ms(2),
        });
        let mut w = World::new(Topology::star(3, link(), switch).unwrap());
        let spec = ReceiveSpec {
            stops: Some(at(0)),
            watchdog: None,
            ..ReceiveSpec::new(Service::Rate(Rate::from_gbps(200)))
        };
        w.net.set_receiver(HostId::new(2), spec).unwrap();
        let begin = 84 * 80 + DELAY + 394 * 64 * 80;
        let stuck = if later == 0 {
            for from in [0, 1] {
                w.send_numbered(from, 2, 50);
            }
            begin
        } else {
            let route = w.route(0, 2);
            let host = w.net.host_mut(HostId::new(0));
            host.plan(at(begin + later - come(1)), packet(route, 0));
            w.net.kick(HostId::new(0));
            begin + later
        };
        w.net.run_until(at(5 * ms));
        let down = w.channel("s0", "h2");
        let log = w.net.observer();
        assert_eq!(log.times("paused", down)[0], begin);
        assert_eq!(log.times("drop", down)[0], stuck + ms, "{later}");
        assert_eq!(w.net.counters(down).by_priority[3].storms, 1, "{later}");
    }
}

#[test]
fn a_watchdog_that_acts_at_once_is_refused() {
    let mut switch = pfc(50_000);
    switch.pfc.as_mut().unwrap().watchdog = Some(Watchdog {
        after: Span::ZERO,
        restore: Span::from_ms(2),
    });
    let t = Topology::star(2, link(), switch).unwrap();
    let error = Network::new(&t, Config::default(), (), |_, _| Scripted::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "switch `s0`: PFC: the watchdog acts after 0 s; it must be more"
    );
}

/// Two ways between two hosts, both over a switch: `a` and `b`.
fn diamond() -> World {
    let mut t = Topology::new();
    for h in ["h0", "h1"] {
        t.add_host(h).unwrap();
    }
    for s in ["l0", "l1", "a", "b"] {
        t.add_switch(s, SwitchSpec::default()).unwrap();
    }
    for (x, y) in [
        ("h0", "l0"),
        ("h1", "l1"),
        ("l0", "a"),
        ("l0", "b"),
        ("a", "l1"),
        ("b", "l1"),
    ] {
        t.connect(x, y, link()).unwrap();
    }
    World::new(t)
}

/// The way of packets from `h0` to `h1` that leave now: by which of the two switches; `None` if `l0` knows none.
fn way(w: &World) -> Option<&'static str> {
    let hosts = w.net.topology().hosts();
    let route = crate::fabric::bare::route(&hosts[0], &hosts[1], 0xc000);
    let trace = w.net.trace(HostId::new(0), &route);
    let by = |s: &'static str| trace.contains(&w.channel("l0", s)).then_some(s);
    by("a").or_else(|| by("b"))
}

/// Routes learn of each change of each link when its time has come, and of nothing earlier, whatever else makes
/// them be worked out again.
#[test]
fn routes_know_of_each_link_when_its_news_has_come() {
    let us = |n: u64| Time::ZERO + Span::from_us(n);
    let reroute = Span::from_us(100);
    for set_route in [false, true] {
        let mut w = diamond();
        let first = way(&w).unwrap();
        let other = if first == "a" { "b" } else { "a" };
        let links = [first, other].map(|s| format!("l0-{s}"));
        for (link, time, up) in [
            (0, 0, false),
            (1, 60, false),
            (0, 200, true),
            (1, 230, true),
        ] {
            w.net.set_link(&links[link], us(time), up, reroute).unwrap();
        }
        for (time, expected) in [
            (50, Some(first)),
            (99, Some(first)),
            (101, Some(other)),
            (159, Some(other)),
            (161, None),
            (299, None),
            (301, Some(first)),
            (331, Some(first)),
        ] {
            w.net.run_until(us(time));
            if set_route {
                for detour in [Some(Detour::Flood), None] {
                    w.net.set_route("l1", HostId::new(0), detour).unwrap();
                }
            }
            assert_eq!(way(&w), expected, "{time}");
        }
    }
}

/// News that comes after later news of the same link is no news.
#[test]
fn routes_do_not_go_back_to_what_a_link_was() {
    let us = |n: u64| Time::ZERO + Span::from_us(n);
    let mut w = diamond();
    let first = way(&w).unwrap();
    let link = format!("l0-{first}");
    for (time, up, reroute) in [(10, false, 100), (50, true, 10), (200, false, 0)] {
        let reroute = Span::from_us(reroute);
        w.net.set_link(&link, us(time), up, reroute).unwrap();
    }
    for (time, by_first) in [
        (40, true),
        (61, true),
        (111, true),
        (199, true),
        (201, false),
    ] {
        w.net.run_until(us(time));
        assert_eq!(way(&w) == Some(first), by_first, "{time}");
    }
}

/// A ring of pauses is found though other queues go on, if what these hold is in reserves, which are of no use
/// to those that wait.
#[test]
fn what_is_in_reserves_ends_no_deadlock() {
    let reserved = 200_000;
    let spec = SwitchSpec {
        // What is lossy never passes its reserve.
        port_buffer: 150_000,
        reserved,
        buffer: 5 * (8 * reserved + 100_000) + 100_000,
        pfc: Some(PfcSpec {
            headroom: Headroom::Bytes(100_000),
            ..PfcSpec::new(
                PriorityMask(1 << 3),
                Threshold::Dynamic(Ratio::new(1, 1).unwrap()),
            )
        }),
        ..SwitchSpec::default()
    };
    let mut t = Topology::new();
    let slow = LinkSpec::new(Rate::from_gbps(1), Span::from_us(1));
    // Three on the ring, and two at each switch of which one sends to the other faster than it can take it.
    for n in 0..9 {
        t.add_host(&format!("h{n}")).unwrap();
    }
    for n in 0..3 {
        t.add_switch(&format!("s{n}"), spec).unwrap();
        for (h, link) in [(n, link()), (3 + n, link()), (6 + n, slow)] {
            t.connect(&format!("h{h}"), &format!("s{n}"), link).unwrap();
        }
    }
    for n in 0..3 {
        t.connect(&format!("s{n}"), &format!("s{}", (n + 1) % 3), link())
            .unwrap();
    }
    let mut w = World::new(t);
    for n in 0..3 {
        let to = (n + 2) % 3;
        let next = w.channel(&format!("s{n}"), &format!("s{}", (n + 1) % 3));
        let detour = Detour::Ports(vec![next]);
        w.net
            .set_route(&format!("s{n}"), HostId::new(to), Some(detour))
            .unwrap();
        w.send_numbered(n, to, 2000);
        let route = w.route(3 + n, 6 + n);
        let lossy = |psn| Packet {
            priority: 5,
            ..packet(route, psn)
        };
        w.send(3 + n, (0..4000).map(lossy));
    }
    w.net.run_until(Time::ZERO + Span::from_us(600));
    for n in 0..3 {
        let local = w.channel(&format!("s{n}"), &format!("h{}", 6 + n));
        assert!(w.net.queued_bytes(local) > 100_000, "{n}");
    }
    let before: usize = (0..3).map(|h| w.psns(h).len()).sum();
    assert_eq!(w.net.deadlock().map(|d| d.cycle.len()), Some(3));
    // It is one.
    w.net.run_until(Time::ZERO + Span::from_ms(20));
    assert_eq!(before, (0..3).map(|h| w.psns(h).len()).sum::<usize>());
}
