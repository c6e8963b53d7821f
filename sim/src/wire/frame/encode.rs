//! From frames and packets to bytes.

use super::super::icrc::{Icrc, icrc};
use super::super::{Bth, Damage, Encapsulation, Ext, Packet, Route};
use super::{
    ETHERTYPE_ROCE_V1, Ethernet, Frame, FrameView, Ipv4, Ipv6, Network, Udp, VlanTag, Wire,
};
use bytes::BufMut;
use etherparse::checksum::Sum16BitWords;
use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv6FlowLabel, Ipv6Header, SingleVlanHeader, UdpHeader,
    VlanId, VlanPcp, ether_type, ip_number,
};

/// Why a packet cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The bytes given are not the packet's payload.
    #[error("{there} bytes given for a payload of {needed}")]
    PayloadLength {
        /// Bytes given.
        there: usize,
        /// Length the packet says.
        needed: u16,
    },
    /// One address is IPv4 and the other IPv6.
    #[error("route from {src} to {dst}: one address is IPv4, the other IPv6")]
    Addresses {
        /// Source.
        src: super::Gid,
        /// Destination.
        dst: super::Gid,
    },
    /// A RoCEv1 packet has no UDP payload.
    #[error("route from {src} to {dst}: RoCEv1 does not go through UDP")]
    NotUdp {
        /// Source.
        src: super::Gid,
        /// Destination.
        dst: super::Gid,
    },
    /// The datagram does not fit the length field of its IP header.
    #[error("datagram of {there} bytes above the limit of 65535")]
    Length {
        /// Length of the datagram.
        there: usize,
    },
    /// The output is too small.
    #[error("room for {there} bytes, {needed} needed")]
    NoRoom {
        /// Bytes the output has room for.
        there: usize,
        /// Bytes to be written.
        needed: usize,
    },
}

/// All headers of a frame, on the stack.
struct Head {
    bytes: [u8; Head::MAX],
    len: usize,
    /// Where network header and BTH begin.
    network: usize,
    bth: usize,
}

impl Head {
    const MAX: usize = 18 + 40 + 8 + Bth::LEN + Ext::MAX_LEN;

    const EMPTY: Head = Head {
        bytes: [0; Head::MAX],
        len: 0,
        network: 0,
        bth: 0,
    };

    /// `rest` counts payload, pad and ICRC.
    #[inline]
    fn new(link: Option<&Ethernet>, network: &Network, bth: &Bth, ext: &Ext, rest: usize) -> Head {
        let mut head = Head::EMPTY;
        if let Some(link) = link {
            head.link(link, network);
        }
        head.network(network, Bth::LEN + usize::from(ext.len()) + rest);
        head.push(&bth.to_bytes());
        if let Some(room) = head.bytes[head.len..].first_chunk_mut() {
            head.len += ext.encode(room);
        }
        head
    }

    /// Network and UDP headers for `transport` bytes from BTH to ICRC.
    #[inline]
    fn network(&mut self, network: &Network, transport: usize) {
        self.network = self.len;
        match network {
            Network::Ipv4(ip, udp) => {
                self.push(&ipv4_bytes(ip, transport));
                self.push(&udp_bytes(udp, transport));
            }
            Network::Ipv6(ip, udp) => {
                self.push(&ipv6_bytes(ip, ip_number::UDP, 8 + transport));
                self.push(&udp_bytes(udp, transport));
            }
            Network::Grh(ip) => self.push(&ipv6_bytes(ip, IpNumber(0x1b), transport)),
        }
        self.bth = self.len;
    }

