//! The requester and the completer, rule by rule: what is sent, when it is sent again, and when a
//! request is done.

use softroce_sim::card::{CompletionKind, Mtu, Rare, Refusal, SendRequest, State, Status, Work};
use softroce_sim::memory::{Buffer, Storage};
use softroce_sim::time::Span;
use softroce_sim::wire::{Ext, Immediate, NakCode, Opcode, Syndrome};
use softroce_tests::bench::*;

const NONE: [&str; 0] = [];

fn successes(ids: impl IntoIterator<Item = u64>) -> Vec<(u64, Status)> {
    ids.into_iter().map(|id| (id, Status::Success)).collect()
}

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
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

#[test]
fn c9_60_a_request_is_done_when_all_its_packets_are_answered() {
    let mut b = Bench::ready();
    b.post_send(1, 3000);
    b.post_send(2, 3000);
    b.says();
    b.hear(ack(1, 0));
    assert!(b.completed().is_empty());
    b.hear(ack(2, 1));
    assert_eq!(b.completed(), successes([1]));
    b.hear(ack(4, 1));
    assert!(b.completed().is_empty());
    b.hear(ack(5, 2));
    assert_eq!(b.completed(), successes([2]));
}

#[test]
fn one_ack_answers_everything_before_it() {
    let mut b = Bench::ready();
    for id in 0..10 {
        b.post_send(id, 10);
    }
    b.says();
    b.hear(ack(9, 10));
    assert_eq!(b.completed(), successes(0..10));
    // Older ones say nothing new, nor does one for what was never sent.
    b.hear(ack(3, 4));
    b.hear(ack(10, 11));
    b.hear(nak(4, NakCode::RemoteAccessError));
    assert_eq!(b.refused(Refusal::Ghost), 3);
    assert_eq!(b.state(), State::Rts);
}

#[test]
fn completions_say_what_was_done() {
    let mut b = Bench::ready();
    b.post_send(1, 10);
    b.post_write(2, 20);
    b.post_read(3, 4);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 2, b"data"));
    let c = b.poll();
    let kinds: Vec<_> = c.iter().map(|c| (c.wr_id, c.kind, c.status)).collect();
    assert_eq!(
        kinds,
        [
            (1, CompletionKind::Send, Status::Success),
            (2, CompletionKind::Write, Status::Success),
            (3, CompletionKind::Read, Status::Success)
        ]
    );
    assert_eq!(c[2].byte_len, 4);
    assert_eq!(b.memory(0, 4), b"data");
}

#[test]
fn a_request_that_is_not_signaled_completes_only_in_error() {
    let post = |b: &mut Bench, wr_id, signaled| {
        let sge = b.sge(0, 10);
        b.try_post(&SendRequest {
            signaled,
            ..SendRequest::new(wr_id, Work::Send, &[sge])
        })
        .unwrap();
    };
    let mut b = Bench::ready();
    post(&mut b, 1, false);
    post(&mut b, 2, true);
    post(&mut b, 3, false);
    post(&mut b, 4, false);
    b.says();
    b.hear(ack(1, 2));
    assert_eq!(b.completed(), successes([2]));
    b.hear(nak(2, NakCode::RemoteOperationalError));
    assert_eq!(
        b.completed(),
        [
            (3, Status::RemoteOperationError),
            (4, Status::WorkRequestFlushed)
        ]
    );
}

#[test]
fn a_sequence_nak_sends_the_rest_again() {
    // As in loss_send_middle.
    let mut b = Bench::ready();
    b.post_send(1, 5000);
    b.says();
    b.hear(nak(1, NakCode::PsnSequenceError));
    assert_eq!(
        b.says(),
        [
            "Send Middle 1 [1024]",
            "Send Middle 2 [1024]",
            "Send Middle 3 [1024]",
            "Send Last 4 [904] ?"
        ]
    );
    b.hear(ack(4, 1));
    assert_eq!(b.completed(), successes([1]));
    assert_eq!(b.card.counters().retransmitted_packets, 4);
}

