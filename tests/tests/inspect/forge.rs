//! Captures to inspect: read from the kernel's, changed, and written again.

use softroce::inspect::{Inspection, Options, Rule, Severity, inspect};
use softroce_sim::wire::capture::Reader;
use softroce_sim::wire::{Aeth, Ext, Frame, Immediate, Opcode, Psn, Syndrome};
use std::path::{Path, PathBuf};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// The bytes of a kernel capture.
pub(crate) fn bytes_of(case: &str) -> Vec<u8> {
    let path = folder().join(format!("{case}.pcap"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Captured packets that can be changed.
#[derive(Clone)]
pub(crate) struct Forge {
    /// Microseconds, and the frame.
    pub(crate) packets: Vec<(u64, Frame)>,
}

impl Forge {
    /// The packets of a kernel capture.
    pub(crate) fn of(case: &str) -> Forge {
        let bytes = bytes_of(case);
        let packets = Reader::new(&bytes[..]).expect("a capture").map(|record| {
            let record = record.expect("a record");
            let time = record.time.expect("a stamp").as_ns() / 1000;
            (time, record.frame().expect("a frame"))
        });
        Forge {
            packets: packets.collect(),
        }
    }

    /// Changes the frame of packet `number`, from 1, and makes its sums right.
    pub(crate) fn change(mut self, number: usize, change: impl FnOnce(&mut Frame)) -> Forge {
        let frame = &mut self.packets[number - 1].1;
        change(frame);
        frame.seal();
        self
    }

    pub(crate) fn psn(self, number: usize, psn: u32) -> Forge {
        self.change(number, |f| f.bth = f.bth.with_psn(Psn::new(psn)))
    }

    pub(crate) fn opcode(self, number: usize, opcode: Opcode) -> Forge {
        self.change(number, |f| {
            f.bth = f.bth.with_opcode(opcode);
            if !opcode.has_immediate() && matches!(f.ext, Ext::Immediate(Immediate(_))) {
                f.ext = Ext::None;
            }
        })
    }

    pub(crate) fn aeth(self, number: usize, change: impl FnOnce(&mut Aeth)) -> Forge {
        self.change(number, |f| match &mut f.ext {
            Ext::Aeth(aeth) | Ext::AtomicAck(aeth, _) => change(aeth),
            other => panic!("packet {number} has {other:?}"),
        })
    }

    pub(crate) fn syndrome(self, number: usize, syndrome: u8) -> Forge {
        self.aeth(number, |a| a.syndrome = Syndrome(syndrome))
    }

    pub(crate) fn without(mut self, number: usize) -> Forge {
        self.packets.remove(number - 1);
        self
    }

    /// Packet `number` once more, `after` microseconds later and right behind it.
    pub(crate) fn again(mut self, number: usize, after: u64) -> Forge {
        let (time, frame) = self.packets[number - 1].clone();
        self.packets.insert(number, (time + after, frame));
        self
    }

    pub(crate) fn pcap(&self) -> Vec<u8> {
        self.cut(usize::MAX)
    }

    /// A pcap file with at most `snap` bytes of each packet.
    pub(crate) fn cut(&self, snap: usize) -> Vec<u8> {
        let packets = self
            .packets
            .iter()
            .map(|(time, frame)| (*time, frame.encode()));
        pcap(1, packets, snap)
    }

    pub(crate) fn inspect(&self) -> Inspection {
        look(&self.pcap())
    }
}

/// A pcap file of packets with their times in microseconds.
pub(crate) fn pcap(
    link: u32,
    packets: impl Iterator<Item = (u64, Vec<u8>)>,
    snap: usize,
) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 262_144, link] {
        out.extend(u32::to_be_bytes(word));
    }
    for (time, frame) in packets {
        let there = frame.len().min(snap);
        let words = [
            time / 1_000_000,
            time % 1_000_000,
            there as u64,
            frame.len() as u64,
        ];
        for word in words {
            out.extend((word as u32).to_be_bytes());
        }
        out.extend(&frame[..there]);
    }
    out
}

pub(crate) fn look(bytes: &[u8]) -> Inspection {
    look_with(bytes, &Options::default())
}

pub(crate) fn look_with(bytes: &[u8], options: &Options) -> Inspection {
    inspect(bytes, "forged", options).unwrap_or_else(|e| panic!("{e}"))
}

/// Rules and packets of the findings, sorted.
pub(crate) fn findings(inspection: &Inspection) -> Vec<(Rule, u64)> {
    let mut all: Vec<_> = inspection
        .findings
        .iter()
        .map(|f| (f.rule, f.packet))
        .collect();
    all.sort_unstable();
    all
}

/// Rules and packets of the violations, sorted.
pub(crate) fn violations(inspection: &Inspection) -> Vec<(Rule, u64)> {
    let mut all = findings(inspection);
    all.retain(|(rule, _)| rule.severity() == Severity::Violation);
    all
}
