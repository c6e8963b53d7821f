//! What every device must do alike: run on a software card, or on the device of libibverbs that
//! `SOFTROCE_DEVICE` names, such as the `rxe0` of a kernel with Soft-RoCE.
#![cfg(target_os = "linux")]

use softroce_verbs::attributes::{GidType, PortState};
use softroce_verbs::{
    Access, AddressVector, AsyncEvent, Completion, CompletionKind, CompletionQueue, Connection,
    Context, Error, Immediate, MemoryRegion, Mtu, Notify, PostError, ProtectionDomain, Psn,
    QpAttributes, QpBuilder, QpType, QueuePair, RecvRequest, Reliability, RemoteKey, SendRequest,
    State, Status, WindowType, Work,
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
    assert!(context.query_port(9).is_err());
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

#[test]
fn atomics_count_in_the_order_of_this_machine() {
    let (mut a, b) = pair();
    let at = b.mr.remote(64);
    let start = 0x0102_0304_0506_07ff_u64;
    b.mr.memory().write_at(64, &start.to_ne_bytes());
    a.post(1, Work::FetchAdd { at, add: 0x101 }, 8);
    assert_eq!(a.done(1).kind, CompletionKind::FetchAdd);
    assert_eq!(a.word(0), start);
    assert_eq!(b.word(64), start + 0x101);
    for (id, compare, after) in [(2, start, start + 0x101), (3, start + 0x101, 0xabcd)] {
        let swap = 0xabcd;
        a.post(id, Work::CompareSwap { at, compare, swap }, 8);
        assert_eq!(a.done(id).kind, CompletionKind::CompareSwap);
        assert_eq!((a.word(0), b.word(64)), (start + 0x101, after));
    }
}

#[test]
fn reads_and_writes_and_what_they_may_not() {
    let (mut a, mut b) = pair();
    b.mr.memory().write_at(3000, b"far away");
    a.post(1, Work::Read(b.mr.remote(3000)), 8);
    let read = a.done(1);
    assert_eq!(read.kind, CompletionKind::Read);
    assert_eq!(a.bytes(0, 8), b"far away");
    a.post(2, Work::Write(b.mr.remote(8)), 8);
    a.done(2);
    assert_eq!(b.bytes(8, 8), b"far away");
    b.receive(5, 0, 10);
    // Over the end.
    a.post(3, Work::Write(b.mr.remote(LEN as u64 - 4)), 8);
    let refused = a.next();
    assert_eq!(
        (refused.wr_id, refused.status),
        (3, Status::RemoteAccessError)
    );
    a.post(4, Work::Send, 1);
    let flushed = a.next();
    assert_eq!(
        (flushed.wr_id, flushed.status),
        (4, Status::WorkRequestFlushed)
    );
    assert_eq!(a.qp.state().unwrap(), State::Error);
    // The responder is in error as well, and gives its receive back.
    let flushed = b.next();
    assert_eq!(
        (flushed.wr_id, flushed.status),
        (5, Status::WorkRequestFlushed)
    );
    assert_eq!(b.bytes(LEN - 4, 4), [0; 4]);
}

/// Writes through a key, and gives the status.
fn write(a: &mut End, addr: u64, rkey: RemoteKey) -> Status {
    let there = softroce_verbs::Remote { addr, rkey };
    a.post(50, Work::Write(there), 8);
    a.next().status
}

/// An address that a window does not cover: `addr`, or one beyond the region, as Linux' Soft-RoCE holds what
/// comes through a window against its region's bounds alone (`check_rkey` in its `rxe_resp.c`).
fn outside(end: &End, addr: u64) -> u64 {
    match end.context.query_device().unwrap().vendor_id {
        0xff_ffff => end.mr.addr() + LEN as u64 - 7,
        _ => addr,
    }
}

#[test]
fn windows_of_type_2() {
    for local in [true, false] {
        let (mut a, mut b) = pair();
        let mut window = b.pd.alloc_mw(WindowType::Type2).unwrap();
        let binding = b.mr.binding(1024, 512, Access::REMOTE_WRITE);
        let key = window.next_rkey();
        b.post(1, Work::BindWindow { key, binding }, 0);
        assert_eq!(b.done(1).kind, CompletionKind::BindWindow);
        let first = b.mr.addr() + 1024;
        a.mr.memory().write_at(0, b"a window");
        assert_eq!(write(&mut a, first, key), Status::Success);
        assert_eq!(b.bytes(1024, 8), b"a window");
        if local {
            b.post(2, Work::LocalInvalidate(key), 0);
            assert_eq!(b.done(2).kind, CompletionKind::LocalInvalidate);
        } else {
            b.receive(3, 0, 0);
            a.post(4, Work::SendInvalidate(key), 0);
            a.done(4);
            assert_eq!(b.done(3).invalidated, Some(key));
        }
        // Bound again, elsewhere and with another key.
        let again = window.next_rkey();
        let binding = b.mr.binding(0, 64, Access::REMOTE_WRITE);
        let bind = Work::BindWindow {
            key: again,
            binding,
        };
        b.post(5, bind, 0);
        b.done(5);
        let second = b.mr.addr();
        assert_eq!(write(&mut a, second, again), Status::Success);
        assert_eq!(write(&mut a, first, key), Status::RemoteAccessError);
    }
    // Not beyond its end, though the region goes on.
    let (mut a, mut b) = pair();
    let mut window = b.pd.alloc_mw(WindowType::Type2).unwrap();
    let binding = b.mr.binding(1024, 512, Access::REMOTE_WRITE);
    let key = window.next_rkey();
    b.post(1, Work::BindWindow { key, binding }, 0);
    b.done(1);
    let last = b.mr.addr() + 1024 + 512 - 8;
    assert_eq!(write(&mut a, last, key), Status::Success);
    let beyond = outside(&b, last + 1);
    assert_eq!(write(&mut a, beyond, key), Status::RemoteAccessError);
}

#[test]
fn windows_of_type_1() {
    let (mut a, b) = pair();
    let mut window = b.pd.alloc_mw(WindowType::Type1).unwrap();
    let before = window.rkey();
    let binding = b.mr.binding(64, 64, Access::REMOTE_WRITE);
    let key = b.qp.bind_mw(&mut window, &binding).unwrap();
    assert_eq!(key, window.rkey());
    assert_ne!(key, before);
    a.mr.memory().write_at(0, b"a window");
    // Binding is queued; nothing tells of its end, which comes soon.
    std::thread::sleep(QUIET);
    assert_eq!(write(&mut a, b.mr.addr() + 64, key), Status::Success);
    assert_eq!(b.bytes(64, 8), b"a window");
    let before = outside(&b, b.mr.addr() + 63);
    assert_eq!(write(&mut a, before, key), Status::RemoteAccessError);
}

#[test]
fn memory_that_begins_at_zero() {
    let (mut a, b) = pair();
    let zero = match b.pd.reg_new(LEN, all() | Access::ZERO_BASED) {
        Ok(zero) => zero,
        // libibverbs has no such memory.
        Err(Error::Unsupported { .. }) if device() != "softroce0" => return,
        Err(e) => panic!("{e}"),
    };
    a.mr.memory().write_at(0, b"relative");
    a.post(1, Work::Write(zero.remote(16)), 8);
    a.done(1);
    assert_eq!(&zero.memory().to_vec()[16..24], b"relative");
    assert_eq!(zero.addr(), 0);
}

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
