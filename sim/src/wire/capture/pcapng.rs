//! Reading pcapng: sections of blocks, each with its type and its length on both sides.

use super::error::{CaptureError, Limit};
use super::reader::{Input, Order, field, limit};
use super::{Interface, LinkType, Record, Resolution};
use std::io::Read;

const SECTION: &str = "section header block";
const INTERFACE: &str = "interface description block";
const ENHANCED: &str = "enhanced packet block";
const SIMPLE: &str = "simple packet block";
const OBSOLETE: &str = "packet block";
const OTHER: &str = "block";

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

/// A pcapng file in the middle of a section.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: Order,
    /// Interfaces of earlier sections.
    base: usize,
    /// Bytes of the names and descriptions of all interfaces.
    text: usize,
}

/// What a block holds between its two lengths.
struct Body {
    at: u64,
    name: &'static str,
    order: Order,
    bytes: Vec<u8>,
}

/// The most interfaces of a pcapng file, over all its sections: they are kept to its end.
pub const MAX_INTERFACES: usize = 1 << 16;
/// The most bytes that their names and descriptions have together.
const MAX_NAMES: u64 = 1 << 24;

fn most(at: u64, name: &'static str, value: u64, limit: u64) -> Result<(), CaptureError> {
    match value <= limit {
        true => Ok(()),
        false => Err(field(at, INTERFACE, name, value, Limit::Most(limit))),
    }
}

impl Pcapng {
    /// The type of a section header block, the same in both byte orders.
    pub(super) const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

    /// Reads the first section header after its type.
    pub(super) fn open<R: Read>(input: &mut Input<R>) -> Result<Pcapng, CaptureError> {
        Ok(Pcapng {
            order: section(input)?,
            base: 0,
            text: 0,
        })
    }

    /// The next packet; other blocks on the way are taken in or passed over.
    pub(super) fn next<R: Read>(
        &mut self,
        input: &mut Input<R>,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Option<Record>, CaptureError> {
        loop {
            let at = input.offset;
            let Some(kind) = input.array_or_end::<4>(OTHER)? else {
                return Ok(None);
            };
            if kind == Pcapng::MAGIC {
                self.order = section(input)?;
                self.base = interfaces.len();
                continue;
            }
            let name = match self.order.u32(kind) {
                1 => INTERFACE,
                2 => OBSOLETE,
                3 => SIMPLE,
                6 => ENHANCED,
                _ => {
                    let len = length(input, self.order, at, OTHER)?;
                    input.skip(OTHER, len)?;
                    closing(input, self.order, at, OTHER, len)?;
                    continue;
                }
            };
            let len = length(input, self.order, at, name)?;
            limit(at, name, "block length", len + 12)?;
            let body = Body {
                at,
                name,
                order: self.order,
                bytes: input.bytes(name, len)?,
            };
            closing(input, self.order, at, name, len)?;
            match name {
                INTERFACE => {
                    let interface = interface(&body)?;
                    let text = [&interface.name, &interface.description];
                    self.text += text.into_iter().flatten().map(String::len).sum::<usize>();
                    let (count, text) = (interfaces.len() as u64 + 1, self.text as u64);
                    most(at, "number of interfaces", count, MAX_INTERFACES as u64)?;
                    most(at, "bytes of all names of interfaces", text, MAX_NAMES)?;
                    interfaces.push(interface);
                }
                OBSOLETE => return obsolete(&body, self.section(interfaces), self.base).map(Some),
                SIMPLE => return simple(&body, self.section(interfaces), self.base).map(Some),
                _ => return enhanced(&body, self.section(interfaces), self.base).map(Some),
            }
        }
    }

    fn section<'a>(&self, interfaces: &'a [Interface]) -> &'a [Interface] {
        interfaces.get(self.base..).unwrap_or_default()
    }
}

