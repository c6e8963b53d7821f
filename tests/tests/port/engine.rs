//! Cards that run by themselves: programs that sleep, poll, wait and go away.

use crate::ends::{Channel, Frames, PATIENCE, random, read};
use softroce_sim::card::{
    AsyncEvent, Card, Completion, CompletionQueue, CqId, Mtu, Notify, QpAttributes, RecvRequest,
    State, Status, Work,
};
use softroce_sim::port::{
    ChannelDevice, Direction, Engine, EngineError, EthernetConfig, EthernetPort, EventChannel,
    FrameDevice, Link, Port, UdpConfig, UdpPort, seed,
};
use softroce_sim::random::Stream;
use softroce_sim::wire::frame::FrameView;
use softroce_sim::wire::{MacAddr, Opcode, Psn, QpNumber};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A program's things on an engine.
struct Side {
    engine: Engine,
    cq: CompletionQueue,
    events: EventChannel<CqId>,
    channel: Channel,
}

impl Side {
    fn of(engine: &Engine) -> Side {
        let (cq, channel) = engine
            .control(|card, _| {
                let cq = card.create_cq(256).unwrap();
                let channel = Channel::new(card, &cq);
                (cq, channel)
            })
            .unwrap();
        let events = engine.create_channel().unwrap();
        engine.set_channel(cq.id(), Some(&events));
        Side {
            engine: engine.clone(),
            cq,
            events,
            channel,
        }
    }

    fn udp() -> Side {
        Side::of(&start(UdpPort::open(&UdpConfig::default()).unwrap()))
    }

    fn connect(&mut self, (gid, qp, psn): (softroce_sim::wire::Gid, QpNumber, Psn), timeout: u8) {
        let channel = &mut self.channel;
        self.engine
            .control(|card, _| channel.connect(card, (gid, qp, psn), Mtu::M1024, timeout))
            .unwrap();
        channel.receive();
    }

    fn address(&self) -> (softroce_sim::wire::Gid, QpNumber, Psn) {
        self.channel.address(self.engine.gid())
    }

    fn post(&mut self, work: Work, len: usize) {
        self.channel.send(work, len);
        self.engine.doorbell(self.channel.qp.number()).unwrap();
    }

    /// The next completion, by polling.
    fn poll(&mut self) -> Completion {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(completion) = self.cq.poll() {
                return completion;
            }
            self.engine.drive().unwrap();
        }
        panic!("no completion: {:?}", self.engine.port_counters());
    }

    /// The next completion, by sleeping until it is told of.
    fn wait(&mut self) -> Completion {
        loop {
            if let Some(completion) = self.cq.poll() {
                return completion;
            }
            self.arm();
            if let Some(completion) = self.cq.poll() {
                return completion;
            }
            let event = self.events.wait(Some(PATIENCE)).unwrap();
            assert_eq!(event, Some(self.cq.id()));
        }
    }

    fn arm(&mut self) {
        let cq = self.cq.id();
        self.engine
            .control(|card, _| card.request_notify(cq, Notify::Next))
            .unwrap()
            .unwrap();
    }
}

fn start<L: Link + Send + 'static>(port: Port<L>) -> Engine {
    let card = Card::new(port.card_config("card"), seed().unwrap(), port.routes());
    Engine::start(port, card).unwrap()
}

fn connected([mut a, mut b]: [Side; 2]) -> [Side; 2] {
    let (to_a, to_b) = (a.address(), b.address());
    a.connect(to_b, 14);
    b.connect(to_a, 14);
    [a, b]
}

fn pair() -> [Side; 2] {
    connected([Side::udp(), Side::udp()])
}

/// Two engines on the ends of a cable inside the process.
fn cable() -> [Side; 2] {
    let (a, b) = ChannelDevice::pair(256);
    let end = |device, last| {
        let mac = MacAddr([2, 0, 0, 0, 0, last]);
        let config = EthernetConfig::new(Ipv4Addr::new(10, 0, 0, last).into(), mac);
        Side::of(&start(EthernetPort::open(device, &config).unwrap()))
    };
    connected([end(a, 1), end(b, 2)])
}

