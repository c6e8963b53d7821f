//! Connection management messages: which queue pairs a connection joins, and its path MTU.
//!
//! A MAD of class 0x07 is a UD SEND to queue pair 1. Of its messages only REQ and REP are read: each
//! names the queue pair of its sender.

use softroce_sim::wire::{FrameView, Opcode, QpNumber};

/// What a REQ or REP says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// A request for a connection.
    Request {
        /// The requester's name for the connection.
        local_id: u32,
        qp: QpNumber,
        /// Path MTU in bytes.
        mtu: Option<u32>,
    },
    /// The reply to one.
    Reply {
        /// The requester's name for the connection.
        remote_id: u32,
        qp: QpNumber,
    },
}

const CLASS: u8 = 0x07;
const REQUEST: u16 = 0x0010;
const REPLY: u16 = 0x0013;
/// Bytes of a MAD before the message.
const HEADER: usize = 24;

/// Reads a CM message, if the packet has one.
pub(super) fn read(view: &FrameView<'_>) -> Option<Message> {
    let t = &view.transport;
    if t.bth.opcode() != Opcode::UD_SEND_ONLY || t.bth.dest_qp() != QpNumber::GSI {
        return None;
    }
    let (header, body) = t.payload.split_at_checked(HEADER)?;
    if header[1] != CLASS {
        return None;
    }
    let word = |at: usize| {
        let bytes: [u8; 4] = body.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    };
    match u16::from_be_bytes([header[16], header[17]]) {
        REQUEST => Some(Message::Request {
            local_id: word(0)?,
            qp: QpNumber::new(word(32)? >> 8),
            mtu: match body.get(50)? >> 4 {
                code @ 1..=5 => Some(128 << code),
                _ => None,
            },
        }),
        REPLY => Some(Message::Reply {
            remote_id: word(4)?,
            qp: QpNumber::new(word(12)? >> 8),
        }),
        _ => None,
    }
}
