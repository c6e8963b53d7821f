//! In steady state neither card nor network allocates per packet, and switches without cards nothing at all.

// Counting allocations means being the allocator.
#![allow(unsafe_code)]

use softroce_sim::card::{
    Card, CardConfig, Env, PriorityMask, SendRequest, Sge, Status, Timing, Work,
};
use softroce_sim::fabric::bare::{Bare, route};
use softroce_sim::fabric::machine::{self, FlowOperation, FlowSpec, Machine};
use softroce_sim::fabric::{
    Config, EcnSpec, LinkSpec, Network, PayloadMode, PfcSpec, Rate, SwitchSpec, Threshold, Topology,
};
use softroce_sim::random::Probability;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{Payload, RouteTable};
use softroce_tests::bench::{Bench, Setup, ack, elsewhere, write_only};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    // Its own thread's alone: the test harness has one too.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.get()
}

#[test]
fn a_card_alone_allocates_nothing() {
    for timing in [Timing::default(), reactions()] {
        a_card_alone(timing);
    }
}

#[test]
fn cards_in_a_network_allocate_nothing() {
    for timing in [Timing::default(), reactions()] {
        for payload in [PayloadMode::Counted, PayloadMode::Carried] {
            for operation in [
                FlowOperation::Send,
                FlowOperation::Write,
                FlowOperation::WriteImmediate,
                FlowOperation::Read,
            ] {
                cards_in_a_network(timing, payload, operation);
            }
        }
    }
}

#[test]
fn switches_alone_allocate_nothing() {
    let plain = SwitchSpec::tail_drop(100_000);
    let mut ecn = [None; 8];
    ecn[3] = Some(EcnSpec {
        kmin: 5_000,
        kmax: 50_000,
        pmax: Probability::new(0.1).unwrap(),
    });
    let managed = SwitchSpec {
        pfc: Some(PfcSpec::new(PriorityMask::ALL, Threshold::Static(20_000))),
        ecn,
        weights: [1; 8],
        ..plain
    };
    for (mode, switch) in [
        (PayloadMode::Counted, plain),
        (PayloadMode::Carried, plain),
        (PayloadMode::Counted, managed),
    ] {
        let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
        let topology = Topology::fat_tree(4, link, switch).unwrap();
        let routes = RouteTable::new();
        let config = Config {
            seed: 1,
            payload: mode,
            routes: routes.clone(),
        };
        let hosts = topology.hosts();
        let mut network = Network::new(&topology, config, (), |id, node| {
            let to = &hosts[(id.index() + 8) % 16];
            Bare::new(routes.clone()).sending(&route(node, to, 0xc000), 1 << 30, 1024)
        })
        .unwrap();
        // Queues, pool and event lists grow to what they need.
        network.run_until(Time::ZERO + Span::from_us(600));
        let received = |n: &Network<Bare>| n.hosts().map(|h| h.received).sum::<u64>();
        let (before, packets) = (allocations(), received(&network));
        network.run_until(Time::ZERO + Span::from_us(1400));
        let allocated = allocations() - before;
        assert!(received(&network) - packets > 50_000);
        assert_eq!(allocated, 0, "{mode:?} {switch:?}");
    }
}

fn reactions() -> Timing {
    Timing {
        doorbell: Span::from_ns(50),
        ack: Span::from_ns(200),
        nak: Span::from_ns(300),
        retransmit: Span::from_ns(400),
    }
}

/// Payloads that are only counted.
struct Counted;

impl Env for Counted {
    fn stage(&mut self, len: u16, _: impl FnOnce(&mut [u8])) -> Payload {
        Payload::counted(len)
    }

    fn payload(&self, _: Payload) -> Option<&[u8]> {
        None
    }
}

/// A request each way, and its answer, over and over. Deadlines of a fraction of a microsecond come and
/// go while the transport timer has 67 ms.
fn a_card_alone(timing: Timing) {
    let mut setup = Setup::default();
    setup.config.timing = timing;
    let mut b = Bench::new(setup);
    let to = b.remote(0);
    let request = b.packet_of(write_only(0, to, b""));
    let answer = b.packet_of(ack(0, 1));
    let sges: [Sge; 1] = [b.sge(0, 8)];
    let route = b.route;
    let round = |b: &mut Bench, n: u32| {
        let send = SendRequest::new(n.into(), Work::Write(elsewhere()), &sges);
        b.qp.post_send(&send).unwrap();
        b.card.doorbell(b.now, b.qp.number());
        let mut packet = request;
        packet.bth = packet.bth.with_psn(request.bth.psn().plus(n));
        b.card.receive(b.now, &packet, &route, &mut Counted);
        let mut sent = 0;
        for _ in 0..10 {
            b.now += Span::from_ns(50);
            b.card.advance(b.now);
            while b
                .card
                .next_packet(b.now, PriorityMask::ALL, &mut Counted)
                .is_some()
            {
                sent += 1;
            }
        }
        assert_eq!(sent, 2);
        let mut packet = answer;
        packet.bth = packet.bth.with_psn(answer.bth.psn().plus(n));
        b.card.receive(b.now, &packet, &route, &mut Counted);
        assert_eq!(b.cq.poll().map(|c| c.status), Some(Status::Success));
    };
    for n in 0..1000 {
        round(&mut b, n);
    }
    let before = allocations();
    for n in 1000..100_000 {
        round(&mut b, n);
    }
    assert_eq!(allocations() - before, 0, "{timing:?}");
}

fn cards_in_a_network(timing: Timing, payload: PayloadMode, operation: FlowOperation) {
    let topology = Topology::back_to_back(LinkSpec::new(Rate::from_gbps(100), Span::from_us(1)));
    let routes = RouteTable::new();
    let config = Config {
        seed: 1,
        payload,
        routes: routes.clone(),
    };
    let mut net = Network::new(&topology, config, (), |_, node| {
        let mut card = CardConfig::new(node.name.clone(), node.gid(), node.mac);
        card.timing = timing;
        Machine::new(Card::new(card, 1, routes.clone()), 4096).unwrap()
    })
    .unwrap();
    let (a, b) = (topology.host("h0").unwrap(), topology.host("h1").unwrap());
    let spec = FlowSpec {
        depth: 64,
        signal_every: 64,
        recv_depth: 256,
        carried: payload == PayloadMode::Carried,
        ..FlowSpec::new(operation, 3000, u64::MAX)
    };
    let id = machine::connect(&mut net, a, b, &spec).unwrap();
    // Queues, pool and event lists grow to what they need.
    net.run_until(Time::ZERO + Span::from_us(500));
    let packets = |net: &Network<Machine>| -> u64 {
        net.hosts()
            .map(|h| h.card().counters().received_packets)
            .sum()
    };
    let samples = |net: &Network<Machine>| machine::stats(net, id).latencies.len();
    let (before_packets, before_samples) = (packets(&net), samples(&net));
    let before = allocations();
    net.run_until(Time::ZERO + Span::from_us(1000));
    let allocated = allocations() - before;
    assert!(packets(&net) - before_packets > 3000);
    // The flow's own list of latencies doubles now and then.
    let doublings = (samples(&net) / before_samples.max(1)).ilog2() + 1;
    let what = format!("{operation:?} {payload:?} {timing:?}");
    assert!(allocated <= u64::from(doublings), "{what}: {allocated}");
}
