//! Encoded times and credits of the AETH and the queue pair attributes.

use crate::time::Span;

/// Waiting times of RNR NAKs in units of 10 us (9.7.5.2.8, table 45).
const RNR_TIMERS: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Receive requests that an encoded credit count stands for (9.7.7.2); 31 is "not limited".
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768,
];

/// The waiting time that the code (0 to 31; higher bits are ignored) in an RNR NAK asks for.
pub fn rnr_timer(code: u8) -> Span {
    Span::from_us(10) * u64::from(RNR_TIMERS[usize::from(code & 31)])
}

/// The local ACK timeout for an exponent: 4.096 us x 2^n, `None` for zero, which switches it off
/// (C9-140).
pub fn ack_timeout(exponent: u8) -> Option<Span> {
    (exponent != 0).then(|| Span::from_ns(4096) * (1 << (exponent & 31)))
}

/// The largest code that stands for no more than `receives` receive requests.
#[inline]
pub fn encode_credits(receives: u32) -> u8 {
    // Two codes for each power of two: it, and half as much again.
    match receives.checked_ilog2() {
        None => 0,
        Some(0) => 1,
        Some(log) => (2 * log + (receives >> (log - 1) & 1)).min(30) as u8,
    }
}

/// Receive requests that `code` stands for; `None` if it says "not limited".
#[inline]
pub fn decode_credits(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_timers_known_from_elsewhere() {
        // Code 22 in rc_rnr_late is 20.48 ms; 0, 1 and 31 as drivers document them.
        assert_eq!(rnr_timer(22), Span::from_us(20_480));
        assert_eq!(rnr_timer(0), Span::from_us(655_360));
        assert_eq!(rnr_timer(1), Span::from_us(10));
        assert_eq!(rnr_timer(31), Span::from_us(491_520));
    }

    #[test]
    fn timeout_14_is_67_ms() {
        assert_eq!(ack_timeout(14), Some(Span::from_ps(67_108_864_000)));
        assert_eq!(ack_timeout(0), None);
    }

    #[test]
    fn credits_never_promise_more_than_there_is() {
        for n in 0..40_000u32 {
            let code = encode_credits(n);
            assert!(decode_credits(code).unwrap() <= n);
            if code < 30 {
                assert!(decode_credits(code + 1).unwrap() > n);
            }
        }
        assert_eq!(decode_credits(31), None);
    }
}
