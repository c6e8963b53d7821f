//! What fault injectors hit, and what becomes of it.

use super::*;
use crate::fabric::faults::{FaultError, GilbertElliott};
use crate::random::Probability;
use proptest::prelude::*;

/// Two hosts back to back, h0 sending `n` packets with faults on its way.
fn run(faults: &[Fault], n: u32) -> World {
    run_psns(faults, &(0..n).collect::<Vec<_>>())
}

fn run_psns(faults: &[Fault], psns: &[u32]) -> World {
    let topology = Topology::back_to_back(link());
    let mut w = World::with(topology, 7, PayloadMode::Carried);
    for &fault in faults {
        w.net.inject(w.channel("h0", "h1"), fault).unwrap();
    }
    let route = w.route(0, 1);
    w.send(0, psns.iter().map(|&psn| packet(route, psn)));
    w.run();
    w
}

fn hits(w: &World) -> Vec<u32> {
    let log = w.net.fault_log();
    log.records().iter().map(|r| r.bth.psn().get()).collect()
}

fn filter() -> Filter {
    Filter::ALL
}

#[test]
fn every_nth_packet_is_dropped_from_its_phase_on() {
    let w = run(
        &[Fault::new(Action::Drop).when(Pattern::Every { n: 4, phase: 3 })],
        10,
    );
    assert_eq!(w.psns(1), [0, 1, 2, 4, 5, 6, 8, 9]);
    assert_eq!(w.drops("h0", "h1", DropCause::Fault), 2);
    // A lost packet has taken its time.
    assert_eq!(w.arrivals(1)[3], 5 * LASTS + DELAY);
}

#[test]
fn a_hit_is_recorded_with_what_and_where() {
    let copy = Filter {
        copy: Some(2),
        ..filter()
    };
    let w = run_psns(&[Fault::new(Action::Drop).on(copy)], &[5, 6, 5]);
    let [record] = w.net.fault_log().records() else {
        panic!("one hit");
    };
    assert_eq!(record.time, at(2 * LASTS));
    assert_eq!(record.channel, w.channel("h0", "h1"));
    assert_eq!((record.fault, record.action), (0, Action::Drop));
    assert_eq!(record.bth.psn().get(), 5);
    let s = record.sighting.unwrap();
    assert_eq!((s.offset, s.ordinal, s.copy, s.round), (0, 1, 2, 2));
}

#[test]
fn packets_are_addressed_by_psn_copy_round_and_ordinal() {
    // The first round, go-back-N from 101, again from 101, onwards.
    let psns = [100, 101, 102, 103, 101, 102, 101, 102, 103, 104];
    let with = |f: Filter| hits(&run_psns(&[Fault::new(Action::Drop).on(f)], &psns));
    let psn = |n| PsnFilter::at(Psn::new(n));
    assert_eq!(
        with(Filter {
            psn: psn(101),
            ..filter()
        }),
        [101, 101, 101]
    );
    assert_eq!(
        with(Filter {
            psn: psn(102),
            copy: Some(2),
            ..filter()
        }),
        [102]
    );
    assert_eq!(
        with(Filter {
            round: Some(2),
            ..filter()
        }),
        [101, 102]
    );
    assert_eq!(
        with(Filter {
            round: Some(3),
            psn: PsnFilter::Offset { first: 2, last: 3 },
            ..filter()
        }),
        [102, 103]
    );
    assert_eq!(
        with(Filter {
            psn: PsnFilter::nth(5),
            ..filter()
        }),
        [104]
    );
    assert_eq!(
        with(Filter {
            psn: PsnFilter::nth(2),
            copy: Some(3),
            ..filter()
        }),
        [101]
    );
    let wrapped = PsnFilter::Between {
        first: Psn::new(0xff_ffff),
        last: Psn::new(1),
    };
    let w = run_psns(
        &[Fault::new(Action::Drop).on(Filter {
            psn: wrapped,
            ..filter()
        })],
        &[0xff_fffe, 0xff_ffff, 0, 1, 2],
    );
    assert_eq!(hits(&w), [0xff_ffff, 0, 1]);
}

