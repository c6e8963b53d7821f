//! A peer that says whatever it likes: never a panic, never a byte outside what the keys allow, never
//! more answers kept than there can be READs, and the program's requests still complete once.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use softroce_sim::card::{CompletionKind, Mtu, Remote, Sge, State, Work, recovery};
use softroce_sim::memory::{Access, Buffer, MemoryRegion};
use softroce_sim::random::Stream;
use softroce_sim::time::Span;
use softroce_sim::wire::{
    Aeth, Ext, FrameView, Immediate, Msn, Opcode, Packet, QpNumber, RemoteKey, Reth, Route,
    RouteTable, Syndrome, frame,
};
use softroce_tests::bench::*;

const READS: u8 = 4;
const REGION: usize = 4096;
/// The program's own memory: slots for receives and READ data, with guards between.
const SLOT: usize = 600;
const GUARD: usize = 40;
const SLOTS: usize = 16;

struct Attack {
    b: Bench,
    s: Stream,
    /// How many in a hundred packets are bent.
    bent: u64,
    routes: RouteTable,
    read_only: (Buffer, MemoryRegion),
    other_domain: (Buffer, MemoryRegion),
    own: (Buffer, MemoryRegion),
    before: [Vec<u8>; 3],
    /// Next PSN of the peer as it sees it, and of the card as it sees that.
    next: u32,
    heard: u32,
    posted: Vec<u64>,
    completed: usize,
    receives: u64,
    received: u64,
    sent: u64,
    resets: u32,
}

impl Attack {
    fn new(seed: u64, bent: u64, go_back_0: bool) -> Attack {
        let mut setup = Setup {
            mtu: Mtu::M256,
            memory: REGION,
            max_dest_rd_atomic: READS,
            max_rd_atomic: READS,
            rq_psn: 0xff_fff0,
            sq_psn: 0xff_fff0,
            cqe: 4096,
            ..Default::default()
        };
        if go_back_0 {
            setup.config.recovery = recovery::GO_BACK_0;
        }
        let mut b = Bench::new(setup);
        let mut s = Stream::new(seed, "attack");
        let mut region = |len: usize, other: bool, access| {
            let bytes: Vec<u8> = (0..len).map(|_| s.bits() as u8).collect();
            let buffer = Buffer::from_bytes(&bytes);
            let pd = if other { b.card.alloc_pd() } else { b.pd };
            let mr = b.card.register(pd, buffer.clone(), access).unwrap();
            (buffer, mr)
        };
        let read_only = region(REGION, false, Access::REMOTE_READ);
        let other_domain = region(REGION, true, all_rights());
        let own = region(SLOTS * (SLOT + GUARD), false, Access::LOCAL_WRITE);
        let before = [&read_only, &other_domain, &own].map(|r| r.0.to_vec());
        Attack {
            b,
            s,
            bent,
            routes: RouteTable::new(),
            read_only,
            other_domain,
            own,
            before,
            next: 0,
            heard: 0,
            posted: Vec::new(),
            completed: 0,
            receives: 0,
            received: 0,
            sent: 0,
            resets: 0,
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.s.below(40) {
                0..8 => self.program_posts(),
                8 if self.s.below(4) > 0 => self.pull(),
                9 => self.b.wait(Span::from_us(self.s.below(50))),
                10 => self.b.wait(Span::from_ms(80)),
                11..18 => self.answer(),
                _ => self.request(),
            }
            self.check_completions();
            if self.b.state() == State::Error {
                self.start_over();
            }
        }
        self.pull();
        self.check_memory();
    }

    /// A while without fetching an answer, so that they pile up if they can.
    fn flood(&mut self, steps: usize) {
        for _ in 0..steps {
            self.request();
            self.check_completions();
            if self.b.state() == State::Error {
                self.start_over();
            }
        }
        self.pull();
    }

