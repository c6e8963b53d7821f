//! Every operation of every service over a clean link and a lossy one: completions, data, packets; and
//! what each mistake of a program leads to.

use FlowOperation::*;
use softroce_sim::card::{Card, CardConfig, Mtu, QpType, Status};
use softroce_sim::fabric::machine::{
    self, FlowError, FlowId, FlowOperation, FlowSpec, FlowStats, Machine, Mistake,
};
use softroce_sim::fabric::topology::{HostId, Topology};
use softroce_sim::fabric::{
    Action, ChannelId, Config, Direction, Fault, LinkSpec, Network, Pattern, Rate,
};
use softroce_sim::memory::Access;
use softroce_sim::random::Probability;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::RouteTable;

const OPERATIONS: [FlowOperation; 5] = [Send, SendImmediate, Write, WriteImmediate, Read];

fn try_run(spec: &FlowSpec, loss: f64) -> Result<(Network<Machine>, FlowId), FlowError> {
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
    let id = machine::connect(&mut net, HostId::new(0), HostId::new(1), spec)?;
    for way in [Direction::Forward, Direction::Backward] {
        let random = Pattern::Random(Probability::new(loss).unwrap());
        net.inject(
            ChannelId::new(0, way),
            Fault::new(Action::Drop).when(random),
        )
        .unwrap();
    }
    net.run_until_idle(Time::ZERO + Span::from_ms(100_000));
    assert_eq!((net.pool().in_use(), net.in_flight()), (0, 0), "{spec:?}");
    Ok((net, id))
}

