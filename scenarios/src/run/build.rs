//! From a scenario to a network of cards with its faults and loads.

use super::RunError;
use super::collective;
use super::injection;
use super::watch::{Recording, Watch};
use crate::format::Scenario;
use crate::format::card::{Card, GidKind, Recovery};
use crate::format::scenario::Payload;
use crate::format::topology::{End, WayId};
use crate::format::traffic::{Amount, Traffic};
use crate::units::Size;
use softroce_sim::card::recovery::{GO_BACK_0, GO_BACK_N};
use softroce_sim::card::{self, CardConfig, Mtu, Timing};
use softroce_sim::fabric::machine::{self, FlowId, FlowSpec, Machine};
use softroce_sim::fabric::{
    Action, ChannelId, Config, Direction, Fault, HostId, HostNode, Network, Pattern, PayloadMode,
    Rate, Topology,
};
use softroce_sim::time::Time;
use softroce_sim::wire::{Encapsulation, Gid, QpNumber, RouteTable};
use std::net::{IpAddr, Ipv6Addr};

/// A network ready to run.
pub(super) struct Built {
    pub(super) network: Network<Machine, Watch>,
    /// The flows of each load: pair of hosts by pair, `qps` each.
    pub(super) flows: Vec<Vec<FlowId>>,
    /// The members of each load that go through rounds, if it is a collective, and their places on their
    /// hosts.
    pub(super) members: Vec<Vec<(HostId, usize)>>,
    /// The faults, those of the file first, then one for each direction of a link with a loss.
    pub(super) faults: Vec<Injected>,
}

/// A fault with its injectors, one for each direction of a link it is on.
pub(super) struct Injected {
    pub(super) name: String,
    /// Where, and at which position among the injectors there.
    pub(super) places: Vec<(ChannelId, usize)>,
}

/// The channel of the simulator that is a direction of the scenario.
pub(super) const fn channel(way: WayId) -> ChannelId {
    let direction = match way.way {
        0 => Direction::Forward,
        _ => Direction::Backward,
    };
    ChannelId::new(way.link, direction)
}

/// Hosts, switches and links of a scenario, in its order.
fn topology(scenario: &Scenario) -> Result<Topology, RunError> {
    let network = &scenario.network;
    let mut topology = Topology::new();
    for host in &network.hosts {
        topology.add_host(host)?;
    }
    for switch in &network.switches {
        topology.add_switch(&switch.name, switch.spec())?;
    }
    for link in &network.links {
        let name = |end: End| network.end(end).to_string();
        topology.connect(&name(link.a), &name(link.b), link.spec())?;
    }
    for (n, (host, card)) in network.hosts.iter().zip(&scenario.cards).enumerate() {
        let address: IpAddr = match card.gid {
            GidKind::Ipv4 => continue,
            GidKind::Ipv6 => Ipv6Addr::from((0xfd00 << 112) + n as u128 + 1).into(),
            GidKind::RoceV1 => link_local(&topology.hosts()[n]).into(),
        };
        topology.set_address(host, address)?;
    }
    Ok(topology)
}

/// The default GID of a RoCEv1 port: link-local, from its Ethernet address (EUI-64).
fn link_local(host: &HostNode) -> Ipv6Addr {
    let [a, b, c, d, e, f] = host.mac.0;
    let id = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from((0xfe80 << 112) | u128::from(id))
}

