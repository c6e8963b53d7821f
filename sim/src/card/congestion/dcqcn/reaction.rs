//! The reaction point: what a sender does about CNPs.
//!
//! Nothing happens by events of its own. Timers that have run out are looked at when the next packet goes
//! or the next CNP comes, in the order in which they ran out; a timer that changes nothing any more is
//! counted without being run.

use super::{AlphaUpdate, Dcqcn, Increase};
use crate::card::congestion::{CongestionState, Controller};
use crate::rate::Rate;
use crate::time::{Span, Time};

/// One, as alpha and g are kept.
const ONE: u64 = 1 << 30;

/// The DCQCN of one queue pair.
#[derive(Clone, Debug)]
pub(in crate::card::congestion) struct ReactionPoint {
    p: Dcqcn,
    g: u64,
    /// Of the port, in bits per second.
    line: u64,
    min_rate: u64,
    /// There was a CNP. Before the first one nothing is limited, and nothing below means anything.
    active: bool,
    rate: u64,
    target: u64,
    /// As of `alpha_at` less one period.
    alpha: u64,
    /// When the alpha timer next runs out.
    alpha_at: Time,
    /// A CNP has come that raises alpha then.
    alpha_cnp: bool,
    /// When the rate timer next runs out.
    rate_at: Time,
    /// Bytes sent since the byte counter last ran out.
    bytes: u64,
    timer_stages: u32,
    byte_stages: u32,
    /// No cut before this.
    cut_from: Time,
    /// A CNP came before that; the cut is made then.
    cut_due: bool,
    reductions: u64,
}

/// `ratio`, 0 to 1, in units of 1 / [`ONE`]; what is no number is 0.
fn fixed_point(ratio: f64) -> u64 {
    (ratio.clamp(0.0, 1.0) * ONE as f64) as u64
}

/// The end of a period that begins at `from`; never, if there is none.
fn after(from: Time, period: Span) -> Time {
    if period == Span::ZERO {
        Time::NEVER
    } else {
        from + period
    }
}

impl ReactionPoint {
    pub(in crate::card::congestion) fn new(p: Dcqcn, line: Rate) -> ReactionPoint {
        ReactionPoint {
            g: fixed_point(p.g),
            line: line.bps(),
            min_rate: p.min_rate.bps().min(line.bps()),
            active: false,
            rate: line.bps(),
            target: line.bps(),
            alpha: fixed_point(p.initial_alpha),
            alpha_at: Time::NEVER,
            alpha_cnp: false,
            rate_at: Time::NEVER,
            bytes: 0,
            timer_stages: 0,
            byte_stages: 0,
            cut_from: Time::ZERO,
            cut_due: false,
            reductions: 0,
            p,
        }
    }

    /// The limiter begins, with the first CNP.
    fn begin(&mut self, now: Time) {
        self.active = true;
        let first = self.p.first_cnp_rate.map_or(self.line, Rate::bps);
        self.rate = first.clamp(self.min_rate, self.line);
        self.target = self.rate;
        self.alpha_at = after(now, self.p.alpha_timer);
    }

    /// What has come due by `now`, but for alpha, which only a cut needs.
    #[inline]
    fn advance(&mut self, now: Time) {
        if self.cut_due && self.cut_from <= now {
            self.cut_due = false;
            self.run_rate_timer(self.cut_from);
            self.cut(self.cut_from);
        }
        if self.rate_at <= now {
            self.run_rate_timer(now);
        }
    }

    fn run_rate_timer(&mut self, now: Time) {
        while self.rate_at <= now {
            if self.rate == self.line && self.target == self.line {
                // Nothing is left to rise; only the count goes on.
                let (n, at) = rounds(self.rate_at, self.p.rate_timer, now);
                self.timer_stages = self.timer_stages.saturating_add(n);
                self.rate_at = at;
                return;
            }
            self.rate_at += self.p.rate_timer;
            let before = (self.timer_stages, self.byte_stages);
            self.timer_stages = self.timer_stages.saturating_add(1);
            self.step_up(before);
        }
    }

    /// A step up; `before` is how many there were before it, of the clock and of bytes.
    fn step_up(&mut self, before: (u32, u32)) {
        let f = self.p.fast_recovery;
        let added = match self.p.increase {
            Increase::Paper => {
                let (t, b) = (self.timer_stages, self.byte_stages);
                if t.max(b) < f {
                    0
                } else if t.min(b) > f {
                    u64::from(t.min(b) - f).saturating_mul(self.p.hyper.bps())
                } else {
                    self.p.additive.bps()
                }
            }
            Increase::ConnectX => match before.0.max(before.1) {
                n if n < f => 0,
                n if n == f => self.p.additive.bps(),
                _ => self.p.hyper.bps(),
            },
        };
        self.target = self.target.saturating_add(added).min(self.line);
        // Rounded up, so that it arrives.
        self.rate = (self.target + self.rate).div_ceil(2).min(self.line);
    }

