//! From a captured record to a frame, also where the capture cut it.

use softroce_sim::wire::capture::{FrameError, LinkType, Record};
use softroce_sim::wire::frame::{ETHERTYPE_ROCE_V1, MAX_TAGS, UDP_PORT};
use softroce_sim::wire::{FrameView, Icrc};

/// More than the longest IP datagram with its link header has.
const LONGEST: usize = 65_535 + 128;

/// What a record holds.
pub(super) enum Content<'a> {
    /// A RoCE packet.
    Roce(FrameView<'a>, Cut),
    /// RoCE, but cut before the end of its BTH by the capture.
    Headless,
    /// RoCE by its port or EtherType, but broken.
    Broken(String),
    /// Not RoCE.
    Foreign,
    /// A link type that is not looked into.
    Link(String),
}

/// How much of a packet the capture kept. Zeros stand for the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// All of it.
    Whole,
    /// The headers; payload, pad and ICRC are not all there.
    Payload,
    /// The BTH; extended headers are not all there either.
    Headers,
}

/// Looks into a record; a cut one is filled up with zeros to the length it had on the wire.
pub(super) fn look(record: &mut Record) -> Content<'_> {
    let captured = record.data.len();
    let wire = (record.original_len as usize).min(LONGEST);
    let cut = wire > captured;
    if cut {
        record.data.resize(wire, 0);
    }
    let record = &*record;
    match record.view() {
        Ok(view) if cut => {
            let t = &view.transport;
            let payload = Icrc::LEN + t.pad.len() + t.payload.len();
            let there = captured + view.trailer.len();
            if there >= wire {
                Content::Roce(view, Cut::Whole)
            } else if there + payload >= wire {
                Content::Roce(view, Cut::Payload)
            } else if there + payload + usize::from(t.ext.len()) >= wire {
                Content::Roce(view, Cut::Headers)
            } else {
                Content::Headless
            }
        }
        Ok(view) => Content::Roce(view, Cut::Whole),
        Err(e) if e.is_foreign() => Content::Foreign,
        Err(e) => {
            let claims = claims_roce(record, captured);
            match e {
                FrameError::LinkType { .. } => Content::Link(e.to_string()),
                _ if !claims => Content::Foreign,
                _ if cut => Content::Headless,
                // Fragments of other protocols are common, those of RoCE are not.
                e => Content::Broken(e.to_string()),
            }
        }
    }
}

/// Where a Linux cooked capture of version 2 saw the packet: the index of the interface.
pub(super) fn cooked_interface(record: &Record) -> u32 {
    match (record.link, record.data.get(4..8)) {
        (LinkType::LINUX_SLL2, Some(&[a, b, c, d])) => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// True if the bytes name RoCE by EtherType or UDP port, though they are no frame. The decoder's error
/// may come before it has read the port.
fn claims_roce(record: &Record, captured: usize) -> bool {
    let data = &record.data[..captured];
    let u16_at = |at: usize| Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]));
    let untagged = |mut kind: Option<u16>, mut at: usize| {
        for _ in 0..MAX_TAGS {
            if !matches!(kind, Some(0x8100 | 0x88a8)) {
                break;
            }
            (kind, at) = (u16_at(at + 2), at + 4);
        }
        (kind, at)
    };
    let (ether_type, ip) = match record.link {
        LinkType::ETHERNET => untagged(u16_at(12), 14),
        LinkType::LINUX_SLL => untagged(u16_at(14), 16),
        LinkType::LINUX_SLL2 => untagged(u16_at(0), 20),
        LinkType::IPV4 => (Some(0x0800), 0),
        LinkType::IPV6 => (Some(0x86dd), 0),
        LinkType::RAW => match data.first().map(|b| b >> 4) {
            Some(6) => (Some(0x86dd), 0),
            _ => (Some(0x0800), 0),
        },
        _ => (None, 0),
    };
    let (protocol, udp) = match ether_type {
        Some(ETHERTYPE_ROCE_V1) => return true,
        Some(0x0800) => {
            let Some(&first) = data.get(ip) else {
                return false;
            };
            // Behind the first fragment there is no UDP header.
            if u16_at(ip + 6).is_some_and(|flags| flags & 0x1fff != 0) {
                return false;
            }
            (ip + 9, ip + usize::from(first & 0xf) * 4)
        }
        Some(0x86dd) => (ip + 6, ip + 40),
        _ => return false,
    };
    data.get(protocol) == Some(&17) && u16_at(udp + 2) == Some(UDP_PORT)
}
