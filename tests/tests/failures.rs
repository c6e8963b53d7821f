//! Every failed request says why: what the card and the network tell is held against what was done to it.

use softroce_sim::card::explain::{
    Cause, Ended, Failure, InvalidRequest, Step, Subject, WrongResponse,
};
use softroce_sim::card::{
    Card, CardConfig, QpAttributes, RecvRequest, Remote, SendRequest, State, Status, Work,
};
use softroce_sim::fabric::explain::{Explanation, explain};
use softroce_sim::fabric::losses::{Kind, Why};
use softroce_sim::fabric::machine::{FlowId, FlowOperation, FlowSpec, Machine, connect};
use softroce_sim::fabric::{
    Action, Config, DropCause, Fault, Filter, LinkSpec, Network, Opcodes, PayloadMode, PsnFilter,
    Rate, SwitchSpec, Topology,
};
use softroce_sim::memory::{Access, AccessError, LocalKey, WindowError};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{NakCode, Opcode, Psn, RemoteKey, RouteTable};
use softroce_tests::bench::windows::{bind, bound, part};
use softroce_tests::bench::{
    Bench, PEER_QP, Setup, elsewhere, nak, own_gid, peer_gid, read_response, rnr_nak, send_only,
    write_only,
};

/// The one failure that the card tells of.
fn only(b: &mut Bench) -> Failure {
    let failure = b.card.next_failure().expect("a failure");
    assert_eq!(b.card.next_failure(), None, "after {failure}");
    assert_eq!(failure.own, (own_gid(), b.qp.number()));
    failure
}

fn psn(n: u32) -> Psn {
    Psn::new(n)
}

fn steps(failure: &Failure) -> Vec<(u32, Step)> {
    let tries = failure.tries.iter();
    tries.map(|t| (t.psn.get(), t.step)).collect()
}

/// What is done to a request, and what is said of it; the request is the first on its queue pair.
struct Case {
    setup: Setup,
    /// Posts, and plays the peer.
    act: fn(&mut Bench),
    cause: fn(&Bench) -> Cause,
    status: Status,
    /// After `NAME #1 (wr_id 1) of qp N (10.0.0.1) to qp 119 (10.0.0.2): `.
    line: fn(&Bench) -> String,
}

fn ready() -> Setup {
    Setup::default()
}

