//! A peer that says anything: the card does not panic, changes no byte that no key of the peer's opens,
//! and gives none away.

use proptest::prelude::*;
use softroce_sim::card::{QpType, Remote, SendRequest, State, Work};
use softroce_sim::memory::{Access, Binding, Buffer, WindowType};
use softroce_sim::random::Stream;
use softroce_sim::time::Span;
use softroce_sim::wire::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Ext, Immediate, Msn, Opcode, Psn, QpNumber, RemoteKey,
    Syndrome,
};
use softroce_tests::bench::*;

/// What nobody is to see or change is full of these.
const SECRET: u8 = 0xa5;

struct Attack {
    b: Bench,
    s: Stream,
    /// Keys that open something, and keys that must not.
    places: Vec<Remote>,
    secrets: Vec<Buffer>,
    window: RemoteKey,
    /// About where the card's sequence numbers are.
    next: u32,
}

impl Attack {
    fn new(seed: u64, service: QpType) -> Attack {
        let mut b = Bench::new(Setup {
            service,
            memory: 8192,
            max_wr: 16,
            cqe: 4096,
            ..Default::default()
        });
        let secret = || Buffer::from_bytes(&[SECRET; 4096]);
        let mut secrets = Vec::new();
        let mut places = vec![b.remote(0)];
        let other = b.card.alloc_pd();
        for (pd, access) in [
            (b.pd, Access::LOCAL_WRITE | Access::MW_BIND),
            (other, all_rights()),
        ] {
            let buffer = secret();
            let mr = b.card.register(pd, buffer.clone(), access).unwrap();
            places.push(Remote {
                addr: mr.addr,
                rkey: mr.rkey,
            });
            secrets.push(buffer);
        }
        // A window that belongs to another queue pair, and a registration that has ended.
        let another = b.another();
        let buffer = secret();
        let rights = Access::LOCAL_WRITE | Access::MW_BIND;
        let mr = b.card.register(b.pd, buffer.clone(), rights).unwrap();
        secrets.push(buffer);
        if service != QpType::Ud {
            let key = RemoteKey(b.card.alloc_mw(b.pd, WindowType::Type2).unwrap().0 ^ 1);
            let binding = Binding {
                lkey: mr.lkey,
                addr: mr.addr,
                len: mr.len,
                access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
                zero_based: false,
            };
            let mut another = another;
            let work = Work::BindWindow { key, binding };
            another.post_send(&SendRequest::new(1, work, &[])).unwrap();
            b.card.doorbell(b.now, another.number());
            b.packets();
            places.push(Remote {
                addr: mr.addr,
                rkey: key,
            });
        }
        let gone = secret();
        let mr = b.card.register(b.pd, gone.clone(), all_rights()).unwrap();
        b.card.deregister(mr.lkey).unwrap();
        places.push(Remote {
            addr: mr.addr,
            rkey: mr.rkey,
        });
        secrets.push(gone);
        let window = b.card.alloc_mw(b.pd, WindowType::Type2).unwrap();
        Attack {
            b,
            s: Stream::new(seed, "attack"),
            places,
            secrets,
            window,
            next: 0,
        }
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.s.below(of.len() as u64) as usize]
    }

    fn number(&mut self) -> u32 {
        match self.s.below(4) {
            0 => self.s.bits() as u32,
            1 => u32::MAX - self.s.below(10) as u32,
            2 => self.pick(&[0, 1, 7, 8, 9, 1024, 1 << 31]),
            _ => self.s.below(9000) as u32,
        }
    }

    fn place(&mut self) -> Remote {
        let places = self.places.clone();
        let mut at = self.pick(&places);
        if self.s.below(3) == 0 {
            let n = u64::from(self.number());
            at.addr = match self.s.below(3) {
                0 => at.addr.wrapping_add(n),
                1 => at.addr.wrapping_sub(n),
                _ => u64::MAX - n,
            };
        }
        if self.s.below(8) == 0 {
            at.rkey = RemoteKey(at.rkey.0 ^ 1 << self.s.below(32));
        }
        at
    }

    fn ext(&mut self, opcode: Opcode, len: usize) -> Ext {
        let at = self.place();
        let dma_len = match self.s.below(4) {
            0 => self.number(),
            _ => len as u32,
        };
        let header = reth(at, dma_len);
        let immediate = Immediate::from_be(self.number());
        let aeth = Aeth {
            syndrome: Syndrome(self.s.bits() as u8),
            msn: Msn::new(self.number()),
        };
        let deth = Deth {
            qkey: self.pick(&[QKEY, QKEY, QKEY, 0]),
            ..deth(QKEY)
        };
        let window = self.window;
        let atomic = AtomicEth {
            va: at.addr,
            rkey: at.rkey,
            swap_add: self.s.bits(),
            compare: u64::from_ne_bytes([SECRET; 8]),
        };
        let all = [
            Ext::None,
            Ext::Aeth(aeth),
            Ext::Reth(header),
            Ext::RethImmediate(header, immediate),
            Ext::Immediate(immediate),
            Ext::Ieth(self.pick(&[window, at.rkey])),
            Ext::Atomic(atomic),
            Ext::AtomicAck(aeth, AtomicAckEth(self.s.bits())),
            Ext::Deth(deth),
            Ext::DethImmediate(deth, immediate),
            Ext::Cnp,
        ];
        // Mostly those that the opcode has.
        let fits = if opcode.0 & 0xe0 == 0x60 {
            8 + usize::from(opcode.has_immediate())
        } else if opcode.has_reth() {
            2 + usize::from(opcode.has_immediate())
        } else if matches!(opcode.0 & 0x1f, 0x13 | 0x14) {
            6
        } else if opcode.0 & 0x1f == 0x12 {
            7
        } else if opcode.has_aeth() {
            1
        } else if opcode.has_immediate() {
            4
        } else if opcode.has_invalidate() {
            5
        } else {
            0
        };
        match self.s.below(10) {
            0 => self.pick(&all),
            _ => all[fits],
        }
    }

    fn packet(&mut self) -> Say {
        let service = match self.b.qp_type() {
            QpType::Rc => 0x00,
            QpType::Uc => 0x20,
            QpType::Ud => 0x60,
        };
        let opcode = Opcode(match self.s.below(12) {
            0 => self.s.bits() as u8,
            1..5 => service | self.pick(&[4u8, 0xa, 0xc, 0x13, 0x14, 0x17, 0x1d, 0x0b]),
            _ => service | self.s.below(32) as u8,
        });
        let len = match self.s.below(5) {
            0 => 0,
            1 => 8,
            2 => 1024,
            _ => self.s.below(1100) as usize,
        };
        let byte = (self.s.bits() as u8) & 0x7f;
        let n = match self.s.below(10) {
            0 => self.number(),
            1 => self.next.wrapping_sub(self.s.below(5) as u32),
            2 => self.next.wrapping_add(self.s.below(3) as u32),
            _ => self.next,
        };
        let bits = self.s.bits();
        let ext = self.ext(opcode, len);
        say(opcode, n, ext, &vec![byte; len]).with(|h| {
            let h = h.with_ack_req(bits & 1 != 0).with_solicited(bits & 2 != 0);
            let h = if bits & 0xf00 == 0 {
                h.with_tver(bits as u8 >> 4)
            } else {
                h
            };
            let h = if bits & 0xf000 == 0 {
                h.with_pkey(bits as u16)
            } else {
                h
            };
            if bits & 0x1f_0000 == 0 {
                h.with_dest_qp(QpNumber::MULTICAST)
            } else {
                h
            }
        })
    }

    /// Something the program does meanwhile. It never uses the secrets.
    fn program(&mut self) {
        let b = &mut self.b;
        let (at, sges) = (elsewhere(), [b.sge(4096, 8)]);
        let to = (b.qp_type() == QpType::Ud).then(|| b.peer_qp());
        let work = match self.s.below(8) {
            0 => Work::FetchAdd { at, add: 1 },
            1 => Work::Read(at),
            2 => Work::AtomicWrite(at),
            3 => Work::LocalInvalidate(self.window),
            4 => {
                let key = RemoteKey(self.window.0 ^ 1 << self.s.below(8));
                self.window = key;
                let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
                let (lkey, addr) = (b.mr.lkey, b.mr.addr);
                let zero_based = self.s.below(2) == 0;
                let binding = Binding {
                    lkey,
                    addr,
                    len: 100,
                    access,
                    zero_based,
                };
                self.places.push(Remote { addr, rkey: key });
                Work::BindWindow { key, binding }
            }
            _ => Work::Send,
        };
        let _ = b.try_post(&SendRequest {
            to,
            ..SendRequest::new(1, work, &sges)
        });
        let sges = [b.sge(2048, 100), b.sge(3000, 1000)];
        let _ = b.try_post_recv(2, &sges);
    }

    fn look(&mut self) {
        for packet in self.b.packets() {
            let bytes = self.b.bytes(&packet);
            assert!(!bytes.windows(8).any(|w| w == [SECRET; 8]), "{packet:?}");
            if let Ext::AtomicAck(_, original) = packet.ext {
                assert_ne!(original.0.to_ne_bytes(), [SECRET; 8]);
            }
        }
        for secret in &self.secrets {
            assert!(secret.to_vec() == [SECRET; 4096]);
        }
        self.b.poll();
        self.b.events();
    }

    fn run(mut self, steps: usize) {
        for _ in 0..steps {
            match self.s.below(12) {
                0 | 1 => self.program(),
                2 => self.b.wait(Span::from_us(self.s.below(100_000))),
                _ => {
                    let say = self.packet();
                    let before = self.b.counted();
                    let route = self.b.route;
                    self.b.hear_along(say, &route);
                    let after = self.b.counted();
                    let taken = after.refused == before.refused;
                    self.next +=
                        u32::from(taken && after.received_packets > before.received_packets);
                }
            }
            self.look();
            match self.b.state() {
                State::Error => {
                    self.b.go_to(State::Reset).unwrap();
                    self.b.bring_up(State::Rts).unwrap();
                    self.next = 0;
                }
                State::Sqe => self.b.go_to(State::Rts).unwrap(),
                _ => {}
            }
        }
        // It works still.
        self.b.go_to(State::Reset).unwrap();
        self.b.bring_up(State::Rts).unwrap();
        self.b.post_recv(7, 0, 64);
        let ok = match self.b.qp_type() {
            QpType::Rc => send_only(0, b"x"),
            QpType::Uc => send_only(0, b"x").uc(),
            QpType::Ud => datagram(0, QKEY, b"x"),
        };
        self.b.poll();
        self.b.hear(ok.with(|h| h.with_psn(Psn::new(0))));
        assert_eq!(self.b.completed().len(), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_reliable_connection_keeps_what_is_not_the_peers(seed: u64) {
        Attack::new(seed, QpType::Rc).run(150);
    }

    #[test]
    fn an_unreliable_connection_keeps_what_is_not_the_peers(seed: u64) {
        Attack::new(seed, QpType::Uc).run(150);
    }

    #[test]
    fn a_datagram_queue_pair_keeps_what_is_not_the_peers(seed: u64) {
        Attack::new(seed, QpType::Ud).run(150);
    }
}
