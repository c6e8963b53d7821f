//! What holds for every frame, packet and byte.

use super::super::super::icrc::icrc;
use super::*;
use ::bytes::BytesMut;
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn ecn() -> impl Strategy<Value = Ecn> {
    (0..4u8).prop_map(Ecn::from_bits)
}

fn network() -> impl Strategy<Value = Network> {
    let udp = (any::<u16>(), any::<u16>()).prop_map(|(src_port, checksum)| Udp {
        src_port,
        dst_port: UDP_PORT,
        checksum,
    });
    let v4 = (
        (0..64u8, ecn(), any::<u16>(), any::<bool>(), any::<bool>()),
        (any::<u8>(), any::<u16>(), any::<u32>(), any::<u32>()),
    )
        .prop_map(|(a, b)| Ipv4 {
            dscp: a.0,
            ecn: a.1,
            identification: a.2,
            reserved_flag: a.3,
            dont_fragment: a.4,
            ttl: b.0,
            checksum: b.1,
            src: b.2.into(),
            dst: b.3.into(),
        });
    let v6 = (
        any::<u8>(),
        0..1u32 << 20,
        any::<u8>(),
        any::<u128>(),
        any::<u128>(),
    )
        .prop_map(|(traffic_class, flow_label, hop_limit, src, dst)| Ipv6 {
            traffic_class,
            flow_label,
            hop_limit,
            src: src.into(),
            dst: dst.into(),
        });
    prop_oneof![
        (v4, udp.clone()).prop_map(|(ip, udp)| Network::Ipv4(ip, udp)),
        (v6.clone(), udp).prop_map(|(ip, udp)| Network::Ipv6(ip, udp)),
        v6.prop_map(Network::Grh),
    ]
}

fn link() -> impl Strategy<Value = Ethernet> {
    let tag = (0..8u8, any::<bool>(), 0..4096u16);
    let tag = prop::option::of(tag.prop_map(|(pcp, dei, id)| VlanTag { pcp, dei, id }));
    (any::<[u8; 6]>(), any::<[u8; 6]>(), tag).prop_map(|(dst, src, tag)| Ethernet {
        dst: MacAddr(dst),
        src: MacAddr(src),
        tag,
    })
}

/// A BTH and extended headers that belong to it.
fn headers() -> impl Strategy<Value = (Bth, Ext)> {
    (any::<[u8; 12]>(), any::<[u8; 28]>()).prop_map(|(bth, mut content)| {
        let bth = Bth::from_bytes(&bth);
        if bth.opcode() == Opcode::CNP {
            content = [0; 28];
        }
        let (ext, _) = Ext::decode(bth.opcode(), &content).unwrap();
        (bth, ext)
    })
}

fn some_bytes(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=most).prop_map(Bytes::from)
}

fn frame() -> impl Strategy<Value = Frame> {
    (
        prop::option::of(link()),
        network(),
        headers(),
        some_bytes(200),
        any::<[u8; 3]>(),
        any::<u32>(),
        some_bytes(20),
    )
        .prop_map(
            |(link, network, (bth, ext), payload, mut pad, crc, trailer)| {
                pad[usize::from(bth.pad_count())..].fill(0);
                Frame {
                    // A GRH cannot be told from IPv6 without an EtherType.
                    link: match network {
                        Network::Grh(_) => link.or(Some(Ethernet::NONE)),
                        _ => link,
                    },
                    network,
                    bth,
                    ext,
                    payload,
                    pad,
                    icrc: Icrc(crc),
                    trailer,
                }
            },
        )
}

fn decode(frame: &Frame, wire: &[u8]) -> Result<Frame, DecodeError> {
    match frame.link {
        Some(_) => Frame::decode(wire),
        None => Frame::decode_ip(wire),
    }
}