#[test]
fn a_program_that_sleeps_is_read_and_written() {
    for [mut a, b] in [pair(), cable()] {
        let mut stream = Stream::new(1, "data");
        // The other end is never touched again; its card works all the same.
        for len in [1, 1024, 50_000] {
            let (ours, theirs) = (random(&mut stream, len), random(&mut stream, len));
            a.channel.memory.write_at(0, &ours);
            a.post(Work::Write(b.channel.remote()), len);
            assert_eq!(a.poll().status, Status::Success);
            assert_eq!(read(&b.channel.memory, len), ours);
            b.channel.memory.write_at(0, &theirs);
            a.post(Work::Read(b.channel.remote()), len);
            assert_eq!(a.wait().status, Status::Success);
            assert_eq!(read(&a.channel.memory, len), theirs);
        }
    }
}

/// Messages to and fro, each end's completions taken by `next`.
fn volley(sides: [Side; 2], rounds: u32, next: [fn(&mut Side) -> Completion; 2]) {
    let [mut a, mut b] = sides;
    let other = std::thread::spawn(move || {
        for _ in 0..rounds {
            while next[1](&mut b).byte_len != 8 {}
            b.channel.receive();
            b.post(Work::Send, 8);
        }
        // What it has sent is acknowledged even if it goes now.
        b
    });
    for _ in 0..rounds {
        a.post(Work::Send, 8);
        while next[0](&mut a).byte_len != 8 {}
        a.channel.receive();
    }
    other.join().unwrap();
}

#[test]
fn programs_that_poll_and_programs_that_sleep_understand_each_other() {
    for make in [pair, cable] {
        volley(make(), 3000, [Side::poll, Side::poll]);
        volley(make(), 1000, [Side::wait, Side::wait]);
        volley(make(), 1000, [Side::poll, Side::wait]);
    }
}

#[test]
fn a_program_that_sleeps_is_woken_at_once() {
    // By the clock of whoever sends: there and back and there again, no nap of a millisecond in between.
    for make in [pair, cable] {
        let start = Instant::now();
        volley(make(), 2000, [Side::wait, Side::wait]);
        let each = start.elapsed() / 4000;
        assert!(each < Duration::from_micros(800), "{each:?} a message");
    }
}

#[test]
fn an_event_descriptor_can_be_polled_beside_others() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let [mut a, mut b] = pair();
    let ready = |side: &Side, ms: i64| {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: ms * 1_000_000,
        };
        let mut fds = [PollFd::new(&side.events, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).unwrap() == 1
    };
    b.arm();
    assert!(!ready(&b, 0));
    a.post(Work::Send, 8);
    assert!(ready(&b, 900));
    // One completion, one event, once.
    assert_eq!(b.events.try_next().unwrap(), Some(b.cq.id()));
    assert!(!ready(&b, 0));
    assert_eq!(b.events.try_next().unwrap(), None);
    assert_eq!(b.cq.poll().unwrap().status, Status::Success);
    // Not armed again, so not told.
    a.post(Work::Send, 8);
    assert!(!ready(&b, 50));
    assert!(!b.cq.is_empty());
    assert_eq!(
        b.events.wait(Some(Duration::from_millis(10))).unwrap(),
        None
    );
}

/// What a program says to a message leaves before the acknowledgement of the message, which does not wait for
/// another turn either.
#[test]
fn a_reply_leaves_first_and_the_acknowledgement_right_behind_it() {
    for [mut a, mut b] in [pair(), cable()] {
        let frames = Frames::default();
        b.engine.set_tap(frames.tap());
        let received = |side: &mut Side| while side.poll().byte_len != 8 {};
        let opcode = |(_, frame): &(Direction, Vec<u8>)| {
            let view = FrameView::decode(frame).ok()?;
            Some(view.transport.bth.opcode())
        };
        let rounds = 400;
        let mut in_order = 0;
        for _ in 0..rounds {
            a.post(Work::Send, 8);
            received(&mut b);
            b.channel.receive();
            frames.take();
            b.post(Work::Send, 8);
            let mut left = frames.take();
            left.retain(|(direction, _)| *direction == Direction::Sent);
            let left: Vec<_> = left.iter().filter_map(opcode).collect();
            in_order += usize::from(left == [Opcode::RC_SEND_ONLY, Opcode::RC_ACKNOWLEDGE]);
            received(&mut a);
            a.channel.receive();
        }
        // The engine's thread is there first now and then, often on a busy machine, and acknowledges at once.
        assert!(in_order > rounds / 20, "{in_order} of {rounds}");
    }
}

