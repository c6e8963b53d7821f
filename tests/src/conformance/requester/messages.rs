//! How a message becomes packets.

use super::successes;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id};
use softroce_sim::card::{Mtu, SendRequest, Status, Work};
use softroce_sim::memory::Storage;
use softroce_sim::wire::{Immediate, NakCode, Opcode};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Id("C5-8"),
        "Packets of a message are as long as the path MTU, but for the last",
        [a_message_is_cut_at_the_path_mtu_and_its_last_packet_asks]
    ),
    rule!(
        Behaviour,
        "Immediate data goes with the last or only packet",
        [immediate_data_goes_with_the_last_packet_alone]
    ),
    rule!(
        Behaviour,
        "The solicited event bit is on the last packet alone",
        [the_solicited_bit_is_on_the_last_packet_alone]
    ),
    rule!(
        Behaviour,
        "Data is gathered from the elements in their order, empty ones too",
        [data_is_gathered_from_the_elements_in_order]
    ),
    rule!(
        Behaviour,
        "A list of elements is read when it is posted, and never again",
        [what_the_program_does_to_its_list_after_posting_changes_nothing]
    ),
    rule!(
        Behaviour,
        "PSNs wrap at 24 bits, requests and answers alike",
        [psns_wrap_at_24_bits]
    ),
    rule!(
        Behaviour,
        "A message has up to 2^31 bytes; a longer one fails where it is posted",
        [a_message_of_2_to_the_31_bytes_is_sent_and_one_byte_more_is_not]
    ),
];

fn a_message_is_cut_at_the_path_mtu_and_its_last_packet_asks() {
    // As in rc_send and rc_write.
    let mut b = Bench::ready();
    b.post_send(1, 3000);
    assert_eq!(
        b.says(),
        [
            "Send First 0 [1024]",
            "Send Middle 1 [1024]",
            "Send Last 2 [952] ?"
        ]
    );
    b.post_write(2, 1025);
    assert_eq!(
        b.says(),
        [
            "RDMA Write First 3 of 1025 [1024]",
            "RDMA Write Last 4 [1] ?"
        ]
    );
    b.post_send(3, 1024);
    b.post_send(4, 0);
    assert_eq!(b.says(), ["Send Only 5 [1024] ?", "Send Only 6 ?"]);
    b.post_read(5, 3000);
    b.post_read(6, 0);
    assert_eq!(
        b.says(),
        [
            "RDMA Read Request 7 of 3000 ?",
            "RDMA Read Request 10 of 0 ?"
        ]
    );
}

fn immediate_data_goes_with_the_last_packet_alone() {
    let i = Immediate::from_be(0x0102_0304);
    let mut b = Bench::ready();
    let sges = |len| [b.sge(0, len)];
    let (long, short) = (sges(1025), sges(1));
    b.post(1, Work::SendImmediate(i), &long);
    b.post(2, Work::SendImmediate(i), &short);
    b.post(3, Work::WriteImmediate(elsewhere(), i), &long);
    b.post(4, Work::WriteImmediate(elsewhere(), i), &short);
    let packets = b.packets();
    let words: Vec<_> = packets.iter().map(|p| b.describe(p)).collect();
    assert_eq!(
        words,
        [
            "Send First 0 [1024]",
            "Send Last Immediate 1 [1] ?",
            "Send Only Immediate 2 [1] ?",
            "RDMA Write First 3 of 1025 [1024]",
            "RDMA Write Last Immediate 4 [1] ?",
            "RDMA Write Only Immediate 5 of 1 [1] ?"
        ]
    );
    let immediates: Vec<_> = packets
        .iter()
        .map(|p| p.ext.immediate().is_some())
        .collect();
    assert_eq!(immediates, [false, true, true, false, true, true]);
}

