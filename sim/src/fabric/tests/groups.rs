//! Datagrams to groups: each member gets each once, and nobody else does.

use super::*;
use crate::wire::MacAddr;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn group() -> Gid {
    Ipv4Addr::new(239, 129, 2, 3).into()
}

/// Its Ethernet address: 01:00:5e and the lower 23 bits (RFC 1112, 6.4).
const MAC: MacAddr = MacAddr([0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]);

impl World {
    fn join(&mut self, host: usize, group: Gid) {
        self.net.host_mut(HostId::new(host)).groups.push(group);
    }

    fn leave(&mut self, host: usize) {
        self.net.host_mut(HostId::new(host)).groups.clear();
    }

    /// Has a host send packets with these numbers to a group.
    fn tell(&mut self, from: usize, group: Gid, psns: std::ops::Range<u32>) {
        let node = &self.topology.hosts()[from];
        let route = self.table.intern(Route {
            dst: group,
            dst_mac: MAC,
            ..route(node, node, 0xc000)
        });
        self.send(from, psns.map(|psn| packet(route, psn)));
    }

    fn frames(&self, from: &str, to: &str) -> u64 {
        self.net.counters(self.channel(from, to)).frames
    }

    fn all_frames(&self) -> u64 {
        let links = 0..self.topology.links().len();
        let both = links.flat_map(|l| [0, 1].map(|d| ChannelId(l as u32 * 2 + d)));
        both.map(|c| self.net.counters(c).frames).sum()
    }
}

/// A switch with a shared buffer, PFC in priority 3, and ECN.
fn managed() -> SwitchSpec {
    SwitchSpec {
        // Headroom for as many ports as any network here has.
        buffer: 16 << 20,
        pfc: Some(PfcSpec::new(
            PriorityMask(1 << 3),
            Threshold::Static(20_000),
        )),
        ..SwitchSpec::default()
    }
}

#[test]
fn a_switch_copies_to_members_alone() {
    for spec in [SwitchSpec::default(), managed()] {
        let star = Topology::star(4, link(), spec).unwrap();
        let mut w = World::with(star, 1, PayloadMode::Carried);
        // The sender hears it too, by itself: the network brings nothing back.
        for member in [0, 1, 3] {
            w.join(member, group());
        }
        w.join(2, Ipv4Addr::new(239, 1, 2, 3).into());
        w.tell(0, group(), 0..5);
        w.run();
        assert_eq!(
            [0, 1, 2, 3].map(|h| w.psns(h).len()),
            [0, 5, 0, 5],
            "{spec:?}"
        );
        assert_eq!(w.psns(1), [0, 1, 2, 3, 4]);
        let first = 2 * (LASTS + DELAY);
        let times: Vec<u64> = (0..5).map(|n| first + n * LASTS).collect();
        assert_eq!([w.arrivals(1), w.arrivals(3)], [times.clone(), times]);
        assert_eq!(w.net.host(HostId::new(3)).bytes[4], [4; 1000]);
        let frames = ["h0", "h1", "h2", "h3"].map(|h| w.frames("s0", h));
        assert_eq!((w.frames("h0", "s0"), frames), (5, [0, 5, 0, 5]));
        assert_eq!(w.net.counters(w.channel("h0", "s0")).duplicates, 5);
        let log = w.net.observer();
        assert_eq!((log.count("deliver"), log.count("drop")), (10, 0));
        assert_eq!(log.count("transmit"), 15);
    }
}

#[test]
fn what_nobody_hears_ends_at_the_first_switch() {
    let mut w = World::new(Topology::fat_tree(4, link(), SwitchSpec::default()).unwrap());
    w.join(9, Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1).into());
    w.tell(0, group(), 0..3);
    w.run();
    assert_eq!(w.all_frames(), 3);
    assert_eq!(w.drops("h0", "edge0", DropCause::NoRoute), 3);
}

/// To 15 other hosts of a fat tree of 20 switches: up one link, along no more links than it takes to span the
/// eight edge switches (through one aggregation switch in each pod and one core switch: 13 switches), and down 15.
#[test]
fn a_fat_tree_carries_each_datagram_over_each_link_once() {
    let mut w = World::new(Topology::fat_tree(4, link(), SwitchSpec::default()).unwrap());
    for member in 0..16 {
        w.join(member, group());
    }
    for sender in [0, 6, 15] {
        let before = w.all_frames();
        w.tell(sender, group(), 0..7);
        w.run();
        assert_eq!(w.all_frames() - before, 7 * (1 + 12 + 15));
    }
    for host in 0..16 {
        let own = [0, 6, 15].contains(&host);
        assert_eq!(w.psns(host).len(), if own { 14 } else { 21 }, "{host}");
    }
}

#[test]
fn without_a_switch_a_card_takes_what_it_is_a_member_of() {
    let mut w = World::new(Topology::back_to_back(link()));
    w.tell(0, group(), 0..2);
    w.run();
    assert_eq!(w.drops("h0", "h1", DropCause::NoRoute), 2);
    w.join(1, group());
    w.tell(0, group(), 2..4);
    w.run();
    w.leave(1);
    w.tell(0, group(), 4..5);
    w.run();
    assert_eq!(w.psns(1), [2, 3]);
}

