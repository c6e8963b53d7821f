//! The captures of the Linux kernel's driver, played again with a card of ours in the place of either end.
//!
//! With the profile of that driver, our card must send what it sent and complete what it completed. With
//! the profile of the specification, it must do so too but for what is listed here, case by case.

use softroce_sim::card::QpType;
use softroce_sim::card::profile::{self, Profile};
use softroce_sim::wire::aeth::SyndromeKind;
use softroce_sim::wire::{Ext, Syndrome, source_port};
use softroce_tests::replay::{self, Case, Pace, Record, Sent, Side, case};

/// Ends at which our card does not do what the kernel did, and why.
const EXCEPTIONS: [(&str, Side, &str); 0] = [];

/// The cases whose programs were `rcx`.
fn cases() -> impl Iterator<Item = Case> {
    let names = case::names().into_iter();
    names
        .filter(|name| !name.starts_with("cm_"))
        .map(|name| Case::load(&name))
}

fn lines(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(Sent::to_string).collect()
}

/// What differs, as a text; `None` if nothing does.
fn difference(kernel: &Record, ours: &Record) -> Option<String> {
    let mut text = String::new();
    if kernel.sent != ours.sent {
        let (theirs, mine) = (lines(&kernel.sent), lines(&ours.sent));
        text += &format!("  the kernel sent {theirs:#?}\n  our card {mine:#?}\n");
        let apart = kernel.sent.iter().zip(&ours.sent).find(|(a, b)| a != b);
        text += &format!("  first difference {apart:?}\n");
    }
    if kernel.said != ours.said {
        text += &format!(
            "  the kernel's program said {:#?}\n  ours {:#?}\n",
            kernel.said, ours.said
        );
    }
    if kernel.late != ours.late {
        text += &format!("  {} packets were late\n", ours.late);
    }
    (!text.is_empty()).then_some(text)
}

#[test]
fn with_the_profile_of_the_driver_each_end_does_what_the_kernel_did() {
    let (mut matched, mut ends, mut count, mut packets) = (0, 0, 0, 0);
    let mut failures = String::new();
    for case in cases() {
        count += 1;
        for side in Side::BOTH {
            ends += 1;
            let kernel = replay::kernel(&case, side);
            packets += kernel.sent.len();
            let found = [Pace::Prompt, Pace::Recorded].map(|pace| {
                let ours = replay::replay(&case, side, &profile::RXE, pace);
                difference(&kernel, &ours).map(|text| (pace, text))
            });
            let found: Vec<_> = found.into_iter().flatten().collect();
            let listed = EXCEPTIONS
                .iter()
                .any(|&(name, at, _)| (name, at) == (&*case.name, side));
            matched += usize::from(found.is_empty());
            if found.is_empty() == listed {
                failures += &format!("{}, {side:?}: listed {listed}\n", case.name);
                for (pace, text) in found {
                    failures += &format!(" {pace:?}:\n{text}");
                }
            }
        }
    }
    println!("{matched} of {ends} sides of {count} cases matched, {packets} packets sent");
    for (name, side, why) in EXCEPTIONS {
        println!("not matched: {name}, {side:?}: {why}");
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(count >= 44 && packets >= 300, "{count} {packets}");
}

#[test]
fn source_ports_of_connections_are_the_kernels() {
    for case in cases().filter(|case| case.options.service != QpType::Ud) {
        for side in Side::BOTH {
            let (own, peer) = (case.identity(side).qp, case.identity(side.peer()).qp);
            for event in case.events(side) {
                let port = event.frame.route().udp_src;
                assert_eq!(port, source_port(own, peer), "{}", case.name);
            }
        }
    }
}

#[test]
fn frames_of_the_connection_manager_decode() {
    let names = case::names();
    let names = names.iter().filter(|name| name.starts_with("cm_"));
    let counts: Vec<usize> = names.map(|name| case::frames(name).len()).collect();
    assert_eq!(counts.len(), 5);
    assert!(counts.iter().all(|&n| n > 0), "{counts:?}");
}

/// An end without what differs between the driver and the specification everywhere: MigReq, credits, and
/// in completions the length and immediate data of requests, and the GRH of connections.
fn without_habits(mut record: Record) -> Record {
    for sent in &mut record.sent {
        sent.bth = sent.bth.with_mig_req(false);
        if let Ext::Aeth(aeth) | Ext::AtomicAck(aeth, _) = &mut sent.ext
            && matches!(aeth.syndrome.kind(), SyndromeKind::Ack { .. })
        {
            aeth.syndrome = Syndrome::ack(Syndrome::UNLIMITED);
        }
    }
    for line in &mut record.said {
        if line.contains(" opcode=0 ") || line.contains(" opcode=1 ") {
            line.truncate(line.find(" byte_len").unwrap_or(line.len()));
        }
        if let Some(rest) = line.strip_suffix(" src_qp=0x0") {
            *line = rest
                .replace("flags=1", "flags=0")
                .replace("flags=3", "flags=2")
                .replace("flags=5", "flags=4");
        }
    }
    record
}

/// Where two lists differ: both without what they have in common at the beginning and at the end.
fn apart(a: &[String], b: &[String]) -> (Vec<String>, Vec<String>) {
    let pairs = a.iter().zip(b);
    let head = pairs.take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[head..], &b[head..]);
    let pairs = a.iter().rev().zip(b.iter().rev());
    let tail = pairs.take_while(|(a, b)| a == b).count();
    (a[..a.len() - tail].to_vec(), b[..b.len() - tail].to_vec())
}

