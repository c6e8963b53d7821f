//! The reaction point against arithmetic; `events`: against one that is driven by events.

mod events;

use super::*;
use crate::card::congestion::Controller;
use crate::time::Time;

fn us(n: u64) -> Time {
    Time::ZERO + Span::from_us(n)
}

fn gbps(rate: Rate) -> f64 {
    rate.bps() as f64 / 1e9
}

/// Rate and target in Gb/s.
fn rates(rp: &ReactionPoint, now: Time) -> (f64, f64) {
    let state = rp.state(now);
    (gbps(state.rate), gbps(state.target.unwrap()))
}

/// Within one bit per second.
fn near((rate, target): (f64, f64), expected: (f64, f64)) {
    let off = |a: f64, b: f64| (a - b).abs() > 1.5e-9;
    if off(rate, expected.0) || off(target, expected.1) {
        panic!("rate {rate} and target {target}, expected {expected:?}");
    }
}

/// The paper's, at 40 Gb/s, after two CNPs 50 us apart: rate 10 Gb/s, target 20 Gb/s.
fn twice_cut() -> ReactionPoint {
    let mut rp = ReactionPoint::new(Dcqcn::PAPER, Rate::from_gbps(40));
    assert_eq!(rp.rate(us(0)), None);
    rp.notified(us(0));
    near(rates(&rp, us(0)), (20.0, 40.0));
    rp.notified(us(50));
    near(rates(&rp, us(50)), (10.0, 20.0));
    rp
}

#[test]
fn before_the_first_cnp_nothing_is_limited() {
    let mut rp = ReactionPoint::new(Dcqcn::PAPER, Rate::from_gbps(40));
    for n in 0..100 {
        rp.sent(us(n), 1 << 20);
        assert_eq!(rp.rate(us(n)), None);
    }
    let state = rp.state(us(100));
    assert_eq!((state.rate, state.alpha), (Rate::from_gbps(40), None));
    assert_eq!((state.timer_stages, state.byte_stages), (0, 0));
}

#[test]
fn alpha_of_one_halves_the_rate_at_each_cnp() {
    let mut rp = twice_cut();
    rp.notified(us(100));
    near(rates(&rp, us(100)), (5.0, 10.0));
    // CNPs nearer than the alpha timer keep it at one.
    assert_eq!(rp.state(us(100)).alpha, Some(1.0));
    assert_eq!(rp.state(us(100)).reductions, 3);
}

#[test]
fn the_cut_uses_alpha_as_it_was_before_the_cnp() {
    let mut rp = ReactionPoint::new(Dcqcn::PAPER, Rate::from_gbps(40));
    rp.notified(us(0));
    // 55 and 110 us: twice 255/256. Rate 30, then 35 Gb/s.
    let alpha = 255.0 * 255.0 / 65536.0;
    assert_eq!(rp.state(us(54)).alpha, Some(1.0));
    assert_eq!(rp.state(us(110)).alpha, Some(alpha));
    near(rates(&rp, us(110)), (35.0, 40.0));
    rp.notified(us(120));
    near(rates(&rp, us(120)), (35.0 * (1.0 - alpha / 2.0), 35.0));
    let after = alpha * 255.0 / 256.0 + 1.0 / 256.0;
    let is = rp.state(us(120)).alpha.unwrap();
    assert!((is - after).abs() < 1e-8, "{is} {after}");
    // The timer began afresh.
    assert_eq!(rp.state(us(174)).alpha, Some(is));
    assert!(rp.state(us(175)).alpha.unwrap() < is);
}

#[test]
fn four_steps_of_fast_recovery_then_additive_increase() {
    let rp = twice_cut();
    // The rate timer began afresh at 50 us.
    near(rates(&rp, us(104)), (10.0, 20.0));
    for (at, rate, target) in [
        (105, 15.0, 20.0),
        (160, 17.5, 20.0),
        (215, 18.75, 20.0),
        (270, 19.375, 20.0),
        (325, 19.7075, 20.04),
        (380, 19.89375, 20.08),
        (435, 20.006875, 20.12),
    ] {
        near(rates(&rp, us(at)), (rate, target));
    }
    let state = rp.state(us(435));
    assert_eq!((state.timer_stages, state.byte_stages), (7, 0));
}

