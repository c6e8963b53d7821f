//! From bytes to frames.

use super::super::ext::ShortExt;
use super::super::icrc::Icrc;
use super::super::{Bth, Ecn, Ext, MacAddr, Route};
use super::{
    ETHERTYPE_ROCE_V1, Ethernet, Frame, FrameView, Ipv4, Ipv6, Network, Transport, UDP_PORT, Udp,
    VlanTag, Wire,
};
use bytes::Bytes;
use etherparse::{
    EtherType, Ethernet2HeaderSlice, Ipv4HeaderSlice, Ipv6HeaderSlice, SingleVlanHeaderSlice,
    UdpHeaderSlice, ether_type, ip_number,
};
use std::fmt;

/// The next header value of a BTH behind a GRH.
const NEXT_HEADER_BTH: u8 = 0x1b;

/// A part of a frame, where an error names one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Header {
    /// Ethernet header.
    Ethernet,
    /// IEEE 802.1Q tag.
    VlanTag,
    /// IPv4 header.
    Ipv4,
    /// IPv6 header.
    Ipv6,
    /// Global route header.
    Grh,
    /// UDP header.
    Udp,
    /// Base transport header and ICRC, the least a packet has.
    BthAndIcrc,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a header.
    #[error("{header}: {there} bytes there, {needed} needed")]
    Truncated {
        /// Where they end.
        header: Header,
        /// Bytes left for it.
        there: usize,
        /// Bytes it has.
        needed: usize,
    },
    /// Not RoCE: neither IP nor RoCEv1.
    #[error("EtherType {found:#06x}: not IPv4 (0x0800), IPv6 (0x86dd) or RoCEv1 (0x8915)")]
    EtherType {
        /// The EtherType, behind a tag the tagged one.
        found: u16,
    },
    /// The version field does not belong to the header.
    #[error("{header}: version {found}, {needed} needed")]
    IpVersion {
        /// Which header.
        header: Header,
        /// The version there.
        found: u8,
        /// The version it should be.
        needed: u8,
    },
    /// IPv4 options, which RoCEv2 has not (CA17-3), or a header shorter than it can be.
    #[error("IPv4: header length {ihl} words, 5 needed")]
    IpHeaderLength {
        /// The header length field.
        ihl: u8,
    },
    /// The length field claims more than is there, or less than the header.
    #[error("{header}: length field {value}, must be from {least} to {there}")]
    IpLength {
        /// Which header.
        header: Header,
        /// Total length of IPv4, payload length of IPv6 and GRH.
        value: usize,
        /// The least that can be right.
        least: usize,
        /// What the bytes there allow.
        there: usize,
    },
    /// Not RoCE: what follows the network header is neither UDP nor, behind a GRH, a BTH.
    #[error("{header}: protocol or next header {found:#04x}, {needed:#04x} needed")]
    Protocol {
        /// Which header.
        header: Header,
        /// The value there.
        found: u8,
        /// The value it should be.
        needed: u8,
    },
    /// A fragment of an IPv4 datagram, which RoCEv2 does not send (CA17-7, CA17-8).
    #[error("IPv4: a fragment, offset {offset} times 8, more to follow: {more}; must be whole")]
    Fragment {
        /// Fragment offset in units of 8 bytes.
        offset: u16,
        /// More fragments follow.
        more: bool,
    },
    /// Not RoCE: another destination port.
    #[error("UDP: destination port {found}, 4791 needed")]
    UdpPort {
        /// The port there.
        found: u16,
    },
    /// The UDP length is not what the IP header leaves for it (CA17-21).
    #[error("UDP: length {found}, {needed} in the IP header")]
    UdpLength {
        /// The length field.
        found: usize,
        /// What the IP header leaves for UDP.
        needed: usize,
    },
    /// The extended headers are cut short.
    #[error(transparent)]
    Ext(#[from] ShortExt),
    /// The pad count is larger than what follows the extended headers.
    #[error("BTH: pad count {pad}, but {there} bytes of payload and pad are there")]
    PadCount {
        /// The pad count.
        pad: u8,
        /// Bytes between extended headers and ICRC.
        there: usize,
    },
}

