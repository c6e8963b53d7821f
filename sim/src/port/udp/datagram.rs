//! Between packets and what a UDP socket sends and receives.

use crate::wire::frame::{
    DecodeError, EncodeError, FrameView, Network, UDP_PORT, encode_udp_payload,
};
use crate::wire::{Ecn, Encapsulation, Gid, MacAddr, Packet, Route};
use etherparse::{
    IpDscp, IpEcn, IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder,
    ip_number,
};
use std::net::{IpAddr, SocketAddr};

/// TTL or hop limit that is assumed of what arrives; the ICRC leaves it out.
const HOP_LIMIT: u8 = 64;
/// Room for any packet, BTH to ICRC.
pub(super) const LONGEST: usize = 4096 + 64;

/// Appends to `out` the datagram that carries `packet`. The ICRC is over the headers that Linux puts in
/// front for a socket that is at `port`, not connected, and has path MTU discovery on.
#[inline]
pub(super) fn encode(
    packet: &Packet,
    route: &Route,
    port: u16,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = out.len();
    encode_udp_payload(packet, route, payload, out)?;
    if port != UDP_PORT {
        // Of what the ICRC is over, only the port is another.
        let icrc = decode(&out[start..], route, packet.ecn, port).map(|view| view.compute_icrc());
        if let (Ok(icrc), Some(end)) = (icrc, out.last_chunk_mut()) {
            *end = icrc.to_bytes();
        }
    }
    Ok(())
}

/// The packet in a datagram that arrived on `route` at `port`.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    route: &Route,
    ecn: Ecn,
    port: u16,
) -> Result<FrameView<'a>, DecodeError> {
    let mut view = FrameView::decode_udp_payload(bytes, route, ecn)?;
    set_port(&mut view.network, port);
    Ok(view)
}

/// The way of a datagram from `from` to the card at `to`.
pub(super) fn arrival(from: SocketAddr, to: Gid, tos: u8) -> Route {
    Route {
        encapsulation: Encapsulation::RoceV2,
        src_mac: MacAddr::default(),
        dst_mac: MacAddr::default(),
        src: from.ip().into(),
        dst: to,
        udp_src: from.port(),
        vlan: None,
        dscp: tos >> 2,
        hop_limit: HOP_LIMIT,
        flow_label: 0,
    }
}

fn set_port(network: &mut Network, port: u16) {
    match network {
        Network::Ipv4(_, udp) | Network::Ipv6(_, udp) => udp.dst_port = port,
        Network::Grh(_) => {}
    }
}

/// The headers of a datagram as far as they are known, for a capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) tos: u8,
    pub(super) hop_limit: u8,
    pub(super) identification: u16,
}

impl Headers {
    /// Of what arrives from `from`.
    pub(super) fn of_arrival(from: SocketAddr, to: SocketAddr, tos: u8) -> Headers {
        Headers {
            from,
            to,
            tos,
            hop_limit: HOP_LIMIT,
            identification: 0,
        }
    }

    /// The Ethernet frame around `datagram`; empty if the two addresses do not fit each other.
    pub(super) fn frame(&self, datagram: &[u8]) -> Vec<u8> {
        let ip = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => IpHeaders::Ipv4(
                Ipv4Header {
                    dscp: IpDscp::try_new(self.tos >> 2).unwrap_or_default(),
                    ecn: IpEcn::try_new(self.tos & 3).unwrap_or_default(),
                    identification: self.identification,
                    dont_fragment: true,
                    time_to_live: self.hop_limit,
                    protocol: ip_number::UDP,
                    source: from.octets(),
                    destination: to.octets(),
                    ..Ipv4Header::default()
                },
                Default::default(),
            ),
            (IpAddr::V6(from), IpAddr::V6(to)) => IpHeaders::Ipv6(
                Ipv6Header {
                    traffic_class: self.tos,
                    flow_label: Ipv6FlowLabel::default(),
                    payload_length: 0,
                    next_header: IpNumber::UDP,
                    hop_limit: self.hop_limit,
                    source: from.octets(),
                    destination: to.octets(),
                },
                Default::default(),
            ),
            _ => return Vec::new(),
        };
        let builder = PacketBuilder::ethernet2([0; 6], [0; 6])
            .ip(ip)
            .udp(self.from.port(), self.to.port());
        let mut frame = Vec::with_capacity(builder.size(datagram.len()));
        // Fails for a datagram above 65,535 bytes, which no socket gives.
        match builder.write(&mut frame, datagram) {
            Ok(()) => frame,
            Err(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Bth, Damage, Ext, Immediate, Opcode, Payload, Psn, QpNumber, RouteTable};
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn route(v6: bool) -> Route {
        let at = |last: u8| {
            if v6 {
                Gid::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()))
            } else {
                Ipv4Addr::new(127, 0, 0, last).into()
            }
        };
        Route {
            src: at(2),
            ..arrival(SocketAddr::new(at(2).ip(), UDP_PORT), at(3), 0)
        }
    }

    fn packet(payload: u16) -> Packet {
        Packet {
            ext: Ext::Immediate(Immediate::from_be(7)),
            bth: Bth::new(
                Opcode(Opcode::RC_SEND_FIRST.0 + 5),
                QpNumber::new(0x11),
                Psn::new(5),
            ),
            route: RouteTable::new().intern(route(false)),
            payload: Payload::stored(0, payload),
            frame_len: 0,
            priority: 0,
            ecn: Ecn::NotCapable,
            damage: Damage::None,
            hop_limit: 64,
        }
    }

    proptest! {
        #[test]
        fn each_port_has_its_icrc(port: u16, other: u16) {
            let mut frame = Vec::new();
            encode(&packet(5), &route(true), port, b"hello", &mut frame).unwrap();
            let view = decode(&frame, &route(true), Ecn::NotCapable, other).unwrap();
            prop_assert_eq!(view.check_icrc().is_ok(), port == other);
            prop_assert_eq!(view.transport.payload, b"hello");
        }

        #[test]
        fn decoding_and_framing_take_anything(
            bytes in prop::collection::vec(any::<u8>(), 0..200), tos: u8, v6: bool,
        ) {
            let route = route(v6);
            if let Ok(view) = decode(&bytes, &route, Ecn::from_bits(tos), UDP_PORT) {
                let _ = view.check_icrc_any_identification();
                let _ = view.to_packet(packet(0).route, Payload::EMPTY);
            }
            let from = SocketAddr::new(route.src.ip(), 1);
            let to = SocketAddr::new(route.dst.ip(), UDP_PORT);
            let frame = Headers::of_arrival(from, to, tos).frame(&bytes);
            prop_assert!(frame.ends_with(&bytes));
        }
    }
}
