//! One message at a time, and the next when the answer is there.

use super::error::Result;
use super::lanes::{Done, Lanes};
use super::options::{Config, Operation, Stop};
use super::report::Latency;
use super::session::{Checked, Note, Sent, Session};
use softroce_verbs::Context;
use std::time::Duration;

/// Latencies that are kept of a run that goes on for a time.
const KEPT: usize = 1 << 22;

/// Measures, or answers.
pub(super) fn measure(
    context: &Context,
    session: &mut Session,
    lanes: &mut Lanes,
    config: &Config,
    is_server: bool,
) -> Result<(Sent, Checked)> {
    session.begin()?;
    let sent = match is_server {
        false => ask(context, session, lanes, config)?,
        true => {
            if config.operation.is_answered() {
                answer(session, lanes, config)?;
            }
            let sent = session.await_sent()?;
            if !config.operation.is_answered() {
                lanes.check_left(&sent.messages)?;
            }
            sent
        }
    };
    let (found, most) = lanes.found(sent.total());
    let both = session.conclude(found, &most)?;
    Ok((sent, both))
}

/// The client's part.
fn ask(
    context: &Context,
    session: &mut Session,
    lanes: &mut Lanes,
    config: &Config,
) -> Result<Sent> {
    let mut trips = Vec::new();
    session.is_moving = true;
    let start = context.now();
    let mut posted = start;
    let mut message = 0;
    let goes_on = |message: u64, now: Duration| match config.stop {
        Stop::After(n) => message < n,
        Stop::At(time) => now - start < time,
    };
    while goes_on(message, posted) {
        await_room(session, lanes)?;
        lanes.post(0, true)?;
        await_arrival(session, lanes, config, message)?;
        let now = context.now();
        if trips.len() < KEPT {
            trips.push(now - posted);
        }
        posted = now;
        message += 1;
    }
    while lanes.progress[0].completed < message {
        let moved = pump(lanes)?;
        session.round(moved, lanes)?;
    }
    let parts = if config.operation.is_answered() {
        2.0
    } else {
        1.0
    };
    let sent = Sent {
        messages: vec![message],
        bandwidth: None,
        latency: Latency::new(trips, parts),
    };
    session.say(&Note::Sent(sent.clone()))?;
    Ok(sent)
}

/// The server's part, until the client has had all its answers.
fn answer(session: &mut Session, lanes: &mut Lanes, config: &Config) -> Result<()> {
    let mut message = 0;
    session.is_moving = true;
    while await_arrival(session, lanes, config, message)? {
        await_room(session, lanes)?;
        lanes.post(0, true)?;
        message += 1;
        if config.stop == Stop::After(message) {
            break;
        }
    }
    Ok(())
}

/// Waits until the peer's message with this number is there, or the answer to one's own; false if the peer
/// has come to its end instead.
fn await_arrival(
    session: &mut Session,
    lanes: &mut Lanes,
    config: &Config,
    message: u64,
) -> Result<bool> {
    loop {
        let progress = &lanes.progress[0];
        let arrived = match config.operation {
            Operation::Send => progress.received > message,
            Operation::Write => lanes.is_written(message),
            _ => progress.completed > message,
        };
        if arrived {
            session.round(true, lanes)?;
            if config.operation == Operation::Write {
                lanes.check_written(0, message)?;
            }
            return Ok(true);
        }
        if session.sent.is_some() {
            return Ok(false);
        }
        let moved = pump(lanes)?;
        session.round(moved, lanes)?;
    }
}

fn await_room(session: &mut Session, lanes: &mut Lanes) -> Result<()> {
    loop {
        let progress = &lanes.progress[0];
        if progress.posted - progress.completed < lanes.depth {
            return Ok(());
        }
        let moved = pump(lanes)?;
        session.round(moved, lanes)?;
    }
}

/// Takes a completion, if there is one.
fn pump(lanes: &mut Lanes) -> Result<bool> {
    match lanes.cq.poll()? {
        Some(completion) => {
            let _: Done = lanes.take(&completion)?;
            Ok(true)
        }
        None => Ok(false),
    }
}
