//! Our own cards on a lossy virtual link: whatever the link does, they break no rule, and what is read
//! from the capture is what they count.

use crate::forge::{look_with, violations};
use softroce::format::{File, Source};
use softroce::inspect::{Inspection, Options, Rule};
use softroce::run;
use softroce_sim::card::{Card, CardConfig, Counters, Timing};
use softroce_sim::fabric::machine::{self, FlowOperation, FlowSpec, Machine};
use softroce_sim::fabric::topology::Topology;
use softroce_sim::fabric::{
    Action, Capture, Config, Direction, Fault, LinkSpec, Network, Pattern, Rate,
};
use softroce_sim::random::{Probability, Stream};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::RouteTable;

const OPERATIONS: [FlowOperation; 5] = [
    FlowOperation::Send,
    FlowOperation::SendImmediate,
    FlowOperation::Write,
    FlowOperation::WriteImmediate,
    FlowOperation::Read,
];

/// What happens to packets, each with one of these chances in a thousand, and to which of them.
type Faults<'a> = &'a [(Direction, Action, u32)];

fn run(flows: &[FlowSpec], faults: Faults<'_>, seed: u64) -> (Inspection, [Counters; 2]) {
    run_with(Timing::default(), flows, faults, seed)
}

fn run_with(
    timing: Timing,
    flows: &[FlowSpec],
    faults: Faults<'_>,
    seed: u64,
) -> (Inspection, [Counters; 2]) {
    let topology = Topology::back_to_back(LinkSpec::new(Rate::from_gbps(100), Span::from_us(1)));
    let routes = RouteTable::new();
    let config = Config {
        seed,
        routes: routes.clone(),
        ..Default::default()
    };
    let both = [Direction::Forward, Direction::Backward];
    let channels = both.map(|d| topology.channel("h0-h1", d).unwrap());
    let tap = Capture::new(Vec::new(), &topology, channels).unwrap();
    let mut net = Network::new(&topology, config, tap, |_, node| {
        let mut card = CardConfig::new(node.name.clone(), node.gid(), node.mac);
        card.timing = timing;
        Machine::new(Card::new(card, seed, routes.clone()), 4096).unwrap()
    })
    .unwrap();
    for (direction, action, chance) in faults {
        let chance = Probability::new(f64::from(*chance) / 1000.0).unwrap();
        let fault = Fault::new(*action).when(Pattern::Random(chance));
        let channel = topology.channel("h0-h1", *direction).unwrap();
        net.inject(channel, fault).unwrap();
    }
    let (a, b) = (topology.host("h0").unwrap(), topology.host("h1").unwrap());
    for spec in flows {
        machine::connect(&mut net, a, b, spec).unwrap();
    }
    assert!(net.run_until_idle(Time::ZERO + Span::from_ms(10_000)));
    let counters = [a, b].map(|host| net.host(host).card().counters());
    let file = net.into_parts().0.finish().unwrap();
    let options = Options {
        findings_per_rule: u64::MAX,
        ..Options::default()
    };
    (look_with(&file, &options), counters)
}

fn flow(operation: FlowOperation, size: u32) -> FlowSpec {
    FlowSpec {
        carried: true,
        depth: 16,
        timeout: 6,
        ..FlowSpec::new(operation, size, 60)
    }
}

fn count(inspection: &Inspection, rule: Rule) -> u64 {
    inspection.rules.get(&rule).copied().unwrap_or(0)
}

