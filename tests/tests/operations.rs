//! Every operation over a clean link, at every path MTU: completions, data, packets.

use softroce_sim::card::{Card, CardConfig, Mtu, Status};
use softroce_sim::fabric::machine::{self, FlowId, FlowOperation, FlowSpec, Machine};
use softroce_sim::fabric::topology::Topology;
use softroce_sim::fabric::{Config, LinkSpec, Network, Rate};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::RouteTable;

const OPERATIONS: [FlowOperation; 5] = [
    FlowOperation::Send,
    FlowOperation::SendImmediate,
    FlowOperation::Write,
    FlowOperation::WriteImmediate,
    FlowOperation::Read,
];

fn run(spec: &FlowSpec) -> (Network<Machine>, FlowId) {
    let topology = Topology::back_to_back(LinkSpec::new(Rate::from_gbps(100), Span::from_us(1)));
    let routes = RouteTable::new();
    let config = Config {
        seed: 1,
        routes: routes.clone(),
        ..Default::default()
    };
    let mut net = Network::new(&topology, config, (), |_, node| {
        let card = CardConfig::new(node.name.clone(), node.gid(), node.mac);
        Machine::new(Card::new(card, 1, routes.clone()), 4096).unwrap()
    })
    .unwrap();
    let (a, b) = (topology.host("h0").unwrap(), topology.host("h1").unwrap());
    let id = machine::connect(&mut net, a, b, spec).unwrap();
    assert!(net.run_until_idle(Time::ZERO + Span::from_ms(1000)));
    (net, id)
}

#[test]
fn every_operation_at_every_mtu_and_size_delivers_its_data() {
    for operation in OPERATIONS {
        for mtu in Mtu::ALL {
            let m = u32::from(mtu.bytes());
            for size in [0, 1, 3, m - 1, m, m + 1, 3 * m, 3 * m + 2] {
                let spec = FlowSpec {
                    carried: true,
                    mtu,
                    depth: 4,
                    sges: 3,
                    ..FlowSpec::new(operation, size, 10)
                };
                let (net, id) = run(&spec);
                let stats = machine::stats(&net, id);
                let what = format!("{operation:?} of {size} at {m}: {stats:?}");
                assert_eq!(stats.completed.get(Status::Success), 10, "{what}");
                if size > 0 {
                    assert_eq!(machine::data_intact(&net, id), Some(true), "{what}");
                }
                assert_eq!(stats.wrong_immediate, 0, "{what}");
                let received = match operation {
                    FlowOperation::Write | FlowOperation::Read => 0,
                    _ => 10,
                };
                assert_eq!(stats.received.get(Status::Success), received, "{what}");
                let counters = net.host(id.host).card().counters();
                assert_eq!(counters.retransmitted_packets, 0, "{what}");
                let packets = u64::from(size.div_ceil(m).max(1)) * 10;
                let sent = if operation == FlowOperation::Read {
                    10
                } else {
                    packets
                };
                assert_eq!(counters.request_packets, sent, "{what}");
                if operation == FlowOperation::Read {
                    let peer = net.host(id.peer).card().counters();
                    assert_eq!(peer.read_response_packets, packets, "{what}");
                }
                assert_eq!(net.pool().in_use(), 0, "{what}");
                assert_eq!(net.in_flight(), 0, "{what}");
            }
        }
    }
}
