//! One rule broken at a time, in a copy of a capture that breaks none.

use crate::forge::{Forge, violations};
use softroce::inspect::Rule;
use softroce_sim::wire::frame::Network;
use softroce_sim::wire::{Ext, Msn, Opcode, Psn, QpNumber};

#[track_caller]
fn breaks(forge: &Forge, needed: &[(Rule, u64)]) {
    let inspection = forge.inspect();
    assert_eq!(
        violations(&inspection),
        needed,
        "{:#?}",
        inspection.findings
    );
    assert_eq!(inspection.exit_code(), 1);
}

// rc_send: 1 and its ACK 2, ... 9 FIRST 10 LAST 11 ACK, 12 FIRST 13, 14 MIDDLE 15 LAST 16 ACK.

#[test]
fn an_ack_of_what_was_never_sent() {
    breaks(&Forge::of("rc_send").psn(2, 257), &[(Rule::NeverSent, 2)]);
    breaks(&Forge::of("rc_send").psn(16, 300), &[(Rule::NeverSent, 16)]);
}

#[test]
fn a_nak_of_what_was_never_sent() {
    breaks(
        &Forge::of("rc_nak_rkey_write").psn(2, 259),
        &[(Rule::NeverSent, 2)],
    );
}

#[test]
fn opcodes_out_of_sequence() {
    let last = |n| Forge::of("loss_send_middle").opcode(n, Opcode::RC_SEND_LAST);
    // LAST in place of MIDDLE: what follows has not begun.
    let found = violations(&last(3).inspect());
    assert!(found.contains(&(Rule::OpcodeSequence, 4)), "{found:?}");
    breaks(
        &Forge::of("loss_send_last").opcode(2, Opcode::RC_SEND_ONLY),
        &[(Rule::OpcodeSequence, 2), (Rule::OpcodeSequence, 3)],
    );
    breaks(
        &Forge::of("loss_send_last").opcode(2, Opcode::RC_WRITE_MIDDLE),
        &[(Rule::OpcodeSequence, 2)],
    );
    breaks(
        &Forge::of("uc_loss_middle").opcode(3, Opcode(0x21)),
        &[(Rule::OpcodeSequence, 4), (Rule::PayloadLength, 3)],
    );
}

#[test]
fn a_retransmission_that_differs() {
    breaks(
        &Forge::of("loss_ack").change(2, |f| {
            f.bth = f.bth.with_opcode(Opcode::RC_WRITE_ONLY);
            f.ext = Ext::Reth(softroce_sim::wire::Reth {
                va: 0,
                rkey: Default::default(),
                dma_len: 64,
            });
        }),
        &[(Rule::ResentDiffers, 2)],
    );
}

#[test]
fn a_first_packet_shorter_than_the_path_mtu() {
    breaks(
        &Forge::of("uc_loss_middle").change(2, |f| f.payload = f.payload.slice(..1000)),
        &[(Rule::PayloadLength, 2)],
    );
    breaks(
        &Forge::of("uc_loss_middle").change(1, |f| f.payload = f.payload.slice(..1000)),
        &[(Rule::PayloadLength, 1)],
    );
}

#[test]
fn a_write_that_does_not_add_up() {
    let reth = |f: &mut softroce_sim::wire::Frame| match &mut f.ext {
        Ext::Reth(reth) => reth.dma_len += 4,
        other => panic!("{other:?}"),
    };
    breaks(
        &Forge::of("rc_write").change(1, reth),
        &[(Rule::MessageLength, 1)],
    );
    breaks(
        &Forge::of("uc_loss_write_first").change(1, reth),
        &[(Rule::MessageLength, 3)],
    );
}

#[test]
fn message_sequence_numbers() {
    let msn = |n, msn| Forge::of("rc_send").aeth(n, |a| a.msn = Msn::new(msn));
    // The start is not known, so the second ACK shows what is wrong with the first.
    let found = violations(&msn(4, 1).inspect());
    assert!(found.contains(&(Rule::Msn, 4)), "{found:?}");
    let found = violations(&msn(16, 9).inspect());
    assert_eq!(found, [(Rule::Msn, 16)]);
}

