//! Two cards on Ethernet ports, over a channel of the process and over datagrams.

use crate::ends::{End, lossy, pair_of};
use crate::{atomics, every_operation};
use softroce_sim::card::{Mtu, Refusal};
use softroce_sim::port::{
    ChannelDevice, DatagramDevice, DeviceError, EthernetConfig, EthernetError, EthernetPort,
    FrameDevice, PortConfig, RawDevice,
};
use softroce_sim::random::Stream;
use softroce_sim::wire::{Encapsulation, MacAddr, Vlan};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

pub(crate) const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

/// Address of one of two cards.
pub(crate) fn address(side: usize, ipv6: bool) -> IpAddr {
    let last = side as u8 + 1;
    match ipv6 {
        false => Ipv4Addr::new(10, 0, 0, last).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x12, last.into()).into(),
    }
}

/// What two cards on a cable may differ in.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) ipv6: bool,
    pub(crate) vlan: Option<u16>,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) loss: f64,
}

pub(crate) const PLAIN: Kind = Kind {
    ipv6: false,
    vlan: None,
    encapsulation: Encapsulation::RoceV2,
    loss: 0.0,
};

type Ends<D> = [End<softroce_sim::port::Ethernet<D>>; 2];

/// Every operation at the smallest and the largest path MTU, between cards on the two devices.
pub(crate) fn converse<D: FrameDevice + Send>(devices: [D; 2], kind: Kind) -> Ends<D> {
    let mut sides = 0..2;
    let ends = devices.map(|device| {
        let side = sides.next().unwrap();
        let config = EthernetConfig {
            common: PortConfig {
                faults: vec![lossy(kind.loss)],
                fault_seed: side as u64,
                ..PortConfig::default()
            },
            ..EthernetConfig::new(address(side, kind.ipv6), MACS[side])
        };
        let port = EthernetPort::open(device, &config).unwrap();
        let mut end = End::on(port, kind.encapsulation);
        end.channel.way.vlan = kind.vlan.map(|id| Vlan { id });
        end
    });
    let mut stream = Stream::new(1, "data");
    pair_of(ends, Mtu::M4096, 12, |a, memory, remote, received| {
        for len in [0, 1, 3, 4095, 4096, 3 * 4096 + 2] {
            every_operation(a, memory, remote, received, len, &mut stream);
        }
        atomics(a, memory, remote);
    })
}

/// Nothing was broken, and each found the other's Ethernet address by asking.
fn clean<D: FrameDevice>(ends: &Ends<D>) {
    for end in ends {
        let port = end.port.counters();
        assert_eq!((port.malformed, port.foreign), (0, 0), "{port:?}");
        assert_eq!((port.refused, port.unresolved), (0, 0), "{port:?}");
        assert!(port.asked >= 1 && port.answered >= 1, "{port:?}");
        assert_eq!(end.card.counters().refused.get(Refusal::BadIcrc), 0);
    }
}

fn channel(depth: usize) -> [ChannelDevice; 2] {
    ChannelDevice::pair(depth).into()
}

#[test]
fn every_operation_in_every_encapsulation() {
    use Encapsulation::{RoceV1, RoceV2};
    for (ipv6, vlan, encapsulation) in [
        (false, None, RoceV2),
        (true, None, RoceV2),
        (false, Some(5), RoceV2),
        (true, Some(4094), RoceV2),
        // A tag that is a priority alone.
        (false, Some(0), RoceV2),
        (false, None, RoceV1),
        (true, Some(5), RoceV1),
    ] {
        let kind = Kind {
            ipv6,
            vlan,
            encapsulation,
            ..PLAIN
        };
        clean(&converse(channel(64), kind));
    }
}

#[test]
fn a_channel_that_is_full_costs_time_alone() {
    let ends = converse(channel(1), PLAIN);
    clean(&ends);
    let waited = ends.iter().map(|e| e.port.counters().not_ready);
    assert!(waited.sum::<u64>() > 0);
}

#[test]
fn losses_on_ethernet_cost_time_alone() {
    let ends = converse(
        channel(64),
        Kind {
            loss: 0.05,
            ..PLAIN
        },
    );
    assert!(ends.iter().all(|e| e.port.counters().dropped > 0));
}

#[test]
fn frames_in_datagrams() {
    let free = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = |s: &UdpSocket| s.local_addr().unwrap();
    let (a, b) = (free(), free());
    let (at_a, at_b) = (at(&a), at(&b));
    drop((a, b));
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let devices = [(at_a, at_b), (at_b, at_a)].map(|(l, r)| DatagramDevice::open(l, r).unwrap());
    assert_eq!(devices[0].local(), at_a);
    // What is not from the other end does not arrive.
    stranger.send_to(&[0xff; 100], at_a).unwrap();
    let ends = converse(devices, PLAIN);
    for end in &ends {
        let port = end.port.counters();
        assert_eq!((port.malformed, port.foreign), (0, 0), "{port:?}");
    }
}

/// Ends of a datagram cable come up one after the other.
#[test]
fn a_cable_without_a_plug_is_no_error() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let nobody = socket.local_addr().unwrap();
    drop(socket);
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut device = DatagramDevice::open(own, nobody).unwrap();
    let mut buffer = [0; 100];
    for _ in 0..10 {
        device.send(&[0; 60]).unwrap();
        assert_eq!(device.receive(&mut buffer).unwrap(), None);
    }
}

#[test]
fn an_end_of_a_channel_that_is_gone_is_silent() {
    let [mut a, mut b] = channel(4);
    let mut buffer = [0; 100];
    b.send(&[7; 60]).unwrap();
    drop(b);
    assert_eq!(a.receive(&mut buffer).unwrap(), Some(60));
    for _ in 0..10 {
        a.send(&[0; 60]).unwrap();
        assert_eq!(a.receive(&mut buffer).unwrap(), None);
    }
    let start = std::time::Instant::now();
    a.wait(true, std::time::Duration::from_millis(20)).unwrap();
    assert!(start.elapsed() >= std::time::Duration::from_millis(20));
}

#[test]
fn errors_name_the_address_or_the_interface() {
    let open = |config: &EthernetConfig| {
        let [device, _] = channel(1);
        EthernetPort::open(device, config).map(|_| ()).unwrap_err()
    };
    for ip in [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Ipv4Addr::new(239, 1, 2, 3).into(),
        Ipv6Addr::UNSPECIFIED.into(),
    ] {
        let config = EthernetConfig::new(ip, MACS[0]);
        assert_eq!(open(&config), EthernetError::Address(ip));
    }
    for mac in [
        MacAddr::default(),
        MacAddr([0xff; 6]),
        MacAddr([1, 0, 0x5e, 0, 0, 1]),
    ] {
        let config = EthernetConfig::new(address(0, false), mac);
        let error = open(&config);
        assert_eq!(error, EthernetError::Mac(mac));
        assert!(error.to_string().contains(&mac.to_string()));
    }
    let config = EthernetConfig {
        speed: 0,
        ..EthernetConfig::new(address(0, false), MACS[0])
    };
    assert_eq!(open(&config), EthernetError::Speed);
    let error = RawDevice::open("nosuch0").unwrap_err();
    assert!(matches!(error, DeviceError::NoInterface { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("nosuch0") && text.contains("lo"), "{text}");
}