impl DecodeError {
    /// True if the bytes are not RoCE at all, rather than a broken RoCE frame: another EtherType,
    /// protocol or UDP port.
    pub fn is_foreign(&self) -> bool {
        match self {
            DecodeError::EtherType { .. } | DecodeError::UdpPort { .. } => true,
            DecodeError::Protocol { header, .. } => *header != Header::Grh,
            _ => false,
        }
    }
}

/// Tags of VLANs that a frame may have, one inside the other.
pub const MAX_TAGS: usize = 4;

/// The EtherType behind all tags, what follows it, and the last tag.
fn untag(
    mut kind: EtherType,
    mut rest: &[u8],
) -> Result<(EtherType, &[u8], Option<VlanTag>), DecodeError> {
    let mut tag = None;
    for _ in 0..MAX_TAGS {
        let is_tag = [ether_type::VLAN_TAGGED_FRAME, ether_type::PROVIDER_BRIDGING];
        if !is_tag.contains(&kind) {
            break;
        }
        let vlan = SingleVlanHeaderSlice::from_slice(rest)
            .map_err(|_| truncated(Header::VlanTag, rest, 4))?;
        rest = &rest[4..];
        kind = vlan.ether_type();
        tag = Some(VlanTag {
            pcp: vlan.priority_code_point().value(),
            dei: vlan.drop_eligible_indicator(),
            id: vlan.vlan_identifier().value(),
        });
    }
    Ok((kind, rest, tag))
}

