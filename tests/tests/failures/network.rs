//! Two cards and a network that loses: what was lost where, and what the peer says.

use softroce_sim::card::explain::Subject;
use softroce_sim::card::{Card, CardConfig, QpAttributes, State};
use softroce_sim::fabric::explain::{Explanation, explain};
use softroce_sim::fabric::losses::{Kind, Why};
use softroce_sim::fabric::machine::{FlowId, FlowOperation, FlowSpec, Machine, connect};
use softroce_sim::fabric::{
    Action, Config, DropCause, Fault, Filter, LinkSpec, Network, Opcodes, Pattern, PayloadMode,
    PsnFilter, Rate, SwitchSpec, Topology,
};
use softroce_sim::memory::Access;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{Psn, RouteTable};

fn psn(n: u32) -> Psn {
    Psn::new(n)
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
             in rounds 2, 4 (bad FCS by fault number 0); PSN 41 lost on h0->s0 in round 3 (fault number 1)"
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
         by fault number 0)"
    );
    // What comes again is acknowledged again (C9-105), so that with a retry it gets on to PSN 43, and the
    // retries begin anew.
    let (line, _) = told(&story_with(write(), 1, cut));
    assert_eq!(
        line,
        "retry_cnt 1 used up at PSN 43 (2 timeouts of 65.536us); PSN 43 lost on h0->s0 in rounds 1, 2 (bad \
         ICRC by fault number 0)"
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

/// The receiver is never ready, and the second of its three RNR NAKs is lost: that try ends with the timer.
#[test]
fn an_rnr_nak_that_is_lost_is_named() {
    let spec = FlowSpec {
        recv_depth: 0,
        rnr_retry: 1,
        min_rnr_timer: 1,
        ..FlowSpec::new(FlowOperation::Send, 64, 1)
    };
    let all = story_with(spec, 3, |network, _| {
        let topology = network.topology();
        let way = topology.channel_between("h1", "s0").unwrap();
        let filter = Filter {
            opcodes: Opcodes::Acknowledges,
            ..Filter::ALL
        };
        let second = Fault::new(Action::Drop)
            .on(filter)
            .when(Pattern::Every { n: 3, phase: 1 });
        network.inject(way, second).unwrap();
    });
    let (line, lost) = told(&all);
    let why = Why::Dropped(DropCause::Fault);
    assert_eq!(lost, [(2, Kind::RnrNak, 40, why)]);
    assert_eq!(
        line,
        "rnr_retry 1 used up at PSN 40: the receiver was not ready, and the last RNR NAK asks for a wait of \
         10us; the RNR NAK of PSN 40 lost on h1->s0 in round 2 (fault number 0)"
    );
}

/// The peer refuses for good what the first try did not bring to it.
#[test]
fn what_was_lost_before_a_refusal_is_named() {
    let all = story(FlowOperation::Write, 64, |network, id| {
        let qp = network.host(id.peer).receiver_qp(id.receiver);
        let card = network.host_mut(id.peer).card_mut();
        let attributes = QpAttributes {
            access: Some(Access::LOCAL_WRITE),
            ..Default::default()
        };
        card.modify_qp(Time::ZERO, qp, &attributes).unwrap();
        let topology = network.topology();
        let way = topology.channel_between("h0", "s0").unwrap();
        let filter = Filter {
            round: Some(1),
            ..Filter::ALL
        };
        let first = Fault::new(Action::Drop).on(filter);
        network.inject(way, first).unwrap();
    });
    let (line, _) = told(&all);
    assert_eq!(
        line,
        "the peer refused PSN 40: NAK invalid request; PSN 40 lost on \
         h0->s0 in round 1 (fault number 0); at h1: refused: the queue pair does not grant remote write access"
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
        format!("{TIMEOUTS}; nothing of it was lost: it or its answer was on its way or waited")
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
