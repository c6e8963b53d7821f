//! Priority-based flow control frames (IEEE 802.1Qbb): a port asks its neighbour to pause some of
//! the eight priorities.

use super::MacAddr;
use etherparse::{EtherType, Ethernet2Header, Ethernet2HeaderSlice};

/// The address that MAC control frames go to; no bridge forwards them.
pub const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
/// EtherType of MAC control.
pub const ETHERTYPE: u16 = 0x8808;
/// Opcode of PFC among MAC control frames; that of the old PAUSE, which stops all, is 0x0001.
pub const OPCODE: u16 = 0x0101;
/// Length of the encoded frame: the shortest Ethernet has, 64 bytes with the FCS that is not here.
pub const LEN: usize = 60;

/// Ethernet header, opcode, vector and eight times.
const FIELDS: usize = 14 + 2 + 2 + 16;

/// A PFC frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pfc {
    /// Address of the port that sends it.
    pub src: MacAddr,
    /// Class-enable vector: bit n says that `quanta[n]` counts.
    pub enabled: u8,
    /// How long each priority is to pause, in the time of 512 bits each; 0 ends a pause.
    pub quanta: [u16; 8],
}

/// Why bytes are no PFC frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PfcError {
    /// The bytes end before the last of the eight times.
    #[error("PFC frame: {there} bytes there, {needed} needed")]
    Truncated {
        /// Bytes there.
        there: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Not MAC control.
    #[error("PFC frame: EtherType {found:#06x}, 0x8808 needed")]
    EtherType {
        /// The EtherType there.
        found: u16,
    },
    /// Not to the address of MAC control.
    #[error("PFC frame: destination {found}, 01:80:c2:00:00:01 needed")]
    Destination {
        /// The destination there.
        found: MacAddr,
    },
    /// Another MAC control frame.
    #[error("PFC frame: MAC control opcode {found:#06x}, 0x0101 needed")]
    Opcode {
        /// The opcode there.
        found: u16,
    },
}

impl Pfc {
    /// A frame that sets the pause of each priority in `enabled` to `quanta`.
    pub fn new(src: MacAddr, enabled: u8, quanta: u16) -> Pfc {
        let mut all = [0; 8];
        for (priority, q) in all.iter_mut().enumerate() {
            if enabled >> priority & 1 != 0 {
                *q = quanta;
            }
        }
        Pfc {
            src,
            enabled,
            quanta: all,
        }
    }

    /// The pause that the frame sets for `priority`, if it says something of it.
    pub fn pause(&self, priority: u8) -> Option<u16> {
        let enabled = self.enabled.checked_shr(priority.into())? & 1 != 0;
        enabled.then(|| self.quanta[usize::from(priority)])
    }

    /// The frame without FCS, padded to 60 bytes.
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let header = Ethernet2Header {
            source: self.src.0,
            destination: DESTINATION.0,
            ether_type: EtherType(ETHERTYPE),
        };
        bytes[..14].copy_from_slice(&header.to_bytes());
        bytes[14..16].copy_from_slice(&OPCODE.to_be_bytes());
        bytes[16..18].copy_from_slice(&u16::from(self.enabled).to_be_bytes());
        for (to, quanta) in bytes[18..FIELDS].chunks_exact_mut(2).zip(self.quanta) {
            to.copy_from_slice(&quanta.to_be_bytes());
        }
        bytes
    }

    /// Reads a frame; what follows the eight times is not looked at, and the reserved upper byte of
    /// the vector neither.
    ///
    /// # Errors
    ///
    /// If the bytes are another frame or too few.
    pub fn decode(bytes: &[u8]) -> Result<Pfc, PfcError> {
        let truncated = PfcError::Truncated {
            there: bytes.len(),
            needed: FIELDS,
        };
        let header = Ethernet2HeaderSlice::from_slice(bytes).map_err(|_| truncated)?;
        if header.ether_type().0 != ETHERTYPE {
            return Err(PfcError::EtherType {
                found: header.ether_type().0,
            });
        }
        if header.destination() != DESTINATION.0 {
            return Err(PfcError::Destination {
                found: MacAddr(header.destination()),
            });
        }
        let fields = bytes.get(14..FIELDS).ok_or(truncated)?;
        let word = |i: usize| u16::from_be_bytes([fields[2 * i], fields[2 * i + 1]]);
        if word(0) != OPCODE {
            return Err(PfcError::Opcode { found: word(0) });
        }
        Ok(Pfc {
            src: MacAddr(header.source()),
            enabled: word(1) as u8,
            quanta: std::array::from_fn(|priority| word(2 + priority)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_those_of_the_standard() {
        let pfc = Pfc::new(MacAddr([2, 0, 0, 0, 0, 9]), 1 << 3, 0xffff);
        let bytes = pfc.encode();
        let mut expected = vec![
            0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0x08, 0x01, 0x01, 0, 0x08,
        ];
        expected.extend([0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.resize(60, 0);
        assert_eq!(bytes[..], expected);
        assert_eq!(pfc.pause(3), Some(0xffff));
        assert_eq!(pfc.pause(4), None);
        assert_eq!(pfc.pause(8), None);
        assert_eq!(Pfc::new(pfc.src, 1 << 3, 0).pause(3), Some(0));
    }

    #[test]
    fn other_frames_are_refused_by_field() {
        let good = Pfc::new(MacAddr::default(), 0xff, 1).encode();
        let mut pause = good;
        pause[15] = 1;
        pause[14] = 0;
        assert_eq!(
            Pfc::decode(&pause).unwrap_err().to_string(),
            "PFC frame: MAC control opcode 0x0001, 0x0101 needed"
        );
        let mut ip = good;
        ip[12..14].copy_from_slice(&[8, 0]);
        assert_eq!(Pfc::decode(&ip), Err(PfcError::EtherType { found: 0x0800 }));
        let mut elsewhere = good;
        elsewhere[5] = 2;
        assert!(matches!(
            Pfc::decode(&elsewhere),
            Err(PfcError::Destination { .. })
        ));
        for n in 0..FIELDS {
            assert_eq!(
                Pfc::decode(&good[..n]),
                Err(PfcError::Truncated {
                    there: n,
                    needed: 34
                })
            );
        }
    }

    proptest! {
        #[test]
        fn bytes_survive(src: [u8; 6], enabled: u8, quanta: [u16; 8]) {
            let pfc = Pfc { src: MacAddr(src), enabled, quanta };
            prop_assert_eq!(Pfc::decode(&pfc.encode()), Ok(pfc));
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Pfc::decode(&bytes);
        }
    }
}
