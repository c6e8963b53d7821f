//! A software card as a device, in virtual and in real time: what both share. How one gets at the card is
//! its [`Seat`].

mod cm;
mod queues;

use super::{Exchange, Handle, Join, Provider, QpSpec};
use crate::attributes::{
    AtomicCap, DeviceAttributes, GidEntry, GidType, LinkLayer, PortAttributes, PortState,
};
use crate::error::{Error, Result};
use crate::event::{AsyncEvent, CqId, SrqId};
use crate::exchange::Role;
use crate::{
    Access, AddressId, AddressVector, Binding, Buffer, Gid, LocalKey, Mtu, PostError, QpAttributes,
    QpNumber, RecvRequest, RemoteKey, State, WindowType,
};
use softroce_sim::card::{self, Card};
use softroce_sim::memory::{MemoryRegion, Pd};
use softroce_sim::places::MAX_PLACES;
use softroce_sim::time::Time;
use softroce_sim::wire::{Encapsulation, MacAddr};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The place at a card from which programs use it.
pub(super) trait Seat: Send + Sync + 'static {
    /// Calls `act` with the card and the time, once; what it made the card want to send is seen to.
    fn with(&self, act: &mut dyn FnMut(&mut Card, Time)) -> Result<()>;

    /// Work was posted to a queue pair.
    fn doorbell(&self, qp: QpNumber);

    /// A program has found nothing to take: the card has a turn.
    fn turn(&self) -> Result<()>;

    /// A program has found nothing to take, and would only look again for as long as `limit`: for completions, or into
    /// `memory` as well. Where time is the looks', they are spared that would find nothing; true if time has gone by.
    fn rest(&self, _memory: bool, _limit: Duration) -> Result<bool> {
        Ok(false)
    }

    /// Queues a receive request; on a queue pair in error it is flushed without another call.
    fn post_recv(
        &self,
        qp: &mut card::QueuePair,
        request: &RecvRequest<'_>,
    ) -> std::result::Result<(), PostError>;

    /// A channel for notifications of completion queues.
    fn create_channel(&self) -> Result<Handle>;
    fn destroy_channel(&self, channel: Handle);
    /// Notifications of `cq` go there from here on; `None`: nowhere, also those that wait.
    fn set_channel(&self, cq: card::CqId, channel: Option<Handle>);
    /// The next notification in a channel; `None` if none came in time.
    fn next_notification(
        &self,
        channel: Handle,
        timeout: Option<Duration>,
    ) -> Result<Option<card::CqId>>;
    /// The card's next asynchronous event; `None` if none came in time.
    fn next_event(&self, timeout: Option<Duration>) -> Result<Option<card::AsyncEvent>>;

    /// Ethernet addresses of peers, where they are the program's to know.
    fn neighbours(&self) -> Neighbours;

    /// Ethernet address of a peer.
    fn resolve(&self, gid: Gid) -> Option<MacAddr> {
        self.neighbours().get(&gid).copied()
    }

    /// After the card has taken on a group: whether datagrams to it come here.
    fn joined(&self) -> Result<()> {
        Ok(())
    }

    fn now(&self) -> Duration;
    fn sleep(&self, time: Duration) -> Result<()>;
    fn spawn(&self, program: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>>;
    fn exchange(&self, role: &Role, tell: &dyn Fn(&Role)) -> Result<Box<dyn Exchange>>;
}

/// Ethernet addresses by address.
pub(super) type Neighbours = Arc<BTreeMap<Gid, MacAddr>>;

/// A card as a device.
pub(super) struct CardProvider<S> {
    name: String,
    number: u32,
    common: Arc<Common<S>>,
}

/// What the objects of a device share.
struct Common<S> {
    seat: S,
    desk: Mutex<Desk>,
}

/// What is kept beside the card.
#[derive(Default)]
struct Desk {
    /// Readers of completion queues that queue pairs still use.
    readers: BTreeMap<card::CqId, card::CompletionQueue>,
    /// What queue pairs were set to.
    attributes: BTreeMap<QpNumber, QpAttributes>,
}

impl<S: Seat> Common<S> {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nothing in it can be half done.
        self.desk.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Calls `act` with the card, and gives what it gave.
    fn with<T>(&self, mut act: impl FnMut(&mut Card, Time) -> T) -> Result<T> {
        let mut outcome = None;
        self.seat
            .with(&mut |card, now| outcome = Some(act(card, now)))?;
        outcome.ok_or_else(|| Error::Port("the card was not there".into()))
    }

