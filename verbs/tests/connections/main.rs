//! Connections by the connection manager, in virtual and in real time: the same programs. (`unattended`) Programs that
//! do not call it.

mod unattended;

use softroce_sim::card::{Card, CardConfig};
use softroce_sim::fabric::machine::Machine;
use softroce_sim::fabric::{Config, LinkSpec, Network, PayloadMode, Rate, Topology};
use softroce_sim::time::Span;
use softroce_verbs::cm::{
    CmError, CommId, ConnParam, Event, EventChannel, PortSpace, Reason, RejectReason, ServiceId,
};
use softroce_verbs::provider::sim::World;
use softroce_verbs::{
    Access, AddressVector, CompletionKind, CompletionQueue, Context, Error, Gid, Partner,
    QpAttributes, QpType, QueuePair, RecvRequest, Result, Role, SendRequest, State, Status, Work,
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
        // What comes is answered as long as the manager is there.
        context.sleep(Duration::from_millis(500))?;
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
        (
            "h0",
            Role::Client {
                server: NOWHERE,
                wait: Duration::ZERO,
            },
        ),
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

/// A queue pair for a connection, and what it needs.
fn queue_pair(context: &Context) -> (CompletionQueue, QueuePair) {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16, None).unwrap();
    let qp = pd.create_qp(QpType::Rc).cq(&cq).build().unwrap();
    (cq, qp)
}

/// Both ends of a connection to be: the server listens, and the client knows where.
fn meet(context: &Context, role: &Role) -> (Partner, EventChannel, AddressVector) {
    let mut partner = context.exchange(role).unwrap();
    let mut channel = EventChannel::open(context).unwrap();
    let own = context.query_gid(1, 0).unwrap().gid;
    if role.is_server() {
        channel.listen(service()).unwrap();
    }
    partner.send(&own.0).unwrap();
    let mut other = Gid::default();
    other.0.copy_from_slice(&partner.receive().unwrap());
    (partner, channel, AddressVector::new(other))
}

fn request(channel: &mut EventChannel) -> CommId {
    expect(channel, "CONNECT_REQUEST").unwrap().id()
}

fn ask(channel: &mut EventChannel, to: &AddressVector, qp: &QueuePair) -> CommId {
    let param = ConnParam::default();
    channel.connect(to, service(), qp, &param).unwrap()
}

