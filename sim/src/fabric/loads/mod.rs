//! Who sends how much to whom, and when.
//!
//! | file | what |
//! |---|---|
//! | this one | patterns: shift, incast, permutation, all to all |
//! | [`arrivals`] | flows that arrive at random, of random sizes |

pub mod arrivals;

use super::topology::HostId;
use crate::random::Stream;

/// Bytes from one host to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The sender.
    pub from: HostId,
    /// The receiver.
    pub to: HostId,
    /// How much.
    pub bytes: u64,
}

impl Transfer {
    fn new(from: usize, to: usize, bytes: u64) -> Transfer {
        Transfer {
            from: HostId::new(from),
            to: HostId::new(to),
            bytes,
        }
    }
}

/// Of `hosts` hosts, each `i` sends to `i + by` modulo `hosts`; to itself if that is a multiple.
pub fn shift(hosts: usize, by: usize, bytes: u64) -> Vec<Transfer> {
    (0..hosts)
        .map(|i| Transfer::new(i, (i + by % hosts) % hosts, bytes))
        .collect()
}

/// Of `hosts` hosts, all but the first send to the first.
pub fn incast(hosts: usize, bytes: u64) -> Vec<Transfer> {
    (1..hosts).map(|i| Transfer::new(i, 0, bytes)).collect()
}

/// Of `hosts` hosts, at least two, each sends to one and receives from one, none to itself: a random
/// derangement, each as likely as any other.
pub fn permutation(hosts: usize, bytes: u64, stream: &mut Stream) -> Vec<Transfer> {
    if hosts < 2 {
        return Vec::new();
    }
    let mut to: Vec<usize> = (0..hosts).collect();
    loop {
        // Fisher and Yates; of all permutations one in e is a derangement.
        for i in (1..hosts).rev() {
            to.swap(i, stream.below(i as u64 + 1) as usize);
        }
        if to.iter().enumerate().all(|(i, &to)| i != to) {
            break;
        }
    }
    let pairs = to.into_iter().enumerate();
    pairs.map(|(i, to)| Transfer::new(i, to, bytes)).collect()
}

/// Of `hosts` hosts, each sends to every other, the next one first, so that at no time all send to one.
pub fn all_to_all(hosts: usize, bytes: u64) -> Vec<Transfer> {
    (0..hosts)
        .flat_map(|i| (1..hosts).map(move |by| Transfer::new(i, (i + by) % hosts, bytes)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn pairs(load: &[Transfer]) -> Vec<(usize, usize)> {
        load.iter()
            .map(|t| (t.from.index(), t.to.index()))
            .collect()
    }

    #[test]
    fn loads_name_their_pairs() {
        assert_eq!(pairs(&shift(4, 3, 1)), [(0, 3), (1, 0), (2, 1), (3, 2)]);
        assert_eq!(pairs(&incast(4, 1)), [(1, 0), (2, 0), (3, 0)]);
        assert_eq!(
            pairs(&all_to_all(3, 1)),
            [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]
        );
    }

    #[test]
    fn every_derangement_is_as_likely_as_any_other() {
        let mut stream = Stream::new(1, "permutation");
        let mut seen: BTreeMap<Vec<usize>, u32> = BTreeMap::new();
        for _ in 0..9_000 {
            let load = permutation(4, 1, &mut stream);
            let to: Vec<_> = load.iter().map(|t| t.to.index()).collect();
            *seen.entry(to).or_default() += 1;
        }
        // There are nine of four; 1000 each, give or take six standard deviations of 30.
        assert_eq!(seen.len(), 9);
        assert!(seen.values().all(|n| (820..1180).contains(n)), "{seen:?}");
        assert_eq!(permutation(1, 1, &mut stream), []);
        assert_eq!(permutation(2, 1, &mut stream).len(), 2);
    }
}
