//! Files that are no captures, broken ones, and floods.

use crate::forge::{Forge, bytes_of, look_with, pcap};
use proptest::prelude::*;
use softroce::inspect::{InspectError, Options, Rule, inspect, open, write_json, write_text};
use softroce_sim::wire::QpNumber;

fn error(bytes: &[u8]) -> String {
    match inspect(bytes, "bad.pcap", &Options::default()) {
        Ok(i) => panic!("{} packets read", i.packets),
        Err(e) => e.to_string(),
    }
}

#[test]
fn messages_name_file_offset_and_packet() {
    assert_eq!(
        error(b""),
        "bad.pcap: the file is empty, a pcap or pcapng file is needed"
    );
    assert_eq!(
        error(b"PNG image"),
        "bad.pcap: after packet 0: neither pcap nor pcapng: the file begins with [50, 4e, 47, 20]"
    );
    let whole = bytes_of("loss_send_middle");
    let cut = error(&whole[..whole.len() - 10]);
    assert!(
        cut.starts_with("bad.pcap: after packet 10: offset "),
        "{cut}"
    );
    assert!(cut.contains("the file ends inside a pcap packet"), "{cut}");
}

/// Interfaces and their names are kept to the end of a file, so there are no more than a limit of each.
#[test]
fn floods_of_interfaces_are_refused() {
    let block = |kind: u32, body: &[u8]| {
        let len = (body.len() as u32 + 12).to_be_bytes();
        [&kind.to_be_bytes()[..], &len, body, &len].concat()
    };
    let section = block(
        0x0a0d_0d0a,
        &[&[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0][..], &[0xff; 8]].concat(),
    );
    let interface = |name: usize| {
        let mut body = vec![0, 1, 0, 0, 0, 4, 0, 0, 0, 2];
        body.extend((name as u16).to_be_bytes());
        body.extend(vec![b'n'; name]);
        body.extend([0; 4]);
        block(1, &body)
    };
    let many =
        |count: usize, name: usize| [section.clone(), interface(name).repeat(count)].concat();
    let most = softroce_sim::wire::capture::MAX_INTERFACES;
    let all = inspect(&many(most, 4)[..], "x", &Options::default()).unwrap();
    assert_eq!((all.packets, all.exit_code()), (0, 2));
    for (bytes, told) in [
        (
            many(most + 1, 4),
            "number of interfaces is 65537, must be at most 65536",
        ),
        // Of all sections together.
        (
            many(most / 2 + 1, 4).repeat(2),
            "number of interfaces is 65537",
        ),
        (
            many(300, 60_000),
            "names of interfaces is 16800000, must be at most 16777216",
        ),
    ] {
        let error = error(&bytes);
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn what_came_before_the_fault_is_told() {
    let whole = bytes_of("loss_send_middle");
    let broken = &whole[..whole.len() - 10];
    let Err(e) = inspect(broken, "cut", &Options::default()) else {
        panic!("no error");
    };
    let partial = e.partial().expect("ten packets");
    assert_eq!(partial.packets, 10);
    assert_eq!(partial.kept.len(), 10);
    assert_eq!(partial.of(Rule::SequenceNak).count(), 1);
    let mut text = Vec::new();
    assert!(write_text(broken, "cut", &Options::default(), &mut text).is_err());
    assert!(String::from_utf8_lossy(&text).contains("cut: 10 packets"));
    let mut json = Vec::new();
    assert!(write_json(broken, "cut", &Options::default(), &mut json).is_err());
    let json = String::from_utf8_lossy(&json);
    assert!(
        json.lines()
            .last()
            .is_some_and(|l| l.contains(r#""type":"error""#))
    );
}

#[test]
fn paths_that_are_no_files() {
    let folder = tempfile::tempdir().expect("a folder");
    match open(folder.path()) {
        Err(e @ InspectError::Directory { .. }) => {
            assert!(e.to_string().contains("is a directory"))
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
    let missing = folder.path().join("none.pcap");
    match open(&missing) {
        Err(e @ InspectError::Open { .. }) => assert!(e.to_string().contains("none.pcap: "), "{e}"),
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn an_output_that_fails_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let bytes = bytes_of("rc_send");
    for result in [
        write_text(&bytes[..], "x", &Options::default(), &mut Full),
        write_json(&bytes[..], "x", &Options::default(), &mut Full),
    ] {
        assert!(matches!(result, Err(InspectError::Output(_))));
    }
}

#[test]
fn a_forged_packet_of_64_kilobytes() {
    // Each length field as large as it gets, and garbage behind.
    let mut frame = Forge::of("rc_send").packets[0].1.encode();
    frame[16..18].copy_from_slice(&0xffffu16.to_be_bytes());
    frame[38..40].copy_from_slice(&0xffebu16.to_be_bytes());
    frame.resize(14 + 65_535, 0x5a);
    let inspection = look_with(
        &pcap(1, [(0, frame.clone())].into_iter(), usize::MAX),
        &Options::default(),
    );
    assert_eq!(inspection.roce_packets, 1);
    assert_eq!(inspection.exit_code(), 1);
    // Shorter than it says: not a frame.
    frame.truncate(60_000);
    let inspection = look_with(
        &pcap(1, [(0, frame)].into_iter(), usize::MAX),
        &Options::default(),
    );
    assert_eq!(inspection.rules.get(&Rule::Malformed), Some(&1));
}

#[test]
fn a_flood_of_flows_and_findings_is_bounded() {
    let (_, mut frame) = Forge::of("rc_send").packets[0].clone();
    let packets = (0..5_000u32).map(|n| {
        frame.bth = frame.bth.with_dest_qp(QpNumber::new(n + 1));
        if n % 2 == 0 {
            frame.seal();
        } else {
            frame.icrc.0 ^= 1;
        }
        (u64::from(n), frame.encode())
    });
    let file = pcap(1, packets, usize::MAX);
    let options = Options {
        max_flows: 1_000,
        findings_per_rule: 2,
        max_packets: 10,
        ..Options::default()
    };
    let inspection = look_with(&file, &options);
    assert_eq!(inspection.connections.len(), 1_000);
    assert_eq!(inspection.packets_not_followed, 4_000);
    assert_eq!(inspection.kept.len(), 10);
    // Of the flows that are followed each has its own; the rest share one allowance.
    assert_eq!(inspection.rules.get(&Rule::BadIcrc), Some(&2_500));
    assert_eq!(inspection.of(Rule::BadIcrc).count(), 502);
    let mut text = Vec::new();
    inspection.write_text(&mut text).expect("memory");
    let text = String::from_utf8(text).expect("text");
    assert!(
        text.contains("4000 packets belong to flows beyond the limit"),
        "{text}"
    );
}

fn swallow(bytes: &[u8]) {
    let mut sink = Vec::new();
    let _ = write_text(bytes, "fuzz", &Options::default(), &mut sink);
    sink.clear();
    let _ = write_json(bytes, "fuzz", &Options::default(), &mut sink);
}

const SEEDS: &[&str] = &[
    "loss_send_middle",
    "rc_read",
    "rc_atomic",
    "cm_rping",
    "rc_rnr_writeimm",
    "rc_ipv6",
    "reorder_request",
    "loss_read_resp_last",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        swallow(&bytes);
    }

    #[test]
    fn mutations_of_a_capture(
        seed in 0..SEEDS.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        end in any::<prop::sample::Index>(),
        whole: bool,
    ) {
        let mut bytes = bytes_of(SEEDS[seed]);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(end.index(bytes.len()));
        }
        swallow(&bytes);
    }

    // Past the ICRC, into the analysis: headers change, sums are right.
    #[test]
    fn mutations_that_are_sealed(
        seed in 0..SEEDS.len(),
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), 42usize..74, any::<u8>()),
            1..12,
        ),
        order in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..4),
    ) {
        let mut forge = Forge::of(SEEDS[seed]);
        for (which, at, byte) in changes {
            let which = which.index(forge.packets.len());
            let mut bytes = forge.packets[which].1.encode();
            let at = at.min(bytes.len() - 1);
            bytes[at] = byte;
            if let Ok(mut frame) = softroce_sim::wire::Frame::decode(&bytes) {
                frame.seal();
                forge.packets[which].1 = frame;
            }
        }
        for (a, b) in order {
            let n = forge.packets.len();
            forge.packets.swap(a.index(n), b.index(n));
        }
        swallow(&forge.pcap());
    }
}
