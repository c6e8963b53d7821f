//! Posting and polling.

use super::super::QpSpec;
use super::abi::*;
use super::library::check;
use super::{IbvContext, Keys, convert};
use crate::error::BadRequest;
use crate::provider;
use crate::{
    Completion, CompletionKind, Error, Immediate, Notify, PostError, QpCap, QpNumber, QpType,
    RecvRequest, RemoteKey, Result, SendRequest, Sge, Status, Work,
};
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

/// Completions taken at once.
const BATCH: usize = 16;
/// Elements of a request; more than any device here has for one.
const ELEMENTS: usize = 32;

type Poll = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

pub(super) struct CompletionQueue {
    context: Arc<IbvContext>,
    cq: *mut ibv_cq,
    poll: Poll,
    /// What polling came to after it had given completions: told at the next poll.
    failed: Option<c_int>,
}

// SAFETY: any thread may poll a completion queue.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    pub(super) fn new(context: Arc<IbvContext>, cq: *mut ibv_cq) -> Result<CompletionQueue> {
        let Some(poll) = context.ops().poll_cq else {
            return Err(Error::Unsupported {
                device: "the device".into(),
                what: "function to poll a completion queue".into(),
            });
        };
        Ok(CompletionQueue::with(context, cq, poll))
    }

    /// One that is polled by `poll`.
    pub(super) fn with(context: Arc<IbvContext>, cq: *mut ibv_cq, poll: Poll) -> CompletionQueue {
        CompletionQueue {
            context,
            cq,
            poll,
            failed: None,
        }
    }
}

fn kind(opcode: c_int) -> CompletionKind {
    match opcode {
        1 => CompletionKind::Write,
        2 => CompletionKind::Read,
        3 => CompletionKind::CompareSwap,
        4 => CompletionKind::FetchAdd,
        5 => CompletionKind::BindWindow,
        6 => CompletionKind::LocalInvalidate,
        9 => CompletionKind::AtomicWrite,
        128 => CompletionKind::Receive,
        129 => CompletionKind::ReceiveWithImmediate,
        // Of a request that failed, where the field says nothing.
        _ => CompletionKind::Send,
    }
}

/// Cannot fail: the completion is gone from its queue.
fn completion(wc: &ibv_wc, invalidated: c_uint) -> Completion {
    let status = Status::from_number(wc.status as u32);
    let kind = kind(wc.opcode);
    let is_receive = matches!(
        kind,
        CompletionKind::Receive | CompletionKind::ReceiveWithImmediate
    );
    // Drivers flag requests too that sent immediate data, and leave all but a few fields of errors as they were.
    let arrived = is_receive && status == Status::Success;
    let has = |flag| arrived && wc.wc_flags & flag != 0;
    Completion {
        wr_id: wc.wr_id,
        status,
        vendor_err: match status {
            Status::Success => 0,
            _ => wc.vendor_err,
        },
        kind,
        qp: QpNumber::new(wc.qp_num),
        byte_len: wc.byte_len,
        immediate: has(IBV_WC_WITH_IMM).then(|| Immediate(wc.imm_data.to_ne_bytes())),
        invalidated: has(invalidated).then_some(RemoteKey(wc.imm_data)),
        src_qp: QpNumber::new(wc.src_qp),
        grh: has(IBV_WC_GRH),
    }
}

/// What a number below zero says, which no driver explains: it is none of the operating system's.
fn poll_failed(code: c_int) -> Error {
    Error::Os {
        call: "ibv_poll_cq".into(),
        source: std::io::Error::other(format!(
            "the driver gives {code}: it cannot read the completion queue"
        )),
    }
}

impl provider::CompletionQueue for CompletionQueue {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize> {
        if let Some(code) = self.failed.take() {
            return Err(poll_failed(code));
        }
        let mut taken = 0;
        while taken < out.len() {
            let want = (out.len() - taken).min(BATCH);
            // SAFETY: all fields of a completion are numbers.
            let mut wcs: [ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
            // SAFETY: there is room for as many as are asked for, and the queue lives as long as self.
            let n = unsafe { (self.poll)(self.cq, want as c_int, wcs.as_mut_ptr()) };
            let Ok(n) = usize::try_from(n) else {
                if taken > 0 {
                    self.failed = Some(n);
                    break;
                }
                return Err(poll_failed(n));
            };
            for wc in &wcs[..n] {
                out[taken] = completion(wc, self.context.invalidated);
                taken += 1;
            }
            if n < want {
                break;
            }
        }
        Ok(taken)
    }

