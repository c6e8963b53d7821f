//! Completion queues and channels, shared receive queues, and what is posted wrongly.

use super::*;

#[test]
fn a_completion_queue_grows_and_shrinks() {
    let (mut a, mut b) = pair();
    for id in 0..8 {
        b.receive(id, 0, 0);
        a.post(id, Work::Send, 0);
    }
    for id in 0..8 {
        a.done(id);
    }
    // All eight have arrived, as all are acknowledged; give the last completion time to be written.
    std::thread::sleep(QUIET);
    assert!(b.cq.resize(4).is_err());
    b.cq.resize(200).unwrap();
    for id in 0..8 {
        b.done(id);
    }
    b.cq.resize(8).unwrap();
    b.receive(8, 0, 0);
    a.post(8, Work::Send, 0);
    b.done(8);
}

#[test]
fn a_channel_tells_of_what_it_was_asked_for() {
    let context = open();
    let channel = context.create_comp_channel().unwrap();
    let mut a = End::new(open(), QpType::Rc, |b| b);
    let mut b = End::new(context, QpType::Rc, |b| b);
    let mut told = b.context.create_cq(16, Some(&channel)).unwrap();
    b.qp = b.pd.create_qp(QpType::Rc).cq(&told).build().unwrap();
    connect(&a, &b, &Connection::default());
    for id in 0..3 {
        b.receive(id, 0, 0);
    }
    told.req_notify(Notify::Solicited).unwrap();
    a.post(1, Work::Send, 0);
    a.done(1);
    assert_eq!(channel.get_cq_event(Some(QUIET)).unwrap(), None);
    let solicited = SendRequest {
        solicited: true,
        ..SendRequest::new(2, Work::Send, &[])
    };
    a.qp.post_send(&solicited).unwrap();
    assert_eq!(channel.get_cq_event(Some(LIMIT)).unwrap(), Some(told.id()));
    // Once, and not again.
    a.post(3, Work::Send, 0);
    a.done(2);
    a.done(3);
    assert_eq!(channel.get_cq_event(Some(QUIET)).unwrap(), None);
    for id in 0..3 {
        assert_eq!(told.wait(LIMIT).unwrap().wr_id, id);
    }
    told.req_notify(Notify::Next).unwrap();
    b.receive(3, 0, 0);
    a.post(4, Work::Send, 0);
    assert_eq!(channel.get_cq_event(Some(LIMIT)).unwrap(), Some(told.id()));
    assert_eq!(told.wait(LIMIT).unwrap().wr_id, 3);
}

#[test]
fn a_shared_receive_queue_and_its_limit() {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64, None).unwrap();
    let mr = pd.reg_new(LEN, all()).unwrap();
    let mut srq = pd.create_srq(8, 2).unwrap();
    for id in 0..4 {
        let sges = [mr.sge(id * 64, 8), mr.sge(id * 64 + 8, 8)];
        let receive = RecvRequest {
            wr_id: id,
            sges: &sges,
        };
        srq.post_recv(&receive).unwrap();
    }
    srq.set_limit(2).unwrap();
    let servers = [(); 2].map(|()| pd.create_qp(QpType::Rc).cq(&cq).srq(&srq).build().unwrap());
    let mut clients = [(); 2].map(|()| End::new(open(), QpType::Rc, |b| b));
    let psn = Psn::new(3);
    for (server, client) in servers.iter().zip(&clients) {
        let (there, here) = (
            server.endpoint(psn).unwrap(),
            client.qp.endpoint(psn).unwrap(),
        );
        server.connect(psn, &here, &Connection::default()).unwrap();
        client
            .qp
            .connect(psn, &there, &Connection::default())
            .unwrap();
    }
    let mut send = |id: u64| {
        let client = &mut clients[id as usize % 2];
        client.mr.memory().write_at(0, &[id as u8 + 1; 16]);
        client.post(id, Work::Send, 16);
        client.done(id);
        let got = cq.wait(LIMIT).unwrap();
        assert_eq!(
            (got.wr_id, got.status, got.byte_len),
            (id, Status::Success, 16)
        );
        assert_eq!(got.qp, servers[id as usize % 2].number());
        let place = 64 * id as usize;
        assert_eq!(mr.memory().to_vec()[place..place + 16], [id as u8 + 1; 16]);
    };
    send(0);
    send(1);
    // Two wait, which is not fewer than two.
    assert_eq!(context.get_async_event(Some(QUIET)).unwrap(), None);
    send(2);
    let limit = AsyncEvent::SrqLimitReached(srq.id());
    assert_eq!(context.get_async_event(Some(LIMIT)).unwrap(), Some(limit));
    send(3);
    assert_eq!(context.get_async_event(Some(QUIET)).unwrap(), None);
    assert!(srq.set_limit(100_000).is_err());
}

