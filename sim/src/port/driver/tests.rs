//! What leaves first where there is little room.

use crate::card::{
    AddressVector, Card, CompletionQueue, Mtu, Peer, QpAttributes, QpInit, QpType, QueuePair,
    RecvRequest, Reliability, SendRequest, Work,
};
use crate::memory::Access;
use crate::port::{ChannelDevice, Ethernet, EthernetConfig, EthernetPort, FrameDevice, Port};
use crate::time::Time;
use crate::wire::{Gid, MacAddr, Psn, QpNumber};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// A device with room for a number of frames.
struct Narrow(ChannelDevice, Arc<AtomicU32>);

impl FrameDevice for Narrow {
    fn describe(&self) -> String {
        "a narrow cable".to_string()
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        match self.1.load(Relaxed) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            room => {
                self.1.store(room - 1, Relaxed);
                self.0.send(frame)
            }
        }
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.0.receive(buffer)
    }

    fn wait(&mut self, to_send: bool, timeout: Duration) -> io::Result<()> {
        self.0.wait(to_send, timeout)
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.descriptor()
    }
}

struct End {
    port: Port<Ethernet<Narrow>>,
    card: Card,
    cq: CompletionQueue,
    qp: QueuePair,
    psn: Psn,
    room: Arc<AtomicU32>,
}

fn gid(last: u8) -> Gid {
    Ipv4Addr::new(10, 0, 0, last).into()
}

impl End {
    fn new(device: ChannelDevice, last: u8) -> End {
        let room = Arc::new(AtomicU32::new(u32::MAX));
        let config = EthernetConfig::new(gid(last).ip(), MacAddr([2, 0, 0, 0, 0, last]));
        let port = EthernetPort::open(Narrow(device, room.clone()), &config).unwrap();
        let mut card = Card::new(port.card_config("card"), last.into(), port.routes());
        let pd = card.alloc_pd();
        let cq = card.create_cq(256).unwrap();
        let qp = card
            .create_qp(&QpInit::new(QpType::Rc, pd, cq.id(), 64))
            .unwrap();
        let psn = card.draw_psn();
        End {
            port,
            card,
            cq,
            qp,
            psn,
            room,
        }
    }

    fn connect(&mut self, last: u8, qp: QpNumber, psn: Psn) {
        let peer = Peer {
            address: AddressVector {
                dmac: MacAddr([2, 0, 0, 0, 0, last]),
                ..AddressVector::new(gid(last))
            },
            path_mtu: Mtu::M1024,
            qp,
            psn,
        };
        // No timer: nothing is sent twice.
        let reliability = Reliability {
            timeout: 0,
            ..Reliability::default()
        };
        for step in [
            QpAttributes::to_init(Access::LOCAL_WRITE),
            QpAttributes::to_rtr(&peer, Some(&reliability)),
            QpAttributes::to_rts(self.psn, Some(&reliability)),
        ] {
            let number = self.qp.number();
            self.card.modify_qp(Time::ZERO, number, &step).unwrap();
        }
        for wr_id in 0..64 {
            self.qp
                .post_recv(&RecvRequest { wr_id, sges: &[] })
                .unwrap();
        }
    }

    /// Messages of no bytes.
    fn post(&mut self, count: u64) {
        for wr_id in 0..count {
            self.qp
                .post_send(&SendRequest::new(wr_id, Work::Send, &[]))
                .unwrap();
        }
        self.card.doorbell(self.port.now(), self.qp.number());
    }
}

#[test]
fn requests_that_go_first_leave_room_for_answers_in_a_narrow_link() {
    for room in 1..4 {
        let (a, b) = ChannelDevice::pair(256);
        let (mut a, mut b) = (End::new(a, 1), End::new(b, 2));
        a.connect(2, b.qp.number(), b.psn);
        b.connect(1, a.qp.number(), a.psn);
        b.post(5);
        b.port.poll(&mut b.card).unwrap();
        // Not sent yet: what `a` owes, and what its program asks for.
        a.port.take(&mut a.card).unwrap();
        assert_eq!(a.cq.poll().unwrap().wr_id, 0);
        assert!(a.card.owes_answers());
        a.post(40);
        // Of both, what has come to the other end.
        let arrived = |b: &mut End| {
            b.port.take(&mut b.card).unwrap();
            let counters = b.card.counters();
            let answers = counters.acks_received;
            (counters.received_packets - answers, answers)
        };
        let (mut calls, mut before) = (0, 0);
        loop {
            calls += 1;
            assert!(calls < 40, "no answer in room for {room}");
            a.room.store(room, Relaxed);
            let now = a.port.now();
            a.port.send_requests_first(now, &mut a.card);
            match arrived(&mut b) {
                (requests, 0) => before = requests,
                _ => break,
            }
        }
        // Requests go first once, and what the link keeps of them; then it is the answers' turn.
        assert!(
            calls <= 3 && before >= u64::from(room),
            "{calls} calls, {before} requests"
        );
    }
}
