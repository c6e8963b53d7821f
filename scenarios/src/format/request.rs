//! What the requests of a load are: service, operation, what the other end allows, and what is wrong with
//! them.

use super::choices::choices;
use super::document::Value;
use super::pattern;
use super::reader::Reader;
use super::schema::{Key, Kind};
use super::traffic::Own;
use crate::units::Size;
use softroce_sim::card::QpType;
use softroce_sim::fabric::machine::{self, FlowOperation};
use softroce_sim::memory::Access;

choices! {
    /// The transport service.
    pub enum Transport {
        /// Reliable connection.
        Rc = "rc",
        /// Unreliable connection.
        Uc = "uc",
        /// Unreliable datagrams.
        Ud = "ud",
    }
}

impl Transport {
    /// As the card has it.
    pub const fn qp_type(self) -> QpType {
        match self {
            Transport::Rc => QpType::Rc,
            Transport::Uc => QpType::Uc,
            Transport::Ud => QpType::Ud,
        }
    }
}

choices! {
    /// What a request does.
    pub enum Operation {
        /// SEND into a posted receive.
        Send = "send",
        /// SEND with immediate data.
        SendImm = "send-imm",
        /// SEND that ends the validity of a window's key.
        SendInv = "send-inv",
        /// RDMA WRITE.
        Write = "write",
        /// RDMA WRITE with immediate data, which uses up a receive.
        WriteImm = "write-imm",
        /// RDMA READ: the data flows from `to` to `from`.
        Read = "read",
        /// Compare and swap.
        CompareSwap = "compare-swap",
        /// Fetch and add.
        FetchAdd = "fetch-add",
        /// ATOMIC WRITE.
        AtomicWrite = "atomic-write",
        /// Binds a window, and ends the validity of its key, in turns.
        Bind = "bind",
    }
}

impl Operation {
    /// What a flow of the simulator does.
    pub const fn flow(self) -> FlowOperation {
        match self {
            Operation::Send => FlowOperation::Send,
            Operation::SendImm => FlowOperation::SendImmediate,
            Operation::SendInv => FlowOperation::SendInvalidate,
            Operation::Write => FlowOperation::Write,
            Operation::WriteImm => FlowOperation::WriteImmediate,
            Operation::Read => FlowOperation::Read,
            Operation::CompareSwap => FlowOperation::CompareSwap,
            Operation::FetchAdd => FlowOperation::FetchAdd,
            Operation::AtomicWrite => FlowOperation::AtomicWrite,
            Operation::Bind => FlowOperation::Bind,
        }
    }

    /// True if it is a SEND or WRITE, whose packets carry the data from the host that posts the request.
    pub const fn sends_data(self) -> bool {
        self.flow().is_send() || matches!(self, Operation::Write | Operation::WriteImm)
    }

    /// True if it uses up a receive at the other end.
    pub fn needs_receive(self) -> bool {
        self.flow().takes_receives()
    }
}

choices! {
    /// Something that a peer may be allowed.
    pub enum Right {
        /// RDMA WRITE and ATOMIC WRITE.
        Write = "write",
        /// RDMA READ.
        Read = "read",
        /// Compare and swap, fetch and add.
        Atomic = "atomic",
    }
}

choices! {
    /// What a program does wrong, on purpose.
    pub enum Mistake {
        /// A local key of requests names nothing.
        LocalKey = "lkey",
        /// That of receives does.
        ReceiveKey = "recv-lkey",
        /// A remote key names nothing.
        RemoteKey = "rkey",
        /// A remote key is that of memory that is no longer registered.
        Invalidated = "stale-key",
        /// Memory or an address handle is of another protection domain.
        Domain = "domain",
        /// A remote address lies behind the memory.
        Address = "address",
        /// A remote address is not a multiple of eight.
        Alignment = "alignment",
        /// The two ends have not the same path MTU.
        PathMtu = "mtu",
        /// Datagrams have another Q_Key.
        QKey = "qkey",
        /// Memory does not allow windows.
        Binding = "binding",
    }
}

