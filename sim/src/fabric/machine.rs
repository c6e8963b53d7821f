//! A host with a card and the load on it.
//!
//! A [`Flow`] is a queue pair that keeps a number of requests outstanding until it has sent what it was
//! asked to. It is a state machine, not a program: completions in, requests out, so that thousands of
//! them cost little. The card cannot tell the difference: rings, doorbells and completions are those a
//! program uses.

use super::host::Host;
use super::network::Network;
use super::observer::Observer;
use super::topology::HostId;
use crate::card::{
    AddressVector, Card, Completion, CompletionKind, CompletionQueue, CreateError, Env,
    ModifyError, Mtu, PostError, PriorityMask, QpAttributes, QpInit, QpType, QueuePair,
    RecvRequest, Remote, SendRequest, Sge, State, Status, Work,
};
use crate::memory::{Access, Buffer, MemoryRegion, Pd, RegisterError, Storage};
use crate::random::Stream;
use crate::time::{Span, Time};
use crate::wire::{Gid, Immediate, MacAddr, Packet, Psn, QpNumber, Route};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a flow asks its card to do, over and over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowOperation {
    /// SEND.
    Send,
    /// SEND with immediate data: the number of the message.
    SendImmediate,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data: the number of the message.
    WriteImmediate,
    /// RDMA READ.
    Read,
}

/// A flow from one host to another.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Names its random stream, from which the data is drawn.
    pub name: String,
    /// Operation.
    pub operation: FlowOperation,
    /// Bytes of a message.
    pub size: u32,
    /// Messages to send; `u64::MAX` for as many as there is time for.
    pub count: u64,
    /// Messages outstanding at once, at least 1.
    pub depth: u32,
    /// When the first message is posted.
    pub start: Time,
    /// No message is posted from here on.
    pub stop: Time,
    /// Every n-th message asks for a completion; the last one does in any case. At least 1, at most
    /// `depth`.
    pub signal_every: u32,
    /// Pieces that a message is gathered from or scattered to, at least 1.
    pub sges: u32,
    /// Receive requests the receiver keeps posted.
    pub recv_depth: u32,
    /// When the receiver posts its first receive requests.
    pub recv_start: Time,
    /// Carry data, and compare what arrived. The network must carry payloads too.
    pub carried: bool,
    /// Path MTU.
    pub mtu: Mtu,
    /// Service level, the Ethernet priority, 0 to 7.
    pub sl: u8,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// UDP source port; `None` derives it from the queue pair numbers.
    pub udp_src: Option<u16>,
    /// Local ACK timeout exponent.
    pub timeout: u8,
    /// Retries on timeouts and sequence NAKs.
    pub retry_cnt: u8,
    /// Retries on RNR NAKs; 7 is "for ever".
    pub rnr_retry: u8,
    /// Encoded RNR waiting time.
    pub min_rnr_timer: u8,
    /// READs outstanding at once.
    pub max_rd_atomic: u8,
    /// First PSN of the sender and of the receiver; `None` draws them from the card's seed.
    pub first_psn: Option<(Psn, Psn)>,
}

impl FlowSpec {
    /// `count` messages of `size` bytes, one at a time, at MTU 1024, with the usual timeout (14) and
    /// retry counts (7), from the beginning of time.
    pub fn new(operation: FlowOperation, size: u32, count: u64) -> FlowSpec {
        FlowSpec {
            name: String::from("flow"),
            operation,
            size,
            count,
            depth: 1,
            start: Time::ZERO,
            stop: Time::NEVER,
            signal_every: 1,
            sges: 1,
            recv_depth: 16,
            recv_start: Time::ZERO,
            carried: false,
            mtu: Mtu::M1024,
            sl: 3,
            dscp: 0,
            udp_src: None,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            first_psn: None,
        }
    }

    fn takes_receives(&self) -> bool {
        matches!(
            self.operation,
            FlowOperation::Send | FlowOperation::SendImmediate | FlowOperation::WriteImmediate
        )
    }
}

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

/// The most latencies a flow keeps; later ones are not sampled.
pub const MAX_SAMPLES: usize = 1 << 20;

/// Completions by status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusCounts([u64; 14]);

impl StatusCounts {
    fn count(&mut self, status: Status, n: u64) {
        self.0[status as usize] += n;
    }

    /// Completions with `status`.
    pub fn get(&self, status: Status) -> u64 {
        self.0[status as usize]
    }

    /// Those that occurred, in the order of their values.
    pub fn iter(&self) -> impl Iterator<Item = (Status, u64)> + '_ {
        Status::ALL
            .into_iter()
            .map(|s| (s, self.get(s)))
            .filter(|&(_, n)| n > 0)
    }
}

