//! Two cards, each with a manager at work over its queue pair 1, and a wire between them.

use softroce_sim::card::{
    AddressVector, Card, CardConfig, CompletionQueue, Env, Mtu, Notify, PriorityMask, QpInit,
    QpType, QueuePair, RecvRequest, SendRequest, Sge, State, Status, Work,
};
use softroce_sim::cm::{Accept, Agent, AgentError, CmConfig, Connect, Endpoint, Event, Phase};
use softroce_sim::memory::{Access, Buffer, MemoryRegion};
use softroce_sim::places::MAX_PLACES;
use softroce_sim::random::Stream;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::cm::{CommId, Dreq, Mad, Message, PortSpace, RejectReason, ServiceId};
use softroce_sim::wire::{Encapsulation, Gid, MacAddr, QpNumber, RouteTable};
use softroce_tests::bench::Staging;
use std::net::{Ipv4Addr, Ipv6Addr};

const SERVICE: ServiceId = ServiceId::ip(PortSpace::Tcp, 18515);

/// A card, its manager and a program.
struct Host {
    card: Card,
    agent: Agent,
    env: Staging,
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Buffer,
    region: MemoryRegion,
    events: Vec<Event>,
    id: Option<CommId>,
}

struct Pair {
    hosts: [Host; 2],
    gids: [Gid; 2],
    routes: RouteTable,
    now: Time,
    random: Stream,
    /// Of 8 packets of queue pair 1, so many are lost.
    loss: u64,
}

fn vector(gids: &[Gid; 2], to: Gid) -> Option<AddressVector> {
    let at = gids.iter().position(|g| *g == to)?;
    Some(AddressVector {
        dgid: to,
        dmac: MacAddr([2, 0, 0, 0, 0, at as u8]),
        sl: 3,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        udp_src: None,
        vlan: None,
    })
}

impl Pair {
    fn new(gids: [Gid; 2], encapsulation: Encapsulation, loss: u64, seed: u64) -> Pair {
        let routes = RouteTable::new();
        let host = |at: usize| {
            let mac = MacAddr([2, 0, 0, 0, 0, at as u8]);
            let mut config = CardConfig::new(format!("h{at}"), gids[at], mac);
            config.encapsulation = encapsulation;
            let mut card = Card::new(config, seed, routes.clone());
            let config = CmConfig::new(gids[at], mac);
            let agent = Agent::new(&mut card, Time::ZERO, config, seed).unwrap();
            let pd = card.alloc_pd();
            let cq = card.create_cq(16).unwrap();
            let qp = card
                .create_qp(&QpInit::new(QpType::Rc, pd, cq.id(), 8))
                .unwrap();
            let buffer = Buffer::new(64);
            let region = card
                .register(pd, buffer.clone(), Access::LOCAL_WRITE)
                .unwrap();
            Host {
                card,
                agent,
                env: Staging::default(),
                qp,
                cq,
                buffer,
                region,
                events: Vec::new(),
                id: None,
            }
        };
        Pair {
            hosts: [host(0), host(1)],
            gids,
            routes: routes.clone(),
            now: Time::ZERO,
            random: Stream::new(seed, "wire"),
            loss,
        }
    }

    fn end(&mut self, at: usize) -> Endpoint {
        let host = &mut self.hosts[at];
        Endpoint::new(host.qp.number(), host.card.draw_psn())
    }

    fn connect(&mut self) {
        self.hosts[1].agent.cm().listen(SERVICE).unwrap();
        let end = self.end(0);
        let connect = Connect {
            service: SERVICE,
            src_port: 1,
            address: vector(&self.gids, self.gids[1]).unwrap(),
            qp_type: QpType::Rc,
            path_mtu: Mtu::M1024,
            retry_count: 7,
            end,
            private_data: &[],
        };
        let id = self.hosts[0]
            .agent
            .cm()
            .connect(self.now, &connect)
            .unwrap();
        self.hosts[0].id = Some(id);
    }

    /// Asks for 600 connections, more than the send queue holds.
    fn connect_many(&mut self) {
        for n in 0..600 {
            let connect = Connect {
                service: SERVICE,
                src_port: n,
                address: vector(&self.gids, self.gids[1]).unwrap(),
                qp_type: QpType::Uc,
                path_mtu: Mtu::M256,
                retry_count: 0,
                end: Endpoint::new(QpNumber::new(0x1000 + u32::from(n)), Default::default()),
                private_data: &n.to_be_bytes(),
            };
            let cm = self.hosts[0].agent.cm();
            cm.connect(Time::ZERO, &connect).unwrap();
        }
    }