    fn req_notify(&mut self, which: Notify) -> Result<()> {
        let Some(request) = self.context.ops().req_notify_cq else {
            return Ok(());
        };
        let solicited = c_int::from(which == Notify::Solicited);
        // SAFETY: the queue lives as long as self.
        check("ibv_req_notify_cq", unsafe { request(self.cq, solicited) })
    }

    fn resize(&mut self, cqe: u32) -> Result<()> {
        let cqe = i32::try_from(cqe).unwrap_or(i32::MAX);
        // SAFETY: the queue lives as long as self.
        let code = unsafe { (self.context.verbs.ibv_resize_cq)(self.cq, cqe) };
        check(&format!("ibv_resize_cq to {cqe}"), code)
    }
}

/// Elements as libibverbs has them.
struct Elements {
    list: [ibv_sge; ELEMENTS],
    count: usize,
}

impl Elements {
    /// At most `limit`, which is what the queue was made for.
    fn new(sges: &[Sge], limit: u32) -> std::result::Result<Elements, PostError> {
        let limit = limit.min(ELEMENTS as u32);
        if sges.len() > limit as usize {
            let count = sges.len();
            return Err(PostError::TooManySges { count, limit });
        }
        let mut list = [ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        }; ELEMENTS];
        for (place, sge) in list.iter_mut().zip(sges) {
            *place = ibv_sge {
                addr: sge.addr,
                length: sge.len,
                lkey: sge.lkey.0,
            };
        }
        Ok(Elements {
            list,
            count: sges.len(),
        })
    }
}

/// What a number of the operating system says of a request that was not taken.
fn refused(code: c_int, capacity: u32) -> PostError {
    match code.abs() {
        // ENOMEM: what all drivers say of a full queue.
        12 => PostError::QueueFull { capacity },
        code => PostError::Device { code },
    }
}

pub(super) struct QueuePair {
    context: Arc<IbvContext>,
    qp: *mut ibv_qp,
    number: QpNumber,
    qp_type: QpType,
    cap: ibv_qp_cap,
}

// SAFETY: any thread may post to a queue pair.
unsafe impl Send for QueuePair {}

impl QueuePair {
    pub(super) fn new(
        context: Arc<IbvContext>,
        qp: *mut ibv_qp,
        spec: &QpSpec,
        cap: ibv_qp_cap,
    ) -> QueuePair {
        QueuePair {
            context,
            qp,
            // SAFETY: it is a queue pair.
            number: QpNumber::new(unsafe { (*qp).qp_num }),
            qp_type: spec.qp_type,
            cap,
        }
    }
}

/// True if the request names an address handle or a window.
fn names_objects(request: &SendRequest<'_>) -> bool {
    request.to.is_some() || matches!(request.work, Work::BindWindow { .. })
}

/// After a request was posted.
fn bound(request: &SendRequest<'_>, send: &ibv_send_wr) {
    if let Work::BindWindow { key, .. } = request.work {
        // Soft-RoCE finds the window by the key it has now, which libibverbs leaves to us.
        // SAFETY: fill has found the window, and whoever posts it has the keys locked.
        unsafe { (*send.bind_mw.mw).rkey = key.0 };
    }
}

