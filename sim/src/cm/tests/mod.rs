//! Two managers and a network between them that loses, doubles and reorders what it likes.

mod refusals;
mod weather;

use super::*;
use crate::card::{AddressVector, Mtu};
use crate::time::Span;
use crate::wire::cm::PortSpace;
use crate::wire::{MacAddr, Psn};
use std::net::Ipv4Addr;

const SERVICE: ServiceId = ServiceId::ip(PortSpace::Tcp, 7174);

fn gid(end: usize) -> Gid {
    Ipv4Addr::new(10, 0, 0, end as u8 + 1).into()
}

fn vector(to: usize) -> AddressVector {
    AddressVector {
        dgid: gid(to),
        dmac: MacAddr([2, 0, 0, 0, 0, to as u8]),
        sl: 0,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        udp_src: None,
        vlan: None,
    }
}

fn endpoint(end: usize) -> Endpoint {
    Endpoint::new(
        QpNumber::new(0x100 + end as u32),
        Psn::new(1000 + end as u32),
    )
}

fn connect_to(end: usize) -> Connect<'static> {
    Connect {
        service: SERVICE,
        src_port: 40_000,
        address: vector(end),
        qp_type: QpType::Rc,
        path_mtu: Mtu::M1024,
        retry_count: 7,
        end: endpoint(1 - end),
        private_data: b"ask",
    }
}

/// What becomes of a message: not delivered, or delivered after these times.
type Fate<'a> = dyn FnMut(&Outgoing) -> Vec<Span> + 'a;

struct World {
    ends: [Cm; 2],
    now: Time,
    /// Messages on their way: when, in which order, to whom.
    wire: BTreeMap<(Time, u64), (usize, Mad)>,
    sent: Vec<(usize, &'static str)>,
    events: [Vec<Event>; 2],
    /// Programs answer by themselves.
    willing: bool,
}

impl World {
    fn new() -> World {
        let end = |end: usize| {
            let mac = MacAddr([2, 0, 0, 0, 0, end as u8]);
            Cm::new(CmConfig::new(gid(end), mac), 7)
        };
        World {
            ends: [end(0), end(1)],
            now: Time::ZERO,
            wire: BTreeMap::new(),
            sent: Vec::new(),
            events: [Vec::new(), Vec::new()],
            willing: true,
        }
    }

    /// Takes out what has come out, and lets the programs answer.
    fn drain(&mut self, fate: &mut Fate<'_>) {
        loop {
            let mut any = false;
            for end in 0..2 {
                while let Some(out) = self.ends[end].next_message() {
                    any = true;
                    self.sent.push((end, out.mad.message.name()));
                    let to = usize::from(out.to == gid(1));
                    for delay in fate(&out) {
                        let order = self.sent.len() as u64 * 8 + self.wire.len() as u64 % 8;
                        let at = self.now + delay;
                        let mut key = (at, order);
                        while self.wire.contains_key(&key) {
                            key.1 += 1;
                        }
                        self.wire.insert(key, (to, out.mad));
                    }
                }
                while let Some(event) = self.ends[end].next_event() {
                    any = true;
                    if self.willing {
                        self.answer(end, &event);
                    }
                    self.events[end].push(event);
                }
            }
            if !any {
                return;
            }
        }
    }

    fn answer(&mut self, end: usize, event: &Event) {
        let (cm, now) = (&mut self.ends[end], self.now);
        match event {
            Event::ConnectRequest { id, request } if request.connection.is_some() => {
                let accept = Accept {
                    address: vector(1 - end),
                    end: endpoint(end),
                    private_data: b"yes",
                };
                cm.accept(now, *id, &accept).unwrap();
                assert!(cm.attributes(*id).is_some());
            }
            Event::ConnectRequest { id, .. } => {
                let accept = AcceptDatagrams {
                    qp: QpNumber::new(0x55),
                    qkey: 0x0123_4567,
                    private_data: b"here",
                };
                cm.accept_datagrams(now, *id, &accept).unwrap();
            }
            Event::ConnectResponse { id, .. } => {
                assert!(cm.attributes(*id).is_some());
                cm.establish(*id, b"").unwrap();
            }
            _ => {}
        }
    }

