//! The reaction point, which works out what has happened when it is asked, against one that is driven by events.

use super::*;
use proptest::prelude::*;

/// DCQCN as its timers drive it, each run out in its turn, in floating point.
struct Reference {
    p: Dcqcn,
    line: f64,
    on: bool,
    rate: f64,
    target: f64,
    alpha: f64,
    raise: bool,
    alpha_at: Option<u64>,
    rate_at: Option<u64>,
    cut_at: Option<u64>,
    last_cut: Option<u64>,
    bytes: u64,
    t: u32,
    b: u32,
    cuts: u64,
}

impl Reference {
    fn new(p: Dcqcn, line: Rate) -> Reference {
        let line = line.bps() as f64;
        Reference {
            p,
            line,
            on: false,
            rate: line,
            target: line,
            alpha: p.initial_alpha,
            raise: false,
            alpha_at: None,
            rate_at: None,
            cut_at: None,
            last_cut: None,
            bytes: 0,
            t: 0,
            b: 0,
            cuts: 0,
        }
    }

    fn timer(now: u64, period: Span) -> Option<u64> {
        (period != Span::ZERO).then(|| now + period.as_ps())
    }

    /// Runs whatever is due up to and with `now`, the earliest first: alpha before rate before cut.
    fn run(&mut self, now: u64) {
        loop {
            let due = [(self.alpha_at, 0), (self.rate_at, 1), (self.cut_at, 2)];
            let next = due.iter().filter_map(|&(at, what)| Some((at?, what))).min();
            match next {
                Some((at, 0)) if at <= now => {
                    self.alpha *= 1.0 - self.p.g;
                    if self.raise {
                        self.alpha += self.p.g;
                    }
                    self.raise = false;
                    self.alpha_at = Self::timer(at, self.p.alpha_timer);
                }
                Some((at, 1)) if at <= now => {
                    self.up(true);
                    self.rate_at = Self::timer(at, self.p.rate_timer);
                }
                Some((at, _)) if at <= now => {
                    self.cut_at = None;
                    self.cut(at);
                }
                _ => return,
            }
        }
    }

    fn up(&mut self, clock: bool) {
        let most_before = self.t.max(self.b);
        *(if clock { &mut self.t } else { &mut self.b }) += 1;
        let (most, least) = (self.t.max(self.b), self.t.min(self.b));
        let (f, ai, hai) = (
            self.p.fast_recovery,
            self.p.additive.bps() as f64,
            self.p.hyper.bps() as f64,
        );
        let step = match self.p.increase {
            Increase::Paper if most < f => 0.0,
            Increase::Paper if least > f => f64::from(least - f) * hai,
            Increase::Paper => ai,
            Increase::ConnectX if most_before < f => 0.0,
            Increase::ConnectX if most_before == f => ai,
            Increase::ConnectX => hai,
        };
        self.target = (self.target + step).min(self.line);
        self.rate = ((self.target + self.rate) / 2.0).min(self.line);
    }

    fn cut(&mut self, at: u64) {
        if self.p.clamp_target || self.p.clamp_target_after_time_inc && self.t > 0 {
            self.target = self.rate;
        }
        let factor = 1.0 - self.alpha * 1024.0 / f64::from(1u32 << self.p.cut_exponent);
        let least = f64::from(self.p.min_dec_fac) / 100.0;
        self.rate = (self.rate * factor.max(least)).max(self.p.min_rate.bps() as f64);
        (self.t, self.b, self.bytes) = (0, 0, 0);
        self.rate_at = Self::timer(at, self.p.rate_timer);
        self.last_cut = Some(at);
        self.cuts += 1;
    }

