//! The kernel's captures, played again: our card in the place of one of the two drivers.
//!
//! * [`case`]: what a case is: options and operations, both programs' words, the frames at either end.
//! * [`program`]: what the program of the captures did, and what it printed.
//! * [`stand`]: our card in one end's place.
//!
//! Each end is played by itself. Our card gets the work requests that the end's program posted, and the
//! frames that arrived there, in their order and at their times. What it sends, in its own order, is held
//! against what the kernel sent; what the program then prints, against what it printed. QP numbers, keys
//! and addresses of the peer are the recorded ones; those of our own end are put into what arrives.

pub mod case;
pub mod program;
pub mod stand;

pub use case::{Case, Event, Side};
pub use stand::Pace;

use program::Program;
use softroce_sim::card::Profile;
use softroce_sim::wire::aeth::SyndromeKind;
use softroce_sim::wire::{Aeth, Bth, Ext, Frame};
use stand::Stand;
use std::fmt;

/// What one end did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Packets it sent, in order.
    pub sent: Vec<Sent>,
    /// What its program printed.
    pub said: Vec<String>,
    /// Times the kernel sent when it had nothing to send yet.
    pub late: usize,
}

/// A packet that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers.
    pub ext: Ext,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Sent {
    /// What is in a frame.
    pub fn of_frame(frame: &Frame) -> Sent {
        Sent {
            bth: frame.bth,
            ext: frame.ext,
            payload: frame.payload.to_vec(),
        }
    }
}

/// What the kernel did at this end.
pub fn kernel(case: &Case, side: Side) -> Record {
    let own = case.events(side).into_iter().filter(|event| event.own);
    Record {
        sent: own.map(|event| Sent::of_frame(&event.frame)).collect(),
        said: case.said(side).to_vec(),
        late: 0,
    }
}

/// What a card of ours does at this end.
///
/// # Panics
/// If the case asks for something that the card refuses to be set up for.
pub fn replay(case: &Case, side: Side, profile: &Profile, pace: Pace) -> Record {
    let mut stand = Stand::new(case, side, profile);
    let mut program = Program::new(case, side);
    program.begin(&mut stand);
    let events = case.events(side);
    // When late receives are posted, the captures do not say: after the last RNR NAK at any rate.
    let receives_from = events
        .iter()
        .rposition(|e| e.own && is_rnr_nak(&e.frame))
        .map_or(0, |last| last + 1);
    let mut late = 0;
    settle(&mut stand, &mut program, pace);
    for (i, event) in events.iter().enumerate() {
        // Deadlines that come before the event.
        while stand.deadline() <= event.at {
            stand.advance();
            settle(&mut stand, &mut program, pace);
        }
        stand.now = event.at;
        if !event.own {
            if i >= receives_from {
                program.post_late(&mut stand);
            }
            stand.hear(&event.frame);
        } else if pace == Pace::Recorded {
            late += usize::from(!stand.pull());
        }
        settle(&mut stand, &mut program, pace);
    }
    // What the recording does not show any more.
    settle(&mut stand, &mut program, Pace::Prompt);
    while !program.is_done() && stand.can_advance() {
        stand.advance();
        settle(&mut stand, &mut program, Pace::Prompt);
    }
    program.end(&mut stand);
    Record {
        sent: stand.sent,
        said: program.said,
        late,
    }
}

/// Lets the program do what it can do now, and the card send if the pace does not say when.
fn settle(stand: &mut Stand<'_>, program: &mut Program<'_>, pace: Pace) {
    program.step(stand);
    while pace == Pace::Prompt && stand.pull() {
        program.step(stand);
    }
}

fn is_rnr_nak(frame: &Frame) -> bool {
    let aeth = frame.ext.aeth();
    aeth.is_some_and(|a| matches!(a.syndrome.kind(), SyndromeKind::RnrNak { .. }))
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.bth.opcode(), self.bth.psn())?;
        match self.ext {
            Ext::None => {}
            Ext::Aeth(Aeth { syndrome, msn }) => match syndrome.kind() {
                SyndromeKind::Ack { credits } => write!(f, " ack credits {credits} msn {msn}")?,
                SyndromeKind::RnrNak { timer } => write!(f, " RNR NAK timer {timer} msn {msn}")?,
                SyndromeKind::Nak(code) => write!(f, " NAK {code} msn {msn}")?,
                SyndromeKind::Reserved => write!(f, " {syndrome:?} msn {msn}")?,
            },
            Ext::Reth(reth) => write!(f, " of {}", reth.dma_len)?,
            other => write!(f, " {other:?}")?,
        }
        if !self.payload.is_empty() {
            write!(f, " [{}]", self.payload.len())?;
        }
        for (on, name) in [
            (self.bth.ack_req(), " AckReq"),
            (self.bth.solicited(), " SE"),
            (self.bth.mig_req(), " MigReq"),
        ] {
            if on {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}