#[test]
fn sequence_naks_without_reason() {
    // Nothing was sent behind PSN 256.
    breaks(
        &Forge::of("rc_nak_rkey_write").syndrome(2, 0x60),
        &[(Rule::SequenceNakWithoutGap, 2)],
    );
    // What was acknowledged before.
    breaks(
        &Forge::of("dup_request").syndrome(3, 0x60),
        &[(Rule::SequenceNakWithoutGap, 3)],
    );
    // Again, and nothing was sent in between; the IPv4 identification tells it from a duplicate.
    let twice = Forge::of("loss_send_middle").again(6, 10).change(7, |f| {
        if let Network::Ipv4(ip, _) = &mut f.network {
            ip.identification = ip.identification.wrapping_add(1);
        }
    });
    breaks(&twice, &[(Rule::SequenceNakAgain, 7)]);
}

#[test]
fn a_retransmission_before_the_rnr_timer_has_run_out() {
    let mut forge = Forge::of("rc_rnr_late");
    // From 27.8 to 17.8 ms; the NAK asks for 20.48, and was not under way longer than the 9.5 that the first
    // answer took.
    for (time, _) in &mut forge.packets[2..] {
        *time -= 10_000;
    }
    breaks(&forge, &[(Rule::RnrTimer, 3)]);
}

/// Packets of rc_rnr_late, a request and the RNR NAK for it, at these times in microseconds.
fn rnr(at: &[(usize, u64)]) -> Forge {
    let whole = Forge::of("rc_rnr_late");
    let mut forge = whole.clone();
    forge.packets.clear();
    for &(number, time) in at {
        forge
            .packets
            .push((time, whole.packets[number - 1].1.clone()));
        let last = forge.packets.len();
        forge = forge.change(last, |f| {
            if let Network::Ipv4(ip, _) = &mut f.network {
                ip.identification = 0x100 + last as u16;
            }
        });
    }
    forge
}

#[test]
fn what_is_sent_again_for_something_earlier_breaks_no_rnr_wait() {
    // The RNR NAK of 20.48 ms may be on its way for as long as an answer took, 2 ms here.
    let crossed = |forge: Forge, number: u64| {
        let inspection = forge.inspect();
        assert_eq!(violations(&inspection), [], "{:#?}", inspection.findings);
        let notes: Vec<_> = inspection.of(Rule::RnrUnderWay).map(|f| f.packet).collect();
        assert_eq!(notes, [number]);
    };
    // A timeout meanwhile: 3 ms after the request. Then an answer to the second copy.
    crossed(rnr(&[(1, 0), (2, 2000), (1, 3000)]), 3);
    // Too late for that.
    breaks(
        &rnr(&[(1, 0), (2, 2000), (1, 7000)]),
        &[(Rule::RnrTimer, 3)],
    );
    // A timeout cannot be so short: 8.192 us is the least.
    breaks(&rnr(&[(1, 0), (2, 4), (1, 6)]), &[(Rule::RnrTimer, 3)]);
    // The wait of an earlier NAK is over; this one repeats it.
    crossed(rnr(&[(1, 0), (2, 2000), (2, 20_000), (1, 22_600)]), 4);
    breaks(
        &rnr(&[(1, 0), (2, 2000), (2, 3000), (1, 22_000)]),
        &[(Rule::RnrTimer, 4)],
    );
}

#[test]
fn a_sequence_nak_that_an_rnr_nak_follows_is_obeyed() {
    // PSN 1 of three messages is lost, and the NAK of that on its way when a late copy is refused.
    let whole = Forge::of("loss_send_middle");
    let mut forge = whole.clone();
    forge.packets.truncate(6);
    let nak = whole.packets[5].clone();
    let lost = nak.1.bth.psn();
    forge.packets.push((nak.0 + 900, nak.1));
    forge = forge.syndrome(7, 0x20 | 22).change(7, |f| {
        if let Network::Ipv4(ip, _) = &mut f.network {
            ip.identification = ip.identification.wrapping_add(1);
        }
    });
    let again = whole.packets.iter().skip(6).find(|p| p.1.bth.psn() == lost);
    let mut again = again.expect("sent again").clone();
    again.0 = nak.0 + 1000;
    forge.packets.push(again);
    let inspection = forge.inspect();
    assert_eq!(violations(&inspection), [], "{:#?}", inspection.findings);
    let note = inspection.of(Rule::RnrUnderWay).next().expect("a note");
    assert_eq!(
        note.text,
        "sent again 100 us after the RNR NAK of packet 7, which asks for 20.48 ms, but the sequence NAK \
         of packet 6 asked before"
    );
}