    fn run_alpha_timer(&mut self, now: Time) {
        while self.alpha_at <= now {
            let before = self.alpha;
            self.alpha = self.decayed();
            if std::mem::take(&mut self.alpha_cnp) {
                self.alpha += self.g;
            } else if self.alpha == before {
                // It has come to its end.
                self.alpha_at = rounds(self.alpha_at, self.p.alpha_timer, now).1;
                return;
            }
            self.alpha_at += self.p.alpha_timer;
        }
    }

    /// Rounded down, so that it comes to an end.
    fn decayed(&self) -> u64 {
        self.alpha - (self.alpha * self.g).div_ceil(ONE)
    }

    /// Cuts the rate by what alpha is before this CNP.
    fn cut(&mut self, at: Time) {
        self.run_alpha_timer(at);
        if self.p.clamp_target || self.p.clamp_target_after_time_inc && self.timer_stages > 0 {
            self.target = self.rate;
        }
        // Alpha in 1024ths, over two to the exponent.
        let shift = 20 + u32::from(self.p.cut_exponent.min(31));
        let cut = (u128::from(self.rate) * u128::from(self.alpha)) >> shift;
        let floor = u128::from(self.rate) * u128::from(self.p.min_dec_fac.min(100)) / 100;
        let left = u128::from(self.rate).saturating_sub(cut).max(floor) as u64;
        self.rate = left.clamp(self.min_rate, self.line);
        self.bytes = 0;
        (self.timer_stages, self.byte_stages) = (0, 0);
        self.rate_at = after(at, self.p.rate_timer);
        self.cut_from = at + self.p.monitor_period;
        self.reductions += 1;
    }
}

/// How often a timer that next runs out at `at` does so up to and with `now`, and when it next does.
fn rounds(at: Time, period: Span, now: Time) -> (u32, Time) {
    let n = now.since(at).as_ps() / period.as_ps().max(1) + 1;
    (u32::try_from(n).unwrap_or(u32::MAX), at + period * n)
}

fn rate_of(bps: u64, line: u64) -> Rate {
    // Neither is ever zero.
    Rate::from_bps(bps.max(1))
        .or(Rate::from_bps(line))
        .unwrap_or(Rate::from_mbps(1))
}

impl Controller for ReactionPoint {
    fn rate(&mut self, now: Time) -> Option<Rate> {
        if !self.active {
            return None;
        }
        self.advance(now);
        if self.rate == self.line {
            return None;
        }
        Rate::from_bps(self.rate)
    }

    fn rises_at(&self) -> Time {
        self.rate_at
    }

    fn window(&self) -> Option<u64> {
        let line = rate_of(self.line, self.line);
        self.p
            .window
            .map(|w| w.at(rate_of(self.rate, self.line), line))
    }

    fn window_shrinks(&self) -> bool {
        self.p.window.is_some_and(|w| w.follows_rate)
    }

    fn sent(&mut self, now: Time, bytes: u32) {
        if !self.active {
            return;
        }
        self.advance(now);
        self.bytes += u64::from(bytes);
        let period = self.p.byte_counter;
        while period != 0 && self.bytes >= period {
            self.bytes -= period;
            let before = (self.timer_stages, self.byte_stages);
            self.byte_stages = self.byte_stages.saturating_add(1);
            self.step_up(before);
        }
    }

    fn notified(&mut self, now: Time) -> bool {
        let first = !self.active;
        if first {
            self.begin(now);
        } else {
            self.advance(now);
        }
        // What ran out before this CNP knew nothing of it.
        self.run_alpha_timer(now);
        if self.cut_from <= now {
            self.cut(now);
        } else {
            self.cut_due = true;
        }
        match self.p.alpha_update {
            AlphaUpdate::AtCnp => {
                self.alpha = self.decayed() + self.g;
                self.alpha_at = after(now, self.p.alpha_timer);
            }
            // The first CNP has set alpha already.
            AlphaUpdate::AtTimer => self.alpha_cnp |= !first,
        }
        true
    }

    fn state(&self, now: Time) -> CongestionState {
        let mut this = self.clone();
        this.advance(now);
        this.run_alpha_timer(now);
        CongestionState {
            name: "dcqcn",
            rate: rate_of(this.rate, this.line),
            target: Some(rate_of(this.target, this.line)),
            alpha: this.active.then_some(this.alpha as f64 / ONE as f64),
            window: this.window(),
            timer_stages: this.timer_stages,
            byte_stages: this.byte_stages,
            reductions: this.reductions,
        }
    }
}
