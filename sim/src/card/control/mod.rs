//! Making and changing what a card has: completion queues, queue pairs, regions.

mod queues;
#[cfg(test)]
mod tests;

use super::program::{CHUNK, QueuePair, SharedState, work_queue};
use super::qp::attributes::{AddressVector, ModifyError, QpAttributes, QpInit, QpType};
use super::qp::{Path, Qp, State};
use super::queue::ring;
use super::work::{AddressHandle, CqId, MAX_INLINE, SrqId};
use super::{AsyncEvent, Card};
use crate::memory::{
    Access, Binding, LocalKey, MemoryRegion, Pd, RegisterError, Reregistration, Storage,
    WindowError, WindowType,
};
use crate::places::MAX_PLACES;
use crate::time::Time;
use crate::wire::mad::GSI_QKEY;
use crate::wire::{Gid, MacAddr, QpNumber, RemoteKey, Route, source_port};

/// The most entries of a completion queue (ConnectX: 4,194,303).
pub const MAX_CQE: u32 = (1 << 22) - 1;
/// The most requests of a work queue (ConnectX: 32,768).
pub const MAX_WR: u32 = 1 << 15;
/// The most elements of a request (rdma_rxe: 32).
pub const MAX_SGE: u32 = 32;
/// The most queue pairs of a card (ConnectX: 262,144).
pub const MAX_QP: u32 = 1 << 18;

/// Why something could not be made or destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreateError {
    /// A size is zero or above its limit.
    #[error("{what} is {value}; it must be from {least} to {limit}")]
    OutOfRange {
        /// The size.
        what: &'static str,
        /// Value given.
        value: u32,
        /// Smallest value.
        least: u32,
        /// Largest value.
        limit: u32,
    },
    /// The completion queue is not one of this card.
    #[error("completion queue {0:?} does not exist on this card")]
    UnknownCq(CqId),
    /// The protection domain is not one of this card.
    #[error("protection domain {0:?} does not exist on this card")]
    UnknownPd(Pd),
    /// Queue pair 1 is there already.
    #[error("queue pair 1 exists already")]
    GsiExists,
    /// The completion queue serves queue pairs of the other kind.
    #[error("completion queue {0:?} cannot serve queue pair 1 and ordinary queue pairs")]
    MixedCq(CqId),
    /// There are as many as there can be.
    #[error("{limit} {what} exist, the most there can be")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many.
        limit: u32,
    },
    /// The queue pair does not exist.
    #[error("queue pair {0} does not exist on this card")]
    UnknownQueuePair(QpNumber),
    /// The shared receive queue is not one of this card, or of another protection domain.
    #[error("shared receive queue {0:?} does not exist in this protection domain")]
    UnknownSrq(SrqId),
    /// The address handle is not one of this card.
    #[error("address handle {0:?} does not exist on this card")]
    UnknownAddress(AddressHandle),
    /// Someone still uses it.
    #[error("{what} is still used by {users} queue pairs")]
    InUse {
        /// What was to be destroyed.
        what: &'static str,
        /// How many use it.
        users: u32,
    },
    /// The queue pair is attached to a multicast group.
    #[error("queue pair {qp} is attached to {group}")]
    Attached {
        /// The queue pair.
        qp: QpNumber,
        /// The group.
        group: Gid,
    },
    /// The address is no multicast group.
    #[error("{0} is not a multicast address")]
    NotMulticast(Gid),
    /// Only queue pairs for datagrams are attached to groups.
    #[error("queue pair {0} is not for datagrams")]
    NotDatagram(QpNumber),
    /// The queue pair is not attached to the group.
    #[error("queue pair {qp} is not attached to {group}")]
    NotAttached {
        /// The queue pair.
        qp: QpNumber,
        /// The group.
        group: Gid,
    },
}

impl CreateError {
    pub(super) fn full(what: &'static str, limit: u32) -> CreateError {
        CreateError::Full { what, limit }
    }
}

fn within(what: &'static str, value: u32, least: u32, limit: u32) -> Result<(), CreateError> {
    if (least..=limit).contains(&value) {
        Ok(())
    } else {
        Err(CreateError::OutOfRange {
            what,
            value,
            least,
            limit,
        })
    }
}