    #[inline]
    fn push<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(bytes);
        self.len += N;
    }

    #[inline]
    fn link(&mut self, link: &Ethernet, network: &Network) {
        let inner = match network {
            Network::Ipv4(..) => ether_type::IPV4,
            Network::Ipv6(..) => ether_type::IPV6,
            Network::Grh(_) => EtherType(ETHERTYPE_ROCE_V1),
        };
        let header = Ethernet2Header {
            source: link.src.0,
            destination: link.dst.0,
            ether_type: match link.tag {
                Some(_) => ether_type::VLAN_TAGGED_FRAME,
                None => inner,
            },
        };
        self.push(&header.to_bytes());
        if let Some(tag) = link.tag {
            let header = SingleVlanHeader {
                pcp: VlanPcp::try_new(tag.pcp & 7).unwrap_or_default(),
                drop_eligible_indicator: tag.dei,
                vlan_id: VlanId::try_new(tag.id & 0xfff).unwrap_or_default(),
                ether_type: inner,
            };
            self.push(&header.to_bytes());
        }
    }

    /// Writes the IPv4 header checksum where it is still 0.
    #[inline]
    fn fill_checksum(&mut self, network: &Network) {
        if let Network::Ipv4(..) = network
            && let Some(ip) = self.bytes[self.network..].first_chunk_mut::<20>()
        {
            let sum = checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// The whole of it.
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// What the ICRC covers of it.
    #[inline]
    fn covered(&self) -> &[u8] {
        &self.bytes[self.network..self.len]
    }

    /// What a UDP datagram carries of it.
    #[inline]
    fn transport(&self) -> &[u8] {
        &self.bytes[self.bth..self.len]
    }
}

/// A length field; a datagram that is too long for it, which no decoding gives, saturates it.
fn length_field(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// The checksum of an IPv4 header that has none yet.
#[inline]
fn checksum(header: &[u8; 20]) -> u16 {
    let sum = Sum16BitWords::new().add_slice(header);
    sum.ones_complement().to_be()
}

#[inline]
fn ipv4_bytes(ip: &Ipv4, transport: usize) -> [u8; 20] {
    // Straight into an array: by way of a header with options, which etherparse has, it takes twice as long,
    // and it is done for every packet.
    let mut bytes = [0; 20];
    bytes[0] = 4 << 4 | 5;
    bytes[1] = ip.dscp << 2 | ip.ecn.bits();
    bytes[2..4].copy_from_slice(&length_field(20 + 8 + transport).to_be_bytes());
    bytes[4..6].copy_from_slice(&ip.identification.to_be_bytes());
    bytes[6] = u8::from(ip.reserved_flag) << 7 | u8::from(ip.dont_fragment) << 6;
    bytes[8] = ip.ttl;
    bytes[9] = ip_number::UDP.0;
    bytes[10..12].copy_from_slice(&ip.checksum.to_be_bytes());
    bytes[12..16].copy_from_slice(&ip.src.octets());
    bytes[16..].copy_from_slice(&ip.dst.octets());
    bytes
}

#[inline]
fn ipv6_bytes(ip: &Ipv6, next_header: IpNumber, content: usize) -> [u8; 40] {
    Ipv6Header {
        traffic_class: ip.traffic_class,
        flow_label: Ipv6FlowLabel::try_new(ip.flow_label & 0xf_ffff).unwrap_or_default(),
        payload_length: length_field(content),
        next_header,
        hop_limit: ip.hop_limit,
        source: ip.src.octets(),
        destination: ip.dst.octets(),
    }
    .to_bytes()
}

#[inline]
fn udp_bytes(udp: &Udp, transport: usize) -> [u8; 8] {
    UdpHeader {
        source_port: udp.src_port,
        destination_port: udp.dst_port,
        length: length_field(8 + transport),
        checksum: udp.checksum,
    }
    .to_bytes()
}

impl Network {
    /// The IPv4 header checksum for a datagram with `transport` bytes from BTH to ICRC; `None` for
    /// IPv6 and GRH, which have none.
    #[inline]
    pub(super) fn header_checksum(&self, transport: usize) -> Option<u16> {
        let Network::Ipv4(ip, _) = self else {
            return None;
        };
        let zeroed = Ipv4 { checksum: 0, ..*ip };
        Some(checksum(&ipv4_bytes(&zeroed, transport)))
    }

    /// Makes the IPv4 header checksum right.
    #[inline]
    pub(super) fn fill_checksum(&mut self, transport: usize) {
        if let (Some(sum), Network::Ipv4(ip, _)) = (self.header_checksum(transport), self) {
            ip.checksum = sum;
        }
    }
}

impl FrameView<'_> {
    fn head(&self) -> Head {
        let t = &self.transport;
        let rest = t.payload.len() + t.pad.len() + Icrc::LEN;
        Head::new(self.link.as_ref(), &self.network, &t.bth, &t.ext, rest)
    }

    /// The ICRC of the frame's bytes.
    #[inline]
    pub fn compute_icrc(&self) -> Icrc {
        let t = &self.transport;
        match self.wire {
            Wire::Datagram(bytes) => return icrc(self.network.layer(), bytes, &[], &[]),
            Wire::UdpPayload(bytes) => {
                if let Some((bth, rest)) = bytes.split_first_chunk::<{ Bth::LEN }>() {
                    let mut head = Head::EMPTY;
                    head.network(&self.network, bytes.len() + Icrc::LEN);
                    head.push(bth);
                    return icrc(self.network.layer(), head.bytes(), rest, &[]);
                }
            }
            Wire::None => {}
        }
        icrc(
            self.network.layer(),
            self.head().covered(),
            t.payload,
            t.pad,
        )
    }

    /// Appends the frame's bytes to `out`: exactly those it was decoded from, trailer included.
    ///
    /// # Panics
    ///
    /// If `out` has no room for [`FrameView::encoded_len`] bytes, which one that grows always has.
    pub fn encode_into(&self, out: &mut impl BufMut) {
        let t = &self.transport;
        out.put_slice(self.head().bytes());
        out.put_slice(t.payload);
        out.put_slice(t.pad);
        out.put_slice(&t.icrc.to_bytes());
        out.put_slice(self.trailer);
    }

    /// Bytes that [`FrameView::encode_into`] writes; of tags around the one of the view, which decoding took off,
    /// nothing is left.
    pub fn encoded_len(&self) -> usize {
        let ethernet = match self.link {
            None => 0,
            Some(Ethernet { tag: None, .. }) => 14,
            Some(Ethernet { tag: Some(_), .. }) => 18,
        };
        ethernet + self.network.layer().len() + self.transport.wire_len() + self.trailer.len()
    }

    /// The bytes of a UDP datagram: UDP header to ICRC.
    pub(super) fn udp_datagram(&self) -> Vec<u8> {
        let t = &self.transport;
        let head = self.head();
        let mut bytes = head.bytes[head.bth - 8..head.len].to_vec();
        bytes.extend_from_slice(t.payload);
        bytes.extend_from_slice(t.pad);
        bytes.extend_from_slice(&t.icrc.to_bytes());
        bytes
    }
}

impl Frame {
    /// The frame's bytes: exactly those it was decoded from, trailer included. A frame decoded from
    /// its IP header on gives an IP datagram.
    pub fn encode(&self) -> Vec<u8> {
        let view = self.view();
        let mut out = Vec::with_capacity(view.encoded_len());
        view.encode_into(&mut out);
        out
    }

    /// Appends the frame's bytes to `out`. See [`FrameView::encode_into`].
    ///
    /// # Panics
    ///
    /// As [`FrameView::encode_into`].
    pub fn encode_into(&self, out: &mut impl BufMut) {
        self.view().encode_into(out);
    }

    /// Makes IPv4 header checksum and ICRC right, after a change. A UDP checksum stays as it is.
    pub fn seal(&mut self) {
        let transport = self.view().transport.wire_len();
        self.network.fill_checksum(transport);
        self.icrc = self.view().compute_icrc();
    }
}

/// The parts of a packet, ready to be written.
struct Parts<'a> {
    head: Head,
    payload: &'a [u8],
    /// Zero bytes after `payload`: pad, and a payload that is counted.
    zeros: usize,
    icrc: Icrc,
}

