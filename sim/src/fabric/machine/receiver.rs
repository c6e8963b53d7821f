//! The other end of a flow: memory, and the receives posted there.

use super::flow::{FlowSpec, StatusCounts};
use super::member::Part;
use crate::card::{Completion, CompletionKind, QueuePair, RecvRequest, Sge, Status};
use crate::memory::{Buffer, MemoryRegion};

/// The other end of a flow.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) spec: FlowSpec,
    pub(super) qp: QueuePair,
    pub(super) region: MemoryRegion,
    pub(super) data: Option<Buffer>,
    pub(super) posted: u64,
    pub(super) received: StatusCounts,
    pub(super) received_bytes: u64,
    pub(super) wrong_immediate: u64,
    /// The member that is told of what arrives.
    pub(super) part: Option<Part>,
}

impl Receiver {
    /// Posts receive requests until the queue is full.
    pub(super) fn fill(&mut self) {
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

    pub(super) fn completed(&mut self, c: &Completion) {
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
