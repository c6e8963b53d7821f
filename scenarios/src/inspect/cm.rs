//! Connection management messages: what they say, and which queue pairs a connection joins.
//!
//! A MAD of class 0x07 is a UD SEND to queue pair 1. REQ and REP each name the queue pair of their sender.

use serde::Serialize;
use softroce_sim::wire::cm::{MAD_LEN, Mad, Message};
use softroce_sim::wire::mad::MadHeader;
use softroce_sim::wire::{FrameView, Opcode, QpNumber};

/// A message of the communication manager.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CmFields {
    /// Its name: `REQ`.
    pub message: &'static str,
    /// Transaction ID.
    pub tid: u64,
    /// The sender's name for the connection; of SIDR messages the name of the request.
    pub local_id: Option<u32>,
    /// The receiver's name for the connection.
    pub remote_id: Option<u32>,
    /// What is to be connected to.
    pub service_id: Option<u64>,
    /// Queue pair: the sender's own, in a DREQ the receiver's.
    pub qp: Option<u32>,
    /// First PSN that the receiver is to send.
    pub starting_psn: Option<u32>,
    /// Path MTU in bytes.
    pub path_mtu: Option<u32>,
    /// Q_Key of a SIDR_REP.
    pub q_key: Option<u32>,
    /// Reason of a REJ, status of a SIDR_REP.
    pub reason: Option<u16>,
    /// All of it in words.
    pub text: String,
}

/// Bytes of a MAD up to the end of what is shown of a message, the path MTU of a REQ.
const LEAST: usize = MadHeader::LEN + 51;

/// Reads a message, if the packet has one.
pub(super) fn read(view: &FrameView<'_>) -> Option<Mad> {
    let t = &view.transport;
    if t.bth.opcode() != Opcode::UD_SEND_ONLY || t.bth.dest_qp() != QpNumber::GSI {
        return None;
    }
    // Where the capture cut it, private data is missing.
    let mut bytes = [0; MAD_LEN];
    let len = t.payload.len().min(MAD_LEN);
    if len < LEAST {
        return None;
    }
    bytes[..len].copy_from_slice(&t.payload[..len]);
    Mad::decode(&bytes).ok()
}

/// Path MTU of a REQ in bytes.
pub(super) fn path_mtu(encoded: u8) -> Option<u32> {
    matches!(encoded, 1..=5).then(|| 128 << encoded)
}

impl CmFields {
    pub(super) fn of(mad: &Mad) -> CmFields {
        let fields = CmFields {
            message: mad.message.name(),
            tid: mad.header.tid,
            text: mad.message.to_string(),
            ..CmFields::default()
        };
        let ids = |local: u32, remote: u32| CmFields {
            local_id: Some(local),
            remote_id: Some(remote),
            ..fields.clone()
        };
        match &mad.message {
            Message::Req(m) => CmFields {
                local_id: Some(m.local_id.0),
                service_id: Some(m.service_id.0),
                qp: Some(m.qp.get()),
                starting_psn: Some(m.starting_psn.get()),
                path_mtu: path_mtu(m.path_mtu),
                ..fields
            },
            Message::Rep(m) => CmFields {
                qp: Some(m.qp.get()),
                starting_psn: Some(m.starting_psn.get()),
                ..ids(m.local_id.0, m.remote_id.0)
            },
            Message::Rej(m) => CmFields {
                reason: Some(m.reason.0),
                ..ids(m.local_id.0, m.remote_id.0)
            },
            Message::Dreq(m) => CmFields {
                qp: Some(m.remote_qp.get()),
                ..ids(m.local_id.0, m.remote_id.0)
            },
            Message::SidrReq(m) => CmFields {
                local_id: Some(m.request_id.0),
                service_id: Some(m.service_id.0),
                ..fields
            },
            Message::SidrRep(m) => CmFields {
                remote_id: Some(m.request_id.0),
                service_id: Some(m.service_id.0),
                qp: Some(m.qp.get()),
                q_key: Some(m.qkey),
                reason: Some(m.status.0.into()),
                ..fields
            },
            Message::Mra(m) => ids(m.local_id.0, m.remote_id.0),
            Message::Rtu(m) => ids(m.local_id.0, m.remote_id.0),
            Message::Drep(m) => ids(m.local_id.0, m.remote_id.0),
            Message::Lap(m) => ids(m.local_id.0, m.remote_id.0),
            Message::Apr(m) => ids(m.local_id.0, m.remote_id.0),
        }
    }
}
