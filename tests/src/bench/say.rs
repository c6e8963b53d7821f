//! What the peer says: packets with any content.

use softroce_sim::card::Remote;
use softroce_sim::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Damage, Deth, Ext, Immediate, Msn, NakCode, Opcode, Psn,
    QpNumber, RemoteKey, Reth, Syndrome,
};

use super::PEER_QP;

/// A packet the peer is to send.
#[derive(Clone, Debug)]
pub struct Say {
    /// Header; the PSN counts from the first packet of its direction.
    pub bth: Bth,
    /// Extended headers.
    pub ext: Ext,
    /// Payload.
    pub payload: Vec<u8>,
    /// Damage on the way.
    pub damage: Damage,
    /// Counts as so many bytes that are not carried.
    pub counted: Option<u16>,
}

impl Say {
    /// With AckReq.
    #[must_use]
    pub fn ask(mut self) -> Say {
        self.bth = self.bth.with_ack_req(true);
        self
    }

    /// With another header.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(Bth) -> Bth) -> Say {
        self.bth = change(self.bth);
        self
    }

    /// With other extended headers.
    #[must_use]
    pub fn ext(mut self, ext: Ext) -> Say {
        self.ext = ext;
        self
    }

    /// The same packet of an unreliable connection, whose operations have the same numbers.
    #[must_use]
    pub fn uc(self) -> Say {
        self.with(|h| h.with_opcode(Opcode(h.opcode().0 | 0x20)))
    }

    /// For another queue pair than the bench's.
    #[must_use]
    pub fn to(self, qp: QpNumber) -> Say {
        self.with(|h| h.with_dest_qp(qp))
    }

    /// With the solicited event bit.
    #[must_use]
    pub fn solicited(self) -> Say {
        self.with(|h| h.with_solicited(true))
    }

    /// With bits flipped inside a device.
    #[must_use]
    pub fn damaged(mut self) -> Say {
        self.damage = Damage::Device;
        self
    }
}

/// The `n`-th packet with `opcode`.
pub fn say(opcode: Opcode, n: u32, ext: Ext, payload: &[u8]) -> Say {
    Say {
        bth: Bth::new(opcode, QpNumber::new(0), Psn::new(n)),
        ext,
        payload: payload.to_vec(),
        damage: Damage::None,
        counted: None,
    }
}

/// A SEND packet.
pub fn send(opcode: Opcode, n: u32, payload: &[u8]) -> Say {
    say(opcode, n, Ext::None, payload)
}

/// A SEND of one packet that asks for an acknowledgement.
pub fn send_only(n: u32, payload: &[u8]) -> Say {
    send(Opcode::RC_SEND_ONLY, n, payload).ask()
}

/// A WRITE packet that begins a message of `len` bytes.
pub fn write(opcode: Opcode, n: u32, to: Remote, len: u32, payload: &[u8]) -> Say {
    say(opcode, n, Ext::Reth(reth(to, len)), payload)
}

/// A WRITE of one packet that asks for an acknowledgement.
pub fn write_only(n: u32, to: Remote, payload: &[u8]) -> Say {
    write(Opcode::RC_WRITE_ONLY, n, to, payload.len() as u32, payload).ask()
}

/// A WRITE of one packet with immediate data that asks for an acknowledgement.
pub fn write_imm(n: u32, to: Remote, payload: &[u8], immediate: u32) -> Say {
    let ext = Ext::RethImmediate(
        reth(to, payload.len() as u32),
        Immediate::from_be(immediate),
    );
    say(Opcode::RC_WRITE_ONLY_IMM, n, ext, payload).ask()
}

/// A READ request for `len` bytes.
pub fn read(n: u32, from: Remote, len: u32) -> Say {
    say(Opcode::RC_READ_REQUEST, n, Ext::Reth(reth(from, len)), &[]).ask()
}

/// An atomic request.
pub fn atomic(opcode: Opcode, n: u32, at: Remote, swap_add: u64, compare: u64) -> Say {
    let eth = AtomicEth {
        va: at.addr,
        rkey: at.rkey,
        swap_add,
        compare,
    };
    say(opcode, n, Ext::Atomic(eth), &[]).ask()
}

