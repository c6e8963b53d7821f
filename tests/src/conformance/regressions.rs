//! Faults that were found once, each as the situation that showed it.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Section};
use softroce_sim::card::*;
use softroce_sim::memory::*;
use softroce_sim::time::*;
use softroce_sim::wire::*;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "What is done locally is no message: the peer's credits do not count it",
        [local_work_does_not_eat_credits]
    ),
    rule!(
        Section("9.7.5.2.8"),
        "The wait of an RNR NAK holds even if READ data is missing before what it names",
        [rnr_wait_holds_even_if_a_read_response_is_missing]
    ),
    rule!(
        Behaviour,
        "A peer that reads for ever does not silence this side's own requests",
        [requests_get_their_turn_beside_read_responses]
    ),
    rule!(
        Behaviour,
        "A packet never leaves in a priority the port did not ask for",
        [ready_mask_holds_for_datagrams_of_two_levels]
    ),
    rule!(
        Behaviour,
        "Nothing waits for a priority that its path no longer has",
        [
            ready_mask_holds_after_a_change_of_path_the_other_way,
            requests_move_to_the_priority_of_a_new_path,
            answers_move_to_the_priority_of_a_new_path
        ]
    ),
    rule!(
        Section("9.7.7.2"),
        "An acknowledgement that comes again may bring credits",
        [credits_of_a_repeated_ack_count]
    ),
    rule!(
        Behaviour,
        "PSNs before the first expected one are numbers like any other to an unreliable connection",
        [uc_message_with_a_gap_is_not_taken]
    ),
    rule!(
        Behaviour,
        "A whole message is taken wherever its PSNs lie",
        [uc_message_below_the_first_psn_is_taken]
    ),
    rule!(
        Behaviour,
        "The key of an ended registration stays closed while others come and go",
        [an_old_key_stays_closed]
    ),
    rule!(
        Behaviour,
        "What the receiver was not ready for was taken after all: the wait is over",
        [an_ack_ends_the_rnr_wait]
    ),
    rule!(
        Section("10.6.5.1"),
        "A fenced invalidation waits for all that was posted before it",
        [fence_on_local_invalidate_waits]
    ),
    rule!(
        Behaviour,
        "An MSN cannot undo what an acknowledgement says is done",
        [a_wrong_msn_does_not_put_to_sleep_for_ever]
    ),
    rule!(
        Behaviour,
        "A timeout that is set while packets are unanswered runs for them",
        [timeout_set_in_sqd_takes_effect]
    ),
    rule!(
        Behaviour,
        "With no credits left one more may be tried, whatever was done locally in between",
        [one_local_request_and_credits_of_zero]
    ),
    rule!(
        Section("9.7.5.2.8"),
        "Copies of an RNR NAK do not prolong its wait",
        [copies_of_an_rnr_nak]
    ),
    rule!(
        Behaviour,
        "A READ that waits its turn is sent even if no new one may begin",
        [a_read_that_waits_when_the_limit_becomes_zero]
    ),
];

fn local_work_does_not_eat_credits() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    let _ = b.says();
    // The peer has four receives left: credits code 4 is 4.
    b.hear(ack_with_credits(0, 1, 4));
    assert_eq!(b.completed(), [(1, Status::Success)]);
    for _ in 0..6 {
        windows::bound(&mut b);
    }
    b.post_send(2, 8);
    b.wait(Span::from_ms(10_000));
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
}

fn rnr_wait_holds_even_if_a_read_response_is_missing() {
    let mut b = Bench::ready();
    b.post_read(1, 100);
    b.post_send(2, 8);
    let _ = b.says();
    b.hear(rnr_nak(1, 22)); // 20.48 ms
    assert_eq!(
        b.says(),
        [""; 0],
        "nothing before the RNR timer has run out"
    );
}

fn requests_get_their_turn_beside_read_responses() {
    let mut b = Bench::ready();
    let from = b.remote(0);
    let mut n = 0;
    for _ in 0..2 {
        b.hear(read(n, from, 4096));
        n += 4;
    }
    b.post_write(1, 8);
    for _ in 0..10_000 {
        let p = b.pull().unwrap();
        if !p.bth.opcode().is_response() {
            return;
        }
        if p.bth.opcode().ends_message() {
            b.hear(read(n, from, 4096));
            n += 4;
        }
    }
    panic!("10000 packets, none of them the request's");
}

