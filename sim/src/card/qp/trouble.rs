//! What a queue pair knows when a request fails: trouble is looked at only when there is some.

use super::{Desk, Qp, psn_at};
use crate::card::codes;
use crate::card::counters::Counters;
use crate::card::explain::{Arrived, Cause, Ended, Failure, Flushed, Sent, Step, Subject, Try};
use crate::card::recent::Rare;
use crate::card::work::{SendEntry, Sge};
use crate::memory::{AccessError, LocalKey};
use crate::time::Time;
use crate::wire::aeth::SyndromeKind;
use crate::wire::{Bth, Gid, NakCode, QpNumber};

/// What has gone wrong since an answer last got through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    /// The oldest position without answer then; if it is another by now, the trouble is over.
    una: u64,
    /// Rare events, and counters, before it.
    before: (u64, Counters),
    /// The same before what happened last.
    mark: (u64, Counters),
    /// What retries were spent on.
    timeouts: u32,
    sequence_naks: u32,
    implied_naks: u32,
}

/// What a retry is spent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spent {
    Timeout,
    SequenceNak,
    ImpliedNak,
}

impl Trouble {
    pub(super) fn new() -> Trouble {
        Trouble {
            una: u64::MAX,
            before: (0, Counters::default()),
            mark: (0, Counters::default()),
            timeouts: 0,
            sequence_naks: 0,
            implied_naks: 0,
        }
    }
}

impl Qp {
    /// A timer has run out: before anything is counted.
    #[cold]
    pub(super) fn mark_trouble(&mut self) {
        self.trouble.mark = (self.recent.count(), self.counters);
    }

    /// A packet arrived that is not as it should be: as [`Qp::mark_trouble`], but the packet is counted.
    #[cold]
    pub(super) fn mark_trouble_of_packet(&mut self) {
        self.mark_trouble();
        let (_, counters) = &mut self.trouble.mark;
        counters.received_packets = counters.received_packets.saturating_sub(1);
    }

    /// After what it acknowledges has been taken: is it the old trouble, or new?
    #[cold]
    pub(super) fn know_trouble(&mut self) {
        if self.trouble.una != self.requester.una {
            // What has no answer was sent before the first sign of trouble, and is a part of it.
            let (events, mut counters) = self.trouble.mark;
            let open = self.requester.unanswered_packets();
            counters.sent_packets = counters.sent_packets.saturating_sub(open);
            counters.request_packets = counters.request_packets.saturating_sub(open);
            self.trouble = Trouble {
                una: self.requester.una,
                before: (events, counters),
                ..Trouble {
                    mark: self.trouble.mark,
                    ..Trouble::new()
                }
            };
        }
    }

    /// A retry is asked for.
    #[cold]
    pub(super) fn count_trouble(&mut self, spent: Spent) {
        self.know_trouble();
        match spent {
            Spent::Timeout => self.trouble.timeouts += 1,
            Spent::SequenceNak => self.trouble.sequence_naks += 1,
            Spent::ImpliedNak => self.trouble.implied_naks += 1,
        }
    }

    /// The requester has gone back, perhaps to before what was acknowledged: it is still the same trouble.
    #[cold]
    pub(super) fn keep_trouble(&mut self) {
        self.trouble.una = self.requester.una;
    }

    /// The cause when no retry is left.
    #[cold]
    pub(super) fn retries_exceeded(&self) -> Cause {
        let (r, t) = (&self.requester, &self.trouble);
        Cause::RetriesExceeded {
            retry_cnt: r.retry_cnt,
            psn: psn_at(r.first_psn, r.una),
            timeouts: t.timeouts,
            timeout: r.timeout,
            sequence_naks: t.sequence_naks,
            implied_naks: t.implied_naks,
        }
    }

    /// A failure of this queue pair without more to tell.
    fn failure(&self, now: Time, cause: Cause, desk: &Desk) -> Failure {
        Failure {
            at: now,
            service: self.init.qp_type,
            own: (desk.config.gid, self.number),
            peer: self.path.map(|path| (path.peer, self.dest_qp)),
            subject: Subject::QueuePair,
            status: None,
            cause,
            tries: Vec::new(),
            earlier_tries: false,
            moved: Vec::new(),
            flushed: Flushed::default(),
        }
    }

    /// The oldest send request fails.
    #[cold]
    pub(super) fn explain_oldest(&mut self, now: Time, cause: Cause, desk: &Desk) -> Failure {
        let mut failure = self.failure(now, cause, desk);
        let r = &mut self.requester;
        let head = r.head();
        let Some(entry) = r.entry(head) else {
            return failure;
        };
        let flight = (head < r.started).then(|| r.flight(head));
        let psns = flight.filter(|flight| flight.packets > 0).map(|flight| {
            let psn = |position| psn_at(r.first_psn, position);
            (psn(flight.first), psn(flight.end() - 1))
        });
        failure.subject = Subject::Send(Sent {
            number: head + 1,
            wr_id: entry.wr_id,
            work: entry.work,
            len: entry.len,
            psns,
        });
        failure.status = Some(cause.status());
        if let Some(to) = entry.to {
            let known = desk.addresses.get(to.address.place);
            failure.peer = known.map(|(_, path)| (path.peer, to.qp));
        }
        if psns.is_some() && self.trouble.una == self.requester.una {
            let (from, counters) = &self.trouble.before;
            failure.earlier_tries = self.recent.forgotten() > *from;
            let tries = self.recent.since(*from).filter_map(|(at, rare)| {
                let (psn, step) = self.step(rare)?;
                Some(Try { at, psn, step })
            });
            failure.tries = tries.collect();
            failure.moved = self.counters.since(counters);
        }
        if entry.work.is_local() {
            failure.peer = None;
        }
        failure
    }