/// A fetch-and-add.
pub fn fetch_add(n: u32, at: Remote, add: u64) -> Say {
    atomic(Opcode::RC_FETCH_ADD, n, at, add, 0)
}

/// A compare-and-swap.
pub fn compare_swap(n: u32, at: Remote, compare: u64, swap: u64) -> Say {
    atomic(Opcode::RC_COMPARE_SWAP, n, at, swap, compare)
}

/// An ATOMIC WRITE.
pub fn atomic_write(n: u32, at: Remote, payload: &[u8]) -> Say {
    let ext = Ext::Reth(reth(at, payload.len() as u32));
    say(Opcode::RC_ATOMIC_WRITE, n, ext, payload).ask()
}

/// The answer to an atomic.
pub fn atomic_ack(n: u32, original: u64) -> Say {
    let aeth = Aeth {
        syndrome: Syndrome::ack(Syndrome::UNLIMITED),
        msn: Msn::new(0),
    };
    let ext = Ext::AtomicAck(aeth, AtomicAckEth(original));
    say(Opcode::RC_ATOMIC_ACKNOWLEDGE, n, ext, &[])
}

/// A SEND of one packet that invalidates a key.
pub fn send_invalidate(n: u32, payload: &[u8], key: RemoteKey) -> Say {
    let opcode = Opcode::RC_SEND_ONLY_INVALIDATE;
    say(opcode, n, Ext::Ieth(key), payload).ask()
}

/// A datagram from the peer's queue pair.
pub fn datagram(n: u32, qkey: u32, payload: &[u8]) -> Say {
    say(Opcode::UD_SEND_ONLY, n, Ext::Deth(deth(qkey)), payload)
}

/// A datagram with immediate data.
pub fn datagram_imm(n: u32, qkey: u32, payload: &[u8], immediate: u32) -> Say {
    let ext = Ext::DethImmediate(deth(qkey), Immediate::from_be(immediate));
    say(Opcode::UD_SEND_ONLY_IMM, n, ext, payload)
}

/// A DETH of the peer's queue pair.
pub fn deth(qkey: u32) -> Deth {
    Deth {
        qkey,
        reserved: 0,
        src_qp: QpNumber::new(PEER_QP),
    }
}

/// A RETH.
pub fn reth(to: Remote, len: u32) -> Reth {
    Reth {
        va: to.addr,
        rkey: to.rkey,
        dma_len: len,
    }
}

/// An AETH.
pub fn aeth(syndrome: Syndrome, msn: u32) -> Ext {
    Ext::Aeth(Aeth {
        syndrome,
        msn: Msn::new(msn),
    })
}

fn acknowledgement(n: u32, syndrome: Syndrome, msn: u32) -> Say {
    say(Opcode::RC_ACKNOWLEDGE, n, aeth(syndrome, msn), &[])
}

/// An ACK that limits nothing.
pub fn ack(n: u32, msn: u32) -> Say {
    acknowledgement(n, Syndrome::ack(Syndrome::UNLIMITED), msn)
}

/// An ACK with encoded credits.
pub fn ack_with_credits(n: u32, msn: u32, credits: u8) -> Say {
    acknowledgement(n, Syndrome::ack(credits), msn)
}

/// A NAK.
pub fn nak(n: u32, code: NakCode) -> Say {
    acknowledgement(n, Syndrome::nak(code), 0)
}

/// An RNR NAK.
pub fn rnr_nak(n: u32, timer: u8) -> Say {
    acknowledgement(n, Syndrome::rnr_nak(timer), 0)
}

/// A packet of READ data.
pub fn read_response(opcode: Opcode, n: u32, payload: &[u8]) -> Say {
    let ext = if opcode == Opcode::RC_READ_RESPONSE_MIDDLE {
        Ext::None
    } else {
        aeth(Syndrome::ack(Syndrome::UNLIMITED), 0)
    };
    say(opcode, n, ext, payload)
}

/// Bytes that are different at each place, and different for each `seed`.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed)
        .collect()
}
