//! The requests of one direction: PSN order, rounds, gaps, retransmissions and their causes.
//!
//! A round begins at each packet whose PSN is not after that of the request before it, as the fault
//! filters of a scenario count it.

use super::finding::{Found, Rule, psns, put, put_at, span};
use super::messages::{Messages, Piece, responses};
use super::msn::Count;
use softroce_sim::wire::capture::Stamp;
use softroce_sim::wire::{Icrc, Operation, Psn};
use std::collections::VecDeque;

/// Packets whose number, time and identity are remembered.
const REMEMBERED: usize = 256;
/// Gaps, and READ and atomic requests, that are remembered.
const OPEN: usize = 128;
/// Holes in the order of arrival that are remembered.
const HOLES: usize = 16;
/// A PSN this far from the others belongs to another connection.
const FAR: i32 = 1 << 16;
/// How far back PSNs count as sent.
const WINDOW: i32 = 1 << 22;
/// Identical packets within this time, without a cause for a retransmission, are one that the network
/// has duplicated; and a packet that fills a gap within it was overtaken. Only where the IPv4
/// identification does not tell.
const AT_ONCE_PS: i128 = 1_000_000_000;

/// What tells one captured packet from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) psn: Psn,
    pub(super) number: u64,
    pub(super) time: Option<Stamp>,
    pub(super) icrc: Icrc,
    /// IPv4 identification; 0 tells nothing.
    pub(super) id: u16,
    pub(super) hop_limit: u8,
}

/// What a second sighting of a PSN is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Likeness {
    /// The same packet, captured at another place.
    AnotherHop,
    /// The same packet, duplicated by the network.
    Duplicate,
    /// The same bytes; whether the network or the card made them again is not known.
    Alike,
    /// Sent again.
    Resent,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) piece: Piece,
    pub(super) copy: Copy,
    pub(super) ack_req: bool,
    /// Of a reliable connection.
    pub(super) reliable: bool,
}

/// PSNs that were not seen here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) first: Psn,
    pub(super) last: Psn,
    /// The packet that showed the gap.
    pub(super) by: Copy,
}

/// A READ or atomic request and its responses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) operation: Operation,
    pub(super) first: Psn,
    pub(super) last: Psn,
    pub(super) len: u32,
    pub(super) number: u64,
    /// The response that comes next.
    pub(super) expect: Psn,
    /// Where the request was repeated from, last.
    pub(super) restart: Option<Psn>,
    /// All responses were seen.
    pub(super) done: bool,
    /// A later response was seen before these were complete, and that was reported.
    pub(super) passed: bool,
}

/// A NAK that asks for a retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nak {
    pub(super) psn: Psn,
    pub(super) number: u64,
    pub(super) time: Option<Stamp>,
    /// The waiting time of an RNR NAK in picoseconds; `None` for a sequence NAK.
    pub(super) wait: Option<i128>,
    /// Its PSN was sent again.
    pub(super) resent: bool,
}

/// A response to something that was not sent yet.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) psn: Psn,
    pub(super) number: u64,
    pub(super) text: String,
}

/// The requests of one flow, and how they were answered.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) started: bool,
    /// PSNs from `first` up to `next`, that one excluded, count as sent.
    pub(super) first: Psn,
    pub(super) next: Psn,
    /// Highest PSN of a request packet; `next` is beyond the responses of a READ.
    pub(super) newest: Psn,
    /// The PSN behind the last packet, and the PSN of that packet.
    cursor: Psn,
    last: Psn,
    pub(super) round: u32,
    sent: VecDeque<Copy>,
    /// The PSN a receiver at this point expects, and PSNs it missed with the packet that showed
    /// it: those it sends a sequence NAK for.
    expect: Psn,
    pub(super) holes: VecDeque<(Psn, Copy)>,
    pub(super) gaps: VecDeque<Gap>,
    pub(super) asks: VecDeque<Ask>,
    pub(super) asks_forgotten: bool,
    /// A READ request whose responses cannot be counted, for want of the path MTU.
    open_read: Option<(Psn, u32)>,
    pub(super) messages: Messages,
    pub(super) count: Count,
    /// Everything up to this PSN is acknowledged, and by which packet.
    pub(super) acked: Option<(Psn, u64)>,
    /// AckReq without an answer so far.
    pub(super) wanted: VecDeque<(Psn, u64)>,
    pub(super) nak: Option<Nak>,
    /// The NAK that ended the connection.
    pub(super) ended_by: Option<u64>,
    pub(super) early: Option<Early>,
    pub(super) answers: VecDeque<Copy>,
    /// A READ or atomic request, or an AckReq, was seen.
    pub(super) expects_answers: bool,
}