fn the_solicited_bit_is_on_the_last_packet_alone() {
    let mut b = Bench::ready();
    let sge = b.sge(0, 2000);
    b.try_post(&SendRequest {
        solicited: true,
        ..SendRequest::new(1, Work::Send, &[sge])
    })
    .unwrap();
    let bits: Vec<_> = b.packets().iter().map(|p| p.bth.solicited()).collect();
    assert_eq!(bits, [false, true]);
}

fn data_is_gathered_from_the_elements_in_order() {
    let mut b = Bench::ready();
    let data = pattern(1, 2000);
    b.buffer.write_at(0, &data);
    // Empty elements, and one that crosses a packet boundary.
    let sges = [
        b.sge(0, 0),
        b.sge(100, 3),
        b.sge(0, 0),
        b.sge(500, 1500),
        b.sge(7, 0),
    ];
    b.post(1, Work::Send, &sges);
    let sent: Vec<u8> = b.packets().iter().flat_map(|p| b.bytes(p)).collect();
    assert_eq!(sent, [&data[100..103], &data[500..2000]].concat());
    // None at all is a message of no bytes.
    b.post(2, Work::Send, &[]);
    assert_eq!(b.says(), ["Send Only 2 ?"]);
}

fn what_the_program_does_to_its_list_after_posting_changes_nothing() {
    let mut b = Bench::ready();
    b.buffer.write_at(0, b"right");
    b.buffer.write_at(100, b"wrong");
    let mut sges = vec![b.sge(0, 5)];
    b.post(1, Work::Send, &sges);
    sges[0].addr += 100;
    sges[0].lkey.0 = 0;
    drop(sges);
    let p = b.pull().unwrap();
    assert_eq!(b.bytes(&p), b"right");
    b.hear(nak(0, NakCode::PsnSequenceError));
    let p = b.pull().unwrap();
    assert_eq!(b.bytes(&p), b"right", "sent again");
}

fn psns_wrap_at_24_bits() {
    for sq_psn in [0, 0xff_fffe, 0xff_ffff, 0x7f_ffff] {
        let mut b = Bench::new(Setup {
            sq_psn,
            ..Default::default()
        });
        b.post_send(1, 3000);
        b.post_read(2, 3000);
        b.post_write(3, 1);
        let psns: Vec<_> = b.packets().iter().map(|p| p.bth.psn().get()).collect();
        let expected = [0, 1, 2, 3, 6].map(|n| (sq_psn + n) & 0xff_ffff);
        assert_eq!(psns, expected);
        b.hear(ack(2, 1));
        b.hear_all([
            read_response(Opcode::RC_READ_RESPONSE_FIRST, 3, &[1; 1024]),
            read_response(Opcode::RC_READ_RESPONSE_MIDDLE, 4, &[2; 1024]),
            read_response(Opcode::RC_READ_RESPONSE_LAST, 5, &[3; 952]),
        ]);
        b.hear(ack(6, 3));
        assert_eq!(b.completed(), successes(1..=3));
    }
}

fn a_message_of_2_to_the_31_bytes_is_sent_and_one_byte_more_is_not() {
    for extra in [0, 1] {
        let mut b = Bench::new(Setup {
            mtu: Mtu::M4096,
            ..Default::default()
        });
        b.env.counted = true;
        let storage = Storage::Counted { len: 1 << 32 };
        let mr = b.card.register(b.pd, storage, all_rights()).unwrap();
        let sge = |len| softroce_sim::card::Sge {
            addr: mr.addr,
            len,
            lkey: mr.lkey,
        };
        b.post(1, Work::Write(elsewhere()), &[sge(1 << 31), sge(extra)]);
        let first = b.pull();
        if extra == 0 {
            let words = b.describe(&first.unwrap());
            assert_eq!(
                words,
                format!("RDMA Write First 0 of {} [4096]", 1u32 << 31)
            );
        } else {
            assert_eq!(first, None);
            assert_eq!(b.completed(), [(1, Status::LocalLengthError)]);
        }
    }
}
