//! What happens on purpose to packets that a port sends.

use crate::ends::{End, Frames, LEN, lossy, pair, pair_of, random, read};
use crate::every_operation;
use softroce_sim::card::{CongestionControl, Dcqcn, Mtu, Notification, Refusal, Status, Work};
use softroce_sim::faults::{Action, Fault, FaultError, Filter, Opcodes, Pattern, PsnFilter};
use softroce_sim::port::{OpenError, PortConfig, UdpConfig, UdpPort};
use softroce_sim::random::{Probability, Stream};
use softroce_sim::rate::Rate;
use softroce_sim::time::Span;
use softroce_sim::wire::frame::FrameView;
use softroce_sim::wire::{Gid, Psn, QpNumber};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

fn with(faults: &[Fault], fault_seed: u64) -> UdpConfig {
    UdpConfig {
        common: PortConfig {
            faults: faults.to_vec(),
            fault_seed,
            ..PortConfig::default()
        },
        ..UdpConfig::default()
    }
}

fn sometimes(action: Action) -> Fault {
    Fault::new(action).when(Pattern::Random(Probability::new(0.05).unwrap()))
}

#[test]
fn every_fault_costs_time_alone() {
    let us = Span::from_us;
    let actions = [
        Action::Drop,
        Action::CorruptOnLink,
        Action::CorruptInDevice,
        Action::MarkEcn,
        Action::Duplicate { delay: Span::ZERO },
        Action::Duplicate { delay: us(300) },
        Action::Delay { by: us(500) },
        Action::Reorder {
            packets: 2,
            limit: us(1000),
        },
    ];
    let mut stream = Stream::new(11, "data");
    let mut tried: Vec<Vec<Fault>> = actions.iter().map(|&a| vec![sometimes(a)]).collect();
    tried.push(actions.map(sometimes).to_vec());
    for faults in tried {
        let ends = pair(
            [&with(&faults, 1), &with(&faults, 2)],
            Mtu::M1024,
            10,
            |a, memory, remote, received| {
                for _ in 0..10 {
                    every_operation(a, memory, remote, received, 9000, &mut stream);
                }
            },
        );
        for end in &ends {
            for position in 0..faults.len() {
                let counts = end.port.fault_counts(position).unwrap();
                assert!(counts.hits > 0 && counts.hits < counts.seen, "{faults:?}");
            }
            assert_eq!(end.port.fault_counts(faults.len()), None);
            let lost = faults
                .iter()
                .enumerate()
                .filter(|(_, f)| matches!(f.action, Action::Drop | Action::CorruptOnLink))
                .map(|(i, _)| end.port.fault_counts(i).unwrap().hits);
            // A packet may be hit twice, and is dropped once.
            assert!(end.port.counters().dropped <= lost.sum());
        }
        let damaged = faults[0].action == Action::CorruptInDevice;
        if damaged && faults.len() == 1 {
            for [from, to] in [[0, 1], [1, 0]] {
                let hits = ends[from].port.fault_counts(0).unwrap().hits;
                let seen = ends[to].card.counters().refused.get(Refusal::BadIcrc);
                // The last ones may not have been looked at when the ends stopped.
                assert!(seen <= hits && seen + 2 >= hits, "{seen} of {hits}");
            }
        }
    }
}

#[test]
fn a_fault_hits_the_packet_that_it_names() {
    // The third packet of the WRITE is lost twice: first as it goes out, then when it comes again.
    let third = |copy| {
        Fault::new(Action::Drop).on(Filter {
            opcodes: Opcodes::Data,
            psn: PsnFilter::nth(3),
            copy: Some(copy),
            ..Filter::ALL
        })
    };
    let mut stream = Stream::new(12, "data");
    let ends = pair(
        [&with(&[third(1), third(2)], 0), &UdpConfig::default()],
        Mtu::M1024,
        14,
        |a, memory, remote, _| {
            let data = random(&mut stream, 9000);
            a.channel.memory.write_at(0, &data);
            assert_eq!(a.run(Work::Write(remote), 9000).status, Status::Success);
            assert_eq!(read(memory, 9000), data);
        },
    );
    for position in 0..2 {
        assert_eq!(ends[0].port.fault_counts(position).unwrap().hits, 1);
    }
    // A gap makes a NAK; the loss of what it asks for, once more, is found by the timer.
    let counters = ends[0].card.counters();
    assert_eq!(counters.naks_received.total(), 1);
    assert_eq!(counters.timeouts, 1);
}