impl Copy {
    /// How a later sighting of the same PSN compares with this one.
    pub(super) fn likeness(&self, later: &Copy) -> Likeness {
        if self.icrc != later.icrc {
            Likeness::Resent
        } else if self.hop_limit != later.hop_limit {
            Likeness::AnotherHop
        } else if self.id != later.id {
            Likeness::Resent
        } else if self.id != 0 {
            Likeness::Duplicate
        } else {
            Likeness::Alike
        }
    }
}

/// Picoseconds between two stamps, if both are known.
pub(super) fn since(later: Option<Stamp>, earlier: Option<Stamp>) -> Option<i128> {
    Some(later?.since(earlier?))
}

/// `6.6 ms after`, or `after` where times are not known.
pub(super) fn after(later: Option<Stamp>, earlier: Option<Stamp>) -> String {
    since(later, earlier).map_or("after".into(), |ps| format!("{} after", span(ps)))
}

impl Requests {
    pub(super) fn new() -> Requests {
        Requests {
            started: false,
            first: Psn::default(),
            next: Psn::default(),
            newest: Psn::default(),
            cursor: Psn::default(),
            last: Psn::default(),
            round: 1,
            sent: VecDeque::new(),
            expect: Psn::default(),
            holes: VecDeque::new(),
            gaps: VecDeque::new(),
            asks: VecDeque::new(),
            asks_forgotten: false,
            open_read: None,
            messages: Messages::new(),
            count: Count::default(),
            acked: None,
            wanted: VecDeque::new(),
            nak: None,
            ended_by: None,
            early: None,
            answers: VecDeque::new(),
            expects_answers: false,
        }
    }

    /// Takes a request, and returns its round.
    pub(super) fn see(&mut self, r: &Request, found: &mut Found) -> u32 {
        let psn = r.piece.psn;
        if self.started && self.is_far(psn) {
            let text = format!(
                "PSN {psn} after {}: taken as another connection on this queue pair number",
                self.last
            );
            put(found, Rule::NewConnection, text);
            self.end(found);
            *self = Requests::new();
        }
        if !self.started {
            self.started = true;
            (self.first, self.next, self.newest, self.cursor) = (psn, psn, psn, psn);
            self.last = psn.minus(1);
            self.expect = psn;
        }
        self.settle_early(psn, found);
        self.settle_read(psn);

        let known = self.find(psn);
        if let Some(old) = known
            && self.is_copy(&old, r, found)
        {
            return self.round;
        }
        if psn.after(self.last) <= 0 {
            self.round += 1;
        }
        let ahead = psn.after(self.next);
        if ahead > 0 {
            self.open_gap(r, found);
        } else if ahead < 0 {
            self.behind(r, known, found);
        }
        self.take(r, found);
        self.round
    }

    fn is_far(&self, psn: Psn) -> bool {
        let ahead = psn.after(self.next);
        if ahead > 0 {
            return ahead > FAR && self.open_read.is_none();
        }
        self.first.after(psn) > FAR
    }

    pub(super) fn find(&self, psn: Psn) -> Option<Copy> {
        self.sent.iter().rev().find(|c| c.psn == psn).copied()
    }

