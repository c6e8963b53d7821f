//! Networks that have names. Hosts are `h0`, `h1`, ... unless said otherwise, and a link is called
//! after its two ends, that nearer to the hosts first.

use super::{Topology, TopologyError};
use crate::fabric::link::LinkSpec;
use crate::fabric::switch::SwitchSpec;

impl Topology {
    /// Hosts `h0` and `h1` with a link between them.
    pub fn back_to_back(link: LinkSpec) -> Topology {
        let mut t = Topology::new();
        let built = t
            .add_host("h0")
            .and_then(|_| t.add_host("h1"))
            .and_then(|_| t.connect("h0", "h1", link));
        debug_assert!(built.is_ok());
        t
    }

    /// Hosts `h0`, `h1`, ... around one switch `s0`.
    ///
    /// # Errors
    ///
    /// [`TopologyError::TooManyHosts`].
    pub fn star(
        hosts: usize,
        link: LinkSpec,
        switch: SwitchSpec,
    ) -> Result<Topology, TopologyError> {
        let mut t = Topology::new();
        t.add_switch("s0", switch)?;
        for h in 0..hosts {
            t.attach(&format!("h{h}"), "s0", link)?;
        }
        Ok(t)
    }

    /// Two switches with a link between them and hosts on either side: `l0`, `l1`, ... at `s0`, `r0`,
    /// `r1`, ... at `s1`. The middle link, `s0-s1`, is like `middle`.
    ///
    /// # Errors
    ///
    /// [`TopologyError::TooFew`] if a side has no host, or [`TopologyError::TooManyHosts`].
    pub fn dumbbell(
        left: usize,
        right: usize,
        link: LinkSpec,
        middle: LinkSpec,
        switch: SwitchSpec,
    ) -> Result<Topology, TopologyError> {
        at_least("dumbbell", "hosts on the left", left, 1)?;
        at_least("dumbbell", "hosts on the right", right, 1)?;
        let mut t = Topology::new();
        t.add_switch("s0", switch)?;
        t.add_switch("s1", switch)?;
        for h in 0..left {
            t.attach(&format!("l{h}"), "s0", link)?;
        }
        for h in 0..right {
            t.attach(&format!("r{h}"), "s1", link)?;
        }
        t.connect("s0", "s1", middle)?;
        Ok(t)
    }

    /// Two tiers (a folded Clos): each of the switches `leaf0`, `leaf1`, ... has `hosts` hosts, leaf by
    /// leaf, and a link to each of `spine0`, `spine1`, ..., which is like `uplink`.
    ///
    /// # Errors
    ///
    /// [`TopologyError::TooFew`] if there is none of something, or [`TopologyError::TooManyHosts`].
    pub fn leaf_spine(
        leaves: usize,
        spines: usize,
        hosts: usize,
        link: LinkSpec,
        uplink: LinkSpec,
        switch: SwitchSpec,
    ) -> Result<Topology, TopologyError> {
        at_least("leaf-spine", "leaves", leaves, 1)?;
        at_least("leaf-spine", "spines", spines, 1)?;
        at_least("leaf-spine", "hosts per leaf", hosts, 1)?;
        at_most(leaves.saturating_mul(hosts))?;
        let mut t = Topology::new();
        for leaf in 0..leaves {
            t.add_switch(&format!("leaf{leaf}"), switch)?;
        }
        for spine in 0..spines {
            t.add_switch(&format!("spine{spine}"), switch)?;
        }
        for h in 0..leaves.saturating_mul(hosts) {
            t.attach(&format!("h{h}"), &format!("leaf{}", h / hosts), link)?;
        }
        for leaf in 0..leaves {
            for spine in 0..spines {
                t.connect(&format!("leaf{leaf}"), &format!("spine{spine}"), uplink)?;
            }
        }
        Ok(t)
    }

    /// Switches `s0`, `s1`, ... in a ring, each with `hosts` hosts, switch by switch. The links between
    /// switches, `s0-s1`, `s1-s2`, ..., the last one back to `s0`, are like `trunk`.
    ///
    /// # Errors
    ///
    /// [`TopologyError::TooFew`] if there are less than three switches or no hosts, or
    /// [`TopologyError::TooManyHosts`].
    pub fn ring(
        switches: usize,
        hosts: usize,
        link: LinkSpec,
        trunk: LinkSpec,
        switch: SwitchSpec,
    ) -> Result<Topology, TopologyError> {
        at_least("ring", "switches", switches, 3)?;
        at_least("ring", "hosts per switch", hosts, 1)?;
        at_most(switches.saturating_mul(hosts))?;
        let mut t = Topology::new();
        for s in 0..switches {
            t.add_switch(&format!("s{s}"), switch)?;
        }
        for h in 0..switches.saturating_mul(hosts) {
            t.attach(&format!("h{h}"), &format!("s{}", h / hosts), link)?;
        }
        for s in 0..switches {
            let next = (s + 1) % switches;
            t.connect(&format!("s{s}"), &format!("s{next}"), trunk)?;
        }
        Ok(t)
    }

