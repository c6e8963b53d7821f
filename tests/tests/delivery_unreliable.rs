//! UC and UD over a network that loses, repeats and reorders: what is delivered follows from the packets
//! that arrive, packet by packet; each request completes once; no other byte changes.

use proptest::prelude::*;
use softroce_sim::card::{
    Card, Completion, CompletionQueue, Datagram, Mtu, Peer, QpAttributes, QpInit, QpType,
    QueuePair, RecvRequest, Remote, SendRequest, Sge, State, Status, Work,
};
use softroce_sim::memory::{Buffer, MemoryRegion, Pd};
use softroce_sim::random::Stream;
use softroce_sim::time::Time;
use softroce_sim::wire::{Immediate, Psn};
use softroce_tests::bench::{QKEY, all_rights, pattern};
use softroce_tests::link::{Faults, Link};

const MTU: usize = 256;
const FIRST_PSN: u32 = 0xff_fff8;
/// Receives are this long, in slots of twice that.
const SLOT: usize = 2048;

struct End {
    pd: Pd,
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Buffer,
    mr: MemoryRegion,
}

impl End {
    fn new(card: &mut Card, service: QpType, max_wr: u32, memory: usize) -> End {
        let pd = card.alloc_pd();
        let cq = card.create_cq(1024).unwrap();
        let init = QpInit::new(service, pd, cq.id(), max_wr);
        let qp = card.create_qp(&init).unwrap();
        let buffer = Buffer::new(memory);
        let mr = card.register(pd, buffer.clone(), all_rights()).unwrap();
        End {
            pd,
            qp,
            cq,
            buffer,
            mr,
        }
    }

    fn sge(&self, at: usize, len: usize) -> [Sge; 1] {
        [Sge {
            addr: self.mr.addr + at as u64,
            len: len as u32,
            lkey: self.mr.lkey,
        }]
    }

    fn polled(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.cq.poll()).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    SendImmediate,
    Write,
    WriteImmediate,
}

/// A message: what it is, where its data is at the sender, where a WRITE puts it, its packets.
#[derive(Clone, Debug)]
struct Message {
    kind: Kind,
    data: Vec<u8>,
    at: usize,
    first: usize,
    packets: usize,
}

fn draw(s: &mut Stream, n: usize, base: usize) -> Vec<Message> {
    let (mut at, mut first) = (base, 0);
    let mut all = Vec::new();
    for i in 0..n {
        let len = match s.below(6) {
            0 => 0,
            1 => MTU,
            2 => MTU + 1,
            _ => s.below(5 * MTU as u64) as usize,
        };
        let kinds = [
            Kind::Send,
            Kind::SendImmediate,
            Kind::Write,
            Kind::WriteImmediate,
        ];
        let packets = len.div_ceil(MTU).max(1);
        all.push(Message {
            kind: kinds[s.below(4) as usize],
            data: pattern(i as u8 + 1, len),
            at,
            first,
            packets,
        });
        at += len + 16;
        first += packets;
    }
    all
}