/// Zero bytes to hash and write from.
static ZEROS: [u8; 4096] = [0; 4096];

impl<'a> Parts<'a> {
    #[inline]
    fn new(
        packet: &Packet,
        route: &Route,
        link: Option<&Ethernet>,
        payload: &'a [u8],
    ) -> Result<Parts<'a>, EncodeError> {
        let needed = packet.payload.len();
        let counted = payload.is_empty() && packet.payload.slot().is_none();
        if payload.len() != usize::from(needed) && !counted {
            return Err(EncodeError::PayloadLength {
                there: payload.len(),
                needed,
            });
        }
        if route.encapsulation == Encapsulation::RoceV2
            && route.src.ipv4().is_some() != route.dst.ipv4().is_some()
        {
            return Err(EncodeError::Addresses {
                src: route.src,
                dst: route.dst,
            });
        }
        let pad = packet.payload.pad_count();
        let bth = packet.bth.with_pad_count(pad);
        let rest = usize::from(needed) + usize::from(pad) + Icrc::LEN;
        let transport = Bth::LEN + usize::from(packet.ext.len()) + rest;
        let network = Network::of_route(route, packet.ecn, packet.hop_limit);
        let there = network.layer().len() + transport;
        if there > usize::from(u16::MAX) {
            return Err(EncodeError::Length { there });
        }
        let mut head = Head::new(link, &network, &bth, &packet.ext, rest);
        if link.is_some() {
            // The ICRC leaves it out, and without a link header the kernel writes it.
            head.fill_checksum(&network);
        }
        let zeros = usize::from(needed) - payload.len() + usize::from(pad);
        let layer = network.layer();
        let mut icrc = if zeros <= ZEROS.len() {
            icrc(layer, head.covered(), payload, &ZEROS[..zeros])
        } else {
            // A counted payload longer than any path MTU.
            icrc(layer, head.covered(), payload, &vec![0; zeros])
        };
        if packet.damage == Damage::Device {
            icrc.0 = !icrc.0;
        }
        Ok(Parts {
            head,
            payload,
            zeros,
            icrc,
        })
    }

    #[inline]
    fn write(&self, head: &[u8], out: &mut impl BufMut) -> Result<usize, EncodeError> {
        let needed = head.len() + self.payload.len() + self.zeros + Icrc::LEN;
        let there = out.remaining_mut();
        if there < needed {
            return Err(EncodeError::NoRoom { there, needed });
        }
        out.put_slice(head);
        out.put_slice(self.payload);
        out.put_bytes(0, self.zeros);
        out.put_slice(&self.icrc.to_bytes());
        Ok(needed)
    }
}

