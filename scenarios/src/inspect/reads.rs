//! READ and atomic requests: the PSNs their responses take up, and how far these have come.
//!
//! A READ takes as many PSNs as it has responses, which depends on the path MTU. Until that is known
//! the newest READ is open: nothing is said about PSNs behind it.

use super::copy::after;
use super::messages::responses;
use super::requests::{Request, Requests};
use softroce_sim::wire::{Operation, Psn};

/// Places a READ was repeated from that are remembered: responses to the one before may still come.
const RESTARTS: usize = 16;
/// READ and atomic requests that are remembered.
const REMEMBERED: usize = 128;

/// A READ or atomic request and its responses.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) operation: Operation,
    pub(super) first: Psn,
    pub(super) last: Psn,
    /// Bytes asked for; `None` if the capture cut the RETH.
    pub(super) len: Option<u32>,
    pub(super) number: u64,
    /// The first response that was not seen.
    pub(super) expect: Psn,
    /// Behind the last response seen; beyond `expect` if some are missing.
    pub(super) reached: Psn,
    /// Where the request was repeated from.
    pub(super) restarts: Vec<Psn>,
    /// All responses were seen.
    pub(super) done: bool,
    /// A later response was seen before these were complete, and that was reported.
    pub(super) passed: bool,
}

impl Requests {
    /// What a repeated READ request asks for, if it is not the first one's PSN.
    pub(super) fn read_again(&self, r: &Request) -> Option<String> {
        let psn = r.piece.psn;
        let ask = self.asks.iter().rev().find(|a| a.holds(psn))?;
        if r.piece.opcode.operation() != Operation::ReadRequest || ask.first == psn {
            return None;
        }
        let mut text = format!(", the READ of packet {} from PSN {psn} on", ask.number);
        if let Some(old) = self.find(ask.first) {
            text += &format!(", {} it", after(r.copy.time, old.time));
        }
        Some(text)
    }

    /// Notes a READ or atomic request, which takes up PSNs to `last`.
    pub(super) fn ask(&mut self, r: &Request, last: Option<Psn>) {
        let operation = r.piece.opcode.operation();
        if !matches!(
            operation,
            Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::Flush
                | Operation::AtomicWrite
        ) {
            return;
        }
        let psn = r.piece.psn;
        self.expects_answers = true;
        if let Some(ask) = self.asks.iter_mut().rev().find(|a| a.holds(psn)) {
            ask.restarts.retain(|&r| r != psn);
            if ask.restarts.len() == RESTARTS {
                ask.restarts.remove(0);
            }
            ask.restarts.push(psn);
            return;
        }
        let len = match operation {
            Operation::ReadRequest => r.piece.reth.map(|r| r.dma_len),
            _ => Some(0),
        };
        if last.is_none() {
            self.open_read = Some((psn, len));
        }
        if self.asks.len() == REMEMBERED {
            self.asks.pop_front();
            self.asks_forgotten = true;
        }
        self.asks.push_back(Ask {
            operation,
            first: psn,
            last: last.unwrap_or(psn),
            len,
            number: r.copy.number,
            expect: psn,
            reached: psn,
            // What a capture begins with, or has cut, may ask for the rest of an earlier READ.
            restarts: match self.first == psn || r.piece.reth.is_none() {
                true => vec![psn],
                false => Vec::new(),
            },
            done: false,
            passed: false,
        });
    }

    /// The next request tells how many responses the READ before it has, and so the path MTU.
    pub(super) fn settle_read(&mut self, psn: Psn) {
        let Some((read, len)) = self.open_read else {
            return;
        };
        let steps = psn.after(read);
        if steps <= 0 {
            return;
        }
        let mut fitting = [256, 512, 1024, 2048, 4096]
            .into_iter()
            .filter(|&mtu| len.is_some_and(|len| responses(len, mtu) == steps.unsigned_abs()));
        match (fitting.next(), fitting.next()) {
            (Some(mtu), None) => self.learn_mtu(mtu),
            (some, _) => {
                // The PSN is taken as it comes; where no path MTU explains it, there is a gap of
                // unknown extent.
                self.open_read = None;
                self.count.end(psn.minus(1));
                if some.is_none() {
                    self.count.lose_track();
                }
                self.extend_read(psn.minus(1));
            }
        }
    }

    /// The path MTU became known.
    pub(super) fn learn_mtu(&mut self, mtu: u32) {
        if self.messages.mtu.is_some() {
            return;
        }
        self.messages.mtu = Some(mtu);
        if let Some((read, Some(len))) = self.open_read {
            self.open_read = None;
            let last = read.plus(responses(len, mtu) - 1);
            self.count.end(last);
            self.extend_read(last);
        }
    }

    /// The open READ ends at `last`, as its responses show.
    pub(super) fn close_read(&mut self, last: Psn) {
        self.open_read = None;
        self.count.end(last);
        self.extend_read(last);
    }

    fn extend_read(&mut self, last: Psn) {
        if let Some(ask) = self.asks.back_mut() {
            ask.last = last;
        }
        self.messages.settle_read(last);
        self.cursor = last.plus(1);
        if self.cursor.after(self.next) > 0 {
            self.next = self.cursor;
        }
    }

    /// True while it is not known how many PSNs the newest READ takes.
    pub(super) fn is_open(&self) -> bool {
        self.open_read.is_some()
    }

    /// The first PSN that nothing sent can have been answered with.
    pub(super) fn limit(&self) -> Psn {
        match self.open_read {
            Some((read, len)) => read.plus(responses(len.unwrap_or(1 << 31), 256)),
            None => self.next,
        }
    }
}

impl Ask {
    pub(super) fn holds(&self, psn: Psn) -> bool {
        psn.after(self.first) >= 0 && psn.after(self.last) <= 0
    }
}
