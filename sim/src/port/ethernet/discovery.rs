//! Questions for Ethernet addresses and their answers: ARP (RFC 826) for IPv4, neighbour discovery
//! (RFC 4861) for IPv6.

use crate::wire::MacAddr;
use etherparse::icmpv6::{
    Icmpv6PayloadSlice, NdpOptionSlice, NdpOptionsIterator, NeighborAdvertisementHeader,
};
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, Icmpv6Header, Icmpv6Slice, Icmpv6Type,
    Ipv6Header, Ipv6HeaderSlice, ip_number,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Shortest Ethernet frame without FCS.
pub(super) const SHORTEST: usize = 60;
pub(super) const BROADCAST: MacAddr = MacAddr([0xff; 6]);
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
/// Hop limit of neighbour discovery, which proves that no router was passed (RFC 4861, 7.1).
const HOP_LIMIT: u8 = 255;

/// The end of a link that asks and answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Station {
    pub(super) ip: IpAddr,
    pub(super) mac: MacAddr,
}

/// What a neighbour said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// `from` asks who has `target`; it has no address yet if `from` is `None`.
    Question {
        from: Option<Station>,
        from_mac: MacAddr,
        target: IpAddr,
    },
    /// The neighbour is there.
    Answer(Station),
}

/// The solicited-node group of an address (RFC 4291, 2.7.1).
fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., x, y, z] = ip.octets();
    Ipv6Addr::from([0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff, x, y, z])
}

/// What ARP says; `None` if it is none of IPv4 on Ethernet.
pub(super) fn arp(bytes: &[u8]) -> Option<Message> {
    let slice = ArpPacketSlice::from_slice(bytes).ok()?;
    let packet = ArpEthIpv4Packet::try_from(slice.to_packet()).ok()?;
    let from = Station {
        ip: packet.sender_ipv4_addr().into(),
        mac: MacAddr(packet.sender_mac),
    };
    match packet.operation {
        ArpOperation::REQUEST => Some(Message::Question {
            // A probe (RFC 5227) has no sender address.
            from: (!packet.sender_ipv4_addr().is_unspecified()).then_some(from),
            from_mac: from.mac,
            target: packet.target_ipv4_addr().into(),
        }),
        ArpOperation::REPLY => Some(Message::Answer(from)),
        _ => None,
    }
}

/// What an IPv6 datagram says of neighbours; `None` if it is no neighbour discovery, or is not to be
/// believed (RFC 4861, 7.1.1 and 7.1.2).
pub(super) fn ndp(bytes: &[u8], src_mac: MacAddr) -> Option<Message> {
    let ip = Ipv6HeaderSlice::from_slice(bytes).ok()?;
    if ip.next_header() != ip_number::IPV6_ICMP || ip.hop_limit() != HOP_LIMIT {
        return None;
    }
    let content = bytes.get(40..40 + usize::from(ip.payload_length()))?;
    let icmp = Icmpv6Slice::from_slice(content).ok()?;
    if !icmp.is_checksum_valid(ip.source(), ip.destination()) {
        return None;
    }
    match icmp.payload_slice().ok()? {
        Icmpv6PayloadSlice::NeighborSolicitation(ask) => {
            let source = ip.source_addr();
            let given = option(ask.options_iterator(), true);
            let from_mac = given.unwrap_or(src_mac);
            Some(Message::Question {
                from: (!source.is_unspecified()).then_some(Station {
                    ip: source.into(),
                    mac: from_mac,
                }),
                from_mac,
                target: ask.target_address().into(),
            })
        }
        Icmpv6PayloadSlice::NeighborAdvertisement(tell) => Some(Message::Answer(Station {
            ip: tell.target_address().into(),
            // A unicast answer may leave it out (RFC 4861, 4.4).
            mac: option(tell.options_iterator(), false).unwrap_or(src_mac),
        })),
        _ => None,
    }
}

/// The link-layer address option, of the source or of the target.
fn option(options: NdpOptionsIterator<'_>, source: bool) -> Option<MacAddr> {
    for option in options {
        let bytes = match option.ok()? {
            NdpOptionSlice::SourceLinkLayerAddress(o) if source => o.as_bytes(),
            NdpOptionSlice::TargetLinkLayerAddress(o) if !source => o.as_bytes(),
            _ => continue,
        };
        return bytes.get(2..8)?.try_into().ok().map(MacAddr);
    }
    None
}

