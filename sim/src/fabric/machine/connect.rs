//! Setting a flow up between two hosts, and asking what it did.

use super::flow::{Aim, Flow, FlowStats, Keys, StatusCounts, Windows};
use super::receiver::{Receiver, Receives};
use super::spec::{FlowOperation, FlowSpec, Mistake};
use super::{Machine, Role, Start};
use crate::card::{
    Arrived, CreateError, Datagram, ModifyError, Mtu, Peer, QpAttributes, QpInit, QpType,
    QueuePair, Reliability, Remote, Sge, State, Status,
};
use crate::fabric::network::Network;
use crate::fabric::observer::Observer;
use crate::fabric::topology::HostId;
use crate::memory::{
    Access, Binding, Buffer, LocalKey, MemoryRegion, Pd, RegisterError, Storage, WindowError,
    WindowType,
};
use crate::random::Stream;
use crate::time::Time;
use crate::wire::{Gid, MacAddr, Psn, QpNumber, RemoteKey};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// The Q_Key of datagrams: that of `ibv_ud_pingpong`.
const QKEY: u32 = 0x1111_1111;

/// Why a flow could not be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowError {
    /// From and to are the same host.
    #[error("a flow needs two hosts")]
    SameHost,
    /// The service does not have the operation.
    #[error("{operation:?} is not an operation of {transport:?}")]
    Operation {
        /// The operation.
        operation: FlowOperation,
        /// The service.
        transport: QpType,
    },
    /// The mistake cannot be made with such requests.
    #[error("mistake {mistake:?} cannot be made with {operation:?} over {transport:?}")]
    Mistake {
        /// The mistake.
        mistake: Mistake,
        /// The operation.
        operation: FlowOperation,
        /// The service.
        transport: QpType,
    },
    /// A field is out of its range.
    #[error("{field} is {value}; it must be from {least} to {limit}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Value given.
        value: u64,
        /// Smallest value.
        least: u64,
        /// Largest value.
        limit: u64,
    },
    /// A queue could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The connection could not be made.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// A window could not be made.
    #[error(transparent)]
    Window(#[from] WindowError),
}

/// Names a flow of a network: its sender's host and its place among the flows there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId {
    /// Host that posts the requests.
    pub host: HostId,
    /// Place among the flows of that host.
    pub flow: usize,
    /// Host at the other end.
    pub peer: HostId,
    /// Place among the receivers of that host.
    pub receiver: usize,
}

/// What one end of a connection tells the other, as programs do over TCP.
#[derive(Clone, Copy, Debug)]
struct EndPoint {
    gid: Gid,
    mac: MacAddr,
    qp: QpNumber,
    psn: Psn,
    region: MemoryRegion,
}

/// A key that names nothing: that of a region with another tag.
const fn no_key(key: u32) -> u32 {
    key ^ 0x80
}

impl Machine {
    /// Memory for a flow: `len` bytes in `pd`.
    fn memory(
        &mut self,
        spec: &FlowSpec,
        pd: Pd,
        len: u64,
        access: Access,
    ) -> Result<(MemoryRegion, Option<Buffer>), FlowError> {
        let data = spec.carried.then(|| Buffer::new(len as usize));
        let storage = match &data {
            Some(b) => Storage::Buffer(b.clone()),
            None => Storage::Counted { len },
        };
        Ok((self.card.register(pd, storage, access)?, data))
    }

