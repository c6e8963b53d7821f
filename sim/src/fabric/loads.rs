//! Who sends how much to whom.

use super::topology::HostId;

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

/// Of `hosts` hosts, each `i` sends to `i + by` modulo `hosts`.
pub fn shift(hosts: usize, by: usize, bytes: u64) -> Vec<Transfer> {
    (0..hosts)
        .map(|i| Transfer {
            from: HostId::new(i),
            to: HostId::new((i + by) % hosts),
            bytes,
        })
        .collect()
}

/// Of `hosts` hosts, all but the first send to the first.
pub fn incast(hosts: usize, bytes: u64) -> Vec<Transfer> {
    (1..hosts)
        .map(|i| Transfer {
            from: HostId::new(i),
            to: HostId::new(0),
            bytes,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(load: &[Transfer]) -> Vec<(usize, usize)> {
        load.iter()
            .map(|t| (t.from.index(), t.to.index()))
            .collect()
    }

    #[test]
    fn loads_name_their_pairs() {
        assert_eq!(pairs(&shift(4, 3, 1)), [(0, 3), (1, 0), (2, 1), (3, 2)]);
        assert_eq!(pairs(&incast(4, 1)), [(1, 0), (2, 0), (3, 0)]);
    }
}
