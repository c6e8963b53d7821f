//! Frames of real cards, refusals and findings by name; properties are in [`properties`].

mod properties;

use super::super::{Immediate, Psn, QpNumber, RouteTable};
use super::*;

/// Frames of real cards: RoCEv2 over IPv4 and IPv6 with pad 2, RoCEv1 with pad 3.
const FRAMES: [&str; 3] = [
    "248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff\
     000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3",
    "248a07a8fa22248a07a8fa2286dd6e21face002c11ff202200000000000000000000000010232023000000000000\
     0000000000001024c00012b7002ce7c52460ffff000000d300cf17104630818be28935d90e9a95505401be885e50\
     00003e5b743b",
    "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f0000020000000000000000\
     0000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3\
     d856bb",
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| d as u8)
        .collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

fn real() -> [Vec<u8>; 3] {
    FRAMES.map(bytes)
}

#[test]
fn frames_of_real_cards_survive_and_have_the_right_icrc() {
    for wire in real() {
        let frame = Frame::decode(&wire).unwrap();
        assert_eq!(frame.encode(), wire);
        assert_eq!(frame.check_icrc(), Ok(()));
        assert_eq!(frame.check(), []);
        assert_eq!(frame.view().encoded_len(), wire.len());
        assert_eq!(frame.view().frame_len(), wire.len() + 4);

        let shared = bytes::Bytes::from(wire.clone());
        assert_eq!(Frame::decode_shared(&shared).unwrap(), frame);

        // From the IP header on.
        if frame.network.layer() != Layer::Grh {
            let ip = Frame::decode_ip(&wire[14..]).unwrap();
            assert_eq!(ip.link, None);
            assert_eq!(ip.encode(), wire[14..]);
            assert_eq!(ip.payload, frame.payload);
            assert_eq!(ip.check(), []);
        }
    }
}

#[test]
fn fields_of_real_frames() {
    let [v4, v6, v1] = real().map(|wire| Frame::decode(&wire).unwrap());

    let Network::Ipv4(ip, udp) = v4.network else {
        panic!("{v4:?}");
    };
    assert_eq!(ip.src, Ipv4Addr::new(192, 168, 0, 7));
    assert_eq!((ip.dscp, ip.ecn, ip.ttl), (0, Ecn::Capable1, 64));
    assert_eq!((ip.identification, ip.checksum), (0x0478, 0xb4d5));
    assert!(ip.dont_fragment && !ip.reserved_flag);
    assert_eq!((udp.src_port, udp.checksum), (0xc000, 0xaca2));
    assert_eq!(v4.bth.opcode().to_string(), "UC Send Only");
    assert_eq!((v4.payload.len(), v4.bth.pad_count()), (18, 2));
    assert_eq!(v4.icrc.to_string(), "78f353f3");

    let Network::Ipv6(ip, _) = v6.network else {
        panic!("{v6:?}");
    };
    assert_eq!((ip.traffic_class, ip.flow_label), (0xe2, 0x1face));
    assert_eq!(ip.hop_limit, 255);
    assert_eq!(v6.payload.len(), 18);

    let Network::Grh(ip) = v1.network else {
        panic!("{v1:?}");
    };
    assert_eq!(ip.traffic_class, 2);
    assert_eq!(v1.bth.opcode(), Opcode::RC_WRITE_ONLY);
    assert_eq!(v1.ext.reth().unwrap().dma_len, 5);
    assert_eq!((v1.payload.len(), v1.bth.pad_count()), (5, 3));
    assert_eq!(v1.route().encapsulation, Encapsulation::RoceV1);
}

#[test]
fn a_udp_socket_hides_the_identification_and_the_icrc_tells_it() {
    let wire = &real()[0];
    let route = Frame::decode(wire).unwrap().route();
    let mut payload = wire[42..].to_vec();
    let view = FrameView::decode_udp_payload(&payload, &route, Ecn::NotCapable).unwrap();
    assert!(view.check_icrc().is_err());
    assert_eq!(view.check_icrc_any_identification(), Ok(0x0478));
    payload[20] ^= 1;
    let view = FrameView::decode_udp_payload(&payload, &route, Ecn::NotCapable).unwrap();
    assert_eq!(
        view.check_icrc_any_identification(),
        view.check_icrc().map(|()| 0)
    );

    // IPv6 has none to hide.
    let wire = &real()[1];
    let route = Frame::decode(wire).unwrap().route();
    let view = FrameView::decode_udp_payload(&wire[62..], &route, Ecn::NotCapable).unwrap();
    assert_eq!(view.check_icrc(), Ok(()));
    assert_eq!(view.check_icrc_any_identification(), Ok(0));
}

