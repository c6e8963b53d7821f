//! What is refused, and what is let go of.

use super::*;
use crate::wire::cm::{About, Rej};

#[test]
fn where_nobody_listens_the_answer_is_reason_8() {
    let mut w = World::new();
    w.ends[0].connect(w.now, &connect_to(1)).unwrap();
    w.run(&mut at_once);
    assert_eq!(w.messages(), ["REQ", "REJ"]);
    assert!(matches!(
        w.events[0][..],
        [Event::Rejected {
            reason: Reason::Rejected(RejectReason::INVALID_SERVICE_ID),
            ..
        }]
    ));
    assert!(w.ends[0].is_empty() && w.ends[1].is_empty());
}

#[test]
fn a_program_says_no_at_either_end() {
    for end in [1, 0] {
        let mut w = World::new();
        w.willing = false;
        w.ends[1].listen(SERVICE).unwrap();
        let asked = w.ends[0].connect(w.now, &connect_to(1)).unwrap();
        assert!(w.step(&mut at_once));
        let id = w.events[1][0].id();
        if end == 1 {
            w.ends[1]
                .reject(w.now, id, RejectReason::CONSUMER, b"busy")
                .unwrap();
        } else {
            let accept = Accept {
                address: vector(0),
                end: endpoint(1),
                private_data: &[],
            };
            w.ends[1].accept(w.now, id, &accept).unwrap();
            assert!(w.step(&mut at_once));
            w.ends[0]
                .reject(w.now, asked, RejectReason::CONSUMER, b"busy")
                .unwrap();
        }
        w.run(&mut at_once);
        let told = w.events[1 - end].last().unwrap();
        let Event::Rejected {
            reason,
            private_data,
            ..
        } = told
        else {
            panic!("{told:?}");
        };
        assert_eq!(*reason, Reason::Rejected(RejectReason::CONSUMER));
        assert_eq!(private_data[..5], *b"busy\0");
        assert!(w.ends[0].is_empty() && w.ends[1].is_empty());
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let mut w = World::new();
    let mut connect = connect_to(1);
    let data = [0; 57];
    connect.private_data = &data;
    let error = w.ends[0].connect(w.now, &connect).unwrap_err();
    assert_eq!(
        error.to_string(),
        "57 bytes of private data do not fit into a REQ, which has room for 56"
    );
    connect.service = ServiceId(5);
    assert!(
        w.ends[0].connect(w.now, &connect).is_ok(),
        "92 without who asks"
    );
    connect = connect_to(1);
    connect.retry_count = 8;
    let error = w.ends[0].connect(w.now, &connect).unwrap_err();
    assert_eq!(
        error.to_string(),
        "retry_count is 8; the largest value is 7"
    );
    connect = connect_to(1);
    connect.qp_type = QpType::Ud;
    let error = w.ends[0].connect(w.now, &connect).unwrap_err();
    assert_eq!(error, CmError::NotConnected(QpType::Ud));
    connect = connect_to(1);
    connect.address.dgid = std::net::Ipv6Addr::LOCALHOST.into();
    let error = w.ends[0].connect(w.now, &connect).unwrap_err();
    assert_eq!(error, CmError::Unreachable(connect.address.dgid));
    w.ends[1].listen(SERVICE).unwrap();
    assert_eq!(w.ends[1].listen(SERVICE), Err(CmError::InUse(SERVICE)));
    w.ends[1].unlisten(SERVICE).unwrap();
    assert_eq!(
        w.ends[1].unlisten(SERVICE),
        Err(CmError::NotListening(SERVICE))
    );
    let id = w.ends[0].connect(w.now, &connect_to(1)).unwrap();
    let error = w.ends[0].establish(id, &[]).unwrap_err();
    let text = format!("connection {id} cannot be established: it is at \"REQ sent\"");
    assert_eq!(error.to_string(), text);
}

#[test]
fn requests_beyond_the_backlog_or_the_room_are_rejected() {
    for by_backlog in [true, false] {
        let mut w = World::new();
        w.willing = false;
        match by_backlog {
            true => w.ends[1].config.backlog = 2,
            false => w.ends[1].config.max_connections = 2,
        }
        w.ends[1].listen(SERVICE).unwrap();
        for n in 0..3 {
            let mut connect = connect_to(1);
            connect.end.qp = QpNumber::new(0x200 + n);
            w.ends[0].connect(w.now, &connect).unwrap();
        }
        for _ in 0..4 {
            w.step(&mut at_once);
        }
        assert_eq!(w.names(1), ["CONNECT_REQUEST"; 2]);
        assert!(matches!(
            w.events[0][..],
            [Event::Rejected {
                reason: Reason::Rejected(RejectReason::NO_RESOURCES),
                ..
            }]
        ));
        // A request that is answered makes room for one.
        let id = w.events[1][0].id();
        w.ends[1]
            .reject(w.now, id, RejectReason::CONSUMER, &[])
            .unwrap();
        assert_eq!(w.ends[1].listeners[&SERVICE], 1);
    }
}

#[test]
fn whoever_lets_go_is_told_nothing_and_leaves_nothing() {
    // After each number of steps, at either end.
    for end in 0..2 {
        for steps in 0..6 {
            let mut w = World::new();
            w.ends[1].listen(SERVICE).unwrap();
            w.ends[0].connect(w.now, &connect_to(1)).unwrap();
            for _ in 0..steps {
                w.step(&mut at_once);
            }
            let ids: Vec<_> = w.ends[end].connections.keys().copied().collect();
            let told = w.events[end].len();
            for id in ids {
                w.ends[end].abandon(w.now, id).unwrap();
            }
            w.run(&mut at_once);
            if end == 0 || steps > 0 {
                assert_eq!(
                    w.events[end].len(),
                    told,
                    "{end} after {steps}: {:?}",
                    w.events
                );
                for end in 0..2 {
                    let cm = &w.ends[end];
                    assert!(cm.is_empty(), "{end} after {steps}: {:?}", w.phases());
                    assert!(cm.by_qp.is_empty() && cm.by_remote.is_empty());
                }
            }
        }
    }
}

#[test]
fn who_asks_and_takes_it_back_leaves_nothing_for_a_program_that_does_not_look() {
    let mut w = World::new();
    let [asker, asked] = &mut w.ends;
    asked.listen(SERVICE).unwrap();
    for _ in 0..5000 {
        let id = asker.connect(w.now, &connect_to(1)).unwrap();
        let request = asker.next_message().unwrap();
        asked.receive(w.now, &request.mad, gid(0));
        let taken_back = Mad::new(
            7,
            Message::Rej(Rej {
                local_id: id,
                about: About::Req,
                reason: RejectReason::TIMEOUT,
                ..Rej::default()
            }),
        );
        asked.receive(w.now, &taken_back, gid(0));
        assert!(asked.is_empty());
        asker.abandon(w.now, id).unwrap();
        while asker.next_message().is_some() {}
    }
    assert_eq!(asked.next_event(), None);
    assert!(asked.next_message().is_none());
}

#[test]
fn what_is_to_be_said_does_not_grow_with_what_nobody_takes() {
    let mut w = World::new();
    let [asker, asked] = &mut w.ends;
    asker.connect(w.now, &connect_to(1)).unwrap();
    let request = asker.next_message().unwrap();
    for _ in 0..100_000 {
        // Nobody listens there.
        asked.receive(w.now, &request.mad, gid(0));
    }
    let waiting = std::iter::from_fn(|| asked.next_message()).count();
    assert!((1000..2000).contains(&waiting), "{waiting}");
    // Once they are gone, peers are answered again.
    asked.receive(w.now, &request.mad, gid(0));
    assert!(asked.next_message().is_some());
}