#[test]
fn each_copy_waits_for_itself() {
    // One member's link is ten times slower: its copies alone are dropped, or pause the sender.
    for (spec, lossless) in [(SwitchSpec::tail_drop(10_000), false), (managed(), true)] {
        let mut star = Topology::star(4, link(), spec).unwrap();
        let (name, _) = star.channel_name(star.channel_between("s0", "h3").unwrap());
        let name = name.to_string();
        star.link_mut(&name).unwrap().rate = Rate::from_gbps(10);
        let mut w = World::with(star, 1, PayloadMode::Carried);
        for member in [1, 2, 3] {
            w.join(member, group());
        }
        w.tell(0, group(), 0..200);
        w.run();
        assert_eq!([1, 2].map(|h| w.psns(h).len()), [200, 200]);
        let dropped = w.drops("s0", "h3", DropCause::QueueFull);
        assert_eq!(w.psns(3).len() as u64 + dropped, 200);
        assert_eq!(dropped == 0, lossless);
        let up = w.net.counters(w.channel("s0", "h0"));
        assert_eq!(up.by_priority[3].pauses_sent > 0, lossless);
        assert_eq!(
            (
                w.net.pool_used(0),
                w.net.waiting_from(w.channel("h0", "s0"), 3)
            ),
            (0, 0)
        );
        // As fast as without pauses: 200 frames in a row; with them as fast as the slow link.
        let rate = if lossless { 10 } else { 1 };
        let last = *w.arrivals(1).last().unwrap();
        assert!(last >= 199 * LASTS * rate * 9 / 10, "{last}");
    }
}

#[test]
fn after_a_link_has_failed_the_tree_is_another() {
    // A ring of four switches with a host each has one link that the tree does without.
    let mut ring = Topology::new();
    for n in 0..4 {
        ring.add_switch(&format!("s{n}"), SwitchSpec::default())
            .unwrap();
        ring.add_host(&format!("h{n}")).unwrap();
        ring.connect(&format!("h{n}"), &format!("s{n}"), link())
            .unwrap();
    }
    for n in 0..4 {
        let (a, b) = (format!("s{n}"), format!("s{}", (n + 1) % 4));
        ring.connect(&a, &b, link()).unwrap();
    }
    for failing in 0..4 {
        let mut w = World::new(ring.clone());
        for member in 1..4 {
            w.join(member, group());
        }
        w.tell(0, group(), 0..10);
        w.run();
        let (a, b) = (format!("s{failing}"), format!("s{}", (failing + 1) % 4));
        let (name, _) = w.topology.channel_name(w.channel(&a, &b));
        let name = name.to_string();
        w.net
            .set_link(&name, w.net.now(), false, Span::ZERO)
            .unwrap();
        w.net.run_until(w.net.now() + Span::from_us(1));
        w.tell(0, group(), 10..20);
        w.run();
        for member in 1..4 {
            assert_eq!(
                w.psns(member),
                (0..20).collect::<Vec<_>>(),
                "{failing}, {member}"
            );
        }
        // Cut in two, each part has a tree of its own.
        let (name, _) = w.topology.channel_name(w.channel("h2", "s2"));
        let name = name.to_string();
        w.net
            .set_link(&name, w.net.now(), false, Span::ZERO)
            .unwrap();
        w.net.run_until(w.net.now() + Span::from_us(1));
        w.tell(0, group(), 20..21);
        w.run();
        assert_eq!([1, 2, 3].map(|h| w.psns(h).len()), [21, 20, 21]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the network is like, with circles and parallel links, each member has each datagram once, and no
    /// link carries one twice.
    #[test]
    fn each_member_has_each_datagram_once(
        switches in 1usize..8,
        more in prop::collection::vec((0usize..8, 0usize..8), 0..12),
        parents in prop::collection::vec(0usize..8, 8),
        places in prop::collection::vec(0usize..8, 2..10),
        members in prop::collection::vec(any::<bool>(), 10),
        senders in prop::collection::vec(0usize..10, 1..4),
        plain: bool,
    ) {
        let spec = if plain { SwitchSpec::default() } else { managed() };
        let mut t = Topology::new();
        let switch = |n: usize| format!("s{n}");
        for (n, parent) in parents.iter().enumerate().take(switches) {
            t.add_switch(&switch(n), spec).unwrap();
            if n > 0 {
                t.connect(&switch(n), &switch(parent % n), link()).unwrap();
            }
        }
        for (a, b) in more {
            let (a, b) = (a % switches, b % switches);
            if a != b {
                t.connect(&switch(a), &switch(b), link()).unwrap();
            }
        }
        let hosts = places.len();
        for (n, place) in places.iter().enumerate() {
            t.add_host(&format!("h{n}")).unwrap();
            t.connect(&format!("h{n}"), &switch(place % switches), link()).unwrap();
        }
        let mut w = World::with(t, 1, PayloadMode::Carried);
        for n in (0..hosts).filter(|&n| members[n]) {
            w.join(n, group());
        }
        for (round, sender) in senders.iter().enumerate() {
            let from = sender % hosts;
            let psn = round as u32;
            w.tell(from, group(), psn..psn + 1);
            w.run();
            for (n, &member) in members.iter().enumerate().take(hosts) {
                let times = w.psns(n).iter().filter(|&&p| p == psn).count();
                prop_assert_eq!(times, usize::from(member && n != from));
            }
            let log = w.net.observer();
            let mut sent: Vec<_> = log.0.iter().filter(|e| e.1 == "transmit" && e.3 == psn).collect();
            let all = sent.len();
            sent.sort_by_key(|e| e.2);
            sent.dedup_by_key(|e| e.2);
            prop_assert_eq!(sent.len(), all);
        }
    }
}
