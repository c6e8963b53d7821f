//! When whom is paused, to the picosecond, and what headroom is for.

mod flaps;

use super::*;
use crate::fabric::pfc::{QUANTUM, response_quanta};
use crate::fabric::{ReceiveSpec, Service};

/// A PFC frame at 100 Gb/s, in picoseconds.
const PFC: u64 = 84 * 80;

/// What a port takes to stop at 100 Gb/s: 394 quanta.
const RESPONSE: u64 = 394 * 64 * 80;

const LOSSLESS: PriorityMask = PriorityMask(1 << 3);

/// Priority 3 is lossless, and paused as soon as anything waits.
fn strict() -> PfcSpec {
    PfcSpec {
        headroom: Headroom::Bytes(1 << 20),
        ..PfcSpec::new(LOSSLESS, Threshold::Static(0))
    }
}

fn star(hosts: usize, link: LinkSpec, pfc: PfcSpec) -> World {
    let switch = SwitchSpec {
        pfc: Some(pfc),
        ..SwitchSpec::default()
    };
    World::new(Topology::star(hosts, link, switch).unwrap())
}

/// h0 fills the way to h2 with `n` frames of a higher, lossy priority, so that what h1 sends there in
/// priority 3 waits from the first frame on.
fn block(w: &mut World, from: u64, n: u32) {
    let route = w.route(0, 2);
    let host = w.net.host_mut(HostId::new(0));
    for psn in 0..n {
        host.plan(
            at(from),
            Packet {
                priority: 5,
                ..packet(route, psn)
            },
        );
    }
    w.net.kick(HostId::new(0));
}

#[test]
fn a_pause_begins_and_ends_when_the_arithmetic_says() {
    let mut w = star(3, link(), strict());
    block(&mut w, 0, 60);
    let route = w.route(1, 2);
    w.send(1, (1000..1100).map(|psn| packet(route, psn)));
    w.run();
    let (up, down) = (w.channel("h1", "s0"), w.channel("s0", "h1"));
    let takes = PFC + DELAY + RESPONSE;
    // h1's first frame waits behind that of h0.
    let begin = come(1) + takes;
    // By then it has begun as many: the last one goes on.
    let sent = begin / LASTS + 1;
    assert_eq!(sent, 48);
    // They leave after h0's last one; when the last of them leaves, nothing waits.
    let relieved = come(60 + sent);
    let log = w.net.observer();
    assert_eq!(log.times("stop", down), [come(1)]);
    assert_eq!(log.times("paused", up), [begin]);
    assert_eq!(log.times("go", down), [relieved]);
    assert_eq!(log.times("resumed", up), [relieved + takes]);
    let starts = log.times("transmit", up);
    assert_eq!(starts[47], 47 * LASTS);
    assert_eq!(starts[48], relieved + takes);
    assert_eq!(starts[99], starts[48] + 51 * LASTS);
    // After the pause each finds its way free.
    assert_eq!(w.arrivals(2)[159], starts[99] + 2 * (LASTS + DELAY));
    let c = w.net.counters(up).by_priority[3];
    assert_eq!((c.pauses_received, c.resumes_received), (1, 1));
    assert_eq!(c.paused.as_ps(), relieved - come(1));
    assert_eq!(w.net.paused(up)[3], c.paused);
    let c = w.net.counters(down);
    assert_eq!((c.pfc_frames, c.frames, c.bytes), (2, 2, 128));
    assert_eq!(c.by_priority[3].pauses_sent, 1);
    assert_eq!(c.by_priority[3].resumes_sent, 1);
    // It was h1 alone, and the run does not end with the end of a pause that was taken back.
    assert_eq!(log.count("paused"), 1);
    assert_eq!(w.net.now(), at(w.arrivals(2)[159]));
}

/// h1 is paused once, for `quanta`, in the first 10 us.
fn paused_once(quanta: u16) -> World {
    let spec = PfcSpec {
        quanta,
        refresh: Some(Span::from_ms(1)),
        ..strict()
    };
    let mut w = star(3, link(), spec);
    block(&mut w, 0, 100);
    let route = w.route(1, 2);
    w.send(1, (1000..1100).map(|psn| packet(route, psn)));
    w.net.run_until(at(10_000_000));
    w
}

