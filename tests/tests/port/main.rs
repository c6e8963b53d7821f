//! Cards in real time: two of them on UDP ports of the loopback network or on Ethernet, each in a thread
//! of its own, and one on Ethernet against a scripted neighbour.
#![cfg(target_os = "linux")]

mod ends;
mod engine;
mod ethernet;
mod faults;
mod groups;
mod hostile;
mod neighbours;
mod raw;
mod vanished;

use ends::{Channel, End, Frames, PATIENCE, lossy, pair, random, read};
use softroce_sim::card::{Completion, CompletionKind, Mtu, Refusal, Remote, State, Status, Work};
use softroce_sim::memory::Buffer;
use softroce_sim::port::{Link, OpenError, PortConfig, UdpConfig, UdpPort};
use softroce_sim::random::Stream;
use softroce_sim::wire::frame::{FrameView, Network};
use softroce_sim::wire::{Gid, Immediate, Psn, QpNumber};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Every operation once, data compared.
fn every_operation<L: Link>(
    a: &mut End<L>,
    memory: &Buffer,
    remote: Remote,
    received: &Receiver<Completion>,
    len: usize,
    stream: &mut Stream,
) {
    let immediate = Immediate::from_be(stream.bits() as u32);
    let works = [
        Work::Send,
        Work::SendImmediate(immediate),
        Work::Write(remote),
        Work::WriteImmediate(remote, immediate),
        Work::Read(remote),
    ];
    for work in works {
        let (ours, theirs) = (random(stream, len), random(stream, len));
        a.channel.memory.write_at(0, &ours);
        memory.write_at(0, &theirs);
        let completion = a.run(work, len);
        assert_eq!(completion.status, Status::Success, "{work:?} of {len}");
        let moved = match work {
            Work::Read(_) => theirs,
            _ => ours,
        };
        assert_eq!(read(memory, len), moved, "{work:?} of {len}: there");
        assert_eq!(
            read(&a.channel.memory, len),
            moved,
            "{work:?} of {len}: here"
        );
        let expected = match work {
            Work::Send => Some((CompletionKind::Receive, None)),
            Work::SendImmediate(i) => Some((CompletionKind::Receive, Some(i))),
            Work::WriteImmediate(_, i) => Some((CompletionKind::ReceiveWithImmediate, Some(i))),
            _ => None,
        };
        if let Some((kind, immediate)) = expected {
            let c = received.recv_timeout(PATIENCE).unwrap();
            assert_eq!(
                (c.status, c.kind, c.immediate, c.byte_len as usize),
                (Status::Success, kind, immediate, len),
                "{work:?}"
            );
        }
    }
}

/// Both atomics: the old value comes back, the new one is there.
fn atomics<L: Link>(a: &mut End<L>, memory: &Buffer, remote: Remote) {
    let value = |memory: &Buffer| u64::from_ne_bytes(read(memory, 8).try_into().unwrap());
    memory.write_at(0, &40u64.to_ne_bytes());
    let add = Work::FetchAdd { at: remote, add: 2 };
    let swap = Work::CompareSwap {
        at: remote,
        compare: 42,
        swap: 7,
    };
    for (work, old, new) in [(add, 40, 42), (swap, 42, 7), (swap, 7, 7)] {
        assert_eq!(a.run(work, 8).status, Status::Success, "{work:?}");
        assert_eq!((value(&a.channel.memory), value(memory)), (old, new));
    }
}

#[test]
fn every_operation_at_every_mtu_carries_its_data() {
    let mut stream = Stream::new(1, "data");
    for mtu in Mtu::ALL {
        let config = UdpConfig::default();
        let m = usize::from(mtu.bytes());
        let ends = pair(
            [&config, &config],
            mtu,
            14,
            |a, memory, remote, received| {
                for len in [0, 1, 3, m - 1, m, m + 1, 3 * m + 2] {
                    every_operation(a, memory, remote, received, len, &mut stream);
                }
                atomics(a, memory, remote);
            },
        );
        for end in ends {
            assert_eq!(end.port.counters().malformed, 0);
            assert_eq!(end.card.counters().refused.get(Refusal::BadIcrc), 0);
        }
    }
}