#[test]
fn packets_are_addressed_by_ends_and_opcode() {
    let gid = |i: usize| Topology::back_to_back(link()).hosts()[i].gid();
    for (f, n) in [
        (
            Filter {
                dest_qp: Some(QpNumber::new(5)),
                ..filter()
            },
            3,
        ),
        (
            Filter {
                dest_qp: Some(QpNumber::new(6)),
                ..filter()
            },
            0,
        ),
        (
            Filter {
                src: Some(gid(0)),
                dst: Some(gid(1)),
                ..filter()
            },
            3,
        ),
        (
            Filter {
                src: Some(gid(1)),
                ..filter()
            },
            0,
        ),
        (
            Filter {
                opcodes: Opcodes::Requests,
                ..filter()
            },
            3,
        ),
        (
            Filter {
                opcodes: Opcodes::Data,
                ..filter()
            },
            3,
        ),
        (
            Filter {
                opcodes: Opcodes::One(Opcode::RC_WRITE_MIDDLE),
                ..filter()
            },
            3,
        ),
        (
            Filter {
                opcodes: Opcodes::Acknowledges,
                ..filter()
            },
            0,
        ),
        (
            Filter {
                opcodes: Opcodes::Cnps,
                ..filter()
            },
            0,
        ),
    ] {
        let w = run(&[Fault::new(Action::Drop).on(f)], 3);
        assert_eq!(hits(&w).len(), n, "{f:?}");
    }
}

#[test]
fn only_the_first_k_matches_are_hit() {
    let w = run(&[Fault::new(Action::Drop).at_most(2)], 5);
    assert_eq!(w.psns(1), [2, 3, 4]);
}

#[test]
fn corruption_on_a_link_is_dropped_by_the_receiver_and_in_a_device_is_not() {
    let w = run(&[Fault::new(Action::CorruptOnLink).at_most(1)], 2);
    assert_eq!(w.psns(1), [1]);
    assert_eq!(w.drops("h0", "h1", DropCause::BadFcs), 1);
    let w = run(&[Fault::new(Action::CorruptInDevice).at_most(1)], 2);
    let damage: Vec<Damage> = w
        .net
        .hosts()
        .last()
        .unwrap()
        .got
        .iter()
        .map(|g| g.1.damage)
        .collect();
    assert_eq!(damage, [Damage::Device, Damage::None]);
}

#[test]
fn a_mark_is_set_where_the_sender_takes_part() {
    let w = run(&[Fault::new(Action::MarkEcn).at_most(1)], 2);
    let ecn: Vec<Ecn> = w
        .net
        .hosts()
        .last()
        .unwrap()
        .got
        .iter()
        .map(|g| g.1.ecn)
        .collect();
    assert_eq!(ecn, [Ecn::Experienced, Ecn::Capable0]);
}

#[test]
fn a_copy_comes_when_it_is_told_to_and_carries_the_bytes() {
    let duplicate = |delay| {
        let fault = Fault::new(Action::Duplicate { delay }).at_most(1);
        run(&[fault], 3)
    };
    let w = duplicate(Span::ZERO);
    let one = LASTS + DELAY;
    assert_eq!(w.psns(1), [0, 0, 1, 2]);
    assert_eq!(w.arrivals(1)[..2], [one, one]);
    let w = duplicate(Span::from_ps(LASTS + 1));
    assert_eq!(w.psns(1), [0, 1, 0, 2]);
    assert_eq!(w.arrivals(1)[2], one + LASTS + 1);
    let host = w.net.hosts().last().unwrap();
    assert!(
        host.bytes
            .iter()
            .zip(w.psns(1))
            .all(|(b, psn)| *b == [psn as u8; 1000])
    );
    assert_eq!(w.net.counters(w.channel("h0", "h1")).duplicates, 1);
}

#[test]
fn a_copy_outlives_a_first_one_that_is_dropped() {
    let copy = Fault::new(Action::Duplicate {
        delay: Span::from_us(5),
    });
    let w = run(&[copy, Fault::new(Action::Drop)], 2);
    assert_eq!(w.psns(1), [0, 1]);
    assert_eq!(w.net.hosts().last().unwrap().bytes, [[0; 1000], [1; 1000]]);
}

#[test]
fn a_delayed_packet_is_overtaken() {
    let by = Span::from_ps(2 * LASTS + 1);
    let w = run(&[Fault::new(Action::Delay { by }).at_most(1)], 4);
    assert_eq!(w.psns(1), [1, 2, 0, 3]);
    assert_eq!(w.arrivals(1)[2], LASTS + DELAY + by.as_ps());
}

#[test]
fn a_packet_held_back_follows_the_nth_that_passed_it() {
    let hold = |packets, limit| Fault::new(Action::Reorder { packets, limit }).at_most(1);
    let w = run(&[hold(2, Span::from_ms(1))], 5);
    assert_eq!(w.psns(1), [1, 2, 0, 3, 4]);
    assert_eq!(w.arrivals(1)[1], w.arrivals(1)[2]);
    // Too few come: it waits as long as it may.
    let w = run(&[hold(5, Span::from_us(10))], 3);
    assert_eq!(w.psns(1), [1, 2, 0]);
    assert_eq!(w.arrivals(1)[2], LASTS + DELAY + 10_000_000);
}