#[test]
fn a_nak_also_acknowledges_what_is_before_it() {
    for (say, after) in [
        (nak(1, NakCode::PsnSequenceError), "Send Only 1 [10] ?"),
        (rnr_nak(1, 1), ""),
    ] {
        let mut b = Bench::ready();
        b.post_send(1, 10);
        b.post_send(2, 10);
        b.says();
        b.hear(say);
        assert_eq!(b.completed(), successes([1]));
        assert_eq!(b.says().concat(), after);
    }
}

#[test]
fn a_copy_of_a_nak_costs_no_retry() {
    let mut b = Bench::new(Setup {
        retry_cnt: 1,
        rnr_retry: 1,
        ..Default::default()
    });
    b.post_send(1, 10);
    b.says();
    b.hear(nak(0, NakCode::PsnSequenceError));
    b.hear(nak(0, NakCode::PsnSequenceError));
    b.hear(nak(0, NakCode::PsnSequenceError));
    assert_eq!(b.says(), ["Send Only 0 [10] ?"]);
    b.hear(rnr_nak(0, 1));
    b.hear(rnr_nak(0, 1));
    b.wait(Span::from_us(10));
    assert_eq!(b.says(), ["Send Only 0 [10] ?"]);
    b.hear(nak(0, NakCode::PsnSequenceError));
    assert_eq!(b.completed(), [(1, Status::RetryExceeded)]);
}

#[test]
fn progress_renews_the_retries() {
    let mut b = Bench::new(Setup {
        retry_cnt: 1,
        rnr_retry: 1,
        ..Default::default()
    });
    for id in 0..4 {
        b.post_send(id, 10);
    }
    b.says();
    for n in 0..4 {
        b.hear(nak(n, NakCode::PsnSequenceError));
        b.says();
        b.hear(rnr_nak(n, 1));
        b.wait(Span::from_us(10));
        b.says();
        b.hear(ack(n, n + 1));
    }
    assert_eq!(b.completed(), successes(0..4));
}

#[test]
fn refusals_fail_the_request_they_name_and_flush_the_rest() {
    for (code, status) in [
        (NakCode::InvalidRequest, Status::RemoteInvalidRequest),
        (NakCode::RemoteAccessError, Status::RemoteAccessError),
        (
            NakCode::RemoteOperationalError,
            Status::RemoteOperationError,
        ),
    ] {
        // As in rc_nak_then_more.
        let mut b = Bench::ready();
        b.post_recv(10, 0, 10);
        for id in 0..4 {
            b.post_write(id, 2000);
        }
        b.says();
        b.hear(nak(3, code));
        assert_eq!(
            b.completed(),
            [
                (0, Status::Success),
                (1, status),
                (2, Status::WorkRequestFlushed),
                (3, Status::WorkRequestFlushed),
                (10, Status::WorkRequestFlushed)
            ]
        );
        assert_eq!(b.state(), State::Error);
        let failed =
            |(_, rare)| matches!(rare, Rare::Failed { wr_id: 1, status: s } if s == status);
        assert!(b.card.recent(b.qp.number()).unwrap().iter().any(failed));
        // C10-42: what is posted later is flushed too.
        b.post_send(5, 1);
        b.post_recv(11, 0, 10);
        assert_eq!(
            b.completed(),
            [
                (5, Status::WorkRequestFlushed),
                (11, Status::WorkRequestFlushed)
            ]
        );
        // And nothing of it comes to life again.
        b.hear(ack(7, 4));
        b.wait(Span::from_ms(1000));
        assert_eq!(b.says(), NONE);
        assert!(b.completed().is_empty());
        assert_eq!(b.card.counters().timeouts, 0);
    }
}

