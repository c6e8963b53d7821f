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
}

/// The answers a queue pair owes.
#[derive(Debug, Default)]
pub(crate) struct Responses {
    queue: VecDeque<Response>,
    reads: usize,
}

impl Responses {
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.reads = 0;
    }

    /// Drops READ data that is not out yet; the queue pair is in error.
    pub(super) fn keep_acknowledgements(&mut self) {
        self.queue.retain(|r| !matches!(r, Response::Read { .. }));
        self.reads = 0;
    }

    /// READs not answered in full.
    pub(super) fn reads(&self) -> usize {
        self.reads
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
        // At most one sequence or RNR NAK can be meaningful, and it is the latest.
        if matches!(self.queue.back(), Some(Response::Nak { .. })) {
            self.queue.pop_back();
        }
        self.queue.push_back(Response::Nak {
            position,
            syndrome,
            msn,
            ready,
        });
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
        });
    }

    /// Answers a READ again, before the answers to later requests. What is still to be sent of the same
    /// data is replaced. At most `limit` READs wait.
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
        self.reads = self
            .queue
            .iter()
            .filter(|r| matches!(r, Response::Read { .. }))
            .count();
        if self.reads >= limit {
            return;
        }
        self.reads += 1;
        let at = self.queue.iter().position(|r| r.position() >= position);
        let read = Response::Read {
            position,
            packets,
            sent: 0,
            reth,
            msn,
            ready,
        };
        self.queue.insert(at.unwrap_or(self.queue.len()), read);
    }

    fn pop(&mut self) {
        if let Some(Response::Read { .. }) = self.queue.pop_front() {
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
