//! Where packets go, and why some go nowhere.

use super::*;
use crate::wire::Vlan;
use std::collections::BTreeSet;

#[test]
fn a_hop_limit_runs_out_at_the_switch_that_would_forward() {
    let t = Topology::fat_tree(4, link(), SwitchSpec::default()).unwrap();
    let mut w = World::new(t);
    let route = w.route(0, 15);
    // Five switches lie between; the last hop needs one more than they take.
    let limited = [0, 1, 2, 5, 6].map(|hop_limit| Packet {
        hop_limit,
        ..packet(route, u32::from(hop_limit))
    });
    w.send(0, limited);
    w.run();
    assert_eq!(w.psns(15), [6]);
    assert_eq!(w.net.observer().count("drop"), 4);
    assert_eq!(w.drops("h0", "edge0", DropCause::HopLimit), 2);
}

#[test]
fn an_address_that_nobody_has_leads_nowhere() {
    for t in [
        Topology::back_to_back(link()),
        Topology::star(2, link(), SwitchSpec::default()).unwrap(),
    ] {
        let mut w = World::new(t);
        let mut to = w.topology.hosts()[1].clone();
        to.address = "192.0.2.1".parse().unwrap();
        let nowhere = w.table.intern(route(&w.topology.hosts()[0], &to, 0xc000));
        w.send(0, [packet(nowhere, 0)]);
        w.run();
        let up = w.topology.hosts()[0].uplink().unwrap();
        assert_eq!(w.net.counters(up).drops(DropCause::NoRoute), 1);
        assert_eq!(w.net.counters(up).all_drops(), 1);
    }
}

#[test]
fn a_packet_longer_than_the_mtu_is_dropped_at_the_port() {
    let mut t = Topology::star(2, link(), SwitchSpec::default()).unwrap();
    t.link_mut("h1-s0").unwrap().mtu = FRAME - 18;
    t.link_mut("h0-s0").unwrap().mtu = FRAME - 17;
    let mut w = World::new(t);
    let hosts = w.topology.hosts();
    let plain = route(&hosts[0], &hosts[1], 0xc000);
    let plain_id = w.table.intern(plain);
    let tagged_id = w.table.intern(Route {
        vlan: Some(Vlan { id: 7 }),
        ..plain
    });
    let long = |route, psn, more: u16| Packet {
        frame_len: FRAME + more,
        ..packet(route, psn)
    };
    w.send(
        0,
        [
            long(plain_id, 0, 0),
            long(plain_id, 1, 1),
            long(plain_id, 2, 2),
            long(tagged_id, 3, 4),
            long(tagged_id, 4, 5),
        ],
    );
    w.run();
    assert_eq!(w.psns(1), [0, 3]);
    assert_eq!(w.drops("h0", "s0", DropCause::TooLong), 1);
    assert_eq!(w.drops("s0", "h1", DropCause::TooLong), 2);
}

/// The core switches that packets from h0 to h100 cross, by UDP source port.
fn cores(seed: u64, ports: u16) -> Vec<usize> {
    let t = Topology::fat_tree(8, link(), SwitchSpec::default()).unwrap();
    let mut w = World::with(t, seed, PayloadMode::Counted);
    let hosts = w.topology.hosts();
    let routes: Vec<RouteId> = (0..ports)
        .map(|p| w.table.intern(route(&hosts[0], &hosts[100], 0xc000 + p)))
        .collect();
    // Each route twice, so that a flow is seen to keep its path.
    let packets = routes.iter().chain(&routes);
    w.send(0, packets.zip(0..).map(|(&r, psn)| packet(r, psn)));
    w.run();
    let mut by_psn = vec![usize::MAX; 2 * usize::from(ports)];
    for &(_, what, channel, psn) in &w.net.observer().0 {
        let link = ChannelId::new(channel / 2, Direction::Forward);
        let (_, to) = w.topology.channel_ends(link);
        if what == "transmit" && to.starts_with("core") && channel % 2 == 0 {
            by_psn[psn as usize] = to["core".len()..].parse().unwrap();
        }
    }
    let (first, second) = by_psn.split_at(usize::from(ports));
    assert_eq!(first, second);
    first.to_vec()
}

#[test]
fn flows_keep_their_path_and_spread_over_all_of_them() {
    let used = cores(1, 512);
    // 16 paths of which each gets 32 of 512 flows in the mean; binomial, five standard deviations 27.
    for core in 0..16 {
        let n = used.iter().filter(|&&c| c == core).count();
        assert!((5..=59).contains(&n), "core{core}: {n}");
    }
}

#[test]
fn another_seed_spreads_flows_otherwise() {
    let distinct: BTreeSet<Vec<usize>> = (0..4).map(|seed| cores(seed, 16)).collect();
    assert_eq!(distinct.len(), 4);
    assert_eq!(cores(3, 16), cores(3, 16));
}