fn ready_mask_holds_for_datagrams_of_two_levels() {
    let routes = RouteTable::new();
    let config = CardConfig {
        port_mtu: Mtu::M1024,
        ..CardConfig::new("c", own_gid(), MacAddr::default())
    };
    let mut card = Card::new(config, 1, routes);
    let pd = card.alloc_pd();
    let cq = card.create_cq(16).unwrap();
    let mut qp = card
        .create_qp(&QpInit::new(QpType::Ud, pd, cq.id(), 4))
        .unwrap();
    let mr = card.register(pd, Buffer::new(4096), all_rights()).unwrap();
    let now = Time::ZERO;
    card.modify_qp(now, qp.number(), &QpAttributes::to_init_datagrams(1))
        .unwrap();
    card.modify_qp(now, qp.number(), &QpAttributes::to(State::Rtr))
        .unwrap();
    card.modify_qp(now, qp.number(), &QpAttributes::to_rts(Psn::new(0), None))
        .unwrap();
    let mut ah = |sl| {
        card.create_ah(
            pd,
            &AddressVector {
                dgid: peer_gid(),
                dmac: MacAddr::default(),
                sl,
                traffic_class: 0,
                hop_limit: 64,
                flow_label: 0,
                udp_src: None,
                vlan: None,
            },
        )
        .unwrap()
    };
    let (low, high) = (ah(0), ah(5));
    for (id, address, len) in [(1, low, 2000), (2, high, 8)] {
        let sges = [Sge {
            addr: mr.addr,
            len,
            lkey: mr.lkey,
        }];
        qp.post_send(&SendRequest {
            to: Some(Datagram {
                address,
                qp: QpNumber::new(9),
                qkey: 1,
            }),
            ..SendRequest::new(id, Work::Send, &sges)
        })
        .unwrap();
    }
    card.doorbell(now, qp.number());
    let mut env = Staging::default();
    if let Some(p) = card.next_packet(now, PriorityMask::NONE.with(0), &mut env) {
        assert_eq!(p.priority, 0, "a packet of a paused priority");
    }
}

fn ready_mask_holds_after_a_change_of_path_the_other_way() {
    let mut b = Bench::ready();
    b.post_write(1, 4000);
    b.pull().unwrap();
    b.go_to(State::Reset).unwrap();
    let mut steps = b.steps();
    if let Some(a) = &mut steps[1].address {
        a.sl = 5;
    }
    for s in steps {
        b.modify(s).unwrap();
    }
    b.post_write(2, 8);
    let p = b
        .card
        .next_packet(b.now, PriorityMask::NONE.with(3), &mut b.env);
    assert!(p.is_none(), "priority {}", p.unwrap().priority);
}

/// Gives the queue pair another service level, in SQD.
fn change_level(b: &mut Bench, sl: u8) {
    let address = b.steps()[1].address.unwrap();
    b.modify(QpAttributes {
        state: Some(State::Sqd),
        address: Some(AddressVector { sl, ..address }),
        ..Default::default()
    })
    .unwrap();
}

/// The priority of what goes while the bench's own, 3, is paused.
fn beside_the_old_one(b: &mut Bench) -> Option<u8> {
    let ready = PriorityMask::ALL.without(3);
    let packet = b.card.next_packet(b.now, ready, &mut b.env)?;
    Some(packet.priority)
}

fn requests_move_to_the_priority_of_a_new_path() {
    let mut b = Bench::ready();
    b.post_write(1, 4000);
    assert_eq!(b.pull().unwrap().priority, 3);
    assert_eq!(beside_the_old_one(&mut b), None);
    b.go_to(State::Sqd).unwrap();
    change_level(&mut b, 5);
    b.go_to(State::Rts).unwrap();
    assert_eq!(beside_the_old_one(&mut b), Some(5));
}

fn answers_move_to_the_priority_of_a_new_path() {
    let mut b = Bench::ready();
    let to = b.remote(0);
    b.hear(write_only(0, to, &[1; 8]).ask());
    assert_eq!(beside_the_old_one(&mut b), None);
    b.go_to(State::Sqd).unwrap();
    change_level(&mut b, 5);
    assert_eq!(beside_the_old_one(&mut b), Some(5));
}

fn credits_of_a_repeated_ack_count() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    b.hear(ack_with_credits(0, 1, 0));
    b.post_send(2, 8);
    b.post_send(3, 8);
    let _ = b.says();
    // receives are posted; unsolicited ACK with credits
    b.hear(ack_with_credits(0, 1, 5));
    assert_eq!(b.says(), ["Send Only 2 [8] ?"]);
}

/// A packet of a SEND on UC, of one path MTU; the first PSN of the connection is 100.
fn at_psn(opcode: Opcode, psn: u32) -> Say {
    send(opcode, psn.wrapping_sub(100), &[psn as u8; 1024]).uc()
}

