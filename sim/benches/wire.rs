//! Speed of the wire: ICRC, encoding and decoding beside crc32fast alone, which bounds them all.
//!
//! Throughput counts payload bytes, so that the figures of one size compare with each other.
//! `cargo bench -p softroce-sim --bench wire`

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use softroce_sim::wire::frame::{FrameView, encode_packet, encode_udp_payload};
use softroce_sim::wire::icrc::{Layer, icrc};
use softroce_sim::wire::{
    Bth, Damage, Ecn, Encapsulation, Ext, MacAddr, Opcode, Packet, Payload, Psn, QpNumber, Route,
    RouteTable,
};
use std::hint::black_box;
use std::net::Ipv4Addr;

fn wire(c: &mut Criterion) {
    let route = Route {
        encapsulation: Encapsulation::RoceV2,
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src: Ipv4Addr::new(10, 0, 0, 1).into(),
        dst: Ipv4Addr::new(10, 0, 0, 2).into(),
        udp_src: 0xc000,
        vlan: None,
        dscp: 26,
        hop_limit: 64,
        flow_label: 0,
    };
    let id = RouteTable::new().intern(route);
    for len in [64u16, 1024, 4096] {
        let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let packet = Packet {
            ext: Ext::None,
            bth: Bth::new(Opcode::RC_WRITE_MIDDLE, QpNumber::new(7), Psn::new(9)),
            route: id,
            payload: Payload::stored(0, len),
            frame_len: route.overhead() + 12 + len,
            priority: 0,
            ecn: Ecn::Capable0,
            damage: Damage::None,
            hop_limit: 64,
        };
        let mut frame = BytesMut::new();
        encode_packet(&packet, &route, &data, &mut frame).unwrap();
        let mut datagram = Vec::new();
        encode_udp_payload(&packet, &route, &data, &mut datagram).unwrap();
        let covered = frame[14..frame.len() - 4].to_vec();

        let mut group = c.benchmark_group("wire");
        group.throughput(Throughput::Bytes(len.into()));
        group.bench_function(BenchmarkId::new("crc32fast", len), |b| {
            b.iter(|| crc32fast::hash(black_box(&data)))
        });
        group.bench_function(BenchmarkId::new("icrc", len), |b| {
            b.iter(|| icrc(Layer::Ipv4, black_box(&covered), &[], &[]))
        });
        group.bench_function(BenchmarkId::new("encode_packet", len), |b| {
            let mut out = BytesMut::with_capacity(frame.len());
            b.iter(|| {
                out.clear();
                encode_packet(black_box(&packet), &route, black_box(&data), &mut out).unwrap()
            })
        });
        group.bench_function(BenchmarkId::new("encode_udp_payload", len), |b| {
            let mut out = Vec::with_capacity(datagram.len());
            b.iter(|| {
                out.clear();
                encode_udp_payload(black_box(&packet), &route, black_box(&data), &mut out).unwrap()
            })
        });
        group.bench_function(BenchmarkId::new("decode", len), |b| {
            b.iter(|| FrameView::decode(black_box(&frame)).unwrap())
        });
        group.bench_function(BenchmarkId::new("decode_and_check", len), |b| {
            b.iter(|| {
                let view = FrameView::decode(black_box(&frame)).unwrap();
                view.check_icrc().unwrap();
                view.to_packet(id, packet.payload).unwrap()
            })
        });
        group.bench_function(BenchmarkId::new("decode_udp_and_check", len), |b| {
            b.iter(|| {
                let bytes = black_box(&datagram);
                let view = FrameView::decode_udp_payload(bytes, &route, Ecn::Capable0).unwrap();
                view.check_icrc_any_identification().unwrap();
                view.to_packet(id, packet.payload).unwrap()
            })
        });
        // A peer whose kernel counts identifications.
        let mut elsewhere = frame.clone();
        elsewhere[18..20].copy_from_slice(&[0x12, 0x34]);
        let counted = icrc(Layer::Ipv4, &elsewhere[14..elsewhere.len() - 4], &[], &[]);
        let mut foreign = datagram.clone();
        let at = foreign.len() - 4;
        foreign[at..].copy_from_slice(&counted.to_bytes());
        group.bench_function(
            BenchmarkId::new("decode_udp_any_identification", len),
            |b| {
                b.iter(|| {
                    let bytes = black_box(&foreign);
                    let view = FrameView::decode_udp_payload(bytes, &route, Ecn::Capable0).unwrap();
                    assert_eq!(view.check_icrc_any_identification(), Ok(0x1234));
                    view.to_packet(id, packet.payload).unwrap()
                })
            },
        );
        group.finish();
    }
}

criterion_group!(benches, wire);
criterion_main!(benches);
