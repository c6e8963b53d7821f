//! DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015), as the paper
//! has it and as cards of the ConnectX family do.
//!
//! The parameters are here; the reaction point, what a sender does, is in `reaction`. Their names in
//! a ConnectX card's configuration stand in brackets. Where the paper's value is not the paper's own, the
//! source is given: "analysis" is "ECN or Delay: Lessons Learnt from Analysis of DCQCN and TIMELY"
//! (CoNEXT 2016), by the same authors, with its published models.

mod reaction;

#[cfg(test)]
mod tests;

pub(super) use reaction::ReactionPoint;

use super::{ParameterError, Window, within_line};
use crate::rate::Rate;
use crate::time::Span;

/// Parameters of DCQCN's reaction point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dcqcn {
    /// Weight of what is new in alpha, 0 to 1 (`dce_tcp_g`). Paper 1/256; ConnectX 5/1024, for its default
    /// 1019 is what is kept of 1024; "hpcc" 1/256.
    pub g: f64,
    /// Alpha at the first CNP, 0 to 1 (`initial_alpha_value`). Paper 1, so that the rate halves (analysis);
    /// ConnectX 1023/1024.
    pub initial_alpha: f64,
    /// Time without CNP after which alpha falls (`dce_tcp_rtt`); zero for never. Paper 55 us, which must
    /// be more than the time between CNPs; ConnectX 1 us.
    pub alpha_timer: Span,
    /// When a CNP raises alpha. Paper: at once. ConnectX: when the timer comes round, as a published model
    /// of it has it (approximate: the model in HPCC's simulator, not the card).
    pub alpha_update: AlphaUpdate,
    /// Time between steps up (`rpg_time_reset`); zero for never. Paper 55 us; ConnectX 300 us.
    pub rate_timer: Span,
    /// Bytes on the wire between steps up (`rpg_byte_reset`); zero for never. Paper 10 MB. ConnectX: off, as
    /// in that model (approximate: the unit of the default, 32767, is not known).
    pub byte_counter: u64,
    /// Steps of fast recovery, at least 1 (`rpg_threshold`). Paper 5; ConnectX 1.
    pub fast_recovery: u32,
    /// Added to the target in additive increase (`rpg_ai_rate`). Paper 40 Mb/s; ConnectX 5 Mb/s.
    pub additive: Rate,
    /// Added to the target in hyper increase (`rpg_hai_rate`). The paper gives no number; its author's
    /// simulator has 200 Mb/s. ConnectX 50 Mb/s.
    pub hyper: Rate,
    /// How steps are counted.
    pub increase: Increase,
    /// A cut takes alpha, in 1024ths, divided by two to this power (`rpg_gd`), 0 to 31. 11 is the paper's
    /// alpha / 2, and ConnectX' default.
    pub cut_exponent: u8,
    /// The least that one cut leaves, in percent of the rate (`rpg_min_dec_fac`), 0 to 100. Paper: nothing
    /// of the kind, 0; ConnectX 50.
    pub min_dec_fac: u8,
    /// Every cut makes the rate before it the target (`clamp_tgt_rate`). Paper: yes; ConnectX: no.
    pub clamp_target: bool,
    /// A cut after a step up by the clock does (`clamp_tgt_rate_after_time_inc`). ConnectX: yes.
    pub clamp_target_after_time_inc: bool,
    /// The least time between two cuts (`rate_reduce_monitor_period`); a CNP within it cuts at its end.
    /// Paper: zero, every CNP cuts; ConnectX 4 us.
    pub monitor_period: Span,
    /// The rate from which the first CNP cuts (`rate_to_set_on_first_cnp`); `None` is that of the port, as
    /// in the paper and by default (0) in ConnectX.
    pub first_cnp_rate: Option<Rate>,
    /// No cut goes below it (`rpg_min_rate`). ConnectX 1 Mb/s; the paper gives none, and the same is
    /// used.
    pub min_rate: Rate,
    /// A limit on what is in flight. None in the paper and in ConnectX; HPCC's authors compare with DCQCN
    /// that has one.
    pub window: Option<Window>,
}