/// PSNs that leave when `seed` decides what is lost.
fn leaving(seed: u64) -> Vec<u32> {
    let mut a = End::new(&with(&[lossy(0.3)], seed));
    let nobody: Gid = Ipv4Addr::new(127, 0, 7, 7).into();
    a.channel.psn = Psn::new(0);
    a.connect((nobody, QpNumber::new(0x20), Psn::new(1)), Mtu::M1024, 0);
    let frames = Frames::default();
    a.port.set_tap(frames.tap());
    a.channel.send(Work::Write(a.channel.remote()), LEN);
    let number = a.channel.qp.number();
    a.card.doorbell(a.port.now(), number);
    while a.port.fault_counts(0).unwrap().seen < 64 {
        a.port.poll(&mut a.card).unwrap();
    }
    let psn = |(_, frame): (_, Vec<u8>)| {
        let view = FrameView::decode(&frame).unwrap();
        view.transport.bth.psn().get()
    };
    frames.take().into_iter().map(psn).collect()
}

#[test]
fn a_seed_decides_what_is_lost() {
    let first = leaving(1);
    assert!(first.len() > 30 && first.len() < 60, "{first:?}");
    assert_eq!(leaving(1), first);
    assert_ne!(leaving(2), first);
}

#[test]
fn a_port_sends_as_fast_as_it_may() {
    let mut config = UdpConfig::default();
    config.common.rate = Some(Rate::from_mbps(100));
    let mut stream = Stream::new(13, "data");
    let mut took = Duration::ZERO;
    pair(
        [&config, &UdpConfig::default()],
        Mtu::M1024,
        18,
        |a, memory, remote, _| {
            let data = random(&mut stream, LEN);
            a.channel.memory.write_at(0, &data);
            let start = Instant::now();
            for _ in 0..10 {
                assert_eq!(a.run(Work::Write(remote), LEN).status, Status::Success);
            }
            took = start.elapsed();
            assert_eq!(read(memory, LEN), data);
        },
    );
    // 640 packets of 1024 bytes and at least 54 of headers, less a burst of 16 KiB: 53.9 ms.
    let least = Duration::from_micros((640 * 1078 - (16 << 10)) * 8 / 100);
    assert!(took >= least, "{took:?}");
    assert!(took < 5 * least, "{took:?}");
}

#[test]
fn marks_are_answered_by_notifications() {
    let config = with(&[sometimes(Action::MarkEcn)], 3);
    let mut sides = 0..2;
    let ends = [config, UdpConfig::default()].map(|config| {
        let port = UdpPort::open(&config).unwrap();
        let receiver = sides.next() == Some(1);
        End::with(port, |card| {
            if receiver {
                card.notification = Some(Notification::PAPER);
            }
            card.congestion = CongestionControl::Dcqcn(Dcqcn::hpcc(Rate::from_gbps(10)));
        })
    });
    let [a, b] = pair_of(ends, Mtu::M1024, 14, |a, _, remote, _| {
        for _ in 0..20 {
            assert_eq!(a.run(Work::Write(remote), LEN).status, Status::Success);
        }
    });
    let hits = a.port.fault_counts(0).unwrap().hits;
    let (there, here) = (b.card.counters(), a.card.counters());
    assert!(hits > 0);
    assert_eq!(there.ecn_marked, hits);
    // The last one may not have been looked at when the ends stopped.
    assert!(here.cnps_received > 0 && here.cnps_received <= there.cnps_sent);
}

#[test]
fn a_fault_that_makes_no_sense_is_refused() {
    let never = Fault::new(Action::Drop).when(Pattern::Every { n: 0, phase: 0 });
    let error = UdpPort::open(&with(&[never], 0)).unwrap_err();
    assert!(
        matches!(error, OpenError::Fault(FaultError::EveryZeroth)),
        "{error:?}"
    );
    assert!(error.to_string().contains("at least 1"), "{error}");
}
