//! A loop that polls while nothing comes.

use softroce_verbs::{Context, Result};
use std::time::Duration;

/// How long to poll without sleeping, as `ibv_rc_pingpong` does: a sleep costs more than a message. So often, too, the
/// other end is looked after, and no sleep is longer.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// What such a loop keeps in mind: when something moved, and when the other end was looked after.
#[derive(Debug)]
pub(crate) struct Idle {
    context: Context,
    rounds: u32,
    moved: bool,
    last_move: Duration,
    last_look: Duration,
}

impl Idle {
    pub(crate) fn new(context: &Context) -> Idle {
        Idle {
            context: context.clone(),
            rounds: 0,
            moved: false,
            last_move: context.now(),
            last_look: context.now(),
        }
    }

    /// From here on it counts.
    pub(crate) fn begin(&mut self) {
        self.last_move = self.context.now();
    }

    /// Something has moved.
    #[inline]
    pub(crate) fn moved(&mut self) {
        self.moved = true;
    }

    /// How long nothing had moved at `now`, as far as rounds have told.
    pub(crate) fn still(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_move)
    }

    /// A round has gone by, in which something moved or not. If not, `rest` spares the next ones in virtual time, and
    /// tells whether it did; if nothing has moved for a while this sleeps a little in real time. Gives the time, if
    /// the other end should be looked after.
    #[inline]
    pub(crate) fn round(
        &mut self,
        moved: bool,
        rest: impl FnOnce(Duration) -> Result<bool>,
    ) -> Result<Option<Duration>> {
        self.moved |= moved;
        self.rounds = self.rounds.wrapping_add(1);
        let rested = !moved && rest(PAUSE)?;
        // The clock is dearer than a look at a queue.
        match rested || self.rounds.is_multiple_of(64) {
            true => self.look(rested),
            false => Ok(None),
        }
    }

    fn look(&mut self, rested: bool) -> Result<Option<Duration>> {
        let now = self.context.now();
        if std::mem::take(&mut self.moved) {
            self.last_move = now;
        }
        let still = self.still(now);
        if still >= PAUSE && !rested {
            // Longer where it has been quiet for longer.
            self.context.sleep((still / 64).min(PAUSE))?;
        }
        if now.saturating_sub(self.last_look) < PAUSE {
            return Ok(None);
        }
        self.last_look = now;
        Ok(Some(now))
    }
}
