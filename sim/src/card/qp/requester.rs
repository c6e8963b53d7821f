//! The requester: work requests become packets, in order; after a loss it goes back.

use super::attributes::QpAttributes;
use super::{Desk, Path, Qp, State, psn_at};
use crate::card::env::{Deed, Env};
use crate::card::recent::Rare;
use crate::card::work::{MAX_MESSAGE_LEN, SendEntry, Sge, SgeRun, Status, Work, WorkReader};
use crate::card::{codes, queue::Reader};
use crate::memory::{Access, Memory, Pd};
use crate::time::{Span, Time};
use crate::wire::{Bth, Damage, Ecn, Ext, Opcode, Packet, Payload, Psn, Reth};

/// The most packets without acknowledgement: half the PSN space, so that a duplicate can be told from
/// a new packet.
const WINDOW: u64 = 1 << 23;

/// Packets of one work request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    pub(super) first: u64,
    pub(super) packets: u32,
    pub(super) is_read: bool,
}

impl Flight {
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.packets)
    }
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Requester {
    queue: WorkReader<SendEntry>,
    /// By index of the work request, modulo the length, a power of two.
    flights: Box<[Flight]>,
    /// Work requests up to here have their packets numbered.
    pub(super) started: u64,
    /// The work request that the next packet belongs to.
    cursor_request: u64,
    /// Position of the next packet to send.
    pub(super) cursor: u64,
    /// Position after the last one numbered.
    next: u64,
    /// Oldest position without answer.
    pub(super) una: u64,
    /// Position after the last one ever sent.
    pub(super) sent: u64,
    pub(super) first_psn: Psn,
    /// READs sent since the last going back and not answered yet.
    pub(super) reads_out: u32,
    pub(super) max_rd_atomic: u32,
    pub(super) timeout: Option<Span>,
    pub(super) retry_cnt: u8,
    pub(super) retries_left: u8,
    pub(super) rnr_retry: u8,
    pub(super) rnr_left: u8,
    /// Nothing is sent before this: doorbell, RNR wait, reaction to a NAK.
    pub(super) hold_until: Time,
    /// When the transport timer runs out.
    pub(super) timer: Time,
    /// Packets since one asked for an acknowledgement.
    since_ack_req: u32,
    /// A missing READ response was acted on and nothing has moved since.
    pub(super) implied_nak: bool,
    /// Index of the last work request that the peer's credits let start, if it limits them.
    pub(super) credit_limit: u64,
    /// Work requests retired before this connection: message numbers count from here.
    pub(super) base: u64,
    /// The work request at `started` cannot be sent; it completes when its turn comes.
    pub(super) failure: Option<Status>,
    /// An SQD was asked for and its event is due when everything is answered.
    pub(crate) drain_event: bool,
}

impl Requester {
    pub(super) fn new(queue: WorkReader<SendEntry>, max_wr: u32) -> Requester {
        let slots = max_wr.max(1).next_power_of_two() as usize;
        Requester {
            queue,
            flights: vec![Flight::default(); slots].into_boxed_slice(),
            started: 0,
            cursor_request: 0,
            cursor: 0,
            next: 0,
            una: 0,
            sent: 0,
            first_psn: Psn::default(),
            reads_out: 0,
            max_rd_atomic: 0,
            timeout: None,
            retry_cnt: 0,
            retries_left: 0,
            rnr_retry: 0,
            rnr_left: 0,
            hold_until: Time::ZERO,
            timer: Time::NEVER,
            since_ack_req: 0,
            implied_nak: false,
            credit_limit: u64::MAX,
            base: 0,
            failure: None,
            drain_event: false,
        }
    }

    pub(super) fn reset(&mut self) {
        while self.retire().is_some() {}
        self.stop();
        (self.cursor, self.next, self.una, self.sent) = (0, 0, 0, 0);
        self.base = self.started;
        self.credit_limit = u64::MAX;
    }

