//! What is no mistake of a card: gaps of the capture, several views of one packet, cut packets, marks.

use crate::forge::{Forge, bytes_of, findings, look, look_with, pcap, violations};
use softroce::inspect::{IcrcStatus, Options, Rule};
use softroce_sim::wire::capture::{LinkType, Writer};
use softroce_sim::wire::{Ecn, QpNumber, cnp};

#[test]
fn a_packet_that_only_the_capture_missed() {
    // Packet 13 of rc_send is the first MIDDLE of the last message; its ACK covers it.
    let inspection = Forge::of("rc_send").without(13).inspect();
    assert_eq!(
        findings(&inspection),
        [(Rule::PsnGap, 13), (Rule::NotCaptured, 15)]
    );
    // The request of an ACK.
    let inspection = Forge::of("rc_send").without(3).inspect();
    assert_eq!(violations(&inspection), [], "{:?}", inspection.findings);
    assert_eq!(inspection.of(Rule::NotCaptured).count(), 1);
}

#[test]
fn one_direction_only() {
    for keep in [0, 1] {
        let mut forge = Forge::of("loss_send_middle");
        let src = forge.packets[0].1.network.src();
        forge
            .packets
            .retain(|(_, f)| (f.network.src() == src) == (keep == 0));
        let inspection = forge.inspect();
        assert_eq!(violations(&inspection), []);
        let one = inspection.of(Rule::OneDirection).count();
        assert_eq!(one, 1 - keep);
        assert_eq!(inspection.of(Rule::SequenceNak).count(), keep);
    }
}

#[test]
fn a_capture_that_begins_in_the_middle() {
    for case in [
        "rc_send",
        "rc_read",
        "rc_write",
        "loss_send_middle",
        "cm_rping",
        "rc_atomic",
        "loss_read_resp_last",
        "reorder_request-responder",
        "rc_rnr_writeimm",
    ] {
        let whole = Forge::of(case);
        for start in 0..whole.packets.len() {
            for end in start..=whole.packets.len() {
                let mut part = whole.clone();
                part.packets = part.packets[start..end].to_vec();
                let inspection = part.inspect();
                assert_eq!(
                    violations(&inspection),
                    [],
                    "{case} from {start} to {end}: {:#?}",
                    inspection.findings
                );
            }
        }
    }
}

#[test]
fn an_unreliable_message_whose_beginning_is_missing() {
    // The first three packets are FIRST, MIDDLE and MIDDLE of one message.
    let whole = Forge::of("uc_loss_middle");
    assert_eq!(whole.inspect().of(Rule::BeginsInside).count(), 0);
    let inspection = whole.without(1).inspect();
    assert_eq!(violations(&inspection), []);
    let noted: Vec<_> = inspection
        .of(Rule::BeginsInside)
        .map(|f| f.packet)
        .collect();
    assert_eq!(noted, [1]);
}

#[test]
fn any_one_packet_may_be_missing() {
    for case in [
        "rc_send",
        "rc_read",
        "rc_write",
        "loss_send_middle",
        "rc_rnr_writeimm",
    ] {
        let whole = Forge::of(case);
        // Without the last request its ACK, which nothing follows, looks like one of nothing.
        for number in 1..whole.packets.len() - 1 {
            let inspection = whole.clone().without(number).inspect();
            let mut found = violations(&inspection);
            found.retain(|(rule, _)| *rule != Rule::NeverSent);
            assert_eq!(
                found,
                [],
                "{case} without {number}: {:#?}",
                inspection.findings
            );
        }
    }
}

#[test]
fn several_interfaces_are_several_views() {
    let mut writer = Writer::new(Vec::new()).expect("a header");
    let ports: Vec<_> = ["one", "two"]
        .iter()
        .map(|name| {
            let port = writer.interface(name, "", LinkType::ETHERNET);
            port.expect("an interface")
        })
        .collect();
    for (time, frame) in &Forge::of("rc_send").packets {
        for &port in &ports {
            let stamp = softroce_sim::wire::capture::Stamp::from_ns(time * 1000);
            writer
                .packet(
                    port,
                    stamp,
                    &frame.encode(),
                    frame.encode().len() as u32,
                    &[],
                )
                .expect("a packet");
        }
    }
    let inspection = look(&writer.into_inner().expect("the file"));
    assert_eq!(findings(&inspection), []);
    assert_eq!(inspection.connections.len(), 2);
    assert_eq!(inspection.interfaces[1].name.as_deref(), Some("two"));
}

#[test]
fn a_packet_behind_a_router_is_no_retransmission() {
    let inspection = Forge::of("rc_send")
        .again(1, 5)
        .change(2, |f| match &mut f.network {
            softroce_sim::wire::frame::Network::Ipv4(ip, _) => ip.ttl -= 1,
            other => panic!("{other:?}"),
        })
        .inspect();
    assert_eq!(findings(&inspection), [(Rule::AnotherHop, 2)]);
}

