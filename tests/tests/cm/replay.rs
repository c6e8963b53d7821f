//! The kernel's captures of connections, played again: our manager in the place of either end's. It gets the messages
//! that arrived there, at their times, and a program that asks for what the kernel's program asked for; it must send every byte
//! that the kernel sent. The names of connections are each manager's own: those of our end are put into the place of the
//! kernel's. Queue pair numbers, first PSNs, ports and private data are the program's, and taken from the recording.

use softroce_sim::card::{AddressVector, Mtu, QpAttributes, QpType};
use softroce_sim::cm::{
    Accept, AcceptDatagrams, Cm, CmConfig, Connect, Endpoint, Event, Phase, Reason, Resolve,
};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::cm::{
    CommId, IpHeader, Mad, Message, PortSpace, RejectReason, Rep, Req, ServiceId,
};
use softroce_sim::wire::{Ext, Frame, Gid, MacAddr, Opcode, Psn, QpNumber};
use softroce_tests::replay::case;
use std::net::Ipv4Addr;

/// The last number of both ends' addresses: who is asked, and who asks.
const ENDS: [u8; 2] = [1, 2];

fn gid(host: u8) -> Gid {
    Ipv4Addr::new(10, 66, 0, host).into()
}

fn mac(host: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0x66, 0, host])
}

struct Recording {
    frames: Vec<(Time, Frame)>,
    mads: Vec<(Time, Gid, Mad)>,
}

impl Recording {
    fn load(name: &str) -> Recording {
        let frames = case::frames(name);
        let mads = frames
            .iter()
            .filter(|(_, frame)| frame.bth.dest_qp() == QpNumber::GSI)
            .map(|(at, frame)| {
                let mad = Mad::decode(&frame.payload).expect("a message");
                (*at, frame.network.src(), mad)
            })
            .collect();
        Recording { frames, mads }
    }

    fn req(&self) -> Option<&Req> {
        self.mads.iter().find_map(|(_, _, mad)| match &mad.message {
            Message::Req(m) => Some(m),
            _ => None,
        })
    }

    fn rep(&self) -> Option<&Rep> {
        self.mads.iter().find_map(|(_, _, mad)| match &mad.message {
            Message::Rep(m) => Some(m),
            _ => None,
        })
    }
}

fn vector(to: u8) -> AddressVector {
    AddressVector {
        dgid: gid(to),
        dmac: mac(to),
        sl: 0,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        udp_src: None,
        vlan: None,
    }
}

/// The kernel's name for the connection at this end, in its messages.
fn own_name(mad: &Mad) -> CommId {
    match &mad.message {
        Message::Req(m) => m.local_id,
        Message::Rep(m) => m.local_id,
        Message::Rtu(m) => m.local_id,
        Message::Rej(m) => m.local_id,
        Message::Dreq(m) => m.local_id,
        Message::Drep(m) => m.local_id,
        Message::SidrReq(m) => m.request_id,
        _ => CommId(0),
    }
}

/// The message with `to` in every place where a name of a connection or a transaction is `from`.
fn rename(mad: &Mad, from: (CommId, u64), to: (CommId, u64)) -> Mad {
    let mut mad = *mad;
    if mad.header.tid == from.1 {
        mad.header.tid = to.1;
    }
    let put = |id: &mut CommId| {
        if *id == from.0 {
            *id = to.0;
        }
    };
    match &mut mad.message {
        Message::Req(m) => put(&mut m.local_id),
        Message::Rep(m) => [&mut m.local_id, &mut m.remote_id]
            .into_iter()
            .for_each(put),
        Message::Rtu(m) => [&mut m.local_id, &mut m.remote_id]
            .into_iter()
            .for_each(put),
        Message::Rej(m) => [&mut m.local_id, &mut m.remote_id]
            .into_iter()
            .for_each(put),
        Message::Dreq(m) => [&mut m.local_id, &mut m.remote_id]
            .into_iter()
            .for_each(put),
        Message::Drep(m) => [&mut m.local_id, &mut m.remote_id]
            .into_iter()
            .for_each(put),
        Message::SidrReq(m) => put(&mut m.request_id),
        Message::SidrRep(m) => put(&mut m.request_id),
        _ => {}
    }
    mad
}

