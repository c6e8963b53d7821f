//! DCQCN of full cards in a network, against what others have computed and measured.
//!
//! | file | what |
//! |---|---|
//! | `model` | the fixed point of the published fluid model |
//! | `fixed_point` | where queue and alpha settle, against the model |
//! | `incast` | how long flows into one port take, against another simulator |

mod fixed_point;
mod incast;
mod model;

use softroce_sim::card::{Card, CardConfig, CongestionControl, Dcqcn, Notification};
use softroce_sim::fabric::machine::Machine;
use softroce_sim::fabric::{Config, Network, PayloadMode, Topology};
use softroce_sim::rate::Rate;
use softroce_sim::wire::RouteTable;

/// A network whose cards have DCQCN, at ports of `line`.
fn network(
    topology: &Topology,
    seed: u64,
    line: Rate,
    reaction: Dcqcn,
    notification: Notification,
) -> Network<Machine> {
    let table = RouteTable::new();
    let config = Config {
        seed,
        payload: PayloadMode::Counted,
        routes: table.clone(),
    };
    Network::new(topology, config, (), |_, node| {
        let config = CardConfig {
            congestion: CongestionControl::Dcqcn(reaction),
            notification: Some(notification),
            line_rate: line,
            ..CardConfig::new(&*node.name, node.gid(), node.mac)
        };
        Machine::new(Card::new(config, seed, table.clone()), 64).unwrap()
    })
    .unwrap()
}
