//! Two cards and a network between them that loses, repeats and reorders, for tests that know what must
//! come of each packet that arrives. [`pair`](crate::pair) runs whole programs over reliable connections;
//! this is less, and leaves queue pairs, memory and judgement to the test.

use crate::bench::{Staging, address_of};
use softroce_sim::card::{AddressVector, Card, CardConfig, PriorityMask};
use softroce_sim::random::Stream;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{Gid, MacAddr, Packet, RouteTable};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// How bad the network is, in packets of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Lost.
    pub lost: u64,
    /// Arriving twice.
    pub twice: u64,
    /// Arriving after later ones.
    pub late: u64,
}

/// Two cards and what is between them.
#[derive(Debug)]
pub struct Link {
    /// The cards.
    pub cards: [Card; 2],
    /// Payloads.
    pub env: Staging,
    /// The time.
    pub now: Time,
    /// What has arrived, in order, and at which card.
    pub arrived: Vec<(usize, Packet)>,
    routes: RouteTable,
    faults: Faults,
    chaos: Stream,
    due: BTreeMap<(Time, u64), (usize, Packet)>,
    count: u64,
}

fn gid(side: usize) -> Gid {
    Ipv4Addr::new(10, 0, 0, side as u8 + 1).into()
}

impl Link {
    /// Everything is drawn from the seed.
    pub fn new(seed: u64, faults: Faults) -> Link {
        let routes = RouteTable::new();
        let cards = [0, 1].map(|side| {
            let mac = MacAddr([2, 0, 0, 0, 0, side as u8 + 1]);
            let config = CardConfig::new(format!("card {side}"), gid(side), mac);
            Card::new(config, seed, routes.clone())
        });
        Link {
            cards,
            env: Staging::default(),
            now: Time::ZERO,
            arrived: Vec::new(),
            routes,
            faults,
            chaos: Stream::new(seed, "chaos"),
            due: BTreeMap::new(),
            count: 0,
        }
    }

    /// The way to a card.
    pub fn address(side: usize) -> AddressVector {
        address_of(gid(side), MacAddr([2, 0, 0, 0, 0, side as u8 + 1]))
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.chaos.below(1000) < per_mille
    }

    fn send(&mut self, to: usize, packet: Packet) {
        if self.chance(self.faults.lost) {
            return;
        }
        let copies = if self.chance(self.faults.twice) { 2 } else { 1 };
        for _ in 0..copies {
            let mut delay = 1_000_000;
            if self.chance(self.faults.late) {
                delay += self.chaos.below(20_000_000);
            }
            self.count += 1;
            let at = self.now + Span::from_ps(delay);
            self.due.insert((at, self.count), (to, packet));
        }
    }

    /// Lets happen what will, until nothing is under way and no timer runs.
    ///
    /// # Panics
    /// If it never ends.
    pub fn run(&mut self) {
        for _ in 0..1_000_000 {
            for side in 0..2 {
                while let Some(packet) =
                    self.cards[side].next_packet(self.now, PriorityMask::ALL, &mut self.env)
                {
                    self.send(1 - side, packet);
                    // One packet takes a while on the wire, so that a late one can be overtaken.
                    self.now += Span::from_ns(100);
                }
            }
            let first = self.due.first_key_value().map_or(Time::NEVER, |(k, _)| k.0);
            let timers = self.cards.iter().map(Card::next_timeout);
            let next = timers.fold(first, Time::min);
            if next == Time::NEVER {
                return;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.due.first_entry()
                && entry.key().0 <= self.now
            {
                let (to, packet) = entry.remove();
                self.arrived.push((to, packet));
                let route = self.routes.get(packet.route).unwrap();
                self.cards[to].receive(self.now, &packet, &route, &mut self.env);
            }
            for card in &mut self.cards {
                card.advance(self.now);
            }
        }
        panic!("it never ends");
    }
}