#[test]
fn a_read_that_was_answered_in_part_fails_on_a_nak() {
    let mut b = Bench::ready();
    b.post_read(1, 3000);
    b.post_send(2, 1);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1024]));
    b.hear(nak(1, NakCode::RemoteAccessError));
    assert_eq!(
        b.completed(),
        [
            (1, Status::RemoteAccessError),
            (2, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.memory(0, 1025), [[1; 1024].as_slice(), &[0]].concat());
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
}

#[test]
fn a_read_takes_its_data_in_order() {
    let mut b = Bench::ready();
    let data = pattern(2, 3000);
    let sges = [b.sge(0, 1000), b.sge(5000, 0), b.sge(3000, 2000)];
    b.post(1, Work::Read(elsewhere()), &sges);
    b.says();
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_FIRST,
        0,
        &data[..1024],
    ));
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_MIDDLE,
        1,
        &data[1024..2048],
    ));
    assert!(b.completed().is_empty());
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_LAST,
        2,
        &data[2048..],
    ));
    assert_eq!(b.completed(), successes([1]));
    assert_eq!(b.memory(0, 1000), data[..1000]);
    assert_eq!(b.memory(3000, 2000), data[1000..]);
    assert_eq!(b.memory(1000, 2000), [0; 2000]);
}

fn three_packets(first: u32) -> [Say; 3] {
    let data = pattern(2, 3000);
    [
        read_response(Opcode::RC_READ_RESPONSE_FIRST, first, &data[..1024]),
        read_response(
            Opcode::RC_READ_RESPONSE_MIDDLE,
            first + 1,
            &data[1024..2048],
        ),
        read_response(Opcode::RC_READ_RESPONSE_LAST, first + 2, &data[2048..]),
    ]
}

#[test]
fn a_read_response_that_is_missing_is_asked_for_at_once() {
    // First lost, or middle lost: the next one shows it.
    for lost in [0, 1] {
        let mut b = Bench::ready();
        b.post_read(1, 3000);
        b.says();
        let all = three_packets(0);
        b.hear_all(all[..lost].to_vec());
        b.hear_all(all[lost + 1..].to_vec());
        let rest = 3000 - 1024 * lost as u32;
        assert_eq!(b.says(), [format!("RDMA Read Request {lost} of {rest} ?")]);
        assert_eq!(b.card.counters().implied_naks, 1, "one for the gap");
        let request = elsewhere().addr + 1024 * lost as u64;
        let deeds = &b.env.deeds;
        let va = deeds.iter().rev().find_map(|d| match d {
            softroce_sim::card::Deed::Request {
                packet,
                again: true,
            } => packet.ext.reth(),
            _ => None,
        });
        assert_eq!(va.unwrap().va, request);
        // The rest may come back beginning with FIRST, or as it was.
        let data = pattern(2, 3000);
        if lost == 1 {
            b.hear(read_response(
                Opcode::RC_READ_RESPONSE_FIRST,
                1,
                &data[1024..2048],
            ));
            b.hear(read_response(
                Opcode::RC_READ_RESPONSE_LAST,
                2,
                &data[2048..],
            ));
        } else {
            b.hear_all(all);
        }
        assert_eq!(b.completed(), successes([1]));
        assert_eq!(b.memory(0, 3000), data);
    }
}

#[test]
fn a_last_read_response_that_is_missing_is_asked_for_after_the_timeout() {
    // As in loss_read_resp_last.
    let mut b = Bench::ready();
    b.post_read(1, 3000);
    b.says();
    let all = three_packets(0);
    b.hear_all(all[..2].to_vec());
    assert_eq!(b.says(), NONE);
    b.wait(Span::from_ms(68));
    assert_eq!(b.says(), ["RDMA Read Request 2 of 952 ?"]);
    let data = pattern(2, 3000);
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_ONLY,
        2,
        &data[2048..],
    ));
    assert_eq!(b.completed(), successes([1]));
    assert_eq!(b.memory(0, 3000), data);
}

#[test]
fn an_ack_of_a_later_write_does_not_skip_the_read() {
    // WRITE 40, READ 41 to 43, WRITE 44; the READ's data is lost.
    let mut b = Bench::new(Setup {
        sq_psn: 40,
        ..Default::default()
    });
    b.post_write(1, 8);
    b.post_read(2, 3000);
    b.post_write(3, 8);
    b.says();
    b.hear(ack(4, 3));
    assert_eq!(b.completed(), successes([1]), "the first WRITE only");
    assert_eq!(
        b.says(),
        [
            "RDMA Read Request 1 of 3000 ?",
            "RDMA Write Only 4 of 8 [8] ?"
        ]
    );
    // The ACK that comes again before the data is no second gap.
    b.hear(ack(4, 3));
    assert_eq!(b.says(), NONE);
    b.hear_all(three_packets(1));
    b.hear(ack(4, 3));
    assert_eq!(b.completed(), successes([2, 3]));
}

