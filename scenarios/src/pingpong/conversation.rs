//! What the two ends do, in which order.
//!
//! The client moves first in every step, and the server answers in kind, so that each knows from what
//! arrives how far the other is: nothing beside the operations themselves keeps them in step. A WRITE
//! is compared when the WRITE with immediate data after it has arrived.

use super::exchange::{Control, Peer};
use super::report::{Console, OperationReport, PingpongReport, Report};
use super::session::{Part, Session};
use super::{Options, PingpongError};
use softroce_verbs::{CompletionKind, Immediate, Remote, Work};
use std::time::Duration;

/// How long to serve a peer that does not say when it is done.
const PLAIN_LINGER: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Send = 1,
    SendImmediate,
    Write,
    WriteImmediate,
    Read,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Operation::Send => "SEND",
            Operation::SendImmediate => "SEND with immediate",
            Operation::Write => "WRITE",
            Operation::WriteImmediate => "WRITE with immediate",
            Operation::Read => "READ",
        }
    }

    /// Names the data that one end sends by it.
    const fn pattern(self, from_server: bool) -> u64 {
        (self as u64) << 1 | from_server as u64
    }

    const fn immediate(self, from_server: bool) -> Immediate {
        Immediate::from_be(0x5052_0000 | self.pattern(from_server) as u32)
    }
}

/// Patterns of the ping-pong begin here.
const FIRST_ITERATION: u64 = 1 << 32;

/// The whole of it.
pub(super) fn hold(
    session: &mut Session<'_>,
    control: Control,
    peer: &Peer,
    is_server: bool,
    options: &Options,
    console: &mut Console,
    report: &mut Report,
) -> Result<(), PingpongError> {
    match peer.memory {
        Some(memory) => {
            session.watch(control);
            let mut operations = Operations {
                session,
                memory,
                is_server,
                size: options.size,
            };
            for operation in [
                Operation::Send,
                Operation::SendImmediate,
                Operation::Write,
                Operation::WriteImmediate,
                Operation::Read,
            ] {
                let outcome = operations.exchange(operation)?;
                console.operation(&outcome)?;
                report.operations.push(outcome);
            }
        }
        None => console.note("the peer is ibv_rc_pingpong: SENDs alone")?,
    }
    let outcome = ping_pong(session, is_server, options)?;
    console.pingpong(&outcome)?;
    report.pingpong = Some(outcome);
    session.linger(PLAIN_LINGER)
}

struct Operations<'a, 'b> {
    session: &'a mut Session<'b>,
    memory: Remote,
    is_server: bool,
    size: u32,
}

impl Operations<'_, '_> {
    /// One operation in both directions.
    fn exchange(&mut self, operation: Operation) -> Result<OperationReport, PingpongError> {
        match (operation, self.is_server) {
            // The peer's READ needs nothing from the program here, only memory that has the data.
            (Operation::Read, _) => self.act(operation)?,
            // The server sees the client's WRITE when what follows it has arrived, and writes then.
            (Operation::Write, true) => {}
            (Operation::Write, false) => self.act(operation)?,
            (Operation::WriteImmediate, true) => {
                self.expect(operation)?;
                self.act(Operation::Write)?;
                self.act(operation)?;
            }
            (_, true) => {
                self.expect(operation)?;
                self.act(operation)?;
            }
            (_, false) => {
                self.act(operation)?;
                self.expect(operation)?;
            }
        }
        Ok(OperationReport {
            operation: operation.name(),
            bytes: self.size,
        })
    }

