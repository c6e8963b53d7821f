//! DCQCN's rate after each CNP, each timer and each byte counter, in the order in which they come.
//!
//! Rates are in Mb/s, and what is expected is worked out by hand from the rules of the paper, or of ConnectX,
//! above each test.

use super::super::Rule;
use super::super::Source::Behaviour;
use super::*;
use crate::bench::*;
use softroce_sim::card::congestion::CongestionState;
use softroce_sim::card::{CongestionControl, Dcqcn};
use softroce_sim::rate::Rate;
use softroce_sim::time::Span;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "A CNP cuts by half of what alpha was before it, and makes the rate the target",
        [a_cut_is_by_the_old_alpha]
    ),
    rule!(
        Behaviour,
        "Alpha falls by its weight with each alpha timer that no CNP starts afresh",
        [alpha_decays]
    ),
    rule!(
        Behaviour,
        "Steps by the clock: fast recovery, from the fifth on additive increase, up to the port's rate",
        [the_clock_makes_stages]
    ),
    rule!(
        Behaviour,
        "Steps by bytes sent are the same, and if both counts are past five increase is hyper",
        [bytes_make_stages]
    ),
    rule!(
        Behaviour,
        "A CNP begins both counts, and what they have counted, afresh",
        [a_cnp_begins_afresh]
    ),
    rule!(
        Behaviour,
        "No cut goes below the least rate, and from there the rate recovers",
        [no_cut_goes_below_the_least_rate]
    ),
    rule!(
        Behaviour,
        "ConnectX: cuts 4 us apart, alpha by the timer, and the target kept until the clock has stepped",
        [connectx_cuts, connectx_keeps_the_target]
    ),
    rule!(
        Behaviour,
        "ConnectX: one step of fast recovery, one of additive, then hyper increase",
        [connectx_recovers]
    ),
];

fn with(reaction: Dcqcn) -> Bench {
    let mut setup = managed(Setup::uc());
    setup.config.congestion = CongestionControl::Dcqcn(reaction);
    Bench::new(setup)
}

fn state(b: &Bench) -> CongestionState {
    b.card.congestion(b.now, b.qp.number()).unwrap()
}

fn cnp_at(b: &mut Bench, at: u64) {
    b.now = us(at);
    hear_cnp(b);
}

/// Rate and target within 100 bits per second: alpha has 30 bits.
fn is(b: &Bench, rate: f64, target: f64) {
    let s = state(b);
    let mbps = |rate: Rate| rate.bps() as f64 / 1e6;
    let found = (mbps(s.rate), mbps(s.target.unwrap()));
    let near = |a: f64, b: f64| (a - b).abs() < 1e-4;
    assert!(
        near(found.0, rate) && near(found.1, target),
        "at {}: {found:?}, expected {:?}",
        b.now,
        (rate, target)
    );
}

fn alpha_is(b: &Bench, expected: f64) {
    let alpha = state(b).alpha.unwrap();
    assert!(
        (alpha - expected).abs() < 1e-6,
        "{}: {alpha} {expected}",
        b.now
    );
}

/// What is kept of alpha: 1 - 1/256.
const KEEP: f64 = 255.0 / 256.0;

fn a_cut_is_by_the_old_alpha() {
    let mut b = with(Dcqcn::PAPER);
    assert_eq!((state(&b).rate, state(&b).alpha), (LINE, None));
    // Alpha begins at one: 40 Gb/s is halved. One stays one if a CNP raises it.
    cnp_at(&mut b, 0);
    is(&b, 20_000.0, 40_000.0);
    alpha_is(&b, 1.0);
    // Two timers later alpha is (255/256)^2 = 0.992203, and the rate 20 -> 30 -> 35 Gb/s. The CNP cuts by half of
    // that alpha; only then is it raised.
    cnp_at(&mut b, 110);
    let old = KEEP * KEEP;
    is(&b, 35_000.0 * (1.0 - old / 2.0), 35_000.0);
    alpha_is(&b, old * KEEP + 1.0 / 256.0);
    assert_eq!(state(&b).reductions, 2);
    // Another at the same instant cuts what is left by the alpha that the last one has raised.
    let (rate, raised) = (35_000.0 * (1.0 - old / 2.0), old * KEEP + 1.0 / 256.0);
    cnp_at(&mut b, 110);
    is(&b, rate * (1.0 - raised / 2.0), rate);
}