#[test]
fn runs_of_packets_that_the_kernel_cuts_carry_their_data() {
    let mut stream = Stream::new(9, "data");
    let config = |offload| UdpConfig {
        offload,
        ..UdpConfig::default()
    };
    for (here, there) in [(true, true), (true, false), (false, true)] {
        for mtu in [Mtu::M256, Mtu::M1024, Mtu::M4096] {
            let ends = pair(
                [&config(here), &config(there)],
                mtu,
                14,
                |a, memory, remote, received| {
                    for len in [0, 5, 3001, 40_000, 65_536] {
                        every_operation(a, memory, remote, received, len, &mut stream);
                    }
                },
            );
            for end in ends {
                assert_eq!(end.port.counters().malformed, 0);
                assert_eq!(end.card.counters().refused.get(Refusal::BadIcrc), 0);
                // The kernel may drop what finds no room, and nothing else comes twice.
                if end.port.counters().overflow == 0 {
                    assert_eq!(end.card.counters().naks_received.total(), 0);
                }
            }
        }
    }
}

#[test]
fn losses_on_both_sides_cost_time_alone() {
    let config = |fault_seed| UdpConfig {
        common: PortConfig {
            faults: vec![lossy(0.05)],
            fault_seed,
            ..PortConfig::default()
        },
        ..UdpConfig::default()
    };
    let mut stream = Stream::new(2, "data");
    let ends = pair(
        [&config(1), &config(2)],
        Mtu::M1024,
        10,
        |a, memory, remote, received| {
            for _ in 0..20 {
                every_operation(a, memory, remote, received, 9000, &mut stream);
            }
        },
    );
    for end in ends {
        assert!(end.port.counters().dropped > 0);
    }
}

#[test]
fn a_receiver_that_overflows_costs_time_alone() {
    let small = UdpConfig {
        // A dozen packets; a message has 63.
        receive_buffer: 16 << 10,
        ..UdpConfig::default()
    };
    let mut stream = Stream::new(8, "data");
    pair(
        [&small, &small],
        Mtu::M1024,
        8,
        |a, memory, remote, received| {
            for _ in 0..10 {
                every_operation(a, memory, remote, received, 64_000, &mut stream);
            }
        },
    );
}

#[test]
fn a_tap_sees_whole_frames() {
    let config = UdpConfig::default();
    let frames = Frames::default();
    let mut stream = Stream::new(3, "data");
    pair(
        [&config, &config],
        Mtu::M1024,
        14,
        |a, memory, remote, received| {
            a.port.set_tap(frames.tap());
            every_operation(a, memory, remote, received, 3001, &mut stream);
            a.port.set_tap(None);
        },
    );
    let mut seen = [0; 2];
    for (direction, frame) in frames.take() {
        let view = FrameView::decode(&frame).unwrap();
        assert_eq!(view.check(), [], "{direction:?} {view:?}");
        assert_eq!((view.network.hop_limit(), view.network.dscp()), (64, 26));
        seen[direction as usize] += 1;
    }
    // Four packets each way carry data and the READ request; an answer for each message.
    assert!(seen[0] >= 13 && seen[1] >= 7, "{seen:?}");
}

