//! Where verbs programs run: a device by name, or both roles of a program in a scenario's network.
//!
//! ```text
//! softroce0, softroce0@127.0.0.7, mlx5_0, mlx5_0@3     one role, in real time (see `softroce_verbs::open`)
//! sim:two-hosts, sim:FILE                              both roles, in virtual time
//! sim:two-hosts@h1,h0                                  the client on h1, the server on h0
//! ```
//!
//! In a scenario's network its switches, links, cards and faults are as the file says; its loads do not run:
//! the programs are the load.

mod mishaps;

pub use mishaps::{MishapArgs, PortControl};

use crate::arguments;
use crate::format::{Diagnostics, Scenario, SourceError};
use crate::run::{self, RunError};
use clap::Args;
use softroce_sim::card::Counters;
use softroce_sim::port::PortCounters;
#[cfg(target_os = "linux")]
use softroce_sim::port::Tap;
use softroce_verbs::provider::sim::World;
use softroce_verbs::{Context, Error, Role};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// What a device name begins with if it names a scenario.
const SIM: &str = "sim:";
/// What the software card is called.
const SOFTWARE: &str = "softroce0";

/// Where a program runs, and in which role.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// Device: softroce0, softroce0@ADDRESS, one of libibverbs', or sim:SCENARIO for both roles in a
    /// scenario's network (sim:SCENARIO@CLIENT,SERVER names the hosts).
    #[arg(long, short = 'd', value_name = "NAME", default_value = "softroce0")]
    pub device: String,
    /// The server to go to; without it, this is the server. Not with sim:, where both run.
    #[arg(value_name = "SERVER")]
    pub server: Option<String>,
    /// TCP port over which addresses are exchanged. With 0 a server takes one that is free, and says which.
    #[arg(long, short = 'p', value_name = "PORT", default_value_t = 18515)]
    pub port: u16,
    /// Give up when no server has come for so many seconds; perf and pingpong do so too when nothing has come from
    /// the peer, or nothing has moved, for as long.
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub wait: u32,
    /// Seed of every random stream of a scenario's network, instead of the scenario's; of the card on
    /// softroce0, instead of one from the operating system.
    #[arg(long, value_name = "N", value_parser = arguments::seed)]
    pub seed: Option<u64>,
    /// Set a key of the scenario, such as link.loss=0.001.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// What goes wrong on softroce0.
    #[command(flatten)]
    pub mishaps: MishapArgs,
}

/// What a device name means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// A software card on a socket.
    SoftwareCard,
    /// A scenario's network.
    Scenario,
    /// Something of libibverbs', if anything.
    Ibverbs,
}

impl DeviceArgs {
    /// Refuses what only other devices have.
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        let place = self.place();
        let refuse = |text| Err(LaunchError::Arguments(text));
        if let (Some((option, instead)), true) =
            (self.mishaps.given(), place != Where::SoftwareCard)
        {
            let instead = match place {
                Where::Scenario => format!("; a scenario's network has {instead}"),
                _ => String::new(),
            };
            return refuse(format!(
                "{option} is for a software card, and {} is none{instead}",
                self.device
            ));
        }
        if self.server.is_some() && self.port == 0 {
            return refuse("--port 0: a client needs the port that its server has".into());
        }
        match self.set.first() {
            Some(setting) if place != Where::Scenario => refuse(format!(
                "--set {setting} is for a scenario, and {} is none",
                self.device
            )),
            _ => Ok(()),
        }
    }

    /// How long to wait for the other end.
    pub fn wait(&self) -> Duration {
        Duration::from_secs(self.wait.into())
    }

    /// Where a server waits for its client. Nobody from elsewhere has anything to say to a card that is on the
    /// loopback network; one that is told its address waits there.
    pub(crate) fn listens(&self) -> SocketAddr {
        let address = match self.place() {
            Where::SoftwareCard => {
                let told = self.device.split_once('@').map(|(_, told)| told.parse());
                // What is no address is refused when the card is opened.
                told.and_then(Result::ok)
                    .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
            }
            _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        SocketAddr::new(address, self.port)
    }

    /// What the device name means.
    pub fn place(&self) -> Where {
        if self.device.starts_with(SIM) {
            return Where::Scenario;
        }
        match self.device.split('@').next() {
            Some(SOFTWARE) => Where::SoftwareCard,
            _ => Where::Ibverbs,
        }
    }
}

