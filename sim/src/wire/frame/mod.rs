//! Whole frames: a packet with its link, network and UDP headers, its payload and its ICRC.
//!
//! [`FrameView`] borrows the bytes it was decoded from and allocates nothing: it is what a real
//! port works with. [`Frame`] owns its payload: it is what captures and tests keep, change and
//! encode again. Decoding looks at structure alone; whether what a frame says is right, its ICRC
//! first of all, is asked apart, by [`FrameView::check_icrc`] and [`FrameView::check`].
//! [`encode_packet`] and [`encode_udp_payload`] turn a [`Packet`] into bytes without
//! a detour.

mod check;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use check::Finding;
pub use decode::{DecodeError, Header, MAX_TAGS};
pub use encode::{EncodeError, encode_packet, encode_udp_payload};

use super::icrc::{Icrc, Layer};
use super::{
    Bth, Damage, Ecn, Encapsulation, Ext, Gid, MacAddr, Opcode, Packet, Payload, Route, RouteId,
    Vlan,
};
use bytes::Bytes;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The UDP destination port of RoCEv2.
pub const UDP_PORT: u16 = 4791;

/// EtherType of RoCEv1.
pub const ETHERTYPE_ROCE_V1: u16 = 0x8915;

/// The Ethernet header with at most one tag, which is all that a station writes; of several, the innermost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ethernet {
    /// Destination.
    pub dst: MacAddr,
    /// Source.
    pub src: MacAddr,
    /// IEEE 802.1Q tag, if there is one.
    pub tag: Option<VlanTag>,
}

/// An IEEE 802.1Q tag with all its fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VlanTag {
    /// Priority code point; its low three bits are written.
    pub pcp: u8,
    /// Drop eligible.
    pub dei: bool,
    /// VLAN identifier; its low twelve bits are written.
    pub id: u16,
}

/// An IPv4 header. Its length is 5 words, its protocol UDP, its fragment offset 0 with no fragment
/// to follow (anything else is refused), and its total length that of the frame's parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4 {
    /// Upper six bits of the type of service.
    pub dscp: u8,
    /// Lower two bits of the type of service.
    pub ecn: Ecn,
    /// Identification.
    pub identification: u16,
    /// The flag bit without a meaning.
    pub reserved_flag: bool,
    /// Do not fragment; set in RoCEv2 (CA17-7).
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// Header checksum as received.
    pub checksum: u16,
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
}

/// An IPv6 header or a GRH, which have the same fields. The next header is UDP in the one and the
/// BTH (0x1B) in the other; the payload length is that of the frame's parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6 {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label; its low twenty bits are written.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
}

/// A UDP header; its length is that of the frame's parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Udp {
    /// Source port, the entropy for ECMP.
    pub src_port: u16,
    /// Destination port: [`UDP_PORT`] in what crosses a network.
    pub dst_port: u16,
    /// Checksum as received; zero if there is none.
    pub checksum: u16,
}

/// What stands between link header and BTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Network {
    /// RoCEv2 over IPv4.
    Ipv4(Ipv4, Udp),
    /// RoCEv2 over IPv6.
    Ipv6(Ipv6, Udp),
    /// RoCEv1.
    Grh(Ipv6),
}

/// From the BTH to the ICRC: what a UDP datagram carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transport<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers, where [`Ext`] [models](Ext::models) those of the opcode.
    pub ext: Ext,
    /// Payload without pad, and in front of it extended headers that are not modelled.
    pub payload: &'a [u8],
    /// As many bytes as the BTH's pad count says.
    pub pad: &'a [u8],
    /// ICRC as received.
    pub icrc: Icrc,
}

/// A frame that borrows the bytes it was decoded from. To change one, take a [`Frame`].
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    /// Ethernet header; `None` in what begins with the IP header.
    pub link: Option<Ethernet>,
    /// Network and UDP headers.
    pub network: Network,
    /// BTH to ICRC.
    pub transport: Transport<'a>,
    /// Bytes after the datagram: the padding of a short Ethernet frame, perhaps an FCS.
    pub trailer: &'a [u8],
    wire: Wire<'a>,
}

