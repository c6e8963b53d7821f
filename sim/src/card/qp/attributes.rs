//! Queue pair attributes, and which of them each change of state needs or takes, as `ibv_modify_qp`
//! checks them (11.2.5.2).

use super::State;
use crate::card::work::{CqId, SrqId};
use crate::memory::{Access, Pd};
use crate::wire::mad::GSI_QKEY;
use crate::wire::{Gid, MacAddr, Psn, QpNumber, Vlan};

/// The transport service of a queue pair (`ibv_qp_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// What a queue pair is made of (`ibv_qp_init_attr`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Protection domain.
    pub pd: Pd,
    /// Where send completions go.
    pub send_cq: CqId,
    /// Where receive completions go.
    pub recv_cq: CqId,
    /// Send requests it holds.
    pub max_send_wr: u32,
    /// Receive requests it holds.
    pub max_recv_wr: u32,
    /// Elements of a send request.
    pub max_send_sge: u32,
    /// Elements of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data of a send request, up to [`MAX_INLINE`](crate::card::MAX_INLINE).
    pub max_inline: u32,
    /// Where receive requests come from, if not from a queue of its own; the two sizes for those are not
    /// used then.
    pub srq: Option<SrqId>,
}

impl QpInit {
    /// A queue pair whose requests have one element each, without inline data and shared receive queue.
    pub const fn new(qp_type: QpType, pd: Pd, cq: CqId, max_wr: u32) -> QpInit {
        QpInit {
            qp_type,
            pd,
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: max_wr,
            max_recv_wr: max_wr,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            srq: None,
        }
    }
}

/// A path MTU (`ibv_mtu`): the most payload of one packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mtu {
    /// 256 bytes.
    M256,
    /// 512 bytes.
    M512,
    /// 1024 bytes.
    M1024,
    /// 2048 bytes.
    M2048,
    /// 4096 bytes.
    M4096,
}

impl Mtu {
    /// All five.
    pub const ALL: [Mtu; 5] = [Mtu::M256, Mtu::M512, Mtu::M1024, Mtu::M2048, Mtu::M4096];

    /// In bytes.
    #[inline]
    pub const fn bytes(self) -> u16 {
        256 << self as u16
    }

    /// The MTU of `bytes` bytes, if it is one of the five.
    pub fn from_bytes(bytes: u64) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|m| u64::from(m.bytes()) == bytes)
    }
}

/// Where the packets of a connection go (`ibv_ah_attr`). The destination's Ethernet address is given
/// by whoever resolved it: the network in virtual time, the kernel or ARP in real time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressVector {
    /// Peer's address.
    pub dgid: Gid,
    /// Peer's Ethernet address, or its gateway's.
    pub dmac: MacAddr,
    /// Service level; 0 to 7 are the Ethernet priorities (A17.4.2).
    pub sl: u8,
    /// Traffic class: DSCP in the upper six bits (CA17-4); the lower two are not used.
    pub traffic_class: u8,
    /// TTL or hop limit (CA17-9).
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// UDP source port; `None` lets the card derive it from the two queue pair numbers.
    pub udp_src: Option<u16>,
    /// VLAN tag.
    pub vlan: Option<Vlan>,
}

impl AddressVector {
    /// The way to `dgid`: no priority, no VLAN, 64 hops; the Ethernet address is for others to find.
    pub fn new(dgid: Gid) -> AddressVector {
        AddressVector {
            dgid,
            dmac: MacAddr::default(),
            sl: 0,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            udp_src: None,
            vlan: None,
        }
    }
}

