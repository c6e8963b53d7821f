//! The responses to the requests of one direction: ACKs, NAKs, READ responses and atomic answers.

use super::copy::{Copy, Likeness, after, since};
use super::finding::{Found, Rule, psns, put, span};
use super::messages::is_mtu;
use super::reads::Ask;
use super::requests::{Early, Nak, Requests};
use softroce_sim::card::codes::rnr_timer;
use softroce_sim::wire::aeth::SyndromeKind;
use softroce_sim::wire::{Aeth, NakCode, Opcode, Operation, Position, Psn};

/// Responses that are remembered to know duplicates.
const REMEMBERED: usize = 16;

/// A response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    pub(super) opcode: Opcode,
    pub(super) psn: Psn,
    pub(super) aeth: Option<Aeth>,
    pub(super) payload: usize,
    pub(super) copy: Copy,
}

impl Requests {
    /// Takes a response to these requests.
    pub(super) fn answer(&mut self, r: &Response, found: &mut Found) {
        if !self.started {
            report_nak(r, found);
            return;
        }
        if self.is_copied_answer(r, found) {
            return;
        }
        self.read_mtu(r);
        if r.psn.after(self.limit()) >= 0 {
            if self.early.is_none() {
                self.early = Some(Early {
                    psn: r.psn,
                    number: r.copy.number,
                    text: format!(
                        "{} with PSN {}, the last one sent is {}",
                        r.opcode,
                        r.psn,
                        self.next.minus(1)
                    ),
                });
            }
            return;
        }
        if r.psn.is_before(self.first) {
            // It answers what was sent before the capture began, or lost before this point.
            report_nak(r, found);
            if let Some(SyndromeKind::Nak(NakCode::PsnSequenceError)) = kind(r) {
                self.note_nak(r, None);
            }
            return;
        }
        self.answered_after(&r.copy);
        match r.opcode.operation() {
            Operation::ReadResponse => self.read_response(r, found),
            Operation::AtomicAcknowledge => self.atomic_answer(r, found),
            _ => self.acknowledge(r, found),
        }
    }

    fn is_copied_answer(&mut self, r: &Response, found: &mut Found) -> bool {
        let old = self.answers.iter().rev().find(|c| c.psn == r.psn).copied();
        if self.answers.len() == REMEMBERED {
            self.answers.pop_front();
        }
        self.answers.push_back(r.copy);
        let Some(old) = old else {
            return false;
        };
        match old.likeness(&r.copy) {
            Likeness::AnotherHop => {
                let text = format!("packet {} again, with another hop limit", old.number);
                put(found, Rule::AnotherHop, text);
                true
            }
            Likeness::Duplicate => {
                let when = after(r.copy.time, old.time);
                let text = format!("duplicate {when} packet {}", old.number);
                put(found, Rule::Duplicate, text);
                true
            }
            Likeness::Alike | Likeness::Resent => false,
        }
    }

    fn read_mtu(&mut self, r: &Response) {
        let full = matches!(r.opcode.position(), Position::First | Position::Middle);
        if r.opcode.operation() == Operation::ReadResponse && full && is_mtu(r.payload) {
            self.learn_mtu(r.payload as u32);
        }
    }

    fn acknowledge(&mut self, r: &Response, found: &mut Found) {
        let Some(aeth) = r.aeth else {
            return;
        };
        match aeth.syndrome.kind() {
            SyndromeKind::Ack { .. } => self.ack(r, found),
            SyndromeKind::RnrNak { timer } => {
                report_nak(r, found);
                self.cover(r.psn.minus(1), r, found);
                self.note_nak(r, Some(i128::from(rnr_timer(timer).as_ps())));
            }
            SyndromeKind::Nak(NakCode::PsnSequenceError) => self.sequence_nak(r, found),
            SyndromeKind::Nak(code) => {
                report_nak(r, found);
                self.cover(r.psn.minus(1), r, found);
                if self.ended_by.is_none() {
                    self.ended_by = Some(r.copy.number);
                    self.refused(r, code, found);
                }
            }
            SyndromeKind::Reserved => {
                report_nak(r, found);
                return;
            }
        }
        // A NAK answers an AckReq too.
        self.wanted.retain(|&(psn, _)| psn.after(r.psn) > 0);
        let upto = match aeth.syndrome.kind() {
            SyndromeKind::Ack { .. } => r.psn,
            _ => r.psn.minus(1),
        };
        self.check_msn(upto, aeth, found);
    }

