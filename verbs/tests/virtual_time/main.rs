//! Programs in virtual time, through the public door: what they wait for, (`groups`) multicast, (`partners`) what they
//! exchange.

mod groups;
mod partners;

use softroce_sim::card::{Card, CardConfig};
use softroce_sim::fabric::machine::Machine;
use softroce_sim::fabric::{Config, LinkSpec, Network, PayloadMode, Rate, SwitchSpec, Topology};
use softroce_sim::time::Span;
use softroce_verbs::provider::sim::World;
use softroce_verbs::{
    Access, AddressVector, Completion, CompletionKind, CompletionQueue, Connection, Context,
    Endpoint, Error, Gid, Notify, Partner, Psn, QpNumber, QpType, RecvRequest, Remote, RemoteKey,
    Result, Role, SendRequest, Status, Work,
};
use std::net::Ipv4Addr;
use std::time::Duration;

/// 100 Gb/s, 500 ns each way.
fn link() -> LinkSpec {
    LinkSpec::new(Rate::from_gbps(100), Span::from_ns(500))
}

fn network() -> Network<Machine, ()> {
    network_of(Topology::back_to_back(link()))
}

fn network_of(topology: Topology) -> Network<Machine, ()> {
    let config = Config {
        seed: 7,
        payload: PayloadMode::Carried,
        ..Config::default()
    };
    let routes = config.routes.clone();
    Network::new(&topology, config, (), |_, node| {
        let card = CardConfig::new(&node.name, node.gid(), node.mac);
        Machine::new(Card::new(card, 7, routes.clone()), 16).expect("a completion queue of 16")
    })
    .expect("a network of two")
}

const SERVER: Role = Role::Server {
    listen: std::net::SocketAddr::V4(std::net::SocketAddrV4::new(
        std::net::Ipv4Addr::LOCALHOST,
        0,
    )),
};

const CLIENT: Role = Role::Client {
    server: std::net::SocketAddr::V4(std::net::SocketAddrV4::new(
        std::net::Ipv4Addr::LOCALHOST,
        0,
    )),
    wait: Duration::ZERO,
};

/// SENDs there and back; how long all of it took.
fn ping_pong(context: &Context, role: &Role, rounds: u32) -> Result<Duration> {
    ping_pong_by(context, role, rounds, |cq| {
        cq.wait(Duration::from_millis(1))
    })
}

/// Waits for a completion by looking again and again.
fn poll(cq: &mut CompletionQueue) -> Result<Completion> {
    loop {
        if let Some(completion) = cq.poll()? {
            return Ok(completion);
        }
    }
}

fn ping_pong_by(
    context: &Context,
    role: &Role,
    rounds: u32,
    next: fn(&mut CompletionQueue) -> Result<Completion>,
) -> Result<Duration> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16, None)?;
    let mut qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
    let mr = pd.reg_new(64, Access::LOCAL_WRITE)?;
    let mut partner = context.exchange(role)?;
    let psn = Psn::new(1);
    let peer = partner.swap(&qp.endpoint(psn)?)?;
    qp.connect(psn, &peer, &Connection::default())?;
    let sge = [mr.sge(0, 64)];
    let receive = RecvRequest {
        wr_id: 1,
        sges: &sge,
    };
    qp.post_recv(&receive)?;
    partner.barrier()?;
    let start = context.now();
    let send = SendRequest::new(2, Work::Send, &sge);
    let mut received = 0;
    let mut done = 0;
    if !role.is_server() {
        qp.post_send(&send)?;
    }
    while received < rounds || done < rounds {
        let completion = next(&mut cq)?;
        assert_eq!(completion.status, Status::Success);
        match completion.kind {
            CompletionKind::Receive => {
                received += 1;
                qp.post_recv(&receive)?;
                if role.is_server() || received < rounds {
                    qp.post_send(&send)?;
                }
            }
            _ => done += 1,
        }
    }
    Ok(context.now() - start)
}