    /// Forgets everything under way; what is queued stays.
    pub(super) fn stop(&mut self) {
        self.next = self.next.max(self.sent);
        (self.cursor, self.una, self.sent) = (self.next, self.next, self.next);
        self.hold_until = Time::ZERO;
        self.timer = Time::NEVER;
        self.reads_out = 0;
        self.failure = None;
        self.implied_nak = false;
        self.drain_event = false;
        self.since_ack_req = 0;
    }

    /// Takes over the attributes that are the requester's.
    pub(crate) fn set_attributes(&mut self, a: &QpAttributes) {
        if let Some(psn) = a.sq_psn {
            self.first_psn = psn;
        }
        if let Some(n) = a.max_rd_atomic {
            self.max_rd_atomic = n.into();
        }
        if let Some(n) = a.timeout {
            self.timeout = codes::ack_timeout(n);
        }
        if let Some(n) = a.retry_cnt {
            (self.retry_cnt, self.retries_left) = (n, n);
        }
        if let Some(n) = a.rnr_retry {
            (self.rnr_retry, self.rnr_left) = (n, n);
        }
    }

    /// Takes the oldest work request out of the queue.
    pub(super) fn retire(&mut self) -> Option<SendEntry> {
        let entry = self.queue.retire(|entry| entry.sges)?;
        let head = self.head();
        self.started = self.started.max(head);
        self.cursor_request = self.cursor_request.max(head);
        Some(entry)
    }

    /// Index of the oldest work request.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.queue.entries.head()
    }

    /// A work request that is in the queue.
    pub(super) fn entry(&mut self, index: u64) -> Option<SendEntry> {
        self.queue.entries.get(index).copied()
    }

    /// The elements of queued work requests.
    pub(super) fn sges(&self) -> &Reader<Sge> {
        &self.queue.sges
    }

    #[inline]
    pub(super) fn flight(&self, request: u64) -> Flight {
        self.flights[request as usize & (self.flights.len() - 1)]
    }

    /// The work request that `position` belongs to; positions from the oldest one's on are numbered in
    /// order.
    pub(super) fn request_at(&self, position: u64) -> u64 {
        let (mut low, mut high) = (self.head(), self.started);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.flight(mid).end() <= position {
                low = mid + 1
            } else {
                high = mid
            }
        }
        low
    }

    /// True if a packet sent since the last going back has no answer.
    #[inline]
    pub(super) fn in_flight(&self) -> bool {
        self.cursor > self.una
    }

    /// True if the packet at `position` was sent since the last going back. A NAK for one that was not is
    /// a copy, or late: what it asks for is already under way, and it costs no retry.
    #[inline]
    pub(super) fn has_sent(&self, position: u64) -> bool {
        position < self.cursor
    }

    /// True if there may be something to send.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.cursor < self.next || self.queue.entries.tail_is_after(self.started)
    }

    /// When the transport timer runs out.
    #[inline]
    pub(crate) fn timer(&self) -> Time {
        self.timer
    }

    /// Until when nothing is sent, if that is what keeps it from sending.
    #[inline]
    pub(crate) fn held_until(&self) -> Time {
        if self.hold_until == Time::ZERO {
            Time::NEVER
        } else {
            self.hold_until
        }
    }

    /// Restarts or stops the transport timer after an answer, or after something was sent.
    #[inline]
    pub(super) fn restart_timer(&mut self, now: Time) {
        self.timer = match self.timeout {
            Some(t) if self.in_flight() => now + t,
            _ => Time::NEVER,
        };
    }

    /// After `una` has moved: nothing before it needs sending.
    #[inline]
    pub(super) fn skip_answered(&mut self) {
        if self.cursor < self.una {
            self.cursor = self.una;
            self.cursor_request = self.request_at(self.una);
        }
    }

    /// Sends from `position` on again. Does nothing if that is already under way.
    pub(super) fn rewind(&mut self, position: u64) {
        self.una = self.una.min(position);
        self.timer = Time::NEVER;
        if position >= self.cursor {
            return;
        }
        self.cursor = position;
        self.cursor_request = self.request_at(position);
        self.reads_out = (self.head()..self.cursor_request)
            .filter(|&r| self.flight(r).is_read)
            .count() as u32;
    }
}

