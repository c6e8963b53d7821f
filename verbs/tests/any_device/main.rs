//! What every device must do alike: run on a software card, or on the device of libibverbs that
//! `SOFTROCE_DEVICE` names, such as the `rxe0` of a kernel with Soft-RoCE.
#![cfg(target_os = "linux")]

mod groups;
mod memory;
mod mistakes;
mod queues;

use softroce_verbs::attributes::{GidType, LinkLayer, PortState};
use softroce_verbs::{
    Access, AddressVector, AsyncEvent, BadRequest, Completion, CompletionKind, CompletionQueue,
    Connection, Context, Immediate, MemoryRegion, Mtu, Notify, PostError, ProtectionDomain, Psn,
    QpAttributes, QpBuilder, QpType, QueuePair, RecvRequest, Reliability, SendRequest, State,
    Status, Work,
};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
/// How long nothing must come.
const QUIET: Duration = Duration::from_millis(200);
const LEN: usize = 4096;
const QKEY: u32 = 0x1111_1111;

/// Everything that a region allows.
fn all() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_WRITE
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND
}

fn device() -> String {
    std::env::var("SOFTROCE_DEVICE").unwrap_or_else(|_| "softroce0".into())
}

fn open() -> Context {
    softroce_verbs::open(&device()).unwrap()
}

/// One end, its memory registered for everything.
struct End {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    mr: MemoryRegion,
}

impl End {
    fn new(context: Context, qp_type: QpType, set: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>) -> End {
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(64, None).unwrap();
        let qp = set(pd.create_qp(qp_type).cq(&cq)).build().unwrap();
        let mr = pd.reg_new(LEN, all()).unwrap();
        End {
            context,
            pd,
            cq,
            qp,
            mr,
        }
    }

    /// Receives `len` bytes at `offset`.
    fn receive(&mut self, wr_id: u64, offset: u64, len: u32) {
        let sges = [self.mr.sge(offset, len)];
        let sges = &sges[..usize::from(len > 0)];
        self.qp.post_recv(&RecvRequest { wr_id, sges }).unwrap();
    }

    /// Posts `len` bytes at the beginning of the memory.
    fn post(&mut self, wr_id: u64, work: Work, len: u32) {
        let sges = [self.mr.sge(0, len)];
        let sges = &sges[..usize::from(len > 0)];
        self.qp
            .post_send(&SendRequest::new(wr_id, work, sges))
            .unwrap();
    }

    fn next(&mut self) -> Completion {
        self.cq.wait(LIMIT).unwrap()
    }

    /// The completion of a request that must succeed.
    fn done(&mut self, wr_id: u64) -> Completion {
        let completion = self.next();
        assert_eq!(
            (completion.wr_id, completion.status),
            (wr_id, Status::Success)
        );
        completion
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mr.memory().read_at(offset, &mut bytes);
        bytes
    }

    fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(offset, 8).try_into().unwrap())
    }
}

