//! The completer: responses retire work requests, or send the requester back.

use super::attributes::QpType;
use super::requester::Flight;
use super::trouble::Spent;
use super::{Desk, Qp, State, pieces, position_of, psn_at};
use crate::card::codes;
use crate::card::congestion::Loss;
use crate::card::env::{Env, Refusal};
use crate::card::explain::{Cause, Flushed, WrongResponse};
use crate::card::recent::Rare;
use crate::card::work::{SendEntry, Status, Work};
use crate::memory::Access;
use crate::time::Time;
use crate::wire::aeth::SyndromeKind;
use crate::wire::{Aeth, Ext, NakCode, Opcode, Operation, Packet, Position};

impl Qp {
    /// Takes a response.
    pub(crate) fn receive_response<E: Env>(
        &mut self,
        now: Time,
        packet: &Packet,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Refusal> {
        if !matches!(self.state, State::Rts | State::Sqd) {
            return Err(Refusal::WrongState);
        }
        let r = &self.requester;
        let position = position_of(r.first_psn, packet.bth.psn(), r.una);
        // Go-back-0 is told of positions before the oldest unanswered one, within its message.
        let oldest = if desk.config.recovery.restarts() && r.head() < r.started {
            r.flight(r.head()).first.min(r.una)
        } else {
            r.una
        };
        if position < oldest as i64 || position as u64 >= r.sent {
            // An acknowledgement that comes again may bring credits for receives posted since (9.7.7.2).
            if position < oldest as i64
                && let Some(aeth) = packet.ext.aeth()
                && let SyndromeKind::Ack { credits } = aeth.syndrome.kind()
            {
                self.take_credits(aeth, credits, desk);
            }
            return Err(Refusal::Ghost);
        }
        let position = position as u64;
        let opcode = packet.bth.opcode();
        match (opcode.operation(), packet.ext.aeth()) {
            (Operation::Acknowledge, Some(aeth)) => self.receive_aeth(now, position, aeth, desk),
            (Operation::AtomicAcknowledge, None) => Err(Refusal::Malformed),
            (Operation::ReadResponse | Operation::AtomicAcknowledge, aeth) => {
                self.receive_answer(now, position, packet, aeth, desk, env)
            }
            _ => Err(Refusal::Malformed),
        }
    }

    fn receive_aeth(
        &mut self,
        now: Time,
        position: u64,
        aeth: Aeth,
        desk: &mut Desk,
    ) -> Result<(), Refusal> {
        let kind = aeth.syndrome.kind();
        if !matches!(kind, SyndromeKind::Ack { .. }) {
            self.mark_trouble_of_packet();
            self.recent.note(
                now,
                Rare::NakReceived {
                    psn: psn_at(self.requester.first_psn, position),
                    syndrome: aeth.syndrome,
                },
            );
        }
        match kind {
            SyndromeKind::Ack { credits } => {
                self.counters.acks_received += 1;
                self.requester.resending = false;
                if !self.acknowledge(now, position + 1, desk) {
                    self.read_response_lost(now, desk);
                }
                self.take_credits(aeth, credits, desk);
            }
            SyndromeKind::RnrNak { timer } => {
                self.counters.rnr_naks_received += 1;
                let acknowledges = desk.config.profile.rnr_nak_acknowledges;
                if acknowledges && !self.acknowledge(now, position, desk) {
                    self.read_response_lost(now, desk);
                }
                self.receiver_not_ready(now, position, timer, desk);
            }
            SyndromeKind::Nak(NakCode::PsnSequenceError) => {
                self.counters.naks_received.sequence += 1;
                self.acknowledge(now, position, desk);
                if self.state == State::Error {
                    return Ok(());
                }
                // Go-back-0 may name an earlier position than the oldest unanswered one; a READ whose
                // data is missing an earlier one than the NAK.
                let lost = position.min(self.requester.una);
                let under_way = self.requester.resending && desk.config.profile.one_resend_per_ack;
                if self.requester.has_sent(lost) && !under_way {
                    self.requester.resending = true;
                    self.take_loss(now, Loss::Nak);
                    self.retry(now, lost, Spent::SequenceNak, desk);
                }
            }
            SyndromeKind::Nak(code) => {
                self.counters.naks_received.count(code);
                self.acknowledge(now, position, desk);
                if self.state != State::Error {
                    self.know_trouble();
                    let psn = psn_at(self.requester.first_psn, position);
                    self.fail_at(now, position, Cause::Refused { code, psn }, desk);
                }
            }
            SyndromeKind::Reserved => return Err(Refusal::Malformed),
        }
        Ok(())
    }

    /// The peer's end-to-end credits: its MSN plus the receives it has is the last message that may
    /// start; one more may be tried (9.7.7.2).
    fn take_credits(&mut self, aeth: Aeth, code: u8, desk: &Desk) {
        let r = &mut self.requester;
        match codes::decode_credits(code) {
            Some(n) if desk.config.credits => {
                // The message number nearest to those that are done, which no MSN can undo.
                let near = r.messages_done;
                let ahead = (aeth.msn.get().wrapping_sub(near as u32) << 8) as i32 >> 8;
                let done = near.saturating_add_signed(ahead.max(0).into());
                let limit = done + u64::from(n);
                // An old acknowledgement must not take credits back, a peer that has none left must
                // not be believed less.
                if r.credit_limit == u64::MAX || limit > r.credit_limit {
                    r.credit_limit = limit;
                }
            }
            _ => r.credit_limit = u64::MAX,
        }
    }

    /// Everything before `to` has been carried out. Retires what is complete; false if a READ or atomic
    /// stands in the way because its answer has not come.
    pub(super) fn acknowledge(&mut self, now: Time, to: u64, desk: &mut Desk) -> bool {
        let before = self.requester.una;
        let mut whole = true;
        loop {
            let r = &mut self.requester;
            let head = r.head();
            if head == r.started {
                break;
            }
            let flight = r.flight(head);
            if flight.packets == 0 {
                // Done locally; complete when everything before it is.
                if r.una < flight.first {
                    break;
                }
            } else if r.una >= to {
                break;
            } else if flight.answered {
                whole = to <= flight.first;
                r.una = r.una.max(flight.first.min(to));
                break;
            } else {
                r.una = to.min(flight.end());
                if r.una < flight.end() {
                    break;
                }
            }
            self.finish_oldest(now, 0, desk);
        }
        if self.requester.una != before {
            self.progressed(now, desk);
        }
        whole
    }

    /// The oldest request is done.
    fn finish_oldest(&mut self, now: Time, len: u32, desk: &mut Desk) {
        let r = &mut self.requester;
        r.messages_done += u64::from(r.flight(r.head()).packets > 0);
        let Some(entry) = self.requester.retire() else {
            return;
        };
        if entry.signaled {
            let c = self.send_completion(&entry, Status::Success, len, desk);
            self.complete(now, self.init.send_cq, c, false, desk);
        }
    }

    /// Something new was answered: retries start afresh, the timer too.
    fn progressed(&mut self, now: Time, desk: &mut Desk) {
        let r = &mut self.requester;
        r.retries_left = r.retry_cnt;
        r.rnr_left = r.rnr_retry;
        r.implied_nak = false;
        // What the receiver was not ready for has been taken.
        if let Some((position, until)) = r.put_off
            && position < r.una
        {
            r.put_off = None;
            if now < until {
                r.hold_until = Time::ZERO;
            }
        }
        r.skip_answered();
        r.restart_timer(now);
        if let Some(limiter) = &mut self.limiter
            && self.init.qp_type == QpType::Rc
            && limiter.acknowledged(now, r.una)
        {
            r.paced_until = Time::NEVER;
            self.responder.responses.paced_until = Time::ZERO;
        }
        self.settle(now, desk);
        self.check_drained(desk);
    }

    /// In SQD, tells the program once nothing is under way any more.
    pub(crate) fn check_drained(&mut self, desk: &mut Desk) {
        let r = &mut self.requester;
        if self.state == State::Sqd && r.head() == r.started && r.drain_event {
            r.drain_event = false;
            desk.events
                .push_back(crate::card::AsyncEvent::SqDrained(self.number));
        }
    }

    /// A later answer shows that READ data was lost: as good as a NAK, once per gap.
    fn read_response_lost(&mut self, now: Time, desk: &mut Desk) {
        let r = &mut self.requester;
        // Before the READ was sent again there is nothing to conclude from an old answer.
        if r.implied_nak || !r.in_flight() {
            return;
        }
        r.implied_nak = true;
        let lost = r.una;
        let psn = psn_at(r.first_psn, lost);
        self.mark_trouble_of_packet();
        self.counters.implied_naks += 1;
        self.take_loss(now, Loss::Nak);
        self.recent.note(now, Rare::ImpliedNak { psn });
        self.retry(now, lost, Spent::ImpliedNak, desk);
        self.requester.implied_nak = true;
    }

    /// The packet at `position` was put off. What is without answer before it, READ data that is missing for
    /// one, is sent again along with it.
    fn receiver_not_ready(&mut self, now: Time, position: u64, timer: u8, desk: &mut Desk) {
        if self.state == State::Error {
            return;
        }
        self.know_trouble();
        let r = &mut self.requester;
        if r.has_sent(position) {
            // 7 is "for ever".
            if r.rnr_retry != 7 {
                if r.rnr_left == 0 {
                    let cause = Cause::RnrRetriesExceeded {
                        rnr_retry: r.rnr_retry,
                        psn: psn_at(r.first_psn, position),
                        wait: codes::rnr_timer(timer),
                    };
                    self.fail_at(now, position, cause, desk);
                    return;
                }
                r.rnr_left -= 1;
            }
            let oldest = position.min(r.una);
            self.go_back(now, oldest, desk);
        }
        // The wait is over no sooner than asked for (C9-130); the transport timer rests meanwhile. A copy of
        // the NAK does not prolong it, the NAK of a later packet does.
        let r = &mut self.requester;
        let waits = |(at, until)| now < until && position <= at;
        if !r.put_off.is_some_and(waits) {
            let until = now + codes::rnr_timer(timer);
            r.put_off = Some((position, until));
            r.hold_until = r.hold_until.max(until);
        }
    }

    /// The request at `position` fails. READs before it whose data is missing will never get it.
    #[cold]
    fn fail_at(&mut self, now: Time, position: u64, cause: Cause, desk: &mut Desk) {
        let culprit = self.requester.request_at(position);
        self.set_state(now, State::Error);
        let mut flushed = Flushed::default();
        while self.requester.head() < culprit {
            let Some(entry) = self.requester.retire() else {
                break;
            };
            flushed.sends.add(entry.wr_id);
            let c = self.send_completion(&entry, Status::WorkRequestFlushed, 0, desk);
            self.complete(now, self.init.send_cq, c, false, desk);
        }
        self.fail_after(now, cause, flushed, desk);
    }

    fn receive_answer<E: Env>(
        &mut self,
        now: Time,
        position: u64,
        packet: &Packet,
        aeth: Option<Aeth>,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Refusal> {
        if let Some(aeth) = aeth {
            match aeth.syndrome.kind() {
                SyndromeKind::Ack { credits } => {
                    self.requester.resending = false;
                    self.take_credits(aeth, credits, desk);
                }
                _ => return Err(Refusal::Malformed),
            }
        }
        if position < self.requester.una {
            return Err(Refusal::Ghost);
        }
        if !self.acknowledge(now, position, desk) {
            let r = &self.requester;
            let within = position < r.flight(r.head()).end();
            if !within || desk.config.profile.read_gap_noticed {
                self.read_response_lost(now, desk);
            }
            return Err(Refusal::OutOfSequence);
        }
        let r = &mut self.requester;
        let head = r.head();
        if self.state == State::Error || head == r.started {
            return Err(Refusal::Ghost);
        }
        let flight = r.flight(head);
        if position != r.una {
            self.read_response_lost(now, desk);
            return Err(Refusal::OutOfSequence);
        }
        let Some(entry) = r.entry(head) else {
            return Err(Refusal::Ghost);
        };
        let offset = (position - flight.first) * u64::from(self.mtu.bytes());
        match self.place(&entry, &flight, position, offset, packet, desk, env) {
            Ok(()) => {}
            Err(cause) => {
                self.mark_trouble_of_packet();
                self.know_trouble();
                self.fail_oldest(now, cause, desk);
                return Ok(());
            }
        }
        let r = &mut self.requester;
        r.una = position + 1;
        if r.una == flight.end() {
            // Its request may have been sent before the last going back, and then does not count.
            if r.cursor >= flight.end() {
                r.reads_out = r.reads_out.saturating_sub(1);
            }
            self.finish_oldest(now, entry.len as u32, desk);
            // What was done locally behind it is complete as well.
            self.acknowledge(now, position + 1, desk);
        }
        self.progressed(now, desk);
        Ok(())
    }

    /// Takes one packet of an answer: READ data, or what an atomic found, goes where the request wants it.
    #[allow(clippy::too_many_arguments)]
    fn place<E: Env>(
        &mut self,
        entry: &SendEntry,
        flight: &Flight,
        position: u64,
        offset: u64,
        packet: &Packet,
        desk: &mut Desk,
        env: &mut E,
    ) -> Result<(), Cause> {
        let wrong = |why| Cause::BadResponse {
            opcode: packet.bth.opcode(),
            psn: packet.bth.psn(),
            why,
        };
        let original;
        let bytes = match (entry.work, packet.ext) {
            (Work::CompareSwap { .. } | Work::FetchAdd { .. }, Ext::AtomicAck(_, value)) => {
                original = value.0.to_ne_bytes();
                Some(&original[..])
            }
            (Work::AtomicWrite(_), Ext::Aeth(_))
                if packet.bth.opcode() == Opcode::RC_READ_RESPONSE_ONLY
                    && packet.payload.is_empty() =>
            {
                return Ok(());
            }
            (Work::Read(_), Ext::Aeth(_) | Ext::None) => {
                let expected = (entry.len - offset).min(u64::from(self.mtu.bytes()));
                let last = position + 1 == flight.end();
                // A READ that was resumed may come as FIRST or ONLY; what must fit is the end.
                let ends = packet.bth.opcode().ends_message();
                let len = packet.payload.len();
                if u64::from(len) != expected {
                    let mtu = self.mtu.bytes();
                    let full = matches!(
                        packet.bth.opcode().position(),
                        Position::First | Position::Middle
                    );
                    return Err(wrong(WrongResponse::Length {
                        len,
                        expected,
                        mtu,
                        pieces: (full && len != mtu).then_some(len),
                    }));
                }
                if ends != last {
                    return Err(wrong(WrongResponse::Place));
                }
                env.payload(packet.payload)
            }
            _ => return Err(wrong(WrongResponse::Operation)),
        };
        let len = bytes.map_or(packet.payload.len(), |b| b.len() as u16);
        let mut outcome = Ok(());
        pieces(
            self.requester.elements(entry),
            offset,
            len,
            |sge, addr, at, n| match desk.memory.local(
                sge.lkey,
                self.init.pd,
                addr,
                n as u64,
                Access::LOCAL_WRITE,
            ) {
                Ok(place) => {
                    if let Some(bytes) = bytes {
                        place.write(&bytes[at..at + n]);
                    }
                }
                Err(why) => outcome = Err((sge.lkey, addr, n as u64, why)),
            },
        );
        outcome.map_err(|fault| self.protection(entry, fault))
    }
}