#[test]
fn cut_packets_are_followed_and_their_icrc_is_not_checked() {
    for case in ["rc_send", "rc_read", "rc_ipv6", "loss_send_middle"] {
        let forge = Forge::of(case);
        let (whole, cut) = (forge.inspect(), look(&forge.cut(128)));
        assert_eq!(findings(&cut), findings(&whole), "{case}");
        assert_eq!(cut.icrc.bad, 0);
        assert!(cut.icrc.unchecked > 0, "{case}");
        for (a, b) in cut.kept.iter().zip(&whole.kept) {
            assert_eq!(
                (a.psn, a.payload_len, a.padcnt),
                (b.psn, b.payload_len, b.padcnt)
            );
            let small = a.frame_len <= 128;
            assert_eq!(
                a.icrc == IcrcStatus::Unchecked,
                !small,
                "{case} {}",
                a.number
            );
        }
        // Behind the UDP port, before the end of the BTH.
        let headless = look(&forge.cut(if case == "rc_ipv6" { 70 } else { 50 }));
        assert_eq!(
            headless.rules.get(&Rule::CutShort),
            Some(&forge.packets.len().try_into().unwrap())
        );
        // Nothing of them was checked.
        assert_eq!(headless.exit_code(), 2);
        let why = headless.nothing_checked.expect("why");
        assert!(why.contains("cut before the end of the BTH"), "{why}");
    }
}

/// Whatever networks on the way have put around a sender's tag, or instead of it.
#[test]
fn tags_inside_tags_are_passed_over() {
    let customer = |id: u8| [0x81, 0x00, 0x60, id];
    let provider = |id: u8| [0x88, 0xa8, 0x20, id];
    for case in [
        "rc_send",
        "rc_ipv6",
        "loss_send_middle",
        "corrupt_icrc-responder",
    ] {
        let forge = Forge::of(case);
        let whole = forge.inspect();
        for (tags, known) in [
            (vec![customer(5)], true),
            (vec![provider(6)], true),
            (vec![provider(6), customer(5)], true),
            (vec![customer(7), customer(5)], true),
            (
                vec![provider(9), provider(8), customer(7), customer(5)],
                true,
            ),
            (vec![customer(1); 5], false),
            (vec![provider(1); 30], false),
        ] {
            let packets = forge.packets.iter().map(|(time, frame)| {
                let mut bytes = frame.encode();
                bytes.splice(12..12, tags.concat());
                (*time, bytes)
            });
            let tagged = look(&pcap(1, packets, usize::MAX));
            if !known {
                assert_eq!((tagged.roce_packets, tagged.exit_code()), (0, 2), "{case}");
                continue;
            }
            assert_eq!(findings(&tagged), findings(&whole), "{case} {tags:02x?}");
            assert_eq!(tagged.icrc, whole.icrc, "{case} {tags:02x?}");
            assert_eq!(tagged.exit_code(), whole.exit_code());
            // A packet that is cut behind them is one of RoCE too.
            let packets = forge.packets.iter().map(|(time, frame)| {
                let mut bytes = frame.encode();
                bytes.splice(12..12, tags.concat());
                (*time, bytes)
            });
            let snap = tags.len() * 4 + if case == "rc_ipv6" { 70 } else { 50 };
            let cut = look(&pcap(1, packets, snap))
                .rules
                .get(&Rule::CutShort)
                .copied();
            assert_eq!(cut, Some(forge.packets.len() as u64), "{case} {tags:02x?}");
        }
    }
}

#[test]
fn however_short_packets_are_cut() {
    for case in [
        "rc_send",
        "rc_read",
        "rc_write",
        "rc_atomic",
        "rc_ipv6",
        "loss_read_resp_last",
    ] {
        let forge = Forge::of(case);
        for snap in 0..120 {
            let inspection = look(&forge.cut(snap));
            assert_eq!(
                violations(&inspection),
                [],
                "{case}, {snap} bytes: {:#?}",
                inspection.findings
            );
        }
    }
    // 64 bytes, a common choice, hold the BTH and an AETH.
    let inspection = look(&Forge::of("loss_send_middle").cut(64));
    assert_eq!(inspection.of(Rule::Retransmission).count(), 4);
    assert_eq!(inspection.of(Rule::SequenceNak).count(), 1);
    assert_eq!(inspection.of(Rule::CutShort).count(), 0);
}

