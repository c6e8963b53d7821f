//! What a store-and-forward switch is like.

use super::ecn::EcnSpec;
use super::link::LinkSpec;
use super::pfc::PfcSpec;
use crate::card::PriorityMask;
use crate::time::Span;
use thiserror::Error;

/// What a switch is like. Priorities are 0 to 7.
///
/// A packet that can be sent at once takes no room; one that waits is counted, by the length of its
/// frame, against the buffer until its transmission begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchSpec {
    /// Bytes that may wait for one port in lossy priorities, all together: plain tail drop.
    pub port_buffer: u64,
    /// Bytes of the memory that all ports share: reserves, headroom, and the pool that is what these
    /// leave. `u64::MAX` for more than will ever be needed.
    pub buffer: u64,
    /// Bytes of the buffer set aside for what came in by each port in each priority.
    pub reserved: u64,
    /// Beside `port_buffer`: what one lossy queue may hold, as a multiple of what is free in the pool.
    pub lossy_share: Option<Ratio>,
    /// Priority-based flow control, and the priorities that do not lose packets by it.
    pub pfc: Option<PfcSpec>,
    /// By priority: when packets are marked.
    pub ecn: [Option<EcnSpec>; 8],
    /// By priority: its share of what the strict priorities leave of a port, by deficit round robin in
    /// bytes. 0 is strict: before all that have a share, the highest first.
    pub weights: [u8; 8],
    /// By DSCP: the priority that packets are treated as. Without, each has the one it was sent with.
    pub classes: Option<[u8; 64]>,
}

impl Default for SwitchSpec {
    /// 1 MiB for each port, and nothing but tail drop.
    fn default() -> SwitchSpec {
        SwitchSpec::tail_drop(1 << 20)
    }
}

impl SwitchSpec {
    /// So many bytes for each port, tail drop, strict priorities, no PFC, no ECN.
    pub const fn tail_drop(port_buffer: u64) -> SwitchSpec {
        SwitchSpec {
            port_buffer,
            buffer: u64::MAX,
            reserved: 0,
            lossy_share: None,
            pfc: None,
            ecn: [None; 8],
            weights: [0; 8],
            classes: None,
        }
    }

    /// True if there is nothing but tail drop for each port and strict priorities.
    pub(super) fn is_plain(&self) -> bool {
        *self == SwitchSpec::tail_drop(self.port_buffer)
    }

    /// The priorities that do not lose packets for want of room.
    pub(super) fn lossless(&self) -> PriorityMask {
        self.pfc.map_or(PriorityMask::NONE, |pfc| pfc.priorities)
    }

    /// Bytes of the buffer that reserves and headroom leave for all its ports together, which are at the ends of
    /// `links`; hardly less than `u64::MAX` if there is more than will ever be needed.
    ///
    /// # Errors
    ///
    /// [`SwitchError::Buffer`] if they are more than there is.
    pub fn pool<'a>(
        &self,
        links: impl IntoIterator<Item = &'a LinkSpec>,
    ) -> Result<u64, SwitchError> {
        let headroom = |link| self.pfc.map_or(0, |pfc| pfc.headroom.bytes(link));
        self.left(links.into_iter().map(headroom))
    }

    /// As [`SwitchSpec::pool`], with the headroom of each port for each lossless priority.
    pub(super) fn left(&self, headroom: impl Iterator<Item = u64>) -> Result<u64, SwitchError> {
        let priorities = u64::from(self.lossless().0.count_ones());
        let reserves = self.reserved.saturating_mul(8);
        let needed = headroom.fold(0u64, |sum, one| {
            sum.saturating_add(reserves)
                .saturating_add(one.saturating_mul(priorities))
        });
        let buffer = self.buffer;
        buffer
            .checked_sub(needed)
            .ok_or(SwitchError::Buffer { needed, buffer })
    }

    /// Checks what can be checked without the ports.
    pub(super) fn check(&self) -> Result<(), SwitchError> {
        if let Some(classes) = self.classes
            && let Some(dscp) = classes.iter().position(|&class| class > 7)
        {
            return Err(SwitchError::Class {
                dscp,
                priority: classes[dscp],
            });
        }
        for (priority, ecn) in self.ecn.iter().enumerate() {
            if let Some(ecn) = ecn
                && ecn.kmin > ecn.kmax
            {
                return Err(SwitchError::Ecn {
                    priority,
                    kmin: ecn.kmin,
                    kmax: ecn.kmax,
                });
            }
        }
        match self.pfc {
            Some(pfc) if pfc.quanta == 0 => Err(SwitchError::NoPause),
            Some(pfc) if pfc.watchdog.is_some_and(|w| w.after == Span::ZERO) => {
                Err(SwitchError::Watchdog)
            }
            _ => Ok(()),
        }
    }
}

/// A share: so many of so many, e.g. 1/8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio {
    numerator: u16,
    denominator: u16,
}

impl Ratio {
    /// `numerator` / `denominator`; `None` if the latter is 0.
    pub const fn new(numerator: u16, denominator: u16) -> Option<Ratio> {
        if denominator == 0 {
            return None;
        }
        Some(Ratio {
            numerator,
            denominator,
        })
    }

    #[inline]
    pub(super) fn numerator(self) -> u64 {
        self.numerator.into()
    }

    #[inline]
    pub(super) fn denominator(self) -> u64 {
        self.denominator.into()
    }

    /// The share of `bytes`, which are at most [`Ratio::MOST`], rounded down.
    #[inline]
    pub(super) fn of(self, bytes: u64) -> u64 {
        bytes * self.numerator() / self.denominator()
    }

    /// What a share is taken of at most, so that no product overflows: 256 TB.
    pub(super) const MOST: u64 = 1 << 48;
}

/// What is wrong with a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SwitchError {
    /// Reserves and headroom are more than there is.
    #[error("reserves and headroom of its ports take {needed} bytes, the buffer has {buffer}")]
    Buffer {
        /// What they take.
        needed: u64,
        /// What there is.
        buffer: u64,
    },
    /// A DSCP is mapped to no priority.
    #[error("DSCP {dscp} is mapped to priority {priority}; it must be at most 7")]
    Class {
        /// The DSCP.
        dscp: usize,
        /// What it is mapped to.
        priority: u8,
    },
    /// The thresholds are the wrong way round.
    #[error("ECN of priority {priority}: kmin is {kmin}, more than kmax, which is {kmax}")]
    Ecn {
        /// The priority.
        priority: usize,
        /// Lower threshold.
        kmin: u64,
        /// Upper threshold.
        kmax: u64,
    },
    /// A pause of no length does not pause.
    #[error("PFC: a pause lasts 0 quanta; it must be at least 1")]
    NoPause,
    /// A watchdog that takes every pause for a storm, at the instant it begins.
    #[error("PFC: the watchdog acts after 0 s; it must be more")]
    Watchdog,
}