impl Qp {
    /// Goes back after the loss of the packet at `lost`, as the card's recovery has it.
    pub(super) fn go_back(&mut self, now: Time, lost: u64, desk: &mut Desk) {
        let r = &mut self.requester;
        let message = r.flight(r.request_at(lost)).first;
        let to = desk.config.recovery.resume(lost, message);
        r.rewind(to);
        let until = now + desk.config.timing.retransmit;
        if until > now {
            r.hold_until = r.hold_until.max(until);
        }
        self.recent.note(
            now,
            Rare::Resend {
                psn: psn_at(self.requester.first_psn, to),
            },
        );
    }

    /// The next request packet, if one can be sent now.
    pub(crate) fn next_request<E: Env>(
        &mut self,
        now: Time,
        desk: &mut Desk,
        env: &mut E,
    ) -> Option<Packet> {
        if now < self.requester.hold_until || !matches!(self.state, State::Rts | State::Sqd) {
            return None;
        }
        self.requester.hold_until = Time::ZERO;
        if self.requester.cursor_request == self.requester.started && !self.start(now, desk) {
            return None;
        }
        let path = self.path?;
        let r = &mut self.requester;
        let entry = *r.queue.entries.peek(r.cursor_request)?;
        let flight = r.flight(r.cursor_request);
        let at = (r.cursor - flight.first) as u32;
        let mtu = u64::from(self.mtu.bytes());
        let offset = u64::from(at) * mtu;

        let bth = Bth::new(
            Opcode::RC_SEND_ONLY,
            self.dest_qp,
            psn_at(r.first_psn, r.cursor),
        );
        let mut packet = packet(&path, path.priority, bth);
        let last;
        if let Work::Read(remote) = entry.work {
            if r.reads_out >= r.max_rd_atomic {
                return None;
            }
            r.reads_out += 1;
            last = true;
            packet.bth = packet.bth.with_opcode(Opcode::RC_READ_REQUEST);
            packet.ext = Ext::Reth(Reth {
                va: remote.addr.wrapping_add(offset),
                rkey: remote.rkey,
                dma_len: (entry.len - offset) as u32,
            });
        } else {
            let len = (entry.len - offset).min(mtu) as u16;
            last = at + 1 == flight.packets;
            (packet.payload, packet.bth) = match stage(
                &r.queue.sges,
                &entry,
                self.init.pd,
                offset,
                len,
                &desk.memory,
                env,
            ) {
                Ok(payload) => (
                    payload,
                    packet.bth.with_opcode(opcode(entry.work, at == 0, last)),
                ),
                Err(status) => {
                    self.fail_local(now, status, desk);
                    return None;
                }
            };
            packet.ext = ext(&entry, at == 0, last);
        }

        let again = r.cursor < r.sent;
        r.since_ack_req += 1;
        let ack_req = last || r.since_ack_req >= desk.config.ack_every;
        if ack_req {
            r.since_ack_req = 0;
        }
        packet.bth = packet
            .bth
            .with_ack_req(ack_req)
            .with_solicited(last && entry.solicited)
            .with_pad_count(packet.payload.pad_count());
        packet.frame_len = frame_len(&path, &packet);

        r.cursor = if matches!(entry.work, Work::Read(_)) {
            flight.end()
        } else {
            r.cursor + 1
        };
        if r.cursor == flight.end() {
            r.cursor_request += 1;
        }
        r.sent = r.sent.max(r.cursor);
        if r.timer == Time::NEVER {
            r.restart_timer(now);
        }
        desk.counters.request_packets += 1;
        desk.counters.retransmitted_packets += u64::from(again);
        env.observe(|| Deed::Request { packet, again });
        Some(packet)
    }

