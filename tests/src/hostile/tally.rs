//! How the hostile peer's packets ended.

use softroce_sim::card::Refusal;
use softroce_sim::wire::{Opcode, Operation, Service};
use std::collections::BTreeMap;
use std::fmt;

/// How a packet ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// Not a frame of ours: the decoder refuses it.
    Undecodable,
    /// The pad count does not fit the length, or the frame is too long.
    NoPacket,
    /// The card dropped it.
    Refused(Refusal),
    /// The card took it.
    Taken(&'static str),
}

impl End {
    /// True if address, state, service, P_Key and ICRC were right, and a queue pair looked at it.
    pub fn is_deep(self) -> bool {
        match self {
            End::Undecodable | End::NoPacket => false,
            End::Taken(_) => true,
            End::Refused(why) => !matches!(
                why,
                Refusal::BadIcrc
                    | Refusal::UnknownQueuePair
                    | Refusal::WrongState
                    | Refusal::WrongService
                    | Refusal::WrongAddress
                    | Refusal::BadPkey
            ),
        }
    }
}

/// What a packet that was taken is called.
pub fn name(opcode: Opcode) -> &'static str {
    match (opcode.service(), opcode.operation()) {
        (Service::Ud, _) => "datagram",
        (Service::Uc, Operation::Send) => "UC SEND",
        (Service::Uc, _) => "UC WRITE",
        (_, Operation::Send) if opcode.has_invalidate() => "RC SEND with invalidate",
        (_, Operation::Send) => "RC SEND",
        (_, Operation::Write) => "RC WRITE",
        (_, Operation::ReadRequest) => "READ request",
        (_, Operation::CompareSwap | Operation::FetchAdd) => "atomic",
        (_, Operation::AtomicWrite) => "ATOMIC WRITE",
        (_, Operation::Acknowledge) => "ACK or NAK",
        (_, Operation::ReadResponse) => "READ response",
        (_, Operation::AtomicAcknowledge) => "atomic answer",
        (_, Operation::Cnp) => "CNP",
        _ => "other",
    }
}

/// Packets by how they came, [as bytes, as values], and how they ended.
#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<End, [u64; 2]>);

impl Tally {
    /// One more.
    pub fn count(&mut self, end: End, as_value: bool) {
        self.0.entry(end).or_default()[usize::from(as_value)] += 1;
    }

    /// How many ended like this.
    pub fn get(&self, end: End) -> u64 {
        self.0.get(&end).map_or(0, |n| n[0] + n[1])
    }

    /// How many ended in a way that `is` names.
    pub fn sum(&self, is: impl Fn(End) -> bool) -> u64 {
        let of = self.0.iter().filter(|&(&end, _)| is(end));
        of.map(|(_, n)| n[0] + n[1]).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.sum(|_| true).max(1);
        writeln!(
            f,
            "  {:34} {:>11} {:>11} {:>7}",
            "ended as", "bytes", "values", "share"
        )?;
        let mut line = |name: &str, n: [u64; 2]| {
            let permille = (n[0] + n[1]) * 1000 / all;
            let share = format!("{}.{} %", permille / 10, permille % 10);
            writeln!(f, "  {name:34} {:>11} {:>11} {share:>7}", n[0], n[1])
        };
        for (&end, &n) in &self.0 {
            match end {
                End::Undecodable => line("no frame", n)?,
                End::NoPacket => line("pad count or length of frame", n)?,
                End::Refused(why) => line(&format!("dropped: {}", why.name()), n)?,
                End::Taken(what) => line(&format!("taken: {what}"), n)?,
            }
        }
        let mut deep = [0; 2];
        for (end, n) in &self.0 {
            if end.is_deep() {
                deep = [deep[0] + n[0], deep[1] + n[1]];
            }
        }
        line("a queue pair looked at it", deep)
    }
}