/// Attributes for a change (`ibv_qp_attr` and its mask in one: what is `None` is not in the mask).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpAttributes {
    /// State to go to; `None` keeps it.
    pub state: Option<State>,
    /// State the caller believes it is in.
    pub cur_state: Option<State>,
    /// Index into the P_Key table.
    pub pkey_index: Option<u16>,
    /// Port number, 1 on this card.
    pub port: Option<u8>,
    /// What peers may do through this queue pair.
    pub access: Option<Access>,
    /// Path.
    pub address: Option<AddressVector>,
    /// Path MTU.
    pub path_mtu: Option<Mtu>,
    /// Peer's queue pair.
    pub dest_qp: Option<QpNumber>,
    /// First PSN the peer sends.
    pub rq_psn: Option<Psn>,
    /// First PSN this side sends.
    pub sq_psn: Option<Psn>,
    /// READs and atomics the peer may have outstanding here.
    pub max_dest_rd_atomic: Option<u8>,
    /// READs and atomics this side has outstanding at most.
    pub max_rd_atomic: Option<u8>,
    /// Encoded time an RNR NAK of this side asks the peer to wait, 0 to 31.
    pub min_rnr_timer: Option<u8>,
    /// Local ACK timeout exponent, 0 to 31: 4.096 us x 2^n, 0 for never (C9-140).
    pub timeout: Option<u8>,
    /// Retries on timeouts and sequence NAKs, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// Retries on RNR NAKs, 0 to 7; 7 is "for ever".
    pub rnr_retry: Option<u8>,
    /// Raise an event when the send queue is drained.
    pub sqd_event: Option<bool>,
    /// Q_Key of datagrams.
    pub qkey: Option<u32>,
}

/// The other end of a connection, as it told this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The way there.
    pub address: AddressVector,
    /// Path MTU, the same at both ends.
    pub path_mtu: Mtu,
    /// Its queue pair.
    pub qp: QpNumber,
    /// First PSN it sends.
    pub psn: Psn,
}

/// What a reliable connection has beside: its retries, and its READs and atomics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reliability {
    /// [`QpAttributes::timeout`].
    pub timeout: u8,
    /// [`QpAttributes::retry_cnt`].
    pub retry_cnt: u8,
    /// [`QpAttributes::rnr_retry`].
    pub rnr_retry: u8,
    /// [`QpAttributes::min_rnr_timer`].
    pub min_rnr_timer: u8,
    /// [`QpAttributes::max_rd_atomic`].
    pub max_rd_atomic: u8,
    /// [`QpAttributes::max_dest_rd_atomic`].
    pub max_dest_rd_atomic: u8,
}

impl Default for Reliability {
    /// What `ibv_rc_pingpong` has: timeout 14 (67 ms), 7 retries, RNR retries without end after
    /// 0.64 ms, one READ or atomic at a time.
    fn default() -> Reliability {
        Reliability {
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
        }
    }
}

/// An attribute's bit in the mask, by the name of its field.
type Field = u32;

const CUR_STATE: Field = 1 << 0;
const PKEY_INDEX: Field = 1 << 1;
const PORT: Field = 1 << 2;
const ACCESS: Field = 1 << 3;
const ADDRESS: Field = 1 << 4;
const PATH_MTU: Field = 1 << 5;
const DEST_QP: Field = 1 << 6;
const RQ_PSN: Field = 1 << 7;
const SQ_PSN: Field = 1 << 8;
const MAX_DEST_RD_ATOMIC: Field = 1 << 9;
const MAX_RD_ATOMIC: Field = 1 << 10;
const MIN_RNR_TIMER: Field = 1 << 11;
const TIMEOUT: Field = 1 << 12;
const RETRY_CNT: Field = 1 << 13;
const RNR_RETRY: Field = 1 << 14;
const SQD_EVENT: Field = 1 << 15;
const QKEY: Field = 1 << 16;

const NAMES: [&str; 17] = [
    "cur_state",
    "pkey_index",
    "port",
    "access",
    "address",
    "path_mtu",
    "dest_qp",
    "rq_psn",
    "sq_psn",
    "max_dest_rd_atomic",
    "max_rd_atomic",
    "min_rnr_timer",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "sqd_event",
    "qkey",
];

