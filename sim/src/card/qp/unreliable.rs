//! The receiving side of UC and UD. Nothing is answered; what does not fit is dropped (9.8).

use super::execute::{Fault, refused};
use super::{Desk, Qp, State, psn_at};
use crate::card::env::{Env, Refusal};
use crate::card::explain::Cause;
use crate::card::work::{Completion, CompletionKind, Status};
use crate::memory::Access;
use crate::time::Time;
use crate::wire::{Ecn, Encapsulation, Operation, Packet, Route};

/// Bytes in front of a datagram in its buffer: room for the GRH or IP header (11.4.1.2).
pub(crate) const GRH_LEN: u16 = 40;

impl Qp {
    /// Takes a packet of an unreliable connection. After a gap the message under way is given up, and the
    /// next one that begins is taken (9.8.2.2).
    pub(crate) fn receive_uc<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Refusal> {
        if !matches!(
            self.state,
            State::Rtr | State::Rts | State::Sqd | State::Sqe
        ) {
            return Err(Refusal::WrongState);
        }
        let opcode = packet.bth.opcode();
        if !matches!(opcode.operation(), Operation::Send | Operation::Write) {
            return Err(Refusal::Malformed);
        }
        if self.state == State::Rtr {
            self.tell_established(desk);
        }
        let r = &mut self.responder;
        if packet.bth.psn() != psn_at(r.first_psn, r.expected) {
            self.counters.out_of_sequence += 1;
            r.broken |= r.message.take().is_some();
            // There is no old and no new: the PSNs are counted on from this one, wherever it lies.
            r.first_psn = packet.bth.psn().minus(r.expected as u32);
        }
        if opcode.begins_message() {
            let broken = r.message.take().is_some() | std::mem::take(&mut r.broken);
            if broken && desk.config.profile.broken_message_costs_next {
                r.expected += 1;
                return Err(Refusal::OutOfSequence);
            }
        } else if r.message.is_none() {
            r.expected += 1;
            return Err(Refusal::OutOfSequence);
        }
        let outcome = self.execute_message(packet, desk, env);
        self.responder.expected += 1;
        match outcome {
            Ok(()) => {
                if opcode.ends_message() {
                    let r = &mut self.responder;
                    let bytes = r.message.as_ref().map_or(0, |m| m.received);
                    r.arrived.add(now, bytes);
                    self.deliver(now, packet, opcode, desk);
                }
                Ok(())
            }
            Err(fault) => {
                self.responder.message = None;
                match fault {
                    Fault::NotReady => Err(Refusal::ReceiverNotReady),
                    Fault::Refused(cause) if cause.is_of_receive() => {
                        self.fail_receive(now, packet.bth, None, *cause, desk);
                        Err(Refusal::Nak)
                    }
                    Fault::Refused(cause) if matches!(*cause, Cause::RemoteAccess { .. }) => {
                        Err(Refusal::BadKey)
                    }
                    Fault::Refused(_) => Err(Refusal::Malformed),
                }
            }
        }
    }