impl Mistake {
    /// As a flow of the simulator has it.
    pub const fn flow(self) -> machine::Mistake {
        match self {
            Mistake::LocalKey => machine::Mistake::LocalKey,
            Mistake::ReceiveKey => machine::Mistake::ReceiveKey,
            Mistake::RemoteKey => machine::Mistake::RemoteKey,
            Mistake::Invalidated => machine::Mistake::Invalidated,
            Mistake::Domain => machine::Mistake::Domain,
            Mistake::Address => machine::Mistake::Address,
            Mistake::Alignment => machine::Mistake::Alignment,
            Mistake::PathMtu => machine::Mistake::PathMtu,
            Mistake::QKey => machine::Mistake::QKey,
            Mistake::Binding => machine::Mistake::Binding,
        }
    }
}

/// Rights as the card has them.
fn access(rights: &[Right]) -> Access {
    let each = rights.iter().map(|right| match right {
        Right::Write => Access::REMOTE_WRITE,
        Right::Read => Access::REMOTE_READ,
        Right::Atomic => Access::REMOTE_ATOMIC,
    });
    each.fold(Access::LOCAL_READ, |all, one| all | one)
}

const SENDS: &[&str] = &["send", "send-imm", "send-inv"];
pub(super) const RECEIVING: &[&str] = &["send", "send-imm", "send-inv", "write-imm"];
const REMOTE: &[&str] = &[
    "write",
    "write-imm",
    "read",
    "compare-swap",
    "fetch-add",
    "atomic-write",
];

pub(super) const OPERATION: Key = Key::required(
    "operation",
    Kind::Choice(Operation::NAMES),
    "What each request does. In a `read` the data flows from `to` to `from`. `send-inv` ends the \
     validity of the key of a window that `to` has bound to the receive's buffer. Atomics count up a \
     word by one with each request. `bind` binds a window to the memory of `from`, and with the next \
     request ends the validity of its key; nothing is sent.",
);
pub(super) const TRANSPORT: Key = Key::with(
    "transport",
    Kind::Choice(Transport::NAMES),
    "rc",
    "Transport service: reliable connection, unreliable connection, or unreliable datagrams. `uc` \
     has `send`, `send-imm`, `write`, `write-imm` and `bind`, `ud` has `send` and `send-imm`, of at \
     most one path MTU. On those two a request is done when it is on its way; what is lost is not \
     received.",
)
.only("pattern", pattern::FLOWS);
pub(super) const RECV_SIZE: Key = Key::optional(
    "recv-size",
    Kind::Size(0, 1 << 31),
    "`size`",
    "Bytes of the buffer of each receive, beside the 40 in front of a datagram. A SEND that is longer \
     is refused, a datagram dropped.",
)
.only("operation", SENDS);
pub(super) const QP_ACCESS: Key = Key::optional(
    "qp-access",
    Kind::Choices(Right::NAMES),
    "all three",
    "What the queue pair at `to` lets `from` do (`qp_access_flags`); other requests are invalid.",
)
.only("operation", REMOTE);
pub(super) const MR_ACCESS: Key = Key::optional(
    "mr-access",
    Kind::Choices(Right::NAMES),
    "all three",
    "What the memory at `to` is registered for (`ibv_reg_mr`); other requests meet an access error.",
)
.only("operation", REMOTE);
pub(super) const MISTAKE: Key = Key::optional(
    "mistake",
    Kind::Choice(Mistake::NAMES),
    "none",
    "Something the programs do wrong. `lkey`: requests name a local key that does not exist. \
     `recv-lkey`: receives do. `rkey`: requests name a remote key that does not exist. `stale-key`: \
     one whose memory is no longer registered. `domain`: one of another protection domain; of \
     datagrams the address handle is of another. `address`: requests begin where the memory ends. \
     `alignment`: atomics go to an address that is not a multiple of eight. `mtu`: the queue pair at \
     `to` has another path MTU, from the beginning. `qkey`: datagrams have another Q_Key. `binding`: \
     windows are bound to memory that is not registered for it.",
)
.only("pattern", pattern::FLOWS);
pub(super) const MISTAKE_FROM: Key = Key::with(
    "mistake-from",
    Kind::Count(1, 1 << 40),
    "1",
    "The first request or receive of each queue pair with the `mistake`; those before are as they \
     should be.",
);