#[test]
fn cards_on_a_lossy_link_break_no_rule() {
    let both = |action, chance| {
        [
            (Direction::Forward, action, chance),
            (Direction::Backward, action, chance),
        ]
    };
    let reorder = Action::Reorder {
        packets: 3,
        limit: Span::from_us(20),
    };
    let duplicate = Action::Duplicate {
        delay: Span::from_us(3),
    };
    let mixed = [
        both(Action::Drop, 10),
        both(reorder, 10),
        both(duplicate, 10),
    ]
    .concat();
    let kinds: [&[_]; 4] = [
        &both(Action::Drop, 20),
        &both(reorder, 20),
        &both(duplicate, 20),
        &mixed,
    ];
    for (kind, faults) in kinds.into_iter().enumerate() {
        for operation in OPERATIONS {
            for seed in 1..6 {
                let (inspection, [requester, responder]) =
                    run(&[flow(operation, 5000)], faults, seed);
                let what = format!("{operation:?}, faults {kind}, seed {seed}");
                let found = violations(&inspection);
                let text = || {
                    let first = found.first().map(|f| f.1);
                    let mut text = Vec::new();
                    inspection.write_text(&mut text).unwrap();
                    let text = String::from_utf8_lossy(&text).into_owned();
                    let lines: Vec<_> = text.lines().collect();
                    let at = first.unwrap_or(0) as usize;
                    lines[at.saturating_sub(40)..(at + 5).min(lines.len())].join("\n")
                };
                assert_eq!(found, [], "{what}\n{}", text());
                assert_eq!(inspection.connections.len(), 1, "{what}");
                // What a link duplicates or overtakes may be told from what a card repeats by time
                // alone, as there is no identification.
                if kind == 0 {
                    let naks =
                        count(&inspection, Rule::SequenceNak) + count(&inspection, Rule::LateNak);
                    assert_eq!(naks, responder.naks_sent.sequence, "{what}");
                    let again = count(&inspection, Rule::Retransmission);
                    assert_eq!(again, requester.retransmitted_packets, "{what}");
                }
            }
        }
    }
}

#[test]
fn receivers_that_are_not_ready() {
    let late = FlowSpec {
        recv_start: Time::ZERO + Span::from_us(500),
        recv_depth: 2,
        min_rnr_timer: 10,
        ..flow(FlowOperation::Send, 3000)
    };
    let (inspection, [_, responder]) = run(&[late], &[], 1);
    assert_eq!(violations(&inspection), []);
    assert!(responder.rnr_naks_sent > 0);
    assert_eq!(count(&inspection, Rule::RnrNak), responder.rnr_naks_sent);
}

#[test]
fn receivers_that_are_not_ready_on_a_bad_link() {
    let reorder = Action::Reorder {
        packets: 3,
        limit: Span::from_us(20),
    };
    let duplicate = Action::Duplicate {
        delay: Span::from_us(3),
    };
    let kinds = [Action::Drop, reorder, duplicate];
    let mut waited = 0;
    for seed in 1..40 {
        let mut draw = Stream::new(seed, "plan");
        let timing = Timing {
            doorbell: Span::from_ns(draw.below(2_000)),
            ack: Span::from_ns(draw.below(3_000)),
            nak: Span::from_ns(draw.below(3_000)),
            retransmit: Span::from_ns(draw.below(12_000)),
        };
        let faults: Vec<_> = kinds
            .into_iter()
            .filter_map(|kind| {
                let to = [Direction::Forward, Direction::Backward][draw.below(2) as usize];
                (draw.below(2) == 0).then_some((to, kind, 50))
            })
            .collect();
        // Codes 1 to 12 are 10 to 640 us.
        let late = FlowSpec {
            recv_start: Time::ZERO + Span::from_us(20 + draw.below(500)),
            recv_depth: 1 + draw.below(4) as u32,
            min_rnr_timer: 1 + draw.below(12) as u8,
            timeout: 4 + draw.below(8) as u8,
            ..flow(FlowOperation::Send, 3000)
        };
        let (inspection, [_, responder]) = run_with(timing, &[late], &faults, seed);
        let found = violations(&inspection);
        let told: Vec<_> = inspection.of(Rule::RnrTimer).collect();
        assert_eq!(found, [], "seed {seed} {timing:?} {faults:?}: {told:#?}");
        waited += responder.rnr_naks_sent;
    }
    assert!(waited > 100, "{waited}");
}

#[test]
fn many_connections_between_two_hosts_are_told_apart() {
    let flows: Vec<_> = (0..40).map(|n| flow(OPERATIONS[n % 5], 3000)).collect();
    let faults = [
        (Direction::Forward, Action::Drop, 10),
        (Direction::Backward, Action::Drop, 10),
    ];
    let (inspection, [requester, responder]) = run(&flows, &faults, 3);
    assert_eq!(violations(&inspection), []);
    assert_eq!(inspection.connections.len(), 40);
    assert!(
        inspection
            .connections
            .iter()
            .all(|c| c.joined_by == Some("psn"))
    );
    assert_eq!(
        count(&inspection, Rule::SequenceNak),
        responder.naks_sent.sequence
    );
    assert_eq!(
        count(&inspection, Rule::Retransmission),
        requester.retransmitted_packets
    );
}

