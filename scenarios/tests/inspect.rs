//! `softroce inspect` as a program: what it reads, and its exit status.

mod common;

use common::{softroce, text};
use serde_json::Value;
use std::process::{Command, Stdio};

/// A capture in which there is nothing to check is not one that breaks no rule.
#[test]
fn inspect_says_that_it_has_checked_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, link: u32, frames: &[&[u8]]| {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 262_144, link] {
            bytes.extend(u32::to_be_bytes(word));
        }
        for frame in frames {
            for word in [0, 0, frame.len() as u32, frame.len() as u32] {
                bytes.extend(u32::to_be_bytes(word));
            }
            bytes.extend(*frame);
        }
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_string()
    };
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    // InfiniBand, as a card of that link hands it out; ARP; none at all.
    for (path, why) in [
        (
            write("infiniband", 247, &[&[0; 60], &[1; 60]]),
            "2 of a link type that is not read",
        ),
        (write("arp", 1, &[&arp]), "1 of other protocols"),
        (write("none", 1, &[]), "there is no packet"),
    ] {
        let out = softroce(&["inspect", &path]);
        assert_eq!(out.status.code(), Some(2), "{path}");
        let told = text(&out.stdout)
            .lines()
            .find(|l| l.starts_with("nothing was checked: "));
        assert!(
            told.is_some_and(|l| l.contains(why)),
            "{}",
            text(&out.stdout)
        );
        let out = softroce(&["inspect", "--json", &path]);
        assert_eq!(out.status.code(), Some(2), "{path}");
        let summary: Value =
            serde_json::from_str(text(&out.stdout).lines().last().unwrap()).unwrap();
        let told = summary["nothing_checked"].as_str().unwrap_or_default();
        assert!(told.contains(why), "{summary}");
    }
    let help = softroce(&["inspect", "--help"]);
    assert!(text(&help.stdout).contains("nothing was checked"));
}

#[test]
fn inspect_reads_standard_input() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/captures/loss_send_middle.pcap"
    );
    let by_name = softroce(&["inspect", path]);
    for (content, code) in [
        (std::fs::read(path).unwrap(), 0),
        (Vec::new(), 2),
        (b"no".to_vec(), 2),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_softroce"))
            .args(["inspect", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), &content).unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
        match code {
            0 => assert_eq!(
                text(&out.stdout).replace("standard input", path),
                text(&by_name.stdout)
            ),
            _ => assert!(
                text(&out.stderr).contains("standard input: "),
                "{}",
                text(&out.stderr)
            ),
        }
    }
}

#[test]
fn inspect_says_what_a_capture_breaks_by_its_exit_code() {
    let captures = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/captures");
    let inspect = |args: &[&str]| softroce(&[&["inspect"], args].concat());
    let good = format!("{captures}/loss_send_middle.pcap");
    let bad = format!("{captures}/corrupt_icrc-responder.pcap");

    let out = inspect(&[&good]);
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stdout).contains("0 violations, 6 events"));
    let out = inspect(&[&good, &bad]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("VIOLATION: ICRC"));
    let out = inspect(&["--json", &good]);
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(text(&out.stdout).lines().count(), 12);

    let out = inspect(&[captures, &good]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("is a directory"));
    // The other file is inspected all the same.
    assert!(text(&out.stdout).contains("0 violations, 6 events"));
    assert_eq!(inspect(&["no-such-file"]).status.code(), Some(2));
}