#[test]
fn a_ping_pong_takes_what_the_wire_takes() {
    let mut world = World::new(network());
    for (host, role) in [("h0", CLIENT), ("h1", SERVER)] {
        world
            .start(host, move |context| ping_pong(&context, &role, 10))
            .unwrap();
    }
    let times: Vec<Duration> = world.run().into_iter().map(|t| t.unwrap()).collect();
    // A SEND of 64 bytes is 14 + 20 + 8 + 12 + 64 + 4 of headers, data and ICRC, and 24 of FCS, preamble and
    // gap: 146 bytes, 11.68 ns. Each of 20 takes that and 500 ns, and is found at most one poll (100 ns)
    // late; the last acknowledgement takes another way.
    let least = Duration::from_nanos(20 * 511);
    assert!(
        times[0] >= least && times[0] <= least + Duration::from_nanos(20 * 101 + 700),
        "{times:?}"
    );
}

/// Completions of another queue of the host wake who waits, and do not make the wait longer.
#[test]
fn a_wait_ends_in_time_whatever_another_queue_gets() {
    const LIMIT: Duration = Duration::from_micros(100);
    let program = |context: Context, role: Role| -> Result<Duration> {
        let pd = context.alloc_pd()?;
        let mut idle = context.create_cq(16, None)?;
        let mut cq = context.create_cq(64, None)?;
        let mut qp = pd.create_qp(QpType::Rc).cq(&cq).max_recv_wr(16).build()?;
        let mr = pd.reg_new(64, Access::LOCAL_WRITE)?;
        let mut partner = context.exchange(&role)?;
        let psn = Psn::new(1);
        let peer = partner.swap(&qp.endpoint(psn)?)?;
        qp.connect(psn, &peer, &Connection::default())?;
        let sges = [mr.sge(0, 64)];
        for wr_id in 0..10 {
            qp.post_recv(&RecvRequest { wr_id, sges: &sges })?;
        }
        partner.barrier()?;
        let start = context.now();
        if role.is_server() {
            // The last comes shortly before the end.
            for wr_id in 0..10 {
                context.sleep(Duration::from_nanos(9_500))?;
                qp.post_send(&SendRequest::new(wr_id, Work::Send, &sges))?;
            }
        } else {
            match idle.wait(LIMIT) {
                Err(Error::TimedOut { limit, .. }) => assert_eq!(limit, LIMIT),
                other => panic!("{other:?}"),
            }
        }
        let took = context.now() - start;
        for _ in 0..10 {
            cq.wait(LIMIT)?;
        }
        Ok(took)
    };
    let mut world = World::new(network());
    for (host, role) in [("h0", CLIENT), ("h1", SERVER)] {
        world
            .start(host, move |context| program(context, role))
            .unwrap();
    }
    let took: Vec<Duration> = world.run().into_iter().map(|t| t.unwrap()).collect();
    // A look at a queue takes 100 ns.
    let latest = LIMIT + Duration::from_nanos(300);
    assert!((LIMIT..=latest).contains(&took[0]), "{took:?}");
}

#[test]
fn who_waits_sees_what_polling_would_have_seen() {
    let took = |next: fn(&mut CompletionQueue) -> Result<Completion>| {
        let mut world = World::new(network());
        for (host, role) in [("h0", CLIENT), ("h1", SERVER)] {
            world
                .start(host, move |context| {
                    ping_pong_by(&context, &role, 100, next)
                })
                .unwrap();
        }
        let times = world.run().into_iter().map(|t| t.unwrap());
        times.collect::<Vec<Duration>>()
    };
    assert_eq!(took(|cq| cq.wait(Duration::from_secs(1))), took(poll));
}

/// Ten thousand million polls of both programs: they are not made one by one.
#[test]
fn a_long_wait_in_vain_is_short() {
    let mut world = World::new(network());
    for host in ["h0", "h1"] {
        world
            .start(host, |context| -> Result<(bool, Duration)> {
                let mut cq = context.create_cq(1, None)?;
                let start = context.now();
                let waited = cq.wait(Duration::from_secs(1000));
                let timed_out = matches!(waited, Err(Error::TimedOut { .. }));
                Ok((timed_out, context.now() - start))
            })
            .unwrap();
    }
    for outcome in world.run() {
        let (timed_out, took) = outcome.unwrap();
        assert!(timed_out);
        let limit = Duration::from_secs(1000);
        assert!(
            (limit..limit + Duration::from_micros(1)).contains(&took),
            "{took:?}"
        );
    }
}