    /// Numbers the packets of the next work request, if it may begin.
    fn start(&mut self, now: Time, desk: &mut Desk) -> bool {
        let r = &mut self.requester;
        if self.state != State::Rts || r.failure.is_some() {
            return false;
        }
        let Some(entry) = r.queue.entries.get(r.started).copied() else {
            return false;
        };
        r.queue.sges.tail();
        if entry.len > MAX_MESSAGE_LEN {
            self.fail_local(now, Status::LocalLengthError, desk);
            return false;
        }
        let is_read = matches!(entry.work, Work::Read(_));
        // It would wait for ever.
        if is_read && r.max_rd_atomic == 0 {
            self.fail_local(now, Status::LocalQpOperationError, desk);
            return false;
        }
        if entry.fence && r.reads_out > 0 {
            return false;
        }
        let takes_receive = matches!(
            entry.work,
            Work::Send | Work::SendImmediate(_) | Work::WriteImmediate(..)
        );
        if takes_receive && r.started > r.credit_limit {
            return false;
        }
        let packets = entry.len.div_ceil(u64::from(self.mtu.bytes())).max(1) as u32;
        if r.next + u64::from(packets) - r.una > WINDOW {
            return false;
        }
        let slot = r.started as usize & (r.flights.len() - 1);
        r.flights[slot] = Flight {
            first: r.next,
            packets,
            is_read,
        };
        r.next += u64::from(packets);
        r.started += 1;
        true
    }

    /// The request at the cursor cannot be sent. Those before it are completed first, so it waits for
    /// its turn if any is without answer.
    fn fail_local(&mut self, now: Time, status: Status, desk: &mut Desk) {
        let r = &mut self.requester;
        r.failure = Some(status);
        // Packets of it that are already out end with the connection; it is not begun again.
        if r.started > r.cursor_request {
            r.started = r.cursor_request;
            r.next = r.flight(r.cursor_request).first;
            r.cursor = r.cursor.min(r.next);
            r.una = r.una.min(r.next);
        }
        self.settle(now, desk);
    }

    /// Completes a request that failed here, once it is the oldest.
    pub(super) fn settle(&mut self, now: Time, desk: &mut Desk) {
        let r = &mut self.requester;
        if let Some(status) = r.failure
            && r.head() == r.started
        {
            self.fail_oldest(now, status, desk);
        }
    }

    /// Completes the oldest request with `status`, and all others as flushed.
    pub(super) fn fail_oldest(&mut self, now: Time, status: Status, desk: &mut Desk) {
        if let Some(entry) = self.requester.retire() {
            let c = self.send_completion(&entry, status, 0);
            self.set_state(now, State::Error);
            self.complete(now, self.init.send_cq, c, desk);
        }
        self.enter_error(now, desk);
    }

    /// The clock has reached the requester's deadline.
    pub(crate) fn requester_timeout(&mut self, now: Time, desk: &mut Desk) {
        let r = &mut self.requester;
        // A pause is over even if nothing is left to send after it.
        if r.hold_until <= now {
            r.hold_until = Time::ZERO;
        }
        if r.timer > now {
            return;
        }
        r.timer = Time::NEVER;
        if !r.in_flight() {
            return;
        }
        let psn = psn_at(r.first_psn, r.una);
        self.recent.note(
            now,
            Rare::Timeout {
                psn,
                retries_left: r.retries_left,
            },
        );
        desk.counters.timeouts += 1;
        let lost = r.una;
        self.retry(now, lost, desk);
    }

    /// Goes back to `lost` if a retry is left, and fails the request it belongs to otherwise (C9-142).
    pub(super) fn retry(&mut self, now: Time, lost: u64, desk: &mut Desk) {
        if self.requester.retries_left == 0 {
            self.fail_oldest(now, Status::RetryExceeded, desk);
        } else {
            self.requester.retries_left -= 1;
            self.go_back(now, lost, desk);
        }
    }

    /// The doorbell of the send queue was rung.
    pub(crate) fn send_doorbell(&mut self, now: Time, desk: &Desk) {
        let r = &mut self.requester;
        let idle = r.cursor == r.next && r.cursor_request + 1 >= r.queue.entries.tail();
        if idle && desk.config.timing.doorbell > Span::ZERO {
            r.hold_until = r.hold_until.max(now + desk.config.timing.doorbell);
        }
    }
}

/// A packet without extended headers and payload, from the owner of `path`.
#[inline]
pub(super) fn packet(path: &Path, priority: u8, bth: Bth) -> Packet {
    Packet {
        ext: Ext::None,
        bth,
        route: path.route,
        payload: Payload::EMPTY,
        frame_len: 0,
        priority,
        ecn: Ecn::NotCapable,
        damage: Damage::None,
        hop_limit: path.hop_limit,
    }
}

