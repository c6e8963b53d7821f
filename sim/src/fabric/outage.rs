//! Links that go down and come up again, and routes that are other than the shortest.

use super::counters::DropCause;
use super::host::Host;
use super::link::{ChannelId, Direction, End};
use super::medium::Other;
use super::multicast::Tree;
use super::network::Network;
use super::observer::Observer;
use super::pausing::priorities;
use super::routing::shortest_paths;
use super::topology::{HostId, TopologyError};
use crate::card::PriorityMask;
use crate::time::{Span, Time};
use crate::wire::Damage;

/// Where a switch sends the packets to a host, in place of the shortest paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Detour {
    /// To one of these channels, by the hash of the flow. None: the host cannot be reached.
    Ports(Vec<ChannelId>),
    /// To all its ports but the one it came by, as switches do with an address they have not learned.
    Flood,
}

impl<H: Host, O: Observer> Network<H, O> {
    /// Has a link go down or come up at `at`, and routes take note of it `reroute` later. One that went down
    /// several times comes up as the last of them has ended.
    ///
    /// What is on a link that goes down, waits for it or is sent on it until it comes up is lost, and
    /// with it all pauses in both directions.
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownLink`].
    pub fn set_link(
        &mut self,
        link: &str,
        at: Time,
        up: bool,
        reroute: Span,
    ) -> Result<(), TopologyError> {
        let link = self.topology().channel(link, Direction::Forward)?.link() as u32;
        let at = at.max(self.now());
        self.medium.plan(at, Other::Link { link, up, reroute });
        Ok(())
    }

    /// Has a switch send packets to a host another way; `None` for the shortest paths again.
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownNode`] if there is no such switch, [`TopologyError::UnknownLink`] if a
    /// channel does not leave it.
    pub fn set_route(
        &mut self,
        switch: &str,
        host: HostId,
        detour: Option<Detour>,
    ) -> Result<(), TopologyError> {
        let switches = self.topology().switches();
        let index = switches
            .iter()
            .position(|s| s.name == switch)
            .ok_or_else(|| TopologyError::UnknownNode(switch.to_owned()))?;
        if let Some(Detour::Ports(ports)) = &detour {
            for &port in ports {
                let from = self.channels.get(port.index()).map(|c| c.from);
                if from != Some(End::Switch(index as u32)) {
                    let text = format!("channel {} of switch {switch}", port.index());
                    return Err(TopologyError::UnknownLink(text));
                }
            }
        }
        let key = (index as u32, host.0);
        match detour {
            Some(detour) => self.forwarding.set_detour(key.0, key.1, detour),
            None => {
                if self.forwarding.detours.remove(&key).is_some() {
                    self.reroute();
                }
            }
        }
        Ok(())
    }

    /// True if a link is down.
    pub fn is_down(&self, link: usize) -> bool {
        self.channels[link * 2].is_down()
    }

    /// Routes take note of what became of a link; false if they know of something later.
    pub(super) fn learn(&mut self, link: u32, flaps: u32, up: bool) -> bool {
        let known = &mut self.forwarding.known[link as usize];
        let newer = *known < (flaps, up);
        if newer {
            *known = (flaps, up);
            self.reroute();
        }
        newer
    }

    /// Works out the routes over the links that are up as far as they know.
    fn reroute(&mut self) {
        let known = &self.forwarding.known;
        let up = |c: ChannelId| known[c.link()].1;
        let paths = shortest_paths(self.topology(), up);
        let tree = Tree::new(self.topology(), up);
        self.forwarding.rebuild(&paths);
        self.forwarding.tree = tree;
    }

    /// A link goes down or comes up; false if it was down before and is after, or was up.
    pub(super) fn change_link(&mut self, link: u32, up: bool, reroute: Span) -> bool {
        let before = self.channels[link as usize * 2].downs;
        let downs = match up {
            true => before.saturating_sub(1),
            false => before + 1,
        };
        let changed = (before == 0) != (downs == 0);
        for id in [link * 2, link * 2 + 1] {
            let faulty = self.medium.injectors[id as usize].len() > 0;
            let channel = &mut self.channels[id as usize];
            channel.downs = downs;
            if !changed {
                continue;
            }
            channel.faulty = !up || faulty;
            if up {
                continue;
            }
            channel.flaps += 1;
            channel.urgent = false;
            // They are dropped when they would have come in.
            channel.cut = channel.last_arrival();
            let flying: Vec<u32> = channel.flying.iter(&self.medium.packets).collect();
            for slot in flying {
                self.medium.packets.get_mut(slot).damage = Damage::Link;
            }
            while let Some(slot) = self.medium.injectors[id as usize].let_go() {
                self.discard(id, slot, DropCause::LinkDown);
            }
            self.flush(id, PriorityMask::ALL, DropCause::LinkDown);
            if !self.managed.gates.is_empty() {
                let from = &mut self.managed.ingresses[id as usize];
                (from.off, from.refused) = (PriorityMask::NONE, PriorityMask::NONE);
                self.managed.gates[id as usize].forget();
                self.resume(id, PriorityMask::ALL);
            }
        }
        if !changed {
            return false;
        }
        if up && !self.managed.gates.is_empty() {
            for id in [link * 2, link * 2 + 1] {
                match self.channels[id as usize].to {
                    End::Host(host) => self.hold_again(host),
                    End::Switch(switch) => self.stop_again(id, switch),
                }
            }
        }
        let flaps = self.channels[link as usize * 2].flaps;
        if reroute == Span::ZERO {
            self.learn(link, flaps, up);
        } else {
            let news = Other::Reroute { link, flaps, up };
            self.medium.plan(self.medium.clock + reroute, news);
        }
        true
    }

    /// Pauses whoever sends to a switch on a channel that has come up, in the priorities of which too much
    /// waits.
    fn stop_again(&mut self, id: u32, switch: u32) {
        let lossless = self.managed.switches[switch as usize].buffer.lossless();
        for priority in priorities(lossless) {
            let from = &self.managed.ingresses[id as usize];
            let buffer = &self.managed.switches[switch as usize].buffer;
            if !buffer.is_over(from, priority) {
                continue;
            }
            // The first of the queues that it waits in.
            let packets = &self.medium.packets;
            let behind = self.exits[switch as usize].iter().copied().find(|&out| {
                let mut row = self.channels[out as usize]
                    .queue
                    .row(priority)
                    .iter(packets);
                row.any(|slot| packets.ingress(slot) == id)
            });
            self.stop(id, priority, behind);
        }
    }

    /// Drops what waits for a channel in some priorities.
    pub(super) fn flush(&mut self, id: u32, mask: PriorityMask, cause: DropCause) {
        let managed = self.channels[id as usize].managed;
        while let Some(priority) = {
            let waiting = self.channels[id as usize].queue.waiting().and(mask);
            waiting.highest()
        } {
            let channel = &mut self.channels[id as usize];
            let (slot, frame_len) = channel.queue.take_from(&self.medium.packets, priority);
            if managed {
                self.forget(id, slot, priority, frame_len);
            }
            let channel = &mut self.channels[id as usize];
            self.medium.discard(channel, id, slot, cause);
        }
    }
}