/// What a flow has done so far.
#[derive(Clone, Debug, Default)]
pub struct FlowStats {
    /// Messages posted.
    pub posted: u64,
    /// Messages completed, by status. Messages without completion of their own count with the next
    /// that has one.
    pub completed: StatusCounts,
    /// Bytes of messages that succeeded.
    pub bytes: u64,
    /// When the first message was posted.
    pub first_post: Option<Time>,
    /// When the latest message succeeded.
    pub last_success: Option<Time>,
    /// When the latest message completed, with any status.
    pub last_completion: Option<Time>,
    /// From posting to completion of each message that asked for one, in order, up to [`MAX_SAMPLES`].
    pub latencies: Vec<Span>,
    /// Receive requests completed, by status.
    pub received: StatusCounts,
    /// Bytes received by receive requests.
    pub received_bytes: u64,
    /// Receive completions whose immediate data was not the number of the message.
    pub wrong_immediate: u64,
}

/// A queue pair that sends.
#[derive(Debug)]
pub struct Flow {
    spec: FlowSpec,
    qp: QueuePair,
    local: MemoryRegion,
    data: Option<Buffer>,
    remote: Remote,
    sges: Vec<Sge>,
    /// When each message without completion was posted, oldest first.
    outstanding: VecDeque<Time>,
    failed: bool,
    stats: FlowStats,
}

/// The other end of a flow.
#[derive(Debug)]
struct Receiver {
    spec: FlowSpec,
    qp: QueuePair,
    region: MemoryRegion,
    data: Option<Buffer>,
    posted: u64,
    received: StatusCounts,
    received_bytes: u64,
    wrong_immediate: u64,
}

#[derive(Clone, Copy, Debug)]
enum Role {
    Flow(usize),
    Receiver(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Start {
    Receiver(usize),
    Flow(usize),
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

/// A host with a card and flows.
#[derive(Debug)]
pub struct Machine {
    card: Card,
    pd: Pd,
    cq: CompletionQueue,
    flows: Vec<Flow>,
    receivers: Vec<Receiver>,
    /// By queue pair number, from the card's first one on.
    roles: Vec<Role>,
    first_qp: u32,
    starts: BinaryHeap<Reverse<(Time, Start)>>,
}

impl Machine {
    /// A host with `card`, which nobody else uses, and a completion queue for `cqe` completions: at least
    /// the sum over its flows of `depth` and over those it receives of `recv_depth`.
    pub fn new(mut card: Card, cqe: u32) -> Result<Machine, CreateError> {
        let pd = card.alloc_pd();
        let cq = card.create_cq(cqe)?;
        Ok(Machine {
            card,
            pd,
            cq,
            flows: Vec::new(),
            receivers: Vec::new(),
            roles: Vec::new(),
            first_qp: 0,
            starts: BinaryHeap::new(),
        })
    }

    /// Its card.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Its card, to be changed.
    pub fn card_mut(&mut self) -> &mut Card {
        &mut self.card
    }

    /// What the flow at `index` has done as a sender.
    pub fn flow_stats(&self, index: usize) -> &FlowStats {
        &self.flows[index].stats
    }

    /// The queue pair of the flow at `index`.
    pub fn flow_qp(&self, index: usize) -> QpNumber {
        self.flows[index].qp.number()
    }

    /// The queue pair at the other end of a flow that this host receives, by its place among those.
    pub fn receiver_qp(&self, index: usize) -> QpNumber {
        self.receivers[index].qp.number()
    }

    /// True if every flow has posted all it will and has its completions, or has failed.
    pub fn is_done(&self, now: Time) -> bool {
        self.flows.iter().all(|f| f.is_done(now))
    }

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
        modify(QpAttributes {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ),
            ..Default::default()
        })?;
        modify(QpAttributes {
            state: Some(State::Rtr),
            address: Some(AddressVector {
                dgid: peer.gid,
                dmac: peer.mac,
                sl: spec.sl,
                traffic_class: spec.dscp << 2,
                hop_limit: 64,
                flow_label: 0,
                udp_src: spec.udp_src,
                vlan: None,
            }),
            path_mtu: Some(spec.mtu),
            dest_qp: Some(peer.qp),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: Some(spec.max_rd_atomic),
            min_rnr_timer: Some(spec.min_rnr_timer),
            ..Default::default()
        })?;
        modify(QpAttributes {
            state: Some(State::Rts),
            sq_psn: Some(own.psn),
            timeout: Some(spec.timeout),
            retry_cnt: Some(spec.retry_cnt),
            rnr_retry: Some(spec.rnr_retry),
            max_rd_atomic: Some(spec.max_rd_atomic),
            ..Default::default()
        })
    }

    fn handle(&mut self, now: Time, c: Completion) {
        let index = c.qp.get().wrapping_sub(self.first_qp) as usize;
        match self.roles.get(index) {
            Some(&Role::Flow(i)) => {
                let flow = &mut self.flows[i];
                flow.completed(now, &c);
                if flow.post(now) {
                    self.card.doorbell(now, c.qp);
                }
            }
            Some(&Role::Receiver(i)) => self.receivers[i].completed(&c),
            None => {}
        }
    }

    #[inline]
    fn poll(&mut self, now: Time) {
        while let Some(c) = self.cq.poll() {
            self.handle(now, c);
        }
    }

    /// Starts flows and receivers whose time has come; false if there are none.
    fn start_what_is_due(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&Reverse((at, start))) = self.starts.peek()
            && at <= now
        {
            self.starts.pop();
            any = true;
            match start {
                Start::Flow(i) => {
                    if self.flows[i].post(now) {
                        self.card.doorbell(now, self.flows[i].qp.number());
                    }
                }
                Start::Receiver(i) => self.receivers[i].fill(),
            }
        }
        any
    }
}