    /// A request as a peer sends it, with one thing or another bent.
    fn request(&mut self) {
        let to = Remote {
            addr: self.b.mr.addr + self.s.below(REGION as u64 / 2),
            rkey: self.b.mr.rkey,
        };
        let n = self.next;
        let len = self.s.below(257) as usize;
        let data = vec![0xa5; len];
        let (mut say, packets) = match self.s.below(7) {
            0 | 1 => (send_only(n, &data), 1),
            2 => (write_imm(n, to, &data, 7), 1),
            3 => {
                let len = self.s.below(REGION as u64 / 2) as u32;
                (read(n, to, len), len.div_ceil(256).max(1))
            }
            4 => {
                // A message of two packets, so that there is an inside to be bent.
                self.hear(write(Opcode::RC_WRITE_FIRST, n, to, 256 + 8, &[1; 256]));
                self.next += 1;
                (send(Opcode::RC_WRITE_LAST, n + 1, &[2; 8]).ask(), 1)
            }
            5 => {
                self.hear(send(Opcode::RC_SEND_FIRST, n, &[1; 256]));
                self.next += 1;
                (send(Opcode::RC_SEND_LAST, n + 1, &[2; 8]).ask(), 1)
            }
            _ => (write_only(n, to, &data), 1),
        };
        if self.s.below(100) < self.bent {
            say = self.bend(say);
        } else {
            self.next += packets;
        }
        self.hear(say);
    }

    fn bend(&mut self, mut say: Say) -> Say {
        let s = &mut self.s;
        match s.below(9) {
            0 => say.bth = say.bth.with_opcode(Opcode(s.below(32) as u8)),
            1 => say.bth = say.bth.with_opcode(Opcode(s.bits() as u8)),
            // A copy of something old, or a gap.
            2 | 3 => {
                let back = s.below(60) as u32;
                say.bth = say
                    .bth
                    .with_psn(say.bth.psn().minus(back).plus(s.below(8) as u32));
            }
            4 => {
                say.bth = say
                    .bth
                    .with_psn(softroce_sim::wire::Psn::new(s.bits() as u32))
            }
            5 => say.payload = vec![3; s.below(4097) as usize],
            6 => {
                let other = self.b.qp.number().get().wrapping_add(s.below(3) as u32);
                say.bth = say.bth.with_dest_qp(QpNumber::new(other));
            }
            7 => say.ext = self.any_ext(),
            _ => {
                if let Some(reth) = say.ext.reth() {
                    say.ext = Ext::Reth(self.bend_reth(reth));
                }
            }
        }
        say
    }

    fn bend_reth(&mut self, mut reth: Reth) -> Reth {
        let s = &mut self.s;
        match s.below(6) {
            0 => reth.rkey = self.read_only.1.rkey,
            1 => reth.rkey = self.own.1.rkey,
            2 => reth.rkey = RemoteKey(s.bits() as u32),
            3 => reth.va = s.bits(),
            4 => reth.dma_len = s.bits() as u32,
            _ => reth.va = u64::MAX - s.below(5000),
        }
        // With the address that goes with the key, now and then.
        for mr in [self.read_only.1, self.other_domain.1, self.own.1] {
            if s.below(4) == 0 {
                (reth.va, reth.rkey) = (mr.addr + s.below(mr.len), mr.rkey);
            }
        }
        reth
    }

    fn any_ext(&mut self) -> Ext {
        let reth = Reth {
            va: self.b.mr.addr,
            rkey: self.b.mr.rkey,
            dma_len: self.s.below(5000) as u32,
        };
        let aeth = Aeth {
            syndrome: Syndrome(self.s.bits() as u8),
            msn: Msn::new(self.s.bits() as u32),
        };
        match self.s.below(6) {
            0 => Ext::None,
            1 => Ext::Aeth(aeth),
            2 => Ext::RethImmediate(reth, Immediate::from_be(1)),
            3 => Ext::Immediate(Immediate::from_be(2)),
            4 => Ext::Ieth(self.own.1.rkey),
            _ => Ext::Reth(self.bend_reth(reth)),
        }
    }

