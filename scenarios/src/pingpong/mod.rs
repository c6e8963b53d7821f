//! `softroce pingpong`: a first conversation between two cards, in the manner of `ibv_rc_pingpong`.
//!
//! Each end opens a card on a UDP port of the loopback network, tells the other its address over TCP,
//! and then both exchange one of each operation in both directions, compare the data, and send a
//! message back and forth while the clock runs.
//!
//! | file | what |
//! |---|---|
//! | `options` | the command line |
//! | `exchange` | addresses over TCP, compatible with `ibv_rc_pingpong` |
//! | `session` | card, port and queue pair of one end |
//! | `conversation` | what the two ends do, in which order |
//! | `capture` | frames into a pcapng file |
//! | `report` | what is printed |
//! | `error` | what can go wrong, and the exit code |

mod capture;
mod conversation;
mod error;
mod exchange;
mod options;
mod report;
mod session;

pub use error::PingpongError;
pub use options::Options;

use exchange::{Control, Details, Peer};
use report::{Console, Report};
use session::Session;
use softroce_sim::port::OpenError;
use std::net::Ipv4Addr;
use std::process::ExitCode;

/// Runs one end: the server if the options name none, the client otherwise. Results go to standard
/// output, the server's wait for a client to standard error.
///
/// # Errors
///
/// If anything fails; [`PingpongError::exit_code`] says what to exit with. With `--json` the report, as
/// far as it got, is printed all the same.
pub fn run(options: &Options) -> Result<ExitCode, PingpongError> {
    let mut console = Console::new(options.json);
    let mut report = Report::new(options);
    let outcome = converse(options, &mut console, &mut report);
    if let Err(e) = &outcome {
        report.error = Some(e.to_string());
    }
    let printed = console.finish(&report);
    outcome?;
    printed?;
    Ok(ExitCode::SUCCESS)
}

fn converse(
    options: &Options,
    console: &mut Console,
    report: &mut Report,
) -> Result<(), PingpongError> {
    // A TCP socket may well listen on every address, a card has one.
    if let Some(ip) = options.bind
        && (ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST)
    {
        return Err(OpenError::NotUnicast(ip).into());
    }
    let addresses = match &options.server {
        Some(server) => exchange::resolve(server, options.port)?,
        None => Vec::new(),
    };
    // The server's TCP port is taken before anything else: that it is in use is the likeliest failure.
    let listener = match options.server {
        None => Some(exchange::listen(options)?),
        Some(_) => None,
    };
    let mut session = Session::open(options)?;
    conversation::prepare(&session, options);
    let own = session.address();
    report.local = Some(own.into());
    console.address("local", &own)?;

    let (stream, control) = match (&listener, &options.server) {
        (Some(listener), _) => {
            exchange::announce(listener);
            let (stream, theirs) = exchange::accept(listener)?;
            // Ready to receive before the client learns where to send.
            session.connect(&theirs.address, options)?;
            exchange::answer(stream, &own, theirs)?
        }
        (None, Some(server)) => {
            let (stream, theirs) = exchange::call(server, options.port, &addresses, &own)?;
            session.connect(&theirs.address, options)?;
            (stream, theirs)
        }
        (None, None) => return Ok(()),
    };
    report.remote = Some(control.address.into());
    console.address("remote", &control.address)?;

    let details = Details::new(options, session.remote());
    let peer: Peer = exchange::finish(&stream, control, &details, listener.is_some())?;
    let outcome = Control::new(stream).and_then(|control| {
        conversation::hold(&mut session, control, &peer, options, console, report)
    });
    report.counters = Some(session.counters());
    let captured = session.finish_capture();
    outcome?;
    captured?;
    console.counters(report)
}
