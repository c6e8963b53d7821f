//! Which queue pairs hear a multicast group.

use super::qp::attributes::QpType;
use super::{Card, CreateError, Env};
use crate::time::Time;
use crate::wire::{Gid, Packet, QpNumber};

/// The most multicast groups that queue pairs of a card are attached to.
pub const MAX_GROUPS: u32 = 1 << 13;

impl Card {
    /// Lets a queue pair for datagrams receive what is sent to a multicast group.
    pub fn attach_mcast(&mut self, number: QpNumber, group: Gid) -> Result<(), CreateError> {
        if !group.is_multicast() {
            return Err(CreateError::NotMulticast(group));
        }
        let index = self
            .index_of(number)
            .ok_or(CreateError::UnknownQueuePair(number))? as u32;
        match self.qp(number) {
            Some(qp) if qp.init.qp_type == QpType::Ud => {}
            Some(_) => return Err(CreateError::NotDatagram(number)),
            None => return Err(CreateError::UnknownQueuePair(number)),
        }
        let is_full = self.groups.len() >= MAX_GROUPS as usize;
        match self.groups.iter_mut().find(|(g, _)| *g == group) {
            Some((_, members)) if members.contains(&index) => {}
            Some((_, members)) => members.push(index),
            None if is_full => {
                return Err(CreateError::full("multicast groups", MAX_GROUPS));
            }
            None => self.groups.push((group, vec![index])),
        }
        self.memberships += 1;
        Ok(())
    }

    /// Undoes [`Card::attach_mcast`].
    pub fn detach_mcast(&mut self, number: QpNumber, group: Gid) -> Result<(), CreateError> {
        let error = CreateError::NotAttached { qp: number, group };
        let index = self
            .index_of(number)
            .ok_or(CreateError::UnknownQueuePair(number))? as u32;
        let at = self
            .groups
            .iter()
            .position(|(g, _)| *g == group)
            .ok_or(error)?;
        let members = &mut self.groups[at].1;
        let place = members.iter().position(|&m| m == index).ok_or(error)?;
        members.remove(place);
        if members.is_empty() {
            self.groups.remove(at);
        }
        self.memberships += 1;
        Ok(())
    }

    /// True if some queue pair is attached to the group.
    pub fn hears(&self, group: Gid) -> bool {
        self.groups.iter().any(|(g, _)| *g == group)
    }

    /// The groups that queue pairs are attached to.
    pub fn groups(&self) -> impl Iterator<Item = Gid> {
        self.groups.iter().map(|(group, _)| *group)
    }

    /// Moves with every change of [`Card::groups`].
    #[inline]
    pub fn memberships(&self) -> u64 {
        self.memberships
    }

    /// A datagram that this card sends to a group is for its own members too: it does not come back from the
    /// network.
    #[cold]
    pub(super) fn hear_own<E: Env>(&mut self, now: Time, packet: &Packet, env: &mut E) {
        if let Some(route) = self.routes.get(packet.route)
            && self.hears(route.dst)
        {
            self.receive(now, packet, &route, env);
        }
    }
}
