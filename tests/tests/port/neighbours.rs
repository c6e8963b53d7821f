//! One card on an Ethernet port against a neighbour that says exactly what the test wants.

use crate::ends::{DEPTH, End};
use crate::ethernet::{MACS, address};
use softroce_sim::card::{
    AddressVector, CompletionKind, Datagram, Mtu, QpAttributes, QpInit, QpType, SendRequest, Sge,
    State, Status, Work,
};
use softroce_sim::memory::{Access, Buffer};
use softroce_sim::port::{ChannelDevice, Ethernet, EthernetConfig, EthernetPort, FrameDevice};
use softroce_sim::random::Stream;
use softroce_sim::time::Time;
use softroce_sim::wire::frame::FrameView;
use softroce_sim::wire::pfc::Pfc;
use softroce_sim::wire::{Encapsulation, Gid, MacAddr, Opcode, Psn, QpNumber, Vlan};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const OWN: MacAddr = MACS[0];
const PEER: MacAddr = MACS[1];

struct Bench {
    end: End<Ethernet<ChannelDevice>>,
    wire: ChannelDevice,
}

/// A card at 10.0.0.1 (or fd00::12:1), connected to a queue pair of 10.0.0.2 (or fd00::12:2).
fn bench(ipv6: bool, change: impl FnOnce(&mut AddressVector)) -> Bench {
    slow(ipv6, 10_000_000_000, change)
}

fn slow(ipv6: bool, speed: u64, change: impl FnOnce(&mut AddressVector)) -> Bench {
    let (device, wire) = ChannelDevice::pair(256);
    let config = EthernetConfig {
        speed,
        ..EthernetConfig::new(address(0, ipv6), OWN)
    };
    let port = EthernetPort::open(device, &config).unwrap();
    let mut end = End::on(port, Encapsulation::RoceV2);
    change(&mut end.channel.way);
    let peer = (
        Gid::from(address(1, ipv6)),
        QpNumber::new(0x22),
        Psn::new(0x100),
    );
    end.connect(peer, Mtu::M1024, 14);
    Bench { end, wire }
}

impl Bench {
    fn post(&mut self, len: usize) {
        self.end.channel.send(Work::Send, len);
        let number = self.end.channel.qp.number();
        self.end.card.doorbell(self.end.port.now(), number);
    }

    fn say(&mut self, frame: &[u8]) {
        self.wire.send(frame).unwrap();
        self.wire.flush();
    }

    /// What the port sends at once.
    fn hear(&mut self) -> Vec<Vec<u8>> {
        while self.end.port.poll(&mut self.end.card).unwrap().any() {}
        let mut frames = Vec::new();
        let mut buffer = [0; 9000];
        while let Some(len) = self.wire.receive(&mut buffer).unwrap() {
            frames.push(buffer[..len].to_vec());
        }
        frames
    }

    /// The one frame that the port sends at once.
    fn hear_one(&mut self) -> Vec<u8> {
        let mut frames = self.hear();
        assert_eq!(frames.len(), 1, "{frames:02x?}");
        frames.remove(0)
    }

