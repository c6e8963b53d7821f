//! Who is paused because the pool is full, and for how long.

use super::*;
use crate::fabric::{Detour, Stuck};

const LOSSLESS: PriorityMask = PriorityMask(1 << 3);

/// Headroom that holds no frame, and a threshold that nobody comes to.
fn short() -> PfcSpec {
    PfcSpec {
        headroom: Headroom::Bytes(500),
        ..PfcSpec::new(LOSSLESS, Threshold::Static(1 << 20))
    }
}

/// A reserve is free again as soon as what was in it has gone, but that is no room for what comes next.
#[test]
fn who_lost_a_frame_is_not_let_go_because_its_reserve_is_free() {
    let frame = u64::from(FRAME);
    let switch = SwitchSpec {
        reserved: frame,
        buffer: 20 * frame + 3 * (8 * frame + 500),
        pfc: Some(short()),
        ..SwitchSpec::default()
    };
    let mut t = Topology::new();
    t.add_switch("s0", switch).unwrap();
    let slow = LinkSpec::new(Rate::from_gbps(10), Span::from_us(1));
    for (n, link) in [link(), link(), slow].into_iter().enumerate() {
        t.add_host(&format!("h{n}")).unwrap();
        t.connect(&format!("h{n}"), "s0", link).unwrap();
    }
    let mut w = World::new(t);
    // It keeps the pool full, and all of h1 goes before it.
    let lossy = 1500;
    let route = w.route(0, 2);
    let low = |psn| Packet {
        priority: 2,
        ..packet(route, psn)
    };
    w.send(0, (0..u32::try_from(lossy).unwrap()).map(low));
    // What h1 has sent by the time it is paused, and a few more, for which 8 KiB are enough.
    let begin = 50_000_000;
    let route = w.route(1, 2);
    let sent = 54;
    for psn in 0..sent {
        let host = w.net.host_mut(HostId::new(1));
        host.plan(at(begin), packet(route, 10_000 + psn));
    }
    w.net.kick(HostId::new(1));
    let (up, down) = (w.channel("h1", "s0"), w.channel("s0", "h1"));
    w.net.run_until(at(begin + 20_000_000));
    assert_eq!(w.net.waiting_from(up, 3), 0);
    assert!(w.net.is_paused(up, 3));
    w.run();
    let log = w.net.observer();
    let (stop, go) = (log.times("stop", down), log.times("go", down));
    let drops = log.times("drop", up);
    assert_eq!((stop.len(), go.len()), (1, 1), "{stop:?} {go:?}");
    assert_eq!(stop[0], drops[0]);
    // Lost is what came before the pause took effect, and nothing after it.
    let (paused, last) = (log.times("paused", up)[0], drops[drops.len() - 1]);
    assert!(last < paused + LASTS + DELAY, "{last}");
    assert!(go[0] > lossy * LASTS + DELAY, "{go:?}");
    let got = w.psns(2).iter().filter(|&&psn| psn >= 10_000).count();
    assert_eq!(got + drops.len(), sent as usize);
    assert!(log.times("transmit", up).iter().any(|&time| time > go[0]));
}

/// Three switches in a ring, on which each host sends the long way round.
fn ring(between: LinkSpec, spec: SwitchSpec) -> World {
    let mut t = Topology::new();
    for n in 0..3 {
        t.add_host(&format!("h{n}")).unwrap();
        t.add_switch(&format!("s{n}"), spec).unwrap();
        t.connect(&format!("h{n}"), &format!("s{n}"), link())
            .unwrap();
    }
    for n in 0..3 {
        t.connect(&format!("s{n}"), &format!("s{}", (n + 1) % 3), between)
            .unwrap();
    }
    let mut w = World::new(t);
    for n in 0..3 {
        let way = Detour::Ports(vec![around(&w, n)]);
        w.net
            .set_route(&format!("s{n}"), HostId::new((n + 2) % 3), Some(way))
            .unwrap();
    }
    w
}

fn around(w: &World, n: usize) -> ChannelId {
    w.channel(&format!("s{n}"), &format!("s{}", (n + 1) % 3))
}

/// The ring is found, and it is one: nothing comes any more.
fn is_stuck(w: &mut World) {
    let mut cycle = w.net.deadlock().expect("a ring").cycle;
    cycle.sort_unstable();
    let expected: Vec<Stuck> = (0..3)
        .map(|switch| Stuck {
            switch,
            channel: around(w, switch),
            priority: 3,
        })
        .collect();
    assert_eq!(cycle, expected);
    let got = |w: &World| (0..3).map(|h| w.psns(h).len()).sum::<usize>();
    let before = got(w);
    w.net.run_until(w.net.now() + Span::from_ms(20));
    assert_eq!(before, got(w));
    assert!(w.net.deadlock().is_some());
}

/// Nobody is above a threshold, and the pools are full of what waits in the ring; some of it came by the ring.
#[test]
fn a_ring_of_full_pools_is_found() {
    let spec = SwitchSpec {
        buffer: 100 * u64::from(FRAME) + 3 * 500,
        pfc: Some(short()),
        ..SwitchSpec::default()
    };
    let mut w = ring(link(), spec);
    for n in 0..3 {
        w.send_numbered(n, (n + 2) % 3, 2000);
    }
    w.net.run_until(at(100_000_000));
    for n in 0..3 {
        assert!(w.net.waiting_from(around(&w, n), 3) > 0);
    }
    is_stuck(&mut w);
}

/// Nor need those that are paused have anything where they are: the pools are full of what the hosts sent.
#[test]
fn a_ring_of_those_that_hold_nothing_is_found() {
    // The first frame of each host goes on at once, the next ten fill the pool of its switch.
    let (first, next) = (2562, 1562);
    let spec = SwitchSpec {
        buffer: 10 * u64::from(next) + 3 * 500,
        pfc: Some(short()),
        ..SwitchSpec::default()
    };
    let between = LinkSpec {
        pfc_response: Some(0),
        ..LinkSpec::new(Rate::from_gbps(1), Span::from_us(1))
    };
    let mut w = ring(between, spec);
    for n in 0..3 {
        let route = w.route(n, (n + 2) % 3);
        let long = |psn, frame_len: u16| Packet {
            payload: Payload::counted(frame_len - 62),
            frame_len,
            ..packet(route, psn)
        };
        w.send(
            n,
            (0..11).map(|psn| long(psn, [next, first][usize::from(psn == 0)])),
        );
        // It is one more once the second of the eleven is on its way, which then finds no room either.
        let host = w.net.host_mut(HostId::new(n));
        host.plan(at(30_000_000), packet(route, 11));
        w.net.kick(HostId::new(n));
    }
    w.net.run_until(at(100_000_000));
    for n in 0..3 {
        let up = w.channel(&format!("h{n}"), &format!("s{n}"));
        assert_eq!(w.net.waiting_from(around(&w, n), 3), 0);
        assert_eq!(
            w.net.waiting_from(up, 3),
            9 * u64::from(next) + u64::from(FRAME)
        );
        assert!(w.net.is_paused(around(&w, n), 3) && !w.net.is_paused(up, 3));
        assert_eq!(
            w.net.counters(around(&w, n)).drops(DropCause::HeadroomFull),
            2
        );
        assert_eq!(w.psns(n), []);
    }
    is_stuck(&mut w);
}
