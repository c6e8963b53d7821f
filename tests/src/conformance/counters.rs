//! What a card counts and remembers of each queue pair.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::Behaviour;
use softroce_sim::card::{Card, Rare, Refusal, State, Status};
use softroce_sim::time::Span;
use softroce_sim::wire::{NakCode, Opcode, Psn, QpNumber, Syndrome};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A requester counts what it sends, sends again, and is told",
        [a_requester_counts_what_it_sends_and_is_told]
    ),
    rule!(
        Behaviour,
        "A responder counts what it takes, refuses and answers",
        [a_responder_counts_what_it_takes_refuses_and_answers]
    ),
    rule!(
        Behaviour,
        "A card counts for all its queue pairs, those that are gone included",
        [a_card_counts_for_all_its_queue_pairs]
    ),
    rule!(
        Behaviour,
        "What goes wrong is remembered in order, and what goes well is not",
        [what_goes_wrong_is_remembered_and_what_goes_well_is_not]
    ),
];

fn a_requester_counts_what_it_sends_and_is_told() {
    let mut b = Bench::ready();
    // Sent, requests, sent again.
    let sent = |b: &mut Bench| {
        b.says();
        let c = b.counted();
        (c.sent_packets, c.request_packets, c.retransmitted_packets)
    };
    b.post_send(1, 3000);
    assert_eq!(sent(&mut b), (3, 3, 0));
    b.hear(nak(1, NakCode::PsnSequenceError));
    assert_eq!(sent(&mut b), (5, 5, 2));
    b.hear(rnr_nak(1, 1));
    b.wait(Span::from_us(10));
    assert_eq!(sent(&mut b), (7, 7, 4));
    b.hear(ack(2, 1));
    b.post_send(2, 8);
    assert_eq!(sent(&mut b), (8, 8, 4));
    b.wait(Span::from_ms(68));
    assert_eq!(sent(&mut b), (9, 9, 5));
    b.hear(ack(3, 2));
    b.hear(ack(3, 2));
    b.post_read(3, 3000);
    assert_eq!(sent(&mut b), (10, 10, 5));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_FIRST, 4, &[1; 1024]));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_LAST, 6, &[1; 952]));
    assert_eq!(sent(&mut b), (11, 11, 6));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_FIRST, 5, &[1; 1024]));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_LAST, 6, &[1; 952]));
    b.post_write(4, 8);
    assert_eq!(sent(&mut b), (12, 12, 6));
    b.hear(nak(7, NakCode::RemoteAccessError));

    let c = b.counted();
    assert_eq!(c.received_packets, 10);
    assert_eq!(c.acks_received, 2, "one of three was for nobody");
    assert_eq!((c.naks_received.sequence, c.naks_received.total()), (1, 2));
    assert_eq!((c.rnr_naks_received, c.implied_naks, c.timeouts), (1, 1, 1));
    let refused: Vec<_> = c.refused.iter().collect();
    assert_eq!(refused, [(Refusal::Ghost, 1), (Refusal::OutOfSequence, 1)]);
    let done = [1, 2, 3].map(|id| (id, Status::Success));
    let failed = [(4, Status::RemoteAccessError)];
    assert_eq!(b.completed(), [&done[..], &failed].concat());
}

