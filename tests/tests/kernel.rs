//! The Linux kernel's card at the other end, as it was captured: our requester against its answers, our
//! responder against its requests. Packets and completions must be the ones the kernel's own card had
//! in our place.
//!
//! Left out, because the kernel does it its own way (see `captures/README.md`): receives that are too
//! short; two NAKs for one gap, from the requester's side; going back to the first packet of a WRITE
//! after an RNR NAK for its last; the last packet of READ data that was asked for again, which the kernel
//! calls LAST and we call ONLY.

use softroce_sim::card::{Mtu, Remote, SendRequest, Work};
use softroce_sim::memory::{Access, Buffer};
use softroce_sim::wire::capture::Reader;
use softroce_sim::wire::{Ext, Frame, Immediate, Opcode, Packet, Payload, RemoteKey, RouteTable};
use softroce_tests::bench::{Bench, Setup, all_rights};
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

const CASES: [&str; 28] = [
    "corrupt_icrc",
    "dup_request",
    "loss_ack",
    "loss_all",
    "loss_read_req",
    "loss_send_last",
    "loss_send_middle",
    "loss_write_first",
    "rc_atomic",
    "rc_mtu2048",
    "rc_mtu4096",
    "rc_mtu512",
    "rc_nak_perm_atomic",
    "rc_nak_perm_read",
    "rc_nak_perm_write",
    "rc_nak_rkey_atomic",
    "rc_nak_rkey_read",
    "rc_nak_rkey_write",
    "rc_nak_then_more",
    "rc_read",
    "rc_read_depth1",
    "rc_rnr_exhausted",
    "rc_rnr_late",
    "rc_send",
    "rc_send_imm",
    "rc_send_solicited",
    "rc_write",
    "rc_write_imm",
];
const REQUESTER_ONLY: [&str; 1] = ["loss_read_resp_last"];
const RESPONDER_ONLY: [&str; 2] = ["reorder_request", "rc_rnr_writeimm"];

/// One request of the captured program.
struct Op {
    kind: String,
    size: u32,
    /// The next one does not wait for it.
    pipelined: bool,
    solicited: bool,
}

/// A captured case: what the programs did, and what came of it.
struct Case {
    text: String,
    ops: Vec<Op>,
    setup: Setup,
    /// Rights of the responder's region.
    access: Access,
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("captures")
        .join(name)
}

fn frames(name: &str) -> Vec<Frame> {
    let file = fs::File::open(path(name)).unwrap();
    let records = Reader::new(BufReader::new(file)).unwrap();
    records.map(|r| r.unwrap().frame().unwrap()).collect()
}

impl Case {
    fn new(name: &'static str) -> Case {
        let text = fs::read_to_string(path(&format!("{name}.txt"))).unwrap();
        let line = text.lines().find(|l| l.starts_with("client: ")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let option = |flag: &str| {
            let at = words.iter().position(|w| *w == flag)?;
            let value = words[at + 1];
            Some(match value.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
                None => value.parse().unwrap(),
            })
        };
        let ops = words.last().unwrap().split(',').map(|word| {
            let mut parts = word.split(':');
            let kind = parts.next().unwrap().to_string();
            let size = parts.next().map_or(8, |s| s.parse().unwrap());
            let flags = parts.next().unwrap_or_default();
            Op {
                kind,
                size,
                pipelined: flags.contains('k'),
                solicited: flags.contains('e'),
            }
        });
        let mut setup = Setup {
            mtu: Mtu::from_bytes(option("-M").unwrap_or(1024).into()).unwrap(),
            timeout: option("-O").unwrap_or(16) as u8,
            retry_cnt: option("-r").unwrap_or(7) as u8,
            rnr_retry: option("-R").unwrap_or(7) as u8,
            min_rnr_timer: option("-N").unwrap_or(12) as u8,
            max_rd_atomic: option("-D").unwrap_or(16) as u8,
            ..Default::default()
        };
        setup.config.credits = false;
        // The driver asks for an acknowledgement at the end of a message only.
        setup.config.ack_every = 1000;
        setup.access = all_rights() | Access::REMOTE_ATOMIC;
        let access = match option("-A") {
            Some(1) => Access::LOCAL_WRITE,
            Some(7) => all_rights(),
            _ => setup.access,
        };
        Case {
            ops: ops.collect(),
            setup,
            access,
            text,
        }
    }

