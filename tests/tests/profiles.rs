//! Habits of Linux' driver that its captures do not show, or show in passing: what the profile says is
//! what the card does. What the captures show is in `kernel_replay.rs`.

use softroce_sim::card::{Notification, PriorityMask, Profile, Refusal, Status, profile, recovery};
use softroce_sim::time::Span;
use softroce_sim::wire::{Ecn, Opcode, Operation};
use softroce_tests::bench::{Bench, Setup, read, read_response, send, send_only};

fn setup(profile: &Profile) -> Setup {
    let mut setup = Setup {
        memory: 1 << 20,
        max_wr: 128,
        ..Setup::default()
    };
    setup.config = setup.config.with_profile(profile);
    setup
}

/// The card has asked for 3000 bytes, and the second of three packets of data is lost.
fn with_lost_read_data(profile: &Profile) -> Bench {
    let mut b = Bench::new(setup(profile));
    b.post_read(7, 3000);
    assert_eq!(b.says(), ["RDMA Read Request 0 of 3000 ?"]);
    b.hear(read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1024]));
    b.hear(read_response(Opcode::RC_READ_RESPONSE_LAST, 2, &[3; 952]));
    b
}

#[test]
fn lost_read_data_is_asked_for_at_once_or_after_a_timeout() {
    let again = ["RDMA Read Request 1 of 1976 ?"];
    let mut spec = with_lost_read_data(&profile::SPEC);
    assert_eq!(spec.says(), again);

    let mut rxe = with_lost_read_data(&profile::RXE);
    assert!(rxe.says().is_empty());
    rxe.wait(Span::from_ms(68));
    assert_eq!(rxe.says(), again);
    rxe.hear(read_response(
        Opcode::RC_READ_RESPONSE_MIDDLE,
        1,
        &[2; 1024],
    ));
    rxe.hear(read_response(Opcode::RC_READ_RESPONSE_LAST, 2, &[3; 952]));
    assert_eq!(rxe.completed(), [(7, Status::Success)]);
}

/// Places of the packets that ask for an acknowledgement in a WRITE of 140 packets.
fn asking(profile: &Profile) -> Vec<usize> {
    let mut b = Bench::new(setup(profile));
    b.post_write(1, 140 * 1024);
    let packets = b.packets();
    let asks = packets.iter().enumerate().filter(|(_, p)| p.bth.ack_req());
    asks.map(|(i, _)| i + 1).collect()
}

#[test]
fn a_long_message_asks_now_and_then() {
    assert_eq!(asking(&profile::SPEC), [32, 64, 96, 128, 140]);
    assert_eq!(asking(&profile::RXE), [66, 132, 140]);
}

/// What the port fetches after 100 SENDs have come while it was busy.
fn after_a_pause(profile: &Profile) -> Vec<String> {
    let mut b = Bench::new(setup(profile));
    for n in 0..100 {
        b.post_recv(n.into(), 0, 64);
        b.hear(send_only(n, b"x"));
    }
    b.says()
}

#[test]
fn a_busy_port_draws_acknowledgements_together_or_keeps_them_apart() {
    assert_eq!(after_a_pause(&profile::SPEC), ["ACK 99 msn 100"]);
    // Not without end: the last one grows when too many wait.
    let rxe = after_a_pause(&profile::RXE);
    assert_eq!(rxe.len(), profile::RXE.separate_answers);
    assert_eq!(rxe[..2], ["ACK 0 msn 1", "ACK 1 msn 2"]);
    assert_eq!(rxe[rxe.len() - 1], "ACK 99 msn 100");
}

#[test]
fn profiles_and_recoveries_have_names_of_their_own() {
    let names = profile::ALL.map(|p| p.name);
    assert_eq!(names, ["spec", "rxe"]);
    let names = recovery::ALL.map(|r| r.name());
    assert_eq!(names, ["go-back-n", "go-back-0"]);
}

#[test]
fn read_data_of_a_later_read_shows_a_gap_to_every_card() {
    for profile in profile::ALL {
        let mut b = Bench::new(setup(profile));
        let asked = ["RDMA Read Request 0 of 8 ?", "RDMA Read Request 1 of 8 ?"];
        b.post_read(1, 8);
        b.post_read(2, 8);
        assert_eq!(b.says(), asked);
        b.hear(read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, &[2; 8]));
        assert_eq!(b.says(), asked, "{}", profile.name);
        assert_eq!(b.counted().implied_naks, 1);
    }
}

#[test]
fn the_answer_to_a_read_that_is_resumed_begins_anew_or_continues() {
    let ask = |b: &mut Bench, n, len: u32| {
        b.hear(read(n, b.remote(0), len));
        b.says()
    };
    let first = |n| format!("RDMA Read Response First {n} [1024]");
    let middle = |n| format!("RDMA Read Response Middle {n} [1024]");
    let last = |n, len| format!("RDMA Read Response Last {n} [{len}]");
    for profile in profile::ALL {
        let mut b = Bench::new(setup(profile));
        for n in [0, 3] {
            let whole = [first(n), middle(n + 1), last(n + 2, 952)];
            assert_eq!(ask(&mut b, n, 3000), whole);
        }
        // Of each of them, not of the latest alone; a READ from its beginning is no rest of the one before.
        for n in [0, 3] {
            let begin = if profile.resumed_read_continues {
                middle(n + 1)
            } else {
                first(n + 1)
            };
            assert_eq!(ask(&mut b, n + 1, 1976), [begin, last(n + 2, 952)]);
            let whole = [first(n), middle(n + 1), last(n + 2, 952)];
            assert_eq!(ask(&mut b, n, 3000), whole);
        }
    }
}