    /// Changes a queue pair, and remembers what it was set to.
    fn modify(
        &self,
        card: &mut Card,
        now: Time,
        qp: QpNumber,
        attributes: &QpAttributes,
    ) -> Result<()> {
        card.modify_qp(now, qp, attributes)?;
        let mut desk = self.desk();
        let kept = desk.attributes.entry(qp).or_default();
        if attributes.state == Some(State::Reset) {
            *kept = QpAttributes::default();
        }
        kept.merge(attributes);
        Ok(())
    }
}

fn translate(event: card::AsyncEvent) -> AsyncEvent {
    use card::AsyncEvent as E;
    match event {
        E::CqError(cq) => AsyncEvent::CqError(CqId(cq.0 as Handle)),
        E::QpFatal(qp) => AsyncEvent::QpFatal(qp),
        E::QpAccessError(qp) => AsyncEvent::QpAccessError(qp),
        E::QpRequestError(qp) => AsyncEvent::QpRequestError(qp),
        E::CommunicationEstablished(qp) => AsyncEvent::CommunicationEstablished(qp),
        E::SqDrained(qp) => AsyncEvent::SqDrained(qp),
        E::LastWqeReached(qp) => AsyncEvent::LastWqeReached(qp),
        E::SrqLimitReached(srq) => AsyncEvent::SrqLimitReached(SrqId(srq.0 as Handle)),
        E::DeviceFatal => AsyncEvent::DeviceFatal,
    }
}

impl<S: Seat> CardProvider<S> {
    pub(super) fn new(name: String, seat: S) -> CardProvider<S> {
        CardProvider {
            name,
            number: super::next_number(),
            common: Arc::new(Common {
                seat,
                desk: Mutex::default(),
            }),
        }
    }

    fn one_port(&self, port: u8) -> Result<()> {
        match port {
            1 => Ok(()),
            _ => Err(self.no_such("port", port.into(), "port 1 only")),
        }
    }

    fn no_such(&self, what: &'static str, value: u32, limit: &str) -> Error {
        Error::NoSuch {
            device: self.name.clone(),
            what,
            value,
            limit: limit.into(),
        }
    }
}

/// A number as a handle, and back.
fn number(handle: Handle) -> u32 {
    handle as u32
}

