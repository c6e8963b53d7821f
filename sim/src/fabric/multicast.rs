//! Datagrams to groups: which switches copy them, and where to.
//!
//! Switches have one tree in common, of shortest paths from the first switch, the root; of several on a way,
//! the one with the lowest number is in it. A packet to a group leaves a switch once by each branch of the tree that
//! has a member beyond it, other than the one it came by, so each member gets it once, whatever circles the
//! network has. Members are the hosts that hear the group when the packet passes: a switch knows them as one
//! that snoops IGMP does, only that reports take no time and no room on links.

use super::counters::DropCause;
use super::host::Host;
use super::link::{ChannelId, Direction, End};
use super::network::Network;
use super::observer::Observer;
use super::packets::NONE;
use super::topology::Topology;
use crate::wire::Gid;
use std::collections::VecDeque;

/// The tree that packets to groups are copied along; one for each part of a network that falls apart.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// By switch: the channel towards the root; none at a root.
    up: Vec<u32>,
    /// By switch: its root.
    root: Vec<u32>,
    /// By host: the channel that leads to it from a switch; none if there is no such.
    last: Vec<u32>,
    /// By host: the switch at the other end of that.
    leaf: Vec<u32>,
}

impl Tree {
    /// The tree over the links that are `up`.
    pub(super) fn new(topology: &Topology, up: impl Fn(ChannelId) -> bool) -> Tree {
        let switches = topology.switches().len();
        let mut beside = vec![Vec::new(); switches];
        for link in 0..topology.links().len() {
            for direction in [Direction::Forward, Direction::Backward] {
                let channel = ChannelId::new(link, direction);
                if let (End::Switch(from), End::Switch(to)) = topology.ends(channel)
                    && up(channel)
                {
                    beside[from as usize].push((to, channel));
                }
            }
        }
        let mut tree = Tree {
            up: vec![NONE; switches],
            root: vec![NONE; switches],
            last: Vec::new(),
            leaf: Vec::new(),
        };
        for root in 0..switches as u32 {
            if tree.root[root as usize] != NONE {
                continue;
            }
            tree.root[root as usize] = root;
            let mut queue = VecDeque::from([root]);
            while let Some(at) = queue.pop_front() {
                for &(to, channel) in &beside[at as usize] {
                    if tree.root[to as usize] == NONE {
                        tree.root[to as usize] = root;
                        tree.up[to as usize] = channel.reverse().0;
                        queue.push_back(to);
                    }
                }
            }
        }
        for host in topology.hosts() {
            let down = host.uplink().map(ChannelId::reverse).filter(|&c| up(c));
            let (last, leaf) = match down.map(|c| (c, topology.ends(c).0)) {
                Some((channel, End::Switch(leaf))) => (channel.0, leaf),
                _ => (NONE, NONE),
            };
            tree.last.push(last);
            tree.leaf.push(leaf);
        }
        tree
    }

    /// The channel by which packets to a host leave `switch`; `None` if it cannot be reached.
    fn branch(&self, switch: u32, host: usize, to: impl Fn(u32) -> u32) -> Option<u32> {
        let (mut channel, mut at) = (self.last[host], self.leaf[host]);
        if channel == NONE {
            return None;
        }
        while at != switch {
            let up = self.up[at as usize];
            if up == NONE {
                // Not below this switch: up, if there is a way.
                let mine = self.root[switch as usize] == at;
                return Some(self.up[switch as usize]).filter(|&up| mine && up != NONE);
            }
            (channel, at) = (up ^ 1, to(up));
        }
        Some(channel)
    }
}

impl<H: Host, O: Observer> Network<H, O> {
    /// The switch at the end of a channel of the tree.
    fn switch_at(&self, channel: u32) -> u32 {
        match self.channels[channel as usize].to {
            End::Switch(switch) => switch,
            End::Host(_) => NONE,
        }
    }

    /// True if packets to groups come in at a switch by this channel: from hosts, and along the tree.
    fn is_of_tree(&self, ingress: u32, switch: u32) -> bool {
        match self.channels[ingress as usize].from {
            End::Host(_) => true,
            End::Switch(from) => {
                let up = &self.forwarding.tree.up;
                up[switch as usize] == ingress ^ 1 || up[from as usize] == ingress
            }
        }
    }

    /// Sends a packet to a group out of a switch, a copy to each branch with members.
    pub(super) fn copy_to_members(&mut self, ingress: u32, switch: u32, slot: u32, group: Gid) {
        let mut outs = std::mem::take(&mut self.outs);
        outs.clear();
        if self.is_of_tree(ingress, switch) {
            for (h, station) in self.hosts.iter().enumerate() {
                if !station.host.hears(group) {
                    continue;
                }
                let out = self
                    .forwarding
                    .tree
                    .branch(switch, h, |c| self.switch_at(c));
                outs.extend(out.filter(|&out| out != ingress ^ 1));
            }
        }
        outs.sort_unstable();
        outs.dedup();
        match outs.split_last() {
            None => self.discard(ingress, slot, DropCause::NoRoute),
            Some((&last, others)) => {
                for &out in others {
                    self.copy_out(ingress, switch, out, slot);
                }
                self.leave(ingress, switch, last, slot);
            }
        }
        self.outs = outs;
    }
}
