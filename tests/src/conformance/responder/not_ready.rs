//! Requests that find no receive, and how the peer learns what there is.

use super::KIB;
use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Kernel, Section};
use softroce_sim::card::{CompletionKind, State, Status};
use softroce_sim::wire::{Ext, Immediate, Opcode, Syndrome};

pub(super) const RULES: &[Rule] = &[
    rule!(
        Section("9.7.5.2.8"),
        "A SEND without a receive is put off by an RNR NAK",
        [
            a_send_without_a_receive_is_put_off,
            a_busy_port_says_once_that_none_is_there
        ]
    ),
    rule!(
        Kernel("rc_rnr_writeimm"),
        "A WRITE with immediate data is put off at its last packet",
        [a_write_with_immediate_is_put_off_at_its_last_packet]
    ),
    rule!(
        Section("9.7.7.2"),
        "Acknowledgements carry the number of receives there are",
        [acknowledgements_carry_the_receives_there_are]
    ),
];

fn credits(b: &mut Bench) -> u8 {
    let p = b.pull().unwrap();
    p.ext.aeth().unwrap().syndrome.0
}

fn a_send_without_a_receive_is_put_off() {
    let mut b = Bench::new(Setup {
        min_rnr_timer: 22,
        ..Default::default()
    });
    b.hear(send_only(0, b"early"));
    // As a kernel answers in rc_rnr_late.
    assert_eq!(b.says(), ["RNR NAK 0 timer 22 msn 0"]);
    // What was behind it is dropped without another word.
    b.hear(send_only(1, b"later"));
    assert_eq!(b.says(), [""; 0]);
    b.hear(send_only(0, b"early"));
    assert_eq!(b.says(), ["RNR NAK 0 timer 22 msn 0"]);
    b.post_recv(1, 0, 16);
    b.hear(send_only(0, b"early"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
    assert_eq!(b.completed(), [(1, Status::Success)]);
    assert_eq!(b.card.counters().rnr_naks_sent, 2);
    assert_eq!(b.state(), State::Rts);
}

fn a_busy_port_says_once_that_none_is_there() {
    let mut b = Bench::ready();
    b.hear(write_only(0, b.remote(0), b"x"));
    b.hear_all((0..10).map(|_| send_only(1, b"early")));
    assert_eq!(b.says(), ["ACK 0 msn 1", "RNR NAK 1 timer 12 msn 1"]);
}

fn a_write_with_immediate_is_put_off_at_its_last_packet() {
    // As in rc_rnr_writeimm.
    let mut b = Bench::ready();
    let to = b.remote(0);
    let data = pattern(9, 1124);
    let last = say(
        Opcode::RC_WRITE_LAST_IMM,
        1,
        Ext::Immediate(Immediate::from_be(0xabcd_0000)),
        &data[1024..],
    )
    .ask();
    b.hear(write(Opcode::RC_WRITE_FIRST, 0, to, 1124, &data[..1024]));
    b.hear(last.clone());
    assert_eq!(b.says(), ["RNR NAK 1 timer 12 msn 0"]);
    // The peer may go back to the first packet, as the kernel does.
    b.hear(write(Opcode::RC_WRITE_FIRST, 0, to, 1124, &data[..1024]));
    b.post_recv(1, 5000, 0);
    b.hear(last);
    assert_eq!(b.says(), ["ACK 1 msn 1"]);
    let c = b.poll();
    assert_eq!(c.len(), 1);
    assert_eq!(
        (c[0].kind, c[0].byte_len),
        (CompletionKind::ReceiveWithImmediate, 1124)
    );
    assert_eq!(c[0].immediate, Some(Immediate([0xab, 0xcd, 0, 0])));
    assert_eq!(b.memory(0, 1124), data);
}

fn acknowledgements_carry_the_receives_there_are() {
    // Codes of 9.7.7.2: 0, 1, 2, 3, 4 stand for themselves, 5 for 6.
    let mut b = Bench::ready();
    let to = b.remote(0);
    for (posted, code) in [(0, 0), (1, 1), (3, 3), (5, 4), (7, 5)] {
        while b.qp.recv_room() > 64 - posted {
            b.post_recv(0, 0, 2048);
        }
        let n = b.card.counters().acks_sent as u32;
        b.hear(write_only(n, to, b"a"));
        assert_eq!(credits(&mut b), code, "{posted} posted");
    }
    // The one that a SEND under way has taken is not offered again.
    b.hear(send(Opcode::RC_SEND_FIRST, 5, KIB).ask());
    assert_eq!(credits(&mut b), 5, "six are left");
    b.hear(send(Opcode::RC_SEND_LAST, 6, b"x").ask());
    assert_eq!(credits(&mut b), 5);
    b.hear(send_only(7, b"x"));
    assert_eq!(credits(&mut b), 4, "five are left");

    let mut setup = Setup::default();
    setup.config.credits = false;
    let mut b = Bench::new(setup);
    b.hear(write_only(0, b.remote(0), b"a"));
    assert_eq!(credits(&mut b), Syndrome::UNLIMITED);
}