    fn end_point(
        &mut self,
        spec: &FlowSpec,
        role: Role,
    ) -> Result<(QueuePair, EndPoint, Option<Buffer>), FlowError> {
        let passive = matches!(role, Role::Receiver(_));
        let (len, access) = if passive {
            let receives = u64::from(spec.recv_depth.max(1)) * u64::from(stride(spec));
            let len = receives.max(u64::from(if spec.operation.is_send() {
                0
            } else {
                spec.size
            }));
            (
                len,
                spec.mr_access | windows_on(spec.operation == FlowOperation::SendInvalidate),
            )
        } else {
            let len = u64::from(spec.size) * u64::from(slots(spec));
            let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
            (
                len,
                rights | windows_on(spec.operation == FlowOperation::Bind),
            )
        };
        let (region, data) = self.memory(spec, self.pd, len, Access::LOCAL_WRITE | access)?;
        let binds = passive && spec.operation == FlowOperation::SendInvalidate;
        let receives = spec.recv_depth.max(1);
        let qp = self.card.create_qp(&QpInit {
            max_send_wr: match passive {
                true if binds => receives,
                true => 1,
                false => spec.depth,
            },
            max_recv_wr: if passive { receives } else { 1 },
            max_send_sge: spec.sges,
            ..QpInit::new(spec.transport, self.pd, self.cq.id(), 1)
        })?;
        if self.roles.is_empty() {
            self.first_qp = qp.number().get();
        }
        self.roles.push(role);
        let drawn = self.card.draw_psn();
        let psn = match spec.first_psn {
            Some((_, receiver)) if passive => receiver,
            Some((sender, _)) => sender,
            None => drawn,
        };
        let config = self.card.config();
        let end = EndPoint {
            gid: config.gid,
            mac: config.mac,
            qp: qp.number(),
            psn,
            region,
        };
        Ok((qp, end, data))
    }

    fn bring_up(
        &mut self,
        now: Time,
        spec: &FlowSpec,
        own: &EndPoint,
        peer: &EndPoint,
        access: Access,
    ) -> Result<(), ModifyError> {
        let mut modify = |attributes| self.card.modify_qp(now, own.qp, &attributes);
        if spec.transport == QpType::Ud {
            modify(QpAttributes::to_init_datagrams(QKEY))?;
            modify(QpAttributes::to(State::Rtr))?;
            return modify(QpAttributes::to_rts(own.psn, None));
        }
        let peer = Peer {
            address: spec.address(peer.gid, peer.mac),
            path_mtu: spec.mtu,
            qp: peer.qp,
            psn: peer.psn,
        };
        let reliability = (spec.transport == QpType::Rc).then_some(Reliability {
            timeout: spec.timeout,
            retry_cnt: spec.retry_cnt,
            rnr_retry: spec.rnr_retry,
            min_rnr_timer: spec.min_rnr_timer,
            max_rd_atomic: spec.max_rd_atomic,
            max_dest_rd_atomic: spec.max_rd_atomic,
        });
        let reliability = reliability.as_ref();
        modify(QpAttributes::to_init(Access::LOCAL_WRITE | access))?;
        modify(QpAttributes::to_rtr(&peer, reliability))?;
        modify(QpAttributes::to_rts(own.psn, reliability))
    }

    /// Windows of type 2, so many.
    fn windows(&mut self, n: u32) -> Result<Windows, WindowError> {
        let pd = self.pd;
        let keys = (0..n).map(|_| self.card.alloc_mw(pd, WindowType::Type2));
        Ok(Windows(keys.collect::<Result<_, _>>()?))
    }

    /// The key of a region that was registered and is not any more.
    fn ended_key(&mut self, access: Access) -> Result<RemoteKey, FlowError> {
        let region = self
            .card
            .register(self.pd, Storage::Counted { len: 1 }, access)?;
        self.card.deregister(region.lkey)?;
        Ok(region.rkey)
    }

    /// Where the requests of a flow go that names the peer's memory wrongly, on the peer's side.
    fn wrong_remote(
        &mut self,
        spec: &FlowSpec,
        mistake: Mistake,
        region: &MemoryRegion,
    ) -> Result<Remote, FlowError> {
        let mut remote = remote(region);
        let access = Access::LOCAL_WRITE | spec.mr_access;
        match mistake {
            Mistake::RemoteKey => remote.rkey = RemoteKey(no_key(remote.rkey.0)),
            Mistake::Invalidated => remote.rkey = self.ended_key(access)?,
            Mistake::Address => remote.addr += region.len,
            Mistake::Alignment => remote.addr += 4,
            Mistake::Domain => {
                let other = self.card.alloc_pd();
                let len = region.len;
                let storage = Storage::Counted { len };
                let region = self.card.register(other, storage, access)?;
                remote = self::remote(&region);
            }
            _ => {}
        }
        Ok(remote)
    }

