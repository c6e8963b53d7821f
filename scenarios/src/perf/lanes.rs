//! Queue pairs and memory of one size, connected with those of the other end.

use super::error::{PerfError, Result};
use super::heard::NUMBERS;
use super::layout::{Layout, count, mix, pattern};
use super::options::{Config, Operation};
use super::session::{Addresses, Checked, Note, Session, unexpected};
use softroce_verbs::{
    Access, AddressHandle, AddressVector, Completion, CompletionKind, CompletionQueue, Connection,
    Context, Endpoint, Gid, MemoryRegion, Mtu, Psn, QpNumber, QpType, QueuePair, RecvRequest,
    Reliability, Remote, RemoteKey, SendRequest, Sge, Status, Work,
};
use std::time::Duration;

/// A datagram's buffer begins with its GRH.
const GRH: u64 = 40;
const QKEY: u32 = 0x1111_1111;
/// Bytes that a size keeps of data that is compared.
const VERIFIED: u64 = 64 << 20;
/// Set in the number of a receive request.
const RECEIVE: u64 = 1 << 63;

/// What has come of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) posted: u64,
    pub(super) completed: u64,
    /// Receive requests that were used.
    pub(super) received: u64,
    /// The number that the next message has, if none is lost.
    next: u64,
}

/// Which message is done, of those a queue pair sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Done {
    /// Requests up to this one, without it.
    Sent {
        qp: usize,
        before: u64,
    },
    Received,
}

/// Queue pairs with their peers, and the memory that they use.
pub(super) struct Lanes {
    pub(super) cq: CompletionQueue,
    pub(super) progress: Vec<Progress>,
    /// Requests that a queue pair may have outstanding.
    pub(super) depth: u64,
    /// One completion for so many requests.
    pub(super) cq_mod: u64,
    /// Requests posted at a time.
    pub(super) list: u64,
    pub(super) size: u32,
    pub(super) compared: u64,
    operation: Operation,
    service: QpType,
    verify: bool,
    counts: bool,
    is_server: bool,
    inline: bool,
    layout: Layout,
    memory: MemoryRegion,
    queue_pairs: Vec<QueuePair>,
    peers: Vec<QpNumber>,
    address: Option<AddressHandle>,
    /// The other end's memory.
    remote: Remote,
    scratch: Vec<u8>,
    expected: Vec<u8>,
}

