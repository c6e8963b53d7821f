//! The extended transport headers of a packet: which follow an opcode, and their bytes.

use super::{Aeth, AtomicAckEth, AtomicEth, Deth, Ext, Immediate, Opcode, RemoteKey, Reth};
use super::{Operation, Service};

/// Extended headers, or the payload of a CNP, that end before they should.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{opcode}: {there} bytes follow the BTH, its extended headers need {needed}")]
pub struct ShortExt {
    /// The opcode that asks for them.
    pub opcode: Opcode,
    /// Bytes after the BTH, the ICRC not counted.
    pub there: usize,
    /// Bytes the extended headers of this opcode have.
    pub needed: usize,
}

impl Ext {
    /// Length of the longest, that of an atomic request.
    pub const MAX_LEN: usize = AtomicEth::LEN;

    /// True if [`Ext`] can hold the extended headers of `opcode`: RC without FLUSH, UC, UD and the
    /// CNP. Those of XRC, RD, FLUSH and unknown opcodes are left at the start of the payload.
    #[inline]
    pub const fn models(opcode: Opcode) -> bool {
        match opcode.service() {
            Service::Rc | Service::Uc | Service::Ud | Service::Cnp => {
                !matches!(opcode.operation(), Operation::Flush | Operation::Unknown)
            }
            Service::Rd | Service::Xrc | Service::Unknown => false,
        }
    }

    /// Reads the extended headers that follow a BTH with `opcode`, and returns them with the bytes
    /// after them.
    ///
    /// Opcodes that are not [modelled](Ext::models) give [`Ext::None`] and all the bytes. So does a
    /// CNP whose 16 reserved bytes are not zero, so that no byte is lost.
    ///
    /// # Errors
    ///
    /// If there are fewer bytes than the headers have.
    #[inline]
    pub fn decode(opcode: Opcode, bytes: &[u8]) -> Result<(Ext, &[u8]), ShortExt> {
        if !Ext::models(opcode) {
            return Ok((Ext::None, bytes));
        }
        let mut cursor = Cursor {
            opcode,
            all: bytes.len(),
            rest: bytes,
            needed: 0,
        };
        let c = &mut cursor;
        let ext = match opcode.operation() {
            Operation::Cnp => {
                if *c.take()? != [0u8; Ext::CNP_LEN] {
                    return Ok((Ext::None, bytes));
                }
                Ext::Cnp
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                Ext::Atomic(AtomicEth::from_bytes(c.take()?))
            }
            Operation::AtomicAcknowledge => {
                // Both lengths are asked for at once, so that an error names their sum.
                let b: &[u8; Aeth::LEN + AtomicAckEth::LEN] = c.take()?;
                let [a, d, e, g, value @ ..] = *b;
                Ext::AtomicAck(
                    Aeth::from_bytes(&[a, d, e, g]),
                    AtomicAckEth(u64::from_be_bytes(value)),
                )
            }
            _ if matches!(opcode.service(), Service::Ud) => {
                let needed = if opcode.has_immediate() { 12 } else { 8 };
                c.demand(needed)?;
                let deth = Deth::from_bytes(c.take()?);
                if opcode.has_immediate() {
                    Ext::DethImmediate(deth, Immediate(*c.take()?))
                } else {
                    Ext::Deth(deth)
                }
            }
            _ if opcode.has_reth() => {
                let needed = if opcode.has_immediate() { 20 } else { 16 };
                c.demand(needed)?;
                let reth = Reth::from_bytes(c.take()?);
                if opcode.has_immediate() {
                    Ext::RethImmediate(reth, Immediate(*c.take()?))
                } else {
                    Ext::Reth(reth)
                }
            }
            _ if opcode.has_aeth() => Ext::Aeth(Aeth::from_bytes(c.take()?)),
            _ if opcode.has_immediate() => Ext::Immediate(Immediate(*c.take()?)),
            _ if opcode.has_invalidate() => Ext::Ieth(RemoteKey(u32::from_be_bytes(*c.take()?))),
            _ => Ext::None,
        };
        Ok((ext, cursor.rest))
    }

    /// Writes the headers to the start of `out`, and returns how many bytes they have.
    #[inline]
    pub fn encode(&self, out: &mut [u8; Ext::MAX_LEN]) -> usize {
        match self {
            Ext::None => 0,
            Ext::Aeth(a) => put(out, 0, &a.to_bytes()),
            Ext::Reth(r) => put(out, 0, &r.to_bytes()),
            Ext::RethImmediate(r, i) => {
                let at = put(out, 0, &r.to_bytes());
                put(out, at, &i.0)
            }
            Ext::Immediate(i) => put(out, 0, &i.0),
            Ext::Ieth(key) => put(out, 0, &key.0.to_be_bytes()),
            Ext::Atomic(a) => put(out, 0, &a.to_bytes()),
            Ext::AtomicAck(a, value) => {
                let at = put(out, 0, &a.to_bytes());
                put(out, at, &value.0.to_be_bytes())
            }
            Ext::Deth(d) => put(out, 0, &d.to_bytes()),
            Ext::DethImmediate(d, i) => {
                let at = put(out, 0, &d.to_bytes());
                put(out, at, &i.0)
            }
            Ext::Cnp => put(out, 0, &[0; Ext::CNP_LEN]),
        }
    }
}

#[inline]
fn put<const N: usize>(out: &mut [u8; Ext::MAX_LEN], at: usize, bytes: &[u8; N]) -> usize {
    out[at..at + N].copy_from_slice(bytes);
    at + N
}

struct Cursor<'a> {
    opcode: Opcode,
    all: usize,
    rest: &'a [u8],
    needed: usize,
}

impl<'a> Cursor<'a> {
    /// Fails unless `n` more bytes are there.
    fn demand(&self, n: usize) -> Result<(), ShortExt> {
        if self.rest.len() < n {
            return Err(ShortExt {
                opcode: self.opcode,
                there: self.all,
                needed: self.needed + n,
            });
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], ShortExt> {
        self.demand(N)?;
        self.needed += N;
        match self.rest.split_first_chunk() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(ShortExt {
                opcode: self.opcode,
                there: self.all,
                needed: self.needed,
            }),
        }
    }
}
