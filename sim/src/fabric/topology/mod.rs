//! What a network is made of: named hosts, switches and links.
//!
//! | file | what |
//! |---|---|
//! | this one | nodes and links, one by one |
//! | `shapes` | networks that have names: fat tree, dumbbell, leaf and spine, ... |
//! | `error` | why a network cannot be built |

mod error;
mod shapes;

pub use error::TopologyError;

use super::link::{ChannelId, Direction, End, LinkSpec};
use super::switch::SwitchSpec;
use crate::wire::{Gid, MacAddr};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The hosts, switches and links of a network, each with a name.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    hosts: Vec<HostNode>,
    switches: Vec<SwitchNode>,
    links: Vec<Link>,
    nodes: BTreeMap<String, End>,
    link_names: BTreeMap<String, usize>,
}

/// A host, by its position among the hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub(super) u32);

impl HostId {
    /// The `n`-th host, from 0.
    pub const fn new(n: usize) -> HostId {
        HostId(n as u32)
    }

    /// Its position among the hosts: 0, 1, 2, ...
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A host: a machine with one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostNode {
    /// Its name.
    pub name: String,
    /// The address of its port.
    pub address: IpAddr,
    /// The Ethernet address of its port.
    pub mac: MacAddr,
    uplink: Option<ChannelId>,
}

impl HostNode {
    /// The address of its port as a GID.
    pub fn gid(&self) -> Gid {
        self.address.into()
    }

    /// The channel it sends on, once it has a link.
    pub fn uplink(&self) -> Option<ChannelId> {
        self.uplink
    }
}

/// A switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchNode {
    /// Its name.
    pub name: String,
    /// What it is like.
    pub spec: SwitchSpec,
}

/// A link between two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its name: those of its ends with a hyphen between them, and `#2`, `#3`, ... if there are
    /// several between the same two.
    pub name: String,
    /// What it is like.
    pub spec: LinkSpec,
    pub(super) ends: [End; 2],
}

/// Which addresses hosts get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AddressFamily {
    /// Host `i` has 10.0.0.0 + i + 1.
    #[default]
    Ipv4,
    /// Host `i` has fd00:: + i + 1.
    Ipv6,
}

impl Topology {
    /// The most hosts a network may have.
    pub const MAX_HOSTS: usize = 1 << 20;

    /// No nodes yet.
    pub fn new() -> Topology {
        Topology::default()
    }

    /// Adds a host with the address of its position; see [`AddressFamily`].
    ///
    /// # Errors
    ///
    /// If the name is empty or taken, or there are too many hosts.
    pub fn add_host(&mut self, name: &str) -> Result<HostId, TopologyError> {
        let n = self.hosts.len();
        if n >= Self::MAX_HOSTS {
            return Err(TopologyError::TooManyHosts(n + 1));
        }
        self.add_node(name, End::Host(n as u32))?;
        let [_, b, c, d] = (n as u32 + 1).to_be_bytes();
        self.hosts.push(HostNode {
            name: name.to_owned(),
            address: AddressFamily::Ipv4.address(n),
            // Locally administered.
            mac: MacAddr([2, 0, 10, b, c, d]),
            uplink: None,
        });
        Ok(HostId(n as u32))
    }

    /// Adds a switch.
    ///
    /// # Errors
    ///
    /// If the name is empty or taken.
    pub fn add_switch(&mut self, name: &str, spec: SwitchSpec) -> Result<(), TopologyError> {
        self.add_node(name, End::Switch(self.switches.len() as u32))?;
        self.switches.push(SwitchNode {
            name: name.to_owned(),
            spec,
        });
        Ok(())
    }

    fn add_node(&mut self, name: &str, node: End) -> Result<(), TopologyError> {
        if name.is_empty() {
            return Err(TopologyError::EmptyName);
        }
        if self.nodes.contains_key(name) {
            return Err(TopologyError::DuplicateName(name.to_owned()));
        }
        self.nodes.insert(name.to_owned(), node);
        Ok(())
    }

