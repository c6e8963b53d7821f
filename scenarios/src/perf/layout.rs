//! Where messages are in memory, and what is in them.

/// Where messages are in the memory of either end: first those that are sent, then those that arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) stride: u64,
    pub(super) qps: u64,
    pub(super) send_slots: u64,
    pub(super) recv_slots: u64,
}

impl Layout {
    pub(super) fn send(&self, qp: usize, message: u64) -> u64 {
        (qp as u64 * self.send_slots + message % self.send_slots) * self.stride
    }

    pub(super) fn recv(&self, qp: usize, message: u64) -> u64 {
        let before = self.qps * self.send_slots;
        (before + qp as u64 * self.recv_slots + message % self.recv_slots) * self.stride
    }

    pub(super) fn bytes(&self) -> u64 {
        self.qps * (self.send_slots + self.recv_slots) * self.stride
    }
}

/// The last byte of a message that is polled for; it is never 0, as memory is in the beginning.
pub(super) fn count(message: u64) -> u8 {
    (message % 255) as u8 + 1
}

/// Scatters numbers (the finalizer of splitmix64).
pub(super) fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

pub(super) fn pattern(out: &mut [u8], key: u64) {
    for (n, chunk) in (0u64..).zip(out.chunks_mut(8)) {
        let word = key.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}