#[test]
fn the_kernel_writes_the_headers_that_the_icrc_is_over() {
    // All protocols, in network byte order.
    let all = socket2::Protocol::from(i32::from(3u16.to_be()));
    let wire = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, Some(all));
    let mut wire = match wire {
        Ok(wire) => wire,
        Err(e) => {
            eprintln!("not looked at, frames of the loopback interface cannot be read: {e}");
            return;
        }
    };
    wire.set_nonblocking(true).unwrap();
    // Room for what other tests send at the same time; what is lost all the same does not matter.
    wire.set_recv_buffer_size(4 << 20).unwrap();
    let config = UdpConfig::default();
    let mut stream = Stream::new(7, "data");
    let mut own = Gid::default();
    pair(
        [&config, &config],
        Mtu::M1024,
        14,
        |a, memory, remote, received| {
            own = a.port.gid();
            every_operation(a, memory, remote, received, 3001, &mut stream);
        },
    );
    let mut seen = 0;
    let mut bytes = [0; 65_536];
    while let Ok(len) = wire.read(&mut bytes) {
        let Ok(view) = FrameView::decode(&bytes[..len]) else {
            continue;
        };
        let Network::Ipv4(ip, udp) = &view.network else {
            continue;
        };
        if view.network.src() == own {
            assert_eq!(view.check_icrc(), Ok(()), "{view:?}");
            assert!(ip.dont_fragment);
            assert_eq!((ip.identification, ip.ttl, ip.dscp), (0, 64, 26));
            assert_eq!((udp.src_port, udp.dst_port), (4791, 4791));
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn a_peer_that_is_not_there_exhausts_the_retries() {
    let mut a = End::new(&UdpConfig::default());
    let nobody = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 7));
    a.connect(
        (nobody.into(), QpNumber::new(0x20), Psn::new(1)),
        Mtu::M1024,
        10,
    );
    let start = Instant::now();
    assert_eq!(a.run(Work::Send, 10).status, Status::RetryExceeded);
    // Eight timeouts of 4.2 ms.
    assert!(start.elapsed() >= Duration::from_millis(33));
    assert_eq!(a.card.counters().timeouts, 8);
    assert_eq!(a.channel.qp.state(), State::Error);
}

#[test]
fn a_card_speaks_ipv6_and_to_itself() {
    let config = UdpConfig {
        address: Some(Ipv6Addr::LOCALHOST.into()),
        // The machine has one IPv6 loopback address; leave its usual port to others.
        port: 14_791,
        ..UdpConfig::default()
    };
    let mut a = match UdpPort::open(&config) {
        Err(OpenError::NoFamily(_) | OpenError::NotLocal(_)) => return,
        Err(e) => panic!("{e}"),
        Ok(port) => {
            drop(port);
            End::new(&config)
        }
    };
    let frames = Frames::default();
    a.port.set_tap(frames.tap());
    let other = Channel::new(&mut a.card, &a.cq);
    let (to_a, to_other) = (a.address(), other.address(a.port.gid()));
    other.connect(&mut a.card, to_a, Mtu::M1024, 14);
    a.connect(to_other, Mtu::M1024, 14);
    let mut stream = Stream::new(4, "data");
    let data = random(&mut stream, 5000);
    a.channel.memory.write_at(0, &data);
    let completion = a.run(Work::Write(other.remote()), data.len());
    assert_eq!(completion.status, Status::Success);
    assert_eq!(read(&other.memory, data.len()), data);
    let frames = frames.take();
    assert!(frames.len() >= 12, "{}", frames.len());
    for (_, frame) in frames {
        let view = FrameView::of_ethertype(0x86dd, &frame[14..]);
        // RoCEv2's port is part of its structure; on another one the frame is foreign.
        assert!(view.is_err_and(|e| e.is_foreign()));
    }
}

#[test]
fn errors_name_the_address_and_what_is_wrong() {
    let at = |ip: Ipv4Addr| UdpConfig {
        address: Some(ip.into()),
        ..UdpConfig::default()
    };
    let port = UdpPort::open(&UdpConfig::default()).unwrap();
    let IpAddr::V4(own) = port.address().ip() else {
        panic!("{port:?}");
    };
    assert!(own.is_loopback() && own.octets()[3] >= 2);
    let in_use = UdpPort::open(&at(own)).unwrap_err();
    assert!(matches!(in_use, OpenError::InUse(_)), "{in_use:?}");
    assert!(in_use.to_string().contains(&format!("{own}:4791")));
    let documentation = Ipv4Addr::new(203, 0, 113, 1);
    let not_local = UdpPort::open(&at(documentation)).unwrap_err();
    assert!(matches!(not_local, OpenError::NotLocal(_)), "{not_local:?}");
    for ip in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(224, 0, 0, 1)] {
        let error = UdpPort::open(&at(ip)).unwrap_err();
        assert!(matches!(error, OpenError::NotUnicast(_)), "{error:?}");
    }
}

#[test]
fn a_card_started_again_is_another_card() {
    let config = UdpConfig::default();
    let (a, b) = (End::new(&config), End::new(&config));
    assert_ne!(a.channel.qp.number(), b.channel.qp.number());
    assert_ne!(a.channel.psn, b.channel.psn);
    assert_ne!(a.channel.region.rkey, b.channel.region.rkey);
}
