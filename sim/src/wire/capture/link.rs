//! From a captured packet to a frame.

use super::Record;
use crate::wire::frame::{DecodeError, Frame, FrameView};
use std::fmt;

/// The link type of an interface: what its packets begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkType(pub u16);

/// Why a captured packet is no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Packets of this link type are not looked into.
    #[error("link type {link} is not supported: use Ethernet, raw IP or Linux cooked")]
    LinkType {
        /// The link type.
        link: LinkType,
    },
    /// The packet ends inside its cooked header.
    #[error("Linux cooked header: {there} bytes there, {needed} needed")]
    Cooked {
        /// Bytes there.
        there: usize,
        /// Bytes the header has.
        needed: usize,
    },
    /// The bytes are no frame.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl LinkType {
    /// BSD loopback.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// IPv4 or IPv6, as the first byte says.
    pub const RAW: LinkType = LinkType(101);
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// ERF records, among them those of InfiniBand.
    pub const ERF: LinkType = LinkType(197);
    /// IPv4.
    pub const IPV4: LinkType = LinkType(228);
    /// IPv6.
    pub const IPV6: LinkType = LinkType(229);
    /// InfiniBand.
    pub const INFINIBAND: LinkType = LinkType(247);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);
}

impl FrameError {
    /// True if the packet is not RoCE at all. See [`DecodeError::is_foreign`].
    pub fn is_foreign(&self) -> bool {
        matches!(self, FrameError::Decode(e) if e.is_foreign())
    }
}

impl Record {
    /// The frame in the captured bytes. Only Ethernet gives a link header.
    ///
    /// # Errors
    ///
    /// If the link type is not supported, or the bytes are no RoCE frame; a packet that was cut when
    /// it was captured is an error of its IP length.
    pub fn view(&self) -> Result<FrameView<'_>, FrameError> {
        let data = &self.data[..];
        Ok(match self.link {
            LinkType::ETHERNET => FrameView::decode(data)?,
            LinkType::RAW => FrameView::decode_ip(data)?,
            LinkType::IPV4 => FrameView::of_ethertype(0x0800, data)?,
            LinkType::IPV6 => FrameView::of_ethertype(0x86dd, data)?,
            LinkType::LINUX_SLL => cooked(data, 16, 14)?,
            LinkType::LINUX_SLL2 => cooked(data, 20, 0)?,
            link => return Err(FrameError::LinkType { link }),
        })
    }

    /// The frame in the captured bytes, with a copy of its payload. See [`Record::view`].
    ///
    /// # Errors
    ///
    /// As [`Record::view`].
    pub fn frame(&self) -> Result<Frame, FrameError> {
        self.view().map(|view| view.to_frame())
    }
}

/// What follows a cooked header of `len` bytes with the protocol, an EtherType, at `protocol`.
fn cooked(data: &[u8], len: usize, protocol: usize) -> Result<FrameView<'_>, FrameError> {
    let Some((header, rest)) = data.split_at_checked(len) else {
        return Err(FrameError::Cooked {
            there: data.len(),
            needed: len,
        });
    };
    let ether_type = u16::from_be_bytes([header[protocol], header[protocol + 1]]);
    Ok(FrameView::of_ethertype(ether_type, rest)?)
}

/// Name and number: `Ethernet (1)`.
impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            LinkType::NULL => "BSD loopback",
            LinkType::ETHERNET => "Ethernet",
            LinkType::RAW => "raw IP",
            LinkType::LINUX_SLL => "Linux cooked v1",
            LinkType::ERF => "ERF",
            LinkType::IPV4 => "raw IPv4",
            LinkType::IPV6 => "raw IPv6",
            LinkType::INFINIBAND => "InfiniBand",
            LinkType::LINUX_SLL2 => "Linux cooked v2",
            LinkType(n) => return write!(f, "{n}"),
        };
        write!(f, "{name} ({})", self.0)
    }
}