#[test]
fn a_mark_on_the_way_keeps_icrc_and_header_checksum_right() {
    for wire in real() {
        for ecn in [Ecn::Experienced, Ecn::Capable0, Ecn::NotCapable] {
            let mut frame = Frame::decode(&wire).unwrap();
            frame.network.set_ecn(ecn);
            let marked = frame.encode();
            let frame = Frame::decode(&marked).unwrap();
            assert_eq!(frame.network.ecn(), ecn);
            assert_eq!(frame.check(), []);
        }
    }
}

#[test]
fn ethernet_padding_is_kept_and_covered_by_nothing() {
    for mut wire in real() {
        wire.extend([0, 0, 7, 0, 0, 0]);
        let frame = Frame::decode(&wire).unwrap();
        assert_eq!(frame.trailer[..], [0, 0, 7, 0, 0, 0]);
        assert_eq!(frame.encode(), wire);
        assert_eq!(frame.check(), []);
    }
}

#[test]
fn a_tag_is_read_and_written() {
    let plain = &real()[0];
    let mut tagged = plain[..12].to_vec();
    // Priority 5, drop eligible, VLAN 100.
    tagged.extend([0x81, 0x00, 0xb0, 0x64]);
    tagged.extend(&plain[12..]);
    let frame = Frame::decode(&tagged).unwrap();
    assert_eq!(
        frame.link.unwrap().tag,
        Some(VlanTag {
            pcp: 5,
            dei: true,
            id: 100
        })
    );
    assert_eq!(frame.encode(), tagged);
    assert_eq!(frame.check(), []);
    let id = RouteTable::new().intern(frame.route());
    let packet = frame.to_packet(id, Payload::counted(18)).unwrap();
    assert_eq!(packet.priority, 5);
    assert_eq!(usize::from(packet.frame_len), tagged.len() + 4);
}

/// The IPv4 frame with one byte changed.
fn changed(at: usize, value: u8) -> Vec<u8> {
    let mut wire = real()[0].clone();
    wire[at] = value;
    wire
}

#[test]
fn refusals_name_field_value_and_limit() {
    let v6 = |at: usize, value: u8| {
        let mut wire = real()[1].clone();
        wire[at] = value;
        wire
    };
    let v1 = |at: usize, value: u8| {
        let mut wire = real()[2].clone();
        wire[at] = value;
        wire
    };
    let whole = &real()[0];
    for (wire, message, foreign) in [
        (
            whole[..13].to_vec(),
            "Ethernet: 13 bytes there, 14 needed",
            false,
        ),
        (
            whole[..33].to_vec(),
            "IPv4: 19 bytes there, 20 needed",
            false,
        ),
        (
            whole[..70].to_vec(),
            "IPv4: length field 64, must be from 20 to 56",
            false,
        ),
        (
            changed(17, 19),
            "IPv4: length field 19, must be from 20 to 64",
            false,
        ),
        (changed(17, 27), "UDP: 7 bytes there, 8 needed", false),
        (
            changed(17, 60),
            "UDP: length 44, 40 in the IP header",
            false,
        ),
        (
            changed(14, 0x46),
            "IPv4: header length 6 words, 5 needed",
            false,
        ),
        (changed(14, 0x55), "IPv4: version 5, 4 needed", false),
        (
            changed(23, 6),
            "IPv4: protocol or next header 0x06, 0x11 needed",
            true,
        ),
        (
            changed(20, 0x20),
            "IPv4: a fragment, offset 0 times 8, more to follow: true; must be whole",
            false,
        ),
        (
            changed(21, 0xb9),
            "IPv4: a fragment, offset 185 times 8, more to follow: false; must be whole",
            false,
        ),
        (
            changed(37, 0xb8),
            "UDP: destination port 4792, 4791 needed",
            true,
        ),
        (
            changed(39, 0x2d),
            "UDP: length 45, 44 in the IP header",
            false,
        ),
        (
            changed(12, 0x88),
            "EtherType 0x8800: not IPv4 (0x0800), IPv6 (0x86dd) or RoCEv1 (0x8915)",
            true,
        ),
        (v6(14, 0x4e), "IPv6: version 4, 6 needed", false),
        (
            v6(19, 45),
            "IPv6: length field 45, must be from 0 to 44",
            false,
        ),
        (
            v6(20, 0),
            "IPv6: protocol or next header 0x00, 0x11 needed",
            true,
        ),
        (
            v1(20, 0x11),
            "GRH: protocol or next header 0x11, 0x1b needed",
            false,
        ),
        (v1(19, 15), "BTH and ICRC: 15 bytes there, 16 needed", false),
        (
            v1(19, 31),
            "RC RDMA Write Only: 15 bytes follow the BTH, its extended headers need 16",
            false,
        ),
    ] {
        // Some messages depend on lengths that the samples fix.
        let error = Frame::decode(&wire).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.is_foreign(), foreign, "{error}");
    }
}

