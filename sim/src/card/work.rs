//! Work requests and completions: what a program gives its card and what it gets back. The handles it
//! does that with are in [`program`](super::program).

use super::qp::State;
use super::qp::attributes::QpType;
use crate::memory::{Binding, LocalKey};
use crate::wire::{Immediate, QpNumber, RemoteKey};

/// The longest message in bytes: 2^31.
pub const MAX_MESSAGE_LEN: u64 = 1 << 31;

/// A scatter or gather element (`ibv_sge`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Key of the region it lies in.
    pub lkey: LocalKey,
}

/// Where in the peer's memory an RDMA operation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// First byte.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: RemoteKey,
}

/// What a send request asks for (`ibv_wr_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImmediate(Immediate),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE with immediate data.
    WriteImmediate(Remote, Immediate),
    /// SEND that ends the validity of a key of the peer's.
    SendInvalidate(RemoteKey),
    /// RDMA READ.
    Read(Remote),
    /// Atomic compare and swap of eight bytes.
    CompareSwap {
        /// Where, 8-byte aligned.
        at: Remote,
        /// What must be there.
        compare: u64,
        /// What is then put there.
        swap: u64,
    },
    /// Atomic fetch and add of eight bytes.
    FetchAdd {
        /// Where, 8-byte aligned.
        at: Remote,
        /// What is added.
        add: u64,
    },
    /// ATOMIC WRITE of eight bytes (annex A19).
    AtomicWrite(Remote),
    /// Binds a window of type 2 to part of a region. Nothing is sent.
    BindWindow {
        /// The window's key from here on: the old one with another low byte.
        key: RemoteKey,
        /// Part of a region, and what peers may do there.
        binding: Binding,
    },
    /// Ends the validity of a key of one's own. Nothing is sent.
    LocalInvalidate(RemoteKey),
}

impl Work {
    /// True if it carries data to the peer.
    #[inline]
    pub const fn sends_data(self) -> bool {
        matches!(
            self,
            Work::Send
                | Work::SendImmediate(_)
                | Work::SendInvalidate(_)
                | Work::Write(_)
                | Work::WriteImmediate(..)
                | Work::AtomicWrite(_)
        )
    }

    /// True if it takes a receive request of the peer's.
    #[inline]
    pub const fn takes_receive(self) -> bool {
        matches!(
            self,
            Work::Send
                | Work::SendImmediate(_)
                | Work::SendInvalidate(_)
                | Work::WriteImmediate(..)
        )
    }

    /// True if the peer keeps its answer for repetition, so that the number outstanding is limited: READ
    /// and atomics.
    #[inline]
    pub const fn takes_resource(self) -> bool {
        matches!(
            self,
            Work::Read(_) | Work::CompareSwap { .. } | Work::FetchAdd { .. } | Work::AtomicWrite(_)
        )
    }

    /// Its name in reports: `WRITE`.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Send => "SEND",
            Work::SendImmediate(_) => "SEND with immediate data",
            Work::SendInvalidate(_) => "SEND with invalidation",
            Work::Write(_) => "WRITE",
            Work::WriteImmediate(..) => "WRITE with immediate data",
            Work::Read(_) => "READ",
            Work::CompareSwap { .. } => "COMPARE SWAP",
            Work::FetchAdd { .. } => "FETCH ADD",
            Work::AtomicWrite(_) => "ATOMIC WRITE",
            Work::BindWindow { .. } => "BIND WINDOW",
            Work::LocalInvalidate(_) => "LOCAL INVALIDATE",
        }
    }

    /// True if nothing is sent for it.
    #[inline]
    pub const fn is_local(self) -> bool {
        matches!(self, Work::BindWindow { .. } | Work::LocalInvalidate(_))
    }

    /// True if a queue pair of this type can do it.
    pub const fn fits(self, qp_type: QpType) -> bool {
        match qp_type {
            QpType::Rc => true,
            QpType::Uc => matches!(
                self,
                Work::Send
                    | Work::SendImmediate(_)
                    | Work::Write(_)
                    | Work::WriteImmediate(..)
                    | Work::BindWindow { .. }
                    | Work::LocalInvalidate(_)
            ),
            QpType::Ud => matches!(self, Work::Send | Work::SendImmediate(_)),
        }
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Address.
    pub address: AddressHandle,
    /// Queue pair there.
    pub qp: QpNumber,
    /// Its Q_Key. If the top bit is set, the sender's own Q_Key is sent instead (C10-15).
    pub qkey: u32,
}