#[test]
fn a_packet_held_without_limit_stays_until_enough_have_passed() {
    let limit = Span::from_ps(u64::MAX);
    let hold = Fault::new(Action::Reorder { packets: 2, limit }).at_most(1);
    let mut w = World::new(Topology::back_to_back(link()));
    w.net.inject(w.channel("h0", "h1"), hold).unwrap();
    w.send_numbered(0, 1, 2);
    assert!(w.net.run_until_idle(Time::NEVER));
    assert_eq!((w.psns(1), w.net.in_flight()), (vec![1], 1));
    w.send_numbered(0, 1, 1);
    w.run();
    assert_eq!(w.psns(1), [1, 0, 0]);
}

#[test]
fn random_loss_is_as_frequent_as_it_says() {
    let p = Probability::new(0.01).unwrap();
    let w = run(&[Fault::new(Action::Drop).when(Pattern::Random(p))], 20_000);
    // Binomial(20000, 0.01): mean 200, five standard deviations 70.
    let n = w.drops("h0", "h1", DropCause::Fault);
    assert!((130..=270).contains(&n), "{n}");
}

#[test]
fn bursts_are_as_long_as_the_bad_state_lasts() {
    let p = |x| Probability::new(x).unwrap();
    let model = GilbertElliott {
        p: p(0.01),
        r: p(0.25),
        good: Probability::ZERO,
        bad: Probability::ONE,
    };
    let w = run(
        &[Fault::new(Action::Drop).when(Pattern::Burst(model))],
        50_000,
    );
    let lost = hits(&w);
    let bursts = 1 + lost.windows(2).filter(|w| w[1] != w[0] + 1).count();
    // Share of the bad state p / (p + r) = 1/26: 1923; mean length 1 / r = 4.
    assert!((1600..=2250).contains(&lost.len()), "{}", lost.len());
    let tenths = 10 * lost.len() / bursts;
    assert!((35..=45).contains(&tenths), "{tenths}");
}

#[test]
fn another_fault_changes_no_hit_of_the_first() {
    let p = Probability::new(0.1).unwrap();
    let random = Fault::new(Action::CorruptOnLink).when(Pattern::Random(p));
    let first = |w: &World| -> Vec<u32> {
        let records = w.net.fault_log().records().iter();
        records
            .filter(|r| r.fault == 0)
            .map(|r| r.bth.psn().get())
            .collect()
    };
    let alone = run(&[random], 1000);
    let both = run(
        &[random, Fault::new(Action::Drop).when(Pattern::Random(p))],
        1000,
    );
    assert_eq!(first(&alone), first(&both));
    assert_ne!(hits(&both).len(), first(&both).len());
}

#[test]
fn a_fault_that_makes_no_sense_is_refused() {
    let mut w = World::new(Topology::back_to_back(link()));
    let channel = w.channel("h0", "h1");
    let drop = Fault::new(Action::Drop);
    for (fault, message) in [
        (
            drop.when(Pattern::Every { n: 4, phase: 4 }),
            "phase 4 of every 4 packets: the phase must be below 4",
        ),
        (
            drop.on(Filter {
                copy: Some(0),
                ..filter()
            }),
            "copy 0: the first is number 1",
        ),
        (
            drop.on(Filter {
                psn: PsnFilter::nth(0),
                ..filter()
            }),
            "packet 0: the first is number 1",
        ),
    ] {
        let refusal: FaultError = w.net.inject(channel, fault).unwrap_err();
        assert_eq!(refusal.to_string(), message);
    }
    let nowhere = ChannelId::new(9, Direction::Forward);
    let refusal = w.net.inject(nowhere, drop).unwrap_err();
    assert_eq!(refusal.to_string(), "channel 18: the network has 2");
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Drop),
        Just(Action::CorruptOnLink),
        Just(Action::CorruptInDevice),
        (0u64..3_000_000).prop_map(|ps| Action::Duplicate {
            delay: Span::from_ps(ps)
        }),
        Just(Action::Duplicate { delay: Span::ZERO }),
        (0u64..3_000_000).prop_map(|ps| Action::Delay {
            by: Span::from_ps(ps)
        }),
        (1u32..5, 0u64..3_000_000).prop_map(|(packets, ps)| Action::Reorder {
            packets,
            limit: Span::from_ps(ps)
        }),
    ]
}

