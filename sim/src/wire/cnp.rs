//! Congestion notification packets (A17.9.3).
//!
//! A CNP tells the sender of a packet that was marked "congestion experienced" to slow down. It has
//! opcode 0x81, by which alone it is recognised, and 16 reserved zero bytes after the BTH; PSN, SE
//! and M are 0. It is in no sequence and is not acknowledged. Its destination is the queue pair that
//! sent the marked packet, its P_Key that packet's.
//!
//! As a [`Packet`] its reserved bytes are [`Ext::Cnp`] and the payload is empty, so that no driver
//! needs a slot for them. As a frame they are that too, unless one of them is not zero: then they
//! stand in the payload, so that the frame can be encoded as it was.

use super::{Bth, Damage, Ecn, Ext, Opcode, Packet, Payload, Psn, QpNumber, Route, RouteId};

/// The BTH of a CNP to `dest_qp`.
pub const fn bth(dest_qp: QpNumber, pkey: u16) -> Bth {
    Bth::new(Opcode::CNP, dest_qp, Psn::new(0))
        .with_mig_req(false)
        .with_pkey(pkey)
}

/// A CNP to `dest_qp` by `route`, which is called `id`, with Ethernet priority `priority`.
///
/// `pkey` is that of the marked packet. The ECN bits are 00, so that a CNP is not marked in turn.
pub fn packet(dest_qp: QpNumber, pkey: u16, route: &Route, id: RouteId, priority: u8) -> Packet {
    Packet {
        ext: Ext::Cnp,
        bth: bth(dest_qp, pkey),
        route: id,
        payload: Payload::EMPTY,
        frame_len: route.overhead() + Bth::LEN as u16 + Ext::Cnp.len(),
        priority,
        ecn: Ecn::NotCapable,
        damage: Damage::None,
        hop_limit: route.hop_limit,
    }
}

/// True for a CNP, whatever else its header says.
#[inline]
pub const fn is_cnp(bth: &Bth) -> bool {
    bth.opcode().0 == Opcode::CNP.0
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Finding, Frame};
    use super::super::{Encapsulation, MacAddr, RouteTable};
    use super::*;
    use std::net::Ipv4Addr;

    fn route() -> Route {
        Route {
            encapsulation: Encapsulation::RoceV2,
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            src: Ipv4Addr::new(10, 0, 0, 1).into(),
            dst: Ipv4Addr::new(10, 0, 0, 2).into(),
            udp_src: 0xc000,
            vlan: None,
            dscp: 48,
            hop_limit: 64,
            flow_label: 0,
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_annex() {
        let route = route();
        let id = RouteTable::new().intern(route);
        let cnp = packet(QpNumber::new(0xd2), 0xffff, &route, id, 6);
        assert!(is_cnp(&cnp.bth));
        let frame = Frame::from_packet(&cnp, &route, &[]).unwrap();
        let bytes = frame.encode();
        // Ethernet 14, IPv4 20, UDP 8, BTH 12, reserved 16, ICRC 4.
        assert_eq!(bytes.len(), 74);
        assert_eq!(usize::from(cnp.frame_len), bytes.len() + 4);
        // Opcode; SE, M, pad and version 0; P_Key; byte 4; queue pair; AckReq; PSN.
        assert_eq!(
            bytes[42..54],
            [0x81, 0, 0xff, 0xff, 0, 0, 0, 0xd2, 0, 0, 0, 0]
        );
        assert_eq!(bytes[54..70], [0; 16]);
        assert_eq!(frame.check(), []);
        assert_eq!(frame.to_packet(id, Payload::EMPTY).unwrap().bth, cnp.bth);
    }

    #[test]
    fn any_bytes_with_the_opcode_are_a_cnp() {
        let route = route();
        let id = RouteTable::new().intern(route);
        let cnp = packet(QpNumber::new(0xd2), 0xffff, &route, id, 6);
        let mut bytes = Frame::from_packet(&cnp, &route, &[]).unwrap().encode();
        bytes[60] = 7;
        bytes[53] = 1;
        let mut frame = Frame::decode(&bytes).unwrap();
        assert_eq!(frame.encode(), bytes);
        assert!(is_cnp(&frame.bth));
        assert_eq!(
            frame.to_packet(id, Payload::EMPTY).unwrap(),
            Packet {
                bth: cnp.bth.with_psn(Psn::new(1)),
                priority: 0, // no tag
                ..cnp
            }
        );
        frame.seal();
        let findings = frame.check();
        assert_eq!(
            findings,
            [
                Finding::Cnp {
                    field: "PSN",
                    found: 1
                },
                Finding::Cnp {
                    field: "a reserved byte",
                    found: 7
                },
            ]
        );
    }
}