    fn note_nak(&mut self, r: &Response, wait: Option<i128>) {
        let nak = Nak {
            psn: r.psn,
            number: r.copy.number,
            time: r.copy.time,
            wait,
            resent: false,
        };
        self.asked_again(&nak);
        self.take_nak(nak);
    }

    fn ack(&mut self, r: &Response, found: &mut Found) {
        self.answered(r.psn, r.copy.number);
        match self.acked {
            Some((upto, by)) if r.psn == upto => {
                let text = format!("duplicate ACK, packet {by} acknowledges the same");
                put(found, Rule::DuplicateAck, text);
            }
            Some((upto, by)) if r.psn.is_before(upto) => {
                let text =
                    format!("ACK going backwards, packet {by} acknowledges up to PSN {upto}");
                put(found, Rule::AckBackwards, text);
            }
            _ => {
                self.pass_reads(r.psn, found);
                self.cover(r.psn, r, found);
            }
        }
    }

    fn sequence_nak(&mut self, r: &Response, found: &mut Found) {
        let psn = r.psn;
        if psn.after(self.newest) >= 0 {
            let text = format!("sequence NAK for PSN {psn}, but no later one was sent");
            put(found, Rule::SequenceNakWithoutGap, text);
            return;
        }
        let earlier = self.nak.filter(|n| n.psn == psn && n.wait.is_none());
        let copied = earlier.is_some_and(|earlier| {
            let same =
                |c: &Copy| c.number == earlier.number && c.likeness(&r.copy) == Likeness::Alike;
            self.answers.iter().any(same)
        });
        let partly = self.partly_acked(psn);
        // There may have been a gap when it was sent.
        if let Some((_, by)) = self.acked.filter(|a| psn.after(a.0) <= 0)
            && (partly.is_none() || (copied && !self.restarts))
        {
            let text = format!(
                "late or repeated NAK: sequence NAK for PSN {psn}, which packet {by} acknowledges"
            );
            put(found, Rule::LateNak, text);
            return;
        }
        if let Some(earlier) = earlier.filter(|n| !n.resent) {
            if copied {
                let text = format!(
                    "late or repeated NAK: sequence NAK for PSN {psn}, the same as packet {}",
                    earlier.number
                );
                put(found, Rule::LateNak, text);
                return;
            }
            let text = format!(
                "sequence NAK for PSN {psn} again, packet {} asked for it and nothing was sent since",
                earlier.number
            );
            put(found, Rule::SequenceNakAgain, text);
            return;
        }
        let hole = self.holes.iter().rev().find(|h| h.0 == psn);
        let mut text = format!("sequence NAK for PSN {psn}");
        if let Some((_, by)) = hole {
            let when = after(r.copy.time, by.time);
            text += &format!(", {when} packet {} showed the gap", by.number);
        }
        let within = hole.map_or_else(|| self.hole_within(psn), |_| None);
        if let Some((missing, by)) = within {
            let when = after(r.copy.time, by.time);
            text += &format!(
                ", with which the message begins that lacks PSN {missing} (go-back-0), {when} packet {} showed the gap",
                by.number
            );
        } else if let Some((upto, by)) = partly {
            text += &format!(
                ", with which a message begins that packet {by} acknowledges up to PSN {upto} (go-back-0)"
            );
        }
        put(found, Rule::SequenceNak, text);
        if within.is_some() || partly.is_some() {
            // It forgets what it had of the message.
            self.restarts = true;
            self.expect = psn;
        } else if hole.is_none() {
            let which = self.find(psn).map_or(String::new(), |old| {
                let when = since(r.copy.time, old.time)
                    .map_or(String::new(), |ps| format!(", {} ago", span(ps)));
                format!(" (packet {}{when})", old.number)
            });
            let or = match self.messages.begun_with(psn) {
                Some(_) => {
                    ", or a later packet of its message if the responder is one of go-back-0,"
                }
                None => "",
            };
            let text = format!(
                "PSN {psn}{which}{or} passed here and was lost or overtaken beyond this point"
            );
            put(found, Rule::LossBeyond, text);
        }
        self.cover(psn.minus(1), r, found);
        self.note_nak(r, None);
    }

    /// If a message begins with `psn` and a part of it, not all, is acknowledged: up to where, and by which
    /// packet. Whoever begins it anew goes back to the beginning of messages (go-back-0).
    pub(super) fn partly_acked(&self, psn: Psn) -> Option<(Psn, u64)> {
        let (upto, complete) = self.messages.begun_with(psn)?;
        let acked = self.acked.filter(|a| psn.after(a.0) <= 0)?;
        let part = acked.0.is_before(upto) || (!complete && acked.0 == upto);
        part.then_some(acked)
    }

