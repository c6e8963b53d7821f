//! Completion queues: who is told of what, when they change their size, and how they end.

use crate::bench::*;
use crate::conformance::Rule;
use crate::conformance::Source::{Behaviour, Id, Section};
use softroce_sim::card::{
    AsyncEvent, CompletionQueue, CqId, CreateError, Notify, QpInit, QpType, State, Work,
};
use softroce_sim::wire::NakCode;

pub(super) const RULES: &[Rule] = &[
    rule!(
        Behaviour,
        "Nobody is told who did not ask",
        [nobody_is_told_who_did_not_ask]
    ),
    rule!(
        Section("11.4.2.2"),
        "One arming is one notification",
        [one_arming_is_one_notification]
    ),
    rule!(
        Behaviour,
        "Send completions count for the next one",
        [send_completions_count_for_the_next_one]
    ),
    rule!(
        Behaviour,
        "A solicited notification waits for what the peer asked for",
        [a_solicited_notification_waits_for_what_the_peer_asked_for]
    ),
    rule!(
        Behaviour,
        "Unreliable services solicit too",
        [unreliable_services_solicit_too]
    ),
    rule!(
        Behaviour,
        "An error is as good as solicited",
        [an_error_is_as_good_as_solicited]
    ),
    rule!(
        Section("11.4.2.2"),
        "Armed for the next one is not weakened, armed for solicited is widened",
        [armed_for_any_is_not_weakened_and_armed_for_solicited_is_widened]
    ),
    rule!(
        Behaviour,
        "Each queue is armed for itself",
        [each_queue_is_armed_for_itself]
    ),
    rule!(
        Behaviour,
        "A queue that changes its size keeps what is in it",
        [a_queue_that_changes_its_size_keeps_what_is_in_it]
    ),
    rule!(
        Id("C11-17"),
        "A completion queue in use is not destroyed",
        [a_queue_in_use_is_not_destroyed]
    ),
    rule!(
        Behaviour,
        "Local work tells as other work does",
        [local_work_tells_as_other_work_does]
    ),
];

fn told(b: &mut Bench) -> Vec<CqId> {
    std::iter::from_fn(|| b.card.next_notification()).collect()
}

fn arm(b: &mut Bench, which: Notify) {
    b.card.request_notify(b.cq.id(), which).unwrap();
}

/// A bench with enough receives.
fn receiving() -> Bench {
    let mut b = Bench::ready();
    for id in 0..20 {
        b.post_recv(id, 0, 64);
    }
    b
}

fn nobody_is_told_who_did_not_ask() {
    let mut b = receiving();
    b.hear(send_only(0, b"x").solicited());
    assert!(told(&mut b).is_empty());
    // What is there already is not told of.
    arm(&mut b, Notify::Next);
    assert!(told(&mut b).is_empty());
}

fn one_arming_is_one_notification() {
    let mut b = receiving();
    let cq = b.cq.id();
    arm(&mut b, Notify::Next);
    arm(&mut b, Notify::Next);
    b.hear_all((0..3).map(|n| send_only(n, b"x")));
    assert_eq!(told(&mut b), [cq]);
    b.hear(send_only(3, b"x"));
    assert!(told(&mut b).is_empty());
    arm(&mut b, Notify::Next);
    b.hear(send_only(4, b"x"));
    assert_eq!(told(&mut b), [cq]);
}

fn send_completions_count_for_the_next_one() {
    let mut b = Bench::ready();
    let cq = b.cq.id();
    b.post_send(1, 8);
    b.says();
    arm(&mut b, Notify::Next);
    b.hear(ack(0, 1));
    assert_eq!(told(&mut b), [cq]);
    // One that makes no completion tells nobody.
    arm(&mut b, Notify::Next);
    b.hear(write_only(0, b.remote(0), b"x").solicited());
    assert!(told(&mut b).is_empty());
}

fn a_solicited_notification_waits_for_what_the_peer_asked_for() {
    let mut b = receiving();
    let cq = b.cq.id();
    arm(&mut b, Notify::Solicited);
    b.post_send(1, 8);
    b.says();
    b.hear(ack(0, 1));
    b.hear_all([send_only(0, b"x"), send_only(1, b"x")]);
    assert!(told(&mut b).is_empty());
    b.hear(send_only(2, b"x").solicited());
    assert_eq!(told(&mut b), [cq]);
    b.hear(send_only(3, b"x").solicited());
    assert!(told(&mut b).is_empty(), "one per arming");
    arm(&mut b, Notify::Solicited);
    b.hear(write_imm(4, b.remote(0), b"x", 1).solicited());
    assert_eq!(told(&mut b), [cq]);
}

fn unreliable_services_solicit_too() {
    for service in [QpType::Uc, QpType::Ud] {
        let mut b = Bench::new(Setup {
            service,
            ..Default::default()
        });
        let cq = b.cq.id();
        b.post_recv(1, 0, 64);
        b.post_recv(2, 0, 64);
        arm(&mut b, Notify::Solicited);
        let packet = |n| match service {
            QpType::Uc => send_only(n, b"x").uc(),
            _ => datagram(n, QKEY, b"x"),
        };
        b.hear(packet(0));
        assert!(told(&mut b).is_empty());
        b.hear(packet(1).solicited());
        assert_eq!(told(&mut b), [cq]);
    }
}