impl Card {
    /// A new protection domain.
    pub fn alloc_pd(&mut self) -> Pd {
        self.desk.memory.alloc_pd()
    }

    /// Registers memory at an address of the card's choosing.
    pub fn register(
        &mut self,
        pd: Pd,
        storage: impl Into<Storage>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.desk.memory.register(pd, storage.into(), access)
    }

    /// Ends a registration.
    pub fn deregister(&mut self, lkey: LocalKey) -> Result<(), RegisterError> {
        self.desk.memory.deregister(lkey)
    }

    /// Changes a registration (`ibv_rereg_mr`).
    pub fn reregister(
        &mut self,
        lkey: LocalKey,
        change: Reregistration,
    ) -> Result<MemoryRegion, RegisterError> {
        self.desk.memory.reregister(lkey, change)
    }

    /// A memory window that is not bound.
    pub fn alloc_mw(&mut self, pd: Pd, kind: WindowType) -> Result<RemoteKey, WindowError> {
        self.desk.memory.alloc_window(pd, kind)
    }

    /// Ends a memory window.
    pub fn dealloc_mw(&mut self, rkey: RemoteKey) -> Result<(), WindowError> {
        self.desk.memory.dealloc_window(rkey)
    }

    /// Binds a window of type 1 at once (`ibv_bind_mw`), and gives its new key. Windows of type 2 are bound
    /// by [`Work::BindWindow`](super::Work::BindWindow).
    pub fn bind_mw(
        &mut self,
        number: QpNumber,
        rkey: RemoteKey,
        binding: Binding,
    ) -> Result<RemoteKey, WindowError> {
        let pd = self.qp(number).map(|qp| qp.init.pd);
        let pd = pd.ok_or(WindowError::WrongDomain(rkey.0))?;
        self.desk.memory.bind_type1(rkey, binding, pd, number)
    }

    /// An address handle for datagrams.
    pub fn create_ah(
        &mut self,
        pd: Pd,
        address: &AddressVector,
    ) -> Result<AddressHandle, ModifyError> {
        address.check()?;
        let none = QpNumber::default();
        let path = Self::path(&self.desk.config, &self.routes, none, none, address)?;
        let place = self.desk.addresses.insert((pd, path));
        place
            .map(AddressHandle::new)
            .ok_or(ModifyError::NoAddressHandle { limit: MAX_PLACES })
    }

    /// Destroys an address handle. Datagrams posted with it that are not on their way fail.
    pub fn destroy_ah(&mut self, handle: AddressHandle) -> Result<(), CreateError> {
        let known = self.desk.addresses.remove(handle.place);
        known.map(drop).ok_or(CreateError::UnknownAddress(handle))
    }

    /// A queue pair in RESET (C10-20).
    pub fn create_qp(&mut self, init: &QpInit) -> Result<QueuePair, CreateError> {
        self.check_qp(init, false)?;
        let index = if self.qps.len() <= MAX_QP as usize {
            self.qps.push(None);
            self.qps.len() - 1
        } else {
            let freed = self.freed.pop_front();
            freed.ok_or(CreateError::full("queue pairs", MAX_QP))? as usize
        };
        // Place 0 is that of queue pair 1.
        let number = QpNumber::new(self.first_qp + index as u32 - 1);
        Ok(self.put_qp(index, number, init))
    }

    /// Queue pair 1, in RESET: that of the general services, for datagrams (11.2.5). There is one, and its Q_Key is
    /// [`GSI_QKEY`] (C9-49). Its completion queues serve no other queue pair (C11-15).
    pub fn create_gsi_qp(&mut self, init: &QpInit) -> Result<QueuePair, CreateError> {
        if init.qp_type != QpType::Ud {
            return Err(CreateError::NotDatagram(QpNumber::GSI));
        }
        self.check_qp(init, true)?;
        if self.qps[0].is_some() {
            return Err(CreateError::GsiExists);
        }
        Ok(self.put_qp(0, QpNumber::GSI, init))
    }

