//! Frames that the Linux kernel's driver sent: each decodes, keeps its bytes, and has nothing wrong
//! with it but what its case is about.

use softroce_sim::wire::capture::{LinkType, Reader};
use softroce_sim::wire::cm::Mad;
use softroce_sim::wire::frame::Finding;
use softroce_sim::wire::mad::GSI_QKEY;
use softroce_sim::wire::{Ext, Frame, Payload, QpNumber, RouteTable};
use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder of captures")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap"))
        .collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> &str {
    path.file_stem().and_then(|s| s.to_str()).expect("a name")
}

#[test]
fn every_frame_of_the_kernel_decodes_and_has_the_right_icrc() {
    let (mut files, mut frames, mut foreign) = (0, 0, 0);
    let mut opcodes = BTreeSet::new();
    for path in captures() {
        let case = name(&path);
        let file = fs::File::open(&path).expect("a capture");
        let mut number = 0;
        for record in Reader::new(BufReader::new(file)).expect("a pcap header") {
            let record = record.unwrap_or_else(|e| panic!("{case}: {e}"));
            number += 1;
            assert_eq!(record.link, LinkType::ETHERNET);
            let frame = match record.frame() {
                Ok(frame) => frame,
                // Joining a multicast group is said in IGMP.
                Err(e) if e.is_foreign() && case.starts_with("cm_") => {
                    foreign += 1;
                    continue;
                }
                Err(e) => panic!("{case}, frame {number}: {e}"),
            };
            let at = format!("{case}, frame {number}, {}", frame.bth.opcode());
            assert_eq!(frame.encode(), record.data, "{at}");
            let findings = frame.check();
            if case == "corrupt_icrc-responder" && number == 1 {
                assert!(matches!(findings[..], [Finding::Icrc(_)]), "{at}");
            } else {
                assert_eq!(findings, [], "{at}");
            }
            a_socket_and_a_card_take_it(&frame, &findings, &at);
            opcodes.insert(frame.bth.opcode().to_string());
            frames += 1;
        }
        files += 1;
    }
    println!(
        "{frames} frames of {files} captures checked, with {} opcodes; {foreign} frames were not RoCE",
        opcodes.len()
    );
    assert!(files >= 60, "{files} captures");
    assert!(frames >= 400, "{frames} frames");
}

/// The same frame as a UDP socket delivers it, and as a packet for a card.
fn a_socket_and_a_card_take_it(frame: &Frame, findings: &[Finding], at: &str) {
    let route = frame.route();
    let wire = frame.encode();
    let headers = 14 + frame.network.layer().len();
    let end = wire.len() - frame.trailer.len();
    let ecn = frame.network.ecn();
    let datagram = Frame::decode_udp_payload(&wire[headers..end], &route, ecn);
    let datagram = datagram.unwrap_or_else(|e| panic!("{at}: {e}"));
    // The kernel's identifications are not 0, and it sets DF.
    assert_eq!(
        datagram.check_icrc_any_identification().is_ok(),
        findings.is_empty(),
        "{at}"
    );

    assert!(Ext::models(frame.bth.opcode()), "{at}");
    let id = RouteTable::new().intern(route);
    let payload = Payload::stored(0, frame.payload.len() as u16);
    let packet = frame.to_packet(id, payload);
    let packet = packet.unwrap_or_else(|e| panic!("{at}: {e}"));
    assert_eq!(usize::from(packet.frame_len), wire.len() + 4, "{at}");
    if findings.is_empty() {
        // Sent by us it is the same packet, under our identification.
        let ours = Frame::from_packet(&packet, &route, &frame.payload);
        let ours = ours.unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!((ours.bth, ours.ext), (frame.bth, frame.ext), "{at}");
        assert_eq!(ours.payload, frame.payload, "{at}");
        assert_eq!(ours.check(), [], "{at}");
    }
}

// The lists of packets beside the captures were made by another decoder.
#[test]
fn opcode_psn_and_length_are_those_of_the_lists() {
    let mut compared = 0;
    for path in captures() {
        let case = name(&path);
        if case.starts_with("cm_") || case.ends_with("-responder") {
            continue;
        }
        let text = fs::read_to_string(path.with_extension("txt")).expect("a list");
        let list: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.starts_with("--- packets"))
            .skip(1)
            .take_while(|line| line.starts_with(|c: char| c.is_ascii_digit()))
            .collect();
        let file = fs::File::open(&path).expect("a capture");
        let records = Reader::new(BufReader::new(file)).expect("a pcap header");
        let frames: Vec<_> = records
            .map(|record| record.map(|r| r.frame().map(|f| (f, r.data.len()))))
            .collect::<Result<_, _>>()
            .unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(list.len(), frames.len(), "{case}");
        for (line, frame) in list.iter().zip(frames) {
            let (frame, len) = frame.unwrap_or_else(|e| panic!("{case}: {line}: {e}"));
            let words: Vec<&str> = line.split_whitespace().collect();
            let psn = frame.bth.psn().to_string();
            assert!(words.contains(&psn.as_str()), "{case}: {line}: PSN {psn}");
            assert_eq!(*words.last().unwrap(), len.to_string(), "{case}: {line}");
            assert_eq!(words[2], frame.network.src().to_string(), "{case}: {line}");
            // The atomics are spelt as the opcode table of the specification spells them.
            let line = line.replace("Compare Swap", "CmpSwap");
            let line = line.replace("Fetch Add", "FetchAdd");
            let opcode = frame.bth.opcode().to_string();
            assert!(line.contains(&opcode), "{case}: {line}: {opcode}");
            compared += 1;
        }
    }
    println!("{compared} frames compared");
    assert!(compared >= 300, "{compared}");
}

#[test]
fn every_message_of_the_connection_manager_keeps_its_bytes() {
    let mut names = Vec::new();
    for path in captures() {
        let case = name(&path);
        let file = fs::File::open(&path).expect("a capture");
        for record in Reader::new(BufReader::new(file)).expect("a pcap header") {
            let Ok(frame) = record.expect("a record").frame() else {
                continue;
            };
            if frame.bth.dest_qp() != QpNumber::GSI {
                continue;
            }
            let deth = frame.ext.deth().expect("a DETH");
            assert_eq!((deth.qkey, deth.src_qp), (GSI_QKEY, QpNumber::GSI));
            let mad = Mad::decode(&frame.payload).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert_eq!(mad.encode()[..], frame.payload[..], "{case}: {mad:?}");
            names.push(mad.message.name());
        }
    }
    let count = |name| names.iter().filter(|n| **n == name).count();
    // What the lists beside the captures say: three REQs, of which one is rejected, and one question.
    assert_eq!(
        ["REQ", "REP", "RTU", "DREQ", "DREP"].map(count),
        [3, 2, 2, 2, 2]
    );
    assert_eq!(["REJ", "SIDR_REQ", "SIDR_REP"].map(count), [1, 1, 1]);
    assert_eq!(names.len(), 14);
}