    /// One thing that is due next happens; false if nothing ever will.
    fn step(&mut self, fate: &mut Fate<'_>) -> bool {
        self.drain(fate);
        let arrival = self.wire.keys().next().map_or(Time::NEVER, |k| k.0);
        let timers = [0, 1].map(|end| self.ends[end].next_timeout());
        let next = arrival.min(timers[0]).min(timers[1]);
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        if arrival == next {
            let (_, (to, mad)) = self.wire.pop_first().unwrap();
            self.ends[to].receive(self.now, &mad, gid(1 - to));
        } else {
            for end in &mut self.ends {
                end.advance(self.now);
            }
        }
        self.drain(fate);
        true
    }

    /// Until nothing more happens.
    fn run(&mut self, fate: &mut Fate<'_>) {
        let mut steps = 0;
        while self.step(fate) {
            steps += 1;
            assert!(steps < 10_000, "it does not end: {:?}", self.sent);
        }
    }

    fn names(&self, end: usize) -> Vec<&'static str> {
        self.events[end].iter().map(Event::name).collect()
    }

    fn phases(&self) -> [Vec<Phase>; 2] {
        [0, 1].map(|end| {
            self.ends[end]
                .connections
                .values()
                .map(|c| c.phase)
                .collect()
        })
    }

    fn messages(&self) -> Vec<&'static str> {
        self.sent.iter().map(|s| s.1).collect()
    }
}

fn at_once(_: &Outgoing) -> Vec<Span> {
    vec![Span::from_us(10)]
}

/// A connection of which both ends know.
fn connected() -> (World, CommId, CommId) {
    let mut w = World::new();
    w.ends[1].listen(SERVICE).unwrap();
    let asked = w.ends[0].connect(Time::ZERO, &connect_to(1)).unwrap();
    w.run(&mut at_once);
    let taken = w.events[1][0].id();
    (w, asked, taken)
}

#[test]
fn a_connection_is_made_used_and_ended() {
    let (mut w, asked, taken) = connected();
    assert_eq!(w.messages(), ["REQ", "REP", "RTU"]);
    assert_eq!(w.names(0), ["CONNECT_RESPONSE", "ESTABLISHED"]);
    assert_eq!(w.names(1), ["CONNECT_REQUEST", "ESTABLISHED"]);
    let Event::ConnectRequest { request, .. } = &w.events[1][0] else {
        panic!("{:?}", w.events[1]);
    };
    assert_eq!((request.service, request.peer), (SERVICE, gid(0)));
    let ip = request.ip.unwrap();
    assert_eq!(
        (ip.src, ip.src_port, ip.dst),
        (gid(0).ip(), 40_000, gid(1).ip())
    );
    assert_eq!(request.private_data[..4], *b"ask\0");

    // Each end sends to the other's queue pair, from the PSN that the other said.
    let [a, b] = [(0, asked), (1, taken)].map(|(end, id)| w.ends[end].attributes(id).unwrap());
    assert_eq!(
        (a.rtr.dest_qp, b.rtr.dest_qp),
        (Some(endpoint(1).qp), Some(endpoint(0).qp))
    );
    assert_eq!((a.rts.sq_psn, b.rts.sq_psn), (b.rtr.rq_psn, a.rtr.rq_psn));
    assert_eq!(
        (a.rtr.rq_psn, b.rtr.rq_psn),
        (Some(Psn::new(1000)), Some(Psn::new(1001)))
    );
    assert_eq!(
        (a.rtr.path_mtu, b.rtr.path_mtu),
        (Some(Mtu::M1024), Some(Mtu::M1024))
    );
    assert_eq!((a.rts.timeout, b.rts.timeout), (Some(19), Some(19)));
    assert_eq!((a.rts.retry_cnt, b.rts.rnr_retry), (Some(7), Some(7)));

    w.ends[1].disconnect(w.now, taken).unwrap();
    w.run(&mut at_once);
    assert_eq!(w.messages()[3..], ["DREQ", "DREP"]);
    for end in 0..2 {
        assert_eq!(w.names(end)[2..], ["DISCONNECTED", "TIMEWAIT_EXIT"]);
        assert!(w.ends[end].is_empty() && w.ends[end].by_qp.is_empty());
        assert!(w.ends[end].by_remote.is_empty());
    }
    // 4.096 us x 2^19 in TIMEWAIT.
    assert!(w.now > Time::ZERO + Span::from_ms(2147));
}

