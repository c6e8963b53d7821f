//! The classic pcap format: a header of 24 bytes, then packets behind headers of 16 bytes.

use super::error::{CaptureError, Limit};
use super::reader::{Input, Order, field, limit};
use super::{Interface, LinkType, Record, Resolution};
use std::io::Read;

/// A pcap file whose header has been read.
#[derive(Debug)]
pub(super) struct Pcap {
    order: Order,
    /// Fractions in a second.
    fractions: u32,
}

const HEADER: &str = "pcap file header";
const PACKET: &str = "pcap packet header";
const DATA: &str = "pcap packet";

impl Pcap {
    /// Reads the file header after its `magic`; `None` if that is not of a pcap file.
    pub(super) fn open<R: Read>(
        magic: [u8; 4],
        input: &mut Input<R>,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Option<Pcap>, CaptureError> {
        let (order, fractions) = match u32::from_be_bytes(magic) {
            0xa1b2_c3d4 => (Order::Big, 1_000_000),
            0xd4c3_b2a1 => (Order::Little, 1_000_000),
            0xa1b2_3c4d => (Order::Big, 1_000_000_000),
            0x4d3c_b2a1 => (Order::Little, 1_000_000_000),
            _ => return Ok(None),
        };
        let header: [u8; 20] = input.array(HEADER)?;
        let major = order.u16([header[0], header[1]]);
        if major != 2 {
            let (name, value) = ("major version", major.into());
            return Err(field(0, HEADER, name, value, Limit::Exactly(2)));
        }
        let [_, _, _, snap_len, link] = order.words(header);
        interfaces.push(Interface {
            // The upper half holds the length of an FCS.
            link: LinkType(link as u16),
            snap_len,
            name: None,
            description: None,
            resolution: Resolution::Decimal(if fractions == 1_000_000 { 6 } else { 9 }),
            offset: 0,
        });
        Ok(Some(Pcap { order, fractions }))
    }

    pub(super) fn next<R: Read>(
        &mut self,
        input: &mut Input<R>,
        interfaces: &[Interface],
    ) -> Result<Option<Record>, CaptureError> {
        let at = input.offset;
        let Some(header) = input.array_or_end::<16>(PACKET)? else {
            return Ok(None);
        };
        let Some(interface) = interfaces.first() else {
            return Ok(None);
        };
        let [seconds, fraction, captured, original_len] = self.order.words(header);
        limit(at, PACKET, "captured length", captured.into())?;
        // Some writers let the fraction run over a second, so it is only added.
        let ticks = u64::from(seconds) * u64::from(self.fractions) + u64::from(fraction);
        Ok(Some(Record {
            interface: 0,
            link: interface.link,
            time: Some(interface.resolution.stamp(ticks, 0)),
            original_len,
            data: input.bytes(DATA, captured.into())?,
            comments: Vec::new(),
        }))
    }
}