    /// Takes a datagram. Its Q_Key must be the queue pair's (9.6.1.4.1); payload that does not fit the
    /// buffer behind the header's 40 bytes is dropped, and the buffer waits for the next (C9-205).
    pub(crate) fn receive_ud<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        route: &Route,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Refusal> {
        if !matches!(
            self.state,
            State::Rtr | State::Rts | State::Sqd | State::Sqe
        ) {
            return Err(Refusal::WrongState);
        }
        let (Operation::Send, Some(deth)) = (packet.bth.opcode().operation(), packet.ext.deth())
        else {
            return Err(Refusal::Malformed);
        };
        if packet.ext.immediate().is_some() != packet.bth.opcode().has_immediate() {
            return Err(Refusal::Malformed);
        }
        if deth.qkey != self.qkey {
            return Err(Refusal::BadQkey);
        }
        if packet.payload.len() > desk.config.port_mtu.bytes() {
            return Err(Refusal::Malformed);
        }
        let r = &mut self.responder;
        let Some(taken) = r.receives.take(&mut desk.srqs, &mut desk.events) else {
            return Err(Refusal::ReceiverNotReady);
        };
        let len = u64::from(GRH_LEN) + u64::from(packet.payload.len());
        if len > taken.len {
            return Err(Refusal::TooLong);
        }
        let header = network_header(packet, route);
        let mut outcome = Ok(());
        super::pieces(
            r.receives.elements().iter(),
            0,
            GRH_LEN,
            |sge, addr, at, n| match desk.memory.local(
                sge.lkey,
                self.init.pd,
                addr,
                n as u64,
                Access::LOCAL_WRITE,
            ) {
                Ok(place) => place.write(&header[at..at + n]),
                Err(why) => outcome = Err((sge.lkey, addr, n as u64, why)),
            },
        );
        let outcome = match outcome {
            Ok(()) => self.scatter(GRH_LEN.into(), packet, desk, env),
            Err(fault) => Err(refused(self.receive_protection(fault))),
        };
        if let Err(Fault::Refused(cause)) = outcome {
            let peer = Some((route.src, deth.src_qp));
            self.fail_receive(now, packet.bth, peer, *cause, desk);
            return Err(Refusal::Nak);
        }
        self.responder.receives.finish();
        let bytes = packet.payload.len().into();
        self.responder.arrived.add(now, bytes);
        let c = Completion {
            kind: CompletionKind::Receive,
            byte_len: len as u32,
            immediate: packet.ext.immediate(),
            src_qp: deth.src_qp,
            grh: true,
            ..self.recv_completion(taken.wr_id, Status::Success)
        };
        self.complete(now, self.init.recv_cq, c, packet.bth.solicited(), desk);
        Ok(())
    }
}

/// The 40 bytes in front of a datagram: the GRH or IPv6 header, or 20 zero bytes and the IPv4 header
/// (A17.4.5.2).
fn network_header(packet: &Packet, route: &Route) -> [u8; 40] {
    let mut header = [0; 40];
    let transport =
        12 + packet.ext.len() + packet.payload.len() + u16::from(packet.payload.pad_count()) + 4;
    let class = route.dscp << 2 | packet.ecn.bits();
    debug_assert!(packet.ecn != Ecn::NotCapable || class & 3 == 0);
    match (route.encapsulation, route.src.ipv4(), route.dst.ipv4()) {
        (Encapsulation::RoceV2, Some(src), Some(dst)) => {
            let h = &mut header[20..];
            h[0] = 0x45;
            h[1] = class;
            h[2..4].copy_from_slice(&(20 + 8 + transport).to_be_bytes());
            h[6] = 0x40; // do not fragment
            h[8] = packet.hop_limit;
            h[9] = 17; // UDP
            h[12..16].copy_from_slice(&src.octets());
            h[16..].copy_from_slice(&dst.octets());
            let sum: u32 = h
                .chunks_exact(2)
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                .sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let folded = !(folded + (folded >> 16)) as u16;
            h[10..12].copy_from_slice(&folded.to_be_bytes());
        }
        (encapsulation, ..) => {
            let version = 6 << 28 | u32::from(class) << 20 | route.flow_label & 0xf_ffff;
            header[..4].copy_from_slice(&version.to_be_bytes());
            let (udp, next) = match encapsulation {
                Encapsulation::RoceV1 => (0, 0x1b), // a BTH follows (C8-7)
                Encapsulation::RoceV2 => (8, 17),
            };
            header[4..6].copy_from_slice(&(udp + transport).to_be_bytes());
            header[6] = next;
            header[7] = packet.hop_limit;
            header[8..24].copy_from_slice(&route.src.0);
            header[24..].copy_from_slice(&route.dst.0);
        }
    }
    header
}
