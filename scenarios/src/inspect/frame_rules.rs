//! Rules that one packet alone can break.

use super::finding::{Found, Rule, put};
use super::record::Cut;
use softroce_sim::wire::frame::Finding as Wrong;
use softroce_sim::wire::{Ext, FrameView, Opcode, Operation, Service, Tail};

/// Checks one packet; one that the capture cut without its ICRC and UDP checksum. Returns whether
/// its ICRC is right or was not checked.
pub(super) fn check(view: &FrameView<'_>, cut: Cut, found: &mut Found) -> bool {
    let mut sound = true;
    for wrong in view.check() {
        let rule = match wrong {
            Wrong::Icrc(_) | Wrong::UdpChecksum { .. } if cut != Cut::Whole => continue,
            Wrong::Icrc(_) => {
                sound = false;
                Rule::BadIcrc
            }
            Wrong::Ipv4Checksum { .. } => Rule::Ipv4Checksum,
            Wrong::Fragmentable => Rule::Fragmentable,
            Wrong::UdpChecksum { .. } => Rule::UdpChecksum,
            Wrong::TransportVersion { .. } => Rule::TransportVersion,
            // The extended headers of these opcodes are part of what counts as payload.
            Wrong::PadCount { .. }
                if view.transport.bth.opcode().operation() == Operation::Unknown =>
            {
                continue;
            }
            Wrong::PadCount { .. } => Rule::PadCount,
            Wrong::Payload { .. } => Rule::UnexpectedPayload,
            Wrong::Cnp { .. } => Rule::CnpFields,
        };
        put(found, rule, wrong.to_string());
    }
    if cut == Cut::Headers {
        let text = "cut by the capture inside its extended headers, which are not looked at";
        put(found, Rule::CutShort, text);
    }
    check_bth(view, found);
    sound
}

fn check_bth(view: &FrameView<'_>, found: &mut Found) {
    let bth = &view.transport.bth;
    let opcode = bth.opcode();
    if opcode.operation() == Operation::Unknown {
        put(found, Rule::UnknownOpcode, opcode.to_string());
        return;
    }
    let mut set = Vec::new();
    for (on, name) in [
        (bth.fecn(), "FECN"),
        (bth.becn(), "BECN"),
        (bth.resv6() != 0, "resv6"),
        (bth.resv7() != 0, "resv7"),
        (
            matches!(view.transport.ext, Ext::Deth(d) | Ext::DethImmediate(d, _) if d.reserved != 0),
            "the reserved byte of the DETH",
        ),
    ] {
        if on {
            set.push(name);
        }
    }
    if !set.is_empty() {
        put(found, Rule::ReservedBits, format!("{} set", set.join(", ")));
    }
    if opcode == Opcode::CNP {
        return;
    }
    let acknowledged = matches!(opcode.service(), Service::Rc | Service::Xrc | Service::Rd);
    if bth.ack_req() && (!acknowledged || opcode.is_response()) {
        put(
            found,
            Rule::NeedlessAckReq,
            format!("AckReq is set on {opcode}, which is never acknowledged"),
        );
    }
    if bth.solicited() && !may_solicit(opcode) {
        put(
            found,
            Rule::MisplacedSolicited,
            format!("solicited event set on {opcode}, which completes no receive request"),
        );
    }
    if bth.dest_qp().get() == 0 {
        put(
            found,
            Rule::QueuePairZero,
            "destination queue pair 0, receivers drop it",
        );
    }
}

/// SENDs and WRITEs with immediate, at their end.
fn may_solicit(opcode: Opcode) -> bool {
    opcode.ends_message()
        && match opcode.operation() {
            Operation::Send => true,
            Operation::Write => matches!(opcode.info().tail, Tail::Immediate),
            _ => false,
        }
}
