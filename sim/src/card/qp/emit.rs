//! Work requests become packets, in order.

use super::attributes::QpType;
use super::requester::{Flight, WINDOW, frame_len, packet};
use super::{Desk, Qp, State, pieces, psn_at};
use crate::card::env::{Deed, Env};
use crate::card::explain::Cause;
use crate::card::work::{MAX_MESSAGE_LEN, SendEntry, Work};
use crate::memory::{Access, AccessError, LocalKey, Memory};
use crate::time::Time;
use crate::wire::{AtomicEth, Bth, Deth, Ext, Opcode, Packet, Payload, Reth};

impl Qp {
    /// The next request packet, if one can be sent now, in `priority`. One of another priority stays where
    /// it is: its port may be paused.
    pub(crate) fn next_request<E: Env>(
        &mut self,
        now: Time,
        priority: u8,
        desk: &mut Desk,
        env: &mut E,
    ) -> Option<Packet> {
        if now < self.requester.hold_until || !matches!(self.state, State::Rts | State::Sqd) {
            return None;
        }
        self.requester.hold_until = Time::ZERO;
        // What is done locally leaves nothing to send, so there may be several to start.
        loop {
            let r = &mut self.requester;
            if r.cursor_request == r.started {
                if !self.start(now, desk) {
                    return None;
                }
            } else if r.flight(r.cursor_request).packets == 0 {
                r.cursor_request += 1;
            } else {
                break;
            }
        }
        let Some(path) = self.next_path(desk) else {
            // A datagram whose address handle was destroyed before its port was ready.
            let to = self.requester.next_entry()?.to?;
            let (handle, gone) = (to.address, true);
            self.fail_local(now, Cause::AddressHandle { handle, gone }, desk);
            return None;
        };
        if path.priority != priority {
            return None;
        }
        if !self.may_request(now) {
            return None;
        }
        let r = &self.requester;
        let entry = *r.queue.entries.peek(r.cursor_request)?;
        let flight = r.flight(r.cursor_request);
        if flight.answered && r.reads_out >= r.max_rd_atomic.max(1) {
            return None;
        }
        let at = (r.cursor - flight.first) as u32;
        let offset = u64::from(at) * u64::from(self.mtu.bytes());
        // A READ is one packet, however many answer it.
        let read = matches!(entry.work, Work::Read(_));
        let (first, last) = (at == 0 || read, read || at + 1 == flight.packets);

        let dest = entry.to.map_or(self.dest_qp, |to| to.qp);
        let bth = Bth::new(
            self.opcode(entry.work, first, last),
            dest,
            psn_at(r.first_psn, r.cursor),
        );
        let mut p = packet(&path, path.priority, bth);
        p.ext = self.ext(&entry, first, last, offset);
        p.ecn = desk.data_ecn;
        if entry.work.sends_data() {
            match self.stage(&entry, offset, desk, env) {
                Ok(payload) => p.payload = payload,
                Err(cause) => {
                    self.fail_local(now, *cause, desk);
                    return None;
                }
            }
        }
        let reliable = self.init.qp_type == QpType::Rc;
        let r = &mut self.requester;
        r.since_ack_req += 1;
        let closes = match &self.limiter {
            Some(limiter) => limiter.needs_answer(r.cursor + 1 - r.una, self.mtu.bytes()),
            None => false,
        };
        let due = r.since_ack_req >= desk.config.ack_every;
        let ack_req = reliable && (last || due || closes);
        if ack_req {
            r.since_ack_req = 0;
        }
        p.bth = p
            .bth
            .with_ack_req(ack_req)
            .with_solicited(last && entry.solicited)
            .with_pad_count(p.payload.pad_count());
        p.frame_len = frame_len(&path, &p);

        let again = r.cursor < r.sent;
        let position = r.cursor;
        r.reads_out += u32::from(flight.answered);
        r.cursor = if read { flight.end() } else { r.cursor + 1 };
        if r.cursor == flight.end() {
            r.cursor_request += 1;
        }
        r.sent = r.sent.max(r.cursor);
        if let Some(limiter) = &mut self.limiter {
            let measured = ack_req && !again;
            limiter.sent(now, p.wire_len(), measured.then_some(position));
            if r.cursor < r.next {
                // Known now, so that nobody asks in vain when the port is free. What is not begun yet may be
                // local, and that does not wait.
                r.paced_until = limiter.hold(now).unwrap_or(Time::NEVER);
            }
        }
        if reliable {
            if r.timer == Time::NEVER {
                r.restart_timer(now);
            }
        } else {
            // Nobody answers: a request is done when its last packet is on its way.
            self.acknowledge(now, self.requester.cursor, desk);
        }
        self.counters.request_packets += 1;
        self.counters.retransmitted_packets += u64::from(again);
        env.observe(|| Deed::Request { packet: p, again });
        Some(p)
    }

