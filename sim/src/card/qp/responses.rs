//! Answers in the order of the requests they answer (C9-27), and how they become packets.
//!
//! An acknowledgement that the port has not pulled yet grows to cover later requests, so a busy port
//! coalesces by itself (9.7.5.1.2).

use super::requester::{frame_len, packet};
use super::{Desk, Qp, State, psn_at};
use crate::card::codes;
use crate::card::env::{Deed, Env};
use crate::memory::Access;
use crate::time::Time;
use crate::wire::aeth::SyndromeKind;
use crate::wire::{Aeth, Bth, Ext, Msn, NakCode, Opcode, Packet, Payload, Reth, Syndrome};
use std::collections::VecDeque;

/// An answer.
#[derive(Clone, Copy, Debug)]
enum Response {
    /// Positive: everything up to and with `position`.
    Ack {
        position: u64,
        msn: Msn,
        ready: Time,
    },
    /// Negative, or "not ready".
    Nak {
        position: u64,
        syndrome: Syndrome,
        msn: Msn,
        ready: Time,
    },
    /// READ data; `sent` packets of `packets` are out.
    Read {
        position: u64,
        packets: u32,
        sent: u32,
        reth: Reth,
        msn: Msn,
        ready: Time,
        /// It was asked for before.
        again: bool,
    },
}

impl Response {
    fn ready(&self) -> Time {
        match *self {
            Response::Ack { ready, .. }
            | Response::Nak { ready, .. }
            | Response::Read { ready, .. } => ready,
        }
    }

    /// First position it answers that is not answered yet.
    fn position(&self) -> u64 {
        match *self {
            Response::Ack { position, .. } | Response::Nak { position, .. } => position,
            Response::Read { position, sent, .. } => position + u64::from(sent),
        }
    }

    /// Lets an acknowledgement go at `earlier`, if that is earlier.
    fn advance(&mut self, earlier: Time) {
        if let Response::Ack { ready, .. } = self {
            *ready = earlier.min(*ready);
        }
    }

    /// True for a NAK that ends the connection.
    fn is_final(&self) -> bool {
        match self {
            Response::Nak { syndrome, .. } => matches!(
                syndrome.kind(),
                SyndromeKind::Nak(code) if code != NakCode::PsnSequenceError
            ),
            _ => false,
        }
    }
}

/// The answers a queue pair owes.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    queue: VecDeque<Response>,
    /// READs in the queue that were asked for once.
    reads: usize,
}

