//! One packet of a capture as it is shown.

use super::cm::{self, CmFields};
use super::finding::{Finding, span};
use serde::Serialize;
use softroce_sim::card::codes::{decode_credits, rnr_timer};
use softroce_sim::wire::aeth::SyndromeKind;
use softroce_sim::wire::icrc::Layer;
use softroce_sim::wire::{Aeth, AtomicEth, Deth, Ecn, Ext, FrameView, Reth, Syndrome};

/// Whether an ICRC is right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IcrcStatus {
    /// It is that of the bytes.
    Good,
    /// It is not.
    Bad,
    /// The capture cut the packet.
    Unchecked,
}

/// A RoCE packet with all fields of its transport headers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Packet {
    /// Position in the file, from 1; packets that are not RoCE are counted too.
    pub number: u64,
    /// Index of the interface it was captured at, over all sections of the file.
    pub interface: u32,
    /// Seconds since the first packet of the file.
    pub time: Option<f64>,
    /// `RoCEv1`, or `RoCEv2` with its IP version.
    pub encapsulation: &'static str,
    /// Source address.
    pub src: String,
    /// Destination address.
    pub dst: String,
    /// UDP source port; `None` in RoCEv1.
    pub srcport: Option<u16>,
    /// Differentiated services code point.
    pub dscp: u8,
    /// The two ECN bits.
    pub ecn: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// VLAN identifier, if there is a tag.
    pub vlan: Option<u16>,
    /// Length on the wire in bytes, as the file says.
    pub frame_len: u32,
    /// Opcode byte of the BTH.
    pub opcode: u8,
    /// Its name, as tshark has it.
    pub opcode_name: String,
    /// Solicited event.
    pub se: bool,
    /// Migration request.
    pub migreq: bool,
    /// Pad count.
    pub padcnt: u8,
    /// Partition key.
    pub p_key: u16,
    /// Destination queue pair.
    pub destqp: u32,
    /// AckReq.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: u32,
    /// ACK extended transport header.
    pub aeth: Option<AethFields>,
    /// RDMA extended transport header.
    pub reth: Option<RethFields>,
    /// Immediate data.
    pub immdt: Option<u32>,
    /// Key to invalidate.
    pub ieth: Option<u32>,
    /// Atomic extended transport header.
    pub atomiceth: Option<AtomicFields>,
    /// Value before the atomic operation.
    pub atomicacketh: Option<u64>,
    /// Datagram extended transport header.
    pub deth: Option<DethFields>,
    /// Message of the communication manager.
    pub cm: Option<CmFields>,
    /// Bytes of payload, without pad.
    pub payload_len: usize,
    /// Whether the ICRC is right.
    pub icrc: IcrcStatus,
    /// The flow it belongs to, as [`Flow::id`](super::Flow::id) names it.
    pub flow: Option<u32>,
    /// The transmission round of a request, from 1.
    pub round: Option<u32>,
    /// The comments it has in the file.
    pub comments: Vec<String>,
    /// What was found at this packet.
    pub findings: Vec<Finding>,
}

/// An ACK extended transport header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AethFields {
    /// Syndrome byte.
    pub syndrome: u8,
    /// What it says: `ACK`, `RNR NAK 20.48 ms`, `NAK PSN sequence error`, ...
    pub meaning: String,
    /// Receive requests the responder has left, where it says so (9.7.7.2).
    pub credits: Option<u32>,
    /// Message sequence number.
    pub msn: u32,
}

/// An RDMA extended transport header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RethFields {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub r_key: u32,
    /// Length of the message.
    pub dma_len: u32,
}

/// An atomic extended transport header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AtomicFields {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub r_key: u32,
    /// Value to swap in, or to add.
    pub swap_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// A datagram extended transport header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DethFields {
    /// Queue key.
    pub q_key: u32,
    /// Queue pair that sent the datagram.
    pub srcqp: u32,
}