impl Lanes {
    /// Makes them and connects them.
    pub(super) fn new(
        context: &Context,
        session: &mut Session,
        config: &Config,
        (mtu, outs): (Mtu, u8),
        size: u32,
        is_server: bool,
    ) -> Result<Lanes> {
        let largest = u64::from(mtu.bytes());
        if config.service == QpType::Ud && u64::from(size) > largest {
            return Err(PerfError::Limit {
                option: "size",
                value: size.into(),
                limit: largest,
            });
        }
        let stride = (u64::from(size) + GRH).next_multiple_of(64);
        let fit = |depth: u32| match config.verify {
            true => (VERIFIED / stride / u64::from(config.qps)).clamp(1, depth.into()),
            false => depth.into(),
        };
        let depth = fit(config.tx_depth);
        let list = u64::from(config.post_list);
        if list > depth {
            return Err(PerfError::Verified { list, size, depth });
        }
        let takes_receives = config.operation == Operation::Send;
        let receives = if takes_receives {
            fit(config.rx_depth)
        } else {
            1
        };
        let several = |n: u64| if config.verify { n } else { 1 };
        let send_slots = if config.bandwidth { several(depth) } else { 1 };
        let layout = Layout {
            stride,
            qps: config.qps.into(),
            send_slots,
            recv_slots: if takes_receives {
                several(receives)
            } else {
                send_slots
            },
        };
        let pd = context.alloc_pd()?;
        let cqe = u64::from(config.qps) * (depth + receives);
        let cqe = u32::try_from(cqe).unwrap_or(u32::MAX);
        let cq = context.create_cq(cqe, None)?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let memory = pd.reg_new(layout.bytes() as usize, access)?;
        let mut queue_pairs = Vec::new();
        for _ in 0..config.qps {
            let builder = pd.create_qp(config.service).cq(&cq);
            let builder = builder
                .max_send_wr(depth as u32)
                .max_recv_wr(receives as u32)
                .max_inline_data(config.inline);
            queue_pairs.push(builder.build()?);
        }

        let psn = |qp: &QueuePair| Psn::new((mix(qp.number().get().into()) & 0xff_ffff) as u32);
        let gid = context.query_gid(1, context.gid_index())?.gid;
        let remote = memory.remote(0);
        session.say(&Note::Lanes(Addresses {
            queue_pairs: queue_pairs
                .iter()
                .map(|qp| (qp.number().get(), psn(qp).get()))
                .collect(),
            gid: gid.0,
            addr: remote.addr,
            rkey: remote.rkey.0,
        }))?;
        let theirs = match session.hear()? {
            Note::Lanes(lanes) => lanes,
            other => return Err(unexpected(&other)),
        };
        theirs.check(config, layout.bytes())?;
        let gid = Gid(theirs.gid);
        let connection = Connection {
            path_mtu: mtu,
            reliability: Reliability {
                timeout: config.timeout,
                max_rd_atomic: outs,
                max_dest_rd_atomic: outs,
                ..Reliability::default()
            },
            ..Connection::default()
        };
        for (qp, &(number, first)) in queue_pairs.iter().zip(&theirs.queue_pairs) {
            match config.service {
                QpType::Ud => qp.activate(QKEY, psn(qp))?,
                _ => {
                    let peer = Endpoint {
                        qp: QpNumber::new(number),
                        psn: Psn::new(first),
                        gid,
                    };
                    qp.connect(psn(qp), &peer, &connection)?;
                }
            }
        }
        let address = match config.service {
            QpType::Ud => Some(pd.create_ah(&AddressVector::new(gid))?),
            _ => None,
        };
        let peers = theirs.queue_pairs.iter();
        let mut lanes = Lanes {
            cq,
            progress: vec![Progress::default(); config.qps as usize],
            depth,
            cq_mod: config.cq_mod(size, depth as u32).into(),
            list,
            size,
            compared: 0,
            operation: config.operation,
            service: config.service,
            verify: config.verify,
            counts: config.operation == Operation::Write && !config.bandwidth,
            is_server,
            inline: size <= config.inline && config.operation.is_answered(),
            layout,
            memory,
            queue_pairs,
            peers: peers.map(|&(number, _)| QpNumber::new(number)).collect(),
            address,
            remote: Remote {
                addr: theirs.addr,
                rkey: RemoteKey(theirs.rkey),
            },
            scratch: vec![0; size as usize],
            expected: vec![0; size as usize],
        };
        if takes_receives {
            for qp in 0..lanes.queue_pairs.len() {
                for n in 0..receives {
                    lanes.post_receive(qp, n)?;
                }
            }
        }
        if lanes.verify && lanes.operation == Operation::Read {
            for qp in 0..lanes.queue_pairs.len() {
                for slot in 0..layout.send_slots {
                    lanes.write_message(qp, slot);
                }
            }
        }
        Ok(lanes)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.queue_pairs.len()
    }

    /// When nothing is there: spares polls in virtual time, and tells whether it did.
    pub(super) fn rest(
        &mut self,
        context: &Context,
        limit: Duration,
    ) -> softroce_verbs::Result<bool> {
        match self.counts {
            // What is written here makes no completion.
            true => context.rest(limit),
            false => self.cq.rest(limit),
        }
    }

    fn post_receive(&mut self, qp: usize, n: u64) -> Result<()> {
        let (offset, len) = match self.service {
            QpType::Ud => (0, self.size + GRH as u32),
            _ => (0, self.size),
        };
        let sge = self.memory.sge(self.layout.recv(qp, n) + offset, len);
        Ok(self.queue_pairs[qp].post_recv(&RecvRequest {
            wr_id: RECEIVE | (qp as u64) << 40 | n,
            sges: &[sge],
        })?)
    }

    /// What this end, or the other, puts into a message.
    fn key(&self, by_server: bool, qp: usize, message: u64) -> u64 {
        mix(message << 12 | (qp as u64) << 1 | u64::from(by_server))
    }

    fn fill(&self, out: &mut [u8], by_server: bool, qp: usize, message: u64) {
        pattern(out, self.key(by_server, qp, message));
        if self.operation == Operation::Send && out.len() >= 8 {
            out[..8].copy_from_slice(&message.to_le_bytes());
        }
        if self.counts
            && let Some(last) = out.last_mut()
        {
            *last = count(message);
        }
    }