#[test]
fn no_more_reads_are_answered_again_at_once_than_may_be_out() {
    for profile in profile::ALL {
        let mut b = Bench::new(Setup {
            max_dest_rd_atomic: 2,
            ..setup(profile)
        });
        for n in 0..4 {
            b.hear(read(n, b.remote(0), 8));
            b.says();
        }
        b.hear_all([0, 1, 2, 3].map(|n| read(n, b.remote(0), 8)));
        let answers = [0, 1].map(|n| format!("RDMA Read Response Only {n} [8]"));
        assert_eq!(b.says(), answers, "{}", profile.name);
    }
}

#[test]
fn a_broken_message_costs_itself_or_the_next_one_too() {
    for profile in profile::ALL {
        let mut setup = Setup::uc();
        setup.config = setup.config.with_profile(profile);
        let mut b = Bench::new(setup);
        let packet = |opcode, n| send(opcode, n, &[n as u8; 1024]).uc();
        for id in 0..4 {
            b.post_recv(id, 0, 4096);
        }
        // The second packet of three is lost; then two messages of three packets are whole.
        b.hear(packet(Opcode::RC_SEND_FIRST, 0));
        b.hear(packet(Opcode::RC_SEND_LAST, 2));
        for n in [3, 6] {
            b.hear(packet(Opcode::RC_SEND_FIRST, n));
            b.hear(packet(Opcode::RC_SEND_MIDDLE, n + 1));
            b.hear(packet(Opcode::RC_SEND_LAST, n + 2));
        }
        let costs_next = profile.broken_message_costs_next;
        let delivered = if costs_next { 1 } else { 2 };
        assert_eq!(b.completed().len(), delivered, "{}", profile.name);
        // There was one gap, whatever it cost.
        assert_eq!(b.counted().out_of_sequence, 1);
        let dropped = if costs_next { 4 } else { 1 };
        assert_eq!(b.refused(Refusal::OutOfSequence), dropped);
    }
}

/// Requests that a program's answers would wait for go first, but not before what has a higher priority.
#[test]
fn requests_alone_are_asked_for_down_to_the_priority_in_which_something_is_owed() {
    for (ack_priority, overtakes) in [
        (None, true),
        (Some(3), true),
        (Some(1), true),
        (Some(6), false),
    ] {
        let mut setup = Setup::default();
        setup.config.ack_priority = ack_priority;
        let mut b = Bench::new(setup);
        b.post_recv(1, 0, 64);
        b.hear(send_only(0, &[1; 8]));
        assert!(b.card.owes_answers());
        b.post_send(2, 8);
        let request = |b: &mut Bench, ready| {
            b.card
                .next_request(b.now, ready, &mut b.env)
                .map(|p| p.bth.opcode())
        };
        let first = request(&mut b, PriorityMask::ALL);
        assert_eq!(
            first == Some(Opcode::RC_SEND_ONLY),
            overtakes,
            "{ack_priority:?}: {first:?}"
        );
        assert_eq!(first.is_some(), overtakes);
        // An answer that is paused is passed by.
        let open = PriorityMask::ALL.without(6);
        assert_eq!(request(&mut b, open).is_some(), !overtakes);
        assert_eq!(request(&mut b, PriorityMask::ALL), None);
        let answer = b.pull().unwrap();
        assert_eq!(answer.bth.opcode(), Opcode::RC_ACKNOWLEDGE);
        assert_eq!(b.pull(), None);
    }
}

/// As with answers; requests have priority 3.
#[test]
fn requests_alone_are_asked_for_down_to_the_priority_in_which_a_cnp_is_owed() {
    for (cnp_priority, overtakes) in [(1, true), (3, true), (6, false)] {
        let mut setup = Setup::default();
        setup.config.notification = Some(Notification {
            priority: cnp_priority,
            ..Notification::PAPER
        });
        // Nothing but the CNP is owed in a priority above the requests'.
        setup.config.ack_priority = Some(0);
        let mut b = Bench::new(setup);
        b.post_recv(1, 0, 64);
        let mut marked = b.packet_of(send_only(0, &[1; 8]));
        marked.ecn = Ecn::Experienced;
        let route = b.route;
        b.card.receive(b.now, &marked, &route, &mut b.env);
        b.post_send(2, 8);
        let request = |b: &mut Bench, ready| {
            b.card
                .next_request(b.now, ready, &mut b.env)
                .map(|p| p.bth.opcode())
        };
        let first = request(&mut b, PriorityMask::ALL);
        assert_eq!(first.is_some(), overtakes, "{cnp_priority}: {first:?}");
        let cnp = b.pull().unwrap();
        assert_eq!(cnp.bth.opcode().operation(), Operation::Cnp);
        // There is one request; after the CNP nothing holds it back.
        let second = request(&mut b, PriorityMask::ALL);
        assert_eq!(second.is_some(), !overtakes, "{cnp_priority}: {second:?}");
        assert_eq!(first.or(second), Some(Opcode::RC_SEND_ONLY));
    }
}