/// Reads a section header block after its type, and returns the section's byte order.
fn section<R: Read>(input: &mut Input<R>) -> Result<Order, CaptureError> {
    let at = input.offset - 4;
    // The length comes before the magic that says in which order it is written.
    let raw: [u8; 4] = input.array(SECTION)?;
    let magic: [u8; 4] = input.array(SECTION)?;
    let order = if u32::from_be_bytes(magic) == BYTE_ORDER_MAGIC {
        Order::Big
    } else if u32::from_le_bytes(magic) == BYTE_ORDER_MAGIC {
        Order::Little
    } else {
        let value = u32::from_be_bytes(magic).into();
        let limit = Limit::Exactly(BYTE_ORDER_MAGIC.into());
        return Err(field(at, SECTION, "byte-order magic", value, limit));
    };
    let len = content(order.u32(raw), at, SECTION)?;
    let [major, _]: [u16; 2] = {
        let b: [u8; 4] = input.array(SECTION)?;
        [order.u16([b[0], b[1]]), order.u16([b[2], b[3]])]
    };
    if major != 1 {
        let (name, value) = ("major version", major.into());
        return Err(field(at, SECTION, name, value, Limit::Exactly(1)));
    }
    // Magic and version, which have been read; the section's length and options follow.
    let Some(rest) = len.checked_sub(8).filter(|&rest| rest >= 8) else {
        let (name, value) = ("block length", len + 12);
        return Err(field(at, SECTION, name, value, Limit::Least(28)));
    };
    input.skip(SECTION, rest)?;
    closing(input, order, at, SECTION, len)?;
    Ok(order)
}

/// The length of a block's content, from the length before it.
fn length<R: Read>(
    input: &mut Input<R>,
    order: Order,
    at: u64,
    name: &'static str,
) -> Result<u64, CaptureError> {
    let raw: [u8; 4] = input.array(name)?;
    content(order.u32(raw), at, name)
}

fn content(total: u32, at: u64, name: &'static str) -> Result<u64, CaptureError> {
    let value = total.into();
    if total < 12 {
        return Err(field(at, name, "block length", value, Limit::Least(12)));
    }
    if !total.is_multiple_of(4) {
        let limit = Limit::MultipleOf(4);
        return Err(field(at, name, "block length", value, limit));
    }
    Ok(value - 12)
}

/// Checks the length after a block.
fn closing<R: Read>(
    input: &mut Input<R>,
    order: Order,
    at: u64,
    name: &'static str,
    content: u64,
) -> Result<(), CaptureError> {
    let raw: [u8; 4] = input.array(name)?;
    let value = order.u32(raw).into();
    if value != content + 12 {
        let limit = Limit::Exactly(content + 12);
        return Err(field(at, name, "closing block length", value, limit));
    }
    Ok(())
}

fn interface(body: &Body) -> Result<Interface, CaptureError> {
    let mut interface = Interface {
        link: LinkType(body.u16(0)?),
        snap_len: body.u32(4)?,
        name: None,
        description: None,
        resolution: Resolution::Decimal(6),
        offset: 0,
    };
    body.options(8, |code, value| match (code, value) {
        (IF_NAME, text) => interface.name = Some(string(text)),
        (IF_DESCRIPTION, text) => interface.description = Some(string(text)),
        (IF_TSRESOL, &[byte]) => interface.resolution = Resolution::from_option(byte),
        (IF_TSOFFSET, &[a, b, c, d, e, f, g, h]) => {
            interface.offset = body.order.u64([a, b, c, d, e, f, g, h]) as i64;
        }
        _ => {}
    })?;
    Ok(interface)
}

fn enhanced(body: &Body, interfaces: &[Interface], base: usize) -> Result<Record, CaptureError> {
    let id = body.u32(0)?;
    packet(body, id, interfaces, base)
}

fn obsolete(body: &Body, interfaces: &[Interface], base: usize) -> Result<Record, CaptureError> {
    // Interface and drop count have 16 bits each; the rest is as in an enhanced packet block.
    let id = body.u16(0)?;
    packet(body, id.into(), interfaces, base)
}