// rc_read: ... 8 FIRST 9 LAST of READ 7; 11 FIRST 12, 13 MIDDLE 14 LAST of READ 10.

#[test]
fn read_responses() {
    breaks(
        &Forge::of("rc_read")
            .opcode(12, Opcode::RC_READ_RESPONSE_LAST)
            .change(12, |f| {
                f.ext = Ext::Aeth(softroce_sim::wire::Aeth {
                    syndrome: softroce_sim::wire::Syndrome(31),
                    msn: Msn::new(5),
                });
            }),
        &[(Rule::ReadSequence, 12)],
    );
    breaks(
        &Forge::of("rc_read").change(14, |f| f.payload = f.payload.slice(..97)),
        &[(Rule::ReadLength, 14)],
    );
    breaks(
        &Forge::of("rc_read").syndrome(2, 0x60),
        &[(Rule::Syndrome, 2)],
    );
    // A READ response to a SEND, an atomic answer to a SEND.
    breaks(
        &Forge::of("rc_send").opcode(4, Opcode::RC_READ_RESPONSE_ONLY),
        &[(Rule::UnaskedResponse, 4)],
    );
    breaks(
        &Forge::of("rc_send").change(4, |f| {
            let aeth = f.ext.aeth().expect("an ACK");
            f.bth = f.bth.with_opcode(Opcode::RC_ATOMIC_ACKNOWLEDGE);
            f.ext = Ext::AtomicAck(aeth, softroce_sim::wire::AtomicAckEth(7));
        }),
        &[(Rule::UnaskedResponse, 4)],
    );
}

#[test]
fn a_read_resumed_with_the_wrong_rest() {
    breaks(
        &Forge::of("loss_read_resp_last").change(4, |f| match &mut f.ext {
            Ext::Reth(reth) => reth.va += 4,
            other => panic!("{other:?}"),
        }),
        &[(Rule::MessageLength, 4)],
    );
}

#[test]
fn frames_by_themselves() {
    let one = |change: fn(&mut softroce_sim::wire::Frame)| Forge::of("uc_send").change(1, change);
    breaks(
        &one(|f| f.bth = f.bth.with_tver(1)),
        &[(Rule::TransportVersion, 1)],
    );
    breaks(
        &one(|f| {
            if let Network::Ipv4(ip, _) = &mut f.network {
                ip.dont_fragment = false;
            }
        }),
        &[(Rule::Fragmentable, 1)],
    );
    breaks(
        &one(|f| f.bth = f.bth.with_opcode(Opcode(0x2c))),
        &[(Rule::UnknownOpcode, 1)],
    );
    breaks(
        &one(|f| f.bth = f.bth.with_dest_qp(QpNumber::new(0))),
        &[(Rule::QueuePairZero, 1)],
    );
    breaks(
        &Forge::of("rc_send").syndrome(2, 0x65),
        &[(Rule::Syndrome, 2)],
    );
    let mut checksum = Forge::of("uc_send");
    if let Network::Ipv4(ip, _) = &mut checksum.packets[0].1.network {
        ip.checksum ^= 1;
    }
    breaks(&checksum, &[(Rule::Ipv4Checksum, 1)]);
    let mut icrc = Forge::of("uc_send");
    icrc.packets[1].1.icrc.0 ^= 1;
    breaks(&icrc, &[(Rule::BadIcrc, 2)]);
}

#[test]
fn what_is_odd_but_breaks_no_rule() {
    let odd = Forge::of("uc_send")
        .change(1, |f| f.bth = f.bth.with_ack_req(true).with_byte4(0x41))
        .change(2, |f| {
            f.bth = f
                .bth
                .with_psn(Psn::new(f.bth.psn().get()))
                .with_solicited(true)
        });
    let inspection = odd.inspect();
    assert_eq!(violations(&inspection), []);
    assert_eq!(inspection.exit_code(), 0);
    assert_eq!(inspection.of(Rule::NeedlessAckReq).count(), 1);
    let text = &inspection.of(Rule::ReservedBits).next().expect("one").text;
    assert_eq!(text, "BECN, resv6 set");
}