    fn check_qp(&mut self, init: &QpInit, special: bool) -> Result<(), CreateError> {
        within("max_send_wr", init.max_send_wr, 1, MAX_WR)?;
        within("max_send_sge", init.max_send_sge, 1, MAX_SGE)?;
        within("max_inline", init.max_inline, 0, MAX_INLINE as u32)?;
        if init.srq.is_none() {
            within("max_recv_wr", init.max_recv_wr, 1, MAX_WR)?;
            within("max_recv_sge", init.max_recv_sge, 1, MAX_SGE)?;
        }
        if !self.desk.memory.has_pd(init.pd) {
            return Err(CreateError::UnknownPd(init.pd));
        }
        for cq in [init.send_cq, init.recv_cq] {
            let queue = self.cq(cq)?;
            if queue.users > 0 && queue.special != special {
                return Err(CreateError::MixedCq(cq));
            }
        }
        match init.srq {
            None => Ok(()),
            Some(srq) => match self.desk.srqs.get(srq.0) {
                Some(queue) if queue.pd == init.pd => Ok(()),
                _ => Err(CreateError::UnknownSrq(srq)),
            },
        }
    }

    /// Puts a queue pair that can be made into its place.
    fn put_qp(&mut self, index: usize, number: QpNumber, init: &QpInit) -> QueuePair {
        let (recv_writer, recv) = match init.srq {
            None => {
                let (writer, reader) = work_queue(init.max_recv_wr, init.max_recv_sge);
                (Some(writer), Some(reader))
            }
            Some(_) => (None, None),
        };
        let (send_writer, send) = work_queue(init.max_send_wr, init.max_send_sge);
        let (chunk_writer, chunks) =
            ring(init.max_send_wr * init.max_inline.div_ceil(CHUNK as u32));
        let state = SharedState::new(State::Reset);
        let mut qp = Box::new(Qp::new(number, *init, state.clone(), send, chunks, recv));
        qp.limiter = self.desk.config.limiter();
        self.qps[index] = Some(qp);
        for cq in [init.send_cq, init.recv_cq] {
            if let Ok(queue) = self.cq(cq) {
                queue.users += 1;
                queue.special = number == QpNumber::GSI;
            }
        }
        if let Some(Ok(queue)) = init.srq.map(|srq| self.srq(srq)) {
            queue.users += 1;
        }
        QueuePair {
            number,
            qp_type: init.qp_type,
            state,
            send: send_writer,
            chunks: chunk_writer,
            max_inline: init.max_inline,
            recv: recv_writer,
        }
    }

    /// Destroys a queue pair. What is queued vanishes; packets for it are dropped from here on. Its number
    /// is given out again only after all others. One that is attached to a multicast group is not destroyed (o10-2.2.3).
    pub fn destroy_qp(&mut self, number: QpNumber) -> Result<(), CreateError> {
        let index = self
            .index_of(number)
            .ok_or(CreateError::UnknownQueuePair(number))?;
        let attached = self
            .groups
            .iter()
            .find(|(_, members)| members.contains(&(index as u32)));
        if let Some(&(group, _)) = attached {
            return Err(CreateError::Attached { qp: number, group });
        }
        self.unlist(index);
        let Some(qp) = self.qps[index].take() else {
            return Err(CreateError::UnknownQueuePair(number));
        };
        // Nobody would complete what is posted from here on.
        qp.forbid_posting();
        self.counters += &qp.counters;
        if number != QpNumber::GSI {
            self.freed.push_back(index as u32);
        }
        for cq in [qp.init.send_cq, qp.init.recv_cq] {
            if let Ok(queue) = self.cq(cq) {
                queue.users -= 1;
            }
        }
        if let Some(Ok(queue)) = qp.init.srq.map(|srq| self.srq(srq)) {
            queue.users -= 1;
        }
        Ok(())
    }

    pub(super) fn qp(&self, number: QpNumber) -> Option<&Qp> {
        self.qps[self.index_of(number)?].as_deref()
    }