/// An end at which a card that follows the specification does something else than the driver, habits left
/// out: the lines that differ, the kernel's first. Why is in `tests/README.md`.
struct Differs {
    case: &'static str,
    side: Side,
    sent: [&'static [&'static str]; 2],
    said: [&'static [&'static str]; 2],
}

const DIFFERENT: [Differs; 8] = [
    Differs {
        case: "loss_read_resp_last",
        side: Side::Responder,
        sent: [
            &["RC RDMA Read Response Last 5378 ack credits 31 msn 1 [952]"],
            &["RC RDMA Read Response Only 5378 ack credits 31 msn 1 [952]"],
        ],
        said: [&[], &[]],
    },
    Differs {
        case: "rc_nak_short_recv",
        side: Side::Responder,
        sent: [
            &["RC Acknowledge 256 NAK remote operational error msn 0"],
            &["RC Acknowledge 256 NAK invalid request msn 0"],
        ],
        said: [
            &["S wc wr_id=1000 status=2 vendor_err=0"],
            &["S wc wr_id=1000 status=1 vendor_err=0"],
        ],
    },
    Differs {
        case: "rc_nak_short_recv_multi",
        side: Side::Responder,
        sent: [
            &["RC Acknowledge 257 NAK remote operational error msn 0"],
            &["RC Acknowledge 257 NAK invalid request msn 0"],
        ],
        said: [
            &["S wc wr_id=1000 status=2 vendor_err=0"],
            &["S wc wr_id=1000 status=1 vendor_err=0"],
        ],
    },
    Differs {
        case: "rc_rnr_writeimm",
        side: Side::Requester,
        sent: [
            &[
                "RC RDMA Write First 256 of 2500 [1024]",
                "RC RDMA Write Middle 257 [1024]",
            ],
            &[],
        ],
        said: [&[], &[]],
    },
    Differs {
        case: "reorder_request",
        side: Side::Requester,
        sent: [
            &[],
            &[
                "RC Send Middle 6914 [1024]",
                "RC Send Middle 6915 [1024]",
                "RC Send Last 6916 [904] AckReq",
            ],
        ],
        said: [&[], &[]],
    },
    Differs {
        case: "uc_loss_middle",
        side: Side::Responder,
        sent: [&[], &[]],
        said: [
            &["S op0 send: 1968 wrong bytes of 3000"],
            &[
                "S wc wr_id=1000 status=0 opcode=128 byte_len=64 flags=0",
                "S op0 send: 2032 wrong bytes of 3000",
            ],
        ],
    },
    Differs {
        case: "uc_loss_only",
        side: Side::Responder,
        sent: [&[], &[]],
        said: [
            &["S wc wr_id=1001 status=2 vendor_err=0"],
            &["S wc wr_id=1001 status=1 vendor_err=0"],
        ],
    },
    Differs {
        case: "uc_short_recv",
        side: Side::Responder,
        sent: [&[], &[]],
        said: [
            &["S wc wr_id=1000 status=2 vendor_err=0"],
            &["S wc wr_id=1000 status=1 vendor_err=0"],
        ],
    },
];

