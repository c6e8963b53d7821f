//! Seeded random streams, one per named source.
//!
//! A fault on one link, the keys of one card and the arrivals of one load each draw from a stream of
//! their own, named after it, so that adding a source changes no other draw. The generator is
//! xoshiro256++ (value-stable across versions and platforms); no floating point takes part.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A random stream.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

/// A probability as a threshold for 64 random bits, exact at 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probability(u64);

impl Stream {
    /// The stream of the source called `name` in the world seeded with `seed`.
    pub fn new(seed: u64, name: &str) -> Stream {
        // FNV-1a over the name, then SplitMix64 (inside seed_from_u64) spreads the bits.
        let mut h: u64 = 0xcbf2_9ce4_8422_2325;
        for b in seed.to_le_bytes().into_iter().chain(name.bytes()) {
            h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Stream(Xoshiro256PlusPlus::seed_from_u64(h))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `p`. Draws always, so that a change of `p` moves no later draw.
    #[inline]
    pub fn chance(&mut self, p: Probability) -> bool {
        let bits = self.bits();
        p.0 == u64::MAX || bits < p.0
    }

    /// True with probability `p` times `num` / `den`, where `num` is at most `den`. Draws always.
    #[inline]
    pub fn chance_of(&mut self, p: Probability, num: u64, den: u64) -> bool {
        let threshold = u128::from(p.0) + u128::from(p.0 == u64::MAX);
        // Both products are below 2^128, but for p = 1 and the greatest `num`.
        u128::from(self.bits()) * u128::from(den) < threshold.saturating_mul(u128::from(num))
    }
}

impl Probability {
    /// Never.
    pub const ZERO: Probability = Probability(0);
    /// Always.
    pub const ONE: Probability = Probability(u64::MAX);

    /// A probability from 0 to 1; `None` outside that range or if not a number.
    pub fn new(p: f64) -> Option<Probability> {
        if !(0.0..=1.0).contains(&p) {
            return None;
        }
        // Scaling by a power of two is exact; the cast saturates at 1.0.
        Some(Probability((p * 18_446_744_073_709_551_616.0) as u64))
    }

    /// The value as a number from 0 to 1.
    pub fn get(self) -> f64 {
        if self == Probability::ONE {
            1.0
        } else {
            self.0 as f64 / 18_446_744_073_709_551_616.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_name_and_by_seed_and_repeat() {
        let draw = |seed, name| {
            let mut s = Stream::new(seed, name);
            [s.bits(), s.bits()]
        };
        assert_eq!(draw(1, "link a-b"), draw(1, "link a-b"));
        assert_ne!(draw(1, "link a-b"), draw(1, "link a-c"));
        assert_ne!(draw(1, "link a-b"), draw(2, "link a-b"));
    }

    #[test]
    fn probabilities_are_exact_at_both_ends() {
        let mut s = Stream::new(7, "x");
        assert!((0..1000).all(|_| !s.chance(Probability::ZERO)));
        assert!((0..1000).all(|_| s.chance(Probability::new(1.0).unwrap())));
        assert_eq!(Probability::new(1.5), None);
        assert_eq!(Probability::new(f64::NAN), None);
    }

    #[test]
    fn a_chance_of_a_quarter_hits_a_quarter() {
        let mut s = Stream::new(7, "x");
        let p = Probability::new(0.25).unwrap();
        let hits = (0..100_000).filter(|_| s.chance(p)).count();
        // Six standard deviations of a binomial(100000, 1/4) are 822.
        assert!((24_178..=25_822).contains(&hits), "{hits}");
    }
}
