//! What a flow is asked to do, and what cannot be asked of it.

use super::connect::FlowError;
use crate::card::{AddressVector, Mtu, QpType, Remote, Work};
use crate::memory::{Access, Binding, LocalKey};
use crate::time::Time;
use crate::wire::{Gid, Immediate, MacAddr, Psn, RemoteKey};

/// What a flow asks its card to do, over and over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowOperation {
    /// SEND.
    Send,
    /// SEND with immediate data: the number of the message.
    SendImmediate,
    /// SEND that ends the validity of a window's key. The receiver binds a window of type 2 to the buffer
    /// of each receive before it posts it; each message names the next window.
    SendInvalidate,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data: the number of the message.
    WriteImmediate,
    /// RDMA READ.
    Read,
    /// Compare and swap: each message finds what the one before has left, and counts it up by one.
    CompareSwap,
    /// Fetch and add of one.
    FetchAdd,
    /// ATOMIC WRITE of a number that goes up by one.
    AtomicWrite,
    /// A window of type 2 is bound to the sender's own memory, and with the next request its key
    /// invalidated, in turns. Nothing is sent.
    Bind,
}

impl FlowOperation {
    /// All of them.
    pub const ALL: [FlowOperation; 10] = [
        FlowOperation::Send,
        FlowOperation::SendImmediate,
        FlowOperation::SendInvalidate,
        FlowOperation::Write,
        FlowOperation::WriteImmediate,
        FlowOperation::Read,
        FlowOperation::CompareSwap,
        FlowOperation::FetchAdd,
        FlowOperation::AtomicWrite,
        FlowOperation::Bind,
    ];

    /// True if a queue pair of this service has it.
    pub fn fits(self, transport: QpType) -> bool {
        self.sample().fits(transport)
    }

    /// True if each message takes a receive request of the peer's.
    pub fn takes_receives(self) -> bool {
        self.sample().takes_receive()
    }

    /// True if it is a SEND of some kind: its data goes where the receive request says.
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            FlowOperation::Send | FlowOperation::SendImmediate | FlowOperation::SendInvalidate
        )
    }

    /// True if it works on one word of eight bytes.
    pub const fn is_atomic(self) -> bool {
        matches!(
            self,
            FlowOperation::CompareSwap | FlowOperation::FetchAdd | FlowOperation::AtomicWrite
        )
    }

    /// True if it names memory of the peer's by address and key.
    pub const fn is_remote(self) -> bool {
        !self.is_send() && !matches!(self, FlowOperation::Bind)
    }

    /// The most messages of a flow. Binding takes no time, so that it would never end by the clock.
    pub const fn max_count(self) -> u64 {
        match self {
            FlowOperation::Bind => 1 << 20,
            _ => u64::MAX,
        }
    }

    /// A request of the kind.
    fn sample(self) -> Work {
        let at = Remote {
            addr: 0,
            rkey: RemoteKey(0),
        };
        let binding = Binding {
            lkey: LocalKey(0),
            addr: 0,
            len: 1,
            access: Access::LOCAL_READ,
            zero_based: false,
        };
        self.work(0, 0, at, at.rkey, &binding)
    }

    /// Message `n`: atomics find `start` in the beginning, SENDs with invalidation and windows have `key`.
    #[inline]
    pub(super) fn work(
        self,
        n: u64,
        start: u64,
        at: Remote,
        key: RemoteKey,
        binding: &Binding,
    ) -> Work {
        let immediate = Immediate::from_be(n as u32);
        match self {
            FlowOperation::Send => Work::Send,
            FlowOperation::SendImmediate => Work::SendImmediate(immediate),
            FlowOperation::SendInvalidate => Work::SendInvalidate(key),
            FlowOperation::Write => Work::Write(at),
            FlowOperation::WriteImmediate => Work::WriteImmediate(at, immediate),
            FlowOperation::Read => Work::Read(at),
            FlowOperation::CompareSwap => {
                let compare = start.wrapping_add(n);
                let swap = compare.wrapping_add(1);
                Work::CompareSwap { at, compare, swap }
            }
            FlowOperation::FetchAdd => Work::FetchAdd { at, add: 1 },
            FlowOperation::AtomicWrite => Work::AtomicWrite(at),
            FlowOperation::Bind if n.is_multiple_of(2) => Work::BindWindow {
                key,
                binding: *binding,
            },
            FlowOperation::Bind => Work::LocalInvalidate(key),
        }
    }
}

/// What the program of a flow does wrong, on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// The elements of requests have a local key that names nothing.
    LocalKey,
    /// The elements of receive requests have one.
    ReceiveKey,
    /// Requests have a remote key that names nothing.
    RemoteKey,
    /// Requests have the key of a region whose registration has ended.
    Invalidated,
    /// Requests have the key of a region in another protection domain than the queue pair's; datagrams an
    /// address handle of one.
    Domain,
    /// Requests begin where the region ends.
    Address,
    /// Atomics go to an address that is not a multiple of eight.
    Alignment,
    /// The receiver's queue pair has another path MTU, from the first message on.
    PathMtu,
    /// Datagrams have another Q_Key than the receiver's queue pair.
    QKey,
    /// Windows are bound to a region that does not allow it.
    Binding,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Mistake; 10] = [
        Mistake::LocalKey,
        Mistake::ReceiveKey,
        Mistake::RemoteKey,
        Mistake::Invalidated,
        Mistake::Domain,
        Mistake::Address,
        Mistake::Alignment,
        Mistake::PathMtu,
        Mistake::QKey,
        Mistake::Binding,
    ];

    /// True if a flow of these requests can make it.
    pub const fn fits(self, operation: FlowOperation, transport: QpType) -> bool {
        use FlowOperation as O;
        let datagrams = matches!(transport, QpType::Ud);
        match self {
            Mistake::LocalKey => !matches!(operation, O::Bind),
            Mistake::ReceiveKey => operation.is_send(),
            Mistake::RemoteKey | Mistake::Invalidated => {
                operation.is_remote() || matches!(operation, O::SendInvalidate)
            }
            Mistake::Domain => operation.is_remote() || datagrams,
            Mistake::Address => operation.is_remote(),
            Mistake::Alignment => operation.is_atomic(),
            Mistake::PathMtu => {
                !datagrams && !matches!(operation, O::Bind) && !operation.is_atomic()
            }
            Mistake::QKey => datagrams,
            Mistake::Binding => matches!(operation, O::Bind),
        }
    }
}