fn cases() -> Vec<(&'static str, Case)> {
    vec![
        (
            "NAK invalid request",
            Case {
                setup: ready(),
                act: |b| {
                    b.post_write(1, 64);
                    b.says();
                    b.hear(nak(0, NakCode::InvalidRequest));
                },
                cause: |_| Cause::Refused {
                    code: NakCode::InvalidRequest,
                    psn: psn(500),
                },
                status: Status::RemoteInvalidRequest,
                line: |_| "the peer refused PSN 500: NAK invalid request".into(),
            },
        ),
        (
            "NAK remote access error",
            Case {
                setup: ready(),
                act: |b| {
                    b.post_write(1, 64);
                    b.says();
                    b.hear(nak(0, NakCode::RemoteAccessError));
                },
                cause: |_| Cause::Refused {
                    code: NakCode::RemoteAccessError,
                    psn: psn(500),
                },
                status: Status::RemoteAccessError,
                line: |_| "the peer refused PSN 500: NAK remote access error".into(),
            },
        ),
        (
            "NAK remote operational error",
            Case {
                setup: ready(),
                act: |b| {
                    b.post_write(1, 64);
                    b.says();
                    b.hear(nak(0, NakCode::RemoteOperationalError));
                },
                cause: |_| Cause::Refused {
                    code: NakCode::RemoteOperationalError,
                    psn: psn(500),
                },
                status: Status::RemoteOperationError,
                line: |_| "the peer refused PSN 500: NAK remote operational error".into(),
            },
        ),
        (
            "RNR retries used up",
            Case {
                setup: Setup {
                    rnr_retry: 1,
                    ..ready()
                },
                act: |b| {
                    b.post_send(1, 64);
                    for _ in 0..2 {
                        b.says();
                        // Code 1 is 10 us.
                        b.hear(rnr_nak(0, 1));
                        b.wait(Span::from_us(10));
                    }
                },
                cause: |_| Cause::RnrRetriesExceeded {
                    rnr_retry: 1,
                    psn: psn(500),
                    wait: Span::from_us(10),
                },
                status: Status::RnrRetryExceeded,
                line: |_| {
                    "rnr_retry 1 used up at PSN 500: the receiver was not ready, and the last RNR NAK asks for a wait of 10us".into()
                },
            },
        ),
        (
            "local protection: a key that does not exist",
            Case {
                setup: ready(),
                act: |b| {
                    let good = b.sge(0, 8);
                    let bad = softroce_sim::card::Sge {
                        lkey: LocalKey(0xdead_be01),
                        ..b.sge(8, 16)
                    };
                    b.post(1, Work::Send, &[good, bad]);
                    b.says();
                },
                cause: |b| Cause::LocalProtection {
                    sge: 1,
                    lkey: LocalKey(0xdead_be01),
                    addr: b.mr.addr + 8,
                    len: 16,
                    why: AccessError::UnknownKey { key: 0xdead_be01 },
                },
                status: Status::LocalProtectionError,
                line: |b| {
                    format!(
                        "element 1 (lkey 0xdeadbe01, 16 bytes at {:#x}): no memory region or window has key 0xdeadbe01",
                        b.mr.addr + 8
                    )
                },
            },
        ),
        (
            "local length: an atomic of four bytes",
            Case {
                setup: ready(),
                act: |b| {
                    let sge = b.sge(0, 4);
                    let at = elsewhere();
                    b.post(1, Work::FetchAdd { at, add: 1 }, &[sge]);
                    b.says();
                },
                cause: |_| Cause::AtomicLength { len: 4 },
                status: Status::LocalLengthError,
                line: |_| "an atomic operation of 4 bytes; it has 8".into(),
            },
        ),
        (
            "local operation: no READs",
            Case {
                setup: Setup {
                    max_rd_atomic: 0,
                    ..ready()
                },
                act: |b| {
                    b.post_read(1, 64);
                    b.says();
                },
                cause: |_| Cause::NoReads,
                status: Status::LocalQpOperationError,
                line: |_| "max_rd_atomic is 0: the queue pair has no READs and atomics".into(),
            },
        ),
        (
            "local operation: a key that is no window's",
            Case {
                setup: ready(),
                act: |b| {
                    b.post(1, Work::LocalInvalidate(RemoteKey(0xdead_be01)), &[]);
                    b.says();
                },
                cause: |_| Cause::Invalidate {
                    key: RemoteKey(0xdead_be01),
                    why: WindowError::UnknownKey(0xdead_be01),
                },
                status: Status::LocalQpOperationError,
                line: |_| {
                    "key 0xdeadbe01 cannot be invalidated: no memory window has key 0xdeadbe01"
                        .into()
                },
            },
        ),
        (
            "bad response",
            Case {
                setup: ready(),
                act: |b| {
                    b.post_read(1, 64);
                    b.says();
                    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, b"short!!!"));
                },
                cause: |_| Cause::BadResponse {
                    opcode: Opcode::RC_READ_RESPONSE_ONLY,
                    psn: psn(500),
                    why: WrongResponse::Length {
                        len: 8,
                        expected: 64,
                    },
                },
                status: Status::BadResponse,
                line: |_| {
                    "RC RDMA Read Response Only with PSN 500 does not answer it: 8 bytes where 64 were asked for".into()
                },
            },
        ),
        (
            "retries used up without an answer",
            Case {
                setup: Setup {
                    timeout: 1,
                    retry_cnt: 2,
                    ..ready()
                },
                act: |b| {
                    b.post_write(1, 64);
                    for _ in 0..3 {
                        b.says();
                        // Exponent 1 is 8.192 us.
                        b.wait(Span::from_ns(8192));
                    }
                },
                cause: |_| Cause::RetriesExceeded {
                    retry_cnt: 2,
                    psn: psn(500),
                    timeouts: 3,
                    timeout: Some(Span::from_ns(8192)),
                    sequence_naks: 0,
                    implied_naks: 0,
                },
                status: Status::RetryExceeded,
                line: |_| "retry_cnt 2 used up at PSN 500 (3 timeouts of 8.192us)".into(),
            },
        ),
        (
            "retries used up by NAKs and a timeout",
            Case {
                setup: Setup {
                    timeout: 1,
                    retry_cnt: 2,
                    ..ready()
                },
                act: |b| {
                    b.post_write(1, 64);
                    b.says();
                    b.hear(nak(0, NakCode::PsnSequenceError));
                    b.says();
                    b.wait(Span::from_ns(8192));
                    b.says();
                    b.hear(nak(0, NakCode::PsnSequenceError));
                },
                cause: |_| Cause::RetriesExceeded {
                    retry_cnt: 2,
                    psn: psn(500),
                    timeouts: 1,
                    timeout: Some(Span::from_ns(8192)),
                    sequence_naks: 2,
                    implied_naks: 0,
                },
                status: Status::RetryExceeded,
                line: |_| {
                    "retry_cnt 2 used up at PSN 500 (1 timeout of 8.192us, 2 sequence NAKs)".into()
                },
            },
        ),
    ]
}