    /// The first PSN that is missing behind the beginning `psn` of a message, and what showed it.
    fn hole_within(&self, psn: Psn) -> Option<(Psn, Copy)> {
        let (upto, complete) = self.messages.begun_with(psn)?;
        let end = if complete { upto } else { upto.plus(1) };
        let mut newest = self.holes.iter().rev();
        let hole = newest.find(|h| h.0.after(psn) > 0 && h.0.after(end) <= 0);
        hole.copied()
    }

    /// Everything up to `upto` is acknowledged.
    fn cover(&mut self, upto: Psn, r: &Response, found: &mut Found) {
        if self.acked.is_some_and(|(a, _)| upto.after(a) <= 0) || upto.is_before(self.first) {
            return;
        }
        self.acked = Some((upto, r.copy.number));
        self.arrived(upto);
        let mut missed = Vec::new();
        for gap in &mut self.gaps {
            if gap.first.after(upto) <= 0 {
                let last = if gap.last.after(upto) <= 0 {
                    gap.last
                } else {
                    upto
                };
                missed.push(psns(gap.first, last));
                gap.first = last.plus(1);
            }
        }
        if !missed.is_empty() {
            self.gaps.retain(|g| g.first.after(g.last) <= 0);
            self.count.lose_track();
            let text = format!(
                "acknowledges {}, which only the capture missed",
                missed.join(", ")
            );
            put(found, Rule::NotCaptured, text);
        }
    }

    fn check_msn(&mut self, upto: Psn, aeth: Aeth, found: &mut Found) {
        // What is not in the capture may have held messages.
        if !self.gaps.is_empty() || self.is_open() {
            return;
        }
        if let Err((least, most)) = self.count.check(upto, aeth.msn) {
            let range = if least == most {
                format!("{least}")
            } else {
                format!("{least} to {most}")
            };
            let text = format!(
                "MSN {}, but the messages up to PSN {upto} and those sent make it {range}",
                aeth.msn
            );
            put(found, Rule::Msn, text);
        }
    }

    /// A response behind READs or atomics that are not answered in full.
    fn pass_reads(&mut self, psn: Psn, found: &mut Found) {
        for ask in &mut self.asks {
            if ask.last.is_before(psn) && !ask.done && !ask.passed {
                ask.passed = true;
                let text = format!(
                    "passes over the answers to packet {}, {} not seen",
                    ask.number,
                    psns(ask.expect, ask.last)
                );
                put(found, Rule::ReadGap, text);
            }
        }
    }

    /// The request that a READ or atomic response answers; reports one that none does.
    fn asked(&self, r: &Response, fits: fn(Operation) -> bool, found: &mut Found) -> Option<usize> {
        let at = self
            .asks
            .iter()
            .rposition(|a| a.holds(r.psn) && fits(a.operation));
        // Requests that are not in the capture, or were forgotten, may have asked for it.
        if at.is_none() && self.gaps.is_empty() && !self.is_open() && !self.asks_forgotten {
            let text = format!("{} with PSN {} answers no such request", r.opcode, r.psn);
            put(found, Rule::UnaskedResponse, text);
        }
        at
    }

    fn atomic_answer(&mut self, r: &Response, found: &mut Found) {
        let atomic = |o| matches!(o, Operation::CompareSwap | Operation::FetchAdd);
        let Some(at) = self.asked(r, atomic, found) else {
            return;
        };
        self.pass_reads(r.psn, found);
        let ask = &mut self.asks[at];
        if std::mem::replace(&mut ask.done, true) {
            let text = format!("the answer to packet {} again", ask.number);
            put(found, Rule::ReadAgain, text);
        }
        self.finish_response(r, found);
    }

    fn finish_response(&mut self, r: &Response, found: &mut Found) {
        self.answered(r.psn, r.copy.number);
        self.cover(r.psn, r, found);
        self.wanted.retain(|&(psn, _)| psn.after(r.psn) > 0);
        let Some(aeth) = r.aeth else {
            return;
        };
        if !matches!(aeth.syndrome.kind(), SyndromeKind::Ack { .. }) {
            let text = format!(
                "{} with syndrome {:#04x}, an ACK is needed",
                r.opcode, aeth.syndrome.0
            );
            put(found, Rule::Syndrome, text);
            return;
        }
        self.check_msn(r.psn, aeth, found);
    }