#[test]
fn a_device_that_corrupts_is_told_by_the_icrc() {
    let faults = [(Direction::Forward, Action::CorruptInDevice, 20)];
    let (inspection, [_, responder]) = run(&[flow(FlowOperation::Write, 5000)], &faults, 1);
    let found = violations(&inspection);
    assert!(
        found.iter().all(|(rule, _)| *rule == Rule::BadIcrc),
        "{found:?}"
    );
    assert!(!found.is_empty() || responder.refused != Default::default());
}

/// What is found in the one capture of a scenario.
pub(crate) fn inspect_scenario(text: &str) -> Inspection {
    let dir = tempfile::tempdir().unwrap();
    let file = File::parse(Source::new("mine.toml", text).unwrap()).unwrap();
    let options = run::Options {
        out: Some(dir.path().into()),
        ..Default::default()
    };
    run::run("mine", &file.plan(&[]).unwrap(), &options, &|_| {}).unwrap();
    let bytes = std::fs::read(dir.path().join("mine-capture-0.pcapng")).unwrap();
    look_with(&bytes, &Options::default())
}

#[test]
fn what_a_comment_says_of_a_packet_is_believed() {
    for (action, comment) in [
        ("drop", "fault cut: dropped"),
        ("corrupt", "fault cut: corrupted on the link"),
    ] {
        let inspection = inspect_scenario(&format!(
            r#"
            [topology]
            kind = "back-to-back"
            [[traffic]]
            name = "b"
            from = "h0"
            to = "h1"
            operation = "write"
            size = "1KB"
            [[capture]]
            link = "h0-h1"
            [[fault]]
            name = "other"
            link = "h1->h0"
            kind = "exact"
            action = "delay"
            by = "1ns"
            [[fault]]
            name = "cut"
            link = "h0->h1"
            kind = "exact"
            copy = 1
            psn-offset = 0
            traffic = "b"
            action = "{action}"
            "#
        ));
        assert_eq!(violations(&inspection), [], "{action}");
        assert_eq!(inspection.kept[0].comments, [comment]);
        let texts: Vec<_> = inspection.of(Rule::LossBeyond).map(|f| &f.text).collect();
        let told = "packet 1 passed here and was lost beyond this point, as its comment says";
        assert_eq!(texts, [told], "{action}");
    }
}

#[test]
fn a_read_asked_for_again_twice_before_it_is_answered() {
    let inspection = inspect_scenario(
        r#"
        [topology]
        kind = "back-to-back"
        [[traffic]]
        name = "b"
        from = "h0"
        to = "h1"
        operation = "read"
        size = "30KB"
        [[capture]]
        link = "h0-h1"
        [[fault]]
        link = "h1->h0"
        kind = "exact"
        traffic = "b"
        psn-offset = 10
        copy = 1
        action = "reorder"
        behind = 3
        "#,
    );
    assert_eq!(violations(&inspection), []);
    assert_eq!(count(&inspection, Rule::Retransmission), 2);
}

#[test]
fn a_nak_that_the_network_duplicates() {
    for by in ["100ns", "20us"] {
        let inspection = inspect_scenario(&format!(
            r#"
            [topology]
            kind = "star"
            hosts = 2
            [[traffic]]
            name = "b"
            from = "h0"
            to = "h1"
            operation = "write"
            size = "30KB"
            [[capture]]
            link = "h0-s0"
            [[fault]]
            link = "h0->s0"
            kind = "exact"
            traffic = "b"
            psn-offset = 10
            copy = 1
            action = "drop"
            [[fault]]
            link = "h1->s0"
            packets = "nak"
            kind = "exact"
            action = "duplicate"
            by = "{by}"
            "#
        ));
        assert_eq!(violations(&inspection), [], "{by}");
        assert_eq!(count(&inspection, Rule::SequenceNak), 1, "{by}");
    }
}