fn roomy(builder: QpBuilder<'_>) -> QpBuilder<'_> {
    builder.max_inline_data(32)
}

/// Two connected ends, each with the device opened for itself.
fn pair_of(qp_type: QpType, connection: &Connection) -> (End, End) {
    let a = End::new(open(), qp_type, roomy);
    let b = End::new(open(), qp_type, roomy);
    connect(&a, &b, connection);
    (a, b)
}

fn connect(a: &End, b: &End, connection: &Connection) {
    let (from_a, from_b) = (Psn::new(0xff_fffe), Psn::new(7));
    let end_a = a.qp.endpoint(from_a).unwrap();
    let end_b = b.qp.endpoint(from_b).unwrap();
    a.qp.connect(from_a, &end_b, connection).unwrap();
    b.qp.connect(from_b, &end_a, connection).unwrap();
}

fn pair() -> (End, End) {
    pair_of(QpType::Rc, &Connection::default())
}

#[test]
fn the_device_its_port_and_its_address() {
    let context = open();
    let attributes = context.query_device().unwrap();
    assert!(attributes.max_qp > 0 && attributes.max_qp_wr >= 16 && attributes.max_sge > 0);
    assert!(attributes.max_qp_rd_atom >= 16 && attributes.phys_port_cnt == 1);
    assert!(attributes.max_mr_size >= LEN as u64 && attributes.max_pkeys > 0);
    let port = context.query_port(1).unwrap();
    assert_eq!(port.state, PortState::Active);
    assert!(port.active_mtu >= Mtu::M1024 && port.max_mtu >= port.active_mtu);
    assert!(context.gid_index() < port.gid_tbl_len && port.max_msg_sz >= 1 << 20);
    let entry = context.query_gid(1, context.gid_index()).unwrap();
    assert_eq!(entry.gid_type, GidType::RoceV2);
    assert!(entry.gid.ipv4().is_some(), "{}", entry.gid);
    assert_ne!(attributes.node_guid, 0);
    assert_eq!(port.link_layer, LinkLayer::Ethernet);
    assert_eq!(context.get_async_event(Some(Duration::ZERO)).unwrap(), None);
    println!("{attributes:?}\n{port:?}\n{entry:?}");
}

/// Every address of the device that speaks RoCEv2 carries a message: those of IPv6 and VLANs too.
#[test]
fn every_address_carries_messages() {
    let context = open();
    let table = context.query_port(1).unwrap().gid_tbl_len;
    let mut carried = Vec::new();
    for index in 0..table {
        let Ok(entry) = context.query_gid(1, index) else {
            continue;
        };
        if entry.gid_type != GidType::RoceV2 || entry.gid.0 == [0; 16] {
            continue;
        }
        let at = || match device().as_str() {
            // Each is on an address of its own, and that is all of its table.
            "softroce0" => open(),
            name => softroce_verbs::open(&format!("{name}@{index}")).unwrap(),
        };
        let mut a = End::new(at(), QpType::Rc, |b| b);
        let mut b = End::new(at(), QpType::Rc, |b| b);
        connect(&a, &b, &Connection::default());
        b.receive(1, 64, 64);
        a.mr.memory().write_at(0, &[index as u8 + 1; 64]);
        a.post(2, Work::Send, 64);
        a.done(2);
        b.done(1);
        assert_eq!(b.bytes(64, 64), [index as u8 + 1; 64]);
        carried.push(entry.gid.to_string());
    }
    println!("{carried:?}");
    assert!(!carried.is_empty());
}

#[test]
fn a_queue_pair_is_as_it_was_set() {
    let connection = Connection {
        path_mtu: Mtu::M512,
        reliability: Reliability {
            timeout: 15,
            retry_cnt: 6,
            rnr_retry: 5,
            min_rnr_timer: 3,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 8,
        },
        access: Access::LOCAL_WRITE | Access::REMOTE_READ,
        sl: 0,
        traffic_class: 26 << 2,
    };
    let (a, b) = pair_of(QpType::Rc, &connection);
    let found = a.qp.query().unwrap();
    let address = found.address.unwrap();
    assert_eq!(address.dgid, b.qp.endpoint(Psn::new(0)).unwrap().gid);
    assert_eq!((address.traffic_class, address.hop_limit), (26 << 2, 64));
    let expected = QpAttributes {
        state: Some(State::Rts),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(connection.access),
        address: found.address,
        path_mtu: Some(Mtu::M512),
        dest_qp: Some(b.qp.number()),
        rq_psn: Some(Psn::new(7)),
        sq_psn: Some(Psn::new(0xff_fffe)),
        max_dest_rd_atomic: Some(8),
        max_rd_atomic: Some(4),
        min_rnr_timer: Some(3),
        timeout: Some(15),
        retry_cnt: Some(6),
        rnr_retry: Some(5),
        // Whether these are told is the device's affair.
        cur_state: found.cur_state,
        sqd_event: found.sqd_event,
        qkey: found.qkey,
    };
    assert_eq!(found, expected);
    a.qp.modify(&QpAttributes::to(State::Error)).unwrap();
    assert_eq!(a.qp.state().unwrap(), State::Error);
    a.qp.modify(&QpAttributes::to(State::Reset)).unwrap();
    assert_eq!(a.qp.state().unwrap(), State::Reset);
    // From RESET there is no way to RTS.
    assert!(
        a.qp.modify(&QpAttributes::to_rts(Psn::new(1), None))
            .is_err()
    );
}

#[test]
fn sends_with_immediate_data_and_inline() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let (mut a, mut b) = pair_of(qp_type, &Connection::default());
        b.receive(1, 0, 100);
        b.receive(2, 100, 100);
        b.receive(3, 0, 0);
        b.receive(4, 0, 0);
        a.mr.memory().write_at(0, b"0123456789");
        a.post(1, Work::SendImmediate(Immediate::from_be(0x0102_0304)), 10);
        let inline = SendRequest {
            inline: Some(b"a few bytes"),
            ..SendRequest::new(2, Work::Send, &[])
        };
        a.qp.post_send(&inline).unwrap();
        a.post(3, Work::Send, 0);
        let there = b.mr.remote(2000);
        a.post(4, Work::WriteImmediate(there, Immediate::from_be(9)), 10);
        for id in 1..=4 {
            let kind = a.done(id).kind;
            let expected = [CompletionKind::Send, CompletionKind::Write][usize::from(id == 4)];
            assert_eq!(kind, expected);
        }
        let got: Vec<_> = (1..=4)
            .map(|id| {
                let c = b.done(id);
                assert_eq!(c.qp, b.qp.number());
                (c.kind, c.byte_len, c.immediate.map(Immediate::get))
            })
            .collect();
        let receive = CompletionKind::Receive;
        let expected = [
            (receive, 10, Some(0x0102_0304)),
            (receive, 11, None),
            (receive, 0, None),
            (CompletionKind::ReceiveWithImmediate, 10, Some(9)),
        ];
        assert_eq!(got, expected, "{qp_type:?}");
        assert_eq!(b.bytes(0, 10), b"0123456789");
        assert_eq!(b.bytes(100, 11), b"a few bytes");
        assert_eq!(b.bytes(2000, 10), b"0123456789");
    }
}