fn alpha_decays() {
    let mut b = with(Dcqcn::PAPER);
    cnp_at(&mut b, 0);
    let mut alpha = 1.0;
    for n in 1..=200 {
        b.now = Time::from_ps(us(55 * n).as_ps() - 1);
        alpha_is(&b, alpha);
        alpha *= KEEP;
        b.now = us(55 * n);
        alpha_is(&b, alpha);
    }
    // The timer runs from the CNP.
    cnp_at(&mut b, 11_030);
    alpha = alpha * KEEP + 1.0 / 256.0;
    b.now = us(11_084);
    alpha_is(&b, alpha);
    b.now = us(11_085);
    alpha_is(&b, alpha * KEEP);
}

/// Twice halved, 50 us apart, so that alpha is still one: the rate is 10 Gb/s, the target 20.
fn twice_halved(b: &mut Bench) {
    cnp_at(b, 0);
    cnp_at(b, 50);
    is(b, 10_000.0, 20_000.0);
}

fn the_clock_makes_stages() {
    let mut b = with(Dcqcn::PAPER);
    twice_halved(&mut b);
    b.now = us(104);
    is(&b, 10_000.0, 20_000.0);
    // Half of the way to the target four times; then the target goes up by 40 Mb/s first.
    let steps = [
        (15_000.0, 20_000.0),
        (17_500.0, 20_000.0),
        (18_750.0, 20_000.0),
        (19_375.0, 20_000.0),
        (19_707.5, 20_040.0),
        (19_893.75, 20_080.0),
        (20_006.875, 20_120.0),
        (20_083.437_5, 20_160.0),
    ];
    for (n, (rate, target)) in (1..).zip(steps) {
        b.now = us(50 + 55 * n);
        is(&b, rate, target);
        assert_eq!(state(&b).timer_stages, n as u32);
    }
    // 496 more steps of 40 Mb/s bring the target to 40 Gb/s, and it stays there.
    b.now = us(50 + 55 * (8 + 495));
    let target = state(&b).target.unwrap();
    assert_eq!(target, Rate::from_mbps(39_960));
    for steps in [600, 100_000] {
        b.now = us(50 + 55 * steps);
        is(&b, 40_000.0, 40_000.0);
        assert_eq!(u64::from(state(&b).timer_stages), steps);
    }
}

fn bytes_make_stages() {
    // A step with every third packet, which on a UC connection are all alike; the clock makes one at 105 us, 160, ...
    let mut b = with(Dcqcn {
        byte_counter: 3 * 1106,
        ..Dcqcn::PAPER
    });
    twice_halved(&mut b);
    let step = |b: &mut Bench, n: u32| {
        b.post_send(n.into(), 3 << 10);
        let until = b.now + Span::from_us(8);
        assert_eq!(sends_until(b, until).len(), 3);
        assert_eq!(state(b).byte_stages, n);
    };
    for (n, (rate, target)) in (1..).zip([
        (15_000.0, 20_000.0),
        (17_500.0, 20_000.0),
        (18_750.0, 20_000.0),
        (19_375.0, 20_000.0),
        (19_707.5, 20_040.0),
        (19_893.75, 20_080.0),
    ]) {
        step(&mut b, n);
        is(&b, rate, target);
    }
    // Five steps by the clock, each additive, for six of bytes were before them.
    let (mut rate, mut target) = (19_893.75, 20_080.0);
    for n in 1..=5 {
        target += 40.0;
        rate = (rate + target) / 2.0;
        b.now = us(50 + 55 * n);
        is(&b, rate, target);
    }
    // The sixth: both are past five, by one, so that it is 200 Mb/s. The seventh finds six steps of bytes: again
    // one. Then the seventh of bytes: two, so that it is 400.
    for (n, added) in [(6, 200.0), (7, 200.0)] {
        target += added;
        rate = (rate + target) / 2.0;
        b.now = us(50 + 55 * n);
        is(&b, rate, target);
    }
    step(&mut b, 7);
    target += 400.0;
    rate = (rate + target) / 2.0;
    is(&b, rate, target);
}

fn a_cnp_begins_afresh() {
    let mut b = with(Dcqcn {
        byte_counter: 3 * 1106,
        ..Dcqcn::PAPER
    });
    twice_halved(&mut b);
    // Five packets: one step and two thirds of the next.
    b.post_send(1, 5 << 10);
    assert_eq!(sends_until(&mut b, us(90)).len(), 5);
    b.now = us(104);
    assert_eq!((state(&b).byte_stages, state(&b).timer_stages), (1, 0));
    is(&b, 15_000.0, 20_000.0);
    b.now = us(105);
    assert_eq!((state(&b).byte_stages, state(&b).timer_stages), (1, 1));
    is(&b, 17_500.0, 20_000.0);
    cnp_at(&mut b, 110);
    assert_eq!((state(&b).byte_stages, state(&b).timer_stages), (0, 0));
    let rate = state(&b).rate;
    // Two packets, which would have been a step, are none; nor is the time since the last step counted.
    b.post_send(2, 2 << 10);
    assert_eq!(sends_until(&mut b, us(164)).len(), 2);
    assert_eq!((state(&b).byte_stages, state(&b).rate), (0, rate));
    b.now = us(165);
    assert_eq!(state(&b).timer_stages, 1);
}