/// How often the thread of the engine has gone to sleep.
fn sleeps(engine: &Engine) -> u64 {
    let name = format!("nic@{}", engine.gid().ip());
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let file = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            if file("comm").trim() == name {
                let status = file("status");
                let mut lines = status.lines();
                let line = lines.find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
                return line.unwrap().trim().parse().unwrap();
            }
        }
        // It has its name when it has begun.
        std::thread::yield_now();
    }
    panic!("no thread {name}");
}

#[test]
fn an_idle_engine_sleeps_through() {
    let [mut a, b] = pair();
    a.post(Work::Write(b.channel.remote()), 5000);
    assert_eq!(a.poll().status, Status::Success);
    // A timer that was armed for the request comes once, within 67 ms, and a nap ends.
    std::thread::sleep(Duration::from_millis(300));
    let before = [&a, &b].map(|s| sleeps(&s.engine));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!([&a, &b].map(|s| sleeps(&s.engine)), before);
    // And wakes up.
    a.post(Work::Read(b.channel.remote()), 5000);
    assert_eq!(a.wait().status, Status::Success);
}

/// How long the thread of an engine leaves a program alone that has driven.
const NAP: Duration = Duration::from_millis(1);

#[test]
fn the_thread_leaves_a_program_that_drives_alone() {
    let [mut a, b] = pair();
    a.post(Work::Write(b.channel.remote()), 8);
    a.poll();
    let before = sleeps(&a.engine);
    let start = Instant::now();
    let (mut messages, mut pauses, mut last) = (0u64, 0u64, start);
    while start.elapsed() < Duration::from_millis(300) {
        a.post(Work::Write(b.channel.remote()), 8);
        // It drives before each look: who finds a completion at the first look has not driven, and on a busy
        // machine, where the peer has answered before the doorbell returns, that is message after message.
        let completion = loop {
            let now = Instant::now();
            a.engine.drive().unwrap();
            // Not the program's will, but that of a machine that has others to run.
            pauses += u64::from(last.elapsed() >= NAP);
            last = now;
            if let Some(completion) = a.cq.poll() {
                break completion;
            }
        };
        assert_eq!(completion.status, Status::Success);
        messages += 1;
    }
    let naps = sleeps(&a.engine) - before;
    // A nap after another, and in each pause of the program it may take over: it goes to sleep a few times, for
    // the lock or for what arrives, until it sees the program drive again.
    let milliseconds = start.elapsed().as_millis() as u64;
    let most = milliseconds + 10 * (pauses + 1);
    assert!(
        naps <= most,
        "{naps} naps, {messages} messages and {pauses} pauses in {milliseconds} ms"
    );
}

#[test]
fn several_threads_share_an_engine() {
    let engines = [0; 2].map(|_| start(UdpPort::open(&UdpConfig::default()).unwrap()));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let [mut a, mut b] = connected([Side::of(&engines[0]), Side::of(&engines[1])]);
            scope.spawn(move || {
                let mut stream = Stream::new(n, "data");
                for _ in 0..100 {
                    let data = random(&mut stream, 3000);
                    a.channel.memory.write_at(0, &data);
                    a.post(Work::Send, data.len());
                    let (sent, received) = match n % 2 {
                        0 => (a.poll(), b.poll()),
                        _ => (a.wait(), b.wait()),
                    };
                    assert_eq!(
                        (sent.status, received.status),
                        (Status::Success, Status::Success)
                    );
                    assert_eq!(read(&b.channel.memory, data.len()), data);
                    b.channel.receive();
                }
            });
        }
    });
}