    /// Completions of the program whose lines begin with `who`: number and status.
    fn completions(&self, who: char) -> Vec<(u64, u32)> {
        let number = |line: &str, key: &str| {
            let rest = &line[line.find(key)? + key.len()..];
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            rest[..end].parse().ok()
        };
        let lines = self
            .text
            .lines()
            .filter(|l| l.starts_with(who) && l.contains(" wc "));
        lines
            .map(|l| {
                (
                    number(l, "wr_id=").unwrap(),
                    number(l, "status=").unwrap() as u32,
                )
            })
            .collect()
    }

    /// Key and address of the captured responder's region.
    fn region(&self) -> Remote {
        let line = self.text.lines().find(|l| l.starts_with("S RC")).unwrap();
        let hex = |key: &str| {
            let rest = &line[line.find(key).unwrap() + key.len()..];
            u64::from_str_radix(rest.split_whitespace().next().unwrap(), 16).unwrap()
        };
        Remote {
            rkey: RemoteKey(hex("rkey 0x") as u32),
            addr: hex("addr 0x"),
        }
    }
}

/// What is compared of a packet.
fn words(
    opcode: Opcode,
    psn: u32,
    ext: &Ext,
    payload: usize,
    ask: bool,
    solicited: bool,
) -> String {
    let aeth = ext
        .aeth()
        .map(|a| format!("{:#04x} msn {}", a.syndrome.0, a.msn));
    let len = ext.reth().map(|r| r.dma_len);
    format!("{opcode} {psn} [{payload}] {aeth:?} {len:?} ask {ask} solicited {solicited}")
}

fn of_frame(f: &Frame) -> String {
    let (psn, b) = (f.bth.psn().get(), &f.bth);
    words(
        b.opcode(),
        psn,
        &f.ext,
        f.payload.len(),
        b.ack_req(),
        b.solicited(),
    )
}

fn of_packet(p: &Packet) -> String {
    let (psn, b) = (p.bth.psn().get(), &p.bth);
    words(
        b.opcode(),
        psn,
        &p.ext,
        p.payload.len().into(),
        b.ack_req(),
        b.solicited(),
    )
}

/// The frame as our card gets it.
fn receive(b: &mut Bench, f: &Frame, ext: Ext) {
    let payload = match f.payload.len() {
        0 => Payload::EMPTY,
        _ => b.env.hold(f.payload.to_vec()),
    };
    let id = RouteTable::new().intern(b.route);
    let mut packet = f.to_packet(id, payload).unwrap();
    packet.ext = ext;
    packet.bth = packet.bth.with_dest_qp(b.qp.number());
    if f.check_icrc().is_err() {
        packet.damage = softroce_sim::wire::Damage::Device;
    }
    let route = b.route;
    b.card.receive(b.now, &packet, &route, &mut b.env);
}

fn requester(name: &'static str) {
    let case = Case::new(name);
    let frames: Vec<Frame> = frames(&format!("{name}.pcap"));
    let first = frames.first().unwrap().bth.psn().get();
    let mut b = Bench::new(Setup {
        sq_psn: first,
        ..case.setup.clone()
    });
    let mut ops = case.ops.iter().enumerate().peekable();
    let (mut done, mut posted) = (Vec::new(), 0);
    let mut may_post = true;
    let remote = case.region();
    for (i, frame) in frames.iter().enumerate() {
        while may_post && let Some((id, op)) = ops.next() {
            let immediate = Immediate::from_be(1);
            let work = match op.kind.as_str() {
                "send" => Work::Send,
                "sendimm" => Work::SendImmediate(immediate),
                "write" => Work::Write(remote),
                "writeimm" => Work::WriteImmediate(remote, immediate),
                "read" => Work::Read(remote),
                "cas" => Work::CompareSwap {
                    at: remote,
                    compare: 1,
                    swap: 2,
                },
                "faa" => Work::FetchAdd { at: remote, add: 1 },
                other => panic!("{other}"),
            };
            let sges = [b.sge(0, op.size)];
            let request = SendRequest {
                solicited: op.solicited,
                ..SendRequest::new(id as u64, work, &sges)
            };
            b.try_post(&request).unwrap();
            posted += 1;
            may_post = op.pipelined;
        }
        if frame.bth.opcode().is_response() {
            receive(&mut b, frame, frame.ext);
            done.extend(b.poll().iter().map(|c| (c.wr_id, c.status as u32)));
            may_post |= done.len() == posted;
            continue;
        }
        // What the kernel sent, ours sends: now, or when its timer runs out.
        let packet = b.pull().or_else(|| {
            let wait = b.card.next_timeout().since(b.now);
            b.wait(wait);
            b.pull()
        });
        let packet = packet.unwrap_or_else(|| panic!("{name}, frame {i}: nothing to send"));
        assert_eq!(of_packet(&packet), of_frame(frame), "{name}, frame {i}");
        assert_eq!(
            usize::from(packet.frame_len),
            frame.encode().len() + 4,
            "{name}, frame {i}"
        );
    }
    if b.says().is_empty() && b.card.next_timeout() < softroce_sim::time::Time::NEVER {
        b.wait(b.card.next_timeout().since(b.now));
    }
    assert_eq!(b.says(), [""; 0], "{name}");
    done.extend(b.poll().iter().map(|c| (c.wr_id, c.status as u32)));
    assert_eq!(done, case.completions('C'), "{name}");
}