impl Responses {
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.reads = 0;
    }

    /// Drops READ data that is not out yet; the queue pair is in error. What stands before a refusal
    /// stays: the refusal says that everything before it has been carried out (C9-27).
    pub(super) fn keep_acknowledgements(&mut self) {
        if self.queue.back().is_some_and(Response::is_final) {
            return;
        }
        self.queue.retain(|r| !matches!(r, Response::Read { .. }));
        self.count_reads();
    }

    /// READs not answered in full. Those that are answered again do not count: the peer may have their
    /// first answer by now, and has gone on.
    pub(super) fn reads(&self) -> usize {
        self.reads
    }

    fn count_reads(&mut self) {
        let new = |r: &&Response| matches!(r, Response::Read { again: false, .. });
        self.reads = self.queue.iter().filter(new).count();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// When the next answer may go.
    #[inline]
    pub(super) fn ready_at(&self) -> Time {
        match self.queue.front() {
            Some(r) => r.ready(),
            None => Time::NEVER,
        }
    }

    #[inline]
    pub(super) fn push_ack(&mut self, position: u64, msn: Msn, ready: Time) {
        if let Some(Response::Ack {
            position: p,
            msn: m,
            ..
        }) = self.queue.back_mut()
        {
            if position >= *p {
                (*p, *m) = (position, msn);
            }
            return;
        }
        self.queue.push_back(Response::Ack {
            position,
            msn,
            ready,
        });
    }

    pub(super) fn push_nak(&mut self, position: u64, syndrome: Syndrome, msn: Msn, ready: Time) {
        self.queue.push_back(Response::Nak {
            position,
            syndrome,
            msn,
            ready,
        });
        self.tidy();
    }

    /// Drops what a later answer makes needless, so that between two READs there is at most an ACK, a NAK
    /// and an ACK, however long the port does not fetch them.
    fn tidy(&mut self) {
        let mut i = 0;
        while i + 1 < self.queue.len() {
            let needless = match (self.queue[i], self.queue[i + 1]) {
                (
                    Response::Ack {
                        position, ready, ..
                    },
                    Response::Ack {
                        position: later, ..
                    },
                ) if later < position => {
                    self.queue.swap(i, i + 1);
                    self.queue[i + 1].advance(ready);
                    true
                }
                (Response::Ack { ready, .. }, Response::Ack { .. }) => {
                    self.queue[i + 1].advance(ready);
                    true
                }
                // At most one sequence or RNR NAK can mean something, and it is the latest.
                (Response::Nak { .. }, Response::Nak { .. }) => true,
                (Response::Nak { .. }, Response::Ack { .. }) => {
                    matches!(self.queue.get(i + 2), Some(Response::Nak { .. }))
                }
                _ => false,
            };
            if needless {
                self.queue.remove(i);
                i = i.saturating_sub(1);
            } else {
                i += 1;
            }
        }
    }

    pub(super) fn push_read(
        &mut self,
        position: u64,
        packets: u32,
        reth: Reth,
        msn: Msn,
        ready: Time,
    ) {
        self.reads += 1;
        self.queue.push_back(Response::Read {
            position,
            packets,
            sent: 0,
            reth,
            msn,
            ready,
            again: false,
        });
    }

    /// Answers a READ again, before the answers to later requests. What is still to be sent of the same
    /// data is replaced. At most `limit` such READs wait.
    pub(super) fn repeat_read(
        &mut self,
        position: u64,
        packets: u32,
        reth: Reth,
        msn: Msn,
        ready: Time,
        limit: usize,
    ) {
        let end = position + u64::from(packets);
        self.queue.retain(|r| match *r {
            Response::Read {
                position: p,
                packets: n,
                ..
            } => p >= end || p + u64::from(n) <= position,
            _ => true,
        });
        self.count_reads();
        self.tidy();
        let again = |r: &&Response| matches!(r, Response::Read { again: true, .. });
        if self.queue.iter().filter(again).count() >= limit {
            return;
        }
        let at = self.queue.iter().position(|r| r.position() >= position);
        let read = Response::Read {
            position,
            packets,
            sent: 0,
            reth,
            msn,
            ready,
            again: true,
        };
        self.queue.insert(at.unwrap_or(self.queue.len()), read);
    }

    fn pop(&mut self) {
        if let Some(Response::Read { again: false, .. }) = self.queue.pop_front() {
            self.reads -= 1;
        }
    }
}

impl Qp {
    /// The next response packet, if one may go now.
    pub(crate) fn next_response<E: Env>(
        &mut self,
        now: Time,
        desk: &mut Desk,
        env: &mut E,
    ) -> Option<Packet> {
        let front = *self.responder.responses.queue.front()?;
        if front.ready() > now {
            return None;
        }
        let packet = match front {
            Response::Ack { position, msn, .. } => {
                self.responder.responses.pop();
                let credits = if desk.config.credits {
                    codes::encode_credits(self.responder.receives())
                } else {
                    Syndrome::UNLIMITED
                };
                desk.counters.acks_sent += 1;
                self.acknowledgement(
                    position,
                    Aeth {
                        syndrome: Syndrome::ack(credits),
                        msn,
                    },
                )?
            }
            Response::Nak {
                position,
                syndrome,
                msn,
                ..
            } => {
                self.responder.responses.pop();
                match syndrome.kind() {
                    SyndromeKind::Nak(code) => desk.counters.naks_sent.count(code),
                    _ => desk.counters.rnr_naks_sent += 1,
                }
                self.acknowledgement(position, Aeth { syndrome, msn })?
            }
            Response::Read {
                position,
                packets,
                sent,
                reth,
                msn,
                ..
            } => self.read_response(now, position, packets, sent, reth, msn, desk, env)?,
        };
        env.observe(|| Deed::Response { packet });
        Some(packet)
    }

