//! Multicast groups.

use super::*;
use softroce_verbs::{Gid, QpNumber};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A group has members on several queue pairs, the sender's among them, and members that come and go.
#[test]
fn a_group_reaches_its_members_and_nobody_else() {
    let mut ends = [(); 3].map(|()| {
        let end = End::new(open(), QpType::Ud, |b| b.max_inline_data(16));
        end.qp.activate(QKEY, Psn::new(5)).unwrap();
        end
    });
    let own = ends[0].qp.endpoint(Psn::new(0)).unwrap().gid;
    let group = |last| match own.ipv4() {
        Some(_) => Gid::from(Ipv4Addr::new(239, 129, 2, last)),
        None => Gid::from(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 2, last.into())),
    };
    let ways = [3, 4].map(|last| {
        let to = AddressVector::new(group(last));
        ends[0].pd.create_ah(&to).unwrap()
    });
    for end in &mut ends {
        for (wr_id, offset) in [(1, 0), (2, 200), (3, 400)] {
            end.receive(wr_id, offset, 200);
        }
    }
    // Everyone is in the first group, the last alone in the second.
    for end in &mut ends {
        end.qp.attach_mcast(group(3)).unwrap();
    }
    ends[2].qp.attach_mcast(group(4)).unwrap();
    let tell = |ends: &mut [End; 3], way: usize, text: &[u8]| {
        let request = SendRequest {
            to: Some(ways[way].to(QpNumber::MULTICAST, QKEY)),
            inline: Some(text),
            ..SendRequest::new(9, Work::Send, &[])
        };
        ends[0].qp.post_send(&request).unwrap();
    };
    tell(&mut ends, 0, b"to everyone");
    let from = ends[0].qp.number();
    for end in &mut ends {
        // The sender's own request completes before or after.
        let mut got = end.next();
        if got.wr_id == 9 {
            got = end.next();
        } else if end.qp.number() == from {
            end.done(9);
        }
        assert_eq!((got.wr_id, got.status), (1, Status::Success));
        assert_eq!((got.byte_len, got.src_qp, got.grh), (51, from, true));
        assert_eq!(end.bytes(40, 11), b"to everyone");
        if let (Some(from), Some(to)) = (own.ipv4(), group(3).ipv4()) {
            assert_eq!(
                (end.bytes(32, 4), end.bytes(36, 4)),
                (from.octets().into(), to.octets().into())
            );
        }
    }
    tell(&mut ends, 1, b"to one");
    ends[0].done(9);
    let got = ends[2].done(2);
    assert_eq!(got.byte_len, 46);
    ends[1].qp.detach_mcast(group(3)).unwrap();
    ends[0].qp.detach_mcast(group(3)).unwrap();
    tell(&mut ends, 0, b"to who is left");
    ends[0].done(9);
    assert_eq!(ends[2].done(3).byte_len, 54);
    std::thread::sleep(QUIET);
    for end in &mut ends[..2] {
        assert_eq!(end.cq.poll().unwrap(), None);
        assert!(end.qp.detach_mcast(group(3)).is_err());
    }
    // A connection is in no group, and an address is none.
    let mut connection = End::new(open(), QpType::Rc, roomy);
    assert!(connection.qp.attach_mcast(group(3)).is_err());
    assert!(ends[1].qp.attach_mcast(own).is_err());
}