    /// Joins two nodes by a link and gives its position; forward is from `a` to `b`.
    ///
    /// # Errors
    ///
    /// If a node is unknown, both are the same, or a host has a link already.
    pub fn connect(&mut self, a: &str, b: &str, spec: LinkSpec) -> Result<usize, TopologyError> {
        let ends = [self.node(a)?, self.node(b)?];
        if a == b {
            return Err(TopologyError::Loop(a.to_owned()));
        }
        let mut name = format!("{a}-{b}");
        let mut copy = 1;
        while self.link_names.contains_key(&name) {
            copy += 1;
            name = format!("{a}-{b}#{copy}");
        }
        let index = self.links.len();
        for end in ends {
            if let End::Host(h) = end {
                let host = &self.hosts[h as usize];
                if let Some(first) = host.uplink {
                    return Err(TopologyError::SecondLink {
                        host: host.name.clone(),
                        first: self.links[first.link()].name.clone(),
                        second: name,
                    });
                }
            }
        }
        for (end, direction) in ends
            .into_iter()
            .zip([Direction::Forward, Direction::Backward])
        {
            if let End::Host(h) = end {
                self.hosts[h as usize].uplink = Some(ChannelId::new(index, direction));
            }
        }
        self.link_names.insert(name.clone(), index);
        self.links.push(Link { name, spec, ends });
        Ok(index)
    }

    /// Gives all hosts the addresses of `family`.
    #[must_use]
    pub fn with_addresses(mut self, family: AddressFamily) -> Topology {
        for (n, host) in self.hosts.iter_mut().enumerate() {
            host.address = family.address(n);
        }
        self
    }

    /// Gives a host another address.
    ///
    /// # Errors
    ///
    /// If the host is unknown or another host has the address.
    pub fn set_address(&mut self, host: &str, address: IpAddr) -> Result<(), TopologyError> {
        let id = self.host(host)?;
        let taken = self.hosts.iter().find(|h| h.address == address);
        if let Some(other) = taken.filter(|h| h.name != host) {
            return Err(TopologyError::DuplicateAddress {
                address,
                first: other.name.clone(),
                second: host.to_owned(),
            });
        }
        self.hosts[id.index()].address = address;
        Ok(())
    }

    /// All hosts, in the order they were added.
    pub fn hosts(&self) -> &[HostNode] {
        &self.hosts
    }

    /// All switches, in the order they were added.
    pub fn switches(&self) -> &[SwitchNode] {
        &self.switches
    }

    /// The switch called `name`, to change what it is like.
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownNode`] if there is none, or it is a host.
    pub fn switch_mut(&mut self, name: &str) -> Result<&mut SwitchSpec, TopologyError> {
        match self.node(name)? {
            End::Switch(s) => Ok(&mut self.switches[s as usize].spec),
            End::Host(_) => Err(TopologyError::UnknownNode(name.to_owned())),
        }
    }

    /// All links, in the order they were made.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The link called `name`, to change what it is like.
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownLink`].
    pub fn link_mut(&mut self, name: &str) -> Result<&mut LinkSpec, TopologyError> {
        match self.link_names.get(name) {
            Some(&i) => Ok(&mut self.links[i].spec),
            None => Err(TopologyError::UnknownLink(name.to_owned())),
        }
    }

    /// The host called `name`.
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownNode`] if there is none, or it is a switch.
    pub fn host(&self, name: &str) -> Result<HostId, TopologyError> {
        match self.node(name)? {
            End::Host(h) => Ok(HostId(h)),
            End::Switch(_) => Err(TopologyError::UnknownNode(name.to_owned())),
        }
    }

    /// One direction of the link called `name`.
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownLink`].
    pub fn channel(&self, link: &str, direction: Direction) -> Result<ChannelId, TopologyError> {
        match self.link_names.get(link) {
            Some(&i) => Ok(ChannelId::new(i, direction)),
            None => Err(TopologyError::UnknownLink(link.to_owned())),
        }
    }

    /// The channel from one node to its neighbour, the first one if there are several.
    ///
    /// # Errors
    ///
    /// If a node is unknown or no link joins the two.
    pub fn channel_between(&self, from: &str, to: &str) -> Result<ChannelId, TopologyError> {
        let (a, b) = (self.node(from)?, self.node(to)?);
        self.links
            .iter()
            .enumerate()
            .find_map(|(i, link)| match link.ends {
                [x, y] if x == a && y == b => Some(ChannelId::new(i, Direction::Forward)),
                [x, y] if x == b && y == a => Some(ChannelId::new(i, Direction::Backward)),
                _ => None,
            })
            .ok_or_else(|| TopologyError::UnknownLink(format!("{from}-{to}")))
    }

    /// The name of a channel's link, and which way along it the channel goes.
    pub fn channel_name(&self, channel: ChannelId) -> (&str, Direction) {
        (&self.links[channel.link()].name, channel.direction())
    }

    /// The names of the nodes that a channel leads from and to.
    pub fn channel_ends(&self, channel: ChannelId) -> (&str, &str) {
        let (from, to) = self.ends(channel);
        (self.node_name(from), self.node_name(to))
    }

    pub(super) fn ends(&self, channel: ChannelId) -> (End, End) {
        let [a, b] = self.links[channel.link()].ends;
        match channel.direction() {
            Direction::Forward => (a, b),
            Direction::Backward => (b, a),
        }
    }

    fn node(&self, name: &str) -> Result<End, TopologyError> {
        match self.nodes.get(name) {
            Some(&node) => Ok(node),
            None => Err(TopologyError::UnknownNode(name.to_owned())),
        }
    }

    fn node_name(&self, node: End) -> &str {
        match node {
            End::Host(h) => &self.hosts[h as usize].name,
            End::Switch(s) => &self.switches[s as usize].name,
        }
    }
}

