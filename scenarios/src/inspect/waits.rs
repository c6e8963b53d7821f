//! Whether a requester waited as long as an RNR NAK asks.
//!
//! A NAK takes a while from where it was captured to the requester, and the network may reorder and repeat:
//! what is sent again meanwhile may be sent for something earlier. Only what nothing earlier explains breaks
//! the rule.

use super::copy::{Copy, since};
use super::finding::{Found, Rule, put, span};
use super::requests::{Nak, Request, Requests};
use softroce_sim::card::codes::ack_timeout;
use softroce_sim::wire::capture::Stamp;

/// NAKs before the last one that are remembered.
const EARLIER: usize = 16;
/// Stamps of some captures are in microseconds, and clocks differ a little.
const SLACK_PS: i128 = 2_000_000;

impl Requests {
    /// Notes a NAK that asks for a retransmission.
    pub(super) fn take_nak(&mut self, nak: Nak) {
        if let Some(last) = self.nak.replace(nak).filter(|n| !n.resent) {
            if self.earlier_naks.len() == EARLIER {
                self.earlier_naks.pop_front();
            }
            self.earlier_naks.push_back(last);
        }
    }

    /// Notes how long an answer took.
    pub(super) fn answered_after(&mut self, answer: &Copy) {
        let took = self
            .find(answer.psn)
            .and_then(|asked| since(answer.time, asked.time));
        self.longest_answer = self.longest_answer.max(took.unwrap_or(0));
    }

    /// The packet that `nak` is about is sent again; `old` is its last copy before, and `jump` is true if
    /// the requester went back to it.
    pub(super) fn check_wait(
        &self,
        nak: &Nak,
        r: &Request,
        old: Option<Copy>,
        jump: bool,
        found: &mut Found,
    ) {
        let Some((wait, waited)) = nak.wait.zip(since(r.copy.time, nak.time)) else {
            return;
        };
        let over = |wait: i128, waited: i128| waited + SLACK_PS + wait / 100 >= wait;
        if nak.psn != r.piece.psn || over(wait, waited) {
            return;
        }
        let early = format!(
            "sent again {} after the RNR NAK of packet {}, which asks for {}",
            span(waited),
            nak.number,
            span(wait)
        );
        match self.excuse(r.copy.time, nak, waited, old, jump, over) {
            Some(excuse) => put(found, Rule::RnrUnderWay, format!("{early}, but {excuse}")),
            None => put(found, Rule::RnrTimer, early),
        }
    }

    /// What explains a packet that is sent again `waited` after `nak` refused it.
    fn excuse(
        &self,
        now: Option<Stamp>,
        nak: &Nak,
        waited: i128,
        old: Option<Copy>,
        jump: bool,
        over: impl Fn(i128, i128) -> bool,
    ) -> Option<String> {
        let mut earlier = self.earlier_naks.iter().rev();
        let cause = earlier.find(|n| {
            n.psn == nak.psn
                && match n.wait {
                    None => true,
                    Some(wait) => since(now, n.time).is_some_and(|ps| over(wait, ps)),
                }
        });
        if let Some(cause) = cause {
            let kind = cause.kind();
            let number = cause.number;
            return Some(format!("the {kind} NAK of packet {number} asked before"));
        }
        if waited > self.longest_answer + SLACK_PS {
            return None;
        }
        let under_way = "the NAK may have been under way still";
        let shortest = ack_timeout(1).map_or(0, |t| i128::from(t.as_ps()));
        let ran = old.and_then(|old| since(now, old.time));
        if !jump {
            Some(format!("{under_way}, and the requester had gone back"))
        } else if ran.is_some_and(|ps| ps + SLACK_PS / 2 >= shortest) {
            Some(format!("{under_way} when a timeout sent the packet again"))
        } else {
            None
        }
    }
}

impl Nak {
    /// What its kind is called.
    pub(super) fn kind(&self) -> &'static str {
        match self.wait {
            Some(_) => "RNR",
            None => "sequence",
        }
    }
}