/// BTH with `opcode` and `pad`, `content`, an ICRC.
fn datagram(opcode: u8, pad: u8, content: &[u8]) -> Vec<u8> {
    let bth = Bth::new(Opcode(opcode), QpNumber::new(7), Psn::new(0)).with_pad_count(pad);
    let mut bytes = bth.to_bytes().to_vec();
    bytes.extend(content);
    bytes.extend([0; 4]);
    bytes
}

// The kernel's driver computed a payload length from a pad count it had not checked, and the length
// of the headers from an opcode it did not know.
#[test]
fn forged_pad_counts_and_unknown_opcodes_in_short_datagrams_are_refused_or_empty() {
    let refused = datagram(0x04, 3, &[1, 2]);
    assert_eq!(
        Transport::decode(&refused).unwrap_err().to_string(),
        "BTH: pad count 3, but 2 bytes of payload and pad are there"
    );
    let refused = datagram(0x11, 1, &[0; 4]);
    assert_eq!(
        Transport::decode(&refused),
        Err(DecodeError::PadCount { pad: 1, there: 0 })
    );
    let all = datagram(0x04, 3, &[1, 2, 3]);
    let t = Transport::decode(&all).unwrap();
    assert_eq!((t.payload, t.pad), (&[][..], &[1, 2, 3][..]));

    let short = datagram(0xff, 0, &[]);
    let t = Transport::decode(&short).unwrap();
    assert_eq!((t.ext, t.payload), (Ext::None, &[][..]));
    for n in 0..16 {
        assert_eq!(
            Transport::decode(&short[..n]),
            Err(DecodeError::Truncated {
                header: Header::BthAndIcrc,
                there: n,
                needed: 16
            })
        );
    }
}

#[test]
fn headers_that_are_not_modelled_stay_in_the_payload() {
    for (opcode, name) in [
        (0xa6, "XRC RDMA Write First"),
        (0x44, "RD Send Only"),
        (0x1c, "RC Flush"),
        (0x18, "RC unknown opcode 0x18"),
        (0xc0, "unknown opcode 0xc0"),
    ] {
        let content: Vec<u8> = (0..24).collect();
        let bytes = datagram(opcode, 0, &content);
        let t = Transport::decode(&bytes).unwrap();
        assert_eq!(t.bth.opcode().to_string(), name);
        assert_eq!((t.ext, t.payload), (Ext::None, &content[..]), "{name}");
    }
}

