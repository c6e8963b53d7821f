//! `softroce pingpong`: a first conversation between two programs, in the manner of `ibv_rc_pingpong`.
//!
//! Each end opens its device, tells the other its address over TCP, and then both exchange one of each
//! operation in both directions, compare the data, and send a message back and forth while the clock runs. In a
//! scenario's network both ends run, in virtual time, and the client's report is printed.
//!
//! | file | what |
//! |---|---|
//! | `options` | the command line |
//! | `exchange` | addresses, over TCP as `ibv_rc_pingpong` tells them |
//! | `session` | queue pair and memory of one end |
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

use crate::device::{self, DeviceArgs, Where};
use capture::Capture;
use exchange::{Control, Details, Stream};
use report::{Console, CountersReport, Report};
use session::{Session, Socket};
use softroce_sim::port::{self, OpenError, PortCounters};
use softroce_verbs::{Context, Role};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;

/// Runs one end: the server if the options name none, the client otherwise; both in a scenario's network.
/// Results go to standard output, the server's wait for a client to standard error.
///
/// # Errors
///
/// If anything fails; [`PingpongError::exit_code`] says what to exit with. With `--json` the report, as
/// far as it got, is printed all the same.
pub fn run(options: &Options) -> Result<ExitCode, PingpongError> {
    match options.device.place() {
        Where::Scenario => in_scenario(options),
        _ => on_device(options),
    }
}

fn role_of(is_server: bool) -> &'static str {
    match is_server {
        true => "server",
        false => "client",
    }
}

fn on_device(options: &Options) -> Result<ExitCode, PingpongError> {
    let mut console = Console::new(options.json);
    let mut report = Report::new(role_of(options.device.server.is_none()));
    let outcome = meet(options, &mut console, &mut report);
    conclude(outcome, &console, &mut report)
}

