//! What a software card says that it can do at most, it can, and one more it refuses.
#![cfg(target_os = "linux")]

use softroce_verbs::{Access, Context, Endpoint, Error, Psn, QpNumber, QpType, QueuePair};
use std::fmt::Debug;

fn open() -> Context {
    softroce_verbs::open("softroce0").unwrap()
}

/// The limit is taken, and one more is refused with a message that names both.
#[track_caller]
fn limit<T: Debug>(name: &str, limit: u32, mut make: impl FnMut(u32) -> Result<T, Error>) {
    assert!(limit > 0, "{name}");
    let made = make(limit);
    assert!(made.is_ok(), "{name} {limit}: {}", made.unwrap_err());
    drop(made);
    let told = make(limit + 1).unwrap_err().to_string();
    let named = told.contains(&limit.to_string()) && told.contains(&(limit + 1).to_string());
    assert!(named, "{name}: {told}");
}

#[test]
fn queues_are_as_long_as_the_device_says() {
    let context = open();
    let device = context.query_device().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16, None).unwrap();
    let qp = || pd.create_qp(QpType::Rc).cq(&cq);
    limit("max_cqe", device.max_cqe, |n| context.create_cq(n, None));
    limit("max_qp_wr", device.max_qp_wr, |n| {
        qp().max_send_wr(n).build()
    });
    limit("max_qp_wr", device.max_qp_wr, |n| {
        qp().max_recv_wr(n).build()
    });
    limit("max_sge", device.max_sge, |n| qp().max_send_sge(n).build());
    limit("max_sge", device.max_sge, |n| qp().max_recv_sge(n).build());
    limit("max_srq_wr", device.max_srq_wr, |n| pd.create_srq(n, 1));
    limit("max_srq_sge", device.max_srq_sge, |n| pd.create_srq(16, n));
}

#[test]
fn reads_outstanding_are_as_many_as_the_device_says() {
    let context = open();
    let device = context.query_device().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16, None).unwrap();
    let gid = context.query_gid(1, 0).unwrap().gid;
    let peer = Endpoint {
        qp: QpNumber::new(0x22),
        psn: Psn::new(0),
        gid,
    };
    let narrow = |n: u32| u8::try_from(n).unwrap();
    let modified = |rd_atomic: u8, dest: u8| -> Result<QueuePair, Error> {
        let qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
        let connection = softroce_verbs::Connection {
            reliability: softroce_verbs::Reliability {
                max_rd_atomic: rd_atomic,
                max_dest_rd_atomic: dest,
                ..Default::default()
            },
            ..Default::default()
        };
        qp.connect(Psn::new(0), &peer, &connection)?;
        Ok(qp)
    };
    limit("max_qp_init_rd_atom", device.max_qp_init_rd_atom, |n| {
        modified(narrow(n), 1)
    });
    limit("max_qp_rd_atom", device.max_qp_rd_atom, |n| {
        modified(1, narrow(n))
    });
}

/// Domains are numbers, and no such limit is near: none is refused.
#[test]
fn domains_do_not_run_out() {
    let context = open();
    let domains: Vec<_> = (0..(1 << 12))
        .map(|_| context.alloc_pd().unwrap())
        .collect();
    let mr = domains.last().unwrap().reg_new(64, Access::LOCAL_WRITE);
    assert!(mr.is_ok());
}
