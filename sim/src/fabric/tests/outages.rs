//! Links that fail, and routes that go astray.

use super::*;
use crate::fabric::Detour;

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
    let mut w = diamond();
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