#[test]
fn findings_name_field_value_and_limit() {
    // Each change, and what is found beside what the change itself makes wrong.
    let findings = |wire: &[u8]| {
        let frame = Frame::decode(wire).unwrap();
        let found: Vec<String> = frame.check().iter().map(Finding::to_string).collect();
        found
    };
    assert_eq!(
        findings(&changed(24, 0xb5)),
        ["IPv4: header checksum 0xb5d5, 0xb4d5 computed"]
    );
    assert_eq!(
        findings(&changed(40, 0xad)),
        ["UDP: checksum 0xada2, 0xaca2 computed"]
    );
    // Without a UDP checksum, since it would be wrong as well.
    let mut frame = Frame::decode(&real()[0]).unwrap();
    let Network::Ipv4(ip, udp) = &mut frame.network else {
        panic!("{frame:?}");
    };
    udp.checksum = 0;
    ip.dont_fragment = false;
    frame.seal();
    assert_eq!(frame.check(), [Finding::Fragmentable]);
    let Network::Ipv4(ip, _) = &mut frame.network else {
        panic!("{frame:?}");
    };
    ip.dont_fragment = true;

    frame.bth = frame.bth.with_tver(3);
    frame.seal();
    assert_eq!(frame.check(), [Finding::TransportVersion { found: 3 }]);
    frame.bth = frame.bth.with_tver(0).with_pad_count(1);
    frame.seal();
    let found = frame.check();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "payload of 18 bytes with pad count 1, 2 needed"
    );
    frame.bth = frame
        .bth
        .with_opcode(Opcode::RC_READ_REQUEST)
        .with_pad_count(2);
    frame.ext = Ext::Reth(super::super::Reth {
        va: 0,
        rkey: super::super::RemoteKey(0),
        dma_len: 0,
    });
    frame.seal();
    let found = frame.check();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "RC RDMA Read Request: 18 bytes of payload, must be 0"
    );

    let mut frame = Frame::decode(&real()[0]).unwrap();
    frame.icrc.0 ^= 1;
    assert_eq!(
        frame.check()[0].to_string(),
        "ICRC 79f353f3 found, 78f353f3 computed from the bytes"
    );
}

fn route_v4() -> Route {
    Route {
        encapsulation: Encapsulation::RoceV2,
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src: Ipv4Addr::new(10, 0, 0, 1).into(),
        dst: Ipv4Addr::new(10, 0, 0, 2).into(),
        udp_src: 0xc123,
        vlan: None,
        dscp: 26,
        hop_limit: 64,
        flow_label: 0,
    }
}

fn send_only(route: &Route, id: RouteId, payload: Payload) -> Packet {
    let bth = Bth::new(Opcode(0x24), QpNumber::new(7), Psn::new(9));
    Packet {
        ext: Ext::None,
        bth: bth.with_pad_count(payload.pad_count()),
        route: id,
        frame_len: route.overhead() + 12 + payload.len() + u16::from(payload.pad_count()),
        payload,
        priority: 3,
        ecn: Ecn::Capable0,
        damage: Damage::None,
        hop_limit: 63,
    }
}

#[test]
fn a_packet_has_the_fields_the_annex_asks_for() {
    let route = route_v4();
    let id = RouteTable::new().intern(route);
    let packet = send_only(&route, id, Payload::stored(0, 5));
    let mut out = Vec::new();
    let len = encode_packet(&packet, &route, b"hello", &mut out).unwrap();
    assert_eq!(len, out.len());
    assert_eq!(len + 4, usize::from(packet.frame_len));
    // Version and length; DSCP 26, ECN 10; total length; identification 0; DF; TTL; UDP.
    assert_eq!(
        out[14..24],
        [0x45, 26 << 2 | 2, 0, 52, 0, 0, 0x40, 0, 63, 17]
    );
    // Ports, length, no checksum.
    assert_eq!(out[34..42], [0xc1, 0x23, 0x12, 0xb7, 0, 32, 0, 0]);
    assert_eq!(&out[54..62], b"hello\0\0\0");
    let view = FrameView::decode(&out).unwrap();
    assert_eq!(view.check(), []);

    // A UDP socket sends the same from the BTH on.
    let mut datagram = Vec::new();
    encode_udp_payload(&packet, &route, b"hello", &mut datagram).unwrap();
    assert_eq!(datagram, out[42..]);

    // The priority shows in a tag alone.
    let tagged = Route {
        vlan: Some(Vlan { id: 7 }),
        ..route
    };
    out.clear();
    encode_packet(&packet, &tagged, b"hello", &mut out).unwrap();
    assert_eq!(out[12..18], [0x81, 0, 0x60, 7, 8, 0]);
}