/// Why attributes were refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ModifyError {
    /// No queue pair has that number.
    #[error("queue pair {0} does not exist on this card")]
    UnknownQueuePair(QpNumber),
    /// No address handle is left.
    #[error("{limit} address handles exist, the most there can be")]
    NoAddressHandle {
        /// How many there can be.
        limit: u32,
    },
    /// There is no such change of state.
    #[error("a queue pair does not go from {from} to {to}")]
    NoTransition {
        /// State it is in.
        from: State,
        /// State asked for.
        to: State,
    },
    /// `cur_state` is not the state.
    #[error("cur_state is {given}, but the queue pair is in {actual}")]
    WrongCurrentState {
        /// State given.
        given: State,
        /// State it is in.
        actual: State,
    },
    /// An attribute the change needs is missing.
    #[error("{attribute} is needed to go from {from} to {to}")]
    Missing {
        /// The attribute.
        attribute: &'static str,
        /// State it is in.
        from: State,
        /// State asked for.
        to: State,
    },
    /// An attribute the change does not take is there.
    #[error("{attribute} cannot be set going from {from} to {to}")]
    NotAllowed {
        /// The attribute.
        attribute: &'static str,
        /// State it is in.
        from: State,
        /// State asked for.
        to: State,
    },
    /// A value is out of its range.
    #[error("{attribute} is {value}; the largest value is {limit}")]
    OutOfRange {
        /// The attribute.
        attribute: &'static str,
        /// Value given.
        value: u64,
        /// Largest value there is.
        limit: u64,
    },
    /// Queue pair 1 has the Q_Key that everybody knows.
    #[error("qkey is {0:#010x}; that of queue pair 1 is {GSI_QKEY:#010x}")]
    GsiQkey(u32),
    /// The peer's address is of another kind (IPv4, IPv6) than the card's, or a multicast address.
    #[error("address {0} cannot be reached from this card's address")]
    Unreachable(Gid),
}

impl QpAttributes {
    /// The change to `state`, and nothing else: all that a queue pair for datagrams needs to receive.
    pub fn to(state: State) -> QpAttributes {
        QpAttributes {
            state: Some(state),
            ..QpAttributes::default()
        }
    }

    /// From RESET to INIT, for a connection through which the peer may do what `access` says.
    pub fn to_init(access: Access) -> QpAttributes {
        QpAttributes {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(access),
            ..QpAttributes::to(State::Init)
        }
    }

    /// From RESET to INIT, for datagrams that have this Q_Key.
    pub fn to_init_datagrams(qkey: u32) -> QpAttributes {
        QpAttributes {
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(qkey),
            ..QpAttributes::to(State::Init)
        }
    }

    /// From INIT to RTR, for a connection with `peer`; a reliable one has `reliability`.
    pub fn to_rtr(peer: &Peer, reliability: Option<&Reliability>) -> QpAttributes {
        QpAttributes {
            address: Some(peer.address),
            path_mtu: Some(peer.path_mtu),
            dest_qp: Some(peer.qp),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: reliability.map(|r| r.max_dest_rd_atomic),
            min_rnr_timer: reliability.map(|r| r.min_rnr_timer),
            ..QpAttributes::to(State::Rtr)
        }
    }

    /// From RTR to RTS, with the first PSN that is sent; a reliable connection has `reliability`.
    pub fn to_rts(psn: Psn, reliability: Option<&Reliability>) -> QpAttributes {
        QpAttributes {
            sq_psn: Some(psn),
            timeout: reliability.map(|r| r.timeout),
            retry_cnt: reliability.map(|r| r.retry_cnt),
            rnr_retry: reliability.map(|r| r.rnr_retry),
            max_rd_atomic: reliability.map(|r| r.max_rd_atomic),
            ..QpAttributes::to(State::Rts)
        }
    }

