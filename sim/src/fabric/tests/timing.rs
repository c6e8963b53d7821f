//! When things happen.

use super::*;

#[test]
fn back_to_back_a_packet_takes_its_length_and_the_delay() {
    let mut w = World::new(Topology::back_to_back(link()));
    w.send_numbered(0, 1, 3);
    w.run();
    let one = LASTS + DELAY;
    assert_eq!(w.arrivals(1), [one, one + LASTS, one + 2 * LASTS]);
    assert_eq!(w.psns(1), [0, 1, 2]);
    let c = w.net.counters(w.channel("h0", "h1"));
    assert_eq!((c.frames, c.bytes), (3, 3 * u64::from(FRAME)));
}

#[test]
fn each_switch_stores_the_whole_frame_before_it_forwards() {
    let t = Topology::fat_tree(4, link(), SwitchSpec::default()).unwrap();
    let mut w = World::new(t);
    // Same edge switch: 2 links; same pod: 4; another pod: 6.
    for (to, hops) in [(1, 2), (2, 4), (15, 6)] {
        let begin = w.net.now().as_ps();
        w.send_numbered(0, to, 1);
        w.run();
        assert_eq!(w.arrivals(to), [begin + hops * (LASTS + DELAY)]);
        let hop_limit = w.net.host(HostId::new(to)).got[0].1.hop_limit;
        assert_eq!(u64::from(hop_limit), 64 - (hops - 1));
    }
}

#[test]
fn a_slower_link_sets_the_pace() {
    let mut t = Topology::star(2, link(), SwitchSpec::default()).unwrap();
    t.link_mut("h1-s0").unwrap().rate = Rate::from_gbps(25);
    let mut w = World::new(t);
    w.send_numbered(0, 1, 100);
    w.run();
    let (fast, slow) = (LASTS, LASTS * 4);
    let arrivals = w.arrivals(1);
    assert_eq!(arrivals[0], fast + slow + 2 * DELAY);
    assert_eq!(arrivals[99], arrivals[0] + 99 * slow);
    // When the last one comes in, the queue has sent the first ones whole and begun another:
    // 99 x 86560 / 346240 = 24.75.
    let c = w.net.counters(w.channel("s0", "h1"));
    assert_eq!(c.queue_high_water, (100 - 25) * u64::from(FRAME));
}

#[test]
fn both_directions_of_a_link_carry_at_once() {
    let mut w = World::new(Topology::back_to_back(link()));
    w.send_numbered(0, 1, 10);
    w.send_numbered(1, 0, 10);
    w.run();
    assert_eq!(w.arrivals(0), w.arrivals(1));
}

#[test]
fn the_goodput_of_a_full_link_is_payload_over_wire_bytes() {
    let mut w = World::new(Topology::back_to_back(link()));
    w.send_numbered(0, 1, 10_000);
    w.run();
    let last = *w.arrivals(1).last().unwrap() - DELAY;
    // 1000 of 1082 bytes at 100 Gb/s: 92.42 Gb/s.
    let bits_per_ms = 10_000 * 8000 * 1_000_000_000 / last;
    assert_eq!(bits_per_ms, 100_000_000 * 1000 / 1082);
}

#[test]
fn a_host_is_called_when_its_deadline_has_come_and_not_before() {
    let mut w = World::new(Topology::back_to_back(link()));
    let route = w.route(0, 1);
    let host = w.net.host_mut(HostId::new(0));
    // The nearer one comes second, and a deadline is told once.
    host.todo
        .push_back((at(9_000_000_000_000), packet(route, 2)));
    w.net.kick(HostId::new(0));
    let host = w.net.host_mut(HostId::new(0));
    host.plan(at(5_000), packet(route, 1));
    w.net.kick(HostId::new(0));
    assert_eq!(w.net.next_event(), Some(at(5_000)));
    w.run();
    let host = w.net.host(HostId::new(0));
    assert_eq!(host.advanced, [at(5_000), at(9_000_000_000_000)]);
    assert_eq!(
        w.arrivals(1),
        [5_000 + LASTS + DELAY, 9_000_000_000_000 + LASTS + DELAY]
    );
}

#[test]
fn a_deadline_that_moves_away_costs_one_early_event() {
    let mut w = World::new(Topology::back_to_back(link()));
    let route = w.route(0, 1);
    let host = w.net.host_mut(HostId::new(0));
    host.plan(at(1_000_000), packet(route, 0));
    for n in 1..100 {
        w.net.kick(HostId::new(0));
        w.net.host_mut(HostId::new(0)).todo[0].0 = at(1_000_000 + n * 1_000);
    }
    w.net.kick(HostId::new(0));
    w.run();
    assert_eq!(w.net.host(HostId::new(0)).advanced, [at(1_099_000)]);
    // The stale timer, the real one, the arrival.
    assert_eq!(w.net.event_count(), 3);
}

#[test]
fn the_clock_stands_at_the_end_of_a_run_also_without_events() {
    let mut w = World::new(Topology::back_to_back(link()));
    w.net.run_until(at(123));
    assert_eq!(w.net.now(), at(123));
    w.send_numbered(0, 1, 1);
    w.net.run_until(at(123 + LASTS + DELAY - 1));
    assert_eq!((w.arrivals(1).len(), w.net.in_flight()), (0, 1));
    assert!(w.net.step());
    assert_eq!(w.arrivals(1), [123 + LASTS + DELAY]);
    assert!(!w.net.step());
}

#[test]
fn a_run_does_not_end_with_a_timer_that_is_no_longer_wanted() {
    let mut w = World::new(Topology::back_to_back(link()));
    let route = w.route(0, 1);
    let far = 9_000_000_000_000;
    for n in 0..3 {
        // The deadline is told, and then there is none.
        let host = w.net.host_mut(HostId::new(0));
        host.plan(at(far + n), packet(route, 0));
        w.net.kick(HostId::new(0));
        w.net.host_mut(HostId::new(0)).todo.clear();
        w.send_numbered(0, 1, 1);
        w.run();
        let end = (n + 1) * (LASTS + DELAY);
        assert_eq!(w.net.now(), at(end));
        assert_eq!(w.arrivals(1).last(), Some(&end));
    }
}
