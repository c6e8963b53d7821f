//! A load on a queue pair: what it asks for, over and over, and what became of it.

use super::member::Part;
use crate::card::{Completion, Mtu, QueuePair, Remote, SendRequest, Sge, Status, Work};
use crate::memory::{Buffer, MemoryRegion};
use crate::time::{Span, Time};
use crate::wire::{Immediate, Psn};
use std::collections::VecDeque;

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

    pub(super) fn takes_receives(&self) -> bool {
        matches!(
            self.operation,
            FlowOperation::Send | FlowOperation::SendImmediate | FlowOperation::WriteImmediate
        )
    }
}

/// The most latencies a flow keeps; later ones are not sampled.
pub const MAX_SAMPLES: usize = 1 << 20;

/// Completions by status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusCounts([u64; 14]);

impl StatusCounts {
    pub(super) fn count(&mut self, status: Status, n: u64) {
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
    pub(super) spec: FlowSpec,
    pub(super) qp: QueuePair,
    pub(super) local: MemoryRegion,
    pub(super) data: Option<Buffer>,
    pub(super) remote: Remote,
    pub(super) sges: Vec<Sge>,
    /// When each message without completion was posted, oldest first.
    pub(super) outstanding: VecDeque<Time>,
    pub(super) failed: bool,
    /// Messages it may post; a member of a collective waits for leave.
    pub(super) granted: u64,
    /// The member it waits for.
    pub(super) part: Option<Part>,
    pub(super) stats: FlowStats,
}

impl Flow {
    pub(super) fn is_done(&self, now: Time) -> bool {
        let all = self.stats.posted == self.spec.count || now >= self.spec.stop;
        self.outstanding.is_empty() && (all || self.failed)
    }

    /// Posts as much as the depth allows; true if that was anything.
    #[inline]
    pub(super) fn post(&mut self, now: Time) -> bool {
        let mut any = false;
        while !self.failed
            && self.outstanding.len() < self.spec.depth as usize
            && self.stats.posted < self.spec.count.min(self.granted)
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
    pub(super) fn completed(&mut self, now: Time, c: &Completion) {
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
