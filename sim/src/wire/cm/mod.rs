//! Messages of the communication manager (chapter 12): how connections are made and ended.
//!
//! | file | what |
//! |---|---|
//! | `connection` | REQ, MRA, REJ, REP, RTU, DREQ, DREP, LAP, APR |
//! | `datagram` | SIDR_REQ, SIDR_REP |
//! | `codes` | service and communication IDs, reasons |
//! | `ip` | who asks for an IP service, in the private data |
//! | `fields` | places of fields in a message |
//!
//! A message is a [MAD](super::mad) of class 7, method Send: 24 bytes of header and 232 of body. Bits that no
//! field has are sent as zero and not looked at. A value that is too large for its field is cut.

mod codes;
mod connection;
mod datagram;
mod fields;
mod ip;

pub use codes::{About, CommId, PortSpace, RejectReason, ServiceId, SidrStatus, Transport};
pub use connection::{Apr, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu};
pub use datagram::{SidrRep, SidrReq};
pub use fields::Bytes;
pub use ip::IpHeader;

use super::mad::MadHeader;
use std::fmt;

/// Bytes of a MAD.
pub const MAD_LEN: usize = 256;

/// What follows the header.
type Body = [u8; MAD_LEN - MadHeader::LEN];

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// Not the length of a MAD.
    #[error("{0} bytes; a MAD has {MAD_LEN}")]
    Length(usize),
    /// A MAD for another service, or a method that this one does not have.
    #[error(
        "management class {class:#04x} version {version}, method {method:#04x}: not a message of the communication manager"
    )]
    Foreign {
        /// Management class.
        class: u8,
        /// Its version.
        version: u8,
        /// Method.
        method: u8,
    },
    /// No message has this attribute.
    #[error("attribute {0:#06x} is no message of the communication manager")]
    Unknown(u16),
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident($ty:ty) = $attribute:literal, $word:literal;)*) => {
        /// A message.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Message {
            $($(#[$doc])* $name($ty),)*
        }

        impl Message {
            fn read(attribute: u16, body: &Body) -> Option<Message> {
                match attribute {
                    $($attribute => Some(Message::$name(<$ty>::read(body))),)*
                    _ => None,
                }
            }

            fn write(&self, body: &mut Body) {
                match self {
                    $(Message::$name(m) => m.write(body),)*
                }
            }

            /// Its attribute ID.
            pub const fn attribute(&self) -> u16 {
                match self {
                    $(Message::$name(_) => $attribute,)*
                }
            }

            /// Its name: `REQ`.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Message::$name(_) => $word,)*
                }
            }
        }

        #[cfg(test)]
        const PLACES: &[(u16, &[(usize, usize)])] = &[$(($attribute, <$ty>::PLACES)),*];
    };
}

messages! {
    /// A request for a connection.
    Req(Req) = 0x0010, "REQ";
    /// It will take a while.
    Mra(Mra) = 0x0011, "MRA";
    /// No.
    Rej(Rej) = 0x0012, "REJ";
    /// Yes.
    Rep(Rep) = 0x0013, "REP";
    /// Ready to use.
    Rtu(Rtu) = 0x0014, "RTU";
    /// The end of a connection.
    Dreq(Dreq) = 0x0015, "DREQ";
    /// Has ended.
    Drep(Drep) = 0x0016, "DREP";
    /// Which queue pair is a service's.
    SidrReq(SidrReq) = 0x0017, "SIDR_REQ";
    /// This one is.
    SidrRep(SidrRep) = 0x0018, "SIDR_REP";
    /// Another alternate path.
    Lap(Lap) = 0x0019, "LAP";
    /// What became of it.
    Apr(Apr) = 0x001a, "APR";
}

/// A message and the header in front of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad {
    /// The header, whose attribute is that of the message.
    pub header: MadHeader,
    /// The message.
    pub message: Message,
}

impl Mad {
    /// A message of transaction `tid`.
    pub const fn new(tid: u64, message: Message) -> Mad {
        Mad {
            header: MadHeader::communication(tid, message.attribute()),
            message,
        }
    }

    /// Reads the payload of a datagram to queue pair 1.
    ///
    /// # Errors
    ///
    /// If it is no message of the communication manager.
    pub fn decode(payload: &[u8]) -> Result<Mad, MessageError> {
        let bytes: &[u8; MAD_LEN] = payload
            .try_into()
            .map_err(|_| MessageError::Length(payload.len()))?;
        let (mut head, mut body) = ([0; MadHeader::LEN], [0; MAD_LEN - MadHeader::LEN]);
        head.copy_from_slice(&bytes[..MadHeader::LEN]);
        body.copy_from_slice(&bytes[MadHeader::LEN..]);
        let header = MadHeader::from_bytes(&head);
        let ours = MadHeader::communication(0, 0);
        if (header.class, header.class_version, header.method)
            != (ours.class, ours.class_version, ours.method)
        {
            return Err(MessageError::Foreign {
                class: header.class,
                version: header.class_version,
                method: header.method,
            });
        }
        match Message::read(header.attribute, &body) {
            Some(message) => Ok(Mad { header, message }),
            None => Err(MessageError::Unknown(header.attribute)),
        }
    }

