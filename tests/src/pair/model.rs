//! What the programs of a run do, and what must come of it.

use softroce_sim::card::{
    Completion, CompletionKind, Mtu, QueuePair, Remote, Sge, State, Status, Work,
};
use softroce_sim::memory::{Buffer, MemoryRegion};
use softroce_sim::random::Stream;
use softroce_sim::wire::Immediate;

/// What a peer reads.
const LIBRARY: usize = 8 << 10;
/// Where a peer writes.
const TARGET: usize = 8 << 10;
const GUARD: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Send,
    SendImmediate,
    Write,
    WriteImmediate,
    Read,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) id: usize,
    pub(crate) kind: Kind,
    pub(crate) size: usize,
    /// Where its data is, or goes, in the memory of its side.
    pub(crate) local: usize,
    /// Where in the peer's target or library.
    pub(crate) remote: usize,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    /// Where its list of elements is cut.
    pub(crate) cuts: u64,
    mtu: usize,
}

/// A place that a receive request offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) cuts: u64,
    /// The peer's request that takes it.
    op: usize,
}

/// One side of a connection: its queue pair, its memory, and what has happened to it.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) ops: Vec<Op>,
    pub(crate) receives: Vec<Slot>,
    pub(crate) buffer: Buffer,
    pub(crate) mr: Option<MemoryRegion>,
    pub(crate) remote: Option<MemoryRegion>,
    /// What an RNR NAK comes after has been carried out, for this side's card.
    pub(crate) rnr_nak_acknowledges: bool,
    /// The memory as it was at first.
    initial: Vec<u8>,
    sends_posted: usize,
    receives_posted: usize,
    /// Send completions so far, and receive completions.
    sent: Vec<(usize, Status)>,
    received: Vec<(usize, Status)>,
}

pub(crate) fn draw_ops(setup: &mut Stream, n: usize, mtu: Mtu) -> Vec<Op> {
    let mtu = usize::from(mtu.bytes());
    let mut local = LIBRARY + TARGET;
    let mut ops = Vec::new();
    for id in 0..n {
        let size = match setup.below(8) {
            0 => 0,
            1 => 1 + setup.below(4) as usize,
            2 => mtu - 1,
            3 => mtu,
            4 => mtu + 1,
            _ => setup.below(6 * mtu as u64) as usize,
        }
        .min(TARGET);
        let kinds = [
            Kind::Send,
            Kind::SendImmediate,
            Kind::Write,
            Kind::Write,
            Kind::WriteImmediate,
            Kind::Read,
            Kind::Read,
        ];
        ops.push(Op {
            id,
            kind: kinds[setup.below(kinds.len() as u64) as usize],
            size,
            local,
            remote: setup.below((TARGET - size) as u64 + 1) as usize,
            signaled: id + 1 == n || setup.below(3) > 0,
            fence: setup.below(6) == 0,
            cuts: setup.bits(),
            mtu,
        });
        local += size + GUARD;
    }
    ops
}

impl Op {
    fn takes_receive(&self) -> bool {
        !matches!(self.kind, Kind::Write | Kind::Read)
    }

    fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::WriteImmediate)
    }

    fn immediate(&self) -> Option<Immediate> {
        matches!(self.kind, Kind::SendImmediate | Kind::WriteImmediate)
            .then(|| Immediate::from_be(0xabcd_0000 + self.id as u32))
    }

    pub(crate) fn work(&self, remote: MemoryRegion) -> Work {
        let immediate = self.immediate().unwrap_or_default();
        let at = |offset: usize| Remote {
            addr: remote.addr + offset as u64,
            rkey: remote.rkey,
        };
        match self.kind {
            Kind::Send => Work::Send,
            Kind::SendImmediate => Work::SendImmediate(immediate),
            Kind::Write => Work::Write(at(LIBRARY + self.remote)),
            Kind::WriteImmediate => Work::WriteImmediate(at(LIBRARY + self.remote), immediate),
            Kind::Read => Work::Read(at(self.remote)),
        }
    }
}