#[test]
fn a_pause_that_is_not_repeated_runs_out() {
    let quanta = 1000;
    let w = paused_once(quanta);
    let up = w.channel("h1", "s0");
    let begin = come(1) + PFC + DELAY + RESPONSE;
    // Counted from when the PFC frame has arrived.
    let end = come(1) + PFC + DELAY + u64::from(quanta) * 512 * 10;
    let log = w.net.observer();
    assert_eq!(log.times("resumed", up), [end]);
    assert_eq!(log.times("transmit", up)[48], end);
    assert_eq!(
        w.net.counters(up).by_priority[3].paused,
        Span::from_ps(end - begin)
    );
}

#[test]
fn a_pause_that_is_over_before_the_port_responds_pauses_nobody() {
    for (quanta, lasts) in [(393, None), (394, None), (395, Some(512 * 10))] {
        let w = paused_once(quanta);
        let up = w.channel("h1", "s0");
        let begin = come(1) + PFC + DELAY + RESPONSE;
        let log = w.net.observer();
        let times: Vec<u64> = lasts.iter().map(|_| begin).collect();
        assert_eq!(log.times("paused", up), times, "{quanta}");
        let times: Vec<u64> = lasts.iter().map(|lasts| begin + lasts).collect();
        assert_eq!(log.times("resumed", up), times, "{quanta}");
        assert_eq!(w.net.counters(up).by_priority[3].pauses_received, 1);
    }
}

/// What is asked for again when the pause ends, or before, however little, lasts without a break, though the
/// port has its time to respond to that as well; a picosecond later the port goes on.
#[test]
fn a_pause_that_is_asked_for_again_no_later_than_it_ends_lasts_on() {
    let quantum = 512 * 10;
    let long = 1000 * quantum;
    for (quanta, refresh, breaks) in [
        (1000, long - RESPONSE - 1, false),
        (1000, long - RESPONSE, false),
        (1000, long - RESPONSE / 2, false),
        (1000, long - 1, false),
        (1000, long, false),
        (1000, long + 1, true),
        // So often that several come before the first takes effect.
        (600, 300 * quantum, false),
        (395, 250 * quantum, false),
        (393, 393 * quantum, false),
        (200, 200 * quantum, false),
        (100, 50 * quantum, false),
        (3, 3 * quantum, false),
    ] {
        let pause = u64::from(quanta) * quantum;
        let mut w = star(
            3,
            link(),
            PfcSpec {
                quanta,
                refresh: Some(Span::from_ps(refresh)),
                ..strict()
            },
        );
        block(&mut w, 0, 600);
        let route = w.route(1, 2);
        w.send(1, (1000..1100).map(|psn| packet(route, psn)));
        w.net.run_until(at(50_000_000));
        let up = w.channel("h1", "s0");
        let log = w.net.observer();
        let heard = come(1) + PFC + DELAY;
        assert_eq!(log.times("paused", up)[0], heard + RESPONSE);
        match breaks {
            false => {
                assert_eq!(log.count("resumed"), 0, "{quanta} {refresh}");
                assert_eq!(log.times("transmit", up).len(), 48, "{quanta}");
            }
            true => {
                // Until the pause that came too late takes effect.
                assert_eq!(log.times("resumed", up)[0], heard + pause);
                assert_eq!(log.times("paused", up)[1], heard + refresh + RESPONSE);
                assert_eq!(log.times("transmit", up)[48], heard + pause);
            }
        }
    }
}

#[test]
fn a_pause_is_repeated_while_it_must_last() {
    // Half of 1000 quanta is 2560 ns.
    let mut w = star(
        3,
        link(),
        PfcSpec {
            quanta: 1000,
            ..strict()
        },
    );
    block(&mut w, 0, 60);
    let route = w.route(1, 2);
    w.send(1, (1000..1100).map(|psn| packet(route, psn)));
    w.run();
    let (up, down) = (w.channel("h1", "s0"), w.channel("s0", "h1"));
    let log = w.net.observer();
    let relieved = come(60 + 48);
    let repeats: Vec<u64> = (come(1)..relieved).step_by(2_560_000).collect();
    assert_eq!(log.times("stop", down), repeats);
    assert_eq!(log.count("paused"), 1);
    let c = w.net.counters(up).by_priority[3];
    assert_eq!(c.pauses_received, repeats.len() as u64);
    assert_eq!(c.paused.as_ps(), relieved - come(1));
}