/// Words written there and back, each waited for in memory; how long that took at either end. The server, or another
/// program beside it, writes the last one `late`.
fn write_back(context: &Context, role: &Role, rests: bool, late: Duration) -> Result<Duration> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16, None)?;
    let mut qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = std::sync::Arc::new(pd.reg_new(16, access)?);
    let mut partner = context.exchange(role)?;
    let peer = partner.swap(&qp.endpoint(Psn::new(1))?)?;
    let (there, _) = partner.swap_memory(mr.remote(8), 8)?;
    qp.connect(Psn::new(1), &peer, &Connection::default())?;
    partner.barrier()?;
    let start = context.now();
    let wait_for = |word: u64, cq: &mut CompletionQueue| -> Result<()> {
        loop {
            let mut found = [0; 8];
            mr.memory().read_at(8, &mut found);
            if u64::from_ne_bytes(found) == word {
                return Ok(());
            }
            if cq.poll()?.is_none() && rests {
                assert!(context.rest(Duration::from_secs(10_000))?);
            }
        }
    };
    for word in 1..=20 {
        if role.is_server() {
            wait_for(word, &mut cq)?;
        }
        if role.is_server() && word == 20 {
            context.sleep(late)?;
        }
        mr.memory().write_at(0, &word.to_ne_bytes());
        qp.post_send(&SendRequest::new(word, Work::Write(there), &[mr.sge(0, 8)]))?;
        if !role.is_server() {
            wait_for(word, &mut cq)?;
        }
    }
    // What another program on the same host writes is seen as well.
    let memory = mr.clone();
    let beside = context.spawn(move |context| {
        context.sleep(late)?;
        memory.memory().write_at(8, &21u64.to_ne_bytes());
        Ok::<_, Error>(())
    })?;
    wait_for(21, &mut cq)?;
    let took = context.now() - start;
    beside.join()?.expect("no panic")?;
    Ok(took)
}

#[test]
fn who_waits_for_memory_sees_what_polling_would_have_seen() {
    let took = |rests: bool, late: Duration| {
        let mut world = World::new(network());
        for (host, role) in [("h0", CLIENT), ("h1", SERVER)] {
            world
                .start(host, move |context| {
                    write_back(&context, &role, rests, late)
                })
                .unwrap();
        }
        let times = world.run().into_iter().map(|t| t.unwrap());
        times.collect::<Vec<Duration>>()
    };
    let late = Duration::from_nanos(12_345);
    let rested = took(true, late);
    assert_eq!(rested, took(false, late));
    // A WRITE of 8 bytes is 82 bytes, a RETH and its data at 100 Gb/s, and then 500 ns on its way.
    let least = 2 * late + Duration::from_nanos(40 * 508);
    assert!(rested.iter().all(|t| *t > least), "{rested:?}");
    // Two times ten thousand million polls of either program, which are not made one by one.
    let late = Duration::from_secs(1000);
    let took = took(true, late);
    assert!(took.iter().all(|t| *t > 2 * late), "{took:?}");
}

#[test]
fn the_same_programs_do_the_same_again() {
    let once = || {
        let mut world = World::new(network());
        for (host, role) in [("h1", SERVER), ("h0", CLIENT)] {
            world
                .start(host, move |context| ping_pong(&context, &role, 50))
                .unwrap();
        }
        let times: Vec<Duration> = world.run().into_iter().map(|t| t.unwrap()).collect();
        world.with_fabric(|fabric| {
            let hosts = [fabric.host(0), fabric.host(1)];
            let counters = hosts.map(|h| format!("{:?}", fabric.card(h).counters()));
            (times, fabric.now(), counters)
        })
    };
    assert_eq!(once(), once());
}