/// Nothing more comes for a while.
fn quiet(channel: &mut EventChannel) {
    let event = channel.get_event(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(event, None);
}

/// As long as all retries of a manager take, where the peer tells it to wait each time.
const AGES: Option<Duration> = Some(Duration::from_secs(2000));

#[test]
fn the_queue_pair_of_a_connection_that_the_peer_does_not_know_any_more_goes_into_error() {
    let states = in_virtual_time(|context, role| {
        let (mut partner, mut channel, to) = meet(&context, &role);
        let (_cq, qp) = queue_pair(&context);
        if role.is_server() {
            let id = request(&mut channel);
            channel.accept(id, &qp, &ConnParam::default()).unwrap();
            // What it has said leaves; then it forgets, and another takes its place.
            context.sleep(Duration::from_millis(1)).unwrap();
            drop(channel);
            let mut channel = EventChannel::open(&context).unwrap();
            partner.send(b"forgotten").unwrap();
            quiet(&mut channel);
            return State::Error;
        }
        let id = ask(&mut channel, &to, &qp);
        partner.receive().unwrap();
        assert_eq!(expect(&mut channel, "ESTABLISHED").unwrap().id(), id);
        assert_eq!(qp.state().unwrap(), State::Rts);
        assert_eq!(expect(&mut channel, "REJECTED").unwrap().id(), id);
        qp.state().unwrap()
    });
    assert_eq!(states, [State::Error; 2]);
}

/// The server accepts, waits in vain and gives up; all that it has said lies there when the client looks.
#[test]
fn who_is_accepted_and_refused_before_it_looks_is_told_of_the_refusal() {
    let states = in_virtual_time(|context, role| {
        let (mut partner, mut channel, to) = meet(&context, &role);
        let (_cq, qp) = queue_pair(&context);
        if role.is_server() {
            let id = request(&mut channel);
            channel.accept(id, &qp, &ConnParam::default()).unwrap();
            assert_eq!(qp.state().unwrap(), State::Rts);
            let event = channel.get_event(AGES).unwrap();
            assert_eq!(event, Some(Event::Unreachable { id }));
            // What it has said last leaves.
            context.sleep(Duration::from_millis(1)).unwrap();
            partner.send(b"given up").unwrap();
        } else {
            ask(&mut channel, &to, &qp);
            partner.receive().unwrap();
            let Event::Rejected { reason, .. } = expect(&mut channel, "REJECTED").unwrap() else {
                unreachable!("by its name");
            };
            assert_eq!(reason, Reason::Rejected(RejectReason::TIMEOUT));
            quiet(&mut channel);
        }
        qp.state().unwrap()
    });
    // The asker's was never in use.
    assert_eq!(states, [State::Reset, State::Error]);
}

#[test]
fn a_client_that_cannot_bring_its_queue_pair_up_refuses_and_both_are_told() {
    let states = in_virtual_time(|context, role| {
        let (_partner, mut channel, to) = meet(&context, &role);
        let (_cq, qp) = queue_pair(&context);
        if role.is_server() {
            let id = request(&mut channel);
            channel.accept(id, &qp, &ConnParam::default()).unwrap();
            assert_eq!(expect(&mut channel, "REJECTED").unwrap().id(), id);
        } else {
            ask(&mut channel, &to, &qp);
            // Another program's hand.
            qp.modify(&QpAttributes::to(State::Error)).unwrap();
            let refused = channel.get_event(LIMIT).unwrap_err();
            assert!(matches!(refused, Error::Modify(_)), "{refused}");
            quiet(&mut channel);
        }
        qp.state().unwrap()
    });
    assert_eq!(states, [State::Error; 2]);
}

#[test]
fn an_acceptance_that_fails_says_nothing_and_can_be_tried_again() {
    let states = in_virtual_time(|context, role| {
        let (_partner, mut channel, to) = meet(&context, &role);
        let (_cq, qp) = queue_pair(&context);
        if role.is_server() {
            let id = request(&mut channel);
            let (_other_cq, other) = queue_pair(&context);
            other.modify(&QpAttributes::to(State::Error)).unwrap();
            let refused = channel.accept(id, &other, &ConnParam::default());
            assert!(matches!(refused, Err(Error::Modify(_))), "{refused:?}");
            assert_eq!(other.state().unwrap(), State::Error);
            let much = ConnParam {
                private_data: &[0; 250],
                ..ConnParam::default()
            };
            let refused = channel.accept(id, &qp, &much);
            assert!(matches!(refused, Err(Error::Cm(_))), "{refused:?}");
            assert_eq!(qp.state().unwrap(), State::Reset);
            // Time for what must not come.
            quiet(&mut channel);
            channel.accept(id, &qp, &ConnParam::default()).unwrap();
        } else {
            ask(&mut channel, &to, &qp);
        }
        expect(&mut channel, "ESTABLISHED").unwrap();
        qp.state().unwrap()
    });
    assert_eq!(states, [State::Rts; 2]);
}

#[test]
fn an_acceptance_that_fails_can_be_a_refusal() {
    let states = in_virtual_time(|context, role| {
        let (_partner, mut channel, to) = meet(&context, &role);
        let (_cq, qp) = queue_pair(&context);
        if role.is_server() {
            let id = request(&mut channel);
            qp.modify(&QpAttributes::to(State::Error)).unwrap();
            channel.accept(id, &qp, &ConnParam::default()).unwrap_err();
            channel.reject(id, b"no").unwrap();
            assert!(channel.reject(id, b"no").is_err());
            quiet(&mut channel);
        } else {
            ask(&mut channel, &to, &qp);
            expect(&mut channel, "REJECTED").unwrap();
        }
        qp.state().unwrap()
    });
    assert_eq!(states, [State::Reset, State::Error]);
}

#[test]
fn a_request_is_answered_once() {
    let is_none = |refused: Result<()>| {
        let refused = refused.unwrap_err();
        let is_none = matches!(
            refused,
            Error::Cm(CmError::UnknownConnection(_) | CmError::WrongPhase { .. })
        );
        assert!(is_none, "{refused}");
    };
    for accepts in [true, false] {
        let states = in_virtual_time(move |context, role| {
            let (_partner, mut channel, to) = meet(&context, &role);
            let (_cq, qp) = queue_pair(&context);
            let param = ConnParam::default();
            if role.is_server() {
                let (_other_cq, other) = queue_pair(&context);
                let id = request(&mut channel);
                match accepts {
                    true => channel.accept(id, &qp, &param).unwrap(),
                    false => channel.reject(id, b"no").unwrap(),
                }
                is_none(channel.accept(id, &other, &param));
                assert_eq!(other.state().unwrap(), State::Reset);
                if accepts {
                    expect(&mut channel, "ESTABLISHED").unwrap();
                }
                quiet(&mut channel);
            } else {
                let id = ask(&mut channel, &to, &qp);
                is_none(channel.accept(id, &qp, &param));
                let what = if accepts { "ESTABLISHED" } else { "REJECTED" };
                expect(&mut channel, what).unwrap();
            }
            qp.state().unwrap()
        });
        assert_eq!(states, [if accepts { State::Rts } else { State::Reset }; 2]);
    }
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
            Role::Client {
                server: address,
                wait: Duration::from_secs(20),
            },
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

    /// An armed completion queue would keep the card's thread awake beside a program that polls.
    #[test]
    fn a_manager_is_armed_while_its_program_sleeps_and_leaves_nothing_behind() {
        let card = SoftwareCard::new("softroce0").open().unwrap();
        let context = card.context();
        let armed = || card.engine().inspect(|card, _| card.armed());
        for _ in 0..50 {
            let mut channel = EventChannel::open(&context).unwrap();
            EventChannel::open(&context).unwrap_err();
            assert_eq!(channel.get_event(Some(Duration::ZERO)).unwrap(), None);
            assert_eq!(armed(), 0);
            let sleep = Some(Duration::from_millis(1));
            assert_eq!(channel.get_event(sleep).unwrap(), None);
            assert_eq!(armed(), 0);
        }
        let place = card.engine().inspect(|card, _| {
            let cq = card.create_cq(1).unwrap();
            cq.id().0 % softroce_sim::places::MAX_PLACES
        });
        assert!(place <= 2, "{place} places used");
    }
}