    /// Reports a packet that no card has sent again; true if it is one.
    fn is_copy(&mut self, old: &Copy, r: &Request, found: &mut Found) -> bool {
        let mut likeness = old.likeness(&r.copy);
        if likeness == Likeness::Alike {
            let asked_for = self
                .nak
                .is_some_and(|n| !n.resent && r.piece.psn.after(n.psn) <= 0);
            let at_once = since(r.copy.time, old.time).is_some_and(|ps| ps < AT_ONCE_PS);
            if self.last == r.piece.psn && at_once && !asked_for {
                likeness = Likeness::Duplicate;
            }
        }
        match likeness {
            Likeness::AnotherHop => {
                let text = format!(
                    "packet {} again with hop limit {} instead of {}",
                    old.number, r.copy.hop_limit, old.hop_limit
                );
                put(found, Rule::AnotherHop, text);
                true
            }
            Likeness::Duplicate => {
                if r.piece.psn.after(self.last) <= 0 {
                    self.round += 1;
                }
                self.last = r.piece.psn;
                let text = format!(
                    "duplicate {} packet {}, round {}",
                    after(r.copy.time, old.time),
                    old.number,
                    self.round
                );
                put(found, Rule::Duplicate, text);
                true
            }
            Likeness::Alike | Likeness::Resent => false,
        }
    }

    fn open_gap(&mut self, r: &Request, found: &mut Found) {
        let gap = Gap {
            first: self.next,
            last: r.piece.psn.minus(1),
            by: r.copy,
        };
        let missing = r.piece.psn.after(self.next);
        let text = format!(
            "gap: {} ({missing}) not seen, lost before this point or not captured",
            psns(gap.first, gap.last)
        );
        put(found, Rule::PsnGap, text);
        if self.gaps.len() == OPEN {
            self.gaps.pop_front();
            self.count.lose_track();
        }
        self.gaps.push_back(gap);
    }

    /// A PSN below those sent: a retransmission, or a packet that was overtaken.
    fn behind(&mut self, r: &Request, known: Option<Copy>, found: &mut Found) {
        let psn = r.piece.psn;
        let gap = self.gaps.iter().position(|g| g.holds(psn));
        if let Some(at) = gap {
            let gap = self.gaps[at];
            let upto = self.messages.last_psn(&r.piece).unwrap_or(psn);
            self.close(at, psn, upto);
            if self.was_overtaken(&gap, r) {
                let text = format!("late: overtaken by packet {}", gap.by.number);
                put(found, Rule::Reordered, text);
                return;
            }
        }
        let jump = psn != self.cursor;
        let read = self.read_again(r);
        let nak = self.nak.filter(|n| !n.resent && psn.after(n.psn) <= 0);
        let mut text = format!("retransmission, round {}", self.round);
        if let Some(nak) = nak.filter(|n| jump || n.psn == psn) {
            let kind = if nak.wait.is_some() {
                "RNR"
            } else {
                "sequence"
            };
            let when = after(r.copy.time, nak.time);
            text += &format!(", {when} the {kind} NAK of packet {}", nak.number);
            self.check_rnr(&nak, r, found);
        } else if jump && let Some(old) = known {
            text += &format!(", {} packet {}", after(r.copy.time, old.time), old.number);
        }
        if let Some(read) = read {
            text += &read;
        }
        if gap.is_some() {
            text += "; an earlier copy was lost before this point or not captured";
        }
        put(found, Rule::Retransmission, text);
        if jump && nak.is_none() && gap.is_none() && r.reliable {
            self.blame(r, known, found);
        }
        if let Some(nak) = &mut self.nak
            && nak.psn == psn
        {
            nak.resent = true;
        }
    }

    /// What a repeated READ request asks for, if it is not the first one's PSN.
    fn read_again(&self, r: &Request) -> Option<String> {
        let psn = r.piece.psn;
        let ask = self.asks.iter().rev().find(|a| a.holds(psn))?;
        if r.piece.opcode.operation() != Operation::ReadRequest || ask.first == psn {
            return None;
        }
        let mut text = format!(", the READ of packet {} from PSN {psn} on", ask.number);
        if let Some(old) = self.find(ask.first) {
            text += &format!(", {} it", after(r.copy.time, old.time));
        }
        if !ask.done && psn.after(ask.expect) >= 0 {
            text += "; these responses have not come past here";
        }
        Some(text)
    }

