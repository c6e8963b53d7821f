//! Writing pcapng.

use super::{LinkType, Stamp};
use std::io::{self, Write};

/// Writes a pcapng file of one section with nanosecond stamps.
///
/// The bytes depend on the calls alone: no wall time, no host or user is put in. Writes in small
/// pieces: hand it a buffered writer.
///
/// ```
/// use softroce_sim::time::Time;
/// use softroce_sim::wire::capture::{LinkType, Writer};
/// # fn main() -> std::io::Result<()> {
/// let mut file = Writer::new(Vec::new())?;
/// let host = file.interface("host3", "host 3, port 1", LinkType::ETHERNET)?;
/// file.packet(host, Time::from_ps(1_500), &[0; 60], 60, &["second copy of PSN 5"])?;
/// let bytes = file.into_inner()?;
/// # assert!(bytes.len() > 60);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    interfaces: u32,
    block: Vec<u8>,
}

/// An interface of a [`Writer`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InterfaceId(u32);

impl InterfaceId {
    /// Position in the file: 0, 1, 2, ... in the order of [`Writer::interface`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Longest text of an option, whose length has 16 bits.
const MAX_TEXT: usize = 65_532;

impl<W: Write> Writer<W> {
    /// Writes the section header.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn new(output: W) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            output,
            interfaces: 0,
            block: Vec::new(),
        };
        writer.u32(0x1a2b_3c4d);
        writer.u16(1); // version 1.0
        writer.u16(0);
        writer.block.extend_from_slice(&[0xff; 8]); // length of the section: not known
        writer.option(4, b"softroce"); // shb_userappl
        writer.option(0, &[]);
        writer.finish_block(0x0a0d_0d0a)?;
        Ok(writer)
    }

    /// Describes an interface; its packets may follow. An empty `description` is left out.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn interface(
        &mut self,
        name: &str,
        description: &str,
        link: LinkType,
    ) -> io::Result<InterfaceId> {
        self.u16(link.0);
        self.u16(0);
        self.u32(0); // no limit to what is kept of a packet
        self.text(2, name);
        if !description.is_empty() {
            self.text(3, description);
        }
        self.option(9, &[9]); // if_tsresol: 10^-9 s
        self.option(0, &[]);
        self.finish_block(1)?;
        let id = InterfaceId(self.interfaces);
        self.interfaces += 1;
        Ok(id)
    }

    /// Writes a packet of `original_len` bytes, of which `data` is what is kept. The stamp is rounded
    /// down to a nanosecond; one before the epoch becomes the epoch. A comment longer than an option
    /// can be is cut.
    ///
    /// # Errors
    ///
    /// If writing fails, or the file has no interface of this number.
    pub fn packet(
        &mut self,
        interface: InterfaceId,
        time: impl Into<Stamp>,
        data: &[u8],
        original_len: u32,
        comments: &[&str],
    ) -> io::Result<()> {
        if interface.0 >= self.interfaces {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "packet of interface {}, but the file has {} interfaces",
                    interface.0, self.interfaces
                ),
            ));
        }
        let captured = u32::try_from(data.len()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("packet of {} bytes above the limit of 2^32 - 1", data.len()),
            )
        })?;
        let ns = time.into().as_ns();
        self.u32(interface.0);
        self.u32((ns >> 32) as u32);
        self.u32(ns as u32);
        self.u32(captured);
        self.u32(original_len);
        self.padded(data);
        for comment in comments {
            self.text(1, comment);
        }
        if !comments.is_empty() {
            self.option(0, &[]);
        }
        self.finish_block(6)
    }

    /// Flushes, and gives back what was written to.
    ///
    /// # Errors
    ///
    /// If flushing fails.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }

    /// Flushes.
    ///
    /// # Errors
    ///
    /// If flushing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn u16(&mut self, n: u16) {
        self.block.extend_from_slice(&n.to_le_bytes());
    }

    fn u32(&mut self, n: u32) {
        self.block.extend_from_slice(&n.to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, code: u16, text: &str) {
        let mut cut = text.len().min(MAX_TEXT);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.option(code, &text.as_bytes()[..cut]);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    /// Writes the block whose content was put together, between its type and its lengths.
    fn finish_block(&mut self, kind: u32) -> io::Result<()> {
        let len = (self.block.len() as u32 + 12).to_le_bytes();
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&len)?;
        self.output.write_all(&self.block)?;
        self.output.write_all(&len)?;
        self.block.clear();
        Ok(())
    }
}
