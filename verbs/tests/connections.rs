//! Connections by the connection manager, in virtual and in real time: the same programs.

use softroce_sim::card::{Card, CardConfig};
use softroce_sim::fabric::machine::Machine;
use softroce_sim::fabric::{Config, LinkSpec, Network, PayloadMode, Rate, Topology};
use softroce_sim::time::Span;
use softroce_verbs::cm::{ConnParam, Event, EventChannel, PortSpace, RejectReason, ServiceId};
use softroce_verbs::provider::sim::World;
use softroce_verbs::{
    Access, AddressVector, CompletionKind, Context, Error, Gid, QpType, RecvRequest, Result, Role,
    SendRequest, State, Status, Work,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const LIMIT: Option<Duration> = Some(Duration::from_secs(20));
const TEXT: &[u8] = b"over a connection that the managers have made";

fn service() -> ServiceId {
    ServiceId::ip(PortSpace::Tcp, 7471)
}

fn expect(channel: &mut EventChannel, what: &str) -> Result<Event> {
    match channel.get_event(LIMIT)? {
        Some(event) if event.name() == what => Ok(event),
        other => Err(Error::Protocol(format!("{what} expected, found {other:?}"))),
    }
}

/// The server accepts, receives a message, and is told of the end; the client asks, sends and ends.
fn converse(context: Context, role: Role) -> Result<State> {
    let mut partner = context.exchange(&role)?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16, None)?;
    let mut qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
    let memory = pd.reg_new(TEXT.len(), Access::LOCAL_WRITE)?;
    let sge = [memory.sge(0, TEXT.len() as u32)];
    let mut channel = EventChannel::open(&context)?;
    let own = context.query_gid(1, 0)?.gid;
    if role.is_server() {
        channel.listen(service())?;
        partner.send(&own.0)?;
        let Event::ConnectRequest { id, request } = expect(&mut channel, "CONNECT_REQUEST")? else {
            unreachable!("by its name");
        };
        assert!(request.private_data.starts_with(b"hello"), "{request:?}");
        channel.accept(id, &qp, &ConnParam::default())?;
        qp.post_recv(&RecvRequest {
            wr_id: 1,
            sges: &sge,
        })?;
        expect(&mut channel, "ESTABLISHED")?;
        let completion = cq.wait(Duration::from_secs(20))?;
        assert_eq!(
            (completion.kind, completion.status),
            (CompletionKind::Receive, Status::Success)
        );
        assert_eq!(memory.memory().to_vec(), TEXT);
    } else {
        let mut server = Gid::default();
        server.0.copy_from_slice(&partner.receive()?);
        let to = AddressVector::new(server);
        let param = ConnParam {
            private_data: b"hello",
            ..ConnParam::default()
        };
        let id = channel.connect(&to, service(), &qp, &param)?;
        expect(&mut channel, "ESTABLISHED")?;
        assert_eq!(qp.state()?, State::Rts);
        memory.memory().write_at(0, TEXT);
        qp.post_send(&SendRequest::new(2, Work::Send, &sge))?;
        assert_eq!(cq.wait(Duration::from_secs(20))?.status, Status::Success);
        channel.disconnect(id)?;
    }
    expect(&mut channel, "DISCONNECTED")?;
    qp.state()
}

/// Nobody listens for what the client asks for.
fn in_vain(context: Context, role: Role) -> Result<RejectReason> {
    let mut partner = context.exchange(&role)?;
    let mut channel = EventChannel::open(&context)?;
    if role.is_server() {
        partner.send(&context.query_gid(1, 0)?.gid.0)?;
        // What comes is answered while somebody waits.
        let _ = channel.get_event(Some(Duration::from_millis(500)))?;
        return Ok(RejectReason::INVALID_SERVICE_ID);
    }
    let mut server = Gid::default();
    server.0.copy_from_slice(&partner.receive()?);
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16, None)?;
    let qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
    channel.connect(
        &AddressVector::new(server),
        service(),
        &qp,
        &ConnParam::default(),
    )?;
    let Event::Rejected { reason, .. } = expect(&mut channel, "REJECTED")? else {
        unreachable!("by its name");
    };
    assert_eq!(qp.state()?, State::Reset);
    match reason {
        softroce_verbs::cm::Reason::Rejected(reason) => Ok(reason),
        other => Err(Error::Protocol(format!("{other}"))),
    }
}

const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn in_virtual_time<T: Send + 'static>(
    program: impl Fn(Context, Role) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_ns(500));
    let config = Config {
        seed: 3,
        payload: PayloadMode::Carried,
        ..Config::default()
    };
    let routes = config.routes.clone();
    let network = Network::new(&Topology::back_to_back(link), config, (), |_, node| {
        let card = CardConfig::new(&node.name, node.gid(), node.mac);
        Machine::new(Card::new(card, 3, routes.clone()), 16).expect("a completion queue of 16")
    })
    .expect("a network of two");
    let mut world = World::new(network);
    let roles = [
        ("h0", Role::Client { server: NOWHERE }),
        ("h1", Role::Server { listen: NOWHERE }),
    ];
    for (host, role) in roles {
        let program = program.clone();
        world
            .start(host, move |context| program(context, role))
            .unwrap();
    }
    world.run()
}

#[test]
fn a_connection_is_made_used_and_ended() {
    let states = in_virtual_time(|context, role| converse(context, role).unwrap());
    assert_eq!(states, [State::Error; 2]);
}

#[test]
fn who_asks_where_nobody_listens_is_told() {
    let reasons = in_virtual_time(|context, role| in_vain(context, role).unwrap());
    assert_eq!(reasons, [RejectReason::INVALID_SERVICE_ID; 2]);
}

#[test]
fn a_device_has_one_connection_manager_at_a_time() {
    in_virtual_time(|context, _| {
        let first = EventChannel::open(&context).unwrap();
        let second = EventChannel::open(&context).unwrap_err().to_string();
        assert!(second.contains("queue pair 1"), "{second}");
        drop(first);
        EventChannel::open(&context).unwrap();
    });
}

#[cfg(target_os = "linux")]
mod real_time {
    use super::*;
    use softroce_verbs::provider::port::SoftwareCard;
    use std::net::TcpListener;

    fn pair<T: Send>(program: impl Fn(Context, Role) -> T + Sync) -> Vec<T> {
        let probe = TcpListener::bind(NOWHERE).unwrap();
        let address = probe.local_addr().unwrap();
        drop(probe);
        let roles = [
            Role::Client { server: address },
            Role::Server { listen: address },
        ];
        std::thread::scope(|s| {
            let run = |role| {
                let program = &program;
                s.spawn(move || {
                    let card = SoftwareCard::new("softroce0").open().unwrap();
                    program(card.context(), role)
                })
            };
            let threads = roles.map(run);
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn a_connection_is_made_used_and_ended() {
        let states = pair(|context, role| converse(context, role).unwrap());
        assert_eq!(states, [State::Error; 2]);
    }

    #[test]
    fn who_asks_where_nobody_listens_is_told() {
        let reasons = pair(|context, role| in_vain(context, role).unwrap());
        assert_eq!(reasons, [RejectReason::INVALID_SERVICE_ID; 2]);
    }
}