impl<'a> FrameView<'a> {
    /// Decodes an Ethernet frame without preamble; an FCS at its end lands in the trailer.
    ///
    /// Up to [`MAX_TAGS`] tags of VLANs are taken off, customers' (0x8100) and providers' (0x88a8, IEEE 802.1ad).
    /// The view has the innermost, which is the sender's own; networks on the way put theirs before it.
    ///
    /// # Errors
    ///
    /// If the bytes are not RoCE or do not have the structure of a frame.
    pub fn decode(frame: &'a [u8]) -> Result<FrameView<'a>, DecodeError> {
        let ethernet = Ethernet2HeaderSlice::from_slice(frame)
            .map_err(|_| truncated(Header::Ethernet, frame, 14))?;
        let (kind, rest, tag) = untag(ethernet.ether_type(), &frame[14..])?;
        let mut view = FrameView::of_type(kind.0, rest)?;
        view.link = Some(Ethernet {
            dst: MacAddr(ethernet.destination()),
            src: MacAddr(ethernet.source()),
            tag,
        });
        Ok(view)
    }

    /// Decodes what follows a link header that names its content by EtherType. Tags are passed over.
    ///
    /// # Errors
    ///
    /// As [`FrameView::decode`].
    pub fn of_ethertype(ether_type: u16, bytes: &'a [u8]) -> Result<FrameView<'a>, DecodeError> {
        let (kind, rest, _) = untag(EtherType(ether_type), bytes)?;
        FrameView::of_type(kind.0, rest)
    }

    fn of_type(ether_type: u16, bytes: &'a [u8]) -> Result<FrameView<'a>, DecodeError> {
        match ether_type {
            0x0800 => ipv4(bytes),
            0x86dd => ipv6(bytes),
            ETHERTYPE_ROCE_V1 => grh(bytes),
            found => Err(DecodeError::EtherType { found }),
        }
    }

    /// Decodes an IP datagram, IPv4 or IPv6 as its first byte says.
    ///
    /// # Errors
    ///
    /// As [`FrameView::decode`].
    pub fn decode_ip(datagram: &'a [u8]) -> Result<FrameView<'a>, DecodeError> {
        match datagram.first() {
            Some(b) if b >> 4 == 6 => ipv6(datagram),
            _ => ipv4(datagram),
        }
    }

    /// Decodes what a UDP socket delivers, BTH to ICRC, from the sender that `route` describes.
    ///
    /// The network header is the one a sender on `route` writes: identification 0, DF set, TTL the
    /// route's. What a socket does not tell of it, the ICRC leaves out, except the identification:
    /// see [`FrameView::check_icrc_any_identification`]. The IPv4 header checksum is 0 in the view,
    /// right in a [`Frame`] made from it.
    ///
    /// # Errors
    ///
    /// If the bytes do not have the structure of a packet.
    pub fn decode_udp_payload(
        payload: &'a [u8],
        route: &Route,
        ecn: Ecn,
    ) -> Result<FrameView<'a>, DecodeError> {
        Ok(FrameView {
            link: None,
            network: Network::of_route(route, ecn, route.hop_limit),
            transport: Transport::decode(payload)?,
            trailer: &[],
            wire: Wire::UdpPayload(without_icrc(payload)),
        })
    }
}

impl Frame {
    /// Decodes an Ethernet frame and copies its payload. See [`FrameView::decode`].
    ///
    /// # Errors
    ///
    /// As [`FrameView::decode`].
    pub fn decode(frame: &[u8]) -> Result<Frame, DecodeError> {
        FrameView::decode(frame).map(|view| view.to_frame())
    }

    /// Decodes an Ethernet frame and shares its payload. See [`FrameView::decode`].
    ///
    /// # Errors
    ///
    /// As [`FrameView::decode`].
    pub fn decode_shared(frame: &Bytes) -> Result<Frame, DecodeError> {
        FrameView::decode(frame).map(|view| view.own(|part| frame.slice_ref(part)))
    }

    /// Decodes an IP datagram and copies its payload. See [`FrameView::decode_ip`].
    ///
    /// # Errors
    ///
    /// As [`FrameView::decode`].
    pub fn decode_ip(datagram: &[u8]) -> Result<Frame, DecodeError> {
        FrameView::decode_ip(datagram).map(|view| view.to_frame())
    }

    /// Decodes what a UDP socket delivers and copies its payload. See
    /// [`FrameView::decode_udp_payload`].
    ///
    /// # Errors
    ///
    /// As [`FrameView::decode_udp_payload`].
    pub fn decode_udp_payload(
        payload: &[u8],
        route: &Route,
        ecn: Ecn,
    ) -> Result<Frame, DecodeError> {
        FrameView::decode_udp_payload(payload, route, ecn).map(|view| view.to_frame())
    }
}

impl<'a> Transport<'a> {
    /// Decodes BTH to ICRC.
    ///
    /// # Errors
    ///
    /// If a header is cut short or the pad count exceeds what is there.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Transport<'a>, DecodeError> {
        let short = || truncated(Header::BthAndIcrc, bytes, Bth::LEN + Icrc::LEN);
        let (bth, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let (rest, icrc) = rest.split_last_chunk().ok_or_else(short)?;
        let bth = Bth::from_bytes(bth);
        let (ext, rest) = Ext::decode(bth.opcode(), rest)?;
        let pad = usize::from(bth.pad_count());
        let payload = rest.len().checked_sub(pad).ok_or(DecodeError::PadCount {
            pad: bth.pad_count(),
            there: rest.len(),
        })?;
        let (payload, pad) = rest.split_at(payload);
        Ok(Transport {
            bth,
            ext,
            payload,
            pad,
            icrc: Icrc::from_bytes(*icrc),
        })
    }
}

fn truncated(header: Header, bytes: &[u8], needed: usize) -> DecodeError {
    DecodeError::Truncated {
        header,
        there: bytes.len(),
        needed,
    }
}

/// All but the ICRC of a packet that has one.
fn without_icrc(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().saturating_sub(Icrc::LEN)]
}

/// The version in the first byte, if the header is there in full.
fn version(header: Header, bytes: &[u8], needed: u8, len: usize) -> Result<(), DecodeError> {
    match bytes.first() {
        Some(first) if bytes.len() >= len => {
            let found = first >> 4;
            if found == needed {
                Ok(())
            } else {
                Err(DecodeError::IpVersion {
                    header,
                    found,
                    needed,
                })
            }
        }
        _ => Err(truncated(header, bytes, len)),
    }
}

fn ipv4(bytes: &[u8]) -> Result<FrameView<'_>, DecodeError> {
    version(Header::Ipv4, bytes, 4, 20)?;
    // What is not for us is told before what is wrong with it: IGMP has options.
    let protocol = bytes[9];
    if protocol != ip_number::UDP.0 {
        return Err(DecodeError::Protocol {
            header: Header::Ipv4,
            found: protocol,
            needed: ip_number::UDP.0,
        });
    }
    let ihl = bytes[0] & 0xf;
    if ihl != 5 {
        return Err(DecodeError::IpHeaderLength { ihl });
    }
    let ip = Ipv4HeaderSlice::from_slice(bytes).map_err(|_| truncated(Header::Ipv4, bytes, 20))?;
    let total = usize::from(ip.total_len());
    if total < 20 || total > bytes.len() {
        return Err(DecodeError::IpLength {
            header: Header::Ipv4,
            value: total,
            least: 20,
            there: bytes.len(),
        });
    }
    if ip.is_fragmenting_payload() {
        return Err(DecodeError::Fragment {
            offset: ip.fragments_offset().value(),
            more: ip.more_fragments(),
        });
    }
    let (datagram, trailer) = bytes.split_at(total);
    let (udp, transport) = udp(&datagram[20..])?;
    Ok(FrameView {
        link: None,
        network: Network::Ipv4(
            Ipv4 {
                dscp: ip.dcp().value(),
                ecn: Ecn::from_bits(ip.ecn().value()),
                identification: ip.identification(),
                reserved_flag: bytes[6] & 0x80 != 0,
                dont_fragment: ip.dont_fragment(),
                ttl: ip.ttl(),
                checksum: ip.header_checksum(),
                src: ip.source_addr(),
                dst: ip.destination_addr(),
            },
            udp,
        ),
        transport,
        trailer,
        wire: Wire::Datagram(without_icrc(datagram)),
    })
}

fn ipv6(bytes: &[u8]) -> Result<FrameView<'_>, DecodeError> {
    let (ip, content, trailer) = forty(Header::Ipv6, bytes, ip_number::UDP.0)?;
    let (udp, transport) = udp(content)?;
    Ok(FrameView {
        link: None,
        network: Network::Ipv6(ip, udp),
        transport,
        trailer,
        wire: Wire::Datagram(without_icrc(&bytes[..40 + content.len()])),
    })
}