#[test]
fn bytes_count_as_time_does_and_both_make_hyper_increase() {
    let mut rp = twice_cut();
    let send = |rp: &mut ReactionPoint, expected| {
        // A byte too few does nothing.
        rp.sent(us(60), 9_999_999);
        let before = rp.state(us(60)).byte_stages;
        rp.sent(us(60), 1);
        assert_eq!(rp.state(us(60)).byte_stages, before + 1);
        near(rates(rp, us(60)), expected);
    };
    for rate in [15.0, 17.5, 18.75, 19.375] {
        send(&mut rp, (rate, 20.0));
    }
    send(&mut rp, (19.7075, 20.04));
    send(&mut rp, (19.89375, 20.08));
    let mut rate = 19.89375;
    for (t, target) in [
        (1, 20.12),
        (2, 20.16),
        (3, 20.20),
        (4, 20.24),
        (5, 20.28),
        (6, 20.48), // min(6, 6) - 5 times 200 Mb/s
        (7, 20.68),
    ] {
        rate = (rate + target) / 2.0;
        let is = rates(&rp, us(50 + 55 * t));
        assert!(
            (is.0 - rate).abs() < 1e-8 && (is.1 - target).abs() < 1e-9,
            "{is:?}"
        );
    }
    // The seventh of the bytes: min(7, 7) - 5 is 2.
    rp.sent(us(50 + 55 * 7), 10_000_000);
    assert!((rates(&rp, us(50 + 55 * 7)).1 - 21.08).abs() < 1e-9);
}

#[test]
fn a_cnp_resets_both_counts_and_what_was_counted() {
    let mut rp = twice_cut();
    rp.sent(us(60), 15_000_000);
    assert_eq!(rp.state(us(110)).byte_stages, 1);
    assert_eq!(rp.state(us(110)).timer_stages, 1);
    rp.notified(us(110));
    let state = rp.state(us(110));
    assert_eq!((state.timer_stages, state.byte_stages), (0, 0));
    // The 5 MB that were counted are forgotten.
    rp.sent(us(111), 9_000_000);
    assert_eq!(rp.state(us(111)).byte_stages, 0);
}

#[test]
fn the_rate_comes_back_to_that_of_the_port_and_stays() {
    let mut rp = twice_cut();
    let end = us(50) + Span::from_us(55) * 100_000;
    assert_eq!(rp.state(end).timer_stages, 100_000);
    assert_eq!(rp.rate(end), None);
    near(rates(&rp, end), (40.0, 40.0));
    // Those that were counted at one go are not counted again, and the next one comes in its time.
    assert_eq!(rp.state(end).timer_stages, 100_000);
    let next = end + Span::from_us(55);
    let before = Time::from_ps(next.as_ps() - 1);
    assert_eq!(rp.state(before).timer_stages, 100_000);
    assert_eq!(rp.state(next).timer_stages, 100_001);
    rp.sent(end, 20_000_000);
    near(rates(&rp, end), (40.0, 40.0));
    // Alpha has died down: a CNP now hardly cuts.
    assert!(rp.state(end).alpha.unwrap() < 1e-6);
    rp.notified(end);
    near(rates(&rp, end), (40.0, 40.0));
}

#[test]
fn no_cut_goes_below_the_least_rate() {
    let mut rp = twice_cut();
    for n in 2..60 {
        rp.notified(us(50 * n));
    }
    near(rates(&rp, us(2950)), (0.001, 0.001));
}

#[test]
fn connectx_cuts_at_the_end_of_its_period_and_keeps_the_target() {
    let mut rp = ReactionPoint::new(Dcqcn::CONNECTX, Rate::from_gbps(100));
    rp.notified(us(0));
    let first = 100.0 * (1.0 - 1023.0 / 2048.0);
    near(rates(&rp, us(0)), (first, 100.0));
    // Within 4 us of the cut.
    rp.notified(us(2));
    near(rates(&rp, us(3)), (first, 100.0));
    let keep = 1019.0 / 1024.0;
    let mut alpha = 1023.0 / 1024.0;
    for raised in [false, false, true, false] {
        alpha = alpha * keep + if raised { 5.0 / 1024.0 } else { 0.0 };
    }
    let is = rp.state(us(4)).alpha.unwrap();
    assert!((is - alpha).abs() < 1e-8, "{is} {alpha}");
    let second = first * (1.0 - alpha / 2.0);
    let (rate, target) = rates(&rp, us(4));
    assert!((rate - second).abs() < 1e-6 && target == 100.0, "{rate}");
    // 300 us after the cut: one step of fast recovery, then additive, then hyper increase.
    let third = (100.0 + rate) / 2.0;
    near(rates(&rp, us(303)), (rate, 100.0));
    near(rates(&rp, us(304)), (third, 100.0));
    // A step by the clock came before this cut, so it clamps the target.
    rp.notified(us(310));
    near((0.0, rates(&rp, us(310)).1), (0.0, third));
    let (cut, _) = rates(&rp, us(310));
    let mut expected = (cut, third);
    for (stage, added) in [(1, 0.0), (2, 0.005), (3, 0.05), (4, 0.05)] {
        let target = expected.1 + added;
        expected = ((expected.0 + target) / 2.0, target);
        let is = rates(&rp, us(310 + 300 * stage));
        assert!((is.0 - expected.0).abs() < 1e-8, "{is:?} {expected:?}");
        assert!((is.1 - expected.1).abs() < 1e-8, "{is:?} {expected:?}");
    }
}