    /// Whole packets, to this Ethernet address, with PSNs that follow each other.
    fn packets(&mut self, to: MacAddr) -> Vec<Psn> {
        let frames = self.hear();
        let psns = frames.iter().map(|frame| {
            let view = FrameView::decode(frame).unwrap();
            assert_eq!(view.check(), [], "{view:?}");
            let link = view.link.unwrap();
            assert_eq!((link.dst, link.src), (to, OWN));
            view.transport.bth.psn()
        });
        let psns: Vec<_> = psns.collect();
        assert!(psns.windows(2).all(|w| w[1] == w[0].plus(1)), "{psns:?}");
        psns
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter_map(|b| (b as char).to_digit(16).map(|d| d as u8))
        .collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

/// An ARP frame, padded to the least that Ethernet has (RFC 826; IEEE 802.3).
fn arp(dst: &str, src: &str, tag: &str, operation: &str, body: &str) -> Vec<u8> {
    let mut frame = bytes(&format!(
        "{dst} {src} {tag} 0806 0001 0800 06 04 {operation} {body}"
    ));
    frame.resize(frame.len().max(60), 0);
    frame
}

const OURS: &str = "02:00:00:00:00:01";
const THEIRS: &str = "02:00:00:00:00:02";
const ALL: &str = "ff:ff:ff:ff:ff:ff";
/// 10.0.0.1 and 10.0.0.2.
const OUR_IP: &str = "0a000001";
const THEIR_IP: &str = "0a000002";

#[test]
fn packets_wait_for_the_answer_to_an_arp_question() {
    let mut bench = bench(false, |_| {});
    bench.post(3000);
    let nobody = "000000000000";
    let question = format!("{OURS} {OUR_IP} {nobody} {THEIR_IP}");
    assert_eq!(bench.hear_one(), arp(ALL, OURS, "", "0001", &question));
    // More packets, no more questions.
    bench.post(10);
    assert_eq!(bench.hear(), Vec::<Vec<u8>>::new());
    // The answer of another neighbour is not theirs.
    let other = format!("{THEIRS} 0a000003 {OURS} {OUR_IP}");
    bench.say(&arp(OURS, THEIRS, "", "0002", &other));
    assert_eq!(bench.packets(PEER), []);
    let answer = format!("{THEIRS} {THEIR_IP} {OURS} {OUR_IP}");
    bench.say(&arp(OURS, THEIRS, "", "0002", &answer));
    assert_eq!(bench.packets(PEER).len(), 4);
    let port = bench.end.port.counters();
    assert_eq!((port.asked, port.sent, port.unresolved), (1, 4, 0));
    // From here on they do not wait.
    bench.post(10);
    assert_eq!(bench.packets(PEER).len(), 1);
}

/// A neighbour that asks for us, and says where it is by the way, need not be asked.
#[test]
fn who_asks_says_where_it_is() {
    let mut bench = bench(false, |_| {});
    bench.post(10);
    assert_eq!(bench.hear().len(), 1);
    let question = format!("{THEIRS} {THEIR_IP} 000000000000 {OUR_IP}");
    bench.say(&arp(ALL, THEIRS, "", "0001", &question));
    let frames = bench.hear();
    let answer = format!("{OURS} {OUR_IP} {THEIRS} {THEIR_IP}");
    assert_eq!(frames[0], arp(THEIRS, OURS, "", "0002", &answer));
    assert!(FrameView::decode(&frames[1]).is_ok());
    assert_eq!(frames.len(), 2);
}

/// A neighbour that asks on while the device takes nothing gets so many answers later, and then no more.
#[test]
fn answers_that_nobody_takes_are_not_kept_for_ever() {
    let mut bench = bench(false, |_| {});
    let question = format!("{THEIRS} {THEIR_IP} 000000000000 {OUR_IP}");
    let question = arp(ALL, THEIRS, "", "0001", &question);
    for _ in 0..5000 {
        bench.say(&question);
        while bench.end.port.poll(&mut bench.end.card).unwrap().any() {}
    }
    let port = bench.end.port.counters();
    let (answered, unanswered) = (port.answered, port.unanswered);
    assert_eq!(answered + unanswered, 5000);
    // As many as the cable holds, and those that waited.
    let on_the_cable = bench.hear().len() as u64;
    assert!(on_the_cable <= 1000, "{on_the_cable}");
    assert_eq!(answered, on_the_cable + 64);
    assert_eq!(bench.hear().len(), 64);
    bench.say(&question);
    assert_eq!(bench.hear().len(), 1);
    assert_eq!(bench.end.port.counters().answered, answered + 1);
}

/// What has a tag around a station's own is for the networks between stations.
#[test]
fn a_card_takes_no_tag_but_one() {
    let mut bench = bench(false, |_| {});
    let answer = format!("{THEIRS} {THEIR_IP} {OURS} {OUR_IP}");
    bench.post(10);
    bench.hear();
    bench.say(&arp(OURS, THEIRS, "", "0002", &answer));
    let packet = bench.hear_one();
    let before = bench.end.port.counters();
    let mut back = packet.clone();
    back[..6].copy_from_slice(&OWN.0);
    for tags in ["88a8 0005", "8100 0005 8100 0006", "88a8 0005 8100 0006"] {
        let mut frame = back.clone();
        frame.splice(12..12, bytes(tags));
        bench.say(&frame);
        while bench.end.port.poll(&mut bench.end.card).unwrap().any() {}
    }
    let port = bench.end.port.counters();
    assert_eq!(
        (port.foreign - before.foreign, port.malformed),
        (3, before.malformed)
    );
}

#[test]
fn arp_questions_are_answered_if_they_are_for_us() {
    let mut bench = bench(false, |_| {});
    let question = |target: &str| format!("{THEIRS} {THEIR_IP} 000000000000 {target}");
    let answer = format!("{OURS} {OUR_IP} {THEIRS} {THEIR_IP}");
    bench.say(&arp(ALL, THEIRS, "", "0001", &question(OUR_IP)));
    assert_eq!(bench.hear_one(), arp(THEIRS, OURS, "", "0002", &answer));
    // On a VLAN, on the same VLAN; priority bits do not come back.
    bench.say(&arp(ALL, THEIRS, "8100 a005", "0001", &question(OUR_IP)));
    assert_eq!(
        bench.hear_one(),
        arp(THEIRS, OURS, "8100 0005", "0002", &answer)
    );
    // A probe of one who has no address yet (RFC 5227).
    let probe = format!("{THEIRS} 00000000 000000000000 {OUR_IP}");
    bench.say(&arp(ALL, THEIRS, "", "0001", &probe));
    let answer = format!("{OURS} {OUR_IP} {THEIRS} 00000000");
    assert_eq!(bench.hear_one(), arp(THEIRS, OURS, "", "0002", &answer));
    // For somebody else; a frame to somebody else; another protocol; an answer nobody asked for.
    bench.say(&arp(ALL, THEIRS, "", "0001", &question("0a000007")));
    bench.say(&arp("020000000009", THEIRS, "", "0001", &question(OUR_IP)));
    let mut ipx = arp(ALL, THEIRS, "", "0001", &question(OUR_IP));
    ipx[16] = 0x81;
    bench.say(&ipx);
    let unasked = format!("{THEIRS} {THEIR_IP} {OURS} {OUR_IP}");
    bench.say(&arp(OURS, THEIRS, "", "0002", &unasked));
    assert_eq!(bench.hear(), Vec::<Vec<u8>>::new());
    let port = bench.end.port.counters();
    assert_eq!((port.answered, port.foreign, port.received), (3, 2, 7));
}

/// The sum of RFC 1071 over an ICMPv6 message and its pseudo-header, written by hand.
fn icmp_sum(frame: &[u8], tag: usize) -> u16 {
    let ip = &frame[14 + tag..];
    let icmp = &ip[40..];
    let mut words: Vec<u8> = ip[8..40].to_vec();
    words.extend((icmp.len() as u32).to_be_bytes());
    words.extend([0, 0, 0, 58]);
    words.extend(icmp);
    let sum: u32 = words
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// A frame of neighbour discovery (RFC 4861, 4.3 and 4.4); the checksum field is filled in.
fn ndp(dst_mac: &str, src_mac: &str, tag: &str, ips: &str, icmp: &str) -> Vec<u8> {
    let mut frame = bytes(&format!(
        "{dst_mac} {src_mac} {tag} 86dd 60000000 0020 3a ff {ips} {icmp}"
    ));
    let tag = bytes(tag).len();
    let sum = !icmp_sum(&frame, tag);
    frame[14 + tag + 42..14 + tag + 44].copy_from_slice(&sum.to_be_bytes());
    frame
}

const OUR_IP6: &str = "fd000000 00000000 00000000 00120001";
const THEIR_IP6: &str = "fd000000 00000000 00000000 00120002";
/// ff02::1:ff12:2 and ff02::1:ff12:1 (RFC 4291, 2.7.1), and their Ethernet addresses (RFC 2464, 7).
const THEIR_GROUP: &str = "ff020000 00000000 00000001 ff120002";
const THEIR_GROUP_MAC: &str = "3333ff120002";
const OUR_GROUP: &str = "ff020000 00000000 00000001 ff120001";
const OUR_GROUP_MAC: &str = "3333ff120001";

#[test]
fn packets_wait_for_a_neighbour_advertisement() {
    for vlan in [None, Some(Vlan { id: 7 })] {
        let tag = if vlan.is_some() { "8100 0007" } else { "" };
        let mut bench = bench(true, |way| way.vlan = vlan);
        bench.post(3000);
        let question = ndp(
            THEIR_GROUP_MAC,
            OURS,
            tag,
            &format!("{OUR_IP6} {THEIR_GROUP}"),
            &format!("87 00 0000 00000000 {THEIR_IP6} 01 01 {OURS}"),
        );
        assert_eq!(bench.hear_one(), question);
        let answer = ndp(
            OURS,
            THEIRS,
            tag,
            &format!("{THEIR_IP6} {OUR_IP6}"),
            &format!("88 00 0000 60000000 {THEIR_IP6} 02 01 {THEIRS}"),
        );
        // One that came over a router, one whose sum is wrong, and one on another VLAN do not count.
        let at = if vlan.is_some() { 18 } else { 14 };
        let mut far = answer.clone();
        far[at + 7] = 254;
        let mut broken = answer.clone();
        broken[at + 42] ^= 1;
        let mut elsewhere = answer[..12].to_vec();
        elsewhere.extend(bytes("8100 0008"));
        elsewhere.extend(&answer[if vlan.is_some() { 16 } else { 12 }..]);
        for frame in [far, broken, elsewhere] {
            bench.say(&frame);
            assert_eq!(bench.packets(PEER), []);
        }
        bench.say(&answer);
        assert_eq!(bench.packets(PEER).len(), 3);
    }
}

#[test]
fn neighbour_solicitations_are_answered() {
    let mut bench = bench(true, |_| {});
    let solicitation = |ips: &str, target: &str, option: &str| {
        let icmp = format!("87 00 0000 00000000 {target} {option}");
        ndp(OUR_GROUP_MAC, THEIRS, "", ips, &icmp)
    };
    let ips = format!("{THEIR_IP6} {OUR_GROUP}");
    bench.say(&solicitation(&ips, OUR_IP6, &format!("01 01 {THEIRS}")));
    // Solicited and override.
    let answer = ndp(
        THEIRS,
        OURS,
        "",
        &format!("{OUR_IP6} {THEIR_IP6}"),
        &format!("88 00 0000 60000000 {OUR_IP6} 02 01 {OURS}"),
    );
    assert_eq!(bench.hear_one(), answer);
    // One who is about to take the address: all nodes are told, unsolicited (RFC 4861, 7.2.4).
    let ips = format!("00000000000000000000000000000000 {OUR_GROUP}");
    bench.say(&solicitation(&ips, OUR_IP6, "0e 01 000000000000"));
    let answer = ndp(
        "333300000001",
        OURS,
        "",
        &format!("{OUR_IP6} ff020000 00000000 00000000 00000001"),
        &format!("88 00 0000 20000000 {OUR_IP6} 02 01 {OURS}"),
    );
    assert_eq!(bench.hear_one(), answer);
    let ips = format!("{THEIR_IP6} {OUR_GROUP}");
    bench.say(&solicitation(&ips, THEIR_IP6, &format!("01 01 {THEIRS}")));
    assert_eq!(bench.hear(), Vec::<Vec<u8>>::new());
}

#[test]
fn an_address_vector_that_knows_the_way_asks_nobody() {
    let mut bench = bench(false, |way| way.dmac = MacAddr([2, 0, 0, 0, 0, 0x77]));
    bench.post(10);
    assert_eq!(bench.packets(MacAddr([2, 0, 0, 0, 0, 0x77])).len(), 1);
    assert_eq!(bench.end.port.counters().asked, 0);
}

#[test]
fn a_neighbour_that_does_not_answer_costs_its_connection_alone() {
    let mut bench = bench(false, |_| {});
    bench.post(3000);
    let start = Instant::now();
    let completion = loop {
        if let Some(completion) = bench.end.cq.poll() {
            break completion;
        }
        let wait = Duration::from_millis(10);
        bench.end.port.run_once(&mut bench.end.card, wait).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    };
    assert_eq!(completion.status, Status::RetryExceeded);
    // Three questions, a second apart; then what waits is given up.
    while bench.end.port.counters().unresolved == 0 {
        let wait = Duration::from_millis(100);
        bench.end.port.run_once(&mut bench.end.card, wait).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    assert!(start.elapsed() >= Duration::from_secs(3));
    let port = bench.end.port.counters();
    // Three packets, sent eight times.
    assert_eq!((port.asked, port.sent, port.unresolved), (3, 0, 24));
    assert_eq!(bench.hear().len(), 3);
}

#[test]
fn frames_for_others_are_ignored() {
    let mut bench = bench(false, |way| way.dmac = PEER);
    bench.post(10);
    let frames = bench.hear();
    // Our own packet, sent back to us by the neighbour, is an acknowledgement nobody sent; to another
    // Ethernet address it is not even looked at.
    let mut frame = frames[0].clone();
    for (dst, foreign) in [(PEER, 1), (MacAddr([2, 0, 0, 0, 0, 0x55]), 2), (OWN, 2)] {
        frame[..6].copy_from_slice(&dst.0);
        bench.say(&frame);
        bench.hear();
        assert_eq!(bench.end.port.counters().foreign, foreign);
    }
    assert_eq!(bench.end.card.counters().received_packets, 1);
}

#[test]
fn a_broken_ip_header_is_no_packet() {
    let mut bench = bench(false, |way| way.dmac = PEER);
    bench.post(10);
    let mut frame = bench.hear_one();
    frame[..6].copy_from_slice(&OWN.0);
    bench.say(&frame);
    // The TTL, which the ICRC leaves out: the checksum alone tells.
    frame[22] ^= 1;
    bench.say(&frame);
    bench.hear();
    assert_eq!(bench.end.port.counters().malformed, 1);
    assert_eq!(bench.end.card.counters().received_packets, 1);
}

#[test]
fn a_paused_priority_waits_and_others_go_on() {
    let mut bench = bench(false, |way| {
        way.dmac = PEER;
        way.sl = 3;
    });
    let pause = |enabled, quanta| Pfc::new(PEER, enabled, quanta).encode();
    // 65,535 times 512 bits at 10 Gb/s: 3.36 ms; renewed as often as the neighbour likes.
    bench.say(&pause(1 << 3, u16::MAX));
    bench.post(10);
    assert_eq!(bench.packets(PEER), []);
    // What is said of other priorities is not said of this one.
    bench.say(&pause(!(1 << 3), 0));
    assert_eq!(bench.packets(PEER), []);
    bench.say(&pause(1 << 3, 0));
    assert_eq!(bench.packets(PEER).len(), 1);
    bench.say(&pause(!(1 << 3), u16::MAX));
    bench.post(10);
    assert_eq!(bench.packets(PEER).len(), 1);
    let port = bench.end.port.counters();
    assert_eq!((port.pfc_frames, port.pauses), (4, [1; 8]));
}

#[test]
fn a_pause_ends_by_itself() {
    // 65,535 times 512 bits at 1 Gb/s: 33.55 ms.
    let mut bench = slow(false, 1_000_000_000, |way| {
        way.dmac = PEER;
        way.sl = 3;
    });
    let start = Instant::now();
    bench.say(&Pfc::new(PEER, 1 << 3, u16::MAX).encode());
    bench.post(10);
    let mut buffer = [0; 9000];
    let end = loop {
        let wait = Duration::from_secs(10);
        bench.end.port.run_once(&mut bench.end.card, wait).unwrap();
        if bench.wire.receive(&mut buffer).unwrap().is_some() {
            break start.elapsed();
        }
        assert!(start.elapsed() < Duration::from_secs(5));
    };
    assert!(end >= Duration::from_micros(33_553), "{end:?}");
}

/// Datagrams to a group go to the group's Ethernet address (RFC 1112, 6.4), and nobody is asked.
#[test]
fn datagrams_to_a_group() {
    let Bench { mut end, wire } = bench(false, |_| {});
    let pd = end.card.alloc_pd();
    let region = end
        .card
        .register(pd, Buffer::new(4096), Access::LOCAL_WRITE)
        .unwrap();
    let init = QpInit::new(QpType::Ud, pd, end.cq.id(), DEPTH);
    let mut qp = end.card.create_qp(&init).unwrap();
    for step in [
        QpAttributes::to_init_datagrams(7),
        QpAttributes::to(State::Rtr),
        QpAttributes::to_rts(Psn::new(1), None),
    ] {
        end.card.modify_qp(Time::ZERO, qp.number(), &step).unwrap();
    }
    let group = AddressVector {
        dgid: Ipv4Addr::new(239, 129, 2, 3).into(),
        ..end.channel.way
    };
    let handle = end.card.create_ah(pd, &group).unwrap();
    let sges = &[Sge {
        addr: region.addr,
        len: 64,
        lkey: region.lkey,
    }];
    let to = Some(Datagram {
        address: handle,
        qp: QpNumber::MULTICAST,
        qkey: 7,
    });
    let request = SendRequest::new(1, Work::Send, sges);
    qp.post_send(&SendRequest { to, ..request }).unwrap();
    end.card.doorbell(end.port.now(), qp.number());
    let mut bench = Bench { end, wire };
    let frame = bench.hear_one();
    // The group's low 23 bits.
    assert_eq!(frame[..6], [0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]);
    let view = FrameView::decode(&frame).unwrap();
    assert_eq!(view.check(), []);
    assert_eq!(view.transport.bth.opcode(), Opcode::UD_SEND_ONLY);
    assert_eq!(bench.end.port.counters().asked, 0);
    let completion = bench.end.cq.poll().unwrap();
    assert_eq!(completion.kind, CompletionKind::Send);
}

/// Whatever arrives, the port goes on.
#[test]
fn nothing_a_neighbour_says_disturbs_the_port() {
    let mut bench = bench(true, |_| {});
    bench.post(10);
    let mut stream = Stream::new(9, "noise");
    let solicitation = ndp(
        OUR_GROUP_MAC,
        THEIRS,
        "",
        &format!("{THEIR_IP6} {OUR_GROUP}"),
        &format!("87 00 0000 00000000 {OUR_IP6} 01 01 {THEIRS}"),
    );
    let question = format!("{THEIRS} {THEIR_IP} 000000000000 {OUR_IP}");
    let seeds = [
        arp(ALL, THEIRS, "", "0001", &question),
        arp(OURS, THEIRS, "8100 0005", "0002", &question),
        solicitation.clone(),
        bench.hear_one(),
        Pfc::new(PEER, 0xff, 1).encode().to_vec(),
        vec![0xff; 9300],
    ];
    for round in 0..20_000 {
        let mut frame = seeds[round % seeds.len()].clone();
        for _ in 0..stream.below(4) {
            let at = stream.below(frame.len() as u64) as usize;
            frame[at] ^= 1 << stream.below(8);
        }
        let len = frame.len() as u64 + 1;
        if stream.below(3) == 0 {
            frame.truncate(stream.below(len) as usize);
        }
        bench.say(&frame);
        bench.hear();
    }
    let port = bench.end.port.counters();
    assert_eq!(port.received, 20_000);
    let told = [port.malformed, port.foreign, port.answered, port.pfc_frames];
    assert!(told.iter().all(|&n| n > 100), "{port:?}");
    bench.say(&solicitation);
    let answers = bench.hear();
    assert!(answers.iter().any(|f| f[20] == 58 && f[54] == 0x88));
}