    /// Does the operation, and waits until it is done.
    fn act(&mut self, operation: Operation) -> Result<(), PingpongError> {
        let session = &mut *self.session;
        let immediate = operation.immediate(self.is_server);
        let to = |part| session.part_of(self.memory, part);
        let (work, part) = match operation {
            Operation::Send => (Work::Send, Part::Source),
            Operation::SendImmediate => (Work::SendImmediate(immediate), Part::Source),
            Operation::Write => (Work::Write(to(Part::Write)), Part::Source),
            Operation::WriteImmediate => (
                Work::WriteImmediate(to(Part::WriteImmediate), immediate),
                Part::Source,
            ),
            Operation::Read => (Work::Read(to(Part::ReadSource)), Part::ReadTarget),
        };
        if operation != Operation::Read {
            session.fill(Part::Source, operation.pattern(self.is_server));
        }
        session.post(work, part)?;
        session.wait_sent(operation.name())?;
        if operation == Operation::Read {
            let pattern = operation.pattern(!self.is_server);
            session.verify(Part::ReadTarget, pattern, operation.name())?;
        }
        Ok(())
    }

    /// Waits for the peer's operation, and compares completion and data.
    fn expect(&mut self, operation: Operation) -> Result<(), PingpongError> {
        let what = format!("the peer's {}", operation.name());
        let completion = self.session.wait_received(&what)?;
        let (kind, immediate) = match operation {
            Operation::Send => (CompletionKind::Receive, None),
            Operation::SendImmediate => (
                CompletionKind::Receive,
                Some(operation.immediate(!self.is_server)),
            ),
            _ => (
                CompletionKind::ReceiveWithImmediate,
                Some(operation.immediate(!self.is_server)),
            ),
        };
        let found = (completion.kind, completion.byte_len, completion.immediate);
        let expected = (kind, self.size, immediate);
        if found != expected {
            return Err(PingpongError::Unexpected {
                what,
                found: format!("{found:?}"),
                expected: format!("{expected:?}"),
            });
        }
        let verify = |part, operation: Operation| {
            let pattern = operation.pattern(!self.is_server);
            self.session.verify(part, pattern, &what)
        };
        if operation == Operation::WriteImmediate {
            verify(Part::Write, Operation::Write)?;
            verify(Part::WriteImmediate, operation)?;
        } else {
            verify(Part::Receive, operation)?;
        }
        self.session.top_up()
    }
}

/// Fills what the peer will READ; before it can know where that is.
pub(super) fn prepare(session: &Session<'_>, is_server: bool) {
    let pattern = Operation::Read.pattern(is_server);
    session.fill(Part::ReadSource, pattern);
}

/// SENDs back and forth.
fn ping_pong(
    session: &mut Session<'_>,
    is_server: bool,
    options: &Options,
) -> Result<PingpongReport, PingpongError> {
    let start = session.now();
    let iters = u64::from(options.iters);
    for i in 0..iters {
        if !is_server {
            ping(session, FIRST_ITERATION + 2 * i, options)?;
        }
        let completion = session.wait_received("a message of the ping-pong")?;
        if completion.kind != CompletionKind::Receive || completion.byte_len != options.size {
            return Err(PingpongError::Unexpected {
                what: format!("message {i} of the ping-pong"),
                found: format!("{:?} of {} bytes", completion.kind, completion.byte_len),
                expected: format!("{:?} of {} bytes", CompletionKind::Receive, options.size),
            });
        }
        if options.chk {
            let pattern = FIRST_ITERATION + 2 * i + u64::from(!is_server);
            session.verify(Part::Receive, pattern, "a message of the ping-pong")?;
        }
        session.top_up()?;
        if is_server {
            ping(session, FIRST_ITERATION + 2 * i + 1, options)?;
        }
    }
    session.wait_sent("the last message of the ping-pong")?;
    Ok(PingpongReport::new(options, session.now() - start))
}

fn ping(session: &mut Session<'_>, pattern: u64, options: &Options) -> Result<(), PingpongError> {
    // The message before has its answer, but the answer to its packets may have been lost.
    session.wait_sent("a message of the ping-pong")?;
    if options.chk {
        session.fill(Part::Source, pattern);
    }
    session.post(Work::Send, Part::Source)
}