/// When a CNP raises alpha.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlphaUpdate {
    /// When it comes, which starts the alpha timer afresh.
    AtCnp,
    /// When the alpha timer next comes round, which it does by itself from the first CNP on.
    AtTimer,
}

/// How steps up are counted. T of the clock and B of bytes, since the last cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Increase {
    /// With the one that is taken: max(T, B) < F is fast recovery, min(T, B) > F hyper increase by
    /// min(T, B) - F times the rate given, all else additive.
    Paper,
    /// Without the one that is taken: max(T, B) < F is fast recovery, = F additive, > F hyper increase by
    /// the rate given (the model of ConnectX in HPCC's simulator).
    ConnectX,
}

impl Dcqcn {
    /// The parameters of the paper.
    pub const PAPER: Dcqcn = Dcqcn {
        g: 1.0 / 256.0,
        initial_alpha: 1.0,
        alpha_timer: Span::from_us(55),
        alpha_update: AlphaUpdate::AtCnp,
        rate_timer: Span::from_us(55),
        byte_counter: 10_000_000,
        fast_recovery: 5,
        additive: Rate::from_mbps(40),
        hyper: Rate::from_mbps(200),
        increase: Increase::Paper,
        cut_exponent: 11,
        min_dec_fac: 0,
        clamp_target: true,
        clamp_target_after_time_inc: false,
        monitor_period: Span::ZERO,
        first_cnp_rate: None,
        min_rate: Rate::from_mbps(1),
        window: None,
    };

    /// The defaults of ConnectX cards, from published dumps of their configuration.
    pub const CONNECTX: Dcqcn = Dcqcn {
        g: 5.0 / 1024.0,
        initial_alpha: 1023.0 / 1024.0,
        alpha_timer: Span::from_us(1),
        alpha_update: AlphaUpdate::AtTimer,
        rate_timer: Span::from_us(300),
        byte_counter: 0,
        fast_recovery: 1,
        additive: Rate::from_mbps(5),
        hyper: Rate::from_mbps(50),
        increase: Increase::ConnectX,
        cut_exponent: 11,
        min_dec_fac: 50,
        clamp_target: false,
        clamp_target_after_time_inc: true,
        monitor_period: Span::from_us(4),
        first_cnp_rate: None,
        min_rate: Rate::from_mbps(1),
        window: None,
    };

    /// What the simulations of HPCC (SIGCOMM 2019) call DCQCN: like ConnectX, with rates that grow with that
    /// of the port, and at least 100 Mb/s.
    pub fn hpcc(line: Rate) -> Dcqcn {
        let share = |mbps: u64| {
            let bps = u128::from(line.bps()) * u128::from(mbps) / 25_000;
            u64::try_from(bps).ok().and_then(Rate::from_bps)
        };
        Dcqcn {
            g: 1.0 / 256.0,
            initial_alpha: 1.0,
            additive: share(5).unwrap_or(line),
            hyper: share(50).unwrap_or(line),
            min_dec_fac: 0,
            min_rate: Rate::from_mbps(100),
            ..Dcqcn::CONNECTX
        }
    }

    pub(super) fn check(&self, line: Rate) -> Result<(), ParameterError> {
        let wrong = |parameter, value: &dyn ToString, limit: &str| ParameterError {
            parameter,
            value: value.to_string(),
            limit: limit.to_string(),
        };
        for (parameter, value) in [("g", self.g), ("initial_alpha", self.initial_alpha)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(wrong(parameter, &value, "between 0 and 1"));
            }
        }
        if self.fast_recovery == 0 {
            return Err(wrong("fast_recovery", &0, "at least 1"));
        }
        if self.cut_exponent > 31 {
            return Err(wrong("cut_exponent", &self.cut_exponent, "0 to 31"));
        }
        if self.min_dec_fac > 100 {
            return Err(wrong("min_dec_fac", &self.min_dec_fac, "0 to 100 percent"));
        }
        within_line("additive", self.additive, line)?;
        within_line("hyper", self.hyper, line)?;
        within_line("min_rate", self.min_rate, line)?;
        match self.first_cnp_rate {
            Some(rate) => within_line("first_cnp_rate", rate, line),
            None => Ok(()),
        }
    }
}