#[test]
fn a_request_that_fails_says_why() {
    for (name, case) in cases() {
        let mut b = Bench::new(case.setup.clone());
        (case.act)(&mut b);
        assert_eq!(b.completed(), [(1, case.status)], "{name}");
        let failure = only(&mut b);
        assert_eq!(failure.cause, (case.cause)(&b), "{name}");
        assert_eq!(failure.status, Some(case.status), "{name}");
        assert!(failure.at <= b.now, "{name}");
        let Subject::Send(sent) = failure.subject else {
            panic!("{name}: {failure:?}");
        };
        assert_eq!((sent.number, sent.wr_id), (1, 1), "{name}");
        let of = format!(
            "{} #1 (wr_id 1) of qp {} (10.0.0.1) to qp {PEER_QP} (10.0.0.2): ",
            sent.work.name(),
            b.qp.number()
        );
        assert_eq!(failure.to_string(), of + &(case.line)(&b), "{name}");
    }
}

#[test]
fn a_window_that_cannot_be_bound_says_why() {
    let mut b = Bench::ready();
    let key = bound(&mut b);
    let again = RemoteKey(key.0 ^ 1);
    let binding = part(&b);
    b.post(1, bind(again, binding), &[]);
    b.says();
    assert_eq!(b.completed(), [(1, Status::WindowBindError)]);
    let failure = only(&mut b);
    let why = WindowError::Bound(key.0);
    assert_eq!(failure.cause, Cause::Bind { key: again, why });
    // The one that was bound before is the first on this queue pair.
    assert!(matches!(failure.subject, Subject::Send(sent) if sent.number == 2));
}

#[test]
fn tries_and_counters_are_those_since_an_answer_last_came() {
    let mut b = Bench::new(Setup {
        timeout: 1,
        retry_cnt: 1,
        ..Setup::default()
    });
    let timer = Span::from_ns(8192);
    b.post_write(1, 64);
    b.says();
    // Trouble that is over before the request that fails.
    b.wait(timer);
    b.says();
    b.hear(softroce_tests::bench::ack(0, 1));
    b.post_write(2, 64);
    b.says();
    let began = b.now;
    b.hear(nak(1, NakCode::PsnSequenceError));
    b.says();
    b.wait(timer);
    b.post_write(3, 64);
    assert_eq!(b.says(), [""; 0]);
    assert_eq!(
        b.completed(),
        [
            (1, Status::Success),
            (2, Status::RetryExceeded),
            (3, Status::WorkRequestFlushed)
        ]
    );
    let failure = b.card.next_failure().unwrap();
    assert_eq!(
        steps(&failure),
        [
            (501, Step::SequenceNak),
            (501, Step::Resend),
            (501, Step::Timeout(timer))
        ]
    );
    assert_eq!(failure.tries[0].at, began);
    assert_eq!(failure.tries[2].at, began + timer);
    assert!(!failure.earlier_tries);
    // The NAK, the packet sent again, the timer; not what happened before.
    let mut moved = failure.moved.clone();
    moved.sort_unstable();
    let once = [
        "local_ack_timeout_err",
        "packet_seq_err",
        "rcvd_pkts",
        "request_packets",
        "retransmitted_packets",
        "sent_pkts",
    ];
    assert_eq!(moved, once.map(|name| (name, 1)));
    // What was posted to the queue pair in error says what had put it there.
    let later = b.card.next_failure().unwrap();
    let ended = Ended::Send {
        at: failure.at,
        number: 2,
        wr_id: 2,
        status: Status::RetryExceeded,
    };
    assert_eq!(later.cause, Cause::Flushed(ended));
    let sends = later.flushed.sends;
    assert_eq!((sends.count, sends.first, sends.last), (1, 3, 3));
}

