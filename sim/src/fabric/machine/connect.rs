//! Setting a flow up between two hosts, and asking what it did.

use super::flow::{Flow, FlowOperation, FlowSpec, FlowStats, StatusCounts};
use super::receiver::Receiver;
use super::{Machine, Role, Start};
use crate::card::{
    AddressVector, CreateError, ModifyError, Peer, PostError, QpAttributes, QpInit, QpType,
    QueuePair, Reliability, Remote, Sge, Status,
};
use crate::fabric::network::Network;
use crate::fabric::observer::Observer;
use crate::fabric::topology::HostId;
use crate::memory::{Access, Buffer, MemoryRegion, RegisterError, Storage};
use crate::random::Stream;
use crate::time::Time;
use crate::wire::{Gid, MacAddr, Psn, QpNumber};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Why a flow could not be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlowError {
    /// From and to are the same host.
    #[error("a flow needs two hosts")]
    SameHost,
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
    /// A receive request was not taken.
    #[error(transparent)]
    Post(#[from] PostError),
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

impl Machine {
    fn end_point(
        &mut self,
        spec: &FlowSpec,
        role: Role,
    ) -> Result<(QueuePair, EndPoint, Option<Buffer>), FlowError> {
        let passive = matches!(role, Role::Receiver(_));
        let slots = if passive && spec.takes_receives() {
            spec.recv_depth.max(1)
        } else {
            1
        };
        let len = u64::from(spec.size) * u64::from(slots);
        let data = spec.carried.then(|| Buffer::new(len as usize));
        let storage = match &data {
            Some(b) => Storage::Buffer(b.clone()),
            None => Storage::Counted { len },
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = self.card.register(self.pd, storage, access)?;
        let qp = self.card.create_qp(&QpInit {
            max_send_wr: if passive { 1 } else { spec.depth },
            max_recv_wr: if passive { spec.recv_depth.max(1) } else { 1 },
            max_send_sge: spec.sges,
            ..QpInit::new(QpType::Rc, self.pd, self.cq.id(), 1)
        })?;
        if self.roles.is_empty() {
            self.first_qp = qp.number().get();
        }
        self.roles.push(role);
        let drawn = self.card.draw_psn();
        let psn = match spec.first_psn {
            Some((sender, receiver)) => {
                if passive {
                    receiver
                } else {
                    sender
                }
            }
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
    ) -> Result<(), ModifyError> {
        let mut modify = |attributes| self.card.modify_qp(now, own.qp, &attributes);
        let address = AddressVector {
            dgid: peer.gid,
            dmac: peer.mac,
            sl: spec.sl,
            traffic_class: spec.dscp << 2,
            hop_limit: 64,
            flow_label: 0,
            udp_src: spec.udp_src,
            vlan: None,
        };
        let peer = Peer {
            address,
            path_mtu: spec.mtu,
            qp: peer.qp,
            psn: peer.psn,
        };
        let reliability = Reliability {
            timeout: spec.timeout,
            retry_cnt: spec.retry_cnt,
            rnr_retry: spec.rnr_retry,
            min_rnr_timer: spec.min_rnr_timer,
            max_rd_atomic: spec.max_rd_atomic,
            max_dest_rd_atomic: spec.max_rd_atomic,
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        modify(QpAttributes::to_init(access))?;
        modify(QpAttributes::to_rtr(&peer, Some(&reliability)))?;
        modify(QpAttributes::to_rts(own.psn, Some(&reliability)))
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

/// As [`connect`], between two ends that are set up differently: the receiver's queue pair gets its
/// service level, DSCP, timeout, retries, RNR waiting time and READ limit from `other`, all else is that
/// of `spec`.
pub fn connect_ends<O: Observer>(
    network: &mut Network<Machine, O>,
    from: HostId,
    to: HostId,
    spec: &FlowSpec,
    other: &FlowSpec,
) -> Result<FlowId, FlowError> {
    check(spec)?;
    check(other)?;
    if from == to {
        return Err(FlowError::SameHost);
    }
    let now = network.now();
    let sender = network.host_mut(from);
    let flow = sender.flows.len();
    let (qp, own, data) = sender.end_point(spec, Role::Flow(flow))?;
    let receiver = network.host_mut(to);
    let index = receiver.receivers.len();
    let (peer_qp, peer, peer_data) = receiver.end_point(spec, Role::Receiver(index))?;
    receiver.bring_up(now, other, &peer, &own)?;
    receiver.receivers.push(Receiver {
        spec: spec.clone(),
        qp: peer_qp,
        region: peer.region,
        data: peer_data.clone(),
        posted: 0,
        received: StatusCounts::default(),
        received_bytes: 0,
        wrong_immediate: 0,
        part: None,
    });
    if spec.takes_receives() {
        receiver
            .starts
            .push(Reverse((spec.recv_start, Start::Receiver(index))));
    }

    // The side the data comes from has a pattern in its memory.
    let source = if spec.operation == FlowOperation::Read {
        &peer_data
    } else {
        &data
    };
    if let Some(buffer) = source {
        let mut stream = Stream::new(0, &spec.name);
        let bytes: Vec<u8> = (0..buffer.len()).map(|_| stream.bits() as u8).collect();
        buffer.write_at(0, &bytes);
    }

    let sender = network.host_mut(from);
    sender.bring_up(now, spec, &own, &peer)?;
    sender.flows.push(Flow {
        qp,
        local: own.region,
        data,
        remote: Remote {
            addr: peer.region.addr,
            rkey: peer.region.rkey,
        },
        sges: split(&own.region, spec),
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

/// The pieces of a message: as equal as can be.
fn split(region: &MemoryRegion, spec: &FlowSpec) -> Vec<Sge> {
    let n = u64::from(spec.sges);
    let at = |i: u64| u64::from(spec.size) * i / n;
    (0..n)
        .map(|i| Sge {
            addr: region.addr + at(i),
            len: (at(i + 1) - at(i)) as u32,
            lkey: region.lkey,
        })
        .collect()
}

fn check(spec: &FlowSpec) -> Result<(), FlowError> {
    for (field, value, least, limit) in [
        ("size", u64::from(spec.size), 0, 1 << 31),
        ("count", spec.count, 1, u64::MAX),
        ("depth", spec.depth.into(), 1, crate::card::MAX_WR.into()),
        (
            "signal_every",
            spec.signal_every.into(),
            1,
            spec.depth.into(),
        ),
        ("sges", spec.sges.into(), 1, crate::card::MAX_SGE.into()),
        (
            "recv_depth",
            spec.recv_depth.into(),
            0,
            crate::card::MAX_WR.into(),
        ),
        ("dscp", spec.dscp.into(), 0, 63),
    ] {
        if !(least..=limit).contains(&value) {
            return Err(FlowError::OutOfRange {
                field,
                value,
                least,
                limit,
            });
        }
    }
    Ok(())
}

/// What a flow has done, both ends together.
pub fn stats<O: Observer>(network: &Network<Machine, O>, id: FlowId) -> FlowStats {
    let mut stats = network.host(id.host).flows[id.flow].stats.clone();
    let receiver = &network.host(id.peer).receivers[id.receiver];
    stats.received = receiver.received;
    stats.received_bytes = receiver.received_bytes;
    stats.wrong_immediate = receiver.wrong_immediate;
    stats
}

/// Compares what is in the target's memory with what was sent; `None` if the flow carries no data or
/// nothing has arrived.
pub fn data_intact<O: Observer>(network: &Network<Machine, O>, id: FlowId) -> Option<bool> {
    let flow = &network.host(id.host).flows[id.flow];
    let receiver = &network.host(id.peer).receivers[id.receiver];
    let (local, remote) = (
        flow.data.as_ref()?.to_vec(),
        receiver.data.as_ref()?.to_vec(),
    );
    let size = flow.local.len as usize;
    if flow.stats.bytes == 0 || size == 0 {
        return None;
    }
    // Receives go round the slots of the receiver's memory.
    let slots = match flow.spec.operation {
        FlowOperation::Send | FlowOperation::SendImmediate => {
            (receiver.received.get(Status::Success) as usize).min(remote.len() / size)
        }
        _ => 1,
    };
    Some(remote.chunks(size).take(slots).all(|c| c == local))
}
