//! One end: a queue pair of a device, and memory.

use super::capture::Capture;
use super::exchange::{Address, Control};
use super::{Options, PingpongError};
use crate::device::Opened;
use crate::idle::{Idle, PAUSE};
use softroce_sim::random::Stream;
use softroce_verbs::{
    Access, Completion, CompletionQueue, Connection, Context, Endpoint, MemoryRegion, Psn, QpType,
    QueuePair, RecvRequest, Reliability, Remote, SendRequest, Sge, Status, Work,
};
use std::collections::VecDeque;
use std::time::Duration;

/// Send requests that are ever outstanding.
const SEND_DEPTH: u32 = 4;
/// Marks the numbers of receive requests.
const RECEIVE_ID: u64 = 1 << 63;

/// Parts of an end's memory, each as long as a message, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// What is sent and written.
    Source = 0,
    /// Where messages arrive.
    Receive = 1,
    /// Where the peer's WRITE goes.
    Write = 2,
    /// Where the peer's WRITE with immediate data goes.
    WriteImmediate = 3,
    /// What the peer READs.
    ReadSource = 4,
    /// Where what is READ goes.
    ReadTarget = 5,
}

const PARTS: u64 = 6;

/// What only a card on a socket has.
#[derive(Debug)]
pub(super) struct Socket<'a> {
    pub(super) opened: &'a Opened,
    pub(super) capture: Option<Capture>,
}

/// A queue pair and memory on a device.
#[derive(Debug)]
pub(super) struct Session<'a> {
    context: Context,
    socket: Option<&'a Socket<'a>>,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
    own: Address,
    peer: Option<Address>,
    control: Option<Control>,
    size: u32,
    idle_limit: Duration,
    rx_depth: u32,
    posted: u64,
    sent: u64,
    /// Receive requests in the queue.
    receives: u32,
    received: VecDeque<Completion>,
    /// When something came from the peer that was not just a request to wait.
    last_progress: Duration,
    idle: Idle,
    /// Packets received of the peer so far, without requests to wait.
    heard: u64,
}

