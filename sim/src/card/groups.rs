//! Which queue pairs hear a multicast group.

use super::qp::attributes::QpType;
use super::{Card, CreateError};
use crate::wire::{Gid, QpNumber};

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
        match self.groups.iter_mut().find(|(g, _)| *g == group) {
            Some((_, members)) if members.contains(&index) => {}
            Some((_, members)) => members.push(index),
            None => self.groups.push((group, vec![index])),
        }
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
        Ok(())
    }
}