    /// Takes over what `change` says.
    pub fn merge(&mut self, change: &QpAttributes) {
        let QpAttributes {
            state,
            cur_state,
            pkey_index,
            port,
            access,
            address,
            path_mtu,
            dest_qp,
            rq_psn,
            sq_psn,
            max_dest_rd_atomic,
            max_rd_atomic,
            min_rnr_timer,
            timeout,
            retry_cnt,
            rnr_retry,
            sqd_event,
            qkey,
        } = *change;
        *self = QpAttributes {
            state: state.or(self.state),
            cur_state: cur_state.or(self.cur_state),
            pkey_index: pkey_index.or(self.pkey_index),
            port: port.or(self.port),
            access: access.or(self.access),
            address: address.or(self.address),
            path_mtu: path_mtu.or(self.path_mtu),
            dest_qp: dest_qp.or(self.dest_qp),
            rq_psn: rq_psn.or(self.rq_psn),
            sq_psn: sq_psn.or(self.sq_psn),
            max_dest_rd_atomic: max_dest_rd_atomic.or(self.max_dest_rd_atomic),
            max_rd_atomic: max_rd_atomic.or(self.max_rd_atomic),
            min_rnr_timer: min_rnr_timer.or(self.min_rnr_timer),
            timeout: timeout.or(self.timeout),
            retry_cnt: retry_cnt.or(self.retry_cnt),
            rnr_retry: rnr_retry.or(self.rnr_retry),
            sqd_event: sqd_event.or(self.sqd_event),
            qkey: qkey.or(self.qkey),
        };
    }

    fn mask(&self) -> Field {
        let bit = |on: bool, field| if on { field } else { 0 };
        bit(self.cur_state.is_some(), CUR_STATE)
            | bit(self.pkey_index.is_some(), PKEY_INDEX)
            | bit(self.port.is_some(), PORT)
            | bit(self.access.is_some(), ACCESS)
            | bit(self.address.is_some(), ADDRESS)
            | bit(self.path_mtu.is_some(), PATH_MTU)
            | bit(self.dest_qp.is_some(), DEST_QP)
            | bit(self.rq_psn.is_some(), RQ_PSN)
            | bit(self.sq_psn.is_some(), SQ_PSN)
            | bit(self.max_dest_rd_atomic.is_some(), MAX_DEST_RD_ATOMIC)
            | bit(self.max_rd_atomic.is_some(), MAX_RD_ATOMIC)
            | bit(self.min_rnr_timer.is_some(), MIN_RNR_TIMER)
            | bit(self.timeout.is_some(), TIMEOUT)
            | bit(self.retry_cnt.is_some(), RETRY_CNT)
            | bit(self.rnr_retry.is_some(), RNR_RETRY)
            | bit(self.sqd_event.is_some(), SQD_EVENT)
            | bit(self.qkey.is_some(), QKEY)
    }

    /// Checks the attributes for a queue pair in `from`, and gives the state it goes to.
    pub(crate) fn check(&self, qp_type: QpType, from: State) -> Result<State, ModifyError> {
        let to = self.state.unwrap_or(from);
        let (required, optional) =
            transition(qp_type, from, to).ok_or(ModifyError::NoTransition { from, to })?;
        let mask = self.mask();
        if let Some(attribute) = first_name(required & !mask) {
            return Err(ModifyError::Missing {
                attribute,
                from,
                to,
            });
        }
        if let Some(attribute) = first_name(mask & !(required | optional)) {
            return Err(ModifyError::NotAllowed {
                attribute,
                from,
                to,
            });
        }
        if let Some(given) = self.cur_state
            && given != from
        {
            return Err(ModifyError::WrongCurrentState {
                given,
                actual: from,
            });
        }
        self.check_ranges()?;
        Ok(to)
    }