proptest! {
    /// Whatever is done to packets, each is delivered or dropped in the end, and no payload is lost.
    #[test]
    fn faults_keep_count(
        faults in prop::collection::vec((action(), 1u32..100), 0..6),
        n in 1u32..200,
    ) {
        let faults: Vec<Fault> = faults
            .into_iter()
            .map(|(action, percent)| {
                let p = Probability::new(f64::from(percent) / 100.0).unwrap();
                Fault::new(action).when(Pattern::Random(p))
            })
            .collect();
        let w = run(&faults, n);
        let c = w.net.counters(w.channel("h0", "h1"));
        let delivered = w.psns(1).len() as u64;
        prop_assert_eq!(c.frames, u64::from(n));
        prop_assert_eq!(delivered + c.all_drops(), u64::from(n) + c.duplicates);
        let host = w.net.hosts().last().unwrap();
        prop_assert!(host.bytes.iter().zip(w.psns(1)).all(|(b, psn)| b[..] == [psn as u8; 1000]));
    }
}

#[test]
fn a_fault_on_a_connection_sees_both_of_its_directions_and_no_other() {
    let mut w = World::with(Topology::back_to_back(link()), 7, PayloadMode::Carried);
    let gid = |n: usize| w.topology.hosts()[n].gid();
    let (near, far) = (QpNumber::new(0x11), QpNumber::new(0x22));
    let connection = Filter {
        connection: Some([(gid(0), near), (gid(1), far)]),
        ..filter()
    };
    let fault = Fault::new(Action::Drop).on(connection).at_most(2);
    let ways = [w.channel("h0", "h1"), w.channel("h1", "h0")];
    for way in ways {
        assert_eq!(w.net.inject(way, fault), Ok(0));
    }
    // Numbers alone do not make a connection: 0x11 at h1 is another queue pair.
    for (from, to, qps) in [(0, 1, [far, near, far, far]), (1, 0, [near, far, far, far])] {
        let route = w.route(from, to);
        let all = qps.into_iter().zip(0..).map(|(qp, psn)| {
            let mut packet = packet(route, psn);
            packet.bth = packet.bth.with_dest_qp(qp);
            packet
        });
        w.send(from, all);
    }
    w.run();
    assert_eq!((w.psns(1), w.psns(0)), (vec![1, 3], vec![1, 2, 3]));
    let counts = ways.map(|way| w.net.fault_counts(way, 0).unwrap());
    assert_eq!(counts.map(|c| (c.seen, c.hits)), [(3, 2), (1, 1)]);
    assert_eq!(w.net.fault_counts(ways[0], 1), None);
}

#[test]
fn a_named_fault_draws_the_same_behind_another_one() {
    let half = Fault::new(Action::MarkEcn).when(Pattern::Random(Probability::new(0.5).unwrap()));
    let hits = |others: usize| {
        let mut w = World::with(Topology::back_to_back(link()), 7, PayloadMode::Carried);
        let way = w.channel("h0", "h1");
        for n in 0..others {
            let name = format!("other {n}");
            w.net.inject_named(way, &name, half).unwrap();
        }
        assert_eq!(w.net.inject_named(way, "mine", half), Ok(others));
        w.send_numbered(0, 1, 100);
        w.run();
        let log = w.net.fault_log().records().iter();
        log.filter(|r| r.fault == others)
            .map(|r| r.bth.psn().get())
            .collect::<Vec<_>>()
    };
    assert_eq!(hits(0), hits(2));
}

#[test]
fn events_are_handled_by_the_number() {
    let mut w = World::new(Topology::back_to_back(link()));
    w.send_numbered(0, 1, 3);
    let mut all = 0;
    loop {
        let handled = w.net.run_events(Time::NEVER, 2);
        all += handled;
        if handled < 2 {
            break;
        }
    }
    assert_eq!((all, w.arrivals(1).len()), (w.net.event_count(), 3));
}

/// A packet that is late is on its link as any other: if that goes down, it is lost, however soon the link is up
/// again.
#[test]
fn what_is_late_is_lost_with_its_link() {
    let us = Span::from_us;
    for (action, before) in [
        (Action::Delay { by: us(5) }, 0),
        (
            Action::Reorder {
                packets: 3,
                limit: us(5),
            },
            0,
        ),
        (Action::Duplicate { delay: us(5) }, 1),
    ] {
        for flap in [false, true] {
            let mut w = World::with(
                Topology::star(2, link(), SwitchSpec::default()).unwrap(),
                1,
                PayloadMode::Carried,
            );
            let up = w.channel("h0", "s0");
            w.net.inject(up, Fault::new(action)).unwrap();
            if flap {
                for (ps, is_up) in [(3_000_000, false), (3_000_010, true)] {
                    w.net.set_link("h0-s0", at(ps), is_up, us(1)).unwrap();
                }
            }
            w.send_numbered(0, 1, 1);
            w.run();
            let late = usize::from(!flap);
            assert_eq!(w.psns(1).len(), before + late, "{action:?}");
            let lost = w.drops("h0", "s0", DropCause::LinkDown);
            assert_eq!(lost, u64::from(flap), "{action:?}");
        }
    }
}