    /// The queue pair goes where the manager's attributes bring it.
    fn bring_up(&mut self, at: usize, id: CommId) {
        let host = &mut self.hosts[at];
        let attributes = host.agent.cm().attributes(id).unwrap();
        for step in attributes.steps(Access::LOCAL_WRITE) {
            host.card
                .modify_qp(self.now, host.qp.number(), &step)
                .unwrap();
        }
    }

    fn program(&mut self, at: usize, event: &Event) {
        match event {
            Event::ConnectRequest { id, .. } => {
                let end = self.end(at);
                let accept = Accept {
                    address: vector(&self.gids, self.gids[1 - at]).unwrap(),
                    end,
                    private_data: &[],
                };
                self.hosts[at].id = Some(*id);
                self.hosts[at]
                    .agent
                    .cm()
                    .accept(self.now, *id, &accept)
                    .unwrap();
                self.bring_up(at, *id);
            }
            Event::ConnectResponse { id, .. } => {
                self.bring_up(at, *id);
                self.hosts[at].agent.cm().establish(*id, &[]).unwrap();
            }
            Event::Disconnected { .. } => {
                let host = &mut self.hosts[at];
                let error = softroce_sim::card::QpAttributes::to(State::Error);
                host.card
                    .modify_qp(self.now, host.qp.number(), &error)
                    .unwrap();
            }
            _ => {}
        }
    }

    /// Everything that can happen now does.
    fn settle(&mut self) {
        loop {
            let mut any = false;
            for at in 0..2 {
                let gids = self.gids;
                let host = &mut self.hosts[at];
                any |= host
                    .agent
                    .turn(&mut host.card, self.now, |to| vector(&gids, to));
                while let Some(event) = self.hosts[at].agent.cm().next_event() {
                    any = true;
                    self.program(at, &event);
                    self.hosts[at].events.push(event);
                }
                loop {
                    let host = &mut self.hosts[at];
                    let packet = host
                        .card
                        .next_packet(self.now, PriorityMask::ALL, &mut host.env);
                    let Some(mut packet) = packet else {
                        break;
                    };
                    any = true;
                    let bytes = host
                        .env
                        .payload(packet.payload)
                        .unwrap_or_default()
                        .to_vec();
                    let lost = self.random.below(8) < self.loss;
                    if lost && packet.bth.dest_qp() == QpNumber::GSI {
                        continue;
                    }
                    let route = self.routes.get(packet.route).unwrap();
                    assert_eq!(route.dst, self.gids[1 - at]);
                    let peer = &mut self.hosts[1 - at];
                    packet.payload = peer.env.hold(bytes);
                    peer.card.receive(self.now, &packet, &route, &mut peer.env);
                }
            }
            if !any {
                return;
            }
        }
    }

    /// On to the next deadline; false if there is none.
    fn wait(&mut self) -> bool {
        self.settle();
        let due = |h: &Host| h.agent.next_timeout().min(h.card.next_timeout());
        let next = due(&self.hosts[0]).min(due(&self.hosts[1]));
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        for host in &mut self.hosts {
            host.card.advance(self.now);
        }
        self.settle();
        true
    }

    fn phases(&mut self) -> [Option<Phase>; 2] {
        self.hosts.each_mut().map(|h| h.agent.cm().phase(h.id?))
    }

    fn run_to(&mut self, phase: Option<Phase>) {
        self.settle();
        let mut turns = 0;
        while self.phases() != [phase, phase] {
            assert!(self.wait() && turns < 1000, "{:?}", self.phases());
            turns += 1;
        }
    }

