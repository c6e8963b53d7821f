//! What a communication manager is like, and what programs tell it.

use crate::card::{AddressVector, Mtu, QpType};
use crate::time::Span;
use crate::wire::cm::{IpHeader, ServiceId};
use crate::wire::{Gid, MacAddr, Psn, QpNumber};

/// Parameters of a [`Cm`](super::Cm). Times are exponents: 4.096 us x 2^n.
#[derive(Clone, Copy, Debug)]
pub struct CmConfig {
    /// Address of the port.
    pub gid: Gid,
    /// GUID of the card.
    pub ca_guid: u64,
    /// How long either end may take to answer a message.
    pub response_timeout: u8,
    /// How often a message is sent again, up to 15.
    pub max_retries: u8,
    /// How long a packet may be on its way.
    pub packet_lifetime: u8,
    /// How long this card takes to acknowledge.
    pub ack_delay: u8,
    /// How long a peer that asks again is told to wait for the program here (in MRA).
    pub service_timeout: u8,
    /// The most connections, those being made or ended included; further requests are rejected.
    pub max_connections: u32,
    /// The most requests that wait for the program at one service; further ones are rejected.
    pub backlog: u32,
    /// Upper half of transaction IDs.
    pub tid_high: u32,
}

impl CmConfig {
    /// As Linux' rdma_cm has them: answers within 4.3 s, 15 retries, a packet lifetime of 1.07 s, 69 s to decide.
    pub fn new(gid: Gid, mac: MacAddr) -> CmConfig {
        CmConfig {
            gid,
            ca_guid: gid.guid(mac),
            response_timeout: 20,
            max_retries: 15,
            packet_lifetime: 18,
            ack_delay: 15,
            service_timeout: 24,
            max_connections: 1 << 16,
            backlog: 1024,
            tid_high: 1,
        }
    }
}

/// 4.096 us x 2^n, n at most 31.
pub(super) fn span(n: u8) -> Span {
    Span::from_ns(4096 << n.min(31))
}

/// The timeout exponent of a queue pair: a packet there and back, and the time that the peer takes; as Linux adds
/// exponents.
pub(super) fn ack_timeout(ack_delay: u8, packet_lifetime: u8) -> u8 {
    let trip = packet_lifetime + 1;
    let sum = if trip >= ack_delay {
        trip + u8::from(ack_delay + 1 >= trip)
    } else {
        ack_delay + u8::from(trip + 1 >= ack_delay)
    };
    sum.min(31)
}

/// One end's queue pair, as a program describes it for the other end (`rdma_conn_param`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Queue pair.
    pub qp: QpNumber,
    /// First PSN that the peer is to send.
    pub rq_psn: Psn,
    /// READs and atomics that the peer may have outstanding here.
    pub responder_resources: u8,
    /// READs and atomics that this end will have outstanding.
    pub initiator_depth: u8,
    /// RNR retries of the peer's queue pair, 7 for ever.
    pub rnr_retry_count: u8,
    /// What an RNR NAK of this end asks the peer to wait, encoded.
    pub min_rnr_timer: u8,
    /// Acknowledgements carry credits.
    pub flow_control: bool,
    /// Receives come from a shared queue.
    pub srq: bool,
}

impl Endpoint {
    /// An end with one READ or atomic each way, RNR retries for ever after 0.64 ms.
    pub const fn new(qp: QpNumber, rq_psn: Psn) -> Endpoint {
        Endpoint {
            qp,
            rq_psn,
            responder_resources: 1,
            initiator_depth: 1,
            rnr_retry_count: 7,
            min_rnr_timer: 12,
            flow_control: false,
            srq: false,
        }
    }
}

/// A connection to be asked for.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// What to connect to. For an IP port, who asks is put in front of the private data.
    pub service: ServiceId,
    /// This end's port, told the other if the service is an IP port.
    pub src_port: u16,
    /// The way there.
    pub address: AddressVector,
    /// `Rc` or `Uc`.
    pub qp_type: QpType,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Retries of both queue pairs, 0 to 7.
    pub retry_count: u8,
    /// This end.
    pub end: Endpoint,
    /// At most 92 bytes, for an IP port 56.
    pub private_data: &'a [u8],
}

/// A request to be accepted.
#[derive(Clone, Copy, Debug)]
pub struct Accept<'a> {
    /// The way to the peer that the request came from.
    pub address: AddressVector,
    /// This end. READs and atomics are cut to what the peer can do.
    pub end: Endpoint,
    /// At most 196 bytes.
    pub private_data: &'a [u8],
}

/// A datagram service to be looked for.
#[derive(Clone, Copy, Debug)]
pub struct Resolve<'a> {
    /// The service.
    pub service: ServiceId,
    /// This end's port, told the other if the service is an IP port.
    pub src_port: u16,
    /// Address of the other end.
    pub peer: Gid,
    /// At most 216 bytes, for an IP port 180.
    pub private_data: &'a [u8],
}

/// What a datagram service is answered with.
#[derive(Clone, Copy, Debug)]
pub struct AcceptDatagrams<'a> {
    /// The service's queue pair.
    pub qp: QpNumber,
    /// Its Q_Key.
    pub qkey: u32,
    /// At most 136 bytes.
    pub private_data: &'a [u8],
}

/// Who asks, in front of the private data, if the service is an IP port.
pub(super) fn with_ip_header(
    service: ServiceId,
    header: Option<IpHeader>,
    private: &[u8],
) -> Vec<u8> {
    match (service.port(), header) {
        (Some(_), Some(header)) => [&header.encode()[..], private].concat(),
        _ => private.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_a_queue_pair_covers_the_trip_and_the_peer() {
        // What the kernel puts into a REQ: rdma_rxe's delay 15, lifetime 18.
        assert_eq!(ack_timeout(15, 18), 19);
        for delay in 0..=31 {
            for life in 0..=31 {
                let needed = span(delay) + span(life) * 2;
                let n = ack_timeout(delay, life);
                assert!(n == 31 || span(n) * 2 >= needed, "{delay} {life} {n}");
                assert!(n <= 1 + delay.max(life + 1));
            }
        }
    }

    #[test]
    fn the_guid_is_made_from_the_ethernet_address_as_the_kernel_makes_it() {
        let gid = std::net::Ipv4Addr::new(10, 66, 0, 2).into();
        let config = CmConfig::new(gid, MacAddr([0x52, 0x54, 0, 0x66, 0, 2]));
        assert_eq!(config.ca_guid, 0x5054_00ff_fe66_0002);
    }

    #[test]
    fn ports_without_an_ethernet_address_have_guids_that_differ() {
        let guid = |gid| CmConfig::new(gid, MacAddr::default()).ca_guid;
        let v4 = |host| std::net::Ipv4Addr::new(127, 0, 0, host).into();
        assert_eq!(guid(v4(2)), 0x0000_ffff_7f00_0002);
        assert_eq!(guid(v4(3)), 0x0000_ffff_7f00_0003);
        // fe80::5054:ff:fe66:2 is made from an Ethernet address itself.
        let link_local = Gid([
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x66, 0, 2,
        ]);
        assert_eq!(guid(link_local), 0x5054_00ff_fe66_0002);
    }
}