impl Session<'_> {
    pub(super) fn open<'a>(
        context: &Context,
        socket: Option<&'a Socket<'a>>,
        options: &Options,
        seed: u64,
    ) -> Result<Session<'a>, PingpongError> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(options.rx_depth + SEND_DEPTH, None)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        // There is no region of nothing.
        let len = (u64::from(options.size) * PARTS).max(1);
        let region = pd.reg_new(len as usize, access)?;
        let qp = pd
            .create_qp(QpType::Rc)
            .cq(&cq)
            .max_send_wr(SEND_DEPTH)
            .max_recv_wr(options.rx_depth)
            .build()?;
        let mut own = qp.endpoint(Psn::default())?;
        // Two ends started with the same seed are still two.
        let mut stream = Stream::new(seed, &format!("pingpong at {}", own.gid));
        own.psn = Psn::new(stream.bits() as u32);
        Ok(Session {
            context: context.clone(),
            socket,
            cq,
            qp,
            region,
            own: Address {
                lid: 0,
                qpn: own.qp,
                psn: own.psn,
                gid: own.gid,
            },
            peer: None,
            control: None,
            size: options.size,
            idle_limit: options.idle_limit(),
            rx_depth: options.rx_depth,
            posted: 0,
            sent: 0,
            receives: 0,
            received: VecDeque::new(),
            last_progress: context.now(),
            idle: Idle::new(context),
            heard: 0,
        })
    }

    pub(super) fn address(&self) -> Address {
        self.own
    }

    /// The present.
    pub(super) fn now(&self) -> Duration {
        self.context.now()
    }

    /// The memory that the peer may WRITE and READ.
    pub(super) fn remote(&self) -> (Remote, u64) {
        (self.region.remote(0), u64::from(self.size) * PARTS)
    }

    /// Brings the queue pair up towards `peer`, and posts receive requests.
    pub(super) fn connect(
        &mut self,
        peer: &Address,
        options: &Options,
    ) -> Result<(), PingpongError> {
        let other = Endpoint {
            qp: peer.qpn,
            psn: peer.psn,
            gid: peer.gid,
        };
        let connection = Connection {
            path_mtu: options.mtu,
            reliability: Reliability {
                timeout: options.timeout,
                retry_cnt: options.retry_cnt,
                ..Reliability::default()
            },
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
            sl: options.sl,
            ..Connection::default()
        };
        self.qp.connect(self.own.psn, &other, &connection)?;
        self.peer = Some(*peer);
        self.post_receives()
    }

    /// From here on the peer's connection is watched.
    pub(super) fn watch(&mut self, control: Control) {
        self.control = Some(control);
        self.last_progress = self.now();
    }

    /// A part of the memory, for a request; a message of no bytes has none.
    fn sges(&self, part: Part) -> ([Sge; 1], usize) {
        let sge = self.region.sge(self.offset(part) as u64, self.size);
        ([sge], usize::from(self.size > 0))
    }

    fn offset(&self, part: Part) -> usize {
        part as usize * self.size as usize
    }

    /// Where a part of the memory at `base` begins, at either end.
    pub(super) fn part_of(&self, base: Remote, part: Part) -> Remote {
        Remote {
            addr: base.addr.wrapping_add(self.offset(part) as u64),
            rkey: base.rkey,
        }
    }

    /// Fills the receive queue.
    pub(super) fn post_receives(&mut self) -> Result<(), PingpongError> {
        let (sges, n) = self.sges(Part::Receive);
        while self.receives < self.rx_depth {
            self.qp.post_recv(&RecvRequest {
                wr_id: RECEIVE_ID,
                sges: &sges[..n],
            })?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Fills the receive queue when it is about to run out, as `ibv_rc_pingpong` does.
    pub(super) fn top_up(&mut self) -> Result<(), PingpongError> {
        if self.receives <= 1 {
            self.post_receives()?;
        }
        Ok(())
    }

    /// Posts a request on a part of the memory.
    pub(super) fn post(&mut self, work: Work, part: Part) -> Result<(), PingpongError> {
        let (sges, n) = self.sges(part);
        let request = SendRequest::new(self.posted, work, &sges[..n]);
        self.qp.post_send(&request)?;
        self.posted += 1;
        Ok(())
    }

    /// Waits until every posted request is done.
    pub(super) fn wait_sent(&mut self, what: &str) -> Result<(), PingpongError> {
        self.wait(what, |s| (s.sent == s.posted).then_some(()))
    }

    /// Waits for the next message that uses up a receive request.
    pub(super) fn wait_received(&mut self, what: &str) -> Result<Completion, PingpongError> {
        self.wait(what, |s| s.received.pop_front())
    }

    /// Serves the peer until it is done too, so that no answer it needs is missing.
    pub(super) fn linger(&mut self, plain: Duration) -> Result<(), PingpongError> {
        let start = self.now();
        let limit = match &mut self.control {
            Some(control) => {
                control.say_done();
                self.idle_limit
            }
            None => plain,
        };
        while self.now().saturating_sub(start) < limit {
            if let Some(control) = &mut self.control
                && (control.peer_is_done() || control.peer_is_gone())
            {
                break;
            }
            self.context.sleep(PAUSE)?;
        }
        Ok(())
    }

    fn wait<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, PingpongError> {
        loop {
            let mut moved = false;
            while let Some(completion) = self.cq.poll()? {
                self.completed(what, completion)?;
                moved = true;
            }
            if let Some(outcome) = ready(self) {
                self.idle.moved();
                return Ok(outcome);
            }
            let cq = &mut self.cq;
            if let Some(now) = self.idle.round(moved, |limit| cq.rest(limit))? {
                self.look_after(now, what)?;
            }
        }
    }

    fn completed(&mut self, what: &str, completion: Completion) -> Result<(), PingpongError> {
        if completion.status != Status::Success {
            return Err(self.failed(what, completion));
        }
        if completion.wr_id == RECEIVE_ID {
            self.receives -= 1;
            self.received.push_back(completion);
        } else {
            self.sent += 1;
        }
        self.last_progress = self.now();
        Ok(())
    }

    /// Looks whether the peer is still there, when nothing has come for a while.
    fn look_after(&mut self, now: Duration, what: &str) -> Result<(), PingpongError> {
        if let Some(capture) = self.socket.and_then(|s| s.capture.as_ref()) {
            capture.idle();
        }
        // A card that counts tells of packets that complete nothing yet.
        if let Some(report) = self.socket.and_then(|s| s.opened.report()) {
            let waits = report.card.rnr_naks_sent + report.card.rnr_naks_received;
            let heard = report.card.received_packets.saturating_sub(waits);
            if heard > self.heard {
                self.last_progress = now;
            }
            self.heard = heard;
        }
        // Requests under way may take hours to fail, or for ever: nothing here waits for that.
        if self.control.as_mut().is_some_and(Control::peer_is_gone) {
            return Err(PingpongError::PeerGone { what: what.into() });
        }
        if now.saturating_sub(self.last_progress) >= self.idle_limit {
            return Err(PingpongError::Stuck {
                what: what.into(),
                seconds: self.idle_limit.as_secs(),
            });
        }
        Ok(())
    }

    /// Everything that explains a completion in error, in one line.
    fn failed(&mut self, what: &str, completion: Completion) -> PingpongError {
        let status = completion.status;
        let mut why = format!(
            "{status} (status {}), QPN {:#08x} at {}",
            status.number(),
            self.own.qpn.get(),
            self.own.gid
        );
        if let Some(peer) = &self.peer {
            why += &format!(" to QPN {:#08x} at {}", peer.qpn.get(), peer.gid);
        }
        if let Some(report) = self.socket.and_then(|s| s.opened.report()) {
            why += &format!(
                ", {} timeouts, {} NAKs received",
                report.card.timeouts,
                report.card.naks_received.total() + report.card.rnr_naks_received
            );
        }
        while let Ok(Some(event)) = self.context.get_async_event(Some(Duration::ZERO)) {
            why += &format!("; event {event:?}");
        }
        if let Some(e) = self.socket.and_then(|s| s.opened.last_send_error()) {
            why += &format!("; {e}");
        }
        if self.control.as_mut().is_some_and(Control::peer_is_gone) {
            why += "; the peer closed its connection: it has ended";
        }
        let what = what.into();
        PingpongError::Failed { what, why }
    }

    /// Fills a part with the pattern called `seed`.
    pub(super) fn fill(&self, part: Part, seed: u64) {
        let bytes: Vec<u8> = pattern(seed).take(self.size as usize).collect();
        self.region.memory().write_at(self.offset(part), &bytes);
    }

    /// Compares a part with the pattern called `seed`.
    pub(super) fn verify(&self, part: Part, seed: u64, what: &str) -> Result<(), PingpongError> {
        let mut bytes = vec![0; self.size as usize];
        self.region.memory().read_at(self.offset(part), &mut bytes);
        let differs = bytes.iter().zip(pattern(seed)).enumerate();
        for (offset, (&found, expected)) in differs {
            if found != expected {
                return Err(PingpongError::Data {
                    what: what.into(),
                    offset,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// Bytes that differ from place to place and from seed to seed: SplitMix64.
fn pattern(seed: u64) -> impl Iterator<Item = u8> {
    (0u64..).flat_map(move |i| {
        let mut z = seed
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
            .wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31).to_le_bytes()
    })
}
