//! Whatever the network does, each request takes effect exactly once and in order, or the connection
//! fails and a prefix took effect. See [`softroce_tests::pair`] for what is checked.
//!
//! A plan that fails is shrunk, printed, and kept beside this file in `delivery.regressions`. To run
//! one again by hand, set
//! `SOFTROCE_SEED` to its seed: [`a_plan_by_hand`] runs everything that can be drawn from it.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use softroce_sim::card::Mtu;
use softroce_sim::random::Stream;
use softroce_tests::pair::{Plan, run};

fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(cases),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

const CLEAN: Plan = Plan {
    seed: 0,
    qps: 1,
    ops: 4,
    both_ways: false,
    mtu: Mtu::M256,
    lost: 0,
    twice: 0,
    late: 0,
    damaged: 0,
    late_receives: false,
    go_back_0: false,
    retry_cnt: 7,
    rnr_retry: 7,
    slow: false,
    bytes: false,
};

prop_compose! {
    fn programs()(
        seed in any::<u64>(),
        qps in 1usize..4,
        ops in 1usize..12,
        both_ways: bool,
        big: bool,
        late_receives: bool,
        go_back_0: bool,
        slow: bool,
    ) -> Plan {
        let mtu = if big { Mtu::M1024 } else { Mtu::M256 };
        Plan { seed, qps, ops, both_ways, mtu, late_receives, go_back_0, slow, ..CLEAN }
    }
}

prop_compose! {
    fn plans()(
        plan in programs(),
        lost in prop_oneof![Just(0u64), 0..150u64],
        twice in prop_oneof![Just(0u64), 0..150u64],
        late in prop_oneof![Just(0u64), 0..150u64],
        damaged in prop_oneof![Just(0u64), 0..50u64],
        few_retries in prop_oneof![4 => Just(false), 1 => Just(true)],
    ) -> Plan {
        let retry_cnt = if few_retries { 1 } else { 7 };
        let rnr_retry = if few_retries { 2 } else { 7 };
        Plan { lost, twice, late, damaged, retry_cnt, rnr_retry, ..plan }
    }
}

proptest! {
    #![proptest_config(config(600))]

    #[test]
    fn each_request_takes_effect_once_and_in_order(plan in plans()) {
        run(plan);
    }

    #[test]
    fn a_network_without_faults_needs_no_retries(plan in programs()) {
        // But late receives do, and a port that is paused for longer than the timeout.
        let plan = Plan { late_receives: false, slow: false, ..plan };
        let outcome = run(plan);
        prop_assert_eq!((outcome.failed, outcome.resent), (0, 0));
    }

    #[test]
    fn late_receives_fail_nothing_where_rnr_retries_are_for_ever(plan in programs()) {
        let outcome = run(Plan { late_receives: true, slow: false, ..plan });
        prop_assert_eq!(outcome.failed, 0);
    }
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn packets_through_bytes_do_the_same_as_packets_as_values(plan in plans()) {
        let values = run(plan);
        let bytes = run(Plan { bytes: true, ..plan });
        prop_assert_eq!(values, bytes);
    }

    #[test]
    fn a_plan_repeats_exactly(plan in plans()) {
        prop_assert_eq!(run(plan), run(plan));
    }
}

#[test]
fn losses_of_a_tenth_are_survived() {
    // Enough retries for the losses: what a timeout of 262 us and seven retries are for.
    let mut resent = 0;
    for seed in 0..50 {
        let outcome = run(Plan {
            seed,
            ops: 10,
            lost: 100,
            ..CLEAN
        });
        assert_eq!(outcome.failed, 0, "seed {seed}");
        resent += outcome.resent;
    }
    assert!(resent > 100);
}

#[test]
fn a_read_is_flushed_ahead_of_what_the_receiver_was_not_ready_for() {
    let outcome = run(Plan {
        seed: 15021257477739653215,
        ops: 11,
        both_ways: true,
        late: 25,
        damaged: 11,
        late_receives: true,
        retry_cnt: 1,
        rnr_retry: 2,
        slow: true,
        ..CLEAN
    });
    assert_eq!(outcome.failed, 1);
    let first = |status: &str| outcome.log.iter().position(|line| line.contains(status));
    let (flushed, not_ready) = (first("WorkRequestFlushed"), first("RnrRetryExceeded"));
    assert!(flushed.is_some() && flushed < not_ready);
}

#[test]
fn a_plan_by_hand() {
    let Ok(seed) = std::env::var("SOFTROCE_SEED") else {
        return;
    };
    let seed = seed.parse().expect("SOFTROCE_SEED is a number");
    let mut s = Stream::new(seed, "plan");
    for _ in 0..100 {
        let plan = Plan {
            seed,
            qps: 1 + s.below(3) as usize,
            ops: 1 + s.below(11) as usize,
            both_ways: s.below(2) == 0,
            mtu: Mtu::ALL[s.below(3) as usize],
            lost: s.below(150),
            twice: s.below(150),
            late: s.below(150),
            damaged: s.below(50),
            late_receives: s.below(2) == 0,
            go_back_0: s.below(2) == 0,
            retry_cnt: s.below(8) as u8,
            rnr_retry: s.below(8) as u8,
            slow: s.below(2) == 0,
            bytes: s.below(2) == 0,
        };
        println!("{plan:?}");
        run(plan);
    }
}