#[test]
fn what_is_flushed_is_counted_with_its_cause() {
    let mut b = Bench::ready();
    for n in 0..3 {
        b.post_recv(n, 0, 64);
    }
    b.post_write(1, 64);
    b.post_write(2, 64);
    b.post_write(3, 64);
    b.says();
    b.hear(nak(0, NakCode::RemoteAccessError));
    let failure = only(&mut b);
    assert_eq!(
        failure.flushed.to_string(),
        "flushed: 2 sends (wr_id 2 to 3), 3 receives (wr_id 0 to 2)"
    );

    let mut b = Bench::ready();
    b.post_write(1, 64);
    b.says();
    b.go_to(State::Error).unwrap();
    let failure = only(&mut b);
    assert_eq!(failure.cause, Cause::Flushed(Ended::Program(b.now)));
    assert_eq!(failure.status, None);
    assert_eq!(
        failure.to_string(),
        format!(
            "qp {} (10.0.0.1): the program put it into error at {}; flushed: 1 send (wr_id 1)",
            b.qp.number(),
            b.now
        )
    );
    // Nothing was queued: nothing failed.
    let mut b = Bench::ready();
    b.go_to(State::Error).unwrap();
    assert_eq!(b.card.next_failure(), None);
}

#[test]
fn a_responder_says_why_it_refused() {
    // A key that does not exist.
    let mut b = Bench::ready();
    let at = Remote {
        addr: 0x1000,
        rkey: RemoteKey(0xdead_be01),
    };
    b.hear(write_only(0, at, b"12345678"));
    let failure = only(&mut b);
    assert_eq!(
        failure.cause,
        Cause::RemoteAccess {
            rkey: at.rkey,
            addr: 0x1000,
            len: 8,
            why: AccessError::UnknownKey { key: 0xdead_be01 },
        }
    );
    assert_eq!((failure.status, failure.psn()), (None, Some(psn(100))));
    assert_eq!(failure.peer.unwrap().0, peer_gid());
    assert_eq!(
        failure.to_string(),
        format!(
            "RC RDMA Write Only with PSN 100 from qp {PEER_QP} (10.0.0.2) at qp {} (10.0.0.1): refused: \
             rkey 0xdeadbe01 for 8 bytes at 0x1000: no memory region or window has key 0xdeadbe01",
            b.qp.number()
        )
    );

    // A receive request that is too short.
    let mut b = Bench::ready();
    b.post_recv(4, 0, 8);
    b.post_recv(5, 0, 8);
    b.hear(send_only(0, &[0; 9]));
    let failure = only(&mut b);
    assert_eq!(failure.status, Some(Status::LocalLengthError));
    assert_eq!(
        failure.to_string(),
        format!(
            "receive #1 (wr_id 4) of qp {} (10.0.0.1), for RC Send Only with PSN 100 from qp {PEER_QP} \
             (10.0.0.2): refused: 9 bytes so far, and the receive request has room for 8; flushed: 1 \
             receive (wr_id 5)",
            b.qp.number()
        )
    );

    // Memory that the receive request may not use.
    let mut b = Bench::ready();
    let bad = softroce_sim::card::Sge {
        lkey: LocalKey(0xdead_be01),
        ..b.sge(0, 64)
    };
    b.try_post_recv(4, &[bad]).unwrap();
    b.hear(send_only(0, b"1234"));
    let failure = only(&mut b);
    assert_eq!(
        (failure.status, failure.cause),
        (
            Some(Status::LocalProtectionError),
            Cause::ReceiveProtection {
                sge: 0,
                lkey: bad.lkey,
                addr: bad.addr,
                len: 4,
                why: AccessError::UnknownKey { key: 0xdead_be01 },
            }
        )
    );

    // Rights that the queue pair does not give.
    let mut b = Bench::new(Setup {
        access: Access::LOCAL_WRITE,
        ..Setup::default()
    });
    let at = b.remote(0);
    b.hear(write_only(0, at, b"1234"));
    let rights = InvalidRequest::Rights(Access::REMOTE_WRITE);
    assert_eq!(only(&mut b).cause, Cause::InvalidRequest(rights));
}