/// The bytes that the ICRC covers as they were received, so that a check need not put them together.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    /// None: the view is of an owned frame.
    None,
    /// From the network header to the pad.
    Datagram(&'a [u8]),
    /// From the BTH to the pad; the network header is that of a route.
    UdpPayload(&'a [u8]),
}

/// A frame that owns its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Ethernet header; `None` in what begins with the IP header.
    pub link: Option<Ethernet>,
    /// Network and UDP headers.
    pub network: Network,
    /// Base transport header. Its pad count says how many of `pad` are on the wire.
    pub bth: Bth,
    /// Extended headers, where [`Ext`] [models](Ext::models) those of the opcode.
    pub ext: Ext,
    /// Payload without pad, and in front of it extended headers that are not modelled.
    pub payload: Bytes,
    /// Pad; bytes beyond the pad count are zero and not on the wire.
    pub pad: [u8; 3],
    /// ICRC.
    pub icrc: Icrc,
    /// Bytes after the datagram, kept as received: the padding of a short Ethernet frame, perhaps
    /// an FCS.
    pub trailer: Bytes,
}

/// Why a frame is no [`Packet`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    /// The payload handle does not fit the frame.
    #[error("payload handle of {handle} bytes for a frame with {there} bytes of payload")]
    PayloadLength {
        /// Length the handle says.
        handle: u16,
        /// Length in the frame.
        there: usize,
    },
    /// The pad count is not the one that fills up the payload.
    #[error("pad count {found} after {payload} bytes of payload, {needed} needed")]
    PadCount {
        /// Pad count of the BTH.
        found: u8,
        /// Length of the payload.
        payload: usize,
        /// The pad count that makes a multiple of four.
        needed: u8,
    },
    /// The frame is longer than a packet's length field says.
    #[error("frame length {there} above the limit of 65535")]
    FrameLength {
        /// Length with FCS.
        there: usize,
    },
}

impl Network {
    /// The headers of a packet on `route`, with identification and UDP checksum 0 and DF set. The
    /// IPv4 header checksum, which depends on the length, is 0 too.
    pub fn of_route(route: &Route, ecn: Ecn, hop_limit: u8) -> Network {
        let udp = Udp {
            src_port: route.udp_src,
            dst_port: UDP_PORT,
            checksum: 0,
        };
        let v6 = || Ipv6 {
            traffic_class: route.dscp << 2 | ecn.bits(),
            flow_label: route.flow_label,
            hop_limit,
            src: route.src.0.into(),
            dst: route.dst.0.into(),
        };
        match (route.encapsulation, route.src.ipv4(), route.dst.ipv4()) {
            (Encapsulation::RoceV1, ..) => Network::Grh(v6()),
            (Encapsulation::RoceV2, Some(src), Some(dst)) => Network::Ipv4(
                Ipv4 {
                    dscp: route.dscp,
                    ecn,
                    identification: 0,
                    reserved_flag: false,
                    dont_fragment: true,
                    ttl: hop_limit,
                    checksum: 0,
                    src,
                    dst,
                },
                udp,
            ),
            (Encapsulation::RoceV2, ..) => Network::Ipv6(v6(), udp),
        }
    }

    /// Which of the three it is.
    pub const fn layer(&self) -> Layer {
        match self {
            Network::Ipv4(..) => Layer::Ipv4,
            Network::Ipv6(..) => Layer::Ipv6,
            Network::Grh(_) => Layer::Grh,
        }
    }

    /// Source address.
    pub fn src(&self) -> Gid {
        match self {
            Network::Ipv4(ip, _) => ip.src.into(),
            Network::Ipv6(ip, _) | Network::Grh(ip) => ip.src.into(),
        }
    }

