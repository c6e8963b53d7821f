//! One end: a card on a port, a queue pair, and memory.

use super::capture::Capture;
use super::exchange::{Address, Control};
use super::report::CountersReport;
use super::{Options, PingpongError};
use softroce_sim::card::{
    AddressVector, Card, Completion, CompletionQueue, Peer, QpAttributes, QpInit, QpType,
    QueuePair, RecvRequest, Reliability, Remote, SendRequest, Sge, Status, Work,
};
use softroce_sim::faults::{Action, Fault, Pattern};
use softroce_sim::memory::{Access, Buffer, MemoryRegion};
use softroce_sim::port::{self, PortConfig, UdpConfig, UdpPort};
use softroce_sim::random::Probability;
use softroce_sim::wire::MacAddr;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a look at the port lasts before the peer's TCP connection is looked at.
const SLICE: Duration = Duration::from_millis(20);
/// How long to look without sleeping, as `ibv_rc_pingpong` does: a sleep costs more than a message.
const SPIN: Duration = Duration::from_millis(1);
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

/// A card on a port, with one queue pair.
#[derive(Debug)]
pub(super) struct Session {
    port: UdpPort,
    card: Card,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: Buffer,
    region: MemoryRegion,
    own: Address,
    peer: Option<Address>,
    control: Option<Control>,
    capture: Option<Capture>,
    size: u32,
    idle_limit: Duration,
    rx_depth: u32,
    posted: u64,
    sent: u64,
    /// Receive requests in the queue.
    receives: u32,
    received: VecDeque<Completion>,
    /// When something came from the peer that was not just a request to wait.
    last_progress: Instant,
    rnr_naks: u64,
}

impl Session {
    pub(super) fn open(options: &Options) -> Result<Session, PingpongError> {
        let seed = match options.seed {
            Some(seed) => seed,
            None => port::seed()?,
        };
        let mut faults = Vec::new();
        if options.loss != Probability::ZERO {
            faults.push(Fault::new(Action::Drop).when(Pattern::Random(options.loss)));
        }
        let mut port = UdpPort::open(&UdpConfig {
            address: options.bind,
            common: PortConfig {
                spin: SPIN,
                faults,
                fault_seed: seed,
                ..PortConfig::default()
            },
            ..UdpConfig::default()
        })?;
        let capture = match &options.capture {
            Some(path) => Some(Capture::create(path, &format!("udp {}", port.address()))?),
            None => None,
        };
        if let Some(capture) = &capture {
            port.set_tap(Some(Box::new(capture.clone())));
        }
        // Two ends started with the same seed are still two cards.
        let name = format!("softroce at {}", port.gid());
        let mut card = Card::new(port.card_config(&name), seed, port.routes());
        let pd = card.alloc_pd();
        let cq = card.create_cq(options.rx_depth + SEND_DEPTH)?;
        let memory = Buffer::new((u64::from(options.size) * PARTS) as usize);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = card.register(pd, memory.clone(), access)?;
        let qp = card.create_qp(&QpInit {
            max_recv_wr: options.rx_depth,
            ..QpInit::new(QpType::Rc, pd, cq.id(), SEND_DEPTH)
        })?;
        let own = Address {
            lid: 0,
            qpn: qp.number(),
            psn: card.draw_psn(),
            gid: port.gid(),
        };
        Ok(Session {
            port,
            card,
            cq,
            qp,
            memory,
            region,
            own,
            peer: None,
            control: None,
            capture,
            size: options.size,
            idle_limit: options.idle_limit(),
            rx_depth: options.rx_depth,
            posted: 0,
            sent: 0,
            receives: 0,
            received: VecDeque::new(),
            last_progress: Instant::now(),
            rnr_naks: 0,
        })
    }

    pub(super) fn address(&self) -> Address {
        self.own
    }

    /// The memory that the peer may WRITE and READ.
    pub(super) fn remote(&self) -> (Remote, u64) {
        let remote = Remote {
            addr: self.region.addr,
            rkey: self.region.rkey,
        };
        (remote, self.region.len)
    }

    /// Brings the queue pair up towards `peer`, and posts receive requests.
    pub(super) fn connect(
        &mut self,
        peer: &Address,
        options: &Options,
    ) -> Result<(), PingpongError> {
        let now = self.port.now();
        let number = self.own.qpn;
        let mut modify = |attributes| self.card.modify_qp(now, number, &attributes);
        let address = AddressVector {
            dgid: peer.gid,
            dmac: MacAddr::default(),
            sl: options.sl,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            udp_src: None,
            vlan: None,
        };
        let other = Peer {
            address,
            path_mtu: options.mtu,
            qp: peer.qpn,
            psn: peer.psn,
        };
        let reliability = Reliability {
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            ..Reliability::default()
        };
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        modify(QpAttributes::to_init(access))?;
        modify(QpAttributes::to_rtr(&other, Some(&reliability)))?;
        modify(QpAttributes::to_rts(self.own.psn, Some(&reliability)))?;
        self.peer = Some(*peer);
        self.post_receives()
    }