#[test]
fn a_pfc_frame_waits_for_the_frame_being_sent_and_for_nothing_else() {
    let mut w = star(3, link(), strict());
    // h2 fills the way to h1.
    let route = w.route(2, 1);
    w.send(
        2,
        (0..20).map(|psn| Packet {
            priority: 7,
            ..packet(route, psn)
        }),
    );
    let half = LASTS / 2;
    block(&mut w, half, 60);
    let route = w.route(1, 2);
    w.net
        .host_mut(HostId::new(1))
        .plan(at(half), packet(route, 1000));
    w.net.kick(HostId::new(1));
    w.run();
    let down = w.channel("s0", "h1");
    // It is asked for at come(1) + half.
    assert_eq!(w.net.observer().times("stop", down), [come(2)]);
    let later: Vec<u64> = (0..20)
        .map(|n| come(2 + n) + DELAY + if n == 0 { 0 } else { PFC })
        .collect();
    // The second one, that lets h1 go, is later than these.
    assert_eq!(w.arrivals(1), later);
}

#[test]
fn other_priorities_go_on() {
    let mut w = star(3, link(), strict());
    block(&mut w, 0, 200);
    let route = w.route(1, 2);
    let all = (0..200).map(|n| Packet {
        priority: [3, 6][n as usize % 2],
        ..packet(route, 1000 + n)
    });
    w.send(1, all);
    w.run();
    let got: Vec<u32> = w.psns(2).into_iter().filter(|&p| p >= 1000).collect();
    // All of priority 6 have come before the last of priority 3.
    let odd: Vec<usize> = (0..200).filter(|&i| got[i] % 2 == 1).collect();
    assert_eq!(odd.len(), 100);
    assert!(odd[99] < 160, "{got:?}");
    assert_eq!(
        w.net.counters(w.channel("h1", "s0")).by_priority[6].paused,
        Span::ZERO
    );
}

#[test]
fn a_switch_is_paused_by_the_next_one_and_does_not_obey_for_lossy_priorities() {
    for (obeys, expected) in [(true, 0), (false, 1)] {
        let pfc = |lossless: bool| SwitchSpec {
            pfc: lossless.then(strict),
            ..SwitchSpec::default()
        };
        // h1 - s1 - s0 - h2, and h0 at s0.
        let mut t = Topology::new();
        for h in 0..3 {
            t.add_host(&format!("h{h}")).unwrap();
        }
        t.add_switch("s0", pfc(true)).unwrap();
        t.add_switch("s1", pfc(obeys)).unwrap();
        for (a, b) in [("h0", "s0"), ("h1", "s1"), ("h2", "s0"), ("s1", "s0")] {
            t.connect(a, b, link()).unwrap();
        }
        let mut w = World::new(t);
        block(&mut w, 0, 400);
        let route = w.route(1, 2);
        w.send(1, (1000..1200).map(|psn| packet(route, psn)));
        w.run();
        let (between, first) = (w.channel("s1", "s0"), w.channel("h1", "s1"));
        let c = w.net.counters(between).by_priority[3];
        assert_eq!(c.pauses_received, 1);
        assert_eq!(c.paused > Span::ZERO, obeys);
        assert_eq!(w.net.observer().times("paused", first).len(), 1 - expected);
        assert_eq!(w.psns(2).len(), 600);
        // h1 is paused because the link between the switches is, and that because the way to h2 is full.
        let log = w.net.pause_log();
        assert_eq!(log.count(), if obeys { 2 } else { 1 });
        let last = log.chain(log.records().len() - 1);
        let why: Vec<_> = last
            .iter()
            .map(|c| (c.channel, c.behind, c.paused))
            .collect();
        let root = (between, Some(w.channel("s0", "h2")), false);
        if obeys {
            assert_eq!(why, [(first, Some(between), true), root]);
        } else {
            assert_eq!(why, [root]);
        }
    }
}

