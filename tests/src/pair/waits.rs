//! What a requester was asked to wait for, from what it has heard.

use softroce_sim::card::codes::rnr_timer;
use softroce_sim::time::Time;
use softroce_sim::wire::aeth::SyndromeKind;
use softroce_sim::wire::{Packet, Psn};

/// The waits of one requester.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    /// The latest packet that was acknowledged, by whatever.
    done: Option<Psn>,
    /// The latest that was sent.
    newest: Option<Psn>,
    /// A packet that the peer was not ready for, and until when it has to wait.
    asked: Option<(Psn, Time)>,
}

impl Wait {
    /// A response arrives.
    pub(super) fn hears(&mut self, now: Time, packet: &Packet) {
        let psn = packet.bth.psn();
        let sent = self.newest.is_some_and(|newest| psn.after(newest) <= 0);
        let news = self.done.is_none_or(|done| psn.after(done) > 0);
        match packet.ext.aeth().map(|aeth| aeth.syndrome.kind()) {
            Some(SyndromeKind::RnrNak { timer }) if sent && news => {
                let waits = |&(old, until): &(Psn, Time)| now < until && psn.after(old) <= 0;
                // A copy asks for nothing more.
                if self.asked.as_ref().is_none_or(|asked| !waits(asked)) {
                    self.asked = Some((psn, now + rnr_timer(timer)));
                }
            }
            // What comes before it has arrived.
            Some(SyndromeKind::Nak(_)) if news => self.done = Some(psn.minus(1)),
            Some(SyndromeKind::Ack { .. }) | None if news => self.done = Some(psn),
            _ => {}
        }
        // The packet has been taken meanwhile.
        self.asked = self
            .asked
            .filter(|asked| self.done.is_none_or(|done| asked.0.after(done) > 0));
    }

    /// A request is sent.
    pub(super) fn sends(&mut self, now: Time, psn: Psn) {
        if let Some((waits, until)) = self.asked {
            assert!(
                psn != waits || now >= until,
                "PSN {psn} at {now}, an RNR NAK asks to wait until {until}"
            );
        }
        if self.newest.is_none_or(|newest| psn.after(newest) > 0) {
            self.newest = Some(psn);
        }
    }
}
