//! Faults of what a port sends.

use super::{PortConfig, PortCounters};
use crate::faults::{Fault, FaultCounts, Injectors};
use crate::random::Stream;
use crate::time::{Span, Time};
use crate::wire::{Damage, Ecn, Packet, Route};
use std::collections::BTreeMap;

/// The faults of a port, and the packets that they hold back.
#[derive(Default)]
pub(super) struct Faults {
    injectors: Injectors,
    /// Packets that leave later, by time and then in the order in which they were held back.
    late: BTreeMap<(Time, u32), Late>,
    /// Packets that wait until others have gone past them, or until their time.
    held: BTreeMap<u32, (Time, Late)>,
    count: u32,
}

/// A packet that was held back, with its payload as it was then.
pub(super) struct Late {
    pub(super) packet: Packet,
    pub(super) payload: Vec<u8>,
}

impl Faults {
    /// Those of `config`, if it has any.
    pub(super) fn new(config: &PortConfig) -> Option<Box<Faults>> {
        let mut faults = Box::new(Faults::default());
        for fault in &config.faults {
            faults.add(*fault, config.fault_seed);
        }
        (faults.injectors.len() > 0).then_some(faults)
    }

    pub(super) fn add(&mut self, fault: Fault, seed: u64) -> usize {
        let name = format!("port fault {}", self.injectors.len());
        self.injectors.add(fault, Stream::new(seed, &name))
    }

    pub(super) fn counts(&self, position: usize) -> Option<FaultCounts> {
        self.injectors.counts(position)
    }

    /// Asks about a packet: true if it leaves now.
    pub(super) fn leaves(
        &mut self,
        now: Time,
        packet: &mut Packet,
        route: &Route,
        payload: &[u8],
        counters: &mut PortCounters,
    ) -> bool {
        let verdict = self.injectors.judge(packet, route, |_| {});
        if verdict.damage == Damage::Device && packet.damage == Damage::None {
            packet.damage = Damage::Device;
        }
        if verdict.mark && packet.ecn != Ecn::NotCapable {
            packet.ecn = Ecn::Experienced;
        }
        for delay in verdict.copies {
            self.keep(now + delay, packet, payload);
        }
        // Where bits flip on a link, the next receiver sees it by the FCS and drops the frame; a socket has
        // none, so the port does.
        if verdict.drop || verdict.damage == Damage::Link {
            counters.dropped += 1;
            return false;
        }
        if verdict.delay > Span::ZERO {
            self.keep(now + verdict.delay, packet, payload);
            return false;
        }
        if let Some((packets, limit)) = verdict.reorder {
            let (slot, late) = (self.next(), Late::new(packet, payload));
            self.injectors.hold(slot, packets, now + limit);
            self.held.insert(slot, (now + limit, late));
            return false;
        }
        self.injectors.pass();
        while let Some(slot) = self.injectors.passed() {
            self.release(now, slot);
        }
        true
    }

    /// A packet that was held back until now.
    pub(super) fn due(&mut self, now: Time) -> Option<Late> {
        while let Some(slot) = self.injectors.overdue(now) {
            self.release(now, slot);
        }
        let first = self.late.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When [`Faults::due`] has something next.
    pub(super) fn next_timeout(&self) -> Time {
        let late = self.late.first_key_value().map(|(&(at, _), _)| at);
        let held = self.held.values().map(|&(at, _)| at).min();
        late.into_iter().chain(held).min().unwrap_or(Time::NEVER)
    }

    fn release(&mut self, now: Time, slot: u32) {
        if let Some((_, late)) = self.held.remove(&slot) {
            self.late.insert((now, slot), late);
        }
    }

    fn keep(&mut self, at: Time, packet: &Packet, payload: &[u8]) {
        let number = self.next();
        self.late.insert((at, number), Late::new(packet, payload));
    }

    fn next(&mut self) -> u32 {
        self.count = self.count.wrapping_add(1);
        self.count
    }
}

impl Late {
    fn new(packet: &Packet, payload: &[u8]) -> Late {
        Late {
            packet: *packet,
            payload: payload.to_vec(),
        }
    }
}
