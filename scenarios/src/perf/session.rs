//! The other end: what the two tell each other, and how one notices that the other has gone.

use super::error::{PerfError, Result};
use super::heard::cut;
use super::lanes::Lanes;
use super::options::Config;
use super::report::Bandwidth;
use crate::device::waits;
use crate::idle::{Idle, PAUSE};
use serde::{Deserialize, Serialize};
use softroce_verbs::{Context, Error, Partner, Role};
use std::io::{self, Write};
use std::time::Duration;

/// How often the other end is told that this one lives.
const BEAT: Duration = Duration::from_secs(1);

/// What the ends tell each other.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(super) enum Note {
    /// What was asked for, and what the device can do.
    Hello(Hello),
    /// Queue pairs and memory.
    Lanes(Addresses),
    /// All is set up.
    Ready,
    /// This end lives.
    Beat,
    /// All requests of this end have completed.
    Sent(Sent),
    /// What has come was looked at.
    Checked(Checked),
    /// It does not go on.
    Failed(String),
}

#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) options: Vec<(String, String)>,
    /// Of the port, in bytes.
    pub(super) mtu: u16,
    /// READs and atomics outstanding.
    pub(super) outs: u8,
}

#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(super) struct Addresses {
    /// Number and first PSN.
    pub(super) queue_pairs: Vec<(u32, u32)>,
    pub(super) gid: [u8; 16],
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(super) struct Sent {
    /// Messages, by queue pair.
    pub(super) messages: Vec<u64>,
    pub(super) bandwidth: Option<Bandwidth>,
    pub(super) latency: Option<super::report::Latency>,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Checked {
    /// Messages received.
    pub(super) received: u64,
    /// Messages whose data was compared.
    pub(super) compared: u64,
}

/// The other end of a measurement.
pub(super) struct Session {
    context: Context,
    partner: Partner,
    config: Config,
    /// Requests of this end are on their way: it is for them to move, whatever the peer says.
    pub(super) is_moving: bool,
    /// What the peer has said that it sent.
    pub(super) sent: Option<Sent>,
    idle: Idle,
    last_heard: Duration,
    last_beat: Duration,
}

impl Session {
    /// Meets the other end; in real time it says what it waits for.
    pub(super) fn meet(context: &Context, role: &Role, config: &Config) -> Result<Session> {
        let telling = context.telling(|role| {
            let _ = writeln!(io::stderr().lock(), "softroce: perf: {}", waits(role));
        });
        let partner = telling.exchange(role)?;
        Ok(Session {
            context: context.clone(),
            partner,
            config: config.clone(),
            is_moving: false,
            sent: None,
            idle: Idle::new(context),
            last_heard: Duration::ZERO,
            last_beat: Duration::ZERO,
        })
    }

    pub(super) fn say(&mut self, note: &Note) -> Result<()> {
        let message = serde_json::to_vec(note).expect("plain data");
        Ok(self.partner.send(&message)?)
    }

    /// Waits for a note, which comes soon.
    pub(super) fn hear(&mut self) -> Result<Note> {
        let start = self.context.now();
        loop {
            let message = self.partner.receive()?;
            if let Some(note) = read(&message)? {
                return Ok(note);
            }
            // That it lives is not enough.
            if self.context.now().saturating_sub(start) > self.config.wait {
                return Err(PerfError::Silent(self.config.wait));
            }
        }
    }

    /// Both ends come to the same point, where a run begins.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.say(&Note::Ready)?;
        match self.hear()? {
            Note::Ready => {}
            other => return Err(unexpected(&other)),
        }
        self.sent = None;
        self.idle.begin();
        self.last_heard = self.context.now();
        Ok(())
    }

    /// A round of a loop has gone by, in which something moved or not. Now and then the other end is looked
    /// after, and if nothing has moved for a while this sleeps a little.
    #[inline]
    pub(super) fn round(&mut self, moved: bool, lanes: &mut Lanes) -> Result<()> {
        let context = &self.context;
        match self.idle.round(moved, |limit| lanes.rest(context, limit))? {
            Some(now) => self.look_after(now),
            None => Ok(()),
        }
    }

    fn look_after(&mut self, now: Duration) -> Result<()> {
        self.listen(now)?;
        let still = self.idle.still(now);
        let silent = match self.is_moving {
            true => still,
            false => still.min(now.saturating_sub(self.last_heard)),
        };
        match silent > self.config.wait {
            true => Err(PerfError::Silent(self.config.wait)),
            false => Ok(()),
        }
    }

    fn listen(&mut self, now: Duration) -> Result<()> {
        // What comes after this note is for later.
        while self.sent.is_none()
            && let Some(message) = self.partner.try_receive()?
        {
            self.last_heard = now;
            match read(&message)? {
                None => {}
                Some(Note::Sent(sent)) => {
                    sent.check(&self.config)?;
                    self.sent = Some(sent);
                }
                Some(other) => return Err(unexpected(&other)),
            }
        }
        if now - self.last_beat >= BEAT {
            self.last_beat = now;
            self.say(&Note::Beat)?;
        }
        Ok(())
    }

    /// Waits until the peer has said that all its requests have completed.
    pub(super) fn await_sent(&mut self) -> Result<Sent> {
        self.is_moving = false;
        loop {
            if let Some(sent) = self.sent.take() {
                return Ok(sent);
            }
            self.look_after(self.context.now())?;
            self.context.sleep(PAUSE)?;
        }
    }

    /// Both ends tell what they found, the peer `most` at most; what that is together.
    pub(super) fn conclude(&mut self, own: Checked, most: &Checked) -> Result<Checked> {
        self.say(&Note::Checked(own))?;
        match self.hear()? {
            Note::Checked(other) => {
                other.check(most)?;
                Ok(Checked {
                    received: own.received.saturating_add(other.received),
                    compared: own.compared.saturating_add(other.compared),
                })
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// A note, if it is one to heed.
fn read(message: &[u8]) -> Result<Option<Note>> {
    match serde_json::from_slice(message) {
        Ok(Note::Beat) => Ok(None),
        Ok(Note::Failed(why)) => Err(PerfError::Peer(cut(&why))),
        Ok(note) => Ok(Some(note)),
        Err(e) => Err(Error::Protocol(format!(
            "{} bytes from the peer are nothing that softroce perf says: {}",
            message.len(),
            cut(&e.to_string())
        ))
        .into()),
    }
}

pub(super) fn unexpected(note: &Note) -> PerfError {
    let text: String = format!("{note:?}").chars().take(60).collect();
    Error::Protocol(format!("the peer said {text:?} out of turn")).into()
}