#[test]
fn an_old_answer_says_nothing_about_a_read_that_is_not_sent_again_yet() {
    let mut b = Bench::new(Setup {
        retry_cnt: 1,
        ..Default::default()
    });
    b.post_read(1, 8);
    b.post_write(2, 8);
    b.says();
    // The timeout takes the one retry there is; then an ACK comes that was late.
    b.wait(Span::from_ms(68));
    b.hear(ack(1, 2));
    assert_eq!(
        b.says(),
        ["RDMA Read Request 0 of 8 ?", "RDMA Write Only 1 of 8 [8] ?"]
    );
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 8]));
    b.hear(ack(1, 2));
    assert_eq!(b.completed(), successes([1, 2]));
}

#[test]
fn read_data_acknowledges_what_is_before_it() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.post_read(2, 3000);
    b.says();
    b.hear(three_packets(1)[0].clone());
    assert_eq!(b.completed(), successes([1]));
}

#[test]
fn read_data_that_does_not_fit_the_request_is_a_bad_response() {
    let bad = [
        read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1023]),
        read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1025]),
        read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 1024]),
        read_response(Opcode::RC_READ_RESPONSE_LAST, 0, &[1; 952]),
        read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, b""),
    ];
    for bad in bad {
        let mut b = Bench::ready();
        b.post_read(1, 3000);
        b.says();
        b.hear(bad);
        assert_eq!(b.completed(), [(1, Status::BadResponse)]);
        assert_eq!(b.memory(0, 3000), [0; 3000]);
    }
    // READ data for a SEND.
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 8]));
    assert_eq!(b.completed(), [(1, Status::BadResponse)]);
}

#[test]
fn answers_nobody_waits_for_change_nothing() {
    let mut b = Bench::ready();
    b.hear(ack(0, 1));
    b.hear(nak(0, NakCode::RemoteAccessError));
    b.hear(rnr_nak(0, 1));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, b"x"));
    b.hear(read_response(
        Opcode::RC_READ_RESPONSE_MIDDLE,
        0xff_ffff,
        b"x",
    ));
    assert_eq!(b.refused(Refusal::Ghost), 5);
    b.post_send(1, 8);
    b.says();
    // Reserved syndromes, and an acknowledgement of an atomic that never was.
    for syndrome in [0x40, 0x65, 0x80, 0xff] {
        b.hear(say(
            Opcode::RC_ACKNOWLEDGE,
            0,
            aeth(Syndrome(syndrome), 1),
            &[],
        ));
    }
    b.hear(say(Opcode::RC_ATOMIC_ACKNOWLEDGE, 0, Ext::None, &[]));
    assert_eq!(b.refused(Refusal::Malformed), 5);
    assert_eq!((b.state(), b.completed()), (State::Rts, vec![]));
}

#[test]
fn no_more_reads_are_out_than_the_program_allowed() {
    // As in rc_read_depth1.
    let mut b = Bench::new(Setup {
        max_rd_atomic: 1,
        ..Default::default()
    });
    for id in 0..3 {
        b.post_read(id, 8);
    }
    b.post_send(3, 8);
    for n in 0..3 {
        let says = b.says();
        assert_eq!(says[0], format!("RDMA Read Request {n} of 8 ?"));
        assert_eq!(says.len(), if n == 2 { 2 } else { 1 });
        b.hear(read_response(
            Opcode::RC_READ_RESPONSE_ONLY,
            n,
            &[n as u8; 8],
        ));
    }
    b.hear(ack(3, 4));
    assert_eq!(b.completed(), successes(0..4));
}