impl<S: Seat> Provider for CardProvider<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn query_device(&self) -> Result<DeviceAttributes> {
        let guid = |card: &Card| card.config().gid.guid(card.config().mac);
        let node_guid = self.common.with(|card, _| guid(card))?;
        Ok(DeviceAttributes {
            fw_ver: env!("CARGO_PKG_VERSION").into(),
            node_guid,
            vendor_id: 0,
            vendor_part_id: 0,
            max_mr_size: softroce_sim::memory::MAX_REGION_LEN,
            max_qp: card::MAX_QP,
            max_qp_wr: card::MAX_WR,
            max_sge: card::MAX_SGE,
            max_cq: MAX_PLACES,
            max_cqe: card::MAX_CQE,
            max_mr: 1 << 23,
            // Numbers that are not used again.
            max_pd: u32::MAX,
            max_qp_rd_atom: card::MAX_RD_ATOMIC.into(),
            max_qp_init_rd_atom: card::MAX_RD_ATOMIC.into(),
            // Programs of this machine touch memory by the same instructions.
            atomic_cap: AtomicCap::Glob,
            max_mw: 1 << 23,
            max_ah: MAX_PLACES,
            max_srq: MAX_PLACES,
            max_srq_wr: card::MAX_WR,
            max_srq_sge: card::MAX_SGE,
            max_mcast_grp: card::MAX_GROUPS,
            max_pkeys: 1,
            phys_port_cnt: 1,
        })
    }

    fn query_port(&self, port: u8) -> Result<PortAttributes> {
        self.one_port(port)?;
        let mtu = self.common.with(|card, _| card.config().port_mtu)?;
        Ok(PortAttributes {
            state: PortState::Active,
            max_mtu: Mtu::M4096,
            active_mtu: mtu,
            gid_tbl_len: 1,
            pkey_tbl_len: 1,
            max_msg_sz: 1 << 31,
            link_layer: LinkLayer::Ethernet,
            active_width: 0,
            active_speed: 0,
        })
    }

    fn query_gid(&self, port: u8, index: u32) -> Result<GidEntry> {
        self.one_port(port)?;
        if index != 0 {
            return Err(self.no_such("GID", index, "GID 0 only"));
        }
        self.common.with(|card, _| GidEntry {
            gid: card.config().gid,
            gid_type: match card.config().encapsulation {
                Encapsulation::RoceV1 => GidType::RoceV1,
                Encapsulation::RoceV2 => GidType::RoceV2,
            },
        })
    }

    fn alloc_pd(&self) -> Result<Handle> {
        self.common.with(|card, _| card.alloc_pd().0 as Handle)
    }

    fn dealloc_pd(&self, _pd: Handle) {
        // A number that nobody has any more; there is nothing to free.
    }

    fn reg_mr(
        &self,
        pd: Handle,
        memory: &Buffer,
        access: Access,
    ) -> Result<(Handle, MemoryRegion)> {
        let region = self
            .common
            .with(|card, _| card.register(Pd(number(pd)), memory.clone(), access))??;
        Ok((region.lkey.0 as Handle, region))
    }

    fn dereg_mr(&self, mr: Handle) -> Result<()> {
        let key = LocalKey(number(mr));
        match self.common.with(|card, _| card.deregister(key)) {
            Ok(outcome) => Ok(outcome?),
            // The card has ended, and touches nothing.
            Err(_) => Ok(()),
        }
    }

    fn alloc_mw(&self, pd: Handle, kind: WindowType) -> Result<(Handle, RemoteKey)> {
        let key = self
            .common
            .with(|card, _| card.alloc_mw(Pd(number(pd)), kind))??;
        Ok((key.0 as Handle, key))
    }

    fn dealloc_mw(&self, mw: Handle) {
        let key = RemoteKey(number(mw));
        let _ = self.common.with(|card, _| card.dealloc_mw(key));
    }

    fn create_ah(&self, pd: Handle, address: &AddressVector) -> Result<AddressId> {
        let address = self.resolved(address);
        Ok(self
            .common
            .with(|card, _| card.create_ah(Pd(number(pd)), &address))??)
    }

    fn destroy_ah(&self, ah: AddressId) {
        let _ = self.common.with(|card, _| card.destroy_ah(ah));
    }

    fn create_comp_channel(&self) -> Result<Handle> {
        self.common.seat.create_channel()
    }

    fn destroy_comp_channel(&self, channel: Handle) {
        self.common.seat.destroy_channel(channel);
    }

    fn next_comp_event(
        &self,
        channel: Handle,
        timeout: Option<Duration>,
    ) -> Result<Option<Handle>> {
        let cq = self.common.seat.next_notification(channel, timeout)?;
        Ok(cq.map(|cq| cq.0 as Handle))
    }

    fn create_cq(
        &self,
        cqe: u32,
        channel: Option<Handle>,
    ) -> Result<(Handle, Box<dyn super::CompletionQueue>)> {
        let queue = self.common.with(|card, _| card.create_cq(cqe))??;
        let id = queue.id();
        if channel.is_some() {
            self.common.seat.set_channel(id, channel);
        }
        let common = self.common.clone();
        Ok((
            id.0 as Handle,
            Box::new(queues::CompletionQueue::new(common, queue)),
        ))
    }

    fn destroy_cq(&self, cq: Handle) {
        let id = card::CqId(number(cq));
        self.common.seat.set_channel(id, None);
        let mut reader = self.common.desk().readers.remove(&id);
        let _ = self.common.with(|card, _| {
            if let Some(reader) = reader.take() {
                // The owner sees to it that no queue pair uses it.
                let _ = card.destroy_cq(reader);
            }
        });
    }

    fn create_srq(
        &self,
        pd: Handle,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<(Handle, Box<dyn super::SharedReceiveQueue>)> {
        let pd = Pd(number(pd));
        let srq = self
            .common
            .with(|card, _| card.create_srq(pd, max_wr, max_sge))??;
        Ok((
            srq.id().0 as Handle,
            Box::new(queues::SharedReceiveQueue(srq)),
        ))
    }

    fn set_srq_limit(&self, srq: Handle, limit: u32) -> Result<()> {
        let srq = card::SrqId(number(srq));
        Ok(self
            .common
            .with(|card, _| card.set_srq_limit(srq, limit))??)
    }

    fn destroy_srq(&self, srq: Handle) {
        let srq = card::SrqId(number(srq));
        // The owner sees to it that no queue pair uses it.
        let _ = self.common.with(|card, _| card.destroy_srq(srq));
    }

    fn create_qp(&self, spec: &QpSpec) -> Result<(Handle, Box<dyn super::QueuePair>)> {
        let init = card::QpInit {
            qp_type: spec.qp_type,
            pd: Pd(number(spec.pd)),
            send_cq: card::CqId(number(spec.send_cq)),
            recv_cq: card::CqId(number(spec.recv_cq)),
            max_send_wr: spec.max_send_wr,
            max_recv_wr: spec.max_recv_wr,
            max_send_sge: spec.max_send_sge,
            max_recv_sge: spec.max_recv_sge,
            max_inline: spec.max_inline,
            srq: spec.srq.map(|s| card::SrqId(number(s))),
        };
        let qp = self.common.with(|card, _| card.create_qp(&init))??;
        let number = qp.number();
        self.common
            .desk()
            .attributes
            .insert(number, QpAttributes::default());
        let common = self.common.clone();
        Ok((
            number.get() as Handle,
            Box::new(queues::QueuePair::new(common, qp, spec)),
        ))
    }

    fn modify_qp(&self, qp: Handle, attributes: &QpAttributes) -> Result<()> {
        let qp = QpNumber::new(number(qp));
        let mut attributes = *attributes;
        attributes.address = attributes.address.map(|a| self.resolved(&a));
        self.common
            .with(|card, now| self.common.modify(card, now, qp, &attributes))?
    }

    fn query_qp(&self, qp: Handle) -> Result<QpAttributes> {
        let qp = QpNumber::new(number(qp));
        let (state, kept) = self.common.with(|card, _| {
            let kept = self.common.desk().attributes.get(&qp).copied();
            (card.qp_state(qp), kept)
        })?;
        Ok(QpAttributes {
            state,
            cur_state: state,
            ..kept.unwrap_or_default()
        })
    }

    fn bind_mw(&self, qp: Handle, mw: Handle, binding: &Binding) -> Result<RemoteKey> {
        let (qp, key) = (QpNumber::new(number(qp)), RemoteKey(number(mw)));
        Ok(self
            .common
            .with(|card, _| card.bind_mw(qp, key, *binding))??)
    }

    fn attach_mcast(&self, qp: Handle, group: Gid) -> Result<()> {
        let qp = QpNumber::new(number(qp));
        self.common.with(|card, _| card.attach_mcast(qp, group))??;
        self.common.seat.joined().inspect_err(|_| {
            let _ = self.common.with(|card, _| card.detach_mcast(qp, group));
        })
    }

    fn detach_mcast(&self, qp: Handle, group: Gid) -> Result<()> {
        let qp = QpNumber::new(number(qp));
        Ok(self.common.with(|card, _| card.detach_mcast(qp, group))??)
    }

    fn destroy_qp(&self, qp: Handle) {
        let qp = QpNumber::new(number(qp));
        self.common.desk().attributes.remove(&qp);
        let _ = self.common.with(|card, _| card.destroy_qp(qp));
    }

    fn next_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        Ok(self.common.seat.next_event(timeout)?.map(translate))
    }

    fn now(&self) -> Duration {
        self.common.seat.now()
    }

    fn sleep(&self, time: Duration) -> Result<()> {
        self.common.seat.sleep(time)
    }

    fn rest(&self, limit: Duration) -> Result<bool> {
        self.common.seat.rest(true, limit)
    }

    fn spawn(&self, program: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Join>> {
        self.common.seat.spawn(program)
    }

    fn exchange(&self, role: &Role, tell: &dyn Fn(&Role)) -> Result<Box<dyn Exchange>> {
        self.common.seat.exchange(role, tell)
    }

    fn connection_manager(&self) -> Result<Box<dyn super::ConnectionManager>> {
        Ok(Box::new(cm::ConnectionManager::open(self.common.clone())?))
    }
}

impl<S: Seat> CardProvider<S> {
    fn resolved(&self, address: &AddressVector) -> AddressVector {
        let mut address = *address;
        if address.dmac == MacAddr::default()
            && let Some(mac) = self.common.seat.resolve(address.dgid)
        {
            address.dmac = mac;
        }
        address
    }
}

#[cfg(test)]
mod tests;