#[test]
fn what_is_owed_is_sent_before_an_engine_ends() {
    for round in 0..50 {
        let [mut a, mut b] = pair();
        a.post(Work::Send, 1 + round * 200);
        assert_eq!(b.poll().status, Status::Success);
        drop(b);
        // Its acknowledgement has left.
        let completion = a.wait();
        assert_eq!(completion.status, Status::Success);
        let timeouts = a.engine.inspect(|card, _| card.counters().timeouts);
        assert_eq!(timeouts, 0, "round {round}");
    }
}

#[test]
fn a_peer_that_vanishes_wakes_a_program_that_sleeps() {
    let [mut a, b] = [Side::udp(), Side::udp()];
    a.connect(b.address(), 10);
    drop(b);
    a.post(Work::Send, 10);
    assert_eq!(a.wait().status, Status::RetryExceeded);
    assert_eq!(a.channel.qp.state(), State::Error);
}

#[test]
fn a_receive_posted_in_error_is_flushed_without_another_call() {
    let [mut a, _b] = pair();
    let error = QpAttributes::to(State::Error);
    // A program posts while another thread puts its queue pair into error.
    let number = a.channel.qp.number();
    let engine = a.engine.clone();
    let sge = a.channel.sge(8);
    // 16 are there from the start.
    let mut posted = 16;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(2));
            engine
                .control(|card, now| card.modify_qp(now, number, &error))
                .unwrap()
                .unwrap();
        });
        let start = Instant::now();
        let mut flushed = 0;
        while start.elapsed() < Duration::from_millis(20) {
            let request = RecvRequest {
                wr_id: posted,
                sges: &[sge],
            };
            match a.engine.post_recv(&mut a.channel.qp, &request) {
                Ok(()) => posted += 1,
                // Not in error yet, and the queue is full.
                Err(_) => std::thread::yield_now(),
            }
            while let Some(c) = a.cq.poll() {
                assert_eq!(c.status, Status::WorkRequestFlushed);
                flushed += 1;
            }
        }
        while let Some(c) = a.cq.poll() {
            assert_eq!(c.status, Status::WorkRequestFlushed);
            flushed += 1;
        }
        assert!(posted > 16);
        assert_eq!(flushed, posted);
    });
}

#[test]
fn closing_ends_every_wait_and_flushes_what_is_outstanding() {
    let [mut a, b] = [Side::udp(), Side::udp()];
    // Never answered: the other end has no connection.
    a.connect(b.address(), 0);
    a.post(Work::Send, 10);
    a.arm();
    let waiting = a.events.clone();
    let waiter = std::thread::spawn(move || (waiting.wait(None), waiting.wait(None)));
    let events = a.engine.events().clone();
    let other = std::thread::spawn(move || (events.wait(None), events.wait(None)));
    std::thread::sleep(Duration::from_millis(5));
    a.engine.close();
    let (first, second) = waiter.join().unwrap();
    assert_eq!(first.unwrap(), Some(a.cq.id()));
    assert!(matches!(second, Err(EngineError::Closed)), "{second:?}");
    let (first, second) = other.join().unwrap();
    assert_eq!(first.unwrap(), Some(AsyncEvent::DeviceFatal));
    assert!(matches!(second, Err(EngineError::Closed)), "{second:?}");
    // The request, then the receives.
    for _ in 0..17 {
        assert_eq!(a.cq.poll().unwrap().status, Status::WorkRequestFlushed);
    }
    assert!(matches!(a.engine.drive(), Err(EngineError::Closed)));
    assert!(matches!(
        a.engine.control(|_, _| ()),
        Err(EngineError::Closed)
    ));
    // What is posted after the end does not hang either.
    a.channel.send(Work::Send, 10);
    let number = a.channel.qp.number();
    assert!(matches!(
        a.engine.doorbell(number),
        Err(EngineError::Closed)
    ));
    assert_eq!(a.cq.poll().unwrap().status, Status::WorkRequestFlushed);
    a.engine.close();
}

/// What a test has a device do.
#[derive(Default)]
struct Trouble {
    broken: AtomicBool,
    full: AtomicBool,
    /// Frames there was no room for.
    refused: AtomicU64,
}

