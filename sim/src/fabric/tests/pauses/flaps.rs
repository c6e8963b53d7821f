//! Pauses and links that go down and come up again.

use super::*;

/// A PFC frame that waits for its port, is on its link or has yet to be obeyed when that link goes down is lost,
/// however soon the link is up again.
#[test]
fn no_pause_outlives_its_link() {
    let quarter = LASTS / 4;
    // When the frame of h1 comes to the switch, and three quarters of one of h0 are out; it goes a quarter later.
    let over = come(1) + 3 * quarter;
    for (blocked, down, up) in [
        // As it waits for half a frame of h2, as it goes out, as it is on the way, as it is and what takes it back is,
        // and as h1 has yet to obey.
        (true, over + 1, over + quarter + quarter / 2),
        (false, over + 1, over + quarter + quarter / 2),
        (false, over + quarter / 2, over + quarter + quarter / 2),
        (false, over + LASTS, over + LASTS + 10),
        (false, over + DELAY + RESPONSE, over + DELAY + RESPONSE + 10),
    ] {
        let mut w = star(3, link(), strict());
        let route = w.route(2, 1);
        for psn in 0..if blocked { 3 } else { 0 } {
            let sent = Packet {
                priority: 7,
                ..packet(route, psn)
            };
            let host = w.net.host_mut(HostId::new(2));
            host.plan(at(quarter), sent);
        }
        w.net.kick(HostId::new(2));
        block(&mut w, 0, 1);
        let route = w.route(1, 2);
        let host = w.net.host_mut(HostId::new(1));
        host.plan(at(3 * quarter), packet(route, 1000));
        host.plan(at(20_000_000), packet(route, 1001));
        w.net.kick(HostId::new(1));
        for (time, is_up) in [(down, false), (up, true)] {
            w.net
                .set_link("h1-s0", at(time), is_up, Span::from_ms(1))
                .unwrap();
        }
        w.net.run_until(at(15_000_000));
        let way = w.channel("h1", "s0");
        assert_eq!(w.net.observer().count("paused"), 0, "{down}");
        assert!(!w.net.is_paused(way, 3));
        w.run();
        assert_eq!(w.psns(2), [0, 1000, 1001], "{down}");
        let stops = w.net.observer().times("stop", w.channel("s0", "h1")).len();
        assert_eq!(stops, usize::from(!blocked), "{down}");
    }
}

/// What makes a port pause is there still when its link is up again, and is said again at once.
#[test]
fn a_port_that_is_over_pauses_again_when_its_link_is_up_again() {
    let mut w = star(3, link(), strict());
    block(&mut w, 0, 600);
    let route = w.route(1, 2);
    w.send(1, (1000..1500).map(|psn| packet(route, psn)));
    let (down, up) = (20_000_000, 21_000_000);
    for (time, is_up) in [(down, false), (up, true)] {
        w.net
            .set_link("h1-s0", at(time), is_up, Span::from_ms(1))
            .unwrap();
    }
    w.net.run_until(at(40_000_000));
    let (way, back) = (w.channel("h1", "s0"), w.channel("s0", "h1"));
    let takes = PFC + DELAY + RESPONSE;
    let log = w.net.observer();
    assert_eq!(log.times("stop", back), [come(1), up]);
    assert_eq!(log.times("paused", way), [come(1) + takes, up + takes]);
    assert_eq!(log.times("resumed", way), [down]);
    // It is what waits for h2 that h1 is paused for.
    let last = w.net.pause_log().records()[1];
    assert_eq!(
        (last.channel, last.behind),
        (way, Some(w.channel("s0", "h2")))
    );
    w.run();
    // Lost is what h1 sent while the link was down, and nothing else.
    let lost = w.drops("h1", "s0", DropCause::LinkDown);
    assert_eq!(lost, (up - down) / LASTS + 1);
    assert_eq!(w.psns(2).len() as u64, 600 + 500 - lost);
}

/// So does a receiver that is too slow.
#[test]
fn a_slow_receiver_pauses_again_when_its_link_is_up_again() {
    let mut w = star(
        2,
        link(),
        PfcSpec::new(LOSSLESS, Threshold::Static(1 << 20)),
    );
    let spec = ReceiveSpec {
        xoff: 50_000,
        xon: 40_000,
        ..ReceiveSpec::new(Service::Rate(Rate::from_gbps(1)))
    };
    w.net.set_receiver(HostId::new(1), spec).unwrap();
    w.send_numbered(0, 1, 60);
    let (down, up) = (40_000_000, 41_000_000);
    for (time, is_up) in [(down, false), (up, true)] {
        w.net
            .set_link("h1-s0", at(time), is_up, Span::from_ms(1))
            .unwrap();
    }
    w.net.run_until(at(60_000_000));
    let (way, back) = (w.channel("s0", "h1"), w.channel("h1", "s0"));
    let takes = PFC + DELAY + RESPONSE;
    let log = w.net.observer();
    // 60 frames have come by then, and less than 5 are through; the 48th was the first too many.
    assert_eq!(*log.times("stop", back).last().unwrap(), up);
    assert_eq!(log.times("stop", back).len(), 2);
    assert_eq!(*log.times("paused", way).last().unwrap(), up + takes);
    w.run();
    assert_eq!(w.psns(1).len(), 60);
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