    fn was_overtaken(&self, gap: &Gap, r: &Request) -> bool {
        if r.copy.id != 0 && gap.by.id != 0 {
            return (r.copy.id.wrapping_sub(gap.by.id) as i16) < 0;
        }
        let at_once = since(r.copy.time, gap.by.time).is_some_and(|ps| ps < AT_ONCE_PS);
        at_once
            && self
                .nak
                .is_none_or(|n| n.resent || r.piece.psn.after(n.psn) > 0)
    }

    fn check_rnr(&self, nak: &Nak, r: &Request, found: &mut Found) {
        let Some((wait, waited)) = nak.wait.zip(since(r.copy.time, nak.time)) else {
            return;
        };
        // Stamps of some captures are in microseconds, and clocks differ a little.
        if nak.psn == r.piece.psn && waited + 2_000_000 + wait / 100 < wait {
            let text = format!(
                "sent again {} after the RNR NAK of packet {}, which asks for {}",
                span(waited),
                nak.number,
                span(wait)
            );
            put(found, Rule::RnrTimer, text);
        }
    }

    /// A retransmission that no NAK asked for: the timer of the requester ran out.
    fn blame(&self, r: &Request, known: Option<Copy>, found: &mut Found) {
        let psn = r.piece.psn;
        let ask = self.asks.iter().rev().find(|a| a.holds(psn));
        let text = if let Some(ask) = ask.filter(|a| a.operation == Operation::ReadRequest)
            && ask.expect != ask.first
        {
            if ask.done || psn.is_before(ask.expect) {
                format!("the response with PSN {psn} passed here and was lost beyond this point")
            } else {
                // The other side of this point.
                return;
            }
        } else if let Some((upto, by)) = self.acked
            && psn.after(upto) <= 0
        {
            format!("PSN {psn} was acknowledged by packet {by}, which was lost beyond this point")
        } else if let Some(old) = known {
            format!(
                "PSN {psn} of packet {}, or the answer to it, was lost beyond this point",
                old.number
            )
        } else {
            return;
        };
        put(found, Rule::LossBeyond, text);
    }

    /// The PSNs from `from` to `upto` of a gap were seen.
    fn close(&mut self, at: usize, from: Psn, upto: Psn) {
        let Some(gap) = self.gaps.remove(at) else {
            return;
        };
        let mut at = at;
        if gap.first.is_before(from) {
            let last = from.minus(1);
            self.gaps.insert(at, Gap { last, ..gap });
            at += 1;
        }
        if upto.is_before(gap.last) {
            let first = upto.plus(1);
            self.gaps.insert(at, Gap { first, ..gap });
        }
    }

    fn take(&mut self, r: &Request, found: &mut Found) {
        let psn = r.piece.psn;
        let last = self.messages.last_psn(&r.piece);
        self.messages.take(&r.piece, found);
        if r.piece.opcode.ends_message() {
            match last {
                Some(last) => self.count.end(last),
                None => self.count.lose_track(),
            }
        }
        self.last = psn;
        self.cursor = last.unwrap_or(psn).plus(1);
        if psn.after(self.newest) > 0 {
            self.newest = psn;
        }
        if psn == self.expect {
            self.expect = self.cursor;
        } else if psn.after(self.expect) > 0 && self.holes.back().is_none_or(|h| h.0 != self.expect)
        {
            if self.holes.len() == HOLES {
                self.holes.pop_front();
            }
            self.holes.push_back((self.expect, r.copy));
        }
        if psn.is_before(self.first) {
            self.first = psn;
        }
        if self.cursor.after(self.next) > 0 {
            self.next = self.cursor;
        }
        if self.next.after(self.first) > WINDOW {
            self.first = self.next.minus(WINDOW as u32);
        }
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back(r.copy);
        if r.ack_req && r.reliable {
            self.expects_answers = true;
            if self.wanted.len() == OPEN {
                self.wanted.pop_front();
            }
            self.wanted.retain(|w| w.0 != psn);
            self.wanted.push_back((psn, r.copy.number));
        }
        if r.reliable {
            self.ask(r, last);
        }
    }

