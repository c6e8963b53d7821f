//! What the program of the captures did, at either end: the same requests in the same order, and the same
//! words about what came of them, times left out.

use super::case::{Case, Op, Side, without_identification};
use super::stand::Stand;
use softroce_sim::card::{
    Completion, CompletionKind, Datagram, QpType, Remote, SendRequest, State, Status, Work,
};
use softroce_sim::wire::{Immediate, RemoteKey};

/// Bytes of a slot of the memory: one for each operation, and behind them one for each receive.
pub const SLOT: u64 = 128 * 1024;

/// Byte `k` of what operation `i` sends.
fn pattern(i: usize, k: usize) -> u8 {
    (k * 7 + i * 13 + 1) as u8
}

/// The program at one end.
#[derive(Debug)]
pub struct Program<'a> {
    case: &'a Case,
    side: Side,
    /// What it has printed.
    pub said: Vec<String>,
    /// The next operation to post.
    next: usize,
    /// Requests without completion.
    out: usize,
    /// It waits until every request has its completion.
    waits: bool,
    late_posted: bool,
    bad: bool,
}

impl<'a> Program<'a> {
    /// The program, before it does anything.
    pub fn new(case: &'a Case, side: Side) -> Program<'a> {
        Program {
            case,
            side,
            said: Vec::new(),
            next: 0,
            out: 0,
            waits: false,
            late_posted: false,
            bad: false,
        }
    }

    fn say(&mut self, text: impl AsRef<str>) {
        let line = format!("{} {}", self.side.letter(), text.as_ref());
        self.said.push(without_identification(&line));
    }

    fn ops(&self) -> impl Iterator<Item = (usize, &'a Op)> + use<'a> {
        self.case.ops.iter().enumerate()
    }

    /// What it does before the connection is used.
    pub fn begin(&mut self, stand: &mut Stand<'_>) {
        if self.side == Side::Requester {
            return;
        }
        if self.case.ops.iter().any(|op| op.name == "sendinv") {
            stand.bind_window(99);
            stand.pull();
            if let Some(c) = stand.poll() {
                self.say(completion(&c, stand));
            }
        }
        for (i, op) in self.ops() {
            let at = i as u64 * SLOT;
            match op.name.as_str() {
                "read" => {
                    let bytes: Vec<u8> = (0..op.len as usize).map(|k| pattern(i, k)).collect();
                    stand.write(at, &bytes);
                }
                "cas" => stand.write(at, &0x1111_1111_1111_1111u64.to_ne_bytes()),
                "faa" => stand.write(at, &0x0000_0000_ffff_fff8u64.to_ne_bytes()),
                _ => {}
            }
            if op.takes_receive() && !op.has_any("nx") {
                self.post_recv(i, op, stand);
            }
        }
    }

    fn recv_slot(&self, i: usize) -> u64 {
        (self.case.ops.len() + i) as u64 * SLOT
    }

    fn header_len(&self) -> u32 {
        if self.case.options.service == QpType::Ud {
            40
        } else {
            0
        }
    }

    fn post_recv(&self, i: usize, op: &Op, stand: &mut Stand<'_>) {
        let len = if op.has('s') { op.len / 2 } else { op.len };
        stand.post_recv(1000 + i as u64, self.recv_slot(i), len + self.header_len());
    }

    /// Posts the receives that are late, once.
    pub fn post_late(&mut self, stand: &mut Stand<'_>) {
        if self.side == Side::Requester || std::mem::replace(&mut self.late_posted, true) {
            return;
        }
        for (i, op) in self.ops().filter(|(_, op)| op.has('n')) {
            self.say(format!("posting late RECV for op{i}"));
            self.post_recv(i, op, stand);
        }
    }

    /// True if it waits for nothing that the card could still do.
    pub fn is_done(&self) -> bool {
        self.side == Side::Responder || self.next == self.case.ops.len() && self.out == 0
    }

    /// Polls, and posts what may be posted. The responder's program polls at the end only.
    pub fn step(&mut self, stand: &mut Stand<'_>) {
        if self.side == Side::Responder {
            return;
        }
        loop {
            while let Some(c) = stand.poll() {
                self.say(completion(&c, stand));
                self.out -= 1;
            }
            let Some(op) = self.case.ops.get(self.next) else {
                return;
            };
            if self.waits && self.out > 0 {
                return;
            }
            self.post(self.next, op, stand);
            self.out += 1;
            self.next += 1;
            self.waits = !op.has('k') || self.next == self.case.ops.len();
        }
    }

    fn post(&self, i: usize, op: &Op, stand: &mut Stand<'_>) {
        let slot = i as u64 * SLOT;
        let asks = op.name == "read" || op.is_atomic();
        let bytes: Vec<u8> = (0..op.len as usize)
            .map(|k| if asks { 0xee } else { pattern(i, k) })
            .collect();
        stand.write(slot, &bytes);

        let peer = self.case.identity(self.side.peer());
        let bad = if op.has('b') { 0x55 } else { 0 };
        let at = Remote {
            addr: peer.addr + slot,
            rkey: RemoteKey(peer.rkey.0 ^ bad),
        };
        let immediate = Immediate::from_be(0xabcd_0000 + i as u32);
        let work = match op.name.as_str() {
            "send" => Work::Send,
            "sendimm" => Work::SendImmediate(immediate),
            "sendinv" => Work::SendInvalidate(self.case.invalidated_key()),
            "write" => Work::Write(at),
            "writeimm" => Work::WriteImmediate(at, immediate),
            "read" => Work::Read(at),
            "cas" => Work::CompareSwap {
                at,
                compare: if op.has('m') {
                    0x3333_3333_3333_3333
                } else {
                    0x1111_1111_1111_1111
                },
                swap: 0x2222_2222_2222_2222,
            },
            "faa" => Work::FetchAdd { at, add: 0x10 },
            other => panic!("operation {other}"),
        };
        let len = if op.is_atomic() { 8 } else { op.len };
        let sge = [stand.sge(slot, len)];
        let sges = if len == 0 { &[][..] } else { &sge };
        stand.post_send(&SendRequest {
            solicited: op.has('e'),
            to: stand.address.map(|address| Datagram {
                address,
                qp: peer.qp,
                qkey: self.case.options.sent_qkey,
            }),
            ..SendRequest::new(i as u64, work, sges)
        });
    }

    /// What it says at the end.
    pub fn end(&mut self, stand: &mut Stand<'_>) {
        if self.side == Side::Responder {
            while let Some(c) = stand.poll() {
                self.say(completion(&c, stand));
            }
        } else if self.out > 0 {
            self.say(format!("timeout waiting for {} completions", self.out));
        }
        for (i, op) in self.ops() {
            match self.side {
                Side::Requester => self.inspect_requester(i, op, stand),
                Side::Responder => self.inspect_responder(i, op, stand),
            }
        }
        let state = match stand.state() {
            State::Reset => 0,
            State::Init => 1,
            State::Rtr => 2,
            State::Rts => 3,
            State::Sqd => 4,
            State::Sqe => 5,
            State::Error => 6,
        };
        self.say(format!("final qp_state {state}"));
        self.say(if self.bad { "BAD DATA" } else { "ok" });
    }

    fn wrong_bytes(&self, i: usize, op: &Op, at: u64, stand: &Stand<'_>) -> usize {
        let there = stand.read(at, op.len as usize);
        let wrong = there.iter().enumerate();
        wrong.filter(|&(k, &byte)| byte != pattern(i, k)).count()
    }

    fn inspect_requester(&mut self, i: usize, op: &Op, stand: &Stand<'_>) {
        let slot = i as u64 * SLOT;
        if op.name == "read" {
            let wrong = self.wrong_bytes(i, op, slot, stand);
            self.say(format!("op{i} read: {wrong} wrong bytes of {}", op.len));
            self.bad |= wrong > 0 && !op.has_any("bo");
        }
        if op.is_atomic() {
            let value = stand.word(slot);
            self.say(format!("op{i} {}: returned {value:#018x}", op.name));
        }
    }

    fn inspect_responder(&mut self, i: usize, op: &Op, stand: &Stand<'_>) {
        let slot = i as u64 * SLOT;
        let header = u64::from(self.header_len());
        let at = if op.is_send() {
            self.recv_slot(i) + header
        } else {
            slot
        };
        if op.is_send() || op.name.starts_with("write") {
            let wrong = self.wrong_bytes(i, op, at, stand);
            let (name, len) = (&op.name, op.len);
            self.say(format!("op{i} {name}: {wrong} wrong bytes of {len}"));
            self.bad |= wrong > 0 && !op.has_any("bosx");
        }
        if op.is_atomic() {
            let value = stand.word(slot);
            self.say(format!("op{i} {}: memory now {value:#018x}", op.name));
        }
        if op.is_send() && header > 0 {
            let dump: String = stand
                .read(at - header, header as usize)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            self.say(format!("op{i} GRH:{dump}"));
        }
    }
}

/// `ibv_wc` in the program's words.
fn completion(c: &Completion, stand: &Stand<'_>) -> String {
    let mut text = format!("wc wr_id={} status={}", c.wr_id, c.status.number());
    if c.status != Status::Success {
        return text + " vendor_err=0";
    }
    let opcode = match c.kind {
        CompletionKind::Send => 0,
        CompletionKind::Write => 1,
        CompletionKind::Read => 2,
        CompletionKind::CompareSwap => 3,
        CompletionKind::FetchAdd => 4,
        CompletionKind::BindWindow => 5,
        CompletionKind::LocalInvalidate => 6,
        CompletionKind::AtomicWrite => 9,
        CompletionKind::Receive => 128,
        CompletionKind::ReceiveWithImmediate => 129,
    };
    // "With invalidate" is 4 inside the kernel and 8 for programs; this driver passes on the 4.
    let flags = u8::from(c.grh)
        | u8::from(c.immediate.is_some()) << 1
        | u8::from(c.invalidated.is_some()) << 2;
    text += &format!(" opcode={opcode} byte_len={} flags={flags:x}", c.byte_len);
    if let Some(immediate) = c.immediate {
        text += &format!(" imm={:#010x}", immediate.get());
    }
    if c.grh {
        let from = stand.number_of(c.src_qp);
        text += &format!(" src_qp={:#x}", from.get());
    }
    text
}