    /// What requests name that are as they should be.
    fn aim(
        &mut self,
        spec: &FlowSpec,
        own: &EndPoint,
        peer: &EndPoint,
        windows: Option<&Windows>,
    ) -> Result<Aim, FlowError> {
        let remote = remote(&peer.region);
        let to = if spec.transport == QpType::Ud {
            let address = spec.address(peer.gid, peer.mac);
            Some(Datagram {
                address: self.card.create_ah(self.pd, &address)?,
                qp: peer.qp,
                qkey: QKEY,
            })
        } else {
            None
        };
        let keys = match (spec.operation, windows) {
            // Bound by one request, invalidated by the next.
            (FlowOperation::Bind, _) => Keys::Windows(self.windows(1)?, 2),
            (_, Some(windows)) => Keys::Windows(windows.clone(), 1),
            _ => Keys::One(remote.rkey),
        };
        let bind = spec.operation == FlowOperation::Bind;
        Ok(Aim {
            remote,
            sges: if bind {
                Vec::new()
            } else {
                split(&own.region, spec)
            },
            to,
            keys,
            binding: Binding {
                lkey: own.region.lkey,
                addr: own.region.addr,
                len: spec.size.into(),
                access: Access::REMOTE_WRITE | Access::REMOTE_READ,
                zero_based: false,
            },
        })
    }

    /// What requests name from the mistake on; `there` is the peer's memory as they name it.
    fn wrong_aim(
        &mut self,
        spec: &FlowSpec,
        mistake: Mistake,
        right: &Aim,
        there: Remote,
        peer: &EndPoint,
    ) -> Result<Aim, FlowError> {
        let mut aim = right.clone();
        match mistake {
            Mistake::LocalKey => {
                for sge in &mut aim.sges {
                    sge.lkey = LocalKey(no_key(sge.lkey.0));
                }
            }
            Mistake::Binding => {
                let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
                let (region, _) = self.memory(spec, self.pd, spec.size.into(), rights)?;
                (aim.binding.lkey, aim.binding.addr) = (region.lkey, region.addr);
            }
            Mistake::Domain if spec.transport == QpType::Ud => {
                let other = self.card.alloc_pd();
                let address = spec.address(peer.gid, peer.mac);
                let address = self.card.create_ah(other, &address)?;
                aim.to = aim.to.map(|to| Datagram { address, ..to });
            }
            Mistake::QKey => {
                aim.to = aim.to.map(|to| Datagram {
                    qkey: QKEY ^ 1,
                    ..to
                })
            }
            Mistake::RemoteKey | Mistake::Invalidated if spec.operation.is_send() => {
                aim.keys = Keys::One(there.rkey);
            }
            _ => aim.remote = there,
        }
        Ok(aim)
    }
}

/// Sets up a flow between two hosts of a network: queue pairs, memory, connection. It begins at its
/// start time.
pub fn connect<O: Observer>(
    network: &mut Network<Machine, O>,
    from: HostId,
    to: HostId,
    spec: &FlowSpec,
) -> Result<FlowId, FlowError> {
    connect_ends(network, from, to, spec, spec)
}