    /// A message goes from one to the other, and is acknowledged.
    fn talk(&mut self, from: usize) {
        let sge = |h: &Host, at: u64| Sge {
            addr: h.region.addr + at,
            len: 5,
            lkey: h.region.lkey,
        };
        let host = &mut self.hosts[1 - from];
        let sges = [sge(host, 32)];
        host.qp
            .post_recv(&RecvRequest {
                wr_id: 1,
                sges: &sges,
            })
            .unwrap();
        let host = &mut self.hosts[from];
        host.buffer.write_at(0, b"hello");
        let sges = [sge(host, 0)];
        host.qp
            .post_send(&SendRequest::new(2, Work::Send, &sges))
            .unwrap();
        host.card.doorbell(self.now, host.qp.number());
        self.settle();
        for (at, wr_id) in [(from, 2), (1 - from, 1)] {
            let c = self.hosts[at].cq.poll().unwrap();
            assert_eq!((c.wr_id, c.status), (wr_id, Status::Success));
        }
        let mut heard = [0; 5];
        self.hosts[1 - from].buffer.read_at(32, &mut heard);
        assert_eq!(&heard, b"hello");
    }
}

fn networks() -> [([Gid; 2], Encapsulation); 3] {
    let v4 = [1, 2].map(|n| Gid::from(Ipv4Addr::new(10, 0, 0, n)));
    let v6 = [1, 2].map(|n| Gid::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)));
    [
        (v4, Encapsulation::RoceV2),
        (v6, Encapsulation::RoceV2),
        (v6, Encapsulation::RoceV1),
    ]
}

#[test]
fn queue_pairs_are_connected_talk_and_are_disconnected() {
    for (gids, encapsulation) in networks() {
        for loss in [0, 2, 4] {
            let mut pair = Pair::new(gids, encapsulation, loss, 3);
            pair.connect();
            pair.run_to(Some(Phase::Established));
            pair.talk(0);
            pair.talk(1);
            let (id, now) = (pair.hosts[1].id.unwrap(), pair.now);
            pair.hosts[1].agent.cm().disconnect(now, id).unwrap();
            pair.run_to(None);
            for host in &pair.hosts {
                assert_eq!(host.qp.state(), State::Error);
                let names: Vec<_> = host.events.iter().map(Event::name).collect();
                assert_eq!(names[1..], ["ESTABLISHED", "DISCONNECTED", "TIMEWAIT_EXIT"]);
                assert_eq!((host.agent.foreign(), host.agent.unresolved()), (0, 0));
            }
            if loss == 0 {
                // Nothing was waited for but the end of TIMEWAIT.
                let timewait = Span::from_ns(4096 << 19);
                assert_eq!(pair.now, Time::ZERO + timewait);
            }
        }
    }
}

#[test]
fn many_connections_are_made_at_once_through_one_queue_pair_1() {
    let (gids, encapsulation) = networks()[0];
    let mut pair = Pair::new(gids, encapsulation, 0, 5);
    pair.hosts[1].agent.cm().listen(SERVICE).unwrap();
    pair.connect_many();
    // The program says no to all, and says to which.
    let mut answered = Vec::new();
    for _ in 0..2000 {
        for at in 0..2 {
            let host = &mut pair.hosts[at];
            host.agent
                .turn(&mut host.card, pair.now, |to| vector(&gids, to));
            while let Some(event) = host.agent.cm().next_event() {
                match event {
                    Event::ConnectRequest { id, request } => {
                        let reason = RejectReason::CONSUMER;
                        let data = &request.private_data[..2];
                        host.agent.cm().reject(pair.now, id, reason, data).unwrap();
                    }
                    Event::Rejected { private_data, .. } => {
                        answered.push(u16::from_be_bytes([private_data[0], private_data[1]]));
                    }
                    other => panic!("{other:?}"),
                }
            }
            // A slow port: one packet at a time.
            if let Some(mut packet) =
                host.card
                    .next_packet(pair.now, PriorityMask::ALL, &mut host.env)
            {
                let bytes = host.env.payload(packet.payload).unwrap().to_vec();
                let route = pair.routes.get(packet.route).unwrap();
                let peer = &mut pair.hosts[1 - at];
                packet.payload = peer.env.hold(bytes);
                peer.card.receive(pair.now, &packet, &route, &mut peer.env);
            }
        }
        if answered.len() == 600 {
            break;
        }
    }
    assert_eq!(answered, (0..600).collect::<Vec<u16>>());
    assert!(pair.hosts.iter_mut().all(|h| h.agent.cm().is_empty()));
}