fn uc(seed: u64, n: usize, faults: Faults) {
    let mut s = Stream::new(seed, "plan");
    let mut link = Link::new(seed, faults);
    let receives = 3 * n;
    let base = receives * 2 * SLOT;
    let messages = draw(&mut s, n, base);
    let memory = base + n * (5 * MTU + 32);
    let [a, b] = &mut link.cards;
    let mut ends = [
        End::new(a, QpType::Uc, 64, memory),
        End::new(b, QpType::Uc, 64, memory),
    ];
    for side in 0..2 {
        let number = ends[side].qp.number();
        let peer = Peer {
            address: Link::address(1 - side),
            path_mtu: Mtu::M256,
            qp: ends[1 - side].qp.number(),
            psn: Psn::new(FIRST_PSN),
        };
        let mut modify = |a: QpAttributes| {
            let card = &mut link.cards[side];
            card.modify_qp(Time::ZERO, number, &a).unwrap();
        };
        modify(QpAttributes::to_init(all_rights()));
        modify(QpAttributes::to_rtr(&peer, None));
        modify(QpAttributes::to_rts(Psn::new(FIRST_PSN), None));
    }
    let [sender, receiver] = &mut ends;
    for i in 0..receives {
        let sges = receiver.sge(i * 2 * SLOT, SLOT);
        let wr_id = i as u64;
        receiver
            .qp
            .post_recv(&RecvRequest { wr_id, sges: &sges })
            .unwrap();
    }
    for (i, m) in messages.iter().enumerate() {
        sender.buffer.write_at(m.at, &m.data);
        let remote = Remote {
            addr: receiver.mr.addr + m.at as u64,
            rkey: receiver.mr.rkey,
        };
        let immediate = Immediate::from_be(i as u32);
        let work = match m.kind {
            Kind::Send => Work::Send,
            Kind::SendImmediate => Work::SendImmediate(immediate),
            Kind::Write => Work::Write(remote),
            Kind::WriteImmediate => Work::WriteImmediate(remote, immediate),
        };
        let sges = sender.sge(m.at, m.data.len());
        sender
            .qp
            .post_send(&SendRequest::new(i as u64, work, &sges))
            .unwrap();
    }
    link.cards[0].doorbell(Time::ZERO, sender.qp.number());
    link.run();

    // Each request completes once, in order: when it is sent.
    let sent: Vec<_> = sender
        .polled()
        .iter()
        .map(|c| (c.wr_id, c.status))
        .collect();
    let all: Vec<_> = (0..n as u64).map(|i| (i, Status::Success)).collect();
    assert_eq!(sent, all);

    // What follows from the packets that arrived: a message is delivered if its packets came one after
    // the other.
    let mut memory = vec![0; memory];
    let mut chain = None;
    let mut delivered = Vec::new();
    for (side, packet) in &link.arrived {
        assert_eq!(*side, 1, "nothing is answered");
        let index = packet.bth.psn().after(Psn::new(FIRST_PSN)) as usize;
        let m = messages.iter().rposition(|m| m.first <= index).unwrap();
        let message = &messages[m];
        let i = index - message.first;
        if i > 0 && chain != Some((m, i)) {
            chain = None;
            continue;
        }
        let part = i * MTU..message.data.len().min((i + 1) * MTU);
        let at = match message.kind {
            Kind::Write | Kind::WriteImmediate => message.at,
            Kind::Send | Kind::SendImmediate => delivered.len() * 2 * SLOT,
        };
        memory[at + part.start..at + part.end].copy_from_slice(&message.data[part]);
        chain = Some((m, i + 1));
        if i + 1 == message.packets && !matches!(message.kind, Kind::Write) {
            delivered.push(m);
        }
    }
    let completions = receiver.polled();
    let ids: Vec<_> = completions.iter().map(|c| c.wr_id as usize).collect();
    assert_eq!(ids, (0..delivered.len()).collect::<Vec<_>>());
    for (c, &m) in completions.iter().zip(&delivered) {
        let message = &messages[m];
        let with = matches!(message.kind, Kind::SendImmediate | Kind::WriteImmediate);
        assert_eq!(c.status, Status::Success);
        assert_eq!(c.byte_len as usize, message.data.len());
        assert_eq!(c.immediate, with.then(|| Immediate::from_be(m as u32)));
    }
    assert!(receiver.buffer.to_vec() == memory, "the memory is another");
    if faults.twice + faults.late == 0 {
        assert!(delivered.is_sorted(), "in order");
    }
    let counters = link.cards[1].counters();
    assert_eq!(
        (counters.sent_packets, receiver.qp.state()),
        (0, State::Rts)
    );
}