    /// Destination address.
    pub fn dst(&self) -> Gid {
        match self {
            Network::Ipv4(ip, _) => ip.dst.into(),
            Network::Ipv6(ip, _) | Network::Grh(ip) => ip.dst.into(),
        }
    }

    /// The ECN bits.
    pub const fn ecn(&self) -> Ecn {
        match self {
            Network::Ipv4(ip, _) => ip.ecn,
            Network::Ipv6(ip, _) | Network::Grh(ip) => Ecn::from_bits(ip.traffic_class),
        }
    }

    /// Sets the ECN bits, as a switch does that marks a packet, and mends the IPv4 header checksum
    /// for it (RFC 1624, equation 3).
    pub fn set_ecn(&mut self, ecn: Ecn) {
        match self {
            Network::Ipv4(ip, _) => {
                let old = u16::from(ip.dscp << 2 | ip.ecn.bits());
                let new = u16::from(ip.dscp << 2 | ecn.bits());
                ip.ecn = ecn;
                let mut sum = u32::from(!ip.checksum) + u32::from(!old) + u32::from(new);
                sum = (sum & 0xffff) + (sum >> 16);
                sum = (sum & 0xffff) + (sum >> 16);
                ip.checksum = !(sum as u16);
            }
            Network::Ipv6(ip, _) | Network::Grh(ip) => {
                ip.traffic_class = ip.traffic_class & !3 | ecn.bits();
            }
        }
    }

    /// The DSCP.
    pub const fn dscp(&self) -> u8 {
        match self {
            Network::Ipv4(ip, _) => ip.dscp,
            Network::Ipv6(ip, _) | Network::Grh(ip) => ip.traffic_class >> 2,
        }
    }

    /// TTL or hop limit.
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Network::Ipv4(ip, _) => ip.ttl,
            Network::Ipv6(ip, _) | Network::Grh(ip) => ip.hop_limit,
        }
    }

    /// The UDP header, which RoCEv1 has not.
    pub const fn udp(&self) -> Option<&Udp> {
        match self {
            Network::Ipv4(_, udp) | Network::Ipv6(_, udp) => Some(udp),
            Network::Grh(_) => None,
        }
    }
}

impl Transport<'_> {
    /// Length on the wire in bytes, ICRC included.
    pub fn wire_len(&self) -> usize {
        Bth::LEN + usize::from(self.ext.len()) + self.payload.len() + self.pad.len() + Icrc::LEN
    }
}

impl<'a> FrameView<'a> {
    /// The way this packet came. Addresses of RoCEv2 over IPv6 that are mapped IPv4 addresses make
    /// an IPv4 route.
    pub fn route(&self) -> Route {
        let (encapsulation, udp_src, flow_label) = match &self.network {
            Network::Ipv4(_, udp) => (Encapsulation::RoceV2, udp.src_port, 0),
            Network::Ipv6(ip, udp) => (Encapsulation::RoceV2, udp.src_port, ip.flow_label),
            Network::Grh(ip) => (Encapsulation::RoceV1, 0, ip.flow_label),
        };
        let link = self.link.unwrap_or(Ethernet::NONE);
        Route {
            encapsulation,
            src_mac: link.src,
            dst_mac: link.dst,
            src: self.network.src(),
            dst: self.network.dst(),
            udp_src,
            vlan: link.tag.map(|tag| Vlan { id: tag.id }),
            dscp: self.network.dscp(),
            hop_limit: self.network.hop_limit(),
            flow_label,
        }
    }

    /// Length of the Ethernet frame with FCS. A frame that was decoded from its IP header on counts
    /// as untagged, and of several tags only the innermost is counted.
    pub fn frame_len(&self) -> usize {
        let ethernet = match self.link {
            Some(Ethernet { tag: Some(_), .. }) => 18,
            _ => 14,
        };
        ethernet + self.network.layer().len() + self.transport.wire_len() + self.trailer.len() + 4
    }