#[test]
fn with_the_profile_of_the_specification_eight_ends_differ() {
    let mut same = 0;
    for case in cases() {
        for side in Side::BOTH {
            let kernel = without_habits(replay::kernel(&case, side));
            let ours = replay::replay(&case, side, &profile::SPEC, Pace::Prompt);
            let ours = without_habits(ours);
            let listed = DIFFERENT
                .iter()
                .find(|d| (d.case, d.side) == (&*case.name, side));
            let Some(listed) = listed else {
                let difference = difference(&kernel, &ours);
                assert_eq!(difference, None, "{}, {side:?}", case.name);
                same += 1;
                continue;
            };
            let (theirs, mine) = apart(&lines(&kernel.sent), &lines(&ours.sent));
            assert_eq!([theirs, mine], listed.sent, "{}, {side:?}", case.name);
            let (theirs, mine) = apart(&kernel.said, &ours.said);
            assert_eq!([theirs, mine], listed.said, "{}, {side:?}", case.name);
        }
    }
    println!(
        "{same} sides the same, {} differ as listed",
        DIFFERENT.len()
    );
}

/// Cases that our card no longer plays as the kernel did, with one habit of the driver's given up.
fn cases_that_show(give_up: impl FnOnce(&mut Profile)) -> Vec<String> {
    let mut profile = profile::RXE.clone();
    give_up(&mut profile);
    let fails = |case: &Case| {
        Side::BOTH.into_iter().any(|side| {
            let kernel = replay::kernel(case, side);
            [Pace::Prompt, Pace::Recorded]
                .into_iter()
                .any(|pace| replay::replay(case, side, &profile, pace) != kernel)
        })
    };
    cases().filter(fails).map(|case| case.name).collect()
}

// The documentation of each field names the captures that its value comes from.
#[test]
fn the_captures_show_each_habit_that_is_not_called_approximate() {
    let spec = &profile::SPEC;
    assert_eq!(
        cases_that_show(|p| p.separate_answers = spec.separate_answers),
        [
            "dup_request",
            "loss_send_last",
            "rc_rnr_writeimm",
            "reorder_request"
        ]
    );
    assert_eq!(
        cases_that_show(|p| p.short_receive = spec.short_receive),
        [
            "rc_nak_short_recv",
            "rc_nak_short_recv_multi",
            "uc_loss_only",
            "uc_short_recv"
        ]
    );
    assert_eq!(
        cases_that_show(|p| p.resumed_read_continues = spec.resumed_read_continues),
        ["loss_read_resp_last"]
    );
    assert_eq!(
        cases_that_show(|p| p.broken_message_costs_next = spec.broken_message_costs_next),
        ["uc_loss_middle"]
    );
    assert_eq!(
        cases_that_show(|p| p.rnr_nak_acknowledges = spec.rnr_nak_acknowledges),
        ["rc_rnr_writeimm"]
    );
    assert_eq!(
        cases_that_show(|p| p.one_resend_per_ack = spec.one_resend_per_ack),
        ["reorder_request"]
    );
    let with_receives = cases_that_show(|p| p.connections_report_grh = false);
    let with_lengths = cases_that_show(|p| p.requests_report_length = false);
    let with_immediate = cases_that_show(|p| p.requests_report_immediate = false);
    let with_credits = cases_that_show(|p| p.credits = true);
    for (shown, case, least) in [
        (with_receives, "rc_send", 15),
        (with_lengths, "rc_write", 25),
        (with_immediate, "rc_send_imm", 6),
        (with_credits, "rc_send", 15),
    ] {
        assert!(shown.iter().any(|name| name == case), "{shown:?}");
        assert!(shown.len() >= least, "{shown:?}");
    }
    let every = cases_that_show(|p| p.mig_req = true);
    assert_eq!(every.len(), cases().count());

    // Approximate: nothing here shows them.
    for give_up in [
        (|p: &mut Profile| p.ack_every = 32) as fn(&mut Profile),
        |p| p.read_gap_noticed = true,
    ] {
        assert_eq!(cases_that_show(give_up), [""; 0]);
    }
}