/// An address handle: names an address vector that the card knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressHandle {
    /// Names it on its card.
    pub place: u32,
    /// For who keeps cards apart: which of them it is of, in numbers of its own. The card does not look at it, and makes
    /// it 0.
    pub context: u32,
}

impl AddressHandle {
    /// The handle at a place, of context 0.
    pub const fn new(place: u32) -> AddressHandle {
        AddressHandle { place, context: 0 }
    }
}

impl std::fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AddressHandle({})", self.place)
    }
}

/// A send request (`ibv_send_wr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRequest<'a> {
    /// Given back in the completion.
    pub wr_id: u64,
    /// The operation.
    pub work: Work,
    /// Local memory: what to send, or where READ data goes.
    pub sges: &'a [Sge],
    /// Ask for a completion on success too.
    pub signaled: bool,
    /// Set the solicited event bit.
    pub solicited: bool,
    /// Wait until earlier READs and atomics are done (10.8.3.3).
    pub fence: bool,
    /// Data that is taken now instead of from `sges`, at most [`MAX_INLINE`] bytes.
    pub inline: Option<&'a [u8]>,
    /// Where it goes, on a queue pair for datagrams.
    pub to: Option<Datagram>,
}

impl<'a> SendRequest<'a> {
    /// A request that asks for a completion, and for nothing else out of the ordinary.
    pub const fn new(wr_id: u64, work: Work, sges: &'a [Sge]) -> SendRequest<'a> {
        SendRequest {
            wr_id,
            work,
            sges,
            signaled: true,
            solicited: false,
            fence: false,
            inline: None,
            to: None,
        }
    }
}

/// The most bytes of inline data (ConnectX: some hundreds, by configuration).
pub const MAX_INLINE: usize = 256;

/// A receive request (`ibv_recv_wr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvRequest<'a> {
    /// Given back in the completion.
    pub wr_id: u64,
    /// Where the data goes.
    pub sges: &'a [Sge],
}

/// How a request ended (`ibv_wc_status`, with its values).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Status {
    /// Done.
    Success,
    /// A receive buffer was too short, or a message too long (11.6.2).
    LocalLengthError,
    /// The queue pair was used in a way it does not allow.
    LocalQpOperationError,
    /// A local key does not give the access the request needs.
    LocalProtectionError,
    /// The queue pair went into the error state first.
    WorkRequestFlushed,
    /// A memory window could not be bound.
    WindowBindError,
    /// The peer answered with something that does not fit the request.
    BadResponse,
    /// A WRITE with immediate data had taken the receive and was then refused its remote key.
    LocalAccessError,
    /// The peer refused the request as invalid.
    RemoteInvalidRequest,
    /// The peer's key, range or rights did not allow it.
    RemoteAccessError,
    /// The peer could not carry it out.
    RemoteOperationError,
    /// No answer after every retry.
    RetryExceeded,
    /// The peer had no receive request after every RNR retry.
    RnrRetryExceeded,
    /// Another one, by its number in `ibv_wc_status`: what no software card gives, and drivers of hardware do, as
    /// 16, `IBV_WC_REM_ABORT_ERR`, and 21, `IBV_WC_GENERAL_ERR`.
    Other(u32),
}

impl Status {
    /// All that software cards give, in the order of their values.
    pub const ALL: [Status; 13] = [
        Status::Success,
        Status::LocalLengthError,
        Status::LocalQpOperationError,
        Status::LocalProtectionError,
        Status::WorkRequestFlushed,
        Status::WindowBindError,
        Status::BadResponse,
        Status::LocalAccessError,
        Status::RemoteInvalidRequest,
        Status::RemoteAccessError,
        Status::RemoteOperationError,
        Status::RetryExceeded,
        Status::RnrRetryExceeded,
    ];

    /// The status of this number.
    pub const fn from_number(number: u32) -> Status {
        let mut place = 0;
        while place < Status::ALL.len() {
            if Status::ALL[place].number() == number {
                return Status::ALL[place];
            }
            place += 1;
        }
        Status::Other(number)
    }

