//! Pauses that a neighbour has asked for (IEEE 802.1Qbb).

use crate::card::PriorityMask;
use crate::time::{Span, Time};
use crate::wire::pfc::Pfc;

/// Which priorities are paused, and until when.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    until: [Time; 8],
    ready: PriorityMask,
    /// Length of one pause quantum, the time of 512 bits, in units of 2^-10 ps.
    quantum: u64,
}

impl Pauses {
    /// On a link of `speed` bits a second, at least 1.
    pub(super) fn new(speed: u64) -> Pauses {
        let quantum = (512u128 << 10) * 1_000_000_000_000 / u128::from(speed.max(1));
        Pauses {
            until: [Time::ZERO; 8],
            ready: PriorityMask::ALL,
            quantum: u64::try_from(quantum).unwrap_or(u64::MAX),
        }
    }

    /// Takes a frame; counts the pauses it begins or prolongs.
    pub(super) fn set(&mut self, now: Time, pfc: &Pfc, pauses: &mut [u64; 8]) {
        for priority in 0..8u8 {
            let Some(quanta) = pfc.pause(priority) else {
                continue;
            };
            let i = usize::from(priority);
            let ps = (u128::from(quanta) * u128::from(self.quantum)) >> 10;
            self.until[i] = now + Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX));
            if quanta > 0 {
                pauses[i] += 1;
                self.ready = self.ready.without(priority);
            }
        }
        self.advance(now);
    }

    /// Ends the pauses whose time has come.
    pub(super) fn advance(&mut self, now: Time) {
        for priority in 0..8u8 {
            if self.until[usize::from(priority)] <= now {
                self.ready = self.ready.with(priority);
            }
        }
    }

    /// Priorities that are not paused, as of the last call.
    pub(super) fn ready(&self) -> PriorityMask {
        self.ready
    }

    /// When the first pause ends.
    pub(super) fn next_timeout(&self) -> Time {
        let paused = (0..8u8).filter(|&p| !self.ready.contains(p));
        let ends = paused.map(|p| self.until[usize::from(p)]);
        ends.min().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MacAddr;

    #[test]
    fn a_pause_lasts_its_quanta_and_zero_ends_it() {
        // At 10 Gb/s 512 bits last 51.2 ns.
        let mut pauses = Pauses::new(10_000_000_000);
        let mut counted = [0; 8];
        let frame = |enabled, quanta| Pfc::new(MacAddr::default(), enabled, quanta);
        let start = Time::from_ps(1_000_000);
        assert_eq!(pauses.ready(), PriorityMask::ALL);
        assert_eq!(pauses.next_timeout(), Time::NEVER);

        pauses.set(start, &frame(0b1001, 1000), &mut counted);
        assert_eq!(pauses.ready(), PriorityMask(0b1111_0110));
        let end = start + Span::from_ps(51_200_000);
        assert_eq!(pauses.next_timeout(), end);
        pauses.advance(Time::from_ps(end.as_ps() - 1));
        assert_eq!(pauses.ready(), PriorityMask(0b1111_0110));

        // Priority 3 is let go, priority 0 is not named and stays.
        pauses.set(start, &frame(0b1000, 0), &mut counted);
        assert_eq!(pauses.ready(), PriorityMask(0b1111_1110));
        pauses.advance(end);
        assert_eq!(pauses.ready(), PriorityMask::ALL);
        assert_eq!(counted, [1, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_quantum_at_400_gigabits_is_not_rounded_away() {
        // 512 bits last 1.28 ns; 65,535 of them 83.8848 us.
        let mut pauses = Pauses::new(400_000_000_000);
        let frame = Pfc::new(MacAddr::default(), 1, u16::MAX);
        pauses.set(Time::ZERO, &frame, &mut [0; 8]);
        assert_eq!(pauses.next_timeout(), Time::from_ps(83_884_800));
    }
}