    /// Numbers the packets of the next work request, if it may begin; does what needs no packets.
    fn start(&mut self, now: Time, desk: &mut Desk) -> bool {
        let r = &mut self.requester;
        if self.state != State::Rts || r.failure.is_some() {
            return false;
        }
        let Some(entry) = r.queue.entries.get(r.started).copied() else {
            return false;
        };
        r.refresh(&entry);
        if entry.fence {
            // A fenced invalidation waits for everything before it (10.6.5.1): the peer may be using the
            // key on behalf of any of that. Others wait for READs and atomics (10.8.3.3).
            let waits = match entry.work {
                Work::LocalInvalidate(_) => r.head() < r.started,
                _ => r.reads_out > 0,
            };
            if waits {
                return false;
            }
        }
        if entry.work.takes_receive() && r.messages_begun > r.credit_limit {
            return false;
        }
        if let Err(cause) = self.check_request(&entry, desk) {
            self.fail_local(now, cause, desk);
            return false;
        }
        let mtu = u64::from(self.mtu.bytes());
        let packets = match entry.work {
            work if work.is_local() => 0,
            // Longer datagrams are not sent, and nobody is told (C10-93.1.1).
            _ if self.init.qp_type == QpType::Ud => {
                u32::from(entry.len <= desk.config.port_mtu.bytes().into())
            }
            _ => entry.len.div_ceil(mtu).max(1) as u32,
        };
        let r = &mut self.requester;
        if r.next + u64::from(packets) - r.una > WINDOW {
            return false;
        }
        let slot = r.started as usize & (r.flights.len() - 1);
        let answered = entry.work.takes_resource();
        r.flights[slot] = Flight {
            first: r.next,
            packets,
            answered,
        };
        r.next += u64::from(packets);
        r.started += 1;
        r.messages_begun += u64::from(packets > 0);
        if packets == 0 {
            r.cursor_request = r.started;
            self.acknowledge(now, self.requester.una, desk);
        }
        self.state == State::Rts
    }

