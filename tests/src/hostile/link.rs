//! Connections between the victim and a peer, what their programs do, and what must come of it.
//!
//! A program posts one request after another, each in a slot of its own; a slot is used again when its
//! request has been judged. On a link that nobody disturbs each byte, length and value must be right. On one
//! that the hostile peer takes part in, requests complete once, in order, with any status.

use super::slots::{SLOT, Slots};
use softroce_sim::card::{
    AddressHandle, Completion, CompletionKind, QpType, QueuePair, Remote, SharedReceiveQueue,
    Status, Work,
};
use softroce_sim::memory::{Access, Binding, Pd};
use softroce_sim::random::Stream;
use softroce_sim::wire::{Immediate, QpNumber, RemoteKey};
use std::collections::VecDeque;

/// Requests of a program that are not judged yet, at most.
pub const WINDOW: usize = 8;
/// Slot of the region peers may use, from which they READ.
pub const LIBRARY: usize = WINDOW;
/// Slot of the region peers may use, with the cell for atomics.
pub const CELLS: usize = WINDOW + 1;
/// Slot of the vault that the window is bound to.
pub const OPEN_SLOT: usize = 1;

/// Work of a request, without its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    SendImmediate,
    SendInvalidate(RemoteKey),
    Write,
    WriteWindow(RemoteKey),
    WriteImmediate,
    Read,
    FetchAdd(u64),
    CompareSwap(u64),
    AtomicWrite,
    Bind(RemoteKey),
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) len: usize,
    /// The cell before an atomic.
    found: u64,
    sent: bool,
    arrived: bool,
}

impl Op {
    pub(super) fn slot(&self) -> usize {
        self.id as usize % WINDOW
    }

    fn takes_receive(&self) -> bool {
        matches!(
            self.kind,
            Kind::Send | Kind::SendImmediate | Kind::SendInvalidate(_) | Kind::WriteImmediate
        )
    }

    fn immediate(&self) -> Option<Immediate> {
        matches!(self.kind, Kind::SendImmediate | Kind::WriteImmediate)
            .then(|| Immediate::from_be(self.id as u32 ^ 0x5a00_0000))
    }

    /// Where the data is to be found at the peer, if not in a receive.
    fn target(&self) -> Option<usize> {
        matches!(
            self.kind,
            Kind::Write | Kind::WriteImmediate | Kind::AtomicWrite
        )
        .then(|| self.slot())
    }
}

/// Requests that one side posts, in order.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) pending: VecDeque<Op>,
    next: u64,
    /// The peer's cell, after everything that is posted.
    cell: u64,
    pub(super) completed: u64,
}

/// A window of type 2 to the open slot of the vault.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) key: RemoteKey,
    /// The key of a binding that is not complete.
    pub(super) next: Option<RemoteKey>,
    pub(super) bound: bool,
}

/// One side of a link.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) card: usize,
    pub(super) qp: QueuePair,
    pub(super) pd: Pd,
    /// What is sent, and where READ data goes.
    pub(super) own: Slots,
    /// What the peer may use.
    pub(super) open: Slots,
    /// Nothing in it is open but one slot, through the window.
    pub(super) vault: Slots,
    pub(super) window: Window,
    /// Where receives come from, among the queues of the world.
    pub(super) queue: usize,
    pub(super) ah: Option<AddressHandle>,
    pub(super) lane: Lane,
}

/// A connection, or two queue pairs that exchange datagrams.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) service: QpType,
    /// Nobody disturbs it.
    pub(super) strict: bool,
    /// The victim's side, and the peer's if it is a card.
    pub(super) sides: Vec<Side>,
    pub(super) peer_qp: QpNumber,
    pub(super) qkey: u32,
    /// Steps until it is connected again.
    pub(super) rests: u64,
    pub(super) failures: u64,
}