#[inline]
pub(super) fn frame_len(path: &Path, packet: &Packet) -> u16 {
    path.overhead
        + Bth::LEN as u16
        + packet.ext.len()
        + packet.payload.len()
        + u16::from(packet.payload.pad_count())
}

/// Opcode of a SEND or WRITE packet. READ requests have one of their own.
#[inline]
fn opcode(work: Work, first: bool, last: bool) -> Opcode {
    let (base, immediate) = match work {
        Work::Send => (Opcode::RC_SEND_FIRST, false),
        Work::SendImmediate(_) => (Opcode::RC_SEND_FIRST, true),
        Work::Write(_) => (Opcode::RC_WRITE_FIRST, false),
        Work::WriteImmediate(..) => (Opcode::RC_WRITE_FIRST, true),
        Work::Read(_) => (Opcode::RC_READ_REQUEST, false),
    };
    // First, Middle, Last, Last with immediate, Only, Only with immediate: in this order for both.
    let place = match (first, last) {
        (true, false) => 0,
        (false, false) => 1,
        (false, true) => 2 + u8::from(immediate),
        (true, true) => 4 + u8::from(immediate),
    };
    Opcode(base.0 + place)
}

#[inline]
fn ext(entry: &SendEntry, first: bool, last: bool) -> Ext {
    match entry.work {
        Work::SendImmediate(i) if last => Ext::Immediate(i),
        Work::Write(remote) | Work::WriteImmediate(remote, _) if first => {
            let reth = Reth {
                va: remote.addr,
                rkey: remote.rkey,
                dma_len: entry.len as u32,
            };
            match entry.work {
                Work::WriteImmediate(_, i) if last => Ext::RethImmediate(reth, i),
                _ => Ext::Reth(reth),
            }
        }
        Work::WriteImmediate(_, i) if last => Ext::Immediate(i),
        _ => Ext::None,
    }
}

/// Takes a snapshot of `len` bytes from `offset` on of the request's elements.
#[inline]
fn stage<E: Env>(
    sges: &Reader<Sge>,
    entry: &SendEntry,
    pd: Pd,
    offset: u64,
    len: u16,
    memory: &Memory,
    env: &mut E,
) -> Result<Payload, Status> {
    if len == 0 {
        return Ok(Payload::EMPTY);
    }
    let mut checked = Ok(());
    pieces(sges, entry.sges, offset, len, |sge, addr, _, n| {
        if memory
            .local(sge.lkey, pd, addr, n as u64, Access::LOCAL_READ)
            .is_err()
        {
            checked = Err(Status::LocalProtectionError);
        }
    });
    checked?;
    Ok(env.stage(len, |out| {
        pieces(sges, entry.sges, offset, len, |sge, addr, at, n| {
            if let Ok(region) = memory.local(sge.lkey, pd, addr, n as u64, Access::LOCAL_READ) {
                region.read(addr, &mut out[at..at + n]);
            }
        });
    }))
}

/// Calls `each` with the element, the address, the offset in the packet and the length of every piece
/// of `len` bytes from `offset` on in the elements of `run`.
#[inline]
pub(super) fn pieces(
    sges: &Reader<Sge>,
    run: SgeRun,
    mut offset: u64,
    len: u16,
    mut each: impl FnMut(&Sge, u64, usize, usize),
) {
    let mut done = 0usize;
    for i in 0..u64::from(run.count) {
        let Some(sge) = sges.peek(run.first + i) else {
            return;
        };
        if offset >= u64::from(sge.len) {
            offset -= u64::from(sge.len);
            continue;
        }
        let n = (u64::from(sge.len) - offset).min((usize::from(len) - done) as u64) as usize;
        // An address that wraps is refused by the look-up, whose range check starts from it.
        each(sge, sge.addr.wrapping_add(offset), done, n);
        done += n;
        offset = 0;
        if done == usize::from(len) {
            return;
        }
    }
}
