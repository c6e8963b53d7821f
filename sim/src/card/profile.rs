//! How real cards differ from the specification and from each other: data, not branches.
//!
//! A profile is a value of plain fields. Each says what it is, what the two profiles have, and where
//! that comes from: a clause, a capture of the kernel's driver by its name in `tests/captures`, or
//! "approximate" where nothing was seen that shows it.

use super::work::Status;
use crate::wire::NakCode;

/// Habits of a kind of card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,

    /// MigReq in every header. [`SPEC`] sets it, as the state "migrated" has it, in which a connection
    /// without an alternate path stays (approximate: the section on path migration was not at hand).
    /// [`RXE`] does not: every capture.
    pub mig_req: bool,
    /// Request packets after which one asks for an acknowledgement within a message; where
    /// [`CardConfig::ack_every`](super::CardConfig::ack_every) starts. [`SPEC`] 32 (approximate: the
    /// choice is the card's). [`RXE`] 66 (approximate: the driver's source asks once its count has passed
    /// `RXE_MAX_PKT_PER_ACK`, 64; no capture has a message of more than ten packets).
    pub ack_every: u32,
    /// End-to-end credits; where [`CardConfig::credits`](super::CardConfig::credits) starts. [`SPEC`]
    /// gives and heeds them (9.7.7.2). [`RXE`] always says "not limited": `rc_send` and every other
    /// capture with an ACK.
    pub credits: bool,

    /// Answers that may wait for the port before they are drawn together. [`SPEC`] 1: one ACK grows to
    /// cover later requests (9.7.5.1.2). [`RXE`] answers packet by packet, a duplicate too:
    /// `loss_send_last`, `reorder_request`, `rc_rnr_writeimm`, `dup_request`; how many at most is
    /// approximate.
    pub separate_answers: usize,
    /// How a message that is longer than its receive request is refused. [`SPEC`]: NAK "invalid request"
    /// (approximate: taken from the notes beside the captures) and a local length error (11.6.2).
    /// [`RXE`]: `rc_nak_short_recv`, `rc_nak_short_recv_multi`, `uc_short_recv`, `uc_loss_only`.
    pub short_receive: ShortReceive,
    /// The answer to a READ that is asked for from its middle on continues the first answer: MIDDLE or
    /// LAST. Without, the request is one of its own, answered by FIRST or ONLY (approximate: the section
    /// on repeated READs was not at hand). [`RXE`] continues: `loss_read_resp_last`.
    pub resumed_read_continues: bool,

    /// A message of an unreliable connection that loses a packet costs the message after it as well.
    /// Not in [`SPEC`], where whatever begins a message is taken (9.8.2.2.1). In [`RXE`]:
    /// `uc_loss_middle`.
    pub broken_message_costs_next: bool,

    /// An RNR NAK says that what is before it was carried out, so that only what it names is sent again.
    /// [`SPEC`] says so, since acknowledgements come in the order of requests (C9-27). [`RXE`] goes back
    /// to what was acknowledged in so many words: `rc_rnr_writeimm`.
    pub rnr_nak_acknowledges: bool,
    /// After going back for a NAK, the requester waits for an acknowledgement before it goes back for
    /// another. Not in [`SPEC`] (approximate: each gap has a NAK of its own). In [`RXE`]:
    /// `reorder_request`.
    pub one_resend_per_ack: bool,
    /// READ data that comes after a gap within one READ has the rest asked for again at once. Without, it
    /// takes a timeout. [`SPEC`] true (approximate: a later response is as good as a NAK). [`RXE`] false:
    /// noted when the captures were made (`tests/captures/README.md`), though none of them shows it.
    pub read_gap_noticed: bool,

    /// Receive completions of connections say that there is a GRH. Only datagrams have one in front of
    /// their data (11.4.2.1). [`RXE`] says so for connections too: `rc_send`, `uc_send`.
    pub connections_report_grh: bool,
    /// Completions of SENDs and WRITEs have the length of the request, which means nothing there
    /// ([`SPEC`] leaves zero). [`RXE`] has it: `rc_send`, `rc_write`.
    pub requests_report_length: bool,
    /// Completions of requests with immediate data say that there is some, and give zero. Not in [`SPEC`].
    /// In [`RXE`]: `rc_send_imm`, `rc_write_imm`.
    pub requests_report_immediate: bool,
}

/// How a message that is longer than its receive request ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortReceive {
    /// What the peer is told, on a reliable connection.
    pub nak: NakCode,
    /// How the receive request completes.
    pub status: Status,
}

/// A card that follows the specification, and is quick about it.
pub static SPEC: Profile = Profile {
    name: "spec",
    mig_req: true,
    ack_every: 32,
    credits: true,
    separate_answers: 1,
    short_receive: ShortReceive {
        nak: NakCode::InvalidRequest,
        status: Status::LocalLengthError,
    },
    resumed_read_continues: false,
    broken_message_costs_next: false,
    rnr_nak_acknowledges: true,
    one_resend_per_ack: false,
    read_gap_noticed: true,
    connections_report_grh: false,
    requests_report_length: false,
    requests_report_immediate: false,
};

/// The Linux kernel's soft RoCE driver, as of 6.1.
pub static RXE: Profile = Profile {
    name: "rxe",
    mig_req: false,
    ack_every: 66,
    credits: false,
    separate_answers: 64,
    short_receive: ShortReceive {
        nak: NakCode::RemoteOperationalError,
        status: Status::LocalQpOperationError,
    },
    resumed_read_continues: true,
    broken_message_costs_next: true,
    rnr_nak_acknowledges: false,
    one_resend_per_ack: true,
    read_gap_noticed: false,
    connections_report_grh: true,
    requests_report_length: true,
    requests_report_immediate: true,
};

/// All there are.
pub static ALL: [&Profile; 2] = [&SPEC, &RXE];