    fn check_ranges(&self) -> Result<(), ModifyError> {
        let reads = super::MAX_RD_ATOMIC.into();
        let limits: [(&'static str, Option<u64>, u64); 8] = [
            ("pkey_index", self.pkey_index.map(u64::from), 0),
            ("port", self.port.map(u64::from), 1),
            ("min_rnr_timer", self.min_rnr_timer.map(u64::from), 31),
            ("timeout", self.timeout.map(u64::from), 31),
            ("retry_cnt", self.retry_cnt.map(u64::from), 7),
            ("rnr_retry", self.rnr_retry.map(u64::from), 7),
            ("max_rd_atomic", self.max_rd_atomic.map(u64::from), reads),
            (
                "max_dest_rd_atomic",
                self.max_dest_rd_atomic.map(u64::from),
                reads,
            ),
        ];
        within(&limits)?;
        match &self.address {
            Some(a) if a.dgid.is_multicast() => Err(ModifyError::Unreachable(a.dgid)),
            Some(a) => a.check(),
            None => Ok(()),
        }
    }
}

fn within(limits: &[(&'static str, Option<u64>, u64)]) -> Result<(), ModifyError> {
    for &(attribute, value, limit) in limits {
        if let Some(value) = value
            && value > limit
        {
            return Err(ModifyError::OutOfRange {
                attribute,
                value,
                limit,
            });
        }
    }
    Ok(())
}

impl AddressVector {
    pub(crate) fn check(&self) -> Result<(), ModifyError> {
        within(&[
            ("sl", Some(self.sl.into()), 7),
            ("flow_label", Some(self.flow_label.into()), 0xf_ffff),
            ("vlan", self.vlan.map(|v| v.id.into()), 4095),
        ])
    }
}

fn first_name(mask: Field) -> Option<&'static str> {
    (mask != 0).then(|| NAMES[mask.trailing_zeros() as usize])
}

/// Attributes that the change from one state to another needs, and those it takes beside.
fn transition(qp_type: QpType, from: State, to: State) -> Option<(Field, Field)> {
    use QpType::{Rc, Uc, Ud};
    use State::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
    // What a queue pair in operation takes at any time.
    let running = CUR_STATE
        | match qp_type {
            Rc => ACCESS | MIN_RNR_TIMER,
            Uc => ACCESS,
            Ud => QKEY,
        };
    let identity = PKEY_INDEX | PORT | if qp_type == Ud { QKEY } else { ACCESS };
    Some(match (from, to) {
        (_, Reset | Error) => (0, CUR_STATE),
        (Reset, Init) => (identity, CUR_STATE),
        (Init, Init) => (0, identity | CUR_STATE),
        (Init, Rtr) => match qp_type {
            Rc => (
                ADDRESS | PATH_MTU | DEST_QP | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
                PKEY_INDEX | ACCESS | CUR_STATE,
            ),
            Uc => (
                ADDRESS | PATH_MTU | DEST_QP | RQ_PSN,
                PKEY_INDEX | ACCESS | CUR_STATE,
            ),
            Ud => (0, PKEY_INDEX | QKEY | CUR_STATE),
        },
        (Rtr, Rts) => match qp_type {
            Rc => (
                TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_RD_ATOMIC,
                running,
            ),
            Uc | Ud => (SQ_PSN, running),
        },
        (Rts, Rts) | (Sqd, Rts) => (0, running),
        (Sqe, Rts) if qp_type != Rc => (0, running),
        (Rts, Sqd) => (0, CUR_STATE | SQD_EVENT),
        (Sqd, Sqd) => match qp_type {
            Rc => (
                0,
                running
                    | PKEY_INDEX
                    | ADDRESS
                    | TIMEOUT
                    | RETRY_CNT
                    | RNR_RETRY
                    | MAX_RD_ATOMIC
                    | MAX_DEST_RD_ATOMIC
                    | SQD_EVENT,
            ),
            Uc => (0, running | PKEY_INDEX | ADDRESS | SQD_EVENT),
            Ud => (0, running | PKEY_INDEX | SQD_EVENT),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
