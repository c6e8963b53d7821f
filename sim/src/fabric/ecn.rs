//! When a switch marks a packet: random early detection on the length of its queue.

use crate::random::{Probability, Stream};

/// ECN marking of one priority, as DCQCN's congestion point (Zhu et al., SIGCOMM 2015): with the length
/// of the queue, the marking probability is 0 up to `kmin`, rises linearly to `pmax` at `kmax`, and is 1
/// above that.
///
/// The length is that of the packet's priority at its port, the moment it leaves and without it. A
/// packet that is not ECN capable is let through as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EcnSpec {
    /// Bytes up to which no packet is marked.
    pub kmin: u64,
    /// Bytes from which on every packet is marked.
    pub kmax: u64,
    /// The probability at `kmax`.
    pub pmax: Probability,
}

impl EcnSpec {
    /// Whether a packet that leaves `bytes` behind it is marked. Draws between the thresholds only.
    #[inline]
    pub(super) fn marks(&self, bytes: u64, random: &mut Stream) -> bool {
        if bytes <= self.kmin {
            return false;
        }
        if bytes > self.kmax {
            return true;
        }
        random.chance_of(self.pmax, bytes - self.kmin, self.kmax - self.kmin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DCQCN's own: 5 KB, 200 KB, 1 %.
    fn dcqcn() -> EcnSpec {
        EcnSpec {
            kmin: 5_000,
            kmax: 200_000,
            pmax: Probability::new(0.01).unwrap(),
        }
    }

    fn share(ecn: EcnSpec, bytes: u64, of: u32) -> f64 {
        let mut random = Stream::new(3, "ecn");
        let marks = (0..of).filter(|_| ecn.marks(bytes, &mut random)).count();
        marks as f64 / f64::from(of)
    }

    #[test]
    fn the_curve_is_exact_at_its_edges() {
        let ecn = dcqcn();
        for (bytes, expected) in [(0, 0.0), (5_000, 0.0), (200_001, 1.0), (u64::MAX, 1.0)] {
            assert_eq!(share(ecn, bytes, 100_000), expected, "{bytes}");
        }
        // A step: DCTCP's K.
        let step = EcnSpec {
            kmin: 40_000,
            kmax: 40_000,
            pmax: Probability::ONE,
        };
        assert_eq!(share(step, 40_000, 1000), 0.0);
        assert_eq!(share(step, 40_001, 1000), 1.0);
        // All at kmax if pmax is 1; none below it if pmax is 0.
        let steep = EcnSpec {
            pmax: Probability::ONE,
            ..ecn
        };
        assert_eq!(share(steep, 200_000, 100_000), 1.0);
        let late = EcnSpec {
            pmax: Probability::ZERO,
            ..ecn
        };
        assert_eq!(share(late, 200_000, 100_000), 0.0);
    }

    #[test]
    fn between_the_thresholds_the_probability_rises_linearly() {
        let n = 1_000_000;
        for (bytes, p) in [
            (200_000, 0.01),
            (102_500, 0.005),
            (24_500, 0.001),
            (151_250, 0.0075),
        ] {
            // Six standard deviations of a binomial.
            let slack = 6.0 * (p * (1.0 - p) / f64::from(n)).sqrt();
            let found = share(dcqcn(), bytes, n);
            assert!((found - p).abs() < slack, "{bytes}: {found} for {p}");
        }
    }

    #[test]
    fn nothing_is_drawn_outside_the_thresholds() {
        let (mut used, mut fresh) = (Stream::new(3, "ecn"), Stream::new(3, "ecn"));
        for bytes in [0, 5_000, 200_001] {
            dcqcn().marks(bytes, &mut used);
        }
        assert_eq!(used.bits(), fresh.bits());
    }
}
