//! The other end of a flow: memory, and the receives posted there.

use super::flow::{StatusCounts, Windows};
use super::member::Part;
use crate::card::{
    Completion, CompletionKind, QueuePair, RecvRequest, SendRequest, Sge, Status, Work,
};
use crate::memory::{Access, Binding, Buffer, LocalKey, MemoryRegion};

/// The other end of a flow.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) qp: QueuePair,
    pub(super) region: MemoryRegion,
    pub(super) data: Option<Buffer>,
    pub(super) receives: Receives,
    pub(super) received: StatusCounts,
    pub(super) received_bytes: u64,
    /// Whether the service loses nothing, so that the immediate data must be the number of the receive.
    pub(super) reliable: bool,
    pub(super) wrong_immediate: u64,
    pub(super) last_immediate: Option<u32>,
    pub(super) wrong_key: u64,
    /// The member that is told of what arrives.
    pub(super) part: Option<Part>,
}

/// The receives that are kept posted.
#[derive(Debug)]
pub(super) struct Receives {
    /// How many at once.
    pub(super) depth: u32,
    /// Bytes of each.
    pub(super) len: u32,
    /// Bytes from the buffer of one to that of the next; 0 if all have the same, in which nothing lands.
    pub(super) stride: u32,
    /// Bytes in front of the data.
    pub(super) header: u32,
    /// From which one on the key is another, and which.
    pub(super) wrong: (u64, LocalKey),
    /// The windows on the buffers, if messages invalidate their keys.
    pub(super) windows: Option<Windows>,
    /// Receives begun: posted, or their window is being bound.
    pub(super) begun: u64,
    /// Receives completed.
    pub(super) ended: u64,
}

impl Receiver {
    /// Posts receive requests until as many as wanted wait, or binds the windows that they need before
    /// they are posted. True if the send queue has something to do.
    pub(super) fn fill(&mut self) -> bool {
        let mut bound = false;
        while self.receives.begun - self.receives.ended < u64::from(self.receives.depth) {
            let n = self.receives.begun;
            let done = if self.receives.windows.is_some() {
                bound = true;
                self.bind(n)
            } else {
                self.post(n)
            };
            if !done {
                break;
            }
            self.receives.begun += 1;
        }
        bound
    }

    /// Where receive `n` has its buffer.
    fn buffer(&self, n: u64) -> u64 {
        let r = &self.receives;
        self.region.addr + n % u64::from(r.depth) * u64::from(r.stride)
    }

    fn post(&mut self, n: u64) -> bool {
        let (from, wrong) = self.receives.wrong;
        let sge = Sge {
            addr: self.buffer(n),
            len: self.receives.len,
            lkey: if n < from { self.region.lkey } else { wrong },
        };
        let request = RecvRequest {
            wr_id: n,
            sges: &[sge],
        };
        self.qp.post_recv(&request).is_ok()
    }

    fn bind(&mut self, n: u64) -> bool {
        let Some(windows) = &self.receives.windows else {
            return false;
        };
        let binding = Binding {
            lkey: self.region.lkey,
            addr: self.buffer(n),
            len: self.receives.stride.into(),
            access: Access::REMOTE_READ,
            zero_based: false,
        };
        let work = Work::BindWindow {
            key: windows.key(n),
            binding,
        };
        self.qp.post_send(&SendRequest::new(n, work, &[])).is_ok()
    }

    /// Takes a completion. True if the send queue has something to do.
    pub(super) fn completed(&mut self, c: &Completion) -> bool {
        if c.kind == CompletionKind::BindWindow {
            if c.status == Status::Success {
                self.post(c.wr_id);
            }
            return false;
        }
        self.received.count(c.status, 1);
        if c.status != Status::Success {
            return false;
        }
        debug_assert!(matches!(
            c.kind,
            CompletionKind::Receive | CompletionKind::ReceiveWithImmediate
        ));
        self.receives.ended += 1;
        self.received_bytes += u64::from(c.byte_len - self.receives.header);
        if let Some(i) = c.immediate {
            self.last_immediate = self.last_immediate.max(Some(i.get()));
            self.wrong_immediate += u64::from(self.reliable && i.get() != c.wr_id as u32);
        }
        if let Some(windows) = &self.receives.windows {
            self.wrong_key += u64::from(c.invalidated != Some(windows.key(c.wr_id)));
        }
        self.fill()
    }
}
