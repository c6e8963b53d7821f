//! What waits at a switch, and in which order it goes.

use super::*;

/// Three hosts around a switch whose ports hold so many bytes.
fn star(port_buffer: u64) -> World {
    World::new(Topology::star(3, link(), SwitchSpec::tail_drop(port_buffer)).unwrap())
}

#[test]
fn a_queue_takes_its_last_byte_and_no_more() {
    // Frames of h0 and h1 arrive in pairs. One of the first pair is sent at once; each later pair comes
    // in just before the port is free again, so that k pairs make k + 1 frames wait.
    for (spare, dropped) in [(0, 0), (1, 1)] {
        let n = 5;
        let mut w = star((n + 1) * u64::from(FRAME) - spare);
        w.send_numbered(0, 2, n as u32);
        w.send_numbered(1, 2, n as u32);
        w.run();
        assert_eq!(w.drops("s0", "h2", DropCause::QueueFull), dropped);
        assert_eq!(w.psns(2).len() as u64, 2 * n - dropped);
        let c = w.net.counters(w.channel("s0", "h2"));
        assert_eq!(c.queue_high_water, (n + 1 - dropped) * u64::from(FRAME));
    }
}

#[test]
fn a_higher_priority_goes_first_but_does_not_break_into_a_frame() {
    let mut w = star(1 << 20);
    let (a, b) = (w.route(0, 2), w.route(1, 2));
    // h0 fills the queue with priority 1; h1's frames of 7 and 4 come later.
    let low = (0..10).map(|psn| Packet {
        priority: 1,
        ..packet(a, psn)
    });
    let high = (0..10).map(|n| Packet {
        priority: [4, 7][n as usize % 2],
        ..packet(b, 100 + n)
    });
    w.send(0, low);
    w.send(1, high);
    w.run();
    // The two first frames arrive together and 0 is sent at once. The next pair is there just before
    // that is done, so 101 goes before 100.
    let got = w.psns(2);
    assert_eq!(got[..3], [0, 101, 100]);
    let of = |which: &dyn Fn(&u32) -> bool| -> Vec<u32> {
        got.iter().copied().filter(|psn| which(psn)).collect()
    };
    assert_eq!(of(&|&p| p < 100), (0..10).collect::<Vec<_>>());
    assert_eq!(of(&|&p| p >= 100 && p % 2 == 0), [100, 102, 104, 106, 108]);
    assert_eq!(of(&|&p| p >= 100 && p % 2 == 1), [101, 103, 105, 107, 109]);
    // The low ones wait until all high ones are gone.
    assert_eq!(got[11..], (1..10).collect::<Vec<_>>());
}

#[test]
fn one_priority_keeps_the_order_of_arrival() {
    let mut w = star(1 << 20);
    w.send_numbered(0, 2, 50);
    let route = w.route(1, 2);
    w.send(1, (100..150).map(|psn| packet(route, psn)));
    w.run();
    let expected: Vec<u32> = (0..50).flat_map(|n| [n, 100 + n]).collect();
    assert_eq!(w.psns(2), expected);
}

#[test]
fn an_idle_port_needs_no_room_to_wait() {
    let mut w = star(0);
    w.send_numbered(0, 2, 20);
    w.run();
    assert_eq!(w.psns(2).len(), 20);
    assert_eq!(w.net.counters(w.channel("s0", "h2")).queue_high_water, 0);
}

#[test]
fn an_idle_network_has_no_events_but_arrivals() {
    let mut w = star(1 << 20);
    w.send_numbered(0, 2, 1);
    w.run();
    assert_eq!(w.net.event_count(), 2);
}