impl QueuePair {
    /// A request as libibverbs has it, with `keys` locked if it names objects. It does not point to its elements yet.
    fn prepare(
        &self,
        request: &SendRequest<'_>,
        signaled: bool,
        keys: Option<&Keys>,
    ) -> std::result::Result<(Elements, ibv_send_wr), PostError> {
        if !request.work.fits(self.qp_type) {
            return Err(PostError::Unsupported(request.work));
        }
        if request.to.is_some() != (self.qp_type == QpType::Ud) {
            return Err(PostError::Destination);
        }
        let mut elements = Elements::new(request.sges, self.cap.max_send_sge)?;
        let mut flags = 0;
        for (on, flag) in [
            (signaled, IBV_SEND_SIGNALED),
            (request.solicited, IBV_SEND_SOLICITED),
            (request.fence, IBV_SEND_FENCE),
        ] {
            if on {
                flags |= flag;
            }
        }
        if let Some(data) = request.inline {
            // The driver copies what the element says without asking for a key.
            if data.len() > self.cap.max_inline_data as usize || !request.work.sends_data() {
                return Err(PostError::Inline {
                    len: data.len(),
                    limit: self.cap.max_inline_data as usize,
                });
            }
            elements.list[0] = ibv_sge {
                addr: data.as_ptr() as u64,
                length: data.len() as u32,
                lkey: 0,
            };
            elements.count = usize::from(!data.is_empty());
            flags |= IBV_SEND_INLINE;
        }
        // SAFETY: every field is a number or a pointer, and may be zero.
        let mut send: ibv_send_wr = unsafe { std::mem::zeroed() };
        send.wr_id = request.wr_id;
        send.num_sge = elements.count as c_int;
        send.send_flags = flags;
        fill(request.work, keys, &mut send)?;
        if let Some(to) = request.to {
            let known = keys.map(|k| k.addresses.get(to.address.place));
            let Some(Some(&ah)) = known else {
                return Err(PostError::Destination);
            };
            send.wr = wr {
                ud: ud {
                    ah,
                    remote_qpn: to.qp.get(),
                    remote_qkey: to.qkey,
                },
            };
        }
        Ok((elements, send))
    }

    /// Posts a list of requests, all of which stay in their places until this returns; the one that was not taken.
    fn ring(
        &self,
        first: *mut ibv_send_wr,
    ) -> std::result::Result<(), (*const ibv_send_wr, PostError)> {
        let Some(post) = self.context.ops().post_send else {
            return Err((first.cast_const(), PostError::Device { code: 95 }));
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair lives as long as self; the driver copies the requests before it returns.
        match unsafe { post(self.qp, first, &raw mut bad) } {
            0 => Ok(()),
            code => Err((bad.cast_const(), refused(code, self.cap.max_send_wr))),
        }
    }
}

/// Opcode, immediate data or key, and the part of the request that goes with the opcode.
fn fill(
    work: Work,
    keys: Option<&Keys>,
    to: &mut ibv_send_wr,
) -> std::result::Result<(), PostError> {
    let rdma = |remote: crate::Remote| wr {
        rdma: rdma {
            remote_addr: remote.addr,
            rkey: remote.rkey.0,
        },
    };
    let atomic = |remote: crate::Remote, compare_add, swap| wr {
        atomic: atomic {
            remote_addr: remote.addr,
            compare_add,
            swap,
            rkey: remote.rkey.0,
        },
    };
    let immediate = |i: Immediate| u32::from_ne_bytes(i.0);
    to.opcode = match work {
        Work::Send => IBV_WR_SEND,
        Work::SendImmediate(_) => IBV_WR_SEND_WITH_IMM,
        Work::SendInvalidate(_) => IBV_WR_SEND_WITH_INV,
        Work::Write(_) => IBV_WR_RDMA_WRITE,
        Work::WriteImmediate(..) => IBV_WR_RDMA_WRITE_WITH_IMM,
        Work::Read(_) => IBV_WR_RDMA_READ,
        Work::CompareSwap { .. } => IBV_WR_ATOMIC_CMP_AND_SWP,
        Work::FetchAdd { .. } => IBV_WR_ATOMIC_FETCH_AND_ADD,
        Work::AtomicWrite(_) => IBV_WR_ATOMIC_WRITE,
        Work::BindWindow { .. } => IBV_WR_BIND_MW,
        Work::LocalInvalidate(_) => IBV_WR_LOCAL_INV,
    };
    match work {
        Work::Send => {}
        Work::SendImmediate(i) => to.imm_data = immediate(i),
        Work::SendInvalidate(key) | Work::LocalInvalidate(key) => to.imm_data = key.0,
        Work::Write(at) | Work::Read(at) | Work::AtomicWrite(at) => to.wr = rdma(at),
        Work::WriteImmediate(at, i) => {
            to.imm_data = immediate(i);
            to.wr = rdma(at);
        }
        Work::CompareSwap { at, compare, swap } => to.wr = atomic(at, compare, swap),
        Work::FetchAdd { at, add } => to.wr = atomic(at, add, 0),
        Work::BindWindow { key, binding } => {
            let window = keys.and_then(|k| k.windows.get(&(key.0 >> 8)).copied());
            let region = keys.and_then(|k| k.regions.get(&binding.lkey.0).copied());
            let (Some(mw), Some(mr)) = (window, region) else {
                // EINVAL: what a driver says of a window or region that is not its own.
                return Err(PostError::Device { code: 22 });
            };
            to.bind_mw = bind_mw {
                mw,
                rkey: key.0,
                bind_info: convert::binding(&binding, mr),
            };
        }
    }
    Ok(())
}

impl provider::QueuePair for QueuePair {
    fn number(&self) -> QpNumber {
        self.number
    }