/// Builds the network of a scenario, where `recordings` are made.
pub(super) fn build(scenario: &Scenario, recordings: &[Recording]) -> Result<Built, RunError> {
    let topology = topology(scenario)?;
    let watch = Watch::new(&topology, recordings)?;
    let routes = RouteTable::new();
    let config = Config {
        seed: scenario.seed,
        payload: match scenario.payload {
            Payload::Data => PayloadMode::Carried,
            Payload::Counted => PayloadMode::Counted,
        },
        routes: routes.clone(),
    };
    let cqe = completions(scenario);
    let mut machines = Vec::new();
    let hosts = topology.hosts().iter().zip(&scenario.cards);
    let lines = scenario.network.line_rates();
    for (((node, card), cqe), line) in hosts.zip(cqe).zip(lines) {
        // A host without a link sends nothing.
        let line = line.and_then(|r| Rate::from_bps(r.0));
        let line = line.unwrap_or(Rate::from_gbps(100));
        let card = card::Card::new(card_config(node, card, line), scenario.seed, routes.clone());
        machines.push(Machine::new(card, cqe).map_err(|source| RunError::Card {
            host: node.name.clone(),
            source,
        })?);
    }
    let mut machines = machines.into_iter();
    let mut network = Network::new(&topology, config, watch, |_, _| {
        machines.next().expect("a machine for each host")
    })?;
    super::network::set_up(&mut network, scenario)?;
    let mut flows = Vec::new();
    for load in &scenario.traffic {
        flows.push(connect(&mut network, scenario, load)?);
    }
    let members = scenario.traffic.iter().zip(&flows);
    let members = members
        .map(|(load, flows)| collective::enlist(&mut network, load, flows))
        .collect();
    let faults = inject(&mut network, scenario, &flows)?;
    network.observer_mut().know(&faults);
    Ok(Built {
        network,
        flows,
        members,
        faults,
    })
}

/// Completions that the queue of each host must hold.
fn completions(scenario: &Scenario) -> Vec<u32> {
    let mut all = vec![0u32; scenario.network.hosts.len()];
    for load in &scenario.traffic {
        for (n, &(from, to)) in load.pairs.iter().enumerate() {
            for (host, each) in [(from, load.depth), (to, load.receives(n))] {
                all[host] = all[host].saturating_add(each.saturating_mul(load.qps));
            }
        }
    }
    all.into_iter().map(|n| n.max(1)).collect()
}

fn card_config(node: &HostNode, card: &Card, line: Rate) -> CardConfig {
    CardConfig {
        encapsulation: match card.gid {
            GidKind::RoceV1 => Encapsulation::RoceV1,
            GidKind::Ipv4 | GidKind::Ipv6 => Encapsulation::RoceV2,
        },
        recovery: match card.recovery {
            Recovery::GoBackN => GO_BACK_N,
            Recovery::GoBack0 => GO_BACK_0,
        },
        congestion: card.congestion,
        notification: card.notification,
        line_rate: line,
        ack_every: card.ack_every,
        credits: card.credits,
        ack_priority: Some(card.ack_priority),
        timing: Timing {
            doorbell: card.doorbell_delay,
            ack: card.ack_delay,
            nak: card.nak_delay,
            retransmit: card.retransmit_delay,
        },
        ..CardConfig::new(node.name.clone(), node.gid(), node.mac)
            .with_profile(card.profile.profile())
    }
}

/// Sets up the queue pairs of a load.
fn connect(
    network: &mut Network<Machine, Watch>,
    scenario: &Scenario,
    load: &Traffic,
) -> Result<Vec<FlowId>, RunError> {
    let mut flows = Vec::new();
    for (n, &(from, to)) in load.pairs.iter().enumerate() {
        for qp in 0..load.qps {
            let hosts = &scenario.network.hosts;
            let name = format!("{} {}->{} {qp}", load.name, hosts[from], hosts[to]);
            let own = flow(scenario, load, n, name, &scenario.cards[from]);
            let peer = flow(scenario, load, n, String::new(), &scenario.cards[to]);
            // As programs agree on when they connect.
            let reads = own.max_rd_atomic.min(peer.max_rd_atomic);
            let [own, peer] = [own, peer].map(|spec| FlowSpec {
                max_rd_atomic: reads,
                ..spec
            });
            let [a, b] = [from, to].map(HostId::new);
            let id = machine::connect_ends(network, a, b, &own, &peer);
            flows.push(id.map_err(|source| RunError::Load {
                load: load.name.clone(),
                source,
            })?);
        }
    }
    Ok(flows)
}

