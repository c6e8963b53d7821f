//! A world in which communication managers connect: ours and programs in the guest.

use super::guest::Ended;
use super::station::Station;
use super::{Outcome, PATIENCE, Setup, Side, World, cable};
use softroce_sim::cm::CmConfig;
use softroce_sim::wire::cm::Message;
use softroce_sim::wire::frame::FrameView;
use std::time::Instant;

impl World {
    /// Makes a card with a communication manager at our end; what was before is gone, and programs in the
    /// guest too.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn manage(&mut self, setup: Setup, config: impl FnOnce(&mut CmConfig)) -> Outcome {
        self.clear();
        self.setup = setup;
        let own = setup.address(Side::Card);
        self.station = Some(Station::open(&self.guest, &self.cable, own, config)?);
        self.ask("stop").map(|_| ())
    }

    /// The card with a communication manager.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn station(&mut self) -> Outcome<&mut Station> {
        let station = self.station.as_mut();
        station.ok_or_else(|| "there is no communication manager".into())
    }

    /// Starts a program in the guest, by a line for its shell.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(&mut self, line: &str) -> Outcome {
        self.ask(&format!("start {line}")).map(|_| ())
    }

    /// Has the guest's shell run a line, which must end well.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub fn shell(&mut self, line: &str) -> Outcome {
        match self.ask(&format!("sh {line}"))?.get("code")? {
            0 => Ok(()),
            code => Err(format!("Kernel: {line}: exit code {code}")),
        }
    }

    /// How the program that was started has ended.
    ///
    /// # Errors
    ///
    /// If it does not end.
    pub fn ended(&mut self) -> Outcome<Ended> {
        let limit = Instant::now() + PATIENCE;
        while Instant::now() < limit {
            if let Some(ended) = self.ask("wait ms=20")?.ended()? {
                return Ok(ended);
            }
        }
        Err("Kernel: the program has not ended".into())
    }

    /// The messages between communication managers so far, with their senders.
    pub fn messages(&self) -> Vec<(Side, Message)> {
        let frames = self.cable.seen().into_iter();
        let message = |(_, side, frame): cable::Seen| {
            let view = FrameView::decode(&frame).ok()?;
            Some((side, cable::message(&view)?))
        };
        frames.filter_map(message).collect()
    }
}