fn responder(name: &'static str) {
    let case = Case::new(name);
    let file = format!("{name}-responder.pcap");
    let file = if path(&file).exists() {
        file
    } else {
        format!("{name}.pcap")
    };
    let frames: Vec<Frame> = frames(&file);
    // The first packet may not have come.
    let first = self::frames(&format!("{name}.pcap"))[0].bth.psn().get();
    let mut b = Bench::new(Setup {
        rq_psn: first,
        ..case.setup.clone()
    });
    let region = case.region();
    let mr = b
        .card
        .register(b.pd, Buffer::new(1 << 20), case.access)
        .unwrap();
    let mut waiting: Vec<(usize, u32)> = Vec::new();
    for (i, op) in case.ops.iter().enumerate() {
        if op.kind.starts_with("send") || op.kind == "writeimm" {
            waiting.push((i, op.size));
        }
    }
    let is_rnr = |f: &Frame| f.ext.aeth().is_some_and(|a| a.syndrome.0 >> 5 == 1);
    let (mut ours, mut kernels) = (Vec::new(), Vec::new());
    let mut rnr_ahead = true;
    for (i, f) in frames.iter().enumerate() {
        if f.bth.opcode().is_response() {
            kernels.push(of_frame(f));
            continue;
        }
        // The program posted its receives before the first request that found them.
        if rnr_ahead {
            let next = frames[i..].iter().find(|f| f.ext.aeth().is_some());
            rnr_ahead = next.is_some_and(is_rnr)
                // A duplicate that is acknowledged says nothing about receives.
                || frames[i..].iter().filter(|f| is_rnr(f)).count() > 1;
            if !rnr_ahead {
                for (id, size) in waiting.drain(..) {
                    b.post_recv(1000 + id as u64, 0, size);
                }
            }
        }
        // Key and address are those of our region where they were those of the kernel's.
        let mut ext = f.ext;
        if let Ext::Atomic(a) = &mut ext {
            let rkey = a.rkey;
            a.va = a.va.wrapping_sub(region.addr).wrapping_add(mr.addr);
            a.rkey.0 = if rkey == region.rkey {
                mr.rkey.0
            } else {
                !mr.rkey.0
            };
        }
        if let Ext::Reth(r) | Ext::RethImmediate(r, _) = &mut ext {
            r.va = r.va.wrapping_sub(region.addr).wrapping_add(mr.addr);
            r.rkey.0 = if r.rkey == region.rkey {
                mr.rkey.0
            } else {
                !mr.rkey.0
            };
        }
        receive(&mut b, f, ext);
        ours.extend(b.packets().iter().map(of_packet));
    }
    assert_eq!(ours, kernels, "{name}");
    let done: Vec<_> = b
        .poll()
        .iter()
        .map(|c| (c.wr_id, c.status as u32))
        .collect();
    assert_eq!(done, case.completions('S'), "{name}");
}

#[test]
fn our_requester_sends_what_the_kernels_did() {
    for name in CASES.into_iter().chain(REQUESTER_ONLY) {
        requester(name);
    }
}

#[test]
fn our_responder_answers_as_the_kernels_did() {
    for name in CASES.into_iter().chain(RESPONDER_ONLY) {
        responder(name);
    }
}
