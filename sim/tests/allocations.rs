//! In steady state the network allocates nothing per packet.

// Counting allocations means being the allocator.
#![allow(unsafe_code)]

use softroce_sim::card::PriorityMask;
use softroce_sim::fabric::bare::{Bare, route};
use softroce_sim::fabric::{
    Config, EcnSpec, LinkSpec, Network, PayloadMode, PfcSpec, Rate, SwitchSpec, Threshold, Topology,
};
use softroce_sim::random::Probability;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::RouteTable;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

#[test]
fn steady_state_allocates_nothing() {
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
        let (before, packets) = (ALLOCATIONS.load(Ordering::Relaxed), received(&network));
        network.run_until(Time::ZERO + Span::from_us(1400));
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert!(received(&network) - packets > 50_000);
        assert_eq!(allocated, 0, "{mode:?} {switch:?}");
    }
}