    /// Its number in `ibv_wc_status`.
    pub const fn number(self) -> u32 {
        match self {
            Status::Success => 0,
            Status::LocalLengthError => 1,
            Status::LocalQpOperationError => 2,
            Status::LocalProtectionError => 4,
            Status::WorkRequestFlushed => 5,
            Status::WindowBindError => 6,
            Status::BadResponse => 7,
            Status::LocalAccessError => 8,
            Status::RemoteInvalidRequest => 9,
            Status::RemoteAccessError => 10,
            Status::RemoteOperationError => 11,
            Status::RetryExceeded => 12,
            Status::RnrRetryExceeded => 13,
            Status::Other(number) => number,
        }
    }

    /// libibverbs' name without its prefix, in lower case with dashes: `retry-exc-err`; `unknown` if it has none.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::LocalLengthError => "loc-len-err",
            Status::LocalQpOperationError => "loc-qp-op-err",
            Status::LocalProtectionError => "loc-prot-err",
            Status::WorkRequestFlushed => "wr-flush-err",
            Status::WindowBindError => "mw-bind-err",
            Status::BadResponse => "bad-resp-err",
            Status::LocalAccessError => "loc-access-err",
            Status::RemoteInvalidRequest => "rem-inv-req-err",
            Status::RemoteAccessError => "rem-access-err",
            Status::RemoteOperationError => "rem-op-err",
            Status::RetryExceeded => "retry-exc-err",
            Status::RnrRetryExceeded => "rnr-retry-exc-err",
            Status::Other(3) => "loc-eec-op-err",
            Status::Other(14) => "loc-rdd-viol-err",
            Status::Other(15) => "rem-inv-rd-req-err",
            Status::Other(16) => "rem-abort-err",
            Status::Other(17) => "inv-eecn-err",
            Status::Other(18) => "inv-eec-state-err",
            Status::Other(19) => "fatal-err",
            Status::Other(20) => "resp-timeout-err",
            Status::Other(21) => "general-err",
            Status::Other(22) => "tm-err",
            Status::Other(23) => "tm-rndv-incomplete",
            Status::Other(_) => "unknown",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::Other(number) => write!(f, "{} ({number})", self.name()),
            status => f.write_str(status.name()),
        }
    }
}

/// What kind of request a completion is of (`ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CompletionKind {
    /// A SEND of this queue pair.
    Send,
    /// An RDMA WRITE of this queue pair.
    Write,
    /// An RDMA READ of this queue pair.
    Read,
    /// A compare-and-swap of this queue pair.
    CompareSwap,
    /// A fetch-and-add of this queue pair.
    FetchAdd,
    /// An ATOMIC WRITE of this queue pair.
    AtomicWrite,
    /// A window was bound.
    BindWindow,
    /// A key was invalidated.
    LocalInvalidate,
    /// A receive request took a SEND.
    Receive,
    /// A receive request was used up by a WRITE with immediate data.
    ReceiveWithImmediate,
}

/// A completion (`ibv_wc`). Only `wr_id`, `status`, `qp` and `vendor_err` mean something if `status` is not success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// From the request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What the device's driver says of an error beyond `status`, in numbers of its own (mlx5: the syndrome of its
    /// completion); 0 on software cards, which count and explain instead.
    pub vendor_err: u32,
    /// What it was.
    pub kind: CompletionKind,
    /// The queue pair it was posted to.
    pub qp: QpNumber,
    /// Bytes received, or read.
    pub byte_len: u32,
    /// Immediate data that came with it.
    pub immediate: Option<Immediate>,
    /// Key that the peer's SEND has ended the validity of.
    pub invalidated: Option<RemoteKey>,
    /// Queue pair that sent a datagram; 0 for connections.
    pub src_qp: QpNumber,
    /// A datagram's buffer begins with 40 bytes for the GRH or IP header.
    pub grh: bool,
}

impl Completion {
    /// A place for one, to be filled by polling.
    pub const BLANK: Completion = Completion {
        wr_id: 0,
        status: Status::Success,
        vendor_err: 0,
        kind: CompletionKind::Send,
        qp: QpNumber::GSI,
        byte_len: 0,
        immediate: None,
        invalidated: None,
        src_qp: QpNumber::GSI,
        grh: false,
    };
}