/// A flow from one host to another.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Names its random stream, from which the data is drawn.
    pub name: String,
    /// Transport service. What is lost on an unreliable one is not received, and nobody is told.
    pub transport: QpType,
    /// Operation.
    pub operation: FlowOperation,
    /// Bytes of a message; 8 for atomics, at most the path MTU for datagrams.
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
    /// Bytes of each receive request for SENDs, beside the 40 in front of a datagram; `None` for those of a
    /// message.
    pub recv_size: Option<u32>,
    /// When the receiver posts its first receive requests.
    pub recv_start: Time,
    /// What the receiver's queue pair lets the sender do.
    pub qp_access: Access,
    /// What the receiver's memory is registered for.
    pub mr_access: Access,
    /// What goes wrong, and from which message on, counted from 0.
    pub mistake: Option<(Mistake, u64)>,
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
    /// READs and atomics outstanding at once.
    pub max_rd_atomic: u8,
    /// First PSN of the sender and of the receiver; `None` draws them from the card's seed.
    pub first_psn: Option<(Psn, Psn)>,
}

/// Everything a peer may be allowed.
const ALL_RIGHTS: [Access; 3] = [
    Access::REMOTE_WRITE,
    Access::REMOTE_READ,
    Access::REMOTE_ATOMIC,
];

impl FlowSpec {
    /// `count` messages of `size` bytes over a reliable connection, one at a time, at MTU 1024, with the
    /// usual timeout (14) and retry counts (7), from the beginning of time.
    pub fn new(operation: FlowOperation, size: u32, count: u64) -> FlowSpec {
        let [write, read, atomic] = ALL_RIGHTS;
        FlowSpec {
            name: String::from("flow"),
            transport: QpType::Rc,
            operation,
            size,
            count,
            depth: 1,
            start: Time::ZERO,
            stop: Time::NEVER,
            signal_every: 1,
            sges: 1,
            recv_depth: 16,
            recv_size: None,
            recv_start: Time::ZERO,
            qp_access: write | read | atomic,
            mr_access: write | read | atomic,
            mistake: None,
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

    /// The first message or receive request that has `mistake`; `u64::MAX` if none has.
    pub(super) fn first_with(&self, mistake: Mistake) -> u64 {
        match self.mistake {
            Some((m, from)) if m == mistake => from,
            _ => u64::MAX,
        }
    }

    /// Bytes in front of the data in a receive's buffer.
    pub(super) fn header_len(&self) -> u32 {
        match self.transport {
            QpType::Ud => 40,
            QpType::Rc | QpType::Uc => 0,
        }
    }

    /// Bytes that each receive request asks for.
    pub(super) fn recv_len(&self) -> u32 {
        self.header_len() + self.recv_size.unwrap_or(self.size)
    }

    /// The way to a peer.
    pub(super) fn address(&self, gid: Gid, mac: MacAddr) -> AddressVector {
        AddressVector {
            dgid: gid,
            dmac: mac,
            sl: self.sl,
            traffic_class: self.dscp << 2,
            hop_limit: 64,
            flow_label: 0,
            udp_src: self.udp_src,
            vlan: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), FlowError> {
        let (transport, operation) = (self.transport, self.operation);
        if !operation.fits(transport) {
            return Err(FlowError::Operation {
                operation,
                transport,
            });
        }
        if let Some((mistake, _)) = self.mistake
            && !mistake.fits(operation, transport)
        {
            return Err(FlowError::Mistake {
                mistake,
                operation,
                transport,
            });
        }
        let size = match (operation, transport) {
            (_, QpType::Ud) => (0, self.mtu.bytes().into()),
            (FlowOperation::Bind, _) => (1, 1 << 31),
            (o, _) if o.is_atomic() => (8, 8),
            _ => (0, 1 << 31),
        };
        let limits = [
            ("size", u64::from(self.size), size),
            ("count", self.count, (1, self.operation.max_count())),
            ("depth", self.depth.into(), (1, crate::card::MAX_WR.into())),
            (
                "signal_every",
                self.signal_every.into(),
                (1, self.depth.into()),
            ),
            ("sges", self.sges.into(), (1, crate::card::MAX_SGE.into())),
            (
                "recv_depth",
                self.recv_depth.into(),
                (0, crate::card::MAX_WR.into()),
            ),
            (
                "recv_size",
                self.recv_size.unwrap_or(0).into(),
                (0, 1 << 31),
            ),
            ("dscp", self.dscp.into(), (0, 63)),
        ];
        for (field, value, (least, limit)) in limits {
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
}
