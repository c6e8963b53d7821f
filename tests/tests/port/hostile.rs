//! What strangers send.

use crate::ends::{pair, random};
use crate::every_operation;
use softroce_sim::card::{Mtu, Refusal};
use softroce_sim::port::UdpConfig;
use softroce_sim::random::Stream;
use softroce_sim::wire::frame::encode_udp_payload;
use softroce_sim::wire::{
    Bth, Damage, Ecn, Encapsulation, Ext, Gid, MacAddr, Opcode, Packet, Payload, Psn, QpNumber,
    Reth, Route, RouteTable,
};
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A datagram for the queue pair `dest` that came from `from`, its ICRC right.
fn forge(from: IpAddr, udp_src: u16, to: Gid, dest: QpNumber, stream: &mut Stream) -> Vec<u8> {
    let route = Route {
        encapsulation: Encapsulation::RoceV2,
        src_mac: MacAddr::default(),
        dst_mac: MacAddr::default(),
        src: from.into(),
        dst: to,
        udp_src,
        vlan: None,
        dscp: 0,
        hop_limit: 64,
        flow_label: 0,
    };
    let payload = random(stream, stream.clone().below(300) as usize);
    let packet = Packet {
        ext: Ext::Reth(Reth {
            va: stream.bits(),
            rkey: softroce_sim::wire::RemoteKey(stream.bits() as u32),
            dma_len: stream.bits() as u32,
        }),
        bth: Bth::new(Opcode::RC_WRITE_ONLY, dest, Psn::new(stream.bits() as u32)),
        route: RouteTable::new().intern(route),
        payload: Payload::stored(0, payload.len() as u16),
        frame_len: 0,
        priority: 0,
        ecn: Ecn::NotCapable,
        damage: Damage::None,
        hop_limit: 64,
    };
    let mut bytes = Vec::new();
    encode_udp_payload(&packet, &route, &payload, &mut bytes).unwrap();
    bytes
}

#[test]
fn nothing_a_stranger_sends_disturbs_a_peer() {
    let config = UdpConfig::default();
    let mut stream = Stream::new(5, "data");
    let ends = pair(
        [&config, &config],
        Mtu::M1024,
        14,
        |a, memory, remote, received| {
            let own = a.port.address();
            let (to, number, _) = a.address();
            let busy = AtomicBool::new(true);
            std::thread::scope(|scope| {
                scope.spawn(|| attack(own, to, number, &busy));
                for _ in 0..300 {
                    every_operation(a, memory, remote, received, 5000, &mut stream);
                }
                busy.store(false, Ordering::Relaxed);
            });
        },
    );
    let [a, _] = ends;
    let (port, card) = (a.port.counters(), a.card.counters());
    // Each kind of datagram got as far as it was meant to.
    assert!(port.malformed > 100, "{port:?}");
    for why in [
        Refusal::BadIcrc,
        Refusal::UnknownQueuePair,
        Refusal::WrongAddress,
    ] {
        assert!(card.refused.get(why) > 100, "{why:?}: {card:?}");
    }
}

/// Fires at a card until it is not busy any more.
fn attack(target: std::net::SocketAddr, to: Gid, number: QpNumber, busy: &AtomicBool) {
    let stranger = UdpSocket::bind("127.0.9.9:0").unwrap();
    let source = stranger.local_addr().unwrap();
    let mut stream = Stream::new(6, "attack");
    let mut round = 0u64;
    while busy.load(Ordering::Relaxed) {
        let other = QpNumber::new(number.get() + 1);
        let forged = forge(source.ip(), source.port(), to, number, &mut stream);
        let unknown = forge(source.ip(), source.port(), to, other, &mut stream);
        let mut mutated = forged.clone();
        for _ in 0..=stream.below(4) {
            let at = stream.below(mutated.len() as u64) as usize;
            mutated[at] ^= 1 << stream.below(8);
        }
        let cut = forged[..stream.below(forged.len() as u64) as usize].to_vec();
        let len = stream.below(200) as usize;
        let noise = random(&mut stream, len);
        let long = random(&mut stream, 9000 + (round % 500) as usize);
        for bytes in [&forged, &unknown, &mutated, &cut, &noise, &long] {
            // A full device is no reason to stop.
            let _ = stranger.send_to(bytes, target);
        }
        round += 1;
        std::thread::sleep(Duration::from_micros(50));
    }
}
