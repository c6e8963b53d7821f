//! Multicast groups on ports: who is given what is sent to them.

use crate::ends::Frames;
use softroce_sim::card::{
    AddressVector, Card, CompletionKind, CompletionQueue, Datagram, QpAttributes, QpInit, QpType,
    QueuePair, RecvRequest, Refusal, SendRequest, Sge, State, Work,
};
use softroce_sim::memory::{Access, Buffer, Pd};
use softroce_sim::port::{
    ChannelDevice, Direction, EthernetConfig, EthernetPort, Link, Port, UdpConfig, UdpPort,
};
use softroce_sim::time::Time;
use softroce_sim::wire::{Gid, MacAddr, Psn, QpNumber};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const QKEY: u32 = 7;
/// Bytes of a buffer: the header, and more than enough.
const LEN: u32 = 100;
const DEPTH: u32 = 16;

fn group(octets: [u8; 4]) -> Gid {
    Ipv4Addr::from(octets).into()
}

/// A card with one queue pair for datagrams.
struct Station<L> {
    port: Port<L>,
    card: Card,
    pd: Pd,
    cq: CompletionQueue,
    qp: QueuePair,
    buffer: Buffer,
}

impl<L: Link> Station<L> {
    fn new(port: Port<L>) -> Station<L> {
        let mut card = Card::new(port.card_config("member"), 1, port.routes());
        let pd = card.alloc_pd();
        let cq = card.create_cq(4 * DEPTH).unwrap();
        let buffer = Buffer::new((LEN * DEPTH) as usize);
        let region = card
            .register(pd, buffer.clone(), Access::LOCAL_WRITE)
            .unwrap();
        let init = QpInit {
            max_inline: LEN,
            ..QpInit::new(QpType::Ud, pd, cq.id(), DEPTH)
        };
        let mut qp = card.create_qp(&init).unwrap();
        for step in [
            QpAttributes::to_init_datagrams(QKEY),
            QpAttributes::to(State::Rtr),
            QpAttributes::to_rts(Psn::new(1), None),
        ] {
            card.modify_qp(Time::ZERO, qp.number(), &step).unwrap();
        }
        for wr_id in 0..u64::from(DEPTH) {
            let sges = &[Sge {
                addr: region.addr + wr_id * u64::from(LEN),
                len: LEN,
                lkey: region.lkey,
            }];
            qp.post_recv(&RecvRequest { wr_id, sges }).unwrap();
        }
        Station {
            port,
            card,
            pd,
            cq,
            qp,
            buffer,
        }
    }

    fn attach(&mut self, group: Gid) {
        self.card.attach_mcast(self.qp.number(), group).unwrap();
        self.port.poll(&mut self.card).unwrap();
        assert!(self.port.take_join_error().is_none());
    }

    fn detach(&mut self, group: Gid) {
        self.card.detach_mcast(self.qp.number(), group).unwrap();
        self.port.poll(&mut self.card).unwrap();
    }

    fn tell(&mut self, group: Gid, text: &[u8]) {
        let vector = AddressVector::new(group);
        let address = self.card.create_ah(self.pd, &vector).unwrap();
        let request = SendRequest {
            to: Some(Datagram {
                address,
                qp: QpNumber::MULTICAST,
                qkey: QKEY,
            }),
            inline: Some(text),
            ..SendRequest::new(99, Work::Send, &[])
        };
        self.qp.post_send(&request).unwrap();
        self.card.doorbell(self.port.now(), self.qp.number());
        self.port.poll(&mut self.card).unwrap();
    }

    /// What has come, with the address that it was sent to; all that is there now.
    fn heard(&mut self) -> Vec<(Vec<u8>, [u8; 4])> {
        while self.port.poll(&mut self.card).unwrap().any() {}
        let mut heard = Vec::new();
        while let Some(c) = self.cq.poll() {
            if c.kind != CompletionKind::Receive {
                continue;
            }
            let mut bytes = vec![0; c.byte_len as usize];
            let at = c.wr_id * u64::from(LEN);
            self.buffer.read_at(at as usize, &mut bytes);
            let to = bytes[36..40].try_into().unwrap();
            heard.push((bytes.split_off(40), to));
        }
        heard
    }
}