    fn cap(&self) -> QpCap {
        convert::cap(&self.cap)
    }

    fn post_send(&mut self, request: &SendRequest<'_>) -> std::result::Result<(), PostError> {
        // Held until the request is posted, so that no address handle or window is destroyed meanwhile.
        let keys = names_objects(request).then(|| self.context.keys());
        let (mut elements, mut send) = self.prepare(request, request.signaled, keys.as_deref())?;
        send.sg_list = elements.list.as_mut_ptr();
        self.ring(&raw mut send).map_err(|(_, e)| e)?;
        bound(request, &send);
        Ok(())
    }

    fn post_send_list(
        &mut self,
        requests: &[SendRequest<'_>],
        signal_all: bool,
    ) -> std::result::Result<(), BadRequest> {
        let keys = requests
            .iter()
            .any(names_objects)
            .then(|| self.context.keys());
        let mut outcome = Ok(());
        let mut list = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter().enumerate() {
            let signaled = request.signaled || signal_all;
            match self.prepare(request, signaled, keys.as_deref()) {
                Ok(prepared) => list.push(prepared),
                Err(source) => {
                    outcome = Err(BadRequest { index, source });
                    break;
                }
            }
        }
        // From here on they stay where they are.
        let mut next = std::ptr::null_mut();
        for (elements, send) in list.iter_mut().rev() {
            send.sg_list = elements.list.as_mut_ptr();
            send.next = next;
            next = &raw mut *send;
        }
        if next.is_null() {
            return outcome;
        }
        let mut posted = list.len();
        if let Err((bad, source)) = self.ring(next) {
            let place = list.iter().position(|(_, send)| std::ptr::eq(send, bad));
            posted = place.unwrap_or(0);
            let index = posted;
            outcome = Err(BadRequest { index, source });
        }
        for (request, (_, send)) in requests.iter().zip(&list[..posted]) {
            bound(request, send);
        }
        outcome
    }

    fn post_recv(&mut self, request: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        let Some(post) = self.context.ops().post_recv else {
            return Err(PostError::Device { code: 95 });
        };
        let mut elements = Elements::new(request.sges, self.cap.max_recv_sge)?;
        let mut receive = receive(request, &mut elements);
        let mut bad = std::ptr::null_mut();
        // SAFETY: as in post_send.
        match unsafe { post(self.qp, &raw mut receive, &raw mut bad) } {
            0 => Ok(()),
            code => Err(refused(code, self.cap.max_recv_wr)),
        }
    }
}

fn receive(request: &RecvRequest<'_>, elements: &mut Elements) -> ibv_recv_wr {
    ibv_recv_wr {
        wr_id: request.wr_id,
        next: std::ptr::null_mut(),
        sg_list: elements.list.as_mut_ptr(),
        num_sge: elements.count as c_int,
    }
}

pub(super) struct SharedReceiveQueue {
    context: Arc<IbvContext>,
    srq: *mut ibv_srq,
    attr: ibv_srq_attr,
}

// SAFETY: any thread may post to a shared receive queue.
unsafe impl Send for SharedReceiveQueue {}

impl SharedReceiveQueue {
    pub(super) fn new(context: Arc<IbvContext>, srq: *mut ibv_srq, attr: ibv_srq_attr) -> Self {
        SharedReceiveQueue { context, srq, attr }
    }
}

impl provider::SharedReceiveQueue for SharedReceiveQueue {
    fn post_recv(&mut self, request: &RecvRequest<'_>) -> std::result::Result<(), PostError> {
        let Some(post) = self.context.ops().post_srq_recv else {
            return Err(PostError::Device { code: 95 });
        };
        let mut elements = Elements::new(request.sges, self.attr.max_sge)?;
        let mut receive = receive(request, &mut elements);
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue lives as long as self; the driver copies the request before it returns.
        match unsafe { post(self.srq, &raw mut receive, &raw mut bad) } {
            0 => Ok(()),
            code => Err(refused(code, self.attr.max_wr)),
        }
    }
}
