//! Programs on cards of a network in virtual time.
//!
//! A [`World`] is a network and the programs that run on its hosts, each on a thread of its own. They run
//! one at a time: whoever has the turn keeps it until it waits, and nothing else moves meanwhile, neither
//! programs nor time. What takes a program virtual time is to find a completion queue empty, to sleep, and
//! to wait for something; everything else is done at once. When all wait, the network runs until one of
//! them need wait no longer; those that could go on at the same time do so in the order of their hosts,
//! and on one host in the order in which they were started. So the same programs on the same network do
//! the same, to the byte, whatever the machine's scheduler does.
//!
//! | file | what |
//! |---|---|
//! | `fabric` | what a network has to be able to do |
//! | `turns` | who runs, who waits, and for what |
//! | `seat` | how a program gets at its card |

mod fabric;
mod seat;
mod turns;

pub use fabric::Fabric;

use super::card::CardProvider;
use crate::{Context, Error, Result};
use seat::SimSeat;
use softroce_sim::time::Span;
use std::fmt;
use std::sync::Arc;
use turns::Shared;

/// How a world treats its programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorldConfig {
    /// Time that it takes to find a completion queue empty. 100 ns, about what a look at an empty queue
    /// of a real card costs.
    pub poll: Span,
}

impl Default for WorldConfig {
    fn default() -> WorldConfig {
        WorldConfig {
            poll: Span::from_ns(100),
        }
    }
}

/// A network in virtual time with programs on its hosts.
///
/// ```
/// use softroce_sim::card::{Card, CardConfig};
/// use softroce_sim::fabric::machine::Machine;
/// use softroce_sim::fabric::{Config, LinkSpec, Network, PayloadMode, Rate, Topology};
/// use softroce_sim::time::Span;
/// use softroce_verbs::provider::sim::World;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let topology = Topology::back_to_back(LinkSpec::new(Rate::from_gbps(100), Span::from_ns(500)));
/// let config = Config { seed: 1, payload: PayloadMode::Carried, ..Config::default() };
/// let routes = config.routes.clone();
/// let network = Network::new(&topology, config, (), |_, node| {
///     let card = CardConfig::new(&node.name, node.gid(), node.mac);
///     Machine::new(Card::new(card, 1, routes.clone()), 16).expect("a completion queue of 16")
/// })?;
/// let mut world = World::new(network);
/// world.start("h0", |context| context.query_gid(1, 0).map(|entry| entry.gid.to_string()))?;
/// let outcomes = world.run();
/// assert_eq!(outcomes.len(), 1);
/// # Ok(()) }
/// ```
pub struct World<T> {
    shared: Arc<Shared>,
    threads: Vec<(String, std::thread::JoinHandle<T>)>,
}

impl<T: Send + 'static> World<T> {
    /// Programs on the hosts of `fabric`.
    pub fn new(fabric: impl Fabric + 'static) -> World<T> {
        World::with_config(fabric, WorldConfig::default())
    }

    /// As [`World::new`], with other costs.
    pub fn with_config(fabric: impl Fabric + 'static, config: WorldConfig) -> World<T> {
        World {
            shared: Arc::new(Shared::new(Box::new(fabric), config)),
            threads: Vec::new(),
        }
    }

    /// Puts a program on the host called `host`. It begins at time zero, when the world
    /// [runs](World::run).
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is no such host; [`Error::Os`] if no thread can be started.
    pub fn start(
        &mut self,
        host: &str,
        program: impl FnOnce(Context) -> T + Send + 'static,
    ) -> Result<()> {
        let Some(id) = self.shared.host(host) else {
            return Err(Error::NoDevice {
                name: host.into(),
                known: self.shared.host_names().join(", "),
            });
        };
        let number = self.shared.enter(id);
        let seat = SimSeat::new(self.shared.clone(), id);
        let shared = self.shared.clone();
        let name = host.to_string();
        let begun = std::thread::Builder::new()
            .name(format!("program on {host}"))
            .spawn(move || {
                let _turn = shared.begin(number);
                program(Context::new(Arc::new(CardProvider::new(name, seat))))
            });
        match begun {
            Ok(thread) => {
                self.threads.push((host.into(), thread));
                Ok(())
            }
            Err(source) => {
                self.shared.leave(number);
                Err(Error::Os {
                    call: format!("starting a thread for the program on {host}"),
                    source,
                })
            }
        }
    }

    /// Runs all programs to their ends, and gives what each came to, in the order in which they were
    /// started.
    ///
    /// # Panics
    ///
    /// If a program panics, with what it panicked with, after all others have ended.
    pub fn run(&mut self) -> Vec<T> {
        self.shared.open();
        let ended: Vec<_> = self.threads.drain(..).map(|(_, t)| t.join()).collect();
        let mut outcomes = Vec::new();
        for outcome in ended {
            match outcome {
                Ok(value) => outcomes.push(value),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcomes
    }

    /// Looks at the network, or changes it, between or after programs.
    pub fn with_fabric<R>(&self, look: impl FnOnce(&mut dyn Fabric) -> R) -> R {
        self.shared.with_fabric(look)
    }
}

impl<T> fmt::Debug for World<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<&str> = self.threads.iter().map(|(host, _)| host.as_str()).collect();
        write!(f, "World(programs on {hosts:?})")
    }
}
