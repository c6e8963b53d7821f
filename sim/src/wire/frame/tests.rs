use super::super::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Immediate, Psn, QpNumber, RemoteKey, Reth, RouteTable,
    Syndrome,
};
use super::*;
use bytes::BytesMut;
use proptest::prelude::*;

/// Frames of real cards: RoCEv2 over IPv4 and IPv6 with pad 2, RoCEv1 with pad 3.
const FRAMES: [&str; 3] = [
    "248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff\
     000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3",
    "248a07a8fa22248a07a8fa2286dd6e21face002c11ff202200000000000000000000000010232023000000000000\
     0000000000001024c00012b7002ce7c52460ffff000000d300cf17104630818be28935d90e9a95505401be885e50\
     00003e5b743b",
    "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f0000020000000000000000\
     0000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b30000000500000000010000 00e3\
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