    fn ask(&mut self, r: &Request, last: Option<Psn>) {
        let operation = r.piece.opcode.operation();
        if !matches!(
            operation,
            Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::Flush
                | Operation::AtomicWrite
        ) {
            return;
        }
        let psn = r.piece.psn;
        self.expects_answers = true;
        if let Some(ask) = self.asks.iter_mut().rev().find(|a| a.holds(psn)) {
            ask.restart = Some(psn);
            ask.expect = psn;
            return;
        }
        let len = match operation {
            Operation::ReadRequest => r.piece.reth.map_or(0, |r| r.dma_len),
            _ => 0,
        };
        if last.is_none() {
            self.open_read = Some((psn, len));
        }
        if self.asks.len() == OPEN {
            self.asks.pop_front();
            self.asks_forgotten = true;
        }
        self.asks.push_back(Ask {
            operation,
            first: psn,
            last: last.unwrap_or(psn),
            len,
            number: r.copy.number,
            expect: psn,
            restart: None,
            done: false,
            passed: false,
        });
    }

    /// The next request tells how many responses the READ before it has, and so the path MTU.
    fn settle_read(&mut self, psn: Psn) {
        let Some((read, len)) = self.open_read else {
            return;
        };
        let steps = psn.after(read);
        if steps <= 0 {
            return;
        }
        let mut fitting = [256, 512, 1024, 2048, 4096]
            .into_iter()
            .filter(|&mtu| responses(len, mtu) == steps.unsigned_abs());
        match (fitting.next(), fitting.next()) {
            (Some(mtu), None) => self.learn_mtu(mtu),
            (some, _) => {
                // The PSN is taken as it comes; where no path MTU explains it, there is a gap of
                // unknown extent.
                self.open_read = None;
                self.count.end(psn.minus(1));
                if some.is_none() {
                    self.count.lose_track();
                }
                self.extend_read(psn.minus(1));
            }
        }
    }

    /// The path MTU became known.
    pub(super) fn learn_mtu(&mut self, mtu: u32) {
        if self.messages.mtu.is_some() {
            return;
        }
        self.messages.mtu = Some(mtu);
        if let Some((read, len)) = self.open_read.take() {
            let last = read.plus(responses(len, mtu) - 1);
            self.count.end(last);
            self.extend_read(last);
        }
    }

    fn extend_read(&mut self, last: Psn) {
        if let Some(ask) = self.asks.back_mut() {
            ask.last = last;
        }
        self.messages.settle_read(last);
        self.cursor = last.plus(1);
        if self.cursor.after(self.next) > 0 {
            self.next = self.cursor;
        }
    }

    /// Everything up to `upto` has arrived.
    pub(super) fn arrived(&mut self, upto: Psn) {
        if upto.after(self.expect) >= 0 {
            self.expect = upto.plus(1);
        }
    }

    /// True while it is not known how many PSNs the newest READ takes.
    pub(super) fn is_open(&self) -> bool {
        self.open_read.is_some()
    }

    /// The first PSN that nothing sent can have been answered with.
    pub(super) fn limit(&self) -> Psn {
        match self.open_read {
            Some((read, len)) => read.plus(responses(len, 256)),
            None => self.next,
        }
    }

    /// What a response to something unsent was, once the next request is seen: the card's mistake, or
    /// the capture's.
    fn settle_early(&mut self, psn: Psn, found: &mut Found) {
        let Some(early) = &self.early else {
            return;
        };
        if psn.after(early.psn) > 0 {
            let text = format!("{}, and its request is not in the capture", early.text);
            put_at(found, early.number, Rule::NotCaptured, text);
            self.count.lose_track();
        } else if psn == self.next {
            put_at(found, early.number, Rule::NeverSent, early.text.clone());
        } else {
            return;
        }
        self.early = None;
    }

    /// What is left over when the capture, or the connection, ends.
    pub(super) fn end(&mut self, found: &mut Found) {
        if let Some(early) = self.early.take() {
            put_at(found, early.number, Rule::NeverSent, early.text);
        }
    }
}

impl Gap {
    pub(super) fn holds(&self, psn: Psn) -> bool {
        psn.after(self.first) >= 0 && psn.after(self.last) <= 0
    }
}

impl Ask {
    pub(super) fn holds(&self, psn: Psn) -> bool {
        psn.after(self.first) >= 0 && psn.after(self.last) <= 0
    }
}