/// Why no program ran.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The scenario cannot be read.
    #[error("{0}")]
    Scenario(Diagnostics),
    /// The file of faults cannot be read.
    #[error("{0}")]
    Faults(SourceError),
    /// Its network cannot be built.
    #[error("{SIM}{name}: {source}")]
    Build {
        /// The scenario.
        name: String,
        /// Why.
        source: RunError,
    },
    /// The device does not open, or has no such host.
    #[error(transparent)]
    Device(#[from] Error),
    /// The arguments do not go together.
    #[error("{0}")]
    Arguments(String),
}

/// What one program came to.
#[derive(Debug)]
pub struct Outcome<T> {
    /// "client" or "server".
    pub role: &'static str,
    /// What it returned.
    pub value: T,
}

/// What all programs came to, and what there is to tell of where they ran.
#[derive(Debug)]
pub struct Launched<T> {
    /// Client first, where both ran.
    pub outcomes: Vec<Outcome<T>>,
    /// Of a scenario's network: the time that went by and what its cards counted.
    pub network: Option<NetworkReport>,
    /// Of a software card on a socket: what it and its port counted.
    pub card: Option<CardReport>,
}

/// What a software card on a socket came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CardReport {
    /// The card's counters.
    pub card: Counters,
    /// Those of its port.
    pub port: PortCounters,
}

/// What a scenario's network came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkReport {
    /// Virtual time at the end, in picoseconds.
    pub time_ps: u64,
    /// Each card with traffic: its host and its counters.
    pub cards: Vec<(String, Counters)>,
    /// Packets that links and switches dropped.
    pub drops: u64,
}

impl Display for NetworkReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "virtual time {:.3} us, {} dropped",
            self.time_ps as f64 / 1e6,
            self.drops
        )?;
        for (host, counters) in &self.cards {
            write!(
                f,
                "; {host} sent {} packets, {} of them again",
                counters.sent_packets, counters.retransmitted_packets
            )?;
        }
        Ok(())
    }
}

/// Runs `program` where `args` say: once with the device they name, or in both roles in a scenario's network.
///
/// # Errors
///
/// If there is no such device or scenario, or the arguments do not go together. What a program returns, its
/// own errors above all, is an outcome.
pub fn launch<T: Send + 'static>(
    args: &DeviceArgs,
    program: impl Fn(Context, Role) -> T + Clone + Send + 'static,
) -> Result<Launched<T>, LaunchError> {
    args.check()?;
    match args.device.strip_prefix(SIM) {
        Some(scenario) => in_scenario(scenario, args, program),
        None => on_device(args, program),
    }
}

fn on_device<T>(
    args: &DeviceArgs,
    program: impl Fn(Context, Role) -> T,
) -> Result<Launched<T>, LaunchError> {
    let (role, name) = match &args.server {
        Some(server) => {
            let resolved = (server.as_str(), args.port).to_socket_addrs();
            let address = resolved.ok().and_then(|mut all| all.next());
            let address = address.ok_or_else(|| {
                LaunchError::Arguments(format!("server {server:?} is no address and no host"))
            })?;
            let wait = args.wait();
            let server = address;
            (Role::Client { server, wait }, "client")
        }
        None => {
            let listen = args.listens();
            (Role::Server { listen }, "server")
        }
    };
    let opened = open(args)?;
    let value = program(opened.context.clone(), role);
    Ok(Launched {
        outcomes: vec![Outcome { role: name, value }],
        network: None,
        card: opened.report(),
    })
}

/// A device that is none of a scenario's.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) context: Context,
    #[cfg(target_os = "linux")]
    card: Option<softroce_verbs::provider::port::Opened>,
}