#[test]
fn datagrams_and_the_way_back() {
    let ends = [(); 2].map(|()| {
        let end = End::new(open(), QpType::Ud, |b| b.max_inline_data(16));
        end.qp.activate(QKEY, Psn::new(5)).unwrap();
        end
    });
    let [mut a, mut b] = ends;
    let gid = |end: &End| end.qp.endpoint(Psn::new(0)).unwrap().gid;
    let to_b = a.pd.create_ah(&AddressVector::new(gid(&b))).unwrap();
    let to_a = b.pd.create_ah(&AddressVector::new(gid(&a))).unwrap();
    b.receive(1, 0, 200);
    a.receive(1, 0, 200);
    a.mr.memory().write_at(1000, b"a datagram");
    let sges = [a.mr.sge(1000, 10)];
    let ask = SendRequest {
        to: Some(to_b.to(b.qp.number(), QKEY)),
        ..SendRequest::new(9, Work::SendImmediate(Immediate::from_be(77)), &sges)
    };
    a.qp.post_send(&ask).unwrap();
    a.done(9);
    let got = b.done(1);
    assert_eq!(
        (got.byte_len, got.src_qp, got.grh),
        (50, a.qp.number(), true)
    );
    assert_eq!(got.immediate.map(Immediate::get), Some(77));
    assert_eq!(b.bytes(40, 10), b"a datagram");
    // What came tells where it came from: an IPv4 header in the second half of the forty bytes.
    if let Some(from) = gid(&a).ipv4() {
        assert_eq!(b.bytes(32, 4), from.octets());
    }
    let answer = SendRequest {
        to: Some(to_a.to(got.src_qp, QKEY)),
        inline: Some(b"an answer"),
        ..SendRequest::new(10, Work::Send, &[])
    };
    b.qp.post_send(&answer).unwrap();
    b.done(10);
    let got = a.done(1);
    assert_eq!((got.byte_len, got.src_qp), (49, b.qp.number()));
    assert_eq!(a.bytes(40, 9), b"an answer");
    // To nowhere, and of a handle that has ended.
    let nowhere = SendRequest::new(11, Work::Send, &sges);
    assert_eq!(a.qp.post_send(&nowhere), Err(PostError::Destination));
    // A wrong Q_Key is dropped.
    b.receive(2, 0, 200);
    let wrong = SendRequest {
        to: Some(to_b.to(b.qp.number(), QKEY + 1)),
        ..SendRequest::new(12, Work::Send, &sges)
    };
    a.qp.post_send(&wrong).unwrap();
    a.done(12);
    std::thread::sleep(QUIET);
    assert_eq!(b.cq.poll().unwrap(), None);
}