/// What is read of the requests of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    pub(super) transport: Transport,
    pub(super) recv_size: Option<Size>,
    pub(super) qp_access: Access,
    pub(super) mr_access: Access,
    pub(super) mistake: Option<(Mistake, u64)>,
}

impl Requests {
    /// Reads all but the operation.
    pub(super) fn read(reader: &Reader<'_>) -> Requests {
        let rights = |key| reader.opt::<Vec<Right>>(key);
        let rights = |key| access(&rights(key).unwrap_or_else(|| Right::ALL.to_vec()));
        let mistake: Option<Mistake> = reader.opt("mistake");
        let from = reader.get("mistake-from");
        if reader.has("mistake-from") && !reader.has("mistake") {
            reader.say("mistake-from", "means nothing without a \"mistake\"");
        }
        Requests {
            transport: reader.get("transport"),
            recv_size: reader.opt("recv-size"),
            qp_access: rights("qp-access"),
            mr_access: rights("mr-access"),
            mistake: mistake.map(|mistake| (mistake, from)),
        }
    }

    /// Checks that the service has the operations of all `flows`, that these have a size that fits and an
    /// end, and that the mistake can be made with them.
    pub(super) fn check(&self, reader: &Reader<'_>, flows: &[Own]) {
        let known = |key, words: &[&str]| match reader.node(key).map(|node| &node.value) {
            Some(Value::Text(word)) => words.contains(&word.as_str()),
            Some(_) => false,
            None => key == "transport",
        };
        // A misspelt one is reported by itself.
        if !known("operation", Operation::NAMES) || !known("transport", Transport::NAMES) {
            return;
        }
        let mut seen = Vec::new();
        for own in flows {
            self.check_size(reader, own);
            if !seen.contains(&own.operation) {
                seen.push(own.operation);
                self.check_kind(reader, own.operation);
            }
        }
    }

    fn check_kind(&self, reader: &Reader<'_>, operation: Operation) {
        let (flow, transport) = (operation.flow(), self.transport);
        let service = transport.qp_type();
        if !flow.fits(service) {
            let all = Operation::ALL.iter().filter(|o| o.flow().fits(service));
            let has = quoted(all);
            let told = format!("has no \"{operation}\"; its operations are {has}");
            reader.say("transport", told);
        } else if let Some((mistake, _)) = self.mistake
            && !mistake.flow().fits(flow, service)
        {
            let fits = Mistake::ALL.iter().filter(|m| m.flow().fits(flow, service));
            let can = quoted(fits);
            let what = format!("\"{operation}\" over \"{transport}\"");
            reader.say(
                "mistake",
                format!("cannot be made with {what}; those that can are {can}"),
            );
        }
        let most = flow.max_count();
        let count: u64 = match reader.node("count").map(|node| &node.value) {
            Some(Value::Integer(Some(n))) => u64::try_from(*n).unwrap_or(0),
            _ => 0,
        };
        if count > most {
            let told = format!("must be at most {most} with \"{operation}\", which takes no time");
            reader.say("count", told);
        } else if most < u64::MAX && reader.has("duration") {
            let told = format!("cannot end \"{operation}\", which takes no time; give a \"count\"");
            reader.say("duration", told);
        }
    }

    fn check_size(&self, reader: &Reader<'_>, own: &Own) {
        let (operation, size) = (own.operation, own.size);
        let told = match operation.flow() {
            flow if flow.is_atomic() && size.0 != 8 => "works on 8 bytes",
            FlowOperation::Bind if size.0 == 0 => "needs a window of at least 1 byte",
            _ => return,
        };
        let key = ["size", "flows", "sizes"]
            .into_iter()
            .find(|k| reader.has(k));
        let told = format!("makes a message of {size}, but \"{operation}\" {told}");
        reader.say(key.unwrap_or("size"), told);
    }
}

/// Words in quotes, with commas.
fn quoted<T: std::fmt::Display>(words: impl Iterator<Item = T>) -> String {
    let all: Vec<_> = words.map(|word| format!("\"{word}\"")).collect();
    all.join(", ")
}