#[test]
fn a_full_completion_queue_is_told() {
    let mut b = Bench::new(Setup {
        cqe: 1,
        ..Setup::default()
    });
    b.post_write(1, 8);
    b.post_write(2, 8);
    b.says();
    b.hear(softroce_tests::bench::ack(1, 2));
    let failure = only(&mut b);
    assert!(matches!(failure.cause, Cause::CqOverrun(_)), "{failure}");
    let request = RecvRequest {
        wr_id: 9,
        sges: &[],
    };
    assert!(b.qp.post_recv(&request).is_ok());
    let request = SendRequest::new(3, Work::Send, &[]);
    b.try_post(&request).unwrap();
    let failure = only(&mut b);
    assert_eq!(failure.cause, Cause::Flushed(Ended::CqOverrun(b.now)));
}

/// Two hosts at a switch, a flow, and what is done to it.
fn story(
    operation: FlowOperation,
    size: u32,
    change: impl FnOnce(&mut Network<Machine>, FlowId),
) -> Vec<Explanation> {
    story_with(FlowSpec::new(operation, size, 9), 3, change)
}

fn story_with(
    spec: FlowSpec,
    retry_cnt: u8,
    change: impl FnOnce(&mut Network<Machine>, FlowId),
) -> Vec<Explanation> {
    story_on(&star(), spec, retry_cnt, change)
}

fn star() -> Topology {
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
    let switch = SwitchSpec::tail_drop(1 << 20);
    Topology::star(2, link, switch).unwrap()
}

fn story_on(
    topology: &Topology,
    spec: FlowSpec,
    retry_cnt: u8,
    change: impl FnOnce(&mut Network<Machine>, FlowId),
) -> Vec<Explanation> {
    let routes = RouteTable::new();
    let config = Config {
        seed: 1,
        payload: PayloadMode::Counted,
        routes: routes.clone(),
    };
    let mut network = Network::new(topology, config, (), |_, node| {
        let config = CardConfig::new(node.name.clone(), node.gid(), node.mac);
        Machine::new(Card::new(config, 1, routes.clone()), 64).unwrap()
    })
    .unwrap();
    let (a, b) = (topology.host("h0").unwrap(), topology.host("h1").unwrap());
    let spec = FlowSpec {
        timeout: 4,
        retry_cnt,
        first_psn: Some((psn(40), psn(900))),
        ..spec
    };
    let id = connect(&mut network, a, b, &spec).unwrap();
    change(&mut network, id);
    network.run_until_idle(Time::ZERO + Span::from_ms(100));
    let (all, beyond) = explain(&mut network);
    assert_eq!(beyond, 0);
    all
}

/// The line behind the colon, with the names of the topology, and rounds with what was lost in them.
fn told(all: &[Explanation]) -> (String, Vec<(u32, Kind, u32, Why)>) {
    let [one] = all else {
        panic!("{all:?}");
    };
    let topology = star();
    let line = one.line(
        |host| topology.hosts()[host.index()].name.clone(),
        |channel| {
            let (from, to) = topology.channel_ends(channel);
            format!("{from}->{to}")
        },
        |_, position| Some(format!("number {position}")),
    );
    let lost = one.lost.iter();
    let lost = lost
        .map(|t| (t.round, t.kind, t.psn.get(), t.why))
        .collect();
    let (_, line) = line.split_once("): ").unwrap();
    (line.to_string(), lost)
}