#[test]
fn one_cut_leaves_what_min_dec_fac_says() {
    let deep = Dcqcn {
        cut_exponent: 10,
        initial_alpha: 1.0,
        min_dec_fac: 30,
        ..Dcqcn::CONNECTX
    };
    let mut rp = ReactionPoint::new(deep, Rate::from_gbps(100));
    rp.notified(us(0));
    near(rates(&rp, us(0)), (30.0, 100.0));
}

#[test]
fn the_first_cnp_may_set_a_rate() {
    let set = Dcqcn {
        first_cnp_rate: Some(Rate::from_gbps(8)),
        ..Dcqcn::PAPER
    };
    let mut rp = ReactionPoint::new(set, Rate::from_gbps(40));
    rp.notified(us(0));
    near(rates(&rp, us(0)), (4.0, 8.0));
    rp.notified(us(1));
    near(rates(&rp, us(1)), (2.0, 4.0));
}

#[test]
fn a_window_shrinks_and_grows_with_the_rate() {
    let windowed = |follows_rate| Dcqcn {
        window: Some(Window {
            bytes: 100_000,
            follows_rate,
        }),
        ..Dcqcn::PAPER
    };
    for (follows, bytes) in [
        (true, [100_000, 50_000, 25_000, 37_500]),
        (false, [100_000; 4]),
    ] {
        let mut rp = ReactionPoint::new(windowed(follows), Rate::from_gbps(40));
        assert_eq!(rp.window(), Some(bytes[0]));
        rp.notified(us(0));
        assert_eq!(rp.window(), Some(bytes[1]));
        rp.notified(us(50));
        assert_eq!(rp.window(), Some(bytes[2]));
        assert_eq!(rp.state(us(105)).window, Some(bytes[3]));
    }
    let mut rp = ReactionPoint::new(Dcqcn::PAPER, Rate::from_gbps(40));
    rp.notified(us(0));
    assert_eq!(rp.window(), None);
}

#[test]
fn hpcc_scales_with_the_port() {
    let p = Dcqcn::hpcc(Rate::from_gbps(40));
    assert_eq!(p.additive, Rate::from_mbps(8));
    assert_eq!(p.hyper, Rate::from_mbps(80));
    // 5 and 50 Mb/s for each 25 Gb/s.
    let p = Dcqcn::hpcc(Rate::from_gbps(100));
    assert_eq!(p.additive, Rate::from_mbps(20));
    assert_eq!(p.hyper, Rate::from_mbps(200));
    assert_eq!(p.min_rate, Rate::from_mbps(100));
}

#[test]
fn what_cannot_be_is_named() {
    let line = Rate::from_gbps(40);
    for good in [Dcqcn::PAPER, Dcqcn::CONNECTX, Dcqcn::hpcc(line)] {
        assert_eq!(good.check(line), Ok(()));
    }
    let says = |p: Dcqcn| p.check(line).unwrap_err().to_string();
    let paper = Dcqcn::PAPER;
    let utmost = Dcqcn {
        cut_exponent: 31,
        min_dec_fac: 100,
        first_cnp_rate: Some(line),
        additive: line,
        hyper: line,
        min_rate: line,
        fast_recovery: 1,
        g: 1.0,
        initial_alpha: 0.0,
        ..paper
    };
    assert_eq!(utmost.check(line), Ok(()));
    let deep = |cut_exponent| Dcqcn {
        cut_exponent,
        ..paper
    };
    for exponent in [32, 255] {
        let message = format!("cut_exponent is {exponent}; it must be 0 to 31");
        assert_eq!(says(deep(exponent)), message);
    }
    let least = |min_dec_fac| Dcqcn {
        min_dec_fac,
        ..paper
    };
    for percent in [101, 255] {
        let message = format!("min_dec_fac is {percent}; it must be 0 to 100 percent");
        assert_eq!(says(least(percent)), message);
    }
    let over = Rate::from_bps(line.bps() + 1);
    assert!(
        says(Dcqcn {
            first_cnp_rate: over,
            ..paper
        })
        .starts_with("first_cnp_rate is ")
    );
    let over = over.unwrap();
    assert!(
        says(Dcqcn {
            additive: over,
            ..paper
        })
        .starts_with("additive is ")
    );
    assert!(
        says(Dcqcn {
            min_rate: over,
            ..paper
        })
        .starts_with("min_rate is ")
    );
    assert_eq!(
        says(Dcqcn { g: 1.5, ..paper }),
        "g is 1.5; it must be between 0 and 1"
    );
    assert_eq!(
        says(Dcqcn {
            initial_alpha: f64::NAN,
            ..paper
        }),
        "initial_alpha is NaN; it must be between 0 and 1"
    );
    assert_eq!(
        says(Dcqcn {
            hyper: Rate::from_gbps(50),
            ..paper
        }),
        "hyper is 50Gbps; it must be no more than the port's 40Gbps"
    );
    assert_eq!(
        says(Dcqcn {
            fast_recovery: 0,
            ..paper
        }),
        "fast_recovery is 0; it must be at least 1"
    );
}
