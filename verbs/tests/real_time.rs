//! Programs in real time, on two software cards of one machine.
#![cfg(target_os = "linux")]

use softroce_verbs::provider::port::{Opened, SoftwareCard};
use softroce_verbs::{
    Access, CompletionKind, Connection, Context, Notify, Psn, QpAttributes, QpType, RecvRequest,
    Result, Role, SendRequest, State, Status, Work,
};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

fn open() -> Opened {
    SoftwareCard::new("softroce0")
        .open()
        .expect("a free address")
}

/// Roles that find each other.
fn roles() -> (Role, Role) {
    // Free a moment ago, and not given out again so soon.
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, probe.local_addr().unwrap().port()));
    (
        Role::Server { listen: address },
        Role::Client {
            server: address,
            wait: Duration::from_secs(20),
        },
    )
}

/// Runs a program in both roles, each on a card of its own.
fn pair<T: Send>(program: impl Fn(Context, Role) -> Result<T> + Sync) -> (T, T) {
    let (server, client) = roles();
    std::thread::scope(|s| {
        let run = |role| {
            let program = &program;
            move || program(open().context(), role).unwrap()
        };
        let server = s.spawn(run(server));
        let client = s.spawn(run(client));
        (server.join().unwrap(), client.join().unwrap())
    })
}

#[test]
fn a_ping_pong_by_polling() {
    let rounds = 200;
    pair(|context, role| {
        let pd = context.alloc_pd()?;
        let mut cq = context.create_cq(16, None)?;
        let mut qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
        let mr = pd.reg_new(64, Access::LOCAL_WRITE)?;
        let mut partner = context.exchange(&role)?;
        let peer = partner.swap(&qp.endpoint(Psn::new(1))?)?;
        qp.connect(Psn::new(1), &peer, &Connection::default())?;
        let sge = [mr.sge(0, 64)];
        let receive = RecvRequest {
            wr_id: 1,
            sges: &sge,
        };
        qp.post_recv(&receive)?;
        partner.barrier()?;
        let send = SendRequest::new(2, Work::Send, &sge);
        if !role.is_server() {
            qp.post_send(&send)?;
        }
        let (mut received, mut sent) = (0, 0);
        while received < rounds || sent < rounds {
            let completion = cq.wait(LIMIT)?;
            assert_eq!(completion.status, Status::Success);
            match completion.kind {
                CompletionKind::Receive => {
                    received += 1;
                    qp.post_recv(&receive)?;
                    if role.is_server() || received < rounds {
                        qp.post_send(&send)?;
                    }
                }
                _ => sent += 1,
            }
        }
        partner.barrier()
    });
}

#[test]
fn a_sleeping_program_is_written_to_and_told() {
    let text = b"a message of the peer's program that waits in memory until somebody reads it";
    pair(|context, role| {
        let pd = context.alloc_pd()?;
        let channel = context.create_comp_channel()?;
        let mut cq = context.create_cq(16, Some(&channel))?;
        let mut qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
        let mr = pd.reg_new(128, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let mut partner = context.exchange(&role)?;
        let peer = partner.swap(&qp.endpoint(Psn::new(9))?)?;
        let (remote, _) = partner.swap_memory(mr.remote(0), 128)?;
        qp.connect(Psn::new(9), &peer, &Connection::default())?;
        let len = text.len() as u32;
        if role.is_server() {
            qp.post_recv(&RecvRequest {
                wr_id: 1,
                sges: &[],
            })?;
            cq.req_notify(Notify::Next)?;
            partner.barrier()?;
            assert_eq!(channel.get_cq_event(Some(LIMIT))?, Some(cq.id()));
            let completion = cq.poll()?.expect("what the event is of");
            assert_eq!(completion.kind, CompletionKind::ReceiveWithImmediate);
            assert_eq!(completion.immediate.map(|i| i.get()), Some(77));
            assert_eq!(&mr.memory().to_vec()[..text.len()], text);
        } else {
            mr.memory().write_at(0, text);
            partner.barrier()?;
            let work = Work::WriteImmediate(remote, softroce_verbs::Immediate::from_be(77));
            qp.post_send(&SendRequest::new(1, work, &[mr.sge(0, len)]))?;
            assert_eq!(cq.wait(LIMIT)?.status, Status::Success);
        }
        partner.barrier()
    });
}

#[test]
fn what_a_queue_pair_was_set_to_can_be_asked_for() {
    let context = open().context();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4, None).unwrap();
    let qp = pd.create_qp(QpType::Rc).cq(&cq).build().unwrap();
    assert_eq!(qp.state().unwrap(), State::Reset);
    let init = QpAttributes::to_init(Access::REMOTE_READ);
    qp.modify(&init).unwrap();
    let found = qp.query().unwrap();
    assert_eq!(found.state, Some(State::Init));
    assert_eq!(found.access, init.access);
    assert_eq!(found.port, Some(1));
    qp.modify(&QpAttributes::to(State::Reset)).unwrap();
    assert_eq!(qp.query().unwrap().access, None);
}

#[test]
fn a_receive_on_a_queue_pair_in_error_comes_back() {
    let context = open().context();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(4, None).unwrap();
    let mut qp = pd.create_qp(QpType::Rc).cq(&cq).build().unwrap();
    qp.modify(&QpAttributes::to_init(Access::LOCAL_WRITE))
        .unwrap();
    qp.modify(&QpAttributes::to(State::Error)).unwrap();
    qp.post_recv(&RecvRequest {
        wr_id: 5,
        sges: &[],
    })
    .unwrap();
    let completion = cq.wait(LIMIT).unwrap();
    assert_eq!(
        (completion.wr_id, completion.status),
        (5, Status::WorkRequestFlushed)
    );
}

#[test]
fn an_address_that_is_taken_is_named() {
    let first = open();
    let gid = first.context().query_gid(1, 0).unwrap().gid;
    let mut second = SoftwareCard::new("softroce0");
    second.udp.address = Some(gid.ip());
    let error = second.open().unwrap_err().to_string();
    assert!(
        error.contains(&gid.ip().to_string()) && error.contains("in use"),
        "{error}"
    );
    let named = softroce_verbs::open(&format!("softroce0@{}", gid.ip())).unwrap_err();
    assert_eq!(named.to_string(), error);
    assert!(
        softroce_verbs::open("softroce0@here")
            .unwrap_err()
            .to_string()
            .contains("here")
    );
}

#[test]
fn who_looks_for_a_message_is_told_that_there_is_none_or_nobody() {
    let (role, client) = roles();
    std::thread::scope(|s| {
        s.spawn(move || {
            let mut partner = open().context().exchange(&client).unwrap();
            assert_eq!(partner.receive().unwrap(), b"go");
            partner.send(b"one").unwrap();
            partner.send(b"two").unwrap();
            assert_eq!(partner.receive().unwrap(), b"go");
        });
        let mut partner = open().context().exchange(&role).unwrap();
        assert_eq!(partner.try_receive().unwrap(), None);
        partner.send(b"go").unwrap();
        let look = |partner: &mut softroce_verbs::Partner| {
            loop {
                match partner.try_receive() {
                    Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                    found => return found,
                }
            }
        };
        assert_eq!(look(&mut partner).unwrap().unwrap(), b"one");
        assert_eq!(look(&mut partner).unwrap().unwrap(), b"two");
        assert_eq!(partner.try_receive().unwrap(), None);
        partner.send(b"go").unwrap();
        let gone = look(&mut partner).unwrap_err().to_string();
        assert!(gone.contains("it has ended"), "{gone}");
    });
}