fn no_cut_goes_below_the_least_rate() {
    for least in [1, 100] {
        for base in [Dcqcn::PAPER, Dcqcn::CONNECTX] {
            let mut b = with(Dcqcn {
                min_rate: Rate::from_mbps(least),
                // Nothing rises in between.
                rate_timer: Span::ZERO,
                ..base
            });
            let lowest = Rate::from_mbps(least);
            for n in 0..40 {
                cnp_at(&mut b, 5 * n);
                assert!(state(&b).rate >= lowest);
            }
            assert_eq!(state(&b).rate, lowest);
        }
    }
    let mut b = with(Dcqcn::PAPER);
    for n in 0..40 {
        cnp_at(&mut b, 5 * n);
    }
    is(&b, 1.0, 1.0);
    // Four steps towards a target that is no higher, then additive: (1 + 41) / 2.
    b.now = us(5 * 39 + 55 * 5);
    is(&b, 21.0, 41.0);
}

/// What is kept of alpha there: 1019/1024; it begins at 1023/1024, and a cut is by alpha / 2.
const KEEP_CX: f64 = 1019.0 / 1024.0;
const FIRST_CX: f64 = 1023.0 / 1024.0;

fn connectx_cuts() {
    let mut b = with(Dcqcn::CONNECTX);
    cnp_at(&mut b, 0);
    let first = 40_000.0 * (1.0 - FIRST_CX / 2.0);
    is(&b, first, 40_000.0);
    // Two CNPs in the 4 us after it make one cut, at their end; the first of them raises alpha when its timer
    // comes round at 2 us, the other at 3.
    b.now = Time::from_ps(1_500_000);
    hear_cnp(&mut b);
    b.now = Time::from_ps(2_500_000);
    hear_cnp(&mut b);
    b.now = Time::from_ps(us(4).as_ps() - 1);
    is(&b, first, 40_000.0);
    b.now = us(4);
    let up = |alpha: f64| alpha * KEEP_CX + 5.0 / 1024.0;
    let alpha = up(up(FIRST_CX * KEEP_CX)) * KEEP_CX;
    alpha_is(&b, alpha);
    is(&b, first * (1.0 - alpha / 2.0), 40_000.0);
    assert_eq!(state(&b).reductions, 2);
    // No cut takes more than half.
    let mut deep = with(Dcqcn {
        cut_exponent: 10,
        ..Dcqcn::CONNECTX
    });
    cnp_at(&mut deep, 0);
    is(&deep, 20_000.0, 40_000.0);
}

fn connectx_keeps_the_target() {
    // No step by the clock between two cuts: the target stays, and one step goes half of the long way back.
    let mut b = with(Dcqcn::CONNECTX);
    for n in 0..4 {
        cnp_at(&mut b, 10 * n);
        assert_eq!(state(&b).target, Some(LINE));
    }
    let low = state(&b).rate.bps() as f64 / 1e6;
    assert!(low < 4_000.0, "{low}");
    b.now = us(330);
    is(&b, (40_000.0 + low) / 2.0, 40_000.0);
    // Such a step has been: the rate becomes the target.
    let rate = state(&b).rate;
    cnp_at(&mut b, 340);
    assert_eq!(state(&b).target, Some(rate));
}

fn connectx_recovers() {
    let mut b = with(Dcqcn::CONNECTX);
    cnp_at(&mut b, 0);
    b.now = us(300);
    let rate = state(&b).rate.bps() as f64 / 1e6;
    cnp_at(&mut b, 310);
    let mut expected = (state(&b).rate.bps() as f64 / 1e6, rate);
    is(&b, expected.0, expected.1);
    // By 0, 5, and from then on 50 Mb/s, in steps of 300 us.
    for (n, added) in (1..).zip([0.0, 5.0, 50.0, 50.0, 50.0]) {
        b.now = Time::from_ps(us(310 + 300 * n).as_ps() - 1);
        is(&b, expected.0, expected.1);
        let target = expected.1 + added;
        expected = ((expected.0 + target) / 2.0, target);
        b.now = us(310 + 300 * n);
        is(&b, expected.0, expected.1);
        assert_eq!(state(&b).timer_stages, n as u32);
    }
    // Bytes make no steps there: the counter is off.
    b.post_send(1, 16 << 10);
    assert_eq!(sends_until(&mut b, us(1820)).len(), 16);
    assert_eq!(state(&b).byte_stages, 0);
}
