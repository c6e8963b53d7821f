//! The requests of one direction: PSN order, rounds, gaps, retransmissions and their causes.
//!
//! A round begins at each packet whose PSN is not after that of the request before it, as the fault
//! filters of a scenario count it.

use super::copy::{Copy, Likeness, after, since};
use super::finding::{Found, Rule, psns, put, put_at};
use super::giveup::{GivenUp, Stall};
use super::messages::{Messages, Piece};
use super::msn::Count;
use super::reads::Ask;
use softroce_sim::wire::capture::Stamp;
use softroce_sim::wire::{Operation, Psn};
use std::collections::VecDeque;

/// Packets whose number, time and identity are remembered.
const REMEMBERED: usize = 256;
/// Gaps, and packets with AckReq, that are remembered.
const OPEN: usize = 128;
/// Holes in the order of arrival that are remembered.
const HOLES: usize = 16;
/// A PSN this far from the others belongs to another connection.
const FAR: i32 = 1 << 16;
/// How far back PSNs count as sent.
const WINDOW: i32 = 1 << 22;
/// Where the IPv4 identification does not tell: a packet that fills a gap within this time was overtaken.
const AT_ONCE_PS: i128 = 100_000_000;
/// As well, identical packets within this time, without a cause for a retransmission, are one that the
/// network has duplicated. Timers of requesters are set longer: code 4, a short one, is 65 us.
const DUPLICATE_PS: i128 = 50_000_000;

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
    pub(super) cursor: Psn,
    last: Psn,
    pub(super) round: u32,
    sent: VecDeque<Copy>,
    /// The PSN a receiver at this point expects, and PSNs it missed with the packet that showed
    /// it: those it sends a sequence NAK for.
    pub(super) expect: Psn,
    pub(super) holes: VecDeque<(Psn, Copy)>,
    pub(super) gaps: VecDeque<Gap>,
    pub(super) asks: VecDeque<Ask>,
    pub(super) asks_forgotten: bool,
    /// A READ request whose responses cannot be counted, for want of the path MTU or of its RETH,
    /// and the length it asks for.
    pub(super) open_read: Option<(Psn, Option<u32>)>,
    pub(super) messages: Messages,
    pub(super) count: Count,
    /// Everything up to this PSN is acknowledged, and by which packet.
    pub(super) acked: Option<(Psn, u64)>,
    /// AckReq without an answer so far.
    pub(super) wanted: VecDeque<(Psn, u64)>,
    pub(super) nak: Option<Nak>,
    /// Earlier ones that may be what something is sent again for.
    pub(super) earlier_naks: VecDeque<Nak>,
    /// The longest that a packet was answered after, in picoseconds: what is on its way is not older.
    pub(super) longest_answer: i128,
    /// The NAK that ended the connection.
    pub(super) ended_by: Option<u64>,
    pub(super) early: Option<Early>,
    pub(super) answers: VecDeque<Copy>,
    /// The responder goes back to the beginning of messages.
    pub(super) restarts: bool,
    /// What is being tried again, and what was given up.
    pub(super) stall: Option<Stall>,
    pub(super) given_up: Option<GivenUp>,
    /// A READ or atomic request, or an AckReq, was seen.
    pub(super) expects_answers: bool,
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
            earlier_naks: VecDeque::new(),
            longest_answer: 0,
            ended_by: None,
            early: None,
            answers: VecDeque::new(),
            restarts: false,
            stall: None,
            given_up: None,
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
            self.end(None, found);
            let given_up = self.given_up.take();
            *self = Requests::new();
            self.given_up = given_up;
        }
        if !self.started {
            self.started = true;
            (self.first, self.next, self.newest, self.cursor) = (psn, psn, psn, psn);
            self.last = psn.minus(1);
            self.expect = psn;
            let opcode = r.piece.opcode;
            if !r.reliable && !opcode.begins_message() {
                let text = format!(
                    "{opcode} is the first packet seen: the beginning of its message was lost before this point, \
                     or the capture began later"
                );
                put(found, Rule::BeginsInside, text);
            }
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
            let at_once = since(r.copy.time, old.time).is_some_and(|ps| ps < DUPLICATE_PS);
            // A READ whose answer has a hole is repeated at once.
            let answered = |a: &Ask| a.holds(r.piece.psn) && a.reached != a.first;
            let answered = self.asks.iter().any(answered);
            if self.last == r.piece.psn && at_once && !asked_for && !answered {
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
            "gap: {} ({missing}) not seen, lost or overtaken before this point, or not captured",
            psns(gap.first, gap.last)
        );
        put(found, Rule::PsnGap, text);
        if self.gaps.len() == OPEN {
            self.gaps.pop_front();
            self.count.lose_track();
        }
        // What was acknowledged before it was sent is accounted for.
        let first = match self.acked {
            Some((upto, _)) if gap.first.after(upto) <= 0 => upto.plus(1),
            _ => gap.first,
        };
        if first.after(gap.last) <= 0 {
            self.gaps.push_back(Gap { first, ..gap });
        }
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
        let asked = nak.filter(|n| jump || n.psn == psn);
        if r.reliable && (jump || asked.is_some()) {
            self.try_again(r, asked);
        }
        if let Some(nak) = asked {
            let (when, kind) = (after(r.copy.time, nak.time), nak.kind());
            text += &format!(", {when} the {kind} NAK of packet {}", nak.number);
            self.check_wait(&nak, r, known, jump, found);
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
        self.earlier_naks.retain(|n| n.psn != psn);
        if let Some(nak) = &mut self.nak
            && nak.psn == psn
        {
            nak.resent = true;
        }
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

    /// A retransmission that no NAK asked for: the timer of the requester ran out, for something
    /// that was lost on this or the other side of this point.
    fn blame(&self, r: &Request, known: Option<Copy>, found: &mut Found) {
        let psn = r.piece.psn;
        let ask = self.asks.iter().rev().find(|a| a.holds(psn));
        if let Some(ask) = ask.filter(|a| a.operation == Operation::ReadRequest)
            && (ask.done || ask.expect != ask.first)
        {
            if ask.done || psn.is_before(ask.expect) {
                let text = format!(
                    "the response with PSN {psn} passed here and was lost or overtaken beyond this point"
                );
                put(found, Rule::LossBeyond, text);
            } else {
                let which = psns(ask.expect, ask.last);
                let text =
                    format!("the response with {which} was lost or overtaken before this point");
                put(found, Rule::LossBefore, text);
            }
            return;
        }
        let partly = self.partly_acked(psn);
        let (psn, known) = match partly {
            // Begun anew by a requester of go-back-0: what is behind the acknowledged part had no answer.
            Some((upto, _)) => (upto.plus(1), self.find(upto.plus(1))),
            None => (psn, known),
        };
        if let Some((_, by)) = self.acked.filter(|(upto, _)| psn.after(*upto) <= 0) {
            let text = format!(
                "PSN {psn} was acknowledged by packet {by}, which was lost or late beyond this point"
            );
            put(found, Rule::LossBeyond, text);
            return;
        }
        let Some(old) = known else {
            return;
        };
        if old.dropped {
            let number = old.number;
            let text = format!(
                "packet {number} passed here and was lost beyond this point, as its comment says"
            );
            put(found, Rule::LossBeyond, text);
            return;
        }
        let asking = self.wanted.iter().map(|w| w.0).find(|w| w.after(psn) >= 0);
        if let Some(asking) = asking {
            let text = format!(
                "{} passed here from packet {} on; that, or the answer to it, was lost or late beyond this point",
                psns(psn, asking),
                old.number
            );
            put(found, Rule::LossBeyond, text);
        } else {
            let text = format!(
                "no AckReq from PSN {psn} on came past here; its packet was lost before this point, or not captured"
            );
            put(found, Rule::LossBefore, text);
        }
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

    /// Everything up to `upto` has arrived.
    pub(super) fn arrived(&mut self, upto: Psn) {
        if upto.after(self.expect) >= 0 {
            self.expect = upto.plus(1);
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
            self.acked = Some((early.psn, early.number));
        } else if psn == self.next {
            put_at(found, early.number, Rule::NeverSent, early.text.clone());
        } else {
            return;
        }
        self.early = None;
    }

    /// What is left over when the capture, or the connection, ends.
    pub(super) fn end(&mut self, at: Option<Stamp>, found: &mut Found) {
        self.give_up(at, found);
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