/// As [`connect`], between two ends that are set up differently: the receiver's queue pair gets its path
/// MTU, service level, DSCP, timeout, retries, RNR waiting time and READ limit from `other`, all else is
/// that of `spec`.
pub fn connect_ends<O: Observer>(
    network: &mut Network<Machine, O>,
    from: HostId,
    to: HostId,
    spec: &FlowSpec,
    other: &FlowSpec,
) -> Result<FlowId, FlowError> {
    spec.check()?;
    other.check()?;
    if from == to {
        return Err(FlowError::SameHost);
    }
    let mut other = other.clone();
    other.transport = spec.transport;
    if spec.first_with(Mistake::PathMtu) < u64::MAX {
        other.mtu = other_mtu(spec.mtu);
    }
    let now = network.now();
    let sender = network.host_mut(from);
    let flow = sender.flows.len();
    let (qp, own, data) = sender.end_point(spec, Role::Flow(flow))?;

    let receiver = network.host_mut(to);
    let index = receiver.receivers.len();
    let (peer_qp, peer, peer_data) = receiver.end_point(spec, Role::Receiver(index))?;
    receiver.bring_up(now, &other, &peer, &own, spec.qp_access)?;
    let windows = match spec.operation {
        FlowOperation::SendInvalidate if spec.recv_depth > 0 => {
            Some(receiver.windows(spec.recv_depth)?)
        }
        _ => None,
    };
    let there = match spec.mistake {
        Some((mistake, _)) => receiver.wrong_remote(spec, mistake, &peer.region)?,
        None => remote(&peer.region),
    };
    let takes = spec.operation.takes_receives();
    receiver.receivers.push(Receiver {
        qp: peer_qp,
        region: peer.region,
        data: peer_data.clone(),
        receives: Receives {
            depth: spec.recv_depth,
            len: spec.recv_len(),
            stride: stride(spec),
            header: spec.header_len(),
            wrong: (
                spec.first_with(Mistake::ReceiveKey),
                LocalKey(no_key(peer.region.lkey.0)),
            ),
            windows: windows.clone(),
            begun: 0,
            ended: 0,
        },
        received: StatusCounts::default(),
        received_bytes: 0,
        reliable: spec.transport == QpType::Rc,
        wrong_immediate: 0,
        last_immediate: None,
        wrong_key: 0,
        part: None,
    });
    if takes {
        receiver
            .starts
            .push(Reverse((spec.recv_start, Start::Receiver(index))));
    }

    // The side the data comes from has a pattern in its memory; for atomics it is where they count from.
    let source = match spec.operation {
        FlowOperation::Read => &peer_data,
        o if o.is_atomic() => &peer_data,
        _ => &data,
    };
    let mut first_word = 0;
    if let Some(buffer) = source {
        let mut stream = Stream::new(0, &spec.name);
        let bytes: Vec<u8> = (0..buffer.len()).map(|_| stream.bits() as u8).collect();
        buffer.write_at(0, &bytes);
        if spec.operation.is_atomic() {
            first_word = word(buffer);
        }
    }

    let sender = network.host_mut(from);
    sender.bring_up(
        now,
        spec,
        &own,
        &peer,
        Access::REMOTE_WRITE | Access::REMOTE_READ,
    )?;
    let aim = sender.aim(spec, &own, &peer, windows.as_ref())?;
    let wrong = match spec.mistake {
        // These two are the receiver's.
        None | Some((Mistake::ReceiveKey | Mistake::PathMtu, _)) => (u64::MAX, None),
        Some((mistake, first)) => {
            let wrong = sender.wrong_aim(spec, mistake, &aim, there, &peer)?;
            (first, Some(Box::new(wrong)))
        }
    };
    sender.flows.push(Flow {
        qp,
        data,
        aim,
        wrong,
        slots: slots(spec),
        first_word,
        outstanding: VecDeque::with_capacity(spec.depth as usize),
        failed: false,
        granted: u64::MAX,
        part: None,
        stats: FlowStats::default(),
        spec: spec.clone(),
    });
    sender.starts.push(Reverse((spec.start, Start::Flow(flow))));
    network.kick(from);
    network.kick(to);
    Ok(FlowId {
        host: from,
        flow,
        peer: to,
        receiver: index,
    })
}

fn remote(region: &MemoryRegion) -> Remote {
    Remote {
        addr: region.addr,
        rkey: region.rkey,
    }
}

fn windows_on(yes: bool) -> Access {
    if yes {
        Access::MW_BIND
    } else {
        Access::LOCAL_READ
    }
}

/// Another MTU: the next smaller one, if there is one.
fn other_mtu(mtu: Mtu) -> Mtu {
    let smaller = Mtu::ALL.into_iter().rfind(|&m| m < mtu);
    smaller.unwrap_or(Mtu::M512)
}

/// Slots of the sender's memory.
fn slots(spec: &FlowSpec) -> u32 {
    if spec.operation.is_atomic() {
        spec.depth
    } else {
        1
    }
}