/// A device that breaks, or has no room, when it is told to.
struct Fragile(ChannelDevice, Arc<Trouble>);

impl FrameDevice for Fragile {
    fn describe(&self) -> String {
        "a fragile cable".to_string()
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.1.full.load(Ordering::SeqCst) {
            self.1.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.send(frame)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.1.broken.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => self.0.receive(buffer),
        }
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        self.0.wait(to_send, timeout)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.descriptor()
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }
}

/// An engine on such a device, at 10.0.0.1, and the other end of its cable.
fn fragile() -> (Side, ChannelDevice, Arc<Trouble>) {
    let trouble = Arc::new(Trouble::default());
    let (device, other) = ChannelDevice::pair(64);
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let config = EthernetConfig::new(Ipv4Addr::new(10, 0, 0, 1).into(), mac);
    let port = EthernetPort::open(Fragile(device, trouble.clone()), &config).unwrap();
    (Side::of(&start(port)), other, trouble)
}

/// No timer looks after what waits for room here, and no frame arrives that would wake anybody.
#[test]
fn what_there_was_no_room_for_leaves_when_there_is_whoever_sleeps() {
    let (mut a, other, trouble) = fragile();
    let mac = MacAddr([2, 0, 0, 0, 0, 2]);
    let config = EthernetConfig::new(Ipv4Addr::new(10, 0, 0, 2).into(), mac);
    let mut b = Side::of(&start(EthernetPort::open(other, &config).unwrap()));
    // Ethernet addresses are given: nobody is to be asked for them, and asked again.
    a.channel.way.dmac = mac;
    b.channel.way.dmac = MacAddr([2, 0, 0, 0, 0, 1]);
    let (to_a, to_b) = (a.address(), b.address());
    a.connect(to_b, 0);
    b.connect(to_a, 0);
    for wakes in [Side::arm, |side: &mut Side| side.engine.release()] {
        a.post(Work::Send, 8);
        assert_eq!(a.poll().status, Status::Success);
        assert_eq!(b.poll().status, Status::Success);
        b.channel.receive();
        // The thread sleeps until something arrives.
        a.engine.release();
        std::thread::sleep(Duration::from_millis(20));
        trouble.full.store(true, Ordering::SeqCst);
        let before = trouble.refused.load(Ordering::SeqCst);
        a.post(Work::Send, 8);
        wakes(&mut a);
        std::thread::sleep(Duration::from_millis(20));
        // It was tried again, but not all the time.
        let tries = trouble.refused.load(Ordering::SeqCst) - before;
        assert!((2..200).contains(&tries), "{tries} times in 20 ms");
        trouble.full.store(false, Ordering::SeqCst);
        assert_eq!(b.wait().status, Status::Success);
        b.channel.receive();
        while a.poll().status != Status::Success {}
    }
}

#[test]
fn a_broken_port_is_told_everywhere() {
    let (mut a, _other, trouble) = fragile();
    a.connect(
        (
            Ipv4Addr::new(10, 0, 0, 2).into(),
            QpNumber::new(0x77),
            Psn::new(1),
        ),
        14,
    );
    a.post(Work::Send, 10);
    trouble.broken.store(true, Ordering::Relaxed);
    // Seen at the retransmission timer at the latest, by a program that only sleeps.
    assert_eq!(a.wait().status, Status::WorkRequestFlushed);
    assert_eq!(
        a.engine.events().wait(Some(PATIENCE)).unwrap(),
        Some(AsyncEvent::DeviceFatal)
    );
    let errors = [
        a.engine.drive().unwrap_err(),
        a.engine.control(|_, _| ()).unwrap_err(),
        a.engine.doorbell(a.channel.qp.number()).unwrap_err(),
        a.engine.create_channel().unwrap_err(),
        a.engine.error().unwrap(),
    ];
    for error in errors {
        assert!(matches!(error, EngineError::Broken(_)), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("Ethernet 10.0.0.1") && text.contains("a fragile cable"),
            "{text}"
        );
    }
    // What there is can still be destroyed.
    let number = a.channel.qp.number();
    a.engine.inspect(|card, _| card.destroy_qp(number)).unwrap();
}
