//! A rate, a window, or both, that never change: a shaper, or the cap of a bandwidth-delay product.

use super::{CongestionState, Controller, ParameterError, Window, within_line};
use crate::rate::Rate;
use crate::time::Time;

/// Limits of every queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fixed {
    /// Bits per second on the wire, preamble and gap included; `None` is the port's.
    pub rate: Option<Rate>,
    /// Bytes that may be without acknowledgement.
    pub window: Option<u64>,
}

impl Fixed {
    /// A rate alone.
    pub const fn rate(rate: Rate) -> Fixed {
        Fixed {
            rate: Some(rate),
            window: None,
        }
    }

    pub(super) fn check(&self, line: Rate) -> Result<(), ParameterError> {
        match self.rate {
            Some(rate) => within_line("rate", rate, line),
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Constant {
    rate: Option<Rate>,
    window: Option<Window>,
    line: Rate,
}

impl Constant {
    pub(super) fn new(fixed: Fixed, line: Rate) -> Constant {
        Constant {
            rate: fixed.rate.filter(|&rate| rate < line),
            window: fixed.window.map(|bytes| Window {
                bytes,
                follows_rate: false,
            }),
            line,
        }
    }
}

impl Controller for Constant {
    fn rate(&mut self, _: Time) -> Option<Rate> {
        self.rate
    }

    fn window(&self) -> Option<u64> {
        self.window.map(|w| w.bytes)
    }

    fn state(&self, _: Time) -> CongestionState {
        CongestionState {
            name: "fixed",
            rate: self.rate.unwrap_or(self.line),
            target: None,
            alpha: None,
            window: self.window(),
            timer_stages: 0,
            byte_stages: 0,
            reductions: 0,
        }
    }
}
