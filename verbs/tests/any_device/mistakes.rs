//! Mistakes, which are of the same kind on every device.

use super::*;
use softroce_verbs::{Binding, Error, ErrorKind, Gid, MacAddr, QpCap, Vlan, WindowType};
use std::net::Ipv4Addr;

fn kind<T>(outcome: Result<T, impl Into<Error>>) -> ErrorKind {
    match outcome {
        Ok(_) => panic!("it was taken"),
        Err(e) => {
            let error: Error = e.into();
            println!("{:?}: {error}", error.kind());
            error.kind()
        }
    }
}

#[test]
fn what_is_asked_for_wrongly_is_an_invalid_argument() {
    let mut end = End::new(open(), QpType::Rc, |b| b);
    let invalid = ErrorKind::InvalidArgument;
    assert_eq!(kind(end.context.create_cq(0, None)), invalid);
    assert_eq!(kind(end.context.create_cq(u32::MAX, None)), invalid);
    assert_eq!(kind(end.pd.create_qp(QpType::Rc).build()), invalid);
    let large = end.pd.create_qp(QpType::Rc).cq(&end.cq);
    assert_eq!(kind(large.max_send_wr(u32::MAX).build()), invalid);
    // From RESET.
    let forward = [State::Rtr, State::Rts, State::Sqd];
    for attributes in forward.map(QpAttributes::to) {
        assert_eq!(kind(end.qp.modify(&attributes)), invalid);
    }
    assert_eq!(end.qp.state().unwrap(), State::Reset);
    let written = Access::REMOTE_WRITE;
    assert_eq!(kind(end.pd.reg_new(64, written)), invalid);
    let group = Gid::from(Ipv4Addr::new(239, 129, 2, 9));
    assert_eq!(kind(end.qp.attach_mcast(group)), invalid);
    if let Ok(mut window) = end.pd.alloc_mw(WindowType::Type1) {
        let gone = end.pd.reg_new(LEN, all()).unwrap();
        let binding: Binding = gone.binding(0, 64, written);
        drop(gone);
        assert_eq!(kind(end.qp.bind_mw(&mut window, &binding)), invalid);
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let context = open();
    let table = context.query_port(1).unwrap().gid_tbl_len;
    for missing in [
        context.query_port(0).map(drop),
        context.query_port(9).map(drop),
        context.query_gid(9, 0).map(drop),
        context.query_gid(1, table).map(drop),
        softroce_verbs::open("no-such-device0").map(drop),
    ] {
        assert_eq!(kind(missing), ErrorKind::NotFound);
    }
    let misspelt = format!("{}@somewhere", device());
    let bad = softroce_verbs::open(&misspelt).unwrap_err();
    assert!(matches!(bad, Error::BadName { .. }), "{bad}");
    assert_eq!(bad.kind(), ErrorKind::InvalidArgument);
    assert!(bad.to_string().contains("\"somewhere\""), "{bad}");
}

/// Objects of two contexts do not go together, though their numbers might be the same.
#[test]
fn objects_of_another_context_are_refused() {
    let mut end = End::new(open(), QpType::Ud, |b| b.max_inline_data(16));
    let other = End::new(open(), QpType::Ud, |b| b);
    end.qp.activate(QKEY, Psn::new(1)).unwrap();
    let to_itself = AddressVector::new(end.qp.endpoint(Psn::new(1)).unwrap().gid);
    let own = end.pd.create_ah(&to_itself).unwrap();
    let foreign = other.pd.create_ah(&to_itself).unwrap();
    let number = end.qp.number();
    let by = |way: &softroce_verbs::AddressHandle, wr_id| SendRequest {
        to: Some(way.to(number, QKEY)),
        inline: Some(b"datagram"),
        ..SendRequest::new(wr_id, Work::Send, &[])
    };
    let refused = end.qp.post_send(&by(&foreign, 1));
    assert_eq!(refused, Err(PostError::ForeignAddress));
    assert_eq!(kind(refused), ErrorKind::InvalidArgument);
    // Those before it are on their way.
    for wr_id in [10, 11] {
        end.receive(wr_id, 100 * (wr_id - 10), 100);
    }
    let list = [by(&own, 2), by(&own, 3), by(&foreign, 4), by(&own, 5)];
    let refused = end.qp.post_send_list(&list).unwrap_err();
    assert_eq!(
        (refused.index, refused.source),
        (2, PostError::ForeignAddress)
    );
    let mut done: Vec<u64> = (0..4).map(|_| end.next().wr_id).collect();
    done.sort_unstable();
    assert_eq!(done, [2, 3, 10, 11]);
    std::thread::sleep(QUIET);
    assert_eq!(end.cq.poll().unwrap(), None);
    let invalid = ErrorKind::InvalidArgument;
    let mixed = end.pd.create_qp(QpType::Rc).cq(&other.cq).build();
    assert_eq!(kind(mixed), invalid);
    if let Ok(mut window) = other.pd.alloc_mw(WindowType::Type1) {
        let binding = end.mr.binding(0, 64, Access::REMOTE_WRITE);
        assert_eq!(kind(end.qp.bind_mw(&mut window, &binding)), invalid);
    }
}

/// Software cards write what they are told to; libibverbs has no place for it, and nothing is dropped in silence.
#[test]
fn fields_of_an_address_are_heeded_or_refused() {
    let end = End::new(open(), QpType::Ud, |b| b);
    let gid = end.qp.endpoint(Psn::new(1)).unwrap().gid;
    let plain = AddressVector::new(gid);
    assert!(end.pd.create_ah(&plain).is_ok());
    let set = [
        AddressVector {
            dmac: MacAddr([2, 0, 0, 0, 0, 1]),
            ..plain
        },
        AddressVector {
            udp_src: Some(0xc001),
            ..plain
        },
        AddressVector {
            vlan: Some(Vlan { id: 1 }),
            ..plain
        },
    ];
    for (address, field) in set.iter().zip(["dmac", "udp_src", "vlan"]) {
        let made = end.pd.create_ah(address);
        if device() == "softroce0" {
            assert!(made.is_ok(), "{field}");
        } else {
            let refused = made.unwrap_err();
            assert!(refused.to_string().contains(field), "{refused}");
            assert_eq!(refused.kind(), ErrorKind::NotSupported);
        }
    }
}

#[test]
fn a_queue_pair_is_granted_what_was_asked_for_or_more() {
    let end = End::new(open(), QpType::Rc, |b| {
        b.max_send_wr(20)
            .max_recv_wr(30)
            .max_send_sge(2)
            .max_recv_sge(3)
            .max_inline_data(32)
    });
    let cap = end.qp.cap();
    println!("{cap:?}");
    let QpCap {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    } = cap;
    assert!(max_send_wr >= 20 && max_recv_wr >= 30);
    assert!(max_send_sge >= 2 && max_recv_sge >= 3 && max_inline_data >= 32);
}

#[test]
fn a_connection_manager_that_cannot_be_used_says_so() {
    use softroce_verbs::cm::{ConnParam, EventChannel, PortSpace, ServiceId};
    let end = End::new(open(), QpType::Ud, |b| b);
    let mut channel = match EventChannel::open(&end.context) {
        Ok(channel) => channel,
        Err(refused) => {
            assert_eq!(refused.kind(), ErrorKind::NotSupported);
            assert_ne!(device(), "softroce0", "{refused}");
            return;
        }
    };
    assert_eq!(kind(EventChannel::open(&end.context)), ErrorKind::InUse);
    let to = AddressVector::new(end.qp.endpoint(Psn::new(1)).unwrap().gid);
    let service = ServiceId::ip(PortSpace::Tcp, 7471);
    let refused = channel.connect(&to, service, &end.qp, &ConnParam::default());
    assert_eq!(kind(refused), ErrorKind::InvalidArgument);
    channel.listen(service).unwrap();
    assert_eq!(kind(channel.listen(service)), ErrorKind::InUse);
}