    /// True if [`Qp::next_response`] may give something, now or later.
    #[inline]
    pub(crate) fn has_responses(&self) -> bool {
        !self.responder.responses.is_empty()
    }

    #[inline]
    fn acknowledgement(&self, position: u64, aeth: Aeth) -> Option<Packet> {
        let path = self.path?;
        let psn = psn_at(self.responder.first_psn, position);
        let bth = Bth::new(Opcode::RC_ACKNOWLEDGE, self.dest_qp, psn);
        let mut p = packet(&path, path.response_priority, bth);
        p.ext = Ext::Aeth(aeth);
        p.frame_len = frame_len(&path, &p);
        Some(p)
    }

    /// One packet of READ data. The key is checked again: it may have ended since the request came.
    #[allow(clippy::too_many_arguments)]
    fn read_response<E: Env>(
        &mut self,
        now: Time,
        position: u64,
        packets: u32,
        sent: u32,
        reth: Reth,
        msn: Msn,
        desk: &mut Desk,
        env: &mut E,
    ) -> Option<Packet> {
        let path = self.path?;
        let mtu = u32::from(self.mtu.bytes());
        let offset = sent * mtu;
        let len = (reth.dma_len - offset).min(mtu) as u16;
        let at = reth.va.wrapping_add(offset.into());
        let psn = psn_at(self.responder.first_psn, position + u64::from(sent));
        let payload = if len == 0 {
            Payload::EMPTY
        } else {
            match desk
                .memory
                .remote(reth.rkey, self.init.pd, at, len.into(), Access::REMOTE_READ)
            {
                Ok(region) => env.stage(len, |out| region.read(at, out)),
                Err(_) => return self.read_failed(now, position + u64::from(sent), msn, desk),
            }
        };
        let (first, last) = (sent == 0, sent + 1 == packets);
        let opcode = match (first, last) {
            (true, true) => Opcode::RC_READ_RESPONSE_ONLY,
            (true, false) => Opcode::RC_READ_RESPONSE_FIRST,
            (false, true) => Opcode::RC_READ_RESPONSE_LAST,
            (false, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
        };
        let bth = Bth::new(opcode, self.dest_qp, psn).with_pad_count(payload.pad_count());
        let mut p = packet(&path, path.response_priority, bth);
        if first || last {
            let credits = if desk.config.credits {
                codes::encode_credits(self.responder.receives())
            } else {
                Syndrome::UNLIMITED
            };
            p.ext = Ext::Aeth(Aeth {
                syndrome: Syndrome::ack(credits),
                msn,
            });
        }
        p.payload = payload;
        p.frame_len = frame_len(&path, &p);
        let responses = &mut self.responder.responses;
        if last {
            responses.pop();
        } else if let Some(Response::Read { sent, .. }) = responses.queue.front_mut() {
            *sent += 1;
        }
        desk.counters.read_response_packets += 1;
        Some(p)
    }

    /// The region went away while its data was being sent: a NAK in place of the rest (9.7.5.1.3).
    fn read_failed(
        &mut self,
        now: Time,
        position: u64,
        msn: Msn,
        desk: &mut Desk,
    ) -> Option<Packet> {
        let syndrome = Syndrome::nak(NakCode::RemoteAccessError);
        self.responder.responses.clear();
        if self.state != State::Error {
            desk.events
                .push_back(crate::card::AsyncEvent::QpAccessError(self.number));
            self.enter_error(now, desk);
        }
        desk.counters.naks_sent.count(NakCode::RemoteAccessError);
        self.acknowledgement(position, Aeth { syndrome, msn })
    }
}