/// Puts a fault on the way from a host of the flow to the switch.
fn fault(
    network: &mut Network<Machine>,
    from: &str,
    opcodes: Opcodes,
    psn: PsnFilter,
    action: Action,
) {
    let topology = network.topology();
    let channel = topology
        .channel_between(from, &topology.switches()[0].name)
        .unwrap();
    let filter = Filter {
        opcodes,
        psn,
        ..Filter::ALL
    };
    network
        .inject(channel, Fault::new(action).on(filter))
        .unwrap();
}

const TIMEOUTS: &str = "retry_cnt 3 used up at PSN 41 (4 timeouts of 65.536us)";

#[test]
fn a_request_that_is_lost_in_every_round() {
    let all = story(FlowOperation::Write, 64, |network, _| {
        let at = PsnFilter::at(psn(41));
        fault(network, "h0", Opcodes::Requests, at, Action::Drop);
    });
    let (line, lost) = told(&all);
    assert_eq!(
        line,
        format!("{TIMEOUTS}; PSN 41 lost on h0->s0 in rounds 1, 2, 3, 4 (fault number 0)")
    );
    let why = Why::Dropped(DropCause::Fault);
    assert_eq!(lost, [1, 2, 3, 4].map(|n| (n, Kind::Request, 41, why)));
    let Subject::Send(sent) = all[0].failure.subject else {
        panic!()
    };
    assert_eq!(
        (sent.number, sent.psns, sent.work.name()),
        (2, Some((psn(41), psn(41))), "WRITE")
    );
}

#[test]
fn an_acknowledgement_that_is_lost_in_every_round() {
    let all = story(FlowOperation::Write, 64, |network, _| {
        let at = PsnFilter::at(psn(41));
        fault(network, "h1", Opcodes::Acknowledges, at, Action::Drop);
    });
    let (line, _) = told(&all);
    assert_eq!(
        line,
        format!(
            "{TIMEOUTS}; the ACK of PSN 41 lost on h1->s0 in rounds 1, 2, 3, 4 (fault number 0)"
        )
    );
}

#[test]
fn now_the_request_and_now_its_acknowledgement() {
    let all = story(FlowOperation::Write, 64, |network, _| {
        let at = PsnFilter::at(psn(41));
        let topology = network.topology();
        let forward = topology.channel_between("h0", "s0").unwrap();
        let backward = topology.channel_between("h1", "s0").unwrap();
        for round in [1, 3] {
            let filter = Filter {
                psn: at,
                round: Some(round),
                ..Filter::ALL
            };
            let drop = Fault::new(Action::Drop).on(filter);
            network.inject(forward, drop).unwrap();
        }
        let filter = Filter {
            psn: at,
            opcodes: Opcodes::Acknowledges,
            ..Filter::ALL
        };
        network
            .inject(backward, Fault::new(Action::CorruptOnLink).on(filter))
            .unwrap();
    });
    let (line, lost) = told(&all);
    let (fault, fcs) = (
        Why::Dropped(DropCause::Fault),
        Why::Dropped(DropCause::BadFcs),
    );
    assert_eq!(
        lost,
        [
            (1, Kind::Request, 41, fault),
            (2, Kind::Ack, 41, fcs),
            (3, Kind::Request, 41, fault),
            (4, Kind::Ack, 41, fcs)
        ]
    );
    assert_eq!(
        line,
        format!(
            "{TIMEOUTS}; PSN 41 lost on h0->s0 in round 1 (fault number 0); the ACK of PSN 41 lost on h1->s0 \
             in rounds 2, 4 (bad FCS); PSN 41 lost on h0->s0 in round 3 (fault number 1)"
        )
    );
}

#[test]
fn the_end_of_a_message_is_lost_and_nothing_is_acknowledged() {
    // PSN 40 to 43 are a message; only the last packet asks for an acknowledgement.
    let cut = |network: &mut Network<Machine>, _| {
        let at = PsnFilter::at(psn(43));
        fault(
            network,
            "h0",
            Opcodes::Requests,
            at,
            Action::CorruptInDevice,
        );
    };
    let write = || FlowSpec::new(FlowOperation::Write, 4096, 1);
    let (line, _) = told(&story_with(write(), 0, cut));
    assert_eq!(
        line,
        "retry_cnt 0 used up at PSN 40 (1 timeout of 65.536us); PSN 43 lost on h0->s0 in round 1 (bad ICRC \
         number 0)"
    );
    // What comes again is acknowledged again (C9-105), so that with a retry it gets on to PSN 43, and the
    // retries begin anew.
    let (line, _) = told(&story_with(write(), 1, cut));
    assert_eq!(
        line,
        "retry_cnt 1 used up at PSN 43 (2 timeouts of 65.536us); PSN 43 lost on h0->s0 in rounds 1, 2 (bad \
         ICRC number 0)"
    );
}