    fn cnp(&mut self, now: u64) {
        self.run(now);
        let first = !self.on;
        if first {
            self.on = true;
            self.alpha_at = Self::timer(now, self.p.alpha_timer);
            if let Some(rate) = self.p.first_cnp_rate {
                (self.rate, self.target) = (rate.bps() as f64, rate.bps() as f64);
            }
        }
        match self.last_cut.map(|at| at + self.p.monitor_period.as_ps()) {
            Some(at) if at > now => self.cut_at = Some(at),
            _ => self.cut(now),
        }
        if self.p.alpha_update == AlphaUpdate::AtCnp {
            self.alpha = (1.0 - self.p.g) * self.alpha + self.p.g;
            self.alpha_at = Self::timer(now, self.p.alpha_timer);
        } else {
            self.raise |= !first;
        }
    }

    fn sent(&mut self, now: u64, bytes: u32) {
        self.run(now);
        if !self.on {
            return;
        }
        self.bytes += u64::from(bytes);
        while self.p.byte_counter != 0 && self.bytes >= self.p.byte_counter {
            self.bytes -= self.p.byte_counter;
            self.up(false);
        }
    }
}

fn parameters() -> impl Strategy<Value = Dcqcn> {
    let base = prop_oneof![
        Just(Dcqcn::PAPER),
        Just(Dcqcn::CONNECTX),
        Just(Dcqcn::hpcc(Rate::from_gbps(40)))
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let numbers = (1u64..64, 0u64..80, 0u64..400, 1u32..7, 0u8..3);
    let more = (0u64..4, 0u64..10, 0u8..101, 0u64..41);
    (base, flags, numbers, more).prop_map(
        |(base, flags, (g, alpha_us, rate_us, f, gd), (mb, monitor, fac, first))| {
            if flags.0 && flags.1 {
                return base;
            }
            Dcqcn {
                g: g as f64 / 1024.0,
                alpha_timer: Span::from_us(alpha_us),
                rate_timer: Span::from_us(rate_us),
                fast_recovery: f,
                cut_exponent: 10 + gd,
                byte_counter: mb * 1_000_000,
                monitor_period: Span::from_us(monitor),
                min_dec_fac: fac,
                clamp_target: flags.2,
                clamp_target_after_time_inc: flags.3,
                first_cnp_rate: Rate::from_bps(first * 1_000_000_000),
                ..base
            }
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Cnp,
    Sent(u32),
    Ask,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    // Gaps that fall on timers, and gaps that do not.
    let gap = prop_oneof![
        Just(0),
        (0u64..10).prop_map(|n| n * 1_000_000),
        (0u64..8).prop_map(|n| n * 55_000_000),
        0u64..900_000_000,
    ];
    let step = prop_oneof![
        Just(Step::Cnp),
        (64u32..3_000_000).prop_map(Step::Sent),
        Just(Step::Ask)
    ];
    proptest::collection::vec((gap, step), 1..60)
}

proptest! {
    #[test]
    fn looking_late_gives_what_events_give(p in parameters(), steps in steps()) {
        let line = Rate::from_gbps(40);
        let mut lazy = ReactionPoint::new(p, line);
        let mut eager = Reference::new(p, line);
        let mut now = 0;
        for (gap, step) in steps {
            now += gap;
            let at = Time::from_ps(now);
            match step {
                Step::Cnp => {
                    lazy.notified(at);
                    eager.cnp(now);
                }
                Step::Sent(bytes) => {
                    lazy.sent(at, bytes);
                    eager.sent(now, bytes);
                }
                Step::Ask => {
                    lazy.rate(at);
                }
            }
            eager.run(now);
            let state = lazy.state(at);
            let counts = (state.timer_stages, state.byte_stages, state.reductions);
            prop_assert_eq!(counts, (eager.t, eager.b, eager.cuts));
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-4 * b.abs() + 2.0;
            let (rate, target) = (state.rate.bps() as f64, state.target.unwrap().bps() as f64);
            prop_assert!(close(rate, eager.rate), "rate {} {}", rate, eager.rate);
            prop_assert!(close(target, eager.target), "target {} {}", target, eager.target);
            if let Some(alpha) = state.alpha {
                prop_assert!((alpha - eager.alpha).abs() < 1e-5, "alpha {} {}", alpha, eager.alpha);
            }
        }
    }
}