fn uc_message_with_a_gap_is_not_taken() {
    let mut b = Bench::new(Setup::uc());
    b.post_recv(1, 0, 65_536);
    // The middle of it, 99 and 100, is lost.
    b.hear(at_psn(Opcode::RC_SEND_FIRST, 98));
    b.hear(at_psn(Opcode::RC_SEND_LAST, 101));
    assert_eq!(b.completed(), []);
}

fn uc_message_below_the_first_psn_is_taken() {
    let mut b = Bench::new(Setup::uc());
    b.post_recv(1, 0, 65_536);
    b.hear(at_psn(Opcode::RC_SEND_FIRST, 90));
    b.hear(at_psn(Opcode::RC_SEND_MIDDLE, 91));
    b.hear(at_psn(Opcode::RC_SEND_LAST, 92));
    assert_eq!(b.completed(), [(1, Status::Success)]);
}

fn an_old_key_stays_closed() {
    let mut b = Bench::ready();
    let mut old = None;
    for i in 0..257 {
        let r = b
            .card
            .register(b.pd, Buffer::new(64), all_rights())
            .unwrap();
        if i == 0 {
            old = Some(r.rkey);
        } else {
            assert_ne!(Some(r.rkey), old, "after {i} registrations");
        }
        b.card.deregister(r.lkey).unwrap();
    }
}

fn an_ack_ends_the_rnr_wait() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    b.hear(rnr_nak(0, 22));
    b.hear(ack(0, 1));
    let _ = b.completed();
    b.post_send(2, 8);
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
}

fn fence_on_local_invalidate_waits() {
    let mut b = Bench::ready();
    let key = windows::bound(&mut b);
    b.post_send(2, 8); // tells the peer the key
    b.try_post(&SendRequest {
        fence: true,
        ..SendRequest::new(3, Work::LocalInvalidate(key), &[])
    })
    .unwrap();
    b.says();
    b.hear(write_only(0, windows::through(&b, key, 1000), b"x"));
    assert_eq!(b.says(), ["ACK 0 msn 1"]);
}

fn a_wrong_msn_does_not_put_to_sleep_for_ever() {
    let mut b = Bench::ready();
    for i in 0..4 {
        b.post_send(i, 8);
    }
    b.says();
    b.hear(ack_with_credits(3, 0, 1)); // msn does not count
    let _ = b.completed();
    b.post_send(9, 8);
    let s = b.says();
    b.wait(Span::from_ms(1_000_000));
    assert!(!b.says().is_empty() || !s.is_empty());
}

fn timeout_set_in_sqd_takes_effect() {
    let mut b = Bench::new(Setup {
        timeout: 0,
        ..Default::default()
    });
    b.post_write(1, 8);
    b.says();
    b.go_to(State::Sqd).unwrap();
    b.modify(QpAttributes {
        state: Some(State::Sqd),
        timeout: Some(14),
        ..Default::default()
    })
    .unwrap();
    b.wait(Span::from_ms(1000));
    assert!(!b.says().is_empty());
}

fn one_local_request_and_credits_of_zero() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    b.hear(ack_with_credits(0, 1, 0));
    b.completed();
    let key = windows::next(windows::window(&mut b));
    let binding = windows::part(&b);
    b.post(2, windows::bind(key, binding), &[]);
    b.post_send(3, 8);
    assert_eq!(b.says(), ["Send Only 1 [8] ?"]);
    assert_eq!(b.completed(), [(2, Status::Success)]);
}

fn copies_of_an_rnr_nak() {
    let mut b = Bench::ready();
    b.post_send(1, 8);
    b.says();
    // 20.48 ms, and a copy of the NAK every 10 ms: it is sent again when the first wait is over.
    for _ in 0..2 {
        b.hear(rnr_nak(0, 22));
        assert_eq!(b.says(), [""; 0]);
        b.wait(Span::from_ms(10));
    }
    b.hear(rnr_nak(0, 22));
    b.wait(Span::from_ms(1));
    assert_eq!(b.says().len(), 1);
}

fn a_read_that_waits_when_the_limit_becomes_zero() {
    let mut b = Bench::new(Setup {
        max_rd_atomic: 1,
        ..Default::default()
    });
    b.post_read(1, 8);
    b.post_read(2, 8);
    b.says();
    b.go_to(State::Sqd).unwrap();
    b.modify(QpAttributes {
        state: Some(State::Sqd),
        max_rd_atomic: Some(0),
        ..Default::default()
    })
    .unwrap();
    b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[0; 8]));
    b.go_to(State::Rts).unwrap();
    b.wait(Span::from_ms(100_000));
    assert!(b.completed().len() > 1 || !b.says().is_empty());
}
