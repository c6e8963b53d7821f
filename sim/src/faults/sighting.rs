//! What a link has seen of a flow: which copy of a PSN a packet is, in which transmission round, and the
//! how-manieth distinct packet.

use crate::wire::{Gid, Operation, Packet, Psn, QpNumber, Route};
use std::collections::BTreeMap;

/// What the passing of one packet was to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// How far its PSN lies after the first one of its flow.
    pub offset: u32,
    /// Its position among the distinct packets of its flow, in the order first seen, from 1.
    pub ordinal: u32,
    /// Which sighting of this PSN it is, from 1.
    pub copy: u32,
    /// In which transmission round of its flow it is, from 1.
    pub round: u32,
}

/// All flows that one channel has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracker {
    flows: BTreeMap<Key, Flow>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    src: Gid,
    dst: Gid,
    dest_qp: QpNumber,
    kind: Kind,
}

/// Requests and the two kinds of responses that a queue pair gets have PSNs of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Request,
    ReadResponse,
    Acknowledge,
    Cnp,
}

#[derive(Clone, Debug)]
struct Flow {
    first: Psn,
    last: Psn,
    distinct: u32,
    round: u32,
    /// By offset from `first`; a page is made when the flow gets there.
    pages: Vec<Option<Box<[Seen; PAGE]>>>,
}

/// What was seen of one PSN.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    ordinal: u32,
    copies: u32,
}

const PAGE: usize = 1024;
const PAGES: usize = Psn::MODULUS as usize / PAGE;

impl Tracker {
    /// Notes that a packet passes.
    pub(super) fn see(&mut self, packet: &Packet, route: &Route) -> Sighting {
        let psn = packet.bth.psn();
        let key = Key {
            src: route.src,
            dst: route.dst,
            dest_qp: packet.bth.dest_qp(),
            kind: match packet.bth.opcode().operation() {
                Operation::ReadResponse => Kind::ReadResponse,
                Operation::Acknowledge | Operation::AtomicAcknowledge => Kind::Acknowledge,
                Operation::Cnp => Kind::Cnp,
                _ => Kind::Request,
            },
        };
        self.flows
            .entry(key)
            .or_insert_with(|| Flow::new(psn))
            .see(psn)
    }
}

impl Flow {
    fn new(first: Psn) -> Flow {
        Flow {
            first,
            // Before the first packet, so that this one advances.
            last: first.minus(1),
            distinct: 0,
            round: 1,
            pages: Vec::new(),
        }
    }

    fn see(&mut self, psn: Psn) -> Sighting {
        if psn.after(self.last) <= 0 {
            self.round += 1;
        }
        self.last = psn;
        let offset = psn.minus(self.first.get()).get();
        let page = offset as usize / PAGE;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let seen = &mut self.pages[page].get_or_insert_with(|| Box::new([Seen::default(); PAGE]))
            [offset as usize % PAGE];
        if seen.copies == 0 {
            self.distinct += 1;
            seen.ordinal = self.distinct;
        }
        seen.copies += 1;
        let (ordinal, copy) = (seen.ordinal, seen.copies);
        // Half the sequence space away is another lap: what was seen there then is forgotten.
        if let Some(old) = self.pages.get_mut((page + PAGES / 2) % PAGES) {
            *old = None;
        }
        Sighting {
            offset,
            ordinal,
            copy,
            round: self.round,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(psns: &[u32]) -> Vec<(u32, u32, u32)> {
        let mut flow = Flow::new(Psn::new(psns[0]));
        psns.iter()
            .map(|&p| flow.see(Psn::new(p)))
            .map(|s| (s.ordinal, s.copy, s.round))
            .collect()
    }

    #[test]
    fn a_backward_jump_begins_a_round() {
        // Go-back-N from 6, then from 7.
        assert_eq!(
            all(&[5, 6, 7, 8, 6, 7, 7]),
            [
                (1, 1, 1),
                (2, 1, 1),
                (3, 1, 1),
                (4, 1, 1),
                (2, 2, 2),
                (3, 2, 2),
                (3, 3, 3)
            ]
        );
    }

    #[test]
    fn ordinals_count_packets_and_not_psns() {
        // A READ request takes as many PSNs as its response has packets.
        assert_eq!(
            all(&[0xff_fffe, 2, 3, 2]),
            [(1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 2, 2)]
        );
    }

    #[test]
    fn a_second_lap_of_the_psns_is_not_a_second_copy() {
        let mut flow = Flow::new(Psn::new(77));
        for n in 0..Psn::MODULUS {
            flow.see(Psn::new(77).plus(n));
        }
        let again = flow.see(Psn::new(77));
        assert_eq!(
            (again.copy, again.round, again.ordinal),
            (1, 1, Psn::MODULUS + 1)
        );
        // Only the half behind is remembered: 8 bytes for each PSN.
        assert!(flow.pages.iter().flatten().count() <= PAGES / 2 + 1);
    }
}