fn ud(seed: u64, n: usize, faults: Faults) {
    let mut s = Stream::new(seed, "plan");
    let mut link = Link::new(seed, faults);
    let base = n * 2 * SLOT;
    let [a, b] = &mut link.cards;
    let mut ends = [
        End::new(a, QpType::Ud, 64, base),
        End::new(b, QpType::Ud, 64, base),
    ];
    for (card, end) in link.cards.iter_mut().zip(&ends) {
        let number = end.qp.number();
        for a in [
            QpAttributes::to_init_datagrams(QKEY),
            QpAttributes::to(State::Rtr),
            QpAttributes::to_rts(Psn::new(FIRST_PSN), None),
        ] {
            card.modify_qp(Time::ZERO, number, &a).unwrap();
        }
    }
    let [sender, receiver] = &mut ends;
    let vector = Link::address(1);
    let address = link.cards[0].create_ah(sender.pd, &vector).unwrap();
    // Some receives are too short for some datagrams, and there may be too few.
    let rooms: Vec<usize> = (0..s.below(n as u64 + 1))
        .map(|_| 40 + s.below(600) as usize)
        .collect();
    for (i, &room) in rooms.iter().enumerate() {
        let sges = receiver.sge(i * 2 * SLOT, room);
        let wr_id = i as u64;
        receiver
            .qp
            .post_recv(&RecvRequest { wr_id, sges: &sges })
            .unwrap();
    }
    let datagrams: Vec<(Vec<u8>, u32)> = (0..n)
        .map(|i| {
            let len = s.below(500) as usize;
            let qkey = if s.below(5) == 0 { QKEY ^ 4 } else { QKEY };
            (pattern(i as u8 + 1, len), qkey)
        })
        .collect();
    for (i, (data, qkey)) in datagrams.iter().enumerate() {
        sender.buffer.write_at(i * 2 * SLOT, data);
        let sges = sender.sge(i * 2 * SLOT, data.len());
        let request = SendRequest {
            to: Some(Datagram {
                address,
                qp: receiver.qp.number(),
                qkey: *qkey,
            }),
            ..SendRequest::new(i as u64, Work::Send, &sges)
        };
        sender.qp.post_send(&request).unwrap();
    }
    link.cards[0].doorbell(Time::ZERO, sender.qp.number());
    link.run();

    let sent: Vec<_> = sender
        .polled()
        .iter()
        .map(|c| (c.wr_id, c.status))
        .collect();
    let all: Vec<_> = (0..n as u64).map(|i| (i, Status::Success)).collect();
    assert_eq!(sent, all);
    let mut delivered = Vec::new();
    for (_, packet) in &link.arrived {
        let i = packet.bth.psn().after(Psn::new(FIRST_PSN)) as usize;
        let (data, qkey) = &datagrams[i];
        let fits = rooms
            .get(delivered.len())
            .is_some_and(|&r| 40 + data.len() <= r);
        if *qkey == QKEY && fits {
            delivered.push(i);
        }
    }
    let completions = receiver.polled();
    assert_eq!(completions.len(), delivered.len());
    let memory = receiver.buffer.to_vec();
    for (slot, (c, &i)) in completions.iter().zip(&delivered).enumerate() {
        let data = &datagrams[i].0;
        assert_eq!((c.wr_id as usize, c.status), (slot, Status::Success));
        assert_eq!(c.byte_len as usize, 40 + data.len());
        assert_eq!(c.src_qp, sender.qp.number());
        let at = slot * 2 * SLOT + 40;
        assert_eq!(memory[at..at + data.len()], data[..]);
    }
    // Beside headers and data nothing has changed.
    for (slot, bytes) in memory.chunks(2 * SLOT).enumerate() {
        let used = delivered
            .get(slot)
            .map_or(0, |&i| 40 + datagrams[i].0.len());
        assert!(bytes[used..].iter().all(|&b| b == 0), "slot {slot}");
    }
    assert_eq!(link.cards[1].counters().sent_packets, 0);
    assert_eq!(receiver.qp.state(), State::Rts);
}

prop_compose! {
    fn faults()(
        lost in prop_oneof![Just(0u64), 0..300u64],
        twice in prop_oneof![Just(0u64), 0..300u64],
        late in prop_oneof![Just(0u64), 0..300u64],
    ) -> Faults {
        Faults { lost, twice, late }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_uc_message_is_delivered_whole_or_not_at_all(seed: u64, n in 1usize..14, faults in faults()) {
        uc(seed, n, faults);
    }

    #[test]
    fn a_datagram_is_delivered_whole_or_not_at_all(seed: u64, n in 1usize..20, faults in faults()) {
        ud(seed, n, faults);
    }
}