/// Appends `packet`, which goes by `route`, to `out` as an Ethernet frame without FCS, and returns
/// its length. `out` may be a `BytesMut`, a `Vec<u8>` or a `&mut [u8]`.
///
/// `payload` is the data that the packet's handle stands for; an empty slice makes a counted payload
/// zero bytes. The pad count is that of the payload. Identification and UDP checksum are 0, DF is
/// set; TTL and ECN are the packet's, and so is the priority where the route has a VLAN. A packet
/// that a device damaged gets an ICRC with all bits inverted, so that it is as wrong on a wire or
/// in a capture as it is in the network.
///
/// # Errors
///
/// If `payload` has another length, the route's addresses do not fit each other, the datagram is too
/// long, or `out` too small.
#[inline]
pub fn encode_packet(
    packet: &Packet,
    route: &Route,
    payload: &[u8],
    out: &mut impl BufMut,
) -> Result<usize, EncodeError> {
    let link = Ethernet {
        dst: route.dst_mac,
        src: route.src_mac,
        tag: route.vlan.map(|vlan| VlanTag {
            pcp: packet.priority,
            dei: false,
            id: vlan.id,
        }),
    };
    let parts = Parts::new(packet, route, Some(&link), payload)?;
    parts.write(parts.head.bytes(), out)
}

/// Appends what a UDP socket sends of `packet`, BTH to ICRC, to `out`, and returns its length.
///
/// The ICRC is for the headers the kernel will put in front: from the route's source address and
/// port to its destination address and port 4791, identification 0 and DF set, as Linux writes them
/// for a socket that is not connected and has path MTU discovery on. Otherwise like
/// [`encode_packet`].
///
/// # Errors
///
/// As [`encode_packet`], and if the route is one of RoCEv1.
#[inline]
pub fn encode_udp_payload(
    packet: &Packet,
    route: &Route,
    payload: &[u8],
    out: &mut impl BufMut,
) -> Result<usize, EncodeError> {
    if route.encapsulation == Encapsulation::RoceV1 {
        return Err(EncodeError::NotUdp {
            src: route.src,
            dst: route.dst,
        });
    }
    let parts = Parts::new(packet, route, None, payload)?;
    parts.write(parts.head.transport(), out)
}