fn conclude(
    outcome: Result<(), PingpongError>,
    console: &Console,
    report: &mut Report,
) -> Result<ExitCode, PingpongError> {
    report.error = outcome.as_ref().err().map(ToString::to_string);
    let printed = console.finish(report);
    outcome?;
    printed?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses what only some devices have.
fn check(options: &Options) -> Result<(), PingpongError> {
    options.device.check()?;
    let place = options.device.place();
    let software = [
        ("--bind", options.bind.is_some()),
        ("--capture", options.capture.is_some()),
    ];
    let refuse = |option, kind| {
        let device = options.device.device.clone();
        Err(PingpongError::Option {
            option,
            kind,
            device,
        })
    };
    for (option, is_set) in software {
        if is_set && place != Where::SoftwareCard {
            return refuse(option, "a software card");
        }
    }
    // A software card has one address, in the first place.
    if options.gid_idx.is_some_and(|index| index > 0) && place != Where::Ibverbs {
        return refuse("--gid-idx", "a device of libibverbs");
    }
    // A TCP socket may well listen on every address, a card has one.
    if let Some(ip) = options.bind
        && (ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST)
    {
        return Err(OpenError::NotUnicast(ip).into());
    }
    Ok(())
}

/// The device with the address or the place in the table that other options give.
fn named(options: &Options) -> DeviceArgs {
    let name = &options.device.device;
    DeviceArgs {
        device: match (options.device.place(), options.bind, options.gid_idx) {
            (Where::SoftwareCard, Some(ip), _) => format!("{name}@{ip}"),
            (Where::Ibverbs, _, Some(index)) => format!("{name}@{index}"),
            _ => name.clone(),
        },
        ..options.device.clone()
    }
}

/// How an end finds the other.
enum Meeting<'a> {
    Accept(TcpListener),
    Call(&'a str, Vec<SocketAddr>),
    /// In a network of both.
    Beside(Role),
}

fn meet(
    options: &Options,
    console: &mut Console,
    report: &mut Report,
) -> Result<(), PingpongError> {
    check(options)?;
    let on_loopback = options.device.place() == Where::SoftwareCard;
    // The server's TCP port is taken before anything else: that it is in use is the likeliest failure.
    let port = options.device.port;
    let meeting = match &options.device.server {
        Some(server) => Meeting::Call(server, exchange::resolve(server, port, on_loopback)?),
        None => {
            let listens = named(options).listens();
            Meeting::Accept(exchange::listen(listens)?)
        }
    };
    let seed = match options.device.seed {
        Some(seed) => seed,
        None => port::seed()?,
    };
    let opened = device::open(&named(options))?;
    let capture = match &options.capture {
        Some(path) => {
            let gid = opened.context.query_gid(1, 0)?.gid;
            Some(Capture::create(path, &format!("udp {gid}"))?)
        }
        None => None,
    };
    if let Some(capture) = &capture {
        opened.set_tap(Some(Box::new(capture.clone())));
    }
    let socket = Socket {
        opened: &opened,
        capture,
    };
    let outcome = converse(
        &opened.context,
        Some(&socket),
        meeting,
        seed,
        options,
        console,
        report,
    );
    report.counters = opened
        .report()
        .map(|r| CountersReport::new(&r.card, &r.port));
    opened.set_tap(None);
    let captured = socket.capture.as_ref().map_or(Ok(()), Capture::finish);
    if let (Err(_), Err(unwritten)) = (&outcome, &captured) {
        eprintln!("softroce: pingpong: {unwritten}");
    }
    outcome?;
    captured?;
    console.counters(report)
}

fn converse(
    context: &Context,
    socket: Option<&Socket<'_>>,
    meeting: Meeting<'_>,
    seed: u64,
    options: &Options,
    console: &mut Console,
    report: &mut Report,
) -> Result<(), PingpongError> {
    let is_server = match &meeting {
        Meeting::Accept(_) => true,
        Meeting::Call(..) => false,
        Meeting::Beside(role) => role.is_server(),
    };
    let mut session = Session::open(context, socket, options, seed)?;
    conversation::prepare(&session, is_server);
    let own = session.address();
    report.local = Some(own.into());
    console.address("local", &own)?;

    let mut stream = match &meeting {
        Meeting::Accept(listener) => {
            exchange::announce(listener);
            exchange::accept(listener)?
        }
        Meeting::Call(server, addresses) => exchange::call(server, addresses, options)?,
        Meeting::Beside(role) => Stream::beside(context.exchange(role)?),
    };
    if !is_server {
        stream.introduce(&own)?;
    }
    let theirs = stream.read_introduction()?;
    session.connect(&theirs.address, options)?;
    if is_server {
        // Ready to receive before the client learns where to send.
        stream.introduce(&own)?;
    }
    report.remote = Some(theirs.address.into());
    console.address("remote", &theirs.address)?;

    let details = Details::new(options, session.remote());
    let peer = exchange::finish(&mut stream, theirs, &details, is_server)?;
    let control = Control::new(stream)?;
    conversation::hold(
        &mut session,
        control,
        &peer,
        is_server,
        options,
        console,
        report,
    )
}

/// Both ends in a scenario's network; the client's report is printed.
fn in_scenario(options: &Options) -> Result<ExitCode, PingpongError> {
    check(options)?;
    let program = options.clone();
    let launched = device::launch(&named(options), move |context, role| {
        let mut console = match role.is_server() {
            true => Console::silent(),
            false => Console::new(program.json),
        };
        let mut report = Report::new(role_of(role.is_server()));
        // The network's own streams have the scenario's seed.
        let seed = program.device.seed.unwrap_or(1);
        let meeting = Meeting::Beside(role);
        let outcome = converse(
            &context,
            None,
            meeting,
            seed,
            &program,
            &mut console,
            &mut report,
        );
        (context.device_name().to_string(), console, report, outcome)
    })?;
    let mut outcomes = launched.outcomes.into_iter().map(|o| o.value);
    let Some((host, console, mut report, mut outcome)) = outcomes.next() else {
        return Ok(ExitCode::SUCCESS);
    };
    for (.., other) in outcomes {
        outcome = match (outcome, other) {
            // Whoever ends because the other has gone is not the one to blame.
            (Err(PingpongError::PeerGone { .. } | PingpongError::Exchange { .. }), Err(e)) => {
                Err(e)
            }
            (outcome, Ok(())) => outcome,
            (Ok(()), Err(e)) => Err(e),
            (outcome, Err(_)) => outcome,
        };
    }
    if let Some(network) = &launched.network {
        let card = network.cards.iter().find(|(name, _)| *name == host);
        report.counters = card.map(|(_, c)| CountersReport::new(c, &PortCounters::default()));
        eprintln!("{network}");
    }
    if outcome.is_ok() {
        outcome = console.counters(&report);
    }
    conclude(outcome, &console, &mut report)
}