    /// An answer to something the card has sent, or has not.
    fn answer(&mut self) {
        let s = &mut self.s;
        let n = self.heard.wrapping_add(s.below(6) as u32).wrapping_sub(2) & 0xff_ffff;
        let kinds = [
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_ACKNOWLEDGE,
            Opcode::RC_READ_RESPONSE_FIRST,
            Opcode::RC_READ_RESPONSE_MIDDLE,
            Opcode::RC_READ_RESPONSE_LAST,
            Opcode::RC_READ_RESPONSE_ONLY,
        ];
        let opcode = kinds[s.below(kinds.len() as u64) as usize];
        let msn = s.below(40) as u32;
        let mut say = match (opcode, s.below(8)) {
            (Opcode::RC_ACKNOWLEDGE, 0) => rnr_nak(n, s.below(6) as u8 + 1),
            (Opcode::RC_ACKNOWLEDGE, 1) => nak(n, softroce_sim::wire::NakCode::PsnSequenceError),
            (Opcode::RC_ACKNOWLEDGE, 2) => say(opcode, n, aeth(Syndrome(s.bits() as u8), msn), &[]),
            (Opcode::RC_ACKNOWLEDGE, 3) => ack_with_credits(n, msn, s.below(32) as u8),
            (Opcode::RC_ACKNOWLEDGE, _) => ack(n, msn),
            _ => {
                let len = [0, 44, 256, 300][s.below(4) as usize];
                read_response(opcode, n, &vec![0x5a; len])
            }
        };
        if s.below(300) < self.bent {
            say.ext = self.any_ext();
        }
        self.heard = n;
        self.hear(say);
    }

    fn hear(&mut self, say: Say) {
        let packet = self.b.packet_of(say);
        let route = self.b.route;
        if self.s.below(3) == 0 {
            let Some((packet, route)) = self.through_bytes(&packet, &route) else {
                return;
            };
            self.b
                .card
                .receive(self.b.now, &packet, &route, &mut self.b.env);
        } else {
            self.b
                .card
                .receive(self.b.now, &packet, &route, &mut self.b.env);
        }
    }

    /// As bytes, with one of them wrong now and then (but an ICRC that is right).
    fn through_bytes(&mut self, packet: &Packet, route: &Route) -> Option<(Packet, Route)> {
        let payload = self.b.bytes(packet);
        let mut bytes = Vec::new();
        frame::encode_packet(packet, route, &payload, &mut bytes).ok()?;
        if self.s.below(300) < self.bent {
            // Ethernet, IPv4 and UDP are 42 bytes; the BTH and what follows come after.
            let at = 42 + self.s.below((bytes.len() - 42).min(40) as u64) as usize;
            bytes[at] ^= 1 << self.s.below(8);
        }
        let view = FrameView::decode(&bytes).ok()?;
        let handle = self.b.env.hold(view.transport.payload.to_vec());
        let id = self.routes.intern(view.route());
        Some((view.to_packet(id, handle).ok()?, view.route()))
    }

    fn own_sge(&mut self) -> Sge {
        let slot = self.s.below(SLOTS as u64) * (SLOT + GUARD) as u64;
        Sge {
            addr: self.own.1.addr + slot,
            len: 300 + self.s.below(SLOT as u64 - 299) as u32,
            lkey: self.own.1.lkey,
        }
    }

    fn program_posts(&mut self) {
        let sge = self.own_sge();
        if self.s.below(2) == 0 {
            if self.b.try_post_recv(self.receives, &[sge]).is_ok() {
                self.receives += 1;
            }
        } else if self.b.qp.send_room() > 0 {
            let work = match self.s.below(3) {
                0 => Work::Send,
                1 => Work::Write(elsewhere()),
                _ => Work::Read(elsewhere()),
            };
            let id = self.sent;
            self.sent += 1;
            self.posted.push(id);
            self.b.post(id, work, &[sge]);
        }
    }