fn packet(
    body: &Body,
    id: u32,
    interfaces: &[Interface],
    base: usize,
) -> Result<Record, CaptureError> {
    let interface = body.interface(id, interfaces)?;
    let ticks = u64::from(body.u32(4)?) << 32 | u64::from(body.u32(8)?);
    let captured = body.u32(12)?;
    let original_len = body.u32(16)?;
    let data = body.data(20, captured)?;
    let mut comments = Vec::new();
    body.options(20 + data.len().next_multiple_of(4), |code, value| {
        if code == OPT_COMMENT {
            comments.push(string(value));
        }
    })?;
    Ok(Record {
        interface: base + id as usize,
        link: interface.link,
        time: Some(interface.resolution.stamp(ticks, interface.offset)),
        original_len,
        data: data.to_vec(),
        comments,
    })
}

fn simple(body: &Body, interfaces: &[Interface], base: usize) -> Result<Record, CaptureError> {
    let interface = body.interface(0, interfaces)?;
    let original_len = body.u32(0)?;
    // The captured length is not written: the packet was cut at the interface's limit, if at all.
    let captured = match interface.snap_len {
        0 => original_len,
        limit => original_len.min(limit),
    };
    Ok(Record {
        interface: base,
        link: interface.link,
        time: None,
        original_len,
        data: body.data(4, captured)?.to_vec(),
        comments: Vec::new(),
    })
}

fn string(bytes: &[u8]) -> String {
    // Some writers count the terminator that C strings have.
    let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

impl Body {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], CaptureError> {
        self.bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .ok_or_else(|| {
                let (value, least) = (self.bytes.len() as u64 + 12, (at + N) as u64 + 12);
                field(
                    self.at,
                    self.name,
                    "block length",
                    value,
                    Limit::Least(least),
                )
            })
    }

    fn u16(&self, at: usize) -> Result<u16, CaptureError> {
        self.array(at).map(|b| self.order.u16(b))
    }

    fn u32(&self, at: usize) -> Result<u32, CaptureError> {
        self.array(at).map(|b| self.order.u32(b))
    }

    fn interface<'a>(
        &self,
        id: u32,
        interfaces: &'a [Interface],
    ) -> Result<&'a Interface, CaptureError> {
        match (interfaces.get(id as usize), interfaces.len() as u64) {
            (Some(interface), _) => Ok(interface),
            (None, 0) => {
                let (name, limit) = ("interfaces described before it", Limit::Least(1));
                Err(field(self.at, self.name, name, 0, limit))
            }
            (None, n) => {
                let (value, limit) = (id.into(), Limit::Most(n - 1));
                Err(field(self.at, self.name, "interface", value, limit))
            }
        }
    }

    fn data(&self, at: usize, captured: u32) -> Result<&[u8], CaptureError> {
        let there = self.bytes.get(at..).unwrap_or_default();
        there.get(..captured as usize).ok_or_else(|| {
            let (value, limit) = (captured.into(), Limit::Most(there.len() as u64));
            field(self.at, self.name, "captured length", value, limit)
        })
    }

    /// Calls `each` with the options from `at` on, up to the end mark or the end of the block.
    fn options(&self, at: usize, mut each: impl FnMut(u16, &[u8])) -> Result<(), CaptureError> {
        let mut rest = self.bytes.get(at..).unwrap_or_default();
        while let Some((head, tail)) = rest.split_first_chunk::<4>() {
            let code = self.order.u16([head[0], head[1]]);
            let len = self.order.u16([head[2], head[3]]);
            if code == OPT_END {
                return Ok(());
            }
            let value = tail.get(..len.into()).ok_or_else(|| {
                let (value, limit) = (len.into(), Limit::Most(tail.len() as u64));
                field(self.at, self.name, "option length", value, limit)
            })?;
            each(code, value);
            rest = tail
                .get(usize::from(len).next_multiple_of(4)..)
                .unwrap_or_default();
        }
        Ok(())
    }
}