    /// Changes attributes and state (`ibv_modify_qp`). Nothing is changed on an error.
    pub fn modify_qp(
        &mut self,
        now: Time,
        number: QpNumber,
        attributes: &QpAttributes,
    ) -> Result<(), ModifyError> {
        let index = self
            .index_of(number)
            .ok_or(ModifyError::UnknownQueuePair(number))?;
        let Some(qp) = self.qps[index].as_deref_mut() else {
            return Err(ModifyError::UnknownQueuePair(number));
        };
        let from = qp.state;
        let to = attributes.check(qp.init.qp_type, from)?;
        if let Some(qkey) = attributes.qkey
            && number == QpNumber::GSI
            && qkey != GSI_QKEY
        {
            return Err(ModifyError::GsiQkey(qkey));
        }
        if let Some(m) = attributes.path_mtu
            && m > self.desk.config.port_mtu
        {
            return Err(ModifyError::OutOfRange {
                attribute: "path_mtu",
                value: m.bytes().into(),
                limit: self.desk.config.port_mtu.bytes().into(),
            });
        }
        let path = match attributes.address {
            Some(address) => {
                let dest = attributes.dest_qp.unwrap_or(qp.dest_qp);
                Some(Self::path(
                    &self.desk.config,
                    &self.routes,
                    number,
                    dest,
                    &address,
                )?)
            }
            None => None,
        };

        if let Some(path) = path {
            qp.path = Some(path);
            qp.notices.forget_way();
        }
        if let Some(a) = attributes.access {
            qp.access = a;
        }
        if let Some(m) = attributes.path_mtu {
            qp.mtu = m;
        }
        if let Some(d) = attributes.dest_qp {
            qp.dest_qp = d;
        }
        if let Some(k) = attributes.qkey {
            qp.qkey = k;
        }
        qp.requester.set_attributes(attributes);
        if attributes.timeout.is_some() {
            qp.requester.restart_timer(now);
        }
        qp.responder.set_attributes(attributes);

        match to {
            State::Reset => {
                qp.reset(now);
                qp.limiter = self.desk.config.limiter();
            }
            State::Error => qp.put_into_error(now, &mut self.desk),
            _ => qp.set_state(now, to),
        }
        if to == State::Sqd {
            // Later changes of attributes leave an event that is due as it is.
            let due = from == State::Sqd && qp.requester.drain_event;
            qp.requester.drain_event = attributes.sqd_event.unwrap_or(due);
            qp.check_drained(&mut self.desk);
        }
        if attributes.address.is_some() {
            // What waits may be of another priority now, and that of the old one paused.
            self.unlist(index);
        }
        self.after(index);
        Ok(())
    }

    /// The device is broken: every queue pair goes into error, and what is outstanding completes as flushed.
    pub fn fail(&mut self, now: Time) {
        self.desk.events.push_back(AsyncEvent::DeviceFatal);
        for index in 0..self.qps.len() {
            if let Some(qp) = self.qps[index].as_deref_mut()
                && !matches!(qp.state, State::Reset | State::Error)
            {
                qp.put_into_error(now, &mut self.desk);
                self.after(index);
            }
        }
    }

    /// The number that the first queue pair ever made has; later ones follow, [`MAX_QP`] at most.
    pub fn first_qp(&self) -> QpNumber {
        QpNumber::new(self.first_qp)
    }

    fn path(
        config: &super::CardConfig,
        routes: &crate::wire::RouteTable,
        number: QpNumber,
        dest: QpNumber,
        address: &AddressVector,
    ) -> Result<Path, ModifyError> {
        if address.dgid.ipv4().is_some() != config.gid.ipv4().is_some() {
            return Err(ModifyError::Unreachable(address.dgid));
        }
        let route = Route {
            encapsulation: config.encapsulation,
            src_mac: config.mac,
            dst_mac: match address.dmac == MacAddr::default() && address.dgid.is_multicast() {
                true => MacAddr::of_group(address.dgid.ip()),
                false => address.dmac,
            },
            src: config.gid,
            dst: address.dgid,
            udp_src: address.udp_src.unwrap_or_else(|| source_port(number, dest)),
            vlan: address.vlan,
            dscp: address.traffic_class >> 2,
            hop_limit: address.hop_limit,
            flow_label: address.flow_label,
        };
        Ok(Path {
            route: routes.intern(route),
            overhead: route.overhead(),
            own: config.gid,
            peer: address.dgid,
            hop_limit: address.hop_limit,
            mig_req: config.profile.mig_req,
            priority: address.sl,
            response_priority: config.ack_priority.map_or(address.sl, |p| p.min(7)),
        })
    }
}