#[test]
fn a_program_sleeps_until_its_channel_tells() {
    let mut world = World::new(network());
    for (host, role) in [("h0", CLIENT), ("h1", SERVER)] {
        world
            .start(host, move |context| -> Result<Duration> {
                let pd = context.alloc_pd()?;
                let channel = context.create_comp_channel()?;
                let mut cq = context.create_cq(16, Some(&channel))?;
                let mut qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
                let mr = pd.reg_new(64, Access::LOCAL_WRITE)?;
                let mut partner = context.exchange(&role)?;
                let peer = partner.swap(&qp.endpoint(Psn::new(1))?)?;
                qp.connect(Psn::new(1), &peer, &Connection::default())?;
                let sge = [mr.sge(0, 64)];
                if role.is_server() {
                    qp.post_recv(&RecvRequest {
                        wr_id: 1,
                        sges: &sge,
                    })?;
                }
                cq.req_notify(Notify::Next)?;
                partner.barrier()?;
                if !role.is_server() {
                    context.sleep(Duration::from_micros(30))?;
                    qp.post_send(&SendRequest::new(2, Work::Send, &sge))?;
                }
                assert_eq!(
                    channel
                        .get_cq_event(Some(Duration::from_micros(10)))?
                        .is_some(),
                    !role.is_server()
                );
                if role.is_server() {
                    assert_eq!(channel.get_cq_event(None)?, Some(cq.id()));
                }
                let at = context.now();
                assert_eq!(cq.poll()?.map(|c| c.status), Some(Status::Success));
                Ok(at)
            })
            .unwrap();
    }
    let times: Vec<Duration> = world.run().into_iter().map(|t| t.unwrap()).collect();
    // There after one way, back after two: 511.68 ns, and some 507 more for the acknowledgement's 66 + 20 bytes.
    let after = |us, t: Duration| t - Duration::from_micros(us);
    assert_eq!(after(30, times[1]).as_nanos(), 511);
    assert!(
        (1015..1025).contains(&after(30, times[0]).as_nanos()),
        "{times:?}"
    );
}

#[test]
fn who_waits_for_nothing_is_told() {
    let mut world = World::new(network());
    world
        .start("h0", |context| {
            let channel = context.create_comp_channel()?;
            channel.get_cq_event(None).map(drop)
        })
        .unwrap();
    world
        .start("h1", |context| context.exchange(&CLIENT).map(drop))
        .unwrap();
    let outcomes: Vec<Result<()>> = world.run();
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::StandsStill { .. }), "{error}");
    }
}

#[test]
fn programs_beside_each_other_take_turns() {
    let mut world = World::new(network());
    world
        .start("h0", |context| -> Result<Vec<u64>> {
            let sleeper = |ns| {
                move |c: Context| {
                    c.sleep(Duration::from_nanos(ns))?;
                    Ok::<_, Error>(c.now())
                }
            };
            let late = context.spawn(sleeper(300))?;
            let early = context.spawn(sleeper(100))?;
            let mut times = Vec::new();
            for spawned in [late, early] {
                times.push(spawned.join()?.expect("no panic")?.as_nanos() as u64);
            }
            times.push(context.now().as_nanos() as u64);
            Ok(times)
        })
        .unwrap();
    assert_eq!(world.run().remove(0).unwrap(), [300, 100, 300]);
}

#[test]
fn a_queue_outlives_its_owner_while_it_is_used() {
    let mut world = World::new(network());
    world
        .start("h0", |context| -> Result<()> {
            let pd = context.alloc_pd()?;
            let cq = context.create_cq(16, None)?;
            let qp = pd.create_qp(QpType::Rc).cq(&cq).build()?;
            drop(cq);
            drop(pd);
            qp.modify(&softroce_verbs::QpAttributes::to_init(Access::LOCAL_WRITE))?;
            drop(context);
            drop(qp);
            Ok(())
        })
        .unwrap();
    world.run().remove(0).unwrap();
}