    /// Fetches what the card has to say, and holds how much that is against the limit.
    fn pull(&mut self) {
        let mut answers = 0;
        for p in self.b.packets() {
            if p.bth.opcode().is_response() {
                answers += 1;
                // What is read is what may be read.
                if p.bth.opcode() == Opcode::RC_ACKNOWLEDGE {
                    // It takes the hint where to go on, so that it is heard again.
                    let n = p.bth.psn().minus(0xff_fff0).get();
                    let ack = p.ext.aeth().unwrap().syndrome.0 < 0x20;
                    self.next = n + u32::from(ack);
                } else {
                    let data = self.b.bytes(&p);
                    let may = [self.b.buffer.to_vec(), self.read_only.0.to_vec()];
                    let there = may
                        .iter()
                        .any(|m| data.is_empty() || m.windows(data.len()).any(|w| w == data));
                    assert!(there, "READ data from somewhere else");
                }
            } else {
                self.heard = p.bth.psn().minus(0xff_fff0).get();
            }
        }
        // READs new and again of a region at MTU 256; ACK, NAK, ACK before, between and after.
        let reads = 2 * usize::from(READS);
        let limit = reads * REGION / 256 + 3 * (reads + 1);
        assert!(answers <= limit, "{answers} answers");
    }

    fn check_completions(&mut self) {
        for c in self.b.poll() {
            if matches!(
                c.kind,
                CompletionKind::Receive | CompletionKind::ReceiveWithImmediate
            ) {
                assert_eq!(
                    c.wr_id, self.received,
                    "receives complete once and in order"
                );
                self.received += 1;
                assert!(usize::try_from(c.byte_len).unwrap() <= SLOT.max(256));
            } else {
                assert_eq!(
                    c.wr_id, self.posted[self.completed],
                    "requests complete once"
                );
                self.completed += 1;
            }
        }
    }

    /// The program notices the error, and connects again.
    fn start_over(&mut self) {
        self.resets += 1;
        assert_eq!(
            self.completed,
            self.posted.len(),
            "everything has completed"
        );
        assert_eq!(self.received, self.receives);
        self.pull();
        self.b.events();
        self.b.go_to(State::Reset).unwrap();
        self.b.bring_up(State::Rts).unwrap();
        (self.next, self.heard) = (0, 0);
    }

    fn check_memory(&self) {
        assert_eq!(
            self.read_only.0.to_vec(),
            self.before[0],
            "a region without write right"
        );
        assert_eq!(
            self.other_domain.0.to_vec(),
            self.before[1],
            "another domain's region"
        );
        let own = self.own.0.to_vec();
        for slot in 0..SLOTS {
            let guard = slot * (SLOT + GUARD) + SLOT..(slot + 1) * (SLOT + GUARD);
            assert_eq!(own[guard.clone()], self.before[2][guard], "a guard");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_hostile_peer_gets_what_its_keys_allow_and_no_more(
        seed in any::<u64>(),
        bent in prop_oneof![Just(2u64), Just(20), Just(90)],
        steps in 1usize..800,
        go_back_0: bool,
    ) {
        let mut attack = Attack::new(seed, bent, go_back_0);
        attack.run(steps);
        attack.flood(200);
        attack.run(steps / 4);
    }
}

#[test]
fn the_attack_gets_somewhere() {
    // Of what use is an attack that is turned away at the door?
    let mut a = Attack::new(1, 10, false);
    a.run(20_000);
    let c = a.b.card.counters();
    assert!(a.resets > 20, "{}", a.resets);
    for (what, n) in [
        ("access", c.naks_sent.remote_access),
        ("invalid", c.naks_sent.invalid_request),
        ("sequence", c.naks_sent.sequence),
        ("rnr", c.rnr_naks_sent),
        ("duplicates", c.duplicate_requests),
        ("read data", c.read_response_packets),
        ("implied", c.implied_naks),
        ("timeouts", c.timeouts),
    ] {
        assert!(n > 10, "{what}: {n}");
    }
    assert!(a.b.buffer.to_vec().iter().any(|&x| x != 0));
}