#[test]
fn a_read_where_none_is_allowed_fails_instead_of_waiting_for_ever() {
    let mut b = Bench::new(Setup {
        max_rd_atomic: 0,
        ..Default::default()
    });
    b.post_send(1, 8);
    b.post_read(2, 8);
    b.post_send(3, 8);
    assert_eq!(b.says(), ["Send Only 0 [8] ?"]);
    b.hear(ack(0, 1));
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::LocalQpOperationError),
            (3, Status::WorkRequestFlushed)
        ]
    );
}

#[test]
fn a_fenced_request_waits_for_the_reads_before_it() {
    let mut b = Bench::ready();
    b.post_read(1, 8);
    let sge = b.sge(100, 8);
    let sges = [sge];
    let mut fenced = SendRequest {
        fence: true,
        ..SendRequest::new(2, Work::Send, &sges)
    };
    b.try_post(&fenced).unwrap();
    b.post_send(3, 8);
    assert_eq!(b.says(), ["RDMA Read Request 0 of 8 ?"]);
    // Also while the READ is tried again.
    b.wait(Span::from_ms(68));
    assert_eq!(b.says(), ["RDMA Read Request 0 of 8 ?"]);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 8]));
    assert_eq!(b.says(), ["Send Only 1 [8] ?", "Send Only 2 [8] ?"]);
    // SENDs and WRITEs before it are no reason to wait.
    fenced.wr_id = 4;
    b.try_post(&fenced).unwrap();
    assert_eq!(b.says(), ["Send Only 3 [8] ?"]);
}

#[test]
fn the_peers_credits_are_heeded() {
    let mut b = Bench::ready();
    for id in 0..10 {
        b.post_send(id, 8);
    }
    let first = b.pull().unwrap();
    assert_eq!(b.describe(&first), "Send Only 0 [8] ?");
    // MSN 1 and two receives: requests 1 and 2 have one, and one more may be tried.
    b.hear(ack_with_credits(0, 1, 2));
    assert_eq!(
        b.says(),
        [
            "Send Only 1 [8] ?",
            "Send Only 2 [8] ?",
            "Send Only 3 [8] ?"
        ]
    );
    // An old one takes nothing back, a new one gives: code 5 stands for six.
    b.hear(ack_with_credits(1, 1, 0));
    assert_eq!(b.says(), NONE);
    b.hear(ack_with_credits(2, 3, 5));
    assert_eq!(b.says().len(), 6);
    b.hear(ack_with_credits(9, 10, 0));
    // None at all: one may be tried.
    b.post_send(10, 8);
    b.post_send(11, 8);
    assert_eq!(b.says(), ["Send Only 10 [8] ?"]);
    // WRITEs take no receive and are not held back.
    b.hear(ack_with_credits(10, 11, 0));
    assert_eq!(b.says(), ["Send Only 11 [8] ?"]);
    b.post_write(12, 8);
    assert_eq!(b.says(), ["RDMA Write Only 12 of 8 [8] ?"]);
    // "Not limited" lifts the limit.
    for id in 13..20 {
        b.post_send(id, 8);
    }
    assert_eq!(b.says(), NONE);
    b.hear(ack(11, 12));
    assert_eq!(b.says().len(), 7);
}

#[test]
fn credits_of_a_card_that_does_not_heed_them_are_ignored() {
    let mut setup = Setup::default();
    setup.config.credits = false;
    let mut b = Bench::new(setup);
    for id in 0..5 {
        b.post_send(id, 8);
    }
    b.pull();
    b.hear(ack_with_credits(0, 1, 0));
    assert_eq!(b.says().len(), 4);
}

#[test]
fn long_messages_ask_for_an_ack_now_and_then() {
    for every in [1, 4] {
        let mut setup = Setup {
            memory: 1 << 20,
            mtu: Mtu::M256,
            ..Default::default()
        };
        setup.config.ack_every = every;
        let mut b = Bench::new(setup);
        b.post_send(1, 256 * 10);
        let asks: Vec<_> = b.packets().iter().map(|p| p.bth.ack_req()).collect();
        let expected: Vec<_> = (1..=10).map(|n| n % every == 0 || n == 10).collect();
        assert_eq!(asks, expected);
    }
}

