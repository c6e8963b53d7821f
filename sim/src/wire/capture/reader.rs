//! Reading either format.

use super::error::{CaptureError, Field, Limit};
use super::pcap::Pcap;
use super::pcapng::Pcapng;
use super::{Interface, Record};
use std::io::{self, Read};

/// Longest captured packet, and longest block that is looked into. Longer ones are refused.
const MAX_PACKET: u64 = 16 << 20;

/// The records of a capture file, one by one.
///
/// Reads in small pieces: hand it a buffered reader. After an error it yields nothing more.
///
/// ```no_run
/// use softroce_sim::wire::capture::Reader;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = std::fs::File::open("ring.pcapng")?;
/// for record in Reader::new(std::io::BufReader::new(file))? {
///     let record = record?;
///     match record.view() {
///         Ok(frame) => println!("{} {:?}", frame.transport.bth.opcode(), frame.check()),
///         Err(e) => println!("{e}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    format: Format,
    interfaces: Vec<Interface>,
    done: bool,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl<R: Read> Reader<R> {
    /// Reads the start of a file and tells its format.
    ///
    /// # Errors
    ///
    /// If it is neither pcap nor pcapng, its header is broken, or reading fails.
    pub fn new(input: R) -> Result<Reader<R>, CaptureError> {
        let mut input = Input { input, offset: 0 };
        let magic: [u8; 4] = input.array("file header")?;
        let mut interfaces = Vec::new();
        let format = if magic == Pcapng::MAGIC {
            Format::Pcapng(Pcapng::open(&mut input)?)
        } else if let Some(pcap) = Pcap::open(magic, &mut input, &mut interfaces)? {
            Format::Pcap(pcap)
        } else {
            return Err(CaptureError::Format { magic });
        };
        Ok(Reader {
            input,
            format,
            interfaces,
            done: false,
        })
    }

    /// The interfaces seen so far. A pcap file has one; those of a pcapng file appear, over all its
    /// sections, before the first packet that names them; at most [`MAX_INTERFACES`](super::MAX_INTERFACES).
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.input, &self.interfaces),
            Format::Pcapng(ng) => ng.next(&mut self.input, &mut self.interfaces),
        };
        self.done = !matches!(record, Ok(Some(_)));
        record.transpose()
    }
}

/// The bytes of a file and where in it they are.
#[derive(Debug)]
pub(super) struct Input<R> {
    input: R,
    pub(super) offset: u64,
}

impl<R: Read> Input<R> {
    /// The next `N` bytes of a `block`.
    pub(super) fn array<const N: usize>(
        &mut self,
        block: &'static str,
    ) -> Result<[u8; N], CaptureError> {
        match self.array_or_end(block)? {
            Some(bytes) => Ok(bytes),
            None => Err(CaptureError::Truncated {
                offset: self.offset,
                block,
                there: 0,
                needed: N as u64,
            }),
        }
    }

    /// The next `N` bytes, or `None` if the file ends before them.
    pub(super) fn array_or_end<const N: usize>(
        &mut self,
        block: &'static str,
    ) -> Result<Option<[u8; N]>, CaptureError> {
        let mut bytes = [0; N];
        let mut there = 0;
        while there < N {
            match self.input.read(&mut bytes[there..]) {
                Ok(0) => break,
                Ok(n) => there += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io(e)),
            }
        }
        if there == 0 && N > 0 {
            return Ok(None);
        }
        self.complete(block, there as u64, N as u64)?;
        Ok(Some(bytes))
    }

    /// The next `len` bytes of a `block`. Memory grows with what is there, not with `len`.
    pub(super) fn bytes(&mut self, block: &'static str, len: u64) -> Result<Vec<u8>, CaptureError> {
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(len).read_to_end(&mut bytes);
        let there = read.map_err(|e| self.io(e))? as u64;
        self.complete(block, there, len)?;
        Ok(bytes)
    }

    /// Passes over `len` bytes of a `block`.
    pub(super) fn skip(&mut self, block: &'static str, len: u64) -> Result<(), CaptureError> {
        let copied = io::copy(&mut self.input.by_ref().take(len), &mut io::sink());
        let there = copied.map_err(|e| self.io(e))?;
        self.complete(block, there, len)
    }

    fn complete(
        &mut self,
        block: &'static str,
        there: u64,
        needed: u64,
    ) -> Result<(), CaptureError> {
        if there < needed {
            return Err(CaptureError::Truncated {
                offset: self.offset,
                block,
                there,
                needed,
            });
        }
        self.offset += needed;
        Ok(())
    }

    fn io(&self, source: io::Error) -> CaptureError {
        CaptureError::Io {
            offset: self.offset,
            source,
        }
    }
}

/// Refuses a length above what this reader takes.
pub(super) fn limit(
    offset: u64,
    block: &'static str,
    name: &'static str,
    value: u64,
) -> Result<(), CaptureError> {
    if value > MAX_PACKET {
        return Err(field(offset, block, name, value, Limit::Most(MAX_PACKET)));
    }
    Ok(())
}

pub(super) fn field(
    offset: u64,
    block: &'static str,
    name: &'static str,
    value: u64,
    limit: Limit,
) -> CaptureError {
    CaptureError::Field {
        offset,
        block,
        field: Field { name, value, limit },
    }
}

/// Byte order of a file or section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn u16(self, b: [u8; 2]) -> u16 {
        match self {
            Order::Little => u16::from_le_bytes(b),
            Order::Big => u16::from_be_bytes(b),
        }
    }

    pub(super) fn u32(self, b: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(b),
            Order::Big => u32::from_be_bytes(b),
        }
    }

    pub(super) fn u64(self, b: [u8; 8]) -> u64 {
        match self {
            Order::Little => u64::from_le_bytes(b),
            Order::Big => u64::from_be_bytes(b),
        }
    }

    /// The 32-bit words of `bytes`.
    pub(super) fn words<const N: usize, const M: usize>(self, bytes: [u8; M]) -> [u32; N] {
        const { assert!(M == 4 * N) };
        std::array::from_fn(|i| {
            self.u32([
                bytes[4 * i],
                bytes[4 * i + 1],
                bytes[4 * i + 2],
                bytes[4 * i + 3],
            ])
        })
    }
}
