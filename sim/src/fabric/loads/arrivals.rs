//! Flows that arrive at random, of random sizes, without any function that platforms round differently.

use crate::random::Stream;
use crate::time::Span;

/// Draws a span that is distributed exponentially around `mean`: the gap between two arrivals of a
/// Poisson process.
///
/// Von Neumann's method of 1951, which only compares: draw numbers as long as they fall; if the run of
/// falling ones had an odd length its first number is the fraction, otherwise one is added to the whole
/// part and all begins anew. The result is exactly distributed but for the 64 bits of the fraction.
pub fn exponential(mean: Span, stream: &mut Stream) -> Span {
    let mut whole: u64 = 0;
    loop {
        let first = stream.bits();
        let (mut last, mut length) = (first, 1u64);
        loop {
            let next = stream.bits();
            if next >= last {
                break;
            }
            last = next;
            length += 1;
        }
        if length % 2 == 1 {
            let fraction = (u128::from(mean.as_ps()) * u128::from(first)) >> 64;
            return mean * whole + Span::from_ps(fraction as u64);
        }
        whole += 1;
    }
}

/// A distribution of sizes: a cumulative one in straight pieces, as papers give them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(Vec<(u64, u64)>);

/// Why a list of points is no distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizesError {
    /// There is no point.
    #[error("has no points")]
    Empty,
    /// A probability is not a number from 0 to 1.
    #[error("has at point {0} a probability that is not from 0 to 1")]
    Probability(usize),
    /// Sizes and probabilities must not fall.
    #[error("falls at point {0}: sizes must rise, and probabilities must not fall")]
    Falling(usize),
    /// The last probability must be 1.
    #[error("does not end with the probability 1")]
    Open,
    /// A size is too large.
    #[error("has at point {0} a size above 2 GiB")]
    TooLarge(usize),
}

/// One, in the units of probability here.
const ONE: u64 = 1 << 32;

impl Sizes {
    /// The distribution through `points`: size in bytes, and the probability that a flow has at most so
    /// many. A first point with a probability above 0 is a step: so many flows have just this size. Between
    /// two points sizes are spread evenly. Probabilities are kept to 32 bits.
    ///
    /// # Errors
    ///
    /// [`SizesError`], points counted from 0.
    pub fn new(points: &[(u64, f64)]) -> Result<Sizes, SizesError> {
        let mut kept: Vec<(u64, u64)> = Vec::new();
        for (n, &(size, p)) in points.iter().enumerate() {
            if !(0.0..=1.0).contains(&p) {
                return Err(SizesError::Probability(n));
            }
            if size > 1 << 31 {
                return Err(SizesError::TooLarge(n));
            }
            // Scaling by a power of two is exact.
            let p = (p * ONE as f64) as u64;
            if let Some(&(before, q)) = kept.last()
                && (size <= before || p < q)
            {
                return Err(SizesError::Falling(n));
            }
            kept.push((size, p));
        }
        match kept.last() {
            None => Err(SizesError::Empty),
            Some(&(_, ONE)) => Ok(Sizes(kept)),
            Some(_) => Err(SizesError::Open),
        }
    }

    /// Draws a size.
    pub fn draw(&self, stream: &mut Stream) -> u64 {
        let u = stream.bits() >> 32;
        let at = self.0.partition_point(|&(_, p)| p <= u);
        let (high, p) = self.0[at.min(self.0.len() - 1)];
        let Some(&(low, q)) = at.checked_sub(1).and_then(|n| self.0.get(n)) else {
            return high;
        };
        // More than `low`, at most `high`.
        let part = u128::from(high - low) * u128::from(u - q + 1);
        low + part.div_ceil(u128::from(p - q)) as u64
    }

    /// The mean size in bytes, rounded down.
    pub fn mean(&self) -> u64 {
        let (mut sum, mut before) = (0u128, None);
        for &(size, p) in &self.0 {
            sum += match before {
                None => u128::from(size) * 2 * u128::from(p),
                Some((low, q)) => u128::from(low + size) * u128::from(p - q),
            };
            before = Some((size, p));
        }
        (sum / u128::from(2 * ONE)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_exponential() {
        let mut stream = Stream::new(3, "gaps");
        let mean = Span::from_us(10);
        let n = 200_000;
        let (mut sum, mut beyond) = (0u128, [0u32; 3]);
        for _ in 0..n {
            let gap = exponential(mean, &mut stream);
            sum += u128::from(gap.as_ps());
            for (k, count) in beyond.iter_mut().enumerate() {
                *count += u32::from(gap > mean * (k as u64 + 1));
            }
        }
        // The mean has a standard deviation of mean / sqrt(n), 0.22 %.
        let measured = sum / n;
        assert!(measured.abs_diff(10_000_000) < 100_000, "{measured}");
        // A share e^-k lies beyond k means: 0.3679, 0.1353, 0.0498 of 200,000.
        for (count, expected) in beyond.into_iter().zip([73_576, 27_067, 9_957]) {
            assert!(u32::abs_diff(count, expected) < 1_300, "{beyond:?}");
        }
    }

    #[test]
    fn sizes_follow_their_points() {
        let sizes = Sizes::new(&[(100, 0.25), (200, 0.5), (1_000, 1.0)]).unwrap();
        // 100 * 1/4 + 150 * 1/4 + 600 * 1/2.
        assert_eq!(sizes.mean(), 362);
        let mut stream = Stream::new(3, "sizes");
        let n = 100_000;
        let (mut sum, mut counts) = (0u64, [0u32; 3]);
        for _ in 0..n {
            let size = sizes.draw(&mut stream);
            assert!((100..=1_000).contains(&size));
            sum += size;
            counts[match size {
                100 => 0,
                101..=200 => 1,
                _ => 2,
            }] += 1;
        }
        // Six standard deviations of a binomial(100000, 1/4) are 822.
        assert!((24_178..25_822).contains(&counts[0]), "{counts:?}");
        assert!((24_178..25_822).contains(&counts[1]), "{counts:?}");
        assert!((sum / n).abs_diff(363) < 8, "{}", sum / n);
        let one = Sizes::new(&[(7, 1.0)]).unwrap();
        assert_eq!((one.draw(&mut stream), one.mean()), (7, 7));
    }

    #[test]
    fn what_is_no_distribution_is_told() {
        for (points, error) in [
            (&[][..], SizesError::Empty),
            (&[(1, 0.5)], SizesError::Open),
            (&[(1, f64::NAN)], SizesError::Probability(0)),
            (&[(1, 0.5), (2, 1.5)], SizesError::Probability(1)),
            (&[(2, 0.5), (2, 1.0)], SizesError::Falling(1)),
            (&[(1, 0.5), (2, 0.4)], SizesError::Falling(1)),
            (&[(1 << 40, 1.0)], SizesError::TooLarge(0)),
        ] {
            assert_eq!(Sizes::new(points), Err(error));
        }
    }
}
