//! Pauses that never end: rings of them, and receivers that are slow or dead.

use super::*;
use crate::fabric::{Detour, ReceiveSpec, Service, Stuck, Watchdog};
use crate::random::Probability;

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