/// Bytes from the buffer of one receive to that of the next: one at least if it has a window.
fn stride(spec: &FlowSpec) -> u32 {
    match spec.operation {
        FlowOperation::SendInvalidate => spec.recv_len().max(1),
        o if o.is_send() => spec.recv_len(),
        _ => 0,
    }
}

/// The pieces of a message, as equal as can be, in each slot.
fn split(region: &MemoryRegion, spec: &FlowSpec) -> Vec<Sge> {
    let (n, size) = (u64::from(spec.sges), u64::from(spec.size));
    let at = |i: u64| size * i / n;
    let slots = u64::from(slots(spec));
    (0..slots * n)
        .map(|i| (i / n * size, i % n))
        .map(|(slot, i)| Sge {
            addr: region.addr + slot + at(i),
            len: (at(i + 1) - at(i)) as u32,
            lkey: region.lkey,
        })
        .collect()
}

/// The first word of a buffer.
fn word(buffer: &Buffer) -> u64 {
    let mut word = [0; 8];
    buffer.read_at(0, &mut word);
    u64::from_ne_bytes(word)
}

/// What a flow has done, both ends together.
pub fn stats<O: Observer>(network: &Network<Machine, O>, id: FlowId) -> FlowStats {
    let mut stats = network.host(id.host).flows[id.flow].stats.clone();
    let receiver = &network.host(id.peer).receivers[id.receiver];
    stats.received = receiver.received;
    stats.received_bytes = receiver.received_bytes;
    stats.wrong_immediate = receiver.wrong_immediate;
    // Where messages may be lost, what came must at least have been sent.
    let never_sent = receiver.last_immediate.map(u64::from) >= Some(stats.posted);
    stats.wrong_immediate += u64::from(!receiver.reliable && never_sent);
    stats.wrong_key = receiver.wrong_key;
    stats
}

/// What a flow over UC or UD has delivered, which its sender does not know.
pub fn arrived<O: Observer>(network: &Network<Machine, O>, id: FlowId) -> Arrived {
    let peer = network.host(id.peer);
    let arrived = peer.card().arrived(peer.receiver_qp(id.receiver));
    arrived.unwrap_or_default()
}

/// Compares what is in the target's memory with what was sent: bytes, or for atomics the number that those
/// that succeeded have counted up to. `None` if the flow carries no data or nothing has arrived.
pub fn data_intact<O: Observer>(network: &Network<Machine, O>, id: FlowId) -> Option<bool> {
    let flow = &network.host(id.host).flows[id.flow];
    let receiver = &network.host(id.peer).receivers[id.receiver];
    let (spec, stats) = (&flow.spec, &flow.stats);
    let (local, remote) = (flow.data.as_ref()?, receiver.data.as_ref()?);
    let size = spec.size as usize;
    if stats.bytes == 0 || size == 0 || spec.operation == FlowOperation::Bind {
        return None;
    }
    if spec.operation.is_atomic() {
        // Those that have not succeeded may have been carried out or not.
        let done = word(remote).wrapping_sub(flow.first_word);
        return Some((stats.completed.get(Status::Success)..=stats.posted).contains(&done));
    }
    let (local, remote) = (local.to_vec(), remote.to_vec());
    let received = receiver.received.get(Status::Success);
    if spec.operation.is_send() {
        // Receives go round the slots of the receiver's memory.
        let header = spec.header_len() as usize;
        let slots = remote.chunks(stride(spec) as usize).take(received as usize);
        let mut slots = slots.map(|s| &s[header..]);
        return (received > 0).then(|| slots.all(|s| s[..size] == local));
    }
    if spec.transport == QpType::Rc || received > 0 {
        return Some(remote == local);
    }
    // Of an unreliable WRITE any packet may be missing, but each as a whole.
    let mtu = spec.mtu.bytes().into();
    let mut packets = remote.chunks(mtu).zip(local.chunks(mtu));
    Some(packets.all(|(r, l)| r == l || r.iter().all(|&b| b == 0)))
}
