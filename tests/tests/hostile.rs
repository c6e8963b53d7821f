//! A peer that says whatever it likes to a card that works for others: what it may do to whom is in
//! `softroce_tests::hostile`.
//!
//! `SOFTROCE_HOSTILE_PACKETS` says how many packets the two long tests send, `SOFTROCE_HOSTILE_SEED` from
//! which seed, and `SOFTROCE_HOSTILE_CHECK` after how many all memory is looked at.

use softroce_sim::card::{Counters, QpType, Refusal, Status};
use softroce_sim::wire::{
    AtomicAckEth, AtomicEth, Ext, Gid, Immediate, Opcode, QpNumber, Route, Syndrome,
};
use softroce_tests::bench::{self, Bench, QKEY, Setup};
use softroce_tests::hostile::{Attack, End, Report, run};
use std::net::Ipv4Addr;
use std::time::Instant;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is {text:?}, which is not a number")))
}

fn attack(forging: bool) -> Attack {
    Attack {
        seed: variable("SOFTROCE_HOSTILE_SEED").unwrap_or(1),
        packets: variable("SOFTROCE_HOSTILE_PACKETS")
            .unwrap_or(100_000)
            .max(1),
        forging,
        rxe: false,
        go_back_0: false,
        slow: false,
        check_every: variable("SOFTROCE_HOSTILE_CHECK").unwrap_or(64).max(1),
    }
}

/// Carries it out, says what came of it, and asks whether it got anywhere.
fn carry_out(attack: Attack) -> Report {
    let begin = Instant::now();
    let report = run(attack);
    let seconds = begin.elapsed().as_secs_f64();
    let (packets, seed) = (attack.packets, attack.seed);
    let whose = match attack.forging {
        true => "a peer's address",
        false => "an address of its own",
    };
    println!(
        "{packets} packets from {whose}, seed {seed}: {seconds:.1} s\n{}",
        report.tally
    );
    println!(
        "  bystander: {} requests, all right; others: {} requests, {} connections failed\n",
        report.undisturbed, report.completed, report.failures
    );
    report
}

fn is_not_turned_away_at_the_door(report: &Report) {
    let all = report.tally.sum(|_| true);
    let deep = report.tally.sum(End::is_deep);
    let taken = report.tally.sum(|end| matches!(end, End::Taken(_)));
    assert!(deep * 2 > all, "{deep} of {all} reach a queue pair");
    assert!(taken * 4 > all, "{taken} of {all} are taken");
    // Every way to end but two: the card has no limit on resources, and its datagrams are rarely too long.
    for why in Refusal::ALL {
        let n = report.tally.get(End::Refused(why));
        let rare = matches!(why, Refusal::NoResources | Refusal::TooLong);
        assert!(rare || n * 2000 > all, "{}: {n} of {all}", why.name());
    }
    for what in [
        "ACK or NAK",
        "ATOMIC WRITE",
        "RC SEND",
        "RC SEND with invalidate",
        "RC WRITE",
        "READ request",
        "READ response",
        "UC SEND",
        "UC WRITE",
        "atomic",
        "atomic answer",
        "datagram",
    ] {
        let n = report.tally.get(End::Taken(what));
        assert!(n * 4000 > all, "{what}: {n} of {all}");
    }
    let c = &report.counters;
    for (what, n) in [
        ("access", c.naks_sent.remote_access),
        ("invalid", c.naks_sent.invalid_request),
        ("sequence", c.naks_sent.sequence),
        ("rnr", c.rnr_naks_sent),
        ("duplicates", c.duplicate_requests),
        ("read data", c.read_response_packets),
        ("implied", c.implied_naks),
        ("bystander", report.undisturbed),
        ("failures", report.failures),
    ] {
        assert!(n * 5000 > all, "{what}: {n}");
    }
}

#[test]
fn from_an_address_of_its_own_it_disturbs_nobody() {
    is_not_turned_away_at_the_door(&carry_out(attack(false)));
}

#[test]
fn from_a_peers_address_it_gets_what_the_keys_allow_and_everything_ends() {
    is_not_turned_away_at_the_door(&carry_out(attack(true)));
}

#[test]
fn so_it_is_with_other_habits() {
    for n in 0..8 {
        for forging in [false, true] {
            carry_out(Attack {
                seed: attack(forging).seed + 1000 + n,
                packets: attack(forging).packets / 20 + 1,
                rxe: n & 1 != 0,
                go_back_0: n & 2 != 0,
                slow: n & 4 != 0,
                ..attack(forging)
            });
        }
    }
}