/// Why a request was not taken (posting fails at once, nothing is queued).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// The queue is full.
    #[error("the queue holds {capacity} requests, and all are in use")]
    QueueFull {
        /// Requests it was made for.
        capacity: u32,
    },
    /// Too many elements.
    #[error("{count} scatter-gather elements; this queue takes {limit}")]
    TooManySges {
        /// Elements given.
        count: usize,
        /// Elements the queue was made for.
        limit: u32,
    },
    /// Too much inline data, or inline data that does not go with the operation.
    #[error("{len} bytes of inline data; the limit for this request is {limit}")]
    Inline {
        /// Bytes given.
        len: usize,
        /// The most there can be.
        limit: usize,
    },
    /// The queue pair's service does not have the operation.
    #[error("{0:?} is not an operation of this queue pair's service")]
    Unsupported(Work),
    /// A datagram without destination, or a destination on a connection.
    #[error("a destination belongs to datagrams, and to each of them")]
    Destination,
    /// The address handle was made in another device context.
    #[error("the address handle belongs to another device context")]
    ForeignAddress,
    /// Receive requests go to the shared receive queue.
    #[error("the queue pair takes its receive requests from a shared receive queue")]
    SharedReceiveQueue,
    /// Hardware refuses it.
    #[error("the device refuses the request: {}", std::io::Error::from_raw_os_error(*code))]
    Device {
        /// What its driver says, a number of the operating system's.
        code: i32,
    },
    /// The state does not allow posting here (C10-22, C10-25, C10-29).
    #[error("a queue pair in {state} takes no {queue} requests")]
    WrongState {
        /// State of the queue pair.
        state: State,
        /// "send" or "receive".
        queue: &'static str,
    },
}

/// A send request as it stands in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEntry {
    pub(crate) wr_id: u64,
    pub(crate) work: Work,
    /// Sum of the elements' lengths; checked against [`MAX_MESSAGE_LEN`] when it is its turn.
    pub(crate) len: u64,
    pub(crate) sges: SgeRun,
    /// Inline data, in the ring of the queue's own.
    pub(crate) inline: SgeRun,
    pub(crate) to: Option<Datagram>,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
}

/// A receive request as it stands in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvEntry {
    pub(crate) wr_id: u64,
    pub(crate) len: u64,
    pub(crate) sges: SgeRun,
}

/// Elements `first` to `first + count` of the element ring beside the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SgeRun {
    pub(crate) first: u64,
    pub(crate) count: u32,
}

/// Names a shared receive queue of a card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SrqId(pub u32);

/// Names a completion queue of a card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CqId(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_values_and_names_of_libibverbs() {
        // enum ibv_wc_status.
        let verbs = [
            (0, "SUCCESS"),
            (1, "LOC_LEN_ERR"),
            (2, "LOC_QP_OP_ERR"),
            (3, "LOC_EEC_OP_ERR"),
            (4, "LOC_PROT_ERR"),
            (5, "WR_FLUSH_ERR"),
            (6, "MW_BIND_ERR"),
            (7, "BAD_RESP_ERR"),
            (8, "LOC_ACCESS_ERR"),
            (9, "REM_INV_REQ_ERR"),
            (10, "REM_ACCESS_ERR"),
            (11, "REM_OP_ERR"),
            (12, "RETRY_EXC_ERR"),
            (13, "RNR_RETRY_EXC_ERR"),
            (14, "LOC_RDD_VIOL_ERR"),
            (15, "REM_INV_RD_REQ_ERR"),
            (16, "REM_ABORT_ERR"),
            (17, "INV_EECN_ERR"),
            (18, "INV_EEC_STATE_ERR"),
            (19, "FATAL_ERR"),
            (20, "RESP_TIMEOUT_ERR"),
            (21, "GENERAL_ERR"),
            (22, "TM_ERR"),
            (23, "TM_RNDV_INCOMPLETE"),
        ];
        for (number, name) in verbs {
            let status = Status::from_number(number);
            let name = name.to_lowercase().replace('_', "-");
            assert_eq!((status.number(), status.name()), (number, &*name));
            let text = match Status::ALL.contains(&status) {
                true => name,
                false => format!("{name} ({number})"),
            };
            assert_eq!(status.to_string(), text);
        }
        for number in [24, u32::MAX] {
            let status = Status::from_number(number);
            assert_eq!(status, Status::Other(number));
            assert_eq!(status.to_string(), format!("unknown ({number})"));
        }
    }

    #[test]
    fn an_error_names_the_state_as_the_specification_does() {
        let names = State::ALL.map(|state| {
            let queue = "send";
            PostError::WrongState { state, queue }.to_string()
        });
        let spec = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERROR"];
        assert_eq!(
            names,
            spec.map(|state| format!("a queue pair in {state} takes no send requests"))
        );
    }
}