#[test]
fn reads_are_what_both_ends_can_do() {
    let mut w = World::new();
    w.willing = false;
    w.ends[1].listen(SERVICE).unwrap();
    let mut ask = connect_to(1);
    (ask.end.responder_resources, ask.end.initiator_depth) = (4, 16);
    let asked = w.ends[0].connect(w.now, &ask).unwrap();
    assert!(w.step(&mut at_once));
    let Event::ConnectRequest { id, ref request } = w.events[1][0] else {
        panic!("{:?}", w.events[1]);
    };
    // What the asker will have outstanding is what the other end has to answer.
    let wanted = request.connection.unwrap();
    assert_eq!(
        (wanted.responder_resources, wanted.initiator_depth),
        (16, 4)
    );
    let mut end = endpoint(1);
    (end.responder_resources, end.initiator_depth) = (8, 8);
    let accept = Accept {
        address: vector(0),
        end,
        private_data: &[],
    };
    w.ends[1].accept(w.now, id, &accept).unwrap();
    while w.ends[0].phase(asked) != Some(Phase::RepReceived) {
        assert!(w.step(&mut at_once));
    }
    let [a, b] = [(0, asked), (1, id)].map(|(end, id)| w.ends[end].attributes(id).unwrap());
    assert_eq!(
        (a.rts.max_rd_atomic, b.rtr.max_dest_rd_atomic),
        (Some(8), Some(8))
    );
    assert_eq!(
        (b.rts.max_rd_atomic, a.rtr.max_dest_rd_atomic),
        (Some(4), Some(4))
    );
}

#[test]
fn who_does_not_answer_is_unreachable_after_sixteen_tries() {
    let mut w = World::new();
    let id = w.ends[0].connect(w.now, &connect_to(1)).unwrap();
    w.run(&mut |_| vec![]);
    let mut expected = vec!["REQ"; 16];
    expected.push("REJ");
    assert_eq!(w.messages(), expected);
    assert_eq!(w.events[0], [Event::Unreachable { id }]);
    // Sixteen times 4.096 us x (2^20 + 2 x 2^18).
    assert_eq!(
        w.now,
        Time::ZERO + Span::from_ns(16 * 4096 * ((1 << 20) + (1 << 19)))
    );
    assert!(w.ends[0].is_empty());
}

#[test]
fn a_request_that_comes_again_is_told_to_wait() {
    let mut w = World::new();
    w.willing = false;
    w.ends[1].listen(SERVICE).unwrap();
    w.ends[0].connect(w.now, &connect_to(1)).unwrap();
    while w.messages() != ["REQ", "REQ", "MRA"] || !w.wire.is_empty() {
        assert!(w.step(&mut at_once));
    }
    // The asker waits for 4.096 us x (2^24 + 2^18), while the program takes 30 s.
    let wait = Span::from_ns(4096 * ((1 << 24) + (1 << 18)));
    assert_eq!(w.ends[0].next_timeout(), w.now + wait);
    w.now = Time::ZERO + Span::from_ms(30_000);
    assert_eq!(w.names(1), ["CONNECT_REQUEST"], "it is told once");
    w.willing = true;
    let event = w.events[1][0].clone();
    w.answer(1, &event);
    w.run(&mut at_once);
    assert_eq!(w.phases(), [[Phase::Established], [Phase::Established]]);
}