/// Opens the device, none of a scenario's.
#[cfg(target_os = "linux")]
pub(crate) fn open(args: &DeviceArgs) -> Result<Opened, LaunchError> {
    let Some(mut card) = softroce_verbs::software(&args.device)? else {
        return Ok(Opened {
            context: softroce_verbs::open(&args.device)?,
            card: None,
        });
    };
    card.seed = args.seed;
    args.mishaps.set_up(args.seed, &mut card.udp.common)?;
    let card = card.open_with(|config| args.mishaps.set_up_card(config))?;
    Ok(Opened {
        context: card.context(),
        card: Some(card),
    })
}

#[cfg(not(target_os = "linux"))]
fn open(args: &DeviceArgs) -> Result<Opened, LaunchError> {
    Ok(Opened {
        context: softroce_verbs::open(&args.device)?,
    })
}

impl Opened {
    /// What a software card and its port have counted.
    #[cfg(target_os = "linux")]
    pub(crate) fn report(&self) -> Option<CardReport> {
        let card = self.card.as_ref()?;
        Some(CardReport {
            card: card.card_counters(),
            port: card.port_counters(),
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn report(&self) -> Option<CardReport> {
        None
    }

    /// The latest packet of a software card that the operating system refused to send.
    #[cfg(target_os = "linux")]
    pub(crate) fn last_send_error(&self) -> Option<String> {
        self.card.as_ref()?.engine().last_send_error()
    }

    /// Shows every frame of a software card from here on to `tap`.
    #[cfg(target_os = "linux")]
    pub(crate) fn set_tap(&self, tap: Option<Box<dyn Tap>>) {
        if let Some(card) = &self.card {
            card.engine().set_tap(tap);
        }
    }
}

fn in_scenario<T: Send + 'static>(
    name: &str,
    args: &DeviceArgs,
    program: impl Fn(Context, Role) -> T + Clone + Send + 'static,
) -> Result<Launched<T>, LaunchError> {
    if let Some(server) = &args.server {
        return Err(LaunchError::Arguments(format!(
            "a server ({server}) does not go with {SIM}{name}: both roles run there"
        )));
    }
    let (name, hosts) = match name.split_once('@') {
        Some((name, hosts)) => (name, Some(hosts)),
        None => (name, None),
    };
    let seed = args.seed.map(|n| format!("seed={n}"));
    let settings: Vec<String> = args.set.iter().cloned().chain(seed).collect();
    let scenario = read(name, &settings)?;
    let Some((client, server)) = places(&scenario, hosts) else {
        return Err(LaunchError::Arguments(format!(
            "{SIM}{name}@{}: two hosts with a comma between them are meant, as in {SIM}{name}@h0,h1",
            hosts.unwrap_or_default()
        )));
    };
    if client == server {
        return Err(LaunchError::Arguments(format!(
            "{}: client and server are both on {client}, and need a host each",
            args.device
        )));
    }
    let build = |source| LaunchError::Build {
        name: name.into(),
        source,
    };
    let network = run::stage(&scenario).map_err(build)?;
    // Addresses mean nothing there.
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port));
    let to_server = Role::Client {
        server: nowhere,
        wait: args.wait(),
    };
    let roles = [
        (client, to_server, "client"),
        (server, Role::Server { listen: nowhere }, "server"),
    ];
    let mut world = World::new(network);
    for (host, role, _) in &roles {
        let (program, role) = (program.clone(), *role);
        world.start(host, move |context| program(context, role))?;
    }
    let values = world.run();
    let outcomes = values.into_iter().zip(&roles);
    let outcomes = outcomes.map(|(value, &(_, _, role))| Outcome { role, value });
    let outcomes = outcomes.collect();
    let network = world.with_fabric(run::stage_report);
    Ok(Launched {
        outcomes,
        network,
        card: None,
    })
}

/// The scenario of the library or the file; the first of its points.
fn read(name: &str, settings: &[String]) -> Result<Scenario, LaunchError> {
    let loaded = crate::cli::read(Path::new(name), settings).map_err(LaunchError::Scenario)?;
    let mut points = loaded.points.into_iter();
    let point = points.next().expect("a plan has a point");
    Ok(point.scenario)
}

