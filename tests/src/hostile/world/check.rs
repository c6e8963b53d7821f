//! What must hold between packets, and when everything has come to rest.

use super::*;

impl World {
    pub(super) fn check_memory(&mut self) {
        for secret in &self.secrets {
            if !secret.writable {
                assert!(
                    secret.slots.buffer.to_vec() == secret.expected,
                    "{} has changed",
                    secret.name
                );
            }
        }
        for (i, link) in self.links.iter().enumerate() {
            let victim = &link.sides[0];
            victim.own.check_guards("a program's own memory");
            victim.vault.check_guards("a vault");
            let mut bytes = [0; SLOT];
            for slot in [OPEN_SLOT - 1, OPEN_SLOT + 1] {
                victim.vault.read(slot, &mut bytes);
                assert!(bytes == [SECRET; SLOT], "link {i}: beside the window");
            }
            if link.strict {
                victim.open.check_guards("memory that a peer may use");
                let mut expected = [0; SLOT];
                victim.open.read(LIBRARY, &mut bytes);
                pattern(i, 0, u64::MAX, &mut expected);
                assert!(bytes == expected, "link {i}: the library");
                victim.open.read(CELLS, &mut bytes);
                assert!(bytes[8..] == [0x40; SLOT - 8], "link {i}: beside the cell");
            } else if !self.attack.forging {
                // Fresh, so that what atomics leave there does not look like the others' bytes.
                let hostile = vec![HOSTILE_BELOW - 1; Slots::offset(WINDOW + 2)];
                victim.open.buffer.write_at(0, &hostile);
                victim.vault.write(OPEN_SLOT, &hostile[..SLOT]);
            }
        }
        for queue in &self.queues {
            queue.slots.check_guards("receives");
        }
    }

    /// The hostile peer is silent, and no program posts: everything ends.
    pub(super) fn come_to_rest(&mut self) {
        self.drought = 0;
        for link in 0..self.links.len() {
            if self.links[link].rests > 0 {
                self.links[link].rests = 0;
                self.connect(link);
            }
        }
        for steps in 0.. {
            assert!(steps < 1_000_000, "it never ends");
            let mut moved = false;
            for card in 0..self.cards.len() {
                while self.pull(card).is_some() {
                    moved = true;
                }
                while !self.wires[card].is_empty() {
                    self.carry(card);
                    moved = true;
                }
            }
            self.poll();
            if moved {
                continue;
            }
            let next = self
                .cards
                .iter()
                .map(Card::next_timeout)
                .fold(Time::NEVER, Time::min);
            if next == Time::NEVER {
                break;
            }
            self.now = self.now.max(next);
            self.pass(Span::ZERO);
        }
        self.poll();
        for (i, link) in self.links.iter().enumerate() {
            for (j, side) in link.sides.iter().enumerate() {
                let left = &side.lane.pending;
                assert!(
                    left.iter().all(|op| link.is_judged(i, j, op)),
                    "link {i} side {j}: {left:?} sleep for ever"
                );
            }
        }
        assert_eq!(self.pool.held(), 0, "payloads that nobody has");
        self.mend();
        self.check_memory();
        self.check_counters();
    }

    pub(super) fn check_counters(&self) {
        let sum = self.cards[VICTIM].counters();
        assert_eq!(sum.received_packets, self.handed);
        assert_eq!(sum.sent_packets, self.pulled);
        for why in Refusal::ALL {
            let all = self.cards.iter().map(|c| c.counters().refused.get(why));
            assert_eq!(
                all.sum::<u64>(),
                self.pool.refused[why as usize],
                "{}",
                why.name()
            );
        }
        let all = self.cards.iter().map(|c| c.counters());
        let (mut requests, mut sent) = (0, 0);
        for c in all {
            requests += c.request_packets;
            sent += c.sent_packets;
        }
        assert_eq!(requests, self.pool.requests);
        assert_eq!(sent, self.pool.requests + self.pool.responses);
        for (i, link) in self.links.iter().enumerate().filter(|(_, l)| l.strict) {
            for (j, side) in link.sides.iter().enumerate() {
                let c = self.cards[side.card].qp_counters(side.qp.number()).unwrap();
                let dropped: u64 = c.refused.iter().map(|(_, n)| n).sum();
                if j == 0 {
                    assert_eq!(
                        c.received_packets - dropped,
                        self.delivered[i] + c.cnps_received,
                        "link {i}: {c:?}"
                    );
                } else {
                    assert_eq!(dropped, 0, "link {i}");
                }
                let quiet = [
                    c.naks_sent.total(),
                    c.naks_received.total(),
                    c.rnr_naks_sent,
                    c.rnr_naks_received,
                    c.retransmitted_packets,
                    c.timeouts,
                    c.implied_naks,
                    c.duplicate_requests,
                    c.out_of_sequence,
                ];
                assert_eq!(quiet, [0; 9], "link {i} side {j} has noticed: {c:?}");
                assert_eq!(side.qp.state(), State::Rts);
            }
        }
    }
}