    /// The packet as a card takes it. `route` is the caller's name for [`FrameView::route`], and
    /// `payload` its handle of a copy of the payload, or a counted one.
    ///
    /// The priority is that of the tag, 0 without one. A CNP has no payload, whatever `payload`
    /// says. Nothing is checked that [`FrameView::check`] does.
    ///
    /// # Errors
    ///
    /// If `payload` has not the frame's length, the pad count does not fit it, or the frame is too
    /// long for a packet.
    pub fn to_packet(&self, route: RouteId, payload: Payload) -> Result<Packet, PacketError> {
        let t = &self.transport;
        let (ext, payload) = if t.bth.opcode() == Opcode::CNP {
            (Ext::Cnp, Payload::EMPTY)
        } else {
            if usize::from(payload.len()) != t.payload.len() {
                return Err(PacketError::PayloadLength {
                    handle: payload.len(),
                    there: t.payload.len(),
                });
            }
            if t.bth.pad_count() != payload.pad_count() {
                return Err(PacketError::PadCount {
                    found: t.bth.pad_count(),
                    payload: t.payload.len(),
                    needed: payload.pad_count(),
                });
            }
            (t.ext, payload)
        };
        let there = self.frame_len();
        Ok(Packet {
            ext,
            bth: t.bth,
            route,
            payload,
            frame_len: u16::try_from(there).map_err(|_| PacketError::FrameLength { there })?,
            priority: self.link.and_then(|l| l.tag).map_or(0, |tag| tag.pcp),
            ecn: self.network.ecn(),
            damage: Damage::None,
            hop_limit: self.network.hop_limit(),
        })
    }

    /// A frame with copies of payload and trailer.
    pub fn to_frame(&self) -> Frame {
        self.own(Bytes::copy_from_slice)
    }

    fn own(&self, bytes: impl Fn(&'a [u8]) -> Bytes) -> Frame {
        let t = &self.transport;
        let mut pad = [0; 3];
        for (to, from) in pad.iter_mut().zip(t.pad) {
            *to = *from;
        }
        let mut network = self.network;
        if let Wire::UdpPayload(_) = self.wire {
            network.fill_checksum(t.wire_len());
        }
        Frame {
            link: self.link,
            network,
            bth: t.bth,
            ext: t.ext,
            payload: bytes(t.payload),
            pad,
            icrc: t.icrc,
            trailer: bytes(self.trailer),
        }
    }
}

impl Frame {
    /// A packet as a frame, with its payload's bytes; sums are right, as [`encode_packet`] writes
    /// them.
    ///
    /// # Errors
    ///
    /// As [`encode_packet`].
    pub fn from_packet(
        packet: &Packet,
        route: &Route,
        payload: &[u8],
    ) -> Result<Frame, EncodeError> {
        let mut bytes = Vec::new();
        encode_packet(packet, route, payload, &mut bytes)?;
        // What was just written has the structure of a frame.
        FrameView::decode(&bytes)
            .map(|view| view.to_frame())
            .map_err(|_| EncodeError::Length { there: bytes.len() })
    }

    /// The same frame, borrowed.
    pub fn view(&self) -> FrameView<'_> {
        FrameView {
            link: self.link,
            network: self.network,
            transport: Transport {
                bth: self.bth,
                ext: self.ext,
                payload: &self.payload,
                pad: &self.pad[..usize::from(self.bth.pad_count())],
                icrc: self.icrc,
            },
            trailer: &self.trailer,
            wire: Wire::None,
        }
    }

    /// See [`FrameView::route`].
    pub fn route(&self) -> Route {
        self.view().route()
    }

    /// See [`FrameView::to_packet`].
    ///
    /// # Errors
    ///
    /// As [`FrameView::to_packet`].
    pub fn to_packet(&self, route: RouteId, payload: Payload) -> Result<Packet, PacketError> {
        self.view().to_packet(route, payload)
    }
}

impl Ethernet {
    const NONE: Ethernet = Ethernet {
        dst: MacAddr([0; 6]),
        src: MacAddr([0; 6]),
        tag: None,
    };
}
