//! Unreliable connections: what is whole is delivered, what has a gap is forgotten, nothing is answered.

mod receiving;
mod sending;

use super::Rule;
use crate::bench::*;
use softroce_sim::wire::Opcode;

pub(super) const RULES: &[&[Rule]] = &[receiving::RULES, sending::RULES];

const NONE: [&str; 0] = [];

const KIB: usize = 1024;

fn ready() -> Bench {
    Bench::new(Setup::uc())
}

/// A SEND of three packets from the `n`-th on, and its data.
fn three(n: u32, seed: u8) -> ([Say; 3], Vec<u8>) {
    let data = pattern(seed, 2 * KIB + 10);
    let says = [
        send(Opcode::RC_SEND_FIRST, n, &data[..KIB]).uc(),
        send(Opcode::RC_SEND_MIDDLE, n + 1, &data[KIB..2 * KIB]).uc(),
        send(Opcode::RC_SEND_LAST, n + 2, &data[2 * KIB..]).uc(),
    ];
    (says, data)
}

/// A WRITE of three packets from the `n`-th on.
fn three_writes(n: u32, b: &Bench, at: u64, data: &[u8]) -> [Say; 3] {
    let len = data.len() as u32;
    [
        write(Opcode::RC_WRITE_FIRST, n, b.remote(at), len, &data[..KIB]).uc(),
        send(Opcode::RC_WRITE_MIDDLE, n + 1, &data[KIB..2 * KIB]).uc(),
        send(Opcode::RC_WRITE_LAST, n + 2, &data[2 * KIB..]).uc(),
    ]
}