    /// From here on the peer's TCP connection is watched.
    pub(super) fn watch(&mut self, control: Control) {
        self.control = Some(control);
        self.last_progress = Instant::now();
    }

    fn sge(&self, part: Part) -> Sge {
        Sge {
            addr: self.region.addr + self.offset(part) as u64,
            len: self.size,
            lkey: self.region.lkey,
        }
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
        let sge = self.sge(Part::Receive);
        while self.receives < self.rx_depth {
            self.qp.post_recv(&RecvRequest {
                wr_id: RECEIVE_ID,
                sges: &[sge],
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
        let sge = self.sge(part);
        self.qp
            .post_send(&SendRequest::new(self.posted, work, &[sge]))?;
        self.posted += 1;
        self.card.doorbell(self.port.now(), self.own.qpn);
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
        let start = Instant::now();
        let limit = match &self.control {
            Some(control) => {
                control.say_done();
                self.idle_limit
            }
            None => plain,
        };
        while start.elapsed() < limit {
            if let Some(control) = &mut self.control
                && (control.peer_is_done() || control.peer_is_gone())
            {
                break;
            }
            let activity = self
                .port
                .run_once(&mut self.card, Duration::from_millis(1))?;
            if !activity.any() {
                self.idle_capture();
            }
        }
        Ok(())
    }

    fn wait<T>(
        &mut self,
        what: &str,
        mut ready: impl FnMut(&mut Session) -> Option<T>,
    ) -> Result<T, PingpongError> {
        loop {
            while let Some(completion) = self.cq.poll() {
                self.completed(what, completion)?;
            }
            if let Some(outcome) = ready(self) {
                return Ok(outcome);
            }
            let activity = self.port.run_once(&mut self.card, SLICE)?;
            if !activity.any() {
                self.idle_capture();
            }
            let counters = self.card.counters();
            let rnr_naks = counters.rnr_naks_sent + counters.rnr_naks_received;
            if activity.received > 0 && rnr_naks == self.rnr_naks {
                self.last_progress = Instant::now();
            } else if rnr_naks != self.rnr_naks || !activity.any() {
                self.check_peer(what)?;
            }
            self.rnr_naks = rnr_naks;
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
        Ok(())
    }

    /// Looks whether the peer is still there, when nothing has come for a while.
    fn check_peer(&mut self, what: &str) -> Result<(), PingpongError> {
        // Requests under way may take hours to fail, or for ever: nothing here waits for that.
        if self.control.as_mut().is_some_and(Control::peer_is_gone) {
            return Err(PingpongError::PeerGone { what: what.into() });
        }
        if self.last_progress.elapsed() >= self.idle_limit {
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
            status as u8,
            self.own.qpn.get(),
            self.own.gid
        );
        if let Some(peer) = &self.peer {
            why += &format!(" to QPN {:#08x} at {}", peer.qpn.get(), peer.gid);
        }
        let counters = self.card.counters();
        why += &format!(
            ", {} timeouts, {} NAKs received",
            counters.timeouts,
            counters.naks_received.total() + counters.rnr_naks_received
        );
        while let Some(event) = self.card.next_event() {
            why += &format!("; event {event:?}");
        }
        if let Some(e) = self.port.last_send_error() {
            why += &format!("; {e}");
        }
        if self.control.as_mut().is_some_and(Control::peer_is_gone) {
            why += "; the peer closed its TCP connection: it has ended";
        }
        let what = what.into();
        PingpongError::Failed { what, why }
    }

    /// Fills a part with the pattern called `seed`.
    pub(super) fn fill(&self, part: Part, seed: u64) {
        let bytes: Vec<u8> = pattern(seed).take(self.size as usize).collect();
        self.memory.write_at(self.offset(part), &bytes);
    }

    /// Compares a part with the pattern called `seed`.
    pub(super) fn verify(&self, part: Part, seed: u64, what: &str) -> Result<(), PingpongError> {
        let mut bytes = vec![0; self.size as usize];
        self.memory.read_at(self.offset(part), &mut bytes);
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

    pub(super) fn counters(&self) -> CountersReport {
        CountersReport::new(&self.card.counters(), self.port.counters())
    }

    fn idle_capture(&self) {
        if let Some(capture) = &self.capture {
            capture.idle();
        }
    }

    pub(super) fn finish_capture(&mut self) -> Result<(), PingpongError> {
        self.port.set_tap(None);
        match &self.capture {
            Some(capture) => capture.finish(),
            None => Ok(()),
        }
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