#[test]
fn what_is_posted_too_much_or_wrongly_comes_back() {
    let (mut a, _b) = pair_of(QpType::Rc, &Connection::default());
    // A queue that nothing leaves: RNR, again and again.
    let capacity = (0..100_000u64).find_map(|id| {
        let send = SendRequest::new(id, Work::Send, &[]);
        match a.qp.post_send(&send) {
            Ok(()) => None,
            Err(e) => Some((id, e)),
        }
    });
    let Some((taken, PostError::QueueFull { capacity })) = capacity else {
        panic!("{capacity:?}");
    };
    assert!(
        taken >= 16 && u64::from(capacity) <= taken,
        "{taken} of {capacity}"
    );
    let (mut a, _b) = pair_of(QpType::Uc, &Connection::default());
    let long = [0; 100_000];
    let inline = SendRequest {
        inline: Some(&long),
        ..SendRequest::new(1, Work::Send, &[])
    };
    assert!(matches!(
        a.qp.post_send(&inline),
        Err(PostError::Inline { len: 100_000, .. })
    ));
    let read = Work::Read(a.mr.remote(0));
    let request = SendRequest::new(1, read, &[]);
    assert_eq!(a.qp.post_send(&request), Err(PostError::Unsupported(read)));
    let sges = vec![a.mr.sge(0, 1); 200];
    for count in [2, 20, 200] {
        let request = SendRequest::new(1, Work::Send, &sges[..count]);
        let receive = RecvRequest {
            wr_id: 1,
            sges: &sges[..count],
        };
        // rxe gives more than is asked for; nobody gives 200.
        let outcomes = [a.qp.post_send(&request), a.qp.post_recv(&receive)];
        for outcome in outcomes {
            let refused =
                matches!(outcome, Err(PostError::TooManySges { count: n, .. }) if n == count);
            assert!(
                refused || outcome.is_ok() && count < 200,
                "{count}: {outcome:?}"
            );
        }
    }
}

/// With one doorbell, and up to the request that is wrong.
#[test]
fn a_list_is_posted_in_its_order() {
    let (mut a, mut b) = pair();
    for id in 0..8 {
        b.receive(id, 64 * id, 64);
    }
    a.mr.memory()
        .write_at(0, &std::array::from_fn::<u8, 64, _>(|i| i as u8));
    let parts: Vec<_> = (0..4).map(|i| [a.mr.sge(0, 10 + i)]).collect();
    let send = |id: usize| SendRequest::new(id as u64, Work::Send, &parts[id]);
    let silent = |id| SendRequest {
        signaled: false,
        ..send(id)
    };
    assert_eq!(a.qp.post_send_list(&[]), Ok(()));
    // The last of a list completes for all of it.
    a.qp.post_send_list(&[silent(0), silent(1), send(2)])
        .unwrap();
    a.done(2);
    for id in 0..3 {
        assert_eq!(b.done(id).byte_len, 10 + id as u32);
        assert_eq!(b.bytes(64 * id as usize, 10)[9], 9);
    }
    let long = [0; 100_000];
    let wrong = SendRequest {
        inline: Some(&long),
        ..SendRequest::new(9, Work::Send, &[])
    };
    let refused = a.qp.post_send_list(&[send(0), send(1), wrong, send(3)]);
    let Err(BadRequest { index: 2, source }) = refused else {
        panic!("{refused:?}");
    };
    assert!(matches!(source, PostError::Inline { len: 100_000, .. }));
    a.done(0);
    a.done(1);
    b.done(3);
    b.done(4);
    // More than there is room for: what fits has gone.
    let (mut a, _b) = pair_of(QpType::Rc, &Connection::default());
    let many = vec![SendRequest::new(1, Work::Send, &[]); 100_000];
    let Err(BadRequest { index, source }) = a.qp.post_send_list(&many) else {
        panic!("a queue without an end");
    };
    assert!(
        index >= 16 && matches!(source, PostError::QueueFull { .. }),
        "{index}: {source}"
    );
}

#[test]
fn where_all_is_signaled_each_request_of_a_list_completes() {
    let mut a = End::new(open(), QpType::Rc, |b| b.signal_all());
    let mut b = End::new(open(), QpType::Rc, |b| b);
    connect(&a, &b, &Connection::default());
    let list: Vec<_> = (0..4)
        .map(|id| SendRequest {
            signaled: false,
            ..SendRequest::new(id, Work::Send, &[])
        })
        .collect();
    for id in 0..4 {
        b.receive(id, 0, 0);
    }
    a.qp.post_send_list(&list).unwrap();
    for id in 0..4 {
        a.done(id);
        b.done(id);
    }
}

#[test]
fn receives_come_back_when_the_queue_pair_errs() {
    let (a, mut b) = pair();
    b.receive(1, 0, 10);
    b.receive(2, 0, 10);
    b.qp.modify(&QpAttributes::to(State::Error)).unwrap();
    for id in 1..=2 {
        let flushed = b.next();
        assert_eq!(
            (flushed.wr_id, flushed.status),
            (id, Status::WorkRequestFlushed)
        );
    }
    drop(a);
}

#[test]
fn what_was_destroyed_makes_room() {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let gid = context.query_gid(1, context.gid_index()).unwrap().gid;
    for _ in 0..1000 {
        let cq = context.create_cq(1, None).unwrap();
        let srq = pd.create_srq(1, 1).unwrap();
        let qp = pd.create_qp(QpType::Ud).cq(&cq).srq(&srq).build();
        drop((qp.unwrap(), srq, cq));
        drop(pd.create_ah(&AddressVector::new(gid)).unwrap());
    }
}