    /// An element of a request opens no memory: its place among them, and why.
    #[cold]
    pub(super) fn protection(
        &self,
        entry: &SendEntry,
        (lkey, addr, len, why): (LocalKey, u64, u64, AccessError),
    ) -> Cause {
        let elements = self.requester.elements(entry);
        Cause::LocalProtection {
            sge: place(elements, lkey, addr),
            lkey,
            addr,
            len,
            why,
        }
    }

    /// As [`Qp::protection`], for the receive request that is taken.
    #[cold]
    pub(super) fn receive_protection(
        &self,
        (lkey, addr, len, why): (LocalKey, u64, u64, AccessError),
    ) -> Cause {
        let elements = self.responder.receives.elements().iter();
        Cause::ReceiveProtection {
            sge: place(elements, lkey, addr),
            lkey,
            addr,
            len,
            why,
        }
    }

    /// What of a rare event has to do with requests that are tried again.
    fn step(&self, rare: Rare) -> Option<(crate::wire::Psn, Step)> {
        Some(match rare {
            Rare::Timeout { psn, after, .. } => (psn, Step::Timeout(after)),
            Rare::ImpliedNak { psn } => (psn, Step::ImpliedNak),
            Rare::Resend { psn } => (psn, Step::Resend),
            Rare::NakReceived { psn, syndrome } => {
                let step = match syndrome.kind() {
                    SyndromeKind::Nak(NakCode::PsnSequenceError) => Step::SequenceNak,
                    SyndromeKind::RnrNak { timer } => {
                        Step::ReceiverNotReady(codes::rnr_timer(timer))
                    }
                    SyndromeKind::Nak(_) => Step::Refused,
                    _ => return None,
                };
                (psn, step)
            }
            _ => return None,
        })
    }

    /// A peer's request is refused, and no receive request completes because of it.
    #[cold]
    pub(super) fn explain_refusal(
        &self,
        now: Time,
        bth: Bth,
        cause: Cause,
        desk: &Desk,
    ) -> Failure {
        let arrived = Arrived {
            opcode: bth.opcode(),
            psn: bth.psn(),
        };
        Failure {
            subject: Subject::Arrived(arrived),
            ..self.failure(now, cause, desk)
        }
    }

    /// The receive request that is taken, if there is one, fails for a packet that arrived.
    #[cold]
    pub(super) fn explain_receive(
        &self,
        now: Time,
        bth: Bth,
        peer: Option<(Gid, QpNumber)>,
        cause: Cause,
        desk: &Desk,
    ) -> Failure {
        let mut failure = self.explain_refusal(now, bth, cause, desk);
        failure.peer = failure.peer.or(peer);
        if let (Some((number, wr_id)), Subject::Arrived(arrived)) =
            (self.responder.receives.taken(), failure.subject)
        {
            failure.status = Some(cause.status());
            failure.subject = Subject::Receive {
                number,
                wr_id,
                arrived,
            };
        }
        failure
    }

    /// The failure is complete: hands it over, and remembers what ended the queue pair.
    #[cold]
    pub(super) fn explained(&mut self, mut failure: Failure, flushed: Flushed, desk: &mut Desk) {
        failure.flushed.append(flushed);
        let at = failure.at;
        let status = failure.status.unwrap_or(failure.cause.status());
        self.ended = match (failure.cause, failure.subject) {
            (Cause::Flushed(ended), _) => ended,
            (Cause::CqOverrun(_), _) | (_, Subject::QueuePair) => Ended::CqOverrun(at),
            (_, Subject::Send(sent)) => Ended::Send {
                at,
                number: sent.number,
                wr_id: sent.wr_id,
                status,
            },
            (_, Subject::Receive { wr_id, .. }) => Ended::Receive { at, wr_id, status },
            (_, Subject::Arrived(arrived)) => Ended::Refusal {
                at,
                psn: arrived.psn,
            },
        };
        desk.failures.push(failure);
    }

    /// The completion queue ran over; a queue pair that completes into it is in error.
    #[cold]
    pub(super) fn overran(
        &mut self,
        now: Time,
        cq: crate::card::CqId,
        flushed: Flushed,
        desk: &mut Desk,
    ) {
        let failure = self.failure(now, Cause::CqOverrun(cq), desk);
        self.explained(failure, flushed, desk);
    }

    /// Requests were flushed that no failure of the moment tells of: posted to a queue pair in error, or
    /// there when the program put it into error.
    #[cold]
    pub(crate) fn only_flushed(&mut self, now: Time, flushed: Flushed, desk: &mut Desk) {
        if !flushed.is_empty() {
            let failure = self.failure(now, Cause::Flushed(self.ended), desk);
            self.explained(failure, flushed, desk);
        }
    }

    /// The program puts it into error.
    #[cold]
    pub(crate) fn put_into_error(&mut self, now: Time, desk: &mut Desk) {
        if self.state != super::State::Error {
            self.ended = Ended::Program(now);
        }
        let flushed = self.enter_error(now, desk);
        self.only_flushed(now, flushed, desk);
    }
}

/// Which of the elements has `addr` under `lkey`.
fn place<'a>(mut elements: impl Iterator<Item = &'a Sge>, lkey: LocalKey, addr: u64) -> u32 {
    let holds =
        |sge: &Sge| sge.lkey == lkey && addr.wrapping_sub(sge.addr) < u64::from(sge.len.max(1));
    elements.position(holds).unwrap_or(0) as u32
}