fn a_responder_counts_what_it_takes_refuses_and_answers() {
    let mut b = Bench::ready();
    let at = b.remote(0);
    b.hear(write_only(0, at, b"x"));
    b.says();
    b.hear(write_only(2, at, b"gap"));
    b.says();
    b.hear(write_only(0, at, b"x"));
    b.says();
    b.hear(read(1, at, 3000));
    b.says();
    b.hear(send_only(4, b"no receive"));
    b.says();
    b.hear(send_only(4, b"x").damaged());
    b.hear(fetch_add(4, at, 1));
    b.says();
    let mut bad = at;
    bad.rkey.0 ^= 1;
    b.hear(write_only(5, bad, b"x"));
    assert_eq!(b.says(), ["NAK 5 remote access error msn 3"]);

    let c = b.counted();
    // ACK, NAK, ACK, three packets of data, RNR NAK, the atomic's answer, NAK.
    assert_eq!((c.received_packets, c.sent_packets), (8, 9));
    assert_eq!((c.acks_sent, c.read_response_packets), (2, 3));
    assert_eq!((c.naks_sent.sequence, c.naks_sent.remote_access), (1, 1));
    assert_eq!((c.naks_sent.total(), c.rnr_naks_sent), (2, 1));
    assert_eq!((c.out_of_sequence, c.duplicate_requests), (1, 1));
    assert_eq!((c.request_packets, c.retransmitted_packets), (0, 0));
    let refused: Vec<_> = c.refused.iter().collect();
    let once = [
        Refusal::BadIcrc,
        Refusal::Duplicate,
        Refusal::OutOfSequence,
        Refusal::ReceiverNotReady,
        Refusal::Nak,
    ];
    assert_eq!(refused, once.map(|why| (why, 1)));
}

fn a_card_counts_for_all_its_queue_pairs() {
    let mut b = Bench::ready();
    let other = b.another();
    b.hear(write_only(0, b.remote(0), b"x"));
    b.hear(write_only(0, b.remote(0), b"x").to(other.number()));
    b.hear(write_only(0, b.remote(0), b"x").to(QpNumber::new(2)));
    b.says();
    let counts = |card: &Card| {
        let c = card.counters();
        (c.received_packets, c.sent_packets, c.acks_sent)
    };
    assert_eq!(counts(&b.card), (3, 2, 2));
    assert_eq!(b.counted().received_packets, 1);
    assert_eq!(b.refused(Refusal::UnknownQueuePair), 1);
    b.card.destroy_qp(other.number()).unwrap();
    assert_eq!(counts(&b.card), (3, 2, 2));
    assert_eq!(b.card.qp_counters(other.number()), None);
}

fn what_goes_wrong_is_remembered_and_what_goes_well_is_not() {
    let mut b = Bench::new(Setup {
        retry_cnt: 1,
        ..Default::default()
    });
    let told = |b: &Bench| -> Vec<Rare> {
        let recent = b.card.recent(b.qp.number()).unwrap();
        recent.iter().map(|(_, rare)| rare).collect()
    };
    let mut expected = [State::Init, State::Rtr, State::Rts]
        .map(Rare::State)
        .to_vec();
    // An exchange without a fault.
    b.post_send(1, 8);
    b.post_read(2, 8);
    b.post_recv(3, 0, 8);
    b.says();
    b.hear(ack(0, 1));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, &[1; 8]));
    b.hear(send_only(0, b"x"));
    b.says();
    assert_eq!(b.completed().len(), 3);
    assert_eq!(told(&b), expected);
    // The first PSN of the card is 500, that of its peer 100.
    b.hear(send_only(2, b"gap"));
    let sequence = Syndrome::nak(NakCode::PsnSequenceError);
    expected.push(Rare::NakSent {
        psn: Psn::new(101),
        syndrome: sequence,
    });
    b.post_send(4, 8);
    b.post_send(5, 8);
    b.says();
    let psn = Psn::new(502);
    b.hear(nak(2, NakCode::PsnSequenceError));
    expected.push(Rare::NakReceived {
        psn,
        syndrome: sequence,
    });
    expected.push(Rare::Resend { psn });
    b.says();
    b.wait(Span::from_ms(68));
    expected.push(Rare::Timeout {
        psn,
        retries_left: 0,
        // 4.096 us x 2^14.
        after: Span::from_ps(4_096_000 << 14),
    });
    expected.push(Rare::State(State::Error));
    expected.push(Rare::Failed {
        wr_id: 4,
        status: Status::RetryExceeded,
    });
    // The other one is flushed, which is no failure of its own.
    assert_eq!(b.completed().len(), 2);
    assert_eq!(told(&b), expected);
}