proptest! {
    #[test]
    fn a_frame_survives_its_bytes(frame in frame()) {
        let wire = frame.encode();
        prop_assert_eq!(wire.len(), frame.view().encoded_len());
        prop_assert_eq!(decode(&frame, &wire).unwrap(), frame);
    }

    #[test]
    fn a_sealed_frame_has_right_sums(frame in frame()) {
        let mut frame = frame;
        frame.seal();
        prop_assert_eq!(frame.check_icrc(), Ok(()));
        for finding in frame.check() {
            let sum = matches!(finding, Finding::Ipv4Checksum { .. } | Finding::Icrc(_));
            prop_assert!(!sum, "{}", finding);
        }
    }

    #[test]
    fn the_icrc_in_pieces_is_that_of_the_datagram(frame in frame()) {
        let wire = frame.encode();
        let start = match frame.link {
            None => 0,
            Some(link) => if link.tag.is_some() { 18 } else { 14 },
        };
        let end = wire.len() - frame.trailer.len() - 4;
        prop_assert_eq!(
            frame.view().compute_icrc(),
            icrc(frame.network.layer(), &wire[start..end], &[], &[])
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // Whatever decodes gives back its bytes, and nothing panics.
    #[test]
    fn random_bytes_are_refused_or_survive(wire in prop::collection::vec(any::<u8>(), 0..120)) {
        for decoded in [Frame::decode(&wire), Frame::decode_ip(&wire)].into_iter().flatten() {
            prop_assert_eq!(decoded.encode(), &wire[..]);
            let _ = decoded.check();
        }
        let _ = Transport::decode(&wire);
        let view = FrameView::decode_udp_payload(&wire, &route_v4(), Ecn::NotCapable);
        let _ = view.map(|view| view.check_icrc_any_identification());
    }

    #[test]
    fn mutated_frames_are_refused_or_survive(
        which in 0..3usize,
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<Index>()),
        more in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut wire = real()[which].clone();
        for (at, value) in changes {
            let at = at.index(wire.len());
            wire[at] = value;
        }
        if let Some(cut) = cut {
            wire.truncate(cut.index(wire.len() + 1));
        }
        wire.extend(more);
        if let Ok(frame) = Frame::decode(&wire) {
            prop_assert_eq!(frame.encode(), wire);
            let _ = frame.check();
            let id = RouteTable::new().intern(frame.route());
            let _ = frame.to_packet(id, Payload::counted(frame.payload.len() as u16));
        }
    }
}

/// Bits that change on the way, by byte from the network header on.
fn masked(layer: Layer, byte: usize) -> u8 {
    match (layer, byte) {
        (Layer::Ipv4, 1 | 8 | 10 | 11 | 26 | 27 | 32) => 0xff,
        (Layer::Ipv6 | Layer::Grh, 0) => 0x0f,
        (Layer::Ipv6 | Layer::Grh, 1 | 2 | 3 | 7) => 0xff,
        (Layer::Ipv6, 46 | 47 | 52) => 0xff,
        (Layer::Grh, 44) => 0xff,
        _ => 0,
    }
}

#[test]
fn the_icrc_sees_each_flipped_bit_but_those_that_change_on_the_way() {
    for wire in real() {
        let frame = Frame::decode(&wire).unwrap();
        let layer = frame.network.layer();
        let mut datagram = wire[14..wire.len() - 4].to_vec();
        for byte in 0..datagram.len() {
            for bit in 0..8 {
                datagram[byte] ^= 1 << bit;
                let same = icrc(layer, &datagram, &[], &[]) == frame.icrc;
                let may_change = masked(layer, byte) >> bit & 1 != 0;
                assert_eq!(same, may_change, "{layer:?} byte {byte} bit {bit}");
                datagram[byte] ^= 1 << bit;
            }
        }
    }
}

fn route() -> impl Strategy<Value = Route> {
    let ends = prop_oneof![
        (any::<u32>(), any::<u32>())
            .prop_map(|(a, b)| { (Gid::from(Ipv4Addr::from(a)), Gid::from(Ipv4Addr::from(b))) }),
        (any::<u64>(), any::<u64>()).prop_map(|(a, b)| {
            let net = 0xfd66u128 << 112;
            let v6 = |n: u64| Gid::from(Ipv6Addr::from(net | u128::from(n)));
            (v6(a), v6(b))
        }),
    ];
    (
        (
            select(vec![Encapsulation::RoceV1, Encapsulation::RoceV2]),
            link(),
            ends,
        ),
        (any::<u16>(), 0..64u8, any::<u8>(), 0..1u32 << 20),
    )
        .prop_map(
            |((encapsulation, link, (src, dst)), (udp_src, dscp, hop_limit, label))| Route {
                encapsulation,
                src_mac: link.src,
                dst_mac: link.dst,
                src,
                dst,
                udp_src: if encapsulation == Encapsulation::RoceV1 {
                    0
                } else {
                    udp_src
                },
                vlan: link.tag.map(|tag| Vlan { id: tag.id }),
                dscp,
                hop_limit,
                // IPv4 has no label.
                flow_label: match (encapsulation, dst.ipv4()) {
                    (Encapsulation::RoceV2, Some(_)) => 0,
                    _ => label,
                },
            },
        )
}

proptest! {
    #[test]
    fn a_packet_survives_its_bytes(
        route in route(),
        (bth, ext) in headers(),
        data in some_bytes(100),
        priority in 0..8u8,
        ecn in ecn(),
        slot in 0..1000u32,
    ) {
        let data = if ext == Ext::Cnp { Bytes::new() } else { data };
        let payload = if ext == Ext::Cnp {
            Payload::EMPTY
        } else {
            Payload::stored(slot, data.len() as u16)
        };
        let id = RouteTable::new().intern(route);
        let pad = payload.pad_count();
        let packet = Packet {
            ext,
            bth: bth.with_pad_count(pad),
            route: id,
            payload,
            frame_len: route.overhead() + 12 + ext.len() + payload.len() + u16::from(pad),
            priority: if route.vlan.is_some() { priority } else { 0 },
            ecn,
            damage: Damage::None,
            hop_limit: route.hop_limit,
        };
        let mut wire = BytesMut::new();
        let len = encode_packet(&packet, &route, &data, &mut wire).unwrap();
        prop_assert_eq!(len, wire.len());
        prop_assert_eq!(len + 4, usize::from(packet.frame_len));

        let view = FrameView::decode(&wire).unwrap();
        prop_assert_eq!(view.check_icrc(), Ok(()));
        prop_assert_eq!(view.route(), route);
        prop_assert_eq!(view.transport.payload, &data[..]);
        prop_assert_eq!(view.to_packet(id, payload).unwrap(), packet);
        prop_assert_eq!(Frame::from_packet(&packet, &route, &data).unwrap(), view.to_frame());

        let mut fixed = [0xaa; 400];
        prop_assert_eq!(encode_packet(&packet, &route, &data, &mut &mut fixed[..]), Ok(len));
        prop_assert_eq!(&fixed[..len], &wire[..]);

        let mut datagram = Vec::new();
        if route.encapsulation == Encapsulation::RoceV2 {
            encode_udp_payload(&packet, &route, &data, &mut datagram).unwrap();
            prop_assert_eq!(&datagram[..], &wire[wire.len() - datagram.len()..]);
            let view = FrameView::decode_udp_payload(&datagram, &route, ecn).unwrap();
            prop_assert_eq!(view.check_icrc(), Ok(()));
            let untagged = packet.frame_len - if route.vlan.is_some() { 4 } else { 0 };
            prop_assert_eq!(
                view.to_packet(id, payload).unwrap(),
                Packet { priority: 0, frame_len: untagged, ..packet }
            );
        }
    }
}