fn grh(bytes: &[u8]) -> Result<FrameView<'_>, DecodeError> {
    let (ip, content, trailer) = forty(Header::Grh, bytes, NEXT_HEADER_BTH)?;
    Ok(FrameView {
        link: None,
        network: Network::Grh(ip),
        transport: Transport::decode(content)?,
        trailer,
        wire: Wire::Datagram(without_icrc(&bytes[..40 + content.len()])),
    })
}

/// The 40 bytes that IPv6 and GRH have in common, what they carry, and what follows.
fn forty(header: Header, bytes: &[u8], next: u8) -> Result<(Ipv6, &[u8], &[u8]), DecodeError> {
    version(header, bytes, 6, 40)?;
    let ip = Ipv6HeaderSlice::from_slice(bytes).map_err(|_| truncated(header, bytes, 40))?;
    let rest = &bytes[40..];
    if ip.next_header().0 != next {
        return Err(DecodeError::Protocol {
            header,
            found: ip.next_header().0,
            needed: next,
        });
    }
    let value = usize::from(ip.payload_length());
    if value > rest.len() {
        return Err(DecodeError::IpLength {
            header,
            value,
            least: 0,
            there: rest.len(),
        });
    }
    let (content, trailer) = rest.split_at(value);
    let ip = Ipv6 {
        traffic_class: ip.traffic_class(),
        flow_label: ip.flow_label().value(),
        hop_limit: ip.hop_limit(),
        src: ip.source_addr(),
        dst: ip.destination_addr(),
    };
    Ok((ip, content, trailer))
}

fn udp(bytes: &[u8]) -> Result<(Udp, Transport<'_>), DecodeError> {
    let udp = UdpHeaderSlice::from_slice(bytes).map_err(|_| truncated(Header::Udp, bytes, 8))?;
    if udp.destination_port() != UDP_PORT {
        return Err(DecodeError::UdpPort {
            found: udp.destination_port(),
        });
    }
    if usize::from(udp.length()) != bytes.len() {
        return Err(DecodeError::UdpLength {
            found: udp.length().into(),
            needed: bytes.len(),
        });
    }
    let transport = Transport::decode(&bytes[8..])?;
    let udp = Udp {
        src_port: udp.source_port(),
        dst_port: udp.destination_port(),
        checksum: udp.checksum(),
    };
    Ok((udp, transport))
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Header::Ethernet => "Ethernet",
            Header::VlanTag => "VLAN tag",
            Header::Ipv4 => "IPv4",
            Header::Ipv6 => "IPv6",
            Header::Grh => "GRH",
            Header::Udp => "UDP",
            Header::BthAndIcrc => "BTH and ICRC",
        })
    }
}
