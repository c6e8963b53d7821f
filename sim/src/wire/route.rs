//! How the packets of one flow are addressed, interned so that a packet names it in four bytes.

use super::{Gid, MacAddr, QpNumber};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How a packet is wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Encapsulation {
    /// Ethernet, GRH (EtherType 0x8915).
    RoceV1,
    /// Ethernet, IPv4 or IPv6 as the addresses say, UDP port 4791.
    #[default]
    RoceV2,
}

/// An IEEE 802.1Q tag without its priority bits, which are the packet's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vlan {
    /// VLAN identifier, 0 to 4095; 0 is a priority tag.
    pub id: u16,
}

/// Addresses, ports, VLAN and class of the packets of one flow, as their sender writes them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// RoCEv1 or RoCEv2.
    pub encapsulation: Encapsulation,
    /// Ethernet source.
    pub src_mac: MacAddr,
    /// Ethernet destination.
    pub dst_mac: MacAddr,
    /// Source address.
    pub src: Gid,
    /// Destination address.
    pub dst: Gid,
    /// UDP source port, the entropy for ECMP; constant per connected queue pair (A17.3.2.1).
    pub udp_src: u16,
    /// VLAN tag, if there is one.
    pub vlan: Option<Vlan>,
    /// Upper six bits of the traffic class.
    pub dscp: u8,
    /// TTL or hop limit at the sender.
    pub hop_limit: u8,
    /// IPv6 or GRH flow label, 20 bits.
    pub flow_label: u32,
}

impl Route {
    /// Bytes a packet has beside BTH, extended headers, payload and pad: Ethernet header, VLAN tag,
    /// IP or GRH, UDP, ICRC and FCS.
    pub fn overhead(&self) -> u16 {
        let ethernet = 14 + if self.vlan.is_some() { 4 } else { 0 };
        let network = match (self.encapsulation, self.dst.ipv4()) {
            (Encapsulation::RoceV1, _) => 40,
            (Encapsulation::RoceV2, Some(_)) => 20 + 8,
            (Encapsulation::RoceV2, None) => 40 + 8,
        };
        ethernet + network + 4 + 4
    }
}

/// The UDP source port of a connection between two queue pairs: constant per connection, different
/// between connections (A17.3.2.1), the same in both directions, in the dynamic range. The rule is that
/// of the Linux kernel (`rdma_get_udp_sport`): the product of the numbers is folded into a flow label,
/// and that into the port.
pub fn source_port(own: QpNumber, peer: QpNumber) -> u16 {
    let product = u64::from(own.get()) * u64::from(peer.get());
    let label = (product ^ product >> 20 ^ product >> 40) & 0xf_ffff;
    0xc000 | ((label ^ label >> 14) & 0x3fff) as u16
}

/// The name of an interned [`Route`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RouteId(u32);

impl RouteId {
    /// Position in the table it came from: 0, 1, 2, ... in the order of interning.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where routes are interned: shared by the cards and the driver of one network. Locked when a queue
/// pair is connected and when a driver meets an id for the first time, never per packet.
#[derive(Clone, Debug, Default)]
pub struct RouteTable(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    routes: Vec<Route>,
    ids: HashMap<Route, RouteId>,
}

impl RouteTable {
    /// An empty table.
    pub fn new() -> RouteTable {
        RouteTable::default()
    }

    /// The id of `route`, the same for equal routes.
    pub fn intern(&self, route: Route) -> RouteId {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = inner.ids.get(&route) {
            return id;
        }
        let id = RouteId(inner.routes.len() as u32);
        inner.routes.push(route);
        inner.ids.insert(route, id);
        id
    }

    /// The route called `id`, which this table gave out.
    pub fn get(&self, id: RouteId) -> Option<Route> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.routes.get(id.index()).copied()
    }

    /// Appends to `seen` the routes interned since it was last brought up to date.
    pub fn refresh(&self, seen: &mut Vec<Route>) {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend_from_slice(inner.routes.get(seen.len()..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn source_ports_fold_all_bits_of_the_flow_label() {
        let port = |a, b| source_port(QpNumber::new(a), QpNumber::new(b));
        // rc_send: both queue pairs are 0x11.
        assert_eq!(port(0x11, 0x11), 49441);
        // By hand: the product 0x1234000 folds to the label 0x34012, whose upper six bits are 0xd.
        assert_eq!(port(0x1000, 0x1234), 0xc01f);
        assert_eq!(port(0x1234, 0x1000), 0xc01f);
    }

    #[test]
    fn equal_routes_share_an_id() {
        let table = RouteTable::new();
        let route = Route {
            encapsulation: Encapsulation::RoceV2,
            src_mac: MacAddr::default(),
            dst_mac: MacAddr::default(),
            src: Ipv4Addr::new(10, 0, 0, 1).into(),
            dst: Ipv4Addr::new(10, 0, 0, 2).into(),
            udp_src: 0xc000,
            vlan: None,
            dscp: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        let a = table.intern(route);
        let b = table.intern(Route {
            udp_src: 0xc001,
            ..route
        });
        assert_ne!(a, b);
        assert_eq!(table.intern(route), a);
        assert_eq!(table.get(b).unwrap().udp_src, 0xc001);
        let mut seen = Vec::new();
        table.refresh(&mut seen);
        table.refresh(&mut seen);
        assert_eq!(seen.len(), 2);
    }

    #[test]
    fn a_write_middle_of_1024_bytes_is_1086_on_ethernet() {
        let route = Route {
            encapsulation: Encapsulation::RoceV2,
            src_mac: MacAddr::default(),
            dst_mac: MacAddr::default(),
            src: Ipv4Addr::new(10, 0, 0, 1).into(),
            dst: Ipv4Addr::new(10, 0, 0, 2).into(),
            udp_src: 0xc000,
            vlan: None,
            dscp: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        assert_eq!(route.overhead() + 12 + 1024, 1086);
    }
}