impl Flow {
    fn is_done(&self, now: Time) -> bool {
        let all = self.stats.posted == self.spec.count || now >= self.spec.stop;
        self.outstanding.is_empty() && (all || self.failed)
    }

    /// Posts as much as the depth allows; true if that was anything.
    #[inline]
    fn post(&mut self, now: Time) -> bool {
        let mut any = false;
        while !self.failed
            && self.outstanding.len() < self.spec.depth as usize
            && self.stats.posted < self.spec.count
            && now < self.spec.stop
        {
            let n = self.stats.posted;
            let immediate = Immediate::from_be(n as u32);
            let request = SendRequest {
                wr_id: n,
                work: match self.spec.operation {
                    FlowOperation::Send => Work::Send,
                    FlowOperation::SendImmediate => Work::SendImmediate(immediate),
                    FlowOperation::Write => Work::Write(self.remote),
                    FlowOperation::WriteImmediate => Work::WriteImmediate(self.remote, immediate),
                    FlowOperation::Read => Work::Read(self.remote),
                },
                sges: &self.sges,
                signaled: (n + 1).is_multiple_of(self.spec.signal_every.into())
                    || n + 1 == self.spec.count,
                ..SendRequest::new(n, Work::Send, &self.sges)
            };
            if self.qp.post_send(&request).is_err() {
                // The queue pair is in error; its completions say so.
                break;
            }
            self.outstanding.push_back(now);
            self.stats.posted += 1;
            self.stats.first_post.get_or_insert(now);
            any = true;
        }
        any
    }

    #[inline]
    fn completed(&mut self, now: Time, c: &Completion) {
        // Messages up to this one: those without completion of their own ended with it.
        let first = self.stats.posted - self.outstanding.len() as u64;
        let n = (c.wr_id + 1).saturating_sub(first);
        let mut posted = now;
        for _ in 0..n {
            posted = self.outstanding.pop_front().unwrap_or(now);
        }
        self.stats.last_completion = Some(now);
        if c.status == Status::Success {
            self.stats.completed.count(c.status, n);
            self.stats.bytes += n * u64::from(self.spec.size);
            self.stats.last_success = Some(now);
            if self.stats.latencies.len() < MAX_SAMPLES {
                self.stats.latencies.push(now.since(posted));
            }
        } else {
            // Those before the failed one had succeeded.
            self.stats
                .completed
                .count(Status::Success, n.saturating_sub(1));
            self.stats.bytes += n.saturating_sub(1) * u64::from(self.spec.size);
            self.stats.completed.count(c.status, 1);
            self.failed = true;
        }
    }
}

impl Receiver {
    /// Posts receive requests until the queue is full.
    fn fill(&mut self) {
        // The queue itself holds at least one.
        while self.spec.recv_depth > 0 && self.qp.recv_room() > 0 {
            let slot = self.posted % u64::from(self.spec.recv_depth);
            let sge = Sge {
                addr: self.region.addr + slot * u64::from(self.spec.size),
                len: self.spec.size,
                lkey: self.region.lkey,
            };
            if self
                .qp
                .post_recv(&RecvRequest {
                    wr_id: self.posted,
                    sges: &[sge],
                })
                .is_err()
            {
                return;
            }
            self.posted += 1;
        }
    }

    fn completed(&mut self, c: &Completion) {
        self.received.count(c.status, 1);
        if c.status != Status::Success {
            return;
        }
        self.received_bytes += u64::from(c.byte_len);
        if let Some(i) = c.immediate
            && i.get() != c.wr_id as u32
        {
            self.wrong_immediate += 1;
        }
        debug_assert!(matches!(
            c.kind,
            CompletionKind::Receive | CompletionKind::ReceiveWithImmediate
        ));
        self.fill();
    }
}

impl Host for Machine {
    #[inline]
    fn receive<E: Env>(&mut self, now: Time, packet: &Packet, route: &Route, env: &mut E) {
        self.card.receive(now, packet, route, env);
        self.poll(now);
    }

    fn advance<E: Env>(&mut self, now: Time, _env: &mut E) -> bool {
        let acted = self.card.advance(now);
        let started = self.start_what_is_due(now);
        self.poll(now);
        acted || started
    }

    #[inline]
    fn next_packet<E: Env>(
        &mut self,
        now: Time,
        ready: PriorityMask,
        env: &mut E,
    ) -> Option<Packet> {
        let packet = self.card.next_packet(now, ready, env);
        // A request that cannot be sent completes here and now.
        if packet.is_none() {
            self.poll(now);
        }
        packet
    }

    #[inline]
    fn pending(&self) -> PriorityMask {
        self.card.pending()
    }

    #[inline]
    fn next_timeout(&self) -> Time {
        match self.starts.peek() {
            Some(Reverse((at, _))) => self.card.next_timeout().min(*at),
            None => self.card.next_timeout(),
        }
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
