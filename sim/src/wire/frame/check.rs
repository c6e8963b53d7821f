//! Whether what a frame says is right.

use super::super::icrc::{IcrcMismatch, Layer, identification};
use super::super::{Bth, Ext, Opcode};
use super::{Frame, FrameView, Network, Wire};
use etherparse::UdpHeader;

/// Something in a frame that is not as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Finding {
    /// The ICRC is wrong: a receiver drops the packet silently (CA17-24).
    #[error(transparent)]
    Icrc(#[from] IcrcMismatch),
    /// The IPv4 header checksum is wrong.
    #[error("IPv4: header checksum {found:#06x}, {computed:#06x} computed")]
    Ipv4Checksum {
        /// That of the bytes.
        computed: u16,
        /// That in the header.
        found: u16,
    },
    /// DF is clear (CA17-7).
    #[error("IPv4: DF is 0, must be 1")]
    Fragmentable,
    /// There is a UDP checksum and it is wrong.
    #[error("UDP: checksum {found:#06x}, {computed:#06x} computed")]
    UdpChecksum {
        /// That of the bytes.
        computed: u16,
        /// That in the header.
        found: u16,
    },
    /// A transport version that does not exist.
    #[error("BTH: transport version {found}, must be 0")]
    TransportVersion {
        /// The version.
        found: u8,
    },
    /// From BTH to pad the packet is not a multiple of four bytes.
    #[error("payload of {payload} bytes with pad count {pad}, {needed} needed")]
    PadCount {
        /// Length of the payload.
        payload: usize,
        /// The pad count.
        pad: u8,
        /// The pad count that makes a multiple of four.
        needed: u8,
    },
    /// A payload where the opcode has none.
    #[error("{opcode}: {len} bytes of payload, must be 0")]
    Payload {
        /// The opcode.
        opcode: Opcode,
        /// Length of the payload.
        len: usize,
    },
    /// A field of a CNP that must be zero is not (A17.9.3).
    #[error("CNP: {field} is {found}, must be 0")]
    Cnp {
        /// Which.
        field: &'static str,
        /// Its value.
        found: u32,
    },
}