/// One end, played by our manager.
struct Stand<'a> {
    recording: &'a Recording,
    host: u8,
    cm: Cm,
    now: Time,
    /// Our name for the connection.
    id: Option<CommId>,
    /// The kernel's.
    theirs: CommId,
    sent: Vec<Mad>,
    events: Vec<Event>,
    steps: Vec<QpAttributes>,
}

impl Stand<'_> {
    fn names(&self) -> [(CommId, u64); 2] {
        let ours = self.id.unwrap_or_default();
        let high = self.cm.config().tid_high;
        // The kernel takes the bytes of its names in the machine's order there.
        let tid = |id: u32| u64::from(high) << 32 | u64::from(id);
        [
            (ours, tid(ours.0)),
            (self.theirs, tid(self.theirs.0.swap_bytes())),
        ]
    }

    /// What the programs of the captures did.
    fn answer(&mut self, event: &Event) {
        let peer = 3 - self.host;
        match event {
            Event::ConnectRequest { id, request } if request.connection.is_some() => {
                self.id = Some(*id);
                let rep = self.recording.rep().expect("it was accepted");
                let end = Endpoint {
                    responder_resources: rep.responder_resources,
                    initiator_depth: rep.initiator_depth,
                    rnr_retry_count: rep.rnr_retry_count,
                    flow_control: rep.flow_control,
                    srq: rep.srq,
                    ..Endpoint::new(rep.qp, rep.starting_psn)
                };
                let accept = Accept {
                    address: vector(peer),
                    end,
                    private_data: &rep.private_data.0,
                };
                self.cm.accept(self.now, *id, &accept).expect("accepted");
                let attributes = self.cm.attributes(*id).expect("attributes");
                self.steps = vec![attributes.rtr, attributes.rts];
            }
            Event::ConnectRequest { id, .. } => {
                self.id = Some(*id);
                let accept =
                    self.recording
                        .mads
                        .iter()
                        .find_map(|(_, _, mad)| match &mad.message {
                            Message::SidrRep(m) => Some(m),
                            _ => None,
                        });
                let m = accept.expect("it was accepted");
                let accept = AcceptDatagrams {
                    qp: m.qp,
                    qkey: m.qkey,
                    private_data: &m.private_data.0,
                };
                self.cm
                    .accept_datagrams(self.now, *id, &accept)
                    .expect("accepted");
            }
            Event::ConnectResponse { id, .. } => {
                let attributes = self.cm.attributes(*id).expect("attributes");
                self.steps = vec![attributes.rtr, attributes.rts];
                self.cm.establish(*id, &[]).expect("established");
            }
            _ => {}
        }
    }

    fn drain(&mut self) {
        loop {
            while let Some(event) = self.cm.next_event() {
                self.answer(&event);
                self.events.push(event);
            }
            let Some(out) = self.cm.next_message() else {
                return;
            };
            assert_eq!(out.to, gid(3 - self.host));
            let [ours, theirs] = self.names();
            self.sent.push(rename(&out.mad, ours, theirs));
        }
    }
}