    fn read_response(&mut self, r: &Response, found: &mut Found) {
        let read = |o| {
            matches!(
                o,
                Operation::ReadRequest | Operation::Flush | Operation::AtomicWrite
            )
        };
        let Some(at) = self.asked(r, read, found) else {
            return;
        };
        self.pass_reads(r.psn, found);
        if self.is_open() && at + 1 == self.asks.len() {
            if !r.opcode.ends_message() {
                let ask = &mut self.asks[at];
                (ask.expect, ask.reached) = (r.psn.plus(1), r.psn.plus(1));
                self.finish_response(r, found);
                return;
            }
            self.close_read(r.psn);
        }
        let mtu = self.messages.mtu;
        let ask = &mut self.asks[at];
        check_position(ask, r, found);
        check_length(ask, mtu, r, found);
        if r.psn.after(ask.reached) > 0 {
            let text = format!(
                "gap in the answer to packet {}: {} not seen, lost or overtaken before this point, or not captured",
                ask.number,
                psns(ask.reached, r.psn.minus(1))
            );
            put(found, Rule::ReadGap, text);
        }
        if r.psn.is_before(ask.expect) {
            let text = format!("response to packet {} again", ask.number);
            put(found, Rule::ReadAgain, text);
        }
        let next = r.psn.plus(1);
        if r.psn == ask.expect {
            ask.expect = next;
        }
        if next.after(ask.reached) > 0 {
            ask.reached = next;
        }
        ask.done = ask.expect.after(ask.last) > 0;
        self.finish_response(r, found);
    }
}

fn kind(r: &Response) -> Option<SyndromeKind> {
    let aeth = r.aeth.filter(|_| r.opcode == Opcode::RC_ACKNOWLEDGE)?;
    Some(aeth.syndrome.kind())
}

/// Reports what an acknowledgement says by itself, if it is no ACK: all that can be said where its
/// request is not in the capture.
pub(super) fn report_nak(r: &Response, found: &mut Found) {
    match kind(r) {
        None | Some(SyndromeKind::Ack { .. }) => {}
        Some(SyndromeKind::RnrNak { timer }) => {
            let wait = span(rnr_timer(timer).as_ps().into());
            let text = format!("RNR NAK for PSN {}, wait {wait}", r.psn);
            put(found, Rule::RnrNak, text);
        }
        Some(SyndromeKind::Nak(NakCode::PsnSequenceError)) => {
            let text = format!("sequence NAK for PSN {}", r.psn);
            put(found, Rule::SequenceNak, text);
        }
        Some(SyndromeKind::Nak(code)) => {
            let text = format!("NAK {code} for PSN {}: the connection ends", r.psn);
            put(found, Rule::FatalNak, text);
        }
        Some(SyndromeKind::Reserved) => {
            let syndrome = r.aeth.map_or(0, |a| a.syndrome.0);
            let text = format!("syndrome {syndrome:#04x} is reserved");
            put(found, Rule::Syndrome, text);
        }
    }
}

/// FIRST, MIDDLE, LAST or ONLY by the place in the answer. Where the request was repeated in the
/// middle, the answer may begin anew (FIRST, ONLY) or go on (MIDDLE, LAST): cards do either.
fn check_position(ask: &Ask, r: &Response, found: &mut Found) {
    let anew = ask.restarts.contains(&r.psn);
    let fits = match r.opcode.position() {
        Position::Only => r.psn == ask.last && (r.psn == ask.first || anew),
        Position::First => r.psn != ask.last && (r.psn == ask.first || anew),
        Position::Middle => r.psn != ask.last && (r.psn != ask.first || anew),
        Position::Last => r.psn == ask.last && (r.psn != ask.first || anew),
    };
    if !fits {
        let text = format!(
            "{} with PSN {}, the answer to packet {} is {}",
            r.opcode,
            r.psn,
            ask.number,
            psns(ask.first, ask.last)
        );
        put(found, Rule::ReadSequence, text);
    }
}

fn check_length(ask: &Ask, mtu: Option<u32>, r: &Response, found: &mut Found) {
    let Some(len) = ask.len else {
        return;
    };
    let place = r.psn.after(ask.first).unsigned_abs();
    let needed = match mtu {
        _ if ask.first == ask.last => u64::from(len),
        None => return,
        Some(mtu) if r.psn == ask.last => {
            u64::from(len).saturating_sub(u64::from(place) * u64::from(mtu))
        }
        Some(mtu) => u64::from(mtu),
    };
    if r.payload as u64 != needed {
        let text = format!(
            "{} of {} bytes, {needed} needed at this place of the answer to packet {}",
            r.opcode, r.payload, ask.number
        );
        put(found, Rule::ReadLength, text);
    }
}
