//! Connections whose program computes: their manager answers peers, asks again and keeps what it has to tell, with no
//! call of the program.

use super::{queue_pair, service};
use softroce_sim::card::{Card, CardConfig};
use softroce_sim::fabric::capture::Capture;
use softroce_sim::fabric::machine::Machine;
use softroce_sim::fabric::{
    Action, Config, Fault, Filter, LinkSpec, Network, Pattern, PayloadMode, PsnFilter, Rate,
    Topology,
};
use softroce_sim::random::Probability;
use softroce_sim::time::Span;
use softroce_verbs::cm::{CommId, ConnParam, Event, EventChannel, Reason, RejectReason};
use softroce_verbs::provider::sim::World;
use softroce_verbs::{
    AddressVector, CompletionQueue, Context, Gid, Partner, QpNumber, QueuePair, Role, State,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How long a message waits for its answer: the peer's 4.096 us x 2^20, and a lifetime of 4.096 us x 2^18 each way.
const PATIENCE: Duration = Duration::from_nanos((4096 << 20) + 2 * (4096 << 18));
/// Much more than a message takes to the other end.
const TRIP: Duration = Duration::from_millis(1);
/// What has come already.
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
const AGES: Option<Duration> = Some(Duration::from_secs(1000));

/// The server listens, and the client knows where.
fn meet(context: &Context, role: &Role) -> (Partner, EventChannel, AddressVector) {
    let mut partner = context.exchange(role).unwrap();
    let mut channel = EventChannel::open(context).unwrap();
    if role.is_server() {
        channel.listen(service()).unwrap();
    }
    let other = swap(context, &mut partner);
    (partner, channel, other)
}

fn swap(context: &Context, partner: &mut Partner) -> AddressVector {
    partner
        .send(&context.query_gid(1, 0).unwrap().gid.0)
        .unwrap();
    let mut other = Gid::default();
    other.0.copy_from_slice(&partner.receive().unwrap());
    AddressVector::new(other)
}

fn expect(channel: &mut EventChannel, within: Option<Duration>, what: &str) -> Event {
    match channel.get_event(within).unwrap() {
        Some(event) if event.name() == what => event,
        other => panic!("{what} expected, found {other:?}"),
    }
}

fn ask(channel: &mut EventChannel, to: &AddressVector, qp: &QueuePair) -> CommId {
    let param = ConnParam::default();
    channel.connect(to, service(), qp, &param).unwrap()
}

/// Waits for a request and accepts it.
fn admit(channel: &mut EventChannel, qp: &QueuePair) -> CommId {
    let id = expect(channel, AGES, "CONNECT_REQUEST").id();
    channel.accept(id, qp, &ConnParam::default()).unwrap();
    id
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A time of one retry, `begin` being when the message was sent first.
#[track_caller]
fn is_second_try(begin: Duration, end: Duration) {
    let passed = end - begin;
    assert!(
        (PATIENCE..PATIENCE + TRIP).contains(&passed),
        "{passed:?} where a retry takes {PATIENCE:?}"
    );
}

/// Datagrams for the peer's queue pair 1 are lost: those.
fn losing(psn: PsnFilter) -> Fault {
    Fault::new(Action::Drop).on(Filter {
        dest_qp: Some(QpNumber::GSI),
        psn,
        ..Filter::ALL
    })
}

const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

struct Run<T> {
    /// What the client and the server came to.
    ends: Vec<T>,
    /// Packets that each of them sent.
    sent: [u64; 2],
    /// A capture of all frames.
    frames: Vec<u8>,
}

type Frames = Capture<Vec<u8>>;

/// Runs a program in both roles. A fault may be put on what the client sends, and on what the server sends.
fn run<T: Send + 'static>(
    faults: [Option<Fault>; 2],
    program: impl Fn(Context, Role) -> T + Clone + Send + 'static,
) -> Run<T> {
    let topology = Topology::back_to_back(LinkSpec::new(Rate::from_gbps(100), Span::from_ns(500)));
    let config = Config {
        seed: 3,
        payload: PayloadMode::Carried,
        ..Config::default()
    };
    let routes = config.routes.clone();
    let hosts = ["h0", "h1"];
    let ways = [("h0", "h1"), ("h1", "h0")].map(|(a, b)| topology.channel_between(a, b).unwrap());
    let frames = Frames::new(Vec::new(), &topology, ways).unwrap();
    let mut network = Network::new(&topology, config, frames, |_, node| {
        let card = CardConfig::new(&node.name, node.gid(), node.mac);
        Machine::new(Card::new(card, 3, routes.clone()), 16).unwrap()
    })
    .unwrap();
    for (way, fault) in ways.into_iter().zip(faults) {
        if let Some(fault) = fault {
            network.inject(way, fault).unwrap();
        }
    }
    let mut world = World::new(network);
    let roles = [
        Role::Client {
            server: NOWHERE,
            wait: Duration::ZERO,
        },
        Role::Server { listen: NOWHERE },
    ];
    for (host, role) in hosts.into_iter().zip(roles) {
        let program = program.clone();
        world
            .start(host, move |context| program(context, role))
            .unwrap();
    }
    let ends = world.run();
    world.with_fabric(|fabric| {
        let hosts = [0, 1].map(|n| fabric.host(n));
        let sent = hosts.map(|host| fabric.card(host).counters().sent_packets);
        let network = fabric.as_any().downcast_mut::<Network<Machine, Frames>>();
        let nothing = Frames::new(Vec::new(), &topology, []).unwrap();
        let frames = std::mem::replace(network.unwrap().observer_mut(), nothing);
        Run {
            ends,
            sent,
            frames: frames.finish().unwrap(),
        }
    })
}

#[test]
fn an_acceptance_that_is_lost_is_sent_again_while_the_program_computes() {
    run([None, Some(losing(PsnFilter::nth(1)))], |context, role| {
        let (_partner, mut channel, to) = meet(&context, &role);
        let (_cq, qp) = queue_pair(&context);
        if role.is_server() {
            let id = admit(&mut channel, &qp);
            context.sleep(secs(20)).unwrap();
            assert_eq!(expect(&mut channel, AT_ONCE, "ESTABLISHED").id(), id);
        } else {
            let begin = context.now();
            ask(&mut channel, &to, &qp);
            expect(&mut channel, AGES, "ESTABLISHED");
            is_second_try(begin, context.now());
        }
    });
}

/// Far longer than the peer's retries take: it is told to wait.
#[test]
fn who_asks_a_program_that_computes_is_told_to_wait() {
    let retries = PATIENCE * 16;
    run([None, None], move |context, role| {
        let (_partner, mut channel, to) = meet(&context, &role);
        let (_cq, qp) = queue_pair(&context);
        if role.is_server() {
            context.sleep(retries * 2).unwrap();
            let id = expect(&mut channel, AT_ONCE, "CONNECT_REQUEST").id();
            channel.accept(id, &qp, &ConnParam::default()).unwrap();
        } else {
            ask(&mut channel, &to, &qp);
            assert_eq!(channel.get_event(Some(retries + secs(1))).unwrap(), None);
        }
        expect(&mut channel, AGES, "ESTABLISHED");
    });
}

#[test]
fn the_end_of_a_connection_is_answered_while_the_program_computes() {
    // The first answer to it is lost: the server says REP, DREP and DREP.
    for lost in [None, Some(losing(PsnFilter::nth(2)))] {
        let is_lost = lost.is_some();
        run([None, lost], move |context, role| {
            let (mut partner, mut channel, to) = meet(&context, &role);
            let (_cq, qp) = queue_pair(&context);
            if role.is_server() {
                let id = admit(&mut channel, &qp);
                expect(&mut channel, AGES, "ESTABLISHED");
                partner.send(b"established").unwrap();
                context.sleep(secs(1)).unwrap();
                // The program has not been told, but the queue pair has.
                assert_eq!(qp.state().unwrap(), State::Error);
                context.sleep(secs(60)).unwrap();
                for what in ["DISCONNECTED", "TIMEWAIT_EXIT"] {
                    assert_eq!(expect(&mut channel, AT_ONCE, what).id(), id);
                }
                assert_eq!(channel.get_event(AT_ONCE).unwrap(), None);
            } else {
                let id = ask(&mut channel, &to, &qp);
                expect(&mut channel, AGES, "ESTABLISHED");
                partner.receive().unwrap();
                let begin = context.now();
                channel.disconnect(id).unwrap();
                expect(&mut channel, AGES, "DISCONNECTED");
                match is_lost {
                    true => is_second_try(begin, context.now()),
                    false => assert!(context.now() - begin < TRIP),
                }
            }
        });
    }
}

#[test]
fn a_request_is_sent_again_while_its_program_computes() {
    run([Some(losing(PsnFilter::nth(1))), None], |context, role| {
        let (_partner, mut channel, to) = meet(&context, &role);
        let (_cq, qp) = queue_pair(&context);
        if role.is_server() {
            let begin = context.now();
            admit(&mut channel, &qp);
            is_second_try(begin, context.now());
            // The client says that it is ready when its program asks.
            expect(&mut channel, AGES, "ESTABLISHED");
            assert!((secs(30)..secs(30) + TRIP).contains(&context.now()));
        } else {
            ask(&mut channel, &to, &qp);
            context.sleep(secs(30)).unwrap();
            expect(&mut channel, AT_ONCE, "ESTABLISHED");
        }
    });
}

#[test]
fn a_refusal_waits_until_the_program_asks() {
    run([None, None], |context, role| {
        let mut partner = context.exchange(&role).unwrap();
        let mut channel = EventChannel::open(&context).unwrap();
        let to = swap(&context, &mut partner);
        // Nobody listens, and the server looks at nothing.
        if !role.is_server() {
            let (_cq, qp) = queue_pair(&context);
            ask(&mut channel, &to, &qp);
            context.sleep(TRIP).unwrap();
            let Event::Rejected { reason, .. } = expect(&mut channel, AT_ONCE, "REJECTED") else {
                unreachable!("by its name");
            };
            assert_eq!(reason, Reason::Rejected(RejectReason::INVALID_SERVICE_ID));
            assert_eq!(channel.get_event(AT_ONCE).unwrap(), None);
        }
        context.sleep(secs(1)).unwrap();
    });
}

#[test]
fn that_a_peer_does_not_answer_waits_until_the_program_asks() {
    let run = run([None, None], |context, role| {
        let mut partner = context.exchange(&role).unwrap();
        let to = swap(&context, &mut partner);
        if role.is_server() {
            return;
        }
        let mut channel = EventChannel::open(&context).unwrap();
        let (_cq, qp) = queue_pair(&context);
        ask(&mut channel, &to, &qp);
        context.sleep(PATIENCE * 16 + TRIP).unwrap();
        expect(&mut channel, AT_ONCE, "UNREACHABLE");
    });
    // A REQ sixteen times, and a REJ.
    assert_eq!(run.sent, [17, 0]);
}

/// How far a server lets it come before it lets go of its channel, and what it has said until then.
const STAGES: [(&str, u64); 4] = [
    ("asked", 0),
    ("accepted", 1),
    ("established", 1),
    ("ended", 2),
];

#[test]
fn a_channel_that_is_gone_says_nothing_any_more() {
    for ((stage, said), program_ends) in STAGES.map(|s| [(s, false), (s, true)]).concat() {
        let run = run([None, None], move |context, role| {
            let (_partner, mut channel, to) = meet(&context, &role);
            let (_cq, qp) = queue_pair(&context);
            let is_established = ["established", "ended"].contains(&stage);
            if !role.is_server() {
                let id = ask(&mut channel, &to, &qp);
                if is_established {
                    expect(&mut channel, AGES, "ESTABLISHED");
                }
                context.sleep(secs(1)).unwrap();
                if stage == "established" {
                    channel.disconnect(id).unwrap();
                }
                // It says all it has to, again and again.
                context.sleep(PATIENCE * 20).unwrap();
                return;
            }
            if stage == "asked" {
                expect(&mut channel, AGES, "CONNECT_REQUEST");
            } else {
                let id = admit(&mut channel, &qp);
                if is_established {
                    expect(&mut channel, AGES, "ESTABLISHED");
                }
                if stage == "ended" {
                    channel.disconnect(id).unwrap();
                }
            }
            // What was said leaves.
            context.sleep(TRIP).unwrap();
            if !program_ends {
                drop(channel);
                context.sleep(PATIENCE * 20).unwrap();
            }
        });
        assert_eq!(run.sent[1], said, "{stage}");
    }
}

#[test]
fn managers_do_the_same_each_time() {
    let lossy = || {
        let half = Pattern::Random(Probability::new(0.5).unwrap());
        Some(losing(PsnFilter::Any).when(half))
    };
    let [first, second] = [(); 2].map(|()| {
        run([lossy(), lossy()], |context, role| {
            let (_partner, mut channel, to) = meet(&context, &role);
            let mut told = Vec::new();
            for _ in 0..4 {
                let (_cq, qp) = queue_pair(&context);
                let id = match role.is_server() {
                    true => admit(&mut channel, &qp),
                    false => ask(&mut channel, &to, &qp),
                };
                expect(&mut channel, AGES, "ESTABLISHED");
                context.sleep(secs(60)).unwrap();
                if !role.is_server() {
                    channel.disconnect(id).unwrap();
                }
                loop {
                    let event = channel.get_event(AGES).unwrap().unwrap();
                    told.push((context.now(), event.name()));
                    if event.name() == "TIMEWAIT_EXIT" {
                        break;
                    }
                }
            }
            told
        })
    });
    assert!(first.sent[0] > 4 * 3, "{:?}", first.sent);
    assert_eq!(first.ends, second.ends);
    assert!(first.frames == second.frames);
}

#[cfg(target_os = "linux")]
mod real_time {
    use super::*;
    use softroce_verbs::provider::port::SoftwareCard;
    use std::net::TcpListener;
    use std::time::Instant;

    /// The server's first answer is lost, and its program does `work`, again and again, until the client has got its
    /// connection all the same and has ended it.
    fn busy(work: impl Fn(&mut CompletionQueue) + Sync) {
        let probe = TcpListener::bind(NOWHERE).unwrap();
        let address = probe.local_addr().unwrap();
        drop(probe);
        let server = || {
            let mut card = SoftwareCard::new("server");
            card.udp.common.faults = vec![losing(PsnFilter::Any).at_most(1)];
            let context = card.open().unwrap().context();
            let role = Role::Server { listen: address };
            let (mut partner, mut channel, _) = meet(&context, &role);
            let (mut cq, qp) = queue_pair(&context);
            admit(&mut channel, &qp);
            let begin = Instant::now();
            while partner.try_receive().unwrap().is_none() && begin.elapsed() < secs(60) {
                work(&mut cq);
            }
            assert_eq!(qp.state().unwrap(), State::Error);
            for what in ["ESTABLISHED", "DISCONNECTED"] {
                expect(&mut channel, AT_ONCE, what);
            }
        };
        let client = || {
            let context = SoftwareCard::new("client").open().unwrap().context();
            let role = Role::Client {
                server: address,
                wait: Duration::from_secs(10),
            };
            let (mut partner, mut channel, to) = meet(&context, &role);
            let (_cq, qp) = queue_pair(&context);
            let begin = Instant::now();
            let id = ask(&mut channel, &to, &qp);
            expect(&mut channel, AGES, "ESTABLISHED");
            let asked = begin.elapsed();
            let begin = Instant::now();
            channel.disconnect(id).unwrap();
            expect(&mut channel, AGES, "DISCONNECTED");
            let ended = begin.elapsed();
            partner.send(b"done").unwrap();
            // One retry, and none; the next would be as much later.
            assert!((PATIENCE..PATIENCE * 2).contains(&asked), "{asked:?}");
            assert!(ended < PATIENCE, "{ended:?}");
        };
        std::thread::scope(|s| {
            let threads = [s.spawn(server), s.spawn(client)];
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn peers_are_answered_while_the_program_sleeps() {
        busy(|_| std::thread::sleep(Duration::from_millis(100)));
    }

    #[test]
    fn peers_are_answered_while_the_program_polls() {
        busy(|cq| assert!(cq.poll().unwrap().is_none()));
    }
}