impl FrameView<'_> {
    /// Compares the ICRC with that of the bytes.
    ///
    /// # Errors
    ///
    /// If they differ.
    #[inline]
    pub fn check_icrc(&self) -> Result<(), IcrcMismatch> {
        let computed = self.compute_icrc();
        let found = self.transport.icrc;
        if computed == found {
            Ok(())
        } else {
            Err(IcrcMismatch { computed, found })
        }
    }

    /// Compares the ICRC with that of the bytes under every IPv4 identification, and returns the
    /// identification that it fits: what a UDP socket, which hides it, can check.
    ///
    /// Everything else is taken as it stands, so DF must be what the sender set (decoding from a UDP
    /// payload assumes 1). A damaged packet passes with a probability of 2^-16. Over IPv6 and in
    /// RoCEv1 this is [`FrameView::check_icrc`], and the identification 0.
    ///
    /// # Errors
    ///
    /// If no identification fits. The ICRC computed is the one for the identification in the header.
    #[inline]
    pub fn check_icrc_any_identification(&self) -> Result<u16, IcrcMismatch> {
        let computed = self.compute_icrc();
        let found = self.transport.icrc;
        let base = match &self.network {
            Network::Ipv4(ip, _) => ip.identification,
            _ => 0,
        };
        let fits = if computed == found {
            Some(0)
        } else if self.network.layer() == Layer::Ipv4 {
            let len = Layer::Ipv4.len() + self.transport.wire_len() - 4;
            identification(computed, found, len)
        } else {
            None
        };
        match fits {
            Some(difference) => Ok(base ^ difference),
            None => Err(IcrcMismatch { computed, found }),
        }
    }

    /// True unless there is an IPv4 header whose checksum is not its own, which the ICRC leaves out.
    #[inline]
    pub fn header_checksum_matches(&self) -> bool {
        match &self.network {
            Network::Ipv4(ip, _) => {
                self.network.header_checksum(self.transport.wire_len()) == Some(ip.checksum)
            }
            Network::Ipv6(..) | Network::Grh(_) => true,
        }
    }

    /// Everything in the frame that is not as it should be, the ICRC first.
    pub fn check(&self) -> Vec<Finding> {
        let t = &self.transport;
        let mut findings = Vec::new();
        if let Err(mismatch) = self.check_icrc() {
            findings.push(mismatch.into());
        }
        self.check_network(&mut findings);
        if t.bth.tver() != 0 {
            findings.push(Finding::TransportVersion {
                found: t.bth.tver(),
            });
        }
        let len = t.payload.len();
        let needed = (len.wrapping_neg() & 3) as u8;
        if t.bth.pad_count() != needed {
            findings.push(Finding::PadCount {
                payload: len,
                pad: t.bth.pad_count(),
                needed,
            });
        }
        let opcode = t.bth.opcode();
        if opcode == Opcode::CNP {
            check_cnp(&t.bth, t.ext, t.payload, &mut findings);
        } else if len != 0 && Ext::models(opcode) && !opcode.has_payload() {
            findings.push(Finding::Payload { opcode, len });
        }
        findings
    }

    fn check_network(&self, findings: &mut Vec<Finding>) {
        if let (Network::Ipv4(ip, _), Wire::None | Wire::Datagram(_)) = (&self.network, self.wire) {
            let computed = self.network.header_checksum(self.transport.wire_len());
            if let Some(computed) = computed.filter(|&sum| sum != ip.checksum) {
                findings.push(Finding::Ipv4Checksum {
                    computed,
                    found: ip.checksum,
                });
            }
            if !ip.dont_fragment {
                findings.push(Finding::Fragmentable);
            }
        }
        let Some(found) = self
            .network
            .udp()
            .map(|udp| udp.checksum)
            .filter(|&c| c != 0)
        else {
            return;
        };
        let datagram = self.udp_datagram();
        let Ok((header, content)) = UdpHeader::from_slice(&datagram) else {
            return;
        };
        let computed = match &self.network {
            Network::Ipv4(ip, _) => {
                header.calc_checksum_ipv4_raw(ip.src.octets(), ip.dst.octets(), content)
            }
            Network::Ipv6(ip, _) | Network::Grh(ip) => {
                header.calc_checksum_ipv6_raw(ip.src.octets(), ip.dst.octets(), content)
            }
        };
        if let Ok(computed) = computed
            && computed != found
        {
            findings.push(Finding::UdpChecksum { computed, found });
        }
    }
}

fn check_cnp(bth: &Bth, ext: Ext, payload: &[u8], findings: &mut Vec<Finding>) {
    for (field, found) in [
        ("PSN", bth.psn().get()),
        ("SE", bth.solicited().into()),
        ("MigReq", bth.mig_req().into()),
        ("AckReq", bth.ack_req().into()),
    ] {
        if found != 0 {
            findings.push(Finding::Cnp { field, found });
        }
    }
    match ext {
        // The reserved bytes were not all zero, and were left in the payload.
        Ext::None => {
            let first = payload.iter().find(|&&b| b != 0);
            findings.push(Finding::Cnp {
                field: "a reserved byte",
                found: first.copied().unwrap_or(0).into(),
            });
        }
        _ if !payload.is_empty() => findings.push(Finding::Payload {
            opcode: bth.opcode(),
            len: payload.len(),
        }),
        _ => {}
    }
}

impl Frame {
    /// See [`FrameView::check_icrc`].
    ///
    /// # Errors
    ///
    /// If the ICRC is not that of the bytes.
    pub fn check_icrc(&self) -> Result<(), IcrcMismatch> {
        self.view().check_icrc()
    }

    /// See [`FrameView::check_icrc_any_identification`].
    ///
    /// # Errors
    ///
    /// If the ICRC is not that of the bytes under any identification.
    pub fn check_icrc_any_identification(&self) -> Result<u16, IcrcMismatch> {
        self.view().check_icrc_any_identification()
    }

    /// See [`FrameView::check`].
    pub fn check(&self) -> Vec<Finding> {
        self.view().check()
    }
}