impl End {
    pub(crate) fn new(qp: QueuePair, ops: Vec<Op>, peer: &[Op], setup: &mut Stream) -> End {
        let mut at = ops
            .last()
            .map_or(LIBRARY + TARGET, |o| o.local + o.size + GUARD);
        let mut receives = Vec::new();
        for op in peer.iter().filter(|o| o.takes_receive()) {
            let len = op.size + setup.below(3) as usize;
            receives.push(Slot {
                at,
                len,
                cuts: setup.bits(),
                op: op.id,
            });
            at += len + GUARD;
        }
        let initial: Vec<u8> = (0..at).map(|_| setup.bits() as u8).collect();
        End {
            qp,
            ops,
            receives,
            buffer: Buffer::from_bytes(&initial),
            mr: None,
            remote: None,
            rnr_nak_acknowledges: true,
            initial,
            sends_posted: 0,
            receives_posted: 0,
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    pub(crate) fn next_send(&mut self) -> Op {
        self.sends_posted += 1;
        self.ops[self.sends_posted - 1]
    }

    pub(crate) fn next_receive(&mut self) -> (u64, Slot) {
        self.receives_posted += 1;
        let index = self.receives_posted - 1;
        (index as u64, self.receives[index])
    }

    /// The elements of `len` bytes at `at`, up to eight, some of them empty.
    pub(crate) fn sges(&self, at: usize, len: usize, cuts: u64) -> Vec<Sge> {
        let mr = self.mr.unwrap();
        let n = 1 + cuts as usize % 8;
        let mut bounds: Vec<usize> = (1..n)
            .map(|i| (cuts >> (8 * i)) as usize * 131 % (len + 1))
            .collect();
        bounds.extend([0, len]);
        bounds.sort_unstable();
        bounds
            .windows(2)
            .map(|w| Sge {
                addr: mr.addr + (at + w[0]) as u64,
                len: (w[1] - w[0]) as u32,
                lkey: mr.lkey,
            })
            .collect()
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.buffer.read_at(at, &mut out);
        out
    }

    pub(crate) fn completed(&mut self, c: &Completion, peer: &End) {
        let id = c.wr_id as usize;
        if matches!(
            c.kind,
            CompletionKind::Receive | CompletionKind::ReceiveWithImmediate
        ) {
            assert_eq!(
                id,
                self.received.len(),
                "receives complete once and in order"
            );
            self.received.push((id, c.status));
            if c.status == Status::Success {
                self.check_received(c, peer);
            } else {
                assert_eq!(c.status, Status::WorkRequestFlushed, "receive {id}");
            }
            return;
        }
        let last = self.sent.last();
        assert!(
            last.is_none_or(|&(l, _)| l < id),
            "requests complete once and in order"
        );
        let failed = self.sent.iter().find(|(_, s)| *s != Status::Success);
        let failed = failed.map(|&(first, _)| self.ops[first]);
        let one_failed = self.culprits() > 0;
        let op = self.ops[id];
        self.sent.push((id, c.status));
        match c.status {
            Status::Success => {
                assert!(op.signaled && failed.is_none());
                if op.kind == Kind::Read {
                    assert_eq!(c.byte_len as usize, op.size);
                    let expected = &peer.initial[op.remote..op.remote + op.size];
                    assert_eq!(self.bytes(op.local, op.size), expected, "READ {id}");
                }
            }
            Status::WorkRequestFlushed => {}
            status => {
                assert!(!one_failed, "one request fails, the others are flushed");
                assert!(Op::may_fail_with(status), "{op:?}: {status}");
                let not_ready = status == Status::RnrRetryExceeded;
                assert!(!not_ready || op.takes_receive(), "{op:?} takes no receive");
                // Timeouts fail the oldest request. An RNR NAK names its own, and then what is before it
                // without answer was outstanding when the queue pair failed: flushed, and in its place.
                if let Some(first) = failed {
                    let waits = first.kind == Kind::Read || !self.rnr_nak_acknowledges;
                    assert!(not_ready && waits, "{first:?} is flushed before {op:?}");
                }
            }
        }
    }

    /// Send completions that say what was wrong.
    fn culprits(&self) -> usize {
        let blameless = [Status::Success, Status::WorkRequestFlushed];
        let sent = self.sent.iter();
        sent.filter(|(_, s)| !blameless.contains(s)).count()
    }

    /// A receive has completed: everything up to the peer's request has taken effect, and nothing
    /// after it.
    fn check_received(&self, c: &Completion, peer: &End) {
        let slot = self.receives[c.wr_id as usize];
        let op = peer.ops[slot.op];
        assert_eq!(c.byte_len as usize, op.size, "{op:?}");
        assert_eq!(c.immediate, op.immediate(), "{op:?}");
        let kind = match op.writes() {
            true => CompletionKind::ReceiveWithImmediate,
            false => CompletionKind::Receive,
        };
        assert_eq!(c.kind, kind);
        self.check_effects(peer, op.id + 1, 0);
    }

    /// The memory after the peer's first `done` requests, and `part` bytes of the next.
    fn expected(&self, peer: &End, done: usize, part: usize) -> Vec<u8> {
        let mut memory = self.initial.clone();
        for op in peer.ops.iter().take(done + usize::from(part > 0)) {
            let len = if op.id < done {
                op.size
            } else {
                part.min(op.size)
            };
            let data = &peer.initial[op.local..op.local + len];
            let at = match op.kind {
                Kind::Read => continue,
                Kind::Write | Kind::WriteImmediate => LIBRARY + op.remote,
                Kind::Send | Kind::SendImmediate => {
                    let slot = self.receives.iter().find(|s| s.op == op.id);
                    slot.unwrap().at
                }
            };
            memory[at..at + len].copy_from_slice(data);
        }
        memory
    }

    /// Every byte of the memory is as it was, but for the peer's first `done` requests, `part` bytes
    /// of the next, and what this side has read itself.
    fn matches(&self, peer: &End, done: usize, part: usize) -> bool {
        let mut expected = self.expected(peer, done, part);
        let mut actual = self.buffer.to_vec();
        for op in self.ops.iter().filter(|o| o.kind == Kind::Read) {
            let range = op.local..op.local + op.size;
            // READ data is there, or not yet, packet by packet.
            let from = &peer.initial[op.remote..op.remote + op.size];
            let packets = actual[range.clone()].chunks_mut(op.mtu);
            for ((a, f), i) in packets
                .zip(from.chunks(op.mtu))
                .zip(expected[range].chunks_mut(op.mtu))
            {
                if a == f {
                    a.copy_from_slice(i);
                }
            }
        }
        actual == expected
    }

    fn check_effects(&self, peer: &End, done: usize, part: usize) {
        assert!(
            self.matches(peer, done, part),
            "the memory is not as after {done} requests"
        );
    }

    /// At the end of a run.
    pub(crate) fn check_end(&self, peer: &End, state: State, broken: bool) {
        let successes = self.sent.iter().filter(|(_, s)| *s == Status::Success);
        let done = successes.clone().next_back().map_or(0, |&(id, _)| id + 1);
        if state == State::Error {
            // Everything posted has completed, from the first that failed on.
            let failed: Vec<usize> = self.sent[successes.count()..].iter().map(|f| f.0).collect();
            if let Some(&first) = failed.first() {
                assert_eq!(failed, (first..self.ops.len()).collect::<Vec<_>>());
            }
            assert_eq!(self.received.len(), self.receives.len());
            assert_eq!(self.culprits(), 1, "one request says why");
        } else if !broken {
            let signaled = self
                .ops
                .iter()
                .filter(|o| o.signaled)
                .map(|o| (o.id, Status::Success));
            assert_eq!(self.sent, signaled.collect::<Vec<_>>());
            let all = (0..self.receives.len()).map(|id| (id, Status::Success));
            assert_eq!(self.received, all.collect::<Vec<_>>());
            self.check_effects(peer, peer.ops.len(), 0);
        }
        // What the peer was told is done has been done, all of it in order, and then at most a part of
        // one message more.
        let mut told = peer.sent.iter().filter(|(_, s)| *s == Status::Success);
        let told = told.next_back().map_or(0, |&(id, _)| id + 1);
        let received = self.received.iter().rfind(|(_, s)| *s == Status::Success);
        let seen = received.map_or(0, |&(id, _)| self.receives[id].op + 1);
        let least = told.max(seen);
        let prefixes = (least..=peer.ops.len()).flat_map(|done| {
            let next = peer.ops.get(done);
            let parts = next.map_or(0, |o| o.size / o.mtu);
            (0..=parts).map(move |n| (done, n * next.map_or(0, |o| o.mtu)))
        });
        let mut prefixes = prefixes;
        assert!(
            prefixes.any(|(done, part)| self.matches(peer, done, part)),
            "the memory is after no prefix of the peer's requests (at least {least})"
        );
        // READs that are done have their data.
        for op in self
            .ops
            .iter()
            .filter(|o| o.kind == Kind::Read && o.id < done)
        {
            let expected = &peer.initial[op.remote..op.remote + op.size];
            assert_eq!(self.bytes(op.local, op.size), expected);
        }
    }
}
