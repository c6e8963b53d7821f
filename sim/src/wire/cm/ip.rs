//! How IP services use the private data of a request (annex A11): who asks comes first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first 36 bytes of the private data of a REQ or SIDR_REQ to an IP service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpHeader {
    /// Major and minor version, zero.
    pub version: u8,
    /// The asker's port.
    pub src_port: u16,
    /// The asker's address.
    pub src: IpAddr,
    /// The address asked, of the same family.
    pub dst: IpAddr,
}

impl IpHeader {
    /// Bytes.
    pub const LEN: usize = 36;

    /// A header of version 0; `None` if the addresses are not of one family.
    pub fn new(src: IpAddr, src_port: u16, dst: IpAddr) -> Option<IpHeader> {
        (src.is_ipv4() == dst.is_ipv4()).then_some(IpHeader {
            version: 0,
            src_port,
            src,
            dst,
        })
    }

    /// Reads it from the beginning of private data; `None` if it is not there.
    pub fn decode(private: &[u8]) -> Option<IpHeader> {
        let (b, _) = private.split_first_chunk::<{ IpHeader::LEN }>()?;
        let mut places = [[0; 16]; 2];
        places[0].copy_from_slice(&b[4..20]);
        places[1].copy_from_slice(&b[20..]);
        let [src, dst] = match b[1] >> 4 {
            4 => places.map(|p| IpAddr::from(Ipv4Addr::new(p[12], p[13], p[14], p[15]))),
            6 => places.map(|p| IpAddr::from(Ipv6Addr::from(p))),
            _ => return None,
        };
        Some(IpHeader {
            version: b[0],
            src_port: u16::from_be_bytes([b[2], b[3]]),
            src,
            dst,
        })
    }

    /// Writes it.
    pub fn encode(&self) -> [u8; IpHeader::LEN] {
        let mut b = [0; IpHeader::LEN];
        b[0] = self.version;
        b[1] = if self.src.is_ipv4() { 4 << 4 } else { 6 << 4 };
        b[2..4].copy_from_slice(&self.src_port.to_be_bytes());
        let place = |ip: IpAddr| {
            let mut place = [0; 16];
            match ip {
                IpAddr::V4(v4) => place[12..].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => place = v6.octets(),
            }
            place
        };
        b[4..20].copy_from_slice(&place(self.src));
        b[20..].copy_from_slice(&place(self.dst));
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(version: u8, src_port: u16, v6: bool, a: [u8; 16], b: [u8; 16]) {
            let ip = |x: [u8; 16]| match v6 {
                true => IpAddr::from(x),
                false => IpAddr::from([x[0], x[1], x[2], x[3]]),
            };
            let header = IpHeader { version, src_port, src: ip(a), dst: ip(b) };
            prop_assert_eq!(IpHeader::decode(&header.encode()), Some(header));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            if let Some(header) = IpHeader::decode(&bytes) {
                prop_assert_eq!(IpHeader::decode(&header.encode()), Some(header));
            }
        }
    }

    #[test]
    fn two_families_make_no_header() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        assert_eq!(IpHeader::new(v4, 1, v6), None);
        assert!(IpHeader::new(v6, 1, v6).is_some());
    }
}