fn play<'a>(recording: &'a Recording, host: u8, listens: Option<ServiceId>) -> Stand<'a> {
    let own = gid(host);
    let theirs = recording
        .mads
        .iter()
        .filter(|(_, src, _)| *src == own)
        .map(|(_, _, mad)| own_name(mad))
        .find(|id| *id != CommId(0));
    let mut config = CmConfig::new(own, mac(host));
    config.tid_high = 2;
    let mut stand = Stand {
        recording,
        host,
        cm: Cm::new(config, 1),
        now: Time::ZERO,
        id: None,
        theirs: theirs.unwrap_or_default(),
        sent: Vec::new(),
        events: Vec::new(),
        steps: Vec::new(),
    };
    if let Some(service) = listens {
        stand.cm.listen(service).expect("nobody listens yet");
    }
    for (at, src, mad) in &recording.mads {
        stand.now = *at;
        if *src != own {
            let [ours, theirs] = stand.names();
            stand.cm.receive(*at, &rename(mad, theirs, ours), *src);
            stand.drain();
            continue;
        }
        // What the kernel's program did by itself.
        match &mad.message {
            Message::Req(m) => {
                let ip = IpHeader::decode(&m.private_data.0).expect("an IP service");
                let connect = Connect {
                    service: m.service_id,
                    src_port: ip.src_port,
                    address: vector(3 - host),
                    qp_type: QpType::Rc,
                    path_mtu: Mtu::M1024,
                    retry_count: 7,
                    end: Endpoint {
                        responder_resources: m.responder_resources,
                        initiator_depth: m.initiator_depth,
                        flow_control: m.flow_control,
                        ..Endpoint::new(m.qp, m.starting_psn)
                    },
                    private_data: &m.private_data[IpHeader::LEN..],
                };
                stand.id = Some(stand.cm.connect(*at, &connect).expect("asked"));
            }
            Message::SidrReq(m) => {
                let ip = IpHeader::decode(&m.private_data.0).expect("an IP service");
                let resolve = Resolve {
                    service: m.service_id,
                    src_port: ip.src_port,
                    peer: gid(3 - host),
                    private_data: &m.private_data[IpHeader::LEN..],
                };
                stand.id = Some(stand.cm.resolve(*at, &resolve).expect("asked"));
            }
            Message::Dreq(_) => {
                let id = stand.id.expect("a connection");
                stand.cm.disconnect(*at, id).expect("established");
            }
            // Answers come by themselves.
            _ => {}
        }
        stand.drain();
    }
    // TIMEWAIT runs out; nothing else is waited for.
    while stand.cm.next_timeout() != Time::NEVER {
        let next = stand.cm.next_timeout();
        stand.cm.advance(next);
        stand.drain();
    }
    stand
}

/// What the kernel sent at this end.
fn kernel(recording: &Recording, host: u8) -> Vec<Mad> {
    let own = |(_, src, mad): &(Time, Gid, Mad)| (*src == gid(host)).then_some(*mad);
    recording.mads.iter().filter_map(own).collect()
}

fn told(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}

#[test]
fn each_end_of_a_connection_says_what_the_kernel_said() {
    for (name, port) in [("cm_rping", 7174), ("cm_rstream", 7471)] {
        let recording = Recording::load(name);
        let service = ServiceId::ip(PortSpace::Tcp, port);
        for host in ENDS {
            let stand = play(&recording, host, (host == 1).then_some(service));
            let kernel = kernel(&recording, host);
            assert!(kernel.len() >= 2);
            assert_eq!(
                stand.sent.len(),
                kernel.len(),
                "{name}, {host}: {:?}",
                stand.sent
            );
            for (ours, theirs) in stand.sent.iter().zip(&kernel) {
                assert_eq!(ours, theirs, "{name}, {host}");
                assert_eq!(ours.encode(), theirs.encode());
            }
            let begin = if host == 1 {
                "CONNECT_REQUEST"
            } else {
                "CONNECT_RESPONSE"
            };
            assert_eq!(
                told(&stand.events),
                [begin, "ESTABLISHED", "DISCONNECTED", "TIMEWAIT_EXIT"]
            );
            assert!(stand.cm.is_empty());

            // The data that followed had these numbers.
            let first = recording.frames.iter().find(|(_, frame)| {
                let request = matches!(
                    frame.bth.opcode(),
                    Opcode::RC_SEND_ONLY | Opcode::RC_READ_REQUEST | Opcode::RC_WRITE_ONLY_IMM
                );
                request && frame.network.src() == gid(host)
            });
            let (_, first) = first.expect("a request");
            let [rtr, rts] = &stand.steps[..] else {
                panic!("{:?}", stand.steps);
            };
            assert_eq!(rtr.dest_qp, Some(first.bth.dest_qp()), "{name}, {host}");
            assert_eq!(rts.sq_psn, Some(first.bth.psn()), "{name}, {host}");
            assert_eq!(rtr.path_mtu, Some(Mtu::M1024));
            assert_eq!(rtr.address, Some(vector(3 - host)));
        }
    }
}