/// What found no room leaves when there is some, not when all is said again.
#[test]
fn an_agent_with_more_to_say_than_its_queue_holds_asks_to_be_called_soon() {
    let (gids, encapsulation) = networks()[0];
    let mut pair = Pair::new(gids, encapsulation, 0, 5);
    pair.connect_many();
    let (mut now, mut sent) = (Time::ZERO, 0);
    while now < Time::ZERO + Span::from_ms(1) {
        let host = &mut pair.hosts[0];
        host.agent.turn(&mut host.card, now, |to| vector(&gids, to));
        while host
            .card
            .next_packet(now, PriorityMask::ALL, &mut host.env)
            .is_some()
        {
            sent += 1;
        }
        let next = host.agent.next_timeout();
        assert!(next > now);
        now = next;
    }
    assert_eq!(sent, 600);
}

#[test]
fn one_agent_works_on_a_card() {
    let (gids, encapsulation) = networks()[0];
    let mut pair = Pair::new(gids, encapsulation, 0, 1);
    let config = CmConfig::new(gids[0], MacAddr::default());
    let error = Agent::new(&mut pair.hosts[0].card, Time::ZERO, config, 1).unwrap_err();
    assert!(matches!(error, AgentError::Create(_)));
    assert_eq!(
        error.to_string(),
        "queue pair 1: queue pair 1 exists already"
    );
}

/// What a card has given out to an agent and a program, by the numbers that places have.
fn places(card: &mut Card) -> [u32; 2] {
    let pd = card.alloc_pd();
    let cq = card.create_cq(1).unwrap();
    let number = cq.id().0 % MAX_PLACES;
    card.destroy_cq(cq).unwrap();
    let (gids, _) = networks()[0];
    let handle = card
        .create_ah(pd, &vector(&gids, gids[1]).unwrap())
        .unwrap();
    card.destroy_ah(handle).unwrap();
    [number, handle.place % MAX_PLACES]
}

#[test]
fn an_agent_that_is_closed_or_not_made_leaves_nothing_behind() {
    let (gids, encapsulation) = networks()[0];
    let mut pair = Pair::new(gids, encapsulation, 0, 1);
    let config = CmConfig::new(gids[0], MacAddr([2, 0, 0, 0, 0, 0]));
    pair.connect();
    pair.settle();
    let Host {
        mut card, agent, ..
    } = { pair.hosts }.into_iter().next().unwrap();
    for _ in 0..100 {
        Agent::new(&mut card, Time::ZERO, config, 1).unwrap_err();
    }
    let before = places(&mut card);
    assert!(before[0] <= 3, "{before:?}");
    agent.close(&mut card);
    for _ in 0..100 {
        let agent = Agent::new(&mut card, Time::ZERO, config, 1).unwrap();
        let cq = agent.cq();
        card.request_notify(cq, Notify::Next).unwrap();
        agent.close(&mut card);
        assert_eq!(card.armed(), 0);
    }
    let after = places(&mut card);
    assert!(after[0] <= 3 && after[1] <= 1, "{after:?}");
}

/// Whoever asks has an answer, from however many addresses.
#[test]
fn an_agent_keeps_address_handles_of_those_it_spoke_to_last() {
    let (gids, encapsulation) = networks()[0];
    let mut pair = Pair::new(gids, encapsulation, 0, 1);
    let host = &mut pair.hosts[0];
    let mut answered = 0;
    for from in 0..5000u32 {
        let from: Gid = Ipv4Addr::from(0x0a01_0000 + from).into();
        let ask = Dreq {
            local_id: CommId(7),
            remote_id: CommId(8),
            ..Dreq::default()
        };
        let mad = Mad::new(9, Message::Dreq(ask));
        // One that speaks all the time is known all the time.
        for from in [from, gids[1]] {
            host.agent.cm().receive(pair.now, &mad, from);
        }
        host.agent.turn(&mut host.card, pair.now, |to| {
            Some(AddressVector {
                dgid: to,
                ..vector(&gids, gids[1]).unwrap()
            })
        });
        while let Some(packet) = host
            .card
            .next_packet(pair.now, PriorityMask::ALL, &mut host.env)
        {
            let to = pair.routes.get(packet.route).unwrap().dst;
            assert!(to == from || to == gids[1]);
            answered += 1;
        }
    }
    assert_eq!(answered, 10_000);
    let [_, handles] = places(&mut host.card);
    assert!(handles <= 1024, "{handles} handles");
}