#[test]
fn without_the_link_header_it_is_the_same() {
    for case in ["loss_send_middle", "rc_ipv6"] {
        let forge = Forge::of(case);
        let needed = findings(&forge.inspect());
        let ip = |prefix: Vec<u8>| {
            let packets = forge.packets.iter().map(move |(time, frame)| {
                let mut bytes = prefix.clone();
                let ether_type = &frame.encode()[12..14];
                if bytes.len() == 16 {
                    bytes[14..].copy_from_slice(ether_type);
                } else if bytes.len() == 20 {
                    bytes[..2].copy_from_slice(ether_type);
                }
                bytes.extend(&frame.encode()[14..]);
                (*time, bytes)
            });
            packets.collect::<Vec<_>>()
        };
        for (link, header) in [(101, 0), (113, 16), (276, 20)] {
            let file = pcap(link, ip(vec![0; header]).into_iter(), usize::MAX);
            let inspection = look(&file);
            assert_eq!(findings(&inspection), needed, "{case}, link type {link}");
            assert_eq!(inspection.icrc.good, forge.packets.len() as u64);
        }
    }
}

#[test]
fn an_identical_packet_without_identification() {
    let anonymous = |f: &mut softroce_sim::wire::Frame| {
        if let softroce_sim::wire::frame::Network::Ipv4(ip, _) = &mut f.network {
            ip.identification = 0;
        }
    };
    let all = |case: &str| {
        let forge = Forge::of(case);
        (1..=forge.packets.len()).fold(forge, |f, n| f.change(n, anonymous))
    };
    let mut duplicates = all("dup_request-responder");
    for copy in [1, 5] {
        duplicates.packets[copy].0 = duplicates.packets[copy - 1].0 + 20;
    }
    let inspection = duplicates.inspect();
    let duplicates: Vec<_> = inspection.of(Rule::Duplicate).map(|f| f.packet).collect();
    assert_eq!(duplicates, [2, 6]);
    let inspection = all("loss_all").inspect();
    assert_eq!(inspection.of(Rule::Retransmission).count(), 2);
}

#[test]
fn marks_and_notifications() {
    let mark = |f: &mut softroce_sim::wire::Frame| f.network.set_ecn(Ecn::Experienced);
    let marked = Forge::of("rc_send").change(1, mark).change(3, mark);
    let inspection = marked.inspect();
    assert_eq!(
        findings(&inspection),
        [(Rule::CongestionExperienced, 1), (Rule::NoCnp, 1)]
    );

    let mut answered = marked;
    // The ACK of packet 2 goes where a CNP would go.
    let (time, mut frame) = answered.packets[1].clone();
    frame.bth = cnp::bth(QpNumber::new(frame.bth.dest_qp().get()), 0xffff);
    frame.ext = softroce_sim::wire::Ext::Cnp;
    frame.seal();
    let sent = answered.packets[0].0;
    answered.packets.insert(2, (time + 1, frame));
    let inspection = answered.inspect();
    assert_eq!(
        findings(&inspection),
        [(Rule::CongestionExperienced, 1), (Rule::Cnp, 3)]
    );
    let text = &inspection.of(Rule::Cnp).next().expect("a CNP").text;
    assert!(
        text.contains("for the mark of packet 1"),
        "{text}, sent {sent}"
    );
    assert_eq!(inspection.connections[0].flows[0].ce_packets, 2);
    assert_eq!(inspection.connections[0].flows[0].cnps, 1);
}

#[test]
fn captures_without_icrc_can_be_followed() {
    let mut forge = Forge::of("loss_send_middle");
    for (_, frame) in &mut forge.packets {
        frame.icrc.0 = 0;
    }
    let options = Options {
        ignore_icrc: true,
        ..Options::default()
    };
    let inspection = look_with(&forge.pcap(), &options);
    assert_eq!(inspection.icrc.bad, 11);
    assert_eq!(inspection.of(Rule::Retransmission).count(), 4);
    assert_eq!(forge.inspect().of(Rule::Retransmission).count(), 0);
}

#[test]
fn text_and_json() {
    let bytes = bytes_of("loss_send_middle");
    let mut text = Vec::new();
    let inspection =
        softroce::inspect::write_text(&bytes[..], "loss", &Options::default(), &mut text)
            .expect("a capture");
    let text = String::from_utf8(text).expect("text");
    let mut kept = Vec::new();
    look(&bytes).write_text(&mut kept).expect("memory");
    let kept = String::from_utf8(kept)
        .expect("text")
        .replace("forged:", "loss:");
    assert_eq!(text, kept);
    assert!(text.contains("retransmission, round 2, 6.6 ms after the sequence NAK of packet 6"));
    assert!(
        text.ends_with("0 violations, 6 events, 0 notes\n"),
        "{text}"
    );
    assert_eq!(inspection.kept, []);

    let mut json = Vec::new();
    softroce::inspect::write_json(&bytes[..], "loss", &Options::default(), &mut json)
        .expect("a capture");
    let json = String::from_utf8(json).expect("text");
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!(lines.len(), 12);
    assert!(
        lines
            .iter()
            .all(|l| l.starts_with(r#"{"schema":1,"type":""#))
    );
    assert!(
        lines[5].contains(r#""rule":"sequence-nak""#),
        "{}",
        lines[5]
    );
    assert!(lines[11].contains(r#""type":"summary""#));
}
