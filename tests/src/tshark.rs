//! What tshark makes of a capture, held against what softroce makes of it.

mod cm;

pub use cm::check_messages;

use softroce_sim::wire::capture::Reader;
use softroce_sim::wire::frame::{Frame, FrameView};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

/// Fields tshark is asked for, one column each.
const FIELDS: [&str; 17] = [
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.se",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.immdt",
    "infiniband.invariant.crc",
    "frame.len",
    "_ws.malformed",
    "_ws.expert",
];

/// Compares both views of every packet of a capture and gives their number.
///
/// # Panics
///
/// If they differ, tshark finds anything malformed or worth a word of its experts, or an ICRC is wrong.
pub fn check(tshark: &Path, capture: &Path) -> usize {
    let mut command = Command::new(tshark);
    // Without its heuristics for protocols above, which take short SENDs for broken RPCs.
    command.args(["-n", "--disable-heuristic", "rpcrdma_infiniband"]);
    // RoCEv2 sends no UDP checksum, over IPv6 neither (A17.3.2.4).
    command.args(["-o", "udp.ignore_ipv6_zero_checksum:TRUE"]);
    command.arg("-r").arg(capture).args([
        "-T",
        "fields",
        "-E",
        "separator=|",
        "-E",
        "aggregator=^",
    ]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("tshark prints UTF-8");
    let theirs: Vec<Vec<&str>> = text.lines().map(|l| l.split('|').collect()).collect();

    let file = BufReader::new(File::open(capture).expect("the capture opens"));
    let ours: Vec<_> = Reader::new(file)
        .expect("the capture is one")
        .map(|p| Frame::decode(&p.expect("a whole packet").data).expect("a RoCE frame"))
        .collect();
    assert_eq!(theirs.len(), ours.len(), "number of packets");
    for (n, (their, frame)) in theirs.iter().zip(&ours).enumerate() {
        let what = format!(
            "packet {} of {}: tshark says {their:?}",
            n + 1,
            capture.display()
        );
        compare(their, &frame.view(), &what);
    }
    ours.len()
}

fn compare(their: &[&str], view: &FrameView<'_>, what: &str) {
    let t = &view.transport;
    let number = |i: usize| -> Option<u64> {
        let s: &str = their[i];
        match s.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => s.parse().ok(),
        }
    };
    let flag = |i: usize| u64::from(matches!(their[i], "1" | "True"));
    let bth = &t.bth;
    assert_eq!(number(0), Some(bth.opcode().0.into()), "{what}: opcode");
    assert_eq!(number(1), Some(bth.psn().get().into()), "{what}: PSN");
    assert_eq!(
        number(2),
        Some(bth.dest_qp().get().into()),
        "{what}: destination QP"
    );
    assert_eq!(flag(3), u64::from(bth.ack_req()), "{what}: AckReq");
    assert_eq!(flag(4), u64::from(bth.solicited()), "{what}: SE");
    assert_eq!(number(5), Some(bth.pad_count().into()), "{what}: pad count");
    assert_eq!(number(6), Some(bth.pkey().into()), "{what}: P_Key");
    let reth = t.ext.reth();
    assert_eq!(number(7), reth.map(|r| r.va), "{what}: RETH address");
    assert_eq!(number(8), reth.map(|r| r.rkey.0.into()), "{what}: R_Key");
    assert_eq!(
        number(9),
        reth.map(|r| r.dma_len.into()),
        "{what}: DMA length"
    );
    let aeth = t.ext.aeth();
    assert_eq!(
        number(10),
        aeth.map(|a| a.syndrome.0.into()),
        "{what}: syndrome"
    );
    assert_eq!(number(11), aeth.map(|a| a.msn.get().into()), "{what}: MSN");
    let hex = t.ext.immediate().map(|i| format!("{:08x}", i.get()));
    assert_eq!(
        their[12]
            .split('^')
            .next()
            .unwrap_or_default()
            .replace(':', ""),
        hex.unwrap_or_default(),
        "{what}: immediate data"
    );
    let crc = u32::from_be_bytes(t.icrc.to_bytes());
    assert_eq!(number(13), Some(crc.into()), "{what}: ICRC");
    assert_eq!(
        number(14),
        Some(view.frame_len() as u64 - 4),
        "{what}: length"
    );
    assert_eq!(their[15], "", "{what}: malformed");
    // A comment in the capture is one of the experts' words as well.
    let experts = their[16]
        .split('^')
        .filter(|e| !e.starts_with("Expert Info (Comment/"));
    assert_eq!(experts.collect::<String>(), "", "{what}: expert");
    view.check_icrc().unwrap_or_else(|e| panic!("{what}: {e}"));
}