#[test]
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

#[test]
fn no_more_than_2_to_the_23_packets_are_out() {
    let mut b = Bench::new(Setup {
        mtu: Mtu::M256,
        ..Default::default()
    });
    b.env.counted = true;
    let storage = Storage::Counted { len: 1 << 32 };
    let mr = b.card.register(b.pd, storage, all_rights()).unwrap();
    let sge = softroce_sim::card::Sge {
        addr: mr.addr,
        len: 1 << 31,
        lkey: mr.lkey,
    };
    b.post(1, Work::Read(elsewhere()), &[sge]);
    b.post_write(2, 8);
    // The READ takes the 2^23 numbers there are.
    assert_eq!(
        b.says(),
        [format!("RDMA Read Request 0 of {} ?", 1u32 << 31)]
    );
    let mut data = read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[]);
    data.counted = Some(256);
    b.hear(data);
    assert_eq!(
        b.says(),
        ["RDMA Write Only 8388608 of 8 [8] ?".replace("8388608", "-8388608")]
    );
}

#[test]
fn a_bad_local_key_fails_the_request_after_those_before_it() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    let mut sge = b.sge(0, 8);
    sge.lkey.0 ^= 1;
    b.post(2, Work::Send, &[sge]);
    b.post_send(3, 8);
    assert_eq!(b.says(), ["Send Only 0 [8] ?"]);
    assert!(b.completed().is_empty(), "not before the first is done");
    b.hear(ack(0, 1));
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::LocalProtectionError),
            (3, Status::WorkRequestFlushed)
        ]
    );
    assert_eq!(b.state(), State::Error);
}

#[test]
fn local_memory_is_checked_in_every_element() {
    let mut bad = Vec::new();
    let mut b = Bench::ready();
    let other = b.card.alloc_pd();
    let mr = b
        .card
        .register(other, Buffer::new(64), all_rights())
        .unwrap();
    bad.push(softroce_sim::card::Sge {
        addr: mr.addr,
        len: 8,
        lkey: mr.lkey,
    });
    bad.push(b.sge(b.mr.len - 7, 8));
    bad.push(softroce_sim::card::Sge {
        addr: u64::MAX - 3,
        len: 8,
        lkey: b.mr.lkey,
    });
    for sge in bad {
        for work in [Work::Send, Work::Write(elsewhere())] {
            // The same seed gives the same keys.
            let mut b = Bench::ready();
            let other = b.card.alloc_pd();
            b.card
                .register(other, Buffer::new(64), all_rights())
                .unwrap();
            let good = b.sge(0, 8);
            b.post(1, work, &[good, sge]);
            assert_eq!(b.says(), NONE);
            assert_eq!(b.completed(), [(1, Status::LocalProtectionError)]);
        }
        let mut b = Bench::ready();
        let good = b.sge(0, 8);
        b.post(1, Work::Read(elsewhere()), &[good, sge]);
        b.says();
        b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 16]));
        assert_eq!(b.completed(), [(1, Status::LocalProtectionError)]);
    }
}

#[test]
fn an_element_of_no_bytes_needs_no_key() {
    let mut b = Bench::ready();
    let mut empty = b.sge(0, 0);
    empty.lkey.0 = !0;
    let full = b.sge(0, 4);
    b.post(1, Work::Send, &[empty, full, empty]);
    assert_eq!(b.says(), ["Send Only 0 [4] ?"]);
}

#[test]
fn a_region_that_goes_away_in_mid_message_fails_the_request() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.post_send(2, 4000);
    b.post_send(3, 8);
    for _ in 0..3 {
        b.pull();
    }
    b.card.deregister(b.mr.lkey).unwrap();
    assert_eq!(b.pull(), None);
    b.hear(ack(1, 1));
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::LocalProtectionError),
            (3, Status::WorkRequestFlushed)
        ]
    );
    b.wait(Span::from_ms(1000));
    assert_eq!(b.says(), NONE);
}
