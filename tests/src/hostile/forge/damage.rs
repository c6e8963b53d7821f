//! What is made wrong about a packet: as a value, which no decoder looks at, or as a frame.

use super::*;

impl Forger {
    /// Makes something wrong that a decoder would not let through, or would not see.
    pub(super) fn bend(&mut self, p: &mut Packet, route: &mut Route) {
        let b = p.bth;
        match self.s.below(18) {
            0 => p.bth = b.with_opcode(Opcode(b.opcode().0 & 0xe0 | self.s.below(32) as u8)),
            1 => p.bth = b.with_opcode(Opcode(self.s.bits() as u8)),
            2 => p.bth = b.with_pkey(self.pick(&[0x7fff, 0, 0xfffe, 0x8001])),
            3 => p.bth = b.with_tver(self.s.below(16) as u8),
            4 => {
                let other = self.s.below(self.targets.len() as u64) as usize;
                let other = self.targets[other].qp;
                let any = QpNumber::new(self.s.bits() as u32);
                let near = QpNumber::new(other.get().wrapping_add(self.s.below(40) as u32));
                let numbers = [
                    other,
                    other,
                    near,
                    any,
                    QpNumber::MULTICAST,
                    QpNumber::GSI,
                    QpNumber::new(0),
                ];
                p.bth = b.with_dest_qp(self.pick(&numbers));
            }
            5 => p.bth = b.with_psn(Psn::new(self.s.bits() as u32)),
            6 => p.bth = b.with_pad_count(b.pad_count() ^ (1 + self.s.below(3) as u8)),
            7 | 8 => p.ext = self.any_ext(p.ext),
            // A length that is not that of the bytes; longer than any packet, too.
            9 => {
                let slot = p.payload.slot().unwrap_or(0);
                let len = self.number() as u16;
                p.payload = Payload::stored(slot, len);
            }
            10 => p.payload = Payload::stored(self.s.below(1 << 31) as u32, p.payload.len()),
            11 => p.payload = Payload::counted(self.number() as u16),
            12 => {
                p.payload = match p.payload.slot() {
                    Some(slot) if p.payload.len() > 1 => Payload::stored(
                        slot,
                        p.payload.len() - 1 - self.s.below(p.payload.len().into()) as u16 / 2,
                    ),
                    _ => Payload::EMPTY,
                }
            }
            13 => route.encapsulation = Encapsulation::RoceV1,
            14 => route.dst.0[self.s.below(16) as usize] ^= 1 << self.s.below(8),
            // Two addresses of this network differ in more than one bit.
            15 => route.src.0[self.s.below(16) as usize] ^= 1 << self.s.below(8),
            16 => {
                let damage = [Damage::Device, Damage::Link];
                p.damage = self.pick(&damage);
            }
            _ => {
                route.dscp = self.s.bits() as u8;
                route.flow_label = self.s.bits() as u32;
                p.hop_limit = self.s.bits() as u8;
                p.frame_len = self.s.bits() as u16;
                p.priority = self.s.bits() as u8;
                p.bth = b.with_byte4(self.s.bits() as u8);
            }
        }
    }

    /// Other extended headers than the opcode's, or the same with other contents.
    fn any_ext(&mut self, now: Ext) -> Ext {
        let n = self.number();
        let mut reth = self.reth(n);
        let immediate = Immediate::from_be(n);
        let aeth = Aeth {
            syndrome: Syndrome(self.s.bits() as u8),
            msn: Msn::new(n),
        };
        let deth = Deth {
            qkey: self.s.bits() as u32,
            reserved: self.s.bits() as u8,
            src_qp: QpNumber::new(n),
        };
        let atomic = AtomicEth {
            va: reth.va,
            rkey: reth.rkey,
            swap_add: self.word(),
            compare: self.word(),
        };
        if let Some(was) = now.reth()
            && self.s.below(3) > 0
        {
            // One of the three is wrong.
            match self.s.below(3) {
                0 => (reth.va, reth.rkey) = (was.va, was.rkey),
                1 => (reth.va, reth.dma_len) = (was.va, was.dma_len),
                _ => (reth.rkey, reth.dma_len) = (was.rkey, was.dma_len),
            }
            return Ext::Reth(reth);
        }
        let original = AtomicAckEth(self.word());
        let key = self.key(None);
        self.pick(&[
            Ext::None,
            Ext::Aeth(aeth),
            Ext::Reth(reth),
            Ext::RethImmediate(reth, immediate),
            Ext::Immediate(immediate),
            Ext::Ieth(key),
            Ext::Atomic(atomic),
            Ext::AtomicAck(aeth, original),
            Ext::Deth(deth),
            Ext::DethImmediate(deth, immediate),
            Ext::Cnp,
        ])
    }

    /// Damages the frame, or leaves it as it is.
    pub(super) fn maul(&mut self) {
        // Ethernet, IPv4 and UDP are 42 bytes, the BTH 12, the longest extended header 28.
        let len = self.bytes.len();
        match self.s.below(20) {
            0..5 => {
                for _ in 0..1 + self.s.below(3) {
                    let at = 42 + self.s.below((len - 42).min(40) as u64) as usize;
                    self.bytes[at] ^= 1 << self.s.below(8);
                }
            }
            5 => {
                let at = self.s.below(len as u64) as usize;
                self.bytes[at] ^= 1 << self.s.below(8);
            }
            6 => {
                let at = 42 + self.s.below((len - 42) as u64) as usize;
                self.bytes[at] = self.s.bits() as u8;
            }
            // Shorter, and IP and UDP say so, or do not.
            7 | 8 => {
                let most = if self.s.below(2) == 0 { 8 } else { len as u64 };
                let cut = (1 + self.s.below(most)) as usize;
                self.bytes.truncate(len.saturating_sub(cut));
                self.lengths();
            }
            // Longer.
            9 | 10 => {
                let more = 1 + self.s.below(40) as usize;
                self.bytes.resize(len + more, 0x11);
                self.lengths();
            }
            // The pad count: bits 4 and 5 of the second byte of the BTH.
            11 => self.bytes[43] ^= 0x10 << self.s.below(2),
            _ => return,
        }
        if self.s.below(8) == 0 {
            return;
        }
        // Right ICRC, over whatever is there now.
        if let Ok(view) = FrameView::decode(&self.bytes) {
            let icrc = view.compute_icrc().to_bytes();
            let end = self.bytes.len() - view.trailer.len();
            self.bytes[end - 4..end].copy_from_slice(&icrc);
        }
    }

    /// Makes the lengths of IP and UDP those of the frame, mostly.
    fn lengths(&mut self) {
        let len = self.bytes.len();
        if len >= 42 && self.s.below(4) > 0 {
            let ip = (len - 14) as u16;
            self.bytes[16..18].copy_from_slice(&ip.to_be_bytes());
            self.bytes[38..40].copy_from_slice(&(ip - 20).to_be_bytes());
        }
    }
}