    /// What can be known to be wrong with a request before it begins. Carries out what is local.
    fn check_request(&self, entry: &SendEntry, desk: &mut Desk) -> Result<(), Cause> {
        let pd = self.init.pd;
        if entry.len > MAX_MESSAGE_LEN {
            return Err(Cause::MessageTooLong {
                len: entry.len,
                limit: MAX_MESSAGE_LEN,
            });
        }
        match entry.work {
            Work::BindWindow { key, binding } => desk
                .memory
                .bind_type2(key, binding, pd, self.number)
                .map_err(|why| Cause::Bind { key, binding, why })?,
            Work::LocalInvalidate(key) => desk
                .memory
                .invalidate(key, pd, self.number)
                .map_err(|why| Cause::Invalidate { key, why })?,
            // It would wait for ever.
            work if work.takes_resource() && self.requester.max_rd_atomic == 0 => {
                return Err(Cause::NoReads);
            }
            Work::CompareSwap { .. } | Work::FetchAdd { .. } | Work::AtomicWrite(_)
                if entry.len != 8 =>
            {
                return Err(Cause::AtomicLength { len: entry.len });
            }
            _ => {}
        }
        // Where the answer goes is looked at before the peer has done its part.
        if entry.work.takes_resource() && !entry.work.sends_data() {
            for sge in self.requester.elements(entry).filter(|sge| sge.len > 0) {
                desk.memory
                    .local(sge.lkey, pd, sge.addr, sge.len.into(), Access::LOCAL_WRITE)
                    .map_err(|why| {
                        self.protection(entry, (sge.lkey, sge.addr, sge.len.into(), why))
                    })?;
            }
        }
        // An address handle must be of the queue pair's protection domain (C10-10).
        if let Some(to) = entry.to {
            match desk.addresses.get(to.address.place) {
                Some((owner, _)) if *owner == pd => {}
                known => {
                    let gone = known.is_none();
                    let handle = to.address;
                    return Err(Cause::AddressHandle { handle, gone });
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn opcode(&self, work: Work, first: bool, last: bool) -> Opcode {
        let (base, tail) = match work {
            Work::Send => (Opcode::RC_SEND_FIRST, 0),
            Work::SendImmediate(_) => (Opcode::RC_SEND_FIRST, 1),
            Work::Write(_) => (Opcode::RC_WRITE_FIRST, 0),
            Work::WriteImmediate(..) => (Opcode::RC_WRITE_FIRST, 1),
            Work::Read(_) => return Opcode::RC_READ_REQUEST,
            Work::CompareSwap { .. } => return Opcode::RC_COMPARE_SWAP,
            Work::FetchAdd { .. } => return Opcode::RC_FETCH_ADD,
            Work::AtomicWrite(_) => return Opcode::RC_ATOMIC_WRITE,
            Work::SendInvalidate(_) => match (first, last) {
                (false, true) => return Opcode::RC_SEND_LAST_INVALIDATE,
                (true, true) => return Opcode::RC_SEND_ONLY_INVALIDATE,
                _ => (Opcode::RC_SEND_FIRST, 0),
            },
            Work::BindWindow { .. } | Work::LocalInvalidate(_) => (Opcode::RC_SEND_FIRST, 0),
        };
        // First, Middle, Last, Last with immediate, Only, Only with immediate: in this order for both.
        let place = match (first, last) {
            (true, false) => 0,
            (false, false) => 1,
            (false, true) => 2 + tail,
            (true, true) => 4 + tail,
        };
        // The services number their operations alike.
        let service = match self.init.qp_type {
            QpType::Rc => 0x00,
            QpType::Uc => 0x20,
            QpType::Ud => 0x60,
        };
        Opcode(service + base.0 + place)
    }

    #[inline]
    fn ext(&self, entry: &SendEntry, first: bool, last: bool, offset: u64) -> Ext {
        let dma_len = (entry.len - offset) as u32;
        let atomic = |at: super::super::Remote, swap_add, compare| {
            Ext::Atomic(AtomicEth {
                va: at.addr,
                rkey: at.rkey,
                swap_add,
                compare,
            })
        };
        match entry.work {
            Work::Write(to) | Work::AtomicWrite(to) if first => Ext::Reth(Reth {
                va: to.addr,
                rkey: to.rkey,
                dma_len,
            }),
            Work::Read(from) => {
                let va = from.addr.wrapping_add(offset);
                Ext::Reth(Reth {
                    va,
                    rkey: from.rkey,
                    dma_len,
                })
            }
            Work::WriteImmediate(to, i) if first => {
                let reth = Reth {
                    va: to.addr,
                    rkey: to.rkey,
                    dma_len,
                };
                if last {
                    Ext::RethImmediate(reth, i)
                } else {
                    Ext::Reth(reth)
                }
            }
            Work::CompareSwap { at, compare, swap } => atomic(at, swap, compare),
            Work::FetchAdd { at, add } => atomic(at, add, 0),
            Work::SendInvalidate(key) if last => Ext::Ieth(key),
            Work::Send | Work::SendImmediate(_) if entry.to.is_some() => {
                let to = entry.to.map_or(0, |to| to.qkey);
                // A controlled Q_Key is not the program's to choose (C10-15).
                let qkey = if to >> 31 != 0 { self.qkey } else { to };
                let deth = Deth {
                    qkey,
                    reserved: 0,
                    src_qp: self.number,
                };
                match entry.work {
                    Work::SendImmediate(i) => Ext::DethImmediate(deth, i),
                    _ => Ext::Deth(deth),
                }
            }
            Work::SendImmediate(i) | Work::WriteImmediate(_, i) if last => Ext::Immediate(i),
            _ => Ext::None,
        }
    }

    /// Takes a snapshot of the packet's share of the request's data, from `offset` on.
    #[inline]
    fn stage<E: Env>(
        &self,
        entry: &SendEntry,
        offset: u64,
        desk: &Desk,
        env: &mut E,
    ) -> Result<Payload, Box<Cause>> {
        let limit = match self.init.qp_type {
            QpType::Ud => desk.config.port_mtu,
            _ => self.mtu,
        };
        let len = (entry.len - offset).min(limit.bytes().into()) as u16;
        if len == 0 {
            return Ok(Payload::EMPTY);
        }
        let (r, memory, pd) = (&self.requester, &desk.memory, self.init.pd);
        if entry.inline.count > 0 {
            return Ok(env.stage(len, |out| r.copy_inline(entry, offset as usize, out)));
        }
        let mut checked = Ok(());
        pieces(r.elements(entry), offset, len, |sge, addr, _, n| {
            if memory
                .local(sge.lkey, pd, addr, n as u64, Access::LOCAL_READ)
                .is_err()
            {
                checked = Err((sge.lkey, addr, n as u64));
            }
        });
        if let Err((lkey, addr, n)) = checked {
            return Err(self.cannot_read(entry, lkey, addr, n, memory));
        }
        Ok(env.stage(len, |out| {
            pieces(r.elements(entry), offset, len, |sge, addr, at, n| {
                if let Ok(p) = memory.local(sge.lkey, pd, addr, n as u64, Access::LOCAL_READ) {
                    p.read(&mut out[at..at + n]);
                }
            });
        }))
    }

    /// The reason why a piece of a request's data cannot be read, looked for once more.
    #[cold]
    fn cannot_read(
        &self,
        entry: &SendEntry,
        lkey: LocalKey,
        addr: u64,
        len: u64,
        memory: &Memory,
    ) -> Box<Cause> {
        let key = lkey.0;
        let again = memory.local(lkey, self.init.pd, addr, len, Access::LOCAL_READ);
        let why = again.err().unwrap_or(AccessError::UnknownKey { key });
        Box::new(self.protection(entry, (lkey, addr, len, why)))
    }
}