impl AddressFamily {
    fn address(self, host: usize) -> IpAddr {
        let n = host as u32 + 1;
        match self {
            AddressFamily::Ipv4 => Ipv4Addr::from(10 << 24 | n).into(),
            AddressFamily::Ipv6 => Ipv6Addr::from(0xfd00 << 112 | u128::from(n)).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::link::Rate;
    use crate::time::Span;

    fn link() -> LinkSpec {
        LinkSpec::new(Rate::from_gbps(100), Span::from_us(1))
    }

    #[test]
    fn hosts_have_addresses_of_their_own() {
        let t = Topology::star(300, link(), SwitchSpec::default()).unwrap();
        assert_eq!(t.hosts()[0].address.to_string(), "10.0.0.1");
        assert_eq!(t.hosts()[299].address.to_string(), "10.0.1.44");
        assert_eq!(t.hosts()[299].mac.to_string(), "02:00:0a:00:01:2c");
        let t = t.with_addresses(AddressFamily::Ipv6);
        assert_eq!(t.hosts()[299].address.to_string(), "fd00::12c");
    }

    #[test]
    fn mistakes_are_named() {
        let mut t = Topology::back_to_back(link());
        t.add_switch("s", SwitchSpec::default()).unwrap();
        for (result, message) in [
            (
                t.connect("h0", "nobody", link()),
                "no node is called `nobody`",
            ),
            (t.connect("s", "s", link()), "a link joins `s` to itself"),
            (
                t.connect("h1", "s", link()),
                "host `h1` has one port, and link `h0-h1` is on it: it cannot take `h1-s`",
            ),
            (t.add_host("s").map(|_| 0), "two nodes are called `s`"),
            (t.host("s").map(|_| 0), "no node is called `s`"),
            (
                t.set_address("h1", "10.0.0.1".parse().unwrap()).map(|()| 0),
                "hosts `h0` and `h1` both have address 10.0.0.1",
            ),
        ] {
            assert_eq!(result.unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn channels_are_found_by_link_or_by_ends() {
        let mut t = Topology::back_to_back(link());
        t.add_switch("a", SwitchSpec::default()).unwrap();
        t.add_switch("b", SwitchSpec::default()).unwrap();
        t.connect("a", "b", link()).unwrap();
        t.connect("a", "b", link()).unwrap();
        let back = t.channel("h0-h1", Direction::Backward).unwrap();
        assert_eq!(t.channel_between("h1", "h0").unwrap(), back);
        assert_eq!(t.channel_ends(back), ("h1", "h0"));
        let second = t.channel("a-b#2", Direction::Forward).unwrap();
        assert_eq!(t.channel_name(second), ("a-b#2", Direction::Forward));
    }
}