impl Packet {
    /// The fields of `view`; number, time and what the analysis adds are the caller's.
    pub(super) fn of(view: &FrameView<'_>) -> Packet {
        let t = &view.transport;
        let n = &view.network;
        let deth = |d: Deth| DethFields {
            q_key: d.qkey,
            srcqp: d.src_qp.get(),
        };
        Packet {
            number: 0,
            interface: 0,
            time: None,
            encapsulation: match n.layer() {
                Layer::Ipv4 => "RoCEv2/IPv4",
                Layer::Ipv6 => "RoCEv2/IPv6",
                Layer::Grh => "RoCEv1",
            },
            src: n.src().to_string(),
            dst: n.dst().to_string(),
            srcport: n.udp().map(|u| u.src_port),
            dscp: n.dscp(),
            ecn: n.ecn().bits(),
            ttl: n.hop_limit(),
            vlan: view.link.and_then(|l| l.tag).map(|tag| tag.id),
            frame_len: 0,
            opcode: t.bth.opcode().0,
            opcode_name: t.bth.opcode().to_string(),
            se: t.bth.solicited(),
            migreq: t.bth.mig_req(),
            padcnt: t.bth.pad_count(),
            p_key: t.bth.pkey(),
            destqp: t.bth.dest_qp().get(),
            ack_req: t.bth.ack_req(),
            psn: t.bth.psn().get(),
            aeth: t.ext.aeth().map(AethFields::of),
            reth: t.ext.reth().map(RethFields::of),
            immdt: t.ext.immediate().map(|i| i.get()),
            ieth: match t.ext {
                Ext::Ieth(key) => Some(key.0),
                _ => None,
            },
            atomiceth: match t.ext {
                Ext::Atomic(a) => Some(AtomicFields::of(a)),
                _ => None,
            },
            atomicacketh: match t.ext {
                Ext::AtomicAck(_, value) => Some(value.0),
                _ => None,
            },
            deth: match t.ext {
                Ext::Deth(d) | Ext::DethImmediate(d, _) => Some(deth(d)),
                _ => None,
            },
            cm: cm::read(view).as_ref().map(CmFields::of),
            payload_len: t.payload.len(),
            icrc: IcrcStatus::Unchecked,
            flow: None,
            round: None,
            comments: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// The extended headers in words.
    pub(super) fn details(&self) -> String {
        let mut parts = Vec::new();
        if let Some(a) = &self.aeth {
            parts.push(format!("{} MSN {}", a.meaning, a.msn));
        }
        if let Some(r) = &self.reth {
            parts.push(format!(
                "va {:#x} rkey {:#010x} len {}",
                r.va, r.r_key, r.dma_len
            ));
        }
        if let Some(a) = &self.atomiceth {
            parts.push(format!(
                "va {:#x} rkey {:#010x} swap/add {:#x} compare {:#x}",
                a.va, a.r_key, a.swap_add, a.compare
            ));
        }
        if let Some(v) = self.atomicacketh {
            parts.push(format!("original {v:#x}"));
        }
        if let Some(d) = &self.deth {
            parts.push(format!("qkey {:#010x} srcqp {:#08x}", d.q_key, d.srcqp));
        }
        if let Some(cm) = &self.cm {
            parts.push(format!("CM {}", cm.text));
        }
        if let Some(i) = self.immdt {
            parts.push(format!("imm {i:#010x}"));
        }
        if let Some(key) = self.ieth {
            parts.push(format!("invalidate {key:#010x}"));
        }
        if self.se {
            parts.push("SE".into());
        }
        if Ecn::from_bits(self.ecn) == Ecn::Experienced {
            parts.push("CE".into());
        }
        if self.icrc == IcrcStatus::Unchecked {
            parts.push("cut by the capture, ICRC not checked".into());
        }
        parts.extend(
            self.comments
                .iter()
                .map(|c| format!("[{}]", c.escape_debug())),
        );
        parts.join(", ")
    }
}

impl AethFields {
    fn of(aeth: Aeth) -> AethFields {
        AethFields {
            syndrome: aeth.syndrome.0,
            meaning: meaning(aeth.syndrome),
            credits: match aeth.syndrome.kind() {
                SyndromeKind::Ack { credits } => decode_credits(credits),
                _ => None,
            },
            msn: aeth.msn.get(),
        }
    }
}

fn meaning(syndrome: Syndrome) -> String {
    match syndrome.kind() {
        SyndromeKind::Ack { credits } => match decode_credits(credits) {
            Some(n) => format!("ACK credits {n}"),
            None => "ACK".into(),
        },
        SyndromeKind::RnrNak { timer } => {
            format!("RNR NAK {}", span(rnr_timer(timer).as_ps().into()))
        }
        SyndromeKind::Nak(code) => format!("NAK {code}"),
        SyndromeKind::Reserved => format!("reserved syndrome {:#04x}", syndrome.0),
    }
}

impl RethFields {
    fn of(reth: Reth) -> RethFields {
        RethFields {
            va: reth.va,
            r_key: reth.rkey.0,
            dma_len: reth.dma_len,
        }
    }
}

impl AtomicFields {
    fn of(a: AtomicEth) -> AtomicFields {
        AtomicFields {
            va: a.va,
            r_key: { a.rkey }.0,
            swap_add: a.swap_add,
            compare: a.compare,
        }
    }
}