/// Receive requests: of one queue pair, or shared.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) slots: Slots,
    /// By slot, the request that is posted.
    pub(super) posted: Vec<Option<u64>>,
    /// Requests posted so far; the last completed one.
    pub(super) next: u64,
    pub(super) srq: Option<SharedReceiveQueue>,
    pub(super) last: Option<u64>,
}

/// Bytes of a request, different for each.
pub(super) fn pattern(link: usize, side: usize, id: u64, out: &mut [u8]) {
    let seed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (link * 2 + side) as u64;
    for (i, b) in out.iter_mut().enumerate() {
        let x = seed.wrapping_add((i as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        *b = 0x40 | (x >> 40) as u8 & 0x3f;
    }
}

impl Link {
    /// Draws the next request of a side; `None` if all slots are in use.
    pub(super) fn draw(&mut self, s: &mut Stream, side: usize) -> Option<Op> {
        if self.sides[side].lane.pending.len() >= WINDOW {
            return None;
        }
        let own = self.sides[side].window;
        let peer = self.sides.get(1 - side).map(|p| p.window);
        let peer = peer.filter(|w| w.bound).map(|w| w.key);
        let lane = &mut self.sides[side].lane;
        let id = lane.next;
        let mut len = match s.below(4) {
            0 => s.below(9) as usize,
            1 => 256,
            _ => s.below(SLOT as u64 - 40 + 1) as usize,
        };
        let through = |w: &Op| matches!(w.kind, Kind::WriteWindow(_) | Kind::SendInvalidate(_));
        let unbound = !own.bound && own.next.is_none();
        let window_rests = !lane.pending.iter().any(through);
        let first = match self.service {
            // An unreliable WRITE is known to be there when something later arrives.
            QpType::Uc | QpType::Ud if id.is_multiple_of(4) => s.below(2),
            QpType::Ud => s.below(2),
            QpType::Uc => s.below(5),
            QpType::Rc => s.below(11),
        };
        let kind = match (first, peer) {
            (0, _) => Kind::Send,
            (1, _) => Kind::SendImmediate,
            (2, _) => Kind::WriteImmediate,
            (3, _) => Kind::Write,
            (4.., _) if unbound && (first == 4 || !self.strict) => Kind::Bind(RemoteKey(
                own.key.0 & !0xff | own.key.0.wrapping_add(1) & 0xff,
            )),
            (4 | 5, Some(key)) if window_rests && self.service == QpType::Rc => {
                if s.below(3) == 0 {
                    Kind::SendInvalidate(key)
                } else {
                    Kind::WriteWindow(key)
                }
            }
            (6, _) => Kind::Read,
            (7, _) => Kind::FetchAdd(s.bits() & 0x0f0f),
            (8, _) => Kind::CompareSwap(u64::from_ne_bytes([0x40; 8]) ^ s.bits() & 0x3f),
            (9, _) => Kind::AtomicWrite,
            (10, _) => Kind::Read,
            _ => Kind::Write,
        };
        let found = lane.cell;
        match kind {
            Kind::FetchAdd(add) => lane.cell = lane.cell.wrapping_add(add),
            Kind::CompareSwap(swap) => lane.cell = swap,
            _ => {}
        }
        match kind {
            Kind::FetchAdd(_) | Kind::CompareSwap(_) | Kind::AtomicWrite => len = 8,
            Kind::Bind(key) => {
                self.sides[side].window.next = Some(key);
                len = 0;
            }
            _ => {}
        }
        Some(Op {
            id,
            kind,
            len,
            found,
            sent: false,
            arrived: false,
        })
    }

    /// True if peers count the addresses of the window with this key from zero: some of those that the
    /// hostile peer may use.
    pub(super) fn zero_based(&self, key: RemoteKey) -> bool {
        !self.strict && key.0 & 2 != 0
    }

    /// The work request of an operation.
    pub(super) fn work(&self, side: usize, op: &Op) -> Work {
        let own = &self.sides[side];
        let nowhere = Remote {
            addr: 0x1000,
            rkey: RemoteKey(0x1234),
        };
        let peer = self.sides.get(1 - side);
        let at = |slot: usize| peer.map_or(nowhere, |p| p.open.remote(slot));
        let immediate = op.immediate().unwrap_or_default();
        match op.kind {
            Kind::Send => Work::Send,
            Kind::SendImmediate => Work::SendImmediate(immediate),
            Kind::SendInvalidate(key) => Work::SendInvalidate(key),
            Kind::Write => Work::Write(at(op.slot())),
            Kind::WriteWindow(rkey) if self.zero_based(rkey) => {
                Work::Write(Remote { addr: 0, rkey })
            }
            Kind::WriteWindow(rkey) => Work::Write(Remote {
                rkey,
                ..peer.map_or(nowhere, |p| p.vault.remote(OPEN_SLOT))
            }),
            Kind::WriteImmediate => Work::WriteImmediate(at(op.slot()), immediate),
            Kind::AtomicWrite => Work::AtomicWrite(at(op.slot())),
            Kind::Read => Work::Read(at(LIBRARY)),
            Kind::FetchAdd(add) => Work::FetchAdd { at: at(CELLS), add },
            Kind::CompareSwap(swap) => Work::CompareSwap {
                at: at(CELLS),
                compare: op.found,
                swap,
            },
            Kind::Bind(key) => Work::BindWindow {
                key,
                binding: Binding {
                    lkey: own.vault.mr.lkey,
                    addr: own.vault.remote(OPEN_SLOT).addr,
                    len: SLOT as u64,
                    access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
                    zero_based: self.zero_based(key),
                },
            },
        }
    }

    /// Takes note that an operation has been posted.
    pub(super) fn posted(&mut self, side: usize, op: Op) {
        let lane = &mut self.sides[side].lane;
        lane.next += 1;
        lane.pending.push_back(op);
    }

    /// Everything begins anew.
    pub(super) fn restart(&mut self) {
        for side in &mut self.sides {
            side.lane.cell = u64::from_ne_bytes([0x40; 8]);
            side.open.write(CELLS, &[0x40; 8]);
        }
    }

    /// A send request of a side has completed.
    pub(super) fn sent(&mut self, number: usize, side: usize, c: &Completion) {
        let lane = &mut self.sides[side].lane;
        let op = lane.pending.iter_mut().find(|o| !o.sent);
        let op = op.unwrap_or_else(|| panic!("link {number} side {side}: {c:?} of no request"));
        assert_eq!(
            c.wr_id, op.id,
            "link {number}: requests complete once and in order"
        );
        op.sent = true;
        let op = *op;
        lane.completed += 1;
        if c.status == Status::Success
            && let Kind::Bind(key) = op.kind
        {
            self.sides[side].window = Window {
                key,
                next: None,
                bound: true,
            };
        }
        if self.strict {
            assert_eq!(
                c.status,
                Status::Success,
                "link {number} side {side}: {op:?}"
            );
            self.judge_sent(number, side, &op);
        }
        self.tidy(side);
    }

    fn judge_sent(&self, number: usize, side: usize, op: &Op) {
        let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
        let mut is = [0; SLOT];
        let mut expected = [0; SLOT];
        let (is, expected) = (&mut is[..op.len], &mut expected[..op.len]);
        match op.kind {
            Kind::Read => {
                own.own.read(op.slot(), is);
                pattern(number, 1 - side, u64::MAX, expected);
            }
            Kind::FetchAdd(_) | Kind::CompareSwap(_) => {
                own.own.read(op.slot(), is);
                expected.copy_from_slice(&op.found.to_ne_bytes());
            }
            Kind::WriteWindow(_) => {
                peer.vault.read(OPEN_SLOT, is);
                pattern(number, side, op.id, expected);
            }
            Kind::Write | Kind::AtomicWrite if self.service == QpType::Rc => {
                peer.open.read(op.slot(), is);
                pattern(number, side, op.id, expected);
            }
            _ => return,
        }
        assert!(
            is == expected,
            "link {number} side {side}: {op:?} did something else"
        );
    }

    /// A receive request of a side has completed, with data in `slots` at `at`.
    pub(super) fn received(
        &mut self,
        number: usize,
        side: usize,
        c: &Completion,
        slots: &Slots,
        at: usize,
    ) {
        if c.status == Status::Success {
            // Of a WRITE the data is elsewhere, and may be longer.
            let fits =
                c.byte_len as usize <= SLOT || c.kind == CompletionKind::ReceiveWithImmediate;
            assert!(fits, "{c:?}");
            let announced = c.immediate.is_some() || c.kind == CompletionKind::Receive;
            assert!(announced, "{c:?}");
            let window = &mut self.sides[side].window;
            if c.invalidated == Some(window.key) {
                window.bound = false;
            }
        }
        if !self.strict {
            return;
        }
        assert_eq!(
            c.status,
            Status::Success,
            "link {number} side {side}: a receive"
        );
        let service = self.service;
        let [left, right] = &mut self.sides[..] else {
            return;
        };
        let (own, peer) = if side == 0 {
            (left, right)
        } else {
            (right, left)
        };
        let mut is = [0; SLOT];
        let mut expected = [0; SLOT];
        // What was written before it is there.
        for op in &mut peer.lane.pending {
            let (is, expected) = (&mut is[..op.len], &mut expected[..op.len]);
            pattern(number, 1 - side, op.id, expected);
            if !op.takes_receive() {
                if service == QpType::Uc && !op.arrived && op.kind == Kind::Write {
                    own.open.read(op.slot(), is);
                    assert!(is == expected, "link {number}: {op:?} is not there");
                    op.arrived = true;
                }
                continue;
            }
            if op.arrived {
                continue;
            }
            op.arrived = true;
            let header = if service == QpType::Ud { 40 } else { 0 };
            let kind = match op.target() {
                Some(_) => CompletionKind::ReceiveWithImmediate,
                None => CompletionKind::Receive,
            };
            assert_eq!(c.kind, kind, "link {number}: {op:?}");
            assert_eq!(
                c.byte_len as usize,
                op.len + header,
                "link {number}: {op:?}"
            );
            assert_eq!(c.immediate, op.immediate(), "link {number}: {op:?}");
            if let Kind::SendInvalidate(key) = op.kind {
                assert_eq!(c.invalidated, Some(key));
            }
            match op.target() {
                Some(slot) => own.open.read(slot, is),
                None => slots.buffer.read_at(Slots::offset(at) + header, is),
            }
            assert!(is == expected, "link {number}: {op:?} has other bytes");
            self.tidy(1 - side);
            return;
        }
        panic!("link {number} side {side}: {c:?} of nothing that was sent");
    }

    /// True for a request of which nothing more can be known: an unreliable WRITE that has left, and whose
    /// bytes are there; or anything that has been judged.
    pub(super) fn is_judged(&self, number: usize, side: usize, op: &Op) -> bool {
        if op.sent && self.strict && self.service == QpType::Uc && op.kind == Kind::Write {
            let mut is = [0; SLOT];
            let mut expected = [0; SLOT];
            let (is, expected) = (&mut is[..op.len], &mut expected[..op.len]);
            self.sides[1 - side].open.read(op.slot(), is);
            pattern(number, side, op.id, expected);
            return is == expected;
        }
        false
    }

    /// Forgets what has been judged.
    fn tidy(&mut self, side: usize) {
        let (strict, service) = (self.strict, self.service);
        let pending = &mut self.sides[side].lane.pending;
        while let Some(op) = pending.front() {
            let unreliable = service == QpType::Uc && op.kind == Kind::Write;
            let waits = strict && (op.takes_receive() || unreliable) && !op.arrived;
            if !op.sent || waits {
                break;
            }
            pending.pop_front();
        }
    }
}