fn an_error_is_as_good_as_solicited() {
    let mut b = Bench::ready();
    let cq = b.cq.id();
    b.post_send(1, 8);
    b.says();
    arm(&mut b, Notify::Solicited);
    b.hear(nak(0, NakCode::InvalidRequest));
    assert_eq!(told(&mut b), [cq]);
    // Flushed ones are errors.
    let mut b = receiving();
    arm(&mut b, Notify::Solicited);
    b.go_to(State::Error).unwrap();
    assert_eq!(told(&mut b), [cq]);
}

fn armed_for_any_is_not_weakened_and_armed_for_solicited_is_widened() {
    let mut b = receiving();
    let cq = b.cq.id();
    arm(&mut b, Notify::Next);
    arm(&mut b, Notify::Solicited);
    b.hear(send_only(0, b"x"));
    assert_eq!(told(&mut b), [cq]);
    arm(&mut b, Notify::Solicited);
    arm(&mut b, Notify::Next);
    b.hear(send_only(1, b"x"));
    assert_eq!(told(&mut b), [cq]);
}

fn each_queue_is_armed_for_itself() {
    let mut b = Bench::ready();
    let recv_cq = b.card.create_cq(16).unwrap();
    let init = QpInit {
        recv_cq: recv_cq.id(),
        ..QpInit::new(QpType::Rc, b.pd, b.cq.id(), 4)
    };
    b.qp = b.card.create_qp(&init).unwrap();
    b.bring_up(State::Rts).unwrap();
    b.post_recv(1, 0, 64);
    b.post_send(2, 8);
    b.says();
    arm(&mut b, Notify::Next);
    b.hear(send_only(0, b"x"));
    assert!(told(&mut b).is_empty());
    b.card.request_notify(recv_cq.id(), Notify::Next).unwrap();
    b.hear(ack(0, 1));
    assert_eq!(told(&mut b), [b.cq.id()]);
}

fn a_queue_that_changes_its_size_keeps_what_is_in_it() {
    let mut b = Bench::new(Setup {
        cqe: 4,
        ..Default::default()
    });
    for id in 0..7 {
        b.post_recv(id, 0, 64);
    }
    b.hear_all((0..3).map(|n| send_only(n, b"x")));
    let first = b.cq.poll().unwrap().wr_id;
    assert_eq!(first, 0);
    // Not smaller than what waits, not larger than there are.
    for size in [0, 1, softroce_sim::card::MAX_CQE + 1] {
        assert!(matches!(
            b.card.resize_cq(&mut b.cq, size),
            Err(CreateError::OutOfRange { what: "cqe", .. })
        ));
    }
    arm(&mut b, Notify::Next);
    b.card.resize_cq(&mut b.cq, 6).unwrap();
    b.hear_all((3..7).map(|n| send_only(n, b"x")));
    assert_eq!(told(&mut b), [b.cq.id()], "it stays armed");
    assert!(!b.cq.is_empty());
    let ids: Vec<_> = b.completed().iter().map(|c| c.0).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    assert!(b.cq.is_empty());
    assert_eq!(b.state(), State::Rts);
    for id in 10..13 {
        b.post_recv(id, 0, 64);
    }
    b.hear_all((7..9).map(|n| send_only(n, b"x")));
    assert!(b.card.resize_cq(&mut b.cq, 1).is_err(), "two wait");
    // Smaller is smaller: the third completion runs over.
    b.card.resize_cq(&mut b.cq, 2).unwrap();
    b.hear(send_only(9, b"x"));
    assert_eq!(
        b.events(),
        [
            AsyncEvent::CqError(b.cq.id()),
            AsyncEvent::QpFatal(b.qp.number())
        ]
    );
}

fn a_queue_in_use_is_not_destroyed() {
    fn destroy(b: &mut Bench, cq: CompletionQueue) -> Result<(), CreateError> {
        b.card.destroy_cq(cq).map_err(|(error, _)| error)
    }
    let mut b = Bench::ready();
    let spare = b.card.create_cq(4).unwrap();
    let used = std::mem::replace(&mut b.cq, spare);
    let (error, used) = b.card.destroy_cq(used).unwrap_err();
    // By the send queue and by the receive queue.
    let what = "the completion queue";
    assert_eq!(error, CreateError::InUse { what, users: 2 });
    b.card.request_notify(used.id(), Notify::Next).unwrap();
    b.post_recv(1, 0, 64);
    b.hear(send_only(0, b"x"));
    b.card.destroy_qp(b.qp.number()).unwrap();
    let id = used.id();
    assert_eq!(destroy(&mut b, used), Ok(()));
    // It is gone: nothing is told of it, nothing can use it.
    assert!(told(&mut b).is_empty());
    let error = CreateError::UnknownCq(id);
    assert_eq!(b.card.request_notify(id, Notify::Next), Err(error));
    let init = QpInit::new(QpType::Rc, b.pd, id, 4);
    assert_eq!(b.card.create_qp(&init).err(), Some(error));
}

fn local_work_tells_as_other_work_does() {
    let mut b = Bench::ready();
    arm(&mut b, Notify::Next);
    b.post(1, Work::LocalInvalidate(b.mr.rkey), &[]);
    b.says();
    assert_eq!(told(&mut b), [b.cq.id()]);
}