    /// The fat tree of k-port switches (Al-Fares 2008): k pods of k/2 edge and k/2 aggregation
    /// switches, (k/2)^2 core switches, k^3/4 hosts `h0`, `h1`, ... Switches are `edge0`, ..., `agg0`,
    /// ..., `core0`, ..., pod by pod.
    ///
    /// # Errors
    ///
    /// [`TopologyError::Arity`] if `k` is odd or out of range.
    pub fn fat_tree(
        k: usize,
        link: LinkSpec,
        switch: SwitchSpec,
    ) -> Result<Topology, TopologyError> {
        if k < 2 || !k.is_multiple_of(2) || k > 128 {
            return Err(TopologyError::Arity(k));
        }
        let half = k / 2;
        let mut t = Topology::new();
        for core in 0..half * half {
            t.add_switch(&format!("core{core}"), switch)?;
        }
        for n in 0..k * half {
            t.add_switch(&format!("edge{n}"), switch)?;
            t.add_switch(&format!("agg{n}"), switch)?;
        }
        for n in 0..k * half {
            let (edge, first) = (format!("edge{n}"), n - n % half);
            for i in 0..half {
                t.attach(&format!("h{}", n * half + i), &edge, link)?;
            }
            for i in 0..half {
                t.connect(&edge, &format!("agg{}", first + i), link)?;
            }
        }
        for n in 0..k * half {
            for i in 0..half {
                let core = n % half * half + i;
                t.connect(&format!("agg{n}"), &format!("core{core}"), link)?;
            }
        }
        Ok(t)
    }

    /// Adds a host with its link to a switch.
    fn attach(&mut self, host: &str, switch: &str, link: LinkSpec) -> Result<(), TopologyError> {
        self.add_host(host)?;
        self.connect(host, switch, link)?;
        Ok(())
    }
}

fn at_least(
    shape: &'static str,
    what: &'static str,
    value: usize,
    least: usize,
) -> Result<(), TopologyError> {
    if value < least {
        return Err(TopologyError::TooFew {
            shape,
            what,
            value,
            least,
        });
    }
    Ok(())
}

/// Refuses what has too many hosts before any is made.
fn at_most(hosts: usize) -> Result<(), TopologyError> {
    match hosts {
        n if n > Topology::MAX_HOSTS => Err(TopologyError::TooManyHosts(n)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::link::{ChannelId, Direction, Rate};
    use crate::time::Span;

    fn link() -> LinkSpec {
        LinkSpec::new(Rate::from_gbps(100), Span::from_us(1))
    }

    fn fast() -> LinkSpec {
        LinkSpec::new(Rate::from_gbps(400), Span::from_us(2))
    }

    const SWITCH: SwitchSpec = SwitchSpec::tail_drop(100_000);

    fn ports(t: &Topology, name: &str) -> usize {
        (0..t.links().len())
            .map(|l| t.channel_ends(ChannelId::new(l, Direction::Forward)))
            .filter(|&(a, b)| a == name || b == name)
            .count()
    }

    /// The links that are like `fast`.
    fn trunks(t: &Topology) -> Vec<&str> {
        let fast = t.links().iter().filter(|l| l.spec == fast());
        fast.map(|l| l.name.as_str()).collect()
    }

    #[test]
    fn a_fat_tree_has_the_nodes_of_its_k() {
        for k in [2, 4, 8] {
            let t = Topology::fat_tree(k, link(), SWITCH).unwrap();
            assert_eq!(t.hosts().len(), k * k * k / 4);
            assert_eq!(t.switches().len(), k * k + k * k / 4);
            assert_eq!(t.links().len(), 3 * k * k * k / 4);
            for s in t.switches() {
                assert_eq!(ports(&t, &s.name), k, "{}", s.name);
            }
        }
    }

    #[test]
    fn a_dumbbell_has_one_link_in_the_middle() {
        let t = Topology::dumbbell(3, 2, link(), fast(), SWITCH).unwrap();
        let names: Vec<_> = t.hosts().iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["l0", "l1", "l2", "r0", "r1"]);
        assert_eq!((ports(&t, "s0"), ports(&t, "s1")), (4, 3));
        assert_eq!(trunks(&t), ["s0-s1"]);
    }

    #[test]
    fn every_leaf_has_its_hosts_and_a_link_to_every_spine() {
        let t = Topology::leaf_spine(3, 2, 4, link(), fast(), SWITCH).unwrap();
        assert_eq!((t.hosts().len(), t.switches().len()), (12, 5));
        for leaf in ["leaf0", "leaf1", "leaf2"] {
            assert_eq!(ports(&t, leaf), 6);
        }
        assert_eq!((ports(&t, "spine0"), ports(&t, "spine1")), (3, 3));
        assert!(t.channel_between("h11", "leaf2").is_ok());
        assert_eq!(trunks(&t).len(), 6);
        assert_eq!(trunks(&t)[5], "leaf2-spine1");
    }

    #[test]
    fn the_last_switch_of_a_ring_leads_to_the_first() {
        let t = Topology::ring(4, 2, link(), fast(), SWITCH).unwrap();
        assert_eq!(trunks(&t), ["s0-s1", "s1-s2", "s2-s3", "s3-s0"]);
        assert_eq!(t.hosts().len(), 8);
        assert!((0..4).all(|s| ports(&t, &format!("s{s}")) == 4));
        assert!(t.channel_between("h7", "s3").is_ok());
    }

    #[test]
    fn a_shape_that_lacks_something_says_what() {
        for (result, message) in [
            (
                Topology::fat_tree(3, link(), SWITCH),
                "a fat tree of k = 3: k must be even, from 2 to 128",
            ),
            (
                Topology::dumbbell(1, 0, link(), fast(), SWITCH),
                "a dumbbell of 0 hosts on the right: it needs at least 1",
            ),
            (
                Topology::leaf_spine(1, 0, 1, link(), fast(), SWITCH),
                "a leaf-spine of 0 spines: it needs at least 1",
            ),
            (
                Topology::ring(2, 1, link(), fast(), SWITCH),
                "a ring of 2 switches: it needs at least 3",
            ),
        ] {
            assert_eq!(result.unwrap_err().to_string(), message);
        }
        let huge = Topology::leaf_spine(2, 1, usize::MAX, link(), fast(), SWITCH);
        assert_eq!(huge.unwrap_err(), TopologyError::TooManyHosts(usize::MAX));
    }
}
