//! Quantities are read and printed without loss.

use super::*;
use proptest::prelude::*;

#[test]
fn quantities_are_exact() {
    for (text, bps) in [
        ("100Gbps", 100_000_000_000),
        ("0.1Gbps", 100_000_000),
        ("2.5 Gbps", 2_500_000_000),
        ("1e3Mbps", 1_000_000_000),
        ("25_000Mbps", 25_000_000_000),
        ("40Gb/s", 40_000_000_000),
        ("0", 0),
    ] {
        assert_eq!(text.parse(), Ok(Rate(bps)), "{text}");
    }
    for (text, ps) in [
        ("500ps", 500),
        ("4.096us", 4_096_000),
        ("67ms", 67_000_000_000),
        ("0.000001us", 1),
        ("12\u{b5}s", 12_000_000),
    ] {
        assert_eq!(parse_span(text), Ok(Span::from_ps(ps)), "{text}");
    }
    for (text, bytes) in [
        ("4KiB", 4096),
        ("10MB", 10_000_000),
        ("1024B", 1024),
        ("4096", 4096),
        ("1.5KiB", 1536),
    ] {
        assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
    }
    for (text, p) in [
        ("0.01%", 1e-4),
        ("1e-4", 1e-4),
        ("1/256", 1.0 / 256.0),
        ("100%", 1.0),
    ] {
        assert_eq!(text.parse(), Ok(Probability(p)), "{text}");
    }
}

#[test]
fn a_wrong_quantity_is_told_why() {
    let rate = |s: &str| s.parse::<Rate>().unwrap_err().to_string();
    assert_eq!(rate("fast"), "is not a rate; write it as \"100Gbps\"");
    assert_eq!(rate("100"), "needs a unit: bps, Kbps, Mbps, Gbps, Tbps");
    assert_eq!(
        rate("100gbps"),
        "has the unknown unit \"gbps\" (did you mean \"Gbps\"?); the units are bps, Kbps, Mbps, Gbps, Tbps"
    );
    assert_eq!(rate("1.5bps"), "is not a whole number of bits per second");
    assert_eq!(rate("-1bps"), "must not be negative");
    assert!(rate("1e99bps").contains("limit"));
    assert!(rate("99999999999999999999999999999999999999999999bps").contains("limit"));
    assert!(rate("1e-99999999999bps").contains("whole"));
    assert_eq!(
        "150%".parse::<Probability>().unwrap_err(),
        UnitError::AboveOne
    );
    assert!("1/0".parse::<Probability>().is_err());
    assert!("inf".parse::<Ratio>().is_err());
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(n: u64, round in 0u32..13, p in 0.0f64..=1.0, r in 0.0f64..1e30) {
        let rounded = n / 10u64.pow(round) * 10u64.pow(round);
        for n in [n, rounded, n >> (round * 4)] {
            prop_assert_eq!(Rate(n).to_string().parse(), Ok(Rate(n)));
            prop_assert_eq!(Size(n).to_string().parse(), Ok(Size(n)));
            prop_assert_eq!(Size(n << 10).to_string().parse(), Ok(Size(n << 10)));
            prop_assert_eq!(parse_span(&print_span(Span::from_ps(n))), Ok(Span::from_ps(n)));
        }
        for p in [p, p / 1e9, (p * 1000.0).floor() / 1000.0] {
            prop_assert_eq!(Probability(p).to_string().parse(), Ok(Probability(p)));
        }
        prop_assert_eq!(Ratio(r).to_string().parse(), Ok(Ratio(r)));
    }

    #[test]
    fn no_text_panics(s in "[-+0-9_.eEKMGTibpsB/%\u{b5}\\PC]{0,60}") {
        let _ = s.parse::<Rate>();
        let _ = s.parse::<Size>();
        let _ = s.parse::<Ratio>();
        let _ = s.parse::<Probability>();
        let _ = parse_span(&s);
    }
}