fn run(spec: &FlowSpec) -> (Network<Machine>, FlowId) {
    try_run(spec, 0.0).unwrap()
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

fn of(transport: QpType, operation: FlowOperation, size: u32, count: u64) -> FlowSpec {
    FlowSpec {
        transport,
        carried: true,
        ..FlowSpec::new(operation, size, count)
    }
}

/// Bytes of a message of an operation that may have any.
fn size_of(operation: FlowOperation, size: u32) -> u32 {
    if operation.is_atomic() { 8 } else { size }
}

#[test]
fn services_have_the_operations_that_the_specification_gives_them() {
    let rc = FlowOperation::ALL.to_vec();
    let uc = vec![Send, SendImmediate, Write, WriteImmediate, Bind];
    let ud = vec![Send, SendImmediate];
    for (transport, has) in [(QpType::Rc, rc), (QpType::Uc, uc), (QpType::Ud, ud)] {
        for operation in FlowOperation::ALL {
            let spec = of(transport, operation, size_of(operation, 64), 1);
            match try_run(&spec, 0.0) {
                Ok((net, id)) => {
                    assert!(has.contains(&operation), "{transport:?} {operation:?}");
                    let stats = machine::stats(&net, id);
                    assert_eq!(stats.completed.get(Status::Success), 1, "{spec:?}");
                }
                Err(e) => {
                    assert!(!has.contains(&operation), "{transport:?} {operation:?}");
                    let (operation, transport) = (operation, transport);
                    assert_eq!(
                        e,
                        FlowError::Operation {
                            operation,
                            transport
                        }
                    );
                }
            }
        }
    }
}

#[test]
fn atomics_count_up_and_find_what_the_one_before_left() {
    for operation in [CompareSwap, FetchAdd, AtomicWrite] {
        for (depth, signal_every) in [(1, 1), (7, 1), (7, 3), (40, 8)] {
            for loss in [0.0, 0.02] {
                let spec = FlowSpec {
                    depth,
                    signal_every,
                    sges: 3,
                    timeout: 1,
                    ..of(QpType::Rc, operation, 8, 500)
                };
                let (net, id) = try_run(&spec, loss).unwrap();
                let stats = machine::stats(&net, id);
                assert_eq!(stats.completed.get(Status::Success), 500, "{stats:?}");
                assert_eq!(machine::data_intact(&net, id), Some(true), "{operation:?}");
                assert_eq!(stats.wrong_original, 0, "{operation:?}");
                assert_eq!(stats.bytes, 4000);
                let resent = net.host(id.host).card().counters().retransmitted_packets;
                assert_eq!(resent > 0, loss > 0.0, "{operation:?} {depth}");
            }
        }
    }
}

#[test]
fn a_key_is_invalidated_with_each_send_and_its_window_bound_again() {
    // More than 256 uses of each window, so that the low bytes of the keys go round.
    for (depth, recv_depth, size) in [(1, 1, 0), (1, 1, 100), (4, 8, 3000), (16, 5, 64)] {
        for loss in [0.0, 0.01] {
            let spec = FlowSpec {
                depth,
                recv_depth,
                timeout: 1,
                min_rnr_timer: 1,
                ..of(QpType::Rc, SendInvalidate, size, 3000)
            };
            let (net, id) = try_run(&spec, loss).unwrap();
            let stats = machine::stats(&net, id);
            assert_eq!(stats.completed.get(Status::Success), 3000, "{stats:?}");
            assert_eq!(stats.received.get(Status::Success), 3000);
            assert_eq!((stats.wrong_key, stats.is_wrong()), (0, false));
            let intact = (size > 0).then_some(true);
            assert_eq!(machine::data_intact(&net, id), intact);
        }
    }
}

#[test]
fn windows_are_bound_and_invalidated_in_turns() {
    for transport in [QpType::Rc, QpType::Uc] {
        let spec = FlowSpec {
            depth: 6,
            ..of(transport, Bind, 4096, 2000)
        };
        let (net, id) = run(&spec);
        let stats = machine::stats(&net, id);
        assert_eq!(stats.completed.get(Status::Success), 2000, "{stats:?}");
        assert_eq!(net.host(id.host).card().counters().sent_packets, 0);
        assert_eq!(machine::data_intact(&net, id), None);
    }
}

#[test]
fn what_an_unreliable_service_loses_is_not_received() {
    for (transport, operations) in [
        (
            QpType::Uc,
            &[Send, SendImmediate, Write, WriteImmediate][..],
        ),
        (QpType::Ud, &[Send, SendImmediate]),
    ] {
        for &operation in operations {
            for (size, mtu) in [
                (0, Mtu::M256),
                (1, Mtu::M256),
                (1000, Mtu::M1024),
                (4096, Mtu::M4096),
            ] {
                for longer in [0, 3000] {
                    let uc = transport == QpType::Uc;
                    let spec = FlowSpec {
                        mtu,
                        depth: 8,
                        recv_depth: 64,
                        recv_size: operation.is_send().then_some(size + longer),
                        ..of(
                            transport,
                            operation,
                            size + if uc { longer } else { 0 },
                            400,
                        )
                    };
                    let packets = f64::from(spec.size.div_ceil(mtu.bytes().into()).max(1));
                    for loss in [0.0, 0.1] {
                        let (net, id) = try_run(&spec, loss).unwrap();
                        let stats = machine::stats(&net, id);
                        let what = format!("{transport:?} {operation:?} {loss} {spec:?}");
                        // The sender learns nothing of it.
                        assert_eq!(stats.completed.get(Status::Success), 400, "{what}");
                        assert_ne!(machine::data_intact(&net, id), Some(false), "{what}");
                        assert!(!stats.is_wrong(), "{what}");
                        let received = stats.received.get(Status::Success);
                        assert_eq!(stats.received_bytes, received * u64::from(spec.size));
                        let dropped = net
                            .counters(ChannelId::new(0, Direction::Forward))
                            .all_drops();
                        if !operation.takes_receives() {
                            assert_eq!(received, 0, "{what}");
                        } else if packets == 1.0 {
                            assert_eq!(received + dropped, 400, "{what}");
                        } else {
                            // At least the messages that lost a packet, of a share q.
                            let whole = 400.0 * (1.0 - loss).powf(packets);
                            assert!((received as f64 - whole).abs() <= 60.0, "{received} {what}");
                        }
                        assert_eq!(dropped == 0, loss == 0.0, "{what}");
                    }
                }
            }
        }
    }
}

/// Completions by status.
type Ends = Vec<(Status, u64)>;

/// How the requests and the receives of a flow that makes a mistake end.
fn ends(spec: &FlowSpec) -> (Ends, Ends) {
    let (net, id) = run(spec);
    let FlowStats {
        completed,
        received,
        ..
    } = machine::stats(&net, id);
    assert_ne!(machine::data_intact(&net, id), Some(false), "{spec:?}");
    (completed.iter().collect(), received.iter().collect())
}

/// Ten messages, the fourth of which is wrong.
fn wrong(mistake: Mistake, transport: QpType, operation: FlowOperation) -> FlowSpec {
    FlowSpec {
        mistake: Some((mistake, 3)),
        recv_depth: 1,
        min_rnr_timer: 1,
        timeout: 1,
        ..of(transport, operation, size_of(operation, 64), 10)
    }
}

#[test]
fn each_mistake_ends_as_the_specification_says() {
    use Status::{
        LocalAccessError, LocalProtectionError, RemoteAccessError, RemoteInvalidRequest,
        RemoteOperationError, RetryExceeded, Success, WindowBindError,
    };
    let fine = (Success, 3);
    let all = [
        Send,
        SendImmediate,
        SendInvalidate,
        Write,
        WriteImmediate,
        Read,
        CompareSwap,
        FetchAdd,
        AtomicWrite,
    ];
    let remote = [Write, Read, CompareSwap, FetchAdd, AtomicWrite];
    for operation in all {
        // Nothing leaves the requester.
        let (sent, received) = ends(&wrong(Mistake::LocalKey, QpType::Rc, operation));
        assert_eq!(sent, [fine, (LocalProtectionError, 1)], "{operation:?}");
        let takes = operation.takes_receives();
        assert_eq!(
            received.first().copied(),
            takes.then_some(fine),
            "{operation:?}"
        );
    }
    for operation in remote {
        for mistake in [
            Mistake::RemoteKey,
            Mistake::Invalidated,
            Mistake::Domain,
            Mistake::Address,
        ] {
            let (sent, _) = ends(&wrong(mistake, QpType::Rc, operation));
            let what = format!("{mistake:?} {operation:?}");
            assert_eq!(sent, [fine, (RemoteAccessError, 1)], "{what}");
        }
    }
    // The receive that the WRITE has taken fails with it.
    let (sent, received) = ends(&wrong(Mistake::RemoteKey, QpType::Rc, WriteImmediate));
    assert_eq!(sent, [fine, (RemoteAccessError, 1)]);
    assert_eq!(received, [fine, (LocalAccessError, 1)]);
    for operation in [CompareSwap, FetchAdd, AtomicWrite] {
        let (sent, _) = ends(&wrong(Mistake::Alignment, QpType::Rc, operation));
        assert_eq!(sent, [fine, (RemoteInvalidRequest, 1)], "{operation:?}");
    }
    for operation in [Send, SendImmediate, SendInvalidate] {
        let (sent, received) = ends(&wrong(Mistake::ReceiveKey, QpType::Rc, operation));
        assert_eq!(sent, [fine, (RemoteOperationError, 1)], "{operation:?}");
        assert_eq!(received, [fine, (LocalProtectionError, 1)], "{operation:?}");
    }
    // A key that cannot be invalidated is the receiver's affair: the peer hears nothing (class J).
    for mistake in [Mistake::RemoteKey, Mistake::Invalidated] {
        let (sent, received) = ends(&wrong(mistake, QpType::Rc, SendInvalidate));
        assert_eq!(sent, [fine, (RetryExceeded, 1)], "{mistake:?}");
        assert_eq!(received, [fine, (RemoteInvalidRequest, 1)], "{mistake:?}");
    }
    // The fifth is a binding again, the fourth an invalidation of what was rightly bound.
    let (sent, _) = ends(&wrong(Mistake::Binding, QpType::Rc, Bind));
    assert_eq!(sent, [(Success, 4), (WindowBindError, 1)]);
}

#[test]
fn a_mistake_on_an_unreliable_service_stays_at_its_end() {
    let fine = (Status::Success, 10);
    let three = (Status::Success, 3);
    for transport in [QpType::Uc, QpType::Ud] {
        let (sent, _) = ends(&wrong(Mistake::LocalKey, transport, Send));
        assert_eq!(sent, [three, (Status::LocalProtectionError, 1)]);
        let (sent, received) = ends(&wrong(Mistake::ReceiveKey, transport, Send));
        assert_eq!((sent, received[0]), (vec![fine], three));
        assert_eq!(received[1], (Status::LocalProtectionError, 1));
    }
    for mistake in [
        Mistake::RemoteKey,
        Mistake::Address,
        Mistake::Domain,
        Mistake::Invalidated,
    ] {
        let (sent, received) = ends(&wrong(mistake, QpType::Uc, Write));
        assert_eq!((sent, received), (vec![fine], vec![]), "{mistake:?}");
    }
    // C10-10 for the handle; a wrong Q_Key is dropped.
    let (sent, received) = ends(&wrong(Mistake::Domain, QpType::Ud, Send));
    assert_eq!(sent, [three, (Status::LocalQpOperationError, 1)]);
    assert_eq!(received, [three]);
    let (sent, received) = ends(&wrong(Mistake::QKey, QpType::Ud, Send));
    assert_eq!((sent, received), (vec![fine], vec![three]));
}

#[test]
fn rights_sizes_and_path_mtus_that_do_not_fit() {
    use Status::{BadResponse, LocalLengthError, RemoteAccessError, RemoteInvalidRequest};
    let rights = [
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
    ];
    for (operation, needs) in [
        (Write, Access::REMOTE_WRITE),
        (AtomicWrite, Access::REMOTE_WRITE),
        (Read, Access::REMOTE_READ),
        (CompareSwap, Access::REMOTE_ATOMIC),
        (FetchAdd, Access::REMOTE_ATOMIC),
    ] {
        let spec = of(QpType::Rc, operation, size_of(operation, 64), 1);
        let others = rights.into_iter().filter(|&r| r != needs);
        let others = others.fold(Access::LOCAL_READ, |a, b| a | b);
        for (qp_access, mr_access, status) in [
            (others, needs, RemoteInvalidRequest),
            (needs, others, RemoteAccessError),
            (needs, needs, Status::Success),
        ] {
            let spec = FlowSpec {
                qp_access,
                mr_access,
                ..spec.clone()
            };
            assert_eq!(ends(&spec).0, [(status, 1)], "{operation:?}");
        }
    }
    // 11.6.2: the receive is too short.
    let short = FlowSpec {
        recv_size: Some(63),
        recv_depth: 1,
        ..of(QpType::Rc, Send, 64, 1)
    };
    let expected = (vec![(RemoteInvalidRequest, 1)], vec![(LocalLengthError, 1)]);
    assert_eq!(ends(&short), expected);
    for (mtu, size) in [(Mtu::M1024, 600), (Mtu::M256, 300)] {
        let spec = FlowSpec {
            mtu,
            mistake: Some((Mistake::PathMtu, 0)),
            ..of(QpType::Rc, Read, size, 1)
        };
        assert_eq!(ends(&spec).0, [(BadResponse, 1)], "{mtu:?}");
    }
}

#[test]
fn mistakes_that_make_no_sense_and_sizes_out_of_range_are_refused() {
    let error = |spec: FlowSpec| try_run(&spec, 0.0).err().map(|e| e.to_string());
    for (mistake, transport, operation) in [
        (Mistake::QKey, QpType::Rc, Send),
        (Mistake::RemoteKey, QpType::Rc, Send),
        (Mistake::ReceiveKey, QpType::Rc, Write),
        (Mistake::Alignment, QpType::Rc, Write),
        (Mistake::Binding, QpType::Uc, Write),
        (Mistake::Domain, QpType::Rc, Send),
        (Mistake::PathMtu, QpType::Ud, Send),
        (Mistake::LocalKey, QpType::Rc, Bind),
    ] {
        let told = error(wrong(mistake, transport, operation)).unwrap();
        let expected =
            format!("mistake {mistake:?} cannot be made with {operation:?} over {transport:?}");
        assert_eq!(told, expected);
    }
    for (spec, told) in [
        (
            of(QpType::Ud, Send, 1025, 1),
            "size is 1025; it must be from 0 to 1024",
        ),
        (
            of(QpType::Rc, FetchAdd, 4, 1),
            "size is 4; it must be from 8 to 8",
        ),
        (
            of(QpType::Rc, Bind, 0, 1),
            "size is 0; it must be from 1 to 2147483648",
        ),
        (
            of(QpType::Rc, Send, (1 << 31) + 1, 1),
            "size is 2147483649; it must be from 0 to 2147483648",
        ),
    ] {
        assert_eq!(error(spec).as_deref(), Some(told));
    }
}