/// The worst that can happen to a port of `link`: its peer h2 sends longest frames without a gap; when
/// one crosses the threshold, the way back has just begun a longest frame; and when the pause takes
/// effect, h2 has just begun one. Gives the packets lost.
fn worst(link: LinkSpec, headroom: u64, payload: u16, frames: u32) -> u64 {
    let mut w = star(
        4,
        link,
        PfcSpec {
            headroom: Headroom::Bytes(headroom),
            ..strict()
        },
    );
    let long = |route, psn, priority| Packet {
        payload: Payload::counted(payload),
        frame_len: 62 + payload,
        priority,
        ..packet(route, psn)
    };
    // What comes in at one time comes in the order of the links: h0's frame is on its way to h2 and that
    // of h1 on its way to h3 when h2's comes.
    let routes = [w.route(0, 2), w.route(1, 3), w.route(2, 3)];
    w.send(0, (0..frames).map(|n| long(routes[0], n, 7)));
    w.send(1, (0..frames).map(|n| long(routes[1], 10_000 + n, 5)));
    w.send(2, (0..frames).map(|n| long(routes[2], 20_000 + n, 3)));
    w.run();
    let lost = w.drops("h2", "s0", DropCause::HeadroomFull);
    assert_eq!(w.psns(3).len() as u64, 2 * u64::from(frames) - lost);
    lost
}

#[test]
fn headroom_is_enough_at_the_worst_and_one_packet_less_is_not() {
    for (gbps, metres, payload, response) in [
        (40, 100, 1500, None),
        (40, 300, 1500, None),
        (100, 5, 4096, None),
        (100, 300, 4096, None),
        (400, 100, 4096, None),
        (400, 300, 4096, Some(2000)),
        (10, 0, 1024, Some(0)),
    ] {
        let rate = Rate::from_gbps(gbps);
        let wire = u64::from(payload) + 62 + 20;
        let one = rate.span(wire).as_ps();
        let quanta = response.unwrap_or(response_quanta(rate));
        let fixed = rate
            .span(2 * wire + 84 + u64::from(quanta) * QUANTUM)
            .as_ps();
        // The cable is made longer until the pause takes effect just after the peer began frame
        // `k`; the first one it sent is the one that crosses.
        let k = (fixed + 2 * 5_000 * metres).div_ceil(one);
        let delay = (k * one - fixed).div_ceil(2) + 1;
        let link = LinkSpec {
            pfc_response: response,
            ..LinkSpec::new(rate, Span::from_ps(delay))
        };
        let enough = headroom(&link, wire, wire);
        let packet = wire - 20;
        assert!(enough >= k * packet && enough - packet < k * packet);
        let frames = k as u32 + 40;
        assert_eq!(worst(link, enough, payload, frames), 0, "{link:?}");
        assert_eq!(worst(link, enough - packet, payload, frames), 1, "{link:?}");
    }
}

#[test]
fn who_is_paused_is_let_go_when_others_free_the_pool() {
    // A port may have as much of the pool of 1 MB as is free: with three that is a quarter each, alone a
    // half.
    let pool = 1_000_000;
    let pfc = PfcSpec {
        threshold: Threshold::Dynamic(Ratio::new(1, 1).unwrap()),
        headroom: Headroom::Bytes(60_000),
        resume: 8192,
        ..strict()
    };
    let switch = SwitchSpec {
        buffer: pool + 5 * 60_000,
        pfc: Some(pfc),
        ..SwitchSpec::default()
    };
    let mut w = World::new(Topology::star(5, link(), switch).unwrap());
    // h2 takes in nothing, so that what waits for it never goes.
    let dead = ReceiveSpec {
        stops: Some(Time::ZERO),
        watchdog: None,
        ..ReceiveSpec::new(Service::Rate(Rate::from_gbps(100)))
    };
    w.net.set_receiver(HostId::new(2), dead).unwrap();
    // Half of what h0 sends waits for ever, the other half with what h1 and h3 send.
    let (stuck, free) = (w.route(0, 2), w.route(0, 4));
    w.send(
        0,
        (0..400).flat_map(|psn| [packet(stuck, psn), packet(free, psn)]),
    );
    w.send_numbered(1, 4, 2000);
    w.send_numbered(3, 4, 2000);
    let up = w.channel("h0", "s0");
    w.net.run_until(at(150_000_000));
    assert!(w.net.is_paused(up, 3));
    w.net.run_until(at(2_000_000_000));
    // Alone, h0 has room enough for all of it.
    assert_eq!(w.psns(4).len(), 4400);
    assert!(!w.net.is_paused(up, 3) && w.net.waiting_from(up, 3) > 300_000);
    assert_eq!(w.net.deadlock(), None);
}

