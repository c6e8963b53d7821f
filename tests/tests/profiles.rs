//! Habits of Linux' driver that its captures do not show, or show in passing: what the profile says is
//! what the card does. What the captures show is in `kernel_replay.rs`.

use softroce_sim::card::{Profile, Status, profile};
use softroce_sim::time::Span;
use softroce_sim::wire::Opcode;
use softroce_tests::bench::{Bench, Setup, read_response, send_only};

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
fn profiles_have_names_of_their_own() {
    let names = profile::ALL.map(|p| p.name);
    assert_eq!(names, ["spec", "rxe"]);
}