    /// Puts the pattern of a message where it is sent from.
    fn write_message(&mut self, qp: usize, message: u64) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.fill(&mut scratch, self.is_server, qp, message);
        self.memory
            .memory()
            .write_at(self.layout.send(qp, message) as usize, &scratch);
        self.scratch = scratch;
    }

    /// The next message but `n` of a queue pair: where it begins here, after what is compared was written there,
    /// and the work.
    fn prepare(&mut self, qp: usize, n: u64) -> (Work, u64) {
        let message = self.progress[qp].posted + n;
        let at = self.layout.send(qp, message);
        let there = |offset: u64| Remote {
            addr: self.remote.addr.wrapping_add(offset),
            rkey: self.remote.rkey,
        };
        let (work, local) = match self.operation {
            Operation::Send => (Work::Send, at),
            Operation::Write => (Work::Write(there(self.layout.recv(qp, message))), at),
            Operation::Read => (Work::Read(there(at)), self.layout.recv(qp, message)),
            Operation::FetchAdd => {
                let at_peer = there(self.layout.recv(qp, 0));
                (
                    Work::FetchAdd {
                        at: at_peer,
                        add: 1,
                    },
                    at,
                )
            }
            Operation::CompareSwap => {
                let work = Work::CompareSwap {
                    at: there(self.layout.recv(qp, 0)),
                    compare: message,
                    swap: message + 1,
                };
                (work, at)
            }
        };
        if self.operation.is_answered() && self.verify {
            self.write_message(qp, message);
        } else if self.counts {
            let last = at as usize + self.size as usize - 1;
            self.memory.memory().write_at(last, &[count(message)]);
        } else if self.verify {
            self.scratch.fill(0xff);
            self.memory.memory().write_at(local as usize, &self.scratch);
        }
        (work, local)
    }

    /// The next message but `n` of a queue pair, which asks for a completion if `last` or if it is its turn. `inline`
    /// has its data, if that goes inline.
    fn request<'a>(
        &self,
        qp: usize,
        n: u64,
        work: Work,
        sge: &'a [Sge],
        inline: &'a [u8],
        last: bool,
    ) -> SendRequest<'a> {
        let message = self.progress[qp].posted + n;
        let mut request = SendRequest::new((qp as u64) << 40 | message, work, sge);
        request.signaled = last || (message + 1).is_multiple_of(self.cq_mod);
        if self.inline {
            request.inline = Some(inline);
            request.sges = &[];
        }
        if let Some(address) = &self.address {
            request.to = Some(address.to(self.peers[qp], QKEY));
        }
        request
    }

    /// Posts the next message of a queue pair, which asks for a completion if `last` or if it is its turn.
    pub(super) fn post(&mut self, qp: usize, last: bool) -> Result<()> {
        let (work, local) = self.prepare(qp, 0);
        let sge = [self.memory.sge(local, self.size)];
        if self.inline {
            let data = &mut self.scratch;
            self.memory.memory().read_at(local as usize, data);
        }
        let request = self.request(qp, 0, work, &sge, &self.scratch, last);
        self.queue_pairs[qp].post_send(&request)?;
        self.progress[qp].posted += 1;
        Ok(())
    }

    /// Posts the next messages of a queue pair, as many as a list has, with one doorbell. The last of them asks for a
    /// completion if `last` or if it is its turn.
    pub(super) fn post_list(&mut self, qp: usize, last: bool) -> Result<()> {
        if self.list == 1 {
            return self.post(qp, last);
        }
        let size = self.size as usize;
        let mut parts = Vec::with_capacity(self.list as usize);
        let mut inline = vec![
            0;
            if self.inline {
                self.list as usize * size
            } else {
                0
            }
        ];
        for n in 0..self.list {
            let (work, local) = self.prepare(qp, n);
            parts.push((work, [self.memory.sge(local, self.size)]));
            if self.inline {
                let data = &mut inline[n as usize * size..][..size];
                self.memory.memory().read_at(local as usize, data);
            }
        }
        let requests: Vec<SendRequest<'_>> = (0..)
            .zip(&parts)
            .map(|(n, (work, sge))| {
                let data = inline.get(n as usize * size..).unwrap_or_default();
                let data = &data[..data.len().min(size)];
                self.request(qp, n, *work, sge, data, last && n + 1 == self.list)
            })
            .collect();
        self.queue_pairs[qp].post_send_list(&requests)?;
        self.progress[qp].posted += self.list;
        Ok(())
    }

    /// Takes a completion in.
    pub(super) fn take(&mut self, completion: &Completion) -> Result<Done> {
        let qp = (completion.wr_id >> 40 & 0xffff) as usize;
        let n = completion.wr_id & ((1 << 40) - 1);
        let is_receive = completion.wr_id & RECEIVE != 0;
        if completion.status != Status::Success {
            let what = match is_receive {
                true => format!("receive {n}"),
                false => format!("{} {n}", self.operation.name()),
            };
            return Err(PerfError::Completion {
                what,
                qp: completion.qp,
                status: completion.status,
            });
        }
        if is_receive {
            debug_assert_eq!(completion.kind, CompletionKind::Receive);
            self.check_received(qp, n, completion)?;
            self.progress[qp].received += 1;
            self.post_receive(qp, n)?;
            return Ok(Done::Received);
        }
        let done = self.progress[qp].completed;
        if self.verify && !self.operation.is_answered() {
            for message in done..=n {
                self.check_fetched(qp, message)?;
            }
        }
        self.progress[qp].completed = n + 1;
        Ok(Done::Sent { qp, before: n + 1 })
    }

    fn check_received(&mut self, qp: usize, slot: u64, completion: &Completion) -> Result<()> {
        let grh = match self.service {
            QpType::Ud => GRH,
            _ => 0,
        };
        let len = u64::from(completion.byte_len);
        if len != u64::from(self.size) + grh {
            return Err(PerfError::Data(format!(
                "a message of {} bytes came with {len} bytes",
                self.size
            )));
        }
        if !self.verify {
            return Ok(());
        }
        let at = self.layout.recv(qp, slot) + grh;
        let mut message = self.progress[qp].next;
        if self.service != QpType::Rc {
            // Some may be lost, so it says itself which it is.
            let mut own = [0; 8];
            self.memory.memory().read_at(at as usize, &mut own);
            let own = u64::from_le_bytes(own);
            if own < message {
                return Err(PerfError::Data(format!(
                    "message {own} where {message} or a later one was expected"
                )));
            }
            if own >= NUMBERS {
                return Err(PerfError::Data(format!(
                    "message {own}; there are at most {NUMBERS}"
                )));
            }
            message = own;
        }
        self.progress[qp].next = message + 1;
        self.compare(qp, at, !self.is_server, message)
    }

    /// Compares the message at an offset of the memory with what was sent.
    fn compare(&mut self, qp: usize, at: u64, by_server: bool, message: u64) -> Result<()> {
        let (mut found, mut expected) = (
            std::mem::take(&mut self.scratch),
            std::mem::take(&mut self.expected),
        );
        self.memory.memory().read_at(at as usize, &mut found);
        self.fill(&mut expected, by_server, qp, message);
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        let outcome = match differs {
            None => Ok(()),
            Some(n) => Err(PerfError::Data(format!(
                "byte {n} of message {message} of queue pair {qp} is {:#04x}, not {:#04x}",
                found[n], expected[n]
            ))),
        };
        self.scratch = found;
        self.expected = expected;
        self.compared += 1;
        outcome
    }

    /// What a READ or an atomic brought.
    fn check_fetched(&mut self, qp: usize, message: u64) -> Result<()> {
        if self.operation == Operation::Read {
            let at = self.layout.recv(qp, message);
            return self.compare(qp, at, !self.is_server, message % self.layout.send_slots);
        }
        self.compared += 1;
        let old = self.word(self.layout.send(qp, message));
        match old == message {
            true => Ok(()),
            false => Err(PerfError::Data(format!(
                "{} {message} of queue pair {qp} found {old}",
                self.operation.name()
            ))),
        }
    }

    fn word(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.memory.memory().read_at(at as usize, &mut word);
        u64::from_ne_bytes(word)
    }

    /// True if the peer's message with this number has been written, as far as its last byte tells.
    pub(super) fn is_written(&self, message: u64) -> bool {
        let last = self.layout.recv(0, message) as usize + self.size as usize - 1;
        let mut byte = [0];
        self.memory.memory().read_at(last, &mut byte);
        byte[0] == count(message)
    }

    /// Compares a message that the peer has written.
    pub(super) fn check_written(&mut self, qp: usize, message: u64) -> Result<()> {
        match self.verify {
            true => self.compare(qp, self.layout.recv(qp, message), !self.is_server, message),
            false => Ok(()),
        }
    }

    /// What this end has found, and the most that the peer can have, which sent so many messages.
    pub(super) fn found(&self, theirs: u64) -> (Checked, Checked) {
        let sum = |count: fn(&Progress) -> u64| self.progress.iter().map(count).sum();
        let own = Checked {
            received: sum(|p| p.received),
            compared: self.compared,
        };
        let sent: u64 = sum(|p| p.posted);
        let most = Checked {
            received: match (self.operation, self.service) {
                // The network may double datagrams.
                (Operation::Send, QpType::Ud) => NUMBERS * self.layout.qps,
                (Operation::Send, _) => sent,
                _ => 0,
            },
            compared: match self.verify {
                true => sent + theirs,
                false => 0,
            },
        };
        (own, most)
    }

    /// Compares what the peer has left in this end's memory, which has sent so many messages.
    pub(super) fn check_left(&mut self, sent: &[u64]) -> Result<()> {
        if !self.verify {
            return Ok(());
        }
        for (qp, &sent) in sent.iter().enumerate() {
            if self.operation.is_atomic() {
                let found = self.word(self.layout.recv(qp, 0));
                if found != sent {
                    return Err(PerfError::Data(format!(
                        "after {sent} times {} there is {found}",
                        self.operation.name()
                    )));
                }
            } else if self.operation == Operation::Write {
                // Of those that went to one place, the last.
                for message in sent.saturating_sub(self.layout.recv_slots)..sent {
                    self.check_written(qp, message)?;
                }
            }
        }
        Ok(())
    }
}