    /// Writes it.
    pub fn encode(&self) -> [u8; MAD_LEN] {
        let (mut bytes, mut body) = ([0; MAD_LEN], [0; MAD_LEN - MadHeader::LEN]);
        let header = MadHeader {
            attribute: self.message.attribute(),
            ..self.header
        };
        self.message.write(&mut body);
        bytes[..MadHeader::LEN].copy_from_slice(&header.to_bytes());
        bytes[MadHeader::LEN..].copy_from_slice(&body);
        bytes
    }
}

/// The message by name, with what tells it from others of its kind: `REP 0xc915c19f to 0x60d740dd, qp 0x000011, ...`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Message::Req(m) => {
                write!(
                    f,
                    " {} for {}, {} qp {:#08x} psn {} mtu {}, responder resources {} initiator depth {}, retries {} rnr {}",
                    m.local_id,
                    m.service_id,
                    m.transport,
                    m.qp.get(),
                    m.starting_psn,
                    128u32 << m.path_mtu.min(15),
                    m.responder_resources,
                    m.initiator_depth,
                    m.retry_count,
                    m.rnr_retry_count
                )?;
                asker(f, m.service_id, &m.private_data.0)
            }
            Message::Mra(m) => write!(
                f,
                " {} to {}, of {}, service timeout {}",
                m.local_id, m.remote_id, m.about, m.service_timeout
            ),
            Message::Rej(m) => write!(
                f,
                " {} to {}, of {}: {}",
                m.local_id, m.remote_id, m.about, m.reason
            ),
            Message::Rep(m) => write!(
                f,
                " {} to {}, qp {:#08x} psn {}, responder resources {} initiator depth {}, rnr {}",
                m.local_id,
                m.remote_id,
                m.qp.get(),
                m.starting_psn,
                m.responder_resources,
                m.initiator_depth,
                m.rnr_retry_count
            ),
            Message::Rtu(m) => write!(f, " {} to {}", m.local_id, m.remote_id),
            Message::Dreq(m) => write!(
                f,
                " {} to {}, of qp {:#08x}",
                m.local_id,
                m.remote_id,
                m.remote_qp.get()
            ),
            Message::Drep(m) => write!(f, " {} to {}", m.local_id, m.remote_id),
            Message::SidrReq(m) => {
                write!(f, " {} for {}", m.request_id, m.service_id)?;
                asker(f, m.service_id, &m.private_data.0)
            }
            Message::SidrRep(m) => write!(
                f,
                " to {} for {}: {}, qp {:#08x} qkey {:#010x}",
                m.request_id,
                m.service_id,
                m.status,
                m.qp.get(),
                m.qkey
            ),
            Message::Lap(m) => write!(
                f,
                " {} to {}, of qp {:#08x}, alternate path {} to {}",
                m.local_id,
                m.remote_id,
                m.remote_qp.get(),
                m.alternate_local_gid,
                m.alternate_remote_gid
            ),
            Message::Apr(m) => write!(f, " {} to {}: status {}", m.local_id, m.remote_id, m.status),
        }
    }
}

fn asker(f: &mut fmt::Formatter<'_>, service: ServiceId, private: &[u8]) -> fmt::Result {
    match service.port().and_then(|_| IpHeader::decode(private)) {
        Some(ip) if ip.src.is_ipv4() => {
            write!(f, ", from {}:{} to {}", ip.src, ip.src_port, ip.dst)
        }
        Some(ip) => write!(f, ", from [{}]:{} to {}", ip.src, ip.src_port, ip.dst),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_lie_in_their_message_and_apart_from_each_other() {
        for (attribute, places) in PLACES {
            let mut taken = [false; size_of::<Body>() * 8];
            for &(at, width) in *places {
                for (i, bit) in taken[at..at + width].iter_mut().enumerate() {
                    assert!(!*bit, "{attribute:#x}: bit {}", at + i);
                    *bit = true;
                }
            }
            // The private data ends a message.
            assert!(taken[taken.len() - 1], "{attribute:#x}");
        }
    }

    /// The bits of a body that fields have.
    fn mask(attribute: u16) -> Body {
        let mut mask = [0; size_of::<Body>()];
        let (_, places) = PLACES.iter().find(|(a, _)| *a == attribute).unwrap();
        for i in places.iter().flat_map(|&(at, width)| at..at + width) {
            mask[i / 8] |= 0x80 >> (i % 8);
        }
        mask
    }

    proptest! {
        #[test]
        fn every_message_keeps_the_bits_of_its_fields(
            attribute in 0x10u16..=0x1a,
            tid: u64,
            body in proptest::collection::vec(any::<u8>(), size_of::<Body>()),
        ) {
            let mut bytes = MadHeader::communication(tid, attribute).to_bytes().to_vec();
            bytes.extend(&body);
            let mad = Mad::decode(&bytes).unwrap();
            let again = mad.encode();
            prop_assert_eq!(Mad::decode(&again).unwrap(), mad);
            let kept: Vec<u8> = body.iter().zip(mask(attribute)).map(|(b, m)| b & m).collect();
            prop_assert_eq!(&again[..24], &bytes[..24]);
            prop_assert_eq!(&again[24..], &kept[..]);
            let text = mad.message.to_string();
            prop_assert!(text.starts_with(mad.message.name()) && text.len() < 400, "{}", text);
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            match Mad::decode(&bytes) {
                Ok(mad) => prop_assert_eq!(Mad::decode(&mad.encode()).unwrap(), mad),
                Err(e) => prop_assert!(!e.to_string().is_empty()),
            }
        }
    }
}