#[test]
fn a_lost_rtu_is_made_good_by_the_next_rep_or_a_packet() {
    for packet in [false, true] {
        let mut w = World::new();
        w.ends[1].listen(SERVICE).unwrap();
        w.ends[0].connect(w.now, &connect_to(1)).unwrap();
        let mut lost = 0;
        let mut fate = |out: &Outgoing| {
            if matches!(out.mad.message, Message::Rtu(_)) && lost < 2 {
                lost += 1;
                return vec![];
            }
            at_once(out)
        };
        if packet {
            while w.names(0).last() != Some(&"ESTABLISHED") {
                assert!(w.step(&mut fate));
            }
            let id = w.events[1][0].id();
            w.ends[1].packet_came(id).unwrap();
        }
        w.run(&mut fate);
        assert_eq!(w.phases(), [[Phase::Established], [Phase::Established]]);
        assert_eq!(w.names(1), ["CONNECT_REQUEST", "ESTABLISHED"]);
        let rtus = w.messages().iter().filter(|m| **m == "RTU").count();
        assert_eq!(rtus, if packet { 1 } else { 3 });
    }
}

#[test]
fn both_ends_may_end_it_at_once() {
    let (mut w, asked, taken) = connected();
    w.ends[0].disconnect(w.now, asked).unwrap();
    w.ends[1].disconnect(w.now, taken).unwrap();
    w.ends[1].disconnect(w.now, taken).unwrap();
    w.run(&mut at_once);
    for end in 0..2 {
        assert_eq!(w.names(end)[2..], ["DISCONNECTED", "TIMEWAIT_EXIT"]);
    }
    let error = w.ends[0].disconnect(w.now, asked).unwrap_err();
    assert_eq!(error, CmError::UnknownConnection(asked));
}

#[test]
fn an_end_whose_peer_has_forgotten_finds_out() {
    // The peer begins again: its old connection is ended, and only the next try finds a place.
    let (mut w, _, taken) = connected();
    let mac = MacAddr([2, 0, 0, 0, 0, 0]);
    w.ends[0] = Cm::new(CmConfig::new(gid(0), mac), 8);
    w.events = [vec![], vec![]];
    w.ends[0].connect(w.now, &connect_to(1)).unwrap();
    w.run(&mut at_once);
    assert!(matches!(
        w.events[0][..],
        [Event::Rejected {
            reason: Reason::Rejected(RejectReason::STALE_CONNECTION),
            ..
        }]
    ));
    assert_eq!(w.events[1][0], Event::Disconnected { id: taken });
    w.events = [vec![], vec![]];
    w.ends[0].connect(w.now, &connect_to(1)).unwrap();
    w.run(&mut at_once);
    assert_eq!(w.names(0), ["CONNECT_RESPONSE", "ESTABLISHED"]);
}

#[test]
fn a_datagram_service_is_found_or_not() {
    let service = ServiceId::ip(PortSpace::Udp, 7174);
    let resolve = Resolve {
        service,
        src_port: 52_000,
        peer: gid(1),
        private_data: b"who",
    };
    let mut w = World::new();
    let id = w.ends[0].resolve(w.now, &resolve).unwrap();
    w.run(&mut at_once);
    assert!(matches!(
        w.events[0][..],
        [Event::Rejected { reason: Reason::Datagrams(SidrStatus::UNSUPPORTED), id: of, .. }] if of == id
    ));
    // The answer is lost twice; the asker asks again and gets the same.
    let mut w = World::new();
    w.ends[1].listen(service).unwrap();
    let id = w.ends[0].resolve(w.now, &resolve).unwrap();
    let mut lost = 0;
    w.run(&mut |out| {
        if matches!(out.mad.message, Message::SidrRep(_)) && lost < 2 {
            lost += 1;
            return vec![];
        }
        at_once(out)
    });
    assert_eq!(w.names(1), ["CONNECT_REQUEST"]);
    let [
        Event::Resolved {
            id: of,
            peer,
            qp,
            qkey,
            private_data,
        },
    ] = &w.events[0][..]
    else {
        panic!("{:?}", w.events[0]);
    };
    assert_eq!(
        (*of, *peer, qp.get(), *qkey),
        (id, gid(1), 0x55, 0x0123_4567)
    );
    assert_eq!(private_data[..5], *b"here\0");
    assert!(w.ends[0].is_empty() && w.ends[1].is_empty());
}
