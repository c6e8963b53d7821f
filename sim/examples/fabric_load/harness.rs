//! One load on one fat tree, for any kind of host: shared by the example and the benchmark.

use softroce_sim::card::{
    Card, CardConfig, CongestionControl, Dcqcn, Mtu, Notification, PriorityMask,
};
use softroce_sim::fabric::bare::{Bare, route};
use softroce_sim::fabric::loads::{Transfer, incast, shift};
use softroce_sim::fabric::machine::{FlowOperation, FlowSpec, Machine, connect};
use softroce_sim::fabric::{
    ChannelId, Config, Direction, EcnSpec, Host, HostNode, LinkSpec, Network, PayloadMode, PfcSpec,
    Rate, Ratio, SwitchSpec, Threshold, Topology,
};
use softroce_sim::random::Probability;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::RouteTable;

/// What is run.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Of the fat tree.
    pub k: usize,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// How much each sender sends.
    pub bytes: u64,
    /// In packets of this payload.
    pub payload: u16,
    /// Whether they carry it.
    pub mode: PayloadMode,
    /// Whether switches have PFC and ECN, as HPCC's do at 100 Gb/s: 32 MB, a pause at 1/8 of what is
    /// free, marks from 400 KB to 1600 KB.
    pub lossless: bool,
    /// Whether cards have DCQCN; without `lossless` nothing is ever marked.
    pub dcqcn: bool,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    /// Each host to the one half the network away.
    Shift,
    /// All to the first.
    Incast,
}

/// What came out.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Data packets sent by all.
    pub packets: u64,
    /// When the last event was.
    pub end: Time,
    /// Events handled.
    pub events: u64,
    /// Packets dropped.
    pub drops: u64,
    /// The fullest queue, in bytes.
    pub high_water: u64,
    /// Packets that switches marked.
    pub marks: u64,
    /// Pauses asked for.
    pub pauses: u64,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            k: 4,
            pattern: Pattern::Shift,
            bytes: 10_000_000,
            payload: 1024,
            mode: PayloadMode::Counted,
            lossless: false,
            dcqcn: false,
        }
    }
}

/// The network and who sends to whom in it, with the hosts that `make` makes: given the nodes of all
/// hosts, the position of this one, and what it is to send, if anything.
fn build<H: Host>(
    setup: &Setup,
    mut make: impl FnMut(&RouteTable, &[HostNode], usize, Option<&Transfer>) -> H,
) -> (Network<H>, Vec<Transfer>) {
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
    // Large enough never to drop.
    let mut switch = SwitchSpec::tail_drop(u64::MAX);
    if setup.lossless {
        let eighth = Threshold::Dynamic(Ratio::new(1, 8).expect("not by zero"));
        let red = EcnSpec {
            kmin: 400_000,
            kmax: 1_600_000,
            pmax: Probability::new(0.2).expect("a probability"),
        };
        switch.buffer = 32_000_000;
        switch.pfc = Some(PfcSpec::new(PriorityMask::ALL, eighth));
        switch.ecn = [Some(red); 8];
    }
    let topology = Topology::fat_tree(setup.k, link, switch).expect("an even k");
    let nodes = topology.hosts();
    let load = match setup.pattern {
        Pattern::Shift => shift(nodes.len(), nodes.len() / 2, setup.bytes),
        Pattern::Incast => incast(nodes.len(), setup.bytes),
    };
    let config = Config {
        seed: 1,
        payload: setup.mode,
        routes: RouteTable::new(),
    };
    let table = config.routes.clone();
    let network = Network::new(&topology, config, (), |id, _| {
        make(
            &table,
            nodes,
            id.index(),
            load.iter().find(|t| t.from == id),
        )
    })
    .expect("every host has a link");
    (network, load)
}

/// Data packets of a load.
pub(crate) fn packets(setup: &Setup) -> u64 {
    let senders = match setup.pattern {
        Pattern::Shift => setup.k.pow(3) / 4,
        Pattern::Incast => setup.k.pow(3) / 4 - 1,
    };
    senders as u64 * setup.bytes.div_ceil(u64::from(setup.payload))
}

/// Runs the load to its end.
fn run<H: Host>(setup: &Setup, network: &mut Network<H>, load: &[Transfer]) -> Outcome {
    network.run_until_idle(Time::NEVER);
    let links = network.topology().links().len();
    let channels = (0..links * 2).map(|i| {
        let direction = [Direction::Forward, Direction::Backward][i % 2];
        network.counters(ChannelId::new(i / 2, direction))
    });
    let by_priority = || channels.clone().flat_map(|c| c.by_priority);
    Outcome {
        packets: load.len() as u64 * setup.bytes.div_ceil(u64::from(setup.payload)),
        end: network.now(),
        events: network.event_count(),
        drops: channels.clone().map(|c| c.all_drops()).sum(),
        high_water: channels
            .clone()
            .map(|c| c.queue_high_water)
            .max()
            .unwrap_or(0),
        marks: by_priority().map(|p| p.marks).sum(),
        pauses: by_priority().map(|p| p.pauses_sent).sum(),
    }
}

/// Runs the load on hosts without a card.
pub(crate) fn bare(setup: &Setup) -> Outcome {
    let (mut network, load) = build(setup, |table, nodes, i, transfer| {
        let host = Bare::new(table.clone());
        match transfer {
            Some(t) => {
                let packets = t.bytes.div_ceil(u64::from(setup.payload));
                let way = route(&nodes[i], &nodes[t.to.index()], 0xc000 + i as u16);
                host.sending(&way, packets, setup.payload)
            }
            None => host,
        }
    });
    let outcome = run(setup, &mut network, &load);
    let acknowledged: u64 = network.hosts().map(|h| h.acknowledged).sum();
    assert_eq!(acknowledged + outcome.drops, outcome.packets);
    outcome
}

/// Runs the load on hosts with cards: one RDMA WRITE each, an ACK for every packet, on the same ways as
/// [`bare`].
pub(crate) fn card(setup: &Setup) -> Outcome {
    let (mut network, load) = build(setup, |table, nodes, i, _| {
        let node = &nodes[i];
        let mut config = CardConfig {
            ack_every: 1,
            ..CardConfig::new(&*node.name, node.gid(), node.mac)
        };
        if setup.dcqcn {
            config.congestion = CongestionControl::Dcqcn(Dcqcn::PAPER);
            config.notification = Some(Notification::PAPER);
        }
        Machine::new(Card::new(config, 1, table.clone()), 64).expect("64 is a valid size")
    });
    for (i, t) in load.iter().enumerate() {
        let spec = FlowSpec {
            udp_src: Some(0xc000 + i as u16),
            carried: setup.mode == PayloadMode::Carried,
            mtu: Mtu::from_bytes(setup.payload.into()).expect("the payload of a path MTU"),
            // The queues hold whatever comes, so nothing is lost, but much of it comes late.
            timeout: 31,
            ..FlowSpec::new(FlowOperation::Write, setup.bytes as u32, 1)
        };
        connect(&mut network, t.from, t.to, &spec).expect("the flow is in its limits");
    }
    let outcome = run(setup, &mut network, &load);
    assert!(
        network.hosts().all(|h| h.is_done(outcome.end)),
        "every WRITE has completed"
    );
    let sent: u64 = network
        .hosts()
        .map(|h| h.card().counters().request_packets)
        .sum();
    assert_eq!(sent, outcome.packets, "nothing was sent twice");
    outcome
}