/// Every kind of extended headers.
fn all_ext(b: &Bench) -> Vec<Ext> {
    let (reth, immediate) = (bench::reth(b.remote(0), 8), Immediate::from_be(1));
    let aeth = bench::aeth(Syndrome::ack(Syndrome::UNLIMITED), 0);
    let atomic = AtomicEth {
        va: reth.va,
        rkey: reth.rkey,
        swap_add: 1,
        compare: 0,
    };
    vec![
        Ext::None,
        aeth,
        Ext::AtomicAck(aeth.aeth().unwrap(), AtomicAckEth(1)),
        Ext::Reth(reth),
        Ext::RethImmediate(reth, immediate),
        Ext::Immediate(immediate),
        Ext::Ieth(reth.rkey),
        Ext::Atomic(atomic),
        Ext::Deth(bench::deth(QKEY)),
        Ext::DethImmediate(bench::deth(QKEY), immediate),
        Ext::Cnp,
    ]
}

#[test]
fn a_send_or_write_with_the_extended_headers_of_another_opcode_is_refused() {
    let (mut right, mut wrong) = (0, 0);
    for (service, bits, opcodes) in [
        (QpType::Rc, 0x00, vec![0x04, 0x05, 0x0a, 0x0b, 0x17]),
        (QpType::Uc, 0x20, vec![0x04, 0x05, 0x0a, 0x0b]),
        (QpType::Ud, 0x60, vec![0x04, 0x05]),
    ] {
        for opcode in opcodes {
            let opcode = Opcode(bits | opcode);
            for i in 0..11 {
                let mut b = Bench::new(Setup {
                    service,
                    ..Default::default()
                });
                let ext = all_ext(&b)[i];
                // What a decoder makes of the opcode has this form.
                let (own, _) = Ext::decode(opcode, &[0; 64]).unwrap();
                let same = std::mem::discriminant(&own) == std::mem::discriminant(&ext);
                // The key that is to be invalidated is a region's, which is another fault.
                if same && matches!(ext, Ext::Ieth(_)) {
                    continue;
                }
                b.post_recv(1, 1024, 64);
                b.hear(bench::say(opcode, 0, ext, &[7; 8]));
                let taken = b.counted().refused.iter().count() == 0;
                assert_eq!(taken, same, "{opcode} with {ext:?}");
                let done = b.poll().iter().any(|c| c.status == Status::Success);
                assert!(same || !done, "{opcode} with {ext:?}");
                assert!(
                    same || b.memory(0, 4096) == [0; 4096],
                    "{opcode} with {ext:?}"
                );
                (right, wrong) = (right + u32::from(same), wrong + u32::from(!same));
            }
        }
    }
    assert_eq!((right, wrong), (10, 110));
}

#[test]
fn a_multicast_group_takes_datagrams_and_nothing_else() {
    let group: Gid = Ipv4Addr::new(239, 1, 2, 3).into();
    for opcode in 0..=u8::MAX {
        let opcode = Opcode(opcode);
        let mut b = Bench::new(Setup::ud());
        b.card.attach_mcast(b.qp.number(), group).unwrap();
        b.post_recv(1, 0, 256);
        let route = Route {
            dst: group,
            ..b.route
        };
        let (ext, _) = match opcode {
            Opcode::UD_SEND_ONLY => (Ext::Deth(bench::deth(QKEY)), &[][..]),
            Opcode::UD_SEND_ONLY_IMM => {
                let ext = Ext::DethImmediate(bench::deth(QKEY), Immediate::from_be(1));
                (ext, &[][..])
            }
            _ => Ext::decode(opcode, &[0; 64]).unwrap(),
        };
        b.hear_along(
            bench::say(opcode, 0, ext, b"").to(QpNumber::MULTICAST),
            &route,
        );
        let datagram = matches!(opcode, Opcode::UD_SEND_ONLY | Opcode::UD_SEND_ONLY_IMM);
        assert_eq!(b.poll().len(), usize::from(datagram), "{opcode}");
        // The packet was for the group: what a member has counted has not moved.
        assert_eq!(b.counted(), Counters::default(), "{opcode}");
        let refused: u64 = b.card.counters().refused.iter().map(|(_, n)| n).sum();
        assert_eq!(refused, u64::from(!datagram), "{opcode}");
    }
}