/// Headroom that holds no frame, and a pool full of what is lossy: frames are lost, but from the first one on
/// that their sender is told to stop, and it goes on when there is room.
#[test]
fn who_loses_a_frame_for_want_of_headroom_is_paused() {
    let pool = 20 * u64::from(FRAME);
    let alpha = Threshold::Dynamic(Ratio::new(8, 1).unwrap());
    for threshold in [Threshold::Static(1 << 20), alpha] {
        let switch = SwitchSpec {
            buffer: pool + 4 * 500,
            pfc: Some(PfcSpec {
                headroom: Headroom::Bytes(500),
                ..PfcSpec::new(LOSSLESS, threshold)
            }),
            ..SwitchSpec::default()
        };
        let mut w = World::new(Topology::star(4, link(), switch).unwrap());
        // Two come for h2 in each slot, and one goes: from the 20th on the pool is full.
        for from in [0, 3] {
            let route = w.route(from, 2);
            let lossy = |psn| Packet {
                priority: 5,
                ..packet(route, psn)
            };
            w.send(from, (0..400).map(lossy));
        }
        // Longer ones, which do not fit in either when one has gone.
        let begin = 60 * LASTS;
        let lasts = LASTS + 500 * 80;
        let route = w.route(1, 2);
        for psn in 1000..1100 {
            let long = Packet {
                payload: Payload::counted(1500),
                frame_len: FRAME + 500,
                ..packet(route, psn)
            };
            let host = w.net.host_mut(HostId::new(1));
            host.plan(at(begin), long);
        }
        w.net.kick(HostId::new(1));
        w.run();
        let (up, down) = (w.channel("h1", "s0"), w.channel("s0", "h1"));
        let log = w.net.observer();
        let first = begin + lasts + DELAY;
        let takes = PFC + DELAY + RESPONSE;
        assert_eq!(log.times("stop", down), [first], "{threshold:?}");
        assert_eq!(log.times("paused", up), [first + takes]);
        // What was begun until then.
        let lost = (first + takes - begin) / lasts + 1;
        assert_eq!(log.times("drop", up).len() as u64, lost);
        assert_eq!(w.drops("h1", "s0", DropCause::HeadroomFull), lost);
        let got = w.psns(2).iter().filter(|&&psn| psn >= 1000).count();
        assert_eq!(got as u64, 100 - lost);
        // 8 KiB are free when eight frames of the last twenty are gone.
        let go = log.times("go", down);
        assert!(
            go.len() == 1 && go[0] > come(400) && go[0] <= come(410),
            "{go:?}"
        );
    }
}

/// Where nothing can leave that would make room, a pause would never end.
#[test]
fn a_switch_without_any_memory_pauses_nobody() {
    let switch = SwitchSpec {
        buffer: 0,
        pfc: Some(PfcSpec {
            headroom: Headroom::Bytes(0),
            ..strict()
        }),
        ..SwitchSpec::default()
    };
    let mut w = World::new(Topology::star(3, link(), switch).unwrap());
    w.send_numbered(0, 2, 50);
    w.send_numbered(1, 2, 50);
    w.run();
    assert_eq!(w.net.observer().count("stop"), 0);
    let lost =
        w.drops("h0", "s0", DropCause::HeadroomFull) + w.drops("h1", "s0", DropCause::HeadroomFull);
    // Of each pair one finds the port free.
    assert_eq!((lost, w.psns(2).len()), (50, 50));
}

/// A receiver that is full pauses, whatever its threshold.
#[test]
fn who_loses_a_frame_to_a_full_receiver_is_paused() {
    let room = 100 * u64::from(FRAME);
    let mut w = World::new(Topology::back_to_back(link()));
    let spec = ReceiveSpec {
        buffer: room + 500,
        xoff: room + 500,
        xon: room / 2,
        ..ReceiveSpec::new(Service::Rate(Rate::from_gbps(10)))
    };
    w.net.set_receiver(HostId::new(1), spec).unwrap();
    w.send_numbered(0, 1, 1000);
    w.run();
    let (up, down) = (w.channel("h0", "h1"), w.channel("h1", "h0"));
    let log = w.net.observer();
    let (drops, stops) = (log.times("drop", up), log.times("stop", down));
    assert_eq!(stops[0], drops[0]);
    // What comes until the pause takes effect, of which one frame in ten finds room.
    let takes = PFC + 2 * DELAY + RESPONSE;
    assert!(
        drops.len() as u64 <= stops.len() as u64 * (takes / LASTS + 2),
        "{drops:?}"
    );
    assert_eq!(w.psns(1).len() + drops.len(), 1000);
    assert!(!w.net.is_paused(up, 3));
}