#[test]
fn a_counted_payload_is_zero_bytes_by_choice() {
    let route = route_v4();
    let id = RouteTable::new().intern(route);
    for len in [0, 1, 2, 3, 4, 1024, 4096, 9001] {
        let packet = send_only(&route, id, Payload::counted(len));
        let mut zeros = Vec::new();
        encode_packet(&packet, &route, &[], &mut zeros).unwrap();
        let mut given = Vec::new();
        encode_packet(&packet, &route, &vec![0; len.into()], &mut given).unwrap();
        assert_eq!(zeros, given, "{len}");
        assert_eq!(FrameView::decode(&zeros).unwrap().check(), [], "{len}");
    }
    // What is stored must be given.
    let packet = send_only(&route, id, Payload::stored(1, 8));
    assert_eq!(
        encode_packet(&packet, &route, &[], &mut Vec::new())
            .unwrap_err()
            .to_string(),
        "0 bytes given for a payload of 8"
    );
}

#[test]
fn packets_that_cannot_be_written_are_refused() {
    let route = route_v4();
    let id = RouteTable::new().intern(route);
    let packet = send_only(&route, id, Payload::stored(1, 8));
    let mut small = [0u8; 40];
    assert_eq!(
        encode_packet(&packet, &route, &[1; 8], &mut &mut small[..]),
        Err(EncodeError::NoRoom {
            there: 40,
            needed: 66
        })
    );
    let mixed = Route {
        dst: Ipv6Addr::LOCALHOST.into(),
        ..route
    };
    assert_eq!(
        encode_packet(&packet, &mixed, &[1; 8], &mut Vec::new())
            .unwrap_err()
            .to_string(),
        "route from 10.0.0.1 to ::1: one address is IPv4, the other IPv6"
    );
    let v1 = Route {
        encapsulation: Encapsulation::RoceV1,
        ..route
    };
    assert!(encode_packet(&packet, &v1, &[1; 8], &mut Vec::new()).is_ok());
    assert_eq!(
        encode_udp_payload(&packet, &v1, &[1; 8], &mut Vec::new())
            .unwrap_err()
            .to_string(),
        "route from 10.0.0.1 to 10.0.0.2: RoCEv1 does not go through UDP"
    );
    let huge = Packet {
        payload: Payload::counted(65_500),
        ..packet
    };
    assert_eq!(
        encode_packet(&huge, &route, &[], &mut Vec::new()),
        Err(EncodeError::Length { there: 65_544 })
    );
}

#[test]
fn damage_in_a_device_shows_in_the_icrc_alone() {
    let route = route_v4();
    let id = RouteTable::new().intern(route);
    let packet = Packet {
        damage: Damage::Device,
        ..send_only(&route, id, Payload::counted(8))
    };
    let frame = Frame::from_packet(&packet, &route, &[]).unwrap();
    assert!(matches!(frame.check()[..], [Finding::Icrc(_)]));
    assert!(frame.check_icrc_any_identification().is_err());
}

#[test]
fn a_frame_is_no_packet_if_payload_or_pad_do_not_fit() {
    let mut frame = Frame::decode(&real()[0]).unwrap();
    let id = RouteTable::new().intern(frame.route());
    assert_eq!(
        frame
            .to_packet(id, Payload::counted(17))
            .unwrap_err()
            .to_string(),
        "payload handle of 17 bytes for a frame with 18 bytes of payload"
    );
    frame.bth = frame.bth.with_pad_count(1);
    assert_eq!(
        frame
            .to_packet(id, Payload::counted(18))
            .unwrap_err()
            .to_string(),
        "pad count 1 after 18 bytes of payload, 2 needed"
    );
    // Immediate data is given to the card in its header.
    frame.bth = frame.bth.with_pad_count(2).with_opcode(Opcode(0x25));
    frame.ext = Ext::Immediate(Immediate::from_be(5));
    let packet = frame.to_packet(id, Payload::counted(18)).unwrap();
    assert_eq!(packet.ext.immediate(), Some(Immediate::from_be(5)));
}