/// A frame that asks who has `target`.
pub(super) fn question(own: Station, vlan: Option<u16>, target: IpAddr) -> Vec<u8> {
    match (own.ip, target) {
        (IpAddr::V6(own_ip), IpAddr::V6(target)) => {
            let group = solicited_node(target);
            let body = ndp_body(target, 1, own.mac);
            let to = MacAddr::of_group(group.into());
            ndp_frame(
                own,
                vlan,
                to,
                Icmpv6Type::NeighborSolicitation,
                own_ip,
                group,
                &body,
            )
        }
        (own_ip, target) => {
            let asked = Station {
                ip: target,
                mac: MacAddr::default(),
            };
            let own = Station { ip: own_ip, ..own };
            arp_frame(own, vlan, ArpOperation::REQUEST, asked, BROADCAST)
        }
    }
}

/// A frame that answers a question of `from`.
pub(super) fn answer(
    own: Station,
    vlan: Option<u16>,
    from: Option<Station>,
    from_mac: MacAddr,
) -> Vec<u8> {
    let IpAddr::V6(own_ip) = own.ip else {
        let asker = from.unwrap_or(Station {
            ip: Ipv4Addr::UNSPECIFIED.into(),
            mac: from_mac,
        });
        return arp_frame(own, vlan, ArpOperation::REPLY, asker, from_mac);
    };
    // One that has no address yet is told by way of all nodes (RFC 4861, 7.2.4).
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let (to, to_mac) = match from {
        Some(Station {
            ip: IpAddr::V6(ip), ..
        }) => (ip, from_mac),
        _ => (all_nodes, MacAddr::of_group(all_nodes.into())),
    };
    let kind = Icmpv6Type::NeighborAdvertisement(NeighborAdvertisementHeader {
        router: false,
        solicited: from.is_some(),
        r#override: true,
    });
    ndp_frame(
        own,
        vlan,
        to_mac,
        kind,
        own_ip,
        to,
        &ndp_body(own_ip, 2, own.mac),
    )
}

/// Target address, and one option of eight bytes with a link-layer address.
fn ndp_body(target: Ipv6Addr, option: u8, mac: MacAddr) -> [u8; 24] {
    let mut body = [0; 24];
    body[..16].copy_from_slice(&target.octets());
    body[16] = option;
    body[17] = 1;
    body[18..].copy_from_slice(&mac.0);
    body
}

fn arp_frame(
    own: Station,
    vlan: Option<u16>,
    operation: ArpOperation,
    other: Station,
    to: MacAddr,
) -> Vec<u8> {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    let packet = ArpEthIpv4Packet {
        operation,
        sender_mac: own.mac.0,
        sender_ipv4: octets(own.ip),
        target_mac: other.mac.0,
        target_ipv4: octets(other.ip),
    };
    let mut frame = header(own.mac, to, vlan, ARP);
    frame.extend_from_slice(&packet.to_bytes());
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

fn ndp_frame(
    own: Station,
    vlan: Option<u16>,
    to_mac: MacAddr,
    kind: Icmpv6Type,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    body: &[u8; 24],
) -> Vec<u8> {
    let ip = Ipv6Header {
        payload_length: 8 + body.len() as u16,
        next_header: ip_number::IPV6_ICMP,
        hop_limit: HOP_LIMIT,
        source: src.octets(),
        destination: dst.octets(),
        ..Ipv6Header::default()
    };
    let mut icmp = Icmpv6Header::new(kind);
    // Fails for a length beyond 32 bits.
    let _ = icmp.update_checksum(src.octets(), dst.octets(), body);
    let mut frame = header(own.mac, to_mac, vlan, IPV6);
    frame.extend_from_slice(&ip.to_bytes());
    frame.extend_from_slice(&icmp.to_bytes());
    frame.extend_from_slice(body);
    frame
}

/// Ethernet header with a tag of priority 0, if there is to be one.
fn header(src: MacAddr, dst: MacAddr, vlan: Option<u16>, kind: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(96);
    bytes.extend_from_slice(&dst.0);
    bytes.extend_from_slice(&src.0);
    if let Some(id) = vlan {
        bytes.extend_from_slice(&VLAN.to_be_bytes());
        bytes.extend_from_slice(&(id & 0xfff).to_be_bytes());
    }
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes
}