/// The hosts of client and server: those that are named, or the first and the last.
fn places(scenario: &Scenario, named: Option<&str>) -> Option<(String, String)> {
    match named {
        Some(named) => {
            let (client, server) = named.split_once(',')?;
            Some((client.into(), server.into()))
        }
        None => {
            let hosts = &scenario.network.hosts;
            Some((hosts.first()?.clone(), hosts.last()?.clone()))
        }
    }
}

/// What a program in real time waits for as it begins.
pub(crate) fn waits(role: &Role) -> String {
    match role {
        Role::Server { listen } => format!("waiting for a client on TCP {listen}"),
        Role::Client { server, wait } => format!(
            "waiting for a server at {server} for at most {} s (--wait)",
            wait.as_secs()
        ),
    }
}

/// The whole of a program that runs where its arguments say: reads them, runs it, tells what went wrong on
/// standard error, and gives 0 if nothing did, 1 if the program failed, 2 if it could not run.
pub fn main<E: Display + Send + 'static>(
    program: impl Fn(Context, Role) -> Result<(), E> + Clone + Send + 'static,
) -> ExitCode {
    #[derive(clap::Parser)]
    struct Whole {
        #[command(flatten)]
        device: DeviceArgs,
    }
    let Whole { device } = arguments::parse(std::env::args_os()).unwrap_or_else(|e| e.exit());
    let tells = move |context: Context, role: Role| {
        let context = context.telling(|role| eprintln!("{}", waits(role)));
        program(context, role)
    };
    match launch(&device, tells) {
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
        Ok(launched) => {
            let mut code = ExitCode::SUCCESS;
            for outcome in launched.outcomes {
                if let Err(e) = outcome.value {
                    eprintln!("error: {}: {e}", outcome.role);
                    code = ExitCode::FAILURE;
                }
            }
            if let Some(network) = launched.network {
                eprintln!("{network}");
            }
            code
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(device: &str) -> DeviceArgs {
        DeviceArgs {
            device: device.into(),
            server: None,
            port: 18515,
            wait: 10,
            seed: None,
            set: Vec::new(),
            mishaps: MishapArgs::default(),
        }
    }

    fn failure(args: &DeviceArgs) -> String {
        launch(args, |_, _| ()).unwrap_err().to_string()
    }

    #[test]
    fn both_roles_run_where_they_are_asked_to() {
        for (device, client, server) in [
            ("sim:two-hosts", "h0", "h1"),
            ("sim:two-hosts@h1,h0", "h1", "h0"),
        ] {
            let program = |context: Context, role: Role| {
                (context.device_name().to_string(), role.is_server())
            };
            let launched = launch(&args(device), program).unwrap();
            let values: Vec<_> = launched.outcomes.into_iter().map(|o| o.value).collect();
            assert_eq!(values, [(client.into(), false), (server.into(), true)]);
            assert_eq!(launched.network.unwrap().time_ps, 0);
        }
    }

    #[test]
    fn what_cannot_run_is_named() {
        for (device, named) in [
            ("sim:no-such-scenario", "no-such-scenario"),
            ("sim:two-hosts@h0", "h0"),
            ("sim:two-hosts@h0,h9", "h9"),
            (
                "sim:two-hosts@h1,h1",
                "sim:two-hosts@h1,h1: client and server are both on h1, and need a host each",
            ),
            ("no-such-device", "no-such-device"),
        ] {
            let message = failure(&args(device));
            assert!(message.contains(named), "{device}: {message}");
        }
        let with_server = DeviceArgs {
            server: Some("127.0.0.1".into()),
            ..args("sim:two-hosts")
        };
        assert!(failure(&with_server).contains("both roles"));
        let set = |device: &str, setting: &str| {
            failure(&DeviceArgs {
                set: vec![setting.into()],
                ..args(device)
            })
        };
        assert!(set("sim:two-hosts", "link.lost=1").contains("lost"));
        assert!(set("softroce0", "link.loss=1").contains("softroce0 is none"));
    }
}
