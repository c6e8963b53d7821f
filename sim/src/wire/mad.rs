//! Management datagrams: what general services say to each other through queue pair 1.
//!
//! A MAD is the payload of one UD SEND, 256 bytes: this header, and a body that the management class and the
//! attribute give a meaning to. Queue pair 1 has a Q_Key that everybody knows (C9-49).

/// The Q_Key of queue pair 1, at every port (C9-49).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// The header that all MADs have in common, 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MadHeader {
    /// Version of the header, 1.
    pub base_version: u8,
    /// Management class: [`MadHeader::COMMUNICATION`].
    pub class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// What is asked for: [`MadHeader::SEND`].
    pub method: u8,
    /// Status of a response.
    pub status: u16,
    /// For the class to use.
    pub class_specific: u16,
    /// Transaction, which an answer repeats.
    pub tid: u64,
    /// What the body is.
    pub attribute: u16,
    /// Two bytes that are not used.
    pub reserved: u16,
    /// More about the attribute.
    pub modifier: u32,
}

impl MadHeader {
    /// Bytes of the header.
    pub const LEN: usize = 24;
    /// Communication management, the class of the messages in [`cm`](super::cm).
    pub const COMMUNICATION: u8 = 0x07;
    /// The one version of communication management.
    pub const COMMUNICATION_VERSION: u8 = 2;
    /// Method Send: no answer by the class itself.
    pub const SEND: u8 = 0x03;

    /// The header of a communication management message.
    pub const fn communication(tid: u64, attribute: u16) -> MadHeader {
        MadHeader {
            base_version: 1,
            class: MadHeader::COMMUNICATION,
            class_version: MadHeader::COMMUNICATION_VERSION,
            method: MadHeader::SEND,
            status: 0,
            class_specific: 0,
            tid,
            attribute,
            reserved: 0,
            modifier: 0,
        }
    }

    /// Reads it.
    pub const fn from_bytes(b: &[u8; MadHeader::LEN]) -> MadHeader {
        MadHeader {
            base_version: b[0],
            class: b[1],
            class_version: b[2],
            method: b[3],
            status: u16::from_be_bytes([b[4], b[5]]),
            class_specific: u16::from_be_bytes([b[6], b[7]]),
            tid: u64::from_be_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
            attribute: u16::from_be_bytes([b[16], b[17]]),
            reserved: u16::from_be_bytes([b[18], b[19]]),
            modifier: u32::from_be_bytes([b[20], b[21], b[22], b[23]]),
        }
    }

    /// Writes it.
    pub fn to_bytes(self) -> [u8; MadHeader::LEN] {
        let mut b = [0; MadHeader::LEN];
        b[..4].copy_from_slice(&[
            self.base_version,
            self.class,
            self.class_version,
            self.method,
        ]);
        b[4..6].copy_from_slice(&self.status.to_be_bytes());
        b[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        b[8..16].copy_from_slice(&self.tid.to_be_bytes());
        b[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        b[18..20].copy_from_slice(&self.reserved.to_be_bytes());
        b[20..].copy_from_slice(&self.modifier.to_be_bytes());
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_header_keeps_its_bytes(bytes: [u8; MadHeader::LEN]) {
            prop_assert_eq!(MadHeader::from_bytes(&bytes).to_bytes(), bytes);
        }
    }
}