#[test]
fn where_nobody_listens_each_end_says_what_the_kernel_said() {
    let recording = Recording::load("cm_reject");
    for host in ENDS {
        let stand = play(&recording, host, None);
        assert_eq!(stand.sent, kernel(&recording, host));
        match host {
            // "RDMA_CM_EVENT_REJECTED, error 8".
            2 => assert!(matches!(
                stand.events[..],
                [Event::Rejected {
                    reason: Reason::Rejected(RejectReason::INVALID_SERVICE_ID),
                    ..
                }]
            )),
            _ => assert_eq!(stand.events, []),
        }
    }
}

#[test]
fn each_end_of_a_datagram_service_says_what_the_kernel_said() {
    let recording = Recording::load("cm_udaddy");
    for host in ENDS {
        let service = ServiceId::ip(PortSpace::Udp, 7174);
        let stand = play(&recording, host, (host == 1).then_some(service));
        assert_eq!(stand.sent, kernel(&recording, host), "{host}");
        if host == 1 {
            assert_eq!(told(&stand.events), ["CONNECT_REQUEST"]);
            continue;
        }
        // The datagrams that followed went to this queue pair, with this Q_Key.
        let (_, first) = recording
            .frames
            .iter()
            .find(|(_, frame)| frame.bth.opcode() == Opcode::UD_SEND_ONLY_IMM)
            .expect("a datagram");
        let (Ext::DethImmediate(deth, _), Event::Resolved { qp, qkey, peer, .. }) =
            (first.ext, &stand.events[0])
        else {
            panic!("{:?}", stand.events);
        };
        assert_eq!((*qp, *qkey), (first.bth.dest_qp(), deth.qkey));
        assert_eq!(*peer, first.network.dst());
    }
}

/// Without answers, the kernel's manager asks 16 times (CMA_MAX_CM_RETRIES is 15, and stands in its REQ).
#[test]
fn how_long_and_how_often_it_asks_is_what_the_kernels_request_says() {
    let recording = Recording::load("cm_rping");
    let req = recording.req().expect("a REQ");
    let mut cm = Cm::new(CmConfig::new(gid(2), mac(2)), 1);
    let connect = Connect {
        service: req.service_id,
        src_port: 1,
        address: vector(1),
        qp_type: QpType::Rc,
        path_mtu: Mtu::M1024,
        retry_count: 7,
        end: Endpoint::new(QpNumber::new(0x11), Psn::new(0)),
        private_data: &[],
    };
    let id = cm.connect(Time::ZERO, &connect).expect("asked");
    let mut tries = 0;
    let mut now = Time::ZERO;
    while cm.phase(id) == Some(Phase::ReqSent) {
        while let Some(out) = cm.next_message() {
            assert_eq!(out.mad.message.name(), "REQ");
            tries += 1;
        }
        now = cm.next_timeout();
        cm.advance(now);
    }
    assert_eq!(tries, 1 + u32::from(req.max_cm_retries));
    // Each waits for the peer's time, and the way there and back (a lifetime is half of the ACK timeout).
    let wait = |n: u8| Span::from_ns(4096 << n);
    let each = wait(req.remote_response_timeout) + wait(req.primary_ack_timeout);
    assert_eq!(now, Time::ZERO + each * u64::from(tries));
}