const ONE: [u8; 4] = [239, 129, 2, 3];
/// Its lower 23 bits are those of the other's, so it has the same Ethernet address (RFC 1112, 6.4).
const ALIAS: [u8; 4] = [224, 1, 2, 3];
const OTHER: [u8; 4] = [239, 1, 2, 4];

#[test]
fn an_ethernet_port_takes_the_frames_of_its_groups() {
    let mut side = 0;
    let [mut a, mut b] = <[ChannelDevice; 2]>::from(ChannelDevice::pair(64)).map(|device| {
        side += 1;
        let address = IpAddr::from([10, 0, 0, side]);
        let config = EthernetConfig::new(address, MacAddr([2, 0, 0, 0, 0, side]));
        Station::new(EthernetPort::open(device, &config).unwrap())
    });
    a.tell(group(ONE), b"nobody");
    assert_eq!((b.heard().len(), b.port.counters().foreign), (0, 1));
    b.attach(group(ONE));
    for to in [ONE, OTHER, ALIAS] {
        a.tell(group(to), b"hello");
    }
    assert_eq!(b.heard(), [(b"hello".to_vec(), ONE)]);
    // The other's are not looked at; those of the same Ethernet address are, and are for nobody.
    assert_eq!(b.port.counters().foreign, 2);
    let refused = &b.card.counters().refused;
    assert_eq!(refused.get(Refusal::UnknownQueuePair), 1);
    b.detach(group(ONE));
    a.tell(group(ONE), b"gone");
    assert_eq!((b.heard().len(), b.port.counters().foreign), (0, 3));
}

/// Waits until as much has come; loopback loses nothing, but takes its time.
fn soon<L: Link>(station: &mut Station<L>, count: usize) -> Vec<(Vec<u8>, [u8; 4])> {
    let start = Instant::now();
    let mut heard = station.heard();
    while heard.len() < count && start.elapsed() < Duration::from_secs(5) {
        heard.extend(station.heard());
    }
    heard
}

#[test]
fn cards_on_sockets_meet_in_the_groups_of_the_machine() {
    let open = |port| {
        let config = UdpConfig {
            port,
            ..UdpConfig::default()
        };
        Station::new(UdpPort::open(&config).unwrap())
    };
    let port = 24_791;
    let (mut a, mut b, mut c) = (open(port), open(port), open(port));
    let mut far = open(port + 1);
    let frames = Frames::default();
    b.port.set_tap(frames.tap());
    for station in [&mut a, &mut b, &mut c, &mut far] {
        station.attach(group(ONE));
    }
    b.attach(group(OTHER));
    a.tell(group(ONE), b"one");
    a.tell(group(OTHER), b"two");
    assert_eq!(soon(&mut b, 2).len(), 2);
    // Each has it once, the sender by itself: what the kernel brings back to it is dropped.
    assert_eq!(soon(&mut a, 1), [(b"one".to_vec(), ONE)]);
    assert_eq!(soon(&mut c, 1), [(b"one".to_vec(), ONE)]);
    assert_eq!(a.port.counters().foreign, 1);
    assert!(far.heard().is_empty());
    // In captures they have the group's address.
    let arrived = frames.take().into_iter();
    let arrived = arrived.filter(|(direction, _)| *direction == Direction::Received);
    let to: Vec<_> = arrived.map(|(_, frame)| frame[30..34].to_vec()).collect();
    assert_eq!(to.len(), 2);
    assert!(to.contains(&ONE.to_vec()) && to.contains(&OTHER.to_vec()));
    // A member that leaves hears the other group on.
    b.detach(group(ONE));
    c.tell(group(ONE), b"three");
    c.tell(group(OTHER), b"four");
    assert_eq!(soon(&mut a, 1), [(b"three".to_vec(), ONE)]);
    assert_eq!(soon(&mut b, 1), [(b"four".to_vec(), OTHER)]);
    // Many, in order, and beside what is sent to the card alone.
    for n in 0..10 {
        c.tell(group(OTHER), &[n; 40]);
    }
    let all: Vec<_> = (0..10).map(|n| (vec![n; 40], OTHER)).collect();
    assert_eq!(soon(&mut b, 10), all);
    let refused = b.card.counters().refused;
    assert_eq!(refused.iter().map(|(_, n)| n).sum::<u64>(), 0);
}