#[test]
fn a_full_queue_is_named() {
    // A port of the switch that holds nothing: while a packet goes out there, the next one is dropped.
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
    let switch = SwitchSpec::tail_drop(0);
    let mut topology = Topology::star(2, link, switch).unwrap();
    topology.link_mut("h1-s0").unwrap().rate = Rate::from_gbps(1);
    let spec = FlowSpec::new(FlowOperation::Write, 2048, 1);
    let all = story_on(&topology, spec, 0, |_, _| {});
    let [one] = &all[..] else { panic!("{all:?}") };
    let [lost] = one.lost[..] else {
        panic!("{one:?}")
    };
    let (from, to) = topology.channel_ends(lost.channel);
    assert_eq!(
        (from, to, lost.psn, lost.why, lost.fault),
        (
            "s0",
            "h1",
            psn(41),
            Why::Dropped(DropCause::QueueFull),
            None
        )
    );
}

#[test]
fn read_data_that_is_lost_in_every_round() {
    let all = story(FlowOperation::Read, 64, |network, _| {
        let at = PsnFilter::at(psn(41));
        fault(network, "h1", Opcodes::ReadResponses, at, Action::Drop);
    });
    let (line, _) = told(&all);
    assert_eq!(
        line,
        format!(
            "{TIMEOUTS}; the answer with PSN 41 lost on h1->s0 in rounds 1, 2, 3, 4 (fault number 0)"
        )
    );
}

#[test]
fn an_answer_that_is_late_is_not_lost() {
    let all = story(FlowOperation::Write, 64, |network, _| {
        let at = PsnFilter::at(psn(41));
        let by = Span::from_ms(1);
        fault(
            network,
            "h1",
            Opcodes::Acknowledges,
            at,
            Action::Delay { by },
        );
    });
    let (line, lost) = told(&all);
    assert_eq!(lost, []);
    assert_eq!(
        line,
        format!("{TIMEOUTS}; nothing of it was lost: the answer was late")
    );
}

#[test]
fn a_refusal_has_the_peers_reason() {
    let all = story(FlowOperation::Write, 64, |network, id| {
        let qp = network.host(id.peer).receiver_qp(id.receiver);
        let card = network.host_mut(id.peer).card_mut();
        let attributes = QpAttributes {
            access: Some(Access::LOCAL_WRITE),
            ..Default::default()
        };
        card.modify_qp(Time::ZERO, qp, &attributes).unwrap();
    });
    let (line, _) = told(&all);
    assert_eq!(
        line,
        "the peer refused PSN 40: NAK invalid request; at h1: refused: the queue pair does not grant \
         remote write access"
    );
    let (_, theirs) = all[0].peer.as_ref().unwrap();
    assert_eq!(theirs.psn(), Some(psn(40)));
}

#[test]
fn a_peer_in_error_answers_nothing() {
    let all = story(FlowOperation::Send, 64, |network, id| {
        let qp = network.host(id.peer).receiver_qp(id.receiver);
        network.run_until(Time::ZERO + Span::from_ns(1));
        let attributes = QpAttributes {
            state: Some(State::Error),
            ..Default::default()
        };
        let now = network.now();
        let card = network.host_mut(id.peer).card_mut();
        card.modify_qp(now, qp, &attributes).unwrap();
    });
    let (line, _) = told(&all);
    let theirs = line.split_once("; ").unwrap().1;
    assert!(
        theirs.starts_with("qp ")
            && theirs
                .ends_with(" at h1 was in error from 1ns on: the program put it into error at 1ns"),
        "{line}"
    );
}
