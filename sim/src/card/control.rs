//! Making and changing what a card has: completion queues, queue pairs, regions.

use super::qp::attributes::{AddressVector, ModifyError, QpAttributes, QpInit};
use super::qp::{Path, Qp, State};
use super::queue::ring;
use super::work::{CompletionQueue, CqId, QueuePair, SharedState, work_queue};
use super::{Card, Cq};
use crate::memory::{Access, LocalKey, MemoryRegion, Pd, RegisterError, Storage};
use crate::time::Time;
use crate::wire::{QpNumber, Route};

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
    /// No queue pair is left.
    #[error("{MAX_QP} queue pairs exist, the most there can be")]
    Full,
    /// The queue pair does not exist.
    #[error("queue pair {0} does not exist on this card")]
    UnknownQueuePair(QpNumber),
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

    /// A completion queue for `entries` completions.
    pub fn create_cq(&mut self, entries: u32) -> Result<CompletionQueue, CreateError> {
        within("cqe", entries, 1, MAX_CQE)?;
        let (writer, reader) = ring(entries);
        let id = CqId(self.desk.cqs.len() as u32);
        self.desk.cqs.push(Cq {
            ring: writer,
            overrun: false,
            users: 0,
        });
        Ok(CompletionQueue { id, ring: reader })
    }

    /// A queue pair in RESET (C10-20).
    pub fn create_qp(&mut self, init: &QpInit) -> Result<QueuePair, CreateError> {
        within("max_send_wr", init.max_send_wr, 1, MAX_WR)?;
        within("max_recv_wr", init.max_recv_wr, 1, MAX_WR)?;
        within("max_send_sge", init.max_send_sge, 1, MAX_SGE)?;
        within("max_recv_sge", init.max_recv_sge, 1, MAX_SGE)?;
        if !self.desk.memory.has_pd(init.pd) {
            return Err(CreateError::UnknownPd(init.pd));
        }
        for cq in [init.send_cq, init.recv_cq] {
            if cq.0 as usize >= self.desk.cqs.len() {
                return Err(CreateError::UnknownCq(cq));
            }
        }
        if self.qps.len() == MAX_QP as usize {
            return Err(CreateError::Full);
        }
        let number = QpNumber::new(self.first_qp + self.qps.len() as u32);
        let (send_writer, send) = work_queue(init.max_send_wr, init.max_send_sge);
        let (recv_writer, recv) = work_queue(init.max_recv_wr, init.max_recv_sge);
        let state = SharedState::new(State::Reset);
        self.qps.push(Some(Box::new(Qp::new(
            number,
            *init,
            state.clone(),
            send,
            recv,
        ))));
        for cq in [init.send_cq, init.recv_cq] {
            self.desk.cqs[cq.0 as usize].users += 1;
        }
        Ok(QueuePair {
            number,
            state,
            send: send_writer,
            recv: recv_writer,
        })
    }

    /// Destroys a queue pair. What is queued vanishes; packets for it are dropped from here on. Its number
    /// is not given out again.
    pub fn destroy_qp(&mut self, number: QpNumber) -> Result<(), CreateError> {
        let index = self
            .index_of(number)
            .ok_or(CreateError::UnknownQueuePair(number))?;
        let Some(qp) = self.qps[index].take() else {
            return Err(CreateError::UnknownQueuePair(number));
        };
        // Nobody would complete what is posted from here on.
        qp.forbid_posting();
        for cq in [qp.init.send_cq, qp.init.recv_cq] {
            self.desk.cqs[cq.0 as usize].users -= 1;
        }
        Ok(())
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
        let to = attributes.check(from)?;
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
        qp.requester.set_attributes(attributes);
        qp.responder.set_attributes(attributes);

        match to {
            State::Reset => qp.reset(now),
            State::Error => qp.enter_error(now, &mut self.desk),
            _ => qp.set_state(now, to),
        }
        if to == State::Sqd {
            // Later changes of attributes leave an event that is due as it is.
            let due = from == State::Sqd && qp.requester.drain_event;
            qp.requester.drain_event = attributes.sqd_event.unwrap_or(due);
            qp.check_drained(&mut self.desk);
        }
        self.after(index);
        Ok(())
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
        // Constant per connection, different between connections (A17.3.2.1): the dynamic range, chosen
        // by a fold of the two numbers as Linux does.
        let fold = u64::from(number.get()) * u64::from(dest.get());
        let fold = fold ^ fold >> 20 ^ fold >> 40;
        let route = Route {
            encapsulation: config.encapsulation,
            src_mac: config.mac,
            dst_mac: address.dmac,
            src: config.gid,
            dst: address.dgid,
            udp_src: address.udp_src.unwrap_or(0xc000 | (fold & 0x3fff) as u16),
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
            priority: address.sl,
            response_priority: config.ack_priority.unwrap_or(address.sl),
        })
    }
}
