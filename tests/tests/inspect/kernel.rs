//! The kernel's captures: no rule is broken, and what happened is what was injected.

use crate::forge::{bytes_of, findings, folder, look};
use softroce::inspect::{Inspection, Rule, Severity};
use std::collections::BTreeSet;

fn cases() -> BTreeSet<String> {
    let files = std::fs::read_dir(folder()).expect("the folder of captures");
    files
        .map(|f| f.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "pcap"))
        .map(|p| {
            p.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

fn of(case: &str) -> Inspection {
    look(&bytes_of(case))
}

/// A rule, and the packets where it is broken.
type Expected = (Rule, &'static [u64]);

/// What the description of each case that has any says was injected, as events: the rule and the
/// packets of that view. Cases with `-responder` are seen at the other end of the wire.
const EVENTS: &[(&str, &[Expected])] = {
    use Rule::*;
    &[
        // The last WRITE is not answered: the connection is torn down.
        (
            "cm_rstream",
            &[(Unacknowledged, &[22]), (AckReqUnanswered, &[22])],
        ),
        // The wire corrupts the first copy.
        (
            "corrupt_icrc",
            &[(Retransmission, &[2]), (LossBeyond, &[2])],
        ),
        (
            "corrupt_icrc-responder",
            &[(BadIcrc, &[1]), (Retransmission, &[2])],
        ),
        // The wire duplicates both requests; the responder answers each copy.
        ("dup_request", &[(DuplicateAck, &[3]), (ReadAgain, &[6])]),
        (
            "dup_request-responder",
            &[
                (Duplicate, &[2, 6]),
                (DuplicateAck, &[4]),
                (ReadAgain, &[8]),
            ],
        ),
        // The ACK of PSN 4608 is lost.
        ("loss_ack", &[(Retransmission, &[2]), (LossBeyond, &[2])]),
        (
            "loss_ack-responder",
            &[
                (Retransmission, &[3]),
                (LossBeyond, &[3]),
                (DuplicateAck, &[4]),
            ],
        ),
        // Three tries, all lost.
        (
            "loss_all",
            &[
                (Retransmission, &[2, 3]),
                (LossBeyond, &[2, 3]),
                (GivenUp, &[3]),
                (OneDirection, &[3]),
            ],
        ),
        // The first READ request is lost; the responder's view is that of a clean READ.
        (
            "loss_read_req",
            &[(Retransmission, &[2]), (LossBeyond, &[2])],
        ),
        // The READ response with PSN 5378 is lost, and asked for again.
        (
            "loss_read_resp_last",
            &[(Retransmission, &[4]), (LossBefore, &[4])],
        ),
        (
            "loss_read_resp_last-responder",
            &[
                (Retransmission, &[5]),
                (LossBeyond, &[5]),
                (ReadAgain, &[6]),
            ],
        ),
        // PSN 4354, the last of the message, is lost.
        (
            "loss_send_last",
            &[
                (Retransmission, &[4, 5, 6]),
                (LossBeyond, &[4]),
                (DuplicateAck, &[8]),
            ],
        ),
        (
            "loss_send_last-responder",
            &[
                (Retransmission, &[3, 4]),
                (LossBefore, &[3]),
                (DuplicateAck, &[7]),
            ],
        ),
        // PSN 4097 is lost: one NAK, and all from it on again.
        (
            "loss_send_middle",
            &[
                (Retransmission, &[7, 8, 9, 10]),
                (LossBeyond, &[6]),
                (SequenceNak, &[6]),
            ],
        ),
        (
            "loss_send_middle-responder",
            &[
                (PsnGap, &[2]),
                (Retransmission, &[6, 7, 8, 9]),
                (SequenceNak, &[5]),
            ],
        ),
        // PSN 5888, the first packet, is lost; the responder's view begins behind it.
        (
            "loss_write_first",
            &[
                (Retransmission, &[5, 6, 7]),
                (LossBeyond, &[4]),
                (SequenceNak, &[4]),
            ],
        ),
        (
            "loss_write_first-responder",
            &[(Retransmission, &[4, 5, 6]), (SequenceNak, &[3])],
        ),
        (
            "rc_nak_perm_atomic",
            &[(FatalNak, &[2]), (GivenUp, &[2]), (Unacknowledged, &[1])],
        ),
        (
            "rc_nak_perm_read",
            &[(FatalNak, &[2]), (GivenUp, &[2]), (Unacknowledged, &[1])],
        ),
        (
            "rc_nak_perm_write",
            &[(FatalNak, &[2]), (GivenUp, &[2]), (Unacknowledged, &[1])],
        ),
        (
            "rc_nak_rkey_atomic",
            &[(FatalNak, &[2]), (GivenUp, &[2]), (Unacknowledged, &[1])],
        ),
        (
            "rc_nak_rkey_read",
            &[(FatalNak, &[2]), (GivenUp, &[2]), (Unacknowledged, &[1])],
        ),
        (
            "rc_nak_rkey_write",
            &[(FatalNak, &[2]), (GivenUp, &[2]), (Unacknowledged, &[1])],
        ),
        (
            "rc_nak_short_recv",
            &[(FatalNak, &[2]), (GivenUp, &[2]), (Unacknowledged, &[1])],
        ),
        (
            "rc_nak_short_recv_multi",
            &[(FatalNak, &[4]), (GivenUp, &[4]), (Unacknowledged, &[2])],
        ),
        (
            "rc_nak_then_more",
            &[(FatalNak, &[6]), (GivenUp, &[6]), (Unacknowledged, &[2])],
        ),
        (
            "rc_rnr_exhausted",
            &[(RnrNak, &[2]), (GivenUp, &[2]), (Unacknowledged, &[1])],
        ),
        // A RECV is posted after 150 ms.
        (
            "rc_rnr_late",
            &[
                (Retransmission, &[3, 5, 7, 9, 11, 13]),
                (RnrNak, &[2, 4, 6, 8, 10, 12]),
            ],
        ),
        (
            "rc_rnr_writeimm",
            &[
                (Retransmission, &[5, 6, 7, 11, 13, 15, 17, 19]),
                (DuplicateAck, &[8, 9]),
                (RnrNak, &[4, 10, 12, 14, 16, 18]),
            ],
        ),
        // The wire swaps PSN 6913 and 6914: for a receiver that keeps nothing, two gaps.
        (
            "reorder_request",
            &[
                (Retransmission, &[7, 8, 9, 10]),
                (LossBeyond, &[6, 11]),
                (DuplicateAck, &[12]),
                (SequenceNak, &[6, 11]),
            ],
        ),
        (
            "reorder_request-responder",
            &[
                (PsnGap, &[2]),
                (Retransmission, &[7, 8, 9, 10]),
                (Reordered, &[3]),
                (DuplicateAck, &[12]),
                (SequenceNak, &[6, 11]),
            ],
        ),
        ("uc_loss_middle-responder", &[(PsnGap, &[2])]),
        ("uc_loss_write_first-responder", &[(BeginsInside, &[1])]),
    ]
};

#[test]
fn what_happened_is_what_was_injected() {
    let cases = cases();
    assert!(cases.len() >= 55, "{} captures", cases.len());
    for (case, _) in EVENTS {
        assert!(cases.contains(*case), "{case} is gone");
    }
    for case in cases {
        let inspection = of(&case);
        let told = EVENTS.iter().find(|e| e.0 == case).map_or(&[][..], |e| e.1);
        let mut needed: Vec<_> = told
            .iter()
            .flat_map(|(rule, packets)| packets.iter().map(|&n| (*rule, n)))
            .collect();
        needed.sort_unstable();
        let mut found = findings(&inspection);
        // The kernel sets AckReq on the datagrams of the connection manager.
        found.retain(|(rule, _)| *rule != Rule::NeedlessAckReq);
        assert_eq!(found, needed, "{case}");
    }
}

#[test]
fn no_rule_is_broken_but_where_the_wire_corrupts() {
    for case in cases() {
        let inspection = of(&case);
        let violations = inspection.count(Severity::Violation);
        let needed = u64::from(case == "corrupt_icrc-responder");
        assert_eq!(violations, needed, "{case}");
        // Where all was lost nothing was checked.
        let code = match inspection.roce_packets {
            0 => 2,
            _ => needed,
        };
        assert_eq!(u64::from(inspection.exit_code()), code, "{case}");
        assert_eq!(inspection.icrc.bad, needed, "{case}");
        assert_eq!(inspection.icrc.unchecked, 0, "{case}");
    }
}

fn text(inspection: &Inspection, rule: Rule) -> &str {
    let mut all = inspection.of(rule);
    &all.next().unwrap_or_else(|| panic!("no {rule:?}")).text
}

#[test]
fn a_lost_middle_packet_is_told_from_both_ends() {
    let requester = of("loss_send_middle");
    assert_eq!(
        text(&requester, Rule::SequenceNak),
        "sequence NAK for PSN 4097"
    );
    assert_eq!(
        text(&requester, Rule::LossBeyond),
        "PSN 4097 (packet 2, 4.357 ms ago) passed here and was lost or overtaken beyond this point"
    );
    assert_eq!(
        text(&requester, Rule::Retransmission),
        "retransmission, round 2, 6.6 ms after the sequence NAK of packet 6"
    );
    let psns = |i: &Inspection| -> Vec<_> {
        let again = i.kept.iter().filter(|p| p.round == Some(2));
        again.map(|p| p.psn).collect()
    };
    assert_eq!(psns(&requester), [4097, 4098, 4099, 4100]);

    let responder = of("loss_send_middle-responder");
    assert_eq!(
        text(&responder, Rule::PsnGap),
        "gap: PSN 4097 (1) not seen, lost or overtaken before this point, or not captured"
    );
    assert_eq!(
        text(&responder, Rule::SequenceNak),
        "sequence NAK for PSN 4097, 3.89 ms after packet 2 showed the gap"
    );
    assert_eq!(psns(&responder), [4097, 4098, 4099, 4100]);
}

#[test]
fn a_lost_ack_is_told_from_both_ends() {
    assert_eq!(
        text(&of("loss_ack"), Rule::LossBeyond),
        "PSN 4608 passed here from packet 1 on; that, or the answer to it, was lost or late beyond this point"
    );
    assert_eq!(
        text(&of("loss_ack-responder"), Rule::LossBeyond),
        "PSN 4608 was acknowledged by packet 2, which was lost or late beyond this point"
    );
}

#[test]
fn rnr_waits_and_rounds_are_told() {
    let inspection = of("rc_rnr_late");
    assert_eq!(
        text(&inspection, Rule::RnrNak),
        "RNR NAK for PSN 256, wait 20.48 ms"
    );
    assert_eq!(
        text(&inspection, Rule::Retransmission),
        "retransmission, round 2, 27.752 ms after the RNR NAK of packet 2"
    );
    assert_eq!(inspection.connections[0].flows[0].rounds, 7);
    let rounds: Vec<_> = of("loss_all").kept.iter().map(|p| p.round).collect();
    assert_eq!(rounds, [Some(1), Some(2), Some(3)]);
}

#[test]
fn connections_are_joined() {
    let psn = of("rc_send");
    assert_eq!(psn.connections.len(), 1);
    assert_eq!(psn.connections[0].joined_by, Some("psn"));
    assert_eq!(psn.connections[0].flows[0].path_mtu, Some(1024));
    for (case, mtu) in [
        ("rc_mtu512", 512),
        ("rc_mtu2048", 2048),
        ("rc_mtu4096", 4096),
    ] {
        assert_eq!(
            of(case).connections[0].flows[0].path_mtu,
            Some(mtu),
            "{case}"
        );
    }
    // Here the two queue pairs have different numbers, and both send requests.
    let cm = of("cm_rstream");
    let joined: Vec<_> = cm
        .connections
        .iter()
        .filter(|c| c.joined_by == Some("cm"))
        .collect();
    assert_eq!(joined.len(), 1);
    let qps: Vec<_> = joined[0].flows.iter().map(|f| f.destqp).collect();
    assert_eq!(qps, [0x15, 0x16]);
    assert!(
        joined[0]
            .flows
            .iter()
            .all(|f| f.requests == 5 && f.path_mtu == Some(1024))
    );
}

/// What the kernel's programs and tshark say of these messages: ports 7174 and 7777, reason 8, the queue pair and first
/// PSN that the data then had.
#[test]
fn messages_of_the_connection_manager_are_told_by_name() {
    let told = |case: &str| -> Vec<String> {
        let mut text = Vec::new();
        softroce::inspect::write_text(
            &bytes_of(case)[..],
            case,
            &softroce::inspect::Options::default(),
            &mut text,
        )
        .expect("a capture");
        String::from_utf8(text)
            .expect("UTF-8")
            .lines()
            // Notes follow: the driver asks for acknowledgements of datagrams.
            .filter_map(|line| Some(line.split_once(", CM ")?.1.split("; ").next()?.to_owned()))
            .collect()
    };
    assert_eq!(
        told("cm_rping"),
        [
            "REQ 0x60d740dd for TCP port 7174, RC qp 0x000011 psn 1578451 mtu 1024, responder resources 1 initiator \
             depth 1, retries 7 rnr 7, from 10.66.0.2:44774 to 10.66.0.1",
            "REP 0xc915c19f to 0x60d740dd, qp 0x000011 psn 10507397, responder resources 1 initiator depth 1, rnr 7",
            "RTU 0x60d740dd to 0xc915c19f",
            "DREQ 0x60d740dd to 0xc915c19f, of qp 0x000011",
            "DREP 0xc915c19f to 0x60d740dd",
        ]
    );
    assert_eq!(
        told("cm_reject")[1],
        "REJ 0x00000000 to 0x63d740dd, of REQ: invalid service ID (8)"
    );
    assert_eq!(
        told("cm_udaddy"),
        [
            "SIDR_REQ 0x62d740dd for UDP port 7174, from 10.66.0.2:52000 to 10.66.0.1",
            "SIDR_REP to 0x62d740dd for UDP port 7174: success (0), qp 0x000013 qkey 0x01234567",
        ]
    );
    // The fields stand in the JSON by themselves.
    let packets = of("cm_reject").kept;
    let rej = packets[1].cm.as_ref().expect("a message");
    assert_eq!((rej.message, rej.reason), ("REJ", Some(8)));
    assert_eq!(
        rej.remote_id,
        packets[0].cm.as_ref().and_then(|req| req.local_id)
    );
}