/// The flow of the `n`-th pair of a load as the card at one end sets it up.
fn flow(scenario: &Scenario, load: &Traffic, n: usize, name: String, card: &Card) -> FlowSpec {
    let own = load.flow(n);
    let bytes = |size: Size| u32::try_from(size.0).unwrap_or(u32::MAX);
    let start = Time::ZERO + load.start + own.start;
    let (count, stop) = match load.amount {
        Amount::Messages(n) => (n, Time::NEVER),
        Amount::For(span) => (u64::MAX, start + span),
    };
    FlowSpec {
        name,
        transport: load.transport.qp_type(),
        depth: load.depth,
        start,
        stop,
        signal_every: load.signalled_every,
        sges: load.sge,
        recv_depth: load.receives(n),
        recv_size: load.recv_size.map(bytes),
        recv_start: start + load.recv_delay,
        qp_access: load.qp_access,
        mr_access: load.mr_access,
        // The file counts from 1, the flow from 0.
        mistake: load
            .mistake
            .map(|(mistake, from)| (mistake.flow(), from - 1)),
        carried: scenario.payload == Payload::Data,
        // The reader takes no other MTU, and no message above 2 GiB.
        mtu: Mtu::from_bytes(card.mtu.into()).unwrap_or(Mtu::M1024),
        sl: card.priority,
        dscp: card.dscp,
        timeout: card.timeout,
        retry_cnt: card.retry_count,
        rnr_retry: card.rnr_retry,
        min_rnr_timer: card.min_rnr_timer,
        max_rd_atomic: card.max_rd_atomic,
        ..FlowSpec::new(own.operation.flow(), bytes(own.size), count)
    }
}

/// Puts the faults on the links.
fn inject(
    network: &mut Network<Machine, Watch>,
    scenario: &Scenario,
    flows: &[Vec<FlowId>],
) -> Result<Vec<Injected>, RunError> {
    let mut all = Vec::new();
    for f in &scenario.faults {
        let mut fault = injection::fault(&f.injection);
        fault.filter.connection = f.queue_pair.and_then(|qp| connection(network, qp, flows));
        all.push(place(network, &f.name, &f.ways, fault)?);
    }
    for way in scenario.network.ways() {
        let loss = scenario.network.links[way.link].loss[way.way];
        if loss.get() > 0.0 {
            let name = format!("loss:{}", scenario.network.way_name(way));
            let random = Pattern::Random(loss.draw());
            let fault = Fault::new(Action::Drop).when(random);
            all.push(place(network, &name, &[way], fault)?);
        }
    }
    Ok(all)
}

fn place(
    network: &mut Network<Machine, Watch>,
    name: &str,
    ways: &[WayId],
    fault: Fault,
) -> Result<Injected, RunError> {
    let mut places = Vec::new();
    for &way in ways {
        let channel = channel(way);
        let position = network
            .inject_named(channel, name, fault)
            .map_err(|source| RunError::Fault {
                fault: name.to_string(),
                source,
            })?;
        places.push((channel, position));
    }
    Ok(Injected {
        name: name.to_string(),
        places,
    })
}

/// The addresses and numbers of a queue pair of a load, at both ends.
fn connection(
    network: &Network<Machine, Watch>,
    (load, qp): (usize, u32),
    flows: &[Vec<FlowId>],
) -> Option<[(Gid, QpNumber); 2]> {
    let id = *flows.get(load)?.get(qp as usize)?;
    let gid = |host: HostId| network.topology().hosts()[host.index()].gid();
    let sender = network.host(id.host).flow_qp(id.flow);
    let receiver = network.host(id.peer).receiver_qp(id.receiver);
    Some([(gid(id.host), sender), (gid(id.peer), receiver)])
}
